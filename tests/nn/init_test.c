/*
 * init_test.c - initial distributions are PyTorch's, and do not depend on the memory order of a weight.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/nn.h>

#include "nn/module.h"

/* Mean, deviation, least and largest of a tensor. */
typedef struct shape_of {
    double mean, deviation, least, largest;
    int64_t count;
} shape_of;

static shape_of describe(yk_tensor *x)
{
    shape_of s = {.least = INFINITY, .largest = -INFINITY, .count = yk_numel(x)};
    assert_non_null(x);
    double *values = malloc((size_t)s.count * sizeof(*values)), squares = 0;
    expect_ok(yk_tensor_read(yk_cast(x, YK_F64), values, (size_t)s.count * sizeof(*values)));
    for (int64_t i = 0; i < s.count; i++) {
        s.mean += values[i] / (double)s.count;
        s.least = fmin(s.least, values[i]);
        s.largest = fmax(s.largest, values[i]);
    }
    for (int64_t i = 0; i < s.count; i++)
        squares += (values[i] - s.mean) * (values[i] - s.mean);
    s.deviation = sqrt(squares / (double)s.count);
    free(values);
    return s;
}

/* Inside the bound, near it, and as wide as a uniform distribution is; within five standard errors. */
static void expect_uniform(yk_tensor *x, double bound)
{
    shape_of s = describe(x);
    double n = (double)s.count, deviation = bound / sqrt(3);
    assert_true(s.least >= -bound && s.largest <= bound);
    assert_true(s.largest > bound * (1 - 20 / n) && s.least < -bound * (1 - 20 / n));
    expect_near(s.mean, 0, 0, 5 * deviation / sqrt(n));
    expect_near(s.deviation, deviation, 5 * sqrt(0.2 / n), 0);
}

static void expect_normal(yk_tensor *x, double deviation)
{
    shape_of s = describe(x);
    double n = (double)s.count;
    expect_near(s.mean, 0, 0, 5 * deviation / sqrt(n));
    expect_near(s.deviation, deviation, 5 / sqrt(2 * n), 0);
    assert_true(s.largest > 3 * deviation && s.least < -3 * deviation); /* tails a uniform one has not */
}

static void expect_constant(yk_tensor *x, double value)
{
    shape_of s = describe(x);
    assert_true(s.least == value && s.largest == value);
}

