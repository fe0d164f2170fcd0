/*
 * isa.c - the choice between the compiled instruction sets. Layer: base.
 */
#include "base/isa.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <strings.h>

#ifdef YK__CPU_WIDE
static int best_isa(void)
{
    __builtin_cpu_init();
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    return v4 ? 4 : v3 ? 3 : 0;
}

static int choose_isa(void)
{
    int isa = best_isa();
    const char *wanted = getenv("YOKE_CPU_ISA");
    int asked = !wanted || !*wanted ? isa : strcasecmp(wanted, "v4") == 0 ? 4 : strcasecmp(wanted, "v3") == 0 ? 3 : 0;
    return asked < isa ? asked : isa;
}

int yk__isa(void)
{
    static atomic_int chosen = -1; /* threads that come at once find the same */
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa < 0) {
        isa = choose_isa();
        atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    }
    return isa;
}
#else
int yk__isa(void)
{
    return 0;
}
#endif
