/*
 * families.c - the table of one instruction set's kernels. Layer: device/cpu.
 */
#include "device/cpu/cpu.h"

#define FILL_WITH(family) YK__ISA_NAME(yk__cpu_fill_##family)(table);

void YK__ISA_NAME(yk__cpu_fill)(yk__backend *table)
{
    YK__CPU_FAMILIES(FILL_WITH)
}
