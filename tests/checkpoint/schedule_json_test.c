/*
 * schedule_json_test.c - a schedule in state.json: typed fields, to the bit there and back; the text of 0.1 and 0.2.
 */
#include "tests/support/expect.h"

#include <yoke/yoke.h>

#include <jansson.h>

#include "checkpoint/training/training.h"
#include "optim/optimizer.h"

/* The JSON that is written for a form, which the caller frees. */
static char *written(const yk__schedule_form *form, int64_t time)
{
    json_t *json = yk__schedule_json(form, time);
    assert_non_null(json);
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    return text;
}

static yk__schedule_form *form_of_json(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    yk__schedule_form *form = yk__schedule_from_json("run", json);
    json_decref(json);
    return form;
}

/* Every kind with every number that it has, also those that JSON has no number for: the JSON, and the same as the text
 * of 0.2, are read as the form that was written. */
static void every_kind(void **state)
{
    (void)state;
    static const double numbers[] = {1.0 / 3, 1e-300, -0.0, 0.1, NAN, INFINITY, -INFINITY, 5e-324, 1e300};
    static int64_t milestones[] = {2, 9007199254740993};
    for (int k = 0; k < YK__SCHEDULE_KINDS; k++) {
        yk__schedule_form after = {.kind = YK__EXPONENTIAL_LR, .constant = 0.3}, *parts[] = {&after, &after, &after};
        yk__schedule_form form = {.kind = (yk__schedule_kind)k};
        const yk__schedule_names *names = yk__schedule_names_of(form.kind);
        form.period = names->length ? 9007199254740993 : 0;
        form.constant = names->constant ? 0.1 + 0.2 : 0;
        for (int i = 0; i < YK__SCHEDULE_NUMBERS && names->numbers[i]; i++)
            form.numbers[i] = numbers[i];
        if (yk__schedule_has_milestones(form.kind)) {
            form.milestones = milestones;
            form.n_milestones = 2;
        }
        if (k == YK__SEQUENTIAL_LR) {
            form.parts = parts;
            form.n_parts = 3;
        }
        form.after = k == YK__LINEAR_WARMUP_LR ? &after : NULL;
        if (k == YK__WARM_RESTARTS_LR)
            form.numbers[YK__RESTARTS_MULT] = 3;
        if (k == YK__CYCLIC_LR)
            form.numbers[YK__CYCLIC_STEP_SIZE_DOWN] = 7;
        if (k == YK__CYCLIC_LR || k == YK__ONE_CYCLE_LR)
            form.numbers[YK__CYCLE_MOMENTUM] = 1;
        if (k == YK__ONE_CYCLE_LR) {
            form.numbers[YK__ONE_CYCLE_LINEAR] = 0;
            form.numbers[YK__ONE_CYCLE_THREE_PHASE] = 1;
        }
        if (k == YK__SWA_LR)
            form.numbers[YK__SWA_LINEAR] = 1;
        char old[2000], *text = written(&form, 11);
        yk__schedule_form *read = form_of_json(text);
        if (!read)
            fail_msg("%s: %s", text, yk_last_error()->message);
        assert_true(yk__schedule_same(&form, read));
        char *again = written(read, 11);
        assert_string_equal(text, again);
        yk__schedule_form_free(read);

        json_t *json = json_pack("{s:s, s:i}", "kind", yk__schedule_print(&form, old, sizeof(old)), "time", 11);
        read = yk__schedule_from_json("run", json);
        assert_non_null(read);
        assert_true(yk__schedule_same(&form, read));
        yk__schedule_form_free(read);
        json_decref(json);
        free(again);
        free(text);
    }
    assert_null(yk_last_error());
}

/* The fields that a reader of state.json finds. */
static void fields(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_optimizer *o = yk_sgd(yk_module_parameters(yk_linear_create(2, 2, NULL)),
                             YK_OPTIONS(yk_sgd_options, .lr = 0.5, .momentum = 0.5));
    yk_schedule *s = yk_linear_warmup_lr(o, 5, 0.25, yk_multi_step_lr(o, (int64_t[]){3, 8}, 2, 0.5));
    char *text = written(yk__schedule_form_of(s), 4);
    assert_string_equal(text, "{\"kind\":\"linear_warmup_lr\",\"steps\":5,\"start_factor\":0.25,"
                              "\"after\":{\"kind\":\"multi_step_lr\",\"milestones\":[3,8],\"gamma\":0.5},\"time\":4}");
    free(text);
    s = yk_one_cycle_lr(o, 2, 10, NULL);
    text = written(yk__schedule_form_of(s), 0);
    assert_string_equal(text, "{\"kind\":\"one_cycle_lr\",\"total_steps\":10,\"max_lr\":2.0,\"cycle_momentum\":true,"
                              "\"base_momentum\":0.84999999999999998,\"max_momentum\":0.94999999999999996,"
                              "\"pct_start\":0.29999999999999999,\"linear\":false,\"three_phase\":false,"
                              "\"div_factor\":25.0,\"final_div_factor\":10000.0,\"time\":0}");
    free(text);
    yk_scope_end(scope);
}

