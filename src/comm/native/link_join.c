/*
 * link_join.c - the connections between ranks of different hosts are made: those of this rank and those that come in,
 * in one loop. Layer: comm/native.
 *
 * Three round trips for any number of them. Where the launcher has said where all ranks listen, they are those in which
 * the records come (Note [The connections of a rank] in links.h). Invariant: the thread of that time uses what is in
 * `joining` alone, and nobody else does before it has ended.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/native/links.h"
#include "launch/listeners.h"

/* Connections that have not proved that they know the secret; fewer where the limit of open files is low
 * (net/descriptors.c). */
enum { UNAUTHENTICATED_LIMIT = 256 };
/* Seconds between looks at other ranks' failures. */
static const double look_again = 1;

static yk__native_joining_links *joining_new(native *g, const yk__comm_join_args *args)
{
    yk__native_joining_links *j = yk__calloc(1, sizeof(*j));
    if (!j)
        return NULL;
    int most = yk__unauthenticated_limit(), ranks = 2 * args->world_size;
    most = most < UNAUTHENTICATED_LIMIT ? most : UNAUTHENTICATED_LIMIT;
    g->net->joining = j;
    j->args = args;
    j->stop = -1;
    j->room = ranks + most;
    j->of_one_address = ranks + most / 2;
    j->poll_room = 2 + j->room + ranks;
    j->incoming = yk__calloc((size_t)j->room, sizeof(*j->incoming));
    j->polls = yk__calloc((size_t)j->poll_room, sizeof(*j->polls));
    j->dials = yk__calloc((size_t)ranks, sizeof(*j->dials));
    return j->incoming && j->polls && j->dials ? j : NULL;
}

/* Waits until something comes, at most until `next`, and moves on what can be; `last`: the time is over for those that
 * this rank makes. */
static yk_status connections_turn(native *g, double next, double end, bool early)
{
    yk__native_joining_links *j = g->net->joining;
    nfds_t count = 0;
    j->polls[count++] = (struct pollfd){.fd = j->stop, .events = POLLIN};
    j->polls[count++] = (struct pollfd){.fd = g->net->listener, .events = POLLIN};
    struct pollfd *in = j->polls + count;
    int heard = j->incoming_count;
    for (int i = 0; i < heard; i++) {
        const yk__native_incoming *one = j->incoming[i];
        j->polls[count++] = (struct pollfd){.fd = one->named ? -1 : one->fd,
                                            .events = yk__channel_unsent(&one->channel) ? POLLOUT : POLLIN};
    }
    struct pollfd *out = j->polls + count;
    for (int i = 0; i < j->dial_count; i++) {
        const yk__native_dial *d = &j->dials[i];
        short events = yk__native_dial_events(d);
        j->polls[count++] = (struct pollfd){.fd = events ? d->fd : -1, .events = events};
        next = yk__native_dial_is_open(d) ? next : yk__native_dial_next(d, next);
    }
    double now = yk__now();
    poll(j->polls, count, next > now ? (int)((next - now) * 1e3) + 1 : 0);
    bool last = yk__now() > end;
    for (int i = 0; i < j->dial_count; i++) {
        yk__native_dial *d = &j->dials[i];
        yk_status status = d->done ? YK_OK : yk__native_dial_move(g, j->args, d, out[i].revents, last, early);
        if (status)
            return status;
    }
    for (int i = heard - 1; i >= 0; i--) { /* backwards: removing one moves only those that were handled */
        if (in[i].revents)
            yk__native_incoming_hear(j, i);
    }
    return j->polls[1].revents ? yk__native_accept(g, j) : YK_OK;
}

/* ---- before the records are there -------------------------------------------------------------------------------- */
static bool stopped(const yk__native_joining_links *j)
{
    return j->polls[0].revents != 0;
}

/* A failure here is none yet: what it says is found out again when the records are there. */
static void *connect_early(void *arg)
{
    native *g = arg;
    yk__native_joining_links *j = g->net->joining;
    double far = yk__now() + j->args->join_timeout;
    while (!connections_turn(g, far, far + 1, true) && !stopped(j))
        ;
    yk_clear_error();
    return NULL;
}

static void begin_early_dials(native *g, const char *table)
{
    yk__native_joining_links *j = g->net->joining;
    int own, node;
    char address[YK__ADDRESS_TEXT];
    yk__listeners_find(table, g->rank, &own, address);
    for (int r = 0; r < g->rank; r++) {
        yk__listeners_find(table, r, &node, address);
        for (int channel = LINK_CONTROL; channel <= yk__native_last_channel(g) && node != own && *address; channel++) {
            yk__native_dial *d = &j->dials[j->dial_count];
            j->dial_count += !yk__native_dial_begin(g, j->args, r, channel, address, true, d);
        }
    }
    yk_clear_error();
}

void yk__native_net_early(native *g, const yk__comm_join_args *args)
{
    const char *table = getenv("YOKE_RANK_LISTENERS");
    if (!args->attempt || !args->attempt->launched || g->net->listener < 0 ||
        yk__listeners_ranks(table) != args->world_size || !strchr(table, ' '))
        return;
    yk__native_joining_links *j = joining_new(g, args);
    if (j && (j->stop = eventfd(0, EFD_CLOEXEC)) >= 0) {
        begin_early_dials(g, table);
        if (!yk__thread_create(&j->thread, connect_early, g))
            return;
        close(j->stop);
        j->stop = -1;
    }
    yk_clear_error(); /* the connections are made later then */
    yk__native_links_stop(g);
}

