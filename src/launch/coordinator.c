/*
 * coordinator.c - what the launchers of a job's nodes agree on: who takes part, which failure was the first, when an
 * attempt is over. Layer: launch.
 *
 * Node 0 decides, the others report and obey; one that loses node 0 stops its own processes. Invariants: everything
 * happens in the launcher's one thread, from yk__rendezvous_join and from the link's step, and never waits for a peer;
 * every node ends an attempt with the same end, node 0's verdict, unless it has lost node 0.
 *
 * Note [The first failure]: the death of one process makes others fail within a millisecond, on other nodes too. So
 * node 0 has all stopped at the first report of a failure, but decides when every node has confirmed the stop and
 * reported which of its own had ended by then or were about to, or some seconds later where one does not answer. A
 * process that had not seen its process group fail counts before those that had; of several of either kind the earliest
 * does, by when they saw that, or ended. The time comes as an age, because clocks differ between hosts. A launcher that
 * is lost counts before what failed in the same moment: its processes were killed with it, and that is what the others
 * saw.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/invariant.h"
#include "launch/agents.h"
#include "launch/exit_codes.h"
#include "launch/guard.h"
#include "launch/hang.h"
#include "launch/recall.h"
#include "launch/succession.h"
#include "net/store_session.h"

/* Seconds after the first report of a failure in which the report of an earlier one replaces it as the cause: see Note
 * [The first failure]. Longer than a launcher waits for a process that is ending (supervisor.c). */
static const double decide_after = 5.5;
/* Seconds beyond the grace within which a launcher has shown stacks, and gives up processes that SIGKILL does not end.
 */
static const double to_kill = 5;
/* Seconds between looks for members in this node's processes: until there are some the loss of a node starts all again,
 * and nothing wakes a launcher when they have come. */
static const double look_for_members = 0.1;

void yk__rendezvous_name_node(const yk__agent_node *p, char *text, size_t size)
{
    if (p->local == 0)
        snprintf(text, size, "node %d (host %s, pid %u)", p->number, p->facts.host, p->facts.pid);
    else if (p->local > 1)
        snprintf(text, size, "node %d (host %s, pid %u, ranks %d-%d)", p->number, p->facts.host, p->facts.pid, p->first,
                 p->first + p->local - 1);
    else
        snprintf(text, size, "node %d (host %s, pid %u, rank %d)", p->number, p->facts.host, p->facts.pid, p->first);
}

void yk__rendezvous_order(yk__rendezvous *n, yk__wire *order)
{
    char key[32];
    snprintf(key, sizeof(key), "orders/%" PRId64, ++n->orders);
    yk__agent_client_set(&n->client, key, order);
    yk__wire_clear(order);
}

/* ---- the end of an attempt -------------------------------------------------------------------------------------- */
/* Node 0 received a reason to end. Of several the first counts; see Note [The first failure]. `saw`: of a process that
 * saw its process group fail, at that time. */
void yk__rendezvous_record(yk__rendezvous *n, yk__outcome *end, double at, bool saw)
{
    double now = yk__now();
    n->any_asked |= end->kind == YK__RUN_INTERRUPTED;
    bool before = saw == n->end_saw ? at < n->end_at : n->end_saw;
    bool earlier = n->have_end && n->end.kind == YK__RUN_FAILED &&
                   (end->kind == YK__RUN_BROKEN || (end->kind == YK__RUN_MEMBERS && n->any_lost) ||
                    (end->kind == YK__RUN_FAILED && before));
    if (n->have_end && (!earlier || now > n->decide_at)) {
        yk__outcome_clear(end);
        return;
    }
    if (!n->have_end) {
        n->have_end = true;
        n->stopped_at = now;
        n->decide_at = now + decide_after;
        n->stop = end->kind == YK__RUN_INTERRUPTED ? end->signal : SIGTERM;
        yk__wire order = {0};
        yk__wire_put_u8(&order, ORDER_STOP);
        yk__wire_put_u32(&order, (uint32_t)n->stop);
        n->link.hung = end->kind == YK__RUN_HUNG;
        yk__wire_put_u8(&order, n->link.hung);
        yk__rendezvous_order(n, &order);
    }
    yk__outcome_clear(&n->end);
    n->end = *end;
    n->end_at = at;
    n->end_saw = saw;
    *end = (yk__outcome){.kind = YK__RUN_DONE};
}

