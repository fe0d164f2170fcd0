/*
 * dist_run.c - the second phase of a distributed backward: gradients are delivered, nodes run, and what belongs to
 * other workers is sent to them. Layer: rpc.
 */
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "rpc/dist_task.h"
#include "rpc/rpc_call.h"
#include "value/value.h"

typedef yk__dist_task task;
typedef yk__dist_entry entry;
typedef yk__dist_term term;
typedef yk__dist_marked marked;
typedef yk__dist_arrival arrival;

static _Thread_local task *running;
static _Thread_local entry *running_entry;

/* ---- delivering -------------------------------------------------------------------------------------------------- */

static void heap_push(task *t, entry *e)
{
    int i = t->ready++;
    while (i > 0 && t->heap[(i - 1) / 2]->node->sequence < e->node->sequence) {
        t->heap[i] = t->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    t->heap[i] = e;
}

static entry *heap_pop(task *t)
{
    entry *top = t->heap[0], *last = t->heap[--t->ready];
    int i = 0;
    for (int child; (child = 2 * i + 1) < t->ready; i = child) {
        if (child + 1 < t->ready && t->heap[child + 1]->node->sequence > t->heap[child]->node->sequence)
            child++;
        if (t->heap[child]->node->sequence <= last->node->sequence)
            break;
        t->heap[i] = t->heap[child];
    }
    t->heap[i] = last;
    return top;
}

/* A term (taken over) for an output of an entry, from input `input` of a node of this sequence; it comes after those of
 * the same input. */
static yk_status term_add(entry *e, int output, uint64_t sequence, int input, yk_tensor *grad)
{
    term *x = yk__calloc(1, sizeof(*x)), **at = &e->terms;
    if (!x) {
        yk_tensor_release(grad);
        return YK_ERR_MEMORY;
    }
    while (*at && ((*at)->sequence > sequence || ((*at)->sequence == sequence && (*at)->input <= input)))
        at = &(*at)->next;
    *x = (term){sequence, input, output, grad, *at};
    *at = x;
    return YK_OK;
}

/* The entry of a node that expects a gradient; NULL and an error. */
static entry *entry_expecting(task *t, const yk__node *node)
{
    entry *e = *yk__dist_entry_slot(t, node);
    if (e && e->pending)
        return e;
    yk__fail(YK_ERR_INTERNAL, "a gradient for %s, which expects none", node->head.name);
    return NULL;
}

static void entry_count_down(task *t, entry *e)
{
    if (--e->pending == 0)
        heap_push(t, e);
}

yk_status yk__dist_deliver(task *t, const yk__node *node, int output, uint64_t sequence, int input, yk_tensor *grad)
{
    entry *e = entry_expecting(t, node);
    if (!e) {
        yk_tensor_release(grad);
        return yk__error_code();
    }
    yk_status status = grad ? term_add(e, output, sequence, input, grad) : YK_OK;
    if (!status)
        entry_count_down(t, e);
    return status;
}

/* The gradient that came for the tensor, on the tensor's device; NULL and an error if it is not one of it. */
static yk_tensor *gradient_of_message(const yk_tensor *x, yk_tensor *grad)
{
    if (!yk_same_shape(x, grad) || x->dtype != grad->dtype) {
        char a[200], b[200];
        yk__fail(YK_ERR_FORMAT, "a gradient of shape %s, %s, came for a tensor of shape %s, %s",
                 yk_shape_format(grad, a, sizeof(a)), yk_dtype_name(yk_tensor_dtype(grad)),
                 yk_shape_format(x, b, sizeof(b)), yk_dtype_name(yk_tensor_dtype(x)));
        return NULL;
    }
    return yk_tensor_retain(yk_to(grad, yk_tensor_device(x)));
}

/* Delivers the gradients of a message, in a scope. */
static yk_status arrival_deliver(task *t, const arrival *a)
{
    marked *m = yk__dist_marked_of(t, a->message);
    yk_status status = m ? YK_OK : yk__fail(YK_ERR_FORMAT, "gradients of a message that takes no part");
    for (int64_t i = 0; i + 1 < yk_value_count(a->pairs) && !status; i += 2) {
        int64_t position = yk_value_as_int(yk_value_at(a->pairs, i));
        const yk_value *value = yk_value_at(a->pairs, i + 1);
        if (position < 0 || position >= m->send->count || !m->wanted[position] || m->came[position])
            return yk__fail(YK_ERR_FORMAT, "a gradient of tensor %lld of a message, which is not expected",
                            (long long)position);
        m->came[position] = true;
        yk_tensor *x = m->send->tensors[position];
        int output;
        const yk__node *node = yk__gradient_node(x, &output);
        entry *e = node ? entry_expecting(t, node) : NULL;
        status = e ? YK_OK : yk__error_code();
        for (int64_t j = 0; j < yk_value_count(value) && !status; j++) {
            yk_tensor *given = yk_value_as_tensor(yk_value_at(value, j));
            yk_tensor *grad = given ? gradient_of_message(x, given) : NULL;
            status = grad ? term_add(e, output, m->send->sequence, (int)position, grad) : yk__error_code();
        }
        if (!status)
            entry_count_down(t, e);
    }
    return status;
}

yk_status yk__dist_inbox_put(task *t, uint64_t message, yk_value *pairs)
{
    arrival *a = yk__calloc(1, sizeof(*a));
    if (!a)
        return YK_ERR_MEMORY;
    *a = (arrival){message, yk_value_retain(pairs), NULL};
    pthread_mutex_lock(&t->lock);
    a->next = t->inbox;
    t->inbox = a;
    pthread_cond_signal(&t->came);
    pthread_mutex_unlock(&t->lock);
    return YK_OK;
}

static yk_status inbox_take(task *t)
{
    pthread_mutex_lock(&t->lock);
    arrival *all = t->inbox;
    t->inbox = NULL;
    pthread_mutex_unlock(&t->lock);
    yk_status status = YK_OK;
    yk_scope scope = yk_scope_begin();
    for (arrival *a; (a = all);) {
        all = a->next;
        if (!status)
            status = arrival_deliver(t, a);
        yk_value_release(a->pairs);
        free(a);
    }
    yk_scope_end(scope);
    return status;
}

/* ---- sending gradients ------------------------------------------------------------------------------------------- */

yk_future *yk__dist_call(uint32_t index, const char *name, yk_value *args, double deadline)
{
    yk__rpc_member m;
    double left = deadline - yk__now();
    if (left <= 0) {
        yk__fail(YK_ERR_TIMEOUT, "dist_backward: its time was over before all was computed");
        return NULL;
    }
    if (yk__rpc_member_at(index, &m))
        return NULL;
    yk_ref there = {.owner = m, .maker = yk__rpc.index};
    snprintf(there.name, sizeof(there.name), "yoke");
    yk__rpc_target target = {
        .what = "dist_backward", .name = name, .kind = YK__RPC_FUNCTION, .ref = &there, .without_context = true};
    return yk__rpc_call_begin(&target, args, YK_OPTIONS(yk_rpc_options, .timeout = left), NULL);
}

double yk__dist_deadline(void)
{
    return running ? running->deadline : 0;
}

/* The terms of an output's gradient, in order; in place of them the gradient, where hooks have seen it. */
static yk_value *source_terms(const entry *e, int output, yk_tensor *gradient)
{
    yk_value *list = yk_value_list();
    if (list && gradient && yk_value_append(list, yk_value_tensor(gradient)))
        return NULL;
    for (const term *x = e->terms; x && list; x = x->next)
        if (x->output == output && yk_value_append(list, yk_value_tensor(x->grad)))
            return NULL;
    return list;
}

/* Sends the gradients of those outputs of a node "rpc_recv" that take part. They go as terms, so that the sum that the
 * sender of the message makes of them and its own is the one of a single process. */
static yk_status source_send(task *t, entry *e, yk_tensor *const *gouts)
{
    const yk__dist_source *source = (const yk__dist_source *)e->node->context;
    yk_scope scope = yk_scope_begin();
    yk_value *pairs = yk_value_list();
    yk_status status = pairs ? YK_OK : yk__error_code();
    for (int o = 0; o < e->node->n_outputs && !status; o++) {
        if (e->reached[o] == YK__NOT_REACHED)
            continue;
        status = yk_value_append(pairs, yk_value_int(o));
        status = status ? status : yk_value_append(pairs, source_terms(e, o, gouts ? gouts[o] : NULL));
    }
    e->is_sent = true;
    if (!status && source->from == yk__rpc.index) {
        status = yk__dist_inbox_put(t, source->message, pairs);
    } else if (!status) {
        if (t->sent_count == t->sent_room) {
            int room = t->sent_room ? 2 * t->sent_room : 16;
            yk_future **sent = yk__realloc(t->sent, (size_t)room * sizeof(yk_future *));
            status = sent ? YK_OK : YK_ERR_MEMORY;
            t->sent = sent ? sent : t->sent;
            t->sent_room = sent ? room : t->sent_room;
        }
        yk_future *f =
            status ? NULL
                   : yk__dist_call(source->from, yk__dist_gradients_name,
                                   yk_args(yk_value_int((int64_t)source->context), yk_value_int((int64_t)t->number),
                                           yk_value_int((int64_t)source->message), pairs),
                                   t->deadline);
        status = status ? status : f ? YK_OK : yk__error_code();
        if (f)
            t->sent[t->sent_count++] = f;
    }
    yk_scope_end(scope);
    return status;
}

static yk_status source_backward(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    (void)grads;
    if (running)
        return source_send(running, running_entry, gouts);
    const yk__dist_source *source = yk__context(node);
    yk__rpc_member m;
    bool known = yk__rpc_member_at(source->from, &m) == YK_OK;
    yk_clear_error();
    return yk__fail(YK_ERR_STATE, "the graph goes on in worker '%s': yk_dist_backward goes through it",
                    known ? m.name : "of before");
}

const yk__op yk__dist_recv_op = {.name = "rpc_recv", .backward_list = source_backward};

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* True if x may become the leaf's gradient as it is: nobody else has the tensor or its memory, which is the allocator's
 * (`reserved`), and its strides are the leaf's. */
static bool gradient_is_own(const yk_tensor *x, const yk_tensor *leaf)
{
    return atomic_load(&x->object.references) == 1 && atomic_load(&x->storage->references) == 1 &&
           x->storage->reserved && yk__same_strides(x, leaf);
}

/* Calls the hooks of a leaf with its gradient, which they may replace: one reference is taken and given. */
static yk_tensor *leaf_hooks_run(const yk__node *node, yk_tensor *grad)
{
    uint64_t end = yk__hook_end(), id = 0;
    for (const yk__hook *hook; grad && (hook = yk__hook_next(node->outputs, end, id));) {
        id = hook->id;
        if (!hook->fn)
            continue;
        yk_scope scope = yk_scope_begin();
        yk_tensor *other = hook->fn(grad, hook->user);
        bool failed = yk__error_code() != YK_OK;
        if (!failed && other && (!yk_same_shape(other, grad) || other->dtype != grad->dtype))
            failed = yk__fail(YK_ERR_SHAPE, "a hook of a leaf gave a gradient of another shape or dtype") != YK_OK;
        yk_tensor *next = failed ? NULL : yk_tensor_retain(other ? other : grad);
        yk_tensor_release(grad);
        grad = next;
        yk_scope_end(scope);
    }
    return grad;
}

/* Adds the terms of a leaf's gradient and gives the sum to the context. */
static yk_status leaf_run(task *t, entry *e)
{
    yk_tensor *sum = NULL;
    yk_status status = YK_OK;
    for (term *x; (x = e->terms) && !status;) {
        yk_tensor *next = sum ? yk__raw_binary("dist_backward", YK__ADD, sum, x->grad, 1) : x->grad;
        status = next ? YK_OK : yk__error_code();
        if (sum) {
            yk_tensor_release(sum);
            yk_tensor_release(x->grad);
        }
        sum = next;
        e->terms = x->next;
        free(x);
    }
    if (status || !sum)
        return status;
    sum = leaf_hooks_run(e->node, sum);
    if (!sum)
        return yk__error_code();
    if (!gradient_is_own(sum, e->leaf)) {
        yk_tensor *own = yk__tensor_like(e->leaf, (yk_dtype)e->leaf->dtype);
        status = own ? yk__raw_copy(own, sum) : yk__error_code();
        yk_tensor_release(sum);
        if (status) {
            yk_tensor_release(own);
            return status;
        }
        sum = own;
    }
    return yk__dist_accumulate(t->context, e->leaf, sum);
}

/* True if the terms of an output are sent as they are: nobody sees their sum. */
static bool output_is_sent_in_terms(const entry *e, int output)
{
    const yk__output *o = &e->node->outputs[output];
    return e->reached && !o->n_hooks && !o->keep_grad;
}

/* Makes the sums of an entry's terms, where its node is to see them. */
static yk_status terms_sum(const yk__walk *walk, entry *e)
{
    yk_status status = YK_OK;
    for (term **at = &e->terms; *at && !status;) {
        term *x = *at;
        if (output_is_sent_in_terms(e, x->output)) {
            at = &x->next;
            continue;
        }
        bool last = true;
        *at = x->next;
        for (const term *y = x->next; y; y = y->next)
            last = last && y->output != x->output;
        status = yk__gradient_deliver(walk, e->node, x->output, x->grad, last);
        free(x);
    }
    return status;
}

/* Runs the node of an entry on the sums of its terms, and delivers the gradients of its inputs. */
static yk_status entry_run(task *t, entry *e)
{
    yk__node *node = e->node;
    if (!node->op)
        return leaf_run(t, e);
    const yk__walk walk = {.retain_graph = t->retain_graph};
    yk_status status = terms_sum(&walk, e);
    yk_tensor *few[8] = {NULL}, **grads = few;
    if (!status && node->n_inputs > 8 && !(grads = yk__calloc((size_t)node->n_inputs, sizeof(*grads))))
        status = YK_ERR_MEMORY;
    if (status)
        return status;
    running_entry = e;
    status = yk__node_run(node, &walk, grads);
    if (!status && e->reached && !e->is_sent)
        status = source_send(t, e, NULL); /* no sum was made, so its backward was not called */
    for (int i = 0; i < node->n_inputs; i++) {
        if (status || !node->edges[i].node) {
            if (grads[i])
                yk_tensor_release(grads[i]);
        } else {
            status = yk__dist_deliver(t, node->edges[i].node, node->edges[i].output, node->sequence, i, grads[i]);
        }
    }
    if (grads != few)
        free(grads);
    if (!status)
        atomic_store_explicit(&node->owner, NULL, memory_order_release);
    return status;
}

/* Runs what is ready. */
static yk_status task_run_ready(task *t)
{
    bool recorded = yk_no_grad_begin(), for_backward = yk__operation_is_backward;
    yk__operation_is_backward = true;
    running = t;
    yk_status status = YK_OK;
    while (t->ready && !status) {
        status = entry_run(t, heap_pop(t));
        if (!status)
            status = yk__error_code();
        t->left -= !status;
    }
    running = NULL;
    running_entry = NULL;
    yk__operation_is_backward = for_backward;
    yk__operation_name = NULL;
    yk_no_grad_end(recorded);
    return status;
}

/* Waits a while for gradients of others. */
static void task_wait(task *t)
{
    static const double LOOK = 0.02; /* seconds between looks at whether others have failed */
    yk__rpc_lock();
    bool blocked = yk__rpc_blocked_begin();
    pthread_mutex_unlock(&yk__rpc.lock);
    pthread_mutex_lock(&t->lock);
    if (!t->inbox)
        yk__condition_wait(&t->came, &t->lock, yk__now() + LOOK);
    pthread_mutex_unlock(&t->lock);
    yk__rpc_lock();
    yk__rpc_blocked_end(blocked);
    pthread_mutex_unlock(&yk__rpc.lock);
}

yk_status yk__dist_settle(yk_future *f)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_future_wait(f, YK_NOT_GIVEN) ? YK_OK : yk__error_code();
    yk_scope_end(scope);
    return status;
}

