/*
 * control.c - the control connections: messages between hosts, and notices that ranks send each other at any time.
 * Layer: comm/native.
 *
 * Everything that arrives is taken at once: small messages into memory of their own until a receive asks for them, of
 * large ones the offer alone. So nothing waits for a message that nobody wants yet, and memory stays bounded by what
 * ranks offer. The bytes of a large message go from the sender's memory into the receiver's, in pieces, between which
 * other frames go.
 *
 * All is done under the message lock, which the thread that holds it may take again.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "comm/native/multihost.h"

/* Events that one call of epoll_wait takes; those beyond it come with the next. */
enum { EVENTS = 32 };
/* Bytes that are read from a link before others have their turn: one that sends without a pause must not keep its
 * reader for ever. */
enum { READ_AT_ONCE = 4 << 20 };
/* Bytes of messages that no receive has asked for, of one link. What comes beyond them is no program's way of sending
 * ahead, and would end in the system's choice of a process to kill. */
static const size_t unclaimed_limit = (size_t)256 << 20;

static int rank_of(const native *g, const yk__native_link *l)
{
    return (int)(l - g->net->links);
}

const char *yk__native_link_name(const native *g, int rank, char text[YK__LINK_TEXT])
{
    char a[120], b[120];
    snprintf(text, YK__LINK_TEXT, "the connection between %s and %s", yk__native_rank_name(g, g->rank, a, sizeof(a)),
             yk__native_rank_name(g, rank, b, sizeof(b)));
    return text;
}

/* `error` is errno, 0 at the end of the stream, -1 where `why` says what else it was. */
static void close_link(native *g, yk__native_link *l, int error, const char *why)
{
    l->closed = true;
    l->closed_at = yk__now();
    l->error = error;
    snprintf(l->why, sizeof(l->why), "%s", why);
    epoll_ctl(g->net->epoll, EPOLL_CTL_DEL, l->control, NULL);
    yk__socket_close(l->control);
    l->control = -1;
    yk__native_control_clear(l);
}

static void out_free(control_out *o)
{
    free(o->owned);
    free(o);
}

/* Drops the frames that wait to be sent. Those that are arriving are kept: where sending fails, reading goes on to the
 * end. */
static void clear_out(yk__native_link *l)
{
    while (l->out) {
        control_out *o = l->out;
        l->out = o->next;
        out_free(o);
    }
    l->out_end = &l->out;
    l->queued = 0;
}

void yk__native_control_clear(yk__native_link *l)
{
    clear_out(l);
    free(l->in_node);
    l->in_node = NULL;
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */
static void watch_out(native *g, yk__native_link *l, bool wanted)
{
    if (l->watched_out == wanted || l->control < 0)
        return;
    l->watched_out = wanted;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.u32 = (uint32_t)rank_of(g, l)};
    epoll_ctl(g->net->epoll, EPOLL_CTL_MOD, l->control, &event);
}

/* Makes the headers of what is to be sent next, and encrypts it where that is wished; false without memory. */
static bool frame_begin(yk__native_link *l, control_out *o)
{
    bool encrypts = l->control_send->cipher != YK__CIPHER_NONE,
         bulk = o->frame.type == CONTROL_MESSAGE || o->frame.type == CONTROL_BYTES;
    if (encrypts && o->frame.bytes && !o->owned) {
        o->owned = malloc(o->frame.bytes);
        if (!o->owned)
            return false;
        l->queued += sizeof(o->frame) + o->frame.bytes;
    }
    unsigned char *payload = o->head + YK__FRAME_HEADER;
    yk__frame_seal(l->control_send, YK__FRAME_CONTROL, &o->frame, sizeof(o->frame), payload, o->head);
    if (!encrypts)
        memcpy(payload, &o->frame, sizeof(o->frame));
    o->head_size = CONTROL_HEAD;
    if (o->frame.bytes) {
        yk__frame_seal(l->control_send, bulk ? YK__FRAME_DATA : YK__FRAME_CONTROL, o->payload, o->frame.bytes, o->owned,
                       o->head + CONTROL_HEAD);
        o->head_size += YK__FRAME_HEADER;
        o->payload = encrypts ? o->owned : o->payload;
    }
    o->begun = true;
    return true;
}

