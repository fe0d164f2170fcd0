/*
 * rpc_watch_test.c - workers and objects that are watched: each end is told once, as what it was. Without a launcher,
 * and with one, which knows exit codes, signals and the last lines on stderr. The launcher is $YOKE, its ranks are this
 * program again.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "tests/rpc/workers.h"
#include "tests/support/expect.h"
#include "tests/support/machine.h"

/* ---- what a watch told ------------------------------------------------------------------------------------------- */

typedef struct note {
    atomic_int told;
    yk_rpc_end_kind kind;
    char worker[128], text[1000], lines[2000];
    int pid, exit_code, signal, successor;
    const char *ask; /* a worker that the function itself calls; NULL: none */
    int64_t answer;
    int64_t unwatch; /* a watch that the function ends: its own */
} note;

static void take(const yk_rpc_end *end, void *ctx)
{
    note *n = ctx;
    n->kind = end->kind;
    n->pid = end->pid;
    n->exit_code = end->exit_code;
    n->signal = end->signal;
    n->successor = end->successor;
    snprintf(n->worker, sizeof(n->worker), "%s", end->worker);
    snprintf(n->text, sizeof(n->text), "%s", end->text);
    snprintf(n->lines, sizeof(n->lines), "%s", end->last_lines);
    if (n->ask) {
        yk_value *pid = yk_rpc_sync(n->ask, "pid", NULL, NULL);
        n->answer = pid ? yk_value_as_int(pid) : -1;
    }
    if (n->unwatch)
        yk_rpc_unwatch(n->unwatch);
    atomic_fetch_add(&n->told, 1);
}

static bool await_note(note *n)
{
    for (double waited = 0; !atomic_load(&n->told) && waited < patience(20); waited += 0.005)
        usleep(5000);
    return atomic_load(&n->told) == 1;
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

static atomic_bool told_to_leave;

static yk_status serve_pid(yk_call *call)
{
    return yk_call_return(call, yk_value_int(getpid()));
}

static yk_status serve_nap(yk_call *call)
{
    usleep(900000);
    return yk_call_return(call, yk_value_none());
}

static yk_status serve_leave(yk_call *call)
{
    yk_call_later(call);
    yk_call_answer(call, yk_value_none()); /* an end at once would leave out an answer that is made later */
    atomic_store(&told_to_leave, true);
    return YK_OK;
}

static yk_status box_create(yk_call *call)
{
    yk_call_set_object(call, malloc(1));
    return YK_OK;
}

static const yk_rpc_class box = {
    .name = "box", .create = box_create, .destroy = free, .methods = (const yk_rpc_method[]){{NULL, NULL}}};

static yk_status offer(void)
{
    yk_status status = yk_rpc_register("pid", serve_pid);
    status = status ? status : yk_rpc_register("leave", serve_leave);
    status = status ? status : yk_rpc_register("nap", serve_nap);
    return status ? status : yk_rpc_register_class(&box);
}

static yk_status leave_when_told(void)
{
    while (!atomic_load(&told_to_leave))
        usleep(5000);
    return yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN);
}

static int64_t pid_of(const char *worker)
{
    yk_value *pid = yk_rpc_sync(worker, "pid", NULL, NULL);
    return pid ? yk_value_as_int(pid) : -1;
}

/* ---- the watcher ------------------------------------------------------------------------------------------------- */

static yk_status watch_one_that_leaves(void)
{
    static note heard, unheard, own;
    int64_t pid = pid_of("w1");
    heard.ask = "w3";
    CHECK(pid > 0 && yk_rpc_watch("w1", YK_NOT_GIVEN, take, &heard));
    int64_t ended = yk_rpc_watch("w1", YK_NOT_GIVEN, take, &unheard);
    own.unwatch = yk_rpc_watch("w1", YK_NOT_GIVEN, take, &own);
    CHECK(ended && own.unwatch);
    yk_rpc_unwatch(ended);
    yk_rpc_unwatch(ended); /* and again, and of a watch that never was */
    yk_rpc_unwatch(12345);
    CHECK(yk_rpc_sync("w1", "leave", NULL, NULL));
    CHECK(await_note(&heard) && await_note(&own));
    CHECK(heard.kind == YK_RPC_LEFT && heard.pid == pid && strcmp(heard.worker, "w1") == 0);
    CHECK(strstr(heard.text, "worker 'w1'") && strstr(heard.text, "has left"));
    CHECK(heard.answer == pid_of("w3"));
    CHECK(atomic_load(&unheard.told) == 0);
    static note late; /* of one that has ended */
    CHECK(yk_rpc_watch("w1", YK_NOT_GIVEN, take, &late) && await_note(&late) && late.kind == YK_RPC_LEFT);
    return YK_OK;
}

