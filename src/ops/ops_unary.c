/*
 * ops_unary.c - elementwise operations of one tensor. Layer: ops.
 *
 * One row per operation: its kernel, what backward keeps (nothing, the input, or the output, which costs no memory as
 * it lives on anyway), and the derivative: either one binary kernel of (gradient, kept) or a function.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "ops/cast_policy.h"

enum keeps { KEEPS_NOTHING, KEEPS_X, KEEPS_OUT };

typedef struct unary_row {
    yk__op op;
    yk__unary kernel;
    enum keeps keeps;
    yk__binary slope; /* the derivative where rule is NULL */
    yk_tensor *(*rule)(yk_tensor *g, yk_tensor *kept, const double *p);
    yk_tensor *(*recorded)(yk_tensor *g, yk_tensor *kept, const double *p); /* the rule, of recorded operations */
} unary_row;

typedef struct unary_context {
    const unary_row *row;
    double p[2];
} unary_context;

static yk_status unary_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const unary_context *c = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *kept = yk__saved(node, 0, &bad);
    if (bad)
        return bad;
    grads[0] =
        c->row->rule ? c->row->rule(gout, kept, c->p) : yk__raw_binary(c->row->op.name, c->row->slope, gout, kept, 1);
    return yk__status_of(grads[0]);
}

static void unary_describe(const void *context, yk__attributes *to)
{
    const unary_context *c = context;
    yk__attribute_real(to, "a", c->p[0]);
    yk__attribute_real(to, "b", c->p[1]);
}

/* Halves are computed in f32. */
static void unary_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const unary_context *c = yk__context(node);
    yk_tensor *kept = c->row->keeps == KEEPS_NOTHING ? NULL : yk__saved_in_graph(node, 0), *g = gouts[0];
    yk_tensor *grad = c->row->recorded(yk__recorded_wide(g), yk__recorded_wide(kept), c->p);
    grads[0] = yk_cast(grad, (yk_dtype)g->dtype);
}

/* The operation, whose input was checked. */
static yk_tensor *unary_run(const unary_row *row, yk_tensor *x, double p0, double p1)
{
    yk_tensor *out = yk__raw_unary(row->op.name, row->kernel, x, p0, p1);
    unary_context c = {row, {p0, p1}};
    yk_tensor *kept = row->keeps == KEEPS_X ? x : row->keeps == KEEPS_OUT ? out : NULL;
    return yk__record(out, &row->op, 1, &x, 1, &kept, &c, sizeof(c));
}

static yk_tensor *unary_apply(const unary_row *row, yk_tensor *x, double p0, double p1)
{
    YK__EVENT(YK__EVENT_OPERATION, row->op.name);
    return yk__op_begin(row->op.name, 1, &x, 0) ? unary_run(row, x, p0, p1) : NULL;
}

/* ---- rules: g is the gradient of the result, k what was kept ---- */

/* g slope factor; takes the slope. */
static yk_tensor *g_times_factor(yk_tensor *g, yk_tensor *slope, double factor)
{
    yk_tensor *product = yk__raw_binary("backward", YK__MUL, g, slope, 1);
    yk_tensor_release(slope);
    if (factor == 1)
        return product;
    yk_tensor *out = yk__raw_unary("backward", YK__MUL_SCALAR, product, factor, 0);
    yk_tensor_release(product);
    return out;
}

/* g f(k), with f a unary kernel, times a factor. */
static yk_tensor *g_times(yk_tensor *g, yk__unary f, yk_tensor *k, double p0, double factor)
{
    return g_times_factor(g, yk__raw_unary("backward", f, k, p0, 0), factor);
}

static yk_tensor *neg_rule(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)k, (void)p;
    return yk__raw_unary("neg", YK__NEG, g, 0, 0);
}

static yk_tensor *sqrt_rule(yk_tensor *g, yk_tensor *out, const double *p)
{
    (void)p;
    return g_times(g, YK__RECIPROCAL, out, 0, 0.5);
}

