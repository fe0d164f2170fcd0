/*
 * storage.c - counted memory: who holds it, what shares it. Layer: device.
 *
 * A storage is a block of a device's cache (cache.c), memory of somebody else that is wrapped, or a share of another
 * storage for another device of the same memory.
 */
#include <stdlib.h>

#include "base/counter.h"
#include "device/memory/cache.h"

yk__storage *yk__storage_wrap(yk_device device, void *data, size_t bytes, void (*release)(void *), void *context)
{
    yk__storage *storage = yk__calloc(1, sizeof(*storage));
    if (!storage)
        return NULL;
    *storage = (yk__storage){.device = device,
                             .versions = &storage->version,
                             .data = data,
                             .bytes = bytes,
                             .foreign_release = release,
                             .foreign_context = context};
    atomic_init(&storage->references, 1);
    return storage;
}

bool yk__same_memory(yk_device a, yk_device b)
{
    return yk_device_equal(a, b) || (a.type == YK_CPU && b.type == YK_CPU);
}

static void release_shared(void *from)
{
    yk__storage_release(from);
}

yk__storage *yk__storage_share(yk__storage *from, yk_device device, bool own_versions)
{
    yk__storage *storage = yk__storage_wrap(device, from->data, from->bytes, release_shared, from);
    if (!storage)
        return NULL;
    yk__storage_retain(from);
    if (!own_versions)
        storage->versions = from->versions;
    return storage;
}

void yk__storage_used_on(yk__storage *storage, yk__queue queue)
{
    while (storage->foreign_release == release_shared)
        storage = storage->foreign_context;
    atomic_fetch_or_explicit(&storage->used_on, (uint8_t)(1 << queue), memory_order_relaxed);
}

yk__storage *yk__storage_retain(yk__storage *storage)
{
    yk__count_up(&storage->references);
    return storage;
}

void yk__storage_release(yk__storage *storage)
{
    if (!storage || yk__count_down(&storage->references) != 1)
        return;
    if (storage->reserved) {
        yk__storage_cache(storage);
        return;
    }
    if (storage->foreign_release)
        storage->foreign_release(storage->foreign_context);
    free(storage);
}

/* Scratch memory is given back when the kernel ends: where blocks are not split it may be a larger cached block, so
 * that the layers of a network, which want a different size each, share a few. It counts as allocated, so not many
 * times larger. */
#define SHARED_WORKSPACE ((size_t)1 << 20) /* smaller ones are too quick to come by to search */
#define SHARED_CLASSES   8                 /* up to four times the size */

static size_t workspace_bytes(yk_device device, size_t bytes)
{
    const yk__backend *backend = yk__backend_of(device);
    bool shared = backend && !backend->map && bytes >= SHARED_WORKSPACE && bytes <= (size_t)1 << 62;
    yk__cache *c = shared ? yk__cache_of(device) : NULL;
    if (!c)
        return bytes;
    size_t block;
    int k = yk__size_class(bytes, &block), most = k + SHARED_CLASSES < CLASSES ? k + SHARED_CLASSES : CLASSES - 1;
    pthread_mutex_lock(&c->lock);
    yk__queue queue = yk__queue_current();
    const yk__memory_pool *pool = yk__pool_now(c);
    const yk__free_list *lists = pool ? pool->lists : c->lists[queue];
    const yk__free_list *others = queue == YK__QUEUE_COMPUTE ? c->lists[queue] : lists; /* as in yk__storage_create */
    while (k <= most && !lists[k].count && !others[k].count)
        k++;
    pthread_mutex_unlock(&c->lock);
    return k > most ? bytes : yk__class_bytes(k);
}

void *yk__workspace_get(yk_device device, size_t bytes, yk__storage **handle)
{
    *handle = yk__storage_create(device, workspace_bytes(device, bytes));
    return *handle ? (*handle)->data : NULL;
}
