/*
 * store_server.c - sockets, the loop and its deadlines around the sessions of a TCP store. Layer: net.
 *
 * Invariants: everything but the stop signal happens on the server's thread. No peer can stop the others from being
 * served: a connection is read 64 KiB at a time, one whose replies are not taken is read no further, and those that are
 * not authenticated are limited in number, each address having half of it, and in time; the oldest goes first. Nor can
 * they take what the process needs for itself: see descriptors.c.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uv.h>

#include "base/log.h"
#include "net/store_server.h"
#include "net/store_session.h"

enum { BACKLOG = 4096, ACCEPT_AT_ONCE = 64, READ_SIZE = 1 << 16, TICK_MS = 100 };

typedef struct connection {
    uv_poll_t poll;
    yk__store_server *server;
    yk__session session;
    int fd;     /* -1: dropped, freed when the loop has let go of it */
    int events; /* that the loop watches */
    bool unauthenticated, dirty;
    double deadline;  /* while unauthenticated; of one that has a lease: when that is over */
    yk__address from; /* the port cleared */
    struct connection *previous, *next, *next_dirty;
} connection;

typedef struct list {
    connection *first, *last; /* oldest first */
    size_t count;
} list;

struct yk__store_server {
    uv_loop_t loop;
    uv_async_t stop;
    uv_poll_t listener;
    uv_timer_t timer;
    pthread_t thread;
    int listen_fd;
    bool accept_paused, stopping;
    yk__store_server_options options;
    double ticked; /* when the timer last ran */
    yk__identity identity;
    yk__keyspace space;
    list unauthenticated, members; /* before and after authentication */
    connection *dirty;             /* have something to send since another's change */
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
static void connection_free(uv_handle_t *handle)
{
    free(handle->data);
}

static void drop(connection *c)
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
        yk__session_end_lease(&c->session, false);
    yk__session_clear(&c->session);
    uv_poll_stop(&c->poll);
    yk__socket_close(c->fd);
    c->fd = -1;
    uv_close((uv_handle_t *)&c->poll, connection_free);
}

static void on_event(uv_poll_t *poll, int status, int events);

static void watch_events(connection *c)
{
    bool sending = yk__channel_unsent(&c->session.channel);
    int events = UV_DISCONNECT | (yk__session_accepts(&c->session) ? UV_READABLE : 0) | (sending ? UV_WRITABLE : 0);
    if (events == c->events)
        return;
    c->events = events;
    if (uv_poll_start(&c->poll, events, on_event) < 0)
        drop(c);
}

/* Sends what there is; false when the connection was dropped. */
static bool flush(connection *c)
{
    yk__session *s = &c->session;
    if (yk__channel_flush(&s->channel, c->fd) == YK__LOST) {
        drop(c);
        return false;
    }
    if (s->closing && !yk__channel_unsent(&s->channel)) {
        shutdown(c->fd, SHUT_WR); /* so that the reason arrives before the end does */
        drop(c);
        return false;
    }
    return true;
}

/* Takes bytes, goes on with those that had to wait for room, and sends: until nothing more can be done now. */
static void start_ticking(yk__store_server *server);

