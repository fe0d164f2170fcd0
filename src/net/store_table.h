/*
 * store_table.h - the functions that each kind of store fills in. Layer: net.
 *
 * The front (store.c) has checked the arguments: keys are 1 to YK_STORE_MAX_KEY bytes, values within their limit,
 * `deadline` is a time of yk__now and `timeout` the seconds it was made of, for messages. Any thread may call any slot
 * at any time; a slot that waits keeps no lock that others need. On failure the record is set and outputs are as they
 * were. Values given out are yk__store_copy's.
 */
#ifndef YOKE_NET_STORE_TABLE_H
#define YOKE_NET_STORE_TABLE_H

#include <yoke/store.h>

#include "net/keyspace.h"

typedef struct yk__store_value {
    void *data; /* NULL: not there */
    size_t size;
} yk__store_value;

enum { YK__STORE_TIMEOUT = 60 /* s: what is given none waits; a launcher's ranks start within it on a slow machine */ };
typedef struct yk__until {
    double deadline, timeout;
} yk__until;

/*
 * Several requests as one, for ranks that join: sets `own` to `value` where neither it nor `stop` is there (own.data
 * NULL: sets nothing), then waits until all `count` keys are there, or `stop` is.
 */
typedef struct yk__store_gather {
    yk__bytes own, value, stop;
    const yk__bytes *keys;
    size_t count; /* at least 1 */
    /* From here on set by the call; the caller frees the data of all, which is NULL where a key is not there. */
    yk__store_value *values;           /* `count` of them, the caller's memory */
    yk__store_value stopped, conflict; /* the values of stop, and of `own` before */
    bool complete;                     /* all keys are there; with none of the three the time is over */
    bool sent;                         /* it may have been done, also where the call fails */
} yk__store_gather;

typedef struct yk__store_table {
    yk_status (*set)(yk_store *store, yk__bytes key, yk__bytes value, yk__until until);
    yk_status (*get)(yk_store *store, yk__bytes key, yk__store_value *value, yk__until until);
    yk_status (*add)(yk_store *store, yk__bytes key, int64_t amount, int64_t *sum, yk__until until);
    yk_status (*wait)(yk_store *store, const yk__bytes *keys, size_t count, yk__until until);
    yk_status (*check)(yk_store *store, const yk__bytes *keys, size_t count, bool *there, yk__until until);
    /* value->data is NULL afterwards where the key is not there */
    yk_status (*compare_set)(yk_store *store, yk__bytes key, yk__bytes expected, yk__bytes desired,
                             yk__store_value *value, bool *swapped, yk__until until);
    yk_status (*remove)(yk_store *store, yk__bytes key, bool *deleted, yk__until until);
    yk_status (*watch)(yk_store *store, yk__bytes key, yk__bytes old, yk__store_value *value, yk__until until);
    yk_status (*count)(yk_store *store, yk__bytes prefix, int64_t *count, yk__until until);
    /* One request, and one reply. NULL where the keys are as near as this process: then it is made of the others.
     * until.timeout is how long the server has to answer. */
    yk_status (*gather)(yk_store *store, yk__store_gather *gather, yk__until until);
    void (*destroy)(yk_store *store); /* frees what the kind holds; the front frees the rest */
} yk__store_table;

/* First member of every kind's struct. */
struct yk_store {
    yk__object object;
    const yk__store_table *table;
    char *name;
    int port;
    _Atomic double timeout;
};

/* Gathers until the deadline, a time of yk__now; a server that does not answer is given `patience` seconds beyond
 * it. */
yk_status yk__store_gather_run(yk_store *store, yk__store_gather *gather, double deadline, double patience);
/* A client that connects with its first request, which follows its proof: a round trip less, and the caller can do
 * something else before. An error of connecting is that of the request, with `blame` (static text) in front, and of all
 * that follow. */
yk_store *yk__tcp_store_later(const yk_tcp_store_options *options, const char *blame);
/* The same of a store that is for something else than "store" (service of net/handshake.h). */
yk_store *yk__tcp_store_of_service(const char *service, const yk_tcp_store_options *options, const char *blame);
/* A client whose store may move: the key of another store, the guide, holds the "HOST:PORT" where it is by then, once
 * it has moved. What has no answer is asked again, there or where it was, for as long as the store's time-out, but an
 * addition that may have been made. For a client that has made no call so far. */
#define YK__GUIDE_KEY "keeper"
void yk__tcp_store_guide(yk_store *store, yk_store *guide);
/* Makes a store of `size` bytes, the kind's struct, with a name of its own; the caller frees it by yk_store_release. */
yk_store *yk__store_new(const yk__store_table *table, size_t size, const char *name);
/* A copy, followed by a NUL byte; fails without memory. */
yk_status yk__store_copy(yk__bytes from, yk__store_value *to);
/* The errors that all kinds share. `missing` are the first of `missing_count` positions in keys. */
yk_status yk__store_key_timeout(const yk_store *store, const char *what, yk__bytes key, const char *event,
                                double timeout);
/* Keys that an error message lists; any number. */
enum { YK__MISSING_SHOWN = 8 };
yk_status yk__store_wait_timeout(const yk_store *store, const yk__bytes *keys, size_t count, const uint32_t *missing,
                                 size_t missing_count, double timeout);
yk_status yk__store_add_failed(const yk_store *store, yk__bytes key, const char *why);

#endif
