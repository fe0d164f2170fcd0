/*
 * memory_pools.c - the memory of recorded steps. Layer: device.
 *
 * What a graph's recording takes and frees is its pool's until the graph is released; it takes blocks that are free on
 * the queue of kernels before new ones. That is by thread: what others take and free while one records is the cache's
 * as ever.
 */
#include <stdlib.h>

#include "base/invariant.h"
#include "device/graph.h"
#include "device/memory/cache.h"

yk__memory_pool *yk__memory_pool_open(yk_device device, bool *busy)
{
    yk__cache *c = yk__cache_of(device);
    yk__memory_pool *pool = c ? yk__calloc(1, sizeof(*pool)) : NULL;
    *busy = false;
    if (!pool)
        return NULL;
    pool->device = device;
    pool->recorder = pthread_self();
    pthread_mutex_lock(&c->lock);
    *busy = c->open != NULL;
    if (!*busy) {
        pool->next = c->pools;
        c->pools = c->open = pool;
    }
    pthread_mutex_unlock(&c->lock);
    if (!*busy)
        return pool;
    char name[16];
    free(pool);
    yk__fail(YK_ERR_STATE, "another thread records on %s", yk_device_format(device, name));
    return NULL;
}

void yk__memory_pool_close(yk__memory_pool *pool)
{
    yk__cache *c = yk__cache_of(pool->device);
    pthread_mutex_lock(&c->lock);
    c->open = NULL;
    pthread_mutex_unlock(&c->lock);
}

void yk__memory_pool_release(yk__memory_pool *pool)
{
    if (!pool)
        return;
    const yk__backend *backend = yk__backend_of(pool->device);
    yk__cache *c = yk__cache_of(pool->device);
    pthread_mutex_lock(&c->lock);
    yk__memory_pool **at = &c->pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    for (yk__storage *s = c->newest; s; s = s->next) {
        if (s->pool == pool)
            s->pool = NULL;
    }
    for (size_t i = 0; i < c->n_pending; i++) {
        if (c->pending[i].pool == pool)
            c->pending[i].pool = NULL;
    }
    for (int k = 0; k < CLASSES; k++) {
        yk__free_list *list = &pool->lists[k];
        while (list->count)
            yk__list_push(backend, c, &c->lists[YK__QUEUE_COMPUTE][k], yk__list_pop(list));
        free(list->storages);
    }
    yk__heap_move(c, pool);
    YK__ASSERT_SOUND(yk__cache_check(c));
    pthread_mutex_unlock(&c->lock);
    free(pool);
}
