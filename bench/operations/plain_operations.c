/*
 * plain_operations.c - the elementwise operations of `operation_times` beyond those of the tuned networks:
 * functions of one, two and three tensors, comparisons, logic, and what is in place. Layer: bench.
 *
 * One line is one operation: its name, the call (x and y are the first two operands), and what else its row of the
 * table has. What is in place writes the same operand again in each run.
 */
#include <math.h>

#include "base/core.h"
#include "bench/operations/operations.h"

/* ---- operands ---- */

/* x in (-1, 1). */
static yk_status prepare_inside(ops_subject *s)
{
    s->in[0] = yk_tanh(s->in[0]);
    return yk__error_code();
}

/* x of 1 or more. */
static yk_status prepare_above(ops_subject *s)
{
    s->in[0] = yk_add_scalar(yk_abs(s->in[0]), 1);
    return yk__error_code();
}

/* A third operand like x. */
static yk_status prepare_third(ops_subject *s)
{
    s->in[2] = yk_add_scalar(yk_rand_like(s->in[0]), 0.1);
    return yk__error_code();
}

/* y of 1 and -1, so that x stays as large as it is. */
static yk_status prepare_signs(ops_subject *s)
{
    s->in[1] = yk_sign(s->in[1]);
    return yk__error_code();
}

/* A mask that is true for half of the elements. */
static yk_status prepare_half(ops_subject *s)
{
    s->index = yk_gt(yk_rand_like(s->in[0]), yk_scalar(0.5, NULL));
    return yk__error_code();
}

/* The weights of x's channels. */
static yk_status prepare_slopes(ops_subject *s)
{
    s->in[1] = yk_full(YK_SHAPE(yk_size(s->in[0], 1)), 0.25, NULL);
    return yk__error_code();
}

/* ---- the operations ---- */

