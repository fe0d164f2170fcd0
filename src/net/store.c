/*
 * store.c - the front of all stores: arguments are checked here, once, then the kind's table is called. Layer: net.
 */
#include <stdlib.h>
#include <string.h>

#include "net/store_table.h"

/* Keys of one call: bounds the request. Any number; enough for a key of each of 65,536 ranks. */
enum { MAX_WAIT_KEYS = 1 << 16 };

static void store_destroy(void *object)
{
    yk_store *store = object;
    if (store->table->destroy)
        store->table->destroy(store);
    free(store->name);
    yk__object_free(store);
}

static const yk__type store_type = {"store", store_destroy};

yk_store *yk__store_new(const yk__store_table *table, size_t size, const char *name)
{
    yk_store *store = yk__object_new(&store_type, size);
    char *copy = store ? yk__strdup(name) : NULL;
    if (!copy) {
        yk__object_free(store);
        return NULL;
    }
    store->table = table;
    store->name = copy;
    store->timeout = YK__STORE_TIMEOUT;
    return store;
}

yk_store *yk_store_retain(yk_store *store)
{
    return yk_object_retain(store);
}

void yk_store_release(yk_store *store)
{
    yk_object_release(store);
}

const char *yk_store_name(const yk_store *store)
{
    YK__LIVE(store);
    return store ? store->name : "";
}

int yk_store_port(const yk_store *store)
{
    YK__LIVE(store);
    return store ? store->port : 0;
}

yk_status yk__store_copy(yk__bytes from, yk__store_value *to)
{
    char *data = malloc(from.size + 1);
    if (!data)
        return yk__fail_memory(from.size + 1);
    if (from.size)
        memcpy(data, from.data, from.size);
    data[from.size] = 0;
    *to = (yk__store_value){data, from.size};
    return YK_OK;
}

/* ---- checks ---------------------------------------------------------------------------------------------------- */
static yk_status check_store(const yk_store *store, const char *what)
{
    if (store)
        return YK_OK;
    return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "%s: the store is NULL", what);
}

static yk_status check_key(const yk_store *store, const char *what, const char *key)
{
    yk_status status = check_store(store, what);
    if (status)
        return status;
    if (!key || !*key)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the key is %s (store %s)", what, key ? "empty" : "NULL", store->name);
    size_t size = strlen(key);
    if (size > YK_STORE_MAX_KEY)
        return yk__fail(YK_ERR_ARGUMENT, "%s: key '%.32s...' has %zu bytes, at most %d are possible (store %s)", what,
                        key, size, YK_STORE_MAX_KEY, store->name);
    return YK_OK;
}

static yk_status check_keys(const yk_store *store, const char *what, const char *const *keys, size_t count,
                            yk__bytes **list)
{
    yk_status status = check_store(store, what);
    if (status)
        return status;
    if (count > MAX_WAIT_KEYS || (count && !keys))
        return yk__fail(YK_ERR_ARGUMENT, "%s: %zu keys%s, at most %d are possible (store %s)", what, count,
                        keys ? "" : " at NULL", MAX_WAIT_KEYS, store->name);
    if (!(*list = yk__calloc(count + 1, sizeof(**list))))
        return YK_ERR_MEMORY;
    for (size_t i = 0; i < count && !status; i++) {
        status = check_key(store, what, keys[i]);
        if (!status)
            (*list)[i] = yk__text_bytes(keys[i]);
    }
    if (status) {
        free(*list);
        *list = NULL;
    }
    return status;
}

static yk_status check_value(const yk_store *store, const char *what, const char *key, const void *data, size_t size)
{
    if (size > YK_STORE_MAX_VALUE)
        return yk__fail(YK_ERR_ARGUMENT, "%s: key '%s': a value of %zu bytes, at most %d are possible (store %s)", what,
                        key, size, YK_STORE_MAX_VALUE, store->name);
    if (size && !data)
        return yk__fail(YK_ERR_ARGUMENT, "%s: key '%s': a value of %zu bytes at NULL (store %s)", what, key, size,
                        store->name);
    return YK_OK;
}

static yk_status until_of(const yk_store *store, const char *what, double timeout, yk__until *until)
{
    YK__OWN_RECORD;
    if (yk__check_timeout(what, "timeout", timeout, store->timeout, &until->timeout)) {
        yk__error_prefix("store %s", store->name);
        return YK_ERR_ARGUMENT;
    }
    until->deadline = yk__now() + until->timeout;
    return YK_OK;
}

