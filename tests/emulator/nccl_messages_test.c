/*
 * nccl_messages_test.c - send and recv of the nccl backend on emulated GPUs: by the device's queues, their order,
 * failures, and in steps that are recorded. Tags and sizes are tested by the suite in nccl_test.c, too.
 */
#include "tests/comm/ranks.h"

#include <dlfcn.h>

#include <yoke/yoke.h>

#include "device/table.h"
#include "tensor/host_tensor.h"
#include "tests/emulator/use_emulator.h"

static yk_device own_gpu(const rank_context *c)
{
    return (yk_device){YK_CUDA, (int16_t)c->rank};
}

static void sleep_for(void *seconds)
{
    usleep((useconds_t)(*(const double *)seconds * 1e6));
}

/* True if all elements are `value`. */
static bool all_are(yk_tensor *x, double value)
{
    return yk_item(yk_min(x)) == value && yk_item(yk_max(x)) == value;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */
/* Both ranks send before they receive, more than the channels of the stand-in take: one stream for both directions
 * would wait for ever. */
static void both_ways(rank_context *c)
{
    static const int64_t counts[] = {0, 1, 12345, 200003};
    static const yk_dtype dtypes[] = {YK_F32, YK_I64, YK_BF16};
    int other = 1 - c->rank;
    for (int i = 0; i < 4; i++) {
        for (int d = 0; d < 3; d++) {
            yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = dtypes[d]);
            yk_tensor *x = yk_full(YK_SHAPE(counts[i]), c->rank + 1, &o), *y = yk_zeros(YK_SHAPE(counts[i]), &o);
            yk_work *sent = yk_isend(x, other, 0, c->group), *came = yk_irecv(y, other, 0, c->group);
            CHECK_OK(yk_work_wait(came));
            CHECK_OK(yk_work_wait(sent));
            yk_tensor *next = yk_add_scalar(y, 1); /* after it, on the GPU */
            CHECK(!counts[i] || all_are(next, other + 2), "%lld elements of %s: %g", (long long)counts[i],
                  yk_dtype_name(dtypes[d]), yk_item(yk_max(next)));
        }
    }
    yk_tensor *wide = yk_full(YK_SHAPE(7, 3), c->rank, NULL), *to = yk_zeros(YK_SHAPE(3, 7), NULL);
    yk_work *sent = yk_isend(yk_transpose(wide, 0, 1), other, 1, c->group);
    CHECK_OK(yk_recv(yk_transpose(to, 0, 1), other, 1, c->group));
    CHECK_OK(yk_work_wait(sent));
    CHECK(all_are(to, other), "views: %g", yk_item(yk_max(to)));
    /* The message that is asked for first goes first, and a work that nobody waits for is carried out. */
    yk_tensor *first = yk_full(YK_SHAPE(5003), 10 + c->rank, NULL),
              *second = yk_full(YK_SHAPE(5003), 20 + c->rank, NULL);
    yk_scope scope = yk_scope_begin();
    CHECK(yk_isend(first, other, 5, c->group) && yk_isend(second, other, 6, c->group), "no work");
    yk_scope_end(scope);
    yk_tensor *got = yk_zeros(YK_SHAPE(5003), NULL);
    CHECK_OK(yk_recv(got, other, 6, c->group));
    CHECK(all_are(got, 20 + other), "tag 6: %g", yk_item(yk_max(got)));
    CHECK_OK(yk_recv(got, other, 5, c->group));
    CHECK(all_are(got, 10 + other), "tag 5: %g", yk_item(yk_max(got)));
}

static long long (*calls_of)(const char *name); /* of CUDA, of all ranks */

/* Questions that CUDA takes long to answer are asked once, and not for each message. */
static void asked_once(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(5), c->rank, NULL);
    long long before = 0;
    for (int i = 0; i < 6; i++) {
        CHECK_OK(c->rank ? yk_recv(x, 0, 0, c->group) : yk_send(x, 1, 0, c->group));
        if (i)
            continue;
        CHECK(all_come(c, 0), "rank %d did not come", 1 - c->rank);
        before = calls_of("cudaGetDeviceProperties");
        CHECK(all_come(c, 1), "rank %d did not come", 1 - c->rank);
    }
    long long asked = calls_of("cudaGetDeviceProperties") - before;
    CHECK(before && !asked, "%lld times, then %lld", before, asked);
}

