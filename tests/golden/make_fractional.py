#!/usr/bin/env python3
"""Writes fractional.golden: fractional_max_pool2d and 3d of PyTorch in float64: outputs, indices and gradients.

    python3 tests/golden/make_fractional.py

Element i of the input is sin(1.3 i i + 1), of the samples frac(0.37 i + 0.11), of the gradient sin(0.7 i + 2). Rows have
the number of axes, N (0: none), C, the sizes, the kernel, the output's sizes, and a ratio that gives them (0: sizes do).
"""
import torch
from torch.nn import functional

from golden_file import number, write

CASES = [
    (2, 2, 3, 7, 9, 2, 3, 4, 5, 0),
    (2, 1, 2, 6, 5, 3, 2, 4, 4, 0),
    (2, 0, 2, 8, 8, 2, 2, 5, 5, 0.7),
    (2, 2, 1, 5, 6, 3, 2, 1, 1, 0),
    (3, 2, 2, 5, 6, 7, 2, 3, 2, 3, 3, 5, 0),
    (3, 0, 2, 6, 6, 6, 2, 2, 2, 3, 3, 3, 0.5),
]


def waves(seed, *shape, square=False):
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    return torch.sin((1.3 * i * i if square else 0.7 * i) + seed).reshape(shape)


sections = [("cases", [" ".join(number(x) for x in case) for case in CASES])]
for at, case in enumerate(CASES):
    axes, n, c = case[:3]
    sizes, kernel, out, ratio = case[3:3 + axes], case[3 + axes:3 + 2 * axes], case[3 + 2 * axes:3 + 3 * axes], case[-1]
    x = waves(1, *([n] if n else []), c, *sizes, square=True).requires_grad_()
    samples = torch.frac(0.37 * torch.arange(max(n, 1) * c * axes, dtype=torch.float64) + 0.11).reshape(-1, c, axes)
    function = functional.fractional_max_pool2d if axes == 2 else functional.fractional_max_pool3d
    y, indices = function(x, kernel, output_size=None if ratio else out, output_ratio=(ratio,) * axes if ratio else None,
                          return_indices=True, _random_samples=samples)
    assert tuple(y.shape[-axes:]) == out, y.shape
    y.backward(waves(2, *y.shape))
    sections.append((f"case {at}", [v for t in (y, indices, x.grad) for v in t.flatten().tolist()]))
write("fractional", "make_fractional.py", "fractional maxima, indices and gradients", sections)
