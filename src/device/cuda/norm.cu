/*
 * norm.cu - the slots batch_norm, layer_norm and their backwards. Layer: device/cuda.
 *
 * A block takes a channel (a row, for layer_norm), which it goes through two or three times; sums are kept in f64 and
 * added over the block in an order that the sizes give alone. The gradients of layer_norm's weight and bias are sums
 * over the rows, a thread for each column. Derivations: docs/autograd.md.
 */
#include "device/cuda/walk.h"

#include "device/cuda/elements.h"
#include "device/cuda/sums.h"

enum { THREADS = WALK_THREADS, WARPS = THREADS / LANES };

/* A tensor (N,C,...) as channels: operand k of `inside` is the first element of a channel 0, and channels are step[k]
 * bytes apart. Operands: x, then out or gx, residual, gout, out again, by their roles. */
enum { X, TO, RESIDUAL, GOUT, GRESIDUAL, ROLES };
typedef struct batch_job {
    yk__loop inside;
    int64_t channels, step[YK__LOOP_OPERANDS];
    int operand[ROLES]; /* operand, or -1 */
    yk__view mean, invstd, weight, bias, running_mean, running_var, gweight, gbias;
    bool has_weight, has_bias, has_running, has_gweight, has_gbias, training, relu;
    double momentum, eps;
} batch_job;

template <typename E>
static YK__DEVICE yk__global<typename E::stored> batch_at(const batch_job &j, int role, int64_t c, int64_t i)
{
    typedef typename E::stored stored;
    int k = j.operand[role];
    return yk__global<stored>(
        reinterpret_cast<stored *>(j.inside.data[k] + c * j.step[k] + walk_offset(j.inside, k, i)));
}

template <typename S> static YK__DEVICE double vector_at(const yk__view &v, int64_t c)
{
    return (double)get<S>(v, c * v.stride[0]);
}
template <typename S> static YK__DEVICE void vector_put(const yk__view &v, int64_t c, double x)
{
    put<S>(v, c * v.stride[0], (typename S::number)x);
}

template <typename E> YK__KERNEL(THREADS) batch_norm_kernel(batch_job j)
{
    typedef typename E::statistic S;
    typedef typename E::number number;
    YK__SHARED(double, shared);
    int64_t count = j.inside.total;
    YK__LOOP for (int64_t c = blockIdx.x; c < j.channels; c += gridDim.x)
    {
        double mean, var;
        if (j.training) {
            double sum = 0, squares = 0;
            YK__LOOP for (int64_t i = threadIdx.x; i < count; i += THREADS) sum +=
                (double)E::load(*batch_at<E>(j, X, c, i));
            mean = block_sum<double>(shared, sum) / (double)count;
            YK__LOOP for (int64_t i = threadIdx.x; i < count; i += THREADS)
            {
                double d = (double)E::load(*batch_at<E>(j, X, c, i)) - mean;
                squares += d * d;
            }
            squares = block_sum<double>(shared, squares);
            var = squares / (double)count;
            if (threadIdx.x == 0 && j.has_running) {
                double old_mean = vector_at<S>(j.running_mean, c), old_var = vector_at<S>(j.running_var, c);
                vector_put<S>(j.running_mean, c, old_mean + j.momentum * (mean - old_mean));
                vector_put<S>(j.running_var, c, old_var + j.momentum * (squares / (double)(count - 1) - old_var));
            }
        } else {
            mean = vector_at<S>(j.running_mean, c);
            var = vector_at<S>(j.running_var, c);
        }
        double invstd = 1.0 / sqrt(var + j.eps), scale = invstd * (j.has_weight ? vector_at<S>(j.weight, c) : 1.0);
        double shift = j.has_bias ? vector_at<S>(j.bias, c) : 0.0;
        if (threadIdx.x == 0) {
            vector_put<S>(j.mean, c, mean);
            vector_put<S>(j.invstd, c, invstd);
        }
        YK__LOOP for (int64_t i = threadIdx.x; i < count; i += THREADS)
        {
            double y = ((double)E::load(*batch_at<E>(j, X, c, i)) - mean) * scale + shift;
            if (j.operand[RESIDUAL] >= 0)
                y += (double)E::load(*batch_at<E>(j, RESIDUAL, c, i));
            if (j.relu)
                y = y <= 0 ? 0 : y;
            *batch_at<E>(j, TO, c, i) = E::store((number)y);
        }
    }
}

