/*
 * op_rules_test.c - what a row of ops_test.c cannot say: dropout, running statistics, mixed dtypes, integers, memory
 * order, views of one storage, sums of gradients, larger tensors in f32 against f64.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);
static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
static const yk_tensor_options *const f32_leaf = YK_OPTIONS(yk_tensor_options, .requires_grad = true);
static const yk_tensor_options *const integers = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);

static double at(const yk_tensor *x, int64_t i, int64_t j)
{
    return yk_get(x, (int64_t[]){i, j});
}

static yk_tensor *as(yk_tensor *x, yk_dtype dtype)
{
    return yk_detach(yk_cast(x, dtype));
}

/* The largest difference over the largest number; both brought to f64. */
static double distance(yk_tensor *a, yk_tensor *b)
{
    bool previous = yk_no_grad_begin();
    yk_tensor *x = yk_cast(a, YK_F64), *y = yk_cast(b, YK_F64);
    double difference = yk_item(yk_max(yk_abs(yk_sub(x, y)))), scale = yk_item(yk_max(yk_abs(y)));
    yk_no_grad_end(previous);
    return difference / (scale > 0 ? scale : 1);
}

/* ---- dropout ---- */

static void test_dropout(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_full(YK_SHAPE(100, 100), 2, f64_leaf);
    yk_manual_seed(5);
    yk_tensor *y = yk_dropout(x, 0.3, true);
    int64_t zeros = 0;
    for (int64_t i = 0; i < 10000; i++) {
        double v = at(y, i / 100, i % 100);
        if (v == 0)
            zeros++;
        else
            expect_near(v, 2 / 0.7, 1e-15, 0);
    }
    /* 3000 expected, deviation sqrt(10000 * 0.3 * 0.7) = 46 */
    assert_true(zeros > 3000 - 250 && zeros < 3000 + 250);
    expect_ok(yk_backward(yk_sum(y)));
    for (int64_t i = 0; i < 10000; i++) /* the same elements backward */
        expect_near(at(yk_grad(x), i / 100, i % 100), at(y, i / 100, i % 100) / 2, 1e-15, 0);

    yk_manual_seed(5);
    yk_tensor *again = yk_dropout(x, 0.3, true), *next = yk_dropout(x, 0.3, true);
    assert_true(yk_item(yk_sum(yk_ne(again, y))) == 0);
    assert_true(yk_item(yk_sum(yk_ne(next, y))) > 3000);

    assert_ptr_equal(yk_dropout(x, 0.5, false), x);
    assert_ptr_equal(yk_dropout(x, 0, true), x);
    expect_ok(yk_set_grad(x, NULL));
    yk_tensor *none = yk_dropout(yk_div_scalar(x, 0), 1, true); /* infinity times 0 is no number */
    assert_true(yk_item(yk_sum(yk_is_nan(none))) == 10000);
    assert_true(yk_item(yk_sum(yk_abs(yk_dropout(x, 1, true)))) == 0);
    expect_ok(yk_backward(yk_sum(yk_dropout(x, 1, true))));
    assert_true(yk_item(yk_max(yk_abs(yk_grad(x)))) == 0);
    yk_scope_end(scope);
}

/* The elements that stay do not depend on dtype or memory order, only on their place. */
static void test_dropout_by_place(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(7, 9), f64), *turned = yk_transpose(yk_contiguous(yk_transpose(x, 0, 1)), 0, 1);
    yk_tensor *forms[] = {x, turned, as(x, YK_F32), as(x, YK_F16), as(x, YK_BF16)};
    yk_tensor *mask = NULL;
    assert_false(yk_is_contiguous(turned));
    for (int i = 0; i < 5; i++) {
        yk_manual_seed(9);
        yk_tensor *kept = yk_gt(yk_dropout(forms[i], 0.5, true), yk_scalar(0, NULL));
        if (i > 0)
            assert_true(yk_item(yk_sum(yk_ne(kept, mask))) == 0);
        mask = kept;
    }
    yk_scope_end(scope);
}

static void test_random_in_place(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_zeros(YK_SHAPE(100, 100), f64);
    uint32_t version = yk_tensor_version(x);
    assert_ptr_equal(yk_uniform_(x, -1, 3), x);
    assert_int_equal(yk_tensor_version(x), version + 1);
    assert_true(yk_item(yk_min(x)) >= -1 && yk_item(yk_max(x)) < 3);
    expect_near(yk_item(yk_mean(x)), 1, 0, 0.06); /* deviation of the mean: 4 / sqrt(12) / 100 = 0.012 */
    expect_near(yk_item(yk_var(x)), 16.0 / 12, 0, 0.1);
    assert_ptr_equal(yk_normal_(x, 5, 2), x);
    expect_near(yk_item(yk_mean(x)), 5, 0, 0.1);
    expect_near(yk_item(yk_var(x)), 4, 0, 0.3);
    /* The values that it overwrites get a gradient of zero. */
    yk_tensor *leaf = yk_ones(YK_SHAPE(3), f64_leaf), *y = yk_normal_(yk_clone(leaf), 0, 1);
    expect_ok(yk_backward(yk_sum(y)));
    assert_true(yk_item(yk_sum(yk_abs(yk_grad(leaf)))) == 0);
    yk_scope_end(scope);
}

