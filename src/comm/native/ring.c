/*
 * ring.c - large payloads between hosts: the ring of all_reduce, reduce, reduce_scatter and all_gather, and the chain
 * of broadcast, by lanes (hosts.h). Layer: comm/native.
 *
 * What is combined is combined in the order of ranks inside a host, then of hosts in the order of the ring, which the
 * position alone decides. f16 and bf16 are added in f32 all the way and rounded once. All hosts cut a payload in the
 * same way, whatever memory their ranks have.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/native/hosts.h"

/* CHUNK: bytes that a host hands on at a time in an all_reduce. TURNS: segments that take turns. BATCH: segments that
 * are planned together. */
enum { CHUNK = 256 << 10, TURNS = 2, BATCH = 32 };

/* The lane of this rank, -1: none. */
static int own_lane(const native *g)
{
    return g->rank < g->net->lanes ? g->rank : -1;
}

static int before(const native *g, int host, int steps)
{
    return ((host - steps) % g->hosts + g->hosts) % g->hosts;
}

/* Elements [from, to) of `count` as a chunk of memory that starts at element 0. */
static yk__native_chunk piece(char *base, int64_t from, int64_t to, size_t size)
{
    return (yk__native_chunk){base + (size_t)from * size, NULL, 0, (size_t)(to - from) * size, 1, size};
}

/*
 * The ring. Chunk h of `sums` (by host, in the wide dtype) is combined over all hosts and rounded into chunk h of
 * `results` on host h; with `all`, every host then gets every chunk of `results`. `sums` is NULL for the second half
 * alone. In step t the host combines chunk h - t - 2, which comes from the host before it, and hands it on in the next.
 *
 * Payloads come in `segments`, one behind the other in `sums` and `results`, small enough that a chunk is still in the
 * cache when it is handed on. Two segments take turns: while one is on its way, there is something to do for the other.
 */
static yk_status ring(native *g, const yk__comm_op *op, int lane, int segments, const yk__native_chunk *sums,
                      const yk__native_chunk *results, bool all)
{
    int n = g->hosts, h = g->host, steps = n - 1;
    size_t room = (size_t)segments * 2 * (size_t)steps;
    yk__native_give *give = yk__calloc(room, sizeof(*give));
    yk__native_take *take = yk__calloc(room, sizeof(*take));
    yk__native_pipe p = {.to = yk__native_rank_at(g, (h + 1) % n, lane),
                         .from = yk__native_rank_at(g, before(g, h, 1), lane),
                         .give = give,
                         .take = take,
                         .reduction = op->reduction,
                         .dtype = op->dtype};
    yk_status status = give && take ? YK_OK : yk__error_code();
    for (int first = 0; first < segments && !status; first += TURNS) {
        int turns = segments - first < TURNS ? segments - first : TURNS;
        for (int t = sums ? 0 : steps; t < (all ? 2 : 1) * steps; t++) {
            for (int s = first; s < first + turns; s++) {
                const yk__native_chunk *sum = sums ? sums + (size_t)s * (size_t)n : NULL,
                                       *result = results + (size_t)s * (size_t)n;
                bool begins = t == (sums ? 0 : steps);
                yk__native_give *next = &give[p.gives++];
                next->source = begins ? -1 : p.takes - turns;
                if (t < steps) {
                    int k = before(g, h, t + 2);
                    next->chunk = sum[before(g, h, t + 1)];
                    take[p.takes++] = (yk__native_take){sum[k], sum[k], result[k], true, t == steps - 1};
                } else {
                    next->chunk = result[before(g, h, t - steps)];
                    take[p.takes++] = (yk__native_take){.chunk = result[before(g, h, t - steps + 1)]};
                }
            }
        }
    }
    if (!status)
        status = yk__native_pipe_run(g, &p);
    free(give);
    free(take);
    return status;
}

/* ---- all_reduce -------------------------------------------------------------------------------------------------- */
/* A mean is divided at the end of the ring. */
static yk_reduce_op undivided(yk_reduce_op op)
{
    return op == YK_OP_MEAN ? YK_OP_SUM : op;
}

