/*
 * multihost.c - collectives over several hosts: how they begin, and the small ones. Layer: comm/native.
 *
 * Each begins with the round of its host (yk__native_begin), then the lowest ranks of the hosts, their leaders, show
 * each other what their hosts have called, in log2(hosts) steps (yk__native_gather_blocks). After that all are known to
 * be in the same operation. Up to SMALL bytes the payload goes along with it, and the operation is done. What is larger
 * goes
 *  - to the owner of a share, and from there to all or to the root (all_reduce, reduce, reduce_scatter): pairwise.c;
 *  - in a ring of hosts (all_gather) or a chain (broadcast): ring.c;
 *  - straight from rank to rank (gather, scatter, all_to_all): multihost_scatter.c.
 * Where every host has one rank this works on the caller's memory. Else it works on the bounce buffers, memory that the
 * ranks of a host share, a piece at a time; all_reduce of memory that they share already works in place.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/native/multihost.h"

/* The header before each block. */
typedef struct header {
    yk__comm_header op;
    int32_t rank, unused;
} header;

static const size_t SMALL = (size_t)64 << 10; /* bytes that all hosts exchange in one message */

/* Memory that is kept from call to call. */
char *yk__native_keep(char **memory, size_t *have, size_t bytes)
{
    if (*have < bytes) {
        free(*memory);
        *memory = yk__calloc(1, bytes);
        *have = *memory ? bytes : 0;
    }
    return *memory;
}

/* ---- the leaders agree ------------------------------------------------------------------------------------------- */
static size_t stride_of(size_t bytes)
{
    return sizeof(header) + ((bytes + 7) & ~(size_t)7);
}

/* The payload of a host's block. */
char *yk__native_block(const native *g, int host, size_t bytes)
{
    int at = (host - g->host + g->hosts) % g->hosts;
    return g->net->blocks + (size_t)at * stride_of(bytes) + sizeof(header);
}

yk_status yk__native_block_room(native *g, size_t bytes)
{
    return yk__native_keep(&g->net->blocks, &g->net->block_bytes, (size_t)g->hosts * stride_of(bytes))
               ? YK_OK
               : yk__error_code();
}

static yk_status check_header(native *g, const char *at)
{
    const yk__comm_header own = yk__comm_header_of(&g->current);
    header h;
    memcpy(&h, at, sizeof(h));
    if (yk__comm_header_equal(&h.op, &own))
        return YK_OK;
    if (h.rank < 0 || h.rank >= g->world_size || (unsigned)h.op.kind >= YK__COMM_COLLECTIVES ||
        (unsigned)h.op.dtype >= YK__DTYPES)
        return yk__native_break(g, YK_ERR_INTERNAL, "group '%s': what another host sent is no operation", g->name);
    /* A rank that has given up may have left half an operation; its reason comes first. */
    yk__native_control_progress(g);
    yk_status status = yk__native_check(g);
    if (status)
        return status;
    yk__comm_op theirs = yk__comm_header_op(&h.op);
    return yk__native_mismatch(g, g->rank, &g->current, h.rank, &theirs);
}

static yk_status check_flow(native *g, const yk__native_flow *flow)
{
    return check_header(g, flow->at);
}

/*
 * Every leader gets every host's block of `bytes`; its own payload is in place. Bruck's algorithm: in step d (1, 2, 4,
 * ...) the host sends the first d blocks that it has to the one that is d before it, and gets as many from the one that
 * is d after it.
 */
yk_status yk__native_gather_blocks(native *g, const yk__comm_op *op, size_t bytes)
{
    yk_status status = yk__native_block_room(g, bytes);
    if (status)
        return status;
    size_t stride = stride_of(bytes);
    char *blocks = g->net->blocks;
    header own = {.op = yk__comm_header_of(op), .rank = g->rank};
    memcpy(blocks, &own, sizeof(own));
    for (int d = 1; d < g->hosts && !status; d *= 2) {
        int n = d < g->hosts - d ? d : g->hosts - d;
        yk__native_flow out = {yk__native_rank_at(g, (g->host - d + g->hosts) % g->hosts, 0), blocks,
                               (size_t)n * stride, 0};
        yk__native_flow in = {yk__native_rank_at(g, (g->host + d) % g->hosts, 0), blocks + (size_t)d * stride,
                              (size_t)n * stride, 0};
        status = yk__native_flow_run(g, &out, 1, &in, 1, sizeof(header), check_flow);
        for (int i = 1; i < n && !status; i++)
            status = check_header(g, blocks + (size_t)(d + i) * stride);
    }
    return status;
}

