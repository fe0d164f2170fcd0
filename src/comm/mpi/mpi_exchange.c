/*
 * mpi_exchange.c - the collectives, out of those of MPI. Layer: comm/mpi.
 *
 * Each begins with an exchange of blocks (MPI_Iallgather) that all ranks compare; a payload of up to sizeof(payload)
 * bytes comes along in it, and the operation is done. Else the bytes go by the collective of MPI of the same name, but
 * for the reductions: MPI does not promise the same bits on all ranks, and has no types for half of ours. Theirs is an
 * MPI_Ialltoall of shares, which each rank combines by the tree of native/combine.c, and an MPI_Iallgather or
 * MPI_Igather of the results: 2 (n - 1) / n of the payload out and in per rank, which is the least there can be.
 */
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi/mpi_backend.h"

enum { PAYLOAD = sizeof(((mpi_block *)0)->payload) };
/* Bytes of a rank's contribution that are exchanged at a time: bounds the scratch memory, and keeps counts inside an
 * int. */
static const size_t PIECE = (size_t)64 << 20;
/* Up to so many bytes in all ranks together, each combines everything: one operation of MPI in place of two. */
static const size_t FLAT = (size_t)32 << 10;

MPI_Datatype mpi_type_of(size_t bytes)
{
    return bytes == 1 ? MPI_BYTE : bytes == 2 ? MPI_UINT16_T : bytes == 4 ? MPI_UINT32_T : MPI_UINT64_T;
}

static inline void mpi_copy(void *to, const void *from, size_t bytes)
{
    if (bytes && to != from)
        memcpy(to, from, bytes);
}

/* Room for what comes from others, kept for the next operation. */
static char *scratch(mpi_group *g, size_t bytes)
{
    if (bytes <= g->scratch_bytes)
        return g->scratch;
    free(g->scratch);
    g->scratch_bytes = 0;
    g->scratch = mpi_base->allocate(bytes, 1);
    if (g->scratch)
        g->scratch_bytes = bytes;
    return g->scratch;
}

/* Begins `call`, a non-blocking call of MPI that sets `request`, and waits until it is done on the caller's memory. */
#define MPI_DO(g, op, call)                                                                                            \
    do {                                                                                                               \
        MPI_Request request = MPI_REQUEST_NULL;                                                                        \
        yk_status did = YK_OK;                                                                                         \
        pthread_mutex_lock(&mpi_lock);                                                                                 \
        int code = mpi_is_abandoned() ? MPI_ERR_OTHER : (call);                                                        \
        pthread_mutex_unlock(&mpi_lock);                                                                               \
        did = code ? refused(g, op, code) : mpi_finish(g, op, &request, 1, true);                                      \
        if (did)                                                                                                       \
            return did;                                                                                                \
    } while (0)

static yk_status refused(mpi_group *g, const yk__comm_op *op, int code)
{
    char what[160];
    yk_status status = mpi_check(g);
    return status ? status : mpi_failed(mpi_yoke->describe(op, what, sizeof(what)), code);
}

/* ---- the exchange of blocks -------------------------------------------------------------------------------------- */
static const char *describe_block(const mpi_block *b, char *buffer, size_t size)
{
    yk__comm_op op = yk__comm_header_op(&b->header);
    return mpi_yoke->describe(&op, buffer, size);
}

/* All compare with rank 0, so all say the same. */
static yk_status compare_blocks(mpi_group *g)
{
    const mpi_block *first = &g->blocks[0];
    for (int r = 1; r < g->world_size; r++) {
        const mpi_block *b = &g->blocks[r];
        if (yk__comm_header_equal(&b->header, &first->header))
            continue;
        char x[120], y[120], a[160], c[160];
        return mpi_break(g, YK_ERR_MISMATCH, "group '%s': %s called %s, but %s called %s", g->name,
                         mpi_rank_name(g, 0, x, sizeof(x)), describe_block(first, a, sizeof(a)),
                         mpi_rank_name(g, r, y, sizeof(y)), describe_block(b, c, sizeof(c)));
    }
    return YK_OK;
}

