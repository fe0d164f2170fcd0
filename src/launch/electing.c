/*
 * electing.c - for a job in etcd: the list of nodes that may succeed the keeper, and the election of the next one.
 * Layer: launch.
 *
 * Why it is sound is said in net/keeper.c, Note [A register that decides]. Invariants: the keeper's store needs the
 * answers of each node of `known` and of `next`, so of those that etcd lists whichever of them it has; a launcher that
 * asks to be the keeper answers no other one from before it asks until etcd has said no.
 */
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "launch/succession.h"

/* The part of --node-timeout after which a node that has answered nothing is left out: less than keeper.c and
 * succession.c have the keeper go on without an answer, so that etcd has time. */
static const double quiet_after = 0.2;
/* Seconds until etcd is asked once more: about what it did not answer; about who the keeper is. */
static const double ask_again = 0.2, look_again = 0.3, look_after = 0.25;

/* ---- the keeper -------------------------------------------------------------------------------------------------- */

static bool is_fresh(yk__rendezvous *n, uint64_t id, double now)
{
    const yk__succession *s = n->succession;
    double since = now - quiet_after * n->s.node_timeout;
    return id == n->id || yk__store_server_heard_of(n->server, id) > since ||
           (s->began > since && yk__view_has(&s->known, id)); /* it has just begun */
}

static const yk__agent_node *node_of(const yk__rendezvous *n, uint64_t id)
{
    for (int i = 0; i < n->joined; i++)
        if (n->nodes[i]->id == id)
            return n->nodes[i];
    return NULL;
}

static bool belongs(yk__rendezvous *n, uint64_t id, double now)
{
    const yk__agent_node *p = node_of(n, id);
    return id == n->id || (p && yk__succession_lists(p) && is_fresh(n, id, now));
}

static void put_node(yk__view *v, uint64_t id, const char *where)
{
    yk__view_node *node = &v->nodes[v->count];
    if (v->count == YK__KEEPER_NODES)
        return;
    *node = (yk__view_node){.id = id};
    snprintf(node->where, sizeof(node->where), "%s", where);
    v->count++;
}

/* The list that is to follow: without those that are gone or silent; if there are none such, with those that came.
 * *fewer: it is the former. False where nothing changes. */
static bool list_next(yk__rendezvous *n, double now, yk__view *next, bool *fewer)
{
    const yk__view *known = &n->succession->known;
    *next = *known;
    next->count = 0;
    for (int i = 0; i < known->count; i++)
        if (belongs(n, known->nodes[i].id, now))
            put_node(next, known->nodes[i].id, known->nodes[i].where);
    *fewer = next->count < known->count;
    for (int i = 0; i < n->joined && !*fewer; i++) {
        const yk__agent_node *p = n->nodes[i];
        if (!yk__view_has(known, p->id) && belongs(n, p->id, now) && p->facts.keeper && *p->facts.keeper)
            put_node(next, p->id, p->facts.keeper);
    }
    next->number = known->number + 1;
    next->after = known->revision;
    return next->count != known->count;
}

static void say_nodes(yk__rendezvous *n, const yk__view *v, unsigned what)
{
    yk__wire nodes = {0};
    yk__wire_put_u16(&nodes, (unsigned)v->count);
    for (int i = 0; i < v->count; i++)
        yk__wire_put_u64(&nodes, v->nodes[i].id);
    yk__wire_put_u8(&nodes, what);
    yk__agent_client_plain(&n->client, YK__NODES, &nodes);
    yk__wire_clear(&nodes);
    n->succession->said++;
}

static void keeper_answer(yk__rendezvous *n, const yk__register_answer *a, double now)
{
    yk__succession *s = n->succession;
    if (a->result == YK__REGISTER_DONE) {
        s->known = a->view;
        say_nodes(n, &s->known, YK__NODES_TAKEN);
        s->election = YK__ELECTION_NONE;
    } else if (a->result == YK__REGISTER_OTHER && a->view.number && a->view.keeper != n->id) {
        yk__log(YK_LOG_WARN, "yoke run: etcd has another keeper of the job, at %s", a->view.where);
        s->lost_quorum = n->link.kill = true; /* others go on without this launcher */
        s->election = YK__ELECTION_NONE;
    } else {
        s->swap_at = now + ask_again;
    }
}

