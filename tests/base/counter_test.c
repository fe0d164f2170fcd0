/*
 * counter_test.c - counts of references while the process has one thread, while it has several, and after that.
 */
#include "tests/support/expect.h"

#include <pthread.h>

#include "base/counter.h"

enum { TIMES = 20000, THREADS = 3 };

static atomic_int count;
static atomic_ullong numbers;
static atomic_int wrong; /* a count that cannot be was seen, or a thread thought itself alone */

static void hold_and_release(void)
{
    for (int i = 0; i < TIMES; i++) {
        if (yk__count_up(&count) < 1 || yk__count_down(&count) < 2)
            atomic_store(&wrong, 1);
        yk__count_next(&numbers);
    }
}

static void *other_thread(void *unused)
{
    (void)unused;
    if (yk__one_thread())
        atomic_store(&wrong, 1);
    hold_and_release();
    return NULL;
}

static void test_counts(void **state)
{
    (void)state;
    atomic_store(&count, 1);
    hold_and_release();
    assert_int_equal(atomic_load(&count), 1);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, other_thread, NULL), 0);
    assert_false(yk__one_thread());
    hold_and_release();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    hold_and_release();
    assert_int_equal(atomic_load(&count), 1);
    assert_int_equal(atomic_load(&numbers), (THREADS + 3) * TIMES);
    assert_int_equal(atomic_load(&wrong), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts)};
    return cmocka_run_group_tests_name("counter", tests, NULL, NULL);
}
