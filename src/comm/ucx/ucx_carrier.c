/*
 * ucx_carrier.c - data between ranks over UCX. Layer: comm/ucx.
 *
 * See the notes in ucx_carrier.h. Invariant: while a peer's `sending` or `receiving` is there, its memory is UCX's; no
 * operation of the group ends in between but by `drop`.
 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/ucx/ucx_carrier.h"

static const ucp_request_param_t plain;
/* Seconds that giving up takes at most, where UCX does not say that it lets go of memory. */
static const double drop_time = 5;

/* With the lock held: true if the request is done, and freed. */
static bool request_end(void **request, ucs_status_t *status)
{
    *status = *request ? ucp_request_check_status(*request) : UCS_OK;
    if (*status == UCS_INPROGRESS)
        return false;
    if (*request)
        ucp_request_free(*request);
    *request = NULL;
    return true;
}

/* Takes what a call of UCX gave: a request, or none where it was done at once. */
static void *request_take(ucs_status_ptr_t given, ucs_status_t *status)
{
    *status = UCS_PTR_IS_ERR(given) ? UCS_PTR_STATUS(given) : UCS_OK;
    return UCS_PTR_IS_PTR(given) ? given : NULL;
}

static void peer_fail(ucx_peer *p, ucs_status_t status)
{
    if (p->failed == UCS_OK)
        p->failed = status;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */
static void state_free(ucx_state *s)
{
    for (int r = 0; r < s->world_size && s->peers; r++)
        free(s->peers[r].held);
    if (s->address)
        ucp_worker_release_address(s->worker, s->address);
    if (s->worker)
        ucp_worker_destroy(s->worker);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s->peers);
    free(s);
}

static yk_status carrier_open(const char *group, int rank, int world_size, void **state, const void **address,
                              size_t *size)
{
    (void)group;
    *state = NULL;
    ucp_context_h context = ucx_context();
    if (!context)
        return ucx_base->error_code();
    ucx_state *s = ucx_base->allocate(1, sizeof(*s));
    if (!s)
        return ucx_base->error_code();
    s->rank = rank;
    s->world_size = world_size;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->peers = ucx_base->allocate((size_t)world_size, sizeof(*s->peers));
    const ucp_worker_params_t parameters = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                            .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    yk_status status = s->peers ? YK_OK : ucx_base->error_code();
    ucs_status_t said = status ? UCS_OK : ucp_worker_create(context, &parameters, &s->worker);
    if (!status && said == UCS_OK)
        said = ucp_worker_get_address(s->worker, &s->address, size);
    if (!status && said == UCS_OK && ucp_worker_get_efd(s->worker, &s->descriptor) != UCS_OK)
        s->descriptor = -1;
    if (said != UCS_OK)
        status = ucx_failed("it cannot open a worker", said);
    if (status) {
        state_free(s);
        return status;
    }
    *address = s->address;
    *state = s;
    return YK_OK;
}

static void endpoint_failed(void *of, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    peer_fail(of, status);
}

static ucs_status_t endpoint_create(ucx_state *s, ucx_peer *p, const void *address, bool can_fail)
{
    const ucp_ep_params_t parameters = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                        .address = address,
                                        .err_mode = can_fail ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
                                        .err_handler = {.cb = endpoint_failed, .arg = p}};
    ucs_status_t status = ucp_ep_create(s->worker, &parameters, &p->endpoint);
    p->can_fail = can_fail;
    if (status != UCS_OK)
        p->endpoint = NULL;
    return status;
}

static yk_status carrier_connect(void *state, int rank, bool near, const void *address, size_t size)
{
    (void)size;
    ucx_state *s = state;
    char what[80];
    pthread_mutex_lock(&s->lock);
    ucs_status_t status = endpoint_create(s, &s->peers[rank], address, !near);
    if (status == UCS_ERR_UNREACHABLE)
        status = endpoint_create(s, &s->peers[rank], address, near);
    pthread_mutex_unlock(&s->lock);
    if (status == UCS_OK)
        return YK_OK;
    snprintf(what, sizeof(what), "rank %d finds no way to rank %d", s->rank, rank);
    return ucx_failed(what, status);
}

