/*
 * storage.c - counted memory of one device from a caching allocator. Layer: device.
 *
 * A training step asks for the same sizes again and again. Freed storages are kept, with their blocks, in lists by size
 * class (four classes a doubling, so a block is at most a quarter larger than asked for) and handed out again without
 * asking the system; large ones, in host memory, are split and joined instead (heap.c). When the system has no more,
 * the cache of that device is emptied and the request tried once more, then those of the devices that share its memory.
 * Under the address sanitizer what is cached is poisoned, so a use after free is seen in spite of the cache.
 *
 * Each queue of a device has lists of its own: what is freed is handed out again on the queue that it was allocated on,
 * whose order keeps the two apart. A storage that other queues use, too (yk__storage_used_on), is pending until an
 * event after the work that each of them had queued when it was freed has passed. What a graph's recording takes and
 * frees is its pool's until the graph is released; it takes blocks that are free on the queue of kernels before new
 * ones. That is by thread: what others take and free while one records is the cache's as ever.
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

static yk__cache *cache_of(yk_device device)
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

static size_t block_of_class(int k)
{
    return k == 0 ? LEAST : ((size_t)1 << (k / 4)) + (size_t)(k % 4 + 1) * ((size_t)1 << (k / 4 - 2));
}

/* The fault of the free lists, NULL for none; the bytes of the blocks of every size are added to *cached. */
static const char *lists_check(const yk__free_list *lists, size_t *cached)
{
    for (int k = 0; k < CLASSES; k++) {
        if (lists[k].count > lists[k].capacity)
            return yk__broken("%zu blocks of %zu bytes in memory for %zu", lists[k].count, block_of_class(k),
                              lists[k].capacity);
        *cached += lists[k].count ? lists[k].count * block_of_class(k) : 0;
    }
    return NULL;
}

/* Locked. */
static const char *cache_check(const yk__cache *c)
{
    size_t allocated = 0, cached = 0;
    const char *wrong = NULL;
    for (const yk__storage *s = c->newest; s; s = s->older) {
        allocated += s->reserved;
        size_t block;
        if (s->heaped)
            block = yk__heap_block(s->reserved);
        else
            class_of(s->reserved, &block);
        if (s->reserved < s->bytes || block != s->reserved)
            return yk__broken("a storage of %zu bytes has a block of %zu", s->bytes, s->reserved);
        if ((s->older && s->older->newer != s) || (s == c->newest && s->newer) || allocated > c->allocated)
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

static void poison(const yk__backend *backend, const yk__storage *s)
{
    if (backend->host_memory)
        POISON(s->data, s->reserved);
    POISON((const char *)s + sizeof(s->data), sizeof(*s) - sizeof(s->data));
}

/* Gives the block back to the system, and frees the storage. Locked. */
static void storage_free(const yk__backend *backend, yk__cache *c, yk__storage *s)
{
    if (backend->host_memory)
        UNPOISON(s->data, s->reserved);
    backend->release(s->device.index, s->data, s->reserved);
    c->reserved -= s->reserved;
    free(s);
}

/* Keeps a storage that nobody holds; without memory for the list it is freed. Locked. */
static void list_push(const yk__backend *backend, yk__cache *c, yk__free_list *list, yk__storage *s)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        yk__storage **grown = realloc(list->storages, capacity * sizeof(*grown));
        if (!grown) {
            storage_free(backend, c, s);
            return;
        }
        list->storages = grown;
        list->capacity = capacity;
    }
    list->storages[list->count++] = s;
    poison(backend, s);
}

static yk__storage *list_pop(yk__free_list *list)
{
    yk__storage *s = list->storages[--list->count];
    UNPOISON(s, sizeof(*s));
    return s;
}

/* ---- storages that other queues use ---- */

/* True while the calling thread records on the device. Locked. */
static bool records_here(const yk__cache *c)
{
    return c->open && pthread_equal(c->open->recorder, pthread_self());
}

/* Puts an event on each queue, after its work so far; the thread that records, whose recording would have them, does so
 * later, and nobody before the release of the recorded work that the block is of. Locked. */
