#!/usr/bin/python3
"""Writes tests/golden/fold.golden: windows of images as columns, and columns added up, as make_ops.py does.

    python3 tests/golden/make_fold.py
The row of the same name in tests/ops/fold_test.c calls yoke's function.
"""
import torch.nn.functional as F

import make_ops
from make_ops import case, x

make_ops.CASES.clear()


def unfold(*options, **more):
    return lambda a: F.unfold(a, *options, **more)


def fold(*options, **more):
    return lambda a: F.fold(a, *options, **more)


case("unfold", unfold(2), x(2, 2, 3, 4))
case("unfold_all", unfold((2, 3), dilation=(2, 1), padding=(1, 2), stride=(2, 3)), x(1, 2, 4, 5))
case("unfold_patches", unfold(2, stride=2), x(1, 3, 4, 4))
case("unfold_gaps", unfold((1, 2), stride=(2, 3)), x(1, 2, 5, 6))
case("unfold_elements", unfold(1), x(1, 2, 2, 3))
case("unfold_rows", unfold((1, 3)), x(1, 1, 1, 5))
case("unfold_unbatched", unfold(2, padding=1), x(2, 2, 2))
case("fold", fold((3, 4), 2), x(2, 8, 6))
case("fold_all", fold((4, 5), (2, 3), dilation=(2, 1), padding=(1, 2), stride=(2, 3)), x(1, 12, 6))
case("fold_patches", fold(4, 2, stride=2), x(1, 12, 4))
case("fold_gaps", fold((5, 6), (1, 2), stride=(2, 3)), x(1, 4, 6))
case("fold_elements", fold((2, 3), 1), x(1, 2, 6))
case("fold_unbatched", fold(2, 2, padding=1), x(8, 9))
case("fold_of_unfold", lambda a: F.fold(F.unfold(a, 3, padding=1), (4, 3), 3, padding=1), x(1, 1, 4, 3))

make_ops.main("fold")
