/*
 * elastic_test.c - training in virtual ranks: whatever the number of processes, the weights, buffers, losses and random
 * numbers are those of plain yk_ddp with a process for each, also where another number of them goes on from a
 * checkpoint; and what a program can do wrong.
 */
#include "tests/parallel/trainer.h"
#include "tests/support/machine.h"

#include <yoke/elastic.h>

#include "base/hash.h"
#include "elastic/elastic_job.h"
#include "parallel/reducer.h"
#include "tensor/tensor.h"

enum { SAMPLES = 103, SIDE = 6, BATCH = 2, MOST_TENSORS = 32, MOST_STEPS = 64, EPOCHS = 2 };

static yk_status picture_get(void *context, int64_t index, yk_sample *sample)
{
    (void)context;
    float *to = yk_sample_allocate(sample, YK_F32, 3, (int64_t[]){1, SIDE, SIDE});
    if (!to)
        return YK_ERR_MEMORY;
    for (int i = 0; i < SIDE * SIDE; i++)
        to[i] = (float)number_of(50, (uint64_t)(index * SIDE * SIDE + i));
    yk_sample_label(sample, (int64_t)(number_of(51, (uint64_t)index) * 2.5 + 5) % 10);
    return YK_OK;
}

static yk_loader *loader_of(bool padding, int rank, int world)
{
    static const yk_dataset_table pictures = {.name = "pictures", .length = SAMPLES, .classes = 10, .get = picture_get};
    return yk_loader_create(yk_dataset_create(&pictures, NULL, NULL),
                            YK_OPTIONS(yk_loader_options, .batch_size = BATCH, .shuffle = true, .seed = 3,
                                       .padding = padding, .rank = rank, .world_size = world, .workers = 1));
}

/* A module whose buffer, an average of what it has seen, is part of its output. */
static yk_tensor *drift_forward(yk_module *m, yk_tensor *x)
{
    yk_tensor *level = yk_module_get(m, "level"), *y = yk_add(x, yk_clone(level));
    if (yk_module_is_training(m)) {
        bool recording = yk_no_grad_begin();
        level = yk_copy_(level, yk_add(yk_mul_scalar(level, 0.5), yk_mean(yk_detach(x))));
        yk_no_grad_end(recording);
    }
    return level ? y : NULL;
}

static yk_module *drift(void)
{
    static const yk_module_class cls = {.name = "Drift", .forward = drift_forward};
    yk_module *m = yk_module_create(&cls);
    (void)yk_module_add_buffer(m, "level", yk_zeros(0, NULL, NULL));
    return yk_module_check(m);
}

/* With statistics of the batch, dropout, and parameters for two buckets; of halves without the first. */
static yk_module *net_of(yk_dtype dtype, bool drifts)
{
    enum { WIDE = 5000 };
    if (yk__is_half(dtype))
        return yk_module_to_dtype(yk_sequential(yk_flatten_create(), yk_linear_create(SIDE * SIDE, 16, NULL),
                                                yk_relu_create(), yk_dropout_create(0.25),
                                                yk_linear_create(16, 10, NULL)),
                                  dtype);
    return yk_module_to_dtype(yk_sequential(yk_conv2d_create(1, 4, 3, NULL), yk_batch_norm2d_create(4, NULL),
                                            yk_relu_create(), drifts ? drift() : yk_identity_create(),
                                            yk_flatten_create(), yk_dropout_create(0.25),
                                            yk_linear_create(4 * 4 * 4, WIDE, NULL), yk_linear_create(WIDE, 10, NULL)),
                              dtype);
}

/* The end of a run, as rank 0 has it. */
typedef struct outcome {
    int tensors, steps;
    struct {
        char name[40];
        uint64_t hash;
    } of[MOST_TENSORS];
    double losses[MOST_STEPS], drawn;
} outcome;

typedef struct plan {
    int virtual_ranks; /* 0: plain yk_ddp */
    yk_dtype dtype;
    int64_t accumulate;
    bool different_seeds, scaled;
    int slow;           /* with virtual ranks given out by speed: the process that takes long; 0: none */
    const char *folder; /* of checkpoints */
    int stop;           /* saves after this step, and ends; 0: goes on */
    bool resume;
    outcome *out;
} plan;

