/*
 * pairwise.c - reductions between hosts: the owner of a share gets everybody's inputs for it, combines them by the
 * tree, and sends the result. Layer: comm/native.
 *
 * Note [Pairwise exchange]
 * The payload is cut into segments, and a segment into a chunk for each host, its owner (in a reduce_scatter: the parts
 * of its ranks). In the scatter stage of a segment each host sends to every other host the inputs (subtrees.c) that it
 * has for that one's chunk; in the result stage each owner sends its combined chunk to those that want it. Step s of a
 * stage sends to the host s after this one and receives from the host s before it, so that in each step every host is
 * the receiver of one other. All hosts go through the same order of transfers,
 *
 *     scatter 0, scatter 1, result 0, scatter 2, result 1, ...        each: steps 1, 2, ..., hosts - 1
 *
 * and a host works on the first WINDOW unfinished ones, in each direction: so a receiver has to do with about WINDOW
 * senders at a time, whatever the number of hosts, and no switch has to hold what all of them have (incast).
 *
 * It cannot come to a standstill: of all transfers that are not finished, the first in that order is in the window on
 * both sides, and what it waits for (a result: its inputs; a segment: that the memory of one TURNS before is free) are
 * earlier ones. On a connection the order of bytes is that of the stages.
 *
 * Results may replace inputs in the same memory: what comes back for a chunk has been computed from all that was sent
 * of it, up to the same element.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/native/multihost.h"

/* TURNS: segments under way at a time. GRAIN: bytes that are worth combining before the rest of a chunk is there.
 * CHUNK: bytes of a chunk's results at most. What waits to be combined should stay in a second-level cache, CACHE bytes
 * of it (four ranks on two cores, 46.8 MB: 13% faster than the ring was, and slower than it without this bound), but
 * chunks of less than LEAST cost more in calls, and a payload of up to WHOLE is better cut into few chunks. STAGING:
 * the most that is ever taken. */
enum { TURNS = 2, WINDOW = 4, GRAIN = 64 << 10 };
enum { CHUNK = 256 << 10, LEAST = 32 << 10, CACHE = 384 << 10, WHOLE = 1 << 20, STAGING = 4 << 20 };

typedef struct segment {
    int number;       /* -1: none */
    int unsent;       /* transfers out that are not done */
    int64_t combined; /* elements of the own chunk's rows that are done */
    char *memory;     /* of inputs: those of other hosts for the own chunk, and this host's sums for all chunks */
    char *result;     /* memory for the own result if it has no place in the caller's */
    size_t *received; /* bytes of inputs, by host */
} segment;

typedef struct transfer {
    int segment, from, to; /* from, to: hosts, one of which is this one */
    bool result;
    size_t done, bytes;
} transfer;

typedef struct queue {
    bool outgoing;           /* all of its transfers are from this host; else all are to it */
    transfer window[WINDOW]; /* unfinished; the first is the oldest */
    int count, stage, step;  /* of the next one */
} queue;

typedef struct exchange {
    native *g;
    const yk__native_pairwise *x;
    size_t size, wide;  /* bytes of an element, and in the wide dtype */
    int64_t step;       /* elements of a chunk's row at most */
    int segments, rows; /* rows: of all chunks together */
    int opened;         /* segments that have been begun */
    size_t *sizes;      /* by host: bytes of an element of all its inputs, and of the last of them */
    size_t *last_sizes;
    size_t *offsets; /* by subtree: where its input is in `memory`, in bytes for each element of a row */
    segment turns[TURNS];
    queue out, in;
} exchange;

/* ---- chunks and rows --------------------------------------------------------------------------------------------- */
/* Rows of the chunk of a host, and the number of the first. */
static int rows_of(const exchange *e, int host)
{
    return e->x->parts ? yk__native_host_size(e->g, host) : 1;
}

static int first_row(const exchange *e, int host)
{
    return e->x->parts ? e->g->first[host] : host;
}

/* The offset of row number `row` of the chunks in the memory of inputs, or of results. */
static size_t row_offset(const exchange *e, int row, size_t pitch)
{
    return e->x->parts ? (size_t)e->g->order[row] * pitch : 0;
}

