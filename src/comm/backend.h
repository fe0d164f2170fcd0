/*
 * backend.h - the table of functions through which process groups reach a backend of collectives. Layer: comm.
 *
 * native/ fills one; mpi/, nccl/ and whatever else carries collectives fill others. Above the table stand the checks of
 * arguments, the order of operations, the asynchronous form and the trace (submit.c, collectives.c); a backend moves
 * bytes, and watches over its ranks.
 */
#ifndef YOKE_COMM_BACKEND_H
#define YOKE_COMM_BACKEND_H

#include <string.h>

#include <yoke/comm.h>

#include "comm/carrier.h"
#include "tensor/tensor.h"

/* The collectives first, in the order of the table's slots, then the messages. */
typedef enum yk__comm_kind {
    YK__COMM_ALL_REDUCE,
    YK__COMM_REDUCE,
    YK__COMM_BROADCAST,
    YK__COMM_ALL_GATHER,
    YK__COMM_GATHER,
    YK__COMM_SCATTER,
    YK__COMM_REDUCE_SCATTER,
    YK__COMM_ALL_TO_ALL,
    YK__COMM_BARRIER,
    YK__COMM_COLLECTIVES,
    YK__COMM_SEND = YK__COMM_COLLECTIVES,
    YK__COMM_RECV,
    YK__COMM_KINDS
} yk__comm_kind;

/*
 * One operation, checked. Memory is contiguous, and of the CPU but where `on_device` says otherwise; it is valid, and
 * not touched by others, until the operation is done. NULL where a rank has no part in it, or where it has no bytes.
 *
 *   kind            in                    out                  count
 *   all_reduce      count                 the same memory      elements
 *   reduce          count                 the same on the root elements
 *   broadcast       count, on the root    count, elsewhere     elements
 *   all_gather      count                 world_size * count   elements of a part
 *   gather          count                 ..., on the root     elements of a part
 *   scatter         ..., on the root      count                elements of a part
 *   reduce_scatter  world_size * count    count                elements of a part
 *   all_to_all      sum of in_counts      sum of out_counts    0
 *   send, recv      count (send)          count (recv)         elements
 */
typedef struct yk__comm_op {
    yk__comm_kind kind;
    yk_dtype dtype;
    yk_reduce_op reduction; /* all_reduce, reduce, reduce_scatter */
    int peer;               /* the root, or the other rank of a message; -1 where there is none */
    int tag;                /* of a message, else -1 */
    uint64_t number;        /* of the collective, or of this rank's messages, from 1 */
    uint32_t sequence;      /* of a message: among those to or from this peer with this tag, from 1; 0: not counted */
    int64_t count;
    const void *in;
    void *out;
    const int64_t *in_counts, *out_counts; /* all_to_all: elements by rank */
    bool deterministic;                    /* on_device: a reduction in the order of native's, which all ranks want */
    /* For a backend with `mark`: the memory is that of GPU `device`, and whatever was queued there before `marked`
     * writes or reads it first. */
    bool on_device;
    int device;
    void *marked;
    uint32_t announced; /* a message whose elements are not sent, but so many bytes of `in` and `out`; a send is done
                         * when its receive has taken it (Note [The pair's order] in nccl/nccl_messages.c) */
    bool captured;      /* it is recorded in a graph (comm/recorded.c): the ranks do not agree on it */
    int64_t recorded; /* not an operation, but replay `number` of a step that has so many, of which this is the first */
} yk__comm_op;

/* Bytes that a message sends. */
static inline size_t yk__comm_message_bytes(const yk__comm_op *op)
{
    return op->announced ? op->announced : (size_t)op->count * yk_dtype_size(op->dtype);
}

/* True if operations of this kind combine values (have a `reduction`). */
static inline bool yk__comm_reduces(yk__comm_kind kind)
{
    return kind == YK__COMM_ALL_REDUCE || kind == YK__COMM_REDUCE || kind == YK__COMM_REDUCE_SCATTER;
}

static inline bool yk__comm_has_root(yk__comm_kind kind)
{
    return kind == YK__COMM_REDUCE || kind == YK__COMM_BROADCAST || kind == YK__COMM_GATHER || kind == YK__COMM_SCATTER;
}

/* A collective as the ranks compare it, in shared memory and over connections. Without padding: equal headers have
 * equal bytes. */
typedef struct yk__comm_header {
    uint64_t number;
    int64_t count;
    int32_t kind, dtype, reduction, peer; /* reduction (256 more: deterministic) 0 and peer -1 where there is none */
} yk__comm_header;

