/*
 * pipeline_group_test.c - pipelines over several processes: losses, gradients, weights and statistics are bit by bit
 * those of the pipeline in one process; inside DDP; checkpoints; what is refused; ranks and stages that fail.
 */
#include "tests/comm/ranks.h"
#include "tests/parallel/pipelines.h"

static const yk_pipeline_schedule schedules[] = {YK_PIPELINE_1F1B, YK_PIPELINE_GPIPE};

static bool same_bits(yk_tensor *a, yk_tensor *b)
{
    if (!a || !b)
        return a == b;
    size_t bytes = (size_t)yk_numel(a) * yk_dtype_size(yk_tensor_dtype(a));
    if (!yk_same_shape(a, b) || yk_tensor_dtype(a) != yk_tensor_dtype(b))
        return false;
    char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    bool same = !yk_tensor_read(a, x, bytes) && !yk_tensor_read(b, y, bytes) && memcmp(x, y, bytes) == 0;
    free(x);
    free(y);
    return same;
}

/* The first name of this rank's state dict whose values, or gradient, are not those of `whole`; NULL for none. */
static const char *first_difference(yk_module *part, yk_module *whole)
{
    yk_state_dict *a = yk_module_state_dict(part);
    for (int64_t i = 0; i < yk_state_dict_count(a); i++) {
        const char *name = yk_state_dict_name(a, i);
        yk_tensor *x = yk_module_get(part, name), *y = yk_module_get(whole, name);
        if (!x || !y || !same_bits(x, y) || !same_bits(yk_grad(x), yk_grad(y)))
            return name;
    }
    return yk_state_dict_count(a) ? NULL : "the empty list";
}

typedef struct setting {
    int stages, chunks;
    yk_pipeline_schedule schedule;
    bool dropout;
} setting;

/* The pipeline in one process (`group` NULL) or of the group, whose ranks have consecutive devices for their stages. */
static yk_module *pipeline_in(const setting *s, yk_process_group *group)
{
    yk_module *stages[LAYERS];
    yk_device on[LAYERS];
    int first;
    yk_pipeline_local(s->stages, group, &first);
    make_stages(stages, s->stages, true);
    for (int i = 0; i < s->stages; i++) {
        if (s->dropout && i < s->stages - 1)
            stages[i] = yk_sequential(stages[i], yk_dropout_create(0.2));
        on[i] = i < first ? devices[0] : devices[i - first];
    }
    return yk_pipeline(stages, s->stages,
                       YK_OPTIONS(yk_pipeline_options, .devices = on, .chunks = s->chunks, .schedule = s->schedule,
                                  .criterion = mean_cross_entropy, .group = group));
}

/* ---- the bits of one process ------------------------------------------------------------------------------------- */

