/*
 * yoke/store.h - key-value stores, through which the processes of a job find one another.
 *
 * Layer: net. A store maps names to bytes; a value that one rank sets can be read by every rank. There are three kinds
 * with one set of functions: in this process (ranks as threads), in a file on a shared file system, and in a server
 * reached by TCP. The semantics are those of PyTorch's torch.distributed.Store. docs/stores.md tells the kinds apart
 * and gives the protocol.
 *
 * Any number of threads may use one store at once; a call that waits does not keep others waiting. After fork the child
 * may go on with its copy of a TCP or file store (the hash store is then its own); fork while no other thread is in a
 * call on it. Every call ends within its time-out; errors name the store, the key and the reason: YK_ERR_TIMEOUT when
 * something did not happen in time, YK_ERR_CONNECTION when the server cannot be reached, refuses or is gone.
 */
#ifndef YOKE_STORE_H
#define YOKE_STORE_H

#include <yoke/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yk_store yk_store;

#define YK_STORE_MAX_KEY   1024       /* bytes of a key, at least 1 */
#define YK_STORE_MAX_VALUE (16 << 20) /* bytes of a value, at least 0 */

/* ---- making one: owned by the thread's current scope, NULL and an error on failure --------------------------- */
/* A store in this process, for ranks that are threads. Source: torch.distributed.HashStore. */
YK_API yk_store *yk_hash_store(void);

/*
 * A store in the file `path`, made if it is not there, for processes that see one file system with working fcntl locks.
 * The file is an append-only log and stays when the store is released: a new job needs a new path, or removes the file
 * first. Source: torch.distributed.FileStore.
 */
YK_API yk_store *yk_file_store(const char *path);

