/*
 * store_server.h - the server of a TCP store: one thread with a libuv loop. Layer: net.
 */
#ifndef YOKE_NET_STORE_SERVER_H
#define YOKE_NET_STORE_SERVER_H

#include "net/handshake.h"

typedef struct yk__store_server yk__store_server;

/* Listens on the address and serves until stop. Peers that have not proved themselves `patience` seconds after they
 * connected are dropped. The identity is copied. NULL and an error on failure. */
yk__store_server *yk__store_server_start(const yk__address *address, const yk__identity *identity, double patience,
                                         yk__address *bound);
/* Ends the thread, closes all connections and frees everything; NULL is allowed. */
void yk__store_server_stop(yk__store_server *server);

#endif
