/*
 * softmax.c - the slots softmax and softmax_backward. Layer: device/cpu.
 *
 * The dimension that is normalised is taken out of the loop (iterate.h), which then walks over the starts of rows.
 * Starts that lie side by side in memory are worked on as columns, COLUMNS at a time, which is enough for each row of
 * them to fill half a page: fewer, and the columns of one array fall on the same few sets of the cache. Others row by
 * row.
 */
#include "device/cpu/iterate.h"
#include "device/cpu/partial_vectors.h"
#include "device/cpu/reduce/reduce.h"
#include "device/cpu/rows.h"

/* COLUMNS: see above. SUM_BYTES of a row of gradients are added up side by side, in several vectors that do not wait
 * for each other; SUM_BLOCKS: how many elements one after the other before they become a double, which bounds the
 * rounding error of f32. STEP: elements of a gradient that are made together, a vector or two: more are no longer read
 * in the order of memory. */
enum { COLUMNS = 512, SUM_BYTES = 256, SUM_BLOCKS = 16, STEP = 16 };

typedef struct softmax_job {
    int64_t n;         /* elements of a row */
    int64_t stride[3]; /* from one to the next, in elements: out, x; backward: gx, gout, out */
    size_t size;
    bool log;
    yk_dtype dtype;
} softmax_job;

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Eight sums in double: with the elements of part[], each of which goes to the lane of its number modulo 8; and the sum
 * of all. They stay in registers: a load waits for an earlier store to the same place of another page, and a row of
 * stores has just gone to memory. */
enum { SUM_VECTORS = SUM_BYTES / YK__VECTOR_BYTES, DOUBLES = 64 / YK__VECTOR_BYTES };

static inline __attribute__((always_inline)) void add_f64(yk__vf64 *total, const yk__vf64u *part)
{
    for (int v = 0; v < SUM_VECTORS; v++)
        total[v % DOUBLES] += part[v];
}

static inline __attribute__((always_inline)) void add_f32(yk__vf64 *total, const yk__vf32u *part)
{
    for (int v = 0; v < SUM_VECTORS; v++) {
        yk__vf64 low, high;
        yk__widen_lanes(part[v], &low, &high);
        total[2 * v % DOUBLES] += low;
        total[(2 * v + 1) % DOUBLES] += high;
    }
}

static inline __attribute__((always_inline)) double sum_of_doubles(yk__vf64 *total)
{
    for (int v = DOUBLES / 2; v > 0; v /= 2)
        for (int w = 0; w < v; w++)
            total[w] += total[w + v];
    return yk__sum_of_lanes(total[0]);
}

