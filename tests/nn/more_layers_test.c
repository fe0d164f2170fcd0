/*
 * more_layers_test.c - layers against PyTorch's: their text, the names and shapes of their state, the state that a call
 * in training leaves, and both modes' results. A row names a case of tests/golden/make_modules.py and makes the layer.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/nn.h>

#define CONV(...)       YK_OPTIONS(yk_conv_module_options, __VA_ARGS__)
#define BATCH_NORM(...) YK_OPTIONS(yk_batch_norm_module_options, __VA_ARGS__)
#define UPSAMPLE(...)   YK_OPTIONS(yk_upsample_options, __VA_ARGS__)
#define GROUP_NORM(...) YK_OPTIONS(yk_group_norm_options, __VA_ARGS__)
#define INSTANCE(...)   YK_OPTIONS(yk_instance_norm_module_options, __VA_ARGS__)
#define POOL(...)       YK_OPTIONS(yk_pool_options, __VA_ARGS__)
#define CONV2D(...)     YK_OPTIONS(yk_conv2d_module_options, __VA_ARGS__)

#define UNFOLD_PAIRS                                                                                                   \
    YK_OPTIONS(yk_fold_options, .kernel = {1, 2}, .dilation = {1, 2}, .padding = {0, 1}, .stride = {1, 3})

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(conv1d, yk_conv1d_create(2, 3, 3, NULL))                                                                       \
    ROW(conv1d_all,                                                                                                    \
        yk_conv1d_create(4, 6, 3, CONV(.stride = 2, .padding = 2, .dilation = 2, .groups = 2, .bias = false,           \
                                       .padding_mode = YK_PAD_CIRCULAR)))                                              \
    ROW(conv1d_same,                                                                                                   \
        yk_conv1d_create(1, 2, 2, CONV(.padding = YK_PADDING_SAME, .padding_mode = YK_PAD_REPLICATE)))                 \
    ROW(conv2d_reflect,                                                                                                \
        yk_conv2d_create(1, 2, 0, CONV2D(.kernel_size = {3, 2}, .padding_size = {2, 1},                                \
                                         .padding_mode = YK_PAD_REFLECT)))                                             \
    ROW(conv2d_same, yk_conv2d_create(1, 1, 2, CONV2D(.padding = YK_PADDING_SAME)))                                    \
    ROW(conv3d,                                                                                                        \
        yk_conv3d_create(1, 2, 0, CONV(.kernel_size = {2, 1, 2}, .stride_size = {1, 2, 1}, .padding = 1)))             \
    ROW(conv_transpose1d, yk_conv_transpose1d_create(2, 1, 2, NULL))                                                   \
    ROW(conv_transpose2d,                                                                                              \
        yk_conv_transpose2d_create(2, 4, 0, CONV(.kernel_size = {3, 2}, .stride = 2, .padding_size = {1, 0},           \
                                                 .output_padding_size = {1, 0}, .groups = 2,                           \
                                                 .dilation_size = {1, 2})))                                            \
    ROW(conv_transpose3d, yk_conv_transpose3d_create(1, 2, 2, CONV(.stride = 2, .bias = false)))                       \
    ROW(max_pool1d, yk_max_pool1d_create(3, 2, POOL(.padding = {1}, .ceil_mode = true)))                               \
    ROW(max_pool3d, yk_max_pool3d_create(0, 0, POOL(.kernel = {1, 2, 3}, .dilation = {1, 1, 2})))                      \
    ROW(avg_pool1d, yk_avg_pool1d_create(2, 0, NULL))                                                                  \
    ROW(avg_pool3d,                                                                                                    \
        yk_avg_pool3d_create(0, 1, POOL(.kernel = {2, 1, 2}, .padding = {1, 0, 0}, .count_include_pad = false)))       \
    ROW(adaptive_avg_pool1d, yk_adaptive_avg_pool1d_create(3))                                                         \
    ROW(adaptive_avg_pool2d, yk_adaptive_avg_pool2d_create(2, YK_NOT_GIVEN))                                           \
    ROW(adaptive_avg_pool3d, yk_adaptive_avg_pool3d_create(1, 2, 3))                                                   \
    ROW(adaptive_max_pool1d, yk_adaptive_max_pool1d_create(3))                                                         \
    ROW(adaptive_max_pool2d, yk_adaptive_max_pool2d_create(2, YK_NOT_GIVEN))                                           \
    ROW(adaptive_max_pool3d, yk_adaptive_max_pool3d_create(2, 2, 2))                                                   \
    ROW(batch_norm1d, yk_batch_norm1d_create(3, NULL))                                                                 \
    ROW(batch_norm1d_lines, yk_batch_norm1d_create(2, BATCH_NORM(.eps = 0.01, .momentum = 0.3, .bias = false)))        \
    ROW(batch_norm1d_untracked, yk_batch_norm1d_create(2, BATCH_NORM(.affine = false, .track_running_stats = false)))  \
    ROW(batch_norm2d, yk_batch_norm2d_create(2, YK_OPTIONS(yk_batch_norm2d_options, .bias = false)))                   \
    ROW(batch_norm3d, yk_batch_norm3d_create(2, NULL))                                                                 \
    ROW(group_norm, yk_group_norm_create(2, 4, NULL))                                                                  \
    ROW(group_norm_plain, yk_group_norm_create(3, 3, GROUP_NORM(.eps = 0.1, .affine = false)))                         \
    ROW(group_norm_weight, yk_group_norm_create(1, 4, GROUP_NORM(.bias = false)))                                      \
    ROW(instance_norm1d, yk_instance_norm1d_create(3, NULL))                                                           \
    ROW(instance_norm1d_tracked, yk_instance_norm1d_create(2, INSTANCE(.affine = true, .track_running_stats = true)))  \
    ROW(instance_norm2d, yk_instance_norm2d_create(2, INSTANCE(.affine = true, .bias = false)))                        \
    ROW(instance_norm3d, yk_instance_norm3d_create(2, INSTANCE(.momentum = 0.4, .track_running_stats = true)))         \
    ROW(rms_norm, yk_rms_norm_create(YK_SHAPE(4), NULL))                                                               \
    ROW(rms_norm_pair,                                                                                                 \
        yk_rms_norm_create(YK_SHAPE(2, 3), YK_OPTIONS(yk_rms_norm_options, .eps = 1e-6, .elementwise_affine = false))) \
    ROW(local_response_norm, yk_local_response_norm_create(2, 1e-4, 0.75, 2.5))                                        \
    ROW(upsample, yk_upsample_create(UPSAMPLE(.scale_factor = {2, 2})))                                                \
    ROW(upsample_bilinear,                                                                                             \
        yk_upsample_create(UPSAMPLE(.size = {3, 4}, .mode = YK_INTERPOLATE_BILINEAR, .align_corners = true)))          \
    ROW(upsample_factors, yk_upsample_create(UPSAMPLE(.scale_factor = {2, 1.5}, .mode = YK_INTERPOLATE_BICUBIC)))      \
    ROW(pixel_shuffle, yk_pixel_shuffle_create(2))                                                                     \
    ROW(unfold, yk_unfold_create(YK_OPTIONS(yk_fold_options, .kernel = {2, 2})))                                     \
    ROW(unfold_pairs, yk_unfold_create(UNFOLD_PAIRS))                                                                  \
    ROW(fold, yk_fold_create(3, 3, YK_OPTIONS(yk_fold_options, .kernel = {2, 2}, .stride = {1, 1})))                 \
    ROW(fold_pairs, yk_fold_create(2, 3, UNFOLD_PAIRS))                                                                \
    ROW(pixel_unshuffle, yk_pixel_unshuffle_create(2))
/* clang-format on */

