/*
 * store_session.c - requests of one client of a TCP store. Layer: net.
 *
 * Invariants: nothing that a peer sends is believed; before its proof it can hold YK__HELLO_LIMIT bytes here, after it
 * memory grows with what has arrived and not with what a length claims. A malformed request ends the session and no
 * other.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "net/store_keeping.h"
#include "net/store_session.h"
#include "net/store_table.h"

void yk__session_init(yk__session *s, yk__keyspace *space, const yk__identity *identity)
{
    memset(s, 0, sizeof(*s));
    s->space = space;
    yk__channel_init(&s->channel, identity, true, YK__REQUEST_LIMIT);
}

static void stop_waiting(yk__session *s)
{
    yk__keyspace_cancel(s->space, &s->waiter);
    yk__keyspace_cancel(s->space, &s->stopper);
    s->waiting = false;
    free(s->keys);
    s->keys = NULL;
    yk__wire_clear(&s->held);
}

void yk__session_clear(yk__session *s)
{
    stop_waiting(s);
    yk__wire_clear(&s->lease);
    yk__channel_clear(&s->channel);
}

static size_t unsent(const yk__session *s)
{
    return s->channel.out.size - s->channel.sent;
}

bool yk__session_blocked(const yk__session *s)
{
    return s->waiting && s->kind != YK__AWAIT;
}

bool yk__session_accepts(const yk__session *s)
{
    size_t held_back = s->channel.in.size - s->channel.taken;
    return !s->closing && unsent(s) < YK__OUTPUT_LIMIT && (!yk__session_blocked(s) || held_back < YK__HELLO_LIMIT);
}

/* ---- replies --------------------------------------------------------------------------------------------------- */
static void reply_plain(yk__session *s, enum yk__reply reply)
{
    yk__channel_begin(&s->channel, reply);
    yk__channel_end(&s->channel);
}

static void reply_failed(yk__session *s, unsigned kind, const char *text)
{
    yk__channel_begin(&s->channel, YK__FAILED);
    yk__wire_put_u8(&s->channel.message, kind);
    yk__wire_put(&s->channel.message, text, strlen(text));
    yk__channel_end(&s->channel);
}

static void reply_flag(yk__session *s, bool flag)
{
    yk__channel_begin(&s->channel, YK__DONE);
    yk__wire_put_u8(&s->channel.message, flag);
    yk__channel_end(&s->channel);
}

static void reply_number(yk__session *s, int64_t number)
{
    yk__channel_begin(&s->channel, YK__DONE);
    yk__wire_put_u64(&s->channel.message, (uint64_t)number);
    yk__channel_end(&s->channel);
}

static void put_found(yk__session *s, const yk__bytes *value)
{
    yk__wire_put_u8(&s->channel.message, value != NULL);
    yk__wire_put_value(&s->channel.message, value ? value->data : NULL, value ? value->size : 0);
}

/* A failure of the keyspace is one of memory; the record belongs to the server's thread, where nobody looks. */
static void reply_status(yk__session *s, yk_status status)
{
    if (!status) {
        reply_plain(s, YK__DONE);
        return;
    }
    yk_clear_error();
    reply_failed(s, YK__FAILED_MEMORY, "the server is out of memory");
}

/* `held`: what the client's own key held before, NULL where it was not there. Then no values come, and nothing is
 * complete, as in every other store. */
static void put_gathered(yk__session *s, const yk__bytes *held)
{
    size_t found = 0;
    while (found < s->waiter.count && yk__keyspace_get(s->space, s->waiter.keys[found]))
        found++;
    yk__wire_put_u8(&s->channel.message, !held && found == s->waiter.count);
    yk__wire_put_u32(&s->channel.message, (uint32_t)s->waiter.count);
    for (size_t i = 0; i < s->waiter.count; i++)
        put_found(s, held ? NULL : yk__keyspace_get(s->space, s->waiter.keys[i]));
    put_found(s, yk__keyspace_get(s->space, s->stop));
    put_found(s, held);
}

/* The reply to a wait that is over. */
static void reply_found(yk__session *s)
{
    if (s->kind == YK__GATHER) {
        yk__channel_begin(&s->channel, YK__DONE);
        put_gathered(s, NULL);
        yk__channel_end(&s->channel);
        return;
    }
    const yk__bytes *value = s->kind == YK__WAIT ? NULL : yk__keyspace_get(s->space, s->waiter.keys[0]);
    yk__channel_begin(&s->channel, s->kind == YK__AWAIT ? YK__ARRIVED : YK__DONE);
    if (s->kind == YK__GET || s->kind == YK__AWAIT)
        yk__wire_put_value(&s->channel.message, value->data, value->size);
    else if (s->kind == YK__WATCH)
        put_found(s, value);
    yk__channel_end(&s->channel);
}

