/*
 * replicas_test.c - replicas of DataParallel: what is copied and when, changes of the module, modes and hooks, several
 * forwards at once, errors; and the building blocks.
 */
#include "tests/parallel/over_devices.h"

/* ---- replicas that live long ------------------------------------------------------------------------------------- */

static yk_tensor *copies_forward(yk_module *m, yk_tensor *x);
static const yk_module_class copies_class = {
    .name = "Copies", .data_size = 3 * sizeof(void *), .forward = copies_forward};
static _Atomic uintptr_t weights_seen[MOST], buffers_seen[MOST], modules_seen[MOST];
static _Atomic int64_t counts_seen[MOST];

static yk_tensor *copies_forward(yk_module *m, yk_tensor *x)
{
    void **data = yk_module_data(m);
    yk_tensor *w = data[0], *b = data[1];
    int i = yk_tensor_device(x).index;
    atomic_store(&weights_seen[i], (uintptr_t)data_ptr(w));
    atomic_store(&buffers_seen[i], (uintptr_t)data_ptr(b));
    atomic_store(&modules_seen[i], (uintptr_t)m);
    atomic_store(&counts_seen[i], (int64_t)(intptr_t)data[2]);
    data[2] = (void *)((intptr_t)data[2] + 1); /* lasts in the first replica alone */
    return yk_add(yk_mul(x, w), b);
}

static void nothing_is_copied_without_need(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_module_create(&copies_class);
    void **data = yk_module_data(net);
    data[0] = yk_module_add_parameter(net, "w", randn(YK_SHAPE(100, 100)));
    data[1] = yk_module_add_buffer(net, "b", randn(YK_SHAPE(100, 100)));
    yk_module *dp = over(net, 4);
    yk_tensor *x = randn(YK_SHAPE(8, 100, 100));
    uintptr_t first_module[4], first_buffer[4];
    for (int round = 0; round < 4; round++) {
        yk_memory_info before[4], after[4];
        for (int i = 1; i < 4; i++)
            expect_ok(yk_device_memory(devices[i], &before[i]));
        yk_scope inner = yk_scope_begin();
        bool off = yk_set_grad_enabled(round != 2);
        yk_tensor *y = yk_forward(dp, x);
        yk_set_grad_enabled(off);
        assert_true(distance(y, yk_add(yk_mul(x, data[0]), data[1])) == 0);
        yk_scope_end(inner);
        for (int i = 0; i < 4; i++) {
            assert_true(atomic_load(&weights_seen[i]) == (uintptr_t)data_ptr(data[0])); /* one memory */
            assert_true(i == 0 || atomic_load(&buffers_seen[i]) != atomic_load(&buffers_seen[0]));
            assert_int_equal(atomic_load(&counts_seen[i]), round);
            if (round == 0) {
                first_module[i] = atomic_load(&modules_seen[i]);
                first_buffer[i] = atomic_load(&buffers_seen[i]);
            }
            assert_true(atomic_load(&modules_seen[i]) == first_module[i]);
            assert_true(atomic_load(&buffers_seen[i]) == first_buffer[i]);
            if (round && i) {
                expect_ok(yk_device_memory(devices[i], &after[i]));
                assert_int_equal(after[i].allocated, before[i].allocated);
            }
        }
        if (round == 1) { /* a buffer that was written is copied again, to where the copy is */
            bool recording = yk_no_grad_begin();
            assert_non_null(yk_mul_scalar_(data[1], 3));
            yk_no_grad_end(recording);
        }
    }
    yk_scope_end(scope);
}

