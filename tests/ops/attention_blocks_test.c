/*
 * attention_blocks_test.c - attention by blocks of queries against the same in one block: outputs, gradients, gradients
 * of gradients and of those, with dropout and masks of each shape, in blocks of any size; finite differences; halves;
 * and the peak of memory.
 */
#include "tests/support/expect.h"
#include "tests/support/test_device.h"

#include "ops/attention.h"
#include <yoke/ops.h>

enum { Q, K, V, MASK, INPUTS };
static const int64_t in_one = INT64_MAX;
static const yk_tensor_options *const f64_leaf = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true);

static yk_tensor *wave(int seed, int ndim, const int64_t *shape, const yk_tensor_options *options)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    double *x = malloc((size_t)count * sizeof(*x) + 1);
    for (int64_t i = 0; i < count; i++)
        x[i] = sin(0.7 * (double)i + seed);
    yk_tensor *out = yk_from_data(x, ndim, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    free(x);
    out = yk_detach(yk_cast(out, options->dtype == YK_DTYPE_NOT_GIVEN ? YK_F32 : options->dtype));
    if (options->requires_grad)
        expect_ok(yk_set_requires_grad(out, true));
    return out;
}

/* The largest difference over the largest number of b. */
static double distance(yk_tensor *a, yk_tensor *b)
{
    bool previous = yk_no_grad_begin();
    yk_tensor *x = yk_cast(a, YK_F64), *y = yk_cast(b, YK_F64);
    double difference = yk_item(yk_max(yk_abs(yk_sub(x, y)))), scale = yk_item(yk_max(yk_abs(y)));
    yk_no_grad_end(previous);
    return difference / (scale > 1e-3 ? scale : 1e-3);
}

/* A form: batches of query, of key and value, and of the mask; ndim counts L and S, E and D. */
typedef struct form {
    int ndim;
    int64_t batch[3], key_batch[3], queries, keys, mask[5]; /* mask of `ndim` sizes; 0 first: none */
    bool causal, seen;                                      /* seen: the mask is of bools */
    double dropout;
} form;

static const form forms[] = {
    {2, {0}, {0}, 9, 7, {9, 7}, false, false, 0.3},
    {3, {3}, {3}, 5, 6, {1, 1, 6}, false, false, 0.2},
    {4, {2, 3}, {2, 3}, 6, 5, {2, 1, 6, 1}, false, false, 0},
    {4, {2, 3}, {2, 3}, 6, 5, {0}, true, false, 0.4},
    {4, {2, 2}, {2, 2}, 5, 9, {1, 1, 5, 9}, false, true, 0.5},
    {4, {2, 1}, {1, 3}, 4, 5, {2, 3, 4, 5}, false, false, 0.3},
    {5, {2, 2, 2}, {2, 2, 2}, 3, 5, {2, 1, 1, 3, 5}, false, false, 0.25},
    {5, {1, 2, 2}, {1, 2, 2}, 7, 7, {0}, true, false, 1},
};
enum { FORMS = sizeof(forms) / sizeof(forms[0]) };

static int inputs_make(const form *f, const yk_tensor_options *options, yk_tensor **in)
{
    enum { E = 3, D = 2 };
    const int64_t last[3][2] = {{f->queries, E}, {f->keys, E}, {f->keys, D}};
    int64_t shape[5];
    for (int i = Q; i <= V; i++) {
        memcpy(shape, i == Q ? f->batch : f->key_batch, sizeof(f->batch));
        memcpy(shape + f->ndim - 2, last[i], sizeof(last[i]));
        in[i] = wave(i + 1, f->ndim, shape, options);
    }
    in[MASK] = f->mask[0] && !f->seen ? wave(4, f->ndim, f->mask, options) : NULL;
    return in[MASK] ? 4 : 3;
}

/* By operations, also where a kernel would do it: of five dimensions, or of a mask on a GPU; by equal random numbers.
 */
