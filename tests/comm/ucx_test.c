/*
 * ucx_test.c - the ucx backend: the suite that every backend must pass, over UCX's TCP and each kind of its shared
 * memory, between ranks of one host and of several. Ranks are processes: UCX reads UCX_TLS once in each. Skipped where
 * UCX was not there to build with.
 */
int collectives_main(void);
#define main collectives_main /* the cases are those of collectives_test.c */
#include "tests/comm/collectives_test.c"
#undef main

#include "tests/support/machine.h"

#include <libgen.h>

static char folder[4000];

/* Ranks from here on go by these transports, on one host or each on its own; false where the backend is not there. */
static bool by(const char *transports, enum rank_layout layout)
{
    char object[5000];
    snprintf(object, sizeof(object), "%s/yoke-ucx.so", folder);
    if (access(object, R_OK) != 0) {
        print_message("# this build has no yoke-ucx.so: it needs libucx-dev\n");
        skip();
        return false;
    }
    test_layout = layout;
    return setenv("UCX_TLS", transports, 1) == 0 && setenv("YOKE_COMM_BACKEND", "ucx", 1) == 0;
}

static void is_ucx(rank_context *c)
{
    CHECK(strcmp(yk_process_group_backend(c->group), "ucx") == 0, "%s", yk_process_group_backend(c->group));
    yk_tensor *x = yk_full(YK_SHAPE(300000), c->rank + 1, NULL);
    CHECK_OK(yk_barrier(c->group));
    CHECK_OK(yk_broadcast(x, c->size - 1, c->group));
    CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
    CHECK(yk_get(x, (int64_t[]){299999}) == c->size * c->size, "%g", yk_get(x, (int64_t[]){299999}));
}

static void test_pairs(void **unused)
{
    (void)unused;
    static const char *const transports[] = {"tcp", "sysv,self", "all"};
    for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++) {
        assert_true(by(transports[i], ONE_HOST));
        run_ranks(PROCESSES, 2, is_ucx, NULL, patience(20), true);
    }
}

/* ---- the suite --------------------------------------------------------------------------------------------------- */
static void test_tcp_between_hosts(void **unused)
{
    (void)unused;
    assert_true(by("tcp", EACH_ALONE));
    run_suite(PROCESSES, 3);
}

static void test_shared_memory(void **unused)
{
    (void)unused;
    assert_true(by("posix,self", ONE_HOST));
    run_suite(PROCESSES, 2);
    assert_true(by("shm", ONE_HOST));
    run_suite(PROCESSES, 4);
}

/* A world of one has no transport. */
static void test_alone(void **unused)
{
    (void)unused;
    assert_true(by("shm", ONE_HOST));
    run_suite(PROCESSES, 1);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */
static const struct {
    const char *transports;
    enum rank_layout layout;
} ways[] = {{"tcp", EACH_ALONE}, {"shm", ONE_HOST}};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

static void on_all_ways(int size, rank_fn fn, double timeout)
{
    for (size_t i = 0; i < WAYS; i++) {
        assert_true(by(ways[i].transports, ways[i].layout));
        run_ranks(PROCESSES, size, fn, NULL, timeout, true);
    }
}

static void mismatch(rank_context *c)
{
    bool odd = c->rank == 1;
    yk_tensor *x = yk_zeros(YK_SHAPE(200000), YK_OPTIONS(yk_tensor_options, .dtype = odd ? YK_I32 : YK_F32));
    CHECK_MET(c);
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_MISMATCH, "group 'world'", "rank 1 (host ",
                "all_reduce #2 (int32, 200000 elements, sum)", "all_reduce #2 (float32, 200000 elements, sum)", "pid");
    CHECK(yk_barrier(c->group) == YK_ERR_MISMATCH, "the group is whole");
    yk_clear_error();
}

/* "waited 1 s for rank 1 (host ": what a group says whose time-out is patience(1). */
static const char *waited(const char *whom)
{
    static char text[64];
    snprintf(text, sizeof(text), "waited %.3g s for rank %s", patience(1), whom);
    return text;
}

/* Rank 1 stops before an operation, and goes on when the others have seen it. */
static void stopped(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(1000000), NULL);
    CHECK_MET(c);
    if (c->rank == 1) {
        raise(SIGSTOP);
        CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_STALLED, waited("1 (host "));
        return;
    }
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_STALLED, "all_reduce #2 (float32, 1000000 elements, sum)",
                waited("1 (host "));
    atomic_fetch_add(&c->signals[0], 1);
    while (atomic_load(&c->signals[0]) < c->size - 1)
        usleep(1000);
    kill(c->pids[1], SIGCONT);
}

/* Rank 1 is killed while rank 0 and the last are in an operation without it. */
static void killed(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(1000000), NULL);
    CHECK_MET(c);
    if (c->rank == 1)
        raise(SIGKILL);
    double begin = yk__now();
    CHECK_FAILS(yk_all_reduce(x, YK_OP_SUM, c->group), YK_ERR_CONNECTION, "all_reduce #2", "rank 1 (host ", "ended");
    CHECK(yk__now() - begin < patience(10), "%g s", yk__now() - begin);
    CHECK_FAILS(yk_barrier(c->group), YK_ERR_CONNECTION, "rank 1 (host ");
}

static void *kill_soon(void *unused)
{
    (void)unused;
    usleep(20000);
    raise(SIGKILL);
    return NULL;
}

