/*
 * engine.h - declarations that the parts of backward share: engine.c walks the graph, run_node.c computes one node of
 * it, collectors.c calls those who collect gradients. Layer: autograd.
 */
#ifndef YOKE_AUTOGRAD_ENGINE_H
#define YOKE_AUTOGRAD_ENGINE_H

#include "autograd/node.h"

/* ---- one node (run_node.c), whose gradients have all come ---- */
/* A term of the gradient of output `which`, taken over: added to what has come, in place where nobody else sees the
 * memory, or, where it is the last, left to an operation that takes it so. */
yk_status yk__gradient_deliver(yk__node *node, int which, yk_tensor *term, bool last);
/* Calls the hooks of what its outputs have got, then, for an operation, its backward, which gives grads[], one for each
 * input, and for the accumulator of a leaf adds to the leaf's gradient. The gradients of the outputs are gone then. */
yk_status yk__node_run(yk__node *node, bool retain_graph, yk_tensor **grads);

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
