/*
 * rpc_bell.c - the futex on which threads wait for messages of other processes. Layer: rpc.
 *
 * Invariant: a bit of `sleepers` is set by its listener alone, and taken away before the futex is woken, so a listener
 * that sleeps without its bit is about to be woken. (A process that is killed between the two leaves such a sleeper;
 * the end of its connection wakes all, by yk__bell_wake.)
 */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rpc/rpc_bell.h"

/* Seconds for which a listener looks before it sleeps, and looks at the bits between two at the clock. */
static const double SPIN = 1e-5;
enum { LOOKS = 64, TRIES = 1000 };

static void relax(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

void yk__bell_wake(yk__bell *bell, unsigned kinds)
{
    atomic_fetch_and(&bell->sleepers, ~(kinds | kinds << YK__BELL_SPINS));
    atomic_fetch_add(&bell->epoch, 1);
    syscall(SYS_futex, &bell->epoch, FUTEX_WAKE_BITSET, INT32_MAX, NULL, NULL, kinds);
}

void yk__bell_ring(yk__bell *bell, unsigned first)
{
    uint32_t seen = atomic_load(&bell->sleepers);
    /* A process may write nonsense into its bell at any rate: it is not worth more tries than threads can cause. */
    for (int tries = 0; (seen & YK__BELL_KINDS) && tries < TRIES; tries++) {
        uint32_t kinds = seen & YK__BELL_KINDS, kind = kinds & first             ? first
                                                       : kinds & YK__BELL_HELPER ? (uint32_t)YK__BELL_HELPER
                                                                                 : kinds & -kinds;
        bool spins = seen & kind << YK__BELL_SPINS;
        if (!atomic_compare_exchange_weak(&bell->sleepers, &seen, seen & ~(kind | kind << YK__BELL_SPINS)))
            continue;
        if (spins)
            return;
        atomic_fetch_add(&bell->epoch, 1);
        syscall(SYS_futex, &bell->epoch, FUTEX_WAKE_BITSET, 1, NULL, NULL, kind);
        return;
    }
}

void yk__bell_arm(yk__bell *bell, unsigned kind, bool spins)
{
    atomic_fetch_or(&bell->sleepers, kind | (spins ? kind << YK__BELL_SPINS : 0));
}

void yk__bell_disarm(yk__bell *bell, unsigned kind)
{
    atomic_fetch_and(&bell->sleepers, ~(kind | kind << YK__BELL_SPINS));
}

/* True if the bell was rung while this thread looked. */
static bool bell_spin(yk__bell *bell, unsigned kind)
{
    double until = yk__now() + SPIN;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (!(atomic_load_explicit(&bell->sleepers, memory_order_acquire) & kind))
                return true;
            relax();
        }
    } while (yk__now() < until);
    return !(atomic_fetch_and(&bell->sleepers, ~(kind << YK__BELL_SPINS)) & kind);
}

void yk__bell_sleep(yk__bell *bell, unsigned kind, bool spins, double deadline)
{
    if (spins && bell_spin(bell, kind))
        return;
    struct timespec until = {.tv_sec = (time_t)deadline};
    until.tv_nsec = (long)((deadline - (double)until.tv_sec) * 1e9);
    for (;;) {
        uint32_t epoch = atomic_load(&bell->epoch);
        if (!(atomic_load(&bell->sleepers) & kind))
            return;
        syscall(SYS_futex, &bell->epoch, FUTEX_WAIT_BITSET, epoch, deadline ? &until : NULL, NULL, kind);
        if (deadline && yk__now() >= deadline)
            break;
    }
    yk__bell_disarm(bell, kind);
}