/* The ring over a slice of `count` elements: the results in `out`, the sums in `wide` (of the wide dtype). With `all`
 * false, host h has the h-th share of the results. */
static yk_status ring_slice(native *g, const yk__comm_op *op, int lane, int64_t count, char *wide, char *out, bool all)
{
    size_t size = yk_dtype_size(op->dtype), wide_size = yk_dtype_size(yk__native_wide(op->dtype));
    int64_t step = all ? (int64_t)(CHUNK / wide_size) * g->hosts : count;
    int segments = all ? BATCH : 1;
    yk__native_chunk *sums = yk__calloc((size_t)segments * (size_t)g->hosts, sizeof(*sums));
    yk__native_chunk *results = yk__calloc((size_t)segments * (size_t)g->hosts, sizeof(*results));
    yk_status status = sums && results ? YK_OK : yk__error_code();
    for (int64_t at = 0; at < count && !status;) {
        int used = 0;
        for (; used < segments && at < count; used++, at += step) {
            int64_t length = count - at < step ? count - at : step;
            for (int k = 0; k < g->hosts; k++) {
                int64_t from, to;
                yk__native_share(length, size, g->hosts, k, &from, &to);
                sums[used * g->hosts + k] = piece(wide, at + from, at + to, wide_size);
                results[used * g->hosts + k] = piece(out, at + from, at + to, size);
            }
        }
        status = ring(g, op, lane, used, sums, results, all);
    }
    free(sums);
    free(results);
    return status;
}

/* The ranks of the host reach each other's memory: each lane combines its slice of all into its own, and writes what
 * came out of the ring to all. The ring goes piece by piece as over boards, which another host may have to use. */
static yk_status all_reduce_in_place(native *g, const yk__comm_op *op, int64_t step)
{
    size_t size = yk_dtype_size(op->dtype);
    int lane = own_lane(g);
    char *memory[NATIVE_MAX_RANKS];
    const yk__reduction r = {
        .reduction = undivided(op->reduction), .dtype = op->dtype, .ranks = g->world_size, .inputs = g->world_size};
    yk_status status = yk__native_sync_host(g); /* the leaders have agreed */
    if (!status)
        status = yk__native_enter(g);
    for (int i = 0; i < g->world_size && !status; i++) {
        memory[i] = i == g->rank ? op->out : yk__native_peer_memory(g, op->number, i, false);
        if (!memory[i])
            status = yk__error_code();
    }
    for (int64_t at = 0; at < op->count && lane >= 0 && !status; at += step) {
        int64_t from, to;
        const char *in[NATIVE_MAX_RANKS];
        yk__native_share(op->count - at < step ? op->count - at : step, size, g->net->lanes, lane, &from, &to);
        size_t offset = (size_t)(at + from) * size;
        char *own = memory[g->rank] + offset;
        for (int i = 0; i < g->world_size; i++)
            in[i] = memory[i] + offset;
        if (g->world_size > 1)
            status = yk__native_combine(&r, 1, &own, in, to - from);
        if (!status)
            status = ring_slice(g, op, lane, to - from, own, own, true);
        for (int i = 0; i < g->world_size && !status; i++)
            yk__native_copy(memory[i] + offset, own, (size_t)(to - from) * size);
    }
    if (status)
        return status;
    yk__native_exit(g);
    return yk__native_sync_host(g);
}

/* The lanes of the root's host have their part of the result on their boards; those of other hosts send theirs, which
 * is at `results`, to the root, which puts it into `out`. */
