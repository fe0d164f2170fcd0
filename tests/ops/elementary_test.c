/*
 * elementary_test.c - elementary functions, functions in place, places and CTC where the rows of trigonometry_test.c,
 * replacing_test.c, counting_test.c and ctc_test.c do not reach: ends of domains, infinities, NaN, integers, exact
 * logarithms, equal bits, refusals.
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

static yk_tensor *wholes(int64_t n, const double *values)
{
    return yk_cast(reals(n, values), YK_I64);
}
#define WHOLES(...) wholes((int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

static void refused_in_place(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *whole = WHOLES(1, 2), *leaf = reals(2, (double[]){1, 2}), *line = reals(2, (double[]){3, 4});
    assert_null(yk_sqrt_(whole));
    expect_error(YK_ERR_DTYPE, "sqrt_: the result is float32, which a tensor of int64 does not hold");
    assert_null(yk_div_(whole, WHOLES(2, 2)));
    expect_error(YK_ERR_DTYPE, "div_: the result is float32, which a tensor of int64 does not hold");
    expect_ok(yk_set_requires_grad(leaf, true));
    assert_null(yk_exp_(leaf));
    expect_error(YK_ERR_STATE, "exp_: a leaf that requires a gradient cannot be changed in place while operations are "
                               "recorded; put the change between yk_no_grad_begin and yk_no_grad_end");
    assert_null(yk_addcmul_(line, yk_ones(YK_SHAPE(3), NULL), line, 1));
    assert_int_equal(yk_last_error()->code, YK_ERR_SHAPE);
    yk_clear_error();
    assert_null(yk_sub_(line, NULL, 1));
    expect_error(YK_ERR_ARGUMENT, "sub_: argument 2 is NULL");
    assert_null(yk_lerp_scalar_(yk_expand(reals(1, (double[]){1}), YK_SHAPE(2)), line, 0.5));
    expect_error(YK_ERR_STATE,
                 "lerp_scalar_: the tensor is expanded, so several elements share memory; clone it first");
    yk_scope_end(scope);
}

/* Results that are written where nothing is recorded have the bits of the function, also through views and of itself.
 */
static void kernels_in_place_are_the_functions(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_rand(YK_SHAPE(5, 7), NULL), *y = yk_rand(YK_SHAPE(7, 5), NULL);
    yk_tensor *into[5], *made[5], *turned = yk_transpose(y, 0, 1);
    for (int i = 0; i < 5; i++)
        into[i] = yk_transpose(yk_clone(yk_transpose(x, 0, 1)), 0, 1);
    made[0] = yk_sigmoid(x), yk_sigmoid_(into[0]);
    made[1] = yk_div(x, turned), yk_div_(into[1], turned);
    made[2] = yk_addcmul(x, turned, x, -0.3), yk_addcmul_(into[2], turned, x, -0.3);
    made[3] = yk_lerp_scalar(x, turned, 0.1), yk_lerp_scalar_(into[3], turned, 0.1);
    made[4] = yk_div_scalar(x, 3), yk_div_scalar_(into[4], 3);
    for (int i = 0; i < 5; i++) {
        yk_tensor *same = yk_all(yk_eq(into[i], made[i]));
        if (!same || yk_item(same) != 1)
            fail_msg("function %d differs", i);
    }
    yk_tensor *itself = yk_clone(x);
    expect_near(yk_item(yk_count_nonzero(yk_sub_(itself, itself, 1), NULL, 0)), 0, 0, 0);
    yk_scope_end(scope);
}

static void nans_are_apart(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *counts = NULL, *x = reals(5, (double[]){NAN, 1, NAN, 1, -1}), *found = yk_unique(x, NULL, &counts);
    assert_true(found && yk_numel(found) == 4);
    assert_true(isnan(yk_get(found, (int64_t[]){2})) && isnan(yk_get(found, (int64_t[]){3})));
    expect_near(yk_get(counts, (int64_t[]){1}), 2, 0, 0);
    yk_tensor *place = yk_searchsorted(reals(2, (double[]){0, 1}), reals(2, (double[]){NAN, 1}), false);
    expect_near(yk_get(place, (int64_t[]){0}), 2, 0, 0);
    expect_near(yk_get(place, (int64_t[]){1}), 1, 0, 0);
    yk_tensor *none = yk_unique(yk_zeros(YK_SHAPE(0), NULL), &place, &counts);
    assert_true(none && yk_numel(none) == 0 && yk_numel(place) == 0 && yk_numel(counts) == 0);
    yk_scope_end(scope);
}

