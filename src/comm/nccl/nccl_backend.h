/*
 * nccl_backend.h - the types and functions that the files of the nccl backend share. Layer: comm/nccl.
 *
 * Note [The control group]
 * A group of this backend has one of the native backend beside it, of the same ranks. Every collective begins there:
 * the ranks agree on operation, dtype, count, reduction and root, as native's do, so NCCL is called only where all have
 * come to the same operation. Failures go through it too: whoever sees one breaks the control group, which all look at
 * while NCCL works, and then gives its communicators up (ncclCommAbort). What the library itself sends in the host's
 * memory goes by it.
 *
 * Note [Streams of NCCL]
 * Collectives are put on the device's queue for collectives (YK__QUEUE_COMM). Groups are not ordered with one another,
 * and a rank that put two operations of two groups on one stream in another order than its peer would wait for it for
 * ever: so the queue is the first communicator's of a device, and others have streams of their own. An operation begins
 * after an event of the stream of kernels that was recorded when it was called, so it runs beside what the program
 * queued later (backward). Messages have a communicator and a stream for each pair of ranks and direction, since they
 * are ordered neither with collectives nor with those of another pair. The host does not wait for its end: yk_work_wait
 * makes the stream of kernels wait for an event after it, and the group's watcher (comm/queued.c) asks for that event,
 * the clock and the other ranks. Where an operation fails that kernels wait for already, the device is told before the
 * communicator is aborted, which lets them go on: whoever waits for the device next fails with the cause
 * (yk__cuda_note_failure). Collectives that are recorded go to the recording's queue for collectives (Note [Streams of
 * a recording] in cuda_graph.c); messages to their pair's stream, which no other thread uses meanwhile.
 *
 * Note [The end of a communicator]
 * ncclCommAbort tells kernels that wait for other ranks to end, and then does not return before the stream is done with
 * what it had, the graphs that have calls of the communicator are destroyed, and the other ranks of the host have come
 * to the same end; nor does ncclCommDestroy before that. So a GPU that is busy with something else, a recorded step
 * that the program holds, or a rank that is stopped would hold up whoever calls them: a thread of its own does
 * (nccl_end_comm), and nccl_leave waits for these threads, for a while.
 */
#ifndef YOKE_COMM_NCCL_BACKEND_H
#define YOKE_COMM_NCCL_BACKEND_H

#include <pthread.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "comm/comm_plugin.h"
#include "device/cuda/nccl_access.h"

/* ---- of yoke ---- */
extern const yk__base_services *nccl_base;
extern const yk__comm_services *nccl_yoke;
#define nccl_fail(code, ...) nccl_base->fail_at((code), __FILE__, __LINE__, __VA_ARGS__)

/* An event that a collective waits for, or that waits for a collective; kept for the next one. */
typedef struct nccl_mark {
    cudaEvent_t event;
    struct nccl_mark *next;
} nccl_mark;

/* A communicator and the stream of its operations. Its calls are made with the group's lock held. */
typedef struct nccl_line {
    ncclComm_t comm; /* NULL before the first operation, and after a failure */
    cudaStream_t stream;
    bool owns_stream; /* one beside YK__QUEUE_COMM */
    struct nccl_line *next;
} nccl_line;

/* A communicator that is being ended. The group joins a thread that is done, and leaves one that is not to itself. */
typedef struct nccl_end {
    pthread_t thread;
    ncclComm_t comm;
    int gpu;
    ncclResult_t (*call)(ncclComm_t comm);
    bool done, left; /* by the thread, by the group */
    struct nccl_end *next;
} nccl_end;

/* An operation on its stream. */
typedef struct nccl_queued {
    yk__comm_op op;    /* for messages: its pointers are not looked at */
    nccl_line *line;   /* NULL: a replay, which may have operations of all */
    nccl_mark *end;    /* after it */
    yk__storage *room; /* memory that it works in, or NULL */
    bool awaited;      /* kernels wait for it: it is in the group's list of these */
    struct nccl_queued *next;
    struct {
        double began, looked, ended_at, seen;
    } waited; /* of nccl_look_around */
} nccl_queued;

