/*
 * ranks.h - a test as several ranks, threads or processes. A rank's function returns normally or by CHECK, whose
 * message reaches the test; cmocka's own checks work on the main thread alone.
 */
#ifndef YOKE_TESTS_RANKS_H
#define YOKE_TESTS_RANKS_H

#include "tests/support/expect.h"
#include "tests/support/machine.h"
#include "tests/support/test_device.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/comm.h>

#include "base/core.h"

/* The thread sanitizer does not allow threads in a child of a process that had threads. */
#ifdef __SANITIZE_THREAD__
#define FORKS_THREADS 0
#else
#define FORKS_THREADS 1
#endif

enum { FAILURE = 2000, MOST_TEST_RANKS = 16 };

/* The layout of ranks over hosts. */
enum rank_layout {
    ONE_HOST,
    EACH_ALONE, /* every rank on a host of its own: TCP alone */
    UNEVEN,     /* two hosts: 0 2 3 5 6 ... and 1 4 7 ... */
    BLOCKS,     /* 0 1 2 3, 4 5, 6, 7 */
    NAMED       /* rank r is on the host whose digit is test_hosts[r] */
};
static enum rank_layout test_layout = ONE_HOST;
static const char *test_hosts;
/* Each rank's current GPU is that of its number. So it is also where GPUs are what tests run on and ranks are threads,
 * which would wait for each other on one's queue. */
static bool test_gpus;

static inline const char *host_of_rank(int rank)
{
    static const char *const alone[] = {"h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"};
    switch (test_layout) {
    case EACH_ALONE: return alone[rank];
    case UNEVEN: return alone[rank % 3 == 1];
    case NAMED: return alone[test_hosts[rank] - '0'];
    case BLOCKS: return alone[rank < 4 ? 0 : rank < 6 ? 1 : rank - 4];
    default: return NULL;
    }
}

typedef struct rank_context {
    int rank, size;
    bool process;
    yk_store *store;
    yk_process_group *group; /* NULL where the test joins by itself */
    const void *arg;
    double timeout;
    pid_t *pids;         /* of all ranks, for processes */
    char *failure;       /* FAILURE bytes; empty: none */
    atomic_int *signals; /* 16 numbers that all ranks see */
} rank_context;

typedef void (*rank_fn)(rank_context *c);

