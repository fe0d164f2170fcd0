/*
 * store_watcher.c - a key of a store is watched by a thread that calls a function. Layer: net.
 *
 * Any kind of store will do: the thread waits in yk_store_watch, a slice at a time, because that cannot be called off.
 * The child of a fork has the watcher and no thread; there nothing is called and nothing waited for.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"
#include "net/store_table.h"

/* Seconds: the longest that stopping a watcher takes. */
static const double slice = 0.5;

struct yk_store_watcher {
    yk__object object;
    yk_store *store;
    char *key;
    yk_store_watch_fn fn;
    void *arg;
    pthread_t thread;
    pid_t pid; /* of the process that has the thread; 0: none */
    atomic_bool stop;
};

static void *watch(void *arg)
{
    yk_store_watcher *w = arg;
    char *old = NULL, *data = NULL;
    size_t old_size = 0, size = 0;
    while (!atomic_load(&w->stop)) {
        yk_status status = yk_store_watch(w->store, w->key, old, old_size, (void **)&data, &size, slice);
        if (status == YK_ERR_TIMEOUT) {
            yk_clear_error();
            continue;
        }
        if (atomic_load(&w->stop)) {
            free(data);
            break;
        }
        w->fn(w->arg, w->key, data, data ? size : 0, status ? yk_last_error() : NULL);
        if (status)
            break;
        free(old);
        old = data;
        old_size = data ? size : 0;
    }
    yk_clear_error();
    free(old);
    return NULL;
}

static void watcher_destroy(void *object)
{
    yk_store_watcher *w = object;
    atomic_store(&w->stop, true);
    if (w->pid == getpid())
        pthread_join(w->thread, NULL);
    yk_store_release(w->store);
    free(w->key);
    yk__object_free(w);
}

static const yk__type watcher_type = {"store watcher", watcher_destroy};

yk_store_watcher *yk_store_watcher_create(yk_store *store, const char *key, yk_store_watch_fn fn, void *arg)
{
    YK__LIVE(store);
    bool there;
    if (!yk__scope_check("store_watcher_create"))
        return NULL;
    if (!fn) {
        yk__fail(YK_ERR_ARGUMENT, "store_watcher_create: there is no function to call");
        return NULL;
    }
    YK__OWN_RECORD;
    if (yk_store_check(store, &key, 1, &there)) { /* a wrong key or store is an error here, not in the thread */
        yk__error_prefix("store_watcher_create");
        return NULL;
    }
    yk_store_watcher *w = yk__object_new(&watcher_type, sizeof(*w));
    if (!w)
        return NULL;
    w->store = yk_store_retain(store);
    w->key = yk__strdup(key);
    w->fn = fn;
    w->arg = arg;
    if (w->key) {
        int failed = yk__thread_create(&w->thread, watch, w);
        if (failed)
            yk__fail(YK_ERR_MEMORY, "store_watcher_create: no thread (errno %d)", failed);
        else
            w->pid = getpid();
    }
    if (w->pid)
        return yk__scope_own(w);
    yk_store_watcher_release(w);
    return NULL;
}

yk_store_watcher *yk_store_watcher_retain(yk_store_watcher *watcher)
{
    return yk_object_retain(watcher);
}

void yk_store_watcher_release(yk_store_watcher *watcher)
{
    yk_object_release(watcher);
}
