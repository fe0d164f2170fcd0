/*
 * arithmetic.c - elementwise operations of two tensors, broadcast and promoted: sums, products, powers, extremes.
 * Layer: ops.
 *
 * One row per operation: its kernel, its two derivative rules, and which operands each rule reads. A rule works in the
 * shape and dtype of the result; the gradient is then summed to the operand's shape and cast to its dtype.
 */
#include <math.h>

#include "ops/cast_policy.h"

enum { READS_NOTHING = 0, READS_A = 1, READS_B = 2, READS_BOTH = 3 };

typedef yk_tensor *(*binary_rule)(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha);

typedef struct binary_row {
    yk__op op;
    yk__binary kernel;
    binary_rule rule[2];
    int reads[2];            /* by rule[0] (of a), by rule[1] (of b) */
    binary_rule recorded[2]; /* the rules made of recorded operations */
} binary_row;

typedef struct binary_context {
    const binary_row *row;
    double alpha;
    bool alike;              /* operands have the shape and dtype of the result: forms are not kept */
    yk__tensor_spec spec[2]; /* of the operands */
} binary_context;

static yk_status binary_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const binary_context *c = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *a = yk__saved(node, 0, &bad), *b = yk__saved(node, 1, &bad);
    if (bad)
        return bad;
    for (int i = 0; i < 2; i++) {
        if (!yk__needs_grad(node, i))
            continue;
        yk_tensor *grad = c->row->rule[i](gout, a, b, c->alpha);
        grads[i] = c->alike ? grad : yk__sum_to_spec(grad, &c->spec[i]);
        if (!grads[i])
            return yk__status_of(NULL);
    }
    return YK_OK;
}

static void binary_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const binary_context *c = yk__context(node);
    yk_tensor *a = yk__saved_in_graph(node, 0), *b = yk__saved_in_graph(node, 1);
    for (int i = 0; i < 2; i++) {
        if (!yk__needs_grad(node, i))
            continue;
        yk_tensor *grad = c->row->recorded[i](gouts[0], a, b, c->alpha);
        grads[i] = c->alike ? grad : yk__recorded_sum_to(grad, &c->spec[i]);
    }
}

static void binary_describe(const void *context, yk__attributes *to)
{
    yk__attribute_real(to, "alpha", ((const binary_context *)context)->alpha);
}

yk_status yk__check_alpha(const char *what, const yk_tensor *a, const yk_tensor *b, double alpha)
{
    if ((isfinite(alpha) && alpha == trunc(alpha)) || yk_dtype_is_floating((yk_dtype)a->dtype) ||
        yk_dtype_is_floating((yk_dtype)b->dtype))
        return YK_OK;
    return yk__fail(YK_ERR_ARGUMENT, "%s: alpha is %g, expected an integer, because %s and %s are added as integers",
                    what, alpha, yk_dtype_name((yk_dtype)a->dtype), yk_dtype_name((yk_dtype)b->dtype));
}

static yk_tensor *binary_apply(const binary_row *row, yk_tensor *a, yk_tensor *b, double alpha)
{
    yk_tensor *inputs[2] = {a, b};
    yk__take_numbers(2, inputs);
    YK__EVENT(YK__EVENT_OPERATION, row->op.name);
    if (!yk__op_begin(row->op.name, 2, inputs, 0))
        return NULL;
    a = inputs[0];
    b = inputs[1];
    if (yk__check_alpha(row->op.name, a, b, alpha))
        return NULL;
    yk_tensor *out = yk__raw_binary(row->op.name, row->kernel, a, b, alpha);
    if (!out || !yk__will_tell(2, inputs))
        return yk__scope_own(out);
    int reads = (yk__wants_grad(a) ? row->reads[0] : 0) | (yk__wants_grad(b) ? row->reads[1] : 0);
    yk_tensor *saved[2] = {reads & READS_A ? a : NULL, reads & READS_B ? b : NULL};
    binary_context c;
    c.row = row;
    c.alpha = alpha;
    c.alike = a->ndim == out->ndim && yk__equal_sizes(a->shape, out->shape, out->ndim) && b->ndim == out->ndim &&
              yk__equal_sizes(b->shape, out->shape, out->ndim) && a->dtype == out->dtype && b->dtype == out->dtype;
    if (!c.alike) {
        c.spec[0] = yk__spec_of(a);
        c.spec[1] = yk__spec_of(b);
    }
    return yk__record(out, &row->op, 2, inputs, 2, saved, &c, c.alike ? offsetof(binary_context, spec) : sizeof(c));
}

/* ---- rules ---- */

static yk_tensor *same(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)b, (void)alpha;
    return yk_tensor_retain(g);
}

static yk_tensor *same_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)b, (void)alpha;
    return g;
}