static void the_module_may_change(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = lenet(), *dp = over(net, 3);
    yk_tensor *x = randn(YK_SHAPE(7, 1, 28, 28));
    assert_true(distance(yk_forward(dp, x), yk_forward(net, x)) <= 1e-12);
    yk_module_add(net, "fc3", yk_module_to_dtype(yk_linear_create(84, 3, NULL), YK_F64)); /* net.fc3 = ... */
    yk_tensor *y = yk_forward(dp, x);
    assert_int_equal(yk_size(y, 1), 3);
    assert_true(distance(y, yk_forward(net, x)) <= 1e-12);
    assert_non_null(yk_module_to_dtype(net, YK_F32));
    x = yk_cast(x, YK_F32);
    assert_true(distance(yk_forward(dp, x), yk_forward(net, x)) <= 1e-5);
    /* Frozen parameters get no gradient, and the others do. */
    yk_module_zero_grad(net);
    expect_ok(yk_set_requires_grad(yk_module_get(net, "conv1.weight"), false));
    expect_ok(yk_backward(yk_sum(yk_forward(dp, x))));
    assert_null(yk_grad(yk_module_get(net, "conv1.weight")));
    assert_non_null(yk_grad(yk_module_get(net, "conv2.weight")));
    /* Other values, loaded: replicas see them. */
    yk_module *other = yk_module_to_dtype(lenet(), YK_F32);
    yk_module_add(other, "fc3", yk_linear_create(84, 3, NULL));
    copy_state(net, other);
    assert_true(distance(yk_forward(dp, x), yk_forward(other, x)) <= 1e-5);
    /* Saved and loaded with "module." in front. */
    yk_state_dict *dict = yk_module_state_dict(dp);
    assert_string_equal(yk_state_dict_name(dict, 0), "module.conv1.weight");
    expect_ok(yk_module_load_state_dict(other, dict, NULL, NULL));
    yk_scope_end(scope);
}

/* A parameter that stands in the tree twice, and a layer that does. */
static void shared_parts(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *nets[2];
    for (int i = 0; i < 2; i++) {
        yk_module *a = yk_linear_create(6, 6, NULL), *b = yk_linear_create(6, 6, NULL);
        yk_module_add_parameter(b, "weight", yk_module_get(a, "weight"));
        nets[i] = yk_module_to_dtype(yk_sequential(a, yk_tanh_create(), b, yk_tanh_create(), a), YK_F64);
    }
    copy_state(nets[1], nets[0]);
    yk_module *dp = over(nets[1], 4);
    yk_tensor *x = randn(YK_SHAPE(10, 6));
    for (int step = 0; step < 2; step++) {
        yk_tensor *y = yk_forward(dp, x), *z = yk_forward(nets[0], x);
        assert_true(distance(y, z) <= 1e-13);
        expect_ok(yk_backward(yk_sum(yk_square(y))));
        expect_ok(yk_backward(yk_sum(yk_square(z))));
        assert_true(gradients_apart(nets[1], nets[0]) <= 1e-12); /* and they accumulate */
    }
    yk_scope_end(scope);
}

/* Two forwards, then two backwards; a graph that is kept; a parameter written between. */
static void graphs_of_several_forwards(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *alone = lenet(), *net = lenet();
    copy_state(net, alone);
    yk_module *dp = over(net, 3);
    yk_tensor *x = randn(YK_SHAPE(7, 1, 28, 28)), *w = randn(YK_SHAPE(5, 1, 28, 28));
    yk_tensor *a = yk_sum(yk_forward(dp, x)), *b = yk_sum(yk_forward(dp, w));
    yk_tensor *c = yk_sum(yk_forward(alone, x)), *d = yk_sum(yk_forward(alone, w));
    expect_ok(yk_backward_with(b, YK_OPTIONS(yk_backward_options, .retain_graph = true)));
    expect_ok(yk_backward(a));
    expect_ok(yk_backward(b));
    expect_ok(yk_backward(c));
    expect_ok(yk_backward_with(d, YK_OPTIONS(yk_backward_options, .retain_graph = true)));
    expect_ok(yk_backward(d));
    assert_true(gradients_apart(net, alone) <= 1e-11);
    /* Gradients go to inputs, too. */
    yk_tensor *leaf = yk_clone(x), *leaf_alone = yk_clone(x);
    leaf = yk_detach(leaf), leaf_alone = yk_detach(leaf_alone);
    expect_ok(yk_set_requires_grad(leaf, true));
    expect_ok(yk_set_requires_grad(leaf_alone, true));
    expect_ok(yk_backward(yk_sum(yk_square(yk_forward(dp, leaf)))));
    expect_ok(yk_backward(yk_sum(yk_square(yk_forward(alone, leaf_alone)))));
    assert_true(distance(yk_grad(leaf), yk_grad(leaf_alone)) <= 1e-12);
    /* A tensor that a replica's backward needs was changed in place: noticed, though the replica has a tensor of its
     * own. */
    yk_tensor *late = yk_sum(yk_forward(dp, x));
    bool before = yk_no_grad_begin();
    assert_non_null(yk_mul_scalar_(yk_module_get(net, "fc2.weight"), 2));
    yk_no_grad_end(before);
    assert_int_equal(yk_backward(late), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "has been modified by an inplace operation");
    yk_scope_end(scope);
}

/* Hooks of the module run in every replica; they are given the replica. */
static _Atomic int hook_calls, hook_modules;

