/*
 * training_test.c - training checkpoints: a run that goes on to the bit, asynchronous saves of the same bytes, what a
 * checkpoint refuses, and damage in every byte that matters.
 */
#include "tests/checkpoint/folders.h"
#include "tests/support/test_device.h"

#include <yoke/checkpoint.h>

#include "tensor/tensor.h"

typedef struct run {
    yk_module *model;
    yk_optimizer *optimizer;
    yk_schedule *schedule;
    yk_loader *loader;
    double loss;
    yk_checkpoint_value values[2];
    yk_metadata settings[2];
    yk_checkpoint_state state;
} run;

/* A network with dropout, on augmented and shuffled digits made by two workers, with momentum and a schedule. */
static run *run_begin(uint64_t seed)
{
    run *r = test_calloc(1, sizeof(*r));
    yk_manual_seed(seed);
    r->model = yk_mlp(YK_OPTIONS(yk_mlp_options, .hidden = (int64_t[]){16}, .hidden_count = 1, .dropout = 0.3));
    r->optimizer = yk_sgd(yk_module_parameters(r->model), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    r->schedule = yk_linear_warmup_lr(r->optimizer, 4, 0.25, yk_cosine_lr(r->optimizer, 30, 0));
    yk_transform *augment = yk_compose(yk_random_crop(28, 3), yk_to_tensor());
    yk_dataset *digits = yk_glyphs(YK_TRAIN, augment, 0);
    r->loader = yk_loader_create(
        digits, YK_OPTIONS(yk_loader_options, .batch_size = 600, .shuffle = true, .workers = 2, .seed = 3));
    assert_non_null(r->loader);
    yk_loader_start(r->loader, 0);
    r->loss = NAN;
    r->values[0] = (yk_checkpoint_value){"loss", &r->loss};
    r->settings[0] = (yk_metadata){"model", "mlp"};
    r->state = (yk_checkpoint_state){.model = r->model,
                                     .optimizer = r->optimizer,
                                     .schedule = r->schedule,
                                     .loader = r->loader,
                                     .settings = r->settings,
                                     .values = r->values};
    return r;
}

/* Trains until `step` steps are done; epochs follow one another. */
static void run_until(run *r, int64_t step)
{
    while (r->state.step < step) {
        yk_batch batch;
        if (!yk_loader_next(r->loader, &batch)) {
            yk_loader_start(r->loader, ++r->state.epoch);
            continue;
        }
        yk_scope scope = yk_scope_begin();
        yk_tensor *loss =
            yk_cross_entropy(yk_forward(r->model, to_test_device(batch.input)), to_test_device(batch.target), NULL);
        r->loss = yk_item(loss);
        yk_optimizer_zero_grad(r->optimizer);
        expect_ok(yk_backward(loss));
        expect_ok(yk_optimizer_step(r->optimizer));
        yk_schedule_step(r->schedule);
        yk_scope_end(scope);
        r->state.step++;
    }
}

static bool same_files(const char *a, const char *b)
{
    size_t n, m;
    unsigned char *x = read_whole(a, &n), *y = read_whole(b, &m);
    bool same = n == m && memcmp(x, y, n) == 0;
    free(x);
    free(y);
    return same;
}

/* Everything that a checkpoint holds is the same in both. */
static void expect_same_state(const char *a, const char *b)
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    for (int i = 0; i < 3; i++) {
        char x[300], y[300];
        snprintf(x, sizeof(x), "%s/%s", a, names[i]);
        snprintf(y, sizeof(y), "%s/%s", b, names[i]);
        if (!same_files(x, y))
            fail_msg("%s and %s differ", x, y);
    }
}

static void goes_on_to_the_bit(void **state)
{
    (void)state;
    run *whole = run_begin(7);
    run_until(whole, 27); /* 20 steps an epoch */
    expect_ok(yk_checkpoint_save("whole", &whole->state));
    test_free(whole);

    run *half = run_begin(7);
    run_until(half, 9);
    expect_ok(yk_checkpoint_save("half/", &half->state));
    test_free(half);

    run *rest = run_begin(123); /* other weights, another generator */
    run_until(rest, 2);
    expect_ok(yk_checkpoint_load("half", &rest->state, NULL, NULL));
    assert_int_equal(rest->state.step, 9);
    assert_int_equal(rest->state.epoch, 0);
    assert_true(isfinite(rest->loss));
    expect_ok(yk_checkpoint_save("again", &rest->state));
    expect_same_state("half", "again");
    run_until(rest, 27);
    expect_ok(yk_checkpoint_save("rest", &rest->state));
    expect_same_state("whole", "rest");
    test_free(rest);
}

