/*
 * memory_figures.c - what a program asks of a device's memory: figures, peaks, a limit, an empty cache. Layer: device.
 */
#include "base/invariant.h"
#include "device/memory/cache.h"

/* The cache of a device, locked; NULL with the error record set. */
static yk__cache *cache_locked(yk_device device)
{
    yk__cache *c = yk__device_check(device) ? NULL : yk__cache_of(device);
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
    const char *wrong = yk__cache_check(c);
    pthread_mutex_unlock(&c->lock);
    return wrong;
}

void yk_device_empty_cache(yk_device device)
{
    yk__cache *c = cache_locked(device);
    if (!c)
        return;
    YK__ASSERT_SOUND(yk__cache_check(c));
    yk__cache_empty(yk__backend_of(device), c);
    pthread_mutex_unlock(&c->lock);
}