static yk_status count_hook(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs, int n_outputs,
                            void *user)
{
    (void)inputs, (void)n_inputs, (void)outputs, (void)n_outputs;
    atomic_fetch_add(&hook_calls, 1);
    atomic_fetch_add(&hook_modules, m == user);
    return YK_OK;
}

static void hooks_run_in_every_replica(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = lenet(), *dp = over(net, 4), *fc1 = yk_module_get_module(net, "fc1");
    yk_tensor *x = randn(YK_SHAPE(8, 1, 28, 28));
    assert_non_null(yk_forward(dp, x));
    uint64_t id = yk_module_register_forward_hook(fc1, count_hook, fc1);
    assert_non_null(yk_forward(dp, x));
    assert_int_equal(atomic_load(&hook_calls), 4);
    assert_int_equal(atomic_load(&hook_modules), 1);
    expect_ok(yk_module_hook_remove(fc1, id));
    assert_non_null(yk_forward(dp, x));
    assert_int_equal(atomic_load(&hook_calls), 4);
    yk_scope_end(scope);
}

/* Modes reach the replicas: training and evaluation, recording, inference. */
static void modes_reach_the_replicas(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_sequential(yk_dropout_create(0.5)), *dp = over(net, 4);
    yk_tensor *x = yk_ones(YK_SHAPE(400, 10), NULL);
    yk_tensor *a = yk_forward(dp, x), *b = yk_forward(dp, x);
    for (int i = 0; i < 4; i++) { /* every part has its own numbers, and new ones every time */
        yk_tensor *part = yk_narrow(a, 0, 100 * i, 100);
        assert_true(yk_item(yk_min(part)) == 0 && yk_item(yk_max(part)) == 2);
        assert_true(distance(part, yk_narrow(b, 0, 100 * i, 100)) == 2);
        for (int k = 0; k < i; k++)
            assert_true(distance(part, yk_narrow(a, 0, 100 * k, 100)) == 2);
    }
    yk_manual_seed(5);
    a = yk_forward(dp, x);
    yk_manual_seed(5);
    assert_true(distance(a, yk_forward(dp, x)) == 0);
    yk_module_eval(dp);
    assert_true(distance(yk_forward(dp, x), x) == 0);
    yk_module_train(dp, true);
    assert_true(distance(yk_forward(dp, x), x) == 1);

    yk_module *linear = yk_linear_create(10, 3, NULL), *over_linear = over(linear, 4);
    assert_true(yk_requires_grad(yk_forward(over_linear, x)));
    bool before = yk_no_grad_begin();
    assert_false(yk_requires_grad(yk_forward(over_linear, x)));
    yk_no_grad_end(before);
    before = yk_inference_mode_begin();
    yk_tensor *y = yk_forward(over_linear, x);
    assert_true(yk_is_inference(y));
    yk_inference_mode_end(before);
    assert_true(yk_requires_grad(yk_forward(over_linear, x)));
    yk_scope_end(scope);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static yk_tensor *fail_forward(yk_module *m, yk_tensor *x)
{
    int64_t bad = *(int64_t *)yk_module_data(m);
    if (bad >> yk_tensor_device(x).index & 1)
        return yk_matmul(x, x);
    return yk_mul_scalar(x, 2);
}
static const yk_module_class fail_class = {.name = "Fail", .data_size = sizeof(int64_t), .forward = fail_forward};

static void a_replica_that_fails_is_named(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *part = yk_module_create(&fail_class), *net = yk_sequential(part), *dp = over(net, 4);
    yk_tensor *x = randn(YK_SHAPE(8, 3));
    int64_t *bad = yk_module_data(part);
    *bad = 1 << 2;
    assert_null(yk_forward(dp, x));
    expect_error(YK_ERR_SHAPE, device_text("replica 2 on cpu:2: 0: matmul: "));
    *bad = 1 << 3 | 1 << 1;
    assert_null(yk_forward(dp, x));
    expect_error(YK_ERR_SHAPE, device_text("replica 1 on cpu:1: ")); /* the first of those that failed */
    *bad = 1;
    assert_null(yk_forward(dp, x));
    expect_error(YK_ERR_SHAPE, device_text("replica 0 on cpu:0: "));
    *bad = 0;
    assert_true(distance(yk_forward(dp, x), yk_mul_scalar(x, 2)) == 0); /* all goes on */
    yk_scope_end(scope);
}

/* A failure in backward names the device, too, and the gradients of the next backward are right. */
static yk_status backward_fails(yk_custom *context, yk_tensor *grad_output, yk_tensor **grad_inputs, int n_inputs)
{
    (void)context, (void)n_inputs;
    if (yk_tensor_device(grad_output).index == 2)
        return yk_set_error(YK_ERR_NUMERIC, "not today");
    grad_inputs[0] = grad_output;
    return YK_OK;
}

static yk_tensor *passes(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    (void)context, (void)n_inputs;
    return yk_clone(inputs[0]);
}

static yk_tensor *fragile_forward(yk_module *m, yk_tensor *x)
{
    static const yk_custom_function f = {.name = "fragile", .forward = passes, .backward = backward_fails};
    yk_tensor *y = yk_mul(x, yk_module_get(m, "w"));
    return yk_custom_apply(&f, &y, 1, NULL);
}
static const yk_module_class fragile_class = {.name = "Fragile", .forward = fragile_forward};

static void a_backward_that_fails_names_the_device(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = yk_module_create(&fragile_class);
    yk_module_add_parameter(net, "w", randn(YK_SHAPE(3)));
    yk_module *dp = over(net, 4), *two = over(net, 2);
    yk_tensor *x = randn(YK_SHAPE(8, 3));
    assert_int_equal(yk_backward(yk_sum(yk_forward(dp, x))), YK_ERR_NUMERIC);
    expect_error(YK_ERR_NUMERIC, device_text("backward on cpu:2: "));
    yk_module_zero_grad(net);
    expect_ok(yk_backward(yk_sum(yk_forward(two, x))));
    assert_true(distance(yk_grad(yk_module_get(net, "w")), yk_sum_dims(x, (int[]){0}, 1, false)) <= 1e-14);
    yk_scope_end(scope);
}

static yk_tensor *no_criterion(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)output, (void)target, (void)user;
    return NULL;
}

