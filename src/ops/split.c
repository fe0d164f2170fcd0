/*
 * split.c - one tensor seen as several along a dimension: split, chunk, unbind. Layer: ops.
 *
 * The parts are views, made by one node of the tape: its backward writes the gradients that came side by side into one
 * tensor, and zeros only where none came.
 */
#include <stdlib.h>

#include "ops/op.h"

typedef struct parts {
    yk__tensor_spec base;
    int dim, count;
    bool drops;       /* unbind: a part has length 1, and the dimension goes */
    int64_t starts[]; /* count + 1 of them, from 0 to the size of the dimension */
} parts;

static void parts_describe(const void *context, yk__attributes *to)
{
    const parts *p = context;
    yk__attribute_whole(to, "dim", p->dim);
    yk__attribute_whole(to, "drops", p->drops);
}

/* Part i of x, or of x's gradient, as a view. */
static yk_tensor *part_of(yk_tensor *x, const parts *p, int i)
{
    int ndim = 0;
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS], length = p->starts[i + 1] - p->starts[i];
    for (int d = 0; d < x->ndim; d++) {
        if (d == p->dim && p->drops)
            continue;
        shape[ndim] = d == p->dim ? length : x->shape[d];
        stride[ndim++] = x->stride[d];
    }
    return yk__tensor_view(x, ndim, shape, stride, length ? p->starts[i] * x->stride[p->dim] : 0);
}

static yk_status parts_backward(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const parts *p = yk__context(node);
    if (p->count == 1 && !p->drops) {
        grads[0] = yk_tensor_retain(gouts[0]);
        return YK_OK;
    }
    yk_tensor *any = NULL;
    for (int i = 0; i < p->count && !any; i++)
        any = gouts[i];
    yk_tensor *grad = yk__spec_new(&p->base, yk__device_of(any));
    yk_status status = yk__status_of(grad);
    for (int i = 0; i < p->count && !status; i++) {
        yk_tensor *region = part_of(grad, p, i);
        status = !region ? yk__status_of(NULL) : gouts[i] ? yk__raw_copy(region, gouts[i]) : yk__raw_fill(region, 0);
        yk_tensor_release(region);
    }
    grads[0] = yk__tensor_if_ok(grad, status);
    return status;
}

/* The gradients side by side, with zeros where none came. */
static void parts_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const parts *p = yk__context(node);
    yk_tensor *any = NULL, **all = yk__calloc((size_t)p->count, sizeof(*all));
    for (int i = 0; i < p->count && !any; i++)
        any = gouts[i];
    for (int i = 0; i < p->count && all; i++) {
        yk__tensor_spec spec = p->base;
        spec.shape[p->dim] = p->starts[i + 1] - p->starts[i];
        yk__contiguous_strides(spec.ndim, spec.shape, spec.stride);
        if (gouts[i])
            all[i] = p->drops ? yk_unsqueeze(gouts[i], p->dim) : gouts[i];
        else
            all[i] = yk__recorded_zeros(&spec, yk__device_of(any));
    }
    if (all && !yk__error_code())
        grads[0] = yk_cat(all, p->count, p->dim);
    free(all);
}

/* Fills parts[] with the views that `starts` says, and records them. */
static yk_status cut(const yk__op *op, yk_tensor *x, parts *p, size_t bytes, yk_tensor **outs, int *count)
{
    p->base = yk__spec_of(x);
    yk_status status = YK_OK;
    int made = 0;
    for (; made < p->count && !status; made++) {
        outs[made] = part_of(x, p, made);
        status = yk__status_of(outs[made]);
    }
    if (status)
        yk__release_all(made, outs);
    else
        status = yk__record_views(p->count, outs, op, x, p, bytes);
    if (!status && count)
        *count = p->count;
    return status;
}

/* A plan for `count` parts of x along *dim; NULL and an error where they cannot be. The caller frees. */
static parts *plan(const char *name, yk_tensor *x, int dim, int64_t count, yk_tensor **outs, int capacity,
                   size_t *bytes)
{
    if (!yk__is_there(name, "array of parts", outs))
        return NULL;
    if (count > capacity) {
        char text[200];
        yk__fail(YK_ERR_ARGUMENT, "%s: dimension %d of shape %s makes %lld parts, there is room for %d", name, dim,
                 yk_shape_format(x, text, sizeof(text)), (long long)count, capacity);
        return NULL;
    }
    *bytes = sizeof(parts) + sizeof(int64_t) * ((size_t)count + 1);
    parts *p = yk__calloc(1, *bytes);
    if (p) {
        p->dim = dim;
        p->count = (int)count;
    }
    return p;
}

/* Checks x and wraps *dim; a scalar has no dimension that can be cut. */
static yk_status dim_begin(const char *name, yk_tensor *x, int *dim, int *count)
{
    if (count)
        *count = 0;
    if (!yk__op_begin(name, 1, &x, 0))
        return yk__status_of(NULL);
    if (x->ndim == 0)
        return yk__fail(YK_ERR_SHAPE, "%s: a 0-dimensional tensor has no dimension %d", name, *dim);
    return yk__wrap_dim(name, x, dim);
}

