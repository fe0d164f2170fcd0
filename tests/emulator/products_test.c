/* products_test.c - products that cuBLASLt has no algorithm for are our own kernel's, and counted; what comes in
 * the same call as a product. */
#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"
#include "tests/support/slot_pairs.h"

#include <yoke/yoke.h>

static const yk_device gpu = {YK_CUDA, 0};

/* Whole numbers, whose products and sums are exact; one dimension where there are no columns. */
static yk_tensor *numbers(int64_t rows, int64_t columns, yk_device device, yk_dtype dtype, int seed)
{
    enum { MOST = 8 * 4096 };
    static float values[MOST];
    int64_t shape[] = {rows, columns}, count = rows * (columns ? columns : 1);
    assert_true(count <= MOST);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)((i * 7 + seed) % 5 - 2);
    yk_tensor *t = yk_from_data(values, columns ? 2 : 1, shape, YK_OPTIONS(yk_tensor_options, .device = device));
    return yk_clone(yk_detach(yk_cast(t, dtype)));
}

static void read_values(yk_tensor *t, float *to, int64_t count)
{
    expect_ok(yk_tensor_read(yk_cast(t, YK_F32), to, (size_t)count * sizeof(float)));
}

/* The stand-in has no algorithm where the inner dimension is 29, and refuses all that it gave where it is 43; where it
 * is 31 it refuses the first, and where it is 47 that one's state says that it is none. It calls the first invalid
 * where it is 59, fails in it where it is 61, and in all where it is 67. */
static void refused_products_are_our_own(void **state)
{
    (void)state;
    static const int64_t inner[] = {16, 31, 47, 31, 59, 61, 61, 29, 43, 43, 67, 67};
    enum { BY_LIBRARY = 7 };
    for (int i = 0; i < 12; i++) {
        yk_scope scope = yk_scope_begin();
        float out[2][7 * 11];
        long long library = slot_work_done("gemm", true), own = slot_work_done("gemm", false);
        long long failed = slot_counted("algorithms that failed: ");
        for (int d = 0; d < 2; d++) {
            yk_device device = d ? gpu : (yk_device){YK_CPU, 0};
            yk_tensor *y =
                yk_linear(numbers(7, inner[i], device, YK_F32, 1), numbers(11, inner[i], device, YK_F32, 2),
                          yk_mul_scalar(yk_ones(YK_SHAPE(11), YK_OPTIONS(yk_tensor_options, .device = device)), 3));
            read_values(y, out[d], 7 * 11);
        }
        assert_memory_equal(out[0], out[1], sizeof(out[0]));
        assert_true(slot_work_done("gemm", true) - library == (i < BY_LIBRARY));
        assert_true(slot_work_done("gemm", false) - own == (i >= BY_LIBRARY));
        failed = slot_counted("algorithms that failed: ") - failed; /* with the bias and without it, once each */
        assert_int_equal(failed, inner[i] == inner[i ? i - 1 : 0] ? 0 : inner[i] == 61 ? 1 : inner[i] == 67 ? 6 : 0);
        yk_scope_end(scope);
    }
}

/* The stand-in's RELU_BIAS makes 0 of NaN where the inner dimension is 37: then ReLU is computed apart. */
static void relu_is_fused_where_it_keeps_nan(void **state)
{
    (void)state;
    static const int64_t inner[] = {16, 37, 16, 37};
    for (int i = 0; i < 4; i++) {
        yk_scope scope = yk_scope_begin();
        float out[2][7 * 11];
        long long before = slot_counted("gemm with ReLU: ");
        for (int d = 0; d < 2; d++) {
            yk_device device = d ? gpu : (yk_device){YK_CPU, 0};
            yk_tensor *x = numbers(7, inner[i], device, YK_F32, 1);
            assert_non_null(yk_fill_(yk_select(x, 0, 2), NAN));
            yk_tensor *y = yk_linear_relu(x, numbers(11, inner[i], device, YK_F32, 2),
                                          yk_ones(YK_SHAPE(11), YK_OPTIONS(yk_tensor_options, .device = device)));
            read_values(y, out[d], 7 * 11);
        }
        for (int k = 0; k < 7 * 11; k++) {
            if (isnan(out[0][k]) ? !isnan(out[1][k]) : out[0][k] != out[1][k] || isnan(out[0][k]) != (k / 11 == 2))
                fail_msg("inner dimension %d, element %d: %g, and %g on the CPU", (int)inner[i], k, (double)out[1][k],
                         (double)out[0][k]);
        }
        assert_true(slot_counted("gemm with ReLU: ") - before == (inner[i] == 16));
        yk_scope_end(scope);
    }
}