static void nonsense(void **state)
{
    (void)state;
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{}", "run/state.json: schedule.kind is missing, expected text"},
        {"{\"kind\": \"step_lr\", \"step_size\": \"3\"}", "schedule.step_size is \"3\", expected an integer"},
        {"{\"kind\": \"step_lr\", \"step_size\": 3, \"gamma\": \"0.1x\"}",
         "schedule.gamma is \"0.1x\", expected a number"},
        {"{\"kind\": \"multi_step_lr\", \"milestones\": [3, 4.5], \"gamma\": 1}",
         "schedule.milestones is [3,4.5], expected a list of integers"},
        {"{\"kind\": \"multi_step_lr\", \"gamma\": 1}", "schedule.milestones is missing, expected a list of integers"},
        {"{\"kind\": \"sequential_lr\", \"milestones\": [3], \"schedules\": [{\"kind\": \"lambda_lr\"}]}",
         "schedule.schedules is [{\"kind\":\"lambda_lr\"}], expected a list of one more than there are milestones"},
        {"{\"kind\": \"sequential_lr\", \"milestones\": [3], \"schedules\": [{\"kind\": \"lambda_lr\"}, 4]}",
         "schedule.schedules.1.kind is missing, expected text"},
        {"{\"kind\": \"sequential_lr\", \"milestones\": [-3], \"schedules\": [{\"kind\": \"lambda_lr\"}, {\"kind\": "
         "\"lambda_lr\"}]}",
         "run/state.json: schedule: milestone -3 of a sequential_lr comes after 0"},
        {"{\"kind\": \"constant_lr\", \"total_iters\": 0, \"factor\": 1}",
         "run/state.json: schedule: 'constant_lr(total_iters=0, factor=1)' has numbers that no schedule has"},
        {"{\"kind\": \"cosine_warm_restarts_lr\", \"t_0\": 5, \"t_mult\": 1.5, \"eta_min\": 0}",
         "has numbers that no schedule has"},
        {"{\"kind\": \"step_lr(step_size=3\"}", "run/state.json: schedule: '' is not what a schedule goes on with"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_null(form_of_json(cases[i].json));
        expect_error(YK_ERR_FORMAT, cases[i].says);
    }
    assert_null(form_of_json("{\"kind\": \"wave_lr\", \"height\": 3}"));
    expect_error(YK_ERR_UNSUPPORTED, "run/state.json: schedule 'wave_lr' is none of those that are known here");
    /* Too many inside one another, in a file and in memory. */
    enum { DEEP = 91 };
    static char text[DEEP * 80 + 200];
    static yk__schedule_form forms[DEEP];
    for (int i = 0; i < DEEP; i++) {
        strcat(text, "{\"kind\": \"linear_warmup_lr\", \"steps\": 1, \"start_factor\": 1, \"after\": ");
        forms[i] = (yk__schedule_form){.kind = YK__LINEAR_WARMUP_LR, .after = i ? &forms[i - 1] : NULL};
    }
    strcat(text, "7");
    memset(text + strlen(text), '}', DEEP);
    assert_null(form_of_json(text));
    expect_error(YK_ERR_FORMAT, "run/state.json: more than 90 schedules inside one another");
    assert_null(yk__schedule_json(&forms[DEEP - 1], 0));
    expect_error(YK_ERR_UNSUPPORTED, "checkpoint: more than 90 schedules inside one another");
    json_t *deepest = yk__schedule_json(&forms[DEEP - 2], 0);
    assert_non_null(deepest);
    yk__schedule_form *read = yk__schedule_from_json("run", deepest);
    assert_true(read && yk__schedule_same(read, &forms[DEEP - 2]));
    yk__schedule_form_free(read);
    json_decref(deepest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind),
        cmocka_unit_test(fields),
        cmocka_unit_test(nonsense),
    };
    return cmocka_run_group_tests_name("schedule_json", tests, NULL, NULL);
}
