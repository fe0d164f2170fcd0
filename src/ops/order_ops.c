/*
 * order_ops.c - operations along one dimension: cumulative sums and products, sorting, and those that sort. Layer: ops.
 *
 * Sorting gives positions (the slot argsort); values are gathered from x by them, which carries the gradient.
 */
#include <math.h>
#include <stdlib.h>

#include "ops/cast_policy.h"

/* Checks x and wraps *dim; a scalar counts as one dimension. */
static bool dim_begin(const char *name, yk_tensor *x, int *dim)
{
    return yk__op_begin(name, 1, &x, 0) && yk__wrap_dim(name, x, dim) == YK_OK;
}

/* ---- cumsum, cumprod ---- */

typedef struct scan_context {
    int dim;
    yk__tensor_spec x;
} scan_context;

yk_tensor *yk__raw_scan(yk__scan op, yk_tensor *x, int dim, bool reverse)
{
    yk_tensor *wide = NULL;
    if (!x || yk__operands(YK__SLOT_scan, 1u, 1, &x, &wide))
        return NULL;
    yk_tensor *out = yk__tensor_like(wide, (yk_dtype)wide->dtype);
    if (out && out->numel) {
        yk__view vo = yk__view_of(out), vx = yk__view_of(wide);
        out = yk__tensor_if_ok(out, YK__SLOT(out, scan, op, &vo, &vx, dim, reverse));
    }
    yk_tensor_release(wide);
    return yk__narrow_to(out, (yk_dtype)x->dtype);
}

static yk_status cumsum_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const scan_context *c = yk__context(node);
    grads[0] = yk__narrow_to(yk__raw_scan(YK__CUMSUM, gout, c->dim, true), (yk_dtype)c->x.dtype);
    return yk__status_of(grads[0]);
}

/* x at one position of the dimension, as a view of size 1 there. */
static yk_tensor *at_place(yk_tensor *x, int dim, int64_t i, int64_t length)
{
    int64_t shape[YK_MAX_DIMS];
    memcpy(shape, x->shape, sizeof(shape));
    if (x->ndim)
        shape[dim] = length;
    return yk__tensor_view(x, x->ndim, shape, x->stride, x->ndim ? i * x->stride[dim] : 0);
}

/* The gradient where x has zeros: at k it is the sum over i >= k of g_i and the product of all x_j, j <= i, but x_k. */
static yk_status cumprod_one_by_one(yk_tensor *x, yk_tensor *g, int dim, yk_tensor *grad)
{
    int64_t n = x->ndim ? x->shape[dim] : 1;
    yk_status status = YK_OK;
    for (int64_t k = 0; k < n && !status; k++) {
        yk_tensor *others = yk__raw_clone(x), *position = others ? at_place(others, dim, k, 1) : NULL;
        yk_tensor *products =
            position && !yk__raw_fill(position, 1) ? yk__raw_scan(YK__CUMPROD, others, dim, false) : NULL;
        yk_tensor *terms = yk__raw_binary("cumprod", YK__MUL, products, g, 1);
        yk_tensor *tail = terms ? at_place(terms, dim, k, n - k) : NULL;
        yk_tensor *sum = tail ? yk__raw_reduce("cumprod", YK__SUM, tail, 1u << dim, true, 0) : NULL;
        yk_tensor *to = sum ? at_place(grad, dim, k, 1) : NULL;
        status = to ? yk__raw_copy(to, sum) : yk__status_of(NULL);
        yk__release_all(7, (yk_tensor *[]){others, position, products, terms, tail, sum, to});
    }
    return status;
}

/* The sum over i >= k of g_i out_i, divided by x_k. */
static yk_status cumprod_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const scan_context *c = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *from[3] = {yk__saved(node, 0, &bad), yk__saved(node, 1, &bad), gout}, *wide[3];
    if (bad || (bad = yk__operands(YK__SLOT_reduce, 0, 3, from, wide)))
        return bad;
    yk_tensor *grad = NULL;
    bool zeros;
    yk_status read = yk__has_zero("cumprod", wide[0], &zeros);
    if (!read && zeros) {
        grad = yk__tensor_like(wide[0], (yk_dtype)wide[0]->dtype);
        if (grad)
            grad = yk__tensor_if_ok(grad, cumprod_one_by_one(wide[0], wide[2], c->dim, grad));
    } else if (!read) {
        yk_tensor *terms = yk__raw_binary("cumprod", YK__MUL, wide[2], wide[1], 1);
        yk_tensor *sums = yk__raw_scan(YK__CUMSUM, terms, c->dim, true);
        grad = yk__raw_binary("cumprod", YK__DIV, sums, wide[0], 1);
        yk__release_all(2, (yk_tensor *[]){terms, sums});
    }
    yk__release_all(3, wide);
    grads[0] = yk__narrow_to(grad, (yk_dtype)c->x.dtype);
    return yk__status_of(grads[0]);
}

