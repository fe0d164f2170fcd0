/*
 * cpu_backend.c - the CPU as one or several logical devices: memory, threads, and the choice of an instruction set.
 * Layer: device/cpu. Compiled once, unlike the other files here.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/isa.h"
#include "device/backend.h"
#include "device/cpu/cpu.h"

#define DECLARE_FILL(isa, A) void yk__cpu_fill_##isa(yk__backend *table);
YK__ISAS(DECLARE_FILL, )
#define FILL_OF_SET(isa, A) [YK__LEVEL_##isa] = yk__cpu_fill_##isa,
static void (*const fill_of_set[YK__LEVELS])(yk__backend *table) = {YK__ISAS(FILL_OF_SET, )};

/* Any numbers: bounds of tables and of YOKE_CPU_DEVICES and OMP_NUM_THREADS. */
enum { MAX_CPU_DEVICES = 64, MAX_THREADS = 1024 };
/* The bytes of a huge page: of x86-64, and of AArch64 with pages of 4 KiB. */
static const size_t huge_page = (size_t)2 << 20;

/*
 * Note [The number of threads]
 * yk_set_num_threads may come while other threads compute. A pool that goes is destroyed when nobody runs in it:
 * whoever runs is counted, under the low bit of the device's generation, and set_threads starts a new generation and
 * waits for the count of the old one. A kernel that has asked for the number of threads (yk__cpu_threads), to give each
 * its scratch memory, is not shared among more until it asks again: the number that the calling thread got last, and
 * its generation, are its own. Where it does not ask, the first run of a new generation on another thread than the one
 * that set the number may have fewer threads than there are; results do not depend on it.
 */
static struct {
    int count; /* logical devices */
    struct {
        pthread_mutex_t lock;
        yk__pool *_Atomic pool;
        atomic_int threads;
        atomic_uint generation;
        atomic_int running[2];  /* by the low bit of the generation */
        pthread_mutex_t change; /* one set_threads at a time */
    } devices[MAX_CPU_DEVICES];
} cpu;

/* The number of threads that this thread last got; 0 for none. */
static _Thread_local struct {
    int threads;
    unsigned generation;
} reported[MAX_CPU_DEVICES];

static int device_count(void)
{
    return cpu.count;
}

static yk_status allocate(int device, size_t bytes, void **memory)
{
    (void)device;
    if (posix_memalign(memory, 64, bytes))
        return yk__fail_memory(bytes);
    return YK_OK;
}

static void release(int device, void *memory, size_t bytes)
{
    (void)device;
    (void)bytes;
    free(memory);
}

/*
 * Large blocks come straight from the system in huge pages where it has them: training walks tens of megabytes over
 * and over, and 4 KiB pages cost it a tenth of its time in TLB misses and first touches.
 *
 * A new range begins where as much address space as the machine has memory is free: Linux gives out addresses from the
 * top down, so that memory that others map comes from the far end, and the range can be mapped on. Where so much cannot
 * be had (a limit on address space), ranges are as they come.
 */
static yk_status map(int device, size_t bytes, void *near, void **memory)
{
    (void)device;
    int kind = MAP_PRIVATE | MAP_ANONYMOUS;
    if (near) {
        char *there = mmap(near, bytes, PROT_READ | PROT_WRITE, kind, -1, 0);
        if (there == near) {
            madvise(there, bytes, MADV_HUGEPAGE);
            *memory = there;
            return YK_OK;
        }
        if (there != MAP_FAILED)
            munmap(there, bytes);
    }
    size_t ahead = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE), slack = bytes + huge_page;
    char *raw = mmap(NULL, slack + ahead, PROT_NONE, kind | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) {
        ahead = 0;
        raw = mmap(NULL, slack, PROT_NONE, kind | MAP_NORESERVE, -1, 0);
    }
    if (raw == MAP_FAILED)
        return yk__fail_memory(bytes);
    char *end = raw + slack + ahead, *start = (char *)(((uintptr_t)raw + huge_page - 1) & ~(uintptr_t)(huge_page - 1));
    if (mmap(start, bytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED, -1, 0) == MAP_FAILED) {
        munmap(raw, (size_t)(end - raw));
        return yk__fail_memory(bytes);
    }
    if (start > raw)
        munmap(raw, (size_t)(start - raw));
    munmap(start + bytes, (size_t)(end - (start + bytes)));
    madvise(start, bytes, MADV_HUGEPAGE); /* advice: what the system makes of it is its own business */
    *memory = start;
    return YK_OK;
}