static void places_and_repeats_refused(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *line = reals(3, (double[]){1, 2, 3}), *square = yk_ones(YK_SHAPE(2, 2), NULL);
    assert_null(yk_searchsorted(square, line, false));
    expect_error(YK_ERR_SHAPE, "searchsorted: the sorted tensor has shape (2, 2) and the values (3,), expected (N), or "
                               "(..., N) and (..., M)");
    assert_null(yk_searchsorted(line, WHOLES(1), false));
    expect_error(YK_ERR_DTYPE, "searchsorted: the sorted tensor is float64 and the values int64; cast one");
    assert_null(yk_bucketize(line, square, false));
    expect_error(YK_ERR_SHAPE, "bucketize: boundaries (2, 2), expected one dimension");
    assert_null(yk_repeat_interleave(line, line, 0));
    expect_error(YK_ERR_DTYPE, "repeat_interleave: repeats are float64, expected int64 or int32");
    assert_null(yk_repeat_interleave(line, WHOLES(1, 2), 0));
    expect_error(YK_ERR_SHAPE, "repeat_interleave: 2 numbers of repeats for a dimension of size 3");
    assert_null(yk_repeat_interleave(line, WHOLES(1, -2, 0), 0));
    expect_error(YK_ERR_ARGUMENT, "repeat_interleave: -2 repeats");
    assert_null(yk_repeat_interleave_scalar(line, -1, 0));
    expect_error(YK_ERR_ARGUMENT, "repeat_interleave: -1 repeats of 3 elements");
    assert_null(yk_unique_dim(yk_zeros(YK_SHAPE(0, 2), NULL), 0, NULL, NULL));
    expect_error(YK_ERR_SHAPE, "unique_dim: input (0, 2) has no elements");
    yk_scope_end(scope);
}

static void ctc_refused(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *probs = yk_log_softmax(yk_ones(YK_SHAPE(4, 2, 3), NULL), 2),
              *labels = yk_reshape(WHOLES(1, 2, 1, 2), YK_SHAPE(2, 2));
    yk_tensor *times = WHOLES(4, 4), *lengths = WHOLES(2, 1);
    assert_non_null(yk_ctc_loss(probs, labels, times, lengths, NULL));
    assert_null(yk_ctc_loss(probs, labels, WHOLES(4, 5), lengths, NULL));
    expect_error(YK_ERR_ARGUMENT, "ctc_loss: input lengths from 4 to 5, outside 0 to 4, the times");
    assert_null(yk_ctc_loss(probs, labels, times, WHOLES(3, 1), NULL));
    expect_error(YK_ERR_ARGUMENT, "ctc_loss: target lengths from 1 to 3, outside 0 to 2, the labels of an input");
    assert_null(yk_ctc_loss(probs, yk_add_scalar(labels, 1), times, lengths, NULL));
    expect_error(YK_ERR_ARGUMENT, "ctc_loss: labels from 0 to 3, outside 0 to 2, the classes");
    assert_null(yk_ctc_loss(probs, yk_add_scalar(labels, -1), times, lengths, NULL));
    expect_error(YK_ERR_ARGUMENT, "ctc_loss: a label is 0, the blank");
    assert_null(yk_ctc_loss(probs, WHOLES(1, 2), times, lengths, NULL));
    expect_error(YK_ERR_SHAPE, "ctc_loss: targets (2,), and target lengths add up to 3");
    assert_null(yk_ctc_loss(probs, labels, times, WHOLES(1), NULL));
    expect_error(YK_ERR_SHAPE, "ctc_loss: target lengths (1,) for 2 inputs");
    yk_scope_end(scope);
}

/* A large tensor is gone through in parts, whose size depends on the threads: the same bits as of small ones. */
static void parts_do_not_show(void **state)
{
    (void)state;
    yk_tensor *(*const functions[])(yk_tensor *) = {yk_tan, yk_sinh, yk_asinh, yk_log2};
    const yk_device cpu = {YK_CPU, 0};
    const int64_t many = 70001, few = 10000;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(7);
    yk_tensor *x = yk_rand(YK_SHAPE(many), YK_OPTIONS(yk_tensor_options, .device = cpu));
    int before = yk_get_num_threads(cpu);
    for (int i = 0; i < 4; i++) {
        yk_tensor *pieces[8];
        int count = 0;
        for (int64_t at = 0; at < many; at += few)
            pieces[count++] = functions[i](yk_slice(x, 0, at, at + few, 1));
        yk_tensor *expected = yk_cat(pieces, count, 0);
        for (int threads = 1; threads <= 2; threads++) {
            expect_ok(yk_set_num_threads(cpu, threads));
            yk_tensor *whole = functions[i](x);
            assert_non_null(whole);
            assert_memory_equal(host_data(whole), host_data(expected), (size_t)many * sizeof(float));
        }
    }
    expect_ok(yk_set_num_threads(cpu, before));
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
        cmocka_unit_test(refused_in_place),
        cmocka_unit_test(kernels_in_place_are_the_functions),
        cmocka_unit_test(nans_are_apart),
        cmocka_unit_test(places_and_repeats_refused),
        cmocka_unit_test(ctc_refused),
        cmocka_unit_test(parts_do_not_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
