/*
 * rpc_chaos_test.c - random events while a worker calls objects of three others and passes references on among them:
 * the three are killed, stopped and continued, cut off, and take their time. Each call ends by its deadline, with a
 * result or an error that names the worker; what the objects have noted shows that none was lost, ran twice, or out of
 * order; and when the worker has let go of its references, nothing is left in those that live.
 *
 * YOKE_CHAOS is the number of events (make soak: 10,000), after which it prints figures; YOKE_TEST_SEED the seed, which
 * a failure prints.
 *
 * The history: a diary writes the number of each call that it runs into a file of its process, before it answers. The
 * numbers of a file rise; those of calls that were answered are in it, and those of calls that "have not run" are in
 * none. A server that nothing befalls answers every note, whatever happens to others. Deadlines: a thread sleeps for a
 * millisecond again and again and looks which calls have ended. By how much it wakes later than it asked for is what a
 * thread of this process waits for a processor, and is taken off. Another thread may wait longer than that one, so
 * where the machine has more to run than it has processors the limit grows with it.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
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

enum { SERVERS = 3, BURST = 8, USUAL = 40 /* events */, BETWEEN = 200 /* events between looks for what is left */ };
static const double LATE =
    0.1; /* seconds behind its deadline at which a call has ended, on a machine that is not busy */
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

static yk_status diary_look(yk_call *call)
{
    return yk_call_return(call, yk_value_int(getpid()));
}

static const yk_rpc_class diary = {
    .name = "diary",
    .create = diary_create,
    .destroy = diary_destroy,
    .methods = (const yk_rpc_method[]){{"note", diary_note}, {"look", diary_look}, {NULL, NULL}}};

/* Keeps references that it was given: the last four. */
enum { HELD = 4 };
typedef struct holder {
    yk_ref *refs[HELD];
    int next;
} holder;

static yk_status holder_create(yk_call *call)
{
    yk_call_set_object(call, calloc(1, sizeof(holder)));
    return YK_OK;
}

static void holder_destroy(void *object)
{
    holder *h = object;
    for (int i = 0; i < HELD; i++)
        yk_ref_release(h->refs[i]);
    free(h);
}

static yk_status holder_hold(yk_call *call)
{
    holder *h = yk_call_object(call);
    yk_ref *ref = yk_call_ref(call, 0), **to = &h->refs[h->next++ % HELD];
    if (!ref)
        return yk_last_error()->code;
    yk_ref_release(*to);
    *to = yk_ref_retain(ref);
    return YK_OK;
}

/* Calls by the reference that it got last: a diary's, or one to a value of the caller. */
static yk_status holder_use(yk_call *call)
{
    const holder *h = yk_call_object(call);
    yk_ref *ref = h->next ? h->refs[(h->next - 1) % HELD] : NULL;
    if (!ref)
        return YK_OK;
    bool value = strcmp(yk_ref_owner_name(ref), "caller") == 0;
    return yk_call_return(call, value ? yk_ref_to_here(ref, NULL) : yk_ref_call(ref, "look", NULL, NULL));
}

static yk_status holder_give(yk_call *call)
{
    const holder *h = yk_call_object(call);
    yk_ref *ref = h->next ? h->refs[(h->next - 1) % HELD] : NULL;
    return ref ? yk_call_return(call, yk_value_ref(ref)) : YK_OK;
}

static const yk_rpc_class holder_class = {
    .name = "holder",
    .create = holder_create,
    .destroy = holder_destroy,
    .methods =
        (const yk_rpc_method[]){{"hold", holder_hold}, {"use", holder_use}, {"give", holder_give}, {NULL, NULL}}};

static yk_status serve_pid(yk_call *call)
{
    return yk_call_return(call, yk_value_int(getpid()));
}

/* The objects that are here, and the references that others have to them. */
static int64_t left_here(void)
{
    static const char *const counts[] = {"objects", "references_held_by_others", "queued_calls"};
    const yk_value *info = yk_rpc_debug_info();
    int64_t sum = 0;
    for (int i = 0; i < 3; i++)
        sum += yk_value_as_int(yk_value_get(info, counts[i]));
    return sum;
}

static yk_status serve_left(yk_call *call)
{
    return yk_call_return(call, yk_value_int(left_here()));
}

