/*
 * member_changes.h - changes of members of a run, which its launcher notes where others can read them, and what the
 * time of the run went into. Layer: launch.
 */
#ifndef YOKE_LAUNCH_MEMBER_CHANGES_H
#define YOKE_LAUNCH_MEMBER_CHANGES_H

#include "launch/pages.h"

struct group; /* launch/supervisor.h */

/* "node_lost" */
const char *yk__change_name(yk__change kind);

/* Notes a change in the block of the group's pages; without pages nothing. Of `what` the first line is kept, cut where
 * it is long. A change that is `awaited` has its seconds when the next step is done. */
void yk__change_note(const struct group *g, yk__change kind, bool awaited, const char *what);
/* The next step was done so many seconds after the change that is awaited. */
void yk__change_stepped(const struct group *g, double seconds);
/* Any process that has the block mapped, whose writer is not trusted: the changes that are kept, the oldest first; how
 * many those are. */
int yk__changes_read(const yk__run_requests *block, yk__member_change list[YK__CHANGES_KEPT]);

/* Says, once all processes have ended, what the seconds since `began` (yk__now) went into, as the processes have
 * counted it (elastic/elastic_times.c); `earlier` of them went into attempts before this one. Nothing of a program
 * that does not survive the end of its processes. */
void yk__run_time_say(struct group *g, double began, double earlier);

#endif
