/*
 * yoke/elastic.h - training whose results do not depend on the number of processes.
 *
 * Layer: elastic. The batch of a step is V shards, one of each *virtual rank*, whoever computes them. Each virtual rank
 * has the samples, the random numbers and the batch statistics of rank v of V in plain yk_ddp, and gradients are added
 * in the order in which V ranks add them: so yk_ddp in V processes, and this in 1, 2, 3, ... up to V processes, end
 * with the same weights, byte for byte, on processors with one set of instructions, and each goes on from the others'
 * checkpoints. Processes may come and go within a run (survive). docs/elastic.md has a how-to.
 *
 *     yk_elastic *job = yk_elastic_create(YK_OPTIONS(yk_elastic_options, .model = net, .optimizer = sgd,
 *                                                    .loader = loader, .virtual_ranks = 12));
 *     yk_module *model = yk_elastic_model(job);
 *     for (int64_t epoch = 0; epoch < epochs; epoch++) {
 *         yk_batch part;
 *         yk_loader_start(loader, epoch);
 *         while (yk_elastic_begin(job)) {                 // a step
 *             while (yk_elastic_next(job, &part)) {       // a batch of one of the virtual ranks that are here
 *                 yk_scope scope = yk_scope_begin();
 *                 yk_tensor *loss = yk_cross_entropy(yk_forward(model, part.input), part.target, NULL);
 *                 yk_status status = yk_elastic_backward(job, loss);
 *                 yk_scope_end(scope);
 *                 if (status)
 *                     return yk_report_error(stderr);
 *             }
 *             if (yk_elastic_step(job))
 *                 return yk_report_error(stderr);
 *         }
 *     }
 */
#ifndef YOKE_ELASTIC_H
#define YOKE_ELASTIC_H

#include <yoke/checkpoint.h>
#include <yoke/parallel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yk_elastic yk_elastic;

typedef struct yk_elastic_options {
    yk_module *model YK_DEFAULT(NULL);        /* not one of yk_ddp, which this makes of it; needed */
    yk_optimizer *optimizer YK_DEFAULT(NULL); /* of its parameters; needed */
    yk_schedule *schedule YK_DEFAULT(NULL);   /* of that optimizer: moves on with each step */
    yk_grad_scaler *scaler YK_DEFAULT(NULL);  /* of the losses */
    /* A loader of the training set with the batch size of one shard; needed. It was never started, and gives from here
     * on the parts of the virtual ranks that are here, whatever rank and world_size it was made for. With padding, or
     * drop_last.
     */
    yk_loader *loader YK_DEFAULT(NULL);
    /* Shards of a step, at least one for each process. Not given: $YOKE_VIRTUAL_RANKS, which `yoke run --virtual-ranks`
     * sets, and without it as many as there are processes. */
    int virtual_ranks YK_DEFAULT(YK_NOT_GIVEN);
    /* Batches of each shard, whose gradients are those of their mean: what yk_no_sync_begin is for in plain yk_ddp. The
     * last step of an epoch has those that are left. */
    int64_t accumulate YK_DEFAULT(1);
    /* Virtual rank v draws as rank v does after yk_manual_seed(seed + v), where all processes have the seed and have
     * drawn equally often. False: all virtual ranks draw as this process would, so that dropout takes the same places
     * in all shards. */
    bool different_seeds YK_DEFAULT(false);
    /* Gives the virtual ranks out anew, between two steps, where the seconds that processes take for them differ: a
     * slow one computes fewer, at least one. Results do not change. */
    bool balance YK_DEFAULT(false);
    /* Members may come and go: a process that ends does not end the run. See below. The scaler is one of no group
     * (yk_grad_scaler_set_group) from here on, as all members have the same gradients. */
    bool survive YK_DEFAULT(false);
    /* With survive: memory of the program's that belongs to the state of the run (counters, sums), without pointers.
     * It goes back with a step that is made again, and who joins gets the others'. Borrowed for the job's life. */
    void *own YK_DEFAULT(NULL);
    size_t own_bytes YK_DEFAULT(0);
    /* With survive: a text that has to be the same in all members, such as the program's settings, one a line. Who
     * joins is refused where its own differs, by a message with the two lines. Read when the job is made. */
    const char *alike YK_DEFAULT(NULL);
    yk_process_group *group YK_DEFAULT(NULL); /* NULL: the default group; where there is none, this process alone */
    unsigned yk__mark YK_DEFAULT(YK__MARK);   /* private */
} yk_elastic_options;
#define yk_elastic_options_DEFAULTS .yk__mark = YK__MARK, .virtual_ranks = YK_NOT_GIVEN, .accumulate = 1

