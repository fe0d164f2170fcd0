/*
 * Scaled dot product attention: PyTorch's outputs and gradients, finite differences, the blockwise kernel against the
 * composition of operations at sizes around its blocks, masks and their gradients, dropout by the words of the stream,
 * memory, views, f16 and bf16, bits for any number of threads, and errors.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#include "tests/support/golden.h"

static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);
static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);

static yk_tensor *wave(int seed, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    double *x = malloc((size_t)count * sizeof(*x) + 1);
    for (int64_t i = 0; i < count; i++)
        x[i] = sin(0.7 * (double)i + seed);
    yk_tensor *wide = yk_from_data(x, ndim, shape, f64);
    free(x);
    yk_tensor *out = yk_detach(yk_cast(wide, options->dtype == YK_DTYPE_NOT_GIVEN ? YK_F32 : options->dtype));
    if (options->requires_grad)
        expect_ok(yk_set_requires_grad(out, true));
    return out;
}

static const double *expect_values(const char *what, int test, yk_tensor *x, const double *values, double tolerance)
{
    yk_tensor *dense = yk_contiguous(yk_detach(x));
    assert_non_null(dense);
    const double *got = host_data(dense);
    for (int64_t i = 0; i < yk_numel(dense); i++)
        if (!(fabs(got[i] - values[i]) <= tolerance))
            fail_msg("case %d: %s %lld is %.17g, expected %.17g", test, what, (long long)i, got[i], values[i]);
    return values + yk_numel(dense);
}

static yk_tensor *bool_mask(int64_t rows, int64_t cols)
{
    uint8_t values[64 * 64];
    assert_true(rows * cols <= (int64_t)sizeof(values));
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = i % 3 != 0;
    return yk_from_data(values, 2, (int64_t[]){rows, cols}, YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL));
}

static void test_pytorch(void **state)
{
    (void)state;
    size_t count;
    const char *const *cases = golden_rows("attention", "cases", &count);
    assert_true(count > 0);
    for (size_t t = 0; t < count; t++) {
        yk_scope scope = yk_scope_begin();
        const char *row = cases[t];
        int64_t b = golden_integer(&row), h = golden_integer(&row), l = golden_integer(&row), s = golden_integer(&row);
        int64_t e = golden_integer(&row), d = golden_integer(&row);
        int masked = golden_integer(&row); /* 1: by bools, 2: by numbers that are added */
        bool causal = golden_integer(&row);
        double scale = golden_number(&row); /* 0: the default */
        char section[40];
        snprintf(section, sizeof(section), "case %zu", t);
        yk_tensor *q = wave(1, 4, (int64_t[]){b, h, l, e}, f64_leaf);
        yk_tensor *k = wave(2, 4, (int64_t[]){b, h, s, e}, f64_leaf);
        yk_tensor *v = wave(3, 4, (int64_t[]){b, h, s, d}, f64_leaf);
        yk_tensor *mask = masked == 1 ? bool_mask(l, s) : masked == 2 ? wave(4, 2, (int64_t[]){l, s}, f64) : NULL;
        yk_tensor *out =
            yk_scaled_dot_product_attention(q, k, v,
                                            YK_OPTIONS(yk_attention_options, .attn_mask = mask, .is_causal = causal,
                                                       .scale = scale ? scale : YK_NOT_GIVEN));
        yk_tensor *gradient = wave(5, 4, (int64_t[]){b, h, l, d}, f64);
        expect_ok(yk_backward_with(out, YK_OPTIONS(yk_backward_options, .gradient = gradient)));
        const double *values = expect_values("output", (int)t, out, golden_numbers("attention", section, NULL), 1e-13);
        values = expect_values("gradient of query", (int)t, yk_grad(q), values, 1e-13);
        values = expect_values("gradient of key", (int)t, yk_grad(k), values, 1e-13);
        expect_values("gradient of value", (int)t, yk_grad(v), values, 1e-13);
        yk_scope_end(scope);
    }
}