static void train_and_compare(rank_context *c, const setting *s)
{
    yk_module *whole = pipeline_in(s, NULL), *part = pipeline_in(s, c->group);
    CHECK(whole && part, "%s", yk_last_error()->message);
    CHECK(yk_is_pipeline(part) && yk_pipeline_count(part) == s->stages, "%d stages", yk_pipeline_count(part));
    int first, own = yk_pipeline_local(s->stages, c->group, &first);
    yk_optimizer *a = yk_sgd(yk_module_parameters(whole), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    yk_optimizer *b = yk_sgd(yk_module_parameters(part), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    bool last = c->rank == c->size - 1;
    static const int64_t batches[] = {8, 11, 9}; /* one that divides, and ragged ones */
    for (int step = 0; step < 3; step++) {
        yk_scope scope = yk_scope_begin();
        yk_manual_seed(50 + (uint64_t)step);
        yk_tensor *x = randn(YK_SHAPE(batches[step], 1, 12, 12)), *t = labels_of(batches[step], 10);
        yk_optimizer_zero_grad(a);
        yk_optimizer_zero_grad(b);
        yk_manual_seed(70 + (uint64_t)step);
        yk_tensor *one = yk_pipeline_step(whole, x, t);
        CHECK(one, "%s", yk_last_error()->message);
        yk_random_state after = yk_random_get_state();
        /* The first rank's generator counts, and those are looked at who have the first and the last stage. */
        yk_manual_seed(70 + (uint64_t)step + 1000 * (uint64_t)c->rank);
        yk_tensor *loss = yk_pipeline_step(part, c->rank ? NULL : x, last ? t : NULL);
        CHECK(loss, "%s", yk_last_error()->message);
        CHECK(c->rank || yk_random_get_state().calls == after.calls, "%u calls, not %u", yk_random_get_state().calls,
              after.calls);
        CHECK(same_bits(loss, one), "step %d: loss %.17g, not %.17g", step, yk_item(loss), yk_item(one));
        CHECK(yk_device_equal(yk_tensor_device(loss), devices[own - 1]) && !yk_requires_grad(loss), "its device");
        const char *name = first_difference(part, whole);
        CHECK(!name, "step %d: gradient of %s", step, name);
        CHECK_OK(yk_optimizer_step(a));
        CHECK_OK(yk_optimizer_step(b));
        name = first_difference(part, whole);
        CHECK(!name, "after step %d: %s", step, name);
        yk_scope_end(scope);
    }
    /* Evaluated, with what follows on the generator the same, too. */
    yk_module_eval(whole);
    yk_module_eval(part);
    bool before = yk_no_grad_begin();
    yk_tensor *x = randn(YK_SHAPE(7, 1, 12, 12)), *y = yk_forward(whole, x), *z = NULL;
    CHECK_OK(yk_forward_list(part, (yk_tensor *[]){c->rank ? NULL : x}, 1, &z, 1));
    if (last)
        CHECK(c->rank == 0 || yk_numel(z) == yk_numel(y), "the outputs have %lld elements", (long long)yk_numel(z));
    else
        CHECK(yk_ndim(z) == 2 && yk_size(z, 0) == 0 && yk_size(z, 1) == 10 && yk_tensor_dtype(z) == YK_F64,
              "outputs of another rank");
    yk_no_grad_end(before);
}

static void equal_to_one_process(rank_context *c)
{
    const setting *s = c->arg;
    for (int k = 0; k < 2; k++) {
        setting other = *s;
        other.schedule = schedules[k];
        train_and_compare(c, &other);
        if (c->failure[0])
            return;
    }
}

/* The outputs of forward are those of one process where both are given the same input. */
static void evaluate_and_compare(rank_context *c)
{
    setting s = {.stages = c->size, .chunks = 3};
    yk_module *whole = pipeline_in(&s, NULL), *part = pipeline_in(&s, c->group);
    CHECK(whole && part, "%s", yk_last_error()->message);
    bool before = yk_no_grad_begin();
    for (int step = 0; step < 2; step++) {
        yk_manual_seed(4);
        yk_tensor *x = randn(YK_SHAPE(7 + step, 1, 12, 12)), *y = yk_forward(whole, x), *z = yk_forward(part, x);
        CHECK(y && z, "%s", yk_last_error()->message);
        CHECK(c->rank < c->size - 1 || same_bits(y, z), "other outputs");
        CHECK(!first_difference(part, whole), "statistics of %s", first_difference(part, whole));
    }
    yk_no_grad_end(before);
    CHECK_FAILS(yk_forward(part, randn(YK_SHAPE(7, 1, 12, 12))), YK_ERR_STATE,
                "pipeline: operations are recorded, but yk_backward does not go through the",
                "train by yk_pipeline_step");
}

static void bits_of_one_process(void **state)
{
    (void)state;
    if (!FORKS_THREADS)
        return;
    static const setting settings[] = {{.stages = 2, .chunks = 4, .dropout = true},
                                       {.stages = 3, .chunks = 5, .dropout = true},
                                       {.stages = 4, .chunks = 3}};
    run_ranks(PROCESSES, 2, equal_to_one_process, &settings[0], patience(30), true);
    run_ranks(PROCESSES, 2, equal_to_one_process, &settings[1], patience(30), true); /* two stages on rank 0 */
    run_ranks(PROCESSES, 3, equal_to_one_process, &settings[1], patience(30), true);
    run_ranks(PROCESSES, 3, equal_to_one_process, &settings[2], patience(30), true);
    run_ranks(PROCESSES, 2, evaluate_and_compare, NULL, patience(30), true);
    test_layout = EACH_ALONE;
    run_ranks(PROCESSES, 3, equal_to_one_process, &settings[1], patience(30), true);
    test_layout = ONE_HOST;
}

/* ---- as threads, each on its own device -------------------------------------------------------------------------- */

/* Linear layers of values that their index and place alone decide: threads share the process's generator. */
static yk_module *known_stage(int s)
{
    yk_module *m = yk_module_to_dtype(yk_sequential(yk_linear_create(6, 6, NULL), yk_tanh_create()), YK_F64);
    bool before = yk_no_grad_begin();
    double values[36];
    for (int i = 0; i < 36; i++)
        values[i] = sin(1.7 * i + s);
    if (yk_tensor_write(yk_module_get(m, "0.weight"), values, sizeof(values)) ||
        yk_tensor_write(yk_module_get(m, "0.bias"), values, 6 * sizeof(double)))
        m = NULL;
    yk_no_grad_end(before);
    return m;
}

static yk_tensor *known_batch(int64_t samples)
{
    double values[6 * 64];
    for (int64_t i = 0; i < 6 * samples; i++)
        values[i] = cos(0.3 * (double)i);
    return yk_from_data(values, 2, (int64_t[]){samples, 6}, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
}

static yk_tensor *mean_square(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)user;
    return yk_mse_loss(output, target, YK_REDUCE_MEAN);
}

static yk_module *known_pipeline(rank_context *c, int chunks, yk_pipeline_schedule schedule)
{
    yk_module *stages[MOST_TEST_RANKS] = {0};
    yk_device on[MOST_TEST_RANKS];
    for (int s = 0; s < c->size; s++)
        on[s] = devices[c->process ? 0 : s];
    stages[c->rank] = known_stage(c->rank);
    return yk_pipeline(stages, c->size,
                       YK_OPTIONS(yk_pipeline_options, .devices = on, .chunks = chunks, .schedule = schedule,
                                  .criterion = c->rank == c->size - 1 ? mean_square : NULL, .group = c->group));
}

/* The bits of the micro-batches one after the other, through layers on this rank's device alone. */
static void known_bits(rank_context *c)
{
    for (int k = 0; k < 2; k++) {
        yk_scope scope = yk_scope_begin();
        yk_device here = devices[c->process ? 0 : c->rank];
        yk_module *part = known_pipeline(c, 4, schedules[k]), *layers[MOST_TEST_RANKS];
        CHECK(part, "%s", yk_last_error()->message);
        for (int s = 0; s < c->size; s++)
            layers[s] = yk_module_to(known_stage(s), here);
        yk_tensor *x = yk_to(known_batch(10), here), *t = yk_sin(x), *sum = NULL;
        for (int m = 0; m < 4; m++) {
            int64_t start = start_of(10, 4, m), size = start_of(10, 4, m + 1) - start;
            yk_tensor *y = yk_narrow(x, 0, start, size);
            for (int s = 0; s < c->size; s++)
                y = yk_forward(layers[s], y);
            yk_tensor *loss = yk_mse_loss(y, yk_narrow(t, 0, start, size), YK_REDUCE_MEAN);
            CHECK_OK(yk_backward_with(
                loss, YK_OPTIONS(yk_backward_options,
                                 .gradient = yk_full(YK_SCALAR, (double)size / 10,
                                                     YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = here)))));
            yk_tensor *weighted = yk_mul_scalar(yk_detach(loss), (double)size / 10);
            sum = m ? yk_add(sum, weighted) : weighted;
        }
        yk_tensor *loss = yk_pipeline_step(part, x, t);
        CHECK(loss, "%s", yk_last_error()->message);
        CHECK(same_bits(loss, sum), "loss %.17g, not %.17g", yk_item(loss), yk_item(sum));
        yk_module *own = yk_module_child(part, 0);
        CHECK(!first_difference(own, layers[c->rank]), "%s", first_difference(own, layers[c->rank]));
        yk_scope_end(scope);
    }
}

static void ranks_as_threads(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++)
        run_ranks(THREADS, size, known_bits, NULL, patience(30), true);
    run_ranks(PROCESSES, 3, known_bits, NULL, patience(30), true);
}

