/*
 * The slots fill, copy, unary, binary and where: every operation in every dtype and layout against loops in double,
 * the f32 functions over a sweep of all floats, casts at their edges, aliasing, empty and 0-dimensional tensors, and
 * the same bits for 1, 2 and 3 threads.
 */
#include <float.h>

#include "tests/device/elementwise_sets.h"
#include "tests/support/machine.h"
#include "tests/support/views.h"

static const struct {
    int ndim;
    int64_t shape[4];
} shapes[] = {
    {0, {0}},      {1, {1}},        {1, {7}},          {1, {1300}},       {2, {3, 5}},        {2, {0, 4}},
    {2, {40, 33}}, {3, {2, 17, 5}}, {4, {2, 3, 4, 5}}, {4, {3, 1, 1, 9}}, {4, {2, 16, 7, 7}}, {4, {1, 17, 20, 9}},
    {2, {70, 19}},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };
static const yk_dtype all_dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};
static const yk_dtype computed[] = {YK_F32, YK_F64, YK_I64, YK_I32, YK_U8};

static const struct {
    yk__unary op;
    const char *name;
    double low, high, p0, p1;
    bool integers;
} unaries[] = {
    {YK__NEG, "neg", -3, 3, 0, 0, true},
    {YK__ABS, "abs", -3, 3, 0, 0, true},
    {YK__EXP, "exp", -20, 20, 0, 0, false},
    {YK__LOG, "log", 0.001, 40, 0, 0, false},
    {YK__SQRT, "sqrt", 0, 40, 0, 0, false},
    {YK__RSQRT, "rsqrt", 0.01, 40, 0, 0, false},
    {YK__RECIPROCAL, "reciprocal", 0.1, 3, 0, 0, false},
    {YK__SIN, "sin", -7, 7, 0, 0, false},
    {YK__COS, "cos", -7, 7, 0, 0, false},
    {YK__TANH, "tanh", -4, 4, 0, 0, false},
    {YK__LOG1P, "log1p", -0.999, 40, 0, 0, false},
    {YK__EXPM1, "expm1", -20, 20, 0, 0, false},
    {YK__ERF, "erf", -5, 5, 0, 0, false},
    {YK__SIGMOID, "sigmoid", -9, 9, 0, 0, false},
    {YK__RELU, "relu", -3, 3, 0, 0, true},
    {YK__GELU, "gelu", -6, 6, 0, 0, false},
    {YK__GELU_TANH, "gelu tanh", -6, 6, 0, 0, false},
    {YK__SILU, "silu", -20, 20, 0, 0, false},
    {YK__MISH, "mish", -20, 20, 0, 0, false},
    {YK__LOG_SIGMOID, "log sigmoid", -20, 20, 0, 0, false},
    {YK__HARDSWISH, "hardswish", -5, 5, 0, 0, false},
    {YK__HARDSIGMOID, "hardsigmoid", -5, 5, 0, 0, false},
    {YK__LEAKY_RELU, "leaky relu", -3, 3, 0.25, 0, false},
    {YK__ELU, "elu", -9, 3, 1.5, 0, false},
    {YK__SOFTPLUS, "softplus", -20, 20, 1, 20, false},
    {YK__SOFTPLUS, "softplus 2", -9, 9, 2, 5, false},
    {YK__SOFTPLUS_SLOPE, "softplus slope", -9, 9, 2, 5, false},
    {YK__THRESHOLD, "threshold", -3, 3, 0.25, -7, false},
    {YK__HARDSHRINK, "hardshrink", -3, 3, 0.75, 0, false},
    {YK__SOFTSHRINK, "softshrink", -3, 3, 0.75, 0, false},
    {YK__TAN, "tan", -1.5, 1.5, 0, 0, false},
    {YK__ASIN, "asin", -1, 1, 0, 0, false},
    {YK__ACOS, "acos", -1, 1, 0, 0, false},
    {YK__ATANH, "atanh", -0.9, 0.9, 0, 0, false},
    {YK__LOG2, "log2", 0.001, 40, 0, 0, false},
    {YK__LOG10, "log10", 0.001, 40, 0, 0, false},
    {YK__REPLACE_INFINITY, "replace infinity", -3, 3, 2, -5, false},
    {YK__NAN_TO_NUM, "nan to num", -3, 3, 0, 1.5, false},
    {YK__SIGN, "sign", -3, 3, 0, 0, true},
    {YK__FLOOR, "floor", -5, 5, 0, 0, true},
    {YK__CEIL, "ceil", -5, 5, 0, 0, true},
    {YK__ROUND, "round", -5, 5, 0, 0, true},
    {YK__ADD_SCALAR, "add", -5, 5, 2, 0, true},
    {YK__MUL_SCALAR, "mul", -5, 5, 3, 0, true},
    {YK__POW_SCALAR, "pow 2", -3, 3, 2, 0, true},
    {YK__POW_SCALAR, "pow 3", -3, 3, 3, 0, true},
    {YK__POW_SCALAR, "pow 5", -3, 3, 5, 0, true},
    {YK__POW_SCALAR, "pow 0.5", 0, 9, 0.5, 0, false},
    {YK__POW_SCALAR, "pow -0.5", 0.1, 9, -0.5, 0, false},
    {YK__POW_SCALAR, "pow -1", 0.1, 9, -1, 0, false},
    {YK__POW_SCALAR, "pow 1.7", 0.1, 9, 1.7, 0, false},
    {YK__CLAMP, "clamp", -9, 9, -2, 4, true},
};

