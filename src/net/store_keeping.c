/*
 * store_keeping.c - the keeper of a store among its followers, on the thread of its server. Layer: net.
 *
 * Invariant: every change of a key with the prefix has a number, and goes to all followers in the order of these; what
 * a follower has taken is what the keeper had when it made the change of that number.
 */
#include "net/store_keeping.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Beats in one --node-timeout. */
enum { BEATS = 15 };

double yk__keeping_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool is_kept(yk__bytes key)
{
    size_t size = sizeof(YK__KEEPING_PREFIX) - 1;
    return key.size >= size && memcmp(key.data, YK__KEEPING_PREFIX, size) == 0;
}

/* ---- to the followers -------------------------------------------------------------------------------------------- */

static void begin_mirrored(yk__keeping *k, yk__session *s, enum yk__mirrored what)
{
    yk__channel_begin(&s->channel, YK__MIRRORED);
    yk__wire_put_u8(&s->channel.message, what);
    yk__wire_put_u64(&s->channel.message, k->lead.number);
    yk__wire_put_u64(&s->channel.message, (uint64_t)(yk__keeping_clock() * 1e9));
}

static void end_mirrored(yk__session *s)
{
    yk__channel_end(&s->channel);
    if (s->woken)
        s->woken(s);
}

static void send_change(yk__keeping *k, yk__session *s, yk__bytes key, const yk__bytes *value)
{
    begin_mirrored(k, s, value ? YK__MIRROR_SET : YK__MIRROR_DELETE);
    yk__wire_put_key(&s->channel.message, (const char *)key.data, key.size);
    if (value)
        yk__wire_put_value(&s->channel.message, value->data, value->size);
    end_mirrored(s);
}

static void send_beat(yk__keeping *k, yk__session *s)
{
    begin_mirrored(k, s, YK__MIRROR_BEAT);
    end_mirrored(s);
}

typedef struct snapshot {
    yk__keeping *keeping;
    yk__session *session;
} snapshot;

static void send_one(void *argument, yk__bytes key, const yk__bytes *value)
{
    const snapshot *to = argument;
    send_change(to->keeping, to->session, key, value);
}

static void send_all(yk__keeping *k, yk__session *s)
{
    begin_mirrored(k, s, YK__MIRROR_CLEAR);
    end_mirrored(s);
    yk__keyspace_visit(k->space, yk__text_bytes(YK__KEEPING_PREFIX), send_one, &(snapshot){k, s});
    send_beat(k, s);
}

/* The follower is of the term of this keeper, or has promised the one that this would keep. */
static bool is_own(const yk__keeping *k, const yk__session *s)
{
    return k->on && (s->follows == k->lead.term || (k->lead.lifts && s->follows == k->lead.lifts));
}

static bool is_fed(const yk__keeping *k, const yk__session *s)
{
    return k->on && !k->lead.lifts && s->follows == k->lead.term;
}

/* Asks a follower of an earlier term for the present one, or the one that is to be. */
static void send_lift(yk__keeping *k, yk__session *s)
{
    begin_mirrored(k, s, YK__MIRROR_LIFT);
    yk__wire_put_u64(&s->channel.message, k->lead.lifts ? k->lead.lifts : k->lead.term);
    end_mirrored(s);
}

static void note_change(void *argument, yk__bytes key, const yk__bytes *value)
{
    yk__keeping *k = argument;
    if (!k->on || !is_kept(key))
        return;
    k->lead.number++;
    for (yk__session *s = k->followers; s; s = s->next_follower)
        if (is_fed(k, s))
            send_change(k, s, key, value);
}

/* ---- the nodes --------------------------------------------------------------------------------------------------- */

static bool same_list(const yk__keeper_list *a, const yk__keeper_list *b)
{
    return a->count == b->count && memcmp(a->ids, b->ids, (size_t)a->count * sizeof(*a->ids)) == 0;
}

static void set_nodes(yk__keeping *k, const yk__keeper_nodes *nodes)
{
    yk__wire value = {0};
    k->lead.nodes = *nodes;
    yk__keeper_put_nodes(&value, nodes);
    if (value.failed ||
        yk__keyspace_set(k->space, yk__text_bytes(YK__KEEPING_NODES), (yk__bytes){value.data, value.size}))
        yk_clear_error(); /* no memory: who succeeds knows the nodes that there were before, which is as good */
    yk__wire_clear(&value);
}

/* The old list is done with when both have taken a change of the nodes; then comes the next change. */
static void settle(yk__keeping *k)
{
    if (!k->on || k->lead.nodes.all || !yk__keeper_answers(&k->lead, yk__keeping_clock()))
        return;
    yk__keeper_nodes next = k->lead.nodes;
    if (!same_list(&next.old, &next.now)) {
        next.old = next.now;
        set_nodes(k, &next);
    } else if (k->wanted.count && !same_list(&next.now, &k->wanted)) {
        next.now = k->wanted;
        set_nodes(k, &next);
    }
}

