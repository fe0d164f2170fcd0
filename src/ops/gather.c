/*
 * gather.c - elements by an index along one dimension, or by a mask. Layer: ops.
 *
 * Each brings its arguments into the form of index_map.c: the index replaces a dimension (index_select, index_add_,
 * take) or, where it has the shape of the result, one coordinate (gather_dim, scatter_dim_, take_along_dim).
 */
#include <math.h>

#include "ops/index.h"

/* ---- reading ---- */

static bool dim_of(const char *name, const yk_tensor *x, int *dim)
{
    if (x->ndim == 0) {
        yk__fail(YK_ERR_SHAPE, "%s: a 0-dimensional tensor has no dimension %d", name, *dim);
        return false;
    }
    return yk__wrap_dim(name, x, dim) == YK_OK;
}

/* Reads by one index tensor in the place of dimension `dim`. */
static yk_tensor *read_at(const yk__op *op, yk_tensor *x, int dim, yk_tensor *index, bool wrap)
{
    yk__index_map map = {.name = op->name, .wrap = wrap};
    yk__index_map_one(&map, dim);
    yk_tensor *typed = yk__index_tensor(op->name, index), *out = NULL;
    if (typed && !yk__index_map_fit(&map, x, &typed))
        out = yk__index_read(op, x, &map, &typed);
    yk_tensor_release(typed);
    return out;
}

static yk_status check_list(const char *name, const yk_tensor *index)
{
    char text[200];
    return index->ndim <= 1 ? YK_OK
                            : yk__fail(YK_ERR_SHAPE, "%s: the index has shape %s, expected (N,)", name,
                                       yk_shape_format(index, text, sizeof(text)));
}

yk_tensor *yk_index_select(yk_tensor *x, int dim, yk_tensor *index)
{
    static const yk__op op = {.name = "index_select", YK__INDEX_READ};
    yk_tensor *inputs[2] = {x, index};
    YK__EVENT(YK__EVENT_OPERATION, "index_select");
    if (!yk__op_begin("index_select", 2, inputs, 0) || !dim_of("index_select", x, &dim) ||
        check_list("index_select", index))
        return NULL;
    int64_t one = 1;
    yk_tensor *list = index->ndim ? yk_tensor_retain(index) : yk__raw_reshape(index, 1, &one);
    yk_tensor *out = NULL;
    if (list && (x->numel || !yk__index_check("index_select", list, dim, x->shape[dim])))
        out = read_at(&op, x, dim, list, false);
    yk_tensor_release(list);
    return out;
}

static yk_tensor *read_along(const yk__op *op, yk_tensor *x, int dim, yk_tensor *index, bool wrap)
{
    yk__index_map map;
    yk_tensor *typed = yk__index_tensor(op->name, index), *out = NULL;
    if (typed && !yk__index_map_along(&map, op->name, x, dim, typed)) {
        map.wrap = wrap;
        out = yk__index_read(op, x, &map, &typed);
    }
    yk_tensor_release(typed);
    return out;
}

yk_tensor *yk_gather_dim(yk_tensor *x, int dim, yk_tensor *index)
{
    static const yk__op op = {.name = "gather_dim", YK__INDEX_READ};
    yk_tensor *inputs[2] = {x, index};
    YK__EVENT(YK__EVENT_OPERATION, "gather_dim");
    if (!yk__op_begin("gather_dim", 2, inputs, 0) || !dim_of("gather_dim", x, &dim))
        return NULL;
    return read_along(&op, x, dim, index, false);
}

yk_tensor *yk_take(yk_tensor *x, yk_tensor *index)
{
    static const yk__op op = {.name = "take", YK__INDEX_READ};
    yk_tensor *inputs[2] = {x, index};
    YK__EVENT(YK__EVENT_OPERATION, "take");
    if (!yk__op_begin("take", 2, inputs, 0))
        return NULL;
    YK__WITHIN_SCOPE((x = yk_reshape(x, 1, (int64_t[]){-1})) ? read_at(&op, x, 0, index, true) : NULL);
}

