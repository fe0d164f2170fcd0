/*
 * spawn.c - a function in several processes of this host, which find each other as under the launcher. Layer: comm.
 *
 * Each child has a record in memory that is shared with the parent: whether its function returned, with which error,
 * and when. Invariants: every child is waited for before yk_spawn returns, by its own pid, so other children of the
 * program are left alone; a child never returns from yk_spawn.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <yoke/device.h>

#include "comm/group.h"
#include "comm/region.h"
#include "launch/outcome.h"
#include "launch/rank_info.h"
#include "net/socket.h"

enum { MOST_PROCESSES = 4096 };
static const double default_grace = 10;

/* Written by the child. */
typedef struct outcome {
    atomic_bool returned;
    yk_status status;
    double at; /* when the function returned */
    int line;
    char file[128], message[1000];
} outcome;

typedef struct child {
    pid_t pid;
    int handle; /* can be read when it has ended; -1: the system has no such thing */
    bool running, asked, killed;
    bool unknown; /* its status went to nobody: SIGCHLD is ignored */
    int status;
} child;

typedef struct spawning {
    yk_spawn_fn fn;
    void *arg;
    int count, secret, port;
    int port_held; /* the claim of the port; -1: it was given */
    const char *address;
    char job[40];
    double grace;
    outcome *outcomes; /* shared */
    child *children;
    int failed; /* the child that decided; -1: none */
} spawning;

/* ---- the child -------------------------------------------------------------------------------------------------- */
static void set_variable(void *failed, const char *name, const char *value)
{
    *(bool *)failed |= setenv(name, value, 1) != 0;
}

/* False where memory is short: a process with half of its variables would be another rank. */
static bool set_environment(const spawning *s, int rank)
{
    char number[16];
    bool failed = false;
    yk__rank_variables_put(&(yk__rank_variables){.rank = rank,
                                                 .world_size = s->count,
                                                 .local_rank = rank,
                                                 .local_world_size = s->count,
                                                 .nodes = 1,
                                                 .port = s->port,
                                                 .address = s->address,
                                                 .job = s->job},
                           set_variable, &failed);
    snprintf(number, sizeof(number), "%d", s->secret);
    set_variable(&failed, "YOKE_JOB_SECRET_FD", number);
    unsetenv("YOKE_JOB_SECRET_FILE");
    return !failed;
}

/* Each gets its part of the cores, also where the parent has taken all of them for itself already. */
static void share_cores(const spawning *s)
{
    if (getenv("OMP_NUM_THREADS"))
        return;
    int share = yk__cores() / s->count > 0 ? yk__cores() / s->count : 1;
    char number[16];
    snprintf(number, sizeof(number), "%d", share);
    setenv("OMP_NUM_THREADS", number, 1);
    for (int i = 0; i < yk_device_count(YK_CPU); i++) {
        yk_device device = {.type = YK_CPU, .index = (int16_t)i};
        if (yk_get_num_threads(device) > share)
            (void)!yk_set_num_threads(device, share);
    }
    yk_clear_error();
}

static _Noreturn void run_child(const spawning *s, int rank, pid_t parent)
{
    outcome *o = &s->outcomes[rank];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* it died before the line above */
    signal(SIGTERM, SIG_DFL);
    fcntl(s->secret, F_SETFD, 0);
    yk_clear_error();
    yk_status status =
        set_environment(s, rank) ? YK_OK : yk__fail(YK_ERR_MEMORY, "there is no memory for the process's variables");
    if (!status) {
        share_cores(s);
        status = yk__region_renew_all();
    }
    if (!status)
        status = s->fn(rank, s->arg);
    if (!status)
        status = yk__error_code(); /* it set an error and returned success */
    const yk_error *error = yk_last_error();
    o->at = yk__now();
    o->status = status;
    if (status && error) {
        o->line = error->line;
        snprintf(o->file, sizeof(o->file), "%s", error->file ? error->file : "");
        snprintf(o->message, sizeof(o->message), "%s", error->message);
    }
    atomic_store(&o->returned, true);
    fflush(NULL);
    _exit(status ? 1 : 0);
}