static yk_status watch_one_that_is_killed(const char *path)
{
    static note worker, object, late;
    int64_t pid = pid_of("w2");
    yk_ref *there = yk_rpc_remote("w2", "box", NULL, NULL), *kept = yk_rpc_remote("w2", "box", NULL, NULL);
    CHECK(yk_rpc_watch("w2", YK_NOT_GIVEN, take, &worker) && yk_ref_watch(there, YK_NOT_GIVEN, take, &object));
    CHECK(kill((pid_t)pid, SIGKILL) == 0);
    CHECK(await_note(&worker) && await_note(&object));
    CHECK(worker.kind == YK_RPC_LOST && object.kind == YK_RPC_LOST && object.pid == pid && !object.successor);
    CHECK(strstr(worker.text, "is lost") && worker.lines[0] == 0);
    CHECK(!yk_store_set(yk_file_store(path), "again", "1", 1));
    CHECK(!yk_rpc_wait_for("w2", patience(20))); /* for another one, since the first is known to have ended */
    int64_t now = pid_of("w2");
    CHECK(now > 0 && now != pid);
    CHECK(yk_ref_watch(kept, YK_NOT_GIVEN, take, &late) && await_note(&late));
    CHECK(late.kind == YK_RPC_REPLACED && late.pid == pid && late.successor == now);
    static note second; /* by its name it is the new one */
    CHECK(yk_rpc_watch("w2", YK_NOT_GIVEN, take, &second));
    CHECK(yk_rpc_sync("w2", "leave", NULL, NULL) && await_note(&second));
    CHECK(second.kind == YK_RPC_LEFT && second.pid == now);
    return YK_OK;
}

static yk_status watch_one_that_is_stopped(void)
{
    static note silent, patient, not_connected;
    int64_t pid = pid_of("w3");
    CHECK(yk_rpc_watch("w3", 0.5 * patience(1), take, &silent) && yk_rpc_watch("w3", 300, take, &patient));
    usleep(300000);
    CHECK(atomic_load(&silent.told) == 0);
    CHECK(kill((pid_t)pid, SIGSTOP) == 0);
    bool heard = await_note(&silent);
    int64_t again = yk_rpc_watch("w3", 0.5 * patience(1), take, &not_connected);
    bool heard_again = await_note(&not_connected);
    CHECK(kill((pid_t)pid, SIGCONT) == 0);
    CHECK(heard && silent.kind == YK_RPC_SILENT && strstr(silent.text, "does not answer"));
    CHECK(again && heard_again && not_connected.kind == YK_RPC_SILENT);
    CHECK(pid_of("w3") == pid && atomic_load(&patient.told) == 0);
    return YK_OK;
}

/* All threads of a worker's pool are taken, and it is there all the same. */
static yk_status watch_one_that_is_busy(void)
{
    enum { THREADS = 16 };
    static note never;
    yk_future *naps[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK((naps[i] = yk_rpc_async("w3", "nap", NULL, NULL)));
    int64_t watch = yk_rpc_watch("w3", 0.4 * patience(1), take, &never);
    for (int i = 0; i < THREADS; i++)
        CHECK(yk_future_wait(naps[i], YK_NOT_GIVEN));
    yk_rpc_unwatch(watch);
    CHECK(watch && atomic_load(&never.told) == 0);
    return YK_OK;
}

static yk_status watch_wrong(void)
{
    static note failed;
    yk_ref *none = yk_rpc_remote("w3", "bux", NULL, NULL);
    CHECK(yk_ref_watch(none, YK_NOT_GIVEN, take, &failed) && await_note(&failed));
    CHECK(failed.kind == YK_RPC_NOT_MADE && strstr(failed.text, "'box'"));
    CHECK(!yk_rpc_watch("w33", YK_NOT_GIVEN, take, &failed) && failed_with(YK_ERR_NOT_FOUND, "rpc_watch", "mean 'w3'"));
    CHECK(!yk_rpc_watch("w0", YK_NOT_GIVEN, take, &failed) && failed_with(YK_ERR_ARGUMENT, "'w0'", "itself"));
    CHECK(!yk_rpc_watch("w3", YK_NOT_GIVEN, NULL, NULL) && failed_with(YK_ERR_ARGUMENT, "rpc_watch", "NULL"));
    CHECK(!yk_rpc_watch(NULL, YK_NOT_GIVEN, take, NULL) && failed_with(YK_ERR_ARGUMENT, "rpc_watch", "NULL"));
    CHECK(!yk_rpc_watch("w3", -1, take, NULL) && failed_with(YK_ERR_ARGUMENT, "silence", "-1"));
    CHECK(!yk_ref_watch(NULL, YK_NOT_GIVEN, take, NULL) && failed_with(YK_ERR_ARGUMENT, "ref_watch", "NULL"));
    return YK_OK;
}

static yk_status without_launcher(int rank, const char *path)
{
    static const char *const names[] = {"w0", "w1", "w2", "w3"};
    yk_scope scope = yk_scope_begin();
    CHECK(!join_with(offer, path, names[rank], 4));
    if (rank == 0) {
        CHECK(!watch_one_that_leaves() && !watch_one_that_is_killed(path) && !watch_one_that_is_stopped());
        CHECK(!watch_one_that_is_busy() && !watch_wrong());
        CHECK(yk_rpc_sync("w3", "leave", NULL, NULL) && !yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN));
        CHECK(!yk_rpc_watch("w3", YK_NOT_GIVEN, take, NULL) && failed_with(YK_ERR_STATE, "rpc_watch", "rpc_init"));
        yk_rpc_unwatch(1);
    } else {
        CHECK(!leave_when_told());
    }
    yk_scope_end(scope);
    return YK_OK;
}

