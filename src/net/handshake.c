/*
 * handshake.c - versions, job and secret are compared before a peer is let in. Layer: net.
 *
 * Invariants: the session's key depends on both hellos, and a proof on its side's role, so neither an old proof nor its
 * own sent back is of use to anyone; the side that connected proves first; comparisons of proofs take the same time
 * whatever differs. Nothing that names this process is sent before the other has proved that it has the secret and
 * named the job. A message before acceptance has at most YK__HELLO_LIMIT bytes.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "net/handshake.h"

/* Constants of the protocol, as are those below. */
enum { PROOF = 1, ACCEPT = 2, REFUSE = 3 };
enum { WRONG_SECRET = 1, WRONG_JOB, OTHER_REASON /* the text follows, encrypted */ };
enum { WISH_ENCRYPTION = 1, HAS_AES = 2 };
enum { SEAL = crypto_aead_chacha20poly1305_ietf_ABYTES, HEAD = 8, WISHES_AT = 10, NONCE_AT = 11 };
static const char magic[4] = "yoke";
static const char no_yoke[] = "what answers there does not speak yoke's protocol";

/* ---- hellos ------------------------------------------------------------------------------------------------------ */
static void make_hello(yk__handshake *h)
{
    unsigned char *hello = h->own_hello;
    memcpy(hello, magic, sizeof(magic));
    for (int i = 0; i < 4; i++)
        hello[4 + i] = (unsigned char)((uint32_t)(YK__HELLO_SIZE - HEAD) >> (8 * i));
    hello[8] = (unsigned char)h->identity->protocol;
    hello[9] = (unsigned char)(h->identity->protocol >> 8);
    hello[WISHES_AT] = (unsigned char)((h->identity->encrypt ? WISH_ENCRYPTION : 0) |
                                       (crypto_aead_aes256gcm_is_available() ? HAS_AES : 0));
    randombytes_buf(hello + NONCE_AT, YK__NONCE_SIZE);
    if (h->identity->encrypt) {
        memcpy(h->private_key, hello + NONCE_AT, sizeof(h->private_key));
        crypto_scalarmult_base(hello + NONCE_AT, h->private_key);
    }
}

void yk__handshake_init(yk__handshake *h, const yk__identity *identity, bool accepts, yk__wire *out)
{
    memset(h, 0, sizeof(*h));
    h->identity = identity;
    h->accepts = accepts;
    make_hello(h);
    if (!accepts)
        yk__wire_put(out, h->own_hello, sizeof(h->own_hello));
}

void yk__handshake_clear(yk__handshake *h)
{
    sodium_memzero(h->private_key, sizeof(h->private_key));
    sodium_memzero(h->session, sizeof(h->session));
}

void yk__handshake_frames(const yk__handshake *h, yk__frame_state *send, yk__frame_state *receive)
{
    yk__frame_state_init(send, h->session, h->accepts ? 'A' : 'C', h->cipher);
    yk__frame_state_init(receive, h->session, h->accepts ? 'C' : 'A', h->cipher);
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

/* Derives the session's key, and the frames' encryption, once both hellos are there. */
static bool derive_session(yk__handshake *h)
{
    static const unsigned char purpose[] = "yoke session 2";
    const unsigned char *of_c = h->accepts ? h->peer_hello : h->own_hello;
    const unsigned char *of_a = h->accepts ? h->own_hello : h->peer_hello;
    unsigned either = of_c[WISHES_AT] | of_a[WISHES_AT], both = of_c[WISHES_AT] & of_a[WISHES_AT];
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, h->identity->key, YK__KEY_SIZE, sizeof(h->session));
    crypto_generichash_update(&hash, purpose, sizeof(purpose) - 1);
    crypto_generichash_update(&hash, of_c, YK__HELLO_SIZE);
    crypto_generichash_update(&hash, of_a, YK__HELLO_SIZE);
    if (both & WISH_ENCRYPTION) {
        unsigned char shared[crypto_scalarmult_BYTES];
        if (crypto_scalarmult(shared, h->private_key, h->peer_hello + NONCE_AT) != 0) {
            failed(h, "the peer sent a public key that is none");
            return false;
        }
        crypto_generichash_update(&hash, shared, sizeof(shared));
        sodium_memzero(shared, sizeof(shared));
    }
    crypto_generichash_final(&hash, h->session, sizeof(h->session));
    h->cipher = !(either & WISH_ENCRYPTION) ? YK__CIPHER_NONE : both & HAS_AES ? YK__CIPHER_AES : YK__CIPHER_CHACHA;
    return true;
}