static yk__outcome broken(const yk__rendezvous *n, const char *text)
{
    yk__outcome end = {.kind = YK__RUN_BROKEN, .code = EXIT_FAILED};
    snprintf(end.host, sizeof(end.host), "%.63s", n->s.name);
    snprintf(end.text, sizeof(end.text), "%s", text);
    return end;
}

void yk__rendezvous_record_broken(yk__rendezvous *n, const char *text)
{
    yk__outcome end = broken(n, text);
    yk__rendezvous_record(n, &end, yk__now(), false);
}

/* The node's launcher is gone: it ended, or stopped renewing its lease, and then may come back and get the order that
 * it counts as lost. */
static void lose_node(yk__rendezvous *n, yk__agent_node *p)
{
    char name[160], text[700];
    p->reported = true;
    yk__rendezvous_name_node(p, name, sizeof(name));
    bool gave_up = p->parted && n->stood > 0 && p->gone_at - n->stood_until < n->s.node_timeout;
    if (!gave_up)
        yk__waiting_failed(n, p);
    if (gave_up)
        snprintf(text, sizeof(text),
                 "node 0 (host %s, pid %u) stood still for %.3g s (stopped, or suspended?), and %s gave it up after "
                 "--node-timeout %g s",
                 n->identity.host, n->identity.pid, n->stood, name, n->s.node_timeout);
    else
        snprintf(text, sizeof(text), "%s is lost: %s", name, p->why);
    if (yk__survivors_may(n)) {
        yk__survivors_lost(n, p, text);
        return;
    }
    n->any_lost = true;
    if (yk__views_may(n)) {
        yk__views_lost(n, p, text);
        return;
    }
    if (n->have_end && !n->end.text[0])
        snprintf(n->end.text, sizeof(n->end.text), "%s", text);
    yk__outcome end = broken(n, text);
    snprintf(end.host, sizeof(end.host), "%s", p->facts.host);
    yk__rendezvous_record(n, &end, yk__now(), false);
}

/* ---- reports and orders ------------------------------------------------------------------------------------------ */
void yk__rendezvous_order_lost(yk__rendezvous *n, const yk__agent_node *p, const char *text)
{
    yk__wire order = {0};
    yk__wire_put_u8(&order, ORDER_LOST);
    yk__wire_put_u32(&order, (uint32_t)p->number);
    yk__agent_put_text(&order, text);
    yk__rendezvous_order(n, &order);
}

static void record_loss(yk__rendezvous *n, yk__agent_node *p, yk__reader *r)
{
    unsigned how = yk__read_u8(r);
    uint64_t term = yk__read_u64(r);
    if (n->succeeded > 0 && term > 0 && term != n->succession->voter.promised)
        return; /* it had come to this launcher before, when that would have kept the list in an earlier term */
    if (p->number < 0) {
        yk__rendezvous_forget(n, p->id);
        return;
    }
    p->gone = true;
    p->parted = how == YK__LEASE_ENDED;
    p->gone_at = yk__now();
    if (how != YK__LEASE_SILENT) {
        if (how != YK__LEASE_DAMAGED || !yk__agent_read_text(r, p->why, sizeof(p->why)))
            snprintf(p->why, sizeof(p->why), "its launcher ended without a word");
        return;
    }
    snprintf(p->why, sizeof(p->why), "nothing was heard of it for %.3g s (is the host up, is the network cut?)",
             n->s.node_timeout);
    char text[128];
    snprintf(text, sizeof(text), "nothing was heard of node %d for %.3g s", p->number, n->s.node_timeout);
    yk__rendezvous_order_lost(n, p, text);
}

