/*
 * pages.h - the pages of a launcher's processes (host/rank_page.h): held, read, and written out as JSON. Layer: launch.
 */
#ifndef YOKE_LAUNCH_PAGES_H
#define YOKE_LAUNCH_PAGES_H

#include "host/rank_page.h"

typedef struct yk__pages yk__pages;

/* Requests to the launcher, of processes of its user that have its memory file mapped: the first block of that file.
 * What is there is not trusted. */
enum { YK__REQUESTS_MAGIC = 0x71657252, YK__REQUESTS_VERSION = 2 };
/* Changes of members of a run (member_changes.h), by their cause. */
typedef enum yk__change {
    YK__CHANGE_ENDED,     /* a process, for good */
    YK__CHANGE_RESTARTED, /* one that has ended, and comes again */
    YK__CHANGE_JOINED,    /* a process, which was started again or is a spare */
    YK__CHANGE_LEFT,      /* a process, at its own wish */
    YK__CHANGE_NODE_LOST,
    YK__CHANGE_NODE_JOINED,
    YK__CHANGE_NODE_LEFT,
    YK__CHANGE_KINDS
} yk__change;
typedef struct yk__member_change {
    double time;    /* seconds since 1970 */
    double seconds; /* until the next step was done without whoever is gone; below 0: it is not, or is not awaited */
    int32_t kind;   /* yk__change */
    char what[300]; /* who, and why */
} yk__member_change;
enum { YK__CHANGES_KEPT = 16 };
typedef struct yk__run_requests {
    uint32_t magic, version, size; /* the launcher's */
    atomic_bool
        end_all; /* a SIGTERM that follows is for the job on all nodes (yoke stop), also where nodes come and go */
    atomic_int others; /* the launcher's: other nodes whose ranks it can have traced */
    /* A trace of the ranks of all nodes, which node 0's launcher is asked for: numbers as in a rank's page. trace_file
     * is a descriptor of the launcher's process with an array of yk__traced, or below 0 the reason why there is none;
     * trace_moved grows while something happens. */
    atomic_uint trace_asked, trace_answered, trace_moved, trace_steps;
    atomic_int trace_file;
    _Atomic uint64_t trace_behind, trace_far; /* as yk__trace_ask takes them */
    _Atomic double trace_seconds;
    /* Changes of members, the launcher's: the next is change[changes % YK__CHANGES_KEPT]. */
    _Atomic uint64_t changes, changes_of[YK__CHANGE_KINDS];
    _Atomic double change_seconds; /* the sum of all `seconds` */
    struct {
        atomic_uint version; /* odd while it is written (Note [Fields of a page]) */
        yk__member_change change;
    } change[YK__CHANGES_KEPT];
} yk__run_requests;
/* The part that node 0's launcher has of a rank, or could not have of a node. */
typedef struct yk__traced {
    int32_t rank; /* -1: `why` is of a node */
    int32_t file; /* a descriptor of the launcher's process; below 0: why there is none (host/profiler.h) */
    bool clock_known;
    int64_t to_node0_ns, error_ns; /* what is to be added to the clock of its host for that of node 0's */
    char why[400];
} yk__traced;
/* NULL where there is none. */
yk__run_requests *yk__pages_requests(const yk__pages *pages);

/* The process that a page belongs to; incarnation 0 is the first process of its rank in an attempt. */
typedef struct yk__page_owner {
    int rank, world_size, local_rank, node, role_rank, incarnation;
    const char *role; /* NULL: none */
} yk__page_owner;

/* For so many processes, none of which has a page yet. NULL and an error on failure. */
yk__pages *yk__pages_create(int count);
void yk__pages_free(yk__pages *pages); /* NULL is allowed */

/* Pages that are kept of each index beside the newest: what is asked after a failure is how the last incarnations
 * ended. */
enum { YK__PAGES_KEPT = 4 };
/*
 * A new page for the process with this index. The one before it is kept for a while, and is not written again by the
 * launcher: what still runs of the process before may have it mapped.
 */
yk_status yk__pages_renew(yk__pages *pages, int index, const yk__page_owner *owner) YK_MUST_CHECK;
/* The newest of them; NULL: none. */
yk__rank_page *yk__pages_at(const yk__pages *pages, int index);
/* The one that was the newest `back` renewals ago, 0 being the newest; NULL: none, or not kept any more. */
yk__rank_page *yk__pages_before(const yk__pages *pages, int index, int back);
/* The descriptor of the memory file in which they lie, one after the other, YK__PAGE_SIZE bytes each, behind a block of
 * that size with the requests: of the pages with one local rank the last is the newest. The file never becomes shorter
 * (F_SEAL_SHRINK), so that others can map it. */
int yk__pages_descriptor(const yk__pages *pages);
/* YOKE_RANK_PAGE for the process that gets it; `number` is the signal on which it prints its stack, or 0. */
enum { YK__PAGES_VARIABLE = 64 };
const char *yk__pages_variable(const yk__pages *pages, int index, int number, char text[YK__PAGES_VARIABLE]);

/* A page as one JSON object and a newline, which the caller frees; NULL without memory. docs/launcher.md has its
 * members. */
char *yk__page_json(const yk__rank_page *page);

#endif