static void wait_over(yk__waiter *waiter)
{
    yk__session *s = waiter->user;
    reply_found(s);
    stop_waiting(s);
    if (s->woken)
        s->woken(s);
}

static void cancel(yk__session *s)
{
    if (!s->waiting)
        return; /* the answer and the cancel crossed */
    yk__channel_begin(&s->channel, YK__TIMED_OUT);
    if (s->kind == YK__WAIT) {
        size_t at = s->channel.message.size;
        uint32_t missing = 0;
        yk__wire_put_u32(&s->channel.message, 0);
        for (size_t i = 0; i < s->waiter.count; i++) {
            if (yk__keyspace_get(s->space, s->waiter.keys[i]))
                continue;
            if (missing++ < YK__MISSING_SHOWN)
                yk__wire_put_u32(&s->channel.message, (uint32_t)i);
        }
        for (size_t i = 0; i < 4 && !s->channel.message.failed; i++)
            s->channel.message.data[at + i] = (unsigned char)(missing >> (8 * i));
    }
    if (s->kind == YK__GATHER)
        put_gathered(s, NULL);
    yk__channel_end(&s->channel);
    stop_waiting(s);
}

/* ---- requests -------------------------------------------------------------------------------------------------- */
static bool read_key(yk__reader *reader, yk__bytes *key)
{
    key->size = yk__read_u16(reader);
    key->data = yk__read_bytes(reader, key->size);
    return key->data && key->size >= 1 && key->size <= YK_STORE_MAX_KEY;
}

static bool read_value(yk__reader *reader, yk__bytes *value)
{
    value->size = yk__read_u32(reader);
    value->data = yk__read_bytes(reader, value->size);
    return value->data && value->size <= YK_STORE_MAX_VALUE;
}

/* Reads the keys of WAIT and CHECK into new memory of *keys. */
static bool read_keys(yk__bytes **keys, yk__reader *reader, size_t *count)
{
    *count = yk__read_u32(reader);
    if (reader->bad || *count > (size_t)(reader->end - reader->at) / 3) /* a key takes at least three bytes */
        return false;
    *keys = calloc(*count + 1, sizeof(**keys));
    bool good = *keys != NULL;
    for (size_t i = 0; i < *count && good; i++)
        good = read_key(reader, &(*keys)[i]);
    return good;
}

static bool check_keys(yk__session *s, yk__reader *reader)
{
    size_t count, found = 0;
    yk__bytes *keys = NULL;
    bool good = read_keys(&keys, reader, &count) && yk__read_finished(reader);
    while (good && found < count && yk__keyspace_get(s->space, keys[found]))
        found++;
    free(keys);
    if (good)
        reply_flag(s, found == count);
    return good;
}

/* Begins the wait of GET, AWAIT, WAIT and WATCH: bytes that the waiter borrows must outlive the received ones, so they
 * are copied first. */
static bool start_waiting(yk__session *s, enum yk__request kind, const unsigned char *payload, size_t size)
{
    yk__wire_put(&s->held, payload, size);
    if (!size || s->held.failed)
        return false;
    yk__reader reader = {s->held.data, s->held.data + size, false};
    size_t count = 1;
    yk__bytes old = {0};
    bool good;
    if (kind == YK__WAIT) {
        good = read_keys(&s->keys, &reader, &count);
    } else {
        s->keys = calloc(1, sizeof(*s->keys));
        good = s->keys && read_key(&reader, &s->keys[0]);
        bool there = good && kind == YK__WATCH && yk__read_u8(&reader);
        if (good && kind == YK__WATCH)
            good = read_value(&reader, &old);
        if (!there)
            old = (yk__bytes){0};
    }
    if (!good || !yk__read_finished(&reader)) {
        stop_waiting(s);
        return false;
    }
    s->kind = kind;
    s->waiter = (yk__waiter){
        .keys = s->keys, .count = count, .watches = kind == YK__WATCH, .old = old, .ready = wait_over, .user = s};
    yk_status status;
    if (yk__keyspace_wait(s->space, &s->waiter, &status)) {
        reply_found(s);
        stop_waiting(s);
    } else if (status) {
        reply_status(s, status);
        stop_waiting(s);
    } else {
        s->waiting = true;
    }
    return true;
}

