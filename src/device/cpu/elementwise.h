/*
 * elementwise.h - the files that the elementwise family is made of. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_ELEMENTWISE_H
#define YOKE_DEVICE_CPU_ELEMENTWISE_H

#include "device/cpu/cpu.h"

void YK__ISA_NAME(yk__cpu_fill_copy)(yk__backend *table);   /* copy.c */
void YK__ISA_NAME(yk__cpu_fill_unary)(yk__backend *table);  /* unary.c */
void YK__ISA_NAME(yk__cpu_fill_binary)(yk__backend *table); /* binary.c */

/* base^exponent in wrapping arithmetic; a negative exponent gives the reciprocal cut to an integer, 0 of 0. */
static inline int64_t yk__power(int64_t base, int64_t exponent)
{
    if (exponent < 0)
        return base == 1 ? 1 : base != -1 ? 0 : exponent % 2 ? -1 : 1;
    uint64_t result = 1, factor = (uint64_t)base;
    for (; exponent > 0; exponent >>= 1, factor *= factor)
        if (exponent & 1)
            result *= factor;
    return (int64_t)result;
}

#endif