/* The gradients of weight and bias in one product: of halves, and not where the sums of a trial were rounded more than
 * once, which those of the stand-in are where the inner dimension, the rows here, is 41. */
static void bias_gradients_come_with_the_product(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_F32, YK_BF16, YK_F16};
    for (int i = 0; i < 3 * 2 * 2; i++) {
        yk_scope scope = yk_scope_begin();
        yk_dtype dtype = dtypes[i % 3];
        int64_t rows = i / 3 % 2 ? 41 : 24;
        bool expected = dtype != YK_F32 && rows == 24;
        float gw[2][5 * 8], gb[2][5];
        for (int d = 0; d < 2; d++) {
            yk_device device = d ? gpu : (yk_device){YK_CPU, 0};
            yk_tensor *w = numbers(5, 8, device, dtype, 2),
                      *b = yk_cast(yk_ones(YK_SHAPE(5), YK_OPTIONS(yk_tensor_options, .device = device)), dtype);
            b = yk_detach(b);
            expect_ok(yk_set_requires_grad(w, true));
            expect_ok(yk_set_requires_grad(b, true));
            yk_tensor *y = yk_linear(numbers(rows, 8, device, dtype, 1), w, b);
            long long before = slot_counted("gemm with sums of rows: ");
            expect_ok(yk_backward(yk_sum(yk_mul(y, numbers(rows, 5, device, dtype, 3)))));
            assert_int_equal(slot_counted("gemm with sums of rows: ") - before, d && expected);
            read_values(yk_grad(w), gw[d], 5 * 8);
            read_values(yk_grad(b), gb[d], 5);
        }
        assert_memory_equal(gw[0], gw[1], sizeof(gw[0]));
        assert_memory_equal(gb[0], gb[1], sizeof(gb[0]));
        yk_scope_end(scope);
    }
}

/* A bias that begins within 16 bytes of another one: kernels load it by 16 bytes at once, as they store the result. */
static void a_bias_that_is_not_aligned(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_BF16, YK_F16, YK_F32};
    for (int i = 0; i < 3 * 3; i++) {
        yk_scope scope = yk_scope_begin();
        yk_dtype dtype = dtypes[i % 3];
        int at = i / 3; /* the element that it begins at */
        float out[2][2][7 * 8];
        long long library = slot_work_done("gemm", true);
        for (int d = 0; d < 2; d++) {
            yk_device device = d ? gpu : (yk_device){YK_CPU, 0};
            yk_tensor *x = numbers(7, 24, device, dtype, 1), *w = numbers(8, 24, device, dtype, 2);
            yk_tensor *b = yk_narrow(numbers(16, 0, device, dtype, 3), 0, at, 8);
            read_values(yk_linear(x, w, b), out[d][0], 7 * 8);
            read_values(yk_linear_relu(x, w, b), out[d][1], 7 * 8);
        }
        assert_memory_equal(out[0], out[1], sizeof(out[0]));
        assert_true(slot_work_done("gemm", true) - library == 2);
        yk_scope_end(scope);
    }
}

/* The stand-in has no algorithm that adds a bias where the inner dimension is 53: the library multiplies without it,
 * onto the bias, which lies in out. So does it where the bias is not dense. */
