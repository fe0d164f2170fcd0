/*
 * ranks.h - a run of several processes: who this one is, and what all of them agree on. Layer: cli.
 */
#ifndef YOKE_CLI_RANKS_H
#define YOKE_CLI_RANKS_H

#include <yoke/nn.h>

/* One process alone is rank 0 of 1, and nothing here costs it anything. */
typedef struct ranks {
    int rank, world;    /* rank -1: it has yet to join a run that is under way (yoke train --elastic) */
    yk_tensor *numbers; /* what is summed goes through it */
    int stop;           /* the signal that ends the run, as all ranks know it; 0: none */
} ranks;

/* Finds the other processes of the job (see yk_init_process_group); the run's scope is open. */
yk_status ranks_join(ranks *r);
/* The ranks are others than before: takes rank and world of the default group anew. */
yk_status ranks_renew(ranks *r);
/* Leaves them, in order; after an error it is left out, so that the others learn of it by this process's end. */
void ranks_leave(ranks *r);

/* The numbers (at most 8) become their sums over all ranks, which call it in the same order. A signal that any rank has
 * got is then known to all, as r->stop. */
yk_status ranks_sum(ranks *r, double *numbers, int count);
/* The same for any count, without signals. */
yk_status ranks_sum_list(const ranks *r, double *numbers, int64_t count);
/* The signal on which the run is to end, 0: none. It is the one that the ranks agreed on last, or, of a process alone,
 * the one that it has caught. */
int ranks_stop(const ranks *r);
/* Running statistics become rank 0's. */
yk_status ranks_broadcast_buffers(const ranks *r, yk_module *m);

/* Prints the error record as cli_failed does, with the rank in front where there are others; EXIT_FAILED. */
int ranks_failed(const ranks *r);

enum { RANKS_LINES = 2000 }; /* room for ranks_compare */
/* Fails on all ranks, and names the first difference, unless all call it with the same lines. */
yk_status ranks_compare(const ranks *r, const char *lines);

#endif
