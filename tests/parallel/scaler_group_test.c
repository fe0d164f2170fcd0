/*
 * scaler_group_test.c - a step of a gradient scaler over a group: left out on all ranks where one has found an
 * infinity, and failed on all where it fails on one.
 */
#include "tests/comm/ranks.h"

#include <yoke/parallel.h>

typedef struct setup {
    yk_tensor *x;
    yk_optimizer *sgd;
    yk_grad_scaler *scaler;
} setup;

static setup make(void)
{
    setup s = {.x = yk_ones(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .requires_grad = true))};
    yk_parameters *params = yk_parameters_create();
    if (!params || yk_parameters_add(params, "x", s.x))
        return s;
    s.sgd = yk_sgd(params, YK_OPTIONS(yk_sgd_options, .lr = 1));
    s.scaler = yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 8, .growth_interval = 2));
    return s;
}

/* Rank r's gradient is not finite in steps r and r + 4; with a group nobody takes those steps. */
static void together(rank_context *c)
{
    bool group = *(const bool *)c->arg;
    setup s = make();
    CHECK(s.scaler && s.sgd, "%s", yk_last_error()->message);
    if (group)
        CHECK_OK(yk_grad_scaler_set_group(s.scaler, c->group));
    double x = 1, scale = 8;
    int64_t tracker = 0;
    for (int step = 0; step < 10; step++) {
        yk_scope scope = yk_scope_begin();
        bool mine = step % 4 == c->rank, anyone = step % 4 < c->size, skip = group ? anyone : mine, skipped;
        const float values[2] = {1, mine ? (float)INFINITY : 2};
        yk_tensor *grad =
            yk_mul_scalar(yk_from_data(values, YK_SHAPE(2), NULL), yk_grad_scaler_get_state(s.scaler).scale);
        CHECK_OK(yk_set_grad(s.x, grad));
        if (step % 2)
            CHECK_OK(yk_grad_scaler_unscale(s.scaler, s.sgd));
        CHECK_OK(yk_grad_scaler_step(s.scaler, s.sgd, &skipped));
        CHECK_OK(yk_grad_scaler_update(s.scaler));
        CHECK(skipped == skip, "step %d: skipped %d, expected %d", step, skipped, skip);
        x -= skip ? 0 : 1;
        scale = skip ? scale / 2 : ++tracker == 2 ? scale * 2 : scale;
        tracker = skip || tracker == 2 ? 0 : tracker;
        CHECK(yk_get(s.x, (int64_t[]){0}) == x, "step %d: x is %g, expected %g", step, yk_get(s.x, (int64_t[]){0}), x);
        CHECK(yk_grad_scaler_get_state(s.scaler).scale == scale, "step %d: the scale is %g, expected %g", step,
              yk_grad_scaler_get_state(s.scaler).scale, scale);
        yk_scope_end(scope);
    }
    /* Alone again. */
    if (group) {
        CHECK_OK(yk_grad_scaler_set_group(s.scaler, NULL));
        if (c->rank == 0) {
            CHECK_OK(yk_set_grad(s.x, yk_ones(YK_SHAPE(2), NULL)));
            CHECK_OK(yk_grad_scaler_step(s.scaler, s.sgd, NULL));
        }
    }
}

static void test_together(void **state)
{
    (void)state;
    static const bool group[] = {true, false};
    for (int g = 0; g < 2; g++)
        for (int size = 1; size <= 3; size++)
            for (int kind = 0; kind < 2; kind++)
                run_ranks(kind ? THREADS : PROCESSES, size, together, &group[g], patience(20), true);
}

/* Rank 1 has no gradients; no rank takes the step, and all know why. */
static void failing(rank_context *c)
{
    setup s = make();
    CHECK(s.scaler && s.sgd, "%s", yk_last_error()->message);
    CHECK_OK(yk_grad_scaler_set_group(s.scaler, c->group));
    yk_scope scope = yk_scope_begin();
    if (c->rank != 1)
        CHECK_OK(yk_set_grad(s.x, yk_ones(YK_SHAPE(2), NULL)));
    yk_status status = yk_grad_scaler_step(s.scaler, s.sgd, NULL);
    CHECK(status == YK_ERR_STATE, "status %d", (int)status);
    const yk_error *error = yk_last_error();
    CHECK(error && strstr(error->message, "rank 1") &&
              strstr(error->message, "no parameter of the optimizer has a gradient"),
          "%s", error ? error->message : "no record");
    yk_clear_error();
    CHECK(yk_get(s.x, (int64_t[]){0}) == 1, "the step was taken");
    yk_scope_end(scope);
}

static void test_failing(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, failing, NULL, patience(20), true);
    run_ranks(PROCESSES, 3, failing, NULL, patience(20), true);
}

static void test_refused(void **state)
{
    (void)state;
    assert_int_equal(yk_grad_scaler_set_group(NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "grad_scaler_set_group: the scaler is NULL");
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_failing),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("scaler_group", tests, NULL, NULL);
}
