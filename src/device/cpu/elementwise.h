/*
 * elementwise.h - the files that the elementwise family is made of. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_ELEMENTWISE_H
#define YOKE_DEVICE_CPU_ELEMENTWISE_H

#include "device/cpu/cpu.h"

void YK__ISA_NAME(yk__cpu_fill_copy)(yk__backend *table);   /* copy.c */
void YK__ISA_NAME(yk__cpu_fill_unary)(yk__backend *table);  /* unary.c */
void YK__ISA_NAME(yk__cpu_fill_binary)(yk__backend *table); /* binary.c */

#endif