static yk_tensor *attend(yk_tensor *const *in, int count, void *user)
{
    const form *f = user;
    yk_tensor *mask = count > 3 ? in[MASK] : NULL;
    if (f->seen)
        mask = yk_gt(wave(4, f->ndim, f->mask, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)),
                     yk_scalar(-0.5, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64)));
    yk_tensor *wide[3] = {in[Q], in[K], in[V]};
    int more = 5 - f->ndim;
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < more; d++)
            wide[i] = yk_unsqueeze(wide[i], 0);
    yk_manual_seed(3);
    yk_tensor *out = yk_scaled_dot_product_attention(
        wide[Q], wide[K], wide[V],
        YK_OPTIONS(yk_attention_options, .attn_mask = mask, .is_causal = f->causal, .dropout_p = f->dropout));
    for (int d = 0; d < more; d++)
        out = yk_squeeze(out, 0);
    return out;
}

/* As a program calls it: on a CPU a kernel computes it and its first gradients, if it has up to four dimensions. */
static yk_tensor *attend_plainly(yk_tensor *const *in, int count, void *user)
{
    const form *f = user;
    yk_manual_seed(3);
    return yk_scaled_dot_product_attention(in[Q], in[K], in[V],
                                           YK_OPTIONS(yk_attention_options, .attn_mask = count > 3 ? in[MASK] : NULL,
                                                      .is_causal = f->causal, .dropout_p = f->dropout));
}

enum { ORDERS = 3, MOST = 1 + ORDERS * INPUTS };

/* The output, and the gradients of `orders` orders: of the sum of the squares of those before. */
static int results_make(yk_gradcheck_fn fn, const form *f, yk_tensor *const *in, int count, int orders, yk_tensor **to)
{
    int n = 0;
    yk_tensor *out = fn(in, count, (void *)(uintptr_t)f), *sum = yk_sum(yk_mul(out, out)), *grads[INPUTS];
    to[n++] = out;
    for (int order = 1; order <= orders; order++) {
        expect_ok(yk_autograd_grad(
            &sum, 1, in, count, NULL, grads,
            YK_OPTIONS(yk_autograd_grad_options, .create_graph = order < orders, .allow_unused = true)));
        sum = NULL;
        for (int i = 0; i < count; i++) {
            if (!grads[i])
                continue;
            to[n++] = grads[i];
            yk_tensor *squares = yk_sum(yk_mul(grads[i], grads[i]));
            sum = sum ? yk_add(sum, squares) : squares;
        }
    }
    return n;
}

static void check_form(yk_gradcheck_fn fn, const form *f, int orders, const yk_tensor_options *options, int64_t block,
                       double tolerance)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *in[INPUTS], *whole[MOST], *parts[MOST];
    int count = inputs_make(f, options, in);
    yk__attention_block = in_one;
    int n = results_make(fn, f, in, count, orders, whole);
    yk__attention_block = block;
    assert_int_equal(results_make(fn, f, in, count, orders, parts), n);
    yk__attention_block = 0;
    assert_true(n >= 1 + orders * 3 || f->dropout == 1);
    for (int i = 0; i < n; i++) {
        double apart = distance(parts[i], whole[i]);
        if (!(apart <= tolerance))
            fail_msg("form %d, blocks of %lld, result %d: %g apart", (int)(f - forms), (long long)block, i, apart);
    }
    yk_scope_end(scope);
}

/* Blocks of a query, of some of a head, of a head, of some heads. */
static void test_blocks(void **state)
{
    (void)state;
    static const int64_t blocks[] = {1, 13, 35, 70};
    for (int t = 0; t < FORMS; t += work_size(1, 3))
        for (int b = 0; b < 4; b += work_size(1, 2))
            check_form(attend, &forms[t], 1, f64_leaf, blocks[b], 1e-12);
}

static void test_orders(void **state)
{
    (void)state;
    for (int t = 0; t < FORMS; t += work_size(1, 5))
        check_form(attend, &forms[t], ORDERS, f64_leaf, 13 + 20 * (t % 2), 1e-10);
    for (int t = 0; t < FORMS; t += work_size(1, FORMS))
        if (!forms[t].seen)
            check_form(attend_plainly, &forms[t], ORDERS, f64_leaf, 21, 1e-10);
}

