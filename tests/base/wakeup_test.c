/*
 * wakeup_test.c - a signal that one thread takes wakes those that sleep on a futex.
 */
#include "tests/support/expect.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/wakeup.h"

enum { SLEEPERS = 3 };

static _Atomic uint32_t words[SLEEPERS];
static atomic_int awake;

static void on_signal(int number)
{
    (void)number;
    yk__wakeup_all();
}

/* A thread that, without the wake-up, would sleep for longer than a test may take. */
static void *sleeps(void *arg)
{
    _Atomic uint32_t *word = arg;
    struct timespec limit = {.tv_sec = 3600};
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL); /* the signal is another thread's */
    int slot = yk__wakeup_begin(word);
    long result = syscall(SYS_futex, word, FUTEX_WAIT, 0, &limit, NULL, 0);
    yk__wakeup_end(slot);
    atomic_fetch_add(&awake, 1);
    return slot >= 0 && result == 0 ? word : NULL;
}

static void a_signal_wakes_all(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_signal}, before;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    pthread_t threads[SLEEPERS];
    for (int i = 0; i < SLEEPERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, sleeps, (void *)&words[i]), 0);
    while (atomic_load(&awake) < SLEEPERS) { /* some may not have fallen asleep yet */
        assert_int_equal(raise(SIGUSR1), 0);
        usleep(1000);
    }
    for (int i = 0; i < SLEEPERS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_ptr_equal(result, (void *)&words[i]);
    }
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

static void slots_are_given_back(void **state)
{
    (void)state;
    int taken[1000], count = 0;
    while (count < 1000 && (taken[count] = yk__wakeup_begin(&words[0])) >= 0)
        count++;
    assert_in_range(count, 8, 999);
    yk__wakeup_end(-1); /* of one that found no slot */
    assert_int_equal(yk__wakeup_begin(&words[1]), -1);
    yk__wakeup_end(taken[3]);
    assert_int_equal(yk__wakeup_begin(&words[1]), taken[3]);
    for (int i = 0; i < count; i++)
        yk__wakeup_end(taken[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_signal_wakes_all), cmocka_unit_test(slots_are_given_back)};
    return cmocka_run_group_tests_name("wakeup", tests, NULL, NULL);
}
