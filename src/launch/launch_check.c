/*
 * launch_check.c - what must hold of a group of processes, and of what its launcher knows of the other nodes.
 * Layer: launch.
 */
#include <inttypes.h>

#include "base/invariant.h"
#include "launch/agents.h"

static const char *check_worker(const group *g, const worker *w)
{
    if (w->running && !w->pid)
        return yk__broken("rank %d runs, and was never started", w->rank);
    if (w->killed && !w->asked)
        return yk__broken("rank %d, pid %d, got SIGKILL, and is not marked as asked to stop", w->rank, (int)w->pid);
    if (w->pid && !w->running && w->ended < w->began)
        return yk__broken("rank %d, pid %d, ended at %.6f, before it began, at %.6f", w->rank, (int)w->pid, w->ended,
                          w->began);
    if (!g->function && w > g->workers && w->rank <= w[-1].rank)
        return yk__broken("rank %d stands behind rank %d", w->rank, w[-1].rank);
    return NULL;
}

const char *yk__group_check(const group *g)
{
    const char *wrong = NULL;
    for (int i = 0; i < g->count && !wrong; i++)
        wrong = check_worker(g, &g->workers[i]);
    if (!wrong && g->failed && (g->failed < g->workers || g->failed >= g->workers + g->count || !g->failed->pid))
        wrong = yk__broken("the process that failed is none of the group's %d", g->count);
    if (!wrong && (g->interrupted < 0 || g->interrupted > 64))
        wrong = yk__broken("the run was ended by signal %d", g->interrupted);
    if (!wrong && (g->left < 0 || g->left > g->count))
        wrong = yk__broken("%d of %d processes are left that cannot be killed", g->left, g->count);
    return wrong;
}

/* Checks node 0's list of the nodes that take part, and of the ranks that each one has. */
static const char *check_nodes(const yk__rendezvous *n)
{
    int ranks = n->own_local, given = 0;
    if (n->joined < 0 || n->joined >= n->s.node_count)
        return yk__broken("%d other nodes have joined, of %d in all", n->joined, n->s.node_count);
    for (int i = 0; i < n->joined; i++) {
        const yk__agent_node *p = n->nodes[i];
        for (int j = 0; j < i; j++)
            if (n->nodes[j]->id == p->id || (p->number >= 0 && n->nodes[j]->number == p->number))
                return yk__broken("nodes %d and %d of those that joined are both number %d, with the ids %016" PRIx64
                                  " and %016" PRIx64,
                                  j, i, p->number, n->nodes[j]->id, p->id);
        if (p->number == 0 || p->number < -1 || p->number >= n->s.node_count)
            return yk__broken("a node that joined has the number %d, of %d", p->number, n->s.node_count);
        if (p->reported && !p->gone)
            return yk__broken("node %d was dealt with as lost, and its launcher is there", p->number);
        given += p->number > 0;
        ranks += p->number > 0 ? p->local : 0;
        if (p->number > 0 && (p->local < 0 || p->first < n->own_local || p->first + p->local > n->slots))
            return yk__broken("node %d has ranks %d to %d, of %d", p->number, p->first, p->first + p->local - 1,
                              n->slots);
    }
    bool all = given == n->joined || yk__views_may(n); /* those that came since have none */
    if (given && (!all || ranks != n->world))
        return yk__broken("%d of %d nodes have a number, and all together %d ranks of %d", given, n->joined, ranks,
                          n->world);
    if (n->attempt_order > n->orders)
        return yk__broken("the attempt began with order %" PRId64 ", and the last one was %" PRId64, n->attempt_order,
                          n->orders);
    return NULL;
}

const char *yk__rendezvous_check(const yk__rendezvous *n)
{
    const char *wrong = n->server ? check_nodes(n) : NULL;
    if (wrong)
        return wrong;
    if (n->stop < 0 || n->stop > 64)
        return yk__broken("the group is to be stopped with signal %d", n->stop);
    if (n->end.kind != YK__RUN_DONE && n->end.kind != YK__RUN_SAVED && !n->have_end)
        return yk__broken("the attempt's end is of kind %d, and none was heard of", (int)n->end.kind);
    if (n->stopping && !n->stop)
        return yk__broken("node 0 knows that this node heard the stop, and there is none");
    if (n->asked && !n->cause_seen)
        return yk__broken("the launcher was asked to end, and the cause was not seen");
    if (n->again && (!n->link.done || !n->have_end))
        return yk__broken("another attempt follows, and this one is %s", n->link.done ? "well ended" : "not over");
    bool counted = n->restart < n->s.restarts && yk__outcome_restarts(&n->end) && (!n->any_lost || yk__views_may(n));
    if (n->server && n->again && (n->any_left || n->any_asked || !(counted || n->changing)))
        return yk__broken("another attempt follows, after %" PRId64 " of %" PRId64 ": left %d, lost %d, asked to end "
                          "%d, end of kind %d",
                          n->restart, n->s.restarts, n->any_left, n->any_lost, n->any_asked, (int)n->end.kind);
    return NULL;
}
