/*
 * record_test.c - the error record's one rule (docs/errors.md): questions leave none, everything else that fails leaves
 * one, and a record that stands has no say in later calls.
 */
#include <unistd.h>

#include "tests/api/handles.h"
#include "tests/support/test_device.h"

static void begin(void)
{
    nowhere = fopen("/dev/null", "w");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0); /* files that a call makes are called "x" */
#define MAKE(type) some_##type = make_##type();
    KINDS(MAKE)
    expect_ok(YK_OK);
    some_shard.part = some_yk_tensor;
}

static void end(yk_scope program)
{
    yk_scope_end(program);
    expect_ok(YK_OK);
    fclose(nowhere);
    assert_int_equal(chdir("/"), 0);
    char command[100];
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
}

/* Calls all and returns how many broke the rule. */
static int offences(const record_call *calls, size_t n)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        yk_scope scope = yk_scope_begin();
        int failed = calls[i].call(scope);
        const yk_error *e = yk_last_error();
        bool question = strcmp(calls[i].kind, "question") == 0;
        /* A call that only holds one reference more or less passes NULL over. */
        bool counts = strstr(calls[i].name, "_retain,") || strstr(calls[i].name, "_release,") ||
                      strstr(calls[i].name, "yk_scope_return");
        if (question ? e != NULL : failed && !e && !counts) {
            print_message("%s (%s): %s\n", calls[i].name, calls[i].kind, e ? e->message : "failed without a record");
            bad++;
        }
        yk_clear_error();
        yk_scope_end(scope);
    }
    return bad;
}
#define COUNT(table) (sizeof(table) / sizeof(*(table)))

static void questions_leave_no_record(void **state)
{
    (void)state;
    yk_scope program = yk_scope_begin();
    begin();
    assert_true(COUNT(question_calls) > 80);
    assert_int_equal(offences(question_calls, COUNT(question_calls)), 0);
    /* Questions that a program asks before it has a group, or that are about no name at all. */
    assert_int_equal(yk_rank(NULL), -1);
    assert_int_equal(yk_world_size(NULL), -1);
    assert_null(yk_default_process_group());
    assert_null(yk_process_group_name(NULL));
    assert_null(yk_module_get(some_yk_module, "no.such.name"));
    assert_null(yk_module_get(some_yk_module, NULL));
    assert_null(yk_module_get_module(some_yk_module, "layer9"));
    assert_null(yk_state_dict_get(some_yk_state_dict, "wieght"));
    assert_null(yk_ddp_module(some_yk_module));
    assert_int_equal(yk_state_dict_find(some_yk_state_dict, "no such name"), -1);
    assert_null(yk_state_dict_at(some_yk_state_dict, -1));
    assert_null(yk_value_get(yk_value_int(3), "key"));
    assert_int_equal(yk_size(some_yk_tensor, 9), -1);
    assert_null(yk_last_error());
    end(program);
}

static void failures_leave_a_record(void **state)
{
    (void)state;
    yk_scope program = yk_scope_begin();
    begin();
    assert_true(COUNT(null_calls) > 400);
    assert_int_equal(offences(null_calls, COUNT(null_calls)), 0);
    end(program);
}

/* ---- a record that stands ---------------------------------------------------------------------------------------- */
static const char *const first = "what failed first";

static void let_stand(void)
{
    assert_int_equal(yk_set_error(YK_ERR_NUMERIC, "%s", first), YK_ERR_NUMERIC);
}

static void expect_standing(void)
{
    const yk_error *e = yk_last_error();
    assert_non_null(e);
    assert_int_equal(e->code, YK_ERR_NUMERIC);
    assert_string_equal(e->message, first);
}

static yk_tensor *twice(yk_tensor *const *inputs, int n_inputs, void *user)
{
    (void)n_inputs, (void)user;
    return yk_add(yk_square(inputs[0]), inputs[0]);
}

static yk_status leave(yk_module *m, void *user)
{
    (void)m;
    ++*(int *)user;
    return YK_OK;
}