static double unary_reference(yk__unary op, double x, double p0, double p1)
{
    switch (op) {
    case YK__NEG: return -x;
    case YK__ABS: return fabs(x);
    case YK__EXP: return exp(x);
    case YK__LOG: return log(x);
    case YK__SQRT: return sqrt(x);
    case YK__RSQRT: return 1 / sqrt(x);
    case YK__RECIPROCAL: return 1 / x;
    case YK__SIN: return sin(x);
    case YK__COS: return cos(x);
    case YK__TANH: return tanh(x);
    case YK__LOG1P: return log1p(x);
    case YK__EXPM1: return expm1(x);
    case YK__ERF: return erf(x);
    case YK__SIGMOID: return 1 / (1 + exp(-x));
    case YK__RELU: return x > 0 ? x : 0;
    case YK__GELU: return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case YK__GELU_TANH: return x / (1 + exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case YK__SILU: return x / (1 + exp(-x));
    case YK__MISH: return x * tanh(log1p(exp(x)));
    case YK__LOG_SIGMOID: return -log1p(exp(-x));
    case YK__HARDSWISH: return x * fmin(fmax(x + 3, 0), 6) / 6;
    case YK__HARDSIGMOID: return fmin(fmax(x + 3, 0), 6) / 6;
    case YK__LEAKY_RELU: return x > 0 ? x : p0 * x;
    case YK__ELU: return x > 0 ? x : p0 * expm1(x);
    case YK__SOFTPLUS: return p0 * x > p1 ? x : log1p(exp(p0 * x)) / p0;
    case YK__SOFTPLUS_SLOPE: return p0 * x > p1 ? 1 : 1 / (1 + exp(-p0 * x));
    case YK__THRESHOLD: return x > p0 ? x : p1;
    case YK__HARDSHRINK: return fabs(x) > p0 ? x : 0;
    case YK__SOFTSHRINK: return x > p0 ? x - p0 : x < -p0 ? x + p0 : 0;
    case YK__TAN: return tan(x);
    case YK__ASIN: return asin(x);
    case YK__ACOS: return acos(x);
    case YK__ATANH: return atanh(x);
    case YK__LOG2: return log2(x);
    case YK__LOG10: return log10(x);
    case YK__REPLACE_INFINITY: return isinf(x) ? x > 0 ? p0 : p1 : x;
    case YK__NAN_TO_NUM: return isnan(x) ? p0 : fmin(fmax(x, -p1), p1);
    case YK__SIGN: return (x > 0) - (x < 0);
    case YK__FLOOR: return floor(x);
    case YK__CEIL: return ceil(x);
    case YK__ROUND: return nearbyint(x);
    case YK__ADD_SCALAR: return x + p0;
    case YK__MUL_SCALAR: return x * p0;
    case YK__POW_SCALAR: return pow(x, p0);
    case YK__CLAMP: return fmin(fmax(x, p0), p1);
    default: fail_msg("no reference for unary %d", op); return NAN;
    }
}

/* The value of an exact result in a dtype: integers wrap. */
static double wrapped(yk_dtype dtype, double value)
{
    switch (dtype) {
    case YK_I32: return (int32_t)(int64_t)value;
    case YK_U8: return (uint8_t)(int64_t)value;
    default: return value;
    }
}

static double tolerance(yk_dtype dtype)
{
    return dtype == YK_F32 ? 1e-6 : dtype == YK_F64 ? 1e-14 : 0;
}

static void test_unary(void **state)
{
    (void)state;
    const yk__backend *cpu = cpu_backend();
    for (size_t u = 0; u < sizeof unaries / sizeof unaries[0]; u++)
        for (size_t t = 0; t < sizeof computed / sizeof computed[0]; t++)
            for (int s = 0; s < SHAPES; s++)
                for (int layout = 0; layout < LAYOUTS * INPUT_LAYOUTS; layout++) {
                    yk_dtype dtype = computed[t];
                    if (!unaries[u].integers && !yk_dtype_is_floating(dtype))
                        continue;
                    yk__view in = view_make(dtype, shapes[s].ndim, shapes[s].shape, layout % INPUT_LAYOUTS);
                    yk__view out = view_make(dtype, shapes[s].ndim, shapes[s].shape, layout / INPUT_LAYOUTS);
                    view_random(&in, (uint32_t)(u + 100), unaries[u].low, unaries[u].high);
                    expect_ok(cpu->unary(0, unaries[u].op, &out, &in, unaries[u].p0, unaries[u].p1));
                    for (int64_t i = 0, n = view_count(&out); i < n; i++) {
                        double x = view_get(&in, i), got = view_get(&out, i);
                        double want = wrapped(dtype, unary_reference(unaries[u].op, x, unaries[u].p0, unaries[u].p1));
                        /* gelu's error is that of Phi(x) times x */
                        double scale = fmax(unaries[u].op == YK__GELU ? fabs(x) : fabs(want), 1e-3);
                        if (!(fabs(got - want) <= tolerance(dtype) * scale))
                            fail_msg("%s %s shape %d layout %d: element %lld of %.9g is %.17g, expected %.17g",
                                     unaries[u].name, yk_dtype_name(dtype), s, layout, (long long)i, x, got, want);
                    }
                    view_free(&in);
                    view_free(&out);
                }
}

static const struct {
    yk__binary op;
    const char *name;
    double alpha;
    bool integers, truth;
} binaries[] = {
    {YK__ADD, "add", 1, true, false},
    {YK__ADD, "add 3", 3, true, false},
    {YK__SUB, "sub", 1, true, false},
    {YK__SUB, "sub 2", 2, true, false},
    {YK__MUL, "mul", 1, true, false},
    {YK__DIV, "div", 1, false, false},
    {YK__POW, "pow", 1, false, false},
    {YK__MAXIMUM, "maximum", 1, true, false},
    {YK__MINIMUM, "minimum", 1, true, false},
    {YK__ATAN2, "atan2", 1, false, false},
    {YK__FLOOR_DIVIDE, "floor divide", 1, true, false},
    {YK__TRUNC_DIVIDE, "trunc divide", 1, true, false},
    {YK__REMAINDER, "remainder", 1, true, false},
    {YK__FMOD, "fmod", 1, true, false},
    {YK__EQ, "eq", 1, true, true},
    {YK__NE, "ne", 1, true, true},
    {YK__LT, "lt", 1, true, true},
    {YK__LE, "le", 1, true, true},
    {YK__GT, "gt", 1, true, true},
    {YK__GE, "ge", 1, true, true},
    {YK__AND, "and", 1, true, true},
    {YK__OR, "or", 1, true, true},
    {YK__RELU_GRAD, "relu grad", 1, false, false},
    {YK__TANH_GRAD, "tanh grad", 1, false, false},
    {YK__SIGMOID_GRAD, "sigmoid grad", 1, false, false},
    {YK__GELU_GRAD, "gelu grad", 1, false, false},
    {YK__GELU_TANH_GRAD, "gelu tanh grad", 1, false, false},
    {YK__SILU_GRAD, "silu grad", 1, false, false},
    {YK__MISH_GRAD, "mish grad", 1, false, false},
    {YK__LOG_SIGMOID_GRAD, "log sigmoid grad", 1, false, false},
    {YK__HARDSWISH_GRAD, "hardswish grad", 1, false, false},
    {YK__HARDSIGMOID_GRAD, "hardsigmoid grad", 1, false, false},
    {YK__LEAKY_RELU_GRAD, "leaky relu grad", 0.25, false, false},
    {YK__ELU_GRAD, "elu grad", 1.5, false, false},
    {YK__THRESHOLD_GRAD, "threshold grad", 0.25, false, false},
    {YK__SHRINK_GRAD, "shrink grad", 0.75, false, false},
    {YK__ABOVE_GRAD, "above grad", 0.25, false, false},
    {YK__BELOW_GRAD, "below grad", 0.25, false, false},
    {YK__PRELU, "prelu", 1, false, false},
    {YK__SMOOTH_L1, "smooth l1", 1.5, false, false},
    {YK__SMOOTH_L1_GRAD, "smooth l1 grad", 1.5, false, false},
    {YK__KL_DIV, "kl div", 1, false, false},
    {YK__LERP_NUMBER, "lerp", 0.25, false, false},
    {YK__LERP_NUMBER, "lerp 0.75", 0.75, false, false},
    {YK__ABS_GRAD, "abs grad", 1, false, false},
};

static double binary_reference(yk__binary op, double a, double b, double alpha)
{
    switch (op) {
    case YK__ADD: return a + alpha * b;
    case YK__SUB: return a - alpha * b;
    case YK__MUL: return a * b;
    case YK__DIV: return a / b;
    case YK__POW: return pow(a, b);
    case YK__MAXIMUM: return fmax(a, b);
    case YK__MINIMUM: return fmin(a, b);
    case YK__ATAN2: return atan2(a, b);
    case YK__FLOOR_DIVIDE: return floor(a / b);
    case YK__TRUNC_DIVIDE: return trunc(a / b);
    case YK__REMAINDER: return a - floor(a / b) * b;
    case YK__FMOD: return fmod(a, b);
    case YK__EQ: return a == b;
    case YK__NE: return a != b;
    case YK__LT: return a < b;
    case YK__LE: return a <= b;
    case YK__GT: return a > b;
    case YK__GE: return a >= b;
    case YK__AND: return a != 0 && b != 0;
    case YK__OR: return a != 0 || b != 0;
    case YK__RELU_GRAD: return b > 0 ? a : 0;
    case YK__TANH_GRAD: return a * (1 - b * b);
    case YK__SIGMOID_GRAD: return a * b * (1 - b);
    case YK__GELU_GRAD:
        return a * (0.5 * erfc(-b * 0.70710678118654752440) + b * exp(-b * b / 2) * 0.39894228040143267794);
    case YK__GELU_TANH_GRAD: {
        double c = 0.79788456080286535588, t = tanh(c * (b + 0.044715 * b * b * b));
        return a * (0.5 * (1 + t) + 0.5 * b * (1 - t * t) * c * (1 + 3 * 0.044715 * b * b));
    }
    case YK__SILU_GRAD: return a * (1 + b * (1 - 1 / (1 + exp(-b)))) / (1 + exp(-b));
    case YK__MISH_GRAD: {
        double t = tanh(log1p(exp(b)));
        return a * (t + b * (1 - t * t) / (1 + exp(-b)));
    }
    case YK__LOG_SIGMOID_GRAD: return a / (1 + exp(b));
    case YK__HARDSWISH_GRAD: return b < -3 ? 0 : b <= 3 ? a * (b / 3 + 0.5) : a;
    case YK__HARDSIGMOID_GRAD: return b > -3 && b < 3 ? a / 6 : 0;
    case YK__LEAKY_RELU_GRAD: return b > 0 ? a : alpha * a;
    case YK__ELU_GRAD: return b > 0 ? a : a * alpha * exp(b);
    case YK__THRESHOLD_GRAD: return b > alpha ? a : 0;
    case YK__SHRINK_GRAD: return fabs(b) > alpha ? a : 0;
    case YK__ABOVE_GRAD: return b > alpha ? a : 0;
    case YK__BELOW_GRAD: return b < alpha ? a : 0;
    case YK__PRELU: return a > 0 ? a : a * b;
    case YK__SMOOTH_L1: {
        double d = fabs(a - b);
        return d < alpha ? d * d / (2 * alpha) : d - alpha / 2;
    }
    case YK__SMOOTH_L1_GRAD: return a * fmax(-1, fmin(b / alpha, 1));
    case YK__LERP_NUMBER: return a + alpha * (b - a);
    case YK__KL_DIV: return (b == 0 ? 0 : b * log(b)) - b * a;
    case YK__ABS_GRAD: return a * ((b > 0) - (b < 0));
    default: fail_msg("no reference for binary %d", op); return NAN;
    }
}

static void test_binary(void **state)
{
    (void)state;
    const yk__backend *cpu = cpu_backend();
    for (size_t u = 0; u < sizeof binaries / sizeof binaries[0]; u++)
        for (size_t t = 0; t < sizeof computed / sizeof computed[0]; t++)
            for (int s = 0; s < SHAPES; s++)
                for (int layout = 0; layout < LAYOUTS * INPUT_LAYOUTS * INPUT_LAYOUTS;
                     layout += sanitized_size(1, 4) + s % 3) {
                    yk_dtype dtype = computed[t];
                    if (!binaries[u].integers && !yk_dtype_is_floating(dtype))
                        continue;
                    int ndim = shapes[s].ndim;
                    const int64_t *shape = shapes[s].shape;
                    yk__view a = view_make(dtype, ndim, shape, layout % INPUT_LAYOUTS);
                    yk__view b = view_make(dtype, ndim, shape, layout / INPUT_LAYOUTS % INPUT_LAYOUTS);
                    yk__view out = view_make(binaries[u].truth ? YK_BOOL : dtype, ndim, shape,
                                             layout / INPUT_LAYOUTS / INPUT_LAYOUTS);
                    bool quotient = binaries[u].op >= YK__FLOOR_DIVIDE && binaries[u].op <= YK__FMOD;
                    bool positive = binaries[u].op == YK__POW || binaries[u].op == YK__DIV ||
                                    binaries[u].op == YK__KL_DIV || quotient;
                    view_random(&a, (uint32_t)u, positive ? 0.5 : -4, 4);
                    view_random(&b, (uint32_t)u + 50, quotient ? 1 : positive ? 0.5 : -4, 4);
                    expect_ok(cpu->binary(0, binaries[u].op, &out, &a, &b, binaries[u].alpha));
                    for (int64_t i = 0, n = view_count(&out); i < n; i++) {
                        double x = view_get(&a, i), y = view_get(&b, i), got = view_get(&out, i);
                        double want = binary_reference(binaries[u].op, x, y, binaries[u].alpha);
                        want = wrapped(out.dtype, want);
                        /* Differences of like numbers keep the error of their terms. */
                        double scale = fmax(fabs(want), fabs(x) + fabs(binaries[u].alpha * y));
                        if (!(fabs(got - want) <= tolerance(out.dtype) * scale))
                            fail_msg("%s %s shape %d layout %d: element %lld of (%.9g, %.9g) is %.17g, expected %.17g",
                                     binaries[u].name, yk_dtype_name(dtype), s, layout, (long long)i, x, y, got, want);
                    }
                    view_free(&a);
                    view_free(&b);
                    view_free(&out);
                }
}

/* One element through a slot. */
static double unary_of(yk__unary op, yk_dtype in, yk_dtype out, double x, double p0, double p1)
{
    yk__view a = view_make(in, 0, NULL, LAYOUT_C), o = view_make(out, 0, NULL, LAYOUT_C);
    view_set(&a, 0, x);
    expect_ok(cpu_backend()->unary(0, op, &o, &a, p0, p1));
    double result = view_get(&o, 0);
    view_free(&a);
    view_free(&o);
    return result;
}

static double binary_of(yk__binary op, yk_dtype in, yk_dtype out, double x, double y, double alpha)
{
    yk__view a = view_make(in, 0, NULL, LAYOUT_C), b = view_make(in, 0, NULL, LAYOUT_C);
    yk__view o = view_make(out, 0, NULL, LAYOUT_C);
    view_set(&a, 0, x);
    view_set(&b, 0, y);
    expect_ok(cpu_backend()->binary(0, op, &o, &a, &b, alpha));
    double result = view_get(&o, 0);
    view_free(&a);
    view_free(&b);
    view_free(&o);
    return result;
}

static void test_special_values(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        yk_dtype d = t ? YK_F64 : YK_F32;
        assert_true(isnan(unary_of(YK__RELU, d, d, NAN, 0, 0)));
        assert_true(isnan(unary_of(YK__CLAMP, d, d, NAN, -1, 1)));
        expect_near(unary_of(YK__CLAMP, d, d, 0, 2, 1), 1, 0, 0); /* an empty range gives its upper end */
        expect_near(unary_of(YK__CLAMP, d, d, -9, -INFINITY, 1), -9, 0, 0);
        expect_near(unary_of(YK__SIGN, d, d, NAN, 0, 0), 0, 0, 0);
        expect_near(unary_of(YK__ROUND, d, d, 2.5, 0, 0), 2, 0, 0);
        expect_near(unary_of(YK__ROUND, d, d, -3.5, 0, 0), -4, 0, 0);
        expect_near(unary_of(YK__EXP, d, d, -INFINITY, 0, 0), 0, 0, 0);
        expect_near(unary_of(YK__LOG, d, d, 0, 0, 0), -INFINITY, 0, 0);
        assert_true(isnan(unary_of(YK__LOG, d, d, -1, 0, 0)));
        expect_near(unary_of(YK__TANH, d, d, -INFINITY, 0, 0), -1, 0, 0);
        if (d == YK_F32) /* f64: tests of ops */
            assert_true(isnan(unary_of(YK__GELU, d, d, -INFINITY, 0, 0)));
        expect_near(unary_of(YK__GELU, d, d, -1e30, 0, 0), 0, 0, 0);
        expect_near(unary_of(YK__GELU, d, d, INFINITY, 0, 0), INFINITY, 0, 0);
        expect_near(unary_of(YK__LOGICAL_NOT, d, YK_BOOL, NAN, 0, 0), 0, 0, 0);
        expect_near(unary_of(YK__LOGICAL_NOT, d, YK_BOOL, -0.0, 0, 0), 1, 0, 0);
        expect_near(unary_of(YK__IS_FINITE, d, YK_BOOL, NAN, 0, 0), 0, 0, 0);
        expect_near(unary_of(YK__IS_FINITE, d, YK_BOOL, -INFINITY, 0, 0), 0, 0, 0);
        expect_near(unary_of(YK__IS_FINITE, d, YK_BOOL, FLT_MAX, 0, 0), 1, 0, 0);
        assert_true(isnan(binary_of(YK__MAXIMUM, d, d, NAN, 1, 1)));
        assert_true(isnan(binary_of(YK__MAXIMUM, d, d, 1, NAN, 1)));
        assert_true(isnan(binary_of(YK__MINIMUM, d, d, NAN, 1, 1)));
        assert_true(isnan(binary_of(YK__MINIMUM, d, d, 1, NAN, 1)));
        expect_near(binary_of(YK__EQ, d, YK_BOOL, NAN, NAN, 1), 0, 0, 0);
        expect_near(binary_of(YK__NE, d, YK_BOOL, NAN, NAN, 1), 1, 0, 0);
        expect_near(binary_of(YK__AND, d, YK_BOOL, NAN, 1, 1), 1, 0, 0);
        expect_near(binary_of(YK__DIV, d, d, -1, 0, 1), -INFINITY, 0, 0);
        expect_near(binary_of(YK__RELU_GRAD, d, d, 3, NAN, 1), 3, 0, 0);
        expect_near(binary_of(YK__ABS_GRAD, d, d, 3, 0, 1), 0, 0, 0);
        assert_true(isnan(binary_of(YK__GELU_GRAD, d, d, 3, INFINITY, 1))); /* x phi(x), as in PyTorch */
        assert_true(isnan(binary_of(YK__GELU_GRAD, d, d, 3, -INFINITY, 1)));
    }
    /* integers wrap, and a negative power is cut to an integer */
    expect_near(unary_of(YK__NEG, YK_U8, YK_U8, 3, 0, 0), 253, 0, 0);
    expect_near(unary_of(YK__ABS, YK_I32, YK_I32, INT32_MIN, 0, 0), INT32_MIN, 0, 0);
    expect_near(unary_of(YK__MUL_SCALAR, YK_I64, YK_I64, 0x1p62, 4, 0), 0, 0, 0);
    expect_near(binary_of(YK__SUB, YK_U8, YK_U8, 3, 5, 1), 254, 0, 0);
    expect_near(binary_of(YK__POW, YK_I32, YK_I32, 3, 4, 1), 81, 0, 0);
    expect_near(binary_of(YK__POW, YK_I64, YK_I64, -1, -3, 1), -1, 0, 0);
    expect_near(binary_of(YK__POW, YK_I64, YK_I64, 0, -2, 1), 0, 0, 0);
    expect_near(binary_of(YK__POW, YK_I64, YK_I64, 2, -1, 1), 0, 0, 0);
    expect_near(binary_of(YK__ADD, YK_BOOL, YK_BOOL, 1, 1, 1), 1, 0, 0);
    expect_near(binary_of(YK__MUL, YK_BOOL, YK_BOOL, 1, 0, 1), 0, 0, 0);
    expect_near(binary_of(YK__LT, YK_BOOL, YK_BOOL, 0, 1, 1), 1, 0, 0);
}