typedef struct run {
    const plan *plan;
    rank_context *c;
    yk_module *net, *model;
    yk_optimizer *optimizer;
    yk_schedule *schedule;
    yk_grad_scaler *scaler;
    yk_loader *loader;
    yk_elastic *job; /* NULL: plain */
    int64_t step;
    double loss;
} run;

static yk_tensor *loss_of(const run *r, const yk_batch *batch)
{
    if (r->plan->slow && r->job && r->c->rank == r->plan->slow)
        usleep(40000);
    return yk_cross_entropy(yk_forward(r->model, yk_cast(batch->input, r->plan->dtype)), batch->target, NULL);
}

static void make(run *r)
{
    rank_context *c = r->c;
    const plan *p = r->plan;
    bool plain = p->virtual_ranks == 0;
    yk_manual_seed(11 + (uint64_t)(plain && p->different_seeds ? c->rank : 0));
    /* Between batches that are added yk_ddp does not make the buffers rank 0's. */
    r->net = net_of(p->dtype, p->accumulate == 1);
    r->optimizer = yk_sgd(yk_module_parameters(r->net), YK_OPTIONS(yk_sgd_options, .lr = 0.05, .momentum = 0.9,
                                                                   .master_weights = yk__is_half(p->dtype)));
    r->schedule = yk_step_lr(r->optimizer, 2, 0.5);
    r->scaler = p->scaled ? yk_grad_scaler_create(YK_OPTIONS(yk_grad_scaler_options, .init_scale = 256)) : NULL;
    r->loader = loader_of(true, plain ? c->rank : 0, plain ? c->size : 1);
    if (plain) {
        r->model = yk_ddp(r->net, YK_OPTIONS(yk_ddp_options, .group = c->group));
    } else {
        r->job = yk_elastic_create(YK_OPTIONS(
            yk_elastic_options, .model = r->net, .optimizer = r->optimizer, .schedule = r->schedule,
            .scaler = r->scaler, .loader = r->loader, .virtual_ranks = p->virtual_ranks, .accumulate = p->accumulate,
            .different_seeds = p->different_seeds, .balance = p->slow != 0, .group = c->group));
        r->model = yk_elastic_model(r->job);
    }
    CHECK(r->model && !yk_last_error(), "%s", yk_last_error() ? yk_last_error()->message : "no model");
}

