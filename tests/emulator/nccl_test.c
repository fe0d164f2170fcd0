/*
 * nccl_test.c - the nccl backend on emulated GPUs, with a stand-in of NCCL (nccl.cc): the suite of collectives_test.c,
 * with NCCL's order of sums and with the fixed one; its own stream; what goes wrong; DistributedDataParallel.
 */
int collectives_main(void);
#define main collectives_main /* the cases are those of collectives_test.c */
#include "tests/comm/collectives_test.c"
#undef main

#include <yoke/yoke.h>

#include "device/table.h"
#include "tensor/host_tensor.h"
#include "tests/emulator/use_emulator.h"

static yk_device own_gpu(const rank_context *c)
{
    return (yk_device){YK_CUDA, (int16_t)c->rank};
}

/* ---- results ----------------------------------------------------------------------------------------------------- */
/* Runs the tests of the suite whose results do not depend on NCCL's own order of sums, sums of whole numbers and halves
 * among them. */
static void run_nccl_suite(enum rank_kind kind, int size)
{
    for (size_t i = 0; i < sizeof(suite) / sizeof(suite[0]); i++)
        if (suite[i].fn != test_rank_bits)
            run_ranks(kind, size, suite[i].fn, NULL, patience(60), true);
}

static void suite_of_threads(void **state)
{
    (void)state;
    run_ranks(THREADS, 1, test_rank_both_forms, NULL, patience(60), true);
    run_nccl_suite(THREADS, 3);
}

/* Means of whole numbers that all ranks have are these, as long as the sum is one that the dtype holds: 1 / 3 is none.
 * And of numbers of f16 whose sum it does not hold. */
static void means(rank_context *c)
{
    enum { N = 84 }; /* three times as much is the greatest number up to which bf16 has all */
    static const yk_dtype floats[] = {YK_F32, YK_F64, YK_BF16, YK_F16};
    const bool mean = false; /* of CHECK_VALUES: no tolerance */
    const int kind = 0, root = c->size - 1;
    const int64_t n = N;
    for (int d = 0; d < 4; d++) {
        yk_dtype dtype = floats[d];
        double of = dtype == YK_F16 ? 192 * c->size : 1; /* each of these times its number: up to 48384 */
        int64_t all = n * c->size;
        yk_tensor *x = make(0, n, dtype), *in = make(0, all, dtype);
        const char *what = "all_reduce";
        for (int odd = 0; odd < 2; odd++) { /* the memory begins at any element */
            yk_tensor *part = yk_narrow(x, 0, odd, n - odd);
            FILL(part, (double)i * of);
            CHECK_OK(yk_all_reduce(part, YK_OP_MEAN, c->group));
            CHECK_VALUES(part, (double)i * of);
        }
        what = "reduce";
        FILL(x, (double)i * of);
        CHECK_OK(yk_reduce(x, root, YK_OP_MEAN, c->group));
        CHECK_VALUES(x, (double)i * of); /* the other ranks' tensors stay as they are */
        what = "reduce_scatter";
        FILL(in, (double)(i % n) * of);
        CHECK_OK(yk_reduce_scatter(x, in, YK_OP_MEAN, c->group));
        CHECK_VALUES(x, (double)i * of);
        CHECK_VALUES(in, (double)(i % n) * of);
    }
}

static void test_means(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, means, NULL, patience(60), true);
}

static void fixed_order(void **state)
{
    (void)state;
    yk_use_deterministic_algorithms(true);
    assert_true(prepare_bits(3));
    run_ranks(THREADS, 3, test_rank_values, NULL, patience(60), true);
    run_ranks(THREADS, 3, test_rank_bits, NULL, patience(60), true);
    yk_use_deterministic_algorithms(false);
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */
static void sleep_for(void *seconds)
{
    usleep((useconds_t)(*(const double *)seconds * 1e6));
}

/* The results of work that was queued before are in the sum, though it takes time; work that is queued after the call
 * does not hold it up, and the host waits for neither. */
static void beside(rank_context *c)
{
    static const double before = 0.05, behind = 0.5;
    const yk__backend *gpu = yk__backend_of(own_gpu(c));
    yk_tensor *x = yk_full(YK_SHAPE(5003), c->rank, NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group)); /* makes the communicator */
    CHECK_MET(c);
    CHECK_OK(gpu->enqueue(c->rank, sleep_for, (void *)(uintptr_t)&before));
    yk_tensor *y = yk_add_scalar(yk_full(YK_SHAPE(5003), c->rank, NULL), 1);
    double began = yk__now();
    yk_work *work = yk_all_reduce_async(y, YK_OP_SUM, c->group);
    CHECK_OK(gpu->enqueue(c->rank, sleep_for, (void *)(uintptr_t)&behind));
    while (!yk_work_test(work) && yk__now() < began + patience(20))
        usleep(500);
    double seconds = yk__now() - began;
    CHECK(yk_work_test(work) && !yk_work_error(work), "the work is not done after %g s", seconds);
    CHECK(seconds < behind, "an all_reduce waited %g s for what was queued behind it", seconds);
    CHECK_OK(yk_work_wait(work));
    CHECK(yk_get(y, (int64_t[]){5002}) == 3, "element 5002 is %g", yk_get(y, (int64_t[]){5002}));
}

/* The device is busy before the operation: the host goes on all the same, and the work that it queues comes after the
 * result, which by then may be in memory that the program has freed. */