#define SOFTMAX(S, T, V)                                                                                               \
    /* Exponentials of a row that does not fit into e are kept in out. */                                              \
    static void row_##S(const softmax_job *job, T *out, const T *x)                                                    \
    {                                                                                                                  \
        T e[YK__ROW_CHUNK] __attribute__((aligned(64)));                                                               \
        int64_t n = job->n, os = job->stride[0], xs = job->stride[1];                                                  \
        T top = yk__row_max_##S(x, xs, n);                                                                             \
        bool kept = !job->log && n > YK__ROW_CHUNK;                                                                    \
        double sum = 0;                                                                                                \
        for (int64_t i = 0; i < n; i += YK__ROW_CHUNK) {                                                               \
            int64_t m = MIN(n - i, YK__ROW_CHUNK);                                                                     \
            bool direct = kept && os == 1 && m == YK__ROW_CHUNK;                                                       \
            sum += yk__row_exp_##S(x + i * xs, xs, m, top, direct ? out + i : e);                                      \
            if (kept && !direct)                                                                                       \
                for (int64_t k = 0; k < m; k++)                                                                        \
                    out[(i + k) * os] = e[k];                                                                          \
        }                                                                                                              \
        T log_sum = job->log ? (T)log(sum) : 0, scale = (T)(1.0 / sum);                                                \
        if (job->log)                                                                                                  \
            for (int64_t k = 0; k < n; k++)                                                                            \
                out[k * os] = (x[k * xs] - top) - log_sum;                                                             \
        else if (kept && os == 1)                                                                                      \
            for (int64_t k = 0; k < n; k++)                                                                            \
                out[k] *= scale;                                                                                       \
        else if (kept)                                                                                                 \
            for (int64_t k = 0; k < n; k++)                                                                            \
                out[k * os] *= scale;                                                                                  \
        else if (os == 1)                                                                                              \
            for (int64_t k = 0; k < n; k++)                                                                            \
                out[k] = e[k] * scale;                                                                                 \
        else                                                                                                           \
            for (int64_t k = 0; k < n; k++)                                                                            \
                out[k * os] = e[k] * scale;                                                                            \
    }                                                                                                                  \
    static void columns_##S(const softmax_job *job, T *out, const T *x, int m)                                         \
    {                                                                                                                  \
        T top[COLUMNS], scale[COLUMNS], part[COLUMNS]; /* part: the sum of up to eight rows */                         \
        double sum[COLUMNS];                                                                                           \
        int64_t n = job->n, os = job->stride[0], xs = job->stride[1];                                                  \
        for (int j = 0; j < m; j++)                                                                                    \
            top[j] = (T)-INFINITY, sum[j] = 0, part[j] = 0;                                                            \
        for (int64_t k = 0; k < n; k++)                                                                                \
            for (int j = 0; j < m; j++)                                                                                \
                top[j] = x[k * xs + j] > top[j] ? x[k * xs + j] : top[j];                                              \
        for (int64_t k = 0; k < n; k++) {                                                                              \
            T *o = out + k * os;                                                                                       \
            const T *in = x + k * xs;                                                                                  \
            if (job->log)                                                                                              \
                for (int j = 0; j < m; j++)                                                                            \
                    part[j] += yk__exp_##S(in[j] - top[j]);                                                            \
            else                                                                                                       \
                YK__INDEPENDENT for (int j = 0; j < m; j++)                                                            \
                {                                                                                                      \
                    T e = yk__exp_##S(in[j] - top[j]);                                                                 \
                    part[j] += e;                                                                                      \
                    o[j] = e;                                                                                          \
                }                                                                                                      \
            if (k % 8 == 7 || k == n - 1)                                                                              \
                for (int j = 0; j < m; j++)                                                                            \
                    sum[j] += (double)part[j], part[j] = 0;                                                            \
        }                                                                                                              \
        for (int j = 0; j < m; j++)                                                                                    \
            scale[j] = job->log ? (T)log(sum[j]) : (T)(1.0 / sum[j]);                                                  \
        for (int64_t k = 0; k < n; k++) {                                                                              \
            T *o = out + k * os;                                                                                       \
            const T *in = x + k * xs;                                                                                  \
            if (job->log) {                                                                                            \
                YK__INDEPENDENT for (int j = 0; j < m; j++)                                                            \
                {                                                                                                      \
                    o[j] = (in[j] - top[j]) - scale[j];                                                                \
                }                                                                                                      \
            } else {                                                                                                   \
                YK__INDEPENDENT for (int j = 0; j < m; j++)                                                            \
                {                                                                                                      \
                    o[j] *= scale[j];                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* The sum of g, times y unless `log`, over whole steps of the n: in T over up to SUM_BLOCKS steps, then in        \
       double, in an order that does not depend on the vectors. */                                                     \
    static inline __attribute__((always_inline)) double dense_sum_##S(bool log, const T *g, const T *y, int64_t n)     \
    {                                                                                                                  \
        enum { LANES = sizeof(V) / sizeof(T), VECTORS = SUM_BYTES / sizeof(V), ALL = SUM_BYTES / sizeof(T) };          \
        yk__vf64 total[DOUBLES] = {{0}};                                                                               \
        for (int64_t k = 0; k + ALL <= n;) {                                                                           \
            V part[VECTORS] = {{0}};                                                                                   \
            int64_t left = (n - k) / ALL * ALL, end = k + MIN(left, SUM_BLOCKS * ALL);                                 \
            for (; k < end; k += ALL)                                                                                  \
                for (int v = 0; v < VECTORS; v++) {                                                                    \
                    const V *from = (const V *)(g + k + v * LANES), *by = (const V *)(y + k + v * LANES);              \
                    if (log)                                                                                           \
                        part[v] += *from;                                                                              \
                    else                                                                                               \
                        part[v] += *from * *by;                                                                        \
                }                                                                                                      \
            add_##S(total, part);                                                                                      \
        }                                                                                                              \
        return sum_of_doubles(total);                                                                                  \
    }                                                                                                                  \
    /* softmax: gx = y (g - sum g y); its logarithm: gx = g - exp(y) sum g. */                                         \
    static void backward_##S(const softmax_job *job, T *gx, const T *g, const T *y)                                    \
    {                                                                                                                  \
        int64_t n = job->n, xs = job->stride[0], gs = job->stride[1], ys = job->stride[2], k = 0;                      \
        double sum = 0;                                                                                                \
        if (gs == 1 && (job->log || ys == 1)) {                                                                        \
            sum = job->log ? dense_sum_##S(true, g, g, n) : dense_sum_##S(false, g, y, n);                             \
            k = n - n % (SUM_BYTES / (int)sizeof(T));                                                                  \
        }                                                                                                              \
        for (; k < n; k++)                                                                                             \
            sum += (double)g[k * gs] * (job->log ? 1.0 : (double)y[k * ys]);                                           \
        T total = (T)sum;                                                                                              \
        if (job->log && xs == 1 && gs == 1 && ys == 1) {                                                               \
            YK__INDEPENDENT for (k = 0; k < n; k++)                                                                    \
            {                                                                                                          \
                gx[k] = g[k] - yk__exp_##S(y[k]) * total;                                                              \
            }                                                                                                          \
        } else if (job->log) {                                                                                         \
            for (k = 0; k < n; k++)                                                                                    \
                gx[k * xs] = g[k * gs] - yk__exp_##S(y[k * ys]) * total;                                               \
        } else {                                                                                                       \
            for (k = 0; k < n; k++)                                                                                    \
                gx[k * xs] = y[k * ys] * (g[k * gs] - total);                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* softmax of rows whose elements are neighbours. */                                                               \
    static __attribute__((noinline)) void backward_rows_##S(int64_t rows, int64_t n, char *const *data,                \
                                                            const int64_t *stride)                                     \
    {                                                                                                                  \
        const int64_t gx_step = stride[0], g_step = stride[1], y_step = stride[2];                                     \
        char *gx_row = data[0], *g_row = data[1], *y_row = data[2];                                                    \
        for (; rows > 0; rows--, gx_row += gx_step, g_row += g_step, y_row += y_step) {                                \
            T *gx = (T *)gx_row;                                                                                       \
            const T *g = (const T *)g_row, *y = (const T *)y_row;                                                      \
            double sum = dense_sum_##S(false, g, y, n);                                                                \
            for (int64_t k = n - n % (SUM_BYTES / (int)sizeof(T)); k < n; k++)                                         \
                sum += (double)g[k] * (double)y[k];                                                                    \
            T total = (T)sum;                                                                                          \
            int64_t k = 0;                                                                                             \
            for (; k + STEP <= n; k += STEP)                                                                           \
                YK__INDEPENDENT for (int l = 0; l < STEP; l++)                                                         \
                {                                                                                                      \
                    gx[k + l] = y[k + l] * (g[k + l] - total);                                                         \
                }                                                                                                      \
            for (; k < n; k++)                                                                                         \
                gx[k] = y[k] * (g[k] - total);                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    static void backward_columns_##S(const softmax_job *job, T *gx, const T *g, const T *y, int m)                     \
    {                                                                                                                  \
        T total[COLUMNS];                                                                                              \
        double sum[COLUMNS];                                                                                           \
        int64_t n = job->n, xs = job->stride[0], gs = job->stride[1], ys = job->stride[2];                             \
        for (int j = 0; j < m; j++)                                                                                    \
            sum[j] = 0;                                                                                                \
        for (int64_t k = 0; k < n; k++)                                                                                \
            for (int j = 0; j < m; j++)                                                                                \
                sum[j] += (double)g[k * gs + j] * (job->log ? 1.0 : (double)y[k * ys + j]);                            \
        for (int j = 0; j < m; j++)                                                                                    \
            total[j] = (T)sum[j];                                                                                      \
        for (int64_t k = 0; k < n; k++) {                                                                              \
            T *o = gx + k * xs;                                                                                        \
            const T *gk = g + k * gs, *yk = y + k * ys;                                                                \
            if (job->log) {                                                                                            \
                YK__INDEPENDENT for (int j = 0; j < m; j++)                                                            \
                {                                                                                                      \
                    o[j] = gk[j] - yk__exp_##S(yk[j]) * total[j];                                                      \
                }                                                                                                      \
            } else {                                                                                                   \
                YK__INDEPENDENT for (int j = 0; j < m; j++)                                                            \
                {                                                                                                      \
                    o[j] = yk[j] * (gk[j] - total[j]);                                                                 \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
SOFTMAX(f32, float, yk__vf32u)
SOFTMAX(f64, double, yk__vf64u)

static bool side_by_side(const softmax_job *job, int operands, int64_t n, const int64_t *stride)
{
    bool contiguous = n >= 4;
    for (int k = 0; k < operands; k++)
        contiguous = contiguous && stride[k] == (int64_t)job->size;
    return contiguous;
}

static void forward_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const softmax_job *job = context;
    bool columns = side_by_side(job, 2, n, stride);
    int64_t step = columns ? COLUMNS : 1;
    for (int64_t i = 0; i < n; i += step) {
        char *out = data[0] + i * stride[0], *x = data[1] + i * stride[1];
        int m = (int)MIN(n - i, step);
        if (job->dtype == YK_F32)
            columns ? columns_f32(job, (float *)out, (float *)x, m) : row_f32(job, (float *)out, (float *)x);
        else
            columns ? columns_f64(job, (double *)out, (double *)x, m) : row_f64(job, (double *)out, (double *)x);
    }
}

static void backward_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    (void)first;
    const softmax_job *job = context;
    bool columns = side_by_side(job, 3, n, stride);
    int64_t step = columns ? COLUMNS : 1;
    if (!columns && !job->log && job->stride[0] == 1 && job->stride[1] == 1 && job->stride[2] == 1) {
        (job->dtype == YK_F32 ? backward_rows_f32 : backward_rows_f64)(n, job->n, data, stride);
        return;
    }
    for (int64_t i = 0; i < n; i += step) {
        char *gx = data[0] + i * stride[0], *g = data[1] + i * stride[1], *y = data[2] + i * stride[2];
        int m = (int)MIN(n - i, step);
        if (job->dtype == YK_F32 && columns)
            backward_columns_f32(job, (float *)gx, (float *)g, (float *)y, m);
        else if (job->dtype == YK_F32)
            backward_f32(job, (float *)gx, (float *)g, (float *)y);
        else if (columns)
            backward_columns_f64(job, (double *)gx, (double *)g, (double *)y, m);
        else
            backward_f64(job, (double *)gx, (double *)g, (double *)y);
    }
}

/* Runs over all rows along `dim`. A 0-dimensional view is one row of one element. */
static void rows_run(int device, yk__run_fn fn, int operands, const yk__view *const *views, int dim, bool log)
{
    const yk__view *out = views[0];
    bool scalar = out->ndim == 0;
    softmax_job job = {
        .n = scalar ? 1 : out->shape[dim], .log = log, .dtype = out->dtype, .size = yk_dtype_size(out->dtype)};
    yk__view starts[3];
    const yk__view *pointers[3] = {&starts[0], &starts[1], &starts[2]};
    for (int k = 0; k < operands; k++) {
        job.stride[k] = scalar ? 1 : views[k]->stride[dim];
        starts[k] = *views[k];
        if (!scalar)
            starts[k].shape[dim] = 1;
    }
    if (job.n == 0)
        return;
    yk__loop loop;
    yk__loop_init(&loop, operands, pointers, false);
    int64_t grain = YK__GRAIN / 8 / job.n; /* an exponential costs several plain elements */
    int64_t least = loop.stride[0][0] == (int64_t)job.size ? COLUMNS : 1;
    yk__loop_run(device, &loop, grain > least ? grain : least, fn, &job);
}

static yk_status softmax(int device, const yk__view *out, const yk__view *x, int dim, bool log)
{
    const yk__view *views[] = {out, x};
    rows_run(device, forward_run, 2, views, dim, log);
    return YK_OK;
}

static yk_status softmax_backward(int device, const yk__view *gx, const yk__view *gout, const yk__view *out, int dim,
                                  bool log)
{
    const yk__view *views[] = {gx, gout, out};
    rows_run(device, backward_run, 3, views, dim, log);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_softmax)(yk__backend *table)
{
    table->softmax = softmax;
    table->softmax_backward = softmax_backward;
}