/* A step as a program writes it without virtual ranks. */
static yk_status plain_step(run *r, yk_batch *batch)
{
    const plan *p = r->plan;
    int64_t left = yk_loader_left(r->loader), more = p->accumulate - 1, parts = 1 + (left < more ? left : more);
    double loss = 0;
    yk_status status = YK_OK;
    yk_optimizer_zero_grad(r->optimizer);
    for (int64_t part = 0; part < parts && !status; part++) {
        if (part && !yk_loader_next(r->loader, batch))
            return YK_ERR_STATE;
        bool alone = part < parts - 1, before = alone && yk_no_sync_begin(r->model);
        yk_tensor *of = loss_of(r, batch);
        loss += yk_item(of) / (double)parts;
        of = parts > 1 ? yk_mul_scalar(of, 1.0 / (double)parts) : of;
        status = yk_backward(r->scaler ? yk_grad_scaler_scale(r->scaler, of) : of);
        if (alone)
            yk_no_sync_end(r->model, before);
    }
    yk_tensor *mean = yk_from_data(&loss, 0, NULL, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    status = status ? status : yk_all_reduce(mean, YK_OP_MEAN, r->c->group);
    r->loss = yk_item(mean);
    if (!status)
        status = r->scaler ? yk_grad_scaler_step(r->scaler, r->optimizer, NULL) : yk_optimizer_step(r->optimizer);
    if (!status && r->scaler)
        status = yk_grad_scaler_update(r->scaler);
    yk_schedule_step(r->schedule);
    return status;
}

static yk_status elastic_step(run *r)
{
    yk_batch part;
    int batches = 0, last = -1;
    while (yk_elastic_next(r->job, &part)) {
        yk_scope scope = yk_scope_begin();
        int rank = yk_elastic_rank(r->job), first = yk_elastic_first(r->job);
        bool there = rank >= last && rank >= first && rank < first + yk_elastic_count(r->job);
        yk_status status = there ? yk_elastic_backward(r->job, loss_of(r, &part)) : YK_ERR_INTERNAL;
        yk_scope_end(scope);
        if (status)
            return status;
        last = rank;
        batches++;
    }
    r->loss = yk_elastic_loss(r->job);
    return batches % yk_elastic_count(r->job) ? YK_ERR_INTERNAL : yk_elastic_step(r->job);
}

static bool step(run *r)
{
    yk_batch batch;
    yk_scope scope = yk_scope_begin();
    bool more = r->job ? yk_elastic_begin(r->job) : yk_loader_next(r->loader, &batch);
    yk_status status = !more ? YK_OK : r->job ? elastic_step(r) : plain_step(r, &batch);
    yk_scope_end(scope);
    if (more && !status)
        r->plan->out->losses[r->step++] = r->loss;
    return more && !status;
}

static yk_checkpoint_state state_of(run *r, int64_t epoch)
{
    yk_checkpoint_state state = {.model = r->net,
                                 .optimizer = r->optimizer,
                                 .schedule = r->schedule,
                                 .scaler = r->scaler,
                                 .loader = r->loader,
                                 .accumulate = r->plan->accumulate};
    if (r->job) {
        state = (yk_checkpoint_state){0};
        (void)!yk_elastic_describe(r->job, &state);
    }
    state.epoch = epoch;
    state.step = r->step;
    return state;
}

static yk_status save(run *r, int64_t epoch)
{
    yk_checkpoint_state state = state_of(r, epoch);
    yk_checkpoint_manager *m =
        yk_checkpoint_manager_create(r->plan->folder, YK_OPTIONS(yk_checkpoint_manager_options, .group = r->c->group));
    yk_status status = m ? yk_checkpoint_manager_save(m, &state) : YK_ERR_IO;
    return status;
}

static void note(const run *r)
{
    outcome *out = r->plan->out;
    yk_state_dict *all = yk_module_state_dict(r->net);
    out->tensors = (int)yk_state_dict_count(all);
    out->steps = (int)r->step;
    for (int i = 0; i < out->tensors && i < MOST_TENSORS; i++) {
        yk_tensor *x = yk_state_dict_at(all, i);
        snprintf(out->of[i].name, sizeof(out->of[i].name), "%s", yk_state_dict_name(all, i));
        out->of[i].hash =
            yk__hash(YK__HASH_BASIS, yk_tensor_data(x), (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x)));
    }
    out->drawn = yk_item(yk_rand(YK_SHAPE(1), NULL));
}

static void train(rank_context *c)
{
    run r = {.plan = c->arg, .c = c};
    const plan *p = r.plan;
    outcome mine = {0};
    plan own = *p;
    if (c->rank)
        own.out = &mine;
    r.plan = &own;
    make(&r);
    if (c->failure[0])
        return;
    int64_t epoch = 0;
    if (p->resume) {
        yk_checkpoint_state state = state_of(&r, 0);
        yk_checkpoint_found found;
        CHECK_OK(
            yk_checkpoint_load_latest(p->folder, &state, YK_OPTIONS(yk_checkpoint_options, .group = c->group), &found));
        epoch = state.epoch;
        r.step = state.step;
    }
    for (int64_t first = epoch; epoch < EPOCHS; epoch++) {
        if (!p->resume || epoch > first)
            yk_loader_start(r.loader, epoch);
        while ((!p->stop || r.step < p->stop) && step(&r))
            ;
        CHECK(!yk_last_error(), "step %d: %s", (int)r.step + 1, yk_last_error()->message);
        if (p->stop && r.step == p->stop) {
            CHECK_OK(save(&r, epoch));
            return;
        }
        CHECK(yk_rand(YK_SHAPE(3), NULL), "no random numbers"); /* between two steps, on all processes */
    }
    if (p->slow && r.job)
        CHECK(c->rank != p->slow || yk_elastic_count(r.job) < p->virtual_ranks / c->size, "%d virtual ranks",
              yk_elastic_count(r.job));
    note(&r);
}