static bool start_gathering(yk__session *s, const unsigned char *payload, size_t size)
{
    yk__wire_put(&s->held, payload, size);
    if (!size || s->held.failed)
        return false;
    yk__reader reader = {s->held.data, s->held.data + size, false};
    yk__bytes own = {0}, value = {0};
    size_t count = 0;
    bool sets = yk__read_u8(&reader) != 0;
    bool good = (!sets || (read_key(&reader, &own) && read_value(&reader, &value))) && read_key(&reader, &s->stop) &&
                read_keys(&s->keys, &reader, &count) && count > 0 && yk__read_finished(&reader);
    for (size_t i = 0; i < count && good; i++) /* one waiter would be both, and one end the end of both */
        good = s->keys[i].size != s->stop.size || memcmp(s->keys[i].data, s->stop.data, s->stop.size) != 0;
    if (!good) {
        stop_waiting(s);
        return false;
    }
    s->kind = YK__GATHER;
    s->waiter = (yk__waiter){.keys = s->keys, .count = count, .ready = wait_over, .user = s};
    s->stopper = (yk__waiter){.keys = &s->stop, .count = 1, .ready = wait_over, .user = s};
    const yk__bytes *held = sets ? yk__keyspace_get(s->space, own) : NULL;
    sets = sets && !yk__keyspace_get(s->space, s->stop);
    yk_status status = YK_OK;
    if (held) {
        yk__channel_begin(&s->channel, YK__DONE);
        put_gathered(s, held);
        yk__channel_end(&s->channel);
    } else if (sets && (status = yk__keyspace_set(s->space, own, value))) {
        reply_status(s, status);
    } else if (yk__keyspace_wait(s->space, &s->waiter, &status) ||
               (!status && yk__keyspace_wait(s->space, &s->stopper, &status))) {
        reply_found(s);
    } else if (status) {
        reply_status(s, status);
    } else {
        s->waiting = true;
        return true;
    }
    stop_waiting(s);
    return true;
}

/* ---- lists, and leases on them ----------------------------------------------------------------------------------- */
static yk_status push(yk__session *s, yk__bytes list, yk__bytes value, int64_t *count, char why[YK__ADD_WHY])
{
    char key[YK_STORE_MAX_KEY + 24];
    yk_status status = yk__keyspace_add(s->space, list, 1, count, why);
    if (status)
        return status;
    int size = snprintf(key, sizeof(key), "%.*s/%" PRId64, (int)list.size, (const char *)list.data, *count);
    snprintf(why, YK__ADD_WHY, "the server is out of memory");
    return yk__keyspace_set(s->space, (yk__bytes){(const unsigned char *)key, (size_t)size}, value);
}

/* A reply with the number, or with what is wrong. */
static void reply_sum(yk__session *s, yk_status status, int64_t sum, const char *why)
{
    if (!status) {
        reply_number(s, sum);
        return;
    }
    yk_clear_error();
    reply_failed(s, status == YK_ERR_ARGUMENT ? YK__FAILED_ARGUMENT : YK__FAILED_MEMORY, why);
}

typedef struct lease {
    yk__bytes key, values[YK__LEASE_DAMAGED + 1];
    uint32_t milliseconds;
} lease;

static bool read_lease(const unsigned char *payload, size_t size, lease *l)
{
    yk__reader reader = {payload, payload + size, false};
    bool good = read_key(&reader, &l->key);
    for (int i = 0; i <= YK__LEASE_DAMAGED && good; i++)
        good = read_value(&reader, &l->values[i]);
    l->milliseconds = yk__read_u32(&reader);
    return good && yk__read_finished(&reader) && !memchr(l->key.data, 0, l->key.size);
}

static bool begin_lease(yk__session *s, const unsigned char *payload, size_t size)
{
    lease l;
    if (s->lease.size || !read_lease(payload, size, &l))
        return false;
    yk__wire_put(&s->lease, payload, size);
    if (s->lease.failed)
        return false;
    s->silence = 1e-3 * l.milliseconds;
    reply_plain(s, YK__DONE);
    return true;
}

void yk__session_end_lease(yk__session *s, yk__lease_end how, const char *text)
{
    lease l;
    int64_t count;
    char why[YK__ADD_WHY];
    yk__wire value = {0};
    if (!s->lease.size)
        return;
    if (read_lease(s->lease.data, s->lease.size, &l)) {
        yk__wire_put(&value, l.values[how].data, l.values[how].size);
        if (how == YK__LEASE_DAMAGED)
            yk__wire_put_value(&value, text, strlen(text));
        if (value.failed || push(s, l.key, (yk__bytes){value.data, value.size}, &count, why))
            yk_clear_error(); /* no memory for the notice: the client learns it by the end of the connection */
    }
    yk__wire_clear(&value);
    yk__wire_clear(&s->lease);
}

