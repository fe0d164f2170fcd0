/*
 * keeper.c - terms, promises, quorums and leases of a store that outlives its keeper. Layer: net.
 *
 * Note [Two keepers]
 * A keeper of an earlier term may still run, cut off from the others. It can make no change, since a quorum has
 * promised another term, and any two quorums have a node in common; while the nodes change a quorum is one of both
 * lists. And it answers nothing from its memory: it holds back every answer when `hold_for` of the time-out has passed
 * since it *sent* a beat that a quorum has answered, and a node promises another term only when `patience` of it, which
 * is more, has passed since something *came*, which was later. A node whose keeper has ended for certain need not wait.
 * Nor need one that has taken nothing of the node that has its promise, since no answer of that one rests on it: a
 * keeper gets its promise at once, and any other when `brief` of the time-out has passed, so that two that would be it
 * do not take each other's promises in turns, and one that has not become it leaves the others free in time.
 *
 * Note [Two that ask for one term]
 * Of two that ask for the same term neither may have a majority, as each has promised it to itself. So one that asks
 * gives its own promise away to one that stands before it in the list, or that keeps the store in that term: it lays
 * down its wish for good, and no other node has counted that promise. Those that have promised it the term are free
 * when `brief` has passed.
 *
 * Note [A later term for a keeper that lives]
 * Of two that ask at once one may have a quorum of a term, and the other the promise of some node for a later one,
 * which it never keeps. That node has to refuse the keeper. So a keeper that hears of a promise of a later term *lifts*
 * its own: it lays it down, for good, and asks for a term above the highest that it knows. From then on it is as any
 * other that asks: it answers nothing, promises itself to nobody, and keeps the store in the new term when a quorum has
 * promised that, and makes a quorum take everything anew. Three things spare an election. It need not wait, nor need
 * its followers: they promise at once, as the only one that could answer behind their promise is the one that they give
 * it to. Its own replica is the newest: each change of its term is its own, and of a later term none was answered,
 * because that would have taken a quorum that had promised one, and some node of the present quorum would have been of
 * it; a node with a replica of a later term is not counted. And a follower is asked behind all changes of the old term,
 * on the connection that it has; none goes out before the new term is kept: replicas of a term that is not would be
 * taken for the newest without being so.
 *
 * Note [A register that decides]
 * With a register that several nodes can write by compare-and-swap (etcd) no majority of the nodes is needed: it has
 * the list of those that have taken all that was answered on, as in PacificA (Lin et al., 2008), and two nodes can
 * settle a cut. The keeper needs all of them (`all`), so any one has what was seen, and may write itself into the
 * register as keeper of the next term when `patience` has passed; by then the keeper has stopped, since this very node
 * has answered nothing. The keeper leaves a node that is silent out of the list, in the register first, and adds one
 * when it has taken all. Both write over the revision that they have read, so that one of them wins. The register's own
 * clock decides nothing, and while it is away only the list cannot change.
 */
#include "net/keeper.h"

#include <string.h>

/* Parts of --node-timeout. */
static const double hold_for = 0.3, patience = 0.45, brief = 0.08;

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static void put_list(yk__wire *wire, const yk__keeper_list *list)
{
    yk__wire_put_u16(wire, (unsigned)list->count);
    for (int i = 0; i < list->count; i++)
        yk__wire_put_u64(wire, list->ids[i]);
}

static bool read_list(yk__reader *r, yk__keeper_list *list)
{
    *list = (yk__keeper_list){.count = (int)yk__read_u16(r)};
    if (list->count < 1 || list->count > YK__KEEPER_NODES) {
        list->count = 0;
        return false;
    }
    for (int i = 0; i < list->count; i++)
        list->ids[i] = yk__read_u64(r);
    return !r->bad;
}

void yk__keeper_put_nodes(yk__wire *wire, const yk__keeper_nodes *nodes)
{
    yk__wire_put_u8(wire, nodes->all);
    put_list(wire, &nodes->old);
    put_list(wire, &nodes->now);
}

bool yk__keeper_read_nodes(yk__reader *r, yk__keeper_nodes *nodes)
{
    unsigned all = yk__read_u8(r);
    nodes->all = all == 1;
    return all <= 1 && read_list(r, &nodes->old) && read_list(r, &nodes->now);
}

static bool list_has(const yk__keeper_list *list, bool all, bool (*has)(const void *, uint64_t), const void *argument)
{
    int count = 0;
    for (int i = 0; i < list->count; i++)
        count += has(argument, list->ids[i]);
    if (all)
        return count > 0 && count == list->count;
    return 2 * count > list->count || (count > 0 && 2 * count == list->count && has(argument, list->ids[0]));
}

