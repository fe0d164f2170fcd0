/*
 * shape.c - operations that show the same elements in another shape. Layer: ops.
 *
 * All give views of x's storage (reshape and flatten copy where no strides fit). A view is recorded like any other
 * operation: its gradient is put back into the shape of x.
 */
#include "ops/op.h"

static const char *spec_text(const yk__tensor_spec *spec, char *buffer, size_t size)
{
    return yk__shape_text(spec->ndim, spec->shape, buffer, size);
}

/* ---- the same elements in the same order: reshape, view, flatten, squeeze, unsqueeze ---- */

static yk_status reshape_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const yk__tensor_spec *spec = yk__context(node);
    grads[0] = yk__raw_reshape(gout, spec->ndim, spec->shape);
    return yk__status_of(grads[0]);
}

static void reshape_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const yk__tensor_spec *spec = yk__context(node);
    grads[0] = yk_reshape(gouts[0], spec->ndim, spec->shape);
}

static yk_tensor *record_reshape(const yk__op *op, yk_tensor *x, yk_tensor *out)
{
    yk__tensor_spec spec = yk__spec_of(x);
    return yk__record_view(out, op, x, &spec, sizeof(spec));
}

/* Checks a wanted shape against the number of elements and puts a size in the place of -1. */
static bool resolve(const char *name, const yk_tensor *x, int ndim, const int64_t *shape, yk__tensor_spec *out)
{
    char a[200], b[200];
    if (ndim < 0 || ndim > YK_MAX_DIMS) {
        yk__fail(YK_ERR_SHAPE, "%s: %d dimensions; a tensor has 0 to %d", name, ndim, YK_MAX_DIMS);
        return false;
    }
    if (ndim && !yk__is_there(name, "shape", shape))
        return false;
    int open = -1;
    int64_t known = 1;
    bool fits = true;
    out->ndim = (int8_t)ndim;
    for (int d = 0; d < ndim; d++) {
        out->shape[d] = shape[d];
        if (shape[d] == -1 && open < 0)
            open = d;
        else if (shape[d] < 0 || __builtin_mul_overflow(known, shape[d], &known))
            fits = false;
    }
    if (fits && open >= 0) {
        fits = known > 0 && x->numel % known == 0;
        out->shape[open] = fits ? x->numel / known : -1;
    } else if (fits) {
        fits = known == x->numel;
    }
    if (fits && !x->numel &&
        yk__tensor_check(name, ndim, out->shape, NULL)) /* strides must fit without elements, too */
        return false;
    if (!fits) {
        out->ndim = (int8_t)ndim;
        memcpy(out->shape, shape, sizeof(shape[0]) * (size_t)ndim);
        yk__fail(YK_ERR_SHAPE, "%s: shape %s does not fit the %lld element%s of %s", name, spec_text(out, a, sizeof(a)),
                 (long long)x->numel, x->numel == 1 ? "" : "s", yk_shape_format(x, b, sizeof(b)));
    }
    return fits;
}

yk_tensor *yk_reshape(yk_tensor *x, int ndim, const int64_t *shape)
{
    static const yk__op op = {.name = "reshape", .backward = reshape_backward, .recorded = reshape_recorded};
    yk__tensor_spec wanted;
    YK__EVENT(YK__EVENT_OPERATION, "reshape");
    if (!yk__op_begin("reshape", 1, &x, 0) || !resolve("reshape", x, ndim, shape, &wanted))
        return NULL;
    return record_reshape(&op, x, yk__raw_reshape(x, ndim, wanted.shape));
}

yk_tensor *yk_view(yk_tensor *x, int ndim, const int64_t *shape)
{
    static const yk__op op = {.name = "view", .backward = reshape_backward, .recorded = reshape_recorded};
    yk__tensor_spec wanted;
    YK__EVENT(YK__EVENT_OPERATION, "view");
    if (!yk__op_begin("view", 1, &x, 0) || !resolve("view", x, ndim, shape, &wanted))
        return NULL;
    if (!yk__reshape_strides(x, ndim, wanted.shape, wanted.stride)) {
        char a[200], b[200], c[200];
        yk__fail(YK_ERR_SHAPE, "view: shape %s has no strides over %s with strides %s; use yk_reshape, which copies",
                 spec_text(&wanted, a, sizeof(a)), yk_shape_format(x, b, sizeof(b)),
                 yk__shape_text(x->ndim, x->stride, c, sizeof(c)));
        return NULL;
    }
    return record_reshape(&op, x, yk__tensor_view(x, ndim, wanted.shape, wanted.stride, 0));
}

