/*
 * loss.cu - the slots cross_entropy and cross_entropy_backward. Layer: device/cuda.
 *
 * The formulas are those of device/cpu/reduce/loss.c. A warp takes a row and leaves what it contributes in a workspace;
 * one block adds these up in the order of the rows. A row whose label is no class counts as ignored (Note [The error
 * record of a device]).
 */
#include "device/cuda/walk.h"

#include "device/cuda/checks.h"
#include "device/cuda/indices.h"
#include "device/cuda/powers.h"
#include "device/cuda/sums.h"

enum { THREADS = WALK_THREADS, ROWS = THREADS / LANES, PARTS = 3 /* of a row: nll, smooth, weight */ };
/* Threads of the one block that adds up the rows, and rows that each thread reads at a time. */
enum { SUM_THREADS = 1024, AT_ONCE = 4 };
/* Blocks of a multiprocessor, at least: a kernel of fewer has less of its loads under way. */
enum { BLOCKS = 4 };
/* Classes that a lane reads before it uses the first, 32 bytes of halves, too; of them SEEN are seen together. */
enum { SEEN = 4 };
template <typename E> struct at_once {
    enum { N = 32 / sizeof(typename E::stored), TILE = N * LANES };
};

typedef struct loss_job {
    yk__view x, target, weight, lse, loss, total, gx, gloss;
    double *parts; /* PARTS of each row */
    int64_t ignore_index;
    int whole; /* so many of a row's classes lie side by side, in whole tiles: Note [Tiles of classes] */
    double smoothing;
    bool mean, weighted;
} loss_job;

template <typename W> static YK__DEVICE double weight_of(const loss_job &job, int64_t c)
{
    return job.weighted ? (double)get<W>(job.weight, c * job.weight.stride[0]) : 1.0;
}

static YK__DEVICE bool counts(const loss_job &job, int64_t label)
{
    return label != job.ignore_index && label >= 0 && label < job.x.shape[1];
}

/*
 * Note [Tiles of classes]
 * A lane takes every 32nd class of its row, wherever the row lies: so each access of a warp is one run of memory, of
 * rows that are aligned to an element alone, too (50,257 halves), and the order of the sums does not depend on that.
 * Classes that lie side by side are taken by tiles, in which a lane's addresses differ by constants and nothing is
 * looked for the end. Classes after the last whole tile, or without that stride, are taken SEEN of a lane at a time.
 */
#define EACH_TILE(E, first, job)                                                                                       \
    YK__LOOP for (int first = (int)threadIdx.x % LANES; first < (job).whole; first += at_once<E>::TILE)
#define EACH_BEHIND(first, job)                                                                                        \
    YK__LOOP for (int64_t first = (job).whole + (int)threadIdx.x % LANES; first < (job).x.shape[1];                    \
                  first += SEEN * LANES)

/* The lane's first element in the tile that begins at `first` of the row at `at`, if x's or gx's classes lie side by
 * side. */
template <typename E> static YK__DEVICE yk__global<typename E::stored> tile_at(const yk__view &v, int64_t at, int first)
{
    return yk__global<typename E::stored>(static_cast<typename E::stored *>(v.data) + at + first);
}
template <typename E>
static YK__DEVICE void read_tile(const loss_job &job, int64_t at, int first, typename E::stored *x)
{
    yk__global<typename E::stored> from = tile_at<E>(job.x, at, first);
    YK__UNROLL for (int u = 0; u < at_once<E>::N; u++) x[u] = from[u * LANES];
}
/* SEEN of what was read, less `less`. */
template <typename E>
static YK__DEVICE void numbers_of(const typename E::stored *x, typename E::number less, typename E::number *y)
{
    YK__UNROLL for (int v = 0; v < SEEN; v++) y[v] = E::load(x[v]) - less;
}

