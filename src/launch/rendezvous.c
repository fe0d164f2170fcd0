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
#include "launch/recall.h"
#include "launch/succession.h"
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

void yk__agent_node_free(yk__agent_node *node)
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
            yk__agent_node_free(n->nodes[i]);
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

/* The host of the node of a job whose nodes come and go that has no processes; NULL: all have some. */
static const char *without_processes(const yk__rendezvous *n)
{
    if (n->s.counts[0] == 0)
        return n->identity.host;
    for (int i = 0; i < n->joined; i++)
        if (!n->nodes[i]->gone && n->nodes[i]->facts.counts[0] == 0)
            return n->nodes[i]->facts.host;
    return NULL;
}

/* True if a node may join; the reason otherwise. */
static bool fits(const yk__rendezvous *n, const yk__agent_facts *f, char why[YK__WHY_SIZE])
{
    char me[64];
    int count = f->nodes;
    const char *none;
    snprintf(me, sizeof(me), "node 0 (host %.40s)", n->identity.host);
    char theirs[32], ours[32];
    if (count != n->s.node_count || f->least != n->s.least)
        snprintf(why, YK__WHY_SIZE, "wrong number of nodes: host %s says --nnodes %s, %s says %s", f->host,
                 yk__views_nodes(f->least, count, theirs), me, yk__views_nodes(n->s.least, n->s.node_count, ours));
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
    else if (yk__views_may(n) && f->counts[0] == 0 && (none = without_processes(n)))
        snprintf(why, YK__WHY_SIZE,
                 "host %s has no processes (--witness, -n 0), and neither has host %s; one node alone may be without",
                 f->host, none);
    else if (!yk__waiting_place(n) && !yk__waiting_spare_place(n))
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

void yk__rendezvous_refuse(yk__rendezvous *n, uint64_t id, int waits, const char *text)
{
    yk__wire wire = {0};
    char key[32];
    yk__agent_plan_key(key, id, waits);
    yk__wire_put_u8(&wire, PLAN_REFUSED);
    yk__agent_put_text(&wire, text);
    yk__agent_client_set(&n->client, key, &wire);
    yk__wire_clear(&wire);
}

void yk__rendezvous_handle_join(yk__rendezvous *n, uint64_t id, yk__reader *r)
{
    char why[YK__WHY_SIZE];
    yk__agent_node *node = calloc(1, sizeof(*node));
    if (!node || yk__rendezvous_node(n, id) || yk__waiting_find(n, id) || !yk__agent_read_facts(r, &node->facts)) {
        snprintf(why, sizeof(why), "%s", node ? "it sent what no launcher sends" : "node 0 is out of memory");
    } else if (fits(n, &node->facts, why)) {
        node->id = id;
        node->number = -1;
        if (!yk__waiting_keeps(n, node))
            yk__rendezvous_admit(n, node);
        return;
    }
    yk__agent_node_free(node);
    note_refusal(n, why);
    yk__rendezvous_refuse(n, id, 0, why);
}

void yk__rendezvous_admit(yk__rendezvous *n, yk__agent_node *node)
{
    char why[YK__WHY_SIZE];
    bool fit = fits(n, &node->facts, why); /* others may have come since */
    if (fit && !yk__waiting_place(n)) {
        snprintf(why, sizeof(why), "node 0 is out of memory");
        fit = false;
    }
    if (!fit) {
        note_refusal(n, why);
        yk__rendezvous_refuse(n, node->id, node->waits, why);
        yk__agent_node_free(node);
        return;
    }
    n->nodes[n->joined++] = node;
    n->came = node->since = yk__now();
    node->came = true; /* it need not be called, as those of a keeper before this one */
    if (n->running && !yk__survivors_come(n, node))
        yk__views_came(n, node);
}

/* ---- joining ---------------------------------------------------------------------------------------------------- */
/* Gives each node its ranks for the first attempt, and the addresses at which all listen. */
static bool first_plans(yk__rendezvous *n, yk__agent_plan *plan)
{
    if (!yk__rendezvous_make_plan(n, plan))
        return false;
    yk__store_server_admit(n->server); /* the processes that are started now */
    yk__rendezvous_send_plans(n, plan);
    n->running = true;
    return true;
}

/* Nodes without which nothing begins: of a node 0 without processes another one. */
static int nodes_needed(const yk__rendezvous *n)
{
    return n->s.counts[0] == 0 && n->s.least == 1 ? 2 : n->s.least;
}

/* "missing: node 2" with what is known of those that were turned away. */
static void say_missing(const yk__rendezvous *n, char *text, size_t size)
{
    int missing = n->s.node_count - 1 - n->joined;
    if (yk__views_may(n)) {
        char nodes[32];
        snprintf(text, size, "--nnodes %s: %d node%s there after %g s (--join-timeout), at %s, and %d are needed",
                 yk__views_nodes(n->s.least, n->s.node_count, nodes), 1 + n->joined, n->joined ? "s are" : " is",
                 n->s.join_timeout, n->where, nodes_needed(n));
        return;
    }
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

bool yk__rendezvous_join_failed(yk__rendezvous *n, int *code, const char *text)
{
    char plain[1400];
    for (int i = 0; i < n->joined; i++) {
        if (n->nodes[i]->following)
            yk__rendezvous_order_lost(n, n->nodes[i], text);
        else
            yk__rendezvous_refuse(n, n->nodes[i]->id, n->nodes[i]->waits, text);
    }
    yk__waiting_end(n, false, text);
    yk__relay_say(n->err, "yoke run: %s\n", yk__escape(text, strlen(text), plain, sizeof(plain)));
    *code = EXIT_FAILED;
    return false;
}

static bool interrupted(yk__rendezvous *n, int number, int *code)
{
    char name[32], text[128];
    snprintf(text, sizeof(text), "%s to the launcher on host %s", yk__signal_name(number, name), n->identity.host);
    yk__rendezvous_join_failed(n, code, text);
    *code = EXIT_SIGNAL + number;
    return false;
}

/* The nodes that are there will do: all, or at least so many as are needed, and nobody has come for a while. *next:
 * when that may be. */
static bool enough(const yk__rendezvous *n, double deadline, double *next)
{
    if (n->joined == n->s.node_count - 1)
        return true;
    if (1 + n->joined < nodes_needed(n))
        return false;
    double until = n->came + n->s.last_call, recall = yk__recall_until(n);
    until = until > recall ? until : recall;
    until = until < deadline ? until : deadline;
    *next = until < *next ? until : *next;
    return yk__now() >= until;
}

static bool await_plan(yk__rendezvous *n, double deadline, int *code);

bool yk__rendezvous_gather(yk__rendezvous *n, double deadline, int *code)
{
    char text[1100];
    double notice = yk__now() + notice_after;
    for (;;) {
        yk__rendezvous_move(n);
        if (n->client.gone) {
            snprintf(text, sizeof(text), "the launchers' store at %s: %s", n->where, n->client.why);
            return yk__rendezvous_join_failed(n, code, text);
        }
        if (yk__recall_follow(n))
            return await_plan(n, deadline, code);
        double now = yk__now(), next = now + 0.5 < deadline ? now + 0.5 : deadline;
        yk__waiting_step(n, &next);
        if (enough(n, deadline, &next))
            return yk__rendezvous_number(n) || yk__rendezvous_join_failed(n, code, "out of memory");
        if (now >= deadline) {
            say_missing(n, text, sizeof(text));
            return yk__rendezvous_join_failed(n, code, text);
        }
        if (notice > 0 && now >= notice) {
            yk__relay_say(n->err, "yoke run: waiting at %s for %d of %d nodes\n", n->where,
                          nodes_needed(n) - 1 - n->joined, nodes_needed(n));
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
        double soon = INFINITY;
        if (yk__recall_follow(n))
            continue;
        if (n->refusal[0] || (!yk__waiting_seeks(n, &soon) && !yk__recall_waits(n))) {
            snprintf(text, sizeof(text), "%s: %s", n->coordinator_name, n->refusal[0] ? n->refusal : n->client.why);
            yk__rendezvous_join_failed(n, code, text);
            *code = n->over ? n->over_code : *code;
            return false;
        }
        if (!yk__waiting_fits(n, deadline, text, sizeof(text)))
            return yk__rendezvous_join_failed(n, code, text);
        deadline = n->spare ? INFINITY : deadline;
        double now = yk__now(), next = now + 0.5 < deadline ? now + 0.5 : deadline;
        next = soon < next ? soon : next;
        if (now >= deadline) {
            snprintf(text, sizeof(text), "%s still waits for other nodes after %g s", n->coordinator_name,
                     n->s.join_timeout);
            return yk__rendezvous_join_failed(n, code, text);
        }
        int number = yk__supervisor_pause(n->epoll, next);
        if (number)
            return interrupted(n, number, code);
    }
    n->planned = false;
    n->restart = n->plan.restart;
    return true;
}

void yk__rendezvous_facts(const yk__rendezvous *n, yk__agent_facts *facts)
{
    *facts = (yk__agent_facts){.nodes = n->s.node_count,
                               .least = n->s.least,
                               .wanted = n->s.node,
                               .timeout = n->s.node_timeout,
                               .grace = n->s.grace,
                               .listed = n->s.listed,
                               .counts = (int *)n->s.counts,
                               .pid = n->identity.pid,
                               .keeper = (char *)(n->succession ? n->succession->where : ""),
                               .listeners = n->listeners.text,
                               .roles = n->s.roles,
                               .rules = (yk__role_rule *)n->s.rules,
                               .role_counts = (int *)n->s.role_counts};
    const char *machine = getenv("YOKE_HOST_ID");
    snprintf(facts->host, sizeof(facts->host), "%s", n->identity.host);
    snprintf(facts->machine, sizeof(facts->machine), "%s", machine && *machine ? machine : facts->host);
}

void yk__rendezvous_lease(const yk__rendezvous *n, yk__agent_client *client)
{
    yk__wire lost[YK__LEASE_DAMAGED + 1];
    for (unsigned how = 0; how <= YK__LEASE_DAMAGED; how++) {
        lost[how] = yk__agent_report(REPORT_LOST, n->id);
        yk__wire_put_u8(&lost[how], how);
        yk__wire_put_u64(&lost[how], n->succession ? n->succession->voter.promised : 0);
    }
    yk__agent_client_lease(client, "reports", lost, n->s.node_timeout);
    for (int how = 0; how <= YK__LEASE_DAMAGED; how++)
        yk__wire_clear(&lost[how]);
}

void yk__rendezvous_ask(yk__rendezvous *n, yk__agent_client *client)
{
    char key[32];
    yk__agent_facts facts;
    yk__rendezvous_facts(n, &facts);
    yk__wire join = yk__agent_report(REPORT_JOIN, n->id);
    yk__agent_put_facts(&join, &facts);
    yk__rendezvous_lease(n, client);
    yk__agent_client_push(client, "reports", &join);
    yk__agent_plan_key(key, n->id, 0);
    yk__agent_client_await(client, key);
    yk__wire_clear(&join);
}

/* The first requests of a launcher. On the thread that looks for node 0, before anything else uses the client. */
static void greet(void *arg, yk__agent_client *client, bool serves, bool everywhere)
{
    yk__rendezvous *n = arg;
    int most = 0; /* which node this is need not be known yet */
    for (int i = 0; i < n->s.listed; i++)
        most = n->s.counts[i] > most ? n->s.counts[i] : most;
    yk__listeners_open(&n->listeners, client->link.fd, everywhere, most);
    if (serves) {
        yk__agent_client_follow(client, "reports");
        return;
    }
    if (n->succession)
        yk__succession_open(n, client->link.fd);
    yk__rendezvous_ask(n, client);
}

/* Node 0's address is known, and etcd is asked by a thread from now on. */
static bool take_register(yk__rendezvous *n, const yk__discovery *found)
{
    if (yk__host_port_parse(found->view.where, -1, n->found_host, &n->s.port))
        yk_clear_error();
    n->s.host = n->found_host;
    if (n->succession)
        n->succession->known = found->view;
    if (found->server)
        yk__register_keep(n->reg);
    struct epoll_event event = {.events = EPOLLIN};
    return yk__register_start(n->reg) &&
           epoll_ctl(n->epoll, EPOLL_CTL_ADD, yk__register_descriptor(n->reg), &event) == 0;
}

const char *yk__rendezvous_address(const yk__rendezvous *n, int *port)
{
    *port = n->s.port;
    return n->s.host;
}

/* Opens etcd, where the job's nodes find each other there. */
static bool open_register(yk__rendezvous *n)
{
    if (!n->s.etcd)
        return true;
    yk__etcd_options options = *n->s.etcd;
    double patience = n->s.node_timeout / 15; /* of a change that follows a silence three of them have to do */
    options.patience = patience < 0.2 ? 0.2 : patience > 2 ? 2 : patience;
    yk__etcd *etcd = yk__etcd_open(&options);
    n->reg = etcd ? yk__register_open(etcd, n->s.etcd_prefix, &n->identity, n->s.node_timeout) : NULL;
    return n->reg != NULL;
}

/* Becomes node 0 or connects to it. */
static bool find_node_0(yk__rendezvous *n, double deadline, int *code)
{
    char text[YK__ADDRESS_TEXT];
    yk__discovery *discovery = calloc(1, sizeof(*discovery));
    if (!discovery)
        return yk__rendezvous_join_failed(n, code, "out of memory");
    const yk__store_server_options options = {
        .patience = handshake_patience, .refused = refused, .arg = &n->refusals[1], .standby = n->recall != NULL};
    n->serving = options;
    *discovery = (yk__discovery){.reg = n->reg,
                                 .id = n->id,
                                 .host = n->s.host,
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
        return yk__rendezvous_join_failed(n, code, "no thread to look for node 0 with");
    }
    struct pollfd ready = {.fd = discovery->ready, .events = POLLIN};
    for (bool reported = false; poll(&ready, 1, 0) == 0;) {
        int number = yk__supervisor_pause(discovery->ready, yk__now() + notice_after);
        if (number) { /* the process ends; the thread's memory stays as it is until then */
            n->err = NULL;
            *code = EXIT_SIGNAL + number;
            return false;
        }
        if (!reported && poll(&ready, 1, 0) == 0 && n->reg)
            yk__relay_say(n->err, "yoke run: looking for node 0's launcher by %s in etcd\n", yk__register_key(n->reg));
        else if (!reported && poll(&ready, 1, 0) == 0)
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
        return yk__rendezvous_join_failed(n, code, found.why);
    if (n->reg && !take_register(n, &found))
        return yk__rendezvous_join_failed(n, code, "no thread to ask etcd with");
    struct epoll_event event = {.events = EPOLLIN};
    yk__address_format(&n->client.link.far, text);
    if (epoll_ctl(n->epoll, EPOLL_CTL_ADD, n->client.link.fd, &event))
        return yk__rendezvous_join_failed(n, code, strerror(errno));
    if (n->server) {
        yk__recall_serves(n);
        if (found.everywhere)
            snprintf(n->where, sizeof(n->where), "%.60s:%d", n->s.host, n->s.port);
        else
            snprintf(n->where, sizeof(n->where), "%s", text);
        n->nodes = calloc((size_t)n->s.node_count, sizeof(*n->nodes));
        return n->nodes && epoll_ctl(n->epoll, EPOLL_CTL_ADD, n->refusals[0], &event) == 0
                   ? true
                   : yk__rendezvous_join_failed(n, code, "out of memory");
    }
    const yk__peer *peer = &n->client.link.channel.handshake.peer;
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
    n->cooldown = (yk__cooldown){.first = settings->fail_first, .most = settings->fail_most};
    n->err = err;
    n->port_held = n->refusals[0] = n->refusals[1] = n->client.link.fd = -1;
    n->client.gone = true; /* so far */
    n->beat = n->came = yk__now();
    n->epoll = n->link.fd = epoll_create1(EPOLL_CLOEXEC);
    n->link.step = yk__rendezvous_step;
    n->link.may_live = yk__views_may(n);
    if (yk__views_may(n) && (n->succession = calloc(1, sizeof(*n->succession)))) {
        n->succession->local.gone = n->succession->line.gone = true;
        n->succession->local.link.fd = n->succession->line.link.fd = -1;
    }
    bool joined = false;
    if (n->epoll < 0 || pipe2(n->refusals, O_CLOEXEC | O_NONBLOCK) || getrandom(&n->id, sizeof(n->id), 0) < 0) {
        yk__rendezvous_join_failed(n, code, strerror(errno));
    } else if (!yk__recall_open(n)) {
        yk__rendezvous_join_failed(n, code, "out of memory");
    } else if (yk__identity_init(&n->identity, "launch", NULL, 0, settings->job) || !open_register(n)) {
        yk__rendezvous_join_failed(n, code, yk_last_error()->message);
        yk_clear_error();
    } else {
        joined = find_node_0(n, deadline, code) &&
                 (n->server ? yk__rendezvous_gather(n, deadline, code) : await_plan(n, deadline, code));
    }
    yk__recall_settled(n);
    if (joined && !n->server)
        *plan = n->plan;
    else if (joined && !first_plans(n, plan))
        joined = yk__rendezvous_join_failed(n, code, "no free port for rank 0");
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
    yk__survivors_clear(n);
    n->cause_seen = n->asked = n->end_all = n->reported = n->stopping = n->have_end = n->again = n->link.done = false;
    n->any_left = n->any_unsaved = n->any_asked = false;
    *code = EXIT_FAILED;
    if (!n->server) { /* node 0 may wait for others, to be enough */
        double more = yk__views_may(n) ? n->s.join_timeout + n->s.last_call : 0;
        if (!await_plan(n, yk__now() + n->s.node_timeout + more, code))
            return false;
        *plan = n->plan;
        return true;
    }
    n->stop = 0;
    n->link.hung = false;
    n->restart += !n->changing;
    n->attempt++;
    if (yk__views_may(n))
        return yk__views_next(n, plan, code);
    if (!yk__rendezvous_make_plan(n, plan)) {
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
    yk__live_traces_end(n);
    yk__register_close(n->reg, n->server && !yk__succession_cut(n) && (n->link.done || !n->running));
    yk__succession_close(n);
    yk__recall_close(n);
    yk__agent_client_clear(&n->client);
    yk__store_server_stop(n->server);
    yk__listeners_clear(&n->listeners);
    free(n->table);
    for (int i = 0; i < n->joined; i++)
        yk__agent_node_free(n->nodes[i]);
    free(n->nodes);
    yk__waiting_clear(n);
    yk__cooldown_clear(&n->cooldown);
    for (int i = 0; i < 2; i++) {
        if (n->refusals[i] >= 0)
            close(n->refusals[i]);
    }
    if (n->port_held >= 0)
        close(n->port_held);
    if (n->epoll >= 0)
        close(n->epoll);
    yk__survivors_clear(n);
    yk__outcome_clear(&n->end);
    yk__identity_clear(&n->identity);
    free(n->departed);
    free(n);
}

const char *yk__rendezvous_guide(const yk__rendezvous *n)
{
    return n && n->succession && n->succession->where[0] ? n->succession->where : NULL;
}
