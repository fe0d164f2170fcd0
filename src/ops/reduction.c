/*
 * reduction.c - sums, means, variances, products, extremes and their positions, over some or all dimensions.
 * Layer: ops.
 *
 * A set of dimensions is a bit mask, 0 for all of them. Gradients start from the result seen in the shape of x with
 * stride 0 along what was reduced.
 */
#include "ops/cast_policy.h"

typedef struct reduction {
    yk__tensor_spec x;
    uint32_t mask;
    double value;    /* mean: 1 / count; var: 2 / (count - correction) */
    bool degenerate; /* var of all elements, with a correction at or above their count */
} reduction;

/* The dimensions named by dims as a mask. */
static bool mask_of(const char *name, const yk_tensor *x, const int *dims, int n_dims, uint32_t *mask)
{
    *mask = 0;
    for (int i = 0; dims && i < n_dims; i++) {
        int dim = dims[i];
        if (yk__wrap_dim(name, x, &dim))
            return false;
        if (*mask & (1u << dim)) {
            yk__fail(YK_ERR_SHAPE, "%s: dimension %d is named twice", name, dim);
            return false;
        }
        *mask |= 1u << dim;
    }
    return true;
}

static int64_t count_of(const yk_tensor *x, uint32_t mask)
{
    int64_t count = 1;
    for (int d = 0; d < x->ndim; d++)
        count *= !mask || (mask >> d & 1) ? x->shape[d] : 1;
    return count;
}

/* `small` (a result, with or without the reduced dimensions) as a view in the shape of x. */
static yk_tensor *seen_in_x(yk_tensor *small, const reduction *r)
{
    if (!small)
        return NULL;
    bool kept = small->ndim == r->x.ndim;
    int64_t stride[YK_MAX_DIMS];
    for (int d = 0, own = 0; d < r->x.ndim; d++) {
        bool reduced = !r->mask || (r->mask >> d & 1);
        stride[d] = reduced ? 0 : small->stride[own];
        own += kept || !reduced;
    }
    return yk__tensor_view(small, r->x.ndim, r->x.shape, stride, 0);
}

/* The same written out: gradients may be added to in place, so their elements must not share memory. */
static yk_tensor *spread(yk_tensor *small, const reduction *r)
{
    yk_tensor *view = seen_in_x(small, r), *out = view ? yk__spec_new(&r->x, yk__device_of(view)) : NULL;
    if (out)
        out = yk__tensor_if_ok(out, yk__raw_copy(out, view));
    yk_tensor_release(view);
    return out;
}

/* A result with its history, in the shape of x, with elements repeated along what was reduced. */
static yk_tensor *recorded_in_x(yk_tensor *small, const reduction *r)
{
    int64_t shape[YK_MAX_DIMS];
    for (int d = 0; d < r->x.ndim; d++)
        shape[d] = !r->mask || (r->mask >> d & 1) ? 1 : r->x.shape[d];
    return yk_expand(yk_reshape(small, r->x.ndim, shape), r->x.ndim, r->x.shape);
}

/* The reduced dimensions as a list; how many. */
static int dims_of(const reduction *r, int *dims)
{
    int count = 0;
    for (int d = 0; d < r->x.ndim; d++) {
        if (!r->mask || (r->mask >> d & 1))
            dims[count++] = d;
    }
    return count;
}

static void reduction_describe(const void *context, yk__attributes *to)
{
    const reduction *r = context;
    yk__attribute_whole(to, "mask", r->mask);
}

static void var_describe(const void *context, yk__attributes *to)
{
    reduction_describe(context, to);
    yk__attribute_real(to, "value", ((const reduction *)context)->value);
}

static yk_tensor *reduce(const yk__op *op, yk__reduce kernel, yk_tensor *x, const int *dims, int n_dims, bool keepdim,
                         double p0, bool saves_x, bool saves_out)
{
    reduction r;
    YK__EVENT(YK__EVENT_OPERATION, op->name);
    if (!yk__op_begin(op->name, 1, &x, 0) || !mask_of(op->name, x, dims, n_dims, &r.mask))
        return NULL;
    yk_tensor *out = yk__raw_reduce(op->name, kernel, x, r.mask, keepdim, p0);
    if (!out || !yk__will_tell(1, &x))
        return yk__scope_own(out);
    r.x = yk__spec_of(x);
    double count = (double)count_of(x, r.mask);
    r.degenerate = kernel == YK__VAR && (!r.mask || x->ndim == 0) && count <= p0;
    r.value = kernel == YK__VAR ? 2 / (count - p0) : 1 / count;
    yk_tensor *saved[2] = {saves_x ? x : NULL, saves_out ? out : NULL};
    return yk__record(out, op, 1, &x, 2, saved, &r, sizeof(r));
}

