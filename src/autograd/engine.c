/*
 * engine.c - backward: walks the tape from the root, one thread per device. Layer: autograd.
 *
 * First the nodes that the root reaches are claimed and the edges into each are counted (claim.c). A node is ready when
 * all of them have delivered; ready nodes run newest first, so memory is freed in the reverse order of the forward pass
 * and the order of sums is the same every run. The calling thread works for the root's device, and for every other
 * device that the graph touches one of that device's threads.
 *
 * The walk takes no locks. A node belongs to its device: after the walk has begun that device's thread alone reads and
 * writes what is in it, and its queue of ready nodes. A gradient for a node of another device goes as a message to that
 * device's inbox, a list that senders push to and the thread takes as a whole. With several devices sums wait until all
 * their terms are there and are then added in the order of recording, so that the threads' timing never shows in the
 * bits.
 *
 *     thread of cpu:0                                      thread of cpu:1
 *     ready: newest first --> run --> deliver ---------------> inbox
 *        ^                               |                       | taken before each node
 *        +------ all terms came <--------+                       v
 *        inbox <------------------------------- deliver <-- run <-- ready
 *
 * A thread is done when the nodes of its device are. Messages lie in memory of the sender's queue, which was made for
 * as many as there are edges that need one, so delivering cannot fail.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/engine.h"
#include "base/invariant.h"
#include "device/device_thread.h"

enum { LINE = 64 }; /* bytes that caches exchange, at least */

typedef struct device_queue {
    /* Members that the device's thread alone uses. */
    _Alignas(LINE) yk_device device;
    yk__node_list heap; /* by sequence, largest first */
    size_t left;        /* its nodes that have not run */
    yk__contribution *terms;
    size_t n_terms, used_terms;
    struct yk__task *task;
    double waited; /* seconds */
    bool started;
    yk__device_job job;
    /* Members that all threads use. */
    _Alignas(LINE) yk__contribution *_Atomic inbox; /* newest first */
    atomic_bool sleeping;
    atomic_uint woken; /* the word that it sleeps on: the number of times that it was woken */
} device_queue;

struct yk__task {
    yk__node_list claimed;
    yk__collectors collectors;
    device_queue *queues; /* `first`, or memory of its own */
    device_queue first;
    int n_queues;
    const yk__request *request;
    yk__walk walk;
    bool
        parallel; /* more than one device, and not recorded: the order of what is recorded must not depend on threads */
    atomic_bool failed;
    yk_error error;
};

