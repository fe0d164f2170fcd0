/*
 * handshake.c - versions, job and secret are compared before a peer is let in. Layer: net.
 *
 * Invariants: a side proves that it has the key over both hellos and its role, so neither an old proof nor its own sent
 * back is of use to anyone; the side that connected proves first; comparisons of proofs take the same time whatever
 * differs. A message before acceptance is at most YK__HELLO_LIMIT bytes.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "net/handshake.h"

enum { PROOF = 1, ACCEPT = 2, REFUSE = 3 };
static const char magic[4] = "yoke";

static void append_hello(yk__handshake *h, yk__wire *out)
{
    const yk__identity *me = h->identity;
    size_t begin = out->size;
    yk__wire_put(out, magic, sizeof(magic));
    yk__wire_put_u32(out, 0);
    yk__wire_put_u16(out, me->protocol);
    yk__wire_put_text8(out, me->version);
    yk__wire_put_text8(out, me->host);
    yk__wire_put_u32(out, me->pid);
    yk__wire_put_text8(out, me->service);
    yk__wire_put_text8(out, h->accepts ? "" : me->job);
    yk__wire_put(out, h->nonce, sizeof(h->nonce));
    if (out->failed)
        return;
    h->own_size = out->size - begin;
    uint32_t size = (uint32_t)(h->own_size - sizeof(magic) - 4);
    for (int i = 0; i < 4; i++)
        out->data[begin + sizeof(magic) + (size_t)i] = (unsigned char)(size >> (8 * i));
    memcpy(h->own_hello, out->data + begin, h->own_size);
}

void yk__handshake_init(yk__handshake *h, const yk__identity *identity, bool accepts, yk__wire *out)
{
    memset(h, 0, sizeof(*h));
    h->identity = identity;
    h->accepts = accepts;
    randombytes_buf(h->nonce, sizeof(h->nonce));
    if (!accepts)
        append_hello(h, out);
}

static void failed(yk__handshake *h, const char *format, ...) YK_PRINTF(2, 3);
static void failed(yk__handshake *h, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(h->why, sizeof(h->why), format, arguments);
    va_end(arguments);
    h->state = YK__HANDSHAKE_FAILED;
}

/* Fails on this side and tells the other why. */
static void refuse(yk__handshake *h, yk__wire *out, const char *why)
{
    size_t begin = yk__wire_frame_begin(out, REFUSE);
    yk__wire_put(out, why, strlen(why));
    yk__wire_frame_end(out, begin);
    failed(h, "%s", why);
}

/* Text from a peer: control characters become '?', so that it can stand in a message. */
static bool read_text(yk__reader *reader, char *text, size_t capacity)
{
    size_t size = yk__read_u8(reader);
    const unsigned char *bytes = yk__read_bytes(reader, size);
    if (!bytes || size >= capacity)
        return false;
    for (size_t i = 0; i < size; i++)
        text[i] = bytes[i] >= 32 && bytes[i] != 127 ? (char)bytes[i] : '?';
    text[size] = 0;
    return true;
}

static void prove(const yk__handshake *h, bool of_acceptor, unsigned char proof[YK__PROOF_SIZE])
{
    const unsigned char role = of_acceptor ? 'A' : 'C';
    bool own_first = !h->accepts;
    crypto_auth_hmacsha512256_state hmac;
    crypto_auth_hmacsha512256_init(&hmac, h->identity->key, YK__KEY_SIZE);
    crypto_auth_hmacsha512256_update(&hmac, &role, 1);
    crypto_auth_hmacsha512256_update(&hmac, own_first ? h->own_hello : h->peer_hello,
                                     own_first ? h->own_size : h->peer_size);
    crypto_auth_hmacsha512256_update(&hmac, own_first ? h->peer_hello : h->own_hello,
                                     own_first ? h->peer_size : h->own_size);
    crypto_auth_hmacsha512256_final(&hmac, proof);
}

static void append_proof(const yk__handshake *h, unsigned type, yk__wire *out)
{
    unsigned char proof[YK__PROOF_SIZE];
    prove(h, h->accepts, proof);
    size_t begin = yk__wire_frame_begin(out, type);
    yk__wire_put(out, proof, sizeof(proof));
    yk__wire_frame_end(out, begin);
}

static bool proof_is_right(const yk__handshake *h, const unsigned char *proof)
{
    unsigned char expected[YK__PROOF_SIZE];
    prove(h, !h->accepts, expected);
    return sodium_memcmp(proof, expected, sizeof(expected)) == 0;
}

