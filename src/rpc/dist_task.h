/*
 * dist_task.h - one worker's part of a distributed backward: Note [Distributed backward]. Layer: rpc.
 *
 * A task's entries are the nodes that take part; each node of an operation is claimed, so that no other backward walks
 * it, and the accumulators of leaves are not: another context's backward may come to the same leaf, and the gradient
 * goes to the context. An entry counts the gradients that it will get, and runs when all have come; its terms are added
 * in the order of recording.
 *
 * Invariants: what is marked is marked before the task runs; one thread alone runs it, and others only put gradients
 * into its inbox. `left` is the number of entries that have not run.
 */
#ifndef YOKE_RPC_DIST_TASK_H
#define YOKE_RPC_DIST_TASK_H

#include "autograd/engine.h"
#include "rpc/dist_autograd.h"

/* A gradient on its way to an output of an entry. */
typedef struct yk__dist_term {
    uint64_t sequence; /* of the node that it comes from */
    int input, output; /* of that node; of the entry's */
    yk_tensor *grad;   /* owned */
    struct yk__dist_term *next;
} yk__dist_term;

/* An output of a node "rpc_recv": whether it takes part, and whether the sender of its message knows. */
typedef enum yk__dist_reach { YK__NOT_REACHED, YK__REACHED_NOW, YK__REACHED_AND_MARKED } yk__dist_reach;

typedef struct yk__dist_entry {
    yk__node *node; /* retained, unless it is an accumulator, whose leaf is */
    yk_tensor *leaf;
    int pending;            /* gradients that have not come */
    yk__dist_term *terms;   /* newest sequence first */
    unsigned char *reached; /* of a node "rpc_recv": a yk__dist_reach for each output */
    bool is_sent;           /* and its gradients are on their way */
    struct yk__dist_entry *same_slot;
} yk__dist_entry;

/* The tensors of a message that take part. */
typedef struct yk__dist_marked {
    const yk__dist_send *send;
    bool *wanted, *came;
    struct yk__dist_marked *next;
} yk__dist_marked;

/* Gradients of a message that have come and are not delivered: positions, and behind each a list of the terms. */
typedef struct yk__dist_arrival {
    uint64_t message;
    yk_value *pairs;
    struct yk__dist_arrival *next;
} yk__dist_arrival;

enum { YK__DIST_SLOTS = 4096 };

typedef struct yk__dist_task {
    yk_dist_context *context; /* which has this task */
    uint64_t number;
    bool used; /* a thread marks it or runs it; with the context's lock */
    bool retain_graph;
    double deadline;
    yk__dist_entry **entries; /* all of them, in the order of the walk */
    int count, room, walked;
    yk__dist_entry *slots[YK__DIST_SLOTS]; /* by node */
    yk__dist_entry **heap;                 /* those that are ready, by sequence */
    int ready, left;
    yk__dist_marked *marks;
    yk_future **sent; /* calls that brought gradients to others */
    int sent_count, sent_room;
    /* With the lock: */
    pthread_mutex_t lock;
    pthread_cond_t came;
    yk__dist_arrival *inbox;
} yk__dist_task;

/* The library's own functions of a worker. */
extern const char yk__dist_mark_name[], yk__dist_run_name[], yk__dist_gradients_name[];

/* ---- dist_mark.c: the nodes that take part ---- */
yk__dist_task *yk__dist_task_new(yk_dist_context *context, uint64_t number);
/* The place of a node's entry in the table: NULL there where it has none. */
yk__dist_entry **yk__dist_entry_slot(yk__dist_task *task, const yk__node *node);
/* The tensors of a message that take part; NULL: none do. */
yk__dist_marked *yk__dist_marked_of(yk__dist_task *task, uint64_t message);
/* One gradient will come for the tensor, which a message carried or which is a root. */
yk_status yk__dist_expect(yk__dist_task *task, yk_tensor *x) YK_MUST_CHECK;
/* Walks on from the entries that have not been looked at. */
yk_status yk__dist_walk(yk__dist_task *task) YK_MUST_CHECK;
/* The outputs of messages that were reached and whose senders were not asked yet: a list of worker, message and list of
 * positions. */
yk_value *yk__dist_found(yk__dist_task *task);
/* Marks messages, a list of pairs (message, positions), and gives what is come to from them. */
yk_value *yk__dist_mark(yk__dist_task *task, const yk_value *messages);

/* ---- dist_run.c: running them ---- */
/* A gradient (taken over; NULL: zero) for an output of a node, from input `input` of a node of this sequence. */
yk_status yk__dist_deliver(yk__dist_task *task, const yk__node *node, int output, uint64_t sequence, int input,
                           yk_tensor *grad) YK_MUST_CHECK;
/* Puts the gradients of a message where the task's thread finds them. */
yk_status yk__dist_inbox_put(yk__dist_task *task, uint64_t message, yk_value *pairs) YK_MUST_CHECK;
/* All is marked: room for what will be ready. */
yk_status yk__dist_prepare(yk__dist_task *task) YK_MUST_CHECK;
/* Runs the task to its end: in a call that the root's worker waits for, or (call NULL) in the root's worker, which
 * watches the runs of the others. */
yk_status yk__dist_run(yk__dist_task *task, const yk_call *call, yk_future *const *others, int count) YK_MUST_CHECK;
/* A call of a function of the library's own to a worker: one reference to its future. */
yk_future *yk__dist_call(uint32_t index, const char *name, yk_value *args, double deadline);
/* Waits for a call whose result does not matter. */
yk_status yk__dist_settle(yk_future *future) YK_MUST_CHECK;

#endif
