/*
 * supervisor.c - a group of processes: started together, watched, stopped together, never left behind. Layer: launch.
 *
 * Note [Guards]: the launcher is two processes, its front (whose pid the user knows) and a supervisor, the parent of
 * the workers. Both are subreapers, so whatever a worker starts, in a session of its own or not, becomes a child of the
 * supervisor when its parent ends, and a child of the front when the supervisor ends. Each sees the other end, and
 * kills its children until it has none. Workers also get SIGKILL from the kernel when the supervisor dies (PDEATHSIG).
 *
 * Each worker leads a process group. The supervisor leads one too, so that the terminal's signals reach the front
 * alone. Signals are blocked and read from a descriptor; a worker gets back the mask that the launcher was started
 * with.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/core.h"
#include "launch/exit_codes.h"
#include "launch/hang.h"
#include "launch/supervisor.h"

/* Seconds from the notice that ranks are stuck to the stop, so that the launchers of the other nodes see where theirs
 * stand before those fail because of it. */
static const double others_hear = 0.5;

/* Seconds that a process which saw a failure is given to end before another one is blamed. */
static const double forestalled_for = 1;

/* What the processes of the launcher share; one launcher per program. */
static struct {
    int signals;         /* signalfd */
    int front;           /* a pipe that ends when the front does */
    pid_t supervisor;    /* the workers' parent */
    sigset_t mask;       /* of the program as it was started */
    struct rlimit files; /* likewise */
} own = {.signals = -1, .front = -1};

/* ---- killing ---------------------------------------------------------------------------------------------------- */

/* Sends a signal to every child of this process, orphans that came to it included. */
static void signal_children(int number)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *children = fopen(path, "re");
    if (!children)
        return;
    int pid;
    while (fscanf(children, "%d", &pid) == 1)
        kill(pid, number);
    fclose(children);
}

/* Kills every child until none is left, for two seconds at most. */
static void kill_children(void)
{
    for (double end = yk__now() + 2; yk__now() < end; poll(NULL, 0, 1)) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 && errno == ECHILD)
            return;
        signal_children(SIGKILL);
    }
}

/* ---- front and supervisor --------------------------------------------------------------------------------------- */

static const int passed_on[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
enum { PASSED_ON = sizeof(passed_on) / sizeof(*passed_on) };

static void take_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (int i = 0; i < PASSED_ON; i++) {
        struct sigaction action;
        sigaction(passed_on[i], NULL, &action);
        if (passed_on[i] == SIGHUP && action.sa_handler == SIG_IGN)
            continue; /* nohup */
        sigaddset(&set, passed_on[i]);
    }
    signal(SIGCHLD, SIG_DFL); /* where it is ignored, children cannot be waited for */
    sigprocmask(SIG_BLOCK, &set, &own.mask);
    own.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The front: passes signals on until the supervisor ends. */
static int guard(pid_t supervisor)
{
    for (;;) {
        struct pollfd ready = {.fd = own.signals, .events = POLLIN};
        poll(&ready, 1, -1);
        struct signalfd_siginfo info;
        while (read(own.signals, &info, sizeof(info)) == sizeof(info)) {
            int number = (int)info.ssi_signo;
            if (number == SIGCHLD)
                continue;
            kill(supervisor, number);
            if (number == SIGTSTP)
                raise(SIGSTOP);
        }
        int status;
        pid_t pid;
        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
            if (pid != supervisor)
                continue;
            if (WIFEXITED(status)) {
                kill_children();
                return WEXITSTATUS(status);
            }
            kill_children();
            fprintf(stderr, "yoke run: its supervisor (pid %d) was killed by signal %d; the processes were killed\n",
                    (int)supervisor, WTERMSIG(status));
            return EXIT_SIGNAL + WTERMSIG(status);
        }
    }
}

int yk__supervise(int (*work)(void *arg), void *arg)
{
    int ends[2];
    take_signals();
    if (own.signals < 0 || pipe2(ends, O_CLOEXEC) || prctl(PR_SET_CHILD_SUBREAPER, 1)) {
        perror("yoke run: cannot watch processes");
        return EXIT_FAILED;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        perror("yoke run: cannot start a process");
        return EXIT_FAILED;
    }
    if (pid > 0) {
        close(ends[0]);
        return guard(pid);
    }
    close(ends[1]);
    own.front = ends[0];
    own.supervisor = getpid();
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTOU, SIG_IGN); /* it writes to the terminal from the background */
    getrlimit(RLIMIT_NOFILE, &own.files);
    struct rlimit most = {own.files.rlim_max, own.files.rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
    int code = work(arg);
    fflush(NULL);
    _exit(code);
}

/* ---- starting --------------------------------------------------------------------------------------------------- */

typedef struct start {
    const group *g;
    const worker *w;
    int in, out, err, secret;
    volatile int error; /* written by the child */
    volatile bool exec; /* it came as far as exec */
} start;

