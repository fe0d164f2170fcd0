/*
 * views.c - jobs whose nodes come and go (--nnodes MIN:MAX): the list of nodes, and the attempts that follow from its
 * changes. Layer: launch.
 *
 * Node 0 keeps the list. A node that is lost, leaves (SIGTERM to its launcher) or comes ends the attempt on all nodes,
 * as a failure does; when all processes have ended, those that are there by then make up the next one, with new numbers
 * and ranks: node 0, those that stayed in their order, those that came behind them. It is no restart that
 * --max-restarts counts. Invariant: nodes that wait for the next attempt have the number -1, and no part in this one.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "launch/agents.h"
#include "launch/exit_codes.h"
#include "launch/guard.h"

const char *yk__views_nodes(int least, int most, char text[32])
{
    if (least == most)
        snprintf(text, 32, "%d", most);
    else
        snprintf(text, 32, "%d:%d", least, most);
    return text;
}

static void change(yk__rendezvous *n, const char *host, const char *text)
{
    yk__outcome end = {.kind = YK__RUN_MEMBERS, .code = EXIT_FAILED};
    snprintf(end.host, sizeof(end.host), "%.63s", host);
    snprintf(end.text, sizeof(end.text), "%s", text);
    yk__rendezvous_record(n, &end, yk__now(), false);
}

void yk__views_came(yk__rendezvous *n, const yk__agent_node *node)
{
    char text[200];
    snprintf(text, sizeof(text), "a node (host %s, pid %u) comes", node->facts.host, node->facts.pid);
    change(n, node->facts.host, text);
}

void yk__views_leaves(yk__rendezvous *n, yk__agent_node *node, int number)
{
    char name[160], signal_name[32], text[300];
    node->leaving = true;
    yk__rendezvous_name_node(node, name, sizeof(name));
    snprintf(text, sizeof(text), "%s leaves: %s to its launcher", name, yk__signal_name(number, signal_name));
    change(n, node->facts.host, text);
}

void yk__views_lost(yk__rendezvous *n, yk__agent_node *node, const char *text)
{
    if (!node->leaving)
        change(n, node->facts.host, text);
}

bool yk__views_finished(const yk__rendezvous *n, const group *g)
{
    bool all = yk__group_finished(g);
    for (int i = 0; i < n->joined; i++)
        all &= n->nodes[i]->number < 0 || n->nodes[i]->finished;
    return all;
}

void yk__views_end(yk__rendezvous *n)
{
    static const char the_end[] = "the job has come to its end";
    for (int i = n->joined - 1; i >= 0; i--) {
        if (n->nodes[i]->number >= 0)
            continue;
        yk__rendezvous_refuse(n, n->nodes[i]->id, n->nodes[i]->waits, the_end);
        yk__rendezvous_forget(n, n->nodes[i]->id);
    }
    yk__waiting_end(n, true, the_end);
}

/* Forgets the nodes that are gone, or leave; the others have no numbers until there are enough. */
static void count_anew(yk__rendezvous *n)
{
    for (int i = n->joined - 1; i >= 0; i--) {
        yk__agent_node *node = n->nodes[i];
        if (node->gone || node->leaving)
            yk__rendezvous_forget(n, node->id);
        else
            node->number = -1;
    }
    n->any_lost = false;
}

bool yk__views_next(yk__rendezvous *n, yk__agent_plan *plan, int *code)
{
    n->running = false;
    count_anew(n);
    n->came = yk__now() - n->s.last_call; /* who is there has come before */
    if (!yk__rendezvous_gather(n, yk__now() + n->s.join_timeout, code))
        return false;
    if (!yk__rendezvous_make_plan(n, plan)) {
        yk__rendezvous_join_failed(n, code, "no free port for rank 0");
        return false;
    }
    int64_t before = n->orders;
    yk__rendezvous_send_plans(n, plan);
    while (n->deleted + 1 < n->attempt_order) /* every node has read those of the attempt before */
        yk__agent_client_delete(&n->client, "orders", ++n->deleted);
    n->attempt_order = before + 1 < n->orders ? before + 1 : n->orders;
    n->running = true;
    yk__rendezvous_move(n);
    return true;
}

const char *yk__rendezvous_change(const yk__rendezvous *n, double *since)
{
    *since = n ? n->stopped_at : 0;
    return n && n->change[0] ? n->change : NULL;
}