/* The mask that the golden file calls `kind`; NULL for 0. */
static yk_tensor *mask_of_kind(int64_t kind, const int64_t *n, const yk_tensor_options *options)
{
    const int64_t b = n[0], h = n[1], l = n[2], s = n[3];
    switch (kind) {
    case 1: return wave(4, YK_SHAPE(l, s), options);
    case 2: return wave(4, YK_SHAPE(h, 1, s), options);
    case 3: return wave(4, YK_SHAPE(b, 1, l, 1), options);
    case 4: return wave(4, YK_SHAPE(1, 1), options);
    case 5: return wave(4, YK_SHAPE(b, h, l, s), options);
    default: return NULL;
    }
}

static void test_pytorch_mask_gradient_and_dropout(void **state)
{
    (void)state;
    size_t count;
    const char *const *cases = golden_rows("attention", "more", &count);
    assert_true(count > 0);
    for (size_t t = 0; t < count; t++) {
        yk_scope scope = yk_scope_begin();
        const char *row = cases[t];
        int64_t n[7];
        for (int i = 0; i < 7; i++)
            n[i] = golden_integer(&row);
        bool causal = golden_integer(&row);
        double p = golden_number(&row);
        char section[40];
        snprintf(section, sizeof(section), "more %zu", t);
        yk_tensor *in[4] = {wave(1, YK_SHAPE(n[0], n[1], n[2], n[4]), f64_leaf),
                            wave(2, YK_SHAPE(n[0], n[1], n[3], n[4]), f64_leaf),
                            wave(3, YK_SHAPE(n[0], n[1], n[3], n[5]), f64_leaf), mask_of_kind(n[6], n, f64_leaf)};
        yk_manual_seed(7);
        yk_tensor *out = yk_scaled_dot_product_attention(
            in[0], in[1], in[2],
            YK_OPTIONS(yk_attention_options, .attn_mask = in[3], .is_causal = causal, .dropout_p = p));
        yk_tensor *gradient = wave(5, YK_SHAPE(n[0], n[1], n[2], n[5]), f64);
        expect_ok(yk_backward_with(out, YK_OPTIONS(yk_backward_options, .gradient = gradient)));
        const double *values = expect_values("output", (int)t, out, golden_numbers("attention", section, NULL), 1e-13);
        for (int i = 0; i < 4 && in[i]; i++)
            values = expect_values("a gradient", (int)t, yk_grad(in[i]), values, 1e-13);
        yk_scope_end(scope);
    }
}

static yk_tensor *attend(yk_tensor *const *inputs, int count, void *user)
{
    (void)count;
    return yk_scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], user);
}

static void test_finite_differences(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    int64_t shape[3] = {2, 6, 3}, keys[3] = {2, 5, 3};
    yk_tensor *inputs[3] = {wave(1, 3, shape, f64_leaf), wave(2, 3, keys, f64_leaf), wave(3, 3, keys, f64_leaf)};
    yk_attention_options causal = *YK_OPTIONS(yk_attention_options, .is_causal = true),
                         masked = *YK_OPTIONS(yk_attention_options, .attn_mask = bool_mask(6, 5));
    expect_ok(yk_gradcheck(attend, inputs, 3, NULL, NULL));
    expect_ok(yk_gradcheck(attend, inputs, 3, &causal, NULL));
    expect_ok(yk_gradcheck(attend, inputs, 3, &masked, NULL));
    yk_scope_end(scope);
}

/* Attention with the mask as fourth input, by equal random numbers at each call. */
static yk_tensor *attend_dropped(yk_tensor *const *inputs, int count, void *user)
{
    yk_attention_options o = *(const yk_attention_options *)user;
    o.attn_mask = count > 3 ? inputs[3] : NULL;
    yk_manual_seed(11);
    return yk_scaled_dot_product_attention(inputs[0], inputs[1], inputs[2], &o);
}

