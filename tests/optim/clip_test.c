/*
 * clip_test.c - gradient clipping against PyTorch's.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/optim.h>

#include "tests/support/golden.h"

enum { A = 6, B = 4, ALL = A + B };

/* Numbers of tests/golden/optim.golden: the gradients; the norm before clipping to 0.7 and to 100, and the gradients
 * then; those clipped by value to 0.9. */
static const double *clip_grads, *clip_low, *clip_high, *clip_value;

static int read_goldens(void **state)
{
    (void)state;
    clip_grads = golden_numbers("optim", "clip gradients", NULL);
    clip_low = golden_numbers("optim", "clip low", NULL);
    clip_high = golden_numbers("optim", "clip high", NULL);
    clip_value = golden_numbers("optim", "clip value", NULL);
    return 0;
}

/* Parameters whose gradients are clip_grads, and one without a gradient between them. */
static yk_parameters *parameters(yk_dtype dtype_a, yk_dtype dtype_b, yk_device device_b)
{
    yk_tensor_options f64 = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
    yk_tensor *grads[2] = {yk_cast(yk_from_data(clip_grads, YK_SHAPE(2, 3), &f64), dtype_a),
                           yk_to(yk_cast(yk_from_data(clip_grads + A, YK_SHAPE(4), &f64), dtype_b), device_b)};
    yk_tensor *a = yk_zeros_like(grads[0]), *b = yk_zeros_like(grads[1]);
    yk_tensor *none = yk_zeros(YK_SHAPE(5), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    yk_parameters *p = yk_parameters_create();
    expect_ok(yk_set_requires_grad(a, true));
    expect_ok(yk_set_requires_grad(b, true));
    expect_ok(yk_set_grad(a, grads[0]));
    expect_ok(yk_set_grad(b, grads[1]));
    expect_ok(yk_parameters_add(p, "a", a));
    expect_ok(yk_parameters_add(p, "none", none));
    expect_ok(yk_parameters_add(p, "b", b));
    return p;
}

static void expect_grads(yk_parameters *p, const double *expected, double tolerance)
{
    double values[ALL];
    yk_tensor *a = yk_cast(yk_grad(yk_parameters_at(p, 0)), YK_F64);
    yk_tensor *b = yk_cast(yk_grad(yk_parameters_at(p, 2)), YK_F64);
    expect_ok(yk_tensor_read(a, values, A * sizeof(double)));
    expect_ok(yk_tensor_read(b, values + A, B * sizeof(double)));
    for (int i = 0; i < ALL; i++)
        expect_near(values[i], expected[i], tolerance, tolerance);
    assert_null(yk_grad(yk_parameters_at(p, 1)));
}

#define first  test_device(0)
#define second test_device(1)

static void test_norm(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    double total = 0;
    yk_parameters *p = parameters(YK_F64, YK_F64, first);
    uint32_t version = yk_tensor_version(yk_grad(yk_parameters_at(p, 0)));
    expect_ok(yk_clip_grad_norm(p, 0.7, &total));
    expect_near(total, clip_low[0], 1e-14, 0);
    expect_grads(p, clip_low + 1, 1e-14);
    assert_int_equal(yk_tensor_version(yk_grad(yk_parameters_at(p, 0))), version + 1);
    p = parameters(YK_F64, YK_F64, first);
    expect_ok(yk_clip_grad_norm(p, 100, &total));
    expect_near(total, clip_high[0], 1e-14, 0);
    expect_grads(p, clip_grads, 0); /* below the limit: not a bit changes */
    expect_ok(yk_clip_grad_norm(p, 0.7, NULL));
    expect_grads(p, clip_low + 1, 1e-14);

    p = parameters(YK_F32, YK_F64, second); /* of two kinds, in two places */
    expect_ok(yk_clip_grad_norm(p, 0.7, &total));
    expect_near(total, clip_low[0], 1e-6, 0);
    expect_grads(p, clip_low + 1, 1e-6);
    p = parameters(YK_BF16, YK_F16, first);
    expect_ok(yk_clip_grad_norm(p, 0.7, &total));
    expect_near(total, clip_low[0], 1e-2, 0);
    expect_grads(p, clip_low + 1, 1e-2);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_value(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(YK_F64, YK_F64, first);
    expect_ok(yk_clip_grad_value(p, 0.9));
    expect_grads(p, clip_value, 0);
    p = parameters(YK_F32, YK_BF16, second);
    expect_ok(yk_clip_grad_value(p, 0.9));
    expect_grads(p, clip_value, 1e-2);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* Two leaves whose gradients the tape could have let share memory: neither is scaled twice. */
static void test_shared(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_tensor_options leaf = *YK_OPTIONS(yk_tensor_options, .requires_grad = true);
    yk_tensor *a = yk_ones(YK_SHAPE(2, 2), &leaf), *b = yk_ones(YK_SHAPE(2, 2), &leaf);
    expect_ok(yk_backward(yk_sum(yk_add(a, b))));
    yk_parameters *p = yk_parameters_create();
    expect_ok(yk_parameters_add(p, "a", a));
    expect_ok(yk_parameters_add(p, "b", b));
    double total;
    expect_ok(yk_clip_grad_norm(p, 1, &total));
    expect_near(total, sqrt(8), 1e-6, 0);
    for (int64_t i = 0; i < 4; i++) {
        expect_near(yk_get(yk_grad(a), (int64_t[]){i / 2, i % 2}), 1 / sqrt(8), 1e-6, 0);
        expect_near(yk_get(yk_grad(b), (int64_t[]){i / 2, i % 2}), 1 / sqrt(8), 1e-6, 0);
    }
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_not_finite(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(YK_F64, YK_F64, first);
    yk_tensor *grad = yk_grad(yk_parameters_at(p, 0));
    host_write(grad, sizeof(double), &(double){NAN}, sizeof(double));
    double total;
    expect_ok(yk_clip_grad_norm(p, 1, &total));
    assert_true(isnan(total));
    assert_true(isnan(yk_get(yk_grad(yk_parameters_at(p, 2)), (int64_t[]){0})));
    p = parameters(YK_F64, YK_F64, first);
    host_write(yk_grad(yk_parameters_at(p, 0)), sizeof(double), &(double){INFINITY}, sizeof(double));
    expect_ok(yk_clip_grad_norm(p, 1, &total));
    assert_true(isinf(total));
    assert_true(yk_get(yk_grad(yk_parameters_at(p, 2)), (int64_t[]){0}) == 0);
    assert_true(isnan(yk_get(yk_grad(yk_parameters_at(p, 0)), (int64_t[]){0, 1})));

    yk_parameters *none = yk_parameters_create();
    expect_ok(yk_clip_grad_norm(none, 1, &total));
    assert_true(total == 0);
    assert_int_equal(yk_clip_grad_norm(p, -1, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "clip_grad_norm: max_norm is -1");
    assert_int_equal(yk_clip_grad_value(p, NAN), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "clip_grad_value: limit is nan");
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_value),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests_name("clip", tests, read_goldens, NULL);
}
