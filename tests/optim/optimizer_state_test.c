/*
 * optimizer_state_test.c - an optimizer's state out and in: names and numbers, a run that goes on to the bit, refusals
 * that change nothing; and what schedules and the random generator say of themselves.
 */
#include "tests/support/expect.h"

#include <yoke/optim.h>

#include "optim/optimizer.h"
#include "tensor/tensor.h"

static int scope_begin(void **state)
{
    static yk_scope scope;
    scope = yk_scope_begin();
    *state = &scope;
    return 0;
}

static int scope_end(void **state)
{
    yk_scope_end(*(yk_scope *)*state);
    bool failed = yk_last_error() != NULL;
    yk_clear_error();
    return failed;
}

static yk_module *make_net(void)
{
    yk_manual_seed(5);
    return yk_mlp(
        YK_OPTIONS(yk_mlp_options, .in_features = 6, .hidden = (int64_t[]){5}, .hidden_count = 1, .num_classes = 3));
}

static yk_optimizer *make(const char *name, yk_module *m, double lr)
{
    yk_parameters *p = yk_module_parameters(m);
    if (strcmp(name, "sgd") == 0)
        return yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = lr, .momentum = 0.9, .weight_decay = 0.01));
    if (strcmp(name, "plain") == 0)
        return yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = lr));
    if (strcmp(name, "adam") == 0)
        return yk_adam(p, YK_OPTIONS(yk_adam_options, .lr = lr, .amsgrad = true));
    return yk_adamw(p, YK_OPTIONS(yk_adam_options, .lr = lr, .beta1 = 0.8));
}

/* Steps [from, to) with inputs that depend on the step alone. */
static void train(yk_module *m, yk_optimizer *o, int from, int to)
{
    for (int step = from; step < to; step++) {
        yk_scope scope = yk_scope_begin();
        yk_manual_seed(100 + (uint64_t)step);
        yk_tensor *x = yk_randn(2, (int64_t[]){4, 6}, NULL);
        yk_tensor *loss = yk_mean(yk_mul(yk_forward(m, x), yk_forward(m, x)));
        yk_optimizer_zero_grad(o);
        expect_ok(yk_backward(loss));
        expect_ok(yk_optimizer_step(o));
        yk_scope_end(scope);
    }
}

static void expect_same(const yk_state_dict *a, const yk_state_dict *b)
{
    assert_true(yk_state_dict_count(a) > 0);
    assert_int_equal(yk_state_dict_count(a), yk_state_dict_count(b));
    for (int64_t i = 0; i < yk_state_dict_count(a); i++) {
        yk_tensor *x = yk_state_dict_at(a, i), *y = yk_state_dict_at(b, i);
        assert_string_equal(yk_state_dict_name(a, i), yk_state_dict_name(b, i));
        assert_true(yk_same_shape(x, y) && x->dtype == y->dtype);
        size_t bytes = (size_t)yk_numel(x) * yk_dtype_size((yk_dtype)x->dtype);
        void *p = malloc(bytes), *q = malloc(bytes);
        expect_ok(yk_tensor_read(x, p, bytes));
        expect_ok(yk_tensor_read(y, q, bytes));
        if (memcmp(p, q, bytes) != 0)
            fail_msg("%s differs", yk_state_dict_name(a, i));
        free(p);
        free(q);
    }
}

/* A copy that shares no memory. */
static yk_state_dict *copy_of(const yk_state_dict *dict)
{
    yk_state_dict *copy = yk_state_dict_create();
    for (int64_t i = 0; i < yk_state_dict_count(dict); i++) {
        yk_tensor *x = yk__raw_clone(yk_state_dict_at(dict, i));
        expect_ok(yk_state_dict_add(copy, yk_state_dict_name(dict, i), x));
        yk_tensor_release(x);
    }
    return copy;
}

/* The dict without one name, or with another tensor or name for it. */
static yk_state_dict *changed(const yk_state_dict *dict, const char *name, const char *new_name, yk_tensor *x)
{
    yk_state_dict *copy = yk_state_dict_create();
    assert_true(yk_state_dict_find(dict, name) >= 0);
    for (int64_t i = 0; i < yk_state_dict_count(dict); i++) {
        bool it = strcmp(yk_state_dict_name(dict, i), name) == 0;
        if (!it)
            expect_ok(yk_state_dict_add(copy, yk_state_dict_name(dict, i), yk_state_dict_at(dict, i)));
        else if (new_name)
            expect_ok(yk_state_dict_add(copy, new_name, x ? x : yk_state_dict_at(dict, i)));
    }
    return copy;
}

