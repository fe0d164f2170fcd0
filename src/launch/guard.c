/*
 * guard.c - the two processes of a launcher, its signals, and killing all that was started. Layer: launch.
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
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/process.h"
#include "launch/announcement.h"
#include "launch/exit_codes.h"
#include "launch/guard.h"
#include "launch/job_mapping.h"

yk__guard yk__launcher = {.signals = -1, .front = -1};

/* ---- killing ---------------------------------------------------------------------------------------------------- */

/* Kills every child until none is left, for two seconds at most. */
void yk__kill_children(void)
{
    for (double end = yk__now() + 2; yk__now() < end; poll(NULL, 0, 1)) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (pid < 0 && errno == ECHILD)
            return;
        yk__signal_children(SIGKILL);
    }
}

/* ---- front and supervisor --------------------------------------------------------------------------------------- */

static const int passed_on[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};
enum { PASSED_ON = sizeof(passed_on) / sizeof(*passed_on) };

static void block_signals(void)
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
    sigprocmask(SIG_BLOCK, &set, &yk__launcher.mask);
    yk__launcher.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The front: passes signals on until the supervisor ends. */
static int guard(pid_t supervisor)
{
    for (;;) {
        struct pollfd ready = {.fd = yk__launcher.signals, .events = POLLIN};
        poll(&ready, 1, -1);
        struct signalfd_siginfo info;
        while (read(yk__launcher.signals, &info, sizeof(info)) == sizeof(info)) {
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
                yk__kill_children();
                return WEXITSTATUS(status);
            }
            yk__kill_children();
            fprintf(stderr, "yoke run: its supervisor (pid %d) was killed by signal %d; the processes were killed\n",
                    (int)supervisor, WTERMSIG(status));
            return EXIT_SIGNAL + WTERMSIG(status);
        }
    }
}

int yk__supervise(int (*work)(void *arg), void *arg)
{
    int ends[2];
    block_signals();
    if (yk__launcher.signals < 0 || pipe2(ends, O_CLOEXEC) || prctl(PR_SET_CHILD_SUBREAPER, 1)) {
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
    yk__launcher.front = ends[0];
    yk__launcher.supervisor = getpid();
    setpgid(0, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTOU, SIG_IGN); /* it writes to the terminal from the background */
    getrlimit(RLIMIT_NOFILE, &yk__launcher.files);
    struct rlimit most = {yk__launcher.files.rlim_max, yk__launcher.files.rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
    int code = work(arg);
    fflush(NULL);
    _exit(code);
}

_Noreturn void yk__launcher_end(void)
{
    yk__announce_end();
    yk__job_mapping_end();
    yk__kill_children();
    _exit(EXIT_SIGNAL + SIGKILL);
}

/* ---- waiting without a group ------------------------------------------------------------------------------------ */

int yk__supervisor_pause(int fd, double deadline)
{
    struct pollfd fds[3] = {
        {.fd = yk__launcher.signals, .events = POLLIN}, {.fd = yk__launcher.front}, {.fd = fd, .events = POLLIN}};
    double left = deadline - yk__now();
    poll(fds, 3, left <= 0 ? 0 : left < 1e6 ? (int)(left * 1000) + 1 : -1);
    if (fds[1].revents)
        _exit(EXIT_SIGNAL + SIGKILL); /* the front was killed */
    struct signalfd_siginfo info;
    while (read(yk__launcher.signals, &info, sizeof(info)) == sizeof(info)) {
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
        struct pollfd fds[4] = {{.fd = yk__launcher.signals, .events = POLLIN},
                                {.fd = yk__launcher.front},
                                {.fd = yk__relay_sink_waits(out) ? out->fd : -1, .events = POLLOUT},
                                {.fd = yk__relay_sink_waits(err) ? err->fd : -1, .events = POLLOUT}};
        poll(fds, 4, seconds > 0 ? 50 : -1);
        struct signalfd_siginfo info;
        while (read(yk__launcher.signals, &info, sizeof(info)) == sizeof(info)) {
            if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGQUIT)
                return;
        }
        if (fds[1].revents)
            return;
    }
}
