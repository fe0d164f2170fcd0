/*
 * norms.c - norms, standard deviations, log-sum-exp, counts. Layer: ops.
 */
#include <float.h>
#include <math.h>

#include "ops/cast_policy.h"
#include "ops/norms.h"

/* ---- norms ---- */

typedef struct norm_context {
    yk__tensor_spec x;
    uint32_t mask; /* of the dimensions; 0: all */
    double p;
} norm_context;

static void norm_describe(const void *context, yk__attributes *to)
{
    const norm_context *c = context;
    yk__attribute_whole(to, "mask", c->mask);
    yk__attribute_real(to, "p", c->p);
}

static bool mask_of(const char *name, const yk_tensor *x, const int *dims, int n_dims, uint32_t *mask)
{
    *mask = 0;
    for (int i = 0; dims && i < n_dims; i++) {
        int dim = dims[i];
        if (yk__wrap_dim(name, x, &dim))
            return false;
        if (*mask >> dim & 1) {
            yk__fail(YK_ERR_SHAPE, "%s: dimension %d is named twice", name, dim);
            return false;
        }
        *mask |= 1u << dim;
    }
    return true;
}

/* The norm of a wide x, with the reduced dimensions kept. */
static yk_tensor *raw_norm(yk_tensor *x, double p, uint32_t mask)
{
    bool signless = p == 0 || p == 2; /* the signs of x make no difference */
    yk_tensor *size = signless ? yk_tensor_retain(x) : yk__raw_unary("norm", YK__ABS, x, 0, 0);
    yk_tensor *terms = NULL, *sum = NULL, *out = NULL;
    if (size && isinf(p)) {
        out = yk__raw_reduce("norm", p > 0 ? YK__AMAX : YK__AMIN, size, mask, true, 0);
    } else if (size && p == 0) {
        yk_tensor *zero = yk__raw_scalar(0, (yk_dtype)x->dtype, yk__device_of(x));
        terms = yk__raw_binary("norm", YK__NE, x, zero, 1);
        sum = terms ? yk__raw_reduce("norm", YK__SUM, terms, mask, true, 0) : NULL;
        out = sum ? yk__raw_cast(sum, (yk_dtype)x->dtype) : NULL;
        yk_tensor_release(zero);
    } else if (size && p == 1) {
        out = yk__raw_reduce("norm", YK__SUM, size, mask, true, 0);
    } else if (size && p == 2) {
        sum = yk__raw_reduce("norm", YK__SUM_SQUARES, size, mask, true, 0);
        out = yk__raw_unary("norm", YK__SQRT, sum, 0, 0);
    } else if (size) {
        terms = yk__raw_unary("norm", YK__POW_SCALAR, size, p, 0);
        sum = terms ? yk__raw_reduce("norm", YK__SUM, terms, mask, true, 0) : NULL;
        out = yk__raw_unary("norm", YK__POW_SCALAR, sum, 1 / p, 0);
    }
    yk__release_all(3, (yk_tensor *[]){size, terms, sum});
    return out;
}

static yk_tensor *kept_dims(yk_tensor *x, const norm_context *c)
{
    int64_t shape[YK_MAX_DIMS];
    for (int d = 0; d < c->x.ndim; d++)
        shape[d] = !c->mask || (c->mask >> d & 1) ? 1 : c->x.shape[d];
    return x ? yk__raw_reshape(x, c->x.ndim, shape) : NULL;
}

/* 0 where `mask`, else x; takes over x. */
static yk_tensor *zero_where_taken(yk_tensor *mask, yk_tensor *x)
{
    yk_tensor *zero = x ? yk__raw_scalar(0, (yk_dtype)x->dtype, yk__device_of(x)) : NULL;
    yk_tensor *out = yk__raw_where(mask, zero, x);
    yk__release_all(2, (yk_tensor *[]){zero, x});
    return out;
}