/* Runs a plan on a number of processes. */
static void run_plan(int processes, plan p, outcome *result)
{
    outcome *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    p.out = shared;
    run_ranks(PROCESSES, processes, train, &p, patience(60), true);
    *result = *shared;
    munmap(shared, sizeof(*shared));
}

static void compare(const char *what, const outcome *a, const outcome *b, int from)
{
    if (a->tensors != b->tensors || a->steps != b->steps || !a->tensors)
        fail_msg("%s: %d tensors after %d steps, expected %d after %d", what, a->tensors, a->steps, b->tensors,
                 b->steps);
    for (int i = 0; i < a->tensors; i++)
        if (strcmp(a->of[i].name, b->of[i].name) != 0 || a->of[i].hash != b->of[i].hash)
            fail_msg("%s: %s has other bits", what, a->of[i].name);
    for (int i = from; i < a->steps; i++)
        if (memcmp(&a->losses[i], &b->losses[i], sizeof(double)) != 0)
            fail_msg("%s: the loss of step %d is %.17g, expected %.17g", what, i + 1, a->losses[i], b->losses[i]);
    if (a->drawn != b->drawn)
        fail_msg("%s: %g was drawn at the end, expected %g", what, a->drawn, b->drawn);
}

/* Plain yk_ddp on V processes, against V virtual ranks on others. */
static void same_on(plan p, int virtual_ranks, const int *processes, int count, outcome *plain)
{
    char what[80];
    outcome elastic;
    p.virtual_ranks = 0;
    run_plan(virtual_ranks, p, plain);
    p.virtual_ranks = virtual_ranks;
    for (int i = 0; i < count; i++) {
        run_plan(processes[i], p, &elastic);
        snprintf(what, sizeof(what), "%d virtual ranks on %d processes", virtual_ranks, processes[i]);
        compare(what, &elastic, plain, 0);
    }
}

static void test_four(void **state)
{
    (void)state;
    outcome plain, other;
    const plan p = {.dtype = YK_F32, .accumulate = 1, .different_seeds = true};
    same_on(p, 4, (int[]){3, 1, 2, 4}, sanitized_size(4, 2), &plain);
    assert_int_equal(plain.steps, 2 * 13); /* the last one of an epoch has fewer samples */
    plan alike = p;
    alike.different_seeds = false;
    same_on(alike, 4, (int[]){1, 3}, 2, &other);
    assert_true(other.of[0].hash != plain.of[0].hash); /* where dropout is the same in all shards */
}

static void test_twelve(void **state)
{
    (void)state;
    outcome plain;
    same_on((plan){.dtype = YK_F32, .accumulate = 1, .different_seeds = true}, 12, (int[]){5, 12, 1, 2, 3, 4, 6},
            sanitized_size(7, 2), &plain);
}

static void test_dtypes(void **state)
{
    (void)state;
    outcome plain;
    const yk_dtype dtypes[] = {YK_F64, YK_BF16};
    for (int d = 0; d < 2; d++)
        same_on((plan){.dtype = dtypes[d], .accumulate = 1}, 5, (int[]){3, 1, 2}, sanitized_size(3, 1), &plain);
}

/* Several batches of each shard, the last step of an epoch with fewer; the loss scaled. */
static void test_accumulate(void **state)
{
    (void)state;
    outcome plain;
    same_on((plan){.dtype = YK_F32, .accumulate = 3, .different_seeds = true, .scaled = true}, 3, (int[]){1, 2, 3}, 3,
            &plain);
    assert_int_equal(plain.steps, 2 * 6); /* of 18 batches, in threes: 103 samples, 35 each */
}

/* A slow process ends with fewer virtual ranks than its equal part, without a changed bit. */
static void test_balance(void **state)
{
    (void)state;
    outcome plain;
    same_on((plan){.dtype = YK_F32, .accumulate = 1, .different_seeds = true, .slow = 1}, 6, (int[]){2, 3}, 2, &plain);
}

