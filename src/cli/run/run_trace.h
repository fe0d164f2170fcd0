/*
 * run_trace.h - `yoke run --trace FILE`: each rank writes FILE.rankN when it ends, and the launcher makes one file of
 * them. Layer: cli.
 */
#ifndef YOKE_CLI_RUN_RUN_TRACE_H
#define YOKE_CLI_RUN_RUN_TRACE_H

#include "cli/run/run_job.h"

/* Before the ranks begin: the prefix that they get as YOKE_TRACE; NULL: no trace is asked for, or none can be written
 * there, which is said. What an earlier run has left under the names of its parts is removed. */
const char *run_trace_begin(job *j);
/* When they have ended: writes FILE, on other nodes than the first FILE.nodeN, and removes the parts. Says where it is,
 * and of which ranks there is none. */
void run_trace_end(job *j);

#endif
