/*
 * grad_scaler_test.c - the scaler's factor, the steps it leaves out and the gradients it divides, against what
 * torch.amp.GradScaler (PyTorch 2.15) does with the same gradients; misuse is an error.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <math.h>

#include <yoke/checkpoint.h>
#include <yoke/nn.h>

#include "tensor/tensor.h"

/*
 * The run: one float32 parameter of two elements, SGD with lr 0.1, init_scale 8, growth_interval 2. Before step i the
 * gradient is set to scale * (i + 1) * (1, -2), with an infinity in steps 2 and 6 and a NaN in step 7.
 */
enum { STEPS = 12 };
#include "tests/optim/grad_scaler_golden.h"

#define refused(call, code, text)                                                                                      \
    do {                                                                                                               \
        assert_int_equal((call), code);                                                                                \
        expect_error(code, text);                                                                                      \
    } while (0)

typedef struct setup {
    yk_tensor *x;
    yk_optimizer *sgd;
    yk_grad_scaler *scaler;
} setup;

static setup make(const yk_grad_scaler_options *options)
{
    setup s;
    s.x = yk_from_data((float[]){1, 2}, 1, (int64_t[]){2}, NULL);
    expect_ok(yk_set_requires_grad(s.x, true));
    yk_parameters *params = yk_parameters_create();
    expect_ok(yk_parameters_add(params, "x", s.x));
    s.sgd = yk_sgd(params, YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    s.scaler = yk_grad_scaler_create(options);
    assert_non_null(s.sgd);
    assert_non_null(s.scaler);
    return s;
}

static void set_grad(const setup *s, double a, double b)
{
    float values[2] = {(float)a, (float)b};
    expect_ok(yk_set_grad(s->x, yk_from_data(values, 1, (int64_t[]){2}, NULL)));
}

static void expect_x(const setup *s, double a, double b)
{
    float values[2];
    expect_ok(yk_tensor_read(s->x, values, sizeof(values)));
    /* a step's rounding depends on whether the compiler joins product and sum */
    expect_near(values[0], a, 1e-6, 1e-6);
    expect_near(values[1], b, 1e-6, 1e-6);
}

static void test_follows_pytorch(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 8, .growth_interval = 2));
    for (int i = 0; i < STEPS; i++) {
        double scale = yk_grad_scaler_get_state(s.scaler).scale;
        double first = i == 2 || i == 6 ? (double)INFINITY : i == 7 ? (double)NAN : scale * (i + 1);
        set_grad(&s, first, scale * (i + 1) * -2);
        if (i % 3 == 0)
            expect_ok(yk_grad_scaler_unscale(s.scaler, s.sgd));
        bool skipped;
        expect_ok(yk_grad_scaler_step(s.scaler, s.sgd, &skipped));
        assert_int_equal(skipped, i == 2 || i == 6 || i == 7);
        expect_ok(yk_grad_scaler_update(s.scaler));
        yk_grad_scaler_state now = yk_grad_scaler_get_state(s.scaler);
        assert_true(now.scale == golden[i].scale);
        assert_int_equal(now.growth_tracker, golden[i].tracker);
        expect_x(&s, golden[i].x, golden[i].y);
    }
    yk_scope_end(scope);
}

/* Finite gradients whose squares are not, and a scale that may not grow beyond float32. */
static void test_extremes(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 0x1p127, .growth_interval = 1));
    bool skipped;
    set_grad(&s, 3e38, -3e38);
    expect_ok(yk_grad_scaler_step(s.scaler, s.sgd, &skipped));
    assert_false(skipped);
    expect_ok(yk_grad_scaler_update(s.scaler));
    yk_grad_scaler_state now = yk_grad_scaler_get_state(s.scaler);
    assert_true(now.scale == 0x1p127); /* doubled it would be infinite */
    assert_int_equal(now.growth_tracker, 0);
    yk_scope_end(scope);
}