static void remove_folder(const char *folder)
{
    char command[200];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* Saved by one number of processes, with or without virtual ranks, and gone on with by another. */
static void test_resume(void **state)
{
    (void)state;
    outcome whole, result;
    char folder[] = "/tmp/yoke-elastic-XXXXXX", what[100];
    assert_non_null(mkdtemp(folder));
    plan p = {.dtype = YK_F32, .accumulate = 2, .different_seeds = true, .scaled = true, .folder = folder};
    run_plan(4, p, &whole);
    /* From, to: processes; 0: plain yk_ddp on four. The step is in the first epoch, and in the second. */
    const int legs[][3] = {{0, 1, 3}, {1, 0, 3}, {1, 3, 8}, {3, 2, 9}, {2, 4, 10}, {4, 1, 2}};
    for (size_t i = 0; i < sizeof(legs) / sizeof(*legs); i += (size_t)sanitized_size(1, 2)) {
        plan first = p, second = p;
        first.virtual_ranks = legs[i][0] ? 4 : 0;
        first.stop = legs[i][2];
        second.virtual_ranks = legs[i][1] ? 4 : 0;
        second.resume = true;
        run_plan(legs[i][0] ? legs[i][0] : 4, first, &result);
        run_plan(legs[i][1] ? legs[i][1] : 4, second, &result);
        snprintf(what, sizeof(what), "%d processes, from step %d on %d (0: yk_ddp)", legs[i][0], legs[i][2],
                 legs[i][1]);
        compare(what, &result, &whole, legs[i][2]);
        remove_folder(folder);
    }
}

/* ---- what a program can do wrong --------------------------------------------------------------------------------- */

static yk_elastic *job_of(yk_module *net, yk_loader *loader, int virtual_ranks, yk_process_group *group)
{
    return yk_elastic_create(
        YK_OPTIONS(yk_elastic_options, .model = net, .loader = loader,
                   .optimizer = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.1)),
                   .virtual_ranks = virtual_ranks, .group = group));
}

static void test_create(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *net = net_of(YK_F32, false);
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(net), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    yk_loader *loader = loader_of(true, 0, 1);
    const struct {
        yk_elastic_options options;
        const char *says;
    } bad[] = {
        {*YK_OPTIONS(yk_elastic_options, .optimizer = sgd, .loader = loader), "elastic_create: no model was given"},
        {*YK_OPTIONS(yk_elastic_options, .model = net, .loader = loader), "elastic_create: no optimizer was given"},
        {*YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd), "elastic_create: no loader was given"},
        {*YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd, .loader = loader, .virtual_ranks = 0),
         "elastic_create: virtual_ranks is 0"},
        {*YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd, .loader = loader, .virtual_ranks = 70000),
         "elastic_create: virtual_ranks is 70000"},
        {*YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd, .loader = loader, .accumulate = 0),
         "elastic_create: accumulate is 0"},
        {*YK_OPTIONS(yk_elastic_options, .model = yk_ddp(net, NULL), .optimizer = sgd, .loader = loader),
         "elastic_create: the model is one of yk_ddp already"},
        {*YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd, .loader = loader_of(false, 0, 1),
                     .virtual_ranks = 2),
         "elastic_create: the loader of pictures has padding off"},
        {*YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd, .loader = loader, .alike = "x"),
         "elastic_create: `alike` is for processes that join later"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_null(yk_elastic_create(&bad[i].options));
        expect_error(YK_ERR_ARGUMENT, bad[i].says);
    }
    yk_batch batch;
    assert_true(yk_loader_next(loader, &batch));
    assert_null(job_of(net, loader, 2, NULL));
    expect_error(YK_ERR_STATE, "elastic_create: the loader of pictures has begun an epoch");
    setenv("YOKE_VIRTUAL_RANKS", "many", 1);
    assert_null(job_of(net, loader_of(true, 0, 1), YK_NOT_GIVEN, NULL));
    expect_error(YK_ERR_ARGUMENT, "YOKE_VIRTUAL_RANKS");
    setenv("YOKE_VIRTUAL_RANKS", "6", 1);
    yk_elastic *job = job_of(net, loader_of(true, 0, 1), YK_NOT_GIVEN, NULL);
    assert_int_equal(yk_elastic_virtual_ranks(job), 6);
    /* Programs that know nothing of virtual ranks do not train with another batch, and other statistics. */
    assert_null(yk_ddp(net_of(YK_F32, false), NULL));
    expect_error(YK_ERR_STATE, "ddp: the job has 6 virtual ranks");
    assert_null(yk_convert_sync_batch_norm(net, NULL));
    expect_error(YK_ERR_UNSUPPORTED, "convert_sync_batch_norm: SyncBatchNorm communicates inside forward");
    unsetenv("YOKE_VIRTUAL_RANKS");
    yk_scope_end(scope);
}

