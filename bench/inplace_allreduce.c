/*
 * inplace_allreduce.c - the bound of an all_reduce of two ranks that share memory: two threads, each of which reads its
 * half of both buffers, adds, and writes the sums to both. Nothing is compared, announced, or watched. A peer for
 * bench/run.
 *
 * usage: inplace_allreduce BYTES... [--seconds X]     Prints one JSON object a size, with the keys of `yoke bench
 * allreduce`, whose protocol it follows: buffers are rewritten before every operation, all sums are checked, and the
 * time is the median of the slower thread, and the least. The best of three ways counts: sums from registers to both
 * buffers, in the widest vectors that the processor has; by way of a block in the first-level cache; and non-temporal
 * stores.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { MOST_REPEATS = 2000, BLOCK = 4096 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static float *buffers[2];
static long count, repeats;
static bool wrong;
static enum { DIRECT, BY_BLOCKS, PAST_CACHES, WAYS } way;
static double times[2][MOST_REPEATS];
static atomic_uint arrived;

/* Both threads have come so far. */
static void meet(unsigned *round)
{
    atomic_fetch_add(&arrived, 1);
    *round += 2;
    while (atomic_load(&arrived) < *round)
#if defined(__x86_64__)
        _mm_pause();
#else
        continue;
#endif
}

/* From registers to both, 64 bytes at a time. */
typedef float lanes __attribute__((vector_size(64), aligned(4), may_alias));
#define ADD_DIRECT(name, attributes)                                                                                   \
    attributes static void name(float *a, float *b, long from, long to)                                                \
    {                                                                                                                  \
        long i = from;                                                                                                 \
        for (; i + 16 <= to; i += 16) {                                                                                \
            lanes sum = *(const lanes *)(a + i) + *(const lanes *)(b + i);                                             \
            *(lanes *)(a + i) = sum;                                                                                   \
            *(lanes *)(b + i) = sum;                                                                                   \
        }                                                                                                              \
        for (; i < to; i++)                                                                                            \
            a[i] = b[i] = a[i] + b[i];                                                                                 \
    }
ADD_DIRECT(add_direct, )
#if defined(__x86_64__)
ADD_DIRECT(add_direct_v3, __attribute__((target("avx2"))))
ADD_DIRECT(add_direct_v4, __attribute__((target("avx512f"))))
#endif

static void add_half(int rank)
{
    long from = count / 2 * rank, to = rank ? count : count / 2;
    float *a = buffers[0], *b = buffers[1];
    if (way == DIRECT) {
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512f"))
            add_direct_v4(a, b, from, to);
        else if (__builtin_cpu_supports("avx2"))
            add_direct_v3(a, b, from, to);
        else
#endif
            add_direct(a, b, from, to);
        return;
    }
#if defined(__x86_64__)
    if (way == PAST_CACHES) { /* buffers are aligned to 64 bytes, halves to 16 */
        for (long i = from; i < to; i += 4) {
            __m128 sum = _mm_add_ps(_mm_load_ps(a + i), _mm_load_ps(b + i));
            _mm_stream_ps(a + i, sum);
            _mm_stream_ps(b + i, sum);
        }
        _mm_sfence();
        return;
    }
#endif
    float block[BLOCK];
    for (long i = from; i < to; i += BLOCK) {
        long n = to - i < BLOCK ? to - i : BLOCK;
        for (long k = 0; k < n; k++)
            block[k] = a[i + k] + b[i + k];
        memcpy(a + i, block, (size_t)n * sizeof(float));
        memcpy(b + i, block, (size_t)n * sizeof(float));
    }
}

static void *rank_thread(void *arg)
{
    int rank = *(int *)arg;
    unsigned round = 0;
    float *x = buffers[rank];
    for (long k = 0; k < repeats + 3; k++) {
        for (long i = 0; i < count; i++)
            x[i] = (float)((i + 3 * k) % 61 + rank);
        meet(&round);
        double start = now();
        add_half(rank);
        meet(&round);
        double end = now();
        for (long i = 0; i < count; i++)
            wrong |= x[i] != (float)(2 * ((i + 3 * k) % 61) + 1);
        if (k >= 3)
            times[rank][k - 3] = end - start;
        meet(&round);
    }
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of so many operations, in seconds, and the least. */
static double run(long operations, double *least)
{
    int ranks[2] = {0, 1};
    pthread_t other;
    double slower[MOST_REPEATS];
    repeats = operations;
    atomic_store(&arrived, 0);
    if (pthread_create(&other, NULL, rank_thread, &ranks[1])) {
        fprintf(stderr, "inplace_allreduce: no second thread\n");
        exit(1);
    }
    rank_thread(&ranks[0]);
    pthread_join(other, NULL);
    for (long i = 0; i < repeats; i++)
        slower[i] = times[0][i] > times[1][i] ? times[0][i] : times[1][i];
    qsort(slower, (size_t)repeats, sizeof(*slower), ascending);
    *least = slower[0];
    return (slower[(repeats - 1) / 2] + slower[repeats / 2]) / 2;
}

static double measure(long bytes, double seconds, double *least)
{
    double best = 0;
    *least = 0;
    count = bytes / 4;
    for (way = 0; way < WAYS; way++) {
#if !defined(__x86_64__)
        if (way == PAST_CACHES)
            break;
#endif
        if (way == PAST_CACHES && count % 8)
            break;
        double begun = now(), each, shortest;
        run(1, &shortest);
        each = (now() - begun) / 4;
        long fit = (long)(seconds / WAYS / each), few = bytes >= 4L << 20 ? 7 : 51;
        double median = run(fit < few ? few : fit > MOST_REPEATS ? MOST_REPEATS : fit, &shortest);
        *least = way == 0 || shortest < *least ? shortest : *least;
        best = way == 0 || median < best ? median : best;
    }
    return best;
}

int main(int argc, char **argv)
{
    double seconds = 0.5;
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = atof(argv[i + 1]);
    for (int i = 1; i < argc && strcmp(argv[i], "--seconds") != 0; i++) {
        long bytes = atol(argv[i]);
        if (bytes < 4 || bytes % 4) {
            fprintf(stderr, "inplace_allreduce: %s is not a multiple of 4 bytes\n", argv[i]);
            return 2;
        }
        for (int r = 0; r < 2; r++)
            if (posix_memalign((void **)&buffers[r], 4096, (size_t)bytes))
                return 1;
        double least, time = measure(bytes, seconds, &least);
        if (wrong) {
            fprintf(stderr, "inplace_allreduce: a sum of %ld bytes is wrong\n", bytes);
            return 1;
        }
        printf("{\"subject\":\"allreduce\",\"ranks\":2,\"backend\":\"two threads\",\"bytes\":%ld,"
               "\"time_us_median\":%.6g,\"time_us_least\":%.6g,\"algbw_gbps\":%.6g}\n",
               bytes, time * 1e6, least * 1e6, (double)bytes / time / 1e9);
        fflush(stdout);
        free(buffers[0]);
        free(buffers[1]);
    }
    return 0;
}