static void unmap(int device, void *memory, size_t bytes)
{
    (void)device;
    munmap(memory, bytes);
}

static yk_status transfer(int device, void *to, const void *from, size_t bytes)
{
    (void)device;
    if (bytes)
        memcpy(to, from, bytes);
    return YK_OK;
}

static yk_status synchronize(int device)
{
    (void)device;
    return YK_OK;
}

/* Everything is done when its slot returns. */
static yk_status enqueue(int device, void (*fn)(void *arg), void *arg)
{
    (void)device;
    fn(arg);
    return YK_OK;
}

static yk_status allocate_pinned(int device, size_t bytes, void **memory)
{
    (void)device;
    return posix_memalign(memory, 64, bytes) ? yk__fail_memory(bytes) : YK_OK;
}

static void release_pinned(int device, void *memory)
{
    (void)device;
    free(memory);
}

static yk__pool *pool_of(int device)
{
    yk__pool *pool = atomic_load_explicit(&cpu.devices[device].pool, memory_order_acquire);
    if (pool)
        return pool;
    pthread_mutex_lock(&cpu.devices[device].lock);
    pool = atomic_load(&cpu.devices[device].pool);
    if (!pool) {
        yk_error before;
        yk__error_take(&before);
        pool = yk__pool_create(cpu.devices[device].threads);
        if (!pool) { /* no threads to be had: one is always there, and the results are the same */
            yk_clear_error();
            cpu.devices[device].threads = 1;
            pool = yk__pool_create(1);
        }
        yk__error_put(&before);
        atomic_store_explicit(&cpu.devices[device].pool, pool, memory_order_release);
    }
    pthread_mutex_unlock(&cpu.devices[device].lock);
    return pool;
}

static yk_status set_threads(int device, int threads)
{
    if (threads > MAX_THREADS)
        return yk__fail(YK_ERR_ARGUMENT, "set_num_threads: %d threads are more than the limit of %d", threads,
                        MAX_THREADS);
    pthread_mutex_lock(&cpu.devices[device].change);
    pthread_mutex_lock(&cpu.devices[device].lock);
    yk__pool *old = atomic_exchange(&cpu.devices[device].pool, NULL);
    atomic_store(&cpu.devices[device].threads, threads);
    unsigned before = atomic_fetch_add(&cpu.devices[device].generation, 1);
    pthread_mutex_unlock(&cpu.devices[device].lock);
    while (atomic_load(&cpu.devices[device].running[before & 1]))
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    yk__pool_destroy(old);
    pthread_mutex_unlock(&cpu.devices[device].change);
    reported[device].threads = 0; /* this thread is in no kernel */
    return YK_OK;
}

static int get_threads(int device)
{
    return cpu.devices[device].threads;
}

int yk__cpu_threads(int device)
{
    yk__cpu_backend();     /* a kernel that is called directly, by a test, may be the first to ask */
    if (yk__pool_inside()) /* the memory of the run around is the caller's: the number that it got stays */
        return atomic_load(&cpu.devices[device].threads);
    reported[device].generation = atomic_load(&cpu.devices[device].generation);
    reported[device].threads = atomic_load(&cpu.devices[device].threads);
    return reported[device].threads;
}

