/*
 * conv.cu - the slots conv2d and its backwards: by cuDNN (dnn.c), or from the definition by the kernels here.
 * Layer: device/cuda.
 *
 * A thread makes one output, or one gradient of an input; a warp makes one gradient of a weight and adds its lanes up
 * by a butterfly. Each number is a sum by fused multiply-adds in an order that the shape alone gives.
 */
#include "device/cuda/walk.h"

#include "device/cuda/elements.h"
#include "device/cuda/libraries.h"
#include "device/cuda/sums.h"

enum { THREADS = WALK_THREADS, ROWS = THREADS / LANES };

typedef struct conv_job {
    yk__conv2d p;
    yk__view x, w, out, bias; /* or the gradients that have their shapes */
    bool has_bias;
} conv_job;

template <typename E>
static YK__DEVICE typename E::number at4(const yk__view &v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return get<E>(v, a * v.stride[0] + b * v.stride[1] + c * v.stride[2] + d * v.stride[3]);
}
template <typename E>
static YK__DEVICE void put4(const yk__view &v, int64_t a, int64_t b, int64_t c, int64_t d, typename E::number x)
{
    put<E>(v, a * v.stride[0] + b * v.stride[1] + c * v.stride[2] + d * v.stride[3], x);
}

template <typename E> YK__KERNEL(THREADS) conv_kernel(conv_job j)
{
    const int64_t *shape = j.out.shape;
    int64_t total = shape[0] * shape[1] * shape[2] * shape[3], step = (int64_t)THREADS * gridDim.x;
    int64_t depth = j.w.shape[1], each = shape[1] / j.p.groups;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        int64_t ox = i % shape[3], oy = i / shape[3] % shape[2], o = i / shape[3] / shape[2] % shape[1];
        int64_t n = i / shape[3] / shape[2] / shape[1], first = o / each * depth;
        typename E::number sum = j.has_bias ? get<E>(j.bias, o * j.bias.stride[0]) : 0;
        YK__LOOP for (int64_t c = 0; c < depth; c++) YK__LOOP for (int64_t ky = 0; ky < j.w.shape[2]; ky++)
        {
            int64_t y = oy * j.p.stride[0] - j.p.padding[0] + ky * j.p.dilation[0];
            if (y < 0 || y >= j.x.shape[2])
                continue;
            YK__LOOP for (int64_t kx = 0; kx < j.w.shape[3]; kx++)
            {
                int64_t x = ox * j.p.stride[1] - j.p.padding[1] + kx * j.p.dilation[1];
                if (x >= 0 && x < j.x.shape[3])
                    sum = multiply_add(at4<E>(j.x, n, first + c, y, x), at4<E>(j.w, o, c, ky, kx), sum);
            }
        }
        put4<E>(j.out, n, o, oy, ox, sum);
    }
}

/* x is the gradient that is made, out the one that is given. */
template <typename E> YK__KERNEL(THREADS) conv_input_kernel(conv_job j)
{
    const int64_t *shape = j.x.shape;
    int64_t total = shape[0] * shape[1] * shape[2] * shape[3], step = (int64_t)THREADS * gridDim.x;
    int64_t depth = j.w.shape[1], each = j.w.shape[0] / j.p.groups;
    YK__LOOP for (int64_t i = (int64_t)THREADS * blockIdx.x + threadIdx.x; i < total; i += step)
    {
        int64_t x = i % shape[3], y = i / shape[3] % shape[2], c = i / shape[3] / shape[2] % shape[1];
        int64_t n = i / shape[3] / shape[2] / shape[1], first = c / depth * each;
        typename E::number sum = 0;
        YK__LOOP for (int64_t o = first; o < first + each; o++) YK__LOOP for (int64_t ky = 0; ky < j.w.shape[2]; ky++)
        {
            int64_t oy = y + j.p.padding[0] - ky * j.p.dilation[0];
            if (oy < 0 || oy % j.p.stride[0] || oy / j.p.stride[0] >= j.out.shape[2])
                continue;
            YK__LOOP for (int64_t kx = 0; kx < j.w.shape[3]; kx++)
            {
                int64_t ox = x + j.p.padding[1] - kx * j.p.dilation[1];
                if (ox >= 0 && ox % j.p.stride[1] == 0 && ox / j.p.stride[1] < j.out.shape[3])
                    sum = multiply_add(at4<E>(j.out, n, o, oy / j.p.stride[0], ox / j.p.stride[1]),
                                       at4<E>(j.w, o, c % depth, ky, kx), sum);
            }
        }
        put4<E>(j.x, n, c, y, x, sum);
    }
}

