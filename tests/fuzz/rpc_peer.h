/*
 * rpc_peer.h - a connection to a worker that is not there, for fuzzers of what such a worker sends.
 */
#ifndef YOKE_TESTS_FUZZ_RPC_PEER_H
#define YOKE_TESTS_FUZZ_RPC_PEER_H

#include <stdlib.h>
#include <sys/socket.h>

#include "rpc/rpc_agent.h"

static inline void require(bool holds)
{
    if (!holds)
        abort();
}

/* A connection of this process with itself, whose hand-shake is done; the other worker has this number. With the lock.
 */
static inline yk__rpc_link *peer_link(bool accepted, uint32_t index, int *other)
{
    int fds[2];
    require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    *other = fds[1];
    yk__rpc_link *link = calloc(1, sizeof(*link));
    require(link != NULL);
    link->references = 1;
    link->fd = fds[0];
    link->accepted = accepted;
    link->ready = true;
    link->index = index;
    snprintf(link->name, sizeof(link->name), "peer");
    yk__channel peer;
    yk__channel_init(&link->channel, &yk__rpc.identity, accepted, YK__RPC_PART);
    yk__channel_init(&peer, &yk__rpc.identity, !accepted, YK__RPC_PART);
    for (int i = 0; i < 4; i++) {
        yk__channel *sides[] = {&link->channel, &peer};
        for (int s = 0; s < 2; s++) {
            if (yk__channel_unsent(sides[s]))
                yk__channel_feed(sides[!s], sides[s]->out.data + sides[s]->sent, sides[s]->out.size - sides[s]->sent);
            sides[s]->out.size = sides[s]->sent = 0;
        }
    }
    require(link->channel.open && peer.open);
    yk__channel_clear(&peer);
    link->next = yk__rpc.links;
    yk__rpc.links = link;
    return link;
}

#endif