/* A rank of the node has ended, or has come back, while the others go on. */
static void record_departure(yk__rendezvous *n, const yk__agent_node *p, yk__reader *r)
{
    yk__departure d;
    if (!yk__agent_read_departure(r, &d) || d.rank < p->first || d.rank >= p->first + p->local)
        return;
    snprintf(d.host, sizeof(d.host), "%s", p->facts.host);
    (void)yk__departure_keep(&n->departed, &n->departed_count, &d);
}

/* Node 0 handles a report of another launcher, or one that the store makes for it. */
static void handle_report(yk__rendezvous *n, yk__reader *r)
{
    unsigned kind = yk__read_u8(r);
    uint64_t id = yk__read_u64(r);
    yk__agent_node *p = yk__rendezvous_node(n, id);
    yk__outcome end;
    if (r->bad)
        return;
    if (kind == REPORT_JOIN) {
        yk__rendezvous_handle_join(n, id, r);
    } else if (kind == REPORT_RECALL) {
        yk__recall_hear(n, id, r);
    } else if (!p && kind == REPORT_LOST) {
        yk__waiting_gone(n, id);
    } else if (!p || p->gone) { /* it was refused, waits, or is lost */
        return;
    } else if (kind == REPORT_CAUSE) {
        double ago = (double)yk__read_u64(r) * 1e-6;
        bool saw = yk__read_u8(r) != 0, whole = yk__read_u8(r) != 0;
        if (!yk__agent_read_end(r, &end))
            return;
        bool leaves = !whole && end.kind == YK__RUN_INTERRUPTED && end.signal == SIGTERM && yk__views_may(n);
        if (leaves && !yk__survivors_leave(n, p, end.signal))
            yk__views_leaves(n, p, end.signal);
        if (end.kind == YK__RUN_DONE || end.kind == YK__RUN_SAVED || leaves) /* no reason to stop anybody */
            yk__outcome_clear(&end);
        else
            yk__rendezvous_record(n, &end, yk__now() - ago, saw);
    } else if (kind == REPORT_ENDED) {
        p->ended = true;
        n->any_left |= yk__read_u8(r) != 0 && !p->departs;
        n->any_unsaved |= yk__read_u8(r) == 0 && !p->departs;
        p->finished = yk__read_u8(r) != 0;
        p->done_view = (int64_t)yk__read_u64(r);
        p->lost_view = (int64_t)yk__read_u64(r);
    } else if (kind == REPORT_STOPPING) {
        p->stopping = true;
    } else if (kind == REPORT_DEPARTED) {
        record_departure(n, p, r);
    } else if (kind == REPORT_IN_VAIN) {
        char why[700];
        if (yk__agent_read_text(r, why, sizeof(why)))
            yk__survivors_in_vain(n, p, why);
    } else if (kind == REPORT_VIEW) {
        int64_t view = (int64_t)yk__read_u64(r);
        p->view = !r->bad && view > p->view ? view : p->view;
    } else if (kind == REPORT_CAME) {
        p->came = true;
    } else if (kind == REPORT_TRACE) {
        yk__traces_handle_report(n, p, r);
    } else if (kind == REPORT_LIVE) {
        yk__live_traces_handle_report(n, p, r);
    } else if (kind == REPORT_LOST) {
        record_loss(n, p, r);
    }
}

/* Node 0 says what its launcher cannot say: it is not followed any further. */
static void refuse_coordinator(yk__rendezvous *n, const char *what)
{
    if (!n->refusal[0])
        snprintf(n->refusal, sizeof(n->refusal), "it sent a malformed %s", what);
}

static void handle_plan(yk__rendezvous *n, yk__reader *r)
{
    unsigned kind = yk__read_u8(r);
    yk__agent_plan plan;
    char *table = NULL;
    if ((kind == PLAN_WAITS || kind == PLAN_OVER) && yk__waiting_told(n, kind == PLAN_OVER, r))
        return;
    if (kind == PLAN_ELSEWHERE && yk__waiting_sent_on(n, r))
        return;
    if (kind == PLAN_REFUSED && yk__agent_read_text(r, n->refusal, sizeof(n->refusal)) && n->refusal[0])
        return;
    if (kind == PLAN_GIVEN && yk__agent_read_plan(r, &plan, &table) && yk__rendezvous_plan_fits(n, &plan)) {
        free(n->table);
        n->table = table;
        n->plan = plan;
        n->planned = true;
        yk__agent_client_follow_after(&n->client, "orders", n->plan.orders);
        return;
    }
    free(table);
    refuse_coordinator(n, "plan");
}

