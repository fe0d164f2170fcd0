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

#include <pthread.h>

#include <yoke/elastic.h>

#include "data/dataset.h"
#include "elastic/leaf_sums.h"
#include "elastic/members.h"
#include "net/wire.h"

typedef enum yk__step_stage {
    YK__BETWEEN, /* no step was begun, or the last one is over */
    YK__BEGUN,   /* its first batch is there and not yet given */
    YK__GIVEN,   /* a batch was given, and waits for its backward */
    YK__PASSED,  /* its backward is over */
    YK__ALL_DONE /* all batches of all processes */
} yk__step_stage;

/* Measured speeds, by which virtual ranks are given out anew. */
typedef struct yk__balance {
    bool on;
    double began;    /* when the last batch was given */
    double backward; /* seconds that backwards had taken before this one (yk__ddp_clock) */
    double computed; /* seconds of this process for its batches in this step */
    double *seconds; /* (world): for one virtual rank, over the steps since the last look */
    int steps;       /* how many those are */
    int *next;       /* (world + 1): what `begin` becomes at the next step's begin */
    bool due;
} yk__balance;

/* The time of the run, in seconds by what it went into; a newcomer goes on with the others' sums. */
typedef enum yk__time_into {
    YK__TIME_STEPS,    /* steps that count */
    YK__TIME_AGAIN,    /* steps and actions that are made again */
    YK__TIME_CHANGES,  /* changes of members */
    YK__TIME_TOGETHER, /* actions of all between two steps */
    YK__TIMES,
    YK__TIME_OTHER = YK__TIMES
} yk__time_into;
typedef struct yk__times {
    double mark; /* up to when it is counted */
    double spent[YK__TIMES];
} yk__times;

struct yk_elastic {
    yk__object object;
    yk_module *net, *model; /* what was given, and it inside yk_ddp */
    yk_optimizer *optimizer;
    yk_schedule *schedule;
    yk_grad_scaler *scaler;
    yk_loader *loader;
    yk_process_group *group; /* NULL where yk_ddp needs none */
    int rank, world, virtual_ranks;
    int *begin; /* (world + 1): process p has the virtual ranks [begin[p], begin[p + 1]) */
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
    double looked;     /* when it was last looked whether the members are there */
    bool synchronises; /* a backward of yk_elastic_backward is under way that goes over the processes */
    yk__balance balance;
    yk__times times;
    yk_status failed;       /* what ended the step that was begun last */
    uint32_t raised, flags; /* of this process in the step under way; of all, in the last one that is done */

    /* For members that may come and go (elastic_change.c). */
    bool survives;
    yk__members members;
    char who[300];                     /* came and went with the view, as a sentence; "": none did */
    int64_t position;                  /* steps and actions of all that are done; -1: the state is still to come */
    bool open;                         /* what follows is the state before the step, to which it may have to go back */
    yk_random_state *generators_start; /* (virtual_ranks); the buffers are `start` */
    yk_loader_state loader_start;
    void *own, *own_start; /* memory of the program's, borrowed; and as it was before the last step */
    size_t own_bytes;
    bool change_due;         /* all members know that one wants to leave, or to join */
    bool left, whole;        /* this process is no member any more; nor is anybody, and the group is there */
    bool joined, joined_now; /* it came when the run was under way; and has not made a step since */
    bool took_part;          /* it has come to be a member */
    bool signal_taken;

    /* Nodes that the launcher finds lost, which their connections need not show; under the lock. */
    struct {
        pthread_mutex_t lock;
        yk_store_watcher *watcher; /* NULL: nodes do not come and go */
        char *slots;               /* "4 5 2", of all that ever were; NULL: none */
        bool breaks;               /* the group is that of the view: it ends when one of its members is lost */
    } lost;
};

/* ---- elastic.c ---- */
/* Room for copies of the buffers, where this process has several virtual ranks, or may get them, and none yet. */
yk_status yk__elastic_make_buffers(yk_elastic *job);

/* ---- elastic_times.c ---- */
/* The time since the last call went into this; the launcher and monitors see the sums in the page. */
void yk__elastic_spent(yk_elastic *job, yk__time_into into);
/* Shows the sums, after they came from another member. */
void yk__elastic_times_show(const yk_elastic *job);

/* ---- elastic_balance.c ---- */
yk_status yk__balance_make(yk_elastic *job);
void yk__balance_clear(yk_elastic *job);
/* A step begins; a batch is given to the program; its backward begins, and is over. */
void yk__balance_step(yk_elastic *job);
void yk__balance_batch(yk_elastic *job);
void yk__balance_backward_begin(yk_elastic *job);
void yk__balance_backward_end(yk_elastic *job);
/* All processes' seconds of a step, the same on all: decides whether the next step is divided otherwise. */
void yk__balance_note(yk_elastic *job, const double *computed);
/* Divides the virtual ranks anew where that was decided, between two steps. */
yk_status yk__balance_apply(yk_elastic *job);

/* The virtual ranks were divided anew, among other members perhaps: what was measured is forgotten. */
void yk__balance_members(yk_elastic *job);

/* ---- elastic_state.c ---- */
/* The state of the run before the step that comes next; and taking it over from another member. */
yk_status yk__elastic_pack(yk_elastic *job, yk__wire *to);
yk_status yk__elastic_unpack(yk_elastic *job, const void *data, size_t size);
/* A checksum of what is the same in all members between two steps: parameters, buffers, generators. Where it is not
 * `in_c_order` the numbers are taken as they lie in memory, which spares a copy, and strides count: a member that came
 * later may have others. */
yk_status yk__elastic_digest(yk_elastic *job, bool in_c_order, uint64_t *digest);

/* ---- elastic_change.c ---- */
/* The wishes that a member tells the others at the end of a step. */
enum { YK__WISH_LEAVE = 1, YK__WISH_JOIN = 2 /* a newcomer waits */ };
unsigned yk__elastic_wishes(yk_elastic *job);
/* Between two steps, or after a failure, whose error is on record: makes the view that follows, if members have gone or
 * wait, and stands where all of them do. Without a change the error stays, and is returned. */
yk_status yk__elastic_change(yk_elastic *job, yk__standing standing, bool *completed);
/* Those who came and went with the last view, for a log: "rank 1 (process 1) has ended"; "" with the first. */
const char *yk__elastic_who(const yk_elastic *job);
/* Before a step: false at the end of the epoch, where this process has left, or on failure (job->failed). */
bool yk__elastic_enter(yk_elastic *job);
/* The rest of making a job whose members may change; takes over `facts`, what has to be alike in all. */
yk_status yk__elastic_survive(yk_elastic *job, char *facts);
void yk__elastic_survive_clear(yk_elastic *job);

/* ---- elastic_step.c ---- */
/* The hook that yk_ddp reduces buckets by where there are more virtual ranks than processes; its user is the job, or
 * NULL where that is gone. */
extern const yk_ddp_comm_hook yk__elastic_hook;
yk_status yk__elastic_drop_gradients(const yk__reducer *reducer);
/* The interrupt of the reducer's backwards; its argument is the job. */
yk_status yk__elastic_look(void *job);
/* Ends a step that is under way, as far as other code of this thread could notice it. */
void yk__elastic_leave_step(yk_elastic *job);

#endif
