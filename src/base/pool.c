/*
 * pool.c - threads that share ranges of work with their caller. Layer: base.
 *
 * A run publishes (fn, arg, n, grain) and opens the pool under a new generation number; every thread, the caller too,
 * takes pieces off one atomic counter until none is left. A worker enters a run only while it is open; when the caller
 * finds no more pieces it closes the run and waits for those that entered, so a worker that the system has not woken
 * yet, on a machine with more to do than cores, costs nothing. Idle workers spin a short while, because kernels follow
 * one another within microseconds, then sleep on a condition variable, because they must not burn the cores.
 */
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/invariant.h"
#include "base/pool.h"
#include "base/thread.h"

/* Turns of waiting before a thread sleeps: 30 to 150 us, longer than what comes between two kernels of a step, and not
 * much longer than a sleep and waking from it take. */
enum { SPINS = 4000 };

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static yk__pool *list;

typedef struct worker_start {
    yk__pool *pool;
    int thread;
} worker_start;

/* Set while a thread works on a piece: nested runs stay on it. */
static _Thread_local bool inside;

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void run_pieces(yk__pool *pool, int thread)
{
    inside = true;
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&pool->next, pool->grain, memory_order_relaxed);
        if (begin >= pool->n)
            break;
        int64_t end = pool->n - begin < pool->grain ? pool->n : begin + pool->grain;
        pool->fn(pool->arg, begin, end, thread);
    }
    inside = false;
}

/* Waits for another generation than `seen` and gives it. */
static unsigned next_generation(yk__pool *pool, unsigned seen)
{
    unsigned now = (unsigned)(atomic_load_explicit(&pool->state, memory_order_acquire) >> 32);
    for (int spin = 0; now == seen && spin < SPINS; spin++) {
        cpu_relax();
        now = (unsigned)(atomic_load_explicit(&pool->state, memory_order_acquire) >> 32);
    }
    if (now != seen)
        return now;
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while ((now = (unsigned)(atomic_load(&pool->state) >> 32)) == seen)
        pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
    return now;
}

static bool enter(yk__pool *pool, unsigned generation)
{
    unsigned long long state = atomic_load_explicit(&pool->state, memory_order_acquire);
    while ((unsigned)(state >> 32) == generation && (state & YK__POOL_OPEN)) {
        if (atomic_compare_exchange_weak_explicit(&pool->state, &state, state + 1, memory_order_acq_rel,
                                                  memory_order_acquire))
            return true;
    }
    return false;
}

static void leave(yk__pool *pool)
{
    unsigned long long before = atomic_fetch_sub_explicit(&pool->state, 1, memory_order_acq_rel);
    if ((before & YK__POOL_INSIDE) == 1 && !(before & YK__POOL_OPEN)) { /* the caller may be waiting for the last one */
        pthread_mutex_lock(&pool->lock);
        pthread_cond_signal(&pool->done);
        pthread_mutex_unlock(&pool->lock);
    }
}

static void *worker(void *argument)
{
    worker_start start = *(worker_start *)argument;
    free(argument);
    yk__pool *pool = start.pool;
    unsigned seen = 0;
    for (;;) {
        seen = next_generation(pool, seen);
        if (atomic_load(&pool->stop))
            return NULL;
        if (!enter(pool, seen))
            continue;
        if (start.thread < pool->most)
            run_pieces(pool, start.thread);
        leave(pool);
    }
}

/* Opens a run of the next generation; nobody is inside. */
static void publish(yk__pool *pool)
{
    unsigned long long generation = (atomic_load_explicit(&pool->state, memory_order_relaxed) >> 32) + 1;
    atomic_store(&pool->state, generation << 32 | YK__POOL_OPEN);
    if (atomic_load(&pool->sleepers)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
}

/* Lets nobody in any more and waits for those inside. */
static void close_run(yk__pool *pool)
{
    unsigned long long state = atomic_fetch_and(&pool->state, ~YK__POOL_OPEN) & ~YK__POOL_OPEN;
    for (int spin = 0; (state & YK__POOL_INSIDE) && spin < SPINS; spin++) {
        cpu_relax();
        state = atomic_load_explicit(&pool->state, memory_order_acquire);
    }
    if (!(state & YK__POOL_INSIDE))
        return;
    pthread_mutex_lock(&pool->lock);
    while (atomic_load(&pool->state) & YK__POOL_INSIDE)
        pthread_cond_wait(&pool->done, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

/* For the thread whose run is over, and before it lets another one begin. */
static const char *check_run(const yk__pool *pool)
{
    unsigned long long state = atomic_load(&pool->state);
    int sleepers = atomic_load(&pool->sleepers);
    if (pool->threads < 1 || !pool->handles)
        return yk__broken("the pool has %d threads and %s handles", pool->threads, pool->handles ? "their" : "no");
    if (state & (YK__POOL_OPEN | YK__POOL_INSIDE))
        return yk__broken("no run is under way, and the pool is %s with %llu workers inside",
                          state & YK__POOL_OPEN ? "open" : "closed", state & YK__POOL_INSIDE);
    if (sleepers < 0 || sleepers >= pool->threads)
        return yk__broken("%d of %d threads sleep, and the caller does not", sleepers, pool->threads);
    if (atomic_load(&pool->next) < pool->n)
        return yk__broken("the run is over, and of %lld elements only %lld were begun", (long long)pool->n,
                          (long long)atomic_load(&pool->next));
    return NULL;
}

const char *yk__pool_check(const yk__pool *pool)
{
    const char *wrong = check_run(pool);
    pthread_mutex_lock(&list_lock);
    bool listed = false;
    for (const yk__pool *other = list; other && !wrong; other = other->after) {
        listed |= other == pool;
        if (other->after ? other->after->before != other : other->before && other->before->after != other)
            wrong =
                yk__broken("a pool of %d threads has a neighbour in the list of pools that does not lead back to it",
                           other->threads);
    }
    pthread_mutex_unlock(&list_lock);
    return wrong || listed ? wrong : yk__broken("the pool is not in the list of pools");
}

/* ---- forks ------------------------------------------------------------------------------------------------------ */
static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (yk__pool *pool = list; pool; pool = pool->after)
        pthread_mutex_lock(&pool->lock);
}

static void after_fork(void)
{
    for (yk__pool *pool = list; pool; pool = pool->after)
        pthread_mutex_unlock(&pool->lock);
    pthread_mutex_unlock(&list_lock);
}

static void primitives_init(yk__pool *pool)
{
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->done, NULL);
}

static void after_fork_child(void)
{
    for (yk__pool *pool = list; pool; pool = pool->after) {
        primitives_init(pool);
        atomic_store(&pool->state, 0);
        atomic_store(&pool->sleepers, 0);
        atomic_store(&pool->busy, false);
        pool->forked = true;
    }
    inside = false;
    pthread_mutex_unlock(&list_lock);
}

static void list_start(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_child);
}