static void test_layers(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(1);
    yk_module *m = yk_linear_create(300, 200, NULL);
    expect_uniform(yk_module_get(m, "weight"), 1 / sqrt(300));
    expect_uniform(yk_module_get(m, "bias"), 1 / sqrt(300));
    m = yk_conv2d_create(16, 64, 3, YK_OPTIONS(yk_conv2d_module_options, .groups = 2));
    expect_uniform(yk_module_get(m, "weight"), 1 / sqrt(8 * 9));
    expect_uniform(yk_module_get(m, "bias"), 1 / sqrt(8 * 9));
    m = yk_embedding_create(200, 50, YK_OPTIONS(yk_embedding_options, .padding_idx = 3));
    yk_tensor *table = yk_module_get(m, "weight");
    expect_normal(yk_slice(table, 0, 4, YK_END, 1), 1);
    expect_constant(yk_select(table, 0, 3), 0);
    m = yk_batch_norm2d_create(7, NULL);
    expect_constant(yk_module_get(m, "weight"), 1);
    expect_constant(yk_module_get(m, "bias"), 0);
    expect_constant(yk_module_get(m, "running_mean"), 0);
    expect_constant(yk_module_get(m, "running_var"), 1);
    assert_int_equal(yk_item_i64(yk_module_get(m, "num_batches_tracked")), 0);
    m = yk_layer_norm_create(YK_SHAPE(3, 4), NULL);
    expect_constant(yk_module_get(m, "weight"), 1);
    expect_constant(yk_module_get(m, "bias"), 0);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_resnet(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(1);
    yk_module *m = yk_resnet18(NULL);
    expect_normal(yk_module_get(m, "conv1.weight"), sqrt(2.0 / (64 * 49)));
    expect_normal(yk_module_get(m, "layer3.0.conv1.weight"), sqrt(2.0 / (256 * 9)));
    expect_normal(yk_module_get(m, "layer4.0.downsample.0.weight"), sqrt(2.0 / 512));
    expect_uniform(yk_module_get(m, "fc.weight"), 1 / sqrt(512));
    expect_constant(yk_module_get(m, "layer2.1.bn2.weight"), 1);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_functions(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(2);
    yk_tensor *x = yk_empty(YK_SHAPE(40, 30, 3, 3), NULL);
    expect_ok(yk_init_kaiming_uniform(x, 0, false));
    expect_uniform(x, sqrt(6.0 / 270));
    expect_ok(yk_init_kaiming_uniform(x, sqrt(5), true));
    expect_uniform(x, sqrt(1.0 / 360));
    expect_ok(yk_init_kaiming_normal(x, 0.5, false));
    expect_normal(x, sqrt(2 / 1.25 / 270));
    expect_ok(yk_init_xavier_uniform(x, 1));
    expect_uniform(x, sqrt(6.0 / 630));
    expect_ok(yk_init_xavier_normal(x, 2));
    expect_normal(x, 2 * sqrt(2.0 / 630));
    expect_ok(yk_init_constant(x, 0.25));
    expect_constant(x, 0.25);

    assert_int_equal(yk_init_kaiming_normal(yk_empty(YK_SHAPE(4), NULL), 0, false), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "init_kaiming_normal: shape (4,) has no fan");
    assert_int_equal(yk_init_normal(yk_empty(YK_SHAPE(4), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)), 0, 1),
                     YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "init_normal: expected a floating tensor, this one is int64");
    yk_scope_end(scope);
}

static void test_memory_order(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    int64_t shape[4] = {8, 6, 3, 5}, last[4] = {90, 1, 30, 6}, odd[4] = {1, 8, 48, 144};
    yk_tensor *orders[3] = {yk__scope_own(yk__tensor_new(4, shape, NULL, YK_F32, test_device(0))),
                            yk__scope_own(yk__tensor_new(4, shape, last, YK_F32, test_device(0))),
                            yk__scope_own(yk__tensor_new(4, shape, odd, YK_F32, test_device(0)))};
    for (int normal = 0; normal < 2; normal++) {
        float values[3][720];
        for (int i = 0; i < 3; i++) {
            yk_manual_seed(9);
            if (normal)
                expect_ok(yk_init_normal(orders[i], 0, 1));
            else
                expect_ok(yk_init_uniform(orders[i], -1, 1));
            expect_ok(yk_tensor_read(orders[i], values[i], sizeof(values[i])));
        }
        assert_memory_equal(values[0], values[1], sizeof(values[0]));
        assert_memory_equal(values[0], values[2], sizeof(values[0]));
    }
    yk_scope_end(scope);
}

/* A range that no values can be drawn from. */
static void test_refusals(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(3, 2), NULL);
    static const struct {
        double low, high;
        const char *error;
    } ranges[] = {{1, -1, "init_uniform: the range [1, -1) is empty"},
                  {NAN, 1, "init_uniform: the range [nan, 1) is empty"},
                  {0, INFINITY, "init_uniform: the range [0, inf) does not fit in float32"}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(yk_init_uniform(x, ranges[i].low, ranges[i].high), YK_ERR_ARGUMENT);
        expect_error(YK_ERR_ARGUMENT, ranges[i].error);
    }
    assert_int_equal(yk_init_constant(x, 1e39), YK_ERR_DTYPE);
    expect_error(YK_ERR_DTYPE, "init_constant: a tensor of float32 cannot hold 1e+39");
    expect_near(yk_item(yk_sum(x)), 6, 0, 0); /* untouched */
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),       cmocka_unit_test(test_resnet),   cmocka_unit_test(test_functions),
        cmocka_unit_test(test_memory_order), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("init", tests, NULL, NULL);
}
