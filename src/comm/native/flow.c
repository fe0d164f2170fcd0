/*
 * flow.c - bytes on the data connections: both directions at once, handed on while they come. Layer: comm/native.
 *
 * One thread does it all: it sends what the system takes, receives what is there, and only when neither moves it waits,
 * first by looking again, then in poll together with the control connections. So a cause that comes from anywhere ends
 * the wait. The cause that ends a data connection comes over the control connection (multihost.h); here the data only
 * stop moving.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "comm/native/multihost.h"

/* LOOKS: without a byte moved, before waiting in poll. RECEIVE: of a receive that found much; with less, sending has
 * its turn. MOST: bytes of one flow before others have their turn. */
enum { LOOKS = 40, RECEIVE = 128 << 10, MOST = 1 << 20 };
/* Seconds: the longest wait in poll before failures of other ranks are looked for; how long a lost data connection
 * waits for a message that says why, before it is itself the cause. */
static const double nap = 0.02, silence = 1;

/* Records the outcome of a call on the data connection: parts of frames that moved count as life. */
static void data_call_record(native *g, int rank, yk__reason reason, const char *why)
{
    yk__native_link *l = &g->net->links[rank];
    int error = errno;
    if (l->stream->moved)
        g->net->moved = yk__now();
    if (reason == YK__REACHED || reason == YK__NO_ANSWER)
        return;
    l->data_gone = true;
    l->data_error = error;
    if (reason != YK__DAMAGED)
        return;
    yk_error before;
    yk__error_take(&before);
    yk_status status = yk__native_damaged(g, rank, true, why);
    (void)status; /* all who wait find the group broken */
    yk_clear_error();
    yk__error_put(&before);
}

size_t yk__native_data_send(native *g, int rank, const char *from, size_t bytes)
{
    yk__native_link *l = &g->net->links[rank];
    char why[YK__WHY_SIZE];
    size_t done = 0;
    if (g->carrier)
        return yk__native_carried_send(g, rank, from, bytes < MOST ? bytes : MOST);
    if (l->data_gone)
        return 0;
    yk__reason reason = yk__byte_stream_send(l->stream, l->data, from, bytes < MOST ? bytes : MOST, &done, why);
    if (reason)
        data_call_record(g, rank, reason, why);
    return done;
}

size_t yk__native_data_receive(native *g, int rank, char *to, size_t bytes)
{
    yk__native_link *l = &g->net->links[rank];
    char why[YK__WHY_SIZE];
    size_t done = 0;
    if (g->carrier)
        return yk__native_carried_receive(g, rank, to, bytes);
    if (l->data_gone)
        return 0;
    yk__reason reason = yk__byte_stream_receive(l->stream, l->data, to, bytes < MOST ? bytes : MOST, &done, why);
    if (reason)
        data_call_record(g, rank, reason, why);
    return done;
}

bool yk__native_spin(yk__native_spin_state *s, bool moved)
{
    s->moved |= moved;
    s->looks = moved ? 0 : s->looks + 1;
    if (s->looks > LOOKS)
        return false;
    if (s->looks > 2)
        sched_yield();
    return true;
}

yk_status yk__native_poll(native *g, yk__native_spin_state *s, struct pollfd *wait, int count, int rank)
{
    yk__native_link *l = &g->net->links[rank];
    double now = yk__now();
    if (s->moved)
        g->net->moved = now;
    s->moved = false;
    wait[count] = (struct pollfd){.fd = g->net->epoll, .events = POLLIN};
    bool busy = g->carrier && !g->carrier->arm(g->net->carried);
    struct timespec limit = {.tv_nsec = busy ? 0 : (long)(nap * 1e9)};
    ppoll(wait, (nfds_t)count + 1, &limit, NULL);
    yk_status status = yk__native_wait_remote(g, rank, &s->looked);
    if (status || !l->data_gone)
        return status;
    if (l->gone_at == 0)
        l->gone_at = now;
    if (now - l->gone_at < silence)
        return YK_OK;
    char link[YK__LINK_TEXT], what[160];
    return yk__native_break(g, YK_ERR_CONNECTION, "%s: %s broke: %s (seen by rank %d)",
                            yk__comm_describe(&g->current, what, sizeof(what)), yk__native_link_name(g, rank, link),
                            g->carrier      ? l->data_why
                            : l->data_error ? strerror(l->data_error)
                                            : "the other side closed it",
                            g->rank);
}

struct pollfd yk__native_poll_entry(const native *g, int rank, short events)
{
    const yk__native_link *l = &g->net->links[rank];
    if (g->carrier)
        return (struct pollfd){.fd = g->carrier->descriptor(g->net->carried), .events = POLLIN};
    return (struct pollfd){.fd = l->data_gone ? -1 : l->data, .events = events};
}

