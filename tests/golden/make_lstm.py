#!/usr/bin/env python3
"""Writes lstm.golden: nn.LSTM in float64, by PyTorch, in all its forms.

    python3 tests/golden/make_lstm.py

The loss is sum(output * pull) + sum(h_n * pull_h) + sum(c_n * pull_c); everything that goes in gets a gradient. The
parameters stand one after the other in the order of the state dict, and so do their gradients. A row of [cases] is a
name, the number of layers, then 0 or 1: bias, batch first, bidirectional, a batch, given states; the numbers of case NAME
are in [NAME_x], [NAME_output], ...
"""
import torch
from torch import nn

import golden_file

torch.set_default_dtype(torch.float64)
torch.manual_seed(29)
INPUT, HIDDEN, N, STEPS = 2, 3, 3, 5
# name, given states, a batch, options
CASES = [
    ("plain", False, True, {}),
    ("states", True, True, {}),
    ("layers", True, True, {"num_layers": 2}),
    ("both", True, True, {"num_layers": 2, "bidirectional": True}),
    ("batch_first", True, True, {"bidirectional": True, "batch_first": True}),
    ("no_bias", False, True, {"num_layers": 2, "bias": False}),
    ("unbatched", True, False, {"num_layers": 2, "bidirectional": True}),
    ("one", False, False, {"batch_first": True}),
]
rows, sections = [], []

for name, given, batch, options in CASES:
    m = nn.LSTM(INPUT, HIDDEN, **options)
    first = options.get("batch_first", False)
    shape = ((N, STEPS) if first else (STEPS, N)) if batch else (STEPS,)
    x = torch.randn(*shape, INPUT, requires_grad=True)
    ends = m.num_layers * (2 if m.bidirectional else 1)
    states = [torch.randn(ends, *((N,) if batch else ()), HIDDEN, requires_grad=True) for _ in range(2)]
    out, (h, c) = m(x, tuple(states) if given else None)
    pulls = [torch.randn_like(t) for t in (out, h, c)]
    sum((t * p).sum() for t, p in zip((out, h, c), pulls)).backward()
    flat = torch.cat([p.reshape(-1) for p in m.parameters()])
    grads = torch.cat([p.grad.reshape(-1) for p in m.parameters()])
    fields = [("parameters", flat), ("x", x), ("output", out), ("h_n", h), ("c_n", c), ("pull", pulls[0]),
              ("pull_h", pulls[1]), ("pull_c", pulls[2]), ("gparameters", grads), ("gx", x.grad)]
    if given:
        fields += [("h_0", states[0]), ("c_0", states[1]), ("gh_0", states[0].grad), ("gc_0", states[1].grad)]
    for field, t in fields:
        sections.append((f"{name}_{field}", t.detach().reshape(-1).tolist()))
    rows.append(" ".join([name, str(m.num_layers)] + [
        str(int(v)) for v in (m.bias, first, m.bidirectional, batch, given)]))
golden_file.write("lstm", "make_lstm.py", "LSTMs in all forms", [("cases", rows)] + sections)
