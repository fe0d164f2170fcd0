/*
 * rendezvous.c - how the launchers of a job's nodes meet: node 0 serves a store, the others ask there to join, and node
 * 0 numbers them and sends each its ranks. Layer: launch.
 *
 * Invariants: who is not a member of the job is the store's business (net/store_server.c), which limits unauthenticated
 * connections in number and time; here only launchers that have the secret are served. Nodes without a number get the
 * free ones in the order in which they came, once all are there.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/escape.h"
#include "launch/agents.h"
#include "launch/exit_codes.h"
#include "launch/guard.h"
#include "net/store_session.h"

/* Seconds: before it is printed what is waited for, so that a usual start prints nothing; in which a client has to
 * prove that it knows the secret, before the server drops it. */
static const double notice_after = 5, handshake_patience = 10;

/* ---- node 0: who comes ------------------------------------------------------------------------------------------ */
static void note_refusal(yk__rendezvous *n, const char *why)
{
    char plain[YK__WHY_SIZE];
    yk__escape(why, strlen(why), plain, sizeof(plain));
    for (int i = 0; i < n->refused; i++) {
        if (strcmp(n->reasons[i], plain) == 0)
            return;
    }
    if (n->refused == AGENT_REASONS)
        return;
    snprintf(n->reasons[n->refused++], YK__WHY_SIZE, "%s", plain);
    yk__relay_say(n->err, "yoke run: turned away: %s\n", plain);
    yk__relay_sink_flush(n->err);
}

/* On the store's thread. A reason that does not fit into the pipe is one of very many. */
static void refused(void *arg, const char *why)
{
    char text[YK__WHY_SIZE] = "";
    snprintf(text, sizeof(text), "%s", why);
    (void)!write(*(int *)arg, text, sizeof(text)); /* less than PIPE_BUF: whole or not at all */
}

void yk__rendezvous_read_refusals(yk__rendezvous *n)
{
    char text[YK__WHY_SIZE];
    while (read(n->refusals[0], text, sizeof(text)) == sizeof(text)) {
        text[sizeof(text) - 1] = '\0';
        note_refusal(n, text);
    }
}

yk__agent_node *yk__rendezvous_node(const yk__rendezvous *n, uint64_t id)
{
    for (int i = 0; i < n->joined; i++) {
        if (n->nodes[i]->id == id)
            return n->nodes[i];
    }
    return NULL;
}

static void free_node(yk__agent_node *node)
{
    if (node)
        yk__agent_facts_clear(&node->facts);
    free(node);
}

void yk__rendezvous_forget(yk__rendezvous *n, uint64_t id)
{
    int kept = 0;
    for (int i = 0; i < n->joined; i++) {
        if (n->nodes[i]->id == id)
            free_node(n->nodes[i]);
        else
            n->nodes[kept++] = n->nodes[i];
    }
    n->joined = kept;
}

/* True if a node's roles are those of node 0; the reason otherwise. */
static bool roles_fit(const yk__rendezvous *n, const yk__agent_facts *f, const char *me, char why[YK__WHY_SIZE])
{
    char theirs[32], ours[32];
    static const yk__role_rule end = {.on_failure = YK__ON_FAILURE_END};
    if (f->roles <= 1 && n->s.roles <= 1) { /* without parts; what they call their role is left to them */
        const yk__role_rule *a = f->roles ? f->rules : &end, *b = n->s.roles ? n->s.rules : &end;
        bool same = a->on_failure == b->on_failure && a->restarts == b->restarts;
        if (!same)
            snprintf(why, YK__WHY_SIZE, "host %s says --on-failure %s, %s says %s; they have to be the same", f->host,
                     yk__on_failure_format(a, theirs), me, yk__on_failure_format(b, ours));
        return same;
    }
    if (f->roles != n->s.roles) {
        snprintf(why, YK__WHY_SIZE, "roles differ: host %s has %d parts with --role, %s has %d", f->host,
                 f->roles ? f->roles : 1, me, n->s.roles ? n->s.roles : 1);
        return false;
    }
    for (int r = 0; r < f->roles; r++) {
        const yk__role_rule *a = &f->rules[r], *b = &n->s.rules[r];
        if (strcmp(a->name, b->name) != 0) {
            snprintf(why, YK__WHY_SIZE, "roles differ: part %d of host %s is --role %s, of %s --role %s", r + 1,
                     f->host, a->name, me, b->name);
            return false;
        }
        if (a->on_failure != b->on_failure || a->restarts != b->restarts) {
            snprintf(why, YK__WHY_SIZE, "roles differ: role %s has --on-failure %s on host %s, %s on %s", a->name,
                     yk__on_failure_format(a, theirs), f->host, yk__on_failure_format(b, ours), me);
            return false;
        }
        bool list = f->listed > 1 && n->s.listed == f->listed;
        if (list && memcmp(f->role_counts + r * f->listed, n->s.role_counts + r * f->listed,
                           (size_t)f->listed * sizeof(int)) != 0) {
            snprintf(why, YK__WHY_SIZE, "roles differ: role %s has other numbers with -n on host %s than on %s",
                     a->name, f->host, me);
            return false;
        }
    }
    return true;
}

