"""The operations of peer_ops.py beyond those of the tuned networks: elementwise functions, reductions, order, convolutions
and pools along one dimension and three, losses, sequences. bench/operations/{plain,volume,sequence}_operations.c and parts
of reduce_operations.c, layer_operations.c and index_operations.c are the other side.

`PREPARE` has what makes operands beyond those with shapes in the text, `table` a function of no arguments for each
operation, made for one subject. What is in neither is called by its name in torch, or as a method where that ends in _.
"""
import torch
from torch import nn
from torch.nn import functional as F

POSITIVE = ("log2", "log10", "rsqrt", "reciprocal", "floor_divide", "trunc_divide", "remainder", "fmod", "sqrt_", "rsqrt_",
            "reciprocal_", "pow_scalar_")
OF_ONE_NAME = ("relu6", "hardtanh", "prelu", "dropout1d", "dropout3d", "normalize")


# ---- operands beyond those with shapes in the text ----
def inside(s):
    s.inputs[0] = torch.tanh(s.inputs[0])


def above(s):
    s.inputs[0] = s.inputs[0].abs() + 1


def third(s):
    s.inputs.append(torch.rand_like(s.inputs[0]) + 0.1)


def signs(s):
    s.inputs[1] = torch.sign(s.inputs[1])


def half(s):
    s.index = torch.rand_like(s.inputs[0]) > 0.5


def slopes(s):
    s.inputs.append(torch.full((s.inputs[0].shape[1],), 0.25))


def boundaries(s):
    s.index = torch.sort(torch.randn(s.case.int("rows", 2)))[0]


def few(s):
    s.inputs[0] = torch.floor(torch.rand_like(s.inputs[0]) * s.case.int("bins", 2))


def bins(s):
    s.index = torch.randint(0, s.case.int("bins"), (s.case.int("rows"),))


def repetitions(s):
    s.index = torch.randint(0, 4, (s.inputs[0].shape[s.case.int("dim")],))


def rows(s):
    s.index = torch.randint(0, s.inputs[0].shape[0], (s.case.int("rows"),))


def positions(s):
    s.index = torch.randint(0, s.inputs[0].shape[s.case.int("dim")], s.inputs[0].shape)


def binary(s):
    s.index = (torch.randn_like(s.inputs[0]) > 0).float()


def sides(s):
    s.index = torch.sign(torch.randn_like(s.inputs[0]))


def probabilities(s):
    s.inputs[0] = torch.sigmoid(s.inputs[0])
    binary(s)


def pairs(s):
    s.index = torch.sign(torch.randn(s.inputs[0].shape[0]))


def labels(s):
    s.index = torch.randint(0, s.inputs[0].shape[1], s.inputs[0].shape[:1])