static yk_status pending_mark(const yk__backend *backend, const yk__cache *c, yk__pending *p)
{
    yk_status status = YK_OK;
    for (int q = 0; q < YK__QUEUES && !status && !records_here(c) && !p->pool; q++) {
        if (!(p->unmarked & 1 << q))
            continue;
        status = backend->event_record(p->storage->device.index, (yk__queue)q, &p->events[q]);
        if (!status)
            p->unmarked &= (uint8_t) ~(1 << q);
    }
    return status;
}

/* True if the events of p have passed; waits for them where `wait` is set. Locked. */
static bool pending_passed(const yk__backend *backend, const yk__cache *c, yk__pending *p, bool wait)
{
    bool passed = pending_mark(backend, c, p) == YK_OK && !p->unmarked;
    for (int q = 0; q < YK__QUEUES && passed; q++) {
        if (!p->events[q])
            continue;
        if (wait ? backend->event_wait(p->events[q]) : backend->event_query(p->events[q], &passed))
            passed = false;
        if (!passed)
            return false;
        backend->event_release(p->events[q]);
        p->events[q] = NULL;
    }
    return passed;
}

/* Frees the pending storages that nobody uses any more. A failure (a device that is lost) leaves them pending; the next
 * wait for the device reports it. Locked. */
static void pending_settle(const yk__backend *backend, yk__cache *c, bool wait)
{
    if (!c->n_pending || records_here(c))
        return;
    yk_error before;
    yk__error_take(&before);
    size_t kept = 0;
    for (size_t i = 0; i < c->n_pending; i++) {
        yk__pending p = c->pending[i];
        size_t block;
        if (!pending_passed(backend, c, &p, wait))
            c->pending[kept++] = p;
        else
            list_push(backend, c, &c->lists[p.storage->queue][class_of(p.storage->reserved, &block)], p.storage);
    }
    c->n_pending = kept;
    yk_clear_error();
    yk__error_put(&before);
}

/* Adds a storage that was freed while the queues `used_on` may use it, of recorded work where pool is not NULL. False
 * without memory for it. Locked. */
static bool pending_add(const yk__backend *backend, yk__cache *c, yk__storage *s, yk__memory_pool *pool,
                        uint8_t used_on)
{
    if (c->n_pending == c->pending_room) {
        size_t room = c->pending_room ? 2 * c->pending_room : 16;
        yk__pending *grown = realloc(c->pending, room * sizeof(*grown));
        if (!grown)
            return false;
        c->pending = grown;
        c->pending_room = room;
    }
    yk__pending *p = &c->pending[c->n_pending++];
    *p = (yk__pending){.storage = s, .pool = pool, .unmarked = used_on};
    s->pool = NULL;
    yk_error before;
    yk__error_take(&before);
    yk_status status = pending_mark(backend, c, p); /* else when it is next looked at */
    (void)status;
    yk_clear_error();
    yk__error_put(&before);
    return true;
}

/* Gives the cached memory back. Not by a thread that records: it may neither wait nor look at events, and wants the
 * free blocks. Locked. */
static void cache_empty(const yk__backend *backend, yk__cache *c)
{
    if (records_here(c))
        return;
    pending_settle(backend, c, true);
    for (int q = 0; q < YK__QUEUES; q++) {
        for (int k = 0; k < CLASSES; k++) {
            while (c->lists[q][k].count)
                storage_free(backend, c, list_pop(&c->lists[q][k]));
        }
    }
    yk__heap_empty(backend, c);
}

/* ---- taking and returning ---- */

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
 * order. Not by a thread that records, as in cache_empty. */
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
        cache_empty(backend, of);
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
        cache_empty(backend, c);
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