typedef struct yk_tcp_store_options {
    /* The server's name or address, IPv6 with or without brackets. For a server: the name or address of this host to
     * listen on, this one interface only; NULL: the interface that routes to `peer`, or 127.0.0.1 where that is NULL
     * too. yk_store_name tells the interface. This host's own name that stands for 127.0.1.1 in its /etc/hosts, where
     * there is a secret: all interfaces. */
    const char *host YK_DEFAULT(NULL);
    const char *peer YK_DEFAULT(NULL);
    int port YK_DEFAULT(0); /* 1 to 65535; for a server 0 takes a free one, which yk_store_port tells */
    /* Serves from a thread of its own until the store is released, and is a client of itself. */
    bool is_server YK_DEFAULT(false);
    /* The secret of the job, which all its processes know and nobody else. NULL: from the file that
     * YOKE_JOB_SECRET_FILE names, or the descriptor whose number YOKE_JOB_SECRET_FD is; where neither is set, the empty
     * secret, which is taken on loopback addresses only. */
    const void *secret YK_DEFAULT(NULL);
    size_t secret_size YK_DEFAULT(0);
    const char *job_id YK_DEFAULT(NULL);    /* NULL: $YOKE_JOB_ID, or "default"; at most 127 bytes */
    double timeout YK_DEFAULT(60);          /* seconds for joining, and for calls that are given none */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_tcp_store_options;
#define yk_tcp_store_options_DEFAULTS .yk__mark = YK__MARK, .timeout = 60

/*
 * A client, or server and client. A client tries again until the time-out while the name does not resolve or the
 * server is not there yet; wrong secret, wrong job and wrong version fail at once. A port in use is an error that
 * names the process that has it, where it may be seen. Source: torch.distributed.TCPStore.
 */
YK_API yk_store *yk_tcp_store(const yk_tcp_store_options *options);

/* The same store with "PREFIX/" in front of every key; count counts keys with the prefix. Keeps `base` alive.
 * Source: torch.distributed.PrefixStore. */
YK_API yk_store *yk_prefix_store(const char *prefix, yk_store *base);

/* One reference more, for a holder beyond the scope; one less. NULL is passed over. */
YK_API yk_store *yk_store_retain(yk_store *store);
YK_API void yk_store_release(yk_store *store);

/* ---- using it: `timeout` is in seconds, above 0; YK_NOT_GIVEN is the store's own ------------------------------- */
/* Gives the key this value, new or not. `data` may be NULL when size is 0. */
YK_API yk_status yk_store_set(yk_store *store, const char *key, const void *data, size_t size) YK_MUST_CHECK;

/* Waits until the key is there and copies its value to new memory, which the caller frees; one NUL byte follows the
 * `size` bytes. `size` may be NULL. On failure *data is NULL. */
YK_API yk_status yk_store_get(yk_store *store, const char *key, void **data, size_t *size,
                              double timeout) YK_MUST_CHECK;

/* Adds `amount` to the decimal number that the key holds (0 where it is not there), atomically, and gives the sum;
 * `sum` may be NULL. A value that is no 64-bit integer, or a sum that is none, is an error and changes nothing. */
YK_API yk_status yk_store_add(yk_store *store, const char *key, int64_t amount, int64_t *sum) YK_MUST_CHECK;

/* Waits until all `count` keys are there; the error names those that are missing. */
YK_API yk_status yk_store_wait(yk_store *store, const char *const *keys, size_t count, double timeout) YK_MUST_CHECK;

/* Sets *there to true if all `count` keys are there now, else to false. */
YK_API yk_status yk_store_check(yk_store *store, const char *const *keys, size_t count, bool *there) YK_MUST_CHECK;

/*
 * Gives the key the value `desired` if it holds `expected`, or if it is not there and `expected` is empty; otherwise
 * changes nothing. *data (the caller frees; a NUL byte follows it) is the value that the key holds afterwards, or a
 * copy of `expected` where it is not there. `swapped` may be NULL.
 */
YK_API yk_status yk_store_compare_set(yk_store *store, const char *key, const void *expected, size_t expected_size,
                                      const void *desired, size_t desired_size, void **data, size_t *size,
                                      bool *swapped) YK_MUST_CHECK;

/* Removes the key; `deleted` (may be NULL) tells whether it was there. */
YK_API yk_status yk_store_delete(yk_store *store, const char *key, bool *deleted) YK_MUST_CHECK;

/*
 * Waits until the key has another value than `old` (NULL: until it is there), and gives its value then like get does;
 * *data is NULL where the key was deleted. Changes that are undone before anyone looks are not seen. Called in a loop
 * with the last value, it watches a key.
 */
YK_API yk_status yk_store_watch(yk_store *store, const char *key, const void *old, size_t old_size, void **data,
                                size_t *size, double timeout) YK_MUST_CHECK;

/*
 * The same as calls of a function of yours, from a thread of the watcher's own: at once with the value that the key
 * holds, if it is there, then after every change that lasts long enough to be seen. A NUL byte follows the `size` bytes
 * of `data`, which is valid during the call; it is NULL where the key was deleted. With an error (the store is gone) it
 * is NULL as well, and that was the last call. Watching needs a request every half second. Source: watchKey of older
 * PyTorch.
 */
typedef void (*yk_store_watch_fn)(void *arg, const char *key, const void *data, size_t size, const yk_error *error);
typedef struct yk_store_watcher yk_store_watcher;
/* Owned by the thread's current scope; keeps the store alive. */
YK_API yk_store_watcher *yk_store_watcher_create(yk_store *store, const char *key, yk_store_watch_fn fn, void *arg);
/* With the last reference the watching ends: release returns within half a second, after a call that is going on, and
 * none begins later. It may not be called from `fn`. NULL is passed over. */
YK_API yk_store_watcher *yk_store_watcher_retain(yk_store_watcher *watcher);
YK_API void yk_store_watcher_release(yk_store_watcher *watcher);

/* Number of keys. Source: Store.num_keys. */
YK_API yk_status yk_store_count(yk_store *store, int64_t *count) YK_MUST_CHECK;

/* The time-out of calls that are given none: 60 s at first. Fails unless 0 < seconds. Source: Store.set_timeout. */
YK_API yk_status yk_store_set_timeout(yk_store *store, double seconds) YK_MUST_CHECK;

/* "tcp://127.0.0.1:29500", "file:///path", "hash", followed by "/PREFIX" for prefix stores; valid while the store
 * lives. */
YK_API const char *yk_store_name(const yk_store *store) YK_QUESTION;

/* The port of a TCP store, 0 for other kinds. */
YK_API int yk_store_port(const yk_store *store) YK_QUESTION;

#ifdef __cplusplus
}
#endif
#endif