static void serve(connection *c, const void *data, size_t size)
{
    bool had_lease = c->session.lease.size > 0;
    for (bool held = true; held; size = 0) {
        if (!yk__session_receive(&c->session, data, size)) {
            drop(c);
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
    if (c->session.lease.size && c->session.silence > 0) {
        c->deadline = yk__now() + c->session.silence;
        if (!had_lease)
            start_ticking(c->server);
    }
    watch_events(c);
}

static void serve_dirty(yk__store_server *server)
{
    for (connection *c; (c = server->dirty);) {
        server->dirty = c->next_dirty;
        c->dirty = false;
        if (c->fd >= 0)
            serve(c, NULL, 0);
    }
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

static void on_event(uv_poll_t *poll, int status, int events)
{
    connection *c = poll->data;
    yk__store_server *server = c->server;
    if (status < 0) {
        drop(c);
    } else if (events & UV_READABLE) {
        ssize_t got = recv(c->fd, server->buffer, sizeof(server->buffer), 0);
        if (got > 0)
            serve(c, server->buffer, (size_t)got);
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
            drop(c);
    } else if (events & UV_DISCONNECT) {
        drop(c);
    } else {
        serve(c, NULL, 0);
    }
    serve_dirty(server);
}

/* ---- accepting ------------------------------------------------------------------------------------------------- */
static void on_tick(uv_timer_t *timer);

static void start_ticking(yk__store_server *server)
{
    if (!uv_is_active((uv_handle_t *)&server->timer))
        uv_timer_start(&server->timer, on_tick, TICK_MS, TICK_MS);
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
        drop(oldest);
    else if ((int)server->unauthenticated.count > most)
        drop(server->unauthenticated.first);
}

static void greet(yk__store_server *server, int fd, const yk__address *from)
{
    connection *c = calloc(1, sizeof(*c));
    if (!c || uv_poll_init(&server->loop, &c->poll, fd) < 0) {
        free(c);
        yk__socket_close(fd);
        return;
    }
    yk__socket_tune(fd);
    c->poll.data = c;
    c->server = server;
    c->fd = fd;
    c->unauthenticated = true;
    c->from = *from;
    c->deadline = yk__now() + server->options.patience;
    yk__session_init(&c->session, &server->space, &server->identity);
    c->session.woken = on_woken;
    c->session.user = c;
    list_append(&server->unauthenticated, c);
    start_ticking(server);
    watch_events(c);
    limit_unauthenticated(server, from);
}

static void pause_accepting(yk__store_server *server)
{
    yk__log(YK_LOG_WARN, "store tcp://%s: no descriptor or memory for one more client of %zu", server->name,
            server->members.count);
    uv_poll_stop(&server->listener); /* the tick goes on with it: the loop would spin */
    server->accept_paused = true;
    start_ticking(server);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    yk__store_server *server = poll->data;
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) {
        yk__address from = {.size = sizeof(from.storage)};
        int fd = accept4(server->listen_fd, (struct sockaddr *)&from.storage, &from.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        bool full = fd < 0 && (errno == EMFILE || errno == ENFILE);
        if (full || (fd >= 0 && yk__descriptor_is_reserved(fd))) {
            bool gained = server->unauthenticated.first != NULL;
            if (gained)
                drop(server->unauthenticated.first);
            if (fd >= 0)
                close(fd); /* a client tries again */
            if (gained)
                continue;
            pause_accepting(server);
            return;
        }
        if (fd >= 0) {
            yk__address_set_port(&from, 0);
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

static void on_tick(uv_timer_t *timer)
{
    yk__store_server *server = timer->data;
    double now = yk__now(), late = now - server->ticked - 1e-3 * TICK_MS;
    bool leases = false;
    server->ticked = now;
    while (server->unauthenticated.first && server->unauthenticated.first->deadline <= now)
        drop(server->unauthenticated.first);
    for (connection *c = server->members.first; c; c = c->next) {
        if (!c->session.lease.size || !(c->session.silence > 0))
            continue;
        /* Where this process was stopped, what came meanwhile is read first. */
        if (c->deadline <= now && late < 1e-3 * TICK_MS)
            yk__session_end_lease(&c->session, true);
        else
            leases = true;
    }
    if (server->accept_paused) {
        server->accept_paused = false;
        uv_poll_start(&server->listener, UV_READABLE, on_connection);
    }
    if (!server->unauthenticated.first && !leases)
        uv_timer_stop(timer);
    serve_dirty(server);
}

/* ---- the thread ------------------------------------------------------------------------------------------------ */
static void on_stop(uv_async_t *async)
{
    yk__store_server *server = async->data;
    server->stopping = true;
    while (server->unauthenticated.first)
        drop(server->unauthenticated.first);
    while (server->members.first)
        drop(server->members.first);
    uv_poll_stop(&server->listener);
    yk__socket_close(server->listen_fd);
    server->listen_fd = -1;
    uv_close((uv_handle_t *)&server->listener, NULL);
    uv_close((uv_handle_t *)&server->timer, NULL);
    uv_close((uv_handle_t *)&server->stop, NULL);
}

static void *server_run(void *arg)
{
    yk__store_server *server = arg;
    uv_run(&server->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void server_free(yk__store_server *server)
{
    yk__socket_close(server->listen_fd);
    yk__keyspace_clear(&server->space);
    yk__identity_clear(&server->identity);
    free(server);
}

/* Closes what was opened of the loop before the thread ran. */
static void loop_abandon(yk__store_server *server)
{
    on_stop(&server->stop);
    uv_run(&server->loop, UV_RUN_DEFAULT);
    uv_loop_close(&server->loop);
}

yk__store_server *yk__store_server_start(const yk__address *address, const yk__identity *identity,
                                         const yk__store_server_options *options, yk__address *bound)
{
    /* The loop has six descriptors of its own; libuv ends the process where some of them are not to be had. */
    if (yk__descriptors_need("the store's server", 16))
        return NULL;
    int fd = yk__listen(address, BACKLOG, bound);
    if (fd < 0)
        return NULL;
    yk__store_server *server = yk__calloc(1, sizeof(*server));
    if (!server) {
        yk__socket_close(fd);
        return NULL;
    }
    server->listen_fd = fd;
    server->options = *options;
    server->identity = *identity;
    yk__address_format(bound, server->name);
    int failed = uv_loop_init(&server->loop);
    if (failed) {
        yk__fail(YK_ERR_IO, "store tcp://%s: no event loop: %s", server->name, uv_strerror(failed));
        server_free(server);
        return NULL;
    }
    server->stop.data = server->listener.data = server->timer.data = server;
    uv_timer_init(&server->loop, &server->timer);
    failed = uv_async_init(&server->loop, &server->stop, on_stop);
    if (!failed && !(failed = uv_poll_init(&server->loop, &server->listener, fd))) {
        failed = uv_poll_start(&server->listener, UV_READABLE, on_connection);
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
        if (!failed)
            failed = -pthread_create(&server->thread, NULL, server_run, server);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (!failed) {
            pthread_setname_np(server->thread, "yoke-store");
            return server;
        }
        loop_abandon(server);
    }
    yk__fail(YK_ERR_IO, "store tcp://%s: its thread does not start: %s", server->name, uv_strerror(failed));
    server_free(server);
    return NULL;
}

void yk__store_server_stop(yk__store_server *server)
{
    if (!server)
        return;
    uv_async_send(&server->stop);
    pthread_join(server->thread, NULL);
    uv_loop_close(&server->loop);
    server_free(server);
}
