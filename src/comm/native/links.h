/*
 * links.h - the types and functions of the files that make the connections between ranks of different hosts.
 * Layer: comm/native.
 *
 * Note [The connections of a rank]
 * A rank connects to all lower ranks of other hosts (link_dials.c) and lets the higher ones in (link_accepts.c), all at
 * once, in one loop (link_join.c). The hosts of all ranks are known when all records are there (native_join.c). A
 * launcher of several nodes gives its ranks the addresses where all listen beforehand (launch/listeners.h): then a
 * thread begins with that while the records are exchanged, so that the two take as long as one. It makes connections,
 * shakes hands on them, and holds them; none becomes a link before the records have said that it is one.
 */
#ifndef YOKE_COMM_NATIVE_LINKS_H
#define YOKE_COMM_NATIVE_LINKS_H

#include "comm/native/multihost.h"

enum { LINK_CONTROL, LINK_DATA };
enum { LINK_HELLO = 1 }; /* the one message of a rank's channel */

/* The message that the side that connected sends after its proof. */
typedef struct yk__native_hello {
    uint64_t group; /* yk__native_group_hash */
    int32_t from, to, channel, unused;
} yk__native_hello;

/* One of the two connections to a lower rank of another host, on its way. What is lost on it (the connection, or the
 * packets of one) is tried again until the time to join is over. */
typedef struct yk__native_dial {
    int fd, rank, channel; /* fd -1: it is a link, or to be tried again at `again` */
    bool connected, done;
    double again, give_up; /* the time when this try, if it is not connected, is given up for the next */
    double patience;       /* with this try; the next has twice as much */
    char text[YK__ADDRESS_TEXT];
    yk__address address;
    yk__reason reason; /* of the last failure */
    char why[YK__WHY_SIZE];
    yk__channel c;
} yk__native_dial;

/* A connection that came in: a rank's, or not authenticated yet. */
typedef struct yk__native_incoming {
    int fd;
    yk__address from; /* the port cleared */
    yk__channel channel;
    bool named; /* it has said which rank it is: */
    yk__native_hello said;
} yk__native_incoming;

/* The connections of a rank while it joins. */
typedef struct yk__native_joining_links yk__native_joining_links;
struct yk__native_joining_links {
    const yk__comm_join_args *args;
    yk__native_dial *dials;
    int dial_count;
    yk__native_incoming **incoming; /* the oldest first */
    int incoming_count, room, of_one_address;
    struct pollfd *polls;
    int poll_room;
    pthread_t thread; /* makes connections before the records are there */
    int stop;         /* tells it to end; -1: there is none */
};

/* With a carrier there are control connections alone. */
static inline int yk__native_last_channel(const native *g)
{
    return g->carrier ? LINK_CONTROL : LINK_DATA;
}

/* ---- links.c ---- */
/* The connection is one between ranks: what goes over it from here on is in frames with the session's keys. */
yk_status yk__native_link_adopt(native *g, int rank, int channel, int fd, const yk__channel *c);
/* A rank connects again because its connection was lost, which this side need not have noticed; false: it had none. */
bool yk__native_link_abandon(yk__native_link *l, int channel);

/* True if this connection was reset while the other rank, as far as is known, still joins. Asked of the data connection
 * before the control connection is given up. */
bool yk__native_link_lost(const yk__native_link *l, int channel);

/* ---- link_dials.c ---- */
uint64_t yk__native_group_hash(const yk__comm_join_args *args);
/* Begins to connect. With `early` a failure is only a reason to try again. */
yk_status yk__native_dial_begin(native *g, const yk__comm_join_args *args, int rank, int channel, const char *address,
                                bool early, yk__native_dial *d);
/* Moves on what is `ready`, or late. `last`: the time of all is over. */
yk_status yk__native_dial_move(native *g, const yk__comm_join_args *args, yk__native_dial *d, bool ready, bool last,
                               bool early);
/* True if it waits for nothing but the records. */
static inline bool yk__native_dial_is_open(const yk__native_dial *d)
{
    return d->fd >= 0 && d->connected && d->c.open;
}
/* An open one becomes a link. */
yk_status yk__native_dial_adopt(native *g, yk__native_dial *d);
/* The link is lost: it is made again. */
void yk__native_dial_lost(native *g, yk__native_dial *d);
/* The time at which it is to be looked at though nothing has come, at the latest `until`. */
double yk__native_dial_next(const yk__native_dial *d, double until);
short yk__native_dial_events(const yk__native_dial *d);
void yk__native_dial_close(yk__native_dial *d);

/* ---- link_accepts.c ---- */
/* Takes new connections. */
yk_status yk__native_accept(native *g, yk__native_joining_links *all);
/* Hears number i; it is dropped when it breaks a rule. */
void yk__native_incoming_hear(yk__native_joining_links *all, int i);
/* Number i has said who it is, and the records are there: it becomes a link, or is dropped. *came: one that was
 * waited for. */
yk_status yk__native_incoming_adopt(native *g, yk__native_joining_links *all, int i, bool *came);
void yk__native_incoming_drop(yk__native_joining_links *all, int i);

/* ---- link_join.c ---- */
/* Ends the thread, and closes what has become no link. */
void yk__native_links_stop(native *g);

#endif
