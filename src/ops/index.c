/*
 * index.c - x[items]: integers, slices, new dimensions, index tensors and masks in any mixture. Layer: ops.
 *
 * In two steps, as in PyTorch. What is not a tensor cuts a view out of x (`cut`, one operation for all items); then the
 * index tensors, which stand for dimensions of that view, are handed to index_map.c. A mask becomes the positions where
 * it is true: one index tensor where the dimensions that it covers lie evenly, else one for each of them.
 */
#include "ops/index.h"

/* The most items of one call. Any number does that is above what the dimensions of a tensor can use, with new ones
 * between. */
enum { MAX_ITEMS = 32 };

/* ---- the view ---- */

typedef struct cut {
    yk__tensor_spec base;
    int64_t start[YK_MAX_DIMS]; /* of each dimension of the base */
    int8_t ndim;                /* of the view; per dimension: */
    int8_t from[YK_MAX_DIMS];   /* the base's, -1 for a new one */
    int64_t step[YK_MAX_DIMS], shape[YK_MAX_DIMS];
    bool whole; /* the view is x */
} cut;

static void cut_describe(const void *context, yk__attributes *to)
{
    const cut *c = context;
    int64_t from[YK_MAX_DIMS];
    for (int d = 0; d < c->ndim; d++)
        from[d] = c->from[d];
    yk__attribute_list(to, "start", c->base.ndim, c->start);
    yk__attribute_list(to, "from", c->ndim, from);
    yk__attribute_list(to, "step", c->ndim, c->step);
}

static yk_tensor *view_of_cut(yk_tensor *x, const cut *c)
{
    int64_t stride[YK_MAX_DIMS], offset = 0;
    bool some = true;
    for (int d = 0; d < c->ndim; d++) {
        stride[d] = c->from[d] < 0 ? 1 : x->stride[c->from[d]] * (c->shape[d] > 1 ? c->step[d] : 1);
        some = some && c->shape[d] > 0;
    }
    for (int d = 0; some && d < c->base.ndim; d++)
        offset += c->start[d] * x->stride[d];
    return yk__tensor_view(x, c->ndim, c->shape, stride, offset);
}

/* Zeros in the shape of the base, with the gradient of the view in its place. One reference. */
static yk_tensor *cut_put(yk_tensor *gout, const cut *c)
{
    yk_tensor *grad = yk__spec_zeros(&c->base, yk__device_of(gout)), *region = grad ? view_of_cut(grad, c) : NULL;
    yk_status status = region ? yk__raw_copy(region, gout) : yk__status_of(NULL);
    yk_tensor_release(region);
    return yk__tensor_if_ok(grad, status);
}

static yk_status cut_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = cut_put(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

/* Cutting is the gradient of putting into zeros. */
static yk_status cut_put_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = view_of_cut(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

static void cut_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);

static void cut_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {.name = "index_backward", .backward = cut_put_backward, .recorded = cut_put_recorded};
    const cut *c = yk__context(node);
    grads[0] = yk__record(cut_put(gouts[0], c), &op, 1, gouts, 0, NULL, c, sizeof(*c));
}

static void cut_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {
        .name = "index", .backward = cut_backward, .recorded = cut_recorded, .describe = cut_describe};
    const cut *c = yk__context(node);
    grads[0] = yk__record_view(view_of_cut(gouts[0], c), &op, gouts[0], c, sizeof(*c));
}

/* ---- items ---- */

/* The items of a call, parsed. The index tensors belong to it. */
typedef struct parsed {
    const char *name;
    const yk_tensor *x;
    int dim; /* of x: the next one that an item takes */
    cut cut;
    yk__index_map map;
    yk_tensor *index[YK_MAX_DIMS];
    struct {               /* of the view's dimensions */
        yk_tensor *tensor; /* borrowed */
        int dim;
    } by[YK_MAX_DIMS];
    int n_by;
} parsed;

static bool is_mask(const yk_tensor *t)
{
    return t->dtype == YK_BOOL;
}

