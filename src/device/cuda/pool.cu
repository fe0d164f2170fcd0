/*
 * pool.cu - max, average and adaptive average pooling, and their backwards. Layer: device/cuda.
 *
 * A thread makes one output; in backward one gradient of an input, gathered from the outputs whose windows hold it, in
 * their order: no two threads write one element. Neighbours make what lies side by side in memory, pixels or channels.
 */
#include "device/cuda/walk.h"

#include "device/cuda/elements.h"

enum { THREADS = WALK_THREADS };

typedef struct pool_job {
    yk__view in, out, index; /* (N,C,H,W): x or gx; out or gout */
    yk__pool2d p;
    bool adaptive;
    bool channels_last; /* the result has its channels side by side */
} pool_job;

typedef struct position {
    int64_t n, c, y, x;
} position;

/* Divides i by size, with the remainder in *rest; a division of 32 bits, where both fit, takes a fifth of the time. */
static YK__DEVICE int64_t divide(int64_t i, int64_t size, int64_t *rest)
{
    int64_t quotient = (i | size) <= UINT32_MAX ? (uint32_t)i / (uint32_t)size : i / size;
    *rest = i - quotient * size;
    return quotient;
}
/* The position of element i of `v` in the order in which threads make them. */
static YK__DEVICE position position_of(const pool_job &j, const yk__view &v, int64_t i)
{
    position p;
    if (j.channels_last)
        i = divide(i, v.shape[1], &p.c);
    i = divide(i, v.shape[3], &p.x);
    i = divide(i, v.shape[2], &p.y);
    if (!j.channels_last)
        i = divide(i, v.shape[1], &p.c);
    p.n = i;
    return p;
}
static YK__DEVICE int64_t offset_of(const yk__view &v, const position &p, int64_t y, int64_t x)
{
    return p.n * v.stride[0] + p.c * v.stride[1] + y * v.stride[2] + x * v.stride[3];
}
static YK__DEVICE int64_t total_of(const yk__view &v)
{
    return v.shape[0] * v.shape[1] * v.shape[2] * v.shape[3];
}

/* The inputs of output o along axis d (0: height), cut to the input, and the window's size before that. */
static YK__DEVICE void window_of(const pool_job &j, int d, int64_t o, int64_t *low, int64_t *high, int64_t *full)
{
    int64_t size = j.in.shape[2 + d];
    if (j.adaptive) {
        int64_t outputs = j.out.shape[2 + d];
        int64_t unused;
        *low = divide(o * size, outputs, &unused);
        *high = divide((o + 1) * size + outputs - 1, outputs, &unused);
        *full = *high - *low;
        return;
    }
    int64_t start = o * j.p.stride[d] - j.p.padding[d], end = start + j.p.kernel[d];
    int64_t padded = size + j.p.padding[d];
    end = end < padded ? end : padded;
    *full = end - start;
    *low = start > 0 ? start : 0;
    *high = end < size ? end : size;
}

static YK__DEVICE double divisor_of(const pool_job &j, int64_t y0, int64_t y1, int64_t yf, int64_t x0, int64_t x1,
                                    int64_t xf)
{
    return j.p.divisor             ? (double)j.p.divisor
           : j.p.count_exclude_pad ? (double)((y1 - y0) * (x1 - x0))
                                   : (double)(yf * xf);
}

template <typename E> YK__KERNEL(THREADS) average_kernel(pool_job j)
{
    int64_t total = total_of(j.out), step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        position p = position_of(j, j.out, i);
        int64_t y0, y1, yf, x0, x1, xf;
        window_of(j, 0, p.y, &y0, &y1, &yf);
        window_of(j, 1, p.x, &x0, &x1, &xf);
        double sum = 0;
        YK__LOOP for (int64_t y = y0; y < y1; y++)
        {
            int64_t row = offset_of(j.in, p, y, 0);
            YK__LOOP for (int64_t x = x0; x < x1; x++) sum += (double)get<E>(j.in, row + x * j.in.stride[3]);
        }
        put<E>(j.out, offset_of(j.out, p, p.y, p.x), (typename E::number)(sum / divisor_of(j, y0, y1, yf, x0, x1, xf)));
    }
}

