#!/usr/bin/python3
"""Writes tests/golden/ops.golden: small float64 inputs, and what PyTorch makes of them.

Needs PyTorch (2.15 wrote the committed file). Run from anywhere:
    python3 tests/golden/make_ops.py
Each case is a name, a function, and its inputs. The row of the same name in tests/ops/ops_test.c calls yoke's function
on the same inputs and compares the result and the gradient of every input that has one, given the gradient of the
result written here. A tensor is a dtype, its dimensions, whether it requires a gradient, and where its numbers begin in
[values].
"""
import random

import torch
import torch.nn.functional as F

import golden_file

CASES = []
VALUES = []
INTEGER, BOOLEAN, REAL = "int64", "bool", "float64"


class Input:
    """A tensor of 3-digit numbers; drawn from a generator of its own, so that cases do not move each other."""

    def __init__(self, shape, low=-1.5, high=1.5, kind=REAL, grad=True, values=None):
        self.shape, self.low, self.high, self.kind, self.values = shape, low, high, kind, values
        self.grad = grad and kind == REAL

    def draw(self, rng):
        count = 1
        for size in self.shape:
            count *= size
        if self.values is not None:
            data = list(self.values)
        elif self.kind == REAL:
            data = [round(rng.uniform(self.low, self.high), 3) for _ in range(count)]
        else:
            data = [rng.randrange(self.low, self.high) for _ in range(count)]
        dtype = {REAL: torch.float64, INTEGER: torch.int64, BOOLEAN: torch.bool}[self.kind]
        return torch.tensor(data, dtype=torch.float64).reshape(self.shape).to(dtype)


def x(*shape, low=-1.5, high=1.5, grad=True, values=None):
    return Input(shape, low, high, REAL, grad, values)


def positive(*shape):
    return Input(shape, 0.3, 2.0)


def index(*shape, high, values=None):
    return Input(shape, 0, high, INTEGER, False, values)


def mask(*shape):
    return Input(shape, 0, 2, BOOLEAN, False)


def case(name, function, *inputs, smooth=True):
    """smooth=False: finite differences would step over a kink."""
    CASES.append((name, function, inputs, smooth))


def put(tensor):
    at = len(VALUES)
    VALUES.extend(float(v) for v in tensor.detach().to(torch.float64).contiguous().reshape(-1))
    return at


# ---- elementwise, two tensors
for op in ("add", "sub", "mul"):
    case(op, getattr(torch, op), x(2, 3), x(2, 3))
    case(op + "_broadcast", getattr(torch, op), x(2, 1, 3), x(4, 1))
case("div", torch.div, x(2, 3), positive(2, 3))
case("div_broadcast", torch.div, x(3), positive(2, 3))
case("pow", torch.pow, positive(2, 3), x(2, 3))
case("pow_broadcast", torch.pow, positive(2, 1), x(3))
case("pow_at_zero", torch.pow, x(4, values=[0, 0, 0, 2]), x(4, values=[2, 1, 0, 0]), smooth=False)
case("maximum", torch.maximum, x(2, 3), x(3))
case("minimum", torch.minimum, x(2, 3), x(2, 1))
case("maximum_ties", torch.maximum, x(3, values=[1, 2, 3]), x(3, values=[1, 3, 2]), smooth=False)
case("minimum_ties", torch.minimum, x(3, values=[1, 2, 3]), x(3, values=[1, 3, 2]), smooth=False)
case("add_scaled", lambda a, b: torch.add(a, b, alpha=-0.75), x(2, 3), x(3))
case("add_scalar_tensor", lambda a, b: a + b, x(2, 3), x())
# ---- elementwise, one tensor
case("add_scalar", lambda a: a + 0.7, x(2, 3))
case("sub_scalar", lambda a: a - 0.7, x(2, 3))
case("mul_scalar", lambda a: a * -1.3, x(2, 3))
case("div_scalar", lambda a: a / 3, x(2, 3))
case("div_scalar_power_of_two", lambda a: a / -4, x(2, 3))
case("pow_scalar_square", lambda a: a ** 2, x(2, 3))
case("pow_scalar_cube", lambda a: a ** 3, x(2, 3))
case("pow_scalar_root", lambda a: a ** 0.5, positive(2, 3))
case("pow_scalar_inverse", lambda a: a ** -1, positive(2, 3))
case("pow_scalar_any", lambda a: a ** -2.3, positive(2, 3))
case("pow_scalar_zero", lambda a: a ** 0, x(2, 3))
case("pow_scalar_one", lambda a: a ** 1, x(2, 3))
for op in ("neg", "abs", "exp", "square", "sin", "cos", "tanh", "sigmoid", "relu"):
    case(op, getattr(torch, op), x(3, 4, low=-3, high=3))
