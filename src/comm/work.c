/*
 * work.c - operations that are under way: their life, waiting for them, the program's handles. Layer: comm.
 */
#include <stdlib.h>

#include "base/log.h"
#include "comm/staging.h"
#include "comm/work.h"
#include "device/graph.h"
#include "host/progress.h"

enum { LET_GO = 30 /* seconds that a device may take to be done with memory it copies from */ };

void yk__call_clear(yk__call *call)
{
    free(call->counts);
    call->counts = NULL;
    yk_tensor_release(call->dense_in);
    yk_tensor_release(call->dense_out);
    call->dense_in = call->dense_out = NULL;
}

yk__work *yk__work_create(yk__group *g, yk__call *call)
{
    yk__work *work = yk__calloc(1, sizeof(*work));
    if (!work) {
        yk__call_clear(call);
        return NULL;
    }
    atomic_init(&work->references, 1);
    yk__group_retain(g);
    work->group = g;
    work->call = *call;
    yk__recorded_begin(work);
    yk_tensor_retain(call->in);
    yk_tensor_retain(call->out);
    return work;
}

/* A recorded operation that nobody waited for. Its memory goes back to the recording now, whose next kernel may take
 * it: that runs after the operation, as if it had been waited for. */
static void end_recorded(yk__work *work)
{
    const yk__group *g = work->group;
    yk_error before, unused;
    yk__error_take(&before);
    if (yk__graph_recording() && g->backend->queue_behind(g->state, work->queued))
        yk__error_take(&unused); /* of the recording, which fails by it, or of the group */
    yk__error_put(&before);
    g->backend->queued_free(g->state, work->queued);
}

yk__work *yk__work_retain(yk__work *work)
{
    atomic_fetch_add_explicit(&work->references, 1, memory_order_relaxed);
    return work;
}

void yk__work_release(yk__work *work)
{
    if (!work || atomic_fetch_sub_explicit(&work->references, 1, memory_order_acq_rel) != 1)
        return;
    if (work->queued)
        end_recorded(work);
    if (work->message)
        work->group->backend->forget(work->group->state, work->message);
    yk_tensor_release(work->call.in);
    yk_tensor_release(work->call.out);
    yk_tensor_release(work->staged_in);
    yk_tensor_release(work->staged_out);
    yk__staging_free(work->call.staging, work->group->timeout < LET_GO ? work->group->timeout : LET_GO);
    yk__call_clear(&work->call);
    yk__group_release(work->group);
    free(work);
}

static void handle_destroy(void *object)
{
    yk_work *handle = object;
    yk__work_release(handle->inside);
    yk__object_free(handle);
}

static const yk__type work_type = {"work", handle_destroy};

yk_work *yk__work_handle(yk__work *work)
{
    yk_work *handle = work ? yk__object_new(&work_type, sizeof(*handle)) : NULL;
    if (handle)
        handle->inside = work;
    else
        yk__work_release(work);
    return yk__scope_own(handle);
}

void yk__work_fail(yk__work *work, yk_status status)
{
    if (!status)
        return;
    yk__error_take(&work->error);
    if (work->error.code == YK_OK)
        work->error.code = status;
}

void yk__work_finish(yk__group *g, yk__work *work)
{
    work->done = true;
    yk__trace_state_set(g, work->traced, work->error.code ? YK__TRACE_FAILED : YK__TRACE_DONE);
    yk_tensor_release(work->call.in);
    yk_tensor_release(work->call.out);
    work->call.in = work->call.out = NULL;
    pthread_cond_broadcast(&g->changed);
}

static bool work_done(yk__work *work)
{
    if (yk__group_is_parents(work->group))
        return work->done; /* the lock may be held for ever by a thread that is not in this process */
    pthread_mutex_lock(&work->group->lock);
    bool done = work->done;
    pthread_mutex_unlock(&work->group->lock);
    return done;
}

