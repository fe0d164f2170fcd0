/*
 * thread_count_test.c - yk_set_num_threads while other threads compute: the same bits, no pool that is gone, no scratch
 * memory of an older number of threads (the sanitizers look).
 */
#include "tests/support/expect.h"

#include <pthread.h>
#include <stdatomic.h>

#include <yoke/ops.h>

enum { CHANGES = 400 };

static atomic_bool stop;

typedef struct worker {
    pthread_t thread;
    atomic_int rounds;
    atomic_bool ended;
    const char *failed;
} worker;

static const yk_tensor_options *const random_leaf = YK_OPTIONS(yk_tensor_options, .requires_grad = true);

/* Operations that size memory by the number of threads: convolutions of several kinds, forward and backward, products,
 * lookups. */
static double compute(void)
{
    yk_scope scope = yk_scope_begin();
    double sum = 0;
    static const int64_t shapes[3][2][4] = {
        {{4, 3, 17, 19}, {8, 3, 3, 3}}, {{2, 16, 12, 12}, {32, 16, 3, 3}}, {{8, 16, 6, 6}, {16, 16, 1, 1}}};
    for (int i = 0; i < 3; i++) {
        yk_tensor *x = yk_full(4, shapes[i][0], 0.25, random_leaf), *w = yk_full(4, shapes[i][1], 0.5, random_leaf);
        yk_tensor *y = yk_conv2d(x, w, NULL, NULL);
        if (!y || yk_backward(yk_sum(yk_mul(y, y))))
            break;
        sum += yk_item(yk_sum(yk_grad(w))) + yk_item(yk_sum(yk_grad(x)));
    }
    yk_tensor *a = yk_full(2, (int64_t[]){130, 70}, 0.5, NULL), *b = yk_full(2, (int64_t[]){70, 90}, 2, NULL);
    sum += yk_item(yk_sum(yk_matmul(a, b)));
    yk_tensor *table = yk_full(2, (int64_t[]){300, 64}, 1.5, random_leaf);
    yk_tensor *index = yk_full(1, (int64_t[]){2000}, 7, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    if (!yk_backward(yk_sum(yk_embedding(index, table, -1))))
        sum += yk_item(yk_sum(yk_grad(table)));
    yk_scope_end(scope);
    return sum;
}

static void *work(void *argument)
{
    worker *w = argument;
    double expected = compute();
    while (!atomic_load(&stop) && !w->failed) {
        if (compute() != expected)
            w->failed = "another result";
        atomic_fetch_add(&w->rounds, 1);
    }
    if (yk_last_error())
        w->failed = "an error";
    atomic_store(&w->ended, true);
    return NULL;
}

static void test_changes_while_others_compute(void **state)
{
    (void)state;
    double before = compute();
    expect_ok(yk_set_num_threads((yk_device){0}, 2));
    worker workers[3] = {{.rounds = 0}};
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    bool slow = true; /* until each has been through it three times at least, or has failed */
    for (int i = 0; i < CHANGES || slow; i++) {
        expect_ok(yk_set_num_threads((yk_device){0}, 1 + i * 7 % 8));
        slow = false;
        for (int w = 0; w < 3; w++)
            slow = slow || (atomic_load(&workers[w].rounds) < 3 && !atomic_load(&workers[w].ended));
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].failed)
            fail_msg("worker %d: %s", i, workers[i].failed);
        assert_true(workers[i].rounds > 0);
    }
    expect_ok(yk_set_num_threads((yk_device){0}, 3));
    assert_int_equal(yk_get_num_threads((yk_device){0}), 3);
    assert_true(compute() == before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changes_while_others_compute),
    };
    return cmocka_run_group_tests_name("device/thread_count", tests, NULL, NULL);
}
