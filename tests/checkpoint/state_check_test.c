/*
 * state_check_test.c - nonsense in a state.json whose checksum is right: verifying and loading refuse the same, and
 * name file, key and value.
 */
#include "host/file.h"
#include "tests/checkpoint/folders.h"

#include <yoke/checkpoint.h>

#include "checkpoint/formats/sealed_json.h"
#include "checkpoint/training/training.h"
#include "checkpoint/training/training_value.h"

static const char folder[] = "root/step-00000007", file[] = "root/step-00000007/state.json";

/* A run with one of everything that has state. */
static yk_checkpoint_state make_run(void)
{
    static yk_metadata settings[] = {{"model", "linear"}, {NULL, NULL}};
    static double loss;
    static yk_checkpoint_value values[] = {{"loss", &loss}, {NULL, NULL}};
    yk_checkpoint_state run = {
        .model = yk_linear_create(2, 2, NULL), .step = 7, .settings = settings, .values = values};
    loss = NAN;
    run.optimizer = yk_adamw(yk_module_parameters(run.model), YK_OPTIONS(yk_adam_options, .lr = 0.1));
    run.schedule = yk_linear_warmup_lr(run.optimizer, 4, 0.25, yk_step_lr(run.optimizer, 30, 0.1));
    run.loader =
        yk_loader_create(yk_glyphs(YK_TEST, NULL, 0), YK_OPTIONS(yk_loader_options, .batch_size = 64, .shuffle = true));
    run.scaler = yk_grad_scaler_create(NULL);
    yk_loader_start(run.loader, 0);
    expect_ok(0);
    return run;
}

/* Replaces what stands at "a.b.0.c" of the object by the JSON `text`; "" takes it away. */
static void put_at(json_t *object, const char *path, const char *text)
{
    char name[80];
    const char *dot = strchr(path, '.');
    snprintf(name, sizeof(name), "%.*s", (int)(dot ? dot - path : (long)strlen(path)), path);
    json_t *item = *text ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    if (dot) {
        json_decref(item);
        json_t *inner =
            json_is_array(object) ? json_array_get(object, (size_t)atoi(name)) : json_object_get(object, name);
        assert_non_null(inner);
        put_at(inner, dot + 1, text);
    } else if (!*text) {
        assert_int_equal(json_object_del(object, name), 0);
    } else {
        assert_non_null(item);
        assert_int_equal(json_object_set_new(object, name, item), 0);
    }
}

/* Seals state.json again with the change, or as it was first (path NULL). */
static void edit(const char *path, const char *text)
{
    static json_t *first;
    if (!first) {
        first = yk__sealed_read(file, 1 << 20, "yoke training checkpoint", "a state");
        assert_non_null(first);
        assert_int_equal(json_object_del(first, "checksum"), 0);
    }
    json_t *json = json_deep_copy(first);
    if (path)
        put_at(json, path, text);
    yk__file_writer *writer = yk__file_create(file);
    assert_non_null(writer);
    expect_ok(yk__sealed_write(writer, json));
    expect_ok(yk__file_commit(writer));
    json_decref(json);
}