yk_tensor *yk__norm_gradient(yk_tensor *x, yk_tensor *n, yk_tensor *g, double p, uint32_t mask)
{
    if (!x || !n || !g)
        return NULL;
    yk_tensor *sign = p == 2 ? NULL : yk__raw_unary("norm", YK__SIGN, x, 0, 0), *out = NULL, *parts[3] = {NULL};
    if (p == 1) {
        out = yk__raw_binary("norm", YK__MUL, sign, g, 1);
        yk_tensor_release(sign);
        return out;
    }
    yk_tensor *size = p == 2 ? NULL : yk__raw_unary("norm", YK__ABS, x, 0, 0);
    yk_tensor *zero = yk__raw_scalar(0, (yk_dtype)x->dtype, yk__device_of(x));
    if (isinf(p)) {
        parts[0] = yk__raw_binary("norm", YK__EQ, size, n, 1);
        parts[1] = parts[0] ? yk__raw_reduce("norm", YK__SUM, parts[0], mask, true, 0) : NULL;
        parts[2] = yk__raw_binary("norm", YK__DIV, g, parts[1], 1);
        yk_tensor *share = yk__raw_where(parts[0], parts[2], zero);
        out = yk__raw_binary("norm", YK__MUL, share, sign, 1);
        yk_tensor_release(share);
    } else {
        bool two = p == 2;
        parts[0] = two ? yk_tensor_retain(n) : yk__raw_unary("norm", YK__POW_SCALAR, n, p - 1, 0);
        parts[1] = yk__raw_binary("norm", YK__DIV, g, parts[0], 1);
        yk_tensor *none = yk__raw_binary("norm", YK__EQ, n, zero, 1), *power = NULL, *flat = NULL;
        parts[1] = zero_where_taken(none, parts[1]);
        if (two) {
            power = yk_tensor_retain(x);
        } else {
            flat = yk__raw_binary("norm", YK__EQ, x, zero, 1);
            yk_tensor *any = size ? yk__raw_unary("norm", YK__POW_SCALAR, size, p - 1, 0) : NULL;
            power = zero_where_taken(flat, yk__raw_binary("norm", YK__MUL, any, sign, 1));
            yk_tensor_release(any);
        }
        out = yk__raw_binary("norm", YK__MUL, power, parts[1], 1);
        yk__release_all(3, (yk_tensor *[]){none, power, flat});
    }
    yk__release_all(3, parts);
    yk__release_all(3, (yk_tensor *[]){sign, size, zero});
    return out;
}

static yk_status norm_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const norm_context *c = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *from[3] = {yk__saved(node, 0, &bad), yk__saved(node, 1, &bad), gout}, *wide[3];
    if (bad || c->p == 0) {
        if (!bad && (grads[0] = yk__spec_new(&c->x, yk__device_of(gout))))
            bad = yk__raw_fill(grads[0], 0);
        return bad ? bad : yk__status_of(grads[0]);
    }
    if ((bad = yk__operands(YK__SLOT_reduce, 0, 3, from, wide)))
        return bad;
    yk_tensor *n = kept_dims(wide[1], c), *g = kept_dims(wide[2], c);
    yk_tensor *out = yk__norm_gradient(wide[0], n, g, c->p, c->mask);
    yk__release_all(2, (yk_tensor *[]){n, g});
    yk__release_all(3, wide);
    grads[0] = yk__narrow_to(out, (yk_dtype)c->x.dtype);
    return yk__status_of(grads[0]);
}

yk_tensor *yk__recorded_norm_gradient(yk_tensor *x, yk_tensor *n, yk_tensor *g, double p, const int *dims, int count)
{
    if (!x || !n || !g)
        return NULL;
    yk_tensor *flat = yk_eq(n, yk__recorded_number(n, 0));
    if (p == 0)
        return yk_zeros_like(x);
    if (p == 1)
        return yk_mul(yk_sign(x), g);
    if (p == 2)
        return yk_mul(x, yk__recorded_where_not(flat, yk_div(g, n)));
    if (isinf(p)) {
        yk_tensor *hits = yk_eq(yk_abs(x), n), *share = yk_div(g, count ? yk_sum_dims(hits, dims, count, true) : hits);
        return yk_mul(yk__recorded_where(hits, share), yk_sign(x));
    }
    yk_tensor *power = yk_mul(yk_pow_scalar(yk_abs(x), p - 1), yk_sign(x));
    power = yk__recorded_where_not(yk_eq(x, yk__recorded_number(x, 0)), power);
    return yk_mul(power, yk__recorded_where_not(flat, yk_div(g, yk_pow_scalar(n, p - 1))));
}

