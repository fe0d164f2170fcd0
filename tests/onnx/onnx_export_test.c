/*
 * onnx_export_test.c - networks and layers as ONNX files: the file is written, the module is as it was, and what cannot
 * be exported is refused by name. With YOKE_ONNX_FOLDER it leaves there, for tests/cli/onnx.sh, each file, inputs of
 * batches of 1 and 4, and what the module makes of them.
 */
#include "tests/support/expect.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yoke/yoke.h>

#include "tests/support/test_device.h"

enum { MOST_INPUTS = 6 };

#define expect_failure(call, code, text)                                                                               \
    do {                                                                                                               \
        assert_int_equal(call, code);                                                                                  \
        expect_error(code, text);                                                                                      \
    } while (0)

/* The inputs of a module: sizes, of which -1 is the batch; `kind` f: floating, i: token ids, b: false and true. A case
 * whose name ends in _external has its weights in a second file. */
typedef struct given_input {
    char kind;
    int ndim;
    int64_t shape[5];
} given_input;
typedef struct export_case {
    const char *name;
    yk_module *(*make)(void);
    int n_outputs;
    given_input inputs[MOST_INPUTS];
} export_case;

/* ---- modules ---- */

#define MAKE(name, expression)                                                                                         \
    static yk_module *make_##name(void)                                                                                \
    {                                                                                                                  \
        return expression;                                                                                             \
    }
MAKE(mlp, yk_mlp(YK_OPTIONS(yk_mlp_options, .in_features = 12, .num_classes = 5)))
MAKE(lenet, yk_lenet(NULL))
MAKE(resnet18, yk_resnet18(YK_OPTIONS(yk_resnet_options, .num_classes = 7)))
MAKE(resnet50, yk_resnet50(YK_OPTIONS(yk_resnet_options, .num_classes = 7)))
MAKE(mobilenet_v2, yk_mobilenet_v2(YK_OPTIONS(yk_mobilenet_v2_options, .num_classes = 7)))
MAKE(efficientnet_b0, yk_efficientnet_b0(YK_OPTIONS(yk_efficientnet_options, .num_classes = 7)))
MAKE(vit, yk_vit_b_16(YK_OPTIONS(yk_vit_options, .num_classes = 5, .image_size = 32, .patch_size = 8, .num_layers = 2,
                                 .num_heads = 2, .hidden_dim = 16, .mlp_dim = 32)))
MAKE(gpt2,
     yk_gpt2(YK_OPTIONS(yk_gpt2_options, .vocab_size = 61, .n_positions = 16, .n_embd = 32, .n_layer = 2, .n_head = 4)))
