/*
 * elementwise_ops.h - the arithmetic of the slots unary and binary, written once for the kernels of every device.
 * Layer: device. C and C++.
 *
 * Every operation is one expression of x, p0 and p1, or of x, y and alpha. X(OP, expression) is called for each; F(f)
 * is the function f for f32 or f64, and the same expression serves both.
 */
#ifndef YOKE_DEVICE_ELEMENTWISE_OPS_H
#define YOKE_DEVICE_ELEMENTWISE_OPS_H

#include "device/activation_math.h"
#include "device/convert.h"
#include "device/scalar_math.h"

/* clang-format off */
#define YK__WRAP(x) (uint64_t)(x)
#define YK__LESSER(x, y) ((x) > (y) ? (y) : (x)) /* x where it is NaN */
#define YK__RAMP(x) ((x) < -3 ? 0 : (x) > 3 ? 6 : (x) + 3) /* x + 3 in [0, 6] */

/* ---- real numbers; F(f) is f for float and double ---- */
/* Operations that cost little more than reading x. */
#define YK__CHEAP_UNARY(X, F)                                                                                          \
    X(SQRT, F(sqrt)(x))                                                                                                \
    X(RSQRT, 1 / F(sqrt)(x))                                                                                           \
    X(RECIPROCAL, 1 / x)                                                                                               \
    X(RELU, x < 0 ? 0 : x)                                                                                             \
    X(SIGN, x > 0 ? 1 : x < 0 ? -1 : 0)                                                                                \
    X(FLOOR, F(floor)(x))                                                                                              \
    X(CEIL, F(ceil)(x))                                                                                                \
    X(ROUND, F(rint)(x))                                                                                               \
    X(ADD_SCALAR, x + p0)                                                                                              \
    X(MUL_SCALAR, x * p0)                                                                                              \
    X(SQUARE, x * x)                                                                                                   \
    X(CUBE, x * x * x)                                                                                                 \
    X(THRESHOLD, x <= p0 ? p1 : x)                                                                                     \
    X(HARDSHRINK, F(fabs)(x) <= p0 ? 0 : x)                                                                            \
    X(SOFTSHRINK, x - (x < -p0 ? -p0 : YK__LESSER(x, p0)))                                                             \
    X(REPLACE_INFINITY, x == INFINITY ? p0 : x == -INFINITY ? p1 : x)                                                  \
    X(NAN_TO_NUM, x != x ? p0 : x > p1 ? p1 : x < -p1 ? -p1 : x)                                                       \
    X(CLAMP, x < p0 ? YK__LESSER(p0, p1) : YK__LESSER(x, p1))

#define YK__REAL_UNARY(X, F)                                                                                           \
    YK__CHEAP_UNARY(X, F)                                                                                              \
    X(NEG, -x)                                                                                                         \
    X(ABS, F(fabs)(x))                                                                                                 \
    X(EXP, F(yk__exp)(x))                                                                                              \
    X(LOG, F(yk__log)(x))                                                                                              \
    X(TANH, F(yk__tanh)(x))                                                                                            \
    X(LOG1P, F(yk__log1p)(x))                                                                                          \
    X(EXPM1, F(yk__expm1)(x))                                                                                          \
    X(ASIN, F(yk__asin)(x))                                                                                            \
    X(ACOS, F(yk__acos)(x))                                                                                            \
    X(ATANH, F(yk__atanh)(x))                                                                                          \
    X(LOG2, F(yk__log2)(x))                                                                                            \
    X(LOG10, F(yk__log10)(x))                                                                                          \
    X(ERF, F(yk__erf)(x))                                                                                              \
    X(SIGMOID, F(yk__sigmoid)(x))                                                                                      \
    X(GELU, F(yk__gelu)(x))                                                                                            \
    X(GELU_TANH, F(yk__gelu_tanh)(x))                                                                                  \
    X(SILU, x * F(yk__sigmoid)(x))                                                                                     \
    X(MISH, x * F(yk__tanh)(F(yk__log1p)(F(yk__exp)(x))))                                                              \
    X(LOG_SIGMOID, (x < 0 ? x : 0) - F(yk__log1p)(F(yk__exp)(-F(fabs)(x))))                                            \
    X(HARDSWISH, x * YK__RAMP(x) / 6)                                                                                  \
    X(HARDSIGMOID, YK__RAMP(x) / 6)                                                                                    \
    X(LEAKY_RELU, x > 0 ? x : x * p0)                                                                                  \
    X(ELU, x > 0 ? x : p0 * F(yk__expm1)(x))                                                                           \
    X(SOFTPLUS, x * p0 > p1 ? x : F(yk__log1p)(F(yk__exp)(x * p0)) / p0)                                               \
    X(SOFTPLUS_SLOPE, x * p0 > p1 ? 1 : F(yk__sigmoid)(x * p0))