static void names_and_numbers(void **state)
{
    (void)state;
    yk_module *m = make_net();
    yk_optimizer *o = make("sgd", m, 0.1);
    yk_state_dict *fresh = yk_optimizer_state_dict(o);
    assert_int_equal(yk_state_dict_find(fresh, "state.fc1.weight.step"), -1);
    assert_int_equal(yk_state_dict_find(fresh, "param_groups.0.initial_lr"), -1);
    train(m, o, 0, 2);
    yk_state_dict *dict = yk_optimizer_state_dict(o);
    assert_int_equal(yk_item_i64(yk_state_dict_get(dict, "state.fc1.weight.step")), 2);
    yk_tensor *weight = yk_module_get(m, "fc2.bias");
    yk_tensor *buffer = yk_state_dict_get(dict, "state.fc2.bias.momentum_buffer");
    assert_ptr_equal(buffer, yk_optimizer_state(o, weight, "momentum_buffer"));
    expect_near(yk_item(yk_state_dict_get(dict, "param_groups.0.lr")), 0.1, 0, 0);
    expect_near(yk_item(yk_state_dict_get(dict, "param_groups.0.momentum")), 0.9, 0, 0);
    expect_near(yk_item(yk_state_dict_get(dict, "param_groups.0.weight_decay")), 0.01, 0, 0);
    assert_int_equal(yk_tensor_dtype(yk_state_dict_get(dict, "param_groups.0.nesterov")), YK_BOOL);
    assert_int_equal(yk_item_i64(yk_state_dict_get(dict, "param_groups.0.params")), 4);
    assert_int_equal(yk_state_dict_count(dict), 4 * 2 + 7);

    yk_optimizer *adamw = make("adamw", m, 0.1);
    assert_non_null(yk_step_lr(adamw, 10, 0.1));
    train(m, adamw, 0, 1);
    dict = yk_optimizer_state_dict(adamw);
    double betas[2];
    expect_ok(yk_tensor_read(yk_state_dict_get(dict, "param_groups.0.betas"), betas, sizeof(betas)));
    expect_near(betas[0], 0.8, 0, 0);
    expect_near(betas[1], 0.999, 0, 0);
    expect_near(yk_item(yk_state_dict_get(dict, "param_groups.0.initial_lr")), 0.1, 0, 0);
    assert_true(yk_state_dict_find(dict, "state.fc1.weight.exp_avg_sq") >= 0);
    assert_int_equal(yk_state_dict_find(dict, "state.fc1.weight.max_exp_avg_sq"), -1);
    assert_null(yk_optimizer_state_dict(NULL));
    expect_error(YK_ERR_ARGUMENT, "optimizer_state_dict: the optimizer is NULL");
}

/* Six steps are three, a new optimizer of other numbers with the loaded state, and three more. */
static void goes_on(void **state)
{
    (void)state;
    static const char *const kinds[] = {"sgd", "plain", "adam", "adamw"};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
        yk_module *whole = make_net(), *half = make_net(), *rest = make_net();
        yk_optimizer *o = make(kinds[k], whole, 0.05);
        train(whole, o, 0, 6);
        yk_optimizer *first = make(kinds[k], half, 0.05);
        train(half, first, 0, 3);
        yk_state_dict *saved = copy_of(yk_optimizer_state_dict(first));
        expect_ok(yk_module_load_state_dict(rest, yk_module_state_dict(half), NULL, NULL));
        yk_optimizer *second = make(kinds[k], rest, 0.7); /* the state's 0.05 takes its place */
        train(rest, second, 0, 1);                        /* state that is replaced */
        expect_ok(yk_module_load_state_dict(rest, yk_module_state_dict(half), NULL, NULL));
        expect_ok(yk_optimizer_load_state_dict(second, saved));
        expect_same(yk_optimizer_state_dict(second), saved);
        train(half, first, 3, 6); /* shares nothing with the other */
        train(rest, second, 3, 6);
        expect_same(yk_module_state_dict(rest), yk_module_state_dict(whole));
        expect_same(yk_module_state_dict(half), yk_module_state_dict(whole));
        expect_same(yk_optimizer_state_dict(second), yk_optimizer_state_dict(o));
        expect_ok(yk_optimizer_load_state_dict(second, yk_optimizer_state_dict(make(kinds[k], whole, 0.3))));
        assert_int_equal(yk_optimizer_state_step(second, yk_module_get(rest, "fc1.weight")), 0);
        expect_near(yk_optimizer_lr(second, 0), 0.3, 0, 0);
    }
}

