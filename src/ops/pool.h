/*
 * pool.h - declarations that the files of pools share. Layer: ops.
 */
#ifndef YOKE_OPS_POOL_H
#define YOKE_OPS_POOL_H

#include "ops/op.h"

/* The windows along one axis of a size, by PyTorch's rules and rounding. */
typedef struct yk__pool_axis {
    const char *name; /* "height" */
    int64_t size, kernel, stride, padding, dilation;
    bool ceil_mode, max; /* max: dilation may be above 1 */
} yk__pool_axis;
/* Their number in *count; false and an error where there are none, or numbers make no sense. x for the text. */
bool yk__pool_windows(const char *name, const yk__pool_axis *axis, const yk_tensor *x, int64_t *count);
/* yk_max_pool2d of x (N,C,H,W), which was checked; *kept (NULL: not wanted): the positions in their planes, of i32, one
 * reference, where it does not fail. */
yk_tensor *yk__max_pool2d_indexed(const char *name, yk_tensor *x, const yk_pool2d_options *options, yk_tensor **kept);

#endif