void yk__electing_keeper(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    yk__register_answer answer;
    double now = yk__keeping_clock();
    bool fewer;
    yk__view next;
    if (yk__register_take(n->reg, &answer) && answer.swapped && s->election == YK__ELECTION_SWAPS)
        keeper_answer(n, &answer, now);
    if (s->lost_quorum)
        return;
    if (s->election == YK__ELECTION_NONE && list_next(n, now, &next, &fewer)) {
        s->next = next;
        say_nodes(n, &s->next, YK__NODES_PROPOSED);
        s->election = fewer ? YK__ELECTION_SWAPS : YK__ELECTION_PROPOSED;
        s->swap_at = now;
    } else if (s->election == YK__ELECTION_PROPOSED) {
        for (int i = 0; i < s->next.count; i++)
            if (!belongs(n, s->next.nodes[i].id, now)) { /* etcd knows nothing of it yet */
                say_nodes(n, &s->known, YK__NODES_TAKEN);
                s->election = YK__ELECTION_NONE;
                return;
            }
        if (yk__store_server_taken(n->server) < s->said)
            return;
        s->election = YK__ELECTION_SWAPS;
        s->swap_at = now;
    }
    if (s->election == YK__ELECTION_SWAPS && now >= s->swap_at && yk__register_ask(n->reg, &s->next))
        s->swap_at = now + 1e6; /* until it is answered */
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static void give_up(yk__succession *s, double now)
{
    s->voter = s->before;
    s->election = YK__ELECTION_NONE;
    s->ask_at = now + look_again;
}

/* Another launcher has become the keeper. */
static void go_to(yk__rendezvous *n, const yk__view *v)
{
    char host[YK__HOST_SIZE], why[YK__WHY_SIZE];
    yk__address address;
    int port;
    if (yk__host_port_parse(v->where, -1, host, &port))
        yk_clear_error();
    else if (yk__resolve(host, port, yk__now() + 1, &address, 1, why) == 1)
        yk__succession_go(n, v->term, v->keeper, false, &address);
}

/* The view that is there, while the keeper is silent. */
static void consider_view(yk__rendezvous *n, const yk__view *v, double now)
{
    yk__succession *s = n->succession;
    s->election = YK__ELECTION_NONE;
    s->ask_at = now + look_again;
    if (v->number && v->term > s->led && v->keeper != n->id) {
        go_to(n, v);
        return;
    }
    if (v->term != s->led || !yk__view_has(v, n->id)) {
        yk__log(YK_LOG_INFO, "yoke run: etcd has this node not, or no more, among those that may keep the job");
        return;
    }
    s->next = (yk__view){.number = v->number + 1, .term = v->term + 1, .after = v->revision, .keeper = n->id};
    snprintf(s->next.where, sizeof(s->next.where), "%s", s->where);
    for (int i = 0; i < v->count; i++)
        if (v->nodes[i].id != v->keeper)
            put_node(&s->next, v->nodes[i].id, v->nodes[i].where);
    s->before = s->voter;
    (void)yk__keeper_ask(&s->voter, now);
    s->voter.promised = s->next.term;
    s->election = YK__ELECTION_SWAPS;
    s->swap_at = now;
    yk__log(YK_LOG_INFO, "yoke run: asks etcd for term %" PRIu64, s->next.term);
}

static bool is_elected(yk__rendezvous *n, const yk__view *v)
{
    yk__succession *s = n->succession;
    yk__keeper_list list = {.count = v->count};
    for (int i = 0; i < v->count; i++)
        list.ids[i] = v->nodes[i].id;
    s->voter.nodes = (yk__keeper_nodes){.old = list, .now = list, .all = true};
    s->known = *v;
    s->election = YK__ELECTION_NONE;
    yk__agent_client_lose(&n->client, "this launcher keeps the store");
    yk__register_keep(n->reg);
    return true;
}

bool yk__electing_follower(yk__rendezvous *n, double now, int before_this)
{
    yk__succession *s = n->succession;
    yk__register_answer a;
    if (yk__register_take(n->reg, &a)) {
        if (s->election == YK__ELECTION_LOOKS && a.result == YK__REGISTER_DONE)
            consider_view(n, &a.view, now);
        else if (s->election == YK__ELECTION_LOOKS)
            yk__electing_clear(n);
        else if (s->election == YK__ELECTION_SWAPS && a.result == YK__REGISTER_DONE)
            return is_elected(n, &a.view);
        else if (s->election == YK__ELECTION_SWAPS && a.result == YK__REGISTER_AWAY)
            s->swap_at = now + ask_again; /* it may be done */
        else if (s->election == YK__ELECTION_SWAPS)
            give_up(s, now);
    }
    if (s->election == YK__ELECTION_SWAPS) {
        if (now >= s->swap_at && yk__register_ask(n->reg, &s->next))
            s->swap_at = now + 1e6; /* until it is answered */
    } else if (s->election == YK__ELECTION_NONE) {
        if (s->ask_at == 0)
            s->ask_at = now + look_after * before_this;
        if (now >= s->ask_at && yk__register_ask(n->reg, NULL))
            s->election = YK__ELECTION_LOOKS;
    }
    return false;
}

void yk__electing_clear(yk__rendezvous *n)
{
    n->succession->election = YK__ELECTION_NONE;
    n->succession->ask_at = yk__keeping_clock() + look_again;
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

void yk__electing_say(yk__rendezvous *n)
{
    char why[YK__WHY_SIZE], text[YK__WHY_SIZE + 100];
    double seconds;
    bool away;
    if (!yk__register_away(n->reg, &away, &seconds, why) || !n->server || !n->group)
        return;
    group as = {.json = n->group->json, .job = n->group->job, .host = n->group->host, .err = n->group->err};
    if (away)
        snprintf(text, sizeof(text), "%s: the job goes on, and changes of its nodes wait", why);
    else
        snprintf(text, sizeof(text), "etcd answers again, after %.3g s", seconds);
    yk__event_say(&as, "register", text, NULL);
    yk__relay_sink_flush(n->err);
}
