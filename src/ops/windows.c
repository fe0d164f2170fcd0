/*
 * windows.c - the windows of a tensor as a view, and the sum of windows, its transpose: what convolutions and pools of
 * more dimensions, unfold and fold are made of. Layer: ops.
 *
 * Each is the gradient of the other, so gradients have gradients to any order. The view shows an element once for each
 * window that it is in: it is read only, never written.
 */
#include "ops/windows.h"

typedef struct windows_context {
    yk__windows w;
    yk__tensor_spec x; /* the tensor that has the windows */
} windows_context;

static void windows_describe(const void *context, yk__attributes *to)
{
    const yk__windows *w = &((const windows_context *)context)->w;
    yk__attribute_whole(to, "first", w->first);
    yk__attribute_list(to, "kernel", w->axes, w->kernel);
    yk__attribute_list(to, "stride", w->axes, w->stride);
    yk__attribute_list(to, "dilation", w->axes, w->dilation);
}

static int64_t window_count(const yk__windows *w, int i, int64_t size)
{
    return (size - (w->dilation[i] * (w->kernel[i] - 1) + 1)) / w->stride[i] + 1;
}

/* The windows of x; one reference. */
static yk_tensor *windows_view(yk_tensor *x, const yk__windows *w)
{
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) {
        int i = d - w->first;
        bool moved = i >= 0 && i < w->axes;
        shape[d] = moved ? window_count(w, i, x->shape[d]) : x->shape[d];
        stride[d] = moved ? x->stride[d] * w->stride[i] : x->stride[d];
    }
    for (int i = 0; i < w->axes; i++) {
        shape[x->ndim + i] = w->kernel[i];
        stride[x->ndim + i] = x->stride[w->first + i] * w->dilation[i];
    }
    return yk__tensor_view(x, x->ndim + w->axes, shape, stride, 0);
}

static bool windows_overlap(const yk__windows *w)
{
    for (int i = 0; i < w->axes; i++) {
        if (w->stride[i] <= w->dilation[i] * (w->kernel[i] - 1))
            return true;
    }
    return false;
}

/* True if every element of a tensor of the spec is in a window. */
static bool windows_cover(const windows_context *c)
{
    const yk__windows *w = &c->w;
    for (int i = 0; i < w->axes; i++) {
        if (w->kernel[i] != w->stride[i] || w->dilation[i] != 1 || c->x.shape[w->first + i] % w->stride[i])
            return false;
    }
    return true;
}

/* The windows in y, each where it was in a tensor of the spec, in which they do not overlap. One reference. */
static yk_tensor *windows_put(yk_tensor *y, const windows_context *c)
{
    yk_tensor *sum = (windows_cover(c) ? yk__spec_new : yk__spec_zeros)(&c->x, yk__device_of(y));
    yk_tensor *windows = sum ? windows_view(sum, &c->w) : NULL;
    if (sum)
        sum = yk__tensor_if_ok(sum, !windows ? yk__status_of(NULL) : y->numel ? yk__raw_copy(windows, y) : YK_OK);
    yk_tensor_release(windows);
    return sum;
}

/* The sum of the windows in y where they were in a tensor of the spec; halves are added in f32. One reference. */
static yk_tensor *windows_sum(yk_tensor *y, const windows_context *c)
{
    const yk__windows *w = &c->w;
    if (!windows_overlap(w))
        return windows_put(y, c);
    yk__tensor_spec spec = c->x;
    spec.dtype = (int8_t)yk__wide_dtype(y);
    yk_tensor *sum = yk__spec_zeros(&spec, yk__device_of(y));
    int64_t at[YK__WINDOW_AXES] = {0}, elements = 1;
    for (int i = 0; i < w->axes; i++)
        elements *= w->kernel[i];
    yk_status status = yk__status_of(sum);
    for (int64_t element = 0; element < elements && !status && y->numel; element++) {
        int64_t stride[YK_MAX_DIMS], to = 0, from = 0;
        for (int d = 0; d < spec.ndim; d++) {
            int i = d - w->first;
            bool moved = i >= 0 && i < w->axes;
            stride[d] = sum->stride[d] * (moved ? w->stride[i] : 1);
        }
        for (int i = 0; i < w->axes; i++) {
            to += at[i] * w->dilation[i] * sum->stride[w->first + i];
            from += at[i] * y->stride[spec.ndim + i];
        }
        yk_tensor *part = yk__tensor_view(y, spec.ndim, y->shape, y->stride, from);
        yk_tensor *region = part ? yk__tensor_view(sum, spec.ndim, y->shape, stride, to) : NULL;
        yk_tensor *wide = region ? yk__raw_cast(part, (yk_dtype)spec.dtype) : NULL;
        status = wide ? yk__raw_binary_into("fold", YK__ADD, region, region, wide, 1) : yk__status_of(NULL);
        yk_tensor_release(part);
        yk_tensor_release(region);
        yk_tensor_release(wide);
        for (int i = w->axes - 1; i >= 0 && ++at[i] == w->kernel[i]; i--)
            at[i] = 0;
    }
    return yk__narrow_to(yk__tensor_if_ok(sum, status), (yk_dtype)y->dtype);
}

static yk_status unfold_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = windows_sum(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

static yk_tensor *fold_within(yk_tensor *y, const windows_context *c);

static void unfold_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    grads[0] = fold_within(gouts[0], yk__context(node));
}

static yk_status fold_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const windows_context *c = yk__context(node);
    yk_tensor *view = windows_view(gout, &c->w);
    grads[0] = view ? yk__raw_contiguous(view) : NULL;
    yk_tensor_release(view);
    return yk__status_of(grads[0]);
}

static void fold_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const windows_context *c = yk__context(node);
    grads[0] = yk_contiguous(yk__unfold_windows(gouts[0], &c->w));
}

static yk_tensor *fold_within(yk_tensor *y, const windows_context *c)
{
    static const yk__op op = {
        .name = "fold", .backward = fold_backward, .recorded = fold_recorded, .describe = windows_describe};
    return y ? yk__record(windows_sum(y, c), &op, 1, &y, 0, NULL, c, sizeof(*c)) : NULL;
}

yk_tensor *yk__unfold_windows(yk_tensor *x, const yk__windows *w)
{
    static const yk__op op = {
        .name = "unfold", .backward = unfold_backward, .recorded = unfold_recorded, .describe = windows_describe};
    if (!x)
        return NULL;
    windows_context c = {.w = *w, .x = yk__spec_of(x)};
    return yk__record_view(windows_view(x, w), &op, x, &c, sizeof(c));
}

yk_tensor *yk__fold_windows(yk_tensor *y, const yk__windows *w, const int64_t *sizes)
{
    if (!y)
        return NULL;
    windows_context c = {.w = *w, .x = {.dtype = y->dtype, .ndim = (int8_t)(y->ndim - w->axes)}};
    for (int d = 0; d < c.x.ndim; d++)
        c.x.shape[d] = d >= w->first && d < w->first + w->axes ? sizes[d - w->first] : y->shape[d];
    if (yk__tensor_check("fold", c.x.ndim, c.x.shape, NULL))
        return NULL;
    yk__contiguous_strides(c.x.ndim, c.x.shape, c.x.stride);
    return fold_within(y, &c);
}
