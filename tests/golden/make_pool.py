#!/usr/bin/python3
"""Writes tests/golden/pool.golden: pools along one to three dimensions, as make_ops.py does.

    python3 tests/golden/make_pool.py
The row of the same name in tests/ops/pool_nd_test.c calls yoke's function.
"""
import torch.nn.functional as F

import make_ops
from make_ops import case, x

make_ops.CASES.clear()

case("max_pool1d", lambda a: F.max_pool1d(a, 2), x(2, 3, 6))
case("max_pool1d_options", lambda a: F.max_pool1d(a, 3, stride=2, padding=1, dilation=2, ceil_mode=True), x(2, 2, 8))
case("max_pool1d_unbatched", lambda a: F.max_pool1d(a, 2, stride=1), x(3, 5))
case("max_pool2d_unbatched", lambda a: F.max_pool2d(a, 2, ceil_mode=True), x(2, 3, 5))
case("max_pool3d", lambda a: F.max_pool3d(a, 2), x(2, 2, 4, 2, 4))
case("max_pool3d_options", lambda a: F.max_pool3d(a, (2, 3, 2), stride=(1, 2, 2), padding=(1, 1, 0),
                                                  dilation=(2, 1, 1), ceil_mode=True), x(1, 2, 3, 4, 5))
case("max_pool3d_unbatched", lambda a: F.max_pool3d(a, (2, 1, 2)), x(2, 2, 2, 2))
case("max_pool3d_ties", lambda a: F.max_pool3d(a, 2), x(1, 1, 2, 2, 4, values=[1, 3, 2, 2, 3, 0, 2, 1] * 2),
     smooth=False)
case("avg_pool1d", lambda a: F.avg_pool1d(a, 2), x(2, 3, 6))
case("avg_pool1d_options", lambda a: F.avg_pool1d(a, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
     x(2, 2, 6))
case("avg_pool1d_unbatched", lambda a: F.avg_pool1d(a, 2, padding=1), x(3, 5))
case("avg_pool2d_unbatched", lambda a: F.avg_pool2d(a, 2, stride=1), x(2, 3, 3))
case("avg_pool3d", lambda a: F.avg_pool3d(a, 2), x(1, 2, 4, 2, 4))
case("avg_pool3d_options", lambda a: F.avg_pool3d(a, (2, 3, 2), stride=(2, 1, 2), padding=(1, 1, 0), ceil_mode=True,
                                                  count_include_pad=False), x(1, 2, 3, 3, 5))
case("avg_pool3d_padded", lambda a: F.avg_pool3d(a, (2, 3, 2), stride=(2, 1, 2), padding=(1, 1, 0), ceil_mode=True),
     x(1, 1, 3, 3, 5))
case("avg_pool3d_divisor", lambda a: F.avg_pool3d(a, 2, padding=1, divisor_override=3), x(1, 1, 2, 3, 2))
case("avg_pool3d_unbatched", lambda a: F.avg_pool3d(a, (2, 1, 2)), x(2, 2, 2, 2))
case("adaptive_avg_pool1d", lambda a: F.adaptive_avg_pool1d(a, 3), x(2, 3, 7))
case("adaptive_avg_pool1d_unbatched", lambda a: F.adaptive_avg_pool1d(a, 2), x(3, 4))
case("adaptive_avg_pool2d_unbatched", lambda a: F.adaptive_avg_pool2d(a, (2, None)), x(2, 3, 3))
case("adaptive_avg_pool3d", lambda a: F.adaptive_avg_pool3d(a, (2, 3, 2)), x(1, 2, 3, 4, 3))
case("adaptive_avg_pool3d_unbatched", lambda a: F.adaptive_avg_pool3d(a, (1, None, 2)), x(2, 2, 3, 4))
case("adaptive_max_pool1d", lambda a: F.adaptive_max_pool1d(a, 3), x(2, 3, 7))
case("adaptive_max_pool1d_even", lambda a: F.adaptive_max_pool1d(a, 3), x(2, 2, 6))
case("adaptive_max_pool2d", lambda a: F.adaptive_max_pool2d(a, (3, 2)), x(2, 2, 4, 5))
case("adaptive_max_pool2d_even", lambda a: F.adaptive_max_pool2d(a, (2, 1)), x(1, 2, 4, 3))
case("adaptive_max_pool2d_more", lambda a: F.adaptive_max_pool2d(a, (5, None)), x(2, 3, 2))
case("adaptive_max_pool2d_ties", lambda a: F.adaptive_max_pool2d(a, 2), x(1, 1, 3, 3, values=[1, 2, 2, 2, 0, 1, 2, 2, 2]),
     smooth=False)
case("adaptive_max_pool3d", lambda a: F.adaptive_max_pool3d(a, (2, 2, 3)), x(1, 2, 3, 2, 4))
case("adaptive_max_pool3d_even", lambda a: F.adaptive_max_pool3d(a, (1, 2, 2)), x(2, 2, 2, 4))

make_ops.main("pool")