/* The calls of a step in another order than the header's, each an error of that call. */
static void test_order(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_elastic *job = job_of(net_of(YK_F32, false), loader_of(true, 0, 1), 3, NULL);
    yk_elastic_release(yk_elastic_retain(job));
    yk_module *model = yk_elastic_model(job);
    run r = {.plan = &(plan){.dtype = YK_F32}, .model = model};
    yk_batch part;
    assert_true(isnan(yk_elastic_loss(job)));
    assert_true(yk_elastic_idle(job) == 0);
    assert_false(yk_elastic_next(job, &part));
    expect_error(YK_ERR_STATE, "elastic_next: no step was begun");
    assert_int_equal(yk_elastic_step(job), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "elastic_step: not all batches of the step were taken");
    assert_true(yk_elastic_begin(job));
    assert_int_equal(yk_elastic_rank(job), -1);
    assert_true(yk_elastic_next(job, &part));
    assert_int_equal(yk_elastic_rank(job), 0);
    assert_false(yk_elastic_next(job, &part));
    expect_error(YK_ERR_STATE, "elastic_next: the batch of virtual rank 0 had no yk_elastic_backward");
    yk_scope_end(scope);

    scope = yk_scope_begin();
    job = job_of(net_of(YK_F32, false), loader_of(true, 0, 1), 2, NULL);
    r.model = yk_elastic_model(job);
    assert_true(yk_elastic_begin(job) && yk_elastic_next(job, &part));
    expect_ok(yk_elastic_backward(job, loss_of(&r, &part)));
    assert_int_equal(yk_elastic_backward(job, yk_ones(0, NULL, NULL)), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "elastic_backward: that of virtual rank 0's batch was made already");
    assert_false(yk_elastic_begin(job));
    expect_error(YK_ERR_STATE, "elastic_begin: the step that was begun has batches that were not taken");
    assert_true(yk_elastic_next(job, &part));
    assert_int_equal(yk_elastic_rank(job), 1);
    assert_int_equal(yk_backward(loss_of(&r, &part)), YK_ERR_STATE); /* the user's own */
    expect_error(YK_ERR_STATE, "was not made by yk_elastic_backward");
    yk_scope_end(scope);

    scope = yk_scope_begin();
    job = job_of(net_of(YK_F32, false), loader_of(true, 0, 1), 2, NULL);
    r.model = yk_elastic_model(job);
    assert_true(yk_elastic_begin(job) && yk_elastic_next(job, &part));
    expect_ok(yk_elastic_backward(job, loss_of(&r, &part)));
    assert_true(yk_elastic_next(job, &part));
    bool before = yk_no_sync_begin(r.model);
    assert_int_equal(yk_elastic_backward(job, loss_of(&r, &part)), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "elastic_backward: yk_no_sync_begin and end");
    yk_no_sync_end(r.model, before);
    assert_int_equal(yk_join_begin(r.model, NULL), YK_ERR_UNSUPPORTED);
    expect_error(YK_ERR_UNSUPPORTED, "join_begin: the module's shards are those of virtual ranks");
    yk_module *kept = yk_module_retain(r.model);
    yk_scope_end(scope); /* the job is gone */
    scope = yk_scope_begin();
    assert_int_equal(yk_backward(yk_sum(yk_forward(kept, yk_ones(YK_SHAPE(2, 1, SIDE, SIDE), NULL)))), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "elastic: the model was of a job of virtual ranks that has been released");
    yk_module_release(kept);
    assert_int_equal(yk_elastic_describe(NULL, &(yk_checkpoint_state){0}), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "elastic_describe: the job is NULL");
    yk_scope_end(scope);
}

