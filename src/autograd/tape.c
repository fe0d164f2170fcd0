/*
 * tape.c - recording: the tensors that need gradients, the operations that made them, and the tensors that backward
 * will need. Layer: autograd.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"
#include "base/invariant.h"

/* Sets yk__recording_off and returns its old value, which the no_grad and enable_grad functions hand from begin to
 * end. */
static bool set_recording_off(bool off)
{
    bool previous = yk__recording_off;
    yk__recording_off = off;
    return previous;
}

bool yk_no_grad_begin(void)
{
    return set_recording_off(true);
}

void yk_no_grad_end(bool previous)
{
    yk__recording_off = previous;
}

bool yk_enable_grad_begin(void)
{
    return set_recording_off(false);
}

void yk_enable_grad_end(bool previous)
{
    yk__recording_off = previous;
}

bool yk_set_grad_enabled(bool enabled)
{
    return !set_recording_off(!enabled);
}

bool yk_grad_enabled(void)
{
    return yk__recording();
}

bool yk_inference_mode_begin(void)
{
    bool previous = yk__inference_mode;
    yk__inference_mode = true;
    return previous;
}

void yk_inference_mode_end(bool previous)
{
    yk__inference_mode = previous;
}

bool yk_inference_mode_enabled(void)
{
    return yk__inference_mode;
}

bool yk_is_inference(const yk_tensor *x)
{
    YK__LIVE(x);
    return x && x->inference;
}

/* ---- what hangs on a tensor ---- */

bool yk_requires_grad(const yk_tensor *x)
{
    YK__LIVE(x);
    return yk__wants_grad(x);
}

bool yk_is_leaf(const yk_tensor *x)
{
    YK__LIVE(x);
    return x && !x->node && !yk__view_stale(x);
}

const char *yk_grad_fn_name(const yk_tensor *x)
{
    YK__LIVE(x);
    if (x && yk__view_stale(x))
        return "as_strided";
    return x && x->node ? x->node->head.name : NULL;
}

yk_status yk_set_requires_grad(yk_tensor *x, bool requires_grad)
{
    YK__LIVE(x);
    if (!x)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "set_requires_grad: the tensor is NULL");
    if (!yk_is_leaf(x))
        return requires_grad ? YK_OK
                             : yk__fail(YK_ERR_STATE,
                                        "set_requires_grad: the tensor was made by %s and is no leaf; use yk_detach",
                                        yk_grad_fn_name(x));
    if (requires_grad)
        return yk__tensor_require_grad(x);
    x->requires_grad = false;
    return YK_OK;
}

yk_tensor *yk_grad(const yk_tensor *x)
{
    YK__LIVE(x);
    if (x && x->node)
        return x->node->outputs[x->output].kept_grad;
    return x && x->leaf_gradient ? x->leaf_gradient->grad : NULL;
}

yk_status yk_set_grad(yk_tensor *x, yk_tensor *grad)
{
    YK__LIVE(x);
    YK__LIVE(grad);
    if (!x)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "set_grad: the tensor is NULL");
    if (!grad && !x->leaf_gradient)
        return YK_OK;
    if (!yk_is_leaf(x))
        return yk__fail(YK_ERR_STATE, "set_grad: the tensor was made by %s; only leaves have a gradient of their own",
                        yk_grad_fn_name(x));
    if (grad && (!yk_same_shape(x, grad) || x->dtype != grad->dtype)) {
        char a[200], b[200];
        return yk__fail(YK_ERR_SHAPE, "set_grad: the gradient is %s of %s, the tensor %s of %s",
                        yk_shape_format(grad, a, sizeof(a)), yk_dtype_name((yk_dtype)grad->dtype),
                        yk_shape_format(x, b, sizeof(b)), yk_dtype_name((yk_dtype)x->dtype));
    }
    yk_tensor *both[2] = {x, grad};
    yk_status status = grad ? yk__same_device("set_grad", 2, both) : YK_OK;
    yk__leaf_gradient *meta = status ? NULL : yk__leaf_gradient_of(x);
    if (!meta)
        return yk__error_code();
    yk_tensor *old = meta->grad;
    meta->grad = yk_tensor_retain(grad);
    yk_tensor_release(old);
    return YK_OK;
}

