/*
 * conv_matrices.c - convolutions with one tap of stride 1, of maps whose channels are not next to each other: a matrix
 * product for each image, where it lies. Layer: device/cpu.
 *
 * An image is a matrix of channels and pixels, out = w x, and the product reads either order of it. Repacking the maps
 * for conv_pixels.c would take as long as a third of the product.
 */
#include "device/cpu/conv/conv.h"

/* Pixels from which an image is worth a product of its own. */
#define LEAST_PIXELS 128

/* True if the rows of a map follow each other as its columns do, so that all its pixels have one stride. */
static bool pixels_follow(const yk__view *v)
{
    return v->stride[2] == v->shape[3] * v->stride[3] && (v->stride[1] == 1 || v->stride[3] == 1);
}

bool yk__conv_matrices_applies(const yk__conv2d *p, const yk__view *x, const yk__view *w, const yk__view *out)
{
    return p->groups == 1 && w->shape[2] == 1 && w->shape[3] == 1 && p->stride[0] == 1 && p->stride[1] == 1 &&
           p->padding[0] == 0 && p->padding[1] == 0 && x->dtype != YK_BF16 && w->shape[0] >= 8 && w->shape[1] >= 8 &&
           x->shape[0] > 0 && x->stride[1] != 1 && x->shape[2] * x->shape[3] >= LEAST_PIXELS && pixels_follow(x) &&
           pixels_follow(out);
}

/* The images [first, first + n) as matrices, channels x pixels, or transposed. */
static yk__view images(const yk__view *v, int64_t first, int64_t n, bool turned)
{
    int channel = turned ? 2 : 1, pixel = turned ? 1 : 2;
    yk__view m = {.data = (char *)v->data + first * v->stride[0] * (int64_t)yk_dtype_size((yk_dtype)v->dtype),
                  .dtype = v->dtype,
                  .ndim = 3};
    m.shape[0] = n, m.stride[0] = v->stride[0];
    m.shape[channel] = v->shape[1], m.stride[channel] = v->stride[1];
    m.shape[pixel] = v->shape[2] * v->shape[3], m.stride[pixel] = v->stride[3];
    return m;
}

/* The weight for each of n images: outputs x inputs, or transposed. */
static yk__view weights(const yk__view *w, int64_t n, bool turned)
{
    yk__view m = {.data = w->data, .dtype = w->dtype, .ndim = 3};
    m.shape[0] = n, m.stride[0] = 0;
    for (int d = 0; d < 2; d++)
        m.shape[1 + d] = w->shape[turned ? 1 - d : d], m.stride[1 + d] = w->stride[turned ? 1 - d : d];
    return m;
}

static const yk__backend *backend(int device)
{
    return yk__backend_of((yk_device){YK_CPU, (int16_t)device});
}

yk_status yk__conv_matrices_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                    const yk__view *w, const yk__view *bias)
{
    (void)p;
    int64_t n = x->shape[0];
    /* Pixels x channels: a bias is added to columns. */
    yk__view of_out = images(out, 0, n, true), of_x = images(x, 0, n, true), of_w = weights(w, n, true);
    return backend(device)->gemm(device, &of_out, &of_x, &of_w, bias, false);
}

yk_status yk__conv_matrices_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                           const yk__view *w)
{
    (void)p;
    int64_t n = gx->shape[0];
    yk__view of_gx = images(gx, 0, n, false), of_gout = images(gout, 0, n, false), of_w = weights(w, n, true);
    return backend(device)->gemm(device, &of_gx, &of_w, &of_gout, NULL, false);
}

yk_status yk__conv_matrices_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                            const yk__view *x, bool accumulate)
{
    (void)p;
    yk_status status = YK_OK;
    yk__view of_gw = weights(gw, 1, false);
    for (int64_t n = 0; n < x->shape[0] && !status; n++) {
        yk__view of_gout = images(gout, n, 1, false), of_x = images(x, n, 1, true);
        status = backend(device)->gemm(device, &of_gw, &of_gout, &of_x, NULL, accumulate || n > 0);
    }
    return status;
}
