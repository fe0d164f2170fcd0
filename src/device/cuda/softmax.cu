/*
 * softmax.cu - the slots softmax and softmax_backward. Layer: device/cuda.
 *
 * A warp takes a row, which may lie anyhow in memory, in three passes: its greatest element, the sum of the
 * exponentials (in f64), the results.
 */
#include "device/cuda/walk.h"

#include "device/cuda/exponential.h"
#include "device/cuda/sums.h"

enum { THREADS = WALK_THREADS, ROWS = THREADS / LANES };

/* Operand k of `rows` is the first element of a row; its elements are step[k] bytes apart. */
typedef struct softmax_rows {
    yk__loop rows;
    int64_t size, step[3];
    bool log;
} softmax_rows;

template <typename E>
static YK__DEVICE yk__global<typename E::stored> row_at(const softmax_rows &s, int k, int64_t base, int64_t i)
{
    return yk__global<typename E::stored>(
        reinterpret_cast<typename E::stored *>(s.rows.data[k] + base + i * s.step[k]));
}

template <typename E> YK__KERNEL(THREADS) softmax_kernel(softmax_rows s)
{
    typedef typename E::number number;
    int lane = (int)threadIdx.x % LANES;
    YK__LOOP for (int64_t r = (int64_t)ROWS * blockIdx.x + threadIdx.x / LANES; r < s.rows.total;
                  r += (int64_t)ROWS * gridDim.x)
    {
        int64_t to = walk_offset(s.rows, 0, r), from = walk_offset(s.rows, 1, r);
        number top = -INFINITY;
        YK__LOOP for (int64_t i = lane; i < s.size; i += LANES)
        {
            number x = E::load(*row_at<E>(s, 1, from, i));
            top = top != top || top > x ? top : x;
        }
        top = warp_max(top);
        double sum = 0;
        YK__LOOP for (int64_t i = lane; i < s.size; i += LANES) sum +=
            (double)exponential(E::load(*row_at<E>(s, 1, from, i)) - top);
        sum = warp_sum(sum);
        number less = (number)log(sum), scale = (number)(1.0 / sum);
        YK__LOOP for (int64_t i = lane; i < s.size; i += LANES)
        {
            number x = E::load(*row_at<E>(s, 1, from, i)) - top;
            *row_at<E>(s, 0, to, i) = E::store(s.log ? x - less : exponential(x) * scale);
        }
    }
}

template <typename E> YK__KERNEL(THREADS) softmax_backward_kernel(softmax_rows s)
{
    typedef typename E::number number;
    int lane = (int)threadIdx.x % LANES;
    YK__LOOP for (int64_t r = (int64_t)ROWS * blockIdx.x + threadIdx.x / LANES; r < s.rows.total;
                  r += (int64_t)ROWS * gridDim.x)
    {
        int64_t to = walk_offset(s.rows, 0, r), grad = walk_offset(s.rows, 1, r), out = walk_offset(s.rows, 2, r);
        double sum = 0;
        YK__LOOP for (int64_t i = lane; i < s.size; i += LANES)
        {
            double g = (double)E::load(*row_at<E>(s, 1, grad, i));
            sum += s.log ? g : g * (double)E::load(*row_at<E>(s, 2, out, i));
        }
        number all = (number)warp_sum(sum);
        YK__LOOP for (int64_t i = lane; i < s.size; i += LANES)
        {
            number g = E::load(*row_at<E>(s, 1, grad, i)), y = E::load(*row_at<E>(s, 2, out, i));
            *row_at<E>(s, 0, to, i) = E::store(s.log ? g - exponential(y) * all : y * (g - all));
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
}

yk_status cuda_softmax(int device, const yk__view *out, const yk__view *x, int dim, bool log)
{
    const yk__view *views[] = {out, x};
    softmax_rows s;
    cudaStream_t stream = NULL;
    rows_of(&s, 2, views, dim, log);
    yk_status status = cuda_use(device, &stream);
    if (status || s.rows.total == 0)
        return status;
#define SOFTMAX(E)                                                                                                     \
    YK__LAUNCH("softmax", softmax_kernel<E>, walk_rows(device, (s.rows.total + ROWS - 1) / ROWS), THREADS, 0, stream, s)
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
#define SOFTMAX_BACKWARD(E)                                                                                            \
    YK__LAUNCH("softmax_backward", softmax_backward_kernel<E>, walk_rows(device, (s.rows.total + ROWS - 1) / ROWS),    \
               THREADS, 0, stream, s)
    FLOATING(gx->dtype, SOFTMAX_BACKWARD);
    return cuda_launched(device, "softmax_backward", 3, views);
}
