/*
 * option_measures.h - for each member of an options struct a number that depends on it, computed with it: NaN, with the
 * error record set, where it is refused (options_test.c).
 */
#ifndef YOKE_TESTS_OPTION_MEASURES_H
#define YOKE_TESTS_OPTION_MEASURES_H

/* A member as v; for YK_NOT_GIVEN it stays as it is, not given. */
#define SET(o, member, v) ((v) == YK_NOT_GIVEN ? (void)0 : (void)((o).member = (__typeof__((o).member))(v)))
/* name(v) is of(the struct, with `member` as v and the others as given). */
#define MEASURE(name, type, member, of, ...)                                                                           \
    static double name(double v)                                                                                       \
    {                                                                                                                  \
        type o = *YK_OPTIONS(type, __VA_ARGS__);                                                                       \
        SET(o, member, v);                                                                                             \
        return of(&o);                                                                                                 \
    }
/* The same for a pair, both of them. */
#define MEASURE_PAIR(name, type, member, of, ...)                                                                      \
    static double name(double v)                                                                                       \
    {                                                                                                                  \
        type o = *YK_OPTIONS(type, __VA_ARGS__);                                                                       \
        SET(o, member[0], v), SET(o, member[1], v);                                                                    \
        return of(&o);                                                                                                 \
    }
/* The same for three. */
#define MEASURE_TRIPLE(name, type, member, of, ...)                                                                    \
    static double name(double v)                                                                                       \
    {                                                                                                                  \
        type o = *YK_OPTIONS(type, __VA_ARGS__);                                                                       \
        SET(o, member[0], v), SET(o, member[1], v), SET(o, member[2], v);                                              \
        return of(&o);                                                                                                 \
    }

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static const yk_tensor_options *const f64 = YK_OPTIONS(yk_tensor_options, .dtype = YK_F64);

/* One number of all elements, each with a weight of its own. */
static double digest(yk_tensor *x)
{
    if (!x)
        return NAN;
    yk_tensor *flat = yk_cast(yk_reshape(yk_detach(x), 1, (int64_t[]){-1}), YK_F64);
    yk_tensor *weights = yk_to(yk_cos(yk_arange(1, (double)yk_numel(x) + 1, 1, f64)), yk_tensor_device(x));
    return yk_item(yk_sum(yk_mul(flat, weights))) + (double)yk_numel(x);
}

/* Numbers that are neither equal nor of one sign, of a shape, in f64. */
static yk_tensor *numbers(int ndim, const int64_t *shape)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    return yk_reshape(yk_sin(yk_mul_scalar(yk_arange(1, (double)count + 1, 1, f64), 1.7)), ndim, shape);
}

static double tensor_dtype(double v)
{
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options);
    SET(o, dtype, v);
    yk_tensor *x = yk_zeros(YK_SHAPE(2), &o);
    return x ? (double)yk_tensor_dtype(x) : NAN;
}
static double tensor_device(double v)
{
    yk_tensor_options o = *YK_OPTIONS(yk_tensor_options);
    if (v != YK_NOT_GIVEN)
        o.device = (yk_device){YK_CPU, (int16_t)v};
    yk_tensor *x = yk_zeros(YK_SHAPE(2), &o);
    return x ? (double)yk_tensor_device(x).index : NAN;
}
static double like_dtype(double v)
{
    yk_like_options o = *YK_OPTIONS(yk_like_options);
    SET(o, dtype, v);
    yk_tensor *y = yk_zeros_like_with(yk_zeros(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)), &o);
    return y ? (double)yk_tensor_dtype(y) : NAN;
}
static double like_device(double v)
{
    yk_like_options o = *YK_OPTIONS(yk_like_options);
    if (v != YK_NOT_GIVEN)
        o.device = (yk_device){YK_CPU, (int16_t)v};
    yk_tensor *x = yk_zeros(YK_SHAPE(2), YK_OPTIONS(yk_tensor_options, .device = {.index = 1}));
    yk_tensor *y = yk_zeros_like_with(x, &o);
    return y ? (double)yk_tensor_device(y).index : NAN;
}
static double print_length(const yk_print_options *o, yk_tensor *x)
{
    if (yk_set_printoptions(o))
        return NAN;
    char *text = yk_to_string(x);
    double length = text ? (double)strlen(text) : NAN;
    for (const char *at = text; at && (at = strchr(at, '\n')); at++)
        length += 1e6; /* lines count for themselves */
    free(text);
    expect_ok(yk_set_printoptions(NULL));
    return length;
}
static double print_small(const yk_print_options *o)
{
    return print_length(o, yk_mul_scalar(numbers(YK_SHAPE(30)), 3));
}
static double print_large(const yk_print_options *o)
{
    return print_length(o, numbers(YK_SHAPE(1001)));
}
static double print_middle(const yk_print_options *o) /* 20 elements: shown whole unless the threshold is below */
{
    return print_length(o, numbers(YK_SHAPE(20)));
}
MEASURE(print_precision, yk_print_options, precision, print_small, .profile = NULL)
MEASURE(print_threshold, yk_print_options, threshold, print_middle, .profile = NULL)
MEASURE(print_edgeitems, yk_print_options, edgeitems, print_large, .profile = NULL)
MEASURE(print_linewidth, yk_print_options, linewidth, print_small, .profile = NULL)
MEASURE(print_sci_mode, yk_print_options, sci_mode, print_small, .profile = NULL)

static double read_map_location(double v)
{
    char path[] = "/tmp/yoke-options-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    yk_state_dict *dict = yk_state_dict_create();
    expect_ok(yk_state_dict_add(dict, "x", yk_ones(YK_SHAPE(2), NULL)));
    expect_ok(yk_safetensors_save(path, dict, NULL));
    yk_read_options o = *YK_OPTIONS(yk_read_options);
    SET(o, map_location.index, v);
    dict = yk_safetensors_read(path, &o);
    assert_int_equal(unlink(path), 0);
    return dict ? (double)yk_tensor_device(yk_state_dict_at(dict, 0)).index : NAN;
}

/* ---- gradcheck --------------------------------------------------------------------------------------------------- */

