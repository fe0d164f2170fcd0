/*
 * nccl_wait.c - waiting for NCCL, and failures. Layer: comm/nccl.
 *
 * NCCL itself notices a rank that is gone over a network, and none that is stopped, or gone on the same host: its
 * kernels wait for ever. So a thread that waits for it, and one that watches over queued operations, looks at the
 * clock, at the communicator's own error, and at the control group: whether it is broken, and whether the processes of
 * the others run. Queued operations are watched in the order of their stream, so an operation's time begins when the
 * one before is done.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/standstill.h"
#include "comm/nccl/nccl_backend.h"

/* Seconds: for which a wait offers its core between looks, before it sleeps NAP; between looks at the other ranks; that
 * an operation whose rank has ended is given to be done, because what that rank had to send may have come; and that an
 * aborted stream is given. */
static const double OFFER = 1e-4, NAP = 5e-5, LOOK = 0.1, AFTER_END = 0.4, AFTER_ABORT = 1;

static const char *operation_describe(const nccl_group *g, const yk__comm_op *op, char *text, size_t size)
{
    char what[160], who[120];
    snprintf(text, size, "%s of %s", nccl_yoke->describe(op, what, sizeof(what)),
             nccl_yoke->native_rank_name(g->control, g->rank, who, sizeof(who)));
    return text;
}

yk_status nccl_failed(const nccl_group *g, const yk__comm_op *op, const char *call, ncclResult_t code)
{
    char text[300];
    const char *last = nccl.ncclGetLastError(NULL);
    return nccl_fail(code == ncclUnhandledCudaError ? YK_ERR_DEVICE : YK_ERR_CONNECTION,
                     "%s: %s: NCCL says: %s%s%.300s", operation_describe(g, op, text, sizeof(text)), call,
                     nccl.ncclGetErrorString(code), last && *last ? ": " : "", last ? last : "");
}

yk_status nccl_cuda_failed(const nccl_group *g, const yk__comm_op *op, const char *call, cudaError_t code)
{
    char text[300];
    yk_error error;
    yk_status status = yk__cuda_failed(g->device, code, call);
    nccl_base->error_take(&error);
    return nccl_fail(status, "%s: %.650s", operation_describe(g, op, text, sizeof(text)), error.message);
}

typedef __typeof__(((nccl_queued *)NULL)->waited) waiting;

/* All ranks have come to an operation, which they agreed on; to a replay perhaps not. */
static yk_status time_is_up(const nccl_group *g, const yk__comm_op *op, double seconds, const char *for_what)
{
    char who[120], text[300], more[200] = "";
    int ended, stopped;
    bool network = strcmp(for_what, NCCL_INITIALISATION) == 0;
    yk_status status = nccl_yoke->native_watch(g->control, 0, &ended, &stopped);
    if (status)
        return status;
    if (stopped >= 0)
        snprintf(more, sizeof(more), "; %s is stopped",
                 nccl_yoke->native_rank_name(g->control, stopped, who, sizeof(who)));
    else if (!op->recorded)
        snprintf(more, sizeof(more), ", though %s ranks have come%s", op->kind < YK__COMM_COLLECTIVES ? "all" : "both",
                 network ? "; NCCL_DEBUG=INFO says where it waits; NCCL_SOCKET_IFNAME chooses the network interface"
                         : "");
    return nccl_fail(YK_ERR_STALLED, "%s waited %g s for %s%s", operation_describe(g, op, text, sizeof(text)), seconds,
                     for_what, more);
}

/* The checks between two looks at an operation that is waited for: the clock, the control group, the processes.
 * `for_what`: its name in the error when time is up. */