static void wrong_devices(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = lenet(), *dp = over(net, 2);
    yk_tensor *x = randn(YK_SHAPE(4, 1, 28, 28));
    assert_non_null(yk_module_to(yk_module_get_module(net, "conv2"), devices[1]));
    assert_null(yk_forward(dp, x));
    expect_error(
        YK_ERR_DEVICE,
        device_text("module must have its parameters and buffers on device cpu:0 (device_ids[0]) but found one "
                    "of them on device: cpu:1 (conv2.weight)"));
    yk_module *one = over(net, 1); /* with one device as well */
    assert_null(yk_forward(one, x));
    expect_error(YK_ERR_DEVICE, device_text("(device_ids[0]) but found one of them on device: cpu:1 (conv2.weight)"));
    yk_device wrong[] = {devices[0], test_device(8)}, twice[] = {devices[0], devices[1], devices[0]};
    assert_null(yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .devices = wrong, .count = 2)));
    expect_error(YK_ERR_DEVICE, device_text("data_parallel: device cpu:8 does not exist: there are 8 cpu devices"));
    assert_null(yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .devices = twice, .count = 3)));
    expect_error(YK_ERR_DEVICE, device_text("data_parallel: cpu:0 is named twice, as devices 0 and 2"));
    assert_null(yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = 0)));
    expect_error(YK_ERR_ARGUMENT, "data_parallel: 0 devices");
    assert_null(yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .count = 2)));
    expect_error(YK_ERR_ARGUMENT, "2 devices in a list that is NULL");
    assert_null(yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .output_device = &wrong[1])));
    expect_error(YK_ERR_DEVICE, device_text("cpu:8 does not exist"));
    assert_null(yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .dim = 8)));
    expect_error(YK_ERR_ARGUMENT, "no tensor has a dimension 8");
    assert_null(yk_data_parallel(NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "the module is NULL");
    yk_module *plain = over(lenet(), 2);
    assert_null(yk_forward(plain, yk_scalar(1, NULL)));
    expect_error(YK_ERR_SHAPE, "a tensor without dimensions cannot be split");
    yk_module *dim5 =
        yk_data_parallel(lenet(), YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = 2, .dim = 5));
    assert_null(yk_forward(dim5, x));
    expect_error(YK_ERR_SHAPE, "dimension 5 is outside [-4, 3] of shape (4, 1, 28, 28)");
    assert_null(yk_data_parallel_criterion(net, &x, 1, x, no_criterion, NULL, YK_REDUCE_SUM));
    expect_error(YK_ERR_ARGUMENT, "the module is a LeNet, not one of yk_data_parallel");
    assert_int_equal(yk_data_parallel_report(net, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "not one of yk_data_parallel");
    assert_int_equal(yk_data_parallel_report_print(NULL, NULL, 0), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "data_parallel_report_print: the file is NULL");
    yk_module *ddp = yk_ddp(lenet(), NULL), *inside = over(ddp, 2);
    assert_null(yk_forward(inside, x));
    expect_error(YK_ERR_STATE, "is a module of yk_ddp, which has no replicas; put yk_ddp around");
    yk_scope_end(scope);
}