static double farthest; /* from 1, of what the function was called with */
static yk_tensor *watched(yk_tensor *const *inputs, int n_inputs, void *user)
{
    (void)n_inputs, (void)user;
    farthest = fmax(farthest, fabs(yk_item(inputs[0]) - 1));
    return yk_square(inputs[0]);
}
static double gradcheck_step(const yk_gradcheck_options *o)
{
    yk_tensor *x = yk_full(YK_SHAPE(1), 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    farthest = 0;
    return yk_gradcheck(watched, &x, 1, NULL, o) ? NAN : farthest;
}
MEASURE(gradcheck_eps, yk_gradcheck_options, eps, gradcheck_step, .atol = 1, .rtol = 1)

static double wrong_by; /* the gradient of `skewed`, relatively */
static yk_tensor *skew_forward(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    (void)context, (void)n_inputs;
    return yk_mul_scalar(inputs[0], 1);
}
static yk_status skew_backward(yk_custom *context, yk_tensor *grad, yk_tensor **grads, int n_inputs)
{
    (void)context, (void)n_inputs;
    grads[0] = yk_mul_scalar(grad, 1 + wrong_by);
    return yk_last_error() ? YK_ERR_CALLBACK : YK_OK;
}
static yk_tensor *skewed(yk_tensor *const *inputs, int n_inputs, void *user)
{
    (void)user;
    static const yk_custom_function function = {.name = "skew", .forward = skew_forward, .backward = skew_backward};
    return yk_custom_apply(&function, inputs, n_inputs, NULL);
}
/* The number of 40 errors from 1e-8 to 1 that pass. */
static double gradcheck_passes(const yk_gradcheck_options *o)
{
    double passed = 0;
    for (int i = 0; i < 40; i++) {
        wrong_by = pow(10, -8 + i / 5.0);
        yk_tensor *x = yk_full(YK_SHAPE(1), 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
        if (!yk_gradcheck(skewed, &x, 1, NULL, o))
            passed++;
        else if (yk_last_error()->code == YK_ERR_ARGUMENT)
            return NAN;
        yk_clear_error();
    }
    return passed;
}
MEASURE(gradcheck_atol, yk_gradcheck_options, atol, gradcheck_passes, .rtol = 0)
MEASURE(gradcheck_rtol, yk_gradcheck_options, rtol, gradcheck_passes, .atol = 0)

/* ---- operations -------------------------------------------------------------------------------------------------- */

static double conv2d_of(const yk_conv2d_options *o)
{
    int64_t groups = o->groups > 0 ? o->groups : 1;
    return digest(yk_conv2d(numbers(YK_SHAPE(1, 4, 8, 8)), numbers(YK_SHAPE(4, 4 / groups, 3, 3)), NULL, o));
}
MEASURE_PAIR(conv2d_stride, yk_conv2d_options, stride, conv2d_of, .groups = 1)
MEASURE_PAIR(conv2d_padding, yk_conv2d_options, padding, conv2d_of, .groups = 1)
MEASURE_PAIR(conv2d_dilation, yk_conv2d_options, dilation, conv2d_of, .groups = 1)
MEASURE(conv2d_groups, yk_conv2d_options, groups, conv2d_of, .stride = {1, 1})

static double conv_of(const yk_conv_options *o)
{
    int64_t groups = o->groups > 0 ? o->groups : 1;
    return digest(yk_conv3d(numbers(YK_SHAPE(1, 4, 5, 6, 5)), numbers(YK_SHAPE(4, 4 / groups, 2, 3, 2)), NULL, o));
}
static double conv_transpose_of(const yk_conv_options *o)
{
    return digest(yk_conv_transpose3d(numbers(YK_SHAPE(1, 2, 2, 2, 2)), numbers(YK_SHAPE(2, 1, 2, 2, 2)), NULL, o));
}
MEASURE_TRIPLE(conv_stride, yk_conv_options, stride, conv_of, .groups = 1)
MEASURE_TRIPLE(conv_padding, yk_conv_options, padding, conv_of, .groups = 1)
MEASURE_TRIPLE(conv_dilation, yk_conv_options, dilation, conv_of, .groups = 1)
MEASURE_TRIPLE(conv_output_padding, yk_conv_options, output_padding, conv_transpose_of, .stride = {2, 2, 2})
MEASURE(conv_groups, yk_conv_options, groups, conv_of, .stride = {1, 1, 1})

static double max_pool2d_of(const yk_pool2d_options *o)
{
    return digest(yk_max_pool2d(numbers(YK_SHAPE(1, 2, 8, 8)), o));
}
static double avg_pool2d_of(const yk_pool2d_options *o)
{
    return digest(yk_avg_pool2d(numbers(YK_SHAPE(1, 2, 8, 8)), o));
}
static double avg_pool2d_layer_of(const yk_pool2d_options *o)
{
    yk_module *m = yk_avg_pool2d_create(2, 0, o);
    return m ? digest(yk_forward(m, numbers(YK_SHAPE(1, 2, 8, 8)))) : NAN;
}
MEASURE_PAIR(pool2d_kernel, yk_pool2d_options, kernel, max_pool2d_of, .stride = {2, 2})
MEASURE_PAIR(pool2d_stride, yk_pool2d_options, stride, max_pool2d_of, .kernel = {2, 2})
MEASURE_PAIR(pool2d_padding, yk_pool2d_options, padding, avg_pool2d_of, .kernel = {2, 2})
MEASURE_PAIR(pool2d_dilation, yk_pool2d_options, dilation, max_pool2d_of, .kernel = {2, 2})
MEASURE_PAIR(average_dilation, yk_pool2d_options, dilation, avg_pool2d_of, .kernel = {2, 2})
MEASURE(pool2d_divisor, yk_pool2d_options, divisor_override, avg_pool2d_of, .kernel = {2, 2})
MEASURE(layer_divisor, yk_pool2d_options, divisor_override, avg_pool2d_layer_of, .kernel = {2, 2})
static double max_pool_of(const yk_pool_options *o)
{
    return digest(yk_max_pool3d(numbers(YK_SHAPE(2, 6, 7, 8)), o));
}
static double avg_pool_of(const yk_pool_options *o)
{
    return digest(yk_avg_pool3d(numbers(YK_SHAPE(2, 6, 7, 8)), o));
}
static double avg_pool_layer_of(const yk_pool_options *o)
{
    yk_module *m = yk_avg_pool1d_create(2, 0, o);
    return m ? digest(yk_forward(m, numbers(YK_SHAPE(1, 2, 8)))) : NAN;
}
MEASURE_TRIPLE(pool_kernel, yk_pool_options, kernel, max_pool_of, .stride = {2, 2, 2})
MEASURE_TRIPLE(pool_stride, yk_pool_options, stride, max_pool_of, .kernel = {2, 2, 2})
MEASURE_TRIPLE(pool_padding, yk_pool_options, padding, avg_pool_of, .kernel = {2, 2, 2})
MEASURE_TRIPLE(pool_dilation, yk_pool_options, dilation, max_pool_of, .kernel = {2, 2, 2})
MEASURE_TRIPLE(pool_average_dilation, yk_pool_options, dilation, avg_pool_of, .kernel = {2, 2, 2})
MEASURE(pool_divisor, yk_pool_options, divisor_override, avg_pool_of, .kernel = {2, 2, 2})
MEASURE(pool_layer_divisor, yk_pool_options, divisor_override, avg_pool_layer_of, .kernel = {2})
static double max_pool1d_stride(double v)
{
    yk_module *m = yk_max_pool1d_create(2, (int64_t)v, NULL);
    return m ? digest(yk_forward(m, numbers(YK_SHAPE(2, 8)))) : NAN;
}
static double max_pool3d_stride(double v)
{
    yk_module *m = yk_max_pool3d_create(2, (int64_t)v, NULL);
    return m ? digest(yk_forward(m, numbers(YK_SHAPE(2, 4, 6, 4)))) : NAN;
}
static double avg_pool1d_stride(double v)
{
    yk_module *m = yk_avg_pool1d_create(2, (int64_t)v, NULL);
    return m ? digest(yk_forward(m, numbers(YK_SHAPE(2, 8)))) : NAN;
}
static double avg_pool3d_stride(double v)
{
    yk_module *m = yk_avg_pool3d_create(2, (int64_t)v, NULL);
    return m ? digest(yk_forward(m, numbers(YK_SHAPE(2, 4, 6, 4)))) : NAN;
}
static double max_pool2d_stride(double v)
{
    yk_module *m = yk_max_pool2d_create(2, (int64_t)v, NULL);
    return m ? digest(yk_forward(m, numbers(YK_SHAPE(1, 2, 8, 8)))) : NAN;
}
static double avg_pool2d_stride(double v)
{
    yk_module *m = yk_avg_pool2d_create(2, (int64_t)v, NULL);
    return m ? digest(yk_forward(m, numbers(YK_SHAPE(1, 2, 8, 8)))) : NAN;
}

/* Both running statistics and the result. */
static double batch_norm_of(const yk_batch_norm_options *o)
{
    yk_tensor *mean = yk_zeros(YK_SHAPE(2), f64), *variance = yk_ones(YK_SHAPE(2), f64);
    yk_tensor *out = yk_batch_norm(numbers(YK_SHAPE(3, 2, 2, 2)), NULL, NULL, mean, variance, o);
    return out ? digest(out) + digest(mean) + digest(variance) : NAN;
}
MEASURE(batch_norm_momentum, yk_batch_norm_options, momentum, batch_norm_of, .training = true)
MEASURE(batch_norm_eps, yk_batch_norm_options, eps, batch_norm_of, .training = true)
MEASURE(batch_norm_eval_eps, yk_batch_norm_options, eps, batch_norm_of, .training = false)
static double layer_norm_eps(double v)
{
    return digest(yk_layer_norm(numbers(YK_SHAPE(3, 4)), YK_SHAPE(4), NULL, NULL, v));
}

static double attention_of(const yk_attention_options *o)
{
    yk_tensor *x = numbers(YK_SHAPE(2, 3, 4));
    yk_manual_seed(1);
    return digest(yk_scaled_dot_product_attention(x, yk_cos(x), x, o));
}
MEASURE(attention_dropout_p, yk_attention_options, dropout_p, attention_of, .is_causal = true)
MEASURE(attention_scale, yk_attention_options, scale, attention_of, .is_causal = true)

static double cross_entropy_of(const yk_cross_entropy_options *o)
{
    const int64_t classes[] = {0, 1, 2, 2};
    yk_tensor *target = yk_from_data(classes, YK_SHAPE(4), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    return digest(yk_cross_entropy(numbers(YK_SHAPE(4, 3)), target, o));
}
MEASURE(cross_entropy_ignore_index, yk_cross_entropy_options, ignore_index, cross_entropy_of, .weight = NULL)
MEASURE(label_smoothing, yk_cross_entropy_options, label_smoothing, cross_entropy_of, .weight = NULL)
MEASURE(cross_entropy_reduction, yk_cross_entropy_options, reduction, cross_entropy_of, .weight = NULL)

static yk_tensor *shares(void)
{
    return yk_sigmoid(numbers(YK_SHAPE(4, 3)));
}
static double bce_of(const yk_binary_cross_entropy_options *o)
{
    return digest(yk_binary_cross_entropy(shares(), shares(), o));
}
MEASURE(bce_reduction, yk_binary_cross_entropy_options, reduction, bce_of, .weight = NULL)
static double nll_of(const yk_nll_loss_options *o)
{
    const int64_t classes[] = {0, 1, 2, 2};
    yk_tensor *target = yk_from_data(classes, YK_SHAPE(4), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    return digest(yk_nll_loss(numbers(YK_SHAPE(4, 3)), target, o));
}
MEASURE(nll_ignore_index, yk_nll_loss_options, ignore_index, nll_of, .weight = NULL)
MEASURE(nll_reduction, yk_nll_loss_options, reduction, nll_of, .weight = NULL)
static double kl_div_of(const yk_kl_div_options *o)
{
    return digest(yk_kl_div(numbers(YK_SHAPE(4, 3)), shares(), o));
}
MEASURE(kl_div_reduction, yk_kl_div_options, reduction, kl_div_of, .log_target = false)
static double gaussian_of(const yk_gaussian_nll_loss_options *o)
{
    return digest(yk_gaussian_nll_loss(numbers(YK_SHAPE(4, 3)), shares(), yk_zeros(YK_SHAPE(4, 3), f64), o));
}
MEASURE(gaussian_eps, yk_gaussian_nll_loss_options, eps, gaussian_of, .full = false)
MEASURE(gaussian_reduction, yk_gaussian_nll_loss_options, reduction, gaussian_of, .eps = 0.1)
static double triplet_of(const yk_triplet_margin_loss_options *o)
{
    yk_tensor *x = numbers(YK_SHAPE(4, 3));
    return digest(yk_triplet_margin_loss(x, yk_mul_scalar(x, 2), yk_cos(x), o));
}
MEASURE(triplet_margin, yk_triplet_margin_loss_options, margin, triplet_of, .swap = false)
MEASURE(triplet_p, yk_triplet_margin_loss_options, p, triplet_of, .swap = false)
MEASURE(triplet_eps, yk_triplet_margin_loss_options, eps, triplet_of, .swap = false)
MEASURE(triplet_reduction, yk_triplet_margin_loss_options, reduction, triplet_of, .swap = false)
static double multi_margin_of(const yk_multi_margin_loss_options *o)
{
    yk_tensor *target =
        yk_from_data((int64_t[]){0, 2, 1, 0}, YK_SHAPE(4), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    return digest(yk_multi_margin_loss(numbers(YK_SHAPE(4, 3)), target, o));
}
MEASURE(multi_margin_p, yk_multi_margin_loss_options, p, multi_margin_of, .margin = 1)
MEASURE(multi_margin_margin, yk_multi_margin_loss_options, margin, multi_margin_of, .p = 1)
MEASURE(multi_margin_reduction, yk_multi_margin_loss_options, reduction, multi_margin_of, .p = 1)
static double focal_of(const yk_sigmoid_focal_loss_options *o)
{
    return digest(yk_sigmoid_focal_loss(numbers(YK_SHAPE(4, 3)), shares(), o));
}
MEASURE(focal_alpha, yk_sigmoid_focal_loss_options, alpha, focal_of, .gamma = 2)
MEASURE(focal_gamma, yk_sigmoid_focal_loss_options, gamma, focal_of, .alpha = 0.25)
MEASURE(focal_reduction, yk_sigmoid_focal_loss_options, reduction, focal_of, .alpha = 0.25)
static double ctc_of(const yk_ctc_loss_options *o)
{
    const int64_t labels[] = {2, 2}, times[] = {4, 4}, lengths[] = {1, 1};
    const yk_tensor_options *whole = YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    yk_tensor *log_probs = yk_log_softmax(numbers(YK_SHAPE(4, 2, 3)), 2);
    return digest(yk_ctc_loss(log_probs, yk_from_data(labels, YK_SHAPE(2, 1), whole),
                              yk_from_data(times, YK_SHAPE(2), whole), yk_from_data(lengths, YK_SHAPE(2), whole), o));
}
MEASURE(ctc_blank, yk_ctc_loss_options, blank, ctc_of, .zero_infinity = false)
MEASURE(ctc_reduction, yk_ctc_loss_options, reduction, ctc_of, .zero_infinity = false)

static double dropout_p(double v)
{
    yk_manual_seed(1);
    return digest(yk_dropout(numbers(YK_SHAPE(40)), v, true));
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static double parameters_of(yk_module *m)
{
    return m ? (double)yk_module_parameter_count(m) : NAN;
}

/* The result for numbers, with constant weights. */
static double layer_of(yk_module *m, yk_tensor *x)
{
    if (!m)
        return NAN;
    yk_parameters *list = yk_module_parameters(m);
    for (int64_t i = 0; i < yk_parameters_count(list); i++)
        expect_ok(yk_init_constant(yk_parameters_at(list, i), 0.5));
    return digest(yk_forward(m, yk_cast(x, YK_F32)));
}
/* Networks that are narrow but where the option is about that. */
static double resnet50_of(const yk_resnet_options *o)
{
    return parameters_of(yk_resnet50(o));
}
MEASURE(resnet_groups, yk_resnet_options, groups, resnet50_of, .width = 4)
MEASURE(resnet_width_per_group, yk_resnet_options, width_per_group, resnet50_of, .width = 4)
static double resnet18_of(const yk_resnet_options *o)
{
    return parameters_of(yk_resnet18(o));
}
MEASURE(resnet_width, yk_resnet_options, width, resnet18_of, .num_classes = 2)
static double vgg_of(const yk_vgg_options *o)
{
    return parameters_of(yk_vgg11(o));
}
MEASURE(vgg_in_channels, yk_vgg_options, in_channels, vgg_of, .width = 1, .classifier_size = 4)
MEASURE(vgg_num_classes, yk_vgg_options, num_classes, vgg_of, .width = 1, .classifier_size = 4)
MEASURE(vgg_width, yk_vgg_options, width, vgg_of, .classifier_size = 4)
MEASURE(vgg_classifier_size, yk_vgg_options, classifier_size, vgg_of, .width = 1, .num_classes = 2)
static double vgg_result(const yk_vgg_options *o)
{
    yk_module *m = yk_vgg11(o);
    if (!m)
        return NAN;
    yk_manual_seed(1);
    return layer_of(yk_module_get_module(m, "classifier"), numbers(YK_SHAPE(1, 8 * 7 * 7)));
}
MEASURE(vgg_dropout, yk_vgg_options, dropout, vgg_result, .width = 1, .num_classes = 2, .classifier_size = 64)
static double mobilenet_of(const yk_mobilenet_v2_options *o)
{
    return parameters_of(yk_mobilenet_v2(o));
}
MEASURE(mobilenet_in_channels, yk_mobilenet_v2_options, in_channels, mobilenet_of, .num_classes = 2)
MEASURE(mobilenet_num_classes, yk_mobilenet_v2_options, num_classes, mobilenet_of, .in_channels = 1)
static double mobilenet_result(const yk_mobilenet_v2_options *o)
{
    yk_module *m = yk_mobilenet_v2(o);
    if (!m)
        return NAN;
    yk_manual_seed(1);
    return layer_of(yk_module_get_module(m, "classifier"), numbers(YK_SHAPE(1, 1280)));
}
MEASURE(mobilenet_dropout, yk_mobilenet_v2_options, dropout, mobilenet_result, .num_classes = 2)
static double efficientnet_of(const yk_efficientnet_options *o)
{
    return parameters_of(yk_efficientnet_b0(o));
}
MEASURE(efficientnet_in_channels, yk_efficientnet_options, in_channels, efficientnet_of, .num_classes = 2)
MEASURE(efficientnet_num_classes, yk_efficientnet_options, num_classes, efficientnet_of, .in_channels = 1)
static double efficientnet_part(const yk_efficientnet_options *o, const char *part, yk_tensor *x)
{
    yk_module *m = yk_efficientnet_b0(o);
    if (!m)
        return NAN;
    yk_manual_seed(1);
    return layer_of(yk_module_get_module(m, part), x);
}
static double efficientnet_result(const yk_efficientnet_options *o)
{
    return efficientnet_part(o, "classifier", numbers(YK_SHAPE(1, 1280)));
}
static double efficientnet_block(const yk_efficientnet_options *o)
{
    return efficientnet_part(o, "features.6.3", numbers(YK_SHAPE(16, 192, 1, 1)));
}
MEASURE(efficientnet_dropout, yk_efficientnet_options, dropout, efficientnet_result, .num_classes = 2)
MEASURE(efficientnet_depth, yk_efficientnet_options, stochastic_depth_prob, efficientnet_block, .num_classes = 2)
static double vit_of(const yk_vit_options *o)
{
    yk_module *m = yk_vit_b_16(o);
    if (!m)
        return NAN;
    yk_manual_seed(1);
    yk_parameters *list = yk_module_parameters(m);
    for (int64_t i = 0; i < yk_parameters_count(list); i++)
        expect_ok(yk_init_uniform(yk_parameters_at(list, i), -0.3, 0.3));
    expect_ok(yk_module_to_dtype(m, YK_F64) ? YK_OK : YK_ERR_ARGUMENT);
    return digest(yk_forward(m, numbers(YK_SHAPE(1, o->in_channels, o->image_size, o->image_size))));
}
#define SMALL_VIT   .num_layers = 1, .num_heads = 2, .hidden_dim = 24, .mlp_dim = 8, .patch_size = 16
#define SMALL_IMAGE .image_size = 32, .num_classes = 5
MEASURE(vit_in_channels, yk_vit_options, in_channels, vit_of, SMALL_VIT, SMALL_IMAGE)
MEASURE(vit_num_classes, yk_vit_options, num_classes, vit_of, SMALL_VIT, .image_size = 32)
MEASURE(vit_image_size, yk_vit_options, image_size, vit_of, SMALL_VIT, .num_classes = 5)
MEASURE(vit_patch_size, yk_vit_options, patch_size, vit_of, .num_layers = 1, .num_heads = 2, .hidden_dim = 24,
        .mlp_dim = 8, SMALL_IMAGE)
MEASURE(vit_num_layers, yk_vit_options, num_layers, vit_of, .num_heads = 2, .hidden_dim = 24, .mlp_dim = 8, SMALL_IMAGE)
MEASURE(vit_num_heads, yk_vit_options, num_heads, vit_of, .num_layers = 1, .hidden_dim = 24, .mlp_dim = 8, SMALL_IMAGE)
MEASURE(vit_hidden_dim, yk_vit_options, hidden_dim, vit_of, .num_layers = 1, .num_heads = 2, .mlp_dim = 8, SMALL_IMAGE)
MEASURE(vit_mlp_dim, yk_vit_options, mlp_dim, vit_of, .num_layers = 1, .num_heads = 2, .hidden_dim = 24, SMALL_IMAGE)
MEASURE(vit_dropout, yk_vit_options, dropout, vit_of, SMALL_VIT, SMALL_IMAGE)
MEASURE(vit_attention_dropout, yk_vit_options, attention_dropout, vit_of, SMALL_VIT, SMALL_IMAGE)
static double lstm_layer_of(const yk_lstm_module_options *o)
{
    return layer_of(yk_lstm_create(2, 3, o), numbers(YK_SHAPE(2, 3, 2)));
}
MEASURE(lstm_layer_num_layers, yk_lstm_module_options, num_layers, lstm_layer_of, .batch_first = true)
MEASURE(lstm_layer_dropout, yk_lstm_module_options, dropout, lstm_layer_of, .num_layers = 2)
static double lstm_of(const yk_lstm_options *o)
{
    yk_tensor *weights[] = {numbers(YK_SHAPE(12, 3)), numbers(YK_SHAPE(12, 3)), numbers(YK_SHAPE(12, 3)),
                            numbers(YK_SHAPE(12, 3))};
    int count = o->num_layers == 1 ? 2 : 4;
    yk_tensor *out;
    return yk_lstm(numbers(YK_SHAPE(2, 3, 3)), NULL, NULL, weights, count, o, &out, NULL, NULL) ? NAN : digest(out);
}
MEASURE(lstm_num_layers, yk_lstm_options, num_layers, lstm_of, .bias = false)
MEASURE(lstm_dropout, yk_lstm_options, dropout, lstm_of, .num_layers = 2, .bias = false, .train = true)
static double gru_layer_of(const yk_gru_module_options *o)
{
    return layer_of(yk_gru_create(2, 3, o), numbers(YK_SHAPE(2, 3, 2)));
}
MEASURE(gru_layer_num_layers, yk_gru_module_options, num_layers, gru_layer_of, .batch_first = true)
MEASURE(gru_layer_dropout, yk_gru_module_options, dropout, gru_layer_of, .num_layers = 2)
static double gru_of(const yk_gru_options *o)
{
    yk_tensor *weights[] = {numbers(YK_SHAPE(9, 3)), numbers(YK_SHAPE(9, 3)), numbers(YK_SHAPE(9, 3)),
                            numbers(YK_SHAPE(9, 3))};
    yk_tensor *out;
    yk_manual_seed(1);
    return yk_gru(numbers(YK_SHAPE(2, 3, 3)), NULL, weights, o->num_layers == 1 ? 2 : 4, o, &out, NULL) ? NAN
                                                                                                        : digest(out);
}
MEASURE(gru_num_layers, yk_gru_options, num_layers, gru_of, .bias = false)
MEASURE(gru_dropout, yk_gru_options, dropout, gru_of, .num_layers = 2, .bias = false, .train = true)
static double rnn_layer_of(const yk_rnn_module_options *o)
{
    return layer_of(yk_rnn_create(2, 3, o), numbers(YK_SHAPE(2, 3, 2)));
}
MEASURE(rnn_layer_num_layers, yk_rnn_module_options, num_layers, rnn_layer_of, .batch_first = true)
MEASURE(rnn_layer_dropout, yk_rnn_module_options, dropout, rnn_layer_of, .num_layers = 2)
static double rnn_of(const yk_rnn_options *o)
{
    yk_tensor *weights[] = {numbers(YK_SHAPE(3, 3)), numbers(YK_SHAPE(3, 3)), numbers(YK_SHAPE(3, 3)),
                            numbers(YK_SHAPE(3, 3))};
    yk_tensor *out;
    yk_manual_seed(1);
    return yk_rnn(numbers(YK_SHAPE(2, 3, 3)), NULL, weights, o->num_layers == 1 ? 2 : 4, o, &out, NULL) ? NAN
                                                                                                        : digest(out);
}
MEASURE(rnn_num_layers, yk_rnn_options, num_layers, rnn_of, .bias = false)
MEASURE(rnn_dropout, yk_rnn_options, dropout, rnn_of, .num_layers = 2, .bias = false, .train = true)
MEASURE(rnn_nonlinearity, yk_rnn_options, nonlinearity, rnn_of, .bias = false)
MEASURE(rnn_layer_nonlinearity, yk_rnn_module_options, nonlinearity, rnn_layer_of, .batch_first = true)
static double rnn_cell_of(const yk_rnn_cell_options *o)
{
    return layer_of(yk_rnn_cell_create(3, 3, o), numbers(YK_SHAPE(2, 3)));
}
MEASURE(rnn_cell_nonlinearity, yk_rnn_cell_options, nonlinearity, rnn_cell_of, .bias = false)
static double multihead_attention_of(const yk_multihead_attention_options *o)
{
    yk_module *m = yk_module_to_dtype(yk_multihead_attention(4, 2, o), YK_F64);
    if (!m)
        return NAN;
    yk_manual_seed(1);
    yk_parameters *list = yk_module_parameters(m);
    for (int64_t i = 0; i < yk_parameters_count(list); i++)
        expect_ok(yk_init_constant(yk_parameters_at(list, i), 0.1));
    int64_t kdim = o->kdim == YK_NOT_GIVEN ? 4 : o->kdim, vdim = o->vdim == YK_NOT_GIVEN ? 4 : o->vdim;
    yk_tensor *in[] = {numbers(YK_SHAPE(9, 1, 4)), numbers(YK_SHAPE(9, 1, kdim)), numbers(YK_SHAPE(9, 1, vdim))};
    yk_tensor *out;
    return yk_forward_list(m, in, 3, &out, 1) ? NAN : digest(out);
}
MEASURE(multihead_attention_dropout, yk_multihead_attention_options, dropout, multihead_attention_of, .bias = true)
MEASURE(multihead_attention_kdim, yk_multihead_attention_options, kdim, multihead_attention_of, .vdim = 3)
MEASURE(multihead_attention_vdim, yk_multihead_attention_options, vdim, multihead_attention_of, .kdim = 3)
/* The result of a transformer, or of a layer of one, for `count` inputs of its `size`. */
static double transformed(yk_module *m, int count, int64_t size)
{
    if (!yk_module_to_dtype(m, YK_F64))
        return NAN;
    yk_manual_seed(1);
    yk_parameters *list = yk_module_parameters(m);
    for (int64_t i = 0; i < yk_parameters_count(list); i++)
        expect_ok(yk_init_uniform(yk_parameters_at(list, i), -0.3, 0.3));
    yk_tensor *x = numbers(YK_SHAPE(5, 1, size)), *out;
    return yk_forward_list(m, (yk_tensor *[]){x, x}, count, &out, 1) ? NAN : digest(out);
}
static double encoder_layer_of(const yk_transformer_encoder_layer_options *o)
{
    return transformed(yk_transformer_encoder_layer(8, 2, o), 1, 8);
}
static double decoder_layer_of(const yk_transformer_decoder_layer_options *o)
{
    return transformed(yk_transformer_decoder_layer(8, 2, o), 2, 8);
}
static double transformer_of(const yk_transformer_options *o)
{
    return transformed(yk_transformer(o), 2, o->d_model);
}
#define SMALL_TRANSFORMER .d_model = 8, .nhead = 2, .num_encoder_layers = 1, .num_decoder_layers = 1
MEASURE(transformer_encoder_layer_ff, yk_transformer_encoder_layer_options, dim_feedforward, encoder_layer_of,
        .dropout = 0)
MEASURE(transformer_encoder_layer_dropout, yk_transformer_encoder_layer_options, dropout, encoder_layer_of,
        .dim_feedforward = 4)
MEASURE(transformer_encoder_layer_eps, yk_transformer_encoder_layer_options, layer_norm_eps, encoder_layer_of,
        .dim_feedforward = 4)
MEASURE(transformer_decoder_layer_ff, yk_transformer_decoder_layer_options, dim_feedforward, decoder_layer_of,
        .dropout = 0)
MEASURE(transformer_decoder_layer_dropout, yk_transformer_decoder_layer_options, dropout, decoder_layer_of,
        .dim_feedforward = 4)
MEASURE(transformer_decoder_layer_eps, yk_transformer_decoder_layer_options, layer_norm_eps, decoder_layer_of,
        .dim_feedforward = 4)
MEASURE(transformer_d_model, yk_transformer_options, d_model, transformer_of, .num_encoder_layers = 0,
        .num_decoder_layers = 1, .dim_feedforward = 4)
MEASURE(transformer_nhead, yk_transformer_options, nhead, transformer_of, .d_model = 16, .num_encoder_layers = 0,
        .num_decoder_layers = 1, .dim_feedforward = 4)
MEASURE(transformer_num_encoder_layers, yk_transformer_options, num_encoder_layers, transformer_of, .d_model = 8,
        .nhead = 2, .num_decoder_layers = 1, .dim_feedforward = 4)
MEASURE(transformer_num_decoder_layers, yk_transformer_options, num_decoder_layers, transformer_of, .d_model = 8,
        .nhead = 2, .num_encoder_layers = 1, .dim_feedforward = 4)
MEASURE(transformer_ff, yk_transformer_options, dim_feedforward, transformer_of, SMALL_TRANSFORMER)
MEASURE(transformer_dropout, yk_transformer_options, dropout, transformer_of, SMALL_TRANSFORMER, .dim_feedforward = 4)
MEASURE(transformer_eps, yk_transformer_options, layer_norm_eps, transformer_of, SMALL_TRANSFORMER,
        .dim_feedforward = 4)
static double conv2d_layer_of(const yk_conv2d_module_options *o)
{
    return layer_of(yk_conv2d_create(2, 4, 3, o), numbers(YK_SHAPE(1, 2, 12, 12)));
}
MEASURE_PAIR(layer_kernel_size, yk_conv2d_module_options, kernel_size, conv2d_layer_of, .groups = 1)
MEASURE(layer_stride, yk_conv2d_module_options, stride, conv2d_layer_of, .groups = 1)
MEASURE(layer_padding, yk_conv2d_module_options, padding, conv2d_layer_of, .groups = 1)
MEASURE(layer_dilation, yk_conv2d_module_options, dilation, conv2d_layer_of, .groups = 1)
MEASURE_PAIR(layer_stride_size, yk_conv2d_module_options, stride_size, conv2d_layer_of, .stride = 2)
MEASURE_PAIR(layer_padding_size, yk_conv2d_module_options, padding_size, conv2d_layer_of, .padding = 2)
MEASURE_PAIR(layer_dilation_size, yk_conv2d_module_options, dilation_size, conv2d_layer_of, .dilation = 2)
MEASURE(layer_groups, yk_conv2d_module_options, groups, conv2d_layer_of, .stride = 1)
MEASURE(layer_padding_mode, yk_conv2d_module_options, padding_mode, conv2d_layer_of, .padding = 2)
static double conv_layer_of(const yk_conv_module_options *o)
{
    return layer_of(yk_conv1d_create(2, 4, 3, o), numbers(YK_SHAPE(1, 2, 12)));
}
static double conv_transpose_layer_of(const yk_conv_module_options *o)
{
    return layer_of(yk_conv_transpose1d_create(2, 4, 3, o), numbers(YK_SHAPE(1, 2, 12)));
}
MEASURE_TRIPLE(conv_layer_kernel_size, yk_conv_module_options, kernel_size, conv_layer_of, .groups = 1)
MEASURE(conv_layer_stride, yk_conv_module_options, stride, conv_layer_of, .groups = 1)
MEASURE(conv_layer_padding, yk_conv_module_options, padding, conv_layer_of, .groups = 1)
MEASURE(conv_layer_dilation, yk_conv_module_options, dilation, conv_layer_of, .groups = 1)
MEASURE(conv_layer_output_padding, yk_conv_module_options, output_padding, conv_transpose_layer_of, .stride = 2)
MEASURE_TRIPLE(conv_layer_stride_size, yk_conv_module_options, stride_size, conv_layer_of, .stride = 2)
MEASURE_TRIPLE(conv_layer_padding_size, yk_conv_module_options, padding_size, conv_layer_of, .padding = 2)
MEASURE_TRIPLE(conv_layer_dilation_size, yk_conv_module_options, dilation_size, conv_layer_of, .dilation = 2)
MEASURE_TRIPLE(conv_layer_output_padding_size, yk_conv_module_options, output_padding_size, conv_transpose_layer_of,
               .output_padding = 1, .stride = 2)
MEASURE(conv_layer_groups, yk_conv_module_options, groups, conv_layer_of, .stride = 1)
MEASURE(conv_layer_padding_mode, yk_conv_module_options, padding_mode, conv_layer_of, .padding = 2)

static double batch_norm2d_of(const yk_batch_norm2d_options *o)
{
    yk_module *m = yk_batch_norm2d_create(2, o);
    double out = m ? digest(yk_forward(m, yk_cast(numbers(YK_SHAPE(3, 2, 2, 2)), YK_F32))) : NAN;
    return m ? out + digest(yk_module_get(m, "running_mean")) : NAN;
}
static double batch_norm_layer_of(const yk_batch_norm_module_options *o)
{
    yk_module *m = yk_batch_norm1d_create(2, o);
    double out = m ? digest(yk_forward(m, yk_cast(numbers(YK_SHAPE(3, 2, 2)), YK_F32))) : NAN;
    return m ? out + digest(yk_module_get(m, "running_mean")) : NAN;
}
MEASURE(batch_norm_layer_eps, yk_batch_norm_module_options, eps, batch_norm_layer_of, .momentum = 0.5)
MEASURE(batch_norm_layer_momentum, yk_batch_norm_module_options, momentum, batch_norm_layer_of, .eps = 1e-3)
static double group_norm_layer_of(const yk_group_norm_options *o)
{
    return layer_of(yk_group_norm_create(2, 4, o), numbers(YK_SHAPE(2, 4, 3)));
}
MEASURE(group_norm_layer_eps, yk_group_norm_options, eps, group_norm_layer_of, .bias = false)
static double instance_norm_of(const yk_instance_norm_options *o)
{
    yk_tensor *mean = numbers(YK_SHAPE(2)), *var = yk_abs(numbers(YK_SHAPE(2)));
    yk_tensor *out = yk_instance_norm(numbers(YK_SHAPE(3, 2, 4)), NULL, NULL, mean, var, o);
    return out ? digest(out) + digest(mean) : NAN;
}
MEASURE(instance_norm_eps, yk_instance_norm_options, eps, instance_norm_of, .momentum = 0.5)
MEASURE(instance_norm_momentum, yk_instance_norm_options, momentum, instance_norm_of, .eps = 1e-3)
static double instance_norm_layer_of(const yk_instance_norm_module_options *o)
{
    yk_module *m = yk_instance_norm1d_create(2, o);
    double out = m ? digest(yk_forward(m, yk_cast(numbers(YK_SHAPE(3, 2, 4)), YK_F32))) : NAN;
    return m ? out + digest(yk_module_get(m, "running_mean")) : NAN;
}
MEASURE(instance_norm_layer_eps, yk_instance_norm_module_options, eps, instance_norm_layer_of,
        .track_running_stats = true)
MEASURE(instance_norm_layer_momentum, yk_instance_norm_module_options, momentum, instance_norm_layer_of,
        .track_running_stats = true)
static double rms_norm_layer_of(const yk_rms_norm_options *o)
{
    return layer_of(yk_rms_norm_create(YK_SHAPE(3), o), numbers(YK_SHAPE(2, 3)));
}
MEASURE(rms_norm_layer_eps, yk_rms_norm_options, eps, rms_norm_layer_of, .elementwise_affine = true)
static double interpolate_of(const yk_upsample_options *o)
{
    return digest(yk_interpolate(numbers(YK_SHAPE(1, 2, 4, 5, 6)), o));
}
static double upsample_of(const yk_upsample_options *o)
{
    return layer_of(yk_upsample_create(o), numbers(YK_SHAPE(1, 2, 5)));
}
MEASURE_TRIPLE(interpolate_size, yk_upsample_options, size, interpolate_of, .mode = YK_INTERPOLATE_TRILINEAR)
MEASURE_TRIPLE(interpolate_factor, yk_upsample_options, scale_factor, interpolate_of, .mode = YK_INTERPOLATE_TRILINEAR)
MEASURE(upsample_mode, yk_upsample_options, mode, upsample_of, .size = {7})
static double unfold_of(const yk_fold_options *o)
{
    double made = digest(yk_unfold(numbers(YK_SHAPE(1, 2, 7, 6)), o));
    return made + layer_of(yk_unfold_create(o), numbers(YK_SHAPE(1, 2, 7, 6)));
}
MEASURE_PAIR(unfold_kernel, yk_fold_options, kernel, unfold_of, .padding = {1, 1})
MEASURE_PAIR(unfold_dilation, yk_fold_options, dilation, unfold_of, .kernel = {2, 2})
MEASURE_PAIR(unfold_padding, yk_fold_options, padding, unfold_of, .kernel = {2, 2})
MEASURE_PAIR(unfold_stride, yk_fold_options, stride, unfold_of, .kernel = {2, 2})
static double grid_of(const yk_grid_sample_options *o)
{
    return digest(yk_grid_sample(numbers(YK_SHAPE(1, 2, 4, 4)), numbers(YK_SHAPE(1, 3, 3, 2)), o));
}
MEASURE(grid_mode, yk_grid_sample_options, mode, grid_of, .align_corners = true)
MEASURE(grid_padding, yk_grid_sample_options, padding_mode, grid_of, .align_corners = false)
static double unpool_of(const yk_max_unpool_options *o)
{
    yk_tensor *at = yk_reshape(yk_arange(0, 4, 1, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64)), YK_SHAPE(1, 2, 2));
    return digest(yk_max_unpool1d(numbers(YK_SHAPE(1, 2, 2)), yk_remainder_scalar(at, 2), o));
}
MEASURE_TRIPLE(unpool_kernel, yk_max_unpool_options, kernel, unpool_of, .stride = {2, 2, 2})
MEASURE_TRIPLE(unpool_stride, yk_max_unpool_options, stride, unpool_of, .kernel = {2, 2, 2})
MEASURE_TRIPLE(unpool_padding, yk_max_unpool_options, padding, unpool_of, .kernel = {3, 3, 3})
MEASURE_TRIPLE(unpool_output_size, yk_max_unpool_options, output_size, unpool_of, .kernel = {2, 2, 2})
static double fractional_of(const yk_fractional_max_pool_options *o)
{
    yk_fractional_max_pool_options sampled = *o;
    sampled.random_samples = yk_zeros(YK_SHAPE(1, 2, 2), f64);
    return digest(yk_fractional_max_pool2d(numbers(YK_SHAPE(1, 2, 6, 6)), &sampled));
}
MEASURE_TRIPLE(fractional_kernel, yk_fractional_max_pool_options, kernel, fractional_of, .output_size = {3, 3, 3})
MEASURE_TRIPLE(fractional_size, yk_fractional_max_pool_options, output_size, fractional_of, .kernel = {2, 2, 2})
MEASURE_TRIPLE(fractional_ratio, yk_fractional_max_pool_options, output_ratio, fractional_of, .kernel = {2, 2, 2})
static double group_norm_eps(double v)
{
    return digest(yk_group_norm(numbers(YK_SHAPE(2, 4, 3)), 2, NULL, NULL, v));
}
static double rms_norm_eps(double v)
{
    return digest(yk_rms_norm(yk_mul_scalar(numbers(YK_SHAPE(2, 3)), 1e-6), YK_SHAPE(3), NULL, v));
}
MEASURE(batch_norm2d_eps, yk_batch_norm2d_options, eps, batch_norm2d_of, .momentum = 0.5)
MEASURE(batch_norm2d_momentum, yk_batch_norm2d_options, momentum, batch_norm2d_of, .eps = 1e-3)
static double layer_norm_of(const yk_layer_norm_options *o)
{
    yk_module *m = yk_layer_norm_create(YK_SHAPE(4), o);
    return m ? digest(yk_forward(m, yk_cast(numbers(YK_SHAPE(3, 4)), YK_F32))) : NAN;
}
MEASURE(layer_norm_layer_eps, yk_layer_norm_options, eps, layer_norm_of, .elementwise_affine = false)
static double dropout_layer_p(double v)
{
    yk_module *m = yk_dropout_create(v);
    yk_manual_seed(1);
    return m ? digest(yk_forward(m, numbers(YK_SHAPE(40)))) : NAN;
}
static double embedding_of(const yk_embedding_options *o) /* the row that is zero */
{
    yk_manual_seed(1);
    yk_module *m = yk_embedding_create(5, 3, o);
    for (int64_t row = 0; m && row < 5; row++)
        if (yk_item(yk_sum(yk_abs(yk_select(yk_module_get(m, "weight"), 0, row)))) == 0)
            return (double)row;
    return m ? -1 : NAN;
}
static yk_tensor *bag_index(void)
{
    return yk_from_data((int64_t[]){0, 1, 2, 1, 3, 4}, YK_SHAPE(2, 3), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
}
static double bag_of(const yk_embedding_bag_options *o)
{
    return digest(yk_embedding_bag(bag_index(), numbers(YK_SHAPE(5, 3)), o));
}
MEASURE(bag_mode, yk_embedding_bag_options, mode, bag_of, .padding_idx = YK_NOT_GIVEN)
MEASURE(bag_padding_idx, yk_embedding_bag_options, padding_idx, bag_of, .mode = YK_BAG_MEAN)
static double bag_layer_of(const yk_embedding_bag_module_options *o)
{
    yk_manual_seed(1);
    yk_module *m = yk_embedding_bag_create(5, 3, o);
    return m ? digest(yk_cast(yk_forward(m, bag_index()), YK_F64)) : NAN;
}
MEASURE(bag_layer_mode, yk_embedding_bag_module_options, mode, bag_layer_of, .sparse = false)
MEASURE(bag_layer_padding_idx, yk_embedding_bag_module_options, padding_idx, bag_layer_of, .mode = YK_BAG_MEAN)
MEASURE(embedding_padding_idx, yk_embedding_options, padding_idx, embedding_of, .padding_idx = YK_NOT_GIVEN)

static const int64_t hidden_sizes[] = {7, 5};
static double mlp_of(const yk_mlp_options *o)
{
    yk_module *m = yk_mlp(o);
    yk_manual_seed(1);
    double out = m && o->dropout ? layer_of(m, numbers(YK_SHAPE(2, 784))) : 0;
    return parameters_of(m) + out;
}
MEASURE(mlp_in_features, yk_mlp_options, in_features, mlp_of, .num_classes = 2)
MEASURE(mlp_num_classes, yk_mlp_options, num_classes, mlp_of, .in_features = 3)
MEASURE(mlp_hidden_count, yk_mlp_options, hidden_count, mlp_of, .hidden = hidden_sizes)
MEASURE(mlp_hidden_count_alone, yk_mlp_options, hidden_count, mlp_of, .in_features = 3)
static double mlp_dropout(double v)
{
    yk_mlp_options o = *YK_OPTIONS(yk_mlp_options);
    SET(o, dropout, v);
    yk_module *m = yk_mlp(&o);
    yk_manual_seed(1);
    return layer_of(m, numbers(YK_SHAPE(2, 784)));
}
static double gpt2_of(const yk_gpt2_options *o)
{
    yk_manual_seed(3);
    yk_module *m = yk_gpt2(o);
    if (!m)
        return NAN;
    yk_tensor *ids = yk_zeros(YK_SHAPE(1, 3), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    return digest(yk_cast(yk_forward(m, ids), YK_F64)) + 1e3 * (double)yk_module_parameter_count(m);
}
#define SMALL_GPT2(...) .dropout = 0, .vocab_size = 5, .n_positions = 4, __VA_ARGS__
MEASURE(gpt2_vocab_size, yk_gpt2_options, vocab_size, gpt2_of, .n_embd = 12, .n_layer = 1, .dropout = 0)
MEASURE(gpt2_n_positions, yk_gpt2_options, n_positions, gpt2_of, .n_embd = 12, .n_layer = 1, .dropout = 0)
MEASURE(gpt2_n_embd, yk_gpt2_options, n_embd, gpt2_of, SMALL_GPT2(.n_layer = 1))
MEASURE(gpt2_n_layer, yk_gpt2_options, n_layer, gpt2_of, SMALL_GPT2(.n_embd = 12))
MEASURE(gpt2_n_head, yk_gpt2_options, n_head, gpt2_of, SMALL_GPT2(.n_embd = 12, .n_layer = 1))
MEASURE(gpt2_dropout, yk_gpt2_options, dropout, gpt2_of, .vocab_size = 5, .n_embd = 12, .n_layer = 1)
MEASURE(gpt2_epsilon, yk_gpt2_options, layer_norm_epsilon, gpt2_of, SMALL_GPT2(.n_embd = 12, .n_layer = 1))
static double generate_of(const yk_generate_options *o)
{
    yk_manual_seed(3);
    yk_module *m = yk_gpt2(YK_OPTIONS(yk_gpt2_options, .vocab_size = 11, .n_positions = 8, .n_embd = 12, .n_layer = 1));
    yk_tensor *ids = yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_tensor *made = yk_gpt2_generate(m, ids, o);
    return made ? digest(yk_cast(made, YK_F64)) + 1e3 * (double)yk_numel(made) : NAN;
}
MEASURE(generate_max_tokens, yk_generate_options, max_tokens, generate_of, .seed = 1)
MEASURE(generate_temperature, yk_generate_options, temperature, generate_of, .seed = 1)
MEASURE(generate_top_k, yk_generate_options, top_k, generate_of, .seed = 1)
MEASURE(generate_top_p, yk_generate_options, top_p, generate_of, .seed = 1)
MEASURE(generate_seed, yk_generate_options, seed, generate_of, .max_tokens = 30)
MEASURE(generate_stop, yk_generate_options, stop, generate_of, .max_tokens = 30)
static double lenet_of(const yk_lenet_options *o)
{
    return parameters_of(yk_lenet(o));
}
MEASURE(lenet_in_channels, yk_lenet_options, in_channels, lenet_of, .image_size = 28)
MEASURE(lenet_image_size, yk_lenet_options, image_size, lenet_of, .in_channels = 1)
MEASURE(lenet_num_classes, yk_lenet_options, num_classes, lenet_of, .in_channels = 1)
static double resnet_of(const yk_resnet_options *o)
{
    return parameters_of(yk_resnet18(o));
}
MEASURE(resnet_in_channels, yk_resnet_options, in_channels, resnet_of, .num_classes = 2, .width = 4)
MEASURE(resnet_num_classes, yk_resnet_options, num_classes, resnet_of, .in_channels = 1, .width = 4)
MEASURE(resnet_cifar_num_classes, yk_resnet_options, num_classes, resnet_of, .cifar = true, .width = 4)
/* The defaults are the model's own, those of an mlp where it has them by another name. */
static double model_of(const yk_model_options *o)
{
    yk_module *lenet = yk_model("lenet", o), *mlp = lenet ? yk_model("mlp", o) : NULL;
    return parameters_of(lenet) + parameters_of(mlp);
}
MEASURE(model_in_channels, yk_model_options, in_channels, model_of, .num_classes = 2)
MEASURE(model_image_size, yk_model_options, image_size, model_of, .num_classes = 2)
MEASURE(model_num_classes, yk_model_options, num_classes, model_of, .in_channels = 1)

static double initialised(yk_status (*init)(yk_tensor *x, double v), double v)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(4, 4), NULL);
    yk_manual_seed(1);
    return init(x, v) ? NAN : digest(x);
}
static yk_status kaiming_uniform(yk_tensor *x, double v)
{
    return yk_init_kaiming_uniform(x, v, false);
}
static yk_status kaiming_normal(yk_tensor *x, double v)
{
    return yk_init_kaiming_normal(x, v, true);
}
static double xavier_uniform_gain(double v)
{
    return initialised(yk_init_xavier_uniform, v);
}
static double xavier_normal_gain(double v)
{
    return initialised(yk_init_xavier_normal, v);
}
static double kaiming_uniform_slope(double v)
{
    return initialised(kaiming_uniform, v);
}
static double kaiming_normal_slope(double v)
{
    return initialised(kaiming_normal, v);
}

static double trunc_normal_of(double mean, double deviation, double a, double b)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(4, 4), NULL);
    yk_manual_seed(1);
    return yk_init_trunc_normal(x, mean, deviation, a, b) ? NAN : digest(x);
}
static double trunc_normal_mean(double v)
{
    return trunc_normal_of(v, 1, -2, 2);
}
static double trunc_normal_deviation(double v)
{
    return trunc_normal_of(0, v, -2, 2);
}
static double trunc_normal_a(double v)
{
    return trunc_normal_of(0, 1, v, 2);
}
static double trunc_normal_b(double v)
{
    return trunc_normal_of(0, 1, -2, v);
}
static double orthogonal_gain(double v)
{
    return initialised(yk_init_orthogonal, v);
}
static double sparse_of(double sparsity, double deviation)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(4, 4), NULL);
    yk_manual_seed(1);
    return yk_init_sparse(x, sparsity, deviation) ? NAN : digest(x);
}
static double sparse_deviation(double v)
{
    return sparse_of(0.5, v);
}

/* ---- optimizers and schedules ------------------------------------------------------------------------------------ */

static yk_parameters *one_parameter(yk_tensor **x)
{
    yk_parameters *list = yk_parameters_create();
    *x = yk_from_data((double[]){1, -2, 3}, YK_SHAPE(3),
                      YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    expect_ok(yk_parameters_add(list, "x", *x));
    expect_ok(yk_set_grad(*x, yk_from_data((double[]){0.5, 0.25, -1}, YK_SHAPE(3), f64)));
    return list;
}
static double stepped(yk_optimizer *o, yk_tensor *x) /* after some steps */
{
    for (int i = 0; o && i < 8; i++) /* RAdam is rectified at the sixth */
        expect_ok(yk_optimizer_step(o));
    return o ? digest(x) : NAN;
}
static double sgd_of(const yk_sgd_options *o)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return stepped(yk_sgd(list, o), x);
}
MEASURE(sgd_lr, yk_sgd_options, lr, sgd_of, .momentum = 0.5)
MEASURE(sgd_momentum, yk_sgd_options, momentum, sgd_of, .lr = 0.1)
MEASURE(sgd_dampening, yk_sgd_options, dampening, sgd_of, .lr = 0.1, .momentum = 0.5)
MEASURE(sgd_weight_decay, yk_sgd_options, weight_decay, sgd_of, .lr = 0.1)
static double adam_of(const yk_adam_options *o)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return stepped(yk_adam(list, o), x);
}
static double adamw_of(const yk_adam_options *o)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return stepped(yk_adamw(list, o), x);
}
static double sparse_adam_of(const yk_sparse_adam_options *o) /* three steps by other gradients of one row */
{
    yk_tensor *x = yk_ones(YK_SHAPE(3, 2), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    yk_tensor *index = yk_ones(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_parameters *list = yk_parameters_create();
    expect_ok(yk_parameters_add(list, "x", x));
    yk_optimizer *sparse = yk_sparse_adam(list, o);
    for (int i = 0; sparse && i < 3; i++) {
        expect_ok(yk_set_grad_rows(x, index, yk_full(YK_SHAPE(1, 2), i * i - 0.5, f64)));
        expect_ok(yk_optimizer_step(sparse));
    }
    return sparse ? digest(x) : NAN;
}
MEASURE(sparse_adam_lr, yk_sparse_adam_options, lr, sparse_adam_of, .beta1 = 0.5)
MEASURE(sparse_adam_beta1, yk_sparse_adam_options, beta1, sparse_adam_of, .lr = 0.1)
MEASURE(sparse_adam_beta2, yk_sparse_adam_options, beta2, sparse_adam_of, .lr = 0.1)
MEASURE(sparse_adam_eps, yk_sparse_adam_options, eps, sparse_adam_of, .lr = 0.1)
MEASURE(adam_lr, yk_adam_options, lr, adam_of, .beta1 = 0.5)
MEASURE(adam_beta1, yk_adam_options, beta1, adam_of, .lr = 0.1, .weight_decay = 0.5)
MEASURE(adam_beta2, yk_adam_options, beta2, adam_of, .lr = 0.1, .weight_decay = 0.5)
MEASURE(adam_eps, yk_adam_options, eps, adam_of, .lr = 0.1)
MEASURE(adam_weight_decay, yk_adam_options, weight_decay, adam_of, .lr = 0.1)
MEASURE(adamw_weight_decay, yk_adam_options, weight_decay, adamw_of, .lr = 0.1)

static double rmsprop_of(const yk_rmsprop_options *o)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return stepped(yk_rmsprop(list, o), x);
}
MEASURE(rmsprop_lr, yk_rmsprop_options, lr, rmsprop_of, .weight_decay = 0.5)
MEASURE(rmsprop_alpha, yk_rmsprop_options, alpha, rmsprop_of, .weight_decay = 0.5)
MEASURE(rmsprop_eps, yk_rmsprop_options, eps, rmsprop_of, .weight_decay = 0.5)
MEASURE(rmsprop_weight_decay, yk_rmsprop_options, weight_decay, rmsprop_of, .lr = 0.1)
MEASURE(rmsprop_momentum, yk_rmsprop_options, momentum, rmsprop_of, .weight_decay = 0.5)
static double adagrad_of(const yk_adagrad_options *o)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return stepped(yk_adagrad(list, o), x);
}
MEASURE(adagrad_lr, yk_adagrad_options, lr, adagrad_of, .weight_decay = 0.5)
MEASURE(adagrad_lr_decay, yk_adagrad_options, lr_decay, adagrad_of, .weight_decay = 0.5)
MEASURE(adagrad_weight_decay, yk_adagrad_options, weight_decay, adagrad_of, .lr = 0.1)
MEASURE(adagrad_initial_accumulator_value, yk_adagrad_options, initial_accumulator_value, adagrad_of,
        .weight_decay = 0.5)
