/*
 * store_server.c - sockets, the loop and its deadlines around the sessions of a TCP store. Layer: net.
 *
 * Invariants: everything but the stop signal happens on the server's thread. No peer can stop the others from being
 * served: a connection is read 64 KiB at a time, one whose replies are not taken is read no further, and those that are
 * not authenticated are limited in number, each address having half of it, and in time; the oldest goes first. Nor can
 * they take what the process needs for itself: see descriptors.c. A connection that was dropped lives until the events
 * that came with it have been looked at.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "net/store_keeping.h"
#include "net/store_server.h"
#include "net/store_session.h"

/* BACKLOG: all ranks of a job may connect in one moment; the system cuts it to net.core.somaxconn. ACCEPT_AT_ONCE: then
 * clients that are connected have their turn. READ_SIZE: of a buffer on the stack; larger requests take several reads.
 * EVENTS: of one call; those beyond it come with the next. */
enum { BACKLOG = 4096, ACCEPT_AT_ONCE = 64, READ_SIZE = 1 << 16, EVENTS = 256 };
static const double TICK = 0.1; /* seconds between looks at deadlines, while there are any */

typedef struct connection {
    yk__store_server *server;
    yk__session session;
    int fd;          /* -1: dropped */
    uint32_t events; /* that are waited for; 0: none yet */
    bool unauthenticated, dirty, held;
    bool ended;       /* the peer's system has closed the connection in order */
    double deadline;  /* while unauthenticated; of one that has a lease: when that is over */
    yk__address from; /* the port cleared */
    yk__address near, far;
    struct connection *previous, *next, *next_dirty;
} connection;

typedef struct list {
    connection *first, *last; /* oldest first */
    size_t count;
} list;

struct yk__store_server {
    pthread_t thread;
    int epoll, listen_fd;
    int stop; /* an eventfd, written by yk__store_server_stop */
    bool accept_paused, stopping, ticking;
    yk__store_server_options options;
    double ticked; /* while ticking: the last look at deadlines */
    yk__address address;
    yk__identity identity;
    yk__keyspace space;
    yk__keeping keeping;
    bool held;                     /* some have answers that they do not get so far */
    list unauthenticated, members; /* before and after authentication */
    connection *dirty;             /* have something to send since another's change */
    connection *dropped;           /* to be freed, linked by `next` */
    char name[YK__ADDRESS_TEXT];
    unsigned char buffer[READ_SIZE];
};

static void list_append(list *l, connection *c)
{
    c->previous = l->last;
    c->next = NULL;
    *(l->last ? &l->last->next : &l->first) = c;
    l->last = c;
    l->count++;
}

static void list_remove(list *l, connection *c)
{
    *(c->previous ? &c->previous->next : &l->first) = c->next;
    *(c->next ? &c->next->previous : &l->last) = c->previous;
    l->count--;
}

/* ---- connections ----------------------------------------------------------------------------------------------- */
/* Ends the lease of a connection, with the fault of the connection where that is known. */
static void end_lease(connection *c)
{
    char text[YK__WHY_SIZE];
    const yk__channel *channel = &c->session.channel;
    bool damaged = channel->state == YK__DAMAGED, broken = !damaged && c->session.broken[0];
    if (damaged)
        yk__damaged_connection("", &c->far, "", &c->near, channel->why, text);
    else if (broken)
        yk__damaged_connection("", &c->near, "", &c->far, c->session.broken, text);
    yk__session_end_lease(&c->session, damaged || broken ? YK__LEASE_DAMAGED : YK__LEASE_ENDED, text);
}

static void connection_drop(connection *c)
{
    if (c->fd < 0)
        return;
    yk__store_server *server = c->server;
    list_remove(c->unauthenticated ? &server->unauthenticated : &server->members, c);
    if (c->session.channel.why[0])
        yk__log(YK_LOG_WARN, "store tcp://%s: %s was dropped: %s", server->name,
                c->unauthenticated ? "a peer" : "a client", c->session.channel.why);
    if (c->unauthenticated && server->options.refused && c->session.channel.state == YK__REJECTED &&
        !c->session.channel.handshake.garbage)
        server->options.refused(server->options.arg, c->session.channel.why);
    if (!server->stopping)
        end_lease(c);
    yk__keeping_ended(&server->keeping, &c->session, c->ended);
    yk__session_clear(&c->session);
    /* Closing alone is not enough where a fork has just copied the descriptor: events would go on to come. */
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    yk__socket_close(c->fd);
    c->fd = -1;
    c->next = server->dropped;
    server->dropped = c;
}

