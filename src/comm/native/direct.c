/*
 * direct.c - sections in which ranks work on each other's memory, and what ends them when the group breaks: see Note
 * [Direct sections] in native.h. Layer: comm/native.
 */
#include <unistd.h>

#include "comm/native/native.h"

/* A thread of this process needs no more than the time to go over its memory, however busy the machine is, and may not
 * be left there; another process may. Seconds. */
static const double settle_thread = 60, settle_process = 1;

yk_status yk__native_enter(native *g)
{
    /* Both are sequentially consistent, as are the ones in yk__native_abort and yk__native_settle. */
    atomic_store(&g->rows[g->local_rank].inside, 1);
    if (!atomic_load(&g->head->broken))
        return YK_OK;
    yk__native_exit(g);
    return yk__native_check(g);
}

/* True if the rank is in such a section; `detached` if it must be left there. */
static bool is_inside(const native *g, int rank, double waited, bool *detached)
{
    const yk__native_row *row = &g->rows[rank];
    bool stopped = false;
    *detached = false;
    if (!atomic_load(&row->inside))
        return false;
    if (row->pid == g->pid)
        return waited < settle_thread;
    if (yk__native_is_dead(g, rank, &stopped))
        return false;
    *detached = (stopped || waited >= settle_process) && atomic_load(&row->inside);
    return !*detached;
}

void yk__native_settle(native *g, const yk__comm_op *op)
{
    double began = yk__now();
    bool any_astray = false;
    for (int r = 0; r < g->local_size; r++) {
        bool detached = false;
        while (r != g->local_rank && is_inside(g, r, yk__now() - began, &detached))
            usleep(100);
        any_astray |= detached;
    }
    bool written = op->kind == YK__COMM_ALL_REDUCE || (op->kind == YK__COMM_REDUCE && op->peer == g->rank);
    if (any_astray && written && op->in)
        yk__region_renew(op->in);
}
