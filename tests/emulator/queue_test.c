/* queue_test.c - collectives and messages of tensors on (emulated) GPUs by way of the host: results, order with what is
 * queued before and after, ranks that share a GPU, operations that do not match, time-out, a rank that is killed. Ranks
 * are threads, each with a device of its own, or processes. */
#include "tests/comm/ranks.h"
#include "tests/emulator/use_emulator.h"

#include <yoke/yoke.h>

#include "comm/staging.h"

enum { RANKS = 2, N = 5003 };

static yk_tensor *filled(rank_context *c, double value)
{
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, (int16_t)c->rank});
    const int64_t n = N;
    return yk_full(1, &n, value, &o);
}

static void check_all(rank_context *c, yk_tensor *x, double expected, const char *what)
{
    static _Thread_local float got[2 * N];
    CHECK(x, "%s: no tensor", what);
    CHECK_OK(yk_tensor_read(x, got, (size_t)yk_numel(x) * sizeof(*got)));
    for (int64_t i = 0; i < yk_numel(x); i++)
        CHECK((double)got[i] == expected, "%s: element %lld is %g, expected %g", what, (long long)i, (double)got[i],
              expected);
}

/* The results of work that was queued before are in the sum; work that is queued after the wait sees the sum. */
static void sums(rank_context *c)
{
    for (int round = 0; round < 5; round++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = filled(c, c->rank + 1);
        for (int i = 0; i < 4; i++)
            x = yk_add_scalar(x, 1); /* rank + 5 */
        yk_work *work = yk_all_reduce_async(x, YK_OP_SUM, c->group);
        yk_tensor *y = filled(c, 10 * (c->rank + 1));
        CHECK_OK(yk_all_reduce(y, YK_OP_MEAN, c->group));
        CHECK_OK(yk_work_wait(work));
        check_all(c, yk_mul_scalar(x, 2), 22, "behind an all_reduce");
        check_all(c, x, 11, "all_reduce");
        check_all(c, y, 15, "mean");
        if (c->failure[0])
            return;
        yk_scope_end(scope);
    }
}

static void others(rank_context *c)
{
    const int64_t both[] = {RANKS, N}, square[] = {3, 4};
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, (int16_t)c->rank});
    yk_tensor *x = filled(c, c->rank + 3), *all = yk_zeros(2, both, &o), *part = filled(c, 0);
    CHECK_OK(yk_broadcast(x, 1, c->group));
    check_all(c, x, 4, "broadcast");
    CHECK_OK(yk_all_gather(all, x, c->group));
    check_all(c, all, 4, "all_gather");
    CHECK_OK(yk_reduce_scatter(part, all, YK_OP_SUM, c->group));
    check_all(c, part, 8, "reduce_scatter");
    CHECK_OK(yk_reduce(part, 0, YK_OP_MAX, c->group));
    CHECK_OK(yk_barrier(c->group));
    /* One that is not contiguous, and one without elements. */
    yk_tensor *base = yk_full(2, square, c->rank + 1, &o), *turned = yk_transpose(base, 0, 1);
    CHECK_OK(yk_all_reduce(turned, YK_OP_SUM, c->group));
    check_all(c, base, 3, "transposed");
    const int64_t none = 0;
    CHECK_OK(yk_all_reduce(yk_zeros(1, &none, &o), YK_OP_SUM, c->group));
}

static void results(rank_context *c)
{
    sums(c);
    if (!c->failure[0])
        others(c);
}

static int pinned_pieces(const rank_context *c)
{
    int count = 0;
    for (const struct yk__pinned *p = c->group->group->pinned; p; p = yk__staging_next(p))
        count++;
    return count;
}

/* Ranks that are threads, all on one GPU, whose host functions CUDA may carry out one at a time; the memory of the
 * first operation serves the later ones. */
static void on_one_gpu(rank_context *c)
{
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0});
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size, kept = 0;
    for (int round = 0; round < 6; round++) {
        yk_tensor *x = yk_full(YK_SHAPE(N), c->rank + round, &o), *y = yk_zeros(YK_SHAPE(N), &o);
        yk_work *work = yk_all_reduce_async(yk_full(YK_SHAPE(N), 1, &o), YK_OP_SUM, c->group);
        CHECK_OK(yk_all_reduce(x, YK_OP_MAX, c->group));
        CHECK_OK(yk_work_wait(work));
        check_all(c, x, c->size - 1 + round, "all_reduce on one GPU");
        CHECK(yk_fill_(x, c->rank), "fill_ failed");
        work = yk_isend(x, next, 0, c->group);
        CHECK_OK(yk_recv(y, before, 0, c->group));
        CHECK_OK(yk_work_wait(work));
        check_all(c, y, before, "a message on one GPU");
        if (c->failure[0])
            return;
        if (round == 1)
            kept = pinned_pieces(c);
        CHECK(round < 2 || pinned_pieces(c) <= kept + 1, "%d pieces of memory, %d before", pinned_pieces(c), kept);
    }
}