bool yk__keeper_quorum(const yk__keeper_nodes *nodes, bool (*has)(const void *, uint64_t), const void *argument)
{
    return list_has(&nodes->old, nodes->all, has, argument) && list_has(&nodes->now, nodes->all, has, argument);
}

/* ---- the keeper -------------------------------------------------------------------------------------------------- */

void yk__keeper_lead_begin(yk__keeper_lead *l, uint64_t self, uint64_t term, const yk__keeper_nodes *nodes,
                           double silence)
{
    *l = (yk__keeper_lead){.self = self, .term = term, .nodes = *nodes, .hold = hold_for * silence};
}

static yk__keeper_follower *follower_of(const yk__keeper_lead *l, uint64_t id)
{
    for (int i = 0; i < l->count; i++)
        if (l->followers[i].id == id)
            return (yk__keeper_follower *)&l->followers[i];
    return NULL;
}

bool yk__keeper_listed(const yk__keeper_nodes *nodes, uint64_t id)
{
    bool any = false;
    for (int i = 0; i < nodes->old.count; i++)
        any |= nodes->old.ids[i] == id;
    for (int i = 0; i < nodes->now.count; i++)
        any |= nodes->now.ids[i] == id;
    return any;
}

/* Room for one more: those that are no nodes any more are not asked for again. */
static yk__keeper_follower *follower_add(yk__keeper_lead *l, uint64_t id)
{
    int kept = 0;
    for (int i = 0; i < l->count; i++)
        if (yk__keeper_listed(&l->nodes, l->followers[i].id))
            l->followers[kept++] = l->followers[i];
    l->count = kept;
    if (l->count == 2 * YK__KEEPER_NODES)
        return NULL;
    l->followers[l->count] = (yk__keeper_follower){.id = id};
    return &l->followers[l->count++];
}

typedef struct asked {
    const yk__keeper_lead *lead;
    uint64_t number;
    double since;
} asked;

static bool has_taken(const void *argument, uint64_t id)
{
    const asked *a = argument;
    const yk__keeper_follower *f = follower_of(a->lead, id);
    return id == a->lead->self || (f && (f->ended || f->taken >= a->number));
}

static bool has_answered(const void *argument, uint64_t id)
{
    const asked *a = argument;
    const yk__keeper_follower *f = follower_of(a->lead, id);
    return id == a->lead->self || (f && (f->ended || f->sent >= a->since));
}

void yk__keeper_taken(yk__keeper_lead *l, uint64_t id, uint64_t number, double sent)
{
    yk__keeper_follower *f = follower_of(l, id);
    if (number > l->number || (!f && !(f = follower_add(l, id))))
        return;
    f->taken = number > f->taken ? number : f->taken;
    f->sent = sent > f->sent ? sent : f->sent;
}

void yk__keeper_left(yk__keeper_lead *l, uint64_t id, double now)
{
    yk__keeper_follower *f = follower_of(l, id);
    if (f)
        f->ended |= f->sent > 0 && now - f->sent <= l->hold;
}

double yk__keeper_heard_at(const yk__keeper_lead *l, double now)
{
    if (yk__keeper_quorum(&l->nodes, has_answered, &(asked){.lead = l, .since = now}))
        return now;
    double at = 0;
    for (int i = 0; i < l->count; i++) {
        double sent = l->followers[i].sent;
        if (sent > at && yk__keeper_quorum(&l->nodes, has_answered, &(asked){.lead = l, .since = sent}))
            at = sent;
    }
    return at;
}

static bool has_lifted(const void *argument, uint64_t id)
{
    const yk__keeper_lead *l = argument;
    const yk__keeper_follower *f = follower_of(l, id);
    return id == l->self || (f && (f->ended || f->promised == l->lifts));
}

/* Keeps the new term if a quorum has promised it. */
static bool try_lifted(yk__keeper_lead *l)
{
    if (!yk__keeper_quorum(&l->nodes, has_lifted, l))
        return false;
    l->term = l->lifts;
    l->lifts = l->committed = 0;
    for (int i = 0; i < l->count; i++)
        l->followers[i].taken = 0;
    return true;
}

bool yk__keeper_lift(yk__keeper_lead *l, uint64_t term)
{
    if (l->nodes.all || term <= l->term || term <= l->lifts)
        return false;
    l->lifts = term;
    return try_lifted(l);
}

bool yk__keeper_lifted(yk__keeper_lead *l, uint64_t id, uint64_t term, uint64_t held_term)
{
    yk__keeper_follower *f = follower_of(l, id);
    if (l->lifts == 0 || term != l->lifts || held_term > l->term || (!f && !(f = follower_add(l, id))))
        return false;
    f->promised = term;
    return try_lifted(l);
}

