/*
 * shrink_module_test.c - layers that draw at random, and layers of two inputs: what they compute, their text, and what
 * is refused. The others are rows of more_layers_test.c.
 */
#include "tests/support/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <yoke/nn.h>

static bool same(yk_tensor *a, yk_tensor *b)
{
    assert_true(a && b);
    return yk_item(yk_all(yk_eq(a, b))) == 1;
}

static double most(yk_tensor *x)
{
    assert_non_null(x);
    return yk_item(yk_max(x));
}

static double least(yk_tensor *x)
{
    assert_non_null(x);
    return yk_item(yk_min(x));
}

static void expect_text(yk_module *m, const char *expected)
{
    char text[200] = "";
    FILE *to = fmemopen(text, sizeof(text), "w");
    assert_non_null(to);
    expect_ok(yk_module_print(to, m));
    fclose(to);
    text[strcspn(text, "\n")] = 0;
    assert_string_equal(text, expected);
}

static void test_texts(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    expect_text(yk_rrelu_create(0.125, 0.5), "RReLU(lower=0.125, upper=0.5)");
    expect_text(yk_dropout1d_create(0.5), "Dropout1d(p=0.5, inplace=False)");
    expect_text(yk_dropout2d_create(0.25), "Dropout2d(p=0.25, inplace=False)");
    expect_text(yk_dropout3d_create(0.5), "Dropout3d(p=0.5, inplace=False)");
    expect_text(yk_alpha_dropout_create(0.5), "AlphaDropout(p=0.5, inplace=False)");
    expect_text(yk_feature_alpha_dropout_create(0.5), "FeatureAlphaDropout(p=0.5, inplace=False)");
    expect_text(yk_bilinear_create(2, 3, 4, NULL),
                "Bilinear(in1_features=2, in2_features=3, out_features=4, bias=True)");
    expect_text(yk_cosine_similarity_create(1, 1e-8), "CosineSimilarity()");
    expect_text(yk_pairwise_distance_create(2, 1e-6, false), "PairwiseDistance()");
    expect_text(yk_max_unpool1d_create(YK_OPTIONS(yk_max_unpool_options, .kernel = {3}, .stride = {2})),
                "MaxUnpool1d(kernel_size=(3,), stride=(2,), padding=(0,))");
    expect_text(yk_max_unpool2d_create(YK_OPTIONS(yk_max_unpool_options, .kernel = {2, 3})),
                "MaxUnpool2d(kernel_size=(2, 3), stride=(2, 3), padding=(0, 0))");
    expect_text(yk_max_unpool3d_create(YK_OPTIONS(yk_max_unpool_options, .kernel = {2, 2, 2})),
                "MaxUnpool3d(kernel_size=(2, 2, 2), stride=(2, 2, 2), padding=(0, 0, 0))");
    yk_scope_end(scope);
}

/* Slopes are in the range, differ, and are the gradient; in evaluation they are the middle one. */
static void test_random_slopes(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(7);
    yk_tensor *x = yk_full(YK_SHAPE(40, 50), -1, NULL), *above = yk_ones(YK_SHAPE(3), NULL);
    expect_ok(yk_set_requires_grad(x, true));
    yk_module *m = yk_rrelu_create(0.125, 0.375);
    yk_tensor *slopes = yk_neg(yk_forward(m, x));
    assert_true(least(slopes) >= 0.125 && least(slopes) < 0.13 && most(slopes) < 0.375 && most(slopes) > 0.37);
    assert_true(fabs(yk_item(yk_mean(slopes)) - 0.25) < 0.01);
    expect_ok(yk_backward(yk_neg(yk_sum(slopes))));
    assert_true(same(yk_grad(x), yk_detach(slopes)));
    assert_true(same(yk_forward(m, above), above));
    yk_module_eval(m);
    assert_true(same(yk_forward(m, x), yk_full(YK_SHAPE(40, 50), -0.25, NULL)));
    yk_scope_end(scope);
}