/* ---- running statistics ---- */

static void test_running_statistics(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    double values[] = {1, 10, 2, 20, 6, 60, 3, 50}; /* 4 rows, 2 channels: means 3 and 35 */
    yk_tensor *x = yk_from_data(values, YK_SHAPE(4, 2), f64);
    yk_tensor *mean = yk_zeros(YK_SHAPE(2), f64), *var = yk_ones(YK_SHAPE(2), f64);
    uint32_t version = yk_tensor_version(mean);
    yk_batch_norm_options train = *YK_OPTIONS(yk_batch_norm_options, .training = true, .momentum = 0.25);
    assert_non_null(yk_batch_norm(x, NULL, NULL, mean, var, &train));
    double variance[2] = {(4 + 1 + 9 + 0) / 3.0, (625 + 225 + 625 + 225) / 3.0}; /* unbiased */
    double means[2] = {3, 35};
    for (int64_t c = 0; c < 2; c++) {
        expect_near(yk_get(mean, &c), 0.25 * means[c], 1e-14, 0);
        expect_near(yk_get(var, &c), 0.75 + 0.25 * variance[c], 1e-14, 0);
    }
    assert_int_equal(yk_tensor_version(mean), version + 1);
    assert_int_equal(yk_tensor_version(var), version + 1);
    /* Outside training they are used and stay. */
    yk_tensor *y = yk_batch_norm(x, NULL, NULL, mean, var, NULL);
    expect_near(at(y, 0, 0), (1 - 0.75) / sqrt(0.75 + 0.25 * variance[0] + 1e-5), 1e-14, 0);
    assert_int_equal(yk_tensor_version(mean), version + 1);
    /* Default momentum 0.1. */
    train.momentum = 0.1;
    assert_non_null(yk_batch_norm(x, NULL, NULL, mean, var, &train));
    expect_near(yk_get(mean, (int64_t[]){0}), 0.9 * 0.75 + 0.1 * 3, 1e-14, 0);
    /* Running statistics of halves may be f32, or halves themselves, which are then those of f32, rounded. */
    for (yk_dtype half = YK_F16; half <= YK_BF16; half++) {
        yk_tensor *h = yk_cast(x, half), *m = yk_full(YK_SHAPE(2), 0.5, NULL), *v = yk_full(YK_SHAPE(2), 3, NULL);
        yk_tensor *half_m = yk_cast(m, half), *half_v = yk_cast(v, half);
        y = yk_batch_norm(h, NULL, NULL, m, v, &train);
        assert_true(yk_item(yk_all(yk_eq(y, yk_batch_norm(h, NULL, NULL, half_m, half_v, &train)))) == 1);
        assert_int_equal(yk_tensor_dtype(half_m), half);
        assert_true(yk_item(yk_all(yk_eq(yk_cast(m, half), half_m))) == 1);
        assert_true(yk_item(yk_all(yk_eq(yk_cast(v, half), half_v))) == 1);
        y = yk_batch_norm(h, NULL, NULL, half_m, half_v, NULL);
        m = yk_cast(half_m, YK_F32);
        v = yk_cast(half_v, YK_F32);
        assert_true(yk_item(yk_all(yk_eq(y, yk_batch_norm(h, NULL, NULL, m, v, NULL)))) == 1);
    }
    yk_scope_end(scope);
}

/* ---- dtypes ---- */

