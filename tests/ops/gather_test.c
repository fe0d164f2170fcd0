/*
 * gather_test.c - gathering, scattering and masks, where ops_test.c's rows do not reach: sources larger than the index,
 * places that are named twice, every thread count, what is refused.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include <yoke/ops.h>

static yk_tensor *integers(int ndim, const int64_t *shape, const int64_t *values)
{
    return yk_from_data(values, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}

static void expect_row(const yk_tensor *x, int count, const double *expected)
{
    assert_non_null(x);
    assert_int_equal(yk_numel(x), count);
    yk_tensor *flat = yk_cast(yk_reshape((yk_tensor *)x, YK_SHAPE(-1)), YK_F64);
    for (int i = 0; i < count; i++)
        expect_near(yk_get(flat, (int64_t[]){i}), expected[i], 0, 0);
}
#define EXPECT(x, ...) expect_row((x), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]){__VA_ARGS__})

/* PyTorch has no gradient for a source that is larger than the index; here what is not read has none. */
static void larger_sources(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_zeros(YK_SHAPE(2, 3), NULL);
    yk_tensor *source = yk_reshape(yk_arange(1, 9, 1, NULL), YK_SHAPE(2, 4));
    expect_ok(yk_set_requires_grad(source = yk_detach(source), true));
    yk_tensor *index = integers(YK_SHAPE(1, 3), (int64_t[]){2, 0, 2});
    assert_ptr_equal(yk_scatter_dim_(x, 1, index, source), x);
    EXPECT(x, 2, 0, 3, 0, 0, 0); /* of 1 and 3 the last one stays */
    yk_tensor *sum = yk_zeros(YK_SHAPE(2, 3), NULL);
    assert_ptr_equal(yk_scatter_add_(sum, 1, index, source), sum);
    EXPECT(sum, 2, 0, 4, 0, 0, 0);
    expect_ok(yk_backward(yk_sum(yk_mul_scalar(sum, 3))));
    EXPECT(yk_grad(source), 3, 3, 3, 0, 0, 0, 0, 0);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void whole_numbers(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor_options whole = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64),
                      boolean = *YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL);
    yk_tensor *x = yk_arange(0, 4, 1, &whole), *mask = yk_gt(x, yk_scalar(1, &whole));
    EXPECT(yk_masked_fill(x, mask, -7), 0, 1, -7, -7);
    EXPECT(yk_masked_select(x, mask), 2, 3);
    EXPECT(yk_masked_fill(mask, mask, 0), 0, 0, 0, 0);
    EXPECT(yk_index_add_(yk_clone(x), 0, integers(YK_SHAPE(3), (int64_t[]){3, 3, 0}), yk_ones(YK_SHAPE(3), &whole), 5),
           5, 1, 2, 13);
    EXPECT(yk_take(x, yk_cast(yk_scalar(-1, NULL), YK_I32)), 3);
    yk_tensor *bits = yk_zeros(YK_SHAPE(3), &boolean);
    EXPECT(yk_scatter_add_(bits, 0, integers(YK_SHAPE(2), (int64_t[]){1, 1}), yk_ones(YK_SHAPE(2), &boolean)), 0, 1, 0);
    /* Zeros of every kind, and what is none. */
    EXPECT(yk_nonzero(yk_from_data((float[]){0, -0.0F, NAN, 1e-45F}, YK_SHAPE(4), NULL)), 2, 3);
    yk_tensor *scalar = yk_nonzero(yk_scalar(3, NULL));
    assert_int_equal(yk_ndim(scalar), 2);
    assert_int_equal(yk_size(scalar, 0), 1);
    assert_int_equal(yk_size(scalar, 1), 0);
    yk_tensor *nothing = yk_nonzero(yk_zeros(YK_SHAPE(2, 0), NULL));
    assert_int_equal(yk_size(nothing, 0), 0);
    assert_int_equal(yk_size(nothing, 1), 2);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* Positions in several pieces, and sums into few and many places: the same for every number of threads. */