static yk_status pass_to_root(native *g, int root, size_t size, int64_t count, char *results, char *out)
{
    yk__native_flow *flows = yk__calloc((size_t)g->world, sizeof(*flows)), one = {0};
    int lane = own_lane(g), lanes = g->net->lanes, ins = 0, outs = 0;
    int64_t from, to, k_from, k_to;
    if (!flows)
        return yk__error_code();
    if (lane >= 0 && g->host != g->members[root].host) {
        yk__native_share(count, size, lanes, lane, &from, &to);
        yk__native_share(to - from, size, g->hosts, g->host, &k_from, &k_to);
        one = (yk__native_flow){root, results + (size_t)k_from * size, (size_t)(k_to - k_from) * size, 0};
        outs = 1;
    }
    for (int h = 0; h < g->hosts && root == g->world_rank; h++) {
        for (int c = 0; c < lanes && h != g->host; c++) {
            yk__native_share(count, size, lanes, c, &from, &to);
            yk__native_share(to - from, size, g->hosts, h, &k_from, &k_to);
            flows[ins++] = (yk__native_flow){yk__native_rank_at(g, h, c), out + (size_t)(from + k_from) * size,
                                             (size_t)(k_to - k_from) * size, 0};
        }
    }
    yk_status status = yk__native_flow_run(g, &one, outs, flows, ins, 0, NULL);
    free(flows);
    return status;
}

/* all_reduce and reduce, a piece at a time: `root` is -1 for all. */
static yk_status reduce_piece(native *g, const yk__comm_op *op, int root, int64_t at, int64_t count)
{
    struct yk__native_net *net = g->net;
    size_t size = yk_dtype_size(op->dtype), wide = yk_dtype_size(yk__native_wide(op->dtype));
    size_t bytes = (size_t)count * size, offset = (size_t)at * size;
    int lane = own_lane(g);
    char *out = op->out ? (char *)op->out + offset : NULL, *results = out;
    const char *in[NATIVE_MAX_RANKS] = {(const char *)op->in + offset};
    yk_status status = YK_OK;
    if (!yk__native_keep(&net->work, &net->work_bytes, (size_t)count * (wide + size)))
        return yk__error_code();
    if (!net->flat) {
        yk__native_next_board(g);
        yk__native_copy(yk__native_board_of(g, g->rank), in[0], bytes);
        status = yk__native_sync(g);
    } else if (root >= 0) {
        results = net->work + (size_t)count * wide;
    }
    int64_t from = 0, to = 0, k_from, k_to;
    if (lane >= 0 && !status) {
        yk__native_share(count, size, net->lanes, lane, &from, &to);
        for (int r = 0; r < g->world_size && !net->flat; r++)
            in[r] = yk__native_board_of(g, r) + (size_t)from * size;
        if (!net->flat)
            results = yk__native_board_of(g, g->rank) + (size_t)from * size;
        status = yk__native_accumulate(op->reduction, op->dtype, net->work, g->world_size, in, to - from);
        if (!status)
            status = ring_slice(g, op, lane, to - from, net->work, results, root < 0);
    }
    if (root >= 0 && !status)
        status = pass_to_root(g, root, size, count, results, out);
    if (!status)
        status = yk__native_sync_host(g);
    if (status || (root >= 0 && root != g->world_rank))
        return status;
    for (int c = 0; c < net->lanes && (!net->flat || root >= 0); c++) {
        const char *board = net->flat ? results : yk__native_board_of(g, c);
        yk__native_share(count, size, net->lanes, c, &from, &to);
        k_from = 0, k_to = to - from;
        if (root >= 0)
            yk__native_share(to - from, size, g->hosts, g->host, &k_from, &k_to);
        from += k_from;
        yk__native_copy(out + (size_t)from * size, board + (size_t)from * size, (size_t)(k_to - k_from) * size);
    }
    return YK_OK;
}

yk_status yk__native_ring_reduce(native *g, const yk__comm_op *op, int root)
{
    size_t size = yk_dtype_size(op->dtype);
    bool in_place = root < 0 && !yk__is_half(op->dtype);
    yk__region_place place = {0};
    if (in_place && !g->net->flat)
        place = yk__native_place(g, op->in, (size_t)op->count * size);
    yk_status status = yk__native_begin_large(g, op, &place);
    int64_t step = (int64_t)(NATIVE_BOARD / size);
    if (!status && in_place && (g->net->flat || yk__native_all_direct(g, op->number, -1, false)))
        return all_reduce_in_place(g, op, g->net->flat ? op->count : step);
    for (int64_t at = 0; at < op->count && !status; at += step)
        status = reduce_piece(g, op, root, at, op->count - at < step ? op->count - at : step);
    return status;
}