static void test_mixed_dtypes(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *a = yk_full(YK_SHAPE(2, 3), 2, f32_leaf), *b = yk_full(YK_SHAPE(3), 5, f64_leaf);
    yk_tensor *y = yk_mul(a, b);
    assert_int_equal(yk_tensor_dtype(y), YK_F64);
    expect_ok(yk_backward(yk_sum(y)));
    assert_int_equal(yk_tensor_dtype(yk_grad(a)), YK_F32);
    assert_int_equal(yk_tensor_dtype(yk_grad(b)), YK_F64);
    expect_near(at(yk_grad(a), 1, 2), 5, 0, 0);
    expect_near(yk_get(yk_grad(b), (int64_t[]){1}), 4, 0, 0);

    /* A 0-dimensional operand does not widen; its gradient still comes in its own dtype. */
    yk_tensor *s = yk_full(YK_SCALAR, 3, f64_leaf), *z = yk_div(a, s);
    assert_int_equal(yk_tensor_dtype(z), YK_F32);
    expect_ok(yk_backward(yk_sum(z)));
    assert_int_equal(yk_tensor_dtype(yk_grad(s)), YK_F64);
    expect_near(yk_item(yk_grad(s)), -6 * 2.0 / 9, 1e-6, 0);

    /* bf16 with f16 meets in f32; a gradient passes casts. */
    yk_tensor *h = yk_cast(a, YK_F16), *g = yk_cast(b, YK_BF16), *w = yk_add(h, g);
    assert_int_equal(yk_tensor_dtype(w), YK_F32);
    expect_ok(yk_set_grad(a, NULL));
    expect_ok(yk_backward(yk_sum(yk_mul_scalar(w, 3))));
    expect_near(at(yk_grad(a), 0, 0), 3, 0, 0);

    /* The logarithm of a power's gradient is not rounded to the base's dtype, nor b - 1 to that of b. */
    yk_tensor *base = as(yk_full(YK_SHAPE(1), 1.0078125, NULL), YK_BF16), *exponent = yk_full(YK_SHAPE(1), 2, f64_leaf);
    expect_ok(yk_backward(yk_pow(base, exponent)));
    expect_near(yk_item(yk_grad(exponent)), 1.0078125 * 1.0078125 * log(1.0078125), 0, 1e-14);
    yk_tensor *root = yk_full(YK_SHAPE(1), 1000, f64_leaf);
    expect_ok(yk_backward(yk_pow(root, as(yk_full(YK_SHAPE(1), 0x1p-9, NULL), YK_BF16))));
    expect_near(yk_item(yk_grad(root)), 0x1p-9 * pow(1000, 0x1p-9 - 1), 0, 1e-14);

    /* Integers and bools. */
    yk_tensor *i = yk_from_data((int64_t[]){7, -7}, YK_SHAPE(2), integers), *two = yk_full(YK_SHAPE(2), 2, integers);
    assert_int_equal(yk_tensor_dtype(yk_add(i, two)), YK_I64);
    assert_int_equal(yk_tensor_dtype(yk_div(i, two)), YK_F32);
    expect_near(yk_get(yk_div(i, two), (int64_t[]){1}), -3.5, 0, 0);
    expect_near(yk_get(yk_div_scalar(i, 2), (int64_t[]){0}), 3.5, 0, 0);
    assert_int_equal(yk_tensor_dtype(yk_div_scalar(i, 1)), YK_F32);
    assert_int_equal(yk_tensor_dtype(yk_add_scalar(i, 0.5)), YK_F32);
    assert_int_equal(yk_tensor_dtype(yk_mul_scalar(i, 2)), YK_I64);
    assert_int_equal(yk_item_i64(yk_sum(yk_square(i))), 98);
    yk_tensor *yes = yk_gt(i, two), *no = yk_logical_not(yes);
    assert_int_equal(yk_tensor_dtype(yk_add(yes, no)), YK_BOOL);
    assert_int_equal(yk_item_i64(yk_sum(yk_add(yes, yes))), 1);
    assert_int_equal(yk_item_i64(yk_sum(yk_mul(yes, no))), 0);
    /* No part of a bool is nothing, any other all of it. */
    assert_int_equal(yk_item_i64(yk_sum(yk_add_scaled(no, yes, 0))), 1);
    assert_int_equal(yk_item_i64(yk_sum(yk_add_scaled(no, yes, 2))), 2);
    assert_int_equal(yk_item_i64(yk_sum(yk_add_scaled(no, yk_reshape(yes, YK_SHAPE(2, 1)), 0))), 2);
    assert_int_equal(yk_item_i64(yk_sum(yk_add_(yk_clone(no), yes, 0))), 1);
    assert_int_equal(yk_item_i64(yk_sum(yk_add_(yk_clone(no), yes, 1))), 2);
    assert_false(yk_requires_grad(yk_gt(a, b)));
    assert_false(yk_requires_grad(yk_cast(a, YK_I64)));
    assert_true(yk_requires_grad(yk_floor(a))); /* with a gradient of zero, as PyTorch's */
    /* A quotient rounds once: 1 / 3 is not 1 * (1 / 3) for all numbers. */
    for (int k = 1; k < 200; k++)
        expect_near(yk_item(yk_div_scalar(yk_scalar(k, f64), 49)), k / 49.0, 0, 0);
    yk_scope_end(scope);
}

static void test_half_in_place(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    /* A tensor that is read in f32 has its gradient summed there: bf16 has no 257. */
    for (int copy = 0; copy < 2; copy++) {
        yk_tensor *x = yk_zeros(YK_SHAPE(257), YK_OPTIONS(yk_tensor_options, .dtype = YK_BF16)),
                  *one = yk_ones(YK_SHAPE(1), f32_leaf);
        expect_ok(yk_backward(yk_sum(yk_cast(copy ? yk_copy_(x, one) : yk_add_(x, one, 1), YK_F32))));
        expect_near(yk_item(yk_grad(one)), 257, 0, 0);
    }
    yk_tensor *x = as(yk_full(YK_SHAPE(3), 1.5, f64), YK_BF16), *y = yk_full(YK_SHAPE(3), 0.25, f64);
    assert_ptr_equal(yk_add_(x, y, 2), x);
    assert_ptr_equal(yk_mul_scalar_(x, -1), x);
    expect_near(yk_get(x, (int64_t[]){2}), -2, 0, 0);
    assert_ptr_equal(yk_relu_(x), x);
    assert_int_equal(yk_tensor_dtype(x), YK_BF16);
    expect_near(yk_get(x, (int64_t[]){0}), 0, 0, 0);
    yk_scope_end(scope);
}

/* ---- the places of extremes ---- */