static void test_finite_differences_of_mask_and_dropout(void **state)
{
    (void)state;
    const int64_t n[4] = {1, 2, 4, 5};
    for (int kind = 0; kind <= 5; kind += work_size(1, 3)) {
        yk_scope scope = yk_scope_begin();
        yk_attention_options o = *YK_OPTIONS(yk_attention_options, .dropout_p = kind % 2 ? 0 : 0.4);
        yk_tensor *inputs[4] = {wave(1, YK_SHAPE(1, 2, 4, 3), f64_leaf), wave(2, YK_SHAPE(1, 2, 5, 3), f64_leaf),
                                wave(3, YK_SHAPE(1, 2, 5, 2), f64_leaf), mask_of_kind(kind, n, f64_leaf)};
        expect_ok(yk_gradcheck(attend_dropped, inputs, kind ? 4 : 3, &o, NULL));
        expect_ok(yk_gradgradcheck(attend_dropped, inputs, kind ? 4 : 3, &o, NULL));
        yk_scope_end(scope);
    }
}

/* The largest difference over the largest number. */
static double distance(yk_tensor *a, yk_tensor *b)
{
    bool previous = yk_no_grad_begin();
    yk_tensor *x = yk_cast(a, YK_F64), *y = yk_cast(b, YK_F64);
    double difference = yk_item(yk_max(yk_abs(yk_sub(x, y)))), scale = yk_item(yk_max(yk_abs(y)));
    yk_no_grad_end(previous);
    return difference / (scale > 0 ? scale : 1);
}

/* Five dimensions take the composition of operations. */
static yk_tensor *composed(yk_tensor *const *inputs, const yk_attention_options *options)
{
    yk_tensor *in[3];
    for (int i = 0; i < 3; i++) {
        in[i] = inputs[i];
        while (yk_ndim(in[i]) < 5 && in[i])
            in[i] = yk_unsqueeze(in[i], 0);
    }
    yk_tensor *out = yk_scaled_dot_product_attention(in[0], in[1], in[2], options);
    while (out && yk_ndim(out) > yk_ndim(inputs[0]))
        out = yk_squeeze(out, 0);
    return out;
}

/* Sizes around the blocks of the kernel. */
static void test_blocks(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {/* L, S, E, D */
                                       {1, 1, 1, 1},      {14, 128, 64, 64}, {15, 129, 33, 31},
                                       {57, 255, 16, 48}, {513, 40, 8, 8},   {40, 513, 8, 5},
                                       {130, 257, 32, 7}, {600, 600, 4, 4},  {200, 100, 12, 64}};
    const yk_tensor_options leaf = *YK_OPTIONS(yk_tensor_options, .requires_grad = true);
    for (size_t t = 0; t < sizeof sizes / sizeof sizes[0]; t++)
        for (int kind = 0; kind < 3; kind++) {
            yk_scope scope = yk_scope_begin();
            const int64_t *n = sizes[t];
            yk_tensor *given[3] = {yk_randn(4, (int64_t[]){1, 2, n[0], n[2]}, &leaf),
                                   yk_randn(4, (int64_t[]){1, 2, n[1], n[2]}, &leaf),
                                   yk_randn(4, (int64_t[]){1, 2, n[1], n[3]}, &leaf)};
            yk_tensor *wide[3];
            for (int i = 0; i < 3; i++) {
                wide[i] = yk_detach(yk_cast(given[i], YK_F64));
                expect_ok(yk_set_requires_grad(wide[i], true));
            }
            yk_tensor *mask =
                kind == 2 ? yk_gt(yk_rand(3, (int64_t[]){2, n[0], n[1]}, NULL), yk_scalar(0.4, NULL)) : NULL;
            yk_attention_options options = *YK_OPTIONS(yk_attention_options, .is_causal = kind == 1, .attn_mask = mask);
            yk_tensor *a = yk_scaled_dot_product_attention(given[0], given[1], given[2], &options);
            yk_tensor *b = composed(wide, &options);
            yk_tensor *g = yk_randn_like(b);
            expect_ok(yk_backward_with(a, YK_OPTIONS(yk_backward_options, .gradient = yk_cast(g, YK_F32))));
            expect_ok(yk_backward_with(b, YK_OPTIONS(yk_backward_options, .gradient = g)));
            expect_near(distance(a, b), 0, 0, 2e-6);
            for (int i = 0; i < 3; i++)
                expect_near(distance(yk_grad(given[i]), yk_grad(wide[i])), 0, 0, 5e-6);
            yk_scope_end(scope);
        }
}

