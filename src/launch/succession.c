/*
 * succession.c - another launcher takes node 0's part. Layer: launch.
 *
 * net/keeper.c decides who may, net/store_keeping.c is the keeper's store among its followers; here are the followers,
 * and how one of them becomes the keeper. Every launcher but node 0's serves a small store of its own from the start:
 *
 *   asks      a list: u8 ASK_TERM, u64 term, u64 id: another launcher asks for the promise of a term; ASK_CALL
 *             likewise, one that keeps the store;
 *             u8 ASK_PROMISED, u64 id, u64 term, u64 u64 of the replica, nodes, u32 count, keys and values
 *   promised  u64: the latest term that this launcher has promised, which a keeper reads that asks for less
 *   keeper    "HOST:PORT", for the processes of this node: where the job's store is by now (YK__GUIDE_KEY)
 *
 * and among the kept keys, which all have a replica of, "ranks./table" has what node 0 knows of the nodes,
 * "ranks./cooldown" how often those of which host have failed, and "ranks./former" where the list was kept so far:
 * there the keeper calls who is started anew (calling.c). Who promises a term connects to the store of the launcher
 * that has asked, and stays there: it is the job's store when a majority has come. Reports that were lost with the old
 * keeper are made again.
 *
 * Invariants: a launcher whose keeper is silent kills its processes after two thirds of --node-timeout as before
 * (survivors.c), by which a new one has begun 0.45 of it after the old one fell silent; a new keeper gives every node
 * all of --node-timeout to come to it.
 *
 * Note [A keeper that ends]
 * A system that ends a process closes its connections in order, which nothing between two hosts can feign, but only
 * those on which it has read all that had come: it resets the others. A launcher that is killed has not read all: the
 * end of its processes has the others write to the store in that moment. So a follower has a second connection to its
 * keeper, `line`, on which it says nothing behind the hand-shake; that one is closed in order for certain.
 *
 * Note [A keeper that is left]
 * A keeper whose connection to a launcher ends says that the processes there are gone. So a launcher that leaves its
 * keeper, whose own clock lets them run for some time, does not end that connection: it is *parted*, and stays open
 * until another keeper has sent something, behind which that one says nothing any more, or until this launcher ends.
 *
 * Note [No wait for a connection]
 * The time between `patience` of keeper.c, after which another keeper is looked for, and the fence of survivors.c is a
 * fifth of --node-timeout, in which hosts that are down, lost packets and slow links may not stand in each other's way.
 * So all connections here are made beside each other. Where no word of the other side has come for `first_patience`
 * another one is begun, as the system would send its first packet again after a whole second only; then after twice as
 * long each.
 */
#include "launch/succession.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "launch/exit_codes.h"
#include "net/store_table.h"

#define TABLE_KEY    YK__KEEPING_PREFIX "/table"
#define COOLDOWN_KEY YK__KEEPING_PREFIX "/cooldown"
#define FORMER_KEY   YK__KEEPING_PREFIX "/former"
#define PROMISED_KEY "promised"
enum { ASK_TERM = 1, ASK_PROMISED, ASK_CALL };
/* Seconds: for an answer at an address; see Note [No wait for a connection]; between two that ask, so that one does;
 * until a keeper calls again. */
static const double connect_patience = 0.3, first_patience = 0.15, ask_after = 0.1, call_again = 0.5, look_again = 0.02,
                    look_late = 1;
/* Parts of --node-timeout: until a launcher asks once more, which is more than a promise binds that has come to nothing
 * (keeper.c); between the first and the last one to ask, at most. */
static const double ask_again = 0.1, ask_within = 0.1;
/* Likewise: for so long this launcher does not ask itself after it has given its promise to another. That is longer
 * than the promise binds, so that one that has become the keeper, and is slow to say so, is not deposed. */
static const double ask_past = 0.13;
/* The part of --node-timeout for which nothing was heard of the keeper, after which every moment counts. */
static const double look_closely = 0.3;
/* The part of --node-timeout without a majority after which a keeper ends its processes: less than keeper.c has others
 * wait, more than it goes on answering. */
static const double fence_after = 0.4;

/* ---- connections ------------------------------------------------------------------------------------------------- */

