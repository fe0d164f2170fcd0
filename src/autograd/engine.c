/*
 * engine.c - backward: walks the tape from the root, one thread per device. Layer: autograd.
 *
 * First the nodes that the root reaches are claimed and the edges into each are counted. A node is ready when all of
 * them have delivered; ready nodes run newest first, so memory is freed in the reverse order of the forward pass and
 * the order of sums is the same every run. The calling thread works for the root's device, and for every other device
 * that the graph touches one of that device's threads.
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
#include "base/events.h"
#include "base/invariant.h"
#include "device/device_thread.h"
#include "host/progress.h"

/* FEW_NODES: nodes that a small graph has room for without an allocation. LINE: bytes that caches exchange, at
 * least. */
enum { FEW_NODES = 16, LINE = 64 };

typedef struct node_list {
    yk__node **nodes; /* `few`, or memory of its own */
    size_t count, capacity;
    yk__node *few[FEW_NODES];
} node_list;

typedef struct device_queue {
    /* Members that the device's thread alone uses. */
    _Alignas(LINE) yk_device device;
    node_list heap; /* by sequence, largest first */
    size_t left;    /* its nodes that have not run */
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
    node_list claimed;
    yk__collectors collectors;
    device_queue *queues; /* `first`, or memory of its own */
    device_queue first;
    int n_queues;
    bool retain_graph;
    bool parallel; /* more than one device */
    atomic_bool failed;
    yk_error error;
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

/* A claimed node is in the heap at most once, so room for all nodes of the device was made before the walk. */
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

/* ---- before the walk --------------------------------------------------------------------------------------------- */

static yk_status claim(yk__task *task, yk__node *node)
{
    yk__task *owner = NULL;
    if (!yk__one_thread())
        atomic_compare_exchange_strong(&node->owner, &owner, task);
    else if (!(owner = atomic_load_explicit(&node->owner, memory_order_relaxed)))
        atomic_store_explicit(&node->owner, task, memory_order_relaxed);
    if (owner)
        return yk__fail(YK_ERR_STATE, "backward: another backward is walking this graph (at %s)", node->head.name);
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
                node->head.name);
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
    list_init(&queue->heap);
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

/* The queues of a graph over several devices, the root's first. */
static yk_status make_several(yk__task *task, yk__node *root)
{
    size_t room = 4;
    task->queues = NULL;
    for (size_t n = 0; n < task->claimed.count; n++) {
        yk_device device = n ? task->claimed.nodes[n]->device : root->device;
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
            queue->n_terms += node->edges[i].node && needs_term(node, node->edges[i].node);
    }
    for (int q = 0; q < task->n_queues; q++) {
        device_queue *queue = &task->queues[q];
        if (queue->n_terms && !(queue->terms = lines_alloc(queue->n_terms, sizeof(*queue->terms))))
            return YK_ERR_MEMORY;
    }
    return YK_OK;
}

/* One queue per device of the graph, each with room for its nodes. */
static yk_status make_queues(yk__task *task, yk__node *root)
{
    for (size_t n = 1; n < task->claimed.count && !task->parallel; n++)
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
        node_list *heap = &task->queues[q].heap;
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
    atomic_store_explicit(&node->owner, NULL, memory_order_release);
}

static void count_down(device_queue *queue, yk__node *node)
{
    if (--node->pending == 0)
        heap_push(&queue->heap, node);
}

/* Takes the contributions that other threads have put into the inbox; called by the thread of the queue. */
static void receive(device_queue *queue)
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
static yk_status deliver(yk__task *task, device_queue *queue, const yk__node *from, int input, yk_tensor *grad)
{
    yk__node *node = from->edges[input].node;
    int which = from->edges[input].output;
    yk__output *to = &node->outputs[which];
    bool here = !task->parallel || yk_device_equal(node->device, queue->device);
    yk_status status = YK_OK;
    if (here && (!grad || !task->parallel)) {
        if (grad)
            status = yk__gradient_deliver(node, which, grad, node->pending == 1);
        if (!task->parallel && !node->op && node->pending == 1) {
            node->pending = 0;
            status = status ? status : yk__node_run(node, task->retain_graph, NULL);
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
                status = yk__gradient_deliver(node, i, term->grad, !output->contributions);
        }
    }
    return status;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* Runs one node on the gradients of its outputs, and delivers those of its inputs. */
static yk_status run_node(yk__task *task, device_queue *queue, yk__node *node)
{
    yk_tensor *few[8] = {NULL}, **grads = few;
    yk_status status = task->parallel ? sum_contributions(node) : YK_OK;
    if (status)
        return status;
    if (node->n_inputs > 8 && !(grads = yk__calloc((size_t)node->n_inputs, sizeof(*grads))))
        return YK_ERR_MEMORY;
    status = yk__node_run(node, task->retain_graph, grads);
    for (int i = 0; i < node->n_inputs; i++) {
        yk_tensor *delivered = grads[i];
        grads[i] = NULL;
        if (status || !node->edges[i].node) {
            if (delivered)
                yk_tensor_release(delivered);
        } else {
            status = deliver(task, queue, node, i, delivered);
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
    bool previous = yk_no_grad_begin(), for_backward = yk__operation_is_backward;
    yk__operation_is_backward = true;
    while (queue->left && !atomic_load_explicit(&task->failed, memory_order_relaxed)) {
        if (task->parallel) {
            receive(queue);
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
    yk_no_grad_end(previous);
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
            return yk__fail(YK_ERR_INTERNAL, "backward: %zu nodes were never ready", task->queues[q].left);
    }
    if (task->error.code)
        yk__error_put(&task->error);
    return task->error.code;
}

/* ---- a backward -------------------------------------------------------------------------------------------------- */

/* Initialises the members that a small graph needs: the whole task is a kilobyte. */
static void task_init(yk__task *task, bool retain_graph)
{
    list_init(&task->claimed);
    task->collectors = (yk__collectors){0};
    task->n_queues = 0;
    task->queues = &task->first;
    task->retain_graph = retain_graph;
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
        atomic_store_explicit(&node->owner, NULL, memory_order_release);
    }
    for (int q = 0; q < task->n_queues; q++) {
        list_free(&task->queues[q].heap);
        free(task->queues[q].terms);
    }
    if (task->queues != &task->first)
        free(task->queues);
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

/* Runs backward up to the walk and through it; *walked is true once the walk has begun. */
static yk_status backward(yk_tensor *root, const yk_backward_options *options, bool *walked)
{
    YK__LIVE(root);
    yk_backward_options o;
    if (YK__OPTIONS_TAKE("backward", yk_backward_options, options, &o))
        return YK_ERR_ARGUMENT;
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
        status = yk__collectors_begin(&task.collectors, task.claimed.count, task.claimed.nodes);
    *walked = !status;
    if (!status) {
        heap_push(&task.queues[0].heap, node);
        status = task_run(&task);
    }
    status = yk__collectors_end(&task.collectors, status);
    task_clear(&task);
    yk_tensor_release(kept);
    return status;
}

yk_status yk_backward_with(yk_tensor *root, const yk_backward_options *options)
{
    bool walked = false;
    YK__EVENT(YK__EVENT_BACKWARD, "backward");
    (void)yk__progress_phase(YK__PHASE_BACKWARD);
    yk_status status = backward(root, options, &walked);
    if (status && !walked)
        yk__collectors_fail_awaiting();
    (void)yk__progress_phase(YK__PHASE_NONE);
    return status;
}

yk_status yk_backward(yk_tensor *root)
{
    return yk_backward_with(root, NULL);
}
