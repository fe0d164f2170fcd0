/*
 * store_keeping.h - a server of a store that others can succeed: it sends what changes to its followers, and holds back
 * every answer that they have not taken the ground of. Layer: net.
 *
 * Of the keys those that begin with YK__KEEPING_PREFIX outlive the server; who keeps them is in keeper.h. Requests of
 * the launchers beside those of store_session.h, by which a server that has had no KEEP is as any other:
 *
 *   KEEP      u64 self, u64 term, u64 number, u32 ms, nodes, u8 replaces, u32 count, key and value each     -
 *   NODES     u16 count, u64 each, u8 yk__nodes_said                                                       -
 *   FOLLOW    u64 id, u64 term                      MIRRORED now and then, until the connection ends
 *   TAKEN     u64 number, u64 sent                  none
 *
 * KEEP makes the server the keeper of that term, with the keys that it has or, where `replaces`, with these alone, as
 * after `number` changes. NODES says who is to be asked from now on; where a register decides (keeper.c) these are
 * asked beside those that were, or, when the register has taken them, alone. FOLLOW waits for a KEEP of its term where
 * there was none yet. MIRRORED is u8 yk__mirrored, u64 the number of the last change, u64 when it was sent (ns), and of
 * a key that is set or deleted this, and its value; TAKEN answers it with the two numbers.
 */
#ifndef YOKE_NET_STORE_KEEPING_H
#define YOKE_NET_STORE_KEEPING_H

#include <pthread.h>
#include <stdatomic.h>

#include "net/keeper.h"
#include "net/store_session.h"

#define YK__KEEPING_PREFIX "ranks."
/* The key of the nodes, as yk__keeper_put_nodes writes them. */
#define YK__KEEPING_NODES YK__KEEPING_PREFIX "/nodes"

enum yk__nodes_said { YK__NODES_WANTED, YK__NODES_PROPOSED, YK__NODES_TAKEN };
enum yk__mirrored { YK__MIRROR_CLEAR, YK__MIRROR_SET, YK__MIRROR_DELETE, YK__MIRROR_BEAT };

typedef struct yk__keeping {
    yk__keyspace *space;
    _Atomic bool standby; /* it may be the store of the job some day, which it is from KEEP on, or with this at false */
    bool on;
    yk__keeper_lead lead;
    yk__keeper_list wanted; /* the nodes that there are to be; empty: those that there are */
    yk__session *followers; /* those that wait for their term among them */
    double beat, every;     /* when the last one was sent; seconds between two */
    _Atomic double heard;   /* yk__keeper_heard_at */
    /* With a register: the NODES that came, and the last of them since which all of both lists have taken everything.
     */
    uint64_t said;
    _Atomic uint64_t taken;
    pthread_mutex_t lock; /* of what follows, a copy of lead.followers for another thread */
    int count;
    struct {
        uint64_t id;
        double sent;
    } heard_of[2 * YK__KEEPER_NODES];
} yk__keeping;

/* Seconds of the clock that keeper.h means. */
double yk__keeping_clock(void);
void yk__keeping_init(yk__keeping *keeping, yk__keyspace *space);
void yk__keeping_clear(yk__keeping *keeping);
/* When the last beat was sent that this follower has answered; 0: it has none. Any thread. */
double yk__keeping_heard_of(yk__keeping *keeping, uint64_t id);
/* A request of one of the four kinds; false where it is malformed. */
bool yk__keeping_request(yk__keeping *keeping, yk__session *session, unsigned kind, yk__reader *reader);
/* The session ends; `in_order`: by the word of the peer's system that it has closed the connection. */
void yk__keeping_ended(yk__keeping *keeping, yk__session *session, bool in_order);
/* True if the request is about keys of the job, whose store this one is not, or not yet: nobody may believe that it
 * holds them. */
bool yk__keeping_refuses(const yk__keeping *keeping, const yk__session *session, unsigned kind,
                         const unsigned char *payload, size_t size);
/* True if answers to this session may go out now. */
bool yk__keeping_lets(yk__keeping *keeping, const yk__session *session);
/* At each look at the time: sends a beat if one is due. */
void yk__keeping_tick(yk__keeping *keeping);

#endif
