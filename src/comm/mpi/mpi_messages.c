/*
 * mpi_messages.c - send and recv. Layer: comm/mpi.
 *
 * A message is a notice with number, tag, dtype and count, which is matched here and not by MPI: tags may be any
 * number, and a receive of another dtype or size is an error. Few bytes come in the notice; more by themselves, under a
 * tag of MPI that is made of the sender's number, and the receive for them is posted when the notice has been matched.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "comm/mpi/mpi_backend.h"

enum { PAYLOAD_TAGS = 32000 /* MPI_TAG_UB is 32767 or more */ };

static int payload_tag(uint64_t number)
{
    return 1 + (int)(number % PAYLOAD_TAGS);
}

static void message_end(mpi_message *m, yk_status status)
{
    m->done = true;
    m->status = status;
    if (status)
        mpi_base->error_take(&m->error);
}

/* The head's receive is there: takes the bytes, or lets them come. */
static void accept_head(mpi_group *g, mpi_message *m, const mpi_notice *head)
{
    const yk__comm_op *op = &m->op;
    if (head->dtype != (int32_t)op->dtype || head->count != op->count) {
        char a[120], b[120], x[160], y[160];
        yk__comm_op sent = {.kind = YK__COMM_SEND,
                            .dtype = (yk_dtype)head->dtype,
                            .count = head->count,
                            .number = head->number,
                            .peer = g->rank,
                            .tag = head->tag};
        message_end(m,
                    mpi_break_locked(g, YK_ERR_MISMATCH, "group '%s': %s called %s, but %s called %s", g->name,
                                     mpi_rank_name(g, op->peer, a, sizeof(a)), mpi_yoke->describe(&sent, x, sizeof(x)),
                                     mpi_rank_name(g, g->rank, b, sizeof(b)), mpi_yoke->describe(op, y, sizeof(y))));
        return;
    }
    size_t size = mpi_yoke->dtype_size(op->dtype), bytes = (size_t)op->count * size;
    if (bytes <= NOTICE_TEXT) {
        if (bytes)
            memcpy(op->out, head->text, bytes);
        message_end(m, YK_OK);
        return;
    }
    m->under_way = true;
    int code = MPI_Irecv(op->out, (int)op->count, mpi_type_of(size), op->peer, payload_tag(head->number), g->comm,
                         &m->request);
    if (code) {
        yk_status status = mpi_failed("recv", code);
        (void)mpi_break_locked(g, status, "group '%s': a receive of MPI failed on rank %d", g->name, g->rank);
        message_end(m, status);
    }
}

/* The earlier receive that takes the next message from this rank with this tag; NULL where there is none. */
static mpi_message *receive_for(const mpi_group *g, int from, int tag)
{
    for (mpi_message *m = g->messages; m; m = m->next)
        if (!m->done && !m->under_way && m->op.kind == YK__COMM_RECV && m->op.peer == from && m->op.tag == tag)
            return m;
    return NULL;
}

void mpi_receive_head(mpi_group *g, const mpi_notice *notice)
{
    mpi_message *m = receive_for(g, notice->rank, notice->tag);
    if (m) {
        accept_head(g, m, notice);
        return;
    }
    mpi_kept_notice *kept = malloc(sizeof(*kept));
    if (!kept) {
        (void)mpi_break_locked(g, YK_ERR_MEMORY, "group '%s': rank %d has no memory for a message of rank %d", g->name,
                               g->rank, notice->rank);
        return;
    }
    kept->next = NULL;
    memcpy(&kept->notice, notice, offsetof(mpi_notice, text) + (size_t)notice->bytes);
    *g->heads_end = kept;
    g->heads_end = &kept->next;
}

/* A head that came before the receive. */
static void match_receive(mpi_group *g, mpi_message *m)
{
    for (mpi_kept_notice **at = &g->heads; *at; at = &(*at)->next) {
        mpi_kept_notice *kept = *at;
        if (kept->notice.rank != m->op.peer || kept->notice.tag != m->op.tag)
            continue;
        *at = kept->next;
        if (!*at)
            g->heads_end = at;
        accept_head(g, m, &kept->notice);
        free(kept);
        return;
    }
}

static void begin_send(mpi_group *g, mpi_message *m)
{
    const yk__comm_op *op = &m->op;
    size_t size = mpi_yoke->dtype_size(op->dtype), bytes = (size_t)op->count * size;
    int to = g->members[op->peer].who.mpi_rank;
    mpi_notice head = {.group = g->id,
                       .kind = NOTICE_MESSAGE,
                       .rank = g->rank,
                       .number = op->number,
                       .count = op->count,
                       .tag = op->tag,
                       .dtype = (int32_t)op->dtype};
    if (bytes <= NOTICE_TEXT) {
        head.bytes = (int32_t)bytes;
        if (bytes)
            memcpy(head.text, op->in, bytes);
        mpi_send_notice(to, &head);
        message_end(m, YK_OK);
        return;
    }
    mpi_send_notice(to, &head);
    m->under_way = true;
    int code =
        MPI_Isend(op->in, (int)op->count, mpi_type_of(size), op->peer, payload_tag(op->number), g->comm, &m->request);
    if (code) {
        yk_status status = mpi_failed("send", code);
        (void)mpi_break_locked(g, status, "group '%s': a send of MPI failed on rank %d", g->name, g->rank);
        message_end(m, status);
    }
}

