/*
 * layers_test.c - every layer against PyTorch in float64: forward, gradients, state after a forward in training.
 */
#include "tests/support/expect.h"

#include <yoke/nn.h>

#include "tests/support/golden.h"

static yk_module *make_linear(void)
{
    return yk_linear_create(5, 3, NULL);
}
static yk_module *make_linear_no_bias(void)
{
    return yk_linear_create(4, 2, YK_OPTIONS(yk_linear_options, .bias = false));
}
static yk_module *make_conv2d(void)
{
    return yk_conv2d_create(2, 4, 3, YK_OPTIONS(yk_conv2d_module_options, .stride = 2, .padding = 1));
}
static yk_module *make_conv2d_odd(void)
{
    return yk_conv2d_create(4, 6, 0,
                            YK_OPTIONS(yk_conv2d_module_options, .kernel_size = {3, 2}, .stride_size = {1, 2},
                                       .padding_size = {0, 1}, .dilation_size = {2, 1}, .groups = 2, .bias = false));
}
static yk_module *make_conv2d_depthwise(void)
{
    return yk_conv2d_create(3, 3, 3, YK_OPTIONS(yk_conv2d_module_options, .padding = 1, .groups = 3));
}
static yk_module *make_batch_norm2d(void)
{
    return yk_batch_norm2d_create(3, NULL);
}
static yk_module *make_batch_norm2d_options(void)
{
    return yk_batch_norm2d_create(2,
                                  YK_OPTIONS(yk_batch_norm2d_options, .eps = 1e-3, .momentum = 0.3, .affine = false));
}
static yk_module *make_batch_norm2d_batch(void)
{
    return yk_batch_norm2d_create(2, YK_OPTIONS(yk_batch_norm2d_options, .track_running_stats = false));
}
static yk_module *make_layer_norm(void)
{
    return yk_layer_norm_create(YK_SHAPE(2, 3), NULL);
}
static yk_module *make_layer_norm_plain(void)
{
    return yk_layer_norm_create(YK_SHAPE(5),
                                YK_OPTIONS(yk_layer_norm_options, .eps = 1e-2, .elementwise_affine = false));
}
static yk_module *make_embedding(void)
{
    return yk_embedding_create(6, 3, YK_OPTIONS(yk_embedding_options, .padding_idx = -4));
}
static yk_module *make_max_pool2d(void)
{
    return yk_max_pool2d_create(3, 2, YK_OPTIONS(yk_pool2d_options, .padding = {1, 1}));
}
static yk_module *make_avg_pool2d(void)
{
    return yk_avg_pool2d_create(2, 0, NULL);
}
static yk_module *make_adaptive_avg_pool2d(void)
{
    return yk_adaptive_avg_pool2d_create(2, 3);
}
static yk_module *make_mlp(void)
{
    return yk_mlp(
        YK_OPTIONS(yk_mlp_options, .in_features = 6, .hidden = (int64_t[]){4, 3}, .hidden_count = 2, .num_classes = 2));
}
static yk_module *make_sequential(void)
{
    return yk_sequential(yk_conv2d_create(1, 2, 3, YK_OPTIONS(yk_conv2d_module_options, .bias = false)),
                         yk_batch_norm2d_create(2, NULL), yk_relu_create(), yk_max_pool2d_create(2, 0, NULL),
                         yk_flatten_create(), yk_linear_create(8, 3, NULL));
}

static const struct {
    const char *name;
    yk_module *(*make)(void);
} makers[] = {
    {"linear", make_linear},
    {"linear_no_bias", make_linear_no_bias},
    {"conv2d", make_conv2d},
    {"conv2d_odd", make_conv2d_odd},
    {"conv2d_depthwise", make_conv2d_depthwise},
    {"batch_norm2d", make_batch_norm2d},
    {"batch_norm2d_options", make_batch_norm2d_options},
    {"batch_norm2d_eval", make_batch_norm2d},
    {"batch_norm2d_eval_batch", make_batch_norm2d_batch},
    {"layer_norm", make_layer_norm},
    {"layer_norm_plain", make_layer_norm_plain},
    {"embedding", make_embedding},
    {"relu", yk_relu_create},
    {"gelu", yk_gelu_create},
    {"tanh", yk_tanh_create},
    {"sigmoid", yk_sigmoid_create},
    {"flatten", yk_flatten_create},
    {"max_pool2d", make_max_pool2d},
    {"avg_pool2d", make_avg_pool2d},
    {"adaptive_avg_pool2d", make_adaptive_avg_pool2d},
    {"mlp", make_mlp},
    {"sequential", make_sequential},
};
static yk_module *make(const char *name)
{
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        if (strcmp(makers[i].name, name) == 0)
            return makers[i].make();
    }
    fail_msg("no test makes the module %s", name);
    return NULL;
}

