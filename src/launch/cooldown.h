/*
 * cooldown.h - nodes that fail again and again wait before they are let in once more (--fail-cooldown FIRST:MOST), each
 * time longer. Layer: launch.
 *
 * Who keeps the list of nodes counts the failures by host. A launcher that asks to join too early is told for how long
 * it waits, and is dealt with when that is over, as if it had come then. The counts are a key that has replicas, so a
 * successor of the keeper goes on with them; each launcher notes by its own clock when it heard of a failure.
 */
#ifndef YOKE_LAUNCH_COOLDOWN_H
#define YOKE_LAUNCH_COOLDOWN_H

#include <stdbool.h>
#include <stdint.h>

#include "net/wire.h"

typedef struct yk__failing_host {
    char name[128];
    uint32_t failures; /* that count, at least one */
    uint32_t ever;     /* all that there were */
    double at;         /* when the last one was heard of (yk__now) */
} yk__failing_host;

typedef struct yk__cooldown {
    double first, most; /* seconds; first 0: nobody waits */
    yk__failing_host *hosts;
    int count;
} yk__cooldown;

/* Counts a failure at time `now` of a node of this host, which has been there since `since`. */
void yk__cooldown_count(yk__cooldown *c, const char *host, double since, double now);
/* Seconds from `now` on for which a node of this host waits; 0: it does not. *failures: those that count. */
double yk__cooldown_wait(const yk__cooldown *c, const char *host, double now, uint32_t *failures);
/* The counts as a value of the store. */
void yk__cooldown_put(yk__wire *wire, const yk__cooldown *c);
/* Takes over those of another launcher, heard of at `now` as far as they are new. False where they are malformed, which
 * changes nothing. */
bool yk__cooldown_take(yk__cooldown *c, yk__reader *reader, double now);
void yk__cooldown_clear(yk__cooldown *c);

#endif
