/*
 * ucx_carrier.h - the types and functions that the files of the ucx backend share. Layer: comm/ucx.
 *
 * Note [Calls of UCX]
 * A group has a worker of UCX of its own and an endpoint for every other rank, and calls them under one lock. No call
 * waits: a request that is not done at once is asked for later.
 *
 * Note [A stream of messages]
 * What goes from one rank to another is a stream of bytes. Each send is a tagged message, the tag the sender's rank;
 * UCX keeps their order. The receiver looks at the next message's size: one that fits goes from memory to memory (large
 * ones by RDMA, where the network has it), a larger one into memory of the carrier's first.
 *
 * Note [Memory that UCX still has]
 * UCX ends what is under way on an endpoint where its transports can tell that a peer has failed (TCP and InfiniBand
 * can, shared memory cannot). Endpoints between hosts are such ones. Those to ranks of the same host are not, so that
 * shared memory carries them; where the bytes of an operation have to be given up on one, this process makes no call of
 * UCX for the group any more, since any could move bytes into memory that is its caller's again, and keeps what UCX has
 * of it. A receiver reads the sender's memory, and not the other way round, so that nobody else writes there either.
 * That a rank has ended is in both cases known by the control connections of native.
 */
#ifndef YOKE_COMM_UCX_CARRIER_H
#define YOKE_COMM_UCX_CARRIER_H

#include <pthread.h>
#include <ucp/api/ucp.h>

#include "comm/comm_plugin.h"

extern const yk__base_services *ucx_base;
#define ucx_fail(code, ...) ucx_base->fail_at((code), __FILE__, __LINE__, __VA_ARGS__)

/* Between this rank and another. */
typedef struct ucx_peer {
    ucp_ep_h endpoint;   /* NULL: none */
    bool can_fail;       /* its transports can end what is under way */
    ucs_status_t failed; /* what ended it */
    void *sending;       /* a request on `send_bytes` of the caller's memory; NULL: none */
    size_t send_bytes;
    void *receiving; /* likewise; into `held` where there is one */
    size_t receive_bytes;
    char *held; /* a message larger than the caller wanted, of which `held_at` bytes are taken */
    size_t held_at;
} ucx_peer;

typedef struct ucx_state {
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    ucp_worker_h worker;
    ucp_address_t *address;
    int rank, world_size, descriptor;
    ucx_peer *peers;
    bool dropped, abandoned; /* abandoned: no call of UCX is made any more */
    bool sent;               /* since the last flush began */
    void *flushing;          /* the request of a flush; NULL: none */
    pthread_t flusher;       /* the thread of flush_behind */
    bool has_flusher, behind, ending;
    struct ucx_state *next; /* of those that were abandoned */
} ucx_state;

/* ---- ucx_plugin.c ---- */
/* The process's context of UCX, made at the first call; NULL and an error. */
ucp_context_h ucx_context(void);
/* Fails with what UCX says of a call, and what the environment asks of it. */
yk_status ucx_failed(const char *what, ucs_status_t status);

/* ---- ucx_carrier.c ---- */
extern const yk__comm_carrier ucx_carrier;

#endif
