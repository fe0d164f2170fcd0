/*
 * multihost_reduce.c - all_reduce, reduce and reduce_scatter of large payloads over several hosts: what the lanes of a
 * host work on (Note [Lanes] in multihost.h), and how its other ranks get the results. Layer: comm/native.
 *
 * Where a host has several ranks, lane c of each host takes the c-th share of the payload, straight from the memory of
 * all ranks of its host. That is the caller's, where they reach each other's (all_reduce alone); else what they copied
 * to their bounce buffers, a piece at a time. Only lane c looks at this share of the bounce buffers of its host, so
 * results may replace the values on its own. All hosts cut a payload in the same way, whatever memory their ranks have.
 */
#include <string.h>

#include "comm/native/multihost.h"

/* The lane of this rank, -1: none. */
static int own_lane(const native *g)
{
    return g->local_rank < g->net->lanes ? g->local_rank : -1;
}

/* ---- all_reduce and reduce --------------------------------------------------------------------------------------- */
/* The ranks of the host reach each other's memory: each lane writes the results of its share to all. */
static yk_status all_reduce_in_place(native *g, const yk__comm_op *op, int64_t step)
{
    size_t size = yk_dtype_size(op->dtype);
    int lane = own_lane(g);
    char *memory[NATIVE_MAX_RANKS];
    yk_status status = yk__native_sync_host(g); /* the leaders have agreed */
    if (!status)
        status = yk__native_enter(g);
    for (int r = 0; r < g->local_size && !status; r++) {
        memory[r] = r == g->local_rank ? op->out : yk__native_peer_memory(g, op->number, r, false);
        if (!memory[r])
            status = yk__error_code();
    }
    for (int64_t at = 0; at < op->count && lane >= 0 && !status; at += step) {
        int64_t from, to;
        yk__native_pairwise x = {.op = op, .lane = lane, .root_host = -1, .outputs = g->local_size};
        yk__native_share(op->count - at < step ? op->count - at : step, size, g->net->lanes, lane, &from, &to);
        x.count = to - from;
        for (int i = 0; i < g->local_size; i++) { /* the own memory is the first output: it is the one sent from */
            int r = (g->local_rank + i) % g->local_size;
            x.in[r] = x.out[i] = memory[r] + (size_t)(at + from) * size;
        }
        status = yk__native_pairwise_reduce(g, &x);
    }
    if (status)
        return status;
    yk__native_exit(g);
    return yk__native_sync_host(g);
}

/* Reduces `count` elements by way of the bounce buffers. */
static yk_status reduce_piece(native *g, const yk__comm_op *op, int64_t at, int64_t count)
{
    struct yk__native_net *net = g->net;
    size_t size = yk_dtype_size(op->dtype), offset = (size_t)at * size;
    bool is_root = op->kind == YK__COMM_ALL_REDUCE || op->peer == g->rank;
    int lane = own_lane(g);
    yk__native_next_board(g);
    yk__native_copy(yk__native_board_of(g, g->local_rank), (const char *)op->in + offset, (size_t)count * size);
    yk_status status = yk__native_sync(g);
    int64_t from, to;
    if (lane >= 0 && !status) {
        yk__native_pairwise x = {.op = op, .lane = lane, .root_host = -1, .outputs = 1};
        yk__native_share(count, size, net->lanes, lane, &from, &to);
        x.count = to - from;
        if (op->kind == YK__COMM_REDUCE)
            x.root_host = g->members[op->peer].host;
        for (int r = 0; r < g->local_size; r++)
            x.in[r] = yk__native_board_of(g, r) + (size_t)from * size;
        x.out[0] = yk__native_board_of(g, g->local_rank) + (size_t)from * size;
        status = yk__native_pairwise_reduce(g, &x);
    }
    if (!status)
        status = yk__native_sync(g);
    for (int c = 0; c < net->lanes && is_root && !status; c++) {
        yk__native_share(count, size, net->lanes, c, &from, &to);
        yk__native_copy((char *)op->out + offset + (size_t)from * size, yk__native_board_of(g, c) + (size_t)from * size,
                        (size_t)(to - from) * size);
    }
    return status;
}

