/*
 * run_node.c - backward of one node: hooks, the operation's own backward, the gradient of a leaf. Layer: autograd.
 *
 * A node is run by the thread of its device, once all gradients of its outputs have come; nobody else looks at them
 * then.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/autocast.h"
#include "autograd/engine.h"
#include "base/events.h"
#include "base/invariant.h"

/* True if x may be written in place: nobody else holds it or its memory, which is not the program's own, and no two
 * elements share a position (a backward may hand on an expanded view). */
static bool exclusive(const yk_tensor *x)
{
    return atomic_load_explicit(&x->object.references, memory_order_acquire) == 1 &&
           atomic_load_explicit(&x->storage->references, memory_order_acquire) == 1 && x->storage->reserved &&
           yk__is_dense(x);
}

static void sum_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    (void)node;
    grads[0] = grads[1] = gouts[0];
}

static yk_status sum_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    for (int i = 0; i < 2; i++)
        grads[i] = yk__needs_grad(node, i) ? yk_tensor_retain(gout) : NULL;
    return YK_OK;
}

yk_tensor *yk__recorded_sum(yk_tensor *a, yk_tensor *b)
{
    static const yk__op op = {.name = "add", .backward = sum_backward, .recorded = sum_recorded};
    yk_scope scope = yk_scope_begin();
    yk_tensor *sum =
        yk__record(yk__raw_binary("backward", YK__ADD, a, b, 1), &op, 2, (yk_tensor *[]){a, b}, 0, NULL, NULL, 0);
    if (sum)
        yk_tensor_retain(sum);
    yk_scope_end(scope);
    return sum;
}

/* Adds a term, taken over, to the gradient of an output. */
static yk_status add_term(yk__output *output, yk_tensor *term, bool recorded)
{
    yk_tensor *sum = output->grad;
    yk_status status = YK_OK;
    if (!sum) {
        output->grad = term;
        return YK_OK;
    }
    if (recorded) {
        output->grad = yk__recorded_sum(sum, term);
        status = output->grad ? YK_OK : yk__error_code();
        yk_tensor_release(sum);
    } else if (exclusive(sum) && sum->dtype == term->dtype) {
        status = yk__raw_binary_into("backward", YK__ADD, sum, sum, term, 1);
    } else {
        output->grad = yk__raw_binary("backward", YK__ADD, sum, term, 1);
        if (!output->grad)
            status = yk__error_code();
        yk_tensor_release(sum);
    }
    yk_tensor_release(term);
    return status;
}

yk_tensor *yk__own_part(const yk__node *node, yk_tensor *part)
{
    return part && !node->outputs[0].keep_grad && !node->captured && exclusive(part) ? yk_tensor_retain(part) : NULL;
}

/* True if two terms have the strides and alignment that their sum would have in memory of its own: kernels that add
 * them give the same bits then, also where those depend on an operand's strides. */
static bool lie_alike(const yk_tensor *a, const yk_tensor *b)
{
    enum { ALIGNED = 64 }; /* bytes: as memory of its own is, at least */
    return a->dtype == b->dtype && yk__same_line(a, b) && ((uintptr_t)a->data | (uintptr_t)b->data) % ALIGNED == 0;
}

yk_status yk__gradient_deliver(const yk__walk *walk, yk__node *node, int which, yk_tensor *term, bool last)
{
    yk__output *output = &node->outputs[which];
    if (last && !walk->create_graph && output->grad && node->op && node->op->takes_addend &&
        lie_alike(output->grad, term) && node->op->takes_addend(output->grad)) {
        output->addend = term;
        return YK_OK;
    }
    return add_term(output, term, walk->create_graph);
}

/* Fails unless `grad` has the shape, dtype and device of output `which` of `to`; it is the gradient of input `input` of
 * `from`. */