for op in ("log", "sqrt", "rsqrt", "reciprocal"):
    case(op, getattr(torch, op), positive(2, 3))
case("gelu", F.gelu, x(3, 4, low=-3, high=3))
case("kinks", lambda a: torch.relu(a) + torch.abs(a), x(3, values=[-1, 0, 1]), smooth=False)
case("clamp", lambda a: a.clamp(-0.5, 0.8), x(3, 4))
case("clamp_open", lambda a: a.clamp(max=0.3), x(3, 4))
case("clamp_edges", lambda a: a.clamp(-1, 1), x(5, values=[-2, -1, 0, 1, 2]), smooth=False)
case("where", torch.where, mask(2, 3), x(2, 3), x(2, 3))
case("where_broadcast", torch.where, mask(2, 1), x(3), x(2, 3))
# ---- in place
case("add_in_place", lambda a, b: a.clone().add_(b, alpha=0.5), x(2, 3), x(3))
case("mul_in_place", lambda a, b: a.clone().mul_(b), x(2, 3), x(2, 1))
case("mul_in_place_self", lambda a: a * a, x(2, 3))
case("mul_scalar_in_place", lambda a: a.clone().mul_(-2.5), x(2, 3))
case("relu_in_place", lambda a: a.clone().relu_(), x(3, 4))
case("copy_in_place", lambda a, b: a.clone().copy_(b), x(2, 3), x(3))
case("fill_in_place", lambda a: a.clone().fill_(2.5) + a, x(2, 3))
# ---- shape
case("reshape", lambda a: a.reshape(3, -1), x(2, 3, 2))
case("reshape_copy", lambda a: a.transpose(0, 1).reshape(6), x(2, 3))
case("reshape_scalar", lambda a: a.reshape(()), x(1, 1))
case("view", lambda a: a.view(2, 2, 3), x(4, 3))
case("flatten", lambda a: a.flatten(1, 2), x(2, 3, 2, 1))
case("permute", lambda a: a.permute(2, 0, 1), x(2, 3, 4))
case("transpose", lambda a: a.transpose(-1, 0), x(2, 3))
case("squeeze", lambda a: a.squeeze(1), x(2, 1, 3))
case("unsqueeze", lambda a: a.unsqueeze(-1), x(2, 3))
case("expand", lambda a: a.expand(2, -1, 4), x(3, 1))
case("slice", lambda a: a[:, 1:5:2], x(2, 6))
case("slice_negative", lambda a: a[-3:-1], x(4, 2))
case("slice_everything", lambda a: a[:], x(4, 2))
case("slice_nothing", lambda a: a[3:2], x(4, 2))
case("select", lambda a: a.select(1, -2), x(2, 3, 2))
case("narrow", lambda a: a.narrow(0, 1, 2), x(4, 2))
case("cat", lambda a, b, c: torch.cat([a, b, c], 1), x(2, 1), x(2, 3), x(2, 2))
case("cat_with_empty", lambda a, b: torch.cat([torch.empty(0, dtype=torch.float64), a, b], -2), x(1, 2), x(2, 2))
case("stack", lambda a, b: torch.stack([a, b], 1), x(2, 3), x(2, 3))
case("stack_last", lambda a, b: torch.stack([a, b], -1), x(2, 3), x(2, 3))
case("split", lambda a: a.split(2, 1)[2] * 3 + a.split(2, 1)[0][:, :1], x(2, 5))
case("split_sizes", lambda a: a.split([1, 3, 0, 1], 1)[1].sum(1) * a.split([1, 3, 0, 1], 1)[3][:, 0], x(2, 5))
case("chunk", lambda a: a.chunk(3, 0)[0] * a.chunk(3, 0)[2], x(5, 3))
case("unbind", lambda a: a.unbind(1)[0] * a.unbind(1)[3], x(2, 4, 3))
case("contiguous", lambda a: a.t().contiguous(), x(2, 3))
case("clone", lambda a: a.clone(), x(2, 3))
case("cast", lambda a: a.to(torch.float32).to(torch.float64), x(2, 3, values=[0.5, 1.25, -2, 3, 4.75, -8]))
case("to", lambda a: a * 2, x(2, 3))
# ---- reductions
case("sum", torch.sum, x(2, 3))
case("sum_dims", lambda a: a.sum((0, 2)), x(2, 3, 4))
case("sum_dims_kept", lambda a: a.sum((-1, 0), keepdim=True), x(2, 3, 4))
case("mean", torch.mean, x(2, 3))
case("mean_dims", lambda a: a.mean((1,)), x(2, 3, 2))
case("mean_dims_kept", lambda a: a.mean((0, 1), keepdim=True), x(2, 3, 2))
case("var", torch.var, x(2, 3))
case("var_dims", lambda a: a.var((0,), unbiased=False), x(4, 3))
case("var_dims_kept", lambda a: a.var((1, 2), keepdim=True), x(2, 3, 2))
case("max", torch.max, x(2, 3))
case("min", torch.min, x(2, 3))
case("max_ties", torch.max, x(4, values=[1, 3, 3, 2]), smooth=False)
case("max_dim", lambda a: a.max(1)[0], x(2, 3, 2))
case("max_dim_kept", lambda a: a.max(-1, keepdim=True)[0], x(2, 3))
case("min_dim", lambda a: a.min(0)[0], x(3, 2))
case("max_dim_ties", lambda a: a.max(1)[0], x(2, 3, values=[1, 2, 2, 3, 1, 3]), smooth=False)
case("prod", torch.prod, x(2, 3))
case("prod_zero", torch.prod, x(2, 3, values=[0.5, -1.25, 0, 1.5, -2, 0.75]))
case("prod_zeros", torch.prod, x(5, values=[0.5, 0, 1.5, 0, -2]))
case("prod_scalar", torch.prod, x(values=[0]))
case("prod_dim", lambda a: a.prod(1), x(2, 3, 2))
case("prod_dim_kept", lambda a: a.prod(-1, keepdim=True), x(2, 3))
case("prod_dim_zeros", lambda a: a.prod(1), x(4, 4, values=[0.5, 0, 1.5, -2, 0, 3, 0, 1.25, 1, 2, -0.5, 1.5, 2, 3, 1, 0]))
case("prod_dim_zeros_first", lambda a: a.prod(0), x(3, 2, 2, values=[0, 2, 1.5, 0, 0.5, 0, -1, 0, 1.25, 3, -2, 2]))
case("argmax", lambda a: a.argmax(1), x(3, 4, grad=False))
case("argmin", lambda a: a.argmin(0, keepdim=True), x(3, 4, grad=False))
case("softmax", lambda a: a.softmax(1), x(3, 4, low=-4, high=4))
case("softmax_first", lambda a: a.softmax(0), x(3, 4, 2))
case("log_softmax", lambda a: a.log_softmax(-1), x(3, 4, low=-4, high=4))
case("log_softmax_middle", lambda a: a.log_softmax(1), x(2, 3, 2))
# ---- no gradient
case("sign", torch.sign, x(2, 3, grad=False))
case("floor", torch.floor, x(2, 3, grad=False))
case("ceil", torch.ceil, x(2, 3, grad=False))
case("round", torch.round, x(4, grad=False, values=[0.5, 1.5, -0.5, 0.7]))
case("is_finite", torch.isfinite, x(3, grad=False))
for op in ("eq", "ne", "lt", "le", "gt", "ge"):
    case(op, getattr(torch, op), x(2, 2, grad=False, values=[1, 2, 3, 4]), x(2, grad=False, values=[1, 3]))