/* ---- reduce_scatter ---------------------------------------------------------------------------------------------- */
/* `count` elements of every part. On the boards part r stands at r * count. */
static yk_status scatter_piece(native *g, const yk__comm_op *op, int64_t at, int64_t count)
{
    struct yk__native_net *net = g->net;
    size_t size = yk_dtype_size(op->dtype), wide = yk_dtype_size(yk__native_wide(op->dtype));
    size_t part = (size_t)op->count * size, slot = (size_t)count * size, offset = (size_t)at * size;
    int lane = own_lane(g);
    char *out = (char *)op->out + offset;
    yk_status status = YK_OK;
    if (!net->flat) {
        yk__native_next_board(g);
        char *board = yk__native_board_of(g, g->rank);
        for (int r = 0; r < g->world; r++)
            yk__native_copy(board + (size_t)r * slot, (const char *)op->in + (size_t)r * part + offset, slot);
        status = yk__native_sync(g);
    }
    int64_t from, to;
    if (lane >= 0 && !status) {
        yk__native_share(count, size, net->lanes, lane, &from, &to);
        size_t width = (size_t)(to - from);
        yk__native_chunk *chunks = yk__calloc(2 * (size_t)g->hosts, sizeof(*chunks)), *results = chunks + g->hosts;
        if (!chunks || !yk__native_keep(&net->work, &net->work_bytes, width * wide * (size_t)g->world + 1)) {
            free(chunks);
            return yk__error_code();
        }
        for (int i = 0; i < g->world && !status; i++) {
            const char *in[NATIVE_MAX_RANKS] = {(const char *)op->in + (size_t)g->order[i] * part + offset};
            for (int r = 0; r < g->world_size && !net->flat; r++)
                in[r] = yk__native_board_of(g, r) + (size_t)g->order[i] * slot + (size_t)from * size;
            status = yk__native_accumulate(op->reduction, op->dtype, net->work + (size_t)i * width * wide,
                                           g->world_size, in, (int64_t)width);
        }
        for (int k = 0; k < g->hosts; k++) {
            size_t rows = (size_t)yk__native_rows_of(g, k);
            chunks[k] = (yk__native_chunk){
                net->work + (size_t)g->first[k] * width * wide, NULL, 0, rows * width * wide, 1, wide};
            results[k] = net->flat ? (yk__native_chunk){out, NULL, 0, slot, 1, size}
                                   : (yk__native_chunk){yk__native_board_of(g, g->rank) + (size_t)from * size,
                                                        g->order + g->first[k],
                                                        slot,
                                                        width * size,
                                                        rows,
                                                        size};
        }
        if (!status)
            status = ring(g, op, lane, 1, chunks, results, false);
        free(chunks);
    }
    if (!status)
        status = yk__native_sync_host(g);
    for (int c = 0; c < net->lanes && !net->flat && !status; c++) {
        yk__native_share(count, size, net->lanes, c, &from, &to);
        yk__native_copy(out + (size_t)from * size,
                        yk__native_board_of(g, c) + (size_t)g->world_rank * slot + (size_t)from * size,
                        (size_t)(to - from) * size);
    }
    return status;
}

yk_status yk__native_ring_reduce_scatter(native *g, const yk__comm_op *op)
{
    int64_t step = (int64_t)(NATIVE_BOARD / yk_dtype_size(op->dtype)) / g->world;
    yk_status status = yk__native_begin_large(g, op, NULL);
    for (int64_t at = 0; at < op->count && !status; at += step)
        status = scatter_piece(g, op, at, op->count - at < step ? op->count - at : step);
    return status;
}