/* The outputs along axis d whose windows hold input i: [first, last]. */
static YK__DEVICE void holders_of(const pool_job &j, int d, int64_t i, int64_t *first, int64_t *last)
{
    int64_t inputs = j.in.shape[2 + d], outputs = j.out.shape[2 + d], unused;
    if (j.adaptive) {
        *first = divide(i * outputs, inputs, &unused);
        *last = divide((i + 1) * outputs + inputs - 1, inputs, &unused) - 1;
    } else {
        int64_t low = i + j.p.padding[d] - (j.p.kernel[d] - 1);
        *first = low > 0 ? divide(low + j.p.stride[d] - 1, j.p.stride[d], &unused) : 0;
        *last = divide(i + j.p.padding[d], j.p.stride[d], &unused);
    }
    *last = *last < outputs - 1 ? *last : outputs - 1;
}

template <typename E> YK__KERNEL(THREADS) average_backward_kernel(pool_job j)
{
    int64_t total = total_of(j.in), step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        position p = position_of(j, j.in, i);
        int64_t top, bottom, left, right;
        double sum = 0;
        holders_of(j, 0, p.y, &top, &bottom);
        holders_of(j, 1, p.x, &left, &right);
        YK__LOOP for (int64_t oy = top; oy <= bottom; oy++)
        {
            int64_t y0, y1, yf, x0, x1, xf;
            window_of(j, 0, oy, &y0, &y1, &yf);
            YK__LOOP for (int64_t ox = left; ox <= right; ox++)
            {
                window_of(j, 1, ox, &x0, &x1, &xf);
                sum += (double)get<E>(j.out, offset_of(j.out, p, oy, ox)) / divisor_of(j, y0, y1, yf, x0, x1, xf);
            }
        }
        put<E>(j.in, offset_of(j.in, p, p.y, p.x), (typename E::number)sum);
    }
}

template <typename E> YK__KERNEL(THREADS) max_kernel(pool_job j)
{
    int64_t total = total_of(j.out), step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        position p = position_of(j, j.out, i);
        typename E::number best = -INFINITY;
        int64_t at = -1;
        YK__LOOP for (int64_t ky = 0; ky < j.p.kernel[0]; ky++)
        {
            int64_t y = p.y * j.p.stride[0] - j.p.padding[0] + ky * j.p.dilation[0];
            if (y < 0 || y >= j.in.shape[2])
                continue;
            int64_t row = offset_of(j.in, p, y, 0);
            YK__LOOP for (int64_t kx = 0; kx < j.p.kernel[1]; kx++)
            {
                int64_t x = p.x * j.p.stride[1] - j.p.padding[1] + kx * j.p.dilation[1];
                if (x < 0 || x >= j.in.shape[3])
                    continue;
                typename E::number value = get<E>(j.in, row + x * j.in.stride[3]);
                if (at < 0 || value > best || value != value) {
                    best = value;
                    at = y * j.in.shape[3] + x;
                }
            }
        }
        put<E>(j.out, offset_of(j.out, p, p.y, p.x), best);
        put<element_i32>(j.index, offset_of(j.index, p, p.y, p.x), at);
    }
}

/* The outputs along axis d whose windows may hold input i: [first, last]. */
static YK__DEVICE void outputs_of(const pool_job &j, int d, int64_t i, int64_t *first, int64_t *last)
{
    int64_t reach = j.p.dilation[d] * (j.p.kernel[d] - 1), low = i + j.p.padding[d] - reach, high = i + j.p.padding[d];
    int64_t unused;
    *first = low > 0 ? divide(low + j.p.stride[d] - 1, j.p.stride[d], &unused) : 0;
    *last = divide(high, j.p.stride[d], &unused);
    if (*last > j.out.shape[2 + d] - 1)
        *last = j.out.shape[2 + d] - 1;
}

