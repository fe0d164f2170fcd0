/*
 * node_plans.c - the part of each node in an attempt: its number, ranks, roles, and where all listen. Layer: launch.
 *
 * Node 0 makes the plans, of what each node has said of itself when it asked to join. Nodes that come and go have their
 * plans made anew for each attempt (views.c), the others for the first one.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/agents.h"

/* The port on which rank 0 is to serve the processes' own store: the one after the launchers', if nobody listens there.
 */
static int port_for_ranks(yk__rendezvous *n)
{
    yk__address any, bound;
    char why[YK__WHY_SIZE];
    int port = n->s.port + 1;
    int fd =
        port < 65536 && yk__resolve("0.0.0.0", port, yk__now() + 1, &any, 1, why) ? yk__listen(&any, 1, &bound) : -1;
    if (fd >= 0) {
        yk__socket_close(fd);
        return port;
    }
    if (n->port_held >= 0)
        close(n->port_held);
    port = yk__port_claim(&n->port_held);
    yk_clear_error();
    return port;
}

static int local_of(const int *counts, int listed, int node)
{
    return counts[listed == 1 ? 0 : node];
}

bool yk__rendezvous_plan_fits(const yk__rendezvous *n, const yk__agent_plan *plan)
{
    return plan->nodes <= n->s.node_count && (n->s.node < 0 || plan->node == n->s.node) &&
           plan->local == local_of(n->s.counts, n->s.listed, plan->node) && plan->roles == n->s.roles;
}

bool yk__rendezvous_number(yk__rendezvous *n)
{
    yk__agent_node **by_number = calloc((size_t)n->s.node_count, sizeof(*by_number));
    if (!by_number)
        return false;
    for (int i = 0; i < n->joined; i++) {
        if (n->nodes[i]->facts.wanted > 0)
            by_number[n->nodes[i]->facts.wanted] = n->nodes[i];
    }
    int number = 1;
    for (int i = 0; i < n->joined; i++) {
        if (n->nodes[i]->facts.wanted > 0)
            continue;
        while (by_number[number])
            number++;
        by_number[number] = n->nodes[i];
    }
    n->slots = n->world = n->own_local = local_of(n->s.counts, n->s.listed, 0);
    for (number = 1; number <= n->joined; number++) {
        yk__agent_node *node = by_number[number];
        node->number = number;
        node->first = n->world;
        node->local = local_of(node->facts.counts, node->facts.listed, number);
        n->world += node->local;
    }
    n->slots = n->world;
    memcpy(n->nodes, by_number + 1, (size_t)n->joined * sizeof(*n->nodes));
    free(by_number);
    return true;
}

/* The processes of each role on a node, NULL for node 0, of which `before` have come on nodes before it. */
static void place_roles(const yk__rendezvous *n, const yk__agent_node *node, int before[YK__MOST_ROLES],
                        yk__role_part part[YK__MOST_ROLES])
{
    const int *counts = node ? node->facts.role_counts : n->s.role_counts;
    int listed = node ? node->facts.listed : n->s.listed;
    for (int r = 0; r < n->s.roles; r++) {
        part[r] = (yk__role_part){local_of(counts + r * listed, listed, node ? node->number : 0), before[r], 0};
        before[r] += part[r].local;
    }
}

/* NULL for node 0. The others of an attempt that begins are in the order of their numbers. */
static const yk__agent_node *node_numbered(const yk__rendezvous *n, int number)
{
    return number > 0 ? n->nodes[number - 1] : NULL;
}

/* The roles of all nodes: those of `number` to `part`. */
static void plan_roles(const yk__rendezvous *n, int number, yk__agent_plan *plan)
{
    int before[YK__MOST_ROLES] = {0};
    yk__role_part part[YK__MOST_ROLES];
    plan->roles = n->s.roles;
    for (int i = 0; i <= n->joined && n->s.roles; i++) {
        place_roles(n, node_numbered(n, i), before, part);
        if (i == number)
            memcpy(plan->role, part, sizeof(part));
    }
    for (int r = 0; r < n->s.roles; r++)
        plan->role[r].world = before[r];
}

bool yk__rendezvous_make_plan(yk__rendezvous *n, yk__agent_plan *plan)
{
    *plan = (yk__agent_plan){.local = n->own_local,
                             .world = n->world,
                             .port = port_for_ranks(n),
                             .restart = n->restart,
                             .restarts = n->s.restarts,
                             .attempt = n->attempt,
                             .nodes = 1 + n->joined};
    plan_roles(n, 0, plan);
    n->plan = *plan;
    for (int i = 0; i < n->joined; i++) {
        n->nodes[i]->ended = n->nodes[i]->stopping = n->nodes[i]->finished = false;
        n->nodes[i]->view = 0;
    }
    return plan->port != 0;
}

/* Makes the table of the addresses at which all ranks listen. A job that is too large for it does without. */
static void make_table(yk__rendezvous *n)
{
    yk__wire table = {0};
    for (int number = 0; number <= n->joined && n->world <= YK__MOST_LISTENERS; number++) {
        const yk__agent_node *node = node_numbered(n, number);
        yk__listeners_append(&table, node ? node->facts.listeners : n->listeners.text,
                             node ? node->local : n->own_local);
    }
    yk__wire_put_u8(&table, 0);
    free(n->table);
    n->table = table.failed || table.size == 1 ? NULL : (char *)table.data;
    if (!n->table)
        yk__wire_clear(&table);
}

/* A node that reads orders gets one; another its plan. */
static void send_plan(yk__rendezvous *n, const yk__agent_node *node, const yk__agent_plan *plan)
{
    yk__agent_plan theirs = *plan;
    yk__wire wire = {0};
    char key[32];
    theirs.node = node->number;
    theirs.first = node->first;
    theirs.local = node->local;
    theirs.orders = n->orders;
    plan_roles(n, node->number, &theirs);
    yk__wire_put_u8(&wire, node->following ? ORDER_VIEW : PLAN_GIVEN);
    if (node->following)
        yk__wire_put_u64(&wire, node->id);
    yk__agent_put_plan(&wire, &theirs, n->table);
    yk__agent_plan_key(key, node->id, node->waits);
    if (node->following) {
        yk__rendezvous_order(n, &wire);
    } else {
        yk__agent_client_set(&n->client, key, &wire);
        yk__wire_clear(&wire);
    }
}

void yk__rendezvous_send_joining(yk__rendezvous *n, yk__agent_node *node)
{
    yk__agent_plan theirs = n->plan;
    yk__wire wire = {0};
    char key[32];
    theirs.node = node->number;
    theirs.first = node->first;
    theirs.local = node->local;
    theirs.world = n->slots;
    theirs.nodes = 1 + n->joined;
    theirs.orders = n->orders;
    theirs.joins = true;
    yk__wire_put_u8(&wire, PLAN_GIVEN);
    yk__agent_put_plan(&wire, &theirs, NULL);
    yk__agent_plan_key(key, node->id, node->waits);
    yk__agent_client_set(&n->client, key, &wire);
    yk__wire_clear(&wire);
    node->following = true;
}

void yk__rendezvous_send_plans(yk__rendezvous *n, const yk__agent_plan *plan)
{
    make_table(n);
    /* Nodes that follow orders come first: their plans are orders. A node that joins reads only later ones. */
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < n->joined; i++)
            if (n->nodes[i]->following == (turn == 0))
                send_plan(n, n->nodes[i], plan);
    }
    for (int i = 0; i < n->joined; i++)
        n->nodes[i]->following = true;
}
