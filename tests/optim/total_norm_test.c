/*
 * total_norm_test.c - norms of all gradients together, and clipping by them, against PyTorch's.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/optim.h>

#include "tests/golden/norms_golden.h"

/* Parameters whose gradients are norm_grads, one without a gradient and one without elements between them. */
static yk_parameters *parameters(yk_dtype dtype_a, yk_dtype dtype_b, yk_device device_b)
{
    const yk_tensor_options f64 = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
    yk_tensor *grads[] = {yk_cast(yk_from_data(norm_grads, YK_SHAPE(2, 3), &f64), dtype_a), NULL,
                          yk_zeros(YK_SHAPE(0, 2), &f64),
                          yk_to(yk_cast(yk_from_data(norm_grads + NORM_A, YK_SHAPE(4), &f64), dtype_b), device_b)};
    static const char *const names[] = {"a", "none", "empty", "b"};
    yk_parameters *p = yk_parameters_create();
    for (int i = 0; i < 4; i++) {
        yk_tensor *x = grads[i] ? yk_zeros_like(grads[i]) : yk_zeros(YK_SHAPE(5), NULL);
        expect_ok(yk_set_requires_grad(x, true));
        if (grads[i])
            expect_ok(yk_set_grad(x, grads[i]));
        expect_ok(yk_parameters_add(p, names[i], x));
    }
    return p;
}

static void check(yk_dtype dtype_a, yk_dtype dtype_b, yk_device device_b, double tolerance)
{
    for (size_t k = 0; k < sizeof(golden_norms) / sizeof(*golden_norms); k++) {
        yk_scope scope = yk_scope_begin();
        double total = 0, clipped = 0, values[NORM_A + NORM_B];
        yk_parameters *p = parameters(dtype_a, dtype_b, device_b);
        yk_tensor *a = yk_parameters_at(p, 0), *b = yk_parameters_at(p, 3);
        uint32_t version = yk_tensor_version(yk_grad(a));
        expect_ok(yk_get_total_norm(p, golden_norms[k].type, &total));
        expect_near(total, golden_norms[k].total, tolerance, 0);
        assert_int_equal(yk_tensor_version(yk_grad(a)), version);
        expect_ok(yk_clip_grad_norm_type(p, golden_norms[k].max_norm, golden_norms[k].type, &clipped));
        expect_near(clipped, golden_norms[k].total, tolerance, 0);
        expect_ok(yk_tensor_read(yk_cast(yk_grad(a), YK_F64), values, NORM_A * sizeof(double)));
        expect_ok(yk_tensor_read(yk_cast(yk_grad(b), YK_F64), values + NORM_A, NORM_B * sizeof(double)));
        for (int i = 0; i < NORM_A + NORM_B; i++)
            expect_near(values[i], golden_norms[k].after[i], tolerance, tolerance);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

static void test_pytorch(void **state)
{
    (void)state;
    check(YK_F64, YK_F64, test_device(0), 1e-14);
    check(YK_F32, YK_F64, test_device(1), 1e-6);
    check(YK_F16, YK_BF16, test_device(0), 2e-2);
}

static void test_edges(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    double total = 7;
    yk_parameters *p = parameters(YK_F64, YK_F64, test_device(0)), *none = yk_parameters_create();
    expect_ok(yk_get_total_norm(none, 3, &total));
    assert_true(total == 0);
    expect_ok(yk_clip_grad_norm_type(none, 1, 1, NULL));
    /* A NaN is in every norm. */
    double bad[NORM_A] = {1, NAN, 2};
    expect_ok(yk_set_grad(
        yk_parameters_at(p, 0),
        yk_to(yk_from_data(bad, YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), test_device(0))));
    for (double type = 1; type <= 8; type *= 2) {
        expect_ok(yk_get_total_norm(p, type == 8 ? INFINITY : type, &total));
        assert_true(isnan(total));
    }
    assert_int_equal(yk_get_total_norm(p, 0, &total), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "get_total_norm: norm_type is 0, expected a number above 0, or infinity");
    assert_int_equal(yk_get_total_norm(NULL, 1, &total), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "get_total_norm: the list of parameters is NULL");
    assert_int_equal(yk_get_total_norm(p, 1, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "get_total_norm: the place of the norm is NULL");
    assert_int_equal(yk_clip_grad_norm_type(p, -1, 1, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "clip_grad_norm: max_norm is -1");
    assert_int_equal(yk_clip_grad_norm_type(p, 1, NAN, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "clip_grad_norm: norm_type is nan");
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests_name("total norm", tests, NULL, NULL);
}
