/*
 * optimizer_test.c - SGD, Adam and AdamW against PyTorch step by step; groups, devices, state, refusals.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/optim.h>

#include "optim/optimizer.h"
#include "tensor/tensor.h"
#include "tests/support/golden.h"

static yk_optimizer *with_sgd(yk_parameters *p, yk_sgd_options o)
{
    return yk_sgd(p, &o);
}

static yk_optimizer *with_groups(yk_parameters *p)
{
    yk_parameters *one = yk_parameters_create(), *two = yk_parameters_create();
    expect_ok(yk_parameters_add(one, "a", yk_parameters_at(p, 0)));
    expect_ok(yk_parameters_add(two, "b", yk_parameters_at(p, 1)));
    yk_optimizer *o = yk_sgd(one, YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    expect_ok(yk_sgd_add_group(o, two, YK_OPTIONS(yk_sgd_options, .lr = 0.01, .momentum = 0.5)));
    return o;
}

static yk_optimizer *make(const char *name, yk_parameters *p)
{
#define IS(text) (strcmp(name, text) == 0)
    if (IS("sgd"))
        return with_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    if (IS("sgd_default"))
        return with_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = 1e-3));
    if (IS("sgd_decay"))
        return with_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = 0.1, .weight_decay = 0.2));
    if (IS("sgd_momentum"))
        return with_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.1));
    if (IS("sgd_dampening"))
        return with_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.8, .dampening = 0.3));
    if (IS("sgd_nesterov"))
        return with_sgd(
            p, *YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.05, .nesterov = true));
    if (IS("sgd_maximize"))
        return with_sgd(
            p, *YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.05, .maximize = true));
    if (IS("adam"))
        return yk_adam(p, YK_OPTIONS(yk_adam_options, .lr = 1e-3));
    if (IS("adam_options"))
        return yk_adam(
            p, YK_OPTIONS(yk_adam_options, .lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1));
    if (IS("adam_amsgrad"))
        return yk_adam(p, YK_OPTIONS(yk_adam_options, .lr = 0.1, .amsgrad = true));
    if (IS("adam_maximize"))
        return yk_adam(p, YK_OPTIONS(yk_adam_options, .lr = 0.1, .maximize = true, .weight_decay = 0.1));
    if (IS("adamw"))
        return yk_adamw(p, YK_OPTIONS(yk_adam_options, .lr = 0.1));
    if (IS("adamw_no_decay"))
        return yk_adamw(p, YK_OPTIONS(yk_adam_options, .lr = 0.1, .weight_decay = 0));
    if (IS("adamw_amsgrad"))
        return yk_adamw(p, YK_OPTIONS(yk_adam_options, .lr = 0.1, .weight_decay = 0.3, .amsgrad = true));
    if (IS("groups"))
        return with_groups(p);
#undef IS
    fail_msg("no test makes the optimizer %s", name);
    return NULL;
}

enum { A = 6, B = 4, ALL = A + B, GOLDEN_STEPS = 6 };

/* Numbers of tests/golden/optim.golden: both parameters before, and their gradients in each step. */
static const double *optimizer_start, *optimizer_grads;

static int read_goldens(void **state)
{
    size_t starts, grads;
    (void)state;
    optimizer_start = golden_numbers("optim", "start", &starts);
    optimizer_grads = golden_numbers("optim", "grads", &grads);
    return starts == ALL && grads == GOLDEN_STEPS * ALL ? 0 : -1;
}

