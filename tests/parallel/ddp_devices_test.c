/*
 * ddp_devices_test.c - a model on two devices inside DDP, a pipeline too: buckets of each device, gradients of the
 * whole batch, and backward's two threads.
 */
#include "tests/parallel/trainer.h"

#include "parallel/reducer.h"

#define second test_device(1)

/* Ranks that are threads would share a GPU's queue and wait for each other there. */
static enum rank_kind as_threads(void)
{
    return test_device_type == YK_CPU ? THREADS : PROCESSES;
}

/* The first layer on the first device, the others on the second. */
static yk_tensor *split_forward(yk_module *m, yk_tensor *x)
{
    yk_tensor *y = yk_relu(yk_forward(yk_module_child(m, 0), x));
    return yk_forward(yk_module_child(m, 2), yk_relu(yk_forward(yk_module_child(m, 1), yk_to(y, second))));
}

static const yk_module_class split_class = {.name = "Split", .forward = split_forward};

static yk_module *make_split(uint32_t key)
{
    yk_module *m = yk_module_create(&split_class);
    yk_module_add(m, "a", yk_linear_create(6, 40, NULL));
    yk_module_add(m, "b", yk_linear_create(40, 30, NULL));
    yk_module_add(m, "c", yk_linear_create(30, 10, NULL));
    known_values(yk_module_to_dtype(m, YK_F64), key);
    yk_module_to(yk_module_child(m, 1), second);
    yk_module_to(yk_module_child(m, 2), second);
    return yk_module_check(m);
}

static yk_status step_of(yk_module *m, uint32_t key, int64_t first, int64_t count)
{
    yk_tensor *y = yk_forward(m, samples(key, first, count, 1, (int64_t[]){6}));
    return yk_backward(yk_cross_entropy(y, yk_to(labels(first, count), second), NULL));
}

static void two_devices(rank_context *c)
{
    yk_module *net = make_split(1 + (uint32_t)c->rank), *alone = make_split(1);
    CHECK(net && alone, "%s", yk_last_error()->message);
    yk_module *ddp =
        yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = c->group, .bucket_cap_mb = 0.005, .first_bucket_mb = 0.002));
    CHECK(ddp, "%s", yk_last_error()->message);
    for (uint32_t step = 0; step < 5; step++) {
        yk_scope scope = yk_scope_begin();
        yk_module_zero_grad(ddp);
        yk_module_zero_grad(alone);
        CHECK_OK(step_of(ddp, step, 4 * c->rank, 4));
        CHECK_OK(step_of(alone, step, 0, 4 * c->size));
        double d = 0;
        for (int i = 0; i < 6; i++) {
            static const char *const names[] = {"a.weight", "a.bias", "b.weight", "b.bias", "c.weight", "c.bias"};
            yk_tensor *g = yk_grad(yk_module_get(net, names[i]));
            CHECK(g && yk_device_equal(yk_tensor_device(g), test_device(i >= 2)), "the device of %s", names[i]);
            double one = distance(g, yk_grad(yk_module_get(alone, names[i])));
            d = one > d ? one : d;
        }
        CHECK(d < 1e-13, "step %u: the gradients are %g apart", step, d);
        yk_scope_end(scope);
    }
}

/* The same layers as a pipeline, on each rank; its step of its own would reduce gradients once for each micro-batch. */
static void pipelines(rank_context *c)
{
    yk_module *nets[2];
    for (int i = 0; i < 2; i++) {
        yk_module *parts[] = {yk_linear_create(6, 40, NULL),
                              yk_sequential(yk_relu_create(), yk_linear_create(40, 10, NULL))};
        nets[i] = yk_pipeline(
            parts, 2,
            YK_OPTIONS(yk_pipeline_options, .devices = (yk_device[]){test_device(0), test_device(1)}, .chunks = 3));
        CHECK(nets[i], "%s", yk_last_error()->message);
        known_values(yk_module_to_dtype(nets[i], YK_F64), i ? 1 : 1 + (uint32_t)c->rank);
    }
    yk_module *ddp = yk_ddp(nets[0], YK_OPTIONS(yk_ddp_options, .group = c->group, .bucket_cap_mb = 0.002));
    CHECK(ddp, "%s", yk_last_error()->message);
    for (uint32_t step = 0; step < 4; step++) {
        yk_scope scope = yk_scope_begin();
        yk_module_zero_grad(ddp);
        yk_module_zero_grad(nets[1]);
        CHECK_OK(step_of(ddp, step, 4 * c->rank, 4));
        CHECK_OK(step_of(nets[1], step, 0, 4 * c->size));
        static const char *const names[] = {"0.weight", "0.bias", "1.1.weight", "1.1.bias"};
        for (int i = 0; i < 4; i++) {
            yk_tensor *g = yk_grad(yk_module_get(nets[0], names[i]));
            CHECK(g && yk_tensor_device(g).index == i / 2, "the device of %s", names[i]);
            double d = distance(g, yk_grad(yk_module_get(nets[1], names[i])));
            CHECK(d < 1e-13, "step %u: the gradients of %s are %g apart", step, names[i], d);
        }
        yk_scope_end(scope);
    }
}

