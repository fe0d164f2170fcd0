/*
 * nccl_messages.c - send and recv, by ncclSend and ncclRecv on streams of their own. Layer: comm/nccl.
 *
 * Note [The pair's order]
 * Every ordered pair of ranks that have sent something has a communicator of these two, a stream on either side, and a
 * thread on either side; they are made in its first message. A communicator for each direction, because a rank that
 * sends and receives at the same time would else have to put both on its stream in its peer's order. On a stream,
 * messages come in one order on both sides, which is that in which their receives were matched:
 *
 *   sender: any thread, then the pair's      receiver: any thread, then the pair's
 *   --------------------------------------   ------------------------------------------------
 *   announces the message, numbered ------>  a receive takes it: tag, dtype, count are compared
 *                                      <---  turn: this number is next (the first has the identity of the communicator)
 *   ncclSend on the pair's stream            ncclRecv on the pair's stream
 *
 * Announcements are messages of the control group with the operation's tag, dtype and count, so what native promises of
 * messages holds: a receive takes the oldest message with its tag, what does not fit is an error on both ranks, as is a
 * peer that does not come in time, or is gone; and no kernel of NCCL waits on a GPU for a call of the other rank. No
 * more than WINDOW of a pair are announced at a time, since they hold places in the control group's mailboxes, which
 * turns need, too. While a step is recorded nothing is announced: both ranks have the order of their calls, which they
 * compare as a whole (comm/recorded.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/nccl/nccl_backend.h"

/* Announced messages of a pair; native has 16 places. */
enum { WINDOW = 12 };
/* Seconds between looks at the other messages of a pair while its oldest is waited for: where there are others, whose
 * tags may be asked for first, and where there are none. */
static const double LOOK_AT_OTHERS = 0.002, LOOK = 0.02;

typedef struct notice {
    uint64_t sequence; /* among the messages of the pair */
    nccl_record record;
} notice;

typedef struct nccl_message {
    yk__comm_op op;
    void *native;  /* of the control group: the message itself, or its announcement; NULL: not announced yet */
    notice notice; /* that goes, or comes */
    bool done;
    yk_status status;
    nccl_queued *queued;
    struct nccl_message *next;
} nccl_message;

typedef struct nccl_pair {
    nccl_group *g;
    int peer;
    bool sends; /* this rank is the sender */
    nccl_line line;
    pthread_t thread;
    nccl_message *first; /* not on the stream yet, in the order of the calls */
    uint64_t sequence;   /* of the next message */
    uint64_t turns;      /* given so far, by a receiver */
    int announced;
    void *turn; /* a sender's receive of the next turn */
    notice came;
    struct nccl_pair *next;
} nccl_pair;

yk_status nccl_end_message(nccl_group *g, void *message, yk_status status)
{
    bool done = false;
    while (!status && !done)
        status = nccl_yoke->native->wait(g->control, message, 1, &done);
    while (!done) /* a broken group: it ends with the cause */
        (void)!nccl_yoke->native->wait(g->control, message, 0.1, &done);
    nccl_yoke->native->forget(g->control, message);
    return status;
}

/* ---- on the stream ----------------------------------------------------------------------------------------------- */
static yk_status transfer(const nccl_pair *p, const yk__comm_op *op)
{
    nccl_group *g = p->g;
    ncclDataType_t type = nccl_type_of(op->dtype);
    size_t count = (size_t)op->count;
    int peer = p->sends ? 1 : 0; /* in the pair's communicator */
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&g->lock);
    ncclComm_t comm = p->line.comm;
    if (comm)
        result = p->sends ? nccl.ncclSend(op->in, count, type, peer, comm, p->line.stream)
                          : nccl.ncclRecv(op->out, count, type, peer, comm, p->line.stream);
    pthread_mutex_unlock(&g->lock);
    if (!comm)
        return nccl_fail(YK_ERR_STATE, "group '%s': its communicator was given up", g->name);
    return nccl_settle(g, (nccl_line *)(uintptr_t)&p->line, op, p->sends ? "ncclSend" : "ncclRecv", result, g->timeout);
}

