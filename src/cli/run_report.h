/*
 * run_report.h - how a run of several processes ended, as text and as JSON. Layer: cli.
 */
#ifndef YOKE_CLI_RUN_REPORT_H
#define YOKE_CLI_RUN_REPORT_H

#include "cli/supervise.h"

typedef struct run_facts {
    const char *host, *job;
    int64_t restarts; /* done before this end */
} run_facts;

/* How one attempt ended, on whichever node that was decided. Zero memory is a run that went well. */
typedef struct run_end {
    enum {
        RUN_DONE,
        RUN_FAILED,      /* a process did: rank to tail */
        RUN_INTERRUPTED, /* a launcher got `signal` */
        RUN_BROKEN,      /* `text` says what else */
        RUN_SAVED        /* every process saved its state and ended with EXIT_AGAIN */
    } kind;
    int code; /* exit code of the run */
    char host[64];
    int rank, local_rank, pid, status, signal;
    double seconds; /* that the process ran */
    char *tail;     /* its last lines on stderr, or NULL; freed by run_end_clear */
    char text[700];
} run_end;

/* What this node's group alone says of it. */
void run_end_of_group(run_end *end, const group *g, const char *host);
void run_end_clear(run_end *end);
/* Once the group has ended: whether each of its processes said that it saved its state and can be started again. */
bool run_saved(const group *g);
/* Of the whole job: no failure, and no reason for another attempt now, as somebody has asked it to end. */
void run_end_saved(run_end *end);

/* The exit code for a status of waitpid: the process's own, or 128 plus the signal. */
int run_exit_code(int status);
/* "SIGSEGV"; "signal 40" where there is no name. Returns text. */
const char *run_signal_name(int number, char text[32]);
/* A failure of any kind, to g->err: who, how, its last lines, and what the other processes of this node did. */
void run_report_text(group *g, const run_end *end, const run_facts *facts);
/* The same as one JSON object and a newline; the caller frees; NULL without memory. */
char *run_report_json(const group *g, const run_end *end, const run_facts *facts);

#endif
