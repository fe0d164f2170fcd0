#!/usr/bin/env python3
"""Writes attention.golden: scaled_dot_product_attention of PyTorch in float64, outputs and gradients.

    python3 tests/golden/make_attention.py

Inputs are element i = sin(0.7 i + seed), so that only results are written down; seeds are 1 (query), 2 (key), 3 (value),
4 (additive mask) and 5 (gradient of the output). The bool mask is element i = i % 3 != 0.

In "more" the mask wants a gradient, too, and weight i in C order is dropped where word i of the stream is below p: the
four words of block i / 4 are Philox 4x32-10 (Salmon et al., 2011) of the counter (i / 4, 0, call, 1) under the key SEED.
"""
import math

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

SEED = 7
MORE = [  # batch, heads, L, S, E, D, shape of the mask, causal, p
    (2, 2, 5, 6, 4, 3, 1, 0, 0.0),
    (2, 3, 4, 5, 3, 4, 2, 0, 0.0),
    (2, 2, 3, 7, 2, 2, 3, 0, 0.0),
    (1, 2, 4, 3, 3, 2, 4, 0, 0.0),
    (2, 2, 3, 4, 3, 3, 5, 0, 0.0),
    (2, 2, 5, 5, 4, 3, 0, 0, 0.3),
    (1, 3, 6, 7, 3, 2, 0, 1, 0.5),
    (2, 2, 5, 7, 4, 3, 1, 0, 0.4),
    (1, 2, 3, 4, 2, 2, 1, 0, 1.0),
]


def mask_shape(kind, b, h, l, s):
    return [None, (l, s), (h, 1, s), (b, 1, l, 1), (1, 1), (b, h, l, s)][kind]


def philox(index, call):
    counter, key = [index & 0xFFFFFFFF, index >> 32, call, 1], [SEED & 0xFFFFFFFF, SEED >> 32]
    for _ in range(10):
        low, high = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [high >> 32 ^ counter[1] ^ key[0], high & 0xFFFFFFFF, low >> 32 ^ counter[3] ^ key[1],
                   low & 0xFFFFFFFF]
        key = [key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return counter


def factors(p, *shape):
    kept = [(philox(i // 4, 0)[i % 4] >> 8) >= math.ceil(p * 2**24) for i in range(math.prod(shape))]
    return torch.tensor(kept, dtype=torch.float64).reshape(shape) / (1 - p if p < 1 else 1)


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

sections.append(("more", [" ".join(number(x) for x in case) for case in MORE]))
for index, (b, h, l, s, e, d, kind, causal, p) in enumerate(MORE):
    leaves = [wave(1, b, h, l, e), wave(2, b, h, s, e), wave(3, b, h, s, d)]
    if kind:
        leaves.append(wave(4, *mask_shape(kind, b, h, l, s)))
    q, k, v, *mask = [x.requires_grad_() for x in leaves]
    scores = q @ k.transpose(-1, -2) / math.sqrt(e) + (mask[0] if mask else 0)
    if causal:
        scores = scores.masked_fill(torch.ones(l, s).triu(1).bool(), -math.inf)
    out = (torch.softmax(scores, -1) * factors(p, b, h, l, s)) @ v
    if p == 0:
        torch.testing.assert_close(out, torch.nn.functional.scaled_dot_product_attention(q, k, v, *mask))
    out.backward(wave(5, b, h, l, d))
    sections.append((f"more {index}", [x for t in (out, *(y.grad for y in leaves)) for x in t.flatten().tolist()]))
write("attention", "make_attention.py", "scaled dot product attention, outputs and gradients", sections)