static void link_flush(native *g, yk__native_link *l)
{
    while (l->out && l->control >= 0) {
        control_out *o = l->out;
        if (!o->begun && !frame_begin(l, o)) {
            clear_out(l);
            yk__native_abort(g, YK_ERR_MEMORY, "out of memory for a message");
            break;
        }
        size_t head = o->head_size, all = head + o->frame.bytes;
        struct iovec parts[2];
        int count = 0;
        if (o->sent < head)
            parts[count++] = (struct iovec){o->head + o->sent, head - o->sent};
        size_t from = o->sent > head ? o->sent - head : 0;
        if (o->frame.bytes)
            parts[count++] = (struct iovec){(void *)(uintptr_t)(o->payload + from), o->frame.bytes - from};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)count};
        ssize_t n = sendmsg(l->control, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            /* The frames that the other side sent before its end are read first: reading finds the end, too. */
            clear_out(l);
            break;
        }
        o->sent += (size_t)n;
        if (o->sent < all)
            continue;
        if (o->message)
            o->message->posted = true;
        l->queued -= o->owned ? sizeof(o->frame) + o->frame.bytes : 0;
        l->out = o->next;
        if (!l->out)
            l->out_end = &l->out;
        out_free(o);
    }
    watch_out(g, l, l->out != NULL);
}

bool yk__native_control_enqueue(native *g, yk__native_link *l, const control_frame *frame, const void *bytes,
                                yk__native_message *message)
{
    if (l->control < 0)
        return true; /* the end of the connection is found by all who wait */
    control_out *o = yk__calloc(1, sizeof(*o));
    if (!o)
        return false;
    o->frame = *frame;
    o->payload = bytes;
    if (bytes && frame->bytes && frame->type != CONTROL_BYTES) {
        o->owned = yk__calloc(1, frame->bytes);
        if (!o->owned) {
            free(o);
            return false;
        }
        memcpy(o->owned, bytes, frame->bytes);
        o->payload = o->owned;
        l->queued += sizeof(*frame) + frame->bytes;
    }
    o->message = message;
    *l->out_end = o;
    l->out_end = &o->next;
    link_flush(g, l);
    return true;
}

/* Messages end when the group breaks, and their memory may go: what is not begun is dropped, the rest is copied. */
static void drop_messages(yk__native_link *l)
{
    control_out *o = l->out;
    if (!o)
        return;
    if (o->begun && !o->owned && o->frame.bytes) {
        o->owned = calloc(1, o->frame.bytes);
        if (!o->owned) { /* the connection ends in the middle of a frame, and the other side takes that for the cause */
            clear_out(l);
            return;
        }
        memcpy(o->owned, o->payload, o->frame.bytes);
        o->payload = o->owned;
        l->queued += sizeof(o->frame) + o->frame.bytes;
    }
    o->message = NULL;
    control_out **at = o->begun ? &o->next : &l->out;
    while (*at) {
        control_out *gone = *at;
        *at = gone->next;
        l->queued -= gone->owned ? sizeof(gone->frame) + gone->frame.bytes : 0;
        out_free(gone);
    }
    l->out_end = at;
}

void yk__native_control_drop_messages(native *g)
{
    if (g->net->dropped)
        return;
    g->net->dropped = true;
    for (int r = 0; r < g->world_size; r++)
        drop_messages(&g->net->links[r]);
}

void yk__native_control_send_broken(native *g, yk_status code, const char *cause)
{
    control_frame frame = {.type = CONTROL_BROKEN, .code = (int32_t)code, .bytes = strlen(cause) + 1};
    yk_error before;
    yk__error_take(&before);
    pthread_mutex_lock(&g->message_lock);
    yk__native_control_drop_messages(g);
    for (int r = 0; r < g->world_size; r++) {
        yk__native_link *l = &g->net->links[r];
        if (l->control < 0)
            continue;
        yk__native_control_enqueue(g, l, &frame, cause, NULL);
    }
    pthread_mutex_unlock(&g->message_lock);
    yk_clear_error();
    yk__error_put(&before);
}

