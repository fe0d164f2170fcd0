#!/usr/bin/env python3
"""Writes attention.golden: scaled_dot_product_attention of PyTorch in float64, outputs and gradients.

    python3 tests/golden/make_attention.py

Inputs are element i = sin(0.7 i + seed), so that only results are written down; seeds are 1 (query), 2 (key), 3 (value),
4 (additive mask) and 5 (gradient of the output). The bool mask is element i = i % 3 != 0.
"""
import torch

from golden_file import number, write

CASES = [  # batch, heads, L, S, E, D, mask (0 none, 1 bool, 2 additive), causal, scale
    (2, 2, 5, 5, 4, 4, 0, 0, 0.0),
    (1, 3, 4, 7, 5, 3, 0, 0, 0.3),
    (2, 1, 6, 6, 8, 2, 0, 1, 0.0),
    (1, 2, 3, 8, 4, 4, 0, 1, 0.0),
    (1, 2, 5, 7, 4, 6, 1, 0, 0.0),
    (2, 2, 4, 5, 3, 3, 2, 0, 0.0),
]


def wave(seed, *shape):
    count = 1
    for size in shape:
        count *= size
    return torch.sin(0.7 * torch.arange(count, dtype=torch.float64) + seed).reshape(shape)


sections = [("cases", [" ".join(number(x) for x in case) for case in CASES])]
for index, (b, h, l, s, e, d, mask, causal, scale) in enumerate(CASES):
    q, k, v = (wave(1, b, h, l, e).requires_grad_(), wave(2, b, h, s, e).requires_grad_(),
               wave(3, b, h, s, d).requires_grad_())
    given = None
    if mask == 1:
        given = (torch.arange(l * s) % 3 != 0).reshape(l, s)
    elif mask == 2:
        given = wave(4, l, s)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=given, is_causal=bool(causal),
                                                           scale=scale or None)
    out.backward(wave(5, b, h, l, d))
    sections.append((f"case {index}", [x for t in (out, q.grad, k.grad, v.grad) for x in t.flatten().tolist()]))
write("attention", "make_attention.py", "scaled dot product attention, outputs and gradients", sections)
