/*
 * Losses of classes by margins: PyTorch's values and gradients, finite differences of gradients and of their gradients,
 * f16, int32, and errors.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/ops.h>

#include "tests/support/golden.h"

static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
static const yk_tensor_options *const whole = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);

enum { MOST = 32 };

static yk_tensor *wave(int seed, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    double x[MOST];
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++)
        x[i] = sin(0.7 * (double)i + seed);
    return yk_from_data(x, ndim, shape, options);
}

static void expect_values(const char *what, size_t test, yk_tensor *x, const double *values)
{
    yk_tensor *dense = yk_contiguous(yk_detach(x));
    assert_non_null(dense);
    const double *got = host_data(dense);
    for (int64_t i = 0; i < yk_numel(dense); i++)
        if (!(fabs(got[i] - values[i]) <= 1e-14))
            fail_msg("case %zu: %s %lld is %.17g, expected %.17g", test, what, (long long)i, got[i], values[i]);
}

typedef struct margin_case {
    int64_t rows, classes; /* rows 0: one without that dimension */
    yk_multi_margin_loss_options o;
    bool weighted;
    yk_tensor *target;
} margin_case;

static yk_tensor *targets(const char **row, int ndim, const int64_t *shape, int64_t count)
{
    int64_t of[MOST];
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++)
        of[i] = golden_integer(row);
    return yk_from_data(of, ndim, shape, whole);
}

static yk_tensor *multi(yk_tensor *const *inputs, int count, void *user)
{
    (void)count;
    margin_case *c = user;
    double weight[MOST];
    for (int64_t i = 0; i < c->classes; i++)
        weight[i] = 0.5 + cos((double)i) * cos((double)i);
    c->o.weight = c->weighted ? yk_from_data(weight, 1, &c->classes, f64) : NULL;
    return yk_multi_margin_loss(inputs[0], c->target, &c->o);
}

static yk_tensor *multilabel(yk_tensor *const *inputs, int count, void *user)
{
    (void)count;
    const margin_case *c = user;
    return yk_multilabel_margin_loss(inputs[0], c->target, c->o.reduction);
}

static void compare(const char *kind, size_t t, yk_tensor *(*loss_of)(yk_tensor *const *, int, void *), margin_case *c)
{
    char section[40];
    snprintf(section, sizeof(section), "%s %zu", kind, t);
    const double *values = golden_numbers("margins", section, NULL);
    const int64_t shape[2] = {c->rows, c->classes};
    yk_tensor *x = wave(1, c->rows ? 2 : 1, c->rows ? shape : shape + 1, f64_leaf), *loss = loss_of(&x, 1, c);
    assert_non_null(loss);
    expect_ok(yk_backward_with(
        loss, YK_OPTIONS(yk_backward_options, .gradient = wave(2, yk_ndim(loss), yk_sizes(loss), f64))));
    expect_values("loss", t, loss, values);
    expect_values("gradient", t, yk_grad(x), values + yk_numel(loss));
    expect_ok(yk_gradcheck(loss_of, &x, 1, c, NULL));
    expect_ok(yk_gradgradcheck(loss_of, &x, 1, c, NULL));
}

static void test_multi_margin(void **state)
{
    (void)state;
    size_t count;
    const char *const *cases = golden_rows("margins", "multi", &count);
    assert_true(count > 0);
    for (size_t t = 0; t < count; t++) {
        yk_scope scope = yk_scope_begin();
        const char *row = cases[t];
        margin_case c = {.rows = golden_integer(&row), .o = *YK_OPTIONS(yk_multi_margin_loss_options, .p = 1)};
        c.classes = golden_integer(&row);
        c.o.p = golden_integer(&row);
        c.o.margin = golden_number(&row);
        c.weighted = golden_integer(&row);
        c.o.reduction = (yk_reduction)golden_integer(&row);
        c.target = targets(&row, c.rows ? 1 : 0, &c.rows, c.rows ? c.rows : 1);
        compare("multi", t, multi, &c);
        yk_scope_end(scope);
    }
}