/* Reads the peer's hello and compares. */
static void take_hello(yk__handshake *h, const unsigned char *data, size_t size, yk__wire *out)
{
    const yk__identity *me = h->identity;
    yk__peer *peer = &h->peer;
    memcpy(h->peer_hello, data, size);
    h->peer_size = size;
    yk__reader reader = {data + sizeof(magic) + 4, data + size, false};
    peer->protocol = yk__read_u16(&reader);
    if (!read_text(&reader, peer->version, sizeof(peer->version)) ||
        !read_text(&reader, peer->host, sizeof(peer->host))) {
        h->garbage = true;
        failed(h, "what answers there does not speak yoke's protocol");
        return;
    }
    if (h->accepts)
        append_hello(h, out); /* before anything is refused: the peer is to know this side's version */
    if (peer->protocol != me->protocol || strcmp(peer->version, me->version) != 0) {
        char why[YK__WHY_SIZE];
        snprintf(why, sizeof(why), "wrong version: %s runs yoke %s (protocol %u), %s runs yoke %s (protocol %u)",
                 me->host, me->version, me->protocol, peer->host, peer->version, peer->protocol);
        if (h->accepts)
            refuse(h, out, why);
        else
            failed(h, "%s", why);
        return;
    }
    peer->pid = yk__read_u32(&reader);
    bool whole = read_text(&reader, peer->service, sizeof(peer->service)) &&
                 read_text(&reader, peer->job, sizeof(peer->job)) && yk__read_bytes(&reader, YK__NONCE_SIZE) &&
                 yk__read_finished(&reader);
    if (!whole) {
        failed(h, "the hello of %s is malformed", peer->host);
        return;
    }
    char why[YK__WHY_SIZE];
    if (strcmp(peer->service, me->service) != 0) {
        snprintf(why, sizeof(why), "wrong service: %s wants '%s', %s wants '%s'", me->host, me->service, peer->host,
                 peer->service);
        if (h->accepts)
            refuse(h, out, why);
        else
            failed(h, "%s", why);
        return;
    }
    if (h->accepts && strcmp(peer->job, me->job) != 0) {
        snprintf(why, sizeof(why), "wrong job: process %u on %s belongs to job '%s', process %u on %s to job '%s'",
                 peer->pid, peer->host, peer->job, me->pid, me->host, me->job);
        refuse(h, out, why);
        return;
    }
    h->state = YK__HANDSHAKE_PROOF;
    if (!h->accepts)
        append_proof(h, PROOF, out);
}

static void take_answer(yk__handshake *h, unsigned type, const unsigned char *payload, size_t size, yk__wire *out)
{
    if (h->accepts) {
        if (type != PROOF || size != YK__PROOF_SIZE) {
            failed(h, "%s sent no proof of the secret", h->peer.host);
        } else if (!proof_is_right(h, payload)) {
            char why[YK__WHY_SIZE];
            snprintf(why, sizeof(why), "wrong secret: that of process %u on %s is not the one of job '%s' on %s",
                     h->peer.pid, h->peer.host, h->identity->job, h->identity->host);
            refuse(h, out, why);
        } else {
            append_proof(h, ACCEPT, out);
            h->state = YK__HANDSHAKE_DONE;
        }
        return;
    }
    if (type == REFUSE) {
        yk__reader reader = {payload, payload + size, false};
        char text[YK__WHY_SIZE];
        size_t used = size < sizeof(text) ? size : sizeof(text) - 1;
        const unsigned char *bytes = yk__read_bytes(&reader, used);
        for (size_t i = 0; i < used; i++)
            text[i] = bytes[i] >= 32 && bytes[i] != 127 ? (char)bytes[i] : '?';
        text[used] = 0;
        failed(h, "%s", used ? text : "refused without a reason");
    } else if (type != ACCEPT || size != YK__PROOF_SIZE) {
        failed(h, "%s gave no proof of the secret", h->peer.host);
    } else if (!proof_is_right(h, payload)) {
        failed(h, "wrong secret: process %u on %s does not have that of job '%s'", h->peer.pid, h->peer.host,
               h->identity->job);
    } else {
        h->state = YK__HANDSHAKE_DONE;
    }
}

size_t yk__handshake_feed(yk__handshake *h, const unsigned char *data, size_t size, yk__wire *out)
{
    if (h->state == YK__HANDSHAKE_HELLO) {
        size_t compared = size < sizeof(magic) ? size : sizeof(magic);
        if (memcmp(data, magic, compared) != 0) {
            h->garbage = true;
            failed(h, "what answers there does not speak yoke's protocol");
            return 0;
        }
        if (size < sizeof(magic) + 4)
            return 0;
        size_t length = yk__load_u32(data + sizeof(magic));
        if (length > YK__HELLO_LIMIT - sizeof(magic) - 4) {
            h->garbage = true;
            failed(h, "a hello of %zu bytes, more than the %d that are possible", length, YK__HELLO_LIMIT);
            return 0;
        }
        length += sizeof(magic) + 4;
        if (size < length)
            return 0;
        take_hello(h, data, length, out);
        return length;
    }
    if (h->state == YK__HANDSHAKE_PROOF) {
        if (size < YK__FRAME_HEAD)
            return 0;
        size_t length = yk__load_u32(data);
        if (length < 1 || length > YK__HELLO_LIMIT) {
            failed(h, "%s sent a frame of %zu bytes in the handshake", h->peer.host, length);
            return 0;
        }
        if (size < YK__FRAME_HEAD + length)
            return 0;
        take_answer(h, data[YK__FRAME_HEAD], data + YK__FRAME_HEAD + 1, length - 1, out);
        return YK__FRAME_HEAD + length;
    }
    return 0;
}