/* The same with masks of each shape that want a gradient, and dropout: five dimensions draw the same words. */
static void test_blocks_of_mask_gradient_and_dropout(void **state)
{
    (void)state;
    static const int64_t sizes[][4] = {/* L, S, E, D */
                                       {15, 129, 9, 7},
                                       {57, 255, 16, 8},
                                       {513, 40, 8, 8},
                                       {130, 257, 4, 7}};
    const yk_tensor_options leaf = *YK_OPTIONS(yk_tensor_options, .requires_grad = true);
    for (size_t t = 0; t < sizeof sizes / sizeof sizes[0]; t++)
        for (int kind = 0; kind <= 5; kind += work_size(1, 3)) {
            yk_scope scope = yk_scope_begin();
            const int64_t *n = sizes[t], all[4] = {2, 2, n[0], n[1]};
            yk_tensor *given[4] = {wave(1, YK_SHAPE(2, 2, n[0], n[2]), &leaf),
                                   wave(2, YK_SHAPE(2, 2, n[1], n[2]), &leaf),
                                   wave(3, YK_SHAPE(2, 2, n[1], n[3]), &leaf), mask_of_kind(kind, all, &leaf)};
            yk_tensor *wide[4] = {NULL};
            for (int i = 0; i < 4 && given[i]; i++) {
                wide[i] = yk_detach(yk_cast(given[i], YK_F64));
                expect_ok(yk_set_requires_grad(wide[i], true));
            }
            yk_attention_options options =
                *YK_OPTIONS(yk_attention_options, .dropout_p = kind % 3 ? 0 : 0.25, .is_causal = kind == 0 && t % 2);
            options.attn_mask = given[3];
            yk_manual_seed(t);
            yk_tensor *a = yk_scaled_dot_product_attention(given[0], given[1], given[2], &options);
            options.attn_mask = wide[3];
            yk_manual_seed(t);
            yk_tensor *b = composed(wide, &options);
            yk_tensor *g = wave(5, YK_SHAPE(2, 2, n[0], n[3]), f64);
            expect_ok(yk_backward_with(a, YK_OPTIONS(yk_backward_options, .gradient = yk_cast(g, YK_F32))));
            expect_ok(yk_backward_with(b, YK_OPTIONS(yk_backward_options, .gradient = g)));
            expect_near(distance(a, b), 0, 0, 5e-6);
            for (int i = 0; i < 4 && given[i]; i++) {
                if (i == 3 && (kind == 3 || kind == 4)) /* a number for all scores of a row changes nothing */
                    expect_near(yk_item(yk_max(yk_abs(yk_grad(given[i])))), 0, 0, 2e-4);
                else
                    expect_near(distance(yk_grad(given[i]), yk_grad(wide[i])), 0, 0, 1e-5);
            }
            yk_scope_end(scope);
        }
}

/* A long sequence, with dropout and a mask that wants a gradient, takes no more memory than a few of its inputs. */
static void test_memory(void **state)
{
    (void)state;
    if (test_device_type != YK_CPU) /* other devices have blocks of the matrix: attention_blocks_test.c */
        return;
    enum { HEADS = 2, LENGTH = 768, SIZE = 16, BYTES = HEADS * LENGTH * SIZE * 4 };
    yk_scope scope = yk_scope_begin();
    const yk_tensor_options leaf = *YK_OPTIONS(yk_tensor_options, .requires_grad = true);
    const yk_device cpu = {YK_CPU, 0};
    yk_tensor *q = wave(1, YK_SHAPE(1, HEADS, LENGTH, SIZE), &leaf), *mask = wave(4, YK_SHAPE(1, LENGTH), &leaf);
    int threads = yk_get_num_threads(cpu);
    expect_ok(yk_set_num_threads(cpu, 2));
    yk_memory_info before, after;
    expect_ok(yk_device_memory(cpu, &before));
    yk_device_reset_peak_memory(cpu);
    yk_tensor *out =
        yk_scaled_dot_product_attention(q, q, q, YK_OPTIONS(yk_attention_options, .attn_mask = mask, .dropout_p = 0.1));
    expect_ok(yk_backward(yk_sum(out)));
    expect_ok(yk_device_memory(cpu, &after));
    expect_ok(yk_set_num_threads(cpu, threads));
    int64_t matrix = (int64_t)HEADS * LENGTH * LENGTH * 4,
            more = (int64_t)after.peak_allocated - (int64_t)before.allocated;
    if (more > 12 * BYTES)
        fail_msg("%lld bytes more are in memory, of a matrix of %lld and inputs of %d", (long long)more,
                 (long long)matrix, BYTES);
    yk_scope_end(scope);
}

