/*
 * index_map.c - reading and writing through index tensors: views for the kernels, gradients. Layer: ops.
 *
 * The gradient of reading is accumulating, that of writing is reading: all operations here are these two. Index tensors
 * are kept for backward as they are, checked by version; where they point is worked out again for each tensor.
 */
#include "ops/index.h"

/* ---- maps ---- */

static yk_status fail_ndim(const char *name, int ndim)
{
    return yk__fail(YK_ERR_SHAPE, "%s: the result would have %d dimensions; a tensor has at most %d", name, ndim,
                    YK_MAX_DIMS);
}

yk_status yk__index_map_fit(yk__index_map *map, const yk_tensor *x, yk_tensor *const *index)
{
    int64_t shape[YK_MAX_DIMS];
    int ndim = 0;
    for (int k = 0; k < map->count; k++)
        ndim = index[k]->ndim > ndim ? index[k]->ndim : ndim;
    for (int d = 0; d < ndim; d++)
        shape[d] = 1;
    for (int k = 0; k < map->count; k++) {
        for (int d = 0; d < index[k]->ndim; d++) {
            int64_t size = index[k]->shape[d], *to = &shape[d + ndim - index[k]->ndim];
            if (*to != size && *to != 1 && size != 1) {
                char a[200], b[200];
                return yk__fail(YK_ERR_SHAPE, "%s: index tensor %d has shape %s, which does not broadcast with %s",
                                map->name, k, yk_shape_format(index[k], a, sizeof(a)),
                                yk__shape_text(ndim, shape, b, sizeof(b)));
            }
            *to = *to == 1 ? size : *to;
        }
    }
    /* A result without elements is not looked at by a kernel. What PyTorch refuses there too: any index at all into a
     * dimension without elements; other indices are not compared with the size. */
    for (int k = 0; k < map->count && map->wrap; k++) {
        int64_t size = 1, indices = 1;
        for (int d = map->of[k].dim; d < map->of[k].dim + map->of[k].span && d < x->ndim; d++)
            size *= x->shape[d];
        for (int d = 0; d < ndim; d++)
            indices *= shape[d];
        if (size == 0 && indices != 0)
            return yk__fail(YK_ERR_ARGUMENT, "%s: index tensor %d of %lld indices goes into dimension %d of size 0",
                            map->name, k, (long long)indices, map->of[k].named);
    }
    bool together = true;
    int covered = 0;
    for (int k = 0; k < map->count; k++) {
        covered += map->of[k].span;
        together = together && (k == 0 || map->of[k].dim == map->of[k - 1].dim + map->of[k - 1].span);
    }
    map->along = false;
    map->index_ndim = (int8_t)ndim;
    map->at = (int8_t)(together ? map->of[0].dim : 0);
    if (x->ndim - covered + ndim > YK_MAX_DIMS)
        return fail_ndim(map->name, x->ndim - covered + ndim);
    map->ndim = 0;
    for (int d = 0, k = 0; d <= x->ndim; d++) {
        if (map->ndim == map->at && !k)
            for (; k < ndim; k++)
                map->shape[map->ndim++] = shape[k];
        bool indexed = d == x->ndim;
        for (int i = 0; i < map->count; i++)
            indexed = indexed || (d >= map->of[i].dim && d < map->of[i].dim + map->of[i].span);
        if (!indexed)
            map->shape[map->ndim++] = x->shape[d];
    }
    return YK_OK;
}

yk_status yk__index_map_along(yk__index_map *map, const char *name, const yk_tensor *x, int dim, const yk_tensor *index)
{
    *map = (yk__index_map){.name = name, .along = true, .ndim = x->ndim, .index_ndim = x->ndim};
    yk__index_map_one(map, dim);
    bool fits = index->ndim == x->ndim;
    for (int d = 0; fits && d < x->ndim; d++) {
        fits = d == dim || index->shape[d] <= x->shape[d];
        map->shape[d] = index->shape[d];
    }
    char a[200], b[200];
    return fits ? YK_OK
                : yk__fail(YK_ERR_SHAPE, "%s: index %s is larger than %s beside dimension %d, or of other dimensions",
                           name, yk_shape_format(index, a, sizeof(a)), yk_shape_format(x, b, sizeof(b)), dim);
}