static void not_waited_for(rank_context *c)
{
    static const double before = 0.4;
    const yk__backend *gpu = yk__backend_of(own_gpu(c));
    yk_tensor *first = yk_full(YK_SHAPE(5003), c->rank, NULL);
    CHECK_OK(yk_all_reduce(first, YK_OP_SUM, c->group)); /* makes the communicator */
    CHECK_OK(yk_device_synchronize(own_gpu(c)));
    CHECK_MET(c);
    double began = yk__now();
    CHECK_OK(gpu->enqueue(c->rank, sleep_for, (void *)(uintptr_t)&before));
    yk_tensor *sums[4];
    for (int i = 0; i < 4; i++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = yk_full(YK_SHAPE(5003), c->rank + i, NULL), *wide = yk_full(YK_SHAPE(7, 3), c->rank + i, NULL);
        yk_tensor *parts = yk_zeros(YK_SHAPE(2, 5003), NULL), *turned = yk_transpose(wide, 0, 1);
        CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
        CHECK_OK(yk_all_reduce(turned, YK_OP_SUM, c->group)); /* no contiguous memory */
        CHECK_OK(yk_all_gather(parts, x, c->group));
        sums[i] = yk_scope_return(scope, yk_add(yk_sum(parts), yk_sum(wide)));
        yk_scope_end(scope);
    }
    double seconds = yk__now() - began;
    CHECK(seconds < before, "the host waited %g s", seconds);
    for (int i = 0; i < 4; i++) {
        double sum = (2 * i + 1) * (2 * 5003 + 21);
        CHECK(yk_item(sums[i]) == sum, "sum %d is %g, not %g", i, yk_item(sums[i]), sum);
    }
}

static void test_beside(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, beside, NULL, patience(60), true);
    run_ranks(THREADS, 2, not_waited_for, NULL, patience(60), true);
}

/* Two groups whose operations come in another order on either rank: each has a stream of its own. */
static void two_groups(rank_context *c)
{
    yk_process_group *both[2];
    yk_tensor *x[2], *y[2];
    for (int k = 0; k < 2; k++) {
        both[k] = yk_process_group_create(
            c->store, c->rank, c->size,
            YK_OPTIONS(yk_process_group_options, .name = k ? "second" : "first", .timeout = patience(20)));
        CHECK(both[k], "%s", yk_last_error()->message);
        x[k] = yk_full(YK_SHAPE(303), c->rank + k, NULL);
        CHECK_OK(yk_all_reduce(x[k], YK_OP_SUM, both[k]));
        y[k] = yk_add_scalar(x[k], 1);
    }
    yk_work *works[2];
    for (int k = 0; k < 2; k++) {
        int of = c->rank ? 1 - k : k;
        works[of] = yk_all_reduce_async(y[of], YK_OP_SUM, both[of]);
        CHECK(works[of], "%s", yk_last_error()->message);
        usleep(c->rank ? 2000 : 0);
    }
    for (int k = 0; k < 2; k++) {
        CHECK_OK(yk_work_wait(works[k]));
        CHECK(yk_get(y[k], (int64_t[]){302}) == 4 + 4 * k, "group %d: %g", k, yk_get(y[k], (int64_t[]){302}));
    }
}

static void test_two_groups(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, two_groups, NULL, patience(20), false);
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */
static void different(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, NULL), *y = yk_full(YK_SHAPE(13), 1, NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK_OK(yk_device_synchronize(own_gpu(c))); /* it is done: what fails later does not concern it */
    CHECK_FAILS(yk_all_reduce(c->rank ? y : x, YK_OP_SUM, c->group), YK_ERR_MISMATCH, "rank 1 (host ",
                "all_reduce #2 (float32, ", "elements, sum)");
    CHECK(yk_get(x, (int64_t[]){0}) == c->size, "%g", yk_get(x, (int64_t[]){0}));
}

static void different_parts(rank_context *c)
{
    int64_t rows = c->rank ? 2 * c->size : c->size;
    CHECK_FAILS(yk_all_to_all(yk_zeros(YK_SHAPE(c->size), NULL), yk_zeros(YK_SHAPE(rows), NULL), NULL, NULL, c->group),
                YK_ERR_MISMATCH, "sends 2 elements to rank", "which expects 1");
}

static void absent(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, NULL);
    CHECK_MET(c);
    if (c->rank == 1) {
        CHECK(all_come(c, 0), "rank 0 did not end");
        return;
    }
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_STALLED, "all_reduce #2", "waited 1 s for rank 1 (host ");
    CHECK(all_come(c, 0), "rank 1 did not end");
}

/* Rank 1 leaves, which NCCL does not let it finish before the others come to the same: they hear of it all the same. */
static void left(rank_context *c)
{
    static const double soon = 3; /* NCCL is waited for longer */
    yk_scope scope = yk_scope_begin();
    yk_process_group *group = yk_process_group_create(
        c->store, c->rank, c->size, YK_OPTIONS(yk_process_group_options, .name = "left", .timeout = patience(60)));
    CHECK(group, "%s", yk_last_error()->message);
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, group));
    CHECK_OK(yk_device_synchronize(own_gpu(c)));
    CHECK_MET(c);
    double began = yk__now();
    if (c->rank == 0)
        CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, group), YK_ERR_CONNECTION, "all_reduce #2", "rank 1 (host ", " left ");
    CHECK(c->rank == 1 || yk__now() - began < patience(soon), "%g s", yk__now() - began);
    yk_scope_end(scope);
}

