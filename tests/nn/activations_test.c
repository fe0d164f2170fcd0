/*
 * activations_test.c - activations as layers: their operation, their text, and what is refused; integer quotients and
 * paddings of other dtypes, and errors of losses, which the tables of losses_test.c do not reach.
 */
#include "tests/support/expect.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#include <yoke/nn.h>
#include <yoke/ops.h>

static const yk_tensor_options *const i64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);

static bool same(yk_tensor *a, yk_tensor *b)
{
    assert_true(a && b);
    return yk_item(yk_all(yk_eq(a, b))) == 1;
}

static void text_of(yk_module *m, char *text, size_t size)
{
    FILE *to = fmemopen(text, size, "w");
    assert_non_null(to);
    expect_ok(yk_module_print(to, m));
    fclose(to);
    text[strcspn(text, "\n")] = 0;
}

static void test_layers(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_mul_scalar(yk_randn(YK_SHAPE(4, 6), NULL), 3);
    const struct {
        yk_module *m;
        yk_tensor *expected;
        const char *text;
    } layers[] = {
        {yk_silu_create(), yk_silu(x), "SiLU()"},
        {yk_mish_create(), yk_mish(x), "Mish()"},
        {yk_gelu_tanh_create(), yk_gelu_tanh(x), "GELU(approximate='tanh')"},
        {yk_relu6_create(), yk_relu6(x), "ReLU6()"},
        {yk_selu_create(), yk_selu(x), "SELU()"},
        {yk_hardswish_create(), yk_hardswish(x), "Hardswish()"},
        {yk_hardsigmoid_create(), yk_hardsigmoid(x), "Hardsigmoid()"},
        {yk_log_sigmoid_create(), yk_log_sigmoid(x), "LogSigmoid()"},
        {yk_leaky_relu_create(0.2), yk_leaky_relu(x, 0.2), "LeakyReLU(negative_slope=0.2)"},
        {yk_elu_create(1), yk_elu(x, 1), "ELU(alpha=1.0)"},
        {yk_softplus_create(2, 20), yk_softplus(x, 2, 20), "Softplus(beta=2.0, threshold=20.0)"},
        {yk_prelu_create(1, 0.25), yk_leaky_relu(x, 0.25), "PReLU(num_parameters=1)"},
        {yk_glu_create(-1), yk_glu(x, -1), "GLU(dim=-1)"},
        {yk_softmax_create(1), yk_softmax(x, 1), "Softmax(dim=1)"},
        {yk_log_softmax_create(0), yk_log_softmax(x, 0), "LogSoftmax(dim=0)"},
        {yk_function_create(yk_square), yk_square(x), "Function()"},
    };
    for (size_t i = 0; i < sizeof(layers) / sizeof(*layers); i++) {
        char text[200];
        assert_non_null(layers[i].m);
        text_of(layers[i].m, text, sizeof(text));
        assert_string_equal(text, layers[i].text);
        assert_true(same(yk_forward(layers[i].m, x), layers[i].expected));
    }
    yk_module *prelu = yk_prelu_create(6, 0.5);
    expect_ok(yk_backward(yk_sum(yk_forward(prelu, x))));
    assert_non_null(yk_grad(yk_module_get(prelu, "weight")));
    assert_null(yk_function_create(NULL));
    expect_error(YK_ERR_ARGUMENT, "function_create: the function is NULL");
    assert_null(yk_prelu_create(0, 0.25));
    expect_error(YK_ERR_ARGUMENT, "prelu_create: num_parameters is 0");
    assert_null(yk_softplus_create(0, 20));
    expect_error(YK_ERR_ARGUMENT, "softplus_create: beta is 0");
    yk_scope_end(scope);
}

