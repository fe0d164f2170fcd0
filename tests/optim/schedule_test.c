/*
 * schedule_test.c - learning rates against PyTorch's, and how schedules, groups and time go together.
 */
#include "tests/support/expect.h"

#include <yoke/optim.h>

#include "optim/optimizer.h"
#include "tests/support/golden.h"

static yk_optimizer *optimizer(void)
{
    yk_parameters *p = yk_parameters_create(), *q = yk_parameters_create();
    expect_ok(yk_parameters_add(p, "w", yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .requires_grad = true))));
    expect_ok(yk_parameters_add(q, "v", yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .requires_grad = true))));
    yk_optimizer *o = yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 0.4));
    expect_ok(yk_sgd_add_group(o, q, YK_OPTIONS(yk_sgd_options, .lr = 0.1)));
    return o;
}

static yk_schedule *make(const char *name, yk_optimizer *o)
{
    if (strcmp(name, "step") == 0)
        return yk_step_lr(o, 5, 0.3);
    if (strcmp(name, "multi_step") == 0)
        return yk_multi_step_lr(o, (int64_t[]){3, 7, 12}, 3, 0.1);
    if (strcmp(name, "cosine") == 0)
        return yk_cosine_lr(o, 10, 0.01);
    if (strcmp(name, "exponential") == 0)
        return yk_exponential_lr(o, 0.9);
    if (strcmp(name, "warmup") == 0)
        return yk_linear_warmup_lr(o, 6, 1.0 / 3, NULL);
    if (strcmp(name, "warmup_cosine") == 0)
        return yk_linear_warmup_lr(o, 5, 0.1, yk_cosine_lr(o, 15, 0));
    if (strcmp(name, "warmup_step") == 0)
        return yk_linear_warmup_lr(o, 4, 0.25, yk_step_lr(o, 6, 0.5));
    fail_msg("no test makes the schedule %s", name);
    return NULL;
}

