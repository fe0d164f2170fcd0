/*
 * plateau_test.c - rates and state of yk_reduce_lr_on_plateau against PyTorch's; state that goes on; refusals.
 */
#include "tests/support/expect.h"

#include <stdlib.h>

#include <yoke/checkpoint.h>

#include "tests/golden/schedules_golden.h"

static yk_optimizer *sgd(yk_module *net)
{
    return yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.4));
}

static yk_plateau *make(int kind, yk_optimizer *o)
{
    switch (kind) {
    case 0: return yk_reduce_lr_on_plateau(o, YK_OPTIONS(yk_plateau_options, .patience = 2));
    case 1:
        return yk_reduce_lr_on_plateau(o,
                                       YK_OPTIONS(yk_plateau_options, .max = true, .factor = 0.5, .patience = 3,
                                                  .threshold = 0.01, .absolute = true, .cooldown = 2, .min_lr = 0.03));
    case 2:
        return yk_reduce_lr_on_plateau(o, YK_OPTIONS(yk_plateau_options, .factor = 0.3, .patience = 1,
                                                     .threshold = 0.05, .absolute = true, .cooldown = 1, .eps = 0.002));
    default:
        return yk_reduce_lr_on_plateau(
            o, YK_OPTIONS(yk_plateau_options, .max = true, .factor = 0.6, .patience = 0, .threshold = 0.05));
    }
}

static const double *const tracks[] = {track_plateau, track_plateau_max, track_plateau_abs, track_plateau_rel};

static void steps(yk_plateau *p, const yk_optimizer *o, int kind, int from, int to)
{
    for (int t = from; t < to; t++) {
        const double *expected = tracks[kind] + 4 * t;
        yk_plateau_step(p, plateau_metrics[t]);
        yk_plateau_state s = yk_plateau_get_state(p);
        expect_near(yk_optimizer_lr(o, 0), expected[0], 1e-14, 0);
        assert_true(s.best == expected[1] && s.num_bad_epochs == expected[2] && s.cooldown_counter == expected[3]);
        assert_true(s.last_epoch == t + 1);
    }
}

static void test_pytorch(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        yk_scope scope = yk_scope_begin();
        yk_optimizer *o = sgd(yk_linear_create(2, 1, NULL));
        steps(make(kind, o), o, kind, 0, SCHEDULE_STEPS);
        yk_scope_end(scope);
    }
    assert_null(yk_last_error());
}

/* The state is in a checkpoint as values, also the infinite `best` of a run that has not begun. */
static void test_checkpoint(void **state)
{
    (void)state;
    char folder[] = "/tmp/yoke_plateau_XXXXXX", path[64], text[100];
    assert_non_null(mkdtemp(folder));
    for (int variant = 0; variant < 8; variant++) {
        int kind = variant % 4, begun = variant / 4 * 11;
        yk_scope scope = yk_scope_begin();
        snprintf(path, sizeof(path), "%s/%d", folder, variant);
        for (int half = 0; half < 2; half++) {
            yk_plateau_state s = {0};
            const yk_checkpoint_value values[] = {{"best", &s.best},
                                                  {"num_bad_epochs", &s.num_bad_epochs},
                                                  {"cooldown_counter", &s.cooldown_counter},
                                                  {"last_epoch", &s.last_epoch},
                                                  {NULL, NULL}};
            yk_module *net = yk_linear_create(2, 1, NULL);
            yk_checkpoint_state run = {.model = net, .optimizer = sgd(net), .values = values};
            yk_plateau *p = make(kind, run.optimizer);
            if (half) {
                expect_ok(yk_checkpoint_load(path, &run, NULL, NULL));
                expect_ok(yk_plateau_set_state(p, &s));
                steps(p, run.optimizer, kind, begun, SCHEDULE_STEPS);
            } else {
                steps(p, run.optimizer, kind, 0, begun);
                s = yk_plateau_get_state(p);
                expect_ok(yk_checkpoint_save(path, &run));
            }
        }
        yk_scope_end(scope);
    }
    snprintf(text, sizeof(text), "rm -r '%s'", folder);
    assert_int_equal(system(text), 0);
    assert_null(yk_last_error());
}

static void test_refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = sgd(yk_linear_create(2, 1, NULL));
    assert_null(yk_reduce_lr_on_plateau(NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "reduce_lr_on_plateau: the optimizer is NULL");
    assert_null(yk_reduce_lr_on_plateau(o, YK_OPTIONS(yk_plateau_options, .factor = 1)));
    expect_error(YK_ERR_ARGUMENT, "reduce_lr_on_plateau: factor is 1");
    assert_null(yk_reduce_lr_on_plateau(o, YK_OPTIONS(yk_plateau_options, .patience = -1)));
    expect_error(YK_ERR_ARGUMENT, "patience is -1");
    yk_plateau_step(NULL, 1);
    expect_error(YK_ERR_ARGUMENT, "plateau_step: the schedule is NULL");
    yk_plateau *p = yk_reduce_lr_on_plateau(o, NULL);
    assert_int_equal(yk_plateau_set_state(p, &(yk_plateau_state){.num_bad_epochs = 0.5}), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "plateau_set_state: num_bad_epochs is 0.5, expected a number of epochs");
    assert_int_equal(yk_plateau_set_state(p, &(yk_plateau_state){.best = NAN}), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "plateau_set_state: best is nan");
    assert_int_equal(yk_plateau_set_state(NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "plateau_set_state: the schedule is NULL");
    assert_true(isinf(yk_plateau_get_state(p).best));
    yk_plateau *kept = yk_plateau_retain(p);
    yk_scope_end(scope);
    yk_plateau_step(kept, 1);
    assert_true(yk_plateau_get_state(kept).best == 1);
    yk_plateau_release(kept);
    assert_null(yk_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),
        cmocka_unit_test(test_checkpoint),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("plateau", tests, NULL, NULL);
}