YK_PRINTF(5, 6)
static inline void rank_fails(rank_context *c, const char *file, int line, const char *condition, const char *format,
                              ...)
{
    int n = snprintf(c->failure, FAILURE, "%s:%d rank %d of %d: %s: ", file, line, c->rank, c->size, condition);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c->failure + n, FAILURE - (size_t)n, format, arguments);
    va_end(arguments);
}

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            rank_fails(c, __FILE__, __LINE__, #condition, __VA_ARGS__);                                                \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)
#define CHECK_OK(call)                                                                                                 \
    do {                                                                                                               \
        int check_status = (call);                                                                                     \
        CHECK(check_status == 0 && !yk_last_error(), "%s", yk_last_error() ? yk_last_error()->message : "no record");  \
    } while (0)
/* The call fails with this code and a message that holds all the texts; the record is cleared. */
#define CHECK_FAILS(call, expected_code, ...)                                                                          \
    do {                                                                                                               \
        yk_clear_error();                                                                                              \
        (void)!(call);                                                                                                 \
        const yk_error *check_error = yk_last_error();                                                                 \
        CHECK(check_error, "no error");                                                                                \
        CHECK(check_error->code == (expected_code), "%s: %s", yk_status_name(check_error->code),                       \
              check_error->message);                                                                                   \
        const char *check_texts[] = {__VA_ARGS__};                                                                     \
        for (size_t check_i = 0; check_i < sizeof(check_texts) / sizeof(char *); check_i++)                            \
            CHECK(expect_says(check_error->message, check_texts[check_i]), "'%s' is not in: %s", check_texts[check_i], \
                  check_error->message);                                                                               \
        yk_clear_error();                                                                                              \
    } while (0)

/* A barrier that all ranks have left: where one breaks the group next, another may still be on its way out. They wait
 * for each other before it as well, so that a group with a short time-out does not fail by a rank that starts slowly.
 * Once a test. */
#define CHECK_MET(c)                                                                                                   \
    do {                                                                                                               \
        CHECK(all_come(c, 14), "not all came to the barrier");                                                         \
        CHECK_OK(yk_barrier((c)->group));                                                                              \
        CHECK(all_come(c, 15), "not all left the barrier");                                                            \
    } while (0)

/* True once all ranks have called it, each once for a signal; without the group's help. */
static inline bool all_come(rank_context *c, int signal)
{
    double until = yk__now() + patience(60);
    atomic_fetch_add(&c->signals[signal], 1);
    while (atomic_load(&c->signals[signal]) < c->size && yk__now() < until)
        usleep(500);
    return atomic_load(&c->signals[signal]) == c->size;
}

typedef struct rank_plan {
    rank_fn fn;
    rank_context context;
    bool join;
} rank_plan;

static inline void run_rank(rank_plan *p)
{
    rank_context *c = &p->context;
    yk_scope scope = yk_scope_begin();
    if (p->join) {
        c->group = yk_process_group_create(c->store, c->rank, c->size,
                                           YK_OPTIONS(yk_process_group_options, .timeout = c->timeout,
                                                      .join_timeout = patience(60), .host_id = host_of_rank(c->rank)));
        if (!c->group)
            snprintf(c->failure, FAILURE, "rank %d did not join: %s", c->rank, yk_last_error()->message);
    }
    if ((test_gpus || (test_device_type == YK_CUDA && !c->process)) &&
        yk_set_device((yk_device){YK_CUDA, (int16_t)c->rank}))
        snprintf(c->failure, FAILURE, "rank %d has no GPU: %s", c->rank, yk_last_error()->message);
    else if (c->group || !p->join)
        p->fn(c);
    yk_clear_error();
    yk_scope_end(scope);
    if (yk_last_error() && !c->failure[0])
        snprintf(c->failure, FAILURE, "rank %d, at the end: %s", c->rank, yk_last_error()->message);
}

static inline void *rank_thread(void *arg)
{
    run_rank(arg);
    return NULL;
}

enum rank_kind { THREADS, PROCESSES };

/* CUDA does not survive a fork: where GPUs are what tests run on, ranks that are threads are those of a process of
 * their own, so that this one can go on making processes; unless it has used CUDA itself. False in the process that
 * waited. */
static inline bool in_own_process(enum rank_kind kind, char *failure, bool *own)
{
    enum { USED_BEFORE = 77 };
    int status = 0;
    pid_t child = kind == THREADS && test_device_type == YK_CUDA ? fork() : 0;
    *own = kind == THREADS && test_device_type == YK_CUDA && child == 0;
    if (*own && yk_device_synchronize(test_device(0)))
        _exit(USED_BEFORE);
    if (child <= 0)
        return true;
    if (waitpid(child, &status, 0) != child || status)
        snprintf(failure, FAILURE, "the process of the threads ended with wait status %d", status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != USED_BEFORE)
        return false;
    failure[0] = 0;
    return true;
}

/* Runs fn on `size` ranks; fails the test with the first rank's message. A process that is killed by a signal of the
 * test's own is no failure; one that ends otherwise is. */
static inline void run_ranks(enum rank_kind kind, int size, rank_fn fn, const void *arg, double timeout, bool join)
{
    size_t shared = MOST_TEST_RANKS * FAILURE + MOST_TEST_RANKS * sizeof(pid_t) + 16 * sizeof(atomic_int);
    char *memory = mmap(NULL, shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    char folder[] = "/tmp/yoke-comm-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/store", folder);
    yk_scope scope = yk_scope_begin();
    rank_plan plans[MOST_TEST_RANKS];
    pthread_t threads[MOST_TEST_RANKS];
    pid_t *pids = (pid_t *)(void *)(memory + MOST_TEST_RANKS * FAILURE);
    yk_store *store = kind == THREADS ? yk_hash_store() : NULL;
    bool own, here = in_own_process(kind, memory, &own);
    for (int r = 0; here && r < size; r++) {
        plans[r] = (rank_plan){.fn = fn,
                               .join = join,
                               .context = {.rank = r,
                                           .size = size,
                                           .process = kind == PROCESSES,
                                           .store = store,
                                           .arg = arg,
                                           .timeout = timeout,
                                           .pids = pids,
                                           .failure = memory + r * FAILURE,
                                           .signals = (atomic_int *)(void *)(pids + MOST_TEST_RANKS)}};
        if (kind == THREADS) {
            assert_int_equal(pthread_create(&threads[r], NULL, rank_thread, &plans[r]), 0);
            continue;
        }
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            alarm((unsigned)patience(600));
            plans[r].context.store = yk_file_store(path);
            pids[r] = getpid();
            if (!FORKS_THREADS && yk_set_num_threads((yk_device){YK_CPU, 0}, 1))
                _exit(3);
            run_rank(&plans[r]);
            _exit(0);
        }
        pids[r] = pid;
    }
    for (int r = 0; here && r < size; r++) {
        int status = 0;
        if (kind == THREADS)
            assert_int_equal(pthread_join(threads[r], NULL), 0);
        else
            assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        bool ours = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (status && !ours && !memory[r * FAILURE])
            snprintf(memory + r * FAILURE, FAILURE, "rank %d ended with wait status %d", r, status);
    }
    if (own)
        _exit(0);
    yk_scope_end(scope);
    unlink(path);
    char lock[80];
    snprintf(lock, sizeof(lock), "%s.lock", path);
    unlink(lock);
    int removed = rmdir(folder);
    char failure[MOST_TEST_RANKS * 300] = ""; /* one rank's failure is often another's consequence: all are shown */
    size_t used = 0;
    for (int r = 0; r < size; r++)
        if (memory[r * FAILURE] && used < sizeof(failure))
            used += (size_t)snprintf(failure + used, sizeof(failure) - used, "%s%.900s", used ? "\n" : "",
                                     memory + r * FAILURE);
    munmap(memory, shared);
    if (failure[0])
        fail_msg("%s", failure);
    assert_int_equal(removed, 0);
}

#endif