/* Batches that only the key has: the mask may have them, too. */
static void test_mask_of_every_batch(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *q = wave(1, 3, (int64_t[]){1, 3, 4}, f64), *k = wave(2, 3, (int64_t[]){2, 5, 4}, f64);
    yk_tensor *mask = wave(3, 3, (int64_t[]){2, 3, 5}, f64), *flat = yk_squeeze(q, 0);
    yk_tensor *whole = yk_scaled_dot_product_attention(yk_expand(q, 3, (int64_t[]){2, -1, -1}), k, k,
                                                       YK_OPTIONS(yk_attention_options, .attn_mask = mask));
    for (int i = 0; i < 2; i++) {
        yk_tensor *out =
            yk_scaled_dot_product_attention(i ? flat : q, k, k, YK_OPTIONS(yk_attention_options, .attn_mask = mask));
        assert_non_null(out);
        assert_true(yk_same_shape(out, whole));
        assert_true(distance(out, whole) < 1e-14);
    }
    yk_scope_end(scope);
}

static void test_rows_that_see_nothing(void **state)
{
    (void)state;
    for (int blockwise = 0; blockwise < 2; blockwise++) {
        yk_scope scope = yk_scope_begin();
        int64_t shape[3] = {1, 3, 4};
        yk_tensor *q = wave(1, 3, shape, f64_leaf), *k = wave(2, 3, shape, f64_leaf), *v = wave(3, 3, shape, f64_leaf);
        uint8_t seen[9] = {1, 0, 1, 0, 0, 0, 1, 1, 1};
        yk_tensor *mask = yk_from_data(seen, 2, (int64_t[]){3, 3}, YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL));
        yk_attention_options options = *YK_OPTIONS(yk_attention_options, .attn_mask = mask);
        yk_tensor *in[3] = {q, k, v};
        yk_tensor *out = blockwise ? yk_scaled_dot_product_attention(q, k, v, &options) : composed(in, &options);
        expect_ok(yk_backward(yk_sum(out)));
        for (int64_t j = 0; j < 4; j++) {
            expect_near(yk_get(out, (int64_t[]){0, 1, j}), 0, 0, 0);
            expect_near(yk_get(yk_grad(q), (int64_t[]){0, 1, j}), 0, 0, 0);
            assert_true(isfinite(yk_get(yk_grad(k), (int64_t[]){0, 1, j})));
        }
        yk_scope_end(scope);
    }
    /* The same where the mask is added: a row of -INFINITY, blockwise, composed and with a gradient of its own. */
    for (int kind = 0; kind < 3; kind++) {
        yk_scope scope = yk_scope_begin();
        int64_t shape[3] = {1, 2, 4};
        yk_tensor *in[3] = {wave(1, 3, shape, f64_leaf), wave(2, 3, shape, f64_leaf), wave(3, 3, shape, f64_leaf)};
        double added[4] = {0, -INFINITY, -INFINITY, -INFINITY};
        yk_tensor *mask = yk_from_data(added, 2, (int64_t[]){2, 2}, kind == 2 ? f64_leaf : f64);
        yk_attention_options options = *YK_OPTIONS(yk_attention_options, .attn_mask = mask);
        yk_tensor *out =
            kind == 1 ? composed(in, &options) : yk_scaled_dot_product_attention(in[0], in[1], in[2], &options);
        expect_ok(yk_backward(yk_sum(out)));
        for (int64_t j = 0; j < 4; j++) {
            expect_near(yk_get(out, (int64_t[]){0, 0, j}), yk_get(in[2], (int64_t[]){0, 0, j}), 1e-15, 0);
            expect_near(yk_get(out, (int64_t[]){0, 1, j}), 0, 0, 0);
            expect_near(yk_get(yk_grad(in[0]), (int64_t[]){0, 1, j}), 0, 0, 0);
            expect_near(yk_get(yk_grad(in[2]), (int64_t[]){0, 0, j}), 1, 1e-15, 0);
        }
        if (kind == 2)
            expect_near(yk_item(yk_sum(yk_abs(yk_grad(mask)))), 0, 1e-15, 0);
        yk_scope_end(scope);
    }
    /* NaN is not taken for a mask */
    yk_scope scope = yk_scope_begin();
    yk_tensor *q = yk_full(2, (int64_t[]){2, 2}, NAN, NULL), *k = yk_ones(2, (int64_t[]){3, 2}, NULL);
    yk_tensor *out = yk_scaled_dot_product_attention(q, k, k, NULL);
    assert_true(isnan(yk_get(out, (int64_t[]){0, 0})));
    yk_scope_end(scope);
}