/* ---- proofs ------------------------------------------------------------------------------------------------------ */
/* A key for one use in this session. */
static void derive_key(const yk__handshake *h, const char *use, char role, unsigned char key[32])
{
    unsigned char text[16] = {(unsigned char)role};
    size_t size = strlen(use);
    memcpy(text + 1, use, size);
    crypto_generichash(key, 32, text, 1 + size, h->session, sizeof(h->session));
}

/* Appends `bytes` encrypted for this session; each role and use encrypts one text only, so the nonce may be constant.
 */
static void put_sealed(const yk__handshake *h, const char *use, const void *bytes, size_t size, yk__wire *out)
{
    unsigned char key[32], nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES] = {0};
    derive_key(h, use, h->accepts ? 'A' : 'C', key);
    if (yk__wire_reserve(out, size + SEAL)) {
        crypto_aead_chacha20poly1305_ietf_encrypt(out->data + out->size, NULL, bytes, size, NULL, 0, NULL, nonce, key);
        out->size += size + SEAL;
    }
    sodium_memzero(key, sizeof(key));
}

/* Opens the text that the peer sealed, of size - SEAL bytes, into `bytes`; false where it is not authentic. */
static bool open_sealed(const yk__handshake *h, const char *use, const unsigned char *sealed, size_t size, void *bytes)
{
    unsigned char key[32], nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES] = {0};
    derive_key(h, use, h->accepts ? 'C' : 'A', key);
    bool right = size >= SEAL &&
                 crypto_aead_chacha20poly1305_ietf_decrypt(bytes, NULL, NULL, sealed, size, NULL, 0, nonce, key) == 0;
    sodium_memzero(key, sizeof(key));
    return right;
}

static void append_proof(const yk__handshake *h, unsigned type, yk__wire *out)
{
    const yk__identity *me = h->identity;
    yk__wire text = {0};
    yk__wire_put_text8(&text, me->version);
    yk__wire_put_text8(&text, me->host);
    yk__wire_put_u32(&text, me->pid);
    yk__wire_put_text8(&text, me->service);
    yk__wire_put_text8(&text, h->accepts ? "" : me->job);
    unsigned char proof[YK__PROOF_SIZE];
    derive_key(h, "proof", h->accepts ? 'A' : 'C', proof);
    size_t begin = yk__wire_frame_begin(out, type);
    yk__wire_put(out, proof, sizeof(proof));
    put_sealed(h, "identity", text.data, text.size, out);
    yk__wire_frame_end(out, begin);
    out->failed |= text.failed;
    yk__wire_clear(&text);
}

static bool proof_is_right(const yk__handshake *h, const unsigned char *proof)
{
    unsigned char expected[YK__PROOF_SIZE];
    derive_key(h, "proof", h->accepts ? 'C' : 'A', expected);
    return sodium_memcmp(proof, expected, sizeof(expected)) == 0;
}

/* Reads text from a peer, in a form that can be part of a message. */
static bool read_text(yk__reader *reader, char *text, size_t capacity)
{
    char plain[256];
    size_t size = yk__read_u8(reader);
    const unsigned char *bytes = yk__read_bytes(reader, size);
    if (!bytes || size >= capacity)
        return false;
    memcpy(plain, bytes, size);
    yk__escape(plain, size, text, capacity);
    return true;
}

