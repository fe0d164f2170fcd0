/*
 * heap.c - large blocks of the host's memory, which are split and joined. Layer: device.
 *
 * The tensors of a network have many sizes. Where each size keeps blocks of its own, those that wait for their size are
 * a fifth of the memory of a training step. So a storage takes the start of the smallest free block that is large
 * enough (best fit), the rest stays a free block, and free neighbours are one block.
 *
 * New memory is asked for after the block that was mapped last (`top`), so that a free block at the end grows with it
 * and there is one range to split, as large as the peak. It is mapped in whole huge pages; the memory that is mapped
 * after the last block (`room`) was never touched, takes no memory, and is not counted as reserved.
 *
 * Invariants: all is under the cache's lock. A block belongs to the cache's heap or to a graph's pool (storage->pool);
 * free neighbours of the same owner are one block. `below` and `above` are neighbours without a gap, whoever has them.
 */
#include <stdlib.h>

#include "base/invariant.h"
#include "device/memory/cache.h"

/* HEAP_GRAIN: sizes are multiples of it; a start on any multiple costs no speed. MAP_GRAIN: a huge page. */
static const size_t HEAP_GRAIN = (size_t)64 << 10, MAP_GRAIN = (size_t)2 << 20;

static size_t round_up(size_t bytes, size_t grain)
{
    return (bytes + grain - 1) / grain * grain;
}

size_t yk__heap_block(size_t bytes)
{
    return round_up(bytes, HEAP_GRAIN);
}

static char *end_of(const yk__storage *s)
{
    return (char *)s->data + s->reserved;
}

static yk__storage **heap_of(yk__cache *c, const yk__storage *s)
{
    return s->pool ? &s->pool->heap : &c->heap;
}

static bool before(const yk__storage *a, const yk__storage *b)
{
    return a->reserved != b->reserved ? a->reserved < b->reserved : (char *)a->data < (char *)b->data;
}

/* Inserts a free block into the list, which is sorted by size, then address. So the block that is taken depends on the
 * requests alone, and low addresses are preferred. */
static void list_insert(yk__cache *c, yk__storage *s)
{
    yk__storage **heap = heap_of(c, s), *previous = NULL, *next = *heap;
    while (next && before(next, s)) {
        previous = next;
        next = next->next;
    }
    s->previous = previous;
    s->next = next;
    *(previous ? &previous->next : heap) = s;
    if (next)
        next->previous = s;
    s->idle = true;
}

static void list_remove(yk__cache *c, yk__storage *s)
{
    *(s->previous ? &s->previous->next : heap_of(c, s)) = s->next;
    if (s->next)
        s->next->previous = s->previous;
    s->previous = s->next = NULL;
    s->idle = false;
}

/* Makes `high`, which lies right above `low`, part of it. */
static void blocks_join(yk__cache *c, yk__storage *low, yk__storage *high)
{
    low->reserved += high->reserved;
    low->above = high->above;
    if (low->above)
        low->above->below = low;
    if (c->top == high)
        c->top = low;
    free(high);
}

void yk__heap_put(yk__cache *c, yk__storage *s)
{
    yk__storage *below = s->below, *above = s->above;
    if (above && above->idle && above->pool == s->pool) {
        list_remove(c, above);
        blocks_join(c, s, above);
    }
    if (below && below->idle && below->pool == s->pool) {
        list_remove(c, below);
        blocks_join(c, below, s);
        s = below;
    }
    list_insert(c, s);
}

/* Gives the rest of a block, all but its first `bytes`, back to the heap; without memory for the storage it stays part
 * of the block. */
static void block_split(yk__cache *c, yk__storage *s, size_t bytes)
{
    yk__storage *rest = s->reserved > bytes ? malloc(sizeof(*rest)) : NULL;
    if (!rest)
        return;
    *rest = (yk__storage){.data = (char *)s->data + bytes,
                          .device = s->device,
                          .reserved = s->reserved - bytes,
                          .versions = &rest->version,
                          .pool = s->pool,
                          .queue = s->queue,
                          .heaped = true,
                          .below = s,
                          .above = s->above};
    if (rest->above)
        rest->above->below = rest;
    s->above = rest;
    s->reserved = bytes;
    if (c->top == s)
        c->top = rest;
    list_insert(c, rest);
}

