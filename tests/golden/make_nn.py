#!/usr/bin/env python3
"""Writes nn.golden and optim.golden: what PyTorch gives for tests/nn and tests/optim. All numbers are float64.

    python3 tests/golden/make_nn.py     (Debian's python3-torch is enough)

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
sys.path[:0] = [here, os.path.join(here, "..", "..", "bench")]
from golden_file import DTYPES, number, write  # noqa: E402
from peer_step import LeNet, ResNet18  # noqa: E402

warnings.filterwarnings("ignore")
torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(20)
nn_sections, optim_sections = [], []


def tensor(part, key, t):
    """A row: the part, its name in the state, the sizes, and the numbers."""
    t = t.detach()
    words = [part, key, str(t.dim())] + [str(s) for s in t.shape]
    return " ".join(words + [number(v) for v in t.to(torch.float64).reshape(-1).tolist()])


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
        rows = [tensor(part, "-", value)
                for part, value in (("x", x), ("out", out), ("pull", pull), ("gx", x.grad)) if value is not None]
        rows += [tensor("before", key, value) for key, value in state.items()]
        rows += [tensor("after", key, value) for key, value in net.state_dict().items()]
        rows += [tensor("grad", key, value.grad) for key, value in params.items()]
        entries.append(f"{name} {int(net.training)} {int(x.dtype == torch.int64)}")
        nn_sections.append((f"module {name}", rows))
    nn_sections.insert(0, ("modules", entries))


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
        entries.append(f"{name} {sum(p.numel() for p in net.parameters())} {len(list(net.parameters()))}")
        rows = []
        for key, value in net.state_dict().items():
            dtype = torch.float32 if value.dtype == torch.float64 else value.dtype
            rows.append(" ".join([key, DTYPES[dtype], str(value.dim())] + [str(s) for s in value.shape]))
        nn_sections.append((f"names of {name}", rows))
    nn_sections.append(("models", entries))


def representation():
    net = nn.Sequential(
        nn.Conv2d(3, 8, (3, 1), stride=2, padding=(1, 0), dilation=(1, 2), bias=False), nn.BatchNorm2d(8),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d((2, 1))), nn.AdaptiveAvgPool2d((1, 2)),
        nn.Flatten(), nn.Linear(16, 4), nn.LayerNorm((4,)), nn.Dropout(0.25), nn.GELU(), nn.Identity(), nn.Sequential())
    for name, module in (("sequential", net), ("embedding", nn.Embedding(6, 3, padding_idx=2)),
                         ("grouped", nn.Conv2d(4, 8, 1, groups=2))):
        nn_sections.append((f"text of {name}", str(module).split("\n")))


STEPS = 6


def optimizers():
    """Two parameters; the second has no gradient in steps 0 and 3."""
    start = [draw(3, 2), draw(4)]
    grads = [[draw(3, 2), draw(4)] for _ in range(STEPS)]
    optim_sections.append(("start", torch.cat([s.reshape(-1) for s in start]).tolist()))
    optim_sections.append(("grads", torch.cat([g.reshape(-1) for pair in grads for g in pair]).tolist()))
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
    optim_sections.append(("optimizers", list(cases)))
    for name, make in cases.items():
        params = [s.clone().requires_grad_() for s in start]
        optimizer = make(params)
        track = []
        for step in range(STEPS):
            params[0].grad = grads[step][0].clone()
            params[1].grad = None if step in (0, 3) else grads[step][1].clone()
            optimizer.step()
            track.extend(v for p in params for v in p.detach().reshape(-1).tolist())
        optim_sections.append((f"steps of {name}", track))


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
    optim_sections.append(("schedules", list(cases)))
    for name, make in cases.items():
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
        schedule = make(optimizer)
        rates = []
        for _ in range(20):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        optim_sections.append((f"rates of {name}", rates))


def clipping():
    grads = [3 * draw(2, 3), 5 * draw(4)]
    optim_sections.append(("clip gradients", torch.cat([g.reshape(-1) for g in grads]).tolist()))
    for name, limit in (("low", 0.7), ("high", 100.0)):
        params = [torch.zeros_like(g, requires_grad=True) for g in grads]
        for p, g in zip(params, grads):
            p.grad = g.clone()
        total = torch.nn.utils.clip_grad_norm_(params, limit)
        clipped = torch.cat([total.reshape(1)] + [p.grad.reshape(-1) for p in params])
        optim_sections.append((f"clip {name}", clipped.tolist()))
    params = [torch.zeros_like(g, requires_grad=True) for g in grads]
    for p, g in zip(params, grads):
        p.grad = g.clone()
    torch.nn.utils.clip_grad_value_(params, 0.9)
    optim_sections.append(("clip value", torch.cat([p.grad.reshape(-1) for p in params]).tolist()))


def main():
    modules()
    names()
    representation()
    optimizers()
    schedules()
    clipping()
    write("nn", "make_nn.py", "layers, names and prints of modules", nn_sections)
    write("optim", "make_nn.py", "optimizers, schedules and clipping", optim_sections)


main()