/* A claimed node is in the heap at most once, so room for all nodes of the device was made before the walk. */
static void heap_push(yk__node_list *heap, yk__node *node)
{
    size_t i = heap->count++;
    while (i > 0 && heap->nodes[(i - 1) / 2]->sequence < node->sequence) {
        heap->nodes[i] = heap->nodes[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap->nodes[i] = node;
}

static yk__node *heap_pop(yk__node_list *heap)
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

/* ---- before the walk --------------------------------------------------------------------------------------------- */

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
    yk__node_list_init(&queue->heap);
    queue->left = queue->n_terms = queue->used_terms = 0;
    queue->terms = NULL;
    queue->task = task;
    queue->waited = 0;
    queue->started = false;
    atomic_init(&queue->inbox, NULL);
    atomic_init(&queue->sleeping, false);
    atomic_init(&queue->woken, 0);
}

/* Memory whose lines nothing else is in. */
static void *lines_alloc(size_t count, size_t size)
{
    void *memory = aligned_alloc(LINE, (count * size + LINE - 1) / LINE * LINE);
    if (!memory)
        yk__fail_memory(count * size);
    return memory;
}

/* True for an edge of a parallel task whose gradient does not simply become that of the node it leads to. */
static bool needs_term(const yk__node *from, const yk__node *to)
{
    return to->pending > 1 || !yk_device_equal(from->device, to->device);
}

/* The queues of a graph over several devices, the first root's first. */
static yk_status make_several(yk__task *task, const yk__node *root)
{
    size_t room = 4;
    task->queues = NULL;
    for (size_t n = 0; n <= task->claimed.count; n++) {
        yk_device device = n ? task->claimed.nodes[n - 1]->device : root->device;
        if (queue_of(task, device))
            continue;
        if (!task->queues || (size_t)task->n_queues == room) {
            room *= 2;
            device_queue *grown = lines_alloc(room, sizeof(*grown));
            if (!grown)
                return YK_ERR_MEMORY;
            for (int q = 0; q < task->n_queues; q++)
                queue_init(&grown[q], task, task->queues[q].device);
            free(task->queues);
            task->queues = grown;
        }
        queue_init(&task->queues[task->n_queues++], task, device);
    }
    for (size_t n = 0; n < task->claimed.count; n++) {
        const yk__node *node = task->claimed.nodes[n];
        device_queue *queue = queue_of(task, node->device);
        queue->left++;
        for (int i = 0; i < node->n_inputs; i++)
            queue->n_terms += node->edges[i].node && !node->edges[i].skipped && needs_term(node, node->edges[i].node);
    }
    for (int q = 0; q < task->n_queues; q++) {
        device_queue *queue = &task->queues[q];
        if (queue->n_terms && !(queue->terms = lines_alloc(queue->n_terms, sizeof(*queue->terms))))
            return YK_ERR_MEMORY;
    }
    return YK_OK;
}

/* One queue per device of the graph, each with room for its nodes. */
static yk_status make_queues(yk__task *task, const yk__node *root)
{
    for (size_t n = 0; n < task->claimed.count && !task->parallel && !task->walk.create_graph; n++)
        task->parallel = !yk_device_equal(task->claimed.nodes[n]->device, root->device);
    if (task->parallel) {
        yk_status status = make_several(task, root);
        if (status)
            return status;
    } else {
        queue_init(&task->first, task, root->device);
        task->first.left = task->claimed.count;
        task->n_queues = 1;
    }
    for (int q = 0; q < task->n_queues; q++) {
        yk__node_list *heap = &task->queues[q].heap;
        size_t most = task->queues[q].left;
        if (most <= heap->capacity)
            continue;
        yk__node **room = yk__calloc(most, sizeof(*room));
        if (!room)
            return YK_ERR_MEMORY;
        heap->nodes = room;
        heap->capacity = most;
    }
    return YK_OK;
}

/* ---- delivering -------------------------------------------------------------------------------------------------- */

/* Puts a term where it belongs among those that have come. */
static void keep_term(yk__output *output, yk__contribution *term)
{
    yk__contribution **at = &output->contributions;
    while (*at &&
           ((*at)->sequence > term->sequence || ((*at)->sequence == term->sequence && (*at)->input < term->input)))
        at = &(*at)->next;
    term->next = *at;
    *at = term;
}

/* Gives up the claim on a node that is done, so that another backward may claim it. */
static void node_release_claim(device_queue *queue, yk__node *node)
{
    queue->left--;
    yk__node_unclaim(node);
}

static void count_down(device_queue *queue, yk__node *node)
{
    if (--node->pending == 0)
        heap_push(&queue->heap, node);
}

/* Takes the contributions that other threads have put into the inbox; called by the thread of the queue. */
static void inbox_take(device_queue *queue)
{
    if (!atomic_load_explicit(&queue->inbox, memory_order_relaxed))
        return;
    yk__contribution *next = atomic_exchange_explicit(&queue->inbox, NULL, memory_order_acquire);
    while (next) {
        yk__contribution *term = next;
        yk__node *node = term->to;
        next = term->next;
        if (term->grad)
            keep_term(&node->outputs[term->output], term);
        count_down(queue, node);
    }
}

static void wake(device_queue *queue)
{
    if (!atomic_load(&queue->sleeping))
        return;
    atomic_fetch_add(&queue->woken, 1);
    yk__device_wake(&queue->woken);
}

/* Sends a term to the queue of another device, whose memory is there until this thread's job is done: nothing touches
 * the queue after this. */
static void term_send(device_queue *to, yk__contribution *term)
{
    term->next = atomic_load_explicit(&to->inbox, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&to->inbox, &term->next, term))
        ;
    wake(to);
}

/* Takes over the gradient for an input of `from`, a node of the queue; NULL is zero. Where there is one device, a leaf
 * that has got everything is done with at once: it is what the queue would give next. */
