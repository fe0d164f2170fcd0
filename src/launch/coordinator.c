/*
 * coordinator.c - what the launchers of a job's nodes agree on: who takes part, which failure was the first, when an
 * attempt is over. Layer: launch.
 *
 * Node 0 decides, the others report and obey; one that loses node 0 stops its own processes. Invariants: everything
 * happens in the launcher's one thread, from yk__rendezvous_join and from the link's step, and never waits for a peer;
 * every node ends an attempt with the same end, node 0's verdict, unless it has lost node 0.
 *
 * Note [The first failure]: the death of one process makes others fail within a millisecond, on other nodes too. So
 * node 0 has all stopped at the first word of a failure, but decides when every node has heard that and has said which
 * of its own had ended by then, or a little later where one does not answer. The earliest counts; the time comes as an
 * age, because clocks differ between hosts. A launcher that is lost counts before what failed in the same moment: its
 * processes were killed with it, and that is what the others saw.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "launch/agents.h"
#include "launch/exit_codes.h"

static const double unauthenticated_patience = 10, decide_after = 0.15;

static void name_node(const yk__rendezvous *n, const yk__agent_peer *p, char *text, size_t size)
{
    if (p == n->coordinator)
        snprintf(text, size, "%s", n->coordinator_name);
    else if (p->local > 1)
        snprintf(text, size, "node %d (host %s, pid %u, ranks %d-%d)", p->node, p->who.host, p->who.pid, p->first,
                 p->first + p->local - 1);
    else
        snprintf(text, size, "node %d (host %s, pid %u, rank %d)", p->node, p->who.host, p->who.pid, p->first);
}

void yk__rendezvous_send_all(yk__rendezvous *n, int type, const yk__wire *payload)
{
    for (int i = 0; i < n->slots; i++) {
        if (n->peers[i] && n->peers[i]->joined)
            yk__agent_peer_send(n->peers[i], n->epoll, type, payload);
    }
    yk__agent_peer_send(n->coordinator, n->epoll, type, payload);
}

/* ---- the end of an attempt -------------------------------------------------------------------------------------- */
/* Node 0 hears of a reason to end. Of several the first counts; see Note [The first failure]. */
static void take_cause(yk__rendezvous *n, yk__outcome *end, double at)
{
    double now = yk__now();
    n->any_asked |= end->kind == YK__RUN_INTERRUPTED;
    bool earlier = n->have_end && n->end.kind == YK__RUN_FAILED &&
                   (end->kind == YK__RUN_BROKEN || (end->kind == YK__RUN_FAILED && at < n->end_at));
    if (n->have_end && (!earlier || now > n->decide_at)) {
        yk__outcome_clear(end);
        return;
    }
    if (!n->have_end) {
        n->have_end = true;
        n->decide_at = now + decide_after;
        n->stop = end->kind == YK__RUN_INTERRUPTED ? end->signal : SIGTERM;
        yk__wire wire = {0};
        yk__wire_put_u32(&wire, (uint32_t)n->stop);
        yk__rendezvous_send_all(n, AGENT_STOP, &wire);
        yk__wire_clear(&wire);
    }
    yk__outcome_clear(&n->end);
    n->end = *end;
    n->end_at = at;
    *end = (yk__outcome){.kind = YK__RUN_DONE};
}

static yk__outcome broken(const yk__rendezvous *n, const char *text)
{
    yk__outcome end = {.kind = YK__RUN_BROKEN, .code = EXIT_FAILED};
    snprintf(end.host, sizeof(end.host), "%.63s", n->s.name);
    snprintf(end.text, sizeof(end.text), "%s", text);
    return end;
}

static void lose_node(yk__rendezvous *n, yk__agent_peer *p)
{
    char name[160], text[700];
    p->reported = true;
    name_node(n, p, name, sizeof(name));
    snprintf(text, sizeof(text), "%s is lost: %s", name, p->why);
    n->any_lost = true;
    if (n->have_end && !n->end.text[0])
        snprintf(n->end.text, sizeof(n->end.text), "%s", text);
    yk__outcome end = broken(n, text);
    snprintf(end.host, sizeof(end.host), "%s", p->who.host);
    take_cause(n, &end, yk__now());
}

/* The others' messages to node 0 while an attempt runs. */
static void hear_node(yk__rendezvous *n, yk__agent_peer *p)
{
    yk__reader r;
    for (int type; (type = yk__agent_peer_next(p, &r));) {
        yk__outcome end;
        if (type == AGENT_CAUSE && p->joined) {
            double ago = (double)yk__read_u64(&r) * 1e-6;
            if (yk__agent_read_end(&r, &end))
                take_cause(n, &end, yk__now() - ago);
        } else if (type == AGENT_ENDED && p->joined) {
            p->ended = true;
            n->any_left |= yk__read_u8(&r) != 0;
            n->any_unsaved |= yk__read_u8(&r) == 0;
        } else if (type == AGENT_STOPPING) {
            p->stopping = true;
        } else if (type == AGENT_JOIN) {
            yk__rendezvous_take_join(n, p, &r);
        }
    }
}