/* Waits for these events of a descriptor, instead of what it did. `which` comes back with them. */
static bool watch(const yk__store_server *server, int fd, bool first, uint32_t events, void *which)
{
    struct epoll_event event = {.events = events, .data.ptr = which};
    return epoll_ctl(server->epoll, first ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0;
}

static void watch_events(connection *c)
{
    bool sending = !c->held && yk__channel_unsent(&c->session.channel);
    uint32_t events =
        EPOLLRDHUP | (yk__session_accepts(&c->session) ? (uint32_t)EPOLLIN : 0u) | (sending ? (uint32_t)EPOLLOUT : 0u);
    bool first = c->events == 0;
    if (events == c->events)
        return;
    c->events = events;
    if (!watch(c->server, c->fd, first, events, c))
        connection_drop(c);
}

/* Sends what there is; false when the connection was dropped. */
static bool flush(connection *c)
{
    yk__session *s = &c->session;
    c->held = s->channel.open && !c->unauthenticated && yk__channel_unsent(&s->channel) &&
              !yk__keeping_lets(&c->server->keeping, s);
    if (c->held) {
        c->server->held = true;
        return true;
    }
    if (yk__channel_flush(&s->channel, c->fd) == YK__LOST) {
        connection_drop(c);
        return false;
    }
    if (s->closing && !yk__channel_unsent(&s->channel)) {
        shutdown(c->fd, SHUT_WR); /* so that the reason arrives before the end does */
        connection_drop(c);
        return false;
    }
    return true;
}

/* Takes bytes, goes on with those that had to wait for room, and sends: until nothing more can be done now. */
static void start_ticking(yk__store_server *server);

static void requests_serve(connection *c, const void *data, size_t size)
{
    bool had_lease = c->session.lease.size > 0, came = size > 0;
    for (bool held = true; held; size = 0) {
        if (!yk__session_receive(&c->session, data, size)) {
            connection_drop(c);
            return;
        }
        if (c->unauthenticated && c->session.channel.open) {
            list_remove(&c->server->unauthenticated, c);
            list_append(&c->server->members, c);
            c->unauthenticated = false;
            yk__socket_patience(c->fd, c->server->options.silence);
        }
        held = !yk__session_accepts(&c->session) && !yk__session_blocked(&c->session);
        if (!flush(c))
            return;
        held = held && yk__session_accepts(&c->session);
    }
    if (c->server->keeping.on && !c->server->ticking)
        start_ticking(c->server);
    if (c->session.lease.size && c->session.silence > 0 && (came || !had_lease)) {
        c->deadline = yk__now() + c->session.silence;
        if (!had_lease)
            start_ticking(c->server);
    }
    watch_events(c);
}

static void serve_marked(yk__store_server *server)
{
    for (connection *c; (c = server->dirty);) {
        server->dirty = c->next_dirty;
        c->dirty = false;
        if (c->fd >= 0)
            requests_serve(c, NULL, 0);
    }
}

static void on_woken(yk__session *session);

/* Serves those for whom others' changes have something; and those whose answers can go out by now. */
static void serve_dirty(yk__store_server *server)
{
    serve_marked(server);
    if (!server->held || !yk__keeping_lets(&server->keeping, &(yk__session){.follows = 0}))
        return;
    server->held = false;
    for (connection *c = server->members.first; c; c = c->next)
        if (c->held)
            on_woken(&c->session);
    serve_marked(server);
}

static void on_woken(yk__session *session)
{
    connection *c = session->user;
    if (c->dirty)
        return;
    c->dirty = true;
    c->next_dirty = c->server->dirty;
    c->server->dirty = c;
}

static void on_event(connection *c, uint32_t events)
{
    yk__store_server *server = c->server;
    if (events & EPOLLERR) {
        /* A connection that was reset: what came before the end is still processed. */
        ssize_t got;
        while (c->fd >= 0 && (got = recv(c->fd, server->buffer, sizeof(server->buffer), 0)) > 0)
            requests_serve(c, server->buffer, (size_t)got);
        connection_drop(c);
    } else if (events & EPOLLIN) {
        ssize_t got = recv(c->fd, server->buffer, sizeof(server->buffer), 0);
        if (got > 0)
            requests_serve(c, server->buffer, (size_t)got);
        else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            c->ended = got == 0;
            connection_drop(c);
        }
    } else if (events & (EPOLLRDHUP | EPOLLHUP)) {
        connection_drop(c);
    } else {
        requests_serve(c, NULL, 0);
    }
    serve_dirty(server);
}

