/*
 * matrix_parts.c - triangles, diagonals, grids, repetitions; tensors made by a rule. Layer: ops.
 *
 * But for diagonal, a view with a gradient of its own, all are made of other operations.
 */
#include <math.h>
#include <stdlib.h>

#include "ops/op.h"
#include "tensor/host_tensor.h"

/* ---- triangles ---- */

static yk_tensor *triangle(const char *name, yk_tensor *x, int64_t k, bool lower)
{
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &x, 0))
        return NULL;
    char text[200];
    if (x->ndim < 2) {
        yk__fail(YK_ERR_SHAPE, "%s: %s has fewer than two dimensions", name, yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    int64_t rows = x->shape[x->ndim - 2], columns = x->shape[x->ndim - 1];
    k = k > columns ? columns : k < -rows ? -rows : k;
    yk_scope scope = yk_scope_begin();
    yk_device device = yk__device_of(x);
    yk_tensor *row = yk__scope_own(yk__raw_positions(rows, 2, device));
    yk_tensor *column = yk__scope_own(yk__raw_positions(columns, 1, device)), *edge = yk_add_scalar(row, (double)k);
    yk_tensor *inside = lower ? yk_le(column, edge) : yk_ge(column, edge);
    yk_tensor *zero = yk_scalar(0, YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)x->dtype, .device = device));
    yk_tensor *out = yk_where(inside, x, zero);
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    return out;
}

yk_tensor *yk_tril(yk_tensor *x, int64_t k)
{
    return triangle("tril", x, k, true);
}

yk_tensor *yk_triu(yk_tensor *x, int64_t k)
{
    return triangle("triu", x, k, false);
}

/* ---- diagonals ---- */

typedef struct diagonal {
    yk__tensor_spec base;
    int dim0, dim1;
    int64_t offset, length;
} diagonal;

static yk_tensor *diagonal_of(yk_tensor *x, const diagonal *p)
{
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS], start = 0;
    int ndim = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (d == p->dim0 || d == p->dim1)
            continue;
        shape[ndim] = x->shape[d];
        stride[ndim++] = x->stride[d];
    }
    shape[ndim] = p->length;
    stride[ndim++] = x->stride[p->dim0] + x->stride[p->dim1];
    if (p->length)
        start = p->offset < 0 ? -p->offset * x->stride[p->dim0] : p->offset * x->stride[p->dim1];
    return yk__tensor_view(x, ndim, shape, stride, start);
}

/* Zeros in the shape of the base, with the gradient on the diagonal. One reference. */
static yk_tensor *diagonal_put(yk_tensor *gout, const diagonal *p)
{
    yk_tensor *grad = yk__spec_zeros(&p->base, yk__device_of(gout)), *line = grad ? diagonal_of(grad, p) : NULL;
    yk_status status = line ? yk__raw_copy(line, gout) : yk__status_of(NULL);
    yk_tensor_release(line);
    return yk__tensor_if_ok(grad, status);
}

static yk_status diagonal_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = diagonal_put(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

/* Taking the diagonal is the gradient of putting one into zeros. */
static yk_status diagonal_put_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = diagonal_of(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

static void diagonal_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);

static void diagonal_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {
        .name = "diagonal_backward", .backward = diagonal_put_backward, .recorded = diagonal_put_recorded};
    const diagonal *p = yk__context(node);
    grads[0] = yk__record(diagonal_put(gouts[0], p), &op, 1, gouts, 0, NULL, p, sizeof(*p));
}

static void diagonal_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {.name = "diagonal", .backward = diagonal_backward, .recorded = diagonal_recorded};
    const diagonal *p = yk__context(node);
    grads[0] = yk__record_view(diagonal_of(gouts[0], p), &op, gouts[0], p, sizeof(*p));
}