static void list_add(yk__pool *pool)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_start);
    pthread_mutex_lock(&list_lock);
    pool->after = list;
    if (list)
        list->before = pool;
    list = pool;
    pthread_mutex_unlock(&list_lock);
}

static void list_remove(yk__pool *pool)
{
    pthread_mutex_lock(&list_lock);
    *(pool->before ? &pool->before->after : &list) = pool->after;
    if (pool->after)
        pool->after->before = pool->before;
    pthread_mutex_unlock(&list_lock);
}

/* ---- life ------------------------------------------------------------------------------------------------------- */
/* Starts threads 1 to wanted - 1; pool->threads says how many there are then. */
static bool start_threads(yk__pool *pool, int wanted)
{
    pool->threads = 1;
    for (int i = 1; i < wanted; i++) {
        worker_start *start = yk__calloc(1, sizeof(*start));
        if (!start)
            return false;
        *start = (worker_start){pool, i};
        int failed = yk__thread_create_open(&pool->handles[i], worker, start);
        if (failed) {
            free(start);
            yk__fail(YK_ERR_MEMORY, "thread pool: thread %d of %d could not be started (errno %d)", i + 1, wanted,
                     failed);
            return false;
        }
        pool->threads = i + 1;
    }
    return true;
}

yk__pool *yk__pool_create(int threads)
{
    yk__pool *pool = NULL;
    if (posix_memalign((void **)&pool, 64, sizeof(*pool))) {
        yk__fail_memory(sizeof(*pool));
        return NULL;
    }
    *pool = (yk__pool){.threads = 1};
    primitives_init(pool);
    list_add(pool);
    pool->handles = yk__calloc((size_t)threads, sizeof(*pool->handles));
    if (!pool->handles || !start_threads(pool, threads)) {
        yk__pool_destroy(pool);
        return NULL;
    }
    return pool;
}

void yk__pool_destroy(yk__pool *pool)
{
    if (!pool)
        return;
    list_remove(pool);
    atomic_store(&pool->stop, true);
    publish(pool);
    for (int i = 1; i < pool->threads && !pool->forked; i++)
        pthread_join(pool->handles[i], NULL);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->wake);
    pthread_cond_destroy(&pool->done);
    free(pool->handles);
    free(pool);
}

/* The first run in the child of a fork: fewer threads than the parent had do as well. */
static void restart(yk__pool *pool)
{
    yk_error before;
    yk__error_take(&before);
    pool->forked = false;
    if (!start_threads(pool, pool->threads))
        yk_clear_error();
    yk__error_put(&before);
}

int yk__pool_threads(const yk__pool *pool)
{
    return pool->threads;
}

void yk__pool_run_among(yk__pool *pool, int most, int64_t n, int64_t grain, yk__range_fn fn, void *arg)
{
    if (n <= 0)
        return;
    if (grain < 1)
        grain = 1;
    if (pool->threads == 1 || most == 1 || n <= grain || inside ||
        atomic_exchange_explicit(&pool->busy, true, memory_order_acquire)) {
        for (int64_t begin = 0; begin < n; begin += grain)
            fn(arg, begin, n - begin < grain ? n : begin + grain, 0);
        return;
    }
    if (pool->forked)
        restart(pool);
    pool->fn = fn;
    pool->arg = arg;
    pool->n = n;
    pool->grain = grain;
    pool->most = most;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    publish(pool);
    run_pieces(pool, 0);
    close_run(pool);
    YK__ASSERT_SOUND(check_run(pool));
    atomic_store_explicit(&pool->busy, false, memory_order_release);
}

void yk__pool_run(yk__pool *pool, int64_t n, int64_t grain, yk__range_fn fn, void *arg)
{
    yk__pool_run_among(pool, INT_MAX, n, grain, fn, arg);
}

bool yk__pool_inside(void)
{
    return inside;
}

int yk__cores(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? count : 1;
}