/* (N, L, H, E) transposed, as a model's heads are, and a query whose columns are apart. */
static void test_views(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    int64_t shape[4] = {2, 20, 3, 8};
    yk_tensor *x[3], *view[3], *dense[3];
    for (int i = 0; i < 3; i++) {
        x[i] = wave(i + 1, 4, shape, f64);
        view[i] = yk_transpose(x[i], 1, 2);
        dense[i] = yk_contiguous(view[i]);
    }
    yk_tensor *want = yk_scaled_dot_product_attention(dense[0], dense[1], dense[2], NULL);
    yk_tensor *got = yk_scaled_dot_product_attention(view[0], view[1], view[2], NULL);
    assert_true(distance(got, want) == 0);
    assert_int_equal(yk_stride(got, 1), 8); /* the heads stay where the query's were */
    yk_tensor *apart = yk_transpose(yk_contiguous(yk_transpose(dense[0], 2, 3)), 2, 3);
    assert_true(distance(yk_scaled_dot_product_attention(apart, view[1], view[2], NULL), want) == 0);
    yk_scope_end(scope);
}

static void test_halves(void **state)
{
    (void)state;
    static const yk_dtype halves[] = {YK_F16, YK_BF16};
    for (int t = 0; t < 2; t++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor_options leaf = *YK_OPTIONS(yk_tensor_options, .dtype = halves[t], .requires_grad = true);
        int64_t shape[3] = {2, 30, 16};
        yk_tensor *in[3], *wide[3];
        for (int i = 0; i < 3; i++) {
            in[i] = wave(i + 1, 3, shape, &leaf);
            wide[i] = yk_detach(yk_cast(in[i], YK_F64));
            expect_ok(yk_set_requires_grad(wide[i], true));
        }
        yk_tensor *a = yk_scaled_dot_product_attention(in[0], in[1], in[2], NULL);
        yk_tensor *b = yk_scaled_dot_product_attention(wide[0], wide[1], wide[2], NULL);
        assert_int_equal(yk_tensor_dtype(a), halves[t]);
        expect_ok(yk_backward(yk_sum(yk_mul(a, a))));
        expect_ok(yk_backward(yk_sum(yk_mul(b, b))));
        double limit = t ? 3e-2 : 4e-3;
        expect_near(distance(a, b), 0, 0, limit);
        for (int i = 0; i < 3; i++)
            expect_near(distance(yk_grad(in[i]), yk_grad(wide[i])), 0, 0, limit);
        yk_scope_end(scope);
    }
}

