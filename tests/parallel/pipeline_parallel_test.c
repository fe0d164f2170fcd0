/*
 * pipeline_parallel_test.c - pipelines on 2 to 8 logical devices: losses and gradients are the plain run's, and bit by
 * bit those of the micro-batches one after the other; forward and backward; what goes between stages; what is refused.
 */
#include "tests/parallel/pipelines.h"

static const int counts[] = {1, 2, 3, 4, 8};
static const yk_pipeline_schedule schedules[] = {YK_PIPELINE_1F1B, YK_PIPELINE_GPIPE};

/* ---- equal to the plain run -------------------------------------------------------------------------------------- */

static void train_equal_to_plain(int count, int chunks, yk_pipeline_schedule schedule, int64_t batch)
{
    yk_scope scope = yk_scope_begin();
    yk_module *plain = make_plain(false), *pipeline = make_pipeline(count, chunks, schedule, false);
    yk_manual_seed(5);
    yk_optimizer *a = yk_sgd(yk_module_parameters(plain), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    yk_optimizer *b = yk_sgd(yk_module_parameters(pipeline), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9));
    for (int step = 0; step < 3; step++) {
        yk_scope inner = yk_scope_begin();
        yk_tensor *x = randn(YK_SHAPE(batch, 1, 12, 12)), *t = labels_of(batch, 10);
        yk_optimizer_zero_grad(a);
        yk_optimizer_zero_grad(b);
        yk_tensor *whole = yk_cross_entropy(yk_forward(plain, x), t, NULL);
        expect_ok(yk_backward(whole));
        yk_tensor *loss = yk_pipeline_step(pipeline, x, t);
        if (!loss)
            fail_msg("%d stages, %d chunks: %s", count, chunks, yk_last_error()->message);
        assert_false(yk_requires_grad(loss));
        assert_true(yk_device_equal(yk_tensor_device(loss), devices[count - 1]));
        double d = distance(loss, whole), g = grads_apart(pipeline, plain);
        if (!(d <= 1e-12) || !(g <= 1e-12))
            fail_msg("%d stages, %d chunks, batch %d, step %d: the losses are %g apart, the gradients %g", count,
                     chunks, (int)batch, step, d, g);
        expect_ok(yk_optimizer_step(a));
        expect_ok(yk_optimizer_step(b));
        yk_scope_end(inner);
    }
    yk_scope_end(scope);
}

static void losses_and_gradients_of_the_plain_run(void **state)
{
    (void)state;
    static const struct {
        int chunks;
        int64_t batch;
    } cases[] = {{1, 6}, {4, 16}, {4, 13}, {5, 5}, {7, 19}};
    for (int c = 0; c < 5; c++) {
        for (int i = 0; i < 5; i++) {
            for (int k = 0; k < 2; k++)
                train_equal_to_plain(counts[c], cases[i].chunks, schedules[k], cases[i].batch);
        }
    }
}

/* With statistics of the batch, and in any case bit by bit, it is the micro-batches one after the other. */
static void the_bits_of_one_micro_batch_after_the_other(void **state)
{
    (void)state;
    enum { CHUNKS = 5, BATCH = 18 };
    for (int c = 1; c < 5; c++) {
        for (int k = 0; k < 2; k++) {
            yk_scope scope = yk_scope_begin();
            yk_module *plain = make_plain(true), *pipeline = make_pipeline(counts[c], CHUNKS, schedules[k], true);
            yk_manual_seed(6);
            for (int step = 0; step < 2; step++) {
                yk_tensor *x = randn(YK_SHAPE(BATCH, 1, 12, 12)), *t = labels_of(BATCH, 10), *sum = NULL;
                yk_module_zero_grad(plain);
                yk_module_zero_grad(pipeline);
                for (int m = 0; m < CHUNKS; m++) {
                    int64_t start = start_of(BATCH, CHUNKS, m), size = start_of(BATCH, CHUNKS, m + 1) - start;
                    double weight = (double)size / BATCH;
                    yk_tensor *loss = yk_cross_entropy(yk_forward(plain, yk_narrow(x, 0, start, size)),
                                                       yk_narrow(t, 0, start, size), NULL);
                    expect_ok(yk_backward_with(
                        loss, YK_OPTIONS(yk_backward_options,
                                         .gradient = yk_full(YK_SCALAR, weight,
                                                             YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)))));
                    yk_tensor *part = yk_mul_scalar(yk_detach(loss), weight);
                    sum = m ? yk_add(sum, part) : part;
                }
                assert_true(distance(yk_pipeline_step(pipeline, x, t), sum) == 0);
                assert_true(grads_apart(pipeline, plain) == 0);
            }
            yk_state_dict *a = yk_module_state_dict(pipeline), *b = yk_module_state_dict(plain);
            assert_int_equal(yk_state_dict_count(a), yk_state_dict_count(b));
            for (int64_t i = 0; i < yk_state_dict_count(a); i++) /* running statistics, too */
                assert_true(distance(yk_state_dict_at(a, i), yk_state_dict_at(b, i)) == 0);
            yk_scope_end(scope);
        }
    }
}