static yk_tensor *take_along(const yk__op *op, yk_tensor *x, yk_tensor *index, int dim)
{
    int64_t shape[2][YK_MAX_DIMS];
    char a[200], b[200];
    bool fits = x->ndim == index->ndim;
    for (int d = 0; d < x->ndim && fits; d++) {
        int64_t sx = x->shape[d], si = index->shape[d], both = sx == 1 ? si : sx;
        fits = d == dim || sx == si || sx == 1 || si == 1;
        shape[0][d] = d == dim ? sx : both;
        shape[1][d] = d == dim ? si : both;
    }
    if (!fits) {
        yk__fail(YK_ERR_SHAPE, "take_along_dim: index %s does not broadcast with %s beside dimension %d",
                 yk_shape_format(index, b, sizeof(b)), yk_shape_format(x, a, sizeof(a)), dim);
        return NULL;
    }
    x = yk_expand(x, x->ndim, shape[0]);
    index = yk_expand(index, index->ndim, shape[1]);
    return x && index ? read_along(op, x, dim, index, true) : NULL;
}

yk_tensor *yk_take_along_dim(yk_tensor *x, yk_tensor *index, int dim)
{
    static const yk__op op = {.name = "take_along_dim", YK__INDEX_READ};
    yk_tensor *inputs[2] = {x, index};
    YK__EVENT(YK__EVENT_OPERATION, "take_along_dim");
    if (!yk__op_begin("take_along_dim", 2, inputs, 0) || !dim_of("take_along_dim", x, &dim))
        return NULL;
    YK__WITHIN_SCOPE(take_along(&op, x, index, dim));
}

/* ---- writing ---- */

/* Writes by one index tensor, `along` the dimension or in its place; x is returned. */
static yk_tensor *put_at(const yk__op *op, yk_tensor *x, int dim, yk_tensor *index, yk_tensor *value, bool along,
                         bool accumulate)
{
    yk__index_map map = {.name = op->name};
    yk__index_map_one(&map, dim);
    yk_tensor *typed = value ? yk__index_tensor(op->name, index) : NULL, *inputs[2] = {x, value};
    yk_status status = yk__status_of(typed);
    if (!status)
        status = along ? yk__index_map_along(&map, op->name, x, dim, typed) : yk__index_map_fit(&map, x, &typed);
    if (!status)
        status = yk__in_place_begin(op->name, x, 2, inputs);
    if (!status)
        status = yk__index_put(op, x, &map, &typed, value, accumulate);
    yk_tensor_release(typed);
    return status ? NULL : x;
}

yk_tensor *yk_index_add_(yk_tensor *x, int dim, yk_tensor *index, yk_tensor *source, double alpha)
{
    static const yk__op op = {.name = "index_add_", YK__INDEX_PUT};
    yk_tensor *inputs[3] = {x, index, source};
    if (!yk__put_begin("index_add_", 3, inputs) || !dim_of("index_add_", x, &dim) || check_list("index_add_", index) ||
        yk__expect_dtype("index_add_", "source", source, (yk_dtype)x->dtype))
        return NULL;
    bool fits = source->ndim == x->ndim;
    for (int d = 0; d < x->ndim && fits; d++)
        fits = source->shape[d] == (d == dim ? index->numel : x->shape[d]);
    if (!fits) {
        char a[200], b[200];
        yk__fail(YK_ERR_SHAPE, "index_add_: source %s is not like %s with %lld, one per index, at dimension %d",
                 yk_shape_format(source, a, sizeof(a)), yk_shape_format(x, b, sizeof(b)), (long long)index->numel, dim);
        return NULL;
    }
    yk_scope scope = yk_scope_begin();
    int64_t one = 1;
    yk_tensor *list = index->ndim ? yk_tensor_retain(index) : yk__raw_reshape(index, 1, &one);
    yk_tensor *scaled = alpha == 1 ? source : yk_cast(yk_mul_scalar(source, alpha), (yk_dtype)x->dtype);
    yk_tensor *out = list ? put_at(&op, x, dim, list, scaled, false, true) : NULL;
    yk_tensor_release(list);
    yk_scope_end(scope);
    return out;
}

/* The part of source that an index of its dimensions reaches. */
static yk_tensor *reached(const char *name, yk_tensor *source, const yk_tensor *index)
{
    char a[200], b[200];
    bool fits = source->ndim == index->ndim;
    for (int d = 0; d < index->ndim && fits; d++)
        fits = index->shape[d] <= source->shape[d];
    if (!fits) {
        yk__fail(YK_ERR_SHAPE, "%s: index %s is larger than source %s, or of other dimensions", name,
                 yk_shape_format(index, a, sizeof(a)), yk_shape_format(source, b, sizeof(b)));
        return NULL;
    }
    for (int d = 0; d < index->ndim && source; d++)
        if (index->shape[d] < source->shape[d])
            source = yk_narrow(source, d, 0, index->shape[d]);
    return source;
}

