/*
 * handshake.h - the exchange by which two processes of a job find out that they belong together, before any message.
 * Layer: net.
 *
 * The steps, C the side that connected and A the one that accepted:
 *   1. C -> A  hello: "yoke", u32 size, u16 protocol, u8 wishes, 32 random bytes
 *   2. A -> C  the same; nothing at all to a peer that did not begin with "yoke"
 *   3. C -> A  proof of C, and its identity (version, host, pid, service, job), encrypted
 *   4. A -> C  accept with the same of A; or refuse with a reason
 * From both hellos and the job's secret each side derives the session's key (BLAKE2b). The proofs are keyed hashes
 * under it, and so are the keys of the frames that follow (frame.h). So a side that lacks the secret, or the job's
 * name, learns of the other nothing but that it speaks yoke's protocol. Where both sides wish encryption the random
 * bytes are X25519 public keys, and their product goes into the session's key: who learns the secret later cannot
 * decrypt what was sent before. "yoke", size and protocol never change, so that any two versions can tell that they
 * differ.
 *
 * C may send frames right after its proof: A takes them when it has accepted C.
 */
#ifndef YOKE_NET_HANDSHAKE_H
#define YOKE_NET_HANDSHAKE_H

#include "net/frame.h"
#include "net/wire.h"

enum {
    YK__PROTOCOL = 10, /* to be raised with every change of what is sent */
    YK__KEY_SIZE = 32,
    YK__PROOF_SIZE = 32,
    YK__NONCE_SIZE = 32,
    YK__HELLO_SIZE = 4 + 4 + 2 + 1 + YK__NONCE_SIZE,
    YK__HELLO_LIMIT = 512, /* of a hello of any protocol, and of the messages of the hand-shake */
    YK__JOB_SIZE = 128
};

/* The identity of this process, as it shows it to a peer. */
typedef struct yk__identity {
    char service[16]; /* "store", "comm": what the connection is for; both sides must want the same */
    char job[YK__JOB_SIZE];
    char version[32]; /* of yoke */
    unsigned protocol;
    char host[64];
    uint32_t pid;
    bool has_secret; /* false for the empty one */
    bool encrypt;    /* the bytes after the hand-shake; one side that wants it is enough */
    unsigned char key[YK__KEY_SIZE];
} yk__identity;

/* Fills it for this process. A NULL secret is looked up in the environment, a NULL job as well (see yoke/store.h). */
yk_status yk__identity_init(yk__identity *identity, const char *service, const void *secret, size_t secret_size,
                            const char *job) YK_MUST_CHECK;
void yk__identity_clear(yk__identity *identity); /* wipes the key */
/* From here on all identities of this process wish encryption, as with YOKE_ENCRYPT=1. */
void yk__encrypt_from_now_on(void);
/* *wished is true if they do; an error where YOKE_ENCRYPT is neither 0 nor 1. */
yk_status yk__encryption_wished(bool *wished) YK_MUST_CHECK;
/* Bytes of a secret: 128 bits, if they are random; enough for keys of every size in use, so that a wrong file is
 * refused before it is read whole. */
enum { YK__SECRET_LEAST = 16, YK__SECRET_MOST = 4096, YK__SECRET_ROOM = YK__SECRET_MOST + 1 };
/* The file of a user's own secret, in the home folder: that of jobs that srun starts, where no variable names another.
 */
#define YK__USERS_SECRET ".yoke-job-secret"
/* Reads a secret from the start of a file or memory file, whose position stays as it is. The end of its last line is no
 * part of it: all that read one do so here, or they would disagree. `where` names the file in errors. */
yk_status yk__secret_read(int fd, const char *where, unsigned char bytes[YK__SECRET_ROOM], size_t *size) YK_MUST_CHECK;
struct stat;
/* A description of what is wrong with a file of `size` bytes (without the last newline) as a secret, and of what to do;
 * NULL: nothing. */
const char *yk__secret_file_problem(const struct stat *about, size_t size);
/* An error unless a secret is there or the address is a loopback one; `what` names the caller. */
yk_status yk__identity_allows(const yk__identity *identity, const yk__address *address, const char *what) YK_MUST_CHECK;
/* Without a secret: keeps those addresses of a name that may be used, where there are any; gives how many. */
size_t yk__identity_narrow(const yk__identity *identity, yk__address *addresses, size_t count);

/* The identity that a peer shows. */
typedef struct yk__peer {
    char service[16], job[YK__JOB_SIZE], version[32], host[64];
    unsigned protocol;
    uint32_t pid;
} yk__peer;

typedef enum yk__handshake_state {
    YK__HANDSHAKE_HELLO,
    YK__HANDSHAKE_PROOF, /* the side that connected may send frames from here on */
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
    unsigned char own_hello[YK__HELLO_SIZE], peer_hello[YK__HELLO_SIZE];
    unsigned char private_key[32];          /* of the hello's public one, where encryption is wished */
    unsigned char session[YK__SESSION_KEY]; /* from YK__HANDSHAKE_PROOF on */
    yk__cipher cipher;                      /* of the frames */
    char why[YK__WHY_SIZE];
} yk__handshake;
/* Begins; the side that connects puts its hello into `out`. */
void yk__handshake_init(yk__handshake *handshake, const yk__identity *identity, bool accepts, yk__wire *out);
/* Wipes the keys. */
void yk__handshake_clear(yk__handshake *handshake);
/* The frames of this side and those of the other, once there is a session's key. */
void yk__handshake_frames(const yk__handshake *handshake, yk__frame_state *send, yk__frame_state *receive);
/* Takes one message, if `data` holds a whole one: returns the bytes taken, 0 when more is needed or it has ended. */
size_t yk__handshake_feed(yk__handshake *handshake, const unsigned char *data, size_t size, yk__wire *out);
/* The size of the message that begins with these bytes, as far as is known: for callers that may receive no byte after
 * it. */
size_t yk__handshake_wants(const yk__handshake *handshake, const unsigned char *data, size_t size);

/* One side of a handshake on a connected non-blocking socket, moved on when the socket is ready. */
typedef struct yk__greeting {
    yk__handshake handshake;
    unsigned char in[2 * YK__HELLO_LIMIT]; /* the message that is arriving: `got` bytes of it */
    size_t got, sent;
    yk__wire out; /* to be sent, from `sent` on */
} yk__greeting;
void yk__greeting_init(yk__greeting *greeting, const yk__identity *identity, bool accepts);
/* Sends and receives what it can without waiting, no byte after the handshake: YK__NO_ANSWER until it has ended, then
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