static yk_status queue_transfer(nccl_pair *p, const yk__comm_op *op, nccl_queued **queued)
{
    nccl_group *g = p->g;
    nccl_queued *q = *queued = nccl_base->allocate(1, sizeof(*q));
    if (!q)
        return nccl_base->error_code();
    q->op = *op;
    q->line = &p->line;
    yk_status status = nccl_take_mark(g, &q->end);
    cudaError_t code = status ? cudaSuccess : cudaStreamWaitEvent(p->line.stream, ((nccl_mark *)op->marked)->event, 0);
    if (code)
        return nccl_cuda_failed(g, op, "cudaStreamWaitEvent", code);
    if (!status)
        status = transfer(p, op);
    code = status ? cudaSuccess : cudaEventRecord(q->end->event, p->line.stream);
    return code ? nccl_cuda_failed(g, op, "cudaEventRecord", code) : status;
}

/* Queues the calls of NCCL for a message to which both ranks have come. */
static yk_status issue(nccl_pair *p, nccl_message *m, const nccl_record *theirs, const ncclUniqueId *id)
{
    nccl_group *g = p->g;
    nccl_record own;
    yk_status status = YK_OK;
    if (!p->line.stream) {
        status = nccl_own_record(g, &m->op, &own);
        if (!status)
            status = nccl_compare(g, g->rank, &own, p->peer, theirs);
        if (!status)
            status = nccl_make_comm(g, &m->op, &p->line, 2, p->sends ? 0 : 1, id, true);
    }
    nccl_queued *q = NULL;
    if (!status && m->op.count)
        status = queue_transfer(p, &m->op, &q);
    if (status) {
        nccl_queued_free(g, q);
        return status;
    }
    pthread_mutex_lock(&g->lock);
    nccl_message **at = &p->first;
    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    p->announced--;
    m->queued = q;
    m->done = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return YK_OK;
}

/* ---- the pair's thread ------------------------------------------------------------------------------------------- */
/* With the lock held: as many as may be are announced. */
static yk_status announce(nccl_pair *p)
{
    nccl_group *g = p->g;
    yk_status status = YK_OK;
    for (nccl_message *m = p->first; m && !status; m = m->next) {
        if (m->native)
            continue;
        if (p->announced == WINDOW)
            break;
        yk__comm_op op = m->op;
        op.on_device = false;
        op.announced = sizeof(m->notice);
        op.in = op.out = &m->notice;
        status = nccl_yoke->native->post(g->control, &op, &m->native);
        p->announced += !status;
    }
    return status;
}

/* The receives that have taken an announcement, one after the other. */
static yk_status serve_receives(nccl_pair *p)
{
    nccl_group *g = p->g;
    const yk__comm_backend *native = nccl_yoke->native;
    for (;;) {
        nccl_message *m;
        bool done = false;
        yk_status status = YK_OK;
        pthread_mutex_lock(&g->lock);
        for (m = p->first; m && m->native && !done && !status;) {
            status = native->wait(g->control, m->native, 0, &done);
            m = done ? m : m->next;
        }
        pthread_mutex_unlock(&g->lock);
        if (status || !done)
            return status;
        notice turn = {.sequence = m->notice.sequence};
        if (!p->line.stream) {
            status = nccl_own_record(g, &m->op, &turn.record);
            ncclResult_t result = status ? ncclSuccess : nccl_unique_id(&turn.record.id);
            if (result)
                status = nccl_failed(g, &m->op, "ncclGetUniqueId", result);
        }
        yk__comm_op op = {.kind = YK__COMM_SEND,
                          .dtype = YK_U8,
                          .count = sizeof(turn),
                          .peer = p->peer,
                          .tag = NCCL_TURN_TAG,
                          .number = ++p->turns,
                          .in = &turn};
        void *message = NULL;
        if (!status)
            status = native->post(g->control, &op, &message);
        if (message)
            status = nccl_end_message(g, message, status);
        if (!status)
            status = issue(p, m, &m->notice.record, &turn.record.id);
        if (status)
            return status;
    }
}