/* The thread has ended when this returns. */
static void end_thread(yk__native_joining_links *j)
{
    if (j->stop < 0)
        return;
    eventfd_write(j->stop, 1);
    pthread_join(j->thread, NULL);
    close(j->stop);
    j->stop = -1;
}

void yk__native_links_stop(native *g)
{
    yk__native_joining_links *j = g->net->joining;
    if (!j)
        return;
    end_thread(j);
    for (int i = 0; i < j->dial_count; i++)
        yk__native_dial_close(&j->dials[i]);
    while (j->incoming_count)
        yk__native_incoming_drop(j, j->incoming_count - 1);
    free(j->incoming);
    free(j->polls);
    free(j->dials);
    free(j);
    g->net->joining = NULL;
}

/* ---- when they are ----------------------------------------------------------------------------------------------- */
/* Takes the early connection to the address in this rank's record, else begins a new one. */
static yk_status dial(native *g, yk__native_dial *early, int early_count, int rank, int channel, yk__native_dial *d)
{
    const char *address = g->net->links[rank].address;
    for (int i = 0; i < early_count; i++) {
        yk__native_dial *e = &early[i];
        if (e->rank != rank || e->channel != channel || strcmp(e->text, address) != 0 || e->fd < 0)
            continue;
        *d = *e;
        e->fd = -1; /* it belongs to *d now */
        e->connected = false;
        return YK_OK;
    }
    return yk__native_dial_begin(g, g->net->joining->args, rank, channel, address, false, d);
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
    if (yk__native_subtrees_init(g) || (!net->joining && !joining_new(g, args)))
        return yk__error_code();
    yk__native_joining_links *j = net->joining;
    end_thread(j);
    yk__native_dial *early = j->dials;
    int early_count = j->dial_count;
    j->dial_count = 0;
    j->dials = yk__calloc(2 * (size_t)g->world_size, sizeof(*j->dials));
    yk_status status = j->dials ? YK_OK : yk__error_code();
    for (int r = 0; r < g->rank && !status; r++) {
        for (int channel = LINK_CONTROL;
             channel <= yk__native_last_channel(g) && !status && g->members[r].host != g->host; channel++) {
            status = dial(g, early, early_count, r, channel, &j->dials[j->dial_count]);
            j->dial_count += !status;
        }
    }
    for (int i = 0; i < early_count; i++)
        yk__native_dial_close(&early[i]);
    free(early);
    return status;
}

/* Those that are there become links. */
static yk_status adopt_all(native *g, int *expected)
{
    yk__native_joining_links *j = g->net->joining;
    yk_status status = YK_OK;
    for (int i = 0; i < j->dial_count && !status; i++) {
        if (!yk__native_dial_is_open(&j->dials[i]))
            continue;
        status = yk__native_dial_adopt(g, &j->dials[i]);
        *expected -= !status;
    }
    for (int i = j->incoming_count - 1; i >= 0 && !status; i--) {
        bool came = false;
        if (j->incoming[i]->named)
            status = yk__native_incoming_adopt(g, j, i, &came);
        *expected -= came;
    }
    return status;
}

/* Links that were reset while both ranks still join: those of this rank are made again, others are waited for. An early
 * one may have been reset long before the records were there. */
static void drop_lost(native *g, int *expected)
{
    yk__native_joining_links *j = g->net->joining;
    for (int i = j->dial_count - 1; i >= 0; i--) {
        yk__native_dial *d = &j->dials[i];
        if (!d->done || !yk__native_link_lost(&g->net->links[d->rank], d->channel))
            continue;
        yk__native_dial_lost(g, d);
        ++*expected;
    }
    for (int r = g->rank + 1; r < g->world_size; r++)
        for (int channel = yk__native_last_channel(g); channel >= LINK_CONTROL; channel--)
            if (yk__native_link_lost(&g->net->links[r], channel) && yk__native_link_abandon(&g->net->links[r], channel))
                ++*expected;
}

/* Waits until all connections are there, the time is over, or another rank says that it is of no use. */
static yk_status connect_all(native *g, const yk__comm_join_args *args, double until, int *expected)
{
    /* A rank that cannot connect gives up a little earlier, so that those who wait for it can name the reason. */
    double looked = yk__now(), early = looked + 0.85 * (until - looked);
    yk_status status = adopt_all(g, expected);
    drop_lost(g, expected);
    for (double now = looked; !status && *expected > 0 && now <= until; now = yk__now()) {
        if (now - looked >= look_again) {
            status = yk__native_check_joining(g, args);
            drop_lost(g, expected);
            looked = yk__now();
        }
        if (!status)
            status = connections_turn(g, looked + look_again < until ? looked + look_again : until, early, false);
        if (!status)
            status = adopt_all(g, expected);
        if (!status && *expected <= 0)
            drop_lost(g, expected);
    }
    return status;
}

static yk_status link_all(native *g, const yk__comm_join_args *args, double until)
{
    int expected = g->net->joining->dial_count;
    for (int r = g->rank + 1; r < g->world_size; r++)
        expected += g->members[r].host == g->host ? 0 : 1 + yk__native_last_channel(g);
    yk_status status = connect_all(g, args, until, &expected);
    if (status || expected <= 0)
        return status;
    status = yk__native_check_joining(g, args); /* they may know better */
    if (status)
        return status;
    char list[400] = "", self[120], who[120];
    for (int r = g->rank + 1; r < g->world_size; r++) {
        const yk__native_link *l = &g->net->links[r];
        size_t used = strlen(list);
        if (g->members[r].host != g->host && (l->control < 0 || (l->data < 0 && !g->carrier)) &&
            used < sizeof(list) - 130)
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
    yk__native_links_stop(g);
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
