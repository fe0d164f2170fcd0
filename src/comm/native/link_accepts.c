/*
 * link_accepts.c - the connections of higher ranks of other hosts, which a rank lets in. Layer: comm/native.
 *
 * Invariants: all that come are served side by side, so an unauthenticated connection that sends nothing delays nobody;
 * of those that have not said which rank they are the oldest goes when they are too many, one that has is kept.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "comm/native/links.h"

/* New connections before those that are there are served; the rest wait in the backlog. */
enum { ACCEPT_AT_ONCE = 16 };

void yk__native_incoming_drop(yk__native_joining_links *all, int i)
{
    yk__native_incoming *gone = all->incoming[i];
    all->incoming_count--;
    memmove(all->incoming + i, all->incoming + i + 1, (size_t)(all->incoming_count - i) * sizeof(*all->incoming));
    yk__socket_close(gone->fd);
    yk__channel_clear(&gone->channel);
    free(gone);
}

/* The oldest of an address, of any for NULL, that has not said who it is; -1: none. *count is how many there are. */
static int oldest(const yk__native_joining_links *all, const yk__address *from, int *count)
{
    int first = -1;
    *count = 0;
    for (int i = all->incoming_count - 1; i >= 0; i--) {
        const yk__native_incoming *one = all->incoming[i];
        if (one->named || (from && !yk__address_equal(&one->from, from)))
            continue;
        first = i;
        ++*count;
    }
    return first;
}

/* Counts one more connection from this address: where there are too many, of that address or of all, the oldest is
 * dropped. False: there is no room, because all are ranks. */
static bool make_room(yk__native_joining_links *all, const yk__address *from)
{
    int count, gone = oldest(all, from, &count);
    if (count < all->of_one_address)
        gone = all->incoming_count == all->room ? oldest(all, NULL, &count) : -1;
    if (gone >= 0)
        yk__native_incoming_drop(all, gone);
    return all->incoming_count < all->room;
}

static yk_status take(native *g, yk__native_joining_links *all, int fd, const yk__address *from)
{
    yk__socket_private(fd);
    yk__socket_tune(fd);
    yk__native_incoming *one = make_room(all, from) ? yk__calloc(1, sizeof(*one)) : NULL;
    if (!one) {
        yk__socket_close(fd);
        return yk__error_code();
    }
    one->fd = fd;
    one->from = *from;
    yk__channel_init(&one->channel, &g->net->identity, true, sizeof(yk__native_hello));
    all->incoming[all->incoming_count++] = one;
    return YK_OK;
}

yk_status yk__native_accept(native *g, yk__native_joining_links *all)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) { /* then those that are there are served */
        yk__address from = {.size = sizeof(from.storage)};
        int fd = accept4(g->net->listener, (struct sockaddr *)&from.storage, &from.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
            return YK_OK;
        int error = errno, count, first = oldest(all, NULL, &count);
        bool full = fd < 0 && (error == EMFILE || error == ENFILE);
        if (first >= 0 && (full || (fd >= 0 && yk__descriptor_is_reserved(fd)))) {
            yk__native_incoming_drop(all, first);
            if (full)
                continue;
        }
        errno = error;
        if (fd < 0)
            return yk__fail_errno("group '%s': rank %d takes no more connections at %s", g->name, g->rank,
                                  g->net->address);
        yk__address_set_port(&from, 0);
        yk_status status = take(g, all, fd, &from);
        if (status)
            return status;
    }
    return YK_OK;
}

void yk__native_incoming_hear(yk__native_joining_links *all, int i)
{
    yk__native_incoming *one = all->incoming[i];
    yk__channel *c = &one->channel;
    yk__reader reader;
    yk__channel_receive_exactly(c, one->fd);
    unsigned type = yk__channel_next(c, &reader);
    yk__channel_flush(c, one->fd); /* before it is dropped: the reason for the other side */
    if (!type && c->state == YK__REACHED)
        return;
    one->named = type == LINK_HELLO && !yk__channel_unsent(c) && reader.end - reader.at == (ptrdiff_t)sizeof(one->said);
    if (one->named)
        memcpy(&one->said, reader.at, sizeof(one->said));
    else
        yk__native_incoming_drop(all, i);
}

/* True if a peer with this hello is a rank that connects to this one. */
static bool is_expected(const native *g, const yk__comm_join_args *args, const yk__native_hello *h)
{
    return h->group == yk__native_group_hash(args) && h->to == g->rank && h->from > g->rank &&
           h->from < g->world_size && g->members[h->from].host != g->host && h->channel >= LINK_CONTROL &&
           h->channel <= yk__native_last_channel(g);
}

yk_status yk__native_incoming_adopt(native *g, yk__native_joining_links *all, int i, bool *came)
{
    yk__native_incoming *one = all->incoming[i];
    const yk__native_hello *said = &one->said;
    yk_status status = YK_OK;
    *came = false;
    if (is_expected(g, all->args, said)) {
        bool again = yk__native_link_abandon(&g->net->links[said->from], said->channel);
        status = yk__native_link_adopt(g, said->from, said->channel, one->fd, &one->channel);
        *came = !status && !again;
        one->fd = status ? one->fd : -1;
    }
    yk__native_incoming_drop(all, i);
    return status;
}
