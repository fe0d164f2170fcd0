/*
 * submit.c - the one way in: how an operation comes to the backend, in its turn. Layer: comm.
 *
 * What a call's tensors need is its path, which is found once:
 *
 *   path      tensors of                              carried out by
 *   HOST      the host                                the calling thread, or the group's
 *   STAGED    a GPU, for a backend of host memory     the group's thread, after copies to pinned memory (staging.c)
 *   DEVICE    a GPU, for a backend that takes them    a queue of the device, after what the caller put on it (queued.c)
 *   RECORDED  the same, in a step that is recorded    each replay of the step (recorded.c)
 *
 * A collective gets its number under the lock and goes to the backend in the order of numbers, one at a time: on the
 * calling thread if the queue is empty and nobody is in the backend (the fast case: no other thread is involved), else
 * through the queue, which a thread of the group works off. Where the backend puts it on a queue of the tensors' device
 * it is out of its turn then, and not done. Messages are posted to the backend at once (posted.c).
 */
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "comm/staging.h"
#include "comm/work.h"
#include "device/graph.h"
#include "host/progress.h"

typedef enum path { HOST, STAGED, DEVICE, RECORDED } path;

static path path_of(const yk__group *g, const yk__call *call)
{
    if (!yk__staging_needed(call))
        return HOST;
    bool takes = yk__is_message(&call->op) ? g->backend->message_queued != NULL : g->backend->mark != NULL;
    return !takes ? STAGED : yk__graph_recording() ? RECORDED : DEVICE;
}

/* A failure that broke the group while this rank was elsewhere is dumped as if the rank had been there. */
static yk_status check_group(yk__group *g)
{
    yk_status status = g->backend->check(g->state);
    if (status)
        yk__trace_dump_failure(g);
    return status;
}

/* The tensor whose values other ranks have, too, or give. */
static void note_exchanged(const yk__call *call)
{
    yk_tensor *same = call->out ? call->out : call->op.kind == YK__COMM_BROADCAST ? call->in : NULL;
    if (same)
        yk__note_exchanged(same);
}

/* All that comes before the operation's turn. On failure the call is cleared. */
static yk_status call_begin(yk__group *g, yk__call *call, path *way)
{
    call->staging = NULL;
    yk_status status = check_group(g);
    if (!status) {
        note_exchanged(call);
        if (yk__is_message(&call->op))
            yk__messages_settle(g); /* their memory is free then */
        *way = path_of(g, call);
        if (*way == HOST || *way == STAGED)
            status = yk__recorded_forbid_host(g, call);
    }
    if (!status && *way == STAGED && !(call->staging = yk__staging_create(g, call)))
        status = yk__error_code();
    if (status)
        yk__call_clear(call);
    return status;
}

/* ---- the turn ---- */

/* Prepares such a call, by the thread that makes it: makes its memory contiguous, and marks the work that the device
 * has to do before. With the lock held. */
static yk_status mark_call(yk__group *g, yk__call *call)
{
    const char *what = yk__comm_kind_name(call->op.kind);
    yk_tensor *both[2] = {call->in, call->out};
    yk_device device = yk__device_of(call->in ? call->in : call->out);
    yk_status status = yk__same_device(what, 2, both);
    call->op.on_device = true;
    call->op.device = device.index;
    call->op.deterministic = yk__comm_reduces(call->op.kind) && yk_deterministic_algorithms_enabled();
    call->op.captured = yk__graph_recording();
    if (!status)
        status = yk__recorded_note(g, device, &call->op);
    if (!status)
        status = yk__call_stage(call, &call->dense_in, &call->dense_out);
    if (!status)
        status = yk__queued_prepare(g);
    return status ? status : g->backend->mark(g->state, what, call->op.device, &call->op.marked);
}

/* With the lock held: takes the turn, where nothing is ahead, and gives the operation its number. */
static bool turn_take(yk__group *g, yk__comm_op *op, uint64_t *traced)
{
    if (g->running || g->first || g->recording)
        return false;
    g->running = true;
    op->number = ++g->collectives;
    *traced = yk__trace_add(g, op, YK__TRACE_RUNNING);
    return true;
}