/* The sum of x from each place to the end. */
static yk_tensor *recorded_rest(yk_tensor *x, int dim)
{
    return x && x->ndim == 0 ? x : yk_flip(yk_cumsum(yk_flip(x, &dim, 1), dim), &dim, 1);
}

static void cumsum_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const scan_context *c = yk__context(node);
    grads[0] = yk_cast(recorded_rest(gouts[0], c->dim), (yk_dtype)c->x.dtype);
}

/* cumprod_one_by_one of recorded operations. */
static yk_tensor *recorded_one_by_one(yk_tensor *x, yk_tensor *g, int dim)
{
    if (x->ndim == 0)
        return g;
    int64_t n = x->shape[dim];
    yk_tensor **sums = yk__calloc((size_t)n, sizeof(*sums)), *one = yk_ones_like(yk_narrow(x, dim, 0, 1)), *out = NULL;
    for (int64_t k = 0; k < n && sums; k++) {
        yk_tensor *parts[3] = {yk_narrow(x, dim, 0, k), one, yk_narrow(x, dim, k + 1, n - k - 1)};
        yk_tensor *products = yk__error_code() ? NULL : yk_cumprod(yk_cat(parts, 3, dim), dim);
        sums[k] = yk_sum_dims(yk_narrow(yk_mul(products, g), dim, k, n - k), &dim, 1, true);
    }
    if (sums && !yk__error_code())
        out = yk_cat(sums, (int)n, dim);
    free(sums);
    return out;
}

static void cumprod_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const scan_context *c = yk__context(node);
    yk_tensor *x = yk__recorded_wide(yk__saved_in_graph(node, 0)),
              *out = yk__recorded_wide(yk__saved_in_graph(node, 1));
    bool zeros = false;
    if (!x || yk__has_zero("cumprod", x, &zeros))
        return;
    if (zeros) {
        grads[0] = yk_cast(recorded_one_by_one(x, yk__recorded_wide(gouts[0]), c->dim), (yk_dtype)c->x.dtype);
        return;
    }
    yk_tensor *terms = yk_mul(yk__recorded_wide(gouts[0]), out);
    grads[0] = yk_cast(yk_div(recorded_rest(terms, c->dim), x), (yk_dtype)c->x.dtype);
}

static void scan_describe(const void *context, yk__attributes *to)
{
    yk__attribute_whole(to, "dim", ((const scan_context *)context)->dim);
}

static yk_tensor *cumulate(const yk__op *op, yk__scan kernel, yk_tensor *x, int dim)
{
    YK__EVENT(YK__EVENT_OPERATION, op->name);
    if (!dim_begin(op->name, x, &dim))
        return NULL;
    yk_tensor *in = yk_dtype_is_floating((yk_dtype)x->dtype) ? yk_tensor_retain(x) : yk__raw_cast(x, YK_I64);
    yk_tensor *out = yk__raw_scan(kernel, in, dim, false);
    yk_tensor_release(in);
    scan_context c = {dim, yk__spec_of(x)};
    yk_tensor *saved[2] = {x, out};
    return yk__record(out, op, 1, &x, kernel == YK__CUMPROD ? 2 : 0, saved, &c, sizeof(c));
}

yk_tensor *yk_cumsum(yk_tensor *x, int dim)
{
    static const yk__op op = {
        .name = "cumsum", .backward = cumsum_backward, .recorded = cumsum_recorded, .describe = scan_describe};
    YK__AUTOCAST(cumsum, 1, &x, yk_cumsum(x, dim));
    return cumulate(&op, YK__CUMSUM, x, dim);
}

yk_tensor *yk_cumprod(yk_tensor *x, int dim)
{
    static const yk__op op = {.name = "cumprod", .backward = cumprod_backward, .recorded = cumprod_recorded};
    YK__AUTOCAST(cumprod, 1, &x, yk_cumprod(x, dim));
    return cumulate(&op, YK__CUMPROD, x, dim);
}

/* ---- sorting ---- */

typedef struct sort_context {
    int dim;
    bool descending;
} sort_context;

static void sort_describe(const void *context, yk__attributes *to)
{
    const sort_context *c = context;
    yk__attribute_whole(to, "dim", c->dim);
    yk__attribute_whole(to, "descending", c->descending);
}