/* ---- accepting ------------------------------------------------------------------------------------------------- */
static void start_ticking(yk__store_server *server)
{
    if (!server->ticking)
        server->ticked = yk__now();
    server->ticking = true;
}

/* The oldest unauthenticated connection of this address, or of any for NULL; *count is how many there are. */
static connection *oldest_unauthenticated(const yk__store_server *server, const yk__address *from, int *count)
{
    connection *oldest = NULL;
    *count = 0;
    for (connection *c = server->unauthenticated.first; c; c = c->next) {
        if (from && !yk__address_equal(&c->from, from))
            continue;
        oldest = oldest ? oldest : c;
        ++*count;
    }
    return oldest;
}

/* One unauthenticated connection too many: of its own address, or of all. */
static void limit_unauthenticated(yk__store_server *server, const yk__address *from)
{
    int most = yk__unauthenticated_limit(), count;
    connection *oldest =
        (int)server->unauthenticated.count > most / 2 ? oldest_unauthenticated(server, from, &count) : NULL;
    if (oldest && count > most / 2)
        connection_drop(oldest);
    else if ((int)server->unauthenticated.count > most)
        connection_drop(server->unauthenticated.first);
}

static void greet(yk__store_server *server, int fd, const yk__address *from)
{
    connection *c = calloc(1, sizeof(*c));
    if (!c) {
        yk__socket_close(fd);
        return;
    }
    yk__socket_tune(fd);
    c->server = server;
    c->fd = fd;
    c->unauthenticated = true;
    c->far = c->from = *from;
    yk__address_set_port(&c->from, 0);
    c->near.size = sizeof(c->near.storage);
    if (getsockname(fd, (struct sockaddr *)&c->near.storage, &c->near.size))
        c->near = server->address;
    c->deadline = yk__now() + server->options.patience;
    yk__session_init(&c->session, &server->space, &server->identity);
    c->session.keeping = &server->keeping;
    c->session.woken = on_woken;
    c->session.user = c;
    list_append(&server->unauthenticated, c);
    start_ticking(server);
    watch_events(c);
    limit_unauthenticated(server, &c->from);
}

static void pause_accepting(yk__store_server *server)
{
    yk__log(YK_LOG_WARN, "store tcp://%s: no descriptor or memory for one more client of %zu", server->name,
            server->members.count);
    (void)!watch(server, server->listen_fd, false, 0, &server->listen_fd); /* the tick goes on: the loop would spin */
    server->accept_paused = true;
    start_ticking(server);
}

static void on_connection(yk__store_server *server)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        yk__address from = {.size = sizeof(from.storage)};
        int fd = accept4(server->listen_fd, (struct sockaddr *)&from.storage, &from.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        bool full = fd < 0 && (errno == EMFILE || errno == ENFILE);
        if (full || (fd >= 0 && yk__descriptor_is_reserved(fd))) {
            bool gained = server->unauthenticated.first != NULL;
            if (gained)
                connection_drop(server->unauthenticated.first);
            if (fd >= 0)
                close(fd); /* a client tries again */
            if (gained)
                continue;
            pause_accepting(server);
            return;
        }
        if (fd >= 0) {
            yk__socket_private(fd);
            greet(server, fd, &from);
            continue;
        }
        if (errno == EAGAIN)
            return;
        if (errno == ENOMEM || errno == ENOBUFS) {
            pause_accepting(server);
            return;
        }
    }
}

static void on_tick(yk__store_server *server, double now)
{
    double late = now - server->ticked - TICK;
    bool leases = false;
    server->ticked = now;
    while (server->unauthenticated.first && server->unauthenticated.first->deadline <= now)
        connection_drop(server->unauthenticated.first);
    for (connection *c = server->members.first; c; c = c->next) {
        if (!c->session.lease.size || !(c->session.silence > 0))
            continue;
        /* Data that came while this process stood still are read first, and others may have stood still with it. */
        c->deadline += late >= TICK ? late : 0;
        if (c->deadline <= now)
            yk__session_end_lease(&c->session, YK__LEASE_SILENT, NULL);
        else
            leases = true;
    }
    if (server->accept_paused) {
        server->accept_paused = false;
        (void)!watch(server, server->listen_fd, false, EPOLLIN, &server->listen_fd);
    }
    yk__keeping_tick(&server->keeping);
    server->ticking = server->unauthenticated.first || leases || server->keeping.on;
    serve_dirty(server);
}