/* Parts of `length` each, the last one shorter where it does not come out even; of an empty dimension `empty` of them.
 */
static yk_status cut_evenly(const yk__op *op, yk_tensor *x, int64_t length, int64_t empty, int dim, yk_tensor **outs,
                            int capacity, int *count)
{
    int64_t size = x->shape[dim];
    size_t bytes = 0;
    parts *p = plan(op->name, x, dim, size ? (size - 1) / length + 1 : empty, outs, capacity, &bytes);
    if (!p)
        return yk__status_of(NULL);
    for (int i = 1; i <= p->count; i++)
        p->starts[i] = i < p->count && size ? i * length : size;
    yk_status status = cut(op, x, p, bytes, outs, count);
    free(p);
    return status;
}

yk_status yk_split(yk_tensor *x, int64_t chunk, int dim, yk_tensor **outs, int capacity, int *count)
{
    static const yk__op op = {
        .name = "split", .backward_list = parts_backward, .recorded = parts_recorded, .describe = parts_describe};
    YK__EVENT(YK__EVENT_OPERATION, "split");
    yk_status status = dim_begin("split", x, &dim, count);
    if (!status && (chunk < 0 || (chunk == 0 && x->shape[dim])))
        status = yk__fail(YK_ERR_ARGUMENT, "split: the size of a part is %lld, expected at least 1", (long long)chunk);
    return status ? status : cut_evenly(&op, x, chunk, 1, dim, outs, capacity, count);
}

yk_status yk_split_sizes(yk_tensor *x, const int64_t *sizes, int count, int dim, yk_tensor **outs)
{
    static const yk__op op = {
        .name = "split_sizes", .backward_list = parts_backward, .recorded = parts_recorded, .describe = parts_describe};
    YK__EVENT(YK__EVENT_OPERATION, "split_sizes");
    yk_status status = dim_begin("split_sizes", x, &dim, NULL);
    if (!status && count < 1)
        status = yk__fail(YK_ERR_ARGUMENT, "split_sizes: %d parts, expected at least 1", count);
    if (!status && !yk__is_there("split_sizes", "array of sizes", sizes))
        status = YK_ERR_ARGUMENT;
    if (status)
        return status;
    size_t bytes = 0;
    parts *p = plan("split_sizes", x, dim, count, outs, count, &bytes);
    if (!p)
        return yk__status_of(NULL);
    char text[200];
    bool fits = true;
    for (int i = 0; i < count && fits; i++) {
        fits = sizes[i] >= 0 && sizes[i] <= x->shape[dim] - p->starts[i];
        p->starts[i + 1] = fits ? p->starts[i] + sizes[i] : 0;
    }
    if (!fits || p->starts[count] != x->shape[dim])
        status = yk__fail(YK_ERR_SHAPE, "split_sizes: the sizes of %d parts do not add up to dimension %d of shape %s",
                          count, dim, yk_shape_format(x, text, sizeof(text)));
    else
        status = cut(&op, x, p, bytes, outs, NULL);
    free(p);
    return status;
}

yk_status yk_chunk(yk_tensor *x, int64_t chunks, int dim, yk_tensor **outs, int capacity, int *count)
{
    static const yk__op op = {
        .name = "chunk", .backward_list = parts_backward, .recorded = parts_recorded, .describe = parts_describe};
    YK__EVENT(YK__EVENT_OPERATION, "chunk");
    yk_status status = dim_begin("chunk", x, &dim, count);
    if (!status && chunks < 1)
        status = yk__fail(YK_ERR_ARGUMENT, "chunk: %lld parts, expected at least 1", (long long)chunks);
    if (status)
        return status;
    int64_t size = x->shape[dim], length = size ? (size - 1) / chunks + 1 : 1;
    return cut_evenly(&op, x, length, chunks, dim, outs, capacity, count);
}

yk_status yk_unbind(yk_tensor *x, int dim, yk_tensor **outs, int capacity, int *count)
{
    static const yk__op op = {
        .name = "unbind", .backward_list = parts_backward, .recorded = parts_recorded, .describe = parts_describe};
    YK__EVENT(YK__EVENT_OPERATION, "unbind");
    yk_status status = dim_begin("unbind", x, &dim, count);
    if (status || x->shape[dim] == 0)
        return status;
    size_t bytes = 0;
    parts *p = plan("unbind", x, dim, x->shape[dim], outs, capacity, &bytes);
    if (!p)
        return yk__status_of(NULL);
    p->drops = true;
    for (int i = 0; i <= p->count; i++)
        p->starts[i] = i;
    status = cut(&op, x, p, bytes, outs, count);
    free(p);
    return status;
}
