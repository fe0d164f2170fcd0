/*
 * windows.h - windows of a tensor along some of its dimensions, and their sum. Layer: ops.
 *
 * Both are recorded, and owned by the scope; NULL goes through. Callers have checked that the windows fit.
 */
#ifndef YOKE_OPS_WINDOWS_H
#define YOKE_OPS_WINDOWS_H

#include "ops/op.h"

enum { YK__WINDOW_AXES = 3 };

/* The windows of the `axes` dimensions from `first` on, in each of which kernel[i] elements, dilation[i] apart, begin
 * at every stride[i]-th. */
typedef struct yk__windows {
    int first, axes;
    int64_t kernel[YK__WINDOW_AXES], stride[YK__WINDOW_AXES], dilation[YK__WINDOW_AXES];
} yk__windows;

/* x (A..., S..., B...) as a view (A..., windows..., B..., kernel...), which shows an element several times: to be
 * read, and copied before anybody may write. Source: Tensor.unfold. */
yk_tensor *yk__unfold_windows(yk_tensor *x, const yk__windows *w);
/* y (A..., windows..., B..., kernel...), added up where the windows are in (A..., sizes..., B...). */
yk_tensor *yk__fold_windows(yk_tensor *y, const yk__windows *w, const int64_t *sizes);

#endif