/* Enters a run; gives the generation to leave by. */
static unsigned run_begin(int device)
{
    for (;;) {
        unsigned generation = atomic_load(&cpu.devices[device].generation);
        atomic_fetch_add(&cpu.devices[device].running[generation & 1], 1);
        if (atomic_load(&cpu.devices[device].generation) == generation)
            return generation;
        atomic_fetch_sub(&cpu.devices[device].running[generation & 1], 1);
    }
}

static void run_end(int device, unsigned generation)
{
    atomic_fetch_sub(&cpu.devices[device].running[generation & 1], 1);
}

/* The threads that a run of this thread may have. */
static int most_threads(int device, unsigned generation)
{
    return reported[device].threads && reported[device].generation != generation ? reported[device].threads
                                                                                 : MAX_THREADS;
}

void yk__cpu_parallel(int device, int64_t n, int64_t grain, yk__range_fn fn, void *arg)
{
    if (n <= 0)
        return;
    if (n <= grain || cpu.devices[device].threads == 1) {
        for (int64_t begin = 0; begin < n; begin += grain)
            fn(arg, begin, n - begin < grain ? n : begin + grain, 0);
        return;
    }
    unsigned generation = run_begin(device);
    yk__pool_run_among(pool_of(device), most_threads(device, generation), n, grain, fn, arg);
    run_end(device, generation);
}

static yk__backend backend = {
    .name = "cpu",
    .takes = {[YK__SLOT_unary] = YK__ALL_DTYPES,
              [YK__SLOT_binary] = YK__ALL_DTYPES,
              [YK__SLOT_random] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_dropout] = YK__FLOATS | YK__HALVES,
              [YK__SLOT_reduce] = YK__ALL_DTYPES,
              [YK__SLOT_softmax] = YK__FLOATS,
              [YK__SLOT_gemm] = YK__FLOATS,
              [YK__SLOT_conv2d] = YK__FLOATS,
              [YK__SLOT_max_pool2d] = YK__FLOATS,
              [YK__SLOT_avg_pool2d] = YK__FLOATS,
              [YK__SLOT_adaptive_avg_pool2d] = YK__FLOATS,
              [YK__SLOT_batch_norm] = YK__FLOATS,
              [YK__SLOT_layer_norm] = YK__FLOATS,
              [YK__SLOT_attention] = YK__FLOATS,
              [YK__SLOT_lstm] = YK__FLOATS,
              [YK__SLOT_embedding] = YK__FLOATS,
              [YK__SLOT_index] = YK__ALL_DTYPES,
              [YK__SLOT_index_put] = YK__FLOATS | YK__WHOLES,
              [YK__SLOT_nonzero] = 1 << YK_BOOL,
              [YK__SLOT_argsort] = YK__FLOATS | YK__WHOLES,
              [YK__SLOT_scan] = YK__FLOATS | 1 << YK_I64,
              [YK__SLOT_cross_entropy] = YK__FLOATS,
              [YK__SLOT_sgd] = YK__FLOATS,
              [YK__SLOT_adam] = YK__FLOATS,
              [YK__SLOT_descend] = YK__FLOATS,
              [YK__SLOT_unscale] = YK__FLOATS},
    .device_count = device_count,
    .allocate = allocate,
    .release = release,
    .map = map,
    .unmap = unmap,
    .upload = transfer,
    .download = transfer,
    .synchronize = synchronize,
    .enqueue = enqueue,
    .allocate_pinned = allocate_pinned,
    .release_pinned = release_pinned,
    .queue_upload = transfer,
    .queue_download = transfer,
    .set_threads = set_threads,
    .get_threads = get_threads,
    .host_memory = true,
};

const char *yk__cpu_isa(void)
{
    static const char *const texts[YK__LEVELS] = {"base", "v3 (AVX2, FMA)", "v4 (AVX-512)"};
    int isa = yk__isa();
    return isa < 0 ? "none" : texts[isa];
}

static yk_error setup_error;

/* Forgets the threads of the pool, which are not in the child. */
static void after_fork_child(void)
{
    for (int i = 0; i < cpu.count; i++) {
        pthread_mutex_init(&cpu.devices[i].lock, NULL);
        pthread_mutex_init(&cpu.devices[i].change, NULL);
        atomic_store(&cpu.devices[i].running[0], 0);
        atomic_store(&cpu.devices[i].running[1], 0);
    }
}

