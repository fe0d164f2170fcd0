/*
 * cache_check.c - the check that a cache's lists, counts and peaks agree (base/invariant.h). Layer: device.
 */
#include "base/invariant.h"
#include "device/memory/cache.h"

/* The fault of the free lists, NULL for none; the bytes of the blocks of every size are added to *cached. */
static const char *lists_check(const yk__free_list *lists, size_t *cached)
{
    for (int k = 0; k < CLASSES; k++) {
        if (lists[k].count > lists[k].capacity)
            return yk__broken("%zu blocks of %zu bytes in memory for %zu", lists[k].count, yk__class_bytes(k),
                              lists[k].capacity);
        *cached += lists[k].count ? lists[k].count * yk__class_bytes(k) : 0;
    }
    return NULL;
}

const char *yk__cache_check(const yk__cache *c)
{
    size_t allocated = 0, cached = 0;
    const char *wrong = NULL;
    for (const yk__storage *s = c->newest; s; s = s->next) {
        allocated += s->reserved;
        size_t block;
        if (s->heaped)
            block = yk__heap_block(s->reserved);
        else
            yk__size_class(s->reserved, &block);
        if (s->reserved < s->bytes || block != s->reserved)
            return yk__broken("a storage of %zu bytes has a block of %zu", s->bytes, s->reserved);
        if ((s->next && s->next->previous != s) || (s == c->newest && s->previous) || allocated > c->allocated)
            return yk__broken("the list of storages: one of %zu bytes does not lead back, or there are more than %zu "
                              "bytes in all",
                              s->reserved, c->allocated);
    }
    for (int q = 0; q < YK__QUEUES && !wrong; q++)
        wrong = lists_check(c->lists[q], &cached);
    wrong = wrong ? wrong : yk__heap_check(c, NULL, &cached);
    for (const yk__memory_pool *p = c->pools; p && !wrong; p = p->next) {
        wrong = lists_check(p->lists, &cached);
        wrong = wrong ? wrong : yk__heap_check(c, p, &cached);
    }
    if (wrong)
        return wrong;
    for (size_t i = 0; i < c->n_pending; i++)
        cached += c->pending[i].storage->reserved;
    if (allocated != c->allocated || allocated + cached != c->reserved)
        return yk__broken("storages have %zu bytes, and %zu are counted; with %zu in the cache that is not the %zu "
                          "that are reserved",
                          allocated, c->allocated, cached, c->reserved);
    if (c->peak < c->allocated || c->peak_reserved < c->reserved)
        return yk__broken("the peaks, %zu and %zu bytes, are below what there is, %zu and %zu", c->peak,
                          c->peak_reserved, c->allocated, c->reserved);
    return NULL;
}