static void test_places(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    double values[] = {1, 5, 5, 4, 9, NAN, -1, -1};
    yk_tensor *x = yk_from_data(values, YK_SHAPE(2, 4), f64), *place = NULL, *kept = NULL;
    yk_tensor *most = yk_max_dim(x, 1, false, &place);
    assert_int_equal(yk_tensor_dtype(place), YK_I64);
    assert_int_equal(yk_ndim(place), 1);
    expect_near(yk_get(place, (int64_t[]){0}), 1, 0, 0); /* the first of equals */
    expect_near(yk_get(most, (int64_t[]){0}), 5, 0, 0);
    expect_near(yk_get(place, (int64_t[]){1}), 1, 0, 0); /* NaN is the extreme */
    assert_true(isnan(yk_get(most, (int64_t[]){1})));
    assert_non_null(yk_min_dim(x, -1, true, &kept));
    assert_int_equal(yk_size(kept, 1), 1);
    expect_near(at(kept, 0, 0), 0, 0, 0);
    yk_tensor *scalar = yk_scalar(4, f64_leaf), *same = yk_max_dim(scalar, 0, false, &place);
    expect_near(yk_item(same), 4, 0, 0);
    assert_int_equal(yk_item_i64(place), 0);
    expect_ok(yk_backward(same));
    expect_near(yk_item(yk_grad(scalar)), 1, 0, 0);
    yk_scope_end(scope);
}

/* The values at the places are those of a search for values alone: NaN, zeros of both signs, every layout and dtype. */
static void test_values_at_places(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_F64, YK_F16, YK_BF16, YK_I64, YK_I32, YK_U8};
    enum { A = 5, B = 49, C = 33 };
    static double values[A * B * C];
    for (int i = 0; i < A * B * C; i++)
        values[i] = i * 7919 % 31;
    for (int d = 0; d < 7; d++)
        for (int layout = 0; layout < 4; layout++)
            for (int dim = -1; dim < 2; dim++)
                for (int keep = 0; keep < 2; keep++)
                    for (int least = 0; least < 2; least++) {
                        yk_scope scope = yk_scope_begin();
                        for (int i = 0; d < 4 && i < A * B * C; i += 97)
                            values[i] = i % 3 ? -0.0 : i % 2 ? NAN : 0.0;
                        yk_tensor *x = yk_cast(yk_from_data(values, YK_SHAPE(A, B, C), f64), dtypes[d]);
                        x = layout == 1   ? yk_transpose(x, 0, 2)
                            : layout == 2 ? yk_slice(x, 1, 3, B, 5)
                            : layout == 3 ? yk_expand(yk_slice(x, 0, 1, 2, 1), YK_SHAPE(3, B, C))
                                          : x;
                        yk_tensor *place = NULL;
                        yk_tensor *alone = least ? yk_min_dim(x, dim, keep, NULL) : yk_max_dim(x, dim, keep, NULL);
                        yk_tensor *found = least ? yk_min_dim(x, dim, keep, &place) : yk_max_dim(x, dim, keep, &place);
                        assert_non_null(alone);
                        assert_non_null(found);
                        assert_true(yk_same_shape(alone, found) && yk_same_shape(place, found));
                        static double of_alone[A * B * C], of_found[A * B * C];
                        size_t bytes = (size_t)yk_numel(alone) * sizeof(double);
                        expect_ok(yk_tensor_read(yk_cast(alone, YK_F64), of_alone, bytes));
                        expect_ok(yk_tensor_read(yk_cast(found, YK_F64), of_found, bytes));
                        for (size_t i = 0; i < bytes / sizeof(double); i++) /* of zeros that are equal any is found */
                            assert_true(of_alone[i] == of_found[i] || (isnan(of_alone[i]) && isnan(of_found[i])));
                        yk_scope_end(scope);
                    }
}

/* ---- views, sums of gradients ---- */

static void test_views_share(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_arange(0, 24, 1, f64), *y = yk_reshape(x, YK_SHAPE(2, 3, 4));
    yk_tensor *views[] = {yk_permute(y, (int[]){2, 0, 1}),
                          yk_select(y, 1, 1),
                          yk_slice(y, 2, 1, YK_END, 2),
                          yk_expand(x, YK_SHAPE(5, 24)),
                          yk_unsqueeze(y, 0),
                          yk_flatten(y, 0, 1),
                          yk_transpose(y, 0, 2)};
    for (size_t i = 0; i < sizeof(views) / sizeof(views[0]); i++)
        assert_ptr_equal(views[i]->storage, x->storage);
    expect_near(yk_get(views[0], (int64_t[]){3, 1, 2}), 12 + 8 + 3, 0, 0);
    expect_near(at(views[1], 1, 2), 12 + 4 + 2, 0, 0);
    expect_near(yk_get(views[2], (int64_t[]){0, 0, 1}), 3, 0, 0);
    assert_true(yk_reshape(yk_transpose(y, 0, 1), YK_SHAPE(24))->storage != x->storage);
    /* Sizes of 1 are in nobody's way, whatever their stride. */
    yk_tensor *odd = yk_transpose(yk_slice(y, 1, 0, 1, 1), 1, 2);
    assert_ptr_equal(yk_view(odd, YK_SHAPE(2, 4))->storage, x->storage);
    assert_ptr_equal(yk_contiguous(x), x);
    assert_ptr_equal(yk_cast(x, YK_F64), x);
    assert_ptr_equal(yk_to(x, test_device(0)), x);
    assert_true(yk_clone(x)->storage != x->storage);
    yk_scope_end(scope);
}