static yk_tensor *times_alpha(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)b;
    return alpha == 1 ? yk_tensor_retain(g) : yk__raw_unary("add", YK__MUL_SCALAR, g, alpha, 0);
}

static yk_tensor *times_alpha_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)b;
    return alpha == 1 ? g : yk_mul_scalar(g, alpha);
}

static yk_tensor *times_minus_alpha(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)b;
    return yk__raw_unary("sub", YK__MUL_SCALAR, g, -alpha, 0);
}

static yk_tensor *times_minus_alpha_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)b;
    return yk_mul_scalar(g, -alpha);
}

static yk_tensor *times_b(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)alpha;
    return yk__raw_binary("mul", YK__MUL, g, b, 1);
}

static yk_tensor *times_b_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)alpha;
    return yk_mul(g, b);
}

static yk_tensor *times_a(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)b, (void)alpha;
    return yk__raw_binary("mul", YK__MUL, g, a, 1);
}

static yk_tensor *times_a_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)b, (void)alpha;
    return yk_mul(g, a);
}

static yk_tensor *over_b(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)alpha;
    return yk__raw_binary("div", YK__DIV, g, b, 1);
}

static yk_tensor *over_b_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)alpha;
    return yk_div(g, b);
}

/* d(a / b)/db = -(a / b) / b: divided twice, since b^2 may overflow where the quotient does not. */
static yk_tensor *quotient_b(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    yk_tensor *once = yk__raw_binary("div", YK__DIV, a, b, 1), *twice = yk__raw_binary("div", YK__DIV, once, b, 1);
    yk_tensor *minus = yk__raw_unary("div", YK__NEG, twice, 0, 0), *out = yk__raw_binary("div", YK__MUL, g, minus, 1);
    yk__release_all(3, (yk_tensor *[]){once, twice, minus});
    return out;
}

static yk_tensor *quotient_b_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return yk_mul(g, yk_neg(yk_div(yk_div(a, b), b)));
}

/* g where the mask is false, else 0. */
static yk_tensor *zero_where(yk_tensor *mask, yk_tensor *g)
{
    yk_tensor *zero = g ? yk__raw_scalar(0, (yk_dtype)g->dtype, yk__device_of(g)) : NULL;
    yk_tensor *out = yk__raw_where(mask, zero, g);
    yk_tensor_release(zero);
    return out;
}

/* x in the dtype of g where that is wider: what is computed of x alone is not rounded to x's. One reference. */
static yk_tensor *widened(yk_tensor *x, const yk_tensor *g)
{
    size_t size = yk_dtype_size(yk_dtype_is_floating((yk_dtype)x->dtype) ? (yk_dtype)x->dtype : YK_F32);
    return yk_dtype_size((yk_dtype)g->dtype) > size ? yk__raw_cast(x, (yk_dtype)g->dtype) : yk_tensor_retain(x);
}

/* d(a^b)/da = b a^(b - 1), and 0 where b is 0, also for a = 0. */
static yk_tensor *power_a(yk_tensor *g, yk_tensor *a, yk_tensor *exponent, double alpha)
{
    (void)alpha;
    yk_tensor *b = widened(exponent, g);
    if (!b)
        return NULL;
    yk_tensor *zero = yk__raw_scalar(0, (yk_dtype)b->dtype, yk__device_of(b));
    yk_tensor *mask = yk__raw_binary("pow", YK__EQ, b, zero, 1), *less = yk__raw_unary("pow", YK__ADD_SCALAR, b, -1, 0);
    yk_tensor *power = yk__raw_binary("pow", YK__POW, a, less, 1), *slope = yk__raw_binary("pow", YK__MUL, power, b, 1);
    yk_tensor *product = yk__raw_binary("pow", YK__MUL, g, slope, 1), *out = zero_where(mask, product);
    yk__release_all(7, (yk_tensor *[]){b, zero, mask, less, power, slope, product});
    return out;
}

static yk_tensor *power_a_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    if (!b || !g)
        return NULL;
    b = yk_cast(b, (yk_dtype)g->dtype);
    yk_tensor *slope = yk_mul(yk_pow(a, yk_add_scalar(b, -1)), b);
    return yk__recorded_where_not(yk_eq(b, yk__recorded_number(b, 0)), yk_mul(g, slope));
}

