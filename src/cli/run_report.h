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

/* The exit code for a status of waitpid: the process's own, or 128 plus the signal. */
int run_exit_code(int status);
/* "SIGSEGV"; "signal 40" where there is no name. Returns text. */
const char *run_signal_name(int number, char text[32]);
/* The failure that g->failed is, or the interruption, to g->err: who, how, its last lines, and what the others did. */
void run_report_text(group *g, const run_facts *facts);
/* The failure as one JSON object and a newline; the caller frees; NULL without memory. */
char *run_report_json(const group *g, const run_facts *facts);

#endif