/* ---- the building blocks ----------------------------------------------------------------------------------------- */

static void scatter_and_gather(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    for (int dim = -2; dim < 2; dim++) {
        yk_tensor *x = randn(YK_SHAPE(7, 5)), *parts[4];
        expect_ok(yk_set_requires_grad(x, true));
        int used = 0;
        expect_ok(yk_device_scatter(x, devices, 4, dim, parts, &used));
        assert_int_equal(used, dim == 1 || dim == -1 ? 3 : 4);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(parts[i] == NULL, i >= used);
            if (parts[i])
                assert_true(yk_device_equal(yk_tensor_device(parts[i]), devices[i]));
        }
        yk_tensor *scaled_parts[4];
        for (int i = 0; i < used; i++)
            scaled_parts[i] = yk_mul_scalar(parts[i], i + 1);
        yk_tensor *y = yk_device_gather(parts, used, dim, devices[3]);
        assert_true(yk_device_equal(yk_tensor_device(y), devices[3]));
        assert_true(distance(y, x) == 0);
        yk_tensor *w = randn(YK_SHAPE(7, 5));
        yk_tensor *z = yk_device_gather(scaled_parts, used, dim, devices[0]);
        expect_ok(yk_backward(yk_sum(yk_mul(z, w))));
        yk_tensor *expected[4];
        int n = 0;
        expect_ok(yk_chunk(w, 4, dim, expected, 4, &n));
        for (int i = 0; i < n; i++)
            expected[i] = yk_mul_scalar(expected[i], i + 1);
        assert_true(distance(yk_grad(x), yk_cat(expected, n, dim)) == 0);
    }
    /* Numbers become a vector. */
    yk_tensor *numbers[3];
    for (int i = 0; i < 3; i++)
        numbers[i] = yk_scalar(i, YK_OPTIONS(yk_tensor_options, .device = devices[i], .requires_grad = true));
    yk_tensor *vector = yk_device_gather(numbers, 3, 0, devices[1]);
    assert_int_equal(yk_ndim(vector), 1);
    expect_ok(yk_backward(yk_sum(yk_square(vector))));
    for (int i = 0; i < 3; i++)
        assert_true(yk_item(yk_grad(numbers[i])) == 2 * i);
    yk_tensor *parts[4];
    int used;
    assert_int_equal(yk_device_scatter(NULL, devices, 2, 0, parts, &used), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "device_scatter: argument 1 is NULL");
    assert_int_equal(yk_device_scatter(vector, devices, 0, 0, parts, &used), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "device_scatter: 0 devices");
    assert_int_equal(yk_device_scatter(vector, devices, 2, 1, parts, &used), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "dimension 1 is outside");
    assert_null(yk_device_gather(NULL, 2, 0, devices[0]));
    expect_error(YK_ERR_ARGUMENT, "device_gather: parts is NULL");
    assert_null(yk_device_gather((yk_tensor *[]){vector, NULL}, 2, 0, devices[0]));
    expect_error(YK_ERR_ARGUMENT, "device_gather: argument 1 is NULL");
    assert_null(yk_device_gather((yk_tensor *[]){vector, randn(YK_SHAPE(2, 2))}, 2, 0, devices[0]));
    expect_error(YK_ERR_SHAPE, "cat: ");
    yk_scope_end(scope);
}