static void norm_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const norm_context *c = yk__context(node);
    int64_t shape[YK_MAX_DIMS];
    int dims[YK_MAX_DIMS], count = 0;
    for (int d = 0; d < c->x.ndim; d++) {
        bool reduced = !c->mask || (c->mask >> d & 1);
        shape[d] = reduced ? 1 : c->x.shape[d];
        if (reduced)
            dims[count++] = d;
    }
    yk_tensor *x = yk__recorded_wide(yk__saved_in_graph(node, 0));
    yk_tensor *n = yk_reshape(yk__recorded_wide(yk__saved_in_graph(node, 1)), c->x.ndim, shape);
    yk_tensor *g = yk_reshape(yk__recorded_wide(gouts[0]), c->x.ndim, shape);
    grads[0] = yk_cast(yk__recorded_norm_gradient(x, n, g, c->p, dims, count), (yk_dtype)c->x.dtype);
}

yk_tensor *yk_norm(yk_tensor *x, double p, const int *dims, int n_dims, bool keepdim)
{
    static const yk__op op = {
        .name = "norm", .backward = norm_backward, .recorded = norm_recorded, .describe = norm_describe};
    norm_context c = {.p = p};
    yk_tensor *wide;
    YK__AUTOCAST(norm, 1, &x, yk_norm(x, p, dims, n_dims, keepdim));
    YK__EVENT(YK__EVENT_OPERATION, "norm");
    if (!yk__op_begin("norm", 1, &x, 0) || yk__expect_floating("norm", "input", x) ||
        !mask_of("norm", x, dims, n_dims, &c.mask))
        return NULL;
    if (isnan(p)) {
        yk__fail(YK_ERR_ARGUMENT, "norm: p is NaN");
        return NULL;
    }
    if (yk__operands(YK__SLOT_reduce, 0, 1, &x, &wide))
        return NULL;
    c.x = yk__spec_of(x);
    yk_tensor *kept = raw_norm(wide, p, c.mask), *out = NULL;
    yk_tensor_release(wide);
    if (kept) {
        int64_t shape[YK_MAX_DIMS];
        int ndim = 0;
        for (int d = 0; d < x->ndim; d++)
            if (keepdim || (c.mask && !(c.mask >> d & 1)))
                shape[ndim++] = kept->shape[d];
        out = yk__raw_reshape(kept, ndim, shape);
    }
    yk_tensor_release(kept);
    out = yk__narrow_to(out, (yk_dtype)x->dtype);
    yk_tensor *saved[2] = {x, out};
    return yk__record(out, &op, 1, &x, 2, saved, &c, sizeof(c));
}

/* ---- deviations ---- */

/* No gradient where the variance is 0: its root has none. */
static yk_tensor *root_of_variance(yk_tensor *variance)
{
    yk_tensor *zero = variance ? yk_scalar(0, YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)variance->dtype,
                                                         .device = yk__device_of(variance)))
                               : NULL;
    yk_tensor *none = yk_eq(variance, zero);
    return none ? yk_masked_fill(yk_sqrt(yk_masked_fill(variance, none, 1)), none, 0) : NULL;
}

/* True if squares of f32 were out of f32's range where the deviation may be within. This is asked only on CPUs, where
 * the values can be read at once, and PyTorch computes deviations in f64, too. On GPUs its squares are f32, as these
 * are. */
static bool is_out_of_range(const yk_tensor *variance)
{
    if (variance->dtype != YK_F32 || yk__device_of(variance).type != YK_CPU)
        return false;
    const float *v = (const float *)variance->data; /* a new tensor, without gaps */
    for (int64_t i = 0; i < variance->numel; i++) {
        if (v[i] < FLT_MIN || isinf(v[i]))
            return true;
    }
    return false;
}

/* The standard deviation of f16 and bf16 in f32, that of f32 that is out of range in f64: the variance is the square of
 * the result. */
static yk_tensor *deviation(yk_tensor *x, const int *dims, int n_dims, double correction, bool keepdim)
{
    yk_dtype dtype = (yk_dtype)x->dtype;
    yk_tensor *wide = yk__is_half(dtype) ? yk_cast(x, YK_F32) : x;
    yk_tensor *variance = wide ? yk_var_dims(wide, dims, n_dims, correction, keepdim) : NULL;
    if (variance && is_out_of_range(variance))
        variance = yk_var_dims(yk_cast(x, YK_F64), dims, n_dims, correction, keepdim);
    yk_tensor *out = root_of_variance(variance);
    return out ? yk_cast(out, dtype) : NULL;
}

yk_tensor *yk_std_dims(yk_tensor *x, const int *dims, int n_dims, double correction, bool keepdim)
{
    uint32_t mask;
    YK__EVENT(YK__EVENT_OPERATION, "std");
    if (!yk__op_begin("std", 1, &x, 0) || yk__expect_floating("std", "input", x) ||
        !mask_of("std", x, dims, n_dims, &mask))
        return NULL;
    YK__WITHIN_SCOPE(deviation(x, dims, n_dims, correction, keepdim));
}

