/*
 * links.c - the connections between ranks of different hosts: made when the group is joined, closed when it is left.
 * Layer: comm/native.
 *
 * Each rank listens on the address from which it reaches the master, on a free port, and says so in its record. It
 * connects to all lower ranks of other hosts and lets the higher ones in, all at once: three round trips for any
 * number. Both sides prove that they have the job's secret (net/handshake.h) before a rank is named. All that come are
 * heard side by side, so an unauthenticated connection that sends nothing delays nobody; of those that are not known
 * yet the oldest goes when they are too many.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "comm/native/multihost.h"

enum { CONTROL, DATA };
enum { UNAUTHENTICATED_LIMIT = 256, ACCEPT_AT_ONCE = 16 };
/* Seconds: between looks at other ranks' failures; for a broken group's last word; between two tries to connect, and
 * that the first try may take. */
static const double look_again = 1, leave_time = 1, between_tries = 0.1, first_patience = 10;
static const uint64_t hello_magic = 0x31656B6F79636F6Du; /* also tells another byte order */

enum { HELLO = 1 }; /* the one message of a rank's channel */

/* What the side that connected says behind its proof. */
typedef struct hello {
    uint64_t magic, group;
    int32_t from, to, channel, unused;
} hello;

static uint64_t group_hash(const yk__comm_join_args *args)
{
    uint64_t h = args->members ^ (uint64_t)args->world_size;
    for (const char *c = args->name; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001B3u;
    return h;
}

/* ---- listening --------------------------------------------------------------------------------------------------- */
/* The host that all ranks reach: the store's, or $MASTER_ADDR. */
static bool master_host(const yk__comm_join_args *args, char host[YK__HOST_SIZE], int *port)
{
    const char *name = yk_store_name(args->store), *master = getenv("MASTER_ADDR");
    if (strncmp(name, "tcp://", 6) != 0) {
        *port = 0;
        snprintf(host, YK__HOST_SIZE, "%s", master ? master : "");
        return *host != 0;
    }
    char text[YK__HOST_SIZE + 16];
    snprintf(text, sizeof(text), "%.*s", (int)strcspn(name + 6, "/"), name + 6);
    bool parsed = yk__host_port_parse(text, 0, host, port) == YK_OK;
    yk_clear_error();
    return parsed;
}

static yk_status own_address(const native *g, const yk__comm_join_args *args, yk__address *local)
{
    char host[YK__HOST_SIZE], why[YK__WHY_SIZE] = "";
    int port = 0;
    yk__address master;
    if (master_host(args, host, &port)) {
        if (yk__resolve(host, port, yk__now() + args->join_timeout, &master, 1, why) &&
            yk__route_to(&master, local, why))
            return YK_OK;
        return yk__fail(YK_ERR_CONNECTION, "group '%s': rank %d (host %s) finds no address for other hosts: %s",
                        args->name, g->rank, args->host_name, why);
    }
    /* A file on a shared file system: with a secret, the way out of this host; without, only this host may connect. */
    if (g->net->identity.has_secret && yk__resolve("192.0.2.1", 9, yk__now() + 1, &master, 1, why) &&
        yk__route_to(&master, local, why))
        return YK_OK;
    yk__resolve("127.0.0.1", 0, yk__now() + 1, local, 1, why);
    return YK_OK;
}

yk_status yk__native_net_listen(native *g, const yk__comm_join_args *args)
{
    struct yk__native_net *net = yk__calloc(1, sizeof(*net));
    if (!net)
        return yk__error_code();
    g->net = net;
    net->listener = net->epoll = -1;
    net->links = yk__calloc((size_t)g->world_size, sizeof(*net->links));
    if (!net->links)
        return yk__error_code();
    for (int r = 0; r < g->world_size; r++) {
        yk__native_link *l = &net->links[r];
        l->control = l->data = -1;
        l->out_end = &l->out;
        l->arrived_end = &l->arrived;
    }
    net->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (net->epoll < 0)
        return yk__fail_errno("group '%s': no event queue", args->name);
    yk__socket_private(net->epoll);
    yk__address local, bound;
    yk_status status = yk__identity_init(&net->identity, "comm", NULL, 0, NULL);
    if (!status)
        status = own_address(g, args, &local);
    if (!status)
        status = yk__identity_allows(&net->identity, &local, "ranks on several hosts");
    if (status)
        return status;
    net->listener = yk__listen(&local, g->world_size + UNAUTHENTICATED_LIMIT, &bound);
    if (net->listener < 0)
        return yk__error_code();
    yk__address_format(&bound, net->address);
    return YK_OK;
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */
static yk_status unreachable(const native *g, int rank, const char *address, yk__reason reason, const char *why)
{
    char a[120], b[120];
    return yk__fail(reason == YK__NO_ANSWER ? YK_ERR_TIMEOUT : YK_ERR_CONNECTION,
                    "group '%s': %s cannot reach %s at %s: %s", g->name, yk__native_rank_name(g, g->rank, a, sizeof(a)),
                    yk__native_rank_name(g, rank, b, sizeof(b)), address, why);
}

/* The connection is one between ranks: what goes over it from here on is in frames with the session's keys. */
static yk_status adopt(native *g, int rank, int channel, int fd, const yk__channel *c)
{
    yk__native_link *l = &g->net->links[rank];
    if (channel == CONTROL) {
        l->control_send = yk__calloc(2, sizeof(*l->control_send));
        if (!l->control_send)
            return yk__error_code();
        l->control_receive = l->control_send + 1;
        *l->control_send = c->sending;
        *l->control_receive = c->receiving;
        l->control = fd;
    } else {
        l->stream = yk__calloc(1, sizeof(*l->stream));
        if (!l->stream)
            return yk__error_code();
        l->stream->sending = c->sending;
        l->stream->receiving = c->receiving;
        l->data = fd;
    }
    yk__socket_patience(fd, g->timeout); /* a link that is silent is what the time-out of the operation is for */
    return YK_OK;
}

/* One of the two connections to a lower rank of another host, on its way. What is lost on it (the connection, or the
 * packets of one) is tried again until the time to join is over. */
struct yk__native_dial {
    int fd, rank, channel; /* fd -1: it is there, or to be tried again at `again` */
    bool connected, done;
    double again, give_up; /* when this try, if it is not connected, is given up for the next */
    double patience;       /* with this try; the next has twice as much */
    yk__address address;
    yk__reason reason; /* of the last failure */
    char why[YK__WHY_SIZE];
    yk__channel c;
};

static void close_dial(struct yk__native_dial *d)
{
    yk__socket_close(d->fd);
    if (d->connected)
        yk__channel_clear(&d->c);
    d->fd = -1;
    d->connected = false;
}

/* Why a try failed. It is worth another one unless the rank is not there, or does not want this one. */
static yk_status dial_failed(const native *g, struct yk__native_dial *d)
{
    close_dial(d);
    d->again = yk__now() + between_tries;
    if (d->reason == YK__LOST || d->reason == YK__NO_ANSWER || d->reason == YK__UNREACHABLE)
        return YK_OK;
    return unreachable(g, d->rank, g->net->links[d->rank].address, d->reason, d->why);
}

static yk_status dial_again(const native *g, struct yk__native_dial *d)
{
    d->fd = yk__connect_begin(&d->address, &d->reason, d->why);
    d->give_up = yk__now() + d->patience;
    d->patience *= 2;
    return d->fd < 0 ? dial_failed(g, d) : YK_OK;
}

static yk_status dial(native *g, const yk__comm_join_args *args, int rank, int channel, struct yk__native_dial *d)
{
    char host[YK__HOST_SIZE], why[YK__WHY_SIZE] = "";
    int port;
    yk_status status = yk__host_port_parse(g->net->links[rank].address, -1, host, &port);
    *d = (struct yk__native_dial){.fd = -1, .rank = rank, .channel = channel, .patience = first_patience};
    if (status)
        return status;
    if (!yk__resolve(host, port, yk__now() + args->join_timeout, &d->address, 1, why))
        return unreachable(g, rank, g->net->links[rank].address, YK__NOT_RESOLVED, why);
    return dial_again(g, d);
}

yk_status yk__native_net_begin(native *g, const yk__comm_join_args *args)
{
    struct yk__native_net *net = g->net;
    net->lanes = g->world_size;
    for (int h = 0; h < g->hosts; h++) {
        int rows = yk__native_host_size(g, h);
        net->lanes = rows < net->lanes ? rows : net->lanes;
        net->most = rows > net->most ? rows : net->most;
    }
    net->flat = net->most == 1;
    if (yk__native_subtrees_init(g))
        return yk__error_code();
    net->dials = yk__calloc(2 * (size_t)g->rank + 1, sizeof(*net->dials));
    yk_status status = net->dials ? YK_OK : yk__error_code();
    for (int r = 0; r < g->rank && !status; r++) {
        for (int channel = CONTROL; channel <= DATA && !status && g->members[r].host != g->host; channel++) {
            status = dial(g, args, r, channel, &net->dials[net->dial_count]);
            net->dial_count += !status;
        }
    }
    return status;
}

/* Packets that ask for a connection are sent at longer and longer intervals: a new try is worth more. Of one that is
 * there the system sees to all; and the other side may have done with it already. */
static bool gives_up(const struct yk__native_dial *d, double now)
{
    return !d->connected && now > d->give_up;
}

/* Moves one on when its socket is ready, or its time is over. `last`: so is that of all. */
static yk_status move_dial(native *g, const yk__comm_join_args *args, struct yk__native_dial *d, bool ready, bool last)
{
    bool late = !ready && (last || gives_up(d, yk__now()));
    d->reason = YK__REACHED;
    if (!d->connected) {
        d->reason = yk__connect_end(d->fd, late, d->why);
        if (!d->reason) {
            hello h = {hello_magic, group_hash(args), g->rank, d->rank, d->channel, 0};
            d->connected = true;
            yk__socket_patience(d->fd, args->join_timeout);
            yk__channel_init(&d->c, &g->net->identity, false, sizeof(h));
            yk__channel_send(&d->c, HELLO, &h, sizeof(h)); /* goes behind the proof */
        }
    } else if (!late) {
        yk__channel_receive_exactly(&d->c, d->fd);
    }
    if (d->connected && !d->reason) {
        yk__channel_flush(&d->c, d->fd);
        d->reason = late ? YK__NO_ANSWER : d->c.state;
        snprintf(d->why, sizeof(d->why), "%s",
                 late ? "no answer to the handshake (does a firewall drop the packets?)" : d->c.why);
    }
    if (d->reason) {
        yk_status status = yk__native_check_joining(g, args); /* it may have said why */
        return status ? status : dial_failed(g, d);
    }
    if (!d->c.open)
        return YK_OK;
    yk_status status = adopt(g, d->rank, d->channel, d->fd, &d->c);
    d->done = !status;
    d->fd = status ? d->fd : -1;
    return status;
}

static void close_dials(struct yk__native_net *net)
{
    for (int i = 0; i < net->dial_count; i++)
        close_dial(&net->dials[i]);
    free(net->dials);
    net->dials = NULL;
    net->dial_count = 0;
}

/* ---- letting in -------------------------------------------------------------------------------------------------- */
/* A connection that came in: a rank's, or not authenticated yet. */
typedef struct incoming {
    int fd;
    yk__address from; /* the port cleared */
    yk__channel channel;
} incoming;

typedef struct incoming_list {
    incoming **list;                 /* the oldest first */
    struct pollfd *polls;            /* the listener's, then theirs */
    int count, room, of_one_address; /* the most */
} incoming_list;

static void drop_incoming(incoming_list *all, int i)
{
    incoming *gone = all->list[i];
    all->count--;
    memmove(all->list + i, all->list + i + 1, (size_t)(all->count - i) * sizeof(*all->list));
    yk__socket_close(gone->fd);
    yk__channel_clear(&gone->channel);
    free(gone);
}

/* One more of this address: the oldest goes where there are too many, of that address or of all. */
static void make_room(incoming_list *all, const yk__address *from)
{
    int oldest = -1, count = 0;
    for (int i = all->count - 1; i >= 0; i--) {
        if (!yk__address_equal(&all->list[i]->from, from))
            continue;
        oldest = i;
        count++;
    }
    if (count >= all->of_one_address)
        drop_incoming(all, oldest);
    else if (all->count == all->room)
        drop_incoming(all, 0);
}

static yk_status accept_incoming(native *g, const yk__comm_join_args *args, incoming_list *all)
{
    for (int i = 0; i < ACCEPT_AT_ONCE; i++) { /* then those that are there are heard */
        yk__address from = {.size = sizeof(from.storage)};
        int fd = accept4(g->net->listener, (struct sockaddr *)&from.storage, &from.size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED))
            return YK_OK;
        bool full = fd < 0 && (errno == EMFILE || errno == ENFILE);
        if (all->count && (full || (fd >= 0 && yk__descriptor_is_reserved(fd)))) {
            drop_incoming(all, 0);
            if (full)
                continue;
        }
        if (fd < 0)
            return yk__fail_errno("group '%s': rank %d takes no more connections at %s", args->name, g->rank,
                                  g->net->address);
        yk__socket_private(fd);
        yk__socket_tune(fd);
        incoming *one = yk__calloc(1, sizeof(*one));
        if (!one) {
            yk__socket_close(fd);
            return yk__error_code();
        }
        one->fd = fd;
        one->from = from;
        yk__address_set_port(&one->from, 0);
        yk__channel_init(&one->channel, &g->net->identity, true, sizeof(hello));
        make_room(all, &one->from);
        all->list[all->count++] = one;
    }
    return YK_OK;
}

/* Whether a peer that has said this is a rank that connects to this one. */
static bool is_expected(const native *g, const yk__comm_join_args *args, const hello *h)
{
    return h->magic == hello_magic && h->group == group_hash(args) && h->to == g->rank && h->from > g->rank &&
           h->from < g->world_size && g->members[h->from].host != g->host &&
           (h->channel == CONTROL || h->channel == DATA);
}

/* A rank connects again because its connection was lost, which this side need not have noticed. */
static bool abandon(yk__native_link *l, int channel)
{
    int *fd = channel == CONTROL ? &l->control : &l->data;
    if (*fd < 0)
        return false;
    yk__socket_close(*fd);
    *fd = -1;
    if (channel == CONTROL) {
        explicit_bzero(l->control_send, 2 * sizeof(*l->control_send));
        free(l->control_send);
        l->control_send = l->control_receive = NULL;
    } else {
        yk__byte_stream_clear(l->stream);
        free(l->stream);
        l->stream = NULL;
    }
    return true;
}

/* *came: this connection was a rank that was waited for. It is dropped then, and when it breaks a rule. */
static yk_status receive_hello(native *g, const yk__comm_join_args *args, incoming_list *all, int i, bool *came)
{
    incoming *one = all->list[i];
    yk__channel *c = &one->channel;
    yk__reader reader;
    hello said;
    yk_status status = YK_OK;
    *came = false;
    yk__channel_receive_exactly(c, one->fd);
    unsigned type = yk__channel_next(c, &reader);
    yk__channel_flush(c, one->fd); /* before it is dropped: the reason for the other side */
    if (!type && c->state == YK__REACHED)
        return YK_OK;
    if (type == HELLO && !yk__channel_unsent(c) && reader.end - reader.at == (ptrdiff_t)sizeof(said)) {
        memcpy(&said, reader.at, sizeof(said));
        if (is_expected(g, args, &said)) {
            bool again = abandon(&g->net->links[said.from], said.channel);
            status = adopt(g, said.from, said.channel, one->fd, c);
            *came = !status && !again;
            one->fd = status ? one->fd : -1;
        }
    }
    drop_incoming(all, i);
    return status;
}

static yk_status receive_all(native *g, const yk__comm_join_args *args, incoming_list *all, int *expected)
{
    for (int i = all->count - 1; i >= 0; i--) { /* backwards: who goes moves only those that were heard */
        bool came = false;
        yk_status status = all->polls[i + 1].revents ? receive_hello(g, args, all, i, &came) : YK_OK;
        if (status)
            return status;
        *expected -= all->polls[i + 1].revents && came;
    }
    return YK_OK;
}

/* `polls` are those of the connections that this rank makes; `early`: when these are to be there. */
static yk_status move_dials(native *g, const yk__comm_join_args *args, const struct pollfd *polls, double early,
                            int *expected)
{
    double now = yk__now();
    bool last = now > early;
    for (int i = 0; i < g->net->dial_count; i++) {
        struct yk__native_dial *d = &g->net->dials[i];
        yk_status status = YK_OK;
        if (d->done)
            continue;
        if (d->fd < 0 && now >= d->again && !last)
            status = dial_again(g, d);
        else if (d->fd >= 0 && (polls[i].revents || last || gives_up(d, now)))
            status = move_dial(g, args, d, polls[i].revents, last);
        *expected -= d->done;
        if (!status && !d->done && d->fd < 0 && last)
            status = unreachable(g, d->rank, g->net->links[d->rank].address, d->reason, d->why);
        if (status)
            return status;
    }
    return YK_OK;
}

/* When a connection that this rank makes is to be looked at, though nothing has come. */
static double next_dial(const native *g, double until)
{
    for (int i = 0; i < g->net->dial_count; i++) {
        const struct yk__native_dial *d = &g->net->dials[i];
        double next = d->done || d->connected ? until : d->fd < 0 ? d->again : d->give_up;
        until = next < until ? next : until;
    }
    return until;
}

/* Until all connections are there, the time is over, or another rank says that it is of no use. */
static yk_status serve_incoming(native *g, const yk__comm_join_args *args, incoming_list *all, double until,
                                int *expected)
{
    /* Who cannot connect gives up a little earlier, so that those who wait for it can name the reason. */
    double looked = yk__now(), early = looked + 0.85 * (until - looked);
    for (double now = looked; *expected > 0 && now <= until; now = yk__now()) {
        if (now - looked >= look_again) {
            yk_status status = yk__native_check_joining(g, args);
            if (status)
                return status;
            looked = yk__now();
        }
        nfds_t count = 0;
        all->polls[count++] = (struct pollfd){.fd = g->net->listener, .events = POLLIN};
        for (int i = 0; i < all->count; i++)
            all->polls[count++] = (struct pollfd){
                .fd = all->list[i]->fd, .events = yk__channel_unsent(&all->list[i]->channel) ? POLLOUT : POLLIN};
        struct pollfd *own = all->polls + count;
        for (int i = 0; i < g->net->dial_count; i++) {
            const struct yk__native_dial *d = &g->net->dials[i];
            bool sends = !d->connected || yk__channel_unsent(&d->c);
            all->polls[count++] = (struct pollfd){.fd = d->fd, .events = sends ? POLLOUT : POLLIN};
        }
        double next = next_dial(g, looked + look_again < until ? looked + look_again : until);
        int milliseconds = next > now ? (int)((next - now) * 1e3) + 1 : 0;
        poll(all->polls, count, milliseconds);
        yk_status status = move_dials(g, args, own, early, expected);
        if (!status)
            status = receive_all(g, args, all, expected);
        if (!status && all->polls[0].revents)
            status = accept_incoming(g, args, all);
        if (status)
            return status;
    }
    return YK_OK;
}

static yk_status link_all(native *g, const yk__comm_join_args *args, double until)
{
    int expected = g->net->dial_count;
    for (int r = g->rank + 1; r < g->world_size; r++)
        expected += g->members[r].host == g->host ? 0 : 2;
    int unauthenticated = yk__unauthenticated_limit();
    unauthenticated = unauthenticated < UNAUTHENTICATED_LIMIT ? unauthenticated : UNAUTHENTICATED_LIMIT;
    incoming_list all = {.room = expected + unauthenticated, .of_one_address = expected + unauthenticated / 2};
    all.list = yk__calloc((size_t)all.room, sizeof(incoming *));
    all.polls = yk__calloc((size_t)all.room + 1 + (size_t)g->net->dial_count, sizeof(*all.polls));
    yk_status status = all.list && all.polls ? serve_incoming(g, args, &all, until, &expected) : yk__error_code();
    while (all.count)
        drop_incoming(&all, all.count - 1);
    free(all.list);
    free(all.polls);
    if (status || expected <= 0)
        return status;
    status = yk__native_check_joining(g, args); /* they may know better */
    if (status)
        return status;
    char list[400] = "", self[120], who[120];
    for (int r = g->rank + 1; r < g->world_size; r++) {
        const yk__native_link *l = &g->net->links[r];
        size_t used = strlen(list);
        if (g->members[r].host != g->host && (l->control < 0 || l->data < 0) && used < sizeof(list) - 130)
            snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "",
                     yk__native_rank_name(g, r, who, sizeof(who)));
    }
    return yk__fail(
        YK_ERR_TIMEOUT, "group '%s': %s did not connect to %s at %s within %g s (does a firewall drop the packets?)",
        args->name, list, yk__native_rank_name(g, g->rank, self, sizeof(self)), g->net->address, args->join_timeout);
}