/* The part of some node in the next attempt; if it is this one's it is taken. */
static void handle_view(yk__rendezvous *n, yk__reader *r)
{
    yk__agent_plan plan;
    char *table = NULL;
    if (yk__read_u64(r) != n->id)
        return;
    if (!yk__views_may(n) || !yk__agent_read_plan(r, &plan, &table) || !yk__rendezvous_plan_fits(n, &plan)) {
        free(table);
        refuse_coordinator(n, "list of nodes");
        return;
    }
    free(n->table);
    n->table = table;
    n->plan = plan;
    n->planned = true;
    n->stop = 0;
    n->link.hung = false;
}

/* Nodes have come or gone, and the processes of the others go on. */
static void handle_members(yk__rendezvous *n, yk__reader *r)
{
    char why[1000];
    unsigned change = yk__read_u8(r); /* yk__change, and 1 where the next step is awaited */
    bool lost = change & 1;
    uint32_t nodes = yk__read_u32(r), ranks = yk__read_u32(r);
    if (!yk__agent_read_text(r, why, sizeof(why)) || nodes > INT32_MAX || ranks > INT32_MAX ||
        change / 2 >= YK__CHANGE_KINDS) {
        refuse_coordinator(n, "list of nodes");
        return;
    }
    n->link.changed = lost ? yk__now() : n->link.changed;
    yk__survivors_say(n, (yk__change)(change / 2), lost, why, (int)nodes, (int)ranks);
}

static void handle_order(yk__rendezvous *n, yk__reader *r)
{
    unsigned kind = yk__read_u8(r);
    if (kind == ORDER_STOP) {
        uint32_t stop = yk__read_u32(r);
        bool hung = yk__read_u8(r) != 0;
        if (!yk__read_finished(r) || stop < 1 || stop > AGENT_MOST_SIGNAL) {
            refuse_coordinator(n, "order to stop");
            return;
        }
        n->stop = (int)stop;
        n->stopped_at = yk__now();
        n->link.hung = hung;
    } else if (kind == ORDER_RESULT && !n->reported) { /* all have said before that their processes ended */
        refuse_coordinator(n, "result: processes of this node run");
    } else if (kind == ORDER_RESULT && !n->link.done) {
        yk__outcome_clear(&n->end);
        n->again = yk__read_u8(r) != 0;
        n->link.done = n->have_end = yk__agent_read_end(r, &n->end);
        snprintf(n->change, sizeof(n->change), "%s", n->end.kind == YK__RUN_MEMBERS ? n->end.text : "");
        if (!n->link.done)
            refuse_coordinator(n, "result");
    } else if (kind == ORDER_ATTEMPT) {
        uint32_t port = yk__read_u32(r);
        int64_t restart = (int64_t)yk__read_u64(r);
        if (!yk__read_finished(r) || port < 1 || port > 65535 || restart < 1) {
            refuse_coordinator(n, "order to start again");
            return;
        }
        n->plan.port = (int)port;
        n->plan.restart = restart;
        n->plan.attempt++; /* the ranks of all nodes meet under its number */
        n->planned = true;
        n->stop = 0; /* a stop that follows is one of this attempt, begun or not */
        n->link.hung = false;
    } else if (kind == ORDER_VIEW) {
        handle_view(n, r);
    } else if (kind == ORDER_TRACE || kind == ORDER_TRACE_END) {
        yk__traces_handle_order(n, kind, r);
    } else if (kind == ORDER_LIVE) {
        yk__live_traces_handle_order(n, r);
    } else if (kind == ORDER_MEMBERS) {
        handle_members(n, r);
    } else if (kind == ORDER_KEEPER) {
        yk__succession_follow(n, yk__read_u64(r));
    } else if (kind == ORDER_LEFT) {
        if (yk__read_u64(r) != n->id || !n->reported || n->link.done)
            return;
        yk__outcome_clear(&n->end);
        n->end = (yk__outcome){.kind = YK__RUN_MEMBERS, .code = EXIT_FAILED};
        n->link.done = n->have_end = true;
    } else if (kind == ORDER_LOST) {
        if ((int)yk__read_u32(r) == n->plan.node &&
            (!yk__agent_read_text(r, n->refusal, sizeof(n->refusal)) || !n->refusal[0]))
            snprintf(n->refusal, sizeof(n->refusal), "this node was given up");
    } else if (kind != ORDER_RESULT) {
        refuse_coordinator(n, "order");
    }
}

