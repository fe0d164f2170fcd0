/*
 * recall.h - a launcher that was started anew at an address where the job was kept before is called to where the job
 * goes on, and joins it there in place of beginning one of its own (docs/elastic.md). Layer: launch.
 *
 * calling.c is the keeper that calls, recall.c the launcher that is called. Of jobs whose nodes come and go, without
 * etcd, which says by itself who keeps the list.
 */
#ifndef YOKE_LAUNCH_RECALL_H
#define YOKE_LAUNCH_RECALL_H

#include "launch/agents.h"

/* ---- the keeper that calls --------------------------------------------------------------------------------------- */
enum { YK__MOST_FORMER = 8, YK__FORMER_TEXT = 2048 };

typedef struct yk__calling yk__calling;
/* Appends "HOST:PORT" to the list of addresses at which the job was kept, with a blank between two; not twice, and not
 * where it is full. */
void yk__former_add(char former[YK__FORMER_TEXT], const char *address);
/* Begins to call at these addresses, as the keeper `id` of this term whose store is at `where`. Copies all; NULL where
 * it cannot be, and an error. */
yk__calling *yk__calling_start(const yk__identity *identity, uint64_t id, uint64_t term, const char *where,
                               const char *former);
/* It calls only while a majority of the others answers this keeper, so that no two call. NULL is allowed. */
void yk__calling_may(yk__calling *calling, bool may);
/* The next line for the user, if there is one: somebody else is at such an address. */
bool yk__calling_said(yk__calling *calling, char text[YK__WHY_SIZE]);
/* Ends it, and waits for nothing; NULL is allowed. */
void yk__calling_stop(yk__calling *calling);

/* ---- the launcher that is called --------------------------------------------------------------------------------- */
/* A launcher begins that may be called; false without memory. */
bool yk__recall_open(yk__rendezvous *n);
/* It serves the launchers' store as node 0 from now on. */
void yk__recall_serves(yk__rendezvous *n);
/* It has its part in a job: a call is followed no more. */
void yk__recall_settled(yk__rendezvous *n);
/* Before this time (yk__now) node 0 does not begin with fewer nodes than all: who keeps the job may still call. */
double yk__recall_until(const yk__rendezvous *n);
/* Handles a call, of the launcher `id`. */
void yk__recall_hear(yk__rendezvous *n, uint64_t id, yk__reader *reader);
/* Follows a call that has come: true if this launcher asks to join there now, and is node 0 no more. */
bool yk__recall_follow(yk__rendezvous *n);
/* True if this launcher, which has lost the one that called it, waits to be called again. */
bool yk__recall_waits(yk__rendezvous *n);
/* At each turn: launchers that come to this one's old store are sent on. */
void yk__recall_step(yk__rendezvous *n);
/* The job is kept at this address from now on. */
void yk__recall_moved(yk__rendezvous *n, const char *where);
void yk__recall_close(yk__rendezvous *n);

#endif