/* True if a node may join; the reason otherwise. */
static bool fits(const yk__rendezvous *n, const yk__agent_facts *f, char why[YK__WHY_SIZE])
{
    char me[64];
    int count = f->nodes;
    snprintf(me, sizeof(me), "node 0 (host %.40s)", n->identity.host);
    if (count != n->s.node_count)
        snprintf(why, YK__WHY_SIZE, "wrong number of nodes: host %s says --nnodes %d, %s says %d", f->host, count, me,
                 n->s.node_count);
    else if (f->listed != 1 && f->listed != count)
        snprintf(why, YK__WHY_SIZE, "host %s has %d counts of processes for %d nodes", f->host, f->listed, count);
    else if (f->listed > 1 && n->s.listed == f->listed &&
             memcmp(f->counts, n->s.counts, (size_t)f->listed * sizeof(int)) != 0)
        snprintf(why, YK__WHY_SIZE,
                 "host %s says other numbers with --nproc-per-node than %s; they have to be the same", f->host, me);
    else if (!roles_fit(n, f, me, why))
        ;                                                 /* it said why */
    else if (fabs(f->timeout - n->s.node_timeout) > 1e-3) /* who renews less often than is expected seems lost */
        snprintf(why, YK__WHY_SIZE, "host %s says --node-timeout %g, %s says %g; they have to be the same", f->host,
                 f->timeout, me, n->s.node_timeout);
    else if (f->wanted >= count || f->wanted == 0)
        snprintf(why, YK__WHY_SIZE, "host %s says --node-rank %d, and %s has rank 0 of %d", f->host, f->wanted, me,
                 count);
    else if (n->joined == count - 1)
        snprintf(why, YK__WHY_SIZE, "host %s comes too late: the job of %s has its %d nodes", f->host, me, count);
    else
        *why = '\0';
    for (int i = 0; i < n->joined && !*why && f->wanted > 0; i++) {
        const yk__agent_facts *other = &n->nodes[i]->facts;
        if (other->wanted == f->wanted)
            snprintf(why, YK__WHY_SIZE, "host %s says --node-rank %d, and so does host %s (pid %u)", f->host, f->wanted,
                     other->host, other->pid);
    }
    return !*why;
}

static void refuse(yk__rendezvous *n, uint64_t id, const char *text)
{
    yk__wire wire = {0};
    char key[32];
    yk__agent_plan_key(key, id);
    yk__wire_put_u8(&wire, PLAN_REFUSED);
    yk__agent_put_text(&wire, text);
    yk__agent_client_set(&n->client, key, &wire);
    yk__wire_clear(&wire);
}

void yk__rendezvous_handle_join(yk__rendezvous *n, uint64_t id, yk__reader *r)
{
    char why[YK__WHY_SIZE];
    yk__agent_node *node = calloc(1, sizeof(*node));
    if (!node || yk__rendezvous_node(n, id) || !yk__agent_read_facts(r, &node->facts)) {
        snprintf(why, sizeof(why), "%s", node ? "it sent what no launcher sends" : "node 0 is out of memory");
    } else if (fits(n, &node->facts, why)) {
        node->id = id;
        node->number = -1;
        n->nodes[n->joined++] = node;
        return;
    }
    free_node(node);
    note_refusal(n, why);
    refuse(n, id, why);
}

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

/* ---- joining ---------------------------------------------------------------------------------------------------- */
static int local_of(const int *counts, int listed, int node)
{
    return counts[listed == 1 ? 0 : node];
}

