#!/usr/bin/env python3
"""Writes bags.golden: embedding_bag of PyTorch in float64, outputs and gradients.

    python3 tests/golden/make_bags.py

Weight element i is sin(0.7 i + 1), the factor of sample i is sin(0.7 i + 2), the gradient of the output sin(0.7 i + 3);
element i of the index is (7 i i + 3 i) % V.
"""
import torch
from torch.nn import functional

from golden_file import number, write

MODES = ["mean", "sum", "max"]
CASES = [  # V, D, mode, rows (0: offsets), length of the index, padding (-1: none), factors, last, offsets
    (7, 3, 0, 4, 12, -1, 0, 0, []),
    (7, 3, 1, 4, 12, 2, 0, 0, []),
    (7, 3, 2, 4, 12, 3, 0, 0, []),
    (5, 2, 1, 3, 6, -1, 1, 0, []),
    (5, 2, 1, 3, 9, 4, 1, 0, []),
    (6, 4, 0, 0, 11, -1, 0, 0, [0, 3, 3, 7]),
    (6, 4, 0, 0, 11, 4, 0, 1, [0, 3, 3, 7, 11]),
    (6, 4, 1, 0, 11, 0, 0, 0, [0, 0, 5]),
    (6, 4, 1, 0, 11, -1, 1, 1, [0, 4, 4, 11]),
    (6, 4, 2, 0, 11, -1, 0, 0, [0, 1, 1, 6, 10]),
    (6, 4, 2, 0, 11, 4, 0, 1, [0, 3, 4, 4, 11]),
    (4, 3, 0, 0, 1, -1, 0, 0, [0]),
    (4, 3, 2, 0, 5, -1, 0, 0, [0]),
]


def wave(seed, *shape):
    return torch.sin(0.7 * torch.arange(torch.Size(shape).numel(), dtype=torch.float64) + seed).reshape(shape)


sections = [("cases", [" ".join(number(x) for x in (*case[:-1], len(case[-1]), *case[-1])) for case in CASES])]
for number_of, (v, d, mode, rows, length, padding, factors, last, offsets) in enumerate(CASES):
    weight = wave(1, v, d).requires_grad_()
    i = torch.arange(length)
    index = (7 * i * i + 3 * i) % v
    samples = wave(2, length).requires_grad_() if factors else None
    shape = (rows, length // rows) if rows else (length,)
    out = functional.embedding_bag(index.reshape(shape), weight, None if rows else torch.tensor(offsets), mode=MODES[mode],
                                   per_sample_weights=samples.reshape(shape) if factors else None,
                                   include_last_offset=bool(last), padding_idx=None if padding < 0 else padding)
    out.backward(wave(3, *out.shape))
    values = [out, weight.grad] + ([samples.grad] if factors else [])
    sections.append((f"case {number_of}", [x for t in values for x in t.flatten().tolist()]))
write("bags", "make_bags.py", "embedding_bag, outputs and gradients", sections)
