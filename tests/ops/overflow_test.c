/*
 * overflow_test.c - sizes, strides, padding and dilation that do not fit: an error that names them, never a wrapped
 * number.
 */
#include "tests/support/expect.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

enum { HUGE_SHIFT = 62 };

static void test_expand(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(2, (int64_t[]){1, 4}, NULL);
    assert_null(yk_expand(x, 2, (int64_t[]){((int64_t)1 << HUGE_SHIFT) + 1, 4}));
    expect_error(YK_ERR_SHAPE, "(4611686018427387905, 4)");
    assert_null(yk_expand(yk_ones(1, (int64_t[]){1}, NULL), 2, (int64_t[]){INT64_MAX, INT64_MAX}));
    expect_error(YK_ERR_SHAPE, "9223372036854775807");
    /* A tensor without elements has the same limit. */
    yk_tensor *none = yk_ones(2, (int64_t[]){1, 0}, NULL);
    assert_null(yk_expand(none, 3, (int64_t[]){(int64_t)1 << 40, (int64_t)1 << 40, 0}));
    expect_error(YK_ERR_SHAPE, "1099511627776");
    yk_tensor *many = yk_expand(x, 2, (int64_t[]){(int64_t)1 << 50, 4});
    assert_non_null(many);
    assert_true(yk_numel(many) == (int64_t)1 << 52);
    /* Results made of it: a sum of sizes, and a product. */
    yk_tensor *wide = yk_expand(yk_ones(1, (int64_t[]){1}, NULL), 1, (int64_t[]){(int64_t)1 << 58});
    yk_tensor *list[64];
    for (int i = 0; i < 64; i++)
        list[i] = wide;
    assert_null(yk_cat(list, 64, 0));
    expect_error(YK_ERR_SHAPE, "more elements than fit in memory");
    assert_null(yk_stack(list, 64, 0));
    expect_error(YK_ERR_SHAPE, "more elements than fit in memory");
    assert_null(yk_add(yk_reshape(wide, 2, (int64_t[]){-1, 1}), wide));
    expect_error(YK_ERR_SHAPE, "more elements than fit in memory");
    yk_scope_end(scope);
}

static void test_slice(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(2, (int64_t[]){3, 8}, NULL), *part = yk_slice(x, 0, 1, YK_END, INT64_MAX);
    assert_non_null(part);
    assert_int_equal(yk_numel(part), 8);
    assert_true(yk_item(yk_sum(part)) == 8);
    yk_scope_end(scope);
}

/* Each of stride, padding and dilation, alone and with the others. */
static void test_windows(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(4, (int64_t[]){1, 1, 4, 4}, NULL), *w = yk_ones(4, (int64_t[]){1, 1, 3, 3}, NULL);
    static const int64_t sizes[] = {INT64_MAX, INT64_MAX / 2, ((int64_t)1 << 62) + 1, (int64_t)1 << 33};
    for (int i = 0; i < 4; i++) {
        int64_t n = sizes[i];
        assert_null(yk_conv2d(x, w, NULL, YK_OPTIONS(yk_conv2d_options, .padding = {n, 0})));
        expect_error(YK_ERR_ARGUMENT, "of the height is not possible");
        assert_null(yk_conv2d(x, w, NULL, YK_OPTIONS(yk_conv2d_options, .dilation = {1, n})));
        expect_error(YK_ERR_ARGUMENT, "of the width is not possible");
        assert_null(yk_conv2d(x, w, NULL, YK_OPTIONS(yk_conv2d_options, .stride = {n, 1})));
        expect_error(YK_ERR_ARGUMENT, "of the height is not possible");
        assert_null(yk_conv2d(x, w, NULL, YK_OPTIONS(yk_conv2d_options, .groups = n)));
        expect_error(YK_ERR_SHAPE, "groups");
        assert_null(yk_max_pool2d(x, YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2}, .dilation = {n, 1})));
        expect_error(YK_ERR_ARGUMENT, "of the height is not possible");
        assert_null(yk_max_pool2d(x, YK_OPTIONS(yk_pool2d_options, .kernel = {2, n})));
        expect_error(YK_ERR_ARGUMENT, "of the width is not possible");
        assert_null(
            yk_avg_pool2d(x, YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2}, .stride = {n, 1}, .ceil_mode = true)));
        expect_error(YK_ERR_ARGUMENT, "of the height is not possible");
        assert_null(yk_avg_pool2d(x, YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2}, .padding = {n, 0})));
        expect_error(YK_ERR_ARGUMENT, "of the height is not possible");
    }
    /* Sizes that can be counted, but are too large for memory. */
    assert_null(yk_conv2d(x, w, NULL, YK_OPTIONS(yk_conv2d_options, .padding = {INT32_MAX, INT32_MAX})));
    assert_non_null(yk_last_error());
    yk_clear_error();
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expand),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_windows),
    };
    return cmocka_run_group_tests_name("ops/overflow", tests, NULL, NULL);
}
