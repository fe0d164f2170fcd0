/*
 * run_trace.h - `yoke run --trace FILE`: each rank writes FILE.rankN when it ends, and the launcher makes one file of
 * them. Layer: cli.
 */
#ifndef YOKE_CLI_RUN_RUN_TRACE_H
#define YOKE_CLI_RUN_RUN_TRACE_H

#include "cli/run/run_job.h"
#include "launch/rendezvous.h"

/* Before the ranks begin: the prefix that they get as YOKE_TRACE; NULL: no trace is asked for, or none can be written
 * there, which is said. What an earlier run has left under the names of its parts is removed. */
const char *run_trace_begin(job *j);
/* When they have ended: writes FILE, and removes the parts. Of several nodes (`n`) the first does so with the parts of
 * all, unless another attempt follows (`again`); one that cannot give its own writes FILE.nodeN. Says where it is, and
 * of which ranks of this node there is none. */
void run_trace_end(job *j, yk__rendezvous *n, bool again);

#endif
