/*
 * lifetime_test.c - groups that are made again and again, destroyed while they are in use, inherited by a fork, or
 * broken while a rank is elsewhere; and ranks that fail while they join.
 */
#include "tests/comm/ranks.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- destroyed while another thread is in a call ----------------------------------------------------------------- */
static void *last_call(void *arg)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_barrier(arg);
    yk_scope_end(scope);
    return status ? arg : NULL;
}

static yk_status destroy_in_use(int rank, void *arg)
{
    (void)arg;
    pthread_t thread;
    void *failed = NULL;
    if (yk_init_process_group(NULL))
        return yk_last_error()->code;
    yk_process_group *group = yk_process_group_retain(yk_default_process_group());
    if (rank == 0 && pthread_create(&thread, NULL, last_call, group))
        return yk__fail(YK_ERR_IO, "no thread");
    usleep(200000); /* rank 0's thread waits for the other rank by now, on most machines */
    if (rank == 0) {
        yk_destroy_process_group();
        pthread_join(thread, &failed);
    } else {
        failed = last_call(group);
        yk_destroy_process_group();
    }
    yk_process_group_release(group);
    return failed ? yk__fail(YK_ERR_IO, "the barrier of rank %d failed", rank) : YK_OK;
}

static void test_destroy_in_use(void **unused)
{
    (void)unused;
    expect_ok(yk_spawn(destroy_in_use, NULL, 2, NULL));
}

/* ---- made again -------------------------------------------------------------------------------------------------- */
/* Rank 0, which serves the store, is the last to leave; the others have begun to join again by then. */
static yk_status again_and_again(int rank, void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++) {
        yk_scope scope = yk_scope_begin();
        if (yk_init_process_group(YK_OPTIONS(yk_init_options, .join_timeout = patience(30))))
            return yk_last_error()->code;
        yk_tensor *x = yk_full(YK_SHAPE(3), rank + i, NULL);
        if (yk_all_reduce(x, YK_OP_SUM, NULL))
            return yk_last_error()->code;
        double sum = yk_get(x, (int64_t[]){2});
        if (rank == 0)
            usleep(3000);
        yk_destroy_process_group();
        yk_scope_end(scope);
        if (sum != 3 + 3 * i)
            return yk__fail(YK_ERR_INTERNAL, "time %d: the sum is %g", i, sum);
    }
    return YK_OK;
}

static void test_again(void **unused)
{
    (void)unused;
    expect_ok(yk_spawn(again_and_again, NULL, 3, NULL));
}

/* ---- forks ------------------------------------------------------------------------------------------------------- */
static int fails_in_fork(yk_process_group *group, yk_work *outstanding)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_zeros(YK_SHAPE(3), NULL);
    int wrong = 0;
    const char *pid = "is a fork";
#define IN_FORK(call)                                                                                                  \
    do {                                                                                                               \
        yk_clear_error();                                                                                              \
        (void)!(call);                                                                                                 \
        const yk_error *e = yk_last_error();                                                                           \
        wrong += !e || e->code != YK_ERR_STATE || !strstr(e->message, pid);                                            \
    } while (0)
    IN_FORK(yk_all_reduce(x, YK_OP_SUM, group));
    IN_FORK(yk_barrier_async(group));
    IN_FORK(yk_isend(x, 0, 0, group));
    IN_FORK(yk_new_group(group, 1, (int[]){0}));
    IN_FORK((yk_process_group_abort(group, "a fork gives up"), 0));
    IN_FORK(yk_work_wait(outstanding));
    wrong += yk_work_test(outstanding);
    yk_clear_error();
    yk_work_release(outstanding);
    yk_process_group_release(group);
    yk_scope_end(scope);
    return wrong;
}

static void forking(rank_context *c)
{
    yk_tensor *x = yk_ones(YK_SHAPE(3), NULL), *y = yk_zeros(YK_SHAPE(3), NULL);
    CHECK_OK(yk_barrier(c->group));
    if (c->rank == 0) {
        yk_work *coming = yk_irecv(y, 1, 5, c->group);
        CHECK(coming, "%s", yk_last_error()->message);
        int status = -1;
        pid_t pid = fork();
        if (pid == 0)
            _exit(fails_in_fork(c->group, coming));
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "the fork ended with wait status %d", status);
        CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
        CHECK_OK(yk_work_wait(coming));
        CHECK(yk_get(y, (int64_t[]){2}) == 7, "%g", yk_get(y, (int64_t[]){2}));
    } else {
        CHECK_OK(yk_all_reduce(x, YK_OP_SUM, c->group));
        if (c->rank == 1)
            CHECK_OK(yk_send(yk_full(YK_SHAPE(3), 7, NULL), 0, 5, c->group));
    }
    CHECK(yk_get(x, (int64_t[]){1}) == c->size, "%g", yk_get(x, (int64_t[]){1}));
    CHECK_OK(yk_barrier(c->group));
}

