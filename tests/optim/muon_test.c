/*
 * muon_test.c - Muon against PyTorch step by step, whose direction is computed in bf16; master weights, steps that are
 * left out, state that goes on to the bit, also in PyTorch's form; refusals.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include <yoke/checkpoint.h>

#include "optim/optimizer.h"

enum { A = 24, B = 15, ALL = A + B, STEPS = 5 };

static yk_parameters *parameters(bool columns, yk_dtype dtype, yk_device device_b)
{
    size_t count;
    const double *start = golden_numbers("lbfgs", "muon_start", &count);
    const yk_tensor_options f64 = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
    yk_tensor *a = yk_cast(yk_from_data(start, YK_SHAPE(6, 4), &f64), dtype);
    yk_tensor *b = yk_to(yk_cast(yk_from_data(start + A, YK_SHAPE(3, 5), &f64), dtype), device_b);
    if (columns)
        a = yk_transpose(yk_contiguous(yk_transpose(a, 0, 1)), 0, 1);
    a = yk_detach(a);
    b = yk_detach(b);
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

static void set_grads(yk_parameters *p, int step)
{
    size_t count;
    const double *grads = golden_numbers("lbfgs", "muon_grads", &count) + step * ALL;
    set_grad(yk_parameters_at(p, 0), grads);
    set_grad(yk_parameters_at(p, 1), grads + A);
}

static void steps(yk_optimizer *o, yk_parameters *p, int from, int to)
{
    for (int step = from; step < to; step++) {
        set_grads(p, step);
        expect_ok(yk_optimizer_step(o));
    }
}

static void read_all(yk_tensor *a, yk_tensor *b, double values[ALL])
{
    expect_ok(yk_tensor_read(yk_cast(yk_detach(a), YK_F64), values, A * sizeof(double)));
    expect_ok(yk_tensor_read(yk_cast(yk_detach(b), YK_F64), values + A, B * sizeof(double)));
}

static bool same(yk_parameters *p, yk_parameters *q)
{
    double a[ALL], b[ALL];
    read_all(yk_parameters_at(p, 0), yk_parameters_at(p, 1), a);
    read_all(yk_parameters_at(q, 0), yk_parameters_at(q, 1), b);
    return memcmp(a, b, sizeof(a)) == 0;
}

/* The optimizer that make_lbfgs.py has under this name. */
static yk_optimizer *make(const char *name, yk_parameters *p, bool master)
{
#define CASE(text, ...)                                                                                                \
    if (strcmp(name, text) == 0)                                                                                       \
        return yk_muon(p, YK_OPTIONS(yk_muon_options, .master_weights = master, __VA_ARGS__));
    CASE("muon", .nesterov = true)
    CASE("muon_plain", .lr = 0.1, .nesterov = false, .momentum = 0.8, .weight_decay = 0)
    CASE("muon_rms", .lr = 0.02, .adjust_lr_fn = YK_MUON_MATCH_RMS_ADAMW, .ns_steps = 3)
    CASE("muon_unclamped", .lr = 0.05, .adjust_lr_fn = YK_MUON_SPECTRAL_UNCLAMPED, .ns_a = 2, .ns_b = -1.5, .ns_c = 0.5,
         .ns_steps = 10)
    CASE("muon_eps", .lr = 0.05, .eps = 10, .ns_steps = 1)
#undef CASE
    fail_msg("no test makes the optimizer %s", name);
    return NULL;
}
static const char *const cases[] = {"muon", "muon_plain", "muon_rms", "muon_unclamped", "muon_eps"};
enum { CASES = sizeof(cases) / sizeof(*cases) };

/* A bf16 sum in another order may round to its neighbour, 1 / 128 of it away, in each of the products; a step has at
 * most twice the learning rate. GPUs round a product before it is added, too. The buffers have no such rounding. */
