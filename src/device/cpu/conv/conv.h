/*
 * conv.h - declarations that the files of the convolution share. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_CONV_CONV_H
#define YOKE_DEVICE_CPU_CONV_CONV_H

#include "device/cpu/cpu.h"

/* Bytes. Maps and outputs of at least so many come from far away. A gradient of a weight of so many is not read before
 * much else was: its zeros are written past the caches. */
enum { YK__FAR_BYTES = 1024 * 1024 };

/* Keeps a loaded vector in a register: gcc would rather load it again for every multiplication that uses it. */
#if defined(__AVX512F__)
#define YK__KEEP(v) __asm__("" : "+v"(v))
#elif defined(__x86_64__)
#define YK__KEEP(v) __asm__("" : "+x"(v))
#else
#define YK__KEEP(v) ((void)(v))
#endif

/*
 * conv_small.c: convolutions of few channels (LeNet's), all in NCHW. `applies` is true if it takes this one; the views
 * are those of the call, x or its gradient, out or its gradient. conv2d_layout asks with an `out` that has C order and
 * no data, and gives the output C order when the answer is true.
 */
#define yk__conv_small_applies YK__ISA_NAME(yk__conv_small_applies)
bool yk__conv_small_applies(const yk__conv2d *p, const yk__view *x_or_gx, const yk__view *w,
                            const yk__view *out_or_gout);
/* Kernels with the arguments of the slots conv2d, conv2d_backward_input and conv2d_backward_weight. */
#define yk__conv_small_forward YK__ISA_NAME(yk__conv_small_forward)
yk_status yk__conv_small_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                 const yk__view *w, const yk__view *bias);
#define yk__conv_small_backward_input YK__ISA_NAME(yk__conv_small_backward_input)
yk_status yk__conv_small_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                        const yk__view *w);
#define yk__conv_small_backward_weight YK__ISA_NAME(yk__conv_small_backward_weight)
yk_status yk__conv_small_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gbias,
                                         const yk__view *gout, const yk__view *x);

/*
 * conv_inner.c: a map with its channels next to each other: the view itself where it is like that, else memory in the
 * order [H][W][N][C].
 */
typedef struct yk__conv_map {
    yk__view view;
    yk__storage *handle; /* of the copy, or NULL */
} yk__conv_map;

/* The strides of [H][W][N][C]; dimensions of one count as such. */
static inline void yk__conv_inner_strides(const int64_t shape[4], int64_t stride[4])
{
    stride[1] = 1;
    stride[0] = shape[1];
    stride[3] = stride[0] * (shape[0] > 1 ? shape[0] : 1);
    stride[2] = stride[3] * (shape[3] > 1 ? shape[3] : 1);
}

/* Makes the map, with the view's values where `filled`. */
#define yk__conv_inner YK__ISA_NAME(yk__conv_inner)
yk_status yk__conv_inner(int device, const yk__view *v, bool filled, yk__conv_map *map);
/* Copies what a kernel wrote to the map into the view that it was made for. */
#define yk__conv_inner_store YK__ISA_NAME(yk__conv_inner_store)
void yk__conv_inner_store(int device, const yk__conv_map *map, const yk__view *v);
#define yk__conv_inner_release YK__ISA_NAME(yk__conv_inner_release)
void yk__conv_inner_release(yk__conv_map *map);

/*
 * conv_pixels.c: groups 1 (conv.c runs each group alone), any channels, made for 8 and more on both sides, next to each
 * other in both maps: one matrix product per output pixel and tap inside the image. conv_lanes.c: any number of groups
 * of at most a vector of channels, channels next to each other in both maps. conv_columns.c: everything else, whatever
 * the strides. The arguments are those of the slots; a bias has stride 1.
 */
