/*
 * handshake.h - how two processes of a job find out that they belong together, before anything else is said. Layer:
 * net.
 *
 * The steps, C the side that connected and A the one that accepted:
 *   1. C -> A  hello: "yoke", size, protocol, yoke version, host, pid, service, job, 32 random bytes
 *   2. A -> C  hello, the same without job; nothing at all to a peer that did not begin with "yoke"
 *   3. C -> A  proof: HMAC-SHA512-256(key, "C", hello of C, hello of A)
 *   4. A -> C  accept with the same for "A", or refuse with the reason as text
 * The key is the BLAKE2b hash of the job's secret. The layout of a hello up to the host never changes, so that any two
 * versions can name each other. Frames follow as in wire.h. What is sent later is neither encrypted nor signed.
 */
#ifndef YOKE_NET_HANDSHAKE_H
#define YOKE_NET_HANDSHAKE_H

#include "net/socket.h"
#include "net/wire.h"

enum {
    YK__PROTOCOL = 1, /* to be raised with every change of what is sent */
    YK__KEY_SIZE = 32,
    YK__PROOF_SIZE = 32,
    YK__NONCE_SIZE = 32,
    YK__HELLO_LIMIT = 512,
    YK__JOB_SIZE = 128
};

/* Who this process is. */
typedef struct yk__identity {
    char service[16]; /* "store", "comm": what the connection is for; both sides must want the same */
    char job[YK__JOB_SIZE];
    char version[32]; /* of yoke */
    unsigned protocol;
    char host[64];
    uint32_t pid;
    bool has_secret; /* false for the empty one */
    unsigned char key[YK__KEY_SIZE];
} yk__identity;

/* Fills it for this process. A NULL secret is looked up in the environment, a NULL job as well (see yoke/store.h). */
yk_status yk__identity_init(yk__identity *identity, const char *service, const void *secret, size_t secret_size,
                            const char *job) YK_MUST_CHECK;
void yk__identity_clear(yk__identity *identity); /* wipes the key */
/* An error unless a secret is there or the address is a loopback one; `what` names the caller. */
yk_status yk__identity_allows(const yk__identity *identity, const yk__address *address, const char *what) YK_MUST_CHECK;

/* What a peer says of itself. */
typedef struct yk__peer {
    char service[16], job[YK__JOB_SIZE], version[32], host[64];
    unsigned protocol;
    uint32_t pid;
} yk__peer;

typedef enum yk__handshake_state {
    YK__HANDSHAKE_HELLO,
    YK__HANDSHAKE_PROOF,
    YK__HANDSHAKE_DONE,
    YK__HANDSHAKE_FAILED /* `why` says it; what is in `out` is still to be sent */
} yk__handshake_state;

/* One side of a handshake, fed with what arrives. */
typedef struct yk__handshake {
    const yk__identity *identity; /* borrowed */
    bool accepts;                 /* the side that accepted the connection */
    yk__handshake_state state;
    bool garbage; /* failed on what is no hello of any version: not to be answered */
    yk__peer peer;
    unsigned char own_hello[YK__HELLO_LIMIT], peer_hello[YK__HELLO_LIMIT];
    size_t own_size, peer_size;
    unsigned char nonce[YK__NONCE_SIZE];
    char why[YK__WHY_SIZE];
} yk__handshake;
/* Begins; the side that connects puts its hello into `out`. */
void yk__handshake_init(yk__handshake *handshake, const yk__identity *identity, bool accepts, yk__wire *out);
/* Takes one message, if `data` holds a whole one: returns the bytes taken, 0 when more is needed or it has ended. */
size_t yk__handshake_feed(yk__handshake *handshake, const unsigned char *data, size_t size, yk__wire *out);

/* One side of a handshake on a connected non-blocking socket, moved on when the socket is ready. */
typedef struct yk__greeting {
    yk__handshake handshake;
    unsigned char in[2 * YK__HELLO_LIMIT]; /* the message that is arriving: `got` bytes of it */
    size_t got, sent;
    yk__wire out; /* to be sent, from `sent` on */
} yk__greeting;
void yk__greeting_init(yk__greeting *greeting, const yk__identity *identity, bool accepts);
/* Sends and receives what it can without waiting, no byte behind the handshake: YK__NO_ANSWER until it has ended, then
 * as yk__handshake_run. */
yk__reason yk__greeting_move(yk__greeting *greeting, int fd, char why[YK__WHY_SIZE]);
/* POLLIN or POLLOUT: what has to happen before it can move on. */
int yk__greeting_waits_for(const yk__greeting *greeting);
void yk__greeting_clear(yk__greeting *greeting);

/*
 * A whole handshake on a connected non-blocking socket: YK__REACHED when the peer is accepted, YK__REJECTED when either
 * side rejects the other (wrong version, service, job or secret; not yoke), YK__NO_ANSWER and YK__LOST as in socket.h.
 * `peer` may be NULL.
 */
yk__reason yk__handshake_run(int fd, const yk__identity *identity, bool accepts, double deadline, yk__peer *peer,
                             char why[YK__WHY_SIZE]);

/* ---- frames on a socket ---------------------------------------------------------------------------------- */
/* Receives one frame of at most `limit` bytes into `frame` (emptied first; type, then payload). A longer one is
 * YK__LOST. */
yk__reason yk__frame_receive(int fd, yk__wire *frame, size_t limit, double deadline, char why[YK__WHY_SIZE]);

#endif