/* ---- tensors between the stages ---------------------------------------------------------------------------------- */

/* x W transposed in memory, the labels as they came, a tensor without samples, and one of which nobody makes use. */
static yk_status first_of_lists(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                int n_outputs)
{
    if (n_inputs != 2 || n_outputs != 4)
        return yk_set_error(YK_ERR_ARGUMENT, "%d inputs and %d outputs", n_inputs, n_outputs);
    outputs[0] = yk_transpose(yk_matmul(yk_module_get(m, "w"), yk_transpose(inputs[0], 0, 1)), 0, 1);
    outputs[1] = inputs[1];
    outputs[2] = yk_narrow(inputs[0], 0, 0, 0);
    outputs[3] = yk_mul_scalar(outputs[0], 2);
    return YK_OK;
}

/* Writes its input in place, and takes every second column of the product. */
static yk_status second_of_lists(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                 int n_outputs)
{
    if (n_inputs != 4 || n_outputs != 2 || yk_size(inputs[2], 0) || yk_tensor_dtype(inputs[1]) != YK_I64 ||
        yk_is_contiguous(inputs[0]))
        return yk_set_error(YK_ERR_ARGUMENT, "%d inputs and %d outputs", n_inputs, n_outputs);
    outputs[0] = yk_slice(yk_matmul(yk_mul_scalar_(inputs[0], 3), yk_module_get(m, "w")), 1, 0, 6, 2);
    outputs[1] = inputs[1];
    return YK_OK;
}

