/*
 * The f64 functions of scalar_math_f64.h through the slots unary and binary: errors in ulp against long double over
 * dense arguments and over doubles of every size, special arguments against the C library, and the same bits on every
 * instruction set.
 */
#include <float.h>

#include "tests/device/elementwise_sets.h"
#include "tests/support/views.h"

#if LDBL_MANT_DIG < 64
#error "long double is the reference here"
#endif

static const double special[] = {0.0,
                                 -0.0,
                                 1.0,
                                 -1.0,
                                 2.0,
                                 -2.0,
                                 0.5,
                                 -0.5,
                                 3.0,
                                 -3.0,
                                 1.5,
                                 -1.5,
                                 7.0,
                                 0.999,
                                 1.001,
                                 1e-310,
                                 -1e-310,
                                 1e300,
                                 -1e300,
                                 0x1.fffffffffffffp52,
                                 0x1p53,
                                 -0x1.0000000000001p53,
                                 0x1p-60,
                                 -0x1p-60,
                                 1e-300,
                                 709.0,
                                 710.0,
                                 -746.0,
                                 1e22,
                                 0x1p20,
                                 -0x1.0000000000001p20,
                                 0x1p-1074,
                                 -0x1p-1074,
                                 DBL_MIN,
                                 DBL_MAX,
                                 -DBL_MAX,
                                 INFINITY,
                                 -INFINITY,
                                 NAN};
enum { SPECIAL = sizeof special / sizeof special[0], DENSE = 60000, ANY = 60000 };

static uint64_t next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

static double between(uint64_t *seed, double low, double high)
{
    return low + (high - low) * ((double)(next(seed) >> 11) * 0x1p-53);
}

static double ulps(double got, long double want)
{
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got) ? 0 : INFINITY;
    if (isinf((double)want))
        return got == (double)want ? 0 : INFINITY;
    int exponent;
    frexpl(want, &exponent);
    return (double)(fabsl((long double)got - want) / ldexpl(1.0L, (exponent < -1021 ? -1021 : exponent) - 53));
}

static const struct {
    yk__unary op;
    const char *name;
    double low, high, limit;
} unaries[] = {
    {YK__EXP, "exp", -750, 711, 1},       {YK__EXPM1, "expm1", -2, 2, 2},       {YK__EXPM1, "expm1", -45, 711, 2},
    {YK__LOG, "log", 0.5, 2, 1},          {YK__LOG1P, "log1p", -1, 3, 2},       {YK__SIN, "sin", -7, 7, 1},
    {YK__SIN, "sin", -0x1p20, 0x1p20, 1}, {YK__COS, "cos", -7, 7, 1},           {YK__COS, "cos", -0x1p20, 0x1p20, 1},
    {YK__TANH, "tanh", -3, 3, 3},         {YK__SIGMOID, "sigmoid", -5, 5, 3},   {YK__SIGMOID, "sigmoid", -715, 60, 3},
    {YK__ERF, "erf", -7, 7, 3},           {YK__GELU, "gelu", -3, 3, 7},         {YK__GELU, "gelu", -37, 10, 7},
    {YK__TAN, "tan", -7, 7, 3},           {YK__TAN, "tan", -0x1p20, 0x1p20, 3}, {YK__ASIN, "asin", -1, 1, 4},
    {YK__ACOS, "acos", -1, 1, 4},         {YK__ATANH, "atanh", -1, 1, 5},       {YK__LOG2, "log2", 0.5, 2, 1},
    {YK__LOG10, "log10", 0.5, 2, 1},
};
enum { UNARIES = sizeof unaries / sizeof unaries[0] };

static long double unary_reference(yk__unary op, long double x)
{
    switch (op) {
    case YK__EXP: return expl(x);
    case YK__EXPM1: return expm1l(x);
    case YK__LOG: return logl(x);
    case YK__LOG1P: return log1pl(x);
    case YK__SIN: return sinl(x);
    case YK__COS: return cosl(x);
    case YK__TANH: return tanhl(x);
    case YK__SIGMOID: return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
    case YK__ERF: return erfl(x);
    case YK__TAN: return tanl(x);
    case YK__ASIN: return asinl(x);
    case YK__ACOS: return acosl(x);
    case YK__ATANH: return atanhl(x);
    case YK__LOG2: return log2l(x);
    case YK__LOG10: return log10l(x);
    case YK__GELU:
        if (x < -40)
            return isinf(x) ? (long double)NAN : -0.0L;
        return 0.5L * x * erfcl(-x * 0.707106781186547524400844362104849L);
    default: fail_msg("no reference for unary %d", op); return NAN;
    }
}

