/*
 * rejoin_test.c - a rank that could not join tries again, in the same process or in a new one, alone: while the others
 * wait for it, or when they try again too. Each rank is a process.
 */
#include "tests/support/expect.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/comm.h>
#include <yoke/ops.h>

#include "base/core.h"
#include "comm/backend.h"
#include "net/socket.h"
#include "tests/support/machine.h"

enum { RANKS = 3 };

/* The state that the ranks share with this process and with one another. */
typedef struct board {
    volatile int failed[RANKS]; /* attempts of each rank that failed */
    volatile int published;     /* ranks that wait for others, as far as the test lets them say so */
    volatile bool go;
    char message[RANKS][1000];
} board;

static board *shared;
static char right[64], wrong[64], method[64];

static void write_secret(char *path, const char *text)
{
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

static int begin(void **state)
{
    (void)state;
    memset(shared, 0, sizeof(*shared));
    snprintf(method, sizeof(method), "tcp://127.0.0.1:%d", free_port());
    return 0;
}

static yk_status try_join(int rank, double timeout)
{
    yk_clear_error();
    yk_status status = yk_init_process_group(
        YK_OPTIONS(yk_init_options, .init_method = method, .rank = rank, .world_size = RANKS, .join_timeout = timeout));
    if (status) {
        snprintf(shared->message[rank], sizeof(shared->message[rank]), "%s", yk_last_error()->message);
        shared->failed[rank]++;
    }
    return status;
}

/* All ranks add up their numbers, in the group that they have joined. */
static _Noreturn void end_joined(int rank, yk_status status)
{
    yk_scope_begin();
    yk_tensor *x = status ? NULL : yk_full(YK_SHAPE(1), rank + 1, NULL);
    bool good = x && yk_all_reduce(x, YK_OP_SUM, NULL) == YK_OK && yk_item(x) == RANKS * (RANKS + 1) / 2;
    if (!good)
        fprintf(stderr, "rank %d: %s\n", rank, yk_last_error() ? yk_last_error()->message : "another sum");
    yk_destroy_process_group();
    _exit(good ? 0 : 1);
}

static _Noreturn void wait_for_others(int rank)
{
    end_joined(rank, try_join(rank, patience(60)));
}

typedef void (*player)(int rank);

static pid_t start(player play, int rank)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        yk_scope_begin();
        play(rank);
        _exit(2);
    }
    return pid;
}

static void expect_ends(const pid_t *pids, int count)
{
    for (int i = 0; i < count; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
}

static void wait_until(const volatile int *number, int least)
{
    double until = yk__now() + patience(60);
    while (*number < least && yk__now() < until)
        usleep(2000);
    assert_true(*number >= least);
}

/* ---- before the others know of it -------------------------------------------------------------------------------- */
static void with_wrong_secret(int rank)
{
    setenv("YOKE_JOB_SECRET_FILE", wrong, 1);
    if (try_join(rank, patience(30)) != YK_ERR_CONNECTION || !strstr(shared->message[rank], "wrong secret"))
        end_joined(rank, YK_ERR_INTERNAL);
    setenv("YOKE_JOB_SECRET_FILE", "/nowhere/at/all", 1);
    if (!try_join(rank, patience(30)))
        end_joined(rank, YK_ERR_INTERNAL);
    setenv("YOKE_JOB_SECRET_FILE", right, 1);
    wait_for_others(rank);
}

static void without_descriptors(int rank)
{
    enum { LIMIT = 120 };
    const struct rlimit limit = {LIMIT, LIMIT};
    int taken[LIMIT], count = 0;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        _exit(3);
    while (count < LIMIT && (taken[count] = dup(0)) >= 0)
        count++;
    if (!try_join(rank, patience(30)) || !strstr(shared->message[rank], "ulimit -n"))
        end_joined(rank, YK_ERR_INTERNAL);
    while (count)
        close(taken[--count]);
    wait_for_others(rank);
}

/* The others wait all the while and hear nothing of it. */
static void test_unannounced(void **unused)
{
    (void)unused;
    pid_t pids[RANKS] = {start(wait_for_others, 0), start(with_wrong_secret, 1), start(without_descriptors, 2)};
    expect_ends(pids, RANKS);
    assert_int_equal(shared->failed[0], 0);
    assert_int_equal(shared->failed[1], 2);
    assert_int_equal(shared->failed[2], 1);
}

/* ---- after ------------------------------------------------------------------------------------------------------- */
static void twice(int rank)
{
    if (!try_join(rank, 1 + 0.5 * rank) || !shared->message[rank][0])
        end_joined(rank, YK_ERR_INTERNAL);
    wait_for_others(rank);
}

/* Two ranks have waited in vain and wait again; the third comes for the first time, and finds them. */
static void test_timed_out(void **unused)
{
    (void)unused;
    pid_t pids[RANKS] = {start(twice, 0), start(twice, 1)};
    wait_until(&shared->failed[0], 1);
    wait_until(&shared->failed[1], 1);
    assert_non_null(strstr(shared->message[0], "did not join within"));
    pids[2] = start(wait_for_others, 2);
    expect_ends(pids, RANKS);
    assert_int_equal(shared->failed[0] + shared->failed[1] + shared->failed[2], 2);
}

static void serve(int rank)
{
    (void)rank;
    yk_store *store = yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1",
                                              .port = atoi(strrchr(method, ':') + 1), .is_server = true));
    while (store)
        pause();
}

