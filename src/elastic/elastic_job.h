/*
 * elastic_job.h - training in virtual ranks, as its two files share it. Layer: elastic.
 *
 * With as many processes as virtual ranks the model is one of yk_ddp, and the loop adds the losses' mean. With fewer,
 * each process computes the shards of its virtual ranks one after the other. Then
 *
 *   gradients   every shard's backward but the last is not synchronised; its gradients go to leaf_sums.c, and are
 *               dropped. The last one's buckets go there by the communication hook.
 *   buffers     every shard begins with those of the step's begin, which are virtual rank 0's of the step before;
 *               after the step they are those that virtual rank 0 has left.
 *   generators  all processes know all. Between the steps the process's generator is virtual rank 0's: what is drawn
 *               there, all virtual ranks have drawn.
 *   samples     the loader gives the parts of the process's virtual ranks, in turns (sampler.c).
 */
#ifndef YOKE_ELASTIC_ELASTIC_JOB_H
#define YOKE_ELASTIC_ELASTIC_JOB_H

#include <yoke/elastic.h>

#include "data/dataset.h"
#include "elastic/leaf_sums.h"

typedef enum yk__step_stage {
    YK__BETWEEN, /* no step was begun, or the last one is over */
    YK__BEGUN,   /* its first batch is there and not yet given */
    YK__GIVEN,   /* a batch was given, and waits for its backward */
    YK__PASSED,  /* its backward is over */
    YK__ALL_DONE /* all batches of all processes */
} yk__step_stage;

struct yk_elastic {
    yk__object object;
    yk_module *net, *model; /* what was given, and it inside yk_ddp */
    yk_optimizer *optimizer;
    yk_schedule *schedule;
    yk_grad_scaler *scaler;
    yk_loader *loader;
    yk_process_group *group; /* NULL where yk_ddp needs none */
    int rank, world, virtual_ranks;
    yk__leaves mine;
    int64_t accumulate;
    bool plain; /* as many processes as virtual ranks */

    yk__reducer *reducer; /* of the model; NULL in a world of one that is plain */
    yk__leaf_sums sums;
    yk_tensor **start, **after;  /* copies of the buffers: at the step's begin, and as virtual rank 0 leaves them */
    yk_random_state *generators; /* (virtual_ranks) */
    double *losses;              /* likewise: of this step, of the virtual ranks that are here until it is over */
    double loss;

    yk__step_stage stage;
    yk_batch batch;
    yk__turn turn;
    bool synchronises; /* a backward of yk_elastic_backward is under way that goes over the processes */
    yk_status failed;  /* what ended the step that was begun last */
};

/* ---- elastic_step.c ---- */
/* The hook that yk_ddp reduces buckets by where there are more virtual ranks than processes; its user is the job, or
 * NULL where that is gone. */
extern const yk_ddp_comm_hook yk__elastic_hook;
/* Ends a step that is under way, as far as other code of this thread could notice it. */
void yk__elastic_leave_step(yk_elastic *job);

#endif
