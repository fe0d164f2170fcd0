/*
 * dist_backward.c - a distributed backward: what a worker does for the root's worker, and the root's worker itself.
 * Layer: rpc.
 */
#include <stdlib.h>
#include <string.h>

#include "host/progress.h"
#include "rpc/dist_task.h"
#include "tensor/tensor.h"

typedef yk__dist_task task;

const char yk__dist_mark_name[] = "yoke.backward.mark", yk__dist_run_name[] = "yoke.backward.run",
           yk__dist_gradients_name[] = "yoke.backward.gradients";

static atomic_ullong tasks_made;

/* ---- the functions of a worker ----------------------------------------------------------------------------------- */

/* The task of a backward in a context of this worker, for this thread alone until context_leave_task or _end_task; the
 * context, in `*held`, is to be put back. NULL and an error. */
static task *task_of_call(yk_call *call, bool make, yk_dist_context **held)
{
    uint64_t id = (uint64_t)yk_call_int(call, 0), number = (uint64_t)yk_call_int(call, 1);
    yk_dist_context *c = *held = yk_last_error() ? NULL : yk__dist_get(id);
    if (!c)
        return NULL;
    pthread_mutex_lock(&c->lock);
    task *t = c->task, *stale = NULL;
    bool busy = t && t->used;
    if (make && !busy && t && t->number != number) {
        stale = t; /* its marks were not followed by a run */
        t = NULL;
    }
    if (make && !t)
        t = c->task = yk__dist_task_new(c, number);
    if (busy || (t && t->number != number))
        t = NULL;
    if (t)
        t->used = true;
    pthread_mutex_unlock(&c->lock);
    yk__dist_task_free(stale);
    if (busy)
        yk__fail(YK_ERR_STATE, "another backward of this context is under way");
    else if (!t && !yk_last_error())
        yk__fail(YK_ERR_STATE, "this backward has ended here");
    return t;
}

static void context_leave_task(yk_dist_context *c, task *t)
{
    pthread_mutex_lock(&c->lock);
    t->used = false;
    pthread_mutex_unlock(&c->lock);
}

static void context_end_task(yk_dist_context *c, task *t)
{
    pthread_mutex_lock(&c->lock);
    if (c->task == t)
        c->task = NULL;
    pthread_mutex_unlock(&c->lock);
    yk__dist_task_free(t);
}

/* Arguments: context, backward, a list of pairs (message, positions). Gives what is come to. */
static yk_status serve_mark(yk_call *call)
{
    yk_dist_context *c;
    task *t = task_of_call(call, true, &c);
    yk_value *found = t ? yk__dist_mark(t, yk_call_argument(call, 2)) : NULL;
    yk_status status = found ? yk_call_return(call, found) : yk__error_code();
    if (status && t)
        context_end_task(c, t);
    else if (t)
        context_leave_task(c, t);
    yk__dist_put(c);
    return status;
}

/* Arguments: context, backward, whether to retain the graph. Answers when this worker's part is done. */
static yk_status serve_run(yk_call *call)
{
    yk_dist_context *c;
    task *t = task_of_call(call, false, &c);
    yk_status status = t ? YK_OK : yk__error_code();
    if (t) {
        t->retain_graph = yk_value_as_bool(yk_call_argument(call, 2));
        t->deadline = call->deadline;
        status = yk__dist_prepare(t);
        status = status ? status : yk__dist_run(t, call, NULL, 0);
        context_end_task(c, t);
    }
    yk__dist_put(c);
    return status;
}

/* Arguments: context, backward, message, pairs of position and gradient. */
static yk_status serve_gradients(yk_call *call)
{
    uint64_t id = (uint64_t)yk_call_int(call, 0), number = (uint64_t)yk_call_int(call, 1);
    uint64_t message = (uint64_t)yk_call_int(call, 2);
    yk_value *pairs = yk_call_argument(call, 3);
    yk_dist_context *c = yk_last_error() ? NULL : yk__dist_get(id);
    yk_status status = c ? YK_OK : yk__error_code();
    if (c) {
        pthread_mutex_lock(&c->lock); /* while the task is sure to be there */
        status = c->task && c->task->number == number ? yk__dist_inbox_put(c->task, message, pairs)
                                                      : yk__fail(YK_ERR_STATE, "this backward has ended here");
        pthread_mutex_unlock(&c->lock);
    }
    yk__dist_put(c);
    return status;
}

