/*
 * store_server.h - the server of a TCP store: one thread that waits with epoll. Layer: net.
 */
#ifndef YOKE_NET_STORE_SERVER_H
#define YOKE_NET_STORE_SERVER_H

#include "net/handshake.h"

typedef struct yk__store_server yk__store_server;

typedef struct yk__store_server_options {
    /* Peers that have not proved themselves so many seconds after they connected are dropped. */
    double patience;
    double silence; /* a client whose host does not answer for so long is dropped; see yk__socket_patience */
    /* Called on the server's thread with the reason for which a peer was turned away that speaks yoke's protocol; the
     * text is not escaped. NULL: not called. */
    void (*refused)(void *arg, const char *why);
    void *arg;
    bool standby; /* see store_keeping.h */
} yk__store_server_options;
#define yk__store_server_options_DEFAULTS .refused = NULL

/* Listens on the address and serves until stop. Identity and options are copied. NULL and an error on failure. */
yk__store_server *yk__store_server_start(const yk__address *address, const yk__identity *identity,
                                         const yk__store_server_options *options, yk__address *bound);
/* The same in two steps: a socket that listens, so that clients wait there; and the server on it, whose socket it is
 * from then on, also on failure. */
int yk__store_server_listen(const yk__address *address, yk__address *bound);
yk__store_server *yk__store_server_serve(int fd, const yk__address *bound, const yk__identity *identity,
                                         const yk__store_server_options *options);
/* A server that stood by (options.standby) is the store of a job from now on, without a KEEP. */
void yk__store_server_admit(yk__store_server *server);
/* yk__keeper_heard_at of a server that keeps a store (store_keeping.h), as its thread last saw it. */
double yk__store_server_heard(const yk__store_server *server);
/* yk__keeping_heard_of; and the number of the last NODES since which all have taken everything. */
double yk__store_server_heard_of(yk__store_server *server, uint64_t follower);
uint64_t yk__store_server_taken(const yk__store_server *server);
/* Ends the thread, closes all connections and frees everything; NULL is allowed. */
void yk__store_server_stop(yk__store_server *server);

#endif