void yk__native_control_send_begun(native *g, uint64_t number, int waits_for)
{
    const double times = 8; /* in a time-out: a rank that is stopped is told from others, at little cost */
    double now = yk__now();
    if (g->net->announced == number && now - g->net->announced_at < g->timeout / times)
        return;
    g->net->announced = number;
    g->net->announced_at = now;
    control_frame frame = {.type = CONTROL_BEGUN, .number = number, .code = waits_for + 1};
    pthread_mutex_lock(&g->message_lock);
    for (int r = 0; r < g->world_size; r++)
        if (g->net->links[r].control >= 0)
            yk__native_control_enqueue(g, &g->net->links[r], &frame, NULL, NULL);
    pthread_mutex_unlock(&g->message_lock);
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */
static yk__native_message *message_of_offer(native *g, int peer, uint64_t offer)
{
    for (yk__native_message *m = g->messages; m; m = m->next)
        if (!m->done && m->local_rank < 0 && m->op.kind == YK__COMM_RECV && m->op.peer == peer && m->offer == offer)
            return m;
    return NULL;
}

/* True if a rank can send such a frame. Its number, where it has one, is a message's, which count from 1: 0 is the
 * offer of a receive that has not taken one. */
static bool is_well_formed(const control_frame *f)
{
    uint64_t size = yk_dtype_size((yk_dtype)f->dtype), most = size ? INT64_MAX / size : 0;
    bool counted = size && f->number && f->count >= 0 && (uint64_t)f->count <= most;
    switch (f->type) {
    case CONTROL_MESSAGE:
        return counted && !f->code && f->bytes <= CONTROL_EAGER && f->bytes == (uint64_t)f->count * size;
    case CONTROL_OFFER:
        return counted && f->bytes == 0 &&
               (f->code ? f->code > 0 && f->code <= CONTROL_EAGER : (uint64_t)f->count * size > CONTROL_EAGER);
    case CONTROL_BYTES: return f->number && f->bytes && f->bytes <= CONTROL_PIECE;
    case CONTROL_BROKEN: /* another cause than one of yk_status would be taken for none */
        return f->bytes && f->bytes <= CONTROL_EAGER && f->code &&
               strcmp(yk_status_name((yk_status)f->code), "unknown") != 0;
    case CONTROL_ACCEPT:
    case CONTROL_LEFT: return f->bytes == 0;
    case CONTROL_BEGUN: return f->bytes == 0 && f->code >= 0;
    default: return false;
    }
}

enum refusal { MALFORMED, NO_MEMORY, UNCLAIMED };

/* The frame whose head is there cannot be taken: it breaks the rules, or there is no memory for it. */
static void refuse_frame(native *g, const yk__native_link *l, enum refusal why)
{
    char who[120], self[120];
    unsigned long long bytes = (unsigned long long)l->in.bytes;
    yk_status status;
    yk_error before;
    yk__error_take(&before);
    yk__native_rank_name(g, rank_of(g, l), who, sizeof(who));
    yk__native_rank_name(g, g->rank, self, sizeof(self));
    if (why == MALFORMED)
        status = yk__native_break(g, YK_ERR_INTERNAL, "group '%s': %s sent a malformed frame (type %u, %llu bytes)",
                                  g->name, who, l->in.type, bytes);
    else if (why == NO_MEMORY)
        status = yk__native_break(g, YK_ERR_MEMORY, "group '%s': %s is out of memory for a frame of %llu bytes from %s",
                                  g->name, self, bytes, who);
    else
        status = yk__native_break(g, YK_ERR_MEMORY,
                                  "group '%s': %s has sent %zu MiB of messages that no receive of %s has asked for",
                                  g->name, who, l->unclaimed >> 20, self);
    (void)status;
    yk_clear_error();
    yk__error_put(&before);
}

/* The bytes that came are not those that were sent: the group is broken, and the connection of no use. */
static void report_damage(native *g, yk__native_link *l, const char *why)
{
    yk_error before;
    yk__error_take(&before);
    yk_status status = yk__native_damaged(g, rank_of(g, l), false, why);
    (void)status;
    yk_clear_error();
    yk__error_put(&before);
    close_link(g, l, -1, why);
}

/* A frame's head is there. False when the connection is of no use any more. */
static bool frame_begins(native *g, yk__native_link *l)
{
    const control_frame *f = &l->in;
    bool claimable = f->type == CONTROL_MESSAGE || f->type == CONTROL_OFFER;
    enum refusal why = MALFORMED;
    l->in_left = f->bytes;
    l->in_node = NULL;
    l->in_begin = l->in_to = NULL;
    if (!is_well_formed(f)) {
        refuse_frame(g, l, MALFORMED);
        return false;
    }
    if (f->type == CONTROL_BYTES) {
        yk__native_message *m = message_of_offer(g, rank_of(g, l), f->number);
        size_t all = m ? yk__comm_message_bytes(&m->op) : 0;
        if (m && m->arrived + f->bytes <= all) {
            l->in_begin = l->in_to = (char *)m->op.out + m->arrived;
            return true;
        }
    } else if (claimable && l->unclaimed > unclaimed_limit) {
        why = UNCLAIMED;
    } else {
        l->in_node = calloc(1, sizeof(*l->in_node) + f->bytes + 1);
        if (l->in_node) {
            l->in_node->frame = *f;
            l->in_begin = l->in_to = l->in_node->bytes;
            return true;
        }
        why = NO_MEMORY;
    }
    refuse_frame(g, l, why);
    return false;
}

static void accepted(native *g, yk__native_link *l, uint64_t number)
{
    yk__native_message *m = g->messages;
    if (g->net->dropped)
        return; /* the message is about to end, and its memory to be its caller's again */
    while (m && (m->done || m->local_rank >= 0 || m->op.kind != YK__COMM_SEND || m->op.peer != rank_of(g, l) ||
                 m->op.number != number || !m->offer || m->accepted))
        m = m->next;
    if (m)
        m->accepted = true; /* once: the message ends, and its memory may go, when its last byte is sent */
    size_t all = m ? yk__comm_message_bytes(&m->op) : 0;
    for (size_t at = 0; at < all; at += CONTROL_PIECE) {
        size_t n = all - at < CONTROL_PIECE ? all - at : CONTROL_PIECE;
        control_frame frame = {.type = CONTROL_BYTES, .number = number, .bytes = n};
        if (!yk__native_control_enqueue(g, l, &frame, (const char *)m->op.in + at, at + n == all ? m : NULL)) {
            yk__native_abort(g, YK_ERR_MEMORY, "out of memory for a message");
            return;
        }
    }
}

static void frame_ends(native *g, yk__native_link *l)
{
    const control_frame *f = &l->in;
    control_arrived *node = l->in_node;
    l->in_node = NULL;
    switch (f->type) {
    case CONTROL_MESSAGE:
    case CONTROL_OFFER:
        l->unclaimed += yk__native_arrived_size(node);
        *l->arrived_end = node;
        l->arrived_end = &node->next;
        return;
    case CONTROL_ACCEPT: accepted(g, l, f->number); break;
    case CONTROL_BYTES: {
        yk__native_message *m = message_of_offer(g, rank_of(g, l), f->number);
        if (m)
            m->arrived += f->bytes;
        break;
    }
    case CONTROL_BROKEN: yk__native_abort(g, (yk_status)f->code, node->bytes); break;
    case CONTROL_LEFT:
        l->left = true;
        l->done = f->number;
        break;
    default:
        l->begun = f->number;
        l->waits_for = f->code;
        l->heard = yk__now();
        break;
    }
    free(node);
}

/* The head that is being received is whole: of the frame first, then of its payload. False when the connection is of no
 * use any more. */
static bool head_came(native *g, yk__native_link *l)
{
    char why[YK__WHY_SIZE];
    yk__frame_head head;
    unsigned char *payload = l->in_head + YK__FRAME_HEADER;
    bool first = l->in_fill == CONTROL_HEAD, right;
    if (first)
        right = yk__frame_open_head(l->control_receive, l->in_head, sizeof(l->in), &head, why) &&
                yk__frame_open(l->control_receive, &head, payload, why);
    else
        right = yk__frame_open_head(l->control_receive, l->in_head + CONTROL_HEAD, l->in.bytes, &l->in_payload, why);
    if (right && (first ? head.size != sizeof(l->in) : l->in_payload.size != l->in.bytes)) {
        snprintf(why, sizeof(why), "a frame of %zu bytes", first ? head.size : l->in_payload.size);
        right = false;
    }
    if (!right) {
        report_damage(g, l, why);
        return false;
    }
    if (first)
        memcpy(&l->in, payload, sizeof(l->in));
    if (!first || frame_begins(g, l))
        return true;
    close_link(g, l, -1, "it sent a frame that could not be taken");
    return false;
}

static void link_receive(native *g, yk__native_link *l)
{
    for (size_t taken = 0; l->control >= 0 && taken < READ_AT_ONCE;) {
        bool began = l->in_fill >= CONTROL_HEAD;
        size_t wanted = began && l->in.bytes ? CONTROL_HEAD + YK__FRAME_HEADER : CONTROL_HEAD;
        /* Memory of messages is gone once the group is broken: the rest of a message is not wanted. */
        if (began && l->in.type == CONTROL_BYTES && atomic_load(&g->head->broken))
            return;
        bool head = l->in_fill < wanted;
        char *to = head ? (char *)l->in_head + l->in_fill : l->in_to;
        size_t want = head ? wanted - l->in_fill : l->in_left;
        ssize_t n = want ? recv(l->control, to, want, 0) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (want && n <= 0) {
            int error = n == 0 ? 0 : errno;
            close_link(g, l, error, error ? strerror(error) : "");
            return;
        }
        taken += (size_t)n;
        if (head) {
            l->in_fill += (size_t)n;
            if (l->in_fill < wanted)
                continue;
            if (!head_came(g, l))
                return;
            if (!began && l->in.bytes)
                continue; /* the payload's header */
        } else {
            l->in_to += n;
            l->in_left -= (size_t)n;
        }
        if (l->in_left)
            continue;
        char why[YK__WHY_SIZE];
        if (l->in.bytes && !yk__frame_open(l->control_receive, &l->in_payload, l->in_begin, why)) {
            report_damage(g, l, why);
            return;
        }
        frame_ends(g, l);
        l->in_fill = 0;
    }
}

void yk__native_control_progress(native *g)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(g->net->epoll, events, EVENTS, 0);
    if (n <= 0)
        return;
    pthread_mutex_lock(&g->message_lock);
    for (int i = 0; i < n; i++) {
        yk__native_link *l = &g->net->links[events[i].data.u32];
        if (l->control >= 0 && (events[i].events & ~(uint32_t)EPOLLOUT))
            link_receive(g, l);
        if (l->control >= 0 && (events[i].events & EPOLLOUT))
            link_flush(g, l);
    }
    pthread_mutex_unlock(&g->message_lock);
}

