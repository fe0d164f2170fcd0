/*
 * spawn.c - a function in several processes of this host, which find each other as under the launcher. Layer: comm.
 *
 * The launcher's supervisor starts and watches them (launch/supervisor.h); here is what they need in order to be ranks:
 * variables, a secret, a port, their part of the cores. Each has a record in memory that is shared with the parent,
 * with the error that its function returned. Invariants: every process has been waited for when the context is freed,
 * by its own pid, so other children of the program are left alone; a child never returns from the function that forked
 * it.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <yoke/device.h>

#include "comm/group.h"
#include "comm/region.h"
#include "host/progress.h"
#include "host/rank_info.h"
#include "launch/hang.h"
#include "launch/outcome.h"
#include "net/socket.h"

/* Written by the child. */
typedef struct child_record {
    atomic_int said; /* WORKER_DONE or WORKER_FAILED, once its function has returned */
    yk_status status;
    int line;
    char file[128], message[1000];
} child_record;

struct yk_spawn_context {
    yk__object head;
    yk_spawn_fn fn;
    void *arg;
    int secret, port;
    int port_held; /* the claim of the port; -1: it was given */
    char address[YK__HOST_SIZE], job[40];
    child_record *records; /* shared */
    group group;
};

/* ---- the child -------------------------------------------------------------------------------------------------- */
static void set_variable(void *failed, const char *name, const char *value)
{
    *(bool *)failed |= setenv(name, value, 1) != 0;
}

/* False where memory is short: a process with half of its variables would be another rank. */
static bool set_environment(const yk_spawn_context *s, int rank)
{
    char number[16];
    bool failed = false;
    yk__rank_variables_put(&(yk__rank_variables){.rank = rank,
                                                 .world_size = s->group.count,
                                                 .local_rank = rank,
                                                 .local_world_size = s->group.count,
                                                 .nodes = 1,
                                                 .port = s->port,
                                                 .address = s->address,
                                                 .job = s->job},
                           set_variable, &failed);
    snprintf(number, sizeof(number), "%d", s->secret);
    set_variable(&failed, "YOKE_JOB_SECRET_FD", number);
    unsetenv("YOKE_JOB_SECRET_FILE");
    unsetenv("YOKE_RANK_LISTENERS"); /* of the job that this process is a rank of */
    unsetenv("YOKE_STORE");
    return !failed;
}

/* Each gets its part of the cores, also where the parent has taken all of them for itself already. */
static void share_cores(const yk_spawn_context *s)
{
    const char *given = getenv("OMP_NUM_THREADS");
    if (given && *given)
        return;
    int share = yk__cores() / s->group.count > 0 ? yk__cores() / s->group.count : 1;
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

/* Runs the function in a fork of the program; returns its exit code. */
static int run_child(void *context, int rank)
{
    yk_spawn_context *s = context;
    child_record *record = &s->records[rank];
    fcntl(s->secret, F_SETFD, 0);
    yk__progress_adopt(yk__pages_at(yk__hang_pages(s->group.hang), rank));
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
    record->status = status;
    if (status)
        yk__progress_failed();
    if (status && error) {
        record->line = error->line;
        snprintf(record->file, sizeof(record->file), "%s", error->file ? error->file : "");
        snprintf(record->message, sizeof(record->message), "%s", error->message);
    }
    atomic_store(&record->said, status ? WORKER_FAILED : WORKER_DONE);
    fflush(NULL);
    return status ? 1 : 0;
}

/* ---- the parent ------------------------------------------------------------------------------------------------- */
static yk_status failure(const yk_spawn_context *s)
{
    static _Thread_local char file[128]; /* the error record keeps the pointer */
    const worker *w = s->group.failed;
    const child_record *record = &s->records[w->rank];
    int said = atomic_load(&record->said);
    if (said == WORKER_FAILED && record->message[0]) {
        snprintf(file, sizeof(file), "%s", record->file);
        return yk__fail_at(record->status, file, record->line, "spawn: rank %d (pid %d): %s", w->rank, (int)w->pid,
                           record->message);
    }
    if (said == WORKER_FAILED)
        return yk__fail(YK_ERR_CALLBACK, "spawn: rank %d (pid %d) returned status %d without an error record", w->rank,
                        (int)w->pid, (int)record->status);
    char host[64] = "", text[YK__OUTCOME_TEXT];
    gethostname(host, sizeof(host) - 1);
    yk__outcome end;
    yk__outcome_of_group(&end, &s->group, host);
    const char *hint = yk__outcome_hint(&end);
    yk__fail(YK_ERR_CONNECTION, "spawn: %s%s%s%s", yk__outcome_describe(&end, host, text),
             said == WORKER_DONE ? "" : "; its function had not returned", hint ? "; " : "", hint ? hint : "");
    yk__outcome_clear(&end);
    return YK_ERR_CONNECTION;
}

/* A secret, a name and a port of their own. */
static yk_status make_job(yk_spawn_context *s, int port)
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

static void context_destroy(void *object)
{
    yk_spawn_context *s = object;
    yk__supervisor_kill(&s->group);
    yk__supervisor_wait(&s->group, HUGE_VAL);
    yk__supervisor_finish(&s->group);
    yk__hang_watch_free(s->group.hang);
    if (s->secret >= 0)
        close(s->secret);
    if (s->port_held >= 0)
        close(s->port_held);
    if (s->records != MAP_FAILED)
        munmap(s->records, (size_t)s->group.count * sizeof(*s->records));
    free(s->group.workers);
    yk__object_free(s);
}

static const yk__type context_type = {"spawn context", context_destroy};

static yk_status children_start(yk_spawn_context *s, int port)
{
    group *g = &s->group;
    size_t bytes = (size_t)g->count * sizeof(*s->records);
    g->workers = yk__calloc((size_t)g->count, sizeof(*g->workers));
    g->hang = g->workers ? yk__hang_watch_create(g->count, 0, false) : NULL;
    if (!g->hang)
        return yk__error_code();
    s->records = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->records == MAP_FAILED)
        return yk__fail_memory(bytes);
    for (int rank = 0; rank < g->count; rank++) {
        worker *w = &g->workers[rank];
        w->rank = w->local_rank = rank;
        w->out.fd = w->out.log = w->err.fd = w->err.log = w->pidfd = -1;
        w->said = &s->records[rank].said;
        yk_status status = yk__pages_renew(
            yk__hang_pages(g->hang), rank,
            &(yk__page_owner){.rank = rank, .world_size = g->count, .local_rank = rank, .role_rank = rank});
        if (status)
            return status;
    }
    yk_status status = make_job(s, port);
    if (status || yk__supervisor_start(g))
        return status;
    int started = 0;
    while (started < g->count && g->workers[started].pid)
        started++;
    errno = g->start_error;
    return yk__fail_errno("spawn: process %d of %d cannot be started", started + 1, g->count);
}

