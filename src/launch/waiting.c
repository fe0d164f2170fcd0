/*
 * waiting.c - launchers that ask to join and are not let in yet, because nodes of their host have failed again and
 * again (cooldown.h), or because the job has all of its nodes, and they are to take the place of one that is lost.
 * Layer: launch.
 *
 * Who waits is no node of the job: it has no number and no ranks, it is in no list, and nobody waits for it. The keeper
 * of the list answers its request with PLAN_WAITS, and when the time is over, or there is a place, with the plan, or a
 * refusal, under the launcher's next key (yk__agent_plan_key). Where the keeper is lost meanwhile, the launcher asks
 * those others that the keeper has named, one after the other, where the store is by now (YK__GUIDE_KEY of their own
 * stores), and asks there anew; it ends with the loss where none of them knows.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "launch/agents.h"
#include "launch/succession.h"
#include "net/store_table.h"

struct yk__seeking {
    char others[YK__KEEPER_NODES * (YK__ADDRESS_TEXT + 1)]; /* as in PLAN_WAITS */
    size_t at;                                              /* who is asked next */
    yk__agent_client client;                                /* to the one that is asked; gone: none is */
    double since, asked, joined; /* when the keeper was lost, that one was asked, and one who keeps the list now was */
};
/* Seconds: for a connection; until the next one is asked; between looks for the answer. */
static const double seek_patience = 0.3, seek_each = 0.5, seek_again = 0.02;

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

/* The other launchers, any of which knows who keeps the list when this one does not any more; "" where none would. */
static void put_others(yk__wire *wire, const yk__rendezvous *n)
{
    char text[sizeof(((struct yk__seeking *)0)->others)] = "";
    size_t used = 0;
    for (int i = 0; i < n->joined && n->succession && n->succession->keeps; i++) {
        const char *where = n->nodes[i]->facts.keeper;
        size_t length = where && !n->nodes[i]->gone ? strlen(where) : 0;
        if (length && used + length + 2 <= sizeof(text))
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used ? " " : "", where);
    }
    yk__agent_put_text(wire, text);
}

static void send_wait(yk__rendezvous *n, yk__agent_node *p, double seconds, const char *why)
{
    yk__wire wire = {0};
    char key[32];
    yk__agent_plan_key(key, p->id, p->waits++);
    yk__wire_put_u8(&wire, PLAN_WAITS);
    yk__wire_put_u64(&wire, (uint64_t)(1e6 * seconds));
    yk__wire_put_u8(&wire, p->spare);
    yk__agent_put_text(&wire, why);
    put_others(&wire, n);
    yk__agent_client_set(&n->client, key, &wire);
    yk__wire_clear(&wire);
}

void yk__waiting_tell(yk__rendezvous *n)
{
    uint32_t failures;
    for (int i = 0; i < n->waiting_count; i++) {
        yk__agent_node *p = n->waiting[i];
        double left = yk__cooldown_wait(&n->cooldown, p->facts.machine, yk__now(), &failures);
        send_wait(n, p, left > 0 ? left : 0, "");
    }
}

/* Tells a launcher to wait: for so long, or for a place; and node 0's own stderr. */
static void put_wait(yk__rendezvous *n, yk__agent_node *p, double seconds, const char *why)
{
    char text[2 * YK__WHY_SIZE];
    if (p->spare)
        snprintf(text, sizeof(text), "a node (host %s, pid %u) waits as a spare: %s", p->facts.host, p->facts.pid, why);
    else
        snprintf(text, sizeof(text), "a node (host %s, pid %u) comes too early, and waits for %.3g s: %s",
                 p->facts.host, p->facts.pid, seconds, why);
    say(n, text);
    send_wait(n, p, seconds, why);
}

bool yk__waiting_place(const yk__rendezvous *n)
{
    return n->joined < n->s.node_count - 1;
}

static int spares(const yk__rendezvous *n)
{
    int count = 0;
    for (int i = 0; i < n->waiting_count; i++)
        count += n->waiting[i]->spare;
    return count;
}

bool yk__waiting_spare_place(const yk__rendezvous *n)
{
    return spares(n) < n->s.spares;
}

static void make_spare(yk__rendezvous *n, yk__agent_node *p)
{
    char why[YK__WHY_SIZE];
    p->spare = true;
    snprintf(why, sizeof(why), "the job has its %d nodes, and this is spare %d of %" PRId64 " (--spares)",
             n->s.node_count, spares(n), n->s.spares);
    put_wait(n, p, 0, why);
}

