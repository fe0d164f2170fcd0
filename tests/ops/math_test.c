/*
 * math_test.c - order, norms, parts of matrices, where ops_test.c's rows do not reach: NaN and ties, positions, long
 * lines, tensors made by a rule, draws, what is refused.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/ops.h>

static void expect_row(const yk_tensor *x, int count, const double *expected)
{
    if (!x)
        fail_msg("no tensor: %s", yk_last_error() ? yk_last_error()->message : "no record");
    assert_int_equal(yk_numel(x), count);
    yk_tensor *flat = yk_cast(yk_reshape((yk_tensor *)x, YK_SHAPE(-1)), YK_F64);
    for (int i = 0; i < count; i++)
        expect_near(yk_get(flat, (int64_t[]){i}), expected[i], 0, 0);
}
#define EXPECT(x, ...) expect_row((x), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

static yk_tensor *reals(int64_t n, const double *values)
{
    return yk_from_data(values, 1, &n, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
}
#define REALS(...) reals((int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

/* NaN is the largest, -0 and 0 are equal, equal ones keep their order in both directions. */
static void special_values_are_ordered(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = REALS(NAN, 1, -INFINITY, 0, INFINITY, -0.0, NAN, 1, -2), *index;
    for (int half = 0; half < 2; half++, x = yk_cast(x, YK_F16)) {
        EXPECT(yk_sort(x, 0, false, &index), -INFINITY, -2, 0, -0.0, 1, 1, INFINITY, NAN, NAN);
        EXPECT(index, 2, 8, 3, 5, 1, 7, 4, 0, 6);
        EXPECT(yk_sort(x, -1, true, &index), NAN, NAN, INFINITY, 1, 1, 0, 0, -2, -INFINITY);
        EXPECT(index, 0, 6, 4, 1, 7, 3, 5, 8, 2);
        EXPECT(yk_topk(x, 3, 0, true, &index), NAN, NAN, INFINITY);
        EXPECT(index, 0, 6, 4);
        EXPECT(yk_median_dim(x, 0, false, &index), NAN);
        EXPECT(index, 0);
        EXPECT(yk_quantile(x, 0, 0, false), NAN);
    }
    EXPECT(yk_median(REALS(3, 1, 2, 4)), 2);
    EXPECT(yk_median_dim(REALS(3, 1, 2, 4), 0, false, &index), 2);
    EXPECT(index, 2);
    EXPECT(yk_sort(yk_scalar(7, NULL), 0, false, &index), 7);
    EXPECT(index, 0);
    EXPECT(yk_cumsum(REALS(1, NAN, 2), 0), 1, NAN, NAN);
    assert_int_equal(yk_numel(yk_sort(yk_zeros(YK_SHAPE(0), NULL), 0, false, NULL)), 0);
    assert_int_equal(yk_numel(yk_cumsum(yk_zeros(YK_SHAPE(2, 0), NULL), 1)), 0);
    assert_int_equal(yk_numel(yk_topk(REALS(1, 2), 0, 0, true, NULL)), 0);
    for (int64_t k = 0; k < 2; k++) { /* a number is its own part, as in PyTorch */
        yk_tensor *number = yk_topk(yk_full(YK_SCALAR, 3, NULL), k, 0, true, &index);
        assert_true(yk_ndim(number) == 0 && yk_item(number) == 3 && yk_item_i64(index) == 0);
    }
    /* Ties share the gradient of the median of all. */
    yk_tensor *ties = REALS(1, 2, 2, 5);
    expect_ok(yk_set_requires_grad(ties, true));
    expect_ok(yk_backward(yk_median(ties)));
    EXPECT(yk_grad(ties), 0, 0.5, 0.5, 0);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void every_dtype_is_sorted(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        yk_scope scope = yk_scope_begin();
        bool is_signed = dtypes[i] != YK_U8;
        yk_tensor *x = yk_cast(REALS(5, 100, is_signed ? -3 : 3, 0, 100, is_signed ? -100 : 1), dtypes[i]), *index;
        yk_tensor *sorted = yk_sort(x, 0, false, &index);
        assert_int_equal(yk_tensor_dtype(sorted), dtypes[i]);
        if (is_signed)
            EXPECT(index, 5, 2, 3, 0, 1, 4);
        else
            EXPECT(index, 3, 5, 2, 0, 1, 4);
        yk_scope_end(scope);
    }
    yk_scope scope = yk_scope_begin();
    EXPECT(yk_argsort(yk_gt(REALS(1, 3, 1, 4), yk_scalar(2, NULL)), 0, true), 1, 3, 0, 2);
    EXPECT(yk_sort(yk_from_data((int64_t[]){INT64_MAX, INT64_MIN, -1, 0}, YK_SHAPE(4),
                                YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)),
                   0, false, NULL),
           (double)INT64_MIN, -1, 0, (double)INT64_MAX);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* Lines that are sorted digit by digit: in order, a permutation, stable, and the same for every number of threads. */
