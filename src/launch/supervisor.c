/*
 * supervisor.c - a group of processes: started together, watched, stopped together, never left behind. Layer: launch.
 *
 * One loop for both kinds of group (supervisor.h). What differs: a launcher learns of ends and of its own signals by a
 * descriptor of signals, and reaps whatever is its child; for functions each process has a pidfd, and is reaped by
 * its own pid. A group of functions is never given up: it is over when each process has been waited for.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/invariant.h"
#include "host/process.h"
#include "launch/guard.h"
#include "launch/hang.h"
#include "launch/job_store.h"
#include "launch/start.h"
#include "launch/watch.h"

/* Seconds from the notice that ranks are stuck to the stop, so that the launchers of the other nodes see where theirs
 * stand before those fail because of it. */
static const double others_hear = 0.5;

/* Seconds that another node is given which may know the process that these wait for, and end it alone. */
static const double others_act = 5;

/* Seconds that a process which saw a failure is given to end before another one is blamed, and one that is ending
 * already: that takes the longer the more memory it has. */
static const double forestalled_for = 1, ending_for = 5;

/* ---- watching --------------------------------------------------------------------------------------------------- */

static bool is_launcher(const group *g)
{
    return !g->function;
}

static int said(const worker *w)
{
    return w->said ? atomic_load(w->said) : WORKER_RUNS;
}

static void pass_on(watch *w, int number, bool whole_group)
{
    for (int i = 0; i < w->g->count; i++) {
        worker *one = &w->g->workers[i];
        /* A function that has returned is about to end, and may still write what it printed. */
        if (!one->running || (number == SIGTERM && said(one) != WORKER_RUNS))
            continue;
        kill(whole_group && is_launcher(w->g) ? -one->pid : one->pid, number);
    }
}

static void begin_grace(watch *w)
{
    if (w->stopping)
        return;
    w->stopping = true;
    w->stopped = yk__now();
    w->deadline = w->stopped + w->g->grace;
    w->notice = is_launcher(w->g) ? yk__now() + 0.5 : 0;
}

static void print_notice(watch *w)
{
    w->notice = 0;
    if (w->g->failed)
        yk__relay_say(w->g->err, "yoke run: rank %d failed; stopping the other processes (SIGKILL after %g s)\n",
                      w->g->failed->rank, w->g->grace);
    else
        yk__relay_say(w->g->err, "yoke run: stopping the processes (SIGKILL after %g s)\n", w->g->grace);
}

void yk__watch_stop(watch *w, int number)
{
    begin_grace(w);
    for (int i = 0; i < w->g->count; i++) { /* one that is ending does so of itself, and may be the cause */
        worker *one = &w->g->workers[i];
        one->asked |= one->running && !yk__process_is_ending(one->pid);
    }
    /* Signals of the keyboard go to the group, as without a launcher. SIGTERM goes to the worker alone: one that
     * saves its work on SIGTERM would lose its helpers (the workers of a data loader) to a signal to all. */
    pass_on(w, number, number != SIGTERM);
    pass_on(w, SIGCONT, true);
}

static void kill_all(watch *w)
{
    if (!w->killing)
        w->deadline = yk__now() + 2;
    w->stopping = w->killing = true;
    w->notice = 0;
    for (int i = 0; i < w->g->count; i++)
        w->g->workers[i].asked |= w->g->workers[i].running, w->g->workers[i].killed |= w->g->workers[i].running;
    pass_on(w, SIGKILL, true);
    if (is_launcher(w->g))
        yk__signal_children(SIGKILL);
}

static bool worker_failed(const worker *w)
{
    return w->status == WORKER_STATUS_UNKNOWN ? said(w) != WORKER_DONE : w->status != 0;
}

static double saw_failure(const group *g, const worker *one)
{
    return yk__hang_failed_at(g->hang, (int)(one - g->workers));
}

/* Note [The first of several]: whether `one` is the cause rather than `other`, where both have failed. One that was
 * killed is; so is one that ended without having seen its group fail; of two that saw that, the one that saw it first,
 * because the others learned of it from there. */
static bool comes_before(const group *g, const worker *one, const worker *other)
{
    double saw = saw_failure(g, one), other_saw = saw_failure(g, other);
    if (!WIFSIGNALED(one->status) != !WIFSIGNALED(other->status)) /* 0 while it runs */
        return WIFSIGNALED(one->status);
    return saw > 0 ? other_saw > 0 && saw < other_saw : other_saw > 0;
}

