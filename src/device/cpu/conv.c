/*
 * conv.c - the convolution slots: which of the three ways takes a call, memory orders, gradient of the bias.
 * Layer: device/cpu.
 *
 * conv_small.c takes small float maps of few channels, conv_pixels.c maps whose channels lie next to each other,
 * conv_columns.c the rest, whatever its strides and groups. All three give the same result up to rounding; layouts are
 * chosen so that the faster ones apply.
 */
#include "device/cpu/conv.h"
#include "device/cpu/gemm_micro.h"

/* Whether outputs are kept in [H][W][N][C]: the kernels' vectors run along the channels. */
static bool batch_inner(const yk__conv2d *p, int64_t channels_out)
{
    return p->groups == 1 && channels_out % 16 == 0;
}

static void c_order(const int64_t shape[4], int64_t stride[4])
{
    stride[3] = 1;
    for (int d = 2; d >= 0; d--)
        stride[d] = stride[d + 1] * (shape[d + 1] > 1 ? shape[d + 1] : 1);
}

static void layout(const yk__conv2d *p, const yk__view *x, const yk__view *w, const int64_t out_shape[4],
                   int64_t out_stride[4])
{
    yk__view out = {.dtype = x->dtype, .ndim = 4};
    c_order(out_shape, out_stride);
    for (int d = 0; d < 4; d++) {
        out.shape[d] = out_shape[d];
        out.stride[d] = out_stride[d];
    }
    if (yk__conv_small_applies(p, x, w, &out) || !batch_inner(p, out_shape[1]))
        return;
    out_stride[1] = 1;
    out_stride[0] = out_shape[1];
    out_stride[3] = out_stride[0] * (out_shape[0] > 1 ? out_shape[0] : 1);
    out_stride[2] = out_stride[3] * (out_shape[3] > 1 ? out_shape[3] : 1);
}

/* [kh][kw][C][O] where the maps are [H][W][N][C], and [kh][C][kw][O] for a first layer, whose columns are gathered from
 * planes. */
static void weight_layout(const yk__conv2d *p, yk_dtype dtype, const int64_t shape[4], int64_t stride[4])
{
    (void)dtype;
    c_order(shape, stride);
    if (!batch_inner(p, shape[0]) || (shape[1] < 16 && shape[0] <= 32))
        return;
    stride[0] = 1;
    if (shape[1] < 16) {
        stride[3] = shape[0];
        stride[1] = stride[3] * shape[3];
        stride[2] = stride[1] * shape[1];
        return;
    }
    stride[1] = shape[0];
    stride[3] = stride[1] * shape[1];
    stride[2] = stride[3] * shape[3];
}

static yk_status forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x, const yk__view *w,
                         const yk__view *bias)
{
    if (yk__conv_small_applies(p, x, w, out))
        return yk__conv_small_forward(device, p, out, x, w, bias);
    if (yk__conv_pixels_applies(p, x, w, out) && (!bias || bias->stride[0] == 1))
        return yk__conv_pixels_forward(device, p, out, x, w, bias);
    return yk__conv_columns_forward(device, p, out, x, w, bias);
}

static yk_status backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                const yk__view *w)
{
    if (yk__conv_small_applies(p, gx, w, gout))
        return yk__conv_small_backward_input(device, p, gx, gout, w);
    if (yk__conv_pixels_applies(p, gx, w, gout))
        return yk__conv_pixels_backward_input(device, p, gx, gout, w);
    return yk__conv_columns_backward_input(device, p, gx, gout, w);
}

struct bias_sum {
    const yk__view *gbias, *gout;
};

/* Sums of up to 64 channels: f32 in runs of one row of the map, the runs in double. */
#define BIAS_CHANNELS 64
#define BIAS_PIECE(T)                                                                                                  \
    static void bias_piece_##T(void *arg, int64_t begin, int64_t end, int thread)                                      \
    {                                                                                                                  \
        (void)thread;                                                                                                  \
        const struct bias_sum *s = arg;                                                                                \
        const int64_t *shape = s->gout->shape, *stride = s->gout->stride;                                              \
        int inner = stride[0] > stride[3] ? 3 : 0, outer = 3 - inner;                                                  \
        double total[BIAS_CHANNELS] = {0};                                                                             \
        T part[BIAS_CHANNELS];                                                                                         \
        int64_t channels = end - begin;                                                                                \
        for (int64_t y = 0; y < shape[2]; y++)                                                                         \
            for (int64_t o = 0; o < shape[outer]; o++) {                                                               \
                const T *row = (const T *)s->gout->data + begin * stride[1] + y * stride[2] + o * stride[outer];       \
                for (int64_t c = 0; c < channels; c++)                                                                 \
                    part[c] = 0;                                                                                       \
                if (stride[1] == 1) {                                                                                  \
                    for (int64_t i = 0; i < shape[inner]; i++)                                                         \
                        for (int64_t c = 0; c < channels; c++)                                                         \
                            part[c] += row[i * stride[inner] + c];                                                     \
                } else {                                                                                               \
                    for (int64_t c = 0; c < channels; c++)                                                             \
                        for (int64_t i = 0; i < shape[inner]; i++)                                                     \
                            part[c] += row[i * stride[inner] + c * stride[1]];                                         \
                }                                                                                                      \
                for (int64_t c = 0; c < channels; c++)                                                                 \
                    total[c] += (double)part[c];                                                                       \
            }                                                                                                          \
        for (int64_t c = 0; c < channels; c++)                                                                         \
            ((T *)s->gbias->data)[(begin + c) * s->gbias->stride[0]] = (T)total[c];                                    \
    }
BIAS_PIECE(float)
BIAS_PIECE(double)

static yk_status backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gbias,
                                 const yk__view *gout, const yk__view *x)
{
    if (yk__conv_small_applies(p, x, gw, gout))
        return yk__conv_small_backward_weight(device, p, gw, gbias, gout, x);
    if (gbias) {
        struct bias_sum sum = {gbias, gout};
        yk__cpu_parallel(device, gbias->shape[0], BIAS_CHANNELS,
                         gbias->dtype == YK_F32 ? bias_piece_float : bias_piece_double, &sum);
    }
    if (yk__conv_pixels_applies(p, x, gw, gout))
        return yk__conv_pixels_backward_weight(device, p, gw, gout, x);
    return yk__conv_columns_backward_weight(device, p, gw, gout, x);
}

void YK__ISA_NAME(yk__cpu_fill_conv)(yk__backend *table)
{
    table->conv2d_layout = layout;
    table->conv2d_weight_layout = weight_layout;
    table->conv2d = forward;
    table->conv2d_backward_input = backward_input;
    table->conv2d_backward_weight = backward_weight;
}