static void publish(yk__keeping *k)
{
    double now = yk__keeping_clock();
    atomic_store(&k->heard, yk__keeper_heard_at(&k->lead, now));
    if (!k->lead.nodes.all)
        return;
    if (yk__keeper_answers(&k->lead, now))
        atomic_store(&k->taken, k->said);
    pthread_mutex_lock(&k->lock);
    k->count = k->lead.count;
    for (int i = 0; i < k->count; i++) {
        k->heard_of[i].id = k->lead.followers[i].id;
        k->heard_of[i].sent = k->lead.followers[i].sent;
    }
    pthread_mutex_unlock(&k->lock);
}

double yk__keeping_heard_of(yk__keeping *k, uint64_t id)
{
    double sent = 0;
    pthread_mutex_lock(&k->lock);
    for (int i = 0; i < k->count; i++)
        sent = k->heard_of[i].id == id ? k->heard_of[i].sent : sent;
    pthread_mutex_unlock(&k->lock);
    return sent;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void reply(yk__session *s)
{
    yk__channel_begin(&s->channel, YK__DONE);
    yk__channel_end(&s->channel);
}

static void leave(yk__keeping *k, yk__session *s)
{
    for (yk__session **at = &k->followers; *at; at = &(*at)->next_follower) {
        if (*at != s)
            continue;
        *at = s->next_follower;
        break;
    }
    s->follows = 0;
    s->next_follower = NULL;
}

typedef struct names {
    yk__wire list; /* keys */
    size_t count;
} names;

static void note_name(void *argument, yk__bytes key, const yk__bytes *value)
{
    names *of = argument;
    (void)value;
    yk__wire_put_key(&of->list, (const char *)key.data, key.size);
    of->count++;
}

static void delete_all(yk__keeping *k)
{
    names of = {0};
    yk__keyspace_visit(k->space, yk__text_bytes(YK__KEEPING_PREFIX), note_name, &of);
    yk__reader r = {of.list.data, of.list.data + of.list.size, of.list.failed};
    for (size_t i = 0; i < of.count && !r.bad; i++) {
        size_t size = yk__read_u16(&r);
        const unsigned char *key = yk__read_bytes(&r, size);
        if (key)
            (void)yk__keyspace_delete(k->space, (yk__bytes){key, size});
    }
    yk__wire_clear(&of.list);
}

static bool read_pair(yk__reader *r, yk__bytes *key, yk__bytes *value)
{
    key->size = yk__read_u16(r);
    key->data = yk__read_bytes(r, key->size);
    value->size = yk__read_u32(r);
    value->data = yk__read_bytes(r, value->size);
    return key->data && value->data && key->size > 0 && is_kept(*key);
}

/* The keeper has this term by now: those that have promised it get everything. */
static void begin_term(yk__keeping *k)
{
    k->beat = yk__keeping_clock();
    for (yk__session *s = k->followers; s; s = s->next_follower)
        if (is_fed(k, s))
            send_all(k, s);
}

static bool keep(yk__keeping *k, yk__session *s, yk__reader *r)
{
    yk__keeper_nodes nodes;
    uint64_t self = yk__read_u64(r), term = yk__read_u64(r), number = yk__read_u64(r);
    double silence = 1e-3 * yk__read_u32(r);
    bool good = yk__keeper_read_nodes(r, &nodes) && term > 0 && silence > 0;
    bool replaces = yk__read_u8(r) != 0;
    uint32_t count = yk__read_u32(r);
    if (!good || r->bad || k->on) /* once: it keeps the store until it ends */
        return false;
    if (replaces)
        delete_all(k);
    for (uint32_t i = 0; i < count; i++) {
        yk__bytes key, value;
        if (!read_pair(r, &key, &value))
            return false;
        if (yk__keyspace_set(k->space, key, value)) {
            yk_clear_error();
            return false;
        }
    }
    if (!yk__read_finished(r))
        return false;
    yk__keeper_lead_begin(&k->lead, self, term, &nodes, silence);
    k->lead.number = number;
    k->on = s->exempt = true;
    k->every = silence / BEATS;
    set_nodes(k, &nodes);
    begin_term(k);
    for (yk__session *f = k->followers; f; f = f->next_follower)
        if (f->follows < term)
            send_lift(k, f); /* it had promised a term that this launcher has not got */
    publish(k);
    reply(s);
    return true;
}

/* A follower has promised another term than that of this keeper: the one that it would keep, or it is asked for that.
 */
static void have_promised(yk__keeping *k, yk__session *s)
{
    if (s->follows < (k->lead.lifts ? k->lead.lifts : k->lead.term))
        send_lift(k, s);
    else if (yk__keeper_lifted(&k->lead, s->follower, s->follows, s->held_term))
        begin_term(k);
}

static bool follow(yk__keeping *k, yk__session *s, yk__reader *r)
{
    uint64_t id = yk__read_u64(r), term = yk__read_u64(r), held_term = yk__read_u64(r);
    if (!yk__read_finished(r) || term == 0 || s->follows)
        return false;
    s->exempt = true;
    s->held_term = held_term;
    s->follower = id;
    s->follows = term;
    s->next_follower = k->followers;
    k->followers = s;
    if (is_fed(k, s))
        send_all(k, s);
    else if (k->on)
        have_promised(k, s);
    return true;
}

/* From now on nothing but that goes to the followers, until a quorum has promised the term. */
static bool lift(yk__keeping *k, yk__session *s, yk__reader *r)
{
    uint64_t term = yk__read_u64(r);
    if (!yk__read_finished(r) || !k->on || k->lead.nodes.all || term <= k->lead.term || term <= k->lead.lifts)
        return false;
    bool kept = yk__keeper_lift(&k->lead, term);
    for (yk__session *f = k->followers; f; f = f->next_follower) {
        if (f->follows < term)
            send_lift(k, f);
        else if (f->follows == term)
            kept |= yk__keeper_lifted(&k->lead, f->follower, term, f->held_term);
    }
    if (kept)
        begin_term(k);
    publish(k);
    reply(s);
    return true;
}

static bool lifted(yk__keeping *k, yk__session *s, yk__reader *r)
{
    uint64_t term = yk__read_u64(r);
    if (!yk__read_finished(r) || !k->on || !s->follows || term <= s->follows)
        return false;
    s->follows = term;
    if (is_fed(k, s))
        send_all(k, s);
    else
        have_promised(k, s);
    publish(k);
    return true;
}

static bool set_wanted(yk__keeping *k, yk__session *s, yk__reader *r)
{
    yk__keeper_list list = {.count = (int)yk__read_u16(r)};
    if (list.count < 1 || list.count > YK__KEEPER_NODES || !k->on)
        return false;
    for (int i = 0; i < list.count; i++)
        list.ids[i] = yk__read_u64(r);
    unsigned what = yk__read_u8(r);
    if (!yk__read_finished(r) || what > YK__NODES_TAKEN || (what != YK__NODES_WANTED) != k->lead.nodes.all)
        return false;
    if (what == YK__NODES_WANTED) {
        k->wanted = list;
        settle(k);
    } else {
        yk__keeper_nodes next = k->lead.nodes;
        next.now = list;
        next.old = what == YK__NODES_TAKEN ? list : next.old;
        k->said++;
        set_nodes(k, &next);
    }
    publish(k);
    reply(s);
    return true;
}

bool yk__keeping_request(yk__keeping *k, yk__session *s, unsigned kind, yk__reader *r)
{
    if (kind == YK__KEEP)
        return keep(k, s, r);
    if (kind == YK__FOLLOW)
        return follow(k, s, r);
    if (kind == YK__NODES)
        return set_wanted(k, s, r);
    if (kind == YK__LIFT)
        return lift(k, s, r);
    if (kind == YK__LIFTED)
        return lifted(k, s, r);
    uint64_t number = yk__read_u64(r), sent = yk__read_u64(r);
    if (!yk__read_finished(r) || !s->follows)
        return false;
    if (!k->on || s->follows != k->lead.term) /* of a term that this keeper has laid down meanwhile */
        return true;
    yk__keeper_taken(&k->lead, s->follower, number, 1e-9 * (double)sent);
    settle(k);
    publish(k);
    return true;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

void yk__keeping_init(yk__keeping *k, yk__keyspace *space)
{
    *k = (yk__keeping){.space = space};
    pthread_mutex_init(&k->lock, NULL);
    space->noted = note_change;
    space->argument = k;
}

void yk__keeping_clear(yk__keeping *k)
{
    pthread_mutex_destroy(&k->lock);
}

void yk__keeping_ended(yk__keeping *k, yk__session *s, bool in_order)
{
    if (!s->follows)
        return;
    if (is_own(k, s) && in_order) {
        yk__keeper_left(&k->lead, s->follower, yk__keeping_clock());
        publish(k);
    }
    leave(k, s);
    settle(k);
}

bool yk__keeping_refuses(const yk__keeping *k, const yk__session *s, unsigned kind, const unsigned char *payload,
                         size_t size)
{
    return k->standby && !k->on && !s->lease.size && kind != YK__KEEP &&
           memmem(payload, size, YK__KEEPING_PREFIX, sizeof(YK__KEEPING_PREFIX) - 1);
}

bool yk__keeping_lets(yk__keeping *k, const yk__session *s)
{
    return !k->on || s->exempt || s->lease.size || yk__keeper_answers(&k->lead, yk__keeping_clock());
}

void yk__keeping_tick(yk__keeping *k)
{
    double now = yk__keeping_clock();
    if (!k->on)
        return;
    if (now - k->beat >= k->every) {
        k->beat = now;
        for (yk__session *s = k->followers; s; s = s->next_follower)
            if (is_fed(k, s))
                send_beat(k, s);
    }
    settle(k);
    publish(k);
}
