/*
 * links.c - the connections between ranks of different hosts: the socket where a rank lets others in, what a connection
 * becomes when it is there, and its end. Layer: comm/native.
 *
 * How they are made is in link_join.c. Invariant: a link's socket and its keys are there together, or neither is.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "comm/native/links.h"
#include "launch/listeners.h"

/* Beyond one connection of each rank: those of other programs and repeated ones, so that they leave the ranks room. */
enum { BACKLOG = 256 };

/* Seconds that leaving a broken group takes at most to send the other ranks what is queued, such as why it broke. */
static const double leave_time = 1;

/* ---- listening --------------------------------------------------------------------------------------------------- */
bool yk__native_master_host(const yk__comm_join_args *args, char host[YK__HOST_SIZE], int *port)
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
    if (yk__native_master_host(args, host, &port)) {
        bool found = yk__resolve_to_listen(host, port, g->net->identity.has_secret, yk__now() + args->join_timeout,
                                           &master, 1, why) > 0;
        if (found && yk__address_is_any(&master)) {
            *local = master;
            yk__address_set_port(local, 0);
            return YK_OK;
        }
        if (found && yk__route_to(&master, local, why))
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

/* Takes the socket that the launcher opened for this rank; false where there is none. */
static bool launched_listener(native *g, const yk__comm_join_args *args)
{
    const char *table = getenv("YOKE_RANK_LISTENERS");
    int node;
    if (!args->attempt || !args->attempt->launched || yk__listeners_ranks(table) != args->world_size)
        return false;
    yk__listeners_find(table, g->rank, &node, g->net->address);
    g->net->listener = yk__listener_take(g->net->address);
    return g->net->listener >= 0;
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
    if (launched_listener(g, args))
        return YK_OK;
    net->listener = yk__listen(&local, g->world_size + BACKLOG, &bound);
    if (net->listener < 0)
        return yk__error_code();
    yk__address_format(&bound, net->address);
    return YK_OK;
}

/* ---- a connection between two ranks ------------------------------------------------------------------------------ */
yk_status yk__native_link_adopt(native *g, int rank, int channel, int fd, const yk__channel *c)
{
    yk__native_link *l = &g->net->links[rank];
    if (channel == LINK_CONTROL) {
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

bool yk__native_link_abandon(yk__native_link *l, int channel)
{
    int *fd = channel == LINK_CONTROL ? &l->control : &l->data;
    if (*fd < 0)
        return false;
    yk__socket_close(*fd);
    *fd = -1;
    if (channel == LINK_CONTROL) {
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

/* True if the connection was reset; one that was closed, by a process that ended, and bytes that it has sent are left
 * to the operations to find. */
static bool was_reset(int fd, bool *spoke)
{
    char byte;
    ssize_t n;
    do
        n = fd < 0 ? 0 : recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    *spoke = n > 0;
    return n < 0 && errno != EAGAIN;
}

bool yk__native_link_lost(const yk__native_link *l, int channel)
{
    bool spoke, lost = was_reset(l->control, &spoke);
    if (channel == LINK_DATA)
        lost = !spoke && was_reset(l->data, &spoke);
    return lost;
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
    if (net->carried)
        g->carrier->close(net->carried, whole, g->timeout);
    if (net->links && g->head && g->rows) {
        control_frame frame = {.type = CONTROL_LEFT, .number = atomic_load(&g->rows[g->local_rank].done)};
        pthread_mutex_lock(&g->message_lock);
        for (int r = 0; r < g->world_size && whole; r++)
            if (net->links[r].control >= 0 && !yk__native_control_enqueue(g, &net->links[r], &frame, NULL, NULL))
                yk_clear_error();
        pthread_mutex_unlock(&g->message_lock);
        /* Frames that a peer still needs are on their way until they have come; the news that a group is broken is
         * sent, but not for long. */
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
    yk__native_links_stop(g);
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
