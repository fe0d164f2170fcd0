/*
 * name_table.c - finds numbers by keys: open addressing, at most half full. Layer: base.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/name_table.h"

static uint64_t secret;
static pthread_once_t secret_once = PTHREAD_ONCE_INIT;

static void draw_secret(void)
{
    if (getrandom(&secret, sizeof(secret), 0) != sizeof(secret))
        secret = (uint64_t)(uintptr_t)&secret ^ (uint64_t)(1e9 * yk__now());
    secret |= 1;
}

/* Folds a product of 128 bits, keyed by the secret: the step of wyhash. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)(a ^ secret) * (b ^ 0x9E3779B97F4A7C15u);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint32_t yk__name_hash(const void *key, size_t size)
{
    pthread_once(&secret_once, draw_secret);
    const unsigned char *bytes = key;
    uint64_t hash = mix(size, secret);
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = mix(hash ^ word, hash);
    }
    uint64_t word = 0;
    if (size)
        memcpy(&word, bytes, size);
    hash = mix(hash ^ word, hash);
    return (uint32_t)(hash ^ hash >> 32);
}

uint32_t yk__name_find(const yk__name_table *table, uint32_t hash, yk__name_same same, const void *owner,
                       const void *key)
{
    if (!table->count)
        return UINT32_MAX;
    for (uint32_t at = hash & table->mask; table->slots[at].index; at = (at + 1) & table->mask) {
        uint32_t index = table->slots[at].index - 1;
        if (table->slots[at].hash == hash && same(owner, index, key))
            return index;
    }
    return UINT32_MAX;
}

static void insert(yk__name_table *table, yk__name_slot slot)
{
    uint32_t at = slot.hash & table->mask;
    while (table->slots[at].index)
        at = (at + 1) & table->mask;
    table->slots[at] = slot;
}

yk_status yk__name_add(yk__name_table *table, uint32_t hash, uint32_t index)
{
    uint32_t size = table->slots ? table->mask + 1 : 0;
    if (2 * (table->count + 1) > size) {
        yk__name_table larger = {.mask = size ? 2 * size - 1 : 15, .count = table->count};
        larger.slots = yk__calloc((size_t)larger.mask + 1, sizeof(*larger.slots));
        if (!larger.slots)
            return YK_ERR_MEMORY;
        for (uint32_t i = 0; i < size; i++) {
            if (table->slots[i].index)
                insert(&larger, table->slots[i]);
        }
        free(table->slots);
        *table = larger;
    }
    insert(table, (yk__name_slot){hash, index + 1});
    table->count++;
    return YK_OK;
}

void yk__name_clear(yk__name_table *table)
{
    free(table->slots);
    *table = (yk__name_table){0};
}
