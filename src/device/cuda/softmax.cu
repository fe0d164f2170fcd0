/*
 * softmax.cu - the slots softmax and softmax_backward. Layer: device/cuda.
 *
 * A row, which may lie anyhow in memory, is taken in three passes: its greatest element, the sum of the exponentials
 * (in f64), the results. A warp takes a row of up to 1,024 elements, a block one of up to 4,096 (f64: half as many),
 * and holds it (rows.h); of a longer one a block makes the first two in one reading (powers.h), and reads the elements
 * again for the results, several at a time.
 */
#include "device/cuda/rows.h"

#include "device/cuda/powers.h"

enum { THREADS = WALK_THREADS, ROWS = THREADS / LANES };
/* Elements of a long row that a thread reads before it uses the first; of them SEEN are seen together. */
enum { SEEN = 4 };
template <typename E> struct at_once {
    enum { N = sizeof(typename E::stored) <= 4 ? 8 : 4 };
};

/* Operand k of `rows` is the first element of a row; its elements are step[k] bytes apart. */
typedef struct softmax_rows {
    yk__loop rows;
    int64_t size, step[3];
    bool log, aligned; /* packs of all rows can be read at once */
} softmax_rows;

#define EACH_ROW(row, rows, team)                                                                                      \
    YK__LOOP for (int64_t row = (int64_t)(THREADS / (team)) * blockIdx.x + threadIdx.x / (team); row < (rows);         \
                  row += (int64_t)(THREADS / (team)) * gridDim.x)

template <typename E>
static YK__DEVICE yk__global<typename E::stored> row_at(const softmax_rows &s, int k, int64_t base, int64_t i)
{
    return yk__global<typename E::stored>(
        reinterpret_cast<typename E::stored *>(s.rows.data[k] + base + i * s.step[k]));
}

template <typename Row>
static YK__DEVICE void load_row(const softmax_rows &s, int k, int64_t row, typename Row::E::number none, Row *to)
{
    to->load(s.rows.data[k] + walk_offset(s.rows, k, row), s.step[k], s.size, Row::E::store(none));
}
template <typename Row> static YK__DEVICE void store_row(const softmax_rows &s, int64_t row, const Row &from)
{
    from.store(s.rows.data[0] + walk_offset(s.rows, 0, row), s.step[0], s.size);
}

template <typename Row, bool LOG> HELD_KERNEL(Row) held_softmax_kernel(softmax_rows s)
{
    typedef typename Row::E E;
    typedef typename E::number number;
    enum { TEAM = Row::TEAM };
    YK__SHARED(double, shared);
    EACH_ROW(row, s.rows.total, TEAM)
    {
        Row x;
        number y[Row::HELD][Row::V] = {}, top = -INFINITY;
        load_row(s, 1, row, -INFINITY, &x); /* filled with -INFINITY, whose exponential is 0, after the row's end */
        EACH_HELD(Row, h, v, s.size)
        {
            y[h][v] = E::load(x.x[h].of[v]);
            top = yk__greater(top, y[h][v]);
        }
        top = team_max<TEAM, number>(shared, top);
        double sum = 0;
        EACH_HELD(Row, h, v, s.size)
        {
            number power = exponential(y[h][v] - top);
            y[h][v] = LOG ? y[h][v] - top : power;
            sum += (double)power;
        }
        sum = team_sum<TEAM, double>(shared, sum);
        number less = LOG ? (number)yk__log_f64(sum) : 0, scale = LOG ? 0 : (number)(1.0 / sum);
        EACH_HELD(Row, h, v, s.size) x.x[h].of[v] = E::store(LOG ? y[h][v] - less : y[h][v] * scale);
        store_row(s, row, x);
    }
}

