/*
 * rpc_chaos_test.c - random events while a worker calls objects of three others: these are killed, stopped and
 * continued, cut off, and take their time. Each call ends by its deadline, with a result or an error that names the
 * worker, and what the objects have noted shows that none was lost, ran twice, or out of order.
 *
 * YOKE_CHAOS is the number of events (make soak: 10,000), YOKE_TEST_SEED the seed, which a failure prints.
 *
 * The history: an object writes the number of each call that it runs into a file of its process, before it answers.
 * The numbers of a file rise; those of calls that were answered are in it, and those of calls that "have not run" are
 * in none.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "rpc/rpc_agent.h"
#include "tests/rpc/workers.h"
#include "tests/support/expect.h"
#include "tests/support/machine.h"

enum { SERVERS = 3, BURST = 8, USUAL = 40 /* events */ };
static char folder[60], store[80];
static uint64_t seed;

static uint64_t draw(void) /* splitmix64 */
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* ---- servers ----------------------------------------------------------------------------------------------------- */

static yk_status diary_create(yk_call *call)
{
    char path[120];
    snprintf(path, sizeof(path), "%s/%d", folder, getpid());
    int *fd = malloc(sizeof(*fd));
    *fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    yk_call_set_object(call, fd);
    return YK_OK;
}

static void diary_destroy(void *object)
{
    int *fd = object;
    close(*fd);
    free(fd);
}

/* The number, and microseconds that it takes. */
static yk_status diary_note(yk_call *call)
{
    const int *fd = yk_call_object(call);
    int64_t number = yk_call_int(call, 0), pause = yk_call_int(call, 1);
    if (pause)
        usleep((unsigned)pause);
    if (write(*fd, &number, sizeof(number)) != (ssize_t)sizeof(number))
        return yk_set_error(YK_ERR_IO, "the diary cannot be written");
    return yk_call_return(call, yk_value_int(number));
}

static const yk_rpc_class diary = {.name = "diary",
                                   .create = diary_create,
                                   .destroy = diary_destroy,
                                   .methods = (const yk_rpc_method[]){{"note", diary_note}, {NULL, NULL}}};

static yk_status serve_pid(yk_call *call)
{
    return yk_call_return(call, yk_value_int(getpid()));
}

static yk_status offer(void)
{
    yk_status status = yk_rpc_register_class(&diary);
    return status ? status : yk_rpc_register("pid", serve_pid);
}

static void serve(int number)
{
    char name[8];
    snprintf(name, sizeof(name), "s%d", number);
    signal(SIGTERM, SIG_DFL);
    yk_scope scope = yk_scope_begin();
    if (join_with(offer, store, name, 1)) {
        yk_report_error(stderr);
        _exit(1);
    }
    for (;;)
        pause();
    yk_scope_end(scope);
}

/* ---- the caller -------------------------------------------------------------------------------------------------- */

typedef struct server {
    pid_t pid;
    yk_ref *diary;
    int64_t answered[1 << 12], unrun[1 << 12]; /* of this process */
    int answers, unruns;
} server;
static server servers[SERVERS];
static int64_t calls_made;

/* Starts, or starts again, the process of a server and makes its object. */
static yk_status server_begin(server *s)
{
    int number = (int)(s - servers);
    char name[8];
    snprintf(name, sizeof(name), "s%d", number);
    *s = (server){.pid = 0};
    yk_value *pid = NULL;
    for (double began = yk__now(); !pid && yk__now() < began + patience(20);) {
        yk_clear_error();
        if (!yk_rpc_wait_for(name, patience(20)))
            pid = yk_rpc_sync(name, "pid", NULL, NULL);
    }
    CHECK(pid);
    s->pid = (pid_t)yk_value_as_int(pid);
    s->diary = yk_ref_retain(yk_rpc_remote(name, "diary", NULL, NULL));
    CHECK(s->diary);
    return YK_OK;
}