/* ---- the same bits for any number of threads, dropout included, in both schedules -------------------------------- */

static uint64_t bits_of_training(int threads, yk_pipeline_schedule schedule)
{
    for (int i = 0; i < MOST; i++)
        expect_ok(yk_set_num_threads(devices[i], threads));
    yk_scope scope = yk_scope_begin();
    yk_module *stages[4];
    make_stages(stages, 4, true);
    for (int s = 0; s < 3; s++)
        stages[s] = yk_sequential(stages[s], yk_dropout_create(0.2));
    yk_module *pipeline = pipeline_of(stages, 4, 6, schedule);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(pipeline), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    yk_manual_seed(3);
    uint64_t hash = 14695981039346656037u;
    for (int step = 0; step < 3; step++) {
        yk_optimizer_zero_grad(sgd);
        assert_non_null(yk_pipeline_step(pipeline, randn(YK_SHAPE(22, 1, 12, 12)), labels_of(22, 10)));
        expect_ok(yk_optimizer_step(sgd));
    }
    yk_state_dict *dict = yk_module_state_dict(pipeline);
    for (int64_t i = 0; i < yk_state_dict_count(dict); i++)
        hash = hash_bits(hash, yk_state_dict_at(dict, i));
    yk_scope_end(scope);
    return hash;
}

static void the_same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    uint64_t first = bits_of_training(1, YK_PIPELINE_1F1B);
    for (int threads = 1; threads <= 3; threads++) {
        assert_true(bits_of_training(threads, YK_PIPELINE_1F1B) == first);
        assert_true(bits_of_training(threads, YK_PIPELINE_GPIPE) == first);
    }
    for (int i = 0; i < MOST; i++)
        expect_ok(yk_set_num_threads(devices[i], 1));
}

/* ---- forward, and backward through all stages -------------------------------------------------------------------- */

static void forward_and_backward(void **state)
{
    (void)state;
    for (int c = 0; c < 5; c++) {
        yk_scope scope = yk_scope_begin();
        yk_module *plain = make_plain(false), *pipeline = make_pipeline(counts[c], 4, YK_PIPELINE_GPIPE, false);
        assert_true(yk_is_pipeline(pipeline));
        assert_false(yk_is_pipeline(plain));
        assert_int_equal(yk_pipeline_count(pipeline), counts[c]);
        assert_int_equal(yk_pipeline_count(plain), 0);
        yk_manual_seed(8);
        yk_tensor *x = randn(YK_SHAPE(11, 1, 12, 12)), *t = labels_of(11, 10), *leaves[2];
        for (int i = 0; i < 2; i++) {
            leaves[i] = yk_detach(yk_clone(x));
            expect_ok(yk_set_requires_grad(leaves[i], true));
        }
        yk_device last = devices[counts[c] - 1];
        yk_tensor *y = yk_forward(pipeline, leaves[0]), *z = yk_forward(plain, leaves[1]);
        assert_non_null(y);
        assert_true(yk_device_equal(yk_tensor_device(y), last));
        assert_true(distance(y, z) <= 1e-12);
        expect_ok(yk_backward(yk_cross_entropy(y, yk_to(t, last), NULL)));
        expect_ok(yk_backward(yk_cross_entropy(z, t, NULL)));
        assert_true(grads_apart(pipeline, plain) <= 1e-12);
        assert_true(distance(yk_grad(leaves[0]), yk_grad(leaves[1])) <= 1e-12);
        /* A step adds to the gradients, those of the input too. */
        assert_non_null(yk_pipeline_step(pipeline, leaves[0], t));
        expect_ok(yk_backward(yk_cross_entropy(yk_forward(plain, leaves[1]), t, NULL)));
        assert_true(grads_apart(pipeline, plain) <= 1e-12);
        assert_true(distance(yk_grad(leaves[0]), yk_grad(leaves[1])) <= 1e-12);
        /* Nothing recorded. */
        yk_module_eval(pipeline);
        bool before = yk_no_grad_begin();
        yk_tensor *scores = yk_forward(pipeline, x);
        assert_true(distance(scores, z) <= 1e-12);
        assert_false(yk_requires_grad(scores));
        yk_no_grad_end(before);
        yk_scope_end(scope);
    }
}

