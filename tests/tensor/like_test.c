/* like_test.c - tensors like others, moves between devices, and what a tensor's type is called. */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <pthread.h>

#include <yoke/yoke.h>

#define second test_device(1)

static void expect_all(yk_tensor *x, double value)
{
    assert_non_null(x);
    double *elements = calloc((size_t)yk_numel(x) + 1, sizeof(double));
    yk_tensor *wide = yk_cast(x, YK_F64);
    expect_ok(yk_tensor_read(wide, elements, (size_t)yk_numel(x) * sizeof(double)));
    for (int64_t i = 0; i < yk_numel(x); i++)
        assert_true(elements[i] == value);
    free(elements);
}

static void expect_kind(yk_tensor *x, yk_dtype dtype, yk_device device, bool requires_grad)
{
    assert_non_null(x);
    assert_int_equal(yk_tensor_dtype(x), dtype);
    assert_true(yk_device_equal(yk_tensor_device(x), device));
    assert_int_equal(yk_requires_grad(x), requires_grad);
}

static void like_with_options(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x =
        yk_transpose(yk_zeros(YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = second)), 0, 1);
    const yk_like_options ints = *YK_OPTIONS(yk_like_options, .dtype = YK_I32),
                          there = *YK_OPTIONS(yk_like_options, .device = {0});
    const yk_like_options leaf = *YK_OPTIONS(yk_like_options, .dtype = YK_F32, .requires_grad = true);
    yk_tensor *all[] = {yk_zeros_like_with(x, &ints), yk_ones_like_with(x, &ints), yk_full_like_with(x, 7, &ints),
                        yk_empty_like_with(x, &ints)};
    for (int i = 0; i < 4; i++) {
        expect_kind(all[i], YK_I32, second, false);
        assert_true(yk_same_shape(all[i], x));
        assert_int_equal(yk_stride(all[i], 0), 1); /* x's memory order */
    }
    expect_all(all[0], 0);
    expect_all(all[1], 1);
    expect_all(all[2], 7);
    expect_kind(yk_zeros_like_with(x, &there), YK_F64, (yk_device){0}, false);
    expect_kind(yk_ones_like_with(x, &leaf), YK_F32, second, true);
    expect_kind(yk_full_like_with(x, 2, NULL), YK_F64, second, false);
    expect_kind(yk_randn_like_with(x, &leaf), YK_F32, second, true);
    yk_tensor *drawn = yk_rand_like_with(x, &leaf);
    expect_kind(drawn, YK_F32, second, true);
    assert_true(yk_item(yk_max(drawn)) < 1 && yk_item(yk_min(drawn)) >= 0 && yk_item(yk_sum(drawn)) > 0);
    expect_kind(yk_rand_like(x), YK_F64, second, false);
    assert_null(yk_zeros_like_with(x, YK_OPTIONS(yk_like_options, .dtype = YK_I64, .requires_grad = true)));
    expect_error(YK_ERR_DTYPE, "zeros_like: only floating tensors can require a gradient");
    assert_null(yk_rand_like_with(x, &ints));
    expect_error(YK_ERR_DTYPE, "rand_like: expected a floating dtype, not int32");
    assert_null(yk_ones_like_with(x, YK_OPTIONS(yk_like_options, .device = test_device(9))));
    expect_error(YK_ERR_DEVICE, device_text("cpu:9 does not exist"));
    assert_null(yk_empty_like_with(NULL, &ints));
    expect_error(YK_ERR_ARGUMENT, "empty_like: the tensor is NULL");
    yk_scope_end(scope);
}

static void new_of_another_shape(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor_options options =
        *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = second, .requires_grad = true);
    yk_tensor *x = yk_zeros(YK_SHAPE(5), &options);
    const yk_like_options leaf = *YK_OPTIONS(yk_like_options, .requires_grad = true),
                          longs = *YK_OPTIONS(yk_like_options, .dtype = YK_I64, .device = {0});
    expect_all(yk_new_zeros(x, YK_SHAPE(2, 3), NULL), 0);
    expect_all(yk_new_ones(x, YK_SHAPE(4), NULL), 1);
    expect_all(yk_new_full(x, YK_SCALAR, 2.5, NULL), 2.5);
    expect_kind(yk_new_zeros(x, YK_SHAPE(2, 3), NULL), YK_F64, second, false);
    expect_kind(yk_new_ones(x, YK_SHAPE(4), &leaf), YK_F64, second, true);
    expect_kind(yk_new_full(x, YK_SHAPE(1), 3, &longs), YK_I64, (yk_device){0}, false);
    yk_tensor *room = yk_new_empty(x, YK_SHAPE(0, 7), NULL);
    expect_kind(room, YK_F64, second, false);
    assert_int_equal(yk_size(room, 1), 7);
    yk_tensor *copied = yk_new_tensor(x, (double[]){1, 2, 4}, YK_SHAPE(3), NULL);
    expect_kind(copied, YK_F64, second, false);
    assert_true(yk_get(copied, (int64_t[]){2}) == 4);
    assert_null(yk_new_tensor(x, NULL, YK_SHAPE(3), NULL));
    expect_error(YK_ERR_ARGUMENT, "new_tensor: the data is NULL");
    assert_null(yk_new_zeros(x, YK_SHAPE(-1), NULL));
    expect_error(YK_ERR_SHAPE, "new_zeros: size -1 of dimension 0 is negative");
    yk_scope_end(scope);
}