static void a_bias_that_the_library_does_not_add(void **state)
{
    (void)state;
    static const yk_dtype dtypes[] = {YK_BF16, YK_F16, YK_F32, YK_F64};
    for (int i = 0; i < 4 * 3; i++) {
        yk_scope scope = yk_scope_begin();
        yk_dtype dtype = dtypes[i % 4];
        int64_t inner = i / 4 < 2 ? 53 : 24;
        float out[2][2][7 * 8];
        long long library = slot_work_done("gemm", true), own = slot_work_done("gemm", false);
        for (int d = 0; d < 2; d++) {
            yk_device device = d ? gpu : (yk_device){YK_CPU, 0};
            yk_tensor *x = numbers(7, inner, device, dtype, 1), *w = numbers(8, inner, device, dtype, 2);
            yk_tensor *b =
                inner == 53 ? numbers(8, 0, device, dtype, 3) : yk_select(numbers(8, 2, device, dtype, 3), 1, 1);
            read_values(yk_linear(x, w, b), out[d][0], 7 * 8);
            read_values(yk_linear_relu(x, w, b), out[d][1], 7 * 8);
        }
        assert_memory_equal(out[0], out[1], sizeof(out[0]));
        assert_true(slot_work_done("gemm", true) - library == 2);
        assert_true(slot_work_done("gemm", false) == own);
        yk_scope_end(scope);
    }
}

/* x w + bias = 258 of bf16, 2050 of f16: where the product, less by 1, is rounded first, it loses that 1 and the
 * bias's.
 */
static void a_bias_is_rounded_with_the_product(void **state)
{
    (void)state;
    static const struct {
        yk_dtype dtype;
        float first, second, expected;
    } kinds[] = {{YK_BF16, 16, 16, 258}, {YK_F16, 64, 32, 2050}};
    for (int i = 0; i < 2 * 2; i++) {
        yk_scope scope = yk_scope_begin();
        const yk_tensor_options on = *YK_OPTIONS(yk_tensor_options, .device = gpu, .dtype = kinds[i % 2].dtype);
        float x[2][16] = {{kinds[i % 2].first, 1}, {kinds[i % 2].first, 1}}, w[3 * 16] = {0}, out[2 * 3];
        for (int k = 0; k < 3; k++)
            w[k * 16] = kinds[i % 2].second, w[k * 16 + 1] = 1;
        yk_tensor *first = yk_cast(yk_from_data(x, YK_SHAPE(2, 16), NULL), on.dtype);
        yk_tensor *second = yk_cast(yk_from_data(w, YK_SHAPE(3, 16), NULL), on.dtype),
                  *bias = yk_ones(YK_SHAPE(3), &on);
        first = yk_to(first, gpu), second = yk_to(second, gpu);
        read_values(i / 2 ? yk_linear_relu(first, second, bias) : yk_linear(first, second, bias), out, 2 * 3);
        for (int k = 0; k < 2 * 3; k++)
            assert_true(out[k] == kinds[i % 2].expected);
        yk_scope_end(scope);
    }
}

static void count_message(yk_log_level level, const char *message, void *user)
{
    (void)level, (void)message;
    ++*(int *)user;
}

/* The library adds up the rows of a gradient that lies by rows, and of no other: that is not asked for, so nothing is
 * refused. A gradient of one column is none, nor is one that lies by columns. */
