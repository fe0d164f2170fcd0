/*
 * torch_state_test.c - an optimizer's and a schedule's state in PyTorch's form, there and back, in the forms of new and
 * old versions; what does not fit is an error that leaves the optimizer alone. That PyTorch takes it too is
 * tests/cli/ckpt_folder.sh's and tests/parity/handover.py's business.
 */
#include "tests/support/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <yoke/checkpoint.h>

#include "checkpoint/training/torch_state.h"

#define refused(call, code, text)                                                                                      \
    do {                                                                                                               \
        assert_int_equal((call), code);                                                                                \
        expect_error(code, text);                                                                                      \
    } while (0)

static yk_tensor *param(const float *values, int64_t count)
{
    yk_tensor *x = yk_from_data(values, 1, &count, NULL);
    expect_ok(yk_set_requires_grad(x, true));
    return x;
}

static yk_parameters *list(const char *name, yk_tensor *x, const char *other, yk_tensor *y)
{
    yk_parameters *params = yk_parameters_create();
    expect_ok(yk_parameters_add(params, name, x));
    if (y)
        expect_ok(yk_parameters_add(params, other, y));
    return params;
}

typedef struct setup {
    yk_tensor *a, *b, *c;
    yk_optimizer *o;
} setup;

/* Two groups; b never gets a gradient, so it has no state. */
static setup make(bool amsgrad)
{
    setup s = {param((float[]){1, 2}, 2), param((float[]){3}, 1), param((float[]){4, 5, 6}, 3), NULL};
    s.o = yk_adamw(list("a", s.a, "b", s.b), YK_OPTIONS(yk_adam_options, .lr = 0.5, .amsgrad = amsgrad));
    expect_ok(yk_adamw_add_group(s.o, list("c", s.c, NULL, NULL),
                                 YK_OPTIONS(yk_adam_options, .lr = 0.25, .weight_decay = 0, .amsgrad = amsgrad)));
    return s;
}

static void step(const setup *s, float g)
{
    expect_ok(yk_set_grad(s->a, yk_from_data((float[]){g, -g}, 1, (int64_t[]){2}, NULL)));
    expect_ok(yk_set_grad(s->c, yk_from_data((float[]){g, 0, 2 * g}, 1, (int64_t[]){3}, NULL)));
    expect_ok(yk_optimizer_step(s->o));
}

static float element(const yk_tensor *x, int64_t i)
{
    return (float)yk_get(x, &i);
}

static void test_form(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(true);
    step(&s, 1);
    step(&s, 2);
    const yk_value *v = yk_value_from_optimizer(s.o), *all = yk_value_get(v, "state");
    const yk_value *groups = yk_value_get(v, "param_groups"), *second = yk_value_at(groups, 1);
    assert_int_equal(yk_value_count(all), 2); /* 0 and 2: b has none */
    assert_null(yk_value_get_int(all, 1));
    const yk_value *c = yk_value_get_int(all, 2);
    yk_tensor *steps = yk_value_as_tensor(yk_value_get(c, "step"));
    assert_int_equal(yk_tensor_dtype(steps), YK_F32);
    assert_int_equal(yk_ndim(steps), 0);
    assert_true(yk_item(steps) == 2);
    assert_ptr_equal(yk_value_as_tensor(yk_value_get(c, "exp_avg")), yk_optimizer_state(s.o, s.c, "exp_avg"));
    assert_non_null(yk_value_get(c, "max_exp_avg_sq"));
    assert_int_equal(yk_value_count(groups), 2);
    assert_true(yk_value_as_real(yk_value_get(second, "lr")) == 0.25);
    assert_true(yk_value_as_real(yk_value_get(second, "weight_decay")) == 0);
    assert_true(yk_value_as_real(yk_value_at(yk_value_get(second, "betas"), 1)) == 0.999);
    assert_int_equal(yk_value_kind_of(yk_value_get(second, "betas")), YK_VALUE_TUPLE);
    assert_true(yk_value_as_bool(yk_value_get(second, "amsgrad")));
    assert_true(yk_value_as_bool(yk_value_get(second, "decoupled_weight_decay")));
    assert_int_equal(yk_value_kind_of(yk_value_get(second, "foreach")), YK_VALUE_NONE);
    assert_int_equal(yk_value_as_int(yk_value_at(yk_value_get(second, "params"), 0)), 2);
    assert_string_equal(yk_value_as_string(yk_value_at(yk_value_get(second, "param_names"), 0)), "c");
    yk_scope_end(scope);
}

