/*
 * memory_report.c - the holders of a device's memory, as the error of a failed allocation names them. Layer: device.
 *
 * Tensors are told apart by the operation that made them (yk__operation_name), the largest holders first.
 */
#include <stdlib.h>
#include <string.h>

#include "device/memory/cache.h"

typedef struct holder {
    const char *maker;
    bool for_backward;
    size_t bytes, blocks;
} holder;

/* HOLDERS: kinds that are told apart, the rest counted together. HOLDERS_NAMED: in the message; any number. */
enum { HOLDERS = 64, HOLDERS_NAMED = 6 };

/* The allocated bytes by the operation that they were made for; gives the number of kinds, those beyond the last slot
 * in the last. Locked. */
static int holders_of(const yk__cache *c, holder *all)
{
    int count = 0;
    for (const yk__storage *s = c->newest; s; s = s->next) {
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

/* Appends the operations that the tensors of this device were made for, the largest first. Locked. */
static void append_holders(text *t, const yk__cache *c)
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

/* Appends the bytes that all other devices hold. */
static void append_others(text *t, yk_device device)
{
    const char *between = "; elsewhere: ";
    for (int type = 0; type < YK__DEVICE_TYPES; type++) {
        for (int index = 0; index < MAX_DEVICES; index++) {
            yk_device other = {(int16_t)type, (int16_t)index};
            yk__cache *c = yk__cache_existing(type, index);
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
yk_status yk__cache_fail_memory(yk__cache *c, yk_device device, size_t bytes, const char *why)
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
