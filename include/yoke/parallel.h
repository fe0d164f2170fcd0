/*
 * yoke/parallel.h - training on several ranks: DistributedDataParallel, SyncBatchNorm.
 *
 * Layer: parallel. Names and semantics are those of torch.nn.parallel and torch.nn.SyncBatchNorm; docs/ddp.md tells how
 * it works and what differs. Group NULL means the default group.
 */
#ifndef YOKE_PARALLEL_H
#define YOKE_PARALLEL_H

#include <yoke/comm.h>
#include <yoke/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- DistributedDataParallel ------------------------------------------------------------------------------------- */
/*
 * A part of the gradients that is reduced at once, as a communication hook sees it. Everything is borrowed, and valid
 * from `start` to the end of `finish`.
 */
typedef struct yk_ddp_bucket {
    int index, count;     /* of how many; the same parameters on all ranks */
    yk_tensor *gradients; /* (elements): this rank's gradients, one after the other; some elements are padding */
    int n_parameters;     /* whose gradients these are, in their order in the bucket */
    yk_tensor *const *parameters;
    yk_process_group *group;
    yk_tensor *scratch; /* for the hook: what `start` puts here is retained, and there again at the next step */
} yk_ddp_bucket;

/*
 * What is done in place of the all_reduce (mean) of a bucket. `start` is called when the bucket's last gradient is
 * ready, in the order of buckets on every rank, and begins an asynchronous operation on the group, or fails with NULL.
 * `finish` (may be NULL) is called when that is done, and leaves the result in `gradients`. Both run on a thread of
 * backward with a scope open and nothing recorded. Source: register_comm_hook.
 */
typedef struct yk_ddp_comm_hook {
    yk_work *(*start)(yk_ddp_bucket *bucket, void *user);
    yk_status (*finish)(yk_ddp_bucket *bucket, void *user);
    void *user;
} yk_ddp_comm_hook;
/* Gradients travel in half the bytes. Source: fp16_compress_hook and bf16_compress_hook. */
YK_API extern const yk_ddp_comm_hook yk_ddp_fp16_compress, yk_ddp_bf16_compress;

typedef struct yk_ddp_options {
    /* NULL: the default group; where there is none, a world of one. It is kept, and used in the order of the calls:
     * what else is done on it must come in the same order on all ranks. */
    yk_process_group *group;
    /* MiB of one bucket, and of the one that is ready first; 0: 25 and 1; YK_ZERO: a bucket for each parameter. */
    double bucket_cap_mb, first_bucket_mb;
    bool no_broadcast_buffers; /* buffers are not made rank 0's before a forward in training mode */
    bool no_init_sync;         /* parameters and buffers are equal on all ranks already */
    /* Parameters that a backward does not reach count as zeros; those that no rank reached keep the gradient they had.
     * Without it they are an error. */
    bool find_unused_parameters;
    const yk_ddp_comm_hook *comm_hook; /* copied; not used in a world of one */
} yk_ddp_options;

/*
 * A module that trains `module` on all ranks of a group, each on its own part of the batch. `module` is kept as the
 * child "module", so state dict names begin with "module."; its tensors stay the same objects, on any CPU devices and
 * of any dtypes. Every rank calls it, with an equal module: names, shapes, dtypes and which parameters require a
 * gradient are compared first, and an error names rank, parameter and both shapes. Then every rank's parameters and
 * buffers become rank 0's.
 *
 * From then on a backward that reaches the parameters leaves in their grads the mean over all ranks; it returns when
 * all are done, and the same bits are on every rank. Grads are views of memory that is shared with the ranks of this
 * host, also after they were dropped (zero_grad): what is kept of one is written over by the next backward. A
 * backward that fails breaks the group, so that the other ranks fail too. yk_forward in training mode makes the
 * buffers rank 0's; in evaluation mode, or without anything recorded, the module does not communicate, so one rank
 * may evaluate alone. Between the ranks' calls of yk_forward and yk_backward on it the order must be the same.
 *
 * Parameters that move to another dtype or device, or whose requires_grad changes, do so on all ranks between two
 * steps. A parameter belongs to one such module at a time. In a world of one it does what the module does, and no more.
 * Source: torch.nn.parallel.DistributedDataParallel.
 */
YK_API yk_module *yk_ddp(yk_module *module, const yk_ddp_options *options);
/* Whether a module was made by yk_ddp; the module in it, borrowed: NULL for another; its group: NULL for
 * another, and in a world of one without a group. */
