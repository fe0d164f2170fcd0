#!/usr/bin/python3
"""Writes tests/golden/special.golden: what PyTorch makes of special values, in every dtype, forward and backward.

Needs PyTorch (2.15 wrote the committed file). Run from anywhere:
    python3 tests/golden/make_special.py
A case is a row: an operation's name, its arguments, its inputs, and what comes out: the result and the gradient of every
input that has one, or that PyTorch refuses the call. A tensor is a dtype, its dimensions, and where its numbers begin in
[values]; what is not there is -1. tests/ops/special_test.c calls yoke's function of the same name.
Conversions of NaN and infinity to integers are left out: C and the hardware decide those, not PyTorch.
"""
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import golden_file

INF, NAN = math.inf, math.nan
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]
FLOATS = DTYPES[:4]
DENORMAL = {torch.float32: 1e-40, torch.float64: 1e-310, torch.float16: 3e-6, torch.bfloat16: 1e-39}
LARGEST = {dtype: torch.finfo(dtype).max for dtype in FLOATS}
VALUES, PLACES, CASES = [], {}, []


def put(values):
    values = tuple(float(v) for v in values)
    key = repr(values)
    if key not in PLACES:
        PLACES[key] = len(VALUES)
        VALUES.extend(values)
    return PLACES[key]


def flat(tensor):
    return tensor.detach().to(torch.float64).contiguous().reshape(-1).tolist()


def describe(tensor):
    return " ".join(map(str, (golden_file.DTYPES[tensor.dtype], tensor.dim(), *tensor.shape, put(flat(tensor)))))


def case(name, function, *inputs, args=(), backward=True):
    inputs = [t.detach().clone().requires_grad_(backward and t.dtype.is_floating_point) for t in inputs]
    grads = [-1] * 3
    row = dict(name=name, args=args, inputs=[describe(t) for t in inputs], out="refused", gout=-1, grads=grads)
    CASES.append(row)
    try:
        out = function(*inputs)
    except (RuntimeError, IndexError, ValueError, NotImplementedError, TypeError):
        return
    row["out"] = describe(out)
    if not out.requires_grad:
        return
    pattern = [1.0, -2.0, 0.5, 3.0]
    gout = torch.tensor([pattern[i % 4] for i in range(out.numel())], dtype=out.dtype).reshape(out.shape)
    which = [k for k, t in enumerate(inputs) if t.requires_grad]
    try:
        found = torch.autograd.grad(out, [inputs[k] for k in which], gout, allow_unused=True)
    except NotImplementedError:  # 1 ** True: PyTorch has no b - 1 for it
        return
    row["gout"] = put(flat(gout))
    for k, grad in zip(which, found):
        if grad is not None:
            grads[k] = put(flat(grad))


def specials(dtype):
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype == torch.uint8:
        return torch.tensor([0, 1, 2, 7, 200, 255], dtype=dtype)
    if not dtype.is_floating_point:
        return torch.tensor([0, 1, -1, 2, -3, 7, 100], dtype=dtype)
    small, large = DENORMAL[dtype], LARGEST[dtype]
    return torch.tensor([NAN, INF, -INF, 0.0, -0.0, small, -small, 1.0, -1.0, 0.5, -2.5, 1.5, 3.0, -7.0, large, -large],
                        dtype=torch.float64).to(dtype)


def shapes(dtype):
    """Special values, none at all, and a tensor of no dimensions."""
    return [specials(dtype), torch.empty(0, 3, dtype=dtype), specials(dtype)[1]]


# ---- elementwise, one tensor
UNARY = {name: getattr(torch, name) for name in
         "neg abs exp log sqrt rsqrt reciprocal square sin cos tanh sigmoid relu sign floor ceil round logical_not"
         .split()}
# oneDNN's GELU, which PyTorch takes for f32 and bf16, is far off for large numbers (gelu(inf) is NaN, gelu(-7) is -0):
# float64's stands for both.
UNARY["gelu"] = lambda a: F.gelu(a.double()).to(a.dtype) if a.dtype in (torch.float32, torch.bfloat16) else F.gelu(a)
UNARY["is_finite"] = torch.isfinite
for name, function in UNARY.items():
    for dtype in DTYPES:
        for x in shapes(dtype):
            case(name, function, x)
