/*
 * rendezvous.c - how the launchers of a job's nodes meet: node 0 gathers the others, numbers them, and tells each its
 * ranks. Layer: launch.
 *
 * Invariants: a peer has a slot at node 0 from its first byte on; unauthenticated are limited in number and time, the
 * oldest going first; only one that has proved the secret is heard. Nodes without a number get the free ones in the
 * order in which they came, once all are there.
 */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/agents.h"
#include "launch/exit_codes.h"

enum { MOST_UNAUTHENTICATED = 256, ACCEPT_AT_ONCE = 16 };
static const double notice_after = 5;

/* ---- node 0: who comes ------------------------------------------------------------------------------------------ */
static void note_refusal(yk__rendezvous *n, const char *why)
{
    for (int i = 0; i < n->refused; i++) {
        if (strcmp(n->reasons[i], why) == 0)
            return;
    }
    if (n->refused == AGENT_REASONS)
        return;
    snprintf(n->reasons[n->refused++], YK__WHY_SIZE, "%s", why);
    yk__relay_say(n->err, "yoke run: turned away: %s\n", why);
    yk__relay_sink_flush(n->err);
}

void yk__rendezvous_forget(yk__rendezvous *n, int slot)
{
    yk__agent_peer *p = n->peers[slot];
    if (p->handshake.state == YK__HANDSHAKE_FAILED && !p->handshake.garbage)
        note_refusal(n, p->handshake.why);
    n->joined -= p->joined;
    yk__agent_peer_free(p);
    n->peers[slot] = NULL;
}

void yk__rendezvous_accept(yk__rendezvous *n)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) { /* then those that are there are heard */
        int fd = accept4(n->listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        yk__socket_private(fd);
        yk__socket_tune(fd);
        int slot = -1, unauthenticated = 0, oldest = -1;
        for (int k = 0; k < n->slots; k++) {
            if (!n->peers[k]) {
                slot = k;
            } else if (!n->peers[k]->joined) {
                unauthenticated++;
                if (oldest < 0 || n->peers[k]->came < n->peers[oldest]->came)
                    oldest = k;
            }
        }
        if (slot < 0 || unauthenticated >= MOST_UNAUTHENTICATED)
            yk__rendezvous_forget(n, slot = oldest);
        if (!(n->peers[slot] = yk__agent_peer_create(fd, n->epoll, &n->identity, false)))
            yk__socket_close(fd);
    }
}

/* Whether a node may join; the reason otherwise. */
static bool fits(yk__rendezvous *n, yk__agent_peer *p, int node_count, char why[YK__WHY_SIZE])
{
    char me[64];
    snprintf(me, sizeof(me), "node 0 (host %.40s)", n->identity.host);
    if (node_count != n->s.node_count)
        snprintf(why, YK__WHY_SIZE, "wrong number of nodes: host %s says --nnodes %d, %s says %d", p->who.host,
                 node_count, me, n->s.node_count);
    else if (p->listed != 1 && p->listed != node_count)
        snprintf(why, YK__WHY_SIZE, "host %s has %d counts of processes for %d nodes", p->who.host, p->listed,
                 node_count);
    else if (p->listed > 1 && n->s.listed == p->listed &&
             memcmp(p->counts, n->s.counts, (size_t)p->listed * sizeof(int)) != 0)
        snprintf(why, YK__WHY_SIZE,
                 "host %s says other numbers with --nproc-per-node than %s; they have to be the same", p->who.host, me);
    else if (fabs(p->timeout - n->s.node_timeout) > 1e-3) /* who beats more slowly than he is expected to seems lost */
        snprintf(why, YK__WHY_SIZE, "host %s says --node-timeout %g, %s says %g; they have to be the same", p->who.host,
                 p->timeout, me, n->s.node_timeout);
    else if (p->wanted >= node_count || p->wanted == 0)
        snprintf(why, YK__WHY_SIZE, "host %s says --node-rank %d, and %s has rank 0 of %d", p->who.host, p->wanted, me,
                 node_count);
    else if (n->joined == node_count - 1)
        snprintf(why, YK__WHY_SIZE, "host %s comes too late: the job of %s has its %d nodes", p->who.host, me,
                 node_count);
    else
        *why = '\0';
    for (int i = 0; i < n->slots && !*why && p->wanted > 0; i++) {
        const yk__agent_peer *other = n->peers[i];
        if (other && other->joined && other->wanted == p->wanted)
            snprintf(why, YK__WHY_SIZE, "host %s says --node-rank %d, and so does host %s (pid %u)", p->who.host,
                     p->wanted, other->who.host, other->who.pid);
    }
    return !*why;
}

