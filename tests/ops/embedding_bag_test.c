/*
 * Embedding bags: PyTorch's outputs and gradients, finite differences of gradients and of their gradients, gradients by
 * rows, f16, int32, the layer, and errors.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/nn.h>

#include "tests/support/golden.h"

static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
static const yk_tensor_options *const whole = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);

static yk_tensor *wave(int seed, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    double x[256];
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    assert_true(count <= 256);
    for (int64_t i = 0; i < count; i++)
        x[i] = sin(0.7 * (double)i + seed);
    return yk_from_data(x, ndim, shape, options);
}

static const double *expect_values(const char *what, size_t test, yk_tensor *x, const double *values)
{
    yk_tensor *dense = yk_contiguous(yk_detach(x));
    assert_non_null(dense);
    const double *got = host_data(dense);
    for (int64_t i = 0; i < yk_numel(dense); i++)
        if (!(fabs(got[i] - values[i]) <= 1e-14))
            fail_msg("case %zu: %s %lld is %.17g, expected %.17g", test, what, (long long)i, got[i], values[i]);
    return values + yk_numel(dense);
}

typedef struct bag_case {
    int64_t rows, width, index_rows, length, offsets[8];
    yk_embedding_bag_options o;
    bool factors;
    yk_tensor *index;
} bag_case;

static bag_case read_case(const char *row)
{
    bag_case c = {.rows = golden_integer(&row)};
    c.width = golden_integer(&row);
    c.o = *YK_OPTIONS(yk_embedding_bag_options, .mode = (yk_bag_mode)golden_integer(&row));
    assert_true(c.o.mode <= YK_BAG_MAX);
    c.index_rows = golden_integer(&row);
    c.length = golden_integer(&row);
    int padding = golden_integer(&row);
    c.o.padding_idx = padding < 0 ? YK_NOT_GIVEN : padding - (c.length % 2 ? c.rows : 0);
    c.factors = golden_integer(&row);
    c.o.include_last_offset = golden_integer(&row);
    int64_t count = golden_integer(&row), index[64];
    for (int64_t i = 0; i < count; i++)
        c.offsets[i] = golden_integer(&row);
    for (int64_t i = 0; i < c.length; i++)
        index[i] = (7 * i * i + 3 * i) % c.rows;
    int64_t shape[2] = {c.index_rows ? c.index_rows : c.length, c.index_rows ? c.length / c.index_rows : 1};
    c.index = yk_from_data(index, c.index_rows ? 2 : 1, shape, whole);
    c.o.offsets = c.index_rows ? NULL : yk_from_data(c.offsets, 1, &count, whole);
    return c;
}

static yk_tensor *bag(yk_tensor *const *inputs, int count, void *user)
{
    const bag_case *c = user;
    yk_embedding_bag_options o = c->o;
    o.per_sample_weights = count > 1 ? inputs[1] : NULL;
    return yk_embedding_bag(c->index, inputs[0], &o);
}

static void test_pytorch(void **state)
{
    (void)state;
    size_t count;
    const char *const *cases = golden_rows("bags", "cases", &count);
    assert_true(count > 0);
    for (size_t t = 0; t < count; t++) {
        yk_scope scope = yk_scope_begin();
        bag_case c = read_case(cases[t]);
        char section[40];
        snprintf(section, sizeof(section), "case %zu", t);
        const double *values = golden_numbers("bags", section, NULL);
        yk_tensor *in[2] = {wave(1, YK_SHAPE(c.rows, c.width), f64_leaf),
                            c.factors ? wave(2, yk_ndim(c.index), yk_sizes(c.index), f64_leaf) : NULL};
        yk_tensor *out = bag(in, 1 + c.factors, &c);
        values = expect_values("output", t, out, values);
        expect_ok(yk_backward_with(
            out, YK_OPTIONS(yk_backward_options, .gradient = wave(3, yk_ndim(out), yk_sizes(out), f64))));
        for (int i = 0; i < 1 + c.factors; i++)
            values = expect_values("a gradient", t, yk_grad(in[i]), values);
        yk_tensor *dense = yk_clone(yk_detach(yk_grad(in[0]))), *table = wave(1, YK_SHAPE(c.rows, c.width), f64_leaf);
        expect_ok(yk_gradcheck(bag, in, 1 + c.factors, &c, NULL));
        expect_ok(yk_gradgradcheck(bag, in, 1 + c.factors, &c, NULL));
        /* the gradient by rows of the same */
        c.o.sparse = true;
        out = bag((yk_tensor *[]){table, in[1]}, 1 + c.factors, &c);
        expect_ok(yk_backward_with(
            out, YK_OPTIONS(yk_backward_options, .gradient = wave(3, yk_ndim(out), yk_sizes(out), f64))));
        yk_tensor *indices, *rows;
        expect_ok(yk_grad_rows(table, &indices, &rows));
        expect_values("a gradient by rows", t, yk_grad_to_dense(table), host_data(yk_contiguous(dense)));
        yk_scope_end(scope);
    }
}

