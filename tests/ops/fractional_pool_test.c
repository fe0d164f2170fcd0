/*
 * Maxima at fractional places: PyTorch's outputs, indices and gradients for given samples, finite differences of
 * gradients and of their gradients, samples drawn, f16, layers, among them those of maxima with indices, and errors.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/nn.h>

#include "tests/support/golden.h"

static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);

enum { INPUT, SAMPLES, GRADIENT, MOST = 2048 };

static yk_tensor *numbers(int kind, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    static double x[MOST];
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    assert_true(count <= MOST);
    for (int64_t n = 0; n < count; n++) {
        double i = (double)n, whole;
        x[n] = kind == INPUT     ? sin(1.3 * i * i + 1)
               : kind == SAMPLES ? modf(0.37 * i + 0.11, &whole)
                                 : sin(0.7 * i + 2);
    }
    return yk_from_data(x, ndim, shape, options);
}

typedef struct pool_case {
    int64_t axes, batch, channels, sizes[3];
    yk_fractional_max_pool_options o;
    int ndim;
    int64_t shape[5];
} pool_case;

static pool_case read_case(const char *row)
{
    pool_case c = {.axes = golden_integer(&row), .o = *YK_OPTIONS(yk_fractional_max_pool_options, .kernel = {1, 1, 1})};
    c.batch = golden_integer(&row);
    c.channels = golden_integer(&row);
    if (c.batch)
        c.shape[c.ndim++] = c.batch;
    c.shape[c.ndim++] = c.channels;
    for (int i = 0; i < c.axes; i++)
        c.shape[c.ndim++] = golden_integer(&row);
    for (int i = 0; i < c.axes; i++)
        c.o.kernel[i] = golden_integer(&row);
    for (int i = 0; i < c.axes; i++)
        c.o.output_size[i] = golden_integer(&row);
    double ratio = golden_number(&row);
    for (int i = 0; i < c.axes && ratio > 0; i++) {
        c.o.output_size[i] = YK_NOT_GIVEN;
        c.o.output_ratio[i] = ratio;
    }
    c.o.random_samples = numbers(SAMPLES, 3, (int64_t[]){c.batch ? c.batch : 1, c.channels, c.axes}, f64);
    return c;
}

static yk_tensor *pool(yk_tensor *const *inputs, int count, void *user)
{
    (void)count;
    const pool_case *c = user;
    return c->axes == 2 ? yk_fractional_max_pool2d(inputs[0], &c->o) : yk_fractional_max_pool3d(inputs[0], &c->o);
}

static const double *expect_values(const char *what, size_t test, yk_tensor *x, const double *values)
{
    yk_tensor *dense = yk_cast(yk_contiguous(yk_detach(x)), YK_F64);
    assert_non_null(dense);
    const double *got = host_data(dense);
    for (int64_t i = 0; i < yk_numel(dense); i++)
        if (!(fabs(got[i] - values[i]) <= 1e-12))
            fail_msg("case %zu: %s %lld is %.17g, expected %.17g", test, what, (long long)i, got[i], values[i]);
    return values + yk_numel(dense);
}

static void test_pytorch(void **state)
{
    (void)state;
    size_t count;
    const char *const *cases = golden_rows("fractional", "cases", &count);
    assert_true(count > 0);
    for (size_t t = 0; t < count; t++) {
        yk_scope scope = yk_scope_begin();
        pool_case c = read_case(cases[t]);
        char section[40];
        snprintf(section, sizeof(section), "case %zu", t);
        const double *values = golden_numbers("fractional", section, NULL);
        yk_tensor *x = numbers(INPUT, c.ndim, c.shape, f64_leaf), *indices;
        yk_tensor *out = c.axes == 2 ? yk_fractional_max_pool2d_with_indices(x, &c.o, &indices)
                                     : yk_fractional_max_pool3d_with_indices(x, &c.o, &indices);
        values = expect_values("output", t, out, values);
        assert_int_equal(yk_tensor_dtype(indices), YK_I64);
        assert_true(yk_same_shape(indices, out));
        values = expect_values("index", t, indices, values);
        yk_tensor *same = pool(&x, 1, &c);
        assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_detach(same), yk_detach(out))))) == 0);
        expect_ok(yk_backward_with(
            out, YK_OPTIONS(yk_backward_options, .gradient = numbers(GRADIENT, yk_ndim(out), yk_sizes(out), f64))));
        expect_values("gradient", t, yk_grad(x), values);
        if (t == 1 || t == 4) {
            expect_ok(yk_gradcheck(pool, &x, 1, &c, NULL));
            expect_ok(yk_gradgradcheck(pool, &x, 1, &c, NULL));
        }
        yk_scope_end(scope);
    }
}

/* Samples of the generator: the same for the same seed, others for the next call. */
static void test_drawn(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_cast(numbers(INPUT, 4, (int64_t[]){1, 2, 20, 20}, f64), YK_F32), *out[3];
    const yk_fractional_max_pool_options o =
        *YK_OPTIONS(yk_fractional_max_pool_options, .kernel = {2, 2}, .output_ratio = {0.7, 0.7});
    for (int i = 0; i < 3; i++) {
        if (i < 2)
            yk_manual_seed(5);
        out[i] = yk_fractional_max_pool2d(x, &o);
    }
    assert_int_equal(yk_size(out[0], 2), 14);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(out[0], out[1])))) == 0);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(out[0], out[2])))) > 0);
    yk_manual_seed(5);
    yk_tensor *half = yk_fractional_max_pool2d(yk_cast(x, YK_F16), &o);
    assert_int_equal(yk_tensor_dtype(half), YK_F16);
    assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_cast(half, YK_F32), out[0])))) < 1e-3);
    yk_scope_end(scope);
}