static void test_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(2, 3), NULL), *whole = yk_ones(YK_SHAPE(2, 3), i64);
    assert_null(yk_silu(whole));
    expect_error(YK_ERR_DTYPE, "silu: expected a floating input, this one is int64");
    assert_null(yk_leaky_relu(x, NAN));
    expect_error(YK_ERR_ARGUMENT, "leaky_relu: negative_slope is nan");
    assert_null(yk_glu(x, 1));
    expect_error(YK_ERR_SHAPE, "glu: dimension 1 of (2, 3), which is to be halved, has an odd size");
    assert_null(yk_prelu(x, yk_ones(YK_SHAPE(2), NULL)));
    expect_error(YK_ERR_SHAPE, "prelu: weight (2,) for input (2, 3), expected one number, or one for each of its 3");
    if (yk_tensor_device(x).type == YK_CPU) { /* elsewhere nothing waits for values, or the error comes later */
        assert_null(yk_binary_cross_entropy(yk_mul_scalar(x, 1.5), x, NULL));
        expect_error(YK_ERR_ARGUMENT, "binary_cross_entropy: input has the value 1.5, expected all between 0 and 1");
        assert_null(yk_gaussian_nll_loss(x, x, yk_neg(x), NULL));
        expect_error(YK_ERR_ARGUMENT, "gaussian_nll_loss: var has the value -1, expected all between 0 and inf");
        assert_null(yk_nll_loss(x, yk_full(YK_SHAPE(2), 3, i64), NULL));
        expect_error(YK_ERR_ARGUMENT, "gather_dim: index 3");
    }
    assert_null(yk_l1_loss(x, yk_ones(YK_SHAPE(3), NULL), YK_REDUCE_MEAN));
    expect_error(YK_ERR_SHAPE, "l1_loss: input (2, 3) and target (3,); the shapes must be equal");
    assert_null(yk_l1_loss(x, x, (yk_reduction)YK_REDUCE_BATCHMEAN));
    expect_error(YK_ERR_ARGUMENT, "l1_loss: reduction 3 is none of mean, sum and none");
    assert_null(yk_huber_loss(x, x, 0, YK_REDUCE_MEAN));
    expect_error(YK_ERR_ARGUMENT, "huber_loss: delta is 0");
    assert_null(yk_nll_loss(x, x, NULL));
    expect_error(YK_ERR_SHAPE, "nll_loss: input (2, 3) and target (2, 3), expected (N, C, ...) and (N, ...)");
    assert_null(yk_binary_cross_entropy_with_logits(
        x, x, YK_OPTIONS(yk_binary_cross_entropy_options, .pos_weight = yk_ones(YK_SHAPE(2), NULL))));
    expect_error(YK_ERR_SHAPE,
                 "binary_cross_entropy_with_logits: pos_weight (2,) does not broadcast to the input's (2, 3)");
    yk_scope inner = yk_scope_begin();
    yk_tensor *gone = yk_ones(YK_SHAPE(3), NULL);
    yk_scope_end(inner);
    assert_null(yk_binary_cross_entropy(x, x, YK_OPTIONS(yk_binary_cross_entropy_options, .weight = gone)));
    expect_error(YK_ERR_STATE, "binary_cross_entropy: "); /* freed; with YOKE_DEBUG also where */
    assert_null(yk_pad(x, (int64_t[]){1, 2, 3}, 3, YK_PAD_CONSTANT, 0));
    expect_error(YK_ERR_ARGUMENT, "pad: 3 widths for (2, 3), expected two for each of its last dimensions");
    assert_null(yk_pad(x, (int64_t[]){3, 0}, 2, YK_PAD_REFLECT, 0));
    expect_error(YK_ERR_SHAPE, "pad: a border of 3 at dimension 1 of (2, 3); in mode reflect it is at most 2");
    assert_null(yk_pad(x, (int64_t[]){-2, -2}, 2, YK_PAD_CONSTANT, 0));
    expect_error(YK_ERR_SHAPE, "pad: widths -2 and -2 at dimension 1 of (2, 3) are not possible");
    yk_scope_end(scope);
}