static yk_status look_around(nccl_group *g, const yk__comm_op *op, waiting *w, double seconds, const char *for_what)
{
    double now = nccl_base->now();
    if (w->began == 0)
        w->began = w->looked = now;
    w->began += yk__standstill(&w->seen, now);
    yk_status status = nccl_yoke->native->check(g->control);
    if (!status && now - w->looked >= LOOK) {
        int ended, stopped;
        char who[120], text[300];
        w->looked = now;
        status = nccl_yoke->native_watch(g->control, 0, &ended, &stopped); /* the clock is looked at below */
        if (!status && ended >= 0) {
            w->ended_at = w->ended_at > 0 ? w->ended_at : now;
            if (now - w->ended_at >= AFTER_END)
                status = nccl_fail(YK_ERR_CONNECTION, "%s: %s ended while NCCL moved the bytes",
                                   operation_describe(g, op, text, sizeof(text)),
                                   nccl_yoke->native_rank_name(g->control, ended, who, sizeof(who)));
        }
    }
    return status || now - w->began < seconds ? status : time_is_up(g, op, seconds, for_what);
}

/* With the lock held. */
static ncclResult_t ask_line(const nccl_line *line, ncclResult_t *result)
{
    ncclResult_t asked = nccl.ncclCommGetAsyncError(line->comm, result);
    *result = asked ? asked : *result;
    return *result;
}

/* The state of the calls that are in progress on the communicator; on all of them, where `line` is NULL. */
static yk_status ask(nccl_group *g, const nccl_line *line, ncclResult_t *result)
{
    *result = ncclSuccess;
    pthread_mutex_lock(&g->lock);
    bool whole = line ? line->comm != NULL : !g->given_up;
    if (whole && line)
        ask_line(line, result);
    for (const nccl_line *l = g->lines; whole && !line && l && *result == ncclSuccess; l = l->next)
        if (l->comm)
            ask_line(l, result);
    pthread_mutex_unlock(&g->lock);
    return whole ? YK_OK : nccl_fail(YK_ERR_STATE, "group '%s': its communicator was given up", g->name);
}

yk_status nccl_failed_inside(nccl_group *g, const yk__comm_op *op, yk_status status)
{
    return op->captured ? nccl_broken(g, status) : status;
}

static yk_status settle(nccl_group *g, const nccl_line *line, const yk__comm_op *op, const char *call,
                        ncclResult_t code, double seconds)
{
    waiting w = {0};
    for (ncclResult_t result = code;;) {
        if (result == ncclSuccess)
            return YK_OK;
        if (result != ncclInProgress)
            return nccl_failed(g, op, call, result);
        yk_status status = look_around(g, op, &w, seconds, call);
        if (status)
            return status;
        if (nccl_base->now() - w.began < OFFER)
            sched_yield();
        else
            usleep((useconds_t)(NAP * 1e6));
        status = ask(g, line, &result);
        if (status)
            return status;
    }
}

yk_status nccl_settle(nccl_group *g, nccl_line *line, const yk__comm_op *op, const char *call, ncclResult_t code,
                      double seconds)
{
    yk_status status = settle(g, line, op, call, code, seconds);
    return status ? nccl_failed_inside(g, op, status) : YK_OK;
}

/* ---- queued operations ------------------------------------------------------------------------------------------- */
static void note_awaited(nccl_group *g, nccl_queued *q)
{
    pthread_mutex_lock(&g->lock);
    if (!q->awaited) {
        q->next = g->awaited;
        g->awaited = q;
    }
    q->awaited = true;
    pthread_mutex_unlock(&g->lock);
}

/* Kernels run after a replay without being asked to: they are on its stream. */
yk_status nccl_queue_replay(void *state, const yk__comm_op *op, void **queued)
{
    nccl_group *g = state;
    nccl_queued *q = *queued = nccl_base->allocate(1, sizeof(*q));
    if (!q)
        return nccl_base->error_code();
    q->op = *op;
    yk_status status = nccl_take_mark(g, &q->end);
    if (!status)
        status = nccl_queue_until(g, q);
    if (status) {
        nccl_queued_free(g, q);
        *queued = NULL;
        return status;
    }
    note_awaited(g, q);
    status = nccl_yoke->native->check(g->control);
    if (status) { /* the thread that broke the group may have looked before */
        yk_error error;
        nccl_base->error_take(&error);
        yk__cuda_note_failure(g->device, status, error.message);
    }
    return YK_OK;
}

