/* batch_norm_relu_test.c - batch normalisation's backward on a GPU, which finds where ReLU cut by comparing x with an
 * edge: it cuts the same elements as a look at the result. With a residual of zeros, which changes no result, it does
 * look there. */
#include "tests/emulator/use_emulator.h"
#include "tests/support/expect.h"

#include <yoke/yoke.h>

enum { CHANNELS = 14, PATTERNS = 1 << 16 };

static const yk_device gpu = {YK_CUDA, 0};

/* Slopes of both signs, great and small, 0, and what is not finite; eps is 0, so that a variance of 0 is a slope of
 * infinity. */
static const float weights[CHANNELS] = {1, -1, 0.3f, -7, 0, 0, 1e-30f, 1e30f, 1, 1e-4f, -2, 3.4e38f, -INFINITY, NAN};
static const float biases[CHANNELS] = {0, 0.5f, -0.1f, 3, 1, -1, 0, 2, 0, -1e-6f, INFINITY, -3e38f, 1, 0};
static const float means[CHANNELS] = {0, 1, -0.2f, 100, 0.5f, 2, 0, 0, 3, -5, 0.1f, 0, 2, 1};
static const float variances[CHANNELS] = {1, 2, 0.01f, 9, 1, 1, 1, 1e10f, 0, 1e-12f, 1, 1, 3, 1};

static yk_tensor *vector(const float *values, bool parameter)
{
    yk_tensor *v = yk_from_data(values, 1, (const int64_t[]){CHANNELS}, YK_OPTIONS(yk_tensor_options, .device = gpu));
    expect_ok(parameter ? yk_set_requires_grad(v, true) : YK_OK);
    return v;
}

/* Result and gradients of x, weight and bias, as bytes. */
typedef struct answer {
    unsigned char *bytes[4];
    size_t count[4];
} answer;

static answer run(yk_tensor *x, yk_tensor *gradient, bool training, yk_tensor *residual)
{
    answer a;
    yk_scope scope = yk_scope_begin();
    yk_tensor *leaf = yk_clone(yk_detach(x)), *weight = vector(weights, true), *bias = vector(biases, true);
    expect_ok(yk_set_requires_grad(leaf, true));
    yk_tensor *y = yk_batch_norm(leaf, weight, bias, vector(means, false), vector(variances, false),
                                 YK_OPTIONS(yk_batch_norm_options, .training = training, .relu = true,
                                            .eps = training ? 1e-5 : 0, .residual = residual));
    expect_ok(yk_backward_with(y, YK_OPTIONS(yk_backward_options, .gradient = gradient)));
    yk_tensor *made[4] = {y, yk_grad(leaf), yk_grad(weight), yk_grad(bias)};
    for (int i = 0; i < 4; i++) {
        yk_tensor *c = yk_contiguous(yk_detach(made[i]));
        a.count[i] = (size_t)yk_numel(c) * yk_dtype_size(yk_tensor_dtype(c));
        a.bytes[i] = malloc(a.count[i]);
        expect_ok(yk_tensor_read(c, a.bytes[i], a.count[i]));
    }
    yk_scope_end(scope);
    return a;
}

/* A quiet or signalling NaN of any payload is NaN. */
static void make_nans_alike(unsigned char *bytes, size_t count, yk_dtype dtype)
{
    size_t size = yk_dtype_size(dtype);
    for (size_t i = 0; i < count / size; i++) {
        uint32_t bits = 0, infinity = dtype == YK_F32 ? 0x7F800000 : dtype == YK_BF16 ? 0x7F80 : 0x7C00;
        memcpy(&bits, bytes + i * size, size);
        if ((bits & ~(1u << (8 * size - 1))) > infinity)
            memset(bytes + i * size, 0xFF, size);
    }
}

static void expect_same(const char *what, yk_tensor *x, yk_tensor *gradient, bool training)
{
    static const char *const names[] = {"result", "gradient", "weight's gradient", "bias's gradient"};
    yk_tensor *zeros = yk_mul_scalar(yk_ones_like(x), 0);
    answer edges = run(x, gradient, training, NULL), looked = run(x, gradient, training, zeros);
    size_t kept = 0, cut = 0;
    for (int i = 0; i < 4; i++) {
        yk_dtype dtype = i < 2 ? yk_tensor_dtype(x) : YK_F32;
        make_nans_alike(edges.bytes[i], edges.count[i], dtype);
        make_nans_alike(looked.bytes[i], looked.count[i], dtype);
        for (size_t b = 0; b < edges.count[i]; b++)
            if (edges.bytes[i][b] != looked.bytes[i][b])
                fail_msg("%s: the %s differs at element %zu, channel %zu", what, names[i], b / yk_dtype_size(dtype),
                         b / yk_dtype_size(dtype) % CHANNELS);
        for (size_t b = 0; i == 0 && b < edges.count[0]; b++)
            edges.bytes[0][b] ? kept++ : cut++;
        free(edges.bytes[i]);
        free(looked.bytes[i]);
    }
    assert_true(kept > 100 && cut > 100);
}

