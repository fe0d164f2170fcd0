/*
 * channel.c - messages in control frames after a hand-shake. Layer: net.
 *
 * Invariants: no byte is taken as a message before the hand-shake is done, none of a message before its frame has been
 * found whole and in its order; memory grows with what has arrived and not with what a size claims.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "net/channel.h"

enum { PIECE = 1 << 16 /* received at a time, and kept for the next ones */ };

void yk__channel_init(yk__channel *c, const yk__identity *identity, bool accepts, size_t limit)
{
    memset(c, 0, sizeof(*c));
    c->limit = limit;
    c->state = YK__REACHED;
    yk__handshake_init(&c->handshake, identity, accepts, &c->out);
}

static void wipe(yk__wire *wire)
{
    if (wire->data)
        explicit_bzero(wire->data, wire->capacity);
    yk__wire_clear(wire);
}

void yk__channel_clear(yk__channel *c)
{
    yk__handshake_clear(&c->handshake);
    bool secret = c->sending.cipher != YK__CIPHER_NONE;
    (secret ? wipe : yk__wire_clear)(&c->in);
    (secret ? wipe : yk__wire_clear)(&c->early);
    (secret ? wipe : yk__wire_clear)(&c->message);
    yk__wire_clear(&c->out);
    explicit_bzero(&c->sending, sizeof(c->sending));
    explicit_bzero(&c->receiving, sizeof(c->receiving));
}

/* Makes the channel unusable; the first reason is kept. */
static yk__reason fail(yk__channel *c, yk__reason state, const char *why)
{
    if (c->state == YK__REACHED) {
        c->state = state;
        snprintf(c->why, sizeof(c->why), "%s", why);
    }
    return c->state;
}