bool yk__waiting_keeps(yk__rendezvous *n, yk__agent_node *p)
{
    uint32_t failures;
    char why[YK__WHY_SIZE];
    const char *host = p->facts.machine;
    double seconds = yk__cooldown_wait(&n->cooldown, host, yk__now(), &failures);
    if (seconds <= 0 && yk__waiting_place(n))
        return false;
    yk__agent_node **more = realloc(n->waiting, ((size_t)n->waiting_count + 1) * sizeof(*more));
    if (!more)
        return false;
    n->waiting = more;
    n->waiting[n->waiting_count++] = p;
    if (seconds > 0) {
        snprintf(why, sizeof(why), "nodes of host %s have failed %" PRIu32 " time%s (--fail-cooldown %g:%g)", host,
                 failures, failures > 1 ? "s" : "", n->cooldown.first, n->cooldown.most);
        put_wait(n, p, seconds, why);
    } else {
        make_spare(n, p);
    }
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
        yk__agent_node *p = n->waiting[i];
        if (left <= 0 && (yk__waiting_place(n) || (!p->spare && !yk__waiting_spare_place(n)))) {
            p->spare = false;
            yk__rendezvous_admit(n, take(n, i));
            continue;
        }
        if (left <= 0 && !p->spare)
            make_spare(n, p);
        else if (left > 0)
            *again = now + left < *again ? now + left : *again;
        i++;
    }
}

/* The job has ended, and tells a spare how. */
static void put_over(yk__rendezvous *n, const yk__agent_node *p)
{
    yk__wire wire = {0};
    char key[32];
    yk__agent_plan_key(key, p->id, p->waits);
    yk__wire_put_u8(&wire, PLAN_OVER);
    yk__wire_put_u8(&wire, (unsigned)n->end.code);
    yk__agent_put_text(&wire, "the job has come to its end, and has not needed this spare");
    yk__agent_client_set(&n->client, key, &wire);
    yk__wire_clear(&wire);
}

void yk__waiting_end(yk__rendezvous *n, bool over, const char *text)
{
    while (n->waiting_count > 0) {
        yk__agent_node *p = take(n, n->waiting_count - 1);
        if (p->spare && over)
            put_over(n, p);
        else
            yk__rendezvous_refuse(n, p->id, p->waits, text);
        yk__agent_node_free(p);
    }
}

void yk__waiting_clear(yk__rendezvous *n)
{
    while (n->waiting_count > 0)
        yk__agent_node_free(take(n, n->waiting_count - 1));
    free(n->waiting);
    n->waiting = NULL;
    if (n->seeking)
        yk__agent_client_clear(&n->seeking->client);
    free(n->seeking);
    n->seeking = NULL;
}

/* ---- the launcher that waits ------------------------------------------------------------------------------------- */

bool yk__waiting_told(yk__rendezvous *n, bool over, yk__reader *r)
{
    char key[32];
    if (over) {
        n->over_code = (int)yk__read_u8(r);
        n->over = yk__agent_read_text(r, n->refusal, sizeof(n->refusal)) && n->refusal[0];
        return n->over;
    }
    char why[YK__WHY_SIZE];
    uint64_t us = yk__read_u64(r);
    n->spare = yk__read_u8(r) != 0;
    if (!n->seeking && !(n->seeking = calloc(1, sizeof(*n->seeking))))
        return false;
    n->seeking->client.gone = true;
    n->seeking->client.link.fd = -1;
    if (us > (uint64_t)1e13 || !yk__agent_read_text(r, why, sizeof(why)) ||
        !yk__agent_read_text(r, n->seeking->others, sizeof(n->seeking->others)))
        return false;
    n->seeking->at = 0;
    n->seeking->since = 0;
    if (*why)
        memcpy(n->waits_why, why, sizeof(why));
    n->waits_until = yk__now() + 1e-6 * (double)us;
    yk__agent_plan_key(key, n->id, ++n->waits);
    yk__agent_client_await(&n->client, key);
    return true;
}

bool yk__waiting_sent_on(yk__rendezvous *n, yk__reader *r)
{
    char where[YK__ADDRESS_TEXT];
    if (!yk__views_may(n) || !yk__agent_read_text(r, where, sizeof(where)) || !where[0])
        return false;
    if (!n->seeking && !(n->seeking = calloc(1, sizeof(*n->seeking))))
        return false;
    *n->seeking = (struct yk__seeking){.since = yk__now(), .client = {.gone = true, .link.fd = -1}};
    snprintf(n->seeking->others, sizeof(n->seeking->others), "%s", where);
    yk__relay_say(n->err, "yoke run: %s says that the job goes on, and is kept at %s; this node joins it there\n",
                  n->coordinator_name, where);
    yk__relay_sink_flush(n->err);
    yk__agent_client_lose(&n->client, "the job is kept elsewhere, and nobody there says where");
    return true;
}

