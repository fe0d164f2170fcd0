/*
 * counter.h - counts of references, which cost plain additions while the process has one thread. Layer: base.
 *
 * An atomic addition takes some twenty cycles, and an operation on a small tensor with its backward does thirty. Where
 * the C library says that there is no other thread, the same atomic variable is loaded and stored again: a thread that
 * begins later sees what was stored, as pthread_create synchronises with it. Elsewhere every addition is atomic.
 * Source: __libc_single_threaded of glibc.
 */
#ifndef YOKE_BASE_COUNTER_H
#define YOKE_BASE_COUNTER_H

#include <stdatomic.h>
#include <stdbool.h>

#if defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define YK__HAS_SINGLE_THREADED 1
#endif
#endif

static inline bool yk__one_thread(void)
{
#ifdef YK__HAS_SINGLE_THREADED
    return __libc_single_threaded;
#else
    return false;
#endif
}

/* One more reference, to what the caller may reach by another; gives the count before. */
static inline int yk__count_up(atomic_int *count)
{
    if (!yk__one_thread())
        return atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    int before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before + 1, memory_order_relaxed);
    return before;
}

/* One less; gives the count before. Who finds 1 sees what all others wrote before they released theirs. */
static inline int yk__count_down(atomic_int *count)
{
    if (!yk__one_thread())
        return atomic_fetch_sub_explicit(count, 1, memory_order_acq_rel);
    int before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before - 1, memory_order_relaxed);
    return before;
}

/* Gives the number and adds one: numbers of one counter are all different. */
static inline unsigned long long yk__count_next(atomic_ullong *count)
{
    if (!yk__one_thread())
        return atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    unsigned long long before = atomic_load_explicit(count, memory_order_relaxed);
    atomic_store_explicit(count, before + 1, memory_order_relaxed);
    return before;
}

#endif
