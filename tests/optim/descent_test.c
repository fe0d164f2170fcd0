/*
 * descent_test.c - RMSprop, Adagrad, Adadelta, Adamax, NAdam and RAdam against PyTorch step by step; master weights,
 * steps that are left out, state that goes on to the bit, also in PyTorch's form; refusals.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/checkpoint.h>

#include "optim/optimizer.h"
#include "tensor/tensor.h"
#include "tests/golden/rules_golden.h"

enum { ALL = RULE_A + RULE_B, TRACKS = sizeof(rule_tracks) / sizeof(*rule_tracks) };

/* The optimizer that make_rules.py has under this name. */
static yk_optimizer *make(const char *name, yk_parameters *p, bool master)
{
#define CASE(text, kind, ...)                                                                                          \
    if (strcmp(name, text) == 0)                                                                                       \
        return yk_##kind(p, YK_OPTIONS(yk_##kind##_options, .master_weights = master, __VA_ARGS__));
    CASE("rmsprop", rmsprop, .centered = false)
    CASE("rmsprop_decay", rmsprop, .lr = 0.05, .alpha = 0.9, .eps = 1e-3, .weight_decay = 0.1)
    CASE("rmsprop_momentum", rmsprop, .lr = 0.02, .momentum = 0.9, .maximize = true)
    CASE("rmsprop_centered", rmsprop, .lr = 0.02, .alpha = 0.95, .centered = true, .weight_decay = 0.05)
    CASE("rmsprop_all", rmsprop, .lr = 0.02, .momentum = 0.8, .centered = true, .weight_decay = 0.05)
    CASE("adagrad", adagrad, .maximize = false)
    CASE("adagrad_all", adagrad, .lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.05, .initial_accumulator_value = 0.25,
         .eps = 1e-4, .maximize = true)
    CASE("adadelta", adadelta, .maximize = false)
    CASE("adadelta_all", adadelta, .lr = 0.5, .rho = 0.8, .eps = 1e-3, .weight_decay = 0.1, .maximize = true)
    CASE("adamax", adamax, .maximize = false)
    CASE("adamax_all", adamax, .lr = 0.05, .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.1,
         .maximize = true)
    CASE("nadam", nadam, .maximize = false)
    CASE("nadam_all", nadam, .lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1,
         .momentum_decay = 0.5, .maximize = true)
    CASE("nadam_decoupled", nadam, .lr = 0.05, .weight_decay = 0.1, .decoupled_weight_decay = true)
    CASE("radam", radam, .maximize = false)
    CASE("radam_all", radam, .lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1,
         .maximize = true)
    CASE("radam_decoupled", radam, .lr = 0.05, .weight_decay = 0.1, .decoupled_weight_decay = true)
#undef CASE
    fail_msg("no test makes the optimizer %s", name);
    return NULL;
}

