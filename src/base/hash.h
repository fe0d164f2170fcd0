/*
 * hash.h - FNV-1a of 64 bits: for tables, and for what ranks compare; it keeps nobody out who wants two texts to have
 * one hash. Layer: base. C alone; inline, so that plug-ins need no symbol of it.
 */
#ifndef YOKE_BASE_HASH_H
#define YOKE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* The hash of nothing, from which one begins. */
#define YK__HASH_BASIS UINT64_C(0xCBF29CE484222325)

/* The hash of what `hash` is of, followed by these bytes. */
static inline uint64_t yk__hash(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
    return hash;
}

#endif