/* Memory that the backend does not take; nothing is sent, and the group stays whole. */
static void other_devices(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, NULL), *host = yk_cpu(x);
    yk_tensor *theirs = yk_to(host, (yk_device){YK_CUDA, (int16_t)(1 - c->rank)});
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK_FAILS(yk_all_reduce(host, YK_OP_SUM, c->group), YK_ERR_DEVICE,
                "all_reduce: the tensor is on cpu:0, and the backend 'nccl' of group 'world' has no type of device but "
                "cuda; 'native' takes tensors on CPUs and GPUs");
    CHECK_FAILS(yk_all_reduce_async(theirs, YK_OP_SUM, c->group), YK_ERR_DEVICE, "a rank has one GPU");
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK(yk_get(x, (int64_t[]){0}) == 4, "%g", yk_get(x, (int64_t[]){0}));
    CHECK(strcmp(yk_process_group_backend(c->group), "nccl") == 0, "%s", yk_process_group_backend(c->group));
}

static void test_mistakes(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, different, NULL, patience(20), true);
    run_ranks(THREADS, 3, different_parts, NULL, patience(20), true);
    run_ranks(THREADS, 2, absent, NULL, 1, true);
    run_ranks(THREADS, 2, left, NULL, patience(60), true);
    run_ranks(THREADS, 2, other_devices, NULL, patience(20), true);
}

/* ---- DistributedDataParallel ------------------------------------------------------------------------------------- */
enum { STEPS = 4, WEIGHTS = 8 * 6 };

/* The weights after some steps, by NCCL in the fixed order and by native: the same bits. */
static void train(rank_context *c, const char *backend, const char *name, float *weights)
{
    yk_scope scope = yk_scope_begin();
    yk_process_group *group = yk_process_group_create(
        c->store, c->rank, c->size,
        YK_OPTIONS(yk_process_group_options, .backend = backend, .name = name, .timeout = patience(60)));
    CHECK(group, "%s", yk_last_error()->message);
    yk_module *net = yk_sequential(yk_conv2d_create(6, 8, 1, NULL), yk_batch_norm2d_create(8, NULL));
    yk_module_to(net, own_gpu(c));
    yk_tensor *weight = yk_parameters_at(yk_module_parameters(net), 0);
    CHECK(yk_numel(weight) == WEIGHTS, "%lld weights", (long long)yk_numel(weight));
    for (int k = 0; k < WEIGHTS; k++)
        weights[k] = cosf((float)k);
    bool recording = yk_no_grad_begin();
    CHECK_OK(yk_tensor_write(weight, weights, WEIGHTS * sizeof(*weights)));
    CHECK_OK(yk_tensor_write(yk_parameters_at(yk_module_parameters(net), 1), weights, 8 * sizeof(*weights)));
    yk_no_grad_end(recording);
    yk_module *ddp = yk_ddp(net, YK_OPTIONS(yk_ddp_options, .group = group));
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(ddp), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    CHECK(ddp && sgd, "%s", yk_last_error()->message);
    for (int i = 0; i < STEPS; i++) {
        yk_scope step = yk_scope_begin();
        float values[3 * 6 * 4];
        for (int k = 0; k < 72; k++)
            values[k] = sinf((float)(k + 100 * i + 1000 * c->rank));
        yk_tensor *y = yk_forward(ddp, yk_from_data(values, YK_SHAPE(3, 6, 2, 2), NULL));
        CHECK_OK(yk_backward(yk_mean(yk_mul(y, y))));
        CHECK_OK(yk_optimizer_step(sgd));
        yk_optimizer_zero_grad(sgd);
        yk_scope_end(step);
    }
    CHECK_OK(yk_tensor_read(weight, weights, WEIGHTS * sizeof(*weights)));
    yk_scope_end(scope);
}

static void ddp(rank_context *c)
{
    float by_nccl[WEIGHTS] = {0}, by_native[WEIGHTS] = {0};
    train(c, "nccl", "first", by_nccl);
    if (!c->failure[0])
        train(c, "native", "second", by_native);
    if (!c->failure[0])
        CHECK(memcmp(by_nccl, by_native, sizeof(by_nccl)) == 0, "weight 0 is %a by NCCL, and %a by native",
              (double)by_nccl[0], (double)by_native[0]);
}

static void test_ddp(void **state)
{
    (void)state;
    yk_use_deterministic_algorithms(true);
    run_ranks(THREADS, 3, ddp, NULL, patience(60), false);
    yk_use_deterministic_algorithms(false);
}

/* ---- steps that are recorded ------------------------------------------------------------------------------------- */
enum { ROWS = 3, PLANES = 2, SIDE = 2, CLASSES = 3, REPLAYED = 100 };

/* A network under DDP, and what its step needs. */
typedef struct job {
    yk_process_group *group;
    yk_module *net, *ddp;
    yk_optimizer *sgd;
    yk_schedule *schedule;
    yk_tensor *input, *target, *loss; /* loss: retained */
    int calls, reads_from;            /* the step reads its loss from this call on; 0: never */
    bool meets;                       /* and has a barrier */
} job;

static yk_status recorded_step(void *user)
{
    job *j = user;
    j->calls++;
    yk_optimizer_zero_grad(j->sgd);
    yk_tensor *loss = yk_cross_entropy(yk_forward(j->ddp, j->input), j->target, NULL);
    yk_status status = yk_backward(loss);
    if (!status)
        status = yk_optimizer_step(j->sgd);
    if (!status && j->reads_from && j->calls >= j->reads_from)
        (void)yk_item(loss);
    if (!status && j->meets)
        status = yk_barrier(j->group);
    yk_tensor_release(j->loss);
    j->loss = yk_tensor_retain(loss);
    return status;
}