/* ---- sum, mean, var ---- */

static yk_status sum_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = spread(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

static yk_status mean_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const reduction *r = yk__context(node);
    yk_tensor *part = yk__raw_unary("mean", YK__MUL_SCALAR, gout, r->value, 0);
    grads[0] = spread(part, r);
    yk_tensor_release(part);
    return yk__status_of(grads[0]);
}

/* d var / dx = 2 (x - mean) / (count - correction). With a correction at or above the count PyTorch's are infinite, and
 * NaN where x is the mean. */
static yk_status var_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const reduction *r = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *wide[2], *from[2] = {yk__saved(node, 0, &bad), gout};
    if (bad || (bad = yk__operands(YK__SLOT_reduce, 0, 2, from, wide)))
        return bad;
    yk_tensor *mean = yk__raw_reduce("var", YK__MEAN, wide[0], r->mask, true, 0);
    yk_tensor *centred = yk__raw_binary("var", YK__SUB, wide[0], mean, 1);
    if (r->degenerate) {
        yk_tensor *apart = yk__raw_unary("var", YK__ABS, centred, 0, 0);
        yk_tensor *zero = apart ? yk__raw_unary("var", YK__MUL_SCALAR, apart, 0, 0) : NULL;
        yk_tensor_release(centred); /* 0 / 0, or above 0 / 0 */
        centred = yk__raw_binary("var", YK__DIV, apart, zero, 1);
        yk__release_all(2, (yk_tensor *[]){zero, apart});
    }
    yk_tensor *scaled = yk__raw_unary("var", YK__MUL_SCALAR, wide[1], r->degenerate ? 1 : r->value, 0),
              *g = seen_in_x(scaled, r);
    grads[0] = yk__narrow_to(yk__raw_binary("var", YK__MUL, centred, g, 1), (yk_dtype)r->x.dtype);
    yk__release_all(4, (yk_tensor *[]){mean, centred, scaled, g});
    yk__release_all(2, wide);
    return yk__status_of(grads[0]);
}

static void sum_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    grads[0] =
        recorded_in_x(yk_cast(gouts[0], (yk_dtype)((const reduction *)yk__context(node))->x.dtype), yk__context(node));
}

static void mean_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const reduction *r = yk__context(node);
    grads[0] = recorded_in_x(yk_cast(yk_mul_scalar(gouts[0], r->value), (yk_dtype)r->x.dtype), r);
}

static void var_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const reduction *r = yk__context(node);
    int dims[YK_MAX_DIMS], count = dims_of(r, dims);
    yk_tensor *x = yk__recorded_wide(yk__saved_in_graph(node, 0)), *g = yk__recorded_wide(gouts[0]);
    yk_tensor *centred = yk_sub(x, yk_mean_dims(x, dims, count, true));
    if (r->degenerate)
        centred = yk_div(yk_abs(centred), yk_mul_scalar(yk_abs(centred), 0));
    yk_tensor *scaled = yk_mul_scalar(g, r->degenerate ? 1 : r->value);
    grads[0] = yk_cast(yk_mul(centred, recorded_in_x(scaled, r)), (yk_dtype)r->x.dtype);
}

static const yk__op
    sum_op = {.name = "sum", .backward = sum_backward, .recorded = sum_recorded, .describe = reduction_describe},
    mean_op = {.name = "mean", .backward = mean_backward, .recorded = mean_recorded, .describe = reduction_describe};
static const yk__op var_op = {
    .name = "var", .backward = var_backward, .recorded = var_recorded, .describe = var_describe};

yk_tensor *yk_sum(yk_tensor *x)
{
    YK__AUTOCAST(sum, 1, &x, yk_sum(x));
    return reduce(&sum_op, YK__SUM, x, NULL, 0, false, 0, false, false);
}

yk_tensor *yk_mean(yk_tensor *x)
{
    return reduce(&mean_op, YK__MEAN, x, NULL, 0, false, 0, false, false);
}

yk_tensor *yk_var(yk_tensor *x)
{
    return reduce(&var_op, YK__VAR, x, NULL, 0, false, 1, true, false);
}

yk_tensor *yk_sum_dims(yk_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    YK__AUTOCAST(sum, 1, &x, yk_sum_dims(x, dims, n_dims, keepdim));
    return reduce(&sum_op, YK__SUM, x, dims, n_dims, keepdim, 0, false, false);
}