static yk_tensor *sum_of(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)target, (void)user;
    return yk_sum(output);
}

static void refused_pipelines(rank_context *c)
{
    const yk_pipeline_options o = *YK_OPTIONS(yk_pipeline_options, .criterion = sum_of);
    yk_module *part = yk_linear_create(6, 4, NULL), *pipeline = yk_pipeline(&part, 1, &o);
    CHECK(yk_ddp(pipeline, YK_OPTIONS(yk_ddp_options, .group = c->group)), "%s", yk_last_error()->message);
    CHECK(!yk_pipeline_step(pipeline, yk_ones(YK_SHAPE(4, 6), NULL), NULL) &&
              strstr(yk_last_error()->message,
                     "pipeline_step: weight of stage 0 belongs to a module of yk_ddp, which reduces gradients once"),
          "a step inside DDP");
    yk_clear_error();
    part = yk_sequential(yk_sync_batch_norm2d_create(2, NULL, c->group));
    CHECK(!yk_pipeline(&part, 1, &o) && strstr(yk_last_error()->message, "pipeline: stage 0 has a SyncBatchNorm in it"),
          "SyncBatchNorm in a stage");
    yk_clear_error();
}

static void test_pipelines(void **state)
{
    (void)state;
    if (FORKS_THREADS)
        run_ranks(PROCESSES, 2, pipelines, NULL, patience(10), true);
    run_ranks(as_threads(), 3, pipelines, NULL, patience(10), true);
    run_ranks(as_threads(), 2, refused_pipelines, NULL, patience(10), true);
}

static void test_two_devices(void **state)
{
    (void)state;
    if (test_device_type == YK_CPU)
        assert_int_equal(yk_device_count(YK_CPU), 2);
    run_ranks(PROCESSES, 2, two_devices, NULL, patience(10), true);
    run_ranks(as_threads(), 3, two_devices, NULL, patience(10), true);
}

/* device_ids and output_device: inputs come from anywhere, outputs go where they are wanted, gradients are the same. */
static void device_ids(rank_context *c)
{
    yk_module *net = yk_linear_create(10, 5, NULL), *alone = yk_linear_create(10, 5, NULL);
    known_values(yk_module_to_dtype(net, YK_F64), 3);
    known_values(yk_module_to_dtype(alone, YK_F64), 3);
    yk_device own = test_device(c->rank % 2), other = test_device(1 - c->rank % 2);
    CHECK(yk_module_to(net, own), "%s", yk_last_error()->message);
    yk_ddp_options o = *YK_OPTIONS(yk_ddp_options, .group = c->group, .devices = &own, .count = 1);
    yk_module *ddp = yk_ddp(net, &o);
    CHECK(ddp, "%s", yk_last_error()->message);
    for (uint32_t step = 0; step < 3; step++) {
        yk_scope scope = yk_scope_begin();
        yk_module_zero_grad(ddp);
        yk_module_zero_grad(alone);
        yk_tensor *x = samples(step, 4 * c->rank, 4, 1, (int64_t[]){10}); /* on the first device on every rank */
        yk_tensor *y = yk_forward(ddp, x);
        CHECK(y && yk_device_equal(yk_tensor_device(y), own), "%s", y ? "its device" : yk_last_error()->message);
        CHECK_OK(yk_backward(yk_mean(yk_square(y))));
        yk_tensor *all = samples(step, 0, 4 * c->size, 1, (int64_t[]){10});
        CHECK_OK(yk_backward(yk_mean(yk_square(yk_forward(alone, all)))));
        double d = distance(yk_grad(yk_module_get(net, "weight")), yk_grad(yk_module_get(alone, "weight")));
        CHECK(d < 1e-13, "step %u: the gradients are %g apart", step, d);
        yk_scope_end(scope);
    }
    yk_module *moving = yk_linear_create(10, 5, NULL);
    CHECK(yk_module_to(moving, own), "%s", yk_last_error()->message);
    o.output_device = &other;
    ddp = yk_ddp(moving, &o);
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_tensor *y = yk_forward(ddp, yk_ones(YK_SHAPE(2, 10), NULL));
    CHECK(y && yk_device_equal(yk_tensor_device(y), other), "%s", y ? "its device" : yk_last_error()->message);
    CHECK_OK(yk_backward(yk_sum(y)));
    bool before = yk_no_grad_begin(); /* one rank may evaluate alone, and its input moves, too */
    if (c->rank == 0) {
        y = yk_forward(ddp, yk_to(yk_ones(YK_SHAPE(2, 10), NULL), second));
        CHECK(y && yk_device_equal(yk_tensor_device(y), other), "evaluation");
    }
    yk_no_grad_end(before);
}