/* A tensor that came from an outer scope, unchanged, belongs to the inner one as well. */
static void test_unchanged_is_owned(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin(), inner = yk_scope_begin();
    yk_tensor *x = yk_ones(YK_SHAPE(2), f64), *same = yk_contiguous(yk_cast(yk_dropout(x, 0.5, false), YK_F64));
    assert_ptr_equal(same, x);
    same = yk_scope_return(inner, same);
    assert_non_null(same);
    yk_scope_end(inner);
    expect_near(yk_item(yk_sum(same)), 2, 0, 0);
    yk_scope_end(scope);
}

/* Several uses of one tensor, through operations whose gradients are views or broadcast, add up. */
static void test_gradients_add_up(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *leaf = yk_full(YK_SHAPE(2, 3), 2, f64_leaf), *x = yk_mul_scalar(leaf, 1);
    yk_tensor *total = yk_add(yk_sum(x), yk_mean(x));                                    /* 1 + 1/6 each */
    total = yk_add(total, yk_sum(yk_expand(yk_select(x, 0, 0), YK_SHAPE(4, 3))));        /* row 0: 4 */
    total = yk_add(total, yk_sum(yk_mul(yk_transpose(x, 0, 1), yk_transpose(x, 0, 1)))); /* 2 * 2 */
    total = yk_add(total, yk_sum(yk_cat((yk_tensor *[]){x, x}, 2, 1)));                  /* 2 */
    total = yk_add(total, yk_select(yk_select(x, 1, -1), 0, 1));                         /* (1, 2): 1 */
    expect_ok(yk_backward(total));
    for (int64_t i = 0; i < 2; i++) {
        for (int64_t j = 0; j < 3; j++) {
            double expected = 1 + 1.0 / 6 + (i == 0 ? 4 : 0) + 4 + 2 + (i == 1 && j == 2 ? 1 : 0);
            expect_near(at(yk_grad(leaf), i, j), expected, 1e-14, 0);
        }
    }
    yk_scope_end(scope);
}

/* An input that no wanted gradient reads is not kept: it may change before backward. */
static void test_keeps_what_it_needs(void **state)
{
    (void)state;
    enum { ADD, MUL, DIV, MATMUL, LINEAR, LINEAR_BIAS, CONV, SUM, SOFTMAX, OPS };
    static const struct {
        int leaf;       /* the one input that wants a gradient */
        bool needed[3]; /* its gradient reads an input */
    } rule[OPS] = {[ADD] = {0, {false, false}},
                   [MUL] = {0, {false, true}},
                   [DIV] = {1, {true, true}},
                   [MATMUL] = {0, {false, true}},
                   [LINEAR] = {1, {true, false, false}},
                   [LINEAR_BIAS] = {2, {false, false, false}},
                   [CONV] = {1, {true, false, false}},
                   [SUM] = {0, {false}},
                   [SOFTMAX] = {0, {false}}};
    for (int op = 0; op < OPS; op++) {
        for (int changed = 0; changed < 3; changed++) {
            yk_scope scope = yk_scope_begin();
            bool conv = op == CONV, has_bias = op == LINEAR || op == LINEAR_BIAS || conv;
            yk_tensor *x[3] = {yk_ones(conv ? 4 : 2, (int64_t[]){2, 2, 2, 2}, f64),
                               yk_ones(conv ? 4 : 2, (int64_t[]){2, 2, 2, 2}, f64), yk_ones(YK_SHAPE(2), f64)};
            expect_ok(yk_set_requires_grad(x[rule[op].leaf], true));
            yk_tensor *bias = has_bias ? x[2] : NULL;
            yk_tensor *y = op == ADD       ? yk_add(x[0], x[1])
                           : op == MUL     ? yk_mul(x[0], x[1])
                           : op == DIV     ? yk_div(x[0], x[1])
                           : op == MATMUL  ? yk_matmul(x[0], x[1])
                           : op == CONV    ? yk_conv2d(x[0], x[1], bias, NULL)
                           : op == SUM     ? yk_sum(x[0])
                           : op == SOFTMAX ? yk_softmax(x[0], 1)
                                           : yk_linear(x[0], x[1], bias);
            bool previous = yk_no_grad_begin();
            assert_non_null(yk_mul_scalar_(x[changed], 3));
            yk_no_grad_end(previous);
            yk_status status = yk_backward(yk_sum(y));
            if (rule[op].needed[changed]) {
                assert_int_equal(status, YK_ERR_STATE);
                expect_error(YK_ERR_STATE, "has been modified by an inplace operation: it is at version 1, expected 0");
            } else {
                expect_ok(status);
                assert_non_null(yk_grad(x[rule[op].leaf]));
            }
            yk_scope_end(scope);
        }
    }
}

/* ---- memory order ---- */

/* A map of (N,C,H,W) that lies as [H][W][N][C], which some convolutions choose. */
static yk_tensor *in_hwnc(yk_tensor *x)
{
    return yk_permute(yk_contiguous(yk_permute(x, (int[]){2, 3, 0, 1})), (int[]){2, 3, 0, 1});
}