static yk_status offer(void)
{
    yk_status status = yk_rpc_register_class(&diary);
    status = status ? status : yk_rpc_register_class(&holder_class);
    status = status ? status : yk_rpc_register("left", serve_left);
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

/* ---- when calls end ---------------------------------------------------------------------------------------------- */

typedef struct timed {
    yk_future *future; /* NULL: the call has not been begun */
    double deadline, ended, excused;
    struct timed *next;
} timed;
static pthread_mutex_t timing = PTHREAD_MUTEX_INITIALIZER;
static timed *timed_calls;
static double worst,
    longest_sleep; /* a call behind its deadline, without what is excused; the sleeper behind its time */

static void *sleeper_run(void *arg)
{
    static const double TICK = 0.001;
    (void)arg;
    for (double before = yk__now();;) {
        nanosleep(&(struct timespec){.tv_nsec = (long)(TICK * 1e9)}, NULL);
        pthread_mutex_lock(&timing);
        double now = yk__now(), late = now - before - TICK;
        longest_sleep = late > longest_sleep ? late : longest_sleep;
        for (timed *t = timed_calls; t; t = t->next) {
            double over = now - t->deadline;
            if (t->ended > 0)
                continue;
            t->excused += over <= 0 ? 0 : late < over ? late : over;
            if (t->future && yk_future_done(t->future))
                t->ended = now;
        }
        pthread_mutex_unlock(&timing);
        before = now;
    }
    return NULL;
}

static void timed_begin(timed *t, double timeout)
{
    pthread_mutex_lock(&timing);
    *t = (timed){.deadline = yk__now() + timeout, .next = timed_calls};
    timed_calls = t;
    pthread_mutex_unlock(&timing);
}

static void timed_send(timed *t, yk_future *f)
{
    pthread_mutex_lock(&timing);
    t->future = f;
    pthread_mutex_unlock(&timing);
}

/* The call has ended by now; seconds behind its deadline, without what is excused. */
static double timed_end(timed *t)
{
    pthread_mutex_lock(&timing);
    for (timed **at = &timed_calls; *at; at = &(*at)->next)
        if (*at == t) {
            *at = t->next;
            break;
        }
    double ended = t->ended > 0 ? t->ended : yk__now(), late = ended - t->deadline - t->excused;
    worst = late > worst ? late : worst;
    pthread_mutex_unlock(&timing);
    return late;
}

/* ---- the caller -------------------------------------------------------------------------------------------------- */

typedef struct server {
    pid_t pid;
    yk_ref *diary, *holder;
    int64_t answered[1 << 12], unrun[1 << 12]; /* of this process */
    int answers, unruns;
} server;
static server servers[SERVERS];
static int64_t calls_made, calls_answered, calls_unrun, calls_late, events_of[4], looks;

static const char *server_name(const server *s)
{
    static const char *const names[SERVERS] = {"s0", "s1", "s2"};
    return names[s - servers];
}

static yk_status objects_make(server *s)
{
    yk_scope scope = yk_scope_begin();
    s->diary = yk_ref_retain(yk_rpc_remote(server_name(s), "diary", NULL, NULL));
    s->holder = yk_ref_retain(yk_rpc_remote(server_name(s), "holder", NULL, NULL));
    yk_scope_end(scope);
    CHECK(s->diary && s->holder);
    return YK_OK;
}

static void objects_release(server *s)
{
    yk_ref_release(s->diary);
    yk_ref_release(s->holder);
    s->diary = s->holder = NULL;
}

/* Waits for the process of a server, which is started again, and makes its objects. */
static yk_status server_begin(server *s)
{
    const char *name = server_name(s);
    *s = (server){.pid = 0};
    yk_value *pid = NULL;
    for (double began = yk__now(); !pid && yk__now() < began + patience(20);) {
        yk_clear_error();
        if (!yk_rpc_wait_for(name, patience(20)))
            pid = yk_rpc_sync(name, "pid", NULL, NULL);
    }
    CHECK(pid);
    s->pid = (pid_t)yk_value_as_int(pid);
    return objects_make(s);
}

/* All references are let go of: those who live have no object, and no reference of anybody. */
static yk_status nothing_is_left(void)
{
    int64_t left[SERVERS + 1] = {0}, sum = 1;
    for (int i = 0; i < SERVERS; i++)
        objects_release(&servers[i]);
    for (double began = yk__now(); sum && yk__now() < began + patience(20); usleep(2000)) {
        yk_scope scope = yk_scope_begin();
        sum = left[SERVERS] = left_here();
        for (int i = 0; i < SERVERS; i++) {
            yk_value *there = yk_rpc_sync(server_name(&servers[i]), "left", NULL, NULL);
            CHECK(there);
            sum += left[i] = yk_value_as_int(there);
        }
        yk_scope_end(scope);
    }
    looks++;
    if (sum)
        return yk_set_error(YK_ERR_CALLBACK,
                            "objects, references and calls are left: %" PRId64 " in s0, %" PRId64 " in s1, %" PRId64
                            " in s2, %" PRId64 " in the caller",
                            left[0], left[1], left[2], left[3]);
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

/* The number of threads that run or wait for each processor, at least 1: the mean of the last minute. */
static double busy(void)
{
    double load = 0, processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
    return getloadavg(&load, 1) > 0 && load > processors ? load / processors : 1;
}

/* The result of a call, or NULL and an error that names a worker, by its deadline. */
static yk_status outcome_take(yk_future *f, timed *t, yk_value **value)
{
    *value = f ? yk_future_wait(f, YK_NOT_GIVEN) : NULL;
    double late = timed_end(t);
    const yk_error *e = yk_last_error();
    calls_answered += *value != NULL;
    calls_late += late > LATE;
    if (late > LATE * busy()) {
        char text[300];
        snprintf(text, sizeof(text), "%.290s", e ? e->message : "it has a result");
        yk_clear_error();
        return yk_set_error(YK_ERR_CALLBACK,
                            "a call outlived its deadline by %.3f s, and %.3f s more for which the process got no "
                            "processor: %s",
                            late, t->excused, text);
    }
    if (*value)
        return YK_OK;
    CHECK(e && (e->code == YK_ERR_TIMEOUT || e->code == YK_ERR_CONNECTION || e->code == YK_ERR_NOT_FOUND));
    CHECK(strstr(e->message, "'s0'") || strstr(e->message, "'s1'") || strstr(e->message, "'s2'"));
    return YK_OK;
}

/* The outcome of a note. */
static yk_status note_take(server *s, yk_future *f, timed *t, int64_t number)
{
    yk_value *value;
    yk_status status = outcome_take(f, t, &value);
    if (status)
        return status;
    if (value) {
        CHECK(yk_value_as_int(value) == number && s->answers < 1 << 12);
        s->answered[s->answers++] = number;
        return YK_OK;
    }
    const yk_error *e = yk_last_error();
    char name[10];
    snprintf(name, sizeof(name), "'%s'", server_name(s));
    CHECK(strstr(e->message, name));
    if (strstr(e->message, "has not run") || strstr(e->message, "have not run")) {
        CHECK(s->unruns < 1 << 12);
        s->unrun[s->unruns++] = number;
        calls_unrun++;
    }
    yk_clear_error();
    return YK_OK;
}

/* The outcome of a note of a server that nothing befalls, which has a result. */
static yk_status undisturbed_take(server *s, yk_future *f, timed *t, int64_t number)
{
    int answers = s->answers;
    bool done = yk_future_wait(f, YK_NOT_GIVEN) != NULL;
    char text[600] = "";
    if (!done)
        snprintf(text, sizeof(text), "%.590s", yk_last_error()->message);
    yk_clear_error();
    yk_status status = note_take(s, f, t, number);
    if (!status && s->answers != answers + 1)
        return yk_set_error(YK_ERR_CALLBACK, "a note of a server that nothing befell has no result: %s", text);
    return status;
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

/* A holder gets a reference to a diary or to a value of this worker, calls by the one that it got last, or gives it. */
static yk_future *reference_send(timed *t)
{
    server *to = &servers[draw() % SERVERS], *of = &servers[draw() % SERVERS];
    int kind = (int)(draw() % 5);
    double timeout = 0.05 + (double)(draw() % 1000) / 1000;
    yk_ref *ref = kind == 0 ? yk_ref_create(yk_value_int(7)) : kind == 1 ? of->diary : NULL;
    timed_begin(t, timeout);
    calls_made++;
    yk_future *f =
        yk_ref_call_async(to->holder,
                          ref         ? "hold"
                          : kind == 2 ? "give"
                                      : "use",
                          ref ? yk_args(yk_value_ref(ref)) : NULL, YK_OPTIONS(yk_rpc_options, .timeout = timeout));
    timed_send(t, f);
    return f;
}

static yk_future *note_send(const server *s, timed *t, int64_t number, int64_t pause, double timeout)
{
    timed_begin(t, timeout);
    yk_future *f = yk_ref_call_async(s->diary, "note", yk_args(yk_value_int(number), yk_value_int(pause)),
                                     YK_OPTIONS(yk_rpc_options, .timeout = timeout));
    timed_send(t, f);
    return f;
}

/* Calls to one server with an event in their midst. */
static yk_status round_run(void)
{
    enum { KILL, STOP, CUT, DELAY, KINDS };
    server *s = &servers[draw() % SERVERS], *other = &servers[draw() % SERVERS];
    int kind = (int)(draw() % KINDS), at = (int)(draw() % BURST);
    yk_future *f[BURST], *more[BURST] = {NULL}, *passed[BURST];
    timed times[BURST], more_times[BURST], passed_times[BURST];
    int64_t numbers[BURST], others[BURST];
    yk_value *value;
    events_of[kind]++;
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
        f[i] = note_send(s, &times[i], numbers[i], pause, timeout);
        if (!f[i] && note_take(s, NULL, &times[i], numbers[i]))
            return YK_ERR_CALLBACK;
        passed[i] = reference_send(&passed_times[i]);
        if (!passed[i] && outcome_take(NULL, &passed_times[i], &value))
            return YK_ERR_CALLBACK;
        yk_clear_error();
        if (other == s)
            continue;
        others[i] = ++calls_made;
        more[i] = note_send(other, &more_times[i], others[i], 0, patience(30));
        CHECK(more[i]);
    }
    if (kind == STOP) {
        usleep((unsigned)(draw() % 20000));
        kill(s->pid, SIGCONT);
    }
    for (int i = 0; i < BURST; i++)
        if (f[i] && note_take(s, f[i], &times[i], numbers[i]))
            return YK_ERR_CALLBACK;
    for (int i = 0; i < BURST; i++) {
        if (passed[i] && outcome_take(passed[i], &passed_times[i], &value))
            return YK_ERR_CALLBACK;
        yk_clear_error();
    }
    for (int i = 0; i < BURST && other != s; i++) { /* those of another server */
        if (more[i] && undisturbed_take(other, more[i], &more_times[i], others[i]))
            return YK_ERR_CALLBACK;
    }
    if (kind == KILL || kind == CUT || s->answers > 4000 || s->unruns > 4000) {
        kill(s->pid, SIGKILL);
        for (double began = yk__now(); kill(s->pid, 0) == 0 && yk__now() < began + patience(20);)
            usleep(1000); /* until its parent has seen it */
        CHECK(!history_check(s));
        objects_release(s);
        CHECK(!server_begin(s));
    }
    return YK_OK;
}

static yk_status look_for_leaks(void)
{
    CHECK(!nothing_is_left());
    for (int i = 0; i < SERVERS; i++)
        CHECK(!objects_make(&servers[i]));
    return YK_OK;
}

static yk_status call_them(int events, bool figures)
{
    pthread_t sleeper;
    CHECK(!join_with(offer, store, "caller", 1) && !pthread_create(&sleeper, NULL, sleeper_run, NULL));
    for (int i = 0; i < SERVERS; i++)
        CHECK(!server_begin(&servers[i]));
    double began = yk__now();
    for (int i = 0; i < events; i++) {
        uint64_t before = seed;
        yk_scope scope = yk_scope_begin();
        yk_status status = round_run();
        yk_scope_end(scope);
        status = status || i % BETWEEN != BETWEEN - 1 ? status : look_for_leaks();
        if (status) {
            fprintf(stderr, "event %d of seed %" PRIu64 "\n", i, before);
            return status;
        }
    }
    CHECK(!nothing_is_left());
    double load[3] = {0};
    if (figures && getloadavg(load, 3) > 0)
        printf("# %d events in %.0f s (load %.1f): %" PRId64 " kills, %" PRId64 " stops, %" PRId64 " cuts, %" PRId64
               " delays; %" PRId64 " calls, %" PRId64 " with a result, %" PRId64 " notes that have not run; %" PRId64
               " looks, nothing left; a call ended %.1f ms behind its deadline at most, not counting waits for a "
               "processor, of which the longest had %.1f ms, and %" PRId64 " calls more than %.0f ms\n",
               events, yk__now() - began, load[0], events_of[0], events_of[1], events_of[2], events_of[3], calls_made,
               calls_answered, calls_unrun, looks, 1e3 * worst, 1e3 * longest_sleep, calls_late, 1e3 * LATE);
    for (int i = 0; i < SERVERS; i++) {
        CHECK(!history_check(&servers[i]));
        kill(servers[i].pid, SIGTERM);
    }
    fflush(stdout);
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
        bool failed = call_them(events ? atoi(events) : USUAL, events != NULL);
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
            if (pids[i] == pid && WIFSIGNALED(ended)) {
                assert_true(WTERMSIG(ended) == SIGKILL ||
                            WTERMSIG(ended) == SIGTERM); /* of this test, and of its end */
                if ((pids[i] = fork()) == 0)
                    serve(i);
            }
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