/* The pool that the calling thread's memory comes from now, and goes to: that of its recording, or NULL. Locked. */
static yk__memory_pool *pool_now(const yk__cache *c)
{
    return records_here(c) ? c->open : NULL;
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
    yk__cache *c = backend ? cache_of(device) : NULL;
    if (!c)
        return NULL;
    if (bytes > (size_t)1 << 62) {
        yk__fail_memory(bytes);
        return NULL;
    }
    size_t block;
    int k = class_of(bytes, &block);
    bool heaped = backend->map && bytes >= HEAP_LEAST;
    yk__queue queue = backend->host_memory ? YK__QUEUE_COMPUTE : yk__queue_current();
    yk__free_list *list = &c->lists[queue][k];
    /* No lock is needed where no other thread is, and no backend is called, which might start one. */
    bool alone = yk__one_thread() && backend->host_memory && list->count && !heaped;
    if (!alone)
        pthread_mutex_lock(&c->lock);
    yk__memory_pool *pool = pool_now(c);
    if (pool)
        list = &pool->lists[k];
    if (!list->count && c->n_pending)
        pending_settle(backend, c, false);
    if (pool && !list->count && queue == YK__QUEUE_COMPUTE)
        list = &c->lists[queue][k]; /* the pool's from here on: recorded work comes after the work that used it */
    yk__storage *s = heaped        ? storage_of_heap(backend, device, c, pool, bytes)
                     : list->count ? list_pop(list)
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
    s->newer = NULL;
    s->older = c->newest;
    if (s->older)
        s->older->newer = s;
    c->newest = s;
    c->allocated += s->reserved;
    if (c->allocated > c->peak)
        c->peak = c->allocated;
    if (!alone)
        pthread_mutex_unlock(&c->lock);
    return s;
}

/* Takes back a storage that nobody holds any more. */
static void storage_cache(yk__storage *s)
{
    const yk__backend *backend = yk__backend_of(s->device);
    yk__cache *c = cache_of(s->device);
    uint8_t used_on = atomic_load_explicit(&s->used_on, memory_order_relaxed) & (uint8_t) ~(1 << s->queue);
    size_t block;
    int k = class_of(s->reserved, &block);
    const yk__free_list *first = &c->lists[YK__QUEUE_COMPUTE][k];
    bool alone = yk__one_thread() && backend->host_memory && !s->heaped &&
                 first->count < first->capacity; /* as in yk__storage_create */
    if (!alone)
        pthread_mutex_lock(&c->lock);
    *(s->newer ? &s->newer->older : &c->newest) = s->older;
    if (s->older)
        s->older->newer = s->newer;
    c->allocated -= s->reserved;
    /* In a recording the pool takes freed blocks, its own or not: work that is recorded from here on may have them. */
    yk__memory_pool *pool = s->pool;
    if (!pool && s->queue == YK__QUEUE_COMPUTE)
        pool = pool_now(c);
    yk__free_list *list = pool ? &pool->lists[k] : &c->lists[s->queue][k];
    if (s->heaped) {
        s->pool = pool;
        POISON(s->data, s->reserved);
        yk__heap_put(c, s);
    } else if (!used_on || !backend->event_record)
        list_push(backend, c, list, s);
    else if (!pending_add(backend, c, s, pool, used_on))
        storage_free(backend, c, s); /* it waits for the events first */
    /* Now and then: every block and every storage is counted. */
    YK__ASSERT_SOUND(list->count & (list->count - 1) || list->count < list->capacity / 2 ? NULL : cache_check(c));
    if (!alone)
        pthread_mutex_unlock(&c->lock);
}

/* ---- pools of graphs ---- */

yk__memory_pool *yk__memory_pool_open(yk_device device, bool *busy)
{
    yk__cache *c = cache_of(device);
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
    yk__cache *c = cache_of(pool->device);
    pthread_mutex_lock(&c->lock);
    c->open = NULL;
    pthread_mutex_unlock(&c->lock);
}