bool yk__rendezvous_plan_fits(const yk__rendezvous *n, const yk__agent_plan *plan)
{
    return plan->node < n->s.node_count && (n->s.node < 0 || plan->node == n->s.node) &&
           plan->local == local_of(n->s.counts, n->s.listed, plan->node) && plan->roles == n->s.roles;
}

/* Gives out the numbers that were not asked for in the order in which the nodes came; then the ranks. */
static bool number_nodes(yk__rendezvous *n)
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
    n->world = n->own_local = local_of(n->s.counts, n->s.listed, 0);
    for (number = 1; number < n->s.node_count; number++) {
        yk__agent_node *node = by_number[number];
        node->number = number;
        node->first = n->world;
        node->local = local_of(node->facts.counts, node->facts.listed, number);
        n->world += node->local;
    }
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

static const yk__agent_node *node_numbered(const yk__rendezvous *n, int number)
{
    for (int i = 0; i < n->joined; i++) {
        if (n->nodes[i]->number == number)
            return n->nodes[i];
    }
    return NULL;
}

/* The roles of all nodes: those of `number` to `part`. */
static void plan_roles(const yk__rendezvous *n, int number, yk__agent_plan *plan)
{
    int before[YK__MOST_ROLES] = {0};
    yk__role_part part[YK__MOST_ROLES];
    plan->roles = n->s.roles;
    for (int i = 0; i < n->s.node_count && n->s.roles; i++) {
        place_roles(n, node_numbered(n, i), before, part);
        if (i == number)
            memcpy(plan->role, part, sizeof(part));
    }
    for (int r = 0; r < n->s.roles; r++)
        plan->role[r].world = before[r];
}

static bool make_plan(yk__rendezvous *n, yk__agent_plan *plan)
{
    *plan = (yk__agent_plan){.local = n->own_local,
                             .world = n->world,
                             .port = port_for_ranks(n),
                             .restart = n->restart,
                             .restarts = n->s.restarts};
    plan_roles(n, 0, plan);
    n->plan = *plan;
    for (int i = 0; i < n->joined; i++)
        n->nodes[i]->ended = n->nodes[i]->stopping = false;
    return plan->port != 0;
}

/* Makes the table of the addresses at which all ranks listen. A job that is too large for it does without. */
static void make_table(yk__rendezvous *n)
{
    yk__wire table = {0};
    for (int number = 0; number < n->s.node_count && n->world <= YK__MOST_LISTENERS; number++) {
        const yk__agent_node *node = NULL;
        for (int i = 0; i < n->joined; i++)
            node = n->nodes[i]->number == number ? n->nodes[i] : node;
        yk__listeners_append(&table, node ? node->facts.listeners : n->listeners.text,
                             node ? node->local : n->own_local);
    }
    yk__wire_put_u8(&table, 0);
    n->table = table.failed || table.size == 1 ? NULL : (char *)table.data;
    if (!n->table)
        yk__wire_clear(&table);
}

/* Gives each node its ranks for the first attempt, and the addresses at which all listen. */
static bool send_plans(yk__rendezvous *n, yk__agent_plan *plan)
{
    if (!make_plan(n, plan))
        return false;
    make_table(n);
    for (int i = 0; i < n->joined; i++) {
        const yk__agent_node *node = n->nodes[i];
        yk__agent_plan theirs = *plan;
        theirs.node = node->number;
        theirs.first = node->first;
        theirs.local = node->local;
        plan_roles(n, node->number, &theirs);
        yk__wire wire = {0};
        char key[32];
        yk__agent_plan_key(key, node->id);
        yk__wire_put_u8(&wire, PLAN_GIVEN);
        yk__agent_put_plan(&wire, &theirs, n->table);
        yk__agent_client_set(&n->client, key, &wire);
        yk__wire_clear(&wire);
    }
    return true;
}

/* "missing: node 2" with what is known of those that were turned away. */
static void say_missing(const yk__rendezvous *n, char *text, size_t size)
{
    int missing = n->s.node_count - 1 - n->joined;
    size_t used = (size_t)snprintf(text, size, "%d of %d nodes did not come to %s within %g s: missing %s", missing,
                                   n->s.node_count, n->where, n->s.join_timeout, missing > 1 ? "nodes" : "node");
    bool any = false;
    const char *before = " ";
    for (int i = 0; i < n->joined; i++)
        any |= n->nodes[i]->facts.wanted < 0;
    for (int number = 1; number < n->s.node_count && !any && used < size - 24; number++) {
        bool there = false;
        for (int i = 0; i < n->joined; i++)
            there |= n->nodes[i]->facts.wanted == number;
        if (!there) {
            used += (size_t)snprintf(text + used, size - used, "%s%d", before, number);
            before = ", ";
        }
    }
    if (any)
        used += (size_t)snprintf(text + used, size - used, "s are any that have no --node-rank");
    for (int i = 0; i < n->refused && used < size - 1; i++)
        used += (size_t)snprintf(text + used, size - used, "; %s%s", i ? "" : "refused: ", n->reasons[i]);
    if (!n->refused && used < size - 1)
        snprintf(text + used, size - used, "; nobody else tried (started there? the same address and port?)");
}