/* Rank 1 comes late: rank 0's device does not wait for it meanwhile. */
static void late(rank_context *c)
{
    const double late = patience(0.3);
    yk_tensor *x = filled(c, 1), *other = filled(c, 5);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK_MET(c);
    if (c->rank == 1)
        usleep((useconds_t)(late * 1e6));
    double began = yk__now();
    yk_work *work = yk_all_reduce_async(x, YK_OP_SUM, c->group);
    check_all(c, yk_add_scalar(other, 1), 6, "beside an all_reduce");
    double seconds = yk__now() - began;
    CHECK(c->rank == 1 || seconds < late, "a kernel beside an all_reduce took %g s", seconds);
    CHECK_OK(yk_work_wait(work));
    check_all(c, x, 4, "all_reduce");
}

static void test_results(void **state)
{
    (void)state;
    run_ranks(THREADS, RANKS, results, NULL, patience(60), true);
    run_ranks(THREADS, 3, on_one_gpu, NULL, patience(20), true);
    run_ranks(THREADS, RANKS, late, NULL, patience(20), true);
}

/* Rank 1 stays away: rank 0's operation ends by the group's time-out, and its device goes on. */
static void absent(rank_context *c)
{
    CHECK_MET(c);
    if (c->rank == 1) {
        CHECK(all_come(c, 0), "rank 0 did not end");
        return;
    }
    yk_tensor *x = filled(c, 1), *other = filled(c, 5);
    yk_work *work = yk_all_reduce_async(x, YK_OP_SUM, c->group);
    yk_tensor *behind = yk_add_scalar(other, 1);
    CHECK_FAILS(yk_work_wait(work), YK_ERR_STALLED, "all_reduce", "rank 1");
    check_all(c, behind, 6, "behind an all_reduce that failed");
    CHECK(all_come(c, 0), "rank 1 did not end");
}

static void test_time_out(void **state)
{
    (void)state;
    run_ranks(THREADS, RANKS, absent, NULL, 3, true);
}

/* On the device's queue, which stays busy for the seconds that arg points to. */
static void keep_busy(void *arg)
{
    sleep((unsigned)*(const double *)arg);
}

/* Rank 2 is killed while its all_reduce waits in its device's queue, where it cannot begin: the others, whose own are
 * queued too, get the error that names it long before the time-out, and their devices go on. */
static void killed(rank_context *c)
{
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, 0}); /* of each process */
    yk_tensor *x = yk_full(YK_SHAPE(N), 1, &o), *other = yk_full(YK_SHAPE(N), 5, &o);
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK_OK(yk_device_synchronize(o.device));
    CHECK_MET(c);
    if (c->rank == 2)
        CHECK_OK(yk__backend_of(o.device)->enqueue(o.device.index, keep_busy, &c->timeout));
    yk_work *work = yk_all_reduce_async(x, YK_OP_SUM, c->group);
    yk_tensor *behind = yk_add_scalar(other, 1);
    CHECK(work && behind && !yk_work_test(work), "the all_reduce is not queued");
    CHECK(all_come(c, 0), "not all have queued the all_reduce"); /* on a group that is broken it would not be */
    if (c->rank == 2)
        kill(getpid(), SIGKILL);
    double begin = yk__now();
    CHECK_FAILS(yk_work_wait(work), YK_ERR_CONNECTION, "all_reduce #3", "rank 2 (host ", "ended after ");
    double seconds = yk__now() - begin;
    CHECK(seconds < c->timeout / 2, "%g s, with a time-out of %g s", seconds, c->timeout);
    check_all(c, behind, 6, "behind an all_reduce whose peer was killed");
}

/* Before this process uses a device: CUDA does not survive a fork. */
static void test_killed(void **state)
{
    (void)state;
    run_ranks(PROCESSES, 3, killed, NULL, patience(60), true);
}

/* Rank 1 calls another operation than rank 0: both are told, and both devices go on. */
static void different(rank_context *c)
{
    yk_tensor *x = filled(c, 1), *other = filled(c, 5);
    if (c->rank == 0)
        CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_MISMATCH, "all_reduce", "broadcast");
    else
        CHECK_FAILS(yk_broadcast(x, 0, c->group), YK_ERR_MISMATCH, "all_reduce", "broadcast");
    check_all(c, yk_add_scalar(other, 1), 6, "behind a collective that failed");
}

static void test_mismatch(void **state)
{
    (void)state;
    run_ranks(THREADS, RANKS, different, NULL, patience(60), true);
}

/* The results of work that was queued before are sent; work that is queued after the wait sees the message; into views,
 * and between a GPU and a CPU. */
