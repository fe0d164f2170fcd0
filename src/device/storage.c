/*
 * storage.c - counted memory of one device from a caching allocator. Layer: device.
 *
 * A training step asks for the same sizes again and again. Freed blocks are kept in lists by size class (four classes
 * a doubling, so a block is at most a quarter larger than asked for) and handed out again without asking the system.
 * When the system has no more, the cache of that device is emptied and the request tried once more.
 * Under the address sanitizer cached blocks are poisoned, so a use after free is seen in spite of the cache.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/table.h"

#if defined(__SANITIZE_ADDRESS__)
#define YK__HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define YK__HAS_ASAN 1
#endif
#endif
#ifdef YK__HAS_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

enum { MAX_DEVICES = 64, CLASSES = 4 * 64, LEAST = 256 };

typedef struct free_list {
    void **blocks;
    size_t count, capacity;
} free_list;

typedef struct cache {
    pthread_mutex_t lock;
    free_list lists[CLASSES];
    size_t allocated, peak, reserved;
} cache;

static cache *caches[YK__DEVICE_TYPES][MAX_DEVICES];
static pthread_mutex_t caches_lock = PTHREAD_MUTEX_INITIALIZER;

static cache *cache_of(yk_device device)
{
    cache **slot = &caches[device.type][device.index];
    cache *found = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (found)
        return found;
    pthread_mutex_lock(&caches_lock);
    if (!*slot) {
        cache *made = yk__calloc(1, sizeof(*made));
        if (made) {
            pthread_mutex_init(&made->lock, NULL);
            __atomic_store_n(slot, made, __ATOMIC_RELEASE);
        }
    }
    found = *slot;
    pthread_mutex_unlock(&caches_lock);
    return found;
}

/* The class of a size, and the size of its blocks. */
static int class_of(size_t bytes, size_t *block)
{
    if (bytes <= LEAST) {
        *block = LEAST;
        return 0;
    }
    int power = 63 - __builtin_clzll((unsigned long long)(bytes - 1)); /* 2^power < bytes <= 2^(power + 1) */
    size_t step = (size_t)1 << (power - 2);
    size_t steps = (bytes - ((size_t)1 << power) + step - 1) / step; /* 1 to 4 */
    *block = ((size_t)1 << power) + steps * step;
    return 4 * power + (int)steps - 1;
}

static void cache_empty(const yk__backend *backend, yk_device device, cache *c)
{
    for (int k = 0; k < CLASSES; k++) {
        free_list *list = &c->lists[k];
        if (!list->count)
            continue;
        size_t block = LEAST;
        if (k > 0)
            block = ((size_t)1 << (k / 4)) + (size_t)(k % 4 + 1) * ((size_t)1 << (k / 4 - 2));
        while (list->count) {
            void *memory = list->blocks[--list->count];
            UNPOISON(memory, block);
            backend->release(device.index, memory, block);
            c->reserved -= block;
        }
    }
}

static yk_status take(yk_device device, size_t bytes, void **memory, size_t *block)
{
    const yk__backend *backend = yk__backend_of(device);
    cache *c = backend ? cache_of(device) : NULL;
    if (!c)
        return yk__error_code();
    if (bytes > (size_t)1 << 62)
        return yk__fail_memory(bytes);
    int k = class_of(bytes, block);
    yk_status status = YK_OK;
    pthread_mutex_lock(&c->lock);
    free_list *list = &c->lists[k];
    if (list->count) {
        *memory = list->blocks[--list->count];
    } else {
        yk_error before;
        yk__error_take(&before);
        status = backend->allocate(device.index, *block, memory);
        if (status && c->reserved > c->allocated) {
            yk_clear_error();
            cache_empty(backend, device, c);
            status = backend->allocate(device.index, *block, memory);
        }
        if (!status)
            c->reserved += *block;
        if (before.code)
            yk_clear_error();
        yk__error_put(&before);
    }
    if (!status) {
        c->allocated += *block;
        if (c->allocated > c->peak)
            c->peak = c->allocated;
        if (backend->host_memory)
            UNPOISON(*memory, bytes);
    }
    pthread_mutex_unlock(&c->lock);
    return status;
}

