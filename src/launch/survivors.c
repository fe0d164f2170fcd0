/*
 * survivors.c - nodes come and go, and the processes of the others go on (--nnodes MIN:MAX, and a program that
 * survives: src/elastic/). Layer: launch.
 *
 * The processes agree among themselves on who takes part (Note [Views] in elastic/members.h). What they need of the
 * launchers is the word that a process is gone, which node 0 gives for those of a node that is lost or has left; and
 * the processes of a node that comes, which it gives ranks, *slots* for them, that no process had before.
 *
 * Note [The side that goes on]
 * Node 0's store holds the register of views, so of a network that is cut the side with node 0 goes on, if it has MIN
 * nodes; no other side can make a view. Its processes must have ended before the others go on, or two of one rank might
 * write a file. So each launcher counts from when it *sent* the last renewal of its lease that node 0 has answered, and
 * kills its processes when two thirds of --node-timeout have passed since; node 0 finds a node lost when all of it has
 * passed since a renewal *came*, which is later. Both count the time in which a machine was suspended.
 *
 * With fewer than MIN nodes left node 0 keeps the word back, so the processes stand, with their state in memory, until
 * more nodes have come, or --join-timeout is over, which ends the job.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json_line.h"
#include "launch/agents.h"
#include "launch/exit_codes.h"
#include "launch/member_changes.h"
#include "launch/succession.h"

/* The part of --node-timeout after which a node that has no answer of node 0's ends its processes. */
static const double fence_after = 2.0 / 3;

bool yk__survivors_may(const yk__rendezvous *n)
{
    return n->server && yk__views_may(n) && n->running && n->link.lives && !n->have_end;
}

bool yk__survivors_known(const yk__rendezvous *n, const group *g)
{
    bool any = yk__alone_all_survive(g);
    for (int i = 0; i < n->joined && !any; i++) /* none at another launcher than node 0's, which may have no process */
        any = n->nodes[i]->view > 0;
    return any;
}

static int nodes_there(const yk__rendezvous *n)
{
    int count = 1;
    for (int i = 0; i < n->joined; i++)
        count += n->nodes[i]->number > 0 && !n->nodes[i]->gone && !n->nodes[i]->leaving;
    return count;
}

/* ---- words in the processes' store ------------------------------------------------------------------------------- */

void yk__rendezvous_put(yk__rendezvous *n, const char *key, const char *text)
{
    char whole[100];
    yk__wire value = {0};
    snprintf(whole, sizeof(whole), "ranks.%" PRId64 "/%s", n->plan.attempt, key);
    yk__wire_put(&value, text, strlen(text));
    yk__agent_client_set(&n->client, whole, &value);
    yk__wire_clear(&value);
}

static void put_word(yk__rendezvous *n, const char *key, const char *text)
{
    char whole[80];
    snprintf(whole, sizeof(whole), "elastic/%s", key);
    yk__rendezvous_put(n, whole, text);
}

void yk__rendezvous_gone(yk__rendezvous *n, int slot, int incarnation)
{
    char key[60];
    snprintf(key, sizeof(key), "gone/%d.%d", slot, incarnation);
    put_word(n, key, "1");
}

/* Nothing is left of the processes of a node, whichever incarnation of them was the last that node 0 has heard of. */
static void put_gone(yk__rendezvous *n, int first, int local)
{
    for (int slot = first; slot < first + local; slot++) {
        int last = 0;
        for (int i = 0; i < n->departed_count; i++)
            last = n->departed[i].rank == slot ? n->departed[i].incarnation : last;
        for (int incarnation = 0; incarnation <= last + 1; incarnation++)
            yk__rendezvous_gone(n, slot, incarnation);
    }
}

/* Those who wait for a process of the node need not do so any longer. */
static void put_lost(yk__rendezvous *n, const yk__agent_node *p)
{
    for (int slot = p->first; slot < p->first + p->local; slot++) {
        char *longer = yk__format("%s%s%d", n->lost ? n->lost : "", n->lost ? " " : "", slot);
        if (!longer)
            return;
        free(n->lost);
        n->lost = longer;
    }
    if (n->lost)
        put_word(n, "lost", n->lost);
}