/* x of classes first, first + LANES, ... of the row that begins at `at`; `none` after its end. */
template <typename E>
static YK__DEVICE void read_some(const loss_job &job, int64_t at, int64_t first, typename E::number none,
                                 typename E::number *x)
{
    YK__UNROLL for (int v = 0; v < SEEN; v++) x[v] =
        first + v * LANES < job.x.shape[1] ? get<E>(job.x, at + (first + v * LANES) * job.x.stride[1]) : none;
}

/* The lane's part of the sum of e^(x - less). */
template <typename E> static YK__DEVICE double sum_of_powers(const loss_job &job, int64_t at, typename E::number less)
{
    typename E::number y[SEEN];
    double sum = 0;
    EACH_TILE(E, first, job)
    {
        typename E::stored x[at_once<E>::N];
        read_tile<E>(job, at, first, x);
        YK__UNROLL for (int u = 0; u < at_once<E>::N; u += SEEN)
        {
            numbers_of<E>(x + u, less, y);
            exponentials<SEEN>(y);
            YK__UNROLL for (int v = 0; v < SEEN; v++) sum += (double)y[v];
        }
    }
    EACH_BEHIND(first, job)
    {
        read_some<E>(job, at, first, less, y);
        YK__UNROLL for (int v = 0; v < SEEN; v++) y[v] -= less;
        exponentials<SEEN>(y);
        YK__UNROLL for (int v = 0; v < SEEN; v++) if (first + v * LANES < job.x.shape[1]) sum += (double)y[v];
    }
    return sum;
}

/* Weights of classes first, first + LANES, ...; 0 after the last. */
template <typename W> static YK__DEVICE void read_weights(const loss_job &job, int64_t first, typename W::number *w)
{
    YK__UNROLL for (int v = 0; v < SEEN; v++) w[v] =
        first + v * LANES < job.x.shape[1] ? (typename W::number)weight_of<W>(job, first + v * LANES) : 0;
}

/* The lane's part of the sum of w (lse - x). */
template <typename E> static YK__DEVICE double sum_of_losses(const loss_job &job, int64_t at, double lse)
{
    typedef typename E::statistic S;
    typename S::number w[SEEN];
    double sum = 0;
    EACH_TILE(E, first, job)
    {
        typename E::stored x[at_once<E>::N];
        read_tile<E>(job, at, first, x);
        YK__UNROLL for (int u = 0; u < at_once<E>::N; u += SEEN)
        {
            read_weights<S>(job, first + u * LANES, w);
            YK__UNROLL for (int v = 0; v < SEEN; v++) sum += (double)w[v] * (lse - (double)E::load(x[u + v]));
        }
    }
    EACH_BEHIND(first, job)
    {
        typename E::number y[SEEN];
        read_some<E>(job, at, first, 0, y);
        read_weights<S>(job, first, w);
        YK__UNROLL for (int v = 0; v < SEEN; v++) if (first + v * LANES < job.x.shape[1]) sum +=
            (double)w[v] * (lse - (double)y[v]);
    }
    return sum;
}

/* The greatest that the lane saw, and its part of the sum of the powers. */
template <typename E> static YK__DEVICE powers<typename E::number> powers_of_row(const loss_job &job, int64_t at)
{
    typename E::number y[SEEN];
    powers<typename E::number> seen;
    EACH_TILE(E, first, job)
    {
        typename E::stored x[at_once<E>::N];
        read_tile<E>(job, at, first, x);
        YK__UNROLL for (int u = 0; u < at_once<E>::N; u += SEEN)
        {
            YK__UNROLL for (int v = 0; v < SEEN; v++) y[v] = E::load(x[u + v]);
            seen.template add<SEEN>(y);
        }
    }
    EACH_BEHIND(first, job)
    {
        read_some<E>(job, at, first, -INFINITY, y);
        seen.template add<SEEN>(y);
    }
    return seen;
}

