/*
 * loss.cu - the slots cross_entropy and cross_entropy_backward. Layer: device/cuda.
 *
 * The formulas are those of device/cpu/loss.c. A warp takes a row and leaves what it contributes in a workspace; one
 * block adds these up in the order of the rows. A row whose label is no class counts as ignored (Note [The error record
 * of a device]).
 */
#include "device/cuda/walk.h"

#include "device/cuda/checks.h"
#include "device/cuda/indices.h"
#include "device/cuda/powers.h"
#include "device/cuda/sums.h"

enum { THREADS = WALK_THREADS, ROWS = THREADS / LANES, PARTS = 3 /* of a row: nll, smooth, weight */ };
/* Of the one block that adds up the rows, and rows that each thread reads at a time. */
enum { SUM_THREADS = 1024, AT_ONCE = 4 };
/* Of a multiprocessor, at least: a kernel of fewer has less of its loads under way. */
enum { BLOCKS = 4 };
/* Classes that a lane reads before it uses the first, 16 bytes of halves, too; of them SEEN are seen together. */
enum { SEEN = 4 };
template <typename E> struct at_once {
    enum { N = sizeof(typename E::stored) <= 2 ? 8 : 4 };
};

typedef struct loss_job {
    yk__view x, target, weight, lse, loss, total, gx, gloss;
    double *parts; /* PARTS of each row */
    int64_t ignore_index;
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

/* x of classes first, first + LANES, ... of the row that begins at `at`; `none` behind its end. */
template <typename E>
static YK__DEVICE void read_some(const loss_job &job, int64_t at, int64_t first, typename E::number none,
                                 typename E::number *x)
{
    YK__UNROLL for (int u = 0; u < at_once<E>::N; u++) x[u] =
        first + u * LANES < job.x.shape[1] ? get<E>(job.x, at + (first + u * LANES) * job.x.stride[1]) : none;
}

/* The lane's part of the sum of e^(x - less). */
template <typename E> static YK__DEVICE double sum_of_powers(const loss_job &job, int64_t at, typename E::number less)
{
    enum { N = at_once<E>::N };
    typename E::number x[N];
    double sum = 0;
    YK__LOOP for (int64_t first = (int)threadIdx.x % LANES; first < job.x.shape[1]; first += N * LANES)
    {
        read_some<E>(job, at, first, 0, x);
        YK__UNROLL for (int u = 0; u < N; u++) if (first + u * LANES < job.x.shape[1]) sum +=
            (double)exponential(x[u] - less);
    }
    return sum;
}

template <typename E> YK__KERNEL(THREADS, BLOCKS) row_kernel(loss_job job)
{
    typedef typename E::number number;
    typedef typename E::statistic S;
    enum { N = at_once<E>::N };
    int64_t rows = job.x.shape[0], classes = job.x.shape[1], step = job.x.stride[1];
    int lane = (int)threadIdx.x % LANES;
    YK__LOOP for (int64_t row = (int64_t)ROWS * blockIdx.x + threadIdx.x / LANES; row < rows;
                  row += (int64_t)ROWS * gridDim.x)
    {
        int64_t at = row * job.x.stride[0], label = index_at(job.target, row);
        number x[N];
        powers<number> seen;
        YK__LOOP for (int64_t first = lane; first < classes; first += N * LANES)
        {
            read_some<E>(job, at, first, -INFINITY, x);
            YK__UNROLL for (int u = 0; u < N; u += SEEN) seen.template add<SEEN>(x + u);
        }
        number top = warp_max(seen.top);
        double smooth = 0, lse = 0, sum = warp_sum(seen.scaled_to(top));
        if (lane == 0 || job.smoothing != 0.0)
            lse = (double)top + yk__log_f64(sum);
        if (job.smoothing != 0.0)
            YK__LOOP for (int64_t c = lane; c < classes; c += LANES) smooth +=
                weight_of<S>(job, c) * (lse - (double)get<E>(job.x, at + c * step));
        smooth = warp_sum(smooth);
        if (lane)
            continue;
        bool counted = counts(job, label);
        double w = counted ? weight_of<S>(job, label) : 0.0;
        yk__global<double> parts(job.parts);
        put<S>(job.lse, row * job.lse.stride[0], (typename S::number)lse);
        parts[row * PARTS] = counted ? w * (lse - (double)get<E>(job.x, at + label * step)) : 0.0;
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

template <typename E> YK__KERNEL(THREADS) gradient_kernel(loss_job job)
{
    typedef typename E::number number;
    typedef typename E::statistic S;
    enum { N = at_once<E>::N };
    int64_t rows = job.x.shape[0], classes = job.x.shape[1];
    int lane = (int)threadIdx.x % LANES;
    double scale = (double)get<S>(job.gloss, 0) / (job.mean ? (double)get<S>(job.total, 0) : 1.0);
    double weights = 0, share = job.smoothing / (double)classes;
    if (job.smoothing != 0.0) {
        YK__LOOP for (int64_t c = lane; c < classes; c += LANES) weights += weight_of<S>(job, c);
        weights = warp_sum(weights);
    }
    YK__LOOP for (int64_t row = (int64_t)ROWS * blockIdx.x + threadIdx.x / LANES; row < rows;
                  row += (int64_t)ROWS * gridDim.x)
    {
        int64_t at = row * job.x.stride[0], to = row * job.gx.stride[0], label = index_at(job.target, row);
        if (!counts(job, label)) {
            YK__LOOP for (int64_t c = lane; c < classes; c += LANES) put<E>(job.gx, to + c * job.gx.stride[1], 0);
            continue;
        }
        number lse = (number)get<S>(job.lse, row * job.lse.stride[0]);
        double direct = (1.0 - job.smoothing) * weight_of<S>(job, label) * scale;
        double sum = warp_sum(sum_of_powers<E>(job, at, lse));
        number all = (number)((direct + share * weights * scale) / sum), even = (number)(share * scale);
        YK__LOOP for (int64_t first = lane; first < classes; first += N * LANES)
        {
            number x[N];
            read_some<E>(job, at, first, 0, x);
            YK__UNROLL for (int u = 0; u < N; u++)
            {
                int64_t c = first + u * LANES;
                if (c >= classes)
                    continue;
                number g = all * exponential(x[u] - lse);
                if (even != 0)
                    g -= even * (number)weight_of<S>(job, c);
                if (c == label)
                    g -= (number)direct;
                put<E>(job.gx, to + c * job.gx.stride[1], g);
            }
        }
    }
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
        if (rows)                                                                                                      \
            YK__LAUNCH("cross_entropy", row_kernel<E>, blocks, THREADS, 0, stream, job);                               \
        YK__LAUNCH("cross_entropy", sum_kernel<E::statistic>, 1, SUM_THREADS, SUM_THREADS / LANES * sizeof(double),    \
                   stream, job);                                                                                       \
    } while (0)
    FLOATING(x->dtype, ROW);
    cuda_yoke->storage_release(memory); /* for those behind on the device's queue */
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
#define GRADIENT(E) YK__LAUNCH("cross_entropy_backward", gradient_kernel<E>, blocks, THREADS, 0, stream, job)
    FLOATING(x->dtype, GRADIENT);
    return cuda_launched(device, "cross_entropy_backward", 3, views);
}
