/* pool_test.c - ranges of work: every piece once, the same pieces for any number of threads, nesting, contention. */
#include "tests/support/expect.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "base/core.h"
#include "tests/support/machine.h"

enum { LONGEST = 5000 };

typedef struct record {
    atomic_int seen[LONGEST]; /* visits of element i */
    int64_t begin[LONGEST];   /* the first element of its piece */
    atomic_int wrong;         /* pieces with a bad range or thread number */
    int64_t n, grain;
    int threads;
} record;

static void note(void *argument, int64_t begin, int64_t end, int thread)
{
    record *r = argument;
    int64_t expected = r->n - begin < r->grain ? r->n : begin + r->grain;
    if (begin % r->grain || end != expected || thread < 0 || thread >= r->threads)
        atomic_fetch_add(&r->wrong, 1);
    for (int64_t i = begin; i < end; i++) {
        atomic_fetch_add(&r->seen[i], 1);
        r->begin[i] = begin;
    }
}

static void every_piece_once(void **state)
{
    (void)state;
    static record r;
    for (int threads = 1; threads <= 5; threads++) {
        yk__pool *pool = yk__pool_create(threads);
        assert_non_null(pool);
        assert_int_equal(yk__pool_threads(pool), threads);
        static const int64_t sizes[] = {0, 1, 2, 7, 64, 1000, LONGEST}, grains[] = {1, 3, 64, 999, 100000};
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            for (size_t j = 0; j < sizeof(grains) / sizeof(grains[0]); j++) {
                memset(&r, 0, sizeof(r));
                r.n = sizes[i], r.grain = grains[j], r.threads = threads;
                yk__pool_run(pool, r.n, r.grain, note, &r);
                assert_int_equal(atomic_load(&r.wrong), 0);
                for (int64_t k = 0; k < LONGEST; k++) {
                    assert_int_equal(atomic_load(&r.seen[k]), k < r.n);
                    if (k < r.n)
                        assert_int_equal(r.begin[k], k / r.grain * r.grain);
                }
            }
        }
        yk__pool_destroy(pool);
    }
    assert_null(yk_last_error());
}

/* Every thread takes part: each piece waits until all of them have one. */
typedef struct meeting {
    atomic_int arrived;
    int threads;
    atomic_int mask;
} meeting;

static void meet(void *argument, int64_t begin, int64_t end, int thread)
{
    meeting *m = argument;
    (void)begin, (void)end;
    atomic_fetch_or(&m->mask, 1 << thread);
    atomic_fetch_add(&m->arrived, 1);
    double start = yk__now();
    while (atomic_load(&m->arrived) < m->threads && yk__now() - start < patience(30))
        sched_yield();
}

static void all_threads_take_part(void **state)
{
    (void)state;
    meeting m = {.threads = 4};
    yk__pool *pool = yk__pool_create(4);
    yk__pool_run(pool, 4, 1, meet, &m);
    assert_int_equal(atomic_load(&m.arrived), 4);
    assert_int_equal(atomic_load(&m.mask), 15);
    yk__pool_destroy(pool);
}

typedef struct nest {
    yk__pool *pool;
    atomic_llong sum;
    atomic_int bad_thread;
} nest;

static void inner(void *argument, int64_t begin, int64_t end, int thread)
{
    nest *n = argument;
    if (thread != 0)
        atomic_fetch_add(&n->bad_thread, 1);
    for (int64_t i = begin; i < end; i++)
        atomic_fetch_add(&n->sum, i);
}

static void outer(void *argument, int64_t begin, int64_t end, int thread)
{
    nest *n = argument;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        yk__pool_run(n->pool, 100, 7, inner, n);
}

static void nested_runs_stay_on_the_caller(void **state)
{
    (void)state;
    nest n = {.pool = yk__pool_create(3)};
    yk__pool_run(n.pool, 40, 1, outer, &n);
    assert_int_equal(atomic_load(&n.sum), 40 * 4950);
    assert_int_equal(atomic_load(&n.bad_thread), 0);
    yk__pool_destroy(n.pool);
}

typedef struct rival {
    yk__pool *pool;
    int64_t rounds, wrong;
} rival;

static void count_up(void *argument, int64_t begin, int64_t end, int thread)
{
    int *counts = argument;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        counts[i]++;
}

static void *compete(void *argument)
{
    rival *r = argument;
    int counts[200];
    for (int64_t round = 0; round < r->rounds; round++) {
        memset(counts, 0, sizeof(counts));
        yk__pool_run(r->pool, 200, 1 + round % 9, count_up, counts);
        for (int i = 0; i < 200; i++)
            r->wrong += counts[i] != 1;
    }
    return NULL;
}

static void several_callers_at_once(void **state)
{
    (void)state;
    enum { CALLERS = 4 };
    yk__pool *pool = yk__pool_create(3);
    rival rivals[CALLERS];
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        rivals[i] = (rival){pool, 3000, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, compete, &rivals[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(rivals[i].wrong, 0);
    }
    yk__pool_destroy(pool);
}

/* Plain writes by the pieces are seen by the caller, and the caller's by the pieces, sleeping workers included. */
static void writes_are_seen_both_ways(void **state)
{
    (void)state;
    yk__pool *pool = yk__pool_create(2);
    int counts[64] = {0};
    for (int round = 1; round <= 500; round++) {
        yk__pool_run(pool, 64, 1, count_up, counts);
        for (int i = 0; i < 64; i++)
            assert_int_equal(counts[i]++, 2 * round - 1);
        if (round % 100 == 0) {
            struct timespec nap = {0, 5000000}; /* long enough for the workers to fall asleep */
            nanosleep(&nap, NULL);
        }
    }
    yk__pool_destroy(pool);
}

static void create_and_destroy(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        yk__pool *pool = yk__pool_create(1 + i % 4);
        int counts[8] = {0};
        if (i % 2)
            yk__pool_run(pool, 8, 1, count_up, counts);
        yk__pool_destroy(pool);
        assert_int_equal(counts[7], i % 2);
    }
    yk__pool_destroy(NULL);
    assert_true(yk__cores() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_once),
        cmocka_unit_test(all_threads_take_part),
        cmocka_unit_test(nested_runs_stay_on_the_caller),
        cmocka_unit_test(several_callers_at_once),
        cmocka_unit_test(writes_are_seen_both_ways),
        cmocka_unit_test(create_and_destroy),
    };
    return cmocka_run_group_tests_name("base/pool", tests, NULL, NULL);
}
