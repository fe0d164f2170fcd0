/*
 * work.c - operations in their turn: on the caller when nothing is ahead of them, else on the group's thread.
 * Layer: comm.
 *
 * A collective gets its number under the lock and goes to the backend in the order of numbers, one at a time: on the
 * calling thread if the queue is empty and nobody is in the backend (the fast case: no other thread is involved), else
 * through the queue, which a thread of the group works off. Where the backend puts it on a queue of the tensors' device
 * it is out of its turn then, and not done: see queued.c. Messages are posted to the backend at once, and where it puts
 * them on a queue of the device they are that once somebody looks.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/thread.h"
#include "comm/staging.h"
#include "device/graph.h"
#include "host/progress.h"

enum { LET_GO = 30 /* seconds that a device may take to be done with memory it copies from */ };

static yk_status wait_done(yk__work *work);

static bool is_message(const yk__comm_op *op)
{
    return op->kind >= YK__COMM_COLLECTIVES;
}

static void call_clear(yk__call *call)
{
    free(call->counts);
    call->counts = NULL;
    yk_tensor_release(call->dense_in);
    yk_tensor_release(call->dense_out);
    call->dense_in = call->dense_out = NULL;
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
    call_clear(&work->call);
    yk__group_release(work->group);
    free(work);
}

