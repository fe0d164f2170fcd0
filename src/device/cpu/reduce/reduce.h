/*
 * reduce.h - the files that the reduce family is made of. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_REDUCE_REDUCE_H
#define YOKE_DEVICE_CPU_REDUCE_REDUCE_H

#include "device/cpu/cpu.h"

void YK__ISA_NAME(yk__cpu_fill_softmax)(yk__backend *table); /* softmax.c */

#endif