/* True if a process has begun to end before it was asked to. Those that depend on it may know that, and may have ended
 * themselves, before it can be waited for. */
static bool is_ending(const worker *one)
{
    return one->running && !one->asked && yk__process_is_ending(one->pid);
}

/* Until when another process than the one that has ended may turn out to be the cause: one that saw the failure before
 * it did and still runs, or one that is ending. */
static double forestalled_until(const watch *w, const worker *ended)
{
    const group *g = w->g;
    double saw = saw_failure(g, ended), until = 0;
    for (int i = 0; i < g->count && saw > 0; i++) {
        double other = saw_failure(g, &g->workers[i]);
        if (&g->workers[i] != ended && is_ending(&g->workers[i]))
            return w->suspected + ending_for;
        if (g->workers[i].running && other > 0 && other < saw && !WIFSIGNALED(ended->status))
            until = w->suspected + forestalled_for;
    }
    return until;
}

/* One more has failed, or NULL: decides who was the first, unless that needs a moment. */
static void decide_first(watch *w, worker *failed)
{
    group *g = w->g;
    double now = yk__now();
    if (failed && !w->suspect)
        w->suspected = now;
    if (failed && (!w->suspect || comes_before(g, failed, w->suspect)))
        w->suspect = failed;
    if (!w->suspect || g->failed || g->interrupted || now < (w->undecided = forestalled_until(w, w->suspect)))
        return;
    g->failed = w->suspect;
    if (w->running && !w->stopping)
        yk__watch_stop(w, SIGTERM);
}

bool yk__supervisor_knows_first(const group *g)
{
    const watch *w = g->watch;
    if (!w || g->failed || g->interrupted)
        return true;
    for (int i = 0; i < g->count && !w->suspect; i++) {
        if (is_ending(&g->workers[i]))
            return w->stopping && yk__now() >= w->stopped + ending_for;
    }
    return !w->suspect;
}

double yk__supervisor_saw_failure(const group *g)
{
    return g->failed ? saw_failure(g, g->failed) : 0;
}

/* One that got SIGKILL and has ended, but cannot be waited for: whoever traces it has to do that first. */
static pid_t next_traced(const group *g, int *status)
{
    for (int i = 0; i < g->count; i++) {
        const worker *one = &g->workers[i];
        if (one->running && (one->killed || one->hung) && yk__process_has_ended(one->pid)) {
            pid_t pid = waitpid(one->pid, status, WNOHANG); /* it may have ended just now */
            *status = pid > 0 ? *status : SIGKILL;
            return one->pid;
        }
    }
    return 0;
}

/* A process that has ended, its status taken; 0: none now; -1: none is left. A launcher has no other children. */
static pid_t next_ended(watch *w, int *status)
{
    const group *g = w->g;
    if (is_launcher(g)) {
        pid_t pid = waitpid(-1, status, WNOHANG);
        return pid ? pid : next_traced(g, status);
    }
    for (int i = 0; i < g->count; i++) {
        if (!g->workers[i].running)
            continue;
        pid_t pid = waitpid(g->workers[i].pid, status, WNOHANG);
        if (pid < 0 && errno == ECHILD)
            *status = WORKER_STATUS_UNKNOWN;
        if (pid > 0 || (pid < 0 && errno == ECHILD))
            return g->workers[i].pid;
    }
    errno = ECHILD;
    return w->running ? 0 : -1;
}