yk_status yk__collect_gradients(yk_tensor *leaf, yk__collector *collector, int index, yk_tensor *grad_buffer)
{
    yk__leaf_gradient *meta = yk__leaf_gradient_of(leaf);
    if (!meta)
        return YK_ERR_MEMORY;
    yk_tensor *old = meta->grad_buffer;
    meta->collector = collector;
    meta->collector_index = index;
    meta->grad_buffer = yk_tensor_retain(grad_buffer);
    yk_tensor_release(old);
    return YK_OK;
}

yk__collector *yk__collector_of(const yk_tensor *leaf)
{
    return leaf->leaf_gradient ? leaf->leaf_gradient->collector : NULL;
}

yk_tensor *yk__grad_buffer_of(const yk_tensor *leaf)
{
    return leaf->leaf_gradient ? leaf->leaf_gradient->grad_buffer : NULL;
}

yk_tensor *yk_detach(yk_tensor *x)
{
    YK__LIVE(x);
    return yk__is_there("detach", "tensor", x) && yk__scope_check("detach") ? yk__scope_own(yk__tensor_alias(x)) : NULL;
}

yk_tensor *yk_data(yk_tensor *x)
{
    YK__LIVE(x);
    return yk__is_there("data", "tensor", x) && yk__scope_check("data")
               ? yk__scope_own(yk__tensor_share(x, yk__device_of(x), true))
               : NULL;
}

/* ---- nodes ---- */

void yk__node_free_saved(yk__node *node)
{
    node->freed = true;
    for (int i = 0; i < node->n_saved; i++) {
        yk_tensor *kept = node->saved[i].tensor;
        node->saved[i].tensor = NULL;
        if (kept)
            yk_tensor_release(kept);
    }
    if (node->op && node->op->clear)
        node->op->clear(node->context);
}

static void node_destroy(yk__node *node)
{
    if (!node->freed)
        yk__node_free_saved(node);
    for (int i = 0; i < node->n_inputs; i++) {
        if (node->edges[i].leaf)
            yk_tensor_release(node->edges[i].leaf);
        else
            yk__node_release(node->edges[i].node);
    }
    for (int i = 0; i < node->n_outputs; i++) {
        if (node->outputs[i].kept_grad)
            yk_tensor_release(node->outputs[i].kept_grad);
        if (node->outputs[i].hooks)
            free(node->outputs[i].hooks);
    }
    free(node);
}

/* The tape of a long computation is a long chain: it is taken down in a loop, not by recursion. */
static _Thread_local yk__node *dead;
static _Thread_local bool burying;

void yk__node_release(yk__node *node)
{
    if (!node || yk__count_down(&node->references) != 1)
        return;
    node->next_dead = dead;
    dead = node;
    if (burying)
        return;
    burying = true;
    while (dead) {
        yk__node *next = dead;
        dead = next->next_dead;
        node_destroy(next);
    }
    burying = false;
}

static atomic_ullong sequences;
static _Thread_local yk__sequences of_thread; /* those that this thread takes first */

uint64_t yk__sequences_reserve(uint64_t count)
{
    return atomic_fetch_add_explicit(&sequences, count, memory_order_relaxed);
}

yk__sequences yk__sequences_enter(yk__sequences range)
{
    yk__sequences before = of_thread;
    of_thread = range;
    return before;
}

static uint64_t next_sequence(void)
{
    return of_thread.next < of_thread.end ? of_thread.next++ : yk__count_next(&sequences);
}