static yk_tensor *rsqrt_rule(yk_tensor *g, yk_tensor *out, const double *p)
{
    (void)p;
    return g_times(g, YK__POW_SCALAR, out, 3, -0.5);
}

static yk_tensor *reciprocal_rule(yk_tensor *g, yk_tensor *out, const double *p)
{
    (void)p;
    return g_times(g, YK__POW_SCALAR, out, 2, -1);
}

static yk_tensor *sin_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    (void)p;
    return g_times(g, YK__COS, x, 0, 1);
}

static yk_tensor *cos_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    (void)p;
    return g_times(g, YK__SIN, x, 0, -1);
}

static yk_tensor *add_scalar_rule(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)k, (void)p;
    return yk_tensor_retain(g);
}

static yk_tensor *mul_scalar_rule(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)k;
    return yk__raw_unary("mul", YK__MUL_SCALAR, g, p[0], 0);
}

/* For float16 PyTorch takes no root in place of a power of a half: (-inf)^0.5 is inf, and (-0)^-0.5, too. */
static bool takes_plain_power(const yk_tensor *x, double exponent)
{
    return x->dtype == YK_F16 && fabs(exponent) == 0.5;
}

static yk_tensor *pow_scalar_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    if (p[0] == 0)
        return yk__tensor_full_like(g, 0);
    if (p[0] == 2) /* x^1 by the kernel of powers would cost a logarithm */
        return g_times(g, YK__MUL_SCALAR, x, 2, 1);
    if (!takes_plain_power(x, p[0] - 1))
        return g_times(g, YK__POW_SCALAR, x, p[0] - 1, p[0]);
    yk_tensor *exponent = yk__raw_scalar(p[0] - 1, YK_F32, yk__device_of(x));
    yk_tensor *power = yk__raw_binary("pow", YK__POW, x, exponent, 1), *product = g_times_factor(g, power, p[0]);
    yk_tensor_release(exponent);
    return product;
}

static yk_tensor *zero_rule(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)k, (void)p;
    return yk__tensor_full_like(g, 0);
}

/* g where low < x < high, else 0; an infinite bound is none, so x may be infinite there. */
static yk_tensor *clamp_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    if (!(p[0] <= p[1]))
        return yk__tensor_full_like(g, 0);
    if (p[0] == -INFINITY)
        return p[1] == INFINITY ? yk_tensor_retain(g) : yk__raw_binary("clamp", YK__BELOW_GRAD, g, x, p[1]);
    yk_tensor *out = yk__raw_binary("clamp", YK__ABOVE_GRAD, g, x, p[0]);
    if (!out || p[1] == INFINITY)
        return out;
    return yk__tensor_if_ok(out, yk__raw_binary_into("clamp", YK__BELOW_GRAD, out, out, x, p[1]));
}

/* d log1p / dx = 1 / (1 + x) */
static yk_tensor *log1p_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    (void)p;
    yk_tensor *shifted = yk__raw_unary("log1p", YK__ADD_SCALAR, x, 1, 0);
    yk_tensor *out = yk__raw_binary("log1p", YK__DIV, g, shifted, 1);
    yk_tensor_release(shifted);
    return out;
}

/* d expm1 / dx = expm1 + 1 */
static yk_tensor *expm1_rule(yk_tensor *g, yk_tensor *out, const double *p)
{
    (void)p;
    return g_times(g, YK__ADD_SCALAR, out, 1, 1);
}

/* d erf / dx = 2 / sqrt(pi) exp(-x^2) */
static yk_tensor *erf_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    (void)p;
    yk_tensor *square = yk__raw_unary("erf", YK__POW_SCALAR, x, 2, 0);
    yk_tensor *negative = square ? yk__raw_unary("erf", YK__NEG, square, 0, 0) : NULL;
    yk_tensor *out = g_times(g, YK__EXP, negative, 0, M_2_SQRTPI);
    yk__release_all(2, (yk_tensor *[]){square, negative});
    return out;
}