static void test_undefined_dtypes(void **state)
{
    (void)state;
    yk__view i = view_make(YK_I32, 0, NULL, LAYOUT_C), b = view_make(YK_BOOL, 0, NULL, LAYOUT_C);
    assert_int_equal(cpu_backend()->unary(0, YK__SQRT, &i, &i, 0, 0), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "sqrt: not defined for int32");
    assert_int_equal(cpu_backend()->binary(0, YK__DIV, &i, &i, &i, 1), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "div: not defined for int32");
    assert_int_equal(cpu_backend()->binary(0, YK__SUB, &b, &b, &b, 1), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "sub: not defined for bool");
    view_free(&i);
    view_free(&b);
}

/* ---- every float, at a stride ---- */

static double ulps(double got, double want)
{
    if (isnan(want))
        return isnan(got) ? 0 : INFINITY;
    if (fabs(want) > 0x1.ffffffp+127) /* rounds to infinity */
        return got == (want > 0 ? INFINITY : -INFINITY) ? 0 : INFINITY;
    int exponent;
    frexp(want, &exponent);
    return fabs(got - want) / ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

static void sweep(yk__unary op, const char *name, double limit)
{
    enum { CHUNK = 4096 };
    const uint32_t step = 4093; /* prime, so that all low bits come up */
    int64_t shape[] = {CHUNK};
    yk__view in = view_make(YK_F32, 1, shape, LAYOUT_C), out = view_make(YK_F32, 1, shape, LAYOUT_C);
    float *x = in.data, *y = out.data;
    for (uint64_t bits = 0; bits <= UINT32_MAX;) {
        for (int i = 0; i < CHUNK; i++, bits += step)
            x[i] = yk__float_of((uint32_t)bits);
        expect_ok(cpu_backend()->unary(0, op, &out, &in, 0, 0));
        for (int i = 0; i < CHUNK; i++) {
            double d = (double)x[i], want;
            if (op == YK__SIGMOID)
                want = d < 0 ? exp(d) / (1 + exp(d)) : 1 / (1 + exp(-d));
            else if (op == YK__GELU && d < -40)
                want = -0.0;
            else if (isinf(d) && (op == YK__SIN || op == YK__COS || op == YK__TAN))
                want = NAN;
            else
                want = unary_reference(op, d, 0, 0);
            if (op == YK__GELU && isinf(d))
                want = d > 0 ? INFINITY : NAN;
            /* gelu: the error of Phi(x) is absolute, as PyTorch's */
            double error = op == YK__GELU && isfinite(d) ? fabs((double)y[i] - want) / (fabs(d) * 0x1p-24 + 0x1p-149)
                                                         : ulps((double)y[i], want);
            if (op == YK__SIGMOID && want < (double)FLT_MIN && (double)y[i] < (double)FLT_MIN)
                continue; /* 0, or what is left */
            if (d == 0 && (op == YK__EXPM1 || op == YK__LOG1P || op == YK__ERF))
                assert_int_equal(yk__bits_of(y[i]), yk__bits_of(x[i]));
            if (!(error <= limit))
                fail_msg("%s(%a) is %a, %.2f ulp from %a", name, d, (double)y[i], error, want);
        }
    }
    view_free(&in);
    view_free(&out);
}

static void test_every_float(void **state)
{
    (void)state;
    sweep(YK__EXP, "exp", 2);
    sweep(YK__LOG, "log", 2);
    sweep(YK__EXPM1, "expm1", 2);
    sweep(YK__LOG1P, "log1p", 2);
    sweep(YK__ERF, "erf", 2);
    sweep(YK__TANH, "tanh", 4);
    sweep(YK__SIGMOID, "sigmoid", 4);
    sweep(YK__GELU, "gelu", 3);
    sweep(YK__SIN, "sin", 2);
    sweep(YK__COS, "cos", 2);
    sweep(YK__TAN, "tan", 5);
    sweep(YK__ASIN, "asin", 4);
    sweep(YK__ACOS, "acos", 4);
    sweep(YK__ATANH, "atanh", 5);
    sweep(YK__LOG2, "log2", 1);
    sweep(YK__LOG10, "log10", 1);
}

/* Infinities and NaN of all real dtypes, and whole logarithms, which are whole. */
static void test_numbers_of_none(void **state)
{
    (void)state;
    static const double in[] = {INFINITY, -INFINITY, NAN, 3, -3};
    static const double others[] = {7, -8, NAN, 3, -3}, numbers[] = {2, -2, 0.5, 2, -2};
    const int64_t shape[] = {5}, one = 1;
    for (size_t t = 0; t < sizeof all_dtypes / sizeof all_dtypes[0]; t++) {
        if (!yk_dtype_is_floating(all_dtypes[t]))
            continue;
        yk__view x = view_make(all_dtypes[t], 1, shape, LAYOUT_C), y = view_make(all_dtypes[t], 1, shape, LAYOUT_C);
        for (int64_t i = 0; i < shape[0]; i++)
            view_set(&x, i, in[i]);
        expect_ok(cpu_backend()->unary(0, YK__REPLACE_INFINITY, &y, &x, 7, -8));
        for (int64_t i = 0; i < shape[0]; i++)
            assert_true(isnan(others[i]) ? isnan(view_get(&y, i)) : view_get(&y, i) == others[i]);
        expect_ok(cpu_backend()->unary(0, YK__NAN_TO_NUM, &y, &x, 0.5, 2));
        for (int64_t i = 0; i < shape[0]; i++)
            assert_true(view_get(&y, i) == numbers[i]);
        view_free(&x);
        view_free(&y);
    }
    for (int wide = 0; wide < 2; wide++) {
        yk__view x = view_make(wide ? YK_F64 : YK_F32, 1, &one, LAYOUT_C);
        for (int power = wide ? -1074 : -149; power < (wide ? 1024 : 128); power++) {
            view_set(&x, 0, ldexp(1, power));
            expect_ok(cpu_backend()->unary(0, YK__LOG2, &x, &x, 0, 0));
            assert_true(view_get(&x, 0) == power);
        }
        for (int power = 0; power <= (wide ? 22 : 10); power++) { /* 10^22 is the last one that is a double */
            view_set(&x, 0, pow(10, power));
            expect_ok(cpu_backend()->unary(0, YK__LOG10, &x, &x, 0, 0));
            assert_true(view_get(&x, 0) == power);
        }
        view_free(&x);
    }
}

/* Floats next to multiples of pi / 2 are where the reduction of the argument loses most. */
static void test_trigonometric_near_zeros(void **state)
{
    (void)state;
    enum { MULTIPLES = 41000, NEAR = 5 };
    int64_t shape[] = {MULTIPLES * NEAR};
    yk__view in = view_make(YK_F32, 1, shape, LAYOUT_C), out = view_make(YK_F32, 1, shape, LAYOUT_C);
    float *x = in.data, *y = out.data;
    for (int k = 0; k < MULTIPLES; k++)
        for (int j = 0; j < NEAR; j++) {
            float nearest = (float)(k * 1.57079632679489661923);
            x[k * NEAR + j] = yk__float_of(yk__bits_of(nearest) + (k == 0 ? 0 : (uint32_t)(j - NEAR / 2)));
        }
    for (int cosine = 0; cosine < 2; cosine++) {
        expect_ok(cpu_backend()->unary(0, cosine ? YK__COS : YK__SIN, &out, &in, 0, 0));
        for (int64_t i = 0; i < shape[0]; i++) {
            double want = cosine ? cos((double)x[i]) : sin((double)x[i]), error = ulps((double)y[i], want);
            if (!(error <= 2))
                fail_msg("%s(%a) is %a, %.2f ulp from %a", cosine ? "cos" : "sin", (double)x[i], (double)y[i], error,
                         want);
        }
    }
    view_free(&in);
    view_free(&out);
}

static void test_power_and_angle(void **state)
{
    (void)state;
    static const float special[] = {0.0f,         -0.0f,  1.0f,     -1.0f,     2.0f,   -2.0f,       0.5f,
                                    -0.5f,        3.0f,   -3.0f,    1.5f,      -1.5f,  7.0f,        0.999f,
                                    1.001f,       1e-40f, -1e-40f,  1e30f,     -1e30f, 16777215.0f, 16777216.0f,
                                    -16777217.0f, 1e-30f, INFINITY, -INFINITY, NAN};
    enum { SPECIAL = sizeof special / sizeof special[0], RANDOM = 300000 };
    int64_t shape[] = {SPECIAL * SPECIAL + RANDOM};
    yk__view a = view_make(YK_F32, 1, shape, LAYOUT_C), b = view_make(YK_F32, 1, shape, LAYOUT_C);
    yk__view out = view_make(YK_F32, 1, shape, LAYOUT_C);
    float *x = a.data, *y = b.data, *o = out.data;
    uint32_t seed = 1;
    for (int64_t i = 0; i < shape[0]; i++) {
        x[i] = special[i / SPECIAL % SPECIAL], y[i] = special[i % SPECIAL];
        if (i < SPECIAL * SPECIAL)
            continue;
        seed = seed * 1664525u + 1013904223u;
        x[i] = yk__float_of(seed >> 1); /* positive, of any size, NaN included */
        seed = seed * 1664525u + 1013904223u;
        double logarithm = fabs(log2((double)x[i]));
        y[i] = (float)(((double)seed / 2147483648.0 - 1.0) * 155.0 / (logarithm > 0.01 ? logarithm : 0.01));
    }
    expect_ok(cpu_backend()->binary(0, YK__POW, &out, &a, &b, 1));
    for (int64_t i = 0; i < shape[0]; i++) {
        double want = pow((double)x[i], (double)y[i]), error = ulps((double)o[i], want);
        if (!(error <= 1) || (o[i] == 0 && !signbit(o[i]) != !signbit(want)))
            fail_msg("pow(%a, %a) is %a, %.2f ulp from %a", (double)x[i], (double)y[i], (double)o[i], error, want);
    }
    expect_ok(cpu_backend()->binary(0, YK__ATAN2, &out, &a, &b, 1));
    for (int64_t i = 0; i < shape[0]; i++) {
        double want = atan2((double)x[i], (double)y[i]), error = ulps((double)o[i], want);
        if (!(error <= 2) || (!isnan(want) && !signbit(o[i]) != !signbit(want)))
            fail_msg("atan2(%a, %a) is %a, %.2f ulp from %a", (double)x[i], (double)y[i], (double)o[i], error, want);
    }
    view_free(&a);
    view_free(&b);
    view_free(&out);
}

/* ---- every instruction set that this processor has ---- */

static void test_same_bits_on_every_instruction_set(void **state)
{
    (void)state;
    yk__backend tables[YK__LEVELS];
    int count = several_instruction_sets(tables);
    int64_t shape[] = {50021};
    for (int t = 0; t < 2; t++) {
        yk_dtype dtype = t ? YK_F64 : YK_F32;
        yk__view a = view_make(dtype, 1, shape, LAYOUT_C), b = view_make(dtype, 1, shape, LAYOUT_C);
        yk__view first = view_make(dtype, 1, shape, LAYOUT_C), other = view_make(dtype, 1, shape, LAYOUT_C);
        size_t bytes = (size_t)shape[0] * yk_dtype_size(dtype);
        view_random(&b, 2, -4, 4);
        for (size_t u = 0; u < sizeof unaries / sizeof unaries[0]; u++) {
            view_random(&a, (uint32_t)u, unaries[u].low, unaries[u].high);
            expect_ok(tables[0].unary(0, unaries[u].op, &first, &a, unaries[u].p0, unaries[u].p1));
            for (int k = 1; k < count; k++) {
                expect_ok(tables[k].unary(0, unaries[u].op, &other, &a, unaries[u].p0, unaries[u].p1));
                if (memcmp(first.data, other.data, bytes) != 0)
                    fail_msg("%s %s: instruction set %d gives other bits", unaries[u].name, yk_dtype_name(dtype), k);
            }
        }
        for (size_t u = 0; u < sizeof binaries / sizeof binaries[0]; u++) {
            if (binaries[u].truth)
                continue;
            view_random(&a, (uint32_t)u, binaries[u].op == YK__POW ? 0.01 : -4, 4);
            expect_ok(tables[0].binary(0, binaries[u].op, &first, &a, &b, binaries[u].alpha));
            for (int k = 1; k < count; k++) {
                expect_ok(tables[k].binary(0, binaries[u].op, &other, &a, &b, binaries[u].alpha));
                if (memcmp(first.data, other.data, bytes) != 0)
                    fail_msg("%s %s: instruction set %d gives other bits", binaries[u].name, yk_dtype_name(dtype), k);
            }
        }
        view_free(&a);
        view_free(&b);
        view_free(&first);
        view_free(&other);
    }
}

/* Without FMA instructions a multiply-add is put together from doubles: it must be the one that hardware rounds. */
static void test_fused_multiply_add(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int i = 0; i < 2000000; i++) {
        uint32_t bits[3];
        for (int k = 0; k < 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            bits[k] = seed ^ seed >> 15;
        }
        if (i % 2) { /* sizes at which the sum is not the greater of the two terms */
            uint32_t sum = (bits[0] >> 23 & 255) + (bits[1] >> 23 & 255);
            uint32_t wanted = (sum + bits[2] % 60u - 30u - 127u) & 255;
            bits[2] = (bits[2] & 0x807FFFFFu) | wanted << 23;
        }
        float a = yk__float_of(bits[0]), b = yk__float_of(bits[1]), c = yk__float_of(bits[2]);
        float got = yk__fma_f32(a, b, c), want = fmaf(a, b, c);
        if (yk__bits_of(got) != yk__bits_of(want) && !(got != got && want != want))
            fail_msg("%a * %a + %a is %a, expected %a", (double)a, (double)b, (double)c, (double)got, (double)want);
    }
}