/* With the lock held: gives the work its turn, and the queue a reference. */
static yk_status enqueue(yk__group *g, yk__work *work)
{
    if (!g->has_worker) {
        int error = yk__thread_create_open(&g->worker, yk__work_thread, g);
        if (error)
            return yk__fail(YK_ERR_IO, "group '%s': no thread can be started: %s", g->name, strerror(error));
        g->has_worker = true;
    }
    work->call.op.number = ++g->collectives;
    work->traced = yk__trace_add(g, &work->call.op, YK__TRACE_QUEUED);
    yk__work_retain(work);
    if (g->last)
        g->last->next = work;
    else
        g->first = work;
    g->last = work;
    pthread_cond_broadcast(&g->changed);
    return YK_OK;
}

/* A collective of the host's memory, by the calling thread and without a work; false where something is ahead of it. */
static bool run_at_once(yk__group *g, yk__call *call, yk_status *status)
{
    uint64_t entry;
    pthread_mutex_lock(&g->lock);
    bool first = turn_take(g, &call->op, &entry);
    pthread_mutex_unlock(&g->lock);
    if (!first)
        return false;
    *status = yk__call_run(g, call, entry);
    yk__call_clear(call);
    return true;
}

/* ---- works ---- */

/* While a step is recorded: at once, by this thread, and nothing is sent. */
static yk_status record(yk__group *g, yk__work *work)
{
    pthread_mutex_lock(&g->lock);
    while (!g->recording && (g->running || g->first)) /* until earlier operations are on their queue */
        pthread_cond_wait(&g->changed, &g->lock);
    yk_status status = mark_call(g, &work->call);
    g->recording |= !status;
    work->done = true;
    pthread_mutex_unlock(&g->lock);
    return status ? status : yk__work_queue(g, work);
}

/* A caller that waits anyway runs an operation of the device itself where nothing is ahead; work that it queues next
 * runs after it. */
static yk_status collective_submit(yk__group *g, yk__work *work, path way, bool waits)
{
    pthread_mutex_lock(&g->lock);
    yk_status status = way == STAGED   ? yk__staging_queue(work->call.staging)
                       : way == DEVICE ? mark_call(g, &work->call)
                                       : YK_OK;
    bool own = !status && way == DEVICE && waits && turn_take(g, &work->call.op, &work->traced);
    if (!status && !own)
        status = enqueue(g, work);
    pthread_mutex_unlock(&g->lock);
    if (own)
        yk__work_run(g, work);
    return status;
}

static yk_status message_submit(yk__group *g, yk__work *work, path way)
{
    yk_status status = way == STAGED ? yk__staging_queue(work->call.staging)
                       : way == HOST ? yk__call_stage(&work->call, &work->staged_in, &work->staged_out)
                                     : YK_OK;
    if (!status && way == STAGED)
        status = yk__staging_fetch(work->call.staging, g->timeout, &work->call.op);
    pthread_mutex_lock(&g->lock);
    while (way == DEVICE && g->recording) /* its stream is another thread's until then */
        pthread_cond_wait(&g->changed, &g->lock);
    if (way == DEVICE)
        status = mark_call(g, &work->call);
    if (!status)
        status = yk__message_post(g, work);
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* A work for the call, which is under way; NULL and an error on failure. */
static yk__work *work_submit(yk__group *g, yk__call *call, path way, bool waits)
{
    yk__work *work = yk__work_create(g, call);
    if (!work) {
        yk__staging_free(call->staging, 0);
        return NULL;
    }
    yk_status status = way == RECORDED             ? record(g, work)
                       : yk__is_message(&call->op) ? message_submit(g, work, way)
                                                   : collective_submit(g, work, way, waits);
    if (!status)
        return work;
    yk__work_release(work);
    return NULL;
}

yk_status yk__comm_run(yk__group *g, yk__call *call)
{
    path way;
    YK__OWN_RECORD;
    YK__IN_PHASE(YK__PHASE_COMMUNICATION);
    yk_status status = call_begin(g, call, &way);
    if (status || (way == HOST && !yk__is_message(&call->op) && run_at_once(g, call, &status)))
        return status;
    yk__work *work = work_submit(g, call, way, true);
    status = work ? yk__work_wait(work) : yk__error_code();
    yk__work_release(work);
    return status;
}

yk_work *yk__comm_start(yk__group *g, yk__call *call)
{
    path way;
    YK__OWN_RECORD;
    return call_begin(g, call, &way) ? NULL : yk__work_handle(work_submit(g, call, way, false));
}