static yk__until until_default(const yk_store *store)
{
    double timeout = store->timeout;
    return (yk__until){yk__now() + timeout, timeout};
}

static void move_value(yk__store_value value, void **data, size_t *size)
{
    if (data)
        *data = value.data;
    else
        free(value.data);
    if (size)
        *size = value.size;
}

/* ---- errors that all kinds share ------------------------------------------------------------------------------- */
yk_status yk__store_key_timeout(const yk_store *store, const char *what, yk__bytes key, const char *event,
                                double timeout)
{
    return yk__fail(YK_ERR_TIMEOUT, "%s: key '%.*s' %s within %g s (store %s)", what, (int)key.size,
                    (const char *)key.data, event, timeout, store->name);
}

yk_status yk__store_wait_timeout(const yk_store *store, const yk__bytes *keys, size_t count, const uint32_t *missing,
                                 size_t missing_count, double timeout)
{
    char list[600];
    size_t used = 0, shown = 0;
    list[0] = 0;
    for (; shown < missing_count && shown < YK__MISSING_SHOWN && used < sizeof(list) / 2; shown++) {
        yk__bytes key = keys[missing[shown]];
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s'%.*s'", shown ? ", " : "",
                                 (int)(key.size < 100 ? key.size : 100), (const char *)key.data);
    }
    return yk__fail(YK_ERR_TIMEOUT, "wait: %zu of %zu keys %s not set within %g s: %s%s (store %s)", missing_count,
                    count, missing_count == 1 ? "was" : "were", timeout, list, shown < missing_count ? ", ..." : "",
                    store->name);
}

yk_status yk__store_add_failed(const yk_store *store, yk__bytes key, const char *why)
{
    return yk__fail(YK_ERR_ARGUMENT, "add: key '%.*s': %s (store %s)", (int)key.size, (const char *)key.data, why,
                    store->name);
}

/* ---- the calls ------------------------------------------------------------------------------------------------- */
yk_status yk_store_set(yk_store *store, const char *key, const void *data, size_t size)
{
    YK__LIVE(store);
    yk_status status = check_key(store, "set", key);
    if (!status)
        status = check_value(store, "set", key, data, size);
    if (status)
        return status;
    return store->table->set(store, yk__text_bytes(key), (yk__bytes){data, size}, until_default(store));
}

yk_status yk_store_get(yk_store *store, const char *key, void **data, size_t *size, double timeout)
{
    YK__LIVE(store);
    yk__until until;
    yk__store_value value = {0};
    if (data)
        *data = NULL;
    yk_status status = check_key(store, "get", key);
    if (!status)
        status = until_of(store, "get", timeout, &until);
    if (!status)
        status = store->table->get(store, yk__text_bytes(key), &value, until);
    if (!status)
        move_value(value, data, size);
    return status;
}

yk_status yk_store_add(yk_store *store, const char *key, int64_t amount, int64_t *sum)
{
    YK__LIVE(store);
    int64_t after = 0;
    yk_status status = check_key(store, "add", key);
    if (!status)
        status = store->table->add(store, yk__text_bytes(key), amount, &after, until_default(store));
    if (!status && sum)
        *sum = after;
    return status;
}

yk_status yk_store_wait(yk_store *store, const char *const *keys, size_t count, double timeout)
{
    YK__LIVE(store);
    yk__until until;
    yk__bytes *list = NULL;
    yk_status status = check_keys(store, "wait", keys, count, &list);
    if (!status)
        status = until_of(store, "wait", timeout, &until);
    if (!status && count)
        status = store->table->wait(store, list, count, until);
    free(list);
    return status;
}

yk_status yk_store_check(yk_store *store, const char *const *keys, size_t count, bool *there)
{
    YK__LIVE(store);
    yk__bytes *list = NULL;
    if (!yk__is_there("check", "answer", there))
        return YK_ERR_ARGUMENT;
    *there = false;
    yk_status status = check_keys(store, "check", keys, count, &list);
    if (!status)
        status = store->table->check(store, list, count, there, until_default(store));
    free(list);
    return status;
}