/* Bytes that this rank publishes in its block, and whether the operation is done with it. */
static size_t small_payload(const mpi_group *g, const yk__comm_op *op, size_t size, bool *small)
{
    size_t total = (size_t)op->count * size, ranks = (size_t)g->world_size;
    bool scattered = op->kind == YK__COMM_SCATTER || op->kind == YK__COMM_REDUCE_SCATTER;
    *small = false;
    if (op->kind == YK__COMM_ALL_TO_ALL || op->kind == YK__COMM_BARRIER)
        return 0;
    if (scattered)
        total *= ranks;
    *small = total <= PAYLOAD;
    bool sends = (op->kind != YK__COMM_BROADCAST && op->kind != YK__COMM_SCATTER) || op->peer == g->rank;
    return *small && sends ? total : 0;
}

/* The results of a small operation, out of the blocks. */
static yk_status finish_small(mpi_group *g, const yk__comm_op *op, size_t size)
{
    size_t part = (size_t)op->count * size;
    bool wanted = !yk__comm_has_root(op->kind) || op->kind == YK__COMM_BROADCAST || op->kind == YK__COMM_SCATTER ||
                  op->peer == g->rank;
    if (op->count == 0 || !wanted)
        return YK_OK;
    char *out = op->out;
    size_t mine = op->kind == YK__COMM_SCATTER || op->kind == YK__COMM_REDUCE_SCATTER ? part * (size_t)g->rank : 0;
    if (yk__comm_reduces(op->kind)) {
        const char **in = mpi_base->allocate((size_t)g->world_size, sizeof(*in));
        if (!in)
            return mpi_base->error_code();
        for (int r = 0; r < g->world_size; r++)
            in[r] = g->blocks[r].payload + mine;
        yk_status status = mpi_yoke->combine(op->reduction, op->dtype, 1, &out, g->world_size, in, op->count, false);
        free(in);
        return status;
    }
    if (op->kind == YK__COMM_BROADCAST && op->peer == g->rank)
        return YK_OK;
    if (op->kind == YK__COMM_BROADCAST || op->kind == YK__COMM_SCATTER) {
        mpi_copy(out, g->blocks[op->peer].payload + mine, part);
        return YK_OK;
    }
    for (int r = 0; r < g->world_size; r++)
        mpi_copy(out + (size_t)r * part, g->blocks[r].payload, part);
    return YK_OK;
}