/* Special arguments, dense ones, and doubles of every size and sign, NaN included. */
static yk__view unary_arguments(int u)
{
    int64_t shape[] = {SPECIAL + DENSE + ANY};
    yk__view in = view_make(YK_F64, 1, shape, LAYOUT_C);
    double *x = in.data;
    uint64_t seed = (uint64_t)u + 88172645463325252u;
    for (int64_t i = 0; i < shape[0]; i++)
        x[i] = i < SPECIAL           ? special[i]
               : i < SPECIAL + DENSE ? between(&seed, unaries[u].low, unaries[u].high)
                                     : yk__double_of(next(&seed));
    return in;
}

static void test_unary_accuracy(void **state)
{
    (void)state;
    for (int u = 0; u < UNARIES; u++) {
        yk__unary op = unaries[u].op;
        yk__view in = unary_arguments(u), out = view_make(YK_F64, 1, in.shape, LAYOUT_C);
        const double *x = in.data, *y = out.data;
        expect_ok(cpu_backend()->unary(0, op, &out, &in, 0, 0));
        for (int64_t i = 0; i < in.shape[0]; i++) {
            long double want = unary_reference(op, (long double)x[i]);
            if (op == YK__SIGMOID && want < (long double)DBL_MIN && y[i] < DBL_MIN)
                continue; /* 0, or what is left */
            double error = ulps(y[i], want);
            if (!(error <= unaries[u].limit) || (x[i] == 0 && !isnan(want) && !signbit(y[i]) != !signbit(want)))
                fail_msg("%s(%a) is %a, %.2f ulp from %a", unaries[u].name, x[i], y[i], error, (double)want);
        }
        view_free(&in);
        view_free(&out);
    }
}

/* Doubles next to multiples of pi / 2 are where the reduction of the argument loses most. */
static void test_trigonometric_near_zeros(void **state)
{
    (void)state;
    enum { MULTIPLES = 660000, STEP = 7, NEAR = 5 };
    int64_t shape[] = {MULTIPLES / STEP * NEAR};
    yk__view in = view_make(YK_F64, 1, shape, LAYOUT_C), out = view_make(YK_F64, 1, shape, LAYOUT_C);
    double *x = in.data, *y = out.data;
    for (int64_t i = 0; i < shape[0]; i++) {
        double nearest = (double)(i / NEAR * STEP + 1) * 1.57079632679489661923;
        x[i] = yk__double_of(yk__bits_of_double(nearest) + (uint64_t)(i % NEAR - NEAR / 2));
    }
    for (int cosine = 0; cosine < 2; cosine++) {
        expect_ok(cpu_backend()->unary(0, cosine ? YK__COS : YK__SIN, &out, &in, 0, 0));
        for (int64_t i = 0; i < shape[0]; i++) {
            long double want = cosine ? cosl((long double)x[i]) : sinl((long double)x[i]);
            double error = ulps(y[i], want);
            if (!(error <= 1))
                fail_msg("%s(%a) is %a, %.2f ulp from %a", cosine ? "cos" : "sin", x[i], y[i], error, (double)want);
        }
    }
    view_free(&in);
    view_free(&out);
}

enum { PAIRS = SPECIAL * SPECIAL + DENSE + ANY };

/* Pairs of special arguments; bases of every size with exponents that do not overflow, or two numbers in [-3, 3]. */
static void pairs(yk__binary op, double *x, double *y)
{
    uint64_t seed = (uint64_t)op + 88172645463325252u;
    for (int64_t i = 0; i < PAIRS; i++) {
        x[i] = special[i / SPECIAL % SPECIAL], y[i] = special[i % SPECIAL];
        if (i < SPECIAL * SPECIAL)
            continue;
        if (op != YK__POW) {
            x[i] = i % 2 ? between(&seed, -3, 3) : yk__double_of(next(&seed));
            y[i] = i % 2 ? between(&seed, -3, 3) : yk__double_of(next(&seed));
            continue;
        }
        x[i] = i % 4 == 0   ? yk__double_of(next(&seed) >> 1)
               : i % 4 == 1 ? 1 + between(&seed, -0.01, 0.01)
               : i % 4 == 2 ? between(&seed, 0.6, 1.6)
                            : between(&seed, 0, 100);
        y[i] = between(&seed, -1080, 1080) / fmax(fabs(log2(x[i])), 1e-300);
    }
}