/* ---- moving bytes ------------------------------------------------------------------------------------------------ */
/* Sends what there is, and has the epoll descriptor report when the rest can be sent. */
static void flush(yk__rendezvous *n)
{
    yk__agent_client *c = &n->client;
    if (c->gone)
        return;
    yk__channel_flush(&c->link.channel, c->link.fd);
    bool sending = yk__channel_unsent(&c->link.channel);
    if (sending == n->sending)
        return;
    struct epoll_event event = {.events = EPOLLIN | (sending ? EPOLLOUT : 0)};
    epoll_ctl(n->epoll, EPOLL_CTL_MOD, c->link.fd, &event);
    n->sending = sending;
}

void yk__rendezvous_move(yk__rendezvous *n)
{
    yk__agent_client *c = &n->client;
    yk__reader value;
    if (n->reg)
        yk__register_drain(n->reg);
    yk__recall_step(n);
    yk__agent_client_move(c);
    while (yk__agent_client_next(c, &value)) {
        if (n->server) {
            handle_report(n, &value);
            yk__agent_client_delete(c, "reports", c->next - 1); /* the next one is awaited already */
        } else if (c->list[0]) {
            handle_order(n, &value);
        } else {
            handle_plan(n, &value);
        }
    }
    double now = yk__now(), still = now - n->moved;
    if (n->moved > 0 && still > n->s.node_timeout / 2) {
        n->stood = still;
        n->stood_until = now;
        n->client.heard += still; /* node 0 may have stood still with this one */
    }
    n->moved = now;
    if (n->server) {
        yk__rendezvous_read_refusals(n);
    } else if (!n->closing && !c->gone) {
        /* A store that has successors is renewed as often as it beats: the fence counts from the last renewal. */
        bool succeeds = n->succession && n->succession->on;
        if (now - n->beat >= n->s.node_timeout / (succeeds ? 15 : 5)) {
            n->beat = now;
            yk__agent_client_renew(c);
            yk__survivors_renewed(n);
        }
        yk__survivors_fence(n);
        if (now - c->heard > n->s.node_timeout) {
            char why[128];
            snprintf(why, sizeof(why), "nothing was heard of it for %.3g s (is the host up, is the network cut?)",
                     n->s.node_timeout);
            yk__agent_client_lose(c, why);
        }
    } else if (!n->closing && yk__succession_pending(n)) {
        yk__survivors_fence(n);
    }
    flush(n);
}

/* ---- the link: called by yk__supervisor_run at every turn -------------------------------------------------------- */
static void report_end(yk__rendezvous *n, yk__outcome *end, double at, bool saw)
{
    if (n->server) {
        yk__rendezvous_record(n, end, at, saw);
        return;
    }
    yk__wire report = yk__agent_report(REPORT_CAUSE, n->id);
    yk__wire_put_u64(&report, (uint64_t)((yk__now() - at) * 1e6));
    yk__wire_put_u8(&report, saw);
    yk__wire_put_u8(&report, n->end_all);
    yk__agent_put_end(&report, end);
    yk__agent_client_push(&n->client, "reports", &report);
    yk__wire_clear(&report);
    yk__outcome_clear(end);
}

/* This node came to join others, and failed before a process of it was a member, which is no reason for them to end. */
static void report_in_vain(yk__rendezvous *n, const char *why)
{
    yk__wire report = yk__agent_report(REPORT_IN_VAIN, n->id);
    yk__agent_put_text(&report, why);
    yk__agent_client_push(&n->client, "reports", &report);
    yk__wire_clear(&report);
}

