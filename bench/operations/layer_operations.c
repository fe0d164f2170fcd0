/*
 * layer_operations.c - the operations of `operation_times` beyond those that the tuned networks are made of:
 * activations, borders, windows and grids, norms, distances, losses. Layer: bench.
 *
 * Parameters are PyTorch's defaults where the case names none.
 */
#include <string.h>

#include "base/core.h"
#include "bench/operations/operations.h"

#define OF_ONE(name, call)                                                                                             \
    static yk_tensor *name(ops_subject *s)                                                                             \
    {                                                                                                                  \
        yk_tensor *x = s->in[0];                                                                                       \
        return call;                                                                                                   \
    }

/* ---- activations ---- */

OF_ONE(silu, yk_silu(x))
OF_ONE(mish, yk_mish(x))
OF_ONE(gelu_tanh, yk_gelu_tanh(x))
OF_ONE(leaky_relu, yk_leaky_relu(x, 0.01))
OF_ONE(elu, yk_elu(x, 1))
OF_ONE(selu, yk_selu(x))
OF_ONE(celu, yk_celu(x, 1))
OF_ONE(hardswish, yk_hardswish(x))
OF_ONE(hardsigmoid, yk_hardsigmoid(x))
OF_ONE(logsigmoid, yk_log_sigmoid(x))
OF_ONE(softplus, yk_softplus(x, 1, 20))
OF_ONE(hardshrink, yk_hardshrink(x, 0.5))
OF_ONE(softshrink, yk_softshrink(x, 0.5))
OF_ONE(tanhshrink, yk_tanhshrink(x))
OF_ONE(softsign, yk_softsign(x))
OF_ONE(threshold, yk_threshold(x, 0.1, 0))
OF_ONE(rrelu, yk_rrelu(x, 1.0 / 8, 1.0 / 3, true))
OF_ONE(glu, yk_glu(x, ops_dim(s)))
OF_ONE(dropout1d, yk_dropout1d(x, 0.5, true))
OF_ONE(dropout2d, yk_dropout2d(x, 0.5, true))
OF_ONE(dropout3d, yk_dropout3d(x, 0.5, true))
OF_ONE(alpha_dropout, yk_alpha_dropout(x, 0.5, true))
OF_ONE(feature_alpha_dropout, yk_feature_alpha_dropout(x, 0.5, true))

/* ---- borders, windows, grids ---- */

/* "mode=reflect" of the last two dimensions, `border` elements on all sides. */
static yk_tensor *pad(ops_subject *s)
{
    static const char *const modes[] = {"constant", "reflect", "replicate", "circular"};
    int64_t border = ops_whole(s, "border", 1);
    yk_pad_mode mode = YK_PAD_CONSTANT;
    for (int i = 0; i < 4; i++)
        mode = ops_text_is(s->text, "mode", modes[i]) ? (yk_pad_mode)i : mode;
    return yk_pad(s->in[0], (int64_t[4]){border, border, border, border}, 4, mode, 0);
}

static yk_fold_options windows_of(const ops_subject *s)
{
    int64_t kernel = ops_whole(s, "kernel", 3), padding = ops_whole(s, "padding", 0),
            stride = ops_whole(s, "stride", 1);
    return *YK_OPTIONS(yk_fold_options, .kernel = {kernel, kernel}, .padding = {padding, padding},
                       .stride = {stride, stride});
}

static yk_tensor *unfold(ops_subject *s)
{
    yk_fold_options o = windows_of(s);
    return yk_unfold(s->in[0], &o);
}

static yk_tensor *fold(ops_subject *s)
{
    yk_fold_options o = windows_of(s);
    return yk_fold(s->in[0], ops_whole(s, "size", 1), ops_whole(s, "size", 1), &o);
}

/* Places that are inside x. */
static yk_status prepare_grid(ops_subject *s)
{
    s->in[1] = yk_add_scalar(yk_mul_scalar(yk_sigmoid(s->in[1]), 2), -1);
    return yk__error_code();
}