/* ---- the same rules of recorded operations, for gradients of gradients ---- */

static yk_tensor *neg_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)k, (void)p;
    return yk_neg(g);
}

static yk_tensor *abs_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_mul(g, yk_sign(k));
}

static yk_tensor *exp_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_mul(g, k);
}

static yk_tensor *log_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_div(g, k);
}

static yk_tensor *sqrt_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_mul_scalar(yk_div(g, k), 0.5);
}

static yk_tensor *rsqrt_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_mul_scalar(yk_mul(g, yk_mul(yk_square(k), k)), -0.5);
}

static yk_tensor *reciprocal_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_neg(yk_mul(g, yk_square(k)));
}

static yk_tensor *sin_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_mul(g, yk_cos(k));
}

static yk_tensor *cos_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_neg(yk_mul(g, yk_sin(k)));
}

static yk_tensor *log1p_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_div(g, yk_add_scalar(k, 1));
}

static yk_tensor *expm1_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_mul(g, yk_add_scalar(k, 1));
}

static yk_tensor *erf_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_mul(g, yk_mul_scalar(yk_exp(yk_neg(yk_square(k))), M_2_SQRTPI));
}

static yk_tensor *tanh_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_sub(g, yk_mul(g, yk_square(k)));
}

static yk_tensor *sigmoid_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_mul(g, yk_sub(k, yk_square(k)));
}

static yk_tensor *relu_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk__recorded_relu(g, k);
}

static yk_tensor *zero_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)k, (void)p;
    return yk_zeros_like(g);
}

static yk_tensor *add_scalar_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)k, (void)p;
    return g;
}

static yk_tensor *mul_scalar_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)k;
    return yk_mul_scalar(g, p[0]);
}

static yk_tensor *pow_scalar_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{

    return p[0] == 0   ? yk_zeros_like(g)
           : p[0] == 2 ? yk_mul(g, yk_mul_scalar(k, 2))
                       : yk_mul(g, yk_mul_scalar(yk_pow_scalar(k, p[0] - 1), p[0]));
}

/* d gelu / dx = Phi(x) + x phi(x), of the normal distribution. */
static yk_tensor *gelu_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    yk_tensor *below = yk_mul_scalar(yk_add_scalar(yk_erf(yk_mul_scalar(k, M_SQRT1_2)), 1), 0.5);
    yk_tensor *density = yk_mul_scalar(yk_exp(yk_mul_scalar(yk_square(k), -0.5)), 0.5 * M_2_SQRTPI * M_SQRT1_2);
    return yk_mul(g, yk_add(below, yk_mul(k, density)));
}

static yk_tensor *clamp_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    if (!(p[0] <= p[1]))
        return yk_zeros_like(g);
    if (p[0] != -INFINITY)
        g = yk__recorded_where(yk_gt(k, yk__recorded_number(k, p[0])), g);
    return p[1] == INFINITY ? g : yk__recorded_where(yk_lt(k, yk__recorded_number(k, p[1])), g);
}

/* ---- activations with a slope: p[0] ---- */

static yk_tensor *leaky_relu_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    return yk__raw_binary("leaky_relu", YK__LEAKY_RELU_GRAD, g, x, p[0]);
}

static yk_tensor *leaky_relu_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    return yk_where(yk_gt(k, yk__recorded_number(k, 0)), g, yk_mul_scalar(g, p[0]));
}

static yk_tensor *elu_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    return yk__raw_binary("elu", YK__ELU_GRAD, g, x, p[0]);
}

static yk_tensor *elu_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    yk_tensor *above = yk_gt(k, yk__recorded_number(k, 0)), *below = yk__recorded_where_not(above, k);
    return yk_where(above, g, yk_mul(g, yk_mul_scalar(yk_exp(below), p[0]))); /* of what is above e^x is not taken */
}

static yk_tensor *softplus_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    yk_tensor *slope = yk__raw_unary("softplus", YK__SOFTPLUS_SLOPE, x, p[0], p[1]);
    return g_times_factor(g, slope, 1);
}

