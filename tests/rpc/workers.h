/*
 * workers.h - processes of a test that are workers: their assertions, and how they begin and end.
 */
#ifndef YOKE_TESTS_RPC_WORKERS_H
#define YOKE_TESTS_RPC_WORKERS_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "tests/support/expect.h"
#include "tests/support/machine.h"

/* In a worker: an assertion that fails is the worker's error, and so that of the test. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            const yk_error *seen = yk_last_error();                                                                    \
            char text[700] = "no error on record";                                                                     \
            if (seen)                                                                                                  \
                snprintf(text, sizeof(text), "%.600s", seen->message);                                                 \
            yk_clear_error();                                                                                          \
            return yk_set_error(YK_ERR_CALLBACK, "%s:%d: %s (%s)", __FILE__, __LINE__, #condition, text);              \
        }                                                                                                              \
    } while (0)

/* True if the error on record has this code and all the texts; it is cleared. */
static inline bool failed_with(yk_status code, const char *a, const char *b)
{
    const yk_error *e = yk_last_error();
    bool right = e && e->code == code && strstr(e->message, a) && strstr(e->message, b);
    if (right)
        yk_clear_error();
    return right;
}

/* The work of the first worker; the others serve. */
typedef yk_status (*act_fn)(void);
typedef struct act_plan {
    yk_status (*offer)(void); /* registers what all of them offer */
    act_fn act;
} act_plan;

static inline yk_status act_worker(int rank, void *arg)
{
    const act_plan *plan = arg;
    yk_scope scope = yk_scope_begin();
    yk_status status = plan->offer();
    status = status ? status : yk_rpc_init(NULL, NULL);
    if (!status && rank == 0)
        status = plan->act();
    if (!status)
        status = yk_rpc_shutdown(YK_RPC_GRACEFUL, patience(30));
    yk_scope_end(scope);
    return status;
}

/* worker0 acts, with as many as there are in all. */
static inline void act_with(yk_status (*offer)(void), act_fn fn, int workers)
{
    act_plan plan = {offer, fn};
    if (yk_spawn(act_worker, &plan, workers, NULL)) {
        yk_report_error(stderr);
        fail_msg("the workers failed");
    }
}

/* A worker of a job without a launcher: w0, w1, w2 by a store in a file. */
static inline yk_status join_with(yk_status (*offer)(void), const char *path, const char *name, int world_size)
{
    yk_store *store = yk_file_store(path);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    yk_status status = offer();
    return status ? status
                  : yk_rpc_init(
                        name, YK_OPTIONS(yk_rpc_init_options, .store = store, .world_size = world_size, .timeout = 30));
}

/* Forks `count` workers that run fn. */
static inline void fork_workers(yk_status (*fn)(int rank, const char *path), const char *path, int count, pid_t *pids)
{
    for (int rank = 0; rank < count; rank++)
        if ((pids[rank] = fork()) == 0) {
            alarm(60);
            if (fn(rank, path))
                yk_report_error(stderr);
            else
                _exit(0);
            _exit(1);
        }
}

static inline void expect_end(pid_t pid, int signal_number)
{
    int ended = 0;
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_int_equal(WIFSIGNALED(ended) ? WTERMSIG(ended) : 0, signal_number);
    if (!signal_number)
        assert_int_equal(WEXITSTATUS(ended), 0);
}

/* Waits up to 30 s for a key that another worker of the store in this file sets. */
static inline yk_status await_key(const char *path, const char *key)
{
    void *data = NULL;
    yk_status status = yk_store_get(yk_file_store(path), key, &data, NULL, 30);
    free(data);
    return status;
}

#endif
