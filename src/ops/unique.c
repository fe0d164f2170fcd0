/*
 * unique.c - the different elements of a tensor, positions in a sorted one, elements that are repeated. Layer: ops.
 *
 * All are made of other operations: sorting, comparisons with the neighbour, sums of those along the line. Only what is
 * repeated has a gradient, that of yk_index_select.
 */
#include <math.h>

#include "ops/op.h"

/* ---- different ones ---- */

/* *to is `from` out of the scope that is about to end, unless `to` is NULL; false after a failure. */
static bool hand_out(yk_scope scope, yk_tensor *from, yk_tensor **to)
{
    if (!to)
        return true;
    *to = from ? yk_scope_return(scope, from) : NULL;
    return *to != NULL;
}

/* True at 0 and wherever a row differs from the one before; rows (N, ...). */
static yk_tensor *beginnings(yk_tensor *rows)
{
    int64_t n = rows->shape[0], one = n > 0;
    yk_tensor *first = yk_ones(1, &one, YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL, .device = yk__device_of(rows)));
    if (n < 2)
        return first;
    yk_tensor *other = yk_ne(yk_narrow(rows, 0, 1, n - 1), yk_narrow(rows, 0, 0, n - 1));
    yk_tensor *flat = rows->ndim > 1 ? yk_reshape(other, YK_SHAPE(n - 1, -1)) : other;
    yk_tensor *any = rows->ndim > 1 ? yk_any_dims(flat, (int[]){1}, 1, false) : flat;
    return yk_cat((yk_tensor *[]){first, any}, 2, 0);
}

typedef struct groups {
    yk_tensor *first;  /* the positions at which groups begin, i64 */
    yk_tensor *number; /* of each row the group's number, i64 */
} groups;

static groups groups_of(yk_tensor *begins)
{
    groups g = {yk_reshape(yk_nonzero(begins), YK_SHAPE(-1)), yk_add_scalar(yk_cumsum(begins, 0), -1)};
    return g;
}

/* The sizes of the groups. */
static yk_tensor *sizes_of(const groups *g)
{
    return g->first && g->first->numel ? yk_bincount(g->number, NULL, g->first->numel) : yk_zeros_like(g->first);
}

/* The numbers of the groups where their rows were before they were sorted by `order` (NULL: they were not). */
static yk_tensor *numbers_before(const groups *g, yk_tensor *order)
{
    return order ? yk_scatter_dim_(yk_zeros_like(g->number), 0, order, g->number) : g->number;
}

/* The first row of each group of `rows`, and what else is asked for; numbers in the given shape. */
static yk_tensor *distinct(yk_tensor *rows, yk_tensor *order, int ndim, const int64_t *shape, yk_tensor **inverse,
                           yk_tensor **counts, yk_scope scope)
{
    yk_tensor *sorted = order ? yk_index_select(rows, 0, order) : rows, *begins = sorted ? beginnings(sorted) : NULL;
    groups g = {NULL, NULL};
    if (begins)
        g = groups_of(begins);
    yk_tensor *out = g.first && g.number ? yk_index_select(sorted, 0, g.first) : NULL;
    bool fine = out != NULL;
    if (fine && inverse)
        fine = hand_out(scope, yk_reshape(numbers_before(&g, order), ndim, shape), inverse);
    if (fine && counts)
        fine = hand_out(scope, sizes_of(&g), counts);
    return fine ? yk_scope_return(scope, yk_contiguous(out)) : NULL;
}

static void clear_outs(yk_tensor **inverse, yk_tensor **counts)
{
    if (inverse)
        *inverse = NULL;
    if (counts)
        *counts = NULL;
}

/* The different elements of x as a line, sorted first or as it is. */
static yk_tensor *distinct_elements(const char *name, yk_tensor *x, bool sort, yk_tensor **inverse, yk_tensor **counts)
{
    clear_outs(inverse, counts);
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &x, 0))
        return NULL;
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_tensor *line = yk_reshape(yk_detach(x), YK_SHAPE(-1)), *order = line && sort ? yk_argsort(line, 0, false) : NULL;
    bool fine = line && (order || !sort);
    yk_tensor *out = fine ? distinct(line, order, x->ndim, x->shape, inverse, counts, scope) : NULL;
    if (!out)
        clear_outs(inverse, counts);
    yk_scope_end(scope);
    yk_no_grad_end(before);
    return out;
}

yk_tensor *yk_unique(yk_tensor *x, yk_tensor **inverse, yk_tensor **counts)
{
    return distinct_elements("unique", x, true, inverse, counts);
}

yk_tensor *yk_unique_consecutive(yk_tensor *x, yk_tensor **inverse, yk_tensor **counts)
{
    return distinct_elements("unique_consecutive", x, false, inverse, counts);
}

/* The order of rows (N, K) by their first element, of equal ones by their second, ...: stable sorts from the last on.
 */