/* ---- what is said ------------------------------------------------------------------------------------------------ */

void yk__survivors_say(yk__rendezvous *n, yk__change kind, bool awaited, const char *why, int nodes, int ranks)
{
    if (!n->group)
        return;
    group as = {.json = n->group->json, .job = n->group->job, .host = n->group->host, .err = n->group->err};
    yk__change_note(n->group, kind, awaited, why);
    char message[1000];
    snprintf(message, sizeof(message), "%.800s: %d node%s with %d rank%s", why, nodes, nodes > 1 ? "s" : "", ranks,
             ranks > 1 ? "s" : "");
    json_t *members = as.json ? json_pack("{s:o,s:i,s:i,s:i}", "why", yk__json_text(why, strlen(why)), "nodes", nodes,
                                          "ranks", ranks, "node", n->plan.node)
                              : NULL;
    yk__event_say(&as, "members", message, members);
    yk__relay_sink_flush(n->err);
}

void yk__survivors_begin(yk__rendezvous *n)
{
    char nodes[32], text[600];
    yk__succession_begin(n);
    if (!n->server || n->reg)
        return;
    group as = {.json = n->group->json, .job = n->group->job, .host = n->group->host, .err = n->group->err};
    yk__views_nodes(n->s.least, n->s.node_count, nodes);
    if (2 * n->s.least <= n->s.node_count) {
        snprintf(text, sizeof(text),
                 "--nnodes %s: where the network is cut the side with most nodes, or of two equal ones that with node "
                 "0, goes on, if it has %d node%s, and any other ends",
                 nodes, n->s.least, n->s.least > 1 ? "s" : "");
        yk__event_say(&as, "cut", text, NULL);
    }
    if (nodes_there(n) != 2)
        return;
    if (n->s.witness)
        snprintf(text, sizeof(text),
                 "--nnodes %s: there are two nodes so far, of which node 0's end is that of the job, until a third one "
                 "has come (--witness %.200s)",
                 nodes, n->s.witness);
    else
        snprintf(
            text, sizeof(text),
            "--nnodes %s: there are two nodes and no witness, so node 0's end is that of the job, and where the "
            "network between them is cut the other one ends; a third node without processes settles both (--nnodes "
            "2:3 --witness HOST on all three)",
            nodes);
    yk__event_say(&as, "witness", text, NULL);
}

