/*
 * group_kills_test.c - two processes that save together are killed at random moments, both or one of them: the newest
 * checkpoint is always a complete one, none that was told to be safe is lost, and the next save leaves no temporary
 * files. YOKE_KILLS is how often (`make soak`: 500).
 */
#include "tests/checkpoint/folders.h"
#include "tests/support/machine.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include <yoke/checkpoint.h>

enum { ELEMENTS = 20000, RANKS = 2, DEFAULT_KILLS = 120 };

/* State whose every number is its step, so that a mixture of two saves would show. */
static void make_state(yk_checkpoint_state *s)
{
    yk_module *m = yk_linear_create(ELEMENTS, 2, NULL);
    assert_non_null(m);
    *s = (yk_checkpoint_state){.model = m,
                               .optimizer = yk_adam(yk_module_parameters(m), YK_OPTIONS(yk_adam_options, .lr = 1e-3))};
    assert_non_null(s->optimizer);
}

static yk_status set_step(yk_checkpoint_state *s, int64_t step)
{
    s->step = s->epoch = step;
    yk_status status = yk_init_constant(yk_module_get(s->model, "weight"), (double)step);
    return status ? status : yk_init_constant(yk_module_get(s->model, "bias"), (double)step);
}

static void expect_step(yk_checkpoint_state *s, int64_t step)
{
    assert_int_equal(s->step, step);
    assert_int_equal(s->epoch, step);
    static float values[2 * ELEMENTS];
    expect_ok(yk_tensor_read(yk_module_get(s->model, "weight"), values, sizeof(values)));
    for (int i = 0; i < 2 * ELEMENTS; i++) {
        if (values[i] != (float)step)
            fail_msg("element %d of step %lld is %g", i, (long long)step, (double)values[i]);
    }
    expect_ok(yk_tensor_read(yk_module_get(s->model, "bias"), values, 2 * sizeof(*values)));
    assert_true(values[0] == (float)step && values[1] == (float)step);
}

typedef struct plan {
    int round;
    bool sharded, async;
    int64_t step, most; /* the first, and how many */
} plan;

/* One rank, which saves one step after another; rank 0 tells each that is safe. */
static void save_steps(const plan *p, int rank, int out)
{
    alarm((unsigned)patience(60));
    char path[64];
    snprintf(path, sizeof(path), "store.%d", p->round);
    yk_scope scope = yk_scope_begin();
    yk_process_group *group = yk_process_group_create(
        yk_file_store(path), rank, RANKS,
        YK_OPTIONS(yk_process_group_options, .timeout = patience(20), .join_timeout = patience(20)));
    yk_checkpoint_state s;
    make_state(&s);
    yk_checkpoint_manager *m = yk_checkpoint_manager_create(
        "root", YK_OPTIONS(yk_checkpoint_manager_options, .async = p->async, .sharded = p->sharded, .group = group));
    yk_status status = m ? YK_OK : YK_ERR_STATE;
    for (int64_t step = p->step; !status && step < p->step + p->most; step++) {
        status = set_step(&s, step);
        if (!status)
            status = yk_checkpoint_manager_save(m, &s);
        int64_t safe = p->async ? step - 1 : step; /* an asynchronous save has waited for the one before */
        if (!status && rank == 0 && write(out, &safe, sizeof(safe)) != sizeof(safe))
            status = YK_ERR_IO;
    }
    if (!status)
        status = yk_checkpoint_manager_wait(m);
    yk_status kind = yk_last_error() ? yk_last_error()->code : YK_OK;
    if (status && kind != YK_ERR_CONNECTION)
        fprintf(stderr, "rank %d: %s\n", rank, yk_last_error() ? yk_last_error()->message : "no error");
    yk_clear_error();
    yk_scope_end(scope);
    _exit(!status ? 0 : kind == YK_ERR_CONNECTION ? 3 : 4); /* 3: the other one is gone */
}

static void start(const plan *p, pid_t pids[RANKS], int *in)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    for (int rank = 0; rank < RANKS; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0) {
            close(ends[0]);
            save_steps(p, rank, ends[1]);
        }
    }
    close(ends[1]);
    *in = ends[0];
}

static void finish(const plan *p, const pid_t pids[RANKS], int in, int allowed)
{
    char path[80];
    for (int64_t step; read(in, &step, sizeof(step)) == sizeof(step);)
        continue; /* nobody must wait for its reader */
    close(in);
    for (int rank = 0; rank < RANKS; rank++) {
        int status;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        bool killed = allowed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        if (!killed && !(WIFEXITED(status) && WEXITSTATUS(status) == allowed))
            fail_msg("round %d: rank %d ended with wait status %d", p->round, rank, status);
    }
    snprintf(path, sizeof(path), "store.%d", p->round);
    unlink(path);
    snprintf(path, sizeof(path), "store.%d.lock", p->round);
    unlink(path);
}

/* Kills both, or rank 0, or rank 1, some time after the first save; gives the last step that was told to be safe. */
static int64_t kill_some(const plan *p, const pid_t pids[RANKS], int in)
{
    int64_t step, last = -1;
    while (read(in, &step, sizeof(step)) == sizeof(step)) {
        if (last < 0) {
            nanosleep(&(struct timespec){.tv_nsec = (int64_t)p->round * 7919 % 14983 * 1000}, NULL);
            if (p->round % 3 != 1)
                assert_int_equal(kill(pids[0], SIGKILL), 0);
            if (p->round % 3 != 2)
                assert_int_equal(kill(pids[1], SIGKILL), 0);
        }
        last = step;
    }
    return last;
}

static void kills_at_random_moments(void **state)
{
    (void)state;
    const char *wanted = getenv("YOKE_KILLS");
    int kills = wanted ? atoi(wanted) : DEFAULT_KILLS, with_leftovers = 0, temporary;
    assert_true(kills > 0);
    plan p = {.step = 1, .most = INT64_MAX / 2};
    yk_checkpoint_state s;
    make_state(&s);
    for (; p.round < kills; p.round++) {
        p.sharded = p.round / 3 % 2;
        p.async = p.round / 6 % 2;
        pid_t pids[RANKS];
        int in;
        start(&p, pids, &in);
        int64_t told = kill_some(&p, pids, in);
        finish(&p, pids, in, 3);
        if (told < p.step - 1)
            fail_msg("kill %d: nothing was saved", p.round);
        count_entries("root", &temporary);
        with_leftovers += temporary > 0;
        yk_checkpoint_found found;
        expect_ok(yk_checkpoint_load_latest("root", &s, NULL, &found));
        if (s.step < told)
            fail_msg("kill %d: step %lld was saved, but the newest valid one is %lld", p.round, (long long)told,
                     (long long)s.step);
        assert_int_equal(found.broken, 0);
        expect_step(&s, s.step);
        p.step = s.step + 1;
    }
    print_message("%d kills, %d of them left a half-written folder, %lld steps\n", kills, with_leftovers,
                  (long long)p.step);
    assert_true(with_leftovers > 0);
    p.most = 1;
    pid_t pids[RANKS];
    int in;
    start(&p, pids, &in);
    finish(&p, pids, in, 0);
    assert_int_equal(count_entries("root", &temporary), 3);
    assert_int_equal(temporary, 0);
    expect_ok(yk_checkpoint_load_latest("root", &s, NULL, NULL));
    expect_step(&s, p.step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {data_test(kills_at_random_moments)};
    /* No threads before fork: the thread sanitizer wants it so. */
    return yk_set_num_threads((yk_device){0}, 1) ? 1 : cmocka_run_group_tests_name("group_kills", tests, NULL, NULL);
}