/* ---- small payloads ---------------------------------------------------------------------------------------------- */
/* Bytes that a rank that contributes publishes. */
static size_t payload_bytes(const native *g, const yk__comm_op *op)
{
    size_t part = op->kind == YK__COMM_BARRIER ? 0 : (size_t)op->count * yk_dtype_size(op->dtype);
    return op->kind == YK__COMM_SCATTER || op->kind == YK__COMM_REDUCE_SCATTER ? part * (size_t)g->world_size : part;
}

static bool gathers(const yk__comm_op *op)
{
    return op->kind == YK__COMM_ALL_GATHER || op->kind == YK__COMM_GATHER;
}

/* Bytes of the inputs that a host has to a reduction of `count` elements, each on a multiple of 8. */
static size_t inputs_bytes(const native *g, int host, yk_dtype dtype, int64_t count)
{
    size_t bytes = 0;
    for (int i = 0; i < g->net->subtree_count; i++)
        if (g->net->subtree_hosts[i] == host)
            bytes += ((size_t)count * yk__native_subtree_size(g, i, dtype) + 7) & ~(size_t)7;
    return bytes;
}

/* Bytes of a host's block. */
static size_t block_bytes(const native *g, const yk__comm_op *op, size_t payload)
{
    size_t most = 0;
    if (gathers(op))
        return payload * (size_t)g->net->most;
    if (!yk__comm_reduces(op->kind))
        return payload;
    for (int h = 0; h < g->hosts; h++) {
        size_t bytes = inputs_bytes(g, h, op->dtype, (int64_t)(payload / yk_dtype_size(op->dtype)));
        most = bytes > most ? bytes : most;
    }
    return most;
}

static bool is_small(const native *g, const yk__comm_op *op)
{
    size_t payload = payload_bytes(g, op);
    return op->kind != YK__COMM_ALL_TO_ALL && payload <= SMALL &&
           block_bytes(g, op, payload) * (size_t)g->hosts <= SMALL;
}

/* Input i of a reduction, in the block of its host. */
static char *block_input(const native *g, int i, yk_dtype dtype, int64_t count, size_t bytes)
{
    size_t at = 0;
    int host = g->net->subtree_hosts[i];
    for (int k = 0; k < i; k++)
        if (g->net->subtree_hosts[k] == host)
            at += ((size_t)count * yk__native_subtree_size(g, k, dtype) + 7) & ~(size_t)7;
    return yk__native_block(g, host, bytes) + at;
}

/* Copies or combines this host's inputs to the reduction into its block. */
static yk_status fill_inputs(native *g, const yk__comm_op *op, int half, int64_t count, size_t bytes)
{
    const struct yk__native_net *net = g->net;
    const char *rows[NATIVE_MAX_RANKS];
    yk_status status = YK_OK;
    for (int r = 0; r < g->local_size; r++)
        rows[r] = yk__native_stage(g, r, half);
    for (int i = 0; i < net->subtree_count && !status; i++) {
        if (net->subtree_hosts[i] != g->host)
            continue;
        char *to = block_input(g, i, op->dtype, count, bytes);
        if (net->subtrees[i].level)
            status = yk__native_subtree_combine(g, i, op, rows, to, count);
        else
            yk__native_copy(to, rows[g->members[net->subtrees[i].first].local_rank],
                            (size_t)count * yk_dtype_size(op->dtype));
    }
    return status;
}

static yk_status combine_blocks(native *g, const yk__comm_op *op, int64_t count, size_t bytes, char *result)
{
    const struct yk__native_net *net = g->net;
    const char *in[NATIVE_MAX_RANKS];
    const yk__reduction r = {.reduction = op->reduction,
                             .dtype = op->dtype,
                             .ranks = g->world_size,
                             .inputs = net->subtree_count,
                             .subtrees = net->subtrees};
    for (int i = 0; i < net->subtree_count; i++)
        in[i] = block_input(g, i, op->dtype, count, bytes);
    return yk__native_combine(&r, 1, &result, in, count);
}

/* The leader: makes the host's block out of what its ranks publish, and the result out of all blocks. */
static yk_status leader_small(native *g, const yk__comm_op *op, int half, size_t payload)
{
    bool reduces = yk__comm_reduces(op->kind);
    int64_t count = (int64_t)(payload / yk_dtype_size(op->dtype));
    size_t bytes = block_bytes(g, op, payload);
    yk_status status = yk__native_block_room(g, bytes);
    if (status)
        return status;
    char *mine = yk__native_block(g, g->host, bytes), *result = yk__native_stage(g, g->local_rank, half);
    if (reduces) {
        status = fill_inputs(g, op, half, count, bytes);
    } else if (gathers(op)) {
        for (int r = 0; r < g->local_size; r++)
            yk__native_copy(mine + (size_t)r * payload, yk__native_stage(g, r, half), payload);
    } else if (op->peer >= 0 && g->members[op->peer].host == g->host) {
        yk__native_copy(mine, yk__native_stage(g, g->members[op->peer].local_rank, half), payload);
    }
    if (!status)
        status = yk__native_gather_blocks(g, op, bytes);
    if (status || payload == 0)
        return status;
    if (reduces)
        return combine_blocks(g, op, count, bytes, result);
    if (gathers(op)) {
        for (int r = 0; r < g->world_size; r++)
            yk__native_copy(result + (size_t)r * payload,
                            yk__native_block(g, g->members[r].host, bytes) + (size_t)g->members[r].local_rank * payload,
                            payload);
    } else {
        yk__native_copy(result, yk__native_block(g, g->members[op->peer].host, bytes), payload);
    }
    return YK_OK;
}

