/*
 * one_host.c - the collectives of one host; those of several are in multihost.c. Layer: comm/native.
 *
 * Each begins by comparing headers (see the notes in native.h), and goes one of two ways, the same on all ranks:
 *  - staged: bytes go through the ranks' staging areas, a half at a time. Up to EARLY bytes the first piece is put
 * there before the headers are compared, so that a small operation is one round and done.
 *  - direct: every rank can reach the buffers themselves (they are in regions, or the ranks are threads), reads what it
 *    needs, and writes results where they belong. A last round ensures that nobody reads any more.
 */
#include <string.h>

#include "comm/native/multihost.h"

/* Up to EARLY bytes staging in the headers' round wins over reading in place (0.37 us against 0.45 at 2 KiB, 1.58
 * against 0.67 at 16 KiB, two ranks); up to FLAT bytes in all ranks together, every rank reads everything, which saves
 * a round. From STREAM on, results may go past the caches: Note [Stores past the caches]. */
static const size_t EARLY = (size_t)2 << 10, FLAT = (size_t)64 << 10, STREAM = (size_t)8 << 20;

/*
 * Note [Stores past the caches]
 * Non-temporal stores make large results faster on some processors alone, which the size of the caches does not tell:
 * some gain a third, others lose as much. So the first large reductions of a group try both by turns, after one that
 * does not count, since its memory may be new. From then on the faster one is taken, which each rank chooses by the
 * time of its own share. No bit depends on it.
 */
enum { STORE_TRIALS = 7 };

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline void payload_copy(void *to, const void *from, size_t bytes)
{
    if (bytes && to != from)
        memcpy(to, from, bytes);
}

/* ---- all_reduce and reduce -------------------------------------------------------------------------------------- */
static bool streams_stores(const native *g, size_t bytes)
{
    if (bytes < STREAM)
        return false;
    return g->store_trials < STORE_TRIALS ? g->store_trials % 2 : g->store_times[true] < g->store_times[false];
}

/* Records the seconds per element of a reduction of at least STREAM bytes. */
static void record_store_time(native *g, bool stream, double seconds)
{
    if (g->store_trials >= STORE_TRIALS)
        return;
    double *best = &g->store_times[stream];
    if (g->store_trials > 0 && (*best <= 0 || seconds < *best))
        *best = seconds;
    g->store_trials++;
}

static yk__reduction reduction_of(const native *g, const yk__comm_op *op)
{
    return (yk__reduction){
        .reduction = op->reduction, .dtype = op->dtype, .ranks = g->world_size, .inputs = g->world_size};
}

/* Every rank combines its share of all buffers, and writes it to all of them, or to the root's. */
static yk_status reduce_direct(native *g, const yk__comm_op *op, int root)
{
    yk_status status = yk__native_enter(g);
    if (status)
        return status;
    size_t size = yk_dtype_size(op->dtype);
    int n = g->local_size;
    int64_t from, to;
    yk__native_share(op->count, size, n, g->local_rank, &from, &to);
    const char *in[NATIVE_MAX_RANKS];
    char *out[NATIVE_MAX_RANKS];
    for (int r = 0; r < n; r++) {
        char *memory = yk__native_peer_memory(g, op->number, r, false);
        if (!memory)
            return yk__error_code();
        in[r] = memory + (size_t)from * size;
        out[r] = memory + (size_t)from * size;
    }
    if (root >= 0)
        out[0] = out[root];
    yk__reduction r = reduction_of(g, op);
    r.stream = streams_stores(g, (size_t)op->count * size);
    double began = (size_t)op->count * size >= STREAM ? yk__now() : 0;
    status = yk__native_combine(&r, root >= 0 ? 1 : n, out, in, to - from);
    if (began > 0 && to > from)
        record_store_time(g, r.stream, (yk__now() - began) / (double)(to - from));
    yk__native_exit(g);
    return status ? status : yk__native_sync(g);
}

/* The values came with the round in which the operation began. */
static yk_status reduce_tiny(native *g, const yk__comm_op *op)
{
    const char *in[NATIVE_MAX_RANKS];
    const yk__reduction reduction = reduction_of(g, op);
    char *out = op->out;
    for (int r = 0; r < g->local_size; r++)
        in[r] = yk__native_round_of(g, r)->bytes;
    return yk__native_combine(&reduction, 1, &out, in, op->count);
}