for dtype in DTYPES:
    for b in (0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 2.5, 1.5, INF, -INF, NAN):
        case("pow_scalar", lambda a, b=b: a ** b, specials(dtype), args=(b,)) if dtype.is_floating_point else None
for dtype in FLOATS:
    for b in (0.0, -0.0, 3.0, INF, NAN, -0.5):
        for name, function in (("add_scalar", lambda a, b=b: a + b), ("sub_scalar", lambda a, b=b: a - b),
                               ("mul_scalar", lambda a, b=b: a * b), ("div_scalar", lambda a, b=b: a / b)):
            case(name, function, specials(dtype), args=(b,))
    for low, high in ((-1.0, 1.0), (-INF, 0.5), (0.0, INF), (2.0, 1.0), (NAN, 1.0), (-1.0, NAN)):
        bounds = None if math.isinf(low) else low, None if math.isinf(high) else high
        case("clamp", lambda a: a.clamp(*bounds), specials(dtype), args=(low, high))
    for target in FLOATS:
        case("cast", lambda a: a.to(target), specials(dtype), args=(DTYPES.index(target),))
    case("cast", lambda a: a.to(torch.bool), specials(dtype), args=(DTYPES.index(torch.bool),))
# ---- elementwise, two tensors
BINARY = {name: getattr(torch, name) for name in
          "add sub mul div pow maximum minimum eq ne lt le gt ge logical_and logical_or".split()}
for name, function in BINARY.items():
    for dtype in DTYPES:
        v = specials(dtype)
        b = v
        if name == "pow" and not dtype.is_floating_point and dtype != torch.uint8:
            b = v[v >= 0]
        if name == "div" and not dtype.is_floating_point:
            v = v.clone()
        case(name, function, v.reshape(-1, 1), b)
        case(name, function, torch.empty(0, dtype=dtype), specials(dtype)[1])
    for a in DTYPES:
        for b in DTYPES:
            if a != b and not (name == "pow" and not a.is_floating_point and not b.is_floating_point):
                one = torch.tensor([1, 0, 1]).to(a), torch.tensor([1, 1, 0]).to(b)
                case(name, function, *one)
for dtype in FLOATS:
    case("where", torch.where, torch.tensor([True, False] * 8), specials(dtype), specials(dtype).flip(0))
# ---- reductions
def groups(dtype):
    if not dtype.is_floating_point:
        return [specials(dtype), torch.empty(0, dtype=dtype), specials(dtype)[1], torch.empty(0, 3, dtype=dtype)]
    rows = [[NAN, 1, 2], [INF, -INF, 0], [INF, 1, INF], [-INF, -INF, -INF], [-0.0, 0.0, -0.0], [1, NAN, NAN],
            [DENORMAL[dtype]] * 3, [LARGEST[dtype]] * 3, [2, 2, 1], [0, 3, 0]]
    tensors = [torch.tensor(row, dtype=torch.float64).to(dtype) for row in rows]
    return tensors + [torch.empty(0, dtype=dtype), torch.tensor(2.5, dtype=dtype), torch.tensor(NAN, dtype=dtype),
                      torch.empty(0, 3, dtype=dtype), torch.empty(3, 0, dtype=dtype)]


def is_largest(x):
    """Sums of the largest numbers overflow by the type they are made in; yoke's is wider."""
    return x.dtype.is_floating_point and x.numel() == 3 and bool((x == LARGEST[x.dtype]).all())