static void test_device_ids(void **state)
{
    (void)state;
    run_ranks(as_threads(), 2, device_ids, NULL, 10, true);
    run_ranks(as_threads(), 1, device_ids, NULL, 10, true);
    yk_scope scope = yk_scope_begin();
    const yk_device first = test_device(0), both[] = {first, test_device(1)}, none = test_device(2);
    yk_module *one = yk_linear_create(2, 2, NULL), *two = make_split(1);
    const struct {
        yk_module *module;
        const yk_ddp_options *options;
        yk_status code;
        const char *message;
    } cases[] = {
        {one, YK_OPTIONS(yk_ddp_options, .devices = both, .count = 2), YK_ERR_ARGUMENT,
         "ddp: device_ids can only be None or contain a single element, and is [cpu:0, cpu:1]"},
        {two, YK_OPTIONS(yk_ddp_options, .devices = &first, .count = 1), YK_ERR_ARGUMENT,
         "ddp: device_ids and output_device only work with a module on one device, which device_ids names, but got "
         "device_ids [cpu:0], output_device None, and parameters on [cpu:0, cpu:1]"},
        {two, YK_OPTIONS(yk_ddp_options, .devices = both, .count = 2, .output_device = &both[1]), YK_ERR_ARGUMENT,
         "device_ids [cpu:0, cpu:1], output_device cpu:1, and parameters on [cpu:0, cpu:1]"},
        {one, YK_OPTIONS(yk_ddp_options, .output_device = &both[1]), YK_ERR_ARGUMENT,
         "device_ids None, output_device cpu:1"},
        {one, YK_OPTIONS(yk_ddp_options, .devices = &both[1], .count = 1), YK_ERR_DEVICE,
         "ddp: device_ids is [cpu:1], but the module's parameters are on cpu:0"},
        {one, YK_OPTIONS(yk_ddp_options, .devices = &none, .count = 1), YK_ERR_DEVICE,
         "ddp: device cpu:2 does not exist"},
        {one, YK_OPTIONS(yk_ddp_options, .devices = &first, .count = 1, .output_device = &none), YK_ERR_DEVICE,
         "ddp: device cpu:2 does not exist"},
        {one, YK_OPTIONS(yk_ddp_options, .count = 1), YK_ERR_ARGUMENT, "ddp: 1 devices in a list that is NULL"},
        {one, YK_OPTIONS(yk_ddp_options, .devices = both, .count = -1), YK_ERR_ARGUMENT, "ddp: -1 devices"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_null(yk_ddp(cases[i].module, cases[i].options));
        expect_error(cases[i].code, device_text(cases[i].message));
    }
    assert_non_null(yk_ddp(two, YK_OPTIONS(yk_ddp_options, .devices = both))); /* an empty list is none */
    yk_scope_end(scope);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "2", 1); /* one for each device */
    use_devices(2);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_devices), cmocka_unit_test(test_pipelines),
                                       cmocka_unit_test(test_device_ids)};
    return cmocka_run_group_tests_name("ddp_devices", tests, NULL, NULL);
}