static yk_status reduce_all(native *g, const yk__comm_op *op, int root)
{
    size_t size = yk_dtype_size(op->dtype), total = (size_t)op->count * size;
    bool tiny = total <= NATIVE_TINY, early = total <= EARLY, wanted = root < 0 || root == g->local_rank;
    int n = g->local_size;
    yk__region_handle handle = {0};
    int half = -1;
    if (tiny) {
        payload_copy(yk__native_next_round(g)->bytes, op->in, total);
    } else if (early) {
        half = yk__native_next_half(g);
        payload_copy(yk__native_stage(g, g->local_rank, half), op->in, total);
    } else {
        handle = yk__native_region_handle(g, op->in, total);
    }
    yk_status status = yk__native_begin(g, op, early ? NULL : &handle, NULL);
    if (status)
        return status;
    if (tiny)
        return wanted ? reduce_tiny(g, op) : YK_OK;
    if (!early && yk__native_all_direct(g, op->number, -1, false))
        return reduce_direct(g, op, root);

    int64_t piece = (int64_t)(NATIVE_HALF / size);
    const char *in[NATIVE_MAX_RANKS];
    const yk__reduction reduction = reduction_of(g, op);
    for (int64_t at = 0; at < op->count && !status; at += piece) {
        int64_t count = least(piece, op->count - at);
        size_t bytes = (size_t)count * size;
        char *out = op->out ? (char *)op->out + (size_t)at * size : NULL;
        if (!early) {
            half = yk__native_next_half(g);
            payload_copy(yk__native_stage(g, g->local_rank, half), (const char *)op->in + (size_t)at * size, bytes);
            status = yk__native_sync(g);
            if (status)
                return status;
        }
        bool flat = bytes * (size_t)n <= FLAT || n == 1;
        int64_t from = 0, to = count;
        if (!flat)
            yk__native_share(count, size, n, g->local_rank, &from, &to);
        for (int r = 0; r < n; r++)
            in[r] = yk__native_stage(g, r, half) + (size_t)from * size;
        if (flat) {
            if (wanted)
                status = yk__native_combine(&reduction, 1, &out, in, count);
            continue;
        }
        char *mine = yk__native_stage(g, g->local_rank, half) + (size_t)from * size;
        status = yk__native_combine(&reduction, 1, &mine, in, to - from);
        if (!status)
            status = yk__native_sync(g);
        for (int r = 0; r < n && wanted && !status; r++) {
            yk__native_share(count, size, n, r, &from, &to);
            payload_copy(out + (size_t)from * size, yk__native_stage(g, r, half) + (size_t)from * size,
                         (size_t)(to - from) * size);
        }
    }
    return status;
}

/* ---- broadcast, all_gather, gather: each rank that sends has one piece for all ---------------------------------- */
/* `root` of broadcast alone sends; `to` of gather alone receives; -1: all. Part r of `out` comes from rank r, or the
 * whole of it from the root. */
static yk_status gather_or_broadcast(native *g, const yk__comm_op *op, int root, int to)
{
    size_t size = yk_dtype_size(op->dtype), total = (size_t)op->count * size;
    bool early = total <= EARLY, sends = root < 0 || root == g->local_rank;
    bool receives = root >= 0 ? root != g->local_rank : to < 0 || to == g->local_rank;
    yk__region_handle handle = {0};
    int half = -1;
    if (early) {
        half = yk__native_next_half(g);
        if (sends)
            payload_copy(yk__native_stage(g, g->local_rank, half), op->in, total);
    } else if (sends) {
        handle = yk__native_region_handle(g, op->in, total);
    }
    yk_status status = yk__native_begin(g, op, early ? NULL : &handle, NULL);
    if (status)
        return status;
    bool direct = !early && yk__native_all_direct(g, op->number, root, false);
    size_t piece = direct ? total : NATIVE_HALF;
    if (direct)
        status = yk__native_enter(g);
    for (size_t at = 0; at < total && !status; at += piece) {
        size_t bytes = total - at < piece ? total - at : piece;
        if (!early && !direct) {
            half = yk__native_next_half(g);
            if (sends)
                payload_copy(yk__native_stage(g, g->local_rank, half), (const char *)op->in + at, bytes);
            status = yk__native_sync(g);
            if (status)
                return status;
        }
        for (int i = 0; i < g->local_size && receives; i++) {
            int r = (g->local_rank + i) % g->local_size; /* not all from the same rank at once */
            if (root >= 0 && r != root)
                continue;
            char *out = (char *)op->out + (root >= 0 ? 0 : (size_t)r * total) + at;
            const char *in = direct ? yk__native_peer_memory(g, op->number, r, false) : yk__native_stage(g, r, half);
            if (!in)
                return yk__error_code();
            if (direct && streams_stores(g, bytes) && out != in)
                yk__native_stream_copy(out, in, bytes);
            else
                payload_copy(out, in, bytes);
        }
    }
    if (direct && !status) {
        yk__native_stream_end();
        yk__native_exit(g);
        status = yk__native_sync(g);
    }
    return status;
}