static void reap(watch *w)
{
    group *g = w->g;
    worker *first = NULL;
    int status;
    pid_t pid;
    while ((pid = next_ended(w, &status)) > 0) {
        for (int i = 0; i < g->count; i++) {
            worker *one = &g->workers[i];
            if (one->pid != pid || !one->running)
                continue;
            one->running = false;
            one->status = status;
            one->ended = yk__now();
            w->running--;
            yk__relay_finish(&one->out);
            yk__relay_finish(&one->err);
            if (!one->hung) /* it has ended of itself */
                one->why[0] = '\0';
            if (g->ended)
                g->ended(g->argument, one);
            yk__alone_note_end(g, one);
            bool alone = worker_failed(one) && !one->asked && yk__alone_may(w, one);
            if (alone || (worker_failed(one) && yk__alone_leaves(w, one)))
                yk__alone_begin(w, one);
            else if (worker_failed(one) && !one->asked && !one->hung && (!first || comes_before(g, one, first)))
                first = one;
            one->hung = false;
        }
    }
    bool none_left = pid < 0 && errno == ECHILD;
    for (worker *one; (one = yk__alone_settle(w));) {
        if (!first || comes_before(g, one, first))
            first = one;
    }
    /* A function that has returned an error has failed, whatever its process still has to write. */
    for (int i = 0; i < g->count; i++) {
        worker *one = &g->workers[i];
        if (one->running && !one->asked && said(one) == WORKER_FAILED && (!first || comes_before(g, one, first)))
            first = one;
    }
    w->empty = none_left && !yk__alone_pending(g);
    if (w->empty && !first && !w->suspect)
        first = yk__alone_unnoticed(g);
    if (!g->failed && !g->interrupted)
        decide_first(w, first);
    if (!w->running && !w->empty && !w->given_up && !yk__alone_pending(g)) {
        begin_grace(w);
        yk__signal_children(w->killing ? SIGKILL : SIGTERM);
        yk__signal_children(SIGCONT);
    }
}

static void handle_signal(watch *w, int number)
{
    group *g = w->g;
    switch (number) {
    case SIGCHLD: break; /* reap looks at every turn */
    case SIGUSR1:
    case SIGUSR2: pass_on(w, number, false); break;
    case SIGTSTP:
    case SIGCONT:
        w->suspended = number == SIGTSTP;
        pass_on(w, number, true);
        break;
    default: {
        bool at_once = (g->interrupted || g->failed || !w->running) && number != SIGTERM && number != SIGHUP;
        w->leaving |= w->empty && g->interrupted;
        if (!g->interrupted)
            g->interrupted = number;
        if (w->empty)
            break;
        if (at_once)
            kill_all(w);
        else
            yk__watch_stop(w, number);
    }
    }
}

static void read_signals(watch *w)
{
    struct signalfd_siginfo info;
    while (read(yk__launcher.signals, &info, sizeof(info)) == sizeof(info))
        handle_signal(w, (int)info.ssi_signo);
}

static nfds_t poll_add(watch *w, nfds_t n, int fd, short events)
{
    w->fds[n] = (struct pollfd){.fd = fd, .events = events};
    return n + 1;
}

/* Closes a stream that nobody takes any more, so that its writer learns of it. True if it is to be read now. */
static bool close_unwanted(relay_stream *s)
{
    if (s->fd >= 0 && s->sink && s->sink->closed && s->log < 0) {
        close(s->fd);
        s->fd = -1;
    }
    return s->fd >= 0 && !(s->sink && yk__relay_sink_full(s->sink));
}

static bool watch_is_over(const watch *w)
{
    return w->empty || w->given_up;
}

/* Finds processes of this node that do not get on, and notes in the watch who is to be stopped. True if that is now,
 * for all or some. */
static bool find_stuck(watch *w, double now, double *again)
{
    group *g = w->g;
    if (g->failed || g->interrupted || !yk__hang_find(g->hang, g, g->stuck, sizeof(g->stuck), again)) {
        w->others_by = 0;
        return false;
    }
    w->stop_alone = yk__alone_may_hang(w);
    bool others_may = false;
    for (int i = 0; i < g->count && g->link; i++)
        others_may |= g->workers[i].rule && g->workers[i].rule->on_failure != YK__ON_FAILURE_END;
    if (others_may && !w->stop_alone && w->others_by == 0)
        w->others_by = now + others_act;
    if (w->others_by > now) {
        g->stuck[0] = '\0'; /* so far nothing is told to anybody */
        *again = w->others_by < *again ? w->others_by : *again;
        return false;
    }
    return true;
}

/* Processes that do not get on, here or on another node, say where they stand, and are stopped: those alone that the
 * others can do without, or all. */