/* A ring of blocking calls, in which rank 0 receives first; beside collectives, with which messages are not ordered. */
static void ring(rank_context *c)
{
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    yk_tensor *x = yk_full(YK_SHAPE(30011), c->rank, NULL), *y = yk_zeros(YK_SHAPE(30011), NULL);
    yk_tensor *sum = yk_full(YK_SHAPE(303), 1, NULL);
    for (int i = 0; i < 3; i++) {
        yk_work *work = c->rank == 1 ? yk_all_reduce_async(sum, YK_OP_SUM, c->group) : NULL;
        if (c->rank > 0)
            CHECK_OK(yk_send(x, next, i, c->group));
        CHECK_OK(yk_recv(y, before, i, c->group));
        if (c->rank == 0)
            CHECK_OK(yk_send(x, next, i, c->group));
        CHECK_OK(work ? yk_work_wait(work) : yk_all_reduce(sum, YK_OP_SUM, c->group));
        CHECK(all_are(y, before) && all_are(sum, 3 * (i + 1)), "round %d: %g from rank %d, a sum of %g", i,
              yk_item(yk_max(y)), before, yk_item(yk_max(sum)));
        CHECK(yk_fill_(sum, i + 2) && yk_fill_(y, -1), "fill_ failed");
    }
}

/* The GPU is busy before the messages: the host goes on, and the work that it queues comes after the message. */
static void not_waited_for(rank_context *c)
{
    static const double before = 0.4;
    int other = 1 - c->rank;
    yk_tensor *x = yk_full(YK_SHAPE(5003), c->rank, NULL), *y = yk_zeros(YK_SHAPE(5003), NULL);
    yk_work *work = yk_isend(x, other, 0, c->group); /* makes the communicators */
    CHECK_OK(yk_recv(y, other, 0, c->group));
    CHECK_OK(yk_work_wait(work));
    CHECK_OK(yk_device_synchronize(own_gpu(c)));
    CHECK_MET(c);
    double began = yk__now();
    CHECK_OK(yk__backend_of(own_gpu(c))->enqueue(c->rank, sleep_for, (void *)(uintptr_t)&before));
    yk_tensor *last = x;
    for (int i = 0; i < 4; i++) { /* to and fro: each adds one */
        work = yk_isend(last, other, i, c->group);
        yk_tensor *came = yk_zeros(YK_SHAPE(5003), NULL);
        CHECK_OK(yk_recv(came, other, i, c->group));
        CHECK_OK(yk_work_wait(work));
        last = yk_add_scalar(came, 1);
    }
    double seconds = yk__now() - began;
    CHECK(seconds < before, "the host waited %g s", seconds);
    CHECK(all_are(last, c->rank + 4), "%g", yk_item(yk_max(last)));
}

/* Every rank sends to all, and receives from all: kernels of messages leave room for one another on a GPU. */
static void all_pairs(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(3), c->rank, NULL), *from[MOST_TEST_RANKS];
    yk_work *works[2 * MOST_TEST_RANKS] = {0};
    for (int r = 0; r < c->size; r++) {
        if (r == c->rank)
            continue;
        from[r] = yk_zeros(YK_SHAPE(3), NULL);
        works[2 * r] = yk_isend(x, r, 0, c->group);
        works[2 * r + 1] = yk_irecv(from[r], r, 0, c->group);
    }
    for (int i = 0; i < 2 * c->size; i++)
        if (works[i])
            CHECK_OK(yk_work_wait(works[i]));
    for (int r = 0; r < c->size; r++)
        CHECK(r == c->rank || all_are(from[r], r), "from rank %d: %g", r, yk_item(yk_max(from[r])));
}

static void test_results(void **state)
{
    (void)state;
    run_ranks(THREADS, 2, both_ways, NULL, patience(60), true);
    run_ranks(THREADS, 3, ring, NULL, patience(60), true);
    run_ranks(THREADS, 2, not_waited_for, NULL, patience(60), true);
    run_ranks(THREADS, 8, all_pairs, NULL, patience(60), true);
    (void)yk_device_count(YK_CUDA); /* loads the plug-in */
    char path[4200];
    snprintf(path, sizeof(path), "%.4000s/yoke-cuda.so", getenv("YOKE_BACKEND_PATH"));
    void *plugin = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    *(void **)&calls_of = plugin ? dlsym(plugin, "emulator_calls") : NULL;
    assert_non_null(calls_of);
    run_ranks(THREADS, 2, asked_once, NULL, patience(60), true);
    test_layout = EACH_ALONE; /* announcements over TCP */
    run_ranks(THREADS, 2, both_ways, NULL, patience(60), true);
    test_layout = ONE_HOST;
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */
/* Another count (0), another dtype (1). */
static void different(rank_context *c)
{
    bool dtype = *(const int *)c->arg;
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, NULL), *y = yk_zeros(YK_SHAPE(dtype ? 12 : 13), NULL);
    if (dtype)
        y = yk_zeros(YK_SHAPE(12), YK_OPTIONS(yk_tensor_options, .dtype = YK_I32));
    const char *sent = "send #1 (float32, 12 elements, to rank 1, tag 2)";
    const char *wanted = dtype ? "recv #1 (int32, 12 elements, from rank 0, tag 2)"
                               : "recv #1 (float32, 13 elements, from rank 0, tag 2)";
    CHECK_FAILS(c->rank ? yk_recv(y, 0, 2, c->group) : yk_send(x, 1, 2, c->group), YK_ERR_MISMATCH, sent, wanted);
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_MISMATCH, sent, wanted);
    CHECK(all_are(yk_add_scalar(y, 1), 1), "the GPU does not go on");
}

