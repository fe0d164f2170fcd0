/*
 * node.h - nodes from the inside: for tape.c, nodes.c, engine.c and custom.c. Layer: autograd.
 */
#ifndef YOKE_AUTOGRAD_NODE_H
#define YOKE_AUTOGRAD_NODE_H

#include "autograd/tape.h"

typedef struct yk__task yk__task;

typedef struct yk__edge {
    yk__node *node;  /* NULL: this input needs no gradient */
    yk_tensor *leaf; /* retained where node is the accumulator of a leaf, which owns it; else NULL, and node counted */
    int output;      /* of node: the one that the input is */
    bool skipped;    /* by the backward that walks the node: it is to reach other tensors */
} yk__edge;

typedef struct yk__saved_tensor {
    yk_tensor *tensor;
    uint32_t version;
    int output; /* 1 + the output of the node that it is an alias of; 0: it is another tensor */
} yk__saved_tensor;

typedef struct yk__hook {
    uint64_t id;
    yk_grad_hook fn; /* one of the two */
    yk_leaf_hook after;
    void *user;
} yk__hook;

/* A gradient on its way between devices, or waiting for others, lest a sum depends on which thread was first: in the
 * order of the nodes that they come from. Each fills a cache line, since another thread reads it. */
typedef struct yk__contribution {
    _Alignas(64) struct yk__contribution *next;
    struct yk__node *to;
    int output;
    int input;         /* of the node it comes from */
    uint64_t sequence; /* of that node */
    yk_tensor *grad;   /* NULL for zero */
} yk__contribution;

/* One of the tensors that a node made, and what is known of its gradient. */
typedef struct yk__output {
    int8_t dtype, ndim;
    bool keep_grad;
    int n_hooks;
    yk__hook *hooks;
    yk_tensor *kept_grad;
    /* For the backward that walks the node: the gradient so far, NULL for zero. */
    yk_tensor *grad;
    yk_tensor *addend; /* the last term of the gradient, where the operation is to add it; else NULL */
    yk__contribution *contributions;
    int64_t shape[YK_MAX_DIMS]; /* ndim of them are set */
} yk__output;
/* Walking hooks, which may remove themselves and others and add new ones: the first after the one of id `behind` (0:
 * none yet) and before `before`, which yk__hook_end gave when the walk began; NULL at the end. */
const yk__hook *yk__hook_next(const yk__output *output, uint64_t before, uint64_t behind);
uint64_t yk__hook_end(void);

struct yk__node {
    yk__node_head head;
    atomic_int references;
    const yk__op *op;  /* NULL for the accumulator of a leaf */
    uint64_t sequence; /* of recording: later operations run first in backward */
    yk_tensor *leaf;   /* accumulator: the leaf that owns this node */
    yk__node *next_dead;

    yk_device device; /* of the tensors it made */
    bool freed;       /* saved tensors are gone: a backward has been here */

    /* For a backward that is to reach some tensors alone, false otherwise: the node is one that made such a tensor; and
     * its own backward is not wanted. */
    bool captured, skipped;

    bool of_part; /* it wrote to a part of its first input's memory (history.c), which is held by another node */

    /* For the backward that walks this node, which is `owner`; NULL for none. */
    int pending;   /* edges, to whichever output, that have not delivered yet */
    uint64_t mark; /* of the last walk by history.c that came here */
    yk__task *_Atomic owner;

    int n_inputs, n_outputs, n_saved;
    yk__output *outputs; /* these four lie after the node, in one block of memory */
    yk__edge *edges;
    yk__saved_tensor *saved;
    void *context;
};

static inline bool yk__is_one_of(const yk_tensor *x, int count, yk_tensor *const *tensors)
{
    for (int i = 0; i < count; i++) {
        if (tensors[i] == x)
            return true;
    }
    return false;
}

/* The node that a gradient of x is delivered to (borrowed), and as which of its outputs; NULL with an error, or without
 * one where x needs none. */
yk__node *yk__gradient_node(yk_tensor *x, int *output);
/* The fault of a node, NULL for none (base/invariant.h): the positions of its parts, its edges, saved tensors and
 * outputs. */
const char *yk__node_check(const yk__node *node);
/* The fault of the heap of nodes that a backward may run next, newest on top, NULL for none: its order, and that each
 * is ready. */
const char *yk__ready_nodes_check(yk__node *const *heap, size_t count);
/* Takes one more reference to the node. */
static inline yk__node *yk__node_retain(yk__node *node)
{
    yk__count_up(&node->references);
    return node;
}
void yk__node_release(yk__node *node); /* NULL is passed over */
/* The number of the next node of this thread: higher ones run first. */
uint64_t yk__sequence_next(void);
/* A node for the maker of outs[], with room for what follows it and nothing in it; edges are empty. */
yk__node *yk__node_make(const yk__op *op, const char *name, int n_outputs, yk_tensor *const *outs, int n_inputs,
                        int n_saved, size_t context_size);
/* The node of `op` with its edges and saved tensors; saved entries that are among outs[] become aliases. On failure
 * the context is still the caller's. */
yk__node *yk__node_record(int n_outputs, yk_tensor *const *outs, const yk__op *op, int n_inputs,
                          yk_tensor *const *inputs, int n_saved, yk_tensor *const *saved, const void *context,
                          size_t context_size);
/* Releases the contents of a context that no node takes: they belong to the tape even then. */
static inline void yk__drop_context(const yk__op *op, const void *context)
{
    if (op->clear && context)
        op->clear((void *)(uintptr_t)context);
}
/* Edge i of `to` becomes what edge i of `from` is. */
void yk__edge_copy(yk__node *to, const yk__node *from, int i);

/* ---- views (history.c): see also yk__view_stale ---- */
/* Makes the history of a stale view anew from its base's; an error where that cannot be. */
yk_status yk__view_refresh(yk_tensor *x);
/* Drops the saved tensors; a second backward through the node is an error from now on. */
void yk__node_free_saved(yk__node *node);

#endif