static void messages(rank_context *c)
{
    const int64_t square[] = {3, 4}, n = N;
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .device = {YK_CUDA, (int16_t)c->rank});
    int other = 1 - c->rank;
    for (int round = 0; round < 5; round++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = filled(c, c->rank), *y = filled(c, -1);
        for (int i = 0; i < 4; i++)
            x = yk_add_scalar(x, 1); /* rank + 4 */
        yk_work *came = yk_irecv(y, other, 7, c->group), *sent = yk_isend(x, other, 7, c->group);
        CHECK(yk_add_(x, x, 1), "add_ failed"); /* after it was sent */
        CHECK_OK(yk_work_wait(came));
        CHECK_OK(yk_work_wait(sent));
        check_all(c, yk_mul_scalar(y, 2), 2 * (other + 4), "behind a message");
        check_all(c, x, 2 * (c->rank + 4), "what was sent");
        if (c->failure[0])
            return;
        yk_scope_end(scope);
    }
    /* A transposed view on both ends. */
    yk_tensor *base = yk_full(2, square, c->rank, &o);
    float got[12];
    if (c->rank == 0) {
        for (int i = 0; i < 12; i++)
            got[i] = (float)i;
        CHECK_OK(yk_tensor_write(base, got, sizeof(got)));
        CHECK_OK(yk_send(yk_transpose(base, 0, 1), 1, 0, c->group));
    } else {
        CHECK_OK(yk_recv(yk_transpose(base, 0, 1), 0, 0, c->group));
        CHECK_OK(yk_tensor_read(base, got, sizeof(got)));
        for (int i = 0; i < 12; i++)
            CHECK(got[i] == (float)i, "element %d of a view is %g", i, (double)got[i]);
    }
    /* From a GPU to a CPU and back. */
    yk_tensor *mixed = c->rank == 0 ? filled(c, 3) : yk_zeros(1, &n, NULL);
    if (c->rank == 0) {
        CHECK_OK(yk_send(mixed, 1, 1, c->group));
        CHECK_OK(yk_recv(mixed, 1, 2, c->group));
        check_all(c, mixed, 4, "from a CPU");
    } else {
        CHECK_OK(yk_recv(mixed, 0, 1, c->group));
        check_all(c, mixed, 3, "from a GPU");
        CHECK_OK(yk_send(yk_add_scalar(mixed, 1), 0, 2, c->group));
    }
    /* A count that is not the other's fails on both, and the devices go on. */
    yk_tensor *few = yk_full(2, square, 1, &o), *many = filled(c, 5);
    if (c->rank == 0)
        (void)!yk_send(few, 1, 3, c->group);
    else
        CHECK_FAILS(yk_recv(many, 0, 3, c->group), YK_ERR_MISMATCH, "recv", "12");
    yk_clear_error();
    check_all(c, yk_add_scalar(filled(c, 8), 1), 9, "behind a message that failed");
}

static void test_messages(void **state)
{
    (void)state;
    run_ranks(THREADS, RANKS, messages, NULL, patience(60), true);
}

/* Nobody sends: the time-out ends it. */
static void unheard(rank_context *c)
{
    CHECK_MET(c);
    if (c->rank == 1) {
        CHECK(all_come(c, 0), "rank 0 did not end");
        return;
    }
    yk_tensor *x = filled(c, 1);
    CHECK_FAILS(yk_recv(x, 1, 0, c->group), YK_ERR_STALLED, "recv", "rank 1");
    check_all(c, yk_add_scalar(filled(c, 5), 1), 6, "behind a recv that failed");
    CHECK(all_come(c, 0), "rank 1 did not end");
}

static void test_unheard(void **state)
{
    (void)state;
    run_ranks(THREADS, RANKS, unheard, NULL, 3, true);
}

/* The same slots on the CPU, which is done when they return. */
static void note(void *arg)
{
    ++*(int *)arg;
}

static void test_cpu(void **state)
{
    (void)state;
    const yk__backend *cpu = yk__backend_of((yk_device){YK_CPU, 0});
    void *pinned = NULL;
    int calls = 0;
    float from[3] = {1, 2, 3}, to[3] = {0};
    assert_non_null(cpu);
    expect_ok(cpu->allocate_pinned(0, sizeof(from), &pinned));
    expect_ok(cpu->queue_download(0, pinned, from, sizeof(from)));
    expect_ok(cpu->enqueue(0, note, &calls));
    expect_ok(cpu->queue_upload(0, to, pinned, sizeof(to)));
    assert_int_equal(calls, 1);
    assert_memory_equal(from, to, sizeof(from));
    cpu->release_pinned(0, pinned);
}

int main(void)
{
    setenv("YOKE_EMULATOR_GPUS", "2", 1);
    if (!use_emulator())
        return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_killed),   cmocka_unit_test(test_cpu),
                                       cmocka_unit_test(test_results),  cmocka_unit_test(test_mismatch),
                                       cmocka_unit_test(test_time_out), cmocka_unit_test(test_messages),
                                       cmocka_unit_test(test_unheard)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
