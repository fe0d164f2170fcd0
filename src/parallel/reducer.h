/*
 * reducer.h - the types and functions that the files of DistributedDataParallel share. Layer: parallel.
 *
 * A reducer collects the gradients of a module's parameters into buckets and averages each bucket over the ranks as
 * soon as it is complete. Everything that decides which collective comes next is the same on all ranks: the buckets and
 * their order come from the parameters and from rank 0, never from this rank's timing.
 */
#ifndef YOKE_PARALLEL_REDUCER_H
#define YOKE_PARALLEL_REDUCER_H

#include <pthread.h>

#include <yoke/parallel.h>

#include "autograd/tape.h"

typedef struct yk__ddp_parameter {
    yk_tensor *x;     /* borrowed from the reducer's list */
    const char *name; /* likewise */
    yk_tensor
        *grad_buffer; /* its gradient's memory in its bucket; NULL where it required none when buckets were laid out */
    int bucket;
    bool ready;      /* in this reduction */
    bool used;       /* a backward of this rank has reached it since the last reduction */
    bool reached;    /* this backward does */
    yk_tensor *kept; /* its gradient before this reduction, in case that no rank used it */
} yk__ddp_parameter;

typedef struct yk__ddp_bucket {
    yk_ddp_bucket bucket; /* `gradients` and `scratch` are references */
    yk_tensor **members;  /* the array to which bucket.parameters points */
    int missing;          /* parameters that are not ready in this reduction */
    yk_work *work;
} yk__ddp_bucket;

/* The header that a rank publishes before each forward and each reduction while inputs may be uneven. */
typedef struct yk__join_header {
    int64_t step; /* a yk__join_step */
    int64_t rebuild, buffers;
} yk__join_header;
typedef enum yk__join_step { YK__JOIN_OUT = 0, YK__JOIN_FORWARD, YK__JOIN_BACKWARD } yk__join_step;

typedef struct yk__join {
    uint64_t failures; /* of this thread when it began (yk__error_count) */
    bool on, divide_by_active, throw_early;
    bool early;            /* it was ended because of throw_early */
    int active, lowest;    /* of the last header with an active rank: the number of active ranks, the lowest of them */
    yk_tensor *mine, *all; /* (3) and (world_size, 3) of i64 */
    yk_work *work;         /* of a backward's header */
} yk__join;

typedef struct yk__ddp_clock {
    double born;                              /* of the first forward or backward since a reset; 0: none yet */
    double began;                             /* of the backward in progress */
    double ended;                             /* of the last reduction */
    double forward, backward, exposed, total; /* sums */
    double waited; /* for other ranks before this step's last gradient: buffers, SyncBatchNorm */
    double before; /* yk__sync_waited when the backward in progress began */
    int64_t steps;
    double busy[YK_DDP_WINDOW]; /* per step: from the end of the last reduction to this rank's last gradient,
                                 * without `waited` */
} yk__ddp_clock;

typedef struct yk__reducer {
    yk__collector collector; /* first: the engine's pointer is cast back */
    yk_module *module;       /* borrowed: the child of the DDP module that owns this */
    yk_process_group *group;
    int rank, world_size;
    bool find_unused, broadcast_buffers, has_hook;
    bool virtual_ranks;               /* of yk__ddp_virtual, in a world of one, too */
    const char *wrapped;              /* a parameter that another module of yk_ddp has, or NULL */
    int64_t bucket_cap, first_bucket; /* bytes */
    yk_ddp_comm_hook hook;

    yk_parameters *list; /* all of the module's */
    yk__ddp_parameter *parameters;
    int count;
    yk_tensor **buffers; /* retained */
    int n_buffers;
    yk_tensor *buffer_flat; /* the tensor in which the buffers travel, kept between forwards */

    yk__ddp_bucket *buckets;
    int n_buckets;
    int *order;        /* positions of the parameters by which buckets are filled */
    bool settled;      /* the order is that of a backward, rank 0's */
    bool reduced;      /* once with the parameters there are, by this rank or for others: the same on all ranks */
    int *seen, n_seen; /* positions in the order of their gradients, while it is not settled */

    bool no_sync;                     /* between yk_no_sync_begin and end */
    bool sync;                        /* the next backward is to be reduced */
    bool walking;                     /* a backward is under way */
    bool reducing;                    /* and is reduced */
    yk_status (*interrupt)(void *of); /* NULL, or asked at each gradient: what it returns ends the backward */
    void *interrupt_of;
    bool held;            /* backwards only note what they reach: yk__reducer_release reduces */
    pthread_mutex_t lock; /* ready is called by one thread per device */
    int next;             /* the bucket to start next */
    yk_tensor *used;      /* (count) u8: what any rank used; made when unused parameters are looked for */
    yk_work *used_work;

    yk__join join;
    yk__ddp_clock clock;
} yk__reducer;

/* ---- ddp.c ---- */
/* The reducer of a module of yk_ddp (NULL in a world of one); NULL and an error in the name of `what` for another. */
yk_status yk__reducer_of(const char *what, yk_module *m, yk__reducer **reducer);