/* ---- what the kernels take ---- */

bool yk__even_stride(const yk_tensor *x, int first, int span, int64_t *stride)
{
    int64_t expected = 0; /* 0 also outside an expanded dimension */
    bool begun = false;
    *stride = 1;
    for (int d = first + span - 1; d >= first && d < x->ndim; d--) {
        if (x->shape[d] == 1)
            continue;
        if (begun && x->stride[d] != expected)
            return false;
        *stride = begun ? *stride : x->stride[d];
        begun = true;
        expected = x->stride[d] * x->shape[d];
    }
    return true;
}

/* x, or in C order where an index tensor counts positions in dimensions that do not lie evenly in x. One reference. */
static yk_tensor *in_even_order(const yk__index_map *map, yk_tensor *x)
{
    int64_t stride;
    for (int k = 0; k < map->count; k++)
        if (!yk__even_stride(x, map->of[k].dim, map->of[k].span, &stride))
            return yk__raw_contiguous(x);
    return yk_tensor_retain(x);
}

/* x in the shape of the result, and where the index tensors move it. */
static void views_of(const yk__index_map *map, const yk_tensor *x, yk_tensor *const *index, yk__view *vx,
                     yk__indices *p)
{
    *vx = (yk__view){.data = x->data, .dtype = (yk_dtype)x->dtype, .ndim = map->ndim};
    memcpy(vx->shape, map->shape, sizeof(vx->shape));
    p->name = map->name;
    p->count = map->count;
    p->wrap = map->wrap;
    uint32_t indexed = 0;
    for (int k = 0; k < map->count; k++) {
        int first = map->of[k].dim, last = first + map->of[k].span - 1;
        p->of[k].dim = map->of[k].named;
        p->of[k].size = 1;
        yk__even_stride(x, first, map->of[k].span, &p->of[k].stride);
        for (int d = first; d <= last && d < x->ndim; d++) {
            indexed |= 1u << d;
            p->of[k].size *= x->shape[d];
        }
        yk__view *v = &p->of[k].view;
        *v = *vx;
        v->data = index[k]->data;
        v->dtype = YK_I64;
        int begin = map->along ? 0 : map->at;
        for (int d = 0; d < map->ndim; d++) {
            int own = d - begin - (map->index_ndim - index[k]->ndim);
            bool inside = d >= begin && d < begin + map->index_ndim && own >= 0;
            v->stride[d] = inside && index[k]->shape[own] != 1 ? index[k]->stride[own] : 0;
        }
    }
    if (map->along) {
        for (int d = 0; d < map->ndim; d++)
            vx->stride[d] = indexed >> d & 1 ? 0 : x->stride[d];
        return;
    }
    for (int d = 0, to = 0; d <= x->ndim; d++) {
        if (to == map->at)
            for (int k = 0; k < map->index_ndim; k++)
                vx->stride[to++] = 0;
        if (d < x->ndim && !(indexed >> d & 1))
            vx->stride[to++] = x->stride[d];
    }
}

static yk_tensor *raw_read(const yk__index_map *map, yk_tensor *x, yk_tensor *const *index);

yk_status yk__index_check(const char *name, yk_tensor *index, int dim, int64_t size)
{
    yk__index_map map = {.name = name};
    yk__index_map_one(&map, 0);
    map.of[0].named = (int8_t)dim;
    yk_tensor *typed = yk__index_tensor(name, index), *read = NULL;
    yk_tensor *one = typed ? yk__raw_scalar(0, YK_U8, yk__device_of(index)) : NULL;
    yk_tensor *line = one ? yk__tensor_view(one, 1, &size, (int64_t[]){0}, 0) : NULL; /* one element, `size` times */
    if (line && !yk__index_map_fit(&map, line, &typed))
        read = raw_read(&map, line, &typed);
    yk_status status = yk__status_of(read);
    yk__release_all(4, (yk_tensor *[]){typed, one, line, read});
    return status;
}

