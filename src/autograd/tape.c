/*
 * tape.c - recording: operations become nodes, with edges to those of their inputs and the tensors that backward will
 * need. Layer: autograd.
 */
#include <string.h>

#include "autograd/node.h"
#include "base/events.h"
#include "base/invariant.h"

_Thread_local yk__listener *yk__listening;

static yk__attribute *attribute_add(yk__attributes *to, const char *name)
{
    static yk__attribute beyond; /* no operation has as many */
    yk__attribute *a = to->count < YK__MOST_ATTRIBUTES ? &to->list[to->count++] : &beyond;
    *a = (yk__attribute){.name = name};
    return a;
}

void yk__attribute_real(yk__attributes *to, const char *name, double value)
{
    attribute_add(to, name)->real = value;
}

void yk__attribute_whole(yk__attributes *to, const char *name, int64_t value)
{
    yk__attribute_list(to, name, 1, &value);
}

void yk__attribute_list(yk__attributes *to, const char *name, int count, const int64_t *values)
{
    if (count < 1 || count > 2 * YK_MAX_DIMS)
        return;
    yk__attribute *a = attribute_add(to, name);
    a->count = count;
    memcpy(a->whole, values, sizeof(*values) * (size_t)count);
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
            node->sequence = yk__sequence_next();
    }
    for (int i = 0; i < n_saved && !status; i++) {
        if (!saved[i])
            continue;
        if (saved[i]->inference) {
            status = yk__fail_inference(op->name, saved[i], "be kept for a gradient");
            break;
        }
        for (int o = 0; o < n_outputs; o++) {
            if (outs[o] == saved[i])
                node->saved[i].output = o + 1;
        }
        node->saved[i].tensor = node->saved[i].output ? yk__tensor_alias(saved[i]) : keep(saved[i]);
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
    if (out)
        yk__tell(op, context, n_inputs, inputs, 1, &out);
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
    yk__tell(op, context, n_inputs, inputs, n_outputs, outs);
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

/* Adds the inputs' sizes to the event of the operation, and notes the memory in use. */
static void event_describe(const char *name, int n_inputs, yk_tensor *const *inputs)
{
    yk__event_open *open = yk__event_innermost();
    bool own = open && open->event.kind == YK__EVENT_OPERATION && open->event.name == name && !open->shapes.used;
    bool shapes = own && atomic_load_explicit(&yk__events_with_shapes, memory_order_relaxed);
    const yk_tensor *first = NULL;
    for (int i = 0; i < n_inputs; i++) {
        const yk_tensor *x = yk__is_freed(inputs[i]) ? NULL : inputs[i];
        first = first ? first : x;
        if (x && shapes)
            yk__event_add_shape(open, x->ndim, x->shape);
    }
    if (first && own && atomic_load_explicit(&yk__events_with_memory, memory_order_relaxed)) {
        static const char *const names[] = {"memory of cpu:0",  "memory of cpu:1",  "memory of cpu:2",
                                            "memory of cpu:3",  "memory of cuda:0", "memory of cuda:1",
                                            "memory of cuda:2", "memory of cuda:3"};
        yk_device device = yk__device_of(first);
        yk_memory_info info;
        if (device.index < 4 && yk_device_memory(device, &info) == YK_OK)
            yk__event_moment(YK__EVENT_MEMORY, names[(device.type == YK_CPU ? 0 : 4) + device.index], 0,
                             (int64_t)info.allocated);
    }
}

bool yk__op_begin(const char *name, int n_inputs, yk_tensor *const *inputs, uint32_t optional)
{
    yk__operation_name = name;
    if (yk__events_recorded())
        event_describe(name, n_inputs, inputs);
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
    return node->edges[input].node != NULL && !node->edges[input].skipped;
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

/* Fails for a node whose edges are not those of its own inputs. */
static bool has_own_edges(const yk__node *node)
{
    if (node->of_part)
        yk__fail(YK_ERR_UNSUPPORTED,
                 "%s: its gradient has no gradient yet where it wrote to a part of a tensor, through a view; use the "
                 "form that gives a new tensor",
                 node->head.name);
    return !node->of_part;
}

yk_tensor *yk__saved_in_graph(yk__node *node, int i)
{
    yk_status bad = YK_OK;
    yk_tensor *kept = yk__saved(node, i, &bad);
    if (!kept || bad || !node->saved[i].output)
        return kept;
    if (!has_own_edges(node))
        return NULL;
    yk_tensor *out = yk__tensor_alias(kept);
    if (out) {
        out->node = yk__node_retain(node);
        out->output = node->saved[i].output - 1;
    }
    return yk__scope_own(out);
}

yk_tensor *yk__saved_made_by(yk__node *node, int i, const yk__op *op, const void *context, size_t context_size)
{
    yk_status bad = YK_OK;
    yk_tensor *kept = yk__saved(node, i, &bad);
    yk_tensor *out = kept && !bad && has_own_edges(node) ? yk__tensor_alias(kept) : NULL;
    yk__node *made = out ? yk__node_make(op, op->name, 1, &out, node->n_inputs, 0, context_size) : NULL;
    if (!made) {
        yk_tensor_release(out);
        return NULL;
    }
    for (int k = 0; k < node->n_inputs; k++)
        yk__edge_copy(made, node, k);
    if (context_size)
        memcpy(made->context, context, context_size);
    out->node = made;
    return yk__scope_own(out);
}