static yk_status gradient_deliver(yk__task *task, device_queue *queue, const yk__node *from, int input, yk_tensor *grad)
{
    yk__node *node = from->edges[input].node;
    int which = from->edges[input].output;
    yk__output *to = &node->outputs[which];
    bool here = !task->parallel || yk_device_equal(node->device, queue->device);
    yk_status status = YK_OK;
    if (here && (!grad || !task->parallel)) {
        if (grad)
            status = yk__gradient_deliver(&task->walk, node, which, grad, node->pending == 1);
        if (!task->parallel && !node->op && node->pending == 1) {
            node->pending = 0;
            status = status ? status : yk__node_run(node, &task->walk, NULL);
            if (!status)
                node_release_claim(queue, node);
            return status;
        }
    } else if (here && node->pending == 1 && !to->contributions && !to->grad) {
        to->grad = grad; /* the last to come, and alone: there is nothing to put in order */
    } else {
        yk__contribution *term = &queue->terms[queue->used_terms++];
        *term =
            (yk__contribution){.to = node, .output = which, .sequence = from->sequence, .input = input, .grad = grad};
        if (!here) {
            term_send(queue_of(task, node->device), term);
            return YK_OK;
        }
        keep_term(to, term);
    }
    count_down(queue, node);
    return status;
}

static yk_status sum_contributions(const yk__task *task, yk__node *node)
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
                status = yk__gradient_deliver(&task->walk, node, i, term->grad, !output->contributions);
        }
    }
    return status;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* Runs one node on the gradients of its outputs, and delivers those of its inputs. */
static yk_status run_node(yk__task *task, device_queue *queue, yk__node *node)
{
    yk_tensor *few[8] = {NULL}, **grads = few;
    yk_status status = task->parallel ? sum_contributions(task, node) : YK_OK;
    if (status)
        return status;
    if (node->n_inputs > 8 && !(grads = yk__calloc((size_t)node->n_inputs, sizeof(*grads))))
        return YK_ERR_MEMORY;
    status = yk__node_run(node, &task->walk, grads);
    for (int i = 0; i < node->n_inputs; i++) {
        yk_tensor *delivered = grads[i];
        bool skipped = node->edges[i].skipped;
        grads[i] = NULL;
        node->edges[i].skipped = false;
        if (status || !node->edges[i].node || skipped) {
            if (delivered)
                yk_tensor_release(delivered);
        } else {
            status = gradient_deliver(task, queue, node, i, delivered);
        }
    }
    if (grads != few)
        free(grads);
    return status;
}

/* Waits until something is in the inbox or the task has failed: looks a while, as what comes usually comes soon, then
 * sleeps. */
static void wait_for_message(yk__task *task, device_queue *queue)
{
    double began = yk__now();
    for (int spin = yk__device_spins(); spin > 0; spin--) {
        if (atomic_load_explicit(&queue->inbox, memory_order_relaxed) ||
            atomic_load_explicit(&task->failed, memory_order_relaxed))
            break;
        yk__device_pause();
    }
    for (;;) {
        unsigned seen = atomic_load(&queue->woken);
        if (atomic_load(&queue->inbox) || atomic_load(&task->failed))
            break;
        atomic_store(&queue->sleeping, true);
        if (!atomic_load(&queue->inbox) && !atomic_load(&task->failed)) /* senders look at `sleeping` after they push */
            yk__device_sleep(&queue->woken, seen);
        atomic_store(&queue->sleeping, false);
    }
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

/* The thread's error record becomes that of the task, unless another was first; all threads learn of it. */
static void fail_task(yk__task *task)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    if (task->error.code)
        yk_clear_error();
    else
        yk__error_take(&task->error);
    pthread_mutex_unlock(&lock);
    atomic_store(&task->failed, true);
    for (int q = 0; q < task->n_queues; q++)
        wake(&task->queues[q]);
}

