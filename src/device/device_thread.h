/*
 * device_thread.h - threads that work for devices, and live as long as the process. Layer: device.
 */
#ifndef YOKE_DEVICE_DEVICE_THREAD_H
#define YOKE_DEVICE_DEVICE_THREAD_H

#include "device/table.h"

/* Work that another thread does, from start to wait. The memory is the caller's. */
typedef struct yk__device_job {
    void (*fn)(void *arg);
    void *arg;
    atomic_uint state;
} yk__device_job;

/* Has fn(arg) called by a thread of the device that is idle, or by a new one where none is: work that waits for other
 * work of the same device never waits for its thread. fn leaves no error record. Fails without a thread. */
yk_status yk__device_job_start(yk__device_job *job, yk_device device, void (*fn)(void *arg), void *arg);
/* Returns when fn has. The caller sees what fn wrote. */
void yk__device_job_wait(yk__device_job *job);
/* The number of times that a thread looks again before it sleeps: none where more threads work for devices than there
 * are cores. */
int yk__device_spins(void);
/* Sleeps until woken, or for no reason; not at all where the word is no longer `seen`. Wakes one who sleeps on it. */
void yk__device_sleep(atomic_uint *word, unsigned seen);
void yk__device_wake(atomic_uint *word);
/* A pause of a thread that looks again and again. */
void yk__device_pause(void);

#endif