static void test_scale(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(NULL);
    yk_tensor *loss = yk_grad_scaler_scale(s.scaler, yk_sum(yk_mul(s.x, s.x)));
    assert_true(yk_item(loss) == 5 * 65536.0);
    expect_ok(yk_backward(loss));
    expect_ok(yk_grad_scaler_unscale(s.scaler, s.sgd));
    float grad[2];
    expect_ok(yk_tensor_read(yk_grad(s.x), grad, sizeof(grad)));
    assert_true(grad[0] == 2 && grad[1] == 4);
    yk_tensor *half =
        yk_grad_scaler_scale(s.scaler, yk_full(0, NULL, 3, YK_OPTIONS(yk_tensor_options, .dtype = YK_F16)));
    assert_int_equal(yk_tensor_dtype(half), YK_F32);
    assert_true(yk_item(half) == 3 * 65536.0);
    yk_scope_end(scope);
}

/* Gradients on two devices: one that is not finite, on either, leaves the step out for both; each is divided where it
 * lies, and the loss may be on any of them. */
static void test_two_devices(void **state)
{
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        yk_scope scope = yk_scope_begin();
        yk_parameters *params = yk_parameters_create();
        yk_tensor *x[2];
        for (int d = 0; d < 2; d++) {
            yk_tensor_options on = *YK_OPTIONS(yk_tensor_options, .device = test_device(d),
                                               .dtype = d ? YK_F64 : YK_F32, .requires_grad = true);
            x[d] = yk_ones(YK_SHAPE(2), &on);
            expect_ok(yk_parameters_add(params, d ? "b" : "a", x[d]));
        }
        yk_optimizer *sgd = yk_sgd(params, YK_OPTIONS(yk_sgd_options, .lr = 1));
        yk_grad_scaler *scaler = yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 8));
        for (int d = 1; d >= 0; d--) { /* the second device's loss comes first */
            yk_tensor *loss = yk_grad_scaler_scale(scaler, yk_sum(yk_mul_scalar(x[d], d == bad ? INFINITY : 3)));
            assert_true(yk_device_equal(yk_tensor_device(loss), yk_tensor_device(x[d])));
            expect_ok(yk_backward(loss));
        }
        expect_ok(yk_grad_scaler_unscale(scaler, sgd));
        for (int d = 0; d < 2; d++)
            assert_true(yk_item(yk_select(yk_grad(x[d]), 0, 1)) == (d == bad ? INFINITY : 3));
        bool skipped;
        expect_ok(yk_grad_scaler_step(scaler, sgd, &skipped));
        assert_int_equal(skipped, bad < 2);
        for (int d = 0; d < 2; d++)
            assert_true(yk_item(yk_select(x[d], 0, 0)) == (bad < 2 ? 1 : -2));
        expect_ok(yk_grad_scaler_update(scaler));
        assert_true(yk_grad_scaler_get_state(scaler).scale == (bad < 2 ? 4 : 8));
        assert_true(yk_item(yk_grad_scaler_scale(scaler, yk_ones(YK_SHAPE(1), NULL))) == (bad < 2 ? 4 : 8));
        yk_scope_end(scope);
    }
}

/* Two optimizers: what one finds leaves out its own step alone, and lowers the scale of both once. */
static void test_two_optimizers(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup a = make(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 8)), b = make(NULL);
    set_grad(&a, 8, 16);
    set_grad(&b, 8, (double)NAN);
    bool skipped[2];
    expect_ok(yk_grad_scaler_step(a.scaler, a.sgd, &skipped[0]));
    expect_ok(yk_grad_scaler_unscale(a.scaler, b.sgd)); /* looked at, and its step not taken: it counts all the same */
    expect_x(&a, 1 - 0.1, 2 - 0.2);
    expect_ok(yk_grad_scaler_update(a.scaler));
    assert_false(skipped[0]);
    assert_true(yk_grad_scaler_get_state(a.scaler).scale == 4);
    set_grad(&b, 4, (double)NAN);
    set_grad(&a, 4, 4);
    expect_ok(yk_grad_scaler_step(a.scaler, b.sgd, &skipped[1]));
    expect_ok(yk_grad_scaler_step(a.scaler, a.sgd, &skipped[0]));
    assert_true(skipped[1] && !skipped[0]);
    expect_x(&a, 1 - 0.2, 2 - 0.3);
    expect_x(&b, 1, 2);
    yk_scope_end(scope);
}

/* The scale that a loss was multiplied by lies in memory that an update writes, and a backward after it would multiply
 * by another: an error, as with PyTorch. */