/* Runs the nodes of one device until all are done, or the whole task has failed. */
static void queue_work(yk__task *task, device_queue *queue)
{
    bool timed = atomic_load_explicit(&spent_asked, memory_order_relaxed);
    double began = timed ? yk__now() : 0;
    bool previous = yk_set_grad_enabled(task->walk.create_graph), for_backward = yk__operation_is_backward;
    yk__operation_is_backward = true;
    while (queue->left && !atomic_load_explicit(&task->failed, memory_order_relaxed)) {
        if (task->parallel) {
            inbox_take(queue);
            if (!queue->heap.count) {
                wait_for_message(task, queue);
                continue;
            }
        } else if (!queue->heap.count) {
            break;
        }
        yk__node *node = heap_pop(&queue->heap);
        YK__ASSERT_SOUND(queue->heap.count & (queue->heap.count - 1) /* a look at all of a long queue is long */
                             ? NULL
                             : yk__ready_nodes_check(queue->heap.nodes, queue->heap.count));
        yk_status status = run_node(task, queue, node);
        if (!status) {
            node_release_claim(queue, node);
        } else {
            char device[16];
            if (task->parallel)
                yk__error_prefix("backward on %s", yk_device_format(queue->device, device));
            fail_task(task);
        }
    }
    if (timed)
        add_spent(queue->device, yk__now() - began - queue->waited);
    yk__operation_is_backward = for_backward;
    yk__operation_name = NULL;
    (void)yk_set_grad_enabled(previous);
}

static void device_work(void *argument)
{
    device_queue *queue = argument;
    queue_work(queue->task, queue);
    yk_clear_error();
}

static void run_parallel(yk__task *task)
{
    for (int q = 1; q < task->n_queues; q++) {
        device_queue *queue = &task->queues[q];
        queue->started = yk__device_job_start(&queue->job, queue->device, device_work, queue) == YK_OK;
        if (!queue->started) {
            yk__error_prefix("backward");
            fail_task(task);
        }
    }
    queue_work(task, &task->queues[0]);
    for (int q = 1; q < task->n_queues; q++) {
        if (task->queues[q].started)
            yk__device_job_wait(&task->queues[q].job);
    }
}

static yk_status task_run(yk__task *task)
{
    if (task->parallel)
        run_parallel(task);
    else
        queue_work(task, &task->queues[0]);
    for (int q = 0; q < task->n_queues && !task->error.code; q++) {
        if (task->queues[q].left) /* cannot be: every claimed node was reached from the root */
            return yk__fail(YK_ERR_INTERNAL, "%s: %zu nodes were never ready", task->request->name,
                            task->queues[q].left);
    }
    if (task->error.code)
        yk__error_put(&task->error);
    return task->error.code;
}

/* ---- a backward -------------------------------------------------------------------------------------------------- */

/* Initialises the members that a small graph needs: the whole task is a kilobyte. */
static void task_init(yk__task *task, const yk__request *r)
{
    yk__node_list_init(&task->claimed);
    task->request = r;
    task->collectors = (yk__collectors){0};
    task->n_queues = 0;
    task->queues = &task->first;
    task->walk = (yk__walk){.retain_graph = r->retain_graph || r->create_graph, .create_graph = r->create_graph};
    task->parallel = false;
    atomic_init(&task->failed, false);
    task->error.code = YK_OK;
}

static void release_terms(yk__contribution *term)
{
    for (; term; term = term->next)
        yk_tensor_release(term->grad);
}

static void task_clear(yk__task *task)
{
    size_t left = 0;
    for (int q = 0; q < task->n_queues; q++) {
        release_terms(atomic_load(&task->queues[q].inbox));
        left += task->queues[q].left;
    }
    bool walked = task->n_queues && !left && !atomic_load(&task->failed); /* then all nodes were left */
    for (size_t i = 0; i < task->claimed.count && !walked; i++) {
        yk__node *node = task->claimed.nodes[i];
        if (atomic_load_explicit(&node->owner, memory_order_relaxed) != task)
            continue;
        for (int o = 0; o < node->n_outputs; o++) {
            yk__output *output = &node->outputs[o];
            release_terms(output->contributions);
            output->contributions = NULL;
            yk_tensor_release(output->grad);
            yk_tensor_release(output->addend);
            output->grad = output->addend = NULL;
        }
        for (int e = 0; e < node->n_inputs; e++)
            node->edges[e].skipped = false;
        yk__node_unclaim(node);
    }
    for (int i = 0; i < task->walk.n_captures; i++)
        yk_tensor_release(task->walk.captures[i].grad);
    free(task->walk.captures);
    for (int q = 0; q < task->n_queues; q++) {
        yk__node_list_free(&task->queues[q].heap);
        free(task->queues[q].terms);
    }
    if (task->queues != &task->first)
        free(task->queues);
    yk__node_list_free(&task->claimed);
}