/* Channels of (N,C,...) are dropped as a whole, a share p of them, and the others are scaled. */
static void expect_channels(yk_module *m, yk_tensor *x, int kept_dims)
{
    expect_ok(yk_set_requires_grad(x, true));
    yk_tensor *y = yk_forward(m, x);
    assert_non_null(y);
    int dims[4], n = 0;
    for (int d = kept_dims; d < yk_ndim(x); d++)
        dims[n++] = d;
    yk_tensor *mean = yk_mean_dims(y, dims, n, false), *four = yk_mul_scalar(yk_ones_like(mean), 4.0 / 3);
    yk_tensor *gone = yk_cast(yk_eq(mean, yk_zeros_like(mean)), YK_F32);
    yk_tensor *kept = yk_cast(yk_is_close(mean, four, 1e-5, 0, false), YK_F32);
    assert_true(same(yk_add(gone, kept), yk_ones_like(mean)));
    double share = yk_item(yk_mean(gone));
    assert_true(share > 0.15 && share < 0.35);
    expect_ok(yk_backward(yk_sum(y)));
    assert_true(same(yk_grad(x), yk_detach(y))); /* x is 1 */
    yk_module_eval(m);
    assert_true(same(yk_forward(m, x), x));
}

static void test_dropped_channels(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(8);
    expect_channels(yk_dropout1d_create(0.25), yk_ones(YK_SHAPE(20, 30, 3), NULL), 2);
    expect_channels(yk_dropout1d_create(0.25), yk_ones(YK_SHAPE(600, 3), NULL), 1);
    expect_channels(yk_dropout2d_create(0.25), yk_ones(YK_SHAPE(20, 30, 2, 2), NULL), 2);
    expect_channels(yk_dropout2d_create(0.25), yk_ones(YK_SHAPE(20, 30, 4), NULL), 2);
    expect_channels(yk_dropout3d_create(0.25), yk_ones(YK_SHAPE(20, 30, 2, 1, 2), NULL), 2);
    expect_channels(yk_dropout3d_create(0.25), yk_ones(YK_SHAPE(600, 2, 1, 2), NULL), 1);
    assert_true(most(yk_dropout2d(yk_ones(YK_SHAPE(4, 4, 2, 2), NULL), 1, true)) == 0);
    assert_true(most(yk_dropout1d(yk_ones(YK_SHAPE(4, 4, 2), NULL), 1, true)) == 0);
    assert_true(most(yk_dropout3d(yk_ones(YK_SHAPE(4, 4, 2, 1, 2), NULL), 1, true)) == 0);
    yk_scope_end(scope);
}