MAKE(conv1d, yk_conv1d_create(4, 6, 3, NULL))
MAKE(conv2d, yk_conv2d_create(4, 6, 3, YK_OPTIONS(yk_conv2d_module_options, .stride = 2, .padding = 1, .groups = 2)))
MAKE(conv3d, yk_conv3d_create(2, 4, 3, NULL))
MAKE(conv_transpose1d, yk_conv_transpose1d_create(3, 4, 3, NULL))
MAKE(conv_transpose2d, yk_conv_transpose2d_create(3, 4, 3, NULL))
MAKE(conv_transpose3d, yk_conv_transpose3d_create(2, 3, 2, NULL))
MAKE(batch_norm1d, yk_batch_norm1d_create(5, NULL))
MAKE(batch_norm2d, yk_batch_norm2d_create(5, NULL))
MAKE(batch_norm3d, yk_batch_norm3d_create(3, NULL))
MAKE(layer_norm, yk_layer_norm_create(YK_SHAPE(3, 4), NULL))
MAKE(group_norm, yk_group_norm_create(2, 6, NULL))
MAKE(instance_norm1d, yk_instance_norm1d_create(4, YK_OPTIONS(yk_instance_norm_module_options, .affine = true)))
MAKE(instance_norm2d, yk_instance_norm2d_create(4, NULL))
MAKE(instance_norm3d, yk_instance_norm3d_create(2, NULL))
MAKE(rms_norm, yk_rms_norm_create(YK_SHAPE(6), NULL))
MAKE(local_response_norm, yk_local_response_norm_create(3, 1e-2, 0.75, 1))
MAKE(max_pool1d, yk_max_pool1d_create(3, 2, NULL))
MAKE(max_pool2d, yk_max_pool2d_create(3, 2, YK_OPTIONS(yk_pool2d_options, .padding = {1, 1}, .ceil_mode = true)))
MAKE(max_pool3d, yk_max_pool3d_create(2, 0, NULL))
MAKE(avg_pool1d, yk_avg_pool1d_create(3, 2, NULL))
MAKE(avg_pool2d, yk_avg_pool2d_create(3, 2, YK_OPTIONS(yk_pool2d_options, .padding = {1, 1})))
MAKE(avg_pool2d_ceil, yk_avg_pool2d_create(3, 2, YK_OPTIONS(yk_pool2d_options, .padding = {1, 1}, .ceil_mode = true)))
MAKE(avg_pool3d, yk_avg_pool3d_create(2, 0, NULL))
MAKE(adaptive_avg_pool1d, yk_adaptive_avg_pool1d_create(3))
MAKE(adaptive_avg_pool2d, yk_adaptive_avg_pool2d_create(3, 2))
MAKE(adaptive_avg_pool3d, yk_adaptive_avg_pool3d_create(2, 3, 2))
MAKE(adaptive_max_pool1d, yk_adaptive_max_pool1d_create(3))
MAKE(adaptive_max_pool2d, yk_adaptive_max_pool2d_create(3, 2))
MAKE(adaptive_max_pool3d, yk_adaptive_max_pool3d_create(2, 3, 2))
#define UPSAMPLE(way, corners, ...)                                                                                    \
    yk_upsample_create(                                                                                                \
        YK_OPTIONS(yk_upsample_options, .scale_factor = {__VA_ARGS__}, .mode = way, .align_corners = corners))
MAKE(upsample_nearest, UPSAMPLE(YK_INTERPOLATE_NEAREST, false, 2, 2, YK_NOT_GIVEN))
MAKE(upsample_linear, UPSAMPLE(YK_INTERPOLATE_LINEAR, false, 2, YK_NOT_GIVEN, YK_NOT_GIVEN))
MAKE(upsample_bilinear, UPSAMPLE(YK_INTERPOLATE_BILINEAR, true, 2, 2, YK_NOT_GIVEN))
MAKE(upsample_bicubic, UPSAMPLE(YK_INTERPOLATE_BICUBIC, false, 2, 3, YK_NOT_GIVEN))
MAKE(upsample_trilinear, UPSAMPLE(YK_INTERPOLATE_TRILINEAR, false, 2, 2, 2))
MAKE(pixel_shuffle, yk_pixel_shuffle_create(2))
MAKE(pixel_unshuffle, yk_pixel_unshuffle_create(2))
MAKE(embedding, yk_embedding_create(61, 6, NULL))
MAKE(linear, yk_linear_create(6, 4, NULL))
MAKE(flatten, yk_flatten_create())
MAKE(dropout, yk_dropout_create(0.5))
MAKE(lstm,
     yk_lstm_create(4, 5,
                    YK_OPTIONS(yk_lstm_module_options, .num_layers = 2, .batch_first = true, .bidirectional = true)))
MAKE(gru, yk_gru_create(4, 5,
                        YK_OPTIONS(yk_gru_module_options, .num_layers = 2, .batch_first = true, .bidirectional = true)))