/* A dimension of the view: that of x, or a new one of `shape`. */
static yk_status add_dim(parsed *p, int from, int64_t start, int64_t step, int64_t shape)
{
    cut *c = &p->cut;
    if (c->ndim == YK_MAX_DIMS)
        return yk__fail(YK_ERR_SHAPE, "%s: the result has more than %d dimensions", p->name, YK_MAX_DIMS);
    if (from >= 0)
        c->start[from] = start;
    c->from[c->ndim] = (int8_t)from;
    c->step[c->ndim] = step;
    c->shape[c->ndim++] = shape;
    c->whole = c->whole && from >= 0 && shape == p->x->shape[from];
    return YK_OK;
}

static yk_status keep_dims(parsed *p, int count)
{
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++, p->dim++)
        status = add_dim(p, p->dim, 0, 1, p->x->shape[p->dim]);
    return status;
}

static yk_status parse_integer(parsed *p, int64_t i)
{
    int64_t size = p->x->shape[p->dim];
    if (i < -size || i >= size)
        return yk__fail(YK_ERR_ARGUMENT, "%s: index %lld is outside dimension %d of size %lld", p->name, (long long)i,
                        p->dim, (long long)size);
    p->cut.start[p->dim++] = i < 0 ? i + size : i;
    p->cut.whole = false;
    return YK_OK;
}

static yk_status parse_slice(parsed *p, const yk_index_item *item)
{
    int64_t size = p->x->shape[p->dim], start = item->start, stop = item->stop, step = item->step;
    if (step < 1)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the step of dimension %d is %lld, expected at least 1", p->name, p->dim,
                        (long long)step);
    start = start < 0 ? start + size : start;
    stop = stop < 0 ? stop + size : stop;
    start = start < 0 ? 0 : start > size ? size : start;
    stop = stop < start ? start : stop > size ? size : stop;
    int64_t length = (stop - start) / step + ((stop - start) % step != 0);
    yk_status status = add_dim(p, p->dim, start, step, length);
    p->dim++;
    return status;
}

static yk_status parse_tensor(parsed *p, yk_tensor *t)
{
    if (!is_mask(t) && t->ndim == 0) { /* one number: as an integer */
        yk_tensor *index = yk__index_tensor(p->name, t);
        int64_t number = 0;
        yk_status status = index ? yk__item_i64(p->name, index, &number) : yk__status_of(NULL);
        if (!status)
            status = parse_integer(p, number);
        yk_tensor_release(index);
        return status;
    }
    if (p->n_by == YK_MAX_DIMS)
        return yk__fail(YK_ERR_SHAPE, "%s: more than %d index tensors", p->name, YK_MAX_DIMS);
    p->by[p->n_by].tensor = t;
    p->by[p->n_by++].dim = p->cut.ndim;
    if (is_mask(t) && t->ndim == 0)
        return add_dim(p, -1, 0, 1, 1);
    char a[200], b[200];
    for (int d = 0; is_mask(t) && d < t->ndim; d++)
        if (t->shape[d] != p->x->shape[p->dim + d])
            return yk__fail(YK_ERR_SHAPE, "%s: mask %s does not fit dimension %d of %s, where it begins at %d", p->name,
                            yk_shape_format(t, a, sizeof(a)), p->dim + d, yk_shape_format(p->x, b, sizeof(b)), p->dim);
    return keep_dims(p, is_mask(t) ? t->ndim : 1);
}

static int dims_of(const yk_index_item *item)
{
    switch (item->kind) {
    case YK_INDEX_SLICE:
    case YK_INDEX_INTEGER: return 1;
    case YK_INDEX_TENSOR: return is_mask(item->tensor) ? item->tensor->ndim : 1;
    default: return 0;
    }
}

