#!/usr/bin/python3
"""Writes tests/golden/autocast.golden: the dtype that PyTorch's autocast gives the result of every operation.

Needs PyTorch (2.15 wrote the committed file), not a GPU: what would run there runs on fake tensors, which have dtypes
and devices but no memory. Run from anywhere:
    python3 tests/golden/make_autocast.py
An operation is a name, a function and the shapes of its floating inputs. It is called under autocast to bf16 and to
f16, on the CPU and on a GPU, with inputs of all the dtypes below; what PyTorch refuses is written as such. The row of
the same name in tests/ops/autocast_lists_test.c calls yoke's function. A row is the operation, the device, the lower
dtype, how many input dtypes follow (of the first input, of the others), and the dtype of the result.
"""
import warnings

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import golden_file

warnings.simplefilter("ignore")
NAMES = golden_file.DTYPES
OPS = []


def op(name, function, *shapes):
    OPS.append((name, function, shapes))


M, V = (2, 3), (3,)
for name in ("neg abs exp log sqrt rsqrt reciprocal square sin cos tanh sigmoid relu sign floor ceil round log1p expm1 "
             "erf nan_to_num tan asin acos atan sinh cosh asinh acosh atanh log2 log10").split():
    op(name, getattr(torch, name), M)
op("gelu", F.gelu, M)
op("clamp", lambda x: x.clamp(0.5, 1), M)
op("add_scalar", lambda x: x + 2, M)
op("mul_scalar", lambda x: x * 2, M)
op("div_scalar", lambda x: x / 3, M)
op("pow_scalar", lambda x: x ** 3, M)
op("pow_scalar_half", lambda x: x ** 0.5, M)
for name in "add sub mul div pow maximum minimum atan2".split():
    op(name, getattr(torch, name), M, M)
op("atan2_scalar", torch.atan2, M, ())
op("add_scaled", lambda a, b: torch.add(a, b, alpha=2), M, M)
op("where", lambda a, b: torch.where(a > 0, a, b), M, M)
op("lerp_scalar", lambda a, b: torch.lerp(a, b, 0.25), M, M)
op("lerp", torch.lerp, M, M, M)
op("mse_loss", F.mse_loss, M, M)
op("outer", torch.outer, V, V)
op("cdist", torch.cdist, M, M)
op("addcmul", torch.addcmul, M, M, M)
op("addcmul_scalar", torch.addcmul, M, M, ())
op("addcdiv", torch.addcdiv, M, M, M)
for name in "sum mean var std prod max median".split():
    op(name, getattr(torch, name), M)
