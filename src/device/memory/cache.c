/*
 * cache.c - the caching allocator of each device: blocks that are free, by queue and size, and those that the system
 * gives. Layer: device.
 *
 * A training step asks for the same sizes again and again. Freed storages are kept, with their blocks, in lists by size
 * class (four classes a doubling, so a block is at most a quarter larger than asked for) and handed out again without
 * asking the system; large ones, in host memory, are split and joined instead (heap.c). When the system has no more,
 * the cache of that device is emptied and the request tried once more, then those of the devices that share its memory.
 * Under the address sanitizer what is cached is poisoned, so a use after free is seen in spite of the cache.
 *
 * Each queue of a device has lists of its own: what is freed is handed out again on the queue that it was allocated on,
 * whose order keeps the two apart. Storages that other queues use, too, wait in pending.c; a graph's recording has a
 * pool of its own (memory_pools.c).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter.h"
#include "base/invariant.h"
#include "device/graph.h"
#include "device/memory/cache.h"

_Thread_local const char *yk__operation_name;
_Thread_local bool yk__operation_is_backward;

static yk__cache *caches[YK__DEVICE_TYPES][MAX_DEVICES];
static pthread_mutex_t caches_lock = PTHREAD_MUTEX_INITIALIZER;

yk__cache *yk__cache_of(yk_device device)
{
    yk__cache **slot = &caches[device.type][device.index];
    yk__cache *found = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (found)
        return found;
    pthread_mutex_lock(&caches_lock);
    if (!*slot) {
        yk__cache *made = yk__calloc(1, sizeof(*made));
        if (made) {
            pthread_mutex_init(&made->lock, NULL);
            __atomic_store_n(slot, made, __ATOMIC_RELEASE);
        }
    }
    found = *slot;
    pthread_mutex_unlock(&caches_lock);
    return found;
}

yk__cache *yk__cache_existing(int type, int index)
{
    return __atomic_load_n(&caches[type][index], __ATOMIC_ACQUIRE);
}

static void poison(const yk__backend *backend, const yk__storage *s)
{
    if (backend->host_memory)
        POISON(s->data, s->reserved);
    POISON((const char *)s + sizeof(s->data), sizeof(*s) - sizeof(s->data));
}

void yk__block_free(const yk__backend *backend, yk__cache *c, yk__storage *s)
{
    if (backend->host_memory)
        UNPOISON(s->data, s->reserved);
    backend->release(s->device.index, s->data, s->reserved);
    c->reserved -= s->reserved;
    free(s);
}

void yk__list_push(const yk__backend *backend, yk__cache *c, yk__free_list *list, yk__storage *s)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        yk__storage **grown = realloc(list->storages, capacity * sizeof(*grown));
        if (!grown) {
            yk__block_free(backend, c, s);
            return;
        }
        list->storages = grown;
        list->capacity = capacity;
    }
    list->storages[list->count++] = s;
    poison(backend, s);
}

void yk__cache_empty(const yk__backend *backend, yk__cache *c)
{
    if (yk__records_here(c))
        return;
    yk__pending_settle(backend, c, true);
    for (int q = 0; q < YK__QUEUES; q++) {
        for (int k = 0; k < CLASSES; k++) {
            while (c->lists[q][k].count)
                yk__block_free(backend, c, yk__list_pop(&c->lists[q][k]));
        }
    }
    yk__heap_empty(backend, c);
}

/* True if such a request is more than the device may have. Locked. */
static bool beyond_limit(const yk__cache *c, const yk__memory_pool *pool, size_t block, void *const *memory)
{
    return c->limit && c->reserved + (memory ? block : yk__heap_growth(c, pool, block)) > c->limit;
}

/* Asks the system for a block, or for a larger heap. Locked. */
static yk_status block_ask(const yk__backend *backend, yk_device device, yk__cache *c, yk__memory_pool *pool,
                           size_t block, void **memory)
{
    if (beyond_limit(c, pool, block, memory))
        return YK_ERR_MEMORY;
    return memory ? backend->allocate(device.index, block, memory) : yk__heap_grow(backend, device, c, pool, block);
}

/* Empties the caches of the other devices with the same memory; false where there is no such device. Called with the
 * lock of c, which it gives up meanwhile: each device has a lock, and threads that held two would take them in any
 * order. Not by a thread that records, as in yk__cache_empty. */