typedef struct nccl_group {
    void *control; /* the state of the native group */
    int rank, world_size;
    char name[304], host_name[64];
    double timeout, join_timeout;
    int device, gpu; /* of the first operation, and of all others; -1: none yet */
    char uuid[16];   /* of the GPU */
    bool uuid_known;
    nccl_line all;        /* of all ranks */
    nccl_line *lines;     /* those that were made */
    nccl_end *ends;       /* of those that are no longer there */
    bool given_up;        /* a failure: there will be no other communicator */
    nccl_queued *awaited; /* those that are not known to be done, and kernels wait for them */
    struct nccl_pair *pairs;
    bool leaving;           /* the pairs' threads end */
    pthread_mutex_t lock;   /* marks, lines, ends, awaited, pairs, uuid, and device as long as it is -1 */
    pthread_cond_t changed; /* pairs' messages */
    nccl_mark *free_marks;
} nccl_group;

/* The three numbers of a version, for "%d.%d.%d". */
#define NCCL_NUMBERS(version) (int)(version) / 10000, (int)(version) / 100 % 100, (int)(version) % 100

/* The record that a rank publishes for the others before they have a communicator. */
typedef struct nccl_record {
    char gpu[16]; /* its UUID */
    char host[64];
    int32_t device, version;
    ncclUniqueId id; /* of the communicator, from one of them */
} nccl_record;

enum { NCCL_RECORD_TAG = -2, NCCL_TURN_TAG = -3 /* no program's: theirs are not negative */ };

/* ---- nccl_library.c ---- */
/* Its functions, set by nccl_open. */
#define NCCL_FUNCTIONS(X)                                                                                              \
    X(ncclGetVersion)                                                                                                  \
    X(ncclGetUniqueId)                                                                                                 \
    X(ncclCommInitRankConfig)                                                                                          \
    X(ncclCommFinalize)                                                                                                \
    X(ncclCommDestroy)                                                                                                 \
    X(ncclCommAbort)                                                                                                   \
    X(ncclCommGetAsyncError)                                                                                           \
    X(ncclGetErrorString)                                                                                              \
    X(ncclGetLastError)                                                                                                \
    X(ncclGroupStart)                                                                                                  \
    X(ncclGroupEnd)                                                                                                    \
    X(ncclAllReduce)                                                                                                   \
    X(ncclReduce)                                                                                                      \
    X(ncclBroadcast)                                                                                                   \
    X(ncclAllGather)                                                                                                   \
    X(ncclReduceScatter)                                                                                               \
    X(ncclSend)                                                                                                        \
    X(ncclRecv)
typedef struct nccl_library {
#define NCCL_MEMBER(name) __typeof__(&name) name;
    NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
} nccl_library;
extern nccl_library nccl;
/* Loads NCCL, once; an error says where it was looked for, or which of its settings cannot be worked with. */
yk_status nccl_open(void);
/* Calls ncclGetUniqueId. */
ncclResult_t nccl_unique_id(ncclUniqueId *id);

/* ---- nccl_join.c ---- */
yk_status nccl_join(const yk__comm_join_args *args, void **state);
void nccl_leave(void *state);
/* Makes the communicator of all ranks, in the first collective on a GPU. */
yk_status nccl_connect(nccl_group *g, const yk__comm_op *op);
yk_status nccl_own_record(nccl_group *g, const yk__comm_op *op, nccl_record *own);
/* Fails where NCCL does not join two ranks with these. */
yk_status nccl_compare(const nccl_group *g, int a, const nccl_record *of_a, int b, const nccl_record *of_b);
/* This is rank `rank` of `size` in a communicator of this identity; that of a `pair` has a stream of its own, and takes
 * a part of the GPU. */
