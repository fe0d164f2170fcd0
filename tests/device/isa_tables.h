/*
 * isa_tables.h - the kernels of every instruction set that is built and that this processor has.
 */
#ifndef YOKE_TESTS_DEVICE_ISA_TABLES_H
#define YOKE_TESTS_DEVICE_ISA_TABLES_H

#include "base/isa.h"
#include "device/table.h"

#define DECLARE_FILL(isa, A) void yk__cpu_fill_##isa(yk__backend *table);
YK__ISAS(DECLARE_FILL, )
#define FILL_OF_SET(isa, A) [YK__LEVEL_##isa] = yk__cpu_fill_##isa,

/* The level of the set that has number i among these, narrowest first; -1 where there are fewer. */
static inline int isa_level(int i)
{
    for (int level = 0; level < YK__LEVELS; level++)
        if (yk__isa_usable(level) && i-- == 0)
            return level;
    return -1;
}

static inline int isa_count(void)
{
    int count = 0;
    while (isa_level(count) >= 0)
        count++;
    return count;
}

static inline void isa_fill(int i, yk__backend *table)
{
    static void (*const fill_of_set[YK__LEVELS])(yk__backend *) = {YK__ISAS(FILL_OF_SET, )};
    fill_of_set[isa_level(i)](table);
}

#endif