static yk_tensor *scatter(const yk__op *op, yk_tensor *x, int dim, yk_tensor *index, yk_tensor *source, bool accumulate)
{
    yk_tensor *inputs[3] = {x, index, source};
    if (!yk__put_begin(op->name, 3, inputs) || !dim_of(op->name, x, &dim) ||
        yk__expect_dtype(op->name, "source", source, (yk_dtype)x->dtype))
        return NULL;
    yk_scope scope = yk_scope_begin();
    yk_tensor *part = reached(op->name, source, index);
    yk_tensor *out = part ? put_at(op, x, dim, index, part, true, accumulate) : NULL;
    yk_scope_end(scope);
    return out;
}

yk_tensor *yk_scatter_dim_(yk_tensor *x, int dim, yk_tensor *index, yk_tensor *source)
{
    static const yk__op op = {.name = "scatter_dim_", YK__INDEX_PUT};
    return scatter(&op, x, dim, index, source, false);
}

yk_tensor *yk_scatter_add_(yk_tensor *x, int dim, yk_tensor *index, yk_tensor *source)
{
    static const yk__op op = {.name = "scatter_add_", YK__INDEX_PUT};
    return scatter(&op, x, dim, index, source, true);
}

/* A 0-dimensional tensor of x's dtype and device; an error where an integer dtype does not hold the value. */
static yk_tensor *value_like(const char *name, const yk_tensor *x, double value)
{
    yk_dtype dtype = (yk_dtype)x->dtype;
    bool whole = value >= -0x1p63 && value < 0x1p63 && value == (double)(int64_t)value;
    if (dtype == YK_I32)
        whole = whole && value >= INT32_MIN && value <= INT32_MAX;
    if (dtype == YK_U8)
        whole = whole && value >= 0 && value <= UINT8_MAX;
    if (!yk_dtype_is_floating(dtype) && dtype != YK_BOOL && !whole) {
        yk__fail(YK_ERR_DTYPE, "%s: a tensor of %s cannot hold %g", name, yk_dtype_name(dtype), value);
        return NULL;
    }
    return yk__raw_scalar(value, dtype, yk__device_of(x));
}

yk_tensor *yk_scatter_dim_value_(yk_tensor *x, int dim, yk_tensor *index, double value)
{
    static const yk__op op = {.name = "scatter_dim_value_", YK__INDEX_PUT};
    yk_tensor *inputs[2] = {x, index};
    if (!yk__put_begin("scatter_dim_value_", 2, inputs) || !dim_of("scatter_dim_value_", x, &dim))
        return NULL;
    yk_tensor *scalar = value_like("scatter_dim_value_", x, value);
    yk_tensor *out = scalar ? put_at(&op, x, dim, index, scalar, true, false) : NULL;
    yk_tensor_release(scalar);
    return out;
}

/* ---- masks ---- */

static yk_status check_mask(const char *name, const yk_tensor *mask)
{
    return yk__expect_dtype(name, "mask", mask, YK_BOOL);
}

static yk_tensor *select_by(yk_tensor *x, yk_tensor *mask)
{
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    if (yk__broadcast("masked_select", x, mask, &ndim, shape))
        return NULL;
    x = yk_expand(x, ndim, shape);
    mask = yk_expand(mask, ndim, shape);
    yk_index_item item = {.kind = YK_INDEX_TENSOR, .tensor = mask};
    yk_tensor *out = x && mask ? yk__index_as("masked_select", x, &item, 1) : NULL;
    return out && ndim == 0 ? yk_reshape(out, 1, (int64_t[]){-1}) : out;
}

yk_tensor *yk_masked_select(yk_tensor *x, yk_tensor *mask)
{
    yk_tensor *inputs[2] = {x, mask};
    YK__EVENT(YK__EVENT_OPERATION, "masked_select");
    if (!yk__op_begin("masked_select", 2, inputs, 0) || check_mask("masked_select", mask))
        return NULL;
    YK__WITHIN_SCOPE(select_by(x, mask));
}

/* The gradient where the mask is false; 0 elsewhere. The context is the form of x. */
yk_status yk__masked_put_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    yk_status bad = YK_OK;
    yk_tensor *mask = yk__saved(node, 0, &bad);
    if (bad)
        return bad;
    yk_tensor *zero = yk__raw_scalar(0, (yk_dtype)gout->dtype, yk__device_of(gout));
    grads[0] = yk__sum_to_spec(yk__raw_where(mask, zero, gout), yk__context(node));
    yk_tensor_release(zero);
    return yk__status_of(grads[0]);
}

