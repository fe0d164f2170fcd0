/*
 * nonzero.h - the slots of nonzero.c, which index.c puts into the table. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_INDEX_NONZERO_H
#define YOKE_DEVICE_CPU_INDEX_NONZERO_H

#include "device/cpu/cpu.h"

void YK__ISA_NAME(yk__cpu_fill_nonzero)(yk__backend *table);

#endif