static yk_tensor *grid_sample(ops_subject *s)
{
    yk_grid_mode mode = ops_text_is(s->text, "mode", "nearest")   ? YK_GRID_NEAREST
                        : ops_text_is(s->text, "mode", "bicubic") ? YK_GRID_BICUBIC
                                                                  : YK_GRID_BILINEAR;
    return yk_grid_sample(s->in[0], s->in[1], YK_OPTIONS(yk_grid_sample_options, .mode = mode));
}

static yk_tensor *affine_grid(ops_subject *s)
{
    int64_t shape[8];
    int n = ops_text_sizes(s->text, "size", shape);
    return yk_affine_grid(s->in[0], n, shape, false);
}

static yk_tensor *interpolate(ops_subject *s)
{
    static const char *const modes[] = {"nearest", "nearest-exact", "linear", "bilinear",
                                        "bicubic", "trilinear",     "area"};
    yk_interpolation mode = YK_INTERPOLATE_NEAREST;
    for (int i = 0; i < (int)(sizeof(modes) / sizeof(*modes)); i++)
        mode = ops_text_is(s->text, "mode", modes[i]) ? (yk_interpolation)i : mode;
    double factor = ops_text_number(s->text, "factor", 2);
    yk_upsample_options o = *YK_OPTIONS(yk_upsample_options, .mode = mode);
    for (int i = 0; i < yk_ndim(s->in[0]) - 2; i++)
        o.scale_factor[i] = factor;
    return yk_interpolate(s->in[0], &o);
}
OF_ONE(pixel_shuffle, yk_pixel_shuffle(x, 2))
OF_ONE(pixel_unshuffle, yk_pixel_unshuffle(x, 2))
OF_ONE(channel_shuffle, yk_channel_shuffle(x, ops_whole(s, "groups", 2)))

/* The operand becomes the maxima of windows of 2 x 2, and the index where they were. */
static yk_status prepare_max_unpool2d(ops_subject *s)
{
    yk_tensor *indices;
    s->in[0] = yk_max_pool2d_with_indices(s->in[0], YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2}, .stride = {2, 2}),
                                          &indices);
    s->index = indices;
    return yk__error_code();
}

static yk_tensor *max_unpool2d(ops_subject *s)
{
    return yk_max_unpool2d(s->in[0], s->index, YK_OPTIONS(yk_max_unpool_options, .kernel = {2, 2}));
}
OF_ONE(lp_pool2d, yk_lp_pool2d(x, 2, YK_OPTIONS(yk_pool_options, .kernel = {2, 2})))

/* ---- norms, products, distances ---- */

/* Weight and bias of x's channels. */
static yk_status prepare_channels(ops_subject *s)
{
    int64_t channels = yk_size(s->in[0], 1);
    s->in[1] = yk_ones(YK_SHAPE(channels), NULL);
    s->in[2] = yk_zeros(YK_SHAPE(channels), NULL);
    return yk__error_code();
}

static yk_status prepare_rms_norm(ops_subject *s)
{
    s->in[1] = yk_ones(YK_SHAPE(yk_size(s->in[0], -1)), NULL);
    return yk__error_code();
}
OF_ONE(group_norm, yk_group_norm(x, ops_whole(s, "groups", 32), s->in[1], s->in[2], 1e-5))
OF_ONE(instance_norm, yk_instance_norm(x, s->in[1], s->in[2], NULL, NULL, NULL))
OF_ONE(rms_norm, yk_rms_norm(x, YK_SHAPE(yk_size(x, -1)), s->in[1], 1e-5))
OF_ONE(local_response_norm, yk_local_response_norm(x, 5, 1e-4, 0.75, 1))

static yk_tensor *bilinear(ops_subject *s)
{
    return yk_bilinear(s->in[0], s->in[1], s->in[2], NULL);
}
OF_ONE(pairwise_distance, yk_pairwise_distance(x, s->in[1], 2, 1e-6, false))
OF_ONE(cosine_similarity, yk_cosine_similarity(x, s->in[1], 1, 1e-8))

/* ---- losses ---- */