static bool watch_fd(yk__rendezvous *n, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(n->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool connect_to(yk__rendezvous *n, yk__agent_client *c, const yk__address *address)
{
    char why[YK__WHY_SIZE];
    yk__agent_client_clear(c);
    *c = (yk__agent_client){.heard = yk__now()};
    if (yk__store_link_begin(&c->link, address, &n->identity, why) != YK__REACHED) {
        c->gone = true;
        c->link.fd = -1;
        return false;
    }
    if (watch_fd(n, c->link.fd))
        return true;
    yk__agent_client_lose(c, strerror(errno));
    return false;
}

/* True where nothing of the other side has come for as long as *patience, which doubles: then nothing of this side's
 * has been taken either, and a new connection is to be made. */
static bool is_unheard(const yk__agent_client *c, double tried, double *patience)
{
    if (c->gone || c->link.channel.handshake.state != YK__HANDSHAKE_HELLO || yk__now() < tried + *patience)
        return false;
    *patience *= 2;
    return true;
}

static void end_parted(yk__succession *s)
{
    while (s->parted_count)
        yk__socket_reset(s->parted[--s->parted_count]);
}

void yk__succession_part(yk__rendezvous *n, const char *why)
{
    yk__succession *s = n->succession;
    if (!s || n->server) {
        yk__agent_client_lose(&n->client, why);
        return;
    }
    int fd = yk__agent_client_park(&n->client, why);
    if (fd < 0)
        return;
    epoll_ctl(n->epoll, EPOLL_CTL_DEL, fd, NULL);
    if (s->parted_count < YK__MOST_PARTED) /* else it stays open until this launcher ends */
        s->parted[s->parted_count++] = fd;
}

static bool resolve(const char *where, yk__address *address)
{
    char host[YK__HOST_SIZE], why[YK__WHY_SIZE];
    int port;
    if (!*where || yk__host_port_parse(where, -1, host, &port)) {
        yk_clear_error();
        return false;
    }
    return yk__resolve(host, port, yk__now() + connect_patience, address, 1, why) == 1;
}

void yk__succession_open(yk__rendezvous *n, int connected)
{
    yk__succession *s = n->succession;
    yk__address local = {.size = sizeof(local.storage)};
    if (!s || getsockname(connected, (struct sockaddr *)&local.storage, &local.size))
        return;
    yk__address_set_port(&local, 0);
    yk__store_server_options options = n->serving;
    options.standby = true;
    s->store = yk__store_server_start(&local, &n->identity, &options, &s->address);
    if (s->store)
        yk__address_format(&s->address, s->where);
    else
        yk_clear_error(); /* another one has to succeed */
}

/* See Note [A keeper that ends]. Without one, for which there may be no descriptor, the end may take --node-timeout. */
static void drop_line(yk__succession *s)
{
    yk__agent_client_clear(&s->line);
    s->line = (yk__agent_client){.gone = true, .link.fd = -1};
}

static void drop_probe(yk__succession *s)
{
    if (s->probes)
        yk__socket_close(s->probe);
    s->probes = false;
}

static void open_line(yk__rendezvous *n)
{
    drop_line(n->succession);
    (void)connect_to(n, &n->succession->line, &n->client.link.far);
}

/* ---- the table of nodes ------------------------------------------------------------------------------------------ */

typedef struct table_entry {
    uint64_t id;
    int number, first, local;
    unsigned flags;
    yk__agent_facts facts;
} table_entry;
enum { FLAG_LEAVING = 1, FLAG_DEPARTS = 2 };

static void put_entry(yk__wire *w, uint64_t id, int number, int first, int local, unsigned flags,
                      const yk__agent_facts *facts)
{
    yk__wire_put_u64(w, id);
    yk__wire_put_u32(w, (uint32_t)number);
    yk__wire_put_u32(w, (uint32_t)first);
    yk__wire_put_u32(w, (uint32_t)local);
    yk__wire_put_u8(w, flags);
    yk__wire value = {0};
    yk__agent_put_facts(&value, facts);
    yk__wire_put_value(w, value.data, value.size);
    w->failed |= value.failed;
    yk__wire_clear(&value);
}

static void put_table(yk__rendezvous *n, yk__wire *w)
{
    yk__agent_facts own;
    uint32_t count = 1;
    yk__rendezvous_facts(n, &own);
    for (int i = 0; i < n->joined; i++)
        count += yk__succession_lists(n->nodes[i]);
    yk__wire_put_u32(w, (uint32_t)n->slots);
    yk__wire_put_u64(w, (uint64_t)n->restart);
    yk__wire_put_u64(w, (uint64_t)n->lost_view);
    yk__agent_put_text(w, n->lost ? n->lost : "");
    yk__wire_put_u32(w, count);
    put_entry(w, n->id, n->plan.node, n->plan.first, n->own_local, 0, &own);
    for (int i = 0; i < n->joined; i++) {
        const yk__agent_node *p = n->nodes[i];
        if (yk__succession_lists(p))
            put_entry(w, p->id, p->number, p->first, p->local,
                      (p->leaving ? FLAG_LEAVING : 0u) | (p->departs ? FLAG_DEPARTS : 0u), &p->facts);
    }
}

static bool read_entry(yk__reader *r, table_entry *e)
{
    e->id = yk__read_u64(r);
    e->number = (int)yk__read_u32(r);
    e->first = (int)yk__read_u32(r);
    e->local = (int)yk__read_u32(r);
    e->flags = yk__read_u8(r);
    size_t size = yk__read_u32(r);
    const unsigned char *bytes = yk__read_bytes(r, size);
    yk__reader facts = {bytes, bytes + (bytes ? size : 0), !bytes};
    return bytes && yk__agent_read_facts(&facts, &e->facts) && e->number >= 0 && e->first >= 0 && e->local >= 0;
}

/* The head of a table, in front of its entries. */
typedef struct table_head {
    int slots;
    int64_t restart, lost_view;
    char lost[4096];
    uint32_t count; /* of entries */
} table_head;

/* Begins to read the replica's table: the reader is left at its entries. False where there is none. */
static bool open_table(const yk__succession *s, yk__reader *r, table_head *head)
{
    const yk__bytes *value = yk__keyspace_get(&s->replica, yk__text_bytes(TABLE_KEY));
    if (!value)
        return false;
    *r = (yk__reader){value->data, value->data + value->size, false};
    head->slots = (int)yk__read_u32(r);
    head->restart = (int64_t)yk__read_u64(r);
    head->lost_view = (int64_t)yk__read_u64(r);
    bool good = yk__agent_read_text(r, head->lost, sizeof(head->lost));
    head->count = yk__read_u32(r);
    return good && !r->bad;
}

/* The address of the store of a node that the replica lists. */
static bool address_of(const yk__succession *s, uint64_t id, yk__address *address)
{
    yk__reader r;
    table_head head;
    bool found = false;
    if (!open_table(s, &r, &head))
        return false;
    for (uint32_t i = 0; i < head.count && !found; i++) {
        table_entry e = {0};
        bool good = read_entry(&r, &e);
        found = good && e.id == id && e.facts.keeper && resolve(e.facts.keeper, address);
        yk__agent_facts_clear(&e.facts);
        if (!good)
            break;
    }
    return found;
}

/* The first of the table is its keeper. */
static uint64_t keeper_of(const yk__succession *s)
{
    yk__reader r;
    table_head head;
    return open_table(s, &r, &head) && head.count ? yk__read_u64(&r) : 0;
}

/* ---- the keeper -------------------------------------------------------------------------------------------------- */

static void say_nodes(yk__rendezvous *n)
{
    yk__wire nodes = {0};
    unsigned count = 1;
    for (int i = 0; i < n->joined; i++)
        count += yk__succession_lists(n->nodes[i]);
    yk__wire_put_u16(&nodes, count);
    yk__wire_put_u64(&nodes, n->id);
    for (int i = 0; i < n->joined; i++)
        if (yk__succession_lists(n->nodes[i]))
            yk__wire_put_u64(&nodes, n->nodes[i]->id);
    yk__wire_put_u8(&nodes, YK__NODES_WANTED);
    yk__agent_client_plain(&n->client, YK__NODES, &nodes);
    yk__wire_clear(&nodes);
}

/* Writes the table, and says who is to be asked, where either has changed. */
static void write_table(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    yk__wire table = {0};
    put_table(n, &table);
    if (table.failed || (table.size == s->table.size && memcmp(table.data, s->table.data, table.size) == 0)) {
        yk__wire_clear(&table);
        return;
    }
    yk__agent_client_set(&n->client, TABLE_KEY, &table);
    yk__wire_clear(&s->table);
    s->table = table;
    if (!n->reg) /* else electing.c does */
        say_nodes(n);
    yk__wire order = {0};
    yk__wire_put_u8(&order, ORDER_KEEPER);
    yk__wire_put_u64(&order, s->voter.promised);
    yk__rendezvous_order(n, &order); /* for those that have come */
    yk__waiting_tell(n);
}
static void put_keep(yk__wire *w, const yk__rendezvous *n, uint64_t number, const yk__keeper_nodes *nodes)
{
    yk__wire_put_u64(w, n->id);
    yk__wire_put_u64(w, n->succession->voter.promised);
    yk__wire_put_u64(w, number);
    yk__wire_put_u32(w, (uint32_t)(1e3 * n->s.node_timeout + 0.5));
    yk__keeper_put_nodes(w, nodes);
}

/* The name by which node 0 was found, which may be that of another machine by the time it comes back. */
static void put_first(yk__rendezvous *n)
{
    char first[YK__HOST_SIZE + 8];
    bool bare = strchr(n->s.host, ':') && n->s.host[0] != '[';
    snprintf(first, sizeof(first), "%s%s%s:%d", bare ? "[" : "", n->s.host, bare ? "]" : "", n->s.port);
    if (!n->reg)
        yk__agent_client_set_text(&n->client, FORMER_KEY, first);
}

/* This launcher keeps the list now, and begins to call where others have. */
static void call_former(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    char former[YK__FORMER_TEXT] = "";
    const yk__bytes *before = yk__keyspace_get(&s->replica, yk__text_bytes(FORMER_KEY));
    if (n->reg)
        return;
    if (before && before->size < sizeof(former))
        memcpy(former, before->data, before->size);
    yk__former_add(former, s->kept_at);
    yk__agent_client_set_text(&n->client, FORMER_KEY, former);
    s->calling = yk__calling_start(&n->identity, n->id, s->voter.promised, s->where, former);
    if (!s->calling)
        yk_clear_error(); /* who comes to such an address does not hear of this one */
}

void yk__succession_begin(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    if (!s || s->on || !n->server || n->joined >= YK__KEEPER_NODES || n->s.node_count > YK__KEEPER_NODES)
        return;
    yk__keeper_nodes nodes = {.now = {1, {n->id}}, .all = n->reg};
    for (int i = 0; i < n->joined && !n->reg; i++) { /* etcd has this node alone, so far */
        const yk__agent_node *p = n->nodes[i];
        if (yk__succession_lists(p))
            nodes.now.ids[nodes.now.count++] = p->id;
    }
    nodes.old = nodes.now;
    s->on = s->keeps = true;
    s->began = yk__keeping_clock();
    yk__keeper_voter_begin(&s->voter, n->id, n->s.node_timeout, s->began);
    s->voter.promised = n->reg ? s->known.term : 1;
    yk__wire keep = {0};
    put_keep(&keep, n, 1, &nodes);
    yk__wire_put_u8(&keep, false);
    yk__wire_put_u32(&keep, 0);
    yk__agent_client_plain(&n->client, YK__KEEP, &keep);
    yk__wire_clear(&keep);
    write_table(n);
    yk__succession_put_cooldown(n);
    put_first(n);
}

void yk__succession_put_cooldown(yk__rendezvous *n)
{
    yk__wire counts = {0};
    if (!n->succession || !n->succession->keeps)
        return;
    yk__cooldown_put(&counts, &n->cooldown);
    if (!counts.failed)
        yk__agent_client_set(&n->client, COOLDOWN_KEY, &counts);
    yk__wire_clear(&counts);
}

bool yk__succession_cut(const yk__rendezvous *n)
{
    return n->succession && n->succession->lost_quorum;
}

static void ask_one(yk__rendezvous *n, uint64_t id, const yk__wire *ask);
static void end_asking(yk__succession *s);

static void put_ask(yk__wire *ask, const yk__rendezvous *n)
{
    yk__wire_put_u8(ask, n->succession->keeps ? ASK_CALL : ASK_TERM);
    yk__wire_put_u64(ask, n->succession->voter.promised);
    yk__wire_put_u64(ask, n->id);
}

/* A node that has not come has promised a later term than this keeper's, which that one so lifts: Note [A later term
 * for a keeper that lives] in net/keeper.c. Those that have come are asked by the store. */
static void lift(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    uint64_t before = s->voter.promised;
    if (yk__keeper_raise(&s->voter) == before)
        return;
    yk__log(YK_LOG_INFO, "yoke run: keeps the store in term %" PRIu64 ": a node has promised another launcher %" PRIu64,
            s->voter.promised, s->voter.highest);
    yk__wire term = {0};
    yk__wire_put_u64(&term, s->voter.promised);
    yk__agent_client_plain(&n->client, YK__LIFT, &term);
    yk__wire_clear(&term);
}

static bool is_awaited(const yk__rendezvous *n, const yk__agent_node *p)
{
    return !p->came && !p->gone && n->succeeded > 0;
}

/* Calls those that have not come to this launcher so far; who does not come in all of --node-timeout is lost. */
static void call_others(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    double now = yk__keeping_clock();
    yk__wire ask = {0};
    bool due = now > s->called + call_again;
    bool any = false;
    for (int i = 0; i < n->joined && due; i++)
        any |= is_awaited(n, n->nodes[i]);
    if (any && !n->reg) /* else the register has the term */
        lift(n);
    put_ask(&ask, n);
    if (due && !any)
        end_asking(s);
    for (int i = 0; i < n->joined && due; i++) {
        yk__agent_node *p = n->nodes[i];
        if (!is_awaited(n, p))
            continue;
        s->called = now;
        p->asked = s->voter.promised;
        ask_one(n, p->id, &ask);
        if (now > n->succeeded + n->s.node_timeout) {
            p->gone = true;
            p->gone_at = yk__now();
            snprintf(p->why, sizeof(p->why), "it has not come to the launcher that keeps the list now in %.3g s",
                     n->s.node_timeout);
        }
    }
    yk__wire_clear(&ask);
}

static void step_keeper(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    double heard = yk__store_server_heard(n->server), now = yk__keeping_clock();
    heard = heard > s->began ? heard : s->began;
    write_table(n);
    call_others(n);
    if (n->reg)
        yk__electing_keeper(n);
    yk__calling_may(s->calling, heard > s->began && now - heard < look_closely * n->s.node_timeout);
    for (char text[YK__WHY_SIZE]; yk__calling_said(s->calling, text);)
        yk__relay_say(n->err, "yoke run: %s\n", text);
    if (now - heard > fence_after * n->s.node_timeout && !s->lost_quorum) {
        s->lost_quorum = true;
        n->link.kill = true;
    }
}

/* ---- followers --------------------------------------------------------------------------------------------------- */

static void swap_replica(yk__succession *s)
{
    yk__keyspace_clear(&s->replica);
    s->replica = s->incoming;
    s->incoming = (yk__keyspace){0};
    s->receives = false;
}

static void read_nodes(yk__succession *s)
{
    const yk__bytes *value = yk__keyspace_get(&s->replica, yk__text_bytes(YK__KEEPING_NODES));
    yk__keeper_nodes nodes;
    if (!value)
        return;
    yk__reader r = {value->data, value->data + value->size, false};
    if (yk__keeper_read_nodes(&r, &nodes))
        s->voter.nodes = nodes;
}

/* Notes the failures that the keeper has counted, by the time at which this launcher hears of them. */
static void take_cooldown(yk__rendezvous *n, const yk__bytes *value)
{
    yk__reader r;
    if (!value)
        return;
    r = (yk__reader){value->data, value->data + value->size, false};
    (void)yk__cooldown_take(&n->cooldown, &r, yk__now());
}

static bool is_cooldown(yk__bytes key)
{
    return key.size == sizeof(COOLDOWN_KEY) - 1 && memcmp(key.data, COOLDOWN_KEY, key.size) == 0;
}

/* The latest promise of this launcher, for those that ask it for less. */
static void say_promised(yk__rendezvous *n)
{
    yk__wire term = {0};
    yk__wire_put_u64(&term, n->succession->voter.promised);
    yk__agent_client_set(&n->succession->local, PROMISED_KEY, &term);
    yk__wire_clear(&term);
}

/* The keeper that this launcher follows asks it for a later term. */
static void promise_lift(yk__rendezvous *n, uint64_t term)
{
    yk__succession *s = n->succession;
    if (!yk__keeper_promise_lift(&s->voter, term, yk__keeping_clock()))
        return;
    yk__log(YK_LOG_INFO, "yoke run: term %" PRIu64 " is promised to the keeper of the store", term);
    s->led = term;
    s->fed = false;
    say_promised(n);
    yk__wire lifted = {0};
    yk__wire_put_u64(&lifted, term);
    yk__agent_client_word(&n->client, YK__LIFTED, &lifted);
    yk__wire_clear(&lifted);
}

/* Takes what the keeper has changed, and says so when it is a whole. */
static void mirror(void *argument, yk__reader *r)
{
    yk__rendezvous *n = argument;
    yk__succession *s = n->succession;
    unsigned what = yk__read_u8(r);
    uint64_t number = yk__read_u64(r), sent = yk__read_u64(r);
    yk__bytes key = {0}, value = {0};
    yk_status status = YK_OK;
    if (what == YK__MIRROR_SET || what == YK__MIRROR_DELETE) {
        key.size = yk__read_u16(r);
        key.data = yk__read_bytes(r, key.size);
    }
    if (what == YK__MIRROR_SET) {
        value.size = yk__read_u32(r);
        value.data = yk__read_bytes(r, value.size);
    }
    uint64_t term = what == YK__MIRROR_LIFT ? yk__read_u64(r) : 0;
    if (!yk__read_finished(r) || !yk__keeper_takes(&s->voter, s->voter.promised))
        return;
    if (what == YK__MIRROR_LIFT) {
        promise_lift(n, term);
        return;
    }
    yk__keeper_hear(&s->voter, yk__keeping_clock());
    if (!s->fed) {
        yk__address_format(&n->client.link.far, s->kept_at);
        end_parted(s);
    }
    s->fed = true;
    yk__keyspace *space = s->receives ? &s->incoming : &s->replica;
    if (what == YK__MIRROR_CLEAR) {
        yk__keyspace_clear(&s->incoming);
        s->receives = true;
        return;
    }
    if (what == YK__MIRROR_SET)
        status = yk__keyspace_set(space, key, value);
    else if (what == YK__MIRROR_DELETE)
        (void)yk__keyspace_delete(space, key);
    if (status) { /* without memory it has not taken it, nor anything that follows */
        yk_clear_error();
        yk__succession_part(n, "there is no memory for what it keeps");
        return;
    }
    if (what == YK__MIRROR_SET && is_cooldown(key))
        take_cooldown(n, &value);
    if (s->receives && what != YK__MIRROR_BEAT)
        return;
    if (s->receives)
        swap_replica(s);
    s->voter.term = s->voter.promised;
    s->voter.number = number;
    if (what != YK__MIRROR_BEAT || s->voter.nodes.now.count == 0 || s->keeper == 0) {
        read_nodes(s);
        s->keeper = keeper_of(s);
    }
    yk__wire taken = {0};
    yk__wire_put_u64(&taken, number);
    yk__wire_put_u64(&taken, sent);
    yk__agent_client_word(&n->client, YK__TAKEN, &taken);
    yk__wire_clear(&taken);
}

/* Has the keeper of the promised term send what it keeps. */
static void follow_term(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    yk__wire follow = {0};
    s->fed = false;
    s->looked = 0;
    drop_probe(s);
    s->keeper = 0;
    s->led = s->voter.promised;
    n->client.mirrored = mirror;
    n->client.argument = n;
    say_promised(n);
    yk__wire_put_u64(&follow, n->id);
    yk__wire_put_u64(&follow, s->voter.promised);
    yk__wire_put_u64(&follow, s->voter.term);
    yk__agent_client_word(&n->client, YK__FOLLOW, &follow);
    yk__wire_clear(&follow);
    open_line(n);
}

static void say_where(yk__rendezvous *n, const char *where)
{
    yk__agent_client_set_text(&n->succession->local, YK__GUIDE_KEY, where);
    yk__recall_moved(n, where);
}

void yk__succession_follow(yk__rendezvous *n, uint64_t term)
{
    yk__succession *s = n->succession;
    char where[YK__ADDRESS_TEXT];
    if (!s || !s->store || s->on || term == 0)
        return;
    if (!connect_to(n, &s->local, &s->address))
        return;
    yk__agent_client_follow(&s->local, "asks");
    /* A launcher that has waited at another one has not come to node 0's address, which its processes are given. */
    say_where(n, yk__address_format(&n->client.link.far, where));
    s->on = true;
    yk__keeper_voter_begin(&s->voter, n->id, n->s.node_timeout, yk__keeping_clock());
    s->voter.promised = term;
    follow_term(n);
}

bool yk__succession_feeds(const yk__rendezvous *n)
{
    return !n->succession || !n->succession->on || n->succession->fed;
}

static bool is_another(const void *argument, uint64_t id)
{
    return id != *(const uint64_t *)argument;
}

bool yk__succession_pending(const yk__rendezvous *n)
{
    const yk__succession *s = n->succession;
    bool takes_part =
        s && s->on && !s->keeps && s->voter.term > 0 && !n->link.done && !n->link.kill && !n->refusal[0] && !n->closing;
    if (n->reg)
        return takes_part && yk__keeper_listed(&s->voter.nodes, n->id);
    /* The second of two nodes alone is no majority. */
    return takes_part && yk__keeper_quorum(&s->voter.nodes, is_another, &s->keeper);
}

/* ---- another keeper ---------------------------------------------------------------------------------------------- */

/* All that was reported is reported once more, to one who knows nothing of it. */
static void report_anew(yk__rendezvous *n)
{
    n->cause_seen = n->asked = n->reported = n->stopping = false;
    n->view = 0;
    n->retell = true;
    n->renewal = 0;
    n->beat = 0;
}

static void put_pair(void *argument, yk__bytes key, const yk__bytes *value)
{
    yk__wire *w = argument;
    yk__wire_put_key(w, (const char *)key.data, key.size);
    yk__wire_put_value(w, value->data, value->size);
}

static void put_replica(yk__wire *w, const yk__succession *s)
{
    yk__wire_put_u32(w, (uint32_t)yk__keyspace_count(&s->replica, yk__text_bytes(YK__KEEPING_PREFIX)));
    yk__keyspace_visit(&s->replica, yk__text_bytes(YK__KEEPING_PREFIX), put_pair, w);
}

static void look_at_keeper(yk__rendezvous *n);

static bool may_promise(yk__rendezvous *n, uint64_t id, uint64_t term, bool keeps)
{
    look_at_keeper(n);
    return yk__keeper_may_promise(&n->succession->voter, id, term, keeps, yk__keeping_clock());
}

/* Connects to the one that has this launcher's promise, and says so. */
static void go_to(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    char where[YK__ADDRESS_TEXT];
    uint64_t term = s->voter.promised;
    yk__agent_client_clear(&n->client);
    (void)connect_to(n, &n->client, &s->towards); /* else the promise comes to nothing, and binds for a moment only */
    n->sending = false;
    s->tried = yk__now();
    yk__rendezvous_lease(n, &n->client);
    yk__wire promise = {0};
    yk__wire_put_u8(&promise, ASK_PROMISED);
    yk__wire_put_u64(&promise, n->id);
    yk__wire_put_u64(&promise, term);
    yk__wire_put_u64(&promise, s->voter.term);
    yk__wire_put_u64(&promise, s->voter.number);
    yk__keeper_put_nodes(&promise, &s->voter.nodes);
    put_replica(&promise, s);
    yk__agent_client_push(&n->client, "asks", &promise);
    yk__wire_clear(&promise);
    yk__wire came = yk__agent_report(REPORT_CAME, n->id);
    yk__wire_put_u64(&came, term);
    yk__agent_client_push(&n->client, "reports", &came);
    yk__wire_clear(&came);
    follow_term(n);
    yk__agent_client_follow(&n->client, "orders");
    report_anew(n);
    snprintf(n->coordinator_name, sizeof(n->coordinator_name), "the keeper of the store at %s",
             yk__address_format(&s->towards, where));
    say_where(n, where);
}

void yk__succession_go(yk__rendezvous *n, uint64_t term, uint64_t id, bool keeps, const yk__address *address)
{
    yk__succession *s = n->succession;
    if (!may_promise(n, id, term, keeps) || !yk__keeper_promise(&s->voter, id, term, keeps, yk__keeping_clock()))
        return;
    yk__log(YK_LOG_INFO, "yoke run: term %" PRIu64 " is promised to another launcher", term);
    yk__succession_part(n, "another launcher is to keep the store");
    end_asking(s);
    s->ask_at = 0;
    s->election = YK__ELECTION_NONE;
    s->towards = *address;
    s->patience = first_patience;
    go_to(n);
}

/* A launcher that is asked for its promise gives it, and goes to the one that has asked. */
static void consider(yk__rendezvous *n, uint64_t term, uint64_t id, bool keeps)
{
    yk__succession *s = n->succession;
    yk__address address;
    /* This launcher has asked etcd itself, and has to know first how that ended. */
    bool asks = n->reg && s->election == YK__ELECTION_SWAPS;
    if (s->keeps || asks || !yk__succession_pending(n) || !may_promise(n, id, term, keeps))
        return;
    if (address_of(s, id, &address))
        yk__succession_go(n, term, id, keeps, &address);
    else
        s->voter.wished_by = 0;
}

static void end_asking(yk__succession *s)
{
    for (int i = 0; i < s->askings; i++)
        yk__agent_client_clear(&s->asking[i].client);
    s->askings = 0;
}

/* Connects to another launcher's store, and puts the question there. */
static void begin_asking(yk__rendezvous *n, yk__asking *a, const yk__wire *ask)
{
    yk__agent_client_clear(&a->client);
    a->tried = yk__now();
    if (!connect_to(n, &a->client, &a->address))
        return;
    yk__agent_client_push(&a->client, "asks", ask);
    yk__agent_client_await(&a->client, PROMISED_KEY);
}

/* The others of both lists. */
static void ask_one(yk__rendezvous *n, uint64_t id, const yk__wire *ask)
{
    yk__succession *s = n->succession;
    yk__asking *a = NULL;
    for (int i = 0; i < s->askings; i++)
        a = s->asking[i].id == id ? &s->asking[i] : a;
    if (a && !a->client.gone && a->client.link.channel.handshake.state != YK__HANDSHAKE_HELLO) {
        yk__agent_client_push(&a->client, "asks", ask);
        yk__agent_client_await(&a->client, PROMISED_KEY);
        return;
    }
    yk__address address;
    if (id == n->id || id == s->keeper || (!a && s->askings == 2 * YK__KEEPER_NODES) || !address_of(s, id, &address))
        return;
    a = a ? a : &s->asking[s->askings++];
    *a =
        (yk__asking){.client = {.gone = true, .link.fd = -1}, .id = id, .address = address, .patience = first_patience};
    begin_asking(n, a, ask);
}

/* Asks once more where a packet may have been lost. */
static void ask_unheard(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    yk__wire ask = {0};
    put_ask(&ask, n);
    for (int i = 0; i < s->askings; i++)
        if (is_unheard(&s->asking[i].client, s->asking[i].tried, &s->asking[i].patience))
            begin_asking(n, &s->asking[i], &ask);
    yk__wire_clear(&ask);
}

static void take_part(yk__rendezvous *n);

static bool list_has(const yk__keeper_list *list, uint64_t id)
{
    for (int i = 0; i < list->count; i++)
        if (list->ids[i] == id)
            return true;
    return false;
}

static void ask_all(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    yk__wire ask = {0};
    char why[80] = "the keeper has ended";
    double now = yk__keeping_clock();
    if (s->voter.asks)
        snprintf(why, sizeof(why), "too few have promised the last one");
    else if (!s->voter.ended)
        snprintf(why, sizeof(why), "nothing was heard of the keeper for %.3g s", now - s->voter.heard);
    yk__succession_part(n, "this launcher would keep the store");
    drop_line(s);
    uint64_t term = yk__keeper_ask(&s->voter, now);
    say_promised(n);
    yk__log(YK_LOG_INFO, "yoke run: asks the other launchers for term %" PRIu64 ": %s", term, why);
    put_ask(&ask, n);
    const yk__keeper_nodes *nodes = &s->voter.nodes;
    for (int i = 0; i < nodes->now.count; i++)
        ask_one(n, nodes->now.ids[i], &ask);
    for (int i = 0; i < nodes->old.count; i++)
        if (!list_has(&nodes->now, nodes->old.ids[i]))
            ask_one(n, nodes->old.ids[i], &ask);
    yk__wire_clear(&ask);
    if (yk__keeper_elected(&s->voter))
        take_part(n);
}

/* ---- the new keeper ---------------------------------------------------------------------------------------------- */

static bool take_table(yk__rendezvous *n, yk__agent_node **before)
{
    yk__succession *s = n->succession;
    yk__reader r;
    table_head head;
    *before = NULL;
    if (!open_table(s, &r, &head))
        return false;
    n->slots = head.slots;
    n->restart = head.restart;
    n->lost_view = head.lost_view;
    free(n->lost);
    n->lost = head.lost[0] ? yk__strdup(head.lost) : NULL;
    n->world = n->own_local = n->plan.local;
    n->nodes = calloc((size_t)n->s.node_count + YK__KEEPER_NODES, sizeof(*n->nodes));
    for (uint32_t i = 0; i < head.count && n->nodes; i++) {
        table_entry e = {0};
        yk__agent_node *p = NULL;
        if (!read_entry(&r, &e) || e.id == n->id || !(p = calloc(1, sizeof(*p))) || n->joined >= YK__KEEPER_NODES) {
            yk__agent_facts_clear(&e.facts);
            free(p);
            continue;
        }
        *p = (yk__agent_node){.id = e.id,
                              .facts = e.facts,
                              .number = e.number,
                              .first = e.first,
                              .local = e.local,
                              .since = yk__now(),
                              .asked = s->voter.promised,
                              .leaving = (e.flags & FLAG_LEAVING) != 0,
                              .departs = (e.flags & FLAG_DEPARTS) != 0,
                              .following = true};
        n->world += p->local;
        n->nodes[n->joined++] = p;
        if (e.id == s->keeper)
            *before = p;
    }
    return n->nodes != NULL;
}

int yk__succession_incarnations(const yk__rendezvous *n, int slot)
{
    char key[96];
    int count = 0;
    for (;; count++) {
        snprintf(key, sizeof(key), "ranks.%" PRId64 "/elastic/gone/%d.%d", n->plan.attempt, slot, count);
        if (!n->succession || !yk__keyspace_get(&n->succession->replica, yk__text_bytes(key)))
            return count;
    }
}

/* A majority has promised this launcher the term: it keeps the store, and has node 0's part. */
static void take_part(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    yk__agent_node *before;
    char text[400], name[160];
    end_asking(s);
    end_parted(s);
    take_cooldown(n, yk__keyspace_get(&s->replica, yk__text_bytes(COOLDOWN_KEY)));
    if (!take_table(n, &before) || !connect_to(n, &n->client, &s->address)) {
        snprintf(n->refusal, sizeof(n->refusal), "this launcher cannot keep the store in its place");
        return;
    }
    drop_line(s);
    s->keeps = true;
    s->began = yk__keeping_clock();
    n->sending = false;
    yk__agent_client_follow(&n->client, "reports");
    yk__wire keep = {0};
    put_keep(&keep, n, s->voter.number, &s->voter.nodes);
    yk__wire_put_u8(&keep, true);
    put_replica(&keep, s);
    yk__agent_client_plain(&n->client, YK__KEEP, &keep);
    yk__wire_clear(&keep);
    n->server = s->store;
    s->store = NULL;
    call_former(n);
    n->orders = n->attempt_order = n->deleted = 0;
    n->attempt = n->plan.attempt;
    n->running = true;
    n->have_end = false;
    watch_fd(n, n->refusals[0]);
    snprintf(n->where, sizeof(n->where), "%s", s->where);
    report_anew(n);
    n->succeeded = s->began;
    say_where(n, s->where);
    if (before) {
        yk__rendezvous_name_node(before, name, sizeof(name));
        snprintf(text, sizeof(text), "%s is lost, and node %d keeps the list of nodes at %s", name, n->plan.node,
                 s->where);
        before->gone = before->reported = true;
        n->plan.node = 0; /* which is the number of who keeps the list */
        yk__survivors_succeed(n, before, text);
    }
    write_table(n);
}

static void take_pairs(yk__succession *s, yk__reader *r, uint32_t count)
{
    yk__keyspace_clear(&s->incoming);
    for (uint32_t i = 0; i < count && !r->bad; i++) {
        yk__bytes key, value;
        key.size = yk__read_u16(r);
        key.data = yk__read_bytes(r, key.size);
        value.size = yk__read_u32(r);
        value.data = yk__read_bytes(r, value.size);
        if (!r->bad && yk__keyspace_set(&s->incoming, key, value)) {
            yk_clear_error();
            r->bad = true;
        }
    }
}

/* Another launcher has promised this one its term. */
static void count_promise(yk__rendezvous *n, yk__reader *r)
{
    yk__succession *s = n->succession;
    yk__keeper_nodes nodes;
    uint64_t id = yk__read_u64(r), term = yk__read_u64(r), held_term = yk__read_u64(r), held = yk__read_u64(r);
    if (!yk__keeper_read_nodes(r, &nodes) || s->keeps)
        return;
    take_pairs(s, r, yk__read_u32(r));
    if (!yk__read_finished(r))
        return;
    if (yk__keeper_promised(&s->voter, id, term, held_term, held, &nodes)) {
        swap_replica(s);
        s->keeper = keeper_of(s);
    }
    if (yk__keeper_elected(&s->voter))
        take_part(n);
}

static void read_asks(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    yk__reader r;
    yk__agent_client_move(&s->local);
    while (yk__agent_client_next(&s->local, &r)) {
        unsigned kind = yk__read_u8(&r);
        yk__agent_client_delete(&s->local, "asks", s->local.next - 1);
        if (kind == ASK_PROMISED) {
            count_promise(n, &r);
            continue;
        }
        uint64_t term = yk__read_u64(&r), id = yk__read_u64(&r);
        if (yk__read_finished(&r) && (kind == ASK_TERM || kind == ASK_CALL))
            consider(n, term, id, kind == ASK_CALL);
    }
    for (int i = 0; i < s->askings; i++) {
        yk__agent_client_move(&s->asking[i].client);
        while (yk__agent_client_next(&s->asking[i].client, &r))
            yk__keeper_note(&s->voter, yk__read_u64(&r));
    }
    ask_unheard(n);
}

/* Those of the list that may ask and stand before this launcher, so that one begins. */
static int before_this(const yk__rendezvous *n)
{
    const yk__succession *s = n->succession;
    int before = 0;
    for (int i = 0; i < s->voter.nodes.now.count && s->voter.nodes.now.ids[i] != n->id; i++)
        before += s->voter.nodes.now.ids[i] != s->keeper;
    return before;
}

/* Seconds after which this launcher asks, of those that may. */
static double turn_of(const yk__rendezvous *n)
{
    double each = ask_within * n->s.node_timeout / (n->succession->voter.nodes.now.count + 1);
    return (each < ask_after ? each : ask_after) * before_this(n);
}

/* A keeper whose system has closed a connection in order, and at whose address nobody listens, has ended. A system that
 * ends a process closes one after the other. */
static void look_at_keeper(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    yk__reason reason;
    char why[YK__WHY_SIZE];
    double now = yk__now();
    bool closed = (n->client.gone && n->client.closed) || (s->line.gone && s->line.closed);
    double again = n->client.gone ? look_again : look_late; /* the other connection stands: it lives, by all signs */
    bool wants = closed && !s->voter.asks && !s->voter.ended;
    if (!s->probes && wants && now >= s->looked + again) {
        s->looked = now;
        s->probe = yk__connect_begin(&n->client.link.far, &reason, why);
        s->probes = s->probe >= 0;
        s->voter.ended = !s->probes && reason == YK__REFUSED;
    }
    bool late = now > s->looked + connect_patience;
    if (!s->probes || (!late && !yk__wait_fd(s->probe, POLLOUT, 0)))
        return;
    s->voter.ended |= yk__connect_end(s->probe, late, why) == YK__REFUSED && wants;
    drop_probe(s);
}

static void step_follower(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    double now = yk__keeping_clock();
    uint64_t id, term;
    yk__reader r;
    yk__agent_client_move(&s->line);
    while (yk__agent_client_next(&s->line, &r))
        ;
    if (!yk__succession_pending(n))
        return;
    look_at_keeper(n);
    if (s->voter.whom && !s->fed && !n->reg && is_unheard(&n->client, s->tried, &s->patience))
        go_to(n);
    if (yk__keeper_owes(&s->voter, now, &id, &term))
        consider(n, term, id, false);
    bool promised = !n->reg && s->voter.whom && s->voter.whom != n->id && !s->voter.fed && !s->voter.ended;
    bool may = yk__keeper_free(&s->voter, now) && !(promised && now < s->voter.heard + ask_past * n->s.node_timeout);
    if (!may && s->election != YK__ELECTION_LOOKS) {
        s->ask_at = 0;
        return;
    }
    if (n->reg) {
        if (yk__electing_follower(n, now, before_this(n)))
            take_part(n);
        return;
    }
    if (s->ask_at == 0)
        s->ask_at = now + (s->voter.asks ? ask_again * n->s.node_timeout : 0) + turn_of(n);
    if (now >= s->ask_at) {
        s->ask_at = 0;
        ask_all(n);
    }
}

void yk__succession_step(yk__rendezvous *n, double *again)
{
    yk__succession *s = n->succession;
    if (!s || !s->on)
        return;
    read_asks(n);
    if (s->keeps)
        step_keeper(n);
    else
        step_follower(n);
    /* A launcher that may ask in a moment does it then, or two ask at once. */
    bool silent = yk__keeping_clock() - s->voter.heard > look_closely * n->s.node_timeout;
    bool soon = s->askings > 0 || s->probes || (!s->keeps && (n->client.gone || silent || !s->fed));
    double next = yk__now() + (soon ? 0.02 : n->s.node_timeout / 20);
    *again = next < *again ? next : *again;
}

void yk__succession_close(yk__rendezvous *n)
{
    yk__succession *s = n->succession;
    if (!s)
        return;
    end_asking(s);
    end_parted(s);
    drop_probe(s);
    yk__calling_stop(s->calling);
    yk__agent_client_clear(&s->local);
    yk__agent_client_clear(&s->line);
    yk__store_server_stop(s->store);
    yk__keyspace_clear(&s->replica);
    yk__keyspace_clear(&s->incoming);
    yk__wire_clear(&s->table);
    free(s);
    n->succession = NULL;
}
