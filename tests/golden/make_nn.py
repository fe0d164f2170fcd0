#!/usr/bin/env python3
"""Writes nn_golden.h: what PyTorch gives for tests/nn and tests/optim. All numbers are float64.

    python3 tests/golden/make_nn.py > tests/golden/nn_golden.h     (Debian's python3-torch is enough)

Where torchvision can be imported, the names and shapes of its ResNet-18 are checked against those written.
"""
import os
import sys
import warnings

import numpy as np
import torch
from torch import nn
from torch.optim import lr_scheduler as lrs

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "bench"))
from peer_step import LeNet, ResNet18  # noqa: E402

warnings.filterwarnings("ignore")
torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(20)
lines = []


def numbers(name, values):
    """A static array of doubles; the values are spelled so that they are read back exactly."""
    flat = [float(v) for v in np.asarray(values, dtype=np.float64).reshape(-1)]
    lines.append(f"static const double {name}[] = {{")
    for i in range(0, len(flat), 5):
        lines.append("    " + ", ".join(f"{v:.17g}" for v in flat[i:i + 5]) + ",")
    lines.append("};")


def tensor(name, label, t):
    """A golden_tensor initialiser; its numbers become an array of their own."""
    if t is None:
        return "{0}"
    t = t.detach()
    numbers(name, t.to(torch.float64).contiguous().numpy())
    shape = ", ".join(str(s) for s in t.shape) or "1"
    return f'{{"{label}", {t.dim()}, {{{shape}}}, {name}}}'


def draw(*shape):
    return torch.from_numpy(rng.uniform(-1, 1, shape))


class Mlp(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        for i in range(len(sizes) - 1):
            setattr(self, f"fc{i + 1}", nn.Linear(sizes[i], sizes[i + 1]))
        self.count = len(sizes) - 1

    def forward(self, x):
        x = torch.flatten(x, 1)
        for i in range(1, self.count + 1):
            x = getattr(self, f"fc{i}")(x)
            x = torch.relu(x) if i < self.count else x
        return x


def modules():
    cases = {
        "linear": (nn.Linear(5, 3), draw(2, 5)),
        "linear_no_bias": (nn.Linear(4, 2, bias=False), draw(2, 3, 4)),
        "conv2d": (nn.Conv2d(2, 4, 3, stride=2, padding=1), draw(2, 2, 5, 6)),
        "conv2d_odd": (nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(0, 1), dilation=(2, 1), groups=2, bias=False),
                       draw(1, 4, 6, 5)),
        "conv2d_depthwise": (nn.Conv2d(3, 3, 3, padding=1, groups=3), draw(1, 3, 4, 4)),
        "batch_norm2d": (nn.BatchNorm2d(3), draw(2, 3, 2, 3)),
        "batch_norm2d_options": (nn.BatchNorm2d(2, eps=1e-3, momentum=0.3, affine=False), draw(3, 2, 2, 2)),
        "batch_norm2d_eval": (nn.BatchNorm2d(3), draw(2, 3, 2, 2)),
        "batch_norm2d_eval_batch": (nn.BatchNorm2d(2, track_running_stats=False), draw(2, 2, 2, 2)),
        "layer_norm": (nn.LayerNorm([2, 3]), draw(4, 2, 3)),
        "layer_norm_plain": (nn.LayerNorm(5, eps=1e-2, elementwise_affine=False), draw(2, 5)),
        "embedding": (nn.Embedding(6, 3, padding_idx=-4), torch.tensor([[0, 2, 5], [2, 2, 1]])),
        "relu": (nn.ReLU(), draw(2, 4)),
        "gelu": (nn.GELU(), 3 * draw(2, 4)),
        "tanh": (nn.Tanh(), draw(5)),
        "sigmoid": (nn.Sigmoid(), draw(5)),
        "flatten": (nn.Flatten(), draw(2, 2, 3)),
        "max_pool2d": (nn.MaxPool2d(3, 2, padding=1), draw(1, 2, 5, 6)),
        "avg_pool2d": (nn.AvgPool2d(2), draw(1, 2, 4, 5)),
        "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d((2, 3)), draw(1, 2, 5, 4)),
        "mlp": (Mlp([6, 4, 3, 2]), draw(3, 2, 3)),
        "sequential": (nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.ReLU(), nn.MaxPool2d(2),
                                     nn.Flatten(), nn.Linear(8, 3)), draw(2, 1, 6, 6)),
    }
    entries = []
    for name, (net, x) in cases.items():
        with torch.no_grad():
            for key, value in net.state_dict().items():
                if value.dtype == torch.float64:
                    value.copy_(draw(*value.shape))
                if "running_var" in key:
                    value.abs_()
            if name == "embedding":
                net.weight[net.padding_idx] = 0
        net.train(not name.startswith("batch_norm2d_eval"))
        state = {k: v.clone() for k, v in net.state_dict().items()}
        if x.dtype == torch.float64:
            x.requires_grad_()
        out = net(x)
        pull = draw(*out.shape)
        (out * pull).sum().backward()
        params = dict(net.named_parameters())
        parts = [tensor(f"{name}_{part}", part, value)
                 for part, value in (("x", x), ("out", out), ("pull", pull), ("gx", x.grad))]
        before, after, grads = [], [], []
        for i, key in enumerate(state):
            before.append(tensor(f"{name}_state{i}", key, state[key]))
            after.append(tensor(f"{name}_after{i}", key, net.state_dict()[key]))
            grads.append(tensor(f"{name}_grad{i}", key, params[key].grad if key in params else None))
        braces = [", ".join(group) or "{0}" for group in (before, after, grads)]
        entries.append(f'    {{"{name}", {int(net.training)}, {int(x.dtype == torch.int64)},\n     ' +
                       ",\n     ".join(parts) + f",\n     {len(state)},\n     " +
                       ",\n     ".join("{" + b + "}" for b in braces) + "},")
    lines.append("static const golden_module golden_modules[] = {")
    lines.extend(entries)
    lines.append("};")


