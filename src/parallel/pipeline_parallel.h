/*
 * pipeline_parallel.h - a module of yk_pipeline from the inside: for its schedules and its report. Layer: parallel.
 */
#ifndef YOKE_PARALLEL_PIPELINE_PARALLEL_H
#define YOKE_PARALLEL_PIPELINE_PARALLEL_H

#include "parallel/replicas.h"

enum { YK__MOST_STAGES = YK__MOST_REPLICAS };

/* The times of one stage: in one step, and added up since the last reset. */
typedef struct yk__stage_clock {
    double forward, backward;
    int in_flight; /* the most */
} yk__stage_clock;

typedef struct yk__pipeline {
    int count, chunks, dim;
    int first, own;          /* the stages of this process: `own` of them from `first` on; without a group all */
    yk_process_group *group; /* of the ranks that have the others, of the pipeline's own, retained; NULL: none */
    yk_module *stages[YK__MOST_STAGES]; /* the children; NULL for another rank's */
    yk_device devices[YK__MOST_STAGES]; /* of this process's stages */
    int tensors[YK__MOST_STAGES];       /* that stage s hands to the next */
    yk_pipeline_schedule schedule;
    yk_criterion_fn criterion;
    void *criterion_user;
    yk_reduction reduction;
    int64_t steps;
    double seconds; /* of all steps */
    yk__stage_clock clocks[YK__MOST_STAGES];
} yk__pipeline;

/* The data of a module of yk_pipeline; NULL and an error in the name of `what` for another. */
yk__pipeline *yk__pipeline_of(const char *what, yk_module *m);

/* ---- running a batch (pipeline_schedule.c) ---- */
typedef struct yk__pipeline_batch {
    yk_tensor *const *inputs; /* NULL entries are allowed */
    yk_tensor *target;
    int n_inputs, n_outputs;
    int64_t samples;
    bool train;          /* loss and backward, too */
    yk_tensor **results; /* references: output o of micro-batch k, [k * n_outputs + o], or its loss, [k] */
    yk__stage_clock clocks[YK__MOST_STAGES];
    yk_random_state random; /* with a group: of the first rank's generator as the batch begins */
    bool drew;              /* likewise: whether a stage of this process but the first one of all drew */
} yk__pipeline_batch;
/* Fills `results` and `clocks`; on failure there may be results, too, which are the caller's in any case. */
yk_status yk__pipeline_run(yk__pipeline *p, yk__pipeline_batch *batch);
/* The sample at which micro-batch k begins in so many samples: the first samples % chunks of them have one more. k may
 * be chunks. */
static inline int64_t yk__micro_batch_start(const yk__pipeline *p, int64_t samples, int k)
{
    int64_t longer = samples % p->chunks;
    return k * (samples / p->chunks) + (k < longer ? k : longer);
}
/* The weight of the loss of micro-batch k in that of the batch. */
static inline double yk__micro_batch_weight(const yk__pipeline *p, int64_t samples, int k)
{
    int64_t own = yk__micro_batch_start(p, samples, k + 1) - yk__micro_batch_start(p, samples, k);
    return p->reduction == YK_REDUCE_MEAN ? (double)own / (double)samples : 1;
}

/* ---- stages in other processes (pipeline_group.c) ---- */
enum { YK__FORWARD_TAG = 1, YK__BACKWARD_TAG = 3 }; /* of notes; the tensors' tags are one higher */
/* Messages that were sent, and perhaps not taken. */
typedef struct yk__pipeline_sends {
    yk_work **works; /* references */
    int count, room;
} yk__pipeline_sends;
/* The rank that has stage s; 0 without a group. */
int yk__pipeline_rank(const yk__pipeline *p, int s);
/* All ranks of `group` call it, with the status of their checks so far: fails on all where one has failed or wants
 * another pipeline, else makes p->group. */
yk_status yk__pipeline_join(yk__pipeline *p, yk_process_group *group, yk_status status);
/* All ranks of p->group call it before a batch; what is on record is this rank's error. Fails on all where one has
 * failed, calls something else, or has a target of another size; else fills samples and random. */
yk_status yk__pipeline_agree(yk__pipeline *p, const char *what, yk__pipeline_batch *batch);
/* Begins to send the tensors, NULL entries allowed, and where they want gradients. */
yk_status yk__pipeline_send(yk__pipeline *p, yk__pipeline_sends *sends, yk_tensor *const *tensors, int width, int rank,
                            int tag);
/* Waits for as many, one reference each, leaves on the device. On failure there may be some, too. */
yk_status yk__pipeline_receive(yk__pipeline *p, yk_tensor **tensors, int width, yk_device device, int rank, int tag);
/* Releases the works, with `wait` after they are done. */
yk_status yk__pipeline_sends_end(yk__pipeline_sends *sends, bool wait);
/* Tells all ranks how a batch ended, for this one with `status`; breaks the group where that is no success. tensors[]
 * are the loss, or outputs, of the last rank, and are given to the others, owned by their scope: outputs with no
 * samples. */
yk_status yk__pipeline_end(yk__pipeline *p, yk__pipeline_batch *batch, yk_tensor **tensors, yk_status status);
/* Takes the other ranks' stages from them. */
yk_status yk__pipeline_gather_times(yk__pipeline *p, yk_stage_times *stages);

#endif