yk_tensor *yk_flatten(yk_tensor *x, int start_dim, int end_dim)
{
    static const yk__op op = {.name = "flatten", .backward = reshape_backward, .recorded = reshape_recorded};
    YK__EVENT(YK__EVENT_OPERATION, "flatten");
    if (!yk__op_begin("flatten", 1, &x, 0) || yk__wrap_dim("flatten", x, &start_dim) ||
        yk__wrap_dim("flatten", x, &end_dim))
        return NULL;
    if (start_dim > end_dim) {
        yk__fail(YK_ERR_SHAPE, "flatten: the first dimension %d lies behind the last one %d", start_dim, end_dim);
        return NULL;
    }
    int ndim = 0;
    int64_t shape[YK_MAX_DIMS] = {1};
    for (int d = 0; d < x->ndim; d++) {
        if (d > start_dim && d <= end_dim)
            shape[ndim - 1] *= x->shape[d];
        else
            shape[ndim++] = x->shape[d];
    }
    return record_reshape(&op, x, yk__raw_reshape(x, ndim ? ndim : 1, shape));
}

yk_tensor *yk_squeeze(yk_tensor *x, int dim)
{
    static const yk__op op = {.name = "squeeze", .backward = reshape_backward, .recorded = reshape_recorded};
    YK__EVENT(YK__EVENT_OPERATION, "squeeze");
    if (!yk__op_begin("squeeze", 1, &x, 0) || yk__wrap_dim("squeeze", x, &dim))
        return NULL;
    int ndim = 0;
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) {
        if (d == dim && x->shape[d] == 1)
            continue;
        shape[ndim] = x->shape[d];
        stride[ndim++] = x->stride[d];
    }
    return record_reshape(&op, x, yk__tensor_view(x, ndim, shape, stride, 0));
}

yk_tensor *yk_unsqueeze(yk_tensor *x, int dim)
{
    static const yk__op op = {.name = "unsqueeze", .backward = reshape_backward, .recorded = reshape_recorded};
    YK__EVENT(YK__EVENT_OPERATION, "unsqueeze");
    if (!yk__op_begin("unsqueeze", 1, &x, 0))
        return NULL;
    int wanted = dim < 0 ? dim + x->ndim + 1 : dim;
    if (wanted < 0 || wanted > x->ndim || x->ndim == YK_MAX_DIMS) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "unsqueeze: no new dimension %d for shape %s; a tensor has at most %d dimensions", dim,
                 yk_shape_format(x, text, sizeof(text)), YK_MAX_DIMS);
        return NULL;
    }
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
    for (int d = 0, own = 0; d <= x->ndim; d++) {
        bool added = d == wanted;
        shape[d] = added ? 1 : x->shape[own];
        stride[d] = !added ? x->stride[own] : own < x->ndim ? x->shape[own] * x->stride[own] : 1;
        own += !added;
    }
    return record_reshape(&op, x, yk__tensor_view(x, x->ndim + 1, shape, stride, 0));
}

/* ---- dimensions in another order ---- */

typedef struct order {
    int8_t dims[YK_MAX_DIMS]; /* dimension d of the result is dims[d] of x */
} order;

static yk_status permute_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const order *o = yk__context(node);
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
    for (int d = 0; d < gout->ndim; d++) {
        shape[o->dims[d]] = gout->shape[d];
        stride[o->dims[d]] = gout->stride[d];
    }
    grads[0] = yk__tensor_view(gout, gout->ndim, shape, stride, 0);
    return yk__status_of(grads[0]);
}

static void permute_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const order *o = yk__context(node);
    int back[YK_MAX_DIMS];
    for (int d = 0; d < gouts[0]->ndim; d++)
        back[o->dims[d]] = d;
    grads[0] = yk_permute(gouts[0], back);
}

static void permute_describe(const void *context, yk__attributes *to)
{
    const order *o = context;
    int64_t dims[YK_MAX_DIMS];
    for (int d = 0; d < YK_MAX_DIMS; d++)
        dims[d] = o->dims[d];
    yk__attribute_list(to, "dims", YK_MAX_DIMS, dims);
}

static yk_tensor *permuted(const yk__op *op, yk_tensor *x, const order *o)
{
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) {
        shape[d] = x->shape[o->dims[d]];
        stride[d] = x->stride[o->dims[d]];
    }
    return yk__record_view(yk__tensor_view(x, x->ndim, shape, stride, 0), op, x, o, sizeof(*o));
}