static void test_gelu_gradient_accuracy(void **state)
{
    (void)state;
    int64_t shape[] = {40001};
    yk__view ones = view_make(YK_F32, 1, shape, LAYOUT_C), x = view_make(YK_F32, 1, shape, LAYOUT_C);
    yk__view out = view_make(YK_F32, 1, shape, LAYOUT_C);
    for (int64_t i = 0; i < shape[0]; i++) {
        view_set(&ones, i, 1);
        view_set(&x, i, (double)(i - 20000) * 0.001);
    }
    expect_ok(cpu_backend()->binary(0, YK__GELU_GRAD, &out, &ones, &x, 1));
    for (int64_t i = 0; i < shape[0]; i++)
        expect_near(view_get(&out, i), binary_reference(YK__GELU_GRAD, 1, view_get(&x, i), 1), 0, 3e-7);
    view_free(&ones);
    view_free(&x);
    view_free(&out);
}

/* ---- halves: as f32, rounded once ---- */

static bool same_half(const yk__view *a, const yk__view *b, int64_t i)
{
    double x = view_get(a, i), y = view_get(b, i);
    return (isnan(x) && isnan(y)) ||
           memcmp((const char *)a->data + 2 * view_offset(a, i), (const char *)b->data + 2 * view_offset(b, i), 2) == 0;
}

