/*
 * keyspace.c - a hash table of keys, and the waiters on each. Layer: net.
 *
 * A waiter stands at one key only, the first that is missing; when that comes, it moves on to the next, and before it
 * is called all keys are looked at once more, so that at that moment all are there. The cost is one step for a change
 * and key, whatever the number of keys that are waited for. A missing key that someone stands at has an entry without a
 * value.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/invariant.h"
#include "net/keyspace.h"

typedef struct yk__entry {
    struct yk__entry *next;
    uint64_t hash;
    bool there;
    yk__bytes key, value; /* the key follows the entry, the value has memory of its own */
    yk__waiter *waiters;
} entry;

static uint64_t hash_of(yk__bytes key) /* only members of the job get here */
{
    uint64_t hash = yk__hash(YK__HASH_BASIS, key.data, key.size);
    return hash ^ hash >> 32;
}

static bool same(yk__bytes a, yk__bytes b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

static entry **find_slot(const yk__keyspace *space, yk__bytes key, uint64_t hash)
{
    entry **at = &space->slots[hash & (space->slot_count - 1)];
    while (*at && !((*at)->hash == hash && same((*at)->key, key)))
        at = &(*at)->next;
    return at;
}

static entry *entry_find(const yk__keyspace *space, yk__bytes key)
{
    return space->slot_count ? *find_slot(space, key, hash_of(key)) : NULL;
}

static bool grow(yk__keyspace *space)
{
    size_t count = space->slot_count ? 2 * space->slot_count : 64;
    entry **slots = calloc(count, sizeof(*slots));
    if (!slots)
        return false;
    for (size_t i = 0; i < space->slot_count; i++) {
        for (entry *e = space->slots[i], *next; e; e = next) {
            next = e->next;
            e->next = slots[e->hash & (count - 1)];
            slots[e->hash & (count - 1)] = e;
        }
    }
    free(space->slots);
    space->slots = slots;
    space->slot_count = count;
    YK__ASSERT_SOUND(yk__keyspace_check(space));
    return true;
}

static entry *find_or_make(yk__keyspace *space, yk__bytes key)
{
    if (space->entries >= space->slot_count && !grow(space) && !space->slot_count)
        return NULL;
    uint64_t hash = hash_of(key);
    entry **at = find_slot(space, key, hash);
    if (*at)
        return *at;
    entry *e = malloc(sizeof(*e) + key.size);
    if (!e)
        return NULL;
    *e = (entry){.hash = hash, .key = {(unsigned char *)(e + 1), key.size}};
    if (key.size)
        memcpy(e + 1, key.data, key.size);
    *at = e;
    space->entries++;
    return e;
}

/* Takes an entry out when it neither holds a value nor is waited for. */
static void tidy(yk__keyspace *space, entry *e)
{
    if (e->there || e->waiters)
        return;
    *find_slot(space, e->key, e->hash) = e->next;
    space->entries--;
    free(e);
}

const char *yk__keyspace_check(const yk__keyspace *space)
{
    size_t entries = 0, keys = 0;
    if (space->slot_count & (space->slot_count - 1))
        return yk__broken("%zu slots, which is no power of two", space->slot_count);
    for (size_t i = 0; i < space->slot_count; i++) {
        for (const entry *e = space->slots[i]; e; e = e->next) {
            entries++;
            keys += e->there;
            if (e->hash != hash_of(e->key) || (e->hash & (space->slot_count - 1)) != i)
                return yk__broken("an entry of hash %016" PRIx64 " is in slot %zu of %zu", e->hash, i,
                                  space->slot_count);
            if (!e->there && (e->value.data || !e->waiters))
                return yk__broken("an entry of slot %zu without a value has %s for one and %s", i,
                                  e->value.data ? "memory" : "no memory", e->waiters ? "a waiter" : "no waiter");
            for (const yk__waiter *w = e->waiters, *before = NULL; w; before = w, w = w->next) {
                if (w->at != e || w->previous != before)
                    return yk__broken("a waiter of slot %zu: its links do not lead back", i);
                if (w->position >= w->count || !same(w->keys[w->position], e->key))
                    return yk__broken("a waiter of slot %zu waits for key %zu of %zu, which is another one", i,
                                      w->position, w->count);
            }
        }
    }
    if (entries != space->entries || keys != space->keys)
        return yk__broken("%zu entries, %zu of them keys, where %zu and %zu are counted", entries, keys, space->entries,
                          space->keys);
    return NULL;
}

void yk__keyspace_clear(yk__keyspace *space)
{
    YK__ASSERT_SOUND(yk__keyspace_check(space));
    for (size_t i = 0; i < space->slot_count; i++) {
        for (entry *e = space->slots[i], *next; e; e = next) {
            next = e->next;
            free((void *)e->value.data);
            free(e);
        }
    }
    free(space->slots);
    *space = (yk__keyspace){0};
}

/* ---- waiting --------------------------------------------------------------------------------------------------- */
static void stand_at(yk__waiter *waiter, entry *e)
{
    waiter->at = e;
    waiter->previous = NULL;
    waiter->next = e->waiters;
    if (e->waiters)
        e->waiters->previous = waiter;
    e->waiters = waiter;
}

static void step_away(yk__waiter *waiter)
{
    if (waiter->previous)
        waiter->previous->next = waiter->next;
    else
        waiter->at->waiters = waiter->next;
    if (waiter->next)
        waiter->next->previous = waiter->previous;
    waiter->at = NULL;
    waiter->previous = waiter->next = NULL;
}

static bool differs(const entry *e, yk__bytes old)
{
    if (!e || !e->there)
        return old.data != NULL;
    return !old.data || !same(e->value, old);
}

/* The position of a missing key, from the waiter's own on and then from the start; `count` when there is none. */
static size_t missing(const yk__keyspace *space, const yk__waiter *waiter)
{
    for (size_t i = 0; i < waiter->count; i++) {
        size_t at = (waiter->position + i) % waiter->count;
        const entry *e = entry_find(space, waiter->keys[at]);
        if (!e || !e->there)
            return at;
    }
    return waiter->count;
}

bool yk__keyspace_wait(yk__keyspace *space, yk__waiter *waiter, yk_status *status)
{
    waiter->at = NULL;
    waiter->position = 0;
    *status = YK_OK;
    if (waiter->watches) {
        if (differs(entry_find(space, waiter->keys[0]), waiter->old))
            return true;
    } else {
        size_t at = missing(space, waiter);
        if (at == waiter->count)
            return true;
        waiter->position = at;
    }
    entry *e = find_or_make(space, waiter->keys[waiter->position]);
    if (e)
        stand_at(waiter, e);
    else
        *status = yk__fail_memory(sizeof(entry));
    return false;
}

void yk__keyspace_cancel(yk__keyspace *space, yk__waiter *waiter)
{
    entry *e = waiter->at;
    if (!e)
        return;
    step_away(waiter);
    tidy(space, e);
}

/* Calls those whose wait the change of `e` ends, and moves the others to the next key that they miss. */
static void changed(yk__keyspace *space, entry *e)
{
    for (yk__waiter *waiter = e->waiters, *next; waiter; waiter = next) {
        next = waiter->next;
        if (waiter->watches) {
            if (!differs(e, waiter->old))
                continue;
        } else {
            if (!e->there)
                continue;
            size_t at = missing(space, waiter);
            entry *other = at < waiter->count ? find_or_make(space, waiter->keys[at]) : NULL;
            if (at < waiter->count && !other)
                continue; /* no memory to stand elsewhere: it is looked at again when this key changes */
            if (other) {
                step_away(waiter);
                waiter->position = at;
                stand_at(waiter, other);
                continue;
            }
        }
        step_away(waiter);
        waiter->ready(waiter);
    }
}

/* ---- operations ------------------------------------------------------------------------------------------------ */
const yk__bytes *yk__keyspace_get(const yk__keyspace *space, yk__bytes key)
{
    const entry *e = entry_find(space, key);
    return e && e->there ? &e->value : NULL;
}

yk_status yk__keyspace_set(yk__keyspace *space, yk__bytes key, yk__bytes value)
{
    unsigned char *copy = malloc(value.size + 1);
    entry *e = copy ? find_or_make(space, key) : NULL;
    if (!e) {
        free(copy);
        return yk__fail_memory(value.size + sizeof(entry));
    }
    if (value.size)
        memcpy(copy, value.data, value.size);
    free((void *)e->value.data);
    e->value = (yk__bytes){copy, value.size};
    space->keys += !e->there;
    e->there = true;
    if (space->noted)
        space->noted(space->argument, e->key, &e->value);
    changed(space, e);
    return YK_OK;
}

static bool parse_number(yk__bytes value, int64_t *number)
{
    size_t i = value.size && value.data[0] == '-';
    if (value.size == i || value.size > 20)
        return false;
    __int128 sum = 0;
    for (; i < value.size; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return false;
        sum = sum * 10 + (value.data[i] - '0');
    }
    if (value.data[0] == '-')
        sum = -sum;
    *number = (int64_t)sum;
    return sum >= INT64_MIN && sum <= INT64_MAX;
}

yk_status yk__keyspace_add(yk__keyspace *space, yk__bytes key, int64_t amount, int64_t *sum, char why[YK__ADD_WHY])
{
    const yk__bytes *value = yk__keyspace_get(space, key);
    int64_t before = 0;
    if (value && !parse_number(*value, &before)) {
        char printable[33];
        size_t used = value->size < sizeof(printable) - 1 ? value->size : sizeof(printable) - 1;
        for (size_t i = 0; i < used; i++)
            printable[i] = value->data[i] >= 32 && value->data[i] < 127 ? (char)value->data[i] : '?';
        printable[used] = 0;
        snprintf(why, YK__ADD_WHY, "it holds '%s'%s, which is no 64-bit integer", printable,
                 used < value->size ? "..." : "");
        return YK_ERR_ARGUMENT;
    }
    if (__builtin_add_overflow(before, amount, sum)) {
        snprintf(why, YK__ADD_WHY, "%lld + %lld is beyond 64 bits", (long long)before, (long long)amount);
        return YK_ERR_ARGUMENT;
    }
    char text[24];
    snprintf(text, sizeof(text), "%lld", (long long)*sum);
    snprintf(why, YK__ADD_WHY, "out of memory");
    return yk__keyspace_set(space, key, yk__text_bytes(text));
}

yk_status yk__keyspace_compare_set(yk__keyspace *space, yk__bytes key, yk__bytes expected, yk__bytes desired,
                                   bool *swapped)
{
    const yk__bytes *value = yk__keyspace_get(space, key);
    *swapped = value ? same(*value, expected) : expected.size == 0;
    return *swapped ? yk__keyspace_set(space, key, desired) : YK_OK;
}

bool yk__keyspace_delete(yk__keyspace *space, yk__bytes key)
{
    entry *e = entry_find(space, key);
    if (!e || !e->there)
        return false;
    free((void *)e->value.data);
    e->value = (yk__bytes){0};
    e->there = false;
    space->keys--;
    if (space->noted)
        space->noted(space->argument, e->key, NULL);
    changed(space, e);
    tidy(space, e);
    return true;
}

static bool begins_with(const entry *e, yk__bytes prefix)
{
    return e->there && e->key.size >= prefix.size && memcmp(e->key.data, prefix.data, prefix.size) == 0;
}

void yk__keyspace_visit(const yk__keyspace *space, yk__bytes prefix,
                        void (*visit)(void *argument, yk__bytes key, const yk__bytes *value), void *argument)
{
    for (size_t i = 0; i < space->slot_count; i++)
        for (const entry *e = space->slots[i]; e; e = e->next)
            if (begins_with(e, prefix))
                visit(argument, e->key, &e->value);
}

int64_t yk__keyspace_count(const yk__keyspace *space, yk__bytes prefix)
{
    if (!prefix.size)
        return (int64_t)space->keys;
    int64_t count = 0;
    for (size_t i = 0; i < space->slot_count; i++)
        for (const entry *e = space->slots[i]; e; e = e->next)
            count += begins_with(e, prefix);
    return count;
}