/* A shard whose loss leaves parameters out is an error in any place, as in yk_ddp. */
static void test_unused(void **state)
{
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        yk_scope scope = yk_scope_begin();
        yk_module *a = yk_linear_create(SIDE, 2, NULL), *b = yk_linear_create(SIDE, 2, NULL);
        yk_elastic *job = job_of(yk_sequential(a, b), loader_of(true, 0, 1), 3, NULL);
        yk_status status = YK_OK;
        yk_batch part;
        assert_true(yk_elastic_begin(job));
        while (!status && yk_elastic_next(job, &part)) {
            yk_tensor *x = yk_ones(YK_SHAPE(1, SIDE), NULL), *loss = yk_sum(yk_forward(a, x));
            if (yk_elastic_rank(job) != rank)
                loss = yk_add(loss, yk_sum(yk_forward(b, x)));
            status = yk_elastic_backward(job, loss);
        }
        assert_int_equal(status, YK_ERR_STATE);
        assert_int_equal(yk_elastic_step(job), YK_ERR_STATE);
        expect_error(YK_ERR_STATE, "reaches no gradient for 1.weight");
        yk_scope_end(scope);
    }
}

/* Numbers and seeds that do not fit, on all ranks alike; the group stays whole. */
static void refused(rank_context *c)
{
    yk_module *net = net_of(YK_F32, false);
    CHECK_FAILS(job_of(net, loader_of(true, 0, 1), 1, c->group), YK_ERR_ARGUMENT,
                "elastic_create: virtual_ranks is 1, but there are 2 processes");
    CHECK_FAILS(job_of(net, loader_of(true, 0, 1), 4 + c->rank, c->group), YK_ERR_MISMATCH,
                "elastic_create: rank 1 has virtual_ranks 5, but rank 0 has 4");
    yk_manual_seed((uint64_t)c->rank);
    CHECK_FAILS(job_of(net, loader_of(true, 0, 1), 4, c->group), YK_ERR_MISMATCH,
                "elastic_create: rank 1 has random seed 1, but rank 0 has 0", "different_seeds");
    yk_manual_seed(0);
    yk_module *synced = yk_sequential(yk_identity_create(), yk_sequential(yk_batch_norm2d_create(3, NULL)));
    synced = yk_convert_sync_batch_norm(synced, c->group);
    CHECK_FAILS(job_of(synced, loader_of(true, 0, 1), 4, c->group), YK_ERR_UNSUPPORTED,
                "elastic_create: module '1.0' is a SyncBatchNorm");
    CHECK_OK(yk_barrier(c->group));
    yk_elastic *job = job_of(net, loader_of(true, 0, 1), 3, c->group);
    CHECK(job && yk_elastic_first(job) == 2 * c->rank && yk_elastic_count(job) == 2 - c->rank, "the parts");
    CHECK(fabs(yk_elastic_idle(job) - 0.25) < 1e-12, "%g is idle", yk_elastic_idle(job));
    /* One rank's first shard fails, and the other rank, which waits for its gradients, does too. */
    yk_batch part;
    run r = {.plan = &(plan){.dtype = YK_F32}, .model = yk_elastic_model(job)};
    CHECK(yk_elastic_begin(job), "%s", yk_last_error()->message);
    yk_status status = YK_OK;
    while (!status && yk_elastic_next(job, &part))
        status = yk_elastic_backward(job, c->rank ? loss_of(&r, &part) : yk_ones(YK_SHAPE(2), NULL));
    CHECK(status || yk_last_error(), "the step went on");
    CHECK(yk_elastic_step(job), "the step was taken");
    CHECK(!c->rank || expect_says(yk_last_error()->message, "rank 0"), "%s", yk_last_error()->message);
    yk_clear_error();
}

static void test_refused(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, refused, NULL, patience(20), true);
}

/* Collectives where the virtual ranks of a process come one after the other are an error, and none before and behind.
 */