static void threads_do_not_show(void **state)
{
    (void)state;
    const int64_t many = work_size(300000, 6000);
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(5);
    yk_tensor *x = yk_randn(YK_SHAPE(many), NULL), *mask = yk_gt(x, yk_scalar(1, NULL));
    yk_tensor *square = yk_reshape(mask, YK_SHAPE(many / 600, 3, 200)), *few = yk_randint(0, 3, YK_SHAPE(many), NULL);
    yk_tensor *kept[4] = {NULL};
    for (int threads = 1; threads <= 4; threads++) {
        expect_ok(yk_set_num_threads((yk_device){0}, threads));
        yk_tensor *sum = yk_scatter_add_(yk_zeros(YK_SHAPE(3), NULL), 0, few, x);
        yk_tensor *results[4] = {yk_nonzero(mask), yk_nonzero(square), yk_masked_select(x, mask), sum};
        for (int i = 0; i < 4; i++) {
            assert_non_null(results[i]);
            kept[i] = threads == 1 ? results[i] : kept[i];
            assert_int_equal(yk_item_i64(yk_all(yk_eq(kept[i], results[i]))), 1);
        }
    }
    expect_ok(yk_set_num_threads((yk_device){0}, 2));
    const uint8_t *bits = host_data(mask);
    yk_tensor *line = yk_contiguous(kept[0]), *cube = yk_contiguous(kept[1]);
    const int64_t *places = host_data(line), *corners = host_data(cube);
    int64_t found = 0;
    for (int64_t i = 0; i < many; i++) {
        if (!bits[i])
            continue;
        assert_int_equal(places[found], i);
        assert_int_equal((corners[3 * found] * 3 + corners[3 * found + 1]) * 200 + corners[3 * found + 2], i);
        assert_true(corners[3 * found + 1] < 3 && corners[3 * found + 2] < 200);
        found++;
    }
    assert_int_equal(yk_size(line, 0), found);
    assert_true(found > many / 300);
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

/* Along the first dimension of more than the second-level cache holds: blocks of columns, the last one narrower. */
static void many_rows(yk_dtype dtype, int64_t columns, bool add)
{
    enum { ROWS = 520, INDEX_ROWS = 301 };
    yk_scope scope = yk_scope_begin();
    yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = dtype),
                      whole = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    int64_t first = 3, taken = columns - 5; /* the index is narrower than x */
    yk_tensor *index = yk_randint(0, ROWS, YK_SHAPE(INDEX_ROWS, taken), NULL);
    yk_tensor *values = yk_randint(0, 100, YK_SHAPE(INDEX_ROWS, columns), NULL);
    yk_tensor *source = yk_cast(values, dtype);
    int64_t *want = malloc(sizeof(int64_t) * (size_t)(ROWS * columns));
    assert_non_null(want);
    for (int64_t i = 0; i < ROWS * columns; i++)
        want[i] = first;
    const int64_t *at = host_data(index), *from = host_data(values);
    for (int64_t r = 0; r < INDEX_ROWS; r++)
        for (int64_t c = 0; c < taken; c++) {
            int64_t *to = &want[at[r * taken + c] * columns + c];
            *to = (add ? *to : 0) + from[r * columns + c];
        }
    yk_tensor *expected = yk_from_data(want, YK_SHAPE(ROWS, columns), &whole);
    free(want);
    for (int threads = 1; threads <= 3; threads++) {
        expect_ok(yk_set_num_threads((yk_device){0}, threads));
        yk_tensor *x = yk_full(YK_SHAPE(ROWS, columns), (double)first, &options);
        assert_ptr_equal(add ? yk_scatter_add_(x, 0, index, source) : yk_scatter_dim_(x, 0, index, source), x);
        assert_int_equal(yk_item_i64(yk_all(yk_eq(x, yk_cast(expected, dtype)))), 1);
    }
    expect_ok(yk_set_num_threads((yk_device){0}, 2));
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void leading_dimension(void **state)
{
    (void)state;
    many_rows(YK_F32, work_size(517, 64), false);
    many_rows(YK_F32, work_size(580, 72), true);
    many_rows(YK_F64, work_size(290, 36), false);
    many_rows(YK_F64, work_size(256, 32), true);
    many_rows(YK_I64, work_size(270, 33), true);
    many_rows(YK_I32, work_size(600, 75), false);
    many_rows(YK_U8, work_size(2060, 257), false);
    many_rows(YK_F16, work_size(1030, 128), false);
}

/* One list of `count` positions for every row, and one for each, of elements of one size: counts that are and are not
 * multiples of what a kernel moves at a time. Sums are of ones, so that every dtype holds them. */
static void lists(yk_dtype dtype, int64_t count)
{
    enum { ROWS = 3, COLUMNS = 7, MOST = 1030 };
    yk_scope scope = yk_scope_begin();
    yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = dtype);
    yk_tensor *x = yk_cast(yk_reshape(yk_arange(1, ROWS * COLUMNS + 1, 1, NULL), YK_SHAPE(ROWS, COLUMNS)), dtype);
    int64_t same[MOST], each[ROWS * MOST];
    assert_true(count <= MOST);
    double picked[2][ROWS * MOST], sums[2][ROWS * COLUMNS] = {{0}};
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t i = 0; i < count; i++) {
            same[i] = i * i % COLUMNS;
            each[r * count + i] = (i * 5 + r) % COLUMNS;
            int64_t at[2] = {same[i], each[r * count + i]};
            for (int k = 0; k < 2; k++) {
                picked[k][r * count + i] = (double)(r * COLUMNS + at[k] + 1);
                sums[k][r * COLUMNS + at[k]] += 1;
            }
        }
    yk_tensor *list = integers(YK_SHAPE(count), same), *lists = integers(YK_SHAPE(ROWS, count), each);
    yk_tensor *ones = yk_ones(YK_SHAPE(ROWS, count), &options), *zeros = yk_zeros(YK_SHAPE(ROWS, COLUMNS), &options);
    expect_row(yk_index_select(x, 1, list), (int)(ROWS * count), picked[0]);
    expect_row(yk_gather_dim(x, 1, lists), (int)(ROWS * count), picked[1]);
    expect_row(yk_index_select(yk_transpose(x, 0, 1), 0, list), (int)(ROWS * count),
               host_data(yk_cast(yk_contiguous(yk_transpose(yk_index_select(x, 1, list), 0, 1)), YK_F64)));
    if (dtype != YK_F16 && count < 255 * COLUMNS / 2) {
        expect_row(yk_index_add_(yk_clone(zeros), 1, list, ones, 1), ROWS * COLUMNS, sums[0]);
        expect_row(yk_scatter_add_(yk_clone(zeros), 1, lists, ones), ROWS * COLUMNS, sums[1]);
    }
    /* The last one outside. */
    same[count - 1] = COLUMNS;
    each[ROWS * count - 1] = -1;
    assert_null(finished(yk_index_select(x, 1, integers(YK_SHAPE(count), same))));
    expect_error(YK_ERR_ARGUMENT, "index_select: index 7 is outside dimension 1 of size 7");
    assert_null(finished(yk_gather_dim(x, 1, integers(YK_SHAPE(ROWS, count), each))));
    expect_error(YK_ERR_ARGUMENT, "gather_dim: index -1 is outside dimension 1 of size 7");
    yk_scope_end(scope);
    assert_null(yk_last_error());
}