/* Positions of the first k of each sorted line; k < 0: of all. */
static yk_tensor *raw_argsort(yk_tensor *x, int dim, bool descending, int64_t k)
{
    static const yk__op op = {.name = "argsort", .describe = sort_describe};
    yk_tensor *wide = NULL;
    if (yk__operands(YK__SLOT_argsort, 1u, 1, &x, &wide))
        return NULL;
    int64_t shape[YK_MAX_DIMS];
    memcpy(shape, x->shape, sizeof(shape));
    if (k >= 0 && x->ndim)
        shape[dim] = k;
    if (k == 1 && descending && x->ndim && x->numel && wide->dtype != YK_BOOL) { /* the first of the greatest */
        yk_tensor *position = yk__raw_reduce("topk", YK__ARGMAX, wide, 1u << dim, true, 0);
        yk_tensor_release(wide);
        return position;
    }
    yk_tensor *index = yk__tensor_new(x->ndim, shape, NULL, YK_I64, yk__device_of(x));
    if (index && index->numel) {
        yk__view vi = yk__view_of(index), vx = yk__view_of(wide);
        index = yk__tensor_if_ok(index, YK__SLOT(index, argsort, &vi, &vx, dim, descending));
    }
    yk_tensor_release(wide);
    const sort_context c = {dim, descending};
    if (index)
        yk__tell(&op, &c, 1, &x, 1, &index);
    return index;
}

yk_tensor *yk_argsort(yk_tensor *x, int dim, bool descending)
{
    YK__EVENT(YK__EVENT_OPERATION, "argsort");
    return dim_begin("argsort", x, &dim) ? yk__scope_own(raw_argsort(x, dim, descending, -1)) : NULL;
}

/* x by `index` along the dimension; of a scalar, its copy. */
static yk_tensor *values_at(yk_tensor *x, int dim, yk_tensor *index)
{
    return x->ndim ? yk_gather_dim(x, dim, index) : yk_clone(x);
}

/* The first k of the sorted line, and where they come from. */
static yk_tensor *sorted_part(const char *name, yk_tensor *x, int dim, bool descending, int64_t k, yk_tensor **index)
{
    if (index)
        *index = NULL;
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!dim_begin(name, x, &dim))
        return NULL;
    int64_t size = x->ndim ? x->shape[dim] : 1;
    if (k > size) {
        char text[200];
        yk__fail(YK_ERR_ARGUMENT, "%s: k is %lld, expected 0 to %lld, the size of dimension %d of %s", name,
                 (long long)k, (long long)size, dim, yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    yk_scope scope = yk_scope_begin();
    yk_tensor *order = yk__scope_own(raw_argsort(x, dim, descending, k)), *out = NULL;
    if (order)
        out = values_at(x, dim, order);
    out = out ? yk_scope_return(scope, out) : NULL;
    if (out && index)
        *index = yk_scope_return(scope, order);
    yk_scope_end(scope);
    return out;
}

yk_tensor *yk_sort(yk_tensor *x, int dim, bool descending, yk_tensor **index)
{
    return sorted_part("sort", x, dim, descending, -1, index);
}

yk_tensor *yk_topk(yk_tensor *x, int64_t k, int dim, bool largest, yk_tensor **index)
{
    if (k < 0) {
        if (index)
            *index = NULL;
        yk__fail(YK_ERR_ARGUMENT, "topk: k is %lld, expected 0 to the size of the dimension", (long long)k);
        return NULL;
    }
    return sorted_part("topk", x, dim, largest, k, index);
}

/* ---- the middle ---- */

static yk_tensor *positions(yk_tensor *like, double value)
{
    return yk_full(yk_ndim(like), yk_sizes(like), value,
                   YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk_tensor_device(like)));
}

/* The position in x of the median of each line, with size 1 there: the middle of the sorted line, or its first NaN. */
static yk_tensor *median_place(yk_tensor *x, int dim)
{
    int64_t size = x->shape[dim];
    yk_tensor *order = yk__scope_own(raw_argsort(x, dim, false, -1));
    yk_tensor *nans = yk_sum_dims(yk_ne(x, x), &dim, 1, true);
    if (!order || !nans)
        return NULL;
    yk_tensor *none = yk_eq(nans, positions(nans, 0)), *middle = positions(nans, (double)((size - 1) / 2));
    return yk_gather_dim(order, dim, yk_where(none, middle, yk_sub(positions(nans, (double)size), nans)));
}

