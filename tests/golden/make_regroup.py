#!/usr/bin/python3
"""Writes tests/golden/regroup.golden: regrouped dimensions, and the bilinear form, as make_ops.py does.

    python3 tests/golden/make_regroup.py
The row of the same name in tests/ops/regroup_test.c calls yoke's function.
"""
import torch
import torch.nn.functional as F

import make_ops
from make_ops import case, x

make_ops.CASES.clear()

case("unflatten", lambda a: torch.unflatten(a, 1, (2, 3)), x(2, 6, 2))
case("unflatten_open", lambda a: torch.unflatten(a, -1, (-1, 2)), x(2, 6))
case("unflatten_one", lambda a: torch.unflatten(a, 0, (1, 4)), x(4))
case("channel_shuffle", lambda a: F.channel_shuffle(a, 3), x(2, 6, 2, 2))
case("channel_shuffle_lines", lambda a: F.channel_shuffle(a, 2), x(1, 4, 3))
case("channel_shuffle_one", lambda a: F.channel_shuffle(a, 1), x(1, 2, 3))
case("bilinear", F.bilinear, x(2, 3), x(2, 4), x(2, 3, 4), x(2))
case("bilinear_plain", F.bilinear, x(2, 2, 2), x(2, 2, 3), x(4, 2, 3))
case("bilinear_vectors", F.bilinear, x(3), x(2), x(2, 3, 2), x(2))

make_ops.main("regroup")
