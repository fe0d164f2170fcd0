/*
 * softmax.c - the slots softmax and softmax_backward. Layer: device/cpu.
 *
 * The dimension that is normalised is taken out of the loop (iterate.h), which then walks over the starts of rows.
 * Starts that lie side by side in memory are worked on as columns, COLUMNS at a time, which is enough for each row of
 * them to fill half a page: fewer, and the columns of one array fall on the same few sets of the cache. Others row by
 * row.
 */
#include "device/cpu/iterate.h"
#include "device/cpu/reduce.h"
#include "device/cpu/rows.h"

/* COLUMNS: see above. Lanes that a row of gradients is summed in, several vectors that do not wait for each other, and
 * how many elements of one are summed before they become a double, which bounds the rounding error of f32. */
enum { COLUMNS = 512, SUM_LANES = 64, SUM_BLOCKS = 16 };

typedef struct softmax_job {
    int64_t n;         /* elements of a row */
    int64_t stride[3]; /* from one to the next, in elements: out, x; backward: gx, gout, out */
    size_t size;
    bool log;
    yk_dtype dtype;
} softmax_job;

#define MIN(a, b) ((a) < (b) ? (a) : (b))

#define SOFTMAX(S, T)                                                                                                  \
    static void row_##S(const softmax_job *job, T *out, const T *x)                                                    \
    {                                                                                                                  \
        T e[YK__ROW_CHUNK] __attribute__((aligned(64)));                                                               \
        int64_t n = job->n, os = job->stride[0], xs = job->stride[1];                                                  \
        T top = yk__row_max_##S(x, xs, n);                                                                             \
        double sum = 0;                                                                                                \
        for (int64_t i = 0; i < n; i += YK__ROW_CHUNK)                                                                 \
            sum += yk__row_exp_##S(x + i * xs, xs, MIN(n - i, YK__ROW_CHUNK), top, e);                                 \
        T log_sum = job->log ? (T)log(sum) : 0, scale = (T)(1.0 / sum);                                                \
        for (int64_t i = 0; i < n; i += YK__ROW_CHUNK) {                                                               \
            int64_t m = MIN(n - i, YK__ROW_CHUNK);                                                                     \
            if (job->log) {                                                                                            \
                for (int64_t k = i; k < i + m; k++)                                                                    \
                    out[k * os] = (x[k * xs] - top) - log_sum;                                                         \
                continue;                                                                                              \
            }                                                                                                          \
            if (n > YK__ROW_CHUNK)                                                                                     \
                yk__row_exp_##S(x + i * xs, xs, m, top, e);                                                            \
            if (os == 1)                                                                                               \
                for (int64_t k = 0; k < m; k++)                                                                        \
                    out[i + k] = e[k] * scale;                                                                         \
            else                                                                                                       \
                for (int64_t k = 0; k < m; k++)                                                                        \
                    out[(i + k) * os] = e[k] * scale;                                                                  \
        }                                                                                                              \
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
    /* The sum of g, times y unless `log`, over whole blocks of the n: in T over up to SUM_BLOCKS blocks, then double. \
     */                                                                                                                \
    static double dense_sum_##S(bool log, const T *g, const T *y, int64_t n, int64_t *done)                            \
    {                                                                                                                  \
        double sum = 0;                                                                                                \
        int64_t k = 0;                                                                                                 \
        while (k + SUM_LANES <= n) {                                                                                   \
            T part[SUM_LANES] = {0};                                                                                   \
            int64_t end =                                                                                              \
                n - k < SUM_BLOCKS * SUM_LANES ? k + (n - k) / SUM_LANES * SUM_LANES : k + SUM_BLOCKS * SUM_LANES;     \
            if (log)                                                                                                   \
                for (; k < end; k += SUM_LANES)                                                                        \
                    for (int l = 0; l < SUM_LANES; l++)                                                                \
                        part[l] += g[k + l];                                                                           \
            else                                                                                                       \
                for (; k < end; k += SUM_LANES) {                                                                      \
                    for (int l = 0; l < SUM_LANES; l += 64 / (int)sizeof(T)) {                                         \
                        __builtin_prefetch(g + k + n + l);                                                             \
                        __builtin_prefetch(y + k + n + l);                                                             \
                    }                                                                                                  \
                    for (int l = 0; l < SUM_LANES; l++)                                                                \
                        part[l] += g[k + l] * y[k + l];                                                                \
                }                                                                                                      \
            for (int l = 0; l < SUM_LANES; l++)                                                                        \
                sum += (double)part[l];                                                                                \
        }                                                                                                              \
        *done = k;                                                                                                     \
        return sum;                                                                                                    \
    }                                                                                                                  \
    /* softmax: gx = y (g - sum g y), while the next row is fetched; its logarithm: gx = g - exp(y) sum g. */          \
    static void backward_##S(const softmax_job *job, T *gx, const T *g, const T *y)                                    \
    {                                                                                                                  \
        int64_t n = job->n, xs = job->stride[0], gs = job->stride[1], ys = job->stride[2], k = 0;                      \
        double sum = 0;                                                                                                \
        if (gs == 1 && (job->log || ys == 1))                                                                          \
            sum = dense_sum_##S(job->log, g, y, n, &k);                                                                \
        for (; k < n; k++)                                                                                             \
            sum += (double)g[k * gs] * (job->log ? 1.0 : (double)y[k * ys]);                                           \
        T total = (T)sum;                                                                                              \
        if (!job->log && xs == 1 && gs == 1 && ys == 1) {                                                              \
            for (k = 0; k + SUM_LANES <= n; k += SUM_LANES) {                                                          \
                for (int l = 0; l < SUM_LANES; l += 64 / (int)sizeof(T)) {                                             \
                    __builtin_prefetch(gx + k + n + l, 1);                                                             \
                }                                                                                                      \
                YK__INDEPENDENT for (int l = 0; l < SUM_LANES; l++)                                                    \
                {                                                                                                      \
                    gx[k + l] = y[k + l] * (g[k + l] - total);                                                         \
                }                                                                                                      \
            }                                                                                                          \
            for (; k < n; k++)                                                                                         \
                gx[k] = y[k] * (g[k] - total);                                                                         \
        } else if (job->log && xs == 1 && gs == 1 && ys == 1) {                                                        \
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
SOFTMAX(f32, float)
SOFTMAX(f64, double)

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
static void run(int device, yk__run_fn fn, int operands, const yk__view *const *views, int dim, bool log)
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
    run(device, forward_run, 2, views, dim, log);
    return YK_OK;
}

static yk_status softmax_backward(int device, const yk__view *gx, const yk__view *gout, const yk__view *out, int dim,
                                  bool log)
{
    const yk__view *views[] = {gx, gout, out};
    run(device, backward_run, 3, views, dim, log);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_softmax)(yk__backend *table)
{
    table->softmax = softmax;
    table->softmax_backward = softmax_backward;
}