yk_tensor *yk_diagonal(yk_tensor *x, int64_t offset, int dim0, int dim1)
{
    static const yk__op op = {.name = "diagonal", .backward = diagonal_backward, .recorded = diagonal_recorded};
    YK__EVENT(YK__EVENT_OPERATION, "diagonal");
    if (!yk__op_begin("diagonal", 1, &x, 0) || yk__wrap_dim("diagonal", x, &dim0) || yk__wrap_dim("diagonal", x, &dim1))
        return NULL;
    char text[200];
    if (x->ndim < 2 || dim0 == dim1) {
        yk__fail(YK_ERR_SHAPE, "diagonal: dimensions %d and %d of %s, expected two different ones", dim0, dim1,
                 yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    int64_t rows = x->shape[dim0], columns = x->shape[dim1];
    offset = offset > columns ? columns : offset < -rows ? -rows : offset;
    rows += offset < 0 ? offset : 0;
    columns -= offset > 0 ? offset : 0;
    diagonal p = {yk__spec_of(x), dim0, dim1, offset, rows < columns ? rows : columns};
    return yk__record_view(diagonal_of(x, &p), &op, x, &p, sizeof(p));
}

/* x (N) on the diagonal k of a matrix of zeros. */
static yk_tensor *on_diagonal(yk_tensor *x, int64_t k)
{
    int64_t side = x->shape[0] + (k < 0 ? -k : k);
    yk_tensor *out = yk_zeros(YK_SHAPE(side, side),
                              YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)x->dtype, .device = yk__device_of(x)));
    yk_tensor *line = out ? yk_diagonal(out, k, 0, 1) : NULL;
    return line && yk_copy_(line, x) ? out : NULL;
}

yk_tensor *yk_diag(yk_tensor *x, int64_t k)
{
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, "diag");
    if (!yk__op_begin("diag", 1, &x, 0))
        return NULL;
    if (x->ndim != 1 && x->ndim != 2) {
        yk__fail(YK_ERR_SHAPE, "diag: input %s, expected one dimension or two", yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    if (x->ndim == 1 && (k < -INT32_MAX || k > INT32_MAX)) {
        yk__fail(YK_ERR_ARGUMENT, "diag: a matrix with a diagonal %lld is too large", (long long)k);
        return NULL;
    }
    YK__WITHIN_SCOPE(x->ndim == 1 ? on_diagonal(x, k) : yk_clone(yk_diagonal(x, k, 0, 1)));
}

yk_tensor *yk_trace(yk_tensor *x)
{
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, "trace");
    if (!yk__op_begin("trace", 1, &x, 0))
        return NULL;
    if (x->ndim != 2) {
        yk__fail(YK_ERR_SHAPE, "trace: input %s, expected a matrix", yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    YK__WITHIN_SCOPE(yk_sum(yk_diagonal(x, 0, 0, 1)));
}

/* ---- positions exchanged and repeated ---- */

/* A copy of x, from its far end along the dimensions of the mask. */
static yk_tensor *flipped(yk_tensor *x, uint32_t mask)
{
    yk_tensor *out = yk__tensor_like(x, (yk_dtype)x->dtype);
    if (!out || out->numel == 0)
        return out;
    yk__view to = yk__view_of(out), from = yk__view_of(x);
    for (int d = 0; d < x->ndim; d++)
        if (mask >> d & 1) {
            from.data = (char *)from.data + (x->shape[d] - 1) * x->stride[d] * (int64_t)yk_dtype_size(from.dtype);
            from.stride[d] = -from.stride[d];
        }
    return yk__tensor_if_ok(out, YK__SLOT(out, copy, &to, &from));
}

static yk_status flip_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const uint32_t *mask = yk__context(node);
    grads[0] = flipped(gout, *mask);
    return yk__status_of(grads[0]);
}

static void flip_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const uint32_t *mask = yk__context(node);
    int dims[YK_MAX_DIMS], count = 0;
    for (int d = 0; d < gouts[0]->ndim; d++) {
        if (*mask >> d & 1)
            dims[count++] = d;
    }
    grads[0] = yk_flip(gouts[0], dims, count);
}

static void flip_describe(const void *context, yk__attributes *to)
{
    yk__attribute_whole(to, "mask", *(const uint32_t *)context);
}

yk_tensor *yk_flip(yk_tensor *x, const int *dims, int n_dims)
{
    static const yk__op op = {
        .name = "flip", .backward = flip_backward, .recorded = flip_recorded, .describe = flip_describe};
    uint32_t mask = 0;
    YK__EVENT(YK__EVENT_OPERATION, "flip");
    if (!yk__op_begin("flip", 1, &x, 0) || (n_dims > 0 && !yk__is_there("flip", "array of dimensions", dims)))
        return NULL;
    for (int i = 0; i < n_dims; i++) {
        int dim = dims[i];
        if (yk__wrap_dim("flip", x, &dim))
            return NULL;
        if (mask >> dim & 1) {
            yk__fail(YK_ERR_SHAPE, "flip: dimension %d is named twice", dim);
            return NULL;
        }
        mask |= 1u << dim;
    }
    return yk__record(flipped(x, mask), &op, 1, &x, 0, NULL, &mask, sizeof(mask));
}