#define MAKE(name, ...)                                                                                                \
    static yk_module *make_##name(void)                                                                                \
    {                                                                                                                  \
        return __VA_ARGS__;                                                                                            \
    }
ROWS(MAKE)
#define ENTRY(name, ...) {#name, make_##name},
static const struct {
    const char *name;
    yk_module *(*make)(void);
} rows[] = {ROWS(ENTRY)};
enum { ROW_COUNT = sizeof(rows) / sizeof(*rows) };

typedef struct golden_tensor {
    yk_dtype dtype;
    int ndim;
    int64_t shape[5];
    int at; /* the first of its numbers */
} golden_tensor;

static golden_tensor read_tensor(const char **row)
{
    golden_tensor t = {.dtype = golden_dtype(row), .ndim = golden_integer(row)};
    assert_in_range(t.ndim, 0, 5);
    for (int d = 0; d < t.ndim; d++)
        t.shape[d] = golden_integer(row);
    t.at = golden_integer(row);
    return t;
}

static const double *golden_values;

static void expect_tensor(const char *layer, const char *of, yk_tensor *x, const golden_tensor *t, int at)
{
    char text[200];
    if (!x)
        fail_msg("%s: %s: %s", layer, of, yk_last_error() ? yk_last_error()->message : "not there");
    if (yk_ndim(x) != t->ndim || memcmp(yk_sizes(x), t->shape, sizeof(int64_t) * (size_t)t->ndim) ||
        yk_tensor_dtype(x) != t->dtype)
        fail_msg("%s: %s is %s of %s", layer, of, yk_shape_format(x, text, sizeof(text)),
                 yk_dtype_name(yk_tensor_dtype(x)));
    size_t count = (size_t)yk_numel(x);
    double *got = calloc(count + 1, sizeof(double));
    assert_non_null(got);
    expect_ok(yk_tensor_read(yk_cast(yk_detach(x), YK_F64), got, count * sizeof(double)));
    for (size_t i = 0; i < count; i++) {
        double expected = golden_values[at + (int)i];
        if (!(fabs(got[i] - expected) <= 1e-12 * (1 + fabs(expected))))
            fail_msg("%s: element %d of %s is %.17g, expected %.17g", layer, (int)i, of, got[i], expected);
    }
    free(got);
}

