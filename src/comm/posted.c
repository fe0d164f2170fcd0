/*
 * posted.c - messages that were handed to the backend and are not done. Layer: comm.
 *
 * Messages are posted at once, whatever else is under way; the backend carries them out, or puts them on a queue of the
 * device, and the first thread that asks finds that.
 *
 * Invariant, under the group's lock: `pending` lists the works of messages that are posted and not done; `claimed`
 * counts those that a thread has taken from there and not finished yet.
 */
#include <stdlib.h>

#include "comm/staging.h"
#include "comm/work.h"

/* With the lock held: takes the work out of those that are not done; true if it was among them. */
static bool unlist(yk__group *g, const yk__work *work)
{
    yk__work **at = &g->pending;
    while (*at && *at != work)
        at = &(*at)->next;
    if (!*at)
        return false;
    *at = work->next;
    g->claimed++;
    return true;
}

/* The backend has put the message on a queue of the device, which the first thread that asks finds. */
static void message_on_queue(yk__group *g, yk__work *work)
{
    yk_error before;
    yk__error_take(&before);
    pthread_mutex_lock(&g->lock);
    bool listed = unlist(g, work);
    pthread_mutex_unlock(&g->lock);
    if (listed) {
        void *queued = g->backend->message_queued(g->state, work->message);
        yk__work_fail(work, yk__call_unstage_queued(g, &work->call, queued));
        pthread_mutex_lock(&g->lock);
        work->queued = queued;
        if (queued)
            yk__queued_add(g, work);
        else
            yk__work_finish(g, work);
        g->claimed--;
        pthread_cond_broadcast(&g->changed);
        pthread_mutex_unlock(&g->lock);
        yk__work_release(work);
    }
    yk__error_put(&before);
}

/* Ends the work of a message with which the backend is done, by success or with this error; the first thread that asks
 * does so. */
static void end_message(yk__group *g, yk__work *work, yk_error error)
{
    pthread_mutex_lock(&g->lock);
    bool listed = unlist(g, work);
    pthread_mutex_unlock(&g->lock);
    if (!listed)
        return;
    if (!error.code && work->call.op.kind == YK__COMM_RECV &&
        (work->call.staging ? yk__staging_deliver(work->call.staging, g->timeout, &work->call.op)
                            : yk__call_unstage(&work->call, work->staged_out)))
        yk__error_take(&error);
    pthread_mutex_lock(&g->lock);
    work->error = error;
    yk__work_finish(g, work);
    g->claimed--;
    pthread_mutex_unlock(&g->lock);
    yk__work_release(work);
}

bool yk__message_settle(yk__group *g, yk__work *work, double seconds)
{
    yk_error before;
    yk__error_take(&before);
    bool done = false;
    yk_status status = g->backend->wait(g->state, work->message, seconds, &done);
    if (done && status)
        yk__trace_dump_failure(g);
    yk_error error = {0};
    if (status)
        yk__error_take(&error);
    if (done && !status && work->call.op.on_device)
        message_on_queue(g, work);
    else if (done)
        end_message(g, work, error);
    yk__error_put(&before);
    return done;
}

void yk__messages_settle(yk__group *g)
{
    for (;;) {
        yk__work *found = NULL;
        pthread_mutex_lock(&g->lock);
        for (yk__work *w = g->pending; w && !found; w = w->next) {
            bool done = false;
            yk_error before;
            yk__error_take(&before);
            yk_status status = g->backend->wait(g->state, w->message, 0, &done);
            (void)status; /* message_done asks again */
            yk_clear_error();
            yk__error_put(&before);
            if (done)
                found = yk__work_retain(w);
        }
        pthread_mutex_unlock(&g->lock);
        if (!found)
            return;
        yk__message_settle(g, found, 0);
        yk__work_release(found);
    }
}

/* With the lock held: the number of the message among those of its peer and tag, by which a trace finds the other end.
 * 0 where that is not known: another peer or tag has the same place in the table, or there is no memory for it. */
static uint32_t message_number(yk__group *g, const yk__comm_op *op)
{
    if (!g->message_counts && !(g->message_counts = calloc(YK__MESSAGE_COUNTS, sizeof(*g->message_counts))))
        return 0;
    bool receives = op->kind == YK__COMM_RECV;
    uint32_t hash = ((uint32_t)op->peer * 2 + receives) * 2654435761u + (uint32_t)op->tag * 40503u;
    yk__message_count *c = &g->message_counts[(hash ^ hash >> 16) % YK__MESSAGE_COUNTS];
    bool same = c->peer == op->peer && c->tag == op->tag && c->receives == receives;
    if (!c->count)
        *c = (yk__message_count){.peer = op->peer, .tag = op->tag, .receives = receives};
    else if (!same)
        c->shared = true;
    c->count++;
    return c->shared || c->count == UINT32_MAX ? 0 : c->count;
}

yk_status yk__message_post(yk__group *g, yk__work *work)
{
    work->call.op.number = ++g->messages;
    work->call.op.sequence = message_number(g, &work->call.op);
    YK__EVENT(YK__EVENT_MESSAGE, yk__comm_kind_name(work->call.op.kind));
    if (event_here.began)
        yk__work_event(&event_here, g, &work->call.op);
    work->traced = yk__trace_add(g, &work->call.op, YK__TRACE_RUNNING);
    yk_status status = g->backend->post(g->state, &work->call.op, &work->message);
    if (status) {
        yk__trace_state_set(g, work->traced, YK__TRACE_FAILED);
        return status;
    }
    yk__work_retain(work);
    work->next = g->pending;
    g->pending = work;
    return YK_OK;
}
