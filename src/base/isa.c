/*
 * isa.c - the choice between the compiled instruction sets. Layer: base.
 *
 * The processor is asked before any function of a set is called, and a set that it lacks is never chosen: an error
 * comes in place of SIGILL.
 */
#include "base/isa.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/escape.h"

enum { NOT_CHOSEN = -2, NONE = -1 };

static const struct {
    const char *name, *instructions;
} sets[YK__LEVELS] = {
    {"base", "the plainest instructions"}, {"v3", "AVX2, FMA and BMI2"}, {"v4", "AVX-512 (F, BW, CD, DQ, VL)"}};

#define BIT_OF_SET(isa, A) | 1u << YK__LEVEL_##isa
static const unsigned built = 0u YK__ISAS(BIT_OF_SET, );

/* A bit for each set that the processor has. */
static unsigned processor_sets(void)
{
    unsigned has = 1u << YK__LEVEL_base;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
        has |= 1u << YK__LEVEL_v3;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl"))
            has |= 1u << YK__LEVEL_v4;
    }
#endif
    return has;
}

static const char *asked_name(void)
{
    const char *name = getenv("YOKE_CPU_ISA");
    return name && *name ? name : NULL;
}

static int level_of(const char *name)
{
    for (int level = 0; level < YK__LEVELS; level++)
        if (strcasecmp(name, sets[level].name) == 0)
            return level;
    return NONE;
}

static int isa_choose(void)
{
    unsigned usable = built & processor_sets();
    const char *asked = asked_name();
    int level = asked ? level_of(asked) : YK__LEVELS - 1;
    while (!asked && level >= 0 && !(usable >> level & 1))
        level--;
    return level >= 0 && usable >> level & 1 ? level : NONE;
}

int yk__isa(void)
{
    static atomic_int chosen = NOT_CHOSEN; /* threads that come at once find the same */
    int isa = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (isa == NOT_CHOSEN) {
        isa = isa_choose();
        atomic_store_explicit(&chosen, isa, memory_order_relaxed);
    }
    return isa;
}

bool yk__isa_usable(int level)
{
    return built >> level & processor_sets() >> level & 1;
}

const char *yk__isa_built(void)
{
#define NAME_OF_SET(isa, A) ", " #isa
    return &(", " YK__ISAS(NAME_OF_SET, ))[4];
}

yk_status yk__isa_check(void)
{
    if (yk__isa() >= 0)
        return YK_OK;
    const char *asked = asked_name();
    int level = asked ? level_of(asked) : NONE;
    if (asked && level < 0) {
        char shown[64];
        yk__escape(asked, strlen(asked), shown, sizeof(shown));
        return yk__fail(YK_ERR_ARGUMENT,
                        "YOKE_CPU_ISA=%s: expected the name of an instruction set: base, v3 or v4 (this build has "
                        "kernels for %s)",
                        shown, yk__isa_built());
    }
    if (asked && !(built >> level & 1))
        return yk__fail(YK_ERR_UNSUPPORTED,
                        "YOKE_CPU_ISA=%s: this build of yoke has kernels for %s alone; `make CPU_ISAS=all` builds "
                        "those of all instruction sets",
                        sets[level].name, yk__isa_built());
    if (asked)
        return yk__fail(YK_ERR_UNSUPPORTED, "YOKE_CPU_ISA=%s: this processor lacks %s", sets[level].name,
                        sets[level].instructions);
    for (level = 0; !(built >> level & 1);)
        level++;
    return yk__fail(YK_ERR_UNSUPPORTED,
                    "this build of yoke has kernels for %s alone, and this processor lacks %s: build yoke on this "
                    "machine, or with `make CPU_ISAS=all`, which builds those of all instruction sets",
                    yk__isa_built(), sets[level].instructions);
}