/* Counts the devices that YOKE_CPU_VISIBLE_DEVICES leaves of `devices`: it lists their numbers, and they get the
 * numbers from 0 on, as with CUDA_VISIBLE_DEVICES; but a wrong number is an error here. */
static yk_status count_visible(int64_t devices, int64_t *visible)
{
    const char *list = getenv("YOKE_CPU_VISIBLE_DEVICES");
    uint64_t named = 0;
    *visible = list ? 0 : devices;
    for (const char *at = list; at && *at; (*visible)++) {
        char *end;
        bool digit = *at >= '0' && *at <= '9'; /* strtol also takes spaces and signs */
        long number = digit ? strtol(at, &end, 10) : -1;
        if (!digit || (*end && (*end != ',' || !end[1])) || number >= devices)
            return yk__fail(
                YK_ERR_ARGUMENT,
                "YOKE_CPU_VISIBLE_DEVICES=%s: expected numbers of devices from 0 to %lld with commas between "
                "(YOKE_CPU_DEVICES sets how many there are)",
                list, (long long)devices - 1);
        if (named >> number & 1)
            return yk__fail(YK_ERR_ARGUMENT, "YOKE_CPU_VISIBLE_DEVICES=%s: %ld is named twice", list, number);
        named |= (uint64_t)1 << number;
        at = *end ? end + 1 : end;
    }
    return *visible ? YK_OK : yk__fail(YK_ERR_ARGUMENT, "YOKE_CPU_VISIBLE_DEVICES is empty: one device is needed");
}

/* OMP_NUM_THREADS is one number or OpenMP's list of them, one for each level of nesting, of which there is one here. */
static yk_status count_threads(int64_t *threads)
{
    const char *list = getenv("OMP_NUM_THREADS");
    int64_t first = 0;
    for (const char *at = list; at && *at;) {
        char *end;
        errno = 0;
        long long number = strtoll(at, &end, 10);
        end += strspn(end, " \t");
        if (errno || end == at || (*end && (*end != ',' || !end[1])) || number < 1 || number > MAX_THREADS)
            return yk__fail(YK_ERR_ARGUMENT, "OMP_NUM_THREADS=%s: expected an integer from 1 to %d%s", list,
                            MAX_THREADS, strchr(list, ',') ? ", or several with commas between" : "");
        first = first ? first : number;
        at = *end ? end + 1 : end;
    }
    *threads = first ? first : *threads;
    return YK_OK;
}

static void setup(void)
{
    int64_t devices = 1, visible = 1, threads = yk__cores();
    yk_error before;
    yk__error_take(&before);
    if (!yk__env_int("YOKE_CPU_DEVICES", 1, 1, MAX_CPU_DEVICES, &devices) && !count_visible(devices, &visible) &&
        !count_threads(&threads))
        (void)!yk__isa_check();
    yk__error_take(&setup_error);
    yk__error_put(&before);
    cpu.count = (int)visible;
    for (int i = 0; i < cpu.count; i++) {
        pthread_mutex_init(&cpu.devices[i].lock, NULL);
        pthread_mutex_init(&cpu.devices[i].change, NULL);
        cpu.devices[i].threads = threads / devices > 0 ? (int)(threads / devices) : 1;
    }
    pthread_atfork(NULL, NULL, after_fork_child);
    if (!setup_error.code)
        fill_of_set[yk__isa()](&backend);
}

const yk__backend *yk__cpu_backend(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, setup);
    if (setup_error.code) {
        yk__error_put(&setup_error);
        return NULL;
    }
    return &backend;
}

__attribute__((destructor)) static void pools_free(void)
{
    for (int i = 0; i < cpu.count; i++)
        yk__pool_destroy(atomic_exchange(&cpu.devices[i].pool, NULL));
}
