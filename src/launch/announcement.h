/*
 * announcement.h - a launcher says that its run is there: a file in its user's folder of runs (run_folder.h), which
 * `yoke ps` and `yoke monitor` read (observe/runs.h). Layer: launch.
 *
 * The file is PID-START.json, of the process that holds the pages: no two processes have both numbers, so that a file
 * whose process is gone can be removed by whoever finds it. It is one JSON object:
 *   {"version":1,"pid":,"start":,"launcher":,"machine":,"job":,"host":,"node":,"nodes":,"first":,"local":,"world":,
 *    "restart":,"began":,"pages":,"page_version":,"page_size":,"program":[...]}
 * pid and start (host/process.h) are the supervisor's, launcher is the pid that the user knows, machine that of
 * yk__machine_name, began in seconds since 1970, pages the supervisor's descriptor of the memory file with the pages of
 * its ranks (pages.h).
 */
#ifndef YOKE_LAUNCH_ANNOUNCEMENT_H
#define YOKE_LAUNCH_ANNOUNCEMENT_H

#include "launch/pages.h"

enum { YK__ANNOUNCEMENT_VERSION = 1 };

typedef struct yk__announcement {
    const char *job, *host;
    int launcher;            /* pid */
    int node, nodes;         /* this node's number, and how many there are */
    int first, local, world; /* the first rank here, ranks here, ranks of all nodes */
    int restart;             /* how often all ranks were started again */
    char *const *program;    /* its argv, ending with NULL; NULL: none */
    const yk__pages *pages;
} yk__announcement;

/* Writes this process's file, or replaces it. It goes away with yk__announce_end; a process that is killed leaves it to
 * the next reader. */
yk_status yk__announce(const yk__announcement *run) YK_MUST_CHECK;
/* Removes it, where there is one. May be called by a process that is about to end without more ado. */
void yk__announce_end(void);

#endif