MAKE(rnn, yk_rnn_create(4, 5, YK_OPTIONS(yk_rnn_module_options, .num_layers = 2, .batch_first = true)))
MAKE(lstm_cell, yk_lstm_cell_create(4, 5, NULL))
MAKE(gru_cell, yk_gru_cell_create(4, 5, NULL))
MAKE(rnn_cell, yk_rnn_cell_create(4, 5, NULL))
MAKE(attention, yk_multihead_attention(8, 2, YK_OPTIONS(yk_multihead_attention_options, .batch_first = true)))
MAKE(attention_causal,
     yk_multihead_attention(8, 2, YK_OPTIONS(yk_multihead_attention_options, .batch_first = true, .is_causal = true)))
static yk_module *encoder_layer(void)
{
    return yk_transformer_encoder_layer(
        8, 2, YK_OPTIONS(yk_transformer_encoder_layer_options, .dim_feedforward = 16, .batch_first = true));
}
static yk_module *decoder_layer(void)
{
    return yk_transformer_decoder_layer(
        8, 2, YK_OPTIONS(yk_transformer_decoder_layer_options, .dim_feedforward = 16, .batch_first = true));
}
MAKE(encoder, yk_transformer_encoder(encoder_layer(), 2, NULL))
MAKE(decoder, yk_transformer_decoder(decoder_layer(), 2, NULL))
MAKE(transformer, yk_transformer(YK_OPTIONS(yk_transformer_options, .d_model = 8, .nhead = 2, .num_encoder_layers = 1,
                                            .num_decoder_layers = 1, .dim_feedforward = 16, .batch_first = true)))
