/*
 * store_session.h - one client of a TCP store as the server sees it, without the socket: bytes in, bytes out, and the
 * keyspace between. Layer: net.
 *
 * A client sends messages (channel.h) of one request each and reads one reply for each; only `cancel` may follow a
 * request that waits, unless that is AWAIT. Request: type, then as below; reply: yk__reply, then as below. Keys have 16
 * bits of length, values 32.
 *
 *   request      payload                      reply to it
 *   SET          key, value                   -
 *   GET          key                          value                     (waits)
 *   ADD          key, i64                     i64
 *   WAIT         u32 count, keys              -                         (waits)
 *   CHECK        u32 count, keys              u8
 *   COMPARE_SET  key, expected, desired       u8 swapped, u8 there, value
 *   DELETE       key                          u8
 *   WATCH        key, u8 there, old value     u8 there, value           (waits)
 *   COUNT        prefix as a key              i64
 *   GATHER       see below                    see below                 (waits)
 *   AWAIT        key                          value, as ARRIVED         (waits, other requests may follow)
 *   PUSH         key, value                   i64
 *   LEASE        key, ended, silent, damaged, u32 ms     -
 *   RENEW        -                            -
 *   BROKEN       text                         none: the connection ends
 *   CANCEL       -                            TIMED_OUT to the request that waits, nothing when none does
 *
 * GATHER (store_table.h) has u8 whether there is a key of its own, this and its value, the key that stops it, u32 count
 * and the keys. Its reply and its TIMED_OUT carry u8 whether all are there, u32 count and for each u8 there, value;
 * then the same of the key that stops it, and of what its own key held before. PUSH appends to a list: it adds 1 to the
 * number that the key holds, gives the sum N and sets the key "KEY/N". LEASE makes the server push a value itself,
 * once: `ended` when the connection ends, `silent` when nothing has come over it for so long (0: never), or `damaged`,
 * a u32 size and text, when what came over it, in either direction, was not what was sent. RENEW is something that
 * comes. BROKEN is a client's last word when what came from the server is damaged. TIMED_OUT of WAIT carries u32
 * missing keys and up to YK__MISSING_SHOWN positions of them; FAILED carries u8 (argument or memory) and text. DAMAGED
 * carries text, and the connection ends: what came from the client is not what it sent.
 */
#ifndef YOKE_NET_STORE_SESSION_H
#define YOKE_NET_STORE_SESSION_H

#include <yoke/store.h>

#include "net/channel.h"
#include "net/keyspace.h"

enum yk__request {
    YK__SET = 1,
    YK__GET,
    YK__ADD,
    YK__WAIT,
    YK__CHECK,
    YK__COMPARE_SET,
    YK__DELETE,
    YK__WATCH,
    YK__COUNT,
    YK__CANCEL,
    YK__GATHER,
    YK__AWAIT,
    YK__PUSH,
    YK__LEASE,
    YK__RENEW,
    YK__BROKEN,
    YK__KEEP, /* this and the following: store_keeping.h */
    YK__NODES,
    YK__FOLLOW,
    YK__TAKEN,
    YK__LIFT,
    YK__LIFTED
};
enum yk__reply { YK__DONE = 1, YK__TIMED_OUT, YK__FAILED, YK__REPLY_DAMAGED, YK__ARRIVED, YK__MIRRORED };
/* Constants of the protocol. */
enum { YK__FAILED_ARGUMENT = 1, YK__FAILED_MEMORY };
enum {
    YK__REQUEST_LIMIT = 2 * YK_STORE_MAX_VALUE + 65536, /* bytes of a payload, either way */
    YK__OUTPUT_LIMIT = 1 << 20                          /* waiting replies, from which on no more requests are read */
};

typedef struct yk__session {
    yk__keyspace *space; /* shared by the sessions of a server */
    yk__channel channel; /* open: the client is a member */
    bool closing;        /* the rest of channel.out is still to be sent, then the connection ends */
    bool waiting;        /* for one request: its kind and its keys follow */
    enum yk__request kind;
    yk__waiter waiter, stopper; /* the second for the key that stops a GATHER */
    yk__bytes stop;
    yk__wire held; /* the bytes that the waiter's keys and old value are in */
    yk__bytes *keys;
    yk__wire lease;            /* the payload of LEASE; empty: none, or it is over */
    double silence;            /* its seconds */
    char broken[YK__WHY_SIZE]; /* the text of BROKEN, escaped */
    /* Called when a change by another session put something into channel.out; NULL is allowed. */
    void (*woken)(struct yk__session *session);
    void *user;
    struct yk__keeping *keeping; /* NULL: nobody can succeed this server */
    bool exempt; /* its answers are not held back (store_keeping.h): a launcher's, as all that have a lease */
    uint64_t follower, follows; /* its number, and the term that it has promised; 0: it follows none */
    uint64_t held_term;         /* of its replica, when it began to */
    struct yk__session *next_follower;
} yk__session;

void yk__session_init(yk__session *session, yk__keyspace *space, const yk__identity *identity);
void yk__session_clear(yk__session *session);
/* Takes `size` bytes (0: goes on with those it has). False when the peer broke the rules: it is dropped at once. */
bool yk__session_receive(yk__session *session, const void *data, size_t size);
/* True if more bytes may be given. */
bool yk__session_accepts(const yk__session *session);
/* True if requests have to wait until the one in progress has its reply. */
bool yk__session_blocked(const yk__session *session);
/* The connection has ended, nothing came for as long as the lease allows, or it is damaged, as `text` says: pushes the
 * values that the client left for that. */
typedef enum yk__lease_end { YK__LEASE_ENDED, YK__LEASE_SILENT, YK__LEASE_DAMAGED } yk__lease_end;
void yk__session_end_lease(yk__session *session, yk__lease_end how, const char *text);

#endif