/* The run that goes on from the value is the run that was not interrupted. */
static void test_goes_on(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup whole = make(false), first = make(false), second = make(false);
    for (int i = 1; i <= 4; i++)
        step(&whole, (float)i);
    step(&first, 1);
    step(&first, 2);
    bool before = yk_no_grad_begin();
    assert_non_null(yk_copy_(second.a, first.a));
    assert_non_null(yk_copy_(second.c, first.c));
    yk_no_grad_end(before);
    expect_ok(yk_optimizer_load_value(second.o, yk_value_from_optimizer(first.o)));
    assert_int_equal(yk_optimizer_state_step(second.o, second.c), 2);
    assert_int_equal(yk_optimizer_state_step(second.o, second.b), 0);
    step(&second, 3);
    step(&second, 4);
    for (int64_t i = 0; i < 2; i++)
        assert_true(element(whole.a, i) == element(second.a, i));
    for (int64_t i = 0; i < 3; i++)
        assert_true(element(whole.c, i) == element(second.c, i));
    yk_scope_end(scope);
}

static yk_value *tensor(const float *values, int64_t count)
{
    return yk_value_tensor(yk_from_data(values, 1, &count, NULL));
}

/* A state as PyTorch 1.x writes it: an integer step, no new fields, momentum_buffer None before the first step. */
static void test_old_forms(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(false);
    yk_value *v = yk_value_from_optimizer(s.o), *all = yk_value_get(v, "state"), *a = yk_value_dict();
    expect_ok(yk_value_set(a, "step", yk_value_int(7)));
    expect_ok(yk_value_set(a, "exp_avg", tensor((float[]){0.5f, 0.25f}, 2)));
    expect_ok(yk_value_set(a, "exp_avg_sq", tensor((float[]){1, 2}, 2)));
    expect_ok(yk_value_set_int(all, 0, a));
    expect_ok(yk_optimizer_load_value(s.o, v));
    assert_int_equal(yk_optimizer_state_step(s.o, s.a), 7);
    assert_true(element(yk_optimizer_state(s.o, s.a, "exp_avg"), 1) == 0.25f);

    yk_tensor *x = param((float[]){1}, 1);
    yk_optimizer *sgd = yk_sgd(list("x", x, NULL, NULL), YK_OPTIONS(yk_sgd_options, .lr = 1e-3, .momentum = 0.5));
    v = yk_value_from_optimizer(sgd);
    yk_value *none = yk_value_dict();
    expect_ok(yk_value_set(none, "momentum_buffer", yk_value_none()));
    expect_ok(yk_value_set_int(yk_value_get(v, "state"), 0, none));
    expect_ok(yk_optimizer_load_value(sgd, v));
    assert_null(yk_optimizer_state(sgd, x, "momentum_buffer"));
    expect_ok(yk_value_set(none, "momentum_buffer", tensor((float[]){3}, 1)));
    expect_ok(yk_optimizer_load_value(sgd, v));
    assert_true(element(yk_optimizer_state(sgd, x, "momentum_buffer"), 0) == 3);
    yk_scope_end(scope);
}

