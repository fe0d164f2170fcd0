/*
 * options_test.c - every member of every options struct of the public headers, and every floating argument
 * (yoke/base.h): not given it has the documented default; what is given is taken, 0 too; what makes no sense is an
 * error that names the member and the value. Plain braces are an error that names YK_OPTIONS.
 *
 * The tables of members and arguments are made from the headers; one without a row below fails the test. A row's
 * function gives a number that depends on the member: a result computed with it.
 */
#include "tests/comm/ranks.h"

#include <float.h>
#include <sys/stat.h>

#include <yoke/yoke.h>

#include "comm/group.h"
#include "net/store_table.h"
#include "parallel/reducer.h"
#include "rpc/dist_autograd.h"
#include "rpc/rpc_agent.h"
#include "tests/data/tar_files.h"
#include "tests/headers/header_entry.h"
#include "tests/headers/option_measures.h"

typedef enum kind {
    FLAG,    /* bool */
    OBJECT,  /* pointers, and the members that go with one: NULL is the default */
    LITERAL, /* an argument that has no range */
    WHOLE,   /* an integer or enum: 0 is refused, unless it is the default or `zero` is set */
    NUMBER,  /* 0 gives what the smallest number gives */
    ABOVE    /* a number for which zero makes no sense: 0 is refused */
} kind;

typedef struct row {
    const char *owner, *name;
    kind kind;
    double (*measure)(double value); /* NaN with the record set on failure */
    double fallback;                 /* the value when it is not given; NaN: that is an error */
    double other;                    /* a value with another measure; NaN: there is none to try here */
    const char *stated;              /* in the header's comment */
    double refused[4];               /* ended by a 0; NaN is tried for every number */
    const char *word;                /* the word for it in the error; NULL: its name */
    yk_status code;                  /* of the error; 0: YK_ERR_ARGUMENT */
    bool zero;                       /* a whole number that may be 0, though that is not its default */
} row;