def names():
    models = {
        "mlp": Mlp([784, 128, 10]),
        "lenet": LeNet(1, 28, 10),
        "lenet_32": LeNet(3, 32, 7),
        "resnet18": ResNet18(1000),
        "resnet18_cifar": ResNet18(10, cifar=True),
    }
    try:
        from torchvision.models import resnet18
    except ImportError:
        pass
    else:
        ours, theirs = ({k: v.shape for k, v in m.state_dict().items()} for m in (models["resnet18"], resnet18()))
        assert list(ours.items()) == list(theirs.items())
    entries = []
    for name, net in models.items():
        lines.append(f"static const golden_name {name}_names[] = {{")
        for key, value in net.state_dict().items():
            shape = ", ".join(str(s) for s in value.shape) or "1"
            dtype = {torch.float64: "YK_F32", torch.int64: "YK_I64"}[value.dtype]
            lines.append(f'    {{"{key}", {value.dim()}, {{{shape}}}, {dtype}}},')
        lines.append("};")
        count = sum(p.numel() for p in net.parameters())
        first = list(net.parameters())[0]
        entries.append(f'    {{"{name}", {len(net.state_dict())}, {name}_names, {count}, '
                       f"{len(list(net.parameters()))}}}, /* {tuple(first.shape)} */")
    lines.append("static const golden_model golden_models[] = {")
    lines.extend(entries)
    lines.append("};")


def representation():
    net = nn.Sequential(
        nn.Conv2d(3, 8, (3, 1), stride=2, padding=(1, 0), dilation=(1, 2), bias=False), nn.BatchNorm2d(8),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d((2, 1))), nn.AdaptiveAvgPool2d((1, 2)),
        nn.Flatten(), nn.Linear(16, 4), nn.LayerNorm((4,)), nn.Dropout(0.25), nn.GELU(), nn.Identity(), nn.Sequential())
    lines.append("static const char golden_repr[] =")
    for line in str(net).split("\n"):
        lines.append(f'    "{line}\\n"')
    lines[-1] += ";"
    lines.append(f'static const char golden_embedding_repr[] = "{nn.Embedding(6, 3, padding_idx=2)}\\n";')
    lines.append(f'static const char golden_grouped_repr[] = "{nn.Conv2d(4, 8, 1, groups=2)}\\n";')


STEPS = 6


def optimizers():
    """Two parameters; the second has no gradient in steps 0 and 3."""
    start = [draw(3, 2), draw(4)]
    grads = [[draw(3, 2), draw(4)] for _ in range(STEPS)]
    numbers("optimizer_start", torch.cat([s.reshape(-1) for s in start]).numpy())
    numbers("optimizer_grads", np.concatenate([g.reshape(-1).numpy() for pair in grads for g in pair]))
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    cases = {
        "sgd": lambda p: sgd(p, lr=0.1),
        "sgd_default": lambda p: sgd(p, lr=1e-3),
        "sgd_decay": lambda p: sgd(p, lr=0.1, weight_decay=0.2),
        "sgd_momentum": lambda p: sgd(p, lr=0.1, momentum=0.9, weight_decay=0.1),
        "sgd_dampening": lambda p: sgd(p, lr=0.1, momentum=0.8, dampening=0.3),
        "sgd_nesterov": lambda p: sgd(p, lr=0.1, momentum=0.9, weight_decay=0.05, nesterov=True),
        "sgd_maximize": lambda p: sgd(p, lr=0.1, momentum=0.9, weight_decay=0.05, maximize=True),
        "adam": lambda p: adam(p),
        "adam_options": lambda p: adam(p, lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.1),
        "adam_amsgrad": lambda p: adam(p, lr=0.1, amsgrad=True),
        "adam_maximize": lambda p: adam(p, lr=0.1, maximize=True, weight_decay=0.1),
        "adamw": lambda p: adamw(p, lr=0.1),
        "adamw_no_decay": lambda p: adamw(p, lr=0.1, weight_decay=0),
        "adamw_amsgrad": lambda p: adamw(p, lr=0.1, weight_decay=0.3, amsgrad=True),
        "groups": lambda p: sgd([{"params": p[:1]}, {"params": p[1:], "lr": 0.01, "momentum": 0.5}], lr=0.1),
    }
    entries = []
    for name, make in cases.items():
        params = [s.clone().requires_grad_() for s in start]
        optimizer = make(params)
        track = []
        for step in range(STEPS):
            params[0].grad = grads[step][0].clone()
            params[1].grad = None if step in (0, 3) else grads[step][1].clone()
            optimizer.step()
            track.extend(p.detach().reshape(-1).numpy().copy() for p in params)
        numbers(f"track_{name}", np.concatenate(track))
        entries.append(f'    {{"{name}", track_{name}}},')
    lines.append(f"enum {{ GOLDEN_STEPS = {STEPS} }};")
    lines.append("static const golden_track golden_tracks[] = {")
    lines.extend(entries)
    lines.append("};")