static void long_lines(void **state)
{
    (void)state;
    const int lines = 9, length = work_size(20000, 900);
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(7);
    yk_tensor *x = yk_round(yk_mul_scalar(yk_randn(YK_SHAPE(lines, length), NULL), 300)), *kept = NULL, *sums = NULL;
    for (int threads = 1; threads <= 4; threads++) {
        expect_ok(yk_set_num_threads((yk_device){0}, threads));
        yk_tensor *index = yk_argsort(x, 1, false), *columns = yk_argsort(yk_transpose(x, 0, 1), 0, false);
        yk_tensor *sum = yk_cumsum(x, 1);
        assert_int_equal(yk_item_i64(yk_all(yk_eq(index, yk_transpose(columns, 0, 1)))), 1);
        kept = kept ? kept : index;
        sums = sums ? sums : sum;
        assert_int_equal(yk_item_i64(yk_all(yk_eq(index, kept))), 1);
        assert_int_equal(yk_item_i64(yk_all(yk_eq(sum, sums))), 1);
    }
    expect_ok(yk_set_num_threads((yk_device){0}, 2));
    const int64_t *index = host_data(kept);
    const float *values = host_data(x), *total = host_data(sums);
    for (int line = 0; line < lines; line++, values += length, index += length, total += length) {
        double sum = 0;
        for (int i = 0; i < length; i++) {
            assert_true(index[i] >= 0 && index[i] < length);
            if (i > 0)
                assert_true(values[index[i - 1]] < values[index[i]] ||
                            (values[index[i - 1]] == values[index[i]] && index[i - 1] < index[i]));
            sum += (double)values[i];
            assert_true((double)total[i] == sum); /* whole numbers */
        }
    }
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* The first k are those of the whole line sorted: ties, NaN, lines that lie apart, k from 0 to all of a line. */
static void first_of_a_line(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 40, 64, 65, 200, 1000}, ks[] = {0, 1, 3, 40, 41, 63, 100, 200, 1000};
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_I64, YK_I32, YK_U8};
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(11);
    for (int d = 0; d < 5; d++)
        for (int l = 0; l < work_size(6, 5); l++) {
            yk_scope inner = yk_scope_begin();
            yk_tensor *real = yk_round(yk_mul_scalar(yk_rand(YK_SHAPE(7, lengths[l]), NULL), d % 2 ? 1e6 : 90));
            real = d < 2 ? yk_log(yk_sub_scalar(real, 10)) : real; /* NaN, infinities and both signs */
            yk_tensor *x = yk_cast(real, d == 4 ? YK_I64 : dtypes[d]);
            x = d == 4 ? yk_cast(x, YK_U8) : x;
            for (int way = 0; way < 4; way++) {
                int dim = way % 2;
                yk_tensor *line = dim ? x : yk_transpose(x, 0, 1), *all, *index;
                yk_sort(line, dim, way >= 2, &all);
                for (int k = 0; k < 9 && ks[k] <= lengths[l]; k++) {
                    yk_tensor *first = yk_topk(line, ks[k], dim, way >= 2, &index);
                    assert_int_equal(yk_size(first, dim), ks[k]);
                    assert_int_equal(yk_item_i64(yk_all(yk_eq(index, yk_narrow(all, dim, 0, ks[k])))), 1);
                }
            }
            yk_scope_end(inner);
        }
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* Equal; on GPUs, whose order of sums follows strides too, as near as two orders come. */
static bool same_scan(yk_tensor *a, yk_tensor *b)
{
    bool wide = yk_tensor_dtype(a) == YK_F64;
    if (test_device_type == YK_CPU || yk_tensor_dtype(a) == YK_I64)
        return yk_item_i64(yk_all(yk_eq(a, b))) == 1;
    return yk_all_close(a, b, wide ? 1e-12 : 1e-5, wide ? 1e-11 : 1e-4, false);
}