OF_ONE(l1_loss, yk_l1_loss(x, s->in[1], YK_REDUCE_MEAN))
OF_ONE(smooth_l1_loss, yk_smooth_l1_loss(x, s->in[1], 1, YK_REDUCE_MEAN))
OF_ONE(huber_loss, yk_huber_loss(x, s->in[1], 1, YK_REDUCE_MEAN))
OF_ONE(kl_div, yk_kl_div(x, s->in[1], NULL))
OF_ONE(binary_cross_entropy_with_logits, yk_binary_cross_entropy_with_logits(x, s->in[1], NULL))
OF_ONE(binary_cross_entropy, yk_binary_cross_entropy(x, s->index, NULL))
OF_ONE(sigmoid_focal_loss, yk_sigmoid_focal_loss(x, s->index, NULL))
OF_ONE(soft_margin_loss, yk_soft_margin_loss(x, s->index, YK_REDUCE_MEAN))
OF_ONE(hinge_embedding_loss, yk_hinge_embedding_loss(x, s->index, 1, YK_REDUCE_MEAN))
OF_ONE(nll_loss, yk_nll_loss(x, s->index, NULL))
OF_ONE(multi_margin_loss, yk_multi_margin_loss(x, s->index, NULL))
OF_ONE(multilabel_margin_loss, yk_multilabel_margin_loss(x, s->index, YK_REDUCE_MEAN))
OF_ONE(gaussian_nll_loss, yk_gaussian_nll_loss(x, s->in[1], s->in[2], NULL))
OF_ONE(margin_ranking_loss, yk_margin_ranking_loss(x, s->in[1], s->index, 0, YK_REDUCE_MEAN))
OF_ONE(cosine_embedding_loss, yk_cosine_embedding_loss(x, s->in[1], s->index, 0, YK_REDUCE_MEAN))
OF_ONE(triplet_margin_loss, yk_triplet_margin_loss(x, s->in[1], s->in[2], NULL))
OF_ONE(normalize, yk_normalize_dim(x, 2, 1, 1e-12))

/* A target of 0 and 1 for each element; and one of 1 and -1. */
static yk_status prepare_binary(ops_subject *s)
{
    s->index = yk_cast(yk_gt_scalar(yk_randn_like(s->in[0]), 0), YK_F32);
    return yk__error_code();
}

static yk_status prepare_sides(ops_subject *s)
{
    s->index = yk_sign(yk_randn_like(s->in[0]));
    return yk__error_code();
}

/* Probabilities, with such a target. */
static yk_status prepare_probabilities(ops_subject *s)
{
    s->in[0] = yk_sigmoid(s->in[0]);
    return prepare_binary(s);
}

/* Beside x and y a target of 1 and -1, of x's first dimension. */
static yk_status prepare_pairs(ops_subject *s)
{
    s->index = yk_sign(yk_randn(YK_SHAPE(yk_size(s->in[0], 0)), NULL));
    return yk__error_code();
}

/* A third operand like x, above 0. */
static yk_status prepare_variance(ops_subject *s)
{
    s->in[2] = yk_add_scalar(yk_rand_like(s->in[0]), 0.1);
    return yk__error_code();
}

static yk_status prepare_labels(ops_subject *s)
{
    s->index = yk_randint(0, yk_size(s->in[0], 1), YK_SHAPE(yk_size(s->in[0], 0)), NULL);
    return yk__error_code();
}

/* A few targets of each row: the first negative one ends them. */
static yk_status prepare_several_labels(ops_subject *s)
{
    int64_t classes = yk_size(s->in[0], 1);
    s->index = yk_clamp(yk_randint(-classes / 4, classes, 2, yk_sizes(s->in[0]), NULL), -1, (double)classes);
    return yk__error_code();
}

/* x (T,N,C), `labels` for each of N. */
static yk_status prepare_ctc(ops_subject *s)
{
    s->index = yk_randint(1, yk_size(s->in[0], 2), YK_SHAPE(yk_size(s->in[0], 1), ops_whole(s, "labels", 1)), NULL);
    return yk__error_code();
}

