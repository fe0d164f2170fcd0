#!/usr/bin/env python3
"""Writes parity_golden.h: what PyTorch computes for the runs of tests/parity/parity_test.c.

Weights, images and labels are made from Philox by the same rule on both sides (see `fill` here and there), so nothing
large is committed. Per model: the losses of a float64 run, and for the first step how far PyTorch's own float32 loss
and gradients are from its float64 (norm of the difference over the norm), which is what yoke's float32 is held to.
That is a median over several batches: now and then a pre-activation is so near zero that its ReLU falls on different
sides in float32 and float64, in PyTorch as in yoke, and then one batch's gradient says nothing about the arithmetic.

    python3 tests/golden/make_parity.py > tests/golden/parity_golden.h     (newest PyTorch; a minute)
"""
import math
import os
import statistics
import sys

import numpy as np
import torch
from torch import nn

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
sys.path.insert(0, os.path.join(here, "..", "..", "bench"))
import philox  # noqa: E402
from peer_step import LeNet, ResNet18  # noqa: E402

BATCHES = 5  # of which the first step's float32 error is the median
RUNS = {
    "lenet": dict(make=lambda: LeNet(1, 28, 10), batch=4, steps=100, channels=1, size=28, lr=0.001, wd=0.0),
    "resnet18": dict(make=lambda: ResNet18(10), batch=32, steps=20, channels=3, size=32, lr=0.01, wd=1e-5),
}


def fill(net):
    """Parameter p (in order) of fan-in f is uniform in +-sqrt(3 / f), 1-d ones too unless they are a norm's.

    All values are rounded to float32, so that a float32 and a float64 run start from the same numbers."""
    for p, (name, w) in enumerate(net.named_parameters()):
        if "bn" in name or "downsample.1" in name:
            continue  # 1 and 0, as they are
        fan = w[0].numel() if w.dim() > 1 else w.numel()
        values = (2 * philox.uniform(w.numel(), 1, p) - 1) * math.sqrt(3 / fan)
        with torch.no_grad():
            w.copy_(torch.from_numpy(values.astype(np.float32)).reshape(w.shape))


def batch(run, step):
    n, c, s = run["batch"], run["channels"], run["size"]
    x = (4 * philox.uniform(n * c * s * s, 2, step) - 2).astype(np.float32).astype(np.float64)
    y = np.floor(philox.uniform(n, 3, step) * 10).astype(np.int64)
    return torch.from_numpy(x).reshape(n, c, s, s), torch.from_numpy(y)


def losses(run):
    net = run["make"]().double()
    fill(net)
    sgd = torch.optim.SGD(net.parameters(), lr=run["lr"], momentum=0.9, weight_decay=run["wd"])
    out = []
    for step in range(run["steps"]):
        x, y = batch(run, step)
        loss = nn.functional.cross_entropy(net(x), y)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        out.append(loss.item())
    return out


def first_step(run, dtype, which, memory_format=torch.contiguous_format):
    net = run["make"]().to(dtype=dtype, memory_format=memory_format)
    fill(net)
    x, y = batch(run, which)
    x = x.to(dtype).contiguous(memory_format=memory_format)
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    return loss.item(), {name: w.grad.double() for name, w in net.named_parameters()}


def main():
    torch.set_num_threads(1)
    print("/* Made by make_parity.py with PyTorch %s; do not edit. */" % torch.__version__)
    for name, run in RUNS.items():
        short = name.replace("-", "_")
        print("static const double %s_losses[] = {" % short)
        for value in losses(run):
            print("    %.17g," % value)
        print("};")
        pairs = [(first_step(run, torch.float64, k), first_step(run, torch.float32, k)) for k in range(BATCHES)]
        def loss_error(memory_format):
            losses = [first_step(run, torch.float32, k, memory_format)[0] for k in range(BATCHES)]
            return math.sqrt(statistics.mean((x / wide[0] - 1) ** 2 for x, (wide, _) in zip(losses, pairs)))

        print("/* Relative error of PyTorch's float32 loss: root mean square over %d batches, the larger of NCHW and" % BATCHES)
        print(" * channels_last. Of its gradients, below: median over the batches, NCHW. */")
        print("static const double %s_loss_error = %.3g;" %
              (short, max(loss_error(torch.contiguous_format), loss_error(torch.channels_last))))
        print("static const struct {\n    const char *name;\n    double norm; /* of the first batch's gradient in float64 */"
              "\n    double error;\n} %s_gradients[] = {" % short)
        for key, first in pairs[0][0][1].items():
            errors = [((narrow[1][key] - wide[1][key]).norm() / wide[1][key].norm()).item() for wide, narrow in pairs]
            print('    {"%s", %.17g, %.3g},' % (key, first.norm().item(), statistics.median(errors)))
        print("};")


if __name__ == "__main__":
    main()
