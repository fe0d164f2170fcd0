/*
 * ring.c - large payloads between hosts, as they are: the ring of all_gather and the chain of broadcast, by lanes
 * (multihost.h). Layer: comm/native.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/native/multihost.h"

enum { CHUNK = 256 << 10 }; /* bytes of a part that go round at a time */

/* The lane of this rank, -1: none. */
static int own_lane(const native *g)
{
    return g->local_rank < g->net->lanes ? g->local_rank : -1;
}

static int before(const native *g, int host, int steps)
{
    return ((host - steps) % g->hosts + g->hosts) % g->hosts;
}

/* The ring of an all_gather: at first the host has its own chunk (chunks are by host), in the end all of them. In step
 * t it sends chunk h - t, and receives the next one from the host before it. */
static yk_status ring_pass(native *g, int lane, const yk__native_chunk *chunks)
{
    int n = g->hosts, h = g->host, steps = n - 1;
    yk__native_pipe_out *out = yk__calloc((size_t)steps, sizeof(*out));
    yk__native_pipe_in *in = yk__calloc((size_t)steps, sizeof(*in));
    yk__native_pipe p = {.to = yk__native_rank_at(g, (h + 1) % n, lane),
                         .from = yk__native_rank_at(g, before(g, h, 1), lane),
                         .out = out,
                         .in = in,
                         .outs = steps,
                         .ins = steps};
    yk_status status = out && in ? YK_OK : yk__error_code();
    for (int t = 0; t < steps && !status; t++) {
        out[t] = (yk__native_pipe_out){chunks[before(g, h, t)], t - 1};
        in[t] = (yk__native_pipe_in){chunks[before(g, h, t + 1)]};
    }
    if (!status)
        status = yk__native_pipe_run(g, &p);
    free(out);
    free(in);
    return status;
}

/* ---- all_gather -------------------------------------------------------------------------------------------------- */
/* Gathers `bytes` of every part. Part r begins at r * pitch of `memory`: the bounce buffers, or the caller's. */
static yk_status gather_piece(native *g, const yk__comm_op *op, size_t part, size_t at, size_t bytes)
{
    struct yk__native_net *net = g->net;
    int lane = own_lane(g);
    char *memory = (char *)op->out + at;
    size_t pitch = net->flat ? part : bytes;
    yk_status status = YK_OK;
    if (!net->flat) {
        yk__native_next_board(g);
        memory = yk__native_board_of(g, g->local_rank);
    }
    yk__native_copy(memory + (size_t)g->rank * pitch, (const char *)op->in + at, bytes);
    if (!net->flat) {
        status = yk__native_sync(g);
    }
    int64_t from, to;
    if (lane >= 0 && !status) {
        yk__native_share((int64_t)bytes, 1, net->lanes, lane, &from, &to);
        for (int r = 0; r < g->local_size && !net->flat; r++) {
            size_t slot = (size_t)yk__native_rank_at(g, g->host, r) * pitch + (size_t)from;
            yk__native_copy(memory + slot, yk__native_board_of(g, r) + slot, (size_t)(to - from));
        }
        yk__native_chunk *chunks = yk__calloc((size_t)g->hosts, sizeof(*chunks));
        for (int k = 0; k < g->hosts && chunks; k++)
            chunks[k] = (yk__native_chunk){memory + from, g->order + g->first[k], pitch, (size_t)(to - from),
                                           (size_t)yk__native_host_size(g, k)};
        status = chunks ? ring_pass(g, lane, chunks) : yk__error_code();
        free(chunks);
    }
    if (!status)
        status = yk__native_sync_host(g);
    for (int c = 0; c < net->lanes && !net->flat && !status; c++) {
        yk__native_share((int64_t)bytes, 1, net->lanes, c, &from, &to);
        for (int r = 0; r < g->world_size; r++)
            yk__native_copy((char *)op->out + (size_t)r * part + at + from,
                            yk__native_board_of(g, c) + (size_t)r * pitch + from, (size_t)(to - from));
    }
    return status;
}

yk_status yk__native_ring_all_gather(native *g, const yk__comm_op *op)
{
    size_t part = (size_t)op->count * yk_dtype_size(op->dtype);
    size_t step = g->net->flat ? CHUNK : NATIVE_BOARD / (size_t)g->world_size;
    yk_status status = yk__native_begin_large(g, op, NULL);
    for (size_t at = 0; at < part && !status; at += step)
        status = gather_piece(g, op, part, at, yk__native_least(step, part - at));
    return status;
}

/* ---- broadcast --------------------------------------------------------------------------------------------------- */
/* A chain of hosts from the root's on; each hands on what comes in while it comes. */
static yk_status broadcast_piece(native *g, const yk__comm_op *op, size_t at, size_t bytes)
{
    struct yk__native_net *net = g->net;
    const yk__native_member *root = &g->members[op->peer];
    int lane = own_lane(g), position = before(g, g->host, root->host);
    bool is_root = op->peer == g->rank;
    char *memory = is_root ? (char *)(uintptr_t)op->in + at : (char *)op->out + at;
    yk_status status = YK_OK;
    if (!net->flat) {
        yk__native_next_board(g);
        if (is_root)
            yk__native_copy(yk__native_board_of(g, g->local_rank), memory, bytes);
        status = yk__native_sync(g);
    }
    int64_t from, to;
    if (lane >= 0 && !status) {
        yk__native_share((int64_t)bytes, 1, net->lanes, lane, &from, &to);
        char *slice =
            net->flat ? memory : yk__native_board_of(g, position == 0 ? root->local_rank : g->local_rank) + from;
        yk__native_chunk chunk = {slice, NULL, 0, (size_t)(to - from), 1};
        yk__native_pipe_in in = {.chunk = chunk};
        yk__native_pipe_out out = {chunk, position == 0 ? -1 : 0};
        yk__native_pipe p = {.to = yk__native_rank_at(g, (g->host + 1) % g->hosts, lane),
                             .from = yk__native_rank_at(g, before(g, g->host, 1), lane),
                             .out = &out,
                             .in = &in,
                             .outs = position == g->hosts - 1 ? 0 : 1,
                             .ins = position == 0 ? 0 : 1};
        status = yk__native_pipe_run(g, &p);
    }
    if (!status)
        status = yk__native_sync_host(g);
    for (int c = 0; c < net->lanes && !net->flat && !is_root && !status; c++) {
        yk__native_share((int64_t)bytes, 1, net->lanes, c, &from, &to);
        yk__native_copy(memory + from, yk__native_board_of(g, position == 0 ? root->local_rank : c) + from,
                        (size_t)(to - from));
    }
    return status;
}

yk_status yk__native_chain_broadcast(native *g, const yk__comm_op *op)
{
    size_t all = (size_t)op->count * yk_dtype_size(op->dtype), step = g->net->flat ? all : NATIVE_BOARD;
    yk_status status = yk__native_begin_large(g, op, NULL);
    for (size_t at = 0; at < all && !status; at += step)
        status = broadcast_piece(g, op, at, yk__native_least(step, all - at));
    return status;
}