/* Outputs, edges, saved and context lie after the node in one block. */
yk__node *yk__node_make(const yk__op *op, const char *name, int n_outputs, yk_tensor *const *outs, int n_inputs,
                        int n_saved, size_t context_size)
{
    size_t outputs = sizeof(yk__output) * (size_t)n_outputs, edges = sizeof(yk__edge) * (size_t)n_inputs,
           saved = sizeof(yk__saved_tensor) * (size_t)n_saved;
    yk__node *node = malloc(sizeof(*node) + outputs + edges + saved + context_size);
    if (!node) {
        yk__fail_memory(sizeof(*node) + outputs + edges + saved + context_size);
        return NULL;
    }
    node->head = (yk__node_head){yk__node_release, name};
    atomic_init(&node->references, 1);
    atomic_init(&node->owner, NULL);
    node->leaf = NULL;
    node->next_dead = NULL;
    node->freed = false;
    node->pending = 0;
    node->mark = 0;
    node->op = op;
    node->sequence = next_sequence();
    node->device = yk__device_of(outs[0]);
    node->n_inputs = n_inputs;
    node->n_outputs = n_outputs;
    node->n_saved = n_saved;
    node->outputs = (yk__output *)(node + 1);
    node->edges = (yk__edge *)((char *)node->outputs + outputs);
    node->saved = (yk__saved_tensor *)((char *)node->edges + edges);
    node->context = (char *)node->saved + saved;
    for (int i = 0; i < n_inputs; i++)
        node->edges[i] = (yk__edge){0};
    for (int i = 0; i < n_saved; i++)
        node->saved[i].tensor = NULL;
    for (int i = 0; i < n_outputs; i++) {
        yk__output *output = &node->outputs[i];
        memset(output, 0, offsetof(yk__output, shape));
        output->dtype = outs[i]->dtype;
        output->ndim = outs[i]->ndim;
        yk__copy_sizes(output->shape, outs[i]->shape, outs[i]->ndim);
    }
    return node;
}