/* A row of a module's section in tests/golden/nn.golden: a part ("x", "out", "pull", "gx", "before", "after", "grad"),
 * the name in the state, and the tensor. */
typedef struct golden_tensor {
    char part[8], name[40];
    int ndim;
    int64_t shape[4], count;
    double values[160];
} golden_tensor;

static void read_tensor(const char *row, golden_tensor *g)
{
    golden_word(&row, g->part, sizeof(g->part));
    golden_word(&row, g->name, sizeof(g->name));
    g->ndim = golden_integer(&row);
    assert_in_range(g->ndim, 0, 4);
    g->count = 1;
    for (int d = 0; d < g->ndim; d++)
        g->count *= g->shape[d] = golden_integer(&row);
    assert_in_range(g->count, 1, sizeof(g->values) / sizeof(g->values[0]));
    for (int64_t i = 0; i < g->count; i++)
        g->values[i] = golden_number(&row);
}

/* The row of a part, and of a name where that is given. */
static bool find_tensor(const char *const *rows, size_t count, const char *part, const char *name, golden_tensor *g)
{
    for (size_t i = 0; i < count; i++) {
        read_tensor(rows[i], g);
        if (strcmp(g->part, part) == 0 && (!name || strcmp(g->name, name) == 0))
            return true;
    }
    return false;
}

static yk_tensor *to_tensor(const golden_tensor *g, yk_dtype dtype)
{
    return yk_cast(yk_from_data(g->values, g->ndim, g->shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), dtype);
}

static void expect_tensor(const char *name, const char *what, const golden_tensor *g, yk_tensor *x, double tolerance)
{
    if (yk_ndim(x) != g->ndim)
        fail_msg("%s %s: %d dimensions, expected %d", name, what, yk_ndim(x), g->ndim);
    for (int d = 0; d < g->ndim; d++)
        assert_int_equal(yk_size(x, d), g->shape[d]);
    double values[sizeof(g->values) / sizeof(g->values[0])];
    expect_ok(yk_tensor_read(yk_cast(x, YK_F64), values, (size_t)g->count * sizeof(*values)));
    for (int64_t i = 0; i < g->count; i++) {
        if (!(fabs(values[i] - g->values[i]) <= tolerance * (1 + fabs(g->values[i]))))
            fail_msg("%s %s: element %d is %.17g, PyTorch has %.17g", name, what, (int)i, values[i], g->values[i]);
    }
}

static void check(const char *name, bool training, bool index_input, yk_dtype dtype, double tolerance)
{
    char section[60];
    size_t count;
    golden_tensor g;
    snprintf(section, sizeof(section), "module %s", name);
    const char *const *rows = golden_rows("nn", section, &count);
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_module_to_dtype(make(name), dtype);
    assert_non_null(m);
    yk_state_dict *state = yk_state_dict_create();
    for (size_t i = 0; i < count; i++) {
        read_tensor(rows[i], &g);
        if (strcmp(g.part, "before") == 0)
            expect_ok(yk_state_dict_add(state, g.name,
                                        to_tensor(&g, strstr(g.name, "num_batches_tracked") ? YK_I64 : YK_F64)));
    }
    expect_ok(yk_module_load_state_dict(m, state, NULL, NULL));
    yk_module_train(m, training);

    assert_true(find_tensor(rows, count, "x", NULL, &g));
    yk_tensor *x = to_tensor(&g, index_input ? YK_I64 : dtype);
    if (!index_input)
        expect_ok(yk_set_requires_grad(x, true));
    yk_tensor *out = yk_forward(m, x);
    expect_ok(out == NULL);
    assert_true(find_tensor(rows, count, "out", NULL, &g));
    expect_tensor(name, "output", &g, out, tolerance);
    assert_true(find_tensor(rows, count, "pull", NULL, &g));
    expect_ok(yk_backward(yk_sum(yk_mul(out, to_tensor(&g, dtype)))));
    assert_int_equal(find_tensor(rows, count, "gx", NULL, &g), !index_input);
    if (!index_input)
        expect_tensor(name, "gradient of x", &g, yk_grad(x), tolerance);

    yk_state_dict *after = yk_module_state_dict(m);
    assert_int_equal(yk_state_dict_count(after), yk_state_dict_count(state));
    for (int64_t i = 0; i < yk_state_dict_count(after); i++) {
        const char *key = yk_state_dict_name(after, i);
        assert_string_equal(key, yk_state_dict_name(state, i));
        assert_true(find_tensor(rows, count, "after", key, &g));
        expect_tensor(name, key, &g, yk_state_dict_at(after, i), tolerance);
        yk_tensor *grad = yk_grad(yk_module_get(m, key));
        assert_int_equal(grad != NULL, find_tensor(rows, count, "grad", key, &g));
        if (grad)
            expect_tensor(name, "gradient of a parameter", &g, grad, tolerance);
    }
    yk_scope_end(scope);
}