/* With one reference; NULL and an error on failure. */
static yk_spawn_context *spawn_context_create(yk_spawn_fn fn, void *arg, int nprocs, const yk_spawn_options *options)
{
    yk_spawn_options o;
    if (YK__OPTIONS_TAKE("spawn", yk_spawn_options, options, &o))
        return NULL;
    const char *address = o.master_addr ? o.master_addr : "127.0.0.1";
    yk_status status = YK_OK;
    if (!fn)
        status = yk__fail(YK_ERR_ARGUMENT, "spawn: there is no function to call");
    else if (nprocs < 1 || nprocs > YK__MOST_LOCAL)
        status = yk__fail(YK_ERR_ARGUMENT, "spawn: %d processes, expected 1 to %d", nprocs, YK__MOST_LOCAL);
    else if (yk__check_number("spawn", "grace", o.grace, 0, YK__MOST_SECONDS) ||
             yk__check_integer("spawn", "master_port", o.master_port, 0, 65535))
        status = YK_ERR_ARGUMENT;
    else if (strlen(address) >= YK__HOST_SIZE)
        status = yk__fail(YK_ERR_ARGUMENT, "spawn: master_addr has %zu characters, at most %d are allowed",
                          strlen(address), YK__HOST_SIZE - 1);
    else if (yk_is_initialized())
        status =
            yk__fail(YK_ERR_STATE, "spawn: this process is in a process group; yk_destroy_process_group comes first");
    yk_spawn_context *s = status ? NULL : yk__object_new(&context_type, sizeof(*s));
    if (!s)
        return NULL;
    s->fn = fn;
    s->arg = arg;
    s->secret = s->port_held = -1;
    s->records = MAP_FAILED;
    s->group = (group){.count = nprocs, .function = run_child, .argument = s, .grace = o.grace};
    snprintf(s->address, sizeof(s->address), "%s", address);
    if (children_start(s, o.master_port)) {
        yk_object_release(s);
        return NULL;
    }
    return s;
}

static yk_status spawn_join(yk_spawn_context *s, double until, bool *joined)
{
    *joined = yk__supervisor_wait(&s->group, until);
    return *joined && s->group.failed ? failure(s) : YK_OK;
}

yk_status yk_spawn(yk_spawn_fn fn, void *arg, int nprocs, const yk_spawn_options *options)
{
    YK__OWN_RECORD;
    bool joined;
    yk_spawn_context *s = spawn_context_create(fn, arg, nprocs, options);
    yk_status status = s ? spawn_join(s, HUGE_VAL, &joined) : yk__error_code();
    yk_object_release(s);
    return status;
}

yk_spawn_context *yk_spawn_start(yk_spawn_fn fn, void *arg, int nprocs, const yk_spawn_options *options)
{
    YK__OWN_RECORD;
    return yk__scope_check("spawn_start") ? yk__scope_own(spawn_context_create(fn, arg, nprocs, options)) : NULL;
}

yk_status yk_spawn_context_join(yk_spawn_context *context, double timeout, bool *joined)
{
    YK__OWN_RECORD;
    YK__LIVE(context);
    bool all;
    if (!context)
        return yk__fail(YK_ERR_ARGUMENT, "spawn_context_join: context is NULL");
    bool bounded = !(timeout == HUGE_VAL);
    if (bounded && yk__check_number("spawn_context_join", "timeout", timeout, 0, YK__MOST_SECONDS))
        return YK_ERR_ARGUMENT;
    if (bounded && !joined)
        return yk__fail(YK_ERR_ARGUMENT, "spawn_context_join: with a time-out, `joined` is needed");
    return spawn_join(context, bounded ? yk__now() + timeout : HUGE_VAL, joined ? joined : &all);
}

int yk_spawn_context_pid(yk_spawn_context *context, int rank)
{
    YK__LIVE(context);
    return context && rank >= 0 && rank < context->group.count ? (int)context->group.workers[rank].pid : -1;
}

yk_spawn_context *yk_spawn_context_retain(yk_spawn_context *context)
{
    return yk_object_retain(context);
}

void yk_spawn_context_release(yk_spawn_context *context)
{
    yk_object_release(context);
}