static void test_threads(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    const yk_tensor_options leaf = *YK_OPTIONS(yk_tensor_options, .requires_grad = true);
    int64_t shape[4] = {1, 3, 700, 16};
    yk_tensor *in[3], *first[4] = {NULL};
    for (int i = 0; i < 3; i++)
        in[i] = wave(i + 1, 4, shape, &leaf);
    yk_device cpu = {YK_CPU, 0};
    int before = yk_get_num_threads(cpu);
    for (int threads = 1; threads <= 3; threads++) {
        expect_ok(yk_set_num_threads(cpu, threads));
        yk_manual_seed(5);
        yk_tensor *out = yk_scaled_dot_product_attention(
            in[0], in[1], in[2], YK_OPTIONS(yk_attention_options, .is_causal = true, .dropout_p = 0.2));
        expect_ok(yk_backward(yk_sum(yk_mul(out, out))));
        yk_tensor *now[4] = {out, yk_grad(in[0]), yk_grad(in[1]), yk_grad(in[2])};
        for (int i = 0; i < 4; i++) {
            if (first[i])
                assert_memory_equal(host_data(first[i]), host_data(now[i]), 3 * 700 * 16 * sizeof(float));
            else
                first[i] = yk_clone(yk_detach(now[i]));
        }
        for (int i = 0; i < 3; i++)
            expect_ok(yk_set_grad(in[i], NULL));
    }
    yk_tensor *mask = wave(4, YK_SHAPE(1, 300), &leaf), *sum = NULL;
    for (int threads = 1; threads <= 3; threads++) {
        expect_ok(yk_set_num_threads(cpu, threads));
        yk_tensor *part = yk_narrow(in[0], 2, 0, 300);
        yk_tensor *out =
            yk_scaled_dot_product_attention(part, part, part, YK_OPTIONS(yk_attention_options, .attn_mask = mask));
        expect_ok(yk_backward(yk_sum(yk_mul(out, out))));
        if (sum)
            assert_memory_equal(host_data(sum), host_data(yk_grad(mask)), 300 * sizeof(float));
        else
            sum = yk_clone(yk_detach(yk_grad(mask)));
        expect_ok(yk_set_grad(mask, NULL));
    }
    expect_ok(yk_set_num_threads(cpu, before));
    yk_scope_end(scope);
}

static void test_dropout(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_manual_seed(3);
    int64_t shape[3] = {1, 200, 50}, values[3] = {1, 50, 50};
    yk_tensor *q = yk_zeros(3, shape, NULL), *k = yk_zeros(3, values, NULL), *v = yk_ones(3, values, NULL);
    yk_tensor *out = yk_scaled_dot_product_attention(q, k, v, YK_OPTIONS(yk_attention_options, .dropout_p = 0.4));
    /* a row is the number of kept weights over 50 * 0.6: 200 rows, deviation of their mean 0.0082 */
    expect_near(yk_item(yk_mean(out)), 1, 0, 0.04);
    assert_true(yk_item(yk_var(out)) > 0.005);
    yk_scope_end(scope);
}

/* NaN in a key that no query may look at, by a mask or because it comes later: nothing of it in the gradients of the
 * queries that do not see it; a query that sees it has NaN in its result and in its gradient. */
static void test_nan_at_a_masked_key(void **state)
{
    (void)state;
    enum { ROWS = 3, KEYS = 3, SIZE = 2 };
    for (int form = 0; form < 6; form++) {
        yk_scope scope = yk_scope_begin();
        bool causal = form & 1;
        int ndim = form < 4 ? 3 : 5; /* five dimensions, and dropout, are made of several operations */
        const int64_t shape[5] = {1, ndim == 5 ? 1 : ROWS, ndim == 5 ? 1 : SIZE, ROWS, SIZE};
        double keys[KEYS * SIZE] = {1, 0, 2, 1, NAN, 1};
        bool visible[ROWS * KEYS] = {true, false, false, true, true, false, true, true, false};
        yk_tensor *q = wave(1, ndim, shape, f64_leaf), *v = wave(2, ndim, shape, f64_leaf);
        yk_tensor *k = yk_from_data(keys, ndim, shape, f64_leaf);
        yk_tensor *mask = yk_from_data(visible, YK_SHAPE(ROWS, KEYS), YK_OPTIONS(yk_tensor_options, .dtype = YK_BOOL));
        yk_attention_options o =
            *YK_OPTIONS(yk_attention_options, .attn_mask = causal ? NULL : mask, .is_causal = causal);
        o.dropout_p = form == 2 || form == 3 ? 1e-300 : 0;
        yk_tensor *out = yk_scaled_dot_product_attention(q, k, v, &o);
        expect_ok(yk_backward(yk_sum(out)));
        const double *result = host_data(yk_contiguous(yk_detach(out)));
        const double *gq = host_data(yk_contiguous(yk_grad(q))), *gk = host_data(yk_contiguous(yk_grad(k)));
        for (int i = 0; i < ROWS * SIZE; i++) {
            bool sees = causal && i / SIZE == 2;
            if (isnan(result[i]) != sees || isnan(gq[i]) != sees)
                fail_msg("form %d: element %d: the result is %g, the gradient of query %g", form, i, result[i], gq[i]);
            if (!causal && isnan(gk[i]))
                fail_msg("form %d: element %d of the gradient of key is NaN", form, i);
        }
        yk_scope_end(scope);
    }
}