static yk__work *work_create(yk__group *g, yk__call *call)
{
    yk__work *work = yk__calloc(1, sizeof(*work));
    if (!work) {
        call_clear(call);
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

/* Contiguous memory in place of tensors that are not. An output that is read too (all_reduce) is one with the input. */
static yk_status stage(yk__call *call, yk_tensor **staged_in, yk_tensor **staged_out)
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

static yk_status unstage(yk__call *call, yk_tensor *staged_out)
{
    if (!call->out)
        return YK_OK;
    yk__bump_version(call->out);
    return staged_out ? yk__raw_copy(call->out, staged_out) : YK_OK;
}

/* True if the backend takes the call's tensors where they are, on a GPU. */
static bool is_on_device(const yk__group *g, const yk__call *call)
{
    return (is_message(&call->op) ? g->backend->message_queued != NULL : g->backend->mark != NULL) &&
           yk__staging_needed(call);
}

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
        status = stage(call, &call->dense_in, &call->dense_out);
    if (!status)
        status = yk__queued_prepare(g);
    return status ? status : g->backend->mark(g->state, what, call->op.device, &call->op.marked);
}

/* Queues copies of an operation's results to where they belong, after the operation. */
static yk_status unstage_queued(yk__group *g, yk__call *call, void *queued)
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

/* Queues the operation in the backend, without the lock. */
static yk_status queue_on_device(yk__group *g, yk__work *work)
{
    void *queued = NULL;
    yk_status status = g->backend->queue_collective(g->state, &work->call.op, &queued);
    if (!status)
        status = unstage_queued(g, &work->call, queued);
    pthread_mutex_lock(&g->lock);
    work->queued = queued;
    pthread_mutex_unlock(&g->lock);
    return status;
}

/* Carries the operation out in the backend, without the lock. */
static yk_status carry_out(yk__group *g, yk__call *call)
{
    yk_tensor *staged_in = NULL, *staged_out = NULL;
    yk_status status = YK_OK;
    if (call->staging)
        status = yk__staging_fetch(call->staging, g->timeout, &call->op);
    else
        status = stage(call, &staged_in, &staged_out);
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
        status = call->staging ? yk__staging_deliver(call->staging, g->timeout, &call->op) : unstage(call, staged_out);
    yk_tensor_release(staged_in);
    yk_tensor_release(staged_out);
    return status;
}

void yk__work_fail(yk__work *work, yk_status status)
{
    if (!status)
        return;
    yk__error_take(&work->error);
    if (work->error.code == YK_OK)
        work->error.code = status;
}

void yk__work_dump_failure(yk__group *g, yk__work *work)
{
    pthread_mutex_lock(&g->lock);
    yk__trace_state_set(g, work->traced, YK__TRACE_FAILED);
    pthread_mutex_unlock(&g->lock);
    yk__trace_dump_failure(g);
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

/* Runs a collective whose turn it is; returns with the lock held, and the operation done or on its device's queue. */
static void run_work(yk__group *g, yk__work *work)
{
    yk_status status = work->call.op.on_device ? queue_on_device(g, work) : carry_out(g, &work->call);
    if (status)
        yk__work_dump_failure(g, work);
    yk__work_fail(work, status);
    pthread_mutex_lock(&g->lock);
    g->running = false; /* and from here on the group may be gone: yk__comm_drain waits for this */
    if (work->queued) {
        yk__queued_add(g, work); /* one that failed after the operation was queued, too: the watcher sees its end */
    } else {
        yk__work_finish(g, work);
    }
}

static void *worker(void *arg)
{
    yk__group *g = arg;
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
        run_work(g, work);
        pthread_mutex_unlock(&g->lock);
        yk__work_release(work);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* With the lock held: gives the work its turn, and the queue a reference. */
static yk_status enqueue(yk__group *g, yk__work *work)
{
    if (!g->has_worker) {
        int error = yk__thread_create_open(&g->worker, worker, g);
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

/* Begins an operation while a step is recorded: at once, by this thread, and nothing is sent. */
static yk__work *record_on_device(yk__group *g, yk__call *call)
{
    yk__work *work = work_create(g, call);
    if (!work)
        return NULL;
    pthread_mutex_lock(&g->lock);
    while (!g->recording && (g->running || g->first)) /* until earlier operations are on their queue */
        pthread_cond_wait(&g->changed, &g->lock);
    yk_status status = mark_call(g, &work->call);
    g->recording |= !status;
    work->done = true;
    pthread_mutex_unlock(&g->lock);
    if (!status)
        status = queue_on_device(g, work);
    if (!status)
        return work;
    yk__work_release(work);
    return NULL;
}

/* A work for the call, queued on the tensors' device where it has one, and in the group; NULL and an error on failure.
 */
static yk__work *queue_work(yk__group *g, yk__call *call)
{
    bool on_device = is_on_device(g, call);
    call->staging = NULL;
    if (on_device && yk__graph_recording())
        return record_on_device(g, call);
    if (!on_device && yk__recorded_forbid_host(g, call)) {
        call_clear(call);
        return NULL;
    }
    if (!on_device && yk__staging_needed(call) && !(call->staging = yk__staging_create(g, call))) {
        call_clear(call);
        return NULL;
    }
    yk__work *work = work_create(g, call);
    if (!work) {
        yk__staging_free(call->staging, 0);
        return NULL;
    }
    pthread_mutex_lock(&g->lock);
    yk_status status = call->staging ? yk__staging_queue(call->staging) : YK_OK;
    if (on_device)
        status = mark_call(g, &work->call);
    if (!status)
        status = enqueue(g, work);
    pthread_mutex_unlock(&g->lock);
    if (status) {
        yk__work_release(work);
        return NULL;
    }
    return work;
}

/* Runs an operation by the calling thread where no other waits; work that the thread queues next runs after it. */
static yk_status run_on_device(yk__group *g, yk__call *call)
{
    yk__work *work = work_create(g, call);
    if (!work)
        return yk__error_code();
    pthread_mutex_lock(&g->lock);
    yk_status status = mark_call(g, &work->call);
    if (!status && !g->running && !g->first && !g->recording) {
        g->running = true;
        work->call.op.number = ++g->collectives;
        work->traced = yk__trace_add(g, &work->call.op, YK__TRACE_RUNNING);
        pthread_mutex_unlock(&g->lock);
        run_work(g, work);
    } else if (!status) {
        status = enqueue(g, work);
    }
    pthread_mutex_unlock(&g->lock);
    if (!status)
        status = wait_done(work);
    yk__work_release(work);
    return status;
}

static yk_status run_collective(yk__group *g, yk__call *call)
{
    YK__IN_PHASE(YK__PHASE_COMMUNICATION);
    bool on_device = is_on_device(g, call);
    call->staging = NULL;
    if (on_device && !yk__graph_recording())
        return run_on_device(g, call);
    if (yk__staging_needed(call)) {
        yk__work *work = queue_work(g, call);
        yk_status status = work ? wait_done(work) : yk__error_code();
        yk__work_release(work);
        return status;
    }
    if (yk__recorded_forbid_host(g, call)) {
        call_clear(call);
        return yk__error_code();
    }
    pthread_mutex_lock(&g->lock);
    if (!g->running && !g->first && !g->recording) {
        g->running = true;
        call->op.number = ++g->collectives;
        uint64_t entry = yk__trace_add(g, &call->op, YK__TRACE_RUNNING);
        pthread_mutex_unlock(&g->lock);
        yk_status status = carry_out(g, call);
        pthread_mutex_lock(&g->lock);
        yk__trace_state_set(g, entry, status ? YK__TRACE_FAILED : YK__TRACE_DONE);
        if (status) {
            pthread_mutex_unlock(&g->lock);
            yk__trace_dump_failure(g);
            pthread_mutex_lock(&g->lock);
        }
        g->running = false; /* and from here on the group may be gone: yk__comm_drain waits for this */
        pthread_cond_broadcast(&g->changed);
        pthread_mutex_unlock(&g->lock);
        call_clear(call);
        return status;
    }
    yk__work *work = work_create(g, call);
    yk_status status = work ? enqueue(g, work) : yk__error_code();
    pthread_mutex_unlock(&g->lock);
    if (!status)
        status = wait_done(work);
    yk__work_release(work);
    return status;
}

void yk__queued_replay(yk__group *g, const yk__comm_op *op)
{
    yk_error before;
    yk__error_take(&before);
    yk__call call = {.op = *op};
    void *queued = NULL;
    yk__work *work = work_create(g, &call);
    yk_status status = work ? g->backend->queue_replay(g->state, op, &queued) : YK_ERR_MEMORY;
    pthread_mutex_lock(&g->lock);
    if (!status) {
        work->queued = queued;
        work->traced = yk__trace_add(g, op, YK__TRACE_RUNNING);
        yk__queued_add(g, work);
    }
    pthread_mutex_unlock(&g->lock);
    if (status) /* the device itself has failed, or there is no memory */
        yk__log(YK_LOG_WARN, "group '%s', rank %d: nobody watches over replay #%llu of a recorded step", g->name,
                g->rank, (unsigned long long)op->number);
    yk__work_release(work);
    yk_clear_error();
    yk__error_put(&before);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */
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
        yk__work_fail(work, unstage_queued(g, &work->call, queued));
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
                            : unstage(&work->call, work->staged_out)))
        yk__error_take(&error);
    pthread_mutex_lock(&g->lock);
    work->error = error;
    yk__work_finish(g, work);
    g->claimed--;
    pthread_mutex_unlock(&g->lock);
    yk__work_release(work);
}

/* Asks the backend for up to `seconds`; true if the message is done, for which it finishes the work, once. */
static bool message_done(yk__group *g, yk__work *work, double seconds)
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

/* Finishes messages that the backend is done with, whoever began them. */
static void reap(yk__group *g)
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
        message_done(g, found, 0);
        yk__work_release(found);
    }
}

/* With the lock held. */
static yk_status post(yk__group *g, yk__work *work)
{
    work->call.op.number = ++g->messages;
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

static yk__work *start_on_device(yk__group *g, yk__call *call)
{
    yk__work *work = work_create(g, call);
    if (!work)
        return NULL;
    pthread_mutex_lock(&g->lock);
    while (g->recording) /* its stream is another thread's until then */
        pthread_cond_wait(&g->changed, &g->lock);
    yk_status status = mark_call(g, &work->call);
    if (!status)
        status = post(g, work);
    pthread_mutex_unlock(&g->lock);
    if (!status)
        return work;
    yk__work_release(work);
    return NULL;
}

static yk__work *start_message(yk__group *g, yk__call *call)
{
    reap(g);
    call->staging = NULL;
    if (is_on_device(g, call))
        return yk__graph_recording() ? record_on_device(g, call) : start_on_device(g, call);
    if (yk__recorded_forbid_host(g, call))
        return NULL;
    if (yk__staging_needed(call) && !(call->staging = yk__staging_create(g, call)))
        return NULL;
    yk__work *work = work_create(g, call);
    if (!work) {
        yk__staging_free(call->staging, 0);
        return NULL;
    }
    yk__staging *staging = work->call.staging;
    yk_status status = staging ? yk__staging_queue(staging) : stage(&work->call, &work->staged_in, &work->staged_out);
    if (!status && staging)
        status = yk__staging_fetch(staging, g->timeout, &work->call.op);
    pthread_mutex_lock(&g->lock);
    if (!status)
        status = post(g, work);
    pthread_mutex_unlock(&g->lock);
    if (!status)
        return work;
    yk__work_release(work);
    return NULL;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */
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

yk_status yk__comm_run(yk__group *g, yk__call *call)
{
    YK__OWN_RECORD;
    if (check_group(g)) {
        call_clear(call);
        return yk__error_code();
    }
    note_exchanged(call);
    if (!is_message(&call->op))
        return run_collective(g, call);
    yk__work *work = start_message(g, call);
    yk_status status = work ? wait_done(work) : yk__error_code();
    yk__work_release(work);
    return status;
}

static void handle_destroy(void *object)
{
    yk_work *handle = object;
    yk__work_release(handle->inside);
    yk__object_free(handle);
}

static const yk__type work_type = {"work", handle_destroy};

/* A handle for the caller's scope; takes over the reference, also where it fails. */
static yk_work *handle_new(yk__work *work)
{
    yk_work *handle = work ? yk__object_new(&work_type, sizeof(*handle)) : NULL;
    if (handle)
        handle->inside = work;
    else
        yk__work_release(work);
    return yk__scope_own(handle);
}

yk_work *yk__comm_start(yk__group *g, yk__call *call)
{
    YK__OWN_RECORD;
    if (check_group(g)) {
        call_clear(call);
        return NULL;
    }
    note_exchanged(call);
    return handle_new(is_message(&call->op) ? start_message(g, call) : queue_work(g, call));
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
    while (work->message && !work_done(work) && !message_done(g, work, 1.0))
        continue;
    pthread_mutex_lock(&g->lock);
    while (!work->done && !work->queued) /* a message, too: who found it on its queue may be another thread */
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static yk_status wait_done(yk__work *work)
{
    if (!work_done(work) && yk__group_check_process("work_wait", work->group))
        return yk__error_code();
    YK__IN_PHASE(YK__PHASE_COMMUNICATION);
    wait_for(work);
    yk_status status = yk__group_is_parents(work->group) ? YK_OK : yk__queued_wait(work->group, work);
    if (!status && work->error.code)
        yk__error_put(&work->error);
    return status ? status : work->error.code;
}

yk_status yk_work_wait(yk_work *work)
{
    YK__LIVE(work);
    if (!work)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "work_wait: the work is NULL");
    YK__OWN_RECORD;
    yk_object_retain(work); /* another thread's scope may end during the wait */
    yk_status status = wait_done(work->inside);
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
        message_done(inside->group, inside, 0);
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