/* Ends the joining on all nodes with this text. */
static bool join_failed(yk__rendezvous *n, int *code, const char *text)
{
    char plain[1400];
    for (int i = 0; i < n->joined; i++)
        refuse(n, n->nodes[i]->id, text);
    yk__relay_say(n->err, "yoke run: %s\n", yk__escape(text, strlen(text), plain, sizeof(plain)));
    *code = EXIT_FAILED;
    return false;
}

static bool interrupted(yk__rendezvous *n, int number, int *code)
{
    char name[32], text[128];
    snprintf(text, sizeof(text), "%s to the launcher on host %s", yk__signal_name(number, name), n->identity.host);
    join_failed(n, code, text);
    *code = EXIT_SIGNAL + number;
    return false;
}

/* Node 0 until all have come. */
static bool gather(yk__rendezvous *n, double deadline, int *code)
{
    char text[1100];
    double notice = yk__now() + notice_after;
    for (;;) {
        yk__rendezvous_move(n);
        if (n->client.gone) {
            snprintf(text, sizeof(text), "the launchers' store at %s: %s", n->where, n->client.why);
            return join_failed(n, code, text);
        }
        if (n->joined == n->s.node_count - 1)
            return number_nodes(n) || join_failed(n, code, "out of memory");
        double now = yk__now(), next = now + 0.5 < deadline ? now + 0.5 : deadline;
        if (now >= deadline) {
            say_missing(n, text, sizeof(text));
            return join_failed(n, code, text);
        }
        if (notice > 0 && now >= notice) {
            yk__relay_say(n->err, "yoke run: waiting at %s for %d of %d nodes\n", n->where,
                          n->s.node_count - 1 - n->joined, n->s.node_count);
            yk__relay_sink_flush(n->err);
            notice = 0;
        }
        int number = yk__supervisor_pause(n->epoll, next);
        if (number)
            return interrupted(n, number, code);
    }
}

/* The others until node 0 has a plan for them. */
static bool await_plan(yk__rendezvous *n, double deadline, int *code)
{
    char text[1400];
    for (;;) {
        yk__rendezvous_move(n);
        if (n->planned)
            break;
        if (n->refusal[0] || n->client.gone) {
            snprintf(text, sizeof(text), "%s: %s", n->coordinator_name, n->refusal[0] ? n->refusal : n->client.why);
            return join_failed(n, code, text);
        }
        double now = yk__now(), next = now + 0.5 < deadline ? now + 0.5 : deadline;
        if (now >= deadline) {
            snprintf(text, sizeof(text), "%s still waits for other nodes after %g s", n->coordinator_name,
                     n->s.join_timeout);
            return join_failed(n, code, text);
        }
        int number = yk__supervisor_pause(n->epoll, next);
        if (number)
            return interrupted(n, number, code);
    }
    n->planned = false;
    n->restart = n->plan.restart;
    return true;
}