static yk_status by_store(int rank, double timeout)
{
    yk_clear_error();
    yk_store *store =
        yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = atoi(strrchr(method, ':') + 1)));
    yk_status status = YK_ERR_CONNECTION;
    if (store)
        status = yk_init_process_group(
            YK_OPTIONS(yk_init_options, .store = store, .rank = rank, .world_size = RANKS, .join_timeout = timeout));
    shared->failed[rank] += status != YK_OK;
    return status;
}

static void by_store_twice(int rank)
{
    if (!by_store(rank, 1))
        end_joined(rank, YK_ERR_INTERNAL);
    end_joined(rank, by_store(rank, patience(60)));
}

static void by_store_once(int rank)
{
    end_joined(rank, by_store(rank, patience(60)));
}

/* The same where the store, which somebody else serves, keeps what the first attempt has put there. */
static void test_store_that_stays(void **unused)
{
    (void)unused;
    pid_t server = start(serve, 0);
    pid_t pids[RANKS] = {start(by_store_twice, 0), start(by_store_twice, 1)};
    wait_until(&shared->failed[0], 1);
    wait_until(&shared->failed[1], 1);
    pids[2] = start(by_store_once, 2);
    expect_ends(pids, RANKS);
    assert_int_equal(shared->failed[2], 0);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

/* A rank has said that it is there when rank 0, which serves a new store, says that this attempt has failed before. */
static void test_marked_late(void **unused)
{
    (void)unused;
    pid_t server = start(serve, 0), pids[RANKS];
    pids[2] = start(by_store_once, 2);
    yk_scope scope = yk_scope_begin();
    yk_store *store =
        yk_tcp_store(YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .port = atoi(strrchr(method, ':') + 1)));
    const char *record = "world/rank/2";
    assert_non_null(store);
    assert_int_equal(yk_store_wait(store, &record, 1, patience(30)), YK_OK);
    yk__native_mark_failed(store, "world");
    yk_scope_end(scope);
    pids[0] = start(by_store_once, 0);
    pids[1] = start(by_store_once, 1);
    expect_ends(pids, RANKS);
    assert_int_equal(shared->failed[0] + shared->failed[1] + shared->failed[2], 0);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

/* ---- a new process ----------------------------------------------------------------------------------------------- */
/* A rank is killed while it waits for the last one, and started again. */
static void test_killed(void **unused)
{
    (void)unused;
    pid_t pids[RANKS] = {start(wait_for_others, 0)}, killed = start(wait_for_others, 1);
    usleep((useconds_t)(5e5 * patience(1))); /* it has said that it is there, or is about to: both must do */
    assert_int_equal(kill(killed, SIGKILL), 0);
    assert_int_equal(waitpid(killed, NULL, 0), killed);
    pids[1] = start(wait_for_others, 1);
    usleep((useconds_t)(3e5 * patience(1)));
    pids[2] = start(wait_for_others, 2);
    expect_ends(pids, RANKS);
    assert_int_equal(shared->failed[0] + shared->failed[1] + shared->failed[2], 0);
}

int main(void)
{
    snprintf(right, sizeof(right), "/tmp/yoke-rejoin-XXXXXX");
    snprintf(wrong, sizeof(wrong), "/tmp/yoke-rejoin-XXXXXX");
    write_secret(right, "the secret of this job");
    write_secret(wrong, "that of another one, no less");
    setenv("YOKE_JOB_SECRET_FILE", right, 1);
    unsetenv("YOKE_JOB_SECRET_FD");
    unsetenv("YOKE_COMM_BACKEND");
    void *memory = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared = memory == MAP_FAILED ? NULL : memory;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_unannounced, begin), cmocka_unit_test_setup(test_timed_out, begin),
        cmocka_unit_test_setup(test_store_that_stays, begin), cmocka_unit_test_setup(test_marked_late, begin),
        cmocka_unit_test_setup(test_killed, begin)};
    int failed = shared ? cmocka_run_group_tests_name("joining again", tests, NULL, NULL) : 1;
    unlink(right);
    unlink(wrong);
    return failed;
}