yk_tensor *yk_mean_dims(yk_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    return reduce(&mean_op, YK__MEAN, x, dims, n_dims, keepdim, 0, false, false);
}

yk_tensor *yk_var_dims(yk_tensor *x, const int *dims, int n_dims, double correction, bool keepdim)
{
    return reduce(&var_op, YK__VAR, x, dims, n_dims, keepdim, correction, true, false);
}

/* ---- products ---- */

/* `from` one place further along the dimension (or, where `back`, one nearer to its beginning), with 1 where nothing
 * comes to: what a scan makes of it leaves out the element at each place. */
static yk_tensor *shifted(yk_tensor *from, int dim, bool back)
{
    int64_t shape[YK_MAX_DIMS], step = from->shape[dim] > 1;
    yk_tensor *out = yk__tensor_full_like(from, 1), *to = NULL, *kept = NULL;
    memcpy(shape, from->shape, sizeof(shape));
    shape[dim] -= step;
    if (out && step) {
        to = yk__tensor_view(out, out->ndim, shape, out->stride, back ? 0 : out->stride[dim]);
        kept = yk__tensor_view(from, from->ndim, shape, from->stride, back ? from->stride[dim] : 0);
        out = yk__tensor_if_ok(out, to && kept ? yk__raw_copy(to, kept) : yk__status_of(NULL));
    }
    yk__release_all(2, (yk_tensor *[]){to, kept});
    return out;
}

/* For each element of x the product of the others that are reduced with it: those before it times those after it. */
static yk_tensor *product_of_others(yk_tensor *x, const reduction *r)
{
    int dim = r->mask && x->ndim ? __builtin_ctz(r->mask) : 0;
    yk_tensor *line = r->mask && x->ndim ? yk_tensor_retain(x) : yk__raw_reshape(x, 1, &x->numel), *side[2] = {0};
    for (int back = 0; back < 2 && line; back++) {
        yk_tensor *factors = shifted(line, dim, back);
        side[back] = yk__raw_scan(YK__CUMPROD, factors, dim, back);
        yk_tensor_release(factors);
    }
    yk_tensor *product = yk__raw_binary("prod", YK__MUL, side[0], side[1], 1);
    yk_tensor *out = product ? yk__raw_reshape(product, x->ndim, x->shape) : NULL;
    yk__release_all(4, (yk_tensor *[]){line, side[0], side[1], product});
    return out;
}

/* d prod / dx_i = the product of the others: prod / x_i where no element is zero. */
static yk_status prod_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const reduction *r = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *from[3] = {yk__saved(node, 0, &bad), yk__saved(node, 1, &bad), gout}, *wide[3];
    if (bad || (bad = yk__operands(YK__SLOT_reduce, 0, 3, from, wide)))
        return bad;
    yk_tensor *others = NULL;
    bool zeros = true; /* of one number there are no others to divide out of */
    yk_status read = from[0]->ndim ? yk__has_zero("prod", wide[0], &zeros) : YK_OK;
    if (!read && !zeros) {
        yk_tensor *whole = seen_in_x(wide[1], r);
        others = yk__raw_binary("prod", YK__DIV, whole, wide[0], 1);
        yk_tensor_release(whole);
    } else if (!read) {
        others = product_of_others(wide[0], r);
    }
    yk_tensor *g = others ? seen_in_x(wide[2], r) : NULL;
    yk_tensor *product = yk__raw_binary("prod", YK__MUL, others, g, 1);
    grads[0] = yk__narrow_to(product, (yk_dtype)r->x.dtype);
    yk__release_all(2, (yk_tensor *[]){others, g});
    yk__release_all(3, wide);
    return yk__status_of(grads[0]);
}

/* The product of what comes before each element along the dimension. */
static yk_tensor *recorded_before(yk_tensor *x, int dim)
{
    yk_tensor *ones = x ? yk_ones_like(yk_narrow(x, dim, 0, 1)) : NULL;
    yk_tensor *parts[2] = {ones, ones ? yk_narrow(x, dim, 0, x->shape[dim] - 1) : NULL};
    return parts[1] ? yk_cumprod(yk_cat(parts, 2, dim), dim) : NULL;
}

