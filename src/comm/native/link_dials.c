/*
 * link_dials.c - the connections that a rank makes to lower ranks of other hosts. Layer: comm/native.
 *
 * Both sides prove that they have the job's secret (net/handshake.h) before a rank is named. A try that fails is made
 * again unless the rank is not there, or does not want this one.
 */
#include <string.h>

#include "base/hash.h"
#include "comm/native/links.h"

/* Seconds: between two tries to connect, and that the first try may take. */
static const double between_tries = 0.1, first_patience = 10;
static const uint64_t hash_seed = 0x31656B6F79636F6Du; /* its hash in another byte order is another one */

uint64_t yk__native_group_hash(const yk__comm_join_args *args)
{
    return yk__hash(hash_seed ^ args->members ^ (uint64_t)args->world_size, args->name, strlen(args->name));
}

static yk_status unreachable(const native *g, const yk__native_dial *d)
{
    char a[120], b[120], at[YK__ADDRESS_TEXT];
    bool known = d->reason != YK__NOT_RESOLVED;
    return yk__fail(d->reason == YK__NO_ANSWER ? YK_ERR_TIMEOUT : YK_ERR_CONNECTION,
                    "group '%s': %s cannot reach %s at %s: %s", g->name, yk__native_rank_name(g, g->rank, a, sizeof(a)),
                    yk__native_rank_name(g, d->rank, b, sizeof(b)),
                    known ? yk__address_format(&d->address, at) : d->text, d->why);
}

void yk__native_dial_close(yk__native_dial *d)
{
    yk__socket_close(d->fd);
    if (d->connected)
        yk__channel_clear(&d->c);
    d->fd = -1;
    d->connected = false;
}

/* Fails where another try cannot help; else closes the connection, to be tried again. */
static yk_status dial_failed(const native *g, yk__native_dial *d, bool early)
{
    yk__native_dial_close(d);
    d->again = yk__now() + between_tries;
    if (early || d->reason == YK__LOST || d->reason == YK__NO_ANSWER || d->reason == YK__UNREACHABLE)
        return YK_OK;
    return unreachable(g, d);
}

static yk_status dial_again(const native *g, yk__native_dial *d, bool early)
{
    d->fd = yk__connect_begin(&d->address, &d->reason, d->why);
    d->give_up = yk__now() + d->patience;
    d->patience *= 2;
    return d->fd < 0 ? dial_failed(g, d, early) : YK_OK;
}

yk_status yk__native_dial_begin(native *g, const yk__comm_join_args *args, int rank, int channel, const char *address,
                                bool early, yk__native_dial *d)
{
    char host[YK__HOST_SIZE];
    int port;
    *d = (yk__native_dial){.fd = -1, .rank = rank, .channel = channel, .patience = first_patience};
    snprintf(d->text, sizeof(d->text), "%s", address);
    yk_status status = yk__host_port_parse(address, -1, host, &port);
    if (status)
        return status;
    double until = yk__now() + args->join_timeout;
    bool found = yk__resolve(host, port, until, &d->address, 1, d->why) > 0;
    if (found && yk__address_is_any(&d->address)) { /* a rank of the master's host: launch/listeners.h */
        int ignored;
        found = yk__native_master_host(args, host, &ignored) && yk__resolve(host, port, until, &d->address, 1, d->why);
        yk__address_set_port(&d->address, port);
    }
    if (!found) {
        d->reason = YK__NOT_RESOLVED;
        return early ? YK_ERR_CONNECTION : unreachable(g, d);
    }
    return dial_again(g, d, early);
}

/* True if this try is given up for a new one: the system repeats packets that ask for a connection at longer and longer
 * intervals. A connection that is there is kept alive by the system, and the other side may have accepted it
 * already. */
static bool gives_up(const yk__native_dial *d, double now)
{
    return !d->connected && now > d->give_up;
}

static void move_connected(yk__native_dial *d, bool late)
{
    if (!late)
        yk__channel_receive_exactly(&d->c, d->fd);
    yk__channel_flush(&d->c, d->fd);
    d->reason = late && !d->c.open ? YK__NO_ANSWER : d->c.state;
    snprintf(d->why, sizeof(d->why), "%s",
             d->reason == YK__NO_ANSWER ? "no answer to the handshake (does a firewall drop the packets?)" : d->c.why);
}

/* The connection is made, or failed: sends the hello of this rank right after the proof. */
static void end_connect(native *g, const yk__comm_join_args *args, yk__native_dial *d, bool late)
{
    d->reason = yk__connect_end(d->fd, late, d->why);
    if (d->reason)
        return;
    yk__native_hello h = {yk__native_group_hash(args), g->rank, d->rank, d->channel, 0};
    d->connected = true;
    yk__socket_patience(d->fd, args->join_timeout);
    yk__channel_init(&d->c, &g->net->identity, false, sizeof(h));
    yk__channel_send(&d->c, LINK_HELLO, &h, sizeof(h));
    yk__channel_flush(&d->c, d->fd);
    d->reason = d->c.state;
    snprintf(d->why, sizeof(d->why), "%s", d->c.why);
}

yk_status yk__native_dial_move(native *g, const yk__comm_join_args *args, yk__native_dial *d, bool ready, bool last,
                               bool early)
{
    double now = yk__now();
    yk_status status = YK_OK;
    bool late = !ready && (last || gives_up(d, now));
    if (yk__native_dial_is_open(d))
        return YK_OK;
    if (d->fd < 0) {
        if (now >= d->again && !last)
            return dial_again(g, d, early);
        return last ? unreachable(g, d) : YK_OK;
    }
    if (!ready && !late)
        return YK_OK;
    if (d->connected)
        move_connected(d, late);
    else
        end_connect(g, args, d, late);
    if (!d->reason)
        return YK_OK;
    if (!early)
        status = yk__native_check_joining(g, args); /* it may have said why */
    if (!status)
        status = dial_failed(g, d, early);
    return !status && last ? unreachable(g, d) : status;
}

yk_status yk__native_dial_adopt(native *g, yk__native_dial *d)
{
    yk_status status = yk__native_link_adopt(g, d->rank, d->channel, d->fd, &d->c);
    d->done = !status;
    d->fd = status ? d->fd : -1;
    return status;
}

void yk__native_dial_lost(native *g, yk__native_dial *d)
{
    yk__native_link_abandon(&g->net->links[d->rank], d->channel);
    yk__native_dial_close(d);
    d->done = false;
    d->again = yk__now();
}

double yk__native_dial_next(const yk__native_dial *d, double until)
{
    double next = d->done || d->connected ? until : d->fd < 0 ? d->again : d->give_up;
    return next < until ? next : until;
}

short yk__native_dial_events(const yk__native_dial *d)
{
    if (yk__native_dial_is_open(d))
        return 0;
    return !d->connected || yk__channel_unsent(&d->c) ? POLLOUT : POLLIN;
}