void yk__rendezvous_hear_coordinator(yk__rendezvous *n)
{
    yk__reader r;
    yk__agent_peer *p = n->coordinator;
    for (int type; (type = yk__agent_peer_next(p, &r));) {
        if (type == AGENT_REFUSED && !yk__agent_read_text(&r, n->refusal, sizeof(n->refusal)))
            snprintf(n->refusal, sizeof(n->refusal), "refused without a reason");
        else if (type == AGENT_PLAN && yk__agent_read_plan(&r, &n->plan))
            n->planned = true, n->stop = 0; /* a stop that follows is one of this attempt, begun or not */
        else if (type == AGENT_STOP)
            n->stop = (int)(yk__read_u32(&r) & 63);
        else if (type == AGENT_VERDICT && !n->link.done) {
            n->again = yk__read_u8(&r) != 0;
            n->link.done = n->have_end = yk__agent_read_end(&r, &n->end);
        }
    }
}

/* ---- moving bytes ----------------------------------------------------------------------------------------------- */
static void check_silence(yk__rendezvous *n, yk__agent_peer *p)
{
    if (p->gone || yk__now() - p->heard <= n->s.node_timeout)
        return;
    if (p != n->coordinator) {
        char text[128];
        snprintf(text, sizeof(text), "nothing was heard of node %d for %.3g s", p->node, n->s.node_timeout);
        yk__rendezvous_refuse(n, p, text);
    }
    char why[128];
    snprintf(why, sizeof(why), "nothing was heard of it for %.3g s (is the host up, is the network cut?)",
             n->s.node_timeout);
    yk__agent_peer_lose(p, why);
}

void yk__rendezvous_move(yk__rendezvous *n)
{
    struct epoll_event event;
    for (int i = 0; i < 1024 && epoll_wait(n->epoll, &event, 1, 0) == 1; i++) {
        if (!event.data.ptr) {
            yk__rendezvous_accept(n);
            continue;
        }
        yk__agent_peer *p = event.data.ptr;
        yk__agent_peer_move(p, n->epoll);
        if (p == n->coordinator)
            yk__rendezvous_hear_coordinator(n);
        else
            hear_node(n, p);
    }
    double now = yk__now();
    if (now - n->beat >= n->s.node_timeout / 5) {
        n->beat = now;
        yk__rendezvous_send_all(n, AGENT_BEAT, NULL);
    }
    if (n->coordinator)
        check_silence(n, n->coordinator);
    for (int i = 0; i < n->slots; i++) {
        yk__agent_peer *p = n->peers[i];
        if (!p)
            continue;
        if (p->joined)
            check_silence(n, p);
        else if (!p->gone && now - p->came > unauthenticated_patience)
            p->gone = true;
        if (p->gone && !p->joined)
            yk__rendezvous_forget(n, i);
    }
}

/* ---- the link: called by yk__supervisor_run at every turn
 * ---------------------------------------------------------------- */
static void report_end(yk__rendezvous *n, yk__outcome *end, double at)
{
    if (!n->coordinator) {
        take_cause(n, end, at);
        return;
    }
    yk__wire wire = {0};
    yk__wire_put_u64(&wire, (uint64_t)((yk__now() - at) * 1e6));
    yk__agent_put_end(&wire, end);
    yk__agent_peer_send(n->coordinator, n->epoll, AGENT_CAUSE, &wire);
    yk__wire_clear(&wire);
    yk__outcome_clear(end);
}

static void report_cause(yk__rendezvous *n, const group *g)
{
    yk__outcome end;
    double ended = yk__now();
    if (n->cause_seen) {
        if (!g->interrupted || n->asked)
            return;
        /* The failure stays the end, but nothing is to be started again. */
        const group signalled = {.interrupted = g->interrupted};
        yk__outcome_of_group(&end, &signalled, n->s.name);
        n->asked = true;
        report_end(n, &end, ended);
        return;
    }
    yk__outcome_of_group(&end, g, n->s.name);
    if (g->start_error) {
        char text[300];
        snprintf(text, sizeof(text), "node %d (host %s) cannot start %d processes: %s", n->plan.node, n->identity.host,
                 g->count, strerror(g->start_error));
        yk__outcome_clear(&end);
        end = broken(n, text);
        end.code = g->start_exec ? EXIT_MAY_NOT_RUN : EXIT_FAILED;
    } else if (end.kind == YK__RUN_DONE) {
        return;
    } else if (g->failed) {
        ended = g->failed->ended;
    }
    n->cause_seen = true;
    n->asked = end.kind == YK__RUN_INTERRUPTED;
    report_end(n, &end, ended);
}