/* The gradient that reaches the normalisation: none where the fused relu cut. RESIDUAL is then the result. */
template <typename E> static YK__DEVICE double batch_gradient(const batch_job &j, int64_t c, int64_t i)
{
    double g = (double)E::load(*batch_at<E>(j, GOUT, c, i));
    return j.relu && (double)E::load(*batch_at<E>(j, RESIDUAL, c, i)) <= 0 ? 0 : g;
}

template <typename E> YK__KERNEL(THREADS) batch_norm_backward_kernel(batch_job j)
{
    typedef typename E::statistic S;
    typedef typename E::number number;
    YK__SHARED(double, shared);
    int64_t count = j.inside.total;
    YK__LOOP for (int64_t c = blockIdx.x; c < j.channels; c += gridDim.x)
    {
        double mean = vector_at<S>(j.mean, c), invstd = vector_at<S>(j.invstd, c), sum = 0, dot = 0;
        YK__LOOP for (int64_t i = threadIdx.x; i < count; i += THREADS)
        {
            double g = batch_gradient<E>(j, c, i);
            sum += g;
            dot += g * ((double)E::load(*batch_at<E>(j, X, c, i)) - mean);
        }
        sum = block_sum<double>(shared, sum);
        dot = block_sum<double>(shared, dot) * invstd;
        if (threadIdx.x == 0 && j.has_gweight)
            vector_put<S>(j.gweight, c, dot);
        if (threadIdx.x == 0 && j.has_gbias)
            vector_put<S>(j.gbias, c, sum);
        double scale = invstd * (j.has_weight ? vector_at<S>(j.weight, c) : 1.0);
        double even = j.training ? sum / (double)count : 0, along = j.training ? dot / (double)count * invstd : 0;
        YK__LOOP for (int64_t i = threadIdx.x; i < count; i += THREADS)
        {
            double g = batch_gradient<E>(j, c, i);
            /* Without training no element of x is in it: 0 times one that is not finite would be NaN. */
            double slope = j.training ? ((double)E::load(*batch_at<E>(j, X, c, i)) - mean) * along : 0;
            double gx = scale * (g - even - slope);
            if (j.operand[TO] >= 0)
                *batch_at<E>(j, TO, c, i) = E::store((number)gx);
            if (j.operand[GRESIDUAL] >= 0)
                *batch_at<E>(j, GRESIDUAL, c, i) = E::store((number)g);
        }
    }
}

static void set_vector(yk__view *to, bool *there, const yk__view *from)
{
    *there = from != NULL;
    if (from)
        *to = *from;
}

/* views[role], NULL for what is not there. */
static void batch_shape(batch_job *j, const yk__view *const *views)
{
    yk__view firsts[YK__LOOP_OPERANDS];
    const yk__view *all[YK__LOOP_OPERANDS];
    int operands = 0;
    for (int p = 0; p < ROLES; p++) {
        j->operand[p] = -1;
        if (!views[p])
            continue;
        yk__view *first = &firsts[operands];
        *first = *views[p];
        j->step[operands] = first->stride[1] * (int64_t)yk__size_of(first->dtype);
        first->shape[1] = 1;
        all[operands] = first;
        j->operand[p] = operands++;
    }
    yk__loop_init(&j->inside, operands, all, false);
    j->channels = views[X]->shape[1];
}

yk_status cuda_batch_norm(int device, const yk__batch_norm *p, const yk__view *out, const yk__view *mean,
                          const yk__view *invstd, const yk__view *x, const yk__view *residual, const yk__view *weight,
                          const yk__view *bias, const yk__view *running_mean, const yk__view *running_var)
{
    const yk__view *views[] = {out, x}, *roles[ROLES] = {x, out, residual, NULL, NULL};
    batch_job j = {};
    bool unused;
    cudaStream_t stream = NULL;
    batch_shape(&j, roles);
    j.mean = *mean, j.invstd = *invstd, j.training = p->training, j.relu = p->relu;
    j.momentum = p->momentum, j.eps = p->eps;
    set_vector(&j.weight, &j.has_weight, weight);
    set_vector(&j.bias, &j.has_bias, bias);
    set_vector(&j.running_mean, &j.has_running, running_mean);
    set_vector(&j.running_var, &unused, running_var);
    yk_status status = cuda_use(device, &stream);
    if (status || j.channels == 0 || j.inside.total == 0)
        return status;
#define BATCH_NORM(E)                                                                                                  \
    YK__LAUNCH("batch_norm", batch_norm_kernel<E>, walk_rows(device, j.channels), THREADS, WARPS * sizeof(double),     \
               stream, j)
    FLOATING(x->dtype, BATCH_NORM);
    return cuda_launched(device, "batch_norm", 2, views);
}

