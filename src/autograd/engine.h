/*
 * engine.h - declarations that the parts of backward share: engine.c walks the graph, run_node.c computes one node of
 * it, collectors.c calls those who collect gradients. Layer: autograd.
 */
#ifndef YOKE_AUTOGRAD_ENGINE_H
#define YOKE_AUTOGRAD_ENGINE_H

#include "autograd/node.h"

/* A call of backward or of autograd_grad: the tensors that are differentiated, with respect to which, and how. */
typedef struct yk__request {
    const char *name;
    yk_tensor *const *roots, *const *gradients; /* n_roots of each; gradients, or an entry, may be NULL */
    int n_roots, n_inputs;
    yk_tensor *const *inputs; /* NULL: all leaves */
    bool gives;               /* the gradients of inputs are given back in grads[]; else they accumulate */
    bool retain_graph, create_graph, allow_unused;
    yk_tensor **grads;
} yk__request;

/* Runs a request whose tensors are there; *walked is true once its walk has begun (engine.c). */
yk_status yk__request_run(const yk__request *r, bool *walked);

/* ---- the nodes that a backward walks (claim.c) ---- */
enum { YK__FEW_NODES = 16 }; /* nodes that a small graph has room for without an allocation */
typedef struct yk__node_list {
    yk__node **nodes; /* `few`, or memory of its own */
    size_t count, capacity;
    yk__node *few[YK__FEW_NODES];
} yk__node_list;

void yk__node_list_init(yk__node_list *list);
void yk__node_list_free(yk__node_list *list);
/* Claims everything that the roots reach for the task, and counts the edges into each node; `name` is for errors. On
 * failure, too, claimed has all nodes that the task owns. */
yk_status yk__claim_graph(const char *name, yk__task *task, yk__node_list *claimed, int n_roots,
                          yk__node *const *roots);
/* The same of the nodes that lead from the roots to a target, and the targets; `gives`: leaves among them do not
 * accumulate. */
yk_status yk__claim_paths(const char *name, yk__task *task, yk__node_list *claimed, int n_roots, yk__node *const *roots,
                          int n_targets, yk__node *const *targets, bool gives);
static inline bool yk__node_owned(const yk__task *task, const yk__node *node)
{
    return node && atomic_load_explicit(&node->owner, memory_order_relaxed) == task;
}
/* Gives up the claim on a node, whose marks are of this walk. */
static inline void yk__node_unclaim(yk__node *node)
{
    node->captured = node->skipped = false;
    atomic_store_explicit(&node->owner, NULL, memory_order_release);
}

/* A gradient that a backward is to give back in place of adding it to a leaf's. */
typedef struct yk__capture {
    yk__node *node;
    yk_tensor *grad; /* NULL until it comes; zero where it never does */
    int output;
} yk__capture;

/* The way in which a backward walks its nodes. */
typedef struct yk__walk {
    bool retain_graph;
    bool create_graph; /* backward is recorded, by the operations' recorded functions */
    bool targeted;     /* some tensors are to be reached, not all leaves */
    int n_captures;    /* of these, where they are not to keep their gradients themselves */
    yk__capture *captures;
} yk__walk;

/* ---- one node (run_node.c), whose gradients have all come ---- */
/* The sum of two gradients, of one shape and dtype, recorded; one reference. */
yk_tensor *yk__recorded_sum(yk_tensor *a, yk_tensor *b);
/* Takes over a term of the gradient of output `which`. It is added to the terms that have come, in place where nobody
 * else sees the memory; the last one may be left apart for an operation that adds it itself. */
yk_status yk__gradient_deliver(const yk__walk *walk, yk__node *node, int which, yk_tensor *term, bool last);
/* Runs a node: calls the hooks on the gradients of its outputs, then the backward of its operation, which gives
 * grads[], one for each input; the accumulator of a leaf adds to the leaf's gradient instead. The gradients of the
 * outputs are released, or belong to those that kept them. */
yk_status yk__node_run(yk__node *node, const yk__walk *walk, yk_tensor **grads);

/* ---- those who collect gradients (collectors.c) ---- */
typedef struct yk__collectors {
    yk__collector **list;
    int count, begun;
} yk__collectors;
/* Finds the collectors of the leaves that `nodes` accumulate for, and begins with each. */
yk_status yk__collectors_begin(yk__collectors *c, size_t count, yk__node *const *nodes);
/* Ends those that were begun, with how it went; the status of the whole. */
yk_status yk__collectors_end(yk__collectors *c, yk_status status);
/* Calls those who await a backward of this thread: it has failed before its walk. */
void yk__collectors_fail_awaiting(void);

#endif
