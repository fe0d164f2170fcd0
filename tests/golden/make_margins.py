#!/usr/bin/env python3
"""Writes margins.golden: multi_margin_loss and multilabel_margin_loss of PyTorch in float64, with gradients.

    python3 tests/golden/make_margins.py

Element i of the input is sin(0.7 i + 1), of the weight 0.5 + cos(i)^2, of the gradient sin(0.7 i + 2). "multi" has rows of
N (0: one row without that dimension), C, p, margin, weighted, reduction, targets; "label" N, C, reduction, targets.
"""
import torch
from torch.nn import functional

from golden_file import number, write

REDUCTIONS = ["mean", "sum", "none"]
MULTI = [
    (3, 4, 1, 1.0, 0, 0, [0, 3, 1]),
    (3, 4, 2, 0.7, 1, 0, [2, 3, 1]),
    (4, 3, 1, 1.3, 1, 1, [2, 0, 1, 1]),
    (4, 3, 2, 1.0, 0, 2, [2, 0, 1, 1]),
    (0, 5, 1, 1.0, 1, 0, [3]),
    (0, 5, 2, 1.0, 0, 2, [4]),
    (2, 1, 1, 1.0, 0, 0, [0, 0]),
]
LABEL = [
    (2, 4, 0, [3, 0, -1, 1, 2, -1, -1, -1]),
    (3, 3, 1, [0, 1, 2, -1, 0, 1, 2, 2, -1]),
    (3, 5, 2, [4, 2, 0, -1, 3, 1, 1, -1, -1, -1, 0, 1, 2, 3, -1]),
    (0, 4, 0, [1, 3, -1, 0]),
    (0, 4, 2, [0, -1, -1, -1]),
]


def wave(seed, *shape):
    return torch.sin(0.7 * torch.arange(torch.Size(shape).numel(), dtype=torch.float64) + seed).reshape(shape)


def results(x, loss):
    loss.backward(wave(2, *loss.shape))
    return [value for t in (loss, x.grad) for value in t.flatten().tolist()]


def text(case):
    return " ".join(number(x) for x in (*case[:-1], *case[-1]))


sections = [("multi", [text(case) for case in MULTI]), ("label", [text(case) for case in LABEL])]
for i, (n, c, p, margin, weighted, reduction, targets) in enumerate(MULTI):
    x = wave(1, *((n, c) if n else (c,))).requires_grad_()
    weight = 0.5 + torch.cos(torch.arange(c, dtype=torch.float64)) ** 2 if weighted else None
    target = torch.tensor(targets if n else targets[0])
    loss = functional.multi_margin_loss(x, target, p, margin, weight, reduction=REDUCTIONS[reduction])
    sections.append((f"multi {i}", results(x, loss)))
for i, (n, c, reduction, targets) in enumerate(LABEL):
    x = wave(1, *((n, c) if n else (c,))).requires_grad_()
    loss = functional.multilabel_margin_loss(x, torch.tensor(targets).reshape(x.shape), reduction=REDUCTIONS[reduction])
    sections.append((f"label {i}", results(x, loss)))
write("margins", "make_margins.py", "losses of classes by margins", sections)