static bool job_make(const rank_context *c, job *j, const char *backend, const char *name, double timeout)
{
    *j = (job){0};
    yk_tensor_options there = *YK_OPTIONS(yk_tensor_options, .device = own_gpu(c)),
                      whole = *YK_OPTIONS(yk_tensor_options, .device = own_gpu(c), .dtype = YK_I64);
    j->group = yk_process_group_create(
        c->store, c->rank, c->size,
        YK_OPTIONS(yk_process_group_options, .backend = backend, .name = name, .timeout = timeout));
    yk_module *conv = yk_conv2d_create(PLANES, 4, 1, NULL), *norm = yk_batch_norm2d_create(4, NULL);
    j->net = yk_sequential(conv, norm, yk_relu_create(), yk_flatten_create(),
                           yk_linear_create(4 * SIDE * SIDE, CLASSES, NULL));
    j->net = yk_module_to(j->net, own_gpu(c));
    yk_parameters *all = yk_module_parameters(j->net);
    bool recording = yk_no_grad_begin();
    for (int i = 0; i < yk_parameters_count(all); i++) { /* the generator is all ranks' */
        float values[4 * SIDE * SIDE * CLASSES];
        int64_t n = yk_numel(yk_parameters_at(all, i));
        for (int64_t k = 0; k < n; k++)
            values[k] = cosf((float)(k + 10 * i)) / 2;
        if (yk_tensor_write(yk_parameters_at(all, i), values, (size_t)n * sizeof(*values)))
            return false;
    }
    yk_no_grad_end(recording);
    j->ddp =
        yk_ddp(j->net, YK_OPTIONS(yk_ddp_options, .group = j->group, .first_bucket_mb = 1e-4, .bucket_cap_mb = 2e-4));
    j->sgd = yk_sgd(yk_module_parameters(j->ddp), YK_OPTIONS(yk_sgd_options, .lr = 0.1, .momentum = 0.9));
    j->schedule = yk_cosine_lr(j->sgd, REPLAYED, 1e-3);
    j->input = yk_zeros(YK_SHAPE(ROWS, PLANES, SIDE, SIDE), &there);
    j->target = yk_zeros(YK_SHAPE(ROWS), &whole);
    return !yk_last_error();
}

/* Step `at` on this rank's batch, by the graph or (NULL) as it is; its loss. */
static yk_status job_run(const rank_context *c, job *j, yk_graph *g, int at, float *loss)
{
    float input[ROWS * PLANES * SIDE * SIDE];
    int64_t target[ROWS];
    for (int k = 0; k < ROWS * PLANES * SIDE * SIDE; k++)
        input[k] = sinf((float)(k + 100 * at + 1000 * c->rank));
    for (int k = 0; k < ROWS; k++)
        target[k] = (at + k + c->rank) % CLASSES;
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_tensor_write(j->input, input, sizeof(input));
    if (!status)
        status = yk_tensor_write(j->target, target, sizeof(target));
    if (!status)
        status = g ? yk_graph_run(g) : recorded_step(j);
    if (!status) {
        yk_schedule_step(j->schedule);
        status = yk_tensor_read(j->loss, loss, sizeof(*loss));
    }
    yk_scope_end(scope);
    return status;
}

/* The weights of two jobs. */
static bool job_same(const job *a, const job *b)
{
    float x[4 * SIDE * SIDE * CLASSES], y[4 * SIDE * SIDE * CLASSES];
    yk_state_dict *of[2] = {yk_module_state_dict(a->net), yk_module_state_dict(b->net)};
    for (int64_t i = 0; i < yk_state_dict_count(of[0]); i++) {
        yk_tensor *p = yk_state_dict_at(of[0], i), *q = yk_state_dict_at(of[1], i);
        size_t bytes = (size_t)yk_numel(p) * yk_dtype_size(yk_tensor_dtype(p));
        if (yk_tensor_read(p, x, bytes) || yk_tensor_read(q, y, bytes) || memcmp(x, y, bytes))
            return false;
    }
    return true;
}

/* The step waits for a collective that was begun before it: the first call finds that, and none is recorded. */
typedef struct earlier_job {
    yk_process_group *group;
    yk_tensor *sum;
    yk_work *before;
    int calls;
} earlier_job;

static yk_status earlier_step(void *user)
{
    earlier_job *j = user;
    j->calls++;
    yk_status status = yk_work_wait(yk_all_reduce_async(j->sum, YK_OP_MAX, j->group)); /* its own may */
    return status ? status : yk_work_wait(j->before);
}

static void waits_for_earlier(rank_context *c)
{
    enum { RUNS = 8 };
    earlier_job j = {.group = c->group, .sum = yk_full(YK_SHAPE(7), c->rank, NULL)};
    yk_tensor *x = yk_full(YK_SHAPE(7), 1, NULL);
    yk_graph *g = yk_graph_create(own_gpu(c), 0, earlier_step, &j);
    for (int i = 0; i < RUNS; i++) {
        j.before = yk_all_reduce_async(x, YK_OP_MAX, c->group);
        CHECK_OK(yk_graph_run(g));
        const char *why = yk_graph_get_info(g).why_not;
        CHECK(why && expect_says(why, ": all_reduce: a collective from before the function is waited for, which a "
                                      "recording cannot repeat; wait for it before yk_graph_run"),
              "call %d: %s", i, why ? why : "none");
    }
    CHECK(j.calls == RUNS, "%d calls", j.calls);
}

