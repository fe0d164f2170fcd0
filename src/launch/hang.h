/*
 * hang.h - what the processes write for their launcher (pages.h): finding those that do not get on, saying
 * where each stands, and who saw a failure first. Layer: launch.
 */
#ifndef YOKE_LAUNCH_HANG_H
#define YOKE_LAUNCH_HANG_H

#include "launch/pages.h"
#include "launch/supervisor.h"

typedef struct yk__hang_watch yk__hang_watch;

/* Records for `count` processes that count as stuck after `seconds` (0: never); `stacks`: they are asked for theirs
 * then. NULL and an error on failure. */
yk__hang_watch *yk__hang_watch_create(int count, double seconds, bool stacks);
void yk__hang_watch_free(yk__hang_watch *watch); /* NULL is allowed */
/* Their pages, which the watch holds. */
yk__pages *yk__hang_pages(const yk__hang_watch *watch);
/* YOKE_RANK_PAGE of one of them, that has a page. */
const char *yk__hang_watch_variable(const yk__hang_watch *watch, int index, char text[YK__PAGES_VARIABLE]);
/* A counter in the page of a process (src/elastic/); 0: it is not there. */
int64_t yk__hang_counter(const yk__hang_watch *watch, int index, const char *which);
/* Members of a run that survives are to be found that stand still for so many seconds; 0, as at first: they are not. */
void yk__hang_evict_after(yk__hang_watch *watch, double seconds);
/* The index of such a member for which others wait, with a sentence about it; -1: none. `suspended`: the launcher was
 * asked to stop the processes. *again as for group_link. */
int yk__hang_find_stalled(yk__hang_watch *watch, const group *g, bool suspended, char *text, size_t size,
                          double *again);
/* True if stuck processes are looked for at all. */
bool yk__hang_is_watched(const yk__hang_watch *watch);
/* When the process saw a group of its fail; 0: it did not, as far as is known. */
double yk__hang_failed_at(const yk__hang_watch *watch, int index);
/* True if a process of the group is stuck; then `text` says so in one sentence. *again as for group_link. */
bool yk__hang_find(yk__hang_watch *watch, const group *g, char *text, size_t size, double *again);
/* After that: whether it is this process of the node that does nothing while others wait for it, or get on. Where no
 * process is, it cannot be told from here. */
bool yk__hang_is_cause(const yk__hang_watch *watch, int index);
/* From now on each has its whole time again. */
void yk__hang_begin_anew(yk__hang_watch *watch);
/* The process that has mapped the page of this index; 0: none has. What the page says is not to be trusted. */
int yk__hang_process(const yk__hang_watch *watch, int index);
/* The operation that the process is, or was, in, as far as it has noted that: "in all_reduce #3 (...) of group 'world'
 * for 2.1 s". False where nothing is known. */
bool yk__hang_doing(const yk__hang_watch *watch, int index, char *text, size_t size);
/* Says where each process stands, to g->err, and asks for the stacks; the seconds to wait for these. */
double yk__hang_report(const yk__hang_watch *watch, const group *g);

#endif
