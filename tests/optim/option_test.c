/*
 * option_test.c - options by name: read, set, refused; groups that take over what the optimizer was made with.
 */
#include "tests/support/expect.h"

#include <yoke/optim.h>

/* A list with one new parameter of three ones. */
static yk_parameters *one(const char *name)
{
    yk_parameters *p = yk_parameters_create();
    yk_tensor *x = yk_ones(YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    expect_ok(yk_set_requires_grad(x, true));
    expect_ok(yk_parameters_add(p, name, x));
    return p;
}

static void step(yk_optimizer *o, yk_parameters *p)
{
    yk_tensor *x = yk_parameters_at(p, 0);
    expect_ok(yk_set_grad(x, yk_full(YK_SHAPE(3), 2, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64))));
    expect_ok(yk_optimizer_step(o));
}

static void test_read(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = yk_adamw(one("a"), YK_OPTIONS(yk_adam_options, .lr = 0.5, .beta2 = 0.75, .maximize = true));
    static const struct {
        const char *name;
        double value;
    } expected[] = {{"lr", 0.5},
                    {"beta1", 0.9},
                    {"beta2", 0.75},
                    {"eps", 1e-8},
                    {"weight_decay", 1e-2},
                    {"amsgrad", 0},
                    {"maximize", 1},
                    {"decoupled_weight_decay", 1}};
    for (size_t i = 0; i < sizeof(expected) / sizeof(*expected); i++)
        assert_true(yk_optimizer_option(o, 0, expected[i].name) == expected[i].value);
    o = yk_adadelta(one("a"), NULL);
    assert_true(yk_optimizer_option(o, 0, "lr") == 1 && yk_optimizer_option(o, 0, "rho") == 0.9);
    assert_null(yk_last_error());
    assert_true(isnan(yk_optimizer_option(o, 0, "roh")));
    expect_error(YK_ERR_NOT_FOUND, "optimizer_option: adadelta has no option 'roh'; did you mean 'rho'?");
    assert_true(isnan(yk_optimizer_option(o, 0, "betas")));
    expect_error(YK_ERR_NOT_FOUND, "adadelta has no option 'betas'");
    assert_true(isnan(yk_optimizer_option(o, 1, "lr")));
    expect_error(YK_ERR_ARGUMENT, "optimizer_option: there is no group 1; the optimizer has 1");
    assert_true(isnan(yk_optimizer_option(NULL, 0, "lr")));
    expect_error(YK_ERR_ARGUMENT, "optimizer_option: the optimizer is NULL");
    assert_true(isnan(yk_optimizer_option(o, 0, NULL)));
    expect_error(YK_ERR_ARGUMENT, "optimizer_option: the name is NULL");
    yk_scope_end(scope);
}