MEASURE(adagrad_eps, yk_adagrad_options, eps, adagrad_of, .weight_decay = 0.5)
static double adadelta_of(const yk_adadelta_options *o)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return stepped(yk_adadelta(list, o), x);
}
MEASURE(adadelta_lr, yk_adadelta_options, lr, adadelta_of, .weight_decay = 0.5)
MEASURE(adadelta_rho, yk_adadelta_options, rho, adadelta_of, .weight_decay = 0.5)
MEASURE(adadelta_eps, yk_adadelta_options, eps, adadelta_of, .weight_decay = 0.5)
MEASURE(adadelta_weight_decay, yk_adadelta_options, weight_decay, adadelta_of, .lr = 0.1)
static double adamax_of(const yk_adamax_options *o)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return stepped(yk_adamax(list, o), x);
}
MEASURE(adamax_lr, yk_adamax_options, lr, adamax_of, .weight_decay = 0.5)
MEASURE(adamax_beta1, yk_adamax_options, beta1, adamax_of, .weight_decay = 0.5)
MEASURE(adamax_beta2, yk_adamax_options, beta2, adamax_of, .weight_decay = 0.5)
MEASURE(adamax_eps, yk_adamax_options, eps, adamax_of, .weight_decay = 0.5)
MEASURE(adamax_weight_decay, yk_adamax_options, weight_decay, adamax_of, .lr = 0.1)
static double nadam_of(const yk_nadam_options *o)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return stepped(yk_nadam(list, o), x);
}
MEASURE(nadam_lr, yk_nadam_options, lr, nadam_of, .weight_decay = 0.5)
MEASURE(nadam_beta1, yk_nadam_options, beta1, nadam_of, .weight_decay = 0.5)
MEASURE(nadam_beta2, yk_nadam_options, beta2, nadam_of, .weight_decay = 0.5)
MEASURE(nadam_eps, yk_nadam_options, eps, nadam_of, .weight_decay = 0.5)
MEASURE(nadam_weight_decay, yk_nadam_options, weight_decay, nadam_of, .lr = 0.1)
MEASURE(nadam_momentum_decay, yk_nadam_options, momentum_decay, nadam_of, .weight_decay = 0.5)
static double radam_of(const yk_radam_options *o)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return stepped(yk_radam(list, o), x);
}
MEASURE(radam_lr, yk_radam_options, lr, radam_of, .weight_decay = 0.5)
MEASURE(radam_beta1, yk_radam_options, beta1, radam_of, .weight_decay = 0.5)
MEASURE(radam_beta2, yk_radam_options, beta2, radam_of, .weight_decay = 0.5)
MEASURE(radam_eps, yk_radam_options, eps, radam_of, .weight_decay = 0.5)
MEASURE(radam_weight_decay, yk_radam_options, weight_decay, radam_of, .lr = 0.1)