template <typename E> YK__KERNEL(THREADS, BLOCKS) row_kernel(loss_job job)
{
    typedef typename E::number number;
    typedef typename E::statistic S;
    int64_t rows = job.x.shape[0];
    int lane = (int)threadIdx.x % LANES;
    bool smoothed = job.smoothing != 0.0;
    YK__LOOP for (int64_t row = (int64_t)ROWS * blockIdx.x + threadIdx.x / LANES; row < rows;
                  row += (int64_t)ROWS * gridDim.x)
    {
        int64_t at = row * job.x.stride[0], label = index_at(job.target, row);
        powers<number> seen = powers_of_row<E>(job, at);
        number top = warp_max(seen.top);
        double smooth = 0, lse = 0, sum = warp_sum(seen.scaled_to(top));
        if (smoothed || lane == 0)
            lse = (double)top + yk__log_f64(sum);
        if (smoothed)
            smooth = warp_sum(sum_of_losses<E>(job, at, lse));
        if (lane)
            continue;
        bool counted = counts(job, label);
        double w = counted ? weight_of<S>(job, label) : 0.0;
        yk__global<double> parts(job.parts);
        put<S>(job.lse, row * job.lse.stride[0], (typename S::number)lse);
        parts[row * PARTS] = counted ? w * (lse - (double)get<E>(job.x, at + label * job.x.stride[1])) : 0.0;
        parts[row * PARTS + 1] = counted ? smooth : 0.0;
        parts[row * PARTS + 2] = w;
    }
}

template <typename S> YK__KERNEL(SUM_THREADS) sum_kernel(loss_job job)
{
    YK__SHARED(double, shared);
    yk__global<const double> parts(job.parts);
    double sum[PARTS] = {0, 0, 0};
    YK__LOOP for (int64_t first = threadIdx.x; first < job.x.shape[0]; first += AT_ONCE * SUM_THREADS)
    {
        double part[AT_ONCE][PARTS];
        YK__UNROLL for (int u = 0; u < AT_ONCE; u++) YK__UNROLL for (int k = 0; k < PARTS; k++)
        {
            int64_t row = first + u * SUM_THREADS;
            part[u][k] = row < job.x.shape[0] ? parts[row * PARTS + k] : 0;
        }
        YK__UNROLL for (int u = 0; u < AT_ONCE; u++) YK__UNROLL for (int k = 0; k < PARTS; k++) sum[k] += part[u][k];
    }
    for (int k = 0; k < PARTS; k++)
        sum[k] = block_sum<double>(shared, sum[k]);
    if (threadIdx.x)
        return;
    double loss = sum[0];
    if (job.smoothing != 0.0)
        loss = (1.0 - job.smoothing) * sum[0] + job.smoothing / (double)job.x.shape[1] * sum[1];
    put<S>(job.loss, 0, (typename S::number)(job.mean ? loss / sum[2] : loss));
    put<S>(job.total, 0, (typename S::number)sum[2]);
}

/* The numbers that the gradients of a row's classes have in common. */
template <typename number> struct row_gradient {
    number lse, all, even;
};

/* Gradients of SEEN classes from `first` on, as if none were the label's, in place of their x - lse. */
template <typename E>
static YK__DEVICE void gradients_of(const loss_job &job, const row_gradient<typename E::number> &row, int64_t first,
                                    typename E::number *x)
{
    typedef typename E::number number;
    exponentials<SEEN>(x);
    YK__UNROLL for (int v = 0; v < SEEN; v++) x[v] *= row.all;
    if (row.even == 0)
        return;
    if (!job.weighted) {
        YK__UNROLL for (int v = 0; v < SEEN; v++) x[v] -= row.even;
        return;
    }
    number w[SEEN];
    read_weights<typename E::statistic>(job, first, w);
    YK__UNROLL for (int v = 0; v < SEEN; v++) x[v] -= row.even * w[v];
}

/* The gradients of a row that counts. The lane that has the label's class puts it right at the end, of an x that was
 * read before anything was written, for gx may lie where x does. */