static void replicate_and_apply(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *alone = lenet(), *net = lenet(), *replicas[3];
    copy_state(net, alone);
    yk_tensor *x = randn(YK_SHAPE(6, 1, 28, 28)), *parts[3], *outputs[3];
    int used;
    expect_ok(yk_replicate(net, devices, 3, replicas));
    assert_ptr_equal(replicas[0], net);
    assert_true(yk_device_equal(yk_tensor_device(yk_module_get(replicas[2], "fc1.bias")), devices[2]));
    assert_string_equal(yk_module_class_of(replicas[1])->name, "LeNet");
    expect_ok(yk_device_scatter(x, devices, 3, 0, parts, &used));
    expect_ok(yk_parallel_apply(replicas, used, parts, 1, outputs, 1));
    yk_tensor *y = yk_device_gather(outputs, used, 0, devices[0]), *z = yk_forward(alone, x);
    assert_true(distance(y, z) <= 1e-12);
    expect_ok(yk_backward(yk_sum(yk_square(y))));
    expect_ok(yk_backward(yk_sum(yk_square(z))));
    assert_true(gradients_apart(net, alone) <= 1e-12);
    assert_int_equal(yk_parallel_apply((yk_module *[]){net, net}, 2, parts, 1, outputs, 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "parallel_apply: replicas 0 and 1 are one module");
    assert_int_equal(yk_parallel_apply(replicas, 0, parts, 1, outputs, 1), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "parallel_apply: 0 replicas");
    yk_tensor *swapped[2] = {parts[1], parts[0]};
    assert_int_equal(yk_parallel_apply(replicas, 2, swapped, 1, outputs, 1), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, device_text("replica 0 on cpu:0: "));
    assert_null(outputs[0]);
    assert_null(outputs[1]);
    yk_device twice[] = {devices[0], devices[0]};
    assert_int_equal(yk_replicate(net, twice, 2, replicas), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, device_text("replicate: cpu:0 is named twice"));
    assert_int_equal(yk_replicate(net, devices + 1, 2, replicas), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, device_text("replicate: module must have its parameters and buffers on device cpu:1"));
    assert_null(replicas[0]);
    assert_int_equal(yk_replicate(net, devices, 2, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "replicate: replicas is NULL");
    yk_scope_end(scope);
}

/* ---- several at once --------------------------------------------------------------------------------------------- */

static void *train_apart(void *failed)
{
    yk_scope scope = yk_scope_begin();
    yk_module *alone = lenet(), *net = lenet(), *dp = NULL;
    bool fine = !yk_module_load_state_dict(net, yk_module_state_dict(alone), NULL, NULL);
    dp = yk_data_parallel(net, YK_OPTIONS(yk_data_parallel_options, .devices = devices, .count = 3));
    for (int step = 0; fine && step < 5; step++) {
        yk_scope inner = yk_scope_begin();
        yk_tensor *x = randn(YK_SHAPE(5, 1, 28, 28)), *y = yk_forward(dp, x), *z = yk_forward(alone, x);
        fine = y && z && !yk_backward(yk_sum(yk_square(y))) && !yk_backward(yk_sum(yk_square(z)));
        if (fine) {
            yk_tensor *a = yk_grad(yk_module_get(net, "conv1.weight")),
                      *b = yk_grad(yk_module_get(alone, "conv1.weight"));
            yk_tensor *apart = yk_max(yk_abs(yk_sub(a, b)));
            fine = apart && yk_item(apart) <= 1e-11;
        }
        yk_scope_end(inner);
    }
    yk_scope_end(scope);
    *(bool *)failed = !fine;
    yk_clear_error();
    return NULL;
}

/* Calls from several threads of the program, on the same devices: each gets threads of its own where they are busy. */
static void from_several_threads(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    bool failed[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, train_apart, &failed[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(failed[i]);
    }
}

/* One inside a replica of another: the inner one's devices are free, as its threads are others. */
static void one_inside_another(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = lenet(), *inner = over(net, 2), *outer = over(yk_sequential(inner), 1);
    yk_tensor *x = randn(YK_SHAPE(5, 1, 28, 28));
    assert_true(distance(yk_forward(outer, x), yk_forward(net, x)) <= 1e-12);
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(8);
    setenv("OMP_NUM_THREADS", "8", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_copied_without_need),
        cmocka_unit_test(the_module_may_change),
        cmocka_unit_test(shared_parts),
        cmocka_unit_test(graphs_of_several_forwards),
        cmocka_unit_test(hooks_run_in_every_replica),
        cmocka_unit_test(modes_reach_the_replicas),
        cmocka_unit_test(a_replica_that_fails_is_named),
        cmocka_unit_test(a_backward_that_fails_names_the_device),
        cmocka_unit_test(wrong_devices),
        cmocka_unit_test(scatter_and_gather),
        cmocka_unit_test(replicate_and_apply),
        cmocka_unit_test(from_several_threads),
        cmocka_unit_test(one_inside_another),
    };
    return cmocka_run_group_tests_name("parallel/replicas", tests, NULL, NULL);
}