case("logical_and", torch.logical_and, mask(4), mask(4))
case("logical_or", torch.logical_or, mask(4), mask(4))
case("logical_not", torch.logical_not, mask(4))
case("any", torch.any, mask(4))
case("all", torch.all, mask(4))
# ---- products
case("matmul", torch.matmul, x(2, 3), x(3, 4))
case("matmul_dot", torch.matmul, x(3), x(3))
case("matmul_row", torch.matmul, x(3), x(3, 4))
case("matmul_column", torch.matmul, x(2, 3), x(3))
case("matmul_batch", torch.matmul, x(2, 2, 3), x(2, 3, 2))
case("matmul_shared_right", torch.matmul, x(2, 2, 2, 3), x(3, 2))
case("matmul_shared_left", torch.matmul, x(2, 3), x(2, 3, 2))
case("matmul_broadcast", torch.matmul, x(2, 1, 2, 3), x(3, 3, 2))
case("matmul_broadcast_ones", torch.matmul, x(2, 1, 2, 3), x(1, 3, 3, 2))
case("matmul_row_batch", torch.matmul, x(3), x(2, 3, 2))
case("matmul_batch_column", torch.matmul, x(2, 2, 3), x(3))
case("linear", F.linear, x(4, 3), x(2, 3), x(2))
case("linear_plain", F.linear, x(2, 2, 3), x(2, 3))
case("linear_vector", F.linear, x(3), x(2, 3), x(2))
# ---- networks
case("conv2d", F.conv2d, x(2, 2, 4, 5), x(3, 2, 3, 3), x(3))
case("conv2d_plain", F.conv2d, x(1, 2, 3, 3), x(2, 2, 1, 1))
case("conv2d_all", lambda a, w, b: F.conv2d(a, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2),
     x(1, 4, 5, 4), x(4, 2, 3, 2), x(4))