yk_tensor *yk_roll(yk_tensor *x, int64_t shift, int dim)
{
    YK__EVENT(YK__EVENT_OPERATION, "roll");
    if (!yk__op_begin("roll", 1, &x, 0) || yk__wrap_dim("roll", x, &dim))
        return NULL;
    int64_t size = x->ndim ? x->shape[dim] : 1, moved = size ? (shift % size + size) % size : 0;
    if (!moved)
        return yk_clone(x);
    YK__WITHIN_SCOPE(
        yk_cat((yk_tensor *[]){yk_narrow(x, dim, size - moved, moved), yk_narrow(x, dim, 0, size - moved)}, 2, dim));
}

static yk_tensor *roll_all(yk_tensor *x, const int64_t *shifts, const int *dims, int n_dims)
{
    if (!dims)
        return yk_reshape(yk_roll(yk_reshape(x, 1, &x->numel), shifts[0], 0), x->ndim, x->shape);
    yk_tensor *out = x;
    for (int i = 0; i < n_dims && out; i++)
        out = yk_roll(out, shifts[i], dims[i]);
    return out;
}

yk_tensor *yk_roll_dims(yk_tensor *x, const int64_t *shifts, const int *dims, int n_dims)
{
    YK__EVENT(YK__EVENT_OPERATION, "roll");
    if (!yk__op_begin("roll", 1, &x, 0))
        return NULL;
    if (n_dims < 1 || !shifts || (!dims && n_dims != 1)) {
        yk__fail(YK_ERR_ARGUMENT, "roll: %d shifts%s for %s", n_dims, shifts ? "" : " at NULL",
                 dims ? "as many dimensions, expected at least 1" : "all dimensions as one, expected 1");
        return NULL;
    }
    YK__WITHIN_SCOPE(roll_all(x, shifts, dims, n_dims));
}

/* Repeats one dimension after the other, from the last: the dimensions before it are one, and those after it are
 * one. */
static yk_tensor *repeat_dims(yk_tensor *x, int ndim, const int64_t *repeats)
{
    while (x && x->ndim < ndim)
        x = yk_unsqueeze(x, 0);
    yk_tensor *out = x;
    int64_t behind = 1, shape[YK_MAX_DIMS];
    for (int d = 0; out && d < ndim; d++)
        shape[d] = x->shape[d];
    for (int d = ndim - 1; out && d >= 0; d--) {
        int64_t size = x->shape[d], before = 1;
        for (int k = 0; k < d; k++)
            before *= x->shape[k];
        shape[d] = size * repeats[d];
        if (repeats[d] == 0)
            out = yk_narrow(out, d, 0, 0);
        else if (repeats[d] > 1 && out->numel)
            out = yk_reshape(yk_contiguous(yk_expand(yk_reshape(out, 4, (int64_t[]){before, 1, size, behind}), 4,
                                                     (int64_t[]){before, repeats[d], size, behind})),
                             ndim, shape);
        else if (repeats[d] > 1)
            out = yk_reshape(out, ndim, shape);
        behind *= shape[d];
    }
    return out && out->storage == x->storage ? yk_clone(out) : out;
}

yk_tensor *yk_repeat(yk_tensor *x, int ndim, const int64_t *repeats)
{
    YK__EVENT(YK__EVENT_OPERATION, "repeat");
    if (!yk__op_begin("repeat", 1, &x, 0) || (ndim > 0 && !yk__is_there("repeat", "array of counts", repeats)))
        return NULL;
    char text[200];
    if (ndim < x->ndim || ndim > YK_MAX_DIMS) {
        yk__fail(YK_ERR_SHAPE, "repeat: %d counts for %s, expected %d to %d", ndim,
                 yk_shape_format(x, text, sizeof(text)), x->ndim, YK_MAX_DIMS);
        return NULL;
    }
    int64_t elements = 1; /* of the result, without dimensions of size 0 */
    for (int d = 0; d < x->ndim; d++)
        elements *= x->shape[d] ? x->shape[d] : 1;
    for (int d = 0; d < ndim; d++) {
        if (repeats[d] < 0) {
            yk__fail(YK_ERR_SHAPE, "repeat: count %d is %lld, expected 0 or more", d, (long long)repeats[d]);
            return NULL;
        }
        if (repeats[d] > INT32_MAX || __builtin_mul_overflow(elements, repeats[d] ? repeats[d] : 1, &elements) ||
            elements > INT64_MAX / 8) {
            yk__fail(YK_ERR_SHAPE, "repeat: %s with count %d of %lld has more elements than there can be",
                     yk_shape_format(x, text, sizeof(text)), d, (long long)repeats[d]);
            return NULL;
        }
    }
    YK__WITHIN_SCOPE(repeat_dims(x, ndim, repeats));
}