/* The row of the layer in a section, behind its name. */
static const char *row_of(const char *section, const char *name)
{
    size_t count;
    const char *const *lines = golden_rows("modules", section, &count);
    for (size_t i = 0; i < count; i++) {
        char word[40];
        const char *row = lines[i];
        if (strcmp(golden_word(&row, word, sizeof(word)), name) == 0)
            return row;
    }
    fail_msg("row %s has no case in the golden file", name);
    return NULL;
}

static void expect_layer(const char *name, yk_module *m)
{
    enum { STATE = 12 };
    golden_tensor state[STATE];
    char names[STATE][40];
    int after[STATE];
    const char *row = row_of("cases", name);
    int count = golden_integer(&row);
    if (!m)
        fail_msg("%s: %s", name, yk_last_error() ? yk_last_error()->message : "NULL");
    m = yk_module_to_dtype(m, YK_F64);
    yk_state_dict *dict = yk_module_state_dict(m);
    assert_in_range(count, 0, STATE);
    assert_int_equal(yk_state_dict_count(dict), count);
    for (int i = 0; i < count; i++) {
        golden_word(&row, names[i], sizeof(names[i]));
        state[i] = read_tensor(&row);
        after[i] = golden_integer(&row);
        assert_string_equal(yk_state_dict_name(dict, i), names[i]);
        yk_tensor *values = yk_from_data(golden_values + state[i].at, state[i].ndim, state[i].shape,
                                         YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
        bool before = yk_no_grad_begin();
        assert_non_null(yk_copy_(yk_state_dict_at(dict, i), values));
        yk_no_grad_end(before);
        expect_tensor(name, names[i], yk_state_dict_at(dict, i), &state[i], state[i].at);
    }
    golden_tensor input = read_tensor(&row), trained = read_tensor(&row), evaluated = read_tensor(&row);
    yk_tensor *x =
        yk_from_data(golden_values + input.at, input.ndim, input.shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64));
    expect_tensor(name, "the result in training", yk_forward(m, x), &trained, trained.at);
    for (int i = 0; i < count; i++)
        expect_tensor(name, names[i], yk_state_dict_at(dict, i), &state[i], after[i]);
    yk_module_eval(m);
    expect_tensor(name, "the result in evaluation", yk_forward(m, x), &evaluated, evaluated.at);
}

