/* access_test.c - elements to and from the host: item, get, read and write. */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/autograd.h>

#include "tensor/tensor.h"

static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8, YK_BOOL};
enum { DTYPES = sizeof(dtypes) / sizeof(dtypes[0]) };

static void item_of_every_dtype(void **state)
{
    (void)state;
    for (int i = 0; i < DTYPES; i++) {
        for (int16_t device = 0; device < 2; device++) {
            yk_scope scope = yk_scope_begin();
            yk_tensor_options options =
                *YK_OPTIONS(yk_tensor_options, .dtype = dtypes[i], .device = test_device(device));
            double value = dtypes[i] == YK_BOOL ? 1 : 3;
            assert_true(yk_item(yk_scalar(value, &options)) == value);
            assert_int_equal(yk_item_i64(yk_full(YK_SHAPE(1, 1), value, &options)), (int64_t)value);
            yk_scope_end(scope);
        }
    }
    yk_scope scope = yk_scope_begin();
    int64_t large = INT64_MAX - 1;
    yk_tensor_options integers = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    assert_int_equal(yk_item_i64(yk_from_data(&large, YK_SCALAR, &integers)), large);
    assert_true(isnan(yk_item(yk_zeros(YK_SHAPE(2, 1), NULL))));
    expect_error(YK_ERR_SHAPE, "item: shape (2, 1) has 2 elements, expected one");
    assert_int_equal(yk_item_i64(yk_zeros(YK_SHAPE(0), NULL)), 0);
    expect_error(YK_ERR_SHAPE, "item: shape (0,) has 0 elements");
    assert_true(isnan(yk_item(NULL)));
    expect_error(YK_ERR_ARGUMENT, "item: the tensor is NULL");
    yk_scope_end(scope);
}

static void get_by_index(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    float numbers[24];
    for (int i = 0; i < 24; i++)
        numbers[i] = (float)i;
    yk_tensor *x = yk_from_data(numbers, YK_SHAPE(2, 3, 4), NULL);
    yk_tensor *turned = yk__tensor_view(x, 3, (int64_t[]){4, 2, 3}, (int64_t[]){1, 12, 4}, 0);
    for (int64_t i = 0; i < 2; i++) {
        for (int64_t j = 0; j < 3; j++) {
            for (int64_t k = 0; k < 4; k++) {
                double expected = (double)(12 * i + 4 * j + k);
                assert_true(yk_get(x, (int64_t[]){i, j, k}) == expected);
                assert_true(yk_get(x, (int64_t[]){i - 2, j - 3, k - 4}) == expected);
                assert_true(yk_get(turned, (int64_t[]){k, i, j}) == expected);
            }
        }
    }
    static const int64_t outside[][3] = {{2, 0, 0}, {0, 3, 0}, {0, 0, 4}, {-3, 0, 0}, {0, 0, INT64_MIN}};
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
        assert_true(isnan(yk_get(x, outside[i])));
        expect_error(YK_ERR_SHAPE, "is outside shape (2, 3, 4)");
    }
    assert_true(isnan(yk_get(x, NULL)));
    expect_error(YK_ERR_ARGUMENT, "get: the index is NULL");
    assert_true(yk_get(yk_scalar(5, NULL), NULL) == 5);
    assert_true(isnan(yk_get(NULL, NULL)));
    expect_error(YK_ERR_ARGUMENT, "get: the tensor is NULL");
    yk_tensor_release(turned);
    yk_scope_end(scope);
}

static void read_in_c_order(void **state)
{
    (void)state;
    for (int16_t device = 0; device < 2; device++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I32, .device = test_device(device));
        int32_t numbers[] = {1, 2, 3, 4, 5, 6}, back[6];
        yk_tensor *x = yk_from_data(numbers, YK_SHAPE(2, 3), &options);
        yk_tensor *turned = yk__tensor_view(x, 2, (int64_t[]){3, 2}, (int64_t[]){1, 3}, 0);
        yk_tensor *repeated = yk__tensor_view(x, 2, (int64_t[]){2, 3}, (int64_t[]){0, 1}, 3);
        expect_ok(yk_tensor_read(x, back, sizeof(back)));
        assert_memory_equal(back, numbers, sizeof(back));
        expect_ok(yk_tensor_read(turned, back, sizeof(back)));
        assert_memory_equal(back, ((int32_t[]){1, 4, 2, 5, 3, 6}), sizeof(back));
        expect_ok(yk_tensor_read(repeated, back, sizeof(back)));
        assert_memory_equal(back, ((int32_t[]){4, 5, 6, 4, 5, 6}), sizeof(back));
        expect_ok(yk_tensor_read(yk_zeros(YK_SHAPE(3, 0), &options), NULL, 0));
        assert_int_equal(yk_tensor_read(x, back, 20), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "tensor_read: shape (2, 3) of int32 has 24 bytes, 20 were given");
        assert_int_equal(yk_tensor_read(x, NULL, 24), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "tensor_read: the data is NULL");
        assert_int_equal(yk_tensor_read(NULL, back, 24), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "tensor_read: the tensor is NULL");
        yk_tensor_release(turned);
        yk_tensor_release(repeated);
        yk_scope_end(scope);
    }
}