static yk_module *known_linear(double scale)
{
    yk_module *m = yk_module_to_dtype(yk_linear_create(2, 3, NULL), YK_F64);
    yk_tensor *weight = yk_from_data((double[]){1, -2, 3, 0.5, 0.25, -1}, YK_SHAPE(3, 2), f64);
    bool recording = yk_no_grad_begin();
    expect_ok(yk_copy_(yk_module_get(m, "weight"), yk_mul_scalar(weight, scale)) == NULL);
    yk_no_grad_end(recording);
    return m;
}
static double weight_norm_of(const yk_weight_norm_options *o) /* after the lengths have become others */
{
    yk_module *m = yk_weight_norm(known_linear(1), "weight", o);
    if (m)
        expect_ok(yk_init_constant(yk_module_get(m, "parametrizations.weight.original0"), 1));
    return m ? digest(yk_parametrized(m, "weight")) : NAN;
}
MEASURE(weight_norm_dim, yk_weight_norm_options, dim, weight_norm_of, .dim = 0)
static double spectral_norm_in(const yk_spectral_norm_options *o, double scale) /* from known vectors */
{
    yk_module *m = yk_spectral_norm(known_linear(scale), "weight", o);
    if (!m)
        return NAN;
    expect_ok(yk_init_constant(yk_module_get(m, "parametrizations.weight.0._u"), 0.5));
    expect_ok(yk_init_constant(yk_module_get(m, "parametrizations.weight.0._v"), 0.5));
    return digest(yk_parametrized(m, "weight"));
}
static double spectral_norm_of(const yk_spectral_norm_options *o)
{
    return spectral_norm_in(o, 1);
}
static double spectral_norm_small(const yk_spectral_norm_options *o)
{
    return spectral_norm_in(o, 1e-13);
}
MEASURE(spectral_norm_iterations, yk_spectral_norm_options, n_power_iterations, spectral_norm_of, .eps = 1e-12)
MEASURE(spectral_norm_eps, yk_spectral_norm_options, eps, spectral_norm_small, .n_power_iterations = 1)
MEASURE(spectral_norm_dim, yk_spectral_norm_options, dim, spectral_norm_of, .eps = 1e-12)