/* ---- the caller's modes ------------------------------------------------------------------------------------------ */

static void every_stage_has_the_modes_of_the_caller(void **state)
{
    (void)state;
    for (int count = 2; count <= MOST; count *= 2) {
        yk_scope scope = yk_scope_begin();
        yk_module *stages[MOST];
        for (int s = 0; s < count; s++)
            stages[s] = seeing_module();
        expect_the_modes_of_the_caller(pipeline_of(stages, count, 5, YK_PIPELINE_1F1B), count);
        yk_scope_end(scope);
    }
}

/* Under autocast, too, a step has the bits of the micro-batches one after the other: losses and gradients of f32. */
static void autocast_holds_in_every_stage(void **state)
{
    (void)state;
    enum { CHUNKS = 3, BATCH = 10 };
    for (int i = 0; i < 16; i++) {
        int count = counts[1 + i / 4];
        yk_dtype lower = i & 1 ? YK_F16 : YK_BF16;
        yk_scope scope = yk_scope_begin();
        yk_module *plain = yk_module_to_dtype(make_plain(false), YK_F32);
        yk_module *pipeline = yk_module_to_dtype(make_pipeline(count, CHUNKS, schedules[i / 2 % 2], false), YK_F32);
        yk_manual_seed(12);
        yk_tensor *x = yk_randn(YK_SHAPE(BATCH, 1, 12, 12), NULL), *t = labels_of(BATCH, 10), *sum = NULL;
        yk_tensor *wide = yk_cross_entropy(yk_forward(plain, x), t, NULL);
        yk_autocast before = yk_autocast_begin(test_device_type, lower, NULL);
        for (int m = 0; m < CHUNKS; m++) {
            int64_t start = start_of(BATCH, CHUNKS, m), size = start_of(BATCH, CHUNKS, m + 1) - start;
            double weight = (double)size / BATCH;
            yk_tensor *loss =
                yk_cross_entropy(yk_forward(plain, yk_narrow(x, 0, start, size)), yk_narrow(t, 0, start, size), NULL);
            expect_ok(
                yk_backward_with(loss, YK_OPTIONS(yk_backward_options, .gradient = yk_full(YK_SCALAR, weight, NULL))));
            yk_tensor *part = yk_mul_scalar(yk_detach(loss), weight);
            sum = m ? yk_add(sum, part) : part;
        }
        yk_tensor *loss = yk_pipeline_step(pipeline, x, t), *scores = yk_forward(pipeline, x);
        yk_autocast_end(before);
        assert_int_equal(yk_tensor_dtype(loss), YK_F32);
        assert_int_equal(yk_tensor_dtype(scores), lower);
        assert_true(distance(loss, sum) == 0);
        assert_true(distance(loss, wide) > 0 && distance(loss, wide) < 0.02);
        assert_true(grads_apart(pipeline, plain) == 0);
        assert_int_equal(yk_tensor_dtype(yk_forward(pipeline, x)), YK_F32); /* and no longer than it lasts */
        yk_scope_end(scope);
    }
}

/* ---- tensors between stages -------------------------------------------------------------------------------------- */