static bool handle_request(yk__session *s, unsigned kind, const unsigned char *payload, size_t size)
{
    yk__reader reader = {payload, payload + size, false};
    yk__bytes key = {0}, value = {0}, desired = {0};
    if (s->keeping && yk__keeping_refuses(s->keeping, s, kind, payload, size))
        return false;
    if (kind == YK__CANCEL) {
        cancel(s);
        return size == 0;
    }
    bool waits = kind == YK__GET || kind == YK__WAIT || kind == YK__WATCH || kind == YK__GATHER || kind == YK__AWAIT;
    if (waits && s->waiting)
        return false;
    if (kind == YK__GATHER)
        return start_gathering(s, payload, size);
    if (waits)
        return start_waiting(s, kind, payload, size);
    if (kind == YK__LEASE)
        return begin_lease(s, payload, size);
    if (kind == YK__RENEW) {
        reply_plain(s, YK__DONE);
        return size == 0;
    }
    if (kind == YK__BROKEN) {
        yk__escape((const char *)payload, size < 300 ? size : 300, s->broken, sizeof(s->broken));
        return false;
    }
    if (kind >= YK__KEEP && kind <= YK__LIFTED)
        return s->keeping && yk__keeping_request(s->keeping, s, kind, &reader);
    if (kind == YK__CHECK)
        return check_keys(s, &reader);
    if (kind == YK__COUNT) {
        key.size = yk__read_u16(&reader);
        key.data = yk__read_bytes(&reader, key.size);
        if (yk__read_finished(&reader))
            reply_number(s, yk__keyspace_count(s->space, key));
        return yk__read_finished(&reader);
    }
    if (!read_key(&reader, &key))
        return false;
    switch (kind) {
    case YK__SET:
        if (!read_value(&reader, &value) || !yk__read_finished(&reader))
            return false;
        reply_status(s, yk__keyspace_set(s->space, key, value));
        return true;
    case YK__ADD: {
        int64_t amount = (int64_t)yk__read_u64(&reader), sum = 0;
        char why[YK__ADD_WHY];
        if (!yk__read_finished(&reader))
            return false;
        yk_status status = yk__keyspace_add(s->space, key, amount, &sum, why);
        reply_sum(s, status, sum, why);
        return true;
    }
    case YK__PUSH: {
        int64_t sum = 0;
        char why[YK__ADD_WHY] = "";
        if (!read_value(&reader, &value) || !yk__read_finished(&reader) || memchr(key.data, 0, key.size))
            return false;
        yk_status status = push(s, key, value, &sum, why);
        reply_sum(s, status, sum, why);
        return true;
    }
    case YK__COMPARE_SET: {
        if (!read_value(&reader, &value) || !read_value(&reader, &desired) || !yk__read_finished(&reader))
            return false;
        bool swapped;
        yk_status status = yk__keyspace_compare_set(s->space, key, value, desired, &swapped);
        if (status) {
            reply_status(s, status);
            return true;
        }
        yk__channel_begin(&s->channel, YK__DONE);
        yk__wire_put_u8(&s->channel.message, swapped);
        put_found(s, yk__keyspace_get(s->space, key));
        yk__channel_end(&s->channel);
        return true;
    }
    case YK__DELETE:
        if (!yk__read_finished(&reader))
            return false;
        reply_flag(s, yk__keyspace_delete(s->space, key));
        return true;
    default: return false;
    }
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */
/* The channel is unusable; true if there is something to send before the connection ends. */
static bool end_session(yk__session *s)
{
    yk__channel *c = &s->channel;
    if (c->state == YK__DAMAGED) {
        yk__channel_send(c, YK__REPLY_DAMAGED, c->why, strlen(c->why));
    }
    s->closing = true;
    return yk__channel_unsent(c);
}

bool yk__session_receive(yk__session *s, const void *data, size_t size)
{
    yk__channel *c = &s->channel;
    if (s->closing)
        return false;
    yk__channel_feed(c, data, size);
    if (!c->open && c->in.size - c->taken > YK__HELLO_LIMIT + YK__FRAME_HEAD)
        return false;
    yk__reader payload;
    unsigned type;
    while (unsent(s) < YK__OUTPUT_LIMIT && (type = yk__channel_next(c, &payload))) {
        size_t bytes = (size_t)(payload.end - payload.at);
        if ((yk__session_blocked(s) && type != YK__CANCEL) || !handle_request(s, type, payload.at, bytes))
            return false;
    }
    return c->state == YK__REACHED || (c->state != YK__LOST && end_session(s));
}