static yk_parameters *one_matrix(yk_tensor **x)
{
    yk_parameters *list = yk_parameters_create();
    *x = yk_from_data((double[]){1, -2, 3, 0.5, 0.25, -1}, YK_SHAPE(3, 2),
                      YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    expect_ok(yk_parameters_add(list, "x", *x));
    return list;
}
static double muon_steps(const yk_muon_options *o, double scale) /* three, by other gradients */
{
    yk_tensor *x;
    yk_optimizer *muon = yk_muon(one_matrix(&x), o);
    for (int i = 0; muon && i < 3; i++) {
        yk_tensor *g = yk_from_data((double[]){0.5, i, -1, 1, i * i, -0.25}, YK_SHAPE(3, 2), f64);
        expect_ok(yk_set_grad(x, yk_mul_scalar(g, scale)));
        expect_ok(yk_optimizer_step(muon));
    }
    return muon ? digest(x) : NAN;
}
static double muon_of(const yk_muon_options *o)
{
    return muon_steps(o, 1);
}
static double muon_small(const yk_muon_options *o)
{
    return muon_steps(o, 1e-8);
}
MEASURE(muon_lr, yk_muon_options, lr, muon_of, .momentum = 0.5)
MEASURE(muon_weight_decay, yk_muon_options, weight_decay, muon_of, .lr = 0.1)
MEASURE(muon_momentum, yk_muon_options, momentum, muon_of, .lr = 0.1)
MEASURE(muon_ns_a, yk_muon_options, ns_a, muon_of, .lr = 0.1, .ns_steps = 1)
MEASURE(muon_ns_b, yk_muon_options, ns_b, muon_of, .lr = 0.1, .ns_steps = 1)
MEASURE(muon_ns_c, yk_muon_options, ns_c, muon_of, .lr = 0.1)
MEASURE(muon_eps, yk_muon_options, eps, muon_small, .lr = 0.1, .ns_steps = 1)
MEASURE(muon_ns_steps, yk_muon_options, ns_steps, muon_of, .lr = 0.1)
MEASURE(muon_adjust_lr_fn, yk_muon_options, adjust_lr_fn, muon_of, .lr = 0.1)

typedef struct bowl {
    yk_tensor *x;
    yk_optimizer *lbfgs;
    double slope;
} bowl;
static yk_tensor *bowl_loss(void *user)
{
    const bowl *b = user;
    yk_optimizer_zero_grad(b->lbfgs);
    yk_tensor *slope = yk_from_data((double[]){0.5, 0.25, -1}, YK_SHAPE(3), f64);
    yk_tensor *loss = yk_sum(yk_add_scaled(yk_square(yk_square(b->x)), yk_mul(slope, b->x), b->slope));
    return yk_backward(loss) ? NULL : loss;
}
static double lbfgs_in(const yk_lbfgs_options *o, double slope)
{
    bowl b = {.slope = slope};
    b.lbfgs = yk_lbfgs(one_parameter(&b.x), o);
    if (b.lbfgs)
        expect_ok(yk_optimizer_step_closure(b.lbfgs, bowl_loss, &b, NULL));
    return b.lbfgs ? digest(b.x) : NAN;
}
static double lbfgs_of(const yk_lbfgs_options *o)
{
    return lbfgs_in(o, 1);
}
static double lbfgs_slow(const yk_lbfgs_options *o) /* a minimum that is reached by less in each step */
{
    return lbfgs_in(o, 0);
}
MEASURE(lbfgs_lr, yk_lbfgs_options, lr, lbfgs_of, .max_iter = 4)
MEASURE(lbfgs_max_iter, yk_lbfgs_options, max_iter, lbfgs_of, .lr = 0.5)
MEASURE(lbfgs_max_eval, yk_lbfgs_options, max_eval, lbfgs_of, .max_iter = 4)
MEASURE(lbfgs_tolerance_grad, yk_lbfgs_options, tolerance_grad, lbfgs_of, .max_iter = 60, .tolerance_change = 0)
MEASURE(lbfgs_tolerance_change, yk_lbfgs_options, tolerance_change, lbfgs_slow, .max_iter = 60, .tolerance_grad = 0)
MEASURE(lbfgs_history_size, yk_lbfgs_options, history_size, lbfgs_of, .lr = 0.5)
MEASURE(lbfgs_line_search_fn, yk_lbfgs_options, line_search_fn, lbfgs_of, .lr = 5, .max_iter = 4)

#define SCALER(member, of_state)                                                                                       \
    static double scaler_##member(double v)                                                                            \
    {                                                                                                                  \
        yk_grad_scaler_options o = *YK_OPTIONS(yk_grad_scaler_options);                                                \
        SET(o, member, v);                                                                                             \
        yk_grad_scaler *s = yk_grad_scaler_create(&o);                                                                 \
        return s ? (double)yk_grad_scaler_get_state(s).of_state : NAN;                                                 \
    }
SCALER(init_scale, scale)
SCALER(growth_factor, growth_factor)
SCALER(backoff_factor, backoff_factor)
SCALER(growth_interval, growth_interval)

static yk_optimizer *some_sgd(void)
{
    yk_tensor *x;
    return yk_sgd(one_parameter(&x), YK_OPTIONS(yk_sgd_options, .lr = 0.5));
}
static yk_optimizer *some_muon(void)
{
    yk_tensor *x;
    return yk_muon(one_matrix(&x), NULL);
}
/* The rates of four steps. */
static double rates_of(yk_schedule *s, yk_optimizer *o)
{
    double sum = 0;
    for (int t = 0; s && t < 4; t++) {
        sum = 10 * sum + yk_optimizer_lr(o, 0) + 0.1 * yk_optimizer_option(o, 0, "momentum");
        yk_schedule_step(s);
    }
    return s ? sum : NAN;
}
static double step_lr_gamma(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_step_lr(o, 2, v), o);
}
static double multi_step_lr_gamma(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_multi_step_lr(o, (int64_t[]){1, 3}, 2, v), o);
}
static double exponential_lr_gamma(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_exponential_lr(o, v), o);
}
static double warmup_start_factor(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_linear_warmup_lr(o, 3, v, NULL), o);
}
static double cosine_lr_eta_min(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_cosine_lr(o, 3, v), o);
}
static double linear_lr_start(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_linear_lr(o, v, 0.5, 3), o);
}
static double linear_lr_end(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_linear_lr(o, 0.75, v, 3), o);
}
static double constant_lr_factor(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_constant_lr(o, v, 3), o);
}
static double polynomial_lr_power(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_polynomial_lr(o, 8, v), o);
}
static double restarts_eta_min(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_cosine_warm_restarts_lr(o, 3, 1, v), o);
}
static double one_cycle_max_lr(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_one_cycle_lr(o, v, 8, NULL), o);
}
static double cyclic_base_lr(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_cyclic_lr(o, v, 1, NULL), o);
}
static double cyclic_max_lr(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_cyclic_lr(o, 0.1, v, NULL), o);
}
static double one_cycle_of(const yk_one_cycle_options *p)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_one_cycle_lr(o, 0.5, 8, p), o);
}
static double cyclic_of(const yk_cyclic_options *p)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_cyclic_lr(o, 0.1, 0.5, p), o);
}
MEASURE(one_cycle_pct_start, yk_one_cycle_options, pct_start, one_cycle_of, .three_phase = true)
MEASURE(one_cycle_base_momentum, yk_one_cycle_options, base_momentum, one_cycle_of, .pct_start = 0.5)
MEASURE(one_cycle_max_momentum, yk_one_cycle_options, max_momentum, one_cycle_of, .pct_start = 0.5)
MEASURE(one_cycle_div_factor, yk_one_cycle_options, div_factor, one_cycle_of, .pct_start = 0.5)
MEASURE(one_cycle_final_div_factor, yk_one_cycle_options, final_div_factor, one_cycle_of, .pct_start = 0.25)
MEASURE(cyclic_step_size_up, yk_cyclic_options, step_size_up, cyclic_of, .gamma = 1)
MEASURE(cyclic_step_size_down, yk_cyclic_options, step_size_down, cyclic_of, .step_size_up = 2)
MEASURE(cyclic_mode, yk_cyclic_options, mode, cyclic_of, .step_size_up = 1)
MEASURE(cyclic_gamma, yk_cyclic_options, gamma, cyclic_of, .mode = YK_EXP_RANGE, .step_size_up = 2)
MEASURE(cyclic_base_momentum, yk_cyclic_options, base_momentum, cyclic_of, .step_size_up = 2)
MEASURE(cyclic_max_momentum, yk_cyclic_options, max_momentum, cyclic_of, .step_size_up = 2)
static double swa_lr_rate(double v)
{
    yk_optimizer *o = some_sgd();
    return rates_of(yk_swa_lr(o, v, 3, false), o);
}
static double averaged_of(const yk_averaged_model_options *o)
{
    yk_manual_seed(3);
    yk_module *net = yk_linear_create(4, 2, NULL), *averaged = yk_averaged_model(net, o);
    for (int i = 0; i < 3 && averaged; i++)
        if (yk_init_constant(yk_module_get(net, "weight"), i) || yk_averaged_model_update(averaged, net))
            return NAN;
    return averaged ? digest(yk_module_get(averaged, "module.weight")) : NAN;
}
MEASURE(averaged_decay, yk_averaged_model_options, decay, averaged_of, .use_buffers = true)
static double plateau_of(const yk_plateau_options *p)
{
    static const double metrics[] = {1,   0.99996, 0.99992, 0.9, 0.89, 0.891, 0.892, 0.89, 0.9,
                                     0.9, 0.9,     1,       1,   1,    1,     1,     1,    1};
    yk_optimizer *o = some_sgd();
    yk_plateau *s = yk_reduce_lr_on_plateau(o, p);
    double sum = 0;
    for (int i = 0; s && i < 18; i++) {
        yk_plateau_step(s, metrics[i]);
        sum += (i + 1) * yk_optimizer_lr(o, 0);
    }
    return s ? sum : NAN;
}
MEASURE(plateau_factor, yk_plateau_options, factor, plateau_of, .patience = 1)
MEASURE(plateau_patience, yk_plateau_options, patience, plateau_of, .factor = 0.5)
MEASURE(plateau_threshold, yk_plateau_options, threshold, plateau_of, .patience = 1)
MEASURE(plateau_cooldown, yk_plateau_options, cooldown, plateau_of, .patience = 1)
MEASURE(plateau_min_lr, yk_plateau_options, min_lr, plateau_of, .patience = 1)
MEASURE(plateau_eps, yk_plateau_options, eps, plateau_of, .patience = 0, .factor = 0.01)
static double set_option(double v)
{
    yk_optimizer *o = some_sgd();
    return yk_optimizer_set_option(o, 0, "weight_decay", v) ? NAN : yk_optimizer_option(o, 0, "weight_decay");
}
static double set_lr(double v)
{
    yk_optimizer *o = some_sgd();
    return yk_optimizer_set_lr(o, 0, v) ? NAN : yk_optimizer_lr(o, 0);
}
static double clip_max_norm(double v)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return yk_clip_grad_norm(list, v, NULL) ? NAN : digest(yk_grad(x));
}
static double clip_type_max_norm(double v)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return yk_clip_grad_norm_type(list, v, 1, NULL) ? NAN : digest(yk_grad(x));
}
static double clip_norm_type(double v)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return yk_clip_grad_norm_type(list, 0.5, v, NULL) ? NAN : digest(yk_grad(x));
}
static double total_norm_type(double v)
{
    yk_tensor *x;
    double total;
    yk_parameters *list = one_parameter(&x);
    return yk_get_total_norm(list, v, &total) ? NAN : total;
}
static double clip_limit(double v)
{
    yk_tensor *x;
    yk_parameters *list = one_parameter(&x);
    return yk_clip_grad_value(list, v) ? NAN : digest(yk_grad(x));
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

static atomic_int samples_made;
static pthread_t consumer;
static atomic_bool made_elsewhere; /* by another thread than the consumer */

static yk_status make_sample(void *context, int64_t index, yk_sample *sample)
{
    (void)context;
    float *x = yk_sample_allocate(sample, YK_F32, 1, (int64_t[]){2});
    if (!x)
        return YK_ERR_MEMORY;
    x[0] = (float)index;
    x[1] = (float)yk_sample_uniform(sample);
    if (!pthread_equal(pthread_self(), consumer))
        atomic_store(&made_elsewhere, true);
    atomic_fetch_add(&samples_made, 1);
    return YK_OK;
}
static yk_loader *loader_for(const yk_loader_options *o)
{
    consumer = pthread_self();
    atomic_store(&samples_made, 0);
    atomic_store(&made_elsewhere, false);
    const yk_dataset_table table = {.name = "measured", .length = 40, .get = make_sample};
    return yk_loader_create(yk_dataset_create(&table, NULL, NULL), o);
}
/* The first batch, and how many there are. */
static double resized_crop_of(const yk_random_resized_crop_options *o)
{
    yk_transform *crop = yk_random_resized_crop(20, o);
    return crop ? digest(yk_dataset_get(yk_glyphs(YK_TEST, crop, 0), 3, YK_F64, NULL)) : NAN;
}
MEASURE(resized_crop_scale, yk_random_resized_crop_options, scale[0], resized_crop_of, .ratio = {1, 1})
MEASURE(resized_crop_ratio, yk_random_resized_crop_options, ratio[0], resized_crop_of, .scale = {0.5, 0.5})
/* A sample of three channels that are not equal, through a transform. */
static yk_status make_colored(void *context, int64_t index, yk_sample *sample)
{
    static const unsigned char pixels[3 * 4 * 5] = {9, 200, 31, 77, 150, [20] = 14, 90, 255, 3, 60, [41] = 99, 250, 8};
    (void)context, (void)index;
    yk_sample_view(sample, pixels, YK_U8, 3, (int64_t[]){3, 4, 5});
    return YK_OK;
}
static double augmented(yk_transform *transform)
{
    const yk_dataset_table table = {.name = "colored", .length = 9, .get = make_colored};
    return transform ? digest(yk_dataset_get(yk_dataset_create(&table, NULL, transform), 3, YK_F64, NULL)) : NAN;
}
static double color_jitter_of(const yk_color_jitter_options *o)
{
    return augmented(yk_color_jitter(o));
}
MEASURE_PAIR(jitter_brightness, yk_color_jitter_options, brightness, color_jitter_of, .yk__mark = YK__MARK)
MEASURE_PAIR(jitter_contrast, yk_color_jitter_options, contrast, color_jitter_of, .yk__mark = YK__MARK)
MEASURE_PAIR(jitter_saturation, yk_color_jitter_options, saturation, color_jitter_of, .yk__mark = YK__MARK)
MEASURE_PAIR(jitter_hue, yk_color_jitter_options, hue, color_jitter_of, .yk__mark = YK__MARK)
static double rotation_of(const yk_random_rotation_options *o)
{
    return augmented(yk_random_rotation(20, 20, o));
}
MEASURE(rotation_fill, yk_random_rotation_options, fill, rotation_of, .yk__mark = YK__MARK)
static double rotation_low(double v)
{
    return augmented(yk_random_rotation(v, 90, NULL));
}
static double rotation_high(double v)
{
    return augmented(yk_random_rotation(-90, v, NULL));
}
static double affine_low(double v)
{
    return augmented(yk_random_affine(v, 90, NULL));
}
static double affine_high(double v)
{
    return augmented(yk_random_affine(-90, v, NULL));
}
static double affine_of(const yk_random_affine_options *o)
{
    return augmented(yk_random_affine(0, 0, o));
}
MEASURE_PAIR(affine_translate, yk_random_affine_options, translate, affine_of, .scale = {1, 1})
MEASURE_PAIR(affine_scale, yk_random_affine_options, scale, affine_of, .bilinear = true)
MEASURE_PAIR(affine_shear, yk_random_affine_options, shear, affine_of, .bilinear = true)
MEASURE(affine_fill, yk_random_affine_options, fill, affine_of, .scale = {0.5, 0.5})
static double erasing_of(const yk_random_erasing_options *o)
{
    yk_transform *erasing = yk_random_erasing(o);
    if (!erasing)
        return NAN;
    const yk_dataset_table table = {.name = "colored", .length = 9, .get = make_colored};
    yk_dataset *set = yk_dataset_create(&table, NULL, erasing);
    double sum = 0;
    for (int64_t i = 0; i < 9 && !yk_last_error(); i++)
        sum += (double)(i + 1) * digest(yk_dataset_get(set, i, YK_F64, NULL));
    return yk_last_error() ? NAN : sum;
}
MEASURE(erasing_p, yk_random_erasing_options, p, erasing_of, .value = 9)
MEASURE(erasing_scale, yk_random_erasing_options, scale[0], erasing_of, .p = 1, .value = 9)
MEASURE(erasing_ratio, yk_random_erasing_options, ratio[0], erasing_of, .p = 1, .value = 9)
MEASURE(erasing_value, yk_random_erasing_options, value, erasing_of, .p = 1, .scale = {0.3, 0.4})
static double blur_of(const yk_gaussian_blur_options *o)
{
    return augmented(yk_gaussian_blur(3, o));
}
MEASURE(blur_sigma, yk_gaussian_blur_options, sigma[0], blur_of, .yk__mark = YK__MARK)
/* The sum over nine samples, of which some are changed. */
static double augmented_all(yk_transform *transform)
{
    const yk_dataset_table table = {.name = "colored", .length = 9, .get = make_colored};
    yk_dataset *set = transform ? yk_dataset_create(&table, NULL, transform) : NULL;
    double sum = 0;
    for (int64_t i = 0; set && i < 9 && !yk_last_error(); i++)
        sum += (double)(i + 1) * digest(yk_dataset_get(set, i, YK_F64, NULL));
    return !set || yk_last_error() ? NAN : sum;
}
static double perspective_of(const yk_random_perspective_options *o)
{
    return augmented_all(yk_random_perspective(o));
}
MEASURE(perspective_scale, yk_random_perspective_options, distortion_scale, perspective_of, .p = 1)
MEASURE(perspective_p, yk_random_perspective_options, p, perspective_of, .distortion_scale = 0.9)
MEASURE(perspective_fill, yk_random_perspective_options, fill, perspective_of, .p = 1)
/* An image, with a mask as tensor 1 and boxes as tensor 2; one of the boxes is empty. */
static yk_status make_targets(void *context, int64_t index, yk_sample *sample)
{
    static const unsigned char pixels[4 * 5] = {3, 90, 0, 7, 41, 12, 5, 66, [15] = 17};
    static const float edges[3 * 4] = {0, 1, 3, 2, 1, 1, 4.5F, 3.75F, 2, 2, 2, 3};
    yk_status status = make_colored(context, index, sample);
    if (!status)
        status = yk_sample_view_at(sample, 1, pixels, YK_U8, 2, (int64_t[]){4, 5});
    return status ? status : yk_sample_view_at(sample, 2, edges, YK_F32, 2, (int64_t[]){3, 4});
}
static double targets_sum(yk_transform *transform)
{
    const yk_dataset_table table = {.name = "targets", .length = 9, .get = make_targets};
    yk_dataset *set = transform ? yk_dataset_create(&table, NULL, transform) : NULL;
    yk_tensor *tensors[YK_SAMPLE_TENSORS];
    int count = 0;
    if (!set || yk_dataset_get_list(set, 3, YK_F64, tensors, &count))
        return NAN;
    return digest(tensors[0]) + 2 * digest(tensors[1]) + 3 * digest(tensors[2]);
}
static double targets_of(const yk_transform_targets_options *o)
{
    return targets_sum(yk_transform_targets(yk_center_crop(7), o));
}
MEASURE(targets_masks, yk_transform_targets_options, masks[0], targets_of, .boxes = {2})
MEASURE(targets_boxes, yk_transform_targets_options, boxes[0], targets_of, .masks = {1})
MEASURE(targets_mask_fill, yk_transform_targets_options, mask_fill, targets_of, .masks = {1})
static double sanitize_of(const yk_sanitize_bounding_boxes_options *o)
{
    return targets_sum(yk_sanitize_bounding_boxes(2, o));
}
MEASURE(sanitize_min_size, yk_sanitize_bounding_boxes_options, min_size, sanitize_of, .min_area = 1)
MEASURE(sanitize_min_area, yk_sanitize_bounding_boxes_options, min_area, sanitize_of, .min_size = 1)
static double sanitize_labels(double v)
{
    yk_sanitize_bounding_boxes_options o = *YK_OPTIONS(yk_sanitize_bounding_boxes_options);
    SET(o, labels[0], v);
    return yk_sanitize_bounding_boxes(2, &o) ? 1 : NAN;
}
static double rand_augment_of(const yk_rand_augment_options *o)
{
    return augmented_all(yk_rand_augment(o));
}
MEASURE(rand_augment_ops, yk_rand_augment_options, num_ops, rand_augment_of, .bilinear = true)
MEASURE(rand_augment_magnitude, yk_rand_augment_options, magnitude, rand_augment_of, .bilinear = true)
MEASURE(rand_augment_bins, yk_rand_augment_options, num_magnitude_bins, rand_augment_of, .bilinear = true)
MEASURE(rand_augment_fill, yk_rand_augment_options, fill, rand_augment_of, .num_ops = 12, .magnitude = 30)
static double vertical_flip_p(double p)
{
    return augmented(yk_random_vertical_flip(p));
}
static double grayscale_p(double p)
{
    return augmented(yk_random_grayscale(p));
}

static double loader_of(const yk_loader_options *o)
{
    yk_loader *l = loader_for(o);
    yk_batch batch;
    if (!l)
        return NAN;
    yk_loader_start(l, 0);
    assert_true(yk_loader_next(l, &batch));
    return digest(batch.input) + 1e5 * yk_tensor_dtype(batch.input) + 1e6 * (double)yk_loader_length(l);
}
/* Ten tokens, 10 to 19. */
static yk_tokens *ten_tokens(void)
{
    char path[] = "/tmp/yoke-options-tokens-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    for (int i = 0; file && i < 10; i++)
        fputc(10 + i, file);
    yk_tokens *tokens = file && !fclose(file) ? yk_token_file(path, YK_TOKENS_U8) : NULL;
    remove(path);
    return tokens;
}
/* An archive of six samples, of which the first batches count. */
static double shards_of(const yk_shards_options *given)
{
    char path[] = "/tmp/yoke-options-shards-XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    for (int i = 0; file && i < 6; i++) {
        char name[] = {(char)('a' + i), '.', 'b', 'i', 'n', 0}, byte = (char)(10 + i * i);
        tar_member(file, name, '0', &byte, 1);
    }
    double result = NAN;
    if (file && !tar_end(file)) {
        yk_shards_options o = *given;
        memset(o.fields, 0, sizeof(o.fields));
        o.fields[0] = "bin";
        yk_dataset *set = yk_shards(path, &o, NULL);
        yk_loader *l = set ? yk_loader_create(set, YK_OPTIONS(yk_loader_options, .batch_size = 6)) : NULL;
        yk_batch batch;
        if (l) {
            yk_loader_start(l, 0);
            assert_true(yk_loader_next(l, &batch));
            result = digest(batch.input) + 1e4 * (double)batch.count + 1e5 * (double)yk_dataset_classes(set) +
                     1e6 * (double)yk_loader_get_state(l).dataset_length;
        }
    }
    remove(path);
    return result;
}
static double token_blocks_of(const yk_token_blocks_options *o)
{
    yk_dataset *set = yk_token_blocks(ten_tokens(), o);
    yk_tensor *tensors[YK_SAMPLE_TENSORS];
    int count;
    if (!set || yk_dataset_get_list(set, yk_dataset_length(set) - 1, YK_F32, tensors, &count))
        return NAN;
    return digest(tensors[0]) + 1e4 * yk_size(tensors[0], 0) + 1e6 * (double)yk_dataset_length(set);
}
MEASURE(token_block, yk_token_blocks_options, block, token_blocks_of, .stride = 1)
MEASURE(token_stride, yk_token_blocks_options, stride, token_blocks_of, .block = 2)
MEASURE(token_begin, yk_token_blocks_options, begin, token_blocks_of, .block = 2)
MEASURE(token_end, yk_token_blocks_options, end, token_blocks_of, .block = 2)
MEASURE(token_vocab, yk_token_blocks_options, vocab_size, token_blocks_of, .block = 2)
MEASURE(shards_shuffle, yk_shards_options, shuffle, shards_of, .shardshuffle = false)
MEASURE(shards_streams, yk_shards_options, streams, shards_of, .shardshuffle = false)
MEASURE(shards_classes, yk_shards_options, classes, shards_of, .shardshuffle = false)
MEASURE(shards_samples, yk_shards_options, epoch_samples, shards_of, .shardshuffle = false)
MEASURE(loader_batch_size, yk_loader_options, batch_size, loader_of, .drop_last = true)
MEASURE(loader_seed, yk_loader_options, seed, loader_of, .batch_size = 2, .shuffle = true)
MEASURE(loader_dtype, yk_loader_options, dtype, loader_of, .batch_size = 2)
MEASURE(loader_rank, yk_loader_options, rank, loader_of, .batch_size = 2, .world_size = 4)
/* A picture with a label, so that there is something to mix. */
static yk_status make_labelled(void *context, int64_t index, yk_sample *sample)
{
    (void)context;
    float *x = yk_sample_allocate(sample, YK_F32, 3, (int64_t[]){1, 4, 4});
    for (int i = 0; x && i < 16; i++)
        x[i] = (float)(index * 16 + i);
    yk_sample_label(sample, index % 3);
    return x ? YK_OK : YK_ERR_MEMORY;
}
static double mixing_of(const yk_loader_options *o)
{
    const yk_dataset_table table = {.name = "labelled", .length = 6, .classes = 3, .get = make_labelled};
    yk_loader *l = yk_loader_create(yk_dataset_create(&table, NULL, NULL), o);
    yk_batch batch;
    return l && yk_loader_next(l, &batch) ? digest(batch.input) + 1e5 * digest(batch.target) : NAN;
}
MEASURE(loader_mixup, yk_loader_options, mixup, mixing_of, .batch_size = 6)
MEASURE(loader_cutmix, yk_loader_options, cutmix, mixing_of, .batch_size = 6)
MEASURE(loader_classes, yk_loader_options, num_classes, mixing_of, .batch_size = 6, .mixup = 1)
static double loader_world_size(double v) /* of which this is rank 0 */
{
    yk_loader_options o = *YK_OPTIONS(yk_loader_options, .batch_size = 2);
    if (v != YK_NOT_GIVEN) {
        o.world_size = (int)v;
        o.rank = 0;
    }
    return loader_of(&o);
}
static double loader_device(double v)
{
    yk_loader_options o = *YK_OPTIONS(yk_loader_options, .batch_size = 2);
    SET(o, device.index, v);
    yk_loader *l = loader_for(&o);
    yk_batch batch;
    if (!l)
        return NAN;
    yk_loader_start(l, 0);
    assert_true(yk_loader_next(l, &batch));
    return yk_tensor_device(batch.input).index;
}
static double loader_workers(double v)
{
    yk_loader_options o = *YK_OPTIONS(yk_loader_options, .batch_size = 2);
    SET(o, workers, v);
    double result = loader_of(&o);
    return isnan(result) ? result : atomic_load(&made_elsewhere);
}
/* The number of samples that are made while nobody takes any: batches of one, by one worker. */
static double loader_prefetch(double v)
{
    yk_loader *l = loader_for(YK_OPTIONS(yk_loader_options, .batch_size = 1, .workers = 1, .prefetch = (int)v));
    if (!l)
        return NAN;
    yk_loader_start(l, 0);
    for (int quiet = 0, before = -1; quiet < 50; quiet++) { /* until nothing has come for half a second */
        usleep(10000);
        if (atomic_load(&samples_made) != before || before == 0)
            quiet = 0;
        before = atomic_load(&samples_made);
    }
    return atomic_load(&samples_made);
}
static yk_status all_but_first(void *context, int64_t index, yk_sample *sample)
{
    return index ? make_sample(context, index, sample) : yk_set_error(YK_ERR_IO, "sample 0 cannot be read");
}
/* The second sample stands in for the first, or there is no batch. */
static double loader_on_error(double v)
{
    yk_loader_options o = *YK_OPTIONS(yk_loader_options, .batch_size = 2);
    SET(o, on_error, v);
    const yk_dataset_table table = {.name = "measured", .length = 4, .get = all_but_first};
    yk_loader *l = yk_loader_create(yk_dataset_create(&table, NULL, NULL), &o);
    yk_batch batch;
    if (!l)
        return NAN;
    yk_loader_start(l, 0);
    bool made = yk_loader_next(l, &batch);
    if (!made)
        expect_error(YK_ERR_IO, "sample 0 cannot be read");
    return made;
}
static double flip_p(double v)
{
    yk_transform *t = yk_random_horizontal_flip(v);
    if (!t)
        return NAN;
    double sum = 0;
    yk_dataset *set = yk_glyphs(YK_TEST, t, 0);
    for (int64_t i = 0; i < 4; i++)
        sum += digest(yk_dataset_get(set, i, YK_F32, NULL));
    return sum;
}