/* Operations that a loop of vectors cannot take unchanged. */
#define YK__REAL_UNARY_WITH_CALLS(X, F)                                                                                \
    X(SIN, F(yk__sin)(x))                                                                                              \
    X(COS, F(yk__cos)(x))                                                                                              \
    X(TAN, F(yk__tan)(x))                                                                                              \
    X(POW_SCALAR, F(yk__pow)(x, p0))

/* ---- integers, computed as i64; YK__WRAP(x) is x as an unsigned number, which wraps ---- */
/* Operations whose results a wider type does not change. */
#define YK__ORDER_UNARY(X)                                                                                             \
    X(RELU, x < 0 ? 0 : x)                                                                                             \
    X(SIGN, x > 0 ? 1 : x < 0 ? -1 : 0)                                                                                \
    X(FLOOR, x)                                                                                                        \
    X(CEIL, x)                                                                                                         \
    X(ROUND, x)
#define YK__WIDE_UNARY(X)                                                                                              \
    X(NEG, 0 - YK__WRAP(x))                                                                                            \
    X(ABS, x < 0 ? 0 - YK__WRAP(x) : YK__WRAP(x))                                                                      \
    X(ADD_SCALAR, YK__WRAP(x) + YK__WRAP(p0))                                                                          \
    X(MUL_SCALAR, YK__WRAP(x) * YK__WRAP(p0))                                                                          \
    X(POW_SCALAR, yk__power(x, p0))
#define YK__CLAMP_UNARY(X) X(CLAMP, x < p0 ? YK__LESSER(p0, p1) : YK__LESSER(x, p1))
#define YK__WHOLE_UNARY(X) YK__ORDER_UNARY(X) YK__WIDE_UNARY(X) YK__CLAMP_UNARY(X)

/* ---- of two numbers ---- */
#define YK__REAL_ARITHMETIC(X, F)                                                                                      \
    X(ADD, F(yk__fma)(alpha, y, x))                                                                                    \
    X(PLUS, x + y)                                                                                                     \
    X(SUB, F(yk__fma)(-alpha, y, x))                                                                                   \
    X(MUL, x * y)                                                                                                      \
    X(DIV, x / y)                                                                                                      \
    X(MAXIMUM, x > y || x != x ? x : y)                                                                                \
    X(MINIMUM, x < y || x != x ? x : y)
#define YK__CHEAP_BINARY(X, F)                                                                                         \
    YK__REAL_ARITHMETIC(X, F)                                                                                          \
    X(RELU_GRAD, y <= 0 ? 0 : x)                                                                                       \
    X(TANH_GRAD, x * (1 - y * y))                                                                                      \
    X(SIGMOID_GRAD, x * ((1 - y) * y))                                                                                 \
    X(THRESHOLD_GRAD, y <= alpha ? 0 : x)                                                                              \
    X(SHRINK_GRAD, F(fabs)(y) <= alpha ? 0 : x)                                                                        \
    X(ABOVE_GRAD, y > alpha ? x : 0)                                                                                   \
    X(BELOW_GRAD, y < alpha ? x : 0)                                                                                   \
    X(PRELU, x > 0 ? x : y * x)                                                                                        \
    X(ABS_GRAD, x * (y > 0 ? 1 : y < 0 ? -1 : 0))