bool yk__waiting_fits(yk__rendezvous *n, double deadline, char *text, size_t size)
{
    if (!n->waits_why[0])
        return true;
    double seconds = n->waits_until - yk__now();
    bool fits = n->spare || n->waits_until <= deadline;
    if (n->spare)
        yk__relay_say(n->err, "yoke run: %s: this node waits as a spare: %s\n", n->coordinator_name, n->waits_why);
    else if (fits)
        yk__relay_say(n->err, "yoke run: %s lets this node in after %.3g s: %s\n", n->coordinator_name, seconds,
                      n->waits_why);
    else
        snprintf(text, size, "%s lets this node in after %.3g s, and --join-timeout %g ends before: %s",
                 n->coordinator_name, seconds, n->s.join_timeout, n->waits_why);
    yk__relay_sink_flush(n->err);
    n->waits_why[0] = '\0'; /* it is said once */
    return fits;
}

/* The next of the other launchers' addresses, one after the other; false where there is none. */
static bool next_other(struct yk__seeking *s, char where[YK__ADDRESS_TEXT])
{
    s->at += strspn(s->others + s->at, " ");
    if (!s->others[s->at])
        s->at = 0;
    size_t length = strcspn(s->others + s->at, " ");
    snprintf(where, YK__ADDRESS_TEXT, "%.*s", (int)length, s->others + s->at);
    s->at += length;
    return length > 0;
}

/* Connects to another launcher's store; false, and the client is gone, where that cannot be. */
static bool connect_other(yk__rendezvous *n, yk__agent_client *c, const char *where)
{
    char host[YK__HOST_SIZE], why[YK__WHY_SIZE];
    int port;
    yk__address address;
    yk__agent_client_clear(c);
    *c = (yk__agent_client){.heard = yk__now(), .gone = true, .link.fd = -1};
    if (yk__host_port_parse(where, -1, host, &port)) {
        yk_clear_error();
        return false;
    }
    double until = yk__now() + seek_patience;
    c->gone = yk__resolve(host, port, until, &address, 1, why) != 1 ||
              yk__store_link_connect(&c->link, &address, &n->identity, until, why) != YK__REACHED;
    if (c->gone)
        c->link.fd = -1;
    return !c->gone;
}

/* Asks the launcher that keeps the list now, as if this one had just come. */
static void ask_anew(yk__rendezvous *n, const char *where)
{
    struct epoll_event event = {.events = EPOLLIN};
    if (!connect_other(n, &n->client, where))
        return;
    if (epoll_ctl(n->epoll, EPOLL_CTL_ADD, n->client.link.fd, &event)) {
        yk__agent_client_lose(&n->client, strerror(errno));
        return;
    }
    n->sending = false;
    n->waits = 0;
    n->beat = n->seeking->joined = yk__now();
    yk__rendezvous_ask(n, &n->client);
    snprintf(n->coordinator_name, sizeof(n->coordinator_name), "the keeper of the list at %.100s", where);
}

/* One that was named as the keeper need not have become it. */
static void doubt_keeper(yk__rendezvous *n)
{
    if (n->seeking && n->seeking->since > 0 && n->waits == 0 && yk__now() > n->seeking->joined + n->s.node_timeout)
        yk__agent_client_lose(&n->client, "it has not answered");
}

bool yk__waiting_seeks(yk__rendezvous *n, double *next)
{
    struct yk__seeking *s = n->seeking;
    char where[YK__ADDRESS_TEXT];
    yk__reader value;
    double now = yk__now(), most = 4 * n->s.node_timeout + 5;
    doubt_keeper(n);
    if (!n->client.gone)
        return true;
    if (!s || !s->others[0])
        return false;
    if (s->since == 0) {
        s->since = now;
        yk__relay_say(n->err,
                      "yoke run: %s is lost: %s; this node goes on waiting, and asks the others who keeps the "
                      "list now\n",
                      n->coordinator_name, n->client.why);
        yk__relay_sink_flush(n->err);
    }
    if (now > s->since + most)
        return false;
    *next = now + seek_again;
    if (s->client.gone || now > s->asked + seek_each) {
        s->asked = now;
        if (next_other(s, where) && connect_other(n, &s->client, where))
            yk__agent_client_await(&s->client, YK__GUIDE_KEY);
        return true;
    }
    yk__agent_client_move(&s->client);
    if (yk__agent_client_next(&s->client, &value)) {
        size_t size = (size_t)(value.end - value.at);
        snprintf(where, sizeof(where), "%.*s", (int)(size < sizeof(where) ? size : 0), (const char *)value.at);
        yk__agent_client_clear(&s->client);
        s->client.link.fd = -1;
        ask_anew(n, where);
    }
    return true;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

void yk__waiting_failed(yk__rendezvous *n, const yk__agent_node *p)
{
    if (p->leaving || p->departs)
        return;
    yk__cooldown_count(&n->cooldown, p->facts.machine, p->since, yk__now());
    yk__succession_put_cooldown(n);
}
