/*
 * conv.h - what the files of the convolution share. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_CONV_H
#define YOKE_DEVICE_CPU_CONV_H

#include "device/cpu/cpu.h"

/*
 * conv_small.c: convolutions of few channels (LeNet's), all in NCHW. Whether it takes this one; the views are those
 * of the call, x or its gradient, out or its gradient. conv2d_layout asks with an `out` that has C order and no data,
 * and gives the output C order when the answer is true.
 */
#define yk__conv_small_applies YK__ISA_NAME(yk__conv_small_applies)
bool yk__conv_small_applies(const yk__conv2d *p, const yk__view *x_or_gx, const yk__view *w,
                            const yk__view *out_or_gout);
/* As the slots conv2d, conv2d_backward_input and conv2d_backward_weight. */
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
 * conv_pixels.c: groups 1, channels next to each other in both maps: one matrix product per output pixel and tap
 * inside the image. conv_columns.c: everything else. The arguments are those of the slots.
 */
#define yk__conv_pixels_applies YK__ISA_NAME(yk__conv_pixels_applies)
bool yk__conv_pixels_applies(const yk__conv2d *p, const yk__view *x_or_gx, const yk__view *w,
                             const yk__view *out_or_gout);
#define yk__conv_pixels_forward YK__ISA_NAME(yk__conv_pixels_forward)
yk_status yk__conv_pixels_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                  const yk__view *w, const yk__view *bias);
#define yk__conv_pixels_backward_input YK__ISA_NAME(yk__conv_pixels_backward_input)
yk_status yk__conv_pixels_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                         const yk__view *w);
#define yk__conv_pixels_backward_weight YK__ISA_NAME(yk__conv_pixels_backward_weight)
yk_status yk__conv_pixels_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                          const yk__view *x);
#define yk__conv_columns_forward YK__ISA_NAME(yk__conv_columns_forward)
yk_status yk__conv_columns_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                   const yk__view *w, const yk__view *bias);
#define yk__conv_columns_backward_input YK__ISA_NAME(yk__conv_columns_backward_input)
yk_status yk__conv_columns_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                          const yk__view *w);
#define yk__conv_columns_backward_weight YK__ISA_NAME(yk__conv_columns_backward_weight)
yk_status yk__conv_columns_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                           const yk__view *x);

/*
 * One axis of a convolution seen from its destination: for destination coordinate d the links [first[d], first[d + 1])
 * say which tap takes which source coordinate; taps ascend. Taps that only touch padding have no link.
 */
typedef struct yk__conv_link {
    int64_t tap, src;
} yk__conv_link;
typedef struct yk__conv_axis {
    int64_t size;         /* of the destination */
    int64_t *first;       /* size + 1 */
    yk__conv_link *links; /* size * taps at most */
    int64_t *slot;        /* tap: its place among the taps that have a link, or -1 */
    int64_t slots;        /* how many have one */
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

#endif
