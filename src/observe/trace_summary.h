/*
 * trace_summary.h - what a trace (host/trace_file.h) says in sum: where each rank's time went, which operations took
 * it, and for whom the others waited. Layer: observe.
 *
 * Note [Where time goes]
 * At each moment a thread is in its innermost event, and a rank is in what its threads are in: it computes where one of
 * them is in an operation, backward, the optimizer or queues a kernel; else it communicates where one is in a
 * collective, a message, a call or waits for one: that time is exposed; else it loads, or saves; and the rest is of
 * none of them. So the parts add up to the whole. What is communicated while another thread computes is overlapped.
 */
#ifndef YOKE_OBSERVE_TRACE_SUMMARY_H
#define YOKE_OBSERVE_TRACE_SUMMARY_H

#include "base/core.h"

typedef struct yk__trace_rank {
    int rank;
    char host[64];
    double seconds; /* from its first event to the end of its last; what follows are parts of that */
    double compute, exposed, loading, saving, other;
    double overlapped;   /* communication while it computes, a part of `compute` */
    int64_t steps;       /* marks of steps */
    double step_seconds; /* the mean of what is between them; 0: there are not two */
    int64_t last;        /* the collectives to which it came last of all ranks */
    double caused;       /* seconds that the others waited there for it, of all of them together */
    int64_t lost;        /* events that newer ones replaced */
    double clock_error;  /* seconds by which its times may be off those of rank 0; < 0: not known; 0: one clock */
} yk__trace_rank;

typedef struct yk__trace_operation {
    char *name;   /* "conv2d", "conv2d (backward)" */
    double self;  /* seconds without what is inside, of all ranks */
    double flops; /* of these */
    int64_t calls;
} yk__trace_operation;

typedef struct yk__trace_summary {
    int n_ranks;
    yk__trace_rank *ranks; /* in the order of their numbers */
    int n_operations;
    yk__trace_operation *operations; /* the longest first */
    int64_t events, collectives;     /* collectives: those that all ranks have */
    bool cut;                        /* the end of the file is missing */
} yk__trace_summary;

/* Reads a file. YK_ERR_FORMAT where it is no trace of yoke's, with the line and what is wrong there. */
yk_status yk__trace_summary_read(const char *path, yk__trace_summary *summary) YK_MUST_CHECK;
void yk__trace_summary_clear(yk__trace_summary *summary);
/* The rank for which the others waited longest; NULL: nobody waited for one. */
const yk__trace_rank *yk__trace_critical(const yk__trace_summary *summary);

#endif
