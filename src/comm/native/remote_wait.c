/*
 * remote_wait.c - waiting for ranks of other hosts: what is known of one that ended or does not answer, and which are
 * named when the time is over. Layer: comm/native.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "comm/native/multihost.h"

/* A peer that ended may have sent what is still needed; this long nothing moves before it is the cause. */
static const double end_delay = 0.1;

/* ---- ranks that are lost ----------------------------------------------------------------------------------------- */
/* Breaks the group with the way in which this rank lost another, which did not say that it leaves. A process that ends
 * closes its connections, or, with bytes that it has not read, resets them; a device between the hosts may reset one as
 * well. */
static yk_status break_lost_rank(native *g, int rank, const char *what, unsigned long long done)
{
    char who[120], self[120], link[YK__LINK_TEXT];
    const yk__native_link *l = &g->net->links[rank];
    yk__native_rank_name(g, rank, who, sizeof(who));
    yk__native_rank_name(g, g->rank, self, sizeof(self));
    if (l->error == 0)
        return yk__native_break(g, YK_ERR_CONNECTION, "%s: %s ended after %llu collectives of group '%s'; %s saw it",
                                what, who, done, g->name, self);
    if (l->error < 0)
        return yk__native_break(g, YK_ERR_CONNECTION,
                                "%s: %s was lost after %llu collectives of group '%s': %s; %s saw it", what, who, done,
                                g->name, l->why, self);
    bool reset = l->error == ECONNRESET || l->error == EPIPE;
    return yk__native_break(
        g, YK_ERR_CONNECTION, "%s: %s broke after %llu collectives of group '%s': %s%s (seen by rank %d)", what,
        yk__native_link_name(g, rank, link), done, g->name, l->why,
        reset ? ", because the process ended or something between the hosts reset it" : "", g->rank);
}

/* Seconds for which the host of a peer has not acknowledged what was sent to it again; 0: it answers, or nothing is
 * on the way. */
static double unanswered(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof(info);
    if (fd < 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) || info.tcpi_unacked == 0 ||
        info.tcpi_retransmits == 0)
        return 0;
    return info.tcpi_last_ack_recv * 1e-3;
}

double yk__native_unanswered(const native *g, int rank)
{
    const yk__native_link *l = &g->net->links[rank];
    double on_control = unanswered(l->control), on_data = l->data_gone ? 0 : unanswered(l->data);
    return on_control > on_data ? on_control : on_data;
}

/* A rank that was asked to end and waits for others ends with them, at the end of the step. It need not wait for one
 * that cannot be reached; a rank that waits says so to all (CONTROL_BEGUN), so bytes are on the way to each. */
static yk_status break_unreachable(native *g)
{
    char what[160], self[120], link[YK__LINK_TEXT];
    int number = yk__signal_pending();
    for (int r = 0; r < g->world_size && number; r++) {
        double seconds = yk__native_unanswered(g, r);
        if (seconds < NATIVE_SIGNAL_WAIT)
            continue;
        return yk__native_break(
            g, YK_ERR_CONNECTION,
            "%s: %s was asked to end by SIG%s, and %s has not answered for %.1f s (seen by rank %d)",
            yk__comm_describe(&g->current, what, sizeof(what)), yk__native_rank_name(g, g->rank, self, sizeof(self)),
            sigabbrev_np(number), yk__native_link_name(g, r, link), seconds, g->rank);
    }
    return YK_OK;
}

yk_status yk__native_control_check_peers(native *g)
{
    char what[160], who[120];
    yk_status status = YK_OK;
    /* A rank that is asked to end need not be sure that nothing more comes. */
    double wait = yk__signal_pending() ? end_delay / 10 : end_delay;
    pthread_mutex_lock(&g->message_lock);
    double now = 0;
    for (int r = 0; r < g->world_size && !status; r++) {
        const yk__native_link *l = &g->net->links[r];
        bool left = l->left && l->done < g->current.number;
        if (!left && (!l->closed || l->left))
            continue;
        now = now > 0 ? now : yk__now();
        if (!left && (now - l->closed_at < wait || now - g->net->moved < wait))
            continue;
        yk__comm_describe(&g->current, what, sizeof(what));
        yk__native_rank_name(g, r, who, sizeof(who));
        /* It took part in the last collective that this rank has done: each begins by hearing from all. */
        status = left ? yk__native_break(g, YK_ERR_CONNECTION, "%s: %s left after %llu collectives of group '%s'", what,
                                         who, (unsigned long long)l->done, g->name)
                      : break_lost_rank(g, r, what, (unsigned long long)g->current.number - 1);
    }
    if (!status)
        status = break_unreachable(g);
    pthread_mutex_unlock(&g->message_lock);
    return status;
}