/* Loading from mapped files, which may be removed afterwards: no loaded tensor lies in them. */
static void mapped_files(void **state)
{
    (void)state;
    run *r = run_begin(7), *mapped = run_begin(123);
    run_until(r, 9);
    expect_ok(yk_checkpoint_save("a", &r->state));
    expect_ok(yk_checkpoint_save("short", &r->state));
    expect_ok(yk_checkpoint_load("short", &mapped->state, YK_OPTIONS(yk_checkpoint_options, .mmap = true), NULL));
    assert_int_equal(truncate("short/model.safetensors", 0), 0);
    assert_int_equal(truncate("short/optimizer.safetensors", 0), 0);
    expect_ok(yk_checkpoint_save("b", &mapped->state));
    expect_same_state("a", "b");
    run_until(mapped, 12);
    expect_ok(yk_checkpoint_save("d", &mapped->state));
    expect_ok(yk_checkpoint_load("a", &r->state, NULL, NULL)); /* the generator is the process's */
    run_until(r, 12);
    expect_ok(yk_checkpoint_save("c", &r->state));
    expect_same_state("c", "d");
    test_free(r);
    test_free(mapped);
}

/* A checkpoint at the very end of an epoch, before the next one was started. */
static void goes_on_between_epochs(void **state)
{
    (void)state;
    run *r = run_begin(7);
    run_until(r, 20);
    expect_ok(yk_checkpoint_save("a", &r->state));
    run_until(r, 22);
    expect_ok(yk_checkpoint_save("b", &r->state));
    expect_ok(yk_checkpoint_load("a", &r->state, NULL, NULL));
    yk_batch batch;
    assert_false(yk_loader_next(r->loader, &batch));
    run_until(r, 22);
    expect_ok(yk_checkpoint_save("c", &r->state));
    expect_same_state("b", "c");
    test_free(r);
}

static void asynchronous_saves_are_the_same(void **state)
{
    (void)state;
    run *r = run_begin(7);
    yk_checkpoint_manager *m =
        yk_checkpoint_manager_create("root", YK_OPTIONS(yk_checkpoint_manager_options, .keep = 2, .async = true));
    assert_non_null(m);
    for (int step = 3; step <= 9; step += 3) {
        run_until(r, step);
        char path[40];
        snprintf(path, sizeof(path), "sync-%d", step);
        expect_ok(yk_checkpoint_save(path, &r->state));
        expect_ok(yk_checkpoint_manager_save(m, &r->state));
        run_until(r, step + 2); /* while it is written */
    }
    expect_ok(yk_checkpoint_manager_wait(m));
    expect_same_state("sync-9", "root/step-00000009");
    expect_same_state("sync-6", "root/step-00000006");
    assert_int_equal(access("root/step-00000003", F_OK), -1);
    test_free(r);
}

