/*
 * hang.h - processes that do not get on: finding them, and saying where each stands. Layer: launch.
 */
#ifndef YOKE_LAUNCH_HANG_H
#define YOKE_LAUNCH_HANG_H

#include "launch/supervisor.h"

typedef struct yk__hang_watch yk__hang_watch;

/* Records (base/progress.h) for `count` processes that count as stuck after `seconds`; `stacks`: those are asked for
 * theirs. NULL and an error on failure. */
yk__hang_watch *yk__hang_watch_create(int count, double seconds, bool stacks);
void yk__hang_watch_free(yk__hang_watch *watch); /* NULL is allowed */
/* YOKE_PROGRESS of one of them; the records of an earlier attempt are emptied by the first of the next. */
enum { YK__PROGRESS_VARIABLE = 80 };
const char *yk__hang_watch_variable(yk__hang_watch *watch, int index, char text[YK__PROGRESS_VARIABLE]);
/* Whether a process of the group is stuck; then `text` says so in one sentence. *again as for group_link. */
bool yk__hang_find(const yk__hang_watch *watch, const group *g, char *text, size_t size, double *again);
/* Says where each process stands, to g->err, and asks for the stacks; the seconds to wait for these. */
double yk__hang_report(const yk__hang_watch *watch, const group *g);

#endif
