/*
 * thread.h - threads of the library's own. Layer: base.
 */
#ifndef YOKE_BASE_THREAD_H
#define YOKE_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* As pthread_create; the thread handles no signals, which are for the program's own threads, and has a stack of 1 MiB
 * at least, however little `ulimit -s` says. */
int yk__thread_create(pthread_t *thread, void *(*fn)(void *arg), void *arg);
/* The same for a thread that handles the signals that its maker does. */
int yk__thread_create_open(pthread_t *thread, void *(*fn)(void *arg), void *arg);

/* A condition whose waits end by the clock of yk__now. */
void yk__condition_init(pthread_cond_t *condition);
/* With the lock held, waits for such a condition until `deadline`, a time of yk__now; false when that has passed. */
bool yk__condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, double deadline);

#endif