for dtype in DTYPES:
    for x in groups(dtype):
        for name in ("max", "min", "any", "all", "sum", "mean")[:4 if is_largest(x) else None]:
            case(name, getattr(torch, name), x)
        case("prod", torch.prod, x, backward=False)
        if is_largest(x):
            continue
        for name in ("sum", "mean"):
            case(name + "_dims", lambda a: getattr(torch, name)(a, -1), x, args=(-1,))
        if x.dim() and x.shape[-1]:
            case("max_dim", lambda a: a.max(-1)[0], x, args=(-1,))
            case("min_dim", lambda a: a.min(-1)[0], x, args=(-1,))
            case("argmax", lambda a: a.argmax(-1), x, args=(-1,))
            case("argmin", lambda a: a.argmin(-1), x, args=(-1,))
        if dtype.is_floating_point:
            if x.dim() or not x.isnan():  # PyTorch's gradient is infinite then, though NaN of any other number
                case("var", torch.var, x)
            case("var_dims", lambda a: a.var(-1, correction=0), x, args=(-1, 0))
            case("softmax", lambda a: a.softmax(-1), x, args=(-1,))
            case("log_softmax", lambda a: a.log_softmax(-1), x, args=(-1,))
# ---- pooling: arguments are kernel, stride, padding, dilation (2 each), ceil_mode, count_exclude_pad, divisor
def pool(x, kernel, stride, padding, dilation=(1, 1), ceil=False, exclude=False, divisor=0):
    args = (*kernel, *stride, *padding, *dilation, int(ceil), int(exclude), divisor)
    case("max_pool2d", lambda a: F.max_pool2d(a, kernel, stride, padding, dilation, ceil), x, args=args)
    if dilation == (1, 1):
        case("avg_pool2d", lambda a: F.avg_pool2d(a, kernel, stride, padding, ceil, not exclude, divisor or None), x,
             args=args)


for dtype in FLOATS:
    x = torch.arange(16).reshape(2, 1, 1, 8).to(dtype)
    odd = torch.tensor([NAN, 1, INF, -INF, 2, -INF, -INF, 0, 3, -1, NAN, NAN], dtype=torch.float64).to(dtype)
    for ceil in (False, True):
        pool(x.reshape(2, 1, 2, 4), (3, 4), (3, 4), (0, 1), ceil=ceil)
        pool(x, (3, 4), (2, 2), (0, 1), ceil=ceil)
        pool(x, (2, 3), (2, 2), (1, 1), ceil=ceil)
        pool(x, (2, 2), (2, 3), (0, 0), ceil=ceil)
        pool(x, (1, 9), (1, 1), (0, 0), ceil=ceil)
        pool(x, (1, 9), (1, 4), (0, 0), ceil=ceil)
        pool(x, (1, 12), (1, 4), (0, 0), ceil=ceil)
        pool(x, (1, 13), (1, 4), (0, 0), ceil=ceil)
        pool(x, (1, 3), (1, 3), (0, 1), ceil=ceil, exclude=True)
        pool(x, (1, 5), (1, 3), (0, 2), ceil=ceil, divisor=3)
        pool(x, (1, 3), (1, 2), (0, 1), (1, 3), ceil=ceil)
        pool(x, (1, 5), (1, 3), (0, 0), (1, 2), ceil=ceil)
        pool(odd.reshape(1, 1, 3, 4), (2, 2), (1, 1), (1, 1), ceil=ceil)
        pool(odd.reshape(1, 1, 3, 4), (2, 3), (2, 3), (0, 0), ceil=ceil)
    case("adaptive_avg_pool2d", lambda a: F.adaptive_avg_pool2d(a, (2, 3)), odd.reshape(1, 1, 3, 4), args=(2, 3))
    case("adaptive_avg_pool2d", lambda a: F.adaptive_avg_pool2d(a, (5, 1)), x, args=(5, 1))
