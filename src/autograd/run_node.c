/*
 * run_node.c - backward of one node: hooks, the operation's own backward, the gradient of a leaf. Layer: autograd.
 *
 * A node is run by the thread of its device, once all gradients of its outputs have come; nobody else looks at them
 * then.
 */
#include <stdlib.h>
#include <string.h>

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

/* Adds a term, taken over, to the gradient of an output. */
static yk_status add_term(yk__output *output, yk_tensor *term)
{
    yk_tensor *sum = output->grad;
    yk_status status = YK_OK;
    if (!sum) {
        output->grad = term;
        return YK_OK;
    }
    if (exclusive(sum) && sum->dtype == term->dtype) {
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
    return part && !node->outputs[0].keep_grad && exclusive(part) ? yk_tensor_retain(part) : NULL;
}

/* True if two terms have the strides and alignment that their sum would have in memory of its own: kernels that add
 * them give the same bits then, also where those depend on an operand's strides. */
static bool lie_alike(const yk_tensor *a, const yk_tensor *b)
{
    enum { ALIGNED = 64 }; /* bytes: as memory of its own is, at least */
    return a->dtype == b->dtype && yk__same_line(a, b) && ((uintptr_t)a->data | (uintptr_t)b->data) % ALIGNED == 0;
}

yk_status yk__gradient_deliver(yk__node *node, int which, yk_tensor *term, bool last)
{
    yk__output *output = &node->outputs[which];
    if (last && output->grad && node->op && node->op->takes_addend && lie_alike(output->grad, term) &&
        node->op->takes_addend(output->grad)) {
        output->addend = term;
        return YK_OK;
    }
    return add_term(output, term);
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
    if (!to || to->op || !yk_device_equal(to->device, node->device)) /* another thread may still deliver to it */
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
    yk__collector *collector = node->leaf->leaf_gradient->collector;
    if (!hooked && !collector)
        return grad ? yk__accumulate_grad(node->leaf, grad) : YK_OK;
    yk_tensor *leaf = yk_tensor_retain(node->leaf); /* a hook may drop the last reference */
    status = grad ? yk__accumulate_grad(leaf, grad) : YK_OK;
    if (!status && grad)
        status = run_leaf_hooks(node, leaf);
    yk__leaf_gradient *meta = leaf->leaf_gradient;
    if (!status && meta->collector)
        status = meta->collector->ready(meta->collector, meta->collector_index);
    yk_tensor_release(leaf);
    return status;
}

/* The operation's backward on what its outputs have got; nothing is called where that is nothing. */
static yk_status call_backward(yk__node *node, bool any, yk_tensor **grads)
{
    if (!any)
        return YK_OK;
    yk_status status;
    YK__EVENT(YK__EVENT_BACKWARD, node->op->name);
    yk__operation_name = node->op->name;
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
        yk__fail(status, "%s: backward failed with status %d and no message", node->head.name, (int)status);
    return status;
}

/* Takes over the gradient that yk_retain_grad asks for; it is memory of its own, as that of a leaf is. */
static yk_status keep_gradient(yk__output *output, yk_tensor *grad)
{
    yk_tensor *own = grad;
    if (grad && !exclusive(grad)) {
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
static yk_status add_for_others(yk__output *output)
{
    yk_tensor *addend = output->addend;
    if (!addend || (!output->n_hooks && !output->keep_grad))
        return YK_OK;
    output->addend = NULL;
    return add_term(output, addend);
}

yk_status yk__node_run(yk__node *node, bool retain_graph, yk_tensor **grads)
{
    if (!node->op)
        return run_leaf(node);
    bool any = false;
    for (int i = 0; i < node->n_outputs; i++) {
        yk_status status = add_for_others(&node->outputs[i]);
        if (!status && node->outputs[i].grad && node->outputs[i].n_hooks)
            status = run_hooks(node, i);
        if (status)
            return status;
        any = any || node->outputs[i].grad;
    }
    yk_status status = call_backward(node, any, grads);
    yk_status kept = drop_gradients(node);
    status = status ? status : kept;
    if (!retain_graph)
        yk__node_free_saved(node);
    YK__ASSERT_SOUND(yk__node_check(node));
    for (int i = 0; i < node->n_inputs && !status; i++) {
        if (grads[i] && node->edges[i].node)
            status = check_gradient(node, i, node->edges[i].node, node->edges[i].output, grads[i]);
    }
    return status;
}
