#!/usr/bin/python3
"""Writes tests/golden/interpolate.golden: tensors in another size, and pixels that become channels, as make_ops.py does.

    python3 tests/golden/make_interpolate.py
The row of the same name in tests/ops/interpolate_test.c calls yoke's function.
"""
import torch.nn.functional as F

import make_ops
from make_ops import case, x

make_ops.CASES.clear()


def to(**options):
    return lambda a: F.interpolate(a, **options)


case("nearest_line", to(size=7), x(2, 2, 4))
case("nearest", to(scale_factor=2), x(1, 2, 2, 3))
case("nearest_down", to(size=(2, 3)), x(1, 2, 5, 4))
case("nearest_volume", to(scale_factor=(1, 1.5, 2)), x(1, 1, 2, 3, 2))
case("nearest_exact", to(size=(3, 2), mode="nearest-exact"), x(1, 2, 5, 5))
case("nearest_exact_factor", to(scale_factor=1.7, mode="nearest-exact"), x(2, 1, 4))
case("linear", to(size=5, mode="linear"), x(2, 2, 3))
case("linear_aligned", to(size=5, mode="linear", align_corners=True), x(2, 2, 3))
case("linear_one", to(size=1, mode="linear", align_corners=True), x(2, 2, 3))
case("linear_factor", to(scale_factor=1.4, mode="linear"), x(1, 2, 4))
case("bilinear", to(scale_factor=2, mode="bilinear"), x(1, 2, 2, 3))
case("bilinear_aligned", to(size=(5, 3), mode="bilinear", align_corners=True), x(2, 1, 3, 4))
case("bilinear_down", to(size=(2, 3), mode="bilinear"), x(1, 2, 5, 4))
case("bilinear_factors", to(scale_factor=(0.7, 1.3), mode="bilinear"), x(1, 1, 4, 3))
case("bicubic", to(scale_factor=2, mode="bicubic"), x(1, 2, 3, 4))
case("bicubic_aligned", to(size=(5, 2), mode="bicubic", align_corners=True), x(1, 2, 3, 4))
case("bicubic_down", to(scale_factor=0.6, mode="bicubic"), x(1, 1, 5, 4))
case("trilinear", to(scale_factor=(2, 1, 1.5), mode="trilinear"), x(1, 2, 2, 2, 2))
case("trilinear_aligned", to(size=(3, 2, 3), mode="trilinear", align_corners=True), x(1, 1, 2, 3, 2))
case("area", to(size=(2, 3), mode="area"), x(1, 2, 5, 4))
case("area_line", to(scale_factor=0.5, mode="area"), x(2, 2, 6))
case("area_volume", to(size=(2, 1, 3), mode="area"), x(1, 2, 3, 2, 3))
case("pixel_shuffle", lambda a: F.pixel_shuffle(a, 2), x(2, 8, 2, 3))
case("pixel_shuffle_one", lambda a: F.pixel_shuffle(a, 3), x(9, 1, 2))
case("pixel_unshuffle", lambda a: F.pixel_unshuffle(a, 2), x(2, 2, 4, 2))
case("pixel_unshuffle_many", lambda a: F.pixel_unshuffle(a, 2), x(2, 1, 1, 2, 4))

make_ops.main("interpolate")