yk_status yk__native_net_connect(native *g, const yk__comm_join_args *args, double until)
{
    yk_status status = link_all(g, args, until);
    close_dials(g->net);
    yk__socket_close(g->net->listener);
    g->net->listener = -1;
    yk__identity_clear(&g->net->identity);
    for (int r = 0; r < g->world_size && !status; r++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)r};
        if (g->members[r].host != g->host && epoll_ctl(g->net->epoll, EPOLL_CTL_ADD, g->net->links[r].control, &event))
            status = yk__fail_errno("group '%s': the connection to rank %d cannot be watched", args->name, r);
    }
    return status;
}

/* ---- damage ------------------------------------------------------------------------------------------------------ */
yk_status yk__native_damaged(native *g, int rank, bool data, const char *why)
{
    const yk__native_link *l = &g->net->links[rank];
    yk__address near = {.size = sizeof(near.storage)}, far = {.size = sizeof(far.storage)};
    char at[YK__ADDRESS_TEXT] = "?", from[YK__ADDRESS_TEXT] = "?", self[120], who[120], what[160];
    int fd = data ? l->data : l->control;
    if (getsockname(fd, (struct sockaddr *)&near.storage, &near.size) == 0)
        yk__address_format(&near, at);
    if (getpeername(fd, (struct sockaddr *)&far.storage, &far.size) == 0)
        yk__address_format(&far, from);
    return yk__native_break(g, YK_ERR_CONNECTION,
                            "%s: the %s connection from %s at %s to %s at %s damages what is sent over it: %s",
                            yk__comm_describe(&g->current, what, sizeof(what)), data ? "data" : "control",
                            yk__native_rank_name(g, rank, who, sizeof(who)), from,
                            yk__native_rank_name(g, g->rank, self, sizeof(self)), at, why);
}

