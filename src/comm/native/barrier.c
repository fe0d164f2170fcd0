/*
 * barrier.c - the rounds in which the ranks of a host run in step, and waiting for those that have not come.
 * Layer: comm/native.
 *
 * A wait spins for a moment, because ranks mostly come within microseconds; then it yields its core between looks, for
 * longer than the system needs to wake a sleeper (0.1 ms in a virtual machine: ranks that slept would make each other
 * sleep for ever); then it sleeps on a futex in the segment. Ranks that outnumber their cores hardly spin: the one they
 * wait for needs the core. Who publishes a round looks for sleepers, and wakes them only if the round is complete by
 * it, so that a rank is woken once a round.
 */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/wakeup.h"
#include "comm/native/multihost.h"

/* Looks at a rank's round before the core is yielded: a few microseconds. */
enum { SPINS = 200, CROWDED_SPINS = 20 };
/* Seconds: for which the core is yielded; for which a sleeper sleeps at most; between looks at the processes of peers,
 * which cost a system call each. */
static const double OFFER = 4e-4, NAP = 0.01, LOOK = 0.02;

void yk__native_sleep(_Atomic uint32_t *word, uint32_t value, double seconds)
{
    struct timespec limit = {.tv_sec = (time_t)seconds};
    limit.tv_nsec = (long)((seconds - (double)limit.tv_sec) * 1e9);
    int slot = yk__wakeup_begin(word);
    syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
    yk__wakeup_end(slot);
}

void yk__native_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static bool complete(const native *g)
{
    for (int r = 0; r < g->local_size; r++)
        if (atomic_load(&yk__native_round_of(g, r)->number) != g->round)
            return false;
    return true;
}

/* The number of rounds by which a rank is late, compared with this one; it can be one ahead, which counts as 0. */
static int32_t rounds_behind(const native *g, int local_rank)
{
    const yk__native_round *rounds = g->rows[local_rank].rounds;
    int32_t a = (int32_t)(g->round - atomic_load(&rounds[0].number));
    int32_t b = (int32_t)(g->round - atomic_load(&rounds[1].number)), least = a < b ? a : b;
    return least > 0 ? least : 0;
}

/* Time is up. The ranks that are latest are the cause: the others wait for them. */
static yk_status break_round(native *g)
{
    char list[480] = "";
    int32_t most = 0;
    for (int r = 0; r < g->local_size; r++) {
        int32_t behind = rounds_behind(g, r);
        most = behind > most ? behind : most;
    }
    if (most == 0)
        return YK_OK;
    for (int r = 0; r < g->local_size; r++) {
        if (rounds_behind(g, r) == most)
            yk__native_append_late(g, list, sizeof(list), yk__native_rank_at(g, g->host, r), true);
    }
    return yk__native_break_stalled(g, &g->current, list);
}

static yk_status wait_long(native *g)
{
    double now = yk__now(), looked = now;
    bool first = true;
    for (;;) {
        double waited = yk__native_waited(g, now);
        yk_status status = yk__native_check(g);
        if (!status)
            status = yk__native_check_local_peers(g, first || now - looked >= LOOK || yk__signal_pending());
        if (first || now - looked >= LOOK)
            looked = now;
        first = false;
        if (!status)
            status = g->transport->check_hosts(g, waited);
        /* While a rank waits for another host, the ranks there that are late themselves get time to say so. */
        if (!status && waited >= g->timeout + g->transport->stall_delay)
            status = break_round(g);
        if (status)
            return status;
        bool messages = atomic_load_explicit(&g->pending, memory_order_relaxed) > 0;
        if (messages)
            yk__native_progress(g);
        atomic_fetch_add(&g->head->sleepers, 1);
        uint32_t epoch = atomic_load(&g->head->epoch);
        bool there = complete(g);
        if (!there) {
            double left = g->timeout - waited, seconds = messages ? 0.001 : NAP;
            yk__native_sleep(&g->head->epoch, epoch, left > 0.001 && left < seconds ? left : seconds);
        }
        atomic_fetch_sub(&g->head->sleepers, 1);
        if (there || complete(g))
            return YK_OK;
        now = yk__now();
    }
}

yk_status yk__native_sync(native *g)
{
    yk__native_head *head = g->head;
    uint32_t round = ++g->round;
    int32_t cpu = sched_getcpu();
    yk__native_round *own = yk__native_round_of(g, g->local_rank);
    atomic_store_explicit(&own->cpu, cpu, memory_order_relaxed);
    atomic_store(&own->number, round);
    if (atomic_load(&head->sleepers) && complete(g)) {
        atomic_fetch_add(&head->epoch, 1);
        yk__native_wake(&head->epoch);
    }
    int spins = g->crowded ? CROWDED_SPINS : SPINS, spin = 0;
    double until = 0;
    for (int r = 0; r < g->local_size; r++) {
        while (!yk__native_reached(g, r)) {
            /* A rank that waits for a rank on its own core must let that run. */
            if (++spin <= spins && atomic_load_explicit(&yk__native_round_of(g, r)->cpu, memory_order_relaxed) != cpu) {
                yk__native_relax();
                continue;
            }
            double now = yk__now();
            if (until == 0)
                until = now + OFFER;
            if (now > until)
                return wait_long(g);
            sched_yield();
        }
    }
    return YK_OK;
}
