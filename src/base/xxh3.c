/*
 * xxh3.c - which of the compiled forms of XXH3 the processor can run. Layer: base.
 */
#include "base/isa.h"
#include "base/xxh3_isa.h"

static const yk__xxh3_functions *functions(void)
{
#ifdef YK__CPU_WIDE
    int isa = yk__isa();
    return isa == 4 ? &yk__xxh3_v4 : isa == 3 ? &yk__xxh3_v3 : &yk__xxh3_base;
#else
    return &yk__xxh3_base;
#endif
}

void yk__xxh3_update(XXH3_state_t *state, const void *data, size_t size)
{
    functions()->update(state, data, size);
}

uint64_t yk__xxh3_64(const void *data, size_t size)
{
    return functions()->hash_64(data, size);
}

XXH128_hash_t yk__xxh3_128(const void *data, size_t size, uint64_t seed)
{
    return functions()->hash_128(data, size, seed);
}