static void follow_all(bool columns, yk_dtype dtype, yk_device device_b)
{
    for (int k = 0; k < CASES; k++) {
        yk_scope scope = yk_scope_begin();
        yk_parameters *p = parameters(columns, dtype, device_b);
        yk_optimizer *o = make(cases[k], p, false);
        expect_ok(o == NULL);
        size_t count;
        const double *rows = golden_numbers("lbfgs", cases[k], &count);
        char name[40];
        snprintf(name, sizeof(name), "%s_buffer", cases[k]);
        bool gpu = yk_tensor_device(yk_parameters_at(p, 0)).type != YK_CPU || device_b.type != YK_CPU;
        double tolerance = yk_optimizer_lr(o, 0) * (gpu ? 0.06 : 0.03), values[ALL];
        for (int step = 0; step < STEPS; step++) {
            steps(o, p, step, step + 1);
            read_all(yk_parameters_at(p, 0), yk_parameters_at(p, 1), values);
            for (int i = 0; i < ALL; i++)
                if (!(fabs(values[i] - rows[step * ALL + i]) <= (step + 1) * tolerance + 1e-6))
                    fail_msg("%s: step %d, element %d is %.17g, PyTorch has %.17g", cases[k], step, i, values[i],
                             rows[step * ALL + i]);
        }
        const double *buffer = golden_numbers("lbfgs", name, &count);
        read_all(yk_optimizer_state(o, yk_parameters_at(p, 0), "momentum_buffer"),
                 yk_optimizer_state(o, yk_parameters_at(p, 1), "momentum_buffer"), values);
        for (int i = 0; i < ALL; i++)
            expect_near(values[i], buffer[i], 0, dtype == YK_F64 ? 1e-14 : 1e-6);
        assert_int_equal(yk_optimizer_state_step(o, yk_parameters_at(p, 1)), STEPS);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

static void test_pytorch(void **state)
{
    (void)state;
    follow_all(false, YK_F64, test_device(0));
    follow_all(true, YK_F32, test_device(1));
}

/* Without iterations the direction is the update over its norm: exact but for three roundings to bf16. */
static void test_direction(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(false, YK_F64, test_device(0));
    yk_optimizer *o = yk_muon(p, YK_OPTIONS(yk_muon_options, .lr = 1, .weight_decay = 0, .momentum = 0, .ns_steps = 0));
    double before[ALL], after[ALL], norm = 0;
    size_t count;
    const double *grads = golden_numbers("lbfgs", "muon_grads", &count);
    read_all(yk_parameters_at(p, 0), yk_parameters_at(p, 1), before);
    steps(o, p, 0, 1);
    read_all(yk_parameters_at(p, 0), yk_parameters_at(p, 1), after);
    for (int i = A; i < ALL; i++)
        norm += grads[i] * grads[i];
    for (int i = A; i < ALL; i++)
        expect_near(before[i] - after[i], grads[i] / sqrt(norm), 0.012, 0);
    yk_scope_end(scope);
}

static void test_master_weights(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(false, YK_BF16, test_device(0));
    yk_optimizer *o = make("muon_rms", p, true);
    steps(o, p, 0, STEPS);
    yk_tensor *a = yk_parameters_at(p, 0), *master = yk_optimizer_state(o, a, "master_weight");
    assert_int_equal(yk_tensor_dtype(master), YK_F32);
    assert_int_equal(yk_tensor_dtype(yk_optimizer_state(o, a, "momentum_buffer")), YK_F32);
    assert_true(
        yk_item(yk_max(yk_abs(yk_sub(yk_cast(yk_cast(master, YK_BF16), YK_F32), yk_cast(yk_detach(a), YK_F32))))) == 0);
    yk_scope_end(scope);
}

static void test_resume(void **state)
{
    (void)state;
    for (int form = 0; form < 2; form++) {
        yk_scope scope = yk_scope_begin();
        yk_parameters *p = parameters(false, YK_F64, test_device(0)), *q = parameters(false, YK_F64, test_device(0));
        yk_optimizer *o = make("muon_unclamped", p, false), *next = make("muon", q, false);
        steps(o, p, 0, 2);
        yk_value *value = yk_value_from_optimizer(o);
        if (form)
            expect_ok(yk_optimizer_load_value(next, value));
        else
            expect_ok(yk_optimizer_load_state_dict(next, yk_optimizer_state_dict(o)));
        bool recording = yk_no_grad_begin();
        for (int i = 0; i < 2; i++)
            assert_non_null(yk_copy_(yk_parameters_at(q, i), yk_parameters_at(p, i)));
        yk_no_grad_end(recording);
        steps(o, p, 2, STEPS);
        steps(next, q, 2, STEPS);
        assert_true(same(p, q));
        /* PyTorch's keys. */
        static const char *const keys[] = {"lr",  "weight_decay", "momentum",     "nesterov", "ns_coefficients",
                                           "eps", "ns_steps",     "adjust_lr_fn", "params"};
        yk_value *group = yk_value_at(yk_value_get(value, "param_groups"), 0);
        for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
            assert_non_null(yk_value_get(group, keys[i]));
        assert_null(yk_value_get(group, "maximize"));
        assert_int_equal(yk_value_count(yk_value_get(group, "ns_coefficients")), 3);
        assert_string_equal(yk_value_as_string(yk_value_get(group, "adjust_lr_fn")), "spectral_unclamped");
        assert_int_equal(yk_value_count(yk_value_get_int(yk_value_get(value, "state"), 0)), 1);
        /* None is the first of the words. */
        expect_ok(yk_value_set(group, "adjust_lr_fn", yk_value_none()));
        expect_ok(yk_optimizer_load_value(next, value));
        assert_true(yk_optimizer_option(next, 0, "adjust_lr_fn") == YK_MUON_ORIGINAL);
        assert_true(yk_optimizer_option(next, 0, "ns_b") == -1.5);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* A number on the device says that a step is left out; the buffers are, too. */
static void test_left_out(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(false, YK_F64, test_device(0)), *q = parameters(false, YK_F64, test_device(0));
    yk_optimizer *o = make("muon", p, false), *plain = make("muon", q, false);
    for (int step = 0; step < 3; step++) {
        yk_tensor *found = yk_full(0, NULL, step == 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_I32));
        set_grads(p, step);
        expect_ok(yk_optimizer_step_unless(o, found));
        if (step != 1)
            steps(plain, q, step, step + 1);
    }
    assert_true(same(p, q));
    assert_int_equal(yk_optimizer_state_step(o, yk_parameters_at(p, 0)), 2);
    yk_scope_end(scope);
}

static void test_refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(false, YK_F64, test_device(0));
#define REFUSED(text, ...)                                                                                             \
    do {                                                                                                               \
        assert_null(yk_muon(p, YK_OPTIONS(yk_muon_options, __VA_ARGS__)));                                             \
        expect_error(YK_ERR_ARGUMENT, text);                                                                           \
    } while (0)
    REFUSED("muon: lr is -1, expected at least 0", .lr = -1);
    REFUSED("muon: momentum is -1", .momentum = -1);
    REFUSED("muon: weight_decay is -1", .weight_decay = -1);
    REFUSED("muon: eps is nan", .eps = NAN);
    REFUSED("muon: ns_steps is 100, expected a number in [0, 99]", .ns_steps = 100);
    REFUSED("muon: ns_c is inf", .ns_c = INFINITY);
    REFUSED("muon: adjust_lr_fn is 9, expected YK_MUON_ORIGINAL, YK_MUON_MATCH_RMS_ADAMW or YK_MUON_SPECTRAL_UNCLAMPED",
            .adjust_lr_fn = (yk_muon_adjust)9);
#undef REFUSED
    yk_module *layer = yk_linear_create(4, 3, NULL);
    assert_null(yk_muon(yk_module_parameters(layer), NULL));
    expect_error(YK_ERR_SHAPE, "muon: parameter bias has shape (3), and only matrices, of two dimensions, are made "
                               "orthogonal: give it to another optimizer, yk_adamw say");
    yk_optimizer *o = make("muon", p, false);
    assert_int_equal(yk_optimizer_add_group(o, yk_module_parameters(layer)), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "muon: parameter bias has shape (3)");
    assert_int_equal(yk_optimizer_group_count(o), 1);
    assert_int_equal(yk_optimizer_set_option(o, 0, "ns_steps", 2.5), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "muon: ns_steps is 2.5, expected a whole number");
    expect_ok(yk_optimizer_set_option(o, 0, "ns_a", 3));
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch), cmocka_unit_test(test_direction), cmocka_unit_test(test_master_weights),
        cmocka_unit_test(test_resume),  cmocka_unit_test(test_left_out),  cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("muon", tests, NULL, NULL);
}
