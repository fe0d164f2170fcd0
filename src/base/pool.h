/*
 * pool.h - a thread pool from the inside: for pool.c and its test. Layer: base.
 */
#ifndef YOKE_BASE_POOL_H
#define YOKE_BASE_POOL_H

#include <pthread.h>

#include "base/core.h"

struct yk__pool {
    int threads;
    pthread_t *handles;
    atomic_bool busy;

    /* one run */
    yk__range_fn fn;
    void *arg;
    int64_t n, grain;
    int most; /* threads of a higher number have no part in the run */
    _Alignas(64) atomic_llong next;

    /* generation << 32 | YK__POOL_OPEN | workers inside */
    _Alignas(64) atomic_ullong state;
    atomic_int sleepers;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;

    bool forked;              /* the threads are those of the parent process: there are none */
    yk__pool *before, *after; /* in the list */
};
#define YK__POOL_OPEN   ((unsigned long long)1 << 31)
#define YK__POOL_INSIDE (YK__POOL_OPEN - 1)

/* The fault of a pool between runs (base/invariant.h), for the thread that may begin the next one. */
const char *yk__pool_check(const yk__pool *pool);

#endif