#define YK__VECTOR_BINARY(X, F)                                                                                        \
    YK__CHEAP_BINARY(X, F)                                                                                             \
    X(POW, F(yk__pow)(x, y))                                                                                           \
    X(ATAN2, F(yk__atan2)(x, y))                                                                                       \
    X(TRUNC_DIVIDE, F(trunc)(x / y))                                                                                   \
    X(GELU_GRAD, x * F(yk__gelu_grad)(y))                                                                              \
    X(GELU_TANH_GRAD, x * F(yk__gelu_tanh_grad)(y))                                                                    \
    X(SILU_GRAD, x * F(yk__silu_grad)(y))                                                                              \
    X(MISH_GRAD, x * F(yk__mish_grad)(y))                                                                              \
    X(LOG_SIGMOID_GRAD, x * F(yk__sigmoid)(-y))                                                                        \
    X(HARDSWISH_GRAD, y < -3 ? 0 : y <= 3 ? x * ((2 * y + 3) / 6) : x)                                                 \
    X(HARDSIGMOID_GRAD, ((y > -3) & (y < 3)) ? x / 6 : 0)                                                              \
    X(LEAKY_RELU_GRAD, y > 0 ? x : x * alpha)                                                                          \
    X(ELU_GRAD, y > 0 ? x : x * (alpha * F(yk__exp)(y)))                                                               \
    X(SMOOTH_L1, F(yk__smooth_l1)(x - y, alpha))                                                                       \
    X(SMOOTH_L1_GRAD, x * F(yk__smooth_l1_slope)(y, alpha))                                                            \
    X(KL_DIV, (y == 0 ? 0 : y * F(yk__log)(y)) - y * x)                                                                \
    X(LERP_NUMBER, F(fabs)(alpha) * 2 < 1 ? F(yk__fma)(alpha, y - x, x) : F(yk__fma)(alpha - 1, y - x, y))

/* Operations that a loop of vectors cannot take unchanged. */
#define YK__DIVIDING_BINARY(X, F)                                                                                      \
    X(FLOOR_DIVIDE, F(yk__floor_divide)(x, y))                                                                         \
    X(REMAINDER, F(yk__remainder)(x, y))                                                                               \
    X(FMOD, F(fmod)(x, y))
#define YK__REAL_BINARY(X, F) YK__VECTOR_BINARY(X, F) YK__DIVIDING_BINARY(X, F)

/* Integers, computed as i64; YK__WRAP(x) is x as an unsigned number, which wraps. */
#define YK__WHOLE_BINARY(X)                                                                                            \
    X(ADD, YK__WRAP(x) + YK__WRAP(alpha) * YK__WRAP(y))                                                                \
    X(PLUS, YK__WRAP(x) + YK__WRAP(y))                                                                                 \
    X(SUB, YK__WRAP(x) - YK__WRAP(alpha) * YK__WRAP(y))                                                                \
    X(MUL, YK__WRAP(x) * YK__WRAP(y))                                                                                  \
    X(POW, yk__power(x, y))                                                                                            \
    X(FLOOR_DIVIDE, yk__floor_divide(x, y))                                                                            \
    X(TRUNC_DIVIDE, yk__trunc_divide(x, y))                                                                            \
    X(REMAINDER, yk__remainder(x, y))                                                                                  \
    X(FMOD, yk__rest(x, y))                                                                                            \
    X(MAXIMUM, x > y ? x : y)                                                                                          \
    X(MINIMUM, x < y ? x : y)

#define YK__TRUTH_BINARY(X)                                                                                            \
    X(EQ, x == y)                                                                                                      \
    X(NE, x != y)                                                                                                      \
    X(LT, x < y)                                                                                                       \
    X(LE, x <= y)                                                                                                      \
    X(GT, x > y)                                                                                                       \
    X(GE, x >= y)                                                                                                      \
    X(AND, (x != 0) & (y != 0))                                                                                        \
    X(OR, (x != 0) | (y != 0))

/* ---- of three numbers ---- */
#define YK__REAL_TERNARY(X, F)                                                                                         \
    X(LERP, F(fabs)(z) * 2 < 1 ? x + z * (y - x) : y + (z - 1) * (y - x))                                              \
    X(ADDCMUL, x + value * y * z)                                                                                      \
    X(ADDCDIV, x + value * y / z)