static void sums_of_what_does_not_lie_by_rows(void **state)
{
    (void)state;
    int warnings = 0;
    for (int i = 0; i < 4; i++) {
        yk_scope scope = yk_scope_begin();
        int64_t outputs = i < 2 ? 5 : 1;
        float gw[2][5 * 8], gb[2][5];
        long long before = slot_counted("gemm with sums of rows: ");
        for (int d = 0; d < 2; d++) {
            yk_device device = d ? gpu : (yk_device){YK_CPU, 0};
            yk_tensor *w = numbers(outputs, 8, device, YK_BF16, 2), *b = numbers(outputs, 0, device, YK_BF16, 1);
            expect_ok(yk_set_requires_grad(w, true));
            expect_ok(yk_set_requires_grad(b, true));
            yk_tensor *y = yk_linear(numbers(26, 8, device, YK_BF16, 1), w, b);
            yk_tensor *given = i % 2 ? yk_transpose(numbers(outputs, 26, device, YK_BF16, 3), 0, 1)
                                     : numbers(26, outputs, device, YK_BF16, 3);
            yk_log_set(YK_LOG_WARN, count_message, &warnings);
            expect_ok(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .gradient = given)));
            yk_log_set(YK_LOG_OFF, NULL, NULL);
            read_values(yk_grad(w), gw[d], outputs * 8);
            read_values(yk_grad(b), gb[d], outputs);
        }
        assert_memory_equal(gw[0], gw[1], (size_t)outputs * 8 * sizeof(float));
        assert_memory_equal(gb[0], gb[1], (size_t)outputs * sizeof(float));
        assert_int_equal(slot_counted("gemm with sums of rows: ") - before, i == 0);
        yk_scope_end(scope);
    }
    assert_int_equal(warnings, 0);
}

/* More matrices than the planes that a grid has: they are cut in two. */
static void many_matrices_in_a_batch(void **state)
{
    (void)state;
    enum { MATRICES = 65535 + 3 };
    yk_scope scope = yk_scope_begin();
    float *values = malloc(MATRICES * 2 * sizeof(float)), *out = malloc(MATRICES * sizeof(float));
    assert_true(values && out);
    for (int i = 0; i < MATRICES * 2; i++)
        values[i] = (float)(i % 7 - 3);
    long long library = slot_work_done("gemm", true);
    yk_tensor *a = yk_from_data(values, YK_SHAPE(MATRICES, 1, 2), YK_OPTIONS(yk_tensor_options, .device = gpu));
    read_values(yk_matmul(a, yk_transpose(a, 1, 2)), out, MATRICES);
    for (int i = 0; i < MATRICES; i++)
        assert_true(out[i] == values[2 * i] * values[2 * i] + values[2 * i + 1] * values[2 * i + 1]);
    assert_true(slot_work_done("gemm", true) == library + 2);
    free(values);
    free(out);
    yk_scope_end(scope);
}

static void keep_chosen(yk_log_level level, const char *message, void *user)
{
    if (level == YK_LOG_DEBUG && strstr(message, "cuBLASLt: "))
        snprintf(user, 300, "%s", message);
}

/* A report can say which algorithm a GPU took: of a product of inner dimension 31 the second, for the first is refused.
 */
static void the_log_says_which_algorithm(void **state)
{
    (void)state;
    char said[300] = "";
    yk_scope scope = yk_scope_begin();
    yk_log_set(YK_LOG_DEBUG, keep_chosen, said);
    yk_tensor *x = numbers(9, 31, gpu, YK_F32, 1), *w = numbers(3, 31, gpu, YK_F32, 2);
    assert_non_null(yk_linear(x, w, NULL));
    yk_log_set(YK_LOG_OFF, NULL, NULL);
    assert_string_equal(said, "cuda:0: cuBLASLt: (3,31) x (31,9), 1 of them, of float32: algorithm 67, 0 bytes of "
                              "workspace, k in 1 parts, the first of 2");
    yk_scope_end(scope);
}