template <typename Row, bool LOG> HELD_KERNEL(Row) held_softmax_backward_kernel(softmax_rows s)
{
    typedef typename Row::E E;
    typedef typename E::number number;
    enum { TEAM = Row::TEAM };
    YK__SHARED(double, shared);
    EACH_ROW(row, s.rows.total, TEAM)
    {
        Row g, y;
        double sum = 0;
        load_row(s, 1, row, 0, &g);
        load_row(s, 2, row, 0, &y);
        EACH_HELD(Row, h, v, s.size)
        {
            double gradient = (double)E::load(g.x[h].of[v]);
            sum += LOG ? gradient : gradient * (double)E::load(y.x[h].of[v]);
        }
        number all = (number)team_sum<TEAM, double>(shared, sum);
        EACH_HELD(Row, h, v, s.size)
        {
            number gradient = E::load(g.x[h].of[v]), out = E::load(y.x[h].of[v]);
            g.x[h].of[v] = E::store(LOG ? gradient - exponential(out) * all : out * (gradient - all));
        }
        store_row(s, row, g);
    }
}

/* ---- rows that no team holds ---- */
/* Elements first, first + THREADS, ...; those after the row's end are `none`. */
template <typename E>
static YK__DEVICE void read_some(const softmax_rows &s, int k, int64_t base, int64_t first, typename E::number none,
                                 typename E::number *x)
{
    YK__UNROLL for (int u = 0; u < at_once<E>::N; u++) x[u] =
        first + u * THREADS < s.size ? E::load(*row_at<E>(s, k, base, first + u * THREADS)) : none;
}

template <typename E> YK__KERNEL(THREADS) long_softmax_kernel(softmax_rows s)
{
    typedef typename E::number number;
    enum { AT_ONCE = at_once<E>::N };
    YK__SHARED(double, shared);
    EACH_ROW(row, s.rows.total, THREADS)
    {
        int64_t to = walk_offset(s.rows, 0, row), from = walk_offset(s.rows, 1, row);
        number x[AT_ONCE];
        powers<number> seen;
        YK__LOOP for (int64_t first = threadIdx.x; first < s.size; first += AT_ONCE * THREADS)
        {
            read_some<E>(s, 1, from, first, -INFINITY, x);
            YK__UNROLL for (int u = 0; u < AT_ONCE; u += SEEN) seen.template add<SEEN>(x + u);
        }
        number top = team_max<THREADS, number>(shared, seen.top);
        double sum = block_sum<double>(shared, seen.scaled_to(top));
        number less = s.log ? (number)yk__log_f64(sum) : 0, scale = (number)(1.0 / sum);
        YK__LOOP for (int64_t first = threadIdx.x; first < s.size; first += AT_ONCE * THREADS)
        {
            read_some<E>(s, 1, from, first, -INFINITY, x);
            YK__UNROLL for (int u = 0; u < AT_ONCE; u++) if (first + u * THREADS < s.size) *
                row_at<E>(s, 0, to, first + u * THREADS) =
                E::store(s.log ? x[u] - top - less : exponential(x[u] - top) * scale);
        }
    }
}

template <typename E> YK__KERNEL(THREADS) long_softmax_backward_kernel(softmax_rows s)
{
    typedef typename E::number number;
    enum { AT_ONCE = at_once<E>::N };
    YK__SHARED(double, shared);
    EACH_ROW(row, s.rows.total, THREADS)
    {
        int64_t to = walk_offset(s.rows, 0, row), grad = walk_offset(s.rows, 1, row), out = walk_offset(s.rows, 2, row);
        number g[AT_ONCE], y[AT_ONCE];
        double sum = 0;
        YK__LOOP for (int64_t first = threadIdx.x; first < s.size; first += AT_ONCE * THREADS)
        {
            read_some<E>(s, 1, grad, first, 0, g);
            read_some<E>(s, 2, out, first, 0, y);
            YK__UNROLL for (int u = 0; u < AT_ONCE; u++) sum += s.log ? (double)g[u] : (double)g[u] * (double)y[u];
        }
        number all = (number)block_sum<double>(shared, sum);
        YK__LOOP for (int64_t first = threadIdx.x; first < s.size; first += AT_ONCE * THREADS)
        {
            read_some<E>(s, 1, grad, first, 0, g);
            read_some<E>(s, 2, out, first, 0, y);
            YK__UNROLL for (int u = 0; u < AT_ONCE; u++) if (first + u * THREADS < s.size) *
                row_at<E>(s, 0, to, first + u * THREADS) =
                E::store(s.log ? g[u] - exponential(y[u]) * all : y[u] * (g[u] - all));
        }
    }
}