static bool read_identity(yk__handshake *h, const unsigned char *sealed, size_t size)
{
    unsigned char text[YK__HELLO_LIMIT];
    yk__peer *peer = &h->peer;
    if (!open_sealed(h, "identity", sealed, size, text))
        return false;
    yk__reader reader = {text, text + size - SEAL, false};
    bool whole =
        read_text(&reader, peer->version, sizeof(peer->version)) && read_text(&reader, peer->host, sizeof(peer->host));
    peer->pid = yk__read_u32(&reader);
    return whole && read_text(&reader, peer->service, sizeof(peer->service)) &&
           read_text(&reader, peer->job, sizeof(peer->job)) && yk__read_finished(&reader);
}

/* ---- the other side's messages ----------------------------------------------------------------------------------- */
static void receive_hello(yk__handshake *h, const unsigned char *data, size_t size, yk__wire *out)
{
    const yk__identity *me = h->identity;
    yk__reader reader = {data + HEAD, data + size, false};
    h->peer.protocol = yk__read_u16(&reader);
    if (reader.bad) {
        h->garbage = true;
        failed(h, "%s", no_yoke);
        return;
    }
    if (h->accepts)
        yk__wire_put(out, h->own_hello, sizeof(h->own_hello)); /* another version is to see this side's protocol */
    if (h->peer.protocol != me->protocol) {
        failed(h, "wrong version: yoke %s speaks protocol %u, the peer's yoke protocol %u", me->version, me->protocol,
               h->peer.protocol);
        return;
    }
    if (size != YK__HELLO_SIZE) {
        h->garbage = true;
        failed(h, "%s", no_yoke);
        return;
    }
    memcpy(h->peer_hello, data, size);
    if (!derive_session(h))
        return;
    h->state = YK__HANDSHAKE_PROOF;
    if (!h->accepts)
        append_proof(h, PROOF, out);
}

/* Fails on this side, and sends the other as much of the reason as it may know. */
static void refuse(yk__handshake *h, yk__wire *out, unsigned reason, const char *why)
{
    size_t begin = yk__wire_frame_begin(out, REFUSE);
    yk__wire_put_u8(out, reason);
    if (reason == OTHER_REASON)
        put_sealed(h, "reason", why, strnlen(why, YK__HELLO_LIMIT - 64), out);
    yk__wire_frame_end(out, begin);
    failed(h, "%s", why);
}

static void receive_proof(yk__handshake *h, unsigned type, const unsigned char *payload, size_t size, yk__wire *out)
{
    const yk__identity *me = h->identity;
    const yk__peer *peer = &h->peer;
    char why[YK__WHY_SIZE];
    if (type != PROOF || size < YK__PROOF_SIZE) {
        failed(h, "the peer sent no proof of the secret");
    } else if (!proof_is_right(h, payload)) {
        snprintf(why, sizeof(why), "wrong secret: the peer does not have that of job '%s' on %s", me->job, me->host);
        refuse(h, out, WRONG_SECRET, why);
    } else if (!read_identity(h, payload + YK__PROOF_SIZE, size - YK__PROOF_SIZE)) {
        failed(h, "the peer's identity is malformed");
    } else if (strcmp(peer->job, me->job) != 0) {
        snprintf(why, sizeof(why), "wrong job: process %u on %s belongs to job '%s', process %u on %s to job '%s'",
                 peer->pid, peer->host, peer->job, me->pid, me->host, me->job);
        refuse(h, out, WRONG_JOB, why);
    } else if (strcmp(peer->version, me->version) != 0) {
        snprintf(why, sizeof(why), "wrong version: %s runs yoke %s, %s runs yoke %s", me->host, me->version, peer->host,
                 peer->version);
        refuse(h, out, OTHER_REASON, why);
    } else if (strcmp(peer->service, me->service) != 0) {
        snprintf(why, sizeof(why), "wrong service: %s wants '%s', %s wants '%s'", me->host, me->service, peer->host,
                 peer->service);
        refuse(h, out, OTHER_REASON, why);
    } else {
        append_proof(h, ACCEPT, out);
        h->state = YK__HANDSHAKE_DONE;
    }
}