/* Names with "module.", and SGD state as PyTorch keeps it, without steps and in another dtype. */
static void other_spellings(void **state)
{
    (void)state;
    yk_module *m = make_net();
    yk_optimizer *o = make("sgd", m, 0.1);
    train(m, o, 0, 2);
    yk_state_dict *saved = copy_of(yk_optimizer_state_dict(o)), *prefixed = yk_state_dict_create();
    for (int64_t i = 0; i < yk_state_dict_count(saved); i++) {
        const char *name = yk_state_dict_name(saved, i);
        char text[100];
        bool is_state = strncmp(name, "state.", 6) == 0;
        size_t length = strlen(name);
        if (is_state && length > 5 && strcmp(name + length - 5, ".step") == 0)
            continue;
        snprintf(text, sizeof(text), is_state ? "state.module.%s" : "%s", name + (is_state ? 6 : 0));
        yk_tensor *x = yk_state_dict_at(saved, i);
        expect_ok(yk_state_dict_add(prefixed, text, is_state ? yk_cast(x, YK_F64) : x));
    }
    train(m, o, 2, 4);
    expect_ok(yk_optimizer_load_state_dict(o, prefixed));
    yk_tensor *weight = yk_module_get(m, "fc1.weight");
    assert_int_equal(yk_optimizer_state_step(o, weight), 1);
    assert_int_equal(yk_tensor_dtype(yk_optimizer_state(o, weight, "momentum_buffer")), YK_F32);
    yk_state_dict *now = yk_state_dict_create(), *before = yk_state_dict_create();
    expect_ok(yk_state_dict_add(now, "x", yk_optimizer_state(o, weight, "momentum_buffer")));
    expect_ok(yk_state_dict_add(before, "x", yk_state_dict_get(saved, "state.fc1.weight.momentum_buffer")));
    expect_same(now, before);
}

static void expect_refused(yk_optimizer *o, const yk_state_dict *bad, yk_status code, const char *text)
{
    yk_state_dict *before = copy_of(yk_optimizer_state_dict(o));
    assert_int_equal(yk_optimizer_load_state_dict(o, bad), code);
    expect_error(code, text);
    expect_same(yk_optimizer_state_dict(o), before);
}

static void refusals(void **state)
{
    (void)state;
    yk_module *m = make_net();
    yk_optimizer *sgd = make("sgd", m, 0.1), *adam = make("adam", m, 0.1), *adamw = make("adamw", m, 0.1);
    train(m, sgd, 0, 2);
    train(m, adam, 0, 1);
    train(m, adamw, 0, 1);
    const yk_state_dict *s = yk_optimizer_state_dict(sgd), *a = yk_optimizer_state_dict(adam);
    expect_refused(sgd, a, YK_ERR_NOT_FOUND, "sgd: the state has no 'param_groups.0.momentum'");
    expect_refused(adam, s, YK_ERR_NOT_FOUND, "adam: the state has no 'param_groups.0.betas'");
    expect_refused(adamw, a, YK_ERR_ARGUMENT, "adamw: the state has param_groups.0.decoupled_weight_decay false");
    expect_refused(sgd, changed(s, "param_groups.0.lr", NULL, NULL), YK_ERR_SHAPE,
                   "sgd: the optimizer has 1 groups of parameters, but the state has 0");
    expect_refused(sgd, changed(s, "param_groups.0.params", "param_groups.0.params", yk_scalar(3, NULL)), YK_ERR_SHAPE,
                   "sgd: group 0 has 4 parameters, but 3 in the state");
    expect_refused(sgd, changed(s, "state.fc2.bias.momentum_buffer", NULL, NULL), YK_ERR_NOT_FOUND,
                   "sgd: the state of fc2.bias has no momentum_buffer");
    expect_refused(adam, changed(a, "state.fc2.bias.step", NULL, NULL), YK_ERR_NOT_FOUND,
                   "adam: the state of fc2.bias has no step");
    expect_refused(sgd, changed(s, "state.fc2.bias.step", "state.fc2.bias.step", yk_scalar(-1, NULL)), YK_ERR_ARGUMENT,
                   "sgd: step of fc2.bias is -1");
    expect_refused(sgd,
                   changed(s, "state.fc2.bias.momentum_buffer", "state.fc2.bias.momentum_buffer",
                           yk_zeros(1, (int64_t[]){2}, NULL)),
                   YK_ERR_SHAPE, "sgd: momentum_buffer of fc2.bias has shape (2,), expected (3,)");
    yk_state_dict *more = copy_of(s);
    expect_ok(yk_state_dict_add(more, "state.fc9.weight.step", yk_scalar(1, NULL)));
    expect_refused(sgd, more, YK_ERR_NOT_FOUND, "sgd: 'state.fc9.weight.step' is of no parameter of this optimizer");
    assert_int_equal(yk_optimizer_load_state_dict(NULL, s), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "the optimizer is NULL");
}