static void step_other(yk__rendezvous *n, const group *g, bool ended)
{
    if ((n->coordinator->gone || n->refusal[0]) && !n->link.done) {
        char text[700];
        if (n->refusal[0])
            snprintf(text, sizeof(text), "%s: %.500s", n->coordinator_name, n->refusal);
        else
            snprintf(text, sizeof(text), "%s is lost: %s", n->coordinator_name, n->coordinator->why);
        yk__outcome_clear(&n->end);
        n->end = broken(n, text);
        n->have_end = n->link.done = true;
        n->again = false;
        n->stop = SIGTERM;
        return;
    }
    if (n->stop && !n->stopping) { /* behind the cause, if there is one */
        yk__agent_peer_send(n->coordinator, n->epoll, AGENT_STOPPING, NULL);
        n->stopping = true;
    }
    if (!ended || n->reported)
        return;
    yk__wire wire = {0};
    yk__wire_put_u8(&wire, g->left > 0);
    yk__wire_put_u8(&wire, yk__group_saved(g));
    yk__agent_peer_send(n->coordinator, n->epoll, AGENT_ENDED, &wire);
    yk__wire_clear(&wire);
    n->reported = true;
}

static void step_node_0(yk__rendezvous *n, const group *g, bool ended)
{
    bool all = ended, all_heard = true;
    for (int i = 0; i < n->slots; i++) {
        yk__agent_peer *p = n->peers[i];
        if (!p || !p->joined)
            continue;
        if (p->gone && !p->reported)
            lose_node(n, p);
        all = all && (p->gone || p->ended);
        all_heard = all_heard && (p->gone || p->stopping);
    }
    if (n->have_end && all_heard && n->decide_at > yk__now())
        n->decide_at = yk__now();
    if (!all || (n->have_end && yk__now() < n->decide_at))
        return;
    n->any_left |= g->left > 0;
    n->any_unsaved |= n->any_lost || !yk__group_saved(g);
    if (n->end.kind != YK__RUN_BROKEN && !n->any_unsaved)
        yk__outcome_saved(&n->end);
    n->again = n->have_end && n->end.kind == YK__RUN_FAILED && !n->any_left && !n->any_lost && !n->any_asked &&
               n->restart < n->s.restarts;
    yk__wire wire = {0};
    yk__wire_put_u8(&wire, n->again);
    yk__agent_put_end(&wire, &n->end);
    yk__rendezvous_send_all(n, AGENT_VERDICT, &wire);
    yk__wire_clear(&wire);
    n->link.done = true;
}

int yk__rendezvous_step(group_link *link, const group *g, bool ended, double *again)
{
    yk__rendezvous *n = (yk__rendezvous *)link;
    yk__rendezvous_move(n);
    report_cause(n, g);
    if (n->coordinator)
        step_other(n, g, ended);
    else
        step_node_0(n, g, ended);
    double next = yk__now() + n->s.node_timeout / 5;
    if (n->have_end && !n->coordinator && n->decide_at > yk__now())
        next = n->decide_at;
    *again = next < *again ? next : *again;
    return n->stop;
}

group_link *yk__rendezvous_link(yk__rendezvous *n)
{
    return &n->link;
}

bool yk__rendezvous_ended(yk__rendezvous *n, const group *g, yk__outcome *end)
{
    if (!n->link.done) { /* a second signal: nobody is waited for */
        yk__outcome_of_group(end, g, n->s.name);
        return false;
    }
    *end = n->end;
    n->end = (yk__outcome){.kind = YK__RUN_DONE};
    return n->again;
}

void yk__rendezvous_give_up(yk__rendezvous *n, int code, const char *why)
{
    char text[700];
    snprintf(text, sizeof(text), "node %d (host %s): %s", n->plan.node, n->s.name, why);
    yk__outcome end = broken(n, text);
    end.code = code;
    report_end(n, &end, yk__now());
    if (n->coordinator)
        return;
    /* Node 0 stays until the others have ended, which wait for its verdict. */
    const group none = {0};
    for (;;) {
        double again = yk__now() + n->s.node_timeout;
        (void)yk__rendezvous_step(&n->link, &none, true, &again);
        if (n->link.done || yk__supervisor_pause(n->epoll, again))
            return;
    }
}