/* So that the library may cut a long inner dimension into parts, where the GPU has more to do than one tile. */
static void a_bias_of_few_rows_is_put_there_before(void **state)
{
    (void)state;
    static const struct {
        int64_t inner;
        yk_dtype dtype;
        bool relu, apart;
    } kinds[] = {{4096, YK_BF16, false, true},
                 {4096, YK_F32, false, false},
                 {2048, YK_BF16, false, false},
                 {4096, YK_BF16, true, false}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        char said[300] = "";
        yk_scope scope = yk_scope_begin();
        yk_tensor *x = numbers(5, kinds[i].inner, gpu, kinds[i].dtype, 1);
        yk_tensor *w = numbers(8, kinds[i].inner, gpu, kinds[i].dtype, 2), *b = numbers(8, 0, gpu, kinds[i].dtype, 3);
        yk_log_set(YK_LOG_DEBUG, keep_chosen, said);
        assert_non_null(kinds[i].relu ? yk_linear_relu(x, w, b) : yk_linear(x, w, b));
        yk_log_set(YK_LOG_OFF, NULL, NULL);
        assert_true((strstr(said, " with ") == NULL) == kinds[i].apart);
        yk_scope_end(scope);
    }
}

typedef struct recorded {
    int64_t inner;
    yk_tensor *out;
    int calls;
} recorded;

/* A form that comes for the first time in the call that is recorded. */
static yk_status new_product_when_recorded(void *user)
{
    recorded *r = user;
    int64_t rows = ++r->calls == 3 ? 5 : 4;
    yk_tensor *x = yk_ones(YK_SHAPE(rows, r->inner), YK_OPTIONS(yk_tensor_options, .device = gpu));
    yk_tensor *w = yk_ones(YK_SHAPE(6, r->inner), YK_OPTIONS(yk_tensor_options, .device = gpu));
    yk_tensor_release(r->out);
    r->out = yk_tensor_retain(yk_linear(x, w, NULL));
    return r->out ? YK_OK : yk_last_error()->code;
}

/* The library chooses an algorithm in a recording, in the mode that allows what it does then; where it cannot, the
 * recording fails with the reason, and the form is the library's later on. Where the inner dimension is 71 the stand-in
 * cannot, as CUDA 13.3. */
static void products_that_are_new_in_a_recording(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        yk_scope scope = yk_scope_begin();
        recorded r = {.inner = i ? 71 : 73};
        float out[5 * 6];
        long long own = slot_work_done("gemm", false);
        yk_graph *g = yk_graph_create(gpu, 2, new_product_when_recorded, &r);
        for (int k = 0; k < 3; k++)
            expect_ok(yk_graph_run(g));
        yk_graph_info info = yk_graph_get_info(g);
        assert_int_equal(info.replays, !i);
        if (i && !strstr(info.why_not ? info.why_not : "", "this product was not seen before the recording"))
            fail_msg("%s", info.why_not);
        r.calls = 2;
        expect_ok(new_product_when_recorded(&r));
        read_values(r.out, out, 5 * 6);
        for (int k = 0; k < 5 * 6; k++)
            assert_true(out[k] == (float)r.inner);
        assert_true(slot_work_done("gemm", false) == own);
        yk_tensor_release(r.out);
        yk_scope_end(scope);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_products_are_our_own),
                                       cmocka_unit_test(relu_is_fused_where_it_keeps_nan),
                                       cmocka_unit_test(bias_gradients_come_with_the_product),
                                       cmocka_unit_test(a_bias_that_is_not_aligned),
                                       cmocka_unit_test(a_bias_that_the_library_does_not_add),
                                       cmocka_unit_test(a_bias_is_rounded_with_the_product),
                                       cmocka_unit_test(products_that_are_new_in_a_recording),
                                       cmocka_unit_test(sums_of_what_does_not_lie_by_rows),
                                       cmocka_unit_test(many_matrices_in_a_batch),
                                       cmocka_unit_test(the_log_says_which_algorithm),
                                       cmocka_unit_test(a_bias_of_few_rows_is_put_there_before)};
    if (!use_emulator())
        return 0;
    (void)yk_device_count(YK_CUDA); /* loads the backend, which counts from here on */
    return cmocka_run_group_tests_name("products", tests, NULL, NULL);
}
