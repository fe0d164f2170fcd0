/*
 * store_session.c - requests of one client of a TCP store. Layer: net.
 *
 * Invariants: nothing that a peer sends is believed; before its proof it can hold YK__HELLO_LIMIT bytes here, after it
 * memory grows with what has arrived and not with what a length claims. A malformed request ends the session and no
 * other.
 */
#include <stdlib.h>

#include "net/store_session.h"
#include "net/store_table.h"

void yk__session_init(yk__session *s, yk__keyspace *space, const yk__identity *identity)
{
    memset(s, 0, sizeof(*s));
    s->space = space;
    yk__handshake_init(&s->handshake, identity, true, &s->out);
}

static void stop_waiting(yk__session *s)
{
    yk__keyspace_cancel(s->space, &s->waiter);
    s->waiting = false;
    free(s->keys);
    s->keys = NULL;
    yk__wire_clear(&s->held);
}

void yk__session_clear(yk__session *s)
{
    stop_waiting(s);
    yk__wire_clear(&s->in);
    yk__wire_clear(&s->out);
}

bool yk__session_accepts(const yk__session *s)
{
    return !s->closing && s->out.size - s->sent < YK__OUTPUT_LIMIT && (!s->waiting || s->in.size < YK__HELLO_LIMIT);
}

/* ---- replies --------------------------------------------------------------------------------------------------- */
static void reply_plain(yk__session *s, enum yk__reply reply)
{
    size_t begin = yk__wire_frame_begin(&s->out, reply);
    yk__wire_frame_end(&s->out, begin);
}

static void reply_failed(yk__session *s, unsigned kind, const char *text)
{
    size_t begin = yk__wire_frame_begin(&s->out, YK__FAILED);
    yk__wire_put_u8(&s->out, kind);
    yk__wire_put(&s->out, text, strlen(text));
    yk__wire_frame_end(&s->out, begin);
}

static void reply_flag(yk__session *s, bool flag)
{
    size_t begin = yk__wire_frame_begin(&s->out, YK__DONE);
    yk__wire_put_u8(&s->out, flag);
    yk__wire_frame_end(&s->out, begin);
}

static void reply_number(yk__session *s, int64_t number)
{
    size_t begin = yk__wire_frame_begin(&s->out, YK__DONE);
    yk__wire_put_u64(&s->out, (uint64_t)number);
    yk__wire_frame_end(&s->out, begin);
}