/* Two leaves of shapes (3, 2) and (4), the first in the memory order that is asked for. */
static yk_parameters *parameters(bool columns, yk_dtype dtype, yk_device device_a, yk_device device_b)
{
    yk_tensor_options f64 = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
    yk_tensor *a = yk_from_data(optimizer_start, YK_SHAPE(3, 2), &f64);
    if (columns)
        a = yk_transpose(yk_contiguous(yk_transpose(a, 0, 1)), 0, 1);
    a = yk_detach(yk_to(yk_cast(a, dtype), device_a));
    yk_tensor *b = yk_to(yk_cast(yk_from_data(optimizer_start + A, YK_SHAPE(4), &f64), dtype), device_b);
    yk_parameters *p = yk_parameters_create();
    expect_ok(yk_set_requires_grad(a, true));
    expect_ok(yk_set_requires_grad(b, true));
    expect_ok(yk_parameters_add(p, "a", a));
    expect_ok(yk_parameters_add(p, "b", b));
    return p;
}

static void set_grad(yk_tensor *x, const double *values)
{
    yk_tensor *grad = yk_from_data(values, yk_ndim(x), yk_sizes(x), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    expect_ok(yk_set_grad(x, yk_to(yk_cast(grad, yk_tensor_dtype(x)), yk_tensor_device(x))));
}

static bool steps_on_device;

static void follow(const char *name, yk_parameters *p, double tolerance)
{
    char section[60];
    size_t count;
    snprintf(section, sizeof(section), "steps of %s", name);
    const double *track = golden_numbers("optim", section, &count);
    assert_int_equal(count, GOLDEN_STEPS * ALL);
    yk_optimizer *o = make(name, p);
    expect_ok(o == NULL);
    if (steps_on_device)
        yk__optimizer_keep_steps_on_device(o);
    yk_tensor *a = yk_parameters_at(p, 0), *b = yk_parameters_at(p, 1);
    int64_t steps_of_b = 0;
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        bool skip = step == 0 || step == 3;
        uint32_t version_a = yk_tensor_version(a), version_b = yk_tensor_version(b);
        yk_optimizer_zero_grad(o);
        assert_null(yk_grad(a));
        set_grad(a, optimizer_grads + step * ALL);
        if (!skip)
            set_grad(b, optimizer_grads + step * ALL + A);
        expect_ok(yk_optimizer_step(o));
        assert_int_equal(yk_tensor_version(a), version_a + 1);
        assert_int_equal(yk_tensor_version(b), version_b + !skip);
        steps_of_b += !skip;
        assert_int_equal(yk_optimizer_state_step(o, a), step + 1);
        assert_int_equal(yk_optimizer_state_step(o, b), steps_of_b);
        double values[ALL];
        expect_ok(yk_tensor_read(yk_cast(yk_detach(a), YK_F64), values, A * sizeof(double)));
        expect_ok(yk_tensor_read(yk_cast(yk_detach(b), YK_F64), values + A, B * sizeof(double)));
        for (int i = 0; i < ALL; i++) {
            double expected = track[step * ALL + i];
            if (!(fabs(values[i] - expected) <= tolerance))
                fail_msg("%s: step %d, element %d is %.17g, PyTorch has %.17g", name, step, i, values[i], expected);
        }
    }
}

#define first  test_device(0)
#define second test_device(1)

static void follow_all(bool columns, yk_dtype dtype, yk_device device_b, double tolerance)
{
    size_t count;
    const char *const *names = golden_rows("optim", "optimizers", &count);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        yk_scope scope = yk_scope_begin();
        follow(names[i], parameters(columns, dtype, first, device_b), tolerance);
        yk_scope_end(scope);
    }
}

static void test_float64(void **unused)
{
    (void)unused;
    follow_all(false, YK_F64, first, 1e-14);
}

static void test_float32(void **unused)
{
    (void)unused;
    follow_all(false, YK_F32, first, 2e-6);
}

/* The gradient is in C order, the parameter (and so its state) is not. */
static void test_memory_order(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    assert_int_equal(yk_stride(yk_parameters_at(parameters(true, YK_F64, first, first), 0), 0), 1);
    yk_scope_end(scope);
    follow_all(true, YK_F64, first, 1e-14);
}