void yk__rendezvous_take_join(yk__rendezvous *n, yk__agent_peer *p, yk__reader *r)
{
    char why[YK__WHY_SIZE];
    int node_count = (int)yk__read_u32(r);
    p->timeout = 1e-3 * yk__read_u32(r);
    p->wanted = (int)yk__read_u32(r) - 1;
    p->listed = (int)yk__read_u32(r);
    if (p->joined || p->listed < 1 || p->listed > 4096 || p->counts ||
        !(p->counts = calloc((size_t)p->listed, sizeof(int))))
        r->bad = true;
    for (int i = 0; i < p->listed && !r->bad; i++) {
        p->counts[i] = (int)yk__read_u32(r);
        r->bad |= p->counts[i] < 1 || p->counts[i] > 4096;
    }
    if (!yk__read_finished(r))
        snprintf(why, sizeof(why), "host %s sent what no launcher sends", p->who.host);
    else if (fits(n, p, node_count, why)) {
        p->joined = true;
        n->joined++;
        return;
    }
    note_refusal(n, why);
    yk__rendezvous_refuse(n, p, why);
}

void yk__rendezvous_refuse(yk__rendezvous *n, yk__agent_peer *p, const char *text)
{
    yk__wire wire = {0};
    yk__wire_put_value(&wire, text, strlen(text));
    if (p)
        yk__agent_peer_send(p, n->epoll, AGENT_REFUSED, &wire);
    else
        yk__rendezvous_send_all(n, AGENT_REFUSED, &wire);
    yk__wire_clear(&wire);
}

/* Where rank 0 is to serve the processes' own store: the port behind the launchers', if nobody listens on it. */
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

/* Gives out the numbers that were not asked for in the order in which the nodes came; then the ranks. */
static bool number_nodes(yk__rendezvous *n)
{
    yk__agent_peer **by_node = calloc((size_t)n->s.node_count, sizeof(*by_node));
    if (!by_node)
        return false;
    for (int i = 0; i < n->slots; i++) {
        yk__agent_peer *p = n->peers[i];
        if (p && p->joined && p->wanted > 0)
            by_node[p->node = p->wanted] = p;
    }
    for (int node = 1; node < n->s.node_count; node++) {
        yk__agent_peer *first = NULL;
        for (int i = 0; i < n->slots && !by_node[node]; i++) {
            yk__agent_peer *p = n->peers[i];
            if (p && p->joined && p->node < 0 && (!first || p->came < first->came))
                first = p;
        }
        if (first)
            by_node[first->node = node] = first;
    }
    n->world = n->own_local = local_of(n->s.counts, n->s.listed, 0);
    bool whole = true;
    for (int node = 1; node < n->s.node_count && whole; node++) {
        yk__agent_peer *p = by_node[node];
        if (!(whole = p != NULL))
            break;
        p->first = n->world;
        p->local = local_of(p->counts, p->listed, node);
        n->world += p->local;
    }
    free(by_node);
    return whole;
}

static bool send_plans(yk__rendezvous *n, yk__agent_plan *plan)
{
    *plan = (yk__agent_plan){.local = n->own_local,
                             .world = n->world,
                             .port = port_for_ranks(n),
                             .restart = n->restart,
                             .restarts = n->s.restarts};
    if (!plan->port)
        return false;
    for (int i = 0; i < n->slots; i++) {
        yk__agent_peer *p = n->peers[i];
        if (!p || !p->joined)
            continue;
        yk__agent_plan theirs = *plan;
        theirs.node = p->node;
        theirs.first = p->first;
        theirs.local = p->local;
        yk__wire wire = {0};
        yk__agent_put_plan(&wire, &theirs);
        yk__agent_peer_send(p, n->epoll, AGENT_PLAN, &wire);
        yk__wire_clear(&wire);
        p->ended = p->stopping = false;
    }
    n->plan = *plan;
    return true;
}