static yk_status small(native *g, const yk__comm_op *op)
{
    size_t payload = payload_bytes(g, op), part = (size_t)op->count * yk_dtype_size(op->dtype);
    bool one_sends = op->kind == YK__COMM_BROADCAST || op->kind == YK__COMM_SCATTER;
    bool one_receives = op->kind == YK__COMM_REDUCE || op->kind == YK__COMM_GATHER, is_root = op->peer == g->rank;
    int half = yk__native_next_half(g);
    if (!one_sends || is_root)
        yk__native_copy(yk__native_stage(g, g->local_rank, half), op->in, payload);
    yk_status status = yk__native_begin(g, op, NULL, NULL);
    if (!status && g->local_rank == 0)
        status = leader_small(g, op, half, payload);
    if (!status && !g->net->flat)
        status = yk__native_sync(g);
    if (status || payload == 0 || (one_receives && !is_root))
        return status;
    const char *result = yk__native_stage(g, 0, half);
    if (op->kind == YK__COMM_SCATTER || op->kind == YK__COMM_REDUCE_SCATTER)
        yk__native_copy(op->out, result + part * (size_t)g->rank, part);
    else if (op->kind != YK__COMM_BROADCAST || !is_root)
        yk__native_copy(op->out, result, gathers(op) ? part * (size_t)g->world_size : part);
    return YK_OK;
}

/* ---- larger payloads --------------------------------------------------------------------------------------------- */
yk_status yk__native_begin_large(native *g, const yk__comm_op *op, const yk__region_handle *in)
{
    yk_status status = yk__native_begin(g, op, in, NULL);
    return !status && g->local_rank == 0 ? yk__native_gather_blocks(g, op, 0) : status;
}

void yk__native_next_board(native *g)
{
    g->net->board_half ^= 1;
}

/* The half of the bounce buffer that this piece uses, of a rank of this host. */
char *yk__native_board_of(const native *g, int local_rank)
{
    return yk__native_board(g, local_rank, g->net->board_half);
}

/* A round of the host, where it has several ranks. */
yk_status yk__native_sync_host(native *g)
{
    return g->net->flat ? YK_OK : yk__native_sync(g);
}

static yk_status collective_by_size(native *g, const yk__comm_op *op)
{
    yk__native_control_progress(g); /* a cause not to begin this operation may have come since the last */
    yk_status status = yk__native_check(g);
    if (status)
        return status;
    if (is_small(g, op))
        return small(g, op);
    switch (op->kind) {
    case YK__COMM_ALL_REDUCE:
    case YK__COMM_REDUCE: return yk__native_multihost_reduce(g, op);
    case YK__COMM_BROADCAST: return yk__native_chain_broadcast(g, op);
    case YK__COMM_ALL_GATHER: return yk__native_ring_all_gather(g, op);
    case YK__COMM_REDUCE_SCATTER: return yk__native_multihost_reduce_scatter(g, op);
    case YK__COMM_ALL_TO_ALL: return yk__native_multihost_all_to_all(g, op);
    default: return yk__native_multihost_scatter(g, op);
    }
}

static yk_status collective(native *g, const yk__comm_op *op)
{
    return yk__native_carried_end(g, collective_by_size(g, op));
}

static yk_status header_agree(native *g, const yk__comm_op *op)
{
    yk__native_control_progress(g);
    yk_status status = yk__native_check(g);
    if (!status)
        status = yk__native_begin_large(g, op, NULL);
    return yk__native_carried_end(g, status ? status : yk__native_sync_host(g));
}

const yk__native_transport yk__native_multihost = {
    .collective = collective,
    .agree = header_agree,
    .progress = yk__native_control_progress,
    .check_hosts = yk__native_check_hosts,
    .send_broken = yk__native_control_send_broken,
    .drop_messages = yk__native_control_drop_messages,
    .stall_delay = 0.5, /* longer than a rank that waits for another host waits beyond the time-out (OTHERS_DELAY) */
};