static double look_for_hang(watch *w, double wait)
{
    group *g = w->g;
    double now = yk__now(), again = now + wait;
    bool elsewhere = g->link && g->link->hung;
    if (!yk__hang_is_watched(g->hang) || w->stopping || watch_is_over(w))
        return wait;
    if (w->stop_at == 0 && (elsewhere || find_stuck(w, now, &again))) {
        yk__relay_say(g->err, "yoke run: ranks that do not get on; where those of this node stand:\n");
        double wait_for_stacks = yk__hang_report(g->hang, g);
        w->stop_alone &= !elsewhere;
        w->stop_at = now + (g->link && !w->stop_alone && wait_for_stacks < others_hear ? others_hear : wait_for_stacks);
        if (w->stop_alone)
            yk__alone_note_hung(w);
        else if (g->hung)
            g->hung(g->argument);
    }
    if (w->stop_at > 0 && now >= w->stop_at && w->stop_alone) {
        yk__alone_kill_hung(w);
        w->stop_at = 0;
    } else if (w->stop_at > 0 && now >= w->stop_at) {
        yk__watch_stop(w, SIGTERM);
    } else if (w->stop_at > 0) {
        again = w->stop_at;
    }
    return again - now < wait ? again - now : wait;
}

/* Handles the messages of the other nodes' launchers; the seconds until the next call is due, or `wait`. */
static double step_link(watch *w, double wait)
{
    group *g = w->g;
    double again = yk__now() + wait;
    g->left = 0;
    for (int i = 0; i < g->count && w->given_up; i++)
        g->left += g->workers[i].running;
    int number = g->link->step(g->link, g, watch_is_over(w), &again);
    if (g->link->changed > 0 && g->count) /* a node 0 without processes awaits no step of theirs */
        yk__alone_note_change(g, g->link->changed);
    g->link->changed = 0;
    /* Also where all that there is waits to be started again: it is not. */
    if (g->link->kill && (w->running || yk__alone_pending(g)) && !w->killing)
        kill_all(w);
    if (number && w->running && !w->stopping && !(g->link->hung && yk__hang_is_watched(g->hang)))
        yk__watch_stop(w, number);
    double left = again - yk__now();
    return left < wait ? left : wait;
}

static bool is_full(const relay_sink *sink)
{
    return sink && yk__relay_sink_waits(sink);
}

/* Once: waits until something happens, or for so many seconds, and does what follows from it. */
static void watch_turn(watch *w, double most)
{
    group *g = w->g;
    YK__ASSERT_SOUND(yk__group_check(g));
    double now = yk__now(),
           wait = w->stopping && !watch_is_over(w) && w->deadline - now < most ? w->deadline - now : most;
    if (g->link && !g->link->done) {
        reap(w); /* what has ended by now is known before the other nodes are answered */
        wait = step_link(w, wait);
    }
    wait = look_for_hang(w, wait);
    wait = yk__alone_evict(w, wait);
    if (yk__alone_cancel(w))
        reap(w); /* that may have been all that was left */
    wait = yk__alone_start(w, wait);
    bool undecided = w->suspect && !g->failed && !g->interrupted;
    if (undecided && w->undecided - now < wait)
        wait = w->undecided - now;
    if (watch_is_over(w) && (!g->link || g->link->done))
        return;
    nfds_t n = poll_add(w, 0, yk__launcher.signals, POLLIN);
    n = poll_add(w, n, yk__launcher.front, 0);
    n = poll_add(w, n, is_full(g->out) ? g->out->fd : -1, POLLOUT);
    n = poll_add(w, n, is_full(g->err) ? g->err->fd : -1, POLLOUT);
    for (int i = 0; i < g->count; i++) {
        relay_stream *streams[2] = {&g->workers[i].out, &g->workers[i].err};
        for (int k = 0; k < 2; k++) {
            double left = yk__relay_redraw(streams[k], now);
            if (left >= 0 && left < wait)
                wait = left;
            n = poll_add(w, n, close_unwanted(streams[k]) ? streams[k]->fd : -1, POLLIN);
        }
    }
    n = poll_add(w, n, g->link && !g->link->done ? g->link->fd : -1, POLLIN);
    nfds_t store_at = n;
    n = poll_add(w, n, yk__job_store_waits_for(g->store), POLLIN);
    for (int i = 0; i < g->count && !is_launcher(g); i++) {
        const worker *one = &g->workers[i];
        n = poll_add(w, n, one->running ? one->pidfd : -1, POLLIN);
        if (one->running && one->pidfd < 0 && wait > 0.01)
            wait = 0.01;
    }
    if (watch_is_over(w))
        w->notice = 0;
    if (w->notice > 0 && w->notice - now < wait)
        wait = w->notice - now;
    if (w->killing && !watch_is_over(w) && wait > 0.05)
        wait = 0.05; /* a process that is being born while its parent is killed is found at the next look */
    poll(w->fds, n, wait > 0 ? (int)(wait < 1e6 ? wait * 1000 + 1 : -1) : 0);
    if (w->fds[1].revents) {
        pass_on(w, SIGKILL, true);
        yk__launcher_end();
    }
    /* No signal tells of the end of a process that is no child, or that is traced. */
    if (w->fds[0].revents || !is_launcher(g) || w->killing || yk__alone_looks(g)) {
        if (is_launcher(g))
            read_signals(w);
        reap(w); /* before output, so that the first to fail is seen as the first */
    } else if (undecided) {
        decide_first(w, NULL);
    }
    for (int i = 0; i < g->count; i++) {
        for (int k = 0; k < 2; k++) {
            if (w->fds[4 + 2 * i + k].revents)
                yk__relay_read(k ? &g->workers[i].err : &g->workers[i].out);
        }
    }
    if (w->fds[store_at].revents && yk__job_store_serve(g->store)) {
        yk__relay_say(g->err, "yoke run: the store of the ranks: %s\n", yk_last_error()->message);
        yk_clear_error();
    }
    if (is_launcher(g)) {
        yk__relay_sink_flush(g->out);
        yk__relay_sink_flush(g->err);
    }
    if (w->notice > 0 && yk__now() >= w->notice && !w->killing)
        print_notice(w);
    if (watch_is_over(w))
        return;
    if (w->stopping && yk__now() >= w->deadline) {
        if (w->killing && is_launcher(g)) {
            w->given_up = true;
        } else {
            kill_all(w);
            w->deadline = yk__now() + 2;
        }
    } else if (w->killing) {
        kill_all(w);
    }
}