/* Maxima of a layer with their indices, which the layer of the other direction puts back. */
static void expect_pair(yk_module *m, yk_module *back, yk_tensor *x)
{
    yk_tensor *out[2], *one = yk_forward(m, x), *put;
    expect_ok(yk_forward_list(m, &x, 1, out, 2));
    assert_true(yk_item(yk_max(yk_abs(yk_sub(one, out[0])))) == 0);
    expect_ok(yk_forward_list(back, out, 2, &put, 1));
    assert_true(yk_same_shape(put, x));
    expect_near(yk_item(yk_sum(put)), yk_item(yk_sum(one)), 1e-12, 1e-12);
    assert_true(yk_item_i64(yk_sum(yk_cast(yk_eq(put, x), YK_I64))) >= yk_numel(one));
    yk_tensor *three[3];
    assert_int_not_equal(yk_forward_list(m, &x, 1, three, 3), YK_OK);
    expect_error(YK_ERR_ARGUMENT, "1 inputs and 3 outputs, expected one tensor for one, or for maxima and indices");
}

static void test_layers(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    expect_pair(yk_max_pool1d_create(2, 2, NULL),
                yk_max_unpool1d_create(YK_OPTIONS(yk_max_unpool_options, .kernel = {2})),
                numbers(INPUT, 3, (int64_t[]){2, 3, 8}, f64));
    expect_pair(yk_max_pool2d_create(2, 2, NULL),
                yk_max_unpool2d_create(YK_OPTIONS(yk_max_unpool_options, .kernel = {2, 2})),
                numbers(INPUT, 4, (int64_t[]){2, 3, 4, 6}, f64));
    expect_pair(yk_max_pool3d_create(2, 2, NULL),
                yk_max_unpool3d_create(YK_OPTIONS(yk_max_unpool_options, .kernel = {2, 2, 2})),
                numbers(INPUT, 5, (int64_t[]){1, 2, 4, 4, 6}, f64));
    yk_tensor *two[2], *x = numbers(INPUT, 3, (int64_t[]){2, 3, 8}, f64);
    assert_int_not_equal(yk_forward_list(yk_avg_pool1d_create(2, 2, NULL), &x, 1, two, 2), YK_OK);
    expect_error(YK_ERR_ARGUMENT, "AvgPool1d: 1 inputs and 2 outputs, expected one tensor for one");
    for (int axes = 2; axes <= 3; axes++) {
        int64_t shape[5] = {2, 3, 7, 6, 5};
        yk_fractional_max_pool_options o =
            *YK_OPTIONS(yk_fractional_max_pool_options, .kernel = {2, 2, 2}, .output_size = {3, 3, 3});
        o.random_samples = numbers(SAMPLES, 3, (int64_t[]){2, 3, axes}, f64);
        yk_module *m = axes == 2 ? yk_fractional_max_pool2d_create(&o) : yk_fractional_max_pool3d_create(&o);
        assert_non_null(yk_module_get(m, "_random_samples"));
        x = numbers(INPUT, axes + 2, shape, f64);
        yk_tensor *expected = axes == 2 ? yk_fractional_max_pool2d(x, &o) : yk_fractional_max_pool3d(x, &o);
        expect_ok(yk_forward_list(m, &x, 1, two, 2));
        assert_true(yk_item(yk_max(yk_abs(yk_sub(two[0], expected)))) == 0);
        assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_forward(m, x), expected)))) == 0);
        assert_int_equal(yk_tensor_dtype(two[1]), YK_I64);
    }
    yk_tensor *none;
    assert_int_not_equal(yk_forward_list(yk_fractional_max_pool2d_create(YK_OPTIONS(
                                             yk_fractional_max_pool_options, .kernel = {2, 2}, .output_size = {3, 3})),
                                         (yk_tensor *[]){x, x}, 2, &none, 1),
                         YK_OK);
    expect_error(YK_ERR_ARGUMENT, "FractionalMaxPool2d: 2 inputs and 1 outputs");
    yk_scope_end(scope);
}