/* Another tag: nobody sends what is asked for. */
static void unheard(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, NULL);
    CHECK_MET(c);
    if (c->rank == 0)
        CHECK_FAILS(yk_send(x, 1, 3, c->group), YK_ERR_STALLED, "(float32, 12 elements, ", " rank ", ", tag ");
    else
        CHECK_FAILS(yk_recv(x, 0, 4, c->group), YK_ERR_STALLED, "(float32, 12 elements, ", " rank ", ", tag ");
}

static void to_itself(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, NULL);
    CHECK_FAILS(yk_isend(x, c->rank, 0, c->group), YK_ERR_UNSUPPORTED, "send #1 (float32, 12 elements, to rank ",
                "is with the rank itself, which NCCL does not take", "'native'");
    CHECK_FAILS(yk_irecv(x, c->rank, 0, c->group), YK_ERR_UNSUPPORTED, "recv #2 (", "is with the rank itself");
    yk_tensor *theirs = yk_to(x, (yk_device){YK_CUDA, (int16_t)(1 - c->rank)});
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group)); /* the group is whole */
    CHECK_FAILS(yk_send(theirs, 1 - c->rank, 0, c->group), YK_ERR_DEVICE, "a rank has one GPU");
    CHECK(all_are(x, 2), "%g", yk_item(yk_max(x)));
}

static void test_mistakes(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++) {
        run_ranks(THREADS, 2, different, &dtype, patience(20), true);
        test_layout = dtype ? ONE_HOST : EACH_ALONE;
    }
    run_ranks(THREADS, 2, unheard, NULL, 1, true);
    run_ranks(THREADS, 2, to_itself, NULL, patience(20), true);
}

/* ---- steps that are recorded ------------------------------------------------------------------------------------- */
typedef struct job {
    const rank_context *c;
    yk_tensor *x, *y, *sum;
    int calls, other_from; /* from this call on rank 0 sends with another tag; 0: never */
} job;

/* x goes round, and what came is added to it; and a collective. */
static yk_status step(void *user)
{
    job *j = user;
    const rank_context *c = j->c;
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    int tag = ++j->calls >= j->other_from && j->other_from && c->rank == 0 ? 9 : 7;
    yk_work *sent = yk_isend(j->x, next, tag, c->group);
    yk_work *came = yk_irecv(j->y, before, 7, c->group);
    yk_status status = yk_work_wait(sent);
    if (!status)
        status = yk_work_wait(came);
    if (!status && !yk_add_(j->x, j->y, 1))
        status = yk_last_error()->code;
    if (!status && !yk_copy_(j->sum, j->x))
        status = yk_last_error()->code;
    return status ? status : yk_all_reduce(j->sum, YK_OP_SUM, c->group);
}

static void recorded(rank_context *c)
{
    enum { RUNS = 12 };
    job j = {.c = c,
             .x = yk_full(YK_SHAPE(1003), c->rank + 1, NULL),
             .y = yk_zeros(YK_SHAPE(1003), NULL),
             .sum = yk_zeros(YK_SHAPE(1003), NULL)};
    yk_graph *g = yk_graph_create(own_gpu(c), 0, step, &j);
    double x[8], total = 0;
    for (int r = 0; r < c->size; r++)
        x[r] = r + 1;
    for (int i = 0; i < RUNS; i++) {
        CHECK_OK(yk_graph_run(g));
        double last = x[c->size - 1];
        for (int r = c->size - 1; r > 0; r--)
            x[r] += x[r - 1];
        x[0] += last;
        total = 0;
        for (int r = 0; r < c->size; r++)
            total += x[r];
        CHECK(all_are(j.x, x[c->rank]) && all_are(j.sum, total), "run %d: %g and %g, not %g and %g", i,
              yk_item(yk_max(j.x)), yk_item(yk_max(j.sum)), x[c->rank], total);
    }
    yk_graph_info info = yk_graph_get_info(g);
    CHECK(!info.why_not && info.replays == RUNS - j.calls + 1, "%lld replays, %d calls: %s", (long long)info.replays,
          j.calls, info.why_not ? info.why_not : "");
    CHECK(info.replays >= 6, "%lld replays", (long long)info.replays);
}

