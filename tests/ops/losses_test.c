/*
 * losses_test.c - activations, losses, paddings and rounded quotients, by one row each (op_modes.h). A row names a case
 * of tests/golden/make_losses.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "losses"
/* rows that finite differences check, and calls with an input on another device, at least */
enum { LEAST_CHECKED = 40, LEAST_MIXED = 30 };

#define BCE(...)    YK_OPTIONS(yk_binary_cross_entropy_options, __VA_ARGS__)
#define LOSS(...)   YK_OPTIONS(yk_cross_entropy_options, __VA_ARGS__)
#define WIDTHS(...) (int64_t[]){__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define FULL_GAUSS  YK_OPTIONS(yk_gaussian_nll_loss_options, .full = true, .reduction = YK_REDUCE_NONE, .eps = 0.9)
#define SWAPPED                                                                                                        \
    YK_OPTIONS(yk_triplet_margin_loss_options, .margin = 2, .p = 3, .swap = true, .reduction = YK_REDUCE_SUM)

#define FOCAL(...) yk_sigmoid_focal_loss(x[0], x[1], YK_OPTIONS(yk_sigmoid_focal_loss_options, __VA_ARGS__))

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(silu, yk_silu(x[0]))                                                                                           \
    ROW(mish, yk_mish(x[0]))                                                                                           \
    ROW(gelu_tanh, yk_gelu_tanh(x[0]))                                                                                 \
    ROW(relu6, yk_relu6(x[0]))                                                                                         \
    ROW(leaky_relu, yk_leaky_relu(x[0], 0.2))                                                                          \
    ROW(elu, yk_elu(x[0], 1.5))                                                                                        \
    ROW(selu, yk_selu(x[0]))                                                                                           \
    ROW(hardswish, yk_hardswish(x[0]))                                                                                 \
    ROW(hardsigmoid, yk_hardsigmoid(x[0]))                                                                             \
    ROW(log_sigmoid, yk_log_sigmoid(x[0]))                                                                             \
    ROW(softplus, yk_softplus(x[0], 2, 3))                                                                             \
    ROW(prelu, yk_prelu(x[0], x[1]))                                                                                   \
    ROW(prelu_one, yk_prelu(x[0], x[1]))                                                                               \
    ROW(glu, yk_glu(x[0], 1))                                                                                          \
    ROW(bce, yk_binary_cross_entropy(x[0], x[1], NULL))                                                                \
    ROW(bce_weight, yk_binary_cross_entropy(x[0], x[1], BCE(.weight = x[2], .reduction = YK_REDUCE_NONE)))             \
    ROW(bce_ends, yk_binary_cross_entropy(x[0], x[1], BCE(.reduction = YK_REDUCE_NONE)))                               \
    ROW(bce_apart, yk_binary_cross_entropy(x[0], x[1], NULL))                                                          \
    ROW(bce_with_logits, yk_binary_cross_entropy_with_logits(x[0], x[1], BCE(.reduction = YK_REDUCE_SUM)))             \
    ROW(bce_with_logits_weights,                                                                                       \
        yk_binary_cross_entropy_with_logits(x[0], x[1], BCE(.weight = x[2], .pos_weight = x[3])))                      \
    ROW(l1_loss, yk_l1_loss(x[0], x[1], YK_REDUCE_MEAN))                                                               \
    ROW(l1_loss_none, yk_l1_loss(x[0], x[1], YK_REDUCE_NONE))                                                          \
    ROW(smooth_l1_loss, yk_smooth_l1_loss(x[0], x[1], 0.7, YK_REDUCE_MEAN))                                            \
    ROW(huber_loss, yk_huber_loss(x[0], x[1], 0.8, YK_REDUCE_SUM))                                                     \
    ROW(nll_loss, yk_nll_loss(x[0], x[1], NULL))                                                                       \
    ROW(nll_loss_weight,                                                                                               \
        yk_nll_loss(x[0], x[1], YK_OPTIONS(yk_nll_loss_options, .weight = x[2], .ignore_index = 1)))                   \
    ROW(nll_loss_2d, yk_nll_loss(x[0], x[1], YK_OPTIONS(yk_nll_loss_options, .reduction = YK_REDUCE_NONE)))            \
    ROW(cross_entropy_soft, yk_cross_entropy(x[0], x[1], NULL))                                                        \
    ROW(cross_entropy_soft_all, yk_cross_entropy(x[0], x[1], LOSS(.weight = x[2], .label_smoothing = 0.2,              \
                                                                        .reduction = YK_REDUCE_SUM)))                  \
    ROW(cross_entropy_soft_2d, yk_cross_entropy(x[0], x[1], LOSS(.weight = x[2], .reduction = YK_REDUCE_NONE)))        \
    ROW(kl_div, yk_kl_div(x[0], x[1], YK_OPTIONS(yk_kl_div_options, .reduction = YK_REDUCE_BATCHMEAN)))                \
    ROW(kl_div_log, yk_kl_div(x[0], x[1], YK_OPTIONS(yk_kl_div_options, .log_target = true)))                          \
    ROW(gaussian_nll_loss, yk_gaussian_nll_loss(x[0], x[1], x[2], NULL))                                               \
    ROW(gaussian_nll_loss_full, yk_gaussian_nll_loss(x[0], x[1], x[2], FULL_GAUSS))                                    \
    ROW(normalize, yk_normalize_dim(x[0], 2, 1, 1e-12))                                                                    \
    ROW(normalize_3, yk_normalize_dim(x[0], 3, 0, 1e-12))                                                                  \
    ROW(cosine_similarity, yk_cosine_similarity(x[0], x[1], 1, 1e-8))                                                  \
    ROW(pairwise_distance, yk_pairwise_distance(x[0], x[1], 3, 1e-6, true))                                            \
    ROW(cosine_embedding_loss, yk_cosine_embedding_loss(x[0], x[1], x[2], 0.1, YK_REDUCE_MEAN))                        \
    ROW(triplet_margin_loss, yk_triplet_margin_loss(x[0], x[1], x[2], NULL))                                           \
    ROW(triplet_margin_loss_swap, yk_triplet_margin_loss(x[0], x[1], x[2], SWAPPED))                                   \
    ROW(margin_ranking_loss, yk_margin_ranking_loss(x[0], x[1], x[2], 0.5, YK_REDUCE_MEAN))                            \
    ROW(hinge_embedding_loss, yk_hinge_embedding_loss(x[0], x[1], 1, YK_REDUCE_MEAN))                                  \
    ROW(hinge_embedding_loss_other, yk_hinge_embedding_loss(x[0], x[1], 0.4, YK_REDUCE_NONE))                          \
    ROW(soft_margin_loss, yk_soft_margin_loss(x[0], x[1], YK_REDUCE_MEAN))                                             \
    ROW(soft_margin_loss_sum, yk_soft_margin_loss(x[0], x[1], YK_REDUCE_SUM))                                          \
    ROW(sigmoid_focal_loss, yk_sigmoid_focal_loss(x[0], x[1], NULL))                                                   \
    ROW(sigmoid_focal_loss_mean, FOCAL(.alpha = -1, .gamma = 1.5, .reduction = YK_REDUCE_MEAN))                        \
    ROW(pad_constant, yk_pad(x[0], WIDTHS(1, 2, 0, 3), YK_PAD_CONSTANT, 0.5))                                          \
    ROW(pad_cut, yk_pad(x[0], WIDTHS(-1, 2, 1, -2), YK_PAD_CONSTANT, 0))                                               \
    ROW(pad_reflect, yk_pad(x[0], WIDTHS(1, 2, 2, 1), YK_PAD_REFLECT, 0))                                              \
    ROW(pad_replicate, yk_pad(x[0], WIDTHS(2, 0, 1, 3), YK_PAD_REPLICATE, 0))                                          \
    ROW(pad_circular, yk_pad(x[0], WIDTHS(2, 1, 1, 2), YK_PAD_CIRCULAR, 0))                                            \
    ROW(remainder, yk_remainder(x[0], x[1]))                                                                           \
    ROW(remainder_negative, yk_remainder(x[0], x[1]))                                                                  \
    ROW(fmod, yk_fmod(x[0], x[1]))                                                                                     \
    ROW(floor_divide, yk_floor_divide(x[0], x[1]))                                                                     \
    ROW(trunc_divide, yk_trunc_divide(x[0], x[1]))
/* clang-format on */

#include "tests/ops/op_modes.h"
