/*
 * mpi_failure.c - waiting for other ranks, and failures. Layer: comm/mpi.
 *
 * A wait tests its requests; now and then it reads notices, which may say that the group is broken or that a rank has
 * left. When the time is up it asks the others where they are: the error names those that have not come to this
 * operation, and those that do not answer. The first rank to see a failure sends it to all.
 */
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "comm/mpi/mpi_backend.h"

/* Looks at an operation: before the core is yielded (at once where ranks share cores); from one look at notices of
 * failures to the next, which cost more than a look at the operation; and before sleeping 100 us at a time. */
enum { SPINS = 300, NOTICES_EVERY = 32, OFFERS = 20000 };
static const double answer_time = 0.5; /* seconds */

const char *mpi_rank_name(const mpi_group *g, int rank, char *buffer, size_t size)
{
    const mpi_record *who = &g->members[rank].who;
    snprintf(buffer, size, "rank %d (host %s, pid %d)", rank, who->host, (int)who->pid);
    return buffer;
}

static yk_status fail_broken(const mpi_group *g)
{
    return mpi_fail(g->code, "%s", g->cause);
}

void mpi_broken_by(mpi_group *g, yk_status code, const char *cause)
{
    if (atomic_load(&g->broken))
        return;
    g->code = code;
    snprintf(g->cause, sizeof(g->cause), "%s", cause);
    atomic_store(&g->broken, 1);
}

static void send_broken(mpi_group *g, yk_status code, const char *cause)
{
    if (atomic_load(&g->broken))
        return;
    mpi_broken_by(g, code, cause);
    mpi_notice notice = {.kind = NOTICE_BROKEN, .code = (int32_t)code};
    notice.bytes = (int32_t)snprintf(notice.text, sizeof(g->cause), "%s", g->cause) + 1;
    mpi_send_members(g, &notice);
}

yk_status mpi_break_locked(mpi_group *g, yk_status code, const char *format, ...)
{
    char cause[sizeof(g->cause)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cause, sizeof(cause), format, arguments);
    va_end(arguments);
    send_broken(g, code, cause);
    return fail_broken(g);
}

yk_status mpi_break(mpi_group *g, yk_status code, const char *format, ...)
{
    char cause[sizeof(g->cause)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cause, sizeof(cause), format, arguments);
    va_end(arguments);
    mpi_abort_group(g, code, cause);
    return fail_broken(g);
}

void mpi_abort_group(void *state, yk_status code, const char *cause)
{
    mpi_group *g = state;
    pthread_mutex_lock(&mpi_lock);
    send_broken(g, code, cause);
    mpi_flush(0.2);
    pthread_mutex_unlock(&mpi_lock);
}

yk_status mpi_check(void *state)
{
    const mpi_group *g = state;
    return atomic_load_explicit(&g->broken, memory_order_acquire) ? fail_broken(g) : YK_OK;
}

void mpi_pause(const mpi_group *g, int looks)
{
    if (looks < SPINS && !g->crowded)
        return;
    if (looks < OFFERS)
        sched_yield();
    else
        usleep(100);
}

/* With the lock held. The members whose share of the operation will never come. */
static yk_status check_left(mpi_group *g, const yk__comm_op *op)
{
    char what[160], who[120];
    for (int r = 0; r < g->world_size; r++) {
        const mpi_member *m = &g->members[r];
        if (m->left && m->done < op->number)
            return mpi_break_locked(g, YK_ERR_CONNECTION, "%s: %s left after %llu collectives of group '%s'",
                                    mpi_yoke->describe(op, what, sizeof(what)), mpi_rank_name(g, r, who, sizeof(who)),
                                    (unsigned long long)m->done, g->name);
    }
    return YK_OK;
}

/* With the lock held: all have had the time to answer. */
static yk_status break_stalled(mpi_group *g, const yk__comm_op *op)
{
    char list[480] = "", what[160], self[120], who[120];
    size_t used = 0;
    for (int r = 0; r < g->world_size && used < sizeof(list) - 180; r++) {
        const mpi_member *m = &g->members[r];
        if (r == g->rank || (m->answered && m->begun >= op->number))
            continue;
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "",
                                 mpi_rank_name(g, r, who, sizeof(who)));
        if (m->answered)
            used += (size_t)snprintf(list + used, sizeof(list) - used, ", which has begun %llu collectives",
                                     (unsigned long long)m->begun);
        else
            used += (size_t)snprintf(list + used, sizeof(list) - used,
                                     ", which does not answer (stopped, or outside of yoke)");
    }
    return mpi_break_locked(g, YK_ERR_STALLED, "group '%s': %s: %s waited %g s for %s", g->name,
                            mpi_yoke->describe(op, what, sizeof(what)), mpi_rank_name(g, g->rank, self, sizeof(self)),
                            g->timeout, used ? list : "MPI to move the bytes, though all ranks have come");
}

/* With the lock held. `asked` is when the others were, 0: not yet. */
static yk_status look_at_clock(mpi_group *g, const yk__comm_op *op, double begin, double *asked)
{
    double now = mpi_base->now();
    if (now - begin < g->timeout)
        return YK_OK;
    if (*asked == 0) {
        *asked = now;
        for (int r = 0; r < g->world_size; r++)
            g->members[r].answered = false;
        mpi_send_members(g, &(mpi_notice){.kind = NOTICE_PROBE, .number = op->number});
    }
    bool all = true;
    for (int r = 0; r < g->world_size; r++)
        all &= r == g->rank || g->members[r].answered;
    return all || now - *asked >= answer_time ? break_stalled(g, op) : YK_OK;
}

yk_status mpi_finish(mpi_group *g, const yk__comm_op *op, MPI_Request *requests, int count, bool callers)
{
    double begin = 0, asked = 0, seen = 0;
    for (int looks = 0;; looks += looks < INT32_MAX - 1) {
        int done = 0;
        yk_status status = YK_OK;
        pthread_mutex_lock(&mpi_lock);
        int code = mpi_is_abandoned() ? MPI_SUCCESS : MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE);
        if (code) {
            status = mpi_failed(g->name, code);
            (void)mpi_break_locked(g, status, "group '%s': a collective of MPI failed on rank %d", g->name, g->rank);
        } else if (!done && looks % NOTICES_EVERY == NOTICES_EVERY - 1) {
            mpi_progress();
            status = mpi_check(g);
            if (!status)
                status = check_left(g, op);
            double now = mpi_base->now();
            begin = begin > 0 ? begin + yk__standstill(&seen, now) : now;
            if (!status)
                status = look_at_clock(g, op, begin, &asked);
        }
        if (status && callers) {
            mpi_flush(0.2);
            mpi_abandon(g->cause);
        }
        pthread_mutex_unlock(&mpi_lock);
        if (done || status)
            return status;
        mpi_pause(g, looks);
    }
}
