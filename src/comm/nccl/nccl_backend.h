/*
 * nccl_backend.h - what the files of the nccl backend share. Layer: comm/nccl.
 *
 * Note [The control group]
 * A group of this backend has one of the native backend beside it, of the same ranks. Every collective begins there:
 * the ranks agree on operation, dtype, count, reduction and root, as native's do, so NCCL is called only where all have
 * come to the same operation. Failures go through it too: whoever sees one breaks the control group, which all look at
 * while NCCL works, and then gives its communicator up (ncclCommAbort). What the library itself sends in the host's
 * memory goes by it, and so do messages.
 *
 * Note [Streams of NCCL]
 * A communicator has a stream of its own. An operation on it begins behind an event of the device's stream that was
 * recorded when the operation was called, so it runs beside what the program queued later (backward). It is waited for
 * on the host: then it is known to have succeeded, and whatever is queued from then on comes after it.
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

/* What a collective begins behind; kept for the next one. */
typedef struct nccl_mark {
    cudaEvent_t event;
    struct nccl_mark *next;
} nccl_mark;

typedef struct nccl_group {
    void *control; /* the state of the native group */
    int rank, world_size;
    char name[304], host_name[64];
    double timeout, join_timeout;
    int device, gpu;  /* of the first operation, and of all others; -1: none yet */
    ncclComm_t comm;  /* NULL before the first operation, and after a failure */
    bool given_up;    /* a failure: there will be no other communicator */
    bool fixed_order; /* sums in the tree of ranks: YOKE_DETERMINISTIC=1 */
    cudaStream_t stream;
    cudaEvent_t done;
    pthread_mutex_t lock; /* marks, and device as long as it is -1 */
    nccl_mark *free_marks;
} nccl_group;

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
/* Loads NCCL, once; an error says where it was looked for. */
yk_status nccl_open(void);

/* ---- nccl_join.c ---- */
yk_status nccl_join(const yk__comm_join_args *args, void **state);
void nccl_leave(void *state);
/* Makes the communicator of the group, with all ranks, in the first operation on a GPU. */
yk_status nccl_connect(nccl_group *g, const yk__comm_op *op);

/* ---- nccl_wait.c: waiting and failures ---- */
/* Fails with "all_reduce #2 (...) of rank 0 (host a, pid 12): CALL: NCCL says: ..." or CUDA's words. */
yk_status nccl_failed(const nccl_group *g, const yk__comm_op *op, const char *call, ncclResult_t code);
yk_status nccl_cuda_failed(const nccl_group *g, const yk__comm_op *op, const char *call, cudaError_t code);
/* Until the communicator has done what a call of it left in progress (`code` is what the call returned), for up to
 * `seconds`. */
yk_status nccl_settle(nccl_group *g, const yk__comm_op *op, const char *call, ncclResult_t code, double seconds);
/* Until what is queued on the stream is done. */
yk_status nccl_finish(nccl_group *g, const yk__comm_op *op);
/* After a failure: the communicator is given up, and nothing of it touches memory any more. */
void nccl_give_up(nccl_group *g);

/* ---- nccl_collective.c ---- */
yk_status nccl_collective(void *state, const yk__comm_op *op);
yk_status nccl_mark_queue(void *state, const char *what, int device, void **marked);

#endif