static void prod_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const reduction *r = yk__context(node);
    yk_tensor *x = yk__recorded_wide(yk__saved_in_graph(node, 0)), *g = yk__recorded_wide(gouts[0]), *others;
    bool zeros = true;
    if (!x || !g || (x->ndim && yk__has_zero("prod", x, &zeros)))
        return;
    if (x->ndim == 0 || x->numel == 0) {
        others = yk_ones_like(x);
    } else if (!zeros) {
        others = yk_div(recorded_in_x(yk__recorded_wide(yk__saved_in_graph(node, 1)), r), x);
    } else {
        int dim = r->mask ? __builtin_ctz(r->mask) : 0;
        yk_tensor *line = r->mask ? x : yk_reshape(x, 1, &x->numel);
        yk_tensor *after = yk_flip(recorded_before(yk_flip(line, &dim, 1), dim), &dim, 1);
        others = yk_reshape(yk_mul(recorded_before(line, dim), after), x->ndim, x->shape);
    }
    grads[0] = yk_cast(yk_mul(others, recorded_in_x(g, r)), (yk_dtype)r->x.dtype);
}

static const yk__op prod_op = {
    .name = "prod", .backward = prod_backward, .recorded = prod_recorded, .describe = reduction_describe};

yk_tensor *yk_prod(yk_tensor *x)
{
    YK__AUTOCAST(prod, 1, &x, yk_prod(x));
    return reduce(&prod_op, YK__PROD, x, NULL, 0, false, 0, true, true);
}

yk_tensor *yk_prod_dim(yk_tensor *x, int dim, bool keepdim)
{
    YK__AUTOCAST(prod, 1, &x, yk_prod_dim(x, dim, keepdim));
    return reduce(&prod_op, YK__PROD, x, &dim, 1, keepdim, 0, true, true);
}

/* ---- extremes ---- */

/* Backward of an extreme: the elements that equal it share its gradient evenly; where that is NaN, the NaNs do. */
static yk_status extreme_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const reduction *r = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *x = yk__saved(node, 0, &bad), *out = yk__saved(node, 1, &bad);
    if (bad)
        return bad;
    yk_tensor *found = seen_in_x(out, r);
    yk_tensor *equal = yk__raw_binary("max", YK__EQ, x, found, 1), *nan = yk__raw_binary("max", YK__NE, x, x, 1);
    yk_tensor *hits = yk__raw_binary("max", YK__OR, equal, nan, 1);
    yk_tensor *count = hits ? yk__raw_reduce("max", YK__SUM, hits, r->mask, gout->ndim == r->x.ndim, 0) : NULL;
    yk_tensor *share = yk__raw_binary("max", YK__DIV, gout, count, 1), *wide = seen_in_x(share, r);
    yk_tensor *zero = yk__raw_scalar(0, (yk_dtype)gout->dtype, yk__device_of(gout));
    grads[0] = yk__narrow_to(yk__raw_where(hits, wide, zero), (yk_dtype)r->x.dtype);
    yk__release_all(8, (yk_tensor *[]){found, equal, nan, hits, count, share, wide, zero});
    return yk__status_of(grads[0]);
}

static void extreme_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const reduction *r = yk__context(node);
    int dims[YK_MAX_DIMS], n_dims = dims_of(r, dims);
    yk_tensor *x = yk__saved_in_graph(node, 0), *out = yk__saved_in_graph(node, 1);
    if (!x || !out)
        return;
    yk_tensor *hits = yk_logical_or(yk_eq(x, recorded_in_x(out, r)), yk_ne(x, x));
    yk_tensor *count = x->ndim ? yk_sum_dims(hits, dims, n_dims, gouts[0]->ndim == x->ndim) : yk_sum(hits);
    grads[0] = yk_cast(yk__recorded_where(hits, recorded_in_x(yk_div(gouts[0], count), r)), (yk_dtype)r->x.dtype);
}

static const yk__op max_op = {.name = "max",
                              .backward = extreme_backward,
                              .recorded = extreme_recorded,
                              .describe = reduction_describe},
                    min_op = {.name = "min",
                              .backward = extreme_backward,
                              .recorded = extreme_recorded,
                              .describe = reduction_describe};

yk_tensor *yk_max(yk_tensor *x)
{
    return reduce(&max_op, YK__AMAX, x, NULL, 0, false, 0, true, true);
}

yk_tensor *yk_min(yk_tensor *x)
{
    return reduce(&min_op, YK__AMIN, x, NULL, 0, false, 0, true, true);
}

yk_tensor *yk_amax(yk_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    static const yk__op op = {
        .name = "amax", .backward = extreme_backward, .recorded = extreme_recorded, .describe = reduction_describe};
    return reduce(&op, YK__AMAX, x, dims, n_dims, keepdim, 0, true, true);
}