#define yk__conv_lanes_applies YK__ISA_NAME(yk__conv_lanes_applies)
bool yk__conv_lanes_applies(yk_dtype dtype, int64_t c, int64_t o); /* channels of a group */
/* True if the gradient of the weight is made of rotated sums (Note [Rotated sums]), which are the faster ones. */
#define yk__conv_lanes_turns YK__ISA_NAME(yk__conv_lanes_turns)
bool yk__conv_lanes_turns(int64_t c, int64_t o);
#define yk__conv_lanes_forward YK__ISA_NAME(yk__conv_lanes_forward)
yk_status yk__conv_lanes_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                 const yk__view *w, const yk__view *bias);
#define yk__conv_lanes_backward_input YK__ISA_NAME(yk__conv_lanes_backward_input)
yk_status yk__conv_lanes_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                        const yk__view *w);
#define yk__conv_lanes_backward_weight YK__ISA_NAME(yk__conv_lanes_backward_weight)
yk_status yk__conv_lanes_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                         const yk__view *x);
#define yk__conv_pixels_forward YK__ISA_NAME(yk__conv_pixels_forward)
yk_status yk__conv_pixels_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                  const yk__view *w, const yk__view *bias);
#define yk__conv_pixels_backward_input YK__ISA_NAME(yk__conv_pixels_backward_input)
yk_status yk__conv_pixels_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                         const yk__view *w);
#define yk__conv_pixels_backward_weight YK__ISA_NAME(yk__conv_pixels_backward_weight)
/* With `accumulate`, sums are added to gw as they come, blocks of images in their order. */
yk_status yk__conv_pixels_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                          const yk__view *x, bool accumulate);
#define yk__conv_columns_forward YK__ISA_NAME(yk__conv_columns_forward)
yk_status yk__conv_columns_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                   const yk__view *w, const yk__view *bias);
#define yk__conv_columns_backward_input YK__ISA_NAME(yk__conv_columns_backward_input)
yk_status yk__conv_columns_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                          const yk__view *w);
/* The gradient of the input of fewer than eight outputs, computed as a first layer of gout; `turns` is true if it can
 * be. */
#define yk__conv_columns_turns YK__ISA_NAME(yk__conv_columns_turns)
bool yk__conv_columns_turns(const yk__conv2d *p, const yk__view *gx, const yk__view *w);
#define yk__conv_columns_turned_input YK__ISA_NAME(yk__conv_columns_turned_input)
yk_status yk__conv_columns_turned_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                        const yk__view *w);
#define yk__conv_columns_backward_weight YK__ISA_NAME(yk__conv_columns_backward_weight)
yk_status yk__conv_columns_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                           const yk__view *x);

/*
 * conv_planes.c: depthwise convolutions of maps in C order, windows of three columns. `applies`: as
 * yk__conv_small_applies; conv2d_layout gives the output C order then.
 */
#define yk__conv_planes_applies YK__ISA_NAME(yk__conv_planes_applies)
bool yk__conv_planes_applies(const yk__conv2d *p, const yk__view *x_or_gx, const yk__view *w,
                             const yk__view *out_or_gout);
#define yk__conv_planes_forward YK__ISA_NAME(yk__conv_planes_forward)
yk_status yk__conv_planes_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                  const yk__view *w, const yk__view *bias);
#define yk__conv_planes_backward_input YK__ISA_NAME(yk__conv_planes_backward_input)
yk_status yk__conv_planes_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                         const yk__view *w);
#define yk__conv_planes_backward_weight YK__ISA_NAME(yk__conv_planes_backward_weight)
yk_status yk__conv_planes_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                          const yk__view *x);

/*
 * conv_matrices.c: one tap of stride 1, of maps in C order, as matrices; `applies` is true if it takes this one (out
 * may have no data).
 */
#define yk__conv_matrices_applies YK__ISA_NAME(yk__conv_matrices_applies)
bool yk__conv_matrices_applies(const yk__conv2d *p, const yk__view *x, const yk__view *w, const yk__view *out);
#define yk__conv_matrices_forward YK__ISA_NAME(yk__conv_matrices_forward)
yk_status yk__conv_matrices_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                    const yk__view *w, const yk__view *bias);
#define yk__conv_matrices_backward_input YK__ISA_NAME(yk__conv_matrices_backward_input)
yk_status yk__conv_matrices_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                           const yk__view *w);
#define yk__conv_matrices_backward_weight YK__ISA_NAME(yk__conv_matrices_backward_weight)
yk_status yk__conv_matrices_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                            const yk__view *x, bool accumulate);

/* conv_few.c: forward of one group to fewer than eight outputs, channels next to each other in both maps. */
#define yk__conv_few_applies YK__ISA_NAME(yk__conv_few_applies)
bool yk__conv_few_applies(const yk__view *w);
#define yk__conv_few_forward YK__ISA_NAME(yk__conv_few_forward)
yk_status yk__conv_few_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                               const yk__view *w, const yk__view *bias);

/*
 * conv_winograd.c: 3 x 3 taps with stride 1, channels next to each other in both maps, where that takes fewer
 * operations than conv_pixels.c does (out and x may be the gradients): one group, or all groups in forward and
 * backward_input where `joins` says so. **finite: the result is finite; one that is not differs from a direct sum, and
 * has to be computed again.
 */