static void test_binary_accuracy(void **state)
{
    (void)state;
    int64_t shape[] = {PAIRS};
    yk__view a = view_make(YK_F64, 1, shape, LAYOUT_C), b = view_make(YK_F64, 1, shape, LAYOUT_C);
    yk__view out = view_make(YK_F64, 1, shape, LAYOUT_C);
    double *x = a.data, *y = b.data, *o = out.data;
    for (int angle = 0; angle < 2; angle++) {
        yk__binary op = angle ? YK__ATAN2 : YK__POW;
        pairs(op, x, y);
        expect_ok(cpu_backend()->binary(0, op, &out, &a, &b, 1));
        for (int64_t i = 0; i < shape[0]; i++) {
            long double lx = (long double)x[i], ly = (long double)y[i];
            long double want = angle ? atan2l(lx, ly) : powl(lx, ly);
            double error = ulps(o[i], want);
            bool other_sign = !isnan(want) && (angle || o[i] == 0) && !signbit(o[i]) != !signbit(want);
            if (!(error <= 2) || other_sign)
                fail_msg("%s(%a, %a) is %a, %.2f ulp from %a", angle ? "atan2" : "pow", x[i], y[i], o[i], error,
                         (double)want);
        }
    }
    view_free(&a);
    view_free(&b);
    view_free(&out);
}

static void test_gelu_gradient(void **state)
{
    (void)state;
    int64_t shape[] = {DENSE};
    yk__view ones = view_make(YK_F64, 1, shape, LAYOUT_C), x = view_make(YK_F64, 1, shape, LAYOUT_C);
    yk__view out = view_make(YK_F64, 1, shape, LAYOUT_C);
    for (int64_t i = 0; i < shape[0]; i++) {
        view_set(&ones, i, 1);
        view_set(&x, i, (double)(i - DENSE / 2) * 0.0015);
    }
    expect_ok(cpu_backend()->binary(0, YK__GELU_GRAD, &out, &ones, &x, 1));
    for (int64_t i = 0; i < shape[0]; i++) {
        long double v = (long double)view_get(&x, i);
        long double want = 0.5L * erfcl(-v * 0.707106781186547524400844362104849L) +
                           v * expl(-0.5L * v * v) * 0.398942280401432677939946059934L;
        expect_near(view_get(&out, i), (double)want, 0, 5e-16);
    }
    view_free(&ones);
    view_free(&x);
    view_free(&out);
}

static bool same_bits(const yk__view *a, const yk__view *b)
{
    const double *x = a->data, *y = b->data;
    for (int64_t i = 0; i < a->shape[0]; i++) {
        /* The bits of a NaN are not promised. */
        if (yk__bits_of_double(x[i]) != yk__bits_of_double(y[i]) && !(isnan(x[i]) && isnan(y[i])))
            return false;
    }
    return true;
}

static void test_same_bits(void **state)
{
    (void)state;
    yk__backend tables[YK__LEVELS];
    int count = several_instruction_sets(tables);
    for (int u = 0; u < UNARIES; u++) {
        yk__view in = unary_arguments(u), first = view_make(YK_F64, 1, in.shape, LAYOUT_C);
        yk__view other = view_make(YK_F64, 1, in.shape, LAYOUT_C);
        expect_ok(tables[0].unary(0, unaries[u].op, &first, &in, 0, 0));
        for (int k = 1; k < count; k++) {
            expect_ok(tables[k].unary(0, unaries[u].op, &other, &in, 0, 0));
            if (!same_bits(&first, &other))
                fail_msg("%s: instruction set %d gives other bits", unaries[u].name, k);
        }
        view_free(&in);
        view_free(&first);
        view_free(&other);
    }
    static const yk__binary binaries[] = {YK__POW, YK__ATAN2, YK__GELU_GRAD};
    int64_t shape[] = {PAIRS};
    yk__view a = view_make(YK_F64, 1, shape, LAYOUT_C), b = view_make(YK_F64, 1, shape, LAYOUT_C);
    yk__view first = view_make(YK_F64, 1, shape, LAYOUT_C), other = view_make(YK_F64, 1, shape, LAYOUT_C);
    for (int u = 0; u < 3; u++) {
        pairs(binaries[u], a.data, b.data);
        expect_ok(tables[0].binary(0, binaries[u], &first, &a, &b, 1));
        for (int k = 1; k < count; k++) {
            expect_ok(tables[k].binary(0, binaries[u], &other, &a, &b, 1));
            if (!same_bits(&first, &other))
                fail_msg("%s: instruction set %d gives other bits", u == 0 ? "pow" : u == 1 ? "atan2" : "gelu grad", k);
        }
    }
    view_free(&a);
    view_free(&b);
    view_free(&first);
    view_free(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary_accuracy),  cmocka_unit_test(test_trigonometric_near_zeros),
        cmocka_unit_test(test_binary_accuracy), cmocka_unit_test(test_gelu_gradient),
        cmocka_unit_test(test_same_bits),
    };
    return cmocka_run_group_tests_name("elementwise_f64", tests, NULL, NULL);
}