yk_tensor *yk_std(yk_tensor *x)
{
    return yk_std_dims(x, NULL, 0, 1, false);
}

/* ---- log-sum-exp ---- */

static yk_tensor *logsumexp(yk_tensor *x, uint32_t mask, const int *dims, int n_dims, bool keepdim)
{
    if (!yk_dtype_is_floating((yk_dtype)x->dtype))
        x = yk_cast(x, YK_F32);
    if (!x)
        return NULL;
    if (x->numel == 0) /* the logarithm of 0 */
        return yk_log(yk_sum_dims(x, dims, n_dims, keepdim));
    yk_tensor *most = yk__scope_own(yk__raw_reduce("logsumexp", YK__AMAX, x, mask, true, 0));
    yk_tensor *finite = yk_is_finite(most);
    most = finite ? yk_where(finite, most, yk_zeros_like(most)) : NULL;
    yk_tensor *sum = yk_sum_dims(yk_exp(yk_sub(x, most)), dims, n_dims, keepdim);
    if (!sum)
        return NULL;
    return yk_add(yk_log(sum), keepdim ? most : yk_reshape(most, sum->ndim, sum->shape));
}

yk_tensor *yk_logsumexp(yk_tensor *x, const int *dims, int n_dims, bool keepdim)
{
    uint32_t mask;
    YK__AUTOCAST(logsumexp, 1, &x, yk_logsumexp(x, dims, n_dims, keepdim));
    YK__EVENT(YK__EVENT_OPERATION, "logsumexp");
    if (!yk__op_begin("logsumexp", 1, &x, 0) || !mask_of("logsumexp", x, dims, n_dims, &mask))
        return NULL;
    YK__WITHIN_SCOPE(logsumexp(x, mask, dims, n_dims, keepdim));
}

/* ---- counts ---- */

static yk_tensor *bincount(yk_tensor *x, yk_tensor *weights, int64_t minlength)
{
    int64_t length = minlength;
    if (x->numel) {
        int64_t most, least;
        if (yk__item_i64("bincount", yk_max(x), &most) || yk__item_i64("bincount", yk_min(x), &least))
            return NULL;
        if (least < 0) {
            yk__fail(YK_ERR_ARGUMENT, "bincount: %lld is negative", (long long)least);
            return NULL;
        }
        length = most >= length ? most + (most < INT64_MAX) : length; /* the largest number is too large below */
    }
    yk_dtype dtype = !weights ? YK_I64 : weights->dtype == YK_F32 ? YK_F32 : YK_F64;
    yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = dtype, .device = yk__device_of(x));
    yk_tensor *ones = weights ? yk_cast(weights, dtype) : yk_ones(x->ndim, x->shape, &options);
    yk_tensor *out = yk__tensor_check("bincount", 1, &length, &options) ? NULL : yk_zeros(1, &length, &options);
    return out && ones ? yk_index_add_(out, 0, x, ones, 1) : NULL;
}

yk_tensor *yk_bincount(yk_tensor *x, yk_tensor *weights, int64_t minlength)
{
    yk_tensor *inputs[2] = {x, weights};
    YK__EVENT(YK__EVENT_OPERATION, "bincount");
    if (!yk__op_begin("bincount", 2, inputs, 1u << 1))
        return NULL;
    char a[200], b[200];
    if (yk_dtype_is_floating((yk_dtype)x->dtype) || x->dtype == YK_BOOL) {
        yk__fail(YK_ERR_DTYPE, "bincount: input is %s, expected integers", yk_dtype_name((yk_dtype)x->dtype));
        return NULL;
    }
    if (x->ndim != 1 || minlength < 0 || (weights && !yk_same_shape(x, weights))) {
        yk__fail(YK_ERR_SHAPE, "bincount: input %s, weights %s, minlength %lld: expected (N,), (N,) and at least 0",
                 yk_shape_format(x, a, sizeof(a)), weights ? yk_shape_format(weights, b, sizeof(b)) : "none",
                 (long long)minlength);
        return NULL;
    }
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_tensor *whole = yk_cast(x, YK_I64), *out = whole ? bincount(whole, weights, minlength) : NULL;
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    yk_no_grad_end(before);
    return out;
}
