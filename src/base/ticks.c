/*
 * ticks.c - which clock ticks are of. Layer: base.
 */
#include "base/ticks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

atomic_bool yk__ticks_counted;

/* The kernel keeps its time by the counter only where all cores' counters go alike, at one rate. */
static void choose(void)
{
    char name[16] = "";
    FILE *from = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (from && fgets(name, sizeof(name), from))
        atomic_store_explicit(&yk__ticks_counted, strcmp(name, "tsc\n") == 0, memory_order_relaxed);
    if (from)
        fclose(from);
}

void yk__ticks_choose(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
}
