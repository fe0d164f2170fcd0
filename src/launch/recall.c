/*
 * recall.c - a launcher that has become node 0, because nobody listened at the job's address, is called by the one that
 * keeps the job, which has gone on without node 0. It asks to join there, and is node 0 no more. Layer: launch.
 *
 * Until its first attempt begins, node 0 may be called. With fewer nodes than all it does not begin before a keeper
 * that lives has had the time to call (recall_patience), even where so few would do. Of several calls that of the
 * highest term counts: a keeper that was cut off, and has not noticed it so far, has a lower one. Who has come to this
 * launcher meanwhile is sent on (PLAN_ELSEWHERE), and so is who comes later, as long as this launcher lives: the store
 * that it has served as node 0 stays for that, the *door*, in which no process of any job finds or leaves anything
 * (yk__store_server_options.standby). So the old command of every node works again once node 0 is back.
 *
 * Invariant: with a door this launcher is not node 0, `server` of the rendezvous is NULL, or that of a keeper.
 */
#include "launch/recall.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/escape.h"
#include "launch/succession.h"
#include "net/store_table.h"

/* Seconds: several calls of calling.c; for a connection to who has called. */
static const double recall_patience = 1, connect_patience = 1;

struct yk__recall {
    bool begins;   /* this launcher has no part in a job yet */
    double serves; /* since when it is node 0; 0: it is not */
    /* the last call that counts */
    uint64_t term, pid;
    char where[YK__ADDRESS_TEXT], host[64];
    bool due;    /* it is to be followed */
    bool warned; /* of another keeper, while this launcher's own job runs */
    double lost; /* when the one that was followed was found lost; 0: it is there */
    char served_at[YK__ADDRESS_TEXT + YK__HOST_SIZE]; /* where this launcher was node 0 */
    char found[YK__HOST_SIZE];                        /* the host of `where`, which is node 0's for the processes */
    /* the door */
    yk__store_server *server;
    yk__agent_client client; /* to it */
};

static void say(yk__rendezvous *n, const char *text)
{
    char plain[1000];
    yk__relay_say(n->err, "yoke run: %s\n", yk__escape(text, strlen(text), plain, sizeof(plain)));
    yk__relay_sink_flush(n->err);
}

bool yk__recall_open(yk__rendezvous *n)
{
    if (!yk__views_may(n) || n->s.etcd)
        return true;
    n->recall = calloc(1, sizeof(*n->recall));
    if (!n->recall)
        return false;
    n->recall->begins = true;
    n->recall->client = (yk__agent_client){.gone = true, .link.fd = -1};
    return true;
}

void yk__recall_serves(yk__rendezvous *n)
{
    if (n->recall)
        n->recall->serves = yk__now();
}

void yk__recall_settled(yk__rendezvous *n)
{
    if (n->recall)
        n->recall->begins = false;
}

double yk__recall_until(const yk__rendezvous *n)
{
    const yk__recall *r = n->recall;
    return r && r->begins && r->serves > 0 ? r->serves + recall_patience : 0;
}

void yk__recall_hear(yk__rendezvous *n, uint64_t id, yk__reader *reader)
{
    yk__recall *r = n->recall;
    char where[YK__ADDRESS_TEXT], host[64], text[600];
    uint64_t term = yk__read_u64(reader);
    bool good = yk__agent_read_text(reader, where, sizeof(where)) && yk__agent_read_text(reader, host, sizeof(host));
    uint64_t pid = yk__read_u32(reader);
    if (!r || !good || !yk__read_finished(reader) || id == n->id || yk__rendezvous_node(n, id))
        return;
    if (r->begins && (term > r->term || (term == r->term && r->server && n->client.gone))) {
        r->term = term;
        r->pid = pid;
        memcpy(r->where, where, sizeof(where));
        memcpy(r->host, host, sizeof(host));
        r->due = true;
    } else if (!r->begins && !r->server && n->server && n->succeeded == 0 && !r->warned) {
        r->warned = true;
        snprintf(text, sizeof(text),
                 "host %s (pid %" PRIu64
                 ") keeps a job of this name at %s, which was kept at this address before; this "
                 "job was begun anew beside it (stop one of them; --job-id tells jobs apart)",
                 host, pid, where);
        say(n, text);
    }
}

/* A launcher that has come is told where the job is. */
static void send_on(yk__rendezvous *n, yk__agent_client *client, uint64_t id, int waits)
{
    char key[32];
    yk__wire wire = {0};
    yk__wire_put_u8(&wire, PLAN_ELSEWHERE);
    yk__agent_put_text(&wire, n->recall->where);
    yk__agent_plan_key(key, id, waits);
    yk__agent_client_set(client, key, &wire);
    yk__wire_clear(&wire);
}