/* The rate and the step's number read from the devices' memory; b's steps are fewer than a's. */
static void test_steps_on_device(void **unused)
{
    (void)unused;
    steps_on_device = true;
    follow_all(false, YK_F64, first, 1e-14);
    follow_all(false, YK_F32, second, 2e-6);
    steps_on_device = false;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p[2] = {parameters(false, YK_F32, first, second), parameters(false, YK_F32, first, second)};
    yk_optimizer *o[2] = {yk_adam(p[0], YK_OPTIONS(yk_adam_options, .lr = 0.1)),
                          yk_adam(p[1], YK_OPTIONS(yk_adam_options, .lr = 0.1))};
    yk__optimizer_keep_steps_on_device(o[1]);
    float values[2][A];
    for (int k = 0; k < 2; k++) {
        for (int step = 0; step < 10; step++) {
            set_grad(yk_parameters_at(p[k], 0), optimizer_grads + step % GOLDEN_STEPS * ALL);
            expect_ok(yk_optimizer_set_lr(o[k], -1, 0.1 / (step / 3 + 1)));
            expect_ok(yk_optimizer_step(o[k]));
        }
        expect_ok(yk_tensor_read(yk_parameters_at(p[k], 0), values[k], sizeof(values[k])));
    }
    assert_memory_equal(values[0], values[1], sizeof(values[0]));
    yk_scope_end(scope);
}

static void test_two_devices(void **unused)
{
    (void)unused;
    follow_all(false, YK_F64, second, 1e-14);
}