static yk_status see_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs, int n_outputs,
                             void *user)
{
    (void)inputs, (void)n_inputs, (void)outputs, (void)n_outputs;
    return leave(m, user);
}

static yk_tensor *see_gradient(yk_tensor *grad, void *user)
{
    (void)grad;
    ++*(int *)user;
    return NULL;
}

static yk_status see_leaf(yk_tensor *x, void *user)
{
    (void)x;
    ++*(int *)user;
    return YK_OK;
}

static yk_status blank(void *user, yk_sample *sample)
{
    (void)user, (void)sample;
    return YK_OK;
}

static yk_tensor *negate(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    (void)context, (void)n_inputs;
    return yk_neg(inputs[0]);
}

static yk_status negate_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n_inputs)
{
    (void)context, (void)n_inputs;
    grads[0] = yk_neg(grad);
    return YK_OK;
}

/* Models of every kind, data, a step, with a record from before. */
static void training_goes_on(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    let_stand();
    /* One of each kind of module: the larger models have more of the same, and more memory than an emulated GPU. */
    static const char *const models[] = {"mlp", "lenet", "resnet18", "mobilenet_v2"};
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++)
        assert_non_null(yk_model(models[i], NULL));
    assert_non_null(yk_vit_b_16(YK_OPTIONS(yk_vit_options, .image_size = 32, .patch_size = 16, .hidden_dim = 32,
                                           .num_heads = 2, .mlp_dim = 32, .num_layers = 1)));
    yk_module *net = yk_sequential(yk_conv2d_create(1, 4, 3, YK_OPTIONS(yk_conv2d_module_options, .stride = 2)),
                                   yk_batch_norm2d_create(4, NULL), yk_relu_create(), yk_flatten_create(),
                                   yk_linear_create(4 * 13 * 13, 10, NULL));
    int forwards = 0, gradients = 0, leaves = 0, modules = 0;
    assert_int_not_equal(yk_module_register_forward_hook(net, see_forward, &forwards), 0);
    assert_int_not_equal(yk_register_hook(yk_module_get(net, "0.weight"), see_gradient, &gradients), 0);
    assert_int_not_equal(yk_register_post_accumulate_hook(yk_module_get(net, "0.weight"), see_leaf, &leaves), 0);
    assert_int_equal(yk_module_apply(net, leave, &modules), YK_OK);
    assert_int_equal(modules, 6);
    assert_null(yk_glyphs(YK_TRAIN, yk_random_crop(-1, 0), 0)); /* the transform could not be made */
    yk_module *model = yk_ddp(net, NULL);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(model), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    yk_transform *own = yk_transform_create("blank", blank, NULL, NULL);
    yk_dataset *sets[] = {
        yk_dataset_open("glyphs", YK_TRAIN, yk_default_transform("glyphs", YK_TRAIN, true)),
        yk_glyphs(YK_TRAIN, NULL, 1),
        yk_glyphs(YK_TRAIN, yk_compose(yk_random_crop(28, 2), own, yk_to_tensor()), 1),
    };
    for (size_t s = 0; s < sizeof(sets) / sizeof(*sets); s++) {
        assert_non_null(yk_dataset_get(sets[s], 0, YK_F32, NULL));
        yk_loader *loader = yk_loader_create(
            sets[s], YK_OPTIONS(yk_loader_options, .batch_size = 16, .shuffle = true, .workers = (int)s % 2));
        yk_batch batch;
        yk_loader_start(loader, 0);
        for (int i = 0; i < 2; i++) {
            assert_true(yk_loader_next(loader, &batch));
            yk_tensor *loss =
                yk_cross_entropy(yk_forward(model, to_test_device(batch.input)), to_test_device(batch.target), NULL);
            yk_optimizer_zero_grad(sgd);
            assert_int_equal(yk_backward(loss), YK_OK);
            assert_int_equal(yk_optimizer_step(sgd), YK_OK);
        }
        yk_loader_state at = yk_loader_get_state(loader);
        assert_int_equal(yk_loader_set_state(loader, &at), YK_OK);
        assert_true(yk_loader_next(loader, &batch));
    }
    assert_int_equal(forwards, 6);
    assert_int_equal(gradients, 6);
    assert_int_equal(leaves, 6);
    yk_tensor *cell[2], *x = yk_ones(YK_SHAPE(2, 3), NULL);
    yk_module *lstm = yk_lstm_cell_create(3, 3, NULL);
    assert_int_equal(yk_forward_list(lstm, (yk_tensor *[]){x, NULL, NULL}, 3, cell, 2), YK_OK);
    yk_tensor *leaf = yk_ones(YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    assert_int_equal(yk_gradcheck(twice, &leaf, 1, NULL, NULL), YK_OK);
    const yk_custom_function function = {.name = "negate", .forward = negate, .backward = negate_backward};
    assert_int_equal(yk_backward(yk_sum(yk_custom_apply(&function, &leaf, 1, NULL))), YK_OK);
    /* One of a list that could not be made is found without the record's help. */
    assert_null(yk_sequential(yk_relu_create(), yk_linear_create(-1, 1, NULL), yk_relu_create()));
    assert_null(yk_sequential(yk_linear_create(-1, 1, NULL)));
    assert_null(yk_compose(yk_to_tensor(), NULL, yk_to_tensor()));
    assert_null(yk_compose(yk_to_tensor(), yk_resize(-1)));
    assert_non_null(yk_sequential_list(NULL, 0));
    expect_standing();
    yk_scope_end(scope);
    yk_clear_error();
}