#define YK__F32(f) f##_f32
#define fabs_f32 fabsf
#define sqrt_f32 sqrtf
#define floor_f32 floorf
#define ceil_f32 ceilf
#define rint_f32 rintf
#define trunc_f32 truncf
#define fmod_f32 fmodf
#define YK__F64(f) f##_f64
#define fabs_f64 fabs
#define sqrt_f64 sqrt
#define floor_f64 floor
#define ceil_f64 ceil
#define rint_f64 rint
#define trunc_f64 trunc
#define fmod_f64 fmod
/* The conversion of p0, p1 and alpha to numbers of the operation; integers take YK__TO_I64. */
#define YK__TO_ITSELF(x) (x)

/* Kernels that are not operations of their own. The sum with alpha 1 saves a product, and NaN from alpha times infinity
 * cannot arise; powers that have a shorter way are chosen by the exponent, as PyTorch does. */
enum { YK__SQUARE = YK__CLAMP + 1, YK__CUBE, YK__UNARY_KERNELS };
enum { YK__PLUS = YK__ABS_GRAD + 1, YK__BINARY_KERNELS };
/* clang-format on */

/* base^exponent in wrapping arithmetic; a negative exponent gives the reciprocal cut to an integer, 0 of 0. */
YK__SCALAR int64_t yk__power(int64_t base, int64_t exponent)
{
    if (exponent < 0)
        return base == 1 ? 1 : base != -1 ? 0 : exponent % 2 ? -1 : 1;
    uint64_t result = 1, factor = (uint64_t)base;
    for (; exponent > 0; exponent >>= 1, factor *= factor)
        if (exponent & 1)
            result *= factor;
    return (int64_t)result;
}