static void test_forks(void **unused)
{
    (void)unused;
    for (int layout = ONE_HOST; layout <= EACH_ALONE; layout++) {
        test_layout = (enum rank_layout)layout;
        run_ranks(PROCESSES, 3, forking, NULL, patience(30), true);
    }
    test_layout = ONE_HOST;
}

/* ---- the dump of a rank that was elsewhere ----------------------------------------------------------------------- */
static void elsewhere(rank_context *c)
{
    char path[300];
    CHECK_MET(c);
    if (c->rank == 1)
        yk_process_group_abort(c->group, "no UTF-8: \xe4\xff\"\n");
    for (int i = 0; i < 20000 && !atomic_load(&c->signals[0]); i++) {
        if (c->rank == 1)
            atomic_store(&c->signals[0], 1);
        usleep(500);
    }
    /* Rank 0 finds the group broken when it comes, rank 2 when it leaves. */
    if (c->rank == 0)
        CHECK_FAILS(yk_barrier(c->group), YK_ERR_CONNECTION, "given up by rank 1 (host ");
    if (c->rank == 2) {
        yk_process_group *twin = yk_new_group(c->group, 1, (int[]){2});
        CHECK(!twin || !yk_last_error(), "%s", yk_last_error()->message);
        yk_clear_error();
        return;
    }
    snprintf(path, sizeof(path), "%s.world.rank%d.json", (const char *)c->arg, c->rank);
    json_error_t error;
    json_t *o = json_load_file(path, 0, &error);
    CHECK(o, "%s: %s", path, error.text);
    const char *why = json_string_value(json_object_get(o, "error"));
    CHECK(why && strstr(why, "no UTF-8: \\xe4\\xff\""), "the error is %s", why ? why : "not there");
    CHECK(json_array_size(json_object_get(o, "operations")) == 1, "the operations");
    json_decref(o);
}

static void test_elsewhere(void **unused)
{
    (void)unused;
    char folder[] = "/tmp/yoke-dump-XXXXXX", prefix[64], path[100];
    assert_non_null(mkdtemp(folder));
    snprintf(prefix, sizeof(prefix), "%s/comm", folder);
    setenv("YOKE_COMM_DUMP", prefix, 1);
    run_ranks(THREADS, 3, elsewhere, prefix, patience(30), true);
    unsetenv("YOKE_COMM_DUMP");
    for (int rank = 0; rank < 3; rank++) {
        snprintf(path, sizeof(path), "%s.world.rank%d.json", prefix, rank);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* ---- ranks that fail while they join ----------------------------------------------------------------------------- */
/* One rank can open no more than the store's file; the others learn why they wait in vain, and do not wait for long. */
static void short_of_descriptors(rank_context *c)
{
    int poor = *(const int *)c->arg;
    yk_process_group_options o =
        *YK_OPTIONS(yk_process_group_options, .join_timeout = patience(50), .host_id = host_of_rank(c->rank));
    double begin = yk__now();
    if (c->rank == poor) {
        int next = dup(0);
        close(next);
        CHECK(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next + 1, (rlim_t)next + 1}) == 0, "setrlimit");
        CHECK_FAILS(yk_process_group_create(c->store, c->rank, c->size, &o), YK_ERR_IO, "Too many open files");
    } else {
        char who[64];
        snprintf(who, sizeof(who), "rank %d (host ", poor);
        CHECK(!yk_process_group_create(c->store, c->rank, c->size, &o), "joined");
        const char *message = yk_last_error()->message;
        CHECK(strstr(message, who) && strstr(message, "Too many open files"), "%s", message);
        yk_clear_error();
    }
    double seconds = yk__now() - begin;
    CHECK(seconds < patience(40), "%g s", seconds);
}

static void test_joining(void **unused)
{
    (void)unused;
    for (int layout = ONE_HOST; layout <= EACH_ALONE; layout++) {
        test_layout = (enum rank_layout)layout;
        run_ranks(PROCESSES, 3, short_of_descriptors, &(int){0}, patience(30), false);
    }
    test_layout = ONE_HOST;
}

/* Ranks that make their groups in different orders; rank 0 would wait for one that has failed already. */
static void different_orders(rank_context *c)
{
    double begin = yk__now();
    CHECK_MET(c);
    if (c->rank < 2)
        CHECK_FAILS(yk_new_group(c->group, 2, c->rank ? (int[]){1, 2} : (int[]){0, 1}), YK_ERR_MISMATCH,
                    "group 'world/1'", "made it of other ranks", "in the same order");
    double seconds = yk__now() - begin;
    CHECK(seconds < patience(40), "%g s", seconds);
}