static void test_layers(void **state)
{
    (void)state;
    golden_values = golden_numbers("modules", "values", NULL);
    for (int r = 0; r < ROW_COUNT; r++) {
        yk_scope scope = yk_scope_begin();
        expect_layer(rows[r].name, rows[r].make());
        yk_scope_end(scope);
    }
}

static void test_texts(void **state)
{
    (void)state;
    size_t count;
    golden_rows("modules", "texts", &count);
    assert_int_equal(count, ROW_COUNT);
    for (int r = 0; r < ROW_COUNT; r++) {
        char text[1000] = "";
        yk_scope scope = yk_scope_begin();
        FILE *to = fmemopen(text, sizeof(text), "w");
        assert_non_null(to);
        expect_ok(yk_module_print(to, rows[r].make()));
        fclose(to);
        size_t length = strlen(text);
        assert_true(length > 0);
        text[length - 1] = 0; /* the last line's end */
        for (char *at = text; (at = strchr(at, '\n')); at++)
            *at = '|';
        assert_string_equal(text, row_of("texts", rows[r].name));
        yk_scope_end(scope);
    }
}

static void test_initial_values(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    /* uniform in +-1 / sqrt(fan in), of a transposed one of its second size times the kernel, as PyTorch has it */
    const struct {
        yk_module *m;
        double bound;
    } layers[] = {{yk_conv1d_create(8, 64, 4, NULL), 1 / sqrt(8 * 4)},
                  {yk_conv3d_create(4, 32, 2, CONV(.groups = 2)), 1 / sqrt(2 * 8)},
                  {yk_conv_transpose2d_create(64, 8, 3, CONV(.groups = 4)), 1 / sqrt(2 * 9)}};
    for (size_t i = 0; i < sizeof(layers) / sizeof(*layers); i++) {
        assert_non_null(layers[i].m);
        for (int p = 0; p < 2; p++) {
            yk_tensor *w = yk_detach(yk_module_get(layers[i].m, p ? "bias" : "weight"));
            double most = yk_item(yk_max(yk_abs(w))), bound = layers[i].bound;
            assert_true(most <= bound * 1.000001 && most > bound * (p ? 0.5 : 0.95));
            assert_true(fabs(yk_item(yk_mean(w))) < bound / 2);
        }
    }
    yk_scope_end(scope);
}