/* The elements of each row of a host's chunk. */
static int64_t chunk_of(const exchange *e, int number, int host, int64_t *from)
{
    int64_t to, at = (int64_t)number * e->step * (e->x->parts ? 1 : e->g->hosts), left = e->x->count - at;
    if (e->x->parts) {
        *from = at;
        return left < e->step ? left : e->step;
    }
    int64_t length = e->step * e->g->hosts;
    yk__native_share(left < length ? left : length, e->size, e->g->hosts, host, from, &to);
    to -= *from;
    *from += at;
    return to;
}

static bool is_outgoing(const exchange *e, const transfer *t)
{
    return t->from == e->g->host;
}

static int other_host(const exchange *e, const transfer *t)
{
    return is_outgoing(e, t) ? t->to : t->from;
}

/* The owner of the chunk that a transfer carries: it sends results, and is sent inputs. */
static int chunk_owner(const transfer *t)
{
    return t->result ? t->from : t->to;
}

static size_t transfer_bytes(const exchange *e, const transfer *t)
{
    int64_t from;
    size_t width = (size_t)chunk_of(e, t->segment, chunk_owner(t), &from);
    return width * (t->result ? e->size : (size_t)rows_of(e, t->to) * e->sizes[t->from]);
}

/* True if owners send their results to a host. */
static bool wants_result(const exchange *e, int host)
{
    return !e->x->parts && (e->x->root_host < 0 || e->x->root_host == host);
}

