#!/usr/bin/env python3
"""Writes lists_golden.h: an LSTM cell over three steps and an attention with a mask, in float64, by PyTorch.

    python3 tests/golden/make_lists.py > tests/golden/lists_golden.h

The loss is sum(outputs * pulls); every input and parameter gets a gradient.
"""
import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.manual_seed(11)
lines = []


def numbers(name, t):
    flat = [f"{v:.17g}" for v in t.detach().reshape(-1).tolist()]
    lines.append(f"static const double {name}[] = {{")
    lines.extend("    " + ", ".join(flat[i:i + 5]) + "," for i in range(0, len(flat), 5))
    lines.append("};")


STEPS, N, IN, HIDDEN = 3, 2, 3, 2
cell = nn.LSTMCell(IN, HIDDEN)
x = torch.randn(STEPS, N, IN, requires_grad=True)
h0, c0 = torch.randn(N, HIDDEN, requires_grad=True), torch.randn(N, HIDDEN, requires_grad=True)
pull_h, pull_c = torch.randn(N, HIDDEN), torch.randn(N, HIDDEN)
h, c = h0, c0
for t in range(STEPS):
    h, c = cell(x[t], (h, c))
((h * pull_h).sum() + (c * pull_c).sum()).backward()
for name, t in [("x", x), ("h0", h0), ("c0", c0), ("pull_h", pull_h), ("pull_c", pull_c), ("h", h), ("c", c),
                ("gx", x.grad), ("gh0", h0.grad), ("gc0", c0.grad)]:
    numbers("lstm_" + name, t)
for name, p in cell.named_parameters():
    numbers("lstm_" + name, p)
    numbers("lstm_g" + name, p.grad)

T, D = 4, 3
q, k, v = (torch.randn(N, T, D, requires_grad=True) for _ in range(3))
mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
scores = q @ k.transpose(1, 2) / D ** 0.5
weights = torch.softmax(scores.masked_fill(~mask[:, None, :], float("-inf")), -1)
out = weights @ v
pull_out, pull_weights = torch.randn(N, T, D), torch.randn(N, T, T)
((out * pull_out).sum() + (weights * pull_weights).sum()).backward()
for name, t in [("q", q), ("k", k), ("v", v), ("out", out), ("weights", weights), ("pull_out", pull_out),
                ("pull_weights", pull_weights), ("gq", q.grad), ("gk", k.grad), ("gv", v.grad)]:
    numbers("attention_" + name, t)

print(f"/* Written by make_lists.py with PyTorch {torch.__version__}. */")
print("#ifndef YOKE_TESTS_LISTS_GOLDEN_H\n#define YOKE_TESTS_LISTS_GOLDEN_H\n")
print("\n".join(lines))
print("\n#endif")
