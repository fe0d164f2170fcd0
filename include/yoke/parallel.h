/*
 * yoke/parallel.h - training on several devices and ranks: DataParallel on those of one process, pipelines on those of
 * one process or of several, DistributedDataParallel and SyncBatchNorm on several ranks.
 *
 * Layer: parallel. Names and semantics are those of torch.nn.parallel, torch.distributed.pipelining and
 * torch.nn.SyncBatchNorm; docs/data_parallel.md, docs/pipeline.md and docs/ddp.md tell how they work and how they
 * differ from them. Group NULL means the default group, but for pipelines, which are then in one process.
 */
#ifndef YOKE_PARALLEL_H
#define YOKE_PARALLEL_H

#include <yoke/comm.h>
#include <yoke/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- DataParallel ------------------------------------------------------------------------------------------------ */
/* Splits n_inputs tensors (NULL where the module allows it) over the devices: input k of device i goes to parts[i *
 * n_inputs + k], owned by the scope, and *used becomes the number of devices that have a part: the first ones. */
typedef yk_status (*yk_scatter_fn)(yk_tensor *const *inputs, int n_inputs, const yk_device *devices, int count,
                                   yk_tensor **parts, int *used, void *user);

typedef struct yk_data_parallel_options {
    const yk_device *devices YK_DEFAULT(NULL); /* device_ids, copied; NULL: all of the type on which the module is */
    int count YK_DEFAULT(0);
    const yk_device *output_device YK_DEFAULT(NULL); /* copied; NULL: devices[0] */
    int dim YK_DEFAULT(0); /* along which inputs are split and outputs joined; negative counts from the end */
    yk_scatter_fn scatter YK_DEFAULT(NULL); /* in place of the splitting by dim */
    void *scatter_user YK_DEFAULT(NULL);
    bool gather YK_DEFAULT(true);           /* false: outputs stay on their devices, below */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_data_parallel_options;
#define yk_data_parallel_options_DEFAULTS .yk__mark = YK__MARK, .gather = true

/*
 * A module that runs `module` on several devices at once: the inputs of a forward are split along dim as yk_chunk
 * splits, a replica on each device takes its part, and the outputs are joined along dim on output_device (those without
 * dimensions become a vector). With fewer parts than devices the last devices have nothing to do. Backward leaves the
 * sum of all replicas' gradients in the grads of `module`, on devices[0], where its parameters and buffers must be.
 * Replicas and their threads live as long as the module; parameters are copied only where they changed, and not between
 * devices that have one memory, so a forward must not write parameters. The first replica's writes to buffers last.
 * Replicas share objects to which a module's data points, besides its own parts. A forward that fails names the
 * replica; the others are waited for.
 *
 * Without gather, yk_forward_list is asked for a multiple of `count` outputs: output k of n on device i is outputs[i *
 * n + k]; that of a device which had nothing to do has size 0 along dim.
 *
 * `module` is kept as the child "module". With one device its forward is called, and nothing is copied. Source:
 * torch.nn.DataParallel.
 */
YK_API yk_module *yk_data_parallel(yk_module *module, const yk_data_parallel_options *options);
YK_API bool yk_is_data_parallel(const yk_module *m) YK_QUESTION;
/* The module in it, borrowed, NULL for another; the number of its devices, 0 for another. */
YK_API yk_module *yk_data_parallel_module(yk_module *data_parallel) YK_QUESTION;
YK_API int yk_data_parallel_count(const yk_module *data_parallel) YK_QUESTION;

/*
 * The loss of outputs that stayed on their devices without gather, `count` of them, one a device: `target` is split
 * like the inputs, criterion(output, part of target, user) is called on every device at once, and the losses, without
 * dimensions, are joined on output_device: added up, or, where `reduction` says that the criterion takes the mean over
 * its samples, averaged by the sizes of the parts. So only numbers travel to the first device, where the outputs of all
 * would otherwise be held.
 */
typedef yk_tensor *(*yk_criterion_fn)(yk_tensor *output, yk_tensor *target, void *user);
YK_API yk_tensor *yk_data_parallel_criterion(yk_module *data_parallel, yk_tensor *const *outputs, int count,
                                             yk_tensor *target, yk_criterion_fn criterion, void *user,
                                             yk_reduction reduction);

/* The building blocks. `devices` are all different. */
/* replicas[i], owned by the scope, on devices[i]: the module itself where i is 0, as m must be there. Gradients go to
 * m's parameters. They are of one forward: after m's parameters have changed, make others.
 * Source: torch.nn.parallel.replicate. */
YK_API yk_status yk_replicate(yk_module *m, const yk_device *devices, int count, yk_module **replicas) YK_MUST_CHECK;
/* x split along dim into at most `count` parts as yk_chunk does: parts[i], owned by the scope, on devices[i]; *used of
 * them, the rest is NULL. Differentiable. Between devices that have one memory nothing is copied.
 * Source: torch.nn.parallel.scatter. */
YK_API yk_status yk_device_scatter(yk_tensor *x, const yk_device *devices, int count, int dim, yk_tensor **parts,
                                   int *used) YK_MUST_CHECK;
/* Calls replicas[i] with the n_inputs tensors from inputs[i * n_inputs] on, each on a thread of its device, all at
 * once; output k of n to outputs[i * n_outputs + k], owned by the scope, all NULL on failure. Source:
 * torch.nn.parallel.parallel_apply. */
YK_API yk_status yk_parallel_apply(yk_module *const *replicas, int count, yk_tensor *const *inputs, int n_inputs,
                                   yk_tensor **outputs, int n_outputs) YK_MUST_CHECK;
/* The parts joined along dim on a device; those without dimensions become a vector. Differentiable.
 * Source: torch.nn.parallel.gather. */
YK_API yk_tensor *yk_device_gather(yk_tensor *const *parts, int count, int dim, yk_device device);

/* The work and the times of one device since the module was made or the report was reset. Seconds are means over the
 * forwards; with GPUs they are the host's, which queues their work and goes on. */
typedef struct yk_device_times {
    yk_device device;
    int64_t forwards, samples;  /* in which it had a part; sizes of the parts along dim */
    double forward;             /* until its replica was done, loss included */
    double wait;                /* from there until the slowest was */
    double backward;            /* computing; backward passes of other modules on this device count too */
    size_t memory, peak_memory; /* bytes that the device's tensors hold, and the most they have held */
} yk_device_times;
/* Fills devices[0] to devices[count - 1]. */
YK_API yk_status yk_data_parallel_report(yk_module *data_parallel, yk_device_times *devices) YK_MUST_CHECK;
/* Writes such a table as text, one line a device, and one about the balance of memory, with advice. */
YK_API yk_status yk_data_parallel_report_print(FILE *to, const yk_device_times *devices, int count) YK_MUST_CHECK;
/* Forgets the forwards so far, and the devices' peaks. */
YK_API void yk_data_parallel_report_reset(yk_module *data_parallel);

/* ---- pipelines --------------------------------------------------------------------------------------------------- */
typedef enum yk_pipeline_schedule {
    YK_PIPELINE_1F1B, /* a stage holds the activations of min(stages - stage, chunks) micro-batches at most */
    YK_PIPELINE_GPIPE /* all forwards, then all backwards: those of all */
} yk_pipeline_schedule;

typedef struct yk_pipeline_options {
    /* One for each stage, all different, copied; stages are moved there. NULL: the devices on which the stages are.
     * With a group those of other ranks' stages are not looked at, and may be equal to this rank's. */
    const yk_device *devices YK_DEFAULT(NULL);
    int chunks YK_DEFAULT(YK_NOT_GIVEN); /* micro-batches of a batch, at least 1; not given: as many as stages */
    yk_pipeline_schedule schedule YK_DEFAULT(YK_PIPELINE_1F1B);
    int dim YK_DEFAULT(0); /* along which batches are split and outputs joined; negative counts from the end */
    const int *tensors YK_DEFAULT(NULL); /* copied; the number of tensors that each stage but the last hands on; NULL:
                                          * one */
    /* The loss of the last stage's output, without dimensions, for yk_pipeline_step; reduction says whether it is the
     * mean or the sum over the samples that it is given. */
    yk_criterion_fn criterion YK_DEFAULT(NULL);
    void *criterion_user YK_DEFAULT(NULL);
    yk_reduction reduction YK_DEFAULT(YK_REDUCE_MEAN);
    /* The ranks that have the stages, below; NULL, and a group of one: this process has all. */
    yk_process_group *group YK_DEFAULT(NULL);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_pipeline_options;
#define yk_pipeline_options_DEFAULTS .yk__mark = YK__MARK, .chunks = YK_NOT_GIVEN

/*
 * A module whose stages, its children "0", "1", ..., are on different devices: the output of one is the input of the
 * next. A batch is split along dim into chunks that differ by one sample at most (as torch.tensor_split does), so that
 * all devices are at work at once, each on another micro-batch; a thread for each device, the first stage on the
 * calling one. Every stage takes the micro-batches in their order, so state that it keeps of them (BatchNorm's running
 * statistics) is as if they came one after the other. A stage that fails is named with its device and micro-batch; the
 * others end.
 *
 * yk_forward gives the outputs, joined on the last stage's device. Where operations are recorded yk_backward works
 * through all micro-batches on all devices at once, and holds the gradients of a parameter from all of them until they
 * are added; for training yk_pipeline_step needs less memory. Source: torch.distributed.pipelining, Pipe.
 *
 * With a group the stages are in several processes. Every rank calls it, with the same count and options but for
 * devices and criterion, which is the last rank's. A rank keeps the stages that yk_pipeline_local names: a block, so
 * that there are as many stages as ranks, or more, and stage s is rank s's where they are as many. Other entries of
 * `stages` may be NULL, and are not looked at. The child of stage s is "s" on its rank: the ranks' state dicts together
 * are that of the pipeline in one process. Loss, gradients, buffers and random numbers are those of the pipeline in one
 * process, bit for bit; the random numbers come from the first rank's generator. All ranks call yk_pipeline_step, or
 * yk_forward, with the inputs on the first rank, and the target on the last one; what others give is not looked at, and
 * may be NULL. Outputs of yk_forward are the last rank's; the others get ones of size 0 along dim. Nothing may be
 * recorded in it, since yk_backward does not go to other processes. Mistakes in the arguments of one rank are errors of
 * all, and the pipeline stays usable; a stage that fails, or a rank that ends, breaks a group of the pipeline's own, so
 * that every rank fails and names it, at this call and the next ones. Where yk_ddp is around the pipeline, over ranks
 * that have the same stages, give its module to yk_pipeline_step.
 */
YK_API yk_module *yk_pipeline(yk_module *const *stages, int count, const yk_pipeline_options *options);
YK_API bool yk_is_pipeline(const yk_module *m) YK_QUESTION;
YK_API int yk_pipeline_count(const yk_module *pipeline) YK_QUESTION; /* its stages, 0 for another */
/* The stages that this rank has in a pipeline of `count` stages over the group: the number of them, from *first on. The
 * first count % world_size ranks have one more than the others. NULL group: all. */
YK_API int yk_pipeline_local(int count, yk_process_group *group, int *first) YK_QUESTION;

/*
 * Forward and backward of a batch by the schedule: adds to the gradients of the stages' parameters, and gives the loss,
 * without history, on the last stage's device, or that of this rank's last stage: the sum of the micro-batches' losses,
 * or their mean by samples where reduction is the mean, so that it, and the gradients, are the entire batch's also
 * where the batch does not divide. Inputs and target have one size along dim, at least `chunks`; target may be NULL,
 * for the criterion too. NULL and an error on failure: gradients then have the sums up to there. The pipeline may be in
 * a module of yk_ddp: then that module is given, and its ranks' gradients are averaged once all micro-batches are done.
 * Source: ScheduleGPipe.step, Schedule1F1B.step.
 */
YK_API yk_tensor *yk_pipeline_step(yk_module *pipeline, yk_tensor *input, yk_tensor *target);
/* The same of a first stage that takes n_inputs tensors, NULL where it allows it. */
YK_API yk_tensor *yk_pipeline_step_list(yk_module *pipeline, yk_tensor *const *inputs, int n_inputs, yk_tensor *target);

/* The work and the times of one stage in yk_pipeline_step since the module was made or the report was reset. Seconds
 * are means over the steps; with GPUs they, and `idle`, are the host's, which queues their work and goes on. */
typedef struct yk_stage_times {
    int stage;
    int rank; /* of the group; 0 without one */
    yk_device device;
    int64_t steps, micro_batches;
    double forward, backward;   /* computing */
    double idle;                /* share of the step in which it did not, 0 to 1 */
    double ideal_idle;          /* with stages of equal time: (stages - 1) / (chunks + stages - 1) */
    int in_flight;              /* micro-batches whose activations it held at once, at most */
    size_t memory, peak_memory; /* bytes that the device's tensors hold, and the most they have held */
} yk_stage_times;
/* Fills stages[0] to stages[count - 1]. With a group every rank calls it, and gets all stages'. */
YK_API yk_status yk_pipeline_report(yk_module *pipeline, yk_stage_times *stages) YK_MUST_CHECK;
/* Writes such a table as text, one line a stage, and one about the pipeline's bubble, or that these are times of the
 * host. */
YK_API yk_status yk_pipeline_report_print(FILE *to, const yk_stage_times *stages, int count) YK_MUST_CHECK;
/* Forgets the steps so far, and the devices' peaks. */
YK_API void yk_pipeline_report_reset(yk_module *pipeline);

/* ---- DistributedDataParallel ------------------------------------------------------------------------------------- */
/*
 * A part of the gradients that is reduced at once, as a communication hook sees it. Everything is borrowed, and valid
 * from `start` to the end of `finish`.
 */
typedef struct yk_ddp_bucket {
    int index, count;     /* of how many; the same parameters on all ranks */
    yk_tensor *gradients; /* (elements): this rank's gradients, one after the other; some elements are padding */
    int n_parameters;     /* the parameters of these gradients, in their order in the bucket */
    yk_tensor *const *parameters;
    yk_process_group *group;
    yk_tensor *scratch; /* for the hook: a tensor that `start` puts here is retained, and there again at the next
                         * step */
} yk_ddp_bucket;

/*
 * The functions that reduce a bucket in place of all_reduce (mean). `start` is called when the bucket's last gradient
 * is ready, in the order of buckets on every rank, and begins an asynchronous operation on the group, or fails with
 * NULL. `finish` (may be NULL) is called when that is done, and leaves the result in `gradients`. Both run on a thread
 * of backward with a scope open and nothing recorded. Source: register_comm_hook.
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
     * other operations on it must come in the same order on all ranks. */
    yk_process_group *group YK_DEFAULT(NULL);
    /* MiB of one bucket, and of the one that is ready first; 0: a bucket for each parameter. */
    double bucket_cap_mb YK_DEFAULT(25), first_bucket_mb YK_DEFAULT(1);
    bool broadcast_buffers YK_DEFAULT(true); /* buffers become rank 0's before a forward in training mode */
    bool init_sync YK_DEFAULT(true);         /* false: parameters and buffers are equal on all ranks already */
    /* Parameters that a backward does not reach count as zeros; those that no rank reached keep the gradient they had.
     * Without it they are an error. */
    bool find_unused_parameters YK_DEFAULT(false);
    const yk_ddp_comm_hook *comm_hook YK_DEFAULT(NULL); /* copied; not used in a world of one */
    /* device_ids, copied: the one device that the module is on. Inputs of a forward move there from wherever they are.
     * NULL or none: they stay, and the module may be on several devices. */
    const yk_device *devices YK_DEFAULT(NULL);
    int count YK_DEFAULT(0);
    const yk_device *output_device YK_DEFAULT(NULL); /* copied; where outputs move to; NULL: they stay */
    unsigned yk__mark YK_DEFAULT(YK__MARK);          /* private */
} yk_ddp_options;
#define yk_ddp_options_DEFAULTS                                                                                        \
    .yk__mark = YK__MARK, .bucket_cap_mb = 25, .first_bucket_mb = 1, .broadcast_buffers = true, .init_sync = true

/*
 * A module that trains `module` on all ranks of a group, each on its own part of the batch. `module` is kept as the
 * child "module", so state dict names begin with "module."; its tensors stay the same objects, on any CPU devices and
 * of any dtypes. Every rank calls it, with an equal module: names, shapes, dtypes and which parameters require a
 * gradient are compared first, and an error names rank, parameter and both shapes. Then every rank's parameters and
 * buffers become rank 0's.
 *
 * From then on a backward that reaches the parameters leaves in their grads the mean over all ranks; it returns when
 * all are done, and the same bits are on every rank. Grads are views of memory that is shared with the ranks of this
 * host, also after they were dropped (zero_grad): a grad that is kept is written over by the next backward. A backward
 * that fails breaks the group, so that the other ranks fail too. yk_forward in training mode makes the buffers rank
 * 0's; in evaluation mode, or without anything recorded, the module does not communicate, so one rank may evaluate
 * alone. Between the ranks' calls of yk_forward and yk_backward on it the order must be the same.
 *
 * Parameters that move to another dtype or device, or whose requires_grad changes, do so on all ranks between two
 * steps. A parameter belongs to one such module at a time. In a world of one it does what the module does, and no more.
 * Source: torch.nn.parallel.DistributedDataParallel.
 */
YK_API yk_module *yk_ddp(yk_module *module, const yk_ddp_options *options);
/* yk_is_ddp is true for a module that yk_ddp made. yk_ddp_module returns the module in it, borrowed; NULL for another.
 * yk_ddp_group returns its group; NULL for another, and in a world of one without a group. */
YK_API bool yk_is_ddp(const yk_module *m) YK_QUESTION;
YK_API yk_module *yk_ddp_module(yk_module *ddp) YK_QUESTION;
YK_API yk_process_group *yk_ddp_group(yk_module *ddp) YK_QUESTION;

/*
 * Between begin and end forwards through `ddp` are not synchronised: their backwards add to this rank's grads alone.
 * The next synchronised backward averages the accumulated gradients. All ranks do it for the same steps. The last
 * forward that recorded decides, so it must be inside, backward need not. Nests; end takes what begin returned. On a
 * module that is not yk_ddp's it does nothing. Source: no_sync.
 */
YK_API bool yk_no_sync_begin(yk_module *ddp);
YK_API void yk_no_sync_end(yk_module *ddp, bool previous);

/* ---- uneven inputs ----------------------------------------------------------------------------------------------- */
typedef struct yk_join_options {
    /* Gradients are divided by the ranks that still have input, and not by all ranks. */
    bool divide_by_active YK_DEFAULT(false);
    /* All ranks fail (YK_ERR_STATE) as soon as one has run out; group and model stay usable. */
    bool throw_on_early_termination YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_join_options;
#define yk_join_options_DEFAULTS .yk__mark = YK__MARK
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

/* ---- loss scaling over ranks ------------------------------------------------------------------------------------- */
/*
 * From now on yk_grad_scaler_step is a collective call of the group: where one rank has found a gradient that is not
 * finite, all leave the step out, and their factors stay the same; where one fails, all do, naming it. For gradients
 * that differ between the ranks, of a model in parts, say; those of yk_ddp are the same on all. NULL: this rank alone,
 * as at first. Source: ShardedGradScaler's process_group.
 */
YK_API yk_status yk_grad_scaler_set_group(yk_grad_scaler *s, yk_process_group *group) YK_MUST_CHECK;

/* ---- the times of synchronised steps ----------------------------------------------------------------------------- */
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
 * their tensors and names stay, in place; printed they are SyncBatchNorm, though their class (yk_module_class_of)
 * stays. Returns m. In a world of one it does nothing more. Source: SyncBatchNorm.convert_sync_batchnorm.
 */
YK_API yk_module *yk_convert_sync_batch_norm(yk_module *m, yk_process_group *group);
/* One such module of its own. Source: SyncBatchNorm. */
YK_API yk_module *yk_sync_batch_norm2d_create(int64_t features, const yk_batch_norm2d_options *options,
                                              yk_process_group *group);

#ifdef __cplusplus
}
#endif
#endif