/*
 * Every process of the group calls it, with equal models, options, loaders and seeds, which are compared; the model's
 * parameters and buffers become rank 0's. The objects of the options are kept. The virtual ranks are given out in their
 * order, equally many to each process, or one more to the first ones (but see balance); those with fewer wait in each
 * step, which the log says (yk_elastic_idle). With as many processes as virtual ranks it is yk_ddp, and does nothing
 * more.
 *
 * Errors: fewer virtual ranks than processes; a module that communicates inside forward (SyncBatchNorm), since the
 * virtual ranks of one process come one after the other.
 */
YK_API yk_elastic *yk_elastic_create(const yk_elastic_options *options);
YK_API yk_elastic *yk_elastic_retain(yk_elastic *job);
YK_API void yk_elastic_release(yk_elastic *job);

/* The module whose forwards are to be differentiated, borrowed: the model inside one of yk_ddp. NULL for NULL. */
YK_API yk_module *yk_elastic_model(yk_elastic *job) YK_QUESTION;
/* The number of virtual ranks; the first of this process, and the number of them that it computes. */
YK_API int yk_elastic_virtual_ranks(const yk_elastic *job) YK_QUESTION;
YK_API int yk_elastic_first(const yk_elastic *job) YK_QUESTION;
YK_API int yk_elastic_count(const yk_elastic *job) YK_QUESTION;
/* The share of all processes' time that is waited for those with one virtual rank more, from 0 to 1, if a shard takes
 * equally long everywhere. */
YK_API double yk_elastic_idle(const yk_elastic *job) YK_QUESTION;

/* Begins a step, with the gradients dropped; every process calls it. False when the loader's epoch is over, as
 * yk_loader_next says it, or on failure, with the error record set. A step that was begun, and all of whose batches
 * were taken, may be left out by beginning the next one. */
YK_API bool yk_elastic_begin(yk_elastic *job);
/* The next batch of this process in the step, valid as one of yk_loader_next is; what is drawn until the one after it
 * is drawn by its virtual rank. False when there is none, or on failure, with the error record set; all processes'
 * losses are then exchanged, and in the grads of the parameters are the means over all shards, for clipping, say. */
YK_API bool yk_elastic_next(yk_elastic *job, yk_batch *part);
/* The virtual rank whose batch was taken last. -1 outside a step. */
YK_API int yk_elastic_rank(const yk_elastic *job) YK_QUESTION;
/* The backward of a batch's loss, the mean over its samples, without dimensions. Once for each batch, in place of
 * yk_backward; it scales the loss for the batches of a shard, and by the scaler. The process's last one of a step goes
 * over all processes. */
YK_API yk_status yk_elastic_backward(yk_elastic *job, yk_tensor *loss) YK_MUST_CHECK;
/* The mean over all shards of the losses of the step whose batches were all taken: the same on all processes, and for
 * any number of them. NaN before the first. */
YK_API double yk_elastic_loss(const yk_elastic *job) YK_QUESTION;
/*
 * Raises flags (bits) of the program's in the step that is under way. yk_elastic_flags has those that any process has
 * raised in the last step whose batches were taken, the same on all. So they agree on what follows a step (a
 * checkpoint, as it is time; an end, as there was a signal) without a collective of their own.
 */
YK_API void yk_elastic_raise_flags(yk_elastic *job, uint32_t flags);
YK_API uint32_t yk_elastic_flags(const yk_elastic *job) YK_QUESTION;
/* Ends a step: a step of the optimizer, by the scaler where there is one, and of the schedule. It returns the error
 * that yk_elastic_next has left, if any. */