def several_labels(s):
    classes = s.inputs[0].shape[1]
    s.index = torch.randint(-classes // 4, classes, s.inputs[0].shape).clamp(min=-1)


def ctc(s):
    _, n, classes = s.inputs[0].shape
    s.index = torch.randint(1, classes, (n, s.case.int("labels")))


def weight(s):
    w = s.inputs[1]
    s.inputs[1] = w / (w.numel() / w.shape[0]) ** 0.5
    outputs = w.shape[1] if "transpose" in s.case.operation else w.shape[0]
    if s.case.int("bias"):
        s.inputs.append(torch.randn(outputs))


def bias(s):
    if s.case.int("bias"):
        s.inputs.append(torch.randn(s.inputs[1].shape[0]))


def attend(q, k, v, causal):
    """PyTorch's; before 2.0 it had another name, and gave the weights as well."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return F._scaled_dot_product_attention(q, k, v, None, 0.0, False, causal)[0]


def indices(dimensions):
    def prepare(s):
        pool = getattr(F, f"max_pool{dimensions}d")
        s.inputs[0], s.index = pool(s.inputs[0], 2, 2, return_indices=True)
    return prepare


def recurrent(s):
    x, w = s.inputs
    gates = 3 if s.case.operation.startswith("gru") else 1
    hidden = w.shape[0] // gates
    small = 1 / hidden ** 0.5
    s.inputs[1] = w * small
    s.inputs += [torch.randn(w.shape[0], hidden) * small, torch.randn(w.shape[0]), torch.randn(w.shape[0])]
    if x.dim() == 2:
        s.inputs.append(torch.randn(x.shape[0], hidden))
    s.zeros = torch.zeros(1, x.shape[-2], hidden)


def lengths(s):
    t, n = s.inputs[0].shape[:2]
    s.index = torch.arange(t, t - n, -1).clamp(min=1)


def heads(s):
    s.inputs += [torch.randn_like(s.inputs[0]), torch.randn_like(s.inputs[0])]


def attention(s):
    s.module = nn.MultiheadAttention(s.inputs[0].shape[-1], s.case.int("heads"), batch_first=True)


def encoder_layer(s):
    s.module = nn.TransformerEncoderLayer(s.inputs[0].shape[-1], s.case.int("heads"), dropout=0, batch_first=True)


def decoder_layer(s):
    s.module = nn.TransformerDecoderLayer(s.inputs[0].shape[-1], s.case.int("heads"), dropout=0, batch_first=True)


PREPARE = {
    "asin": inside, "acos": inside, "atanh": inside, "acosh": above, "lerp": third, "addcmul": third, "addcdiv": third,
    "lerp_": third, "addcmul_": third, "addcdiv_": third, "mul_": signs, "div_": signs, "where": half, "prelu": slopes,
    "searchsorted": boundaries, "bucketize": boundaries, "unique": few, "unique_all": few, "unique_consecutive": few,
    "unique_dim": few, "bincount": bins, "repeat_interleave": repetitions, "embedding_sparse": rows,
    "embedding_bag": rows, "multi_margin_loss": labels, "multilabel_margin_loss": several_labels,
    "scatter_value_": positions, "take_along_dim": positions, "binary_cross_entropy": probabilities,
    "sigmoid_focal_loss": binary, "soft_margin_loss": sides, "hinge_embedding_loss": sides, "nll_loss": labels,
    "gaussian_nll_loss": third, "margin_ranking_loss": pairs, "cosine_embedding_loss": pairs, "triplet_margin_loss": third,
    "ctc_loss": ctc, "conv1d": weight, "conv3d": weight, "conv_transpose1d": weight, "conv_transpose2d": weight,
    "conv_transpose3d": weight, "linear_relu": bias, "max_unpool1d": indices(1), "max_unpool3d": indices(3),
    "gru": recurrent, "rnn": recurrent, "gru_cell": recurrent, "rnn_cell": recurrent, "pack_padded_sequence": lengths,
    "pad_packed_sequence": lengths, "scaled_dot_product_attention": heads, "multihead_attention": attention,
    "transformer_encoder_layer": encoder_layer, "transformer_decoder_layer": decoder_layer,
}


def focal(x, target, alpha=0.25, gamma=2):
    """torchvision.ops.sigmoid_focal_loss, by its definition."""
    p = torch.sigmoid(x)
    cross = F.binary_cross_entropy_with_logits(x, target, reduction="none")
    hit = p * target + (1 - p) * (1 - target)
    return (alpha * target + (1 - alpha) * (1 - target)) * cross * (1 - hit) ** gamma


def pools(case, x):
    kernel = case.int("kernel", 2)
    stride, padding, size = case.int("stride", kernel), case.int("padding"), case.int("size", 1)
    of = {}
    for n in (1, 2, 3):
        of[f"max_pool{n}d"] = lambda n=n: getattr(F, f"max_pool{n}d")(x, kernel, stride, padding)
        of[f"avg_pool{n}d"] = lambda n=n: getattr(F, f"avg_pool{n}d")(x, kernel, stride, padding)
        of[f"lp_pool{n}d"] = lambda n=n: getattr(F, f"lp_pool{n}d")(x, 2.0, kernel, stride)
        of[f"max_pool{n}d_with_indices"] = lambda n=n: getattr(F, f"max_pool{n}d")(x, kernel, return_indices=True)[0]
        of[f"fractional_max_pool{n}d"] = lambda n=n: getattr(F, f"fractional_max_pool{n}d")(x, 2, output_ratio=(0.5,) * n)
        of[f"fractional_max_pool{n}d_with_indices"] = lambda n=n: getattr(F, f"fractional_max_pool{n}d")(
            x, 2, output_ratio=(0.5,) * n, return_indices=True)[0]
        of[f"adaptive_avg_pool{n}d"] = lambda n=n: getattr(F, f"adaptive_avg_pool{n}d")(x, size)
        of[f"adaptive_max_pool{n}d"] = lambda n=n: getattr(F, f"adaptive_max_pool{n}d")(x, size)
    return of


def comparisons(x):
    return {f"{name}_scalar": (lambda name=name: getattr(torch, name)(x, 1)) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


def convolutions(s):
    case, i = s.case, s.inputs
    options = {"stride": case.int("stride", 1), "padding": case.int("padding"), "groups": case.int("groups", 1),
               "dilation": case.int("dilation", 1)}
    return {name: (lambda name=name: getattr(F, name)(i[0], i[1], i[2] if len(i) > 2 else None, **options))
            for name in ("conv1d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")}


def unpacked(x, lengths_of):
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths_of)
    return nn.utils.rnn.pad_packed_sequence(packed)[0]


def table(s):
    case, i, index = s.case, s.inputs, s.index
    x, y = (i + [None, None])[:2]
    third_one = i[2] if len(i) > 2 else None
    dims, dim, n = case.sizes("dims"), case.int("dim"), case.int("n")
    factor = float(case.values.get("factor", "2"))
    module = getattr(s, "module", None)

    def over_dims(function):
        # before PyTorch 2.2 any and all take one dimension alone, as a number
        of = dims[0] if dims and len(dims) == 1 else dims
        return lambda: function(x, of) if dims else function(x)

    def ctc_loss():
        steps, batch, _ = x.shape
        return F.ctc_loss(F.log_softmax(x, 2), index, torch.full((batch,), steps), torch.full((batch,), index.shape[1]))

    return {
        **comparisons(x), **pools(case, x), **convolutions(s),
        **{name: (lambda name=name: getattr(F, name)(*i)) for name in OF_ONE_NAME},
        "softmin": lambda: F.softmin(x, dim),
        "add_scalar": lambda: torch.add(x, 2), "sub_scalar": lambda: torch.sub(x, 2), "rsub_scalar": lambda: 2 - x,
        "mul_scalar": lambda: torch.mul(x, 3), "div_scalar": lambda: torch.div(x, 3),
        "floor_divide_scalar": lambda: torch.floor_divide(x, 3), "remainder_scalar": lambda: torch.remainder(x, 3),
        "add_scaled": lambda: torch.add(x, y, alpha=3), "trunc_divide": lambda: torch.div(x, y, rounding_mode="trunc"),
        "allclose": lambda: torch.allclose(x, x), "lerp_scalar": lambda: torch.lerp(x, y, 0.25), "where": lambda: torch.where(index, x, y),
        "addcmul": lambda: torch.addcmul(x, y, third_one, value=0.5),
        "addcdiv": lambda: torch.addcdiv(x, y, third_one, value=0.5),
        "clamp_": lambda: x.clamp_(0, 6), "add_scalar_": lambda: x.add_(2), "sub_scalar_": lambda: x.sub_(2),
        "mul_scalar_": lambda: x.mul_(-1), "div_scalar_": lambda: x.div_(-1), "pow_scalar_": lambda: x.pow_(0.5),
        "addcmul_": lambda: x.addcmul_(y, third_one, value=0.5), "addcdiv_": lambda: x.addcdiv_(y, third_one, value=0.5),
        "lerp_scalar_": lambda: x.lerp_(y, 0.25), "fill_": lambda: x.fill_(1.5), "uniform_": lambda: x.uniform_(0, 1),
        "normal_": lambda: x.normal_(0, 1),
        "amax": lambda: torch.amax(x, dims or ()), "amin": lambda: torch.amin(x, dims or ()),
        "any_dims": over_dims(torch.any), "all_dims": over_dims(torch.all), "count_nonzero": over_dims(torch.count_nonzero),
        "prod_dim": lambda: torch.prod(x, dim), "min_dim": lambda: torch.min(x, dim)[0], "mean_all": lambda: torch.mean(x),
        "var_all": lambda: torch.var(x), "std_all": lambda: torch.std(x), "argmax_all": lambda: torch.argmax(x),
        "quantile_list": lambda: torch.quantile(x, torch.tensor([0.25, 0.5, 0.75]), dim),
        "searchsorted": lambda: torch.searchsorted(index, x), "bucketize": lambda: torch.bucketize(x, index),
        "unique": lambda: torch.unique(x), "unique_all": lambda: torch.unique(x, return_inverse=True, return_counts=True)[0],
        "unique_dim": lambda: torch.unique(x, dim=dim), "bincount": lambda: torch.bincount(index, minlength=case.int("bins")),
        "repeat_interleave": lambda: torch.repeat_interleave(x, index, dim),
        "repeat_interleave_scalar": lambda: torch.repeat_interleave(x, 3, dim),
        "roll_dims": lambda: torch.roll(x, (5, 7), dims),
        "ones": lambda: torch.ones(n), "linspace": lambda: torch.linspace(0, 1, n), "eye": lambda: torch.eye(n),
        "take_along_dim": lambda: torch.take_along_dim(x, index, dim),
        "scatter_value_": lambda: x.scatter_(dim, index, 1.5),
        "embedding_sparse": lambda: F.embedding(index, x, sparse=True),
        "embedding_bag": lambda: F.embedding_bag(index.reshape(-1, 16), x),
        "multi_margin_loss": lambda: F.multi_margin_loss(x, index),
        "multilabel_margin_loss": lambda: F.multilabel_margin_loss(x, index),
        "max_unpool1d": lambda: F.max_unpool1d(x, index, 2), "max_unpool3d": lambda: F.max_unpool3d(x, index, 2),
        "interpolate": lambda: F.interpolate(x, scale_factor=factor, mode=case.values["mode"]),
        "pixel_unshuffle": lambda: F.pixel_unshuffle(x, 2),
        "feature_alpha_dropout": lambda: F.feature_alpha_dropout(x, training=True),
        "binary_cross_entropy": lambda: F.binary_cross_entropy(x, index), "sigmoid_focal_loss": lambda: focal(x, index),
        "soft_margin_loss": lambda: F.soft_margin_loss(x, index),
        "hinge_embedding_loss": lambda: F.hinge_embedding_loss(x, index), "nll_loss": lambda: F.nll_loss(x, index),
        "gaussian_nll_loss": lambda: F.gaussian_nll_loss(*i),
        "margin_ranking_loss": lambda: F.margin_ranking_loss(x, y, index),
        "cosine_embedding_loss": lambda: F.cosine_embedding_loss(x, y, index),
        "triplet_margin_loss": lambda: F.triplet_margin_loss(*i), "ctc_loss": ctc_loss,
        "linear_relu": lambda: F.relu(F.linear(x, y, third_one)),
        "gru": lambda: torch.gru(x, s.zeros, i[1:], True, 1, 0.0, True, False, False)[0],
        "rnn": lambda: torch.rnn_tanh(x, s.zeros, i[1:], True, 1, 0.0, True, False, False)[0],
        "gru_cell": lambda: torch.gru_cell(x, i[5], *i[1:5]), "rnn_cell": lambda: torch.rnn_tanh_cell(x, i[5], *i[1:5]),
        "pack_padded_sequence": lambda: nn.utils.rnn.pack_padded_sequence(x, index).data,
        "pad_packed_sequence": lambda: unpacked(x, index),
        "pad_sequence": lambda: nn.utils.rnn.pad_sequence(i, batch_first=True),
        "scaled_dot_product_attention": lambda: attend(*i, case.int("causal") == 1),
        "multihead_attention": lambda: module(x, x, x, need_weights=False)[0],
        "transformer_encoder_layer": lambda: module(x), "transformer_decoder_layer": lambda: module(x, y),
    }.get(case.operation)