static void collectives_apart(rank_context *c)
{
    yk_elastic *job = job_of(net_of(YK_F32, false), loader_of(true, 0, 1), 3, c->group);
    run r = {.plan = &(plan){.dtype = YK_F32}, .model = yk_elastic_model(job)};
    yk_tensor *x = yk_ones(YK_SHAPE(2), NULL);
    yk_batch part;
    for (int step = 0; step < 2; step++) {
        CHECK(yk_elastic_begin(job), "no step");
        CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
        while (yk_elastic_next(job, &part)) {
            CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_UNSUPPORTED,
                        "all_reduce: this process is between yk_elastic_next and the end of its batches");
            CHECK_OK(yk_elastic_backward(job, loss_of(&r, &part)));
            CHECK_FAILS(yk_barrier(c->group), YK_ERR_UNSUPPORTED, "barrier: this process is between");
        }
        CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
        CHECK(yk_elastic_flags(job) == (step ? 6 : 0), "flags %u of step %d", yk_elastic_flags(job), step);
        CHECK_OK(yk_elastic_step(job));
        if (step == 0)
            yk_elastic_raise_flags(job, 2 << c->rank); /* in the step that comes */
    }
    CHECK(yk_item(yk_sum(x)) == 2 * 16, "the others' numbers");
    CHECK(yk_elastic_begin(job) && yk_elastic_next(job, &part), "no batch");
    yk_elastic_release(yk_elastic_retain(job));
}

static void test_collectives(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, collectives_apart, NULL, patience(20), true);
}

/* A step may be left out: nothing of it shows but the samples that were taken. */
static void test_left_out(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_elastic *job = job_of(net_of(YK_F32, false), loader_of(true, 0, 1), 4, NULL);
    run r = {.plan = &(plan){.dtype = YK_F32, .out = &(outcome){0}}, .model = yk_elastic_model(job), .job = job};
    yk_batch part;
    yk_state_dict *all = yk_module_state_dict(r.model);
    yk_tensor *weight = yk_state_dict_at(all, 0), *before = yk_clone(weight);
    assert_true(yk_elastic_begin(job));
    while (yk_elastic_next(job, &part))
        expect_ok(yk_elastic_backward(job, loss_of(&r, &part)));
    assert_true(isfinite(yk_elastic_loss(job)));
    assert_true(distance(weight, before) == 0);
    assert_true(step(&r));
    assert_true(distance(weight, before) > 0);
    yk_scope_end(scope);
}

/* Members are compared by what lies in their memory and, where that differs, by their numbers: a weight that lies in
 * columns on one of them is the same weight. */
static void test_digest(void **state)
{
    (void)state;
    uint64_t lies, numbers, after;
    yk_scope scope = yk_scope_begin();
    yk_elastic *job = job_of(net_of(YK_F32, false), loader_of(true, 0, 1), 4, NULL);
    yk_tensor *weight = NULL;
    for (int i = 0; i < job->reducer->count; i++)
        if (job->reducer->parameters[i].x->ndim == 2 && yk_tensor_device(job->reducer->parameters[i].x).type == YK_CPU)
            weight = job->reducer->parameters[i].x;
    if (!weight) {
        yk_scope_end(scope);
        skip(); /* they are on a GPU, where they are always copied */
    }
    expect_ok(yk__elastic_digest(job, false, &lies));
    expect_ok(yk__elastic_digest(job, true, &numbers));
    yk_tensor *columns = yk_contiguous(yk_transpose(yk_detach(weight), 0, 1));
    memcpy(weight->data, columns->data, (size_t)weight->numel * sizeof(float));
    weight->stride[0] = 1;
    weight->stride[1] = weight->shape[0];
    expect_ok(yk__elastic_digest(job, false, &after));
    assert_int_not_equal(after, lies);
    expect_ok(yk__elastic_digest(job, true, &after));
    assert_int_equal(after, numbers);
    ((float *)weight->data)[1] += 1;
    expect_ok(yk__elastic_digest(job, true, &after));
    assert_int_not_equal(after, numbers);
    yk_scope_end(scope);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "1", 1); /* ranks are forked: no pool of the parent's may be half there */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_four),       cmocka_unit_test(test_twelve),      cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_accumulate), cmocka_unit_test(test_balance),     cmocka_unit_test(test_resume),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_create),      cmocka_unit_test(test_order),
        cmocka_unit_test(test_unused),     cmocka_unit_test(test_collectives), cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_digest)};
    return cmocka_run_group_tests_name("elastic", tests, NULL, NULL);
}