/* In the call that is recorded, which exchanges nothing, rank 0 sends with another tag than rank 1 receives. */
static void recorded_otherwise(rank_context *c)
{
    job j = {.c = c,
             .x = yk_full(YK_SHAPE(1003), c->rank + 1, NULL),
             .y = yk_zeros(YK_SHAPE(1003), NULL),
             .sum = yk_zeros(YK_SHAPE(1003), NULL),
             .other_from = 4};
    yk_graph *g = yk_graph_create(own_gpu(c), 0, step, &j);
    for (int i = 0; i < 3; i++)
        CHECK_OK(yk_graph_run(g));
    (void)!yk_graph_run(g);
    yk_graph_info info = yk_graph_get_info(g);
    const char *why = "rank 0 recorded other sends to rank 1 than rank 1 receives from it";
    CHECK(info.why_not && expect_says(info.why_not, why), "%s", info.why_not ? info.why_not : "it was recorded");
    yk_clear_error();
}

static void test_recorded(void **state)
{
    (void)state;
    run_ranks(THREADS, 3, recorded, NULL, patience(60), true);
    run_ranks(THREADS, 2, recorded_otherwise, NULL, 2, true);
}

/* ---- in processes ------------------------------------------------------------------------------------------------ */
#ifndef __SANITIZE_THREAD__ /* the thread sanitizer does not follow a fork */
/* Rank 1 is killed before it calls (0), or when both have come and its GPU is busy (1). */
static void gone(rank_context *c)
{
    static const double busy = 20;
    int how = *(const int *)c->arg;
    yk_tensor *x = yk_full(YK_SHAPE(100003), 1, NULL);
    CHECK_OK(c->rank ? yk_send(x, 0, 0, c->group) : yk_recv(x, 1, 0, c->group));
    CHECK_OK(yk_device_synchronize(own_gpu(c)));
    CHECK_MET(c);
    if (c->rank == 1 && how)
        CHECK_OK(yk__backend_of(own_gpu(c))->enqueue(1, sleep_for, (void *)(uintptr_t)&busy));
    if (c->rank == 1 && how)
        CHECK_OK(yk_send(x, 0, 1, c->group));
    if (c->rank == 1)
        kill(getpid(), SIGKILL);
    const char *what = "recv #2 (float32, 100003 elements, from rank 1, tag 1)";
    float read[3];
    double began = yk__now();
    if (how) {
        CHECK_OK(yk_recv(x, 1, 1, c->group));
        CHECK_FAILS(yk_tensor_read(yk_narrow(x, 0, 0, 3), read, sizeof(read)), YK_ERR_CONNECTION, what, "rank 1 (host ",
                    "ended while NCCL moved the bytes");
    } else {
        CHECK_FAILS(yk_recv(x, 1, 1, c->group), YK_ERR_CONNECTION, what, "rank 1 (host ", "ended");
    }
    CHECK(yk__now() - began < busy / 2, "%g s", yk__now() - began);
    CHECK_FAILS(yk_send(x, 1, 0, c->group), YK_ERR_CONNECTION, what, "rank 1 (host ", "ended");
}

static void gone_at_once(rank_context *c)
{
    gone(c);
    _exit(0);
}

static void one_gpu(rank_context *c)
{
    yk_tensor *x = yk_full(YK_SHAPE(12), 1, YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0}));
    CHECK_FAILS(c->rank ? yk_recv(x, 0, 0, c->group) : yk_send(x, 1, 0, c->group), YK_ERR_UNSUPPORTED, "are on one GPU",
                "give every rank a GPU of its own, or take the backend 'native'");
}

static void test_of_processes(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++)
        run_ranks(PROCESSES, 2, gone_at_once, &how, patience(60), true);
    run_ranks(PROCESSES, 2, one_gpu, NULL, patience(20), true);
    run_ranks(PROCESSES, 2, both_ways, NULL, patience(60), true);
}
#endif

int main(void)
{
    setenv("YOKE_EMULATOR_GPUS", "8", 1);
    setenv("YOKE_COMM_BACKEND", "nccl", 1);
    setenv("YOKE_EMULATOR_HOST_FUNCTIONS", "parallel", 1); /* GPUs that are busy */
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
        cmocka_unit_test(test_of_processes), /* first: CUDA does not survive a fork */
#endif
        cmocka_unit_test(test_results), cmocka_unit_test(test_mistakes), cmocka_unit_test(test_recorded)};
    return cmocka_run_group_tests_name("nccl_messages", tests, NULL, NULL);
}