void yk__native_control_wait(native *g, double seconds)
{
    struct pollfd entry = {.fd = g->net->epoll, .events = POLLIN};
    struct timespec limit = {.tv_sec = (time_t)seconds};
    limit.tv_nsec = (long)((seconds - (double)limit.tv_sec) * 1e9);
    ppoll(&entry, 1, &limit, NULL);
}

static bool unacknowledged(int fd)
{
    int bytes = 0;
    return fd >= 0 && ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

/* True if a rank that has not left has yet to get something. In a group that is not broken its system must have
 * acknowledged all, values of collectives too: a packet that it sends to a closed connection makes it drop what is
 * still on its way, and so does the end of a host (a container) where this process was the last. A rank that has left
 * wants nothing more. */
static bool outstanding(native *g, yk__native_link *l, bool whole)
{
    int unsent = 0;
    if (l->control < 0)
        return false;
    link_flush(g, l);
    if (whole)
        return !l->left && (l->out || unacknowledged(l->control) || (!l->data_gone && unacknowledged(l->data)));
    return l->out || (ioctl(l->control, SIOCOUTQNSD, &unsent) == 0 && unsent > 0);
}

void yk__native_control_flush(native *g, bool whole, double seconds)
{
    double begin = yk__now(), seen = 0;
    for (;;) {
        bool waits = false;
        begin += yk__standstill(&seen, yk__now());
        yk__native_control_progress(g);
        pthread_mutex_lock(&g->message_lock);
        for (int r = 0; r < g->world_size; r++)
            waits |= outstanding(g, &g->net->links[r], whole);
        pthread_mutex_unlock(&g->message_lock);
        double limit = yk__signal_pending() && seconds > NATIVE_SIGNAL_WAIT ? NATIVE_SIGNAL_WAIT : seconds;
        if (!waits || yk__now() - begin > limit)
            return;
        usleep(200);
    }
}