static void expect_order(const yk_tensor *x)
{
    int64_t n = yk_size(x, 0), c = yk_size(x, 1), w = yk_size(x, 3);
    assert_int_equal(yk_stride(x, 1), 1);
    assert_int_equal(yk_stride(x, 0), c);
    assert_int_equal(yk_stride(x, 3), n * c);
    assert_int_equal(yk_stride(x, 2), n * c * w);
}

static void test_memory_order_is_kept(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = in_hwnc(yk_randn(YK_SHAPE(2, 3, 6, 4), f64)), *y = yk_mul_scalar(x, 2);
    expect_ok(yk_set_requires_grad(x, true));
    expect_order(x);
    expect_order(y);
    yk_pool2d_options pool = *YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2});
    yk_batch_norm_options train = *YK_OPTIONS(yk_batch_norm_options, .training = true, .relu = true, .residual = y);
    yk_tensor *kept[] = {yk_relu(x),
                         yk_add(x, y),
                         yk_dropout(x, 0.5, true),
                         yk_max_pool2d(x, &pool),
                         yk_avg_pool2d(x, &pool),
                         yk_adaptive_avg_pool2d(x, 3, 2),
                         yk_batch_norm(x, NULL, NULL, NULL, NULL, &train),
                         yk_clone(x),
                         yk_cast(x, YK_F32),
                         yk_to(x, test_device(1)),
                         yk_cat((yk_tensor *[]){x, y}, 2, 1),
                         yk_max_pool2d(yk_cast(x, YK_BF16), &pool)};
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        expect_order(kept[i]);
        expect_ok(yk_set_grad(x, NULL));
        expect_ok(yk_backward(yk_sum(yk_cast(kept[i], YK_F64))));
        expect_order(yk_grad(x));
    }
    yk_scope_end(scope);
}

/* ---- larger tensors: a residual block of f32 in two memory orders, matmul's foldings ---- */

static yk_tensor *block(yk_tensor *const *p)
{
    yk_conv2d_options same = *YK_OPTIONS(yk_conv2d_options, .padding = {1, 1});
    yk_pool2d_options pool = *YK_OPTIONS(yk_pool2d_options, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1});
    yk_tensor *x = yk_max_pool2d(p[0], &pool);
    yk_batch_norm_options first = *YK_OPTIONS(yk_batch_norm_options, .training = true, .relu = true),
                          second = *YK_OPTIONS(yk_batch_norm_options, .training = true, .relu = true, .residual = x);
    yk_tensor *y = yk_batch_norm(yk_conv2d(x, p[1], NULL, &same), p[2], p[3], NULL, NULL, &first);
    y = yk_batch_norm(yk_conv2d(y, p[4], NULL, &same), p[2], p[3], NULL, NULL, &second);
    y = yk_flatten(yk_adaptive_avg_pool2d(y, 1, 1), 1, -1);
    return yk_linear(y, p[5], p[6]);
}

static void test_block_f32_against_f64(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        yk_scope scope = yk_scope_begin();
        yk_manual_seed(3);
        yk_tensor *p[7] = {yk_randn(YK_SHAPE(8, 16, 15, 13), NULL),
                           yk_mul_scalar(yk_randn(YK_SHAPE(16, 16, 3, 3), NULL), 0.1),
                           yk_add_scalar(yk_rand(YK_SHAPE(16), NULL), 0.5),
                           yk_randn(YK_SHAPE(16), NULL),
                           yk_mul_scalar(yk_randn(YK_SHAPE(16, 16, 3, 3), NULL), 0.1),
                           yk_randn(YK_SHAPE(10, 16), NULL),
                           yk_randn(YK_SHAPE(10), NULL)};
        if (order)
            p[0] = in_hwnc(p[0]);
        yk_tensor *exact[7], *target = yk_randint(0, 10, YK_SHAPE(8), NULL);
        for (int i = 0; i < 7; i++) {
            exact[i] = as(p[i], YK_F64);
            p[i] = yk_detach(p[i]);
            expect_ok(yk_set_requires_grad(p[i], true));
            expect_ok(yk_set_requires_grad(exact[i], true));
        }
        yk_tensor *loss = yk_cross_entropy(block(p), target, NULL);
        yk_tensor *expected = yk_cross_entropy(block(exact), target, NULL);
        expect_ok(yk_backward(loss));
        expect_ok(yk_backward(expected));
        expect_near(yk_item(loss), yk_item(expected), 2e-6, 0);
        for (int i = 0; i < 7; i++) {
            double away = distance(yk_grad(p[i]), yk_grad(exact[i]));
            if (!(away < 2e-5))
                fail_msg("gradient of parameter %d in order %d is %g away", i, order, away);
        }
        yk_scope_end(scope);
    }
}