/* Looks at calls that have been answered: an error where one has failed. */
static yk_status futures_look(yk_future *const *futures, int count)
{
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++)
        if (yk_future_done(futures[i]))
            status = yk__dist_settle(futures[i]);
    return status;
}

yk_status yk__dist_prepare(task *t)
{
    t->heap = yk__calloc((size_t)(t->count ? t->count : 1), sizeof(*t->heap));
    return t->heap ? YK_OK : YK_ERR_MEMORY;
}

yk_status yk__dist_run(task *t, const yk_call *call, yk_future *const *others, int count)
{
    yk_status status = YK_OK;
    while (!status && t->left) {
        status = inbox_take(t);
        status = status ? status : task_run_ready(t);
        if (status || !t->left)
            break;
        status = futures_look(t->sent, t->sent_count);
        status = status ? status : futures_look(others, count);
        if (!status && call && yk_call_cancelled(call))
            status = yk__fail(YK_ERR_TIMEOUT, "nobody waits for this backward any more");
        if (!status && yk__now() > t->deadline)
            status = yk__fail(YK_ERR_TIMEOUT, "dist_backward: %d of %d nodes have not got their gradients in time",
                              t->left, t->count);
        if (!status)
            task_wait(t);
    }
    for (int i = 0; i < t->sent_count; i++)
        if (!status)
            status = yk__dist_settle(t->sent[i]);
    return status;
}
