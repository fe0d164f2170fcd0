/*
 * members.h - which processes take part in a run, as they agree on it through the store of the job. Layer: elastic.
 *
 * Note [Views]
 * A *view* is a numbered list of members. The register, one key of the store, holds the newest one; a view is made only
 * from the one before, by compare-and-swap, so that two views of one number are equal. A member is a *slot*, the rank
 * that the launcher gave it, with the incarnation of its process.
 *
 *   elastic/view            "3 0.0 2.0 1.1": the number, and the members by their rank
 *   elastic/N.R/at/SLOT.INC "17 s": where a member of view N stands that stops for a change, the R-th in that view:
 *                           the steps and actions that it has completed, and a yk__standing
 *   elastic/N.R/verdict     "changed" or "same", by compare-and-swap: what the first has found when all stood
 *   elastic/gone/SLOT.INC   the launcher's word: nothing is left of that process (Note [Ends that are certain])
 *   elastic/lost            "4 5 2": the slots of nodes that are lost, as the launcher of node 0 finds them: whoever
 *                           has one of them in its view need not wait for it any longer
 *   elastic/held            the launcher has found a node lost, and does not say yet that its processes are gone: too
 *                           few nodes are left to go on
 *   elastic/join/SLOT       "1 facts": a process that asks to join, its incarnation, and what has to be alike
 *   elastic/joins           how many ever asked; elastic/joins/N: the slot of the N-th
 *   elastic/in/SLOT.INC     a view has that process: it need not look any longer
 *   elastic/refused/...     SLOT.INC: why it cannot
 *   elastic/over            the run has come to its end
 *
 * Where there are spares (YOKE_ELASTIC_MEMBERS, the number of members that there are to be), whoever asks is let in as
 * far as there is a place, in the same view that others go from; those who are not keep waiting.
 *
 * A change begins when each member of the view either stands still, and says where, or is gone. Who looks later may see
 * more: another one gone, or one more that wants to join. So the first verdict counts for all; by "same" the view goes
 * on. Nobody is left out because it is slow: a member that is stopped is waited for, since what it may still write to
 * is the others' memory.
 */
#ifndef YOKE_ELASTIC_MEMBERS_H
#define YOKE_ELASTIC_MEMBERS_H

#include <yoke/comm.h>

#include "base/core.h"

typedef struct yk__member {
    int slot, incarnation;
} yk__member;

typedef enum yk__standing {
    YK__AT_STEP = 's',   /* before a step, or in one that is made again */
    YK__AT_ACTION = 'a', /* in an action of all, whose own part is done when the others are beyond it */
    YK__AT_LEAVE = 'l'   /* before a step, and not to take part in it */
} yk__standing;

typedef struct yk__members {
    yk_store *store; /* retained; NULL: this process is alone, for good */
    int slots;       /* processes that the job was started with; those of nodes that come later have higher slots */
    bool nodes;      /* which may come at any time */
    int64_t heard;   /* of those that ever asked to join so many have been looked at */
    int most;        /* members that there may be: virtual ranks */
    int seats;       /* members that there are to be, since spares wait to be one; 0: there are none */
    yk__member own;
    char *facts;         /* what has to be alike in all members, a fact a line; owned */
    char *text;          /* the register's value for the view; owned */
    int64_t view, round; /* round: changes that were looked for in this view, and were none */
    int count;
    yk__member *list; /* (count) */
    double looked;    /* when it was last asked who wants to join */
    double timeout;   /* seconds for which a member is waited for that neither comes nor ends */
} yk__members;

/* A view that follows, as a member of it sees it. */
typedef struct yk__succession {
    bool changed; /* else the members are what they were */
    bool leaving; /* this process is not in it, at its own wish */
    bool over;    /* another has come to the end of the run: what was begun is done */
    bool whole;   /* leaving: so do all others, and the group of the view is as it was */
    int rank;     /* of this process */
    int came, went;
    char who[300]; /* "rank 1 (process 1) has ended": for the log */
} yk__succession;

/* Finds the store and this process's place by what the launcher has set. *newcomer: the run is under way. */
yk_status yk__members_make(yk__members *m, yk_store *store, int rank, int world_size, int most, char *facts,
                           bool *newcomer);
void yk__members_clear(yk__members *m);
/* A newcomer asks to become a member, and waits until a view has it. Where spares wait it is one: it waits for a place,
 * and comes back `leaving`, which is no error, when the run is over before, or when `leaves` (NULL: never) says so. */
yk_status yk__members_join(yk__members *m, bool (*leaves)(void), yk__succession *next);
/* A member stands still: waits for the others, and makes or learns the view that follows. */
yk_status yk__members_change(yk__members *m, int64_t position, yk__standing standing, yk__succession *next);
/* Looks, at most ten times a second and only where a member is missing, for newcomers in the store: true if one waits.
 * */
bool yk__members_look(yk__members *m);
/* Fails if a member of the view has ended: while they meet, nobody else says so to who waits for it. */
yk_status yk__members_gone(const yk__members *m);
/* True if one of the slots in the text of elastic/lost is a member's; then *slot is the first. */
bool yk__members_lost(const yk__members *m, const char *lost, int *slot);
/* The run is over for this member, which did not leave: nobody is let in any more, and who is still in the last action
 * of all learns that it is done. */
void yk__members_over(yk__members *m);

#endif