static yk_tensor *softplus_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    yk_tensor *scaled = yk_mul_scalar(k, p[0]), *linear = yk_gt(scaled, yk__recorded_number(k, p[1]));
    return yk_where(linear, g, yk_mul(g, yk_sigmoid(scaled)));
}

/* ---- steps and gaps at a threshold ---- */

static yk_tensor *threshold_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    return yk__raw_binary("threshold", YK__THRESHOLD_GRAD, g, x, p[0]);
}

static yk_tensor *threshold_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    return yk__recorded_where_not(yk_le(k, yk__recorded_number(k, p[0])), g);
}

static yk_tensor *shrink_rule(yk_tensor *g, yk_tensor *x, const double *p)
{
    return yk__raw_binary("shrink", YK__SHRINK_GRAD, g, x, p[0]);
}

static yk_tensor *shrink_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    return yk__recorded_where_not(yk_le(yk_abs(k), yk__recorded_number(k, p[0])), g);
}

/* ---- activations without ---- */

static yk_tensor *silu_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    yk_tensor *s = yk_sigmoid(k), *rest = yk_add_scalar(yk_neg(s), 1);
    return yk_mul(g, yk_mul(s, yk_add_scalar(yk_mul(k, rest), 1)));
}

static yk_tensor *mish_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    yk_tensor *t = yk_tanh(yk_softplus(k, 1, 20)), *rest = yk_add_scalar(yk_neg(yk_square(t)), 1);
    return yk_mul(g, yk_add(t, yk_mul(yk_mul(k, yk_sigmoid(k)), rest)));
}

static yk_tensor *log_sigmoid_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    return yk_mul(g, yk_sigmoid(yk_neg(k)));
}

static yk_tensor *hardswish_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    yk_tensor *between = yk_mul(g, yk_mul_scalar(yk_add_scalar(yk_mul_scalar(k, 2), 3), 1.0 / 6));
    yk_tensor *upper = yk_where(yk_gt(k, yk__recorded_number(k, 3)), g, between);
    return yk__recorded_where_not(yk_lt(k, yk__recorded_number(k, -3)), upper);
}

static yk_tensor *hardsigmoid_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    yk_tensor *inside = yk_logical_and(yk_gt(k, yk__recorded_number(k, -3)), yk_lt(k, yk__recorded_number(k, 3)));
    return yk__recorded_where(inside, yk_mul_scalar(g, 1.0 / 6));
}

/* With t = tanh(u), u = c (x + 0.044715 x^3): ((1 + t) + x (1 - t^2) u') / 2. */
static yk_tensor *gelu_tanh_recorded(yk_tensor *g, yk_tensor *k, const double *p)
{
    (void)p;
    const double c = M_2_SQRTPI * M_SQRT1_2, cubic = 0.044715;
    yk_tensor *square = yk_square(k), *u = yk_mul_scalar(yk_mul(k, yk_add_scalar(yk_mul_scalar(square, cubic), 1)), c);
    yk_tensor *t = yk_tanh(u), *slope = yk_mul_scalar(yk_add_scalar(yk_mul_scalar(square, 3 * cubic), 1), c);
    yk_tensor *bend = yk_mul(yk_mul(k, slope), yk_add_scalar(yk_neg(yk_square(t)), 1));
    return yk_mul(g, yk_mul_scalar(yk_add(yk_add_scalar(t, 1), bend), 0.5));
}

/* ---- rows ---- */