/* The messages whose turn has come. `taken`: one's has, or is about to. */
static yk_status serve_sends(nccl_pair *p, bool taken)
{
    nccl_group *g = p->g;
    const yk__comm_backend *native = nccl_yoke->native;
    yk_status status = YK_OK;
    bool done = false;
    if (!p->turn) {
        yk__comm_op op = {.kind = YK__COMM_RECV,
                          .dtype = YK_U8,
                          .count = sizeof(p->came),
                          .peer = p->peer,
                          .tag = NCCL_TURN_TAG,
                          .out = &p->came};
        status = native->post(g->control, &op, &p->turn);
    }
    if (!status)
        status = native->wait(g->control, p->turn, taken ? 1 : 0, &done);
    if (status || !done)
        return status;
    native->forget(g->control, p->turn);
    p->turn = NULL;
    pthread_mutex_lock(&g->lock);
    nccl_message *m = p->first;
    while (m && m->native && m->notice.sequence != p->came.sequence)
        m = m->next;
    pthread_mutex_unlock(&g->lock);
    if (!m || !m->native)
        return nccl_fail(YK_ERR_INTERNAL, "group '%s': rank %d gave a turn to message %llu, which nobody sends",
                         g->name, p->peer, (unsigned long long)p->came.sequence);
    for (done = false; !done && !status;) /* its receive has taken it */
        status = native->wait(g->control, m->native, 1, &done);
    return status ? status : issue(p, m, &p->came.record, &p->came.record.id);
}