static yk_tensor *lexicographic(yk_tensor *rows)
{
    int64_t n = rows->shape[0], columns = rows->shape[1];
    yk_tensor *order =
        yk_arange(0, (double)n, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(rows)));
    for (int64_t c = columns - 1; c >= 0 && order; c--) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *by = yk_argsort(yk_index_select(yk_select(rows, 1, c), 0, order), 0, false);
        yk_tensor *next = by ? yk_index_select(order, 0, by) : NULL;
        order = next ? yk_scope_return(scope, next) : NULL;
        yk_scope_end(scope);
    }
    return order;
}

yk_tensor *yk_unique_dim(yk_tensor *x, int dim, yk_tensor **inverse, yk_tensor **counts)
{
    clear_outs(inverse, counts);
    YK__EVENT(YK__EVENT_OPERATION, "unique_dim");
    if (!yk__op_begin("unique_dim", 1, &x, 0) || yk__wrap_dim("unique_dim", x, &dim))
        return NULL;
    if (x->ndim == 0)
        return yk_unique(x, inverse, counts);
    if (x->numel == 0) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "unique_dim: input %s has no elements", yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    int64_t n = x->shape[dim];
    yk_tensor *turned = yk_transpose(yk_detach(x), 0, dim), *rows = yk_reshape(turned, YK_SHAPE(n, -1));
    yk_tensor *order = rows ? lexicographic(rows) : NULL, *whole = order ? yk_contiguous(turned) : NULL;
    yk_tensor *out = whole ? distinct(whole, order, 1, &n, inverse, counts, scope) : NULL;
    if (!out)
        clear_outs(inverse, counts);
    yk_scope_end(scope);
    out = out && dim ? yk_contiguous(yk_transpose(out, 0, dim)) : out;
    yk_no_grad_end(before);
    return out;
}

/* ---- positions in a sorted tensor ---- */

/*
 * A search by halves for all values at once. `position` elements are surely before a value; each step looks at the
 * element `step - 1` further and takes the step where that one is before the value, too. NaN goes to the end, as in
 * PyTorch.
 */
static yk_tensor *search(yk_tensor *sorted, yk_tensor *values, bool right)
{
    int dim = values->ndim ? values->ndim - 1 : 0;
    int64_t n = sorted->shape[sorted->ndim - 1], step = 1;
    yk_tensor *position = yk_zeros_like_with(values, YK_OPTIONS(yk_like_options, .dtype = YK_I64));
    while (step <= n / 2)
        step *= 2;
    for (; step > 0 && n > 0 && position; step /= 2) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *next = yk_add_scalar(position, (double)step), *inside = yk_le_scalar(next, (double)n);
        yk_tensor *at = yk_clamp(yk_add_scalar(next, -1), -INFINITY, (double)(n - 1));
        yk_tensor *seen = sorted->ndim == 1 ? yk_take(sorted, at) : yk_gather_dim(sorted, dim, at);
        yk_tensor *stop = right ? yk_gt(seen, values) : yk_ge(seen, values);
        yk_tensor *chosen = yk_where(yk_logical_and(inside, yk_logical_not(stop)), next, position);
        position = chosen ? yk_scope_return(scope, chosen) : NULL;
        yk_scope_end(scope);
    }
    return position;
}

static yk_tensor *positions(const char *name, yk_tensor *sorted, yk_tensor *values, bool right)
{
    char a[200], b[200];
    yk_tensor *inputs[2] = {sorted, values};
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 2, inputs, 0))
        return NULL;
    bool fits = sorted->ndim == 1 || (sorted->ndim > 0 && sorted->ndim == values->ndim);
    for (int d = 0; fits && d < sorted->ndim - 1; d++)
        fits = sorted->shape[d] == values->shape[d];
    if (!fits) {
        yk__fail(YK_ERR_SHAPE,
                 "%s: the sorted tensor has shape %s and the values %s, expected (N), or (..., N) and (..., M)", name,
                 yk_shape_format(sorted, a, sizeof(a)), yk_shape_format(values, b, sizeof(b)));
        return NULL;
    }
    if (sorted->dtype != values->dtype) {
        yk__fail(YK_ERR_DTYPE, "%s: the sorted tensor is %s and the values %s; cast one", name,
                 yk_dtype_name((yk_dtype)sorted->dtype), yk_dtype_name((yk_dtype)values->dtype));
        return NULL;
    }
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_tensor *out = search(sorted, values, right);
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    yk_no_grad_end(before);
    return out;
}

yk_tensor *yk_searchsorted(yk_tensor *sorted, yk_tensor *values, bool right)
{
    return positions("searchsorted", sorted, values, right);
}

yk_tensor *yk_bucketize(yk_tensor *values, yk_tensor *boundaries, bool right)
{
    char text[200];
    if (boundaries && !yk__is_freed(boundaries) && boundaries->ndim != 1) {
        yk__fail(YK_ERR_SHAPE, "bucketize: boundaries %s, expected one dimension",
                 yk_shape_format(boundaries, text, sizeof(text)));
        return NULL;
    }
    return positions("bucketize", boundaries, values, right);
}

/* ---- repetitions ---- */