case("conv2d_depthwise", lambda a, w: F.conv2d(a, w, padding=1, groups=3), x(1, 3, 3, 3), x(3, 1, 3, 3))
case("max_pool2d", lambda a: F.max_pool2d(a, 2), x(1, 2, 4, 5))
case("max_pool2d_all", lambda a: F.max_pool2d(a, (3, 2), (2, 1), (1, 0), (1, 2), True), x(1, 1, 6, 5))
case("max_pool2d_ceil_drops", lambda a: F.max_pool2d(a, 2, 3, 1, ceil_mode=True), x(1, 1, 4, 4))
case("avg_pool2d", lambda a: F.avg_pool2d(a, 2), x(1, 2, 4, 4))
case("avg_pool2d_all", lambda a: F.avg_pool2d(a, 3, 2, 1, True), x(1, 1, 6, 5))
case("avg_pool2d_no_pad", lambda a: F.avg_pool2d(a, (3, 2), (2, 2), 1, False, False), x(1, 1, 5, 4))
case("avg_pool2d_divisor", lambda a: F.avg_pool2d(a, 2, 1, divisor_override=3), x(1, 1, 3, 3))
case("adaptive_avg_pool2d", lambda a: F.adaptive_avg_pool2d(a, (2, 3)), x(1, 2, 5, 4))
case("adaptive_avg_pool2d_one", lambda a: F.adaptive_avg_pool2d(a, 1), x(2, 2, 3, 3))
case("batch_norm", lambda a, w, b: F.batch_norm(a, None, None, w, b, True), x(3, 2, 2, 2), x(2), x(2))
case("batch_norm_plain", lambda a: F.batch_norm(a, None, None, training=True, eps=0.1), x(4, 3))
case("batch_norm_eval", lambda a, w, b, m, v: F.batch_norm(a, m, v, w, b), x(2, 2, 2, 2), x(2), x(2),
     x(2, grad=False), Input((2,), 0.5, 2, REAL, False))
case("batch_norm_relu", lambda a, w, b: F.relu(F.batch_norm(a, None, None, w, b, True)), x(3, 2, 2, 2), x(2), x(2))
case("batch_norm_residual", lambda a, w, b, r: F.batch_norm(a, None, None, w, b, True) + r, x(3, 2, 2, 1), x(2), x(2),
     x(3, 2, 2, 1))
case("batch_norm_residual_relu", lambda a, w, b, r: F.relu(F.batch_norm(a, None, None, w, b, True) + r), x(3, 2, 2, 1),
     x(2), x(2), x(3, 2, 2, 1))
case("layer_norm", lambda a, w, b: F.layer_norm(a, (4,), w, b), x(3, 4), x(4), x(4))
case("layer_norm_two", lambda a, w, b: F.layer_norm(a, (2, 3), w, b, 0.01), x(2, 2, 3), x(2, 3), x(2, 3))
case("layer_norm_plain", lambda a: F.layer_norm(a, (3,)), x(2, 2, 3))
case("layer_norm_weight", lambda a, w: F.layer_norm(a, (3,), w), x(2, 3), x(3))
case("embedding", F.embedding, index(2, 3, high=5), x(5, 2))
case("embedding_padding", lambda i, w: F.embedding(i, w, padding_idx=1), index(4, high=3, values=[1, 0, 1, 2]), x(3, 2),
     smooth=False)