static void report_cause(yk__rendezvous *n, const group *g)
{
    yk__outcome end;
    double ended = yk__now(), saw = 0;
    if (n->cause_seen) {
        if (!g->interrupted || n->asked)
            return;
        /* The failure stays the end, but nothing is to be started again. */
        const group signalled = {.interrupted = g->interrupted};
        yk__outcome_of_group(&end, &signalled, n->s.name);
        n->asked = true;
        report_end(n, &end, ended, false);
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
        saw = yk__supervisor_saw_failure(g);
        ended = saw > 0 ? saw : g->failed->ended;
    }
    const yk__run_requests *page = yk__pages_requests(yk__hang_pages(g->hang));
    n->cause_seen = true;
    if (n->plan.joins && yk__alone_view(g) == 0 && end.kind != YK__RUN_INTERRUPTED) {
        char why[YK__OUTCOME_TEXT];
        yk__outcome_describe(&end, n->s.name, why);
        report_in_vain(n, why);
        yk__outcome_clear(&end);
        return;
    }
    n->asked = end.kind == YK__RUN_INTERRUPTED;
    n->end_all = n->asked && page && atomic_load(&page->end_all);
    report_end(n, &end, ended, saw > 0);
}

/* Tells a store that may not have heard it which processes of this node are gone; also of those that are to be started
 * again in a moment. */
static void retell_gone(yk__rendezvous *n, const group *g)
{
    for (int i = 0; i < g->count; i++) {
        const worker *w = &g->workers[i];
        bool ended = w->lost || w->again_at > 0;
        for (int k = 0; k < w->incarnation + ended; k++)
            yk__rendezvous_gone(n, w->rank, k);
    }
}

/* Node 0 lists the ranks of all nodes that ended alone. */
static void report_departures(yk__rendezvous *n, const group *g)
{
    if (n->retell)
        retell_gone(n, g);
    for (int i = 0; i < g->count; i++) {
        worker *w = &g->workers[i];
        bool again = n->retell && (w->lost || w->incarnation > 0);
        if (!w->untold && !again)
            continue;
        w->untold = false;
        const yk__departure d = yk__departure_of(w, n->s.name);
        yk__wire report = yk__agent_report(REPORT_DEPARTED, n->id);
        yk__agent_put_departure(&report, &d);
        yk__agent_client_push(&n->client, "reports", &report);
        yk__wire_clear(&report);
    }
    n->retell = false;
}

/* Node 0 may have no process itself by which it would know. */
static void report_view(yk__rendezvous *n, const group *g)
{
    int64_t view = n->link.lives ? yk__alone_view(g) : 0;
    if (view <= n->view)
        return;
    n->view = view;
    yk__wire report = yk__agent_report(REPORT_VIEW, n->id);
    yk__wire_put_u64(&report, (uint64_t)view);
    yk__agent_client_push(&n->client, "reports", &report);
    yk__wire_clear(&report);
}

static void report_ended(yk__rendezvous *n, const group *g)
{
    int64_t done, lost;
    yk__wire report = yk__agent_report(REPORT_ENDED, n->id);
    yk__wire_put_u8(&report, g->left > 0);
    yk__wire_put_u8(&report, yk__group_saved(g));
    yk__wire_put_u8(&report, yk__group_finished(g));
    yk__alone_ends(g, &done, &lost);
    yk__wire_put_u64(&report, (uint64_t)done);
    yk__wire_put_u64(&report, (uint64_t)lost);
    yk__agent_client_push(&n->client, "reports", &report);
    yk__wire_clear(&report);
    n->reported = true;
}

