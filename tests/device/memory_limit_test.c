/* memory_limit_test.c - memory figures of devices, limits, and who holds what when there is none left. */
#include "tests/support/expect.h"

#include <yoke/yoke.h>

static const yk_device second = {YK_CPU, 1};
static const size_t mib = (size_t)1 << 20;

static yk_memory_info info_of(yk_device device)
{
    yk_memory_info info;
    expect_ok(yk_device_memory(device, &info));
    return info;
}

static int fresh(void **state)
{
    (void)state;
    for (int16_t i = 0; i < 3; i++) {
        yk_device device = {YK_CPU, i};
        expect_ok(yk_device_set_memory_limit(device, 0));
        yk_device_empty_cache(device);
        yk_device_reset_peak_memory(device);
    }
    return 0;
}

static yk_tensor *mebibytes(yk_device device, int64_t n)
{
    return yk_ones(YK_SHAPE(n << 18), YK_OPTIONS(yk_tensor_options, .device = device));
}

static void figures(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *a = mebibytes(second, 2);
    yk_scope inner = yk_scope_begin();
    mebibytes(second, 4);
    yk_scope_end(inner);
    yk_memory_info info = info_of(second);
    assert_int_equal(info.allocated, 2 * mib);
    assert_int_equal(info.peak_allocated, 6 * mib);
    assert_int_equal(info.reserved, 6 * mib);
    assert_int_equal(info.peak_reserved, 6 * mib);
    assert_int_equal(info.limit, 0);
    yk_device_empty_cache(second);
    assert_int_equal(info_of(second).reserved, 2 * mib);
    assert_int_equal(info_of(second).peak_reserved, 6 * mib);
    yk_device_reset_peak_memory(second);
    assert_int_equal(info_of(second).peak_reserved, 2 * mib);
    assert_int_equal(info_of(second).peak_allocated, 2 * mib);
    assert_int_equal(info_of((yk_device){0}).allocated, 0);
    /* Shared memory counts once. */
    yk_data(a);
    assert_int_equal(info_of(second).allocated, 2 * mib);
    yk_scope_end(scope);
    assert_int_equal(info_of(second).allocated, 0);
}

static void a_limit_holds(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    expect_ok(yk_device_set_memory_limit(second, 8 * mib));
    assert_int_equal(info_of(second).limit, 8 * mib);
    yk_scope inner = yk_scope_begin();
    mebibytes(second, 4);
    mebibytes(second, 2);
    yk_scope_end(inner);
    assert_int_equal(info_of(second).reserved, 6 * mib);
    assert_non_null(mebibytes(second, 7)); /* the cached block grows by the bytes that it lacks */
    assert_int_equal(info_of(second).reserved, 7 * mib);
    assert_null(mebibytes(second, 2));
    expect_error(YK_ERR_MEMORY, "out of memory: 2097152 bytes were asked for on cpu:1, whose limit is 8.0 MiB; tensors "
                                "hold 7.0 MiB (ones 7.0 MiB in 1)");
    assert_non_null(mebibytes(second, 1));
    assert_non_null(mebibytes((yk_device){YK_CPU, 2}, 9)); /* another device has its own */
    expect_ok(yk_device_set_memory_limit(second, 0));
    assert_non_null(mebibytes(second, 2));
    expect_ok(yk_device_set_memory_limit(second, mib)); /* below what is held: that stays */
    assert_int_equal(info_of(second).allocated, 10 * mib);
    assert_null(mebibytes(second, 1));
    expect_error(YK_ERR_MEMORY, "whose limit is 1.0 MiB; tensors hold 10.0 MiB");
    assert_int_equal(yk_device_set_memory_limit((yk_device){YK_CPU, 9}, 1), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, "cpu:9 does not exist");
    yk_scope_end(scope);
}

/* The error names the holders of memory: the operations that made it, the largest first, backward apart, and other
 * devices. */
static void the_error_names_the_holders(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(1 << 18), YK_OPTIONS(yk_tensor_options, .device = second, .requires_grad = true));
    expect_ok(yk_backward(yk_sum(yk_exp(x))));
    yk_tensor *held[3];
    for (int i = 0; i < 3; i++)
        held[i] = yk_mul(x, x);
    mebibytes((yk_device){YK_CPU, 2}, 3);
    yk_device_empty_cache(second);
    size_t now = info_of(second).allocated;
    expect_ok(yk_device_set_memory_limit(second, now + 64));
    assert_null(yk_add(held[0], held[1]));
    const yk_error *e = yk_last_error();
    assert_non_null(e);
    assert_int_equal(e->code, YK_ERR_MEMORY);
    const char *parts[] = {"out of memory: 1048576 bytes were asked for on cpu:1, whose limit is",
                           "; tensors hold ",
                           " (mul 3.0 MiB in 3",
                           "exp 1.0 MiB in 1",
                           "ones 1.0 MiB in 1",
                           "backward of exp 1.0 MiB in 1",
                           "; elsewhere: cpu:2 3.0 MiB"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!strstr(e->message, parts[i]))
            fail_msg("'%s' is not in '%s'", parts[i], e->message);
    }
    yk_clear_error();
    expect_ok(yk_device_set_memory_limit(second, 0));
    assert_non_null(yk_add(held[0], held[1])); /* nothing is broken */
    yk_scope_end(scope);
    assert_int_equal(info_of(second).allocated, 0);
}

/* A forward or a backward that runs out of memory in its middle leaves nothing behind. */
static void running_out_in_a_step(void **state)
{
    (void)state;
    yk_scope program = yk_scope_begin();
    yk_module *net = yk_lenet(NULL);
    assert_non_null(yk_module_to(net, second));
    yk_tensor *images = yk_rand(YK_SHAPE(16, 1, 28, 28), YK_OPTIONS(yk_tensor_options, .device = second));
    yk_tensor *labels = yk_zeros(YK_SHAPE(16), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = second));
    int failures = 0, successes = 0;
    yk_module_zero_grad(net);
    size_t before = info_of(second).allocated;
    for (size_t room = 0; successes == 0; room += 64 << 10) {
        yk_scope step = yk_scope_begin();
        yk_device_empty_cache(second);
        expect_ok(yk_device_set_memory_limit(second, before + room + 1));
        yk_tensor *loss = yk_cross_entropy(yk_forward(net, images), labels, NULL);
        bool done = loss && !yk_backward(loss);
        if (done) {
            successes++;
        } else {
            expect_error(YK_ERR_MEMORY, "out of memory: ");
            failures++;
        }
        expect_ok(yk_device_set_memory_limit(second, 0));
        yk_scope_end(step);
        yk_module_zero_grad(net);
        assert_int_equal(info_of(second).allocated, before);
    }
    assert_true(failures > 5);
    yk_scope_end(program);
}

int main(void)
{
    setenv("YOKE_CPU_DEVICES", "3", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(figures, fresh),
        cmocka_unit_test_setup(a_limit_holds, fresh),
        cmocka_unit_test_setup(the_error_names_the_holders, fresh),
        cmocka_unit_test_setup(running_out_in_a_step, fresh),
    };
    return cmocka_run_group_tests_name("device/memory_limit", tests, NULL, NULL);
}