/* Mean 0 and variance 1 stay; x is dropped to one value, and the other elements are a line of x. */
static void expect_alpha(yk_module *m, bool channels)
{
    const double s = 1.7580993408473766, p = 0.2, a = 1 / sqrt((s * s * p + 1) * (1 - p)), c = a * s * p;
    yk_tensor *x = yk_randn(YK_SHAPE(50, 40, 10), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    yk_tensor *y = yk_forward(m, x), *low = yk_mul_scalar(yk_ones_like(x), c - a * s);
    yk_tensor *line = yk_add_scalar(yk_mul_scalar(x, a), c);
    yk_tensor *gone = yk_is_close(y, low, 1e-12, 0, false), *kept = yk_is_close(y, line, 1e-12, 1e-14, false);
    assert_true(yk_item(yk_all(yk_logical_or(gone, kept))) == 1);
    double share = yk_item(yk_mean(yk_cast(gone, YK_F64)));
    assert_true(share > 0.17 && share < 0.23);
    assert_true(fabs(yk_item(yk_mean(y))) < 0.1 && fabs(yk_item(yk_var(y)) - 1) < 0.15);
    yk_tensor *whole = yk_mean_dims(yk_cast(gone, YK_F64), (int[]){2}, 1, false);
    yk_tensor *mixed = yk_logical_and(yk_gt(whole, yk_zeros_like(whole)), yk_lt(whole, yk_ones_like(whole)));
    assert_int_equal(yk_item(yk_any(mixed)) == 0, channels);
    yk_module_eval(m);
    assert_true(same(yk_forward(m, x), x));
}

static void test_alpha_dropout(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(9);
    expect_alpha(yk_alpha_dropout_create(0.2), false);
    expect_alpha(yk_feature_alpha_dropout_create(0.2), true);
    assert_true(most(yk_alpha_dropout(yk_ones(YK_SHAPE(5), NULL), 1, true)) == 0);
    yk_tensor *half = yk_cast(yk_ones(YK_SHAPE(5), NULL), YK_BF16);
    assert_int_equal(yk_tensor_dtype(yk_alpha_dropout(half, 0.5, true)), YK_BF16);
    yk_scope_end(scope);
}

static void test_two_inputs(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *in[2] = {yk_randn(YK_SHAPE(4, 3), NULL), yk_randn(YK_SHAPE(4, 3), NULL)}, *out;
    yk_module *m = yk_bilinear_create(3, 3, 2, NULL);
    yk_tensor *weight = yk_module_get(m, "weight"), *bias = yk_module_get(m, "bias");
    assert_true(most(yk_abs(yk_detach(weight))) <= 1 / sqrt(3) * 1.000001);
    expect_ok(yk_forward_list(m, in, 2, &out, 1));
    assert_true(same(out, yk_bilinear(in[0], in[1], weight, bias)));
    assert_null(yk_module_get(yk_bilinear_create(3, 3, 2, YK_OPTIONS(yk_linear_options, .bias = false)), "bias"));
    yk_clear_error();
    expect_ok(yk_forward_list(yk_cosine_similarity_create(1, 1e-8), in, 2, &out, 1));
    assert_true(same(out, yk_cosine_similarity(in[0], in[1], 1, 1e-8)));
    expect_ok(yk_forward_list(yk_pairwise_distance_create(1, 1e-6, true), in, 2, &out, 1));
    assert_true(same(out, yk_pairwise_distance(in[0], in[1], 1, 1e-6, true)));
    yk_tensor *x = yk_randn(YK_SHAPE(2, 3, 4), NULL), *pair[2];
    pair[0] = yk_max_pool2d_with_indices(x, YK_OPTIONS(yk_pool2d_options, .kernel = {1, 2}), &pair[1]);
    yk_module *unpool = yk_max_unpool2d_create(YK_OPTIONS(yk_max_unpool_options, .kernel = {1, 2}));
    expect_ok(yk_forward_list(unpool, pair, 2, &out, 1));
    yk_tensor *zero = yk_zeros_like(x);
    assert_true(same(out, yk_where(yk_eq(out, zero), zero, x)));
    assert_true(same(yk_sum(out), yk_sum(pair[0])));
    assert_null(yk_forward(unpool, x));
    expect_error(YK_ERR_ARGUMENT, "MaxUnpool2d: 1 inputs and 1 outputs, expected x and indices for one tensor");
    assert_null(yk_forward(m, x));
    expect_error(YK_ERR_ARGUMENT, "bilinear: 1 inputs and 1 outputs, expected two tensors for one");
    yk_scope_end(scope);
}

static void test_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    assert_null(yk_hardtanh_create(1, 0));
    expect_error(YK_ERR_ARGUMENT, "hardtanh_create: min_val is 1");
    assert_null(yk_celu_create(0));
    expect_error(YK_ERR_ARGUMENT, "celu_create: alpha is 0, expected a number other than 0");
    assert_null(yk_dropout2d_create(2));
    expect_error(YK_ERR_ARGUMENT, "dropout2d_create: p is 2");
    assert_null(yk_bilinear_create(0, 1, 1, NULL));
    expect_error(YK_ERR_ARGUMENT, "bilinear_create: in1_features 0, in2_features 1, out_features 1: all must be");
    assert_null(yk_pad_create(4, (int64_t[8]){0}, YK_PAD_REFLECT, 0));
    expect_error(YK_ERR_ARGUMENT,
                 "pad_create: widths of 4 dimensions in mode 1, expected two widths for each of 1 to 3");
    assert_null(yk_unflatten_create(0, 0, NULL));
    expect_error(YK_ERR_ARGUMENT, "unflatten_create: 0 sizes, expected 1 to 8");
    assert_null(yk_channel_shuffle_create(0));
    expect_error(YK_ERR_ARGUMENT, "channel_shuffle_create: groups is 0");
    assert_null(yk_max_unpool1d_create(NULL));
    expect_error(YK_ERR_ARGUMENT, "max_unpool1d_create: kernel");
    assert_null(yk_lp_pool1d_create(0, YK_OPTIONS(yk_pool_options, .kernel = {2})));
    expect_error(YK_ERR_ARGUMENT, "lp_pool1d_create: p is 0, expected a number other than 0");
    assert_null(yk_forward(yk_softmax2d_create(), yk_ones(YK_SHAPE(2, 2), NULL)));
    expect_error(YK_ERR_SHAPE, "softmax2d: input has shape (2, 2), expected (N, C, H, W) or (C, H, W)");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_random_slopes),
        cmocka_unit_test(test_dropped_channels),
        cmocka_unit_test(test_alpha_dropout),
        cmocka_unit_test(test_two_inputs),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