/* In the child, in the parent's memory, until exec: system calls only. */
static void become(start *s)
{
    static const int plain[] = {SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGTTOU, SIGCHLD, SIGUSR1, SIGUSR2};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != own.supervisor)
        return; /* it died before the line above */
    if (dup2(s->in, 0) < 0 || dup2(s->out, 1) < 0 || dup2(s->err, 2) < 0 ||
        (s->secret >= 0 && (s->secret == SECRET_FD ? fcntl(SECRET_FD, F_SETFD, 0) : dup2(s->secret, SECRET_FD)) < 0)) {
        s->error = errno;
        return;
    }
    setrlimit(RLIMIT_NOFILE, &own.files);
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
        sigaction(plain[i], &standard, NULL);
    sigprocmask(SIG_SETMASK, &own.mask, NULL);
    s->exec = true;
    execve(s->g->path, s->w->argv, s->w->envp);
    s->error = errno;
}

/* vfork: the parent's page tables are not copied, which for a large program would take longer than all the rest. */
static __attribute__((noinline)) pid_t child_of(start *s)
{
    pid_t pid = vfork();
    if (pid == 0) {
        become(s);
        _exit(127);
    }
    return pid;
}

static int pipe_of(relay_stream *stream)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fcntl(ends[0], F_SETPIPE_SZ, RELAY_PIPE); /* where it may not be so large it stays as it is */
    stream->fd = ends[0];
    return ends[1];
}

/* 0, or errno. */
static int start_worker(group *g, worker *w)
{
    start s = {.g = g, .w = w, .secret = -1};
    w->pid = 0;
    w->running = w->asked = w->killed = false;
    w->status = 0;
    s.in = w->input ? 0 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    s.out = pipe_of(&w->out);
    s.err = s.out < 0 ? -1 : pipe_of(&w->err);
    if (g->secret >= 0) {
        char path[32]; /* a file position of its own for each */
        snprintf(path, sizeof(path), "/proc/self/fd/%d", g->secret);
        s.secret = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (s.in < 0 || s.err < 0 || (g->secret >= 0 && s.secret < 0)) {
        s.error = errno;
    } else {
        w->began = yk__now();
        pid_t pid = child_of(&s);
        if (pid < 0)
            s.error = errno;
        else if (s.error)
            waitpid(pid, NULL, 0);
        else
            w->pid = pid, w->running = true;
    }
    if (s.in > 0)
        close(s.in);
    if (s.secret >= 0)
        close(s.secret);
    if (s.out >= 0)
        close(s.out);
    if (s.err >= 0)
        close(s.err);
    g->start_exec = s.exec;
    return s.error;
}

/* ---- watching --------------------------------------------------------------------------------------------------- */

typedef struct watch {
    group *g;
    int running;
    bool stopping, killing, given_up;
    bool leaving;     /* asked twice to end while it only waits for other nodes */
    double notice;    /* when to say that stopping takes a while; 0: not any more */
    worker *suspect;  /* has failed; one that saw a failure before it is about to end, and may be the cause */
    double suspected; /* until then that is waited for */
    double stop_at;   /* when processes that are stuck are stopped: their stacks come before; 0: they are not */
    bool empty;       /* not even something that a worker started is left */
    double deadline;  /* of the grace, or of waiting for the dead */
    struct pollfd *fds;
} watch;

static void pass_on(watch *w, int number, bool whole_group)
{
    for (int i = 0; i < w->g->count; i++) {
        worker *one = &w->g->workers[i];
        if (!one->running)
            continue;
        kill(whole_group ? -one->pid : one->pid, number);
    }
}

static void begin_grace(watch *w)
{
    if (w->stopping)
        return;
    w->stopping = true;
    w->deadline = yk__now() + w->g->grace;
    w->notice = yk__now() + 0.5;
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

static void stop_all(watch *w, int number)
{
    begin_grace(w);
    for (int i = 0; i < w->g->count; i++)
        w->g->workers[i].asked |= w->g->workers[i].running;
    /* What the keyboard sends goes to the group, as without a launcher. SIGTERM goes to the worker alone: one that
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
    signal_children(SIGKILL);
}

static bool failed(const worker *w)
{
    return w->status != 0;
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
    if (!WIFSIGNALED(one->status) != !WIFSIGNALED(other->status))
        return WIFSIGNALED(one->status);
    return saw > 0 ? other_saw > 0 && saw < other_saw : other_saw > 0;
}

/* Whether a process that still runs saw the failure before the one that has ended did. */
static bool is_forestalled(const group *g, const worker *ended)
{
    double saw = saw_failure(g, ended);
    for (int i = 0; i < g->count && saw > 0 && !WIFSIGNALED(ended->status); i++) {
        double other = saw_failure(g, &g->workers[i]);
        if (g->workers[i].running && other > 0 && other < saw)
            return true;
    }
    return false;
}

/* One more has failed, or NULL: decides who was the first, unless that needs a moment. */
static void decide_first(watch *w, worker *failed)
{
    group *g = w->g;
    if (failed && !w->suspect)
        w->suspected = yk__now() + forestalled_for;
    if (failed && (!w->suspect || comes_before(g, failed, w->suspect)))
        w->suspect = failed;
    if (!w->suspect || g->failed || g->interrupted || (is_forestalled(g, w->suspect) && yk__now() < w->suspected))
        return;
    g->failed = w->suspect;
    if (w->running)
        stop_all(w, SIGTERM);
}

static void reap(watch *w)
{
    group *g = w->g;
    worker *first = NULL;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
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
            if (failed(one) && !one->asked && (!first || comes_before(g, one, first)))
                first = one;
        }
    }
    w->empty = pid < 0 && errno == ECHILD;
    if (!g->failed && !g->interrupted)
        decide_first(w, first);
    if (!w->running && !w->empty && !w->given_up) {
        begin_grace(w);
        signal_children(w->killing ? SIGKILL : SIGTERM);
        signal_children(SIGCONT);
    }
}

static void take_signal(watch *w, int number)
{
    group *g = w->g;
    switch (number) {
    case SIGCHLD: break; /* reap looks at every turn */
    case SIGUSR1:
    case SIGUSR2: pass_on(w, number, false); break;
    case SIGTSTP: pass_on(w, SIGTSTP, true); break;
    case SIGCONT: pass_on(w, SIGCONT, true); break;
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
            stop_all(w, number);
    }
    }
}