static void lists_of_every_length(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_U8, YK_F16, YK_F32, YK_I32, YK_F64, YK_I64};
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        for (int64_t count = 1; count <= 9; count++)
            lists(dtypes[d], count);
        lists(dtypes[d], 515);
        lists(dtypes[d], 1030);
    }
}

static void refusals(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(3, 4), NULL), *line = yk_ones(YK_SHAPE(3), NULL), *scalar = yk_scalar(1, NULL);
    yk_tensor *minus = integers(YK_SHAPE(1), (int64_t[]){-1}), *far = integers(YK_SHAPE(1, 1), (int64_t[]){3});
    yk_tensor *tall = yk_zeros(YK_SHAPE(4, 5), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_tensor *mask = yk_gt(line, scalar),
              *doubles = yk_ones(YK_SHAPE(4, 5), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    yk_tensor *whole = yk_cast(x, YK_I64);
#define REFUSED(call, code, text)                                                                                      \
    assert_null(finished(call));                                                                                       \
    expect_error(code, text)
    REFUSED(yk_index_select(x, 0, minus), YK_ERR_ARGUMENT, "index_select: index -1 is outside dimension 0 of size 3");
    REFUSED(yk_index_select(x, 2, minus), YK_ERR_SHAPE, "index_select: dimension 2 is outside");
    REFUSED(yk_index_select(x, 0, far), YK_ERR_SHAPE, "index_select: the index has shape (1, 1), expected (N,)");
    REFUSED(yk_index_select(scalar, 0, minus), YK_ERR_SHAPE, "index_select: a 0-dimensional tensor has no dimension 0");
    REFUSED(yk_gather_dim(x, 0, far), YK_ERR_ARGUMENT, "gather_dim: index 3 is outside dimension 0 of size 3");
    REFUSED(yk_gather_dim(x, 0, tall), YK_ERR_SHAPE,
            "gather_dim: index (4, 5) is larger than (3, 4) beside dimension 0");
    REFUSED(yk_gather_dim(x, 0, minus), YK_ERR_SHAPE, "gather_dim: index (1,) is larger than (3, 4)");
    REFUSED(yk_gather_dim(x, 0, x), YK_ERR_DTYPE, "gather_dim: the index tensor is float32, expected int64 or int32");
    REFUSED(yk_take(x, yk_mul_scalar(far, 4)), YK_ERR_ARGUMENT, "take: index 12 is outside dimension 0 of size 12");
    REFUSED(yk_take_along_dim(x, minus, 0), YK_ERR_SHAPE, "take_along_dim: index (1,) does not broadcast with (3, 4)");
    REFUSED(yk_scatter_dim_(x, 0, far, x), YK_ERR_ARGUMENT, "scatter_dim_: index 3 is outside dimension 0 of size 3");
    REFUSED(yk_scatter_dim_(x, 0, tall, x), YK_ERR_SHAPE, "scatter_dim_: index (4, 5) is larger than source (3, 4)");
    REFUSED(yk_scatter_add_(x, 0, tall, doubles), YK_ERR_DTYPE, "scatter_add_: source is float64, expected float32");
    REFUSED(yk_scatter_dim_value_(whole, 0, far, 0.5), YK_ERR_DTYPE,
            "scatter_dim_value_: a tensor of int64 cannot hold");
    REFUSED(yk_index_add_(x, 1, minus, x, 1), YK_ERR_SHAPE, "index_add_: source (3, 4) is not like (3, 4) with 1, one");
    REFUSED(yk_masked_select(x, line), YK_ERR_DTYPE, "masked_select: mask is float32, expected bool");
    REFUSED(yk_masked_select(x, mask), YK_ERR_SHAPE, "masked_select: shapes (3, 4) and (3,) do not broadcast");
    REFUSED(yk_masked_fill(x, mask, 0), YK_ERR_SHAPE,
            "masked_fill: shapes (3, 4) and (3,) do not broadcast: 4 against 3 in dimension 1");
    REFUSED(yk_masked_fill_(line, yk_gt(x, scalar), 0), YK_ERR_SHAPE, "masked_fill_: ");
    REFUSED(yk_masked_fill(whole, yk_gt(x, scalar), 0.5), YK_ERR_DTYPE,
            "masked_fill: a tensor of int64 cannot hold 0.5");
    REFUSED(yk_nonzero(NULL), YK_ERR_ARGUMENT, "nonzero: argument 1 is NULL");
    yk_scope_end(scope);
}

/* Lines of some elements, of views too, of every size of element; an index outside in the last line. */
static void short_lines(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_U8, YK_I64};
    static const int64_t lengths[] = {1, 2, 3, 4, 5, 10, 16, 63, 64, 65};
    enum { LINES = 700 };
    for (int d = 0; d < 5; d++)
        for (int l = 0; l < 10; l++)
            for (int form = 0; form < 2; form++) {
                yk_scope scope = yk_scope_begin();
                int64_t n = lengths[l], wide = n + 3;
                yk_tensor_options o = *YK_OPTIONS(yk_tensor_options, .dtype = dtypes[d]);
                yk_tensor *x = yk_cast(yk_randint(0, 9, YK_SHAPE(LINES, wide), NULL), dtypes[d]);
                yk_tensor *index = yk_randint(0, wide - form, YK_SHAPE(LINES, n), NULL);
                x = form ? yk_narrow(x, 1, 1, wide - 1) : x; /* lines with a gap after them */
                int64_t *at = malloc(sizeof(*at) * (size_t)(LINES * n));
                assert_non_null(at);
                expect_ok(yk_tensor_read(index, at, sizeof(*at) * (size_t)(LINES * n)));
                yk_tensor *got = yk_gather_dim(x, 1, index), *sums = yk_zeros(YK_SHAPE(LINES, wide), &o);
                yk_tensor *last = yk_zeros(YK_SHAPE(LINES, wide), &o);
                yk_tensor *source = yk_cast(yk_randint(0, 9, YK_SHAPE(LINES, n), NULL), dtypes[d]);
                assert_non_null(yk_scatter_add_(sums, 1, index, source));
                assert_non_null(yk_scatter_dim_(last, 1, index, source));
                for (int64_t i = 0; i < LINES; i += 37) {
                    double sum[80] = {0}, kept[80] = {0};
                    for (int64_t j = 0; j < n; j++) {
                        int64_t to = at[i * n + j];
                        expect_near(yk_get(got, (int64_t[]){i, j}), yk_get(x, (int64_t[]){i, to}), 0, 0);
                        kept[to] = yk_get(source, (int64_t[]){i, j});
                        sum[to] += kept[to];
                    }
                    for (int64_t j = 0; j < wide; j++) {
                        expect_near(yk_get(sums, (int64_t[]){i, j}), sum[j], 0, 0);
                        expect_near(yk_get(last, (int64_t[]){i, j}), kept[j], 0, 0);
                    }
                }
                yk_tensor *columns = yk_index_select(x, 1, yk_select(index, 0, 0));
                for (int64_t j = 0; j < n; j++)
                    expect_near(yk_get(columns, (int64_t[]){LINES - 1, j}), yk_get(x, (int64_t[]){LINES - 1, at[j]}), 0,
                                0);
                at[LINES * n - 1] = wide;
                expect_ok(yk_tensor_write(index, at, sizeof(*at) * (size_t)(LINES * n)));
                assert_null(finished(yk_gather_dim(x, 1, index)));
                expect_error(YK_ERR_ARGUMENT, "is outside dimension 1");
                free(at);
                yk_scope_end(scope);
            }
}

int main(void)
{
    setenv("OMP_NUM_THREADS", "4", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(larger_sources),        cmocka_unit_test(whole_numbers),
        cmocka_unit_test(threads_do_not_show),   cmocka_unit_test(leading_dimension),
        cmocka_unit_test(lists_of_every_length), cmocka_unit_test(refusals),
        cmocka_unit_test(short_lines),
    };
    return cmocka_run_group_tests_name("ops/gather", tests, NULL, NULL);
}
