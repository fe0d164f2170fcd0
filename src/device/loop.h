/*
 * loop.h - the strided operands of an elementwise operation as one short loop. Layer: device. C and C++.
 *
 * A yk__loop holds up to five operands of one shape after its dimensions were reordered and merged, so that tensors
 * which are dense in any memory order become one linear run.
 */
#ifndef YOKE_DEVICE_LOOP_H
#define YOKE_DEVICE_LOOP_H

#include "device/kernel_args.h"

/* The most operands of a loop, which an optimizer's update has: the parameter, its gradient and three states. */
#define YK__LOOP_OPERANDS 5

typedef struct yk__loop {
    int ndim, operands; /* ndim >= 1 */
    int64_t total;
    int64_t shape[YK_MAX_DIMS];                     /* innermost first */
    int64_t stride[YK_MAX_DIMS][YK__LOOP_OPERANDS]; /* bytes */
    char *data[YK__LOOP_OPERANDS];
} yk__loop;

static inline int64_t yk__magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

/* Fills the loop with the shape of views[0]. With c_order the elements keep the order of the shape's last dimension
 * fastest; otherwise the order is that of the memory of views[0], then views[1], ... */
static inline void yk__loop_init(yk__loop *loop, int operands, const yk__view *const *views, bool c_order)
{
    const yk__view *out = views[0];
    int order[YK_MAX_DIMS], n = 0;
    loop->operands = operands;
    loop->total = 1;
    size_t size[YK__LOOP_OPERANDS];
    for (int k = 0; k < operands; k++) {
        loop->data[k] = (char *)views[k]->data;
        size[k] = yk__size_of(views[k]->dtype);
    }
    for (int d = out->ndim - 1; d >= 0; d--) {
        loop->total *= out->shape[d];
        if (out->shape[d] == 1)
            continue;
        int at = n++;
        if (!c_order) {
            for (; at > 0; at--) {
                int other = order[at - 1], k = 0;
                while (k < operands && views[k]->stride[d] == views[k]->stride[other])
                    k++;
                if (k == operands || yk__magnitude(views[k]->stride[d]) >= yk__magnitude(views[k]->stride[other]))
                    break;
                order[at] = other;
            }
        }
        order[at] = d;
    }
    int dims = 0;
    for (int i = 0; i < n; i++) {
        int d = order[i], k = operands;
        if (dims > 0)
            for (k = 0; k < operands; k++)
                if (views[k]->stride[d] * (int64_t)size[k] != loop->stride[dims - 1][k] * loop->shape[dims - 1])
                    break;
        if (dims > 0 && k == operands) {
            loop->shape[dims - 1] *= out->shape[d];
            continue;
        }
        loop->shape[dims] = out->shape[d];
        for (k = 0; k < operands; k++)
            loop->stride[dims][k] = views[k]->stride[d] * (int64_t)size[k];
        dims++;
    }
    if (dims == 0) {
        loop->shape[0] = 1;
        for (int k = 0; k < operands; k++)
            loop->stride[0][k] = (int64_t)size[k];
        dims = 1;
    }
    loop->ndim = dims;
}

#endif