yk_status nccl_queue_behind(void *state, void *queued)
{
    nccl_group *g = state;
    nccl_queued *q = queued;
    cudaStream_t own = NULL;
    int gpu = 0;
    if (!q->op.captured) /* else there is nothing to ask for */
        note_awaited(g, q);
    /* A thread that breaks the group looks at the list after that: one of the two sees the other. */
    yk_status status = nccl_yoke->native->check(g->control);
    if (!status)
        status = yk__cuda_stream(g->device, YK__QUEUES, &own, &gpu);
    cudaError_t code = status ? cudaSuccess : cudaStreamWaitEvent(own, q->end->event, 0);
    return code ? nccl_cuda_failed(g, &q->op, "cudaStreamWaitEvent", code) : status;
}

yk_status nccl_queue_until(void *state, void *queued)
{
    nccl_group *g = state;
    nccl_queued *q = queued;
    cudaStream_t own = NULL;
    int gpu = 0;
    yk_status status = yk__cuda_stream(g->device, YK__QUEUES, &own, &gpu);
    cudaError_t code = status ? cudaSuccess : cudaEventRecord(q->end->event, own);
    return code ? nccl_cuda_failed(g, &q->op, "cudaEventRecord", code) : status;
}

static yk_status queued_look(nccl_group *g, nccl_queued *q, bool *done)
{
    cudaError_t code = cudaSetDevice(g->gpu); /* the watcher's own is another */
    if (!code)
        code = cudaEventQuery(q->end->event);
    pthread_mutex_lock(&g->lock);
    bool given_up = g->given_up; /* then the event may have passed by that alone */
    pthread_mutex_unlock(&g->lock);
    *done = code == cudaSuccess && !given_up;
    if (*done)
        return YK_OK;
    if (code && code != cudaErrorNotReady)
        return nccl_cuda_failed(g, &q->op, "cudaEventQuery", code);
    ncclResult_t result = ncclSuccess;
    yk_status status = look_around(g, &q->op, &q->waited, g->timeout, "NCCL to move the bytes");
    if (!status)
        status = ask(g, q->line, &result);
    if (!status && result != ncclSuccess && result != ncclInProgress)
        status = nccl_failed(g, &q->op, "ncclCommGetAsyncError", result);
    return status;
}

yk_status nccl_queued_done(void *state, void *queued, bool *done)
{
    nccl_group *g = state;
    yk_status status = queued_look(g, queued, done);
    if (!status)
        return YK_OK;
    *done = true;
    return nccl_broken(g, status);
}