/* ---- all_gather -------------------------------------------------------------------------------------------------- */
/* `bytes` of every part. Part r stands at r * pitch of `memory`: the boards, or the caller's. */
static yk_status gather_piece(native *g, const yk__comm_op *op, size_t part, size_t at, size_t bytes)
{
    struct yk__native_net *net = g->net;
    int lane = own_lane(g);
    char *memory = (char *)op->out + at;
    size_t pitch = net->flat ? part : bytes;
    yk_status status = YK_OK;
    if (!net->flat) {
        yk__native_next_board(g);
        memory = yk__native_board_of(g, g->rank);
    }
    yk__native_copy(memory + (size_t)g->world_rank * pitch, (const char *)op->in + at, bytes);
    if (!net->flat) {
        status = yk__native_sync(g);
    }
    int64_t from, to;
    if (lane >= 0 && !status) {
        yk__native_share((int64_t)bytes, 1, net->lanes, lane, &from, &to);
        for (int r = 0; r < g->world_size && !net->flat; r++) {
            size_t slot = (size_t)yk__native_rank_at(g, g->host, r) * pitch + (size_t)from;
            yk__native_copy(memory + slot, yk__native_board_of(g, r) + slot, (size_t)(to - from));
        }
        yk__native_chunk *chunks = yk__calloc((size_t)g->hosts, sizeof(*chunks));
        for (int k = 0; k < g->hosts && chunks; k++)
            chunks[k] = (yk__native_chunk){memory + from,       g->order + g->first[k],           pitch,
                                           (size_t)(to - from), (size_t)yk__native_rows_of(g, k), 1};
        status = chunks ? ring(g, op, lane, 1, NULL, chunks, true) : yk__error_code();
        free(chunks);
    }
    if (!status)
        status = yk__native_sync_host(g);
    for (int c = 0; c < net->lanes && !net->flat && !status; c++) {
        yk__native_share((int64_t)bytes, 1, net->lanes, c, &from, &to);
        for (int r = 0; r < g->world; r++)
            yk__native_copy((char *)op->out + (size_t)r * part + at + from,
                            yk__native_board_of(g, c) + (size_t)r * pitch + from, (size_t)(to - from));
    }
    return status;
}

yk_status yk__native_ring_all_gather(native *g, const yk__comm_op *op)
{
    size_t part = (size_t)op->count * yk_dtype_size(op->dtype);
    size_t step = g->net->flat ? CHUNK : NATIVE_BOARD / (size_t)g->world;
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
    int lane = own_lane(g), place = before(g, g->host, root->host);
    bool is_root = op->peer == g->world_rank;
    char *memory = is_root ? (char *)(uintptr_t)op->in + at : (char *)op->out + at;
    yk_status status = YK_OK;
    if (!net->flat) {
        yk__native_next_board(g);
        if (is_root)
            yk__native_copy(yk__native_board_of(g, g->rank), memory, bytes);
        status = yk__native_sync(g);
    }
    int64_t from, to;
    if (lane >= 0 && !status) {
        yk__native_share((int64_t)bytes, 1, net->lanes, lane, &from, &to);
        char *slice = net->flat ? memory : yk__native_board_of(g, place == 0 ? root->row : g->rank) + from;
        yk__native_chunk chunk = {slice, NULL, 0, (size_t)(to - from), 1, 1};
        yk__native_take take = {.chunk = chunk};
        yk__native_give give = {chunk, place == 0 ? -1 : 0};
        yk__native_pipe p = {.to = yk__native_rank_at(g, (g->host + 1) % g->hosts, lane),
                             .from = yk__native_rank_at(g, before(g, g->host, 1), lane),
                             .give = &give,
                             .take = &take,
                             .gives = place<g->hosts - 1, .takes = place> 0,
                             .dtype = YK_U8};
        status = yk__native_pipe_run(g, &p);
    }
    if (!status)
        status = yk__native_sync_host(g);
    for (int c = 0; c < net->lanes && !net->flat && !is_root && !status; c++) {
        yk__native_share((int64_t)bytes, 1, net->lanes, c, &from, &to);
        yk__native_copy(memory + from, yk__native_board_of(g, place == 0 ? root->row : c) + from, (size_t)(to - from));
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
