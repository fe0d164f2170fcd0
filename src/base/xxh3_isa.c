/*
 * xxh3_isa.c - XXH3 in the vectors of the instruction set that this is compiled for. Layer: base, once for each.
 *
 * The library chooses its vectors by what the compiler may use, so there is nothing here but names.
 */
#include "base/xxh3_isa.h"

static void update(XXH3_state_t *state, const void *data, size_t size)
{
    XXH3_64bits_update(state, data, size);
}

static uint64_t hash_64(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}

static XXH128_hash_t hash_128(const void *data, size_t size, uint64_t seed)
{
    return XXH3_128bits_withSeed(data, size, seed);
}

#define PASTE_(isa) yk__xxh3_##isa
#define PASTE(isa)  PASTE_(isa)
const yk__xxh3_functions PASTE(YK__ISA) = {update, hash_64, hash_128};
