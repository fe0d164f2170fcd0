/*
 * thread.h - threads of the library's own. Layer: base.
 */
#ifndef YOKE_BASE_THREAD_H
#define YOKE_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create; the thread handles no signals, which are for the program's own threads. */
int yk__thread_create(pthread_t *thread, void *(*fn)(void *arg), void *arg);

#endif