/* Numbers that no double holds, and all signs. */
static void test_whole_quotients(void **state)
{
    (void)state;
    static const int64_t a[] = {7, -7, 7, -7, (1LL << 62) + 1, INT64_MIN, INT64_MIN, 0, 123456789012345677};
    static const int64_t b[] = {2, 2, -2, -2, 3, -1, 7, 5, 1000};
    static const int64_t floored[] = {
        3, -4, -4, 3, 1537228672809129301, INT64_MIN, -1317624576693539402, 0, 123456789012345};
    static const int64_t left[] = {1, 1, -1, -1, 2, 0, 6, 0, 677};
    static const int64_t cut[] = {
        3, -3, -3, 3, 1537228672809129301, INT64_MIN, -1317624576693539401, 0, 123456789012345};
    static const int64_t rest[] = {1, -1, 1, -1, 2, 0, -1, 0, 677};
    enum { N = sizeof(a) / sizeof(*a) };
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_from_data(a, YK_SHAPE(N), i64), *y = yk_from_data(b, YK_SHAPE(N), i64);
    const struct {
        yk_tensor *got;
        const int64_t *expected;
    } results[] = {{yk_floor_divide(x, y), floored},
                   {yk_remainder(x, y), left},
                   {yk_trunc_divide(x, y), cut},
                   {yk_fmod(x, y), rest}};
    for (int r = 0; r < 4; r++) {
        int64_t got[N];
        assert_non_null(results[r].got);
        assert_int_equal(yk_tensor_dtype(results[r].got), YK_I64);
        expect_ok(yk_tensor_read(results[r].got, got, sizeof(got)));
        for (int i = 0; i < N; i++)
            assert_int_equal(got[i], results[r].expected[i]);
    }
    yk_tensor *big = yk_full(YK_SHAPE(1), 0, i64);
    expect_ok(yk_tensor_write(big, (int64_t[]){(1LL << 53) + 3}, sizeof(int64_t)));
    assert_int_equal(yk_item_i64(yk_floor_divide_scalar(big, 2)), (1LL << 52) + 1);
    assert_int_equal(yk_item_i64(yk_remainder_scalar(big, 2)), 1);
    assert_int_equal(yk_tensor_dtype(yk_floor_divide_scalar(big, 0.5)), YK_F32);
    expect_near(yk_item(yk_remainder_scalar(yk_scalar(-7.5, NULL), 2)), 0.5, 0, 0);
    if (yk_tensor_device(big).type == YK_CPU) {
        assert_null(yk_floor_divide(big, yk_zeros(YK_SHAPE(1), i64)));
        expect_error(YK_ERR_ARGUMENT, "floor_divide: integers are divided by a tensor that has a zero");
        assert_null(yk_remainder_scalar(big, 0));
        expect_error(YK_ERR_ARGUMENT, "remainder: integers are divided by a tensor that has a zero");
    }
    assert_true(isinf(yk_item(yk_floor_divide(yk_scalar(1, NULL), yk_scalar(0, NULL)))));
    yk_scope_end(scope);
}

static void test_pad_of_integers(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_reshape(yk_arange(0, 6, 1, i64), YK_SHAPE(2, 3));
    int64_t got[20];
    yk_tensor *y = yk_pad(x, (int64_t[]){1, 1, 1, -1}, 4, YK_PAD_CONSTANT, 9);
    assert_true(y && yk_size(y, 0) == 2 && yk_size(y, 1) == 5);
    expect_ok(yk_tensor_read(y, got, sizeof(int64_t) * 10));
    static const int64_t expected[] = {9, 9, 9, 9, 9, 9, 0, 1, 2, 9};
    for (int i = 0; i < 10; i++)
        assert_int_equal(got[i], expected[i]);
    y = yk_pad(x, (int64_t[]){2, 2}, 2, YK_PAD_REFLECT, 0);
    assert_true(y && yk_size(y, 1) == 7);
    static const int64_t mirrored[] = {2, 1, 0, 1, 2, 1, 0};
    expect_ok(yk_tensor_read(yk_contiguous(yk_narrow(y, 0, 0, 1)), got, sizeof(int64_t) * 7));
    for (int i = 0; i < 7; i++)
        assert_int_equal(got[i], mirrored[i]);
    assert_true(same(yk_pad(x, NULL, 0, YK_PAD_CONSTANT, 0), x));
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_whole_quotients),
        cmocka_unit_test(test_pad_of_integers),
    };
    return cmocka_run_group_tests_name("activations", tests, NULL, NULL);
}