static void test_other_dtypes(void **state)
{
    (void)state;
    const yk_tensor_options small = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I32);
    for (int mode = YK_BAG_MEAN; mode <= (int)YK_BAG_MAX; mode++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *wide = wave(1, YK_SHAPE(4, 3), f64), *half = yk_cast(wide, YK_F16);
        yk_tensor *index = yk_from_data((int32_t[]){3, 0, 2, 2, 1}, YK_SHAPE(5), &small);
        yk_tensor *offsets = yk_from_data((int32_t[]){0, 2}, YK_SHAPE(2), &small);
        const yk_embedding_bag_options o =
            *YK_OPTIONS(yk_embedding_bag_options, .mode = (yk_bag_mode)mode, .offsets = offsets);
        yk_tensor *a = yk_embedding_bag(index, half, &o), *b = yk_embedding_bag(index, wide, &o);
        assert_int_equal(yk_tensor_dtype(a), YK_F16);
        assert_true(yk_item(yk_max(yk_abs(yk_sub(yk_cast(a, YK_F64), b)))) < 2e-3);
        yk_scope_end(scope);
    }
}

static void test_empty(void **state)
{
    (void)state;
    for (int mode = YK_BAG_MEAN; mode <= (int)YK_BAG_MAX; mode++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *table = wave(1, YK_SHAPE(4, 3), f64_leaf), *offsets = yk_zeros(YK_SHAPE(2), whole);
        yk_tensor *out =
            yk_embedding_bag(yk_zeros(YK_SHAPE(0), whole), table,
                             YK_OPTIONS(yk_embedding_bag_options, .mode = (yk_bag_mode)mode, .offsets = offsets));
        assert_int_equal(yk_size(out, 0), 2);
        assert_true(yk_item(yk_sum(yk_abs(out))) == 0);
        expect_ok(yk_backward(yk_sum(out)));
        assert_true(yk_item(yk_sum(yk_abs(yk_grad(table)))) == 0);
        out = yk_embedding_bag(yk_zeros(YK_SHAPE(2, 0), whole), table,
                               YK_OPTIONS(yk_embedding_bag_options, .mode = (yk_bag_mode)mode));
        assert_int_equal(yk_size(out, 0), 2);
        assert_true(yk_item(yk_sum(yk_abs(out))) == 0);
        out = yk_embedding_bag(yk_zeros(YK_SHAPE(0, 3), whole), table,
                               YK_OPTIONS(yk_embedding_bag_options, .mode = (yk_bag_mode)mode));
        assert_int_equal(yk_size(out, 0), 0);
        yk_scope_end(scope);
    }
}

static void test_layer(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_embedding_bag_create(
        5, 3, YK_OPTIONS(yk_embedding_bag_module_options, .mode = YK_BAG_SUM, .padding_idx = -1, .sparse = true));
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    expect_ok(yk_module_print(to, m));
    fclose(to);
    assert_string_equal(text, "EmbeddingBag(5, 3, mode='sum', padding_idx=4)\n");
    free(text);
    yk_tensor *table = yk_module_get(m, "weight");
    assert_true(yk_item(yk_sum(yk_abs(yk_detach(yk_select(table, 0, 4))))) == 0);
    yk_tensor *index = yk_from_data((int64_t[]){0, 4, 1, 1}, YK_SHAPE(4), whole);
    yk_tensor *offsets = yk_from_data((int64_t[]){0, 3}, YK_SHAPE(2), whole);
    yk_tensor *factors = yk_from_data((float[]){2, 3, 4, 5}, YK_SHAPE(4), NULL), *out, *rows, *indices;
    expect_ok(yk_forward_list(m, (yk_tensor *[]){index, offsets, factors}, 3, &out, 1));
    for (int64_t d = 0; d < 3; d++) {
        double first = yk_get(table, (int64_t[]){0, d}), second = yk_get(table, (int64_t[]){1, d});
        expect_near(yk_get(out, (int64_t[]){0, d}), 2 * first + 4 * second, 1e-6, 1e-6);
        expect_near(yk_get(out, (int64_t[]){1, d}), 5 * second, 1e-6, 1e-6);
    }
    expect_ok(yk_backward(yk_sum(out)));
    expect_ok(yk_grad_rows(table, &indices, &rows));
    expect_near(yk_get(yk_grad_to_dense(table), (int64_t[]){1, 0}), 9, 1e-6, 0);
    out = yk_forward(m, yk_reshape(index, YK_SHAPE(2, 2)));
    assert_int_equal(yk_size(out, 0), 2);
    assert_int_not_equal(yk_forward_list(m, (yk_tensor *[]){index, offsets, factors, factors}, 4, &out, 1), YK_OK);
    expect_error(YK_ERR_ARGUMENT, "4 inputs and 1 outputs");
    assert_null(yk_embedding_bag_create(0, 3, NULL));
    expect_error(YK_ERR_ARGUMENT, "both must be at least 1");
    assert_null(yk_embedding_bag_create(5, 3, YK_OPTIONS(yk_embedding_bag_module_options, .mode = (yk_bag_mode)7)));
    expect_error(YK_ERR_ARGUMENT, "mode 7 is none of mean, sum and max");
    yk_scope_end(scope);
}

