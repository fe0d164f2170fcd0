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
    yk_module *stages[YK__MOST_STAGES]; /* the children */
    yk_device devices[YK__MOST_STAGES];
    int tensors[YK__MOST_STAGES]; /* that stage s hands to the next */
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

#endif