static yk_tensor *root_gradient(const char *name, yk_tensor *root, yk_tensor *given)
{
    char a[200], b[200];
    if (!given && root->numel != 1) {
        yk__fail(YK_ERR_SHAPE,
                 "%s: the tensor has shape %s; without a gradient of its own only one with a single element can "
                 "be walked from",
                 name, yk_shape_format(root, a, sizeof(a)));
        return NULL;
    }
    if (!given)
        return yk__tensor_full_like(root, 1);
    yk_tensor *both[2] = {root, given};
    if (yk__same_device(name, 2, both))
        return NULL;
    if (!yk_same_shape(root, given) || root->dtype != given->dtype) {
        yk__fail(YK_ERR_SHAPE, "%s: the gradient is %s of %s, the tensor %s of %s", name,
                 yk_shape_format(given, a, sizeof(a)), yk_dtype_name((yk_dtype)given->dtype),
                 yk_shape_format(root, b, sizeof(b)), yk_dtype_name((yk_dtype)root->dtype));
        return NULL;
    }
    return yk_tensor_retain(given);
}

/* Finds the nodes of tensors, and their outputs there; returns the first tensor that has none, or `count`. */
static int find_nodes(yk_tensor *const *tensors, int count, yk__node **nodes, int *outputs)
{
    int i = 0;
    while (i < count && (nodes[i] = yk__gradient_node(tensors[i], &outputs[i])))
        i++;
    return i;
}

static yk_status find_roots(const yk__request *r, yk__node **nodes, int *outputs)
{
    if (find_nodes(r->roots, r->n_roots, nodes, outputs) == r->n_roots)
        return YK_OK;
    return yk__error_code()
               ? yk__error_code()
               : yk__fail(YK_ERR_STATE,
                          "%s: the tensor does not require a gradient and was not made from any that does", r->name);
}

static yk_status find_inputs(const yk__request *r, yk__node **nodes, int *outputs)
{
    int found = find_nodes(r->inputs, r->n_inputs, nodes, outputs);
    if (found == r->n_inputs)
        return YK_OK;
    return yk__error_code()
               ? yk__error_code()
               : yk__fail(YK_ERR_STATE, "%s: input %d of %d does not require a gradient", r->name, found, r->n_inputs);
}

/* Puts the gradients of the roots where they belong; a root may be reached from another one. */
static yk_status place_gradients(yk__task *task, yk__node *const *nodes, const int *outputs)
{
    const yk__request *r = task->request;
    for (int i = 0; i < r->n_roots; i++) {
        yk_tensor *grad = root_gradient(r->name, r->roots[i], r->gradients ? r->gradients[i] : NULL);
        if (!grad)
            return yk__error_code();
        if (!yk__node_owned(task, nodes[i])) { /* it leads to none of the inputs */
            yk_tensor_release(grad);
            continue;
        }
        yk_status status = yk__gradient_deliver(&task->walk, nodes[i], outputs[i], grad, false);
        if (status)
            return status;
    }
    return YK_OK;
}

/* The nodes that nothing is to be delivered to are ready: roots, each once. */
static void push_roots(yk__task *task, yk__node *const *nodes)
{
    for (int i = 0; i < task->request->n_roots; i++) {
        bool again = !yk__node_owned(task, nodes[i]) || nodes[i]->pending;
        for (int j = 0; j < i && !again; j++)
            again = nodes[j] == nodes[i];
        if (!again)
            heap_push(task->parallel ? &queue_of(task, nodes[i]->device)->heap : &task->queues[0].heap, nodes[i]);
    }
}

