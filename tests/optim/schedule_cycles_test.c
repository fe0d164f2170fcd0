/*
 * schedule_cycles_test.c - rates and momenta of linear, constant and polynomial schedules, restarts, cycles and
 * sequences against PyTorch's; in checkpoints, in PyTorch's form, in steps of another length; refusals.
 */
#include "tests/support/expect.h"

#include <stdlib.h>

#include <yoke/checkpoint.h>

#include "optim/schedule.h"
#include "tests/golden/schedules_golden.h"

enum { TRACKS = sizeof(schedule_tracks) / sizeof(*schedule_tracks) };

static yk_parameters *one(void)
{
    yk_parameters *p = yk_parameters_create();
    yk_tensor *x = yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    expect_ok(yk_parameters_add(p, "w", x));
    return p;
}

static yk_optimizer *sgd(void)
{
    return yk_sgd(one(), YK_OPTIONS(yk_sgd_options, .lr = 0.4, .momentum = 0.5));
}

/* The schedule that make_schedules.py has under this name; two of "chained", the other one in *second. */
static yk_schedule *make(const char *name, yk_optimizer *o, yk_schedule **second)
{
    *second = NULL;
#define IS(text) (strcmp(name, text) == 0)
    if (IS("linear"))
        return yk_linear_lr(o, 1.0 / 3, 1, 5);
    if (IS("linear_down"))
        return yk_linear_lr(o, 0.9, 0.2, 11);
    if (IS("constant"))
        return yk_constant_lr(o, 0.25, 7);
    if (IS("polynomial"))
        return yk_polynomial_lr(o, 12, 1.5);
    if (IS("restarts"))
        return yk_cosine_warm_restarts_lr(o, 7, 1, 0);
    if (IS("restarts_longer"))
        return yk_cosine_warm_restarts_lr(o, 4, 2, 0.01);
    if (IS("one_cycle"))
        return yk_one_cycle_lr(o, 0.8, 30, NULL);
    if (IS("one_cycle_three"))
        return yk_one_cycle_lr(o, 0.8, 33,
                               YK_OPTIONS(yk_one_cycle_options, .pct_start = 0.4, .three_phase = true, .div_factor = 10,
                                          .final_div_factor = 100, .base_momentum = 0.6, .max_momentum = 0.8));
    if (IS("one_cycle_linear"))
        return yk_one_cycle_lr(o, 0.5, 40, YK_OPTIONS(yk_one_cycle_options, .linear = true, .cycle_momentum = false));
    if (IS("cyclic"))
        return yk_cyclic_lr(o, 0.1, 0.7, YK_OPTIONS(yk_cyclic_options, .step_size_up = 4));
    if (IS("cyclic_2"))
        return yk_cyclic_lr(o, 0.1, 0.7,
                            YK_OPTIONS(yk_cyclic_options, .step_size_up = 3, .step_size_down = 5,
                                       .mode = YK_TRIANGULAR2, .base_momentum = 0.7, .max_momentum = 0.85));
    if (IS("cyclic_exp"))
        return yk_cyclic_lr(o, 0.1, 0.7,
                            YK_OPTIONS(yk_cyclic_options, .step_size_up = 5, .mode = YK_EXP_RANGE, .gamma = 0.95,
                                       .cycle_momentum = false));
    if (IS("swa"))
        return yk_swa_lr(o, 0.05, 10, false);
    if (IS("swa_linear"))
        return yk_swa_lr(o, 0.7, 6, true);
    if (IS("swa_at_once"))
        return yk_swa_lr(o, 0.05, 0, false);
    if (IS("sequential")) {
        yk_schedule *parts[3] = {yk_constant_lr(o, 0.5, 3), yk_exponential_lr(o, 0.8),
                                 yk_cosine_warm_restarts_lr(o, 5, 1, 0)};
        return yk_sequential_lr(o, parts, 3, (int64_t[]){6, 13});
    }
    if (IS("sequential_warmup")) {
        yk_schedule *parts[2] = {yk_linear_lr(o, 0.1, 1, 6), yk_polynomial_lr(o, 15, 2)};
        return yk_sequential_lr(o, parts, 2, (int64_t[]){6});
    }
    if (IS("chained")) {
        *second = yk_exponential_lr(o, 0.9);
        return yk_constant_lr(o, 0.5, 8);
    }
#undef IS
    fail_msg("no test makes the schedule %s", name);
    return NULL;
}

static void check(const char *name, const yk_optimizer *o, const double *expected, int t)
{
    double lr = yk_optimizer_lr(o, 0), momentum = yk_optimizer_option(o, 0, "momentum");
    if (!(fabs(lr - expected[2 * t]) <= 1e-14))
        fail_msg("%s: at %d the rate is %.17g, PyTorch has %.17g", name, t, lr, expected[2 * t]);
    if (!(fabs(momentum - expected[2 * t + 1]) <= 1e-14))
        fail_msg("%s: at %d the momentum is %.17g, PyTorch has %.17g", name, t, momentum, expected[2 * t + 1]);
}