/* ---- the parent ------------------------------------------------------------------------------------------------- */
static yk_status start(spawning *s)
{
    pid_t parent = getpid();
    fflush(NULL); /* what is buffered would be written by each of them */
    for (int rank = 0; rank < s->count; rank++) {
        child *c = &s->children[rank];
        pid_t pid = fork();
        if (pid == 0)
            run_child(s, rank, parent);
        if (pid < 0)
            return yk__fail_errno("spawn: process %d of %d cannot be started", rank + 1, s->count);
        c->pid = pid;
        c->running = true;
        c->handle = (int)syscall(SYS_pidfd_open, pid, 0);
    }
    return YK_OK;
}

static bool went_wrong(const spawning *s, int rank)
{
    const child *c = &s->children[rank];
    if (c->unknown)
        return !atomic_load(&s->outcomes[rank].returned) || s->outcomes[rank].status;
    return c->status != 0;
}

/* When it failed: what was killed did so before what returned in the same moment, which is the effect. */
static double failed_at(const spawning *s, int rank)
{
    return atomic_load(&s->outcomes[rank].returned) ? s->outcomes[rank].at : 0;
}

/* The child whose failure came first, among those that failed without having been asked to stop; -1: none. One that
 * has returned with an error and is about to end counts. */
static int first_failure(const spawning *s)
{
    int first = -1;
    for (int rank = 0; rank < s->count; rank++) {
        const child *c = &s->children[rank];
        bool failed = c->running ? atomic_load(&s->outcomes[rank].returned) && s->outcomes[rank].status
                                 : c->pid && !c->asked && went_wrong(s, rank);
        if (failed && (first < 0 || failed_at(s, rank) < failed_at(s, first)))
            first = rank;
    }
    return first;
}

/* Takes notice of children that have ended; how many still run. */
static int reap(spawning *s)
{
    int running = 0;
    for (int rank = 0; rank < s->count; rank++) {
        child *c = &s->children[rank];
        if (!c->running)
            continue;
        pid_t got;
        while ((got = waitpid(c->pid, &c->status, WNOHANG)) < 0 && errno == EINTR)
            ;
        c->running = got == 0;
        c->unknown = got < 0;
        running += c->running;
    }
    return running;
}

static void signal_all(spawning *s, int number)
{
    for (int rank = 0; rank < s->count; rank++) {
        child *c = &s->children[rank];
        if (!c->running)
            continue;
        c->asked = true;
        c->killed |= number == SIGKILL;
        kill(c->pid, number);
        kill(c->pid, SIGCONT);
    }
}

/* Until one of them ends, at most so many seconds. */
static void wait_any(const spawning *s, struct pollfd *fds, double seconds)
{
    nfds_t count = 0;
    bool blind = false;
    for (int rank = 0; rank < s->count; rank++) {
        const child *c = &s->children[rank];
        if (c->running && c->handle >= 0)
            fds[count++] = (struct pollfd){.fd = c->handle, .events = POLLIN};
        blind |= c->running && c->handle < 0;
    }
    if (blind && seconds > 0.01)
        seconds = 0.01;
    poll(fds, count, seconds < 1e6 ? (int)(seconds * 1000) + 1 : -1);
}

static void watch(spawning *s, struct pollfd *fds, bool stop)
{
    double deadline = 0;
    if (stop)
        signal_all(s, SIGKILL);
    while (reap(s)) {
        double now = yk__now();
        if (s->failed < 0 && !stop && (s->failed = first_failure(s)) >= 0) {
            signal_all(s, SIGTERM);
            deadline = now + s->grace;
        } else if (s->failed >= 0 && now >= deadline) {
            signal_all(s, SIGKILL);
            deadline = now + 1;
        }
        wait_any(s, fds, s->failed >= 0 ? deadline - now : 1e9);
    }
    if (s->failed < 0 && !stop)
        s->failed = first_failure(s);
}

static yk_status failure(const spawning *s)
{
    static _Thread_local char file[128]; /* the record keeps the pointer */
    const child *c = &s->children[s->failed];
    const outcome *o = &s->outcomes[s->failed];
    bool returned = atomic_load(&o->returned);
    if (returned && o->status && o->message[0]) {
        snprintf(file, sizeof(file), "%s", o->file);
        return yk__fail_at(o->status, file, o->line, "spawn: rank %d (pid %d): %s", s->failed, (int)c->pid, o->message);
    }
    if (returned && o->status)
        return yk__fail(YK_ERR_CALLBACK, "spawn: rank %d (pid %d) returned status %d without an error record",
                        s->failed, (int)c->pid, (int)o->status);
    if (c->unknown)
        return yk__fail(YK_ERR_CONNECTION,
                        "spawn: rank %d (pid %d) ended before its function did; how is not known, because this process "
                        "ignores SIGCHLD",
                        s->failed, (int)c->pid);
    if (WIFSIGNALED(c->status)) {
        char how[YK__ENDING_TEXT];
        yk__ending_describe(c->status, how);
        return yk__fail(YK_ERR_CONNECTION, "spawn: rank %d (pid %d) was %s (signal %d)", s->failed, (int)c->pid, how,
                        WTERMSIG(c->status));
    }
    char how[YK__ENDING_TEXT];
    return yk__fail(YK_ERR_CONNECTION, "spawn: rank %d (pid %d) ended with %s before its function did", s->failed,
                    (int)c->pid, yk__ending_describe(c->status, how));
}

