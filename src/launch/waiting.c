/*
 * waiting.c - launchers that ask to join and are not let in yet, because nodes of their host have failed again and
 * again (cooldown.h). Layer: launch.
 *
 * Who waits is no node of the job: it has no number and no ranks, it is in no list, and nobody waits for it. The keeper
 * of the list answers its request with PLAN_WAITS, and when the time is over with the plan, or a refusal, under the
 * launcher's second key (yk__agent_plan_key). Where the keeper is lost meanwhile its launcher ends with that error, as
 * any does that has not joined yet.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "launch/agents.h"
#include "launch/succession.h"

/* To node 0's own stderr; with --json as an object. */
static void say(yk__rendezvous *n, const char *text)
{
    if (n->group) {
        group as = {.json = n->group->json, .job = n->group->job, .host = n->group->host, .err = n->group->err};
        yk__event_say(&as, "waits", text, NULL);
    } else {
        yk__relay_say(n->err, "yoke run: %s\n", text);
    }
    yk__relay_sink_flush(n->err);
}

static void put_answer(yk__rendezvous *n, const yk__agent_node *p, double seconds, const char *why)
{
    yk__wire wire = {0};
    char key[32];
    yk__agent_plan_key(key, p->id, false);
    yk__wire_put_u8(&wire, PLAN_WAITS);
    yk__wire_put_u64(&wire, (uint64_t)(1e6 * seconds));
    yk__agent_put_text(&wire, why);
    yk__agent_client_set(&n->client, key, &wire);
    yk__wire_clear(&wire);
}

bool yk__waiting_keeps(yk__rendezvous *n, yk__agent_node *p)
{
    uint32_t failures;
    char why[YK__WHY_SIZE], text[2 * YK__WHY_SIZE];
    const char *host = p->facts.machine;
    double seconds = yk__cooldown_wait(&n->cooldown, host, yk__now(), &failures);
    if (seconds <= 0)
        return false;
    yk__agent_node **more = realloc(n->waiting, ((size_t)n->waiting_count + 1) * sizeof(*more));
    if (!more)
        return false;
    n->waiting = more;
    n->waiting[n->waiting_count++] = p;
    p->waited = true;
    snprintf(why, sizeof(why), "nodes of host %s have failed %" PRIu32 " time%s (--fail-cooldown %g:%g)", host,
             failures, failures > 1 ? "s" : "", n->cooldown.first, n->cooldown.most);
    snprintf(text, sizeof(text), "a node (host %s, pid %u) comes too early, and waits for %.3g s: %s", p->facts.host,
             p->facts.pid, seconds, why);
    say(n, text);
    put_answer(n, p, seconds, why);
    return true;
}

yk__agent_node *yk__waiting_find(const yk__rendezvous *n, uint64_t id)
{
    for (int i = 0; i < n->waiting_count; i++)
        if (n->waiting[i]->id == id)
            return n->waiting[i];
    return NULL;
}

/* Takes the one at `index` out of the list. */
static yk__agent_node *take(yk__rendezvous *n, int index)
{
    yk__agent_node *p = n->waiting[index];
    n->waiting_count--;
    memmove(n->waiting + index, n->waiting + index + 1, (size_t)(n->waiting_count - index) * sizeof(*n->waiting));
    return p;
}

void yk__waiting_gone(yk__rendezvous *n, uint64_t id)
{
    for (int i = n->waiting_count - 1; i >= 0; i--)
        if (n->waiting[i]->id == id)
            yk__agent_node_free(take(n, i));
}

void yk__waiting_step(yk__rendezvous *n, double *again)
{
    uint32_t failures;
    for (int i = 0; i < n->waiting_count;) {
        double now = yk__now();
        double left = yk__cooldown_wait(&n->cooldown, n->waiting[i]->facts.machine, now, &failures);
        if (left <= 0) {
            yk__rendezvous_admit(n, take(n, i));
            continue;
        }
        *again = now + left < *again ? now + left : *again;
        i++;
    }
}

void yk__waiting_end(yk__rendezvous *n, const char *text)
{
    while (n->waiting_count > 0) {
        yk__agent_node *p = take(n, n->waiting_count - 1);
        yk__rendezvous_refuse(n, p->id, true, text);
        yk__agent_node_free(p);
    }
}

void yk__waiting_clear(yk__rendezvous *n)
{
    while (n->waiting_count > 0)
        yk__agent_node_free(take(n, n->waiting_count - 1));
    free(n->waiting);
    n->waiting = NULL;
}

/* ---- the launcher that waits ------------------------------------------------------------------------------------- */

bool yk__waiting_told(yk__rendezvous *n, yk__reader *r)
{
    char key[32];
    uint64_t us = yk__read_u64(r);
    if (n->waits_until > 0 || us > (uint64_t)1e13 || !yk__agent_read_text(r, n->waits_why, sizeof(n->waits_why)))
        return false;
    n->waits_until = yk__now() + 1e-6 * (double)us;
    yk__agent_plan_key(key, n->id, true);
    yk__agent_client_await(&n->client, key);
    return true;
}

bool yk__waiting_fits(yk__rendezvous *n, double deadline, char *text, size_t size)
{
    if (n->waits_until == 0 || !n->waits_why[0])
        return true;
    double seconds = n->waits_until - yk__now();
    bool fits = n->waits_until <= deadline;
    if (fits)
        yk__relay_say(n->err, "yoke run: %s lets this node in after %.3g s: %s\n", n->coordinator_name, seconds,
                      n->waits_why);
    else
        snprintf(text, size, "%s lets this node in after %.3g s, and --join-timeout %g ends before: %s",
                 n->coordinator_name, seconds, n->s.join_timeout, n->waits_why);
    yk__relay_sink_flush(n->err);
    n->waits_why[0] = '\0'; /* it is said once */
    return fits;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

void yk__waiting_failed(yk__rendezvous *n, const yk__agent_node *p)
{
    if (p->leaving || p->departs)
        return;
    yk__cooldown_count(&n->cooldown, p->facts.machine, p->since, yk__now());
    yk__succession_put_cooldown(n);
}