static void test_pytorch(void **state)
{
    (void)state;
    for (int k = 0; k < TRACKS; k++) {
        yk_scope scope = yk_scope_begin();
        yk_optimizer *o = sgd();
        yk_schedule *second, *s = make(schedule_tracks[k].name, o, &second);
        expect_ok(s == NULL);
        for (int t = 0; t < SCHEDULE_STEPS; t++) {
            check(schedule_tracks[k].name, o, schedule_tracks[k].values, t);
            assert_int_equal(yk_schedule_time(s), t);
            if (t + 1 < SCHEDULE_STEPS) /* a one_cycle_lr has no more */
                yk_schedule_step(s);
            if (second)
                yk_schedule_step(second);
        }
        for (int t = SCHEDULE_STEPS - 1; t >= 0 && !second; t -= 4) { /* any time is reached at once */
            expect_ok(yk_schedule_set_time(s, t));
            check(schedule_tracks[k].name, o, schedule_tracks[k].values, t);
        }
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* A rate that the program sets goes on from there, but in cycles and restarts, as in PyTorch. */
static void test_rates_set_by_hand(void **state)
{
    (void)state;
    static const char *const names[] = {"linear_down", "constant", "polynomial", "sequential"};
    for (int k = 0; k < 4; k++) {
        yk_scope scope = yk_scope_begin();
        yk_optimizer *o = sgd(), *halved = sgd();
        yk_schedule *second, *s = make(names[k], o, &second), *half = make(names[k], halved, &second);
        expect_ok(yk_optimizer_set_lr(halved, 0, yk_optimizer_lr(o, 0) / 2));
        for (int t = 0; t < 5; t++) {
            yk_schedule_step(s);
            yk_schedule_step(half);
            expect_near(yk_optimizer_lr(halved, 0), yk_optimizer_lr(o, 0) / 2, 1e-14, 0);
        }
        yk_scope_end(scope);
    }
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = sgd();
    yk_schedule *s = yk_cosine_warm_restarts_lr(o, 4, 1, 0);
    expect_ok(yk_optimizer_set_lr(o, 0, 9));
    yk_schedule_step(s);
    expect_near(yk_optimizer_lr(o, 0), 0.4 * (1 + cos(M_PI / 4)) / 2, 1e-14, 0);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* The text of each is read again as the same form; in PyTorch's form, where it has one, a run goes on. */
static void test_forms(void **state)
{
    (void)state;
    for (int k = 0; k < TRACKS; k++) {
        yk_scope scope = yk_scope_begin();
        const char *name = schedule_tracks[k].name;
        char text[1000], again[1000];
        yk_optimizer *o = sgd(), *p = sgd();
        yk_schedule *second, *s = make(name, o, &second), *other = make(name, p, &second);
        yk_schedule_describe(s, text, sizeof(text));
        yk__schedule_form *form = yk__schedule_parse(text);
        if (!form)
            fail_msg("%s: '%s' is not read: %s", name, text, yk_last_error()->message);
        assert_true(yk__schedule_same(form, yk__schedule_form_of(s)));
        assert_string_equal(yk__schedule_print(form, again, sizeof(again)), text);
        for (int t = 0; t < 20; t += 3)
            assert_true(yk__schedule_rate(form, 0.4, t) == yk__schedule_rate(yk__schedule_form_of(s), 0.4, t));
        yk__schedule_form_free(form);

        for (int t = 0; t < 8; t++)
            yk_schedule_step(s);
        yk_value *value = yk_value_from_schedule(s);
        if (strncmp(name, "one_cycle", 9) == 0 || strncmp(name, "cyclic", 6) == 0 || strncmp(name, "swa", 3) == 0) {
            assert_null(value);
            expect_error(YK_ERR_UNSUPPORTED, "schedule state: PyTorch keeps the numbers of a");
        } else {
            expect_ok(value == NULL);
            expect_ok(yk_schedule_load_value(other, value));
            assert_int_equal(yk_schedule_time(other), 8);
            for (int t = 0; t < 12; t++) {
                assert_true(yk_optimizer_lr(o, 0) == yk_optimizer_lr(p, 0) || strcmp(name, "chained") == 0);
                yk_schedule_step(s);
                yk_schedule_step(other);
            }
        }
        yk_scope_end(scope);
    }
    static const struct {
        const char *text, *says;
    } wrong[] = {{"linear_lr(total_iters=0, start_factor=0.5, end_factor=0.25)", "numbers that no schedule has"},
                 {"cosine_warm_restarts_lr(t_0=5, t_mult=1.5, eta_min=0)", "numbers that no schedule has"},
                 {"polynomial_lr(total_iters=5, force=1)", "is not what a schedule goes on with"},
                 {"sequential_lr(milestones=[5, 5], schedules=[lambda_lr(), lambda_lr(), lambda_lr()])",
                  "milestone 5 of a sequential_lr comes after 5"},
                 {"sequential_lr(milestones=[5], schedules=[lambda_lr()])", "of 1 milestones needs 2 schedules"}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        assert_null(yk__schedule_parse(wrong[i].text));
        expect_error(YK_ERR_FORMAT, wrong[i].says);
    }
}

/* A run whose checkpoint is loaded goes on to the bit: parameters, rates and momenta. */
static void test_checkpoints(void **state)
{
    (void)state;
    static const char *const names[] = {"one_cycle", "cyclic_2", "restarts_longer", "sequential", "linear_down", "swa"};
    char folder[] = "/tmp/yoke_schedule_XXXXXX", path[64], text[4096];
    assert_non_null(mkdtemp(folder));
    for (int k = 0; k < 6; k++) {
        yk_scope scope = yk_scope_begin();
        yk_module *net[2];
        yk_checkpoint_state run[2];
        double trail[2][24];
        snprintf(path, sizeof(path), "%s/%s", folder, names[k]);
        for (int half = 0; half < 2; half++) {
            yk_manual_seed(3);
            net[half] = yk_linear_create(3, 2, NULL);
            yk_optimizer *o =
                yk_sgd(yk_module_parameters(net[half]), YK_OPTIONS(yk_sgd_options, .lr = 0.4, .momentum = 0.5));
            yk_schedule *second;
            run[half] =
                (yk_checkpoint_state){.model = net[half], .optimizer = o, .schedule = make(names[k], o, &second)};
            if (half)
                expect_ok(yk_checkpoint_load(path, &run[1], NULL, NULL));
            for (int t = half ? 8 : 0; t < 24; t++) {
                yk_optimizer_zero_grad(o);
                expect_ok(yk_backward(yk_sum(yk_square(yk_forward(net[half], yk_full(YK_SHAPE(1, 3), 0.01, NULL))))));
                expect_ok(yk_optimizer_step(o));
                yk_schedule_step(run[half].schedule);
                trail[half][t] = yk_optimizer_lr(o, 0) + yk_optimizer_option(o, 0, "momentum") +
                                 yk_item(yk_sum(yk_module_get(net[half], "weight")));
                if (!half && t == 7) {
                    expect_ok(yk_checkpoint_save(path, &run[0]));
                    yk_schedule_describe(run[0].schedule, text, sizeof(text));
                }
            }
        }
        assert_memory_equal(trail[0] + 8, trail[1] + 8, 16 * sizeof(double));
        /* Another schedule does not go on from it. */
        yk_optimizer *o = yk_sgd(yk_module_parameters(net[1]), YK_OPTIONS(yk_sgd_options, .lr = 0.4, .momentum = 0.5));
        run[1].optimizer = o;
        run[1].schedule = yk_cyclic_lr(o, 0.3, 0.4, NULL);
        assert_int_equal(yk_checkpoint_load(path, &run[1], NULL, NULL), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "cyclic_lr(step_size_up=2000");
        yk_scope_end(scope);
    }
    snprintf(text, sizeof(text), "rm -r '%s'", folder);
    assert_int_equal(system(text), 0);
    assert_null(yk_last_error());
}

/* In steps that are twice as long the rates are those of the same point. */
static void test_other_lengths(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = sgd(), *p = sgd();
    yk_schedule *pairs[][2] = {
        {yk_linear_lr(o, 0.9, 0.2, 20), yk_linear_lr(p, 0.9, 0.2, 10)},
        {yk_constant_lr(o, 0.5, 20), yk_constant_lr(p, 0.5, 10)},
        {yk_polynomial_lr(o, 20, 2), yk_polynomial_lr(p, 10, 2)},
        {yk_cosine_warm_restarts_lr(o, 8, 2, 0), yk_cosine_warm_restarts_lr(p, 4, 2, 0)},
        {yk_sequential_lr(o, (yk_schedule *[]){yk_constant_lr(o, 0.5, 4), yk_polynomial_lr(o, 40, 1)}, 2,
                          (int64_t[]){8}),
         yk_sequential_lr(p, (yk_schedule *[]){yk_constant_lr(p, 0.5, 2), yk_polynomial_lr(p, 20, 1)}, 2,
                          (int64_t[]){4})}};
    for (size_t k = 0; k < sizeof(pairs) / sizeof(*pairs); k++) {
        for (int64_t t = 0; t < 10; t++) {
            assert_int_equal(yk__schedule_carry(pairs[k][1], yk__schedule_form_of(pairs[k][0]), 2 * t), t);
            expect_near(yk__schedule_rate(yk__schedule_form_of(pairs[k][1]), 1, t),
                        yk__schedule_rate(yk__schedule_form_of(pairs[k][0]), 1, 2 * t), 1e-14, 0);
        }
    }
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* The momentum of every group moves, or beta1; what has none of them is refused. */
static void test_momentum(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = yk_adamw(one(), YK_OPTIONS(yk_adam_options, .lr = 0.4));
    expect_ok(yk_optimizer_add_group(o, one()));
    yk_schedule *s = yk_one_cycle_lr(o, 0.8, 30, NULL);
    for (int t = 0; t < 20; t++) {
        for (int g = 0; g < 2; g++) /* the track of "one_cycle" */
            expect_near(yk_optimizer_option(o, g, "beta1"), track_one_cycle[2 * t + 1], 1e-14, 0);
        yk_schedule_step(s);
    }
    o = yk_adagrad(one(), NULL);
    assert_null(yk_one_cycle_lr(o, 0.8, 30, NULL));
    expect_error(YK_ERR_ARGUMENT, "one_cycle_lr: adagrad has no momentum to move: .cycle_momentum = false");
    expect_ok(yk_one_cycle_lr(o, 0.8, 30, YK_OPTIONS(yk_one_cycle_options, .cycle_momentum = false)) == NULL);
    /* SGD without a momentum has no buffer once it has taken a step. */
    yk_parameters *p = one();
    o = yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 0.4));
    expect_ok(yk_set_grad(yk_parameters_at(p, 0), yk_ones(YK_SHAPE(1), NULL)));
    expect_ok(yk_optimizer_step(o));
    assert_null(yk_cyclic_lr(o, 0.1, 0.7, NULL));
    expect_error(YK_ERR_STATE, "momentum of sgd decides which state there is");
    yk_scope_end(scope);
}

static void test_refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = sgd(), *p = sgd();
#define REFUSED(call, text)                                                                                            \
    do {                                                                                                               \
        assert_null(call);                                                                                             \
        expect_error(YK_ERR_ARGUMENT, text);                                                                           \
    } while (0)
    REFUSED(yk_linear_lr(NULL, 0.5, 0.25, 5), "linear_lr: the optimizer is NULL");
    REFUSED(yk_linear_lr(o, 0, 1, 5), "linear_lr: start_factor is 0");
    REFUSED(yk_constant_lr(o, 0.5, 0), "constant_lr: total_iters is 0");
    REFUSED(yk_polynomial_lr(o, 5, NAN), "polynomial_lr: power is nan");
    REFUSED(yk_cosine_warm_restarts_lr(o, 5, 0, 0), "cosine_warm_restarts_lr: t_mult is 0");
    REFUSED(yk_one_cycle_lr(NULL, 1, 5, NULL), "one_cycle_lr: the optimizer is NULL");
    REFUSED(yk_one_cycle_lr(o, 1, 5, YK_OPTIONS(yk_one_cycle_options, .pct_start = 2)), "pct_start is 2");
    REFUSED(yk_cyclic_lr(o, 0.1, 1, YK_OPTIONS(yk_cyclic_options, .max_momentum = 1)), "max_momentum is 1");
    yk_schedule *parts[2] = {yk_constant_lr(o, 0.5, 3), yk_exponential_lr(p, 0.5)};
    REFUSED(yk_sequential_lr(o, parts, 2, (int64_t[]){3}), "sequential_lr: schedule 1 belongs to another optimizer");
    REFUSED(yk_sequential_lr(o, parts, 0, NULL), "sequential_lr: 0 schedules");
    REFUSED(yk_sequential_lr(o, parts, 2, NULL), "milestones at NULL");
    REFUSED(yk_sequential_lr(o, NULL, 2, (int64_t[]){3}), "2 schedules at NULL");
    parts[1] = yk_exponential_lr(o, 0.5);
    REFUSED(yk_sequential_lr(o, parts, 2, (int64_t[]){0}), "milestone 0 is 0, expected one after 0");
    parts[1] = NULL;
    REFUSED(yk_sequential_lr(o, parts, 2, (int64_t[]){3}), "sequential_lr: schedule 1 is NULL");
#undef REFUSED
    yk_schedule *s = yk_one_cycle_lr(o, 1, 2, NULL);
    yk_schedule_step(s);
    yk_schedule_step(s);
    assert_null(yk_last_error());
    yk_schedule_step(s);
    expect_error(YK_ERR_ARGUMENT, "one_cycle_lr: it has 2 steps, and this is step 3");
    assert_int_equal(yk_schedule_time(s), 2);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),     cmocka_unit_test(test_rates_set_by_hand), cmocka_unit_test(test_forms),
        cmocka_unit_test(test_checkpoints), cmocka_unit_test(test_other_lengths),     cmocka_unit_test(test_momentum),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("schedules with several numbers", tests, NULL, NULL);
}