/* Makes room for the gradients that are given back, or has the tensors that are no leaves keep theirs. */
static yk_status prepare_targets(yk__task *task, yk__node *const *targets, const int *outputs)
{
    const yk__request *r = task->request;
    task->walk.targeted = true;
    if (!r->gives) {
        for (int i = 0; i < r->n_inputs; i++)
            targets[i]->outputs[outputs[i]].keep_grad |= targets[i]->op != NULL;
        return YK_OK;
    }
    task->walk.captures = yk__calloc((size_t)r->n_inputs, sizeof(*task->walk.captures));
    if (!task->walk.captures)
        return YK_ERR_MEMORY;
    task->walk.n_captures = r->n_inputs;
    for (int i = 0; i < r->n_inputs; i++)
        task->walk.captures[i] = (yk__capture){.node = targets[i], .output = outputs[i]};
    return YK_OK;
}

/* Hands the gradients that were captured to the scope. */
static yk_status give_gradients(yk__task *task)
{
    const yk__request *r = task->request;
    for (int i = 0; i < r->n_inputs; i++) {
        if (!task->walk.captures[i].grad && !r->allow_unused)
            return yk__fail(YK_ERR_STATE,
                            "%s: input %d of %d has no part in the outputs; with allow_unused its gradient is NULL",
                            r->name, i, r->n_inputs);
    }
    if (!yk__scope_reserve(r->name, (size_t)r->n_inputs))
        return yk__error_code();
    for (int i = 0; i < r->n_inputs; i++) {
        yk_tensor *grad = task->walk.captures[i].grad;
        task->walk.captures[i].grad = NULL;
        r->grads[i] = grad ? yk__scope_own(grad) : NULL;
    }
    return YK_OK;
}

/* Runs the task up to the walk and through it; *walked is true once the walk has begun. */
static yk_status run_request(yk__task *task, yk__node **nodes, int *outputs, bool *walked)
{
    const yk__request *r = task->request;
    yk__node **targets = nodes + r->n_roots;
    int *target_outputs = outputs + r->n_roots;
    yk_status status = find_roots(r, nodes, outputs);
    if (!status && r->inputs)
        status = find_inputs(r, targets, target_outputs);
    if (!status && r->inputs)
        status = prepare_targets(task, targets, target_outputs);
    if (!status)
        status = r->inputs
                     ? yk__claim_paths(r->name, task, &task->claimed, r->n_roots, nodes, r->n_inputs, targets, r->gives)
                     : yk__claim_graph(r->name, task, &task->claimed, r->n_roots, nodes);
    if (!status)
        status = make_queues(task, nodes[0]);
    if (!status)
        status = place_gradients(task, nodes, outputs);
    if (!status)
        status = yk__collectors_begin(&task->collectors, task->claimed.count, task->claimed.nodes);
    *walked = !status;
    if (!status) {
        push_roots(task, nodes);
        status = task_run(task);
    }
    status = yk__collectors_end(&task->collectors, status);
    return status || !r->gives ? status : give_gradients(task);
}

yk_status yk__request_run(const yk__request *r, bool *walked)
{
    YK__OWN_RECORD;
    enum { FEW = 4 };
    int count = r->n_roots + r->n_inputs, few_outputs[FEW], *outputs = few_outputs;
    yk__node *few_nodes[FEW], **nodes = few_nodes;
    yk_tensor *few_kept[FEW], **kept = few_kept; /* a hook may drop the last reference */
    if (count > FEW) {
        nodes = yk__calloc((size_t)count, 2 * sizeof(*nodes) + sizeof(*outputs));
        if (!nodes)
            return YK_ERR_MEMORY;
        kept = (yk_tensor **)(nodes + count);
        outputs = (int *)(kept + count);
    }
    for (int i = 0; i < count; i++)
        kept[i] = yk_tensor_retain(i < r->n_roots ? r->roots[i] : r->inputs[i - r->n_roots]);
    yk__task task;
    task_init(&task, r);
    yk_status status = run_request(&task, nodes, outputs, walked);
    task_clear(&task);
    for (int i = 0; i < count; i++)
        yk_tensor_release(kept[i]);
    if (nodes != few_nodes)
        free(nodes);
    return status;
}