static void test_late_backward(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(NULL);
    yk_tensor *loss = yk_grad_scaler_scale(s.scaler, yk_sum(s.x));
    set_grad(&s, (double)INFINITY, 1);
    expect_ok(yk_grad_scaler_step(s.scaler, s.sgd, NULL));
    expect_ok(yk_grad_scaler_update(s.scaler));
    assert_int_equal(yk_backward(loss), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "mul: version 2, expected 1");
    /* A state that is set counts, too, and reaches the device. */
    yk_grad_scaler_state now = yk_grad_scaler_get_state(s.scaler);
    assert_true(now.scale == 32768);
    loss = yk_grad_scaler_scale(s.scaler, yk_sum(s.x));
    now.scale = 16, now.growth_tracker = 3;
    expect_ok(yk_grad_scaler_set_state(s.scaler, &now));
    assert_int_equal(yk_backward(loss), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "mul: version 3, expected 2");
    loss = yk_grad_scaler_scale(s.scaler, yk_sum(s.x));
    assert_true(yk_item(loss) == 3 * 16);
    set_grad(&s, 0, 0);
    expect_ok(yk_backward(loss));
    expect_ok(yk_grad_scaler_step(s.scaler, s.sgd, NULL));
    expect_x(&s, 1 - 0.1, 2 - 0.1);
    expect_ok(yk_grad_scaler_update(s.scaler));
    assert_int_equal(yk_grad_scaler_get_state(s.scaler).growth_tracker, 4);
    now.growth_tracker = (int64_t)INT32_MAX + 1;
    refused(yk_grad_scaler_set_state(s.scaler, &now), YK_ERR_ARGUMENT, "growth_tracker 2147483648");
    yk_scope_end(scope);
}

/* First used in inference mode, a scaler serves training all the same. */
static void test_inference_first(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(NULL);
    bool before = yk_inference_mode_begin();
    assert_true(yk_item(yk_grad_scaler_scale(s.scaler, yk_sum(s.x))) == 3 * 65536.0);
    yk_inference_mode_end(before);
    expect_ok(yk_backward(yk_grad_scaler_scale(s.scaler, yk_sum(s.x))));
    assert_true(yk_item(yk_select(yk_grad(s.x), 0, 0)) == 65536);
    yk_scope_end(scope);
}

/* Gradients of halves (of a module that was moved after its optimizer was made) are divided in f32. */
static void test_half_gradients(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_linear_create(2, 1, YK_OPTIONS(yk_linear_options, .bias = false));
    yk_parameters *params = yk_module_parameters(m);
    yk_optimizer *sgd = yk_sgd(params, YK_OPTIONS(yk_sgd_options, .lr = 1));
    yk_grad_scaler *scaler = yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 4));
    assert_non_null(yk_module_to_dtype(m, YK_F16));
    yk_tensor *w = yk_parameters_at(params, 0);
    expect_ok(yk_set_grad(w, yk_full(YK_SHAPE(1, 2), 12, YK_OPTIONS(yk_tensor_options, .dtype = YK_F16))));
    uint32_t version = yk__version(yk_grad(w));
    expect_ok(yk_grad_scaler_unscale(scaler, sgd));
    assert_int_equal(yk_tensor_dtype(yk_grad(w)), YK_F16);
    assert_true(yk_item(yk_sum(yk_grad(w))) == 6);
    assert_int_equal(yk__version(yk_grad(w)), version + 1);
    yk_scope_end(scope);
}

static void test_disabled(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(YK_OPTIONS(yk_grad_scaler_options, .enabled = false));
    assert_false(yk_grad_scaler_enabled(s.scaler));
    assert_true(yk_grad_scaler_enabled(yk_grad_scaler_create(NULL)));
    yk_tensor *loss = yk_sum(s.x);
    assert_ptr_equal(yk_grad_scaler_scale(s.scaler, loss), loss);
    set_grad(&s, 1, 1);
    expect_ok(yk_grad_scaler_unscale(s.scaler, s.sgd));
    expect_ok(yk_grad_scaler_step(s.scaler, s.sgd, NULL));
    expect_ok(yk_grad_scaler_update(s.scaler));
    expect_x(&s, 0.9f, 1.9f);
    assert_int_equal(yk_value_count(yk_value_from_grad_scaler(s.scaler)), 0);
    expect_ok(yk_grad_scaler_load_value(s.scaler, yk_value_dict()));
    yk_scope_end(scope);
}