template <typename E>
static YK__DEVICE void write_gradients(const loss_job &job, const row_gradient<typename E::number> &row, int64_t at,
                                       int64_t to, int64_t label, typename E::number direct)
{
    typedef typename E::number number;
    number y[SEEN], own = get<E>(job.x, at + label * job.x.stride[1]) - row.lse;
    EACH_TILE(E, first, job)
    {
        typename E::stored x[at_once<E>::N];
        yk__global<typename E::stored> results = tile_at<E>(job.gx, to, first);
        read_tile<E>(job, at, first, x);
        YK__UNROLL for (int u = 0; u < at_once<E>::N; u += SEEN)
        {
            numbers_of<E>(x + u, row.lse, y);
            gradients_of<E>(job, row, first + u * LANES, y);
            YK__UNROLL for (int v = 0; v < SEEN; v++) results[(u + v) * LANES] = E::store(y[v]);
        }
    }
    EACH_BEHIND(first, job)
    {
        read_some<E>(job, at, first, row.lse, y);
        YK__UNROLL for (int v = 0; v < SEEN; v++) y[v] -= row.lse;
        gradients_of<E>(job, row, first, y);
        YK__UNROLL for (int v = 0; v < SEEN; v++) if (first + v * LANES < job.x.shape[1])
            put<E>(job.gx, to + (first + v * LANES) * job.gx.stride[1], y[v]);
    }
    if (label % LANES != (int)threadIdx.x % LANES)
        return;
    number g = row.all * exponential(own);
    if (row.even != 0)
        g -= row.even * (number)weight_of<typename E::statistic>(job, label);
    put<E>(job.gx, to + label * job.gx.stride[1], g - direct);
}

template <typename E> static YK__DEVICE void write_zeros(const loss_job &job, int64_t to)
{
    EACH_TILE(E, first, job)
    {
        yk__global<typename E::stored> results = tile_at<E>(job.gx, to, first);
        YK__UNROLL for (int u = 0; u < at_once<E>::N; u++) results[u * LANES] = E::store(0);
    }
    YK__LOOP for (int64_t c = job.whole + (int)threadIdx.x % LANES; c < job.x.shape[1]; c += LANES)
        put<E>(job.gx, to + c * job.gx.stride[1], 0);
}

template <typename E> YK__KERNEL(THREADS, BLOCKS) gradient_kernel(loss_job job)
{
    typedef typename E::number number;
    typedef typename E::statistic S;
    int64_t rows = job.x.shape[0], classes = job.x.shape[1];
    double scale = (double)get<S>(job.gloss, 0) / (job.mean ? (double)get<S>(job.total, 0) : 1.0);
    double weights = 0, share = job.smoothing / (double)classes;
    if (job.smoothing != 0.0) {
        if (job.weighted)
            YK__LOOP for (int64_t c = (int)threadIdx.x % LANES; c < classes; c += LANES) weights +=
                weight_of<S>(job, c);
        weights = job.weighted ? warp_sum(weights) : (double)classes;
    }
    YK__LOOP for (int64_t row = (int64_t)ROWS * blockIdx.x + threadIdx.x / LANES; row < rows;
                  row += (int64_t)ROWS * gridDim.x)
    {
        int64_t at = row * job.x.stride[0], to = row * job.gx.stride[0], label = index_at(job.target, row);
        if (!counts(job, label)) {
            write_zeros<E>(job, to);
            continue;
        }
        row_gradient<number> of;
        of.lse = (number)get<S>(job.lse, row * job.lse.stride[0]);
        double direct = (1.0 - job.smoothing) * weight_of<S>(job, label) * scale;
        double sum = warp_sum(sum_of_powers<E>(job, at, of.lse));
        of.all = (number)((direct + share * weights * scale) / sum), of.even = (number)(share * scale);
        write_gradients<E>(job, of, at, to, label, (number)direct);
    }
}