/* Every host has one rank. */
static yk_status reduce_flat(native *g, const yk__comm_op *op)
{
    yk__native_pairwise x = {
        .op = op, .count = op->count, .root_host = -1, .in = {op->in}, .out = {op->out}, .outputs = 1};
    if (op->kind == YK__COMM_REDUCE) {
        x.root_host = g->members[op->peer].host;
        x.outputs = op->peer == g->rank;
    }
    return yk__native_pairwise_reduce(g, &x);
}

yk_status yk__native_multihost_reduce(native *g, const yk__comm_op *op)
{
    size_t size = yk_dtype_size(op->dtype);
    bool in_place = op->kind == YK__COMM_ALL_REDUCE && !g->net->flat;
    yk__region_handle handle = {0};
    if (in_place)
        handle = yk__native_region_handle(g, op->in, (size_t)op->count * size);
    yk_status status = yk__native_begin_large(g, op, &handle);
    if (!status && g->net->flat)
        return reduce_flat(g, op);
    int64_t step = (int64_t)(NATIVE_BOARD / size);
    if (!status && in_place && yk__native_all_direct(g, op->number, -1, false))
        return all_reduce_in_place(g, op, step);
    for (int64_t at = 0; at < op->count && !status; at += step)
        status = reduce_piece(g, op, at, op->count - at < step ? op->count - at : step);
    return status;
}

/* ---- reduce_scatter ---------------------------------------------------------------------------------------------- */
/* Reduces `count` elements of every part. In the bounce buffers part r begins at r * count. */
static yk_status scatter_piece(native *g, const yk__comm_op *op, int64_t at, int64_t count)
{
    struct yk__native_net *net = g->net;
    size_t size = yk_dtype_size(op->dtype), slot = (size_t)count * size, offset = (size_t)at * size;
    int lane = own_lane(g);
    yk__native_next_board(g);
    char *board = yk__native_board_of(g, g->local_rank);
    for (int r = 0; r < g->world_size; r++)
        yk__native_copy(board + (size_t)r * slot, (const char *)op->in + (size_t)(r * op->count) * size + offset, slot);
    yk_status status = yk__native_sync(g);
    int64_t from, to;
    if (lane >= 0 && !status) {
        yk__native_pairwise x = {
            .op = op, .lane = lane, .parts = true, .outputs = 1, .in_pitch = slot, .out_pitch = slot};
        yk__native_share(count, size, net->lanes, lane, &from, &to);
        x.count = to - from;
        for (int r = 0; r < g->local_size; r++)
            x.in[r] = yk__native_board_of(g, r) + (size_t)from * size;
        x.out[0] = board + (size_t)from * size;
        status = yk__native_pairwise_reduce(g, &x);
    }
    if (!status)
        status = yk__native_sync(g);
    for (int c = 0; c < net->lanes && !status; c++) {
        yk__native_share(count, size, net->lanes, c, &from, &to);
        yk__native_copy((char *)op->out + offset + (size_t)from * size,
                        yk__native_board_of(g, c) + (size_t)g->rank * slot + (size_t)from * size,
                        (size_t)(to - from) * size);
    }
    return status;
}

yk_status yk__native_multihost_reduce_scatter(native *g, const yk__comm_op *op)
{
    size_t size = yk_dtype_size(op->dtype);
    yk_status status = yk__native_begin_large(g, op, NULL);
    if (!status && g->net->flat) {
        yk__native_pairwise x = {.op = op,
                                 .count = op->count,
                                 .parts = true,
                                 .in = {op->in},
                                 .out = {op->out},
                                 .outputs = 1,
                                 .in_pitch = (size_t)op->count * size};
        return yk__native_pairwise_reduce(g, &x);
    }
    int64_t step = (int64_t)(NATIVE_BOARD / size) / g->world_size;
    for (int64_t at = 0; at < op->count && !status; at += step)
        status = scatter_piece(g, op, at, op->count - at < step ? op->count - at : step);
    return status;
}