yk_tensor *yk_amin(yk_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    static const yk__op op = {
        .name = "amin", .backward = extreme_backward, .recorded = extreme_recorded, .describe = reduction_describe};
    return reduce(&op, YK__AMIN, x, dims, n_dims, keepdim, 0, true, true);
}

/* The indices of the elements that a reduction along one dimension found: `index` has the position of each. The views
 * `from`, of x, and `small`, of the result in the shape of x, get size 1 in that dimension. */
static yk__indices positions_along(const char *name, const reduction *r, yk_tensor *index, yk__view *from,
                                   yk__view *small)
{
    yk__indices p = {.name = name, .count = 1};
    int dim = r->x.ndim ? __builtin_ctz(r->mask) : 0;
    p.of[0].view = yk__view_of(index);
    p.of[0].dim = dim;
    p.of[0].size = r->x.ndim ? from->shape[dim] : 1;
    p.of[0].stride = r->x.ndim ? from->stride[dim] : 0;
    if (r->x.ndim) {
        from->shape[dim] = small->shape[dim] = p.of[0].view.shape[dim] = 1;
        from->stride[dim] = 0;
    }
    return p;
}

/* The elements of x at the positions that were found. */
static yk_tensor *values_at(const yk__op *op, yk_tensor *x, yk_tensor *index, const reduction *r)
{
    yk_tensor *at = seen_in_x(index, r);
    yk_tensor *out = at ? yk__tensor_new(index->ndim, index->shape, NULL, (yk_dtype)x->dtype, yk__device_of(x)) : NULL;
    yk_tensor *shaped = out ? seen_in_x(out, r) : NULL;
    if (!shaped) {
        yk_tensor_release(out);
        out = NULL;
    } else if (out->numel) {
        yk__view from = yk__view_of(x), to = yk__view_of(shaped);
        yk__indices p = positions_along(op->name, r, at, &from, &to);
        out = yk__tensor_if_ok(out, YK__SLOT(out, index, &to, &from, &p));
    }
    yk__release_all(2, (yk_tensor *[]){at, shaped});
    return out;
}

/* Backward of the extreme along one dimension: the gradient goes to the position that was found. */
static yk_status extreme_dim_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const reduction *r = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *index = yk__saved(node, 0, &bad), *grad = bad ? NULL : yk__spec_zeros(&r->x, yk__device_of(gout));
    if (!grad)
        return bad ? bad : yk__error_code();
    yk_tensor *at = seen_in_x(index, r), *g = seen_in_x(gout, r);
    if (at && g && at->numel) {
        yk__view to = yk__view_of(grad), value = yk__view_of(g);
        yk__indices p = positions_along("max_dim", r, at, &to, &value);
        bad = YK__SLOT(grad, index_put, &to, &value, &p, false);
    } else if (!at || !g) {
        bad = yk__error_code();
    }
    yk__release_all(2, (yk_tensor *[]){at, g});
    grads[0] = yk__tensor_if_ok(grad, bad);
    return bad;
}

static void extreme_dim_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const reduction *r = yk__context(node);
    if (r->x.ndim == 0) {
        grads[0] = gouts[0];
        return;
    }
    int dim = __builtin_ctz(r->mask);
    yk_tensor *index = yk__saved_in_graph(node, 0), *g = gouts[0];
    if (index && index->ndim < r->x.ndim) {
        index = yk_unsqueeze(index, dim);
        g = yk_unsqueeze(g, dim);
    }
    grads[0] = yk_scatter_add_(yk__recorded_zeros(&r->x, yk__device_of(gouts[0])), dim, index, g);
}

static yk_tensor *extreme_dim(const yk__op *op, yk__reduce value, yk__reduce index_value, yk_tensor *x, int dim,
                              bool keepdim, yk_tensor **index)
{
    if (index)
        *index = NULL;
    reduction r = {.value = 0};
    YK__EVENT(YK__EVENT_OPERATION, op->name);
    if (!yk__op_begin(op->name, 1, &x, 0) || !mask_of(op->name, x, &dim, 1, &r.mask))
        return NULL;
    bool records = yk__will_record(1, &x);
    yk_tensor *out, *found = NULL;
    r.x = yk__spec_of(x);
    if (index || records) {
        found = yk__raw_reduce(op->name, index_value, x, r.mask, keepdim, 0);
        out = found ? values_at(op, x, found, &r) : NULL;
    } else {
        out = yk__raw_reduce(op->name, value, x, r.mask, keepdim, 0);
    }
    if (out) {
        out = yk__record(out, op, 1, &x, 1, &found, &r, sizeof(r));
    }
    if (out && index) {
        *index = yk__scope_own(found);
        return *index ? out : NULL;
    }
    yk_tensor_release(found);
    return out;
}