#define PLAIN(X)                                                                                                       \
    /* of one tensor */                                                                                                \
    X(log2, yk_log2(x), .positive = true)                                                                              \
    X(log10, yk_log10(x), .positive = true)                                                                            \
    X(tan, yk_tan(x), )                                                                                                \
    X(asin, yk_asin(x), .prepare = prepare_inside)                                                                     \
    X(acos, yk_acos(x), .prepare = prepare_inside)                                                                     \
    X(atan, yk_atan(x), )                                                                                              \
    X(sinh, yk_sinh(x), )                                                                                              \
    X(cosh, yk_cosh(x), )                                                                                              \
    X(asinh, yk_asinh(x), )                                                                                            \
    X(acosh, yk_acosh(x), .prepare = prepare_above)                                                                    \
    X(atanh, yk_atanh(x), .prepare = prepare_inside)                                                                   \
    X(rsqrt, yk_rsqrt(x), .positive = true)                                                                            \
    X(reciprocal, yk_reciprocal(x), .positive = true)                                                                  \
    X(square, yk_square(x), )                                                                                          \
    X(floor, yk_floor(x), )                                                                                            \
    X(ceil, yk_ceil(x), )                                                                                              \
    X(round, yk_round(x), )                                                                                            \
    X(isnan, yk_is_nan(x), )                                                                                           \
    X(isinf, yk_is_inf(x), )                                                                                           \
    X(isfinite, yk_is_finite(x), )                                                                                     \
    X(nan_to_num, yk_nan_to_num(x, 0, NAN, NAN), )                                                                     \
    X(logical_not, yk_logical_not(x), )                                                                                \
    X(relu6, yk_relu6(x), )                                                                                            \
    X(hardtanh, yk_hardtanh(x, -1, 1), )                                                                               \
    X(softmin, yk_softmin(x, ops_dim(s)), )                                                                            \
    X(prelu, yk_prelu(x, y), .prepare = prepare_slopes)                                                                \
    /* of one and a number */                                                                                          \
    X(add_scalar, yk_add_scalar(x, 2), )                                                                               \
    X(sub_scalar, yk_sub_scalar(x, 2), )                                                                               \
    X(rsub_scalar, yk_rsub_scalar(x, 2), )                                                                             \
    X(mul_scalar, yk_mul_scalar(x, 3), )                                                                               \
    X(div_scalar, yk_div_scalar(x, 3), )                                                                               \
    X(floor_divide_scalar, yk_floor_divide_scalar(x, 3), )                                                             \
    X(remainder_scalar, yk_remainder_scalar(x, 3), )                                                                   \
    X(eq_scalar, yk_eq_scalar(x, 1), )                                                                                 \
    X(ne_scalar, yk_ne_scalar(x, 1), )                                                                                 \
    X(lt_scalar, yk_lt_scalar(x, 1), )                                                                                 \
    X(le_scalar, yk_le_scalar(x, 1), )                                                                                 \
    X(gt_scalar, yk_gt_scalar(x, 1), )                                                                                 \
    X(ge_scalar, yk_ge_scalar(x, 1), )                                                                                 \
    /* of two tensors */                                                                                               \
    X(sub, yk_sub(x, y), )                                                                                             \
    X(minimum, yk_minimum(x, y), )                                                                                     \
    X(add_scaled, yk_add_scaled(x, y, 3), )                                                                            \
    X(floor_divide, yk_floor_divide(x, y), .positive = true)                                                           \
    X(trunc_divide, yk_trunc_divide(x, y), .positive = true)                                                           \
    X(remainder, yk_remainder(x, y), .positive = true)                                                                 \
    X(fmod, yk_fmod(x, y), .positive = true)                                                                           \
    X(eq, yk_eq(x, y), )                                                                                               \
    X(ne, yk_ne(x, y), )                                                                                               \
    X(lt, yk_lt(x, y), )                                                                                               \
    X(le, yk_le(x, y), )                                                                                               \
    X(gt, yk_gt(x, y), )                                                                                               \
    X(ge, yk_ge(x, y), )                                                                                               \
    X(isclose, yk_is_close(x, y, 1e-5, 1e-8, false), )                                                                 \
    X(allclose, yk_all_close(x, x, 1e-5, 1e-8, false) ? x : NULL, )                                                    \
    X(logical_and, yk_logical_and(x, y), )                                                                             \
    X(logical_or, yk_logical_or(x, y), )                                                                               \
    X(logical_xor, yk_logical_xor(x, y), )                                                                             \
    X(lerp_scalar, yk_lerp_scalar(x, y, 0.25), )                                                                       \
    /* of three */                                                                                                     \
    X(where, yk_where(s->index, x, y), .prepare = prepare_half)                                                        \
    X(lerp, yk_lerp(x, y, s->in[2]), .prepare = prepare_third)                                                         \
    X(addcmul, yk_addcmul(x, y, s->in[2], 0.5), .prepare = prepare_third)                                              \
    X(addcdiv, yk_addcdiv(x, y, s->in[2], 0.5), .prepare = prepare_third)                                              \
    /* in place */                                                                                                     \
    X(neg_, yk_neg_(x), )                                                                                              \
    X(abs_, yk_abs_(x), )                                                                                              \
    X(exp_, yk_exp_(x), )                                                                                              \
    X(log_, yk_log_(x), )                                                                                              \
    X(sqrt_, yk_sqrt_(x), .positive = true)                                                                            \
    X(rsqrt_, yk_rsqrt_(x), .positive = true)                                                                          \
    X(reciprocal_, yk_reciprocal_(x), .positive = true)                                                                \
    X(square_, yk_square_(x), )                                                                                        \
    X(tanh_, yk_tanh_(x), )                                                                                            \
    X(sigmoid_, yk_sigmoid_(x), )                                                                                      \
    X(floor_, yk_floor_(x), )                                                                                          \
    X(ceil_, yk_ceil_(x), )                                                                                            \
    X(round_, yk_round_(x), )                                                                                          \
    X(relu_, yk_relu_(x), )                                                                                            \
    X(clamp_, yk_clamp_(x, 0, 6), )                                                                                    \
    X(add_scalar_, yk_add_scalar_(x, 2), )                                                                             \
    X(sub_scalar_, yk_sub_scalar_(x, 2), )                                                                             \
    X(mul_scalar_, yk_mul_scalar_(x, -1), )                                                                            \
    X(div_scalar_, yk_div_scalar_(x, -1), )                                                                            \
    X(pow_scalar_, yk_pow_scalar_(x, 0.5), .positive = true)                                                           \
    X(add_, yk_add_(x, y, 1), )                                                                                        \
    X(sub_, yk_sub_(x, y, 1), )                                                                                        \
    X(mul_, yk_mul_(x, y), .prepare = prepare_signs)                                                                   \
    X(div_, yk_div_(x, y), .prepare = prepare_signs)                                                                   \
    X(addcmul_, yk_addcmul_(x, y, s->in[2], 0.5), .prepare = prepare_third)                                            \
    X(addcdiv_, yk_addcdiv_(x, y, s->in[2], 0.5), .prepare = prepare_third)                                            \
    X(lerp_, yk_lerp_(x, y, s->in[2]), .prepare = prepare_third)                                                       \
    X(lerp_scalar_, yk_lerp_scalar_(x, y, 0.25), )                                                                     \
    X(fill_, yk_fill_(x, 1.5), )                                                                                       \
    X(zero_, yk_zero_(x), )                                                                                            \
    X(uniform_, yk_uniform_(x, 0, 1), )                                                                                \
    X(normal_, yk_normal_(x, 0, 1), )

#define DEFINE(name, call, ...)                                                                                        \
    static yk_tensor *run_##name(ops_subject *s)                                                                       \
    {                                                                                                                  \
        yk_tensor *x = s->in[0], *y = s->in[1];                                                                        \
        (void)y;                                                                                                       \
        return call;                                                                                                   \
    }
PLAIN(DEFINE)

#define ROW(operation, call, ...) {.name = #operation, .forward = run_##operation, __VA_ARGS__},
const ops_operation ops_plain_operations[] = {PLAIN(ROW)};
const int ops_plain_operation_count = sizeof(ops_plain_operations) / sizeof(*ops_plain_operations);