/* Sums down lines that lie side by side are those of each line alone, in both directions. */
static void scans_side_by_side(void **state)
{
    (void)state;
    static const int64_t widths[] = {1, 2, 255, 256, 257, 600};
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(12);
    for (int w = 0; w < 6; w++)
        for (int d = 0; d < 3; d++) {
            yk_tensor *x = yk_cast(yk_mul_scalar(yk_randn(YK_SHAPE(33, widths[w]), NULL), 3), d == 0   ? YK_F32
                                                                                              : d == 1 ? YK_F64
                                                                                                       : YK_I64);
            yk_tensor *lines = yk_contiguous(yk_transpose(x, 0, 1));
            yk_tensor *sums = yk_cumsum(x, 0), *products = yk_cumprod(x, 0);
            assert_true(same_scan(sums, yk_transpose(yk_cumsum(lines, 1), 0, 1)));
            assert_true(same_scan(products, yk_transpose(yk_cumprod(lines, 1), 0, 1)));
            if (d == 2)
                continue;
            yk_tensor *grads[2], *from[] = {x, lines}; /* scans in reverse */
            for (int i = 0; i < 2; i++) {
                assert_int_equal(yk_set_requires_grad(from[i], true), YK_OK);
                assert_int_equal(yk_backward(yk_sum(yk_square(yk_cumsum(from[i], i)))), YK_OK);
                grads[i] = yk_grad(from[i]);
            }
            assert_true(same_scan(grads[0], yk_transpose(grads[1], 0, 1)));
        }
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void special_values_are_told_apart(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = REALS(NAN, INFINITY, -INFINITY, 2);
    EXPECT(yk_is_nan(x), 1, 0, 0, 0);
    EXPECT(yk_is_inf(x), 0, 1, 1, 0);
    EXPECT(yk_nan_to_num(x, 0, 7, NAN), 0, 7, -1.7976931348623157e308, 2);
    EXPECT(yk_nan_to_num(yk_cast(x, YK_F16), 1, NAN, NAN), 1, 65504, -65504, 2);
    EXPECT(yk_is_inf(yk_cast(REALS(1, 2), YK_I64)), 0, 0);
    expect_ok(yk_set_requires_grad(x, true));
    expect_ok(yk_backward(yk_sum(yk_mul_scalar(yk_nan_to_num(x, 0, 1, 1), 3))));
    EXPECT(yk_grad(x), 0, 0, 0, 3);
    yk_tensor *a = REALS(1, NAN, INFINITY, 100), *b = REALS(1.0000001, NAN, INFINITY, 101);
    EXPECT(yk_is_close(a, b, 1e-5, 1e-8, false), 1, 0, 1, 0);
    EXPECT(yk_is_close(a, b, 0.1, 1e-8, true), 1, 1, 1, 1);
    assert_true(yk_all_close(a, b, 0.1, 0, true));
    assert_false(yk_all_close(a, b, 0.1, 0, false));
    assert_null(yk_last_error());
    EXPECT(yk_lerp_scalar(REALS(1e20), REALS(3), 1), 3);
    /* At the origin, and so near to it that squares are 0. */
    yk_tensor *up = REALS(0, 1e-200, 1), *right = REALS(0, 1e-200, 0);
    expect_ok(yk_set_requires_grad(up, true));
    expect_ok(yk_set_requires_grad(right, true));
    expect_ok(yk_backward(yk_sum(yk_atan2(up, right))));
    EXPECT(yk_grad(up), 0, 0, 0);
    EXPECT(yk_grad(right), 0, 0, -1);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* In one dtype, halves in f32: nothing between is rounded to what an operand alone is of. */
static void made_of_others(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *low = yk_cast(REALS(-60000, 1), YK_F16), *high = yk_cast(REALS(60000, 2), YK_F16);
    EXPECT(yk_lerp(low, high, yk_cast(REALS(0.5), YK_F16)), 0, 1.5);
    EXPECT(yk_lerp_scalar(low, high, 0.25), -30000, 1.25);
    yk_tensor *one = yk_cast(REALS(1), YK_F16), *three = yk_cast(REALS(3), YK_F16), *zero = yk_zeros(YK_SHAPE(1), NULL);
    EXPECT(yk_addcdiv(zero, one, three, 1), (double)(1.0F / 3));
    assert_int_equal(yk_tensor_dtype(yk_addcdiv(one, one, three, 2)), YK_F16);
    yk_tensor *bytes = yk_cast(REALS(200), YK_U8), *two = yk_cast(REALS(2), YK_U8), *product;
    EXPECT(yk_addcmul(zero, bytes, two, -1), -400);
    EXPECT(yk_addcdiv(zero, yk_add_scalar(zero, 1), two, 1), 0.5);
    EXPECT(yk_addcmul(bytes, two, two, 3), 212);
    /* A number of f16 does not make f32 of f16 and an integer. */
    product = yk_addcmul(yk_reshape(one, YK_SCALAR), bytes, one, 1);
    assert_int_equal(yk_tensor_dtype(product), YK_F16);
    EXPECT(product, 201);
    /* The value comes first, as in PyTorch. */
    EXPECT(yk_addcmul(REALS(0), REALS(1e200), REALS(1e200), 0x1p-1000), 1e200 * 0x1p-1000 * 1e200);
    EXPECT(yk_addcdiv(REALS(1), REALS(1e200), REALS(1e-200), 0), 1);
    /* The branch that was not taken gives no gradient of NaN. */
    yk_tensor *weight = REALS(0.25, 0.75);
    expect_ok(yk_set_requires_grad(weight, true));
    expect_ok(yk_backward(yk_sum(yk_lerp(REALS(0), REALS(INFINITY), weight))));
    EXPECT(yk_grad(weight), INFINITY, INFINITY);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void made_by_a_rule(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    EXPECT(yk_linspace(1, 3, 5, NULL), 1, 1.5, 2, 2.5, 3);
    EXPECT(yk_linspace(2, 9, 1, NULL), 2);
    EXPECT(yk_linspace(0, 10, 4, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)), 0, 3, 6, 10);
    assert_int_equal(yk_numel(yk_linspace(0, 1, 0, NULL)), 0);
    EXPECT(yk_linspace(0.9, 4.9, 3, YK_OPTIONS(yk_tensor_options, .dtype = YK_I32)), 0, 2,
           4); /* the ends are integers, too */
    EXPECT(yk_eye(2, 3, NULL), 1, 0, 0, 0, 1, 0);
    yk_tensor *square = yk_reshape(yk_arange(0, 9, 1, NULL), YK_SHAPE(3, 3)), *line = yk_diagonal(square, 1, 0, 1);
    yk_fill_(line, -1); /* a view */
    EXPECT(square, 0, -1, 2, 3, 4, -1, 6, 7, 8);
    assert_int_equal(yk_numel(yk_diagonal(square, 7, 0, 1)), 0);
    yk_tensor_options whole = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    yk_tensor *counts = yk_from_data((int64_t[]){3, 1, 3}, YK_SHAPE(3), &whole);
    EXPECT(yk_bincount(counts, REALS(0.5, 2, 1), 0), 0, 2, 0, 1.5);
    EXPECT(yk_one_hot(counts, -1), 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1);
    assert_int_equal(yk_tensor_dtype(yk_bincount(counts, yk_cast(REALS(1, 2, 3), YK_F16), 0)), YK_F64);
    assert_int_equal(yk_tensor_dtype(yk_bincount(counts, yk_cast(REALS(1, 2, 3), YK_F32), 0)), YK_F32);
    EXPECT(yk_cdist(yk_zeros(YK_SHAPE(1, 0), NULL), yk_zeros(YK_SHAPE(2, 0), NULL), INFINITY), 0, 0);
    EXPECT(yk_repeat(REALS(1, 2), YK_SHAPE(2, 2)), 1, 2, 1, 2, 1, 2, 1, 2);
    assert_int_equal(yk_numel(yk_repeat(REALS(1, 2), YK_SHAPE(3, 0))), 0);
    EXPECT(yk_logsumexp(REALS(-INFINITY, -INFINITY), NULL, 0, false), -INFINITY);
    EXPECT(yk_logsumexp(REALS(1000, INFINITY), NULL, 0, false), INFINITY);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* Shares of many draws are those of the weights; without replacement no position comes twice. */
static void draws(void **state)
{
    (void)state;
    enum { DRAWS = 20000 };
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(11);
    yk_tensor *weights = yk_from_data((float[]){0, 2, 1, 0, 5, 0}, YK_SHAPE(6), NULL);
    yk_tensor *counts = yk_bincount(yk_multinomial(weights, DRAWS, true), NULL, 6);
    static const double share[6] = {0, 0.25, 0.125, 0, 0.625, 0};
    for (int i = 0; i < 6; i++) {
        double got = (double)((const int64_t *)host_data(counts))[i] / DRAWS;
        expect_near(got, share[i], 0, share[i] > 0 ? 0.015 : 0);
    }
    yk_tensor *rows = yk_expand(weights, YK_SHAPE(DRAWS, 6)), *pairs = yk_multinomial(rows, 2, false);
    assert_int_equal(yk_size(pairs, 0), DRAWS);
    const int64_t *drawn = host_data(yk_contiguous(pairs));
    int first[6] = {0};
    for (int i = 0; i < DRAWS; i++) {
        assert_true(drawn[2 * i] != drawn[2 * i + 1] && share[drawn[2 * i]] > 0 && share[drawn[2 * i + 1]] > 0);
        first[drawn[2 * i]]++;
    }
    for (int i = 0; i < 6; i++)
        expect_near((double)first[i] / DRAWS, share[i], 0, share[i] > 0 ? 0.015 : 0);
    /* At the ends of f64's range, where the sum of the weights and a share of it cannot be told. */
    static const double ends[2][3] = {{1e308, 0, 1e308}, {5e-324, 0, 5e-324}};
    for (int i = 0; i < 2; i++) {
        yk_tensor *end = yk_from_data(ends[i], YK_SHAPE(3), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
        const int64_t *count = host_data(yk_bincount(yk_multinomial(end, DRAWS, true), NULL, 4));
        assert_true(count[1] == 0 && count[3] == 0 && count[0] + count[2] == DRAWS);
        expect_near((double)count[0] / DRAWS, 0.5, 0, 0.015);
    }
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(3, 4), NULL), *whole = yk_cast(x, YK_I64), *line = REALS(1, 2),
              *three = REALS(1, 2, 3);
    yk_tensor *pair[2] = {line, three};
#define REFUSED(call, code, text)                                                                                      \
    assert_null(call);                                                                                                 \
    expect_error(code, text)
    REFUSED(yk_topk(x, 5, 1, true, NULL), YK_ERR_ARGUMENT, "topk: k is 5, expected 0 to 4, the size of dimension 1");
    REFUSED(yk_topk(yk_full(YK_SCALAR, 3, NULL), 2, 0, true, NULL), YK_ERR_ARGUMENT, "topk: k is 2, expected 0 to 1");
    REFUSED(yk_topk(x, -1, 1, true, NULL), YK_ERR_ARGUMENT, "topk: k is -1");
    REFUSED(yk_sort(x, 2, false, NULL), YK_ERR_SHAPE, "sort: dimension 2 is outside [-2, 1]");
    REFUSED(yk_cumsum(x, -3), YK_ERR_SHAPE, "cumsum: dimension -3");
    REFUSED(yk_median(yk_zeros(YK_SHAPE(0), NULL)), YK_ERR_SHAPE, "median: the tensor has no elements");
    REFUSED(yk_quantile(x, 1.5, 0, false), YK_ERR_ARGUMENT, "quantile: q is 1.5, expected 0 to 1");
    REFUSED(yk_quantile_list(x, (double[]){0.5, NAN}, 2, 0, false), YK_ERR_ARGUMENT, "quantile: q is nan");
    REFUSED(yk_quantile_list(x, NULL, 1, 0, false), YK_ERR_ARGUMENT, "quantile: 1 numbers at NULL");
    REFUSED(yk_quantile_list(x, (double[]){0}, 0, 0, false), YK_ERR_ARGUMENT, "quantile: 0 numbers");
    REFUSED(yk_roll_dims(x, (int64_t[]){1, 2}, NULL, 2), YK_ERR_ARGUMENT, "roll: 2 shifts all dimensions 1");
    REFUSED(yk_roll_dims(x, NULL, (int[]){0}, 1), YK_ERR_ARGUMENT, "roll: 1 shifts at NULL");
    REFUSED(yk_roll_dims(x, (int64_t[]){1}, (int[]){5}, 1), YK_ERR_SHAPE, "roll: dimension 5");
    REFUSED(yk_quantile(whole, 0.5, 0, false), YK_ERR_DTYPE, "quantile: expected a floating input, this one is int64");
    REFUSED(yk_flip(x, (int[]){0, -2}, 2), YK_ERR_SHAPE, "flip: dimension 0 is named twice");
    REFUSED(yk_repeat(x, YK_SHAPE(2)), YK_ERR_SHAPE, "repeat: 1 counts for (3, 4), expected 2 to 8");
    REFUSED(yk_tril(line, 0), YK_ERR_SHAPE, "tril: (2,) has fewer than two dimensions");
    REFUSED(yk_diagonal(x, 0, 1, -1), YK_ERR_SHAPE, "diagonal: dimensions 1 and 1 of (3, 4), expected two different");
    REFUSED(yk_outer(x, line), YK_ERR_SHAPE, "outer: (3, 4) and (2,), expected (M,) and (N,)");
    REFUSED(yk_one_hot(whole, 1), YK_ERR_ARGUMENT, "one_hot: class 1 is outside [0, 1)");
    REFUSED(yk_one_hot(x, 3), YK_ERR_DTYPE, "one_hot: index is float32");
    REFUSED(yk_bincount(yk_neg(yk_cast(line, YK_I64)), NULL, 0), YK_ERR_ARGUMENT, "bincount: -2 is negative");
    REFUSED(yk_bincount(line, NULL, 0), YK_ERR_DTYPE, "bincount: input is float64, expected integers");
    REFUSED(yk_norm(whole, 2, NULL, 0, false), YK_ERR_DTYPE, "norm: expected a floating input");
    REFUSED(yk_cdist(x, yk_ones(YK_SHAPE(2, 3), NULL), 2), YK_ERR_SHAPE, "cdist: (3, 4) and (2, 3) with p 2");
    REFUSED(yk_lerp_scalar(x, line, 0.5), YK_ERR_DTYPE, "lerp: end is float64, expected float32");
    REFUSED(yk_atan2(whole, x), YK_ERR_DTYPE, "atan2: expected a floating y");
    REFUSED(yk_einsum("i,i->i", pair, 2), YK_ERR_SHAPE,
            "einsum: operand 1 of \"i,i->i\" has size 3 where another has 2");
    REFUSED(yk_einsum("ij->i", pair, 1), YK_ERR_SHAPE, "einsum: 2 labels for an operand of shape (2,)");
    REFUSED(yk_einsum("i->ij", pair, 1), YK_ERR_ARGUMENT,
            "einsum: \"i->ij\": a label of the result stands in no operand");
    REFUSED(yk_einsum("i->ii", pair, 1), YK_ERR_ARGUMENT, "stands there twice");
    REFUSED(yk_einsum("i", pair, 2), YK_ERR_ARGUMENT, "einsum: \"i\" is not of 2 operands");
    REFUSED(yk_einsum("i,j,k", pair, 2), YK_ERR_ARGUMENT, "einsum: \"i,j,k\" is not of 2 operands");
    REFUSED(yk_einsum("i?", pair, 1), YK_ERR_ARGUMENT, "einsum: '?' is no label");
    REFUSED(yk_multinomial(yk_neg(x), 1, true), YK_ERR_ARGUMENT, "multinomial: a weight is negative, infinite or NaN");
    REFUSED(yk_multinomial(x, 5, false), YK_ERR_ARGUMENT, "multinomial: 5 draws without replacement from a row with 4");
    REFUSED(yk_linspace(0, 1, -1, NULL), YK_ERR_ARGUMENT, "linspace: -1 steps");
    REFUSED(yk_arange(0.5, 0, 3, NULL), YK_ERR_ARGUMENT, "arange: from 0.5 to 0 goes against the step 3");
    assert_false(yk_all_close(line, three, 0, 0, false));
    expect_error(YK_ERR_SHAPE, "all_close: shapes (2,) and (3,) do not broadcast");
    assert_false(yk_all_close(line, line, -1, 0, false));
    expect_error(YK_ERR_ARGUMENT, "all_close: rtol -1 and atol 0, expected at least 0");
    REFUSED(yk_is_close(line, three, 0, 0, false), YK_ERR_SHAPE, "is_close: shapes (2,) and (3,) do not broadcast");
    REFUSED(yk_std_dims(x, (int[]){0, 0}, 2, 1, false), YK_ERR_SHAPE, "std: dimension 0 is named twice");
    REFUSED(yk_norm(x, 2, (int[]){0, -2}, 2, false), YK_ERR_SHAPE, "norm: dimension 0 is named twice");
    REFUSED(yk_logsumexp(x, (int[]){1, 1}, 2, false), YK_ERR_SHAPE, "logsumexp: dimension 1 is named twice");
    REFUSED(yk_std_dims(x, (int[]){2}, 1, 1, false), YK_ERR_SHAPE, "std: dimension 2 is outside [-2, 1] of shape");
    REFUSED(yk_eye(-1, 2, NULL), YK_ERR_SHAPE, "eye: -1 rows and 2 columns, expected at least 0");
    assert_int_equal(yk_meshgrid((yk_tensor *[]){x}, 1, (yk_tensor *[]){NULL}), YK_ERR_SHAPE);
    expect_error(YK_ERR_SHAPE, "meshgrid: tensor 0 has shape (3, 4), expected (N,)");
    yk_scope_end(scope);
}

/* Rows of more than 25 are taken by a product: against the norm of the differences, with gradients, in batches that
 * broadcast. What is the same on both sides is at distance 0, without a gradient. */
static void distances_by_product(void **state)
{
    (void)state;
    static const int64_t several[][5] = {{1, 1, 30, 26, 5}, {2, 2, 3, 40, 17}, {3, 1, 27, 4, 64}, {1, 2, 26, 26, 1}};
    for (int s = 0; s < 4; s++)
        for (int wide = s == 3; wide < 2; wide++) { /* neighbours on a line are closer than squares in f32 can tell */
            yk_scope scope = yk_scope_begin();
            const int64_t *n = several[s];
            yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = wide ? YK_F64 : YK_F32);
            yk_tensor *x[2] = {yk_randn(YK_SHAPE(n[0], n[2], n[4]), &o), yk_randn(YK_SHAPE(n[1], n[3], n[4]), &o)};
            double tolerance = wide ? 1e-11 : 2e-4;
            yk_tensor *copies[2] = {yk_clone(x[0]), yk_clone(x[1])};
            for (int i = 0; i < 2; i++) {
                expect_ok(yk_set_requires_grad(x[i], true));
                expect_ok(yk_set_requires_grad(copies[i], true));
            }
            yk_tensor *got = yk_cdist(x[0], x[1], 2);
            yk_tensor *want =
                yk_norm(yk_sub(yk_unsqueeze(copies[0], -2), yk_unsqueeze(copies[1], -3)), 2, (int[]){-1}, 1, false);
            assert_true(yk_all_close(got, want, tolerance, tolerance, false));
            yk_tensor *weights = yk_randn_like(want);
            expect_ok(yk_backward_with(got, YK_OPTIONS(yk_backward_options, .gradient = weights)));
            expect_ok(yk_backward_with(want, YK_OPTIONS(yk_backward_options, .gradient = weights)));
            for (int i = 0; i < 2; i++)
                assert_true(yk_all_close(yk_grad(x[i]), yk_grad(copies[i]), 50 * tolerance, 50 * tolerance, false));
            yk_scope_end(scope);
        }
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_reshape(yk_arange(0, 60, 1, NULL), YK_SHAPE(30, 2)); /* of integers, so that squares are exact */
    expect_ok(yk_set_requires_grad(x = yk_detach(x), true));
    yk_tensor *out = yk_cdist(x, yk_detach(x), 2), *line = yk_diagonal(out, 0, 0, 1);
    assert_int_equal(yk_item_i64(yk_sum(yk_eq(line, yk_zeros_like(line)))), 30);
    expect_ok(yk_backward(yk_sum(line)));
    assert_int_equal(yk_item_i64(yk_sum(yk_eq(yk_grad(x), yk_zeros_like(x)))), 60);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* More differences than a block, with gradients of both sides or of one, against the norm of the differences. */
static void distances_in_blocks(void **state)
{
    (void)state;
    static const double p[] = {0, 1, 2, 3, INFINITY};
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_BF16};
    static const struct {
        int ndim[2];
        int64_t shape[2][4];
    } cases[] = {
        {{2, 2}, {{301, 7}, {53, 7}}},               /* rows of x */
        {{2, 2}, {{3, 3001}, {25, 3001}}},           /* rows of y */
        {{2, 2}, {{1, 70001}, {2, 70001}}},          /* a row is more than a block */
        {{4, 3}, {{3, 2, 9, 40}, {2, 130, 40}}},     /* y repeated along the first dimension */
        {{3, 4}, {{1, 130, 40}, {3, 2, 25, 40}}},    /* x along both */
        {{4, 4}, {{1, 5, 20, 601}, {4, 1, 7, 601}}}, /* both */
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int d = 0; d < 3; d++)
            for (int k = 0; k < 5; k += work_size(1, 4)) {
                int64_t rows[2];
                for (int i = 0; i < 2; i++)
                    rows[i] = cases[c].shape[i][cases[c].ndim[i] - 2];
                if (p[k] == 2 && (rows[0] > 25 || rows[1] > 25))
                    continue; /* a product */
                yk_scope scope = yk_scope_begin();
                yk_tensor *x[2], *copies[2];
                for (int i = 0; i < 2; i++)
                    x[i] = yk_cast(yk_randn(cases[c].ndim[i], cases[c].shape[i], NULL), dtypes[d]);
                if (c == 0) { /* columns side by side, what is not a number, and rows that are the same */
                    x[0] = yk_transpose(yk_contiguous(yk_transpose(x[0], 0, 1)), 0, 1);
                    assert_non_null(yk_copy_(yk_narrow(x[1], 0, 9, 1), yk_narrow(x[0], 0, 100, 1)));
                    assert_non_null(yk_fill_(yk_narrow(yk_narrow(x[1], 0, 5, 1), 1, 2, 1), NAN));
                    assert_non_null(yk_fill_(yk_narrow(yk_narrow(x[1], 0, 7, 1), 1, 3, 1), -INFINITY));
                }
                yk_tensor *plain = yk_cdist(x[0], x[1], p[k]);
                assert_non_null(plain);
                assert_false(yk_requires_grad(plain));
                bool wanted[2] = {k != 1, k != 3};
                for (int i = 0; i < 2; i++) {
                    copies[i] = yk_clone(x[i]);
                    x[i] = yk_detach(x[i]);
                    expect_ok(yk_set_requires_grad(x[i], wanted[i]));
                    expect_ok(yk_set_requires_grad(copies[i], wanted[i]));
                }
                yk_tensor *got = yk_cdist(x[0], x[1], p[k]);
                yk_tensor *difference = yk_sub(yk_unsqueeze(copies[0], -2), yk_unsqueeze(copies[1], -3));
                yk_tensor *want = yk_norm(difference, p[k], (int[]){-1}, 1, false);
                assert_non_null(got);
                assert_true(yk_same_shape(got, want) && yk_same_shape(plain, want));
                assert_true(yk_all_close(got, want, 1e-6, 1e-6, true));
                assert_true(yk_all_close(plain, want, 1e-6, 1e-6, true));
                yk_tensor *weights = yk_randn_like(want);
                expect_ok(yk_backward_with(got, YK_OPTIONS(yk_backward_options, .gradient = weights)));
                expect_ok(yk_backward_with(want, YK_OPTIONS(yk_backward_options, .gradient = weights)));
                double tolerance = dtypes[d] == YK_F64 ? 1e-12 : dtypes[d] == YK_F32 ? 1e-4 : 0;
                for (int i = 0; i < 2; i++) {
                    if (!wanted[i])
                        assert_null(yk_grad(x[i]));
                    else
                        assert_true(yk_all_close(yk_grad(x[i]), yk_grad(copies[i]), tolerance, tolerance, true));
                }
                yk_scope_end(scope);
            }
    assert_null(yk_last_error());
}

/* Deviations that the dtype holds, of values whose variance it does not. On GPUs f32 is squared in f32. */
static void deviations_out_of_range(void **state)
{
    (void)state;
    static const struct {
        yk_dtype dtype;
        double factor, tolerance;
    } cases[] = {{YK_F16, 1000, 1e-3},  {YK_F16, 1e-4, 1e-2}, {YK_F32, 1e25, 1e-6},
                 {YK_F32, 1e-30, 1e-6}, {YK_F32, 1, 1e-6},    {YK_BF16, 1e25, 1e-2}};
    int count = test_device_type == YK_CPU ? 6 : 2;
    for (int i = 0; i < count; i++) {
        yk_scope scope = yk_scope_begin();
        double factor = cases[i].factor;
        const double rows[] = {0, factor, 2 * factor, -factor, 1, 1, 1, 1};
        yk_tensor *x =
            yk_cast(yk_from_data(rows, YK_SHAPE(2, 4), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)), cases[i].dtype);
        x = yk_detach(x);
        expect_ok(yk_set_requires_grad(x, true));
        yk_tensor *out = yk_std_dims(x, (int[]){1}, 1, 1, false);
        assert_int_equal(yk_tensor_dtype(out), cases[i].dtype);
        expect_near(yk_get(out, (int64_t[]){0}) / factor, sqrt(5.0 / 3), cases[i].tolerance, 0);
        expect_near(yk_get(out, (int64_t[]){1}), 0, 0, 0);
        expect_ok(yk_backward(yk_sum(out)));
        /* (x - mean) / (3 std) */
        for (int64_t k = 0; k < 4; k++)
            expect_near(yk_get(yk_grad(x), (int64_t[]){0, k}), (rows[k] / factor - 0.5) / (3 * sqrt(5.0 / 3)),
                        2 * cases[i].tolerance, 0);
        expect_near(yk_get(yk_grad(x), (int64_t[]){1, 0}), 0, 0, 0);
        yk_scope_end(scope);
    }
}

/* Tensors of every dtype's size, along each dimension and several; views with gaps and permuted ones. */
static void flipped_and_repeated(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_BF16, YK_U8};
    for (int d = 0; d < 4; d++)
        for (int form = 0; form < 3; form++)
            for (int mask = 0; mask < 8; mask++) {
                yk_scope scope = yk_scope_begin();
                yk_tensor *x = yk_cast(yk_reshape(yk_arange(0, 240, 1, NULL), YK_SHAPE(3, 4, 20)), dtypes[d]);
                x = form == 0 ? x : form == 1 ? yk_slice(x, 2, 1, YK_END, 3) : yk_permute(x, (int[]){2, 0, 1});
                const int64_t *size = yk_sizes(x);
                int dims[3], n = 0;
                for (int k = 0; k < 3; k++)
                    if (mask >> k & 1)
                        dims[n++] = k;
                yk_tensor *got = yk_flip(x, dims, n), *twice = yk_repeat(x, YK_SHAPE(1 + mask % 2, 3, 1 + mask / 2));
                for (int64_t i = 0; i < yk_numel(x); i++) {
                    int64_t at[3] = {i / (size[1] * size[2]), i / size[2] % size[1], i % size[2]}, from[3], again[3];
                    for (int k = 0; k < 3; k++) {
                        from[k] = mask >> k & 1 ? size[k] - 1 - at[k] : at[k];
                        again[k] = yk_size(twice, k) - size[k] + at[k];
                    }
                    expect_near(yk_get(got, at), yk_get(x, from), 0, 0);
                    expect_near(yk_get(twice, at), yk_get(x, at), 0, 0);
                    expect_near(yk_get(twice, again), yk_get(x, at), 0, 0);
                }
                yk_scope_end(scope);
            }
    yk_scope scope = yk_scope_begin();
    EXPECT(yk_repeat(yk_reshape(REALS(1, 2, 3), YK_SHAPE(3, 1)), YK_SHAPE(1, 2)), 1, 1, 2, 2, 3, 3);
    yk_tensor *eight = yk_reshape(REALS(1, 2), YK_SHAPE(1, 1, 1, 1, 1, 1, 1, 2));
    EXPECT(yk_repeat(eight, YK_SHAPE(1, 1, 1, 1, 1, 1, 2, 2)), 1, 2, 1, 2, 1, 2, 1, 2);
    assert_int_equal(yk_size(yk_repeat(yk_zeros(YK_SHAPE(2, 0), NULL), YK_SHAPE(3, 2)), 0), 6);
    assert_int_equal(yk_numel(yk_flip(yk_zeros(YK_SHAPE(2, 0), NULL), (int[]){0}, 1)), 0);
    /* Longer than what is counted at a time; beyond what a double counts by one. */
    yk_tensor_options whole = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64),
                      narrow = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I32);
    yk_tensor *line = yk_arange(-7, 5000, 3, &whole), *f32 = yk_arange(5, -1500, -0.5, NULL);
    assert_int_equal(yk_numel(line), 1669);
    assert_int_equal(yk_numel(f32), 3010);
    for (int64_t i = 0; i < 1669; i++)
        assert_int_equal((int64_t)yk_get(line, &i), 3 * i - 7);
    for (int64_t i = 0; i < 3010; i++)
        expect_near(yk_get(f32, &i), 5 - 0.5 * (double)i, 0, 0);
    EXPECT(yk_arange(2147483645.0, 2147483648.0, 1, &narrow), 2147483645.0, 2147483646.0, 2147483647.0);
    assert_int_equal(yk_item_i64(yk_select(yk_arange(0x1p60, 0x1p60 + 1024, 256, &whole), 0, 3)),
                     ((int64_t)1 << 60) + 768);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* One of the greatest of each line is the first of them, where -0 is 0 and NaN the greatest. */