static yk_tensor *ctc_loss(ops_subject *s)
{
    int64_t n = yk_size(s->in[0], 1);
    yk_tensor_options whole = *YK_OPTIONS(yk_tensor_options, .dtype = YK_I64);
    yk_tensor *steps = yk_full(YK_SHAPE(n), (double)yk_size(s->in[0], 0), &whole),
              *labels = yk_full(YK_SHAPE(n), (double)yk_size(s->index, 1), &whole);
    return yk_ctc_loss(yk_log_softmax(s->in[0], 2), s->index, steps, labels, NULL);
}

const ops_operation ops_layer_operations[] = {
    {.name = "silu", silu},
    {.name = "mish", mish},
    {.name = "gelu_tanh", gelu_tanh},
    {.name = "leaky_relu", leaky_relu},
    {.name = "elu", elu},
    {.name = "selu", selu},
    {.name = "celu", celu},
    {.name = "hardswish", hardswish},
    {.name = "hardsigmoid", hardsigmoid},
    {.name = "logsigmoid", logsigmoid},
    {.name = "softplus", softplus},
    {.name = "hardshrink", hardshrink},
    {.name = "softshrink", softshrink},
    {.name = "tanhshrink", tanhshrink},
    {.name = "softsign", softsign},
    {.name = "threshold", threshold},
    {.name = "rrelu", rrelu},
    {.name = "glu", glu},
    {.name = "dropout1d", dropout1d},
    {.name = "dropout2d", dropout2d},
    {.name = "dropout3d", dropout3d},
    {.name = "alpha_dropout", alpha_dropout},
    {.name = "feature_alpha_dropout", feature_alpha_dropout},
    {.name = "pad", pad},
    {.name = "unfold", unfold},
    {.name = "fold", fold},
    {.name = "grid_sample", grid_sample, prepare_grid},
    {.name = "affine_grid", affine_grid},
    {.name = "interpolate", interpolate},
    {.name = "pixel_shuffle", pixel_shuffle},
    {.name = "pixel_unshuffle", pixel_unshuffle},
    {.name = "channel_shuffle", channel_shuffle},
    {.name = "max_unpool2d", max_unpool2d, prepare_max_unpool2d},
    {.name = "lp_pool2d", lp_pool2d},
    {.name = "group_norm", group_norm, prepare_channels},
    {.name = "instance_norm", instance_norm, prepare_channels},
    {.name = "rms_norm", rms_norm, prepare_rms_norm},
    {.name = "local_response_norm", local_response_norm},
    {.name = "bilinear", bilinear},
    {.name = "pairwise_distance", pairwise_distance},
    {.name = "cosine_similarity", cosine_similarity},
    {.name = "l1_loss", l1_loss},
    {.name = "smooth_l1_loss", smooth_l1_loss},
    {.name = "huber_loss", huber_loss},
    {.name = "kl_div", kl_div, .positive = true},
    {.name = "binary_cross_entropy_with_logits", binary_cross_entropy_with_logits},
    {.name = "binary_cross_entropy", binary_cross_entropy, prepare_probabilities},
    {.name = "sigmoid_focal_loss", sigmoid_focal_loss, prepare_binary},
    {.name = "soft_margin_loss", soft_margin_loss, prepare_sides},
    {.name = "hinge_embedding_loss", hinge_embedding_loss, prepare_sides},
    {.name = "nll_loss", nll_loss, prepare_labels},
    {.name = "multi_margin_loss", multi_margin_loss, prepare_labels},
    {.name = "multilabel_margin_loss", multilabel_margin_loss, prepare_several_labels},
    {.name = "gaussian_nll_loss", gaussian_nll_loss, prepare_variance},
    {.name = "margin_ranking_loss", margin_ranking_loss, prepare_pairs},
    {.name = "cosine_embedding_loss", cosine_embedding_loss, prepare_pairs},
    {.name = "triplet_margin_loss", triplet_margin_loss, prepare_variance},
    {.name = "normalize", normalize},
    {.name = "ctc_loss", ctc_loss, prepare_ctc},
};
const int ops_layer_operation_count = sizeof(ops_layer_operations) / sizeof(*ops_layer_operations);
