/*
 * carry_out.c - an operation whose turn it is, in the backend: tensors that are not contiguous are copied to memory
 * that is, and results back. Layer: comm.
 */
#include "comm/staging.h"
#include "comm/work.h"
#include "host/progress.h"

yk_status yk__call_stage(yk__call *call, yk_tensor **staged_in, yk_tensor **staged_out)
{
    *staged_in = *staged_out = NULL;
    if (call->in && !yk_is_contiguous(call->in)) {
        *staged_in = yk__raw_contiguous(call->in);
        if (!*staged_in)
            return yk__error_code();
    }
    if (call->out && !yk_is_contiguous(call->out)) {
        *staged_out = call->out == call->in ? yk_tensor_retain(*staged_in)
                                            : yk__tensor_new(call->out->ndim, call->out->shape, NULL,
                                                             (yk_dtype)call->out->dtype, yk__device_of(call->out));
        if (!*staged_out) {
            yk_tensor_release(*staged_in);
            *staged_in = NULL;
            return yk__error_code();
        }
    }
    call->op.in = *staged_in ? (*staged_in)->data : call->in ? call->in->data : NULL;
    call->op.out = *staged_out ? (*staged_out)->data : call->out ? call->out->data : NULL;
    return YK_OK;
}

yk_status yk__call_unstage(yk__call *call, yk_tensor *staged_out)
{
    if (!call->out)
        return YK_OK;
    yk__bump_version(call->out);
    return staged_out ? yk__raw_copy(call->out, staged_out) : YK_OK;
}

yk_status yk__call_unstage_queued(yk__group *g, yk__call *call, void *queued)
{
    if (!call->out)
        return YK_OK;
    yk__bump_version(call->out);
    if (!call->dense_out || !queued)
        return YK_OK;
    yk__queue before = yk__queue_begin(YK__QUEUE_COPY);
    yk_status status = g->backend->queue_behind(g->state, queued);
    if (!status)
        status = yk__raw_copy(call->out, call->dense_out);
    if (!status)
        status = g->backend->queue_until(g->state, queued);
    yk__queue_end(before);
    return status;
}

yk_status yk__work_queue(yk__group *g, yk__work *work)
{
    YK__EVENT_OF(YK__EVENT_KERNEL, yk__comm_kind_name(work->call.op.kind), work->call.op.number, 0, -1);
    void *queued = NULL;
    yk_status status = g->backend->queue_collective(g->state, &work->call.op, &queued);
    if (!status)
        status = yk__call_unstage_queued(g, &work->call, queued);
    pthread_mutex_lock(&g->lock);
    work->queued = queued;
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* Carries a collective of the host's memory out in the backend. Without the lock. */
static yk_status carry_out(yk__group *g, yk__call *call)
{
    YK__EVENT(YK__EVENT_COLLECTIVE, yk__comm_kind_name(call->op.kind));
    if (event_here.began)
        yk__work_event(&event_here, g, &call->op);
    yk_tensor *staged_in = NULL, *staged_out = NULL;
    yk_status status = YK_OK;
    if (call->staging)
        status = yk__staging_fetch(call->staging, g->timeout, &call->op);
    else
        status = yk__call_stage(call, &staged_in, &staged_out);
    if (status) { /* the others wait for this operation, which will not happen */
        const yk_error *error = yk_last_error();
        yk__progress_failed();
        g->backend->abort_group(g->state, status, error ? error->message : "out of memory");
    }
    yk_status (*collective)(void *, const yk__comm_op *) = g->backend->collective[call->op.kind];
    if (!status && !collective) /* on all ranks alike: the group is not broken */
        status = yk__fail(YK_ERR_UNSUPPORTED, "group '%s', rank %d: the %s backend has no %s; native has", g->name,
                          g->rank, g->backend->name, yk__comm_kind_name(call->op.kind));
    else if (!status)
        status = collective(g->state, &call->op);
    if (!status)
        status = call->staging ? yk__staging_deliver(call->staging, g->timeout, &call->op)
                               : yk__call_unstage(call, staged_out);
    yk_tensor_release(staged_in);
    yk_tensor_release(staged_out);
    if (status)
        event_here.event.sequence = YK__EVENT_FAILED;
    return status;
}

/* Ends the turn that this thread has, with the lock held, which is released: from there on the group may be gone, for
 * which yk__comm_drain waits. */
static void turn_end(yk__group *g)
{
    g->running = false;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

yk_status yk__call_run(yk__group *g, yk__call *call, uint64_t traced)
{
    yk_status status = carry_out(g, call);
    if (status)
        yk__trace_fail(g, traced);
    pthread_mutex_lock(&g->lock);
    if (!status)
        yk__trace_state_set(g, traced, YK__TRACE_DONE);
    turn_end(g);
    return status;
}

void yk__work_run(yk__group *g, yk__work *work)
{
    yk_status status = work->call.op.on_device ? yk__work_queue(g, work) : carry_out(g, &work->call);
    if (status)
        yk__trace_fail(g, work->traced);
    yk__work_fail(work, status);
    pthread_mutex_lock(&g->lock);
    if (work->queued) /* one that failed after the operation was queued, too: the watcher sees its end */
        yk__queued_add(g, work);
    else
        yk__work_finish(g, work);
    turn_end(g);
}

void *yk__work_thread(void *arg)
{
    yk__group *g = arg;
    yk__event_thread_name("group", g->name);
    pthread_mutex_lock(&g->lock);
    while (!g->stop || g->first) {
        if (!g->first || g->running || g->recording) {
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        yk__work *work = g->first;
        g->first = work->next;
        if (!g->first)
            g->last = NULL;
        g->running = true;
        yk__trace_state_set(g, work->traced, YK__TRACE_RUNNING);
        pthread_mutex_unlock(&g->lock);
        yk__work_run(g, work);
        yk__work_release(work);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}