static void test_refused(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    setup s = make(false);
    step(&s, 1);
    yk_value *v = yk_value_from_optimizer(s.o), *all = yk_value_get(v, "state");
    yk_value *groups = yk_value_get(v, "param_groups"), *first = yk_value_at(groups, 0);
    refused(yk_optimizer_load_value(s.o, yk_value_dict()), YK_ERR_FORMAT,
            "it has no dict 'state' and list 'param_groups'");
    yk_optimizer *one = yk_adamw(list("a", s.a, "b", s.b), YK_OPTIONS(yk_adam_options, .lr = 1e-3));
    refused(yk_optimizer_load_value(one, v), YK_ERR_SHAPE, "it has 2 groups of parameters, expected 1");
    yk_optimizer *sgd = yk_sgd(list("a", s.a, "b", s.b), YK_OPTIONS(yk_sgd_options, .lr = 1e-3));
    expect_ok(yk_sgd_add_group(sgd, list("c", s.c, NULL, NULL), YK_OPTIONS(yk_sgd_options, .lr = 1e-3)));
    refused(yk_optimizer_load_value(sgd, v), YK_ERR_NOT_FOUND, "it is not of this kind of optimizer");
    expect_ok(yk_value_set_int(all, 9, yk_value_dict()));
    refused(yk_optimizer_load_value(s.o, v), YK_ERR_FORMAT, "optimizer state: parameter 9 is in no group");
    v = yk_value_from_optimizer(s.o);
    expect_ok(yk_value_set(yk_value_get_int(yk_value_get(v, "state"), 0), "exp_avg", tensor((float[]){1}, 1)));
    refused(yk_optimizer_load_value(s.o, v), YK_ERR_SHAPE, "exp_avg of a has shape (1,), expected (2,)");
    v = yk_value_from_optimizer(s.o);
    expect_ok(yk_value_set(yk_value_get_int(yk_value_get(v, "state"), 0), "step", yk_value_real(1.5)));
    refused(yk_optimizer_load_value(s.o, v), YK_ERR_FORMAT, "step of a is 1.5");
    v = yk_value_from_optimizer(s.o);
    first = yk_value_at(yk_value_get(v, "param_groups"), 0);
    expect_ok(yk_value_append(yk_value_get(first, "params"), yk_value_int(3)));
    refused(yk_optimizer_load_value(s.o, v), YK_ERR_SHAPE, "group 0 has 3 parameters, expected 2");
    v = yk_value_from_optimizer(s.o);
    first = yk_value_at(yk_value_get(v, "param_groups"), 0);
    expect_ok(yk_value_set(first, "lr", yk_value_string("fast")));
    refused(yk_optimizer_load_value(s.o, v), YK_ERR_FORMAT, "optimizer state: lr is a string, expected a number");
    assert_int_equal(yk_optimizer_state_step(s.o, s.a), 1);
    yk_scope_end(scope);
}

/* At every time the value has PyTorch's names and loads into a schedule of the same constants, and into no other. */
static void check_schedule(yk_optimizer *o, yk_schedule *s, yk_schedule *same, yk_schedule *other, const char *key)
{
    for (int64_t t = 0; t < 6; t++) {
        if (t)
            yk_schedule_step(s);
        const yk_value *v = yk_value_from_schedule(s);
        assert_non_null(v);
        assert_non_null(yk_value_get(v, key));
        assert_int_equal(yk_value_as_int(yk_value_get(v, "last_epoch")), t);
        assert_true(yk_value_as_real(yk_value_at(yk_value_get(v, "_last_lr"), 0)) == yk_optimizer_lr(o, 0));
        expect_ok(yk_schedule_load_value(same, v));
        assert_int_equal(yk_schedule_time(same), t);
        refused(yk_schedule_load_value(other, v), YK_ERR_ARGUMENT, "schedule state: it is of ");
    }
}

static void test_schedules(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = yk_sgd(list("x", param((float[]){1}, 1), NULL, NULL), YK_OPTIONS(yk_sgd_options, .lr = 0.3));
    static const int64_t milestones[] = {2, 4}, others[] = {2, 5};
    check_schedule(o, yk_step_lr(o, 2, 0.1), yk_step_lr(o, 2, 0.1), yk_step_lr(o, 2, 0.2), "step_size");
    check_schedule(o, yk_multi_step_lr(o, milestones, 2, 0.3), yk_multi_step_lr(o, milestones, 2, 0.3),
                   yk_multi_step_lr(o, others, 2, 0.3), "milestones");
    check_schedule(o, yk_cosine_lr(o, 10, 1e-5), yk_cosine_lr(o, 10, 1e-5), yk_cosine_lr(o, 10, 0), "T_max");
    check_schedule(o, yk_exponential_lr(o, 0.9), yk_exponential_lr(o, 0.9), yk_exponential_lr(o, 1.0 / 3), "gamma");
    check_schedule(o, yk_linear_warmup_lr(o, 3, 0.5, NULL), yk_linear_warmup_lr(o, 3, 0.5, NULL),
                   yk_linear_warmup_lr(o, 4, 0.5, NULL), "start_factor");
    check_schedule(o, yk_linear_warmup_lr(o, 3, 0.5, yk_step_lr(o, 2, 0.1)),
                   yk_linear_warmup_lr(o, 3, 0.5, yk_step_lr(o, 2, 0.1)), yk_linear_warmup_lr(o, 3, 0.5, NULL),
                   "_schedulers");
    int64_t many[1500];
    for (int i = 0; i < 1500; i++)
        many[i] = 10 * i;
    yk_schedule *often = yk_multi_step_lr(o, many, 1500, 0.3);
    yk_value *long_one = yk_value_from_schedule(often);
    assert_int_equal(yk_value_count(yk_value_get(long_one, "milestones")), 1500);
    expect_ok(yk_schedule_load_value(often, long_one));
    yk_value *unknown = yk_value_dict();
    yk_schedule *step_lr = yk_step_lr(o, 2, 0.1);
    refused(yk_schedule_load_value(step_lr, unknown), YK_ERR_FORMAT, "last_epoch is a none, expected an integer");
    expect_ok(yk_value_set(unknown, "last_epoch", yk_value_int(1)));
    expect_ok(yk_value_set(unknown, "patience", yk_value_int(10)));
    refused(yk_schedule_load_value(step_lr, unknown), YK_ERR_UNSUPPORTED,
            "schedule state: 'patience' is a constant of none of StepLR");
    yk_value *cyclic = yk_value_dict(); /* CyclicLR's has more than ExponentialLR's */
    expect_ok(yk_value_set(cyclic, "last_epoch", yk_value_int(1)));
    expect_ok(yk_value_set(cyclic, "gamma", yk_value_real(0.9)));
    expect_ok(yk_schedule_load_value(yk_exponential_lr(o, 0.9), cyclic));
    expect_ok(yk_value_set(cyclic, "max_lrs", yk_value_list()));
    refused(yk_schedule_load_value(yk_exponential_lr(o, 0.9), cyclic), YK_ERR_UNSUPPORTED, "'max_lrs' is a constant");
    yk_value *empty = yk_value_dict();
    expect_ok(yk_value_set(empty, "last_epoch", yk_value_int(1)));
    refused(yk_schedule_load_value(step_lr, empty), YK_ERR_UNSUPPORTED, "its constants are none of StepLR");
    yk_scope_end(scope);
}