/* Gives x W, labels that it was given as they are, and x, of which nobody makes use. */
static yk_status first_of_lists(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                int n_outputs)
{
    if (n_inputs != 3 || n_outputs != 3 || inputs[2])
        return yk_set_error(YK_ERR_ARGUMENT, "other tensors than were given");
    outputs[0] = yk_matmul(inputs[0], yk_module_get(m, "w"));
    outputs[1] = inputs[1];
    outputs[2] = yk_mul_scalar(outputs[0], 2);
    return YK_OK;
}

/* Writes its input in place, as it could where nothing was between. */
static yk_status second_of_lists(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                 int n_outputs)
{
    if (n_inputs != 3 || n_outputs != 2)
        return yk_set_error(YK_ERR_ARGUMENT, "other tensors than were given");
    outputs[0] = yk_matmul(yk_mul_scalar_(inputs[0], 3), yk_module_get(m, "w"));
    outputs[1] = inputs[1];
    return YK_OK;
}

static yk_status third_of_lists(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                int n_outputs)
{
    (void)m, (void)n_inputs;
    if (n_outputs == 2)
        outputs[1] = inputs[1];
    yk_tensor *cost =
        yk_cross_entropy(inputs[0], inputs[1], YK_OPTIONS(yk_cross_entropy_options, .reduction = YK_REDUCE_SUM));
    outputs[0] = n_outputs == 2 ? cost : yk_reshape(cost, YK_SHAPE(1));
    return YK_OK;
}

static const yk_module_class list_classes[] = {{.name = "First", .forward_list = first_of_lists},
                                               {.name = "Second", .forward_list = second_of_lists},
                                               {.name = "Third", .forward_list = third_of_lists}};

static yk_tensor *sum_of(yk_tensor *output, yk_tensor *target, void *user)
{
    *(int *)user += target ? 100 : 1;
    return yk_sum(output);
}

static void several_tensors_between_stages(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(9);
    yk_module *stages[3];
    for (int s = 0; s < 3; s++)
        stages[s] = yk_module_create(&list_classes[s]);
    yk_tensor *v = randn(YK_SHAPE(5, 4)), *w = randn(YK_SHAPE(4, 3));
    yk_module_add_parameter(stages[0], "w", yk_clone(v));
    yk_module_add_parameter(stages[1], "w", yk_clone(w));
    int calls = 0;
    yk_module *pipeline =
        yk_pipeline(stages, 3,
                    YK_OPTIONS(yk_pipeline_options, .devices = devices, .tensors = (int[]){3, 2}, .criterion = sum_of,
                               .criterion_user = &calls, .reduction = YK_REDUCE_SUM));
    assert_non_null(pipeline);
    yk_tensor *x = randn(YK_SHAPE(10, 5)), *t = labels_of(10, 3), *losses[2];
    yk_tensor *loss = yk_pipeline_step_list(pipeline, (yk_tensor *[]){x, t, NULL}, 3, NULL);
    assert_non_null(loss);
    assert_int_equal(calls, 3); /* as many micro-batches as stages */
    expect_ok(yk_set_requires_grad(v, true));
    expect_ok(yk_set_requires_grad(w, true));
    yk_tensor *whole = yk_cross_entropy(yk_matmul(yk_mul_scalar(yk_matmul(x, v), 3), w), t,
                                        YK_OPTIONS(yk_cross_entropy_options, .reduction = YK_REDUCE_SUM));
    expect_ok(yk_backward(whole));
    assert_true(distance(loss, whole) <= 1e-12);
    assert_true(distance(yk_grad(yk_module_get(stages[0], "w")), yk_grad(v)) <= 1e-12);
    assert_true(distance(yk_grad(yk_module_get(stages[1], "w")), yk_grad(w)) <= 1e-12);
    /* Losses of forward: those without dimensions become a vector, others are joined. */
    expect_ok(yk_forward_list(pipeline, (yk_tensor *[]){x, t, NULL}, 3, losses, 2));
    assert_int_equal(yk_ndim(losses[0]), 1);
    assert_int_equal(yk_size(losses[0], 0), 3);
    assert_true(distance(yk_sum(losses[0]), whole) <= 1e-12);
    assert_true(distance(losses[1], t) == 0);
    yk_scope_end(scope);
}