/* ---- leaving ----------------------------------------------------------------------------------------------------- */
void yk__native_net_close(native *g)
{
    struct yk__native_net *net = g->net;
    bool whole = g->head && !atomic_load(&g->head->broken);
    if (net->links && g->head && g->rows) {
        control_frame frame = {.type = CONTROL_LEFT, .number = atomic_load(&g->rows[g->local_rank].done)};
        pthread_mutex_lock(&g->message_lock);
        for (int r = 0; r < g->world_size && whole; r++)
            if (net->links[r].control >= 0 && !yk__native_control_enqueue(g, &net->links[r], &frame, NULL, NULL))
                yk_clear_error();
        pthread_mutex_unlock(&g->message_lock);
        /* What a peer still needs is on its way until it has come; that a group is broken is said, but not for long. */
        yk__native_control_flush(g, whole, whole ? g->timeout : g->timeout < leave_time ? g->timeout : leave_time);
    }
    for (int r = 0; r < g->world_size && net->links; r++) {
        yk__native_link *l = &net->links[r];
        yk__socket_close(l->control);
        yk__socket_close(l->data);
        yk__native_control_clear(l);
        if (l->stream)
            yk__byte_stream_clear(l->stream);
        if (l->control_send)
            explicit_bzero(l->control_send, 2 * sizeof(*l->control_send));
        free(l->stream);
        free(l->control_send);
        while (l->arrived) {
            control_arrived *a = l->arrived;
            l->arrived = a->next;
            free(a);
        }
    }
    close_dials(net);
    yk__socket_close(net->listener);
    yk__socket_close(net->epoll);
    yk__identity_clear(&net->identity);
    yk__native_subtrees_clear(g);
    free(net->links);
    free(net->blocks);
    free(net->work);
    free(net);
    g->net = NULL;
}