# ---- products, normalisation, losses
for dtype in FLOATS:
    a = torch.tensor([[NAN, 1], [INF, 0], [0, 2]], dtype=dtype)
    b = torch.tensor([[1, 0, 3], [0, 2, -INF]], dtype=dtype)
    case("matmul", torch.matmul, a, b)
    case("matmul", torch.matmul, torch.empty(2, 0, dtype=dtype), torch.empty(0, 3, dtype=dtype))
    case("matmul", torch.matmul, torch.empty(0, 2, dtype=dtype), b)
    case("matmul", torch.matmul, torch.empty(0, dtype=dtype), torch.empty(0, dtype=dtype))
    case("matmul", torch.matmul, torch.tensor(2.0, dtype=dtype), torch.tensor(2.0, dtype=dtype))
    case("linear", F.linear, torch.empty(0, 2, dtype=dtype), a)
    case("linear", F.linear, torch.empty(4, 0, dtype=dtype), torch.empty(3, 0, dtype=dtype),
         torch.tensor([1, NAN, INF], dtype=dtype))
    for x in ([[1, 2, 4]], [[NAN, 1, 2]], [[INF, 1, 2]], [[3, 3, 3]]):
        case("layer_norm", lambda t: F.layer_norm(t, (3,)), torch.tensor(x, dtype=dtype), args=(3,))
    case("layer_norm", lambda t: F.layer_norm(t, (3,)), torch.empty(0, 3, dtype=dtype), args=(3,))
    target = torch.tensor([0, 2, 1])
    for rows in ([[1, 2, 3], [NAN, 0, 1], [0, 0, 0]], [[INF, 1, 0], [-INF, 0, 1], [1, -INF, 1]],
                 [[1, 2, 3], [-INF, -INF, -INF], [0, 5, 0]]):
        case("cross_entropy", F.cross_entropy, torch.tensor(rows, dtype=dtype), target)
    case("cross_entropy", F.cross_entropy, torch.tensor([[1, 2, 3], [3, 2, 1]], dtype=dtype), torch.tensor([-100, -100]))
    case("cross_entropy", F.cross_entropy, torch.empty(0, 3, dtype=dtype), torch.empty(0, dtype=torch.int64))
    for x, y in (([NAN, 1], [0, 1]), ([INF, 1], [INF, -INF]), ([], [])):
        case("mse_loss", F.mse_loss, torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype))
    case("embedding", lambda i, w: F.embedding(i, w), torch.tensor([[1, 0], [1, 1]]), a)
    case("embedding", lambda i, w: F.embedding(i, w), torch.empty(0, dtype=torch.int64), a)
# ---- conversions between integers and floats, of what both have: NaN and infinity are left out (see above)
for dtype in FLOATS:
    finite = specials(dtype)[3:14]
    for target in (torch.int64, torch.int32):
        case("cast", lambda a: a.to(target), finite, args=(DTYPES.index(target),))
        case("cast", lambda a: a.to(target), torch.empty(0, 3, dtype=dtype), args=(DTYPES.index(target),))
    case("cast", lambda a: a.to(torch.uint8), finite[finite >= 0], args=(DTYPES.index(torch.uint8),))
    for source in DTYPES[4:]:
        whole = {torch.int64: [0, 1, -1, 2049, 70000, 16777217, -16777219, 2 ** 53 + 1, 2 ** 63 - 1, -2 ** 63],
                 torch.int32: [0, -1, 2051, 65519, 65520, 16777219, 2 ** 31 - 1, -2 ** 31], torch.uint8: [0, 1, 255],
                 torch.bool: [0, 1]}[source]
        case("cast", lambda a: a.to(dtype), torch.tensor(whole).to(source), args=(DTYPES.index(dtype),))
# ---- convolutions: arguments are stride, padding, dilation (2 each), groups
def conv(x, weight, bias, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1, backward=True):
    case("conv2d", lambda a, w, b: F.conv2d(a, w, b, stride, padding, dilation, groups), x, weight, bias,
         args=(*stride, *padding, *dilation, groups), backward=backward)