/* ---- pipelines --------------------------------------------------------------------------------------------------- */

static yk_tensor *sum_of(yk_tensor *output, yk_tensor *target, void *user)
{
    (void)target, (void)user;
    return yk_sum(output);
}

/* Two stages on cpu:0 and cpu:1, a step of five samples of 1; its loss. */
static double pipeline_step(const yk_pipeline_options *asked, yk_stage_times *times)
{
    yk_pipeline_options o = *asked;
    o.devices = (yk_device[]){{YK_CPU, 0}, {YK_CPU, 1}};
    o.criterion = sum_of;
    yk_module *stages[2];
    for (int s = 0; s < 2; s++) {
        stages[s] = yk_linear_create(1, 1, YK_OPTIONS(yk_linear_options, .bias = false));
        yk_module_add_parameter(stages[s], "weight", yk_ones(YK_SHAPE(1, 1), NULL));
    }
    yk_module *pipeline = yk_pipeline(stages, 2, &o);
    yk_tensor *loss = pipeline ? yk_pipeline_step(pipeline, yk_ones(YK_SHAPE(5, 1), NULL), NULL) : NULL;
    if (loss)
        expect_ok(yk_pipeline_report(pipeline, times));
    return loss ? yk_item(loss) : NAN;
}
static double pipeline_chunks(double v)
{
    yk_stage_times times[2];
    double loss = pipeline_step(YK_OPTIONS(yk_pipeline_options, .chunks = (int)v), times);
    return isnan(loss) ? NAN : (double)times[0].micro_batches;
}
static double pipeline_schedule(double v)
{
    yk_stage_times times[2];
    yk_pipeline_options o = *YK_OPTIONS(yk_pipeline_options, .chunks = 5);
    SET(o, schedule, v);
    double loss = pipeline_step(&o, times);
    return isnan(loss) ? NAN : times[0].in_flight;
}
static double pipeline_reduction(double v)
{
    yk_stage_times times[2];
    yk_pipeline_options o = *YK_OPTIONS(yk_pipeline_options);
    SET(o, reduction, v);
    return pipeline_step(&o, times);
}

