/*
 * xxh3_isa.h - what xxh3_isa.c has, once for each instruction set it is compiled for. Layer: base.
 */
#ifndef YOKE_BASE_XXH3_ISA_H
#define YOKE_BASE_XXH3_ISA_H

#include "base/xxh3.h"

typedef struct yk__xxh3_functions {
    void (*update)(XXH3_state_t *state, const void *data, size_t size);
    uint64_t (*hash_64)(const void *data, size_t size);
    XXH128_hash_t (*hash_128)(const void *data, size_t size, uint64_t seed);
} yk__xxh3_functions;

extern const yk__xxh3_functions yk__xxh3_base, yk__xxh3_v3, yk__xxh3_v4;

#endif
