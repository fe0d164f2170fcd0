/*
 * wrong_numbers_test.c - sizes whose products fit no integer, and numbers that no enum has: errors, in the name of the
 * function that was called, and no arithmetic that overflows (which the sanitizers see).
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/yoke.h>

#define HUGE_SIZE (INT64_C(1) << 62)

#define expect_refused(call, code, text)                                                                               \
    do {                                                                                                               \
        assert_null(call);                                                                                             \
        expect_error(code, text);                                                                                      \
    } while (0)

static void test_sizes(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *image = yk_ones(YK_SHAPE(1, 2, 4, 4), NULL), *one = yk_scalar(1, NULL);
    yk_tensor *none = yk_ones(YK_SHAPE(0, 2), NULL);
    expect_refused(yk_adaptive_avg_pool2d(image, HUGE_SIZE, 3), YK_ERR_SHAPE,
                   "adaptive_avg_pool2d: shape (1, 2, 4611686018427387904, 3) has more elements than fit in memory");
    expect_refused(yk_expand(one, YK_SHAPE(HUGE_SIZE, HUGE_SIZE)), YK_ERR_SHAPE,
                   "expand: shape (4611686018427387904, 4611686018427387904) has more elements than fit in memory");
    expect_refused(yk_reshape(none, YK_SHAPE(0, HUGE_SIZE, HUGE_SIZE)), YK_ERR_SHAPE,
                   "reshape: shape (0, 4611686018427387904, 4611686018427387904) has more elements than fit");
    expect_refused(yk_view(none, YK_SHAPE(0, HUGE_SIZE, HUGE_SIZE)), YK_ERR_SHAPE,
                   "view: shape (0, 4611686018427387904, 4611686018427387904) has more elements than fit");
    expect_refused(yk_eye(HUGE_SIZE, 9, NULL), YK_ERR_SHAPE, "eye: shape (4611686018427387904, 9) has more elements");
    expect_refused(yk_multinomial(yk_ones(YK_SHAPE(3), NULL), HUGE_SIZE, true), YK_ERR_SHAPE,
                   "multinomial: shape (4611686018427387904,) has more elements than fit in memory");
    expect_refused(yk_conv2d_create(HUGE_SIZE, 16, 3, NULL), YK_ERR_SHAPE,
                   "conv2d_create: shape (16, 4611686018427387904, 3, 3) has more elements than fit in memory");
    expect_refused(yk_resnet18(YK_OPTIONS(yk_resnet_options, .in_channels = HUGE_SIZE)), YK_ERR_ARGUMENT,
                   "resnet18: in_channels is 4611686018427387904, it must be at least 1 and below 2^31");
    expect_refused(yk_lenet(YK_OPTIONS(yk_lenet_options, .image_size = HUGE_SIZE)), YK_ERR_ARGUMENT,
                   "lenet: image_size is 4611686018427387904, it must be at least 16 and below 2^31");
    expect_refused(yk_model("mlp", YK_OPTIONS(yk_model_options, .image_size = INT32_MAX, .in_channels = 4)),
                   YK_ERR_ARGUMENT,
                   "mlp: an image of 4 channels and 2147483647 by 2147483647 has more numbers than fit in memory");
    yk_scope_end(scope);
}

static void test_indices(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    static const int64_t far[2] = {INT64_MAX, INT64_MIN};
    yk_tensor *x = yk_ones(YK_SHAPE(4, 4), NULL);
    for (int i = 0; i < 2; i++) {
        yk_tensor *index = yk_from_data(&far[i], YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
        char text[60];
        snprintf(text, sizeof(text), "%lld", (long long)far[i]);
        expect_refused(finished(yk_index_select(x, 0, index)), YK_ERR_ARGUMENT, text);
        expect_refused(finished(yk_take(x, index)), YK_ERR_ARGUMENT, text);
        expect_refused(finished(yk_take_along_dim(x, yk_reshape(index, YK_SHAPE(1, 1)), 0)), YK_ERR_ARGUMENT, text);
        expect_refused(finished(yk_index(x, YK_INDEX(yk_by(index), yk_by(index)))), YK_ERR_ARGUMENT, text);
        yk_tensor *pair = yk_expand(index, YK_SHAPE(2)); /* an index that does not move */
        expect_refused(finished(yk_index(x, YK_INDEX(yk_by(pair), yk_by(pair)))), YK_ERR_ARGUMENT, text);
    }
    yk_tensor *most = yk_from_data(far, YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    expect_refused(yk_bincount(most, NULL, 0), YK_ERR_SHAPE,
                   "bincount: shape (9223372036854775807,) has more elements than fit in memory");
    expect_refused(yk_one_hot(most, -1), YK_ERR_SHAPE, "shape (9223372036854775807,) has more elements than fit");
    yk_scope_end(scope);
}