#define REFUSED(code, text, call, ...)                                                                                 \
    do {                                                                                                               \
        const yk_fractional_max_pool_options o = *YK_OPTIONS(yk_fractional_max_pool_options, __VA_ARGS__);             \
        assert_null(call);                                                                                             \
        expect_error(code, text);                                                                                      \
    } while (0)

static void test_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = numbers(INPUT, 4, (int64_t[]){1, 2, 6, 5}, f64), *indices = x;
    REFUSED(YK_ERR_ARGUMENT, "output_size, the windows, and output_ratio were both not given; one must be",
            yk_fractional_max_pool2d(x, &o), .kernel = {2, 2});
    REFUSED(YK_ERR_ARGUMENT, "output_size, the windows, and output_ratio were both given; one must be",
            yk_fractional_max_pool2d(x, &o), .kernel = {2, 2}, .output_size = {2, 2}, .output_ratio = {0.5, 0.5});
    REFUSED(YK_ERR_ARGUMENT, "output_ratio is 1, expected one above 0 and below 1", yk_fractional_max_pool2d(x, &o),
            .kernel = {2, 2}, .output_ratio = {1, 1});
    REFUSED(YK_ERR_ARGUMENT, "6 windows of 2 do not fit an input of 6",
            yk_fractional_max_pool2d_with_indices(x, &o, &indices), .kernel = {2, 2}, .output_size = {6, 2});
    assert_null(indices);
    REFUSED(YK_ERR_ARGUMENT, "2 windows of 7 do not fit an input of 6", yk_fractional_max_pool2d(x, &o),
            .kernel = {7, 2}, .output_size = {2, 2});
    REFUSED(YK_ERR_SHAPE, "input has shape (1, 2, 6, 5, 1, 1), expected (N, C, D, H, W) or (C, D, H, W)",
            yk_fractional_max_pool3d(yk_reshape(x, YK_SHAPE(1, 2, 6, 5, 1, 1)), &o), .kernel = {2, 2, 2},
            .output_size = {2, 2, 2});
    REFUSED(YK_ERR_SHAPE, "random_samples (1, 2, 3) of an input (1, 2, 6, 5), expected (N, C, 2)",
            yk_fractional_max_pool2d(x, &o), .kernel = {2, 2}, .output_size = {2, 2},
            .random_samples = yk_zeros(YK_SHAPE(1, 2, 3), f64));
    REFUSED(YK_ERR_DTYPE, "random_samples is float32, expected float64", yk_fractional_max_pool2d(x, &o),
            .kernel = {2, 2}, .output_size = {2, 2}, .random_samples = yk_zeros(YK_SHAPE(1, 2, 2), NULL));
    REFUSED(YK_ERR_DTYPE, "input is int64", yk_fractional_max_pool2d(yk_cast(x, YK_I64), &o), .kernel = {2, 2},
            .output_size = {2, 2});
    REFUSED(YK_ERR_ARGUMENT, "fractional_max_pool2d_create: kernel 0", yk_fractional_max_pool2d_create(&o),
            .kernel = {0, 2}, .output_size = {2, 2});
    REFUSED(YK_ERR_ARGUMENT, "one of output_size, at least 1, and output_ratio", yk_fractional_max_pool3d_create(&o),
            .kernel = {2, 2, 2});
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