/* A scaler in a training checkpoint: both have one, or none; a disabled one takes nothing. */
static void test_scaler_saved(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    char folder[] = "/tmp/yoke-scaler-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/saved", folder);
    yk_module *model = yk_linear_create(2, 2, NULL);
    yk_grad_scaler *scaler = yk_grad_scaler_create(NULL), *other = yk_grad_scaler_create(NULL);
    yk_grad_scaler_state set = {0x1p-3, 3, 0.25, 77, 5};
    expect_ok(yk_grad_scaler_set_state(scaler, &set));
    yk_checkpoint_state run = {.model = model, .scaler = scaler, .step = 3};
    expect_ok(yk_checkpoint_save(path, &run));
    yk_checkpoint_state next = {.model = model, .scaler = other};
    expect_ok(yk_checkpoint_load(path, &next, NULL, NULL));
    yk_grad_scaler_state got = yk_grad_scaler_get_state(other);
    assert_true(got.scale == 0x1p-3 && got.growth_factor == 3 && got.backoff_factor == 0.25);
    assert_true(got.growth_interval == 77 && got.growth_tracker == 5 && next.step == 3);
    next.scaler = NULL;
    refused(yk_checkpoint_load(path, &next, NULL, NULL), YK_ERR_ARGUMENT, "was saved with a scaler, this run has none");
    next.scaler = yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .enabled = false));
    expect_ok(yk_checkpoint_load(path, &next, NULL, NULL));
    run.scaler = next.scaler;
    expect_ok(yk_checkpoint_save(path, &run));
    next.scaler = other;
    refused(yk_checkpoint_load(path, &next, NULL, NULL), YK_ERR_ARGUMENT, "was saved without a scaler");
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
    yk_scope_end(scope);
}

/* Descriptions that no schedule has, as a made-up state.json may hold them: errors, in bounded time and memory. */
static void test_bad_descriptions(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    assert_null(yk__schedule_parse("multi_step_lr(milestones=[3, x], gamma=1)"));
    expect_error(YK_ERR_FORMAT, "schedule: 'x], gamma=1)' is no milestone");
    assert_null(yk__schedule_parse("linear_warmup_lr(steps=-1, start_factor=1)"));
    expect_error(YK_ERR_FORMAT, "schedule: a warm-up of -1 steps");
    static char deep[4000000];
    static const char level[] = "linear_warmup_lr(steps=1, start_factor=1, after=";
    for (size_t at = 0; at + sizeof(level) < sizeof(deep); at += sizeof(level) - 1)
        memcpy(deep + at, level, sizeof(level));
    assert_null(yk__schedule_parse(deep));
    expect_error(YK_ERR_FORMAT, "has more than 65536 characters");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_form),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_old_forms),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_scaler_saved),
        cmocka_unit_test(test_bad_descriptions),
    };
    return cmocka_run_group_tests_name("torch_state", tests, NULL, NULL);
}