def schedules():
    cases = {
        "step": lambda o: lrs.StepLR(o, 5, 0.3),
        "multi_step": lambda o: lrs.MultiStepLR(o, [3, 7, 12]),
        "cosine": lambda o: lrs.CosineAnnealingLR(o, 10, 0.01),
        "exponential": lambda o: lrs.ExponentialLR(o, 0.9),
        "warmup": lambda o: lrs.LinearLR(o, total_iters=6),
        "warmup_cosine": lambda o: lrs.SequentialLR(
            o, [lrs.LinearLR(o, start_factor=0.1, total_iters=5), lrs.CosineAnnealingLR(o, 15)], [5]),
        "warmup_step": lambda o: lrs.SequentialLR(
            o, [lrs.LinearLR(o, start_factor=0.25, total_iters=4), lrs.StepLR(o, 6, 0.5)], [4]),
    }
    entries = []
    for name, make in cases.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
        schedule = make(optimizer)
        rates = []
        for _ in range(20):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        numbers(f"rates_{name}", rates)
        entries.append(f'    {{"{name}", rates_{name}}},')
    lines.append("enum { GOLDEN_RATES = 20 };")
    lines.append("static const golden_track golden_schedules[] = {")
    lines.extend(entries)
    lines.append("};")


def clipping():
    grads = [3 * draw(2, 3), 5 * draw(4)]
    numbers("clip_grads", torch.cat([g.reshape(-1) for g in grads]).numpy())
    for name, limit in (("low", 0.7), ("high", 100.0)):
        params = [torch.zeros_like(g, requires_grad=True) for g in grads]
        for p, g in zip(params, grads):
            p.grad = g.clone()
        total = torch.nn.utils.clip_grad_norm_(params, limit)
        numbers(f"clip_{name}", torch.cat([total.reshape(1)] + [p.grad.reshape(-1) for p in params]).numpy())
    params = [torch.zeros_like(g, requires_grad=True) for g in grads]
    for p, g in zip(params, grads):
        p.grad = g.clone()
    torch.nn.utils.clip_grad_value_(params, 0.9)
    numbers("clip_value", torch.cat([p.grad.reshape(-1) for p in params]).numpy())


def main():
    modules()
    names()
    representation()
    optimizers()
    schedules()
    clipping()
    print(f"""/* Written by make_nn.py with PyTorch {torch.__version__.split('+')[0]}. */
#ifndef YOKE_TESTS_NN_GOLDEN_H
#define YOKE_TESTS_NN_GOLDEN_H

#include <stdint.h>

#include <yoke/tensor.h>

/* values in C order; name NULL: there is none */
typedef struct golden_tensor {{
    const char *name;
    int ndim;
    int64_t shape[4];
    const double *values;
}} golden_tensor;

/* A module with the state before, its forward at x, the gradients of sum(out * pull), and the state after. */
typedef struct golden_module {{
    const char *name;
    int training, index_input;
    golden_tensor x, out, pull, gx;
    int n_state;
    golden_tensor state[9], after[9], grads[9];
}} golden_module;

typedef struct golden_name {{
    const char *name;
    int ndim;
    int64_t shape[4];
    yk_dtype dtype;
}} golden_name;

typedef struct golden_model {{
    const char *name;
    int n_names;
    const golden_name *names;
    int64_t numbers;
    int n_parameters;
}} golden_model;

typedef struct golden_track {{
    const char *name;
    const double *values;
}} golden_track;
""")
    print("\n".join(f"{line}" for line in lines))
    print("\n#endif")


main()
