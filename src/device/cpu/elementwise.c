/*
 * elementwise.c - puts the elementwise kernels into the table. Layer: device/cpu.
 */
#include "device/cpu/elementwise.h"

void YK__ISA_NAME(yk__cpu_fill_elementwise)(yk__backend *table)
{
    YK__ISA_NAME(yk__cpu_fill_copy)(table);
    YK__ISA_NAME(yk__cpu_fill_unary)(table);
    YK__ISA_NAME(yk__cpu_fill_binary)(table);
}