/* The first requests of a launcher. On the thread that looks for node 0, before anything else uses the client. */
static void greet(void *arg, yk__agent_client *client, bool serves, bool everywhere)
{
    yk__rendezvous *n = arg;
    int most = 0; /* which node this is need not be known yet */
    for (int i = 0; i < n->s.listed; i++)
        most = n->s.counts[i] > most ? n->s.counts[i] : most;
    yk__listeners_open(&n->listeners, client->fd, everywhere, most);
    if (serves) {
        yk__agent_client_follow(client, "reports");
        return;
    }
    yk__agent_facts facts = {.nodes = n->s.node_count,
                             .wanted = n->s.node,
                             .timeout = n->s.node_timeout,
                             .grace = n->s.grace,
                             .listed = n->s.listed,
                             .pid = n->identity.pid,
                             .listeners = n->listeners.text,
                             .roles = n->s.roles,
                             .rules = (yk__role_rule *)n->s.rules,
                             .role_counts = (int *)n->s.role_counts};
    snprintf(facts.host, sizeof(facts.host), "%s", n->identity.host);
    yk__wire join = yk__agent_report(REPORT_JOIN, n->id), lost[YK__LEASE_DAMAGED + 1];
    facts.counts = (int *)n->s.counts;
    yk__agent_put_facts(&join, &facts);
    for (unsigned how = 0; how <= YK__LEASE_DAMAGED; how++) {
        lost[how] = yk__agent_report(REPORT_LOST, n->id);
        yk__wire_put_u8(&lost[how], how);
    }
    yk__agent_client_lease(client, "reports", lost, n->s.node_timeout);
    yk__agent_client_push(client, "reports", &join);
    char key[32];
    yk__agent_plan_key(key, n->id);
    yk__agent_client_await(client, key);
    yk__wire_clear(&join);
    for (int how = 0; how <= YK__LEASE_DAMAGED; how++)
        yk__wire_clear(&lost[how]);
}

/* Becomes node 0 or connects to it. */
static bool find_node_0(yk__rendezvous *n, double deadline, int *code)
{
    char text[YK__ADDRESS_TEXT];
    yk__discovery *discovery = calloc(1, sizeof(*discovery));
    if (!discovery)
        return join_failed(n, code, "out of memory");
    const yk__store_server_options options = {
        .patience = handshake_patience, .refused = refused, .arg = &n->refusals[1]};
    n->serving = options;
    *discovery = (yk__discovery){.host = n->s.host,
                                 .port = n->s.port,
                                 .may_listen = n->s.node <= 0,
                                 .must_listen = n->s.node == 0,
                                 .deadline = deadline,
                                 .identity = &n->identity,
                                 .greet = greet,
                                 .arg = n,
                                 .serving = &n->serving};
    if (!yk__discovery_start(discovery)) {
        free(discovery);
        return join_failed(n, code, "no thread to look for node 0 with");
    }
    struct pollfd ready = {.fd = discovery->ready, .events = POLLIN};
    for (bool reported = false; poll(&ready, 1, 0) == 0;) {
        int number = yk__supervisor_pause(discovery->ready, yk__now() + notice_after);
        if (number) { /* the process ends; the thread's memory stays as it is until then */
            n->err = NULL;
            *code = EXIT_SIGNAL + number;
            return false;
        }
        if (!reported && poll(&ready, 1, 0) == 0)
            yk__relay_say(n->err, "yoke run: looking for node 0's launcher at %s:%d\n", n->s.host, n->s.port);
        yk__relay_sink_flush(n->err);
        reported = true;
    }
    char byte;
    (void)!read(discovery->ready, &byte, 1); /* all that the thread did is seen behind it */
    yk__discovery found = *discovery;
    close(found.ready);
    free(discovery);
    n->server = found.server;
    n->client = found.client;
    if (found.why[0])
        return join_failed(n, code, found.why);
    struct epoll_event event = {.events = EPOLLIN};
    yk__address_format(&n->client.address, text);
    if (epoll_ctl(n->epoll, EPOLL_CTL_ADD, n->client.fd, &event))
        return join_failed(n, code, strerror(errno));
    if (n->server) {
        if (found.everywhere)
            snprintf(n->where, sizeof(n->where), "%.60s:%d", n->s.host, n->s.port);
        else
            snprintf(n->where, sizeof(n->where), "%s", text);
        n->nodes = calloc((size_t)n->s.node_count, sizeof(*n->nodes));
        return n->nodes && epoll_ctl(n->epoll, EPOLL_CTL_ADD, n->refusals[0], &event) == 0
                   ? true
                   : join_failed(n, code, "out of memory");
    }
    const yk__peer *peer = &n->client.channel.handshake.peer;
    char host[sizeof(peer->host)];
    snprintf(n->coordinator_name, sizeof(n->coordinator_name), "node 0 (host %s, pid %u, at %s)",
             yk__escape(peer->host, strlen(peer->host), host, sizeof(host)), peer->pid, text);
    return true;
}