template <typename E> YK__KERNEL(THREADS) max_backward_kernel(pool_job j)
{
    int64_t total = total_of(j.in), step = (int64_t)THREADS * gridDim.x;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        position p = position_of(j, j.in, i);
        int64_t y0, y1, x0, x1, own = p.y * j.in.shape[3] + p.x;
        outputs_of(j, 0, p.y, &y0, &y1);
        outputs_of(j, 1, p.x, &x0, &x1);
        typename E::number sum = 0;
        YK__LOOP for (int64_t oy = y0; oy <= y1; oy++)
            YK__LOOP for (int64_t ox = x0; ox <= x1;
                          ox++) if (get<element_i32>(j.index, offset_of(j.index, p, oy, ox)) == own) sum +=
            get<E>(j.out, offset_of(j.out, p, oy, ox));
        put<E>(j.in, offset_of(j.in, p, p.y, p.x), sum);
    }
}

/* Launches `kernel`, which has a thread for each element of `made`. */
#define POOL(name, kernel, made)                                                                                       \
    do {                                                                                                               \
        cudaStream_t stream = NULL;                                                                                    \
        const yk__view *views[] = {&j.in, &j.out};                                                                     \
        yk_status status = cuda_use(device, &stream);                                                                  \
        int64_t count = (made).shape[0] * (made).shape[1] * (made).shape[2] * (made).shape[3];                         \
        if (status || count == 0)                                                                                      \
            return status;                                                                                             \
        j.channels_last = (made).stride[1] < (made).stride[3];                                                         \
        switch (j.in.dtype) {                                                                                          \
        case YK_F64: YK__LAUNCH(name, kernel<element_f64>, walk_blocks(device, count), THREADS, 0, stream, j); break;  \
        case YK_F16: YK__LAUNCH(name, kernel<element_f16>, walk_blocks(device, count), THREADS, 0, stream, j); break;  \
        case YK_BF16: YK__LAUNCH(name, kernel<element_bf16>, walk_blocks(device, count), THREADS, 0, stream, j);       \
            break;                                                                                                     \
        default: YK__LAUNCH(name, kernel<element_f32>, walk_blocks(device, count), THREADS, 0, stream, j); break;      \
        }                                                                                                              \
        return cuda_launched(device, name, 2, views);                                                                  \
    } while (0)

static pool_job job_of(const yk__pool2d *p, const yk__view *in, const yk__view *out, const yk__view *index)
{
    pool_job j = {};
    j.in = *in, j.out = *out, j.adaptive = p == NULL;
    if (p)
        j.p = *p;
    if (index)
        j.index = *index;
    return j;
}

yk_status cuda_max_pool2d(int device, const yk__pool2d *p, const yk__view *out, const yk__view *index,
                          const yk__view *x)
{
    pool_job j = job_of(p, x, out, index);
    POOL("max_pool2d", max_kernel, j.out);
}
yk_status cuda_max_pool2d_backward(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout,
                                   const yk__view *index)
{
    pool_job j = job_of(p, gx, gout, index);
    POOL("max_pool2d_backward", max_backward_kernel, j.in);
}
yk_status cuda_avg_pool2d(int device, const yk__pool2d *p, const yk__view *out, const yk__view *x)
{
    pool_job j = job_of(p, x, out, NULL);
    POOL("avg_pool2d", average_kernel, j.out);
}
yk_status cuda_avg_pool2d_backward(int device, const yk__pool2d *p, const yk__view *gx, const yk__view *gout)
{
    pool_job j = job_of(p, gx, gout, NULL);
    POOL("avg_pool2d_backward", average_backward_kernel, j.in);
}
yk_status cuda_adaptive_avg_pool2d(int device, const yk__view *out, const yk__view *x)
{
    pool_job j = job_of(NULL, x, out, NULL);
    POOL("adaptive_avg_pool2d", average_kernel, j.out);
}
yk_status cuda_adaptive_avg_pool2d_backward(int device, const yk__view *gx, const yk__view *gout)
{
    pool_job j = job_of(NULL, gx, gout, NULL);
    POOL("adaptive_avg_pool2d_backward", average_backward_kernel, j.in);
}