YK_API yk_status yk_elastic_step(yk_elastic *job) YK_MUST_CHECK;

/* ---- members that come and go ------------------------------------------------------------------------------------ */
/*
 * With the option `survive`, under `yoke run` on one node or with --nnodes MIN:MAX, the end of a process ends the step,
 * not the run: its call fails in the other processes, with an error that names the rank that is lost, and
 *
 *     if (status && yk_elastic_recover(job))      // behind yk_elastic_backward, yk_elastic_next or yk_elastic_step
 *         return yk_report_error(stderr);         // else the step is begun again by yk_elastic_begin
 *
 * goes on without it. The default group becomes that of the survivors, in place, with new ranks; the virtual ranks are
 * divided among them; buffers, random numbers, the loader and `own` go back to the begin of the step, and a member that
 * had not completed the step before takes its results from one that had. So no sample is lost or used twice, and the
 * results are those of a run without a fault, byte for byte. Whatever else the program changes within a step it has to
 * take back itself. `yoke run --max-restarts N` starts the process again, N times in all: it becomes a member
 * between two steps, with the others' state. A process that gets SIGTERM, or calls yk_elastic_leave, leaves between two
 * steps, and nothing is made again.
 */
/*
 * Behind a failed call, while its error is on record: waits until every member has come to this call, or to
 * yk_elastic_begin or _together, or its end is certain. If one has ended the others go on, the record is emptied, and
 * the result is YK_OK; yk_elastic_begin comes next. Else, and where survive is off, the error stays, and is returned. A
 * member that neither comes nor ends within $YOKE_JOIN_TIMEOUT (60 s) is an error.
 */
YK_API yk_status yk_elastic_recover(yk_elastic *job) YK_MUST_CHECK;
/*
 * An action of all members between two steps that communicates, such as an evaluation or the saving of a checkpoint: it
 * is called, and called again where a member has ended meanwhile, until all that are left have completed it. So it may
 * be made several times, and changes nothing but what it overwrites. An error of its own comes to all members alike.
 * Without survive it is called once. `action` NULL: the members wait for one another.
 *
 * At the end of an epoch all members come to the same action. One in the middle of an epoch belongs before
 * yk_elastic_begin, and is to depend on `own` alone: a member that had not completed the step before it when another
 * ended gets `own` of one that had, by yk_elastic_recover, and comes to the action by it.
 */
YK_API yk_status yk_elastic_together(yk_elastic *job, yk_status (*action)(void *argument),
                                     void *argument) YK_MUST_CHECK;
/* This process leaves at the end of the step that is under way; to be called from a signal handler, too. SIGTERM does
 * the same where its action is the default one when the job is made. Only jobs with survive look at it. */
YK_API void yk_elastic_leave(void);
/* True once yk_elastic_begin has returned false because this process has left, and from the beginning in a spare
 * (`yoke run --spares`) that was not needed: it goes to its end, without the others
 * and without writing results. left_together: so did all, as on a signal to `yoke run`, and the group is as it was;
 * they may save a checkpoint. */
YK_API bool yk_elastic_left(const yk_elastic *job) YK_QUESTION;
YK_API bool yk_elastic_left_together(const yk_elastic *job) YK_QUESTION;
/* True in a process that came when the run was under way: yk_elastic_create has given it the others' state, in place of
 * a checkpoint's, and `own`. Until then it is a world of one. To continue the epoch, call yk_loader_start with
 * YK_NEXT_EPOCH, or with the epoch in `own`. */
YK_API bool yk_elastic_joined(const yk_elastic *job) YK_QUESTION;
/* The number of the list of members, from 1, which grows with each change; 0 without survive, or where this process is
 * alone. */
YK_API int64_t yk_elastic_view(const yk_elastic *job) YK_QUESTION;

/* Sets model, optimizer, schedule, loader, scaler, accumulate and generators of *state, so that checkpoints hold what
 * the run needs to go on with any number of processes; saved and loaded between two steps. What stands there belongs to
 * the job, and lives as long as it. */
YK_API yk_status yk_elastic_describe(yk_elastic *job, yk_checkpoint_state *state) YK_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
