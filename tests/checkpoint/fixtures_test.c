/*
 * fixtures_test.c - checkpoints that earlier versions wrote (tests/fixtures) load, in every form, and training goes on
 * from them with the losses that the earlier version went on with.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"

#include <yoke/yoke.h>

#include "tests/fixtures/v0.1/run.h"

#include "device/backend.h"

/* The path of a file of the fixtures; valid until the next one is asked for. */
#define V0_1(name) source_path("tests/fixtures/v0.1/" name)

/* The losses that 0.1 printed (make.c): the six steps after the checkpoint, by instruction set. */
static const struct {
    const char *isa;
    double losses[LAST_STEP - SAVED_STEP];
} went_on[] = {
    {"base", {0x1.292492p+1, 0x1.3f47acp+1, 0x1.283a8ep+1, 0x1.2856d6p+1, 0x1.26e7fep+1, 0x1.255e2ap+1}},
    {"v3", {0x1.292492p+1, 0x1.3f47acp+1, 0x1.283a8ep+1, 0x1.2856d4p+1, 0x1.26e7fep+1, 0x1.255e2ap+1}},
    {"v4", {0x1.292492p+1, 0x1.3f47acp+1, 0x1.283a8ep+1, 0x1.2856d4p+1, 0x1.26e7fep+1, 0x1.255e2ap+1}},
};

static const double *expected_losses(void)
{
    for (size_t i = 0; i < sizeof(went_on) / sizeof(went_on[0]); i++) {
        if (strncmp(yk__cpu_isa(), went_on[i].isa, strlen(went_on[i].isa)) == 0)
            return went_on[i].losses;
    }
    fail_msg("no losses of 0.1 for %s", yk__cpu_isa());
    return NULL;
}

/* A loss is a mean of 64 in f32, whose last bit may change with the order of a sum. */
static void goes_on(run *r)
{
    const double *losses = expected_losses();
    assert_int_equal(r->state.step, SAVED_STEP);
    while (r->state.step < LAST_STEP) {
        expect_ok(run_step(r));
        expect_near(r->loss, losses[r->state.step - 1 - SAVED_STEP], 5e-7, 0);
    }
}

static void training_checkpoint(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    run r;
    assert_true(run_begin(&r));
    expect_ok(yk_checkpoint_verify(V0_1("whole/step-00000006")));
    yk_checkpoint_found found;
    expect_ok(yk_checkpoint_load_latest(V0_1("whole"), &r.state, NULL, &found));
    assert_int_equal(found.broken, 0);
    assert_true(r.loss > 2 && r.loss < 3); /* a value of the program's */
    goes_on(&r);
    yk_scope_end(scope);
}

static void sharded_checkpoint(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    run r;
    assert_true(run_begin(&r));
    expect_ok(yk_checkpoint_verify(V0_1("sharded/step-00000006")));
    expect_ok(yk_checkpoint_load(V0_1("sharded/step-00000006"), &r.state, NULL, NULL));
    goes_on(&r);
    yk_scope_end(scope);
}

/* A .pt has no loader and no random generator: those come from the training checkpoint. */
static void pt_file(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    run r;
    assert_true(run_begin(&r));
    expect_ok(yk_checkpoint_load(V0_1("whole/step-00000006"), &r.state, NULL, NULL));
    yk_parameters *all = yk_module_parameters(r.state.model);
    for (int64_t i = 0; i < yk_parameters_count(all); i++)
        expect_ok(yk_init_constant(yk_parameters_at(all, i), 9));
    const yk_value *value = yk_pt_load(V0_1("run.pt"), NULL);
    expect_ok(yk_module_load_state_dict(r.state.model, yk_value_weights(value, NULL), NULL, NULL));
    expect_ok(yk_optimizer_load_value(r.state.optimizer, yk_value_get(value, "optimizer")));
    expect_ok(yk_schedule_load_value(r.state.schedule, yk_value_get(value, "scheduler")));
    goes_on(&r);
    yk_scope_end(scope);
}

/* All three hold the same weights, to the bit. */
static void same_weights(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_device cpu = {0};
    yk_state_dict *whole = yk_checkpoint_load_weights(V0_1("whole/step-00000006"), cpu),
                  *plain = yk_safetensors_load(V0_1("whole/step-00000006/model.safetensors"), cpu),
                  *sharded = yk_checkpoint_load_weights(V0_1("sharded/step-00000006"), cpu),
                  *pt = yk_value_weights(yk_pt_load(V0_1("run.pt"), NULL), NULL);
    expect_ok(YK_OK);
    assert_int_equal(yk_state_dict_count(whole), 4);
    yk_state_dict *others[] = {plain, sharded, pt};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(yk_state_dict_count(others[i]), 4);
        for (int64_t k = 0; k < 4; k++) {
            yk_tensor *a = yk_state_dict_at(whole, k), *b = yk_state_dict_get(others[i], yk_state_dict_name(whole, k));
            assert_true(b && yk_same_shape(a, b));
            assert_memory_equal(yk_tensor_data(a), yk_tensor_data(b), (size_t)yk_numel(a) * sizeof(float));
        }
    }
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_checkpoint),
        cmocka_unit_test(sharded_checkpoint),
        cmocka_unit_test(pt_file),
        cmocka_unit_test(same_weights),
    };
    return cmocka_run_group_tests_name("fixtures", tests, NULL, NULL);
}