static void ends(void)
{
    char path[] = "/tmp/yoke-watch-XXXXXX";
    int fd = mkstemp(path), ended = 0;
    pid_t pids[4];
    fork_workers(without_launcher, path, 4, pids);
    assert_int_equal(waitpid(pids[2], &ended, 0), pids[2]);
    assert_true(WIFSIGNALED(ended));
    pid_t again = fork();
    if (again == 0) {
        alarm(60);
        yk_scope scope = yk_scope_begin();
        bool right = !await_key(path, "again") && !without_launcher(2, path);
        if (!right)
            yk_report_error(stderr);
        yk_scope_end(scope);
        _exit(!right);
    }
    expect_end(pids[0], 0);
    expect_end(pids[1], 0);
    expect_end(again, 0);
    expect_end(pids[3], 0);
    close(fd);
    unlink(path);
}

static void test_ends(void **state)
{
    (void)state;
    ends();
}

static void test_ends_over_tcp(void **state)
{
    (void)state;
    setenv("YOKE_SHARED_MEMORY", "0", 1);
    ends();
    unsetenv("YOKE_SHARED_MEMORY");
}

/* ---- with a launcher --------------------------------------------------------------------------------------------- */

static yk_status serve_end(yk_call *call)
{
    fprintf(stderr, "a line of it\nits last words, which end in %s\n", yk_call_string(call, 0));
    if (strcmp(yk_call_string(call, 0), "exit") == 0)
        _exit(7);
    raise(SIGKILL);
    return YK_OK;
}

static yk_status told_of(const char *worker, const char *how, note *n)
{
    CHECK(yk_rpc_watch(worker, YK_NOT_GIVEN, take, n));
    CHECK(!yk_rpc_sync(worker, "end", yk_args(yk_value_string(how)), NULL));
    yk_clear_error();
    CHECK(await_note(n) && strstr(n->lines, "its last words, which end in ") && strstr(n->lines, "a line of it\n"));
    return YK_OK;
}

static yk_status watch_under_launcher(void)
{
    static note exits, killed, comes_back, leaves;
    CHECK(!told_of("server0", "exit", &exits));
    CHECK(exits.kind == YK_RPC_EXITED && exits.exit_code == 7 && strstr(exits.text, "has ended: exit code 7"));
    CHECK(!told_of("server1", "kill", &killed));
    CHECK(killed.kind == YK_RPC_SIGNALLED && killed.signal == SIGKILL && strstr(killed.text, "killed by SIGKILL"));
    int64_t pid = pid_of("back0");
    CHECK(!told_of("back0", "kill", &comes_back));
    CHECK(comes_back.kind == YK_RPC_SIGNALLED && comes_back.pid == pid);
    CHECK(!yk_rpc_wait_for("back0", patience(20)) && pid_of("back0") > 0 && pid_of("back0") != pid);
    CHECK(yk_rpc_watch("server2", YK_NOT_GIVEN, take, &leaves) && yk_rpc_sync("server2", "leave", NULL, NULL));
    CHECK(await_note(&leaves) && leaves.kind == YK_RPC_LEFT);
    CHECK(yk_rpc_sync("back0", "leave", NULL, NULL));
    return YK_OK;
}

static int run_rank(void)
{
    yk_scope scope = yk_scope_begin();
    alarm(100);
    yk_status status = offer();
    status = status ? status : yk_rpc_register("end", serve_end);
    status = status ? status : yk_rpc_init(NULL, NULL);
    bool watcher = !status && strcmp(yk_rpc_name(), "watcher0") == 0;
    if (watcher) {
        status = watch_under_launcher();
        status = status ? status : yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN);
    } else {
        status = status ? status : leave_when_told();
    }
    if (status)
        return yk_report_error(stderr);
    if (watcher)
        puts("all told");
    yk_scope_end(scope);
    return 0;
}

static void test_launcher(void **state)
{
    (void)state;
    const char *yoke = getenv("YOKE"), *program = own_program();
    char command[4 * 4096 + 400], line[1000];
    bool told = false;
    snprintf(command, sizeof(command),
             "%s run --no-prefix -n 1 --role watcher %s rank : -n 3 --role server --on-failure continue %s rank"
             " : -n 1 --role back --on-failure restart=1 %s rank",
             yoke && strlen(yoke) < 4096 ? yoke : "build/yoke", program, program, program);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(line, sizeof(line), output))
        told = told || strcmp(line, "all told\n") == 0;
    assert_int_equal(pclose(output), 0);
    assert_true(told);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "rank") == 0)
        return run_rank();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_ends_over_tcp),
        cmocka_unit_test(test_launcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