/* The number of classes that lie in whole tiles. */
template <typename E> static int whole_of(const yk__view &x, int64_t step)
{
    bool dense = x.stride[1] == 1 && step == 1 && x.shape[1] <= INT32_MAX - at_once<E>::TILE;
    return dense ? (int)(x.shape[1] - x.shape[1] % at_once<E>::TILE) : 0;
}

static loss_job job_of(const yk__cross_entropy *p, const yk__view *x, const yk__view *target, const yk__view *weight,
                       const yk__view *lse, const yk__view *total)
{
    loss_job job;
    memset(&job, 0, sizeof(job));
    job.x = *x, job.target = *target, job.lse = *lse, job.total = *total;
    job.weighted = weight != NULL;
    if (weight)
        job.weight = *weight;
    job.ignore_index = p->ignore_index, job.smoothing = p->label_smoothing, job.mean = p->mean;
    return job;
}

yk_status cuda_cross_entropy(int device, const yk__cross_entropy *p, const yk__view *loss, const yk__view *lse,
                             const yk__view *total, const yk__view *x, const yk__view *target, const yk__view *weight)
{
    const yk__view *views[] = {loss, x, target};
    cudaStream_t stream = NULL;
    yk__storage *memory = NULL;
    yk_device where = {YK_CUDA, (int16_t)device};
    yk_status status = cuda_check_indices(device, CUDA_CHECK_CROSS_ENTROPY, target, x->shape[1], p->ignore_index);
    if (!status)
        status = cuda_use(device, &stream);
    if (status)
        return status;
    loss_job job = job_of(p, x, target, weight, lse, total);
    int64_t rows = x->shape[0];
    job.loss = *loss;
    job.parts = (double *)cuda_yoke->workspace_get(where, (size_t)(rows * PARTS + 1) * sizeof(double), &memory);
    if (!job.parts)
        return YK_ERR_MEMORY;
    unsigned blocks = walk_rows(device, (rows + ROWS - 1) / ROWS);
#define ROW(E)                                                                                                         \
    do {                                                                                                               \
        job.whole = whole_of<E>(job.x, 1);                                                                             \
        if (rows)                                                                                                      \
            YK__LAUNCH("cross_entropy", row_kernel<E>, blocks, THREADS, 0, stream, job);                               \
        YK__LAUNCH("cross_entropy", sum_kernel<E::statistic>, 1, SUM_THREADS, SUM_THREADS / LANES * sizeof(double),    \
                   stream, job);                                                                                       \
    } while (0)
    FLOATING(x->dtype, ROW);
    cuda_yoke->storage_release(memory); /* only later work on the device's queue can take it */
    return cuda_launched(device, "cross_entropy", 3, views);
}

yk_status cuda_cross_entropy_backward(int device, const yk__cross_entropy *p, const yk__view *gx, const yk__view *gloss,
                                      const yk__view *x, const yk__view *lse, const yk__view *total,
                                      const yk__view *target, const yk__view *weight)
{
    const yk__view *views[] = {gx, x, target};
    cudaStream_t stream = NULL;
    yk_status status = cuda_check_indices(device, CUDA_CHECK_CROSS_ENTROPY, target, x->shape[1], p->ignore_index);
    if (!status)
        status = cuda_use(device, &stream);
    if (status || x->shape[0] == 0)
        return status;
    loss_job job = job_of(p, x, target, weight, lse, total);
    job.gx = *gx, job.gloss = *gloss;
    unsigned blocks = walk_rows(device, (x->shape[0] + ROWS - 1) / ROWS);
#define GRADIENT(E)                                                                                                    \
    do {                                                                                                               \
        job.whole = whole_of<E>(job.x, job.gx.stride[1]);                                                              \
        YK__LAUNCH("cross_entropy_backward", gradient_kernel<E>, blocks, THREADS, 0, stream, job);                     \
    } while (0)
    FLOATING(x->dtype, GRADIENT);
    return cuda_launched(device, "cross_entropy_backward", 3, views);
}
