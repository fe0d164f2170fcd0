/*
 * profiler.h - recordings that others ask a process for: its launcher when it begins, `yoke trace` while it runs.
 * Layer: host.
 */
#ifndef YOKE_HOST_PROFILER_H
#define YOKE_HOST_PROFILER_H

#include "host/rank_page.h"

/* Begins the recording that the variable YOKE_TRACE of a launcher asks for, "PREFIX": when the process ends it writes
 * PREFIX.rankN. */
void yk__profiler_look(void);
/* True if this process writes such a file at its end. */
bool yk__profiler_is_asked(void);
/* Answers the request with this number that the page has (trace_asked). Nothing here waits: a thread of its own writes
 * what was recorded, into memory. */
void yk__profiler_asked(yk__rank_page *page, unsigned number);
/* The reasons why there is no trace: as trace_file has them, and what who asks finds: the rank has ended, has not taken
 * the steps in time, or its file cannot be had. */
enum {
    YK__NO_TRACE_BUSY = -1,
    YK__NO_TRACE_MEMORY = -2,
    YK__NO_TRACE_ENDED = -3,
    YK__NO_TRACE_LATE = -4,
    YK__NO_TRACE_LOST = -5,
    YK__NO_TRACES = 5
};

/* ---- asking: any process that has the page mapped, and may write to it ------------------------------------------- */
/* A rank that was asked. */
typedef struct yk__asked_rank {
    yk__rank_page *page;
    unsigned number;
    bool answered;
} yk__asked_rank;

/* The step behind which all ranks with these pages can begin together, `ahead` steps after the last that one of them
 * has taken; 0: there are none. */
uint64_t yk__trace_meeting(yk__rank_page *const *pages, int count, uint64_t ahead);
/* Asks for `steps` steps; a request that somebody else has left is replaced. `behind` is the step behind which they
 * begin: ranks that train together count alike. For one whose count is more than `far` from it that is the next step.
 */
void yk__trace_ask(yk__asked_rank *asked, yk__rank_page *page, unsigned steps, uint64_t behind, uint64_t far);
/* True if the rank has answered, or somebody else's request has taken the place of this one. */
bool yk__trace_look(yk__asked_rank *asked);
/* A descriptor of the trace of one that has answered, or below 0 the reason why there is none; `ended`: the rank
 * has. */
int yk__trace_open(const yk__asked_rank *asked, bool ended);
/* The rank may give its memory back, or need not record any more. */
void yk__trace_take_back(const yk__asked_rank *asked);

#endif