yk_status nccl_make_comm(nccl_group *g, const yk__comm_op *op, nccl_line *line, int size, int rank,
                         const ncclUniqueId *id, bool pair);

/* ---- nccl_wait.c: waiting and failures ---- */
/* Fails with "all_reduce #2 (...) of rank 0 (host a, pid 12): CALL: NCCL says: ..." or CUDA's words. */
yk_status nccl_failed(const nccl_group *g, const yk__comm_op *op, const char *call, ncclResult_t code);
yk_status nccl_cuda_failed(const nccl_group *g, const yk__comm_op *op, const char *call, cudaError_t code);
/* A call of NCCL for the operation failed with `status`, or did not come to its end: nobody knows what the communicator
 * is good for then. Where the operation is recorded, the group is broken at once, since the ranks would else go on with
 * the step as it is; where it is not, whoever called it breaks the group. */
yk_status nccl_failed_inside(nccl_group *g, const yk__comm_op *op, yk_status status);
/* The call that makes a communicator, which waits for the network: an error says what helps there. */
#define NCCL_INITIALISATION "ncclCommInitRankConfig"
/* Waits until the communicator has done what a call of it left in progress (`code` is what the call returned), for up
 * to `seconds`. */
yk_status nccl_settle(nccl_group *g, nccl_line *line, const yk__comm_op *op, const char *call, ncclResult_t code,
                      double seconds);
/* Ends an operation that failed with `status`. The others must not wait for it, nor kernels go on unnoticed: breaks the
 * group, gives the communicator up, and fails with the group's first cause. */
yk_status nccl_broken(nccl_group *g, yk_status status);
/* Gives the communicators up after a failure: nothing of them touches memory any more. */
void nccl_give_up(nccl_group *g);
/* Calls ncclCommAbort or ncclCommDestroy: Note [The end of a communicator]. */
void nccl_end_comm(nccl_group *g, ncclComm_t comm, ncclResult_t (*call)(ncclComm_t comm));
/* Waits for all such calls for up to `seconds` together; those that are not over are nobody's from here on. */
void nccl_wait_for_ends(nccl_group *g, double seconds);
/* The slots of the table. */
yk_status nccl_queue_replay(void *state, const yk__comm_op *op, void **queued);
yk_status nccl_queue_behind(void *state, void *queued);
yk_status nccl_queue_until(void *state, void *queued);
yk_status nccl_queued_done(void *state, void *queued, bool *done);
void nccl_queued_free(void *state, void *queued);

/* ---- nccl_collective.c ---- */
yk_status nccl_queue_collective(void *state, const yk__comm_op *op, void **queued);
/* A collective of the library's own tensors on the CPU, by the control group. */
yk_status nccl_host_collective(void *state, const yk__comm_op *op);
yk_status nccl_mark_queue(void *state, const char *what, int device, void **marked);
/* An event of the group's, and its way back. */
yk_status nccl_take_mark(nccl_group *g, nccl_mark **mark);
void nccl_return_mark(nccl_group *g, nccl_mark *mark);
ncclDataType_t nccl_type_of(yk_dtype dtype);

/* ---- nccl_messages.c ---- */
yk_status nccl_post(void *state, const yk__comm_op *op, void **message);
yk_status nccl_wait(void *state, void *message, double seconds, bool *done);
void *nccl_message_queued(void *state, void *message);
void nccl_forget(void *state, void *message);
/* One that is recorded. */
yk_status nccl_record_message(nccl_group *g, const yk__comm_op *op, nccl_queued **queued);
/* One message of the control group, to its end. */
yk_status nccl_end_message(nccl_group *g, void *message, yk_status status);
/* Ends the pairs' threads, when no message is outstanding. */
void nccl_stop_pairs(nccl_group *g);
void nccl_free_pairs(nccl_group *g);

#endif
