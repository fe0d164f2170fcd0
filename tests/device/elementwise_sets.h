/*
 * elementwise_sets.h - tables of kernels for the tests that compare instruction sets.
 */
#ifndef YOKE_TESTS_DEVICE_ELEMENTWISE_SETS_H
#define YOKE_TESTS_DEVICE_ELEMENTWISE_SETS_H

#include "tests/device/isa_tables.h"
#include "tests/support/expect.h"

static inline int instruction_sets(yk__backend tables[YK__LEVELS])
{
    int count = isa_count();
    for (int i = 0; i < count; i++)
        isa_fill(i, &tables[i]);
    return count;
}

/* The same; a test that compares them is skipped where there is one alone. */
static inline int several_instruction_sets(yk__backend tables[YK__LEVELS])
{
    int count = instruction_sets(tables);
    if (count < 2) {
        print_message("kernels of %s alone are built and run here: there is nothing to compare (make CPU_ISAS=all)\n",
                      yk__isa_built());
        skip();
    }
    return count;
}

#endif