/* Each function of one tensor in turn, of which the results are added up. */
static yk_tensor *all_activations(yk_tensor *x)
{
    yk_tensor *(*const functions[])(yk_tensor *) = {
        yk_relu,      yk_gelu,        yk_gelu_tanh,   yk_tanh, yk_sigmoid, yk_silu, yk_mish, yk_relu6, yk_selu,
        yk_hardswish, yk_hardsigmoid, yk_log_sigmoid, yk_exp,  yk_sin,     yk_cos,  yk_erf,  yk_abs,   yk_neg,
        yk_floor,     yk_ceil,        yk_square,      yk_sign, yk_atan,    yk_sinh, yk_cosh, yk_asinh};
    yk_tensor *sum = yk_leaky_relu(x, 0.1);
    sum = yk_add(sum, yk_elu(x, 0.7));
    sum = yk_add(sum, yk_softplus(x, 2, 20));
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
        sum = yk_add(sum, yk_mul_scalar(functions[i](x), 1.0 / (double)(i + 1)));
    yk_tensor *positive = yk_add_scalar(yk_square(x), 0.5);
    sum = yk_add(sum, yk_add(yk_sqrt(positive), yk_rsqrt(positive)));
    sum = yk_add(sum, yk_add(yk_log(positive), yk_log1p(positive)));
    sum = yk_add(sum, yk_add(yk_log2(positive), yk_log10(positive)));
    yk_tensor *inner = yk_mul_scalar(yk_tanh(x), 0.9);
    sum = yk_add(sum, yk_add(yk_add(yk_asin(inner), yk_acos(inner)), yk_add(yk_tan(inner), yk_atanh(inner))));
    sum = yk_add(sum, yk_acosh(yk_add_scalar(positive, 1)));
    return yk_add(sum, yk_add(yk_reciprocal(positive), yk_expm1(yk_clamp(x, -0.5, 0.5))));
}
static yk_tensor *all_shapes(yk_tensor *x) /* (N,4,6) */
{
    yk_tensor *parts[4], *mean = yk_mean_dims(x, (int[]){2}, 1, true), *found = NULL;
    if (yk_chunk(x, 2, 1, parts, 4, NULL))
        return NULL;
    yk_tensor *joined = yk_cat((yk_tensor *[]){parts[1], parts[0]}, 2, 1);
    yk_tensor *centred = yk_div(yk_sub(joined, mean), yk_add_scalar(yk_var_dims(x, (int[]){1, 2}, 2, 1, true), 1));
    yk_tensor *turned = yk_transpose(yk_flip(centred, (int[]){1}, 1), 1, 2);
    yk_tensor *cut = yk_slice(turned, 1, 1, 6, 2);
    yk_tensor *picked = yk_select(x, 2, 3), *best = yk_max_dim(x, 2, false, &found);
    yk_tensor *chosen = yk_where(yk_gt(picked, best), picked, yk_maximum(picked, yk_minimum(best, yk_neg(picked))));
    yk_tensor *stacked = yk_stack((yk_tensor *[]){chosen, yk_softmax(picked, 1), yk_cumsum(picked, 1)}, 3, 1);
    yk_tensor *norm = yk_add(yk_norm(x, 2, (int[]){2}, 1, false), yk_select(yk_sort(x, 2, true, NULL), 2, 1));
    return yk_add(yk_add(cut, stacked), yk_unsqueeze(yk_pow_scalar(yk_abs(norm), 1.5), 1));
}
static yk_tensor *all_windows(yk_tensor *x) /* (N,2,6,6) */
{
    yk_tensor *padded = yk_pad(x, (int64_t[]){1, 1, 2, 0}, 4, YK_PAD_REFLECT, 0);
    return yk_add(yk_pad(x, (int64_t[]){1, 1, 0, 2}, 4, YK_PAD_CONSTANT, 0.5),
                  yk_pad(yk_slice(padded, 2, 0, 8, 1), (int64_t[]){-1, 1}, 2, YK_PAD_CIRCULAR, 0));
}
MAKE(activations, yk_function_create(all_activations))
MAKE(shapes, yk_function_create(all_shapes))
MAKE(windows, yk_function_create(all_windows))
MAKE(prelu, yk_prelu_create(3, 0.25))
MAKE(glu, yk_glu_create(-1))
MAKE(log_softmax, yk_log_softmax_create(-1))
MAKE(unfold, yk_unfold_create(YK_OPTIONS(yk_fold_options, .kernel = {3, 2}, .padding = {1, 0}, .stride = {2, 1})))
MAKE(fold, yk_fold_create(5, 6, YK_OPTIONS(yk_fold_options, .kernel = {3, 2}, .padding = {1, 0}, .stride = {2, 1})))
MAKE(lp_pool, yk_lp_pool2d_create(2, YK_OPTIONS(yk_pool_options, .kernel = {2, 2})))
MAKE(bilinear, yk_bilinear_create(4, 3, 5, NULL))
static yk_tensor *grids(yk_tensor *x) /* (N,2,6,6) */
{
    yk_tensor *grid = yk_tanh(yk_permute(x, (int[]){0, 2, 3, 1})), *sum = NULL;
    for (int mode = 0; mode < 3; mode++) {
        yk_tensor *part = yk_grid_sample(x, grid,
                                         YK_OPTIONS(yk_grid_sample_options, .mode = (yk_grid_mode)mode,
                                                    .padding_mode = (yk_grid_padding)mode, .align_corners = mode == 1));
        sum = sum ? yk_add(sum, part) : part;
    }
    return sum;
}
MAKE(grid_sample, yk_function_create(grids))