yk_tensor *yk_permute(yk_tensor *x, const int *dims)
{
    static const yk__op op = {
        .name = "permute", .backward = permute_backward, .recorded = permute_recorded, .describe = permute_describe};
    YK__EVENT(YK__EVENT_OPERATION, "permute");
    if (!yk__op_begin("permute", 1, &x, 0) || (x->ndim && !yk__is_there("permute", "order of dimensions", dims)))
        return NULL;
    order o = {{0}};
    uint32_t seen = 0;
    for (int d = 0; d < x->ndim; d++) {
        int from = dims[d];
        if (yk__wrap_dim("permute", x, &from))
            return NULL;
        if (seen & (1u << from)) {
            yk__fail(YK_ERR_SHAPE, "permute: dimension %d is named twice", from);
            return NULL;
        }
        seen |= 1u << from;
        o.dims[d] = (int8_t)from;
    }
    return permuted(&op, x, &o);
}

yk_tensor *yk_transpose(yk_tensor *x, int dim0, int dim1)
{
    static const yk__op op = {
        .name = "transpose", .backward = permute_backward, .recorded = permute_recorded, .describe = permute_describe};
    YK__EVENT(YK__EVENT_OPERATION, "transpose");
    if (!yk__op_begin("transpose", 1, &x, 0) || yk__wrap_dim("transpose", x, &dim0) ||
        yk__wrap_dim("transpose", x, &dim1))
        return NULL;
    order o;
    for (int d = 0; d < YK_MAX_DIMS; d++)
        o.dims[d] = (int8_t)d;
    o.dims[dim0] = (int8_t)dim1;
    o.dims[dim1] = (int8_t)dim0;
    return permuted(&op, x, &o);
}

/* ---- repeated elements ---- */

static yk_status expand_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const yk__tensor_spec *spec = yk__context(node);
    grads[0] = yk__sum_to_spec(yk_tensor_retain(gout), spec);
    return yk__status_of(grads[0]);
}

static void expand_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    grads[0] = yk__recorded_sum_to(gouts[0], yk__context(node));
}

yk_tensor *yk_expand(yk_tensor *x, int ndim, const int64_t *shape)
{
    static const yk__op op = {.name = "expand", .backward = expand_backward, .recorded = expand_recorded};
    YK__EVENT(YK__EVENT_OPERATION, "expand");
    if (!yk__op_begin("expand", 1, &x, 0) || (ndim > 0 && !yk__is_there("expand", "shape", shape)))
        return NULL;
    int64_t wanted[YK_MAX_DIMS];
    bool fits = ndim >= x->ndim && ndim <= YK_MAX_DIMS;
    for (int d = 0; fits && d < ndim; d++) {
        int own = d - (ndim - x->ndim);
        int64_t size = own >= 0 ? x->shape[own] : 1;
        wanted[d] = shape[d] == -1 && own >= 0 ? size : shape[d];
        fits = wanted[d] >= 0 && (size == wanted[d] || size == 1);
    }
    if (!fits) {
        char a[200], b[200];
        yk__fail(YK_ERR_SHAPE, "expand: shape %s cannot be repeated to %s", yk_shape_format(x, a, sizeof(a)),
                 yk__shape_text(ndim < 0                 ? 0
                                : ndim > 2 * YK_MAX_DIMS ? 2 * YK_MAX_DIMS
                                                         : ndim,
                                shape, b, sizeof(b)));
        return NULL;
    }
    if (yk__tensor_check("expand", ndim, wanted, NULL))
        return NULL;
    yk__tensor_spec spec = yk__spec_of(x);
    yk__view v = yk__view_expanded(x, ndim, wanted);
    return yk__record_view(yk__tensor_view(x, ndim, wanted, v.stride, 0), &op, x, &spec, sizeof(spec));
}

/* ---- a part: slice, narrow, select ---- */

typedef struct part {
    yk__tensor_spec base;
    int dim;
    int64_t start, step, length;
    bool drops; /* select: length is 1 and the dimension goes */
} part;

static void part_describe(const void *context, yk__attributes *to)
{
    const part *p = context;
    yk__attribute_whole(to, "dim", p->dim);
    yk__attribute_whole(to, "start", p->start);
    yk__attribute_whole(to, "step", p->step);
    yk__attribute_whole(to, "length", p->length);
    yk__attribute_whole(to, "whole", p->start == 0 && p->step == 1 && p->length == p->base.shape[p->dim]);
}

/* The part of x as a view; of x itself forward, of its gradient backward. */
static yk_tensor *part_of(yk_tensor *x, const part *p)
{
    int ndim = 0;
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) {
        if (d == p->dim && p->drops)
            continue;
        shape[ndim] = d == p->dim ? p->length : x->shape[d];
        stride[ndim++] = x->stride[d] * (d == p->dim && p->length > 1 ? p->step : 1); /* else it may be any number */
    }
    return yk__tensor_view(x, ndim, shape, stride, p->length ? p->start * x->stride[p->dim] : 0);
}