static void read_signals(watch *w)
{
    struct signalfd_siginfo info;
    while (read(own.signals, &info, sizeof(info)) == sizeof(info))
        take_signal(w, (int)info.ssi_signo);
}

static nfds_t add(watch *w, nfds_t n, int fd, short events)
{
    w->fds[n] = (struct pollfd){.fd = fd, .events = events};
    return n + 1;
}

/* A stream that nobody takes any more is closed, so that its writer learns of it. */
static bool wanted(relay_stream *s)
{
    if (s->fd >= 0 && s->sink && s->sink->closed && s->log < 0) {
        close(s->fd);
        s->fd = -1;
    }
    return s->fd >= 0 && !(s->sink && yk__relay_sink_full(s->sink));
}

static bool over(const watch *w)
{
    return w->empty || w->given_up;
}

/* Processes that do not get on, here or on another node, say where they stand, and are stopped. */
static double look_for_hang(watch *w, double wait)
{
    group *g = w->g;
    double now = yk__now(), again = now + wait;
    bool elsewhere = g->link && g->link->hung;
    if (!yk__hang_is_watched(g->hang) || w->stopping || over(w))
        return wait;
    if (w->stop_at == 0 && (elsewhere || (!g->failed && !g->interrupted &&
                                          yk__hang_find(g->hang, g, g->stuck, sizeof(g->stuck), &again)))) {
        yk__relay_say(g->err, "yoke run: ranks that do not get on; where those of this node stand:\n");
        double wait_for_stacks = yk__hang_report(g->hang, g);
        w->stop_at = now + (g->link && wait_for_stacks < others_hear ? others_hear : wait_for_stacks);
    }
    if (w->stop_at > 0 && now >= w->stop_at)
        stop_all(w, SIGTERM);
    else if (w->stop_at > 0)
        again = w->stop_at;
    return again - now < wait ? again - now : wait;
}

/* Lets the other nodes' launchers have their say; the seconds until they want to be heard again, or `wait`. */
static double step_link(watch *w, double wait)
{
    group *g = w->g;
    double again = yk__now() + wait;
    g->left = 0;
    for (int i = 0; i < g->count && w->given_up; i++)
        g->left += g->workers[i].running;
    int number = g->link->step(g->link, g, over(w), &again);
    if (number && w->running && !w->stopping && !(g->link->hung && yk__hang_is_watched(g->hang)))
        stop_all(w, number);
    double left = again - yk__now();
    return left < wait ? left : wait;
}