yk_rpc_fn yk__dist_function(const char *name)
{
    if (strncmp(name, "yoke.backward.", 14) != 0)
        return NULL;
    return strcmp(name, yk__dist_mark_name) == 0        ? serve_mark
           : strcmp(name, yk__dist_run_name) == 0       ? serve_run
           : strcmp(name, yk__dist_gradients_name) == 0 ? serve_gradients
                                                        : NULL;
}

/* ---- the root's worker ------------------------------------------------------------------------------------------- */

typedef struct participants {
    uint32_t *indices;
    yk_future **runs;
    int count;
} participants;

static yk_status participants_add(participants *p, uint32_t index)
{
    for (int i = 0; i < p->count; i++)
        if (p->indices[i] == index)
            return YK_OK;
    uint32_t *indices = yk__realloc(p->indices, (size_t)(p->count + 1) * sizeof(*indices));
    if (indices) {
        p->indices = indices;
        indices[p->count++] = index;
    }
    return indices ? YK_OK : YK_ERR_MEMORY;
}

/* The messages of `found` that this worker sent, as a list of pairs. */
static yk_value *messages_of(const yk_value *found, uint32_t index)
{
    yk_value *list = yk_value_list();
    for (int64_t i = 0; i < yk_value_count(found) && list; i++) {
        const yk_value *three = yk_value_at(found, i);
        if ((uint32_t)yk_value_as_int(yk_value_at(three, 0)) == index &&
            yk_value_append(list, yk_args(yk_value_at(three, 1), yk_value_at(three, 2))))
            list = NULL;
    }
    return list;
}

/* One round of marking: asks all workers whose messages were found, and gives what was found there; an empty list at
 * the end. */
static yk_value *mark_round(task *t, participants *p, const yk_value *found)
{
    yk_value *next = yk_value_list();
    participants asked = {0};
    yk_status status = next ? YK_OK : yk__error_code();
    for (int64_t i = 0; i < yk_value_count(found) && !status; i++)
        status = participants_add(&asked, (uint32_t)yk_value_as_int(yk_value_at(yk_value_at(found, i), 0)));
    asked.runs = asked.count ? yk__calloc((size_t)asked.count, sizeof(*asked.runs)) : NULL;
    if (asked.count && !asked.runs)
        status = YK_ERR_MEMORY;
    yk_value *own = NULL;
    for (int i = 0; i < asked.count && !status; i++) {
        yk_value *messages = messages_of(found, asked.indices[i]);
        if (asked.indices[i] == yk__rpc.index) {
            own = messages ? yk__dist_mark(t, messages) : NULL;
            status = own ? YK_OK : yk__error_code();
            continue;
        }
        status = participants_add(p, asked.indices[i]);
        if (!status)
            asked.runs[i] = yk__dist_call(
                asked.indices[i], yk__dist_mark_name,
                yk_args(yk_value_int((int64_t)t->context->id), yk_value_int((int64_t)t->number), messages),
                t->deadline);
        status = status ? status : asked.runs[i] ? YK_OK : yk__error_code();
    }
    for (int i = 0; i < asked.count; i++) {
        yk_future *f = asked.runs ? asked.runs[i] : NULL;
        yk_value *there = status ? NULL : f ? yk_future_wait(f, YK_NOT_GIVEN) : own;
        if (!there && !status)
            status = yk__error_code();
        for (int64_t j = 0; j < yk_value_count(there) && !status; j++)
            status = yk_value_append(next, yk_value_at(there, j));
        yk_future_release(f);
    }
    free(asked.runs);
    free(asked.indices);
    return status ? NULL : next;
}

static yk_status roots_expect(task *t, yk_tensor *const *roots, int count)
{
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++) {
        char shape[200];
        if (yk_numel(roots[i]) != 1)
            status = yk__fail(YK_ERR_SHAPE, "dist_backward: root %d has shape %s, and not one element", i,
                              yk_shape_format(roots[i], shape, sizeof(shape)));
        else if (!yk__wants_grad(roots[i]))
            status =
                yk__fail(YK_ERR_STATE,
                         "dist_backward: root %d does not require a gradient and was not made from any that does", i);
        else
            status = yk__dist_expect(t, roots[i]);
    }
    return status ? status : yk__dist_walk(t);
}

static yk_status roots_deliver(task *t, yk_tensor *const *roots, int count)
{
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++) {
        int output;
        const yk__node *node = yk__gradient_node(roots[i], &output);
        yk_tensor *one = node ? yk__tensor_full_like(roots[i], 1) : NULL;
        status = one ? yk__dist_deliver(t, node, output, UINT64_MAX, i, one) : yk__error_code();
    }
    return status;
}