static void weights_alone(void **state)
{
    (void)state;
    run *r = run_begin(7);
    run_until(r, 2);
    expect_ok(yk_checkpoint_save("full", &r->state));
    yk_state_dict *weights = yk_checkpoint_load_weights("full", (yk_device){0});
    assert_int_equal(yk_state_dict_count(weights), 4);
    expect_near(yk_item(yk_sum(yk_state_dict_get(weights, "fc1.weight"))),
                yk_item(yk_sum(yk_module_get(r->model, "fc1.weight"))), 0, 0);

    run *other = run_begin(8);
    yk_random_state before = yk_random_get_state();
    other->settings[0].value = "another"; /* not compared */
    expect_ok(yk_checkpoint_load("full", &other->state, YK_OPTIONS(yk_checkpoint_options, .weights_only = true), NULL));
    assert_int_equal(other->state.step, 0);
    assert_int_equal(yk_random_get_state().calls, before.calls);
    assert_null(yk_optimizer_state(other->optimizer, yk_module_get(other->model, "fc1.weight"), "momentum_buffer"));
    expect_near(yk_item(yk_sum(yk_state_dict_get(weights, "fc1.weight"))),
                yk_item(yk_sum(yk_module_get(other->model, "fc1.weight"))), 0, 0);

    /* Into a wrapper whose names begin with "module.", and a part of a larger network. */
    yk_module *wrapper = yk_sequential(yk_identity_create());
    assert_non_null(yk_module_add(wrapper, "module",
                                  yk_mlp(YK_OPTIONS(yk_mlp_options, .hidden = (int64_t[]){16}, .hidden_count = 1))));
    yk_checkpoint_state wrapped = {.model = wrapper};
    yk_checkpoint_options only = *YK_OPTIONS(yk_checkpoint_options, .weights_only = true);
    expect_ok(yk_checkpoint_load("full", &wrapped, &only, NULL));
    expect_near(yk_item(yk_sum(yk_module_get(wrapper, "module.fc1.weight"))),
                yk_item(yk_sum(yk_state_dict_get(weights, "fc1.weight"))), 0, 0);
    expect_ok(yk_checkpoint_save("wrapped", &wrapped));
    yk_checkpoint_state plain = {.model = other->model};
    expect_ok(yk_checkpoint_load("wrapped", &plain, NULL, NULL));

    assert_non_null(yk_module_add(wrapper, "head", yk_linear_create(2, 2, NULL)));
    assert_int_equal(yk_checkpoint_load("full", &wrapped, &only, NULL), YK_ERR_NOT_FOUND);
    expect_error(YK_ERR_NOT_FOUND, "missing: head.weight, head.bias");
    yk_load_report report;
    only.strict = false;
    expect_ok(yk_checkpoint_load("full", &wrapped, &only, &report));
    assert_int_equal(report.missing_count, 2);
    assert_int_equal(report.unexpected_count, 0);
    assert_string_equal(report.missing[0], "head.weight");
    yk_load_report_clear(&report);
    test_free(r);
    test_free(other);
}