static void wait_for(yk__work *work)
{
    yk__group *g = work->group;
    while (work->message && !work_done(work) && !yk__message_settle(g, work, 1.0))
        continue;
    pthread_mutex_lock(&g->lock);
    while (!work->done && !work->queued) /* a message, too: who found it on its queue may be another thread */
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

void yk__work_event(yk__event_open *open, const yk__group *g, const yk__comm_op *op)
{
    char text[YK__EVENT_TEXT];
    bool reduces = yk__comm_reduces(op->kind);
    snprintf(text, sizeof(text), "%s%s%s%s%.30s", op->kind == YK__COMM_BARRIER ? "" : yk_dtype_name(op->dtype),
             reduces ? " " : "", reduces ? yk__comm_reduction_name(op->reduction) : "",
             op->kind == YK__COMM_BARRIER ? "group " : ", group ", g->name);
    yk__event_set_text(open, text);
    open->event.number = op->number;
    open->event.count = op->kind == YK__COMM_ALL_TO_ALL ? 0 : op->count;
    open->event.peer = yk__is_message(op) || yk__comm_has_root(op->kind) ? op->peer : -1;
    open->event.own = (uint16_t)(g->rank < UINT16_MAX ? g->rank : UINT16_MAX);
    open->event.sequence = op->sequence;
    open->event.tag = op->tag;
}

static const char *wait_name(yk__comm_kind kind)
{
    static const char *const names[YK__COMM_KINDS] = {[YK__COMM_ALL_REDUCE] = "wait all_reduce",
                                                      [YK__COMM_REDUCE] = "wait reduce",
                                                      [YK__COMM_BROADCAST] = "wait broadcast",
                                                      [YK__COMM_ALL_GATHER] = "wait all_gather",
                                                      [YK__COMM_GATHER] = "wait gather",
                                                      [YK__COMM_SCATTER] = "wait scatter",
                                                      [YK__COMM_REDUCE_SCATTER] = "wait reduce_scatter",
                                                      [YK__COMM_ALL_TO_ALL] = "wait all_to_all",
                                                      [YK__COMM_BARRIER] = "wait barrier",
                                                      [YK__COMM_SEND] = "wait send",
                                                      [YK__COMM_RECV] = "wait recv"};
    return names[kind];
}

yk_status yk__work_wait(yk__work *work)
{
    if (!work_done(work) && yk__group_check_process("work_wait", work->group))
        return yk__error_code();
    YK__EVENT(YK__EVENT_WAIT, wait_name(work->call.op.kind));
    if (event_here.began)
        yk__work_event(&event_here, work->group, &work->call.op);
    YK__IN_PHASE(YK__PHASE_COMMUNICATION);
    wait_for(work);
    yk_status status = yk__group_is_parents(work->group) ? YK_OK : yk__queued_wait(work->group, work);
    if (!status && work->error.code)
        yk__error_put(&work->error);
    status = status ? status : work->error.code;
    if (status)
        event_here.event.sequence = YK__EVENT_FAILED;
    return status;
}

yk_status yk_work_wait(yk_work *work)
{
    YK__LIVE(work);
    if (!work)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "work_wait: the work is NULL");
    YK__OWN_RECORD;
    yk_object_retain(work); /* another thread's scope may end during the wait */
    yk_status status = yk__work_wait(work->inside);
    yk_object_release(work);
    return status;
}

bool yk_work_test(yk_work *work)
{
    YK__LIVE(work);
    YK__QUESTION;
    if (!work)
        return false;
    yk_object_retain(work);
    yk__work *inside = work->inside;
    if (!work_done(inside) && inside->message && !yk__group_is_parents(inside->group))
        yk__message_settle(inside->group, inside, 0);
    bool done = work_done(inside);
    yk_object_release(work);
    return done;
}

const yk_error *yk_work_error(yk_work *work)
{
    YK__LIVE(work);
    return work && yk_work_test(work) && work->inside->error.code ? &work->inside->error : NULL;
}

yk_work *yk_work_retain(yk_work *work)
{
    return yk_object_retain(work);
}

void yk_work_release(yk_work *work)
{
    yk_object_release(work);
}

void yk__comm_drain(yk__group *g)
{
    pthread_mutex_lock(&g->lock);
    while (g->first || g->running)
        pthread_cond_wait(&g->changed, &g->lock);
    while (g->pending) {
        yk__work *work = yk__work_retain(g->pending);
        pthread_mutex_unlock(&g->lock);
        wait_for(work);
        yk__work_release(work);
        pthread_mutex_lock(&g->lock);
    }
    while (g->queued_first || g->claimed)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

void yk__comm_stop(yk__group *g)
{
    pthread_mutex_lock(&g->lock);
    g->stop = true;
    bool has = g->has_worker, watched = g->has_watcher;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    if (has)
        pthread_join(g->worker, NULL);
    if (watched)
        pthread_join(g->watcher, NULL);
}