static void test_golden(void **unused)
{
    (void)unused;
    size_t count, times;
    const char *const *names = golden_rows("optim", "schedules", &count);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        char section[60];
        snprintf(section, sizeof(section), "rates of %s", names[i]);
        const double *rates = golden_numbers("optim", section, &times);
        assert_true(times > 9);
        yk_scope scope = yk_scope_begin();
        yk_optimizer *o = optimizer();
        yk_schedule *s = make(names[i], o);
        expect_ok(s == NULL);
        for (int t = 0; t < (int)times; t++) {
            double lr = yk_optimizer_lr(o, 0);
            if (!(fabs(lr - rates[t]) <= 1e-14))
                fail_msg("%s: at %d the rate is %.17g, PyTorch has %.17g", names[i], t, lr, rates[t]);
            assert_int_equal(yk_schedule_time(s), t);
            yk_schedule_step(s);
        }
        /* Any time can be reached at once. */
        expect_ok(yk_schedule_set_time(s, 9));
        expect_near(yk_optimizer_lr(o, 0), rates[9], 0, 1e-14);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

static double halves(int64_t t, void *user)
{
    return *(double *)user / (double)(t + 1);
}

static void test_groups(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = optimizer();
    expect_ok(yk_optimizer_set_lr(o, 1, 0.2)); /* before the first schedule: the new base */
    yk_schedule *s = yk_step_lr(o, 1, 0.1);
    yk_schedule_step(s);
    yk_schedule_step(s);
    expect_near(yk_optimizer_lr(o, 0), 0.004, 1e-12, 0);
    expect_near(yk_optimizer_lr(o, 1), 0.002, 1e-12, 0);
    double user = 2;
    s = yk_lambda_lr(o, halves, &user); /* starts from the first rates again */
    expect_near(yk_optimizer_lr(o, 0), 0.8, 1e-12, 0);
    yk_schedule_step(s);
    expect_near(yk_optimizer_lr(o, 1), 0.2, 1e-12, 0);
    yk_schedule_step(NULL);
    expect_error(YK_ERR_ARGUMENT, "schedule_step: the schedule is NULL");
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static double refuses_from(int64_t t, void *user)
{
    if (t >= *(int64_t *)user)
        (void)yk_set_error(YK_ERR_NUMERIC, "no rate for %lld", (long long)t);
    return 1;
}

/* A function that sets an error has failed: nothing is made, and the schedule stays where it is. */
static void test_lambda_that_fails(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = optimizer();
    int64_t least = 0;
    assert_null(yk_lambda_lr(o, refuses_from, &least));
    expect_error(YK_ERR_NUMERIC, "no rate for 0");
    least = 2;
    yk_schedule *s = yk_lambda_lr(o, refuses_from, &least);
    yk_schedule_step(s);
    expect_ok(YK_OK);
    yk_schedule_step(s);
    expect_error(YK_ERR_NUMERIC, "no rate for 2");
    assert_int_equal(yk_schedule_time(s), 1);
    assert_int_equal(yk_schedule_set_time(s, 7), YK_ERR_NUMERIC);
    expect_error(YK_ERR_NUMERIC, "no rate for 7");
    assert_int_equal(yk_schedule_time(s), 1);
    expect_ok(yk_schedule_set_time(s, 0));
    yk_schedule *last = yk_step_lr(o, 1, 0.5);
    expect_ok(yk_schedule_set_time(last, INT64_MAX));
    yk_schedule_step(last);
    expect_error(YK_ERR_STATE, "schedule_step: the time is 9223372036854775807, and has no next");
    yk_scope_end(scope);
}

/* The rate of `s` at the time that it carries over is near that of `old` at time t. */
static void expect_carried(yk_schedule *s, yk_schedule *old, yk_optimizer *o, int64_t t, int64_t expected)
{
    char text[400];
    int64_t time = yk__schedule_carry(s, yk__schedule_form_of(old), t);
    yk_schedule_describe(old, text, sizeof(text));
    if (time != expected)
        fail_msg("time %lld of %s became %lld, not %lld", (long long)t, text, (long long)time, (long long)expected);
    expect_ok(yk_schedule_set_time(old, t));
    double rate = yk_optimizer_lr(o, 0);
    expect_ok(yk_schedule_set_time(s, time));
    expect_near(yk_optimizer_lr(o, 0), rate, 1e-12, 0);
}

static int64_t carried(yk_schedule *s, const char *description)
{
    yk__schedule_form *form = yk__schedule_parse(description);
    int64_t time = form ? yk__schedule_carry(s, form, 10) : -1;
    yk__schedule_form_free(form);
    yk_clear_error();
    return time;
}

static yk_status resumed(yk_schedule *s, const char *description, int64_t t)
{
    yk__schedule_form *form = yk__schedule_parse(description);
    assert_non_null(form);
    yk_status status = yk__schedule_resume(s, form, t);
    yk__schedule_form_free(form);
    return status;
}

/* Epochs of three times as many steps. */
static void test_other_lengths(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = optimizer();
    yk_schedule *s = yk_cosine_lr(o, 300, 0.01);
    expect_carried(s, yk_cosine_lr(o, 100, 0.01), o, 50, 150);
    expect_carried(s, yk_cosine_lr(o, 100, 0.01), o, 0, 0);
    expect_carried(s, yk_cosine_lr(o, 300, 0.01), o, 77, 77);
    assert_int_equal(carried(s, "cosine_lr(t_max=7, eta_min=0.01)"), 429); /* 428.57 */
    assert_int_equal(carried(s, "cosine_lr(t_max=100, eta_min=0)"), -1);
    assert_int_equal(carried(s, "cosine_lr(t_max=0, eta_min=0.01)"), -1);
    assert_int_equal(carried(s, "step_lr(step_size=100, gamma=0.01)"), -1);
    assert_int_equal(carried(s, ""), -1);
    expect_carried(yk_step_lr(o, 30, 0.5), yk_step_lr(o, 10, 0.5), o, 25, 75);
    s = yk_multi_step_lr(o, (int64_t[]){30, 60}, 2, 0.5);
    expect_carried(s, yk_multi_step_lr(o, (int64_t[]){10, 20}, 2, 0.5), o, 7, 21);
    expect_carried(s, yk_multi_step_lr(o, (int64_t[]){10, 20}, 2, 0.5), o, 15, 45);
    expect_carried(s, yk_multi_step_lr(o, (int64_t[]){10, 20}, 2, 0.5), o, 25, 65);
    assert_int_equal(carried(s, "multi_step_lr(milestones=[10], gamma=0.5)"), -1);
    assert_int_equal(carried(s, "multi_step_lr(milestones=[20, 10], gamma=0.5)"), -1);
    /* The warm-up is as long as before, in steps; what follows is where it was. */
    s = yk_linear_warmup_lr(o, 10, 0.1, yk_cosine_lr(o, 290, 0));
    expect_carried(s, yk_linear_warmup_lr(o, 10, 0.1, yk_cosine_lr(o, 145, 0)), o, 6, 6);
    expect_carried(s, yk_linear_warmup_lr(o, 10, 0.1, yk_cosine_lr(o, 145, 0)), o, 60, 110);
    expect_carried(s, yk_linear_warmup_lr(o, 5, 0.1, yk_cosine_lr(o, 145, 0)), o, 10, 20);
    assert_int_equal(carried(s, "linear_warmup_lr(steps=10, start_factor=0.1)"), -1);
    expect_carried(yk_exponential_lr(o, 0.9), yk_exponential_lr(o, 0.9), o, 12, 12);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* Steps a schedule, or two, and compares the rates of a group. */
static void expect_rates(const char *what, yk_optimizer *o, int group, yk_schedule *s, yk_schedule *other, int count,
                         const double *expected)
{
    for (int i = 0; i < count; i++) {
        yk_schedule_step(s);
        if (other)
            yk_schedule_step(other);
        double lr = yk_optimizer_lr(o, group);
        if (!(fabs(lr - expected[i]) <= 1e-15))
            fail_msg("%s: step %d: the rate is %.17g, PyTorch has %.17g", what, i, lr, expected[i]);
    }
}

#define EXPECT_RATES(what, o, group, s, other, ...)                                                                    \
    expect_rates(what, o, group, s, other, sizeof((double[]){__VA_ARGS__}) / sizeof(double), (double[]){__VA_ARGS__})

/* Changes that others made to a rate stay: numbers of PyTorch. */
static void test_rates_that_others_change(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = optimizer();
    expect_ok(yk_optimizer_set_lr(o, 0, 0.1));
    yk_schedule *s = yk_cosine_lr(o, 10, 0);
    for (int i = 0; i < 3; i++)
        yk_schedule_step(s);
    expect_ok(yk_optimizer_set_lr(o, 0, 0.01));
    s = yk_cosine_lr(o, 10, 0);
    expect_near(yk_optimizer_lr(o, 0), 0.01, 0, 0);
    EXPECT_RATES("a new cosine from a rate of the program's", o, 0, s, NULL, 0.00975528258147577, 0.0090450849718747382,
                 0.0079389262614623679);
    /* The same from a state that was loaded. */
    yk_optimizer *loaded = optimizer();
    expect_ok(yk_optimizer_load_state_dict(loaded, yk_optimizer_state_dict(o)));
    expect_ok(yk_optimizer_set_lr(loaded, 0, 0.01));
    EXPECT_RATES("a new cosine after loading", loaded, 0, yk_cosine_lr(loaded, 10, 0), NULL, 0.00975528258147577);

    o = optimizer();
    expect_ok(yk_optimizer_set_lr(o, 0, 0.1));
    s = yk_cosine_lr(o, 10, 0);
    for (int i = 0; i < 3; i++)
        yk_schedule_step(s);
    expect_ok(yk_optimizer_set_lr(o, 0, 0.5 * yk_optimizer_lr(o, 0)));
    EXPECT_RATES("a cosine whose rate was halved", o, 0, s, NULL, 0.03272542485937369, 0.025000000000000005,
                 0.01727457514062632, 0.010305368692688176, 0.0047745751406263175, 0.001223587092621162, 0,
                 0.0024471741852423235, 0.009549150281252666, 0.020610737385376433);

    o = optimizer();
    expect_ok(yk_optimizer_set_lr(o, 0, 0.1));
    yk_schedule *a = yk_exponential_lr(o, 0.9), *b = yk_multi_step_lr(o, (int64_t[]){3}, 1, 0.1);
    EXPECT_RATES("two schedules", o, 0, a, b, 0.09, 0.081, 0.00729, 0.006561);

    o = optimizer();
    s = yk_linear_warmup_lr(o, 4, 0.25, yk_step_lr(o, 2, 0.1));
    yk_schedule_step(s);
    expect_ok(yk_optimizer_set_lr(o, 0, 0.05));
    EXPECT_RATES("a warm-up", o, 0, s, NULL, 0.05 * 0.625 / 0.4375, 0.05 * 0.8125 / 0.4375, 0.05 / 0.4375,
                 0.05 / 0.4375, 0.005 / 0.4375);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static yk_parameters *one_more(void)
{
    yk_parameters *p = yk_parameters_create();
    expect_ok(yk_parameters_add(p, "b", yk_ones(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .requires_grad = true))));
    return p;
}

/* A group that comes late has its own rate until the schedule changes something. */
static void test_late_group(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = optimizer();
    yk_schedule *s = yk_step_lr(o, 2, 0.1);
    for (int i = 0; i < 5; i++)
        yk_schedule_step(s);
    expect_ok(yk_sgd_add_group(o, one_more(), YK_OPTIONS(yk_sgd_options, .lr = 0.01)));
    EXPECT_RATES("a late group of step_lr", o, 2, s, NULL, 0.001, 0.001, 0.0001);
    double user = 12;
    o = optimizer();
    s = yk_lambda_lr(o, halves, &user);
    for (int i = 0; i < 2; i++)
        yk_schedule_step(s);
    expect_ok(yk_sgd_add_group(o, one_more(), YK_OPTIONS(yk_sgd_options, .lr = 0.01)));
    EXPECT_RATES("a late group of lambda_lr", o, 2, s, NULL, 0.01 * 3 / 4, 0.01 * 3 / 5);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* A milestone that is named twice counts twice, as in PyTorch's Counter. */
static void test_milestones_twice(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = optimizer();
    yk_schedule *s = yk_multi_step_lr(o, (int64_t[]){2, 2, 3}, 3, 0.5);
    EXPECT_RATES("milestones", o, 0, s, NULL, 0.4, 0.1, 0.05, 0.05);
    expect_ok(yk_schedule_set_time(s, 1));
    expect_ok(yk_optimizer_set_lr(o, 0, 0.8));
    EXPECT_RATES("milestones by the rate that is there", o, 0, s, NULL, 0.2, 0.1, 0.1);
    expect_carried(yk_multi_step_lr(o, (int64_t[]){4, 4, 6}, 3, 0.5), s, o, 2, 4);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* After the optimizer's state was loaded a schedule goes on from the rates that it has. */
static void test_resumed_rates(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = optimizer(), *other = optimizer();
    yk_schedule *s = yk_cosine_lr(o, 10, 0), *again = yk_cosine_lr(other, 10, 0), *longer;
    for (int i = 0; i < 4; i++)
        yk_schedule_step(s);
    expect_ok(yk_optimizer_set_lr(o, 0, 0.125));
    expect_ok(yk_optimizer_load_state_dict(other, yk_optimizer_state_dict(o)));
    expect_ok(resumed(again, "cosine_lr(t_max=10, eta_min=0)", 4));
    expect_near(yk_optimizer_lr(other, 0), 0.125, 0, 0);
    yk_schedule_step(s);
    yk_schedule_step(again);
    for (int g = 0; g < 2; g++)
        expect_near(yk_optimizer_lr(other, g), yk_optimizer_lr(o, g), 0, 0);
    /* A schedule of other lengths: where the rate was the schedule's own it is again, else it is changed by the same
     * factor. */
    longer = yk_cosine_lr(other, 15, 0);
    expect_ok(yk_optimizer_load_state_dict(other, yk_optimizer_state_dict(o)));
    double before = yk_optimizer_lr(o, 0);
    expect_ok(resumed(longer, "cosine_lr(t_max=10, eta_min=0)", 5));
    assert_int_equal(yk_schedule_time(longer), 8);
    double share = (1 + cos(M_PI * 8 / 15)) / (1 + cos(M_PI * 5 / 10));
    expect_near(yk_optimizer_lr(other, 0), before * share, 1e-15, 0);
    expect_near(yk_optimizer_lr(other, 1), 0.1 * (1 + cos(M_PI * 8 / 15)) / 2, 1e-15, 0);
    assert_int_equal(resumed(longer, "step_lr(step_size=10, gamma=0.1)", 5), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "does not go on as cosine_lr");
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* A schedule keeps its optimizer. */
static void test_lifetime(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_scope inner = yk_scope_begin();
    yk_schedule *s = yk_schedule_retain(yk_cosine_lr(optimizer(), 4, 0));
    yk_scope_end(inner);
    yk_schedule_step(s);
    assert_int_equal(yk_schedule_time(s), 1);
    yk_schedule_release(s);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_refusals(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = optimizer();
    assert_null(yk_step_lr(o, 0, 0.1));
    expect_error(YK_ERR_ARGUMENT, "step_lr: step_size is 0");
    assert_null(yk_multi_step_lr(o, (int64_t[]){5, 4}, 2, 0.1));
    expect_error(YK_ERR_ARGUMENT, "multi_step_lr: milestone 1, 4, comes before 5");
    assert_null(yk_cosine_lr(o, 0, 0));
    expect_error(YK_ERR_ARGUMENT, "cosine_lr: t_max 0");
    assert_null(yk_linear_warmup_lr(o, 3, 1.5, NULL));
    expect_error(YK_ERR_ARGUMENT, "linear_warmup_lr: start_factor is 1.5");
    assert_null(yk_linear_warmup_lr(o, 3, 0, yk_cosine_lr(optimizer(), 3, 0)));
    expect_error(YK_ERR_ARGUMENT, "belongs to another optimizer");
    assert_null(yk_exponential_lr(o, -0.5));
    expect_error(YK_ERR_ARGUMENT, "exponential_lr: gamma is -0.5");
    assert_non_null(yk_exponential_lr(o, 0));
    assert_null(yk_cosine_lr(NULL, 3, 0));
    expect_error(YK_ERR_ARGUMENT, "cosine_lr: the optimizer is NULL");
    assert_int_equal(yk_schedule_set_time(yk_cosine_lr(o, 3, 0), -1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "schedule_set_time: the time is negative");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_lambda_that_fails),
        cmocka_unit_test(test_rates_that_others_change),
        cmocka_unit_test(test_late_group),
        cmocka_unit_test(test_milestones_twice),
        cmocka_unit_test(test_resumed_rates),
        cmocka_unit_test(test_other_lengths),
        cmocka_unit_test(test_lifetime),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