/* d(a^b)/db = a^b log a, and 0 at a = 0 for b >= 0, where a^b is constant from the right. */
static yk_tensor *power_b(yk_tensor *g, yk_tensor *base, yk_tensor *b, double alpha)
{
    (void)alpha;
    yk_tensor *a = widened(base, g);
    if (!a)
        return NULL;
    yk_tensor *zero = yk__raw_scalar(0, (yk_dtype)g->dtype, yk__device_of(g));
    yk_tensor *none = yk__raw_binary("pow", YK__EQ, a, zero, 1), *up = yk__raw_binary("pow", YK__GE, b, zero, 1);
    yk_tensor *mask = yk__raw_binary("pow", YK__AND, none, up, 1);
    yk_tensor *power = yk__raw_binary("pow", YK__POW, a, b, 1), *log = yk__raw_unary("pow", YK__LOG, a, 0, 0);
    yk_tensor *slope = yk__raw_binary("pow", YK__MUL, power, log, 1);
    yk_tensor *product = yk__raw_binary("pow", YK__MUL, g, slope, 1), *out = zero_where(mask, product);
    yk__release_all(9, (yk_tensor *[]){a, zero, none, up, mask, power, log, slope, product});
    return out;
}

static yk_tensor *power_b_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    if (!a || !g)
        return NULL;
    a = yk_cast(a, (yk_dtype)g->dtype);
    yk_tensor *flat = yk_logical_and(yk_eq(a, yk__recorded_number(a, 0)), yk_ge(b, yk__recorded_number(b, 0)));
    return yk__recorded_where_not(flat, yk_mul(g, yk_mul(yk_pow(a, b), yk_log(a))));
}

/* Half of g where x and y are equal, none of it where x loses (by `loses`), else all: of a NaN, both have it. */
static yk_tensor *winner(yk_tensor *g, yk__binary loses, yk_tensor *x, yk_tensor *y)
{
    yk_tensor *lost = yk__raw_binary("maximum", loses, x, y, 1), *ties = yk__raw_binary("maximum", YK__EQ, x, y, 1);
    yk_tensor *won = zero_where(lost, g), *half = yk__raw_unary("maximum", YK__MUL_SCALAR, g, 0.5, 0);
    yk_tensor *out = yk__raw_where(ties, half, won);
    yk__release_all(4, (yk_tensor *[]){lost, ties, won, half});
    return out;
}

static yk_tensor *winner_recorded(yk_tensor *g, yk_tensor *lost, yk_tensor *ties)
{
    return yk_where(ties, yk_mul_scalar(g, 0.5), yk__recorded_where_not(lost, g));
}

static yk_tensor *larger_a(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return winner(g, YK__LT, a, b);
}

static yk_tensor *larger_a_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return winner_recorded(g, yk_lt(a, b), yk_eq(a, b));
}

static yk_tensor *larger_b(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return winner(g, YK__LT, b, a);
}

static yk_tensor *larger_b_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return winner_recorded(g, yk_lt(b, a), yk_eq(a, b));
}

static yk_tensor *smaller_a(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return winner(g, YK__GT, a, b);
}

static yk_tensor *smaller_a_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return winner_recorded(g, yk_gt(a, b), yk_eq(a, b));
}

static yk_tensor *smaller_b(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return winner(g, YK__GT, b, a);
}

static yk_tensor *smaller_b_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return winner_recorded(g, yk_gt(b, a), yk_eq(a, b));
}

/* ---- quotients that are rounded, and what they leave ---- */

static yk_tensor *nothing(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)b, (void)alpha;
    return yk__tensor_full_like(g, 0);
}

static yk_tensor *nothing_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)a, (void)b, (void)alpha;
    return yk_zeros_like(g);
}

/* d(a - b q)/db = -q, with q the rounded quotient. */
static yk_tensor *times_minus_quotient(yk_tensor *g, yk__binary divide, yk_tensor *a, yk_tensor *b)
{
    yk_tensor *quotient = yk__raw_binary("remainder", divide, a, b, 1);
    yk_tensor *minus = quotient ? yk__raw_unary("remainder", YK__NEG, quotient, 0, 0) : NULL;
    yk_tensor *out = yk__raw_binary("remainder", YK__MUL, g, minus, 1);
    yk__release_all(2, (yk_tensor *[]){quotient, minus});
    return out;
}

static yk_tensor *remainder_b(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return times_minus_quotient(g, YK__FLOOR_DIVIDE, a, b);
}

static yk_tensor *remainder_b_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return yk_neg(yk_mul(g, yk_floor_divide(a, b)));
}

static yk_tensor *fmod_b(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return times_minus_quotient(g, YK__TRUNC_DIVIDE, a, b);
}

static yk_tensor *fmod_b_recorded(yk_tensor *g, yk_tensor *a, yk_tensor *b, double alpha)
{
    (void)alpha;
    return yk_neg(yk_mul(g, yk_trunc_divide(a, b)));
}

/* False, with an error, where integers are divided by a 0: a host waits for that, so it is looked at on CPUs. */
static bool divisor_check(const char *name, yk_tensor *a, yk_tensor *b)
{
    bool zero = false;
    if (!a || !b || yk__is_freed(a) || yk__is_freed(b) || yk_dtype_is_floating((yk_dtype)a->dtype) ||
        yk_dtype_is_floating((yk_dtype)b->dtype) || !b->numel || yk__device_of(b).type != YK_CPU)
        return true; /* what is wrong is said by the operation */
    if (yk__has_zero(name, b, &zero))
        return false;
    if (zero)
        yk__fail(YK_ERR_ARGUMENT, "%s: integers are divided by a tensor that has a zero", name);
    return !zero;
}

