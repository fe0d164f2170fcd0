/*
 * conv.h - declarations that the files of convolutions share. Layer: ops.
 */
#ifndef YOKE_OPS_CONV_H
#define YOKE_OPS_CONV_H

#include "ops/cast_policy.h"

/* A convolution along `axes` dimensions, 1 to 3, or a transposed one; the numbers of the first `axes`. */
typedef struct yk__conv {
    const char *name;
    int axes;
    bool transposed;
    int64_t stride[3], padding[3], dilation[3], output_padding[3], groups;
    int64_t more[3]; /* of padding at the end, where YK_PADDING_SAME is odd */
} yk__conv;

/* Fails where strides, paddings, dilations, groups or, with them, shapes and dtypes do not go together. Settles
 * YK_PADDING_SAME, and fills *unbatched (x has no N) and the sizes of the result. */
bool yk__conv_check(yk__conv *c, const yk_tensor *x, const yk_tensor *w, const yk_tensor *bias, bool *unbatched,
                    int64_t sizes[3]);
/* The input with the rest of a padding of YK_PADDING_SAME at its end, where there is one. */
yk_tensor *yk__conv_padded(const yk__conv *c, yk_tensor *x);

/* The transposed two-dimensional convolution of operands that fit, without bias, to a result of the shape; output
 * padding is below the stride. Recorded; the scope owns it. */
yk_tensor *yk__conv2d_transposed(const yk__conv2d *p, yk_tensor *x, yk_tensor *w, const int64_t shape[4]);

#endif
