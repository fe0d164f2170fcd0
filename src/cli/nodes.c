/*
 * nodes.c - what the launchers of a job's nodes agree on: who takes part, which failure was the first, when an attempt
 * is over. Layer: cli.
 *
 * Node 0 decides, the others report and obey; one that loses node 0 stops its own processes. Invariants: everything
 * happens in the launcher's one thread, from nodes_join and from the link's step, and never waits for a peer; every
 * node ends an attempt with the same end, node 0's verdict, unless it has lost node 0.
 *
 * Note [The first failure]: the death of one process makes others fail within a millisecond, on other nodes too. So
 * node 0 has all stopped at the first word of a failure, but decides a little later, by when each process ended; the
 * time comes as an age, because clocks differ between hosts. A launcher that is lost counts before what failed in the
 * same moment: its processes were killed with it, and that is what the others saw.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "cli/nodes_inside.h"
#include "cli/options.h"
#include "cli/program_file.h"

static const double stranger_patience = 10, decide_after = 0.15;

static void name_node(const nodes *n, const node_peer *p, char *text, size_t size)
{
    if (p == n->hub)
        snprintf(text, size, "%s", n->hub_name);
    else if (p->local > 1)
        snprintf(text, size, "node %d (host %s, pid %u, ranks %d-%d)", p->node, p->who.host, p->who.pid, p->first,
                 p->first + p->local - 1);
    else
        snprintf(text, size, "node %d (host %s, pid %u, rank %d)", p->node, p->who.host, p->who.pid, p->first);
}

void nodes_send_all(nodes *n, int type, const yk__wire *payload)
{
    for (int i = 0; i < n->slots; i++) {
        if (n->peers[i] && n->peers[i]->joined)
            node_peer_send(n->peers[i], n->epoll, type, payload);
    }
    node_peer_send(n->hub, n->epoll, type, payload);
}

/* ---- the end of an attempt -------------------------------------------------------------------------------------- */
/* Node 0 hears of a reason to end. Of several the first counts; see Note [The first failure]. */
static void take_cause(nodes *n, run_end *end, double at)
{
    double now = yk__now();
    n->any_asked |= end->kind == RUN_INTERRUPTED;
    bool earlier = n->have_end && n->end.kind == RUN_FAILED &&
                   (end->kind == RUN_BROKEN || (end->kind == RUN_FAILED && at < n->end_at));
    if (n->have_end && (!earlier || now > n->decide_at)) {
        run_end_clear(end);
        return;
    }
    if (!n->have_end) {
        n->have_end = true;
        n->decide_at = now + decide_after;
        n->stop = end->kind == RUN_INTERRUPTED ? end->signal : SIGTERM;
        yk__wire wire = {0};
        yk__wire_put_u32(&wire, (uint32_t)n->stop);
        nodes_send_all(n, NODE_STOP, &wire);
        yk__wire_clear(&wire);
    }
    run_end_clear(&n->end);
    n->end = *end;
    n->end_at = at;
    *end = (run_end){.kind = RUN_DONE};
}

static run_end broken(const nodes *n, const char *text)
{
    run_end end = {.kind = RUN_BROKEN, .code = EXIT_FAILED};
    snprintf(end.host, sizeof(end.host), "%.63s", n->s.name);
    snprintf(end.text, sizeof(end.text), "%s", text);
    return end;
}

static void lose_node(nodes *n, node_peer *p)
{
    char name[160], text[700];
    p->told = true;
    name_node(n, p, name, sizeof(name));
    snprintf(text, sizeof(text), "%s is lost: %s", name, p->why);
    n->any_lost = true;
    if (n->have_end && !n->end.text[0])
        snprintf(n->end.text, sizeof(n->end.text), "%s", text);
    run_end end = broken(n, text);
    snprintf(end.host, sizeof(end.host), "%s", p->who.host);
    take_cause(n, &end, yk__now());
}

