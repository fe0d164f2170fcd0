/*
 * engine.c - backward: walks the tape from the root, one thread per device. Layer: autograd.
 *
 * First the nodes that the root reaches are claimed and the edges into each are counted. A node is ready when all of
 * them have delivered; ready nodes run newest first, so memory is freed in the reverse order of the forward pass and
 * the order of sums is the same every run. The calling thread works for the root's device, and for every other device
 * that the graph touches one of that device's threads. With one device, the usual case, there are no locks. With
 * several, sums wait until all their terms are there and are then added in the order of recording, so that the threads'
 * timing never shows in the bits.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"
#include "base/invariant.h"
#include "device/device_thread.h"

/* Nodes that a small graph needs no memory for. */
enum { FEW_NODES = 16 };

typedef struct node_list {
    yk__node **nodes; /* `few`, or memory of its own */
    size_t count, capacity;
    yk__node *few[FEW_NODES];
} node_list;

typedef struct device_queue {
    yk_device device;
    node_list heap;     /* by sequence, largest first */
    atomic_uint filled; /* how often a node came in */
    bool started;
    yk__device_job job;
    struct yk__task *task;
    double waited; /* seconds of its thread */
} device_queue;

struct yk__task {
    node_list claimed;
    yk__collector **collectors;
    int n_collectors, begun;
    device_queue *queues; /* `first`, or memory of its own */
    device_queue first;
    int n_queues;
    bool retain_graph;
    bool parallel; /* more than one device: lock */
    size_t left;   /* claimed nodes that have not run */
    atomic_bool over;
    int sleepers; /* threads that wait for `changed` */
    yk_error error;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static void list_init(node_list *list)
{
    list->nodes = list->few;
    list->count = 0;
    list->capacity = FEW_NODES;
}

static void list_free(node_list *list)
{
    if (list->nodes != list->few)
        free(list->nodes);
}

static yk_status list_push(node_list *list, yk__node *node)
{
    if (list->count == list->capacity) {
        bool few = list->nodes == list->few;
        size_t capacity = 4 * list->capacity;
        yk__node **grown = yk__realloc(few ? NULL : list->nodes, capacity * sizeof(*grown));
        if (!grown)
            return YK_ERR_MEMORY;
        if (few)
            memcpy(grown, list->few, sizeof(list->few));
        list->nodes = grown;
        list->capacity = capacity;
    }
    list->nodes[list->count++] = node;
    return YK_OK;
}

/* A claimed node is in the heap at most once, so room for all claimed nodes was made before the walk. */
static void heap_push(node_list *heap, yk__node *node)
{
    size_t i = heap->count++;
    while (i > 0 && heap->nodes[(i - 1) / 2]->sequence < node->sequence) {
        heap->nodes[i] = heap->nodes[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap->nodes[i] = node;
}

static yk__node *heap_pop(node_list *heap)
{
    yk__node *top = heap->nodes[0], *last = heap->nodes[--heap->count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && heap->nodes[child + 1]->sequence > heap->nodes[child]->sequence)
            child++;
        if (heap->nodes[child]->sequence <= last->sequence)
            break;
        heap->nodes[i] = heap->nodes[child];
        i = child;
    }
    heap->nodes[i] = last;
    return top;
}

static void task_lock(yk__task *task)
{
    if (task->parallel)
        pthread_mutex_lock(&task->lock);
}

static void task_unlock(yk__task *task)
{
    if (task->parallel)
        pthread_mutex_unlock(&task->lock);
}

static yk_status claim(yk__task *task, yk__node *node)
{
    yk__task *owner = NULL;
    if (!yk__one_thread())
        atomic_compare_exchange_strong(&node->owner, &owner, task);
    else if (!(owner = atomic_load_explicit(&node->owner, memory_order_relaxed)))
        atomic_store_explicit(&node->owner, task, memory_order_relaxed);
    if (owner)
        return yk__fail(YK_ERR_STATE, "backward: another backward is walking this graph (at %s)", node->name);
    node->pending = 0;
    return list_push(&task->claimed, node);
}

/* Claims everything that root reaches and counts the edges into each node. */
static yk_status claim_graph(yk__task *task, yk__node *root)
{
    yk_status status = claim(task, root);
    for (size_t next = 0; next < task->claimed.count && !status; next++) {
        yk__node *node = task->claimed.nodes[next];
        if (node->freed && node->op && !node->op->keeps_nothing)
            return yk__fail(
                YK_ERR_STATE,
                "backward: the graph was freed by an earlier backward (at %s); to go through it twice, call "
                "the first with retain_graph",
                node->name);
        for (int i = 0; i < node->n_inputs && !status; i++) {
            yk__node *input = node->edges[i].node;
            if (!input)
                continue;
            if (atomic_load_explicit(&input->owner, memory_order_relaxed) != task)
                status = claim(task, input);
            if (!status)
                input->pending++;
        }
    }
    return status;
}

static device_queue *queue_of(yk__task *task, yk_device device)
{
    for (int i = 0; i < task->n_queues; i++) {
        if (yk_device_equal(task->queues[i].device, device))
            return &task->queues[i];
    }
    return NULL;
}

static void queue_init(device_queue *queue, yk__task *task, yk_device device)
{
    queue->device = device;
    queue->task = task;
    queue->started = false;
    queue->waited = 0;
    atomic_init(&queue->filled, 0);
    list_init(&queue->heap);
}

/* One queue per device of the graph, the root's first, each with room for every node. */
static yk_status make_queues(yk__task *task, yk__node *root)
{
    queue_init(&task->first, task, root->device);
    task->n_queues = 1;
    for (size_t n = 1; n < task->claimed.count; n++) {
        yk_device device = task->claimed.nodes[n]->device;
        if (queue_of(task, device))
            continue;
        bool few = task->queues == &task->first;
        device_queue *grown = yk__realloc(few ? NULL : task->queues, sizeof(*grown) * (size_t)(task->n_queues + 1));
        if (!grown)
            return YK_ERR_MEMORY;
        task->queues = grown;
        if (few)
            queue_init(&grown[0], task, root->device);
        queue_init(&grown[task->n_queues++], task, device);
    }
    /* They have come to where they stay. */
    for (int q = 0; q < task->n_queues; q++) {
        node_list *heap = &task->queues[q].heap;
        list_init(heap);
        if (task->claimed.count <= heap->capacity)
            continue;
        yk__node **room = yk__calloc(task->claimed.count, sizeof(*room));
        if (!room)
            return YK_ERR_MEMORY;
        heap->nodes = room;
        heap->capacity = task->claimed.count;
    }
    task->parallel = task->n_queues > 1;
    return YK_OK;
}

/* Whether x may be written in place: nobody else holds it or its memory, which is not the program's own, and no two
 * elements share a position (a backward may hand on an expanded view). */
static bool exclusive(const yk_tensor *x)
{
    return atomic_load_explicit(&x->object.references, memory_order_acquire) == 1 &&
           atomic_load_explicit(&x->storage->references, memory_order_acquire) == 1 && x->storage->reserved &&
           yk__is_dense(x);
}

/* sum += term, in place where nobody else sees the memory. Takes over both references; NULL is zero. */
static yk_tensor *add_term(yk_tensor *sum, yk_tensor *term, yk_status *bad)
{
    if (!sum || !term)
        return sum ? sum : term;
    yk_tensor *out = NULL;
    if (exclusive(sum) && sum->dtype == term->dtype) {
        *bad = yk__raw_binary_into("backward", YK__ADD, sum, sum, term, 1);
        if (!*bad)
            out = yk_tensor_retain(sum);
    } else {
        out = yk__raw_binary("backward", YK__ADD, sum, term, 1);
        if (!out)
            *bad = yk__error_code();
    }
    yk_tensor_release(sum);
    yk_tensor_release(term);
    return out;
}

static yk_status sum_contributions(yk__node *node)
{
    yk_status status = YK_OK;
    for (int i = 0; i < node->n_outputs; i++) {
        yk__output *output = &node->outputs[i];
        while (output->contributions) {
            yk__contribution *term = output->contributions;
            output->contributions = term->next;
            if (status)
                yk_tensor_release(term->grad);
            else
                output->grad = add_term(output->grad, term->grad, &status);
            free(term);
        }
    }
    return status;
}

/* Whether `grad` is like output `which` of `to`; `input` of `from` is what it is for. */
static yk_status check_gradient(const yk__node *from, int input, const yk__node *to, int which, const yk_tensor *grad)
{
    const yk__output *output = &to->outputs[which];
    if (grad->ndim == output->ndim && grad->dtype == output->dtype &&
        yk__equal_sizes(grad->shape, output->shape, output->ndim) && yk_device_equal(yk__device_of(grad), to->device))
        return YK_OK;
    char a[200], b[200], da[16], db[16];
    return yk__fail(
        YK_ERR_SHAPE, "%s: backward gave a gradient of shape %s, %s on %s for input %d, which has shape %s, %s on %s",
        from->name, yk_shape_format(grad, a, sizeof(a)), yk_dtype_name((yk_dtype)grad->dtype),
        yk_device_format(yk__device_of(grad), da), input, yk__shape_text(output->ndim, output->shape, b, sizeof(b)),
        yk_dtype_name((yk_dtype)output->dtype), yk_device_format(to->device, db));
}

static yk_status run_hooks(yk__node *node, int which)
{
    yk__output *output = &node->outputs[which];
    yk_status status = YK_OK;
    uint64_t end = yk__hook_end(), id = 0;
    for (const yk__hook *hook; !status && (hook = yk__hook_next(output, end, id));) {
        id = hook->id;
        if (!hook->fn)
            continue;
        yk_scope scope = yk_scope_begin();
        yk_tensor *other = hook->fn(output->grad, hook->user);
        status = yk__error_code();
        if (!status && other && other != output->grad) {
            status = check_gradient(node, which, node, which, other);
            if (!status) {
                yk_tensor_release(output->grad);
                output->grad = yk_tensor_retain(other);
            }
        }
        yk_scope_end(scope);
    }
    return status;
}

yk_status yk__accumulate_grad(yk_tensor *leaf, yk_tensor *grad)
{
    yk__autograd_meta *meta = yk__meta(leaf);
    yk_status status = YK_OK;
    if (meta->grad) {
        status = yk__raw_binary_into("backward", YK__ADD, meta->grad, meta->grad, grad, 1);
        yk__bump_version(meta->grad);
        yk_tensor_release(grad);
    } else if (meta->grad_buffer) {
        if (grad->data != meta->grad_buffer->data || grad->storage != meta->grad_buffer->storage)
            status = yk__raw_copy(meta->grad_buffer, grad);
        yk__bump_version(meta->grad_buffer);
        meta->grad = yk_tensor_retain(meta->grad_buffer);
        yk_tensor_release(grad);
    } else if (exclusive(grad) && (yk__same_strides(grad, leaf) || !yk__is_dense(leaf))) {
        meta->grad = grad;
    } else {
        /* The gradient of a parameter has the parameter's own memory order: optimizers then walk both as one line. */
        meta->grad = yk__tensor_like(leaf, (yk_dtype)leaf->dtype);
        status = meta->grad ? yk__raw_copy(meta->grad, grad) : yk__error_code();
        yk_tensor_release(grad);
    }
    return status;
}

yk_tensor *yk__grad_buffer_for(const yk__node *node, int input)
{
    const yk__node *to = node->edges[input].node;
    const yk__autograd_meta *meta = to && !to->op ? yk__meta(to->leaf) : NULL;
    if (!meta || !meta->grad_buffer)
        return NULL;
    yk__task *task = to->owner;
    task_lock(task);
    const yk__output *output = to->outputs; /* an accumulator has one */
    bool whole = to->pending == 1 && !output->grad && !output->contributions && !meta->grad;
    task_unlock(task);
    for (int i = 0; i < output->n_hooks; i++)
        whole = whole && !output->hooks[i].fn; /* a hook may keep what it is shown */
    return whole ? yk_tensor_retain(meta->grad_buffer) : NULL;
}

/* After a leaf's gradient was accumulated: those who asked to be told. */
static yk_status run_leaf_hooks(const yk__node *node, yk_tensor *leaf)
{
    yk_status status = YK_OK;
    uint64_t end = yk__hook_end(), id = 0;
    for (const yk__hook *hook; !status && (hook = yk__hook_next(node->outputs, end, id));) {
        id = hook->id;
        if (!hook->after)
            continue;
        yk_scope scope = yk_scope_begin();
        status = hook->after(leaf, hook->user);
        if (!status)
            status = yk__error_code(); /* a callback that sets an error has failed, whatever it returns */
        if (status && !yk__error_code())
            yk__fail(status, "a post-accumulate hook failed with status %d and no message", (int)status);
        yk_scope_end(scope);
    }
    return status;
}

/* The gradient of a leaf is complete: accumulates it, calls the hooks and the collector. */
static yk_status run_leaf(yk__node *node)
{
    yk__output *output = node->outputs;
    bool hooked = output->n_hooks && output->grad;
    yk_status status = hooked ? run_hooks(node, 0) : YK_OK;
    if (status)
        return status;
    yk_tensor *grad = output->grad;
    output->grad = NULL;
    yk__collector *collector = yk__meta(node->leaf)->collector;
    if (!hooked && !collector)
        return grad ? yk__accumulate_grad(node->leaf, grad) : YK_OK;
    yk_tensor *leaf = yk_tensor_retain(node->leaf); /* a hook may drop the last reference */
    status = grad ? yk__accumulate_grad(leaf, grad) : YK_OK;
    if (!status && grad)
        status = run_leaf_hooks(node, leaf);
    yk__autograd_meta *meta = yk__meta(leaf);
    if (!status && meta->collector)
        status = meta->collector->ready(meta->collector, meta->collector_index);
    yk_tensor_release(leaf);
    return status;
}

/* Called with the lock held in a parallel task. Where there is one thread, a leaf that has got everything is done with
 * at once: it is what the queue would give next. */
static yk_status deliver(yk__task *task, const yk__node *from, int input, yk_tensor *grad)
{
    yk__node *node = from->edges[input].node;
    yk__output *to = &node->outputs[from->edges[input].output];
    yk_status status = YK_OK;
    if (grad && !task->parallel) {
        to->grad = add_term(to->grad, grad, &status);
    } else if (grad && node->pending == 1 && !to->contributions && !to->grad) {
        to->grad = grad; /* the last to come, and alone: there is nothing to put in order */
    } else if (grad) {
        yk__contribution *term = yk__calloc(1, sizeof(*term));
        if (!term) {
            yk_tensor_release(grad);
            return YK_ERR_MEMORY;
        }
        *term = (yk__contribution){.sequence = from->sequence, .input = input, .grad = grad};
        yk__contribution **at = &to->contributions;
        while (*at &&
               ((*at)->sequence > term->sequence || ((*at)->sequence == term->sequence && (*at)->input < term->input)))
            at = &(*at)->next;
        term->next = *at;
        *at = term;
    }
    if (--node->pending == 0 && !node->op && !task->parallel) {
        task->left--;
        status = status ? status : run_leaf(node);
    } else if (node->pending == 0) {
        device_queue *queue = queue_of(task, node->device);
        heap_push(&queue->heap, node);
        if (task->parallel)
            atomic_fetch_add_explicit(&queue->filled, 1, memory_order_release);
    }
    return status;
}

/* The operation's backward on what its outputs have got; nothing is called where that is nothing. */
static yk_status call_backward(yk__node *node, bool any, yk_tensor **grads)
{
    if (!any)
        return YK_OK;
    yk_status status;
    yk__memory_maker = node->op->name;
    if (node->op->backward) {
        status = node->op->backward(node, node->outputs[0].grad, grads);
    } else {
        yk_tensor *few[8], **gouts = few;
        if (node->n_outputs > 8 && !(gouts = yk__calloc((size_t)node->n_outputs, sizeof(*gouts))))
            return YK_ERR_MEMORY;
        for (int i = 0; i < node->n_outputs; i++)
            gouts[i] = node->outputs[i].grad;
        status = node->op->backward_list(node, gouts, grads);
        if (gouts != few)
            free(gouts);
    }
    if (status && !yk__error_code())
        yk__fail(status, "%s: backward failed with status %d and no message", node->name, (int)status);
    return status;
}

/* The gradients of a node's outputs go: kept where they are wanted. */
static void drop_gradients(yk__node *node)
{
    for (int i = 0; i < node->n_outputs; i++) {
        yk__output *output = &node->outputs[i];
        yk_tensor *grad = output->grad;
        output->grad = NULL;
        if (output->keep_grad) {
            yk_tensor_release(output->kept_grad);
            output->kept_grad = grad;
        } else {
            yk_tensor_release(grad);
        }
    }
}

/* Runs one node on the gradients of its outputs. */
static yk_status run_node(yk__task *task, yk__node *node)
{
    if (!node->op)
        return run_leaf(node);
    bool any = false;
    for (int i = 0; i < node->n_outputs; i++) {
        yk_status status = node->outputs[i].grad && node->outputs[i].n_hooks ? run_hooks(node, i) : YK_OK;
        if (status)
            return status;
        any = any || node->outputs[i].grad;
    }
    yk_tensor *few[8] = {NULL}, **grads = few;
    if (node->n_inputs > 8 && !(grads = yk__calloc((size_t)node->n_inputs, sizeof(*grads))))
        return YK_ERR_MEMORY;
    yk_status status = call_backward(node, any, grads);
    drop_gradients(node);
    if (!task->retain_graph)
        yk__node_free_saved(node);
    YK__ASSERT_SOUND(yk__node_check(node));
    for (int i = 0; i < node->n_inputs && !status; i++) {
        if (grads[i] && node->edges[i].node)
            status = check_gradient(node, i, node->edges[i].node, node->edges[i].output, grads[i]);
    }
    task_lock(task);
    for (int i = 0; i < node->n_inputs; i++) {
        yk_tensor *delivered = grads[i];
        grads[i] = NULL;
        if (status || !node->edges[i].node) {
            if (delivered)
                yk_tensor_release(delivered);
        } else {
            status = deliver(task, node, i, delivered);
        }
    }
    task_unlock(task);
    if (grads != few)
        free(grads);
    return status;
}

/* Waits until something comes into the queue or the task is over: looks a while, as what comes usually comes soon, then
 * sleeps. Called with the lock held. */
static void wait_for_work(yk__task *task, device_queue *queue)
{
    double began = yk__now();
    unsigned filled = atomic_load_explicit(&queue->filled, memory_order_relaxed);
    task_unlock(task);
    for (int spin = yk__device_spins(); spin > 0; spin--) {
        if (atomic_load_explicit(&queue->filled, memory_order_acquire) != filled || atomic_load(&task->over))
            break;
        yk__device_pause();
    }
    task_lock(task);
    task->sleepers++;
    while (!queue->heap.count && !atomic_load(&task->over))
        pthread_cond_wait(&task->changed, &task->lock);
    task->sleepers--;
    queue->waited += yk__now() - began;
}

static pthread_mutex_t spent_lock = PTHREAD_MUTEX_INITIALIZER;
static double spent[YK__DEVICE_TYPES][INT8_MAX];
static atomic_bool spent_asked; /* before that no clock is read: only differences mean anything */

double yk__backward_seconds(yk_device device)
{
    atomic_store_explicit(&spent_asked, true, memory_order_relaxed);
    pthread_mutex_lock(&spent_lock);
    double seconds = spent[device.type][device.index];
    pthread_mutex_unlock(&spent_lock);
    return seconds;
}

static void add_spent(yk_device device, double seconds)
{
    pthread_mutex_lock(&spent_lock);
    spent[device.type][device.index] += seconds;
    pthread_mutex_unlock(&spent_lock);
}

/* Says in which state the task is, to those who wait. Called with the lock held. */
static void announce(yk__task *task)
{
    if (!task->left || task->error.code)
        atomic_store(&task->over, true);
    if (task->sleepers)
        pthread_cond_broadcast(&task->changed);
}

/* Runs the nodes of one device until the whole task is done or has failed. */
static void work(yk__task *task, int q)
{
    device_queue *queue = &task->queues[q];
    bool timed = atomic_load_explicit(&spent_asked, memory_order_relaxed);
    double began = timed ? yk__now() : 0;
    bool previous = yk_no_grad_begin(), for_backward = yk__memory_for_backward;
    yk__memory_for_backward = true;
    task_lock(task);
    for (;;) {
        if (task->parallel && !queue->heap.count && !atomic_load(&task->over))
            wait_for_work(task, queue);
        if (!task->left || task->error.code || !queue->heap.count)
            break;
        yk__node *node = heap_pop(&queue->heap);
        YK__ASSERT_SOUND(queue->heap.count & (queue->heap.count - 1) /* a look at all of a long queue is long */
                             ? NULL
                             : yk__ready_nodes_check(queue->heap.nodes, queue->heap.count));
        task_unlock(task);
        yk_status status = task->parallel ? sum_contributions(node) : YK_OK;
        if (!status)
            status = run_node(task, node);
        task_lock(task);
        task->left--;
        if (status && !task->error.code) {
            char device[16];
            if (task->parallel)
                yk__error_prefix("backward on %s", yk_device_format(queue->device, device));
            yk__error_take(&task->error);
        }
        if (task->parallel)
            announce(task);
    }
    task_unlock(task);
    if (timed)
        add_spent(queue->device, yk__now() - began - queue->waited);
    yk__memory_for_backward = for_backward;
    yk__memory_maker = NULL;
    yk_no_grad_end(previous);
}

static void device_work(void *argument)
{
    device_queue *queue = argument;
    work(queue->task, (int)(queue - queue->task->queues));
    yk_clear_error();
}

/* With one device there is nothing to lock and nobody to wait for. */
static void run_parallel(yk__task *task)
{
    pthread_mutexattr_t attributes; /* what is done under the lock is shorter than a sleep */
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&task->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    pthread_cond_init(&task->changed, NULL);
    for (int q = 1; q < task->n_queues; q++) {
        device_queue *queue = &task->queues[q];
        queue->started = yk__device_job_start(&queue->job, queue->device, device_work, queue) == YK_OK;
        if (!queue->started) {
            task_lock(task);
            yk__error_prefix("backward");
            if (task->error.code)
                yk_clear_error();
            else
                yk__error_take(&task->error);
            announce(task);
            task_unlock(task);
        }
    }
    work(task, 0);
    for (int q = 1; q < task->n_queues; q++) {
        if (task->queues[q].started)
            yk__device_job_wait(&task->queues[q].job);
    }
    pthread_mutex_destroy(&task->lock);
    pthread_cond_destroy(&task->changed);
}

static yk_status run(yk__task *task)
{
    if (task->parallel)
        run_parallel(task);
    else
        work(task, 0);
    if (!task->error.code && task->left) /* cannot be: every claimed node was reached from the root */
        return yk__fail(YK_ERR_INTERNAL, "backward: %zu nodes were never ready", task->left);
    if (task->error.code)
        yk__error_put(&task->error);
    return task->error.code;
}

/* The collector of the leaf that this node accumulates for. */
static yk__collector *collector_of(const yk__node *node)
{
    return node->op ? NULL : yk__collector_of(node->leaf);
}

/* ---- who waits for a backward ----------------------------------------------------------------------------------- */

static pthread_mutex_t awaiting_lock = PTHREAD_MUTEX_INITIALIZER;
static yk__collector *awaiting;

static void forget_locked(yk__collector *c)
{
    for (yk__collector **at = &awaiting; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            return;
        }
    }
}

void yk__collector_await(yk__collector *c)
{
    pthread_mutex_lock(&awaiting_lock);
    forget_locked(c);
    c->thread = pthread_self();
    c->next = awaiting;
    awaiting = c;
    pthread_mutex_unlock(&awaiting_lock);
}

void yk__collector_forget(yk__collector *c)
{
    pthread_mutex_lock(&awaiting_lock);
    forget_locked(c);
    pthread_mutex_unlock(&awaiting_lock);
}

/* The backward that this thread was to come with has failed before its walk. */
static void fail_awaiting(void)
{
    for (;;) {
        pthread_mutex_lock(&awaiting_lock);
        yk__collector *c = awaiting;
        while (c && !pthread_equal(c->thread, pthread_self()))
            c = c->next;
        if (c)
            forget_locked(c);
        pthread_mutex_unlock(&awaiting_lock);
        if (!c)
            return;
        c->failed(c);
    }
}

/* Tells everyone who collects gradients of leaves that were claimed. */
static yk_status begin_collectors(yk__task *task)
{
    int *indices = NULL, leaves = 0;
    for (size_t n = 0; n < task->claimed.count; n++) {
        yk__collector *collector = collector_of(task->claimed.nodes[n]);
        bool known = !collector;
        for (int i = 0; i < task->n_collectors && !known; i++)
            known = task->collectors[i] == collector;
        leaves += collector != NULL;
        if (known)
            continue;
        yk__collector **grown = yk__realloc(task->collectors, sizeof(*grown) * (size_t)(task->n_collectors + 1));
        if (!grown)
            return YK_ERR_MEMORY;
        task->collectors = grown;
        task->collectors[task->n_collectors++] = collector;
    }
    if (!leaves)
        return YK_OK;
    indices = yk__calloc((size_t)leaves, sizeof(*indices));
    yk_status status = indices ? YK_OK : YK_ERR_MEMORY;
    while (!status && task->begun < task->n_collectors) {
        yk__collector *collector = task->collectors[task->begun];
        int count = 0;
        for (size_t n = 0; n < task->claimed.count; n++) {
            if (collector_of(task->claimed.nodes[n]) == collector)
                indices[count++] = yk__meta(task->claimed.nodes[n]->leaf)->collector_index;
        }
        yk__collector_forget(collector);
        status = collector->begin(collector, count, indices);
        task->begun += !status;
    }
    free(indices);
    return status;
}

static yk_status end_collectors(yk__task *task, yk_status status)
{
    for (int i = 0; i < task->begun; i++) {
        yk_status ended = task->collectors[i]->end(task->collectors[i], status);
        status = status ? status : ended;
    }
    return status;
}

/* Member by member: all of it is a kilobyte, more than a small graph needs. */
static void task_init(yk__task *task, bool retain_graph)
{
    list_init(&task->claimed);
    task->collectors = NULL;
    task->n_collectors = task->begun = task->n_queues = task->sleepers = 0;
    task->queues = &task->first;
    task->retain_graph = retain_graph;
    task->parallel = false;
    task->left = 0;
    atomic_init(&task->over, false);
    task->error.code = YK_OK;
}

static void task_clear(yk__task *task)
{
    for (size_t i = 0; i < task->claimed.count; i++) {
        yk__node *node = task->claimed.nodes[i];
        for (int o = 0; o < node->n_outputs; o++) {
            yk__output *output = &node->outputs[o];
            while (output->contributions) {
                yk__contribution *term = output->contributions;
                output->contributions = term->next;
                yk_tensor_release(term->grad);
                free(term);
            }
            yk_tensor_release(output->grad);
            output->grad = NULL;
        }
        atomic_store_explicit(&node->owner, NULL, memory_order_release);
    }
    for (int q = 0; q < task->n_queues; q++)
        list_free(&task->queues[q].heap);
    if (task->queues != &task->first)
        free(task->queues);
    free(task->collectors);
    list_free(&task->claimed);
}

static yk_tensor *root_gradient(yk_tensor *root, yk_tensor *given)
{
    char a[200], b[200];
    if (!given && root->numel != 1) {
        yk__fail(YK_ERR_SHAPE,
                 "backward: the tensor has shape %s; without a gradient of its own only one with a single element can "
                 "be walked from",
                 yk_shape_format(root, a, sizeof(a)));
        return NULL;
    }
    if (!given)
        return yk__tensor_full_like(root, 1);
    yk_tensor *both[2] = {root, given};
    if (yk__same_device("backward", 2, both))
        return NULL;
    if (!yk_same_shape(root, given) || root->dtype != given->dtype) {
        yk__fail(YK_ERR_SHAPE, "backward: the gradient is %s of %s, the tensor %s of %s",
                 yk_shape_format(given, a, sizeof(a)), yk_dtype_name((yk_dtype)given->dtype),
                 yk_shape_format(root, b, sizeof(b)), yk_dtype_name((yk_dtype)root->dtype));
        return NULL;
    }
    return yk_tensor_retain(given);
}

/* Up to the walk and through it; *walked says how far it came. */
static yk_status backward(yk_tensor *root, const yk_backward_options *options, bool *walked)
{
    YK__LIVE(root);
    yk_backward_options o = options ? *options : (yk_backward_options){0};
    if (yk__is_freed(o.gradient))
        return yk__fail_freed(__func__, o.gradient);
    if (!root)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "backward: the tensor is NULL");
    YK__OWN_RECORD;
    int output;
    yk__node *node = yk__gradient_node(root, &output);
    if (!node)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_STATE,
                                           "backward: the tensor does not require a gradient and was not made from any "
                                           "that does");
    yk__task task;
    task_init(&task, o.retain_graph);
    yk_tensor *kept = yk_tensor_retain(root); /* a hook may drop the last reference */
    yk_status status = claim_graph(&task, node);
    if (!status)
        status = make_queues(&task, node);
    if (!status) {
        node->outputs[output].grad = root_gradient(root, o.gradient);
        status = node->outputs[output].grad ? YK_OK : yk__error_code();
    }
    if (!status)
        status = begin_collectors(&task);
    *walked = !status;
    if (!status) {
        task.left = task.claimed.count;
        heap_push(&task.queues[0].heap, node);
        status = run(&task);
    }
    status = end_collectors(&task, status);
    task_clear(&task);
    yk_tensor_release(kept);
    return status;
}

yk_status yk_backward_with(yk_tensor *root, const yk_backward_options *options)
{
    bool walked = false;
    yk_status status = backward(root, options, &walked);
    if (status && !walked)
        fail_awaiting();
    return status;
}

yk_status yk_backward(yk_tensor *root)
{
    return yk_backward_with(root, NULL);
}