/* Rank 1 is killed somewhere in a row of large operations, whose memory is the caller's again at once. */
static void killed_inside(rank_context *c)
{
    const int64_t count = 3000000;
    pthread_t killer;
    CHECK_MET(c);
    if (c->rank == 1)
        CHECK(pthread_create(&killer, NULL, kill_soon, NULL) == 0, "no thread");
    yk_status status = YK_OK;
    double begin = yk__now();
    while (!status) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = yk_full(YK_SHAPE(count), 1, YK_OPTIONS(yk_tensor_options, .device = (yk_device){YK_CPU, 0}));
        status = yk_all_reduce(x, YK_OP_SUM, c->group);
        if (status) { /* nobody writes there any more */
            float *data = yk_tensor_data(x);
            memset(data, 0, (size_t)count * sizeof(*data));
            usleep(20000);
            for (int64_t i = 0; i < count; i++)
                status = data[i] != 0 ? YK_OK : status;
            CHECK(status, "the memory of an operation that failed was written to");
        }
        yk_scope_end(scope);
    }
    CHECK(yk__now() - begin < patience(20), "%g s", yk__now() - begin);
    CHECK(expect_says(yk_last_error()->message, "rank 1 (host "), "%s", yk_last_error()->message);
    yk_clear_error();
}

static void leaving(rank_context *c)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(10), NULL);
    CHECK_MET(c);
    if (c->rank == 1)
        return;
    CHECK_FAILS(yk_recv(x, 1, 3, c->group), YK_ERR_CONNECTION, "recv #1", "rank 1 (host ");
    CHECK_FAILS(yk_barrier(c->group), YK_ERR_CONNECTION, "rank 1 (host ");
}

static void given_up(rank_context *c)
{
    CHECK_MET(c);
    if (c->rank == 1)
        yk_process_group_abort(c->group, "for the test's sake");
    CHECK_FAILS(yk_barrier(c->group), YK_ERR_CONNECTION, "given up by rank 1 (host ", "for the test's sake");
}

static void test_mismatch(void **unused)
{
    (void)unused;
    on_all_ways(3, mismatch, patience(20));
}

static void test_stopped(void **unused)
{
    (void)unused;
    on_all_ways(2, stopped, patience(1));
}

static void test_killed(void **unused)
{
    (void)unused;
    on_all_ways(3, killed, patience(20));
    on_all_ways(3, killed_inside, patience(20));
}

static void test_leaving(void **unused)
{
    (void)unused;
    on_all_ways(2, leaving, patience(20));
    on_all_ways(2, given_up, patience(20));
}

/* ---- wrong input ------------------------------------------------------------------------------------------------- */
/* One rank's transports do not exist: all hear of it. */
static void nonsense(rank_context *c)
{
    if (c->rank == 1)
        setenv("UCX_TLS", "nonsense", 1);
    yk_process_group *g = yk_process_group_create(c->store, c->rank, c->size,
                                                  YK_OPTIONS(yk_process_group_options, .join_timeout = patience(20)));
    CHECK(!g, "it joined");
    CHECK(expect_says(yk_last_error()->message, "UCX_TLS=nonsense"), "%s", yk_last_error()->message);
    CHECK(expect_says(yk_last_error()->message, "ucx_info -d"), "%s", yk_last_error()->message);
    yk_clear_error();
}

/* Transports that lead to no other process. */
static void nowhere(rank_context *c)
{
    CHECK(!yk_process_group_create(c->store, c->rank, c->size,
                                   YK_OPTIONS(yk_process_group_options, .join_timeout = patience(20))),
          "it joined");
    CHECK(expect_says(yk_last_error()->message, "finds no way to rank"), "%s", yk_last_error()->message);
    CHECK(expect_says(yk_last_error()->message, "UCX_TLS=self"), "%s", yk_last_error()->message);
    yk_clear_error();
}

static void test_transports(void **unused)
{
    (void)unused;
    assert_true(by("tcp", ONE_HOST));
    run_ranks(PROCESSES, 2, nonsense, NULL, patience(20), false);
    assert_true(by("self", ONE_HOST));
    run_ranks(PROCESSES, 2, nowhere, NULL, patience(20), false);
}

static void test_no_object(void **unused)
{
    (void)unused;
    assert_int_equal(setenv("YOKE_BACKEND_PATH", "/nowhere", 1), 0);
    yk_scope scope = yk_scope_begin();
    assert_null(yk_process_group_create(NULL, 0, 1, YK_OPTIONS(yk_process_group_options, .backend = "ucx")));
    expect_error(YK_ERR_UNSUPPORTED, "the 'ucx' backend of collectives is not there (/nowhere/yoke-ucx.so)");
    yk_scope_end(scope);
    assert_int_equal(setenv("YOKE_BACKEND_PATH", folder, 1), 0);
}

int main(void)
{
    snprintf(folder, sizeof(folder), "%.3999s", own_program());
    for (int up = 0; up < 3; up++) /* BUILD/tests/comm/ucx_test */
        dirname(folder);
    setenv("YOKE_BACKEND_PATH", folder, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_object),     cmocka_unit_test(test_pairs),  cmocka_unit_test(test_tcp_between_hosts),
        cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_alone),  cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_stopped),       cmocka_unit_test(test_killed), cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_transports),
    };
    return cmocka_run_group_tests_name("ucx", tests, NULL, NULL);
}