/* The others' messages to node 0 while an attempt runs. */
static void hear_node(nodes *n, node_peer *p)
{
    yk__reader r;
    for (int type; (type = node_peer_next(p, &r));) {
        run_end end;
        if (type == NODE_CAUSE && p->joined) {
            double ago = (double)yk__read_u64(&r) * 1e-6;
            if (node_read_end(&r, &end))
                take_cause(n, &end, yk__now() - ago);
        } else if (type == NODE_ENDED && p->joined) {
            p->ended = true;
            n->any_left |= yk__read_u8(&r) != 0;
            n->any_unsaved |= yk__read_u8(&r) == 0;
        } else if (type == NODE_JOIN) {
            nodes_take_join(n, p, &r);
        }
    }
}

void nodes_hear_hub(nodes *n)
{
    yk__reader r;
    node_peer *p = n->hub;
    for (int type; (type = node_peer_next(p, &r));) {
        if (type == NODE_REFUSED && !node_read_text(&r, n->refusal, sizeof(n->refusal)))
            snprintf(n->refusal, sizeof(n->refusal), "refused without a reason");
        else if (type == NODE_PLAN && node_read_plan(&r, &n->plan))
            n->planned = true, n->stop = 0; /* a stop that follows is one of this attempt, begun or not */
        else if (type == NODE_STOP)
            n->stop = (int)(yk__read_u32(&r) & 63);
        else if (type == NODE_VERDICT && !n->link.done) {
            n->again = yk__read_u8(&r) != 0;
            n->link.done = n->have_end = node_read_end(&r, &n->end);
        }
    }
}

/* ---- moving bytes ----------------------------------------------------------------------------------------------- */
static void check_silence(nodes *n, node_peer *p)
{
    if (p->gone || yk__now() - p->heard <= n->s.node_timeout)
        return;
    if (p != n->hub) {
        char text[128];
        snprintf(text, sizeof(text), "nothing was heard of node %d for %.3g s", p->node, n->s.node_timeout);
        nodes_refuse(n, p, text);
    }
    char why[128];
    snprintf(why, sizeof(why), "nothing was heard of it for %.3g s (is the host up, is the network cut?)",
             n->s.node_timeout);
    node_peer_lose(p, why);
}

void nodes_move(nodes *n)
{
    struct epoll_event event;
    for (int i = 0; i < 1024 && epoll_wait(n->epoll, &event, 1, 0) == 1; i++) {
        if (!event.data.ptr) {
            nodes_accept(n);
            continue;
        }
        node_peer *p = event.data.ptr;
        node_peer_move(p, n->epoll);
        if (p == n->hub)
            nodes_hear_hub(n);
        else
            hear_node(n, p);
    }
    double now = yk__now();
    if (now - n->beat >= n->s.node_timeout / 5) {
        n->beat = now;
        nodes_send_all(n, NODE_BEAT, NULL);
    }
    if (n->hub)
        check_silence(n, n->hub);
    for (int i = 0; i < n->slots; i++) {
        node_peer *p = n->peers[i];
        if (!p)
            continue;
        if (p->joined)
            check_silence(n, p);
        else if (!p->gone && now - p->came > stranger_patience)
            p->gone = true;
        if (p->gone && !p->joined)
            nodes_forget(n, i);
    }
}

/* ---- the link: called by group_run at every turn ---------------------------------------------------------------- */
static void tell_cause(nodes *n, run_end *end, double at)
{
    if (!n->hub) {
        take_cause(n, end, at);
        return;
    }
    yk__wire wire = {0};
    yk__wire_put_u64(&wire, (uint64_t)((yk__now() - at) * 1e6));
    node_put_end(&wire, end);
    node_peer_send(n->hub, n->epoll, NODE_CAUSE, &wire);
    yk__wire_clear(&wire);
    run_end_clear(end);
}