void yk__masked_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    grads[0] = yk__recorded_sum_to(yk__recorded_where_not(yk__saved_in_graph(node, 0), gouts[0]), yk__context(node));
}

yk_tensor *yk_masked_fill(yk_tensor *x, yk_tensor *mask, double value)
{
    static const yk__op op = {.name = "masked_fill", YK__MASKED_PUT};
    yk_tensor *inputs[2] = {x, mask};
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    YK__EVENT(YK__EVENT_OPERATION, "masked_fill");
    if (!yk__op_begin("masked_fill", 2, inputs, 0) || check_mask("masked_fill", mask) ||
        yk__broadcast("masked_fill", x, mask, &ndim, shape))
        return NULL;
    yk_tensor *scalar = value_like("masked_fill", x, value), *out = yk__raw_where(mask, scalar, x);
    yk_tensor_release(scalar);
    yk__tensor_spec spec = yk__spec_of(x);
    return yk__record(out, &op, 2, inputs, 1, &mask, &spec, sizeof(spec));
}

/* t, or a copy where it lies in what is written. */
static yk_tensor *apart(yk_tensor *t, const yk_tensor *written)
{
    return t->storage == written->storage ? yk__raw_clone(t) : yk_tensor_retain(t);
}

yk_status yk__masked_put(const yk__op *op, yk_tensor *x, yk_tensor *mask, yk_tensor *value)
{
    yk_tensor *inputs[2] = {x, mask}, *own = NULL, *one = NULL;
    yk_status status = yk__in_place_begin(op->name, x, 2, inputs);
    if (!status)
        status = yk__status_of(own = apart(mask, x));
    if (!status)
        status = yk__status_of(one = apart(value, x));
    if (!status && x->numel) {
        yk__view vx = yk__view_of(x), vm = yk__view_expanded(own, x->ndim, x->shape);
        yk__view vs = {.data = one->data, .dtype = (yk_dtype)one->dtype, .ndim = x->ndim};
        memcpy(vs.shape, x->shape, sizeof(vs.shape[0]) * (size_t)x->ndim);
        status = YK__SLOT(x, where, &vx, &vm, &vs, &vx);
    }
    yk__tensor_spec spec = yk__spec_of(x);
    if (!status)
        status = yk__in_place_end(x, op, 1, &x, 1, &own, &spec, sizeof(spec));
    yk__release_all(2, (yk_tensor *[]){own, one});
    return status;
}

yk_tensor *yk_masked_fill_(yk_tensor *x, yk_tensor *mask, double value)
{
    static const yk__op op = {.name = "masked_fill_", YK__MASKED_PUT};
    yk_tensor *inputs[2] = {x, mask};
    if (!yk__put_begin("masked_fill_", 2, inputs) || check_mask("masked_fill_", mask))
        return NULL;
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    if (yk__broadcast("masked_fill_", x, mask, &ndim, shape))
        return NULL;
    if (ndim != x->ndim || memcmp(shape, x->shape, sizeof(shape[0]) * (size_t)ndim)) {
        char a[200], b[200];
        yk__fail(YK_ERR_SHAPE, "masked_fill_: mask %s does not broadcast to %s", yk_shape_format(mask, a, sizeof(a)),
                 yk_shape_format(x, b, sizeof(b)));
        return NULL;
    }
    yk_tensor *scalar = value_like("masked_fill_", x, value);
    yk_status status = scalar ? yk__masked_put(&op, x, mask, scalar) : yk__status_of(NULL);
    yk_tensor_release(scalar);
    return status ? NULL : x;
}

yk_tensor *yk_nonzero(yk_tensor *x)
{
    YK__EVENT(YK__EVENT_OPERATION, "nonzero");
    if (!yk__op_begin("nonzero", 1, &x, 0))
        return NULL;
    yk_tensor *found = yk__raw_nonzero(x), *out = NULL;
    if (found) {
        int64_t shape[2] = {found->shape[1], found->shape[0]}, stride[2] = {found->stride[1], found->stride[0]};
        out = yk__tensor_view(found, 2, shape, stride, 0);
    }
    yk_tensor_release(found);
    return yk__scope_own(out);
}