/* Every half, and with it another: all operations against those of f32, on every instruction set. */
static void test_computed_halves(void **state)
{
    (void)state;
    enum { HALVES = 65536 };
    int64_t shape[] = {HALVES};
    yk__backend tables[YK__LEVELS];
    int count = instruction_sets(tables);
    for (int t = 0; t < 2 * count; t++) {
        const yk__backend *cpu = &tables[t / 2];
        yk_dtype dtype = t % 2 ? YK_BF16 : YK_F16;
        yk__view x = view_make(dtype, 1, shape, LAYOUT_C), y = view_make(dtype, 1, shape, LAYOUT_C);
        yk__view wide_x = view_make(YK_F32, 1, shape, LAYOUT_C), wide_y = view_make(YK_F32, 1, shape, LAYOUT_C);
        yk__view made = view_make(YK_F32, 1, shape, LAYOUT_C), want = view_make(dtype, 1, shape, LAYOUT_C);
        yk__view got = view_make(dtype, 1, shape, LAYOUT_C);
        for (int i = 0; i < HALVES; i++) {
            ((uint16_t *)x.data)[i] = (uint16_t)i;
            ((uint16_t *)y.data)[i] = (uint16_t)((uint32_t)i * 40503u + 977u);
        }
        expect_ok(cpu->copy(0, &wide_x, &x));
        expect_ok(cpu->copy(0, &wide_y, &y));
        for (size_t u = 0; u < sizeof unaries / sizeof unaries[0]; u++) {
            expect_ok(cpu->unary(0, unaries[u].op, &made, &wide_x, unaries[u].p0, unaries[u].p1));
            expect_ok(cpu->copy(0, &want, &made));
            expect_ok(cpu->unary(0, unaries[u].op, &got, &x, unaries[u].p0, unaries[u].p1));
            for (int i = 0; i < HALVES; i++)
                if (!same_half(&got, &want, i))
                    fail_msg("%s %s set %d: of %g is %g, expected %g", unaries[u].name, yk_dtype_name(dtype), t / 2,
                             view_get(&x, i), view_get(&got, i), view_get(&want, i));
        }
        for (size_t u = 0; u < sizeof binaries / sizeof binaries[0]; u++) {
            if (binaries[u].truth)
                continue;
            expect_ok(cpu->binary(0, binaries[u].op, &made, &wide_x, &wide_y, binaries[u].alpha));
            expect_ok(cpu->copy(0, &want, &made));
            expect_ok(cpu->binary(0, binaries[u].op, &got, &x, &y, binaries[u].alpha));
            for (int i = 0; i < HALVES; i++)
                if (!same_half(&got, &want, i))
                    fail_msg("%s %s set %d: of (%g, %g) is %g, expected %g", binaries[u].name, yk_dtype_name(dtype),
                             t / 2, view_get(&x, i), view_get(&y, i), view_get(&got, i), view_get(&want, i));
        }
        yk__view *all[] = {&x, &y, &wide_x, &wide_y, &made, &want, &got};
        for (int k = 0; k < 7; k++)
            view_free(all[k]);
    }
}

/* Parts of blocks, every memory order, and the output in place of an input. */
static void test_parts_of_halves(void **state)
{
    (void)state;
    const yk__backend *cpu = cpu_backend();
    for (int s = 0; s < SHAPES; s++)
        for (int layout = 0; layout < LAYOUTS * INPUT_LAYOUTS; layout++)
            for (int t = 0; t < 2; t++) {
                yk_dtype dtype = t ? YK_BF16 : YK_F16;
                int ndim = shapes[s].ndim;
                const int64_t *shape = shapes[s].shape;
                yk__view x = view_make(dtype, ndim, shape, layout % INPUT_LAYOUTS);
                yk__view y = view_make(dtype, ndim, shape, LAYOUT_C);
                yk__view out = view_make(dtype, ndim, shape, layout / INPUT_LAYOUTS);
                view_random(&x, 7, 0.5, 4);
                view_random(&y, 8, 0.5, 4);
                expect_ok(cpu->unary(0, YK__SQRT, &out, &x, 0, 0));
                expect_ok(cpu->binary(0, YK__DIV, &out, &out, &y, 1));
                expect_ok(cpu->unary(0, YK__NEG, &out, &out, 0, 0));
                for (int64_t i = 0, n = view_count(&out); i < n; i++)
                    expect_near(view_get(&out, i), -sqrt(view_get(&x, i)) / view_get(&y, i), t ? 8e-3 : 1e-3, 0);
                view_free(&x);
                view_free(&y);
                view_free(&out);
            }
}

/* A clamp of integers between numbers that the dtype has, and that it has not. */
static void test_clamp_of_integers(void **state)
{
    (void)state;
    static const double bounds[][2] = {
        {-5, 7},          {7, -5},       {0, 255},     {0, 256},     {-1, 5},
        {3, 300},         {300, 400},    {-0x1p40, 9}, {-9, 0x1p40}, {INT32_MIN, INT32_MAX},
        {0x1p31, 0x1p33}, {-INFINITY, 3}};
    static const double numbers[] = {0,   1,   2,   3,  4,  5,  6,     7,         8,        9,
                                     100, 254, 255, -1, -5, -6, -1000, INT32_MAX, INT32_MIN};
    enum { NUMBERS = sizeof numbers / sizeof numbers[0] };
    static const yk_dtype dtypes[] = {YK_I32, YK_U8, YK_I64};
    int64_t shape[] = {NUMBERS * 7};
    for (size_t t = 0; t < 3; t++)
        for (size_t k = 0; k < sizeof bounds / sizeof bounds[0]; k++) {
            yk__view x = view_make(dtypes[t], 1, shape, LAYOUT_C), out = view_make(dtypes[t], 1, shape, LAYOUT_C);
            for (int64_t i = 0; i < shape[0]; i++)
                view_set(&x, i, dtypes[t] == YK_U8 ? fabs(fmod(numbers[i % NUMBERS], 256)) : numbers[i % NUMBERS]);
            expect_ok(cpu_backend()->unary(0, YK__CLAMP, &out, &x, bounds[k][0], bounds[k][1]));
            double low = fmax(bounds[k][0], -0x1p63), high = bounds[k][1];
            for (int64_t i = 0; i < shape[0]; i++) {
                double v = view_get(&x, i), want = wrapped(dtypes[t], v < low ? fmin(low, high) : fmin(v, high));
                expect_near(view_get(&out, i), want, 0, 0);
            }
            view_free(&x);
            view_free(&out);
        }
}

/* Sums and products that are written past the caches, from 24 MiB on, are those of small parts to the bit: rows of odd
 * lengths, at odd places, of two whole operands, of a repeated row, and over one of the operands. */
static void test_large_outputs(void **state)
{
    (void)state;
    enum { ROWS = 701, COLUMNS = 9001 };
    yk__backend sets[YK__LEVELS] = {{0}};
    int64_t bytes = (int64_t)ROWS * COLUMNS * 8 + 64;
    char *memory[4];
    for (int k = 0; k < 4; k++)
        assert_non_null(memory[k] = malloc((size_t)bytes));
    for (int set = 0, all = instruction_sets(sets); set < all; set++)
        for (int t = 0; t < 2; t++)
            for (int op = 0; op < 2; op++)
                for (int how = 0; how < 3; how++) {
                    int64_t size = t ? 8 : 4, n = (int64_t)ROWS * COLUMNS;
                    assert_true(n * size >= 24 << 20);
                    yk__view x[4]; /* a, b, the whole, the parts */
                    for (int k = 0; k < 4; k++) {
                        x[k] = (yk__view){.data = memory[k] + size * (k + 1), .dtype = t ? YK_F64 : YK_F32, .ndim = 2};
                        x[k].shape[0] = ROWS, x[k].shape[1] = COLUMNS;
                        x[k].stride[0] = k == 1 && how == 1 ? 0 : COLUMNS, x[k].stride[1] = 1;
                    }
                    for (int k = 0; k < 2; k++)
                        for (int64_t i = 0; i < n; i++) {
                            double v = i % 1009 ? (double)((i * 7919 + k) % 100003) / 1009 - 37 : i % 2 ? NAN : -0.0;
                            if (t)
                                ((double *)x[k].data)[i] = v;
                            else
                                ((float *)x[k].data)[i] = (float)v;
                        }
                    yk__binary what = op ? YK__MUL : YK__ADD;
                    for (int64_t row = 0; row < ROWS; row++) {
                        yk__view part[3] = {x[3], x[0], x[1]};
                        for (int k = 0; k < 3; k++) {
                            part[k].data = (char *)part[k].data + row * part[k].stride[0] * size;
                            part[k].shape[0] = 1;
                        }
                        expect_ok(sets[set].binary(0, what, &part[0], &part[1], &part[2], 1));
                    }
                    yk__view *out = how == 2 ? &x[0] : &x[2];
                    memset(memory[2], 255, (size_t)bytes);
                    expect_ok(sets[set].binary(0, what, out, &x[0], &x[1], 1));
                    assert_memory_equal(out->data, x[3].data, (size_t)(n * size));
                    const unsigned char *end = (unsigned char *)x[2].data + n * size;
                    assert_int_equal(end[0], 255);
                    assert_int_equal(end[-n * size - 1], 255);
                }
    for (int k = 0; k < 4; k++)
        free(memory[k]);
}