/* Zeros in the shape of x, with the gradient copied into the part; one reference. */
static yk_tensor *part_put(yk_tensor *gout, const part *p)
{
    if (p->length == p->base.shape[p->dim] && !p->drops)
        return yk_tensor_retain(gout);
    yk_tensor *grad = yk__spec_zeros(&p->base, yk__device_of(gout)), *region = grad ? part_of(grad, p) : NULL;
    yk_status status = region ? yk__raw_copy(region, gout) : yk__status_of(NULL);
    yk_tensor_release(region);
    return yk__tensor_if_ok(grad, status);
}

static yk_status part_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = part_put(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

/* Taking the part is the gradient of putting it among zeros. */
static yk_status part_put_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = part_of(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

static void part_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);

static void part_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {.name = "slice_backward", .backward = part_put_backward, .recorded = part_put_recorded};
    const part *p = yk__context(node);
    bool whole = p->length == p->base.shape[p->dim] && !p->drops;
    grads[0] = whole ? gouts[0] : yk__record(part_put(gouts[0], p), &op, 1, gouts, 0, NULL, p, sizeof(*p));
}

static void part_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {
        .name = "slice", .backward = part_backward, .recorded = part_recorded, .describe = part_describe};
    const part *p = yk__context(node);
    grads[0] = yk__record_view(part_of(gouts[0], p), &op, gouts[0], p, sizeof(*p));
}

static yk_tensor *take(const yk__op *op, yk_tensor *x, part *p)
{
    p->base = yk__spec_of(x);
    return yk__record_view(part_of(x, p), op, x, p, sizeof(*p));
}

/* Checks x and wraps *dim; a scalar has no dimension that can be cut. */
static bool begin_part(const char *name, yk_tensor *x, int *dim)
{
    if (!yk__op_begin(name, 1, &x, 0))
        return false;
    if (x->ndim == 0) {
        yk__fail(YK_ERR_SHAPE, "%s: a 0-dimensional tensor has no dimension %d", name, *dim);
        return false;
    }
    return yk__wrap_dim(name, x, dim) == YK_OK;
}

yk_tensor *yk_slice(yk_tensor *x, int dim, int64_t start, int64_t end, int64_t step)
{
    static const yk__op op = {
        .name = "slice", .backward = part_backward, .recorded = part_recorded, .describe = part_describe};
    YK__EVENT(YK__EVENT_OPERATION, "slice");
    if (!begin_part("slice", x, &dim))
        return NULL;
    if (step < 1) {
        yk__fail(YK_ERR_ARGUMENT, "slice: the step is %lld, expected at least 1", (long long)step);
        return NULL;
    }
    int64_t size = x->shape[dim];
    start = start < 0 ? start + size : start;
    end = end < 0 ? end + size : end;
    start = start < 0 ? 0 : start > size ? size : start;
    end = end < start ? start : end > size ? size : end;
    part p = {.dim = dim, .start = start, .step = step, .length = (end - start) / step + ((end - start) % step != 0)};
    return take(&op, x, &p);
}

yk_tensor *yk_select(yk_tensor *x, int dim, int64_t index)
{
    static const yk__op op = {
        .name = "select", .backward = part_backward, .recorded = part_recorded, .describe = part_describe};
    YK__EVENT(YK__EVENT_OPERATION, "select");
    if (!begin_part("select", x, &dim))
        return NULL;
    int64_t size = x->shape[dim], start = index < 0 ? index + size : index;
    if (start < 0 || start >= size) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "select: index %lld of dimension %d is outside shape %s", (long long)index, dim,
                 yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    part p = {.dim = dim, .start = start, .step = 1, .length = 1, .drops = true};
    return take(&op, x, &p);
}

yk_tensor *yk_narrow(yk_tensor *x, int dim, int64_t start, int64_t length)
{
    static const yk__op op = {
        .name = "narrow", .backward = part_backward, .recorded = part_recorded, .describe = part_describe};
    YK__EVENT(YK__EVENT_OPERATION, "narrow");
    if (!begin_part("narrow", x, &dim))
        return NULL;
    int64_t size = x->shape[dim], first = start < 0 ? start + size : start;
    if (first < 0 || length < 0 || first > size || length > size - first) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "narrow: %lld elements from %lld on are not in dimension %d of shape %s",
                 (long long)length, (long long)start, dim, yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    part p = {.dim = dim, .start = first, .step = 1, .length = length};
    return take(&op, x, &p);
}
