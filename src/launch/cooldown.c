/*
 * cooldown.c - how often nodes of a host have failed, and how long the next one waits. Layer: launch.
 *
 * Invariants: a host is listed once, with at least one failure; of more than MOST_HOSTS the one that has not failed for
 * the longest time is forgotten. `ever` only grows, by which a copy of the counts tells a failure that it knows from a
 * new one after the count has begun anew.
 */
#include "launch/cooldown.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launch/agents.h"

enum {
    MOST_HOSTS = 1024,
    MOST_DOUBLINGS = 60 /* which no limit of 1e6 seconds comes to */
};

static yk__failing_host *find(const yk__cooldown *c, const char *host)
{
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->hosts[i].name, host) == 0)
            return &c->hosts[i];
    return NULL;
}

/* The entry of a host, a new one without failures where there is none; NULL without memory. */
static yk__failing_host *find_or_add(yk__cooldown *c, const char *host)
{
    yk__failing_host *h = find(c, host);
    if (h)
        return h;
    if (c->count < MOST_HOSTS) {
        yk__failing_host *more = realloc(c->hosts, ((size_t)c->count + 1) * sizeof(*more));
        if (!more)
            return NULL;
        c->hosts = more;
        h = &c->hosts[c->count++];
    } else {
        h = c->hosts;
        for (int i = 1; i < c->count; i++)
            h = c->hosts[i].at < h->at ? &c->hosts[i] : h;
    }
    *h = (yk__failing_host){0};
    snprintf(h->name, sizeof(h->name), "%s", host);
    return h;
}

void yk__cooldown_count(yk__cooldown *c, const char *host, double since, double now)
{
    yk__failing_host *h = c->first > 0 ? find_or_add(c, host) : NULL;
    if (!h)
        return;
    if (now - since >= c->most && now - h->at >= c->most)
        h->failures = 0;
    h->failures++;
    h->ever++;
    h->at = now;
}

double yk__cooldown_wait(const yk__cooldown *c, const char *host, double now, uint32_t *failures)
{
    const yk__failing_host *h = c->first > 0 ? find(c, host) : NULL;
    *failures = h ? h->failures : 0;
    if (!h)
        return 0;
    double seconds = ldexp(c->first, h->failures - 1 < MOST_DOUBLINGS ? (int)h->failures - 1 : MOST_DOUBLINGS);
    double until = h->at + (seconds < c->most ? seconds : c->most);
    return until > now ? until - now : 0;
}

void yk__cooldown_put(yk__wire *wire, const yk__cooldown *c)
{
    yk__wire_put_u64(wire, (uint64_t)(1e6 * c->first + 0.5));
    yk__wire_put_u64(wire, (uint64_t)(1e6 * c->most + 0.5));
    yk__wire_put_u32(wire, (uint32_t)c->count);
    for (int i = 0; i < c->count; i++) {
        yk__agent_put_text(wire, c->hosts[i].name);
        yk__wire_put_u32(wire, c->hosts[i].failures);
        yk__wire_put_u32(wire, c->hosts[i].ever);
    }
}

/* Reads one host; false where it is malformed. */
static bool read_host(yk__reader *r, yk__failing_host *h)
{
    bool good = yk__agent_read_text(r, h->name, sizeof(h->name));
    h->failures = yk__read_u32(r);
    h->ever = yk__read_u32(r);
    return good && !r->bad && h->failures > 0 && h->failures <= h->ever;
}

bool yk__cooldown_take(yk__cooldown *c, yk__reader *r, double now)
{
    const double most_us = 1e12;
    double first = (double)yk__read_u64(r), most = (double)yk__read_u64(r);
    uint32_t count = yk__read_u32(r);
    yk__failing_host h = {0};
    if (r->bad || count > MOST_HOSTS || most > most_us || first > most)
        return false;
    yk__reader look = *r; /* all of it is looked at before any of it counts */
    for (uint32_t i = 0; i < count; i++)
        if (!read_host(&look, &h))
            return false;
    if (!yk__read_finished(&look))
        return false;
    c->first = 1e-6 * first;
    c->most = 1e-6 * most;
    for (uint32_t i = 0; i < count && read_host(r, &h); i++) {
        yk__failing_host *own = find_or_add(c, h.name);
        if (!own || own->ever == h.ever)
            continue;
        own->failures = h.failures;
        own->ever = h.ever;
        own->at = now;
    }
    return true;
}

void yk__cooldown_clear(yk__cooldown *c)
{
    free(c->hosts);
    c->hosts = NULL;
    c->count = 0;
}