/* a b for every batch by sums over its elements, in f64. */
static double product_at(const yk_tensor *a, const yk_tensor *b, const int64_t *batch, int n_batch, int64_t m,
                         int64_t n)
{
    int64_t ia[YK_MAX_DIMS], ib[YK_MAX_DIMS];
    int la = yk_ndim(a) - 2, lb = yk_ndim(b) - 2;
    for (int d = 0; d < la; d++)
        ia[d] = yk_size(a, d) == 1 ? 0 : batch[n_batch - la + d];
    for (int d = 0; d < lb; d++)
        ib[d] = yk_size(b, d) == 1 ? 0 : batch[n_batch - lb + d];
    double sum = 0;
    for (int64_t k = 0; k < yk_size(a, -1); k++) {
        ia[la] = m, ia[la + 1] = k;
        ib[lb] = k, ib[lb + 1] = n;
        sum += yk_get(a, ia) * yk_get(b, ib);
    }
    return sum;
}

static void test_matmul_of_every_layout(void **state)
{
    (void)state;
    for (int form = 0; form < 6; form++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *a = yk_randn(YK_SHAPE(3, 2, 4, 5), f64), *b = yk_randn(YK_SHAPE(3, 2, 5, 3), f64);
        if (form == 1) /* batches that do not fold */
            a = yk_transpose(yk_randn(YK_SHAPE(2, 3, 4, 5), f64), 0, 1);
        if (form == 2) /* a batch between rows and columns: no folding into rows either */
            a = yk_permute(yk_randn(YK_SHAPE(4, 3, 5, 2), f64), (int[]){1, 3, 0, 2}), b = yk_randn(YK_SHAPE(5, 3), f64);
        if (form == 3)
            b = yk_expand(yk_transpose(yk_randn(YK_SHAPE(3, 1, 3, 5), f64), 2, 3), YK_SHAPE(3, 2, 5, 3));
        if (form == 4)
            a = yk_slice(yk_randn(YK_SHAPE(3, 2, 4, 9), f64), 3, 0, YK_END, 2), b = yk_randn(YK_SHAPE(2, 5, 3), f64);
        if (form == 5)
            a = yk_randn(YK_SHAPE(1, 1, 4, 5), f64),
            b = yk_permute(yk_randn(YK_SHAPE(2, 3, 5, 3), f64), (int[]){1, 0, 2, 3});
        yk_tensor *y = yk_matmul(a, b);
        assert_int_equal(yk_ndim(y), 4);
        int64_t i[4];
        for (i[0] = 0; i[0] < 3; i[0]++)
            for (i[1] = 0; i[1] < 2; i[1]++)
                for (i[2] = 0; i[2] < 4; i[2]++)
                    for (i[3] = 0; i[3] < 3; i[3]++)
                        expect_near(yk_get(y, i), product_at(a, b, i, 2, i[2], i[3]), 1e-13, 1e-13);
        yk_scope_end(scope);
    }
}

/* ---- products ---- */

/* Numbers that division cannot bring back, in every dtype; expected is PyTorch's. */
static void test_gradient_of_products(void **state)
{
    (void)state;
    static const struct {
        double x[3], grad[3];
    } lines[] = {
        {{0, INFINITY, 2}, {INFINITY, 0, NAN}},
        {{INFINITY, -INFINITY, 0}, {NAN, NAN, -INFINITY}},
        {{1, NAN, 0}, {NAN, 0, NAN}},
        {{INFINITY, 1, INFINITY}, {NAN, INFINITY, NAN}},
        {{NAN, 1, 2}, {NAN, NAN, NAN}},
        {{0, 3, 0}, {0, 0, 0}},
        {{-2, 0, 3}, {0, -6, 0}},
    };
    static const yk_dtype dtypes[] = {YK_F64, YK_F32, YK_F16, YK_BF16};
    for (size_t i = 0; i < 4 * sizeof(lines) / sizeof(lines[0]); i++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = as(yk_from_data(lines[i / 4].x, YK_SHAPE(3), f64), dtypes[i % 4]);
        for (int along = 0; along < 2; along++) {
            yk_tensor *leaf = yk_detach(yk_clone(x));
            expect_ok(yk_set_requires_grad(leaf, true));
            yk_tensor *y = along ? yk_prod_dim(leaf, 0, false) : yk_prod(leaf);
            assert_int_equal(yk_tensor_dtype(y), dtypes[i % 4]);
            expect_ok(yk_backward(y));
            assert_int_equal(yk_tensor_dtype(yk_grad(leaf)), dtypes[i % 4]);
            for (int64_t k = 0; k < 3; k++) {
                double got = yk_get(yk_grad(leaf), &k), expected = lines[i / 4].grad[k];
                if (got != expected && !(isnan(got) && isnan(expected)))
                    fail_msg("line %zu of %s: gradient %d is %g, expected %g", i / 4, yk_dtype_name(dtypes[i % 4]),
                             (int)k, got, expected);
            }
        }
        yk_scope_end(scope);
    }
    yk_scope scope = yk_scope_begin();
    yk_tensor *counts = yk_prod_dim(yk_full(YK_SHAPE(2, 3), 300, integers), 1, false); /* of integers, i64 */
    assert_true(yk_tensor_dtype(counts) == YK_I64 && !yk_requires_grad(counts));
    assert_int_equal(yk_item_i64(yk_max(counts)), 27000000);
    yk_scope_end(scope);
}

/* ---- empty tensors ---- */

