/*
 * device_thread.c - threads that work for devices: they take one job after the other, and sleep between. Layer: device.
 *
 * A forward or backward on several devices needs their threads for some ten microseconds at a time, so a thread that
 * has nothing to do looks for work a short while before it sleeps, and whoever waits for it does likewise; a thread is
 * started only where all of that device's have work.
 *
 * Invariants: a thread is in its device's list of idle ones from before its job is done until it is taken out of the
 * list with the next. `signal` of a thread, and `state` of a job, are words that one thread sleeps on and another
 * wakes.
 */
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"
#include "device/device_thread.h"
#include "device/graph.h"

/* MAX_DEVICES: of one type; no back end has more. SPINS: turns of waiting before a thread sleeps, as in base/pool.c. */
enum { MAX_DEVICES = 64, SPINS = 4000, RUNNING = 0, DONE = 1, AWAITED = 2 };

typedef struct device_thread {
    yk__device_job *_Atomic job;
    atomic_uint signal;
    atomic_bool sleeping, stop;
    yk_device device;
    pthread_t handle;
    struct device_thread *next; /* idle */
} device_thread;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static device_thread *idle[YK__DEVICE_TYPES][MAX_DEVICES];
static atomic_int threads;

void yk__device_sleep(atomic_uint *word, unsigned seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

void yk__device_wake(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void yk__device_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

int yk__device_spins(void)
{
    static atomic_int cores;
    int known = atomic_load_explicit(&cores, memory_order_relaxed);
    if (!known) {
        known = yk__cores();
        atomic_store_explicit(&cores, known, memory_order_relaxed);
    }
    return atomic_load_explicit(&threads, memory_order_relaxed) < known ? SPINS : 0;
}

/* The next job, or NULL when the process ends. */
static yk__device_job *next_job(device_thread *t)
{
    yk__device_job *job;
    for (int spin = yk__device_spins(); spin > 0; spin--) {
        if ((job = atomic_exchange(&t->job, NULL)))
            return job;
        yk__device_pause();
    }
    for (;;) {
        unsigned seen = atomic_load(&t->signal);
        atomic_store(&t->sleeping, true);
        job = atomic_exchange(&t->job, NULL);
        if (!job && !atomic_load(&t->stop))
            yk__device_sleep(&t->signal, seen);
        atomic_store(&t->sleeping, false);
        if (job || atomic_load(&t->stop))
            return job;
    }
}

static void rouse(device_thread *t)
{
    atomic_fetch_add(&t->signal, 1);
    if (atomic_load(&t->sleeping))
        yk__device_wake(&t->signal);
}

static void put_idle(device_thread *t)
{
    pthread_mutex_lock(&lock);
    device_thread **list = &idle[t->device.type][t->device.index];
    t->next = *list;
    *list = t;
    pthread_mutex_unlock(&lock);
}

static void *thread_main(void *argument)
{
    device_thread *t = argument;
    for (yk__device_job *job; (job = next_job(t));) {
        job->fn(job->arg);
        put_idle(t);
        if (atomic_exchange(&job->state, DONE) == AWAITED)
            yk__device_wake(&job->state); /* the job may be gone by now: then the wake finds nobody */
    }
    return NULL;
}

/* No thread but the one that forked is in the child. */
static void after_fork_child(void)
{
    pthread_mutex_init(&lock, NULL);
    for (int type = 0; type < YK__DEVICE_TYPES; type++) {
        for (int index = 0; index < MAX_DEVICES; index++)
            idle[type][index] = NULL;
    }
    atomic_store(&threads, 0);
}

static void at_first(void)
{
    pthread_atfork(NULL, NULL, after_fork_child);
}

static device_thread *start_thread(yk_device device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, at_first);
    device_thread *t = yk__calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->device = device;
    int failed = yk__thread_create_open(&t->handle, thread_main, t);
    if (failed) {
        char name[16];
        yk__fail(YK_ERR_MEMORY, "no thread for %s could be started (errno %d)", yk_device_format(device, name), failed);
        free(t);
        return NULL;
    }
    atomic_fetch_add(&threads, 1);
    return t;
}

yk_status yk__device_job_start(yk__device_job *job, yk_device device, void (*fn)(void *arg), void *arg)
{
    const yk__backend *backend = yk__backend_of(device);
    if (!backend)
        return yk__error_code();
    if (!backend->host_memory &&
        yk__graph_forbid(device, "several threads work for devices", "run DataParallel and pipelines without a graph"))
        return yk__error_code();
    job->fn = fn;
    job->arg = arg;
    atomic_store_explicit(&job->state, RUNNING, memory_order_relaxed);
    pthread_mutex_lock(&lock);
    device_thread **list = &idle[device.type][device.index], *t = *list;
    if (t)
        *list = t->next;
    pthread_mutex_unlock(&lock);
    if (!t)
        t = start_thread(device);
    if (!t)
        return yk__error_code();
    atomic_store(&t->job, job);
    rouse(t);
    return YK_OK;
}

void yk__device_job_wait(yk__device_job *job)
{
    for (int spin = yk__device_spins(); spin > 0; spin--) {
        if (atomic_load_explicit(&job->state, memory_order_acquire) == DONE)
            return;
        yk__device_pause();
    }
    unsigned running = RUNNING;
    atomic_compare_exchange_strong(&job->state, &running, AWAITED);
    while (atomic_load(&job->state) != DONE)
        yk__device_sleep(&job->state, AWAITED);
}

/* Idle threads end with the process, so that nothing of theirs is left; one that is at work is left alone. */
__attribute__((destructor)) static void threads_end(void)
{
    for (int type = 0; type < YK__DEVICE_TYPES; type++) {
        for (int index = 0; index < MAX_DEVICES; index++) {
            pthread_mutex_lock(&lock);
            device_thread *list = idle[type][index];
            idle[type][index] = NULL;
            pthread_mutex_unlock(&lock);
            while (list) {
                device_thread *t = list;
                list = t->next;
                atomic_store(&t->stop, true);
                rouse(t);
                pthread_join(t->handle, NULL);
                free(t);
            }
        }
    }
}