/* ---- groups, stores, files --------------------------------------------------------------------------------------- */

static double group_times(yk_process_group *group, bool joining)
{
    return group ? (joining ? group->group->join_timeout : group->group->timeout) : NAN;
}
static double group_timeout(double v)
{
    return group_times(yk_process_group_create(NULL, 0, 1, YK_OPTIONS(yk_process_group_options, .timeout = v)), false);
}
static double group_join_timeout(double v)
{
    return group_times(yk_process_group_create(NULL, 0, 1, YK_OPTIONS(yk_process_group_options, .join_timeout = v)),
                       true);
}
static double init_of(const yk_init_options *o, bool joining)
{
    if (yk_init_process_group(o))
        return NAN;
    double seconds = group_times(yk_default_process_group(), joining);
    yk_destroy_process_group();
    return seconds;
}
static double init_timeout(double v)
{
    return init_of(YK_OPTIONS(yk_init_options, .timeout = v), false);
}
static double init_join_timeout(double v)
{
    return init_of(YK_OPTIONS(yk_init_options, .join_timeout = v), true);
}
static double init_rank(double v)
{
    yk_init_options o = *YK_OPTIONS(yk_init_options, .store = yk_hash_store(), .world_size = 1, .rank = (int)v);
    return isnan(init_of(&o, false)) ? NAN : v;
}
static double init_world_size(double v)
{
    yk_init_options o = *YK_OPTIONS(yk_init_options);
    if (v != YK_NOT_GIVEN) {
        o.world_size = (int)v;
        o.rank = 0;
    }
    return isnan(init_of(&o, false)) ? NAN : 1;
}

static double store_times(yk_store *store)
{
    return store ? (double)store->timeout : NAN;
}
static double store_timeout(double v)
{
    yk_tcp_store_options o = *YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .is_server = true);
    SET(o, timeout, v);
    return store_times(yk_tcp_store(&o));
}
static double store_port(double v)
{
    yk_tcp_store_options o = *YK_OPTIONS(yk_tcp_store_options, .host = "127.0.0.1", .is_server = true);
    SET(o, port, v);
    yk_store *store = yk_tcp_store(&o);
    return store ? yk_store_port(store) > 0 : NAN;
}
static double store_set_timeout(double v)
{
    yk_store *store = yk_hash_store();
    return yk_store_set_timeout(store, v) ? NAN : store_times(store);
}
/* 1 if the call waited as long as the store's own time, 0 if less; 2 for a call of 0.001 s, which is over then. */
static double store_waited(double v, yk_status (*call)(yk_store *store, double timeout))
{
    yk_store *store = yk_hash_store();
    expect_ok(yk_store_set_timeout(store, 0.25));
    double begin = yk__now();
    yk_status status = call(store, v);
    if (status != YK_ERR_TIMEOUT)
        return NAN;
    yk_clear_error();
    return v == 0.001 ? 2 : yk__now() - begin >= 0.25; /* a short one may take long on a busy machine */
}
static yk_status get_missing(yk_store *store, double timeout)
{
    void *data;
    return yk_store_get(store, "missing", &data, NULL, timeout);
}
static yk_status wait_missing(yk_store *store, double timeout)
{
    return yk_store_wait(store, (const char *[]){"missing"}, 1, timeout);
}
static yk_status watch_missing(yk_store *store, double timeout)
{
    void *data;
    size_t size;
    return yk_store_watch(store, "missing", NULL, 0, &data, &size, timeout);
}
static double store_get_timeout(double v)
{
    return store_waited(v, get_missing);
}
static double store_wait_timeout(double v)
{
    return store_waited(v, wait_missing);
}
static double store_watch_timeout(double v)
{
    return store_waited(v, watch_missing);
}

/* The caps of a reducer of two ranks. */
static yk_ddp_options ddp_asked;
static int64_t ddp_caps[2];
static void read_caps(rank_context *c)
{
    yk_ddp_options o = ddp_asked;
    o.group = c->group;
    yk_module *ddp = yk_ddp(yk_linear_create(2, 2, NULL), &o);
    yk__reducer *r = NULL;
    CHECK(ddp && !yk__reducer_of("options", ddp, &r) && r, "no reducer");
    if (c->rank == 0) {
        ddp_caps[0] = r->bucket_cap;
        ddp_caps[1] = r->first_bucket;
    }
}
static double ddp_of(const yk_ddp_options *o)
{
    if (!yk_ddp(yk_linear_create(2, 2, NULL), o)) /* a world of one looks at them too */
        return NAN;
    ddp_asked = *o;
    run_ranks(THREADS, 2, read_caps, NULL, 60, true);
    return (double)ddp_caps[0] + 0.001 * (double)ddp_caps[1];
}
MEASURE(ddp_bucket_cap_mb, yk_ddp_options, bucket_cap_mb, ddp_of, .first_bucket_mb = 1)
MEASURE(ddp_first_bucket_mb, yk_ddp_options, first_bucket_mb, ddp_of, .bucket_cap_mb = 1)

/* Rank 1 fails once rank 0 ignores SIGTERM. `survived` is set if rank 0 lived on for half a second after it. */
typedef struct spawned {
    atomic_int ready, asked, survived;
} spawned;
static spawned *spawn_shared;
static void note_asked(int signal)
{
    (void)signal;
    atomic_store(&spawn_shared->asked, 1);
}
static yk_status stay(int rank, void *arg)
{
    spawned *s = arg;
    if (rank == 0) {
        signal(SIGTERM, note_asked);
        atomic_store(&s->ready, 1);
        while (!atomic_load(&s->asked))
            usleep(1000);
        for (double until = yk__now() + 0.5; yk__now() < until;)
            usleep(1000);
        atomic_store(&s->survived, 1);
        return YK_OK;
    }
    while (!atomic_load(&s->ready))
        usleep(1000);
    return yk_set_error(YK_ERR_NUMERIC, "on purpose");
}
static double spawn_grace(double v)
{
    spawn_shared = mmap(NULL, sizeof(*spawn_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(spawn_shared != MAP_FAILED);
    yk_spawn_options o = *YK_OPTIONS(yk_spawn_options);
    SET(o, grace, v);
    yk_status status = yk_spawn(stay, spawn_shared, 2, &o);
    double survived = atomic_load(&spawn_shared->survived);
    munmap(spawn_shared, sizeof(*spawn_shared));
    if (status == YK_ERR_ARGUMENT)
        return NAN;
    assert_int_equal(status, YK_ERR_NUMERIC);
    yk_clear_error();
    return survived;
}
static yk_status has_port(int rank, void *arg)
{
    (void)rank, (void)arg;
    const char *port = getenv("MASTER_PORT");
    return port && atoi(port) > 0 ? YK_OK : yk_set_error(YK_ERR_STATE, "MASTER_PORT is %s", port ? port : "not set");
}
static double spawn_master_port(double v)
{
    yk_spawn_options o = *YK_OPTIONS(yk_spawn_options);
    SET(o, master_port, v);
    return yk_spawn(has_port, NULL, 1, &o) ? NAN : 1;
}

/* ---- workers ----------------------------------------------------------------------------------------------------- */

/* A member of the agent while this process is a worker with these options. */
static double elastic_of(const yk_elastic_options *o)
{
    yk_elastic_options with = *o;
    yk_checkpoint_state state;
    with.model = yk_linear_create(2, 2, NULL);
    with.optimizer = yk_sgd(yk_module_parameters(with.model), YK_OPTIONS(yk_sgd_options, .lr = 0.1));
    with.loader = loader_for(YK_OPTIONS(yk_loader_options, .batch_size = 1));
    yk_elastic *job = yk_elastic_create(&with);
    if (!job || yk_elastic_describe(job, &state))
        return NAN;
    return yk_elastic_virtual_ranks(job) + 1e6 * (double)state.accumulate;
}
MEASURE(elastic_virtual_ranks, yk_elastic_options, virtual_ranks, elastic_of, .schedule = NULL)
MEASURE(elastic_accumulate, yk_elastic_options, accumulate, elastic_of, .schedule = NULL)

static double rpc_number(const yk_rpc_init_options *o, double (*number)(void))
{
    yk_rpc_init_options with = *o;
    with.store = yk_hash_store();
    if (yk_rpc_init("options", &with))
        return NAN;
    double seen = number(); /* the record of a number that was refused stays */
    assert_int_equal(yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN), YK_OK);
    return seen;
}
static double agent_timeout(void)
{
    return yk__rpc.timeout;
}
static double agent_threads(void)
{
    return yk__rpc.threads_limit;
}
static double agent_max_message(void)
{
    return (double)yk__rpc.max_message;
}
static double agent_members(void)
{
    return yk__rpc.member_count;
}
static double rpc_init_timeout(double v)
{
    yk_rpc_init_options o = *YK_OPTIONS(yk_rpc_init_options);
    SET(o, timeout, v);
    return rpc_number(&o, agent_timeout);
}
static double rpc_init_threads(double v)
{
    yk_rpc_init_options o = *YK_OPTIONS(yk_rpc_init_options);
    SET(o, threads, v);
    return rpc_number(&o, agent_threads);
}
static double rpc_init_max_message(double v)
{
    yk_rpc_init_options o = *YK_OPTIONS(yk_rpc_init_options);
    SET(o, max_message, v);
    return rpc_number(&o, agent_max_message);
}
static double rpc_init_world_size(double v)
{
    yk_rpc_init_options o = *YK_OPTIONS(yk_rpc_init_options);
    SET(o, world_size, v);
    return rpc_number(&o, agent_members);
}
/* Seconds that a call has. */
static yk_rpc_options rpc_call_options;
static yk_status rpc_answer(yk_call *call)
{
    return yk_call_return(call, yk_value_none());
}
static double call_seconds(void)
{
    yk_future *f = yk_rpc_async("options", "options_answer", NULL, &rpc_call_options);
    return f ? round(f->deadline - yk__now()) : NAN;
}
static double rpc_timeout(double v)
{
    rpc_call_options = *YK_OPTIONS(yk_rpc_options);
    SET(rpc_call_options, timeout, v);
    expect_ok(yk_rpc_register("options_answer", rpc_answer));
    return rpc_number(YK_OPTIONS(yk_rpc_init_options), call_seconds);
}
/* The rate at which a distributed optimizer steps: a gradient of 1 changes a parameter of 0 by it. */
static double dist_rate;
static double dist_step(void)
{
    yk_tensor *x = yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    yk_ref *ref = yk_ref_create(yk_value_tensor(x));
    yk_dist_optimizer *o = yk_dist_sgd(&ref, 1, YK_OPTIONS(yk_sgd_options, .lr = 3));
    if (yk_dist_optimizer_set_lr(o, dist_rate))
        return NAN;
    yk_dist_context *c = yk_dist_autograd_begin();
    expect_ok(yk_dist_backward(c, &x, 1, NULL));
    expect_ok(yk_dist_optimizer_step(o, c));
    expect_ok(yk_dist_autograd_end(c));
    return -yk_item(x);
}
static double dist_set_lr(double v)
{
    dist_rate = v;
    return rpc_number(YK_OPTIONS(yk_rpc_init_options), dist_step);
}
/* Seconds that a distributed backward has. */
static yk_dist_backward_options dist_options;
static double dist_seconds;
static yk_tensor *dist_look(yk_tensor *grad, void *user)
{
    (void)grad, (void)user;
    dist_seconds = round(yk__dist_deadline() - yk__now());
    return NULL;
}
static double dist_run(void)
{
    dist_seconds = NAN;
    yk_tensor *x = yk_ones(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    yk_dist_context *c = yk_register_hook(x, dist_look, NULL) ? yk_dist_autograd_begin() : NULL;
    yk_status status = yk_dist_backward(c, &x, 1, &dist_options);
    return !yk_dist_autograd_end(c) && !status ? dist_seconds : NAN;
}
static double dist_timeout(double v)
{
    dist_options = *YK_OPTIONS(yk_dist_backward_options);
    SET(dist_options, timeout, v);
    return rpc_number(YK_OPTIONS(yk_rpc_init_options), dist_run);
}
/* True if a worker takes the options. */
static bool dist_with(const yk_dist_backward_options *o)
{
    expect_ok(yk_rpc_init("plain", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
    yk_tensor *x = yk_ones(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .requires_grad = true));
    yk_dist_context *c = yk_dist_autograd_begin();
    bool taken = !yk_dist_backward(c, &x, 1, o);
    (void)!yk_dist_autograd_end(c);
    (void)!yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN);
    return taken;
}
/* 1 if a wait of a worker whose calls have a second took `least` seconds, 0 if less; 2 for one of 0.001 s, which is
 * over then. */
static yk_status rpc_slow(yk_call *call)
{
    usleep(400000);
    return yk_call_return(call, yk_value_none());
}
static yk_future *slow_call(double timeout)
{
    return yk_rpc_async("options", "options_slow", NULL, YK_OPTIONS(yk_rpc_options, .timeout = timeout));
}
static double rpc_waited(double v, double least, yk_status (*wait)(double timeout))
{
    expect_ok(yk_rpc_register("options_slow", rpc_slow));
    expect_ok(yk_rpc_init("options", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store(), .timeout = 1)));
    double begin = yk__now();
    yk_status status = wait(v);
    double seconds = yk__now() - begin;
    assert_int_equal(yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN), YK_OK);
    if (status == YK_ERR_ARGUMENT)
        return NAN;
    yk_clear_error();
    return v == 0.001 && status == YK_ERR_TIMEOUT ? 2 : seconds >= least;
}
static yk_status wait_for_absent(double timeout)
{
    return yk_rpc_wait_for("absent", timeout);
}
static double rpc_wait_for_timeout(double v)
{
    return rpc_waited(v, 1, wait_for_absent);
}
/* The silence of a watch of another worker: a socket that accepts nobody, so that the watch goes on. */
static double watch_silence;
static bool watch_by_ref;
static void hear_nothing(const yk_rpc_end *end, void *ctx)
{
    (void)end;
    (void)ctx;
}
static double watch_number(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 && listen(fd, 1) == 0);
    getsockname(fd, (struct sockaddr *)&at, &size);
    char member[80];
    int64_t joined;
    snprintf(member, sizeof(member), "absent elsewhere 1 127.0.0.1:%d", ntohs(at.sin_port));
    expect_ok(yk_store_set(yk__rpc.store, "rpc/member/2", member, strlen(member)));
    expect_ok(yk_store_add(yk__rpc.store, "rpc/joined", 1, &joined));
    yk_ref *ref = yk_ref_create(yk_value_int(1)); /* made into one of that worker's */
    int64_t watch = 0;
    if (watch_by_ref) {
        uint32_t own = ref->owner.index;
        expect_ok(yk__rpc_member_at(2, &ref->owner));
        watch = yk_ref_watch(ref, watch_silence, hear_nothing, NULL);
        ref->owner.index = own;
    } else {
        watch = yk_rpc_watch("absent", watch_silence, hear_nothing, NULL);
    }
    close(fd);
    if (!watch)
        return NAN;
    double silence = NAN;
    yk__rpc_lock();
    for (const yk__rpc_watch *w = yk__rpc.watches; w; w = w->next)
        silence = w->id == watch ? w->silence : silence;
    pthread_mutex_unlock(&yk__rpc.lock);
    yk_rpc_unwatch(watch);
    return silence;
}
static double rpc_watch_silence(double v)
{
    watch_silence = v;
    watch_by_ref = false;
    return rpc_number(YK_OPTIONS(yk_rpc_init_options), watch_number);
}
static double ref_watch_silence(double v)
{
    watch_silence = v;
    watch_by_ref = true;
    return rpc_number(YK_OPTIONS(yk_rpc_init_options), watch_number);
}
static yk_state_dict *one_tensor(void)
{
    yk_state_dict *dict = yk_state_dict_create();
    expect_ok(yk_state_dict_add(dict, "x", yk_ones(YK_SHAPE(2), NULL)));
    return dict;
}
/* The number of versions that are published while a reader keeps each. */
static yk_publish_options publish_options;
static double publish_count(void)
{
    double count = 0;
    while (!yk_publish("options", one_tensor(), NULL, &publish_options) && yk_fetch("options", NULL, NULL))
        count++;
    if (yk_last_error()->code == YK_ERR_ARGUMENT)
        return NAN;
    yk_clear_error();
    return count;
}
static double publish_versions(double v)
{
    publish_options = *YK_OPTIONS(yk_publish_options);
    SET(publish_options, versions, v);
    return rpc_number(YK_OPTIONS(yk_rpc_init_options), publish_count);
}
/* 1 if the first version is enough, 2 if not. */
static yk_fetch_options fetch_options;
static double fetch_first(void)
{
    expect_ok(yk_publish("options", one_tensor(), NULL, NULL));
    if (yk_fetch("options", NULL, &fetch_options))
        return 1;
    if (yk_last_error()->code != YK_ERR_TIMEOUT)
        return NAN;
    yk_clear_error();
    return 2;
}
static double fetch_at_least(double v)
{
    fetch_options = *YK_OPTIONS(yk_fetch_options, .timeout = 0.05);
    SET(fetch_options, at_least, v);
    return rpc_number(YK_OPTIONS(yk_rpc_init_options), fetch_first);
}
static yk_status fetch_absent(double timeout)
{
    yk_fetch_options o = *YK_OPTIONS(yk_fetch_options);
    SET(o, timeout, timeout);
    return yk_fetch("absent", NULL, &o) ? YK_OK : yk_last_error()->code;
}
static double fetch_timeout(double v)
{
    return rpc_waited(v, 1, fetch_absent);
}
/* True if a worker takes the options. */
static bool publish_with(const yk_publish_options *publish, const yk_fetch_options *fetch)
{
    expect_ok(yk_rpc_init("plain", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
    if (fetch)
        expect_ok(yk_publish("options", one_tensor(), NULL, NULL));
    bool taken = fetch ? yk_fetch("options", NULL, fetch) != NULL : !yk_publish("options", one_tensor(), NULL, publish);
    (void)!yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN);
    return taken;
}
/* A parameter server in this worker, of one parameter x (1) that is 0, whose gradient is 1. */
static yk_parameter_server_options server_options;
static yk_tensor *server_x;
static yk_parameter_server *server_join(const yk_parameter_server_options *o)
{
    static const char *self[1];
    self[0] = yk_rpc_name();
    server_x = yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .requires_grad = true));
    yk_parameters *all = yk_parameters_create();
    expect_ok(yk_parameters_add(all, "x", server_x));
    yk_parameter_server *ps = yk_parameter_server_join(self, 1, all, o);
    if (ps)
        expect_ok(yk_set_grad(server_x, yk_ones(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_F64))));
    return ps;
}
/* The number of pushes, up to three, that do not wait for another trainer. */
static double server_pushes(void)
{
    double count = 0;
    yk_parameter_server *ps = server_join(&server_options);
    while (ps && count < 3 && !yk_parameter_server_push(ps))
        count++;
    if (!ps)
        return NAN;
    yk_clear_error();
    return count;
}
static double server_number(double (*number)(void))
{
    return rpc_number(YK_OPTIONS(yk_rpc_init_options), number);
}
#define SERVER_OPTIONS(...)                                                                                            \
    server_options = *YK_OPTIONS(yk_parameter_server_options, .sgd = YK_OPTIONS(yk_sgd_options, .lr = 1), __VA_ARGS__)
