/*
 * failure.c - the breaking of a group, and the state of the processes of its ranks. Layer: comm/native.
 *
 * Invariant: the first rank of a host to see a failure writes the cause into the segment, wakes everybody there and
 * sends it to the other hosts; all report that one. head->broken goes from 0 (whole) over 1 (the cause is being
 * written) to 2 (it is there), and never back. A process that ended is seen by its number, also as a zombie.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/native/native.h"
#include "host/process.h"

const char *yk__native_rank_name(const native *g, int rank, char *buffer, size_t size)
{
    const yk__native_member *m = &g->members[rank];
    if (g->is_part)
        snprintf(buffer, size, "rank %d (host %s, pid %d, global rank %d)", rank, m->host_name, (int)m->pid, m->global);
    else
        snprintf(buffer, size, "rank %d (host %s, pid %d)", rank, m->host_name, (int)m->pid);
    return buffer;
}

const char *yk__native_describe_rank(const void *state, int rank, char *buffer, size_t size)
{
    return yk__native_rank_name(state, rank, buffer, size);
}

const char *yk__native_local_rank_name(const native *g, int local_rank, char *buffer, size_t size)
{
    return yk__native_rank_name(g, yk__native_rank_at(g, g->host, local_rank), buffer, size);
}

bool yk__native_is_dead(const native *g, int local_rank, bool *stopped)
{
    const yk__native_row *row = &g->rows[local_rank];
    char state = 0;
    uint64_t start = 0;
    *stopped = false;
    if (row->pid == g->pid)
        return false;
    if (!yk__process_state(row->pid, &state, &start))
        return errno == ENOENT || errno == ESRCH;
    *stopped = state == 'T' || state == 't';
    bool same = start == row->start || !start || !row->start;
    return state == 'Z' || state == 'X' || !same;
}

void yk__native_wake_all(native *g)
{
    atomic_fetch_add(&g->head->epoch, 1);
    yk__native_wake(&g->head->epoch);
    for (int r = 0; r < g->local_size; r++) {
        atomic_fetch_add(&g->rows[r].bell, 1);
        yk__native_wake(&g->rows[r].bell);
    }
}

/* Fails with the cause in the segment. */
static yk_status fail_broken(native *g)
{
    for (int i = 0; i < 1000 && atomic_load(&g->head->broken) == 1; i++)
        usleep(100); /* its writer is about to finish, unless it was killed just now */
    if (atomic_load(&g->head->broken) != 2)
        return yk__fail(YK_ERR_CONNECTION, "group '%s' is broken; the rank that knew why ended", g->name);
    return yk__fail((yk_status)g->head->code, "%s", g->head->cause);
}

void yk__native_abort(void *state, yk_status code, const char *cause)
{
    native *g = state;
    uint32_t whole = 0;
    if (!atomic_compare_exchange_strong(&g->head->broken, &whole, 1))
        return;
    g->head->code = (int32_t)code;
    snprintf(g->head->cause, sizeof(g->head->cause), "%s", cause);
    atomic_store(&g->head->broken, 2);
    yk__native_wake_all(g);
    g->transport->send_broken(g, code, g->head->cause);
}

yk_status yk__native_break(native *g, yk_status code, const char *format, ...)
{
    char cause[sizeof(g->head->cause)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cause, sizeof(cause), format, arguments);
    va_end(arguments);
    yk__native_abort(g, code, cause);
    return fail_broken(g);
}

yk_status yk__native_check(void *state)
{
    native *g = state;
    return atomic_load_explicit(&g->head->broken, memory_order_acquire) ? fail_broken(g) : YK_OK;
}

yk_status yk__native_look(void *state)
{
    native *g = state;
    char who[120];
    yk_status status = yk__native_check(g);
    for (int r = 0; r < g->local_size && !status; r++) {
        if (r == g->local_rank)
            continue;
        bool left = atomic_load(&g->rows[r].left), stopped;
        if (left || yk__native_is_dead(g, r, &stopped))
            status = yk__native_break(g, YK_ERR_CONNECTION, "%s %s after %llu collectives of group '%s'",
                                      yk__native_local_rank_name(g, r, who, sizeof(who)), left ? "left" : "ended",
                                      (unsigned long long)atomic_load(&g->rows[r].done), g->name);
    }
    return status;
}

/* ---- ranks that do not come -------------------------------------------------------------------------------------- */
void yk__native_append_late(const native *g, char *list, size_t size, int rank, bool progress)
{
    size_t used = strlen(list);
    char name[120];
    if (used + 180 > size) /* a name of 119 bytes and what is known of it */
        return;
    const yk__native_member *m = &g->members[rank];
    bool stopped = false, local = m->host == g->host;
    if (local)
        yk__native_is_dead(g, m->local_rank, &stopped);
    used += (size_t)snprintf(list + used, size - used, "%s%s%s", used ? ", " : "",
                             yk__native_rank_name(g, rank, name, sizeof(name)), stopped ? ", which is stopped" : "");
    char awaited[160];
    if (!stopped && local && progress) {
        used += (size_t)snprintf(list + used, size - used, ", which has done %llu collectives",
                                 (unsigned long long)atomic_load(&g->rows[m->local_rank].done));
        if (yk__native_awaited_message(g, m->local_rank, awaited, sizeof(awaited)) && used + 180 < size)
            snprintf(list + used, size - used, " and waits in %s", awaited);
    }
    if (!local && progress)
        snprintf(list + used, size - used, ", from which nothing is heard in this operation");
}

yk_status yk__native_break_stalled(native *g, const yk__comm_op *op, const char *list)
{
    char what[160], self[120];
    return yk__native_break(g, YK_ERR_STALLED, "group '%s': %s: %s waited %g s for %s", g->name,
                            yk__comm_describe(op, what, sizeof(what)),
                            yk__native_rank_name(g, g->rank, self, sizeof(self)), g->timeout, list);
}

yk_status yk__native_check_local_peers(native *g, bool thorough)
{
    char what[160], who[120];
    for (int r = 0; r < g->local_size; r++) {
        if (r == g->local_rank)
            continue;
        bool left = atomic_load(&g->rows[r].left), stopped,
             dead = !left && thorough && yk__native_is_dead(g, r, &stopped);
        if ((!left && !dead) || yk__native_reached(g, r))
            continue;
        return yk__native_break(g, YK_ERR_CONNECTION, "%s: %s %s after %llu collectives of group '%s'",
                                yk__comm_describe(&g->current, what, sizeof(what)),
                                yk__native_local_rank_name(g, r, who, sizeof(who)), dead ? "ended" : "left",
                                (unsigned long long)atomic_load(&g->rows[r].done), g->name);
    }
    return YK_OK;
}
