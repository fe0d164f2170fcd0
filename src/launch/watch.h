/*
 * watch.h - what the files of supervisor.h share: the state of watching a group. Layer: launch.
 */
#ifndef YOKE_LAUNCH_WATCH_H
#define YOKE_LAUNCH_WATCH_H

#include "launch/supervisor.h"

typedef struct yk__watch {
    group *g;
    int running;
    bool stopping, killing, given_up;
    bool no_spares;   /* one could not be started */
    bool suspended;   /* it has passed on the wish to stop for a while (Ctrl-Z), and none yet to go on */
    bool leaving;     /* asked twice to end while it only waits for other nodes */
    double notice;    /* when to say that stopping takes a while; 0: not any more */
    worker *suspect;  /* has failed; one that saw a failure before it is about to end, and may be the cause */
    double suspected; /* when that was noticed */
    double undecided; /* until then another may turn out to be the cause */
    double stopped;   /* when the stop began */
    double stop_at;   /* when processes that are stuck are stopped: their stacks come before; 0: they are not */
    bool stop_alone;  /* those that are named as the cause alone, because others do without them */
    double others_by; /* another node may know which process is stuck, and is given until then; 0: not yet */
    bool empty;       /* not even something that a worker started is left */
    double deadline;  /* of the grace, or of waiting for the dead */
    struct pollfd *fds;
} watch;

/* The stop of the whole group, as in yk__supervisor_run. */
void yk__watch_stop(watch *w, int number);
/* True if the group ends: nothing is started any more. */
static inline bool yk__watch_ends(const watch *w)
{
    return w->stopping || w->g->failed || w->g->interrupted;
}

/* ---- alone.c: processes that end while the others go on ---------------------------------------------------------- */
/* True if the failure of a process that has ended need not end the job, as far as its role says. */
bool yk__alone_may(const watch *w, const worker *one);
/* True if it has ended otherwise than it was asked to, and is only to be told of to the others that were asked, too. */
bool yk__alone_leaves(const watch *w, const worker *one);
/* It has ended, and may do so alone: what is left of it is killed. */
void yk__alone_begin(watch *w, worker *one);
/* Decides on those of whom nothing is left: they are lost, or to be started again. Returns one whose failure ends the
 * job after all; to be called until it is NULL. */
worker *yk__alone_settle(watch *w);
/* All have ended: a process that was lost, without which the others had not gone on before they came to their end, or
 * of a node that has come to join others, and none of whose processes was ever a member; it has failed. NULL: none. */
worker *yk__alone_unnoticed(const group *g);
/* True if one is to be settled, or to be started again. */
bool yk__alone_pending(const group *g);
/* True if one is to be looked at now and again until nothing is left of it. */
bool yk__alone_looks(const group *g);
/* The group ends, so nothing is started again; true if something was to be. */
bool yk__alone_cancel(watch *w);
/* Others go on without a node that was lost at this time: it is said when they have. */
void yk__alone_note_change(group *g, double since);
/* A process has ended, which may have left the others at its own wish: that is said. */
void yk__alone_note_end(group *g, const worker *one);
/* Starts those again whose time has come; the seconds until there is something to do, or `wait`. */
double yk__alone_start(watch *w, double wait);
/* True if the processes that are stuck (hang.h) are known, and may all end alone. */
bool yk__alone_may_hang(const watch *w);
/* Notes for them the reason in g->stuck, which is cleared, as it is not that of the group. */
void yk__alone_note_hung(watch *w);
/* Kills those, and the time of the others begins anew. */
void yk__alone_kill_hung(watch *w);
/* Kills members for which others have waited too long (--evict-stalled): they are then gone, as any that end. The
 * seconds until the next look, or `wait`. */
double yk__alone_evict(watch *w, double wait);

#endif