void nccl_queued_free(void *state, void *queued)
{
    nccl_group *g = state;
    nccl_queued *q = queued;
    if (!q)
        return;
    pthread_mutex_lock(&g->lock);
    nccl_queued **at = &g->awaited;
    while (*at && *at != q)
        at = &(*at)->next;
    if (*at)
        *at = q->next;
    pthread_mutex_unlock(&g->lock);
    if (q->room)
        nccl_yoke->storage_release(q->room);
    nccl_return_mark(g, q->end);
    free(q);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */
yk_status nccl_broken(nccl_group *g, yk_status status)
{
    const yk__comm_backend *native = nccl_yoke->native;
    yk_error error;
    nccl_base->error_take(&error);
    if (!native->check(g->control)) /* else it is the first cause, and this may be a consequence */
        native->abort_group(g->control, error.code ? error.code : status, error.message);
    nccl_base->error_take(&error);
    pthread_mutex_lock(&g->lock);
    bool cut = false; /* kernels go on after an operation that is not done */
    if (g->awaited)
        cudaSetDevice(g->gpu);
    for (const nccl_queued *q = g->awaited; q && !g->given_up; q = q->next)
        cut |= cudaEventQuery(q->end->event) != cudaSuccess;
    g->given_up = true;
    pthread_mutex_unlock(&g->lock);
    cudaGetLastError(); /* that an event has not passed is no failure, and kept as one */
    status = native->check(g->control);
    nccl_base->error_take(&error);
    if (cut)
        yk__cuda_note_failure(g->device, status, error.message);
    nccl_give_up(g);
    nccl_base->error_put(&error);
    return status;
}

/* Guards `done` and `left` of all groups' ends. */
static pthread_mutex_t ends_lock = PTHREAD_MUTEX_INITIALIZER;

static void *end_comm(void *arg)
{
    nccl_end *e = arg;
    cudaSetDevice(e->gpu); /* the thread's own would be the first GPU, where NCCL would make a context */
    e->call(e->comm);
    pthread_mutex_lock(&ends_lock);
    e->done = true;
    bool left = e->left;
    pthread_mutex_unlock(&ends_lock);
    if (left)
        free(e);
    return NULL;
}

void nccl_end_comm(nccl_group *g, ncclComm_t comm, ncclResult_t (*call)(ncclComm_t comm))
{
    nccl_end *e = nccl_base->allocate(1, sizeof(*e));
    if (e)
        *e = (nccl_end){.comm = comm, .gpu = g->gpu, .call = call};
    if (!e || pthread_create(&e->thread, NULL, end_comm, e)) {
        free(e);
        call(comm);
        return;
    }
    pthread_mutex_lock(&g->lock);
    e->next = g->ends;
    g->ends = e;
    pthread_mutex_unlock(&g->lock);
}

void nccl_wait_for_ends(nccl_group *g, double seconds)
{
    static const useconds_t nap = 200;
    for (double until = nccl_base->now() + seconds; g->ends;) {
        nccl_end *e = g->ends;
        pthread_mutex_lock(&ends_lock);
        bool done = e->done;
        e->left = !done && nccl_base->now() >= until;
        bool left = e->left;
        if (left)
            pthread_detach(e->thread);
        if (done || left)
            g->ends = e->next;
        pthread_mutex_unlock(&ends_lock);
        if (done)
            pthread_join(e->thread, NULL);
        if (done)
            free(e);
        else if (!left)
            usleep(nap);
    }
}

/* Takes one of the communicators out of the group, for the caller to end; false where none is left. */
static bool take_comm(nccl_group *g, ncclComm_t *comm)
{
    pthread_mutex_lock(&g->lock);
    g->given_up = true;
    nccl_line *line = g->lines;
    while (line && !line->comm)
        line = line->next;
    *comm = line ? line->comm : NULL;
    if (line)
        line->comm = NULL;
    pthread_mutex_unlock(&g->lock);
    return line != NULL;
}

/* True if one of the group's communicators is still being ended. */
static bool is_ending(nccl_group *g)
{
    bool any = false;
    pthread_mutex_lock(&g->lock);
    pthread_mutex_lock(&ends_lock);
    for (const nccl_end *e = g->ends; e && !any; e = e->next)
        any = !e->done;
    pthread_mutex_unlock(&ends_lock);
    pthread_mutex_unlock(&g->lock);
    return any;
}

/* Waits until the streams have done their work, or `until` has passed. The aborts come first: a call that was in
 * progress may be launched yet, which an abort waits for, and only then is its kernel something that the stream has. */
static void drain_lines(nccl_group *g, double until)
{
    static const useconds_t nap = 200;
    while (is_ending(g) && nccl_base->now() < until)
        usleep(nap);
    pthread_mutex_lock(&g->lock);
    const nccl_line *line = g->lines; /* new ones come before it */
    pthread_mutex_unlock(&g->lock);
    cudaSetDevice(g->gpu);
    for (; line; line = line->next) {
        nccl_mark *mark = NULL;
        bool recorded = !nccl_take_mark(g, &mark) && cudaEventRecord(mark->event, line->stream) == cudaSuccess;
        while (recorded && cudaEventQuery(mark->event) == cudaErrorNotReady && nccl_base->now() < until)
            usleep(nap);
        cudaGetLastError(); /* that an event has not passed is no failure, and kept as one */
        nccl_return_mark(g, mark);
    }
}

void nccl_give_up(nccl_group *g)
{
    yk_error before, unused;
    ncclComm_t comm = NULL;
    bool any = false;
    nccl_base->error_take(&before);
    for (; take_comm(g, &comm); any = true) /* all before any is waited for: one may wait for another */
        nccl_end_comm(g, comm, nccl.ncclCommAbort);
    if (any)
        drain_lines(g, nccl_base->now() + AFTER_ABORT);
    nccl_base->error_take(&unused);
    nccl_base->error_put(&before);
}