yk__storage *yk__heap_take(yk__cache *c, yk__memory_pool *pool, size_t bytes)
{
    yk__storage *s = pool ? pool->heap : c->heap;
    while (s && s->reserved < bytes)
        s = s->next;
    if (!s)
        return NULL;
    list_remove(c, s);
    block_split(c, s, bytes);
    return s;
}

/* The bytes by which the heap must grow for a block of `bytes`: those that the free block at its end, if there is one,
 * is too small by; HEAP_GRAIN if that block is large enough. */
size_t yk__heap_growth(const yk__cache *c, const yk__memory_pool *pool, size_t bytes)
{
    const yk__storage *top = c->top;
    size_t have = top && top->idle && top->pool == pool ? top->reserved : 0;
    return have < bytes ? bytes - have : HEAP_GRAIN;
}

yk_status yk__heap_grow(const yk__backend *backend, yk_device device, yk__cache *c, yk__memory_pool *pool, size_t bytes)
{
    yk__storage *s = malloc(sizeof(*s));
    if (!s)
        return yk__fail_memory(sizeof(*s));
    size_t want = yk__heap_growth(c, pool, bytes);
    char *behind = c->top ? end_of(c->top) : NULL;
    void *start = behind;
    if (!behind || want > c->room) {
        size_t mapped = round_up(behind ? want - c->room : bytes, MAP_GRAIN);
        void *near = behind ? behind + c->room : NULL, *memory;
        yk_status status = backend->map(device.index, mapped, near, &memory);
        if (!status && behind && memory != near) { /* somewhere else: a range of its own, for all of it */
            backend->unmap(device.index, memory, mapped);
            mapped = round_up(bytes, MAP_GRAIN);
            status = backend->map(device.index, mapped, NULL, &memory);
        }
        if (status) {
            free(s);
            return status;
        }
        if (!behind || memory != near) {
            if (c->top && c->room) /* nobody comes back to the end of the range before */
                backend->unmap(device.index, end_of(c->top), c->room);
            c->top = NULL;
            c->room = 0;
            want = bytes;
            start = memory;
        }
        c->room += mapped;
    }
    *s = (yk__storage){.data = start,
                       .device = device,
                       .reserved = want,
                       .versions = &s->version,
                       .pool = pool,
                       .heaped = true,
                       .below = c->top};
    if (c->top)
        c->top->above = s;
    c->top = s;
    c->room -= want;
    c->reserved += want;
    yk__heap_put(c, s);
    return YK_OK;
}

void yk__heap_release(const yk__backend *backend, yk__cache *c, yk__storage *s)
{
    size_t bytes = s->reserved;
    c->reserved -= bytes;
    if (c->top == s) {
        bytes += c->room;
        c->room = 0;
        c->top = s->below;
    }
    if (s->below)
        s->below->above = NULL; /* there is a gap now */
    if (s->above)
        s->above->below = NULL;
    UNPOISON(s->data, s->reserved);
    backend->unmap(s->device.index, s->data, bytes);
    free(s);
}

void yk__heap_empty(const yk__backend *backend, yk__cache *c)
{
    while (c->heap) {
        yk__storage *s = c->heap;
        list_remove(c, s);
        yk__heap_release(backend, c, s);
    }
}

void yk__heap_move(yk__cache *c, yk__memory_pool *pool)
{
    while (pool->heap) {
        yk__storage *s = pool->heap;
        list_remove(c, s);
        s->pool = NULL;
        yk__heap_put(c, s);
    }
}

const char *yk__heap_check(const yk__cache *c, const yk__memory_pool *pool, size_t *cached)
{
    for (const yk__storage *s = pool ? pool->heap : c->heap; s; s = s->next) {
        *cached += s->reserved;
        if (!s->idle || !s->heaped || s->pool != pool || s->reserved % HEAP_GRAIN)
            return yk__broken("a free block of %zu bytes is not one of this heap", s->reserved);
        if (s->next && (s->next->previous != s || !before(s, s->next)))
            return yk__broken("free blocks: one of %zu bytes does not lead back, or is not in order", s->reserved);
        if ((s->above && (s->above->below != s || (char *)s->above->data != end_of(s))) ||
            (s->below && s->below->above != s))
            return yk__broken("a free block of %zu bytes and its neighbours do not know each other", s->reserved);
        if (s->above && s->above->idle && s->above->pool == s->pool)
            return yk__broken("two free blocks of %zu and %zu bytes are neighbours", s->reserved, s->above->reserved);
    }
    if (c->room && !c->top)
        return yk__broken("%zu bytes are mapped behind no block", c->room);
    return NULL;
}