/* Each of the numbers that a half can be, in each channel. */
static void all_halves(void **state)
{
    (void)state;
    static const yk_dtype halves[] = {YK_BF16, YK_F16};
    uint16_t *bits = malloc((size_t)PATTERNS * CHANNELS * sizeof(*bits));
    for (int i = 0; i < PATTERNS; i++)
        for (int c = 0; c < CHANNELS; c++)
            bits[i * CHANNELS + c] = (uint16_t)i;
    for (int k = 0; k < 2; k++) {
        yk_scope scope = yk_scope_begin();
        yk_tensor_options on = *YK_OPTIONS(yk_tensor_options, .device = gpu, .dtype = halves[k]);
        yk_tensor *x = yk_from_data(bits, 2, (const int64_t[]){PATTERNS, CHANNELS}, &on);
        expect_same(yk_dtype_name(halves[k]), x, yk_ones_like(x), false);
        yk_scope_end(scope);
    }
    free(bits);
}

/* f32 on both sides of where each channel's result is 0, next to it and farther away, and any bits. */
static void numbers_next_to_the_edge(void **state)
{
    (void)state;
    enum { ROWS = 4096, NEAR = 64 };
    yk_scope scope = yk_scope_begin();
    float *x = malloc(sizeof(*x) * ROWS * CHANNELS);
    for (int c = 0; c < CHANNELS; c++) {
        double slope = weights[c] / sqrt(variances[c]), zero = means[c] - biases[c] / slope;
        float at = (float)zero;
        uint32_t word = 12345;
        for (int i = 0; i < ROWS; i++) {
            word = word * 1664525 + 1013904223;
            memcpy(&x[i * CHANNELS + c], &word, sizeof(word));
            if (i < 2 * NEAR) {
                x[i * CHANNELS + c] = at;
                at = nextafterf(at, i % 2 ? INFINITY : -INFINITY);
                for (int steps = 0; steps < i; steps++)
                    at = nextafterf(at, i % 2 ? INFINITY : -INFINITY);
            }
        }
    }
    yk_tensor *t = yk_from_data(x, 2, (const int64_t[]){ROWS, CHANNELS}, YK_OPTIONS(yk_tensor_options, .device = gpu));
    expect_same("float32", t, yk_ones_like(t), false);
    free(x);
    yk_scope_end(scope);
}

/* The sums, too, in every order of dimensions, with and without packs. */
static void training(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{4, 6, 6}, {3, 3, 5}, {1, 9, 8}};
    static const yk_dtype dtypes[] = {YK_F32, YK_BF16, YK_F16};
    for (int k = 0; k < 3 * 3 * 2; k++) {
        const int64_t *n = sizes[k % 3];
        yk_scope scope = yk_scope_begin();
        yk_tensor *x =
            k < 9 ? yk_randn(YK_SHAPE(n[0], CHANNELS, n[1], n[2]), YK_OPTIONS(yk_tensor_options, .device = gpu))
                  : yk_permute(
                        yk_randn(YK_SHAPE(n[0], n[1], n[2], CHANNELS), YK_OPTIONS(yk_tensor_options, .device = gpu)),
                        (const int[]){0, 3, 1, 2});
        x = yk_cast(x, dtypes[k / 3 % 3]);
        yk_tensor *g = yk_cast(yk_randn_like(x), dtypes[k / 3 % 3]);
        expect_same("training", x, g, true);
        yk_scope_end(scope);
    }
}

static yk_module *layer;
static yk_tensor *input;

static yk_status one_forward(void *unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_status status = yk_forward(layer, input) ? YK_OK : yk_last_error()->code;
    yk_scope_end(scope);
    return status;
}

/* The number of batches is counted in the kernels, in replays too, and only in training. */
static void batches_are_counted(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    layer = yk_module_to(yk_batch_norm2d_create(6, NULL), gpu);
    input = yk_randn(YK_SHAPE(3, 6, 4, 4), YK_OPTIONS(yk_tensor_options, .device = gpu));
    yk_graph *g = yk_graph_create(gpu, 2, one_forward, NULL);
    for (int i = 0; i < 9; i++)
        expect_ok(yk_graph_run(g));
    assert_true(yk_graph_get_info(g).replays > 1);
    assert_int_equal(yk_item_i64(yk_module_get(layer, "num_batches_tracked")), 9);
    yk_module_eval(layer);
    expect_ok(one_forward(NULL));
    assert_int_equal(yk_item_i64(yk_module_get(layer, "num_batches_tracked")), 9);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_halves), cmocka_unit_test(numbers_next_to_the_edge),
                                       cmocka_unit_test(training), cmocka_unit_test(batches_are_counted)};
    return use_emulator() ? cmocka_run_group_tests_name("relu behind batch_norm", tests, NULL, NULL) : 0;
}
