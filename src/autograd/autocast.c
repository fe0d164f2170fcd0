/*
 * autocast.c - the regions of autocast and the casts that they keep. Layer: autograd.
 *
 * Modes are a thread's own. What is cast, and to what, is decided where operations are (ops/cast_policy.c).
 *
 * The cache is a table by the parameter's address, of a power of two entries of which at most half are taken. It holds
 * its parameters, so that no other tensor can come to have such an address. It lives as long as the outermost region
 * of the thread.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/autocast.h"
#include "autograd/tape.h"

typedef struct entry {
    yk_tensor *x, *cast;
    uint32_t version; /* of x when it was cast */
} entry;

_Thread_local uint32_t yk__autocast_types;
static _Thread_local yk_autocast modes = {.dtype = {[YK_CPU] = YK_BF16, [YK_CUDA] = YK_F16}};
static _Thread_local int depth; /* of regions */
static _Thread_local entry *entries;
static _Thread_local size_t room, count;

/* ---- the cache ---- */

void yk_autocast_clear_cache(void)
{
    for (size_t i = 0; i < room; i++) {
        yk_tensor_release(entries[i].cast);
        yk_tensor_release(entries[i].x);
    }
    free(entries);
    entries = NULL;
    room = count = 0;
}

/* The entry of x, or the free one that x would take; the table has a free one. */
static entry *place_of(entry *table, size_t size, const yk_tensor *x)
{
    size_t i = (size_t)(((uintptr_t)x >> 6) * 0x9E3779B97F4A7C15u >> 20) & (size - 1);
    while (table[i].x && table[i].x != x)
        i = (i + 1) & (size - 1);
    return &table[i];
}

bool yk__autocast_keeps(const yk_tensor *x, yk_dtype dtype)
{
    return !modes.no_cache && x->dtype == YK_F32 && dtype == modes.dtype[yk__device_of(x).type] && !x->base &&
           yk_is_leaf(x) && yk__wants_grad(x);
}

yk_tensor *yk__autocast_cached(const yk_tensor *x, yk_dtype dtype)
{
    const entry *e = room ? place_of(entries, room, x) : NULL;
    if (!e || !e->x || (yk_dtype)e->cast->dtype != dtype || e->version != yk__version(x) ||
        !yk_device_equal(yk__device_of(e->cast), yk__device_of(x)))
        return NULL;
    /* A cast that was made under no_grad does not lead to x. */
    return yk_grad_enabled() && !yk__wants_grad(e->cast) ? NULL : e->cast;
}

static yk_status make_room(void)
{
    if (2 * (count + 1) <= room)
        return YK_OK;
    size_t size = room ? 2 * room : 64;
    entry *grown = yk__calloc(size, sizeof(*grown));
    if (!grown)
        return YK_ERR_MEMORY;
    for (size_t i = 0; i < room; i++) {
        if (entries[i].x)
            *place_of(grown, size, entries[i].x) = entries[i];
    }
    free(entries);
    entries = grown;
    room = size;
    return YK_OK;
}

yk_status yk__autocast_keep(yk_tensor *x, yk_tensor *cast)
{
    yk_status status = make_room();
    if (status)
        return status;
    entry *e = place_of(entries, room, x);
    yk_tensor *old = e->cast;
    if (!e->x) {
        e->x = yk_tensor_retain(x);
        count++;
    }
    e->cast = yk_tensor_retain(cast);
    e->version = yk__version(x);
    yk_tensor_release(old);
    return YK_OK;
}

/* ---- regions ---- */

static void set_modes(yk_autocast to)
{
    modes = to;
    yk__autocast_types = 0;
    for (int type = 0; type < YK__DEVICE_TYPES; type++)
        yk__autocast_types |= (uint32_t)to.enabled[type] << type;
}

yk_autocast yk__autocast_modes(void)
{
    return modes;
}

yk_autocast yk__autocast_enter(yk_autocast to)
{
    yk_autocast previous = modes;
    depth++;
    set_modes(to);
    return previous;
}

yk_autocast yk_autocast_begin(yk_device_type type, yk_dtype dtype, const yk_autocast_options *options)
{
    yk_autocast_options o;
    yk_autocast to = modes;
    if (YK__OPTIONS_TAKE("autocast_begin", yk_autocast_options, options, &o))
        return yk__autocast_enter(to);
    if ((unsigned)type >= YK__DEVICE_TYPES) {
        yk__fail(YK_ERR_ARGUMENT, "autocast_begin: %d is no type of device", (int)type);
    } else if (o.enabled && (unsigned)dtype >= YK__DTYPES) {
        yk__fail(YK_ERR_DTYPE, "autocast_begin: %d is not a dtype", (int)dtype);
    } else if (o.enabled && !yk__is_half(dtype)) {
        yk__fail(YK_ERR_DTYPE, "autocast_begin: the dtype is %s, expected bfloat16 or float16", yk_dtype_name(dtype));
    } else {
        to.enabled[type] = o.enabled;
        if (o.enabled)
            to.dtype[type] = dtype;
        to.no_cache = !o.cache_enabled;
    }
    return yk__autocast_enter(to);
}

void yk_autocast_end(yk_autocast previous)
{
    if (depth && --depth == 0)
        yk_autocast_clear_cache();
    set_modes(previous);
}

bool yk_autocast_enabled(yk_device_type type)
{
    return (unsigned)type < YK__DEVICE_TYPES && modes.enabled[type];
}

yk_dtype yk_autocast_dtype(yk_device_type type)
{
    return (unsigned)type < YK__DEVICE_TYPES ? modes.dtype[type] : YK_F32;
}