/* The transfers of a queue in their order; false after the last. */
static bool next_transfer(const exchange *e, queue *q, transfer *t)
{
    const native *g = e->g;
    int stages = e->segments * (e->x->parts ? 1 : 2);
    for (; q->stage < stages; q->stage++, q->step = 0) {
        int s = q->stage;
        bool result = !e->x->parts && s > 0 && (s % 2 == 0 || s == stages - 1);
        int number = e->x->parts ? s : !result ? (s + 1) / 2 : s == stages - 1 ? e->segments - 1 : s / 2 - 1;
        while (++q->step < g->hosts) {
            int after = (g->host + q->step) % g->hosts, before = (g->host + g->hosts - q->step) % g->hosts;
            *t = (transfer){.segment = number, .from = g->host, .to = after, .result = result};
            if (!q->outgoing)
                t->from = before, t->to = g->host;
            t->bytes = transfer_bytes(e, t);
            if (t->bytes && (!result || wants_result(e, t->to)))
                return true;
        }
    }
    return false;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
/* Bytes that a segment takes on a host for each element of a row: what comes in, and what it adds up beforehand. */
static size_t inputs_room(const exchange *e, int host)
{
    size_t size = 0;
    for (int h = 0; h < e->g->hosts; h++)
        size += h == host ? 0 : e->sizes[h];
    return size * (size_t)rows_of(e, host);
}

static size_t sums_room(const exchange *e, int host)
{
    const struct yk__native_net *net = e->g->net;
    size_t count = 0;
    for (int i = 0; i < net->subtree_count; i++)
        count += net->subtree_hosts[i] == host && net->subtrees[i].level > 0;
    return count * (size_t)e->rows * e->wide;
}

/* All hosts must cut the payload in the same way, so each looks for the one that needs the most memory. */
static void choose_step(exchange *e)
{
    size_t most = 0, result = e->x->op->kind == YK__COMM_REDUCE ? e->size : 0;
    int parts = e->x->parts ? 1 : e->g->hosts;
    for (int h = 0; h < e->g->hosts; h++) {
        size_t room = inputs_room(e, h) + sums_room(e, h) + result;
        most = room > most ? room : most;
    }
    size_t whole = (size_t)e->x->count * e->size * (size_t)(e->x->parts ? e->g->world_size : 1);
    size_t chunk = CACHE / TURNS / most * e->size, limit = STAGING / TURNS / most * e->size;
    chunk = whole <= WHOLE || chunk > CHUNK ? CHUNK : chunk < LEAST ? LEAST : chunk;
    chunk = (chunk < limit ? chunk : limit) & ~(size_t)63;
    e->step = (int64_t)((chunk ? chunk : 64) / e->size);
    e->segments = (int)((e->x->count + e->step * parts - 1) / (e->step * parts));
}

static yk_status exchange_init(exchange *e, native *g, const yk__native_pairwise *x)
{
    struct yk__native_net *net = g->net;
    size_t hosts = (size_t)g->hosts, subtrees = (size_t)net->subtree_count, at = 0;
    *e = (exchange){.g = g,
                    .x = x,
                    .size = yk_dtype_size(x->op->dtype),
                    .wide = yk_dtype_size(yk__native_wide(x->op->dtype)),
                    .rows = x->parts ? g->world_size : g->hosts,
                    .out.outgoing = true};
    size_t *numbers = yk__calloc((2 + TURNS) * hosts + subtrees, sizeof(size_t));
    if (!numbers)
        return yk__error_code();
    e->sizes = numbers;
    e->last_sizes = numbers + hosts;
    e->offsets = numbers + (2 + TURNS) * hosts;
    for (int i = 0; i < net->subtree_count; i++) {
        int host = net->subtree_hosts[i];
        size_t size = yk__native_subtree_size(g, i, x->op->dtype);
        e->sizes[host] += size;
        e->last_sizes[host] = size;
        e->offsets[i] = at;
        if (host != g->host)
            at += size * (size_t)rows_of(e, g->host);
        else if (net->subtrees[i].level)
            at += size * (size_t)e->rows;
    }
    choose_step(e);
    size_t step = (size_t)e->step, turn = step * (at + (x->outputs ? 0 : e->size));
    turn = (turn + 63) & ~(size_t)63;
    if (!yk__native_keep(&net->work, &net->work_bytes, turn * TURNS))
        return yk__error_code();
    for (int i = 0; i < TURNS; i++) {
        char *memory = net->work + (size_t)i * turn;
        e->turns[i] = (segment){.number = -1,
                                .memory = memory,
                                .result = memory + step * at,
                                .received = numbers + (size_t)(2 + i) * hosts};
    }
    return YK_OK;
}

/* Input i of a row of a chunk, from element `from` of the payload on, which is the chunk's first: this host's own for
 * any chunk, those of others for the own chunk. */
static char *input_of(const exchange *e, const segment *s, int i, int row, int64_t from)
{
    const native *g = e->g;
    const yk__subtree *node = &g->net->subtrees[i];
    bool own = g->net->subtree_hosts[i] == g->host;
    if (own && !node->level) {
        const char *in = e->x->in[g->members[node->first].local_rank];
        return (char *)(uintptr_t)in + row_offset(e, row, e->x->in_pitch) + (size_t)from * e->size;
    }
    size_t size = yk__native_subtree_size(g, i, e->x->op->dtype);
    return s->memory + (e->offsets[i] + (size_t)(own ? row : row - first_row(e, g->host)) * size) * (size_t)e->step;
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */
static bool is_combined(const exchange *e, const segment *s)
{
    int64_t from;
    return s->combined == chunk_of(e, s->number, e->g->host, &from);
}

/* Adds up this host's subtrees of several ranks, for all chunks. */
static yk_status add_up(exchange *e, const segment *s)
{
    const native *g = e->g;
    const struct yk__native_net *net = g->net;
    const char *in[NATIVE_MAX_RANKS];
    yk_status status = YK_OK;
    for (int h = 0; h < g->hosts; h++) {
        int64_t from, width = chunk_of(e, s->number, h, &from);
        for (int row = first_row(e, h); row < first_row(e, h) + rows_of(e, h); row++) {
            for (int r = 0; r < g->local_size; r++)
                in[r] = e->x->in[r] + row_offset(e, row, e->x->in_pitch) + (size_t)from * e->size;
            for (int i = 0; i < net->subtree_count && !status; i++)
                if (net->subtree_hosts[i] == g->host && net->subtrees[i].level)
                    status = yk__native_subtree_combine(g, i, e->x->op, in, input_of(e, s, i, row, from), width);
        }
    }
    return status;
}

/* The number of transfers that a segment has to send. */
static int count_unsent(const exchange *e, int number)
{
    int count = 0;
    for (int h = 0; h < e->g->hosts; h++) {
        transfer inputs = {.segment = number, .from = e->g->host, .to = h}, result = inputs;
        result.result = true;
        if (h == e->g->host)
            continue;
        count += transfer_bytes(e, &inputs) > 0;
        count += wants_result(e, h) && transfer_bytes(e, &result) > 0;
    }
    return count;
}

/* Begins the segments whose memory is free. */
static yk_status open_segments(exchange *e, bool *moved)
{
    while (e->opened < e->segments) {
        segment *s = &e->turns[e->opened % TURNS];
        if (s->number >= 0 && (s->unsent || !is_combined(e, s)))
            break;
        s->number = e->opened++;
        s->combined = 0;
        s->unsent = count_unsent(e, s->number);
        memset(s->received, 0, (size_t)e->g->hosts * sizeof(size_t));
        yk_status status = add_up(e, s);
        if (status)
            return status;
        *moved = true;
    }
    return YK_OK;
}

/* Elements of the own chunk's rows for which all inputs are there. */
static int64_t complete(const exchange *e, const segment *s, int64_t width)
{
    const native *g = e->g;
    size_t rows = (size_t)rows_of(e, g->host);
    int64_t least = width;
    for (int h = 0; h < g->hosts && least; h++) {
        size_t all = e->sizes[h] * (size_t)width * rows, last = e->last_sizes[h] * (size_t)width;
        if (h == g->host || s->received[h] == all)
            continue;
        if (rows > 1 || s->received[h] <= all - last)
            return 0;
        int64_t there = (int64_t)((s->received[h] - (all - last)) / e->last_sizes[h]); /* the last subtree comes last */
        least = there < least ? there : least;
    }
    return least;
}

/* Combines elements [from, to) of the own chunk's rows, which begin at element `at` of the payload. */
static yk_status combine_own(const exchange *e, const segment *s, int64_t at, int64_t from, int64_t to)
{
    const native *g = e->g;
    const struct yk__native_net *net = g->net;
    const yk__reduction r = {.reduction = e->x->op->reduction,
                             .dtype = e->x->op->dtype,
                             .ranks = g->world_size,
                             .inputs = net->subtree_count,
                             .subtrees = net->subtrees};
    yk_status status = YK_OK;
    for (int k = 0; k < rows_of(e, g->host) && !status; k++) {
        int row = first_row(e, g->host) + k;
        const char *in[NATIVE_MAX_RANKS];
        char *out[NATIVE_MAX_RANKS] = {s->result + (size_t)from * e->size};
        for (int i = 0; i < net->subtree_count; i++)
            in[i] = input_of(e, s, i, row, at) + (size_t)from * yk__native_subtree_size(g, i, r.dtype);
        for (int o = 0; o < e->x->outputs; o++)
            out[o] = e->x->out[o] + row_offset(e, row, e->x->out_pitch) + (size_t)(at + from) * e->size;
        status = yk__native_combine(&r, e->x->outputs ? e->x->outputs : 1, out, in, to - from);
    }
    return status;
}

/* Combines what can be combined. */
static yk_status combine_segments(exchange *e, bool *moved)
{
    for (int k = e->opened > TURNS ? e->opened - TURNS : 0; k < e->opened; k++) {
        segment *s = &e->turns[k % TURNS];
        int64_t at, width = chunk_of(e, k, e->g->host, &at), there = complete(e, s, width);
        if (there == s->combined || (there < width && (size_t)(there - s->combined) * e->size < GRAIN))
            continue;
        yk_status status = combine_own(e, s, at, s->combined, there);
        if (status)
            return status;
        s->combined = there;
        *moved = true;
    }
    return YK_OK;
}

/* ---- transfers --------------------------------------------------------------------------------------------------- */
/* The address at which a transfer of inputs goes on; *run: for how many bytes. */
static char *inputs_at(const exchange *e, const segment *s, const transfer *t, size_t *run)
{
    const native *g = e->g;
    int64_t from, width = chunk_of(e, t->segment, t->to, &from);
    size_t at = t->done, rows = (size_t)rows_of(e, t->to);
    for (int i = 0; i < g->net->subtree_count; i++) {
        if (g->net->subtree_hosts[i] != t->from)
            continue;
        size_t row = (size_t)width * yk__native_subtree_size(g, i, e->x->op->dtype);
        if (at < row * rows) {
            *run = row - at % row;
            return input_of(e, s, i, first_row(e, t->to) + (int)(at / row), from) + at % row;
        }
        at -= row * rows;
    }
    return NULL;
}

/* The address at which a transfer goes on, and in *run the bytes that it may move there now. */
static char *go_on(const exchange *e, const transfer *t, size_t *run)
{
    const segment *s = &e->turns[t->segment % TURNS];
    int64_t from;
    *run = 0;
    chunk_of(e, t->segment, t->from, &from);
    if (t->result && !is_outgoing(e, t)) {
        *run = t->bytes - t->done;
        return e->x->out[0] + (size_t)from * e->size + t->done;
    }
    if (s->number != t->segment)
        return NULL;
    if (!t->result)
        return inputs_at(e, s, t, run);
    *run = (size_t)s->combined * e->size - t->done;
    return (e->x->outputs ? e->x->out[0] + (size_t)from * e->size : s->result) + t->done;
}

/* A transfer is done. */
static void exchange_finish(exchange *e, const transfer *t)
{
    if (is_outgoing(e, t)) {
        e->turns[t->segment % TURNS].unsent--;
    } else if (t->result) { /* also for the other ranks of the host, while it is in the cache */
        int64_t at;
        chunk_of(e, t->segment, t->from, &at);
        for (int o = 1; o < e->x->outputs; o++)
            yk__native_copy(e->x->out[o] + (size_t)at * e->size, e->x->out[0] + (size_t)at * e->size, t->bytes);
    }
}

/* True if an older transfer of the window uses the connection. */
static bool is_behind(const queue *q, int i)
{
    for (int k = 0; k < i; k++)
        if (q->window[k].from == q->window[i].from && q->window[k].to == q->window[i].to)
            return true;
    return false;
}

static void fill_window(const exchange *e, queue *q)
{
    while (q->count < WINDOW && next_transfer(e, q, &q->window[q->count]))
        q->count++;
}

static void move_queue(exchange *e, queue *q, bool *moved)
{
    for (int i = 0; i < q->count;) {
        transfer *t = &q->window[i];
        int rank = yk__native_rank_at(e->g, other_host(e, t), e->x->lane);
        size_t run = 0, n = 0;
        char *at = is_behind(q, i) ? NULL : go_on(e, t, &run);
        if (at && run)
            n = q->outgoing ? yk__native_data_send(e->g, rank, at, run) : yk__native_data_receive(e->g, rank, at, run);
        t->done += n;
        *moved |= n > 0;
        if (n && !q->outgoing && !t->result)
            e->turns[t->segment % TURNS].received[t->from] = t->done;
        if (t->done < t->bytes) {
            i++;
            continue;
        }
        exchange_finish(e, t);
        memmove(t, t + 1, (size_t)(--q->count - i) * sizeof(*t));
    }
    fill_window(e, q);
}

/* The connections of the window that may move something. */
static int poll_entries(const exchange *e, const queue *q, struct pollfd *wait)
{
    int count = 0;
    for (int i = 0; i < q->count; i++) {
        const transfer *t = &q->window[i];
        size_t run = 0;
        if (!is_behind(q, i) && go_on(e, t, &run) && run)
            wait[count++] = yk__native_poll_entry(e->g, yk__native_rank_at(e->g, other_host(e, t), e->x->lane),
                                                  q->outgoing ? POLLOUT : POLLIN);
    }
    return count;
}

static yk_status exchange_run(exchange *e)
{
    yk__native_spin_state spinner = {0};
    struct pollfd wait[2 * WINDOW + 1];
    fill_window(e, &e->out);
    fill_window(e, &e->in);
    for (;;) {
        bool moved = false;
        yk_status status = open_segments(e, &moved);
        move_queue(e, &e->out, &moved);
        move_queue(e, &e->in, &moved);
        if (!status)
            status = combine_segments(e, &moved);
        if (status)
            return status;
        const segment *last = &e->turns[(e->segments - 1) % TURNS];
        if (e->out.count + e->in.count == 0 && last->number == e->segments - 1 && is_combined(e, last))
            return YK_OK;
        if (yk__native_spin(&spinner, moved))
            continue;
        int count = poll_entries(e, &e->in, wait);
        count += poll_entries(e, &e->out, wait + count);
        const transfer *oldest = e->in.count ? &e->in.window[0] : &e->out.window[0];
        int rank = yk__native_rank_at(e->g, other_host(e, oldest), e->x->lane);
        status = yk__native_poll(e->g, &spinner, wait, count, rank);
        if (status)
            return status;
    }
}

yk_status yk__native_pairwise_reduce(native *g, const yk__native_pairwise *x)
{
    exchange e;
    yk_status status = exchange_init(&e, g, x);
    if (!status && x->count)
        status = exchange_run(&e);
    free(e.sizes);
    return status;
}
