/*
 * xxh3.h - the checksum XXH3 in the widest vectors that the processor has: twice as fast as in those that every x86-64
 * has. The values are the same. XXH3_64bits_reset and XXH3_64bits_digest are the library's own. Layer: base.
 */
#ifndef YOKE_BASE_XXH3_H
#define YOKE_BASE_XXH3_H

#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* XXH3_64bits_update, XXH3_64bits and XXH3_128bits_withSeed. */
void yk__xxh3_update(XXH3_state_t *state, const void *data, size_t size);
uint64_t yk__xxh3_64(const void *data, size_t size);
XXH128_hash_t yk__xxh3_128(const void *data, size_t size, uint64_t seed);

#endif
