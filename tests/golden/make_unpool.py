#!/usr/bin/python3
"""Writes tests/golden/unpool.golden: positions of maxima, maxima put back, and pools of p-norms, as make_ops.py does.

    python3 tests/golden/make_unpool.py
The row of the same name in tests/ops/unpool_test.c calls yoke's function.
"""
import torch.nn.functional as F

import make_ops
from make_ops import case, index, x

make_ops.CASES.clear()


def where(pool, *options, **more):
    return lambda a: pool(a, *options, **more, return_indices=True)[1]


def most(pool, *options, **more):
    return lambda a: pool(a, *options, **more, return_indices=True)[0]


def back(pool, unpool, *options, **more):
    def call(a):
        out, at = pool(a, *options, **more, return_indices=True)
        return unpool(out, at, *options, **more)
    return call


case("most1d", most(F.max_pool1d, 2), x(2, 2, 5))
case("where1d", where(F.max_pool1d, 3, 2, 1, ceil_mode=True), x(2, 2, 6, grad=False))
case("where1d_unbatched", where(F.max_pool1d, 2), x(2, 6, grad=False))
case("most2d", most(F.max_pool2d, (2, 3), 2), x(1, 2, 4, 5))
case("where2d", where(F.max_pool2d, (2, 3), (1, 2), (1, 0), (2, 1)), x(2, 2, 4, 6, grad=False))
case("where2d_unbatched", where(F.max_pool2d, 2), x(2, 4, 4, grad=False))
case("most3d", most(F.max_pool3d, 2, 1), x(1, 2, 3, 2, 3))
case("where3d", where(F.max_pool3d, (2, 3, 2), (1, 2, 2), (1, 1, 0), (2, 1, 1), True), x(1, 2, 4, 5, 4, grad=False))
case("where3d_unbatched", where(F.max_pool3d, (2, 1, 2)), x(2, 2, 3, 4, grad=False))
case("where3d_ties", where(F.max_pool3d, 2), x(1, 1, 2, 2, 4, grad=False, values=[1, 2, 2, 1, 2, 1, 1, 1, 2, 2, 1, 1, 1, 1, 2,
                                                                                2]))
case("unpool1d", back(F.max_pool1d, F.max_unpool1d, 2), x(2, 2, 6))
case("unpool2d", back(F.max_pool2d, F.max_unpool2d, (2, 1), (2, 2)), x(1, 2, 4, 5))
case("unpool2d_unbatched", back(F.max_pool2d, F.max_unpool2d, 2), x(2, 4, 4))
case("unpool3d", back(F.max_pool3d, F.max_unpool3d, (1, 2, 2)), x(1, 1, 2, 4, 4))
case("unpool2d_size", lambda a, i: F.max_unpool2d(a, i, 2, output_size=(5, 4)), x(1, 1, 2, 2),
     index(1, 1, 2, 2, high=20, values=[19, 2, 11, 0]))
case("unpool1d_padding", lambda a, i: F.max_unpool1d(a, i, 3, 2, 1), x(1, 2, 3), index(1, 2, 3, high=5, values=[
    0, 2, 4, 3, 1, 2]))
case("lp_pool1d", lambda a: F.lp_pool1d(a, 2, 2), x(2, 2, 6))
case("lp_pool1d_ceil", lambda a: F.lp_pool1d(a, 4, 3, 2, ceil_mode=True), x(1, 2, 6, low=0.3))
case("lp_pool2d", lambda a: F.lp_pool2d(a, 2, (2, 3), (1, 2)), x(2, 2, 3, 5))
case("lp_pool2d_sum", lambda a: F.lp_pool2d(a, 1, 2), x(1, 2, 4, 4))
case("lp_pool2d_half", lambda a: F.lp_pool2d(a, 1.5, 2, ceil_mode=True), x(2, 3, 3, low=0.3))
case("lp_pool3d", lambda a: F.lp_pool3d(a, 2, (1, 2, 2)), x(1, 2, 2, 2, 4))

make_ops.main("unpool")