for dtype in FLOATS:
    def few(*shape, dtype=dtype):
        count = math.prod(shape)
        return (torch.arange(count) % 7 - 3).to(dtype).reshape(shape)

    def odd_at(tensor, place, value):
        tensor = tensor.clone()
        tensor.reshape(-1)[place] = value
        return tensor

    bias = torch.tensor([0.5, -1, 2], dtype=dtype)
    for value in (NAN, INF, -INF, DENORMAL[dtype], -0.0):
        for place in (0, 7, 30):
            conv(odd_at(few(1, 2, 4, 4), place, value), few(3, 2, 3, 3), bias)
            conv(odd_at(few(1, 2, 4, 4), place, value), few(3, 2, 3, 3), bias, padding=(1, 1))
        # Whether a weight that is no number meets the zeros of a padding (in backward, of the gradient's) differs between
        # PyTorch's dtypes.
        finite = math.isfinite(value)
        if value != DENORMAL[dtype]:  # oneDNN makes a sum that is a denormal 0
            conv(few(1, 2, 4, 4), odd_at(few(3, 2, 3, 3), 20, value), bias, padding=(int(finite),) * 2, backward=finite)
        conv(few(1, 2, 4, 4), odd_at(few(3, 2, 1, 1), 2, value), bias)
        if value != DENORMAL[dtype]:
            conv(few(1, 2, 5, 5), few(3, 2, 3, 3), odd_at(bias, 1, value), stride=(2, 1), padding=(1, 0))
        conv(odd_at(few(1, 3, 4, 4), 5, value), few(3, 1, 3, 3), bias, padding=(1, 1), groups=3)
        conv(odd_at(few(1, 2, 5, 5), 12, value), few(3, 2, 2, 2), bias, dilation=(2, 2))
    conv(few(0, 2, 4, 4), few(3, 2, 3, 3), bias)
    conv(few(1, 2, 2, 2), few(3, 2, 3, 3), bias)
    # ---- normalisation: batch_norm as in training, and with given statistics; layer_norm with weight and bias
    one, two = torch.tensor([1.5, -0.5, 0], dtype=dtype), torch.tensor([0, 1, -2], dtype=dtype)
    for value in (NAN, INF, -INF, 0.0):
        x = odd_at(few(2, 3, 2, 2), 6, value)
        case("batch_norm", lambda a, w, b: F.batch_norm(a, None, None, w, b, True), x, one, two)
        if not math.isinf(value):  # PyTorch's x * (weight / std) + (bias - mean * weight / std) is NaN or not, by signs
            case("batch_norm", lambda a, w, b: F.batch_norm(a, None, None, w, b, True), few(2, 3, 2, 2),
                 odd_at(one, 1, value), two)
        case("batch_norm", lambda a, w, b: F.batch_norm(a, None, None, w, b, True), few(2, 3, 2, 2), one,
             odd_at(two, 2, value))
        case("layer_norm_affine", lambda a, w, b: F.layer_norm(a, (3,), w, b), odd_at(few(2, 3), 1, value),
             odd_at(one, 2, value), two, args=(3,))
        # A mean and a variance per channel; PyTorch keeps them in f32 for 16 bits, and so does yoke.
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        mean, var = torch.tensor([1, 0, value], dtype=wide), torch.tensor([1, abs(value), 0.25], dtype=wide)
        if dtype in (torch.float32, torch.float64):
            case("batch_norm_given", lambda a, m, v: F.batch_norm(a, m.detach(), v.detach()), x, mean, var)
    case("batch_norm", lambda a, w, b: F.batch_norm(a, None, None, w, b, True), torch.full((2, 3), 4.0, dtype=dtype), one,
         two)
    case("batch_norm", lambda a, w, b: F.batch_norm(a, None, None, w, b, True), few(1, 3), one, two)
    # ---- dropout, in place
    for p in (0.0, 1.0):
        for training in (0, 1):
            for x in shapes(dtype):
                case("dropout", lambda a: F.dropout(a, p, bool(training)), x, args=(p, training))
    v = specials(dtype)
    case("relu_", lambda a: a.clone().relu_(), v)
    for other in (v.flip(0), v[:1], v[2:3]):
        case("mul_", lambda a, b: a.clone().mul_(b), v, other)
        for alpha in (1.0, -0.5, INF):
            case("add_", lambda a, b: a.clone().add_(b, alpha=alpha), v, other, args=(alpha,))
    for b in (0.0, -0.0, 2.0, INF, NAN):
        case("mul_scalar_", lambda a: a.clone().mul_(b), v, args=(b,))
    case("mul_", lambda a, b: a.clone().mul_(b), torch.empty(0, 3, dtype=dtype), v[:1])
    for other in DTYPES:
        finite = torch.tensor([1, 0, 1, 1]).to(other)
        case("copy_", lambda a, b: a.clone().copy_(b), v[8:12], finite)
    case("copy_", lambda a, b: a.clone().copy_(b), v, v.flip(0))
    case("copy_", lambda a, b: a.clone().copy_(b), v, v[:1])
    for b in (0.0, -0.0, NAN, INF):
        case("fill_", lambda a: a.clone().fill_(b), v, args=(b,))