/* The lengths of a schedule may be others where a step takes another number of samples, and then only. */
static void schedules_go_on_in_other_steps(void **state)
{
    (void)state;
    run *r = run_begin(7);
    run_until(r, 15);
    expect_ok(yk_checkpoint_save("relaid", &r->state));
    yk_checkpoint_state other = r->state;
    other.schedule = yk_linear_warmup_lr(r->optimizer, 4, 0.25, yk_cosine_lr(r->optimizer, 60, 0));
    assert_int_equal(yk_checkpoint_load("relaid", &other, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "after=cosine_lr(t_max=30, eta_min=0)), this run has linear_warmup_lr(steps=4, "
                                  "start_factor=0.25, after=cosine_lr(t_max=60, eta_min=0))");
    yk_dataset *digits = yk_glyphs(YK_TRAIN, yk_to_tensor(), 0);
    const yk_loader_options *const options[] = {
        YK_OPTIONS(yk_loader_options, .batch_size = 300, .shuffle = true, .seed = 3),
        YK_OPTIONS(yk_loader_options, .batch_size = 100, .shuffle = true, .seed = 3, .rank = 1, .world_size = 3)};
    for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
        other.loader = yk_loader_create(digits, options[i]);
        expect_ok(yk_checkpoint_load("relaid", &other, NULL, NULL));
        assert_int_equal(yk_schedule_time(other.schedule), 4 + 2 * (15 - 4));
        expect_near(yk_optimizer_lr(r->optimizer, 0), 0.05 * (1 + cos(M_PI * 11 / 30)), 1e-12, 0);
        assert_int_equal(yk_loader_get_state(other.loader).start, 15 * 600);
    }
    other.schedule = yk_linear_warmup_lr(r->optimizer, 4, 0.5, yk_cosine_lr(r->optimizer, 60, 0));
    assert_int_equal(yk_checkpoint_load("relaid", &other, NULL, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "this run has linear_warmup_lr(steps=4, start_factor=0.5");
    test_free(r);
}

/* The state that `bad` is loaded into is the same before and after. */
static void expect_refused(run *r, yk_checkpoint_state *bad, yk_status code, const char *text)
{
    expect_ok(yk_checkpoint_save("before", &r->state));
    yk_random_state random = yk_random_get_state();
    assert_int_equal(yk_checkpoint_load("full", bad, NULL, NULL), code);
    expect_error(code, text);
    assert_int_equal(yk_random_get_state().calls, random.calls);
    expect_ok(yk_checkpoint_save("after", &r->state));
    expect_same_state("before", "after");
}

static void runs_of_another_kind_are_refused(void **state)
{
    (void)state;
    run *saved = run_begin(7);
    run_until(saved, 3);
    expect_ok(yk_checkpoint_save("full", &saved->state));
    run *r = run_begin(8);
    run_until(r, 1);
    yk_checkpoint_state bad = r->state;
    bad.settings = (yk_metadata[]){{"model", "lenet"}, {0}};
    expect_refused(r, &bad, YK_ERR_ARGUMENT, "full: was saved with model 'mlp', which is 'lenet' now");
    bad.settings = (yk_metadata[]){{"colour", "red"}, {0}};
    expect_refused(r, &bad, YK_ERR_ARGUMENT, "full: was saved without 'colour', which is 'red' now");
    bad = r->state;
    bad.model = yk_mlp(YK_OPTIONS(yk_mlp_options, .hidden = (int64_t[]){17}, .hidden_count = 1));
    expect_refused(r, &bad, YK_ERR_SHAPE, "fc1.weight has shape (16, 784), expected (17, 784)");
    bad = r->state;
    bad.optimizer = yk_adam(yk_module_parameters(r->model), YK_OPTIONS(yk_adam_options, .lr = 1e-3));
    bad.schedule = yk_exponential_lr(bad.optimizer, 0.5);
    expect_refused(r, &bad, YK_ERR_ARGUMENT, "full: was saved with the optimizer sgd, this run has adam");
    bad.optimizer = yk_sgd(yk_module_parameters(r->model), YK_OPTIONS(yk_sgd_options, .lr = 1e-3));
    expect_ok(yk_sgd_add_group(bad.optimizer, yk_module_parameters(yk_linear_create(2, 2, NULL)),
                               YK_OPTIONS(yk_sgd_options, .lr = 1e-3, .momentum = 0.5)));
    bad.schedule = yk_linear_warmup_lr(bad.optimizer, 4, 0.25, yk_cosine_lr(bad.optimizer, 30, 0));
    expect_refused(r, &bad, YK_ERR_SHAPE, "full: sgd: the optimizer has 2 groups of parameters, but the state has 1");
    bad = r->state;
    bad.schedule = NULL;
    expect_refused(r, &bad, YK_ERR_ARGUMENT, "full: was saved with a schedule, this run has none");
    bad.schedule = yk_linear_warmup_lr(yk_sgd(yk_module_parameters(r->model), YK_OPTIONS(yk_sgd_options, .lr = 1e-3)),
                                       4, 0.5, NULL);
    expect_refused(r, &bad, YK_ERR_ARGUMENT,
                   "linear_warmup_lr(steps=4, start_factor=0.25, after=cosine_lr(t_max=30, eta_min=0)), this run has "
                   "linear_warmup_lr(steps=4, start_factor=0.5)");
    bad = r->state;
    yk_dataset *digits = yk_glyphs(YK_TRAIN, NULL, 0), *fewer = yk_glyphs(YK_TEST, NULL, 0);
    bad.loader = yk_loader_create(digits, YK_OPTIONS(yk_loader_options, .batch_size = 600, .shuffle = true, .seed = 4));
    expect_refused(r, &bad, YK_ERR_ARGUMENT, "seed is 4, but it was 3");
    bad.loader = yk_loader_create(fewer, YK_OPTIONS(yk_loader_options, .batch_size = 600, .shuffle = true, .seed = 3));
    expect_refused(r, &bad, YK_ERR_ARGUMENT, "samples in the data set is 2000, but it was 12000");
    bad = r->state;
    double x;
    bad.values = (yk_checkpoint_value[]){{"accuracy", &x}, {0}};
    expect_refused(r, &bad, YK_ERR_ARGUMENT, "full: was saved without the value 'accuracy'");
    bad = r->state;
    bad.model = NULL;
    expect_refused(r, &bad, YK_ERR_ARGUMENT, "the model is NULL");
    test_free(saved);
    test_free(r);
}

static const char *const files[] = {"full/model.safetensors", "full/optimizer.safetensors", "full/state.json"};

/* A small one: every 13th bit of everything can be tried. */
static void save_small(yk_checkpoint_state *state)
{
    yk_module *m = yk_linear_create(5, 3, NULL);
    *state = (yk_checkpoint_state){
        .model = m,
        .optimizer = yk_sgd(yk_module_parameters(m), YK_OPTIONS(yk_sgd_options, .lr = 1e-3, .momentum = 0.9)),
        .step = 3};
    expect_ok(yk_backward(yk_sum(yk_forward(m, yk_ones(2, (int64_t[]){2, 5}, NULL)))));
    expect_ok(yk_optimizer_step(state->optimizer));
    expect_ok(yk_checkpoint_save("full", state));
    expect_ok(yk_checkpoint_verify("full"));
}

static void flipped_bits_are_found(void **state)
{
    (void)state;
    yk_checkpoint_state s;
    save_small(&s);
    yk_tensor *weight = yk_module_get(s.model, "weight");
    double before = yk_item(yk_sum(weight));
    for (int f = 0; f < 3; f++) {
        size_t size;
        unsigned char *data = read_whole(files[f], &size);
        assert_true(size > 100);
        for (size_t bit = 0; bit < 8 * size; bit += 13) {
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            write_file(files[f], data, size);
            if (yk_checkpoint_verify("full") == YK_OK)
                fail_msg("%s: bit %zu of byte %zu is not found", files[f], bit % 8, bit / 8);
            assert_non_null(strstr(yk_last_error()->message, files[f]));
            yk_clear_error();
            for (int mapped = 0; mapped < 2; mapped++) {
                yk_checkpoint_options o = *YK_OPTIONS(yk_checkpoint_options, .mmap = mapped);
                assert_int_not_equal(yk_checkpoint_load("full", &s, &o, NULL), YK_OK);
                assert_non_null(strstr(yk_last_error()->message, files[f]));
                yk_clear_error();
            }
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        write_file(files[f], data, size);
        expect_ok(yk_checkpoint_verify("full"));
        free(data);
    }
    expect_near(yk_item(yk_sum(weight)), before, 0, 0);
}

static void truncated_and_missing_files_are_found(void **state)
{
    (void)state;
    yk_checkpoint_state s;
    save_small(&s);
    for (int f = 0; f < 3; f++) {
        size_t size;
        unsigned char *data = read_whole(files[f], &size);
        for (size_t left = 0; left < size; left += 7) {
            write_file(files[f], data, left);
            assert_int_not_equal(yk_checkpoint_verify("full"), YK_OK);
            expect_error(YK_ERR_FORMAT, files[f]);
        }
        unsigned char *longer = calloc(size + 1, 1);
        memcpy(longer, data, size);
        write_file(files[f], longer, size + 1);
        assert_int_not_equal(yk_checkpoint_verify("full"), YK_OK);
        expect_error(YK_ERR_FORMAT, files[f]);
        assert_int_equal(unlink(files[f]), 0);
        assert_int_not_equal(yk_checkpoint_load("full", &s, NULL, NULL), YK_OK);
        expect_error(YK_ERR_IO, files[f]);
        write_file(files[f], data, size);
        free(longer);
        free(data);
    }
    expect_ok(yk_checkpoint_load("full", &s, NULL, NULL));
    assert_int_equal(s.step, 3);
    assert_int_not_equal(yk_checkpoint_verify("nowhere"), YK_OK);
    expect_error(YK_ERR_IO, "nowhere/state.json");
}

static void bad_arguments(void **state)
{
    (void)state;
    yk_checkpoint_state s;
    save_small(&s);
    assert_int_not_equal(yk_checkpoint_save("a/b/c", &s), YK_OK);
    expect_error(YK_ERR_IO, "a/b/c: No such file");
    write_file("file", "x", 1);
    assert_int_not_equal(yk_checkpoint_save("file", &s), YK_OK);
    expect_error(YK_ERR_IO, "file: Not a directory");
    assert_false(any_path("file.*"));
    assert_int_not_equal(yk_checkpoint_save("full", &(yk_checkpoint_state){0}), YK_OK);
    expect_error(YK_ERR_ARGUMENT, "checkpoint: the model is NULL");
    s.settings = (yk_metadata[]){{"name", "\xff"}, {0}};
    assert_int_not_equal(yk_checkpoint_save("full", &s), YK_OK);
    expect_error(YK_ERR_ARGUMENT, "checkpoint: setting 'name' is not valid UTF-8");
    assert_int_not_equal(yk_checkpoint_save("", &s), YK_OK);
    expect_error(YK_ERR_ARGUMENT, "checkpoint_save: no path");
    expect_ok(yk_checkpoint_verify("full"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        data_test(goes_on_to_the_bit),
        data_test(goes_on_between_epochs),
        data_test(mapped_files),
        data_test(asynchronous_saves_are_the_same),
        data_test(weights_alone),
        data_test(schedules_go_on_in_other_steps),
        data_test(runs_of_another_kind_are_refused),
        data_test(flipped_bits_are_found),
        data_test(truncated_and_missing_files_are_found),
        data_test(bad_arguments),
    };
    return cmocka_run_group_tests_name("training", tests, NULL, NULL);
}