/* ---- scatter, reduce_scatter: each rank that sends has a piece for every rank ------------------------------------ */
/* A rank receives its part of the root's `in`, or combines its parts of everybody's. */
static yk_status scatter_or_reduce(native *g, const yk__comm_op *op, int root)
{
    int n = g->local_size;
    size_t size = yk_dtype_size(op->dtype), part = (size_t)op->count * size;
    size_t piece = NATIVE_HALF / (size_t)n & ~(size_t)63;
    bool early = part <= piece && part * (size_t)n <= EARLY, sends = root < 0 || root == g->local_rank;
    yk__region_handle handle = {0};
    if (!early && sends)
        handle = yk__native_region_handle(g, op->in, part * (size_t)n);
    yk_status status = YK_OK;
    bool direct = false, begun = false;
    const char *in[NATIVE_MAX_RANKS];
    const yk__reduction reduction = reduction_of(g, op);
    if (!early) {
        status = yk__native_begin(g, op, &handle, NULL);
        begun = true;
        direct = !status && yk__native_all_direct(g, op->number, root, false);
        piece = direct ? part : piece;
        if (direct)
            status = yk__native_enter(g);
    }
    for (size_t at = 0; (at < part || !begun) && !status; at += piece) {
        size_t bytes = part - at < piece ? part - at : piece;
        char *out = (char *)op->out + at;
        int half = 0;
        if (!direct) {
            half = yk__native_next_half(g);
            for (int r = 0; r < n && sends; r++)
                payload_copy(yk__native_stage(g, g->local_rank, half) + (size_t)r * piece,
                             (const char *)op->in + (size_t)r * part + at, bytes);
            status = begun ? yk__native_sync(g) : yk__native_begin(g, op, NULL, NULL);
            begun = true;
        }
        for (int r = 0; r < n && !status; r++) {
            if (root >= 0 && r != root)
                continue;
            in[r] = direct ? yk__native_peer_memory(g, op->number, r, false) : yk__native_stage(g, r, half);
            if (!in[r])
                return yk__error_code();
            in[r] += (size_t)g->local_rank * (direct ? part : piece);
        }
        if (status)
            break;
        if (root >= 0)
            payload_copy(out, in[root], bytes);
        else
            status = yk__native_combine(&reduction, 1, &out, in, (int64_t)(bytes / size));
    }
    if (!direct || status)
        return status;
    yk__native_exit(g);
    return yk__native_sync(g);
}

/* ---- all_to_all -------------------------------------------------------------------------------------------------- */
/* The first use of staging shows everybody's counts, in_counts then out_counts; the next ones move a piece for every
 * pair of ranks at a time, until the longest part is through. */