/* As yk_ddp, for who computes several ranks' shards in each process: there is a reducer in a world of one, too, and the
 * communication hook, which combines the shards, is used there. options->group is given. */
yk_module *yk__ddp_virtual(yk_module *module, const yk_ddp_options *options);

/* The group has other members (yk_process_group_rebuild), and no backward is under way: buckets in new memory, in the
 * order that those of a new module have. */
yk_status yk__reducer_regroup(yk__reducer *r);

/* ---- buckets.c ---- */
/* Lays the buckets out by r->order, with gradients that are there moved into them. After a failure none of it
 * is to be used. */
yk_status yk__buckets_make(yk__reducer *r);
/* Makes new buckets for parameters that have changed: an order that was seen before is not theirs. */
yk_status yk__buckets_renew(yk__reducer *r);
/* True if a parameter's dtype, device, memory order or requires_grad is no longer what the buckets were made for. */
bool yk__buckets_stale(const yk__reducer *r);
/* A description of what is wrong with the buckets (base/invariant.h): their order, the parameters of each, the memory
 * of gradients; NULL for nothing. */
const char *yk__buckets_check(const yk__reducer *r);
/* Takes the parameters out of the buckets; gradients stay where they are. */
void yk__buckets_clear(yk__reducer *r);

/* ---- reducer.c ---- */
/* The callbacks of the engine. */
extern const yk__collector yk__reducer_collector;
/* Prepares a forward that is recorded: makes new buckets where they are due; in training takes rank 0's order for them,
 * and its buffers. */
yk_status yk__reducer_prepare(yk__reducer *r, bool training);
/* Prepares the backwards of several micro-batches, in any number of threads, whose gradients are reduced together: as a
 * forward that is recorded. Where it did not fail `release` follows, with the status of all. */
yk_status yk__reducer_hold(yk__reducer *r, bool training);
/* Reduces what the backwards since `hold` have added up, unless in no_sync; where they failed, breaks the group, whose
 * other ranks wait for this one's gradients. */
yk_status yk__reducer_release(yk__reducer *r, yk_status status);
/* The order of rank `src`'s first backward becomes that of the buckets, on all ranks. */
yk_status yk__reducer_settle(yk__reducer *r, int src);
/* With r->lock held: starts every bucket that is complete and whose turn it is. */
yk_status yk__reducer_start_buckets(yk__reducer *r);
/* Waits for everything that was started; the first error. Buckets that were not started are passed over. */
yk_status yk__reducer_wait(yk__reducer *r);
/* Breaks the group, because the other ranks wait for what will not come; the error on record is the reason, and stays.
 * Ends what was started. */
void yk__reducer_abort(yk__reducer *r, const char *what);
/* Clears the state of a reduction. */
void yk__reducer_reset(yk__reducer *r);
/* Shows the use of parameters to all ranks, when unused ones are looked for. */
yk_status yk__reducer_start_used(yk__reducer *r);

/* ---- ddp_rows.c ---- */
/* True if gradients by rows are exchanged as rows: there are parameters of other kinds, and no communication hook. */
bool yk__rows_are_apart(const yk__reducer *r);
/* True if x, which is in no bucket then, is exchanged so. */
bool yk__in_rows(const yk__reducer *r, const yk_tensor *x);
/* The gradients by rows become the mean of the ranks'. */
yk_status yk__rows_exchange(yk__reducer *r);
/* Drops this rank's, which has nothing to add, or what the exchange gave it. */
void yk__rows_drop(const yk__reducer *r);

/* ---- model_sync.c ---- */
/* Names, shapes, dtypes and requires_grad of the parameters, and the buffers, are those of rank 0; else an error on all
 * ranks that names the first difference. */
yk_status yk__model_compare(yk__reducer *r);
/* All tensors become rank src's, in few operations; their versions go on where `written` says so. *flat (may hold NULL)
 * is kept for the next call with the same tensors; flat NULL: nothing is kept. */
yk_status yk__model_broadcast(int count, yk_tensor *const *tensors, int src, bool written, yk_process_group *group,
                              yk_tensor **flat);
/* All buffers become rank src's, before a forward. */
yk_status yk__model_broadcast_buffers(yk__reducer *r, int src);
/* All parameters and buffers become rank src's. */
yk_status yk__model_broadcast_all(yk__reducer *r, int src);
/* Every buffer of the tree, once, also those that are not in the state dict. Retained; *list is the caller's. */
yk_status yk__model_buffers(yk_module *m, yk_tensor ***list, int *count);

/* ---- ddp_join.c ---- */
/* For inputs that may be uneven: publishes the step that this rank is about to do, and checks that all active ranks do
 * the same. */
yk_status yk__join_forward(yk__reducer *r, bool rebuild, bool buffers);
/* The same at the begin of a reduction, without waiting; `end` when it is over. */
yk_status yk__join_backward(yk__reducer *r);
yk_status yk__join_backward_end(yk__reducer *r);
void yk__join_clear(yk__reducer *r);

/* ---- sync_batch_norm.c ---- */
bool yk__has_sync_batch_norm(yk_module *m);
/* Seconds that this thread has spent in SyncBatchNorm's collectives. */
double yk__sync_waited(void);

#endif