# ---- losses
case("cross_entropy", F.cross_entropy, x(4, 3, low=-3, high=3), index(4, high=3))
case("cross_entropy_sum", lambda a, t: F.cross_entropy(a, t, reduction="sum"), x(4, 3), index(4, high=3))
case("cross_entropy_all", lambda a, t, w: F.cross_entropy(a, t, w, ignore_index=1, label_smoothing=0.2),
     x(5, 3), index(5, high=3, values=[0, 1, 2, 1, 2]), Input((3,), 0.5, 2, REAL, False))
case("cross_entropy_each", lambda a, t: F.cross_entropy(a, t, reduction="none"), x(3, 4), index(3, high=4))
case("cross_entropy_each_all",
     lambda a, t, w: F.cross_entropy(a, t, w, ignore_index=0, label_smoothing=0.3, reduction="none"),
     x(4, 3), index(4, high=3, values=[0, 1, 2, 1]), Input((3,), 0.5, 2, REAL, False))
case("mse_loss", F.mse_loss, x(2, 3), x(2, 3))
case("mse_loss_sum", lambda a, b: F.mse_loss(a, b, reduction="sum"), x(2, 3), x(2, 3))
case("mse_loss_each", lambda a, b: F.mse_loss(a, b, reduction="none"), x(2, 3), x(2, 3))

# ---- parts by index ----
case("index_select", lambda a, i: a.index_select(1, i), x(3, 4, 2), index(5, high=4))
case("index_select_one", lambda a, i: a.index_select(0, i), x(3, 4), index(high=3))
case("index_add", lambda a, i, b: a.clone().index_add_(1, i, b, alpha=-1.5), x(2, 3, 2), index(5, high=3), x(2, 5, 2))
case("gather_dim", lambda a, i: a.gather(1, i), x(3, 4), index(2, 5, high=4))
case("gather_dim_first", lambda a, i: a.gather(-3, i), x(3, 2, 4), index(4, 2, 3, high=3))
case("scatter_dim", lambda a, i, b: a.clone().scatter_(1, i, b), x(3, 5),
     index(2, 3, high=5, values=[4, 0, 2, 1, 3, 0]), x(2, 3))
case("scatter_dim_value", lambda a, i: a.clone().scatter_(0, i, 2.5), x(3, 4), index(2, 3, high=3))
case("scatter_add", lambda a, i, b: a.clone().scatter_add_(0, i, b), x(3, 4), index(5, 3, high=3), x(5, 3))
case("take", lambda a, i: a.take(i), x(3, 4), index(2, 3, high=12, values=[-1, 0, 5, 5, -12, 11]))
case("take_along_dim", lambda a, i: torch.take_along_dim(a, i, 1), x(3, 4, 1), index(1, 5, 2, high=4, values=[
    -1, 0, 3, 3, -4, 2, 1, 1, 0, 2]))
case("masked_select", lambda a, m: a.masked_select(m), x(3, 4), mask(3, 4))
case("masked_select_broadcast", lambda a, m: a.masked_select(m), x(2, 1, 3), mask(4, 1))
case("masked_fill", lambda a, m: a.masked_fill(m, -2.5), x(3, 4), mask(4))
case("masked_fill_wider", lambda a, m: a.masked_fill(m, -2.5), x(4), mask(3, 1))
case("masked_fill_in_place", lambda a, m: a.clone().masked_fill_(m, 0.5), x(3, 4), mask(3, 1))
case("nonzero", lambda a: a.nonzero(), mask(3, 2, 4))
case("nonzero_of_numbers", lambda a: a.nonzero(), index(7, high=2))

