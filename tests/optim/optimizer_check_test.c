/* optimizer_check_test.c - the check of an optimizer's groups and state: what is damaged is named with its values. */
#include <yoke/ops.h>

#include "nn/module.h"
#include "optim/optimizer.h"
#include "tests/support/broken.h"

static void test_damage(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor_options leaf = *YK_OPTIONS(yk_tensor_options, .requires_grad = true);
    yk_tensor *x = yk_ones(YK_SHAPE(2, 3), &leaf), *y = yk_ones(YK_SHAPE(4), &leaf);
    yk_parameters *params = yk_parameters_create();
    expect_ok(yk_parameters_add(params, "x", x));
    expect_ok(yk_parameters_add(params, "y", y));
    yk_optimizer *o = yk_adam(params, YK_OPTIONS(yk_adam_options, .lr = 0.1));
    assert_non_null(o);
    expect_sound(yk__optimizer_check(o));
    expect_ok(yk_backward(yk_add(yk_sum(x), yk_sum(y))));
    expect_ok(yk_optimizer_step(o));
    expect_sound(yk__optimizer_check(o));
    yk__optim_group *group = &o->groups[0];
    yk__optim_state *first = &group->states[0];

    yk_tensor *mean = first->tensors[0];
    first->tensors[0] = y;
    expect_broken(yk__optimizer_check(o), "adam: parameter x has the shape (2, 3), its exp_avg (4,)");
    first->tensors[0] = NULL;
    expect_broken(yk__optimizer_check(o), "adam: parameter x has 1 steps behind it and no exp_avg");
    first->tensors[0] = mean;
    first->step = -3;
    expect_broken(yk__optimizer_check(o), "adam: parameter x has -3 steps behind it");
    first->step = 1;
    group->lr = -1;
    expect_broken(yk__optimizer_check(o), "adam: group 0 has the learning rate -1");
    group->lr = 0.1;
    group->count = 1;
    expect_broken(yk__optimizer_check(o), "adam: group 0 has 2 parameters and counts 1, with room for 2");
    group->count = 2;
    o->n_groups = 0;
    expect_broken(yk__optimizer_check(o), "adam has 0 groups");
    o->n_groups = 1;
    yk_parameters *twice = yk__parameters_new(), *kept = group->params;
    expect_ok(yk_parameters_add(twice, "x", x));
    expect_ok(yk_parameters_add(twice, "again", x));
    group->params = twice;
    expect_broken(yk__optimizer_check(o), "adam: parameter x is in the groups 2 times");
    group->params = kept;
    yk_parameters_release(twice);
    expect_sound(yk__optimizer_check(o));
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damage)};
    return cmocka_run_group_tests_name("optimizer_check", tests, NULL, NULL);
}
