/*
 * outcome.h - how a run of several processes ended, as text and as JSON. Layer: launch.
 */
#ifndef YOKE_LAUNCH_OUTCOME_H
#define YOKE_LAUNCH_OUTCOME_H

#include "launch/supervisor.h"

typedef struct yk__outcome_context {
    const char *host, *job;
    int64_t restarts;                     /* done before this end */
    const char *pages;                    /* where it is kept what each process was doing; NULL or "": nowhere */
    const struct yk__departure *departed; /* of the other nodes (departures.h), as far as they are known here */
    int departed_count;
} yk__outcome_context;

/* The end of one attempt, on whichever node that was decided. Zero memory is a run that went well. */
typedef struct yk__outcome {
    enum {
        YK__RUN_DONE,
        YK__RUN_FAILED,      /* a process did: rank to tail */
        YK__RUN_INTERRUPTED, /* a launcher got `signal` */
        YK__RUN_BROKEN,      /* `text` says what else */
        YK__RUN_SAVED,       /* every process saved its state and ended with EXIT_AGAIN */
        YK__RUN_HUNG,        /* processes did not get on: `text` says it */
        YK__RUN_MEMBERS      /* nodes come and go, `text` says which: the next attempt is that of others */
    } kind;
    int code; /* exit code of the run */
    char host[64];
    int rank, local_rank, pid, status, signal;
    char role[YK__ROLE_NAME]; /* of a job of several, else "" */
    int role_rank;
    double seconds; /* that the process ran */
    char *tail;     /* its last lines on stderr, or NULL; freed by yk__outcome_clear */
    char text[700];
} yk__outcome;

/* True if a restart may follow, if nobody has asked to end and processes are not left. */
static inline bool yk__outcome_restarts(const yk__outcome *end)
{
    return end->kind == YK__RUN_FAILED || end->kind == YK__RUN_HUNG;
}
/* The outcome as this node's group alone shows it. */
void yk__outcome_of_group(yk__outcome *end, const group *g, const char *host);
void yk__outcome_clear(yk__outcome *end);
/* Once the group has ended: whether each of its processes said that it saved its state and can be started again. */
bool yk__group_saved(const group *g);
/* Likewise: whether each ended with 0, before it was asked to stop. */
bool yk__group_finished(const group *g);
/* Makes it the outcome of a job that was asked to end and has saved its state: no failure, and no reason for another
 * attempt now. */
void yk__outcome_saved(yk__outcome *end);

/* The exit code for a status of waitpid: the process's own, or 128 plus the signal. */
int yk__exit_code(int status);
/* "exit code 3", "killed by SIGSEGV (core dumped)", from a worker's status. Returns text. */
enum { YK__ENDING_TEXT = 96 };
const char *yk__ending_describe(int status, char text[YK__ENDING_TEXT]);
/* "rank 3 (trainer 2)"; "rank 3" in a job of one role. Returns text. */
enum { YK__WORKER_NAME = 128 };
const char *yk__worker_name(const worker *w, char text[YK__WORKER_NAME]);
/* "SIGSEGV"; "signal 40" where there is no name. Returns text. */
const char *yk__signal_name(int number, char text[32]);
/* A failure of any kind in one sentence: "rank 1 failed: exit code 7 (local rank 1, host node0, pid 4711, after 12.3
 * s)", "SIGTERM on host node1: stopped"; `host` is this one. Returns text. */
enum { YK__OUTCOME_TEXT = 800 };
const char *yk__outcome_describe(const yk__outcome *end, const char *host, char text[YK__OUTCOME_TEXT]);
/* A hint at the cause, or NULL. */
const char *yk__outcome_hint(const yk__outcome *end);
/* A failure of any kind, to g->err: who, how, its last lines, and what the other processes of this node did. */
void yk__outcome_print(group *g, const yk__outcome *end, const yk__outcome_context *facts);
/* The same as one JSON object and a newline; the caller frees; NULL without memory. */
char *yk__outcome_json(const group *g, const yk__outcome *end, const yk__outcome_context *facts);

#endif