/* Quotients of integers, which wrap; 0 where the divisor is. */
YK__SCALAR int64_t yk__trunc_divide(int64_t x, int64_t y)
{
    return y == 0 ? 0 : y == -1 ? (int64_t)(0 - YK__WRAP(x)) : x / y;
}
YK__SCALAR int64_t yk__rest(int64_t x, int64_t y)
{
    return y == 0 || y == -1 ? 0 : x % y;
}
YK__SCALAR int64_t yk__floor_divide(int64_t x, int64_t y)
{
    int64_t rest = yk__rest(x, y);
    return yk__trunc_divide(x, y) - (rest != 0 && (rest < 0) != (y < 0));
}
YK__SCALAR int64_t yk__remainder(int64_t x, int64_t y)
{
    int64_t rest = yk__rest(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

/* The same of real numbers, as Python's: the quotient is that of what is left without the rest, so that the two agree
 * where x / y is rounded up to a whole number. */
YK__SCALAR float yk__remainder_by_f32(float rest, float y)
{
    return rest != 0.0f && (rest < 0.0f) != (y < 0.0f) ? rest + y : rest;
}
YK__SCALAR float yk__floor_divide_by_f32(float rest, float x, float y)
{
    float quotient = (x - rest) / y, down;
    quotient = rest != 0.0f && (rest < 0.0f) != (y < 0.0f) ? quotient - 1.0f : quotient;
    down = floorf(quotient);
    down = quotient - down > 0.5f ? down + 1.0f : down;
    return y == 0.0f ? x / y : quotient != 0.0f ? down : copysignf(0.0f, x / y);
}
YK__SCALAR double yk__remainder_by_f64(double rest, double y)
{
    return rest != 0.0 && (rest < 0.0) != (y < 0.0) ? rest + y : rest;
}
YK__SCALAR double yk__floor_divide_by_f64(double rest, double x, double y)
{
    double quotient = (x - rest) / y, down;
    quotient = rest != 0.0 && (rest < 0.0) != (y < 0.0) ? quotient - 1.0 : quotient;
    down = floor(quotient);
    down = quotient - down > 0.5 ? down + 1.0 : down;
    return y == 0.0 ? x / y : quotient != 0.0 ? down : copysign(0.0, x / y);
}
YK__SCALAR float yk__remainder_f32(float x, float y)
{
    return yk__remainder_by_f32(fmodf(x, y), y);
}
YK__SCALAR float yk__floor_divide_f32(float x, float y)
{
    return yk__floor_divide_by_f32(fmodf(x, y), x, y);
}
YK__SCALAR double yk__remainder_f64(double x, double y)
{
    return yk__remainder_by_f64(fmod(x, y), y);
}
YK__SCALAR double yk__floor_divide_f64(double x, double y)
{
    return yk__floor_divide_by_f64(fmod(x, y), x, y);
}

/*
 * fmod without a call, for |x| < YK__QUOTIENT_LIMIT |y|. Of floats in double: the quotient is less than 2^28, so that
 * it is nearer to its own whole part than to the next number, and its product with y is exact. Of doubles the quotient
 * may have been rounded up to a whole number; what is left then has the other sign, and y is given back. It is a number
 * of double, as the remainder is, so that the fused product, and the sum, are exact.
 */
#define YK__QUOTIENT_LIMIT_F32 0x1p27f
YK__SCALAR float yk__rest_near_f32(float x, float y)
{
    double whole = (double)(int32_t)((double)x / (double)y);
    float rest = (float)((double)x - whole * (double)y);
    return whole == 0.0 ? x : copysignf(rest, x);
}
#define YK__QUOTIENT_LIMIT_F64 0x1p51
YK__SCALAR double yk__rest_near_f64(double x, double y)
{
    double whole = trunc(x / y), rest = yk__fma_f64(-whole, y, x);
    rest = rest != 0.0 && (rest < 0.0) != (x < 0.0) ? rest + copysign(y, x) : rest;
    return whole == 0.0 ? x : copysign(rest, x);
}

static inline int yk__unary_kernel(yk__unary op, yk_dtype dtype, double p0)
{
    if (op != YK__POW_SCALAR || !yk__is_real(dtype))
        return (int)op;
    return p0 == 2.0    ? (int)YK__SQUARE
           : p0 == 3.0  ? (int)YK__CUBE
           : p0 == 0.5  ? (int)YK__SQRT
           : p0 == -0.5 ? (int)YK__RSQRT
           : p0 == -1.0 ? (int)YK__RECIPROCAL
                        : (int)YK__POW_SCALAR;
}

static inline int yk__binary_kernel(yk__binary op, double alpha)
{
    return op == YK__ADD && alpha == 1.0 ? (int)YK__PLUS : (int)op;
}

/* The names of operations, for errors. */
static inline const char *yk__unary_name(yk__unary op)
{
    static const char *const names[] = {
        "neg",        "abs",
        "exp",        "log",
        "sqrt",       "rsqrt",
        "reciprocal", "sin",
        "cos",        "tanh",
        "log1p",      "expm1",
        "erf",        "sigmoid",
        "relu",       "gelu",
        "gelu_tanh",  "silu",
        "mish",       "log_sigmoid",
        "hardswish",  "hardsigmoid",
        "leaky_relu", "elu",
        "softplus",   "softplus_backward",
        "threshold",  "hardshrink",
        "softshrink", "tan",
        "asin",       "acos",
        "atanh",      "log2",
        "log10",      "replace_infinity",
        "nan_to_num", "sign",
        "floor",      "ceil",
        "round",      "logical_not",
        "isfinite",   "add",
        "mul",        "pow",
        "clamp",
    };
    return names[op];
}

static inline const char *yk__binary_name(yk__binary op)
{
    static const char *const names[] = {
        "add",
        "sub",
        "mul",
        "div",
        "pow",
        "maximum",
        "minimum",
        "atan2",
        "floor_divide",
        "trunc_divide",
        "remainder",
        "fmod",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "logical_and",
        "logical_or",
        "smooth_l1_loss",
        "kl_div",
        "lerp",
        "prelu",
        "relu_backward",
        "tanh_backward",
        "sigmoid_backward",
        "gelu_backward",
        "gelu_tanh_backward",
        "silu_backward",
        "mish_backward",
        "log_sigmoid_backward",
        "hardswish_backward",
        "hardsigmoid_backward",
        "leaky_relu_backward",
        "elu_backward",
        "threshold_backward",
        "shrink_backward",
        "above_backward",
        "below_backward",
        "smooth_l1_loss_backward",
        "abs_backward",
    };
    return names[op];
}

#endif