static inline yk__comm_header yk__comm_header_of(const yk__comm_op *op)
{
    return (yk__comm_header){.number = op->number,
                             .count = op->count,
                             .kind = (int32_t)op->kind,
                             .dtype = (int32_t)op->dtype,
                             .reduction =
                                 yk__comm_reduces(op->kind) ? (int32_t)op->reduction | op->deterministic << 8 : 0,
                             .peer = yk__comm_has_root(op->kind) ? op->peer : -1};
}

static inline bool yk__comm_header_equal(const yk__comm_header *a, const yk__comm_header *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* The operation of a header, for messages. */
static inline yk__comm_op yk__comm_header_op(const yk__comm_header *h)
{
    return (yk__comm_op){.kind = (yk__comm_kind)h->kind,
                         .dtype = (yk_dtype)h->dtype,
                         .reduction = (yk_reduce_op)(h->reduction & 0xFF),
                         .deterministic = h->reduction >> 8 & 1,
                         .peer = h->peer,
                         .number = h->number,
                         .count = h->count};
}

/*
 * Note [Joining again]
 * A rank that could not join the default group may try again, in its process or in a new one, while the others still
 * wait for it, or when they try again too. The attempts are groups "world", "world.2", and so on. A rank begins with
 * the one after the last that others know it took part in, so one that failed before it had said anything begins with
 * the same again. An attempt that has failed is over: a rank that comes to it then goes on to the next, so all meet in
 * the first that is not.
 */
typedef struct yk__comm_attempt {
    bool launched; /* the first of all ranks that a launcher started, which may have given them their addresses */
    /* Set by the backend where it fails; else as they were. */
    bool over;      /* it had failed before this rank came */
    bool announced; /* other ranks may know that this one took part */
} yk__comm_attempt;

/* The facts that a rank knows when it joins. Everything is borrowed for the length of the call, but for `store`, which
 * lives as long as the group. */
typedef struct yk__comm_join_args {
    yk_store *store; /* NULL in a world of one, and where the backend `bootstraps`; its keys begin with `name` */
    const char *name;
    const char *host_id;   /* equal on ranks that share memory */
    const char *host_name; /* for messages */
    uint64_t members;      /* a hash of what the ranks must agree on beyond the name; a difference is an error */
    int rank, world_size;
    struct yk__comm_attempt *attempt; /* of the default group; else NULL */
    double timeout, join_timeout;     /* seconds */
    void *parent;                     /* the state of the group that this is a part of, else NULL */
    const int *ranks;                 /* this group's ranks in the parent */
    const yk__comm_carrier *carrier;  /* the backend's */
    /* Fails when it is known otherwise that not all ranks will come; asked now and then while some are waited for.
     * NULL: there is nobody to know. */
    yk_status (*in_vain)(void *of);
    void *in_vain_of;
} yk__comm_join_args;

typedef struct yk__comm_backend {
    const char *name;                /* "native" */
    bool bootstraps;                 /* its ranks find one another without a store, in the group of the environment */
    const yk__comm_carrier *carrier; /* in a copy of native's table: what carries its data; else NULL */

    /* Returns when all ranks are there, within join_timeout; an error names the ranks that are missing, or that differ,
     * and how. On failure *state is NULL and nothing is left over. */
    yk_status (*join)(const yk__comm_join_args *args, void **state);

    /*
     * One slot per collective, NULL for one that the backend lacks. Blocking: returns when `out` is written and `in`
     * may be changed. Called by one thread at a time, in the same order on all ranks, with numbers that count up by
     * one. Reductions combine by the tree of Note [The order of a reduction] (native/combine.c), so that all backends
     * give the same bits. Must end within the group's time-out, and within 1 s of a peer's death. A failure breaks the
     * group: the cause becomes known to all ranks (those waiting included), and names ranks, hosts, processes and
     * operations.
     */
    yk_status (*collective[YK__COMM_COLLECTIVES])(void *state, const yk__comm_op *op);

    /* NULL in a backend of the host's memory: tensors of GPUs come to it by way of that (staging.c). Else collectives
     * take tensors of GPUs where they are, `on_device`, and those on the CPU are the library's own. Marks the end of
     * the thread's queue of this GPU: the operation begins after all that is queued there now. Called before the
     * operation has its number, by the thread that calls it, in the order of calls; fails where the rank cannot take
     * this GPU. `what` names the operation in errors. */
    yk_status (*mark)(void *state, const char *what, int device, void **marked);
    /* In place of `collective` for such an operation (and of `post` for a message that is `captured`), with its rules;
     * it is not waited for: the ranks agree on it, and it is put on a queue of the device. *queued is what the slots
     * below take, NULL where there was nothing to do. One that is `captured` is recorded there: nothing is sent, and a
     * failure does not break the group. */
    yk_status (*queue_collective)(void *state, const yk__comm_op *op, void **queued);
    /* The last item on the calling thread's queue is the replay of a step; *queued stands for it in the slots below. */
    yk_status (*queue_replay)(void *state, const yk__comm_op *op, void **queued);
    /* Work that the calling thread puts on its queue of the device from here on runs after the operation. Fails where
     * the group is broken. A failure that comes later is the error of the next wait for the device. */
    yk_status (*queue_behind)(void *state, void *queued);
    /* The operation is done only when the work that the calling thread has on its queue by now is done, too. */
    yk_status (*queue_until)(void *state, void *queued);
    /* Sets *done to true if the operation is done, in success or failure; does not wait. Called again and again by one
     * thread, for the operations in the order in which they were queued, each until it is done; it watches the time and
     * the other ranks. A failure breaks the group. */
    yk_status (*queued_done)(void *state, void *queued, bool *done);
    /* Frees it, once it is done. */
    void (*queued_free)(void *state, void *queued);

    /* Begins a message and gives its handle at once; op is copied. Called from any thread, also during a collective. */
    yk_status (*post)(void *state, const yk__comm_op *op, void **message);
    /* NULL where messages of tensors of GPUs go by way of the host's memory. Else they are posted `on_device`, and done
     * for `wait` when they are on a queue of the device: what the slots of queued operations take, once, NULL where
     * there was nothing to do. */
    void *(*message_queued)(void *state, void *message);
    /* Drives all messages of the rank for up to `seconds` (0: looks once) and returns as soon as this one is done;
     * `done` also on failure, whose status it returns every time it is asked. Any thread, several at once. A failure
     * breaks the group. */
    yk_status (*wait)(void *state, void *message, double seconds, bool *done);
    /* Frees the handle of a message that is done. */
    void (*forget)(void *state, void *message);

    /* YK_OK while the group is not broken; else fails with its first cause. A few nanoseconds. */
    yk_status (*check)(void *state);
    /* As `check`, and looks whether the processes of this host's ranks are there, some microseconds for each: one that
     * has left or ended breaks the group. For a rank that computes and waits for nobody. NULL: `check` is all. */
    yk_status (*look)(void *state);
    /* Breaks the group on all ranks with this cause, unless it is broken. */
    void (*abort_group)(void *state, yk_status code, const char *cause);
    /* Leaves; waits, within the time-out, for what peers still have to read of this rank's memory. Called once, when
     * no other call is under way. Peers that wait for this rank from now on get an error. */
    void (*leave)(void *state);
} yk__comm_backend;

extern const yk__comm_backend yk__comm_native;
/* For a backend that moves the bytes itself (nccl), with a group of native beside its own: in place of the slot, the
 * ranks agree on the operation, as they do at the beginning of each. */
yk_status yk__native_agree(void *state, const yk__comm_op *op);
/* While it moves them, for `waited` seconds so far: fails where the group is broken; *ended is a rank of this host
 * whose process has ended, *stopped one whose process is stopped, or -1. */
yk_status yk__native_watch(void *state, double waited, int *ended, int *stopped);
/* "rank 1 (host a, pid 12)" */
const char *yk__native_describe_rank(const void *state, int rank, char *buffer, size_t size);
/* For yk_new_group: `self` ("rank 1 (host a, pid 12)") publishes in the store the list of ranks of the parent from
 * which it makes the group of this name; fails, for the ranks that wait in it too, where another rank published another
 * list. */
yk_status yk__native_compare_lists(yk_store *store, const char *name, const char *self, int count, const int *ranks);
/* Says in the store that the group of this name is over, for native ranks that come to it later. */
void yk__native_mark_failed(yk_store *store, const char *name);

/* Combines the values of all ranks element by element: in[r] is rank r's, all outputs get the result, `stream` writes
 * them past the caches. The order is that of Note [The order of a reduction] (native/combine.c), for every backend. */
yk_status yk__comm_combine(yk_reduce_op op, yk_dtype dtype, int outputs, char *const *out, int inputs,
                           const char *const *in, int64_t count, bool stream);

/* ---- describe.c ---- */
const char *yk__comm_kind_name(yk__comm_kind kind);
const char *yk__comm_reduction_name(yk_reduce_op op);
/* "all_reduce #12 (float32, 100 elements, sum)", "send #3 (int64, 5 elements, to rank 1, tag 7)" */
const char *yk__comm_describe(const yk__comm_op *op, char *buffer, size_t size);

#endif