bool yk__supervisor_start(group *g)
{
    watch *w = calloc(1, sizeof(*w));
    g->watch = w;
    g->failed = NULL;
    g->interrupted = g->start_error = g->left = 0;
    g->stuck[0] = '\0';
    if (w)
        *w = (watch){.g = g, .fds = calloc(6 + 3 * (size_t)g->count, sizeof(*w->fds))};
    if (!w || !w->fds) {
        free(w);
        g->watch = NULL;
        g->start_error = ENOMEM;
        return false;
    }
    fflush(NULL); /* what is buffered would be written by each of them */
    for (int i = 0; i < g->count && !g->start_error; i++) {
        if (g->workers[i].spare) /* alone.c starts it */
            continue;
        g->start_error = yk__worker_start(g, i);
        w->running += !g->start_error;
    }
    if (g->start_error)
        kill_all(w);
    reap(w); /* what ended before its turn to be watched */
    return !g->start_error;
}

bool yk__supervisor_wait(group *g, double until)
{
    watch *w = g->watch;
    while (w && (!watch_is_over(w) || (g->link && !g->link->done && !w->leaving))) {
        double left = until - yk__now();
        watch_turn(w, left > 0 ? left : 0);
        if (left <= 0)
            break;
    }
    return !w || (watch_is_over(w) && (!g->link || g->link->done || w->leaving));
}

void yk__supervisor_kill(group *g)
{
    if (g->watch)
        kill_all(g->watch);
}

void yk__supervisor_finish(group *g)
{
    g->left = 0;
    for (int i = 0; i < g->count && g->watch; i++) {
        worker *one = &g->workers[i];
        if (one->running)
            g->left++;
        if (one->pid && one->pidfd >= 0)
            close(one->pidfd);
        yk__relay_finish(&one->out);
        yk__relay_finish(&one->err);
        relay_stream *streams[2] = {&one->out, &one->err};
        for (int k = 0; k < 2; k++) {
            if (streams[k]->fd >= 0)
                close(streams[k]->fd);
            streams[k]->fd = -1;
        }
    }
    if (is_launcher(g)) {
        yk__relay_sink_flush(g->out);
        yk__relay_sink_flush(g->err);
    }
    if (g->watch)
        free(g->watch->fds);
    free(g->watch);
    g->watch = NULL;
}

void yk__supervisor_run(group *g)
{
    if (yk__supervisor_start(g) && g->started)
        g->started(g->argument);
    yk__supervisor_wait(g, yk__now() + 1e9);
    yk__supervisor_finish(g);
}