#define UNARY_ROW(label, kernel, keeps, slope, rule, again)                                                            \
    static const unary_row label##_row = {                                                                             \
        {.name = #label, .backward = unary_backward, .recorded = unary_recorded, .describe = unary_describe},          \
        YK__##kernel,                                                                                                  \
        KEEPS_##keeps,                                                                                                 \
        slope,                                                                                                         \
        rule,                                                                                                          \
        again##_recorded};
#define UNARY(name, kernel, keeps, slope, rule, again)                                                                 \
    UNARY_ROW(name, kernel, keeps, slope, rule, again)                                                                 \
    yk_tensor *yk_##name(yk_tensor *x)                                                                                 \
    {                                                                                                                  \
        return unary_apply(&name##_row, x, 0, 0);                                                                      \
    }
/* An operation that is on a list of autocast's (cast_policy.h). The casting part is a function of its own: x needs no
 * address where autocast is off. */
#define UNARY_CAST(name, kernel, keeps, slope, rule, again)                                                            \
    UNARY_ROW(name, kernel, keeps, slope, rule, again)                                                                 \
    static __attribute__((noinline, cold)) yk_tensor *name##_under_autocast(yk_tensor *x)                              \
    {                                                                                                                  \
        YK__AUTOCAST(name, 1, &x, yk_##name(x));                                                                       \
        return unary_apply(&name##_row, x, 0, 0);                                                                      \
    }                                                                                                                  \
    yk_tensor *yk_##name(yk_tensor *x)                                                                                 \
    {                                                                                                                  \
        if (__builtin_expect(yk__autocast_types != 0, 0))                                                              \
            return name##_under_autocast(x);                                                                           \
        return unary_apply(&name##_row, x, 0, 0);                                                                      \
    }
#define BY_RULE YK__MUL /* not read */

UNARY(neg, NEG, NOTHING, BY_RULE, neg_rule, neg)
UNARY(abs, ABS, X, YK__ABS_GRAD, NULL, abs)
UNARY_CAST(exp, EXP, OUT, YK__MUL, NULL, exp)
UNARY_CAST(log, LOG, X, YK__DIV, NULL, log)
UNARY(sqrt, SQRT, OUT, BY_RULE, sqrt_rule, sqrt)
UNARY_CAST(rsqrt, RSQRT, OUT, BY_RULE, rsqrt_rule, rsqrt)
UNARY_CAST(reciprocal, RECIPROCAL, OUT, BY_RULE, reciprocal_rule, reciprocal)
UNARY(sin, SIN, X, BY_RULE, sin_rule, sin)
UNARY(cos, COS, X, BY_RULE, cos_rule, cos)
UNARY_CAST(log1p, LOG1P, X, BY_RULE, log1p_rule, log1p)
UNARY_CAST(expm1, EXPM1, OUT, BY_RULE, expm1_rule, expm1)
UNARY(erf, ERF, X, BY_RULE, erf_rule, erf)
UNARY(tanh, TANH, OUT, YK__TANH_GRAD, NULL, tanh)
UNARY(sigmoid, SIGMOID, OUT, YK__SIGMOID_GRAD, NULL, sigmoid)
UNARY(relu, RELU, OUT, YK__RELU_GRAD, NULL, relu)
UNARY_ROW(gelu, GELU, X, YK__GELU_GRAD, NULL, gelu)

UNARY_ROW(gelu_tanh, GELU_TANH, X, YK__GELU_TANH_GRAD, NULL, gelu_tanh)
UNARY_ROW(silu, SILU, X, YK__SILU_GRAD, NULL, silu)
UNARY_ROW(mish, MISH, X, YK__MISH_GRAD, NULL, mish)
UNARY_ROW(log_sigmoid, LOG_SIGMOID, X, YK__LOG_SIGMOID_GRAD, NULL, log_sigmoid)
UNARY_ROW(hardswish, HARDSWISH, X, YK__HARDSWISH_GRAD, NULL, hardswish)
UNARY_ROW(hardsigmoid, HARDSIGMOID, X, YK__HARDSIGMOID_GRAD, NULL, hardsigmoid)
UNARY_ROW(leaky_relu, LEAKY_RELU, X, BY_RULE, leaky_relu_rule, leaky_relu)
UNARY_ROW(elu, ELU, X, BY_RULE, elu_rule, elu)
UNARY_ROW(softplus, SOFTPLUS, X, BY_RULE, softplus_rule, softplus)
UNARY_ROW(threshold, THRESHOLD, X, BY_RULE, threshold_rule, threshold)
UNARY_ROW(hardshrink, HARDSHRINK, X, BY_RULE, shrink_rule, shrink)
UNARY_ROW(softshrink, SOFTSHRINK, X, BY_RULE, shrink_rule, shrink)

/* Steps are flat wherever they have a slope: their gradient is zero, not none, as in PyTorch. */
UNARY_ROW(sign, SIGN, NOTHING, BY_RULE, zero_rule, zero)
UNARY(floor, FLOOR, NOTHING, BY_RULE, zero_rule, zero)
UNARY(ceil, CEIL, NOTHING, BY_RULE, zero_rule, zero)
UNARY(round, ROUND, NOTHING, BY_RULE, zero_rule, zero)

UNARY_ROW(square, POW_SCALAR, X, BY_RULE, pow_scalar_rule, pow_scalar)
UNARY_ROW(add_scalar, ADD_SCALAR, NOTHING, BY_RULE, add_scalar_rule, add_scalar)
UNARY_ROW(mul_scalar, MUL_SCALAR, NOTHING, BY_RULE, mul_scalar_rule, mul_scalar)
UNARY_ROW(pow_scalar, POW_SCALAR, X, BY_RULE, pow_scalar_rule, pow_scalar)
UNARY_ROW(clamp, CLAMP, X, BY_RULE, clamp_rule, clamp)
static const unary_row clamp_nan_row = {
    {.name = "clamp", .backward = unary_backward, .recorded = unary_recorded, .describe = unary_describe},
    YK__MUL_SCALAR,
    KEEPS_NOTHING,
    BY_RULE,
    zero_rule,
    zero_recorded};

yk_tensor *yk_gelu(yk_tensor *x)
{
    YK__EVENT(YK__EVENT_OPERATION, "gelu");
    if (!yk__op_begin("gelu", 1, &x, 0) || yk__expect_floating("gelu", "input", x))
        return NULL;
    return unary_run(&gelu_row, x, 0, 0);
}

static yk_tensor *activate(const unary_row *row, yk_tensor *x, double p0, double p1)
{
    if (!yk__op_begin(row->op.name, 1, &x, 0) || yk__expect_floating(row->op.name, "input", x))
        return NULL;
    return unary_run(row, x, p0, p1);
}

#define ACTIVATION(name)                                                                                               \
    yk_tensor *yk_##name(yk_tensor *x)                                                                                 \
    {                                                                                                                  \
        return activate(&name##_row, x, 0, 0);                                                                         \
    }
ACTIVATION(gelu_tanh)
ACTIVATION(silu)
ACTIVATION(mish)
ACTIVATION(log_sigmoid)
ACTIVATION(hardswish)
ACTIVATION(hardsigmoid)

yk_tensor *yk_leaky_relu(yk_tensor *x, double negative_slope)
{
    return yk__check_number("leaky_relu", "negative_slope", negative_slope, -DBL_MAX, DBL_MAX)
               ? NULL
               : activate(&leaky_relu_row, x, negative_slope, 0);
}

yk_tensor *yk_elu(yk_tensor *x, double alpha)
{
    return yk__check_number("elu", "alpha", alpha, -DBL_MAX, DBL_MAX) ? NULL : activate(&elu_row, x, alpha, 0);
}

yk_tensor *yk_softplus(yk_tensor *x, double beta, double threshold)
{
    return yk__check_positive("softplus", "beta", beta) ||
                   yk__check_number("softplus", "threshold", threshold, -DBL_MAX, INFINITY)
               ? NULL
               : activate(&softplus_row, x, beta, threshold);
}

/* Those who listen to operations hear what these are composed of (shrink.c). */

yk_tensor *yk__threshold_at_once(yk_tensor *x, double threshold, double value)
{
    return unary_run(&threshold_row, x, threshold, value);
}

yk_tensor *yk__hardshrink_at_once(yk_tensor *x, double lambd)
{
    return unary_run(&hardshrink_row, x, lambd, 0);
}

yk_tensor *yk__softshrink_at_once(yk_tensor *x, double lambd)
{
    return unary_run(&softshrink_row, x, lambd, 0);
}

yk_tensor *yk_sign(yk_tensor *x)
{
    YK__LIVE(x);
    return x && x->dtype == YK_BOOL ? yk_clone(x) : unary_apply(&sign_row, x, 0, 0);
}

yk_tensor *yk_square(yk_tensor *x)
{
    YK__AUTOCAST(pow, 1, &x, yk_square(x));
    return unary_apply(&square_row, x, 2, 0);
}

yk_tensor *yk_add_scalar(yk_tensor *a, double b)
{
    return unary_apply(&add_scalar_row, a, b, 0);
}

yk_tensor *yk_sub_scalar(yk_tensor *a, double b)
{
    return unary_apply(&add_scalar_row, a, -b, 0);
}

yk_tensor *yk_mul_scalar(yk_tensor *a, double b)
{
    return unary_apply(&mul_scalar_row, a, b, 0);
}

/* A product only where it rounds like the quotient: for powers of two. */
yk_tensor *yk_div_scalar(yk_tensor *a, double b)
{
    YK__EVENT(YK__EVENT_OPERATION, "div_scalar");
    if (!yk__op_begin("div_scalar", 1, &a, 0))
        return NULL;
    bool floating = yk_dtype_is_floating((yk_dtype)a->dtype);
    int exponent = 0;
    if (floating && isfinite(b) && fabs(frexp(b, &exponent)) == 0.5 && abs(exponent) < 100)
        return unary_apply(&mul_scalar_row, a, 1 / b, 0);
    yk_tensor *divisor = yk__raw_scalar(b, floating ? yk__wide_dtype(a) : YK_F32, yk__device_of(a));
    yk_tensor *out = divisor ? yk_div(a, divisor) : NULL;
    yk_tensor_release(divisor);
    /* A tensor of no dimensions is no stronger than the divisor, whose dtype it takes. */
    return out && floating && out->dtype != a->dtype ? yk_cast(out, (yk_dtype)a->dtype) : out;
}

yk_tensor *yk_pow_scalar(yk_tensor *a, double b)
{
    YK__AUTOCAST(pow, 1, &a, yk_pow_scalar(a, b));
    YK__LIVE(a);
    if (a && takes_plain_power(a, b)) {
        YK__EVENT(YK__EVENT_OPERATION, "pow_scalar");
        if (!yk__op_begin("pow_scalar", 1, &a, 0))
            return NULL;
        yk_tensor *exponent = yk__raw_scalar(b, YK_F16, yk__device_of(a)), *out = exponent ? yk_pow(a, exponent) : NULL;
        yk_tensor_release(exponent);
        return out;
    }
    return unary_apply(&pow_scalar_row, a, b, 0);
}

yk_tensor *yk_clamp(yk_tensor *x, double low, double high)
{
    if (isnan(low) || isnan(high)) /* as every element is then; the kernel compares */
        return unary_apply(&clamp_nan_row, x, NAN, 0);
    return unary_apply(&clamp_row, x, low, high);
}

/* ---- no gradient: the result is bool ---- */

#define FLAT(function, label, kernel)                                                                                  \
    yk_tensor *yk_##function(yk_tensor *x)                                                                             \
    {                                                                                                                  \
        static const yk__op op = {.name = label};                                                                      \
        YK__EVENT(YK__EVENT_OPERATION, label);                                                                         \
        if (!yk__op_begin(label, 1, &x, 0))                                                                            \
            return NULL;                                                                                               \
        return yk__record(yk__raw_unary(label, YK__##kernel, x, 0, 0), &op, 1, &x, 0, NULL, NULL, 0);                  \
    }

FLAT(is_finite, "is_finite", IS_FINITE)
FLAT(logical_not, "logical_not", LOGICAL_NOT)