/* w is the gradient that is made. */
template <typename E> YK__KERNEL(THREADS) conv_weight_kernel(conv_job j)
{
    const int64_t *shape = j.w.shape;
    int64_t total = shape[0] * shape[1] * shape[2] * shape[3];
    int64_t outputs = j.out.shape[0] * j.out.shape[2] * j.out.shape[3], each = shape[0] / j.p.groups;
    int lane = (int)threadIdx.x % LANES;
    YK__LOOP for (int64_t i = (int64_t)ROWS * blockIdx.x + threadIdx.x / LANES; i < total;
                  i += (int64_t)ROWS * gridDim.x)
    {
        int64_t kx = i % shape[3], ky = i / shape[3] % shape[2], c = i / shape[3] / shape[2] % shape[1];
        int64_t o = i / shape[3] / shape[2] / shape[1], channel = o / each * shape[1] + c;
        double sum = 0;
        YK__LOOP for (int64_t e = lane; e < outputs; e += LANES)
        {
            int64_t ox = e % j.out.shape[3], oy = e / j.out.shape[3] % j.out.shape[2];
            int64_t n = e / j.out.shape[3] / j.out.shape[2];
            int64_t y = oy * j.p.stride[0] - j.p.padding[0] + ky * j.p.dilation[0];
            int64_t x = ox * j.p.stride[1] - j.p.padding[1] + kx * j.p.dilation[1];
            if (y >= 0 && y < j.x.shape[2] && x >= 0 && x < j.x.shape[3])
                sum += (double)at4<E>(j.x, n, channel, y, x) * (double)at4<E>(j.out, n, o, oy, ox);
        }
        sum = warp_sum(sum);
        if (lane == 0)
            put4<E>(j.w, o, c, ky, kx, (typename E::number)sum);
    }
}

static conv_job job_of(const yk__conv2d *p, const yk__view *x, const yk__view *w, const yk__view *out,
                       const yk__view *bias)
{
    conv_job j = {};
    j.p = *p, j.x = *x, j.out = *out, j.has_bias = bias != NULL;
    j.w = *w;
    if (bias)
        j.bias = *bias;
    return j;
}

static int64_t elements_of(const yk__view *v)
{
    return v->shape[0] * v->shape[1] * v->shape[2] * v->shape[3];
}

/* A convolution by the library, where it takes the case; counted in both cases. */
static yk_status by_library(int device, enum cuda_work work, const yk__conv2d *p, const yk__view *x, const yk__view *w,
                            const yk__view *out, const yk__view *bias, bool *taken)
{
    yk_status status = cuda_dnn_conv(device, work, p, x, w, out, bias, taken);
    if (!status)
        cuda_count_work(work, *taken);
    return status;
}

/* The gradient of a bias (O) as a tensor (1,O,1,1). */
static yk__view as_channels(const yk__view *bias)
{
    yk__view v = *bias;
    v.ndim = 4;
    for (int d = 0; d < 4; d++) {
        v.shape[d] = d == 1 ? bias->shape[0] : 1;
        v.stride[d] = d == 1 ? bias->stride[0] : 0;
    }
    return v;
}

yk_status cuda_conv2d(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x, const yk__view *w,
                      const yk__view *bias)
{
    const yk__view *views[] = {out, x, w};
    conv_job j = job_of(p, x, w, out, bias);
    if (elements_of(out) == 0)
        return YK_OK;
    bool taken = false;
    cudaStream_t stream = NULL;
    yk_status status = by_library(device, CUDA_CONV, p, x, w, out, bias, &taken); /* ReLU, too */
    if (!status)
        status = cuda_use(device, &stream);
    if (status || taken)
        return status;
#define CONV(E)                                                                                                        \
    YK__LAUNCH("conv2d", conv_kernel<E>, walk_rows(device, (elements_of(out) + THREADS - 1) / THREADS), THREADS, 0,    \
               stream, j)
    FLOATING(x->dtype, CONV);
    status = cuda_launched(device, "conv2d", 3, views);
    return status || !p->relu ? status : cuda_unary(device, YK__RELU, out, out, 0, 0);
}

yk_status cuda_conv2d_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                     const yk__view *w)
{
    const yk__view *views[] = {gx, gout, w};
    conv_job j = job_of(p, gx, w, gout, NULL);
    if (elements_of(gx) == 0)
        return YK_OK;
    bool taken = false;
    cudaStream_t stream = NULL;
    yk_status status = by_library(device, CUDA_CONV_INPUT, p, gx, w, gout, NULL, &taken);
    if (!status)
        status = cuda_use(device, &stream);
    if (status || taken)
        return status;
#define CONV_INPUT(E)                                                                                                  \
    YK__LAUNCH("conv2d_backward_input", conv_input_kernel<E>,                                                          \
               walk_rows(device, (elements_of(gx) + THREADS - 1) / THREADS), THREADS, 0, stream, j)
    FLOATING(gx->dtype, CONV_INPUT);
    return cuda_launched(device, "conv2d_backward_input", 3, views);
}

yk_status cuda_conv2d_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gbias,
                                      const yk__view *gout, const yk__view *x)
{
    const yk__view *views[] = {gw, gout, x};
    conv_job j = job_of(p, x, gw, gout, NULL);
    bool taken = false;
    cudaStream_t stream = NULL;
    yk_status status = YK_OK;
    if (gbias) {
        yk__view all = as_channels(gbias);
        status = cuda_reduce(device, YK__SUM, &all, gout, 0);
    }
    if (status || elements_of(gw) == 0)
        return status;
    status = by_library(device, CUDA_CONV_WEIGHT, p, x, gw, gout, NULL, &taken);
    if (!status)
        status = cuda_use(device, &stream);
    if (status || taken)
        return status;
#define CONV_WEIGHT(E)                                                                                                 \
    YK__LAUNCH("conv2d_backward_weight", conv_weight_kernel<E>,                                                        \
               walk_rows(device, (elements_of(gw) + ROWS - 1) / ROWS), THREADS, 0, stream, j)
    FLOATING(x->dtype, CONV_WEIGHT);
    return cuda_launched(device, "conv2d_backward_weight", 3, views);
}