static double server_mode(double v)
{
    SERVER_OPTIONS(.rank = 0, .trainers = 2, .timeout = 0.2);
    SET(server_options, mode, v);
    return server_number(server_pushes);
}
static double server_staleness(double v)
{
    SERVER_OPTIONS(.rank = 0, .trainers = 2, .timeout = 0.2, .mode = YK_SERVER_STALE);
    SET(server_options, staleness, v);
    return server_number(server_pushes);
}
static double server_trainers(double v)
{
    SERVER_OPTIONS(.timeout = 0.2, .mode = YK_SERVER_SYNC);
    SET(server_options, trainers, v);
    server_options.rank = v == YK_NOT_GIVEN ? YK_NOT_GIVEN : 0;
    return server_number(server_pushes);
}
/* The trainer that it is, 0 or 1, which a second one cannot be. */
static double server_is_trainer(void)
{
    yk_parameter_server_options wanted = server_options;
    SERVER_OPTIONS(.rank = 0, .trainers = wanted.trainers == YK_NOT_GIVEN ? 1 : 2);
    if (wanted.rank == 1 && !server_join(&server_options)) /* trainer 0 has to come first */
        return NAN;
    if (!server_join(&wanted))
        return NAN;
    bool second = server_join(wanted.rank == 1 ? &wanted : &server_options);
    yk_clear_error();
    return second ? NAN : wanted.rank == 1;
}
static double server_rank(double v)
{
    SERVER_OPTIONS(.trainers = v == YK_NOT_GIVEN ? YK_NOT_GIVEN : 2);
    SET(server_options, rank, v);
    return server_number(server_is_trainer);
}
static double server_first_row(void)
{
    yk_tensor *index = yk_zeros(YK_SHAPE(1), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64));
    yk_parameter_server *ps = server_join(&server_options);
    return ps ? yk_item(yk_parameter_server_lookup(ps, "rows", index)) : NAN;
}
static double server_seed(double v)
{
    static const yk_server_table rows[] = {{.name = "rows", .rows = 1, .dim = 1, .std = 1}, {.name = NULL}};
    SERVER_OPTIONS(.tables = rows);
    SET(server_options, seed, v);
    return server_number(server_first_row);
}
/* The number of updates in the snapshot after five. */
static double server_saved(void)
{
    char path[200];
    yk_parameter_server *ps = server_join(&server_options);
    for (int i = 0; i < 5 && ps; i++)
        expect_ok(yk_parameter_server_push(ps));
    snprintf(path, sizeof(path), "%s/parameters.1-of-1.pt", server_options.snapshots);
    yk_value *saved = ps ? yk_pt_load(path, NULL) : NULL;
    unlink(path);
    return ps ? (double)yk_value_as_int(yk_value_get(saved, "updates")) : NAN;
}
static double server_snapshot_every(double v)
{
    char path[] = "/tmp/yoke-options-XXXXXX";
    assert_non_null(mkdtemp(path));
    SERVER_OPTIONS(.snapshots = path);
    SET(server_options, snapshot_every, v);
    double seen = server_number(server_saved);
    rmdir(path);
    return seen;
}
static yk_status server_waits(double timeout)
{
    SERVER_OPTIONS(.rank = 0, .trainers = 2, .mode = YK_SERVER_SYNC, .timeout = timeout);
    yk_parameter_server *ps = server_join(&server_options);
    return ps ? yk_parameter_server_push(ps) : yk_last_error()->code;
}
static double server_timeout(double v)
{
    return rpc_waited(v, 1, server_waits);
}
static double server_rate;
static double server_step(void)
{
    SERVER_OPTIONS(.name = "rate");
    yk_parameter_server *ps = server_join(&server_options);
    if (yk_parameter_server_set_lr(ps, server_rate))
        return NAN;
    expect_ok(yk_parameter_server_step(ps));
    return -yk_item(server_x);
}
static double server_set_lr(double v)
{
    server_rate = v;
    return server_number(server_step);
}
static bool server_with(const yk_parameter_server_options *o)
{
    expect_ok(yk_rpc_init("plain", YK_OPTIONS(yk_rpc_init_options, .store = yk_hash_store())));
    bool taken = server_join(o) != NULL;
    (void)!yk_rpc_shutdown(YK_RPC_AT_ONCE, YK_NOT_GIVEN);
    return taken;
}
static yk_status wait_for_future(double timeout)
{
    return yk_future_wait(slow_call(0.25), timeout) ? YK_OK : yk_last_error()->code;
}
static double future_wait_timeout(double v)
{
    return rpc_waited(v, 0.25, wait_for_future);
}
static yk_status wait_for_any(double timeout)
{
    return yk_future_wait_any((yk_future *[]){slow_call(0.25)}, 1, timeout) == 0 ? YK_OK : yk_last_error()->code;
}
static double future_wait_any_timeout(double v)
{
    return rpc_waited(v, 0.25, wait_for_any);
}
/* A graceful end lets calls be answered while it has time. */
static yk_status leave_with_call(double timeout)
{
    yk_future *f = slow_call(30);
    yk_status status = yk_rpc_shutdown(YK_RPC_GRACEFUL, timeout);
    return status ? status : yk_future_wait(f, YK_NOT_GIVEN) ? YK_OK : YK_ERR_TIMEOUT;
}
static double rpc_shutdown_timeout(double v)
{
    return rpc_waited(v, 0.25, leave_with_call);
}

/* The number of five checkpoints that stay. */
static double manager_keep(double v)
{
    char root[] = "/tmp/yoke-options-XXXXXX", path[100];
    assert_non_null(mkdtemp(root));
    yk_scope scope = yk_scope_begin();
    yk_checkpoint_manager_options o = *YK_OPTIONS(yk_checkpoint_manager_options);
    SET(o, keep, v);
    yk_checkpoint_manager *m = yk_checkpoint_manager_create(root, &o);
    yk_checkpoint_state state = {.model = yk_linear_create(1, 1, NULL)};
    for (; m && state.step < 5; state.step++)
        expect_ok(yk_checkpoint_manager_save(m, &state));
    yk_scope_end(scope);
    double kept = 0;
    for (int step = 0; step < 5; step++) {
        snprintf(path, sizeof(path), "%s/step-%08d", root, step);
        kept += access(path, F_OK) == 0;
    }
    snprintf(path, sizeof(path), "rm -r '%s'", root);
    assert_int_equal(system(path), 0);
    return m ? kept : NAN;
}

/* ---- traces ------------------------------------------------------------------------------------------------------ */
/* The steps and ranges in the trace of four steps, and of more ranges than a small memory has room for. */
static double profiler_of(const yk_profiler_options *o)
{
    char path[] = "/tmp/yoke-profiler-XXXXXX", line[1000];
    int steps = 0, ranges = 0, fd = mkstemp(path);
    yk_tensor *x;
    yk_optimizer *sgd = yk_sgd(one_parameter(&x), YK_OPTIONS(yk_sgd_options, .lr = 0.5));
    yk_status status = yk_profiler_start(o);
    for (int i = 0; i < 20000 && !status; i++) {
        yk_profiler_range_begin("much");
        yk_profiler_range_end();
    }
    for (int i = 0; i < 4 && !status; i++)
        status = yk_optimizer_step(sgd);
    if (!status)
        status = yk_profiler_stop(path);
    FILE *from = status ? NULL : fopen(path, "r");
    while (from && fgets(line, sizeof(line), from)) {
        steps += strstr(line, "\"optimizer_step\"") != NULL;
        ranges += strstr(line, "\"much\"") != NULL;
    }
    if (from)
        fclose(from);
    close(fd);
    unlink(path);
    return from ? steps + 10.0 * ranges : NAN;
}
MEASURE(profiler_wait, yk_profiler_options, wait, profiler_of, .with_shapes = true)
MEASURE(profiler_active, yk_profiler_options, active, profiler_of, .with_shapes = true)
MEASURE(profiler_memory, yk_profiler_options, memory, profiler_of, .with_shapes = true)

/* ---- files of ONNX ----------------------------------------------------------------------------------------------- */
/* The number of an LSTM's results that are in the file. */
static double onnx_of(const yk_onnx_options *o)
{
    char path[] = "/tmp/yoke-onnx-XXXXXX", text[8192];
    int file = mkstemp(path);
    yk_tensor *x = yk_zeros(YK_SHAPE(2, 3, 2), NULL);
    yk_status status =
        yk_onnx_export(yk_lstm_create(2, 2, YK_OPTIONS(yk_lstm_module_options, .batch_first = true)), path, &x, 1, o);
    int there = file >= 0 ? open(path, O_RDONLY) : -1;
    ssize_t size = there >= 0 ? read(there, text, sizeof(text)) : -1;
    bool two = size > 0 && memmem(text, (size_t)size, "output_1", 8);
    if (there >= 0)
        close(there);
    if (file >= 0)
        close(file);
    unlink(path);
    return status || size <= 0 ? NAN : 1 + two;
}
MEASURE(onnx_n_outputs, yk_onnx_options, n_outputs, onnx_of, .batch_dims = NULL)

/* ---- event files ------------------------------------------------------------------------------------------------- */
/* Summaries of 300,000 numbers that a queue has room for, and whether one is in the file a quarter of a second later.
 */
static double summary_of(const yk_summary_options *o)
{
    char path[] = "/tmp/yoke-summary-XXXXXX", line[300];
    struct stat before, after;
    yk_summary_writer *w = mkdtemp(path) ? yk_summary_create(path, o) : NULL;
    yk_tensor *large = yk_zeros(YK_SHAPE(300000), NULL);
    int fits = 0;
    if (w && stat(yk_summary_path(w), &before) == 0 && !yk_summary_histogram(w, "large", large, 1)) {
        usleep(o->flush_seconds < 0.1 ? (useconds_t)(1e6 * patience(1)) : 250000);
        fits = stat(yk_summary_path(w), &after) == 0 && after.st_size > before.st_size;
        if (yk_summary_flush(w)) {
            yk_clear_error();
            fits += 10;
        }
    }
    snprintf(line, sizeof(line), "rm -rf %s", path);
    return system(line) == 0 && w ? fits : NAN;
}
MEASURE(summary_flush_seconds, yk_summary_options, flush_seconds, summary_of, .queue_bytes = 64 << 20)
MEASURE(summary_queue_bytes, yk_summary_options, queue_bytes, summary_of, .flush_seconds = 1000)

#endif
