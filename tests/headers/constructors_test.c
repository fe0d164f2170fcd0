/*
 * constructors_test.c - the rule of the constructors' names (docs/layers.md), for every function of the headers that
 * gives a module: that of a module without children, a layer, ends in _create; that of one with children does not. A
 * function that is not in the table below fails the test.
 */
#include "tests/support/expect.h"

#include <errno.h>
#include <stdio.h>

#include <yoke/yoke.h>

#include "tests/headers/header_entry.h"

static yk_tensor *forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    return x;
}

/* A module by each constructor; a wrapper around a layer. */
static yk_module *make_module(void)
{
    static const yk_module_class cls = {.name = "Own", .forward = forward};
    return yk_module_create(&cls);
}
static yk_module *serve_module(yk_call *call)
{
    (void)call;
    return make_module();
}
/* A module of this process itself, which is a worker for a moment. */
static yk_module *make_remote_module(void)
{
    expect_ok(yk_rpc_register_module("own", serve_module));
    expect_ok(yk_rpc_init("constructors", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
    yk_module *m = yk_remote_module_create("constructors", "own", NULL);
    expect_ok(yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN));
    return m;
}
static yk_module *make_linear(void)
{
    return yk_linear_create(2, 2, NULL);
}
static yk_module *make_conv2d(void)
{
    return yk_conv2d_create(1, 1, 1, NULL);
}
static yk_module *make_conv1d(void)
{
    return yk_conv1d_create(1, 1, 1, NULL);
}
static yk_module *make_conv3d(void)
{
    return yk_conv3d_create(1, 1, 1, NULL);
}
static yk_module *make_conv_transpose1d(void)
{
    return yk_conv_transpose1d_create(1, 1, 1, NULL);
}
static yk_module *make_conv_transpose2d(void)
{
    return yk_conv_transpose2d_create(1, 1, 1, NULL);
}
static yk_module *make_conv_transpose3d(void)
{
    return yk_conv_transpose3d_create(1, 1, 1, NULL);
}
static yk_module *make_batch_norm2d(void)
{
    return yk_batch_norm2d_create(1, NULL);
}
static yk_module *make_batch_norm1d(void)
{
    return yk_batch_norm1d_create(1, NULL);
}
static yk_module *make_batch_norm3d(void)
{
    return yk_batch_norm3d_create(1, NULL);
}
static yk_module *make_group_norm(void)
{
    return yk_group_norm_create(1, 2, NULL);
}
static yk_module *make_instance_norm1d(void)
{
    return yk_instance_norm1d_create(1, NULL);
}
static yk_module *make_instance_norm2d(void)
{
    return yk_instance_norm2d_create(1, NULL);
}
static yk_module *make_instance_norm3d(void)
{
    return yk_instance_norm3d_create(1, NULL);
}
static yk_module *make_rms_norm(void)
{
    return yk_rms_norm_create(YK_SHAPE(2), NULL);
}
static yk_module *make_local_response_norm(void)
{
    return yk_local_response_norm_create(2, 1e-4, 0.75, 1);
}
static yk_module *make_upsample(void)
{
    return yk_upsample_create(YK_OPTIONS(yk_upsample_options, .scale_factor = {2}));
}
static yk_module *make_pixel_shuffle(void)
{
    return yk_pixel_shuffle_create(2);
}
static yk_module *make_pixel_unshuffle(void)
{
    return yk_pixel_unshuffle_create(2);
}
static yk_module *make_unfold(void)
{
    return yk_unfold_create(YK_OPTIONS(yk_fold_options, .kernel = {2, 2}));
}
static yk_module *make_fold(void)
{
    return yk_fold_create(3, 3, YK_OPTIONS(yk_fold_options, .kernel = {2, 2}));
}
#define UNPOOL YK_OPTIONS(yk_max_unpool_options, .kernel = {2, 2, 2})
#define POOL   YK_OPTIONS(yk_pool_options, .kernel = {2, 2, 2})
static yk_module *make_threshold(void)
{
    return yk_threshold_create(0.1, 2);
}
static yk_module *make_hardtanh(void)
{
    return yk_hardtanh_create(-1, 1);
}
static yk_module *make_hardshrink(void)
{
    return yk_hardshrink_create(0.5);
}
static yk_module *make_softshrink(void)
{
    return yk_softshrink_create(0.5);
}
static yk_module *make_celu(void)
{
    return yk_celu_create(1);
}
static yk_module *make_rrelu(void)
{
    return yk_rrelu_create(0.1, 0.3);
}
static yk_module *make_softmin(void)
{
    return yk_softmin_create(1);
}
static yk_module *make_dropout1d(void)
{
    return yk_dropout1d_create(0.5);
}
static yk_module *make_dropout2d(void)
{
    return yk_dropout2d_create(0.5);
}
static yk_module *make_dropout3d(void)
{
    return yk_dropout3d_create(0.5);
}
static yk_module *make_alpha_dropout(void)
{
    return yk_alpha_dropout_create(0.5);
}
static yk_module *make_feature_alpha_dropout(void)
{
    return yk_feature_alpha_dropout_create(0.5);
}
static yk_module *make_channel_shuffle(void)
{
    return yk_channel_shuffle_create(2);
}
static yk_module *make_flatten_dims(void)
{
    return yk_flatten_dims_create(0, 1);
}
static yk_module *make_unflatten(void)
{
    return yk_unflatten_create(1, YK_SHAPE(2, 1));
}
static yk_module *make_pad(void)
{
    return yk_pad_create(1, (int64_t[]){1, 1}, YK_PAD_REFLECT, 0);
}
static yk_module *make_cosine_similarity(void)
{
    return yk_cosine_similarity_create(1, 1e-8);
}
static yk_module *make_pairwise_distance(void)
{
    return yk_pairwise_distance_create(2, 1e-6, false);
}
static yk_module *make_bilinear(void)
{
    return yk_bilinear_create(1, 2, 3, NULL);
}
#define FRACTIONAL YK_OPTIONS(yk_fractional_max_pool_options, .kernel = {2, 2, 2}, .output_size = {2, 2, 2})
static yk_module *make_fractional_max_pool2d(void)
{
    return yk_fractional_max_pool2d_create(FRACTIONAL);
}
static yk_module *make_fractional_max_pool3d(void)
{
    return yk_fractional_max_pool3d_create(FRACTIONAL);
}
static yk_module *make_max_unpool1d(void)
{
    return yk_max_unpool1d_create(UNPOOL);
}
static yk_module *make_max_unpool2d(void)
{
    return yk_max_unpool2d_create(UNPOOL);
}
static yk_module *make_max_unpool3d(void)
{
    return yk_max_unpool3d_create(UNPOOL);
}
static yk_module *make_lp_pool1d(void)
{
    return yk_lp_pool1d_create(2, POOL);
}
static yk_module *make_lp_pool2d(void)
{
    return yk_lp_pool2d_create(2, POOL);
}
static yk_module *make_lp_pool3d(void)
{
    return yk_lp_pool3d_create(2, POOL);
}
static yk_module *make_sync_batch_norm2d(void)
{
    return yk_sync_batch_norm2d_create(1, NULL, NULL);
}
static yk_module *make_layer_norm(void)
{
    return yk_layer_norm_create(YK_SHAPE(2), NULL);
}
static yk_module *make_dropout(void)
{
    return yk_dropout_create(0.5);
}
static yk_module *make_embedding_bag(void)
{
    return yk_embedding_bag_create(2, 2, NULL);
}
static yk_module *make_embedding(void)
{
    return yk_embedding_create(2, 2, NULL);
}
static yk_module *make_lstm_cell(void)
{
    return yk_lstm_cell_create(1, 1, NULL);
}

static yk_module *make_lstm(void)
{
    return yk_lstm_create(1, 1, NULL);
}
static yk_module *make_gru_cell(void)
{
    return yk_gru_cell_create(1, 1, NULL);
}
static yk_module *make_rnn_cell(void)
{
    return yk_rnn_cell_create(1, 1, NULL);
}
static yk_module *make_gru(void)
{
    return yk_gru_create(1, 1, NULL);
}
static yk_module *make_rnn(void)
{
    return yk_rnn_create(1, 1, NULL);
}
static yk_module *make_multihead_attention(void)
{
    return yk_multihead_attention(2, 1, NULL);
}
static yk_module *make_encoder_layer(void)
{
    return yk_transformer_encoder_layer(2, 1, NULL);
}
static yk_module *make_decoder_layer(void)
{
    return yk_transformer_decoder_layer(2, 1, NULL);
}
static yk_module *make_encoder(void)
{
    return yk_transformer_encoder(make_encoder_layer(), 1, NULL);
}
static yk_module *make_decoder(void)
{
    return yk_transformer_decoder(make_decoder_layer(), 1, NULL);
}
static yk_module *make_transformer(void)
{
    return yk_transformer(YK_OPTIONS(yk_transformer_options, .d_model = 2, .nhead = 1));
}
static yk_module *make_max_pool2d(void)
{
    return yk_max_pool2d_create(2, 0, NULL);
}
static yk_module *make_avg_pool2d(void)
{
    return yk_avg_pool2d_create(2, 0, NULL);
}
static yk_module *make_adaptive_avg_pool2d(void)
{
    return yk_adaptive_avg_pool2d_create(1, 1);
}
static yk_module *make_max_pool1d(void)
{
    return yk_max_pool1d_create(2, 0, NULL);
}
static yk_module *make_max_pool3d(void)
{
    return yk_max_pool3d_create(2, 0, NULL);
}
static yk_module *make_avg_pool1d(void)
{
    return yk_avg_pool1d_create(2, 0, NULL);
}
static yk_module *make_avg_pool3d(void)
{
    return yk_avg_pool3d_create(2, 0, NULL);
}
static yk_module *make_adaptive_avg_pool1d(void)
{
    return yk_adaptive_avg_pool1d_create(1);
}
static yk_module *make_adaptive_avg_pool3d(void)
{
    return yk_adaptive_avg_pool3d_create(1, 1, 1);
}
static yk_module *make_adaptive_max_pool1d(void)
{
    return yk_adaptive_max_pool1d_create(1);
}
static yk_module *make_adaptive_max_pool2d(void)
{
    return yk_adaptive_max_pool2d_create(1, 1);
}
static yk_module *make_adaptive_max_pool3d(void)
{
    return yk_adaptive_max_pool3d_create(1, 1, 1);
}
static yk_module *make_module_list(void)
{
    return yk_module_list((yk_module *[]){make_linear()}, 1);
}
static yk_module *make_module_dict(void)
{
    return yk_module_dict((const char *[]){"a"}, (yk_module *[]){make_linear()}, 1);
}
static yk_module *make_leaky_relu(void)
{
    return yk_leaky_relu_create(0.01);
}
static yk_module *make_elu(void)
{
    return yk_elu_create(1);
}
static yk_module *make_softplus(void)
{
    return yk_softplus_create(1, 20);
}
static yk_module *make_prelu(void)
{
    return yk_prelu_create(1, 0.25);
}
static yk_module *make_glu(void)
{
    return yk_glu_create(-1);
}
static yk_module *make_softmax(void)
{
    return yk_softmax_create(1);
}
static yk_module *make_log_softmax(void)
{
    return yk_log_softmax_create(1);
}
static yk_module *make_function(void)
{
    return yk_function_create(yk_square);
}
static yk_module *make_sequential(void)
{
    return yk_sequential(yk_relu_create());
}
static yk_module *make_sequential_list(void)
{
    return yk_sequential_list((yk_module *[]){yk_relu_create()}, 1);
}
static yk_module *make_mlp(void)
{
    return yk_mlp(NULL);
}
static yk_module *make_lenet(void)
{
    return yk_lenet(NULL);
}
/* The good one of tests/support/sample_network.c, beside this program's folder. */
static yk_module *make_loaded(void)
{
    char path[4300];
    snprintf(path, sizeof(path), "%.*s../networks/good.so",
             (int)(program_invocation_short_name - program_invocation_name), program_invocation_name);
    return yk_network_load(path, &(yk_network_input){1, 4, 5, 3});
}

static yk_module *make_resnet18(void)
{
    return yk_resnet18(YK_OPTIONS(yk_resnet_options, .cifar = true));
}
static yk_module *make_gpt2(void)
{
    return yk_gpt2(
        YK_OPTIONS(yk_gpt2_options, .vocab_size = 5, .n_positions = 4, .n_embd = 8, .n_layer = 1, .n_head = 2));
}
static yk_module *make_narrow_resnet(yk_module *(*create)(const yk_resnet_options *))
{
    return create(YK_OPTIONS(yk_resnet_options, .width = 1, .num_classes = 2));
}
static yk_module *make_resnet34(void)
{
    return make_narrow_resnet(yk_resnet34);
}
static yk_module *make_resnet50(void)
{
    return make_narrow_resnet(yk_resnet50);
}
static yk_module *make_resnet101(void)
{
    return make_narrow_resnet(yk_resnet101);
}
static yk_module *make_resnet152(void)
{
    return make_narrow_resnet(yk_resnet152);
}
static yk_module *make_narrow_vgg(yk_module *(*create)(const yk_vgg_options *))
{
    return create(YK_OPTIONS(yk_vgg_options, .width = 1, .classifier_size = 1));
}
static yk_module *make_vgg11(void)
{
    return make_narrow_vgg(yk_vgg11);
}
static yk_module *make_vgg13(void)
{
    return make_narrow_vgg(yk_vgg13);
}
static yk_module *make_vgg16(void)
{
    return make_narrow_vgg(yk_vgg16);
}
static yk_module *make_vgg19(void)
{
    return make_narrow_vgg(yk_vgg19);
}
static yk_module *make_mobilenet_v2(void)
{
    return yk_mobilenet_v2(NULL);
}
static yk_module *make_efficientnet_b0(void)
{
    return yk_efficientnet_b0(NULL);
}
static yk_module *make_vit_b_16(void)
{
    return yk_vit_b_16(YK_OPTIONS(yk_vit_options, .num_layers = 1, .hidden_dim = 12, .mlp_dim = 2));
}
static yk_module *make_averaged_model(void)
{
    return yk_averaged_model(make_linear(), NULL);
}
static yk_module *make_model(void)
{
    return yk_model("lenet", NULL);
}
static yk_module *make_ddp(void)
{
    return yk_ddp(make_linear(), NULL);
}

static yk_module *make_data_parallel(void)
{
    return yk_data_parallel(make_linear(), NULL);
}

static yk_module *make_pipeline(void)
{
    return yk_pipeline((yk_module *[]){make_linear()}, 1, NULL);
}

/* Every function of the headers that gives a module. Without a `make` it is no constructor: it gives a module that it
 * was given, a part of it or a copy. */
static const struct {
    const char *name;
    yk_module *(*make)(void);
} table[] = {
    {"yk_module_create", make_module},
    {"yk_linear_create", make_linear},
    {"yk_conv2d_create", make_conv2d},
    {"yk_conv1d_create", make_conv1d},
    {"yk_conv3d_create", make_conv3d},
    {"yk_conv_transpose1d_create", make_conv_transpose1d},
    {"yk_conv_transpose2d_create", make_conv_transpose2d},
    {"yk_conv_transpose3d_create", make_conv_transpose3d},
    {"yk_batch_norm2d_create", make_batch_norm2d},
    {"yk_batch_norm1d_create", make_batch_norm1d},
    {"yk_upsample_create", make_upsample},
    {"yk_pixel_shuffle_create", make_pixel_shuffle},
    {"yk_pixel_unshuffle_create", make_pixel_unshuffle},
    {"yk_unfold_create", make_unfold},
    {"yk_fold_create", make_fold},
    {"yk_tanhshrink_create", yk_tanhshrink_create},
    {"yk_softsign_create", yk_softsign_create},
    {"yk_softmax2d_create", yk_softmax2d_create},
    {"yk_threshold_create", make_threshold},
    {"yk_hardtanh_create", make_hardtanh},
    {"yk_hardshrink_create", make_hardshrink},
    {"yk_softshrink_create", make_softshrink},
    {"yk_celu_create", make_celu},
    {"yk_rrelu_create", make_rrelu},
    {"yk_softmin_create", make_softmin},
    {"yk_dropout1d_create", make_dropout1d},
    {"yk_dropout2d_create", make_dropout2d},
    {"yk_dropout3d_create", make_dropout3d},
    {"yk_alpha_dropout_create", make_alpha_dropout},
    {"yk_feature_alpha_dropout_create", make_feature_alpha_dropout},
    {"yk_channel_shuffle_create", make_channel_shuffle},
    {"yk_flatten_dims_create", make_flatten_dims},
    {"yk_unflatten_create", make_unflatten},
    {"yk_pad_create", make_pad},
    {"yk_cosine_similarity_create", make_cosine_similarity},
    {"yk_pairwise_distance_create", make_pairwise_distance},
    {"yk_bilinear_create", make_bilinear},
    {"yk_fractional_max_pool2d_create", make_fractional_max_pool2d},
    {"yk_fractional_max_pool3d_create", make_fractional_max_pool3d},
    {"yk_max_unpool1d_create", make_max_unpool1d},
    {"yk_max_unpool2d_create", make_max_unpool2d},
    {"yk_max_unpool3d_create", make_max_unpool3d},
    {"yk_lp_pool1d_create", make_lp_pool1d},
    {"yk_lp_pool2d_create", make_lp_pool2d},
    {"yk_lp_pool3d_create", make_lp_pool3d},
    {"yk_batch_norm3d_create", make_batch_norm3d},
    {"yk_group_norm_create", make_group_norm},
    {"yk_instance_norm1d_create", make_instance_norm1d},
    {"yk_instance_norm2d_create", make_instance_norm2d},
    {"yk_instance_norm3d_create", make_instance_norm3d},
    {"yk_rms_norm_create", make_rms_norm},
    {"yk_local_response_norm_create", make_local_response_norm},
    {"yk_sync_batch_norm2d_create", make_sync_batch_norm2d},
    {"yk_layer_norm_create", make_layer_norm},
    {"yk_dropout_create", make_dropout},
    {"yk_embedding_create", make_embedding},
    {"yk_embedding_bag_create", make_embedding_bag},
    {"yk_lstm_cell_create", make_lstm_cell},
    {"yk_lstm_create", make_lstm},
    {"yk_gru_cell_create", make_gru_cell},
    {"yk_rnn_cell_create", make_rnn_cell},
    {"yk_gru_create", make_gru},
    {"yk_rnn_create", make_rnn},
    {"yk_multihead_attention", make_multihead_attention},
    {"yk_transformer_encoder_layer", make_encoder_layer},
    {"yk_transformer_decoder_layer", make_decoder_layer},
    {"yk_transformer_encoder", make_encoder},
    {"yk_transformer_decoder", make_decoder},
    {"yk_transformer", make_transformer},
    {"yk_silu_create", yk_silu_create},
    {"yk_mish_create", yk_mish_create},
    {"yk_gelu_tanh_create", yk_gelu_tanh_create},
    {"yk_relu6_create", yk_relu6_create},
    {"yk_selu_create", yk_selu_create},
    {"yk_hardswish_create", yk_hardswish_create},
    {"yk_hardsigmoid_create", yk_hardsigmoid_create},
    {"yk_log_sigmoid_create", yk_log_sigmoid_create},
    {"yk_leaky_relu_create", make_leaky_relu},
    {"yk_elu_create", make_elu},
    {"yk_softplus_create", make_softplus},
    {"yk_prelu_create", make_prelu},
    {"yk_glu_create", make_glu},
    {"yk_softmax_create", make_softmax},
    {"yk_log_softmax_create", make_log_softmax},
    {"yk_function_create", make_function},
    {"yk_relu_create", yk_relu_create},
    {"yk_gelu_create", yk_gelu_create},
    {"yk_tanh_create", yk_tanh_create},
    {"yk_sigmoid_create", yk_sigmoid_create},
    {"yk_identity_create", yk_identity_create},
    {"yk_flatten_create", yk_flatten_create},
    {"yk_max_pool2d_create", make_max_pool2d},
    {"yk_avg_pool2d_create", make_avg_pool2d},
    {"yk_adaptive_avg_pool2d_create", make_adaptive_avg_pool2d},
    {"yk_max_pool1d_create", make_max_pool1d},
    {"yk_max_pool3d_create", make_max_pool3d},
    {"yk_avg_pool1d_create", make_avg_pool1d},
    {"yk_avg_pool3d_create", make_avg_pool3d},
    {"yk_adaptive_avg_pool1d_create", make_adaptive_avg_pool1d},
    {"yk_adaptive_avg_pool3d_create", make_adaptive_avg_pool3d},
    {"yk_adaptive_max_pool1d_create", make_adaptive_max_pool1d},
    {"yk_adaptive_max_pool2d_create", make_adaptive_max_pool2d},
    {"yk_adaptive_max_pool3d_create", make_adaptive_max_pool3d},
    {"yk_module_list", make_module_list},
    {"yk_module_dict", make_module_dict},
    {"yk_module_list_append", NULL},
    {"yk_module_list_insert", NULL},
    {"yk_module_list_get", NULL},
    {"yk_sequential_counted", make_sequential},
    {"yk_sequential_list", make_sequential_list},
    {"yk_mlp", make_mlp},
    {"yk_lenet", make_lenet},
    {"yk_resnet18", make_resnet18},
    {"yk_gpt2", make_gpt2},
    {"yk_resnet34", make_resnet34},
    {"yk_resnet50", make_resnet50},
    {"yk_resnet101", make_resnet101},
    {"yk_resnet152", make_resnet152},
    {"yk_vgg11", make_vgg11},
    {"yk_vgg13", make_vgg13},
    {"yk_vgg16", make_vgg16},
    {"yk_vgg19", make_vgg19},
    {"yk_mobilenet_v2", make_mobilenet_v2},
    {"yk_efficientnet_b0", make_efficientnet_b0},
    {"yk_vit_b_16", make_vit_b_16},
    {"yk_averaged_model", make_averaged_model},
    {"yk_model", make_model},
    {"yk_network_load", make_loaded},
    {"yk_remote_module_create", make_remote_module},
    {"yk_ddp", make_ddp},
    {"yk_data_parallel", make_data_parallel},
    {"yk_data_parallel_module", NULL},
    {"yk_pipeline", make_pipeline},
    {"yk_convert_sync_batch_norm", NULL},
    {"yk_ddp_module", NULL},
    {"yk_elastic_model", NULL},
    {"yk_module_add", NULL},
    {"yk_module_check", NULL},
    {"yk_module_child", NULL},
    {"yk_module_copy", NULL},
    {"yk_weight_norm", NULL},
    {"yk_spectral_norm", NULL},
    {"yk_module_get_module", NULL},
    {"yk_module_retain", NULL},
    {"yk_module_to", NULL},
    {"yk_module_to_dtype", NULL},
};
enum { ROWS = sizeof(table) / sizeof(*table), FUNCTIONS = sizeof(module_functions) / sizeof(*module_functions) };

static void names_follow_the_rule(void **state)
{
    (void)state;
    int bad = 0;
    assert_true(FUNCTIONS >= 30);
    yk_scope scope = yk_scope_begin();
    for (int i = 0; i < FUNCTIONS; i++) {
        int row = 0;
        while (row < ROWS && strcmp(table[row].name, module_functions[i].owner) != 0)
            row++;
        if (row == ROWS) {
            print_message("%s gives a module and is not in the table\n", module_functions[i].owner);
            bad++;
            continue;
        }
        if (!table[row].make) { /* a constructor takes no module but what it wraps, which stands first, and no job */
            bad +=
                !strstr(module_functions[i].type, "yk_module *") && !strstr(module_functions[i].type, "yk_elastic *");
            continue;
        }
        yk_module *m = table[row].make();
        expect_ok(m ? YK_OK : YK_ERR_ARGUMENT);
        size_t length = strlen(module_functions[i].owner);
        bool create = length > 7 && strcmp(module_functions[i].owner + length - 7, "_create") == 0;
        if (create != (yk_module_child_count(m) == 0)) {
            print_message("%s makes a module of %d children\n", module_functions[i].owner,
                          (int)yk_module_child_count(m));
            bad++;
        }
    }
    for (int row = 0; row < ROWS; row++) {
        int i = 0;
        while (i < FUNCTIONS && strcmp(table[row].name, module_functions[i].owner) != 0)
            i++;
        if (i == FUNCTIONS) {
            print_message("%s is in the table and not in the headers\n", table[row].name);
            bad++;
        }
    }
    yk_scope_end(scope);
    assert_int_equal(bad, 0);
}

/* yk_X_options go to yk_X, yk_X_create, or to several whose names share X: yk_pool2d_options. */
static void options_are_named_after_what_takes_them(void **state)
{
    (void)state;
    int seen = 0;
    for (int i = 0; i < FUNCTIONS; i++) {
        char stem[64] = "";
        const char *at = strstr(module_functions[i].type, "const yk_"), *end = at ? strstr(at, "_options") : NULL;
        if (!end)
            continue;
        snprintf(stem, sizeof(stem), "%.*s", (int)(end - at - 9), at + 9);
        char *layer = strstr(stem, "_module");
        if (layer)
            *layer = 0;
        if (!strstr(module_functions[i].owner, stem))
            fail_msg("%s takes yk_%s_options", module_functions[i].owner, stem);
        seen++;
    }
    assert_true(seen >= 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_follow_the_rule),
        cmocka_unit_test(options_are_named_after_what_takes_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