static void rows_of(softmax_rows *s, int operands, const yk__view *const *views, int dim, bool log)
{
    yk__view firsts[3];
    const yk__view *all[3] = {NULL, NULL, NULL};
    for (int k = 0; k < operands; k++) {
        firsts[k] = *views[k];
        s->step[k] = views[k]->stride[dim] * (int64_t)yk__size_of(views[k]->dtype);
        firsts[k].shape[dim] = views[0]->shape[dim] ? 1 : 0;
        all[k] = &firsts[k];
    }
    yk__loop_init(&s->rows, operands, all, false);
    s->size = views[0]->shape[dim];
    s->log = log;
    s->aligned = true;
    for (int k = 0; k < operands; k++)
        for (int d = 0; d < s->rows.ndim; d++)
            s->aligned = s->aligned && rows_aligned(s->rows.data[k], s->step[k], s->rows.stride[d][k], s->size,
                                                    yk__size_of(views[k]->dtype));
}

/* held(row) is a kernel of rows that are held. */
#define LAUNCH_ROWS(name, held, longer, E)                                                                             \
    do {                                                                                                               \
        void (*kernel)(softmax_rows) = KERNEL_OF_ROWS(E, s.size, s.aligned, held, longer<E>);                          \
        YK__LAUNCH(name, kernel, blocks_of_rows<E>(device, s.size, s.rows.total), THREADS, ROWS * sizeof(double),      \
                   stream, s);                                                                                         \
    } while (0)

yk_status cuda_softmax(int device, const yk__view *out, const yk__view *x, int dim, bool log)
{
    const yk__view *views[] = {out, x};
    softmax_rows s;
    cudaStream_t stream = NULL;
    rows_of(&s, 2, views, dim, log);
    yk_status status = cuda_use(device, &stream);
    if (status || s.rows.total == 0)
        return status;
#define PLAIN(...)     held_softmax_kernel<__VA_ARGS__, false>
#define LOGARITHM(...) held_softmax_kernel<__VA_ARGS__, true>
#define SOFTMAX(E)     LAUNCH_ROWS("softmax", PLAIN, long_softmax_kernel, E)
#define LOG_SOFTMAX(E) LAUNCH_ROWS("softmax", LOGARITHM, long_softmax_kernel, E)
    if (log)
        FLOATING(x->dtype, LOG_SOFTMAX);
    else
        FLOATING(x->dtype, SOFTMAX);
    return cuda_launched(device, "softmax", 2, views);
}

yk_status cuda_softmax_backward(int device, const yk__view *gx, const yk__view *gout, const yk__view *out, int dim,
                                bool log)
{
    const yk__view *views[] = {gx, gout, out};
    softmax_rows s;
    cudaStream_t stream = NULL;
    rows_of(&s, 3, views, dim, log);
    yk_status status = cuda_use(device, &stream);
    if (status || s.rows.total == 0)
        return status;
#define PLAIN_BACKWARD(...)     held_softmax_backward_kernel<__VA_ARGS__, false>
#define LOGARITHM_BACKWARD(...) held_softmax_backward_kernel<__VA_ARGS__, true>
#define SOFTMAX_BACKWARD(E)     LAUNCH_ROWS("softmax_backward", PLAIN_BACKWARD, long_softmax_backward_kernel, E)
#define LOG_SOFTMAX_BACKWARD(E) LAUNCH_ROWS("softmax_backward", LOGARITHM_BACKWARD, long_softmax_backward_kernel, E)
    if (log)
        FLOATING(gx->dtype, LOG_SOFTMAX_BACKWARD);
    else
        FLOATING(gx->dtype, SOFTMAX_BACKWARD);
    return cuda_launched(device, "softmax_backward", 3, views);
}