yk_status yk_store_compare_set(yk_store *store, const char *key, const void *expected, size_t expected_size,
                               const void *desired, size_t desired_size, void **data, size_t *size, bool *swapped)
{
    YK__LIVE(store);
    bool done = false;
    yk__store_value value = {0};
    if (data)
        *data = NULL;
    yk_status status = check_key(store, "compare_set", key);
    if (!status)
        status = check_value(store, "compare_set", key, expected, expected_size);
    if (!status)
        status = check_value(store, "compare_set", key, desired, desired_size);
    yk__bytes old = {expected, expected_size};
    if (!status)
        status = store->table->compare_set(store, yk__text_bytes(key), old, (yk__bytes){desired, desired_size}, &value,
                                           &done, until_default(store));
    if (!status && !value.data)
        status = yk__store_copy(old, &value);
    if (status)
        return status;
    move_value(value, data, size);
    if (swapped)
        *swapped = done;
    return YK_OK;
}

yk_status yk_store_delete(yk_store *store, const char *key, bool *deleted)
{
    YK__LIVE(store);
    bool was_there = false;
    yk_status status = check_key(store, "delete", key);
    if (!status)
        status = store->table->remove(store, yk__text_bytes(key), &was_there, until_default(store));
    if (!status && deleted)
        *deleted = was_there;
    return status;
}

yk_status yk_store_watch(yk_store *store, const char *key, const void *old, size_t old_size, void **data, size_t *size,
                         double timeout)
{
    YK__LIVE(store);
    yk__until until;
    yk__store_value value = {0};
    if (data)
        *data = NULL;
    yk_status status = check_key(store, "watch", key);
    if (!status)
        status = check_value(store, "watch", key, old, old_size);
    if (!status)
        status = until_of(store, "watch", timeout, &until);
    if (!status)
        status = store->table->watch(store, yk__text_bytes(key), (yk__bytes){old, old_size}, &value, until);
    if (!status)
        move_value(value, data, size);
    return status;
}

yk_status yk_store_count(yk_store *store, int64_t *count)
{
    YK__LIVE(store);
    yk_status status = check_store(store, "count");
    if (!status && !yk__is_there("count", "number", count))
        status = YK_ERR_ARGUMENT;
    return status ? status : store->table->count(store, (yk__bytes){0}, count, until_default(store));
}

yk_status yk_store_set_timeout(yk_store *store, double seconds)
{
    YK__LIVE(store);
    yk_status status = check_store(store, "set_timeout");
    if (!status)
        status = yk__check_timeout("set_timeout", "seconds", seconds, 0, &seconds);
    if (!status)
        store->timeout = seconds;
    return status;
}

/* ---- gathering ------------------------------------------------------------------------------------------------- */
/* One key's value, where it is there. */
static yk_status key_look(yk_store *store, yk__bytes key, yk__store_value *value, yk__until until)
{
    bool there = false;
    yk_status status = store->table->check(store, &key, 1, &there, until);
    return status || !there ? status : store->table->get(store, key, value, until);
}

/* Gathers by single requests, for a store in this process or in a file, where a request costs next to nothing. */
static yk_status gather_by_parts(yk_store *store, yk__store_gather *g, double deadline, yk__until patient)
{
    const double slice = 0.05;
    bool swapped = true;
    yk_status status = YK_OK;
    g->sent = true;
    if (g->own.data)
        status = key_look(store, g->stop, &g->stopped, patient);
    if (!status && g->stopped.data) {
        status = key_look(store, g->own, &g->conflict, patient);
        swapped = !g->conflict.data;
    } else if (!status && g->own.data) {
        yk__store_value now = {0};
        status = store->table->compare_set(store, g->own, (yk__bytes){(const unsigned char *)"", 0}, g->value, &now,
                                           &swapped, patient);
        if (!status && !swapped)
            g->conflict = now;
        else
            free(now.data);
    }
    while (!status && swapped && !g->complete && !g->stopped.data) {
        double now = yk__now(), until = now + slice < deadline ? now + slice : deadline;
        status = store->table->wait(store, g->keys, g->count, (yk__until){until, until - now});
        g->complete = !status;
        if (status == YK_ERR_TIMEOUT) {
            yk_clear_error();
            status = key_look(store, g->stop, &g->stopped, patient);
            if (now >= deadline)
                break;
        }
    }
    for (size_t i = 0; i < g->count && !status && swapped; i++)
        status = key_look(store, g->keys[i], &g->values[i], patient);
    return status;
}

yk_status yk__store_gather_run(yk_store *store, yk__store_gather *g, double deadline, double patience)
{
    memset(g->values, 0, g->count * sizeof(*g->values));
    g->stopped = g->conflict = (yk__store_value){0};
    g->complete = g->sent = false;
    if (store->table->gather)
        return store->table->gather(store, g, (yk__until){deadline, patience});
    return gather_by_parts(store, g, deadline, (yk__until){deadline + patience, patience});
}
