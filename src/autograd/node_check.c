/*
 * node_check.c - the invariants of a node of the tape, and of the queue that a backward takes nodes from.
 * Layer: autograd.
 */
#include <inttypes.h>

#include "autograd/node.h"
#include "base/invariant.h"

static const char *check_memory(const yk__node *node)
{
    const char *outputs = (const char *)(node + 1), *edges = outputs + sizeof(yk__output) * (size_t)node->n_outputs,
               *saved = edges + sizeof(yk__edge) * (size_t)node->n_inputs;
    if (node->n_outputs < 1 || node->n_inputs < 0 || node->n_saved < 0)
        return yk__broken("%s has %d outputs, %d inputs and %d saved tensors", node->head.name, node->n_outputs,
                          node->n_inputs, node->n_saved);
    if ((const char *)node->outputs != outputs || (const char *)node->edges != edges ||
        (const char *)node->saved != saved)
        return yk__broken("%s: outputs, edges and saved tensors do not lie behind the node: at %td, %td and %td bytes",
                          node->head.name, (const char *)node->outputs - (const char *)node,
                          (const char *)node->edges - (const char *)node,
                          (const char *)node->saved - (const char *)node);
    return NULL;
}

static const char *check_edge(const yk__node *node, int i)
{
    const yk__edge *edge = &node->edges[i];
    const yk__node *to = edge->node;
    if (!to)
        return edge->leaf
                   ? yk__broken("%s: input %d has a leaf and no node that adds to its gradient", node->head.name, i)
                   : NULL;
    if (atomic_load_explicit(&to->references, memory_order_relaxed) < 1)
        return yk__broken("%s: input %d leads to a node with %d references", node->head.name, i,
                          atomic_load_explicit(&to->references, memory_order_relaxed));
    if (edge->output < 0 || edge->output >= to->n_outputs)
        return yk__broken("%s: input %d is output %d of %s, which has %d", node->head.name, i, edge->output,
                          to->head.name, to->n_outputs);
    if (to->op ? edge->leaf != NULL : edge->leaf == NULL || edge->leaf != to->leaf)
        return yk__broken("%s: input %d leads to %s, and holds %s leaf", node->head.name, i, to->head.name,
                          !edge->leaf ? "no"
                          : to->op    ? "a"
                                      : "another");
    if (to->op && to->sequence >= node->sequence)
        return yk__broken("%s, number %" PRIu64 ", was recorded before its input %d, %s, number %" PRIu64,
                          node->head.name, node->sequence, i, to->head.name, to->sequence);
    return NULL;
}

static const char *check_saved(const yk__node *node, int i)
{
    const yk__saved_tensor *saved = &node->saved[i];
    if (!saved->tensor)
        return NULL;
    if (node->freed)
        return yk__broken("%s: its saved tensors were freed, and %d of %d is there", node->head.name, i, node->n_saved);
    if (yk__is_freed(saved->tensor))
        return yk__broken("%s: saved tensor %d is no live object", node->head.name, i);
    int32_t written = (int32_t)(yk__version(saved->tensor) - saved->version); /* versions count around */
    if (written < 0)
        return yk__broken("%s: saved tensor %d is of version %u, later than the tensor's %u", node->head.name, i,
                          saved->version, yk__version(saved->tensor));
    return NULL;
}

static const char *check_output(const yk__node *node, int i)
{
    const yk__output *output = &node->outputs[i];
    if ((unsigned)output->dtype >= YK__DTYPES || output->ndim < 0 || output->ndim > YK_MAX_DIMS)
        return yk__broken("%s: output %d has dtype %d and %d dimensions", node->head.name, i, output->dtype,
                          output->ndim);
    for (int d = 0; d < output->ndim; d++)
        if (output->shape[d] < 0)
            return yk__broken("%s: output %d has size %" PRId64 " of dimension %d", node->head.name, i,
                              output->shape[d], d);
    if (output->n_hooks < 0 || (output->n_hooks && !output->hooks))
        return yk__broken("%s: output %d has %d hooks, and %s memory for them", node->head.name, i, output->n_hooks,
                          output->hooks ? "some" : "no");
    if (!atomic_load(&node->owner) && (output->grad || output->addend || output->contributions))
        return yk__broken("%s: output %d has a gradient of a backward that is over", node->head.name, i);
    return NULL;
}

const char *yk__node_check(const yk__node *node)
{
    int references = atomic_load_explicit(&node->references, memory_order_relaxed);
    if (references < 1)
        return yk__broken("%s has %d references", node->head.name, references);
    if (!node->op && (!node->leaf || node->n_inputs || node->n_saved || node->n_outputs != 1))
        return yk__broken("%s, for a leaf, has %d inputs, %d saved tensors and %d outputs", node->head.name,
                          node->n_inputs, node->n_saved, node->n_outputs);
    const char *wrong = check_memory(node);
    for (int i = 0; i < node->n_inputs && !wrong; i++)
        wrong = check_edge(node, i);
    for (int i = 0; i < node->n_saved && !wrong; i++)
        wrong = check_saved(node, i);
    for (int i = 0; i < node->n_outputs && !wrong; i++)
        wrong = check_output(node, i);
    return wrong;
}

const char *yk__ready_nodes_check(yk__node *const *heap, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (heap[i]->pending)
            return yk__broken("%s, %zu of the nodes that are ready, waits for %d gradients", heap[i]->head.name, i,
                              heap[i]->pending);
        size_t parent = i ? (i - 1) / 2 : 0;
        if (heap[parent]->sequence < heap[i]->sequence)
            return yk__broken("ready node %zu, number %" PRIu64 ", stands above %zu, number %" PRIu64, parent,
                              heap[parent]->sequence, i, heap[i]->sequence);
    }
    return NULL;
}
