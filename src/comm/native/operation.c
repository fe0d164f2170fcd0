/*
 * operation.c - the begin and the end of every collective: the comparison of headers, the handles of buffers, and the
 * effect of a failure on the group. Layer: comm/native.
 */
#include "comm/native/native.h"

/* ---- beginning --------------------------------------------------------------------------------------------------- */
yk_status yk__native_mismatch(native *g, int a, const yk__comm_op *of_a, int b, const yk__comm_op *of_b)
{
    char who_a[120], who_b[120], x[160], y[160];
    return yk__native_break(g, YK_ERR_MISMATCH, "group '%s': %s called %s, but %s called %s", g->name,
                            yk__native_rank_name(g, a, who_a, sizeof(who_a)), yk__comm_describe(of_a, x, sizeof(x)),
                            yk__native_rank_name(g, b, who_b, sizeof(who_b)), yk__comm_describe(of_b, y, sizeof(y)));
}

yk_status yk__native_begin(native *g, const yk__comm_op *op, const yk__region_handle *in, const yk__region_handle *out)
{
    yk__native_header *handles = &g->rows[g->local_rank].headers[op->number & 1];
    const yk__comm_header own = yk__comm_header_of(op);
    yk__native_next_round(g)->op = own;
    if (in)
        handles->in = *in;
    if (out)
        handles->out = *out;
    g->current = *op;
    g->op_begin = g->op_seen = 0;
    atomic_store_explicit(&g->rows[g->local_rank].begun, op->number, memory_order_relaxed);
    yk_status status = yk__native_sync(g);
    if (status)
        return status;
    for (int r = 0; r < g->local_size; r++) {
        const yk__native_round *other = yk__native_round_of(g, r);
        if (yk__comm_header_equal(&other->op, &own))
            continue;
        yk__comm_op theirs = yk__comm_header_op(&other->op), ours = yk__comm_header_op(&own);
        return yk__native_mismatch(g, g->rank, &ours, g->order[g->first[g->host] + r], &theirs);
    }
    return YK_OK;
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */
/* Ends an operation. After a failure, of whatever kind, the others must not wait for it, nor its caller be surprised by
 * them. */
static yk_status operation_finish(native *g, const yk__comm_op *op, yk_status status)
{
    if (!status) {
        atomic_store_explicit(&g->rows[g->local_rank].done, g->current.number, memory_order_relaxed);
        return YK_OK;
    }
    yk__native_exit(g);
    const yk_error *error = yk_last_error();
    yk__native_abort(g, status, error ? error->message : "a collective failed");
    yk_clear_error();
    yk__native_settle(g, op);
    return yk__native_check(g); /* the group's first cause, of which this may be a consequence */
}

/* In a broken group an operation that was queued before writes nothing: Note [Rounds]. */
yk_status yk__native_collective(void *state, const yk__comm_op *op)
{
    native *g = state;
    yk_status status = yk__native_check(g);
    return status ? status : operation_finish(g, op, g->transport->collective(g, op));
}

yk_status yk__native_agree(void *state, const yk__comm_op *op)
{
    native *g = state;
    yk_status status = yk__native_check(g);
    return status ? status : operation_finish(g, op, g->transport->agree(g, op));
}

yk_status yk__native_watch(void *state, double waited, int *ended, int *stopped)
{
    native *g = state;
    *ended = *stopped = -1;
    yk_status status = yk__native_check(g);
    if (!status)
        status = g->transport->check_hosts(g, waited);
    for (int r = 0; r < g->local_size && !status && *ended < 0; r++) {
        bool stands = false;
        if (r != g->local_rank && !atomic_load(&g->rows[r].left) && yk__native_is_dead(g, r, &stands))
            *ended = yk__native_rank_at(g, g->host, r);
        if (stands)
            *stopped = yk__native_rank_at(g, g->host, r);
    }
    return status;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */
yk__region_handle yk__native_region_handle(const native *g, const void *memory, size_t bytes)
{
    if (g->one_process)
        return (yk__region_handle){.address = (uint64_t)(uintptr_t)memory};
    return yk__region_find(memory, bytes);
}

bool yk__native_all_direct(const native *g, uint64_t number, int root, bool out)
{
    if (g->one_process)
        return true;
    for (int r = 0; r < g->local_size; r++) {
        const yk__native_header *h = &g->rows[r].headers[number & 1];
        if ((root < 0 || r == root) && (out ? h->out.id : h->in.id) == 0)
            return false;
    }
    return true;
}

char *yk__native_peer_memory(native *g, uint64_t number, int rank, bool out)
{
    const yk__native_header *h = &g->rows[rank].headers[number & 1];
    return yk__native_reach(g, rank, out ? &h->out : &h->in, &g->current);
}

void yk__native_share(int64_t count, size_t size, int n, int r, int64_t *from, int64_t *to)
{
    int64_t line = 64 / (int64_t)size, lines = (count + line - 1) / line;
    *from = lines * r / n * line;
    *from = *from < count ? *from : count;
    *to = lines * (r + 1) / n * line;
    *to = *to < count ? *to : count;
}