yk_tensor *yk_median_dim(yk_tensor *x, int dim, bool keepdim, yk_tensor **index)
{
    if (index)
        *index = NULL;
    YK__EVENT(YK__EVENT_OPERATION, "median_dim");
    if (!dim_begin("median_dim", x, &dim))
        return NULL;
    if (x->ndim == 0) { /* one number is its own median, at 0 */
        yk_tensor *line = yk_reshape(x, 1, (int64_t[]){1});
        return line ? yk_median_dim(line, 0, false, index) : NULL;
    }
    char text[200];
    if (x->shape[dim] == 0) {
        yk__fail(YK_ERR_SHAPE, "median_dim: %s has no elements along dimension %d",
                 yk_shape_format(x, text, sizeof(text)), dim);
        return NULL;
    }
    yk_scope scope = yk_scope_begin();
    yk_tensor *position = median_place(x, dim), *out = position ? yk_gather_dim(x, dim, position) : NULL;
    if (out && !keepdim) {
        out = yk_squeeze(out, dim);
        position = yk_squeeze(position, dim);
    }
    out = out && position ? yk_scope_return(scope, out) : NULL;
    if (out && index)
        *index = yk_scope_return(scope, position);
    yk_scope_end(scope);
    return out;
}

/* Equal elements share the gradient: it is that of their mean. */
static yk_status median_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    yk_status bad = YK_OK;
    yk_tensor *x = yk__saved(node, 0, &bad), *out = yk__saved(node, 1, &bad);
    if (bad)
        return bad;
    yk_tensor *value = yk__raw_binary("median", YK__NE, out, out, 1);
    double nan = 0;
    if (!value || yk__item("median", value, &nan)) {
        yk_tensor_release(value);
        return yk__error_code();
    }
    yk_tensor *hits =
        nan == 1 ? yk__raw_binary("median", YK__NE, x, x, 1) : yk__raw_binary("median", YK__EQ, x, out, 1);
    yk_tensor *count = hits ? yk__raw_reduce("median", YK__SUM, hits, 0, false, 0) : NULL;
    yk_tensor *share = yk__raw_binary("median", YK__DIV, gout, count, 1);
    yk_tensor *zero = yk__raw_scalar(0, (yk_dtype)gout->dtype, yk__device_of(gout));
    grads[0] = yk__narrow_to(yk__raw_where(hits, share, zero), (yk_dtype)x->dtype);
    yk__release_all(5, (yk_tensor *[]){value, hits, count, share, zero});
    return yk__status_of(grads[0]);
}

static void median_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    yk_tensor *x = yk__saved_in_graph(node, 0), *out = yk__saved_in_graph(node, 1);
    yk_tensor *hits = yk_logical_or(yk_eq(x, out), yk_logical_and(yk_ne(x, x), yk_ne(out, out)));
    yk_tensor *share = yk_div(gouts[0], yk_sum(hits));
    grads[0] = x ? yk_cast(yk__recorded_where(hits, yk_expand(share, x->ndim, x->shape)), (yk_dtype)x->dtype) : NULL;
}

yk_tensor *yk_median(yk_tensor *x)
{
    static const yk__op op = {.name = "median", .backward = median_backward, .recorded = median_recorded};
    YK__EVENT(YK__EVENT_OPERATION, "median");
    if (!yk__op_begin("median", 1, &x, 0))
        return NULL;
    if (x->numel == 0) {
        yk__fail(YK_ERR_SHAPE, "median: the tensor has no elements");
        return NULL;
    }
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_tensor *flat = yk_reshape(x, 1, (int64_t[]){-1}), *found = flat ? yk_median_dim(flat, 0, false, NULL) : NULL;
    yk_tensor *out = found ? yk__raw_clone(found) : NULL;
    yk_scope_end(scope);
    yk_no_grad_end(before);
    yk_tensor *saved[2] = {x, out};
    return yk__record(out, &op, 1, &x, 2, saved, NULL, 0);
}

static yk_tensor *quantile(yk_tensor *x, double q, int dim, bool keepdim)
{
    int64_t last = x->shape[dim] - 1;
    double rank = q * (double)last, below = floor(rank);
    yk_tensor *sorted = yk_sort(x, dim, false, NULL);
    yk_tensor *low = sorted ? yk_narrow(sorted, dim, (int64_t)below, 1) : NULL;
    yk_tensor *high = sorted ? yk_narrow(sorted, dim, (int64_t)ceil(rank), 1) : NULL;
    yk_tensor *top = sorted ? yk_narrow(sorted, dim, last, 1) : NULL;
    yk_tensor *out = top ? yk_where(yk_ne(top, top), top, yk_lerp_scalar(low, high, rank - below)) : NULL;
    return out && !keepdim ? yk_squeeze(out, dim) : out;
}