static void write_in_c_order(void **state)
{
    (void)state;
    for (int16_t device = 0; device < 2; device++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = test_device(device));
        double numbers[] = {1, 2, 3, 4, 5, 6}, back[6];
        yk_tensor *x = yk_zeros(YK_SHAPE(2, 3), &options);
        yk_tensor *turned = yk__tensor_view(x, 2, (int64_t[]){3, 2}, (int64_t[]){1, 3}, 0);
        uint32_t version = yk_tensor_version(x);
        expect_ok(yk_tensor_write(x, numbers, sizeof(numbers)));
        assert_int_equal(yk_tensor_version(x), version + 1);
        assert_int_equal(yk_tensor_version(turned), version + 1); /* one storage, one version */
        expect_ok(yk_tensor_read(x, back, sizeof(back)));
        assert_memory_equal(back, numbers, sizeof(back));
        expect_ok(yk_tensor_write(turned, numbers, sizeof(numbers)));
        assert_int_equal(yk_tensor_version(x), version + 2);
        expect_ok(yk_tensor_read(x, back, sizeof(back)));
        assert_memory_equal(back, ((double[]){1, 3, 5, 2, 4, 6}), sizeof(back));
        yk_tensor *leaf = yk_zeros(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
        assert_int_equal(yk_tensor_write(leaf, (float[]){1, 2}, 8), YK_ERR_STATE);
        expect_error(YK_ERR_STATE, "tensor_write: a leaf that requires a gradient cannot be changed in place");
        bool previous = yk_no_grad_begin();
        expect_ok(yk_tensor_write(leaf, (float[]){1, 2}, 8));
        yk_no_grad_end(previous);
        assert_true(yk_get(leaf, (int64_t[]){1}) == 2);
        assert_int_equal(yk_tensor_write(x, numbers, 8), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "tensor_write: shape (2, 3) of float64 has 48 bytes, 8 were given");
        assert_int_equal(yk_tensor_write(x, NULL, sizeof(numbers)), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "tensor_write: the data is NULL");
        assert_int_equal(yk_tensor_write(NULL, numbers, 8), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, "tensor_write: the tensor is NULL");
        assert_int_equal(yk_tensor_version(x), version + 2); /* the calls that failed wrote nothing */
        yk_tensor_release(turned);
        yk_scope_end(scope);
    }
}

static void data_is_the_first_element(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    float numbers[] = {1, 2, 3, 4};
    yk_tensor *x = yk_from_data(numbers, YK_SHAPE(4), NULL);
    yk_tensor *tail = yk__tensor_view(x, 1, (int64_t[]){2}, (int64_t[]){1}, 2);
    assert_ptr_equal(data_ptr(tail), (const float *)data_ptr(x) + 2);
    if (test_device_type == YK_CPU) {
        assert_true(*(float *)yk_tensor_data(tail) == 3);
        ((float *)yk_tensor_data(x))[3] = 9;
        assert_true(yk_get(tail, (int64_t[]){1}) == 9);
    } else {
        assert_null(yk_tensor_data(x));
        expect_error(YK_ERR_DEVICE, "tensor_data: the tensor is on cuda:0, whose memory the host cannot reach");
    }
    assert_null(yk_tensor_data(NULL));
    expect_error(YK_ERR_ARGUMENT, "tensor_data: the tensor is NULL");
    yk_tensor_release(tail);
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(item_of_every_dtype),       cmocka_unit_test(get_by_index),
        cmocka_unit_test(read_in_c_order),           cmocka_unit_test(write_in_c_order),
        cmocka_unit_test(data_is_the_first_element),
    };
    return cmocka_run_group_tests_name("tensor/access", tests, NULL, NULL);
}