op("sum_dims", lambda x: x.sum((0, 1)), M)
op("mean_dims", lambda x: x.mean((0, 1)), M)
op("max_dim", lambda x: x.max(1).values, M)
op("logsumexp", lambda x: x.logsumexp(1), M)
op("norm", lambda x: torch.norm(x, 2, 1), M)
op("softmax", lambda x: F.softmax(x, 1), M)
op("log_softmax", lambda x: F.log_softmax(x, 1), M)
op("cumsum", lambda x: x.cumsum(1), M)
op("cumprod", lambda x: x.cumprod(1), M)
op("sort", lambda x: x.sort(1).values, M)
op("topk", lambda x: x.topk(2, 1).values, M)
op("quantile", lambda x: x.quantile(0.5, 1), M)
op("reshape", lambda x: x.reshape(3, 2), M)
op("clone", torch.clone, M)
op("repeat", lambda x: x.repeat(2, 1), M)
op("flip", lambda x: x.flip(1), M)
op("tril", torch.tril, M)
op("index_select", lambda x: x.index_select(1, torch.zeros(1, dtype=torch.int64, device=x.device)), M)
op("cat", lambda a, b: torch.cat((a, b)), M, M)
op("cat_three", lambda a, b, c: torch.cat((a, b, c)), M, M, M)
op("stack", lambda a, b: torch.stack((a, b)), M, M)
op("matmul", torch.matmul, (2, 3), (3, 4))
op("matmul_batch", torch.matmul, (5, 2, 3), (5, 3, 4))
op("matmul_vector", torch.matmul, (2, 3), (3,))
op("matmul_dot", torch.matmul, (3,), (3,))
op("linear", F.linear, (2, 3), (4, 3), (4,))
op("linear_plain", F.linear, (2, 3), (4, 3))
op("conv2d", lambda x, w, b: F.conv2d(x, w, b), (1, 2, 4, 4), (3, 2, 3, 3), (3,))
op("conv1d", F.conv1d, (1, 2, 4), (3, 2, 3), (3,))
op("conv3d", F.conv3d, (1, 2, 4, 4, 4), (3, 2, 3, 3, 3), (3,))
op("conv_transpose1d", F.conv_transpose1d, (1, 3, 4), (3, 2, 3), (2,))
op("conv_transpose2d", F.conv_transpose2d, (1, 3, 4, 4), (3, 2, 3, 3), (2,))
op("conv_transpose3d", F.conv_transpose3d, (1, 3, 2, 2, 2), (3, 2, 3, 3, 3), (2,))
op("einsum", lambda a, b: torch.einsum("ij,jk->ik", a, b), (2, 3), (3, 4))
op("einsum_sum", lambda a: torch.einsum("ij->i", a), (2, 3))
op("einsum_outer", lambda a, b: torch.einsum("i,j->ij", a, b), (2,), (3,))
A = (1, 2, 4, 8)
op("attention", F.scaled_dot_product_attention, A, A, A)
op("attention_mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), A, A, A, (4, 4))
op("max_pool2d", lambda x: F.max_pool2d(x, 2), (1, 2, 4, 4))
op("avg_pool2d", lambda x: F.avg_pool2d(x, 2), (1, 2, 4, 4))
op("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), (1, 2, 4, 4))
op("dropout", lambda x: F.dropout(x, 0.5, True), M)
op("layer_norm_plain", lambda x: F.layer_norm(x, (3,)), M)
op("layer_norm", lambda x, w, b: F.layer_norm(x, (3,), w, b), M, V, V)
op("group_norm_plain", lambda x: F.group_norm(x, 2), (2, 4, 2))
op("group_norm", lambda x, w, b: F.group_norm(x, 3, w, b), (2, 3, 2), V, V)
op("instance_norm", lambda x: F.instance_norm(x), (2, 3, 2))
op("rms_norm_plain", lambda x: F.rms_norm(x, (3,)), M)
op("rms_norm", lambda x, w: F.rms_norm(x, (3,), w), M, V)
op("local_response_norm", lambda x: F.local_response_norm(x, 2), (2, 3, 2))
op("avg_pool1d", lambda x: F.avg_pool1d(x, 2), (1, 2, 4))
op("max_pool1d", lambda x: F.max_pool1d(x, 2), (1, 2, 4))
op("avg_pool3d", lambda x: F.avg_pool3d(x, 1), (1, 2, 4, 4, 4))
op("max_pool3d", lambda x: F.max_pool3d(x, 1), (1, 2, 4, 4, 4))
op("adaptive_avg_pool1d", lambda x: F.adaptive_avg_pool1d(x, 1), (1, 2, 4))
op("adaptive_avg_pool3d", lambda x: F.adaptive_avg_pool3d(x, 1), (1, 2, 4, 4, 4))
op("adaptive_max_pool1d", lambda x: F.adaptive_max_pool1d(x, 1), (1, 2, 4))
op("adaptive_max_pool2d", lambda x: F.adaptive_max_pool2d(x, 1), (1, 2, 4, 4))
op("adaptive_max_pool3d", lambda x: F.adaptive_max_pool3d(x, 1), (1, 2, 4, 4, 4))
op("batch_norm_plain", lambda x: F.batch_norm(x, None, None, training=True), (2, 3, 2, 2))
op("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (2, 3, 2, 2), V, V)
op("embedding", lambda w: F.embedding(torch.zeros(2, dtype=torch.int64, device=w.device), w), (4, 3))
for reduction in ("mean", "none"):
    op("cross_entropy_" + reduction,
       lambda x, r=reduction: F.cross_entropy(x, torch.zeros(2, dtype=torch.int64, device=x.device), reduction=r), M)
op("lstm_cell", lambda x, h, c, wi, wh, bi, bh: torch.lstm_cell(x, (h, c), wi, wh, bi, bh)[0],
   (2, 3), (2, 3), (2, 3), (12, 3), (12, 3), (12,), (12,))
op("lstm_cell_state", lambda x, h, c, wi, wh, bi, bh: torch.lstm_cell(x, (h, c), wi, wh, bi, bh)[1],
   (2, 3), (2, 3), (2, 3), (12, 3), (12, 3), (12,), (12,))


def choices(device, lower, count):
    """The dtypes of the inputs: all alike, and one that is unlike the others. A fake tensor's float64 goes with others
    where a kernel's would be refused."""
    other = torch.float16 if lower == torch.bfloat16 else torch.bfloat16
    found = [[d] * count for d in (torch.float32, lower, other, torch.float64)]
    if count > 1:
        mixtures = [(torch.float32, lower), (lower, torch.float32), (lower, other)]
        if device == "cpu":
            mixtures.append((torch.float64, lower))
        for first, rest in mixtures:
            found.append([first] + [rest] * (count - 1))
    return found


def result(function, shapes, dtypes, device):
    try:
        inputs = [torch.ones(s, device=device).to(d) for s, d in zip(shapes, dtypes)]
        return NAMES[function(*inputs).dtype]
    except (RuntimeError, NotImplementedError, ValueError, TypeError):
        return "refused"


def rows(device):
    for lower in (torch.bfloat16, torch.float16):
        before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        for name, function, shapes in OPS:
            for dtypes in choices(device, lower, len(shapes)):
                if device == "cuda" and name == "batch_norm" and dtypes[1] not in (dtypes[0], torch.float32):
                    continue  # refused by the kernel, which a fake tensor does not reach
                # What torch.autocast does; that itself leaves "cuda" off where there is none.
                torch.set_autocast_dtype(device, lower)
                torch.set_autocast_enabled(device, True)
                out = result(function, shapes, dtypes, device)
                torch.set_autocast_enabled(device, before[0])
                torch.set_autocast_dtype(device, before[1])
                few = [NAMES[d] for d in dtypes[:2]]
                yield " ".join([name, device, NAMES[lower], str(len(few)), *few, out])


def main():
    torch.manual_seed(0)
    lines = list(rows("cpu"))
    with FakeTensorMode():
        lines += list(rows("cuda"))
    golden_file.write("autocast", "make_autocast.py", "dtypes under autocast", [("cases", lines)])


if __name__ == "__main__":
    main()