static void test_multilabel_margin(void **state)
{
    (void)state;
    size_t count;
    const char *const *cases = golden_rows("margins", "label", &count);
    assert_true(count > 0);
    for (size_t t = 0; t < count; t++) {
        yk_scope scope = yk_scope_begin();
        const char *row = cases[t];
        margin_case c = {.rows = golden_integer(&row)};
        c.classes = golden_integer(&row);
        c.o.reduction = (yk_reduction)golden_integer(&row);
        const int64_t shape[2] = {c.rows, c.classes};
        c.target = targets(&row, c.rows ? 2 : 1, c.rows ? shape : shape + 1, (c.rows ? c.rows : 1) * c.classes);
        compare("label", t, multilabel, &c);
        yk_scope_end(scope);
    }
}

static void test_other_dtypes(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    const yk_tensor_options small = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I32);
    yk_tensor *wide = wave(1, YK_SHAPE(2, 3), f64), *half = yk_cast(wide, YK_BF16);
    yk_tensor *one = yk_from_data((int32_t[]){2, 0}, YK_SHAPE(2), &small);
    yk_tensor *several = yk_from_data((int32_t[]){2, -1, 0, 1, 0, -1}, YK_SHAPE(2, 3), &small);
    yk_tensor *a = yk_multi_margin_loss(half, one, NULL), *b = yk_multi_margin_loss(wide, one, NULL);
    assert_int_equal(yk_tensor_dtype(a), YK_BF16);
    expect_near(yk_item(a), yk_item(b), 2e-2, 0);
    a = yk_multilabel_margin_loss(half, several, YK_REDUCE_MEAN);
    b = yk_multilabel_margin_loss(wide, several, YK_REDUCE_MEAN);
    assert_int_equal(yk_tensor_dtype(a), YK_BF16);
    expect_near(yk_item(a), yk_item(b), 2e-2, 0);
    yk_scope_end(scope);
}

static void test_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = wave(1, YK_SHAPE(2, 3), f64), *target = yk_zeros(YK_SHAPE(2), whole);
    assert_null(yk_multi_margin_loss(x, yk_zeros(YK_SHAPE(3), whole), NULL));
    expect_error(YK_ERR_SHAPE, "input (2, 3) and target (3), expected (N, C) and (N), or (C) and ()");
    assert_null(yk_multi_margin_loss(x, yk_zeros(YK_SHAPE(2), f64), NULL));
    expect_error(YK_ERR_DTYPE, "target is float64, expected int64 or int32: classes");
    assert_null(yk_multi_margin_loss(yk_zeros(YK_SHAPE(2, 3), whole), target, NULL));
    expect_error(YK_ERR_DTYPE, "multi_margin_loss: input is int64");
    assert_null(yk_multi_margin_loss(x, target, YK_OPTIONS(yk_multi_margin_loss_options, .p = 3)));
    expect_error(YK_ERR_ARGUMENT, "p is 3");
    yk_tensor *weight = yk_ones(YK_SHAPE(2), f64);
    assert_null(yk_multi_margin_loss(x, target, YK_OPTIONS(yk_multi_margin_loss_options, .weight = weight)));
    expect_error(YK_ERR_SHAPE, "weight has shape (2), expected (3)");
    assert_null(
        yk_multi_margin_loss(x, target, YK_OPTIONS(yk_multi_margin_loss_options, .reduction = (yk_reduction)9)));
    expect_error(YK_ERR_ARGUMENT, "reduction 9 is none of mean, sum and none");
    assert_null(yk_multilabel_margin_loss(x, target, YK_REDUCE_MEAN));
    expect_error(YK_ERR_SHAPE, "input (2, 3) and target (2), expected (N, C) or (C) for both");
    assert_null(yk_multilabel_margin_loss(x, yk_zeros(YK_SHAPE(2, 3), f64), YK_REDUCE_MEAN));
    expect_error(YK_ERR_DTYPE, "target is float64");
    if (test_device_type == YK_CPU) { /* other devices find these later */
        assert_null(yk_multi_margin_loss(x, yk_full(YK_SHAPE(2), 3, whole), NULL));
        expect_error(YK_ERR_ARGUMENT, "multi_margin_loss: index");
        assert_null(yk_multi_margin_loss(x, yk_full(YK_SHAPE(2), -1, whole), NULL));
        expect_error(YK_ERR_ARGUMENT, "multi_margin_loss: index");
        assert_null(yk_multilabel_margin_loss(x, yk_full(YK_SHAPE(2, 3), 3, whole), YK_REDUCE_MEAN));
        expect_error(YK_ERR_ARGUMENT, "multilabel_margin_loss: index");
    }
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_multi_margin),
        cmocka_unit_test(test_multilabel_margin),
        cmocka_unit_test(test_other_dtypes),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
