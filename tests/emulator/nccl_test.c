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
/* What NCCL's own order of sums leaves as it is, the sums of whole numbers and halves among it. */
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

/* What was queued before is in the sum, though it takes time; what is queued behind the call does not hold it up, and
 * the host waits for neither. */
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

/* The device is busy before the operation: the host goes on all the same, and what it queues comes behind the result,
 * which by then may be in memory that the program has freed. */
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
            &(yk_process_group_options){.name = k ? "second" : "first", .timeout = patience(20)});
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
    run_ranks(THREADS, 2, other_devices, NULL, patience(20), true);
}

/* ---- DistributedDataParallel ------------------------------------------------------------------------------------- */
enum { STEPS = 4, WEIGHTS = 8 * 6 };

/* The weights after some steps, by NCCL in the fixed order and by native: the same bits. */
static void train(rank_context *c, const char *backend, const char *name, float *weights)
{
    yk_scope scope = yk_scope_begin();
    yk_process_group *group =
        yk_process_group_create(c->store, c->rank, c->size,
                                &(yk_process_group_options){.backend = backend, .name = name, .timeout = patience(60)});
    CHECK(group, "%s", yk_last_error()->message);
    yk_module *net = yk_sequential(yk_conv2d_create(6, 8, 1, NULL), yk_batch_norm2d_create(8, NULL), NULL);
    yk_module_to(net, own_gpu(c));
    yk_tensor *weight = yk_parameters_at(yk_module_parameters(net), 0);
    CHECK(yk_numel(weight) == WEIGHTS, "%lld weights", (long long)yk_numel(weight));
    for (int k = 0; k < WEIGHTS; k++)
        weights[k] = cosf((float)k);
    bool recording = yk_no_grad_begin();
    CHECK_OK(yk_tensor_write(weight, weights, WEIGHTS * sizeof(*weights)));
    CHECK_OK(yk_tensor_write(yk_parameters_at(yk_module_parameters(net), 1), weights, 8 * sizeof(*weights)));
    yk_no_grad_end(recording);
    yk_module *ddp = yk_ddp(net, &(yk_ddp_options){.group = group});
    yk_optimizer *sgd = yk_sgd(yk_module_parameters(ddp), &(yk_sgd_options){.lr = 0.1, .momentum = 0.9});
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

/* ---- in processes ------------------------------------------------------------------------------------------------ */
#ifndef __SANITIZE_THREAD__ /* which does not follow a fork */
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
 * the group is over (1), or rank 0 gives up (2). */
static void in_the_middle(rank_context *c)
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
    CHECK_OK(yk_work_wait(work)); /* all have come to it: kernels are behind it from here on */
    if (how == 0 && c->rank == 1)
        kill(getpid(), SIGKILL);
    yk_status expected = how == 1 ? YK_ERR_STALLED : YK_ERR_CONNECTION;
    const char *say = how == 0   ? "rank 1 (host "
                      : how == 1 ? "for NCCL to move the bytes, though all ranks have come"
                                 : "group 'world' was given up by rank 0";
    const char *what = how < 2 ? "all_reduce #3 (float32, 5003 elements, sum)" : "";
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
    _exit(0); /* the busy GPU is not waited for */
}

static void test_in_the_middle(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++)
        run_ranks(PROCESSES, 2, in_the_middle, &how, how == 1 ? 2 : patience(60), true);
}

static void one_gpu(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, &(yk_tensor_options){.device = {YK_CUDA, 0}});
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_UNSUPPORTED, "are on one GPU",
                "give every rank a GPU of its own, or take the backend 'native'");
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

static void test_mistakes_of_processes(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 2, one_gpu, NULL, patience(20), true);
    run_ranks(PROCESSES, 2, orders_differ, NULL, patience(20), true);
}

static void without_the_library(rank_context *c)
{
    setenv("YOKE_EMULATOR_LIBRARIES", "cublasLt,cudnn", 1);
    CHECK_FAILS(yk_process_group_create(c->store, c->rank, c->size, NULL), YK_ERR_UNSUPPORTED,
                "backend 'nccl': NCCL is not here", "'native' carries tensors of GPUs without it");
}

static void test_without_the_library(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 1, without_the_library, NULL, patience(20), false);
}
#endif

int main(void)
{
    setenv("YOKE_EMULATOR_GPUS", "4", 1);
    setenv("YOKE_COMM_BACKEND", "nccl", 1);
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
        cmocka_unit_test(fixed_order),
        cmocka_unit_test(test_beside),
        cmocka_unit_test(test_two_groups),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_ddp)};
    return cmocka_run_group_tests_name("nccl", tests, NULL, NULL);
}