#define ONE(label, kind, ...)                                                                                          \
    {                                                                                                                  \
#label, make_##label, 1,                                                                                       \
        {                                                                                                              \
            {                                                                                                          \
                kind, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                                       \
                {                                                                                                      \
                    __VA_ARGS__                                                                                        \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
static const export_case cases[] = {
    ONE(mlp, 'f', -1, 12),
    ONE(lenet, 'f', -1, 1, 28, 28),
    ONE(resnet18, 'f', -1, 3, 33, 32),
    ONE(resnet50, 'f', -1, 3, 32, 32),
    ONE(mobilenet_v2, 'f', -1, 3, 32, 32),
    ONE(efficientnet_b0, 'f', -1, 3, 32, 32),
    ONE(vit, 'f', -1, 3, 32, 32),
    ONE(gpt2, 'i', -1, 9),
    {"gpt2_external", make_gpt2, 1, {{'i', 2, {-1, 9}}}},
    ONE(conv1d, 'f', -1, 4, 9),
    ONE(conv2d, 'f', -1, 4, 9, 8),
    ONE(conv3d, 'f', -1, 2, 5, 6, 7),
    ONE(conv_transpose1d, 'f', -1, 3, 5),
    ONE(conv_transpose2d, 'f', -1, 3, 5, 4),
    ONE(conv_transpose3d, 'f', -1, 2, 3, 4, 3),
    ONE(batch_norm1d, 'f', -1, 5),
    ONE(batch_norm2d, 'f', -1, 5, 3, 2),
    ONE(batch_norm3d, 'f', -1, 3, 2, 3, 2),
    ONE(layer_norm, 'f', -1, 3, 4),
    ONE(group_norm, 'f', -1, 6, 3, 2),
    ONE(instance_norm1d, 'f', -1, 4, 7),
    ONE(instance_norm2d, 'f', -1, 4, 3, 5),
    ONE(instance_norm3d, 'f', -1, 2, 3, 2, 2),
    ONE(rms_norm, 'f', -1, 3, 6),
    ONE(local_response_norm, 'f', -1, 5, 3),
    ONE(max_pool1d, 'f', -1, 3, 8),
    ONE(max_pool2d, 'f', -1, 3, 8, 7),
    ONE(max_pool3d, 'f', -1, 2, 4, 5, 6),
    ONE(avg_pool1d, 'f', -1, 3, 8),
    ONE(avg_pool2d, 'f', -1, 3, 8, 7),
    ONE(avg_pool2d_ceil, 'f', -1, 3, 8, 7),
    ONE(avg_pool3d, 'f', -1, 2, 4, 5, 6),
    ONE(adaptive_avg_pool1d, 'f', -1, 2, 7),
    ONE(adaptive_avg_pool2d, 'f', -1, 2, 7, 5),
    ONE(adaptive_avg_pool3d, 'f', -1, 2, 4, 7, 5),
    ONE(adaptive_max_pool1d, 'f', -1, 2, 7),
    ONE(adaptive_max_pool2d, 'f', -1, 2, 7, 5),
    ONE(adaptive_max_pool3d, 'f', -1, 2, 4, 7, 5),
    ONE(upsample_nearest, 'f', -1, 2, 3, 4),
    ONE(upsample_linear, 'f', -1, 2, 5),
    ONE(upsample_bilinear, 'f', -1, 2, 3, 4),
    ONE(upsample_bicubic, 'f', -1, 2, 3, 4),
    ONE(upsample_trilinear, 'f', -1, 2, 3, 2, 4),
    ONE(pixel_shuffle, 'f', -1, 8, 3, 2),
    ONE(pixel_unshuffle, 'f', -1, 2, 4, 6),
    ONE(embedding, 'i', -1, 5),
    ONE(linear, 'f', -1, 3, 6),
    ONE(flatten, 'f', -1, 3, 6),
    ONE(unfold, 'f', -1, 2, 5, 6),
    ONE(fold, 'f', -1, 12, 15),
    ONE(lp_pool, 'f', -1, 2, 5, 6),
    ONE(grid_sample, 'f', -1, 2, 6, 6),
    ONE(dropout, 'f', -1, 3),
    ONE(activations, 'f', -1, 40),
    ONE(shapes, 'f', -1, 4, 6),
    ONE(windows, 'f', -1, 2, 6, 6),
    ONE(prelu, 'f', -1, 3, 4),
    ONE(glu, 'f', -1, 6),
    ONE(log_softmax, 'f', -1, 6),
    ONE(encoder, 'f', -1, 5, 8),
    {"bilinear", make_bilinear, 1, {{'f', 2, {-1, 4}}, {'f', 2, {-1, 3}}}},
    {"lstm", make_lstm, 3, {{'f', 3, {-1, 6, 4}}}},
    {"gru", make_gru, 2, {{'f', 3, {-1, 6, 4}}}},
    {"rnn", make_rnn, 2, {{'f', 3, {-1, 6, 4}}}},
    {"lstm_states", make_lstm, 3, {{'f', 3, {-1, 6, 4}}, {'f', 3, {4, -1, 5}}, {'f', 3, {4, -1, 5}}}},
    {"lstm_cell", make_lstm_cell, 2, {{'f', 2, {-1, 4}}, {'f', 2, {-1, 5}}, {'f', 2, {-1, 5}}}},
    {"gru_cell", make_gru_cell, 1, {{'f', 2, {-1, 4}}, {'f', 2, {-1, 5}}}},
    {"rnn_cell", make_rnn_cell, 1, {{'f', 2, {-1, 4}}}},
    {"attention", make_attention, 1, {{'f', 3, {-1, 5, 8}}, {'f', 3, {-1, 6, 8}}, {'f', 3, {-1, 6, 8}}}},
    {"attention_weights", make_attention, 2, {{'f', 3, {-1, 5, 8}}}},
    {"attention_masked",
     make_attention,
     1,
     {{'f', 3, {-1, 5, 8}}, {'f', 3, {-1, 6, 8}}, {'f', 3, {-1, 6, 8}}, {'b', 2, {-1, 6}}}},
    {"attention_causal", make_attention_causal, 1, {{'f', 3, {-1, 5, 8}}}},
    {"decoder", make_decoder, 1, {{'f', 3, {-1, 5, 8}}, {'f', 3, {-1, 6, 8}}}},
    {"transformer", make_transformer, 1, {{'f', 3, {-1, 5, 8}}, {'f', 3, {-1, 6, 8}}}},
};

/* ---- inputs and files ---- */

static int inputs_make(const export_case *c, int64_t batch, yk_tensor **inputs, int *batch_dims)
{
    int count = 0;
    for (; count < MOST_INPUTS && c->inputs[count].kind; count++) {
        const given_input *in = &c->inputs[count];
        int64_t shape[5];
        batch_dims[count] = 0;
        for (int d = 0; d < in->ndim; d++) {
            shape[d] = in->shape[d] < 0 ? batch : in->shape[d];
            batch_dims[count] = in->shape[d] < 0 ? d : batch_dims[count];
        }
        yk_tensor *x = yk_randn(in->ndim, shape, NULL);
        if (in->kind == 'i')
            x = yk_cast(yk_clamp(yk_abs(yk_mul_scalar(x, 20)), 0, 60), YK_I64);
        if (in->kind == 'b') /* a key is there for everybody */
            x = yk_logical_and(yk_gt(x, yk_scalar(0, NULL)), yk_lt(yk_cumsum(yk_ones_like(x), -1), yk_scalar(6, NULL)));
        assert_non_null(x);
        inputs[count] = x;
    }
    return count;
}

static void array_write(const char *folder, const char *name, const char *role, int64_t batch, int i, yk_tensor *x)
{
    char path[600], shape[200] = "", head[256];
    for (int d = 0; d < yk_ndim(x); d++)
        snprintf(shape + strlen(shape), sizeof(shape) - strlen(shape), "%lld,", (long long)yk_size(x, d));
    const char *dtype = yk_tensor_dtype(x) == YK_F32 ? "<f4" : yk_tensor_dtype(x) == YK_I64 ? "<i8" : "|b1";
    int length = snprintf(head, sizeof(head), "{'descr': '%s', 'fortran_order': False, 'shape': (%s)}\n", dtype, shape);
    size_t bytes = (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x));
    void *data = malloc(bytes + 1);
    assert_int_equal(yk_tensor_read(x, data, bytes), YK_OK);
    snprintf(path, sizeof(path), "%s/%s.%s%d.%lld.npy", folder, name, role, i, (long long)batch);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite("\x93NUMPY\x01\x00", 1, 8, file);
    fputc(length & 255, file);
    fputc(length >> 8, file);
    fwrite(head, 1, (size_t)length, file);
    fwrite(data, 1, bytes, file);
    assert_int_equal(fclose(file), 0);
    free(data);
}

/* The results of the module for other batches than those that it was exported by. */
static void results_write(const export_case *c, yk_module *m, const char *folder)
{
    const int64_t batches[2] = {1, 4};
    for (int b = 0; b < 2; b++) {
        yk_tensor *inputs[MOST_INPUTS], *outputs[3];
        int dims[MOST_INPUTS], count = inputs_make(c, batches[b], inputs, dims);
        bool before = yk_no_grad_begin();
        assert_int_equal(yk_forward_list(m, inputs, count, outputs, c->n_outputs), YK_OK);
        yk_no_grad_end(before);
        for (int i = 0; i < count; i++)
            array_write(folder, c->name, "input", batches[b], i, inputs[i]);
        for (int i = 0; i < c->n_outputs; i++)
            array_write(folder, c->name, "output", batches[b], i, outputs[i]);
    }
}

/* Numbers for what a new module has 0 and 1 in: statistics, biases, scales. */
static yk_status perturb(yk_module *m)
{
    yk_state_dict *state = yk_module_state_dict(m);
    for (int64_t i = 0; i < yk_state_dict_count(state); i++) {
        yk_tensor *x = yk_state_dict_at(state, i);
        const char *name = yk_state_dict_name(state, i);
        bool var = strstr(name, "running_var") != NULL;
        if (yk_tensor_dtype(x) != YK_F32 || yk_ndim(x) != 1)
            continue;
        if (!yk_add_(x, yk_randn(YK_SHAPE(yk_numel(x)), NULL), 0.1) || (var && !yk_copy_(x, yk_abs(x))))
            return YK_ERR_INTERNAL;
    }
    return YK_OK;
}

static void test_cases(void **unused)
{
    (void)unused;
    const char *folder = getenv("YOKE_ONNX_FOLDER"), *only = getenv("YOKE_ONNX_ONLY");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const export_case *c = &cases[i];
        char path[600];
        if (only && strcmp(only, c->name) != 0)
            continue;
        yk_scope scope = yk_scope_begin();
        yk_manual_seed(7);
        yk_module *m = c->make();
        yk_tensor *inputs[MOST_INPUTS];
        int dims[MOST_INPUTS], count = inputs_make(c, 2, inputs, dims);
        bool external = strstr(c->name, "_external") != NULL;
        assert_non_null(m);
        bool before = yk_no_grad_begin();
        assert_int_equal(perturb(m), YK_OK);
        yk_no_grad_end(before);
        snprintf(path, sizeof(path), "%s/%s.onnx", folder ? folder : ".", c->name);
        if (yk_onnx_export(
                m, path, inputs, count,
                YK_OPTIONS(yk_onnx_options, .batch_dims = dims, .n_outputs = c->n_outputs, .external_data = external)))
            fail_msg("%s: %s", c->name, yk_last_error()->message);
        assert_true(yk_module_is_training(m));
        if (folder) {
            yk_module_eval(m);
            results_write(c, m, folder);
        } else {
            assert_int_equal(unlink(path), 0);
            strcat(path, ".data");
            assert_int_equal(unlink(path), external ? 0 : -1);
        }
        yk_scope_end(scope);
    }
}

/* ---- what is refused ---- */

static yk_tensor *products(yk_tensor *x)
{
    return yk_cumprod(x, 1);
}
static yk_tensor *positions(yk_tensor *x)
{
    return yk_cast(yk_argmax(x, 1, false), YK_F32);
}
static yk_tensor *by_batch(yk_tensor *x)
{
    return yk_mul_scalar(x, (double)yk_size(x, 0));
}
static yk_tensor *first_row(yk_tensor *x)
{
    return yk_mul_scalar(x, yk_item(yk_sum(x)));
}
static yk_tensor *of_size(yk_tensor *x)
{
    return yk_size(x, 0) == 2 ? yk_relu(x) : yk_exp(x);
}
static yk_tensor *in_part(yk_tensor *x)
{
    yk_tensor *own = yk_clone(x);
    return yk_mul_(yk_select(own, 1, 0), yk_select(x, 1, 0)) ? own : NULL;
}

static void expect_refused(yk_function function, yk_status code, const char *text)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x = yk_randn(YK_SHAPE(2, 3), NULL);
    yk_module *m = yk_function_create(function);
    expect_failure(yk_onnx_export(m, "refused.onnx", &x, 1, NULL), code, text);
    assert_int_not_equal(access("refused.onnx", F_OK), 0);
    yk_scope_end(scope);
}

static void test_refused(void **unused)
{
    (void)unused;
    expect_refused(products, YK_ERR_UNSUPPORTED, "onnx_export: cumprod cannot be exported");
    expect_refused(positions, YK_ERR_UNSUPPORTED, "onnx_export: output 0 does not depend on an input");
    expect_refused(by_batch, YK_ERR_UNSUPPORTED,
                   "onnx_export: a number of mul_scalar (operation 1) depends on the batch");
    expect_refused(of_size, YK_ERR_UNSUPPORTED,
                   "onnx_export: the module does not compute the same for every batch: operation 1 is relu for a "
                   "batch of 2, and exp for one of 3");
    expect_refused(in_part, YK_ERR_UNSUPPORTED,
                   "onnx_export: mul_ changes memory that another tensor shows; use the form that gives a new tensor");
    expect_refused(first_row, YK_ERR_UNSUPPORTED,
                   "onnx_export: a number of mul_scalar (operation 2) depends on the batch");
}

static void test_arguments(void **unused)
{
    (void)unused;
    yk_scope scope = yk_scope_begin();
    yk_module *m = yk_linear_create(3, 2, NULL);
    yk_tensor *x = yk_randn(YK_SHAPE(2, 3), NULL), *none = NULL, *scalar = yk_scalar(1, NULL);
    expect_failure(yk_onnx_export(NULL, "a.onnx", &x, 1, NULL), YK_ERR_ARGUMENT, "onnx_export");
    expect_failure(yk_onnx_export(m, NULL, &x, 1, NULL), YK_ERR_ARGUMENT, "onnx_export: the path is NULL");
    expect_failure(yk_onnx_export(m, "a.onnx", NULL, 1, NULL), YK_ERR_ARGUMENT,
                   "onnx_export: the array of inputs is NULL");
    expect_failure(yk_onnx_export(m, "a.onnx", &x, 0, NULL), YK_ERR_ARGUMENT,
                   "onnx_export: n_inputs is 0, expected 1 to 8");
    expect_failure(yk_onnx_export(m, "a.onnx", &none, 1, NULL), YK_ERR_ARGUMENT,
                   "onnx_export: no input has a batch; at least one example with one is needed");
    expect_failure(yk_onnx_export(m, "a.onnx", &scalar, 1, NULL), YK_ERR_SHAPE,
                   "onnx_export: input 0 has shape (), and its dimension 0 is to be the batch");
    expect_failure(yk_onnx_export(m, "a.onnx", &x, 1, YK_OPTIONS(yk_onnx_options, .n_outputs = 9)), YK_ERR_ARGUMENT,
                   "onnx_export: n_outputs is 9, expected 1 to 8");
    expect_failure(yk_onnx_export(m, "/nowhere/a.onnx", &x, 1, NULL), YK_ERR_IO,
                   "/nowhere/a.onnx: No such file or directory");
    assert_int_equal(mkdir("a.onnx.data", 0700), 0);
    expect_failure(yk_onnx_export(m, "a.onnx", &x, 1, YK_OPTIONS(yk_onnx_options, .external_data = true)), YK_ERR_IO,
                   "a.onnx.data: ");
    assert_int_equal(access("a.onnx", F_OK), -1);
    assert_int_equal(rmdir("a.onnx.data"), 0);
    yk_scope_end(scope);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests_name("onnx_export", tests, NULL, NULL);
}