# ---- shapes: what is moved stays as it is
for dtype in DTYPES:
    for x in (specials(dtype).repeat(3)[:6].reshape(2, 3), torch.empty(0, 3, dtype=dtype),
              torch.empty(2, 0, dtype=dtype)):
        n = x.shape[-1]
        case("reshape", lambda a: a.reshape(-1), x, args=(x.numel(),))
        case("flatten", lambda a: a.flatten(0, 1), x)
        case("transpose", lambda a: a.transpose(0, 1), x)
        case("unsqueeze", lambda a: a.unsqueeze(1), x, args=(1,))
        case("squeeze", lambda a: a.squeeze(0), x[:1], args=(0,))
        case("expand", lambda a: a.expand(4, *a.shape), x, args=(4, *x.shape))
        case("clone", torch.clone, x)
        case("contiguous", lambda a: a.transpose(0, 1).contiguous(), x)
        for start, end, step in ((0, 2, 1), (1, 3, 1), (-2, -1, 1), (0, 3, 2), (2, 1, 1), (5, 9, 1), (0, 0, 1)):
            case("slice", lambda a: a[:, start:end:step], x, args=(1, start, end, step))
        for index in (0, 1, -1, 2, -3):
            case("select", lambda a: a.select(0, index), x, args=(0, index))
        for start, length in ((0, n), (n, 0), (0, 0), (1, n), (-1, 1)):
            case("narrow", lambda a: a.narrow(1, start, length), x, args=(1, start, length))
        for dim in (0, 1, -1, 2):
            case("cat", lambda a, b: torch.cat((a, b), dim), x, x.flip(0), args=(dim,))
            case("stack", lambda a, b: torch.stack((a, b), dim), x, x.flip(0), args=(dim,))
        case("cat", lambda a, b: torch.cat((a, b), 0), x, torch.empty(0, n, dtype=dtype), args=(0,))
        case("cat", lambda a, b: torch.cat((a, b), 0), x, torch.ones(1, n + 1, dtype=dtype), args=(0,))
        case("stack", lambda a, b: torch.stack((a, b), 0), x, torch.ones(1, n + 1, dtype=dtype), args=(0,))
# ---- attention: whether it is causal
for dtype in FLOATS:
    for value in (NAN, INF, -INF, 0.0):
        for causal in (False, True):
            q = torch.tensor([[1, 0.5], [-1, 2], [0, 0]], dtype=dtype)
            k, w = q.flip(0) / 2, q + 1
            for which in range(3):
                tensors = [q.clone(), k.clone(), w.clone()]
                tensors[which][1, 0] = value
                # PyTorch's other kernel takes a row of NaN for one that is masked, and this one lets NaN through a mask.
                if causal and not math.isfinite(value):
                    continue
                with sdpa_kernel(SDPBackend.MATH):
                    case("attention", lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=causal),
                         *(t.reshape(1, 3, 2) for t in tensors), args=(causal,))
    for l, m in ((0, 3), (3, 0)):
        case("attention", lambda a, b, c: F.scaled_dot_product_attention(a, b, c), torch.ones(1, l, 2, dtype=dtype),
             torch.ones(1, m, 2, dtype=dtype), torch.ones(1, m, 2, dtype=dtype), args=(0,))


def row(c):
    args = [golden_file.number(a) for a in c["args"]]
    return " ".join(map(str, (c["name"], len(args), *args, len(c["inputs"]), *c["inputs"], c["out"], c["gout"], *c["grads"])))


golden_file.write("special", "make_special.py", "special values through PyTorch's operations",
                  [("values", VALUES), ("cases", [row(c) for c in CASES])])
