#!/usr/bin/python3
"""Writes tests/golden/norm.golden: norms of groups, instances, by the root of the mean square and of neighbouring
channels, as make_ops.py does.

    python3 tests/golden/make_norm.py
The row of the same name in tests/ops/group_norm_test.c calls yoke's function.
"""
import torch.nn.functional as F

import make_ops
from make_ops import case, x

make_ops.CASES.clear()

case("group_norm", lambda a, w, b: F.group_norm(a, 2, w, b), x(2, 4, 3), x(4), x(4))
case("group_norm_plain", lambda a: F.group_norm(a, 3, eps=0.1), x(2, 6, 2, 2))
case("group_norm_weight", lambda a, w: F.group_norm(a, 1, w), x(3, 4), x(4))
case("group_norm_bias", lambda a, b: F.group_norm(a, 2, None, b), x(1, 2, 2, 1, 3), x(2))
case("instance_norm", lambda a: F.instance_norm(a), x(2, 3, 4))
case("instance_norm_affine", lambda a, w, b: F.instance_norm(a, weight=w, bias=b, eps=0.01), x(2, 2, 3, 2), x(2), x(2))
case("instance_norm_volume", lambda a, w: F.instance_norm(a, weight=w), x(1, 2, 2, 2, 2), x(2))
case("instance_norm_running", lambda a, w, b, m, v: F.instance_norm(a, m, v, w, b, use_input_stats=False),
     x(2, 3, 4), x(3), x(3), x(3, grad=False), make_ops.Input((3,), 0.3, 2.0, grad=False))
case("rms_norm", lambda a, w: F.rms_norm(a, (4,), w), x(2, 3, 4), x(4))
case("rms_norm_plain", lambda a: F.rms_norm(a, (3, 2), eps=0.1), x(2, 3, 2))
case("local_response_norm", lambda a: F.local_response_norm(a, 3, alpha=0.5, beta=0.6, k=1.5), x(2, 4, 3))
case("local_response_norm_image", lambda a: F.local_response_norm(a, 2, alpha=0.3), x(1, 5, 2, 2))

make_ops.main("norm")
