/*
 * cdist.c - distances between the rows of two matrices. Layer: ops.
 *
 * With p 2 and many rows they are the roots of a product, as in torch.cdist. All others are norms of differences, in
 * blocks where those are many, so that they are never in memory together.
 */
#include <math.h>

#include "ops/cast_policy.h"
#include "ops/norms.h"

static yk_tensor *differences(yk_tensor *x, yk_tensor *y, double p)
{
    yk_tensor *difference = yk_sub(yk_unsqueeze(x, -2), yk_unsqueeze(y, -3));
    return difference ? yk_norm(difference, p, (int[]){-1}, 1, false) : NULL;
}

/* Differences that are in memory at once: on the CPU few enough to stay in the second-level cache with their sizes. */
enum { CPU_BLOCK = 1 << 16, BLOCK = 1 << 26 };

/* Rows x (..., P, 1, M) and y (..., 1, R, M), their distances (..., P, R, 1) and gradients of all three like them;
 * without a gradient NULL. What is repeated along a dimension has size 1 there. */
enum { ROWS_X, ROWS_Y, DISTANCES, OF_X, OF_Y, OF_DISTANCES, BLOCKED };
typedef struct blocks {
    double p;
    int64_t most;
    int ndim;
    yk_status (*fn)(double p, yk_tensor *const *t);
} blocks;

/* Calls fn on blocks of at most `most` numbers: cuts `dim` into parts, and where one element of it is more than a block
 * cuts the next dimension, too. */
static yk_status each_block(const blocks *b, yk_tensor *const *whole, int dim)
{
    int64_t inner = whole[ROWS_X]->shape[b->ndim - 1], sizes[YK_MAX_DIMS];
    for (int d = 0; d < b->ndim; d++)
        sizes[d] = whole[whole[ROWS_X]->shape[d] == 1 ? ROWS_Y : ROWS_X]->shape[d];
    for (int d = dim + 1; d < b->ndim - 1; d++)
        inner *= sizes[d];
    int64_t step = inner < b->most ? b->most / inner : 1;
    for (int64_t at = 0; at < sizes[dim]; at += step) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *part[BLOCKED] = {NULL};
        yk_status status = YK_OK;
        for (int i = 0; i < BLOCKED && !status; i++)
            if (whole[i]) {
                int64_t left = sizes[dim] - at;
                part[i] =
                    whole[i]->shape[dim] == 1 ? whole[i] : yk_narrow(whole[i], dim, at, left < step ? left : step);
                status = yk__status_of(part[i]);
            }
        if (!status)
            status = inner > b->most && dim + 2 < b->ndim ? each_block(b, part, dim + 1) : b->fn(b->p, part);
        yk_scope_end(scope);
        if (status)
            return status;
    }
    return YK_OK;
}

static yk_status block_forward(double p, yk_tensor *const *t)
{
    yk_tensor *difference = yk_sub(t[ROWS_X], t[ROWS_Y]);
    yk_tensor *out = difference ? yk_norm(difference, p, (int[]){-1}, 1, true) : NULL;
    return out ? yk__raw_copy(t[DISTANCES], out) : yk__error_code();
}

static yk_status block_backward(double p, yk_tensor *const *t)
{
    int ndim = t[ROWS_X]->ndim;
    yk_tensor *difference = yk__raw_binary("cdist", YK__SUB, t[ROWS_X], t[ROWS_Y], 1);
    yk_tensor *g = yk__norm_gradient(difference, t[DISTANCES], t[OF_DISTANCES], p, 1u << (ndim - 1));
    yk_status status = yk__status_of(g);
    for (int i = OF_X; i <= OF_Y && !status; i++) {
        uint32_t repeated = 0;
        for (int d = 0; t[i] && d < ndim; d++)
            repeated |= t[i]->shape[d] == 1 && g->shape[d] != 1 ? 1u << d : 0;
        yk_tensor *sum = repeated ? yk__raw_reduce("cdist", YK__SUM, g, repeated, true, 0) : yk_tensor_retain(g);
        status = yk__status_of(sum);
        if (!status && t[i])
            status = yk__raw_binary_into("cdist", i == OF_X ? YK__ADD : YK__SUB, t[i], t[i], sum, 1);
        yk_tensor_release(sum);
    }
    yk__release_all(2, (yk_tensor *[]){difference, g});
    return status;
}

typedef struct distances_context {
    yk__tensor_spec of[2];
    double p;
    int64_t most;
} distances_context;

/* (..., P, M) as (..., P, 1, M), or (..., R, M) as (..., 1, R, M), in `ndim` dimensions. */
static yk_tensor *as_rows(yk_tensor *x, int at, int ndim)
{
    int64_t shape[YK_MAX_DIMS];
    x = yk_unsqueeze(x, at);
    for (int d = 0; x && d < ndim; d++)
        shape[d] = d < ndim - x->ndim ? 1 : x->shape[d - ndim + x->ndim];
    return x ? yk_expand(x, ndim, shape) : NULL;
}