/* Ends it with the group's cause; bytes that MPI has in hand end MPI. */
static void give_up(mpi_group *g, mpi_message *m)
{
    if (m->under_way)
        mpi_abandon(g->cause);
    message_end(m, mpi_check(g));
}

void mpi_move_messages(mpi_group *g)
{
    yk_error before;
    mpi_base->error_take(&before);
    for (mpi_message *m = g->messages; m; m = m->next) {
        int done = 0;
        if (m->done)
            continue;
        if (m->under_way && !mpi_is_abandoned() && MPI_Test(&m->request, &done, MPI_STATUS_IGNORE))
            (void)mpi_break_locked(g, YK_ERR_CONNECTION, "group '%s': MPI failed to move a message of rank %d", g->name,
                                   g->rank);
        yk_error unused;
        mpi_base->error_take(&unused);
        if (done)
            message_end(m, YK_OK);
        else if (atomic_load(&g->broken))
            give_up(g, m);
    }
    for (mpi_message **at = &g->messages; *at;) {
        if ((*at)->done)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
    mpi_base->error_put(&before);
}

yk_status mpi_post(void *state, const yk__comm_op *op, void **message)
{
    mpi_group *g = state;
    *message = NULL;
    if (op->count > INT_MAX)
        return mpi_fail(YK_ERR_UNSUPPORTED, "%s of %lld elements: the mpi backend takes up to %d",
                        op->kind == YK__COMM_SEND ? "send" : "recv", (long long)op->count, INT_MAX);
    mpi_message *m = mpi_base->allocate(1, sizeof(*m));
    if (!m)
        return mpi_base->error_code();
    m->op = *op;
    m->request = MPI_REQUEST_NULL;
    pthread_mutex_lock(&mpi_lock);
    mpi_message **tail = &g->messages;
    while (*tail)
        tail = &(*tail)->next;
    *tail = m;
    if (mpi_check(g))
        message_end(m, g->code);
    else if (op->kind == YK__COMM_SEND)
        begin_send(g, m);
    else
        match_receive(g, m);
    mpi_progress();
    pthread_mutex_unlock(&mpi_lock);
    *message = m;
    return YK_OK;
}

/* With the lock held: what will never come, and what has not come in time. */
static void look_after(mpi_group *g, mpi_message *m)
{
    char a[120], b[120], what[160];
    const mpi_member *peer = &g->members[m->op.peer];
    if (m->deadline == 0)
        m->deadline = mpi_base->now() + g->timeout;
    bool late = mpi_base->now() > m->deadline;
    if (!peer->left && !late)
        return;
    yk_error before, unused;
    mpi_base->error_take(&before);
    mpi_yoke->describe(&m->op, what, sizeof(what));
    mpi_rank_name(g, g->rank, a, sizeof(a));
    mpi_rank_name(g, m->op.peer, b, sizeof(b));
    if (peer->left)
        (void)mpi_break_locked(g, YK_ERR_CONNECTION, "group '%s': %s of %s: %s left", g->name, what, a, b);
    else
        (void)mpi_break_locked(g, YK_ERR_STALLED, "group '%s': %s: %s waited %g s for %s", g->name, what, a, g->timeout,
                               b);
    mpi_flush(0.2);
    mpi_base->error_take(&unused);
    mpi_base->error_put(&before);
    mpi_move_messages(g);
}

yk_status mpi_wait(void *state, void *message, double seconds, bool *done)
{
    mpi_group *g = state;
    mpi_message *m = message;
    double until = seconds > 0 ? mpi_base->now() + seconds : 0, seen = 0;
    for (int looks = 0;; looks++) {
        pthread_mutex_lock(&mpi_lock);
        double still = yk__standstill(&seen, mpi_base->now());
        m->deadline += m->deadline > 0 ? still : 0;
        until += still;
        mpi_progress();
        if (!m->done)
            look_after(g, m);
        *done = m->done;
        pthread_mutex_unlock(&mpi_lock);
        if (*done || seconds <= 0 || mpi_base->now() >= until)
            break;
        mpi_pause(g, looks);
    }
    if (*done && m->status)
        mpi_base->error_put(&m->error);
    return *done ? m->status : YK_OK;
}

void mpi_forget(void *state, void *message)
{
    (void)state;
    free(message);
}
