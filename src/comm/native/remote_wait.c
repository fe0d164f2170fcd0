/*
 * remote_wait.c - waiting for ranks of other hosts, and which of them are named when the time is over.
 * Layer: comm/native.
 */
#include "comm/native/multihost.h"

/* Time is up between hosts: the cause are the ranks that are not known to have come to this operation. Where all have
 * come, it is the one that this rank waits for (-1: let those decide who wait for another host). */
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
    pthread_mutex_unlock(&g->message_lock);
    if (!*list && waits_for >= 0)
        yk__native_append_late(g, list, sizeof(list), waits_for, true);
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
    double now = yk__now();
    if (g->op_begin == 0)
        g->op_begin = now;
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
    if (!status && now - g->op_begin >= ANNOUNCE)
        yk__native_control_send_begun(g, g->current.number);
    /* Time is over first where it began first: at a rank in an earlier operation, or at one whose link is cut. Who
     * waits for a rank that answers gives that rank the time to say what it waits for. */
    double over = g->timeout + (yk__native_unanswered(g, rank) > 0 ? 0 : OTHERS_DELAY);
    if (!status && now - g->op_begin >= over)
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
        yk__native_control_send_begun(g, g->current.number);
    if (!status && waited >= g->timeout)
        status = break_stalled_hosts(g, -1);
    return status;
}