/* Reads what a process of a server has noted and compares it with what the caller was told. */
static yk_status history_check(const server *s)
{
    char path[120];
    snprintf(path, sizeof(path), "%s/%d", folder, s->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about = {0};
    if (fd < 0)
        return s->answers
                   ? yk_set_error(YK_ERR_CALLBACK, "%d answers of process %d without a diary", s->answers, s->pid)
                   : YK_OK;
    CHECK(fstat(fd, &about) == 0);
    int count = (int)(about.st_size / 8), at = 0;
    int64_t *notes = calloc((size_t)count + 1, sizeof(*notes));
    CHECK(read(fd, notes, (size_t)count * 8) == (ssize_t)count * 8);
    close(fd);
    for (int i = 1; i < count; i++)
        CHECK(notes[i] > notes[i - 1]); /* in order, and none twice */
    for (int i = 0; i < s->answers; i++) {
        while (at < count && notes[at] < s->answered[i])
            at++;
        CHECK(at < count && notes[at] == s->answered[i]); /* none lost */
    }
    for (int i = 0; i < s->unruns; i++)
        for (int k = 0; k < count; k++)
            CHECK(notes[k] != s->unrun[i]);
    free(notes);
    unlink(path);
    return YK_OK;
}

/* The outcome of a call: a result, or an error that names the worker, by its deadline. */
static yk_status outcome_take(server *s, yk_future *f, int64_t number, double deadline)
{
    yk_value *value = f ? yk_future_wait(f, YK_NOT_GIVEN) : NULL;
    double late = yk__now() - deadline;
    if (late > 0.5 * patience(1)) /* the machine runs other tests meanwhile */
        return yk_set_error(YK_ERR_CALLBACK, "call %" PRId64 " outlived its deadline by %.3f s", number, late);
    if (value) {
        CHECK(yk_value_as_int(value) == number && s->answers < 1 << 12);
        s->answered[s->answers++] = number;
        return YK_OK;
    }
    const yk_error *e = yk_last_error();
    char name[10];
    snprintf(name, sizeof(name), "'s%d'", (int)(s - servers));
    CHECK(e && (e->code == YK_ERR_TIMEOUT || e->code == YK_ERR_CONNECTION || e->code == YK_ERR_NOT_FOUND));
    CHECK(strstr(e->message, name));
    if (strstr(e->message, "has not run") || strstr(e->message, "have not run")) {
        CHECK(s->unruns < 1 << 12);
        s->unrun[s->unruns++] = number;
    }
    yk_clear_error();
    return YK_OK;
}

/* Ends every connection to a worker, as a network does. */
static void cut(pid_t pid)
{
    yk__rpc_lock();
    for (yk__rpc_link *link = yk__rpc.links; link; link = link->next)
        if (link->pid == pid && link->fd >= 0)
            shutdown(link->fd, SHUT_RDWR);
    pthread_mutex_unlock(&yk__rpc.lock);
}

/* Calls to one server with an event in their midst. */
static yk_status round_run(void)
{
    enum { KILL, STOP, CUT, DELAY, KINDS };
    server *s = &servers[draw() % SERVERS], *other = &servers[draw() % SERVERS];
    int kind = (int)(draw() % KINDS), at = (int)(draw() % BURST);
    yk_future *f[BURST], *more[BURST];
    double deadlines[BURST];
    int64_t numbers[BURST], others[BURST];
    for (int i = 0; i < BURST; i++) {
        double timeout = kind == DELAY ? 0.02 + (double)(draw() % 100) / 1000 : 2 * patience(1);
        int64_t pause = kind == DELAY ? (int64_t)(draw() % 30000) : (int64_t)(draw() % 300);
        if (i == at && kind == KILL)
            kill(s->pid, SIGKILL);
        if (i == at && kind == STOP)
            kill(s->pid, SIGSTOP);
        if (i == at && kind == CUT)
            cut(s->pid);
        numbers[i] = ++calls_made;
        deadlines[i] = yk__now() + timeout;
        f[i] = yk_ref_call_async(s->diary, "note", yk_args(yk_value_int(numbers[i]), yk_value_int(pause)),
                                 YK_OPTIONS(yk_rpc_options, .timeout = timeout));
        if (!f[i] && outcome_take(s, NULL, numbers[i], deadlines[i]))
            return YK_ERR_CALLBACK;
        others[i] = ++calls_made;
        more[i] = other == s ? NULL
                             : yk_ref_call_async(other->diary, "note",
                                                 yk_args(yk_value_int(others[i]), yk_value_int(0)), NULL);
    }
    if (kind == STOP) {
        usleep((unsigned)(draw() % 20000));
        kill(s->pid, SIGCONT);
    }
    for (int i = 0; i < BURST; i++)
        if (f[i] && outcome_take(s, f[i], numbers[i], deadlines[i]))
            return YK_ERR_CALLBACK;
    for (int i = 0; i < BURST && other != s; i++) /* those of another server are not disturbed */
        if (outcome_take(other, more[i], others[i], INFINITY))
            return YK_ERR_CALLBACK;
    if (kind == KILL || kind == CUT || s->answers > 4000 || s->unruns > 4000) {
        kill(s->pid, SIGKILL);
        for (double began = yk__now(); kill(s->pid, 0) == 0 && yk__now() < began + patience(20);)
            usleep(1000); /* until its parent has seen it */
        CHECK(!history_check(s));
        yk_ref_release(s->diary);
        CHECK(!server_begin(s));
    }
    return YK_OK;
}

static yk_status call_them(int events)
{
    CHECK(!join_with(offer, store, "caller", 1));
    for (int i = 0; i < SERVERS; i++)
        CHECK(!server_begin(&servers[i]));
    for (int i = 0; i < events; i++) {
        uint64_t before = seed;
        yk_scope scope = yk_scope_begin();
        yk_status status = round_run();
        yk_scope_end(scope);
        if (status) {
            fprintf(stderr, "event %d of seed %" PRIu64 "\n", i, before);
            return status;
        }
    }
    for (int i = 0; i < SERVERS; i++) {
        CHECK(!history_check(&servers[i]));
        yk_ref_release(servers[i].diary);
        kill(servers[i].pid, SIGTERM);
    }
    return yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN);
}

/* ---- the parent -------------------------------------------------------------------------------------------------- */

static void test_chaos(void **state)
{
    (void)state;
    const char *events = getenv("YOKE_CHAOS"), *given = getenv("YOKE_TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : 1;
    snprintf(folder, sizeof(folder), "/tmp/yoke-chaos-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(store, sizeof(store), "%s/store", folder);
    pid_t pids[SERVERS], caller = fork();
    if (caller == 0) {
        yk_scope scope = yk_scope_begin();
        bool failed = call_them(events ? atoi(events) : USUAL);
        if (failed)
            yk_report_error(stderr);
        yk_scope_end(scope);
        _exit(failed);
    }
    for (int i = 0; i < SERVERS; i++)
        if ((pids[i] = fork()) == 0)
            serve(i);
    for (int ended, status;;) { /* a server that was killed is started again */
        pid_t pid = waitpid(-1, &ended, 0);
        if (pid == caller) {
            status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
            for (int i = 0; i < SERVERS; i++) {
                kill(pids[i], SIGKILL);
                waitpid(pids[i], &ended, 0);
            }
            assert_int_equal(status, 0);
            break;
        }
        for (int i = 0; i < SERVERS; i++)
            if (pids[i] == pid && WIFSIGNALED(ended) && (pids[i] = fork()) == 0)
                serve(i);
    }
    char command[80];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chaos)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