/* ---- products and grids ---- */

yk_tensor *yk_outer(yk_tensor *a, yk_tensor *b)
{
    yk_tensor *inputs[2] = {a, b};
    YK__EVENT(YK__EVENT_OPERATION, "outer");
    if (!yk__op_begin("outer", 2, inputs, 0))
        return NULL;
    char ta[200], tb[200];
    if (a->ndim != 1 || b->ndim != 1) {
        yk__fail(YK_ERR_SHAPE, "outer: %s and %s, expected (M,) and (N,)", yk_shape_format(a, ta, sizeof(ta)),
                 yk_shape_format(b, tb, sizeof(tb)));
        return NULL;
    }
    YK__WITHIN_SCOPE(yk_mul(yk_unsqueeze(a, 1), b));
}

/* `rows_first`: the first tensor runs along the first dimension ("ij"), else along the second, and the second along the
 * first ("xy"). */
static yk_status meshgrid(yk_tensor *const *xs, int count, bool rows_first, yk_tensor **outs)
{
    int64_t shape[YK_MAX_DIMS];
    int swapped = count > 1 && !rows_first;
    if (!yk__is_there("meshgrid", xs ? "array of results" : "array of tensors", xs ? (const void *)outs : xs))
        return YK_ERR_ARGUMENT;
    if (count < 1 || count > YK_MAX_DIMS)
        return yk__fail(YK_ERR_ARGUMENT, "meshgrid: %d tensors, expected 1 to %d", count, YK_MAX_DIMS);
    for (int i = 0; i < count; i++)
        outs[i] = NULL;
    YK__EVENT(YK__EVENT_OPERATION, "meshgrid");
    if (!yk__op_begin("meshgrid", count, xs, 0))
        return yk__status_of(NULL);
    for (int i = 0; i < count; i++) {
        char text[200];
        if (xs[i]->ndim > 1)
            return yk__fail(YK_ERR_SHAPE, "meshgrid: tensor %d has shape %s, expected (N,)", i,
                            yk_shape_format(xs[i], text, sizeof(text)));
        shape[i < 2 ? i ^ swapped : i] = xs[i]->numel;
    }
    for (int i = 0; i < count; i++) {
        int64_t own[YK_MAX_DIMS];
        int mine = i < 2 ? i ^ swapped : i;
        for (int d = 0; d < count; d++)
            own[d] = d == mine ? shape[d] : 1;
        yk_tensor *line = yk_reshape(xs[i], count, own);
        outs[i] = line ? yk_expand(line, count, shape) : NULL;
        if (!outs[i]) {
            memset(outs, 0, sizeof(*outs) * (size_t)count);
            return yk__status_of(NULL);
        }
    }
    return YK_OK;
}

yk_status yk_meshgrid(yk_tensor *const *xs, int count, yk_tensor **outs)
{
    return meshgrid(xs, count, true, outs);
}

yk_status yk_meshgrid_xy(yk_tensor *const *xs, int count, yk_tensor **outs)
{
    return meshgrid(xs, count, false, outs);
}

static yk_tensor *one_hot(yk_tensor *index, int64_t classes)
{
    if (index->numel) {
        int64_t most, least;
        if (yk__item_i64("one_hot", yk_max(index), &most) || yk__item_i64("one_hot", yk_min(index), &least))
            return NULL;
        if (least < 0 || (classes >= 0 && most >= classes)) {
            yk__fail(YK_ERR_ARGUMENT, "one_hot: class %lld is outside [0, %lld)", (long long)(least < 0 ? least : most),
                     (long long)(classes >= 0 ? classes : most + (most < INT64_MAX)));
            return NULL;
        }
        classes = classes < 0 ? most + (most < INT64_MAX) : classes; /* the largest number is too large below */
    } else if (classes < 1) {
        yk__fail(YK_ERR_ARGUMENT, "one_hot: how many classes no index says, say yourself");
        return NULL;
    }
    yk_tensor *column = yk_unsqueeze(yk_cast(index, YK_I64), -1);
    yk_tensor *all = yk__scope_own(yk__raw_positions(classes, 1, yk__device_of(index)));
    return yk_cast(yk_eq(column, all), YK_I64);
}