static void schedules_describe_themselves(void **state)
{
    (void)state;
    yk_optimizer *o = make("sgd", make_net(), 0.1);
    char text[200];
    assert_string_equal(yk_schedule_describe(yk_step_lr(o, 30, 0.1), text, sizeof(text)),
                        "step_lr(step_size=30, gamma=0.1)");
    assert_string_equal(yk_schedule_describe(yk_multi_step_lr(o, (int64_t[]){3, 8}, 2, 0.5), text, sizeof(text)),
                        "multi_step_lr(milestones=[3, 8], gamma=0.5)");
    assert_string_equal(yk_schedule_describe(yk_exponential_lr(o, 1.0 / 3), text, sizeof(text)),
                        "exponential_lr(gamma=0.3333333333333333)");
    assert_string_equal(
        yk_schedule_describe(yk_linear_warmup_lr(o, 5, 0.2, yk_cosine_lr(o, 100, 0.001)), text, sizeof(text)),
        "linear_warmup_lr(steps=5, start_factor=0.2, after=cosine_lr(t_max=100, eta_min=0.001))");
    /* The text reads back as the same form. A form of other lengths is alike; one of another constant is not. */
    yk_schedule *all[] = {yk_step_lr(o, 30, 0.1), yk_multi_step_lr(o, (int64_t[]){3, 8, 8}, 3, 0.5),
                          yk_multi_step_lr(o, NULL, 0, 0.5), yk_exponential_lr(o, 1.0 / 3),
                          yk_linear_warmup_lr(o, 5, 0.2, yk_linear_warmup_lr(o, 2, 0, yk_cosine_lr(o, 100, 1e-300)))};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        const yk__schedule_form *form = yk__schedule_form_of(all[i]);
        yk__schedule_form *read = yk__schedule_parse(yk_schedule_describe(all[i], text, sizeof(text)));
        assert_non_null(read);
        assert_true(yk__schedule_same(read, form));
        read->period++;
        assert_true(yk__schedule_alike(read, form));
        assert_false(yk__schedule_same(read, form));
        read->constant += 0.25;
        assert_false(yk__schedule_alike(read, form));
        yk__schedule_form_free(read);
    }
    assert_null(yk__schedule_parse("step_lr(step_size=30, gamma=0.1) and more"));
    expect_error(YK_ERR_FORMAT, "' and more' comes after its end");
    assert_null(yk__schedule_parse("step_lr(step_size=30"));
    expect_error(YK_ERR_FORMAT, "schedule: '' is not what a schedule goes on with");
    assert_null(yk__schedule_parse("wave_lr(gamma=1)"));
    expect_error(YK_ERR_UNSUPPORTED, "schedule 'wave_lr(gamma=1)' is none of those that are known here");
    char little[12];
    assert_string_equal(yk_schedule_describe(yk_cosine_lr(o, 100, 0), little, sizeof(little)), "cosine_lr(t");
    assert_string_equal(yk_schedule_describe(NULL, text, sizeof(text)), "");
}

static void generator_goes_on(void **state)
{
    (void)state;
    yk_manual_seed(9);
    yk_rand(1, (int64_t[]){3}, NULL);
    yk_random_state place = yk_random_get_state();
    assert_int_equal(place.seed, 9);
    assert_int_equal(place.calls, 1);
    double second = yk_item(yk_sum(yk_rand(1, (int64_t[]){3}, NULL)));
    yk_manual_seed(1);
    yk_random_set_state(place);
    expect_near(yk_item(yk_sum(yk_rand(1, (int64_t[]){3}, NULL))), second, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_and_numbers, scope_begin, scope_end),
        cmocka_unit_test_setup_teardown(goes_on, scope_begin, scope_end),
        cmocka_unit_test_setup_teardown(other_spellings, scope_begin, scope_end),
        cmocka_unit_test_setup_teardown(refusals, scope_begin, scope_end),
        cmocka_unit_test_setup_teardown(schedules_describe_themselves, scope_begin, scope_end),
        cmocka_unit_test_setup_teardown(generator_goes_on, scope_begin, scope_end),
    };
    return cmocka_run_group_tests_name("optimizer_state", tests, NULL, NULL);
}