#define yk__conv_winograd_applies YK__ISA_NAME(yk__conv_winograd_applies)
bool yk__conv_winograd_applies(const yk__conv2d *p, const yk__view *out, const yk__view *x, const yk__view *w);
/* True if one group's maps, which may be in any memory order then, are copied row by row: those of few channels. */
#define yk__conv_winograd_copies_rows YK__ISA_NAME(yk__conv_winograd_copies_rows)
bool yk__conv_winograd_copies_rows(const yk__view *out, const yk__view *x, bool gradient); /* of the weight */
#define yk__conv_winograd_joins YK__ISA_NAME(yk__conv_winograd_joins)
bool yk__conv_winograd_joins(const yk__conv2d *p, const yk__view *out, const yk__view *x, const yk__view *w);
#define yk__conv_winograd_forward YK__ISA_NAME(yk__conv_winograd_forward)
yk_status yk__conv_winograd_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                    const yk__view *w, const yk__view *bias, bool *finite);
#define yk__conv_winograd_backward_input YK__ISA_NAME(yk__conv_winograd_backward_input)
yk_status yk__conv_winograd_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                           const yk__view *w, bool *finite);
#define yk__conv_winograd_backward_weight YK__ISA_NAME(yk__conv_winograd_backward_weight)
/* With `accumulate`, the gradient is added to gw when it is complete; gw stays as it is where the gradient is not
 * finite. */
yk_status yk__conv_winograd_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                            const yk__view *x, bool accumulate, bool *finite);

/*
 * One axis of a convolution seen from its destination: for destination coordinate d the links [first[d], first[d + 1])
 * pair each tap with its source coordinate; taps ascend. Taps that only touch padding have no link.
 */
typedef struct yk__conv_link {
    int64_t tap, src;
} yk__conv_link;
typedef struct yk__conv_axis {
    int64_t size;         /* of the destination */
    int64_t *first;       /* size + 1 */
    yk__conv_link *links; /* size * taps at most */
    int64_t *slot;        /* tap: its position among the taps that have a link, or -1 */
    int64_t slots;        /* the number of those that have one */
} yk__conv_axis;

static inline size_t yk__conv_axis_bytes(int64_t size, int64_t taps)
{
    return (size_t)(size + 1 + taps) * sizeof(int64_t) + (size_t)(size * taps) * sizeof(yk__conv_link);
}

/* Fills an axis in `memory`, which has yk__conv_axis_bytes. `source` is the size of the source; `backward` means from
 * the input (destination) to the output (source). */
static inline void yk__conv_axis_init(yk__conv_axis *axis, void *memory, const yk__conv2d *p, int dim, int64_t size,
                                      int64_t source, int64_t taps, bool backward)
{
    axis->size = size;
    axis->links = memory;
    axis->first = (int64_t *)(axis->links + size * taps);
    axis->slot = axis->first + size + 1;
    axis->slots = 0;
    for (int64_t k = 0; k < taps; k++)
        axis->slot[k] = -1;
    int64_t n = 0;
    for (int64_t d = 0; d < size; d++) {
        axis->first[d] = n;
        for (int64_t k = 0; k < taps; k++) {
            int64_t s = backward ? d + p->padding[dim] - k * p->dilation[dim]
                                 : d * p->stride[dim] - p->padding[dim] + k * p->dilation[dim];
            if (backward && (s < 0 || s % p->stride[dim]))
                continue;
            if (backward)
                s /= p->stride[dim];
            if (s < 0 || s >= source)
                continue;
            axis->links[n++] = (yk__conv_link){k, s};
            axis->slot[k] = 0;
        }
    }
    axis->first[size] = n;
    for (int64_t k = 0; k < taps; k++)
        if (axis->slot[k] == 0)
            axis->slot[k] = axis->slots++;
}

/* The number of destinations x, x + period, ... with the same taps, each with sources `*step` further than the one
 * before. */
static inline int64_t yk__conv_run_every(const yk__conv_axis *axis, int64_t x, int64_t period, int64_t *step)
{
    const yk__conv_link *links = axis->links + axis->first[x];
    int64_t count = axis->first[x + 1] - axis->first[x], run = 1;
    *step = 0;
    for (int64_t at = x + period; at < axis->size; at += period, run++) {
        const yk__conv_link *next = axis->links + axis->first[at];
        if (axis->first[at + 1] - axis->first[at] != count)
            break;
        int64_t i = 0;
        if (run == 1 && count)
            *step = next[0].src - links[0].src;
        while (i < count && next[i].tap == links[i].tap && next[i].src == links[i].src + run * *step)
            i++;
        if (i < count)
            break;
    }
    return run;
}

/* The same for neighbours, a period of 1. */
static inline int64_t yk__conv_run(const yk__conv_axis *axis, int64_t x, int64_t *step)
{
    return yk__conv_run_every(axis, x, 1, step);
}

#endif
