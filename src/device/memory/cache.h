/*
 * cache.h - the blocks and counts of a device's caching allocator (cache.c), for the files that share its work:
 * pending.c, memory_pools.c, heap.c, cache_check.c, memory_figures.c, memory_report.c. Layer: device.
 */
#ifndef YOKE_DEVICE_MEMORY_CACHE_H
#define YOKE_DEVICE_MEMORY_CACHE_H

#include <pthread.h>

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

/* MAX_DEVICES: of one type; no back end has more. CLASSES: four for each power of two, so that a block is at most a
 * quarter larger than asked for. LEAST: bytes of the smallest block. */
enum { MAX_DEVICES = 64, CLASSES = 4 * 64, LEAST = 256 };

typedef struct yk__free_list {
    yk__storage **storages; /* with their blocks, which are all of the class's size */
    size_t count, capacity;
} yk__free_list;

/* A storage that nobody holds, and that other queues may still use. */
typedef struct yk__pending {
    yk__storage *storage;
    yk__memory_pool *pool; /* the pool whose recorded work uses it with each replay, or NULL */
    uint8_t unmarked;      /* 1 << queue: those whose work has no event after it yet */
    yk__event *events[YK__QUEUES];
} yk__pending;

struct yk__memory_pool {
    yk_device device;
    yk__free_list lists[CLASSES];
    yk__storage *heap; /* free large blocks */
    pthread_t recorder;
    struct yk__memory_pool *next; /* of the device's */
};

typedef struct yk__cache {
    pthread_mutex_t lock;
    yk__free_list lists[YK__QUEUES][CLASSES];
    yk__pending *pending;
    size_t n_pending, pending_room;
    yk__memory_pool *pools, *open; /* open: of the recording under way, or NULL */
    yk__storage *heap, *top;       /* free large blocks; the block that new ones are mapped after, or NULL */
    size_t room;                   /* bytes mapped after `top` that no block has */
    size_t allocated, peak, reserved, peak_reserved;
    size_t limit;        /* of what is reserved; 0: none */
    yk__storage *newest; /* all that is allocated, by age */
} yk__cache;

/* The cache of a device, which is made when it is first asked for; NULL without memory for it. */
yk__cache *yk__cache_of(yk_device device);
/* NULL where nothing was allocated on the device yet. */
yk__cache *yk__cache_existing(int type, int index);
/* Fails with YK_ERR_MEMORY and a text that names the bytes that were asked for, and the holders of the device's memory.
 * `why` is what the backend says, which knows more than we do where the memory is not the host's, or "".
 * (memory_report.c) */
yk_status yk__cache_fail_memory(yk__cache *c, yk_device device, size_t bytes, const char *why);

/* ---- size classes and lists of free blocks ---- */

/* True while the calling thread records on the device. Locked. */
static inline bool yk__records_here(const yk__cache *c)
{
    return c->open && pthread_equal(c->open->recorder, pthread_self());
}

/* The class of a size, and the size of its blocks. */
static inline int yk__size_class(size_t bytes, size_t *block)
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

static inline size_t yk__class_bytes(int k)
{
    return k == 0 ? LEAST : ((size_t)1 << (k / 4)) + (size_t)(k % 4 + 1) * ((size_t)1 << (k / 4 - 2));
}

static inline yk__storage *yk__list_pop(yk__free_list *list)
{
    yk__storage *s = list->storages[--list->count];
    UNPOISON(s, sizeof(*s));
    return s;
}

/* The pool that the calling thread's memory comes from now, and goes to: that of its recording, or NULL. Locked. */
static inline yk__memory_pool *yk__pool_now(const yk__cache *c)
{
    return yk__records_here(c) ? c->open : NULL;
}

/* Gives the block back to the system, and frees the storage. Locked. */
void yk__block_free(const yk__backend *backend, yk__cache *c, yk__storage *s);
/* Keeps a storage that nobody holds; without memory for the list it is freed. Locked. */
void yk__list_push(const yk__backend *backend, yk__cache *c, yk__free_list *list, yk__storage *s);
/* Gives the cached memory back. Not by a thread that records: it may neither wait nor look at events, and wants the
 * free blocks. Locked. */
void yk__cache_empty(const yk__backend *backend, yk__cache *c);
/* Takes back a storage that nobody holds any more. */
void yk__storage_cache(yk__storage *s);

/* ---- storages that other queues use (pending.c), all with the cache locked ---- */
/* Frees the pending storages that nobody uses any more. A failure (a device that is lost) leaves them pending; the next
 * wait for the device reports it. Locked. */
void yk__pending_settle(const yk__backend *backend, yk__cache *c, bool wait);
/* Adds a storage that was freed while the queues `used_on` may use it, of recorded work where pool is not NULL. False
 * without memory for it. Locked. */
bool yk__pending_add(const yk__backend *backend, yk__cache *c, yk__storage *s, yk__memory_pool *pool, uint8_t used_on);
/* Drops the storages whose events never pass, of a device that was lost. */
void yk__pending_drop(const yk__backend *backend, yk__cache *c);

/* ---- checks (cache_check.c) ---- */
/* The fault of a cache, NULL for none. Locked. */
const char *yk__cache_check(const yk__cache *c);

/*
 * Large blocks of backends that have `map` (heap.c), all with the cache locked. A pool is that of the recording under
 * way, or NULL: free blocks of the two are apart. HEAP_LEAST: bytes from which a storage has such a block.
 */
enum { HEAP_LEAST = 1 << 20 };
/* The size of the block for so many bytes. */
size_t yk__heap_block(size_t bytes);
/* The smallest free block of at least `bytes`, cut to that; NULL where there is none. */
yk__storage *yk__heap_take(yk__cache *c, yk__memory_pool *pool, size_t bytes);
/* Takes back a block that nobody holds, for s->pool; the storage may be freed. */
void yk__heap_put(yk__cache *c, yk__storage *s);
/* Makes a free block of at least `bytes`, with new memory; no error is recorded where the system has none. growth: the
 * bytes that are reserved for that. */
yk_status yk__heap_grow(const yk__backend *backend, yk_device device, yk__cache *c, yk__memory_pool *pool,
                        size_t bytes);
size_t yk__heap_growth(const yk__cache *c, const yk__memory_pool *pool, size_t bytes);
/* Gives a block back to the system: one that is not free, or all that are. */
void yk__heap_release(const yk__backend *backend, yk__cache *c, yk__storage *s);
void yk__heap_empty(const yk__backend *backend, yk__cache *c);
/* Makes the free blocks of a pool the cache's. */
void yk__heap_move(yk__cache *c, yk__memory_pool *pool);
/* The fault of a heap, NULL for none; its bytes are added to *cached. */
const char *yk__heap_check(const yk__cache *c, const yk__memory_pool *pool, size_t *cached);

#endif