static yk_tensor *raw_read(const yk__index_map *map, yk_tensor *x, yk_tensor *const *index)
{
    yk_tensor *out = x ? yk__tensor_new(map->ndim, map->shape, NULL, (yk_dtype)x->dtype, yk__device_of(x)) : NULL;
    if (!out || !out->numel)
        return out;
    yk__indices p;
    yk__view vo = yk__view_of(out), vx;
    views_of(map, x, index, &vx, &p);
    return yk__tensor_if_ok(out, YK__SLOT(x, index, &vo, &vx, &p));
}

/* Writes to x, which has no history of its own, or is written by an operation in place. */
static yk_status raw_put(const yk__index_map *map, yk_tensor *x, yk_tensor *const *index, yk_tensor *value,
                         bool accumulate)
{
    int64_t count = 1;
    for (int d = 0; d < map->ndim; d++)
        count *= map->shape[d];
    if (!count)
        return YK_OK;
    yk__indices p;
    yk__view vx, vv = yk__view_expanded(value, map->ndim, map->shape);
    if (!accumulate || yk__slot_dtype(x, YK__SLOT_index_put, (yk_dtype)x->dtype) == (yk_dtype)x->dtype) {
        views_of(map, x, index, &vx, &p);
        return YK__SLOT(x, index_put, &vx, &vv, &p, accumulate);
    }
    yk_tensor *wide[2], *from[2] = {x, value}; /* sums of halves are kept in f32: no operand is `data` */
    yk_status status = yk__operands(YK__SLOT_index_put, 0, 2, from, wide);
    if (status)
        return status;
    vv = yk__view_expanded(wide[1], map->ndim, map->shape);
    views_of(map, wide[0], index, &vx, &p);
    status = YK__SLOT(x, index_put, &vx, &vv, &p, true);
    if (!status)
        status = yk__raw_copy(x, wide[0]);
    yk__release_all(2, wide);
    return status;
}

/* ---- reading ---- */

typedef struct read_context {
    yk__index_map map;
    yk__tensor_spec x;
} read_context;

void yk__index_read_describe(const void *context, yk__attributes *to)
{
    const yk__index_map *map = &((const read_context *)context)->map;
    int64_t dim[YK_MAX_DIMS], span[YK_MAX_DIMS];
    for (int k = 0; k < map->count; k++) {
        dim[k] = map->of[k].dim;
        span[k] = map->of[k].span;
    }
    yk__attribute_list(to, "dim", map->count, dim);
    yk__attribute_list(to, "span", map->count, span);
    yk__attribute_whole(to, "at", map->at);
    yk__attribute_whole(to, "along", map->along);
}

static yk_status saved_indices(yk__node *node, const yk__index_map *map, yk_tensor **index)
{
    yk_status bad = YK_OK;
    for (int k = 0; k < map->count; k++)
        index[k] = yk__saved(node, k, &bad);
    return bad;
}

/* The gradient of x: zeros, with `gout` added where x was read. One reference. */
static yk_tensor *read_put(const read_context *c, yk_tensor *const *index, yk_tensor *gout)
{
    yk_tensor *wide;
    if (yk__operands(YK__SLOT_index_put, 0, 1, &gout, &wide))
        return NULL;
    yk__tensor_spec spec = c->x;
    spec.dtype = wide->dtype;
    yk_tensor *grad = yk__spec_zeros(&spec, yk__device_of(gout));
    if (grad)
        grad = yk__tensor_if_ok(grad, raw_put(&c->map, grad, index, wide, true));
    yk_tensor_release(wide);
    return yk__narrow_to(grad, (yk_dtype)c->x.dtype);
}