static yk__reason fail_memory(yk__channel *c)
{
    return fail(c, YK__LOST, "out of memory");
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */
static bool may_send(const yk__channel *c)
{
    return c->handshake.state == YK__HANDSHAKE_DONE ||
           (c->handshake.state == YK__HANDSHAKE_PROOF && !c->handshake.accepts);
}

static void put_frame(yk__channel *c, const void *bytes, size_t size)
{
    if (!yk__wire_reserve(&c->out, YK__FRAME_HEADER + size)) {
        fail_memory(c);
        return;
    }
    unsigned char *header = c->out.data + c->out.size, *payload = header + YK__FRAME_HEADER;
    yk__frame_seal(&c->sending, YK__FRAME_CONTROL, bytes, size, payload, header);
    if (c->sending.cipher == YK__CIPHER_NONE)
        memcpy(payload, bytes, size);
    c->out.size += YK__FRAME_HEADER + size;
}

void yk__channel_begin(yk__channel *c, unsigned type)
{
    c->message.size = 0;
    yk__wire_put_u8(&c->message, type);
}

void yk__channel_end(yk__channel *c)
{
    if (c->message.failed)
        fail_memory(c);
    else if (may_send(c))
        put_frame(c, c->message.data, c->message.size);
    else
        yk__wire_put_value(&c->early, c->message.data, c->message.size);
    if (c->early.failed)
        fail_memory(c);
    if (c->message.capacity > PIECE)
        yk__wire_clear(&c->message);
}

void yk__channel_send(yk__channel *c, unsigned type, const void *payload, size_t size)
{
    yk__channel_begin(c, type);
    yk__wire_put(&c->message, payload, size);
    yk__channel_end(c);
}

/* Sends the messages that waited for the session's key. */
static void send_early(yk__channel *c)
{
    if (!c->early.size)
        return;
    yk__reader reader = {c->early.data, c->early.data + c->early.size, false};
    while (reader.at < reader.end) {
        size_t size = yk__read_u32(&reader);
        put_frame(c, yk__read_bytes(&reader, size), size);
    }
    yk__wire_clear(&c->early);
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */
/* Reads the part of the hand-shake that is in `in`. */
static void shake_hands(yk__channel *c)
{
    yk__handshake *h = &c->handshake;
    while (!c->open && c->state == YK__REACHED && c->in.size > c->taken) {
        bool could_send = may_send(c);
        size_t used = yk__handshake_feed(h, c->in.data + c->taken, c->in.size - c->taken, &c->out);
        c->taken += used;
        if (h->state == YK__HANDSHAKE_FAILED) {
            if (h->garbage)
                c->out.size = c->sent; /* a peer without the secret is not answered */
            fail(c, YK__REJECTED, h->why);
        } else if (c->out.failed) {
            fail_memory(c);
        } else if (!used) {
            break;
        }
        if (!could_send && may_send(c)) {
            yk__handshake_frames(h, &c->sending, &c->receiving);
            send_early(c);
        }
        c->open = h->state == YK__HANDSHAKE_DONE;
    }
}

yk__reason yk__channel_feed(yk__channel *c, const void *data, size_t size)
{
    if (c->taken == c->in.size) {
        c->in.size = c->taken = 0;
        if (c->in.capacity > PIECE) /* one large message is no reason to keep its room for ever */
            yk__wire_clear(&c->in);
    } else if (c->taken > c->in.size / 2) {
        memmove(c->in.data, c->in.data + c->taken, c->in.size - c->taken);
        c->in.size -= c->taken;
        c->taken = 0;
    }
    yk__wire_put(&c->in, data, size);
    if (c->in.failed)
        return fail_memory(c);
    if (!c->open)
        shake_hands(c);
    return c->state;
}

unsigned yk__channel_next(yk__channel *c, yk__reader *payload)
{
    size_t there = c->in.size - c->taken;
    unsigned char *at = c->in.data + c->taken;
    yk__frame_head head;
    char why[YK__WHY_SIZE];
    if (!c->open || c->state == YK__REJECTED || c->state == YK__DAMAGED || there < YK__FRAME_HEADER)
        return 0;
    if (!yk__frame_open_head(&c->receiving, at, c->limit + 1, &head, why)) {
        fail(c, YK__DAMAGED, why);
        return 0;
    }
    if (there < YK__FRAME_HEADER + head.size)
        return 0;
    at += YK__FRAME_HEADER;
    bool right = yk__frame_open(&c->receiving, &head, at, why);
    if (!right || !head.size || !at[0]) {
        fail(c, YK__DAMAGED, right ? "a message without a type" : why);
        return 0;
    }
    c->taken += YK__FRAME_HEADER + head.size;
    *payload = (yk__reader){at + 1, at + head.size, false};
    return at[0];
}

/* ---- with a socket ----------------------------------------------------------------------------------------------- */
yk__reason yk__channel_flush(yk__channel *c, int fd)
{
    char why[YK__WHY_SIZE];
    size_t done = 0, all = c->out.size - c->sent;
    if (!all)
        return c->state;
    yk__reason reason = yk__send_some(fd, c->out.data + c->sent, all, &done, why);
    c->closed |= reason == YK__LOST && errno == EPIPE;
    c->sent += done;
    if (reason == YK__LOST)
        return fail(c, YK__LOST, why);
    if (c->sent == c->out.size) {
        c->out.size = c->sent = 0;
        if (c->out.capacity > PIECE)
            yk__wire_clear(&c->out);
    }
    return c->state;
}

static yk__reason lost(yk__channel *c, const char *why)
{
    return fail(c, YK__LOST, c->open ? why : "the connection was closed by the other side during the handshake");
}

yk__reason yk__channel_receive(yk__channel *c, int fd, size_t most)
{
    unsigned char piece[PIECE];
    while (most && c->state == YK__REACHED) {
        char why[YK__WHY_SIZE];
        size_t got = 0;
        yk__reason reason = yk__receive_some(fd, piece, most < PIECE ? most : PIECE, &got, why);
        c->closed |= reason == YK__LOST && errno == EPIPE;
        if (got)
            yk__channel_feed(c, piece, got);
        most -= got;
        if (reason == YK__LOST)
            return lost(c, why);
        if (reason == YK__NO_ANSWER)
            break;
    }
    return c->state;
}

/* Bytes that are missing of what comes next, as far as is known. */
static size_t missing(yk__channel *c)
{
    size_t there = c->in.size - c->taken, whole = YK__FRAME_HEADER;
    const unsigned char *at = c->in.data + c->taken;
    if (!c->open) {
        whole = yk__handshake_wants(&c->handshake, at, there);
    } else if (there >= YK__FRAME_HEADER) {
        yk__frame_head head;
        char why[YK__WHY_SIZE];
        if (!yk__frame_open_head(&c->receiving, at, c->limit + 1, &head, why))
            return 0;
        whole += head.size;
    }
    return whole > there ? whole - there : 0;
}

yk__reason yk__channel_receive_exactly(yk__channel *c, int fd)
{
    bool open = c->open;
    for (size_t want; c->state == YK__REACHED && c->open == open && (want = missing(c)) > 0;) {
        unsigned char piece[YK__HELLO_LIMIT];
        char why[YK__WHY_SIZE];
        size_t got = 0;
        yk__reason reason = yk__receive_some(fd, piece, want < sizeof(piece) ? want : sizeof(piece), &got, why);
        if (got)
            yk__channel_feed(c, piece, got);
        if (reason == YK__LOST)
            return lost(c, why);
        if (reason == YK__NO_ANSWER)
            break;
    }
    return c->state;
}

static yk__reason no_answer(yk__channel *c, const char *why)
{
    snprintf(c->why, sizeof(c->why), "%s", why);
    return YK__NO_ANSWER;
}

yk__reason yk__channel_wait_sent(yk__channel *c, int fd, double deadline)
{
    for (;;) {
        if (yk__channel_flush(c, fd) || !yk__channel_unsent(c))
            return c->state;
        if (!yk__wait_fd(fd, POLLOUT, deadline))
            return no_answer(c, "no answer: not all could be sent in time");
    }
}

yk__reason yk__channel_wait_open(yk__channel *c, int fd, double deadline)
{
    while (yk__channel_flush(c, fd) == YK__REACHED && (!c->open || yk__channel_unsent(c))) {
        if (!yk__wait_fd(fd, yk__channel_unsent(c) ? POLLOUT : POLLIN, deadline))
            return no_answer(c, "no answer to the handshake");
        if (!yk__channel_unsent(c))
            yk__channel_receive_exactly(c, fd);
    }
    if (c->state == YK__REJECTED)
        yk__channel_flush(c, fd); /* the reason for the other side */
    return c->state;
}

yk__reason yk__channel_wait_message(yk__channel *c, int fd, double deadline, unsigned *type, yk__reader *payload)
{
    for (;;) {
        *type = yk__channel_next(c, payload);
        if (*type)
            return YK__REACHED;
        if (c->state != YK__REACHED || yk__channel_flush(c, fd) != YK__REACHED)
            return c->state;
        if (!yk__wait_fd(fd, POLLIN | (yk__channel_unsent(c) ? POLLOUT : 0), deadline))
            return no_answer(c, "no answer in time");
        yk__channel_receive(c, fd, PIECE);
    }
}