static yk_status exchange_blocks(mpi_group *g, const yk__comm_op *op, size_t size, bool *small)
{
    mpi_block *b = g->own;
    b->header = yk__comm_header_of(op);
    mpi_copy(b->payload, op->in, small_payload(g, op, size, small));
    atomic_store(&g->begun, op->number);
    MPI_Request request = MPI_REQUEST_NULL;
    pthread_mutex_lock(&mpi_lock);
    mpi_progress(); /* the group may have been broken while this rank was elsewhere */
    int code = mpi_is_abandoned() || atomic_load(&g->broken)
                   ? MPI_ERR_OTHER
                   : MPI_Iallgather(b, BLOCK_BYTES, MPI_BYTE, g->blocks, BLOCK_BYTES, MPI_BYTE, g->comm, &request);
    pthread_mutex_unlock(&mpi_lock);
    yk_status status = code ? refused(g, op, code) : mpi_finish(g, op, &request, 1, false);
    return status ? status : compare_blocks(g);
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */
/* The first element of rank r's share. */
static int64_t rank_share(int64_t count, int world_size, int r)
{
    return count / world_size * r + (r < count % world_size ? r : count % world_size);
}

static yk_status combine_flat(mpi_group *g, const yk__comm_op *op, size_t size)
{
    int bytes = (int)((size_t)op->count * size), n = g->world_size;
    char *room = scratch(g, (size_t)bytes * (size_t)n), *out = op->out;
    const char **in = room ? mpi_base->allocate((size_t)n, sizeof(*in)) : NULL;
    if (!in)
        return mpi_base->error_code();
    for (int r = 0; r < n; r++)
        in[r] = room + (size_t)r * (size_t)bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    pthread_mutex_lock(&mpi_lock);
    int code = mpi_is_abandoned() ? MPI_ERR_OTHER
                                  : MPI_Iallgather(op->in, bytes, MPI_BYTE, room, bytes, MPI_BYTE, g->comm, &request);
    pthread_mutex_unlock(&mpi_lock);
    yk_status status = code ? refused(g, op, code) : mpi_finish(g, op, &request, 1, true);
    if (!status && (op->kind == YK__COMM_ALL_REDUCE || op->peer == g->rank))
        status = mpi_yoke->combine(op->reduction, op->dtype, 1, &out, n, in, op->count, false);
    free(in);
    return status;
}

typedef struct shares {
    int *out_counts, *out_offsets, *in_counts, *in_offsets; /* of elements */
    const char **in;
} shares;

/* Sends rank r's share of the elements at `in` to rank r, which begins at offsets[r], and combines all ranks' terms of
 * the own share, in the order of ranks, to `out`. */
static yk_status combine_shares(mpi_group *g, const yk__comm_op *op, size_t size, const char *in, shares *s, char *out)
{
    int n = g->world_size, mine = s->out_counts[g->rank];
    MPI_Datatype type = mpi_type_of(size);
    char *room = scratch(g, (size_t)mine * size * (size_t)n + 1);
    if (!room)
        return mpi_base->error_code();
    for (int r = 0; r < n; r++) {
        bool own = r == g->rank;
        s->in_counts[r] = own ? 0 : mine;
        s->in_offsets[r] = r * mine;
        s->in[r] = own ? in + (size_t)s->out_offsets[r] * size : room + (size_t)r * (size_t)mine * size;
    }
    s->out_counts[g->rank] = 0;
    MPI_DO(g, op,
           MPI_Ialltoallv(in, s->out_counts, s->out_offsets, type, room, s->in_counts, s->in_offsets, type, g->comm,
                          &request));
    s->out_counts[g->rank] = mine;
    return mpi_yoke->combine(op->reduction, op->dtype, 1, &out, n, s->in, mine, false);
}

/* all_reduce and reduce, a piece at a time. */
static yk_status reduce_piece(mpi_group *g, const yk__comm_op *op, size_t size, int64_t at, int64_t count, shares *s)
{
    int n = g->world_size;
    bool all = op->kind == YK__COMM_ALL_REDUCE, root = !all && op->peer == g->rank;
    MPI_Datatype type = mpi_type_of(size);
    for (int r = 0; r < n; r++) {
        s->out_offsets[r] = (int)rank_share(count, n, r);
        s->out_counts[r] = (int)(rank_share(count, n, r + 1) - rank_share(count, n, r));
    }
    const char *in = (const char *)op->in + (size_t)at * size;
    char *out = op->out ? (char *)op->out + (size_t)at * size : NULL, *result = NULL, *kept = NULL;
    if (out)
        result = out + (size_t)s->out_offsets[g->rank] * size;
    else
        result = kept = malloc((size_t)s->out_counts[g->rank] * size + 1);
    if (!result)
        return mpi_fail(YK_ERR_MEMORY, "out of memory: %zu bytes were asked for",
                        (size_t)s->out_counts[g->rank] * size);
    yk_status status = combine_shares(g, op, size, in, s, result);
    if (status) {
        free(kept);
        return status;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    pthread_mutex_lock(&mpi_lock);
    int code;
    if (mpi_is_abandoned())
        code = MPI_ERR_OTHER;
    else if (all)
        code = MPI_Iallgatherv(MPI_IN_PLACE, 0, type, out, s->out_counts, s->out_offsets, type, g->comm, &request);
    else
        code = MPI_Igatherv(root ? MPI_IN_PLACE : result, s->out_counts[g->rank], type, out, s->out_counts,
                            s->out_offsets, type, op->peer, g->comm, &request);
    pthread_mutex_unlock(&mpi_lock);
    status = code ? refused(g, op, code) : mpi_finish(g, op, &request, 1, true);
    if (!status) /* else MPI may read it still */
        free(kept);
    return status;
}

/* reduce_scatter: the shares are the parts, a piece of each at a time. */
static yk_status reduce_parts(mpi_group *g, const yk__comm_op *op, size_t size, int64_t at, int64_t count, shares *s)
{
    int n = g->world_size;
    const char *in = (const char *)op->in + (size_t)at * size;
    if ((op->count * (n - 1) + count) > INT_MAX)
        return mpi_fail(YK_ERR_UNSUPPORTED, "reduce_scatter: the mpi backend takes up to %d elements", INT_MAX);
    for (int r = 0; r < n; r++) {
        s->out_offsets[r] = (int)(op->count * r);
        s->out_counts[r] = (int)count;
    }
    return combine_shares(g, op, size, in, s, (char *)op->out + (size_t)at * size);
}

static yk_status reduce(mpi_group *g, const yk__comm_op *op, size_t size)
{
    bool parts = op->kind == YK__COMM_REDUCE_SCATTER;
    size_t n = (size_t)g->world_size;
    if (!parts && (size_t)op->count * size * n <= FLAT)
        return combine_flat(g, op, size);
    int *numbers = mpi_base->allocate(4 * n, sizeof(int));
    const char **in = mpi_base->allocate(n, sizeof(*in));
    yk_status status = numbers && in ? YK_OK : mpi_base->error_code();
    shares s = {numbers, numbers + n, numbers + 2 * n, numbers + 3 * n, in};
    int64_t piece = (int64_t)(PIECE / size / (parts ? n : 1)) + 1;
    for (int64_t at = 0; at < op->count && !status; at += piece) {
        int64_t count = op->count - at < piece ? op->count - at : piece;
        status = parts ? reduce_parts(g, op, size, at, count, &s) : reduce_piece(g, op, size, at, count, &s);
    }
    free(numbers);
    free(in);
    return status;
}

/* ---- the others -------------------------------------------------------------------------------------------------- */
/* A piece of `bytes` out of parts that are `stride` bytes apart, so that MPI's counts and offsets stay small. */
static MPI_Datatype part_type(size_t bytes, size_t stride)
{
    MPI_Datatype piece, part;
    MPI_Type_contiguous((int)bytes, MPI_BYTE, &piece);
    MPI_Type_create_resized(piece, 0, (MPI_Aint)stride, &part);
    MPI_Type_commit(&part);
    MPI_Type_free(&piece);
    return part;
}

static int begin_piece(const mpi_group *g, const yk__comm_op *op, size_t at, int bytes, MPI_Datatype part,
                       MPI_Request *request)
{
    const char *in = op->in ? (const char *)op->in + at : NULL;
    char *out = op->out ? (char *)op->out + at : NULL;
    size_t mine = (size_t)g->rank * (size_t)op->count * mpi_yoke->dtype_size(op->dtype);
    bool root = op->peer == g->rank;
    switch (op->kind) {
    case YK__COMM_BROADCAST:
        return MPI_Ibcast(root ? (char *)(uintptr_t)in : out, bytes, MPI_BYTE, op->peer, g->comm, request);
    case YK__COMM_ALL_GATHER:
        return MPI_Iallgather(in == out + mine ? MPI_IN_PLACE : in, bytes, MPI_BYTE, out, 1, part, g->comm, request);
    case YK__COMM_GATHER:
        return MPI_Igather(root && in == out + mine ? MPI_IN_PLACE : in, bytes, MPI_BYTE, out, 1, part, op->peer,
                           g->comm, request);
    default: /* scatter */
        return MPI_Iscatter(in, 1, part, root && out == in + mine ? MPI_IN_PLACE : out, bytes, MPI_BYTE, op->peer,
                            g->comm, request);
    }
}

static yk_status move(mpi_group *g, const yk__comm_op *op, size_t size)
{
    size_t part = (size_t)op->count * size;
    for (size_t at = 0; at < part; at += PIECE) {
        size_t bytes = part - at < PIECE ? part - at : PIECE;
        pthread_mutex_lock(&mpi_lock);
        MPI_Datatype type = part_type(bytes, part);
        pthread_mutex_unlock(&mpi_lock);
        MPI_DO(g, op, begin_piece(g, op, at, (int)bytes, type, &request));
        pthread_mutex_lock(&mpi_lock);
        MPI_Type_free(&type);
        pthread_mutex_unlock(&mpi_lock);
    }
    return YK_OK;
}

/* The numbers of elements that each rank sends to this one must be those that it expects. */
static yk_status compare_counts(mpi_group *g, const yk__comm_op *op, const int64_t *sent)
{
    char a[120], b[120], what[120];
    for (int r = 0; r < g->world_size; r++)
        if (sent[r] != op->out_counts[r])
            return mpi_break(g, YK_ERR_MISMATCH, "%s: %s sends %lld elements to %s, which expects %lld",
                             mpi_yoke->describe(op, what, sizeof(what)), mpi_rank_name(g, r, a, sizeof(a)),
                             (long long)sent[r], mpi_rank_name(g, g->rank, b, sizeof(b)), (long long)op->out_counts[r]);
    return YK_OK;
}

static yk_status all_to_all(mpi_group *g, const yk__comm_op *op, size_t size)
{
    size_t n = (size_t)g->world_size;
    int *numbers = mpi_base->allocate(4 * n, sizeof(int));
    int64_t *sent = (int64_t *)(void *)scratch(g, n * sizeof(int64_t));
    if (!numbers || !sent) {
        free(numbers);
        return mpi_base->error_code();
    }
    int *in_counts = numbers, *in_offsets = numbers + n, *out_counts = numbers + 2 * n, *out_offsets = numbers + 3 * n;
    int64_t in_total = 0, out_total = 0;
    for (size_t r = 0; r < n; r++) {
        in_offsets[r] = (int)in_total;
        out_offsets[r] = (int)out_total;
        in_total += op->in_counts[r];
        out_total += op->out_counts[r];
        in_counts[r] = (int)op->in_counts[r];
        out_counts[r] = (int)op->out_counts[r];
    }
    MPI_Datatype type = mpi_type_of(size);
    MPI_Request request = MPI_REQUEST_NULL;
    yk_status status = YK_OK;
    if (in_total > INT_MAX || out_total > INT_MAX) /* known to this rank alone: it must be sent to the others */
        status = mpi_break(g, YK_ERR_UNSUPPORTED, "all_to_all: the mpi backend takes up to %d elements", INT_MAX);
    pthread_mutex_lock(&mpi_lock);
    int code = status || mpi_is_abandoned()
                   ? MPI_ERR_OTHER
                   : MPI_Ialltoall(op->in_counts, 1, MPI_INT64_T, sent, 1, MPI_INT64_T, g->comm, &request);
    pthread_mutex_unlock(&mpi_lock);
    if (!status)
        status = code ? refused(g, op, code) : mpi_finish(g, op, &request, 1, true);
    if (!status)
        status = compare_counts(g, op, sent);
    if (!status) {
        pthread_mutex_lock(&mpi_lock);
        code = mpi_is_abandoned() ? MPI_ERR_OTHER
                                  : MPI_Ialltoallv(op->in, in_counts, in_offsets, type, op->out, out_counts,
                                                   out_offsets, type, g->comm, &request);
        pthread_mutex_unlock(&mpi_lock);
        status = code ? refused(g, op, code) : mpi_finish(g, op, &request, 1, true);
    }
    free(numbers);
    return status;
}

yk_status mpi_collective(void *state, const yk__comm_op *op)
{
    mpi_group *g = state;
    size_t size = mpi_yoke->dtype_size(op->dtype);
    bool small = false;
    yk_status status = mpi_check(g);
    if (!status)
        status = exchange_blocks(g, op, size, &small);
    if (!status && small)
        status = finish_small(g, op, size);
    else if (!status && op->kind == YK__COMM_ALL_TO_ALL)
        status = all_to_all(g, op, size);
    else if (!status && yk__comm_reduces(op->kind))
        status = reduce(g, op, size);
    else if (!status && op->kind != YK__COMM_BARRIER)
        status = move(g, op, size);
    if (!status) {
        atomic_store(&g->done, op->number);
        return YK_OK;
    }
    if (!mpi_check(g)) { /* out of memory, say: the others must not wait for this rank */
        yk_error error;
        mpi_base->error_take(&error);
        mpi_abort_group(g, status, error.message);
    }
    return mpi_check(g);
}