static void greatest_of_a_line(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x =
                  yk_reshape(REALS(-0.0, 0, -1, 2, NAN, NAN, 3, 3, 1, -INFINITY, -INFINITY, -INFINITY), YK_SHAPE(4, 3)),
              *index;
    for (int half = 0; half < 2; half++, x = yk_cast(x, YK_BF16)) {
        EXPECT(yk_topk(x, 1, 1, true, &index), 0, NAN, 3, -INFINITY);
        EXPECT(index, 0, 1, 0, 0);
        EXPECT(yk_topk(x, 1, 0, true, &index), 3, NAN, NAN);
        EXPECT(index, 2, 1, 1);
        EXPECT(yk_topk(x, 1, 1, false, &index), -1, 2, 1, -INFINITY);
        EXPECT(index, 2, 0, 2, 0);
    }
    yk_tensor *line = REALS(1, 5, 2);
    expect_ok(yk_set_requires_grad(line, true));
    expect_ok(yk_backward(yk_sum(yk_topk(line, 1, 0, true, NULL))));
    EXPECT(yk_grad(line), 0, 1, 0);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* Tensors without dimensions, and with memory that several elements share: numbers and gradients are PyTorch's. */
static void numbers_alone(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *index = NULL, *x = yk_full(YK_SCALAR, 2, YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    for (int keep = 0; keep < 2; keep++) {
        yk_tensor *results[] = {yk_median_dim(x, -1, keep, &index), yk_quantile(x, 0.3, 0, keep), yk_median(x)};
        assert_int_equal(yk_ndim(index), 0);
        assert_int_equal(yk_item_i64(index), 0);
        for (int i = 0; i < 3; i++) {
            assert_non_null(results[i]);
            assert_int_equal(yk_ndim(results[i]), 0);
            expect_near(yk_item(results[i]), 2, 0, 0);
            expect_ok(yk_set_grad(x, NULL));
            expect_ok(yk_backward(results[i]));
            assert_int_equal(yk_ndim(yk_grad(x)), 0);
            expect_near(yk_item(yk_grad(x)), 1, 0, 0);
        }
        yk_tensor *two = yk_quantile_list(x, (double[]){0.1, 0.5}, 2, 0, keep);
        assert_int_equal(yk_ndim(two), 1);
        EXPECT(two, 2, 2);
    }
    /* Scalars do not widen a half without dimensions. */
    static const yk_dtype halves[] = {YK_F16, YK_BF16};
    for (int h = 0; h < 2; h++) {
        yk_tensor *half =
            yk_full(YK_SCALAR, 2, YK_OPTIONS(yk_tensor_options, .dtype = halves[h], .requires_grad = true));
        yk_tensor *all[] = {yk_div_scalar(half, 3),   yk_div_scalar(half, 4),         yk_mul_scalar(half, 3),
                            yk_add_scalar(half, 1.5), yk_sub_scalar(half, 1.5),       yk_pow_scalar(half, 2.5),
                            yk_clamp(half, 0, 1),     yk_lerp_scalar(half, half, 0.3)};
        for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
            assert_int_equal(yk_tensor_dtype(all[i]), halves[h]);
        expect_near(yk_item(yk_cast(all[0], YK_F32)), 2.0 / 3, 0.004, 0);
        expect_ok(yk_backward(all[0]));
        assert_int_equal(yk_tensor_dtype(yk_grad(half)), halves[h]);
        expect_near(yk_item(yk_cast(yk_grad(half), YK_F32)), 1.0 / 3, 0.004, 0);
    }
    /* No degree of freedom is left. */
    for (int std = 0; std < 2; std++) {
        for (int correction = 1; correction <= 2; correction++) {
            yk_tensor *one = yk_full(YK_SHAPE(1), 3, YK_OPTIONS(yk_tensor_options, .requires_grad = true));
            yk_tensor *out =
                std ? yk_std_dims(one, NULL, 0, correction, false) : yk_var_dims(one, NULL, 0, correction, false);
            expect_ok(yk_backward(out));
            EXPECT(yk_grad(one), NAN);
        }
    }
    yk_tensor *pair = yk_from_data((float[]){1, 3}, YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    expect_ok(yk_backward(yk_var_dims(pair, NULL, 0, 2, false)));
    EXPECT(yk_grad(pair), INFINITY, INFINITY);
    expect_ok(yk_set_grad(pair, NULL));
    expect_ok(yk_backward(yk_var_dims(pair, (int[]){0}, 1, 2, false)));
    EXPECT(yk_grad(pair), -INFINITY, INFINITY);
    /* Filling is the one write that may go to elements that share memory. */
    yk_tensor *seed = yk_zeros(YK_SHAPE(2, 1), NULL), *wide = yk_expand(seed, YK_SHAPE(2, 3));
    uint32_t version = yk_tensor_version(seed);
    assert_ptr_equal(yk_fill_(wide, 5), wide);
    EXPECT(wide, 5, 5, 5, 5, 5, 5);
    EXPECT(seed, 5, 5);
    assert_true(yk_tensor_version(seed) > version);
    assert_ptr_equal(yk_zero_(wide), wide);
    EXPECT(seed, 0, 0);
    assert_null(yk_mul_scalar_(wide, 2));
    expect_error(YK_ERR_STATE, "expanded");
    /* Texts. */
    assert_null(yk_repeat(pair, 1, (int64_t[]){(int64_t)1 << 40}));
    expect_error(YK_ERR_SHAPE, "repeat: (2,) with count 0 of 1099511627776 has more elements than there can be");
    assert_null(yk_repeat(pair, 4, (int64_t[]){1 << 30, 1 << 30, 2, 2}));
    expect_error(YK_ERR_SHAPE, "repeat: (2,) with count 1 of 1073741824 has more elements than there can be");
    assert_null(yk_repeat(pair, 1, (int64_t[]){-1}));
    expect_error(YK_ERR_SHAPE, "repeat: count 0 is -1");
    assert_null(yk_cross_entropy(yk_ones(YK_SHAPE(2, 3), NULL), NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "cross_entropy: the target is NULL");
    yk_scope_end(scope);
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "4", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_values_are_ordered),
        cmocka_unit_test(every_dtype_is_sorted),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(first_of_a_line),
        cmocka_unit_test(scans_side_by_side),
        cmocka_unit_test(special_values_are_told_apart),
        cmocka_unit_test(made_of_others),
        cmocka_unit_test(made_by_a_rule),
        cmocka_unit_test(draws),
        cmocka_unit_test(distances_by_product),
        cmocka_unit_test(distances_in_blocks),
        cmocka_unit_test(deviations_out_of_range),
        cmocka_unit_test(flipped_and_repeated),
        cmocka_unit_test(greatest_of_a_line),
        cmocka_unit_test(numbers_alone),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("ops/math", tests, NULL, NULL);
}