/* ---- on a socket ------------------------------------------------------------------------------------------------- */
void yk__greeting_init(yk__greeting *g, const yk__identity *identity, bool accepts)
{
    memset(g, 0, sizeof(*g));
    yk__handshake_init(&g->handshake, identity, accepts, &g->out);
}

void yk__greeting_clear(yk__greeting *g)
{
    yk__wire_clear(&g->out);
}

int yk__greeting_waits_for(const yk__greeting *g)
{
    return g->out.size ? POLLOUT : POLLIN;
}

/* Bytes that the message which is arriving has, as far as is known: no byte more is received, because what follows
 * belongs to someone else. */
static size_t message_size(const yk__greeting *g)
{
    bool hello = g->handshake.state == YK__HANDSHAKE_HELLO;
    size_t head = hello ? sizeof(magic) + 4 : YK__FRAME_HEAD;
    size_t length = g->got < head ? 0 : yk__load_u32(g->in + (hello ? sizeof(magic) : 0));
    return head + (length < YK__HELLO_LIMIT ? length : YK__HELLO_LIMIT);
}

static yk__reason move_on(yk__greeting *g, int fd, char why[YK__WHY_SIZE])
{
    yk__handshake *h = &g->handshake;
    for (;;) {
        if (g->out.failed) {
            snprintf(why, YK__WHY_SIZE, "out of memory");
            return YK__LOST;
        }
        yk__reason reason = yk__send_some(fd, g->out.data, g->out.size, &g->sent, why);
        if (reason == YK__NO_ANSWER)
            return reason;
        g->out.size = g->sent = 0;
        if (h->state == YK__HANDSHAKE_FAILED) {
            snprintf(why, YK__WHY_SIZE, "%s", h->why);
            return YK__REJECTED;
        }
        if (reason || h->state == YK__HANDSHAKE_DONE)
            return reason;
        reason = yk__receive_some(fd, g->in, message_size(g), &g->got, why);
        if (reason)
            return reason;
        if (yk__handshake_feed(h, g->in, g->got, &g->out)) /* else there is its head alone yet */
            g->got = 0;
    }
}

yk__reason yk__greeting_move(yk__greeting *g, int fd, char why[YK__WHY_SIZE])
{
    yk__reason reason = move_on(g, fd, why);
    if (reason == YK__NO_ANSWER)
        snprintf(why, YK__WHY_SIZE, "no answer to the handshake");
    else if (reason == YK__LOST && g->handshake.state == YK__HANDSHAKE_HELLO)
        snprintf(why, YK__WHY_SIZE, "the connection was closed by the other side during the handshake");
    return reason;
}

yk__reason yk__handshake_run(int fd, const yk__identity *identity, bool accepts, double deadline, yk__peer *peer,
                             char why[YK__WHY_SIZE])
{
    yk__greeting g;
    yk__reason reason;
    yk__greeting_init(&g, identity, accepts);
    do
        reason = yk__greeting_move(&g, fd, why);
    while (reason == YK__NO_ANSWER && yk__wait_fd(fd, yk__greeting_waits_for(&g), deadline));
    if (peer)
        *peer = g.handshake.peer;
    yk__greeting_clear(&g);
    return reason;
}

yk__reason yk__frame_receive(int fd, yk__wire *frame, size_t limit, double deadline, char why[YK__WHY_SIZE])
{
    unsigned char head[YK__FRAME_HEAD];
    frame->size = 0;
    yk__reason reason = yk__receive_all(fd, head, sizeof(head), deadline, why);
    if (reason)
        return reason;
    size_t length = yk__load_u32(head);
    if (length < 1 || length > limit) {
        snprintf(why, YK__WHY_SIZE, "a message of %zu bytes where 1 to %zu are possible", length, limit);
        return YK__LOST;
    }
    if (!yk__wire_reserve(frame, length)) {
        snprintf(why, YK__WHY_SIZE, "out of memory for a message of %zu bytes", length);
        return YK__LOST;
    }
    reason = yk__receive_all(fd, frame->data, length, deadline, why);
    frame->size = reason ? 0 : length;
    return reason;
}