yk_status cuda_batch_norm_backward(int device, const yk__batch_norm *p, const yk__view *gx, const yk__view *gresidual,
                                   const yk__view *gweight, const yk__view *gbias, const yk__view *gout,
                                   const yk__view *x, const yk__view *out, const yk__view *weight, const yk__view *mean,
                                   const yk__view *invstd)
{
    const yk__view *views[] = {gout, x}, *roles[ROLES] = {x, gx, p->relu ? out : NULL, gout, gresidual};
    batch_job j = {};
    cudaStream_t stream = NULL;
    batch_shape(&j, roles);
    j.mean = *mean, j.invstd = *invstd, j.training = p->training, j.relu = p->relu;
    set_vector(&j.weight, &j.has_weight, weight);
    set_vector(&j.gweight, &j.has_gweight, gweight);
    set_vector(&j.gbias, &j.has_gbias, gbias);
    yk_status status = cuda_use(device, &stream);
    if (status || j.channels == 0 || j.inside.total == 0)
        return status;
#define BATCH_NORM_BACKWARD(E)                                                                                         \
    YK__LAUNCH("batch_norm_backward", batch_norm_backward_kernel<E>, walk_rows(device, j.channels), THREADS,           \
               WARPS * sizeof(double), stream, j)
    FLOATING(x->dtype, BATCH_NORM_BACKWARD);
    return cuda_launched(device, "batch_norm_backward", 2, views);
}

/* ---- layer_norm: a row to a block ---- */
typedef struct layer_job {
    yk__view x, to, gout, weight, bias, mean, invstd, gweight, gbias;
    bool has_to, has_weight, has_bias, has_gweight, has_gbias;
    double eps;
} layer_job;

template <typename E> static YK__DEVICE double matrix_at(const yk__view &v, int64_t row, int64_t i)
{
    return (double)get<E>(v, row * v.stride[0] + i * v.stride[1]);
}

template <typename E> YK__KERNEL(THREADS) layer_norm_kernel(layer_job j)
{
    typedef typename E::statistic S;
    YK__SHARED(double, shared);
    int64_t width = j.x.shape[1];
    YK__LOOP for (int64_t row = blockIdx.x; row < j.x.shape[0]; row += gridDim.x)
    {
        double sum = 0, squares = 0;
        YK__LOOP for (int64_t i = threadIdx.x; i < width; i += THREADS) sum += matrix_at<E>(j.x, row, i);
        double mean = block_sum<double>(shared, sum) / (double)width;
        YK__LOOP for (int64_t i = threadIdx.x; i < width; i += THREADS)
        {
            double d = matrix_at<E>(j.x, row, i) - mean;
            squares += d * d;
        }
        double invstd = 1.0 / sqrt(block_sum<double>(shared, squares) / (double)width + j.eps);
        if (threadIdx.x == 0) {
            vector_put<S>(j.mean, row, mean);
            vector_put<S>(j.invstd, row, invstd);
        }
        YK__LOOP for (int64_t i = threadIdx.x; i < width; i += THREADS)
        {
            double y = (matrix_at<E>(j.x, row, i) - mean) * invstd;
            y = y * (j.has_weight ? vector_at<S>(j.weight, i) : 1.0) + (j.has_bias ? vector_at<S>(j.bias, i) : 0.0);
            put<E>(j.to, row * j.to.stride[0] + i * j.to.stride[1], (typename E::number)y);
        }
    }
}