/* Gradients of gradients by blocks: of what the kernel and the blocks gave. */
static void test_finite_differences(void **state)
{
    (void)state;
    static const form small[] = {{3, {2}, {2}, 3, 4, {1, 3, 4}, false, false, 0.3},
                                 {5, {1, 1, 2}, {1, 1, 2}, 3, 3, {0}, true, false, 0.2}};
    yk__attention_block = 5;
    for (int t = 0; t < work_size(2, 1); t++)
        for (int plainly = 0; plainly < work_size(2, 1); plainly++) {
            yk_scope scope = yk_scope_begin();
            yk_tensor *in[INPUTS];
            int count = inputs_make(&small[t], f64_leaf, in);
            yk_gradcheck_fn fn = plainly ? attend_plainly : attend;
            expect_ok(yk_gradcheck(fn, in, count, (void *)(uintptr_t)&small[t], NULL));
            expect_ok(yk_gradgradcheck(fn, in, count, (void *)(uintptr_t)&small[t], NULL));
            yk_scope_end(scope);
        }
    yk__attention_block = 0;
}

/* Halves are added up in f32, whatever the number of blocks. */
static void test_halves(void **state)
{
    (void)state;
    for (int dtype = YK_F16; dtype <= YK_BF16; dtype += YK_BF16 - YK_F16) {
        const yk_tensor_options leaf = *YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)dtype, .requires_grad = true);
        for (int t = 0; t < FORMS; t += work_size(3, FORMS))
            check_form(attend, &forms[t], 2, &leaf, 13, dtype == YK_F16 ? 0.02 : 0.15);
    }
}

/* The most bytes in memory above those before, of an output with its first gradients, or second ones. */
static int64_t peak(yk_gradcheck_fn fn, const form *f, int orders, int64_t block)
{
    const yk_device device = test_device(0);
    const yk_tensor_options leaf = *YK_OPTIONS(yk_tensor_options, .requires_grad = true);
    yk_scope scope = yk_scope_begin();
    yk_tensor *in[INPUTS], *to[MOST];
    int count = inputs_make(f, &leaf, in);
    yk_memory_info before, after;
    yk__attention_block = block;
    expect_ok(yk_device_memory(device, &before));
    yk_device_reset_peak_memory(device);
    (void)results_make(fn, f, in, count, orders, to);
    expect_ok(yk_device_memory(device, &after));
    yk__attention_block = 0;
    yk_scope_end(scope);
    return (int64_t)after.peak_allocated - (int64_t)before.allocated;
}

/* Long sequences, with dropout and a mask that wants a gradient, take less memory than one matrix of the weights. */
static void test_memory(void **state)
{
    (void)state;
    enum { LENGTH = 256, BLOCK = 16 * LENGTH };
    static const form longer = {4, {1, 2}, {1, 2}, LENGTH, LENGTH, {1, 1, 1, LENGTH}, false, false, 0.1};
    const int64_t matrix = (int64_t)2 * LENGTH * LENGTH * 4;
    for (int plainly = 0; plainly < work_size(2, 1); plainly++)
        for (int orders = 1; orders <= 2; orders++) {
            yk_gradcheck_fn fn = plainly ? attend_plainly : attend;
            int64_t parts = peak(fn, &longer, orders, BLOCK), whole = peak(fn, &longer, orders, in_one);
            bool kernel = plainly && orders == 1 && test_device_type == YK_CPU;
            if (parts > matrix)
                fail_msg("gradients of order %d: %lld bytes more, a matrix has %lld", orders, (long long)parts,
                         (long long)matrix);
            if (!kernel && whole < 2 * matrix) /* what the measure is to see */
                fail_msg("gradients of order %d: %lld bytes in one block", orders, (long long)whole);
        }
}

int main(void)
{
    start_devices();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks), cmocka_unit_test(test_orders), cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_halves), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
