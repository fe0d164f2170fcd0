/*
 * dist_autograd.h - distributed autograd from the inside. Layer: rpc.
 *
 * Note [Distributed backward]
 * A worker that sends tensors that require a gradient, among the arguments or in the result of a call in a context,
 * keeps them under the number of the message (dist_context.c). Where they arrive they are the outputs of a node
 * "rpc_recv", which has no inputs and knows the sender and the number. Backward has two phases:
 *
 *   mark   The root's worker walks its graph from the roots, and asks the senders of the messages that it comes to
 *          ("yoke.backward.mark") to do the same from the tensors of these messages that were reached; what they come
 *          to is their answer. When nothing new is found, every worker knows which of its nodes take part, and how many
 *          gradients each will get: those of outputs that nobody used are not among them.
 *   run    All of them walk ("yoke.backward.run"). A node runs when its gradients are there, the newest first; a node
 *          "rpc_recv" sends those of its outputs to the sender of the message ("yoke.backward.gradients"). A worker is
 *          done when all its nodes have run.
 *
 * Terms of a sum are added in the order of recording, a message's as if its sending were an operation, newest first: as
 * in one process. Gradients of leaves are kept in the context of the worker that has the leaf.
 *
 * A context is there as long as the process that began it has not ended it. The first worker that calls another one in
 * it makes an object of the class "yoke.context" there, and holds that: so they are a tree, at whose root is the worker
 * that began it, and which falls when that lets go, or when a process ends. Nothing has to be said to all of them.
 */
#ifndef YOKE_RPC_DIST_AUTOGRAD_H
#define YOKE_RPC_DIST_AUTOGRAD_H

#include "rpc/rpc_agent.h"

struct yk__dist_task; /* a backward, in one worker: dist_task.h */

/* Tensors of this worker that one message carried. */
typedef struct yk__dist_send {
    uint64_t message, sequence; /* sequence: the position of the sending among this process's nodes */
    int count;
    yk_tensor **tensors; /* retained */
    struct yk__dist_send *next;
} yk__dist_send;

/* The gradient of a leaf. */
typedef struct yk__dist_leaf {
    yk_tensor *leaf, *gradient; /* both retained */
} yk__dist_leaf;

struct yk_dist_context {
    yk__object object;
    uint64_t id;
    int holders; /* with the lock of the list of contexts */
    pthread_mutex_t lock;
    yk__dist_send *sends; /* youngest first */
    yk__dist_leaf *leaves;
    int leaf_count, leaf_room;
    struct yk__dist_peer {
        uint32_t index;
        yk_ref *ref; /* its context of the same number; NULL: another worker holds that */
    } * peers;
    int peer_count;
    struct yk__dist_task *task; /* NULL: no backward is under way */
    struct yk_dist_context *next;
};

/* ---- dist_context.c ---- */
/* The context of this number in this process, made where there is none, held; NULL and an error. */
yk_dist_context *yk__dist_get(uint64_t id);
yk_dist_context *yk__dist_hold(yk_dist_context *context); /* NULL is passed over, here and below */
void yk__dist_put(yk_dist_context *context);
/* The number of contexts that are in this process. */
int yk__dist_count(void);
/* The context in which this thread runs, borrowed; NULL: none. enter gives the one before. */
yk_dist_context *yk__dist_current(void);
yk_dist_context *yk__dist_enter(yk_dist_context *context);
/* Before a call to the worker in the context: makes sure that the worker has it, and keeps it. */
yk_status yk__dist_contact(yk_dist_context *context, const char *what, const yk__rpc_member *member) YK_MUST_CHECK;
/* A tensor that requires a gradient is encoded; one that is decoded is part of a graph. */
yk_status yk__dist_carry(yk__rpc_carried *carried, yk_tensor *x) YK_MUST_CHECK;
yk_status yk__dist_arrive(yk__rpc_arrived *arrived, yk_tensor *x) YK_MUST_CHECK;
/* Keeps the tensors of a message that is to be sent, under a number that it gets. */
yk_status yk__dist_sent(yk__rpc_carried *carried) YK_MUST_CHECK;
/* Makes the tensors of a message the outputs of a node "rpc_recv". */
yk_status yk__dist_received(yk_dist_context *context, uint32_t from, uint64_t message,
                            const yk__rpc_arrived *arrived) YK_MUST_CHECK;
/* Adds to the gradient of a leaf; takes over `gradient`. */
yk_status yk__dist_accumulate(yk_dist_context *context, yk_tensor *leaf, yk_tensor *gradient) YK_MUST_CHECK;
/* The gradient of a leaf: one reference, or NULL. */
yk_tensor *yk__dist_gradient_of(yk_dist_context *context, const yk_tensor *leaf);
extern const yk_rpc_class yk__dist_context_class;

/* ---- dist_mark.c, dist_run.c, dist_backward.c ---- */
/* The context of a node "rpc_recv". */
typedef struct yk__dist_source {
    uint64_t context, message;
    uint32_t from;
} yk__dist_source;
extern const struct yk__op yk__dist_recv_op;
/* The end of the time of the backward that this thread runs; 0: it runs none. */
double yk__dist_deadline(void);
/* Frees a backward that was marked and does not run. */
void yk__dist_task_free(struct yk__dist_task *task);
/* The library's own functions of this name; NULL: none. */
yk_rpc_fn yk__dist_function(const char *name);

#endif
