/*
 * departures.h - processes that ended while the others went on, as reports say them. Layer: launch.
 */
#ifndef YOKE_LAUNCH_DEPARTURES_H
#define YOKE_LAUNCH_DEPARTURES_H

#include <jansson.h>

#include "launch/supervisor.h"

/* One rank of any node: its last end. */
typedef struct yk__departure {
    int rank, local_rank, pid, status, incarnation; /* incarnation: how often it was started again */
    bool lost;                                      /* for good; otherwise it came back */
    double seconds;                                 /* that the process ran */
    char host[64], role[YK__ROLE_NAME];             /* role: of a job of several, else "" */
    int role_rank;
    char why[WORKER_WHY]; /* it was killed by its launcher, because it did not get on; "": it was not */
} yk__departure;

/* The departure of a process of this node; `host` is this one. */
yk__departure yk__departure_of(const worker *w, const char *host);
/* Puts one into a table in the order of ranks, in place of what is there of its rank; false without memory. */
bool yk__departure_keep(yk__departure **table, int *count, const yk__departure *departure);

/* To g->err, now: a process of this node is lost, or is started again after so many seconds. */
void yk__departure_say(group *g, const worker *w, double delay);
/* Likewise: it has left a program that survives it. */
void yk__departure_left(group *g, const worker *w);
/* To g->err: something else that happens during a job, as a sentence, or with g->json as an object with the members
 * too, which are taken over. */
void yk__event_say(group *g, const char *event, const char *message, json_t *members);

/* Once the group has ended: the processes of this node that were lost or started again, and those of others, to g->err;
 * and as a list in JSON, NULL where there are none, or without memory. */
void yk__departures_print(group *g, const yk__departure *others, int count);
json_t *yk__departures_json(const group *g, const yk__departure *others, int count);
/* "2 ranks were lost, 1 was started again", of all of them; "" where there are none. Returns text. */
const char *yk__departures_count(const group *g, const yk__departure *others, int count, char text[80]);

#endif