yk_tensor *yk_max_dim(yk_tensor *x, int dim, bool keepdim, yk_tensor **index)
{
    static const yk__op op = {.name = "max_dim",
                              .backward = extreme_dim_backward,
                              .recorded = extreme_dim_recorded,
                              .describe = reduction_describe};
    return extreme_dim(&op, YK__AMAX, YK__ARGMAX, x, dim, keepdim, index);
}

yk_tensor *yk_min_dim(yk_tensor *x, int dim, bool keepdim, yk_tensor **index)
{
    static const yk__op op = {.name = "min_dim",
                              .backward = extreme_dim_backward,
                              .recorded = extreme_dim_recorded,
                              .describe = reduction_describe};
    return extreme_dim(&op, YK__AMIN, YK__ARGMIN, x, dim, keepdim, index);
}

/* ---- no gradient ---- */

/* The place in C order; keepdim: with as many dimensions, of size 1, as x has. */
static yk_tensor *place_among_all(const char *name, yk__reduce kernel, yk_tensor *x, bool keepdim)
{
    int64_t ones[YK_MAX_DIMS];
    yk_tensor *line = yk__raw_reshape(x, 1, &x->numel);
    yk_tensor *out = line ? yk__raw_reduce(name, kernel, line, 1, false, 0) : NULL, *shaped = out;
    for (int d = 0; d < x->ndim; d++)
        ones[d] = 1;
    if (out && keepdim) {
        shaped = yk__raw_reshape(out, x->ndim, ones);
        yk_tensor_release(out);
    }
    yk_tensor_release(line);
    return yk__scope_own(shaped);
}

static yk_tensor *place_of(const char *name, yk__reduce kernel, yk_tensor *x, int dim, bool keepdim)
{
    uint32_t mask;
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &x, 0))
        return NULL;
    if (x->dtype == YK_BOOL) {
        yk__fail(YK_ERR_DTYPE, "%s: not defined for bool tensors", name);
        return NULL;
    }
    if (dim == YK_NOT_GIVEN)
        return place_among_all(name, kernel, x, keepdim);
    return mask_of(name, x, &dim, 1, &mask) ? yk__scope_own(yk__raw_reduce(name, kernel, x, mask, keepdim, 0)) : NULL;
}

yk_tensor *yk_argmax(yk_tensor *x, int dim, bool keepdim)
{
    return place_of("argmax", YK__ARGMAX, x, dim, keepdim);
}

yk_tensor *yk_argmin(yk_tensor *x, int dim, bool keepdim)
{
    return place_of("argmin", YK__ARGMIN, x, dim, keepdim);
}

/* Bool; of uint8, which was PyTorch's first bool, uint8. */
static yk_tensor *any_or_all(const char *name, yk__reduce kernel, yk_tensor *x, const int *dims, int n_dims,
                             bool keepdim)
{
    uint32_t mask;
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &x, 0) || !mask_of(name, x, dims, n_dims, &mask))
        return NULL;
    yk_tensor *out = yk__raw_reduce(name, kernel, x, mask, keepdim, 0);
    return yk__scope_own(out && x->dtype == YK_U8 ? yk__narrow_to(out, YK_U8) : out);
}

yk_tensor *yk_any(yk_tensor *x)
{
    return any_or_all("any", YK__ANY, x, NULL, 0, false);
}

yk_tensor *yk_any_dims(yk_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    return any_or_all("any", YK__ANY, x, dims, n_dims, keepdim);
}

yk_tensor *yk_all(yk_tensor *x)
{
    return any_or_all("all", YK__ALL, x, NULL, 0, false);
}

yk_tensor *yk_all_dims(yk_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    return any_or_all("all", YK__ALL, x, dims, n_dims, keepdim);
}

yk_tensor *yk_count_nonzero(yk_tensor *x, const int *dims, int n_dims)
{
    uint32_t mask;
    YK__EVENT(YK__EVENT_OPERATION, "count_nonzero");
    if (!yk__op_begin("count_nonzero", 1, &x, 0) || !mask_of("count_nonzero", x, dims, n_dims, &mask))
        return NULL;
    YK__WITHIN_SCOPE(yk_sum_dims(yk_ne_scalar(x, 0), dims, n_dims, false));
}