static void test_enums(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    expect_refused(yk_linspace(0, 1, 5, YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)9)), YK_ERR_DTYPE,
                   "linspace: 9 is not a dtype");
    expect_refused(yk_linspace(0, 1, 5, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .requires_grad = true)),
                   YK_ERR_DTYPE, "linspace: only floating tensors can require a gradient");
    expect_refused(yk_eye(2, 2, YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)9)), YK_ERR_DTYPE,
                   "eye: 9 is not a dtype");
    /* A question has no error: what is no dtype counts for nothing. */
    assert_int_equal(yk_dtype_promote((yk_dtype)99, YK_I32), YK_I32);
    assert_int_equal(yk_dtype_promote(YK_U8, (yk_dtype)-1), YK_U8);
    yk_scope_end(scope);
}

/* More inputs than a word has bits, one of them NULL. */
static void test_many_inputs(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *xs[40];
    for (int i = 0; i < 40; i++)
        xs[i] = yk_ones(YK_SHAPE(2), NULL);
    assert_int_equal(yk_size(yk_stack(xs, 40, 0), 0), 40);
    xs[35] = NULL;
    expect_refused(yk_stack(xs, 40, 0), YK_ERR_ARGUMENT, "stack: argument 36 is NULL");
    yk_module *modules[2] = {yk_relu_create(), yk_gelu_create()};
    assert_int_equal(yk_parallel_apply(modules, 2, NULL, INT32_MIN, xs, INT32_MIN), YK_ERR_ARGUMENT);
    yk_clear_error();
    assert_int_equal(yk_parallel_apply(modules, INT32_MIN, xs, 4, xs, 4), YK_ERR_ARGUMENT);
    expect_error(YK_ERR_ARGUMENT, "parallel_apply: -2147483648 replicas, 4 inputs and 4 outputs");
    yk_scope_end(scope);
}

static int64_t asked[4];

static yk_tensor *give_back(yk_module *m, yk_tensor *x)
{
    (void)m;
    return x;
}

static bool ask(yk_module *m, const yk_tensor *parameter, yk_dtype dtype, yk_device device, int64_t *stride)
{
    (void)m, (void)dtype, (void)device;
    memcpy(stride, asked, sizeof(asked[0]) * (size_t)yk_ndim(parameter));
    return true;
}

/* Strides that a module class of the program's gives: those that are not dense would lead out of the memory. */
static void test_strides(void **state)
{
    (void)state;
    static const yk_module_class own = {.name = "Own", .forward = give_back, .parameter_strides = ask};
    static const int64_t wrong[][4] = {{INT64_MAX, 1, 1, 1}, {0, 0, 0, 0}, {24, 8, 2, 1}, {-12, 4, 4, 1}, {2, 4, 1, 8}};
    static const int64_t right[][4] = {{12, 4, 77, 1}, {1, 2, 0, 6}, {4, 8, 4, 1}};
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_module_create(&own);
    yk_tensor *x = yk_module_add_parameter(m, "w", yk_randn(YK_SHAPE(2, 3, 1, 4), NULL));
    yk_tensor *kept = yk_clone(yk_detach(x));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        memcpy(asked, wrong[i], sizeof(asked));
        assert_null(yk_module_to_dtype(m, YK_F64));
        expect_error(YK_ERR_ARGUMENT, "w: parameter_strides of Own gives");
        assert_int_equal(yk_tensor_dtype(x), YK_F32);
    }
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        memcpy(asked, right[i], sizeof(asked));
        assert_non_null(yk_module_to_dtype(m, i % 2 ? YK_F32 : YK_F64));
        assert_int_equal(yk_stride(x, 1), right[i][1]);
        assert_true(yk_all_close(yk_cast(x, YK_F32), kept, 0, 0, false));
    }
    yk_scope_end(scope);
}

/* The errors of an operation that is composed of others have its own name. */
static void test_names(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *a = yk_ones(YK_SHAPE(2, 3), NULL), *b = yk_ones(YK_SHAPE(4), NULL), *one = yk_scalar(1, NULL);
    expect_refused(yk_lerp(a, b, one), YK_ERR_SHAPE, "lerp: shapes (2, 3) and (4,) do not broadcast");
    expect_refused(yk_lerp(a, one, b), YK_ERR_SHAPE, "lerp: shapes (2, 3) and (4,) do not broadcast");
    expect_refused(yk_lerp_scalar(a, b, 0.5), YK_ERR_SHAPE, "lerp: shapes (2, 3) and (4,) do not broadcast");
    expect_refused(yk_addcmul(a, one, b, 1), YK_ERR_SHAPE, "addcmul: shapes (2, 3) and (4,) do not broadcast");
    expect_refused(yk_addcdiv(one, a, b, 1), YK_ERR_SHAPE, "addcdiv: shapes (2, 3) and (4,) do not broadcast");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_indices), cmocka_unit_test(test_enums),
        cmocka_unit_test(test_many_inputs), cmocka_unit_test(test_strides), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("wrong numbers", tests, NULL, NULL);
}