static void test_state(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(false, YK_F64, first, first);
    yk_tensor *a = yk_parameters_at(p, 0), *b = yk_parameters_at(p, 1);
    yk_optimizer *o = yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    assert_null(yk_optimizer_state(o, a, "momentum_buffer"));
    set_grad(a, optimizer_grads);
    expect_ok(yk_optimizer_step(o));
    yk_tensor *buffer = yk_optimizer_state(o, a, "momentum_buffer");
    assert_true(yk_item(yk_all(yk_eq(buffer, yk_grad(a)))) == 1);
    assert_null(yk_optimizer_state(o, b, "momentum_buffer"));
    assert_null(yk_optimizer_state(o, a, "exp_avg"));
    assert_int_equal(yk_optimizer_state_step(o, yk_scalar(1, NULL)), 0);

    o = yk_adam(p, YK_OPTIONS(yk_adam_options, .lr = 1e-3, .beta1 = 0.75, .beta2 = 0.5, .amsgrad = true));
    expect_ok(yk_optimizer_step(o));
    for (int64_t i = 0; i < A; i++) {
        int64_t at[2] = {i / 2, i % 2};
        double g = optimizer_grads[i];
        expect_near(yk_get(yk_optimizer_state(o, a, "exp_avg"), at), 0.25 * g, 1e-14, 0);
        expect_near(yk_get(yk_optimizer_state(o, a, "exp_avg_sq"), at), 0.5 * g * g, 1e-14, 0);
        expect_near(yk_get(yk_optimizer_state(o, a, "max_exp_avg_sq"), at), 0.5 * g * g, 1e-14, 0);
    }
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* State follows its parameter to another dtype and device. */
static void test_moved_module(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    double trail[2][3];
    for (int moves = 0; moves < 2; moves++) {
        yk_manual_seed(5);
        yk_module *m = yk_linear_create(3, 1, NULL);
        yk_optimizer *o = yk_adam(yk_module_parameters(m), YK_OPTIONS(yk_adam_options, .lr = 0.1));
        yk_tensor *w = yk_module_get(m, "weight"), *x = yk_ones(YK_SHAPE(4, 3), NULL);
        for (int step = 0; step < 4; step++) {
            if (moves && step == 2) {
                assert_non_null(yk_module_to(yk_module_to_dtype(m, YK_F64), second));
                x = yk_to(yk_cast(x, YK_F64), second);
            }
            yk_optimizer_zero_grad(o);
            expect_ok(yk_backward(yk_sum(yk_square(yk_forward(m, x)))));
            expect_ok(yk_optimizer_step(o));
        }
        assert_int_equal(yk_optimizer_state_step(o, w), 4);
        yk_tensor *mean = yk_optimizer_state(o, w, "exp_avg");
        assert_int_equal(yk_tensor_dtype(mean), moves ? YK_F64 : YK_F32);
        assert_true(yk_device_equal(yk_tensor_device(mean), moves ? second : first));
        for (int64_t i = 0; i < 3; i++)
            trail[moves][i] = yk_get(w, (int64_t[]){0, i});
    }
    for (int i = 0; i < 3; i++)
        expect_near(trail[1][i], trail[0][i], 1e-5, 0);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_lr(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(false, YK_F64, first, first);
    yk_optimizer *o = with_groups(p);
    assert_int_equal(yk_optimizer_group_count(o), 2);
    assert_ptr_equal(yk_parameters_at(yk_optimizer_group(o, 1), 0), yk_parameters_at(p, 1));
    assert_null(yk_optimizer_group(o, 2));
    assert_true(yk_optimizer_lr(o, 0) == 0.1 && yk_optimizer_lr(o, 1) == 0.01);
    assert_true(isnan(yk_optimizer_lr(o, 2)));
    expect_ok(yk_optimizer_set_lr(o, 1, 0.5));
    assert_true(yk_optimizer_lr(o, 0) == 0.1 && yk_optimizer_lr(o, 1) == 0.5);
    expect_ok(yk_optimizer_set_lr(o, -1, 0));
    assert_true(yk_optimizer_lr(o, 0) == 0 && yk_optimizer_lr(o, 1) == 0);
    set_grad(yk_parameters_at(p, 0), optimizer_grads);
    expect_ok(yk_optimizer_step(o));
    assert_true(yk_get(yk_parameters_at(p, 0), (int64_t[]){1, 1}) == optimizer_start[3]);
    assert_int_equal(yk_optimizer_set_lr(o, 0, -1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "optimizer_set_lr: lr is -1, expected at least 0");
    assert_int_equal(yk_optimizer_set_lr(o, 2, 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "there is no group 2; the optimizer has 2");
    assert_true(yk_optimizer_lr(yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 0)), 0) == 0);
    yk_scope_end(scope);
}

static void refuse_sgd(yk_parameters *p, yk_sgd_options o, const char *text)
{
    assert_null(yk_sgd(p, &o));
    expect_error(YK_ERR_ARGUMENT, text);
}

static void refuse_adam(yk_parameters *p, yk_adam_options o, const char *text)
{
    assert_null(yk_adam(p, &o));
    expect_error(YK_ERR_ARGUMENT, text);
}

static void test_refusals(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(false, YK_F64, first, first);
    refuse_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = -0.1), "sgd: lr is -0.1, expected at least 0");
    refuse_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = NAN), "sgd: lr is nan");
    refuse_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = 1, .momentum = -1), "sgd: momentum is -1");
    refuse_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = 1, .weight_decay = -1), "sgd: weight_decay is -1");
    refuse_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = 1, .nesterov = true),
               "sgd: nesterov needs a momentum and no dampening");
    refuse_sgd(p, *YK_OPTIONS(yk_sgd_options, .lr = 1, .nesterov = true, .momentum = 0.9, .dampening = 0.1),
               "they are 0.9 and 0.1");
    refuse_adam(p, *YK_OPTIONS(yk_adam_options, .lr = -1), "adam: lr is -1");
    refuse_adam(p, *YK_OPTIONS(yk_adam_options, .lr = 1, .eps = -1), "adam: eps is -1");
    refuse_adam(p, *YK_OPTIONS(yk_adam_options, .lr = 1, .beta1 = 1), "adam: beta1 is 1, expected a number in [0, 1)");
    refuse_adam(p, *YK_OPTIONS(yk_adam_options, .lr = 1, .beta2 = -0.5), "adam: beta2 is -0.5");
    refuse_adam(p, *YK_OPTIONS(yk_adam_options, .lr = 1, .weight_decay = -1), "adam: weight_decay is -1");

    /* An option without a safe default is an error when it is not given. */
    refuse_sgd(p, *YK_OPTIONS(yk_sgd_options, .momentum = 0.9), "sgd: lr was not given, and has no default");
    refuse_adam(p, *YK_OPTIONS(yk_adam_options), "adam: lr was not given");
    assert_null(yk_sgd(p, NULL));
    expect_error(YK_ERR_ARGUMENT, "sgd: lr was not given");
    assert_null(yk_adamw(p, NULL));
    expect_error(YK_ERR_ARGUMENT, "adamw: lr was not given");
    /* A list without a parameter to train is refused. */
    yk_module *frozen = yk_linear_create(2, 2, NULL);
    expect_ok(yk_module_requires_grad(frozen, false));
    refuse_sgd(yk_module_parameters(frozen), *YK_OPTIONS(yk_sgd_options, .lr = 1),
               "sgd: none of the 2 parameters requires a gradient, so it would train nothing");
    refuse_sgd(yk_parameters_create(), *YK_OPTIONS(yk_sgd_options, .lr = 1), "sgd: the list of parameters is empty");
    assert_null(yk_sgd(NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "sgd: the list of parameters is NULL");
    yk_optimizer *o = yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 1));
    assert_int_equal(yk_sgd_add_group(o, p, YK_OPTIONS(yk_sgd_options, .lr = 1)), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "sgd: parameter a is in the optimizer twice");
    yk_parameters *twice = yk_parameters_create(), *made = yk_parameters_create(), *whole = yk_parameters_create();
    expect_ok(yk_parameters_add(twice, "x", yk_parameters_at(p, 0)));
    expect_ok(yk_parameters_add(twice, "y", yk_parameters_at(p, 0)));
    refuse_sgd(twice, *YK_OPTIONS(yk_sgd_options, .lr = 1), "sgd: parameter y is in the optimizer twice");
    assert_int_equal(yk_parameters_add(made, "x", yk_mul_scalar(yk_parameters_at(p, 0), 2)), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "parameters_add: \"x\" was made by mul_scalar and is no leaf");
    /* Another optimizer's options are not read as its own. */
    expect_ok(
        yk_parameters_add(made, "new", yk_ones(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .requires_grad = true))));
    assert_int_equal(yk_adam_add_group(o, made, YK_OPTIONS(yk_adam_options, .lr = 1)), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "adam_add_group: the optimizer is sgd");
    yk_optimizer *adam = yk_adam(p, YK_OPTIONS(yk_adam_options, .lr = 1)),
                 *adamw = yk_adamw(p, YK_OPTIONS(yk_adam_options, .lr = 1));
    assert_int_equal(yk_adamw_add_group(adam, made, YK_OPTIONS(yk_adam_options, .lr = 1)), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "adamw_add_group: the optimizer is adam");
    expect_ok(yk_adam_add_group(adam, made, YK_OPTIONS(yk_adam_options, .lr = 0.5)));
    expect_ok(yk_adamw_add_group(adamw, made, YK_OPTIONS(yk_adam_options, .lr = 0.25)));
    assert_true(yk_optimizer_lr(adam, 1) == 0.5 && yk_optimizer_lr(adamw, 1) == 0.25);
    expect_ok(yk_parameters_add(whole, "x", yk_ones(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64))));
    assert_null(yk_sgd(whole, YK_OPTIONS(yk_sgd_options, .lr = 1)));
    expect_error(YK_ERR_DTYPE, "sgd: parameter x is int64, expected float32 or float64");
    assert_int_equal(yk_optimizer_step(NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "optimizer_step: the optimizer is NULL");
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float64),         cmocka_unit_test(test_float32),
        cmocka_unit_test(test_memory_order),    cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_steps_on_device), cmocka_unit_test(test_state),
        cmocka_unit_test(test_moved_module),    cmocka_unit_test(test_lr),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("optimizer", tests, read_goldens, NULL);
}