static void receive_refusal(yk__handshake *h, const unsigned char *payload, size_t size)
{
    const yk__identity *me = h->identity;
    unsigned char text[YK__HELLO_LIMIT];
    unsigned reason = size ? payload[0] : 0;
    if (reason == WRONG_SECRET)
        failed(h, "wrong secret: that of process %u on %s is not the one of the job that listens there", me->pid,
               me->host);
    else if (reason == WRONG_JOB)
        failed(h, "wrong job: process %u on %s belongs to job '%s', and the one that listens there does not", me->pid,
               me->host, me->job);
    else if (reason == OTHER_REASON && open_sealed(h, "reason", payload + 1, size - 1, text)) {
        yk__escape((const char *)text, size - 1 - SEAL, h->why, sizeof(h->why));
        h->state = YK__HANDSHAKE_FAILED;
    } else {
        failed(h, "refused without a reason");
    }
}

static void receive_acceptance(yk__handshake *h, unsigned type, const unsigned char *payload, size_t size)
{
    const yk__identity *me = h->identity;
    if (type == REFUSE)
        receive_refusal(h, payload, size);
    else if (type != ACCEPT || size < YK__PROOF_SIZE)
        failed(h, "what listens there gave no proof of the secret");
    else if (!proof_is_right(h, payload))
        failed(h, "wrong secret: what listens there does not have that of job '%s' of process %u on %s", me->job,
               me->pid, me->host);
    else if (!read_identity(h, payload + YK__PROOF_SIZE, size - YK__PROOF_SIZE))
        failed(h, "the identity of what listens there is malformed");
    else
        h->state = YK__HANDSHAKE_DONE;
}

size_t yk__handshake_feed(yk__handshake *h, const unsigned char *data, size_t size, yk__wire *out)
{
    if (h->state == YK__HANDSHAKE_HELLO) {
        size_t compared = size < sizeof(magic) ? size : sizeof(magic);
        if (memcmp(data, magic, compared) != 0) {
            h->garbage = true;
            failed(h, "%s", no_yoke);
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
        receive_hello(h, data, length, out);
        return length;
    }
    if (h->state == YK__HANDSHAKE_PROOF) {
        if (size < YK__FRAME_HEAD)
            return 0;
        size_t length = yk__load_u32(data);
        if (length < 1 || length > YK__HELLO_LIMIT) {
            failed(h, "the peer sent a message of %zu bytes in the hand-shake", length);
            return 0;
        }
        if (size < YK__FRAME_HEAD + length)
            return 0;
        const unsigned char *payload = data + YK__FRAME_HEAD + 1;
        if (h->accepts)
            receive_proof(h, data[YK__FRAME_HEAD], payload, length - 1, out);
        else
            receive_acceptance(h, data[YK__FRAME_HEAD], payload, length - 1);
        return YK__FRAME_HEAD + length;
    }
    return 0;
}

size_t yk__handshake_wants(const yk__handshake *h, const unsigned char *data, size_t size)
{
    bool hello = h->state == YK__HANDSHAKE_HELLO;
    size_t head = hello ? HEAD : YK__FRAME_HEAD;
    size_t length = size < head ? 0 : yk__load_u32(data + (hello ? sizeof(magic) : 0));
    return head + (length < YK__HELLO_LIMIT ? length : YK__HELLO_LIMIT);
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
    yk__handshake_clear(&g->handshake);
}

int yk__greeting_waits_for(const yk__greeting *g)
{
    return g->out.size ? POLLOUT : POLLIN;
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
        reason = yk__receive_some(fd, g->in, yk__handshake_wants(h, g->in, g->got), &g->got, why);
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