yk_status yk__index_read_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const read_context *c = yk__context(node);
    yk_tensor *index[YK_MAX_DIMS];
    yk_status status = saved_indices(node, &c->map, index);
    grads[0] = status ? NULL : read_put(c, index, gout);
    return status ? status : yk__status_of(grads[0]);
}

/* Reading is the gradient of adding to zeros at the same places. */
static yk_status read_put_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const read_context *c = yk__context(node);
    yk_tensor *index[YK_MAX_DIMS];
    yk_status status = saved_indices(node, &c->map, index);
    yk_tensor *even = status ? NULL : in_even_order(&c->map, gout);
    grads[0] = even ? raw_read(&c->map, even, index) : NULL;
    yk_tensor_release(even);
    return status ? status : yk__status_of(grads[0]);
}

static void read_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {.name = "index", YK__INDEX_READ};
    const read_context *c = yk__context(node);
    yk_tensor *index[YK_MAX_DIMS], *even = NULL;
    int64_t stride;
    if (saved_indices(node, &c->map, index))
        return;
    for (int k = 0; k < c->map.count && !even; k++)
        if (!yk__even_stride(gouts[0], c->map.of[k].dim, c->map.of[k].span, &stride))
            even = yk_contiguous(gouts[0]);
    grads[0] = yk__index_read(&op, even ? even : gouts[0], &c->map, index);
}

void yk__index_read_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {.name = "index_backward", .backward = read_put_backward, .recorded = read_put_recorded};
    const read_context *c = yk__context(node);
    yk_tensor *index[YK_MAX_DIMS];
    if (!saved_indices(node, &c->map, index))
        grads[0] = yk__record(read_put(c, index, gouts[0]), &op, 1, gouts, c->map.count, index, c, sizeof(*c));
}

yk_tensor *yk__index_read(const yk__op *op, yk_tensor *x, const yk__index_map *map, yk_tensor *const *index)
{
    read_context c = {.map = *map, .x = yk__spec_of(x)};
    yk_tensor *inputs[1 + YK_MAX_DIMS] = {x}; /* those that are no x need no gradient */
    memcpy(inputs + 1, index, sizeof(*index) * (size_t)map->count);
    return yk__record(raw_read(map, x, index), op, 1 + map->count, inputs, map->count, index, &c, sizeof(c));
}

/* ---- writing ---- */

typedef struct put_context {
    yk__index_map map;
    bool accumulate;
    yk__tensor_spec value; /* as it was given */
    int8_t value_leading;  /* sizes of 1 in front that the result does not have */
} put_context;

yk_status yk__index_put_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const put_context *c = yk__context(node);
    yk_tensor *index[YK_MAX_DIMS];
    yk_status status = saved_indices(node, &c->map, index);
    if (status)
        return status;
    /* The written values had the even strides that the map needs; their gradient comes in any memory order. */
    yk_tensor *even = in_even_order(&c->map, gout);
    status = yk__status_of(even);
    if (!status && yk__needs_grad(node, 0) && c->accumulate) {
        grads[0] = yk_tensor_retain(gout);
    } else if (!status && yk__needs_grad(node, 0)) {
        yk_tensor *rest = yk__raw_clone(even), *zero = yk__raw_scalar(0, (yk_dtype)gout->dtype, yk__device_of(gout));
        if (rest)
            grads[0] = yk__tensor_if_ok(rest, zero ? raw_put(&c->map, rest, index, zero, false) : yk__status_of(NULL));
        yk_tensor_release(zero);
        status = yk__status_of(grads[0]);
    }
    if (!status && yk__needs_grad(node, 1)) {
        yk__tensor_spec inner = c->value;
        inner.ndim = (int8_t)(inner.ndim - c->value_leading);
        memmove(inner.shape, c->value.shape + c->value_leading, sizeof(inner.shape[0]) * (size_t)inner.ndim);
        yk_tensor *grad = yk__sum_to_spec(raw_read(&c->map, even, index), &inner);
        grads[1] = yk__raw_reshape(grad, c->value.ndim, c->value.shape);
        yk_tensor_release(grad);
        status = yk__status_of(grads[1]);
    }
    yk_tensor_release(even);
    return status;
}