/* ---- copy ---- */

static void test_copy(void **state)
{
    (void)state;
    for (int from = 0; from < YK__DTYPES; from++)
        for (int to = 0; to < YK__DTYPES; to++)
            for (int s = 0; s < SHAPES; s++)
                for (int layout = 0; layout < LAYOUTS * INPUT_LAYOUTS; layout++) {
                    yk__view in = view_make(all_dtypes[from], shapes[s].ndim, shapes[s].shape, layout % INPUT_LAYOUTS);
                    yk__view out = view_make(all_dtypes[to], shapes[s].ndim, shapes[s].shape, layout / INPUT_LAYOUTS);
                    view_random(&in, (uint32_t)(from * 8 + to), 0, 200);
                    expect_ok(cpu_backend()->copy(0, &out, &in));
                    for (int64_t i = 0, n = view_count(&out); i < n; i++) {
                        /* The expected value goes the same way for one element: yk__store_scalar. */
                        double x = view_get(&in, i), want;
                        uint64_t element = 0;
                        yk__view single = {.data = &element, .dtype = all_dtypes[to]};
                        yk__store_scalar(&element, all_dtypes[to], x);
                        want = view_get(&single, 0);
                        if (view_get(&out, i) != want)
                            fail_msg("%s to %s, shape %d layout %d: element %lld of %.9g is %.9g, expected %.9g",
                                     yk_dtype_name(in.dtype), yk_dtype_name(out.dtype), s, layout, (long long)i, x,
                                     view_get(&out, i), want);
                    }
                    view_free(&in);
                    view_free(&out);
                }
}

/* Rows of 2 to 80 bytes to and from wider matrices, as cat and its gradient do: the bytes between them stay. */
static void test_copy_of_short_rows(void **state)
{
    (void)state;
    enum { ROWS = 37, MOST = 20, GAP = 3 };
    static const yk_dtype dtypes[] = {YK_U8, YK_BF16, YK_F32, YK_F64};
    static uint8_t from[8 * ROWS * (MOST + GAP)], to[sizeof from];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i * 7 % 251);
    for (int t = 0; t < 4; t++)
        for (int64_t width = 1; width <= MOST; width++)
            for (int gaps = 0; gaps < 4; gaps++) {
                int64_t size = (int64_t)yk_dtype_size(dtypes[t]), in_step = width + (gaps & 1 ? GAP : 0);
                int64_t out_step = width + (gaps & 2 ? GAP : 0);
                yk__view in = {.data = from, .dtype = dtypes[t], .ndim = 2, .shape = {ROWS, width}};
                yk__view out = in;
                in.stride[0] = in_step, out.stride[0] = out_step, in.stride[1] = out.stride[1] = 1;
                out.data = to;
                memset(to, 255, sizeof to);
                expect_ok(cpu_backend()->copy(0, &out, &in));
                for (int64_t i = 0; i < (int64_t)sizeof to; i++) {
                    int64_t row = i / (out_step * size), at = i % (out_step * size);
                    int want = row < ROWS && at < width * size ? from[row * in_step * size + at] : 255;
                    if (to[i] != want)
                        fail_msg("%s, rows of %lld: byte %lld of row %lld is %d, expected %d", yk_dtype_name(dtypes[t]),
                                 (long long)width, (long long)at, (long long)row, to[i], want);
                }
            }
}

/* Every second to fifth element, read from and written to blocks that end with the last of them: the bytes between the
 * elements stay. */
static void test_copy_of_small_steps(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_U8, YK_BF16, YK_F32, YK_F64};
    static const int64_t counts[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129, 1001};
    yk__backend sets[YK__LEVELS] = {{0}};
    for (int set = 0, all = instruction_sets(sets); set < all; set++)
        for (int t = 0; t < 4; t++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int64_t step = 1; step <= 5; step++)
                    for (int64_t out_step = 1; out_step <= 5; out_step++) {
                        size_t n = (size_t)counts[c], size = yk_dtype_size(dtypes[t]);
                        size_t in_bytes = ((n - 1) * (size_t)step + 1) * size;
                        size_t out_bytes = ((n - 1) * (size_t)out_step + 1) * size;
                        uint8_t *from = malloc(in_bytes), *to = malloc(out_bytes);
                        for (size_t i = 0; i < in_bytes; i++)
                            from[i] = (uint8_t)(i * 7 % 251);
                        memset(to, 255, out_bytes);
                        yk__view in = {.data = from, .dtype = dtypes[t], .ndim = 1, .shape = {(int64_t)n}};
                        yk__view out = in;
                        in.stride[0] = step, out.stride[0] = out_step;
                        out.data = to;
                        expect_ok(sets[set].copy(0, &out, &in));
                        for (size_t i = 0; i < out_bytes; i++) {
                            size_t at = i / size;
                            bool written = at % (size_t)out_step == 0;
                            size_t place = (at / (size_t)out_step * (size_t)step) * size + i % size;
                            int want = written ? from[place] : 255;
                            if (to[i] != want)
                                fail_msg("set %d, %zu of %s, every %lld to every %lld: byte %zu is %d, expected %d",
                                         set, n, yk_dtype_name(dtypes[t]), (long long)step, (long long)out_step, i,
                                         to[i], want);
                        }
                        free(from);
                        free(to);
                    }
}

/* Planes to pixels of 1 to 6 channels and back, blocks that end with the last element; the planes also with gaps, which
 * stay. */
static void test_copy_of_pixels(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_U8, YK_BF16, YK_F32, YK_F64};
    static const int64_t counts[] = {1, 2, 7, 8, 9, 15, 16, 17, 63, 255, 256, 257, 264, 521};
    yk__backend sets[YK__LEVELS] = {{0}};
    for (int set = 0, all = instruction_sets(sets); set < all; set++)
        for (int t = 0; t < 4; t++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                for (int64_t channels = 1; channels <= 6; channels++)
                    for (int how = 0; how < 4; how++) {
                        int64_t n = counts[c], gap = how & 1 ? 3 : 0, size = (int64_t)yk_dtype_size(dtypes[t]);
                        int64_t elements[2] = {n * channels, (channels - 1) * (n + gap) + n}; /* pixels, planes */
                        int64_t strides[2][2] = {{channels, 1}, {1, n + gap}};
                        bool back = how & 2;
                        uint8_t *from = malloc((size_t)(elements[!back] * size));
                        uint8_t *to = malloc((size_t)(elements[back] * size));
                        for (int64_t i = 0; i < elements[!back] * size; i++)
                            from[i] = (uint8_t)(i * 7 % 251);
                        memset(to, 255, (size_t)(elements[back] * size));
                        yk__view in = {.data = from, .dtype = dtypes[t], .ndim = 2, .shape = {n, channels}};
                        yk__view out = in;
                        out.data = to;
                        for (int d = 0; d < 2; d++)
                            in.stride[d] = strides[!back][d], out.stride[d] = strides[back][d];
                        expect_ok(sets[set].copy(0, &out, &in));
                        for (int64_t i = 0; i < elements[back] * size; i++) {
                            int64_t at = i / size, pixel = back ? at % (n + gap) : at / channels;
                            int64_t channel = back ? at / (n + gap) : at % channels;
                            int64_t place = pixel * in.stride[0] + channel * in.stride[1];
                            int want = pixel < n ? from[place * size + i % size] : 255;
                            if (to[i] != want)
                                fail_msg("set %d, %lld pixels of %lld channels of %s, way %d: byte %lld is %d, "
                                         "expected %d",
                                         set, (long long)n, (long long)channels, yk_dtype_name(dtypes[t]), how,
                                         (long long)i, to[i], want);
                        }
                        free(from);
                        free(to);
                    }
}

