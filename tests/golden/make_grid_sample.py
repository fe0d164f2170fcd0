#!/usr/bin/python3
"""Writes tests/golden/grid_sample.golden: tensors read at the places of a grid, as make_ops.py does.

    python3 tests/golden/make_grid_sample.py
The row of the same name in tests/ops/grid_sample_test.c calls yoke's function. Grids reach far outside the input.
"""
import torch.nn.functional as F

import make_ops
from make_ops import case, x

make_ops.CASES.clear()
SMALL = {"low": -0.2, "high": 0.2}  # float32 places are off by 2e-7, which slopes multiply


def sample(mode, padding="zeros", align=False):
    return lambda a, g: F.grid_sample(a, g, mode=mode, padding_mode=padding, align_corners=align)


def affine(size, align=False):
    return lambda t: F.affine_grid(t, size, align_corners=align)


for mode in ("bilinear", "nearest", "bicubic"):
    for padding in ("zeros", "border", "reflection"):
        for align in (False, True):
            case("%s_%s%s" % (mode, padding, "_aligned" if align else ""), sample(mode, padding, align),
                 x(2, 2, 3, 4, **SMALL), x(2, 3, 2, 2, low=-2.693 if mode == "bicubic" else -2.7, high=2.6))
for mode in ("bilinear", "nearest"):
    for padding in ("zeros", "border", "reflection"):
        case("volume_%s_%s" % (mode, padding), sample(mode, padding, padding == "border"), x(2, 2, 2, 3, 4, **SMALL),
             x(2, 1, 2, 2, 3, low=-2.7, high=2.6))
case("one_element", sample("bilinear", "reflection", True), x(1, 2, 1, 1), x(1, 2, 1, 2))
case("one_line", sample("bicubic", "reflection", True), x(1, 1, 1, 4), x(1, 2, 2, 2))
case("corners", sample("bilinear", "zeros", True), x(1, 1, 3, 3),
     x(1, 1, 4, 2, values=[-1, -1, 1, 1, 0, 0, 1, -1]), smooth=False)
case("affine", affine((2, 1, 3, 4)), x(2, 2, 3))
case("affine_aligned", affine((1, 3, 2, 1), True), x(1, 2, 3))
case("affine_volume", affine((2, 1, 2, 3, 2)), x(2, 3, 4))
case("transformed", lambda a, t: F.grid_sample(a, F.affine_grid(t, (1, 2, 3, 4), False), align_corners=False),
     x(1, 2, 4, 3), x(1, 2, 3))

make_ops.main("grid_sample")