yk_tensor *yk_one_hot(yk_tensor *index, int64_t classes)
{
    YK__EVENT(YK__EVENT_OPERATION, "one_hot");
    if (!yk__op_begin("one_hot", 1, &index, 0))
        return NULL;
    if (index->dtype != YK_I64 && index->dtype != YK_I32) {
        yk__fail(YK_ERR_DTYPE, "one_hot: index is %s, expected int64 or int32", yk_dtype_name((yk_dtype)index->dtype));
        return NULL;
    }
    if (classes < -1 || classes == 0 || index->ndim == YK_MAX_DIMS) {
        yk__fail(YK_ERR_ARGUMENT, "one_hot: %lld classes for %d dimensions", (long long)classes, index->ndim);
        return NULL;
    }
    YK__WITHIN_SCOPE(one_hot(index, classes));
}

/* ---- creation ---- */

/* steps points from `start` to `end` into data[]: from both ends, as PyTorch does, so that the last one is `end`. */
#define LINE_OF(name, type)                                                                                            \
    static void name(type *data, double start, double end, int64_t steps)                                              \
    {                                                                                                                  \
        double step = steps > 1 ? (end - start) / (double)(steps - 1) : 0;                                             \
        int64_t half = steps == 1 ? 1 : steps / 2;                                                                     \
        for (int64_t i = 0; i < half; i++)                                                                             \
            data[i] = (type)(start + (double)i * step);                                                                \
        for (int64_t i = half; i < steps; i++)                                                                         \
            data[i] = (type)(end - (double)(steps - 1 - i) * step);                                                    \
    }
LINE_OF(line_f32, float)
LINE_OF(line_f64, double)

yk_tensor *yk_linspace(double start, double end, int64_t steps, const yk_tensor_options *options)
{
    if (steps < 0) {
        yk__fail(YK_ERR_ARGUMENT, "linspace: %lld steps", (long long)steps);
        return NULL;
    }
    yk_tensor_options o = yk__default_options(options);
    if (yk__tensor_check("linspace", 1, &steps, &o))
        return NULL;
    if (!yk_dtype_is_floating(o.dtype)) { /* as PyTorch: between integers */
        start = trunc(start);
        end = trunc(end);
    }
    /* f32 and f64 are made in place, other dtypes from f64. */
    yk_dtype made = o.dtype == YK_F32 ? YK_F32 : YK_F64;
    yk_scope scope = yk_scope_begin();
    yk_tensor *host = yk__scope_own(yk__tensor_new(1, &steps, NULL, made, (yk_device){YK_CPU, 0}));
    if (host && made == YK_F32)
        line_f32(host->data, start, end, steps);
    else if (host)
        line_f64(host->data, start, end, steps);
    yk__operation_name = "linspace";
    yk_tensor *cast = host ? yk__scope_own(yk__raw_cast(host, o.dtype)) : NULL;
    yk_tensor *out = cast ? yk__scope_own(yk__raw_to(cast, o.device)) : NULL;
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    return out && o.requires_grad && yk_set_requires_grad(out, true) ? NULL : out;
}

yk_tensor *yk_eye(int64_t n, int64_t m, const yk_tensor_options *options)
{
    if (n < 0 || m < 0) {
        yk__fail(YK_ERR_SHAPE, "eye: %lld rows and %lld columns, expected at least 0", (long long)n, (long long)m);
        return NULL;
    }
    bool fine = !yk__tensor_check("eye", YK_SHAPE(n, m), options);
    yk_tensor *out = fine ? yk_zeros(YK_SHAPE(n, m), options) : NULL;
    if (!out)
        return NULL;
    diagonal p = {.dim0 = 0, .dim1 = 1, .length = n < m ? n : m};
    yk_tensor *line = diagonal_of(out, &p);
    yk_status status = line ? yk__raw_fill(line, 1) : yk__status_of(NULL);
    yk_tensor_release(line);
    return status ? NULL : out;
}