static void test_set(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_parameters *p = one("a"), *q = one("b");
    yk_optimizer *o = yk_sgd(p, YK_OPTIONS(yk_sgd_options, .lr = 0.5, .momentum = 0.5));
    expect_ok(yk_optimizer_set_option(o, 0, "weight_decay", 0.25));
    expect_ok(yk_optimizer_set_option(o, -1, "momentum", 0.75));
    expect_ok(yk_optimizer_set_option(o, 0, "lr", 0.25));
    expect_ok(yk_optimizer_set_option(o, 0, "maximize", 1));
    step(o, p);
    expect_near(yk_get(yk_parameters_at(p, 0), (int64_t[]){0}), 1 + 0.25 * 1.75, 0, 0); /* -2 + 1/4 */
    expect_ok(yk_optimizer_set_option(o, 0, "momentum", 0.5));

    /* Options that decide which state there is stay after the first step. */
    assert_int_equal(yk_optimizer_set_option(o, 0, "momentum", 0), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "momentum of sgd decides which state there is, so it cannot become 0 after the first");
    yk_optimizer *adam = yk_adam(q, YK_OPTIONS(yk_adam_options, .lr = 0.1));
    expect_ok(yk_optimizer_set_option(adam, 0, "amsgrad", 1));
    step(adam, q);
    assert_non_null(yk_optimizer_state(adam, yk_parameters_at(q, 0), "max_exp_avg_sq"));
    assert_int_equal(yk_optimizer_set_option(adam, 0, "amsgrad", 0), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "amsgrad of adam");

    /* Numbers are checked as the constructor's are, and all groups change or none. */
    assert_int_equal(yk_optimizer_set_option(adam, 0, "beta1", 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "adam: beta1 is 1");
    assert_int_equal(yk_optimizer_set_option(adam, 0, "lr", -1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "adam: lr is -1");
    assert_int_equal(yk_optimizer_set_option(adam, 0, "maximize", 0.5), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "maximize is 0.5, expected 0 or 1");
    assert_int_equal(yk_optimizer_set_option(adam, 0, "decoupled_weight_decay", 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "decoupled_weight_decay of adam stays 0");
    assert_int_equal(yk_optimizer_set_option(adam, 0, "betas", 0.5), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "adam has no option 'betas'; did you mean 'beta");
    assert_int_equal(yk_optimizer_set_option(adam, 3, "lr", 0.5), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "there is no group 3");
    assert_int_equal(yk_optimizer_set_option(NULL, 0, "lr", 0.5), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "optimizer_set_option: the optimizer is NULL");
    yk_parameters *fresh = one("c");
    expect_ok(yk_optimizer_add_group(o, fresh));
    expect_ok(yk_optimizer_set_option(o, 1, "momentum", 0)); /* that group has taken no step */
    assert_int_equal(yk_optimizer_set_option(o, -1, "momentum", 0), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "momentum of sgd");
    assert_true(yk_optimizer_option(o, 0, "momentum") == 0.5 && yk_optimizer_option(o, 1, "momentum") == 0);
    yk_scope_end(scope);
}

static void test_groups(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = yk_rmsprop(one("a"), YK_OPTIONS(yk_rmsprop_options, .lr = 0.5, .alpha = 0.75, .momentum = 0.25,
                                                      .centered = true, .weight_decay = 0.125));
    expect_ok(yk_optimizer_set_lr(o, 0, 0.0625)); /* a schedule's, say: groups take over what was given */
    expect_ok(yk_optimizer_add_group(o, one("b")));
    expect_ok(yk_rmsprop_add_group(o, one("c"), NULL));
    expect_ok(yk_rmsprop_add_group(o, one("d"), YK_OPTIONS(yk_rmsprop_options, .weight_decay = 0)));
    assert_int_equal(yk_optimizer_group_count(o), 4);
    for (int g = 1; g < 4; g++) {
        assert_true(yk_optimizer_lr(o, g) == 0.5);
        assert_true(yk_optimizer_option(o, g, "alpha") == 0.75 && yk_optimizer_option(o, g, "momentum") == 0.25);
        assert_true(yk_optimizer_option(o, g, "weight_decay") == (g == 3 ? 0 : 0.125));
        assert_true(yk_optimizer_option(o, g, "centered") == (g != 3)); /* flags are as they stand in the options */
    }
    o = yk_adamw(one("a"), YK_OPTIONS(yk_adam_options, .lr = 0.5, .weight_decay = 0.25, .beta1 = 0.5));
    expect_ok(yk_adamw_add_group(o, one("b"), YK_OPTIONS(yk_adam_options, .lr = 0.125)));
    assert_true(yk_optimizer_lr(o, 1) == 0.125 && yk_optimizer_option(o, 1, "weight_decay") == 0.25);
    assert_true(yk_optimizer_option(o, 1, "beta1") == 0.5 && yk_optimizer_option(o, 1, "beta2") == 0.999);
    assert_null(yk_last_error());
    assert_int_equal(yk_optimizer_add_group(NULL, one("c")), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "optimizer_add_group: the optimizer is NULL");
    assert_int_equal(yk_optimizer_add_group(o, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "adamw_add_group: the list is NULL");
    assert_int_equal(yk_optimizer_add_group(o, yk_optimizer_group(o, 0)), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "adamw: parameter a is in the optimizer twice");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests_name("options by name", tests, NULL, NULL);
}