/* With the lock held: true if what is under way with a peer has ended. */
static bool peer_is_idle(ucx_peer *p)
{
    ucs_status_t status;
    bool sent = request_end(&p->sending, &status), received = request_end(&p->receiving, &status);
    return sent && received;
}

/* With the lock held: gives up what is under way with a peer, and ends the endpoint; false if UCX does not let go. */
static bool peer_close(ucx_state *s, ucx_peer *p, double until)
{
    const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_t status;
    peer_fail(p, UCS_ERR_CANCELED);
    if (!p->endpoint || !p->can_fail) /* it ends with the worker */
        return peer_is_idle(p);
    void *closing = request_take(ucp_ep_close_nbx(p->endpoint, &force), &status);
    p->endpoint = NULL;
    if (p->receiving)
        ucp_request_cancel(s->worker, p->receiving);
    bool closed = false;
    while (!(closed = request_end(&closing, &status) && peer_is_idle(p)) && ucx_base->now() < until)
        ucp_worker_progress(s->worker);
    return closed;
}

static void carrier_drop(void *state)
{
    ucx_state *s = state;
    pthread_mutex_lock(&s->lock);
    double until = ucx_base->now() + drop_time;
    /* First those whose end takes calls of UCX: none is made when one of the others has to be abandoned. */
    for (int r = 0; r < s->world_size && !s->dropped; r++)
        s->abandoned |= s->peers[r].can_fail && !peer_close(s, &s->peers[r], until);
    for (int r = 0; r < s->world_size && !s->dropped; r++)
        s->abandoned |= !s->peers[r].can_fail && !peer_close(s, &s->peers[r], until);
    s->dropped = true;
    pthread_mutex_unlock(&s->lock);
}

/* ---- data -------------------------------------------------------------------------------------------------------- */
static size_t carrier_send(void *state, int rank, const char *from, size_t bytes)
{
    ucx_state *s = state;
    ucx_peer *p = &s->peers[rank];
    ucs_status_t status = UCS_OK;
    size_t done = 0;
    pthread_mutex_lock(&s->lock);
    bool under_way = p->sending != NULL;
    if (s->dropped) {
        under_way = false;
    } else if (under_way) {
        ucp_worker_progress(s->worker);
    } else if (p->endpoint && p->failed == UCS_OK && bytes) {
        p->send_bytes = bytes;
        p->sending = request_take(ucp_tag_send_nbx(p->endpoint, from, bytes, (ucp_tag_t)s->rank, &plain), &status);
        s->sent = under_way = true;
    }
    if (under_way && (status != UCS_OK || request_end(&p->sending, &status))) {
        if (status == UCS_OK)
            done = p->send_bytes;
        else
            peer_fail(p, status);
    }
    pthread_mutex_unlock(&s->lock);
    return done;
}

/* With the lock held: bytes of the message that is held, to the caller. */
static size_t held_take(ucx_peer *p, char *to, size_t bytes)
{
    size_t left = p->receive_bytes - p->held_at, n = left < bytes ? left : bytes;
    memcpy(to, p->held + p->held_at, n);
    p->held_at += n;
    if (n == left) {
        free(p->held);
        p->held = NULL;
    }
    return n;
}

/* With the lock held: begins to receive the next message from this rank; false where there is none. */
static bool message_begin(ucx_state *s, int rank, char *to, size_t bytes, ucs_status_t *status)
{
    ucx_peer *p = &s->peers[rank];
    ucp_tag_recv_info_t info;
    ucp_tag_message_h message = ucp_tag_probe_nb(s->worker, (ucp_tag_t)rank, ~(ucp_tag_t)0, 1, &info);
    *status = UCS_OK;
    if (!message)
        return false;
    p->receive_bytes = info.length;
    if (info.length > bytes) {
        p->held_at = 0;
        p->held = malloc(info.length);
        if (!p->held)
            *status = UCS_ERR_NO_MEMORY;
        to = p->held;
    }
    if (*status == UCS_OK)
        p->receiving = request_take(ucp_tag_msg_recv_nbx(s->worker, to, info.length, message, &plain), status);
    return true;
}