static yk_status all_to_all(native *g, const yk__comm_op *op)
{
    int n = g->local_size, half = yk__native_next_half(g);
    size_t size = yk_dtype_size(op->dtype), row = (size_t)n * sizeof(int64_t), total = 0;
    char *stage = yk__native_stage(g, g->local_rank, half);
    memcpy(stage, op->in_counts, row);
    memcpy(stage + row, op->out_counts, row);
    for (int r = 0; r < n; r++)
        total += (size_t)op->in_counts[r] * size;
    yk__region_handle handle = yk__native_region_handle(g, op->in, total);
    if (total == 0)
        handle.id = 1; /* nobody looks for anything in it */
    yk_status status = yk__native_begin(g, op, &handle, NULL);
    if (status)
        return status;

    int64_t longest = 0, offset[NATIVE_MAX_RANKS]; /* of the part for this rank in the others' `in` */
    for (int i = 0; i < n; i++) {
        const int64_t *in_counts = (const int64_t *)(const void *)yk__native_stage(g, i, half);
        offset[i] = 0;
        for (int j = 0; j < n; j++) {
            const int64_t *out_counts = (const int64_t *)(const void *)(yk__native_stage(g, j, half) + row);
            offset[i] += j < g->local_rank ? in_counts[j] : 0;
            longest = in_counts[j] > longest ? in_counts[j] : longest;
            if (in_counts[j] != out_counts[i]) {
                char a[120], b[120], what[120];
                return yk__native_break(g, YK_ERR_MISMATCH, "%s: %s sends %lld elements to %s, which expects %lld",
                                        yk__comm_describe(op, what, sizeof(what)),
                                        yk__native_local_rank_name(g, i, a, sizeof(a)), (long long)in_counts[j],
                                        yk__native_local_rank_name(g, j, b, sizeof(b)), (long long)out_counts[i]);
            }
        }
    }
    bool direct = yk__native_all_direct(g, op->number, -1, false);
    int64_t piece = direct ? longest : (int64_t)(NATIVE_HALF / (size_t)n / size);
    if (direct)
        status = yk__native_enter(g);
    for (int64_t at = 0; at < longest && !status; at += piece) {
        if (!direct) {
            half = yk__native_next_half(g);
            const char *in = op->in;
            for (int r = 0; r < n; in += (size_t)op->in_counts[r] * size, r++)
                if (op->in_counts[r] > at)
                    payload_copy(yk__native_stage(g, g->local_rank, half) + (size_t)r * (size_t)piece * size,
                                 in + (size_t)at * size, (size_t)least(piece, op->in_counts[r] - at) * size);
            status = yk__native_sync(g);
        }
        char *out = op->out;
        for (int r = 0; r < n && !status; out += (size_t)op->out_counts[r] * size, r++) {
            if (op->out_counts[r] <= at)
                continue;
            const char *in = direct ? yk__native_peer_memory(g, op->number, r, false) : yk__native_stage(g, r, half);
            if (!in)
                return yk__error_code();
            in += direct ? (size_t)offset[r] * size : (size_t)g->local_rank * (size_t)piece * size;
            payload_copy(out + (size_t)at * size, in, (size_t)least(piece, op->out_counts[r] - at) * size);
        }
    }
    if (!direct || status)
        return status;
    yk__native_exit(g);
    return yk__native_sync(g);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */
static yk_status header_agree(native *g, const yk__comm_op *op)
{
    return yk__native_begin(g, op, NULL, NULL);
}

static yk_status collective(native *g, const yk__comm_op *op)
{
    switch (op->kind) {
    case YK__COMM_ALL_REDUCE: return reduce_all(g, op, -1);
    case YK__COMM_REDUCE: return reduce_all(g, op, op->peer);
    case YK__COMM_BROADCAST: return gather_or_broadcast(g, op, op->peer, -1);
    case YK__COMM_ALL_GATHER: return gather_or_broadcast(g, op, -1, -1);
    case YK__COMM_GATHER: return gather_or_broadcast(g, op, -1, op->peer);
    case YK__COMM_SCATTER: return scatter_or_reduce(g, op, op->peer);
    case YK__COMM_REDUCE_SCATTER: return scatter_or_reduce(g, op, -1);
    case YK__COMM_ALL_TO_ALL: return all_to_all(g, op);
    default: return header_agree(g, op); /* barrier */
    }
}

static void no_progress(native *g)
{
    (void)g;
}

static yk_status no_hosts(native *g, double waited)
{
    (void)g;
    (void)waited;
    return YK_OK;
}

static void no_receivers(native *g, yk_status code, const char *cause)
{
    (void)g;
    (void)code;
    (void)cause;
}

const yk__native_transport yk__native_one_host = {
    .collective = collective,
    .agree = header_agree,
    .progress = no_progress,
    .check_hosts = no_hosts,
    .send_broken = no_receivers,
    .drop_messages = no_progress,
};