static void check_all(yk_dtype dtype, double tolerance)
{
    size_t count;
    const char *const *cases = golden_rows("nn", "modules", &count);
    assert_int_equal(count, sizeof(makers) / sizeof(makers[0]));
    for (size_t i = 0; i < count; i++) {
        const char *row = cases[i];
        char name[40];
        golden_word(&row, name, sizeof(name));
        bool training = golden_integer(&row), index_input = golden_integer(&row);
        check(name, training, index_input, dtype, tolerance);
    }
    assert_null(yk_last_error());
}

static void test_float64(void **unused)
{
    (void)unused;
    check_all(YK_F64, 1e-13);
}

static void test_float32(void **unused)
{
    (void)unused;
    check_all(YK_F32, 5e-6);
}

static void test_fused_batch_norm(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_module_to_dtype(yk_batch_norm2d_create(3, NULL), YK_F64);
    yk_tensor_options f64 = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
    yk_tensor *x = yk_randn(YK_SHAPE(2, 3, 4, 4), &f64), *residual = yk_randn(YK_SHAPE(2, 3, 4, 4), &f64);
    yk_tensor *pull = yk_randn(YK_SHAPE(2, 3, 4, 4), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    double fused[96], plain[96], gx[96], gr[96], again[96];
    expect_ok(yk_backward(yk_sum(yk_mul(yk_relu(yk_add(yk_forward(m, x), residual)), pull))));
    expect_ok(yk_tensor_read(yk_relu(yk_add(yk_forward(m, x), residual)), plain, sizeof(plain)));
    expect_ok(yk_tensor_read(yk_grad(x), gx, sizeof(gx)));
    expect_ok(yk_tensor_read(yk_grad(residual), gr, sizeof(gr)));
    expect_ok(yk_set_grad(x, NULL));
    expect_ok(yk_set_grad(residual, NULL));

    yk_tensor *out = yk_batch_norm2d_forward(m, x, residual, true);
    expect_ok(yk_tensor_read(out, fused, sizeof(fused)));
    expect_ok(yk_backward(yk_sum(yk_mul(out, pull))));
    bool zero = false;
    for (int i = 0; i < 96; i++) {
        expect_near(fused[i], plain[i], 1e-13, 1e-13);
        zero = zero || fused[i] == 0;
    }
    assert_true(zero); /* the ReLU did something */
    expect_ok(yk_tensor_read(yk_grad(x), again, sizeof(again)));
    for (int i = 0; i < 96; i++)
        expect_near(again[i], gx[i], 1e-12, 1e-12);
    expect_ok(yk_tensor_read(yk_grad(residual), again, sizeof(again)));
    for (int i = 0; i < 96; i++)
        expect_near(again[i], gr[i], 1e-12, 1e-12);
    assert_int_equal(yk_item_i64(yk_module_get(m, "num_batches_tracked")), 3);

    assert_null(yk_batch_norm2d_forward(yk_relu_create(), x, NULL, true));
    expect_error(YK_ERR_ARGUMENT, "batch_norm2d_forward: the module is a ReLU");
    yk_scope_end(scope);
}

static void test_dropout(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_dropout_create(0.25);
    yk_tensor *x = yk_ones(YK_SHAPE(10000), NULL);
    yk_tensor *out = yk_forward(m, x);
    int zeros = 0;
    for (int64_t i = 0; i < 10000; i++) {
        double value = yk_get(out, &i);
        zeros += value == 0;
        if (value != 0)
            expect_near(value, 1 / 0.75, 1e-6, 0);
    }
    assert_in_range(zeros, 2300, 2700); /* deviation 43 */
    yk_module_eval(m);
    out = yk_forward(m, x);
    for (int64_t i = 0; i < 10000; i++)
        assert_true(yk_get(out, &i) == 1);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void test_bad_options(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    assert_null(yk_linear_create(0, 3, NULL));
    expect_error(YK_ERR_ARGUMENT, "linear_create: in_features 0, out_features 3");
    assert_null(yk_conv2d_create(3, 4, 3, YK_OPTIONS(yk_conv2d_module_options, .groups = 2)));
    expect_error(YK_ERR_ARGUMENT, "in_channels 3, out_channels 4, groups 2");
    assert_null(yk_conv2d_create(3, 4, 0, NULL));
    expect_error(YK_ERR_ARGUMENT, "kernel (0, 0)");
    assert_null(yk_conv2d_create(3, 4, 3, YK_OPTIONS(yk_conv2d_module_options, .padding = -1)));
    expect_error(YK_ERR_ARGUMENT, "padding -1");
    assert_null(yk_batch_norm2d_create(3, YK_OPTIONS(yk_batch_norm2d_options, .momentum = 1.5)));
    expect_error(YK_ERR_ARGUMENT, "momentum 1.5");
    assert_null(yk_layer_norm_create(0, NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "layer_norm_create: 0 dimensions");
    assert_null(yk_dropout_create(1.25));
    expect_error(YK_ERR_ARGUMENT, "p is 1.25");
    assert_null(yk_embedding_create(4, 2, YK_OPTIONS(yk_embedding_options, .padding_idx = 4)));
    expect_error(YK_ERR_ARGUMENT, "padding_idx 4 is outside a table of 4 rows");
    assert_null(yk_max_pool2d_create(2, 0, YK_OPTIONS(yk_pool2d_options, .padding = {2, 0})));
    expect_error(YK_ERR_ARGUMENT, "max_pool2d_create: kernel 2, stride 2, padding 2");
    assert_null(yk_adaptive_avg_pool2d_create(1, 0));
    expect_error(YK_ERR_ARGUMENT, "output size (1, 0)");
    assert_null(yk_forward(yk_batch_norm2d_create(3, NULL), yk_ones(YK_SHAPE(2, 4, 1, 1), NULL)));
    expect_error(YK_ERR_SHAPE, "batch_norm2d: input has shape (2, 4, 1, 1), expected (N, 3, H, W)");
    yk_scope_end(scope);
}

/* As PyTorch: an empty result, statistics that stay, a batch that counts, and gradients of 0. */
static void test_batch_norm_of_nothing(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *y = yk_batch_norm(yk_zeros(YK_SHAPE(0, 3), NULL), NULL, NULL, NULL, NULL,
                                 YK_OPTIONS(yk_batch_norm_options, .training = true));
    assert_non_null(y);
    assert_true(yk_ndim(y) == 2 && yk_size(y, 0) == 0 && yk_size(y, 1) == 3);
    for (int relu = 0; relu < 2; relu++) {
        yk_module *bn = yk_batch_norm2d_create(3, NULL);
        yk_module *m = relu ? yk_sequential(bn, yk_relu_create()) : bn;
        yk_tensor *x = yk_zeros(YK_SHAPE(0, 3, 2, 2), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
        y = yk_forward(m, x);
        assert_non_null(y);
        assert_true(yk_same_shape(y, x));
        expect_ok(yk_backward(yk_sum(y)));
        assert_true(yk_same_shape(yk_grad(x), x));
        expect_near(yk_item(yk_sum(yk_abs(yk_grad(yk_module_get(bn, "weight"))))), 0, 0, 0);
        expect_near(yk_item(yk_sum(yk_abs(yk_grad(yk_module_get(bn, "bias"))))), 0, 0, 0);
        expect_near(yk_item(yk_sum(yk_module_get(bn, "running_mean"))), 0, 0, 0);
        expect_near(yk_item(yk_sum(yk_module_get(bn, "running_var"))), 3, 0, 0);
        assert_int_equal(yk_item_i64(yk_module_get(bn, "num_batches_tracked")), 1);
    }
    assert_null(yk_forward(yk_batch_norm2d_create(3, NULL), yk_zeros(YK_SHAPE(1, 3, 1, 1), NULL)));
    expect_error(YK_ERR_SHAPE, "expected more than 1 value per channel");
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_float64),
        cmocka_unit_test(test_float32),
        cmocka_unit_test(test_fused_batch_norm),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_batch_norm_of_nothing),
        cmocka_unit_test(test_bad_options),
    };
    return cmocka_run_group_tests_name("layers", tests, NULL, NULL);
}