/* ---- rows ---- */

static const binary_row add_row = {
    {.name = "add", .backward = binary_backward, .recorded = binary_recorded, .describe = binary_describe},
    YK__ADD,
    {same, times_alpha},
    {0, 0},
    {same_recorded, times_alpha_recorded}};

yk_tensor *yk_add(yk_tensor *a, yk_tensor *b)
{
    return binary_apply(&add_row, a, b, 1);
}

yk_tensor *yk_add_scaled(yk_tensor *a, yk_tensor *b, double alpha)
{
    return binary_apply(&add_row, a, b, alpha);
}

#define NO_CAST
/* The power is on a list of autocast's (cast_policy.h). */
#define CAST_POW                                                                                                       \
    yk_tensor *inputs[2] = {a, b};                                                                                     \
    YK__AUTOCAST(pow, 2, inputs, yk_pow(inputs[0], inputs[1]));
#define BINARY(label, kernel, rule_a, reads_a, rule_b, reads_b, CAST)                                                  \
    yk_tensor *yk_##label(yk_tensor *a, yk_tensor *b)                                                                  \
    {                                                                                                                  \
        static const binary_row row = {                                                                                \
            {.name = #label, .backward = binary_backward, .recorded = binary_recorded, .describe = binary_describe},   \
            YK__##kernel,                                                                                              \
            {rule_a, rule_b},                                                                                          \
            {READS_##reads_a, READS_##reads_b},                                                                        \
            {rule_a##_recorded, rule_b##_recorded}};                                                                   \
        CAST return binary_apply(&row, a, b, 1);                                                                       \
    }

BINARY(sub, SUB, same, NOTHING, times_minus_alpha, NOTHING, NO_CAST)
BINARY(mul, MUL, times_b, B, times_a, A, NO_CAST)
BINARY(div, DIV, over_b, B, quotient_b, BOTH, NO_CAST)
BINARY(pow, POW, power_a, BOTH, power_b, BOTH, CAST_POW)
BINARY(maximum, MAXIMUM, larger_a, BOTH, larger_b, BOTH, NO_CAST)
BINARY(minimum, MINIMUM, smaller_a, BOTH, smaller_b, BOTH, NO_CAST)

#define DIVISION(label, kernel, rule_a, rule_b, reads_b)                                                               \
    yk_tensor *yk_##label(yk_tensor *a, yk_tensor *b)                                                                  \
    {                                                                                                                  \
        static const binary_row row = {                                                                                \
            {.name = #label, .backward = binary_backward, .recorded = binary_recorded, .describe = binary_describe},   \
            YK__##kernel,                                                                                              \
            {rule_a, rule_b},                                                                                          \
            {READS_NOTHING, READS_##reads_b},                                                                          \
            {rule_a##_recorded, rule_b##_recorded}};                                                                   \
        return divisor_check(#label, a, b) ? binary_apply(&row, a, b, 1) : NULL;                                       \
    }
DIVISION(floor_divide, FLOOR_DIVIDE, nothing, nothing, NOTHING)
DIVISION(trunc_divide, TRUNC_DIVIDE, nothing, nothing, NOTHING)
DIVISION(remainder, REMAINDER, same, remainder_b, BOTH)
DIVISION(fmod, FMOD, same, fmod_b, BOTH)

/* The operation with a number, of a's dtype where it is an integer, too. */
static yk_tensor *with_number(const char *name, yk_tensor *(*f)(yk_tensor *, yk_tensor *), yk_tensor *a, double b)
{
    if (!yk__op_begin(name, 1, &a, 0))
        return NULL;
    bool floating = yk_dtype_is_floating((yk_dtype)a->dtype), whole = fabs(b) < 0x1p63 && b == trunc(b);
    yk_dtype dtype = floating ? yk__wide_dtype(a) : whole ? YK_I64 : YK_F32;
    yk_tensor *number = yk__raw_scalar(b, dtype, yk__device_of(a)), *out = number ? f(a, number) : NULL;
    yk_tensor_release(number);
    /* A tensor of no dimensions is no stronger than the number, whose dtype it takes. */
    return out && (floating || whole) ? yk_cast(out, (yk_dtype)a->dtype) : out;
}

yk_tensor *yk_floor_divide_scalar(yk_tensor *a, double b)
{
    return with_number("floor_divide_scalar", yk_floor_divide, a, b);
}

yk_tensor *yk_remainder_scalar(yk_tensor *a, double b)
{
    return with_number("remainder_scalar", yk_remainder, a, b);
}
