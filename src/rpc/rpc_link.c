/*
 * rpc_link.c - connections between workers, and the thread that reads them. Layer: rpc.
 *
 * Invariants: a connection in the agent's list has one reference of the list; it leaves the list when it ends, and its
 * memory goes with the last future or call that names it. Only the I/O thread reads from the socket of a connection
 * that is in the list; any thread with the lock sends. What a peer makes this process remember is bounded: connections
 * that have not said who they are by yk__unauthenticated_limit and in time, calls and their bytes by the credit of Note
 * [Messages].
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "rpc/rpc_agent.h"
#include "rpc/rpc_devices.h"

/* GREETING: seconds for hand-shake and HELLO. The others are bytes: AHEAD wait in a channel, from which on no parts are
 * added; PIECE of a parcel are in a part; AT_ONCE are read or sent before the lock is given to others, which takes them
 * less than a millisecond. */
static const double GREETING = 10, TICK = 0.02;
enum { AHEAD = 64 << 10, PIECE = 32 << 10, AT_ONCE = 128 << 10, EVENTS = 64, ACCEPT_AT_ONCE = 32, MOST_PARCELS = 64 };

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void parcels_free(yk__rpc_parcel *parcel)
{
    for (yk__rpc_parcel *next; parcel; parcel = next) {
        next = parcel->next;
        free(parcel->data);
        free(parcel);
    }
}

static yk__rpc_link *link_new(int fd, bool accepted)
{
    yk__rpc_link *link = yk__calloc(1, sizeof(*link));
    if (!link)
        return NULL;
    link->references = 1;
    link->fd = fd;
    link->accepted = accepted;
    yk__channel_init(&link->channel, &yk__rpc.identity, accepted, YK__RPC_PART);
    return link;
}