yk__node *yk__gradient_node(yk_tensor *x, int *output)
{
    *output = 0;
    if (!x || (yk__view_stale(x) && yk__view_refresh(x)))
        return NULL;
    if (x->node) {
        *output = x->output;
        return x->node;
    }
    if (!x->requires_grad)
        return NULL;
    yk__leaf_gradient *meta = x->leaf_gradient;
    yk__node *found = __atomic_load_n(&meta->accumulator, __ATOMIC_ACQUIRE);
    if (found)
        return found;
    yk__node *made = yk__node_make(NULL, "accumulate", 1, &x, 0, 0, 0);
    if (!made)
        return NULL;
    made->leaf = x;
    made->sequence = UINT64_MAX; /* as soon as it is complete: DDP's buckets wait for it */
    if (!__atomic_compare_exchange_n(&meta->accumulator, &found, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
        yk__node_release(made);
        return found;
    }
    return made;
}

void yk__edge_copy(yk__node *to, const yk__node *from, int i)
{
    yk__edge *edge = &to->edges[i];
    *edge = from->edges[i];
    if (edge->leaf)
        yk_tensor_retain(edge->leaf);
    else if (edge->node)
        yk__node_retain(edge->node);
}

/* x as a node keeps it: history.c must know, lest x comes to hold the node that holds it. */
static yk_tensor *keep(yk_tensor *x)
{
    __atomic_store_n(&x->saved, true, __ATOMIC_RELAXED);
    if (x->base)
        __atomic_store_n(&x->base->saved, true, __ATOMIC_RELAXED);
    return yk_tensor_retain(x);
}

yk__node *yk__node_record(int n_outputs, yk_tensor *const *outs, const yk__op *op, int n_inputs,
                          yk_tensor *const *inputs, int n_saved, yk_tensor *const *saved, const void *context,
                          size_t context_size)
{
    yk__node *node = yk__node_make(op, op->name, n_outputs, outs, n_inputs, n_saved, context_size);
    if (!node)
        return NULL;
    yk_status status = YK_OK;
    for (int i = 0; i < n_inputs && !status; i++) {
        if (!yk__wants_grad(inputs[i]))
            continue;
        yk__edge *edge = &node->edges[i];
        edge->node = yk__gradient_node(inputs[i], &edge->output);
        if (!edge->node)
            status = yk__error_code();
        else if (!edge->node->op)
            edge->leaf = yk_tensor_retain(inputs[i]);
        else
            yk__node_retain(edge->node);
        if (!status && edge->node->op && edge->node->sequence > node->sequence) /* made just now, of a stale view */
            node->sequence = next_sequence();
    }
    for (int i = 0; i < n_saved && !status; i++) {
        if (!saved[i])
            continue;
        if (saved[i]->inference) {
            status = yk__fail_inference(op->name, saved[i], "be kept for a gradient");
            break;
        }
        node->saved[i].tensor = yk__is_one_of(saved[i], n_outputs, outs) ? yk__tensor_alias(saved[i]) : keep(saved[i]);
        if (!node->saved[i].tensor)
            status = YK_ERR_MEMORY;
        else
            node->saved[i].version = yk__version(saved[i]);
    }
    if (context_size)
        memcpy(node->context, context, context_size);
    if (status) {
        node->freed = true; /* the context is still the caller's */
        for (int i = 0; i < n_saved; i++)
            yk_tensor_release(node->saved[i].tensor);
        yk__node_release(node);
        return NULL;
    }
    YK__ASSERT_SOUND(yk__node_check(node));
    return node;
}

yk_tensor *yk__record(yk_tensor *out, const yk__op *op, int n_inputs, yk_tensor *const *inputs, int n_saved,
                      yk_tensor *const *saved, const void *context, size_t context_size)
{
    if (!out || !yk__will_record(n_inputs, inputs) || !yk_dtype_is_floating((yk_dtype)out->dtype)) {
        yk__drop_context(op, context);
        return yk__scope_own(out);
    }
    /* Room first: what is recorded cannot fail any more. */
    yk__node *node = yk__scope_reserve(op->name, 1)
                         ? yk__node_record(1, &out, op, n_inputs, inputs, n_saved, saved, context, context_size)
                         : NULL;
    if (!node) {
        yk__drop_context(op, context);
        yk_tensor_release(out);
        return NULL;
    }
    out->node = node;
    return yk__scope_own(out);
}

yk_status yk__record_list(int n_outputs, yk_tensor **outs, const yk__op *op, int n_inputs, yk_tensor *const *inputs,
                          int n_saved, yk_tensor *const *saved, const void *context, size_t context_size)
{
    yk_status status = yk__scope_reserve(op->name, (size_t)n_outputs) ? YK_OK : yk__error_code();
    bool wanted = false;
    for (int i = 0; i < n_outputs; i++)
        wanted = wanted || yk_dtype_is_floating((yk_dtype)outs[i]->dtype);
    yk__node *node = NULL;
    if (!status && wanted && yk__will_record(n_inputs, inputs)) {
        node = yk__node_record(n_outputs, outs, op, n_inputs, inputs, n_saved, saved, context, context_size);
        status = node ? YK_OK : yk__error_code();
    }
    if (!node)
        yk__drop_context(op, context);
    for (int i = 0; node && i < n_outputs; i++) {
        if (!yk_dtype_is_floating((yk_dtype)outs[i]->dtype))
            continue;
        outs[i]->node = yk__node_retain(node);
        outs[i]->output = i;
    }
    yk__node_release(node);
    for (int i = 0; i < n_outputs; i++) {
        if (!status) {
            yk__scope_own(outs[i]);
        } else {
            yk_tensor_release(outs[i]);
            outs[i] = NULL;
        }
    }
    return status;
}

bool yk__op_begin(const char *name, int n_inputs, yk_tensor *const *inputs, uint32_t optional)
{
    yk__operation_name = name;
    for (int i = 0; i < n_inputs; i++) {
        if (yk__is_freed(inputs[i])) {
            yk__fail_freed(name, inputs[i]);
            return false;
        }
        if (inputs[i] || (i < 32 && (optional >> i & 1)))
            continue;
        if (!yk__error_code())
            yk__fail(YK_ERR_ARGUMENT, "%s: argument %d is NULL", name, i + 1);
        return false;
    }
    bool alike = n_inputs == 1 || (n_inputs == 2 && inputs[0] && inputs[1] && /* the usual ones, without a call */
                                   yk_device_equal(yk__device_of(inputs[0]), yk__device_of(inputs[1])));
    return yk__scope_check(name) && (alike || yk__same_device(name, n_inputs, inputs) == YK_OK);
}

bool yk__needs_grad(const yk__node *node, int input)
{
    return node->edges[input].node != NULL;
}

void *yk__context(yk__node *node)
{
    return node->context;
}

yk_tensor *yk__addend(const yk__node *node)
{
    return node->outputs[0].addend;
}

yk_tensor *yk__saved(yk__node *node, int i, yk_status *bad)
{
    yk__saved_tensor *saved = &node->saved[i];
    if (!saved->tensor || yk__version(saved->tensor) == saved->version)
        return saved->tensor;
    char shape[200];
    *bad = yk__fail(YK_ERR_STATE,
                    "%s: a tensor of shape %s that its gradient needs has been modified by an inplace operation: it is "
                    "at version %u, expected %u",
                    node->head.name, yk_shape_format(saved->tensor, shape, sizeof(shape)), yk__version(saved->tensor),
                    saved->version);
    return NULL;
}

/* ---- moving ---- */

void yk__exchange_storage(yk_tensor *x, yk_tensor *from)
{
    atomic_store(from->storage->versions, yk__version(x) + 1);
    atomic_store(&from->storage->exchanged, yk__exchanged(x));
    yk__storage *storage = x->storage;
    void *data = x->data;
    int8_t dtype = x->dtype;
    x->storage = from->storage;
    x->data = from->data;
    x->dtype = from->dtype;
    from->storage = storage;
    from->data = data;
    from->dtype = dtype;
    for (int d = 0; d < x->ndim; d++) {
        int64_t stride = x->stride[d];
        x->stride[d] = from->stride[d];
        from->stride[d] = stride;
    }
    if (!x->leaf_gradient)
        return;
    yk__leaf_gradient *meta = x->leaf_gradient;
    if (meta->accumulator) { /* gradients are delivered to the new device */
        meta->accumulator->device = yk__device_of(x);
        meta->accumulator->outputs[0].dtype = x->dtype;
    }
    yk_tensor_release(meta->grad_buffer);
    meta->grad_buffer = NULL;
}

/* ---- hooks ---- */

static atomic_ullong hook_ids = 1;

const yk__hook *yk__hook_next(const yk__output *output, uint64_t before, uint64_t behind)
{
    for (int i = 0; i < output->n_hooks; i++) {
        const yk__hook *hook = &output->hooks[i];
        if (hook->id > behind)
            return hook->id < before ? hook : NULL;
    }
    return NULL;
}

uint64_t yk__hook_end(void)
{
    return atomic_load(&hook_ids);
}

static uint64_t hook_add(const char *name, yk_tensor *x, yk__hook hook)
{
    if (!yk__is_there(name, "tensor", x))
        return 0;
    int which;
    yk__node *node = yk__gradient_node(x, &which);
    if (!node) {
        yk__fail(YK_ERR_STATE, "%s: the tensor does not require a gradient", name);
        return 0;
    }
    yk__output *output = &node->outputs[which];
    yk__hook *grown = yk__realloc(output->hooks, sizeof(*grown) * (size_t)(output->n_hooks + 1));
    if (!grown)
        return 0;
    hook.id = atomic_fetch_add(&hook_ids, 1);
    output->hooks = grown;
    output->hooks[output->n_hooks++] = hook;
    return hook.id;
}

uint64_t yk_register_hook(yk_tensor *x, yk_grad_hook hook, void *user)
{
    YK__LIVE(x);
    return hook_add("register_hook", x, (yk__hook){.fn = hook, .user = user});
}

uint64_t yk_register_post_accumulate_hook(yk_tensor *x, yk_leaf_hook hook, void *user)
{
    YK__LIVE(x);
    if (x && !yk_is_leaf(x)) {
        yk__fail(YK_ERR_STATE, "register_post_accumulate_hook: the tensor was made by %s; only leaves accumulate",
                 yk_grad_fn_name(x));
        return 0;
    }
    return hook_add("register_post_accumulate_hook", x, (yk__hook){.after = hook, .user = user});
}

yk_status yk_hook_remove(yk_tensor *x, uint64_t id)
{
    YK__LIVE(x);
    const yk__node *accumulator = x && x->leaf_gradient ? x->leaf_gradient->accumulator : NULL;
    yk__output *output = x && x->node ? &x->node->outputs[x->output] : accumulator ? &accumulator->outputs[0] : NULL;
    for (int i = 0; output && i < output->n_hooks; i++) {
        if (output->hooks[i].id != id)
            continue;
        memmove(&output->hooks[i], &output->hooks[i + 1], sizeof(yk__hook) * (size_t)(output->n_hooks - i - 1));
        output->n_hooks--;
        return YK_OK;
    }
    return yk__fail(YK_ERR_NOT_FOUND, "hook_remove: the tensor has no hook %llu", (unsigned long long)id);
}

yk_status yk_retain_grad(yk_tensor *x)
{
    YK__LIVE(x);
    int output;
    yk__node *node = yk__gradient_node(x, &output);
    if (!node)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_STATE, "retain_grad: the tensor does not require a gradient");
    node->outputs[output].keep_grad = true; /* leaves keep theirs anyway */
    return YK_OK;
}