static void types_have_names(void **state)
{
    (void)state;
    static const char *const names[YK__DTYPES] = {"FloatTensor", "DoubleTensor", "HalfTensor", "BFloat16Tensor",
                                                  "LongTensor",  "IntTensor",    "ByteTensor", "BoolTensor"};
    yk_scope scope = yk_scope_begin();
    for (int d = 0; d < YK__DTYPES; d++) {
        char name[40];
        snprintf(name, sizeof(name), "torch.%s%s", test_device_type == YK_CPU ? "" : "cuda.", names[d]);
        yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)d);
        assert_string_equal(yk_tensor_type(yk_zeros(YK_SHAPE(1), &options)), name);
    }
    assert_null(yk_tensor_type(NULL));
    int number = yk_get_device(yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .device = second)));
    assert_int_equal(number, test_device_type == YK_CPU ? -1 : 1);
    if (test_device_type == YK_CPU)
        expect_error(YK_ERR_DEVICE, "get_device: the tensor is on cpu:1, and only one on a GPU has such a number");
    yk_scope_end(scope);
}

static void moves_that_change_nothing(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    if (test_device_type == YK_CPU)
        assert_ptr_equal(yk_cpu(x), x);
    assert_ptr_equal(yk_to(x, test_device(0)), x);
    assert_ptr_equal(yk_cast(x, YK_F32), x);
    yk_tensor *there = yk_to(x, second);
    assert_ptr_not_equal(there, x);
    assert_ptr_equal(yk_to(there, second), there);
    yk_device before = yk_device_guard_begin(second); /* "cpu" is the current CPU device, "cuda" the current GPU */
    assert_ptr_equal(test_device_type == YK_CPU ? yk_cpu(there) : yk_cuda(there, -1), there);
    yk_device_guard_end(before);
    yk_tensor *back = yk_cpu(there);
    expect_kind(back, YK_F32, (yk_device){0}, true);
    expect_ok(yk_backward(yk_sum(back)));
    expect_all(yk_grad(x), 1);
    if (test_device_type == YK_CPU) {
        assert_null(yk_cuda(x, -1)); /* there is none here */
        assert_non_null(yk_last_error());
        assert_true(yk_last_error()->code == YK_ERR_UNSUPPORTED || yk_last_error()->code == YK_ERR_DEVICE);
        yk_clear_error();
    }
    assert_null(yk_cuda(x, -2));
    expect_error(YK_ERR_DEVICE, "cuda: -2 is not the number of a GPU");
    yk_scope_end(scope);
}

static void *current_of_a_thread(void *seen)
{
    *(int *)seen = yk_current_device(test_device_type).index;
    return NULL;
}

static void the_current_device(void **state)
{
    (void)state;
    yk_device device, third = test_device(2);
    assert_true(yk_device_equal(yk_current_device(test_device_type), test_device(0)));
    expect_ok(yk_set_device(third));
    expect_ok(yk_device_parse(test_device_type == YK_CPU ? "cpu" : "cuda", &device));
    assert_true(yk_device_equal(device, third));
    expect_ok(yk_device_parse(device_text("cpu:1"), &device));
    assert_true(yk_device_equal(device, second));
    yk_device outer = yk_device_guard_begin(second), inner = yk_device_guard_begin(test_device(3));
    assert_int_equal(yk_current_device(test_device_type).index, 3);
    int seen = -1;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, current_of_a_thread, &seen), 0);
    pthread_join(thread, NULL);
    assert_int_equal(seen, 0);
    yk_device_guard_end(inner);
    assert_int_equal(yk_current_device(test_device_type).index, 1);
    yk_device_guard_end(outer);
    assert_int_equal(yk_current_device(test_device_type).index, 2);
    assert_int_equal(yk_set_device(test_device(4)), YK_ERR_DEVICE);
    expect_error(YK_ERR_DEVICE, device_text("cpu:4 does not exist: there are 4 cpu devices"));
    yk_device unchanged = yk_device_guard_begin(test_device(-1));
    expect_error(YK_ERR_DEVICE, device_text("cpu:-1 does not exist"));
    assert_int_equal(unchanged.index, 2);
    assert_int_equal(yk_current_device(test_device_type).index, 2);
    if (test_device_type == YK_CPU) {
        assert_int_equal(yk_current_device(YK_CUDA).index, 0);
        /* Options that name no device go on meaning cpu:0. */
        yk_scope scope = yk_scope_begin();
        assert_int_equal(yk_tensor_device(yk_zeros(YK_SHAPE(1), NULL)).index, 0);
        yk_scope_end(scope);
    }
    expect_ok(yk_set_device(test_device(0)));
}

int main(void)
{
    use_devices(4);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_with_options),  cmocka_unit_test(new_of_another_shape),
        cmocka_unit_test(types_have_names),   cmocka_unit_test(moves_that_change_nothing),
        cmocka_unit_test(the_current_device),
    };
    return cmocka_run_group_tests_name("tensor/like", tests, NULL, NULL);
}