static void report_cause(nodes *n, const group *g)
{
    run_end end;
    double ended = yk__now();
    if (n->cause_seen) {
        if (!g->interrupted || n->asked)
            return;
        /* The failure stays the end, but nothing is to be started again. */
        const group signalled = {.interrupted = g->interrupted};
        run_end_of_group(&end, &signalled, n->s.name);
        n->asked = true;
        tell_cause(n, &end, ended);
        return;
    }
    run_end_of_group(&end, g, n->s.name);
    if (g->start_error) {
        char text[300];
        snprintf(text, sizeof(text), "node %d (host %s) cannot start %d processes: %s", n->plan.node, n->identity.host,
                 g->count, strerror(g->start_error));
        run_end_clear(&end);
        end = broken(n, text);
        end.code = g->start_exec ? EXIT_MAY_NOT_RUN : EXIT_FAILED;
    } else if (end.kind == RUN_DONE) {
        return;
    } else if (g->failed) {
        ended = g->failed->ended;
    }
    n->cause_seen = true;
    n->asked = end.kind == RUN_INTERRUPTED;
    tell_cause(n, &end, ended);
}

static void step_other(nodes *n, const group *g, bool ended)
{
    if ((n->hub->gone || n->refusal[0]) && !n->link.done) {
        char text[700];
        if (n->refusal[0])
            snprintf(text, sizeof(text), "%s: %.500s", n->hub_name, n->refusal);
        else
            snprintf(text, sizeof(text), "%s is lost: %s", n->hub_name, n->hub->why);
        run_end_clear(&n->end);
        n->end = broken(n, text);
        n->have_end = n->link.done = true;
        n->again = false;
        n->stop = SIGTERM;
        return;
    }
    if (!ended || n->told)
        return;
    yk__wire wire = {0};
    yk__wire_put_u8(&wire, g->left > 0);
    yk__wire_put_u8(&wire, run_saved(g));
    node_peer_send(n->hub, n->epoll, NODE_ENDED, &wire);
    yk__wire_clear(&wire);
    n->told = true;
}

static void step_node_0(nodes *n, const group *g, bool ended)
{
    bool all = ended;
    for (int i = 0; i < n->slots; i++) {
        node_peer *p = n->peers[i];
        if (!p || !p->joined)
            continue;
        if (p->gone && !p->told)
            lose_node(n, p);
        all = all && (p->gone || p->ended);
    }
    if (!all || (n->have_end && yk__now() < n->decide_at))
        return;
    n->any_left |= g->left > 0;
    n->any_unsaved |= n->any_lost || !run_saved(g);
    if (n->end.kind != RUN_BROKEN && !n->any_unsaved)
        run_end_saved(&n->end);
    n->again = n->have_end && n->end.kind == RUN_FAILED && !n->any_left && !n->any_lost && !n->any_asked &&
               n->restart < n->s.restarts;
    yk__wire wire = {0};
    yk__wire_put_u8(&wire, n->again);
    node_put_end(&wire, &n->end);
    nodes_send_all(n, NODE_VERDICT, &wire);
    yk__wire_clear(&wire);
    n->link.done = true;
}

int nodes_step(group_link *link, const group *g, bool ended, double *again)
{
    nodes *n = (nodes *)link;
    nodes_move(n);
    report_cause(n, g);
    if (n->hub)
        step_other(n, g, ended);
    else
        step_node_0(n, g, ended);
    double next = yk__now() + n->s.node_timeout / 5;
    if (n->have_end && !n->hub && n->decide_at > yk__now())
        next = n->decide_at;
    *again = next < *again ? next : *again;
    return n->stop;
}

group_link *nodes_link(nodes *n)
{
    return &n->link;
}

bool nodes_ended(nodes *n, const group *g, run_end *end)
{
    if (!n->link.done) { /* a second signal: nobody is waited for */
        run_end_of_group(end, g, n->s.name);
        return false;
    }
    *end = n->end;
    n->end = (run_end){.kind = RUN_DONE};
    return n->again;
}

void nodes_give_up(nodes *n, int code, const char *why)
{
    char text[700];
    snprintf(text, sizeof(text), "node %d (host %s): %s", n->plan.node, n->s.name, why);
    run_end end = broken(n, text);
    end.code = code;
    tell_cause(n, &end, yk__now());
    if (n->hub)
        return;
    /* Node 0 stays until the others have ended, which wait for its verdict. */
    const group none = {0};
    for (;;) {
        double again = yk__now() + n->s.node_timeout;
        (void)nodes_step(&n->link, &none, true, &again);
        if (n->link.done || group_pause(n->epoll, again))
            return;
    }
}