/* Replays have the losses and the weights of steps that run as they are. */
static void replayed(rank_context *c)
{
    job plain, j;
    float losses[REPLAYED], loss = 0;
    CHECK(job_make(c, &plain, "nccl", "plain", patience(60)), "%s", yk_last_error()->message);
    for (int i = 0; i < REPLAYED; i++)
        CHECK_OK(job_run(c, &plain, NULL, i, &losses[i]));
    CHECK(job_make(c, &j, "nccl", "replayed", patience(60)), "%s", yk_last_error()->message);
    yk_graph *g = yk_graph_create(own_gpu(c), 0, recorded_step, &j);
    for (int i = 0; i < REPLAYED; i++) {
        CHECK_OK(job_run(c, &j, g, i, &loss));
        CHECK(loss == losses[i], "step %d: the loss is %.9g, and %.9g as it is", i, (double)loss, (double)losses[i]);
    }
    yk_graph_info info = yk_graph_get_info(g);
    CHECK(!info.why_not, "%s", info.why_not);
    /* The second call lays the buckets anew, by the host; three more, and the recording. */
    CHECK(info.replays == REPLAYED - 5 && j.calls == 6, "%lld replays, %d calls", (long long)info.replays, j.calls);
    CHECK(job_same(&plain, &j), "the weights differ");
    yk_tensor_release(plain.loss);
    yk_tensor_release(j.loss);
}

/* Rank 1 reads its loss in each call (arg 1), or from the call on that is recorded (6): no rank records. With a barrier
 * (0), and by native (-1), nobody can. */
static void not_recorded(rank_context *c)
{
    int how = *(const int *)c->arg;
    job plain, j;
    float loss = 0, expected = 0;
    const char *backend = how < 0 ? "native" : "nccl";
    CHECK(job_make(c, &plain, backend, "plain", patience(60)), "%s", yk_last_error()->message);
    CHECK(job_make(c, &j, backend, "graph", patience(60)), "%s", yk_last_error()->message);
    j.reads_from = how > 0 && c->rank == 1 ? how : 0;
    j.meets = how == 0;
    yk_graph *g = yk_graph_create(own_gpu(c), 0, recorded_step, &j);
    for (int i = 0; i < 8; i++) {
        CHECK_OK(job_run(c, &plain, NULL, i, &expected));
        CHECK_OK(job_run(c, &j, g, i, &loss));
        CHECK(loss == expected, "step %d: the loss is %.9g, and %.9g as it is", i, (double)loss, (double)expected);
    }
    yk_graph_info info = yk_graph_get_info(g);
    CHECK(info.replays == 0 && j.calls == (how == 6 ? 9 : 8), "%lld replays, %d calls", (long long)info.replays,
          j.calls);
    CHECK(info.why_not, "no reason");
    const char *why =
        how < 0    ? "broadcast: the backend 'native' carries it out on the host, which a recording cannot repeat"
        : how == 0 ? "barrier: the backend 'nccl' carries it out on the host, which a recording cannot repeat"
                   : "cuda:1: item: the host reads what the device computed";
    CHECK(expect_says(info.why_not, why) || (how == 1 && c->rank == 0), "%s", info.why_not);
    if (how == 6 && c->rank == 0)
        CHECK(expect_says(info.why_not, "rank 1 of group 'graph' cannot: "), "%s", info.why_not);
    yk_tensor_release(plain.loss);
    yk_tensor_release(j.loss);
}

/* Rank 1 does not come to a replay: rank 0, whose GPU waits for it, is told which, and where. */
static void replay_hangs(rank_context *c)
{
    job j;
    float loss = 0;
    static const char *const says[] = {"replay #3 of a recorded step (", "the first broadcast of uint8",
                                       "rank 0 (host ", "waited 1 s for NCCL to move the bytes"};
    CHECK(job_make(c, &j, "nccl", "hangs", 1), "%s", yk_last_error()->message);
    yk_graph *g = yk_graph_create(own_gpu(c), 0, recorded_step, &j);
    for (int i = 0; i < 7; i++)
        CHECK_OK(job_run(c, &j, g, i, &loss));
    CHECK(yk_graph_get_info(g).replays == 2, "%lld replays", (long long)yk_graph_get_info(g).replays);
    if (c->rank == 0)
        CHECK_FAILS(job_run(c, &j, g, 7, &loss), YK_ERR_STALLED, says[0], says[1], says[2], says[3]);
    CHECK(all_come(c, 0), "the other rank did not end");
    CHECK_FAILS(job_run(c, &j, g, 8, &loss), YK_ERR_STALLED, says[0], says[1], says[2], says[3]);
    CHECK(yk_graph_get_info(g).replays == (c->rank ? 2 : 3), "a replay on a broken group");
    yk_tensor_release(j.loss);
}

/* The group is left before the graph goes: its recording goes first, since NCCL waits for that. */
static void left_before(rank_context *c)
{
    job j;
    float loss = 0;
    yk_scope outer = yk_scope_begin();
    CHECK(job_make(c, &j, "nccl", "left", patience(60)), "%s", yk_last_error()->message);
    yk_graph *g = yk_graph_retain(yk_graph_create(own_gpu(c), 0, recorded_step, &j));
    for (int i = 0; i < 7; i++)
        CHECK_OK(job_run(c, &j, g, i, &loss));
    CHECK(yk_graph_get_info(g).replays == 2, "%lld replays", (long long)yk_graph_get_info(g).replays);
    yk_tensor_release(j.loss);
    yk_scope_end(outer);
    const char *why = yk_graph_get_info(g).why_not;
    CHECK(why && expect_says(why, "the process group 'left' of its collectives was left"), "%s", why ? why : "none");
    yk_graph_release(g);
}

typedef struct unwaited_job {
    yk_process_group *group;
    yk_tensor *source, *sum, *out;
} unwaited_job;