/* An earlier record stands again after the call; a failure in the call shows in its status. */
static void a_status_is_that_of_the_call(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(3), NULL);
    let_stand();
    assert_int_equal(yk_backward(yk_sum(x)), YK_ERR_STATE);
    expect_standing();
    char missing[] = "/nowhere/at/all";
    assert_int_equal(yk_checkpoint_verify(missing), YK_ERR_IO);
    assert_int_equal(yk_sharded_verify(missing), YK_ERR_IO);
    assert_null(yk_safetensors_load(missing, (yk_device){0}));
    assert_null(yk_pt_load(missing, NULL));
    expect_standing();
    yk_store *store = yk_hash_store();
    void *data;
    bool there;
    assert_int_equal(yk_store_get(store, "key", &data, NULL, -1), YK_ERR_ARGUMENT);
    assert_int_equal(yk_store_wait(store, (const char *[]){"key"}, 1, NAN), YK_ERR_ARGUMENT);
    assert_int_equal(yk_store_watch(store, "key", NULL, 0, &data, NULL, 0), YK_ERR_ARGUMENT);
    assert_int_equal(yk_store_check(store, (const char *[]){""}, 1, &there), YK_ERR_ARGUMENT);
    assert_null(yk_store_watcher_create(store, "", watch, NULL));
    yk_device nowhere_there[2] = {{0}, {.index = 77}};
    yk_tensor *parts[2];
    int used;
    assert_int_equal(yk_device_scatter(x, nowhere_there, 2, 0, parts, &used), YK_ERR_DEVICE);
    assert_null(
        yk_data_parallel(yk_relu_create(), YK_OPTIONS(yk_data_parallel_options, .devices = nowhere_there, .count = 2)));
    assert_null(yk_ddp(yk_relu_create(), YK_OPTIONS(yk_ddp_options, .devices = &nowhere_there[1], .count = 1)));
    assert_null(yk_loader_create(yk_glyphs(YK_TEST, NULL, 0),
                                 YK_OPTIONS(yk_loader_options, .batch_size = 1, .device = nowhere_there[1])));
    expect_standing();
    FILE *full = fopen("/dev/full", "w");
    if (full) { /* not everywhere */
        setvbuf(full, NULL, _IONBF, 0);
        assert_int_equal(yk_process_group_dump(yk_process_group_create(NULL, 0, 1, NULL), full), YK_ERR_IO);
        fclose(full);
        expect_standing();
    }
    yk_scope_end(scope);
    yk_clear_error();
}