/* ---- ranks that do not come -------------------------------------------------------------------------------------- */
/* True if a rank of another host has come to this operation, and then has not said for long that it waits there. */
static bool is_silent(const native *g, int rank)
{
    const yk__native_link *l = &g->net->links[rank];
    return l->begun == g->current.number && yk__now() - l->heard > g->timeout / 2;
}

/* A rank of another host that has come. */
static void append_present(const native *g, char *list, size_t size, int rank)
{
    size_t before = strlen(list);
    yk__native_append_late(g, list, size, rank, false);
    size_t used = strlen(list);
    if (used == before) /* the list is full */
        return;
    if (is_silent(g, rank))
        snprintf(list + used, size - used, ", which has come, and of which nothing was heard for the last %.3g s",
                 yk__now() - g->net->links[rank].heard);
    else
        snprintf(list + used, size - used, ", which waits in this operation too");
}

/* All have come: a rank that waits for one that waits for another, and so on, waits for the last of these. The last is
 * found where each tells the rank that it waits for; where one waits for its own host, those count that are silent, or
 * else the first. With the message lock held. */
static void append_last(native *g, char *list, size_t size, int waits_for)
{
    int last = waits_for;
    for (int i = 0; i < g->world_size && g->members[last].host != g->host; i++) {
        const yk__native_link *l = &g->net->links[last];
        int next = l->begun == g->current.number ? l->waits_for - 1 : -1;
        if (is_silent(g, last)) {
            append_present(g, list, size, last);
            return;
        }
        if (next < 0 || next >= g->world_size)
            break;
        last = next;
    }
    for (int r = 0; r < g->world_size; r++) {
        if (g->members[r].host != g->host && is_silent(g, r))
            append_present(g, list, size, r);
    }
    if (!*list)
        append_present(g, list, size, waits_for);
}

/* Time is up between hosts: the cause are the ranks that are not known to have come to this operation, or, where all
 * have come, the one that this rank waits for, directly or not (-1: let those decide who wait for another host). */
static yk_status break_stalled_hosts(native *g, int waits_for)
{
    char list[480] = "";
    uint64_t number = g->current.number;
    yk__native_control_progress(g);
    pthread_mutex_lock(&g->message_lock);
    for (int r = 0; r < g->world_size; r++) {
        const yk__native_member *m = &g->members[r];
        uint64_t begun = m->host == g->host ? atomic_load(&g->rows[m->local_rank].begun) : g->net->links[r].begun;
        if (begun < number && r != g->rank)
            yk__native_append_late(g, list, sizeof(list), r, true);
    }
    if (!*list && waits_for >= 0)
        append_last(g, list, sizeof(list), waits_for);
    pthread_mutex_unlock(&g->message_lock);
    return *list ? yk__native_break_stalled(g, &g->current, list) : YK_OK;
}

/* Seconds after which a rank that waits sends its operation's number to the other hosts: those that come at once send
 * nothing. */
static const double ANNOUNCE = 0.02;
/* Beyond the time-out: a rank that waits for one that answers gives it this long to name whom it waits for. */
static const double OTHERS_DELAY = 0.3;
static const double LOOK = 0.1; /* between looks at the processes of this host */

yk_status yk__native_wait_remote(native *g, int rank, double *looked)
{
    double now = yk__now(), waited = yk__native_waited(g, now);
    yk__native_control_progress(g);
    if (atomic_load_explicit(&g->pending, memory_order_relaxed) > 0)
        yk__native_progress(g);
    yk_status status = yk__native_check(g);
    if (!status)
        status = yk__native_control_check_peers(g);
    if (!status && (now - *looked >= LOOK || yk__signal_pending())) {
        status = yk__native_check_local_peers(g, true);
        *looked = now;
    }
    if (!status && waited >= ANNOUNCE)
        yk__native_control_send_begun(g, g->current.number, rank);
    /* Time is over first where it began first: at a rank in an earlier operation, or at one whose link is cut. A rank
     * that waits for one that answers gives that one time to tell the rank that it waits for. */
    double over = g->timeout + (yk__native_unanswered(g, rank) > 0 ? 0 : OTHERS_DELAY);
    if (!status && waited >= over)
        status = break_stalled_hosts(g, rank);
    return status;
}

/* The same for a rank that waits for its own host. */
yk_status yk__native_check_hosts(native *g, double waited)
{
    yk__native_control_progress(g);
    yk_status status = yk__native_check(g);
    if (!status)
        status = yk__native_control_check_peers(g);
    if (!status && waited >= ANNOUNCE)
        yk__native_control_send_begun(g, g->current.number, -1);
    if (!status && waited >= g->timeout)
        status = break_stalled_hosts(g, -1);
    return status;
}
