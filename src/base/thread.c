/*
 * thread.c - threads of the library's own. Layer: base.
 */
#include <signal.h>
#include <time.h>

#include "base/thread.h"

/* Bytes of stack that a thread has at least: the C library gives what `ulimit -s` says, which may be too little. */
enum { LEAST_STACK = 1 << 20 };

int yk__thread_create_open(pthread_t *thread, void *(*fn)(void *arg), void *arg)
{
    pthread_attr_t attributes;
    size_t size = 0;
    int failed = pthread_attr_init(&attributes);
    if (failed)
        return failed;
    if (pthread_attr_getstacksize(&attributes, &size) == 0 && size < LEAST_STACK)
        pthread_attr_setstacksize(&attributes, LEAST_STACK);
    failed = pthread_create(thread, &attributes, fn, arg);
    pthread_attr_destroy(&attributes);
    return failed;
}

int yk__thread_create(pthread_t *thread, void *(*fn)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a thread begins with the mask of the one that makes it */
    int failed = yk__thread_create_open(thread, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

void yk__condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool yk__condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, double deadline)
{
    double limit = deadline < 1e9 ? deadline : 1e9;
    struct timespec until = {.tv_sec = (time_t)limit};
    until.tv_nsec = (long)((limit - (double)until.tv_sec) * 1e9);
    return pthread_cond_timedwait(condition, lock, &until) == 0;
}
