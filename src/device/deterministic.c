/*
 * deterministic.c - whether algorithms are kept to those that give the same bits in every run. Layer: device.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/device.h>

/* What the program chose; until then it is the environment's. */
static enum { OFF, ON, NOT_CHOSEN } _Atomic chosen = NOT_CHOSEN;

void yk_use_deterministic_algorithms(bool on)
{
    atomic_store(&chosen, on ? ON : OFF);
}

bool yk_deterministic_algorithms_enabled(void)
{
    int now = atomic_load(&chosen);
    if (now != NOT_CHOSEN)
        return now == ON;
    const char *text = getenv("YOKE_DETERMINISTIC");
    return text && *text && strcmp(text, "0") != 0;
}