/* A rank that others expect is in no list of its own: it does not come, and no time is lost with waiting for it. */
static void different_lists(rank_context *c)
{
    double begin = yk__now();
    CHECK_MET(c);
    if (c->rank == 1)
        usleep(*(const int *)c->arg ? 2500000 : 0); /* the other waits already, and has said what for */
    if (c->rank == 0)
        CHECK_FAILS(yk_new_group(c->group, 2, (int[]){0, 1}), YK_ERR_MISMATCH, "group 'world/1': rank ",
                    "made it of ranks", "0, 1", "0, 2", "same lists in the same order");
    else if (c->rank == 1 && *(const int *)c->arg)
        CHECK_FAILS(yk_new_group(c->group, 2, (int[]){0, 2}), YK_ERR_MISMATCH, "group 'world/1': rank ", "0, 1",
                    "0, 2");
    else if (c->rank == 1)
        CHECK(yk_new_group(c->group, 2, (int[]){0, 2}) || yk_last_error(), "no group and no error");
    yk_clear_error();
    double seconds = yk__now() - begin;
    CHECK(seconds < patience(20), "%g s", seconds); /* of 60 to join */
}

static void test_orders(void **unused)
{
    (void)unused;
    for (int late = 0; late < 2; late++)
        run_ranks(PROCESSES, 3, different_lists, &late, patience(30), true);
    run_ranks(PROCESSES, 3, different_orders, NULL, patience(30), true);
}

/* ---- works whose scope ends while the operation is under way ----------------------------------------------------- */
static yk_work *begin_one(rank_context *c, yk_tensor *x, bool message)
{
    return message ? yk_irecv(x, 1, 3, c->group) : yk_all_reduce_async(x, YK_OP_SUM, c->group);
}

static void *wait_for_work(void *work)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_work_wait(work);
    yk_scope_end(scope);
    return status ? work : NULL;
}

/* Rank 1 comes when rank 0 has ended the scopes of its works: it has used those that ended, each an error, and another
 * thread waits for one that ends meanwhile. */
static void scopes_that_end(rank_context *c)
{
    const char *freed = "keep it with a retain or move it out with yk_scope_return_object";
    yk_tensor *x = yk_ones(YK_SHAPE(300), NULL);
    for (int message = 0; message < 2; message++) {
        int come = 2 * message;
        if (c->rank == 1) {
            CHECK(all_come(c, come), "rank 0 did not come");
            for (int i = 0; i < 2; i++)
                CHECK_OK(message ? yk_send(x, 0, 3, c->group) : yk_all_reduce(x, YK_OP_SUM, c->group));
            CHECK(all_come(c, come + 1), "rank 0 did not come");
            continue;
        }
        pthread_t thread;
        void *failed = NULL;
        yk_scope outer = yk_scope_begin(), scope = yk_scope_begin();
        yk_work *ended = begin_one(c, x, message);
        CHECK(ended, "%s", yk_last_error()->message);
        yk_scope_end(scope);
        CHECK_FAILS(yk_work_wait(ended), YK_ERR_STATE, "work_wait: this work", freed);
        CHECK_FAILS(yk_work_test(ended), YK_ERR_STATE, "work_test: this work", freed);
        CHECK_FAILS(yk_work_error(ended), YK_ERR_STATE, "work_error: this work", freed);
        CHECK_FAILS(yk_work_retain(ended), YK_ERR_STATE, "this work", freed);
        scope = yk_scope_begin();
        yk_work *waited = begin_one(c, x, message);
        CHECK(waited, "%s", yk_last_error()->message);
        CHECK(pthread_create(&thread, NULL, wait_for_work, waited) == 0, "no thread");
        usleep(100000); /* it waits by now, on most machines */
        yk_scope_end(scope);
        CHECK(all_come(c, come), "rank 1 did not come");
        pthread_join(thread, &failed);
        CHECK(!failed, "the wait of the other thread failed");
        CHECK_FAILS(yk_work_wait(waited), YK_ERR_STATE, "work_wait: this work", freed);
        yk_scope_end(outer);
        CHECK(all_come(c, come + 1), "rank 1 did not come");
    }
    CHECK_OK(yk_barrier(c->group));
}

static void test_scopes_that_end(void **unused)
{
    (void)unused;
    for (int layout = ONE_HOST; layout <= EACH_ALONE; layout++) {
        test_layout = (enum rank_layout)layout;
        run_ranks(THREADS, 2, scopes_that_end, NULL, patience(30), true);
    }
    test_layout = ONE_HOST;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#if FORKS_THREADS
        cmocka_unit_test(test_destroy_in_use),
        cmocka_unit_test(test_again),
#endif
        cmocka_unit_test(test_forks),
        cmocka_unit_test(test_elsewhere),
        cmocka_unit_test(test_joining),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_scopes_that_end),
    };
    return cmocka_run_group_tests_name("groups' lifetimes", tests, NULL, NULL);
}
