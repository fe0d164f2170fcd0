/*
 * machine.h - the processors and the memory of this machine at a moment. Layer: observe.
 */
#ifndef YOKE_OBSERVE_MACHINE_H
#define YOKE_OBSERVE_MACHINE_H

#include "base/core.h"

/* NAN for what is not known, as without /proc. */
typedef struct yk__machine {
    int cores;                /* that are online */
    double busy;              /* percent of their time since the look before; NAN at the first */
    double memory, available; /* bytes */
    double busy_ticks, ticks; /* as they were at this look */
} yk__machine;

/* Looks; `machine` is as the look before has left it, or zeroed. */
void yk__machine_read(yk__machine *machine);

#endif
