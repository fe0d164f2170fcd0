/* shared_memory_test.c - two logical devices of one (emulated) GPU with little memory: memory that one has cached is
 * given back before the other is out of memory, also while either records a step and while both ask at once. */
#include <pthread.h>

#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"

#include <yoke/yoke.h>

#include "tensor/tensor.h"

/* The elements of one tensor, which takes 10 of the GPU's 16 MiB. */
enum { ELEMENTS = 10 << 18, RUNS = 4, TURNS = 40 };

static const yk_device first = {YK_CUDA, 0}, second = {YK_CUDA, 1}, elsewhere = {YK_CUDA, 2};

static yk_tensor *large(yk_device device, int64_t elements)
{
    return yk_full(YK_SHAPE(elements), 1, YK_OPTIONS(yk_tensor_options, .device = device));
}

/* Has the device cache memory that nobody holds. */
static void leave_cached(yk_device device)
{
    yk_scope scope = yk_scope_begin();
    assert_non_null(large(device, ELEMENTS));
    yk_scope_end(scope);
    yk_memory_info info;
    expect_ok(yk_device_memory(device, &info));
    assert_true(info.reserved >= ELEMENTS * sizeof(float));
}

static size_t reserved(yk_device device)
{
    yk_memory_info info;
    expect_ok(yk_device_memory(device, &info));
    assert_null(yk__memory_check(device));
    return info.reserved;
}

static void test_given_back(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    leave_cached(first);
    leave_cached(elsewhere); /* of another GPU */
    yk_tensor *x = large(second, ELEMENTS);
    assert_true(x && yk_item(yk_min(x)) == 1);
    assert_int_equal(reserved(first), 0);
    assert_true(reserved(elsewhere) > 0);
    /* Held memory stays. */
    assert_null(large(first, ELEMENTS));
    expect_error(YK_ERR_MEMORY, "cuda:0: out of memory");
    assert_true(yk_item(yk_min(x)) == 1);
    yk_scope_end(scope);
    /* Its own limit is no reason to ask the others. */
    scope = yk_scope_begin();
    expect_ok(yk_device_set_memory_limit(first, 1 << 20));
    assert_null(large(first, ELEMENTS));
    expect_error(YK_ERR_MEMORY, "out of memory");
    assert_true(reserved(second) > 0);
    expect_ok(yk_device_set_memory_limit(first, 0));
    yk_scope_end(scope);
}

/* The other thread wants memory that the thread that records has cached, and that was never part of the recording. */
typedef struct recorder {
    yk_tensor *x;
    int calls;
} recorder;

static void *want(void *unused)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = large(second, ELEMENTS);
    assert_true(x && yk_item(yk_min(x)) == 1);
    yk_scope_end(scope);
    yk_device_empty_cache(second);
    return unused;
}

static yk_status step(void *user)
{
    recorder *r = user;
    yk_tensor *y = yk_mul_scalar(r->x, 2);
    pthread_t thread;
    if (++r->calls == 2) {
        assert_int_equal(pthread_create(&thread, NULL, want, NULL), 0);
        pthread_join(thread, NULL);
    }
    return yk_copy_(r->x, y) ? YK_OK : yk_last_error()->code;
}

static void test_while_one_records(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    recorder r = {.x = large(first, 1000)};
    yk_graph *g = yk_graph_create(first, 1, step, &r);
    expect_ok(yk_graph_run(g));
    leave_cached(first);
    for (int i = 1; i < RUNS; i++)
        expect_ok(yk_graph_run(g));
    assert_null(yk_graph_get_info(g).why_not);
    assert_true(yk_item(yk_max(r.x)) == 1 << RUNS);
    yk_scope_end(scope);
    assert_null(yk__memory_check(first));
}

/* Both fill what the other left, again and again: neither waits for the other's lock with its own. Where both hold
 * something at once, one may be out of memory. */
static void *fill_and_leave(void *device)
{
    for (int i = 0; i < TURNS; i++) {
        yk_scope scope = yk_scope_begin();
        if (!large(*(const yk_device *)device, ELEMENTS))
            assert_int_equal(yk_last_error()->code, YK_ERR_MEMORY);
        yk_clear_error();
        yk_scope_end(scope);
    }
    return NULL;
}

static void test_both_at_once(void **state)
{
    (void)state;
    pthread_t threads[2];
    yk_device devices[2] = {first, second};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, fill_and_leave, &devices[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_true(reserved(first) + reserved(second) <= 16 << 20);
}

int main(void)
{
    setenv("YOKE_EMULATOR_GPUS", "2", 1);
    setenv("YOKE_EMULATOR_MEMORY", "16", 1);
    setenv("YOKE_CUDA_DEVICES_PER_GPU", "2", 1);
    if (!use_emulator())
        return 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_given_back), cmocka_unit_test(test_while_one_records),
                                       cmocka_unit_test(test_both_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