static void refused(yk_checkpoint_state *run, const char *path, const char *text, const char *why)
{
    char message[300];
    yk_checkpoint_found found;
    snprintf(message, sizeof(message), "%s: %s", file, why);
    edit(path, text);
    assert_int_equal(yk_checkpoint_verify(folder), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, message);
    assert_int_equal(yk_checkpoint_load(folder, run, NULL, NULL), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, message);
    /* Every byte is as it was written: nothing older takes its place. */
    assert_int_equal(yk_checkpoint_find_latest("root", &found), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, message);
    assert_int_equal(yk_checkpoint_load_latest("root", run, NULL, NULL), YK_ERR_FORMAT);
    expect_error(YK_ERR_FORMAT, message);
    assert_null(yk__training_to_value(folder));
    expect_error(YK_ERR_FORMAT, message);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    yk_checkpoint_state run = make_run();
    assert_int_equal(mkdir("root", 0777), 0);
    run.step = 3;
    expect_ok(yk_checkpoint_save("root/step-00000003", &run));
    run.step = 7;
    expect_ok(yk_checkpoint_save(folder, &run));
    static const char *const cases[][3] = {
        {"random.calls", "-1", "random.calls is -1, expected an integer of 0 to 4294967295"},
        {"random.calls", "4294967296", "random.calls is 4294967296, expected"},
        {"random.calls", "1.5", "random.calls is 1.5, expected"},
        {"random.seed", "\"x\"", "random.seed is \"x\", expected an integer of 64 bits"},
        {"random", "[]", "random is [], expected an object"},
        {"random", "", "random is missing, expected an object"},
        {"random_of_ranks", "{}", "random_of_ranks is {}, expected a list"},
        {"random_of_ranks", "[{\"seed\": 1, \"calls\": 0}, {\"seed\": 1, \"calls\": -4}]",
         "random_of_ranks.1.calls is -4, expected"},
        {"epoch", "-1", "epoch is -1, expected an integer of at least 0"},
        {"epoch", "\"banana\"", "epoch is \"banana\", expected"},
        {"step", "7.0", "step is 7.0, expected"},
        {"step", "", "step is missing, expected"},
        {"settings", "[1]", "settings is [1], expected an object"},
        {"settings.model", "7", "settings.model is 7, expected text"},
        {"values.loss", "0.5", "values.loss is 0.5, expected a number as text"},
        {"values.loss", "\"much\"", "values.loss is \"much\", expected a number as text"},
        {"optimizer", "\"sgd\"", "optimizer is \"sgd\", expected an object"},
        {"optimizer.kind", "3", "optimizer.kind is 3, expected text"},
        {"optimizer.param_groups", "{}", "optimizer.param_groups is {}, expected a list"},
        {"optimizer.param_groups.0.params", "[\"weight\", 2]",
         "optimizer.param_groups.0.params is [\"weight\",2], expected a list of names"},
        {"schedule.time", "-5", "schedule.time is -5, expected an integer of at least 0"},
        {"schedule.kind", "null", "schedule.kind is null, expected text"},
        {"schedule.kind", "\"step_lr(step_size=3\"", "schedule: '' is not what a schedule goes on with"},
        {"schedule.steps", "4.0", "schedule.steps is 4.0, expected an integer"},
        {"schedule.steps", "-4", "schedule: a warm-up of -4 steps"},
        {"schedule.start_factor", "\"half\"", "schedule.start_factor is \"half\", expected a number"},
        {"schedule.after", "7", "schedule.after.kind is missing, expected text"},
        {"schedule.after.gamma", "", "schedule.after.gamma is missing, expected a number"},
        {"loader.epoch", "-1", "loader.epoch is -1, expected an integer of 0 to 4294967295"},
        {"loader.start", "2001", "loader.start is 2001, expected an integer of 0 to 2000"},
        {"loader.batch", "-1", "loader.batch is -1, expected an integer of 0 to 32"},
        {"loader.batch", "33", "loader.batch is 33, expected an integer of 0 to 32"},
        {"loader.batch_size", "0", "loader.batch_size is 0, expected an integer of 1 to 4294967296"},
        {"loader.dataset_length", "-9", "loader.dataset_length is -9, expected"},
        {"loader.shuffle", "1", "loader.shuffle is 1, expected true or false"},
        {"loader.world_size", "0", "loader.world_size is 0, expected an integer of 1 to 2147483647"},
        {"loader.rank", "1", "loader.rank is 1, expected an integer of 0 to 0"},
        {"scaler.scale", "-1.0", "scaler.scale is -1.0, expected a positive number"},
        {"scaler.scale", "1e300", "scaler.scale is 1e300, expected a number that float32 has"},
        {"scaler.growth_factor", "1.0", "scaler.growth_factor is 1.0, expected a number above 1"},
        {"scaler.backoff_factor", "1.0", "scaler.backoff_factor is 1.0, expected a number between 0 and 1"},
        {"scaler.growth_interval", "0", "scaler.growth_interval is 0, expected"},
        {"scaler.growth_tracker", "-1", "scaler.growth_tracker is -1, expected"},
        {"extra", "7", "extra is 7, expected an object"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        refused(&run, cases[i][0], cases[i][1], cases[i][2]);
    /* The ends of the ranges are within them, and so is what a newer yoke may add. */
    static const char *const fine[][2] = {
        {"random.calls", "4294967295"},
        {"random.seed", "-1"},
        {"epoch", "9223372036854775807"},
        {"loader.batch", "32"},
        {"loader.start", "0"},
        {"values.loss", "\"-inf\""},
        {"novelty", "[1, {}]"},
        {"schedule.note", "1"},
        {"schedule.after.gamma", "\"0.1\""},
        /* as 0.2 has it */
        {"schedule.kind", "\"linear_warmup_lr(steps=4, start_factor=0.25, after=step_lr(step_size=30, gamma=0.1))\""}};
    for (size_t i = 0; i < sizeof(fine) / sizeof(*fine); i++) {
        edit(fine[i][0], fine[i][1]);
        expect_ok(yk_checkpoint_verify(folder));
        expect_ok(yk_checkpoint_load(folder, &run, NULL, NULL));
    }
    /* A schedule of a newer yoke is whole, and another one than this run's. */
    edit("schedule.after", "{\"kind\": \"wave_lr\"}");
    expect_ok(yk_checkpoint_verify(folder));
    assert_int_equal(yk_checkpoint_load(folder, &run, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT,
                 "was saved with the schedule linear_warmup_lr, this run has linear_warmup_lr(steps=4");
    /* The weights alone need none of it. */
    edit("random.calls", "-1");
    assert_non_null(yk_checkpoint_load_weights(folder, (yk_device){0}));
    edit(NULL, NULL);
    expect_ok(yk_checkpoint_load(folder, &run, NULL, NULL));
    assert_int_equal(run.step, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(nonsense_is_refused)};
    return cmocka_run_group_tests_name("state_check", tests, NULL, NULL);
}
