/*
 * ticks.h - a clock for what is noted often and read seldom. Layer: base.
 *
 * Ticks mean nothing alone. Who notes them keeps the ticks and yk__now() of one moment, takes both again when it reads,
 * and has the seconds of a tick from the two.
 */
#ifndef YOKE_BASE_TICKS_H
#define YOKE_BASE_TICKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* True if the processor's own counter is read, which takes less than half of clock_gettime. */
extern atomic_bool yk__ticks_counted;

/* Chooses, once in a process; until then ticks are nanoseconds of CLOCK_MONOTONIC. Before the first that is kept. */
void yk__ticks_choose(void);

static inline uint64_t yk__ticks(void)
{
#ifdef __x86_64__
    if (atomic_load_explicit(&yk__ticks_counted, memory_order_relaxed))
        return __builtin_ia32_rdtsc();
#endif
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

#endif
