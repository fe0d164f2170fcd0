/*
 * yoke/ops.h - differentiable operations. Layer: ops.
 *
 * Every function returns a new tensor owned by the current scope, or NULL with the error record set; NULL inputs give
 * NULL and leave the record alone, so expressions can be nested and checked once. Shapes broadcast and dtypes promote
 * as in PyTorch; the PyTorch counterpart has the same name. Differentiable unless said otherwise. Negative dims count
 * from the end.
 *
 * All tensors of a call are on one device; two devices are an error that names both (yk_to and yk_copy_ cross). But
 * arithmetic, comparisons and yk_where on a GPU take a 0-dimensional tensor from a CPU, too, as PyTorch's do. f16 and
 * bf16 are computed in f32 and rounded once at the end. Elementwise operations, pooling and normalisation keep the
 * memory order of their input, convolution chooses one; strides never change the result.
 */
#ifndef YOKE_OPS_H
#define YOKE_OPS_H

#include <yoke/autograd.h>
#include <yoke/ops_index.h>
#include <yoke/ops_math.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise ------------------------------------------------------------------------------------------------ */
YK_API yk_tensor *yk_add(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_sub(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_mul(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_div(yk_tensor *a, yk_tensor *b); /* integers give f32 */
YK_API yk_tensor *yk_pow(yk_tensor *a, yk_tensor *b);
/* Quotients that are rounded down, as Python's //, and to zero; integers stay integers, exact ones. They have a
 * gradient of zero. Source: torch.div with rounding_mode. Integers divided by 0 are an error on CPUs, and 0 elsewhere.
 */
YK_API yk_tensor *yk_floor_divide(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_trunc_divide(yk_tensor *a, yk_tensor *b);
/* The rest that such a quotient leaves: with the sign of b, as Python's %, and with that of a. */
YK_API yk_tensor *yk_remainder(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_fmod(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_floor_divide_scalar(yk_tensor *a, double b); /* integers by a whole number stay integers */
YK_API yk_tensor *yk_remainder_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_maximum(yk_tensor *a, yk_tensor *b); /* equal elements share the gradient */
YK_API yk_tensor *yk_minimum(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_add_scaled(yk_tensor *a, yk_tensor *b, double alpha); /* a + alpha b, in integers alpha too */
YK_API yk_tensor *yk_add_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_sub_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_rsub_scalar(yk_tensor *a, double b); /* b - a */
YK_API yk_tensor *yk_mul_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_div_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_pow_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_neg(yk_tensor *x);
YK_API yk_tensor *yk_abs(yk_tensor *x);
YK_API yk_tensor *yk_exp(yk_tensor *x);
YK_API yk_tensor *yk_log(yk_tensor *x);
YK_API yk_tensor *yk_sqrt(yk_tensor *x);
YK_API yk_tensor *yk_rsqrt(yk_tensor *x);
YK_API yk_tensor *yk_reciprocal(yk_tensor *x);
YK_API yk_tensor *yk_square(yk_tensor *x);
YK_API yk_tensor *yk_sin(yk_tensor *x);
YK_API yk_tensor *yk_cos(yk_tensor *x);
YK_API yk_tensor *yk_tanh(yk_tensor *x);
YK_API yk_tensor *yk_sigmoid(yk_tensor *x);
YK_API yk_tensor *yk_relu(yk_tensor *x);
YK_API yk_tensor *yk_gelu(yk_tensor *x);      /* exact, with erf */
YK_API yk_tensor *yk_gelu_tanh(yk_tensor *x); /* approximate="tanh" */
/* Activations of floating tensors, as torch.nn.functional's; what PyTorch has for a default stands behind. */
YK_API yk_tensor *yk_silu(yk_tensor *x);                              /* x sigmoid(x) */
YK_API yk_tensor *yk_mish(yk_tensor *x);                              /* x tanh(softplus(x)) */
YK_API yk_tensor *yk_relu6(yk_tensor *x);                             /* clamped to [0, 6]; of integers, too */
YK_API yk_tensor *yk_leaky_relu(yk_tensor *x, double negative_slope); /* 0.01: negative_slope x below 0 */
YK_API yk_tensor *yk_elu(yk_tensor *x, double alpha);                 /* 1: alpha (e^x - 1) below 0 */
YK_API yk_tensor *yk_selu(yk_tensor *x);
YK_API yk_tensor *yk_hardswish(yk_tensor *x);
YK_API yk_tensor *yk_hardsigmoid(yk_tensor *x);
YK_API yk_tensor *yk_log_sigmoid(yk_tensor *x);
/* 1, 20: log(1 + e^(beta x)) / beta, and x where beta x is above the threshold. */
YK_API yk_tensor *yk_softplus(yk_tensor *x, double beta, double threshold);
/* weight x below 0; weight is one number, or (C) for x (N,C,...), of x's dtype, and gets a gradient. */
YK_API yk_tensor *yk_prelu(yk_tensor *x, yk_tensor *weight);
/* -1: the first half along the dimension times the sigmoid of the second. */
YK_API yk_tensor *yk_glu(yk_tensor *x, int dim);
YK_API yk_tensor *yk_threshold(yk_tensor *x, double threshold, double value); /* value where x is not above */
YK_API yk_tensor *yk_hardtanh(yk_tensor *x, double min_val, double max_val);  /* -1, 1: yk_clamp */
YK_API yk_tensor *yk_hardshrink(yk_tensor *x, double lambd);                  /* 0.5: 0 in [-lambd, lambd] */
YK_API yk_tensor *yk_softshrink(yk_tensor *x, double lambd); /* 0.5: nearer to 0 by lambd, at most to 0 */
YK_API yk_tensor *yk_tanhshrink(yk_tensor *x);               /* x - tanh(x) */
YK_API yk_tensor *yk_softsign(yk_tensor *x);                 /* x / (1 + |x|) */
YK_API yk_tensor *yk_celu(yk_tensor *x, double alpha);       /* 1: alpha (e^(x / alpha) - 1) below 0 */
/* 1/8, 1/3, false: in training x times a slope drawn from [lower, upper) for each element below 0, else times the
 * middle one. */
YK_API yk_tensor *yk_rrelu(yk_tensor *x, double lower, double upper, bool training);
YK_API yk_tensor *yk_softmin(yk_tensor *x, int dim); /* yk_softmax of -x */
/* -INFINITY, INFINITY: unbounded. No gradient where a bound is reached. */
YK_API yk_tensor *yk_clamp(yk_tensor *x, double low, double high);
/* Steps: their gradient is zero. */
YK_API yk_tensor *yk_sign(yk_tensor *x);
YK_API yk_tensor *yk_floor(yk_tensor *x);
YK_API yk_tensor *yk_ceil(yk_tensor *x);
YK_API yk_tensor *yk_round(yk_tensor *x); /* half to even */
/* These, comparisons and logic give bool, and have no gradient. */
YK_API yk_tensor *yk_is_finite(yk_tensor *x);
YK_API yk_tensor *yk_eq(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_ne(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_lt(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_le(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_gt(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_ge(yk_tensor *a, yk_tensor *b);
/* With a number. Integers beside a whole one are compared as such, beside another one as f32. */
YK_API yk_tensor *yk_eq_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_ne_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_lt_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_le_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_gt_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_ge_scalar(yk_tensor *a, double b);
YK_API yk_tensor *yk_logical_xor(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_logical_and(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_logical_or(yk_tensor *a, yk_tensor *b);
YK_API yk_tensor *yk_logical_not(yk_tensor *x);
/* condition (bool) ? a : b, all broadcast. */
YK_API yk_tensor *yk_where(yk_tensor *condition, yk_tensor *a, yk_tensor *b);

/* ---- in place: x is changed and returned (borrowed, so no scope is needed). x may be a view, or have views: gradients
 * flow through the part that was written to x's maker and past it, and views made before follow. While operations are
 * recorded, a leaf that requires a gradient, a view of one, one of the views of yk_split, yk_chunk and yk_unbind and a
 * view made under yk_no_grad_begin are errors where a gradient is involved; an expanded x always is. A tensor that some
 * backward needs may be overwritten: that backward then fails, naming versions. x keeps its shape and dtype; a result
 * that does not fit them is an error. ---- */
YK_API yk_tensor *yk_add_(yk_tensor *x, yk_tensor *y, double alpha); /* x += alpha y */
YK_API yk_tensor *yk_mul_(yk_tensor *x, yk_tensor *y);
YK_API yk_tensor *yk_mul_scalar_(yk_tensor *x, double y);
YK_API yk_tensor *yk_relu_(yk_tensor *x);
YK_API yk_tensor *yk_sub_(yk_tensor *x, yk_tensor *y, double alpha); /* x -= alpha y */
YK_API yk_tensor *yk_div_(yk_tensor *x, yk_tensor *y);
YK_API yk_tensor *yk_add_scalar_(yk_tensor *x, double y);
YK_API yk_tensor *yk_sub_scalar_(yk_tensor *x, double y);
YK_API yk_tensor *yk_div_scalar_(yk_tensor *x, double y);
YK_API yk_tensor *yk_pow_scalar_(yk_tensor *x, double y);
YK_API yk_tensor *yk_clamp_(yk_tensor *x, double low, double high);
YK_API yk_tensor *yk_addcmul_(yk_tensor *x, yk_tensor *a, yk_tensor *b, double value); /* x += value a b */
YK_API yk_tensor *yk_addcdiv_(yk_tensor *x, yk_tensor *a, yk_tensor *b, double value); /* x += value a / b */
YK_API yk_tensor *yk_lerp_(yk_tensor *x, yk_tensor *end, yk_tensor *weight);
YK_API yk_tensor *yk_lerp_scalar_(yk_tensor *x, yk_tensor *end, double weight);
/* The function of the same name without an underscore. */
YK_API yk_tensor *yk_neg_(yk_tensor *x);
YK_API yk_tensor *yk_abs_(yk_tensor *x);
YK_API yk_tensor *yk_exp_(yk_tensor *x);
YK_API yk_tensor *yk_log_(yk_tensor *x);
YK_API yk_tensor *yk_sqrt_(yk_tensor *x);
YK_API yk_tensor *yk_rsqrt_(yk_tensor *x);
YK_API yk_tensor *yk_reciprocal_(yk_tensor *x);
YK_API yk_tensor *yk_square_(yk_tensor *x);
YK_API yk_tensor *yk_tanh_(yk_tensor *x);
YK_API yk_tensor *yk_sigmoid_(yk_tensor *x);
YK_API yk_tensor *yk_floor_(yk_tensor *x);
YK_API yk_tensor *yk_ceil_(yk_tensor *x);
YK_API yk_tensor *yk_round_(yk_tensor *x);
YK_API yk_tensor *yk_copy_(yk_tensor *x, yk_tensor *from); /* casts, broadcasts, crosses devices */
YK_API yk_tensor *yk_fill_(yk_tensor *x, double value);
YK_API yk_tensor *yk_zero_(yk_tensor *x);
YK_API yk_tensor *yk_uniform_(yk_tensor *x, double low, double high); /* no gradient */
YK_API yk_tensor *yk_normal_(yk_tensor *x, double mean, double deviation);

/* ---- shape: views share the storage; the others copy ------------------------------------------------------------- */
/* One size may be -1. A view where the strides allow it, else a copy. */
YK_API yk_tensor *yk_reshape(yk_tensor *x, int ndim, const int64_t *shape);
YK_API yk_tensor *yk_view(yk_tensor *x, int ndim, const int64_t *shape); /* an error where a copy would be needed */
YK_API yk_tensor *yk_flatten(yk_tensor *x, int start_dim, int end_dim);  /* both included: 1, -1 keeps the batch */
/* A dimension as several, of `sizes`, one of which may be -1. A view. */
YK_API yk_tensor *yk_unflatten(yk_tensor *x, int dim, int n_sizes, const int64_t *sizes);
YK_API yk_tensor *yk_permute(yk_tensor *x, const int *dims); /* ndim of them: a view */
YK_API yk_tensor *yk_transpose(yk_tensor *x, int dim0, int dim1);
YK_API yk_tensor *yk_squeeze(yk_tensor *x, int dim); /* drops the dimension if its size is 1 */
YK_API yk_tensor *yk_unsqueeze(yk_tensor *x, int dim);
YK_API yk_tensor *yk_expand(yk_tensor *x, int ndim, const int64_t *shape); /* -1 keeps a size */
/* x[..., start:end:step, ...]; start and end as in Python (YK_END: to the end), step >= 1. A view. */
#define YK_END INT64_MAX
YK_API yk_tensor *yk_slice(yk_tensor *x, int dim, int64_t start, int64_t end, int64_t step);
YK_API yk_tensor *yk_select(yk_tensor *x, int dim, int64_t index); /* drops the dimension. A view. */
YK_API yk_tensor *yk_narrow(yk_tensor *x, int dim, int64_t start, int64_t length);
/* A border around x: pad has n widths, two for each dimension from the last one on, before and after it; negative ones
 * cut off. value is for YK_PAD_CONSTANT. Reflected, a border is less wide than the dimension, in a circle at most as
 * wide; any dimension may have one. Source: torch.nn.functional.pad. */
typedef enum yk_pad_mode { YK_PAD_CONSTANT = 0, YK_PAD_REFLECT, YK_PAD_REPLICATE, YK_PAD_CIRCULAR } yk_pad_mode;
YK_API yk_tensor *yk_pad(yk_tensor *x, const int64_t *pad, int n, yk_pad_mode mode, double value);
YK_API yk_tensor *yk_cat(yk_tensor *const *xs, int count, int dim);
YK_API yk_tensor *yk_stack(yk_tensor *const *xs, int count, int dim);
/*
 * Adjacent views of x along a dimension, written to parts[] (of `capacity`); *count of them. split: each `chunk` long,
 * the last one shorter where that does not divide (an empty dimension: one part); chunk: as many as asked for or fewer,
 * of ceil(size / chunks); unbind: one for every index, without the dimension; split_sizes: of the `count` sizes given,
 * which add up. Parts whose gradient never comes count as zero. On failure parts[] holds nothing.
 */
YK_API yk_status yk_split(yk_tensor *x, int64_t chunk, int dim, yk_tensor **parts, int capacity,
                          int *count) YK_MUST_CHECK;
YK_API yk_status yk_split_sizes(yk_tensor *x, const int64_t *sizes, int count, int dim,
                                yk_tensor **parts) YK_MUST_CHECK;
YK_API yk_status yk_chunk(yk_tensor *x, int64_t chunks, int dim, yk_tensor **parts, int capacity,
                          int *count) YK_MUST_CHECK;
YK_API yk_status yk_unbind(yk_tensor *x, int dim, yk_tensor **parts, int capacity, int *count) YK_MUST_CHECK;
YK_API yk_tensor *yk_contiguous(yk_tensor *x); /* x itself where it is */
YK_API yk_tensor *yk_clone(yk_tensor *x);
YK_API yk_tensor *yk_cast(yk_tensor *x, yk_dtype dtype); /* x itself where it has the dtype */
YK_API yk_tensor *yk_to(yk_tensor *x, yk_device device); /* x itself where it is there */
/* yk_to cuda:index, -1 for the current GPU of the thread; and to the current CPU device, cpu:0 where none was set. */
YK_API yk_tensor *yk_cuda(yk_tensor *x, int index);
YK_API yk_tensor *yk_cpu(yk_tensor *x);

/* ---- reductions: dims NULL (n_dims 0) means all ------------------------------------------------------------------ */
YK_API yk_tensor *yk_sum(yk_tensor *x);
YK_API yk_tensor *yk_mean(yk_tensor *x);
YK_API yk_tensor *yk_sum_dims(yk_tensor *x, const int *dims, int n_dims, bool keepdim);
YK_API yk_tensor *yk_mean_dims(yk_tensor *x, const int *dims, int n_dims, bool keepdim);
/* Divided by count - correction (PyTorch's default is 1). */
YK_API yk_tensor *yk_var_dims(yk_tensor *x, const int *dims, int n_dims, double correction, bool keepdim);
YK_API yk_tensor *yk_var(yk_tensor *x);  /* all, correction 1 */
YK_API yk_tensor *yk_prod(yk_tensor *x); /* all; integers in i64. The gradient is exact where factors are zero, too */
YK_API yk_tensor *yk_prod_dim(yk_tensor *x, int dim, bool keepdim);
/* The largest of one dimension; its position goes to *index (i64, no gradient) unless that is NULL. */
YK_API yk_tensor *yk_max_dim(yk_tensor *x, int dim, bool keepdim, yk_tensor **index);
YK_API yk_tensor *yk_min_dim(yk_tensor *x, int dim, bool keepdim, yk_tensor **index);
YK_API yk_tensor *yk_max(yk_tensor *x); /* of all; equal elements share the gradient evenly */
YK_API yk_tensor *yk_min(yk_tensor *x);
YK_API yk_tensor *yk_argmax(yk_tensor *x, int dim, bool keepdim); /* i64, no gradient; YK_NOT_GIVEN: of all, C order */
YK_API yk_tensor *yk_argmin(yk_tensor *x, int dim, bool keepdim);
YK_API yk_tensor *yk_any(yk_tensor *x); /* bool; of uint8, uint8 */
YK_API yk_tensor *yk_all(yk_tensor *x);
YK_API yk_tensor *yk_softmax(yk_tensor *x, int dim);
YK_API yk_tensor *yk_log_softmax(yk_tensor *x, int dim);

/* ---- products ---------------------------------------------------------------------------------------------------- */
/* (M,K) (K,N); (...,M,K) (...,K,N) with batches broadcast; a 1-d operand as in torch.matmul. Floating, one dtype. */
YK_API yk_tensor *yk_matmul(yk_tensor *a, yk_tensor *b);
/* x (..., in), weight (out, in), bias (out) or NULL: (..., out) = x weight^T + bias. */
YK_API yk_tensor *yk_linear(yk_tensor *x, yk_tensor *weight, yk_tensor *bias);
/* yk_relu of it, in one operation. */
YK_API yk_tensor *yk_linear_relu(yk_tensor *x, yk_tensor *weight, yk_tensor *bias);

/* a (...,I), b (...,J), weight (O,I,J), bias (O) or NULL: (...,O), a weight[o] b^T + bias[o]. */
YK_API yk_tensor *yk_bilinear(yk_tensor *a, yk_tensor *b, yk_tensor *weight, yk_tensor *bias);

/* ---- networks ---------------------------------------------------------------------------------------------------- */
/* For padding: half of what the kernel reaches over, so that the result has the input's size; stride 1 alone. Where
 * that is odd, the end gets one more. Source: padding="same"; "valid" is 0. */
#define YK_PADDING_SAME (YK_NOT_GIVEN + 1)
/* Pairs are height, width. */
typedef struct yk_conv2d_options {
    int64_t stride[2] YK_DEFAULT(1, 1), padding[2] YK_DEFAULT(0, 0), dilation[2] YK_DEFAULT(1, 1);
    int64_t groups YK_DEFAULT(1);
    bool relu YK_DEFAULT(false);            /* max(0, ...) of it, in one operation */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_conv2d_options;
#define yk_conv2d_options_DEFAULTS .yk__mark = YK__MARK, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1
/* x (N,C,H,W), weight (O,C/groups,KH,KW), bias (O) or NULL: (N,O,OH,OW). As for all convolutions, x and the result may
 * be without N. */
YK_API yk_tensor *yk_conv2d(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, const yk_conv2d_options *options);

/* The other convolutions take, along N dimensions, the first N numbers, of the outermost dimension first. */
typedef struct yk_conv_options {
    int64_t stride[3] YK_DEFAULT(1, 1, 1), padding[3] YK_DEFAULT(0, 0, 0), dilation[3] YK_DEFAULT(1, 1, 1);
    /* Transposed only, below the stride or the dilation: this much more at the end of each dimension. */
    int64_t output_padding[3] YK_DEFAULT(0, 0, 0);
    int64_t groups YK_DEFAULT(1);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_conv_options;
#define yk_conv_options_DEFAULTS .yk__mark = YK__MARK, .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .groups = 1
/* x (N,C,L), weight (O,C/groups,K), bias (O) or NULL: (N,O,OL). */
YK_API yk_tensor *yk_conv1d(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, const yk_conv_options *options);
/* x (N,C,D,H,W), weight (O,C/groups,KD,KH,KW): (N,O,OD,OH,OW). Holds x KD times. */
YK_API yk_tensor *yk_conv3d(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, const yk_conv_options *options);
/* The gradient of a convolution's input, as an operation: x (N,C,...), weight (C,O/groups,...), bias (O) or NULL; the
 * result has (size - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1. Source: conv_transpose2d. */
YK_API yk_tensor *yk_conv_transpose1d(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, const yk_conv_options *options);
YK_API yk_tensor *yk_conv_transpose2d(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, const yk_conv_options *options);
YK_API yk_tensor *yk_conv_transpose3d(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, const yk_conv_options *options);
/* Pairs are height, width. */
typedef struct yk_pool2d_options {
    int64_t kernel[2] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN); /* no default: an error when it is not given */
    int64_t stride[2] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN); /* not given: kernel */
    int64_t padding[2] YK_DEFAULT(0, 0);                      /* at most half of the size that the kernel covers */
    int64_t dilation[2] YK_DEFAULT(1, 1);                     /* maximum only */
    bool ceil_mode YK_DEFAULT(false);
    bool count_include_pad YK_DEFAULT(true); /* average only */
    /* Average only, above 0; not given: the elements of the window. */
    int64_t divisor_override YK_DEFAULT(YK_NOT_GIVEN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_pool2d_options;
#define yk_pool2d_options_DEFAULTS                                                                                     \
    .yk__mark = YK__MARK, .kernel = {YK_NOT_GIVEN, YK_NOT_GIVEN}, .stride = {YK_NOT_GIVEN, YK_NOT_GIVEN},              \
    .dilation = {1, 1}, .count_include_pad = true, .divisor_override = YK_NOT_GIVEN
YK_API yk_tensor *yk_max_pool2d(yk_tensor *x, const yk_pool2d_options *options);
YK_API yk_tensor *yk_avg_pool2d(yk_tensor *x, const yk_pool2d_options *options);
/* A result of height x width; YK_NOT_GIVEN: the input's. */
YK_API yk_tensor *yk_adaptive_avg_pool2d(yk_tensor *x, int64_t height, int64_t width);

/* Pools along N dimensions of x (N,C,...) or (C,...) take the first N numbers, of the outermost dimension first. */
typedef struct yk_pool_options {
    int64_t kernel[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN); /* no default: an error when not given */
    int64_t stride[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN); /* not given: kernel */
    int64_t padding[3] YK_DEFAULT(0, 0, 0);                                 /* at most half of what the kernel covers */
    int64_t dilation[3] YK_DEFAULT(1, 1, 1);                                /* maximum only */
    bool ceil_mode YK_DEFAULT(false);
    bool count_include_pad YK_DEFAULT(true); /* average only */
    /* Average only, above 0; not given: the elements of the window. */
    int64_t divisor_override YK_DEFAULT(YK_NOT_GIVEN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_pool_options;
#define yk_pool_options_DEFAULTS                                                                                       \
    .yk__mark = YK__MARK, .kernel = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN},                                        \
    .stride = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN}, .dilation = {1, 1, 1}, .count_include_pad = true,            \
    .divisor_override = YK_NOT_GIVEN
YK_API yk_tensor *yk_max_pool1d(yk_tensor *x, const yk_pool_options *options);
YK_API yk_tensor *yk_max_pool3d(yk_tensor *x, const yk_pool_options *options);
YK_API yk_tensor *yk_avg_pool1d(yk_tensor *x, const yk_pool_options *options);
YK_API yk_tensor *yk_avg_pool3d(yk_tensor *x, const yk_pool_options *options);
YK_API yk_tensor *yk_adaptive_avg_pool1d(yk_tensor *x, int64_t length);
YK_API yk_tensor *yk_adaptive_avg_pool3d(yk_tensor *x, int64_t depth, int64_t height, int64_t width);
YK_API yk_tensor *yk_adaptive_max_pool1d(yk_tensor *x, int64_t length);
YK_API yk_tensor *yk_adaptive_max_pool2d(yk_tensor *x, int64_t height, int64_t width);
YK_API yk_tensor *yk_adaptive_max_pool3d(yk_tensor *x, int64_t depth, int64_t height, int64_t width);
/* Maxima as above, and in *indices (i64, no gradient), of the result's shape, which element of its channel each is:
 * those that yk_max_unpool takes. */
YK_API yk_tensor *yk_max_pool1d_with_indices(yk_tensor *x, const yk_pool_options *options, yk_tensor **indices);
YK_API yk_tensor *yk_max_pool2d_with_indices(yk_tensor *x, const yk_pool2d_options *options, yk_tensor **indices);
YK_API yk_tensor *yk_max_pool3d_with_indices(yk_tensor *x, const yk_pool_options *options, yk_tensor **indices);
/* The elements of x where indices, of its shape, say, and zeros elsewhere; of equal indices the last one stays. */
typedef struct yk_max_unpool_options {
    int64_t kernel[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN); /* no default: an error when not given */
    int64_t stride[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN); /* not given: kernel */
    int64_t padding[3] YK_DEFAULT(0, 0, 0);
    /* Not given: (size - 1) stride - 2 padding + kernel; less than a stride away from that. */
    int64_t output_size[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_max_unpool_options;
#define yk_max_unpool_options_DEFAULTS                                                                                 \
    .yk__mark = YK__MARK, .kernel = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN},                                        \
    .stride = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN}, .output_size = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN}
YK_API yk_tensor *yk_max_unpool1d(yk_tensor *x, yk_tensor *indices, const yk_max_unpool_options *options);
YK_API yk_tensor *yk_max_unpool2d(yk_tensor *x, yk_tensor *indices, const yk_max_unpool_options *options);
YK_API yk_tensor *yk_max_unpool3d(yk_tensor *x, yk_tensor *indices, const yk_max_unpool_options *options);
/* The maximum of each of output_size windows along N dimensions of x (N,C,...) or (C,...), whose places a random number
 * for each of them and each channel gives. Sources: Graham, 2014; torch.nn.functional.fractional_max_pool2d. */
typedef struct yk_fractional_max_pool_options {
    int64_t kernel[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN); /* no default: an error when not given */
    /* One of the two, the sizes or parts of the input's, above 0 and below 1, of which a fraction is cut off. */
    int64_t output_size[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN);
    double output_ratio[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN); /* one of the two */
    /* (N,C,2), of the width and the height, or (N,C,3), of the depth, the height and the width, in [0, 1) and of x's
     * dtype; N is 1 for (C,...). NULL: by yk_rand. */
    yk_tensor *random_samples YK_DEFAULT(NULL);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_fractional_max_pool_options;
#define yk_fractional_max_pool_options_DEFAULTS                                                                        \
    .yk__mark = YK__MARK, .kernel = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN},                                        \
    .output_size = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN},                                                         \
    .output_ratio = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN}
YK_API yk_tensor *yk_fractional_max_pool2d(yk_tensor *x, const yk_fractional_max_pool_options *options);
YK_API yk_tensor *yk_fractional_max_pool3d(yk_tensor *x, const yk_fractional_max_pool_options *options);
/* The same, and *indices as yk_max_pool2d_with_indices gives them. */
YK_API yk_tensor *yk_fractional_max_pool2d_with_indices(yk_tensor *x, const yk_fractional_max_pool_options *options,
                                                        yk_tensor **indices);
YK_API yk_tensor *yk_fractional_max_pool3d_with_indices(yk_tensor *x, const yk_fractional_max_pool_options *options,
                                                        yk_tensor **indices);
/* (sum of x^p over each window)^(1/p); of the options kernel, stride and ceil_mode. */
YK_API yk_tensor *yk_lp_pool1d(yk_tensor *x, double p, const yk_pool_options *options);
YK_API yk_tensor *yk_lp_pool2d(yk_tensor *x, double p, const yk_pool_options *options);
YK_API yk_tensor *yk_lp_pool3d(yk_tensor *x, double p, const yk_pool_options *options);
/* x (N,C,L), (N,C,H,W) or (N,C,D,H,W) in another size, which `size` or the factors say, each the first N numbers for N
 * dimensions: one of the two. Linear is for L, bilinear and bicubic for H,W, trilinear for D,H,W. Source:
 * torch.nn.functional.interpolate, without antialias. */
typedef enum yk_interpolation {
    YK_INTERPOLATE_NEAREST = 0,
    YK_INTERPOLATE_NEAREST_EXACT,
    YK_INTERPOLATE_LINEAR,
    YK_INTERPOLATE_BILINEAR,
    YK_INTERPOLATE_BICUBIC,
    YK_INTERPOLATE_TRILINEAR,
    YK_INTERPOLATE_AREA
} yk_interpolation;
typedef struct yk_upsample_options {
    int64_t size[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN);        /* not given: by scale_factor */
    double scale_factor[3] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN); /* not given: by size */
    yk_interpolation mode YK_DEFAULT(YK_INTERPOLATE_NEAREST);
    bool align_corners YK_DEFAULT(false);   /* of linear, bilinear, bicubic, trilinear */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_upsample_options;
#define yk_upsample_options_DEFAULTS                                                                                   \
    .yk__mark = YK__MARK, .size = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN},                                          \
    .scale_factor = {YK_NOT_GIVEN, YK_NOT_GIVEN, YK_NOT_GIVEN}
YK_API yk_tensor *yk_interpolate(yk_tensor *x, const yk_upsample_options *options);
/* x (...,C r r,H,W), r the factor: (...,C,H r,W r); and back. Source: Shi et al., 2016. */
YK_API yk_tensor *yk_pixel_shuffle(yk_tensor *x, int64_t upscale_factor);
YK_API yk_tensor *yk_pixel_unshuffle(yk_tensor *x, int64_t downscale_factor);
/* The channels of x (N,C,...) in the order first of each of `groups` groups, second of each, ... Source: Zhang et al.,
 * 2017. */
YK_API yk_tensor *yk_channel_shuffle(yk_tensor *x, int64_t groups);
/* The windows of images x (N,C,H,W) or (C,H,W) as columns (N, C KH KW, windows), with zeros where they reach into the
 * padding; pairs are height, width. And the sum of such columns where the windows are, in images of height x width.
 * Source: torch.nn.functional.unfold, fold. */
typedef struct yk_fold_options {
    int64_t kernel[2] YK_DEFAULT(YK_NOT_GIVEN, YK_NOT_GIVEN); /* no default: an error when it is not given */
    int64_t dilation[2] YK_DEFAULT(1, 1), padding[2] YK_DEFAULT(0, 0), stride[2] YK_DEFAULT(1, 1);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_fold_options;
#define yk_fold_options_DEFAULTS                                                                                       \
    .yk__mark = YK__MARK, .kernel = {YK_NOT_GIVEN, YK_NOT_GIVEN}, .dilation = {1, 1}, .stride = {1, 1}
YK_API yk_tensor *yk_unfold(yk_tensor *x, const yk_fold_options *options);
YK_API yk_tensor *yk_fold(yk_tensor *x, int64_t height, int64_t width, const yk_fold_options *options);
/* x (N,C,H,W) at the places that grid (N,OH,OW,2) names, (N,C,OH,OW), or (N,C,D,H,W) at those of (N,OD,OH,OW,3): grid
 * has x's dtype and coordinates from -1 to 1, the first along the last dimension. Bilinear is trilinear in five
 * dimensions; bicubic is for four. Source: torch.nn.functional.grid_sample; Jaderberg et al., 2015. */
typedef enum yk_grid_mode { YK_GRID_BILINEAR = 0, YK_GRID_NEAREST, YK_GRID_BICUBIC } yk_grid_mode;
typedef enum yk_grid_padding {
    YK_GRID_PADDING_ZEROS = 0,
    YK_GRID_PADDING_BORDER,
    YK_GRID_PADDING_REFLECTION
} yk_grid_padding;
typedef struct yk_grid_sample_options {
    yk_grid_mode mode YK_DEFAULT(YK_GRID_BILINEAR);
    yk_grid_padding padding_mode YK_DEFAULT(YK_GRID_PADDING_ZEROS); /* of places outside x */
    bool align_corners YK_DEFAULT(false); /* -1 and 1 are the middles of the outer elements, not their outer borders */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_grid_sample_options;
#define yk_grid_sample_options_DEFAULTS .yk__mark = YK__MARK
YK_API yk_tensor *yk_grid_sample(yk_tensor *x, yk_tensor *grid, const yk_grid_sample_options *options);
/* The grid of theta (N,2,3) for a result of size (N,C,H,W), or of (N,3,4) for (N,C,D,H,W): theta (place, 1) for each
 * place; align_corners as above, false by default in PyTorch. */
YK_API yk_tensor *yk_affine_grid(yk_tensor *theta, int ndim, const int64_t *size, bool align_corners);
/* x (N,C) to (N,C,D,H,W); weight, bias, running_mean, running_var (C) or NULL. In training the running statistics move
 * in place, and more than one value per channel is needed; outside training the statistics are needed. residual (same
 * shape as x) is added before the activation, which is ReLU if `relu`: one pass for the tail of a residual block. With
 * f16 or bf16 weight, bias and statistics are of that dtype or f32; statistics are moved in f32, then rounded. */
typedef struct yk_batch_norm_options {
    double momentum YK_DEFAULT(0.1); /* in [0, 1]; 0: the statistics stay as they are */
    double eps YK_DEFAULT(1e-5);     /* above 0 in training, at least 0 otherwise */
    bool training YK_DEFAULT(false), relu YK_DEFAULT(false);
    yk_tensor *residual YK_DEFAULT(NULL);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_batch_norm_options;
#define yk_batch_norm_options_DEFAULTS .yk__mark = YK__MARK, .momentum = 0.1, .eps = 1e-5
YK_API yk_tensor *yk_batch_norm(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, yk_tensor *running_mean,
                                yk_tensor *running_var, const yk_batch_norm_options *options);
/* Normalises the last `n_dims` dimensions of x, whose sizes are normalized_shape; weight and bias of that shape or
 * NULL; eps as it is given, at least 0: PyTorch's default is 1e-5. */
YK_API yk_tensor *yk_layer_norm(yk_tensor *x, int n_dims, const int64_t *normalized_shape, yk_tensor *weight,
                                yk_tensor *bias, double eps);
/* x (N,C,...) in num_groups groups of channels, each normalised by itself; weight, bias (C) or NULL; eps as it is
 * given, at least 0: PyTorch's default is 1e-5. Source: Wu and He, 2018. */
YK_API yk_tensor *yk_group_norm(yk_tensor *x, int64_t num_groups, yk_tensor *weight, yk_tensor *bias, double eps);
/* x (N,C,L) to (N,C,D,H,W), each channel of each input normalised by itself; weight, bias, running_mean, running_var
 * (C) or NULL. With use_input_stats the running statistics move in place, by the mean over the inputs; else they are
 * what is normalised by. Source: Ulyanov et al., 2016. */
typedef struct yk_instance_norm_options {
    bool use_input_stats YK_DEFAULT(true);
    double momentum YK_DEFAULT(0.1);        /* in [0, 1] */
    double eps YK_DEFAULT(1e-5);            /* above 0 */
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_instance_norm_options;
#define yk_instance_norm_options_DEFAULTS .yk__mark = YK__MARK, .use_input_stats = true, .momentum = 0.1, .eps = 1e-5
YK_API yk_tensor *yk_instance_norm(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, yk_tensor *running_mean,
                                   yk_tensor *running_var, const yk_instance_norm_options *options);
/* x by the root of the mean square of its last n_dims dimensions, times weight, of that shape or NULL; eps is added to
 * the mean; YK_NOT_GIVEN, as PyTorch's None: the epsilon of the dtype that is computed in. Source: Zhang and Sennrich,
 * 2019. */
YK_API yk_tensor *yk_rms_norm(yk_tensor *x, int n_dims, const int64_t *normalized_shape, yk_tensor *weight, double eps);
/* x (N,C,...) / (k + alpha m)^beta, with m the mean square of `size` channels around each. PyTorch's defaults: alpha
 * 1e-4, beta 0.75, k 1. Source: Krizhevsky et al., 2012. */
YK_API yk_tensor *yk_local_response_norm(yk_tensor *x, int64_t size, double alpha, double beta, double k);
/* query (...,L,E), key (...,S,E), value (...,S,D), one floating dtype: softmax(scale query key^T + attn_mask) value,
 * (...,L,D). The matrix (L,S) is never in memory as a whole where the leading dimensions are equal (at most two), and,
 * but on a CPU, dropout_p is 0 and attn_mask requires no gradient. A query that may look at no key gives 0. */
typedef struct yk_attention_options {
    /* Broadcast to (...,L,S): bool, false where a query may not look; or of query's dtype, added. */
    yk_tensor *attn_mask YK_DEFAULT(NULL);
    double dropout_p YK_DEFAULT(0);        /* of the weights, in [0, 1]; applied whenever it is not 0, as in PyTorch */
    bool is_causal YK_DEFAULT(false);      /* query i looks at keys 0 to i; not together with attn_mask */
    double scale YK_DEFAULT(YK_NOT_GIVEN); /* not given: 1 / sqrt(E) */
    /* Grouped queries: key and value (...,H,S,E) have fewer heads than query (...,Hq,L,E); Hq is a multiple of H, and
     * head i of query looks at head i / (Hq / H). */
    bool enable_gqa YK_DEFAULT(false);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_attention_options;
#define yk_attention_options_DEFAULTS .yk__mark = YK__MARK, .scale = YK_NOT_GIVEN
YK_API yk_tensor *yk_scaled_dot_product_attention(yk_tensor *query, yk_tensor *key, yk_tensor *value,
                                                  const yk_attention_options *options);
/* index (...) i64 or i32, weight (V,D): (..., D). Rows at padding_idx (-1: none) get no gradient. */
YK_API yk_tensor *yk_embedding(yk_tensor *index, yk_tensor *weight, int64_t padding_idx);
/* The same; backward gives weight, where it is a leaf, a gradient by rows (yk_grad_rows). Source: embedding with
 * sparse.
 */
YK_API yk_tensor *yk_embedding_sparse(yk_tensor *index, yk_tensor *weight, int64_t padding_idx);
typedef enum yk_bag_mode { YK_BAG_MEAN = 0, YK_BAG_SUM, YK_BAG_MAX } yk_bag_mode;
typedef struct yk_embedding_bag_options {
    yk_bag_mode mode YK_DEFAULT(YK_BAG_MEAN);
    /* (B), i64 or i32: where each bag begins in an index (M); the first is 0, none is below the one before. */
    yk_tensor *offsets YK_DEFAULT(NULL);
    /* Factors of the rows, of the index's shape and the weight's dtype; with YK_BAG_SUM alone. */
    yk_tensor *per_sample_weights YK_DEFAULT(NULL);
    bool include_last_offset YK_DEFAULT(false);   /* offsets (B + 1) end with M */
    int64_t padding_idx YK_DEFAULT(YK_NOT_GIVEN); /* in no bag; negative counts from the end; not given: none */
    bool sparse YK_DEFAULT(false);                /* the weight's gradient is by rows, as yk_embedding_sparse's */
    unsigned yk__mark YK_DEFAULT(YK__MARK);       /* private */
} yk_embedding_bag_options;
#define yk_embedding_bag_options_DEFAULTS .yk__mark = YK__MARK, .padding_idx = YK_NOT_GIVEN
/* Means, sums or maxima of rows of weight (V,D), (B,D): of those of each row of index (B,N), i64 or i32, or of those of
 * the bags that offsets makes of an index (M). An empty bag gives 0. The rows, (M,D), are in memory. Source:
 * torch.nn.functional.embedding_bag, without max_norm and scale_grad_by_freq. */
YK_API yk_tensor *yk_embedding_bag(yk_tensor *index, yk_tensor *weight, const yk_embedding_bag_options *options);
/*
 * A long short-term memory (Hochreiter and Schmidhuber, 1997) over a sequence, of num_layers layers: x
 * (T,N,input_size), or (N,T,input_size) with batch_first, or (T,input_size), whose results have no N either; h_0 and
 * c_0 (states,N, hidden_size), or NULL for zeros; states is num_layers, times 2 if bidirectional. weights[]: weight_ih
 * (4 hidden_size, in), weight_hh (4 hidden_size, hidden_size), bias_ih and bias_hh (4 hidden_size) of the first layer,
 * then of its reverse direction, then of the next layer, with the gates in the order i, f, g, o. Fills *output, of x's
 * layout with hidden_size features, or twice as many where both directions are concatenated, *h_n and *c_n
 * (states,N,hidden_size); each may be NULL, and all are on failure. Source: torch.lstm.
 */
typedef struct yk_lstm_options {
    int64_t num_layers YK_DEFAULT(1);
    bool bias YK_DEFAULT(true); /* false: weights[] are pairs */
    bool batch_first YK_DEFAULT(false), bidirectional YK_DEFAULT(false);
    double dropout YK_DEFAULT(0); /* of every layer's output but the last one's where `train` is set, in [0, 1] */
    bool train YK_DEFAULT(false);
    yk_tensor *batch_sizes YK_DEFAULT(NULL); /* x is the data of a yk_packed_sequence of these, and so is *output */
    unsigned yk__mark YK_DEFAULT(YK__MARK);  /* private */
} yk_lstm_options;
#define yk_lstm_options_DEFAULTS .yk__mark = YK__MARK, .num_layers = 1, .bias = true
YK_API yk_status yk_lstm(yk_tensor *x, yk_tensor *h_0, yk_tensor *c_0, yk_tensor *const *weights, int count,
                         const yk_lstm_options *options, yk_tensor **output, yk_tensor **h_n,
                         yk_tensor **c_n) YK_MUST_CHECK;
/* One step of it: x (N,input_size), h and c (N,hidden_size) or NULL for zeros, give *next_h and *next_c, each of which
 * may be NULL; the biases may be, both. Source: torch.lstm_cell. */
YK_API yk_status yk_lstm_cell(yk_tensor *x, yk_tensor *h, yk_tensor *c, yk_tensor *weight_ih, yk_tensor *weight_hh,
                              yk_tensor *bias_ih, yk_tensor *bias_hh, yk_tensor **next_h,
                              yk_tensor **next_c) YK_MUST_CHECK;
typedef enum yk_nonlinearity { YK_NONLINEARITY_TANH = 0, YK_NONLINEARITY_RELU } yk_nonlinearity;
/*
 * Gated recurrent units (Cho et al., 2014) and plain recurrent networks: as yk_lstm, with one state, h, and weights of
 * 3 hidden_size rows, in the order r, z, n, or of hidden_size. Made of operations, a few for each step. Source:
 * torch.gru, torch.rnn_tanh, torch.rnn_relu.
 */
typedef struct yk_gru_options {
    int64_t num_layers YK_DEFAULT(1);
    bool bias YK_DEFAULT(true); /* false: weights[] are pairs */
    bool batch_first YK_DEFAULT(false), bidirectional YK_DEFAULT(false);
    double dropout YK_DEFAULT(0); /* of every layer's output but the last one's where `train` is set, in [0, 1] */
    bool train YK_DEFAULT(false);
    yk_tensor *batch_sizes YK_DEFAULT(NULL); /* x is the data of a yk_packed_sequence of these, and so is *output */
    unsigned yk__mark YK_DEFAULT(YK__MARK);  /* private */
} yk_gru_options;
#define yk_gru_options_DEFAULTS .yk__mark = YK__MARK, .num_layers = 1, .bias = true
YK_API yk_status yk_gru(yk_tensor *x, yk_tensor *h_0, yk_tensor *const *weights, int count,
                        const yk_gru_options *options, yk_tensor **output, yk_tensor **h_n) YK_MUST_CHECK;
typedef struct yk_rnn_options {
    int64_t num_layers YK_DEFAULT(1);
    yk_nonlinearity nonlinearity YK_DEFAULT(YK_NONLINEARITY_TANH);
    bool bias YK_DEFAULT(true); /* false: weights[] are pairs */
    bool batch_first YK_DEFAULT(false), bidirectional YK_DEFAULT(false);
    double dropout YK_DEFAULT(0); /* of every layer's output but the last one's where `train` is set, in [0, 1] */
    bool train YK_DEFAULT(false);
    yk_tensor *batch_sizes YK_DEFAULT(NULL); /* x is the data of a yk_packed_sequence of these, and so is *output */
    unsigned yk__mark YK_DEFAULT(YK__MARK);  /* private */
} yk_rnn_options;
#define yk_rnn_options_DEFAULTS .yk__mark = YK__MARK, .num_layers = 1, .bias = true
YK_API yk_status yk_rnn(yk_tensor *x, yk_tensor *h_0, yk_tensor *const *weights, int count,
                        const yk_rnn_options *options, yk_tensor **output, yk_tensor **h_n) YK_MUST_CHECK;
/* One step: x (N,input_size) and h (N,hidden_size), or NULL for zeros, give the next h; the biases may be NULL, both.
 * Source: torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell. */
YK_API yk_tensor *yk_gru_cell(yk_tensor *x, yk_tensor *h, yk_tensor *weight_ih, yk_tensor *weight_hh,
                              yk_tensor *bias_ih, yk_tensor *bias_hh);
YK_API yk_tensor *yk_rnn_cell(yk_tensor *x, yk_tensor *h, yk_tensor *weight_ih, yk_tensor *weight_hh,
                              yk_tensor *bias_ih, yk_tensor *bias_hh, yk_nonlinearity nonlinearity);
/*
 * Sequences of several lengths in one tensor without padding: the first steps of all, the longest first, then the
 * second steps of those that have one. Its tensors are the scope's. Source: torch.nn.utils.rnn.PackedSequence.
 */
typedef struct yk_packed_sequence {
    yk_tensor *data;             /* (sum of the lengths, ...) */
    yk_tensor *batch_sizes;      /* (T) of int64 on a CPU: sequences that have the step */
    yk_tensor *sorted_indices;   /* (N) of int64: places in the batch, the longest first; NULL: as they are */
    yk_tensor *unsorted_indices; /* (N) of int64, the other way round; or NULL */
} yk_packed_sequence;
/* x (T,N,...), or (N,T,...) with batch_first; lengths (N) of int64 on a CPU, each in [1, T], none longer than the one
 * before it where enforce_sorted. On failure *packed has NULLs. Source: torch.nn.utils.rnn.pack_padded_sequence, whose
 * enforce_sorted is true by default. */
YK_API yk_status yk_pack_padded_sequence(yk_tensor *x, yk_tensor *lengths, bool batch_first, bool enforce_sorted,
                                         yk_packed_sequence *packed) YK_MUST_CHECK;
/* *padded (T,N,...), in the order before packing, of total_length steps or, where that is YK_NOT_GIVEN, those of the
 * longest; *lengths (N) of int64 on the CPU. Either may be NULL. Source: torch.nn.utils.rnn.pad_packed_sequence. */
YK_API yk_status yk_pad_packed_sequence(const yk_packed_sequence *packed, bool batch_first, double padding_value,
                                        int64_t total_length, yk_tensor **padded, yk_tensor **lengths) YK_MUST_CHECK;
/* Sequences (L,...) as one tensor (T,N,...), or (N,T,...), of the longest. Source: torch.nn.utils.rnn.pad_sequence. */
YK_API yk_tensor *yk_pad_sequence(yk_tensor *const *sequences, int count, bool batch_first, double padding_value);
/* Zeroes elements with probability p and scales the rest by 1 / (1 - p) if `training`; else x itself. */
YK_API yk_tensor *yk_dropout(yk_tensor *x, double p, bool training);
/* The same for whole channels of (N,C,L), (N,C,H,W) and (N,C,D,H,W); the first and the last also without N, the second
 * also of (N,C,L). */
YK_API yk_tensor *yk_dropout1d(yk_tensor *x, double p, bool training);
YK_API yk_tensor *yk_dropout2d(yk_tensor *x, double p, bool training);
YK_API yk_tensor *yk_dropout3d(yk_tensor *x, double p, bool training);
/* For what SELU gives: dropped elements, or channels of (N,C,...), become its value far below 0, and all are scaled and
 * moved so that a mean of 0 and a variance of 1 stay. Source: Klambauer et al., 2017. */
YK_API yk_tensor *yk_alpha_dropout(yk_tensor *x, double p, bool training);
YK_API yk_tensor *yk_feature_alpha_dropout(yk_tensor *x, double p, bool training);

/* The last one, the sum over the first size, is for yk_kl_div alone. */
typedef enum yk_reduction { YK_REDUCE_MEAN = 0, YK_REDUCE_SUM, YK_REDUCE_NONE, YK_REDUCE_BATCHMEAN } yk_reduction;
#define YK_IGNORE_INDEX_DEFAULT (-100)
typedef struct yk_cross_entropy_options {
    yk_tensor *weight YK_DEFAULT(NULL); /* (C) per class, or NULL */
    int64_t ignore_index YK_DEFAULT(YK_IGNORE_INDEX_DEFAULT);
    double label_smoothing YK_DEFAULT(0); /* in [0, 1] */
    yk_reduction reduction YK_DEFAULT(YK_REDUCE_MEAN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_cross_entropy_options;
#define yk_cross_entropy_options_DEFAULTS .yk__mark = YK__MARK, .ignore_index = YK_IGNORE_INDEX_DEFAULT
/* logits (N,C), target (N) of classes, i64 or i32: 0-dimensional, or (N) with YK_REDUCE_NONE. A target outside [0, C)
 * that is not ignore_index is an error that names it and its row. Or logits (N,C,...) and target of their shape and
 * dtype: probabilities, which are not checked, and may want a gradient; ignore_index has then no say. */
YK_API yk_tensor *yk_cross_entropy(yk_tensor *logits, yk_tensor *target, const yk_cross_entropy_options *options);
/* Equal shapes; 0-dimensional, or of that shape with YK_REDUCE_NONE. */
YK_API yk_tensor *yk_mse_loss(yk_tensor *x, yk_tensor *target, yk_reduction reduction);

/* Losses of floating tensors of one shape, as torch.nn.functional's; all gradients have gradients. */
typedef struct yk_binary_cross_entropy_options {
    yk_tensor *weight YK_DEFAULT(NULL);     /* broadcasts to the input; multiplies the loss of each element */
    yk_tensor *pos_weight YK_DEFAULT(NULL); /* with logits alone, likewise: multiplies the part of target 1 */
    yk_reduction reduction YK_DEFAULT(YK_REDUCE_MEAN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_binary_cross_entropy_options;
#define yk_binary_cross_entropy_options_DEFAULTS .yk__mark = YK__MARK
/* x of probabilities, in [0, 1], which is checked on CPUs; target of x's dtype. */
YK_API yk_tensor *yk_binary_cross_entropy(yk_tensor *x, yk_tensor *target,
                                          const yk_binary_cross_entropy_options *options);
/* x of logits: the sigmoid belongs to the loss. */
YK_API yk_tensor *yk_binary_cross_entropy_with_logits(yk_tensor *x, yk_tensor *target,
                                                      const yk_binary_cross_entropy_options *options);
YK_API yk_tensor *yk_l1_loss(yk_tensor *x, yk_tensor *target, yk_reduction reduction);
/* 1: beta is where the square becomes a line; 0: yk_l1_loss. */
YK_API yk_tensor *yk_smooth_l1_loss(yk_tensor *x, yk_tensor *target, double beta, yk_reduction reduction);
YK_API yk_tensor *yk_huber_loss(yk_tensor *x, yk_tensor *target, double delta, yk_reduction reduction); /* delta: 1 */

typedef struct yk_nll_loss_options {
    yk_tensor *weight YK_DEFAULT(NULL); /* (C) per class, of x's dtype, or NULL */
    int64_t ignore_index YK_DEFAULT(YK_IGNORE_INDEX_DEFAULT);
    yk_reduction reduction YK_DEFAULT(YK_REDUCE_MEAN); /* the mean is over the weights of what counts */
    unsigned yk__mark YK_DEFAULT(YK__MARK);            /* private */
} yk_nll_loss_options;
#define yk_nll_loss_options_DEFAULTS .yk__mark = YK__MARK, .ignore_index = YK_IGNORE_INDEX_DEFAULT
/* x (N,C,...) of logarithms of probabilities, target (N,...) of classes. */
YK_API yk_tensor *yk_nll_loss(yk_tensor *x, yk_tensor *target, const yk_nll_loss_options *options);

typedef struct yk_kl_div_options {
    yk_reduction reduction YK_DEFAULT(YK_REDUCE_MEAN); /* YK_REDUCE_BATCHMEAN is the divergence itself */
    bool log_target YK_DEFAULT(false);                 /* target has logarithms of probabilities, too */
    unsigned yk__mark YK_DEFAULT(YK__MARK);            /* private */
} yk_kl_div_options;
#define yk_kl_div_options_DEFAULTS .yk__mark = YK__MARK
/* x of logarithms of probabilities, target of probabilities. */
YK_API yk_tensor *yk_kl_div(yk_tensor *x, yk_tensor *target, const yk_kl_div_options *options);

typedef struct yk_gaussian_nll_loss_options {
    bool full YK_DEFAULT(false); /* with the constant log(2 pi) / 2 */
    double eps YK_DEFAULT(1e-6); /* above 0: the least variance */
    yk_reduction reduction YK_DEFAULT(YK_REDUCE_MEAN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_gaussian_nll_loss_options;
#define yk_gaussian_nll_loss_options_DEFAULTS .yk__mark = YK__MARK, .eps = 1e-6
/* var broadcasts to x; a negative one is an error, on CPUs. */
YK_API yk_tensor *yk_gaussian_nll_loss(yk_tensor *x, yk_tensor *target, yk_tensor *var,
                                       const yk_gaussian_nll_loss_options *options);

/* x / max(norm, eps) along a dimension; p 2, dim 1, eps 1e-12 by default. Source: torch.nn.functional.normalize. */
YK_API yk_tensor *yk_normalize_dim(yk_tensor *x, double p, int dim, double eps);
/* The cosine along a dimension, which goes; dim 1, eps 1e-8. The others broadcast. */
YK_API yk_tensor *yk_cosine_similarity(yk_tensor *a, yk_tensor *b, int dim, double eps);
/* The norm of a - b + eps over the last dimension; p 2, eps 1e-6. */
YK_API yk_tensor *yk_pairwise_distance(yk_tensor *a, yk_tensor *b, double p, double eps, bool keepdim);
/* a, b (N,D), target (N) of 1 and -1; or (D), (D) and (). margin 0. */
YK_API yk_tensor *yk_cosine_embedding_loss(yk_tensor *a, yk_tensor *b, yk_tensor *target, double margin,
                                           yk_reduction reduction);
/* max(0, margin - target (a - b)), target of 1 and -1 in a's dtype; margin 0. */
YK_API yk_tensor *yk_margin_ranking_loss(yk_tensor *a, yk_tensor *b, yk_tensor *target, double margin,
                                         yk_reduction reduction);
typedef struct yk_triplet_margin_loss_options {
    double margin YK_DEFAULT(1);
    double p YK_DEFAULT(2); /* of the norm; above 0 */
    double eps YK_DEFAULT(1e-6);
    bool swap YK_DEFAULT(false); /* the negative is as far as from the anchor or the positive, the nearer */
    yk_reduction reduction YK_DEFAULT(YK_REDUCE_MEAN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_triplet_margin_loss_options;
#define yk_triplet_margin_loss_options_DEFAULTS .yk__mark = YK__MARK, .margin = 1, .p = 2, .eps = 1e-6
/* Each (N,D), or (D). */
YK_API yk_tensor *yk_triplet_margin_loss(yk_tensor *anchor, yk_tensor *positive, yk_tensor *negative,
                                         const yk_triplet_margin_loss_options *options);
/* x where the target is 1, max(0, margin - x) where it is -1, of x's shape; margin 1. */
YK_API yk_tensor *yk_hinge_embedding_loss(yk_tensor *x, yk_tensor *target, double margin, yk_reduction reduction);
typedef struct yk_multi_margin_loss_options {
    int64_t p YK_DEFAULT(1); /* 1 or 2 */
    double margin YK_DEFAULT(1);
    yk_tensor *weight YK_DEFAULT(NULL); /* (C), of the target's class */
    yk_reduction reduction YK_DEFAULT(YK_REDUCE_MEAN);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_multi_margin_loss_options;
#define yk_multi_margin_loss_options_DEFAULTS .yk__mark = YK__MARK, .p = 1, .margin = 1
/* x (N,C), target (N), i64 or i32, or (C) and (): the sum of weight[t] max(0, margin - x[t] + x[i])^p over the classes
 * i other than the target t, divided by C. */
YK_API yk_tensor *yk_multi_margin_loss(yk_tensor *x, yk_tensor *target, const yk_multi_margin_loss_options *options);
/* x and target, i64 or i32, (N,C) or (C): the sum of max(0, 1 - x[t] + x[i]) over the targets t, which the first
 * negative one ends, and the classes i that are no target, divided by C. Memory goes by N C T, of T targets. */
YK_API yk_tensor *yk_multilabel_margin_loss(yk_tensor *x, yk_tensor *target, yk_reduction reduction);
/* log(1 + exp(-target x)), target of 1 and -1. */
YK_API yk_tensor *yk_soft_margin_loss(yk_tensor *x, yk_tensor *target, yk_reduction reduction);
typedef struct yk_sigmoid_focal_loss_options {
    double alpha YK_DEFAULT(0.25); /* the share of targets of 1, in [0, 1]; below 0: all count alike */
    double gamma YK_DEFAULT(2);    /* at least 0 */
    yk_reduction reduction YK_DEFAULT(YK_REDUCE_NONE);
    unsigned yk__mark YK_DEFAULT(YK__MARK); /* private */
} yk_sigmoid_focal_loss_options;
#define yk_sigmoid_focal_loss_options_DEFAULTS                                                                         \
    .yk__mark = YK__MARK, .alpha = 0.25, .gamma = 2, .reduction = YK_REDUCE_NONE
/* The binary cross entropy of logits x, of targets of 0 to 1 in x's shape, weighed by (1 - p_t)^gamma. Source:
 * torchvision.ops.sigmoid_focal_loss; Lin et al., 2017. */
YK_API yk_tensor *yk_sigmoid_focal_loss(yk_tensor *x, yk_tensor *target, const yk_sigmoid_focal_loss_options *options);
typedef struct yk_ctc_loss_options {
    int64_t blank YK_DEFAULT(0);                       /* the class that stands for no label */
    yk_reduction reduction YK_DEFAULT(YK_REDUCE_MEAN); /* the mean of each loss over its number of labels */
    bool zero_infinity YK_DEFAULT(false);              /* 0, without a gradient, for targets that cannot be reached */
    unsigned yk__mark YK_DEFAULT(YK__MARK);            /* private */
} yk_ctc_loss_options;
#define yk_ctc_loss_options_DEFAULTS .yk__mark = YK__MARK
/* log_probs (T,N,C), or (T,C) of one, logarithms of probabilities (yk_log_softmax); targets (N,S) of labels that are
 * not blank, or those of all one after the other, (sum of lengths); input_lengths and target_lengths (N), or one
 * number. All but log_probs are i64 or i32. The gradient is that of log_probs: after yk_log_softmax it is PyTorch's,
 * which adds exp(log_probs) before. Source: torch.nn.functional.ctc_loss; Graves et al., 2006. */
YK_API yk_tensor *yk_ctc_loss(yk_tensor *log_probs, yk_tensor *targets, yk_tensor *input_lengths,
                              yk_tensor *target_lengths, const yk_ctc_loss_options *options);

#ifdef __cplusplus
}
#endif
#endif