/* "missing: node 2" with what the listener knows of those that were turned away. */
static void say_missing(const yk__rendezvous *n, char *text, size_t size)
{
    int missing = n->s.node_count - 1 - n->joined;
    size_t used = (size_t)snprintf(text, size, "%d of %d nodes did not come to %s within %g s: missing %s", missing,
                                   n->s.node_count, n->where, n->s.join_timeout, missing > 1 ? "nodes" : "node");
    bool any = false;
    const char *before = " ";
    for (int i = 0; i < n->slots; i++)
        any |= n->peers[i] && n->peers[i]->joined && n->peers[i]->wanted < 0;
    for (int node = 1; node < n->s.node_count && !any && used < size - 24; node++) {
        bool there = false;
        for (int i = 0; i < n->slots; i++)
            there |= n->peers[i] && n->peers[i]->joined && n->peers[i]->wanted == node;
        if (!there) {
            used += (size_t)snprintf(text + used, size - used, "%s%d", before, node);
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
    if (!n->coordinator)
        yk__rendezvous_refuse(n, NULL, text);
    yk__relay_say(n->err, "yoke run: %s\n", text);
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
        for (int i = 0; i < n->slots; i++) {
            if (n->peers[i] && n->peers[i]->gone)
                yk__rendezvous_forget(n, i);
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
        yk__rendezvous_hear_coordinator(n);
        if (n->planned)
            break;
        if (n->refusal[0] || n->coordinator->gone) {
            snprintf(text, sizeof(text), "%s: %s", n->coordinator_name,
                     n->refusal[0] ? n->refusal : n->coordinator->why);
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

static void ask_to_join(yk__rendezvous *n)
{
    yk__wire wire = {0};
    yk__wire_put_u32(&wire, (uint32_t)n->s.node_count);
    yk__wire_put_u32(&wire, (uint32_t)(1e3 * n->s.node_timeout + 0.5));
    yk__wire_put_u32(&wire, (uint32_t)(n->s.node + 1));
    yk__wire_put_u32(&wire, (uint32_t)n->s.listed);
    for (int i = 0; i < n->s.listed; i++)
        yk__wire_put_u32(&wire, (uint32_t)n->s.counts[i]);
    yk__agent_peer_send(n->coordinator, n->epoll, AGENT_JOIN, &wire);
    yk__wire_clear(&wire);
}

/* Becomes node 0 or connects to it. */
static bool find_node_0(yk__rendezvous *n, double deadline, int *code)
{
    char text[YK__ADDRESS_TEXT];
    yk__discovery *discovery = calloc(1, sizeof(*discovery));
    if (!discovery)
        return join_failed(n, code, "out of memory");
    *discovery = (yk__discovery){.host = n->s.host,
                                 .port = n->s.port,
                                 .may_listen = n->s.node <= 0,
                                 .must_listen = n->s.node == 0,
                                 .deadline = deadline,
                                 .identity = &n->identity};
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
    if (found.fd < 0)
        return join_failed(n, code, found.why);
    if (found.listens) {
        n->listening = found.fd;
        snprintf(n->where, sizeof(n->where), "%s", yk__address_format(&found.address, text));
        struct epoll_event event = {.events = EPOLLIN};
        n->slots = n->s.node_count - 1 + MOST_UNAUTHENTICATED;
        n->peers = calloc((size_t)n->slots, sizeof(*n->peers));
        if (!n->peers || epoll_ctl(n->epoll, EPOLL_CTL_ADD, n->listening, &event))
            return join_failed(n, code, "out of memory");
        return true;
    }
    n->coordinator = yk__agent_peer_create(found.fd, n->epoll, &n->identity, true);
    if (!n->coordinator) {
        yk__socket_close(found.fd);
        return join_failed(n, code, "out of memory");
    }
    n->coordinator->who = found.peer;
    snprintf(n->coordinator_name, sizeof(n->coordinator_name), "node 0 (host %s, pid %u, at %s)", found.peer.host,
             found.peer.pid, yk__address_format(&found.address, text));
    ask_to_join(n);
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
    n->listening = n->port_held = -1;
    n->beat = yk__now();
    n->epoll = n->link.fd = epoll_create1(EPOLL_CLOEXEC);
    n->link.step = yk__rendezvous_step;
    bool joined = false;
    if (n->epoll < 0 || yk__identity_init(&n->identity, "launch", NULL, 0, settings->job)) {
        join_failed(n, code, n->epoll < 0 ? strerror(errno) : yk_last_error()->message);
        yk_clear_error();
    } else {
        joined = find_node_0(n, deadline, code) &&
                 (n->coordinator ? await_plan(n, deadline, code) : gather(n, deadline, code));
    }
    if (joined && n->coordinator)
        *plan = n->plan;
    else if (joined && !send_plans(n, plan))
        joined = join_failed(n, code, "no free port for rank 0");
    if (joined)
        return n;
    if (n->err) /* otherwise a thread still uses it */
        yk__rendezvous_close(n);
    return NULL;
}

bool yk__rendezvous_next(yk__rendezvous *n, yk__agent_plan *plan, int *code)
{
    yk__outcome_clear(&n->end);
    n->cause_seen = n->asked = n->reported = n->stopping = n->have_end = n->again = n->link.done = false;
    n->any_left = n->any_unsaved = n->any_asked = false;
    *code = EXIT_FAILED;
    if (n->coordinator) {
        if (!await_plan(n, yk__now() + n->s.node_timeout, code))
            return false;
        *plan = n->plan;
        return true;
    }
    n->stop = 0;
    n->restart++;
    return send_plans(n, plan) || join_failed(n, code, "no free port for rank 0");
}

void yk__rendezvous_close(yk__rendezvous *n)
{
    if (!n)
        return;
    /* The others close first: what they have not read yet would be lost with the connection. */
    double deadline = yk__now() + 1;
    for (bool open = true; open && yk__now() < deadline;) {
        open = false;
        for (int i = 0; i < n->slots; i++) {
            yk__agent_peer *p = n->peers[i];
            if (!p || !p->joined || p->gone)
                continue;
            yk__agent_peer_move(p, n->epoll);
            p->in.size = 0;
            if (p->out.size == p->sent && !p->reported && !p->gone)
                p->reported = shutdown(p->fd, SHUT_WR) == 0;
            open |= !p->gone && !p->finished;
        }
        if (open && yk__supervisor_pause(n->epoll, yk__now() + 0.05))
            break;
    }
    for (int i = 0; i < n->slots; i++)
        yk__agent_peer_free(n->peers[i]);
    free(n->peers);
    yk__agent_peer_free(n->coordinator);
    yk__socket_close(n->listening);
    if (n->port_held >= 0)
        close(n->port_held);
    if (n->epoll >= 0)
        close(n->epoll);
    yk__outcome_clear(&n->end);
    yk__identity_clear(&n->identity);
    free(n);
}