static void test_errors(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    assert_null(yk_conv1d_create(3, 4, 3, CONV(.groups = 2)));
    expect_error(YK_ERR_ARGUMENT, "conv1d_create: in_channels 3, out_channels 4, groups 2: all must be at least 1");
    assert_null(yk_conv3d_create(3, 4, 0, NULL));
    expect_error(YK_ERR_ARGUMENT, "conv3d_create: kernel 0, stride 1, padding 0, dilation 1: only padding may be 0");
    assert_null(yk_conv1d_create(1, 1, 3, CONV(.padding = YK_PADDING_SAME, .stride = 2)));
    expect_error(YK_ERR_ARGUMENT, "conv1d_create: padding \"same\" is for convolutions of stride 1");
    assert_null(yk_conv2d_create(1, 1, 3, CONV2D(.padding = YK_PADDING_SAME, .stride = 2)));
    expect_error(YK_ERR_ARGUMENT, "conv2d_create: padding \"same\" is for convolutions of stride 1");
    assert_null(yk_conv_transpose2d_create(1, 1, 3, CONV(.padding_mode = YK_PAD_REFLECT)));
    expect_error(YK_ERR_ARGUMENT, "conv_transpose2d_create: padding_mode of a transposed convolution is zeros alone");
    assert_null(yk_conv_transpose2d_create(1, 1, 3, CONV(.output_padding = 1)));
    expect_error(YK_ERR_ARGUMENT, "conv_transpose2d_create: output_padding 1, expected at least 0 and below the");
    assert_null(yk_conv1d_create(1, 1, 3, CONV(.output_padding = 1)));
    expect_error(YK_ERR_ARGUMENT, "conv1d_create: output_padding 1 is for transposed convolutions");
    assert_null(yk_conv1d_create(INT64_MAX / 2, 4, 3, NULL));
    expect_error(YK_ERR_SHAPE, "conv1d_create: shape (4, 4611686018427387903, 3) has more elements");
    assert_null(yk_max_pool3d_create(2, 0, POOL(.padding = {2, 0, 0})));
    expect_error(YK_ERR_ARGUMENT, "max_pool3d_create: kernel 2, stride 2, padding 2, dilation 1: kernel, stride and");
    assert_null(yk_avg_pool1d_create(2, 0, POOL(.dilation = {2})));
    expect_error(YK_ERR_ARGUMENT, "avg_pool1d_create: kernel 2, stride 2, padding 0, dilation 2: ");
    assert_null(yk_adaptive_max_pool2d_create(0, 1));
    expect_error(YK_ERR_ARGUMENT, "adaptive_max_pool2d_create: an output size of 0, expected at least 1");
    assert_null(yk_forward(yk_conv1d_create(2, 2, 3, CONV(.padding = 9, .padding_mode = YK_PAD_REFLECT)),
                           yk_ones(YK_SHAPE(2, 4), NULL)));
    expect_error(YK_ERR_SHAPE, "pad: a border of 9 at dimension 1 of (2, 4); in mode reflect it is at most 3");
    assert_null(yk_forward(yk_batch_norm1d_create(3, NULL), yk_ones(YK_SHAPE(2, 4), NULL)));
    expect_error(YK_ERR_SHAPE, "batch_norm1d: input has shape (2, 4), expected (N, 3) or (N, C, L)");
    assert_null(yk_forward(yk_batch_norm3d_create(3, NULL), yk_ones(YK_SHAPE(2, 3), NULL)));
    expect_error(YK_ERR_SHAPE, "batch_norm3d: input has shape (2, 3), expected (N, 3, D, H, W)");
    assert_null(yk_group_norm_create(2, 3, NULL));
    expect_error(YK_ERR_ARGUMENT, "group_norm_create: num_channels 3 do not divide into num_groups 2");
    assert_null(yk_forward(yk_group_norm_create(2, 4, NULL), yk_ones(YK_SHAPE(2, 6, 2), NULL)));
    expect_error(YK_ERR_SHAPE, "group_norm: input has shape (2, 6, 2), expected (N, 4, ...)");
    assert_null(yk_forward(yk_instance_norm2d_create(3, NULL), yk_ones(YK_SHAPE(2, 4, 2), NULL)));
    expect_error(YK_ERR_SHAPE, "instance_norm2d: input has shape (2, 4, 2), expected (N, 3, H, W) or (3, H, W)");
    assert_null(yk_upsample_create(NULL));
    expect_error(YK_ERR_ARGUMENT, "upsample_create: size and scale_factor: expected one of them, above 0");
    assert_null(yk_pixel_shuffle_create(0));
    expect_error(YK_ERR_ARGUMENT, "pixel_shuffle_create: upscale_factor is 0");
    assert_null(yk_rms_norm_create(0, NULL, NULL));
    expect_error(YK_ERR_ARGUMENT, "rms_norm_create: 0 dimensions to normalise; expected 1 to 8");
    assert_null(yk_local_response_norm_create(0, 1e-4, 0.75, 1));
    expect_error(YK_ERR_ARGUMENT, "local_response_norm_create: size is 0");
    yk_scope_end(scope);
}

/* A batch norm of vectors and the ReLU after it run as one operation, as of images. */
static void test_fused_batch_norm(void **state)
{
    (void)state;
    yk_scope scope = yk_scope_begin();
    yk_module *norm = yk_batch_norm1d_create(3, NULL), *net = yk_sequential(norm, yk_relu_create());
    yk_module_eval(net);
    yk_tensor *x = yk_randn(YK_SHAPE(5, 3), NULL), *y = yk_forward(net, x);
    assert_true(yk_item(yk_all(yk_eq(y, yk_relu(yk_forward(norm, x))))) == 1);
    assert_string_equal(yk_grad_fn_name(y), "batch_norm");
    assert_true(yk_item(yk_all(yk_eq(y, yk_batch_norm2d_forward(norm, x, NULL, true)))) == 1);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),           cmocka_unit_test(test_texts),
        cmocka_unit_test(test_initial_values),   cmocka_unit_test(test_errors),
        cmocka_unit_test(test_fused_batch_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
