/*
 * thread.c - threads of the library's own. Layer: base.
 */
#include <signal.h>

#include "base/thread.h"

int yk__thread_create(pthread_t *thread, void *(*fn)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* a thread begins with the mask of the one that makes it */
    int failed = pthread_create(thread, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}
