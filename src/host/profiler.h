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
/* The reasons why there is no trace, as trace_file has them. */
enum { YK__NO_TRACE_BUSY = -1, YK__NO_TRACE_MEMORY = -2 };

#endif