/* Parts between each other in one matrix, some of them cast or with fewer rows, leave what `copy` of each leaves. */
static void test_copy_parts(void **state)
{
    (void)state;
    enum { MOST = 19 };
    static const struct {
        int64_t rows, gap, width[MOST + 1];
    } cases[] = {
        {37, 3, {16, 16}},
        {37, 0, {16, 17, 18, 1, 0, 100}},
        {1, 5, {64, 64}},
        {0, 5, {64, 64}},
        {5, 0, {2047, 2048, 2049, 64}},
        {41, 7, {40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58}},
        {9001, 0, {130, 3, 140}}, /* with 8 bytes more than the output that is fetched ahead */
    };
    static const yk_dtype dtypes[] = {YK_BF16, YK_F32, YK_F64};
    yk__backend sets[YK__LEVELS] = {{0}};
    for (int set = 0, all = instruction_sets(sets); set < all; set++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            for (int t = 0; t < 3; t++)
                for (int how = 0; how < 8;
                     how++) { /* bits: a gap in inputs; a part that is cast; one with half the rows */
                    yk_dtype dtype = dtypes[t];
                    int64_t size = (int64_t)yk_dtype_size(dtype), width = cases[c].gap, rows = cases[c].rows, at = 0;
                    int count = 0;
                    for (; count < MOST && (cases[c].width[count] || cases[c].width[count + 1]); count++)
                        width += cases[c].width[count];
                    size_t bytes = (size_t)(rows * width * size) + 64;
                    uint8_t *together = malloc(bytes), *single = malloc(bytes);
                    memset(together, 255, bytes);
                    memset(single, 255, bytes);
                    yk__view outs[MOST], ins[MOST];
                    for (int i = 0; i < count; i++) {
                        int64_t part = cases[c].width[i], step = part + (how & 1 ? 5 : 0);
                        yk_dtype from = how & 2 && i == 1 ? YK_I32 : dtype;
                        size_t all_of_it = (size_t)(rows * step) * yk_dtype_size(from) + 1;
                        ins[i] = (yk__view){.data = malloc(all_of_it), .dtype = from, .ndim = 2};
                        for (size_t k = 0; k < all_of_it; k++)
                            ((uint8_t *)ins[i].data)[k] = (uint8_t)((k * 7 + (size_t)i) % 61);
                        ins[i].shape[0] = how & 4 && i == 0 ? rows / 2 : rows;
                        ins[i].shape[1] = part;
                        ins[i].stride[0] = step;
                        ins[i].stride[1] = 1;
                        outs[i] = ins[i];
                        outs[i].dtype = dtype;
                        outs[i].data = single + at * size;
                        outs[i].stride[0] = width;
                        expect_ok(sets[set].copy(0, &outs[i], &ins[i]));
                        outs[i].data = together + at * size;
                        at += part;
                    }
                    expect_ok(sets[set].copy_parts(0, count, outs, ins));
                    if (memcmp(together, single, bytes))
                        fail_msg("set %d, case %zu, %s, way %d: not what copies leave", set, c, yk_dtype_name(dtype),
                                 how);
                    for (int i = 0; i < count; i++)
                        free(ins[i].data);
                    free(together);
                    free(single);
                }
}

/* Both through a long vector, where the vectorised loop runs, and as its own tail. */
static double cast_of(yk_dtype from, yk_dtype to, double x)
{
    int64_t shape[] = {37};
    yk__view in = view_make(from, 1, shape, LAYOUT_C), out = view_make(to, 1, shape, LAYOUT_C);
    for (int i = 0; i < 37; i++)
        view_set(&in, i, x);
    expect_ok(cpu_backend()->copy(0, &out, &in));
    double first = view_get(&out, 0);
    for (int i = 1; i < 37; i++)
        expect_near(view_get(&out, i), first, 0, 0);
    view_free(&in);
    view_free(&out);
    return first;
}

static void test_cast_edges(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++) {
        yk_dtype d = t ? YK_F64 : YK_F32;
        expect_near(cast_of(d, YK_I64, -1.9), -1, 0, 0);
        expect_near(cast_of(d, YK_I64, 1e30), (double)INT64_MAX, 0, 0);
        expect_near(cast_of(d, YK_I64, -INFINITY), (double)INT64_MIN, 0, 0);
        expect_near(cast_of(d, YK_I64, NAN), 0, 0, 0);
        expect_near(cast_of(d, YK_I32, 3e9), INT32_MAX, 0, 0);
        expect_near(cast_of(d, YK_I32, -3e9), INT32_MIN, 0, 0);
        expect_near(cast_of(d, YK_I32, NAN), 0, 0, 0);
        expect_near(cast_of(d, YK_U8, -1), 255, 0, 0);
        expect_near(cast_of(d, YK_U8, 300.7), 44, 0, 0);
        expect_near(cast_of(d, YK_BOOL, NAN), 1, 0, 0);
        expect_near(cast_of(d, YK_BOOL, 0.1), 1, 0, 0);
        expect_near(cast_of(d, YK_BOOL, -0.0), 0, 0, 0);
        assert_true(isnan(cast_of(d, YK_F16, NAN)));
        assert_true(isnan(cast_of(d, YK_BF16, NAN)));
        expect_near(cast_of(d, YK_F16, 65519), 65504, 0, 0);
        expect_near(cast_of(d, YK_F16, 65520), INFINITY, 0, 0);
        expect_near(cast_of(d, YK_F16, -1e9), -INFINITY, 0, 0);
        expect_near(cast_of(d, YK_F16, 0x1p-25), 0, 0, 0); /* a tie, to even */
        expect_near(cast_of(d, YK_F16, 0x1.8p-24), 0x1p-23, 0, 0);
        expect_near(cast_of(d, YK_F16, 2049), 2048, 0, 0);
        expect_near(cast_of(d, YK_F16, 2051), 2052, 0, 0);
        expect_near(cast_of(d, YK_BF16, 257), 256, 0, 0);
        expect_near(cast_of(d, YK_BF16, 259), 260, 0, 0);
        expect_near(cast_of(d, YK_BF16, FLT_MAX), INFINITY, 0, 0);
    }
    for (int x = 0; x < 256; x++)
        expect_near(cast_of(YK_U8, YK_BF16, x), x, 0, 0);
    expect_near(cast_of(YK_BOOL, YK_BF16, 1), 1, 0, 0);
    expect_near(cast_of(YK_I64, YK_I32, 0x1p32 + 5), 5, 0, 0);
    expect_near(cast_of(YK_I64, YK_BOOL, 0x1p32), 1, 0, 0);
    expect_near(cast_of(YK_F16, YK_I32, -7.5), -7, 0, 0);
    expect_near(cast_of(YK_BF16, YK_F16, 1e-30), 0, 0, 0);
}

/* Numbers at, within and beyond the ends of i32, at every place of a vector, of every instruction set. */
static void test_casts_to_i32(void **state)
{
    (void)state;
    static const float numbers[] = {0.0f,     -0.0f,           1.5f,       -1.5f,  0x1.fffffep30f, 0x1p31f,   0x1.8p31f,
                                    -0x1p31f, -0x1.000002p31f, 3e38f,      -3e38f, INFINITY,       -INFINITY, NAN,
                                    -NAN,     0x1p-149f,       -0x1.fep30f};
    enum { NUMBERS = sizeof numbers / sizeof *numbers, MOST = 101 };
    static const yk_dtype dtypes[] = {YK_F32, YK_BF16, YK_F16, YK_F64};
    yk__backend sets[YK__LEVELS] = {{0}};
    for (int set = 0, all = instruction_sets(sets); set < all; set++)
        for (int t = 0; t < 4; t++)
            for (int64_t n = 1; n <= MOST; n++) {
                yk__view in = view_make(dtypes[t], 1, &n, LAYOUT_C), out = view_make(YK_I32, 1, &n, LAYOUT_C);
                for (int64_t i = 0; i < n; i++)
                    view_set(&in, i, (double)numbers[(i + n) % NUMBERS]);
                expect_ok(sets[set].copy(0, &out, &in));
                for (int64_t i = 0; i < n; i++) {
                    double x = view_get(&in, i);
                    double want = isnan(x) ? 0 : x >= 0x1p31 ? INT32_MAX : x <= -0x1p31 ? INT32_MIN : trunc(x);
                    if (view_get(&out, i) != want)
                        fail_msg("set %d, %s: element %lld of %lld, %.9g, is %.17g, expected %.17g", set,
                                 yk_dtype_name(dtypes[t]), (long long)i, (long long)n, x, view_get(&out, i), want);
                }
                view_free(&in);
                view_free(&out);
            }
}

/* All 65,536 halves there and back; and f32 to f16 against rounding by scaled integers. */
static void test_halves(void **state)
{
    (void)state;
    int64_t shape[] = {65536};
    yk__view h = view_make(YK_F16, 1, shape, LAYOUT_C), f = view_make(YK_F32, 1, shape, LAYOUT_C);
    yk__view back = view_make(YK_F16, 1, shape, LAYOUT_C);
    for (int i = 0; i < 65536; i++)
        ((uint16_t *)h.data)[i] = (uint16_t)i;
    expect_ok(cpu_backend()->copy(0, &f, &h));
    expect_ok(cpu_backend()->copy(0, &back, &f));
    for (int i = 0; i < 65536; i++) {
        int exponent = i >> 10 & 31, mantissa = i & 1023;
        double want = exponent == 31  ? (mantissa ? NAN : INFINITY)
                      : exponent == 0 ? ldexp(mantissa, -24)
                                      : ldexp(1024 + mantissa, exponent - 25);
        want = i & 0x8000 ? -want : want;
        expect_near((double)((float *)f.data)[i], want, 0, 0);
        if (!isnan(want))
            assert_int_equal(((uint16_t *)back.data)[i], i);
    }
    for (int i = 0; i < 65536; i++) {
        uint32_t words[4];
        yk__philox((yk__stream){9, YK__RANDOM_TEST, 0}, (uint64_t)i, words);
        ((float *)f.data)[i] = yk__float_of((words[0] & 0x807FFFFFu) | (100 + words[1] % 46) << 23);
    }
    expect_ok(cpu_backend()->copy(0, &h, &f));
    for (int i = 0; i < 65536; i++) {
        double x = (double)((float *)f.data)[i];
        int exponent;
        frexp(x, &exponent);
        double unit = ldexp(1, exponent < -13 ? -24 : exponent - 11), want = nearbyint(x / unit) * unit;
        expect_near(view_get(&h, i), fabs(want) > 65504 ? (x > 0 ? INFINITY : -INFINITY) : want, 0, 0);
    }
    view_free(&h);
    view_free(&f);
    view_free(&back);
}

static void test_fill(void **state)
{
    (void)state;
    for (int t = 0; t < YK__DTYPES; t++)
        for (int s = 0; s < SHAPES; s++)
            for (int layout = 0; layout < LAYOUTS; layout++)
                for (int zero = 0; zero < 2; zero++) {
                    yk__view v = view_make(all_dtypes[t], shapes[s].ndim, shapes[s].shape, layout);
                    expect_ok(cpu_backend()->fill(0, &v, zero ? 0 : 7));
                    for (int64_t i = 0, n = view_count(&v); i < n; i++)
                        expect_near(view_get(&v, i), zero ? 0 : v.dtype == YK_BOOL ? 1 : 7, 0, 0);
                    if (layout == LAYOUT_GAPS && view_count(&v) > 2) /* the bytes between the elements stay */
                        assert_int_equal(((unsigned char *)v.data)[yk_dtype_size(v.dtype)], 0x5A);
                    view_free(&v);
                }
}

