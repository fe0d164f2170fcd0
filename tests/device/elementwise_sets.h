/*
 * elementwise_sets.h - the elementwise kernels of every instruction set that this processor has.
 */
#ifndef YOKE_TESTS_DEVICE_ELEMENTWISE_SETS_H
#define YOKE_TESTS_DEVICE_ELEMENTWISE_SETS_H

#include "device/table.h"
#include "tests/support/expect.h"

void yk__cpu_fill_elementwise_base(yk__backend *table);
#ifdef YK__CPU_WIDE
void yk__cpu_fill_elementwise_v3(yk__backend *table);
void yk__cpu_fill_elementwise_v4(yk__backend *table);
#endif

static inline int instruction_sets(yk__backend tables[3])
{
    int count = 0;
    yk__cpu_fill_elementwise_base(&tables[count++]);
#ifdef YK__CPU_WIDE
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        yk__cpu_fill_elementwise_v3(&tables[count++]);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        yk__cpu_fill_elementwise_v4(&tables[count++]);
#endif
    return count;
}

/* The same; a test that compares them is skipped where there is one alone. */
static inline int several_instruction_sets(yk__backend tables[3])
{
    int count = instruction_sets(tables);
    if (count < 2) {
        print_message("one instruction set only: nothing to compare\n");
        skip();
    }
    return count;
}

#endif