/* g with zeros at the places: its own gradient is of the same form. */
static yk_tensor *zeroed(const yk__index_map *map, yk_tensor *const *index, yk_tensor *g)
{
    yk_tensor *even = in_even_order(map, g), *rest = even ? yk__raw_clone(even) : NULL;
    yk_tensor *zero = yk__raw_scalar(0, (yk_dtype)g->dtype, yk__device_of(g));
    if (rest)
        rest = yk__tensor_if_ok(rest, zero ? raw_put(map, rest, index, zero, false) : yk__status_of(NULL));
    yk__release_all(2, (yk_tensor *[]){even, zero});
    return rest;
}

static yk_status zeroed_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const yk__index_map *map = yk__context(node);
    yk_tensor *index[YK_MAX_DIMS];
    yk_status status = saved_indices(node, map, index);
    grads[0] = status ? NULL : zeroed(map, index, gout);
    return status ? status : yk__status_of(grads[0]);
}

static yk_tensor *recorded_zeroed(const yk__index_map *map, yk_tensor *const *index, yk_tensor *g);

static void zeroed_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    yk_tensor *index[YK_MAX_DIMS];
    if (!saved_indices(node, yk__context(node), index))
        grads[0] = recorded_zeroed(yk__context(node), index, gouts[0]);
}

static yk_tensor *recorded_zeroed(const yk__index_map *map, yk_tensor *const *index, yk_tensor *g)
{
    static const yk__op op = {.name = "index_put_backward", .backward = zeroed_backward, .recorded = zeroed_recorded};
    return yk__record(zeroed(map, index, g), &op, 1, &g, map->count, index, map, sizeof(*map));
}

void yk__index_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op read_op = {.name = "index", YK__INDEX_READ};
    const put_context *c = yk__context(node);
    yk_tensor *index[YK_MAX_DIMS], *even = gouts[0];
    int64_t stride;
    if (saved_indices(node, &c->map, index))
        return;
    if (yk__needs_grad(node, 0))
        grads[0] = c->accumulate ? gouts[0] : recorded_zeroed(&c->map, index, gouts[0]);
    if (!yk__needs_grad(node, 1))
        return;
    for (int k = 0; k < c->map.count; k++)
        if (even == gouts[0] && !yk__even_stride(even, c->map.of[k].dim, c->map.of[k].span, &stride))
            even = yk_contiguous(even);
    yk__tensor_spec inner = c->value;
    inner.ndim = (int8_t)(inner.ndim - c->value_leading);
    memmove(inner.shape, c->value.shape + c->value_leading, sizeof(inner.shape[0]) * (size_t)inner.ndim);
    yk_tensor *grad = yk__recorded_sum_to(even ? yk__index_read(&read_op, even, &c->map, index) : NULL, &inner);
    grads[1] = yk_reshape(grad, c->value.ndim, c->value.shape);
}

yk_status yk__index_fits_value(const char *name, int ndim, const int64_t *shape, const yk_tensor *value, int *leading)
{
    *leading = 0;
    while (value->ndim - *leading > ndim && value->shape[*leading] == 1)
        ++*leading;
    bool fits = value->ndim - *leading <= ndim;
    for (int d = *leading; fits && d < value->ndim; d++)
        fits = value->shape[d] == 1 || value->shape[d] == shape[d + ndim - value->ndim];
    char a[200], b[200];
    return fits ? YK_OK
                : yk__fail(YK_ERR_SHAPE, "%s: value %s does not broadcast to %s, the shape of the indexed part", name,
                           yk_shape_format(value, a, sizeof(a)), yk__shape_text(ndim, shape, b, sizeof(b)));
}