static yk_status check_gradient(const yk__node *from, int input, const yk__node *to, int which, const yk_tensor *grad)
{
    const yk__output *output = &to->outputs[which];
    if (grad->ndim == output->ndim && grad->dtype == output->dtype &&
        yk__equal_sizes(grad->shape, output->shape, output->ndim) && yk_device_equal(yk__device_of(grad), to->device))
        return YK_OK;
    char a[200], b[200], da[16], db[16];
    return yk__fail(
        YK_ERR_SHAPE, "%s: backward gave a gradient of shape %s, %s on %s for input %d, which has shape %s, %s on %s",
        from->head.name, yk_shape_format(grad, a, sizeof(a)), yk_dtype_name((yk_dtype)grad->dtype),
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
    yk__leaf_gradient *meta = leaf->leaf_gradient;
    yk_status status = YK_OK;
    if (meta->grad && meta->grad->node) { /* of a backward that was recorded: its graph is left as it is */
        yk_tensor *before = meta->grad;
        meta->grad = yk__raw_clone(before);
        yk_tensor_release(before);
        if (!meta->grad) {
            yk_tensor_release(grad);
            return yk__error_code();
        }
    }
    if (meta->grad == grad) { /* yk__grad_to_add_to: it was added to */
        yk__bump_version(grad);
        yk_tensor_release(grad);
    } else if (meta->grad) {
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

/* The gradient record of the leaf that an input is, if all of the leaf's gradient comes from this node and no hook sees
 * it (a hook may keep it); else NULL. */
static const yk__leaf_gradient *leaf_of_whole(const yk__node *node, int input)
{
    const yk__node *to = node->edges[input].node;
    if (!to || node->edges[input].skipped || to->op || to->captured ||
        !yk_device_equal(to->device, node->device)) /* another thread may still deliver to it */
        return NULL;
    /* A distributed backward claims no leaves: their gradients go to its context. */
    if (atomic_load_explicit(&to->owner, memory_order_relaxed) !=
        atomic_load_explicit(&node->owner, memory_order_relaxed))
        return NULL;
    const yk__output *output = to->outputs; /* an accumulator has one */
    bool whole = to->pending == 1 && !output->grad && !output->contributions;
    for (int i = 0; i < output->n_hooks; i++)
        whole = whole && !output->hooks[i].fn;
    return whole ? to->leaf->leaf_gradient : NULL;
}

yk_tensor *yk__grad_buffer_for(const yk__node *node, int input)
{
    const yk__leaf_gradient *meta = leaf_of_whole(node, input);
    return meta && !meta->grad ? yk_tensor_retain(meta->grad_buffer) : NULL;
}

yk_tensor *yk__grad_to_add_to(const yk__node *node, int input)
{
    const yk__leaf_gradient *meta = leaf_of_whole(node, input);
    return meta ? yk_tensor_retain(meta->grad) : NULL;
}

/* Runs the hooks of a leaf whose gradient was accumulated. */
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

/* yk__accumulate_grad; a gradient that was recorded keeps its history, in a sum with the earlier one. */
static yk_status accumulate(const yk__walk *walk, yk_tensor *leaf, yk_tensor *grad)
{
    yk__leaf_gradient *meta = leaf->leaf_gradient;
    yk_tensor *before = meta->grad;
    if (!walk->create_graph || meta->grad_buffer || !(grad->node || (before && before->node)))
        return yk__accumulate_grad(leaf, grad);
    meta->grad = before ? yk__recorded_sum(before, grad) : yk_tensor_retain(grad);
    yk_tensor_release(before);
    yk_tensor_release(grad);
    return meta->grad ? YK_OK : yk__error_code();
}

/* Retains the gradient of an output, NULL for zero, for those who asked for it; it is memory of its own, where it has
 * no history. */
static yk_status capture(const yk__walk *walk, const yk__node *node, int which)
{
    for (int i = 0; i < walk->n_captures; i++) {
        yk__capture *c = &walk->captures[i];
        yk_tensor *grad = node->outputs[which].grad;
        if (c->node != node || c->output != which || !grad)
            continue;
        c->grad = walk->create_graph || exclusive(grad) ? yk_tensor_retain(grad) : yk__raw_clone(grad);
        if (!c->grad)
            return yk__error_code();
    }
    return YK_OK;
}

/* The gradient of a leaf is complete: accumulates it, calls the hooks and the collector. */
static yk_status run_leaf(yk__node *node, const yk__walk *walk)
{
    yk__output *output = node->outputs;
    bool hooked = output->n_hooks && output->grad;
    yk_status status = hooked ? run_hooks(node, 0) : YK_OK;
    if (status)
        return status;
    if (node->captured) {
        status = capture(walk, node, 0);
        yk_tensor_release(output->grad);
        output->grad = NULL;
        return status;
    }
    yk_tensor *grad = output->grad;
    output->grad = NULL;
    yk__collector *collector = node->leaf->leaf_gradient->collector;
    bool rows = yk__has_rows(node->leaf), fresh = rows && node->leaf->leaf_gradient->rows->fresh;
    if (!hooked && !collector && !rows)
        return grad ? accumulate(walk, node->leaf, grad) : YK_OK;
    yk_tensor *leaf = yk_tensor_retain(node->leaf); /* a hook may drop the last reference */
    status = grad ? accumulate(walk, leaf, grad) : YK_OK;
    if (!status && rows)
        status = yk__rows_settle(leaf);
    if (!status && (grad || fresh))
        status = run_leaf_hooks(node, leaf);
    yk__leaf_gradient *meta = leaf->leaf_gradient;
    if (!status && meta->collector)
        status = meta->collector->ready(meta->collector, meta->collector_index);
    yk_tensor_release(leaf);
    return status;
}

/* Backward by operations that programs call, which are recorded where the walk's are: for gradients of gradients, and
 * for an operation that has no other. */
static yk_status call_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    if (!node->op->recorded)
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "%s: its gradient has no gradient yet, so a backward with create_graph cannot go through it; "
                        "compute it from other operations, or leave create_graph out",
                        node->head.name);
    yk_scope scope = yk_scope_begin();
    uint32_t cast_types = yk__autocast_pause();
    node->op->recorded(node, gouts, grads);
    yk__autocast_types = cast_types;
    yk_status status = yk__error_code();
    for (int i = 0; i < node->n_inputs; i++) {
        bool wanted = !status && grads[i] && yk__needs_grad(node, i);
        grads[i] = wanted ? yk_tensor_retain(grads[i]) : NULL;
    }
    yk_scope_end(scope);
    return status;
}

/* The operation's backward on what its outputs have got; nothing is called where that is nothing. */
static yk_status call_backward(yk__node *node, const yk__walk *walk, bool any, yk_tensor **grads)
{
    if (!any)
        return YK_OK;
    yk_status status;
    YK__EVENT(YK__EVENT_BACKWARD, node->op->name);
    yk__operation_name = node->op->name;
    bool recorded = walk->create_graph || (!node->op->backward && !node->op->backward_list);
    if (!recorded && node->op->backward) {
        status = node->op->backward(node, node->outputs[0].grad, grads);
    } else {
        yk_tensor *few[8], **gouts = few;
        if (node->n_outputs > 8 && !(gouts = yk__calloc((size_t)node->n_outputs, sizeof(*gouts))))
            return YK_ERR_MEMORY;
        for (int i = 0; i < node->n_outputs; i++)
            gouts[i] = node->outputs[i].grad;
        status = recorded ? call_recorded(node, gouts, grads) : node->op->backward_list(node, gouts, grads);
        if (gouts != few)
            free(gouts);
    }
    if (status && !yk__error_code())
        yk__fail(status, "%s: backward failed with status %d and no message", node->head.name, (int)status);
    return status;
}

/* Takes over the gradient that yk_retain_grad asks for; it is memory of its own, as that of a leaf is, unless it has a
 * history. */
static yk_status keep_gradient(yk__output *output, yk_tensor *grad)
{
    yk_tensor *own = grad;
    if (grad && !grad->node && !exclusive(grad)) {
        own = yk__raw_clone(grad);
        yk_tensor_release(grad);
    }
    yk_tensor_release(output->kept_grad);
    output->kept_grad = own;
    return own || !grad ? YK_OK : yk__error_code();
}

/* The gradients of a node's outputs go: kept where they are wanted. */
static yk_status drop_gradients(yk__node *node)
{
    yk_status status = YK_OK;
    for (int i = 0; i < node->n_outputs; i++) {
        yk__output *output = &node->outputs[i];
        yk_tensor *grad = output->grad;
        yk_tensor_release(output->addend);
        output->grad = output->addend = NULL;
        if (!output->keep_grad)
            yk_tensor_release(grad);
        else if (keep_gradient(output, grad))
            status = yk__error_code();
    }
    return status;
}

/* Hooks, and those who keep the gradient, are to see the whole of it. */
static yk_status add_for_others(const yk__node *node, yk__output *output)
{
    yk_tensor *addend = output->addend;
    if (!addend || (!output->n_hooks && !output->keep_grad && !node->captured))
        return YK_OK;
    output->addend = NULL;
    return add_term(output, addend, false);
}

/* Anomaly mode: fails where the gradient of an input has a NaN, in the name of the operation. */
static yk_status check_anomaly(const yk__node *node, yk_tensor *const *grads)
{
    yk_status status = YK_OK;
    for (int i = 0; i < node->n_inputs && !status; i++) {
        if (!grads[i] || !yk__needs_grad(node, i))
            continue;
        yk_tensor *same = yk__raw_binary("backward", YK__EQ, grads[i], grads[i], 1);
        yk_tensor *all = same ? yk__raw_reduce("backward", YK__ALL, same, 0, false, 0) : NULL;
        double without = 0;
        status = all ? yk__item("backward", all, &without) : yk__error_code();
        yk_tensor_release(same);
        yk_tensor_release(all);
        const yk__output *out = node->outputs;
        char in_shape[200], out_shape[200];
        if (!status && without == 0)
            status =
                yk__fail(YK_ERR_NUMERIC,
                         "backward of %s gave NaN in the gradient of its input %d, of shape %s and made by %s; the "
                         "result has shape %s (anomaly detection is on)",
                         node->head.name, i, yk_shape_format(grads[i], in_shape, sizeof(in_shape)),
                         node->edges[i].node->op ? node->edges[i].node->head.name : "the program (a leaf)",
                         yk__shape_text(out->ndim, out->shape, out_shape, sizeof(out_shape)));
    }
    return status;
}

static atomic_bool detecting_anomaly;

bool yk_autograd_set_detect_anomaly(bool enabled)
{
    return atomic_exchange(&detecting_anomaly, enabled);
}

bool yk_autograd_detect_anomaly(void)
{
    return atomic_load(&detecting_anomaly);
}

yk_status yk__node_run(yk__node *node, const yk__walk *walk, yk_tensor **grads)
{
    if (!node->op)
        return run_leaf(node, walk);
    bool any = false;
    for (int i = 0; i < node->n_outputs; i++) {
        yk_status status = add_for_others(node, &node->outputs[i]);
        if (!status && node->outputs[i].grad && node->outputs[i].n_hooks)
            status = run_hooks(node, i);
        if (!status && node->captured)
            status = capture(walk, node, i);
        if (status)
            return status;
        any = any || node->outputs[i].grad;
    }
    if (node->skipped)
        return drop_gradients(node);
    yk_status status = call_backward(node, walk, any, grads);
    if (!status && __builtin_expect(atomic_load_explicit(&detecting_anomaly, memory_order_relaxed), 0))
        status = check_anomaly(node, grads);
    yk_status kept = drop_gradients(node);
    status = status ? status : kept;
    if (!walk->retain_graph)
        yk__node_free_saved(node);
    YK__ASSERT_SOUND(yk__node_check(node));
    for (int i = 0; i < node->n_inputs && !status; i++) {
        if (grads[i] && node->edges[i].node)
            status = check_gradient(node, i, node->edges[i].node, node->edges[i].output, grads[i]);
    }
    return status;
}
