/*
 * nodes.c - nodes of the tape: making them, the order that they get, and their end. Layer: autograd.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"

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

uint64_t yk__sequence_next(void)
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
    node->freed = node->captured = node->skipped = node->of_part = false;
    node->pending = 0;
    node->mark = 0;
    node->op = op;
    node->sequence = yk__sequence_next();
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
        node->saved[i] = (yk__saved_tensor){0};
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
    edge->skipped = false;
    if (edge->leaf)
        yk_tensor_retain(edge->leaf);
    else if (edge->node)
        yk__node_retain(edge->node);
}
