/*
 * runs.h - the runs of this user on this machine, as their launchers announced them (launch/announcement.h), and what
 * the pages of their ranks say at this moment. Layer: observe.
 */
#ifndef YOKE_OBSERVE_RUNS_H
#define YOKE_OBSERVE_RUNS_H

#include <jansson.h>

#include "launch/member_changes.h"
#include "launch/pages.h"

/* Seconds, bytes and the like that are not known are below 0. */
typedef struct yk__run_rank {
    int rank, local_rank, role_rank, incarnation;
    int pid; /* 0: it has not called yoke yet, so that nothing below is known */
    bool alive;
    char role[64];
    yk__phase phase;
    char phase_text[YK__PAGE_TEXT]; /* of YK__PHASE_OWN */
    double phase_age, progress_age, step_age;
    double waiting;                      /* since when its oldest collective or message is under way; 0: none is */
    double waited;                       /* seconds that its collectives and messages took, of those that have ended */
    double phase_times[YK__PHASES];      /* seconds that it was in each phase, without the one that it is in */
    uint64_t steps, samples, operations; /* operations: that it has begun */
    uint64_t losses;                     /* 0: it has said nothing of samples and loss */
    double loss;
    double resident, cpu_seconds; /* of the process, by the system */
    int n_counters;
    struct {
        char name[52];
        int64_t value;
    } counters[YK__PAGE_COUNTERS];
} yk__run_rank;

typedef struct yk__run {
    char *job, *host, *program; /* program: its arguments with spaces between them, "" where it has none */
    int launcher, supervisor;   /* pids */
    int node, nodes, first, local, world, restart;
    int pages;     /* the supervisor's descriptor of their memory file */
    double began;  /* seconds since 1970 */
    bool readable; /* its pages were read; `ranks` has one for each rank of this machine */
    char why[120]; /* where they were not */
    int n_ranks;
    yk__run_rank *ranks;
    /* The members of a run whose processes come and go; view 0: they do not, or have not begun. */
    int64_t view, members;
    int n_changes;
    yk__member_change *changes; /* the last ones, the oldest first */
    uint64_t changes_of[YK__CHANGE_KINDS];
    double change_seconds; /* from ends to the steps that were done without whoever ended, in all */
} yk__run;

typedef struct yk__runs {
    int count;
    yk__run *all;      /* the oldest first */
    int elsewhere;     /* announced from another pid namespace, as a container's: nothing is known of them here */
    char problem[600]; /* why a folder could not be looked into; "": all were */
} yk__runs;

/* Looks. An announcement whose launcher is gone is removed. */
void yk__runs_read(yk__runs *runs);
void yk__runs_clear(yk__runs *runs);
/* The pid that a word of the command line is; 0: it is none. */
int yk__run_pid(const char *word);
/* True if a word of the command line means this run: its job, or the pid of one of its launcher's two processes. */
bool yk__run_is_called(const yk__run *run, const char *word);
/* The pages of a run's ranks at this moment, as yk__page_json writes them: a new array; NULL without memory. Ranks that
 * have not called yoke are left out. */
json_t *yk__run_pages(const yk__run *run);

/* The pages of the ranks that run and have called yoke, to write requests to (host/profiler.h), and the launcher's. */
typedef struct yk__run_open_pages {
    void *memory;
    size_t size;
    int count;
    yk__rank_page **pages;
    yk__run_requests *requests; /* to the launcher; NULL: it takes none */
} yk__run_open_pages;
yk_status yk__run_pages_open(const yk__run *run, yk__run_open_pages *open) YK_MUST_CHECK;
void yk__run_pages_close(yk__run_open_pages *open);
/* True if the process that the page belongs to has not ended. */
bool yk__run_rank_is_alive(const yk__rank_page *page);

#endif