/* Two leaves of shapes (3, 2), in the order of columns where that is asked for, and (4). */
static yk_parameters *parameters(bool columns, yk_dtype dtype, yk_device device_b)
{
    const yk_tensor_options f64 = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
    yk_tensor *a = yk_cast(yk_from_data(rule_start, YK_SHAPE(3, 2), &f64), dtype);
    if (columns)
        a = yk_transpose(yk_contiguous(yk_transpose(a, 0, 1)), 0, 1);
    a = yk_detach(yk_to(a, test_device(0)));
    yk_tensor *b = yk_to(yk_cast(yk_from_data(rule_start + RULE_A, YK_SHAPE(4), &f64), dtype), device_b);
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

/* The gradients of a step; b has none in steps 0 and 3. */
static void set_grads(yk_optimizer *o, yk_parameters *p, int step)
{
    yk_optimizer_zero_grad(o);
    set_grad(yk_parameters_at(p, 0), rule_grads + step * ALL);
    if (step != 0 && step != 3)
        set_grad(yk_parameters_at(p, 1), rule_grads + step * ALL + RULE_A);
}

static void steps(yk_optimizer *o, yk_parameters *p, int from, int to)
{
    for (int step = from; step < to; step++) {
        set_grads(o, p, step);
        expect_ok(yk_optimizer_step(o));
    }
}

static void read_values(yk_parameters *p, double values[ALL])
{
    expect_ok(yk_tensor_read(yk_cast(yk_detach(yk_parameters_at(p, 0)), YK_F64), values, RULE_A * sizeof(double)));
    expect_ok(
        yk_tensor_read(yk_cast(yk_detach(yk_parameters_at(p, 1)), YK_F64), values + RULE_A, RULE_B * sizeof(double)));
}

/* True if all values of two lists of parameters have the same bits. */
static bool same(yk_parameters *p, yk_parameters *q)
{
    double a[ALL], b[ALL];
    read_values(p, a);
    read_values(q, b);
    return memcmp(a, b, sizeof(a)) == 0;
}

static void follow_all(bool columns, bool on_device, yk_dtype dtype, yk_device device_b, double tolerance)
{
    for (int k = 0; k < TRACKS; k++) {
        yk_scope scope = yk_scope_begin();
        yk_parameters *p = parameters(columns, dtype, device_b);
        yk_optimizer *o = make(rule_tracks[k].name, p, false);
        expect_ok(o == NULL);
        if (on_device)
            yk__optimizer_keep_steps_on_device(o);
        for (int step = 0; step < RULE_STEPS; step++) {
            double values[ALL];
            steps(o, p, step, step + 1);
            read_values(p, values);
            for (int i = 0; i < ALL; i++) {
                double expected = rule_tracks[k].values[step * ALL + i];
                if (!(fabs(values[i] - expected) <= tolerance))
                    fail_msg("%s: step %d, element %d is %.17g, PyTorch has %.17g", rule_tracks[k].name, step, i,
                             values[i], expected);
            }
        }
        assert_int_equal(yk_optimizer_state_step(o, yk_parameters_at(p, 0)), RULE_STEPS);
        assert_int_equal(yk_optimizer_state_step(o, yk_parameters_at(p, 1)), RULE_STEPS - 2);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

static void test_pytorch(void **state)
{
    (void)state;
    follow_all(false, false, YK_F64, test_device(0), 2e-14);
    follow_all(false, false, YK_F32, test_device(0), 2e-5);
    follow_all(true, false, YK_F64, test_device(1), 2e-14);
    follow_all(false, true, YK_F64, test_device(0), 2e-14);
    follow_all(true, true, YK_F32, test_device(1), 2e-5);
}

/* The master weights take the steps of an f32 optimizer that gets the same gradients, and the parameters are theirs,
 * rounded. */
static void test_master_weights(void **state)
{
    (void)state;
    for (int k = 0; k < TRACKS; k++) {
        yk_scope scope = yk_scope_begin();
        yk_parameters *half = parameters(false, YK_BF16, test_device(0)), *wide = yk_parameters_create();
        for (int i = 0; i < 2; i++) {
            yk_tensor *x = yk_cast(yk_detach(yk_parameters_at(half, i)), YK_F32);
            expect_ok(yk_set_requires_grad(x, true));
            expect_ok(yk_parameters_add(wide, i ? "b" : "a", x));
        }
        yk_optimizer *o = make(rule_tracks[k].name, half, true), *plain = make(rule_tracks[k].name, wide, false);
        for (int step = 0; step < RULE_STEPS; step++) {
            set_grads(o, half, step);
            for (int i = 0; i < 2; i++) {
                yk_tensor *grad = yk_grad(yk_parameters_at(half, i));
                expect_ok(yk_set_grad(yk_parameters_at(wide, i), grad ? yk_cast(grad, YK_F32) : NULL));
            }
            expect_ok(yk_optimizer_step(o));
            expect_ok(yk_optimizer_step(plain));
        }
        for (int i = 0; i < 2; i++) {
            yk_tensor *x = yk_parameters_at(half, i), *y = yk_detach(yk_parameters_at(wide, i));
            assert_true(yk_item(yk_all(yk_eq(yk_optimizer_state(o, x, "master_weight"), y))) == 1);
            assert_true(yk_item(yk_all(yk_eq(yk_detach(x), yk_cast(y, YK_BF16)))) == 1);
        }
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* Half of a run, its state, as a list of tensors or in PyTorch's form, and the other half have the bits of the whole.
 */
static void test_resume(void **state)
{
    (void)state;
    for (int k = 0; k < 2 * TRACKS; k++) {
        yk_scope scope = yk_scope_begin();
        const char *name = rule_tracks[k / 2].name;
        yk_parameters *p = parameters(false, YK_F64, test_device(0)), *q = parameters(false, YK_F64, test_device(0));
        yk_optimizer *whole = make(name, p, false);
        /* Another one of its kind: the options are in the state. */
        char other[20];
        snprintf(other, sizeof(other), "%.*s", (int)strcspn(name, "_"), name);
        yk_optimizer *rest = make(strncmp(name, "rmsprop", 7) == 0 ? name : other, q, false);
        steps(whole, p, 0, 4);
        for (int i = 0; i < 2; i++)
            expect_ok(yk_copy_(yk_detach(yk_parameters_at(q, i)), yk_detach(yk_parameters_at(p, i))) == NULL);
        if (k & 1)
            expect_ok(yk_optimizer_load_value(rest, yk_value_from_optimizer(whole)));
        else
            expect_ok(yk_optimizer_load_state_dict(rest, yk_optimizer_state_dict(whole)));
        steps(whole, p, 4, RULE_STEPS);
        steps(rest, q, 4, RULE_STEPS);
        if (!same(p, q))
            fail_msg("%s does not go on to the bit", name);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* The scaler's step: gradients times the scale give the same steps, and one that is not finite is left out. */
static void test_scaler(void **state)
{
    (void)state;
    for (int k = 0; k < TRACKS; k++) {
        yk_scope scope = yk_scope_begin();
        yk_parameters *p = parameters(false, YK_F64, test_device(0)), *q = parameters(false, YK_F64, test_device(0));
        yk_optimizer *plain = make(rule_tracks[k].name, p, false), *scaled = make(rule_tracks[k].name, q, false);
        yk_grad_scaler *s = yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 1024));
        yk_tensor *found = yk_to(yk_ones(YK_SCALAR, YK_OPTIONS(yk_tensor_options, .dtype = YK_I32)), test_device(0));
        for (int step = 0; step < RULE_STEPS; step++) {
            double times = yk_grad_scaler_get_state(s).scale;
            bool skipped = false;
            steps(plain, p, step, step + 1);
            set_grads(scaled, q, step);
            expect_ok(yk_optimizer_step_unless(scaled, found)); /* nothing */
            for (int i = 0; i < 2; i++) {
                yk_tensor *grad = yk_grad(yk_parameters_at(q, i));
                if (grad)
                    expect_ok(yk_set_grad(yk_parameters_at(q, i), yk_mul_scalar(grad, times)));
            }
            expect_ok(yk_grad_scaler_step(s, scaled, &skipped));
            expect_ok(yk_grad_scaler_update(s));
            assert_false(skipped);
        }
        set_grad(yk_parameters_at(q, 0), (double[RULE_A]){INFINITY});
        bool skipped = false;
        expect_ok(yk_grad_scaler_step(s, scaled, &skipped));
        assert_true(skipped);
        assert_int_equal(yk_optimizer_state_step(scaled, yk_parameters_at(q, 0)), RULE_STEPS);
        if (!same(p, q))
            fail_msg("%s: scaled steps differ", rule_tracks[k].name);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* The state has PyTorch's names, and there is no other. */
static void test_state_names(void **state)
{
    (void)state;
    static const struct {
        const char *track, *names[3];
    } kinds[] = {{"rmsprop", {"square_avg"}},
                 {"rmsprop_momentum", {"square_avg", "momentum_buffer"}},
                 {"rmsprop_centered", {"square_avg", "grad_avg"}},
                 {"rmsprop_all", {"square_avg", "momentum_buffer", "grad_avg"}},
                 {"adagrad", {"sum"}},
                 {"adadelta", {"square_avg", "acc_delta"}},
                 {"adamax", {"exp_avg", "exp_inf"}},
                 {"nadam", {"exp_avg", "exp_avg_sq"}},
                 {"radam", {"exp_avg", "exp_avg_sq"}}};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        yk_scope scope = yk_scope_begin();
        yk_parameters *p = parameters(false, YK_F64, test_device(0));
        yk_optimizer *o = make(kinds[k].track, p, false);
        steps(o, p, 0, 1);
        yk_state_dict *dict = yk_optimizer_state_dict(o);
        int count = 0, entries = 0;
        for (; count < 3 && kinds[k].names[count]; count++)
            assert_non_null(yk_optimizer_state(o, yk_parameters_at(p, 0), kinds[k].names[count]));
        for (int64_t i = 0; i < yk_state_dict_count(dict); i++)
            entries += strncmp(yk_state_dict_name(dict, i), "state.a.", 8) == 0;
        assert_int_equal(entries, count + 1); /* and the step */
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* The value at a path of PyTorch's state. */
static const yk_value *in_state(const yk_value *state, int64_t parameter, const char *name)
{
    return yk_value_get(yk_value_get_int(yk_value_get(state, "state"), parameter), name);
}

/* NAdam's mu_product, which is no state here: written as PyTorch has it, and refused where it is not that of the
 * options. Adagrad's state before the first step is none. */
static void test_torch_form(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(false, YK_F64, test_device(0));
    yk_optimizer *o = yk_nadam(p, YK_OPTIONS(yk_nadam_options, .beta1 = 0.5, .momentum_decay = 1));
    steps(o, p, 0, 3);
    yk_value *value = yk_value_from_optimizer(o);
    double product = 1;
    for (int t = 1; t <= 3; t++)
        product *= 0.5 * (1 - 0.5 * pow(0.96, t));
    expect_near(yk_item(yk_value_as_tensor(in_state(value, 0, "mu_product"))), product, 1e-6, 0);
    expect_ok(yk_optimizer_load_value(o, value));
    yk_optimizer *other = yk_nadam(p, YK_OPTIONS(yk_nadam_options, .beta1 = 0.5, .momentum_decay = 1));
    yk_value *own = yk_value_get_int(yk_value_get(value, "state"), 1);
    expect_ok(yk_value_set(own, "mu_product", yk_value_tensor(yk_scalar(0.75, NULL))));
    assert_int_equal(yk_optimizer_load_value(other, value), YK_ERR_UNSUPPORTED);
    expect_error(YK_ERR_UNSUPPORTED, "optimizer state: mu_product of b is 0.75, but 0.070096 by the group's betas");
    assert_int_equal(yk_optimizer_state_step(other, yk_parameters_at(p, 0)), 0);

    o = yk_adagrad(p, NULL);
    steps(o, p, 0, 1);
    value = yk_value_from_optimizer(o);
    yk_value *fresh = yk_value_dict();
    expect_ok(yk_value_set(fresh, "step", yk_value_tensor(yk_scalar(0, NULL))));
    expect_ok(yk_value_set(fresh, "sum", yk_value_tensor(yk_zeros(YK_SHAPE(4), NULL))));
    expect_ok(yk_value_set_int(yk_value_get(value, "state"), 1, fresh));
    expect_ok(yk_optimizer_load_value(o, value));
    assert_int_equal(yk_optimizer_state_step(o, yk_parameters_at(p, 0)), 1);
    assert_int_equal(yk_optimizer_state_step(o, yk_parameters_at(p, 1)), 0);
    /* One kind's state is not another's. */
    assert_int_equal(yk_optimizer_load_value(yk_adadelta(p, NULL), value), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "adadelta: the state has no 'param_groups.0.rho'");
    yk_scope_end(scope);
}

static void test_refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = parameters(false, YK_F64, test_device(0));
#define REFUSED(kind, text, ...)                                                                                       \
    do {                                                                                                               \
        assert_null(yk_##kind(p, YK_OPTIONS(yk_##kind##_options, __VA_ARGS__)));                                       \
        expect_error(YK_ERR_ARGUMENT, text);                                                                           \
    } while (0)
    REFUSED(rmsprop, "rmsprop: lr is -1, expected at least 0", .lr = -1);
    REFUSED(rmsprop, "rmsprop: alpha is -0.5", .alpha = -0.5);
    REFUSED(rmsprop, "rmsprop: momentum is -1", .momentum = -1);
    REFUSED(adagrad, "adagrad: lr_decay is -1", .lr_decay = -1);
    REFUSED(adagrad, "adagrad: initial_accumulator_value is -1", .initial_accumulator_value = -1);
    REFUSED(adadelta, "adadelta: rho is 1.5", .rho = 1.5);
    REFUSED(adadelta, "adadelta: eps is nan", .eps = NAN);
    REFUSED(adamax, "adamax: beta1 is 1, expected a number in [0, 1)", .beta1 = 1);
    REFUSED(nadam, "nadam: beta2 is -1", .beta2 = -1);
    REFUSED(nadam, "nadam: momentum_decay is -1", .momentum_decay = -1);
    REFUSED(radam, "radam: weight_decay is -1", .weight_decay = -1);
#undef REFUSED
    assert_null(yk_rmsprop((yk_parameters *)NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "rmsprop: the list of parameters is NULL");
    yk_optimizer *o = yk_radam(p, NULL);
    assert_int_equal(yk_nadam_add_group(o, p, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "nadam_add_group: the optimizer is radam, so it is radam_add_group");
    assert_int_equal(yk_radam_add_group(o, p, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "radam: parameter a is in the optimizer twice");
    assert_null(yk_adamax(parameters(false, YK_BF16, test_device(0)), NULL));
    expect_error(YK_ERR_DTYPE, "adamax: parameter a is bfloat16");
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),  cmocka_unit_test(test_master_weights), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_scaler),   cmocka_unit_test(test_state_names),    cmocka_unit_test(test_torch_form),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("descent", tests, NULL, NULL);
}