static yk_status parse(parsed *p, const char *name, const yk_tensor *x, const yk_index_item *items, int count)
{
    char text[200];
    int taken = 0;
    *p = (parsed){.name = name, .x = x, .cut = {.base = yk__spec_of(x), .whole = true}};
    for (int i = 0; i < count; i++) {
        if ((unsigned)items[i].kind > YK_INDEX_TENSOR)
            return yk__fail(YK_ERR_ARGUMENT, "%s: item %d is of no known kind", name, i);
        taken += dims_of(&items[i]);
    }
    if (taken > x->ndim)
        return yk__fail(YK_ERR_SHAPE, "%s: the items index %d dimensions, but %s has %d", name, taken,
                        yk_shape_format(x, text, sizeof(text)), x->ndim);
    yk_status status = YK_OK;
    for (int i = 0, seen = 0; i < count && !status; i++) {
        switch (items[i].kind) {
        case YK_INDEX_INTEGER: status = parse_integer(p, items[i].start); break;
        case YK_INDEX_SLICE: status = parse_slice(p, &items[i]); break;
        case YK_INDEX_NEWAXIS: status = add_dim(p, -1, 0, 1, 1); break;
        case YK_INDEX_TENSOR: status = parse_tensor(p, items[i].tensor); break;
        case YK_INDEX_ELLIPSIS: /* a second one is empty */ status = keep_dims(p, seen++ ? 0 : x->ndim - taken); break;
        }
    }
    return status ? status : keep_dims(p, x->ndim - p->dim);
}

/* The index tensors of the view, once it is there. */
static yk_status index_tensors_prepare(parsed *p, const yk_tensor *view)
{
    yk__index_map *map = &p->map;
    map->name = p->name;
    map->wrap = true;
    for (int i = 0; i < p->n_by; i++) {
        yk_tensor *t = p->by[i].tensor;
        int dim = p->by[i].dim, span = is_mask(t) && t->ndim > 1 ? t->ndim : 1;
        int64_t stride;
        yk_tensor *flat = NULL, *found = NULL;
        if (!is_mask(t)) {
            found = yk__index_tensor(p->name, t);
        } else if (span == 1 || yk__even_stride(view, dim, span, &stride)) {
            flat = yk__raw_reshape(t, 1, &t->numel);
            found = flat ? yk__raw_nonzero(flat) : NULL;
            yk_tensor_release(flat);
        } else {
            found = yk__raw_nonzero(t);
        }
        int columns = is_mask(t) && !flat ? span : 1;
        for (int c = 0; c < columns && found; c++) {
            yk_tensor *column =
                !is_mask(t) ? yk_tensor_retain(found)
                            : yk__tensor_view(found, 1, &found->shape[1], &found->stride[1], c * found->stride[0]);
            if (!column) {
                yk_tensor_release(found);
                return yk__status_of(NULL);
            }
            map->of[map->count].dim = (int8_t)(dim + c);
            map->of[map->count].span = (int8_t)(columns > 1 ? 1 : span);
            map->of[map->count].named = p->cut.from[dim + c];
            p->index[map->count++] = column;
        }
        yk_tensor_release(found);
        if (!found)
            return yk__status_of(NULL);
    }
    return yk__index_map_fit(map, view, p->index);
}

/* x and the items' tensors, for the checks before the work; how many, 0 after an error. */
static int inputs_of(const char *name, yk_tensor *x, const yk_index_item *items, int count,
                     yk_tensor *inputs[MAX_ITEMS + 2])
{
    if (count < 0 || count > MAX_ITEMS || (count && !items)) {
        if (x || !yk__error_code())
            yk__fail(YK_ERR_ARGUMENT, "%s: %d items%s, expected 0 to %d", name, count, items ? "" : " at NULL",
                     MAX_ITEMS);
        return 0;
    }
    int n = 0;
    inputs[n++] = x;
    for (int i = 0; i < count; i++)
        if (items[i].kind == YK_INDEX_TENSOR)
            inputs[n++] = items[i].tensor;
    return n;
}

static const yk__op view_op = {.name = "index",
                               .backward = cut_backward,
                               .recorded = cut_recorded,
                               .describe = cut_describe},
                    read_op = {.name = "index", YK__INDEX_READ}, put_op = {.name = "index_put_", YK__INDEX_PUT};