static bool check_quantile(const char *name, yk_tensor *x, const double *qs, int n_qs, int *dim)
{
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!dim_begin(name, x, dim) || yk__expect_floating(name, "input", x))
        return false;
    char text[200];
    for (int i = 0; i < n_qs; i++) {
        if (!(qs[i] >= 0 && qs[i] <= 1)) {
            yk__fail(YK_ERR_ARGUMENT, "%s: q is %g, expected 0 to 1", name, qs[i]);
            return false;
        }
    }
    if (x->ndim > 0 && x->shape[*dim] == 0) {
        yk__fail(YK_ERR_SHAPE, "%s: %s has no elements along dimension %d", name,
                 yk_shape_format(x, text, sizeof(text)), *dim);
        return false;
    }
    return true;
}

yk_tensor *yk_quantile(yk_tensor *x, double q, int dim, bool keepdim)
{
    YK__AUTOCAST(quantile, 1, &x, yk_quantile(x, q, dim, keepdim));
    if (!check_quantile("quantile", x, &q, 1, &dim))
        return NULL;
    if (x->ndim == 0)
        return yk_quantile(yk_reshape(x, 1, (int64_t[]){1}), q, 0, false);
    YK__WITHIN_SCOPE(quantile(x, q, dim, keepdim));
}

/* The numbers as a tensor of x's device that has them along `dim` of x's dimensions. */
static yk_tensor *along(const yk_tensor *x, int dim, const void *numbers, int count, yk_dtype dtype)
{
    int64_t shape[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++)
        shape[d] = d == dim ? count : 1;
    return yk_to(yk_from_data(numbers, x->ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = dtype)),
                 yk__device_of(x));
}

/* The quantiles by one sort for all: rows of the elements below and above each q's position, and the fraction of the
 * distance between them. */
static yk_tensor *quantiles(yk_tensor *x, const int64_t *below, const int64_t *above, const double *part, int n_qs,
                            int dim, bool keepdim)
{
    int64_t last = x->shape[dim] - 1;
    yk_tensor *sorted = yk_sort(x, dim, false, NULL), *ends[2];
    const int64_t *from[2] = {below, above};
    for (int i = 0; i < 2; i++)
        ends[i] = yk_index_select(sorted, dim, yk_reshape(along(x, dim, from[i], n_qs, YK_I64), 1, (int64_t[]){n_qs}));
    yk_tensor *weight = yk_cast(along(x, dim, part, n_qs, YK_F64), (yk_dtype)x->dtype);
    yk_tensor *top = yk_narrow(sorted, dim, last, 1);
    yk_tensor *out = yk_where(yk_ne(top, top), top, yk_lerp(ends[0], ends[1], weight));
    int order[YK_MAX_DIMS], rest = 1; /* the numbers of q come first */
    out = out && keepdim ? yk_unsqueeze(out, dim + 1) : out;
    if (!out)
        return NULL;
    order[0] = dim;
    for (int d = 0; d < out->ndim; d++)
        if (d != dim)
            order[rest++] = d;
    return yk_contiguous(yk_permute(out, order));
}

yk_tensor *yk_quantile_list(yk_tensor *x, const double *qs, int n_qs, int dim, bool keepdim)
{
    YK__AUTOCAST(quantile, 1, &x, yk_quantile_list(x, qs, n_qs, dim, keepdim));
    if (n_qs < 1 || !qs) {
        if (yk__is_there("quantile", "tensor", x))
            yk__fail(YK_ERR_ARGUMENT, "quantile: %d numbers q%s, expected at least 1", n_qs, qs ? "" : " at NULL");
        return NULL;
    }
    if (!check_quantile("quantile", x, qs, n_qs, &dim))
        return NULL;
    if (x->ndim == 0)
        return yk_quantile_list(yk_reshape(x, 1, (int64_t[]){1}), qs, n_qs, 0, false);
    int64_t *below = yk__calloc((size_t)n_qs, 2 * sizeof(*below)), *above = below ? below + n_qs : NULL;
    double *part = below ? yk__calloc((size_t)n_qs, sizeof(*part)) : NULL;
    yk_tensor *out = NULL;
    for (int i = 0; part && i < n_qs; i++) {
        double rank = qs[i] * (double)(x->shape[dim] - 1);
        below[i] = (int64_t)floor(rank);
        above[i] = (int64_t)ceil(rank);
        part[i] = rank - floor(rank);
    }
    if (part) {
        yk_scope scope = yk_scope_begin();
        out = quantiles(x, below, above, part, n_qs, dim, keepdim);
        out = out ? yk_scope_return(scope, out) : NULL;
        yk_scope_end(scope);
    }
    free(below);
    free(part);
    return out;
}
