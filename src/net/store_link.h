/*
 * store_link.h - one connection to the server of a TCP store, as its clients have it. Layer: net.
 *
 * The clients are two: the calls of yoke/store.h, which wait (tcp_store.c), and a launcher, which may not
 * (launch/agent_client.c). Requests and answers are those of store_session.h:
 *
 *     yk__store_link_connect(&link, &address, &identity, deadline, why);
 *     yk__channel_send(&link.channel, KIND, payload, size);    or begin and end; at once, it goes behind the hand-shake
 *     yk__store_link_wait_open(&link, deadline, why);          or yk__store_link_move at each turn of a loop
 *     type = yk__channel_next(&link.channel, &answer);         or yk__channel_wait_message
 *     yk__store_link_fault(&link, type, &answer, &code, text); where that is no answer to the request
 *     yk__store_link_close(&link);
 */
#ifndef YOKE_NET_STORE_LINK_H
#define YOKE_NET_STORE_LINK_H

#include "net/channel.h"

typedef struct yk__store_link {
    int fd; /* non-blocking; -1: none */
    yk__address near, far;
    yk__channel channel;
} yk__store_link;

/* Connects; the hand-shake has begun. `identity` is borrowed until it is done. On failure there is nothing to close. */
yk__reason yk__store_link_connect(yk__store_link *link, const yk__address *server, const yk__identity *identity,
                                  double deadline, char why[YK__WHY_SIZE]);
/* The same without a wait: the connection is made while the link is moved, and an address that nobody answers at is
 * found out by the link's end, or by the caller's patience. */
yk__reason yk__store_link_begin(yk__store_link *link, const yk__address *server, const yk__identity *identity,
                                char why[YK__WHY_SIZE]);
/* Wait until the hand-shake is done; until the server's hello has come, and requests can be sent right behind this
 * side's proof, whose answer comes with the first one's: a round trip less. On failure the link is closed. */
yk__reason yk__store_link_wait_open(yk__store_link *link, double deadline, char why[YK__WHY_SIZE]);
yk__reason yk__store_link_wait_hello(yk__store_link *link, double deadline, char why[YK__WHY_SIZE]);
/* Sends what waits and receives what is there, at most `most` bytes; true if something came. */
bool yk__store_link_move(yk__store_link *link, size_t most);
/* Describes what is wrong: with an answer of `type`, FAILED, REPLY_DAMAGED or one that the request cannot have; or,
 * type 0, with the connection. A server whose bytes arrive damaged is told of it. True if the connection is still of
 * use: the request alone has failed, with YK_ERR_ARGUMENT or YK_ERR_MEMORY. Otherwise the code is YK_ERR_CONNECTION. */
bool yk__store_link_fault(yk__store_link *link, unsigned type, const yk__reader *answer, yk_status *code,
                          char text[YK__WHY_SIZE]);
/* Frees and wipes; does nothing for a link without a connection that has been closed before. */
void yk__store_link_close(yk__store_link *link);

#endif
