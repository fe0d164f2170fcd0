/*
 * xxh3.c - which of the compiled forms of XXH3 the processor can run. Layer: base.
 */
#include "base/isa.h"
#include "base/xxh3_isa.h"

#define FUNCTIONS_OF_SET(isa, A) [YK__LEVEL_##isa] = &yk__xxh3_##isa,
static const yk__xxh3_functions *const sets[YK__LEVELS] = {YK__ISAS(FUNCTIONS_OF_SET, )};

/* The plainest form is always built: checksums need no device, whose use is an error where no set can be used. */
static const yk__xxh3_functions *functions(void)
{
    int isa = yk__isa();
    return isa < 0 ? &yk__xxh3_base : sets[isa];
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
