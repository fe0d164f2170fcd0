/*
 * prefix_store.c - a part of another store's keys, under names of its own. Layer: net.
 */
#include <stdlib.h>

#include "net/store_table.h"

typedef struct prefix_store {
    yk_store store;
    yk_store *base; /* retained */
    char *prefix;   /* with the slash */
    size_t size;
} prefix_store;

/* A prefix and a key, each of the longest that is allowed. */
enum { SPACE = 2 * YK_STORE_MAX_KEY };

/* The base's key, in `space`; data is NULL and the error set when it is too long. */
static yk__bytes full_key(const prefix_store *p, yk__bytes key, unsigned char *space)
{
    size_t size = p->size + key.size;
    if (size > YK_STORE_MAX_KEY) {
        yk__fail(YK_ERR_ARGUMENT, "key '%.32s...' has %zu bytes with its prefix, at most %d are possible (store %s)",
                 (const char *)key.data, size, YK_STORE_MAX_KEY, p->store.name);
        return (yk__bytes){0};
    }
    memcpy(space, p->prefix, p->size);
    memcpy(space + p->size, key.data, key.size);
    return (yk__bytes){space, size};
}

#define BASE(store) ((prefix_store *)(store))->base
#define FULL_KEY                                                                                                       \
    unsigned char space[SPACE];                                                                                        \
    key = full_key((prefix_store *)store, key, space);                                                                 \
    if (!key.data)                                                                                                     \
    return YK_ERR_ARGUMENT

static yk_status prefix_set(yk_store *store, yk__bytes key, yk__bytes value, yk__until until)
{
    FULL_KEY;
    return BASE(store)->table->set(BASE(store), key, value, until);
}

static yk_status prefix_get(yk_store *store, yk__bytes key, yk__store_value *value, yk__until until)
{
    FULL_KEY;
    return BASE(store)->table->get(BASE(store), key, value, until);
}

static yk_status prefix_add(yk_store *store, yk__bytes key, int64_t amount, int64_t *sum, yk__until until)
{
    FULL_KEY;
    return BASE(store)->table->add(BASE(store), key, amount, sum, until);
}

static yk_status prefix_compare_set(yk_store *store, yk__bytes key, yk__bytes expected, yk__bytes desired,
                                    yk__store_value *value, bool *swapped, yk__until until)
{
    FULL_KEY;
    return BASE(store)->table->compare_set(BASE(store), key, expected, desired, value, swapped, until);
}

static yk_status prefix_remove(yk_store *store, yk__bytes key, bool *deleted, yk__until until)
{
    FULL_KEY;
    return BASE(store)->table->remove(BASE(store), key, deleted, until);
}

static yk_status prefix_watch(yk_store *store, yk__bytes key, yk__bytes old, yk__store_value *value, yk__until until)
{
    FULL_KEY;
    return BASE(store)->table->watch(BASE(store), key, old, value, until);
}

/* wait and check: `there` is NULL for wait. */
static yk_status with_keys(yk_store *store, const yk__bytes *keys, size_t count, bool *there, yk__until until)
{
    const prefix_store *p = (prefix_store *)store;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += p->size + keys[i].size;
    yk__bytes *full = yk__calloc(count + 1, sizeof(*full));
    unsigned char *space = full ? yk__calloc(bytes + SPACE, 1) : NULL, *at = space;
    yk_status status = space ? YK_OK : YK_ERR_MEMORY;
    for (size_t i = 0; i < count && !status; i++) {
        full[i] = full_key(p, keys[i], at);
        status = full[i].data ? YK_OK : YK_ERR_ARGUMENT;
        at += full[i].size;
    }
    if (!status)
        status = there ? p->base->table->check(p->base, full, count, there, until)
                       : p->base->table->wait(p->base, full, count, until);
    free(full);
    free(space);
    return status;
}