static void put_found(yk__session *s, const yk__bytes *value)
{
    yk__wire_put_u8(&s->out, value != NULL);
    yk__wire_put_value(&s->out, value ? value->data : NULL, value ? value->size : 0);
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

/* The reply to a wait that is over. */
static void reply_found(yk__session *s)
{
    const yk__bytes *value = s->kind == YK__WAIT ? NULL : yk__keyspace_get(s->space, s->waiter.keys[0]);
    size_t begin = yk__wire_frame_begin(&s->out, YK__DONE);
    if (s->kind == YK__GET)
        yk__wire_put_value(&s->out, value->data, value->size);
    else if (s->kind == YK__WATCH)
        put_found(s, value);
    yk__wire_frame_end(&s->out, begin);
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
    size_t begin = yk__wire_frame_begin(&s->out, YK__TIMED_OUT);
    if (s->kind == YK__WAIT) {
        size_t at = s->out.size;
        uint32_t missing = 0;
        yk__wire_put_u32(&s->out, 0);
        for (size_t i = 0; i < s->waiter.count; i++) {
            if (yk__keyspace_get(s->space, s->waiter.keys[i]))
                continue;
            if (missing++ < YK__MISSING_SHOWN)
                yk__wire_put_u32(&s->out, (uint32_t)i);
        }
        for (size_t i = 0; i < 4 && !s->out.failed; i++)
            s->out.data[at + i] = (unsigned char)(missing >> (8 * i));
    }
    yk__wire_frame_end(&s->out, begin);
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

/* Keys of WAIT and CHECK, in new memory of s->keys. */
static bool read_keys(yk__session *s, yk__reader *reader, size_t *count)
{
    *count = yk__read_u32(reader);
    if (reader->bad || *count > (size_t)(reader->end - reader->at) / 3) /* a key takes at least three bytes */
        return false;
    s->keys = calloc(*count + 1, sizeof(*s->keys));
    bool good = s->keys != NULL;
    for (size_t i = 0; i < *count && good; i++)
        good = read_key(reader, &s->keys[i]);
    return good;
}

static bool check_keys(yk__session *s, yk__reader *reader)
{
    size_t count, found = 0;
    bool good = read_keys(s, reader, &count) && yk__read_finished(reader);
    while (good && found < count && yk__keyspace_get(s->space, s->keys[found]))
        found++;
    free(s->keys);
    s->keys = NULL;
    if (good)
        reply_flag(s, found == count);
    return good;
}

/* GET, WAIT and WATCH: what the waiter borrows must outlive the received bytes, so they are copied first. */
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
        good = read_keys(s, &reader, &count);
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

static bool take_request(yk__session *s, unsigned kind, const unsigned char *payload, size_t size)
{
    yk__reader reader = {payload, payload + size, false};
    yk__bytes key = {0}, value = {0}, desired = {0};
    if (kind == YK__CANCEL) {
        cancel(s);
        return size == 0;
    }
    if (kind == YK__GET || kind == YK__WAIT || kind == YK__WATCH)
        return start_waiting(s, kind, payload, size);
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
        if (status) {
            yk_clear_error();
            reply_failed(s, status == YK_ERR_ARGUMENT ? YK__FAILED_ARGUMENT : YK__FAILED_MEMORY, why);
        } else {
            reply_number(s, sum);
        }
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
        size_t begin = yk__wire_frame_begin(&s->out, YK__DONE);
        yk__wire_put_u8(&s->out, swapped);
        put_found(s, yk__keyspace_get(s->space, key));
        yk__wire_frame_end(&s->out, begin);
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
/* Takes one message from the front: the bytes it had, 0 when there is no whole one; false in *good for a broken rule.
 */
static size_t take_message(yk__session *s, const unsigned char *data, size_t size, bool *good)
{
    *good = true;
    if (!s->authenticated) {
        size_t taken = size ? yk__handshake_feed(&s->handshake, data, size, &s->out) : 0;
        if (s->handshake.state == YK__HANDSHAKE_FAILED) {
            s->closing = true;
            *good = s->out.size > 0; /* nothing to say: dropped at once */
        }
        s->authenticated = s->handshake.state == YK__HANDSHAKE_DONE;
        if (!taken && size >= YK__HELLO_LIMIT + YK__FRAME_HEAD + 1)
            *good = false;
        return taken;
    }
    if (size < YK__FRAME_HEAD + 1)
        return 0;
    size_t length = yk__load_u32(data);
    if (length < 1 || length > YK__REQUEST_LIMIT || (s->waiting && data[YK__FRAME_HEAD] != YK__CANCEL)) {
        *good = false;
        return 0;
    }
    if (size < YK__FRAME_HEAD + length)
        return 0;
    *good = take_request(s, data[YK__FRAME_HEAD], data + YK__FRAME_HEAD + 1, length - 1);
    return YK__FRAME_HEAD + length;
}

bool yk__session_receive(yk__session *s, const void *data, size_t size)
{
    yk__wire_put(&s->in, data, size);
    size_t taken = 0;
    bool good = !s->in.failed && !s->closing;
    while (good && !s->closing && taken < s->in.size && s->out.size - s->sent < YK__OUTPUT_LIMIT) {
        size_t used = take_message(s, s->in.data + taken, s->in.size - taken, &good);
        if (!used)
            break;
        taken += used;
    }
    s->in.size -= taken;
    if (taken && s->in.size)
        memmove(s->in.data, s->in.data + taken, s->in.size);
    enum { KEPT = 1 << 16 };
    if (!s->in.size && s->in.capacity > KEPT) /* one large value is no reason to keep its room for ever */
        yk__wire_clear(&s->in);
    return good && !s->out.failed && !s->in.failed;
}