#define REFUSED(code, text, index, table, ...)                                                                         \
    do {                                                                                                               \
        assert_null(yk_embedding_bag(index, table, YK_OPTIONS(yk_embedding_bag_options, __VA_ARGS__)));                \
        expect_error(code, text);                                                                                      \
    } while (0)

static void test_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *table = wave(1, YK_SHAPE(4, 3), f64), *rows = yk_zeros(YK_SHAPE(2, 2), whole);
    yk_tensor *list = yk_zeros(YK_SHAPE(4), whole), *offsets = yk_from_data((int64_t[]){0, 2}, YK_SHAPE(2), whole);
    REFUSED(YK_ERR_SHAPE, "index () and weight (4, 3)", yk_zeros(YK_SCALAR, whole), table, .mode = YK_BAG_SUM);
    REFUSED(YK_ERR_DTYPE, "index is float64, expected int64 or int32", yk_zeros(YK_SHAPE(2, 2), f64), table,
            .mode = YK_BAG_SUM);
    REFUSED(YK_ERR_ARGUMENT, "offsets are for an index of one dimension", rows, table, .offsets = offsets);
    REFUSED(YK_ERR_SHAPE, "index (4) has bags by offsets of one dimension, got none", list, table, .mode = YK_BAG_SUM);
    REFUSED(YK_ERR_DTYPE, "offsets is float64", list, table, .offsets = yk_zeros(YK_SHAPE(2), f64));
    REFUSED(YK_ERR_SHAPE, "per_sample_weights (2), expected the shape of index, (2, 2)", rows, table,
            .mode = YK_BAG_SUM, .per_sample_weights = yk_ones(YK_SHAPE(2), f64));
    REFUSED(YK_ERR_DTYPE, "per_sample_weights is float32", rows, table, .mode = YK_BAG_SUM,
            .per_sample_weights = yk_ones(YK_SHAPE(2, 2), NULL));
    REFUSED(YK_ERR_ARGUMENT, "per_sample_weights are for sums", rows, table,
            .per_sample_weights = yk_ones(YK_SHAPE(2, 2), f64));
    REFUSED(YK_ERR_ARGUMENT, "mode 3 is none of mean, sum and max", rows, table, .mode = (yk_bag_mode)3);
    REFUSED(YK_ERR_ARGUMENT, "padding_idx 4 is outside weight (4, 3)", rows, table, .padding_idx = 4);
    if (test_device_type == YK_CPU) { /* values on other devices are not looked at here */
        REFUSED(YK_ERR_ARGUMENT, "offset 0 is 1, expected 0", list, table, .offsets = yk_ones(YK_SHAPE(1), whole));
        REFUSED(YK_ERR_ARGUMENT, "offset 1 is 5, expected one from 0 to the length of index", list, table,
                .offsets = yk_from_data((int64_t[]){0, 5}, YK_SHAPE(2), whole));
        REFUSED(YK_ERR_ARGUMENT, "offset 2 is 1, expected one from 2", list, table,
                .offsets = yk_from_data((int64_t[]){0, 2, 1}, YK_SHAPE(3), whole));
        REFUSED(YK_ERR_ARGUMENT, "the last offset is 2, expected the length of index, 4", list, table,
                .offsets = offsets, .include_last_offset = true);
        assert_null(finished(yk_embedding_bag(yk_full(YK_SHAPE(2, 2), 4, whole), table, NULL)));
        yk_clear_error();
    }
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch), cmocka_unit_test(test_other_dtypes), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_layer),   cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
