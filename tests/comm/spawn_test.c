/*
 * spawn_test.c - yk_spawn: ranks that join, errors and deaths that reach the parent, and that nothing is left.
 */
#include "tests/support/expect.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/comm.h>
#include <yoke/ops.h>

#include "base/core.h"
#include "tests/support/machine.h"

/* The memory that all processes share. */
typedef struct board {
    atomic_int came, pids[8], numbers[8];
    double values[8];
} board;

static board *board_new(void)
{
    board *b = mmap(NULL, sizeof(*b), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(b != MAP_FAILED);
    return b;
}

static void board_free(board *b)
{
    munmap(b, sizeof(*b));
}

static void expect_no_children(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* The thread sanitizer does not let the child of a process with threads start any. */
#if defined(__SANITIZE_THREAD__)
enum { NO_THREADS_AFTER_FORK = 1 };
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
enum { NO_THREADS_AFTER_FORK = 1 };
#else
enum { NO_THREADS_AFTER_FORK = 0 };
#endif
#else
enum { NO_THREADS_AFTER_FORK = 0 };
#endif

/* ---- joining ---------------------------------------------------------------------------------------------------- */
static yk_status joins(int rank, void *arg)
{
    board *b = arg;
    int64_t shape = 1000;
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_init_process_group(NULL);
    if (!status && (yk_rank(NULL) != rank || yk_world_size(NULL) != atoi(getenv("WORLD_SIZE"))))
        status = yk_set_error(YK_ERR_INTERNAL, "rank %d of %d", yk_rank(NULL), yk_world_size(NULL));
    yk_tensor *x = status ? NULL : yk_full(1, &shape, rank + 1, NULL);
    if (!status)
        status = yk_all_reduce(x, YK_OP_SUM, NULL);
    if (!status)
        b->values[rank] = yk_item(yk_sum(x));
    yk_destroy_process_group();
    yk_scope_end(scope);
    return status;
}

static void test_join(void **unused)
{
    (void)unused;
    board *b = board_new();
    int before = open_descriptors();
    expect_ok(yk_spawn(joins, b, 3, NULL));
    for (int rank = 0; rank < 3; rank++)
        assert_true(b->values[rank] == 6000);
    expect_ok(yk_spawn(joins, b, 1, NULL));
    assert_true(b->values[0] == 1000);
    assert_int_equal(open_descriptors(), before);
    assert_null(getenv("RANK"));
    expect_no_children();
    board_free(b);
}

static yk_status notes_environment(int rank, void *arg)
{
    board *b = arg;
    static const char *const names[] = {"LOCAL_RANK",  "WORLD_SIZE",      "LOCAL_WORLD_SIZE",
                                        "MASTER_PORT", "OMP_NUM_THREADS", "YOKE_JOB_SECRET_FD"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (!getenv(names[i]) || !*getenv(names[i]))
            return yk_set_error(YK_ERR_NOT_FOUND, "%s is not set", names[i]);
    }
    if (getenv("YOKE_JOB_SECRET_FILE") || strcmp(getenv("MASTER_ADDR"), "127.0.0.1") != 0)
        return yk_set_error(YK_ERR_STATE, "the address is %s", getenv("MASTER_ADDR"));
    atomic_store(&b->numbers[rank], atoi(getenv("MASTER_PORT")));
    atomic_store(&b->pids[rank], atoi(getenv("LOCAL_RANK")) == rank ? (int)getpid() : 0);
    return YK_OK;
}

static void test_environment(void **unused)
{
    (void)unused;
    board *b = board_new();
    setenv("RANK", "77", 1);
    setenv("YOKE_JOB_SECRET_FILE", "/no/such/file", 1);
    setenv("OMP_NUM_THREADS", "", 1); /* as if it were not set */
    expect_ok(yk_spawn(notes_environment, b, 2, NULL));
    assert_true(atomic_load(&b->numbers[0]) > 0);
    assert_int_equal(atomic_load(&b->numbers[0]), atomic_load(&b->numbers[1]));
    assert_true(atomic_load(&b->pids[0]) > 0 && atomic_load(&b->pids[1]) > 0);
    assert_int_not_equal(atomic_load(&b->pids[0]), atomic_load(&b->pids[1]));
    int port = 28000 + (int)getpid() % 1000; /* another run of this test has another */
    expect_ok(yk_spawn(notes_environment, b, 1, YK_OPTIONS(yk_spawn_options, .master_port = port)));
    assert_int_equal(atomic_load(&b->numbers[0]), port);
    assert_string_equal(getenv("RANK"), "77"); /* the parent's own stays */
    unsetenv("RANK");
    unsetenv("YOKE_JOB_SECRET_FILE");
    unsetenv("OMP_NUM_THREADS");
    board_free(b);
}

/* ---- after the parent has computed ------------------------------------------------------------------------------ */
static double product_sum(void)
{
    int64_t shape[2] = {256, 256};
    yk_scope scope = yk_scope_begin();
    yk_tensor *a = yk_full(2, shape, 0.5, NULL);
    double sum = yk_item(yk_sum(yk_relu(yk_add(yk_matmul(a, a), a))));
    yk_scope_end(scope);
    return sum;
}

static yk_status computes(int rank, void *arg)
{
    board *b = arg;
    for (int i = 0; i < 20; i++)
        b->values[rank] = product_sum();
    return yk_last_error() ? YK_ERR_INTERNAL : joins(rank, arg);
}

static void test_after_computing(void **unused)
{
    (void)unused;
    if (NO_THREADS_AFTER_FORK)
        skip();
    board *b = board_new();
    yk_device cpu = {.type = YK_CPU};
    int threads = yk_get_num_threads(cpu);
    expect_ok(yk_set_num_threads(cpu, 4));
    double expected = product_sum();
    assert_true(expected == 256.0 * 256 * (256 * 0.25 + 0.5));
    for (int i = 0; i < 3; i++) {
        expect_ok(yk_spawn(computes, b, 2, NULL));
        assert_true(b->values[0] == 3000 && b->values[1] == 3000);
    }
    setenv("OMP_NUM_THREADS", "4", 1); /* then the children keep the parent's threads */
    expect_ok(yk_spawn(computes, b, 2, NULL));
    unsetenv("OMP_NUM_THREADS");
    assert_true(product_sum() == expected); /* and the parent's threads still work */
    expect_ok(yk_set_num_threads(cpu, threads));
    board_free(b);
}

typedef struct shared_tensor {
    yk_tensor *x;
    board *board;
} shared_tensor;

static yk_status changes(int rank, void *arg)
{
    const shared_tensor *s = arg;
    float *p = yk_tensor_data(s->x);
    p[0] += (float)rank + 10;
    yk_status status = yk_init_process_group(NULL);
    if (!status)
        status = yk_barrier(NULL);
    s->board->values[rank] = (double)p[0]; /* after the others have changed theirs */
    if (!status)
        status = yk_all_reduce(s->x, YK_OP_SUM, NULL);
    s->board->values[4 + rank] = (double)p[0];
    yk_destroy_process_group();
    return status;
}

/* Memory that other processes can map is copied as all other memory is. */
static void test_shared_memory(void **unused)
{
    (void)unused;
    shared_tensor s = {.board = board_new()};
    yk_scope scope = yk_scope_begin();
    int64_t n = 5000;
    s.x = yk_comm_alloc(1, &n, NULL);
    assert_non_null(s.x);
    float *p = yk_tensor_data(s.x);
    p[0] = 1;
    expect_ok(yk_spawn(changes, &s, 3, NULL));
    for (int rank = 0; rank < 3; rank++) {
        assert_true(s.board->values[rank] == rank + 11);
        assert_true(s.board->values[4 + rank] == 36);
    }
    assert_true(p[0] == 1);
    yk_scope_end(scope);
    board_free(s.board);
}

typedef struct pooled {
    yk__pool *pool;
    board *board;
} pooled;

static void count_thread(void *arg, int64_t begin, int64_t end, int thread)
{
    board *b = arg;
    usleep(2000);
    atomic_fetch_add(&b->numbers[thread], (int)(end - begin));
}

static yk_status uses_pool(int rank, void *arg)
{
    const pooled *p = arg;
    (void)rank;
    for (int i = 0; i < 10; i++)
        yk__pool_run(p->pool, 40, 1, count_thread, p->board);
    yk__pool_destroy(p->pool);
    return YK_OK;
}

/* The threads of a pool start again in the child, and do part of the work. */
static void test_pool(void **unused)
{
    (void)unused;
    if (NO_THREADS_AFTER_FORK)
        skip();
    pooled p = {yk__pool_create(4), board_new()};
    assert_non_null(p.pool);
    yk__pool_run(p.pool, 40, 1, count_thread, p.board);
    memset(p.board, 0, sizeof(*p.board));
    expect_ok(yk_spawn(uses_pool, &p, 1, NULL));
    int total = 0, busy = 0;
    for (int i = 0; i < 4; i++) {
        total += atomic_load(&p.board->numbers[i]);
        busy += atomic_load(&p.board->numbers[i]) > 0;
    }
    assert_int_equal(total, 400);
    assert_int_equal(busy, 4);
    yk__pool_run(p.pool, 40, 1, count_thread, p.board);
    yk__pool_destroy(p.pool);
    board_free(p.board);
}

/* ---- failures --------------------------------------------------------------------------------------------------- */
static void sleep_long(board *b)
{
    atomic_fetch_add(&b->came, 1);
    sleep(600);
}

/* The ranks that are to be stopped are there before the other one fails. */
static void await(board *b, int count)
{
    for (int i = 0; i < 2000 && atomic_load(&b->came) < count; i++)
        usleep(5000);
}

static yk_status fails(int rank, void *arg)
{
    board *b = arg;
    if (rank != 1)
        sleep_long(b);
    await(b, 2);
    atomic_store(&b->pids[1], (int)getpid());
    int64_t shapes[2][2] = {{2, 3}, {4, 5}};
    yk_scope scope = yk_scope_begin();
    yk_matmul(yk_zeros(2, shapes[0], NULL), yk_zeros(2, shapes[1], NULL));
    yk_scope_end(scope);
    return yk_last_error()->code;
}

static yk_status returns_only(int rank, void *arg)
{
    (void)arg;
    return rank == 0 ? YK_ERR_FORMAT : YK_OK;
}

static yk_status is_killed(int rank, void *arg)
{
    board *b = arg;
    if (rank != 2)
        sleep_long(b);
    await(b, 2);
    kill(getpid(), SIGKILL);
    return YK_OK;
}

static yk_status exits(int rank, void *arg)
{
    if (rank != 0)
        sleep_long(arg);
    _exit(9);
}

static ssize_t write_slowly(void *cookie, const char *text, size_t size)
{
    board *b = cookie;
    (void)text;
    usleep(300000);
    atomic_fetch_add(&b->numbers[7], 1);
    return (ssize_t)size;
}

/* Rank 0 fails because rank 1 did, and is faster to end. */
static yk_status effect(int rank, void *arg)
{
    board *b = arg;
    if (rank == 0) {
        await(b, 1);
        usleep(50000);
        return yk_set_error(YK_ERR_CONNECTION, "the peer is gone");
    }
    FILE *slow = fopencookie(b, "w", (cookie_io_functions_t){.write = write_slowly});
    if (!slow || fputs("flushed at the end", slow) < 0)
        return yk_set_error(YK_ERR_IO, "no stream");
    atomic_fetch_add(&b->came, 1);
    return yk_set_error(YK_ERR_NUMERIC, "the loss is NaN");
}

static yk_status ignores_term(int rank, void *arg)
{
    if (rank == 1) {
        signal(SIGTERM, SIG_IGN);
        sleep_long(arg);
    }
    await(arg, 1);
    return yk_set_error(YK_ERR_IO, "no such disk");
}

static void test_failures(void **unused)
{
    (void)unused;
    char text[200];
    board *b = board_new();
    assert_int_equal(yk_spawn(fails, b, 3, NULL), YK_ERR_SHAPE);
    snprintf(text, sizeof(text), "spawn: rank 1 (pid %d): matmul", atomic_load(&b->pids[1]));
    assert_non_null(strstr(yk_last_error()->file, ".c"));
    assert_true(yk_last_error()->line > 0);
    expect_error(YK_ERR_SHAPE, text);
    expect_no_children();
    assert_int_equal(yk_spawn(returns_only, b, 2, NULL), YK_ERR_CALLBACK);
    expect_error(YK_ERR_CALLBACK, "returned status 7 without an error record");
    atomic_store(&b->came, 0);
    assert_int_equal(yk_spawn(is_killed, b, 3, NULL), YK_ERR_CONNECTION);
    expect_error(YK_ERR_CONNECTION, "spawn: rank 2 failed: killed by SIGKILL");
    assert_int_equal(yk_spawn(exits, b, 2, NULL), YK_ERR_CONNECTION);
    expect_error(YK_ERR_CONNECTION, "spawn: rank 0 failed: exit code 9");
    for (int i = 0; i < 3; i++) {
        atomic_store(&b->came, 0);
        assert_int_equal(yk_spawn(effect, b, 2, NULL), YK_ERR_NUMERIC);
        expect_error(YK_ERR_NUMERIC, "the loss is NaN");
        assert_int_equal(atomic_load(&b->numbers[7]), i + 1); /* its output is not lost */
    }
    atomic_store(&b->came, 0);
    assert_int_equal(yk_spawn(ignores_term, b, 2, YK_OPTIONS(yk_spawn_options, .grace = 0.2)), YK_ERR_IO);
    expect_error(YK_ERR_IO, "spawn: rank 0");
    expect_no_children();
    signal(SIGCHLD, SIG_IGN);
    expect_ok(yk_spawn(joins, b, 2, NULL));
    atomic_store(&b->came, 0);
    assert_int_equal(yk_spawn(effect, b, 2, NULL), YK_ERR_NUMERIC);
    expect_error(YK_ERR_NUMERIC, "the loss is NaN");
    atomic_store(&b->came, 0);
    assert_int_equal(yk_spawn(exits, b, 2, NULL), YK_ERR_CONNECTION); /* the other was stopped, this is how it began */
    expect_error(YK_ERR_CONNECTION, "spawn: rank 0 failed: how it ended is not known, because SIGCHLD is ignored");
    signal(SIGCHLD, SIG_DFL);
    board_free(b);
}

/* Rank 1 saw the group fail first, and returns long after rank 0, which learned of it from there. */
static yk_status sees_first(int rank, void *arg)
{
    board *b = arg;
    yk_status status = yk_init_process_group(NULL);
    if (status)
        return status;
    if (rank == 1) {
        yk_process_group_abort(NULL, "a fan is broken");
        await(b, 1);
        usleep(100000);
        return yk_set_error(YK_ERR_NUMERIC, "rank 1 was first");
    }
    status = yk_barrier(NULL);
    atomic_fetch_add(&b->came, 1);
    return status;
}

static void test_first_to_see(void **unused)
{
    (void)unused;
    board *b = board_new();
    assert_int_equal(yk_spawn(sees_first, b, 2, NULL), YK_ERR_NUMERIC);
    expect_error(YK_ERR_NUMERIC, "rank 1 was first");
    board_free(b);
}

static yk_status nothing(int rank, void *arg)
{
    (void)rank;
    (void)arg;
    return YK_OK;
}

static void test_arguments(void **unused)
{
    (void)unused;
    assert_int_equal(yk_spawn(NULL, NULL, 1, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "there is no function");
    assert_int_equal(yk_spawn(nothing, NULL, 0, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "0 processes, expected 1 to 4096");
    assert_int_equal(yk_spawn(nothing, NULL, 1, YK_OPTIONS(yk_spawn_options, .grace = -1)), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "spawn: grace is -1");
    assert_int_equal(yk_spawn(nothing, NULL, 1, YK_OPTIONS(yk_spawn_options, .master_addr = "203.0.113.7")),
                     YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "no interface of this host has this address");
    expect_ok(yk_init_process_group(NULL));
    assert_int_equal(yk_spawn(nothing, NULL, 1, NULL), YK_ERR_STATE);
    expect_error(YK_ERR_STATE, "this process is in a process group");
    yk_destroy_process_group();
    expect_ok(yk_spawn(nothing, NULL, 8, NULL));
}

/* ---- without waiting -------------------------------------------------------------------------------------------- */
static yk_status waits_for_flag(int rank, void *arg)
{
    board *b = arg;
    atomic_store(&b->pids[rank], (int)getpid());
    atomic_fetch_add(&b->came, 1);
    while (!atomic_load(&b->numbers[rank]))
        usleep(2000);
    return atomic_load(&b->numbers[rank]) == 1 ? YK_OK : yk_set_error(YK_ERR_NUMERIC, "rank %d was told to fail", rank);
}

static void test_start(void **unused)
{
    (void)unused;
    board *b = board_new();
    int before = open_descriptors();
    bool joined = true;
    yk_scope scope = yk_scope_begin();
    yk_spawn_options *options = malloc(sizeof(*options));
    char *address = strdup("127.0.0.1");
    assert_non_null(options);
    *options = *YK_OPTIONS(yk_spawn_options, .master_addr = address, .grace = 5);
    yk_spawn_context *c = yk_spawn_start(waits_for_flag, b, 3, options);
    memset(address, 'x', 9);
    free(address);
    free(options);
    assert_non_null(c);
    await(b, 3);
    for (int rank = 0; rank < 3; rank++)
        assert_int_equal(yk_spawn_context_pid(c, rank), atomic_load(&b->pids[rank]));
    assert_int_equal(yk_spawn_context_pid(c, 3), -1);
    assert_int_equal(yk_spawn_context_pid(c, -1), -1);
    expect_ok(yk_spawn_context_join(c, 0, &joined));
    assert_false(joined);
    assert_int_equal(yk_spawn_context_join(c, 1, NULL), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "`joined` is needed");
    assert_int_equal(yk_spawn_context_join(c, -1, &joined), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "spawn_context_join: timeout is -1");
    for (int rank = 0; rank < 3; rank++)
        atomic_store(&b->numbers[rank], 1);
    expect_ok(yk_spawn_context_join(c, INFINITY, &joined));
    assert_true(joined);
    expect_ok(yk_spawn_context_join(c, INFINITY, NULL));
    expect_no_children();

    /* A failure is heard by whoever joins, as often as it asks; the others are stopped while it does. */
    memset(b, 0, sizeof(*b));
    c = yk_spawn_start(waits_for_flag, b, 3, NULL);
    await(b, 3);
    atomic_store(&b->numbers[1], 2);
    yk_status status = YK_OK;
    do
        status = yk_spawn_context_join(c, 0.02, &joined);
    while (!joined && !status);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(status, YK_ERR_NUMERIC);
        expect_error(YK_ERR_NUMERIC, "rank 1 was told to fail");
        status = yk_spawn_context_join(c, INFINITY, NULL);
    }
    expect_error(YK_ERR_NUMERIC, "rank 1 was told to fail");
    expect_no_children();

    /* One context that nobody waits for, beside another one. */
    memset(b, 0, sizeof(*b));
    yk_scope inner = yk_scope_begin();
    assert_non_null(yk_spawn_start(waits_for_flag, b, 2, NULL));
    await(b, 2);
    expect_ok(yk_spawn(nothing, NULL, 2, NULL));
    yk_scope_end(inner);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(kill(atomic_load(&b->pids[rank]), 0), -1);
    expect_no_children();
    yk_scope_end(scope);
    assert_int_equal(open_descriptors(), before);
    board_free(b);
}

/* Children of the program's own are not the spawn's to wait for, nor to stop. */
static void test_other_children(void **unused)
{
    (void)unused;
    board *b = board_new();
    pid_t own = fork();
    if (own == 0) {
        alarm((unsigned)patience(120));
        pause();
        _exit(0);
    }
    assert_int_equal(yk_spawn(returns_only, b, 2, NULL), YK_ERR_CALLBACK);
    yk_clear_error();
    assert_int_equal(waitpid(own, NULL, WNOHANG), 0);
    pid_t quick = fork();
    if (quick == 0)
        _exit(5);
    int status = 0;
    expect_ok(yk_spawn(nothing, NULL, 2, NULL));
    assert_int_equal(waitpid(quick, &status, 0), quick);
    assert_int_equal(WEXITSTATUS(status), 5);
    kill(own, SIGKILL);
    assert_int_equal(waitpid(own, NULL, 0), own);
    board_free(b);
}

/* ---- the parent dies -------------------------------------------------------------------------------------------- */
static yk_status lives_on(int rank, void *arg)
{
    board *b = arg;
    atomic_store(&b->pids[rank], (int)getpid());
    sleep_long(b);
    return YK_OK;
}

static void test_parent_dies(void **unused)
{
    (void)unused;
    board *b = board_new();
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* its orphans come here */
    pid_t parent = fork();
    if (parent == 0) {
        (void)!yk_spawn(lives_on, b, 2, NULL);
        _exit(3);
    }
    await(b, 2);
    assert_int_equal(atomic_load(&b->came), 2);
    kill(parent, SIGKILL);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    for (int rank = 0; rank < 2; rank++) {
        int status = 0;
        pid_t pid = atomic_load(&b->pids[rank]);
        assert_int_equal(waitpid(pid, &status, 0), pid); /* the test's own time limit bounds it */
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    board_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_after_computing),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_first_to_see),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_other_children),
        cmocka_unit_test(test_parent_dies),
    };
    unsetenv("OMP_NUM_THREADS");
    return cmocka_run_group_tests_name("spawn", tests, NULL, NULL);
}