static void test_misuse(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(NULL);
    refused(yk_grad_scaler_update(s.scaler), YK_ERR_STATE, "no gradients were looked at");
    refused(yk_grad_scaler_step(s.scaler, s.sgd, NULL), YK_ERR_STATE, "no parameter of the optimizer has a gradient");
    expect_ok(yk_grad_scaler_unscale(s.scaler, s.sgd));
    refused(yk_grad_scaler_update(s.scaler), YK_ERR_STATE, "no gradients were looked at");
    set_grad(&s, 65536, 65536); /* now it has some: the refusals have left nothing behind */
    expect_ok(yk_grad_scaler_unscale(s.scaler, s.sgd));
    expect_ok(yk_grad_scaler_step(s.scaler, s.sgd, NULL));
    expect_ok(yk_grad_scaler_update(s.scaler));
    expect_x(&s, 0.9f, 1.9f);
    s = make(NULL);
    set_grad(&s, 1, 1);
    expect_ok(yk_grad_scaler_unscale(s.scaler, s.sgd));
    refused(yk_grad_scaler_unscale(s.scaler, s.sgd), YK_ERR_STATE, "gradients were unscaled since");
    expect_ok(yk_grad_scaler_step(s.scaler, s.sgd, NULL));
    refused(yk_grad_scaler_step(s.scaler, s.sgd, NULL), YK_ERR_STATE, "step was taken since");
    refused(yk_grad_scaler_unscale(s.scaler, s.sgd), YK_ERR_STATE, "step was taken since");
    expect_ok(yk_grad_scaler_update(s.scaler));
    assert_null(yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .init_scale = -1)));
    expect_error(YK_ERR_ARGUMENT, "init_scale -1");
    assert_null(yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .backoff_factor = 2)));
    expect_error(YK_ERR_ARGUMENT, "backoff_factor is 2, expected a number between 0 and 1");
    assert_null(yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .growth_factor = 1)));
    expect_error(YK_ERR_ARGUMENT, "growth_factor is 1, expected more than 1");
    yk_scope_end(scope);
}

/* PyTorch's form, there and back, and what it refuses. */
static void test_value(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 8, .growth_interval = 5)), other = make(NULL);
    set_grad(&s, 8, 8);
    expect_ok(yk_grad_scaler_step(s.scaler, s.sgd, NULL));
    expect_ok(yk_grad_scaler_update(s.scaler));
    yk_value *value = yk_value_from_grad_scaler(s.scaler);
    static const char *const keys[] = {"scale", "growth_factor", "backoff_factor", "growth_interval",
                                       "_growth_tracker"};
    assert_int_equal(yk_value_count(value), 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(yk_value_key(value, i, NULL), keys[i]);
    expect_ok(yk_grad_scaler_load_value(other.scaler, value));
    yk_grad_scaler_state now = yk_grad_scaler_get_state(other.scaler);
    assert_true(now.scale == 8 && now.growth_interval == 5 && now.growth_tracker == 1);
    refused(yk_grad_scaler_load_value(other.scaler, yk_value_dict()), YK_ERR_FORMAT,
            "it is empty, as a disabled scaler saves it");
    expect_ok(yk_value_set(value, "growth_interval", yk_value_string("x")));
    refused(yk_grad_scaler_load_value(other.scaler, value), YK_ERR_FORMAT,
            "scaler state: growth_interval is a string, expected a number");
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follows_pytorch), cmocka_unit_test(test_extremes),
        cmocka_unit_test(test_scale),           cmocka_unit_test(test_two_devices),
        cmocka_unit_test(test_two_optimizers),  cmocka_unit_test(test_late_backward),
        cmocka_unit_test(test_inference_first), cmocka_unit_test(test_half_gradients),
        cmocka_unit_test(test_disabled),        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_value),
    };
    return cmocka_run_group_tests_name("grad_scaler", tests, NULL, NULL);
}
