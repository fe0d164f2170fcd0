#!/usr/bin/python3
"""Writes tests/golden/shrink.golden: thresholds, shrinking and smooth steps, as make_ops.py does.

    python3 tests/golden/make_shrink.py
The row of the same name in tests/ops/shrink_test.c calls yoke's function.
"""
import torch.nn.functional as F

import make_ops
from make_ops import case, x

make_ops.CASES.clear()
KINKS = x(7, values=[-1.5, -0.5, -0.25, 0, 0.25, 0.5, 1.5])

case("threshold", lambda a: F.threshold(a, 0.1, -7), x(3, 4))
case("threshold_kinks", lambda a: F.threshold(a, 0.25, 2), KINKS, smooth=False)
case("hardtanh", F.hardtanh, x(3, 4))
case("hardtanh_kinks", lambda a: F.hardtanh(a, -0.5, 0.25), KINKS, smooth=False)
case("hardshrink", F.hardshrink, x(3, 4))
case("hardshrink_kinks", lambda a: F.hardshrink(a, 0.25), KINKS, smooth=False)
case("softshrink", F.softshrink, x(3, 4))
case("softshrink_kinks", lambda a: F.softshrink(a, 0.25), KINKS, smooth=False)
case("tanhshrink", F.tanhshrink, x(3, 4))
case("softsign", F.softsign, x(3, 4))
case("softsign_kinks", F.softsign, KINKS, smooth=False)
case("celu", F.celu, x(3, 4))
case("celu_alpha", lambda a: F.celu(a, 0.7), x(3, 4, low=-3, high=900))
case("celu_kinks", lambda a: F.celu(a, 2), KINKS, smooth=False)
case("rrelu", lambda a: F.rrelu(a, 0.1, 0.4, training=False), x(3, 4))
case("softmin", lambda a: F.softmin(a, 1), x(3, 4))

make_ops.main("shrink")