template <typename E> YK__KERNEL(THREADS) layer_gradient_kernel(layer_job j)
{
    typedef typename E::statistic S;
    YK__SHARED(double, shared);
    int64_t width = j.x.shape[1];
    YK__LOOP for (int64_t row = blockIdx.x; row < j.x.shape[0]; row += gridDim.x)
    {
        double mean = vector_at<S>(j.mean, row), invstd = vector_at<S>(j.invstd, row), sum = 0, dot = 0;
        YK__LOOP for (int64_t i = threadIdx.x; i < width; i += THREADS)
        {
            double g = matrix_at<E>(j.gout, row, i) * (j.has_weight ? vector_at<S>(j.weight, i) : 1.0);
            sum += g;
            dot += g * (matrix_at<E>(j.x, row, i) - mean);
        }
        sum = block_sum<double>(shared, sum) / (double)width;
        dot = block_sum<double>(shared, dot) * invstd * invstd / (double)width;
        YK__LOOP for (int64_t i = threadIdx.x; i < width; i += THREADS)
        {
            double g = matrix_at<E>(j.gout, row, i) * (j.has_weight ? vector_at<S>(j.weight, i) : 1.0);
            double gx = invstd * (g - sum - (matrix_at<E>(j.x, row, i) - mean) * dot);
            put<E>(j.to, row * j.to.stride[0] + i * j.to.stride[1], (typename E::number)gx);
        }
    }
}

template <typename E> YK__KERNEL(THREADS) layer_sums_kernel(layer_job j)
{
    typedef typename E::statistic S;
    int64_t width = j.x.shape[1], step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < width; i += step)
    {
        double sum = 0, dot = 0;
        YK__LOOP for (int64_t row = 0; row < j.x.shape[0]; row++)
        {
            double g = matrix_at<E>(j.gout, row, i);
            sum += g;
            dot += g * ((matrix_at<E>(j.x, row, i) - vector_at<S>(j.mean, row)) * vector_at<S>(j.invstd, row));
        }
        if (j.has_gweight)
            vector_put<S>(j.gweight, i, dot);
        if (j.has_gbias)
            vector_put<S>(j.gbias, i, sum);
    }
}

yk_status cuda_layer_norm(int device, double eps, const yk__view *out, const yk__view *mean, const yk__view *invstd,
                          const yk__view *x, const yk__view *weight, const yk__view *bias)
{
    const yk__view *views[] = {out, x};
    layer_job j = {};
    cudaStream_t stream = NULL;
    j.x = *x, j.to = *out, j.mean = *mean, j.invstd = *invstd, j.eps = eps;
    set_vector(&j.weight, &j.has_weight, weight);
    set_vector(&j.bias, &j.has_bias, bias);
    yk_status status = cuda_use(device, &stream);
    if (status || x->shape[0] == 0 || x->shape[1] == 0)
        return status;
#define LAYER_NORM(E)                                                                                                  \
    YK__LAUNCH("layer_norm", layer_norm_kernel<E>, walk_rows(device, x->shape[0]), THREADS, WARPS * sizeof(double),    \
               stream, j)
    FLOATING(x->dtype, LAYER_NORM);
    return cuda_launched(device, "layer_norm", 2, views);
}

yk_status cuda_layer_norm_backward(int device, const yk__view *gx, const yk__view *gweight, const yk__view *gbias,
                                   const yk__view *gout, const yk__view *x, const yk__view *weight,
                                   const yk__view *mean, const yk__view *invstd)
{
    const yk__view *views[] = {gout, x};
    layer_job j = {};
    cudaStream_t stream = NULL;
    j.x = *x, j.gout = *gout, j.mean = *mean, j.invstd = *invstd;
    set_vector(&j.to, &j.has_to, gx);
    set_vector(&j.weight, &j.has_weight, weight);
    set_vector(&j.gweight, &j.has_gweight, gweight);
    set_vector(&j.gbias, &j.has_gbias, gbias);
    yk_status status = cuda_use(device, &stream);
    if (status || x->shape[1] == 0)
        return status;
    unsigned columns = walk_rows(device, (x->shape[1] + THREADS - 1) / THREADS);
#define LAYER_GRADIENT(E)                                                                                              \
    do {                                                                                                               \
        if (j.has_to && x->shape[0])                                                                                   \
            YK__LAUNCH("layer_norm_backward", layer_gradient_kernel<E>, walk_rows(device, x->shape[0]), THREADS,       \
                       WARPS * sizeof(double), stream, j);                                                             \
        if (j.has_gweight || j.has_gbias)                                                                              \
            YK__LAUNCH("layer_norm_backward", layer_sums_kernel<E>, columns, THREADS, 0, stream, j);                   \
    } while (0)
    FLOATING(x->dtype, LAYER_GRADIENT);
    return cuda_launched(device, "layer_norm_backward", 2, views);
}