/* x[mask] = one value, as PyTorch does it: without positions. */
static bool is_fill(const parsed *p, const yk_tensor *value, bool accumulate)
{
    return p->n_by == 1 && is_mask(p->by[0].tensor) && p->by[0].tensor->ndim > 0 && value->numel == 1 && !accumulate &&
           (value->ndim == 0 || value->dtype == p->x->dtype) && !(yk__wants_grad(value) && yk_grad_enabled());
}

static yk_status mask_fill(const parsed *p, yk_tensor *part, yk_tensor *value)
{
    static const yk__op op = {.name = "index_put_", YK__MASKED_PUT};
    yk_tensor *mask = p->by[0].tensor;
    int ndim = part->ndim - p->by[0].dim; /* the mask's dimensions, and those after them, of size 1 */
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
    for (int d = 0; d < ndim; d++) {
        shape[d] = d < mask->ndim ? mask->shape[d] : 1;
        stride[d] = d < mask->ndim ? mask->stride[d] : 1;
    }
    yk_tensor *wide = yk__tensor_view(mask, ndim, shape, stride, 0),
              *typed = yk__raw_cast(value, (yk_dtype)part->dtype);
    yk_status status = wide && typed ? yk__masked_put(&op, part, wide, typed) : yk__status_of(NULL);
    yk__release_all(2, (yk_tensor *[]){wide, typed});
    return status;
}

static yk_tensor *part_of(yk_tensor *x, const cut *c)
{
    return yk__record_view(view_of_cut(x, c), &view_op, x, c, sizeof(*c));
}

yk_tensor *yk__index_as(const char *name, yk_tensor *x, const yk_index_item *items, int count)
{
    yk_tensor *inputs[MAX_ITEMS + 2];
    int n = inputs_of(name, x, items, count, inputs);
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!n || !yk__op_begin(name, n, inputs, 0))
        return NULL;
    parsed p;
    if (parse(&p, name, x, items, count))
        return NULL;
    if (!p.n_by)
        return part_of(x, &p.cut);
    /* The view is held by the graph alone. */
    yk_scope scope = yk_scope_begin();
    yk_tensor *part = p.cut.whole ? x : part_of(x, &p.cut), *out = NULL;
    if (part && !index_tensors_prepare(&p, part))
        out = yk__index_read(&read_op, part, &p.map, p.index);
    yk__release_all(p.map.count, p.index);
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    return out;
}

yk_tensor *yk_index(yk_tensor *x, const yk_index_item *items, int count)
{
    return yk__index_as("index", x, items, count);
}

yk_tensor *yk_index_put_(yk_tensor *x, const yk_index_item *items, int count, yk_tensor *value, bool accumulate)
{
    yk_tensor *inputs[MAX_ITEMS + 2];
    int n = inputs_of("index_put_", x, items, count, inputs);
    if (!n)
        return NULL;
    inputs[n++] = value;
    if (!yk__put_begin("index_put_", n, inputs))
        return NULL;
    parsed p;
    if (parse(&p, "index_put_", x, items, count))
        return NULL;
    yk_scope scope = yk_scope_begin();
    yk_tensor *part = p.cut.whole ? x : part_of(x, &p.cut);
    yk_status status = yk__status_of(part);
    if (!status && is_fill(&p, value, accumulate)) {
        status = mask_fill(&p, part, value);
    } else if (!status && p.n_by) {
        yk_tensor *both[2] = {part, value};
        status = index_tensors_prepare(&p, part);
        if (!status)
            status = yk__in_place_begin("index_put_", part, 2, both);
        if (!status)
            status = yk__index_put(&put_op, part, &p.map, p.index, value, accumulate);
        yk__release_all(p.map.count, p.index);
    } else if (!status) {
        int leading;
        yk_tensor *inner = NULL;
        if (!yk__index_fits_value("index_put_", part->ndim, part->shape, value, &leading))
            inner = leading ? yk_reshape(value, value->ndim - leading, value->shape + leading) : value;
        status = yk__status_of(inner && yk__put_whole(part, inner, accumulate) ? part : NULL);
    }
    yk_scope_end(scope);
    return status ? NULL : x;
}