# ---- order, sums along a dimension, norms, parts of matrices ----
case("log1p", torch.log1p, x(3, 4, low=-0.7, high=3))
case("expm1", torch.expm1, x(3, 4))
case("erf", torch.erf, x(3, 4, low=-2.5, high=2.5))
case("atan2", torch.atan2, x(3, 4), x(4))
case("lerp", torch.lerp, x(3, 4), x(3, 4), x(4, low=-0.4, high=1.4))
case("lerp_scalar", lambda a, b: torch.lerp(a, b, 0.3), x(3, 4), x(3, 4))
case("lerp_scalar_far", lambda a, b: torch.lerp(a, b, 0.8), x(3, 4), x(3, 4))
case("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=-0.5), x(3, 4), x(3, 1), x(4))
case("addcdiv", lambda a, b, c: torch.addcdiv(a, b, c, value=2), x(3, 4), x(3, 1), positive(4))
case("cumsum", lambda a: a.cumsum(1), x(3, 5, 2))
case("cumsum_last", lambda a: a.cumsum(-1), x(3, 5))
case("cumsum_integers", lambda a: a.cumsum(0), index(3, 4, high=9))
case("cumsum_bool", lambda a: a.cumsum(1), mask(3, 4))
case("cumprod", lambda a: a.cumprod(1), x(3, 5))
case("cumprod_zeros", lambda a: a.cumprod(1), x(2, 4, values=[0.5, 0, 1.5, -2, 0, 3, 0, 1.25]))
case("sort", lambda a: a.sort(1).values, x(3, 7))
case("sort_descending", lambda a: a.sort(0, descending=True).values, x(7, 3))
case("argsort", lambda a: a.argsort(dim=1, stable=True), x(3, 7), smooth=False)
case("argsort_ties", lambda a: a.argsort(dim=1, descending=True, stable=True), index(3, 60, high=9))
case("topk", lambda a: a.topk(3, 1).values, x(3, 7))
case("topk_smallest", lambda a: a.topk(2, 0, largest=False).values, x(5, 3))
case("median", torch.median, x(3, 4))
case("median_dim", lambda a: a.median(1).values, x(3, 6))
case("median_dim_kept", lambda a: a.median(0, keepdim=True).values, x(5, 3))
case("quantile", lambda a: a.quantile(0.3, 1), x(3, 6))
case("quantile_kept", lambda a: a.quantile(1, 0, keepdim=True), x(5, 3))
QUANTILES = torch.tensor([0.3, 0.0, 0.85, 0.5], dtype=torch.float64)
case("quantile_list", lambda a: a.quantile(QUANTILES, 1), x(3, 6))
case("quantile_list_kept", lambda a: a.quantile(QUANTILES, -2, keepdim=True), x(2, 5, 3))
case("quantile_list_line", lambda a: a.quantile(QUANTILES, 0), x(7))
case("flip", lambda a: a.flip([0, 2]), x(3, 2, 4))
case("roll", lambda a: a.roll(2, 1), x(3, 5))
case("roll_back", lambda a: a.roll(-7, 0), x(3, 2))
case("roll_dims", lambda a: a.roll((1, -2, 2), (0, 1, 0)), x(4, 3))
case("roll_flat", lambda a: a.roll(4), x(3, 5))
case("repeat", lambda a: a.repeat(2, 1, 3), x(2, 4))
case("std", torch.std, x(3, 4))
case("std_dims", lambda a: a.std((0, 2), correction=0, keepdim=True), x(3, 2, 4))
case("std_of_equals", lambda a: a.std(1), x(2, 3, values=[1.5, 1.5, 1.5, 1, 2, 4]), smooth=False)
case("logsumexp", lambda a: a.logsumexp(1), x(3, 4))
case("logsumexp_dims", lambda a: a.logsumexp((0, -1), keepdim=True), x(3, 2, 4))
case("norm", lambda a: torch.linalg.vector_norm(a), x(3, 4))
case("norm_dim", lambda a: torch.linalg.vector_norm(a, 2, 1), x(3, 4))
case("norm_at_zero", lambda a: torch.linalg.vector_norm(a, 2, 1), x(2, 2, values=[0, 0, 3, 4]), smooth=False)
case("norm_one", lambda a: torch.linalg.vector_norm(a, 1, 0), x(3, 4))
case("norm_three", lambda a: torch.linalg.vector_norm(a, 3, (0, 2), keepdim=True), x(3, 2, 4))
case("norm_half", lambda a: torch.linalg.vector_norm(a, 1.5, 1), x(2, 3, values=[0.5, -2, 1, 0.25, -0.75, 1.5]))
case("norm_most", lambda a: torch.linalg.vector_norm(a, float("inf"), 1), x(2, 3, values=[1, -2, 2, 0.5, 1, 0]),
     smooth=False)
case("norm_least", lambda a: torch.linalg.vector_norm(a, -float("inf"), 1), x(3, 4), smooth=False)
case("norm_count", lambda a: torch.linalg.vector_norm(a, 0, 1), x(2, 3, values=[1, 0, 2, 0, 0, 1]), smooth=False)
case("cdist", lambda a, b: torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist"), x(2, 3, 4), x(2, 5, 4))
case("cdist_one", lambda a, b: torch.cdist(a, b, p=1), x(3, 4), x(2, 4))
case("bincount", lambda a: torch.bincount(a, minlength=9), index(20, high=7))
case("tril", torch.tril, x(2, 3, 4))
case("tril_above", lambda a: a.tril(1), x(4, 3))
case("triu", lambda a: a.triu(-1), x(4, 3))
case("diagonal", lambda a: a.diagonal(1, 0, 2), x(3, 2, 4))
case("diagonal_below", lambda a: a.diagonal(-1), x(4, 3))
case("outer", torch.outer, x(3), x(4))
case("meshgrid", lambda a, b: torch.mul(*torch.meshgrid(a, b, indexing="ij")), x(3), x(4))
case("meshgrid_xy", lambda a, b: torch.mul(*torch.meshgrid(a, b, indexing="xy")), x(3), x(4))
case("meshgrid_xy_three", lambda a, b, c: torch.add(torch.mul(*torch.meshgrid(a, b, c, indexing="xy")[:2]),
     torch.meshgrid(a, b, c, indexing="xy")[2]), x(2), x(4), x(3))
case("one_hot", lambda i: F.one_hot(i, 5), index(2, 3, high=5))
case("einsum", lambda a, b: torch.einsum("bij,bjk->bik", a, b), x(2, 3, 4), x(2, 4, 2))
case("einsum_implicit", lambda a, b: torch.einsum("ji, jk", a, b), x(3, 2), x(3, 4))
case("einsum_trace", lambda a: torch.einsum("ii", a), x(3, 3))
case("einsum_diagonal", lambda a: torch.einsum("iji->ji", a), x(3, 2, 3))
case("einsum_dots", lambda a, b: torch.einsum("...i,...ij->...j", a, b), x(2, 1, 3), x(4, 3, 2))
case("einsum_three", lambda a, b, c: torch.einsum("i,ij,kj->k", a, b, c), x(3), x(3, 4), x(2, 4))
case("einsum_outer", lambda a, b: torch.einsum("ab,c->cba", a, b), x(2, 3), x(4))
case("einsum_sums", lambda a, b: torch.einsum("ijk,jl->i", a, b), x(2, 3, 4), x(3, 2))
case("linear_relu", lambda a, w, b: F.relu(F.linear(a, w, b)), x(4, 3), x(2, 3), x(2), smooth=False)
case("linear_relu_plain", lambda a, w: F.relu(F.linear(a, w)), x(2, 2, 3), x(2, 3), smooth=False)
case("conv2d_relu", lambda a, w, b: F.relu(F.conv2d(a, w, b, padding=1)), x(2, 2, 4, 5), x(3, 2, 3, 3), x(3),
     smooth=False)
case("conv2d_relu_plain", lambda a, w: F.relu(F.conv2d(a, w, stride=2)), x(2, 2, 5, 5), x(9, 2, 3, 3), smooth=False)


def describe(tensor, at, kind, grad):
    return " ".join(map(str, (kind, tensor.dim(), *tensor.shape, int(grad), at)))


def main(group="ops"):
    rows = []
    for name, function, inputs, smooth in CASES:
        rng = random.Random("yoke " + name)
        tensors = [spec.draw(rng) for spec in inputs]
        described = [describe(t, put(t), spec.kind, spec.grad) for t, spec in zip(tensors, inputs)]
        for tensor, spec in zip(tensors, inputs):
            tensor.requires_grad_(spec.grad)
        out = function(*tensors)
        kind = {torch.float64: REAL, torch.int64: INTEGER, torch.bool: BOOLEAN}[out.dtype]
        result = describe(out, put(out), kind, out.requires_grad)
        gradient, grads = -1, [-1] * len(inputs)
        if out.requires_grad:
            given = torch.tensor([round(rng.uniform(0.25, 1.5), 2) for _ in range(out.numel())],
                                 dtype=torch.float64).reshape(out.shape)
            gradient = put(given)
            out.backward(given)
            for i, tensor in enumerate(tensors):
                if tensor.requires_grad:
                    grads[i] = put(tensor.grad if tensor.grad is not None else torch.zeros_like(tensor))
        rows.append(" ".join(map(str, (name, int(smooth), len(inputs), *described, result, gradient, *grads))))
    golden_file.write(group, "make_%s.py" % group, "inputs, results and gradients of operations in float64",
                      [("values", VALUES), ("cases", rows)])


if __name__ == "__main__":
    main()
