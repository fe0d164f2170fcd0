/*
 * elementary_test.c - elementary functions where trigonometry_test.c's rows do not reach: ends of their domains,
 * infinities, large arguments, integers, exact logarithms.
 */
#include <math.h>

#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/ops.h>

static yk_tensor *reals(int64_t n, const double *values)
{
    return yk_to(yk_from_data(values, 1, &n, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), test_device(0));
}

/* The function of each number is what the C library gives, to `error` of it; NaN and infinities are those. */
static void expect_values(const char *name, yk_tensor *(*f)(yk_tensor *), double (*exact)(double), int n,
                          const double *values)
{
    const double error = 4e-15;
    yk_scope scope = yk_scope_begin();
    yk_tensor *out = f(reals(n, values));
    if (!out)
        fail_msg("%s: %s", name, yk_last_error()->message);
    for (int i = 0; i < n; i++) {
        double got = yk_get(out, (int64_t[]){i}), expected = exact(values[i]);
        bool same = isnan(expected) ? isnan(got) : isinf(expected) ? got == expected : true;
        if (!same || (isfinite(expected) && !(fabs(got - expected) <= error * fabs(expected))))
            fail_msg("%s(%g) is %.17g, expected %.17g", name, values[i], got, expected);
        if (expected == 0)
            assert_int_equal(!!signbit(got), !!signbit(expected));
    }
    yk_scope_end(scope);
}
#define EXPECT_VALUES(f, ...)                                                                                          \
    expect_values(#f, yk_##f, f, (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

static void ends_of_the_domains(void **state)
{
    (void)state;
    const double inf = INFINITY;
    EXPECT_VALUES(tan, NAN, inf, 0.0, -0.0, 1e-12, 1.5, -3.2);
    EXPECT_VALUES(asin, NAN, -1, 1, 1.5, -2, inf, -inf, 1e-300, 0.999999999);
    EXPECT_VALUES(acos, NAN, -1, 1, 1.5, -2, inf, -inf, 0.0, -0.999999999);
    EXPECT_VALUES(atan, NAN, inf, -inf, 1e300, -1e300, 0.0, -0.0);
    EXPECT_VALUES(sinh, NAN, inf, -inf, 710.4, -710.4, 720, 1e-300, 19.9, 20.1, 300);
    EXPECT_VALUES(cosh, NAN, inf, -inf, 710.4, -710.4, 720, 0.0, 30, 300);
    EXPECT_VALUES(asinh, NAN, inf, -inf, 1e300, -1e300, 9e8, -2e9, 0.0, -0.0, 1e-300, 1e-8);
    EXPECT_VALUES(acosh, NAN, inf, -inf, 1, 0.5, -1, -5, -1e12, 1e300, 9e8, 2e9, 1 + 1e-9);
    EXPECT_VALUES(atanh, NAN, inf, -1, 1, 1.5, -2, 0.0, -0.0, 1e-300, 0.99999, -0.99999);
    EXPECT_VALUES(log2, NAN, inf, -1, 0.0, 1e-310, 1e300, 3, 0.9999999);
    EXPECT_VALUES(log10, NAN, inf, -1, 0.0, 1e-310, 1e300, 3, 0.9999999);
}

/* Powers have whole logarithms, so that floor and ceil give what is meant. */
static void logarithms_of_powers_are_whole(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    for (int wide = 0; wide < 2; wide++) {
        yk_dtype dtype = wide ? YK_F64 : YK_F32;
        for (int n = wide ? -1022 : -126; n < (wide ? 1024 : 128); n += wide ? 31 : 1) {
            double power = ldexp(1, n);
            expect_near(yk_item(yk_log2(yk_cast(reals(1, &power), dtype))), n, 0, 0);
        }
        for (int n = 0; n <= (wide ? 22 : 10); n++) {
            double power = 1;
            for (int i = 0; i < n; i++)
                power *= 10;
            expect_near(yk_item(yk_log10(yk_cast(reals(1, &power), dtype))), n, 0, 0);
        }
    }
    yk_scope_end(scope);
}

static void integers_become_f32(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *whole = yk_cast(reals(3, (double[]){1, 2, 8}), YK_I64), *log = yk_log2(whole), *arc = yk_atan(whole);
    assert_true(log && arc && yk_tensor_dtype(log) == YK_F32 && yk_tensor_dtype(arc) == YK_F32);
    expect_near(yk_get(log, (int64_t[]){2}), 3, 0, 0);
    expect_near(yk_get(arc, (int64_t[]){1}), atan(2), 1e-7, 0);
    yk_scope_end(scope);
}

/* Slopes at the ends of a domain are infinite, as PyTorch's. */
static void slopes_at_the_ends(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = reals(2, (double[]){-1, 1});
    yk_tensor *(*const functions[])(yk_tensor *) = {yk_asin, yk_acos, yk_atanh};
    const double sign[] = {1, -1, 1};
    expect_ok(yk_set_requires_grad(x, true));
    for (int i = 0; i < 3; i++) {
        expect_ok(yk_set_grad(x, NULL));
        expect_ok(yk_backward(yk_sum(functions[i](x))));
        for (int k = 0; k < 2; k++)
            assert_true(yk_get(yk_grad(x), (int64_t[]){k}) == sign[i] * INFINITY);
    }
    yk_scope_end(scope);
}

static void refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *cube = yk_ones(YK_SHAPE(2, 2, 2), NULL), *line = yk_ones(YK_SHAPE(2), NULL);
    assert_null(yk_diag(cube, 0));
    expect_error(YK_ERR_SHAPE, "diag: input (2, 2, 2), expected one dimension or two");
    assert_null(yk_diag(line, INT64_MAX));
    expect_error(YK_ERR_ARGUMENT, "diag: a matrix with a diagonal 9223372036854775807 is too large");
    assert_null(yk_trace(line));
    expect_error(YK_ERR_SHAPE, "trace: input (2,), expected a matrix");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_the_domains),
        cmocka_unit_test(logarithms_of_powers_are_whole),
        cmocka_unit_test(integers_become_f32),
        cmocka_unit_test(slopes_at_the_ends),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