/* A sum that nobody waits for is released, with the only tensor that it is of; the next tensor takes that memory. */
static yk_status unwaited_step(void *user)
{
    unwaited_job *j = user;
    yk_scope scope = yk_scope_begin();
    (void)!yk_all_reduce_async(yk_add_scalar(j->source, 1), YK_OP_SUM, j->group);
    yk_scope_end(scope);
    yk_tensor *next = yk_add_scalar(j->source, 5);
    yk_status status = yk_all_reduce(j->sum, YK_OP_MAX, j->group);
    return status ? status : yk_copy_(j->out, next) ? YK_OK : yk_last_error()->code;
}

static void unwaited(rank_context *c)
{
    enum { RUNS = 24 };
    unwaited_job j = {c->group, yk_full(YK_SHAPE(5003), c->rank, NULL), yk_full(YK_SHAPE(7), c->rank, NULL),
                      yk_zeros(YK_SHAPE(5003), NULL)};
    yk_graph *g = yk_graph_create(own_gpu(c), 0, unwaited_step, &j);
    for (int i = 0; i < RUNS; i++) {
        CHECK_OK(yk_graph_run(g));
        double least = yk_item(yk_min(j.out)), most = yk_item(yk_max(j.out));
        CHECK(least == c->rank + 5 && most == least, "run %d: %g to %g", i, least, most);
    }
    yk_graph_info info = yk_graph_get_info(g);
    CHECK(!info.why_not && info.replays > RUNS / 2, "%lld replays: %s", (long long)info.replays, info.why_not);
}

static void test_recorded(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, replayed, NULL, patience(60), false);
    yk_use_deterministic_algorithms(true);
    run_ranks(THREADS, 2, replayed, NULL, patience(60), false);
    yk_use_deterministic_algorithms(false);
    run_ranks(THREADS, 2, unwaited, NULL, patience(60), true);
}

static void test_not_recorded(void **state)
{
    (void)state;
    static const int ways[] = {1, 6, 0, -1};
    for (int i = 0; i < 4; i++)
        run_ranks(THREADS, 2, not_recorded, &ways[i], patience(60), false);
    run_ranks(THREADS, 2, waits_for_earlier, NULL, patience(60), true);
}

static void test_replay_hangs(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, replay_hangs, NULL, patience(60), false);
    run_ranks(THREADS, 2, left_before, NULL, patience(60), false);
}

/* ---- in processes ------------------------------------------------------------------------------------------------ */
#ifndef __SANITIZE_THREAD__ /* the thread sanitizer does not follow a fork */
static void suite_of_processes(void **state)
{
    (void)state;
    run_nccl_suite(PROCESSES, 2);
}

static void *give_up_soon(void *group)
{
    usleep(200000);
    yk_process_group_abort(group, "the test says so");
    return NULL;
}

/* Rank 1's GPU is busy: it has come to the operation, but NCCL cannot begin there. It is killed (arg 0), or the time of
 * the group is over (1, and 3: rank 1 is stopped), or rank 0 gives up (2). */
static void cut_in_the_middle(rank_context *c)
{
    static const double busy = 20;
    int how = *(const int *)c->arg;
    yk_tensor *x = yk_full(YK_SHAPE(5003), 1, NULL);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK_OK(yk_device_synchronize(own_gpu(c)));
    CHECK_MET(c);
    if (c->rank == 1)
        CHECK_OK(yk__backend_of(own_gpu(c))->enqueue(c->rank, sleep_for, (void *)(uintptr_t)&busy));
    pthread_t thread;
    if (how == 2 && c->rank == 0)
        CHECK(pthread_create(&thread, NULL, give_up_soon, c->group) == 0, "no thread");
    double began = yk__now();
    yk_work *work = yk_all_reduce_async(x, YK_OP_SUM, c->group);
    CHECK(work, "%s", yk_last_error()->message);
    CHECK_OK(yk_work_wait(work)); /* all have come to it: kernels are queued after it from here on */
    if (how == 0 && c->rank == 1)
        kill(getpid(), SIGKILL);
    if (how == 3 && c->rank == 1)
        raise(SIGSTOP);
    yk_status expected = how == 1 || how == 3 ? YK_ERR_STALLED : YK_ERR_CONNECTION;
    const char *say = how == 0   ? "rank 1 (host "
                      : how == 1 ? "for NCCL to move the bytes, though all ranks have come"
                      : how == 3 ? ") is stopped"
                                 : "group 'world' was given up by rank 0";
    const char *what = how != 2 ? "all_reduce #3 (float32, 5003 elements, sum)" : "";
    float read[5003];
    if (c->rank == 0) { /* nothing is read that was computed from what the operation left; the GPU is good then */
        CHECK_FAILS(yk_tensor_read(x, read, sizeof(read)), expected, what, say);
        CHECK_OK(yk_tensor_read(x, read, sizeof(read)));
    }
    while (!yk_work_test(work) && yk__now() < began + busy / 2)
        usleep(1000);
    const yk_error *error = yk_work_error(work);
    CHECK(error && error->code == expected && expect_says(error->message, say), "%s", error ? error->message : "good");
    double seconds = yk__now() - began;
    CHECK(seconds < busy / 2, "%g s", seconds);
    CHECK_FAILS(yk_work_wait(work), expected, what, say);
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), expected, say); /* the group's first cause, for good */
    if (how == 2 && c->rank == 0)
        pthread_join(thread, NULL);
}

static void in_the_middle(rank_context *c)
{
    cut_in_the_middle(c);
    if (*(const int *)c->arg == 3 && c->rank == 0)
        kill(c->pids[1], SIGKILL); /* the one that is stopped */
    _exit(0);                      /* the busy GPU is not waited for */
}