static void files_and_groups_go_on(void **state)
{
    (void)state;
    char dir[] = "/tmp/yoke-record-XXXXXX", path[100], second[100];
    assert_non_null(mkdtemp(dir));
    yk_scope scope = yk_scope_begin();
    let_stand();
    yk_module *net = yk_linear_create(3, 2, NULL);
    yk_optimizer *adam = yk_adam(yk_module_parameters(net), YK_OPTIONS(yk_adam_options, .lr = 0.1));
    yk_schedule *schedule = yk_exponential_lr(adam, 0.5);
    yk_grad_scaler *scaler = yk_grad_scaler_create(NULL);
    yk_checkpoint_state run = {.model = net, .optimizer = adam, .schedule = schedule, .scaler = scaler};
    snprintf(path, sizeof(path), "%s/w.safetensors", dir);
    assert_int_equal(yk_safetensors_save(path, yk_module_state_dict(net), NULL), YK_OK);
    assert_non_null(yk_safetensors_load(path, (yk_device){0}));
    assert_int_equal(yk_module_load_state_dict(net, yk_safetensors_load(path, (yk_device){0}), NULL, NULL), YK_OK);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/w.pt", dir);
    yk_value *value = yk_value_dict();
    assert_int_equal(yk_value_set(value, "model", yk_value_from_state_dict(yk_module_state_dict(net))), YK_OK);
    assert_int_equal(yk_pt_save(path, value), YK_OK);
    assert_non_null(yk_value_weights(yk_pt_load(path, NULL), NULL));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(yk_optimizer_load_value(adam, yk_value_from_optimizer(adam)), YK_OK);
    assert_int_equal(yk_schedule_load_value(schedule, yk_value_from_schedule(schedule)), YK_OK);
    assert_int_equal(yk_grad_scaler_load_value(scaler, yk_value_from_grad_scaler(scaler)), YK_OK);
    snprintf(path, sizeof(path), "%s/one", dir);
    assert_int_equal(yk_checkpoint_save(path, &run), YK_OK);
    assert_int_equal(yk_checkpoint_load(path, &run, NULL, NULL), YK_OK);
    assert_int_equal(yk_checkpoint_verify(path), YK_OK);
    snprintf(second, sizeof(second), "%s/many", dir);
    yk_checkpoint_manager *manager =
        yk_checkpoint_manager_create(second, YK_OPTIONS(yk_checkpoint_manager_options, .async = true));
    assert_int_equal(yk_checkpoint_manager_save(manager, &run), YK_OK);
    assert_int_equal(yk_checkpoint_manager_wait(manager), YK_OK);
    assert_int_equal(yk_checkpoint_load_latest(second, &run, NULL, NULL), YK_OK);
    snprintf(second, sizeof(second), "%s/shards", dir);
    yk_shard shard = {.name = "x", .part = yk_ones(YK_SHAPE(4), NULL)};
    assert_int_equal(yk_sharded_save(second, &shard, 1, NULL, NULL), YK_OK);
    assert_int_equal(yk_sharded_load(second, &shard, 1, NULL), YK_OK);
    yk_store *store = yk_prefix_store("job", yk_hash_store());
    assert_int_equal(yk_store_set(store, "key", "value", 5), YK_OK);
    yk_process_group *group = yk_process_group_create(store, 0, 1, NULL);
    assert_non_null(group);
    assert_int_equal(yk_all_reduce(shard.part, YK_OP_SUM, group), YK_OK);
    assert_int_equal(yk_work_wait(yk_barrier_async(group)), YK_OK);
    expect_standing();
    yk_scope_end(scope);
    yk_clear_error();
    char command[200];
    snprintf(command, sizeof(command), "rm -r '%s'", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_leave_no_record), cmocka_unit_test(failures_leave_a_record),
        cmocka_unit_test(training_goes_on),          cmocka_unit_test(a_status_is_that_of_the_call),
        cmocka_unit_test(files_and_groups_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
