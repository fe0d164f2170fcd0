#!/usr/bin/python3
"""Writes tests/golden/conv.golden: convolutions along one to three dimensions, as make_ops.py does.

    python3 tests/golden/make_conv.py
The row of the same name in tests/ops/conv_nd_test.c calls yoke's function.
"""
import torch.nn.functional as F

import make_ops
from make_ops import case, x

make_ops.CASES.clear()

case("conv1d", lambda a, w, b: F.conv1d(a, w, b), x(2, 3, 6), x(4, 3, 3), x(4))
case("conv1d_options", lambda a, w, b: F.conv1d(a, w, b, stride=2, padding=2, dilation=2, groups=2), x(2, 4, 7),
     x(6, 2, 3), x(6))
case("conv1d_unbatched", lambda a, w: F.conv1d(a, w, padding=1), x(3, 5), x(2, 3, 2))
case("conv1d_same", lambda a, w, b: F.conv1d(a, w, b, padding="same"), x(2, 2, 5), x(3, 2, 4), x(3))
case("conv2d_unbatched", lambda a, w, b: F.conv2d(a, w, b, stride=2, padding=1), x(2, 4, 5), x(3, 2, 3, 3), x(3))
case("conv2d_same", lambda a, w, b: F.conv2d(a, w, b, padding="same", dilation=(1, 3)), x(2, 2, 3, 4),
     x(2, 2, 3, 2), x(2))
case("conv2d_same_unbatched", lambda a, w: F.conv2d(a, w, padding="same"), x(2, 3, 4), x(2, 2, 2, 3))
case("conv3d", lambda a, w, b: F.conv3d(a, w, b), x(2, 2, 4, 3, 3), x(3, 2, 2, 2, 2), x(3))
case("conv3d_options", lambda a, w, b: F.conv3d(a, w, b, stride=(2, 1, 2), padding=(1, 0, 2), dilation=(2, 1, 1),
                                                groups=2), x(1, 4, 5, 3, 2), x(4, 2, 2, 2, 3), x(4))
case("conv3d_unbatched", lambda a, w: F.conv3d(a, w, padding=(1, 0, 0)), x(1, 2, 2, 3), x(2, 1, 3, 1, 2))
case("conv3d_same", lambda a, w: F.conv3d(a, w, padding="same"), x(1, 1, 3, 2, 2), x(2, 1, 2, 3, 2))

case("conv_transpose1d", lambda a, w, b: F.conv_transpose1d(a, w, b), x(2, 3, 4), x(3, 2, 3), x(2))
case("conv_transpose1d_options", lambda a, w, b: F.conv_transpose1d(a, w, b, stride=3, padding=1, output_padding=2,
                                                                    groups=2, dilation=2), x(2, 4, 3), x(4, 3, 2), x(6))
case("conv_transpose1d_unbatched", lambda a, w: F.conv_transpose1d(a, w, stride=2), x(2, 3), x(2, 2, 2))
case("conv_transpose2d", lambda a, w, b: F.conv_transpose2d(a, w, b), x(2, 3, 3, 2), x(3, 2, 2, 3), x(2))
case("conv_transpose2d_options", lambda a, w, b: F.conv_transpose2d(a, w, b, stride=(2, 3), padding=(1, 0),
                                                                    output_padding=(1, 2), groups=2, dilation=(1, 2)),
     x(1, 4, 3, 2), x(4, 1, 3, 2), x(2))
# output_padding of a stride and above, which a dilation allows
case("conv_transpose2d_far", lambda a, w, b: F.conv_transpose2d(a, w, b, stride=1, padding=(2, 0),
                                                                output_padding=(2, 1), dilation=3),
     x(1, 2, 3, 2), x(2, 2, 2, 2), x(2))
case("conv_transpose2d_unbatched", lambda a, w: F.conv_transpose2d(a, w, stride=2), x(2, 2, 3), x(2, 2, 2, 2))
case("conv_transpose3d", lambda a, w, b: F.conv_transpose3d(a, w, b), x(1, 2, 3, 2, 2), x(2, 2, 2, 2, 1), x(2))
case("conv_transpose3d_options", lambda a, w, b: F.conv_transpose3d(a, w, b, stride=(2, 1, 2), padding=(1, 0, 1),
                                                                    output_padding=(1, 0, 1), groups=2,
                                                                    dilation=(1, 2, 1)), x(1, 4, 2, 2, 2),
     x(4, 1, 3, 2, 2), x(2))
case("conv_transpose3d_far", lambda a, w: F.conv_transpose3d(a, w, padding=(0, 1, 1), output_padding=(1, 0, 1),
                                                             dilation=(2, 1, 2)), x(1, 1, 2, 2, 2), x(1, 2, 2, 2, 2))
case("conv_transpose3d_unbatched", lambda a, w: F.conv_transpose3d(a, w, stride=(1, 2, 1)), x(2, 2, 2, 1),
     x(2, 1, 2, 2, 2))

make_ops.main("conv")