/* All communicators are given up at once, however many there are: a busy GPU holds up the group's end but once. */
static void several_communicators(rank_context *c)
{
    static const double busy = 20, once = 2.5;
    int other = 1 - c->rank;
    yk_tensor *x = yk_full(YK_SHAPE(5003), 1, NULL), *out = yk_full(YK_SHAPE(503), 1, NULL);
    yk_tensor *in = yk_zeros(YK_SHAPE(503), NULL);
    yk_work *works[3] = {0};
    for (int i = 0; i < 2; i++) {
        if (i) {
            CHECK_OK(yk_device_synchronize(own_gpu(c)));
            CHECK_MET(c);
            CHECK_OK(yk__backend_of(own_gpu(c))->enqueue(c->rank, sleep_for, (void *)(uintptr_t)&busy));
        }
        works[0] = yk_all_reduce_async(x, YK_OP_SUM, c->group);
        works[1] = yk_isend(out, other, i, c->group);
        works[2] = yk_irecv(in, other, i, c->group);
        for (int k = 0; k < 3; k++)
            CHECK_OK(yk_work_wait(works[k])); /* it is on its stream */
    }
    CHECK(all_come(c, 0), "rank %d did not come", other);
    double began = yk__now();
    if (c->rank == 0)
        yk_process_group_abort(c->group, "the test says so");
    for (int k = 0; k < 3; k++)
        while (!yk_work_test(works[k]) && yk__now() < began + busy / 2)
            usleep(1000);
    double seconds = yk__now() - began;
    CHECK(seconds < patience(once), "%g s", seconds);
}

static void several_at_once(rank_context *c)
{
    several_communicators(c);
    _exit(0); /* the busy GPU is not waited for */
}

static void test_in_the_middle(void **state)
{
    (void)state;
    for (int how = 0; how < 4; how++)
        run_ranks(PROCESSES, 2, in_the_middle, &how, how == 1 || how == 3 ? 2 : patience(60), true);
    run_ranks(PROCESSES, 2, several_at_once, NULL, patience(60), true);
}

static void one_gpu(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0}));
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_UNSUPPORTED, "are on one GPU",
                "give every rank a GPU of its own, or take the backend 'native'");
}

/* For tests: NCCL takes them for ranks of two hosts (arg 1); without that it refuses them itself. */
static void one_gpu_of_two_hosts(rank_context *c)
{
    bool hosts = *(const int *)c->arg;
    setenv("YOKE_NCCL_SHARED_GPU", "1", 1);
    setenv("NCCL_HOSTID", hosts && c->rank ? "b" : "a", 1);
    yk_tensor *x = yk_full(YK_SHAPE(12), c->rank + 1, YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0}));
    if (hosts) {
        CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
        CHECK(yk_get(x, (int64_t[]){11}) == 3, "%g", yk_get(x, (int64_t[]){11}));
        CHECK_OK(c->rank ? yk_recv(x, 0, 0, c->group) : yk_send(x, 1, 0, c->group));
    } else {
        CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_CONNECTION, "NCCL says: invalid usage");
    }
}

/* A difference in the last number is enough for NCCL, which does not say which rank has which. */
static void versions_differ(rank_context *c)
{
    setenv("YOKE_EMULATOR_NCCL_VERSION", c->rank == 1 ? "22810" : "22809", 1);
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, NULL);
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_MISMATCH, "rank 0 (host ",
                ") has NCCL 2.28.9, but rank 1 (", ") has 2.28.10");
}

/* Rank 1 does not reach the others over the network, which NCCL waits for without a word. */
static void no_way(rank_context *c)
{
    setenv("YOKE_EMULATOR_NCCL_HANGS", "1", 1);
    yk_process_group *g = yk_process_group_create(
        c->store, c->rank, c->size, YK_OPTIONS(yk_process_group_options, .timeout = 20, .join_timeout = patience(3)));
    CHECK(g, "%s", yk_last_error()->message);
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, NULL);
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, g), YK_ERR_STALLED, " s for ncclCommInitRankConfig",
                "NCCL_DEBUG=INFO says where it waits; NCCL_SOCKET_IFNAME chooses the network interface");
}

static void orders_differ(rank_context *c)
{
    CHECK(!yk_deterministic_algorithms_enabled(), "it is not off at the start");
    setenv("YOKE_DETERMINISTIC", c->rank == 1 ? "1" : "0", 1);
    CHECK(yk_deterministic_algorithms_enabled() == (c->rank == 1), "it is not as the environment says");
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, NULL);
    yk_use_deterministic_algorithms(c->rank == 0);
    CHECK_OK(yk_broadcast(x, 0, c->group)); /* nothing is added there */
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_MISMATCH, "all_reduce #2 (float32, 12 elements, sum)",
                "all_reduce #2 (float32, 12 elements, sum, deterministic)", "rank 1 (host ");
}

/* The user's own word for NCCL_GRAPH_REGISTER stands, with which the stand-in refuses recorded sums: after a call of
 * NCCL that failed while it was recorded, the group is broken on all ranks, and no step runs as it is to its end. */
static void fails_inside_a_recording(rank_context *c)
{
    job j;
    float loss = 0;
    setenv("NCCL_GRAPH_REGISTER", "1", 1);
    CHECK(job_make(c, &j, "nccl", "inside", patience(20)), "%s", yk_last_error()->message);
    yk_graph *g = yk_graph_create(own_gpu(c), 0, recorded_step, &j);
    for (int i = 0; i < 5; i++)
        CHECK_OK(job_run(c, &j, g, i, &loss));
    CHECK_FAILS(job_run(c, &j, g, 5, &loss), YK_ERR_CONNECTION, "all_reduce", "NCCL says: invalid usage");
    CHECK_FAILS(job_run(c, &j, g, 6, &loss), YK_ERR_CONNECTION, "all_reduce", "NCCL says: invalid usage");
    yk_tensor_release(j.loss);
}