YK_API bool yk_is_ddp(const yk_module *m) YK_QUESTION;
YK_API yk_module *yk_ddp_module(yk_module *ddp) YK_QUESTION;
YK_API yk_process_group *yk_ddp_group(yk_module *ddp) YK_QUESTION;

/*
 * Between begin and end forwards through `ddp` are not synchronised: their backwards add to this rank's grads alone.
 * The next synchronised backward averages what has accumulated. All ranks do it for the same steps. The last forward
 * that recorded decides, so it must be inside, backward need not. Nests; end takes what begin returned. On a module
 * that is not yk_ddp's it does nothing. Source: no_sync.
 */
YK_API bool yk_no_sync_begin(yk_module *ddp);
YK_API void yk_no_sync_end(yk_module *ddp, bool previous);

/* ---- uneven inputs ----------------------------------------------------------------------------------------------- */
typedef struct yk_join_options {
    bool divide_by_active; /* gradients are divided by the ranks that still have input; default: by all ranks */
    /* All ranks fail (YK_ERR_STATE) as soon as one has run out; group and model stay usable. */
    bool throw_on_early_termination;
} yk_join_options;
/*
 * Between begin and end the ranks may have different numbers of batches. A rank that has run out calls end, which
 * answers the others' operations with zeros until all have run out; then every rank gets the parameters and buffers of
 * the one that had the most (the lowest such rank). It is for forward and backward of this one module: other
 * collectives, and SyncBatchNorm, have nobody who answers them (the latter is an error unless
 * throw_on_early_termination). Buffers come from the lowest rank that has input. After an error on the way, end is
 * still to be called; it returns that error. Source: DistributedDataParallel.join.
 */
YK_API yk_status yk_join_begin(yk_module *ddp, const yk_join_options *options) YK_MUST_CHECK;
YK_API yk_status yk_join_end(yk_module *ddp) YK_MUST_CHECK;

/* ---- where the time goes ----------------------------------------------------------------------------------------- */
enum { YK_DDP_WINDOW = 256 /* steps that waiting is computed over: the last ones */ };
/* One rank's synchronised steps since the module was made or yk_ddp_report_reset; seconds, mean over the steps. */
typedef struct yk_ddp_times {
    int rank, pid;
    char host[64];
    int64_t steps;   /* synchronised backwards */
    double forward;  /* forwards through the module that recorded, without their communication */
    double backward; /* backward until this rank had computed all its gradients, likewise */
    double exposed;  /* from there until all were reduced, and for buffers before the forward and in SyncBatchNorm:
                      * communication that nothing hid, and waiting for the others in it */
    double other;    /* the rest of a step: loading, loss, optimizer */
    double wait; /* part of the step for which this rank had finished and the slowest had not; 0: it is the slowest */
    double last; /* share of the steps in which this rank was the slowest, 0 to 1 */
} yk_ddp_times;
/* Fills ranks[0] to ranks[world_size - 1] on every rank; every rank calls it. The straggler is the rank with the least
 * wait; its forward, backward and other say why. */
YK_API yk_status yk_ddp_report(yk_module *ddp, yk_ddp_times *ranks) YK_MUST_CHECK;
/* This rank's alone, without communication; wait and last are NaN. */
YK_API yk_status yk_ddp_report_local(yk_module *ddp, yk_ddp_times *mine) YK_MUST_CHECK;
/* Writes such a table as text, one line a rank and one that names the slowest rank and its host. */
YK_API yk_status yk_ddp_report_print(FILE *to, const yk_ddp_times *ranks, int count) YK_MUST_CHECK;
/* Forgets the steps so far: after a warm-up. */
YK_API void yk_ddp_report_reset(yk_module *ddp);

/* ---- SyncBatchNorm ----------------------------------------------------------------------------------------------- */
/*
 * Makes every BatchNorm2d of the tree one whose statistics, and their gradients, are those of the joined batch of all
 * ranks of the group, which may hold different numbers of samples; in evaluation mode it is as before. The modules,
 * their tensors and names stay, in place; printed they are SyncBatchNorm. Returns m. In a world of one it does nothing
 * more. Source: SyncBatchNorm.convert_sync_batchnorm.
 */
YK_API yk_module *yk_convert_sync_batch_norm(yk_module *m, yk_process_group *group);
/* One such module of its own. Source: SyncBatchNorm. */
YK_API yk_module *yk_sync_batch_norm2d_create(int64_t features, const yk_batch_norm2d_options *options,
                                              yk_process_group *group);

#ifdef __cplusplus
}
#endif
#endif
