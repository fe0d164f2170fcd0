/*
 * start.c - one process of a group, started: a program, or a function in a fork. Layer: launch.
 *
 * A program is started with vfork: the launcher's page tables are not copied. A function runs in a copy of this
 * process and writes to its stdout and stderr; signal mask, handlers and process group are left as they are, but for
 * SIGTERM, with which it is stopped.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/core.h"
#include "launch/guard.h"
#include "launch/listeners.h"
#include "launch/start.h"

/* ---- a program -------------------------------------------------------------------------------------------------- */

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
    if (getppid() != yk__launcher.supervisor)
        return; /* it died before the line above */
    /* The listener has neither number (listeners.c), so the secret does not overwrite it; the secret is done with
     * first. */
    if (dup2(s->in, 0) < 0 || dup2(s->out, 1) < 0 || dup2(s->err, 2) < 0 ||
        (s->secret >= 0 && (s->secret == SECRET_FD ? fcntl(SECRET_FD, F_SETFD, 0) : dup2(s->secret, SECRET_FD)) < 0) ||
        (s->w->listener > 0 && dup2(s->w->listener, LISTENER_FD) < 0)) {
        s->error = errno;
        return;
    }
    setrlimit(RLIMIT_NOFILE, &yk__launcher.files);
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++)
        sigaction(plain[i], &standard, NULL);
    sigprocmask(SIG_SETMASK, &yk__launcher.mask, NULL);
    s->exec = true;
    execve(s->w->path ? s->w->path : s->g->path, s->w->argv, s->w->envp);
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

/* The job's secret in a memory file of its own, that is, with a file position of its own: -1 and errno on failure. */
static int copy_of_secret(int secret)
{
    char bytes[4096];
    int copy = memfd_create("yoke-job-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ssize_t size = pread(secret, bytes, sizeof(bytes), 0);
    if (copy >= 0 && size >= 0 && write(copy, bytes, (size_t)size) == size && lseek(copy, 0, SEEK_SET) == 0 &&
        fcntl(copy, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) == 0)
        return copy;
    int why = errno;
    if (copy >= 0)
        close(copy);
    errno = why;
    return -1;
}

/* 0, or errno. */
static int start_program(group *g, worker *w)
{
    start s = {.g = g, .w = w, .secret = -1};
    s.in = w->input ? 0 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    s.out = pipe_of(&w->out);
    s.err = s.out < 0 ? -1 : pipe_of(&w->err);
    if (g->secret >= 0)
        s.secret = copy_of_secret(g->secret);
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
    g->start_path = w->path ? w->path : g->path;
    return s.error;
}

/* ---- a function ------------------------------------------------------------------------------------------------- */

static int start_function(group *g, worker *w, int index)
{
    pid_t parent = getpid();
    w->began = yk__now();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1); /* it died before the line above */
        signal(SIGTERM, SIG_DFL);
        _exit(g->function(g->argument, index));
    }
    if (pid < 0)
        return errno;
    w->pid = pid;
    w->running = true;
    w->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return 0;
}

int yk__worker_start(group *g, int index)
{
    worker *w = &g->workers[index];
    w->pid = 0;
    w->pidfd = -1;
    w->running = w->asked = w->killed = w->hung = false;
    w->remains = 0;
    w->status = 0;
    w->joins = w->joins_others ? yk__now() : 0;
    return g->function ? start_function(g, w, index) : start_program(g, w);
}
