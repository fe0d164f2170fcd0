#!/usr/bin/python3
"""Writes tests/golden/losses.golden: activations, losses, paddings and rounded quotients, as make_ops.py does.

    python3 tests/golden/make_losses.py
The row of the same name in tests/ops/losses_test.c calls yoke's function.
"""
import torch
import torch.nn.functional as F

import make_ops
from make_ops import case, index, positive, x

make_ops.CASES.clear()

wide = dict(low=-6, high=6)
case("silu", F.silu, x(3, 4, **wide))
case("mish", F.mish, x(3, 4, **wide))
case("gelu_tanh", lambda a: 0.5 * a * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (a + 0.044715 * a ** 3))),
     x(3, 4, **wide))
case("relu6", F.relu6, x(3, 4, low=-3, high=9))
case("leaky_relu", lambda a: F.leaky_relu(a, 0.2), x(3, 4))
case("elu", lambda a: F.elu(a, 1.5), x(3, 4))
case("selu", F.selu, x(3, 4))
case("hardswish", F.hardswish, x(4, 4, **wide))
# F.hardsigmoid multiplies its gradient by 1 / 6 as float32 has it, in float64, too.
case("hardsigmoid", lambda a: torch.clamp(a + 3, 0, 6) / 6, x(4, 4, **wide))
case("log_sigmoid", F.logsigmoid, x(3, 4, **wide))
case("softplus", lambda a: F.softplus(a, 2, 3), x(4, 4, **wide))
case("prelu", F.prelu, x(2, 3, 4), positive(3))
case("prelu_one", F.prelu, x(3, 4), positive(1))
case("glu", lambda a: F.glu(a, 1), x(2, 6, 3))

case("bce", lambda a, t: F.binary_cross_entropy(a, t), x(3, 4, low=0.05, high=0.95), x(3, 4, low=0.1, high=0.9))
case("bce_weight", lambda a, t, w: F.binary_cross_entropy(a, t, w, reduction="none"), x(3, 4, low=0.05, high=0.95),
     x(3, 4, low=0, high=1, grad=False), x(4, low=0.3, high=2, grad=False))
case("bce_ends", lambda a, t: F.binary_cross_entropy(a, t, reduction="none"),
     x(3, values=[0, 1, 0.5], low=0), x(3, values=[0, 1, 1], grad=False), smooth=False)
case("bce_apart", lambda a, t: F.binary_cross_entropy(a, t), x(2, values=[0, 1], grad=False),
     x(2, values=[1, 0], grad=False))
case("bce_with_logits", lambda a, t: F.binary_cross_entropy_with_logits(a, t, reduction="sum"), x(3, 4, **wide),
     x(3, 4, low=0, high=1))
case("bce_with_logits_weights", lambda a, t, w, p: F.binary_cross_entropy_with_logits(a, t, w, pos_weight=p),
     x(3, 4, **wide), x(3, 4, low=0, high=1, grad=False), x(3, 1, low=0.5, high=2, grad=False),
     x(4, low=0.5, high=3, grad=False))
case("l1_loss", F.l1_loss, x(3, 4), x(3, 4))
case("l1_loss_none", lambda a, t: F.l1_loss(a, t, reduction="none"), x(3, 4), x(3, 4))
case("smooth_l1_loss", lambda a, t: F.smooth_l1_loss(a, t, beta=0.7), x(3, 4), x(3, 4))
case("huber_loss", lambda a, t: F.huber_loss(a, t, delta=0.8, reduction="sum"), x(3, 4), x(3, 4))
case("nll_loss", lambda a, t: F.nll_loss(a, t), x(5, 4), index(5, high=4))
case("nll_loss_weight", lambda a, t, w: F.nll_loss(a, t, w, ignore_index=1), x(6, 4),
     index(6, high=4, values=[0, 1, 3, 2, 1, 3]), x(4, low=0.5, high=2, grad=False))
case("nll_loss_2d", lambda a, t: F.nll_loss(a, t, reduction="none"), x(2, 3, 2, 2), index(2, 2, 2, high=3))
case("cross_entropy_soft", lambda a, t: F.cross_entropy(a, t), x(4, 3), positive(4, 3))
case("cross_entropy_soft_all", lambda a, t, w: F.cross_entropy(a, t, w, label_smoothing=0.2, reduction="sum"), x(4, 3),
     x(4, 3, low=0, high=1, grad=False), x(3, low=0.5, high=2, grad=False))
case("cross_entropy_soft_2d", lambda a, t, w: F.cross_entropy(a, t, w, reduction="none"), x(2, 3, 2, 2),
     positive(2, 3, 2, 2), x(3, low=0.5, high=2, grad=False))