/* Begins the runs of the others, runs this worker's part, and waits for them. */
static yk_status backward_run(task *t, participants *p, yk_tensor *const *roots, int count)
{
    p->runs = p->count ? yk__calloc((size_t)p->count, sizeof(*p->runs)) : NULL;
    yk_status status = p->runs || !p->count ? YK_OK : YK_ERR_MEMORY;
    for (int i = 0; i < p->count && !status; i++) {
        p->runs[i] = yk__dist_call(p->indices[i], yk__dist_run_name,
                                   yk_args(yk_value_int((int64_t)t->context->id), yk_value_int((int64_t)t->number),
                                           yk_value_bool(t->retain_graph)),
                                   t->deadline);
        status = p->runs[i] ? YK_OK : yk__error_code();
    }
    status = status ? status : yk__dist_prepare(t);
    status = status ? status : roots_deliver(t, roots, count);
    status = status ? status : yk__dist_run(t, NULL, p->runs, p->count);
    for (int done = 0; !status && done < p->count; done++) {
        int at = yk_future_wait_any(p->runs + done, p->count - done, YK_NOT_GIVEN);
        status = at < 0 ? yk__error_code() : yk__dist_settle(p->runs[done + at]);
        if (at > 0) {
            yk_future *f = p->runs[done];
            p->runs[done] = p->runs[done + at];
            p->runs[done + at] = f;
        }
    }
    for (int i = 0; i < p->count && p->runs; i++) {
        if (status && p->runs[i])
            yk_future_cancel(p->runs[i]);
        yk_future_release(p->runs[i]);
    }
    return status;
}

static yk_status backward_all(yk_dist_context *c, task *t, yk_tensor *const *roots, int count)
{
    participants p = {0};
    yk_scope scope = yk_scope_begin();
    yk_status status = roots_expect(t, roots, count);
    yk_value *found = status ? NULL : yk__dist_found(t);
    while (found && yk_value_count(found))
        found = mark_round(t, &p, found);
    status = status ? status : found ? YK_OK : yk__error_code();
    status = status ? status : backward_run(t, &p, roots, count);
    free(p.indices);
    free(p.runs);
    context_end_task(c, t);
    yk_scope_end(scope);
    return status;
}

yk_status yk_dist_backward(yk_dist_context *c, yk_tensor *const *roots, int count,
                           const yk_dist_backward_options *options)
{
    YK__LIVE(c);
    yk_dist_backward_options o;
    double seconds = 0;
    if (!yk__is_there("dist_backward", "context", c) || !yk__is_there("dist_backward", "array of roots", roots))
        return yk__error_code();
    if (count < 1)
        return yk__fail(YK_ERR_ARGUMENT, "dist_backward: %d roots", count);
    for (int i = 0; i < count; i++) {
        yk_tensor *root = roots[i];
        YK__LIVE(root);
        if (!yk__is_there("dist_backward", "root", root))
            return yk__error_code();
    }
    yk_status status = YK__OPTIONS_TAKE("dist_backward", yk_dist_backward_options, options, &o);
    status = status ? status : yk__rpc_enter("dist_backward");
    if (status)
        return status;
    double usual = yk__rpc.timeout;
    yk__rpc_leave();
    status = yk__check_timeout("dist_backward", "timeout", o.timeout, usual, &seconds);
    if (status)
        return status;
    YK__OWN_RECORD;
    uint64_t number = (uint64_t)yk__rpc.index << 40 | (atomic_fetch_add(&tasks_made, 1) + 1);
    task *t = yk__dist_task_new(c, number);
    if (!t)
        return yk__error_code();
    t->retain_graph = o.retain_graph;
    t->deadline = yk__now() + seconds;
    t->used = true;
    pthread_mutex_lock(&c->lock);
    task *stale = c->task && !c->task->used ? c->task : NULL;
    bool busy = c->task && !stale;
    if (!busy)
        c->task = t;
    pthread_mutex_unlock(&c->lock);
    yk__dist_task_free(stale);
    if (busy) {
        yk__dist_task_free(t);
        return yk__fail(YK_ERR_STATE, "dist_backward: another backward of this context is under way");
    }
    (void)yk__progress_phase(YK__PHASE_BACKWARD);
    status = backward_all(c, t, roots, count);
    (void)yk__progress_phase(YK__PHASE_NONE);
    return status;
}
