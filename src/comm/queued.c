/*
 * queued.c - collectives that a device carries out after their call: waiting for them, and watching over them.
 * Layer: comm.
 *
 * Where the backend puts an operation on a queue of the device, the host does not wait for it: work that its thread
 * queues after yk_work_wait runs after it. A thread of the group, the watcher, asks for each until it is done, and ends
 * the work: for collectives in the order in which they were queued, and likewise for the messages of each direction
 * with each rank, which have streams of their own. Time-outs and ranks that are gone are seen there.
 *
 *   thread that calls         group's thread                device's queues          watcher
 *   -----------------------   ---------------------------   ----------------------   --------------------------
 *   mark, number ---------->  ranks agree, operation on
 *                             the queue ----------------->  after the mark
 *   wait: until it is there,
 *   then orders its queue  ---------------------------->    kernels after it
 *                                                           done ----------------->  ends the work
 *
 * Tensors are held until the work is done, or until the queue that they were allocated on waits for the operation.
 */
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "comm/work.h"

/* Microseconds between two looks at an operation: at first, and at most, doubled in between. */
enum { FIRST_NAP = 50, LONGEST_NAP = 2000 };

/* With the lock held. */
static void drop_tensors(yk__work *work)
{
    yk_tensor **all[] = {&work->call.in, &work->call.out, &work->call.dense_in, &work->call.dense_out};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        yk_tensor_release(*all[i]);
        *all[i] = NULL;
    }
}

/* With the lock held. */
static void end_work(yk__group *g, yk__work *work)
{
    yk__work **at = &g->queued_first, *before = NULL;
    while (*at != work) {
        before = *at;
        at = &before->next;
    }
    *at = work->next;
    if (g->queued_last == work)
        g->queued_last = before;
    work->next = NULL;
    g->backend->queued_free(g->state, work->queued);
    work->queued = NULL;
    drop_tensors(work);
    yk__work_finish(g, work);
}

/* True if two operations are carried out one after the other: collectives, and messages of one direction with one
 * rank. */
static bool in_one_line(const yk__comm_op *a, const yk__comm_op *b)
{
    bool messages = a->kind >= YK__COMM_COLLECTIVES;
    return messages ? a->kind == b->kind && a->peer == b->peer : b->kind < YK__COMM_COLLECTIVES;
}

/* With the lock held: the next after `work` (NULL: the first) that no other of its line precedes. */
static yk__work *next_in_turn(const yk__group *g, const yk__work *work)
{
    for (yk__work *next = work ? work->next : g->queued_first; next; next = next->next) {
        const yk__work *before = g->queued_first;
        while (before != next && !in_one_line(&before->call.op, &next->call.op))
            before = before->next;
        if (before == next)
            return next;
    }
    return NULL;
}

/* True if the work is done. Takes the lock for what it does with the group. */
static bool work_look(yk__group *g, yk__work *work)
{
    bool done = false;
    yk_status status = g->backend->queued_done(g->state, work->queued, &done);
    if (status)
        yk__trace_fail(g, work->traced);
    if (done)
        yk__work_fail(work, status);
    return done;
}

static void *watch(void *arg)
{
    yk__group *g = arg;
    unsigned nap = FIRST_NAP;
    pthread_mutex_lock(&g->lock);
    while (!g->stop || g->queued_first) {
        if (!g->queued_first) {
            nap = FIRST_NAP;
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        bool any = false;
        for (yk__work *work = next_in_turn(g, NULL), *next; work; work = next) {
            pthread_mutex_unlock(&g->lock);
            bool done = work_look(g, work);
            pthread_mutex_lock(&g->lock);
            next = next_in_turn(g, work); /* none goes but by this thread */
            if (!done)
                continue;
            end_work(g, work);
            pthread_mutex_unlock(&g->lock);
            yk__work_release(work);
            pthread_mutex_lock(&g->lock);
            any = true;
        }
        nap = any ? FIRST_NAP : nap < LONGEST_NAP ? 2 * nap : nap;
        if (any)
            continue;
        pthread_mutex_unlock(&g->lock);
        usleep(nap);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

yk_status yk__queued_prepare(yk__group *g)
{
    int error = g->has_watcher ? 0 : yk__thread_create_open(&g->watcher, watch, g);
    if (error)
        return yk__fail(YK_ERR_IO, "group '%s': no thread can be started: %s", g->name, strerror(error));
    g->has_watcher = true;
    return YK_OK;
}

void yk__queued_add(yk__group *g, yk__work *work)
{
    yk__work_retain(work);
    work->next = NULL;
    if (g->queued_last)
        g->queued_last->next = work;
    else
        g->queued_first = work;
    g->queued_last = work;
    pthread_cond_broadcast(&g->changed);
}

yk_status yk__queued_wait(yk__group *g, yk__work *work)
{
    yk_status status = yk__recorded_forbid_earlier(work);
    if (status)
        return status;
    pthread_mutex_lock(&g->lock);
    if (work->queued)
        status = g->backend->queue_behind(g->state, work->queued);
    if (work->queued && !status && yk__queue_current() == YK__QUEUE_COMPUTE)
        drop_tensors(work);
    if (work->queued && work->call.op.captured) { /* nobody watches that */
        g->backend->queued_free(g->state, work->queued);
        work->queued = NULL;
    }
    pthread_mutex_unlock(&g->lock);
    return status;
}

void yk__queued_replay(yk__group *g, const yk__comm_op *op)
{
    yk_error before;
    yk__error_take(&before);
    yk__call call = {.op = *op};
    void *queued = NULL;
    yk__work *work = yk__work_create(g, &call);
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