yk__rendezvous *yk__rendezvous_join(const yk__rendezvous_settings *settings, relay_sink *err, yk__agent_plan *plan,
                                    int *code)
{
    yk__rendezvous *n = calloc(1, sizeof(*n));
    double deadline = yk__now() + settings->join_timeout;
    *code = EXIT_FAILED;
    if (!n) {
        yk__relay_say(err, "yoke run: out of memory\n");
        return NULL;
    }
    n->s = *settings;
    n->err = err;
    n->port_held = n->refusals[0] = n->refusals[1] = n->client.fd = -1;
    n->client.gone = true; /* so far */
    n->beat = yk__now();
    n->epoll = n->link.fd = epoll_create1(EPOLL_CLOEXEC);
    n->link.step = yk__rendezvous_step;
    bool joined = false;
    if (n->epoll < 0 || pipe2(n->refusals, O_CLOEXEC | O_NONBLOCK) || getrandom(&n->id, sizeof(n->id), 0) < 0) {
        join_failed(n, code, strerror(errno));
    } else if (yk__identity_init(&n->identity, "launch", NULL, 0, settings->job)) {
        join_failed(n, code, yk_last_error()->message);
        yk_clear_error();
    } else {
        joined =
            find_node_0(n, deadline, code) && (n->server ? gather(n, deadline, code) : await_plan(n, deadline, code));
    }
    if (joined && !n->server)
        *plan = n->plan;
    else if (joined && !send_plans(n, plan))
        joined = join_failed(n, code, "no free port for rank 0");
    if (joined) {
        yk__rendezvous_move(n);
        return n;
    }
    if (n->err) /* otherwise a thread still uses it */
        yk__rendezvous_close(n);
    return NULL;
}

const char *yk__rendezvous_listeners(const yk__rendezvous *n, int local_rank, int *fd)
{
    *fd = local_rank < n->listeners.count ? n->listeners.fds[local_rank] : -1;
    return *fd >= 0 ? n->table : NULL;
}

bool yk__rendezvous_next(yk__rendezvous *n, yk__agent_plan *plan, int *code)
{
    yk__outcome_clear(&n->end);
    n->departed_count = 0;
    n->cause_seen = n->asked = n->reported = n->stopping = n->have_end = n->again = n->link.done = false;
    n->any_left = n->any_unsaved = n->any_asked = false;
    *code = EXIT_FAILED;
    if (!n->server) {
        if (!await_plan(n, yk__now() + n->s.node_timeout, code))
            return false;
        *plan = n->plan;
        return true;
    }
    n->stop = 0;
    n->link.hung = false;
    n->restart++;
    if (!make_plan(n, plan)) {
        yk__relay_say(n->err, "yoke run: no free port for rank 0\n"); /* the others see this launcher end */
        return false;
    }
    yk__wire order = {0};
    yk__wire_put_u8(&order, ORDER_ATTEMPT);
    yk__wire_put_u32(&order, (uint32_t)plan->port);
    yk__wire_put_u64(&order, (uint64_t)plan->restart);
    yk__rendezvous_order(n, &order);
    while (n->deleted + 1 < n->attempt_order) /* every node has read those of the attempt before */
        yk__agent_client_delete(&n->client, "orders", ++n->deleted);
    n->attempt_order = n->orders;
    yk__rendezvous_move(n);
    return true;
}

/* True if something of this launcher has still to arrive: its requests, or at node 0 the others' end. */
static bool lingers(const yk__rendezvous *n)
{
    if (n->client.gone)
        return false;
    bool any = n->client.unanswered > 0;
    for (int i = 0; i < n->joined && !any; i++)
        any = !n->nodes[i]->gone;
    return any;
}

void yk__rendezvous_close(yk__rendezvous *n)
{
    if (!n)
        return;
    /* The others close first: what they have not read yet would be lost with the store. */
    for (double deadline = yk__now() + 1; lingers(n) && yk__now() < deadline;) {
        n->closing = true;
        yk__rendezvous_move(n);
        if (lingers(n) && yk__supervisor_pause(n->epoll, yk__now() + 0.05))
            break;
    }
    yk__agent_client_clear(&n->client);
    yk__store_server_stop(n->server);
    yk__listeners_clear(&n->listeners);
    free(n->table);
    for (int i = 0; i < n->joined; i++)
        free_node(n->nodes[i]);
    free(n->nodes);
    for (int i = 0; i < 2; i++) {
        if (n->refusals[i] >= 0)
            close(n->refusals[i]);
    }
    if (n->port_held >= 0)
        close(n->port_held);
    if (n->epoll >= 0)
        close(n->epoll);
    yk__outcome_clear(&n->end);
    yk__identity_clear(&n->identity);
    free(n->departed);
    free(n);
}