static void test_empty(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_zeros(YK_SHAPE(0, 3), f64_leaf), *w = yk_ones(YK_SHAPE(2, 3), f64_leaf);
    yk_tensor *b = yk_full(YK_SHAPE(2), 7, f64_leaf), *y = yk_linear(x, w, b);
    assert_int_equal(yk_size(y, 0), 0);
    expect_ok(yk_backward(yk_sum(y)));
    assert_true(yk_item(yk_max(yk_abs(yk_grad(w)))) == 0 && yk_item(yk_max(yk_abs(yk_grad(b)))) == 0);
    /* An empty sum of products is 0, or the bias. */
    yk_tensor *none = yk_zeros(YK_SHAPE(4, 0), f64), *empty = yk_zeros(YK_SHAPE(0, 5), f64);
    assert_true(yk_item(yk_max(yk_abs(yk_matmul(none, empty)))) == 0);
    yk_tensor *bias_only = yk_linear(none, yk_zeros(YK_SHAPE(2, 0), f64), b);
    expect_near(at(bias_only, 3, 1), 7, 0, 0);
    assert_true(isnan(yk_item(yk_mean(x))));
    assert_true(yk_item(yk_sum(x)) == 0);
    assert_true(isnan(yk_item(yk_mse_loss(x, x, YK_REDUCE_MEAN))));
    yk_tensor *map = yk_zeros(YK_SHAPE(0, 2, 4, 4), f64), *kernel = yk_ones(YK_SHAPE(3, 2, 3, 3), f64_leaf);
    expect_ok(yk_backward(yk_sum(yk_conv2d(map, kernel, NULL, NULL))));
    assert_true(yk_item(yk_max(yk_abs(yk_grad(kernel)))) == 0);
    assert_int_equal(yk_numel(yk_softmax(x, 1)), 0);
    /* An empty product is 1, whose gradient goes to nobody. */
    expect_near(yk_item(yk_prod(x)), 1, 0, 0);
    yk_tensor *ones = yk_prod_dim(x, 0, false);
    assert_true(yk_numel(ones) == 3 && yk_item(yk_min(ones)) == 1);
    yk_tensor *row = yk_prod_dim(x, 1, true);
    assert_true(yk_size(row, 0) == 0 && yk_size(row, 1) == 1);
    expect_ok(yk_backward(yk_add(yk_add(yk_sum(ones), yk_prod(x)), yk_sum(row))));
    assert_int_equal(yk_size(yk_grad(x), 0), 0);
    /* An empty dimension makes as many chunks as are asked for, but one part. */
    yk_tensor *parts[3] = {NULL};
    int count = 0;
    expect_ok(yk_chunk(x, 3, 0, parts, 3, &count));
    assert_int_equal(count, 3);
    assert_int_equal(yk_size(parts[2], 0), 0);
    assert_int_equal(yk_size(parts[2], 1), 3);
    expect_ok(yk_backward(yk_sum(parts[1])));
    expect_ok(yk_split(x, 3, 0, parts, 3, &count));
    assert_int_equal(count, 1);
    expect_ok(yk_split(x, 0, 0, parts, 3, &count));
    assert_true(count == 1 && yk_size(parts[0], 0) == 0 && yk_size(parts[0], 1) == 3);
    assert_int_equal(yk_numel(yk_max_pool2d(map, YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2}))), 0);
    expect_ok(yk_last_error() != NULL);
    yk_scope_end(scope);
}

/* 0-dimensional tensors go where PyTorch lets them. */
static void test_scalars(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_full(YK_SCALAR, 3, f64_leaf);
    expect_near(yk_item(yk_softmax(x, 0)), 1, 0, 0);
    expect_near(yk_item(yk_log_softmax(x, -1)), 0, 0, 0);
    yk_tensor *sum = yk_sum_dims(x, (int[]){-1}, 1, true);
    assert_int_equal(yk_ndim(sum), 0);
    yk_tensor *line = yk_flatten(x, 0, -1);
    assert_int_equal(yk_ndim(line), 1);
    yk_tensor *pair = yk_stack((yk_tensor *[]){x, x}, 2, 0);
    expect_ok(yk_backward(yk_add(yk_sum(yk_mul(pair, pair)), yk_sum(yk_mul(sum, line)))));
    expect_near(yk_item(yk_grad(x)), 2 * 2 * 3 + 2 * 3, 1e-14, 0);
    yk_scope_end(scope);
}

int main(void)
{
    use_devices(2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_dropout_by_place),
        cmocka_unit_test(test_random_in_place),
        cmocka_unit_test(test_running_statistics),
        cmocka_unit_test(test_mixed_dtypes),
        cmocka_unit_test(test_half_in_place),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_values_at_places),
        cmocka_unit_test(test_views_share),
        cmocka_unit_test(test_unchanged_is_owned),
        cmocka_unit_test(test_gradients_add_up),
        cmocka_unit_test(test_keeps_what_it_needs),
        cmocka_unit_test(test_memory_order_is_kept),
        cmocka_unit_test(test_block_f32_against_f64),
        cmocka_unit_test(test_matmul_of_every_layout),
        cmocka_unit_test(test_gradient_of_products),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_scalars),
    };
    return cmocka_run_group_tests_name("op_rules", tests, NULL, NULL);
}