void yk__rpc_link_release(yk__rpc_link *link)
{
    if (--link->references > 0)
        return;
    yk__channel_clear(&link->channel);
    yk__rpc_pair_clear(link);
    parcels_free(link->sending);
    parcels_free(link->arriving);
    free(link->ways);
    if (link->fd >= 0)
        yk__socket_close(link->fd);
    free(link);
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* True if messages go through memory. */
static bool link_is_shared(const yk__rpc_link *link)
{
    return link->pair && link->pair->open;
}

static void link_watch(yk__rpc_link *link)
{
    bool unsent = yk__channel_unsent(&link->channel) || (link->sending && !link_is_shared(link));
    uint32_t events = EPOLLIN | EPOLLRDHUP | (unsent ? (uint32_t)EPOLLOUT : 0u);
    if (events == link->events || link->fd < 0)
        return;
    struct epoll_event event = {.events = events, .data.ptr = link};
    if (epoll_ctl(yk__rpc.epoll, link->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, link->fd, &event) == 0)
        link->events = events;
}

/* True if an earlier parcel is for the same object, which may not be overtaken. */
static bool link_has_target(const yk__rpc_link *link, const yk__rpc_parcel *end, uint64_t target)
{
    for (const yk__rpc_parcel *p = link->sending; p && p != end; p = p->next)
        if (target && p->target == target)
            return true;
    return false;
}

enum { PART_HEAD = 17 };

/* Writes a part of a parcel, or all of it, into the ring; false where there is no room. */
static bool parcel_share_part(yk__rpc_link *link, yk__rpc_parcel *p)
{
    size_t left = p->size - p->done, room = YK__RING_MOST - PART_HEAD, part = left < room ? left : room;
    if (p->done == 0 && p->size <= YK__RING_MOST) {
        if (!yk__rpc_pair_put(link, p->type, NULL, 0, p->data, p->size))
            return false;
        p->done = p->size;
        return true;
    }
    unsigned char bytes[PART_HEAD];
    yk__wire head = {.data = bytes, .capacity = PART_HEAD};
    yk__wire_put_u64(&head, p->id);
    yk__wire_put_u64(&head, p->size);
    yk__wire_put_u8(&head, p->type);
    if (!yk__rpc_pair_put(link, YK__RPC_PART_OF, bytes, PART_HEAD, p->data + p->done, part))
        return false;
    p->done += part;
    return true;
}

/* The number of bytes of the part. */
static size_t parcel_send_part(yk__rpc_link *link, yk__rpc_parcel *p)
{
    size_t left = p->size - p->done, part = left < PIECE ? left : PIECE;
    yk__channel *c = &link->channel;
    if (p->done == 0 && p->size <= PIECE) {
        yk__channel_send(c, p->type, p->data, p->size);
        p->done = p->size;
        return part;
    }
    yk__channel_begin(c, YK__RPC_PART_OF);
    yk__wire_put_u64(&c->message, p->id);
    yk__wire_put_u64(&c->message, p->size);
    yk__wire_put_u8(&c->message, p->type);
    yk__wire_put(&c->message, p->data + p->done, part);
    yk__channel_end(c);
    p->done += part;
    return part;
}

/* Puts parts of the parcels into the channel in turn, as long as not much waits there and not much was sent, and
 * sends: a receiver that keeps up must not keep this thread here with the lock. */
void yk__rpc_link_pump(yk__rpc_link *link)
{
    yk__channel *c = &link->channel;
    for (size_t sent = 0;;) {
        if (yk__channel_flush(c, link->fd) != YK__REACHED) {
            yk__rpc_link_end(link, c->why);
            return;
        }
        yk__rpc_parcel **at = &link->sending;
        bool full = !*at || (!link_is_shared(link) && (c->out.size - c->sent >= AHEAD || sent >= AT_ONCE));
        if (full)
            break;
        while (*at && !full) {
            yk__rpc_parcel *p = *at;
            if (link_has_target(link, p, p->target)) {
                at = &p->next;
                continue;
            }
            if (link_is_shared(link)) {
                full = !parcel_share_part(link, p);
            } else {
                sent += parcel_send_part(link, p);
                full = c->out.size - c->sent >= AHEAD || sent >= AT_ONCE;
            }
            if (p->done < p->size) {
                at = &p->next;
                continue;
            }
            *at = p->next;
            free(p->data);
            free(p);
        }
        if (full && link_is_shared(link))
            break; /* the reader wakes this process when there is room */
    }
    link_watch(link);
}

bool yk__rpc_link_send(yk__rpc_link *link, unsigned type, uint64_t target, unsigned char *data, size_t size)
{
    if (link->fd < 0) {
        free(data);
        return false;
    }
    yk__progress_count(yk__rpc.counters.sent, (int64_t)size);
    if (link_is_shared(link) && size <= YK__RING_MOST && !link_has_target(link, NULL, target) &&
        yk__rpc_pair_put(link, type, NULL, 0, data, size)) {
        free(data);
        return true;
    }
    if (!link_is_shared(link) && size <= YK__RPC_PART && !link_has_target(link, NULL, target)) {
        yk__channel_send(&link->channel, type, data, size);
        free(data);
    } else {
        yk__rpc_parcel *p = calloc(1, sizeof(*p)), **at = &link->sending;
        if (!p) {
            free(data);
            yk__rpc_link_end(link, "out of memory");
            return false;
        }
        *p = (yk__rpc_parcel){.id = ++link->parcels, .target = target, .type = type, .data = data, .size = size};
        while (*at)
            at = &(*at)->next;
        *at = p;
    }
    yk__rpc_link_pump(link);
    return link->fd >= 0;
}

bool yk__rpc_link_unsent(const yk__rpc_link *link, uint64_t number)
{
    for (const yk__rpc_parcel *p = link->sending; p; p = p->next)
        if ((p->type & ~(unsigned)YK__RPC_LENT) == YK__RPC_CALL && p->size >= 8) {
            yk__reader r = {p->data, p->data + 8, false};
            if (yk__read_u64(&r) == number)
                return true;
        }
    return false;
}

bool yk__rpc_link_withdraw(yk__rpc_link *link, uint64_t number)
{
    for (yk__rpc_parcel **at = &link->sending; *at; at = &(*at)->next) {
        yk__rpc_parcel *p = *at;
        if ((p->type & ~(unsigned)YK__RPC_LENT) != YK__RPC_CALL || p->size < 8 || p->done)
            continue;
        yk__reader r = {p->data, p->data + 8, false};
        if (yk__read_u64(&r) != number)
            continue;
        *at = p->next;
        free(p->data);
        free(p);
        yk__rpc_lease_end(link, number);
        return true;
    }
    return false;
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

static void member_of_link_gone(const yk__rpc_link *link)
{
    for (int i = 0; i < yk__rpc.member_count; i++)
        if (yk__rpc.members[i].index == link->index)
            yk__rpc.members[i].gone = true;
}

void yk__rpc_link_end(yk__rpc_link *link, const char *why)
{
    if (link->fd < 0)
        return;
    snprintf(link->why, sizeof(link->why), "%s", why);
    if (link->ready)
        yk__log(YK_LOG_DEBUG, "rpc: the connection %s worker '%s' ended: %s", link->accepted ? "from" : "to",
                link->name, why);
    else
        yk__log(link->channel.handshake.state == YK__HANDSHAKE_HELLO ? YK_LOG_DEBUG /* a probe for a live worker */
                                                                     : YK_LOG_WARN,
                "rpc: a connection to this worker was dropped: %s", why);
    epoll_ctl(yk__rpc.epoll, EPOLL_CTL_DEL, link->fd, NULL);
    (void)yk__channel_flush(&link->channel, link->fd); /* a reason that the other side is to read */
    yk__socket_close(link->fd);
    link->fd = -1;
    /* A worker that connects and gives up before its first call, as its time was over, has not ended, and may hold
     * references by another connection. */
    bool counts = link->ready && (!link->accepted || link->used);
    if (counts && !yk__rpc.stopping)
        member_of_link_gone(link);
    link->references++;
    for (yk_future *f; (f = link->futures);) {
        bool unsent = f->progress == YK__RPC_UNSENT || yk__rpc_link_unsent(link, f->number);
        yk__rpc_future_fail(f, yk__rpc.stopping ? YK_ERR_STATE : YK_ERR_CONNECTION, "%s was not answered: %s; %s",
                            f->what, yk__rpc.stopping ? "this worker was shut down" : why,
                            unsent ? "it has not run" : "it may have run");
    }
    link->last_call = NULL;
    for (yk_call *call; (call = link->calls);) {
        link->calls = call->next_of_link;
        call->next_of_link = NULL;
        yk__rpc_serve_cancel(call);
    }
    if (link->accepted && counts)
        yk__rpc_serve_drop(link->index, 0);
    yk__rpc_unpin_all(link);
    yk__rpc_lease_end(link, 0);
    yk__loans_orphan(link);
    for (yk__rpc_link **at = &yk__rpc.links; *at; at = &(*at)->next)
        if (*at == link) {
            *at = link->next;
            link->references--;
            break;
        }
    pthread_cond_broadcast(&yk__rpc.changed);
    pthread_cond_broadcast(&yk__rpc.watching);
    yk__rpc_listeners_wake(YK__BELL_KINDS); /* those too that it was about to wake */
    yk__rpc_link_release(link);
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

static bool link_take_whole(yk__rpc_link *link, unsigned type, unsigned char *data, size_t size);

/* Takes a part; the entire message is taken when its last part is there. Memory grows with the bytes that have come. */
static bool link_take_part(yk__rpc_link *link, yk__reader *r)
{
    uint64_t id = yk__read_u64(r), whole = yk__read_u64(r);
    unsigned type = yk__read_u8(r);
    size_t part = (size_t)(r->end - r->at);
    if (r->bad || whole > yk__rpc.max_message || part == 0 || type == YK__RPC_PART_OF)
        return false;
    yk__rpc_parcel **at = &link->arriving;
    int count = 0;
    while (*at && (*at)->id != id) {
        at = &(*at)->next;
        count++;
    }
    yk__rpc_parcel *p = *at;
    if (!p && (count == MOST_PARCELS || !(p = *at = calloc(1, sizeof(*p)))))
        return false;
    if (p->size == 0)
        *p = (yk__rpc_parcel){.id = id, .type = type, .size = whole};
    if (p->size != whole || p->type != type || part > p->size - p->done)
        return false;
    if (p->done + part > p->capacity) {
        size_t capacity = p->capacity ? 2 * p->capacity : 4 * (size_t)YK__RPC_PART;
        capacity = capacity < p->size ? capacity : p->size;
        unsigned char *data = realloc(p->data, capacity);
        if (!data)
            return false;
        p->data = data;
        p->capacity = capacity;
    }
    memcpy(p->data + p->done, r->at, part);
    p->done += part;
    if (p->done < p->size)
        return true;
    *at = p->next;
    bool taken = link_take_whole(link, type, p->data, p->size);
    free(p);
    return taken;
}

/* `owned`: the payload is in memory that is taken over; else it is copied. */
static bool link_take_call(yk__rpc_link *link, const unsigned char *data, size_t size, bool lent, unsigned char *owned)
{
    /* Twice the credit: a call that the other side has cancelled counts no more there, and may do so here. */
    bool fits = link->call_count < 2 * YK__RPC_MOST_CALLS &&
                (link->call_count == 0 || size <= YK__RPC_SMALL || link->call_bytes < 2 * yk__rpc.most_bytes);
    unsigned char *copy = owned;
    if (!fits || !link->accepted || (!owned && !(copy = malloc(size ? size : 1)))) {
        free(owned);
        return false;
    }
    if (!owned)
        memcpy(copy, data, size);
    return yk__rpc_serve(link, NULL, copy, size, lent);
}

static bool link_take_cancel(yk__rpc_link *link, yk__reader *r)
{
    uint64_t number = yk__read_u64(r);
    for (yk_call *call = link->calls; call; call = call->next_of_link)
        if (call->number == number) {
            yk__rpc_serve_cancel(call);
            break;
        }
    return !r->bad && link->accepted;
}

/* Answers a ping, unless something is on its way already, which tells the peer as much. */
static bool link_take_ping(yk__rpc_link *link, yk__reader *r)
{
    uint64_t number = yk__read_u64(r);
    if (r->bad || !link->accepted)
        return false;
    if (link->sending || yk__channel_unsent(&link->channel)) /* it has news of this worker as soon as it reads */
        return true;
    yk__wire out = {0};
    yk__wire_put_u64(&out, number);
    if (out.failed)
        yk__wire_clear(&out);
    else
        yk__rpc_link_send(link, YK__RPC_PONG, 0, out.data, out.size);
    return true;
}

bool yk__rpc_link_take(yk__rpc_link *link, unsigned type, const unsigned char *data, size_t size)
{
    yk__reader r = {data, data + size, false};
    link->used = link->used || type != YK__RPC_SHARE;
    if (link->pinged > link->heard) /* whatever comes says that the worker is there */
        link->heard = yk__now();
    if (type != YK__RPC_PART_OF)
        yk__progress_count(yk__rpc.counters.received, (int64_t)size);
    switch (type) {
    case YK__RPC_CALL: return link_take_call(link, data, size, false, NULL);
    case YK__RPC_CALL | YK__RPC_LENT: return link_take_call(link, data, size, true, NULL);
    case YK__RPC_REPLY: return !link->accepted && yk__rpc_reply(link, &r, false, NULL);
    case YK__RPC_REPLY | YK__RPC_LENT: return !link->accepted && yk__rpc_reply(link, &r, true, NULL);
    case YK__RPC_CANCEL: return link_take_cancel(link, &r);
    case YK__RPC_PART_OF: return link_take_part(link, &r);
    case YK__RPC_TAKEN: {
        uint64_t first = yk__read_u64(&r);
        uint32_t count = yk__read_u32(&r);
        yk__rpc_unpin(link, first, count);
        return !r.bad;
    }
    case YK__RPC_RETURN:
    case YK__RPC_FORGET: {
        uint64_t number = yk__read_u64(&r);
        if (r.bad || number == 0)
            return false;
        if (type == YK__RPC_RETURN)
            yk__rpc_lease_end(link, number);
        else
            yk__loans_forget(link, number);
        return true;
    }
    case YK__RPC_PING: return link_take_ping(link, &r);
    case YK__RPC_PONG: return !link->accepted;
    case YK__RPC_SHARE: return yk__rpc_pair_take_offer(link, &r);
    case YK__RPC_DROP: {
        uint64_t id = yk__read_u64(&r);
        if (r.bad || id == 0 || !link->accepted)
            return false;
        yk__rpc_serve_drop(link->index, id);
        return true;
    }
    default: return false;
    }
}

/* The same with memory that is taken over: what came in parts is not copied with the lock held. */
static bool link_take_whole(yk__rpc_link *link, unsigned type, unsigned char *data, size_t size)
{
    bool lent = type & YK__RPC_LENT;
    yk__reader r = {data, data + size, false};
    unsigned plain = type & ~(unsigned)YK__RPC_LENT;
    if (plain != YK__RPC_CALL && (plain != YK__RPC_REPLY || link->accepted)) {
        bool taken = yk__rpc_link_take(link, type, data, size);
        free(data);
        return taken;
    }
    yk__progress_count(yk__rpc.counters.received, (int64_t)size);
    return plain == YK__RPC_CALL ? link_take_call(link, data, size, lent, data) : yk__rpc_reply(link, &r, lent, data);
}

/* Takes the first message of a connection that came in: the worker that calls, and the one that it takes this one
 * for. */
static bool link_take_hello(yk__rpc_link *link, yk__reader *r)
{
    uint32_t index = yk__read_u32(r), wanted = yk__read_u32(r);
    unsigned length = yk__read_u8(r);
    const unsigned char *name = yk__read_bytes(r, length);
    if (r->bad || !name || length == 0 || length >= YK__RPC_NAME || index == 0 || !yk__devices_read(r, link))
        return false;
    link->takes = (size_t)yk__read_u64(r);
    if (r->bad)
        return false;
    link->index = index;
    memcpy(link->name, name, length);
    link->name[length] = 0;
    snprintf(link->host, sizeof(link->host), "%s", link->channel.handshake.peer.host);
    link->pid = (int)link->channel.handshake.peer.pid;
    yk__channel *c = &link->channel;
    yk__channel_begin(c, YK__RPC_WELCOME);
    yk__wire_put_u32(&c->message, yk__rpc.index);
    yk__wire_put_text8(&c->message, yk__rpc.name);
    yk__wire_put_u64(&c->message, yk__rpc.max_message);
    yk__channel_end(c);
    if (wanted != yk__rpc.index) { /* it reads so in the answer */
        yk__rpc_link_pump(link);
        return false;
    }
    link->ready = true;
    link->deadline = 0;
    yk__socket_patience(link->fd, yk__rpc.timeout);
    yk__rpc_link_pump(link);
    return link->fd >= 0;
}

static void link_read(yk__rpc_link *link)
{
    yk__channel *c = &link->channel;
    link->references++;
    yk__reason state = yk__channel_receive(c, link->fd, AT_ONCE);
    yk__reader payload;
    for (unsigned type; link->fd >= 0 && (type = yk__channel_next(c, &payload));) {
        bool greeting = !link->ready;
        bool right = greeting ? type == YK__RPC_HELLO && link->accepted && link_take_hello(link, &payload)
                              : yk__rpc_link_take(link, type, payload.at, (size_t)(payload.end - payload.at));
        if (!right && link->fd >= 0)
            yk__rpc_link_end(link, "it sent a message that this version does not know, or more than it may");
    }
    bool ended = state != YK__REACHED || c->state != YK__REACHED;
    while (ended && link->fd >= 0 && link->pair && yk__rpc_pair_take(link)) {
        /* what it wrote before its end */
    }
    if (link->fd >= 0 && ended)
        yk__rpc_link_end(link, c->why);
    else if (link->fd >= 0)
        yk__rpc_link_pump(link);
    yk__rpc_link_release(link);
}

/* ---- accepting --------------------------------------------------------------------------------------------------- */

static void link_accept(void)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        int fd = accept4(yk__rpc.listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        int waiting = 0;
        yk__rpc_link *oldest = NULL;
        for (yk__rpc_link *l = yk__rpc.links; l; l = l->next)
            if (!l->ready) {
                waiting++;
                oldest = l; /* the list begins with the youngest */
            }
        if (waiting >= yk__unauthenticated_limit())
            yk__rpc_link_end(oldest, "there were too many connections that did not say who they are");
        YK__QUESTION;
        yk__rpc_link *link = yk__descriptor_is_reserved(fd) ? NULL : link_new(fd, true);
        if (!link) {
            close(fd);
            continue;
        }
        yk__socket_private(fd);
        yk__socket_tune(fd);
        link->deadline = yk__now() + GREETING;
        link->next = yk__rpc.links;
        yk__rpc.links = link;
        link_watch(link);
        if (!link->events)
            yk__rpc_link_end(link, "it cannot be waited for");
    }
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

static bool connecting_find(uint32_t index, int *at)
{
    for (*at = 0; *at < yk__rpc.connecting_count; ++*at)
        if (yk__rpc.connecting[*at] == index)
            return true;
    return false;
}

static yk_status connecting_begin(uint32_t index)
{
    uint32_t *all = yk__realloc(yk__rpc.connecting, (size_t)(yk__rpc.connecting_count + 1) * sizeof(*all));
    if (!all)
        return YK_ERR_MEMORY;
    yk__rpc.connecting = all;
    all[yk__rpc.connecting_count++] = index;
    return YK_OK;
}

static void connecting_end(uint32_t index)
{
    int at;
    if (connecting_find(index, &at))
        yk__rpc.connecting[at] = yk__rpc.connecting[--yk__rpc.connecting_count];
    pthread_cond_broadcast(&yk__rpc.changed);
}

static yk_status link_fail(const char *what, const yk__rpc_member *m, yk__reason reason, const char *why)
{
    return yk__fail(reason == YK__NO_ANSWER ? YK_ERR_TIMEOUT : YK_ERR_CONNECTION,
                    "%s: worker '%s' (host %s, process %d) %s: %s; it has not run", what, m->name, m->host, m->pid,
                    reason == YK__REFUSED ? "has ended" : "cannot be reached", why);
}

/* Connects and greets, once. NULL with the reason. */
static yk__rpc_link *link_greet(const yk__rpc_member *m, double deadline, yk__reason *reason, char why[YK__WHY_SIZE])
{
    int fd = yk__connect(&m->address, deadline, reason, why);
    yk__rpc_link *link = fd < 0 ? NULL : link_new(fd, false);
    if (!link) {
        yk__socket_close(fd);
        return NULL;
    }
    yk__channel *c = &link->channel;
    yk__channel_begin(c, YK__RPC_HELLO);
    yk__wire_put_u32(&c->message, yk__rpc.index);
    yk__wire_put_u32(&c->message, m->index);
    yk__wire_put_text8(&c->message, yk__rpc.name);
    yk__devices_put(&c->message, m);
    yk__wire_put_u64(&c->message, yk__rpc.max_message);
    yk__channel_end(c);
    unsigned type = 0;
    yk__reader r = {0};
    *reason = yk__channel_wait_open(c, fd, deadline);
    if (*reason == YK__REACHED)
        *reason = yk__channel_wait_message(c, fd, deadline, &type, &r);
    if (*reason != YK__REACHED) {
        snprintf(why, YK__WHY_SIZE, "%s", c->why);
    } else if (type != YK__RPC_WELCOME || yk__read_u32(&r) != m->index) {
        *reason = YK__REFUSED;
        snprintf(why, YK__WHY_SIZE, "another worker has its address now");
    } else {
        (void)yk__read_bytes(&r, yk__read_u8(&r)); /* its name */
        link->takes = (size_t)yk__read_u64(&r);
        link->ready = true;
        link->index = m->index;
        link->pid = m->pid;
        snprintf(link->name, sizeof(link->name), "%s", m->name);
        snprintf(link->host, sizeof(link->host), "%s", m->host);
        yk__socket_patience(fd, yk__rpc.timeout);
        if (strcmp(m->host, yk__rpc.identity.host) == 0)
            *reason = yk__rpc_pair_offer(link, deadline);
        if (*reason == YK__REACHED)
            return link;
        snprintf(why, YK__WHY_SIZE, "%s", c->why);
    }
    yk__rpc_link_release(link);
    return NULL;
}

/* The same without the lock, NULL and an error. A process that is just being killed still accepts connections and
 * closes them; the next attempt is refused. */
static yk__rpc_link *link_connect(const char *what, const yk__rpc_member *m, double deadline)
{
    enum { ATTEMPTS = 20, PAUSE = 10 /* milliseconds */ };
    yk__reason reason = YK__LOST;
    char why[YK__WHY_SIZE] = "out of memory";
    for (int attempt = 0; attempt < ATTEMPTS && reason == YK__LOST && yk__now() < deadline; attempt++) {
        if (attempt)
            poll(NULL, 0, PAUSE);
        yk__rpc_link *link = link_greet(m, deadline, &reason, why);
        if (link)
            return link;
    }
    if (reason == YK__REFUSED)
        yk__rpc_member_gone(m->index);
    link_fail(what, m, reason, why);
    return NULL;
}

yk__rpc_link *yk__rpc_link_to(const char *what, const yk__rpc_member *m, double deadline)
{
    for (;;) {
        for (yk__rpc_link *link = yk__rpc.links; link; link = link->next)
            if (!link->accepted && link->index == m->index)
                return link;
        int at;
        if (!connecting_find(m->index, &at))
            break;
        if (!yk__rpc_wait(&yk__rpc.changed, deadline)) {
            link_fail(what, m, YK__NO_ANSWER, "no connection in time");
            return NULL;
        }
        if (!yk__rpc.running) {
            yk__fail(YK_ERR_STATE, "%s: this worker was shut down", what);
            return NULL;
        }
    }
    if (connecting_begin(m->index))
        return NULL;
    pthread_mutex_unlock(&yk__rpc.lock);
    yk__rpc_link *link = link_connect(what, m, deadline);
    yk__rpc_lock();
    connecting_end(m->index);
    if (link && !yk__rpc.running) {
        yk__fail(YK_ERR_STATE, "%s: this worker was shut down", what);
        yk__rpc_link_release(link);
        link = NULL;
    }
    if (!link)
        return NULL;
    if (link->pair && !yk__rpc_helper_start())
        yk__rpc_pair_clear(link); /* over the socket then: the other side does as it is spoken to */
    link->next = yk__rpc.links;
    yk__rpc.links = link;
    link_watch(link);
    if (!link->events) {
        yk__rpc_link_end(link, "it cannot be waited for");
        yk__fail(YK_ERR_IO, "%s: the connection to worker '%s' cannot be waited for", what, m->name);
        return NULL;
    }
    return link;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static bool link_is_listed(const yk__rpc_link *link)
{
    for (const yk__rpc_link *l = yk__rpc.links; l; l = l->next)
        if (l == link)
            return true;
    return false;
}

static void io_event(const struct epoll_event *event)
{
    if (event->data.ptr == &yk__rpc.listen_fd) {
        link_accept();
        return;
    }
    if (event->data.ptr == &yk__rpc.wake) {
        eventfd_t count;
        eventfd_read(yk__rpc.wake, &count);
        return;
    }
    yk__rpc_link *link = event->data.ptr;
    if (!link_is_listed(link)) /* it ended by an event before */
        return;
    if (event->events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP))
        link_read(link);
    else
        yk__rpc_link_pump(link);
}

/* Ends calls whose time is over, and connections that did not say who they are; true while there are any of these. */
static bool io_tick(void)
{
    double now = yk__now();
    bool waits = yk__rpc_futures_expire(now) > 0;
    waits = yk__keep_tick(now) || waits;
    for (yk__rpc_link *link = yk__rpc.links, *next; link; link = next) {
        next = link->next;
        if (link->ready)
            continue;
        waits = true;
        if (link->deadline <= now)
            yk__rpc_link_end(link, "it did not say who it is in time");
    }
    return waits;
}

/* Sends what is queued, at the end, for a second at most. */
static void io_drain(void)
{
    double deadline = yk__now() + 1;
    for (bool unsent = true; unsent && yk__now() < deadline;) {
        unsent = false;
        for (yk__rpc_link *link = yk__rpc.links, *next; link; link = next) {
            next = link->next;
            yk__rpc_link_pump(link);
        }
        for (yk__rpc_link *link = yk__rpc.links; link; link = link->next)
            unsent = unsent || link->sending || yk__channel_unsent(&link->channel);
        if (unsent)
            poll(NULL, 0, 1);
    }
    while (yk__rpc.links)
        yk__rpc_link_end(yk__rpc.links, "this worker was shut down");
}

/* Takes the lock after those who wait for it, or after a while. */
static void io_lock(void)
{
    const double most = 3e-4; /* seconds, by the clock: on a busy machine one pause may take longer */
    const struct timespec pause = {.tv_nsec = 20000};
    for (double until = 0; atomic_load(&yk__rpc.queuing);) {
        double now = yk__now();
        until = until > 0 ? until : now + most;
        if (now >= until)
            break;
        nanosleep(&pause, NULL);
    }
    yk__rpc_lock();
}

void *yk__rpc_io_run(void *arg)
{
    (void)arg;
    prctl(PR_SET_TIMERSLACK, 1000);
    yk_scope scope = yk_scope_begin();
    struct epoll_event events[EVENTS];
    double ticked = yk__now();
    yk__rpc_lock();
    while (!yk__rpc.stopping) {
        int epoll = yk__rpc.epoll, pause = yk__rpc.ticking ? (int)(TICK * 1e3) : -1;
        pthread_mutex_unlock(&yk__rpc.lock);
        int count = epoll_wait(epoll, events, EVENTS, pause);
        io_lock();
        for (int i = 0; i < count; i++)
            io_event(&events[i]);
        double now = yk__now();
        if (now - ticked >= TICK || !yk__rpc.ticking) {
            yk__rpc.ticking = io_tick();
            ticked = now;
        }
        yk__rpc_loans_send();
        yk_clear_error(); /* the fault of one connection is in the log */
    }
    io_drain();
    pthread_mutex_unlock(&yk__rpc.lock);
    yk_scope_end(scope);
    return NULL;
}