static yk_status distances_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const distances_context *c = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *saved[3];
    for (int i = 0; i < 3; i++)
        saved[i] = yk__saved(node, i, &bad);
    if (bad)
        return bad;
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    uint32_t cast_types = yk__autocast_pause();
    blocks b = {.p = c->p, .most = c->most, .ndim = gout->ndim + 1, .fn = block_backward};
    yk_tensor *t[BLOCKED] = {
        as_rows(saved[0], -2, b.ndim), as_rows(saved[1], -3, b.ndim), yk_unsqueeze(saved[2], -1), NULL, NULL,
        yk_unsqueeze(gout, -1)};
    for (int i = 0; i < 2; i++)
        if (yk__needs_grad(node, i) && t[i] && (grads[i] = yk__spec_zeros(&c->of[i], yk__device_of(gout))))
            t[OF_X + i] = as_rows(grads[i], i ? -3 : -2, b.ndim);
    for (int i = 0; i < BLOCKED; i++)
        if (!bad && !t[i] && (i < OF_X || i > OF_Y || yk__needs_grad(node, i - OF_X)))
            bad = yk__error_code();
    if (!bad && c->p != 0)
        bad = each_block(&b, t, 0);
    yk__autocast_types = cast_types;
    yk_scope_end(scope);
    yk_no_grad_end(before);
    return bad;
}

/* All differences are in memory here. */
static void distances_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const distances_context *c = yk__context(node);
    yk_tensor *x = yk__saved_in_graph(node, 0), *y = yk__saved_in_graph(node, 1), *out = yk__saved_in_graph(node, 2);
    yk_tensor *difference = yk_sub(yk_unsqueeze(x, -2), yk_unsqueeze(y, -3));
    const int last = -1, of_rows[2] = {-2, -3};
    yk_tensor *g =
        yk__recorded_norm_gradient(difference, yk_unsqueeze(out, -1), yk_unsqueeze(gouts[0], -1), c->p, &last, 1);
    for (int i = 0; i < 2; i++) {
        if (yk__needs_grad(node, i)) {
            yk_tensor *sum = yk_sum_dims(g, &of_rows[i], 1, false);
            grads[i] = yk__recorded_sum_to(i ? yk_neg(sum) : sum, &c->of[i]);
        }
    }
}

/* Differences that are more than a block are never in memory together. f16 and bf16, whose gradients are sums that are
 * rounded once, are so only where no gradient is wanted. */
static yk_tensor *distances(yk_tensor *x, yk_tensor *y, double p)
{
    static const yk__op op = {.name = "cdist", .backward = distances_backward, .recorded = distances_recorded};
    distances_context c = {
        .of = {yk__spec_of(x), yk__spec_of(y)}, .p = p, .most = yk__device_of(x).type == YK_CPU ? CPU_BLOCK : BLOCK};
    yk_tensor *inputs[2] = {x, y}, *rows[2] = {yk_unsqueeze(x, -2), yk_unsqueeze(y, -3)};
    blocks b = {.p = p, .most = c.most, .fn = block_forward};
    int64_t shape[YK_MAX_DIMS], count = 1;
    if (!rows[0] || !rows[1] || yk__broadcast("cdist", rows[0], rows[1], &b.ndim, shape))
        return NULL;
    for (int d = 0; d < b.ndim; d++)
        count *= shape[d];
    bool record = yk__will_record(2, inputs);
    if (count <= b.most || (record && yk__is_half((yk_dtype)x->dtype)))
        return differences(x, y, p);
    bool before = yk_no_grad_begin();
    yk_tensor *out = yk__tensor_new(b.ndim - 1, shape, NULL, (yk_dtype)x->dtype, yk__device_of(x));
    yk_tensor *t[BLOCKED] = {as_rows(x, -2, b.ndim), as_rows(y, -3, b.ndim), out ? yk_unsqueeze(out, -1) : NULL};
    bool made = t[0] && t[1] && t[2] && !each_block(&b, t, 0);
    yk_no_grad_end(before);
    if (!made) {
        yk_tensor_release(out);
        return NULL;
    }
    yk_tensor *saved[3] = {x, y, out};
    return yk__record(out, &op, 2, inputs, 3, saved, &c, sizeof(c));
}

/* Rows of more than this many, on one side at least, are taken by a product, as torch.cdist does. */
enum { PRODUCT_ROWS = 25 };

/* The roots of |x|^2 - 2 x y^T + |y|^2: one product, of the rows -2 x, |x|^2, 1 and y, 1, |y|^2. */
static yk_tensor *roots_of_product(yk_tensor *x, yk_tensor *y)
{
    yk_tensor *rows[2] = {x, y}, *squares[2], *ones[2];
    for (int i = 0; i < 2; i++) {
        squares[i] = yk_sum_dims(yk_square(rows[i]), (int[]){-1}, 1, true);
        ones[i] = squares[i] ? yk_ones_like(squares[i]) : NULL;
    }
    if (!ones[0] || !ones[1])
        return NULL;
    yk_tensor *a = yk_cat((yk_tensor *[]){yk_mul_scalar(x, -2), squares[0], ones[0]}, 3, -1);
    yk_tensor *b = yk_cat((yk_tensor *[]){y, ones[1], squares[1]}, 3, -1);
    yk_tensor *out = yk_matmul(a, yk_transpose(b, -1, -2));
    return yk_sqrt(yk_clamp(out, 0, INFINITY));
}

