/*
 * storage.c - counted memory of one device from a caching allocator. Layer: device.
 *
 * A training step asks for the same sizes again and again. Freed storages are kept, with their blocks, in lists by size
 * class (four classes a doubling, so a block is at most a quarter larger than asked for) and handed out again without
 * asking the system. When the system has no more, the cache of that device is emptied and the request tried once more.
 * Under the address sanitizer what is cached is poisoned, so a use after free is seen in spite of the cache.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/counter.h"
#include "base/invariant.h"
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

typedef struct free_list {
    yk__storage **storages; /* with their blocks, which are all of the class's size */
    size_t count, capacity;
} free_list;

typedef struct cache {
    pthread_mutex_t lock;
    free_list lists[CLASSES];
    size_t allocated, peak, reserved, peak_reserved;
    size_t limit;        /* of what is reserved; 0: none */
    yk__storage *newest; /* all that is allocated */
} cache;

_Thread_local const char *yk__memory_maker;
_Thread_local bool yk__memory_for_backward;

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

static size_t block_of_class(int k)
{
    return k == 0 ? LEAST : ((size_t)1 << (k / 4)) + (size_t)(k % 4 + 1) * ((size_t)1 << (k / 4 - 2));
}

/* Locked. */
static const char *cache_check(const cache *c)
{
    size_t allocated = 0, cached = 0;
    for (const yk__storage *s = c->newest; s; s = s->older) {
        allocated += s->reserved;
        size_t block;
        class_of(s->reserved, &block);
        if (s->reserved < s->bytes || block != s->reserved)
            return yk__broken("a storage of %zu bytes has a block of %zu", s->bytes, s->reserved);
        if ((s->older && s->older->newer != s) || (s == c->newest && s->newer) || allocated > c->allocated)
            return yk__broken("the list of storages: one of %zu bytes does not lead back, or there are more than %zu "
                              "bytes in all",
                              s->reserved, c->allocated);
    }
    for (int k = 0; k < CLASSES; k++) {
        if (c->lists[k].count > c->lists[k].capacity)
            return yk__broken("%zu blocks of %zu bytes in memory for %zu", c->lists[k].count, block_of_class(k),
                              c->lists[k].capacity);
        cached += c->lists[k].count ? c->lists[k].count * block_of_class(k) : 0;
    }
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

/* The block goes back to the system, and the storage with it. Locked. */
static void storage_free(const yk__backend *backend, cache *c, yk__storage *s)
{
    if (backend->host_memory)
        UNPOISON(s->data, s->reserved);
    backend->release(s->device.index, s->data, s->reserved);
    c->reserved -= s->reserved;
    free(s);
}

static void cache_empty(const yk__backend *backend, cache *c)
{
    for (int k = 0; k < CLASSES; k++) {
        free_list *list = &c->lists[k];
        while (list->count) {
            yk__storage *s = list->storages[--list->count];
            UNPOISON(s, sizeof(*s));
            storage_free(backend, c, s);
        }
    }
}

/* ---- who holds how much ---- */

typedef struct holder {
    const char *maker;
    bool for_backward;
    size_t bytes, blocks;
} holder;

/* HOLDERS: kinds that are told apart, the rest counted together. HOLDERS_NAMED: in the message; any number. */
enum { HOLDERS = 64, HOLDERS_NAMED = 6 };

/* What is allocated, by what it was made for; gives how many kinds, those beyond the last slot in the last. Locked. */
static int holders_of(const cache *c, holder *all)
{
    int count = 0;
    for (const yk__storage *s = c->newest; s; s = s->older) {
        int i = 0;
        while (i < count && (all[i].maker != s->maker || all[i].for_backward != s->for_backward) && i < HOLDERS - 1)
            i++;
        if (i == count)
            all[count++] = (holder){.maker = s->maker, .for_backward = s->for_backward};
        else if (i == HOLDERS - 1)
            all[i].maker = NULL;
        all[i].bytes += s->reserved;
        all[i].blocks++;
    }
    return count;
}

static int by_bytes(const void *a, const void *b)
{
    size_t x = ((const holder *)a)->bytes, y = ((const holder *)b)->bytes;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* "1.5 MiB" */
static const char *amount(size_t bytes, char text[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(text, 32, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

typedef struct text {
    char *at;
    size_t used, size;
} text;

static void append(text *t, const char *format, ...) YK_PRINTF(2, 3);
static void append(text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(t->at + t->used, t->size - t->used, format, arguments);
    va_end(arguments);
    t->used = written < 0 || (size_t)written >= t->size - t->used ? t->size - 1 : t->used + (size_t)written;
}

/* What the tensors of this device were made for, the largest first. Locked. */
static void append_holders(text *t, const cache *c)
{
    char size[32];
    holder all[HOLDERS];
    int count = holders_of(c, all);
    qsort(all, (size_t)count, sizeof(all[0]), by_bytes);
    for (int i = 0; i < count && i < HOLDERS_NAMED; i++)
        append(t, "%s%s%s %s in %zu", i ? ", " : " (", all[i].for_backward ? "backward of " : "",
               all[i].maker ? all[i].maker : "other", amount(all[i].bytes, size), all[i].blocks);
    if (count)
        append(t, "%s)", count > HOLDERS_NAMED ? ", ..." : "");
}

/* What all other devices hold. */
static void append_others(text *t, yk_device device)
{
    const char *between = "; elsewhere: ";
    for (int type = 0; type < YK__DEVICE_TYPES; type++) {
        for (int index = 0; index < MAX_DEVICES; index++) {
            yk_device other = {(int16_t)type, (int16_t)index};
            cache *c = __atomic_load_n(&caches[type][index], __ATOMIC_ACQUIRE);
            if (!c || yk_device_equal(other, device))
                continue;
            pthread_mutex_lock(&c->lock);
            size_t held = c->allocated;
            pthread_mutex_unlock(&c->lock);
            if (!held)
                continue;
            char name[16], size[32];
            append(t, "%s%s %s", between, yk_device_format(other, name), amount(held, size));
            between = ", ";
        }
    }
}

/* `why` is what the backend says, which knows more than we do where the memory is not the host's. Not locked, since it
 * looks at all devices. Source: torch.OutOfMemoryError. */
static yk_status fail_memory(cache *c, yk_device device, size_t bytes, const char *why)
{
    char name[16], held[32], cached[32], limit[32], message[900];
    text t = {.at = message, .size = sizeof(message)};
    if (why[0])
        append(&t, "%s", why);
    else
        append(&t, "out of memory: %zu bytes were asked for on %s", bytes, yk_device_format(device, name));
    pthread_mutex_lock(&c->lock);
    if (c->limit)
        append(&t, ", whose limit is %s", amount(c->limit, limit));
    append(&t, "; tensors hold %s", amount(c->allocated, held));
    append_holders(&t, c);
    if (c->reserved > c->allocated)
        append(&t, "; %s are cached", amount(c->reserved - c->allocated, cached));
    pthread_mutex_unlock(&c->lock);
    append_others(&t, device);
    return yk__fail(YK_ERR_MEMORY, "%s", message);
}

/* ---- taking and returning ---- */

/* A new block from the system within the limit; what is cached goes back first where there is not enough. Locked. */
static yk_status reserve(const yk__backend *backend, yk_device device, cache *c, size_t block, void **memory)
{
    if (c->limit && c->reserved + block > c->limit)
        cache_empty(backend, c);
    bool within = !c->limit || c->reserved + block <= c->limit;
    yk_status status = within ? backend->allocate(device.index, block, memory) : YK_ERR_MEMORY;
    if (within && status && c->reserved > c->allocated) {
        yk_clear_error();
        cache_empty(backend, c);
        status = backend->allocate(device.index, block, memory);
    }
    if (status)
        return status;
    yk_clear_error(); /* of the attempt before the cache was emptied */
    c->reserved += block;
    if (c->reserved > c->peak_reserved)
        c->peak_reserved = c->reserved;
    return YK_OK;
}

/* A storage with a block from the system. Called with the lock held, which a failure gives back. */
static yk__storage *storage_make(const yk__backend *backend, yk_device device, cache *c, size_t bytes, size_t block)
{
    YK__OWN_RECORD;
    yk__storage *s = malloc(sizeof(*s));
    yk_status status = s ? reserve(backend, device, c, block, &s->data) : yk__fail_memory(sizeof(*s));
    if (!status) {
        *s = (yk__storage){.data = s->data, .device = device, .reserved = block, .versions = &s->version};
        return s;
    }
    pthread_mutex_unlock(&c->lock);
    free(s);
    if (s && status == YK_ERR_MEMORY) {
        yk_error why;
        yk__error_take(&why);
        fail_memory(c, device, bytes, why.code && !backend->host_memory ? why.message : "");
    }
    return NULL;
}

yk__storage *yk__storage_create(yk_device device, size_t bytes)
{
    const yk__backend *backend = yk__backend_of(device);
    cache *c = backend ? cache_of(device) : NULL;
    if (!c)
        return NULL;
    if (bytes > (size_t)1 << 62) {
        yk__fail_memory(bytes);
        return NULL;
    }
    size_t block;
    free_list *list = &c->lists[class_of(bytes, &block)];
    bool alone = yk__one_thread() && list->count; /* and no backend is called, which might start a thread */
    if (!alone)
        pthread_mutex_lock(&c->lock);
    yk__storage *s = list->count ? list->storages[--list->count] : storage_make(backend, device, c, bytes, block);
    if (!s)
        return NULL;
    UNPOISON(s, sizeof(*s));
    if (backend->host_memory)
        UNPOISON(s->data, bytes);
    atomic_init(&s->references, 1);
    atomic_init(&s->version, 0);
    atomic_init(&s->sharers, 0);
    s->bytes = bytes;
    s->maker = yk__memory_maker;
    s->for_backward = yk__memory_for_backward;
    s->newer = NULL;
    s->older = c->newest;
    if (s->older)
        s->older->newer = s;
    c->newest = s;
    c->allocated += block;
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
    cache *c = cache_of(s->device);
    size_t block;
    free_list *list = &c->lists[class_of(s->reserved, &block)];
    bool alone = yk__one_thread() && list->count < list->capacity; /* as in yk__storage_create */
    if (!alone)
        pthread_mutex_lock(&c->lock);
    *(s->newer ? &s->newer->older : &c->newest) = s->older;
    if (s->older)
        s->older->newer = s->newer;
    c->allocated -= block;
    bool kept = list->count < list->capacity;
    if (!kept) {
        size_t capacity = list->capacity ? 2 * list->capacity : 16;
        yk__storage **grown = realloc(list->storages, capacity * sizeof(*grown));
        if (grown) {
            list->storages = grown;
            list->capacity = capacity;
            kept = true;
        }
    }
    if (kept) {
        list->storages[list->count++] = s;
        poison(backend, s);
        /* Now and then: every block and every storage is counted. */
        YK__ASSERT_SOUND(list->count & (list->count - 1) || list->count < list->capacity / 2 ? NULL : cache_check(c));
    } else {
        storage_free(backend, c, s);
    }
    if (!alone)
        pthread_mutex_unlock(&c->lock);
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

static void release_elsewhere(void *from)
{
    atomic_fetch_sub_explicit(&((yk__storage *)from)->sharers, 1, memory_order_relaxed);
    yk__storage_release(from);
}

yk__storage *yk__storage_share(yk__storage *from, yk_device device, bool own_versions)
{
    bool elsewhere = !yk_device_equal(from->device, device);
    yk__storage *storage =
        yk__storage_wrap(device, from->data, from->bytes, elsewhere ? release_elsewhere : release_shared, from);
    if (!storage)
        return NULL;
    yk__storage_retain(from);
    if (elsewhere)
        atomic_fetch_add_explicit(&from->sharers, 1, memory_order_relaxed);
    if (!own_versions)
        storage->versions = from->versions;
    return storage;
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

/* Scratch memory is given back when the kernel ends: it may be a larger cached block, so that the layers of a network,
 * which want a different size each, share a few. It counts as allocated, so not many times larger. */
#define SHARED_WORKSPACE ((size_t)1 << 20) /* smaller ones are too quick to come by to search */
#define SHARED_CLASSES   8                 /* up to four times the size */

static size_t workspace_bytes(yk_device device, size_t bytes)
{
    cache *c = bytes < SHARED_WORKSPACE || bytes > (size_t)1 << 62 ? NULL : cache_of(device);
    if (!c)
        return bytes;
    size_t block;
    int k = class_of(bytes, &block), most = k + SHARED_CLASSES < CLASSES ? k + SHARED_CLASSES : CLASSES - 1;
    pthread_mutex_lock(&c->lock);
    while (k <= most && !c->lists[k].count)
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
    cache *c = cache_locked(device);
    if (!c)
        return;
    c->peak = c->allocated;
    c->peak_reserved = c->reserved;
    pthread_mutex_unlock(&c->lock);
}

yk_status yk_device_set_memory_limit(yk_device device, size_t bytes)
{
    cache *c = cache_locked(device);
    if (!c)
        return yk__error_code();
    c->limit = bytes;
    pthread_mutex_unlock(&c->lock);
    return YK_OK;
}

const char *yk__memory_check(yk_device device)
{
    cache *c = cache_locked(device);
    if (!c)
        return yk_last_error()->message;
    const char *wrong = cache_check(c);
    pthread_mutex_unlock(&c->lock);
    return wrong;
}

void yk_device_empty_cache(yk_device device)
{
    cache *c = cache_locked(device);
    if (!c)
        return;
    YK__ASSERT_SOUND(cache_check(c));
    cache_empty(yk__backend_of(device), c);
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
            cache_empty(yk__backend_of(device), c);
            for (int k = 0; k < CLASSES; k++)
                free(c->lists[k].storages);
            pthread_mutex_destroy(&c->lock);
            free(c);
            caches[type][index] = NULL;
        }
    }
}
