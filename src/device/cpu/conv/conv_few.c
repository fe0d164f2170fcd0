/*
 * conv_few.c - forward of convolutions of many channels to fewer than eight outputs: last layers of networks that
 * segment or draw images. Layer: device/cpu.
 *
 * conv_pixels.c holds output channels in vectors, of which most lanes would be empty here. These vectors hold input
 * channels: for each output pixel and each output the products of all taps inside the image are summed lane by lane,
 * then the lanes. Some pixels share the loads of the weights: neighbouring images where these are next to each other,
 * else neighbours of a row that see all taps of it. Weights are packed [ky][kx][output][channel], with zeros up to
 * whole vectors.
 *
 * A sum is cut after a fixed number of taps: bits do not depend on threads.
 */
#include <string.h>

#include "device/cpu/conv/conv.h"
#include "device/cpu/gemm/gemm_micro.h"
#include "device/cpu/partial_vectors.h"

/* Products summed in a lane before the lanes are added: as in conv_pixels.c. */
#define SUM_LENGTH 128
/* Pixels that share the weights' loads: with seven outputs and the numbers that they multiply they fill 32
 * registers. */
#define PIXELS 4
#define MOST   7

struct few {
    yk__view out, x, w;
    const void *bias;
    int64_t stride[2], padding[2], dilation[2];
    int64_t c, o, kh, kw, vectors; /* of the channels of a pixel */
    void *packed;
};

/* The taps that an output pixel sees. */
struct window {
    int64_t ky0, ky1, kx0, kx1;
};

/* Taps [*begin, *end) of a row or column that are inside, for the output at d. */
static void taps_inside(const struct few *f, int axis, int64_t d, int64_t *begin, int64_t *end)
{
    int64_t first = d * f->stride[axis] - f->padding[axis], size = f->x.shape[2 + axis];
    int64_t taps = f->w.shape[2 + axis], step = f->dilation[axis];
    *begin = first < 0 ? yk__ceil_div(-first, step) : 0;
    *end = size > first ? yk__ceil_div(size - first, step) : 0;
    *end = *end < taps ? *end : taps;
    *begin = *begin < *end ? *begin : *end;
}

/* The outputs of a row that see all taps of it. */
static void whole_windows(const struct few *f, int64_t *begin, int64_t *end)
{
    int64_t last = f->x.shape[3] + f->padding[1] - (f->kw - 1) * f->dilation[1] - 1;
    *begin = yk__ceil_div(f->padding[1], f->stride[1]);
    *end = last < 0 ? 0 : last / f->stride[1] + 1;
    *end = *end < f->out.shape[3] ? *end : f->out.shape[3];
}

#define TYPED(name)  TYPED_(name)
#define T            float
#define V            yk__vf32
#define VU           yk__vf32u
#define LOAD_PART    yk__load_part_f32
#define TYPED_(name) name##_f32
#include "device/cpu/conv/conv_few_body.h"
#undef T
#undef V
#undef VU
#undef LOAD_PART
#undef TYPED_

#define T            double
#define V            yk__vf64
#define VU           yk__vf64u
#define LOAD_PART    yk__load_part_f64
#define TYPED_(name) name##_f64
#include "device/cpu/conv/conv_few_body.h"

bool yk__conv_few_applies(const yk__view *w)
{
    return w->dtype != YK_BF16 && w->shape[0] <= MOST && w->shape[1] >= 8;
}

yk_status yk__conv_few_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                               const yk__view *w, const yk__view *bias)
{
    if (!yk__view_numel(out))
        return YK_OK;
    bool f32 = out->dtype == YK_F32;
    int64_t size = f32 ? 4 : 8, width = YK__VECTOR_BYTES / size;
    struct few f = {.out = *out,
                    .x = *x,
                    .w = *w,
                    .bias = bias ? bias->data : NULL,
                    .stride = {p->stride[0], p->stride[1]},
                    .padding = {p->padding[0], p->padding[1]},
                    .dilation = {p->dilation[0], p->dilation[1]},
                    .c = w->shape[1],
                    .o = w->shape[0],
                    .kh = w->shape[2],
                    .kw = w->shape[3],
                    .vectors = yk__ceil_div(w->shape[1], width)};
    yk__storage *handle;
    f.packed = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                 (size_t)(f.kh * f.kw * f.o * f.vectors) * YK__VECTOR_BYTES, &handle);
    if (!f.packed)
        return yk__error_code();
    if (f32)
        pack_f32(&f);
    else
        pack_f64(&f);
    yk__cpu_parallel(device, out->shape[2], 1, f32 ? row_piece_f32 : row_piece_f64, &f);
    yk__storage_release(handle);
    return YK_OK;
}