static size_t carrier_receive(void *state, int rank, char *to, size_t bytes)
{
    ucx_state *s = state;
    ucx_peer *p = &s->peers[rank];
    ucs_status_t status = UCS_OK;
    size_t done = 0;
    pthread_mutex_lock(&s->lock);
    bool under_way = p->receiving != NULL;
    if (s->dropped) {
        under_way = false;
    } else if (!under_way && p->held) {
        done = held_take(p, to, bytes);
    } else if (bytes) {
        ucp_worker_progress(s->worker);
        under_way = under_way || message_begin(s, rank, to, bytes, &status);
    }
    if (under_way && (status != UCS_OK || request_end(&p->receiving, &status))) {
        if (status != UCS_OK)
            peer_fail(p, status);
        else
            done = p->held ? held_take(p, to, bytes) : p->receive_bytes;
    }
    pthread_mutex_unlock(&s->lock);
    return done;
}

static bool carrier_is_gone(void *state, int rank, char *why, size_t size)
{
    ucx_state *s = state;
    pthread_mutex_lock(&s->lock);
    ucs_status_t failed = s->peers[rank].failed;
    pthread_mutex_unlock(&s->lock);
    if (failed != UCS_OK)
        snprintf(why, size, "UCX says: %s", ucs_status_string(failed));
    return failed != UCS_OK;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */
static int carrier_descriptor(void *state)
{
    const ucx_state *s = state;
    return s->descriptor;
}

static bool carrier_arm(void *state)
{
    ucx_state *s = state;
    pthread_mutex_lock(&s->lock);
    bool quiet = s->dropped ||
                 (s->descriptor >= 0 && ucp_worker_progress(s->worker) == 0 && ucp_worker_arm(s->worker) == UCS_OK);
    pthread_mutex_unlock(&s->lock);
    return quiet;
}

/* With the lock held. */
static bool flush_move(ucx_state *s)
{
    ucs_status_t status;
    if (s->dropped)
        return true;
    if (!s->flushing && s->sent) {
        s->sent = false;
        s->flushing = request_take(ucp_worker_flush_nbx(s->worker, &plain), &status);
    }
    if (s->flushing)
        ucp_worker_progress(s->worker);
    return request_end(&s->flushing, &status); /* a failure is the peer's, whom others wait for */
}

static bool carrier_flush(void *state)
{
    ucx_state *s = state;
    pthread_mutex_lock(&s->lock);
    bool done = flush_move(s);
    pthread_mutex_unlock(&s->lock);
    return done;
}

/* Goes on with a flush that an operation has not waited for. */
static void *flusher_run(void *of)
{
    ucx_state *s = of;
    pthread_mutex_lock(&s->lock);
    while (!s->ending) {
        if (!s->behind || flush_move(s)) {
            s->behind = false;
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        usleep(100);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void carrier_flush_behind(void *state)
{
    ucx_state *s = state;
    sigset_t all, before;
    pthread_mutex_lock(&s->lock);
    if (!s->has_flusher) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        s->has_flusher = pthread_create(&s->flusher, NULL, flusher_run, s) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    s->behind = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

static void carrier_close(void *state, bool whole, double seconds)
{
    ucx_state *s = state;
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->has_flusher)
        pthread_join(s->flusher, NULL);
    double until = ucx_base->now() + seconds;
    while (whole && !carrier_flush(s) && ucx_base->now() < until)
        sched_yield();
    carrier_drop(s);
    ucs_status_t status;
    for (until = ucx_base->now() + drop_time; !s->abandoned && !request_end(&s->flushing, &status);) {
        ucp_worker_progress(s->worker);
        s->abandoned = ucx_base->now() > until;
    }
    if (!s->abandoned) {
        state_free(s);
        return;
    }
    static pthread_mutex_t lost_lock = PTHREAD_MUTEX_INITIALIZER;
    static ucx_state *lost;
    pthread_mutex_lock(&lost_lock);
    s->next = lost;
    lost = s;
    pthread_mutex_unlock(&lost_lock);
}

const yk__comm_carrier ucx_carrier = {
    .open = carrier_open,
    .connect = carrier_connect,
    .send = carrier_send,
    .receive = carrier_receive,
    .is_gone = carrier_is_gone,
    .descriptor = carrier_descriptor,
    .arm = carrier_arm,
    .flush = carrier_flush,
    .flush_behind = carrier_flush_behind,
    .drop = carrier_drop,
    .close = carrier_close,
};