static yk_status third_of_lists(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                int n_outputs)
{
    (void)m, (void)n_inputs, (void)n_outputs;
    outputs[0] =
        yk_cross_entropy(inputs[0], inputs[1], YK_OPTIONS(yk_cross_entropy_options, .reduction = YK_REDUCE_SUM));
    return YK_OK;
}

static const yk_module_class list_classes[] = {{.name = "First", .forward_list = first_of_lists},
                                               {.name = "Second", .forward_list = second_of_lists},
                                               {.name = "Third", .forward_list = third_of_lists}};

static yk_tensor *sum_of(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)target, (void)user;
    return yk_sum(output);
}

static yk_module *lists_pipeline(yk_process_group *group)
{
    yk_module *stages[3];
    for (int s = 0; s < 3; s++)
        stages[s] = yk_module_create(&list_classes[s]);
    yk_manual_seed(9);
    yk_module_add_parameter(stages[0], "w", randn(YK_SHAPE(4, 5)));
    yk_module_add_parameter(stages[1], "w", randn(YK_SHAPE(4, 6)));
    yk_device on[3] = {devices[0], devices[1], devices[2]};
    return yk_pipeline(stages, 3,
                       YK_OPTIONS(yk_pipeline_options, .devices = on, .chunks = 4, .tensors = (int[]){4, 2},
                                  .criterion = sum_of, .reduction = YK_REDUCE_SUM, .group = group));
}

static void lists_between_ranks(rank_context *c)
{
    yk_module *whole = lists_pipeline(NULL), *part = lists_pipeline(c->group);
    CHECK(whole && part, "%s", yk_last_error()->message);
    yk_manual_seed(10);
    yk_tensor *inputs[] = {randn(YK_SHAPE(9, 5)), labels_of(9, 3)};
    CHECK_OK(yk_set_requires_grad(inputs[0], true));
    yk_tensor *other = yk_detach(yk_clone(inputs[0]));
    CHECK_OK(yk_set_requires_grad(other, true));
    yk_tensor *one = yk_pipeline_step_list(whole, inputs, 2, NULL);
    yk_tensor *loss = yk_pipeline_step_list(part, (yk_tensor *[]){other, inputs[1]}, 2, NULL);
    CHECK(one && loss, "%s", yk_last_error()->message);
    CHECK(same_bits(one, loss), "loss %.17g, not %.17g", yk_item(loss), yk_item(one));
    const char *name = c->rank < 2 ? first_difference(part, whole) : NULL;
    CHECK(!name, "%s", name);
    CHECK(c->rank || same_bits(yk_grad(other), yk_grad(inputs[0])), "the gradient of the input");
}