static void turn(watch *w)
{
    group *g = w->g;
    double now = yk__now(), wait = w->stopping && !over(w) ? w->deadline - now : 1e6;
    if (g->link && !g->link->done) {
        reap(w); /* what has ended by now is known before the other nodes are answered */
        wait = step_link(w, wait);
    }
    wait = look_for_hang(w, wait);
    bool undecided = w->suspect && !g->failed && !g->interrupted;
    if (undecided && w->suspected - now < wait)
        wait = w->suspected - now;
    if (over(w) && g->link->done)
        return;
    nfds_t n = add(w, 0, own.signals, POLLIN);
    n = add(w, n, own.front, 0);
    n = add(w, n, yk__relay_sink_waits(g->out) ? g->out->fd : -1, POLLOUT);
    n = add(w, n, yk__relay_sink_waits(g->err) ? g->err->fd : -1, POLLOUT);
    for (int i = 0; i < g->count; i++) {
        relay_stream *streams[2] = {&g->workers[i].out, &g->workers[i].err};
        for (int k = 0; k < 2; k++) {
            double left = yk__relay_redraw(streams[k], now);
            if (left >= 0 && left < wait)
                wait = left;
            n = add(w, n, wanted(streams[k]) ? streams[k]->fd : -1, POLLIN);
        }
    }
    n = add(w, n, g->link && !g->link->done ? g->link->fd : -1, POLLIN);
    if (over(w))
        w->notice = 0;
    if (w->notice > 0 && w->notice - now < wait)
        wait = w->notice - now;
    if (w->killing && !over(w) && wait > 0.05)
        wait = 0.05; /* a process that is being born while its parent is killed is found at the next look */
    poll(w->fds, n, wait > 0 ? (int)(wait < 1e6 ? wait * 1000 + 1 : -1) : 0);
    if (w->fds[1].revents) {
        pass_on(w, SIGKILL, true); /* the front was killed */
        kill_children();
        _exit(EXIT_SIGNAL + SIGKILL);
    }
    if (w->fds[0].revents) {
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
    yk__relay_sink_flush(g->out);
    yk__relay_sink_flush(g->err);
    if (w->notice > 0 && yk__now() >= w->notice && !w->killing)
        print_notice(w);
    if (over(w))
        return;
    if (w->stopping && yk__now() >= w->deadline) {
        if (w->killing)
            w->given_up = true;
        else
            kill_all(w);
    } else if (w->killing) {
        kill_all(w);
    }
}

void yk__supervisor_run(group *g)
{
    watch w = {.g = g};
    g->failed = NULL;
    g->interrupted = g->start_error = g->left = 0;
    g->stuck[0] = '\0';
    w.fds = calloc(5 + 2 * (size_t)g->count, sizeof(*w.fds));
    if (!w.fds) {
        g->start_error = ENOMEM;
        return;
    }
    for (int i = 0; i < g->count && !g->start_error; i++) {
        g->start_error = start_worker(g, &g->workers[i]);
        w.running += !g->start_error;
    }
    if (g->start_error)
        kill_all(&w);
    reap(&w); /* what ended before its turn to be watched */
    while (!over(&w) || (g->link && !g->link->done && !w.leaving))
        turn(&w);
    g->left = 0;
    for (int i = 0; i < g->count; i++) {
        worker *one = &g->workers[i];
        if (one->running)
            g->left++;
        yk__relay_finish(&one->out);
        yk__relay_finish(&one->err);
        relay_stream *streams[2] = {&one->out, &one->err};
        for (int k = 0; k < 2; k++) {
            if (streams[k]->fd >= 0)
                close(streams[k]->fd);
            streams[k]->fd = -1;
        }
    }
    yk__relay_sink_flush(g->out);
    yk__relay_sink_flush(g->err);
    free(w.fds);
}

int yk__supervisor_pause(int fd, double deadline)
{
    struct pollfd fds[3] = {{.fd = own.signals, .events = POLLIN}, {.fd = own.front}, {.fd = fd, .events = POLLIN}};
    double left = deadline - yk__now();
    poll(fds, 3, left <= 0 ? 0 : left < 1e6 ? (int)(left * 1000) + 1 : -1);
    if (fds[1].revents)
        _exit(EXIT_SIGNAL + SIGKILL); /* the front was killed */
    struct signalfd_siginfo info;
    while (read(own.signals, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGQUIT ||
            info.ssi_signo == SIGHUP)
            return (int)info.ssi_signo;
    }
    return 0;
}

void yk__supervisor_drain(relay_sink *out, relay_sink *err, double seconds)
{
    for (double end = yk__now() + seconds;;) {
        yk__relay_sink_flush(out);
        yk__relay_sink_flush(err);
        if ((!yk__relay_sink_waits(out) && !yk__relay_sink_waits(err)) || (seconds > 0 && yk__now() >= end))
            return;
        struct pollfd fds[4] = {{.fd = own.signals, .events = POLLIN},
                                {.fd = own.front},
                                {.fd = yk__relay_sink_waits(out) ? out->fd : -1, .events = POLLOUT},
                                {.fd = yk__relay_sink_waits(err) ? err->fd : -1, .events = POLLOUT}};
        poll(fds, 4, seconds > 0 ? 50 : -1);
        struct signalfd_siginfo info;
        while (read(own.signals, &info, sizeof(info)) == sizeof(info)) {
            if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGQUIT)
                return;
        }
        if (fds[1].revents)
            return;
    }
}