/* On all launchers. `lost`: members have ended by it, so the next step is awaited. */
static void announce(yk__rendezvous *n, yk__change kind, const char *why, bool lost)
{
    int nodes = nodes_there(n), ranks = n->own_local;
    for (int i = 0; i < n->joined; i++) {
        const yk__agent_node *p = n->nodes[i];
        ranks += p->number > 0 && !p->gone && !p->leaving ? p->local : 0;
    }
    yk__wire order = {0};
    yk__wire_put_u8(&order, ORDER_MEMBERS);
    yk__wire_put_u8(&order, 2 * (unsigned)kind + lost);
    yk__wire_put_u32(&order, (uint32_t)nodes);
    yk__wire_put_u32(&order, (uint32_t)ranks);
    yk__agent_put_text(&order, why);
    yk__rendezvous_order(n, &order);
    n->link.changed = lost ? yk__now() : n->link.changed;
    yk__survivors_say(n, kind, lost, why, nodes, ranks);
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

static void hold(yk__rendezvous *n, const yk__agent_node *p)
{
    yk__slots *more = realloc(n->held, ((size_t)n->held_count + 1) * sizeof(*more));
    if (!more)
        return; /* its members are waited for until their time is over */
    n->held = more;
    n->held[n->held_count++] = (yk__slots){p->first, p->local};
    put_word(n, "held", "1");
    if (n->held_until == 0)
        n->held_until = yk__now() + n->s.join_timeout;
}

static void release_held(yk__rendezvous *n)
{
    if (n->held_until == 0 || nodes_there(n) < n->s.least)
        return;
    for (int i = 0; i < n->held_count; i++)
        put_gone(n, n->held[i].first, n->held[i].count);
    n->held_count = 0;
    n->held_until = 0;
    n->link.changed = yk__now();
}

/* False if all processes of the node are known to be lost: by those the others have gone on, or will, without them. */
static bool has_processes(const yk__rendezvous *n, const yk__agent_node *p)
{
    int lost = 0;
    for (int i = 0; i < n->departed_count; i++) {
        const yk__departure *d = &n->departed[i];
        lost += d->lost && d->rank >= p->first && d->rank < p->first + p->local;
    }
    return lost < p->local;
}

void yk__survivors_lost(yk__rendezvous *n, yk__agent_node *p, const char *text)
{
    char why[1000];
    /* The last view in which it has had a member: the others may have gone on in a later one before, without it. */
    if (has_processes(n, p)) /* else no member has ended by it, and no view follows */
        n->lost_view = p->view > n->lost_view ? p->view : n->lost_view;
    p->settled = true;
    bool enough = nodes_there(n) >= n->s.least;
    if (enough) {
        put_gone(n, p->first, p->local);
        snprintf(why, sizeof(why), "%.700s; the others go on", text);
    } else {
        hold(n, p);
        snprintf(why, sizeof(why),
                 "%.700s; the others wait for more nodes, as --nnodes asks for %d, for %g s "
                 "(--join-timeout)",
                 text, n->s.least, n->s.join_timeout);
    }
    put_lost(n, p);
    announce(n, YK__CHANGE_NODE_LOST, why, enough && p->local > 0);
}

/* True if a process with this number can run, on this node or another that is there. */
static bool is_covered(const yk__rendezvous *n, int slot)
{
    bool any = slot >= n->plan.first && slot < n->plan.first + n->own_local;
    for (int i = 0; i < n->joined && !any; i++) {
        const yk__agent_node *p = n->nodes[i];
        any = !p->gone && slot >= p->first && slot < p->first + p->local;
    }
    return any;
}

void yk__survivors_succeed(yk__rendezvous *n, yk__agent_node *before, const char *text)
{
    char why[1000];
    n->link.lives = before->settled = true;
    yk__waiting_failed(n, before);
    bool enough = nodes_there(n) >= n->s.least;
    for (int slot = 0; slot < n->slots && enough; slot++) {
        int last = is_covered(n, slot) ? -1 : yk__succession_incarnations(n, slot) + 1;
        for (int incarnation = 0; incarnation <= last; incarnation++)
            yk__rendezvous_gone(n, slot, incarnation);
    }
    if (enough) {
        snprintf(why, sizeof(why), "%.700s; the others go on", text);
    } else {
        hold(n, before);
        snprintf(why, sizeof(why), "%.700s; the others wait for more nodes, as --nnodes asks for %d", text, n->s.least);
    }
    put_lost(n, before);
    announce(n, YK__CHANGE_NODE_LOST, why, enough && before->local > 0);
}

bool yk__survivors_leave(yk__rendezvous *n, yk__agent_node *p, int number)
{
    char name[160], signal_name[32], why[400];
    if (p->departs) /* it has come in vain */
        return true;
    if (!yk__survivors_may(n) || nodes_there(n) <= n->s.least)
        return false;
    p->leaving = p->departs = true;
    yk__rendezvous_name_node(p, name, sizeof(name));
    snprintf(why, sizeof(why), "%s leaves: %s to its launcher; the others go on", name,
             yk__signal_name(number, signal_name));
    announce(n, YK__CHANGE_NODE_LEFT, why, false);
    return true;
}

bool yk__survivors_come(yk__rendezvous *n, yk__agent_node *p)
{
    char name[160], why[300];
    if (!yk__survivors_may(n))
        return false;
    int number = 1;
    for (int i = 0; i < n->joined; i++) {
        if (n->nodes[i]->number == number) {
            number++;
            i = -1;
        }
    }
    p->number = number;
    p->first = n->slots;
    p->local = p->facts.counts[0];
    n->slots += p->local;
    n->world += p->local;
    yk__rendezvous_send_joining(n, p);
    yk__rendezvous_name_node(p, name, sizeof(name));
    snprintf(why, sizeof(why), "%s comes, and joins the others", name);
    announce(n, YK__CHANGE_NODE_JOINED, why, false);
    release_held(n);
    return true;
}

void yk__survivors_in_vain(yk__rendezvous *n, yk__agent_node *p, const char *text)
{
    char name[160], why[1000];
    if (!yk__survivors_may(n))
        return;
    yk__waiting_failed(n, p);
    p->departs = p->leaving = true;
    yk__rendezvous_name_node(p, name, sizeof(name));
    snprintf(why, sizeof(why), "%s has come in vain: %.700s; the others go on", name, text);
    if (nodes_there(n) < n->s.least)
        hold(n, p);
    announce(n, YK__CHANGE_NODE_LEFT, why, false);
}

static void forget(yk__rendezvous *n, const yk__agent_node *p)
{
    n->world -= p->local;
    yk__rendezvous_forget(n, p->id);
}

void yk__survivors_step(yk__rendezvous *n)
{
    for (int i = n->joined - 1; i >= 0; i--) {
        yk__agent_node *p = n->nodes[i];
        if (p->departs && p->ended && !n->have_end) {
            yk__wire order = {0};
            put_gone(n, p->first, p->local); /* those that were killed, as they did not end in time */
            yk__wire_put_u8(&order, ORDER_LEFT);
            yk__wire_put_u64(&order, p->id);
            yk__rendezvous_order(n, &order);
            forget(n, p);
        } else if (p->settled) {
            forget(n, p);
        }
    }
    if (n->held_until > 0 && yk__now() >= n->held_until && !n->have_end) {
        char text[300], nodes[32];
        int there = nodes_there(n);
        snprintf(text, sizeof(text), "--nnodes %s: %d node%s there after %g s (--join-timeout), and %d are needed",
                 yk__views_nodes(n->s.least, n->s.node_count, nodes), there, there > 1 ? "s are" : " is",
                 n->s.join_timeout, n->s.least);
        n->held_until = 0;
        yk__rendezvous_record_broken(n, text);
    }
}

void yk__survivors_end(yk__rendezvous *n, const group *g)
{
    int64_t done, lost;
    if (!n->link.lives || n->have_end || !yk__views_may(n))
        return;
    yk__alone_ends(g, &done, &lost);
    lost = n->lost_view > lost ? n->lost_view : lost;
    for (int i = 0; i < n->joined; i++) {
        const yk__agent_node *p = n->nodes[i];
        done = p->done_view > done ? p->done_view : done;
        lost = p->lost_view > lost ? p->lost_view : lost;
    }
    if (lost > 0 && lost >= done)
        yk__rendezvous_record_broken(n, done ? "processes were lost behind the last step, and nobody has gone on "
                                               "without them"
                                             : "all processes were lost, one after the other");
}

void yk__survivors_clear(yk__rendezvous *n)
{
    free(n->lost);
    free(n->held);
    n->lost = NULL;
    n->held = NULL;
    n->held_count = 0;
    n->held_until = 0;
    n->lost_view = n->view = 0;
    n->link.lives = n->link.kill = false;
    n->link.changed = 0;
    n->group = NULL;
}

/* ---- the fence --------------------------------------------------------------------------------------------------- */

/* The time in seconds since the machine started, the time in which it was suspended included. */
static double boot_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void yk__survivors_renewed(yk__rendezvous *n)
{
    if (n->renewal)
        return; /* an earlier one has no answer yet */
    n->renewal = n->client.sent;
    n->renewal_at = boot_time();
}

void yk__survivors_fence(yk__rendezvous *n)
{
    yk__agent_client *c = &n->client;
    if (n->renewal && c->sent - c->unanswered >= n->renewal && yk__succession_feeds(n)) { /* else no keeper's so far */
        n->confirmed = n->renewal_at;
        n->renewal = 0;
    }
    double now = boot_time(), silent = now - n->confirmed;
    if (n->confirmed == 0)
        n->confirmed = now;
    else if (n->link.lives && !n->link.done && (!c->gone || yk__succession_pending(n)) &&
             silent > fence_after * n->s.node_timeout) {
        char why[400];
        snprintf(why, sizeof(why), "it has answered nothing for %.3g s", silent);
        n->link.kill = true;
        yk__succession_part(n, why);
    }
}