static yk_status prefix_wait(yk_store *store, const yk__bytes *keys, size_t count, yk__until until)
{
    return with_keys(store, keys, count, NULL, until);
}

static yk_status prefix_check(yk_store *store, const yk__bytes *keys, size_t count, bool *there, yk__until until)
{
    return with_keys(store, keys, count, there, until);
}

static yk_status prefix_count(yk_store *store, yk__bytes prefix, int64_t *count, yk__until until)
{
    const prefix_store *p = (prefix_store *)store;
    unsigned char space[SPACE];
    if (p->size + prefix.size > SPACE) { /* of prefixes inside prefixes: no key is that long */
        *count = 0;
        return YK_OK;
    }
    memcpy(space, p->prefix, p->size);
    if (prefix.size)
        memcpy(space + p->size, prefix.data, prefix.size);
    return p->base->table->count(p->base, (yk__bytes){space, p->size + prefix.size}, count, until);
}

static yk_status prefix_gather(yk_store *store, yk__store_gather *g, yk__until until)
{
    const prefix_store *p = (prefix_store *)store;
    yk__bytes *full = yk__calloc(g->count + 2, sizeof(*full));
    unsigned char *space = full ? yk__calloc(g->count + 2, YK_STORE_MAX_KEY) : NULL;
    yk_status status = space ? YK_OK : YK_ERR_MEMORY;
    for (size_t i = 0; i < g->count + 2 && !status; i++) {
        yk__bytes key = i < g->count ? g->keys[i] : i == g->count ? g->stop : g->own;
        if (!key.data)
            continue;
        full[i] = full_key(p, key, space + i * YK_STORE_MAX_KEY);
        status = full[i].data ? YK_OK : YK_ERR_ARGUMENT;
    }
    if (!status) {
        yk__store_gather inner = *g;
        inner.keys = full;
        inner.stop = full[g->count];
        inner.own = full[g->count + 1];
        status = yk__store_gather_run(p->base, &inner, until.deadline, until.timeout);
        g->stopped = inner.stopped;
        g->conflict = inner.conflict;
        g->complete = inner.complete;
        g->sent = inner.sent;
    }
    free(full);
    free(space);
    return status;
}

static void prefix_destroy(yk_store *store)
{
    prefix_store *p = (prefix_store *)store;
    yk_store_release(p->base);
    free(p->prefix);
}

static const yk__store_table prefix_table = {
    .set = prefix_set,
    .get = prefix_get,
    .add = prefix_add,
    .wait = prefix_wait,
    .check = prefix_check,
    .compare_set = prefix_compare_set,
    .remove = prefix_remove,
    .watch = prefix_watch,
    .count = prefix_count,
    .gather = prefix_gather,
    .destroy = prefix_destroy,
};

yk_store *yk_prefix_store(const char *prefix, yk_store *base)
{
    YK__LIVE(base);
    if (!base && yk__error_code())
        return NULL;
    if (!yk__scope_check("prefix_store"))
        return NULL;
    if (!base || !prefix || !*prefix || strlen(prefix) > YK_STORE_MAX_KEY / 2) {
        yk__fail(YK_ERR_ARGUMENT, "prefix_store: %s",
                 !base      ? "the store is NULL"
                 : !prefix  ? "the prefix is NULL"
                 : !*prefix ? "the prefix is empty"
                            : "the prefix is longer than half a key may be");
        return NULL;
    }
    char *name = yk__format("%s/%s", base->name, prefix), *slashed = yk__format("%s/", prefix);
    yk_store *store = name && slashed ? yk__store_new(&prefix_table, sizeof(prefix_store), name) : NULL;
    free(name);
    if (!store) {
        free(slashed);
        return NULL;
    }
    prefix_store *p = (prefix_store *)store;
    p->base = yk_store_retain(base);
    p->prefix = slashed;
    p->size = strlen(slashed);
    store->port = base->port;
    store->timeout = base->timeout;
    return yk__scope_own(store);
}