static void several_tensors_between_ranks(void **state)
{
    (void)state;
    if (FORKS_THREADS)
        run_ranks(PROCESSES, 3, lists_between_ranks, NULL, patience(30), true);
}

/* ---- inside DDP -------------------------------------------------------------------------------------------------- */

/* Leaves the mean of the gradients of both in both, as DDP of two ranks does. */
static yk_status average(yk_module *a, yk_module *b)
{
    yk_parameters *p = yk_module_parameters(a), *q = yk_module_parameters(b);
    bool before = yk_no_grad_begin();
    for (int64_t i = 0; i < yk_parameters_count(p); i++) {
        yk_tensor *x = yk_grad(yk_parameters_at(p, i)), *y = yk_grad(yk_parameters_at(q, i));
        yk_tensor *mean = yk_div_scalar(yk_add(x, y), 2);
        yk_copy_(x, mean);
        yk_copy_(y, mean);
    }
    yk_no_grad_end(before);
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

static yk_status copy_buffers(yk_module *to, yk_module *from)
{
    yk_state_dict *a = yk_module_state_dict(to), *b = yk_module_state_dict(from);
    bool before = yk_no_grad_begin();
    for (int64_t i = 0; i < yk_state_dict_count(a); i++) {
        if (!yk_requires_grad(yk_module_get(to, yk_state_dict_name(a, i))))
            yk_copy_(yk_state_dict_at(a, i), yk_state_dict_at(b, i));
    }
    yk_no_grad_end(before);
    return yk_last_error() ? yk_last_error()->code : YK_OK;
}

/* Ranks 0 and 1 are the stages of one pipeline, 2 and 3 of another, over the same layers; or each of two ranks has a
 * pipeline of two stages in itself. Each replica has its part of the batch. */
static void pipelines_in_ddp(rank_context *c)
{
    bool over = c->size == 4;
    yk_process_group *pipelines[2] = {0}, *stages[2] = {c->group};
    for (int i = 0; i < 2 && over; i++) {
        pipelines[i] = yk_new_group(c->group, 2, (int[]){2 * i, 2 * i + 1});
        stages[i] = yk_new_group(c->group, 2, (int[]){i, 2 + i});
    }
    setting s = {.stages = 2, .chunks = 4};
    int replica = over ? c->rank / 2 : c->rank;
    yk_module *whole[2] = {pipeline_in(&s, NULL), pipeline_in(&s, NULL)};
    yk_module *part = pipeline_in(&s, over ? pipelines[replica] : NULL);
    yk_module *ddp = yk_ddp(part, YK_OPTIONS(yk_ddp_options, .group = stages[over ? c->rank % 2 : 0],
                                             .bucket_cap_mb = 0.01, .first_bucket_mb = 0.001));
    CHECK(ddp, "%s", yk_last_error()->message);
    yk_optimizer *own = yk_sgd(yk_module_parameters(ddp), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    yk_optimizer *of[2];
    for (int r = 0; r < 2; r++)
        of[r] = yk_sgd(yk_module_parameters(whole[r]), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    for (int step = 0; step < 6; step++) {
        yk_scope scope = yk_scope_begin();
        bool accumulates = step == 2; /* without synchronisation: the next step averages what both gave */
        yk_manual_seed(30 + (uint64_t)step);
        yk_tensor *x = randn(YK_SHAPE(20, 1, 12, 12)), *t = labels_of(20, 10);
        if (step != 3) {
            yk_optimizer_zero_grad(own);
            yk_optimizer_zero_grad(of[0]);
            yk_optimizer_zero_grad(of[1]);
        }
        if (!accumulates)
            CHECK_OK(copy_buffers(whole[1], whole[0]));
        yk_tensor *losses[2];
        for (int r = 0; r < 2; r++)
            losses[r] =
                yk_pipeline_step(whole[r], yk_narrow(x, 0, 9 * r, 9 + 2 * r), yk_narrow(t, 0, 9 * r, 9 + 2 * r));
        int64_t from = 9 * replica, size = 9 + 2 * replica;
        bool before = accumulates && yk_no_sync_begin(ddp);
        yk_tensor *loss = yk_pipeline_step(ddp, yk_narrow(x, 0, from, size), yk_narrow(t, 0, from, size));
        if (accumulates)
            yk_no_sync_end(ddp, before);
        CHECK(loss, "%s", yk_last_error()->message);
        CHECK(same_bits(loss, losses[replica]), "step %d: loss %.17g, not %.17g", step, yk_item(loss),
              yk_item(losses[replica]));
        if (!accumulates)
            CHECK_OK(average(whole[0], whole[1]));
        const char *name = first_difference(part, whole[replica]);
        CHECK(!name, "step %d: gradient of %s", step, name);
        if (!accumulates) {
            CHECK_OK(yk_optimizer_step(own));
            CHECK_OK(yk_optimizer_step(of[0]));
            CHECK_OK(yk_optimizer_step(of[1]));
        }
        name = first_difference(part, whole[replica]);
        CHECK(!name, "after step %d: %s", step, name);
        yk_scope_end(scope);
    }
    yk_ddp_times mine;
    CHECK_OK(yk_ddp_report_local(ddp, &mine));
    CHECK(mine.steps == 5, "%lld synchronised steps", (long long)mine.steps);
}

/* A replica whose batch is refused takes the other with it: that waits for its gradients. */
static void refused_in_ddp(rank_context *c)
{
    yk_process_group *pipelines[2], *stages[2];
    for (int i = 0; i < 2; i++) {
        pipelines[i] = yk_new_group(c->group, 2, (int[]){2 * i, 2 * i + 1});
        stages[i] = yk_new_group(c->group, 2, (int[]){i, 2 + i});
    }
    setting s = {.stages = 2, .chunks = 4};
    yk_module *ddp =
        yk_ddp(pipeline_in(&s, pipelines[c->rank / 2]), YK_OPTIONS(yk_ddp_options, .group = stages[c->rank % 2]));
    CHECK(ddp, "%s", yk_last_error()->message);
    int64_t size = c->rank < 2 ? 3 : 8; /* three samples for four micro-batches */
    yk_tensor *x = yk_ones(YK_SHAPE(size, 1, 12, 12), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    double began = yk__now();
    CHECK(!yk_pipeline_step(ddp, x, labels_of(size, 10)), "a step");
    CHECK(yk__now() - began < patience(10), "it took %.1f s", yk__now() - began);
    CHECK(strstr(yk_last_error()->message, "fewer samples along dimension 0 than the 4 micro-batches"), "%s",
          yk_last_error()->message);
    yk_clear_error();
}

static void inside_ddp(void **state)
{
    (void)state;
    if (!FORKS_THREADS)
        return;
    run_ranks(PROCESSES, 4, pipelines_in_ddp, NULL, patience(30), true);
    run_ranks(PROCESSES, 2, pipelines_in_ddp, NULL, patience(30), true);
    run_ranks(PROCESSES, 4, refused_in_ddp, NULL, patience(30), true);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* This rank's tensors under the names that they have in one process. */
static yk_shard *shards_of(yk_state_dict *dict)
{
    yk_shard *shards = calloc((size_t)yk_state_dict_count(dict), sizeof(*shards));
    for (int64_t i = 0; i < yk_state_dict_count(dict); i++)
        shards[i] = (yk_shard){.name = yk_state_dict_name(dict, i), .part = yk_state_dict_at(dict, i)};
    return shards;
}

static void saved_by_one_loaded_by_the_other(rank_context *c)
{
    const char *dir = c->arg;
    setting s = {.stages = 3, .chunks = 3};
    yk_module *whole = pipeline_in(&s, NULL), *part = pipeline_in(&s, c->group), *again = pipeline_in(&s, c->group);
    CHECK(whole && part && again, "%s", yk_last_error()->message);
    yk_tensor *x = yk_ones(YK_SHAPE(6, 1, 12, 12), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)),
              *t = labels_of(6, 10);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(part), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    CHECK(yk_pipeline_step(part, x, t), "%s", yk_last_error()->message);
    CHECK_OK(yk_optimizer_step(sgd));
    yk_module_zero_grad(part);
    yk_state_dict *own = yk_module_state_dict(part);
    yk_shard *shards = shards_of(own);
    CHECK_OK(yk_sharded_save(dir, shards, yk_state_dict_count(own), NULL, c->group));
    free(shards);
    /* The whole pipeline in one process, from all ranks' files. */
    CHECK_OK(yk_module_load_state_dict(whole, yk_sharded_load_whole(dir, test_device(0)), NULL, NULL));
    CHECK(!first_difference(part, whole), "%s", first_difference(part, whole));
    /* Each rank its own stages. */
    own = yk_module_state_dict(again);
    shards = shards_of(own);
    CHECK_OK(yk_sharded_load(dir, shards, yk_state_dict_count(own), c->group));
    free(shards);
    CHECK(!first_difference(again, part), "%s", first_difference(again, part));
}

static void checkpoints(void **state)
{
    (void)state;
    char folder[] = "/tmp/yoke-pipeline-XXXXXX", dir[64], command[96];
    assert_non_null(mkdtemp(folder));
    snprintf(dir, sizeof(dir), "%s/saved", folder);
    if (FORKS_THREADS)
        run_ranks(PROCESSES, 2, saved_by_one_loaded_by_the_other, dir, patience(30), true);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static void report_of_all(rank_context *c)
{
    yk_module *part = known_pipeline(c, 5, YK_PIPELINE_1F1B);
    CHECK(part, "%s", yk_last_error()->message);
    for (int step = 0; step < 3; step++)
        CHECK(yk_pipeline_step(part, known_batch(10), known_batch(10)), "%s", yk_last_error()->message);
    yk_stage_times times[MOST_TEST_RANKS];
    CHECK_OK(yk_pipeline_report(part, times));
    for (int s = 0; s < c->size; s++) {
        CHECK(times[s].stage == s && times[s].rank == s && times[s].steps == 3 && times[s].micro_batches == 15,
              "stage %d: %lld steps of rank %d", times[s].stage, (long long)times[s].steps, times[s].rank);
        CHECK(times[s].in_flight == c->size - s && times[s].forward > 0 && times[s].backward > 0, "stage %d held %d", s,
              times[s].in_flight);
        CHECK(yk_device_equal(times[s].device, devices[0]), "the device of stage %d", s);
    }
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    CHECK_OK(yk_pipeline_report_print(to, times, c->size));
    fclose(to);
    CHECK(strstr(text, "rank   stage  device") && strstr(text, device_text("\n2      2      cpu:0  ")), "%s", text);
    free(text);
    yk_pipeline_report_reset(part);
    CHECK_OK(yk_pipeline_report(part, times));
    CHECK(times[1].steps == 0, "%lld steps", (long long)times[1].steps);
}

static void the_report(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, report_of_all, NULL, patience(30), true);
}

int main(void)
{
    use_devices(8);
    setenv("OMP_NUM_THREADS", "4", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_of_one_process), cmocka_unit_test(several_tensors_between_ranks),
        cmocka_unit_test(ranks_as_threads),    cmocka_unit_test(inside_ddp),
        cmocka_unit_test(checkpoints),         cmocka_unit_test(the_report),
    };
    return cmocka_run_group_tests_name("parallel/pipeline_group", tests, NULL, NULL);
}
