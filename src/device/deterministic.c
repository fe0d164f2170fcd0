/*
 * deterministic.c - the choice of algorithms: those alone that give the same bits in every run, or the fastest in a
 * trial. Layer: device.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/device.h>

/* The program's choice; until it makes one, the environment's counts. */
enum choice { OFF, ON, NOT_CHOSEN };
static enum choice _Atomic chosen = NOT_CHOSEN, benchmark = NOT_CHOSEN;

static bool is_on(enum choice _Atomic *of, const char *variable)
{
    enum choice now = atomic_load(of);
    if (now != NOT_CHOSEN)
        return now == ON;
    const char *text = getenv(variable);
    return text && *text && strcmp(text, "0") != 0;
}

void yk_use_deterministic_algorithms(bool on)
{
    atomic_store(&chosen, on ? ON : OFF);
}

bool yk_deterministic_algorithms_enabled(void)
{
    return is_on(&chosen, "YOKE_DETERMINISTIC");
}

void yk_use_benchmark(bool on)
{
    atomic_store(&benchmark, on ? ON : OFF);
}

bool yk_benchmark_enabled(void)
{
    return is_on(&benchmark, "YOKE_BENCHMARK");
}