/* ---- the thread ------------------------------------------------------------------------------------------------ */
static void free_dropped(yk__store_server *server)
{
    for (connection *c; (c = server->dropped);) {
        server->dropped = c->next;
        free(c);
    }
}

static void *server_run(void *arg)
{
    yk__store_server *server = arg;
    struct epoll_event events[EVENTS];
    while (!server->stopping) {
        double left = server->ticked + TICK - yk__now();
        int count = epoll_wait(server->epoll, events, EVENTS,
                               !server->ticking ? -1
                               : left > 0       ? (int)(left * 1e3) + 1
                                                : 0);
        for (int i = 0; i < count; i++) {
            connection *c = events[i].data.ptr;
            if (events[i].data.ptr == &server->stop)
                server->stopping = true;
            else if (events[i].data.ptr == &server->listen_fd)
                on_connection(server);
            else if (c->fd >= 0)
                on_event(c, events[i].events);
        }
        serve_dirty(server);
        free_dropped(server);
        double now = yk__now();
        if (server->ticking && now >= server->ticked + TICK)
            on_tick(server, now);
        free_dropped(server);
    }
    while (server->unauthenticated.first)
        connection_drop(server->unauthenticated.first);
    while (server->members.first)
        connection_drop(server->members.first);
    free_dropped(server);
    return NULL;
}

static void server_free(yk__store_server *server)
{
    yk__socket_close(server->listen_fd);
    if (server->epoll >= 0)
        close(server->epoll);
    if (server->stop >= 0)
        close(server->stop);
    yk__keyspace_clear(&server->space);
    yk__keeping_clear(&server->keeping);
    yk__identity_clear(&server->identity);
    free(server);
}

static int start_thread(yk__store_server *server)
{
    int failed = yk__thread_create(&server->thread, server_run, server);
    if (!failed)
        pthread_setname_np(server->thread, "yoke-store");
    return failed;
}

int yk__store_server_listen(const yk__address *address, yk__address *bound)
{
    return yk__listen(address, BACKLOG, bound);
}

yk__store_server *yk__store_server_start(const yk__address *address, const yk__identity *identity,
                                         const yk__store_server_options *options, yk__address *bound)
{
    /* Its own three, and some clients: with fewer each of them would only be turned away. */
    if (yk__descriptors_need("the store's server", 16))
        return NULL;
    int fd = yk__store_server_listen(address, bound);
    return fd < 0 ? NULL : yk__store_server_serve(fd, bound, identity, options);
}

yk__store_server *yk__store_server_serve(int fd, const yk__address *bound, const yk__identity *identity,
                                         const yk__store_server_options *options)
{
    yk__store_server *server = yk__calloc(1, sizeof(*server));
    if (!server) {
        yk__socket_close(fd);
        return NULL;
    }
    server->listen_fd = fd;
    server->address = *bound;
    server->options = *options;
    server->identity = *identity;
    yk__keeping_init(&server->keeping, &server->space);
    atomic_init(&server->keeping.standby, options->standby);
    yk__address_format(bound, server->name);
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->epoll < 0 || server->stop < 0 || !watch(server, server->stop, true, EPOLLIN, &server->stop) ||
        !watch(server, fd, true, EPOLLIN, &server->listen_fd) || (errno = start_thread(server))) {
        yk__fail_errno("store tcp://%s: its thread does not start", server->name);
        server_free(server);
        return NULL;
    }
    return server;
}

void yk__store_server_admit(yk__store_server *server)
{
    atomic_store(&server->keeping.standby, false);
}

double yk__store_server_heard(const yk__store_server *server)
{
    return atomic_load(&server->keeping.heard);
}

double yk__store_server_heard_of(yk__store_server *server, uint64_t follower)
{
    return yk__keeping_heard_of(&server->keeping, follower);
}

uint64_t yk__store_server_taken(const yk__store_server *server)
{
    return atomic_load(&server->keeping.taken);
}

void yk__store_server_stop(yk__store_server *server)
{
    if (!server)
        return;
    eventfd_write(server->stop, 1);
    pthread_join(server->thread, NULL);
    server_free(server);
}