bool yk__keeper_answers(yk__keeper_lead *l, double now)
{
    if (l->lifts)
        return false;
    if (l->committed < l->number && yk__keeper_quorum(&l->nodes, has_taken, &(asked){.lead = l, .number = l->number}))
        l->committed = l->number;
    return l->committed == l->number && now - yk__keeper_heard_at(l, now) <= l->hold;
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

void yk__keeper_voter_begin(yk__keeper_voter *v, uint64_t self, double silence, double now)
{
    *v = (yk__keeper_voter){.self = self, .silence = silence, .heard = now};
}

bool yk__keeper_free(const yk__keeper_voter *v, double now)
{
    bool to_nobody = v->whom && !v->fed && !v->nodes.all; /* its promise has come to nothing so far */
    return v->ended || v->asks || now - v->heard >= (to_nobody ? brief : patience) * v->silence;
}

static void promise(yk__keeper_voter *v, uint64_t id, uint64_t term, double now)
{
    v->fed &= id == v->whom; /* else nothing that this one answers rests on this node so far */
    v->whom = id;
    v->promised = term;
    v->heard = now;
    v->ended = v->asks = false;
    v->votes = 0;
}

void yk__keeper_hear(yk__keeper_voter *v, double now)
{
    v->heard = now;
    v->fed = true;
}

void yk__keeper_note(yk__keeper_voter *v, uint64_t term)
{
    v->highest = term > v->highest ? term : v->highest;
}

static uint64_t above(const yk__keeper_voter *v)
{
    uint64_t most = v->promised > v->wished ? v->promised : v->wished;
    return (most > v->highest ? most : v->highest) + 1;
}

uint64_t yk__keeper_ask(yk__keeper_voter *v, double now)
{
    promise(v, v->self, above(v), now);
    v->asks = true;
    v->voters[v->votes++] = v->self;
    return v->promised;
}

uint64_t yk__keeper_raise(yk__keeper_voter *v)
{
    v->promised = v->highest > v->promised ? above(v) : v->promised;
    return v->promised;
}

/* True if this node, which asks for the term, gives its own promise of it to that one: Note [Two that ask for one
 * term].
 */
static bool yields(const yk__keeper_voter *v, uint64_t id, uint64_t term, bool keeps)
{
    if (!v->asks || v->nodes.all || term != v->promised || id == v->self)
        return false;
    for (int i = 0; i < v->nodes.now.count && !keeps; i++)
        if (v->nodes.now.ids[i] == id || v->nodes.now.ids[i] == v->self)
            return v->nodes.now.ids[i] == id;
    return keeps;
}

bool yk__keeper_may_promise(yk__keeper_voter *v, uint64_t id, uint64_t term, bool keeps, double now)
{
    if (yields(v, id, term, keeps))
        return true;
    if (term > v->wished) {
        v->wished = term;
        v->wished_by = id;
    }
    return term > v->promised && (yk__keeper_free(v, now) || id == v->whom || (keeps && !v->fed));
}

bool yk__keeper_promise(yk__keeper_voter *v, uint64_t id, uint64_t term, bool keeps, double now)
{
    if (!yk__keeper_may_promise(v, id, term, keeps, now))
        return false;
    promise(v, id, term, now);
    return true;
}

bool yk__keeper_promise_lift(yk__keeper_voter *v, uint64_t term, double now)
{
    if (v->asks || term <= v->promised)
        return false;
    promise(v, v->whom, term, now);
    return true;
}

bool yk__keeper_owes(const yk__keeper_voter *v, double now, uint64_t *id, uint64_t *term)
{
    *id = v->wished_by;
    *term = v->wished;
    return v->wished_by && v->wished > v->promised && yk__keeper_free(v, now);
}

static bool has_promised(const void *argument, uint64_t id)
{
    const yk__keeper_voter *v = argument;
    for (int i = 0; i < v->votes; i++)
        if (v->voters[i] == id)
            return true;
    return false;
}

bool yk__keeper_promised(yk__keeper_voter *v, uint64_t id, uint64_t term, uint64_t held_term, uint64_t held_number,
                         const yk__keeper_nodes *nodes)
{
    if (!v->asks || term != v->promised || has_promised(v, id) || v->votes == 2 * YK__KEEPER_NODES)
        return false;
    v->voters[v->votes++] = id;
    bool newer = held_term > v->term || (held_term == v->term && held_number > v->number);
    if (newer) {
        v->term = held_term;
        v->number = held_number;
        v->nodes = *nodes;
    }
    return newer;
}

bool yk__keeper_elected(const yk__keeper_voter *v)
{
    return v->asks && !v->nodes.all && yk__keeper_quorum(&v->nodes, has_promised, v);
}

bool yk__keeper_takes(const yk__keeper_voter *v, uint64_t term)
{
    return term == v->promised && !v->asks;
}
