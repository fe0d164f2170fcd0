/*
 * hash_store.c - the store of one process, for ranks that are threads. Layer: net.
 *
 * Invariant: the lock is held for the time of one operation on the keyspace; a thread waits on a condition of its own,
 * so that a change wakes those alone whose wait it ends.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/thread.h"
#include "net/store_table.h"

typedef struct hash_store {
    yk_store store;
    pthread_mutex_t lock;
    yk__keyspace space;
} hash_store;

typedef struct sleeper {
    yk__waiter waiter;
    pthread_cond_t woken;
    bool ready;
} sleeper;

static void wake(yk__waiter *waiter)
{
    sleeper *s = waiter->user;
    s->ready = true;
    pthread_cond_signal(&s->woken);
}

/* With the lock held, sleeps until what is waited for is so at the moment of return (true), or the deadline came. */
static bool sleep_until(hash_store *hash, yk__waiter wanted, double deadline, yk_status *status)
{
    sleeper s = {.waiter = wanted};
    s.waiter.ready = wake;
    s.waiter.user = &s;
    yk__condition_init(&s.woken);
    bool met;
    while (!(met = yk__keyspace_wait(&hash->space, &s.waiter, status)) && !*status) {
        s.ready = false;
        while (!s.ready && yk__condition_wait(&s.woken, &hash->lock, deadline))
            ;
        if (!s.ready) {
            yk__keyspace_cancel(&hash->space, &s.waiter);
            break;
        }
    }
    pthread_cond_destroy(&s.woken);
    return met;
}

static hash_store *lock(yk_store *store)
{
    hash_store *hash = (hash_store *)store;
    pthread_mutex_lock(&hash->lock);
    return hash;
}

static yk_status hash_set(yk_store *store, yk__bytes key, yk__bytes value, yk__until until)
{
    (void)until;
    hash_store *hash = lock(store);
    yk_status status = yk__keyspace_set(&hash->space, key, value);
    pthread_mutex_unlock(&hash->lock);
    return status;
}

static yk_status hash_get(yk_store *store, yk__bytes key, yk__store_value *value, yk__until until)
{
    hash_store *hash = lock(store);
    yk_status status;
    if (sleep_until(hash, (yk__waiter){.keys = &key, .count = 1}, until.deadline, &status))
        status = yk__store_copy(*yk__keyspace_get(&hash->space, key), value);
    else if (!status)
        status = yk__store_key_timeout(store, "get", key, "was not set", until.timeout);
    pthread_mutex_unlock(&hash->lock);
    return status;
}

static yk_status hash_add(yk_store *store, yk__bytes key, int64_t amount, int64_t *sum, yk__until until)
{
    (void)until;
    char why[YK__ADD_WHY];
    hash_store *hash = lock(store);
    yk_status status = yk__keyspace_add(&hash->space, key, amount, sum, why);
    pthread_mutex_unlock(&hash->lock);
    return status == YK_ERR_ARGUMENT ? yk__store_add_failed(store, key, why) : status;
}

static yk_status hash_wait(yk_store *store, const yk__bytes *keys, size_t count, yk__until until)
{
    hash_store *hash = lock(store);
    yk_status status;
    if (!sleep_until(hash, (yk__waiter){.keys = keys, .count = count}, until.deadline, &status) && !status) {
        uint32_t missing[YK__MISSING_SHOWN];
        size_t missing_count = 0;
        for (size_t i = 0; i < count; i++) {
            if (yk__keyspace_get(&hash->space, keys[i]))
                continue;
            if (missing_count < YK__MISSING_SHOWN)
                missing[missing_count] = (uint32_t)i;
            missing_count++;
        }
        if (missing_count) /* else the last came while time ran out */
            status = yk__store_wait_timeout(store, keys, count, missing, missing_count, until.timeout);
    }
    pthread_mutex_unlock(&hash->lock);
    return status;
}

static yk_status hash_check(yk_store *store, const yk__bytes *keys, size_t count, bool *there, yk__until until)
{
    (void)until;
    hash_store *hash = lock(store);
    size_t found = 0;
    while (found < count && yk__keyspace_get(&hash->space, keys[found]))
        found++;
    *there = found == count;
    pthread_mutex_unlock(&hash->lock);
    return YK_OK;
}

static yk_status hash_compare_set(yk_store *store, yk__bytes key, yk__bytes expected, yk__bytes desired,
                                  yk__store_value *value, bool *swapped, yk__until until)
{
    (void)until;
    hash_store *hash = lock(store);
    yk_status status = yk__keyspace_compare_set(&hash->space, key, expected, desired, swapped);
    const yk__bytes *now = yk__keyspace_get(&hash->space, key);
    if (!status && now)
        status = yk__store_copy(*now, value);
    pthread_mutex_unlock(&hash->lock);
    return status;
}

static yk_status hash_remove(yk_store *store, yk__bytes key, bool *deleted, yk__until until)
{
    (void)until;
    hash_store *hash = lock(store);
    *deleted = yk__keyspace_delete(&hash->space, key);
    pthread_mutex_unlock(&hash->lock);
    return YK_OK;
}

static yk_status hash_watch(yk_store *store, yk__bytes key, yk__bytes old, yk__store_value *value, yk__until until)
{
    hash_store *hash = lock(store);
    yk_status status;
    yk__waiter wanted = {.keys = &key, .count = 1, .watches = true, .old = old};
    bool changed = sleep_until(hash, wanted, until.deadline, &status);
    if (changed) {
        const yk__bytes *now = yk__keyspace_get(&hash->space, key);
        if (now)
            status = yk__store_copy(*now, value);
    } else if (!status) {
        status = yk__store_key_timeout(store, "watch", key, "did not change", until.timeout);
    }
    pthread_mutex_unlock(&hash->lock);
    return status;
}

static yk_status hash_count(yk_store *store, yk__bytes prefix, int64_t *count, yk__until until)
{
    (void)until;
    hash_store *hash = lock(store);
    *count = yk__keyspace_count(&hash->space, prefix);
    pthread_mutex_unlock(&hash->lock);
    return YK_OK;
}

static void hash_destroy(yk_store *store)
{
    hash_store *hash = (hash_store *)store;
    yk__keyspace_clear(&hash->space);
    pthread_mutex_destroy(&hash->lock);
}

static const yk__store_table hash_table = {
    .set = hash_set,
    .get = hash_get,
    .add = hash_add,
    .wait = hash_wait,
    .check = hash_check,
    .compare_set = hash_compare_set,
    .remove = hash_remove,
    .watch = hash_watch,
    .count = hash_count,
    .destroy = hash_destroy,
};

yk_store *yk_hash_store(void)
{
    if (!yk__scope_check("hash_store"))
        return NULL;
    yk_store *store = yk__store_new(&hash_table, sizeof(hash_store), "hash");
    if (!store)
        return NULL;
    pthread_mutex_init(&((hash_store *)store)->lock, NULL);
    return yk__scope_own(store);
}