typedef struct cdist_context {
    yk__tensor_spec of[2];
} cdist_context;

/* With r = g / distance, 0 where that is 0: the gradient of x is x times the row sums of r, less r y; y's likewise. */
static yk_tensor *cdist_gradient(yk_tensor *x, yk_tensor *y, yk_tensor *ratio)
{
    yk_tensor *sum = yk_sum_dims(ratio, (int[]){-1}, 1, true);
    return sum ? yk_sub(yk_mul(x, sum), yk_matmul(ratio, y)) : NULL;
}

static yk_status cdist_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const cdist_context *c = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *x = yk__saved(node, 0, &bad), *y = yk__saved(node, 1, &bad), *out = yk__saved(node, 2, &bad);
    if (bad)
        return bad;
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    uint32_t cast_types = yk__autocast_pause();
    yk_tensor *zero = yk__scope_own(yk__raw_scalar(0, (yk_dtype)out->dtype, yk__device_of(out)));
    yk_tensor *ratio = zero ? yk_masked_fill(yk_div(gout, out), yk_eq(out, zero), 0) : NULL;
    yk_tensor *made[2] = {NULL, NULL};
    if (ratio && yk__needs_grad(node, 0))
        made[0] = yk_tensor_retain(cdist_gradient(x, y, ratio));
    if (ratio && yk__needs_grad(node, 1))
        made[1] = yk_tensor_retain(cdist_gradient(y, x, yk_transpose(ratio, -1, -2)));
    yk__autocast_types = cast_types;
    yk_scope_end(scope);
    yk_no_grad_end(before);
    for (int i = 0; i < 2; i++)
        if (yk__needs_grad(node, i)) {
            grads[i] = made[i] ? yk__sum_to_spec(made[i], &c->of[i]) : NULL;
            bad = bad ? bad : yk__status_of(grads[i]);
        }
    return bad;
}

static void cdist_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const cdist_context *c = yk__context(node);
    yk_tensor *x = yk__saved_in_graph(node, 0), *y = yk__saved_in_graph(node, 1), *out = yk__saved_in_graph(node, 2);
    yk_tensor *ratio = yk_masked_fill(yk_div(gouts[0], out), yk_eq(out, yk__recorded_number(out, 0)), 0);
    if (ratio && yk__needs_grad(node, 0))
        grads[0] = yk__recorded_sum_to(cdist_gradient(x, y, ratio), &c->of[0]);
    if (ratio && yk__needs_grad(node, 1))
        grads[1] = yk__recorded_sum_to(cdist_gradient(y, x, yk_transpose(ratio, -1, -2)), &c->of[1]);
}

static yk_tensor *euclidean(yk_tensor *x, yk_tensor *y)
{
    static const yk__op op = {.name = "cdist", .backward = cdist_backward, .recorded = cdist_recorded};
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_tensor *out = roots_of_product(x, y);
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    yk_no_grad_end(before);
    yk_tensor *inputs[2] = {x, y}, *saved[3] = {x, y, out};
    if (!out || !yk__will_record(2, inputs))
        return out;
    cdist_context c = {{yk__spec_of(x), yk__spec_of(y)}};
    return yk__record(yk_tensor_retain(out), &op, 2, inputs, 3, saved, &c, sizeof(c));
}

yk_tensor *yk_cdist(yk_tensor *x, yk_tensor *y, double p)
{
    yk_tensor *inputs[2] = {x, y};
    YK__AUTOCAST(cdist, 2, inputs, yk_cdist(inputs[0], inputs[1], p));
    YK__EVENT(YK__EVENT_OPERATION, "cdist");
    if (!yk__op_begin("cdist", 2, inputs, 0) || yk__expect_floating("cdist", "x", x) ||
        yk__expect_dtype("cdist", "y", y, (yk_dtype)x->dtype))
        return NULL;
    char a[200], b[200];
    if (x->ndim < 2 || y->ndim < 2 || x->shape[x->ndim - 1] != y->shape[y->ndim - 1] || !(p >= 0)) {
        yk__fail(YK_ERR_SHAPE, "cdist: %s and %s with p %g, expected (..., P, M), (..., R, M) and p of at least 0",
                 yk_shape_format(x, a, sizeof(a)), yk_shape_format(y, b, sizeof(b)), p);
        return NULL;
    }
    if (x->shape[x->ndim - 1] == 0)
        p = 2; /* nothing is at distance 0; infinite p would look for the greatest */
    bool many = x->shape[x->ndim - 2] > PRODUCT_ROWS || y->shape[y->ndim - 2] > PRODUCT_ROWS;
    bool product = p == 2 && many && x->numel && y->numel && !yk__is_half((yk_dtype)x->dtype);
    YK__WITHIN_SCOPE(product ? euclidean(x, y) : distances(x, y, p));
}