/* Batches in another dimension; frozen stages; a stage on another device than its number. */
static void dimensions_and_frozen_stages(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(10);
    yk_module *stages[3], *plain[3];
    for (int s = 0; s < 3; s++) {
        stages[s] = yk_module_to_dtype(yk_linear_create(6, 6, NULL), YK_F64);
        plain[s] = yk_module_to_dtype(yk_linear_create(6, 6, NULL), YK_F64);
        copy_state(plain[s], stages[s]);
        assert_non_null(yk_module_to(stages[s], devices[7 - 2 * s]));
    }
    expect_ok(yk_module_requires_grad(stages[0], false));
    yk_module *pipeline = yk_pipeline(
        stages, 3, YK_OPTIONS(yk_pipeline_options, .chunks = 4, .dim = -2, .criterion = mean_cross_entropy));
    assert_non_null(pipeline);
    yk_tensor *x = randn(YK_SHAPE(3, 9, 6)), *y = x;
    for (int s = 0; s < 3; s++)
        y = yk_forward(plain[s], y);
    yk_tensor *out = yk_forward(pipeline, x);
    assert_true(yk_device_equal(yk_tensor_device(out), devices[3]));
    assert_true(distance(out, y) <= 1e-13);
    yk_module *rows = yk_pipeline(stages, 3, YK_OPTIONS(yk_pipeline_options, .criterion = mean_cross_entropy));
    x = randn(YK_SHAPE(7, 6));
    yk_tensor *t = labels_of(7, 6);
    assert_non_null(yk_pipeline_step(rows, x, t));
    y = x;
    for (int s = 0; s < 3; s++)
        y = yk_forward(plain[s], y);
    expect_ok(yk_backward(yk_cross_entropy(y, t, NULL)));
    assert_null(yk_grad(yk_module_get(stages[0], "weight")));
    assert_true(grads_apart(stages[1], plain[1]) <= 1e-12);
    assert_true(grads_apart(stages[2], plain[2]) <= 1e-12);
    /* All of it frozen: there is nothing to go backward through. */
    expect_ok(yk_module_requires_grad(pipeline, false));
    assert_null(yk_pipeline_step(rows, x, t));
    assert_non_null(strstr(yk_last_error()->message, device_text("stage 2 on cpu:3: micro-batch 0: backward: ")));
    yk_clear_error();
    yk_scope_end(scope);
}

/* Saved and loaded under the stages' numbers; a layer that is replaced takes part. */
static void a_module_like_others(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *pipeline = make_pipeline(2, 3, YK_PIPELINE_1F1B, false), *other = make_pipeline(2, 2, 1, false);
    yk_state_dict *dict = yk_module_state_dict(pipeline);
    assert_string_equal(yk_state_dict_name(dict, 0), "0.0.weight");
    expect_ok(yk_module_load_state_dict(other, dict, NULL, NULL));
    yk_module_eval(pipeline);
    assert_false(yk_module_is_training(yk_module_child(pipeline, 1)));
    yk_module *wider = yk_module_to(yk_module_to_dtype(yk_linear_create(20, 12, NULL), YK_F64), devices[1]);
    yk_module_add(yk_module_child(pipeline, 1), "3", wider);
    yk_tensor *y = yk_forward(pipeline, randn(YK_SHAPE(5, 1, 12, 12)));
    assert_non_null(y);
    assert_int_equal(yk_size(y, 1), 12);
    yk_scope_end(scope);
}

/* ---- refused arguments ------------------------------------------------------------------------------------------- */