static void step_other(yk__rendezvous *n, const group *g, bool ended)
{
    if (yk__succession_pending(n) && (n->client.gone || !yk__succession_feeds(n)))
        return; /* what there is to say is said to the next keeper, when it is one */
    if ((n->client.gone || n->refusal[0]) && !n->link.done) {
        char text[700];
        if (n->refusal[0])
            snprintf(text, sizeof(text), "%s: %.500s", n->coordinator_name, n->refusal);
        else if (n->link.kill)
            snprintf(text, sizeof(text),
                     "%s cannot be reached, %.200s: this side of the cut ends, before the nodes that reach it go on "
                     "without this one (start the same command again, and it joins them)",
                     n->coordinator_name, n->client.why);
        else
            snprintf(text, sizeof(text), "%s is lost: %.400s%s", n->coordinator_name, n->client.why,
                     yk__views_may(n) ? " (it keeps the list of nodes, without which the others cannot go on)" : "");
        yk__outcome_clear(&n->end);
        n->end = broken(n, text);
        n->have_end = n->link.done = true;
        n->again = false;
        n->stop = SIGTERM;
        return;
    }
    report_departures(n, g);
    report_view(n, g);
    if (n->stop && !n->stopping && yk__supervisor_knows_first(g)) { /* behind the cause, if there is one */
        yk__wire report = yk__agent_report(REPORT_STOPPING, n->id);
        yk__agent_client_push(&n->client, "reports", &report);
        yk__wire_clear(&report);
        n->stopping = true;
    }
    if (ended && !n->reported)
        report_ended(n, g);
}

/* A launcher whose processes were to be stopped, and to be killed after its grace, says that they have ended. One that
 * lives and does not say it is given up. */
static void give_up_late(yk__rendezvous *n, yk__agent_node *p)
{
    double most = p->facts.grace + to_kill + n->s.node_timeout;
    if (p->gone || p->ended || !n->have_end || yk__now() < n->stopped_at + most)
        return;
    p->gone = true;
    snprintf(p->why, sizeof(p->why),
             "it did not say that its processes ended within %.3g s of being asked to stop them", most);
    yk__rendezvous_order_lost(n, p, p->why);
}

/* The launcher that keeps the store reaches no majority of the others, which go on without its node. */
static void end_cut_off(yk__rendezvous *n)
{
    yk__outcome_clear(&n->end);
    n->end =
        broken(n, n->reg ? "this launcher keeps the list of nodes, not all of the others have answered it, and etcd "
                           "has not taken the list without those: this side of the cut ends, before nodes that "
                           "reach etcd go on without this one"
                         : "this launcher keeps the list of nodes, and too few of the others have answered it: "
                           "this side of the cut ends, before the nodes that reach each other go on without this "
                           "one");
    n->have_end = n->link.done = true;
    n->again = false;
    n->stop = SIGTERM;
}

static void step_node_0(yk__rendezvous *n, const group *g, bool ended)
{
    bool all = ended, all_heard = true;
    if (n->client.gone && !n->have_end) {
        char text[700];
        snprintf(text, sizeof(text), "the launchers' store at %.200s: %.400s", n->where, n->client.why);
        yk__outcome end = broken(n, text);
        yk__rendezvous_record(n, &end, yk__now(), false);
    }
    if (yk__succession_cut(n) && !n->link.done) {
        end_cut_off(n);
        return;
    }
    if (n->retell) /* the store was another launcher's when they ended */
        retell_gone(n, g);
    n->retell = false;
    yk__survivors_step(n);
    for (int i = 0; i < n->joined; i++) {
        yk__agent_node *p = n->nodes[i];
        if (p->number < 0) /* it waits for the next attempt */
            continue;
        give_up_late(n, p);
        if (p->gone && !p->reported)
            lose_node(n, p);
        all = all && (p->gone || p->ended || n->client.gone);
        all_heard = all_heard && (p->gone || p->stopping || n->client.gone);
    }
    if (n->have_end && all_heard && n->decide_at > yk__now() && yk__supervisor_knows_first(g))
        n->decide_at = yk__now();
    if (all)
        yk__survivors_end(n, g);
    if (!all || (n->have_end && yk__now() < n->decide_at))
        return;
    n->any_left |= g->left > 0;
    n->any_unsaved |= n->any_lost || !yk__group_saved(g);
    n->changing = n->have_end && n->end.kind == YK__RUN_MEMBERS && !n->any_left && !n->any_asked;
    if (n->changing && yk__views_finished(n, g)) {
        n->changing = false;
        yk__outcome_clear(&n->end);
    }
    if (n->end.kind != YK__RUN_BROKEN && n->end.kind != YK__RUN_HUNG && n->end.kind != YK__RUN_MEMBERS &&
        !n->any_unsaved)
        yk__outcome_saved(&n->end);
    n->again = n->changing || (n->have_end && yk__outcome_restarts(&n->end) && !n->any_left && !n->any_asked &&
                               (!n->any_lost || yk__views_may(n)) && n->restart < n->s.restarts);
    snprintf(n->change, sizeof(n->change), "%s", n->changing ? n->end.text : "");
    if (!n->again)
        yk__views_end(n);
    yk__wire order = {0};
    yk__wire_put_u8(&order, ORDER_RESULT);
    yk__wire_put_u8(&order, n->again);
    yk__agent_put_end(&order, &n->end);
    yk__rendezvous_order(n, &order);
    n->link.done = true;
}