case("kl_div", lambda a, t: F.kl_div(a, t, reduction="batchmean"), x(3, 4), positive(3, 4))
case("kl_div_log", lambda a, t: F.kl_div(a, t, log_target=True), x(3, 4), x(3, 4))
case("gaussian_nll_loss", lambda a, t, v: F.gaussian_nll_loss(a, t, v), x(3, 4), x(3, 4), positive(3, 4))
case("gaussian_nll_loss_full", lambda a, t, v: F.gaussian_nll_loss(a, t, v, full=True, reduction="none", eps=0.9),
     x(3, 4), x(3, 4), positive(3, 1), smooth=False)
case("normalize", lambda a: F.normalize(a, 2, 1), x(3, 4, 2))
case("normalize_3", lambda a: F.normalize(a, 3, 0), x(3, 4))
case("cosine_similarity", lambda a, b: F.cosine_similarity(a, b, 1), x(3, 4), x(1, 4))
case("pairwise_distance", lambda a, b: F.pairwise_distance(a, b, 3.0, keepdim=True), x(3, 4), x(3, 4))
case("cosine_embedding_loss", lambda a, b, t: F.cosine_embedding_loss(a, b, t, 0.1), x(6, 4), x(6, 4),
     x(6, values=[1, -1, 1, -1, -1, 1], grad=False))
case("triplet_margin_loss", lambda a, b, c: F.triplet_margin_loss(a, b, c), x(4, 3), x(4, 3), x(4, 3))
case("triplet_margin_loss_swap", lambda a, b, c: F.triplet_margin_loss(a, b, c, 2, 3, swap=True, reduction="sum"),
     x(4, 3), x(4, 3), x(4, 3))
case("margin_ranking_loss", lambda a, b, t: F.margin_ranking_loss(a, b, t, 0.5), x(6), x(6),
     x(6, values=[1, -1, 1, -1, -1, 1], grad=False))

SIGNS = dict(values=[1, -1, 1, -1, -1, 1, 1, 1, -1, -1, 1, -1], grad=False)
case("hinge_embedding_loss", lambda a, t: F.hinge_embedding_loss(a, t), x(3, 4), x(3, 4, **SIGNS))
case("hinge_embedding_loss_other", lambda a, t: F.hinge_embedding_loss(a, t, 0.4, reduction="none"), x(3, 4),
     x(3, 4, values=[1, 0, 1, -1, 0, 1, 1, 1, -1, -1, 1, -1], grad=False))
case("soft_margin_loss", lambda a, t: F.soft_margin_loss(a, t), x(3, 4), x(3, 4, **SIGNS))
case("soft_margin_loss_sum", lambda a, t: F.soft_margin_loss(a, t, reduction="sum"), x(3, 4), x(3, 4, grad=False))


def focal(a, t, alpha=0.25, gamma=2):
    """torchvision.ops.sigmoid_focal_loss, written from the paper's formula."""
    p = torch.sigmoid(a)
    right = p * t + (1 - p) * (1 - t)
    loss = F.binary_cross_entropy_with_logits(a, t, reduction="none") * (1 - right) ** gamma
    return loss if alpha < 0 else loss * (alpha * t + (1 - alpha) * (1 - t))


case("sigmoid_focal_loss", focal, x(3, 4, **wide), x(3, 4, low=0, high=1))
case("sigmoid_focal_loss_mean", lambda a, t: focal(a, t, -1, 1.5).mean(), x(3, 4, **wide), x(3, 4, low=0, high=1))

case("pad_constant", lambda a: F.pad(a, (1, 2, 0, 3), value=0.5), x(2, 3, 2))
case("pad_cut", lambda a: F.pad(a, (-1, 2, 1, -2)), x(4, 3))
case("pad_reflect", lambda a: F.pad(a, (1, 2, 2, 1), mode="reflect"), x(1, 2, 3, 3))
case("pad_replicate", lambda a: F.pad(a, (2, 0, 1, 3), mode="replicate"), x(1, 2, 2, 3))
case("pad_circular", lambda a: F.pad(a, (2, 1, 1, 2), mode="circular"), x(1, 2, 2, 3))

case("remainder", torch.remainder, x(3, 4, low=-5, high=5), x(3, 4, low=0.7, high=2))
case("remainder_negative", torch.remainder, x(3, 4, low=-5, high=5), x(4, low=-2, high=-0.7))
case("fmod", torch.fmod, x(3, 4, low=-5, high=5), x(3, 4, low=-2, high=-0.7))
case("floor_divide", lambda a, b: torch.div(a, b, rounding_mode="floor"), x(3, 4, low=-5, high=5),
     x(3, 4, low=0.7, high=2))
case("trunc_divide", lambda a, b: torch.div(a, b, rounding_mode="trunc"), x(3, 4, low=-5, high=5),
     x(3, 4, low=0.7, high=2))

make_ops.main("losses")