static void what_cannot_be_made(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *stages[3];
    make_stages(stages, 3, false);
    const struct {
        const yk_pipeline_options *options;
        int count;
        yk_status code;
        const char *message;
    } cases[] = {
        {YK_OPTIONS(yk_pipeline_options, .devices = devices), 0, YK_ERR_ARGUMENT,
         "pipeline: 0 stages; 1 to 64 are possible"},
        {YK_OPTIONS(yk_pipeline_options, .devices = devices), -1, YK_ERR_ARGUMENT, "pipeline: -1 stages"},
        {YK_OPTIONS(yk_pipeline_options, .devices = devices), 65, YK_ERR_ARGUMENT, "pipeline: 65 stages"},
        {YK_OPTIONS(yk_pipeline_options, .devices = devices, .chunks = -2), 3, YK_ERR_ARGUMENT,
         "pipeline: chunks is -2"},
        {YK_OPTIONS(yk_pipeline_options, .devices = devices, .schedule = 7), 3, YK_ERR_ARGUMENT,
         "pipeline: 7 is no schedule"},
        {YK_OPTIONS(yk_pipeline_options, .devices = devices, .reduction = YK_REDUCE_NONE), 3, YK_ERR_ARGUMENT,
         "neither a mean nor a sum"},
        {YK_OPTIONS(yk_pipeline_options, .devices = devices, .dim = 8), 3, YK_ERR_ARGUMENT,
         "no tensor has a dimension 8"},
        {YK_OPTIONS(yk_pipeline_options, .devices = devices, .tensors = (int[]){1, 0}), 3, YK_ERR_ARGUMENT,
         "stage 1 hands on 0 tensors"},
        {YK_OPTIONS(yk_pipeline_options, .devices = (yk_device[]){devices[0], test_device(8), devices[1]}), 3,
         YK_ERR_DEVICE, "pipeline: device cpu:8 does not exist: there are 8 cpu devices"},
        {YK_OPTIONS(yk_pipeline_options, .devices = (yk_device[]){devices[0], devices[1], devices[0]}), 3,
         YK_ERR_DEVICE, "pipeline: cpu:0 is named twice, as devices 0 and 2"},
        {YK_OPTIONS(yk_pipeline_options, .chunks = 2), 3, YK_ERR_DEVICE,
         "pipeline: cpu:0 is named twice, as devices 0 and 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_null(yk_pipeline(stages, cases[i].count, cases[i].options));
        expect_error(cases[i].code, device_text(cases[i].message));
    }
    const yk_pipeline_options on = *YK_OPTIONS(yk_pipeline_options, .devices = devices);
    assert_null(yk_pipeline(NULL, 2, &on));
    expect_error(YK_ERR_ARGUMENT, "pipeline: stages is NULL");
    assert_null(yk_pipeline((yk_module *[]){stages[0], NULL}, 2, &on));
    expect_error(YK_ERR_ARGUMENT, "pipeline: the module is NULL");
    assert_null(yk_pipeline((yk_module *[]){stages[0], stages[1], stages[0]}, 3, &on));
    expect_error(YK_ERR_ARGUMENT, "pipeline: stages 0 and 2 are one module");
    yk_module *a = yk_linear_create(4, 4, NULL), *b = yk_sequential(yk_linear_create(4, 4, NULL));
    yk_module_add_parameter(yk_module_child(b, 0), "weight", yk_module_get(a, "weight"));
    assert_null(yk_pipeline((yk_module *[]){a, b}, 2, &on));
    expect_error(YK_ERR_ARGUMENT,
                 "pipeline: weight of stage 0 and 0.weight of stage 1 are one tensor, which cannot be on two devices");
    assert_null(yk_pipeline((yk_module *[]){a, yk_relu_create()}, 2, NULL));
    expect_error(YK_ERR_ARGUMENT, "pipeline: stage 1 has neither parameters nor buffers that would tell its device");
    yk_module *mixed = yk_sequential(yk_linear_create(4, 4, NULL), yk_linear_create(4, 4, NULL));
    assert_non_null(yk_module_to(yk_module_child(mixed, 1), devices[2]));
    assert_null(yk_pipeline((yk_module *[]){mixed}, 1, NULL));
    expect_error(YK_ERR_DEVICE, device_text("pipeline: stage 0 is on cpu:0, but its 1.weight is on cpu:2"));
    assert_null(yk_pipeline((yk_module *[]){yk_ddp(yk_linear_create(2, 2, NULL), NULL)}, 1, NULL));
    expect_error(YK_ERR_STATE, "pipeline: stage 0 has a module of yk_ddp in it");
    yk_scope_end(scope);
}

static void what_cannot_be_run(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *pipeline = make_pipeline(3, 4, YK_PIPELINE_1F1B, false);
    yk_tensor *x = randn(YK_SHAPE(6, 1, 12, 12)), *t = labels_of(6, 10);
    const struct {
        yk_tensor *x, *t;
        yk_status code;
        const char *message;
    } cases[] = {
        {yk_narrow(x, 0, 0, 3), yk_narrow(t, 0, 0, 3), YK_ERR_SHAPE,
         "pipeline_step: input 0 has shape (3, 1, 12, 12), fewer samples along dimension 0 than the 4 micro-batches"},
        {x, yk_narrow(t, 0, 0, 5), YK_ERR_SHAPE,
         "pipeline_step: the target has shape (5), but the batch has 6 samples along dimension 0"},
        {yk_scalar(1, NULL), t, YK_ERR_SHAPE, "pipeline_step: input 0 has no dimensions"},
        {x, yk_scalar(1, NULL), YK_ERR_SHAPE, "pipeline_step: the target has no dimensions"},
        {NULL, t, YK_ERR_ARGUMENT, "pipeline_step: the input is NULL"},
        {yk_narrow(x, 0, 0, 0), t, YK_ERR_SHAPE, "fewer samples"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_null(yk_pipeline_step(pipeline, cases[i].x, cases[i].t));
        expect_error(cases[i].code, cases[i].message);
    }
    assert_null(yk_pipeline_step_list(pipeline, (yk_tensor *[]){NULL}, 1, t));
    expect_error(YK_ERR_ARGUMENT, "pipeline_step: there is no tensor to split");
    assert_null(yk_pipeline_step_list(pipeline, NULL, 1, t));
    expect_error(YK_ERR_ARGUMENT, "pipeline_step: the list of inputs is NULL");
    assert_null(yk_pipeline_step_list(pipeline, (yk_tensor *[]){x, randn(YK_SHAPE(7, 2))}, 2, t));
    expect_error(YK_ERR_SHAPE, "pipeline_step: input 1 has shape (7, 2), but the batch has 6 samples");
    assert_null(yk_forward(pipeline, yk_narrow(x, 0, 0, 2)));
    expect_error(YK_ERR_SHAPE, "pipeline: input 0 has shape (2, 1, 12, 12), fewer samples");
    yk_module *plain = make_plain(false);
    assert_null(yk_pipeline_step(plain, x, t));
    expect_error(YK_ERR_ARGUMENT, "pipeline_step: the module is a Sequential, not one of yk_pipeline");
    assert_null(yk_pipeline_step(NULL, x, t));
    expect_error(YK_ERR_ARGUMENT, "pipeline_step: the module is NULL");
    bool before = yk_no_grad_begin();
    assert_null(yk_pipeline_step(pipeline, x, t));
    expect_error(YK_ERR_STATE, "pipeline_step: nothing is recorded here");
    yk_no_grad_end(before);
    yk_module *stages[2];
    make_stages(stages, 2, false);
    yk_module *without = yk_pipeline(stages, 2, YK_OPTIONS(yk_pipeline_options, .devices = devices));
    assert_null(yk_pipeline_step(without, x, t));
    expect_error(YK_ERR_ARGUMENT, "pipeline_step: the pipeline was made without a criterion");
    yk_module *far = yk_pipeline(stages, 2, YK_OPTIONS(yk_pipeline_options, .devices = devices, .dim = 4));
    assert_null(yk_forward(far, x));
    expect_error(YK_ERR_SHAPE, "dimension 4 is outside [-4, 3] of shape (6, 1, 12, 12)");
    /* A stage that has been moved since. */
    assert_non_null(yk_module_to(yk_module_child(stages[1], 0), devices[0]));
    assert_null(yk_forward(without, x));
    expect_error(YK_ERR_DEVICE, device_text("pipeline: stage 1 is on cpu:1, but its 0.0.weight is on cpu:0"));
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(8);
    setenv("OMP_NUM_THREADS", "8", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_of_the_plain_run),
        cmocka_unit_test(the_bits_of_one_micro_batch_after_the_other),
        cmocka_unit_test(the_same_bits_for_any_number_of_threads),
        cmocka_unit_test(forward_and_backward),
        cmocka_unit_test(every_stage_has_the_modes_of_the_caller),
        cmocka_unit_test(autocast_holds_in_every_stage),
        cmocka_unit_test(several_tensors_between_stages),
        cmocka_unit_test(dimensions_and_frozen_stages),
        cmocka_unit_test(a_module_like_others),
        cmocka_unit_test(what_cannot_be_made),
        cmocka_unit_test(what_cannot_be_run),
    };
    return cmocka_run_group_tests_name("parallel/pipeline_parallel", tests, NULL, NULL);
}