static void test_mistakes_of_processes(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, one_gpu, NULL, patience(20), true);
    for (int hosts = 0; hosts < 2; hosts++)
        run_ranks(PROCESSES, 2, one_gpu_of_two_hosts, &hosts, patience(20), true);
    run_ranks(PROCESSES, 2, versions_differ, NULL, patience(20), true);
    run_ranks(PROCESSES, 2, orders_differ, NULL, patience(20), true);
    run_ranks(PROCESSES, 2, no_way, NULL, patience(20), false);
    run_ranks(PROCESSES, 2, fails_inside_a_recording, NULL, patience(20), false);
}

static void without_the_library(rank_context *c)
{
    setenv("YOKE_EMULATOR_LIBRARIES", "cublasLt,cudnn", 1);
    CHECK_FAILS(yk_process_group_create(c->store, c->rank, c->size, NULL), YK_ERR_UNSUPPORTED,
                "backend 'nccl': NCCL is not here", "'native' carries tensors of GPUs without it");
}

/* The environment outdoes what a communicator is made with, and a call that waits for a rank cannot be given up. */
static void blocking_calls(rank_context *c)
{
    setenv("NCCL_COMM_BLOCKING", "1", 1);
    CHECK_FAILS(yk_process_group_create(c->store, c->rank, c->size, NULL), YK_ERR_UNSUPPORTED,
                "backend 'nccl': NCCL_COMM_BLOCKING=1 in the environment", "unset it");
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    CHECK(yk_process_group_create(c->store, c->rank, c->size, NULL), "%s", yk_last_error()->message);
}

static void launch_order(rank_context *c)
{
    static const char *const values[] = {"1", "2"};
    for (int i = 0; i < 2; i++) {
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", values[i], 1);
        CHECK_FAILS(yk_process_group_create(c->store, c->rank, c->size, NULL), YK_ERR_UNSUPPORTED,
                    "backend 'nccl': NCCL_LAUNCH_ORDER_IMPLICIT=", values[i], " in the environment", "unset it");
    }
}

static void old_library(rank_context *c)
{
    setenv("YOKE_EMULATOR_NCCL_VERSION", "22602", 1);
    CHECK_FAILS(yk_process_group_create(c->store, c->rank, c->size, NULL), YK_ERR_UNSUPPORTED,
                "libnccl.so.2 is NCCL 2.26.2; NCCL 2.27.3 or later is needed");
}

/* NCCL puts what its file says into the environment, in its first call. */
static void blocking_by_file(rank_context *c)
{
    char path[] = "/tmp/yoke-nccl-XXXXXX";
    static const char says[] = "NCCL_COMM_BLOCKING=1\n";
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, says, sizeof(says) - 1) == sizeof(says) - 1, "%s", path);
    setenv("NCCL_CONF_FILE", path, 1);
    close(fd);
    CHECK_FAILS(yk_process_group_create(c->store, c->rank, c->size, NULL), YK_ERR_UNSUPPORTED,
                "NCCL_COMM_BLOCKING=1 in the environment, or in a file that NCCL reads");
    unlink(path);
}

static void test_without_the_library(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 1, without_the_library, NULL, patience(20), false);
    run_ranks(PROCESSES, 1, blocking_calls, NULL, patience(20), false);
    run_ranks(PROCESSES, 1, launch_order, NULL, patience(20), false);
    run_ranks(PROCESSES, 1, old_library, NULL, patience(20), false);
    run_ranks(PROCESSES, 1, blocking_by_file, NULL, patience(20), false);
}
#endif

int main(void)
{
    setenv("YOKE_EMULATOR_GPUS", "4", 1);
    setenv("YOKE_COMM_BACKEND", "nccl", 1);
    setenv("YOKE_EMULATOR_HOST_FUNCTIONS", "parallel", 1); /* GPUs that are busy */
    /* Convolutions by kernels of our own: bits are compared without deterministic, too, where cuDNN may take an engine
     * that adds in another order each time, and its stand-in does. */
    setenv("YOKE_EMULATOR_LIBRARIES", "cublasLt,nccl", 1);
    if (!use_emulator())
        return 0;
    char plugin[4200];
    snprintf(plugin, sizeof(plugin), "%s/yoke-nccl.so", getenv("YOKE_BACKEND_PATH"));
    if (access(plugin, R_OK)) {
        printf("1..0 # SKIP this build has no nccl backend: it needs the header of NCCL\n");
        return 0;
    }
    test_gpus = true;
    yk__default_device_type = YK_CUDA;
    const struct CMUnitTest tests[] = {
#ifndef __SANITIZE_THREAD__
        /* The first are processes: CUDA does not survive a fork. */
        cmocka_unit_test(test_without_the_library),
        cmocka_unit_test(suite_of_processes),
        cmocka_unit_test(test_in_the_middle),
        cmocka_unit_test(test_mistakes_of_processes),
#endif
        cmocka_unit_test(suite_of_threads),
        cmocka_unit_test(test_means),
        cmocka_unit_test(fixed_order),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_two_groups),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_ddp),
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_not_recorded),
        cmocka_unit_test(test_replay_hangs)};
    return cmocka_run_group_tests_name("nccl", tests, NULL, NULL);
}