static bool others_empty(const yk__backend *backend, yk_device device, yk__cache *c)
{
    if (!backend->shares_memory || yk__graph_recording())
        return false;
    bool any = false;
    pthread_mutex_unlock(&c->lock);
    for (int other = 0; other < backend->device_count(); other++) {
        yk__cache *of = other == device.index ? NULL : yk__cache_existing(device.type, other);
        if (!of || !backend->shares_memory(device.index, other))
            continue;
        any = true;
        pthread_mutex_lock(&of->lock);
        yk__cache_empty(backend, of);
        pthread_mutex_unlock(&of->lock);
    }
    pthread_mutex_lock(&c->lock);
    return any;
}

/* Gets new memory from the system within the limit. Where there is not enough, cached memory of this device is given
 * back first, then that of other devices with the same memory. Where `memory` is NULL a free block of the heap is made.
 * Called with the lock, which it gives up while the caches of other devices are emptied. */
static yk_status block_reserve(const yk__backend *backend, yk_device device, yk__cache *c, yk__memory_pool *pool,
                               size_t block, void **memory)
{
    yk_status status = block_ask(backend, device, c, pool, block, memory);
    if (status && c->reserved > c->allocated) {
        yk_clear_error();
        yk__cache_empty(backend, c);
        status = block_ask(backend, device, c, pool, block, memory);
    }
    bool full = status == YK_ERR_MEMORY && !beyond_limit(c, pool, block, memory);
    if (full && others_empty(backend, device, c)) {
        yk_clear_error();
        status = block_ask(backend, device, c, pool, block, memory);
    }
    if (status)
        return status;
    yk_clear_error(); /* of the attempt before the cache was emptied */
    if (memory)
        c->reserved += block;
    if (c->reserved > c->peak_reserved)
        c->peak_reserved = c->reserved;
    return YK_OK;
}

/* Sets the error of a failed allocation: the bytes that are missing, and the holders of memory. Gives back the lock. */
static void no_memory(const yk__backend *backend, yk_device device, yk__cache *c, size_t bytes, yk_status status)
{
    pthread_mutex_unlock(&c->lock);
    if (status == YK_ERR_MEMORY) {
        yk_error why;
        yk__error_take(&why);
        yk__cache_fail_memory(c, device, bytes, why.code && !backend->host_memory ? why.message : "");
    }
}

/* A storage with a block from the system. Called with the lock held, which a failure gives back. */
static yk__storage *storage_make(const yk__backend *backend, yk_device device, yk__cache *c, size_t bytes, size_t block)
{
    YK__OWN_RECORD;
    yk__storage *s = malloc(sizeof(*s));
    if (!s) {
        yk__fail_memory(sizeof(*s));
        pthread_mutex_unlock(&c->lock);
        return NULL;
    }
    yk_status status = block_reserve(backend, device, c, NULL, block, &s->data);
    if (!status) {
        *s = (yk__storage){.data = s->data, .device = device, .reserved = block, .versions = &s->version};
        return s;
    }
    free(s);
    no_memory(backend, device, c, bytes, status);
    return NULL;
}

/* A storage with a large block. Called with the lock held, which a failure gives back. */
static yk__storage *storage_of_heap(const yk__backend *backend, yk_device device, yk__cache *c, yk__memory_pool *pool,
                                    size_t bytes)
{
    size_t block = yk__heap_block(bytes);
    yk__storage *s = yk__heap_take(c, pool, block);
    if (s)
        return s;
    YK__OWN_RECORD;
    yk_status status = block_reserve(backend, device, c, pool, block, NULL);
    if (!status)
        return yk__heap_take(c, pool, block);
    no_memory(backend, device, c, bytes, status);
    return NULL;
}