static yk_status check_value(const yk__index_map *map, const yk_tensor *x, const yk_tensor *value, int *leading)
{
    yk_status status = yk__index_fits_value(map->name, map->ndim, map->shape, value, leading);
    return status || value->ndim == 0 ? status : yk__expect_dtype(map->name, "value", value, (yk_dtype)x->dtype);
}

yk_status yk__index_put(const yk__op *op, yk_tensor *x, const yk__index_map *map, yk_tensor *const *index,
                        yk_tensor *value, bool accumulate)
{
    int leading;
    yk_status status = check_value(map, x, value, &leading);
    if (status)
        return status;
    /* The kernel must not read memory that it writes: operands that share x's storage are copied. */
    yk_tensor *typed = yk__raw_cast(value, (yk_dtype)x->dtype), *inner = NULL, *read = NULL, *own[YK_MAX_DIMS] = {NULL};
    if (typed)
        inner = yk__tensor_view(typed, typed->ndim - leading, typed->shape + leading, typed->stride + leading, 0);
    if (inner)
        read = inner->storage == x->storage ? yk__raw_clone(inner) : yk_tensor_retain(inner);
    status = yk__status_of(read);
    for (int k = 0; k < map->count && !status; k++) {
        own[k] = index[k]->storage == x->storage ? yk__raw_clone(index[k]) : yk_tensor_retain(index[k]);
        status = yk__status_of(own[k]);
    }
    if (!status)
        status = raw_put(map, x, own, read, accumulate);
    yk_tensor *inputs[2] = {x, value};
    put_context c = {.map = *map, .accumulate = accumulate, .value = yk__spec_of(value)};
    c.value_leading = (int8_t)leading;
    if (!status)
        status = yk__in_place_end(x, op, 2, inputs, map->count, own, &c, sizeof(c));
    yk__release_all(map->count, own);
    yk__release_all(3, (yk_tensor *[]){typed, inner, read});
    return status;
}

/* ---- index tensors ---- */

yk_tensor *yk__index_tensor(const char *name, yk_tensor *index)
{
    if (index->dtype != YK_I64 && index->dtype != YK_I32) {
        yk__fail(YK_ERR_DTYPE, "%s: the index tensor is %s, expected int64 or int32; cast it with yk_cast", name,
                 yk_dtype_name((yk_dtype)index->dtype));
        return NULL;
    }
    return yk__raw_cast(index, YK_I64);
}

yk_tensor *yk__raw_nonzero(yk_tensor *x)
{
    yk_tensor *mask = yk__raw_cast(x, YK_BOOL);
    if (!mask)
        return NULL;
    int64_t shape[2] = {x->ndim, 0};
    yk__view v = yk__view_of(mask);
    yk_status status = x->numel ? YK__SLOT(x, nonzero, &v, &shape[1], NULL) : YK_OK;
    yk_tensor *out = status ? NULL : yk__tensor_new(2, shape, NULL, YK_I64, yk__device_of(x));
    if (out && out->numel) {
        yk__view vo = {.data = out->data, .dtype = YK_I64, .ndim = 2, .shape = {shape[1], shape[0]}};
        vo.stride[0] = 1;
        vo.stride[1] = out->stride[0];
        out = yk__tensor_if_ok(out, YK__SLOT(x, nonzero, &v, &shape[1], &vo));
    }
    yk_tensor_release(mask);
    return out;
}

bool yk__put_begin(const char *name, int n_inputs, yk_tensor *const *inputs)
{
    for (int i = 0; i < n_inputs; i++) {
        if (yk__is_freed(inputs[i])) {
            yk__fail_freed(name, inputs[i]);
            return false;
        }
    }
    for (int i = 0; i < n_inputs; i++) {
        if (inputs[i])
            continue;
        if (!yk__error_code())
            yk__fail(YK_ERR_ARGUMENT, "%s: argument %d is NULL", name, i + 1);
        return false;
    }
    return yk__same_device(name, n_inputs, inputs) == YK_OK;
}