static void return_block(yk_device device, void *memory, size_t block)
{
    const yk__backend *backend = yk__backend_of(device);
    cache *c = cache_of(device);
    size_t same;
    free_list *list = &c->lists[class_of(block, &same)];
    pthread_mutex_lock(&c->lock);
    c->allocated -= block;
    bool kept = list->count < list->capacity;
    if (!kept) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        void **grown = realloc(list->blocks, capacity * sizeof(*grown));
        if (grown) {
            list->blocks = grown;
            list->capacity = capacity;
            kept = true;
        }
    }
    if (kept) {
        list->blocks[list->count++] = memory;
        if (backend->host_memory)
            POISON(memory, block);
    } else {
        UNPOISON(memory, block);
        backend->release(device.index, memory, block);
        c->reserved -= block;
    }
    pthread_mutex_unlock(&c->lock);
}

yk__storage *yk__storage_create(yk_device device, size_t bytes)
{
    yk__storage *storage = malloc(sizeof(*storage));
    if (!storage) {
        yk__fail_memory(sizeof(*storage));
        return NULL;
    }
    *storage = (yk__storage){.device = device, .bytes = bytes};
    atomic_init(&storage->references, 1);
    atomic_init(&storage->version, 0);
    if (take(device, bytes, &storage->data, &storage->reserved)) {
        free(storage);
        return NULL;
    }
    return storage;
}

yk__storage *yk__storage_wrap(yk_device device, void *data, size_t bytes, void (*release)(void *), void *context)
{
    yk__storage *storage = yk__calloc(1, sizeof(*storage));
    if (!storage)
        return NULL;
    *storage = (yk__storage){
        .device = device, .data = data, .bytes = bytes, .foreign_release = release, .foreign_context = context};
    atomic_init(&storage->references, 1);
    return storage;
}

yk__storage *yk__storage_retain(yk__storage *storage)
{
    atomic_fetch_add_explicit(&storage->references, 1, memory_order_relaxed);
    return storage;
}

void yk__storage_release(yk__storage *storage)
{
    if (!storage || atomic_fetch_sub_explicit(&storage->references, 1, memory_order_acq_rel) != 1)
        return;
    if (storage->reserved)
        return_block(storage->device, storage->data, storage->reserved);
    else if (storage->foreign_release)
        storage->foreign_release(storage->foreign_context);
    free(storage);
}

void *yk__workspace_get(yk_device device, size_t bytes, yk__storage **handle)
{
    *handle = yk__storage_create(device, bytes);
    return *handle ? (*handle)->data : NULL;
}

/* The cache of a device, locked; NULL with the error record set. */
static cache *cache_locked(yk_device device)
{
    cache *c = yk__device_check(device) ? NULL : cache_of(device);
    if (c)
        pthread_mutex_lock(&c->lock);
    return c;
}

yk_status yk_device_memory(yk_device device, yk_memory_info *info)
{
    *info = (yk_memory_info){0};
    cache *c = cache_locked(device);
    if (!c)
        return yk__error_code();
    *info = (yk_memory_info){.allocated = c->allocated, .peak_allocated = c->peak, .reserved = c->reserved};
    pthread_mutex_unlock(&c->lock);
    return YK_OK;
}

void yk_device_reset_peak_memory(yk_device device)
{
    cache *c = cache_locked(device);
    if (!c)
        return;
    c->peak = c->allocated;
    pthread_mutex_unlock(&c->lock);
}

void yk_device_empty_cache(yk_device device)
{
    cache *c = cache_locked(device);
    if (!c)
        return;
    cache_empty(yk__backend_of(device), device, c);
    pthread_mutex_unlock(&c->lock);
}

/* At exit everything cached goes back, so that leak checkers see only what the program kept. */
__attribute__((destructor)) static void caches_free(void)
{
    for (int type = 0; type < YK__DEVICE_TYPES; type++) {
        for (int index = 0; index < MAX_DEVICES; index++) {
            cache *c = caches[type][index];
            if (!c || c->allocated)
                continue;
            yk_device device = {(int16_t)type, (int16_t)index};
            cache_empty(yk__backend_of(device), device, c);
            for (int k = 0; k < CLASSES; k++)
                free(c->lists[k].blocks);
            pthread_mutex_destroy(&c->lock);
            free(c);
            caches[type][index] = NULL;
        }
    }
}