#define NONE NAN
static const row rows[] = {
    {"yk_tensor_options", "dtype", .kind = WHOLE, .measure = tensor_dtype, .fallback = YK_F32, .other = YK_F64,
     .refused = {77}, .code = YK_ERR_DTYPE, .stated = "not given: f32"},
    {"yk_tensor_options", "device", .kind = WHOLE, .measure = tensor_device, .fallback = 0, .other = 1, .refused = {77},
     .code = YK_ERR_DEVICE, .stated = "cpu:0"},
    {"yk_tensor_options", "requires_grad", .kind = FLAG},
    {"yk_like_options", "dtype", .kind = WHOLE, .measure = like_dtype, .fallback = YK_I64, .other = YK_F64,
     .refused = {77}, .code = YK_ERR_DTYPE, .stated = "not given: x's", .zero = true},
    {"yk_like_options", "device", .kind = WHOLE, .measure = like_device, .fallback = 1, .other = 0, .refused = {77},
     .code = YK_ERR_DEVICE, .stated = "x's", .zero = true},
    {"yk_like_options", "requires_grad", .kind = FLAG},
    {"yk_print_options", "profile", .kind = OBJECT},
    {"yk_print_options", "precision", .kind = WHOLE, .measure = print_precision, .fallback = 4, .other = 2,
     .refused = {61}, .zero = true},
    {"yk_print_options", "threshold", .kind = WHOLE, .measure = print_threshold, .fallback = 1000, .other = 10,
     .refused = {-1}, .zero = true},
    {"yk_print_options", "edgeitems", .kind = WHOLE, .measure = print_edgeitems, .fallback = 3, .other = 1,
     .refused = {-1}},
    {"yk_print_options", "linewidth", .kind = WHOLE, .measure = print_linewidth, .fallback = 80, .other = 20,
     .refused = {-1}},
    {"yk_print_options", "sci_mode", .kind = WHOLE, .measure = print_sci_mode, .fallback = YK_SCI_AUTO,
     .other = YK_SCI_ON, .refused = {9, -1}},
    {"yk_backward_options", "gradient", .kind = OBJECT},
    {"yk_backward_options", "retain_graph", .kind = FLAG},
    {"yk_backward_options", "create_graph", .kind = FLAG},
    {"yk_backward_options", "inputs", .kind = OBJECT},
    {"yk_backward_options", "n_inputs", .kind = OBJECT},
    {"yk_autograd_grad_options", "retain_graph", .kind = FLAG},
    {"yk_autograd_grad_options", "create_graph", .kind = FLAG},
    {"yk_autograd_grad_options", "allow_unused", .kind = FLAG},
    {"yk_autocast_options", "enabled", .kind = FLAG},
    {"yk_autocast_options", "cache_enabled", .kind = FLAG},
    {"yk_gradcheck_options", "eps", .kind = ABOVE, .measure = gradcheck_eps, .fallback = 1e-6, .other = 1e-4,
     .refused = {-1e-6, INFINITY}},
    {"yk_gradcheck_options", "atol", .kind = NUMBER, .measure = gradcheck_atol, .fallback = 1e-5, .other = 1e-2,
     .refused = {-1e-5, INFINITY}},
    {"yk_gradcheck_options", "rtol", .kind = NUMBER, .measure = gradcheck_rtol, .fallback = 1e-3, .other = 1e-1,
     .refused = {-1e-3, INFINITY}},
    {"yk_conv2d_options", "stride", .kind = WHOLE, .measure = conv2d_stride, .fallback = 1, .other = 2,
     .refused = {-1, INT64_MIN}},
    {"yk_conv2d_options", "padding", .kind = WHOLE, .measure = conv2d_padding, .fallback = 0, .other = 1,
     .refused = {-1}},
    {"yk_conv2d_options", "dilation", .kind = WHOLE, .measure = conv2d_dilation, .fallback = 1, .other = 2,
     .refused = {-2}},
    {"yk_conv2d_options", "groups", .kind = WHOLE, .measure = conv2d_groups, .fallback = 1, .other = 4,
     .refused = {-1}},
    {"yk_conv2d_options", "relu", .kind = FLAG},
    {"yk_conv_options", "stride", .kind = WHOLE, .measure = conv_stride, .fallback = 1, .other = 2, .refused = {-1}},
    {"yk_conv_options", "padding", .kind = WHOLE, .measure = conv_padding, .fallback = 0, .other = 1, .refused = {-1}},
    {"yk_conv_options", "dilation", .kind = WHOLE, .measure = conv_dilation, .fallback = 1, .other = 2,
     .refused = {-2}},
    {"yk_conv_options", "output_padding", .kind = WHOLE, .measure = conv_output_padding, .fallback = 0, .other = 1,
     .refused = {-1, 2}},
    {"yk_conv_options", "groups", .kind = WHOLE, .measure = conv_groups, .fallback = 1, .other = 4, .refused = {-1}},
    {"yk_pool2d_options", "kernel", .kind = WHOLE, .measure = pool2d_kernel, .fallback = NONE, .other = 3,
     .refused = {-1}, .stated = "no default"},
    {"yk_pool2d_options", "stride", .kind = WHOLE, .measure = pool2d_stride, .fallback = 2, .other = 1, .refused = {-1},
     .stated = "not given: kernel"},
    {"yk_pool2d_options", "padding", .kind = WHOLE, .measure = pool2d_padding, .fallback = 0, .other = 1,
     .refused = {-1, 2}},
    {"yk_pool2d_options", "dilation", .kind = WHOLE, .measure = pool2d_dilation, .fallback = 1, .other = 2,
     .refused = {-1}},
    {"yk_pool2d_options", "dilation", .kind = WHOLE, .measure = average_dilation, .fallback = 1, .other = NONE,
     .refused = {2}},
    {"yk_pool2d_options", "ceil_mode", .kind = FLAG},
    {"yk_pool2d_options", "count_include_pad", .kind = FLAG},
    {"yk_pool2d_options", "divisor_override", .kind = WHOLE, .measure = pool2d_divisor, .fallback = 4, .other = 3,
     .refused = {-1}, .stated = "not given: the elements of the window"},
    {"yk_pool2d_options", "divisor_override", .kind = WHOLE, .measure = layer_divisor, .fallback = 4, .other = 3,
     .refused = {-1}, .stated = "not given: the elements of the window"},
    {"yk_pool_options", "kernel", .kind = WHOLE, .measure = pool_kernel, .fallback = NONE, .other = 3, .refused = {-1},
     .stated = "no default"},
    {"yk_pool_options", "stride", .kind = WHOLE, .measure = pool_stride, .fallback = 2, .other = 1, .refused = {-1},
     .stated = "not given: kernel"},
    {"yk_pool_options", "padding", .kind = WHOLE, .measure = pool_padding, .fallback = 0, .other = 1,
     .refused = {-1, 2}},
    {"yk_pool_options", "dilation", .kind = WHOLE, .measure = pool_dilation, .fallback = 1, .other = 2,
     .refused = {-1}},
    {"yk_pool_options", "dilation", .kind = WHOLE, .measure = pool_average_dilation, .fallback = 1, .other = NONE,
     .refused = {2}},
    {"yk_pool_options", "ceil_mode", .kind = FLAG},
    {"yk_pool_options", "count_include_pad", .kind = FLAG},
    {"yk_pool_options", "divisor_override", .kind = WHOLE, .measure = pool_divisor, .fallback = 8, .other = 3,
     .refused = {-1}, .stated = "not given: the elements of the window"},
    {"yk_pool_options", "divisor_override", .kind = WHOLE, .measure = pool_layer_divisor, .fallback = 2, .other = 3,
     .refused = {-1}, .stated = "not given: the elements of the window"},
    {"yk_batch_norm_options", "momentum", .kind = NUMBER, .measure = batch_norm_momentum, .fallback = 0.1, .other = 0.5,
     .refused = {-0.1, 1.5}},
    {"yk_batch_norm_options", "eps", .kind = ABOVE, .measure = batch_norm_eps, .fallback = 1e-5, .other = 1,
     .refused = {-1e-5, INFINITY}},
    {"yk_batch_norm_options", "eps", .kind = NUMBER, .measure = batch_norm_eval_eps, .fallback = 1e-5, .other = 1,
     .refused = {-1e-5, INFINITY}},
    {"yk_batch_norm_options", "training", .kind = FLAG},
    {"yk_batch_norm_options", "relu", .kind = FLAG},
    {"yk_batch_norm_options", "residual", .kind = OBJECT},
    {"yk_attention_options", "attn_mask", .kind = OBJECT},
    {"yk_attention_options", "dropout_p", .kind = NUMBER, .measure = attention_dropout_p, .fallback = 0, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_attention_options", "is_causal", .kind = FLAG},
    {"yk_attention_options", "scale", .kind = NUMBER, .measure = attention_scale, .fallback = 0.5, .other = 1,
     .refused = {INFINITY, -INFINITY}, .stated = "not given: 1 / sqrt(E)"},
    {"yk_attention_options", "enable_gqa", .kind = FLAG},
    {"yk_lstm_options", "num_layers", .kind = WHOLE, .measure = lstm_num_layers, .fallback = 1, .other = 2,
     .refused = {-1, 3}},
    {"yk_lstm_options", "bias", .kind = FLAG},
    {"yk_lstm_options", "batch_first", .kind = FLAG},
    {"yk_lstm_options", "bidirectional", .kind = FLAG},
    {"yk_lstm_options", "dropout", .kind = NUMBER, .measure = lstm_dropout, .fallback = 0, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_lstm_options", "train", .kind = FLAG},
    {"yk_lstm_options", "batch_sizes", .kind = OBJECT},
    {"yk_gru_options", "num_layers", .kind = WHOLE, .measure = gru_num_layers, .fallback = 1, .other = 2,
     .refused = {-1, 3}},
    {"yk_gru_options", "bias", .kind = FLAG},
    {"yk_gru_options", "batch_first", .kind = FLAG},
    {"yk_gru_options", "bidirectional", .kind = FLAG},
    {"yk_gru_options", "dropout", .kind = NUMBER, .measure = gru_dropout, .fallback = 0, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_gru_options", "train", .kind = FLAG},
    {"yk_gru_options", "batch_sizes", .kind = OBJECT},
    {"yk_rnn_options", "num_layers", .kind = WHOLE, .measure = rnn_num_layers, .fallback = 1, .other = 2,
     .refused = {-1, 3}},
    {"yk_rnn_options", "nonlinearity", .kind = WHOLE, .measure = rnn_nonlinearity, .fallback = YK_NONLINEARITY_TANH,
     .other = YK_NONLINEARITY_RELU, .refused = {-1, 2}},
    {"yk_rnn_options", "bias", .kind = FLAG},
    {"yk_rnn_options", "batch_first", .kind = FLAG},
    {"yk_rnn_options", "bidirectional", .kind = FLAG},
    {"yk_rnn_options", "dropout", .kind = NUMBER, .measure = rnn_dropout, .fallback = 0, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_rnn_options", "train", .kind = FLAG},
    {"yk_rnn_options", "batch_sizes", .kind = OBJECT},
    {"yk_pad_packed_sequence", "padding_value", .kind = LITERAL},
    {"yk_pad_sequence", "padding_value", .kind = LITERAL},
    {"yk_cross_entropy_options", "weight", .kind = OBJECT},
    {"yk_cross_entropy_options", "ignore_index", .kind = WHOLE, .measure = cross_entropy_ignore_index, .fallback = -100,
     .other = 1, .zero = true},
    {"yk_cross_entropy_options", "label_smoothing", .kind = NUMBER, .measure = label_smoothing, .fallback = 0,
     .other = 0.5, .refused = {-0.5, 1.5}},
    {"yk_cross_entropy_options", "reduction", .kind = WHOLE, .measure = cross_entropy_reduction, .fallback = 0,
     .other = 1, .refused = {-1, 3}},
    {"yk_binary_cross_entropy_options", "weight", .kind = OBJECT},
    {"yk_binary_cross_entropy_options", "pos_weight", .kind = OBJECT},
    {"yk_binary_cross_entropy_options", "reduction", .kind = WHOLE, .measure = bce_reduction, .fallback = 0, .other = 1,
     .refused = {-1, 3}},
    {"yk_nll_loss_options", "weight", .kind = OBJECT},
    {"yk_nll_loss_options", "ignore_index", .kind = WHOLE, .measure = nll_ignore_index, .fallback = -100, .other = 1,
     .zero = true},
    {"yk_nll_loss_options", "reduction", .kind = WHOLE, .measure = nll_reduction, .fallback = 0, .other = 1,
     .refused = {-1, 3}},
    {"yk_kl_div_options", "reduction", .kind = WHOLE, .measure = kl_div_reduction, .fallback = 0, .other = 1,
     .refused = {-1, 4}},
    {"yk_kl_div_options", "log_target", .kind = FLAG},
    {"yk_gaussian_nll_loss_options", "full", .kind = FLAG},
    {"yk_gaussian_nll_loss_options", "eps", .kind = ABOVE, .measure = gaussian_eps, .fallback = 1e-6, .other = 0.1,
     .refused = {-1e-6, INFINITY}},
    {"yk_gaussian_nll_loss_options", "reduction", .kind = WHOLE, .measure = gaussian_reduction, .fallback = 0,
     .other = 1, .refused = {-1, 3}},
    {"yk_triplet_margin_loss_options", "margin", .kind = NUMBER, .measure = triplet_margin, .fallback = 1, .other = 3,
     .refused = {INFINITY}},
    {"yk_triplet_margin_loss_options", "p", .kind = ABOVE, .measure = triplet_p, .fallback = 2, .other = 3,
     .refused = {-1, INFINITY}},
    {"yk_triplet_margin_loss_options", "eps", .kind = NUMBER, .measure = triplet_eps, .fallback = 1e-6, .other = 0.1,
     .refused = {-1e-6, INFINITY}},
    {"yk_triplet_margin_loss_options", "swap", .kind = FLAG},
    {"yk_triplet_margin_loss_options", "reduction", .kind = WHOLE, .measure = triplet_reduction, .fallback = 0,
     .other = 1, .refused = {-1, 3}},
    {"yk_multi_margin_loss_options", "p", .kind = WHOLE, .measure = multi_margin_p, .fallback = 1, .other = 2,
     .refused = {-1, 3}},
    {"yk_multi_margin_loss_options", "margin", .kind = NUMBER, .measure = multi_margin_margin, .fallback = 1,
     .other = 3, .refused = {INFINITY}},
    {"yk_multi_margin_loss_options", "weight", .kind = OBJECT},
    {"yk_multi_margin_loss_options", "reduction", .kind = WHOLE, .measure = multi_margin_reduction, .fallback = 0,
     .other = 1, .refused = {-1, 3}},
    {"yk_sigmoid_focal_loss_options", "alpha", .kind = NUMBER, .measure = focal_alpha, .fallback = 0.25, .other = 0.5,
     .refused = {1.5}},
    {"yk_sigmoid_focal_loss_options", "gamma", .kind = NUMBER, .measure = focal_gamma, .fallback = 2, .other = 1,
     .refused = {-1, INFINITY}},
    {"yk_sigmoid_focal_loss_options", "reduction", .kind = WHOLE, .measure = focal_reduction,
     .fallback = YK_REDUCE_NONE, .other = 1, .refused = {-1, 3}, .zero = true},
    {"yk_ctc_loss_options", "blank", .kind = WHOLE, .measure = ctc_blank, .fallback = 0, .other = 1,
     .refused = {-1, 3}},
    {"yk_ctc_loss_options", "reduction", .kind = WHOLE, .measure = ctc_reduction, .fallback = 0, .other = 1,
     .refused = {-1, 3}},
    {"yk_ctc_loss_options", "zero_infinity", .kind = FLAG},
    {"yk_load_options", "strict", .kind = FLAG},
    {"yk_linear_options", "bias", .kind = FLAG},
    {"yk_conv2d_module_options", "kernel_size", .kind = WHOLE, .measure = layer_kernel_size, .fallback = 3, .other = 5,
     .refused = {-3}, .word = "kernel", .stated = "not given: kernel"},
    {"yk_conv2d_module_options", "stride", .kind = WHOLE, .measure = layer_stride, .fallback = 1, .other = 2,
     .refused = {-1}},
    {"yk_conv2d_module_options", "padding", .kind = WHOLE, .measure = layer_padding, .fallback = 0, .other = 1,
     .refused = {-1}},
    {"yk_conv2d_module_options", "dilation", .kind = WHOLE, .measure = layer_dilation, .fallback = 1, .other = 2,
     .refused = {-1}},
    {"yk_conv2d_module_options", "stride_size", .kind = WHOLE, .measure = layer_stride_size, .fallback = 2, .other = 1,
     .refused = {-1}, .word = "stride", .stated = "not given: stride"},
    {"yk_conv2d_module_options", "padding_size", .kind = WHOLE, .measure = layer_padding_size, .fallback = 2,
     .other = 1, .refused = {-1}, .word = "padding", .zero = true, .stated = "not given: padding"},
    {"yk_conv2d_module_options", "dilation_size", .kind = WHOLE, .measure = layer_dilation_size, .fallback = 2,
     .other = 1, .refused = {-1}, .word = "dilation", .stated = "not given: dilation"},
    {"yk_conv2d_module_options", "groups", .kind = WHOLE, .measure = layer_groups, .fallback = 1, .other = 2,
     .refused = {-1, 3}},
    {"yk_conv2d_module_options", "bias", .kind = FLAG},
    {"yk_conv2d_module_options", "padding_mode", .kind = WHOLE, .measure = layer_padding_mode, .fallback = 0,
     .other = 1, .refused = {-1, 4}},
    {"yk_conv_module_options", "kernel_size", .kind = WHOLE, .measure = conv_layer_kernel_size, .fallback = 3,
     .other = 5, .refused = {-3}, .word = "kernel", .stated = "not given: kernel"},
    {"yk_conv_module_options", "stride", .kind = WHOLE, .measure = conv_layer_stride, .fallback = 1, .other = 2,
     .refused = {-1}},
    {"yk_conv_module_options", "padding", .kind = WHOLE, .measure = conv_layer_padding, .fallback = 0, .other = 1,
     .refused = {-1}},
    {"yk_conv_module_options", "dilation", .kind = WHOLE, .measure = conv_layer_dilation, .fallback = 1, .other = 2,
     .refused = {-1}},
    {"yk_conv_module_options", "output_padding", .kind = WHOLE, .measure = conv_layer_output_padding, .fallback = 0,
     .other = 1, .refused = {-1, 2}},
    {"yk_conv_module_options", "stride_size", .kind = WHOLE, .measure = conv_layer_stride_size, .fallback = 2,
     .other = 1, .refused = {-1}, .word = "stride", .stated = "not given: stride"},
    {"yk_conv_module_options", "padding_size", .kind = WHOLE, .measure = conv_layer_padding_size, .fallback = 2,
     .other = 1, .refused = {-1}, .word = "padding", .zero = true, .stated = "not given: padding"},
    {"yk_conv_module_options", "dilation_size", .kind = WHOLE, .measure = conv_layer_dilation_size, .fallback = 2,
     .other = 1, .refused = {-1}, .word = "dilation", .stated = "not given: dilation"},
    {"yk_conv_module_options", "output_padding_size", .kind = WHOLE, .measure = conv_layer_output_padding_size,
     .fallback = 1, .other = 0, .refused = {-1, 2}, .word = "output_padding", .zero = true,
     .stated = "not given: output_padding"},
    {"yk_conv_module_options", "groups", .kind = WHOLE, .measure = conv_layer_groups, .fallback = 1, .other = 2,
     .refused = {-1, 3}},
    {"yk_conv_module_options", "bias", .kind = FLAG},
    {"yk_conv_module_options", "padding_mode", .kind = WHOLE, .measure = conv_layer_padding_mode, .fallback = 0,
     .other = 1, .refused = {-1, 4}},
    {"yk_batch_norm2d_options", "eps", .kind = ABOVE, .measure = batch_norm2d_eps, .fallback = 1e-5, .other = 1,
     .refused = {-1e-5, INFINITY}},
    {"yk_batch_norm2d_options", "momentum", .kind = NUMBER, .measure = batch_norm2d_momentum, .fallback = 0.1,
     .other = 0.5, .refused = {-0.1, 1.5}},
    {"yk_batch_norm2d_options", "affine", .kind = FLAG},
    {"yk_batch_norm2d_options", "bias", .kind = FLAG},
    {"yk_batch_norm2d_options", "track_running_stats", .kind = FLAG},
    {"yk_batch_norm_module_options", "eps", .kind = ABOVE, .measure = batch_norm_layer_eps, .fallback = 1e-5,
     .other = 1, .refused = {-1e-5, INFINITY}},
    {"yk_batch_norm_module_options", "momentum", .kind = NUMBER, .measure = batch_norm_layer_momentum, .fallback = 0.1,
     .other = 0.5, .refused = {-0.1, 1.5}},
    {"yk_batch_norm_module_options", "affine", .kind = FLAG},
    {"yk_batch_norm_module_options", "bias", .kind = FLAG},
    {"yk_batch_norm_module_options", "track_running_stats", .kind = FLAG},
    {"yk_group_norm_options", "eps", .kind = NUMBER, .measure = group_norm_layer_eps, .fallback = 1e-5, .other = 1,
     .refused = {-1e-5, INFINITY}},
    {"yk_group_norm_options", "affine", .kind = FLAG},
    {"yk_group_norm_options", "bias", .kind = FLAG},
    {"yk_instance_norm_options", "use_input_stats", .kind = FLAG},
    {"yk_instance_norm_options", "momentum", .kind = NUMBER, .measure = instance_norm_momentum, .fallback = 0.1,
     .other = 0.5, .refused = {-0.1, 1.5}},
    {"yk_instance_norm_options", "eps", .kind = ABOVE, .measure = instance_norm_eps, .fallback = 1e-5, .other = 1,
     .refused = {-1e-5, INFINITY}},
    {"yk_instance_norm_module_options", "eps", .kind = ABOVE, .measure = instance_norm_layer_eps, .fallback = 1e-5,
     .other = 1, .refused = {-1e-5, INFINITY}},
    {"yk_instance_norm_module_options", "momentum", .kind = NUMBER, .measure = instance_norm_layer_momentum,
     .fallback = 0.1, .other = 0.5, .refused = {-0.1, 1.5}},
    {"yk_instance_norm_module_options", "affine", .kind = FLAG},
    {"yk_instance_norm_module_options", "bias", .kind = FLAG},
    {"yk_instance_norm_module_options", "track_running_stats", .kind = FLAG},
    {"yk_rms_norm_options", "eps", .kind = NUMBER, .measure = rms_norm_layer_eps, .fallback = (double)FLT_EPSILON,
     .other = 1, .refused = {-1e-5, INFINITY}, .stated = "not given: the epsilon of the dtype"},
    {"yk_rms_norm_options", "elementwise_affine", .kind = FLAG},
    {"yk_upsample_options", "size", .kind = WHOLE, .measure = interpolate_size, .fallback = NONE, .other = 3,
     .refused = {-1}, .stated = "not given: by scale_factor"},
    {"yk_upsample_options", "scale_factor", .kind = ABOVE, .measure = interpolate_factor, .fallback = NONE, .other = 2,
     .refused = {-1, INFINITY}, .stated = "not given: by size"},
    {"yk_upsample_options", "mode", .kind = WHOLE, .measure = upsample_mode, .fallback = YK_INTERPOLATE_NEAREST,
     .other = YK_INTERPOLATE_LINEAR, .refused = {-1, 7}},
    {"yk_upsample_options", "align_corners", .kind = FLAG},
    {"yk_fold_options", "kernel", .kind = WHOLE, .measure = unfold_kernel, .fallback = NONE, .other = 3,
     .refused = {-1}, .stated = "no default"},
    {"yk_fold_options", "dilation", .kind = WHOLE, .measure = unfold_dilation, .fallback = 1, .other = 2,
     .refused = {-1}},
    {"yk_fold_options", "padding", .kind = WHOLE, .measure = unfold_padding, .fallback = 0, .other = 1,
     .refused = {-1}},
    {"yk_fold_options", "stride", .kind = WHOLE, .measure = unfold_stride, .fallback = 1, .other = 2, .refused = {-1}},
    {"yk_grid_sample_options", "mode", .kind = WHOLE, .measure = grid_mode, .fallback = YK_GRID_BILINEAR,
     .other = YK_GRID_NEAREST, .refused = {-1, 3}},
    {"yk_grid_sample_options", "padding_mode", .kind = WHOLE, .measure = grid_padding,
     .fallback = YK_GRID_PADDING_ZEROS, .other = YK_GRID_PADDING_BORDER, .refused = {-1, 3}},
    {"yk_grid_sample_options", "align_corners", .kind = FLAG},
    {"yk_max_unpool_options", "kernel", .kind = WHOLE, .measure = unpool_kernel, .fallback = NONE, .other = 3,
     .refused = {-1}, .stated = "no default"},
    {"yk_max_unpool_options", "stride", .kind = WHOLE, .measure = unpool_stride, .fallback = 2, .other = 3,
     .refused = {-1}, .stated = "not given: kernel"},
    {"yk_max_unpool_options", "padding", .kind = WHOLE, .measure = unpool_padding, .fallback = 0, .other = 1,
     .refused = {-1}},
    {"yk_max_unpool_options", "output_size", .kind = WHOLE, .measure = unpool_output_size, .fallback = 4, .other = 5,
     .refused = {-1, 6, 2}, .stated = "(size - 1) stride - 2 padding + kernel"},
    {"yk_fractional_max_pool_options", "kernel", .kind = WHOLE, .measure = fractional_kernel, .fallback = NONE,
     .other = 3, .refused = {-1, 5}, .stated = "no default"},
    {"yk_fractional_max_pool_options", "output_size", .kind = WHOLE, .measure = fractional_size, .fallback = NONE,
     .other = 3, .refused = {-1, 6}, .stated = "One of the two", .word = "windows"},
    {"yk_fractional_max_pool_options", "output_ratio", .kind = ABOVE, .measure = fractional_ratio, .fallback = NONE,
     .other = 0.5, .refused = {-0.5, 1}, .stated = "one of the two"},
    {"yk_fractional_max_pool_options", "random_samples", .kind = OBJECT},
    {"yk_layer_norm_options", "eps", .kind = NUMBER, .measure = layer_norm_layer_eps, .fallback = 1e-5, .other = 1,
     .refused = {-1e-5, INFINITY}},
    {"yk_layer_norm_options", "elementwise_affine", .kind = FLAG},
    {"yk_layer_norm_options", "bias", .kind = FLAG},
    {"yk_embedding_options", "padding_idx", .kind = WHOLE, .measure = embedding_padding_idx, .fallback = YK_NOT_GIVEN,
     .other = 1, .refused = {5, -6}, .stated = "not given: none", .zero = true},
    {"yk_embedding_options", "sparse", .kind = FLAG},
    {"yk_embedding_bag_options", "mode", .kind = WHOLE, .measure = bag_mode, .fallback = YK_BAG_MEAN,
     .other = YK_BAG_SUM, .refused = {-1, 3}},
    {"yk_embedding_bag_options", "offsets", .kind = OBJECT},
    {"yk_embedding_bag_options", "per_sample_weights", .kind = OBJECT},
    {"yk_embedding_bag_options", "include_last_offset", .kind = FLAG},
    {"yk_embedding_bag_options", "padding_idx", .kind = WHOLE, .measure = bag_padding_idx, .fallback = YK_NOT_GIVEN,
     .other = 1, .refused = {5, -6}, .stated = "not given: none", .zero = true},
    {"yk_embedding_bag_options", "sparse", .kind = FLAG},
    {"yk_embedding_bag_module_options", "mode", .kind = WHOLE, .measure = bag_layer_mode, .fallback = YK_BAG_MEAN,
     .other = YK_BAG_SUM, .refused = {-1, 3}},
    {"yk_embedding_bag_module_options", "include_last_offset", .kind = FLAG},
    {"yk_embedding_bag_module_options", "padding_idx", .kind = WHOLE, .measure = bag_layer_padding_idx,
     .fallback = YK_NOT_GIVEN, .other = 1, .refused = {5, -6}, .stated = "as for yk_embedding_options", .zero = true},
    {"yk_embedding_bag_module_options", "sparse", .kind = FLAG},
    {"yk_lstm_cell_options", "bias", .kind = FLAG},
    {"yk_lstm_module_options", "num_layers", .kind = WHOLE, .measure = lstm_layer_num_layers, .fallback = 1, .other = 2,
     .refused = {-1, 10001}},
    {"yk_lstm_module_options", "bias", .kind = FLAG},
    {"yk_lstm_module_options", "batch_first", .kind = FLAG},
    {"yk_lstm_module_options", "bidirectional", .kind = FLAG},
    {"yk_lstm_module_options", "dropout", .kind = NUMBER, .measure = lstm_layer_dropout, .fallback = 0, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_gru_cell_options", "bias", .kind = FLAG},
    {"yk_rnn_cell_options", "bias", .kind = FLAG},
    {"yk_rnn_cell_options", "nonlinearity", .kind = WHOLE, .measure = rnn_cell_nonlinearity,
     .fallback = YK_NONLINEARITY_TANH, .other = YK_NONLINEARITY_RELU, .refused = {-1, 2}},
    {"yk_gru_module_options", "num_layers", .kind = WHOLE, .measure = gru_layer_num_layers, .fallback = 1, .other = 2,
     .refused = {-1, 10001}},
    {"yk_gru_module_options", "bias", .kind = FLAG},
    {"yk_gru_module_options", "batch_first", .kind = FLAG},
    {"yk_gru_module_options", "bidirectional", .kind = FLAG},
    {"yk_gru_module_options", "dropout", .kind = NUMBER, .measure = gru_layer_dropout, .fallback = 0, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_rnn_module_options", "num_layers", .kind = WHOLE, .measure = rnn_layer_num_layers, .fallback = 1, .other = 2,
     .refused = {-1, 10001}},
    {"yk_rnn_module_options", "nonlinearity", .kind = WHOLE, .measure = rnn_layer_nonlinearity,
     .fallback = YK_NONLINEARITY_TANH, .other = YK_NONLINEARITY_RELU, .refused = {-1, 2}},
    {"yk_rnn_module_options", "bias", .kind = FLAG},
    {"yk_rnn_module_options", "batch_first", .kind = FLAG},
    {"yk_rnn_module_options", "bidirectional", .kind = FLAG},
    {"yk_rnn_module_options", "dropout", .kind = NUMBER, .measure = rnn_layer_dropout, .fallback = 0, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_multihead_attention_options", "dropout", .kind = NUMBER, .measure = multihead_attention_dropout, .fallback = 0,
     .other = 0.5, .refused = {-0.5, 1.5}},
    {"yk_multihead_attention_options", "bias", .kind = FLAG},
    {"yk_multihead_attention_options", "add_bias_kv", .kind = FLAG},
    {"yk_multihead_attention_options", "add_zero_attn", .kind = FLAG},
    {"yk_multihead_attention_options", "kdim", .kind = WHOLE, .measure = multihead_attention_kdim, .fallback = 4,
     .other = 3, .refused = {-1}, .stated = "not given: embed_dim"},
    {"yk_multihead_attention_options", "vdim", .kind = WHOLE, .measure = multihead_attention_vdim, .fallback = 4,
     .other = 3, .refused = {-1}, .stated = "not given: embed_dim"},
    {"yk_multihead_attention_options", "batch_first", .kind = FLAG},
    {"yk_multihead_attention_options", "average_attn_weights", .kind = FLAG},
    {"yk_multihead_attention_options", "is_causal", .kind = FLAG},
    {"yk_transformer_encoder_layer_options", "dim_feedforward", .kind = WHOLE, .measure = transformer_encoder_layer_ff,
     .fallback = 2048, .other = 3, .refused = {-1}},
    {"yk_transformer_encoder_layer_options", "dropout", .kind = NUMBER, .measure = transformer_encoder_layer_dropout,
     .fallback = 0.1, .other = 0.5, .refused = {-0.5, 1.5}},
    {"yk_transformer_encoder_layer_options", "activation", .kind = OBJECT},
    {"yk_transformer_encoder_layer_options", "layer_norm_eps", .kind = NUMBER, .measure = transformer_encoder_layer_eps,
     .fallback = 1e-5, .other = 1, .refused = {-1e-5, INFINITY}},
    {"yk_transformer_encoder_layer_options", "batch_first", .kind = FLAG},
    {"yk_transformer_encoder_layer_options", "norm_first", .kind = FLAG},
    {"yk_transformer_encoder_layer_options", "bias", .kind = FLAG},
    {"yk_transformer_encoder_layer_options", "is_causal", .kind = FLAG},
    {"yk_transformer_decoder_layer_options", "dim_feedforward", .kind = WHOLE, .measure = transformer_decoder_layer_ff,
     .fallback = 2048, .other = 3, .refused = {-1}},
    {"yk_transformer_decoder_layer_options", "dropout", .kind = NUMBER, .measure = transformer_decoder_layer_dropout,
     .fallback = 0.1, .other = 0.5, .refused = {-0.5, 1.5}},
    {"yk_transformer_decoder_layer_options", "activation", .kind = OBJECT},
    {"yk_transformer_decoder_layer_options", "layer_norm_eps", .kind = NUMBER, .measure = transformer_decoder_layer_eps,
     .fallback = 1e-5, .other = 1, .refused = {-1e-5, INFINITY}},
    {"yk_transformer_decoder_layer_options", "batch_first", .kind = FLAG},
    {"yk_transformer_decoder_layer_options", "norm_first", .kind = FLAG},
    {"yk_transformer_decoder_layer_options", "bias", .kind = FLAG},
    {"yk_transformer_decoder_layer_options", "tgt_is_causal", .kind = FLAG},
    {"yk_transformer_decoder_layer_options", "memory_is_causal", .kind = FLAG},
    {"yk_transformer_options", "d_model", .kind = WHOLE, .measure = transformer_d_model, .fallback = 512, .other = 16,
     .refused = {-1, 12}},
    {"yk_transformer_options", "nhead", .kind = WHOLE, .measure = transformer_nhead, .fallback = 8, .other = 2,
     .refused = {-1, 3}},
    {"yk_transformer_options", "num_encoder_layers", .kind = WHOLE, .measure = transformer_num_encoder_layers,
     .fallback = 6, .other = 1, .refused = {-1}, .zero = true},
    {"yk_transformer_options", "num_decoder_layers", .kind = WHOLE, .measure = transformer_num_decoder_layers,
     .fallback = 6, .other = 1, .refused = {-1}, .zero = true},
    {"yk_transformer_options", "dim_feedforward", .kind = WHOLE, .measure = transformer_ff, .fallback = 2048,
     .other = 3, .refused = {-1}},
    {"yk_transformer_options", "dropout", .kind = NUMBER, .measure = transformer_dropout, .fallback = 0.1, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_transformer_options", "activation", .kind = OBJECT},
    {"yk_transformer_options", "layer_norm_eps", .kind = NUMBER, .measure = transformer_eps, .fallback = 1e-5,
     .other = 1, .refused = {-1e-5, INFINITY}},
    {"yk_transformer_options", "batch_first", .kind = FLAG},
    {"yk_transformer_options", "norm_first", .kind = FLAG},
    {"yk_transformer_options", "bias", .kind = FLAG},
    {"yk_transformer_options", "src_is_causal", .kind = FLAG},
    {"yk_transformer_options", "tgt_is_causal", .kind = FLAG},
    {"yk_transformer_options", "memory_is_causal", .kind = FLAG},
    {"yk_mlp_options", "in_features", .kind = WHOLE, .measure = mlp_in_features, .fallback = 784, .other = 5,
     .refused = {-1}},
    {"yk_mlp_options", "num_classes", .kind = WHOLE, .measure = mlp_num_classes, .fallback = 10, .other = 5,
     .refused = {-1}},
    {"yk_mlp_options", "hidden", .kind = OBJECT},
    {"yk_mlp_options", "hidden_count", .kind = WHOLE, .measure = mlp_hidden_count, .fallback = NONE, .other = 1,
     .refused = {-1}, .stated = "one of 128; 0: none", .zero = true},
    {"yk_mlp_options", "hidden_count", .kind = WHOLE, .measure = mlp_hidden_count_alone, .fallback = YK_NOT_GIVEN,
     .other = NONE, .refused = {2}, .stated = "one of 128; 0: none", .zero = true},
    {"yk_mlp_options", "dropout", .kind = NUMBER, .measure = mlp_dropout, .fallback = 0, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_lenet_options", "in_channels", .kind = WHOLE, .measure = lenet_in_channels, .fallback = 1, .other = 3,
     .refused = {-1}},
    {"yk_lenet_options", "image_size", .kind = WHOLE, .measure = lenet_image_size, .fallback = 28, .other = 32,
     .refused = {-1, 15}},
    {"yk_lenet_options", "num_classes", .kind = WHOLE, .measure = lenet_num_classes, .fallback = 10, .other = 3,
     .refused = {-1}},
    {"yk_gpt2_options", "vocab_size", .kind = WHOLE, .measure = gpt2_vocab_size, .fallback = 50257, .other = 7,
     .refused = {-1, 1e10}},
    {"yk_gpt2_options", "n_positions", .kind = WHOLE, .measure = gpt2_n_positions, .fallback = 1024, .other = 7,
     .refused = {-1, 1e10}},
    {"yk_gpt2_options", "n_embd", .kind = WHOLE, .measure = gpt2_n_embd, .fallback = 768, .other = 24,
     .refused = {-1, 7}},
    {"yk_gpt2_options", "n_layer", .kind = WHOLE, .measure = gpt2_n_layer, .fallback = 12, .other = 3,
     .refused = {-1, 5000}},
    {"yk_gpt2_options", "n_head", .kind = WHOLE, .measure = gpt2_n_head, .fallback = 12, .other = 3,
     .refused = {-1, 7}},
    {"yk_gpt2_options", "dropout", .kind = NUMBER, .measure = gpt2_dropout, .fallback = 0.1, .other = 0.5,
     .refused = {-0.1, 1.5}},
    {"yk_gpt2_options", "layer_norm_epsilon", .kind = ABOVE, .measure = gpt2_epsilon, .fallback = 1e-5, .other = 1,
     .refused = {-1e-5, INFINITY}},
    {"yk_gpt2_options", "tied", .kind = FLAG},
    {"yk_gpt2_options", "gradient_checkpointing", .kind = FLAG},
    {"yk_generate_options", "max_tokens", .kind = WHOLE, .measure = generate_max_tokens, .fallback = 100, .other = 3,
     .refused = {-1}},
    {"yk_generate_options", "temperature", .kind = NUMBER, .measure = generate_temperature, .fallback = 1, .other = 0.1,
     .refused = {-1, INFINITY}},
    {"yk_generate_options", "top_k", .kind = WHOLE, .measure = generate_top_k, .fallback = 11, .other = 1,
     .refused = {-1}, .stated = "not given: among all"},
    {"yk_generate_options", "top_p", .kind = ABOVE, .measure = generate_top_p, .fallback = 1, .other = 0.01,
     .refused = {-1, 1.5}},
    {"yk_generate_options", "seed", .kind = WHOLE, .measure = generate_seed, .fallback = 0, .other = 1},
    {"yk_generate_options", "stop", .kind = WHOLE, .measure = generate_stop, .fallback = YK_NOT_GIVEN, .other = NONE,
     .stated = "not given: none", .zero = true},
    {"yk_generate_options", "cache", .kind = FLAG},
    {"yk_generate_options", "on_token", .kind = OBJECT},
    {"yk_generate_options", "user", .kind = OBJECT},
    {"yk_resnet_options", "in_channels", .kind = WHOLE, .measure = resnet_in_channels, .fallback = 3, .other = 1,
     .refused = {-1}},
    {"yk_resnet_options", "num_classes", .kind = WHOLE, .measure = resnet_num_classes, .fallback = 1000, .other = 10,
     .refused = {-1}, .stated = "not given: 1000; 10 with cifar"},
    {"yk_resnet_options", "num_classes", .kind = WHOLE, .measure = resnet_cifar_num_classes, .fallback = 10, .other = 3,
     .refused = {-1}, .stated = "not given: 1000; 10 with cifar"},
    {"yk_resnet_options", "cifar", .kind = FLAG},
    {"yk_resnet_options", "groups", .kind = WHOLE, .measure = resnet_groups, .fallback = 1, .other = 2,
     .refused = {-1, 4097}},
    {"yk_resnet_options", "width_per_group", .kind = WHOLE, .measure = resnet_width_per_group, .fallback = 64,
     .other = 32, .refused = {-1, 4097}},
    {"yk_resnet_options", "width", .kind = WHOLE, .measure = resnet_width, .fallback = 64, .other = 32,
     .refused = {-1, 4097}},
    {"yk_vgg_options", "in_channels", .kind = WHOLE, .measure = vgg_in_channels, .fallback = 3, .other = 1,
     .refused = {-1}},
    {"yk_vgg_options", "num_classes", .kind = WHOLE, .measure = vgg_num_classes, .fallback = 1000, .other = 5,
     .refused = {-1}},
    {"yk_vgg_options", "batch_norm", .kind = FLAG},
    {"yk_vgg_options", "dropout", .kind = NUMBER, .measure = vgg_dropout, .fallback = 0.5, .other = 0.1,
     .refused = {-0.5, 1.5}},
    {"yk_vgg_options", "width", .kind = WHOLE, .measure = vgg_width, .fallback = 64, .other = 2, .refused = {-1}},
    {"yk_vgg_options", "classifier_size", .kind = WHOLE, .measure = vgg_classifier_size, .fallback = 4096, .other = 4,
     .refused = {-1}},
    {"yk_mobilenet_v2_options", "in_channels", .kind = WHOLE, .measure = mobilenet_in_channels, .fallback = 3,
     .other = 1, .refused = {-1}},
    {"yk_mobilenet_v2_options", "num_classes", .kind = WHOLE, .measure = mobilenet_num_classes, .fallback = 1000,
     .other = 5, .refused = {-1}},
    {"yk_mobilenet_v2_options", "dropout", .kind = NUMBER, .measure = mobilenet_dropout, .fallback = 0.2, .other = 0.9,
     .refused = {-0.5, 1.5}},
    {"yk_efficientnet_options", "in_channels", .kind = WHOLE, .measure = efficientnet_in_channels, .fallback = 3,
     .other = 1, .refused = {-1}},
    {"yk_efficientnet_options", "num_classes", .kind = WHOLE, .measure = efficientnet_num_classes, .fallback = 1000,
     .other = 2, .refused = {-1}},
    {"yk_efficientnet_options", "dropout", .kind = NUMBER, .measure = efficientnet_dropout, .fallback = 0.2,
     .other = 0.5, .refused = {-0.5, 1.5}},
    {"yk_efficientnet_options", "stochastic_depth_prob", .kind = NUMBER, .measure = efficientnet_depth, .fallback = 0.2,
     .other = 0.9, .refused = {-0.5, 1.5}},
    {"yk_vit_options", "in_channels", .kind = WHOLE, .measure = vit_in_channels, .fallback = 3, .other = 1,
     .refused = {-1}},
    {"yk_vit_options", "num_classes", .kind = WHOLE, .measure = vit_num_classes, .fallback = 1000, .other = 5,
     .refused = {-1}},
    {"yk_vit_options", "image_size", .kind = WHOLE, .measure = vit_image_size, .fallback = 224, .other = 32,
     .refused = {-1, 33}},
    {"yk_vit_options", "patch_size", .kind = WHOLE, .measure = vit_patch_size, .fallback = 16, .other = 8,
     .refused = {-1, 15}},
    {"yk_vit_options", "num_layers", .kind = WHOLE, .measure = vit_num_layers, .fallback = 12, .other = 1,
     .refused = {-1}},
    {"yk_vit_options", "num_heads", .kind = WHOLE, .measure = vit_num_heads, .fallback = 12, .other = 2,
     .refused = {-1, 5}},
    {"yk_vit_options", "hidden_dim", .kind = WHOLE, .measure = vit_hidden_dim, .fallback = 768, .other = 24,
     .refused = {-1, 13}},
    {"yk_vit_options", "mlp_dim", .kind = WHOLE, .measure = vit_mlp_dim, .fallback = 3072, .other = 5, .refused = {-1}},
    {"yk_vit_options", "dropout", .kind = NUMBER, .measure = vit_dropout, .fallback = 0, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_vit_options", "attention_dropout", .kind = NUMBER, .measure = vit_attention_dropout, .fallback = 0,
     .other = 0.5, .refused = {-0.5, 1.5}},
    {"yk_model_options", "in_channels", .kind = WHOLE, .measure = model_in_channels, .fallback = 1, .other = 3,
     .refused = {-1}, .stated = "Not given: the model's own"},
    {"yk_model_options", "image_size", .kind = WHOLE, .measure = model_image_size, .fallback = 28, .other = 32,
     .refused = {-1}, .stated = "Not given: the model's own"},
    {"yk_model_options", "num_classes", .kind = WHOLE, .measure = model_num_classes, .fallback = 10, .other = 3,
     .refused = {-1}, .stated = "Not given: the model's own"},
    {"yk_sgd_options", "lr", .kind = NUMBER, .measure = sgd_lr, .fallback = NONE, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "no default"},
    {"yk_sgd_options", "momentum", .kind = NUMBER, .measure = sgd_momentum, .fallback = 0, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_sgd_options", "dampening", .kind = NUMBER, .measure = sgd_dampening, .fallback = 0, .other = 0.5,
     .refused = {INFINITY, -INFINITY}, .stated = "not given: 0"},
    {"yk_sgd_options", "weight_decay", .kind = NUMBER, .measure = sgd_weight_decay, .fallback = 0, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_sgd_options", "nesterov", .kind = FLAG},
    {"yk_sgd_options", "maximize", .kind = FLAG},
    {"yk_sgd_options", "master_weights", .kind = FLAG},
    {"yk_sparse_adam_options", "lr", .kind = NUMBER, .measure = sparse_adam_lr, .fallback = NONE, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "no default"},
    {"yk_sparse_adam_options", "beta1", .kind = NUMBER, .measure = sparse_adam_beta1, .fallback = 0.9, .other = 0.5,
     .refused = {-0.1, 1, 2}, .stated = "not given: 0.9"},
    {"yk_sparse_adam_options", "beta2", .kind = NUMBER, .measure = sparse_adam_beta2, .fallback = 0.999, .other = 0.5,
     .refused = {-0.1, 1, 2}, .stated = "not given: 0.999"},
    {"yk_sparse_adam_options", "eps", .kind = ABOVE, .measure = sparse_adam_eps, .fallback = 1e-8, .other = 1,
     .refused = {-1e-8, INFINITY}, .stated = "not given: 1e-8"},
    {"yk_sparse_adam_options", "maximize", .kind = FLAG},
    {"yk_adam_options", "lr", .kind = NUMBER, .measure = adam_lr, .fallback = NONE, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "no default"},
    {"yk_adam_options", "beta1", .kind = NUMBER, .measure = adam_beta1, .fallback = 0.9, .other = 0.5,
     .refused = {-0.1, 1, 2}, .stated = "not given: 0.9"},
    {"yk_adam_options", "beta2", .kind = NUMBER, .measure = adam_beta2, .fallback = 0.999, .other = 0.5,
     .refused = {-0.1, 1, 2}, .stated = "not given: 0.999"},
    {"yk_adam_options", "eps", .kind = NUMBER, .measure = adam_eps, .fallback = 1e-8, .other = 1,
     .refused = {-1e-8, INFINITY}, .stated = "not given: 1e-8"},
    {"yk_adam_options", "weight_decay", .kind = NUMBER, .measure = adam_weight_decay, .fallback = 0, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0 for Adam, 1e-2 for AdamW"},
    {"yk_adam_options", "weight_decay", .kind = NUMBER, .measure = adamw_weight_decay, .fallback = 1e-2, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0 for Adam, 1e-2 for AdamW"},
    {"yk_adam_options", "amsgrad", .kind = FLAG},
    {"yk_adam_options", "maximize", .kind = FLAG},
    {"yk_adam_options", "master_weights", .kind = FLAG},
    {"yk_rmsprop_options", "lr", .kind = NUMBER, .measure = rmsprop_lr, .fallback = 1e-2, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-2"},
    {"yk_rmsprop_options", "alpha", .kind = NUMBER, .measure = rmsprop_alpha, .fallback = 0.99, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0.99"},
    {"yk_rmsprop_options", "eps", .kind = NUMBER, .measure = rmsprop_eps, .fallback = 1e-8, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-8"},
    {"yk_rmsprop_options", "weight_decay", .kind = NUMBER, .measure = rmsprop_weight_decay, .fallback = 0, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_rmsprop_options", "momentum", .kind = NUMBER, .measure = rmsprop_momentum, .fallback = 0, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_rmsprop_options", "centered", .kind = FLAG},
    {"yk_rmsprop_options", "maximize", .kind = FLAG},
    {"yk_rmsprop_options", "master_weights", .kind = FLAG},
    {"yk_adagrad_options", "lr", .kind = NUMBER, .measure = adagrad_lr, .fallback = 1e-2, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-2"},
    {"yk_adagrad_options", "lr_decay", .kind = NUMBER, .measure = adagrad_lr_decay, .fallback = 0, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_adagrad_options", "weight_decay", .kind = NUMBER, .measure = adagrad_weight_decay, .fallback = 0, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_adagrad_options", "initial_accumulator_value", .kind = NUMBER, .measure = adagrad_initial_accumulator_value,
     .fallback = 0, .other = 0.5, .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_adagrad_options", "eps", .kind = NUMBER, .measure = adagrad_eps, .fallback = 1e-10, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-10"},
    {"yk_adagrad_options", "maximize", .kind = FLAG},
    {"yk_adagrad_options", "master_weights", .kind = FLAG},
    {"yk_adadelta_options", "lr", .kind = NUMBER, .measure = adadelta_lr, .fallback = 1, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1"},
    {"yk_adadelta_options", "rho", .kind = NUMBER, .measure = adadelta_rho, .fallback = 0.9, .other = 0.5,
     .refused = {-0.1, 1.5}, .stated = "not given: 0.9"},
    {"yk_adadelta_options", "eps", .kind = NUMBER, .measure = adadelta_eps, .fallback = 1e-6, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-6"},
    {"yk_adadelta_options", "weight_decay", .kind = NUMBER, .measure = adadelta_weight_decay, .fallback = 0,
     .other = 0.5, .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_adadelta_options", "maximize", .kind = FLAG},
    {"yk_adadelta_options", "master_weights", .kind = FLAG},
    {"yk_adamax_options", "lr", .kind = NUMBER, .measure = adamax_lr, .fallback = 2e-3, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 2e-3"},
    {"yk_adamax_options", "beta1", .kind = NUMBER, .measure = adamax_beta1, .fallback = 0.9, .other = 0.5,
     .refused = {-0.1, 1, 2}, .stated = "not given: 0.9"},
    {"yk_adamax_options", "beta2", .kind = NUMBER, .measure = adamax_beta2, .fallback = 0.999, .other = 0.5,
     .refused = {-0.1, 1, 2}, .stated = "not given: 0.999"},
    {"yk_adamax_options", "eps", .kind = NUMBER, .measure = adamax_eps, .fallback = 1e-8, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-8"},
    {"yk_adamax_options", "weight_decay", .kind = NUMBER, .measure = adamax_weight_decay, .fallback = 0, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_adamax_options", "maximize", .kind = FLAG},
    {"yk_adamax_options", "master_weights", .kind = FLAG},
    {"yk_nadam_options", "lr", .kind = NUMBER, .measure = nadam_lr, .fallback = 2e-3, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 2e-3"},
    {"yk_nadam_options", "beta1", .kind = NUMBER, .measure = nadam_beta1, .fallback = 0.9, .other = 0.5,
     .refused = {-0.1, 1, 2}, .stated = "not given: 0.9"},
    {"yk_nadam_options", "beta2", .kind = NUMBER, .measure = nadam_beta2, .fallback = 0.999, .other = 0.5,
     .refused = {-0.1, 1, 2}, .stated = "not given: 0.999"},
    {"yk_nadam_options", "eps", .kind = NUMBER, .measure = nadam_eps, .fallback = 1e-8, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-8"},
    {"yk_nadam_options", "weight_decay", .kind = NUMBER, .measure = nadam_weight_decay, .fallback = 0, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_nadam_options", "momentum_decay", .kind = NUMBER, .measure = nadam_momentum_decay, .fallback = 4e-3,
     .other = 0.5, .refused = {-0.1, INFINITY}, .stated = "not given: 4e-3"},
    {"yk_nadam_options", "decoupled_weight_decay", .kind = FLAG},
    {"yk_nadam_options", "maximize", .kind = FLAG},
    {"yk_nadam_options", "master_weights", .kind = FLAG},
    {"yk_radam_options", "lr", .kind = NUMBER, .measure = radam_lr, .fallback = 1e-3, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-3"},
    {"yk_radam_options", "beta1", .kind = NUMBER, .measure = radam_beta1, .fallback = 0.9, .other = 0.5,
     .refused = {-0.1, 1, 2}, .stated = "not given: 0.9"},
    {"yk_radam_options", "beta2", .kind = NUMBER, .measure = radam_beta2, .fallback = 0.999, .other = 0.5,
     .refused = {-0.1, 1, 2}, .stated = "not given: 0.999"},
    {"yk_radam_options", "eps", .kind = NUMBER, .measure = radam_eps, .fallback = 1e-8, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-8"},
    {"yk_radam_options", "weight_decay", .kind = NUMBER, .measure = radam_weight_decay, .fallback = 0, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0"},
    {"yk_radam_options", "decoupled_weight_decay", .kind = FLAG},
    {"yk_radam_options", "maximize", .kind = FLAG},
    {"yk_radam_options", "master_weights", .kind = FLAG},
    {"yk_weight_norm_options", "dim", .kind = WHOLE, .measure = weight_norm_dim, .fallback = 0, .other = 1,
     .refused = {-2, 2}},
    {"yk_spectral_norm_options", "n_power_iterations", .kind = WHOLE, .measure = spectral_norm_iterations,
     .fallback = 1, .other = 7, .refused = {-1}},
    {"yk_spectral_norm_options", "eps", .kind = ABOVE, .measure = spectral_norm_eps, .fallback = 1e-12, .other = 100,
     .refused = {-1, INFINITY}},
    {"yk_spectral_norm_options", "dim", .kind = WHOLE, .measure = spectral_norm_dim, .fallback = 0, .other = 1,
     .refused = {-2, 2}, .stated = "not given: 0; 1 of a transposed convolution"},
    {"yk_muon_options", "lr", .kind = NUMBER, .measure = muon_lr, .fallback = 1e-3, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-3"},
    {"yk_muon_options", "weight_decay", .kind = NUMBER, .measure = muon_weight_decay, .fallback = 0.1, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0.1"},
    {"yk_muon_options", "momentum", .kind = NUMBER, .measure = muon_momentum, .fallback = 0.95, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 0.95"},
    {"yk_muon_options", "nesterov", .kind = FLAG},
    {"yk_muon_options", "ns_a", .kind = NUMBER, .measure = muon_ns_a, .fallback = 3.4445, .other = 0.5,
     .refused = {INFINITY}, .stated = "not given: 3.4445"},
    {"yk_muon_options", "ns_b", .kind = NUMBER, .measure = muon_ns_b, .fallback = -4.775, .other = 0.5,
     .refused = {INFINITY}, .stated = "not given: -4.775"},
    {"yk_muon_options", "ns_c", .kind = NUMBER, .measure = muon_ns_c, .fallback = 2.0315, .other = 0.5,
     .refused = {INFINITY}, .stated = "not given: 2.0315"},
    {"yk_muon_options", "eps", .kind = NUMBER, .measure = muon_eps, .fallback = 1e-7, .other = 100,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1e-7"},
    {"yk_muon_options", "ns_steps", .kind = WHOLE, .measure = muon_ns_steps, .fallback = 5, .other = 2,
     .refused = {-1, 100}, .stated = "not given: 5", .zero = true},
    {"yk_muon_options", "adjust_lr_fn", .kind = WHOLE, .measure = muon_adjust_lr_fn, .fallback = YK_MUON_ORIGINAL,
     .other = YK_MUON_MATCH_RMS_ADAMW, .refused = {-1, 7}},
    {"yk_muon_options", "master_weights", .kind = FLAG},
    {"yk_lbfgs_options", "lr", .kind = NUMBER, .measure = lbfgs_lr, .fallback = 1, .other = 0.5,
     .refused = {-0.1, INFINITY}, .stated = "not given: 1"},
    {"yk_lbfgs_options", "max_iter", .kind = WHOLE, .measure = lbfgs_max_iter, .fallback = 20, .other = 2,
     .refused = {-1}},
    {"yk_lbfgs_options", "max_eval", .kind = WHOLE, .measure = lbfgs_max_eval, .fallback = 5, .other = 2,
     .refused = {-1}, .stated = "not given: 5 max_iter / 4"},
    {"yk_lbfgs_options", "tolerance_grad", .kind = NUMBER, .measure = lbfgs_tolerance_grad, .fallback = 1e-7,
     .other = 50, .refused = {-0.1, INFINITY}, .stated = "not given: 1e-7"},
    {"yk_lbfgs_options", "tolerance_change", .kind = NUMBER, .measure = lbfgs_tolerance_change, .fallback = 1e-9,
     .other = 100, .refused = {-0.1, INFINITY}, .stated = "not given: 1e-9"},
    {"yk_lbfgs_options", "history_size", .kind = WHOLE, .measure = lbfgs_history_size, .fallback = 100, .other = 1,
     .refused = {-1}},
    {"yk_lbfgs_options", "line_search_fn", .kind = WHOLE, .measure = lbfgs_line_search_fn,
     .fallback = YK_NO_LINE_SEARCH, .other = YK_STRONG_WOLFE, .refused = {-1, 7}},
    {"yk_lbfgs_options", "maximize", .kind = FLAG},
    {"yk_one_cycle_options", "pct_start", .kind = NUMBER, .measure = one_cycle_pct_start, .fallback = 0.3, .other = 0.5,
     .refused = {-0.1, 1.5}},
    {"yk_one_cycle_options", "base_momentum", .kind = NUMBER, .measure = one_cycle_base_momentum, .fallback = 0.85,
     .other = 0.5, .refused = {-0.1, 1}},
    {"yk_one_cycle_options", "max_momentum", .kind = NUMBER, .measure = one_cycle_max_momentum, .fallback = 0.95,
     .other = 0.5, .refused = {-0.1, 1}},
    {"yk_one_cycle_options", "div_factor", .kind = ABOVE, .measure = one_cycle_div_factor, .fallback = 25, .other = 2,
     .refused = {-1, INFINITY}},
    {"yk_one_cycle_options", "final_div_factor", .kind = ABOVE, .measure = one_cycle_final_div_factor, .fallback = 1e4,
     .other = 2, .refused = {-1, INFINITY}},
    {"yk_cyclic_options", "step_size_up", .kind = WHOLE, .measure = cyclic_step_size_up, .fallback = 2000, .other = 3,
     .refused = {-1}},
    {"yk_cyclic_options", "step_size_down", .kind = WHOLE, .measure = cyclic_step_size_down, .fallback = 2, .other = 3,
     .refused = {-1}, .stated = "not given: step_size_up"},
    {"yk_cyclic_options", "mode", .kind = WHOLE, .measure = cyclic_mode, .fallback = YK_TRIANGULAR,
     .other = YK_TRIANGULAR2, .refused = {-1, 7}},
    {"yk_cyclic_options", "gamma", .kind = NUMBER, .measure = cyclic_gamma, .fallback = 1, .other = 0.5,
     .refused = {-1, INFINITY}},
    {"yk_cyclic_options", "base_momentum", .kind = NUMBER, .measure = cyclic_base_momentum, .fallback = 0.8,
     .other = 0.5, .refused = {-0.1, 1}},
    {"yk_cyclic_options", "max_momentum", .kind = NUMBER, .measure = cyclic_max_momentum, .fallback = 0.9, .other = 0.5,
     .refused = {-0.1, 1}},
    {"yk_one_cycle_options", "linear", .kind = FLAG},
    {"yk_one_cycle_options", "three_phase", .kind = FLAG},
    {"yk_one_cycle_options", "cycle_momentum", .kind = FLAG},
    {"yk_cyclic_options", "cycle_momentum", .kind = FLAG},
    {"yk_averaged_model_options", "decay", .kind = NUMBER, .measure = averaged_decay, .fallback = YK_NOT_GIVEN,
     .other = 0.5, .refused = {-1, 2}, .stated = "not given: the mean"},
    {"yk_averaged_model_options", "use_buffers", .kind = FLAG},
    {"yk_plateau_options", "factor", .kind = NUMBER, .measure = plateau_factor, .fallback = 0.1, .other = 0.5,
     .refused = {-0.1, 1}},
    {"yk_plateau_options", "patience", .kind = WHOLE, .measure = plateau_patience, .fallback = 10, .other = 2,
     .refused = {-1}, .zero = true},
    {"yk_plateau_options", "threshold", .kind = NUMBER, .measure = plateau_threshold, .fallback = 1e-4, .other = 0.5,
     .refused = {-0.1, INFINITY}},
    {"yk_plateau_options", "cooldown", .kind = WHOLE, .measure = plateau_cooldown, .fallback = 0, .other = 3,
     .refused = {-1}},
    {"yk_plateau_options", "min_lr", .kind = NUMBER, .measure = plateau_min_lr, .fallback = 0, .other = 0.25,
     .refused = {-0.1, INFINITY}},
    {"yk_plateau_options", "eps", .kind = NUMBER, .measure = plateau_eps, .fallback = 1e-8, .other = 0.5,
     .refused = {-0.1, INFINITY}},
    {"yk_plateau_options", "max", .kind = FLAG},
    {"yk_plateau_options", "absolute", .kind = FLAG},
    {"yk_grad_scaler_options", "init_scale", .kind = ABOVE, .measure = scaler_init_scale, .fallback = 65536, .other = 8,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_grad_scaler_options", "growth_factor", .kind = ABOVE, .measure = scaler_growth_factor, .fallback = 2,
     .other = 4, .refused = {-1, 1, INFINITY}},
    {"yk_grad_scaler_options", "backoff_factor", .kind = ABOVE, .measure = scaler_backoff_factor, .fallback = 0.5,
     .other = 0.25, .refused = {-1, 1}},
    {"yk_grad_scaler_options", "growth_interval", .kind = WHOLE, .measure = scaler_growth_interval, .fallback = 2000,
     .other = 3, .refused = {-1}},
    {"yk_grad_scaler_options", "enabled", .kind = FLAG},
    {"yk_random_resized_crop_options", "scale", .kind = ABOVE, .measure = resized_crop_scale, .fallback = 0.08,
     .other = 0.5, .refused = {-0.5, 1.5}},
    {"yk_random_resized_crop_options", "ratio", .kind = ABOVE, .measure = resized_crop_ratio, .fallback = 3.0 / 4,
     .other = 0.4, .refused = {-0.5, INFINITY}},
    {"yk_color_jitter_options", "brightness", .kind = NUMBER, .measure = jitter_brightness, .fallback = 1, .other = 0.5,
     .refused = {-0.5, INFINITY}},
    {"yk_color_jitter_options", "contrast", .kind = NUMBER, .measure = jitter_contrast, .fallback = 1, .other = 0.5,
     .refused = {-0.5, INFINITY}},
    {"yk_color_jitter_options", "saturation", .kind = NUMBER, .measure = jitter_saturation, .fallback = 1, .other = 0.5,
     .refused = {-0.5, INFINITY}},
    {"yk_color_jitter_options", "hue", .kind = NUMBER, .measure = jitter_hue, .fallback = 0, .other = 0.2,
     .refused = {-0.75, 0.75}},
    {"yk_random_rotation", "low", .kind = NUMBER, .measure = rotation_low, .fallback = 0, .other = -90,
     .refused = {-INFINITY, 91}, .word = "degrees"},
    {"yk_random_rotation", "high", .kind = NUMBER, .measure = rotation_high, .fallback = 0, .other = 90,
     .refused = {INFINITY, -91}, .word = "degrees"},
    {"yk_random_affine", "low", .kind = NUMBER, .measure = affine_low, .fallback = 0, .other = -90,
     .refused = {-INFINITY, 91}, .word = "degrees"},
    {"yk_random_affine", "high", .kind = NUMBER, .measure = affine_high, .fallback = 0, .other = 90,
     .refused = {INFINITY, -91}, .word = "degrees"},
    {"yk_random_rotation_options", "bilinear", .kind = FLAG},
    {"yk_random_rotation_options", "expand", .kind = FLAG},
    {"yk_random_rotation_options", "fill", .kind = NUMBER, .measure = rotation_fill, .fallback = 0, .other = 7,
     .refused = {INFINITY, 300}},
    {"yk_random_affine_options", "translate", .kind = NUMBER, .measure = affine_translate, .fallback = 0, .other = 0.9,
     .refused = {-0.5, 1.5}},
    {"yk_random_affine_options", "scale", .kind = ABOVE, .measure = affine_scale, .fallback = 1, .other = 0.5,
     .refused = {-0.5, INFINITY}},
    {"yk_random_affine_options", "shear", .kind = NUMBER, .measure = affine_shear, .fallback = 0, .other = 30,
     .refused = {-90, 90}},
    {"yk_random_affine_options", "bilinear", .kind = FLAG},
    {"yk_random_affine_options", "fill", .kind = NUMBER, .measure = affine_fill, .fallback = 0, .other = 7,
     .refused = {INFINITY, 300}},
    {"yk_random_perspective_options", "distortion_scale", .kind = NUMBER, .measure = perspective_scale, .fallback = 0.5,
     .other = 1, .refused = {-0.5, 1.5}},
    {"yk_random_perspective_options", "p", .kind = NUMBER, .measure = perspective_p, .fallback = 0.5, .other = 1,
     .refused = {-0.5, 1.5}},
    {"yk_random_perspective_options", "nearest", .kind = FLAG},
    {"yk_random_perspective_options", "fill", .kind = NUMBER, .measure = perspective_fill, .fallback = 0, .other = 7,
     .refused = {INFINITY, 300}},
    {"yk_transform_targets_options", "masks", .kind = WHOLE, .measure = targets_masks, .fallback = 0, .other = 1,
     .refused = {-1, 8}},
    {"yk_transform_targets_options", "boxes", .kind = WHOLE, .measure = targets_boxes, .fallback = 0, .other = 2,
     .refused = {-1, 8}},
    {"yk_transform_targets_options", "mask_fill", .kind = NUMBER, .measure = targets_mask_fill, .fallback = 0,
     .other = 7, .refused = {INFINITY, 300}},
    {"yk_sanitize_bounding_boxes_options", "min_size", .kind = ABOVE, .measure = sanitize_min_size, .fallback = 1,
     .other = 2.5, .refused = {-0.5, INFINITY}},
    {"yk_sanitize_bounding_boxes_options", "min_area", .kind = ABOVE, .measure = sanitize_min_area, .fallback = 1,
     .other = 4, .refused = {-0.5, INFINITY}},
    {"yk_sanitize_bounding_boxes_options", "labels", .kind = WHOLE, .measure = sanitize_labels, .fallback = 0,
     .other = NONE, .refused = {-1, 8}},
    {"yk_rand_augment_options", "num_ops", .kind = WHOLE, .measure = rand_augment_ops, .fallback = 2, .other = 5,
     .refused = {-1, 100}, .zero = true},
    {"yk_rand_augment_options", "magnitude", .kind = WHOLE, .measure = rand_augment_magnitude, .fallback = 9,
     .other = 25, .refused = {-1, 31}, .zero = true},
    {"yk_rand_augment_options", "num_magnitude_bins", .kind = WHOLE, .measure = rand_augment_bins, .fallback = 31,
     .other = 12, .refused = {-1, 1}},
    {"yk_rand_augment_options", "bilinear", .kind = FLAG},
    {"yk_rand_augment_options", "fill", .kind = NUMBER, .measure = rand_augment_fill, .fallback = 0, .other = 70,
     .refused = {INFINITY, 300}},
    {"yk_random_erasing_options", "p", .kind = NUMBER, .measure = erasing_p, .fallback = 0.5, .other = 1,
     .refused = {-0.5, 1.5}},
    {"yk_random_erasing_options", "scale", .kind = ABOVE, .measure = erasing_scale, .fallback = 0.02, .other = 0.3,
     .refused = {-0.5, 1.5}},
    {"yk_random_erasing_options", "ratio", .kind = ABOVE, .measure = erasing_ratio, .fallback = 0.3, .other = 2,
     .refused = {-0.5, INFINITY}},
    {"yk_random_erasing_options", "value", .kind = NUMBER, .measure = erasing_value, .fallback = 0, .other = 7,
     .refused = {INFINITY, 300}},
    {"yk_gaussian_blur_options", "sigma", .kind = ABOVE, .measure = blur_sigma, .fallback = 0.1, .other = 1.5,
     .refused = {-0.5, INFINITY}},
    {"yk_encode_options", "special", .kind = FLAG},
    {"yk_token_blocks_options", "block", .kind = WHOLE, .measure = token_block, .fallback = NONE, .other = 3,
     .refused = {-1, 1e10}, .stated = "no default"},
    {"yk_token_blocks_options", "stride", .kind = WHOLE, .measure = token_stride, .fallback = 2, .other = 3,
     .refused = {-1}, .stated = "not given: block"},
    {"yk_token_blocks_options", "begin", .kind = WHOLE, .measure = token_begin, .fallback = 0, .other = 3,
     .refused = {-1, 99}},
    {"yk_token_blocks_options", "end", .kind = WHOLE, .measure = token_end, .fallback = 10, .other = 7,
     .refused = {-1, 99}, .stated = "not given: all"},
    {"yk_token_blocks_options", "vocab_size", .kind = WHOLE, .measure = token_vocab, .fallback = 200, .other = NONE,
     .refused = {-1}, .stated = "not given: none"},
    {"yk_shards_options", "fields", .kind = OBJECT},
    {"yk_shards_options", "shardshuffle", .kind = FLAG},
    {"yk_shards_options", "shuffle", .kind = WHOLE, .measure = shards_shuffle, .fallback = 0, .other = 3,
     .refused = {-1, 1e10}},
    {"yk_shards_options", "streams", .kind = WHOLE, .measure = shards_streams, .fallback = 4, .other = 1,
     .refused = {-1, 1025}},
    {"yk_shards_options", "classes", .kind = WHOLE, .measure = shards_classes, .fallback = 0, .other = 9,
     .refused = {-1, 1e10}},
    {"yk_shards_options", "epoch_samples", .kind = WHOLE, .measure = shards_samples, .fallback = 0, .other = 2,
     .refused = {-1, 1e13}},
    {"yk_loader_options", "batch_size", .kind = WHOLE, .measure = loader_batch_size, .fallback = NONE, .other = 3,
     .refused = {-1, 1e10}, .stated = "no default"},
    {"yk_loader_options", "shuffle", .kind = FLAG},
    {"yk_loader_options", "sampler", .kind = OBJECT},
    {"yk_loader_options", "drop_last", .kind = FLAG},
    {"yk_loader_options", "workers", .kind = WHOLE, .measure = loader_workers, .fallback = 0, .other = 1,
     .refused = {-1, 5000}},
    {"yk_loader_options", "prefetch", .kind = WHOLE, .measure = loader_prefetch, .fallback = 2, .other = 4,
     .refused = {-1, 1e6}, .stated = "not given: twice the workers"},
    {"yk_loader_options", "seed", .kind = WHOLE, .measure = loader_seed, .fallback = 0, .other = 1},
    {"yk_loader_options", "dtype", .kind = WHOLE, .measure = loader_dtype, .fallback = YK_F32, .other = YK_F64,
     .refused = {YK_I64, 77}, .code = YK_ERR_DTYPE},
    {"yk_loader_options", "collate", .kind = OBJECT},
    {"yk_loader_options", "collate_user", .kind = OBJECT},
    {"yk_loader_options", "distributed", .kind = FLAG},
    {"yk_loader_options", "rank", .kind = WHOLE, .measure = loader_rank, .fallback = NONE, .other = 1,
     .refused = {-1, 4}, .zero = true},
    {"yk_loader_options", "world_size", .kind = WHOLE, .measure = loader_world_size, .fallback = 1, .other = 2,
     .refused = {-1}},
    {"yk_loader_options", "padding", .kind = FLAG},
    {"yk_loader_options", "device", .kind = WHOLE, .measure = loader_device, .fallback = 0, .other = 1, .refused = {77},
     .code = YK_ERR_DEVICE},
    {"yk_loader_options", "on_error", .kind = WHOLE, .measure = loader_on_error, .fallback = YK_FAIL, .other = YK_SKIP,
     .refused = {7, -1}},
    {"yk_loader_options", "mixup", .kind = NUMBER, .measure = loader_mixup, .fallback = 0, .other = 0.7,
     .refused = {-0.5, INFINITY}},
    {"yk_loader_options", "cutmix", .kind = NUMBER, .measure = loader_cutmix, .fallback = 0, .other = 0.7,
     .refused = {-0.5, INFINITY}},
    {"yk_loader_options", "num_classes", .kind = WHOLE, .measure = loader_classes, .fallback = 0, .other = 5,
     .refused = {-1, 1e10}},
    {"yk_init_options", "init_method", .kind = OBJECT},
    {"yk_init_options", "backend", .kind = OBJECT},
    {"yk_init_options", "rank", .kind = WHOLE, .measure = init_rank, .fallback = NONE, .other = NONE,
     .refused = {-1, 1}, .stated = "not given: from the environment", .zero = true},
    {"yk_init_options", "world_size", .kind = WHOLE, .measure = init_world_size, .fallback = 1, .other = NONE,
     .refused = {-1}, .stated = "not given: from the environment"},
    {"yk_init_options", "timeout", .kind = ABOVE, .measure = init_timeout, .fallback = 600, .other = 5,
     .refused = {-1, INFINITY, 1e300}, .stated = "not given: $YOKE_COMM_TIMEOUT, or 600"},
    {"yk_init_options", "join_timeout", .kind = ABOVE, .measure = init_join_timeout, .fallback = 60, .other = 5,
     .refused = {-1, INFINITY, 1e300}, .stated = "not given: $YOKE_JOIN_TIMEOUT, or 60"},
    {"yk_init_options", "store", .kind = OBJECT},
    {"yk_init_options", "encrypt", .kind = FLAG},
    {"yk_spawn_options", "grace", .kind = NUMBER, .measure = spawn_grace, .fallback = 10, .other = 0.01,
     .refused = {-1, INFINITY, 1e300}, .stated = "0: none"},
    {"yk_spawn_options", "master_addr", .kind = OBJECT},
    {"yk_spawn_options", "master_port", .kind = WHOLE, .measure = spawn_master_port, .fallback = 0, .other = NONE,
     .refused = {-1, 70000}},
    {"yk_process_group_options", "backend", .kind = OBJECT},
    {"yk_process_group_options", "name", .kind = OBJECT},
    {"yk_process_group_options", "timeout", .kind = ABOVE, .measure = group_timeout, .fallback = 600, .other = 5,
     .refused = {-1, INFINITY, 1e300}, .stated = "as above"},
    {"yk_process_group_options", "join_timeout", .kind = ABOVE, .measure = group_join_timeout, .fallback = 60,
     .other = 5, .refused = {-1, INFINITY}, .stated = "as above"},
    {"yk_process_group_options", "host_id", .kind = OBJECT},
    {"yk_data_parallel_options", "devices", .kind = OBJECT},
    {"yk_data_parallel_options", "count", .kind = OBJECT}, /* of devices[]: data_parallel_test.c */
    {"yk_data_parallel_options", "output_device", .kind = OBJECT},
    {"yk_data_parallel_options", "dim", .kind = OBJECT}, /* data_parallel_test.c */
    {"yk_data_parallel_options", "scatter", .kind = OBJECT},
    {"yk_data_parallel_options", "scatter_user", .kind = OBJECT},
    {"yk_data_parallel_options", "gather", .kind = FLAG},
    {"yk_pipeline_options", "devices", .kind = OBJECT},
    {"yk_pipeline_options", "chunks", .kind = WHOLE, .measure = pipeline_chunks, .fallback = 2, .other = 5,
     .refused = {-1}, .stated = "not given: as many as stages"},
    {"yk_pipeline_options", "schedule", .kind = WHOLE, .measure = pipeline_schedule, .fallback = YK_PIPELINE_1F1B,
     .other = YK_PIPELINE_GPIPE, .refused = {-1, 2}},
    {"yk_pipeline_options", "dim", .kind = OBJECT}, /* pipeline_parallel_test.c */
    {"yk_pipeline_options", "tensors", .kind = OBJECT},
    {"yk_pipeline_options", "criterion", .kind = OBJECT},
    {"yk_pipeline_options", "criterion_user", .kind = OBJECT},
    {"yk_pipeline_options", "reduction", .kind = WHOLE, .measure = pipeline_reduction, .fallback = YK_REDUCE_MEAN,
     .other = YK_REDUCE_SUM, .refused = {-1, YK_REDUCE_NONE}},
    {"yk_pipeline_options", "group", .kind = OBJECT}, /* pipeline_group_test.c */
    {"yk_ddp_options", "group", .kind = OBJECT},
    {"yk_ddp_options", "bucket_cap_mb", .kind = NUMBER, .measure = ddp_bucket_cap_mb, .fallback = 25, .other = 2,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_ddp_options", "first_bucket_mb", .kind = NUMBER, .measure = ddp_first_bucket_mb, .fallback = 1, .other = 2,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_ddp_options", "broadcast_buffers", .kind = FLAG},
    {"yk_ddp_options", "init_sync", .kind = FLAG},
    {"yk_ddp_options", "find_unused_parameters", .kind = FLAG},
    {"yk_ddp_options", "comm_hook", .kind = OBJECT},
    {"yk_ddp_options", "devices", .kind = OBJECT},
    {"yk_ddp_options", "count", .kind = OBJECT}, /* of devices[]: ddp_devices_test.c */
    {"yk_ddp_options", "output_device", .kind = OBJECT},
    {"yk_join_options", "divide_by_active", .kind = FLAG},
    {"yk_join_options", "throw_on_early_termination", .kind = FLAG},
    {"yk_elastic_options", "model", .kind = OBJECT},
    {"yk_elastic_options", "optimizer", .kind = OBJECT},
    {"yk_elastic_options", "schedule", .kind = OBJECT},
    {"yk_elastic_options", "scaler", .kind = OBJECT},
    {"yk_elastic_options", "loader", .kind = OBJECT},
    {"yk_elastic_options", "virtual_ranks", .kind = WHOLE, .measure = elastic_virtual_ranks, .fallback = 1, .other = 4,
     .refused = {-1, 70000}, .stated = "as many as there are processes"},
    {"yk_elastic_options", "accumulate", .kind = WHOLE, .measure = elastic_accumulate, .fallback = 1, .other = 3,
     .refused = {-1, 1e10}},
    {"yk_elastic_options", "different_seeds", .kind = FLAG},
    {"yk_elastic_options", "balance", .kind = FLAG},
    {"yk_elastic_options", "survive", .kind = FLAG},
    {"yk_elastic_options", "own", .kind = OBJECT},
    {"yk_elastic_options", "own_bytes", .kind = OBJECT}, /* of own: survive_test.c */
    {"yk_elastic_options", "alike", .kind = OBJECT},     /* a text: elastic_test.c */
    {"yk_elastic_options", "group", .kind = OBJECT},
    {"yk_rpc_init_options", "timeout", .kind = ABOVE, .measure = rpc_init_timeout, .fallback = 60, .other = 5,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_rpc_init_options", "threads", .kind = WHOLE, .measure = rpc_init_threads, .fallback = 16, .other = 3,
     .refused = {-1, 257}, .stated = "1 to 256"},
    {"yk_rpc_init_options", "store", .kind = OBJECT},
    {"yk_rpc_init_options", "world_size", .kind = WHOLE, .measure = rpc_init_world_size, .fallback = 1, .other = NONE,
     .refused = {-1}, .stated = "Not given: WORLD_SIZE, or with a store 1"},
    {"yk_rpc_init_options", "host", .kind = OBJECT},
    {"yk_rpc_init_options", "snapshots", .kind = OBJECT},   /* rpc_keep_test.c */
    {"yk_rpc_init_options", "device_maps", .kind = OBJECT}, /* rpc_devices_test.c */
    {"yk_rpc_init_options", "max_message", .kind = WHOLE, .measure = rpc_init_max_message, .fallback = 1 << 30,
     .other = 4096, .refused = {-1}},
    {"yk_rpc_options", "timeout", .kind = ABOVE, .measure = rpc_timeout, .fallback = 60, .other = 5,
     .refused = {-1, INFINITY, 1e300}, .stated = "not given: the worker's time-out"},
    {"yk_rpc_options", "shared_name", .kind = OBJECT}, /* rpc_test.c */
    {"yk_publish_options", "versions", .kind = WHOLE, .measure = publish_versions, .fallback = 16, .other = 3,
     .refused = {1, 65, -1}},
    {"yk_fetch_options", "timeout", .kind = ABOVE, .measure = fetch_timeout, .fallback = 1, .other = 0.001,
     .refused = {-1, INFINITY, 1e300}, .stated = "not given: the worker's time-out"},
    {"yk_fetch_options", "at_least", .kind = WHOLE, .measure = fetch_at_least, .fallback = 1, .other = 2,
     .refused = {-1, INT64_MIN}},
    {"yk_parameter_server_options", "name", .kind = OBJECT}, /* param_server_test.c */
    {"yk_parameter_server_options", "mode", .kind = WHOLE, .measure = server_mode, .fallback = 0, .other = 1,
     .refused = {-1, 3}},
    {"yk_parameter_server_options", "staleness", .kind = WHOLE, .measure = server_staleness, .fallback = 0, .other = 2,
     .refused = {-1}},
    {"yk_parameter_server_options", "sgd", .kind = OBJECT},
    {"yk_parameter_server_options", "adagrad", .kind = OBJECT},
    {"yk_parameter_server_options", "adam", .kind = OBJECT},
    {"yk_parameter_server_options", "tables", .kind = OBJECT},
    {"yk_parameter_server_options", "sum", .kind = FLAG},
    {"yk_parameter_server_options", "rank", .kind = WHOLE, .measure = server_rank, .fallback = 0, .other = 1,
     .refused = {-1, 2}, .stated = "without a launcher 0 of 1"},
    {"yk_parameter_server_options", "trainers", .kind = WHOLE, .measure = server_trainers, .fallback = 1, .other = 2,
     .refused = {-1, 4097}, .stated = "without a launcher 0 of 1"},
    {"yk_parameter_server_options", "seed", .kind = WHOLE, .measure = server_seed, .fallback = 0, .other = 5},
    {"yk_parameter_server_options", "snapshots", .kind = OBJECT},
    {"yk_parameter_server_options", "snapshot_every", .kind = WHOLE, .measure = server_snapshot_every, .fallback = 100,
     .other = 3, .refused = {-1}},
    {"yk_parameter_server_options", "timeout", .kind = ABOVE, .measure = server_timeout, .fallback = 1, .other = 0.001,
     .refused = {-1, INFINITY, 1e300}, .stated = "not given: the worker's time-out"},
    {"yk_dist_backward_options", "timeout", .kind = ABOVE, .measure = dist_timeout, .fallback = 60, .other = 5,
     .refused = {-1, INFINITY, 1e300}, .stated = "not given: the worker's time-out"},
    {"yk_dist_backward_options", "retain_graph", .kind = FLAG},
    {"yk_tcp_store_options", "host", .kind = OBJECT},
    {"yk_tcp_store_options", "peer", .kind = OBJECT},
    {"yk_tcp_store_options", "port", .kind = WHOLE, .measure = store_port, .fallback = 0, .other = NONE,
     .refused = {-1, 70000}, .stated = "0 takes a free one"},
    {"yk_tcp_store_options", "is_server", .kind = FLAG},
    {"yk_tcp_store_options", "secret", .kind = OBJECT},
    {"yk_tcp_store_options", "secret_size", .kind = OBJECT},
    {"yk_tcp_store_options", "job_id", .kind = OBJECT},
    {"yk_tcp_store_options", "timeout", .kind = ABOVE, .measure = store_timeout, .fallback = 60, .other = 5,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_read_options", "map_location", .kind = WHOLE, .measure = read_map_location, .fallback = 0, .other = 1,
     .refused = {77}, .word = "device", .code = YK_ERR_DEVICE},
    {"yk_read_options", "locations", .kind = OBJECT},
    {"yk_read_options", "locate", .kind = OBJECT},
    {"yk_read_options", "user", .kind = OBJECT},
    {"yk_read_options", "mmap", .kind = FLAG},
    {"yk_weights_options", "strip_module", .kind = FLAG},
    {"yk_checkpoint_options", "weights_only", .kind = FLAG},
    {"yk_checkpoint_options", "strict", .kind = FLAG},
    {"yk_checkpoint_options", "mmap", .kind = FLAG},
    {"yk_checkpoint_options", "group", .kind = OBJECT},
    {"yk_checkpoint_options", "broadcast", .kind = FLAG},
    {"yk_summary_options", "flush_seconds", .kind = ABOVE, .measure = summary_flush_seconds, .fallback = 1,
     .other = 0.01, .refused = {-1, INFINITY}},
    {"yk_summary_options", "queue_bytes", .kind = WHOLE, .measure = summary_queue_bytes, .fallback = 64 << 20,
     .other = 1 << 20, .refused = {-1, 1000}},
    {"yk_onnx_options", "batch_dims", .kind = OBJECT},
    {"yk_onnx_options", "input_names", .kind = OBJECT},
    {"yk_onnx_options", "output_names", .kind = OBJECT},
    {"yk_onnx_options", "n_outputs", .kind = WHOLE, .measure = onnx_n_outputs, .fallback = 1, .other = 2,
     .refused = {-1, 0, 9}},
    {"yk_onnx_options", "external_data", .kind = FLAG},
    {"yk_profiler_options", "with_shapes", .kind = FLAG},
    {"yk_profiler_options", "with_memory", .kind = FLAG},
    {"yk_profiler_options", "wait", .kind = WHOLE, .measure = profiler_wait, .fallback = 0, .other = 1,
     .refused = {-1}},
    {"yk_profiler_options", "active", .kind = WHOLE, .measure = profiler_active, .fallback = 0, .other = 2,
     .refused = {-1}},
    {"yk_profiler_options", "memory", .kind = WHOLE, .measure = profiler_memory, .fallback = 256 << 20,
     .other = 1 << 20, .refused = {-1, 1000}},
    {"yk_checkpoint_manager_options", "keep", .kind = WHOLE, .measure = manager_keep, .fallback = 3, .other = 2,
     .refused = {-1}},
    {"yk_checkpoint_manager_options", "async", .kind = FLAG},
    {"yk_checkpoint_manager_options", "group", .kind = OBJECT},
    {"yk_checkpoint_manager_options", "sharded", .kind = FLAG},
    {"yk_checkpoint_manager_options", "state", .kind = OBJECT},
    /* arguments */
    {"yk_init_xavier_uniform", "gain", .kind = NUMBER, .measure = xavier_uniform_gain, .fallback = 1, .other = 2,
     .refused = {-1, INFINITY}},
    {"yk_init_xavier_normal", "gain", .kind = NUMBER, .measure = xavier_normal_gain, .fallback = 1, .other = 2,
     .refused = {-1, INFINITY}},
    {"yk_init_trunc_normal", "mean", .kind = NUMBER, .measure = trunc_normal_mean, .fallback = 0, .other = 1,
     .refused = {INFINITY}},
    {"yk_init_trunc_normal", "deviation", .kind = ABOVE, .measure = trunc_normal_deviation, .fallback = 1, .other = 2,
     .refused = {-1, INFINITY}},
    {"yk_init_trunc_normal", "a", .kind = NUMBER, .measure = trunc_normal_a, .fallback = -2, .other = -0.1,
     .refused = {3, INFINITY}},
    {"yk_init_trunc_normal", "b", .kind = NUMBER, .measure = trunc_normal_b, .fallback = 2, .other = 0.1,
     .refused = {-3, INFINITY}},
    {"yk_init_orthogonal", "gain", .kind = NUMBER, .measure = orthogonal_gain, .fallback = 1, .other = 2,
     .refused = {INFINITY}},
    {"yk_init_sparse", "sparsity", .kind = LITERAL}, /* the smallest number there is makes one element zero */
    {"yk_init_sparse", "deviation", .kind = NUMBER, .measure = sparse_deviation, .fallback = 0.01, .other = 1,
     .refused = {-1, INFINITY}},
    {"yk_max_pool2d_create", "stride", .kind = WHOLE, .measure = max_pool2d_stride, .fallback = 2, .other = 1,
     .refused = {-1}, .stated = "0: kernel"},
    {"yk_avg_pool2d_create", "stride", .kind = WHOLE, .measure = avg_pool2d_stride, .fallback = 2, .other = 1,
     .refused = {-1}, .stated = "0: kernel"},
    {"yk_max_pool1d_create", "stride", .kind = WHOLE, .measure = max_pool1d_stride, .fallback = 2, .other = 1,
     .refused = {-1}, .stated = "0: kernel"},
    {"yk_max_pool3d_create", "stride", .kind = WHOLE, .measure = max_pool3d_stride, .fallback = 2, .other = 1,
     .refused = {-1}, .stated = "0: kernel"},
    {"yk_avg_pool1d_create", "stride", .kind = WHOLE, .measure = avg_pool1d_stride, .fallback = 2, .other = 1,
     .refused = {-1}, .stated = "0: kernel"},
    {"yk_avg_pool3d_create", "stride", .kind = WHOLE, .measure = avg_pool3d_stride, .fallback = 2, .other = 1,
     .refused = {-1}, .stated = "0: kernel"},
    {"yk_layer_norm", "eps", .kind = NUMBER, .measure = layer_norm_eps, .fallback = 1e-5, .other = 1,
     .refused = {-1e-5, INFINITY}},
    {"yk_step_lr", "gamma", .kind = NUMBER, .measure = step_lr_gamma, .fallback = 0.1, .other = 0.5,
     .refused = {-0.1, INFINITY}},
    {"yk_multi_step_lr", "gamma", .kind = NUMBER, .measure = multi_step_lr_gamma, .fallback = 0.1, .other = 0.5,
     .refused = {-0.1, INFINITY}},
    {"yk_exponential_lr", "gamma", .kind = NUMBER, .measure = exponential_lr_gamma, .fallback = NONE, .other = 0.5,
     .refused = {-0.1, INFINITY}},
    {"yk_linear_lr", "start_factor", .kind = ABOVE, .measure = linear_lr_start, .fallback = 1.0 / 3, .other = 0.75,
     .refused = {-0.1, 1.5}},
    {"yk_linear_lr", "end_factor", .kind = NUMBER, .measure = linear_lr_end, .fallback = 1, .other = 0.5,
     .refused = {-0.1, 1.5}},
    {"yk_swa_lr", "swa_lr", .kind = NUMBER, .measure = swa_lr_rate, .fallback = 0.05, .other = 0.5,
     .refused = {-1, INFINITY}},
    {"yk_constant_lr", "factor", .kind = NUMBER, .measure = constant_lr_factor, .fallback = 1.0 / 3, .other = 0.5,
     .refused = {-0.1, 1.5}},
    {"yk_polynomial_lr", "power", .kind = NUMBER, .measure = polynomial_lr_power, .fallback = 1, .other = 2,
     .refused = {-0.1, INFINITY}},
    {"yk_cosine_warm_restarts_lr", "eta_min", .kind = NUMBER, .measure = restarts_eta_min, .fallback = 0, .other = 0.05,
     .refused = {-0.1, INFINITY}},
    {"yk_one_cycle_lr", "max_lr", .kind = NUMBER, .measure = one_cycle_max_lr, .fallback = 0.5, .other = 1,
     .refused = {-0.1, INFINITY}},
    {"yk_cyclic_lr", "base_lr", .kind = NUMBER, .measure = cyclic_base_lr, .fallback = 0.5, .other = 0.1,
     .refused = {-0.1, INFINITY}},
    {"yk_cyclic_lr", "max_lr", .kind = NUMBER, .measure = cyclic_max_lr, .fallback = 0.5, .other = 1,
     .refused = {-0.1, INFINITY}},
    {"yk_linear_warmup_lr", "start_factor", .kind = NUMBER, .measure = warmup_start_factor, .fallback = 1.0 / 3,
     .other = 0.5, .refused = {-0.1, 1.5}},
    {"yk_store_get", "timeout", .kind = ABOVE, .measure = store_get_timeout, .fallback = 0.25, .other = 0.001,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_store_wait", "timeout", .kind = ABOVE, .measure = store_wait_timeout, .fallback = 0.25, .other = 0.001,
     .refused = {-1, INFINITY}},
    {"yk_store_watch", "timeout", .kind = ABOVE, .measure = store_watch_timeout, .fallback = 0.25, .other = 0.001,
     .refused = {-1, INFINITY}},
    {"yk_rpc_wait_for", "timeout", .kind = ABOVE, .measure = rpc_wait_for_timeout, .fallback = 1, .other = 0.001,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_rpc_watch", "silence", .kind = ABOVE, .measure = rpc_watch_silence, .fallback = 30, .other = 5,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_ref_watch", "silence", .kind = ABOVE, .measure = ref_watch_silence, .fallback = 30, .other = 5,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_rpc_shutdown", "timeout", .kind = ABOVE, .measure = rpc_shutdown_timeout, .fallback = 30, .other = 0.001,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_future_wait", "timeout", .kind = ABOVE, .measure = future_wait_timeout, .fallback = 0.25, .other = 0.001,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_future_wait_any", "timeout", .kind = ABOVE, .measure = future_wait_any_timeout, .fallback = 0.25,
     .other = 0.001, .refused = {-1, INFINITY, 1e300}},
    {"yk_spawn_context_join", "timeout", .kind = LITERAL}, /* 0 is no number of seconds: spawn_test.c */
    {"yk_cosine_lr", "eta_min", .kind = NUMBER, .measure = cosine_lr_eta_min, .fallback = 0, .other = 0.05,
     .refused = {-0.1, INFINITY}},
    {"yk_dropout_create", "p", .kind = NUMBER, .measure = dropout_layer_p, .fallback = 0, .other = 0.5,
     .refused = {-0.5, 1.5}},
    {"yk_dropout", "p", .kind = NUMBER, .measure = dropout_p, .fallback = 0, .other = 0.5, .refused = {-0.5, 1.5}},
    {"yk_random_vertical_flip", "p", .kind = NUMBER, .measure = vertical_flip_p, .fallback = 0, .other = 1,
     .refused = {-0.5, 1.5}},
    {"yk_random_grayscale", "p", .kind = NUMBER, .measure = grayscale_p, .fallback = 0, .other = 1,
     .refused = {-0.5, 1.5}},
    {"yk_random_horizontal_flip", "p", .kind = NUMBER, .measure = flip_p, .fallback = 0, .other = 1,
     .refused = {-0.5, 1.5}},
    {"yk_clip_grad_norm", "max_norm", .kind = NUMBER, .measure = clip_max_norm, .fallback = 0, .other = 1,
     .refused = {-1}},
    {"yk_clip_grad_norm_type", "max_norm", .kind = NUMBER, .measure = clip_type_max_norm, .fallback = 0, .other = 1,
     .refused = {-1}},
    {"yk_clip_grad_norm_type", "norm_type", .kind = ABOVE, .measure = clip_norm_type, .fallback = 2, .other = 1,
     .refused = {-1}},
    {"yk_get_total_norm", "norm_type", .kind = ABOVE, .measure = total_norm_type, .fallback = 2, .other = 1,
     .refused = {-1}},
    {"yk_clip_grad_value", "limit", .kind = NUMBER, .measure = clip_limit, .fallback = 0, .other = 1, .refused = {-1}},
    {"yk_optimizer_set_lr", "lr", .kind = NUMBER, .measure = set_lr, .fallback = 0, .other = 1,
     .refused = {-1, INFINITY}},
    {"yk_optimizer_set_option", "value", .kind = NUMBER, .measure = set_option, .fallback = 0, .other = 1,
     .refused = {-1, INFINITY}, .word = "weight_decay"},
    {"yk_dist_optimizer_set_lr", "lr", .kind = NUMBER, .measure = dist_set_lr, .fallback = 0, .other = 1,
     .refused = {-1, INFINITY}},
    {"yk_parameter_server_set_lr", "lr", .kind = NUMBER, .measure = server_set_lr, .fallback = 0, .other = 1,
     .refused = {-1, INFINITY}},
    {"yk_store_set_timeout", "seconds", .kind = ABOVE, .measure = store_set_timeout, .fallback = NONE, .other = 5,
     .refused = {-1, INFINITY, 1e300}},
    {"yk_init_kaiming_uniform", "slope", .kind = NUMBER, .measure = kaiming_uniform_slope, .fallback = 0, .other = 1,
     .refused = {INFINITY}},
    {"yk_init_kaiming_normal", "slope", .kind = NUMBER, .measure = kaiming_normal_slope, .fallback = 0, .other = 1,
     .refused = {INFINITY}},
    {"yk_value_real", "value", .kind = LITERAL},
    {"yk_progress_loss", "loss", .kind = LITERAL},
    {"yk_init_uniform", "low", .kind = LITERAL},
    {"yk_init_uniform", "high", .kind = LITERAL},
    {"yk_init_normal", "mean", .kind = LITERAL},
    {"yk_init_normal", "deviation", .kind = LITERAL},
    {"yk_init_constant", "value", .kind = LITERAL},
    {"yk_add_scaled", "alpha", .kind = LITERAL},
    {"yk_add_scalar", "b", .kind = LITERAL},
    {"yk_sub_scalar", "b", .kind = LITERAL},
    {"yk_mul_scalar", "b", .kind = LITERAL},
    {"yk_div_scalar", "b", .kind = LITERAL},
    {"yk_pow_scalar", "b", .kind = LITERAL},
    {"yk_rsub_scalar", "b", .kind = LITERAL},
    {"yk_eq_scalar", "b", .kind = LITERAL},
    {"yk_ne_scalar", "b", .kind = LITERAL},
    {"yk_lt_scalar", "b", .kind = LITERAL},
    {"yk_le_scalar", "b", .kind = LITERAL},
    {"yk_gt_scalar", "b", .kind = LITERAL},
    {"yk_ge_scalar", "b", .kind = LITERAL},
    {"yk_clamp", "low", .kind = LITERAL},
    {"yk_clamp", "high", .kind = LITERAL},
    {"yk_add_", "alpha", .kind = LITERAL},
    {"yk_mul_scalar_", "y", .kind = LITERAL},
    {"yk_sub_", "alpha", .kind = LITERAL},
    {"yk_add_scalar_", "y", .kind = LITERAL},
    {"yk_sub_scalar_", "y", .kind = LITERAL},
    {"yk_div_scalar_", "y", .kind = LITERAL},
    {"yk_pow_scalar_", "y", .kind = LITERAL},
    {"yk_clamp_", "low", .kind = LITERAL},
    {"yk_clamp_", "high", .kind = LITERAL},
    {"yk_addcmul_", "value", .kind = LITERAL},
    {"yk_addcdiv_", "value", .kind = LITERAL},
    {"yk_lerp_scalar_", "weight", .kind = LITERAL},
    {"yk_fill_", "value", .kind = LITERAL},
    {"yk_uniform_", "low", .kind = LITERAL},
    {"yk_uniform_", "high", .kind = LITERAL},
    {"yk_normal_", "mean", .kind = LITERAL},
    {"yk_normal_", "deviation", .kind = LITERAL},
    {"yk_var_dims", "correction", .kind = LITERAL},
    {"yk_index_add_", "alpha", .kind = LITERAL},
    {"yk_scatter_dim_value_", "value", .kind = LITERAL},
    {"yk_masked_fill", "value", .kind = LITERAL},
    {"yk_masked_fill_", "value", .kind = LITERAL},
    {"yk_lerp_scalar", "weight", .kind = LITERAL},
    {"yk_addcmul", "value", .kind = LITERAL},
    {"yk_addcdiv", "value", .kind = LITERAL},
    {"yk_nan_to_num", "nan", .kind = LITERAL},
    {"yk_nan_to_num", "posinf", .kind = LITERAL},
    {"yk_nan_to_num", "neginf", .kind = LITERAL},
    {"yk_is_close", "rtol", .kind = LITERAL},
    {"yk_is_close", "atol", .kind = LITERAL},
    {"yk_all_close", "rtol", .kind = LITERAL},
    {"yk_all_close", "atol", .kind = LITERAL},
    {"yk_quantile", "q", .kind = LITERAL},
    {"yk_std_dims", "correction", .kind = LITERAL},
    {"yk_norm", "p", .kind = LITERAL},
    {"yk_cdist", "p", .kind = LITERAL},
    {"yk_leaky_relu", "negative_slope", .kind = LITERAL},
    {"yk_elu", "alpha", .kind = LITERAL},
    {"yk_softplus", "beta", .kind = LITERAL},
    {"yk_softplus", "threshold", .kind = LITERAL},
    {"yk_smooth_l1_loss", "beta", .kind = LITERAL},
    {"yk_huber_loss", "delta", .kind = LITERAL},
    {"yk_normalize_dim", "p", .kind = LITERAL},
    {"yk_normalize_dim", "eps", .kind = LITERAL},
    {"yk_cosine_similarity", "eps", .kind = LITERAL},
    {"yk_pairwise_distance", "p", .kind = LITERAL},
    {"yk_pairwise_distance", "eps", .kind = LITERAL},
    {"yk_cosine_embedding_loss", "margin", .kind = LITERAL},
    {"yk_margin_ranking_loss", "margin", .kind = LITERAL},
    {"yk_hinge_embedding_loss", "margin", .kind = LITERAL},
    {"yk_pad", "value", .kind = LITERAL},
    {"yk_floor_divide_scalar", "b", .kind = LITERAL},
    {"yk_remainder_scalar", "b", .kind = LITERAL},
    {"yk_leaky_relu_create", "negative_slope", .kind = LITERAL},
    {"yk_elu_create", "alpha", .kind = LITERAL},
    {"yk_group_norm", "eps", .kind = NUMBER, .measure = group_norm_eps, .fallback = 1e-5, .other = 1,
     .refused = {-1e-5, INFINITY}},
    {"yk_rms_norm", "eps", .kind = NUMBER, .measure = rms_norm_eps, .fallback = DBL_EPSILON, .other = 1,
     .refused = {-1e-5, INFINITY}},
    {"yk_local_response_norm", "alpha", .kind = LITERAL},
    {"yk_local_response_norm", "beta", .kind = LITERAL},
    {"yk_local_response_norm", "k", .kind = LITERAL},
    {"yk_local_response_norm_create", "alpha", .kind = LITERAL},
    {"yk_local_response_norm_create", "beta", .kind = LITERAL},
    {"yk_local_response_norm_create", "k", .kind = LITERAL},
    {"yk_softplus_create", "beta", .kind = LITERAL},
    {"yk_softplus_create", "threshold", .kind = LITERAL},
    {"yk_prelu_create", "init", .kind = LITERAL},
    {"yk_threshold", "threshold", .kind = LITERAL},
    {"yk_threshold", "value", .kind = LITERAL},
    {"yk_hardtanh", "min_val", .kind = LITERAL},
    {"yk_hardtanh", "max_val", .kind = LITERAL},
    {"yk_hardshrink", "lambd", .kind = LITERAL},
    {"yk_softshrink", "lambd", .kind = LITERAL},
    {"yk_celu", "alpha", .kind = LITERAL},
    {"yk_rrelu", "lower", .kind = LITERAL},
    {"yk_rrelu", "upper", .kind = LITERAL},
    {"yk_threshold_create", "threshold", .kind = LITERAL},
    {"yk_threshold_create", "value", .kind = LITERAL},
    {"yk_hardtanh_create", "min_val", .kind = LITERAL},
    {"yk_hardtanh_create", "max_val", .kind = LITERAL},
    {"yk_hardshrink_create", "lambd", .kind = LITERAL},
    {"yk_softshrink_create", "lambd", .kind = LITERAL},
    {"yk_celu_create", "alpha", .kind = LITERAL},
    {"yk_rrelu_create", "lower", .kind = LITERAL},
    {"yk_rrelu_create", "upper", .kind = LITERAL},
    {"yk_pad_create", "value", .kind = LITERAL},
    {"yk_cosine_similarity_create", "eps", .kind = LITERAL},
    {"yk_pairwise_distance_create", "p", .kind = LITERAL},
    {"yk_pairwise_distance_create", "eps", .kind = LITERAL},
    {"yk_lp_pool1d", "p", .kind = LITERAL},
    {"yk_lp_pool2d", "p", .kind = LITERAL},
    {"yk_lp_pool3d", "p", .kind = LITERAL},
    {"yk_lp_pool1d_create", "p", .kind = LITERAL},
    {"yk_lp_pool2d_create", "p", .kind = LITERAL},
    {"yk_lp_pool3d_create", "p", .kind = LITERAL},
    {"yk_dropout1d", "p", .kind = LITERAL},
    {"yk_dropout2d", "p", .kind = LITERAL},
    {"yk_dropout3d", "p", .kind = LITERAL},
    {"yk_alpha_dropout", "p", .kind = LITERAL},
    {"yk_feature_alpha_dropout", "p", .kind = LITERAL},
    {"yk_dropout1d_create", "p", .kind = LITERAL},
    {"yk_dropout2d_create", "p", .kind = LITERAL},
    {"yk_dropout3d_create", "p", .kind = LITERAL},
    {"yk_alpha_dropout_create", "p", .kind = LITERAL},
    {"yk_feature_alpha_dropout_create", "p", .kind = LITERAL},
    {"yk_linspace", "start", .kind = LITERAL},
    {"yk_linspace", "end", .kind = LITERAL},
    {"yk_plateau_step", "metric", .kind = LITERAL},
    {"yk_summary_scalar", "value", .kind = LITERAL},
    {"yk_full", "value", .kind = LITERAL},
    {"yk_scalar", "value", .kind = LITERAL},
    {"yk_arange", "start", .kind = LITERAL},
    {"yk_arange", "end", .kind = LITERAL},
    {"yk_arange", "step", .kind = LITERAL},
    {"yk_full_like", "value", .kind = LITERAL},
    {"yk_full_like_with", "value", .kind = LITERAL},
    {"yk_new_full", "value", .kind = LITERAL},
};
enum { ROWS = sizeof(rows) / sizeof(*rows) };

/* ---- the tables are of the headers ------------------------------------------------------------------------------- */

static const header_entry *find(const header_entry *entries, size_t n, const row *r)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(entries[i].owner, r->owner) == 0 && strcmp(entries[i].name, r->name) == 0)
            return &entries[i];
    return NULL;
}
#define COUNT(table) (sizeof(table) / sizeof(*(table)))

static const header_entry *declared(const row *r)
{
    const header_entry *e = find(header_members, COUNT(header_members), r);
    return e ? e : find(header_arguments, COUNT(header_arguments), r);
}

static int without_row(const header_entry *entries, size_t n)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        int r = 0;
        while (r < ROWS && (strcmp(rows[r].owner, entries[i].owner) != 0 || strcmp(rows[r].name, entries[i].name) != 0))
            r++;
        if (r == ROWS) {
            print_message("%s: %s has no row\n", entries[i].owner, entries[i].name);
            bad++;
        }
    }
    return bad;
}

static void every_member_has_a_row(void **state)
{
    (void)state;
    assert_true(COUNT(header_members) > 100 && COUNT(header_arguments) > 50);
    assert_int_equal(without_row(header_members, COUNT(header_members)), 0);
    assert_int_equal(without_row(header_arguments, COUNT(header_arguments)), 0);
    int bad = 0;
    for (int i = 0; i < ROWS; i++) {
        const row *r = &rows[i];
        const header_entry *e = declared(r);
        const char *wrong = NULL;
        bool floating = e && strncmp(e->type, "double", 6) == 0;
        if (!e)
            wrong = "is not in the headers";
        else if ((strcmp(e->type, "bool") == 0) != (r->kind == FLAG))
            wrong = "is a flag, or is none";
        else if (floating != (r->kind == NUMBER || r->kind == ABOVE || r->kind == LITERAL))
            wrong = "is a floating number, or is none";
        else if (r->stated && !strstr(e->comment, r->stated))
            wrong = "does not state its default";
        else if (strstr(e->fallback, "NOT_GIVEN") && !r->stated && strcmp(r->owner, "yk_print_options") != 0 &&
                 strcmp(r->name, "world_size") != 0 && strcmp(r->name, "rank") != 0)
            wrong = "has a default that is nowhere stated";
        if (wrong) {
            print_message("%s: %s %s: %s\n", r->owner, r->name, wrong, e ? e->comment : "");
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

/* ---- what the members do ----------------------------------------------------------------------------------------- */

static double measured(const row *r, double value)
{
    yk_scope scope = yk_scope_begin();
    double result = r->measure(value);
    yk_scope_end(scope);
    return result;
}

static bool same(double a, double b)
{
    return a == b || fabs(a - b) <= 1e-12 * fabs(b) + 1e-300;
}

/* The way in which the error is wrong, which must have the code, and name member and value; NULL if it is right. */
static const char *misnamed(const row *r, double value, double result)
{
    const yk_error *e = yk_last_error();
    if (!isnan(result) || !e)
        return "was taken";
    if (e->code != (r->code ? r->code : YK_ERR_ARGUMENT))
        return "has another code";
    if (!strstr(e->message, r->word ? r->word : r->name))
        return "is not named";
    char short_text[64], long_text[64], whole[64] = "?";
    snprintf(short_text, sizeof(short_text), "%g", value);
    yk__number_format(value, long_text);
    if (r->kind == WHOLE)
        snprintf(whole, sizeof(whole), "%lld", (long long)value);
    if (value == YK_NOT_GIVEN)
        return strstr(e->message, "not given") ? NULL : "is not said to be missing";
    bool dtype = r->code == YK_ERR_DTYPE && value < YK__DTYPES && strstr(e->message, yk_dtype_name((yk_dtype)value));
    return dtype || strstr(e->message, short_text) || strstr(e->message, long_text) || strstr(e->message, whole)
               ? NULL
               : "has another value in the error";
}

static int refuse(const row *r, double value)
{
    double result = measured(r, value);
    const char *wrong = misnamed(r, value, result);
    if (wrong)
        print_message("%s: %s = %g %s (%g: %s)\n", r->owner, r->name, value, wrong, result,
                      yk_last_error() ? yk_last_error()->message : "no error");
    yk_clear_error();
    return wrong != NULL;
}

static bool differ(const row *r, const char *a, double x, const char *b, double y)
{
    if (isnan(x) || isnan(y) || !same(x, y))
        return true;
    print_message("%s: %s: %s gives %.17g, and so does %s\n", r->owner, r->name, a, x, b);
    return false;
}

/* Not given: the default, or an error where there is none. Gives what it measures then. */
static int check_default(const row *r, double other, double *usual)
{
    *usual = other;
    if (isnan(r->fallback))
        return refuse(r, YK_NOT_GIVEN);
    *usual = measured(r, YK_NOT_GIVEN);
    double fallback = measured(r, r->fallback);
    expect_ok(YK_OK);
    if (isnan(*usual) || !same(*usual, fallback)) {
        print_message("%s: %s: not given it is %.17g, as %g %.17g\n", r->owner, r->name, *usual, r->fallback, fallback);
        return 1;
    }
    return !differ(r, "the default", *usual, "another number", other);
}

static int check_row(const row *r)
{
    int bad = 0;
    double other = isnan(r->other) ? NAN : measured(r, r->other), usual = other;
    bool argument = !find(header_members, COUNT(header_members), r);
    expect_ok(YK_OK);
    if (argument && r->kind == WHOLE) /* the kernel's stride: the header says what 0 is */
        bad += !same(measured(r, 0), measured(r, r->fallback)) || !differ(r, "0", measured(r, 0), "another", other);
    else if (argument && strcmp(r->name, "timeout") != 0)
        usual = isnan(r->fallback) ? other : measured(r, r->fallback);
    else
        bad += check_default(r, other, &usual);
    if (r->kind == NUMBER) { /* as the smallest number there is, and not as the default */
        double zero = measured(r, 0), smallest = measured(r, DBL_TRUE_MIN);
        expect_ok(YK_OK);
        if (isnan(zero) || !same(zero, smallest)) {
            print_message("%s: %s: 0 gives %.17g, %g gives %.17g\n", r->owner, r->name, zero, DBL_TRUE_MIN, smallest);
            bad++;
        }
        bad += r->fallback != 0 && !differ(r, "0", zero, "the default", usual);
    } else if (r->kind == ABOVE || (!argument && r->fallback != 0 && !r->zero)) {
        bad += refuse(r, 0);
    } else if (r->zero) {
        double zero = measured(r, 0);
        expect_ok(YK_OK);
        bad += isnan(zero) || (!isnan(r->fallback) && !differ(r, "0", zero, "the default", usual));
    }
    if (r->kind == NUMBER || r->kind == ABOVE)
        bad += refuse(r, NAN);
    for (int i = 0; i < 4 && r->refused[i] != 0; i++)
        bad += refuse(r, r->refused[i]);
    return bad;
}

static void what_is_given_is_taken(void **state)
{
    (void)state;
    int bad = 0;
    for (int i = 0; i < ROWS; i++)
        if (rows[i].measure)
            bad += check_row(&rows[i]);
    assert_int_equal(bad, 0);
}

/* ---- how options are made ---------------------------------------------------------------------------------------- */

/* type_DEFAULTS, which C takes, has what YK_DEFAULT says, which C++ takes. */
static void defaults_are_those_of_the_struct(void **state)
{
    (void)state;
    int bad = 0;
#define COMPARE(type, member, ...)                                                                                     \
    {                                                                                                                  \
        const type o = *YK_OPTIONS(type);                                                                              \
        __typeof__(o.member) stated = {__VA_ARGS__};                                                                   \
        if (memcmp(&o.member, &stated, sizeof(stated)) != 0) {                                                         \
            print_message("%s: %s is not %s in %s_DEFAULTS\n", #type, #member, #__VA_ARGS__, #type);                   \
            bad++;                                                                                                     \
        }                                                                                                              \
    }
    HEADER_DEFAULTS(COMPARE)
    assert_int_equal(bad, 0);
}

/* Flags and pointers, too: false in place of true, NULL in place of an object. */
static void flags_and_pointers_are_taken(void **state)
{
    (void)state;
#define INVERT(type, member, ...)                                                                                      \
    assert_true(YK_OPTIONS(type, .member = true)->member && !YK_OPTIONS(type, .member = false)->member);
    HEADER_FLAGS(INVERT)
    yk_scope scope = yk_scope_begin();
    assert_int_equal(yk_module_parameter_count(yk_linear_create(3, 2, YK_OPTIONS(yk_linear_options, .bias = false))),
                     6);
    assert_int_equal(yk_module_parameter_count(yk_linear_create(3, 2, YK_OPTIONS(yk_linear_options, .bias = true))), 8);
    yk_lstm_cell_options cell = *YK_OPTIONS(yk_lstm_cell_options, .bias = false); /* a variable, set afterwards */
    assert_int_equal(yk_module_parameter_count(yk_lstm_cell_create(2, 1, &cell)), 12);
    cell.bias = true;
    assert_int_equal(yk_module_parameter_count(yk_lstm_cell_create(2, 1, &cell)), 20);
    yk_adam_options adam = *YK_OPTIONS(yk_adam_options, .lr = 0.1, .weight_decay = 0.3);
    adam.weight_decay = 0;
    yk_tensor *x, *y;
    yk_optimizer *set = yk_adamw(one_parameter(&x), &adam);
    yk_optimizer *given = yk_adamw(one_parameter(&y), YK_OPTIONS(yk_adam_options, .lr = 0.1, .weight_decay = 0));
    assert_true(stepped(set, x) == stepped(given, y));
    const int64_t *none = NULL;
    yk_mlp_options mlp = *YK_OPTIONS(yk_mlp_options, .hidden = none, .hidden_count = 0);
    assert_int_equal(yk_module_child_count(yk_mlp(&mlp)), 1);
    expect_ok(YK_OK);
    yk_scope_end(scope);
}

static yk_module *layer(void)
{
    return yk_linear_create(2, 2, NULL);
}
static yk_tensor *ones(void)
{
    return yk_ones(YK_SHAPE(1, 1, 4, 4), NULL);
}
static yk_status grad_with(const yk_autograd_grad_options *o)
{
    yk_tensor *x = ones(), *g;
    return yk_autograd_grad(&x, 1, &x, 1, NULL, &g, o);
}
struct plain {
    const char *type;
    bool (*taken)(const void *o);
};
#define PLAIN(name, type, call)                                                                                        \
    static bool plain_##name(const void *given)                                                                        \
    {                                                                                                                  \
        const type *o = given;                                                                                         \
        return call;                                                                                                   \
    }
/* True if a worker takes the options for any call. */
static bool rpc_with(const yk_rpc_options *o)
{
    expect_ok(yk_rpc_register("options_answer", rpc_answer));
    expect_ok(yk_rpc_init("plain", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
    bool taken = yk_rpc_sync("plain", "options_answer", NULL, o) || yk_rpc_async("plain", "options_answer", NULL, o) ||
                 yk_rpc_remote("plain", "options_answer", NULL, o);
    (void)!yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN);
    return taken;
}
#define PLAIN_ROWS(X)                                                                                                  \
    X(tensor, yk_tensor_options,                                                                                       \
      yk_zeros(YK_SHAPE(2), o) || yk_arange(0, 3, 1, o) || yk_randint(0, 9, YK_SHAPE(2), o) || yk_eye(2, 2, o) ||      \
          yk_linspace(0, 1, 3, o) || yk_comm_alloc(YK_SHAPE(2), o) || yk_rpc_alloc(YK_SHAPE(2), o))                    \
    X(like, yk_like_options, yk_zeros_like_with(ones(), o) || yk_new_ones(ones(), YK_SHAPE(2), o))                     \
    X(print, yk_print_options, !yk_set_printoptions(o))                                                                \
    X(backward, yk_backward_options, !yk_backward_with(ones(), o))                                                     \
    X(autograd_grad, yk_autograd_grad_options, !grad_with(o))                                                          \
    X(autocast, yk_autocast_options, (yk_autocast_end(yk_autocast_begin(YK_CPU, YK_BF16, o)), false))                  \
    X(gradcheck, yk_gradcheck_options, !yk_gradcheck(watched, (yk_tensor *[]){ones()}, 1, NULL, o))                    \
    X(conv2d, yk_conv2d_options, yk_conv2d(ones(), ones(), NULL, o))                                                   \
    X(conv, yk_conv_options,                                                                                           \
      yk_conv1d(ones(), ones(), NULL, o) || yk_conv3d(ones(), ones(), NULL, o) ||                                      \
          yk_conv_transpose1d(ones(), ones(), NULL, o) || yk_conv_transpose2d(ones(), ones(), NULL, o) ||              \
          yk_conv_transpose3d(ones(), ones(), NULL, o))                                                                \
    X(pool2d, yk_pool2d_options,                                                                                       \
      yk_max_pool2d(ones(), o) || yk_avg_pool2d(ones(), o) || yk_max_pool2d_create(2, 0, o) ||                         \
          yk_avg_pool2d_create(2, 0, o))                                                                               \
    X(pool, yk_pool_options,                                                                                           \
      yk_max_pool1d(ones(), o) || yk_max_pool3d(ones(), o) || yk_avg_pool1d(ones(), o) || yk_avg_pool3d(ones(), o) ||  \
          yk_lp_pool1d(ones(), 2, o) || yk_lp_pool2d(ones(), 2, o) || yk_lp_pool3d(ones(), 2, o) ||                    \
          yk_max_pool1d_create(2, 0, o) || yk_max_pool3d_create(2, 0, o) || yk_avg_pool1d_create(2, 0, o) ||           \
          yk_avg_pool3d_create(2, 0, o))                                                                               \
    X(batch_norm, yk_batch_norm_options, yk_batch_norm(ones(), NULL, NULL, NULL, NULL, o))                             \
    X(attention, yk_attention_options, yk_scaled_dot_product_attention(ones(), ones(), ones(), o))                     \
    X(lstm, yk_lstm_options, !yk_lstm(ones(), NULL, NULL, NULL, 0, o, NULL, NULL, NULL))                               \
    X(gru, yk_gru_options, !yk_gru(ones(), NULL, NULL, 0, o, NULL, NULL))                                              \
    X(rnn, yk_rnn_options, !yk_rnn(ones(), NULL, NULL, 0, o, NULL, NULL))                                              \
    X(cross_entropy, yk_cross_entropy_options, yk_cross_entropy(ones(), ones(), o))                                    \
    X(bce, yk_binary_cross_entropy_options,                                                                            \
      yk_binary_cross_entropy(ones(), ones(), o) || yk_binary_cross_entropy_with_logits(ones(), ones(), o))            \
    X(nll_loss, yk_nll_loss_options, yk_nll_loss(ones(), ones(), o))                                                   \
    X(kl_div, yk_kl_div_options, yk_kl_div(ones(), ones(), o))                                                         \
    X(gaussian_nll_loss, yk_gaussian_nll_loss_options, yk_gaussian_nll_loss(ones(), ones(), ones(), o))                \
    X(triplet_margin_loss, yk_triplet_margin_loss_options, yk_triplet_margin_loss(ones(), ones(), ones(), o))          \
    X(multi_margin_loss, yk_multi_margin_loss_options, yk_multi_margin_loss(ones(), ones(), o))                        \
    X(sigmoid_focal_loss, yk_sigmoid_focal_loss_options, yk_sigmoid_focal_loss(ones(), ones(), o))                     \
    X(ctc_loss, yk_ctc_loss_options, yk_ctc_loss(ones(), ones(), ones(), ones(), o))                                   \
    X(load, yk_load_options, !yk_module_load_state_dict(layer(), yk_module_state_dict(layer()), o, NULL))              \
    X(linear, yk_linear_options, yk_linear_create(2, 2, o))                                                            \
    X(conv2d_module, yk_conv2d_module_options, yk_conv2d_create(2, 2, 1, o))                                           \
    X(conv_module, yk_conv_module_options,                                                                             \
      yk_conv1d_create(2, 2, 1, o) || yk_conv3d_create(2, 2, 1, o) || yk_conv_transpose1d_create(2, 2, 1, o) ||        \
          yk_conv_transpose2d_create(2, 2, 1, o) || yk_conv_transpose3d_create(2, 2, 1, o))                            \
    X(batch_norm2d, yk_batch_norm2d_options, yk_batch_norm2d_create(2, o) || yk_sync_batch_norm2d_create(2, o, NULL))  \
    X(batch_norm_module, yk_batch_norm_module_options, yk_batch_norm1d_create(2, o) || yk_batch_norm3d_create(2, o))   \
    X(group_norm, yk_group_norm_options, yk_group_norm_create(2, 4, o))                                                \
    X(instance_norm, yk_instance_norm_options, yk_instance_norm(ones(), NULL, NULL, NULL, NULL, o))                    \
    X(instance_norm_module, yk_instance_norm_module_options,                                                           \
      yk_instance_norm1d_create(2, o) || yk_instance_norm2d_create(2, o) || yk_instance_norm3d_create(2, o))           \
    X(upsample, yk_upsample_options, yk_interpolate(ones(), o) || yk_upsample_create(o))                               \
    X(fold, yk_fold_options,                                                                                           \
      yk_unfold(ones(), o) || yk_fold(ones(), 4, 4, o) || yk_unfold_create(o) || yk_fold_create(4, 4, o))              \
    X(grid_sample, yk_grid_sample_options, yk_grid_sample(ones(), ones(), o))                                          \
    X(max_unpool, yk_max_unpool_options,                                                                               \
      yk_max_unpool1d(ones(), ones(), o) || yk_max_unpool2d(ones(), ones(), o) ||                                      \
          yk_max_unpool3d(ones(), ones(), o) || yk_max_unpool1d_create(o) || yk_max_unpool2d_create(o) ||              \
          yk_max_unpool3d_create(o))                                                                                   \
    X(fractional_max_pool, yk_fractional_max_pool_options,                                                             \
      yk_fractional_max_pool2d(ones(), o) || yk_fractional_max_pool3d(ones(), o) ||                                    \
          yk_fractional_max_pool2d_create(o) || yk_fractional_max_pool3d_create(o))                                    \
    X(rms_norm, yk_rms_norm_options, yk_rms_norm_create(YK_SHAPE(4), o))                                               \
    X(layer_norm, yk_layer_norm_options, yk_layer_norm_create(YK_SHAPE(4), o))                                         \
    X(embedding, yk_embedding_options, yk_embedding_create(4, 2, o))                                                   \
    X(embedding_bag, yk_embedding_bag_options, yk_embedding_bag(ones(), ones(), o))                                    \
    X(embedding_bag_module, yk_embedding_bag_module_options, yk_embedding_bag_create(4, 2, o))                         \
    X(lstm_cell, yk_lstm_cell_options, yk_lstm_cell_create(2, 2, o))                                                   \
    X(lstm_module, yk_lstm_module_options, yk_lstm_create(2, 2, o))                                                    \
    X(gru_cell, yk_gru_cell_options, yk_gru_cell_create(2, 2, o))                                                      \
    X(rnn_cell, yk_rnn_cell_options, yk_rnn_cell_create(2, 2, o))                                                      \
    X(gru_module, yk_gru_module_options, yk_gru_create(2, 2, o))                                                       \
    X(rnn_module, yk_rnn_module_options, yk_rnn_create(2, 2, o))                                                       \
    X(multihead_attention, yk_multihead_attention_options, yk_multihead_attention(4, 2, o))                            \
    X(encoder_layer, yk_transformer_encoder_layer_options, yk_transformer_encoder_layer(4, 2, o))                      \
    X(decoder_layer, yk_transformer_decoder_layer_options, yk_transformer_decoder_layer(4, 2, o))                      \
    X(transformer, yk_transformer_options, yk_transformer(o))                                                          \
    X(mlp, yk_mlp_options, yk_mlp(o))                                                                                  \
    X(lenet, yk_lenet_options, yk_lenet(o))                                                                            \
    X(gpt2, yk_gpt2_options, yk_gpt2(o))                                                                               \
    X(generate, yk_generate_options, yk_gpt2_generate(NULL, NULL, o))                                                  \
    X(resnet, yk_resnet_options,                                                                                       \
      yk_resnet18(o) || yk_resnet34(o) || yk_resnet50(o) || yk_resnet101(o) || yk_resnet152(o))                        \
    X(vgg, yk_vgg_options, yk_vgg11(o) || yk_vgg13(o) || yk_vgg16(o) || yk_vgg19(o))                                   \
    X(mobilenet_v2, yk_mobilenet_v2_options, yk_mobilenet_v2(o))                                                       \
    X(efficientnet, yk_efficientnet_options, yk_efficientnet_b0(o))                                                    \
    X(vit, yk_vit_options, yk_vit_b_16(o))                                                                             \
    X(model, yk_model_options, yk_model("mlp", o))                                                                     \
    X(sgd, yk_sgd_options,                                                                                             \
      !yk_sgd_add_group(some_sgd(), yk_module_parameters(layer()), o) || yk_sgd(yk_module_parameters(layer()), o))     \
    X(adam, yk_adam_options, yk_adam(yk_module_parameters(layer()), o) || yk_adamw(yk_module_parameters(layer()), o))  \
    X(rmsprop, yk_rmsprop_options,                                                                                     \
      !yk_rmsprop_add_group(yk_rmsprop(yk_module_parameters(layer()), NULL), yk_module_parameters(layer()), o) ||      \
          yk_rmsprop(yk_module_parameters(layer()), o))                                                                \
    X(adagrad, yk_adagrad_options,                                                                                     \
      !yk_adagrad_add_group(yk_adagrad(yk_module_parameters(layer()), NULL), yk_module_parameters(layer()), o) ||      \
          yk_adagrad(yk_module_parameters(layer()), o))                                                                \
    X(adadelta, yk_adadelta_options,                                                                                   \
      !yk_adadelta_add_group(yk_adadelta(yk_module_parameters(layer()), NULL), yk_module_parameters(layer()), o) ||    \
          yk_adadelta(yk_module_parameters(layer()), o))                                                               \
    X(adamax, yk_adamax_options,                                                                                       \
      !yk_adamax_add_group(yk_adamax(yk_module_parameters(layer()), NULL), yk_module_parameters(layer()), o) ||        \
          yk_adamax(yk_module_parameters(layer()), o))                                                                 \
    X(nadam, yk_nadam_options,                                                                                         \
      !yk_nadam_add_group(yk_nadam(yk_module_parameters(layer()), NULL), yk_module_parameters(layer()), o) ||          \
          yk_nadam(yk_module_parameters(layer()), o))                                                                  \
    X(radam, yk_radam_options,                                                                                         \
      !yk_radam_add_group(yk_radam(yk_module_parameters(layer()), NULL), yk_module_parameters(layer()), o) ||          \
          yk_radam(yk_module_parameters(layer()), o))                                                                  \
    X(weight_norm, yk_weight_norm_options, yk_weight_norm(layer(), "weight", o))                                       \
    X(spectral_norm, yk_spectral_norm_options, yk_spectral_norm(layer(), "weight", o))                                 \
    X(muon, yk_muon_options,                                                                                           \
      !yk_muon_add_group(some_muon(), yk_module_parameters(layer()), o) || yk_muon(yk_module_parameters(layer()), o))  \
    X(lbfgs, yk_lbfgs_options, yk_lbfgs(yk_module_parameters(layer()), o))                                             \
    X(one_cycle, yk_one_cycle_options, yk_one_cycle_lr(some_sgd(), 1, 5, o))                                           \
    X(cyclic, yk_cyclic_options, yk_cyclic_lr(some_sgd(), 0.1, 1, o))                                                  \
    X(sparse_adam, yk_sparse_adam_options,                                                                             \
      yk_sparse_adam(yk_module_parameters(layer()), o) ||                                                              \
          !yk_sparse_adam_add_group(                                                                                   \
              yk_sparse_adam(yk_module_parameters(layer()), YK_OPTIONS(yk_sparse_adam_options, .lr = 1)),              \
              yk_module_parameters(layer()), o))                                                                       \
    X(averaged_model, yk_averaged_model_options, yk_averaged_model(layer(), o))                                        \
    X(plateau, yk_plateau_options, yk_reduce_lr_on_plateau(some_sgd(), o))                                             \
    X(grad_scaler, yk_grad_scaler_options, yk_grad_scaler_create(o))                                                   \
    X(random_resized_crop, yk_random_resized_crop_options, yk_random_resized_crop(8, o))                               \
    X(color_jitter, yk_color_jitter_options, yk_color_jitter(o))                                                       \
    X(random_rotation, yk_random_rotation_options, yk_random_rotation(0, 1, o))                                        \
    X(random_affine, yk_random_affine_options, yk_random_affine(0, 1, o))                                              \
    X(random_perspective, yk_random_perspective_options, yk_random_perspective(o))                                     \
    X(transform_targets, yk_transform_targets_options, yk_transform_targets(yk_grayscale(1), o))                       \
    X(sanitize_bounding_boxes, yk_sanitize_bounding_boxes_options, yk_sanitize_bounding_boxes(1, o))                   \
    X(rand_augment, yk_rand_augment_options, yk_rand_augment(o))                                                       \
    X(random_erasing, yk_random_erasing_options, yk_random_erasing(o))                                                 \
    X(gaussian_blur, yk_gaussian_blur_options, yk_gaussian_blur(3, o))                                                 \
    X(loader, yk_loader_options, loader_for(o))                                                                        \
    X(init, yk_init_options, !yk_init_process_group(o))                                                                \
    X(spawn, yk_spawn_options, !yk_spawn(has_port, NULL, 1, o) || yk_spawn_start(has_port, NULL, 1, o))                \
    X(process_group, yk_process_group_options, yk_process_group_create(NULL, 0, 1, o))                                 \
    X(data_parallel, yk_data_parallel_options, yk_data_parallel(layer(), o))                                           \
    X(pipeline, yk_pipeline_options, yk_pipeline((yk_module *[]){layer()}, 1, o))                                      \
    X(ddp, yk_ddp_options, yk_ddp(layer(), o))                                                                         \
    X(join, yk_join_options, !yk_join_begin(yk_ddp(layer(), NULL), o))                                                 \
    X(elastic, yk_elastic_options, yk_elastic_create(o))                                                               \
    X(tcp_store, yk_tcp_store_options, yk_tcp_store(o))                                                                \
    X(rpc_init, yk_rpc_init_options, !yk_rpc_init("plain", o))                                                         \
    X(dist_backward, yk_dist_backward_options, dist_with(o))                                                           \
    X(publish, yk_publish_options, publish_with(o, NULL))                                                              \
    X(fetch, yk_fetch_options, publish_with(NULL, o))                                                                  \
    X(parameter_server, yk_parameter_server_options, server_with(o))                                                   \
    X(rpc, yk_rpc_options, rpc_with(o))                                                                                \
    X(encode, yk_encode_options, yk_tokenizer_encode(yk_tokenizer_bytes(), "a", 1, o))                                 \
    X(token_blocks, yk_token_blocks_options, yk_token_blocks(ten_tokens(), o))                                         \
    X(shards, yk_shards_options, yk_shards("/tmp", o, NULL))                                                           \
    X(read, yk_read_options, yk_safetensors_read("none", o) || yk_pt_load("none", o))                                  \
    X(weights, yk_weights_options, yk_value_weights(yk_value_dict(), o))                                               \
    X(checkpoint, yk_checkpoint_options,                                                                               \
      !yk_checkpoint_load("none", &(yk_checkpoint_state){.model = layer()}, o, NULL) ||                                \
          !yk_checkpoint_load_latest("none", &(yk_checkpoint_state){.model = layer()}, o, NULL))                       \
    X(summary, yk_summary_options, yk_summary_create("/tmp/none", o))                                                  \
    X(onnx, yk_onnx_options, !yk_onnx_export(layer(), "none", (yk_tensor *[]){yk_zeros(YK_SHAPE(2, 4), NULL)}, 1, o))  \
    X(profiler, yk_profiler_options, !yk_profiler_start(o))                                                            \
    X(checkpoint_manager, yk_checkpoint_manager_options, yk_checkpoint_manager_create("/tmp/none", o))
PLAIN_ROWS(PLAIN)
#define PLAIN_ENTRY(name, type, call) {#type, plain_##name},
static const struct plain plain[] = {PLAIN_ROWS(PLAIN_ENTRY)};

/* A struct of zeros, as plain braces leave what they do not name: each call fails, and names YK_OPTIONS and the type.
 */
static void plain_braces_are_refused(void **state)
{
    (void)state;
    int bad = 0;
    static const char *const types[] = {HEADER_STRUCTS};
    for (size_t t = 0; t < COUNT(types); t++) {
        size_t i = 0;
        while (i < COUNT(plain) && strcmp(plain[i].type, types[t]) != 0)
            i++;
        bool found = i < COUNT(plain);
        uint64_t zeros[64] = {0};
        char expected[100];
        yk_scope scope = yk_scope_begin();
        bool taken = found && plain[i].taken(zeros);
        const yk_error *e = yk_last_error();
        snprintf(expected, sizeof(expected), "write YK_OPTIONS(%s, ...)", types[t]);
        if (!found || taken || !e || e->code != YK_ERR_ARGUMENT || !strstr(e->message, expected)) {
            print_message("%s: %s: %s\n", types[t],
                          !found  ? "no row"
                          : taken ? "was taken"
                                  : "another error",
                          e ? e->message : "no error");
            bad++;
        }
        yk_clear_error();
        yk_scope_end(scope);
    }
    assert_int_equal(bad, 0);
}

/* The environment's numbers stand before the built-in ones, and after what the program says. */
static void times_come_from_the_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("YOKE_COMM_TIMEOUT", "77", 1) | setenv("YOKE_JOIN_TIMEOUT", "7", 1), 0);
    yk_scope scope = yk_scope_begin();
    assert_true(group_timeout(YK_NOT_GIVEN) == 77 && group_join_timeout(YK_NOT_GIVEN) == 7);
    assert_true(group_timeout(5) == 5 && group_join_timeout(5) == 5);
    yk_scope_end(scope);
    assert_int_equal(unsetenv("YOKE_COMM_TIMEOUT") | unsetenv("YOKE_JOIN_TIMEOUT"), 0);
    expect_ok(YK_OK);
}

int main(void)
{
    setenv("YOKE_CPU_DEVICES", "2", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_member_has_a_row),           cmocka_unit_test(what_is_given_is_taken),
        cmocka_unit_test(defaults_are_those_of_the_struct), cmocka_unit_test(flags_and_pointers_are_taken),
        cmocka_unit_test(plain_braces_are_refused),         cmocka_unit_test(times_come_from_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