int yk__rendezvous_step(group_link *link, const group *g, bool ended, double *again)
{
    yk__rendezvous *n = (yk__rendezvous *)link;
    n->group = g;
    if (!link->lives && link->may_live && yk__survivors_known(n, g)) {
        link->lives = true;
        yk__survivors_begin(n);
    }
    yk__rendezvous_move(n);
    double look = yk__now() + n->s.node_timeout;
    yk__succession_step(n, &look);
    if (n->reg)
        yk__electing_say(n);
    report_cause(n, g);
    if (n->server)
        step_node_0(n, g, ended);
    else
        step_other(n, g, ended);
    if (n->server && n->waiting_count > 0 && !link->done) {
        yk__survivors_step(n); /* those lost in this turn leave their places */
        yk__waiting_step(n, &look);
    }
    double next = yk__now() + n->s.node_timeout / 5;
    next = look < next ? look : next;
    yk__live_traces_step(n, g, &next);
    flush(n);
    YK__ASSERT_SOUND(yk__rendezvous_check(n));
    if (n->have_end && n->server && n->decide_at > yk__now())
        next = n->decide_at;
    if (n->held_until > 0 && n->held_until < next)
        next = n->held_until;
    if (link->may_live && !link->lives && g->count && !ended && yk__now() + look_for_members < next)
        next = yk__now() + look_for_members;
    n->group = NULL;
    *again = next < *again ? next : *again;
    return n->stop;
}

const yk__departure *yk__rendezvous_departed(const yk__rendezvous *n, int *count)
{
    *count = n ? n->departed_count : 0;
    return n ? n->departed : NULL;
}

group_link *yk__rendezvous_link(yk__rendezvous *n)
{
    return &n->link;
}

bool yk__rendezvous_ended(yk__rendezvous *n, const group *g, yk__outcome *end)
{
    yk__live_traces_end(n);
    if (!n->link.done) { /* a second signal: nobody is waited for */
        yk__outcome_of_group(end, g, n->s.name);
        return false;
    }
    *end = n->end;
    n->end = (yk__outcome){.kind = YK__RUN_DONE};
    if (!n->server && end->kind == YK__RUN_MEMBERS &&
        (g->interrupted || g->failed || g->stuck[0] || g->start_error)) { /* this node leaves, or has come in vain */
        yk__outcome_clear(end);
        yk__outcome_of_group(end, g, n->s.name);
        if (yk__group_saved(g))
            yk__outcome_saved(end);
        return false;
    }
    return n->again;
}

void yk__rendezvous_give_up(yk__rendezvous *n, int code, const char *why)
{
    char text[700];
    snprintf(text, sizeof(text), "node %d (host %s): %s", n->plan.node, n->s.name, why);
    if (n->plan.joins) { /* the others go on */
        report_in_vain(n, text);
        report_ended(n, &(group){0});
        return;
    }
    yk__outcome end = broken(n, text);
    end.code = code;
    report_end(n, &end, yk__now(), false);
    if (!n->server)
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