/* The slot ternary in every layout of each operand, and over its first one. */
static void test_ternary(void **state)
{
    (void)state;
    enum { OPS = YK__ADDCDIV + 1, ALL = LAYOUTS * INPUT_LAYOUTS * INPUT_LAYOUTS * INPUT_LAYOUTS };
    const double value = 0.3;
    for (int wide = 0; wide < 2; wide++)
        for (int op = 0; op < OPS; op++)
            for (int s = 0; s < SHAPES; s++)
                for (int layout = op + s; layout < ALL; layout += sanitized_size(5, 17)) {
                    yk_dtype dtype = wide ? YK_F64 : YK_F32;
                    yk__view in[3], out = view_make(dtype, shapes[s].ndim, shapes[s].shape, layout % LAYOUTS);
                    for (int k = 0, rest = layout / LAYOUTS; k < 3; k++, rest /= INPUT_LAYOUTS) {
                        in[k] = view_make(dtype, shapes[s].ndim, shapes[s].shape, rest % INPUT_LAYOUTS);
                        view_random(&in[k], (uint32_t)(7 * op + k), k == 2 ? 0.1 : -3, k == 2 ? 1.5 : 3);
                    }
                    expect_ok(cpu_backend()->ternary(0, (yk__ternary)op, &out, &in[0], &in[1], &in[2], value));
                    for (int over = 0; over < 2; over++) {
                        for (int64_t i = 0, n = view_count(&out); i < n; i++) {
                            double x = view_get(&in[0], i), y = view_get(&in[1], i), z = view_get(&in[2], i);
                            double want =
                                op == YK__LERP ? x + z * (y - x) : x + value * (op == YK__ADDCMUL ? y * z : y / z);
                            expect_near(view_get(&out, i), want, 0, wide ? 1e-13 : 4e-6);
                        }
                        yk__view first = view_make(dtype, shapes[s].ndim, shapes[s].shape, layout % LAYOUTS);
                        expect_ok(cpu_backend()->copy(0, &first, &in[0]));
                        expect_ok(cpu_backend()->ternary(0, (yk__ternary)op, &first, &first, &in[1], &in[2], value));
                        expect_ok(cpu_backend()->copy(0, &out, &first));
                        view_free(&first);
                    }
                    for (int k = 0; k < 3; k++)
                        view_free(&in[k]);
                    view_free(&out);
                }
}

static void test_where(void **state)
{
    (void)state;
    for (int t = 0; t < YK__DTYPES; t++)
        for (int s = 0; s < SHAPES; s++)
            for (int layout = 0; layout < LAYOUTS * INPUT_LAYOUTS * INPUT_LAYOUTS; layout++) {
                int ndim = shapes[s].ndim, left = layout % INPUT_LAYOUTS,
                    right = layout / INPUT_LAYOUTS % INPUT_LAYOUTS;
                const int64_t *shape = shapes[s].shape;
                yk__view condition = view_make(YK_BOOL, ndim, shape, right);
                yk__view a = view_make(all_dtypes[t], ndim, shape, left), b = view_make(a.dtype, ndim, shape, right);
                yk__view out = view_make(a.dtype, ndim, shape, layout / INPUT_LAYOUTS / INPUT_LAYOUTS);
                for (int64_t i = 0, n = view_count(&condition); i < n; i++)
                    view_set(&condition, i, i * 7 % 3 == 0);
                view_random(&a, 1, 0, 100);
                view_random(&b, 2, 0, 100);
                expect_ok(cpu_backend()->where(0, &out, &condition, &a, &b));
                for (int64_t i = 0, n = view_count(&out); i < n; i++)
                    expect_near(view_get(&out, i), view_get(view_get(&condition, i) != 0 ? &a : &b, i), 0, 0);
                view_free(&condition);
                view_free(&a);
                view_free(&b);
                view_free(&out);
            }
}

/* The output may be the very view of an input. */
static void test_in_place(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++)
        for (int layout = 0; layout < LAYOUTS; layout++) {
            int ndim = shapes[s].ndim;
            const int64_t *shape = shapes[s].shape;
            yk__view a = view_make(YK_F32, ndim, shape, layout), b = view_make(YK_F32, ndim, shape, LAYOUT_C);
            yk__view before = view_make(YK_F32, ndim, shape, LAYOUT_C);
            view_random(&a, 3, -2, 2);
            view_random(&b, 4, -2, 2);
            expect_ok(cpu_backend()->copy(0, &before, &a));
            expect_ok(cpu_backend()->binary(0, YK__ADD, &a, &a, &b, 1));
            expect_ok(cpu_backend()->binary(0, YK__SUB, &a, &b, &a, 1)); /* -before */
            expect_ok(cpu_backend()->unary(0, YK__MUL_SCALAR, &a, &a, -2, 0));
            for (int64_t i = 0, n = view_count(&a); i < n; i++)
                expect_near(view_get(&a, i), 2 * view_get(&before, i), 1e-5, 1e-6);
            view_free(&a);
            view_free(&b);
            view_free(&before);
        }
}

/* A view of `shape` whose own memory has size 1 along the dimensions that are set in `repeated`. */
static yk__view repeated_view(yk_dtype dtype, const int64_t *shape, unsigned repeated)
{
    int64_t own[3];
    for (int d = 0; d < 3; d++)
        own[d] = repeated >> d & 1 ? 1 : shape[d];
    yk__view v = view_make(dtype, 3, own, LAYOUT_C);
    for (int d = 0; d < 3; d++)
        if (repeated >> d & 1) {
            v.shape[d] = shape[d];
            v.stride[d] = 0;
        }
    return v;
}

/* Operands that repeat rows, columns or one element, against the same operands written out, to the bit. */
static void test_repeated_operands(void **state)
{
    (void)state;
    static const int64_t several[][3] = {{1, 37, 3},  {1, 700, 1}, {2, 70, 16}, {2, 3, 700},
                                         {3, 7, 100}, {2, 3, 256}, {2, 3, 257}, {10, 33, 5}};
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8};
    static const yk__binary ops[] = {YK__ADD, YK__SUB, YK__MUL, YK__DIV, YK__MAXIMUM, YK__MINIMUM, YK__GT};
    const yk__backend *cpu = cpu_backend();
    for (size_t s = 0; s < sizeof several / sizeof several[0]; s++)
        for (unsigned repeated = 0; repeated < 64; repeated++)
            for (int t = 0; t < 7; t++) {
                yk_dtype dtype = dtypes[t];
                const int64_t *shape = several[s];
                yk__view in[2], whole[2];
                for (int k = 0; k < 2; k++) {
                    in[k] = repeated_view(dtype, shape, repeated >> 3 * k & 7);
                    whole[k] = view_make(dtype, 3, shape, LAYOUT_C);
                    view_random(&in[k], 7 + (uint32_t)k, dtype == YK_U8 ? 1 : -4, 4);
                    if (yk_dtype_is_floating(dtype))
                        view_set(&in[k], 0, k ? -0.0 : NAN);
                    expect_ok(cpu->copy(0, &whole[k], &in[k]));
                }
                for (int op = 0; op < 7; op++) {
                    if (ops[op] == YK__DIV && !yk_dtype_is_floating(dtype))
                        continue;
                    yk_dtype result = ops[op] == YK__GT ? YK_BOOL : dtype;
                    yk__view got = view_make(result, 3, shape, LAYOUT_C), want = view_make(result, 3, shape, LAYOUT_C);
                    double alpha = ops[op] == YK__ADD ? 1 + 2 * (double)(repeated % 2) : 1;
                    expect_ok(cpu->binary(0, ops[op], &got, &in[0], &in[1], alpha));
                    expect_ok(cpu->binary(0, ops[op], &want, &whole[0], &whole[1], alpha));
                    if (!view_same_bits(&got, &want))
                        fail_msg("binary %d of %s, shape %d, repeated %#x: not as of dense operands", ops[op],
                                 yk_dtype_name(dtype), (int)s, repeated);
                    view_free(&got);
                    view_free(&want);
                }
                for (int k = 0; k < 2; k++) {
                    view_free(&in[k]);
                    view_free(&whole[k]);
                }
            }
}

static void test_threads(void **state)
{
    (void)state;
    int64_t shape[] = {7, 60, 37, 11};
    for (int layout = 0; layout < LAYOUTS; layout++) {
        yk__view a = view_make(YK_F32, 4, shape, layout), b = view_make(YK_F32, 4, shape, LAYOUT_EXPANDED);
        yk__view one[3], many[3];
        view_random(&a, 5, -4, 4);
        view_random(&b, 6, -4, 4);
        for (int threads = 1; threads <= 3; threads++) {
            yk__view *out = threads == 1 ? one : many;
            use_threads(threads);
            for (int k = 0; k < 3; k++)
                out[k] = view_make(k == 2 ? YK_F16 : YK_F32, 4, shape, k == 0 ? LAYOUT_SWAPPED : LAYOUT_C);
            expect_ok(cpu_backend()->unary(0, YK__GELU, &out[0], &a, 0, 0));
            expect_ok(cpu_backend()->binary(0, YK__MUL, &out[1], &a, &b, 1));
            expect_ok(cpu_backend()->copy(0, &out[2], &a));
            for (int k = 0; threads > 1 && k < 3; k++) {
                assert_true(view_same_bits(&one[k], &many[k]));
                view_free(&many[k]);
            }
        }
        use_threads(1);
        for (int64_t i = 0, n = view_count(&a); i < n; i += 97) {
            expect_near(view_get(&one[1], i), view_get(&a, i) * view_get(&b, i), 1e-6, 0);
            expect_near(view_get(&one[2], i), view_get(&a, i), 1e-3, 1e-6);
        }
        for (int k = 0; k < 3; k++)
            view_free(&one[k]);
        view_free(&a);
        view_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_special_values),
        cmocka_unit_test(test_undefined_dtypes),
        cmocka_unit_test(test_every_float),
        cmocka_unit_test(test_numbers_of_none),
        cmocka_unit_test(test_trigonometric_near_zeros),
        cmocka_unit_test(test_power_and_angle),
        cmocka_unit_test(test_same_bits_on_every_instruction_set),
        cmocka_unit_test(test_fused_multiply_add),
        cmocka_unit_test(test_gelu_gradient_accuracy),
        cmocka_unit_test(test_large_outputs),
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_copy_of_short_rows),
        cmocka_unit_test(test_copy_parts),
        cmocka_unit_test(test_copy_of_small_steps),
        cmocka_unit_test(test_copy_of_pixels),
        cmocka_unit_test(test_cast_edges),
        cmocka_unit_test(test_casts_to_i32),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_computed_halves),
        cmocka_unit_test(test_parts_of_halves),
        cmocka_unit_test(test_clamp_of_integers),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_where),
        cmocka_unit_test(test_ternary),
        cmocka_unit_test(test_in_place),
        cmocka_unit_test(test_repeated_operands),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests_name("elementwise", tests, NULL, NULL);
}
