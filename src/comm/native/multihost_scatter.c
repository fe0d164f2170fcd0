/*
 * multihost_scatter.c - gather, scatter and all_to_all between hosts. Layer: comm/native.
 *
 * Every rank has bytes for some others, and sends them straight to those of other hosts, all at once; those of its own
 * host read theirs from its bounce buffer.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/native/multihost.h"

typedef struct parts {
    size_t *sends, *receives; /* by rank */
    const char **from;
    char **to;
} parts;

static void parts_clear(parts *p)
{
    free(p->sends);
    free(p->receives);
    free(p->from);
    free(p->to);
}

static yk_status parts_init(parts *p, const native *g, const yk__comm_op *op)
{
    size_t n = (size_t)g->world_size, size = yk_dtype_size(op->dtype), part = (size_t)op->count * size;
    *p = (parts){yk__calloc(n, sizeof(size_t)), yk__calloc(n, sizeof(size_t)), yk__calloc(n, sizeof(char *)),
                 yk__calloc(n, sizeof(char *))};
    if (!p->sends || !p->receives || !p->from || !p->to) {
        parts_clear(p);
        return yk__error_code();
    }
    const char *in = op->in;
    char *out = op->out;
    bool is_root = op->peer == g->rank, all = op->kind == YK__COMM_ALL_TO_ALL;
    bool is_gather = op->kind == YK__COMM_GATHER;
    for (int r = 0; r < g->world_size; r++) {
        p->sends[r] = all ? (size_t)op->in_counts[r] * size : (is_gather ? r == op->peer : is_root) ? part : 0;
        p->receives[r] = all ? (size_t)op->out_counts[r] * size : (is_gather ? is_root : r == op->peer) ? part : 0;
        p->from[r] = in;
        p->to[r] = out;
        if (in && (all || !is_gather))
            in += p->sends[r];
        if (out && (all || is_gather))
            out += p->receives[r];
    }
    return YK_OK;
}

/* Exchanges between the ranks of this host by way of the bounce buffers, until `longest` bytes are through. */
static yk_status exchange_in_host(native *g, const parts *p, size_t longest)
{
    size_t slot = NATIVE_BOARD / (size_t)g->local_size & ~(size_t)63;
    yk__native_copy(p->to[g->rank], p->from[g->rank], p->sends[g->rank]);
    yk_status status = YK_OK;
    for (size_t at = 0; at < longest && g->local_size > 1 && !status; at += slot) {
        yk__native_next_board(g);
        char *board = yk__native_board_of(g, g->local_rank);
        for (int j = 0; j < g->local_size; j++) {
            int r = yk__native_rank_at(g, g->host, j);
            if (j != g->local_rank && p->sends[r] > at)
                yk__native_copy(board + (size_t)j * slot, p->from[r] + at, yk__native_least(slot, p->sends[r] - at));
        }
        status = yk__native_sync(g);
        for (int i = 0; i < g->local_size && !status; i++) {
            int r = yk__native_rank_at(g, g->host, i);
            if (i != g->local_rank && p->receives[r] > at)
                yk__native_copy(p->to[r] + at, yk__native_board_of(g, i) + (size_t)g->local_rank * slot,
                                yk__native_least(slot, p->receives[r] - at));
        }
    }
    return status;
}

static yk_status exchange_parts(native *g, const yk__comm_op *op, size_t longest)
{
    parts p;
    yk_status status = parts_init(&p, g, op);
    if (status)
        return status;
    yk__native_flow *flows = yk__calloc(2 * (size_t)g->world_size, sizeof(*flows));
    int ins = 0, outs = 0;
    status = flows ? exchange_in_host(g, &p, longest) : yk__error_code();
    for (int i = 1; i < g->world_size && !status; i++) { /* not all to the same rank first */
        int to = (g->rank + i) % g->world_size;
        if (g->members[to].host != g->host && p.sends[to])
            flows[outs++] = (yk__native_flow){to, (char *)(uintptr_t)p.from[to], p.sends[to], 0};
    }
    for (int i = 1; i < g->world_size && !status; i++) {
        int from = (g->rank - i + g->world_size) % g->world_size;
        if (g->members[from].host != g->host && p.receives[from])
            flows[g->world_size + ins++] = (yk__native_flow){from, p.to[from], p.receives[from], 0};
    }
    if (!status)
        status = yk__native_flow_run(g, flows, outs, flows + g->world_size, ins, 0, NULL);
    free(flows);
    parts_clear(&p);
    return status;
}

yk_status yk__native_multihost_scatter(native *g, const yk__comm_op *op)
{
    size_t part = (size_t)op->count * yk_dtype_size(op->dtype);
    yk_status status = yk__native_begin_large(g, op, NULL);
    if (!status)
        status = yk__native_sync_host(g);
    return status ? status : exchange_parts(g, op, g->members[op->peer].host == g->host ? part : 0);
}

/* The counts of all ranks, in_counts then out_counts each, are in the blocks. */
static const int64_t *counts_of(const native *g, int rank, size_t bytes)
{
    const yk__native_member *m = &g->members[rank];
    const char *block = yk__native_block(g, m->host, bytes);
    return (const int64_t *)(const void *)block + (size_t)m->local_rank * 2 * (size_t)g->world_size;
}

static yk_status agree_counts(native *g, const yk__comm_op *op, int half)
{
    size_t row = 2 * (size_t)g->world_size * sizeof(int64_t), bytes = row * (size_t)g->net->most;
    yk_status status = yk__native_block_room(g, bytes);
    for (int r = 0; r < g->local_size && !status; r++)
        memcpy(yk__native_block(g, g->host, bytes) + (size_t)r * row, yk__native_stage(g, r, half), row);
    if (!status)
        status = yk__native_gather_blocks(g, op, bytes);
    for (int i = 0; i < g->world_size && !status; i++) {
        for (int j = 0; j < g->world_size && !status; j++) {
            int64_t sent = counts_of(g, i, bytes)[j], expected = counts_of(g, j, bytes)[g->world_size + i];
            char a[120], b[120], what[120];
            if (sent != expected)
                status = yk__native_break(g, YK_ERR_MISMATCH, "%s: %s sends %lld elements to %s, which expects %lld",
                                          yk__comm_describe(op, what, sizeof(what)),
                                          yk__native_rank_name(g, i, a, sizeof(a)), (long long)sent,
                                          yk__native_rank_name(g, j, b, sizeof(b)), (long long)expected);
        }
    }
    return status;
}

yk_status yk__native_multihost_all_to_all(native *g, const yk__comm_op *op)
{
    int half = yk__native_next_half(g);
    size_t row = (size_t)g->world_size * sizeof(int64_t), longest = 0;
    char *stage = yk__native_stage(g, g->local_rank, half);
    memcpy(stage, op->in_counts, row);
    memcpy(stage + row, op->out_counts, row);
    yk_status status = yk__native_begin(g, op, NULL, NULL);
    if (!status && g->local_rank == 0)
        status = agree_counts(g, op, half);
    for (int i = 0; i < g->local_size && !status; i++) {
        const int64_t *counts = (const int64_t *)(const void *)yk__native_stage(g, i, half);
        for (int j = 0; j < g->local_size; j++) {
            size_t bytes = (size_t)counts[yk__native_rank_at(g, g->host, j)] * yk_dtype_size(op->dtype);
            longest = i != j && bytes > longest ? bytes : longest;
        }
    }
    if (!status)
        status = yk__native_sync_host(g);
    return status ? status : exchange_parts(g, op, longest);
}