yk__storage *yk__storage_create(yk_device device, size_t bytes)
{
    const yk__backend *backend = yk__backend_of(device);
    yk__cache *c = backend ? yk__cache_of(device) : NULL;
    if (!c)
        return NULL;
    if (bytes > (size_t)1 << 62) {
        yk__fail_memory(bytes);
        return NULL;
    }
    size_t block;
    int k = yk__size_class(bytes, &block);
    bool heaped = backend->map && bytes >= HEAP_LEAST;
    yk__queue queue = backend->host_memory ? YK__QUEUE_COMPUTE : yk__queue_current();
    yk__free_list *list = &c->lists[queue][k];
    /* No lock is needed where no other thread is, and no backend is called, which might start one. */
    bool alone = yk__one_thread() && backend->host_memory && list->count && !heaped;
    if (!alone)
        pthread_mutex_lock(&c->lock);
    yk__memory_pool *pool = yk__pool_now(c);
    if (pool)
        list = &pool->lists[k];
    if (!list->count && c->n_pending)
        yk__pending_settle(backend, c, false);
    if (pool && !list->count && queue == YK__QUEUE_COMPUTE)
        list = &c->lists[queue][k]; /* the pool's from here on: recorded work comes after the work that used it */
    yk__storage *s = heaped        ? storage_of_heap(backend, device, c, pool, bytes)
                     : list->count ? yk__list_pop(list)
                                   : storage_make(backend, device, c, bytes, block);
    if (!s)
        return NULL;
    s->pool = pool;
    s->queue = (uint8_t)queue;
    atomic_init(&s->used_on, 0);
    if (backend->host_memory)
        UNPOISON(s->data, bytes);
    atomic_init(&s->references, 1);
    atomic_init(&s->version, 0);
    s->bytes = bytes;
    s->maker = yk__operation_name;
    s->for_backward = yk__operation_is_backward;
    s->previous = NULL;
    s->next = c->newest;
    if (s->next)
        s->next->previous = s;
    c->newest = s;
    c->allocated += s->reserved;
    if (c->allocated > c->peak)
        c->peak = c->allocated;
    if (!alone)
        pthread_mutex_unlock(&c->lock);
    return s;
}

void yk__storage_cache(yk__storage *s)
{
    const yk__backend *backend = yk__backend_of(s->device);
    yk__cache *c = yk__cache_of(s->device);
    uint8_t used_on = atomic_load_explicit(&s->used_on, memory_order_relaxed) & (uint8_t) ~(1 << s->queue);
    size_t block;
    int k = yk__size_class(s->reserved, &block);
    const yk__free_list *first = &c->lists[YK__QUEUE_COMPUTE][k];
    bool alone = yk__one_thread() && backend->host_memory && !s->heaped &&
                 first->count < first->capacity; /* as in yk__storage_create */
    if (!alone)
        pthread_mutex_lock(&c->lock);
    *(s->previous ? &s->previous->next : &c->newest) = s->next;
    if (s->next)
        s->next->previous = s->previous;
    c->allocated -= s->reserved;
    /* In a recording the pool takes freed blocks, its own or not: work that is recorded from here on may have them. */
    yk__memory_pool *pool = s->pool;
    if (!pool && s->queue == YK__QUEUE_COMPUTE)
        pool = yk__pool_now(c);
    yk__free_list *list = pool ? &pool->lists[k] : &c->lists[s->queue][k];
    if (s->heaped) {
        s->pool = pool;
        POISON(s->data, s->reserved);
        yk__heap_put(c, s);
    } else if (!used_on || !backend->event_record)
        yk__list_push(backend, c, list, s);
    else if (!yk__pending_add(backend, c, s, pool, used_on))
        yk__block_free(backend, c, s); /* it waits for the events first */
    /* Now and then: every block and every storage is counted. */
    YK__ASSERT_SOUND(list->count & (list->count - 1) || list->count < list->capacity / 2 ? NULL : yk__cache_check(c));
    if (!alone)
        pthread_mutex_unlock(&c->lock);
}

/* At exit everything cached goes back, so that leak checkers see only what the program kept. */
__attribute__((destructor)) static void caches_free(void)
{
    for (int type = 0; type < YK__DEVICE_TYPES; type++) {
        for (int index = 0; index < MAX_DEVICES; index++) {
            yk__cache *c = caches[type][index];
            if (!c || c->allocated)
                continue;
            yk_device device = {(int16_t)type, (int16_t)index};
            yk__cache_empty(yk__backend_of(device), c);
            yk__pending_drop(yk__backend_of(device), c);
            for (int q = 0; q < YK__QUEUES; q++) {
                for (int k = 0; k < CLASSES; k++)
                    free(c->lists[q][k].storages);
            }
            free(c->pending);
            pthread_mutex_destroy(&c->lock);
            free(c);
            caches[type][index] = NULL;
        }
    }
}