/* Something is broken: all messages of the pair end with the group's first cause. */
static void end_all(nccl_pair *p, yk_status status)
{
    nccl_group *g = p->g;
    yk_error error;
    status = nccl_broken(g, status);
    nccl_base->error_take(&error);
    if (p->turn)
        (void)!nccl_end_message(g, p->turn, status);
    p->turn = NULL;
    pthread_mutex_lock(&g->lock);
    while (p->first) {
        nccl_message *m = p->first;
        pthread_mutex_unlock(&g->lock);
        for (bool done = !m->native; !done;)
            (void)!nccl_yoke->native->wait(g->control, m->native, 0.1, &done);
        nccl_base->error_take(&error);
        pthread_mutex_lock(&g->lock);
        p->first = m->next;
        m->status = status;
        m->done = true;
    }
    p->announced = 0;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static void *pair_serve(void *arg)
{
    nccl_pair *p = arg;
    nccl_group *g = p->g;
    cudaError_t code = cudaSetDevice(g->gpu);
    pthread_mutex_lock(&g->lock);
    while (!g->leaving || p->first) {
        nccl_message *m = p->first;
        if (!m) {
            pthread_cond_wait(&g->changed, &g->lock);
            continue;
        }
        yk_status status = code ? nccl_cuda_failed(g, &m->op, "cudaSetDevice", code) : announce(p);
        double seconds = m->next ? LOOK_AT_OTHERS : LOOK;
        pthread_mutex_unlock(&g->lock);
        bool taken = false;
        if (!status)
            status = nccl_yoke->native->wait(g->control, m->native, seconds, &taken);
        if (!status)
            status = p->sends ? serve_sends(p, taken) : serve_receives(p);
        if (status)
            end_all(p, status);
        pthread_mutex_lock(&g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* With the lock held. */
static nccl_pair *find_pair(nccl_group *g, const yk__comm_op *op)
{
    nccl_pair *p = g->pairs;
    while (p && (p->peer != op->peer || p->sends != (op->kind == YK__COMM_SEND)))
        p = p->next;
    return p;
}

/* With the lock held. */
static yk_status make_pair(nccl_group *g, const yk__comm_op *op, nccl_pair **made)
{
    nccl_pair *p = *made = nccl_base->allocate(1, sizeof(*p));
    if (!p)
        return nccl_base->error_code();
    p->g = g;
    p->peer = op->peer;
    p->sends = op->kind == YK__COMM_SEND;
    int error = pthread_create(&p->thread, NULL, pair_serve, p);
    if (error) {
        free(p);
        *made = NULL;
        return nccl_fail(YK_ERR_IO, "group '%s': no thread can be started: %s", g->name, strerror(error));
    }
    p->next = g->pairs;
    g->pairs = p;
    return YK_OK;
}

void nccl_stop_pairs(nccl_group *g)
{
    pthread_mutex_lock(&g->lock);
    g->leaving = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    for (nccl_pair *p = g->pairs; p; p = p->next)
        pthread_join(p->thread, NULL);
}

void nccl_free_pairs(nccl_group *g)
{
    while (g->pairs) {
        nccl_pair *p = g->pairs;
        g->pairs = p->next;
        free(p);
    }
}

/* ---- the slots of the table -------------------------------------------------------------------------------------- */
static yk_status post_on_device(nccl_group *g, nccl_message *m)
{
    const yk__comm_op *op = &m->op;
    char what[160];
    if (op->peer == g->rank)
        return nccl_fail(YK_ERR_UNSUPPORTED,
                         "%s of rank %d of group '%s' is with the rank itself, which NCCL does not take: copy the "
                         "tensor, or take the backend 'native'",
                         nccl_yoke->describe(op, what, sizeof(what)), g->rank, g->name);
    yk_status status = nccl_own_record(g, op, &m->notice.record);
    pthread_mutex_lock(&g->lock);
    nccl_pair *p = find_pair(g, op);
    if (!status && !p)
        status = make_pair(g, op, &p);
    if (!status) {
        nccl_message **at = &p->first;
        while (*at)
            at = &(*at)->next;
        *at = m;
        m->notice.sequence = p->sequence++;
        status = announce(p);
        pthread_cond_broadcast(&g->changed);
        if (status)
            *at = NULL;
    }
    pthread_mutex_unlock(&g->lock);
    return status;
}

yk_status nccl_post(void *state, const yk__comm_op *op, void **message)
{
    nccl_group *g = state;
    nccl_message *m = *message = nccl_base->allocate(1, sizeof(*m));
    if (!m) {
        nccl_return_mark(g, op->marked);
        return nccl_base->error_code();
    }
    m->op = *op;
    yk_status status = op->on_device ? post_on_device(g, m) : nccl_yoke->native->post(g->control, op, &m->native);
    if (status) {
        nccl_return_mark(g, op->marked);
        free(m);
        *message = NULL;
    }
    return status;
}

yk_status nccl_wait(void *state, void *message, double seconds, bool *done)
{
    nccl_group *g = state;
    nccl_message *m = message;
    if (!m->op.on_device)
        return nccl_yoke->native->wait(g->control, m->native, seconds, done);
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)seconds;
    end.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&g->lock);
    while (!m->done && seconds > 0 && pthread_cond_timedwait(&g->changed, &g->lock, &end) != ETIMEDOUT)
        continue;
    *done = m->done;
    yk_status status = m->done ? m->status : YK_OK;
    pthread_mutex_unlock(&g->lock);
    return status ? nccl_yoke->native->check(g->control) : YK_OK;
}

void *nccl_message_queued(void *state, void *message)
{
    nccl_group *g = state;
    nccl_message *m = message;
    pthread_mutex_lock(&g->lock);
    nccl_queued *q = m->queued;
    m->queued = NULL;
    pthread_mutex_unlock(&g->lock);
    return q;
}

void nccl_forget(void *state, void *message)
{
    nccl_group *g = state;
    nccl_message *m = message;
    if (m->native)
        nccl_yoke->native->forget(g->control, m->native);
    if (m->op.on_device)
        nccl_return_mark(g, m->op.marked);
    free(m);
}

yk_status nccl_record_message(nccl_group *g, const yk__comm_op *op, nccl_queued **queued)
{
    pthread_mutex_lock(&g->lock);
    nccl_pair *p = find_pair(g, op);
    while (p && p->first) /* earlier calls go first */
        pthread_cond_wait(&g->changed, &g->lock);
    bool made = p && p->line.comm;
    pthread_mutex_unlock(&g->lock);
    if (!made)
        return nccl_fail(YK_ERR_STATE, "group '%s': there is no communicator with rank %d before the recording",
                         g->name, op->peer);
    cudaError_t code = cudaSetDevice(g->gpu);
    if (code)
        return nccl_cuda_failed(g, op, "cudaSetDevice", code);
    return op->count ? queue_transfer(p, op, queued) : YK_OK;
}