yk_status yk__native_flow_run(native *g, yk__native_flow *out, int outs, yk__native_flow *in, int ins, size_t head,
                              yk__native_flow_check check)
{
    struct pollfd few[8], *wait = few;
    if (outs + ins + 1 > 8) {
        wait = yk__calloc((size_t)(outs + ins) + 1, sizeof(*wait));
        if (!wait)
            return yk__error_code();
    }
    yk__native_spin_state spinner = {0};
    yk_status status = YK_OK;
    for (;;) {
        bool moved = false, done = true;
        for (int i = 0; i < outs; i++) {
            yk__native_flow *f = &out[i];
            size_t n = f->done < f->bytes ? yk__native_data_send(g, f->rank, f->at + f->done, f->bytes - f->done) : 0;
            f->done += n;
            moved |= n > 0;
            done &= f->done == f->bytes;
        }
        for (int i = 0; i < ins && !status; i++) {
            yk__native_flow *f = &in[i];
            size_t n =
                f->done < f->bytes ? yk__native_data_receive(g, f->rank, f->at + f->done, f->bytes - f->done) : 0;
            if (check && f->done < head && f->done + n >= head)
                status = check(g, f);
            f->done += n;
            moved |= n > 0;
            done &= f->done == f->bytes;
        }
        if (status || done)
            break;
        if (yk__native_spin(&spinner, moved))
            continue;
        int count = 0, rank = -1;
        for (int i = 0; i < outs; i++)
            if (out[i].done < out[i].bytes)
                wait[count++] = yk__native_poll_entry(g, rank = out[i].rank, POLLOUT);
        for (int i = ins - 1; i >= 0; i--)
            if (in[i].done < in[i].bytes)
                wait[count++] = yk__native_poll_entry(g, rank = in[i].rank, POLLIN);
        status = yk__native_poll(g, &spinner, wait, count, rank);
        if (status)
            break;
    }
    if (wait != few)
        free(wait);
    return status;
}

/* ---- pipes ------------------------------------------------------------------------------------------------------- */
/* The byte `at` of a chunk, and how many follow it in one piece. */
static char *chunk_at(const yk__native_chunk *c, size_t at, size_t *run)
{
    if (!c->index) {
        *run = yk__native_chunk_bytes(c) - at;
        return c->base + at;
    }
    size_t segment = at / c->width, offset = at % c->width;
    *run = c->width - offset;
    return c->base + (size_t)c->index[segment] * c->pitch + offset;
}

typedef struct pipe_state {
    const yk__native_pipe *pipe;
    int sent, received;       /* whole chunks */
    size_t sent_bytes, ready; /* of the next ones */
} pipe_state;

/* The number of bytes of the next chunk that may be sent. */
static size_t sendable(const pipe_state *s)
{
    const yk__native_pipe *p = s->pipe;
    const yk__native_chunk *c = &p->out[s->sent].chunk;
    int source = p->out[s->sent].source;
    if (source < s->received)
        return yk__native_chunk_bytes(c);
    return source > s->received ? 0 : s->ready;
}

static bool pipe_send(native *g, pipe_state *s)
{
    const yk__native_pipe *p = s->pipe;
    bool moved = false;
    while (s->sent < p->outs) {
        const yk__native_chunk *c = &p->out[s->sent].chunk;
        size_t limit = sendable(s), run, n = 0;
        if (s->sent_bytes < limit) {
            char *from = chunk_at(c, s->sent_bytes, &run);
            size_t most = limit - s->sent_bytes;
            n = yk__native_data_send(g, p->to, from, run < most ? run : most);
            s->sent_bytes += n;
            moved |= n > 0;
        }
        if (s->sent_bytes == yk__native_chunk_bytes(c) && limit == s->sent_bytes) {
            s->sent++;
            s->sent_bytes = 0;
        } else if (n == 0) {
            break;
        } else {
            return true; /* receiving has its turn */
        }
    }
    return moved;
}

static void pipe_receive(native *g, pipe_state *s, bool *moved)
{
    const yk__native_pipe *p = s->pipe;
    for (int turns = 0; s->received < p->ins && turns < 8;) {
        const yk__native_pipe_in *t = &p->in[s->received];
        size_t all = yk__native_chunk_bytes(&t->chunk), run, n = 0;
        if (s->ready < all) {
            char *to = chunk_at(&t->chunk, s->ready, &run);
            n = yk__native_data_receive(g, p->from, to, run);
            s->ready += n;
        }
        *moved |= n > 0;
        turns++;
        if (s->ready == all) {
            s->received++;
            s->ready = 0;
        } else if (n == 0) {
            break;
        } else if (s->sent < p->outs && s->sent_bytes < sendable(s) && n < RECEIVE / 2) {
            break; /* sending has its turn */
        }
    }
}

yk_status yk__native_pipe_run(native *g, const yk__native_pipe *p)
{
    pipe_state s = {.pipe = p};
    yk__native_spin_state spinner = {0};
    struct pollfd wait[3];
    for (;;) {
        bool moved = pipe_send(g, &s);
        pipe_receive(g, &s, &moved);
        if (s.sent == p->outs && s.received == p->ins)
            return YK_OK;
        if (yk__native_spin(&spinner, moved))
            continue;
        int count = 0, rank = -1;
        if (s.sent < p->outs && s.sent_bytes < sendable(&s))
            wait[count++] = yk__native_poll_entry(g, rank = p->to, POLLOUT);
        if (s.received < p->ins)
            wait[count++] = yk__native_poll_entry(g, rank = p->from, POLLIN);
        if (rank < 0)
            rank = p->to;
        yk_status status = yk__native_poll(g, &spinner, wait, count, rank);
        if (status)
            return status;
    }
}