void yk__memory_pool_release(yk__memory_pool *pool)
{
    if (!pool)
        return;
    const yk__backend *backend = yk__backend_of(pool->device);
    yk__cache *c = cache_of(pool->device);
    pthread_mutex_lock(&c->lock);
    yk__memory_pool **at = &c->pools;
    while (*at != pool)
        at = &(*at)->next;
    *at = pool->next;
    for (yk__storage *s = c->newest; s; s = s->older) {
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
            list_push(backend, c, &c->lists[YK__QUEUE_COMPUTE][k], list_pop(list));
        free(list->storages);
    }
    yk__heap_move(c, pool);
    YK__ASSERT_SOUND(cache_check(c));
    pthread_mutex_unlock(&c->lock);
    free(pool);
}

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
        storage_cache(storage);
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
    yk__cache *c = shared ? cache_of(device) : NULL;
    if (!c)
        return bytes;
    size_t block;
    int k = class_of(bytes, &block), most = k + SHARED_CLASSES < CLASSES ? k + SHARED_CLASSES : CLASSES - 1;
    pthread_mutex_lock(&c->lock);
    yk__queue queue = yk__queue_current();
    const yk__memory_pool *pool = pool_now(c);
    const yk__free_list *lists = pool ? pool->lists : c->lists[queue];
    const yk__free_list *others = queue == YK__QUEUE_COMPUTE ? c->lists[queue] : lists; /* as in yk__storage_create */
    while (k <= most && !lists[k].count && !others[k].count)
        k++;
    pthread_mutex_unlock(&c->lock);
    return k > most ? bytes : block_of_class(k);
}

void *yk__workspace_get(yk_device device, size_t bytes, yk__storage **handle)
{
    *handle = yk__storage_create(device, workspace_bytes(device, bytes));
    return *handle ? (*handle)->data : NULL;
}

/* The cache of a device, locked; NULL with the error record set. */
static yk__cache *cache_locked(yk_device device)
{
    yk__cache *c = yk__device_check(device) ? NULL : cache_of(device);
    if (c)
        pthread_mutex_lock(&c->lock);
    return c;
}

yk_status yk_device_memory(yk_device device, yk_memory_info *info)
{
    if (!yk__is_there("device_memory", "info", info))
        return YK_ERR_ARGUMENT;
    *info = (yk_memory_info){0};
    yk__cache *c = cache_locked(device);
    if (!c)
        return yk__error_code();
    *info = (yk_memory_info){.allocated = c->allocated,
                             .peak_allocated = c->peak,
                             .reserved = c->reserved,
                             .peak_reserved = c->peak_reserved,
                             .limit = c->limit};
    pthread_mutex_unlock(&c->lock);
    return YK_OK;
}

void yk_device_reset_peak_memory(yk_device device)
{
    yk__cache *c = cache_locked(device);
    if (!c)
        return;
    c->peak = c->allocated;
    c->peak_reserved = c->reserved;
    pthread_mutex_unlock(&c->lock);
}

yk_status yk_device_set_memory_limit(yk_device device, size_t bytes)
{
    yk__cache *c = cache_locked(device);
    if (!c)
        return yk__error_code();
    c->limit = bytes;
    pthread_mutex_unlock(&c->lock);
    return YK_OK;
}

const char *yk__memory_check(yk_device device)
{
    yk__cache *c = cache_locked(device);
    if (!c)
        return yk_last_error()->message;
    const char *wrong = cache_check(c);
    pthread_mutex_unlock(&c->lock);
    return wrong;
}

void yk_device_empty_cache(yk_device device)
{
    yk__cache *c = cache_locked(device);
    if (!c)
        return;
    YK__ASSERT_SOUND(cache_check(c));
    cache_empty(yk__backend_of(device), c);
    pthread_mutex_unlock(&c->lock);
}

/* Drops the storages whose events never pass, of a device that was lost. */
static void pending_drop(const yk__backend *backend, yk__cache *c)
{
    for (size_t i = 0; i < c->n_pending; i++) {
        for (int q = 0; q < YK__QUEUES; q++)
            backend->event_release(c->pending[i].events[q]);
        storage_free(backend, c, c->pending[i].storage);
    }
    c->n_pending = 0;
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
            cache_empty(yk__backend_of(device), c);
            pending_drop(yk__backend_of(device), c);
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