/* The store of this launcher, which is node 0, becomes the door. */
static void open_door(yk__rendezvous *n)
{
    yk__recall *r = n->recall;
    struct epoll_event event = {.events = EPOLLIN};
    snprintf(r->served_at, sizeof(r->served_at), "%s", n->where);
    r->server = n->server;
    r->client = n->client;
    n->server = NULL;
    n->client = (yk__agent_client){.gone = true, .link.fd = -1};
    epoll_ctl(n->epoll, EPOLL_CTL_MOD, r->client.link.fd, &event);
    for (int i = 0; i < n->joined; i++) {
        send_on(n, &r->client, n->nodes[i]->id, n->nodes[i]->waits);
        yk__agent_node_free(n->nodes[i]);
    }
    for (int i = 0; i < n->waiting_count; i++)
        send_on(n, &r->client, n->waiting[i]->id, n->waiting[i]->waits);
    yk__waiting_clear(n);
    free(n->nodes);
    n->nodes = NULL;
    n->joined = 0;
}

bool yk__recall_follow(yk__rendezvous *n)
{
    yk__recall *r = n->recall;
    char host[YK__HOST_SIZE], why[YK__WHY_SIZE], text[700];
    int port;
    yk__address address;
    yk__agent_client next = {.heard = yk__now()};
    struct epoll_event event = {.events = EPOLLIN};
    if (!r || !r->due)
        return false;
    r->due = false;
    double until = yk__now() + connect_patience;
    if (yk__host_port_parse(r->where, -1, host, &port)) {
        yk_clear_error();
        return false;
    }
    if (yk__resolve(host, port, until, &address, 1, why) != 1 ||
        yk__store_link_connect(&next.link, &address, &n->identity, until, why) != YK__REACHED)
        return false; /* it calls again */
    if (epoll_ctl(n->epoll, EPOLL_CTL_ADD, next.link.fd, &event)) {
        yk__agent_client_clear(&next);
        return false;
    }
    if (!r->server)
        open_door(n);
    else
        yk__agent_client_clear(&n->client);
    n->client = next;
    n->sending = n->spare = false;
    n->waits = 0;
    n->renewal = 0;
    n->beat = yk__now();
    n->s.node = -1; /* whatever was asked for: node 0 is who keeps the list */
    snprintf(r->found, sizeof(r->found), "%s", host);
    n->s.host = r->found;
    n->s.port = port;
    r->lost = 0;
    int most = n->s.counts[0];
    yk__listeners_open(&n->listeners, n->client.link.fd, false, most);
    if (n->succession && !n->succession->store)
        yk__succession_open(n, n->client.link.fd);
    yk__rendezvous_ask(n, &n->client);
    yk__recall_moved(n, r->where);
    snprintf(n->coordinator_name, sizeof(n->coordinator_name), "the keeper of the list at %.100s", r->where);
    snprintf(text, sizeof(text),
             "the job that was kept at %.200s goes on, and host %s (pid %" PRIu64 ") keeps it at %s, in term %" PRIu64
             "; this node joins it there, and begins no job of its own",
             r->served_at, r->host, r->pid, r->where, r->term);
    say(n, text);
    return true;
}

bool yk__recall_waits(yk__rendezvous *n)
{
    yk__recall *r = n->recall;
    char text[700];
    if (!r || !r->server || !r->begins || !n->client.gone)
        return false;
    if (r->lost == 0) {
        r->lost = yk__now();
        snprintf(text, sizeof(text), "%s is lost: %.400s; this node waits until another one that keeps the list calls",
                 n->coordinator_name, n->client.why);
        say(n, text);
    }
    return yk__now() < r->lost + 4 * n->s.node_timeout + 5;
}

void yk__recall_step(yk__rendezvous *n)
{
    yk__recall *r = n->recall;
    yk__reader report;
    if (!r || !r->server)
        return;
    yk__agent_client_move(&r->client);
    while (yk__agent_client_next(&r->client, &report)) {
        unsigned kind = yk__read_u8(&report);
        uint64_t id = yk__read_u64(&report);
        if (kind == REPORT_JOIN && !report.bad)
            send_on(n, &r->client, id, 0);
        else if (kind == REPORT_RECALL)
            yk__recall_hear(n, id, &report);
        yk__agent_client_delete(&r->client, "reports", r->client.next - 1);
    }
    yk__rendezvous_read_refusals(n);
}

void yk__recall_moved(yk__rendezvous *n, const char *where)
{
    if (!n->recall || !n->recall->server)
        return;
    if (where != n->recall->where)
        snprintf(n->recall->where, sizeof(n->recall->where), "%s", where);
    yk__agent_client_set_text(&n->recall->client, YK__GUIDE_KEY, where);
}

void yk__recall_close(yk__rendezvous *n)
{
    if (!n->recall)
        return;
    yk__agent_client_clear(&n->recall->client);
    yk__store_server_stop(n->recall->server);
    free(n->recall);
    n->recall = NULL;
}