static void test_empty(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *q = yk_ones(3, (int64_t[]){2, 3, 4}, f64_leaf), *none = yk_ones(3, (int64_t[]){2, 0, 4}, f64_leaf);
    yk_tensor *out = yk_scaled_dot_product_attention(q, none, none, NULL);
    expect_ok(yk_backward(yk_sum(out)));
    assert_true(yk_item(yk_sum(out)) == 0);
    assert_true(yk_item(yk_sum(yk_grad(q))) == 0);
    out = yk_scaled_dot_product_attention(none, q, q, NULL);
    assert_int_equal(yk_numel(out), 0);
    yk_scope_end(scope);
}

static void test_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_tensor *q = yk_ones(3, (int64_t[]){2, 3, 4}, NULL), *k = yk_ones(3, (int64_t[]){2, 5, 4}, NULL);
    yk_tensor *narrow = yk_ones(3, (int64_t[]){2, 5, 3}, NULL);
    assert_null(yk_scaled_dot_product_attention(q, narrow, k, NULL));
    expect_error(YK_ERR_SHAPE, "(2, 3, 4), (2, 5, 3) and (2, 5, 4)");
    assert_null(yk_scaled_dot_product_attention(q, k, q, NULL));
    expect_error(YK_ERR_SHAPE, "(2, 5, 4) and (2, 3, 4)");
    assert_null(yk_scaled_dot_product_attention(q, yk_cast(k, YK_F64), k, NULL));
    expect_error(YK_ERR_DTYPE, "key is float64, expected float32");
    yk_tensor *mask = yk_ones(2, (int64_t[]){3, 4}, NULL);
    assert_null(yk_scaled_dot_product_attention(q, k, k, YK_OPTIONS(yk_attention_options, .attn_mask = mask)));
    expect_error(YK_ERR_SHAPE, "attn_mask (3, 4)");
    mask = yk_ones(2, (int64_t[]){3, 5}, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    assert_null(yk_scaled_dot_product_attention(q, k, k, YK_OPTIONS(yk_attention_options, .attn_mask = mask)));
    expect_error(YK_ERR_DTYPE, "attn_mask is int64");
    mask = yk_ones(2, (int64_t[]){3, 5}, NULL);
    assert_null(yk_scaled_dot_product_attention(
        q, k, k, YK_OPTIONS(yk_attention_options, .attn_mask = mask, .is_causal = true)));
    expect_error(YK_ERR_ARGUMENT, "is_causal");
    assert_null(yk_scaled_dot_product_attention(q, k, k, YK_OPTIONS(yk_attention_options, .dropout_p = 1.5)));
    expect_error(YK_ERR_ARGUMENT, "dropout_p is 1.5");
    yk_tensor *none = yk_scaled_dot_product_attention(q, k, k, YK_OPTIONS(yk_attention_options, .dropout_p = 1));
    assert_true(yk_item(yk_sum(yk_abs(none))) == 0); /* as in PyTorch: every weight is dropped */
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pytorch),
        cmocka_unit_test(test_pytorch_mask_gradient_and_dropout),
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_finite_differences_of_mask_and_dropout),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_blocks_of_mask_gradient_and_dropout),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_rows_that_see_nothing),
        cmocka_unit_test(test_mask_of_every_batch),
        cmocka_unit_test(test_views),
        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_nan_at_a_masked_key),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
