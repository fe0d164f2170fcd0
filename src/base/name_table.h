/*
 * name_table.h - finds numbers by keys. Layer: base.
 *
 * Holds hashes only: the owner keeps the keys and tells them apart. The hash depends on a number drawn at random once
 * a process, so that a file cannot be made to put all its names into one place.
 */
#ifndef YOKE_BASE_NAME_TABLE_H
#define YOKE_BASE_NAME_TABLE_H

#include "base/core.h"

typedef struct yk__name_slot {
    uint32_t hash, index; /* index of the owner plus one; 0: empty */
} yk__name_slot;

typedef struct yk__name_table {
    yk__name_slot *slots;
    uint32_t mask, count;
} yk__name_table;

uint32_t yk__name_hash(const void *key, size_t size);
/* True if the owner's key `index` is `key`. */
typedef bool (*yk__name_same)(const void *owner, uint32_t index, const void *key);
/* The index, UINT32_MAX where the key is not there. */
uint32_t yk__name_find(const yk__name_table *table, uint32_t hash, yk__name_same same, const void *owner,
                       const void *key);
/* Adds an index whose key is not there yet. */
yk_status yk__name_add(yk__name_table *table, uint32_t hash, uint32_t index);
void yk__name_clear(yk__name_table *table);

#endif