/* A secret, a name and a port of their own. */
static yk_status make_job(spawning *s, int port)
{
    unsigned char bytes[40];
    s->secret = memfd_create("yoke-job-secret", MFD_CLOEXEC);
    if (s->secret < 0 || getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes) || write(s->secret, bytes, 32) != 32)
        return yk__fail_errno("spawn: no secret for the processes");
    for (int i = 0; i < 8; i++)
        snprintf(s->job + 2 * i, 3, "%02x", bytes[32 + i]);
    s->port = port ? port : yk__port_claim(&s->port_held);
    if (!s->port) {
        yk__error_prefix("spawn");
        return yk__error_code();
    }
    if (port)
        return YK_OK;
    yk__address address, bound;
    char why[YK__WHY_SIZE];
    if (!yk__resolve(s->address, s->port, yk__now() + 10, &address, 1, why))
        return yk__fail(YK_ERR_ARGUMENT, "spawn: master_addr: %s", why);
    int fd = yk__listen(&address, 1, &bound);
    if (fd < 0) {
        yk__error_prefix("spawn: no port for rank 0");
        return yk__error_code();
    }
    yk__socket_close(fd);
    return YK_OK;
}

static yk_status run(spawning *s, int port)
{
    struct pollfd *fds = yk__calloc((size_t)s->count, sizeof(*fds));
    s->children = yk__calloc((size_t)s->count, sizeof(*s->children));
    size_t bytes = (size_t)s->count * sizeof(*s->outcomes);
    s->outcomes = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    yk_status status = YK_OK;
    if (s->outcomes == MAP_FAILED)
        status = yk__fail_memory(bytes);
    else if (!fds || !s->children)
        status = YK_ERR_MEMORY;
    if (!status)
        status = make_job(s, port);
    if (!status) {
        status = start(s);
        watch(s, fds, status != YK_OK);
        if (!status && s->failed >= 0)
            status = failure(s);
    }
    for (int rank = 0; s->children && rank < s->count; rank++) {
        if (s->children[rank].pid && s->children[rank].handle >= 0)
            close(s->children[rank].handle);
    }
    if (s->secret >= 0)
        close(s->secret);
    if (s->port_held >= 0)
        close(s->port_held);
    if (s->outcomes != MAP_FAILED)
        munmap(s->outcomes, bytes);
    free(s->children);
    free(fds);
    return status;
}

yk_status yk_spawn(yk_spawn_fn fn, void *arg, int nprocs, const yk_spawn_options *options)
{
    YK__OWN_RECORD;
    yk_spawn_options o = options ? *options : (yk_spawn_options){0};
    if (!fn)
        return yk__fail(YK_ERR_ARGUMENT, "spawn: there is no function to call");
    if (nprocs < 1 || nprocs > MOST_PROCESSES)
        return yk__fail(YK_ERR_ARGUMENT, "spawn: %d processes, expected 1 to %d", nprocs, MOST_PROCESSES);
    if (!(o.grace >= 0) || o.master_port < 0 || o.master_port > 65535)
        return yk__fail(YK_ERR_ARGUMENT, "spawn: a grace of %g s and port %d, expected 0 or more and 0 to 65535",
                        o.grace, o.master_port);
    if (yk_is_initialized())
        return yk__fail(YK_ERR_STATE,
                        "spawn: this process is in a process group; yk_destroy_process_group comes first");
    spawning s = {.fn = fn,
                  .arg = arg,
                  .count = nprocs,
                  .secret = -1,
                  .port_held = -1,
                  .failed = -1,
                  .grace = o.grace > 0 ? o.grace : default_grace,
                  .address = o.master_addr ? o.master_addr : "127.0.0.1"};
    return run(&s, o.master_port);
}