/* x as it is indexed, in the scope, and the dimension: all elements in a line where none is given. NULL on failure. */
static yk_tensor *repeated_begin(const char *name, yk_tensor *x, int *dim)
{
    if (*dim != YK_NOT_GIVEN && yk__wrap_dim(name, x, dim))
        return NULL;
    if (*dim != YK_NOT_GIVEN && x->ndim)
        return x;
    *dim = 0;
    return yk_reshape(x, YK_SHAPE(-1));
}

static yk_tensor *repeated_evenly(yk_tensor *x, int64_t repeats, int dim)
{
    yk_tensor *from = repeated_begin("repeat_interleave", x, &dim);
    int64_t shape[YK_MAX_DIMS + 1], n;
    if (!from)
        return NULL;
    n = from->shape[dim];
    if (repeats == 1)
        return yk_clone(from);
    if (from->ndim < YK_MAX_DIMS) { /* a view whose elements are repeated, and a copy of it */
        for (int d = 0; d <= from->ndim; d++)
            shape[d] = d <= dim ? from->shape[d] : d == dim + 1 ? repeats : from->shape[d - 1];
        yk_tensor *wide = yk_expand(yk_unsqueeze(from, dim + 1), from->ndim + 1, shape);
        memcpy(shape, from->shape, sizeof(shape[0]) * (size_t)from->ndim);
        shape[dim] = n * repeats;
        return yk_contiguous(yk_reshape(wide, from->ndim, shape));
    }
    yk_tensor *list = yk_arange(0, (double)(n * repeats), 1,
                                YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(x)));
    return yk_index_select(from, dim, yk_floor_divide_scalar(list, repeats ? (double)repeats : 1));
}

yk_tensor *yk_repeat_interleave_scalar(yk_tensor *x, int64_t repeats, int dim)
{
    YK__EVENT(YK__EVENT_OPERATION, "repeat_interleave");
    if (!yk__op_begin("repeat_interleave", 1, &x, 0))
        return NULL;
    int64_t all;
    if (repeats < 0 || __builtin_mul_overflow(x->numel, repeats, &all)) {
        yk__fail(YK_ERR_ARGUMENT, "repeat_interleave: %lld repeats of %lld elements", (long long)repeats,
                 (long long)x->numel);
        return NULL;
    }
    YK__WITHIN_SCOPE(repeated_evenly(x, repeats, dim));
}

/* The rows' numbers, each as often as it is repeated. */
static yk_tensor *repeated_unevenly(yk_tensor *x, yk_tensor *repeats, int dim)
{
    yk_tensor *from = repeated_begin("repeat_interleave", x, &dim);
    if (!from)
        return NULL;
    int64_t n = from->shape[dim];
    if (repeats->numel != n) {
        yk__fail(YK_ERR_SHAPE, "repeat_interleave: %lld numbers of repeats for a dimension of size %lld",
                 (long long)repeats->numel, (long long)n);
        return NULL;
    }
    yk_tensor *ends = yk_cumsum(yk_cast(repeats, YK_I64), 0), *least = n ? yk_min(repeats) : NULL;
    int64_t total = 0;
    if (n && (!ends || !least))
        return NULL;
    if (n && yk_item_i64(least) < 0) {
        yk__fail(YK_ERR_ARGUMENT, "repeat_interleave: %lld repeats", (long long)yk_item_i64(least));
        return NULL;
    }
    if (n)
        total = yk_item_i64(yk_select(ends, 0, n - 1));
    /* A row's number is that of the rows that end up to the position: a step where each of them does. */
    const yk_tensor_options like = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(x));
    yk_tensor *steps = yk_zeros(YK_SHAPE(total + 1), &like), *rows = yk_narrow(steps, 0, 0, total);
    if (n && total)
        rows = yk_narrow(yk_cumsum(yk_index_add_(steps, 0, ends, yk_ones(YK_SHAPE(n), &like), 1), 0), 0, 0, total);
    return yk_index_select(from, dim, rows);
}

yk_tensor *yk_repeat_interleave(yk_tensor *x, yk_tensor *repeats, int dim)
{
    char text[200];
    yk_tensor *inputs[2] = {x, repeats};
    YK__EVENT(YK__EVENT_OPERATION, "repeat_interleave");
    if (!yk__op_begin("repeat_interleave", 2, inputs, 0))
        return NULL;
    if (repeats->dtype != YK_I64 && repeats->dtype != YK_I32) {
        yk__fail(YK_ERR_DTYPE, "repeat_interleave: repeats are %s, expected int64 or int32",
                 yk_dtype_name((yk_dtype)repeats->dtype));
        return NULL;
    }
    if (repeats->ndim > 1) {
        yk__fail(YK_ERR_SHAPE, "repeat_interleave: repeats %s, expected one dimension or a number",
                 yk_shape_format(repeats, text, sizeof(text)));
        return NULL;
    }
    if (repeats->numel == 1)
        return yk_repeat_interleave_scalar(x, yk_item_i64(repeats), dim);
    YK__WITHIN_SCOPE(repeated_unevenly(x, repeats, dim));
}
