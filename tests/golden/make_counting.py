#!/usr/bin/python3
"""Writes tests/golden/counting.golden: extremes, counts, comparisons with numbers, distinct elements, places and
repetitions, as make_ops.py does.

    python3 tests/golden/make_counting.py
The row of the same name in tests/ops/counting_test.c calls yoke's function.
"""
import torch

import make_ops
from make_ops import case, index, mask, x

make_ops.CASES.clear()
TIES = dict(values=[1, 3, 3, -2, 1, 1, -2, -2, 0.5, 3, -2, 1])

case("amax", lambda a: a.amax((0, 2)), x(2, 3, 4))
case("amax_keepdim", lambda a: a.amax(1, keepdim=True), x(2, 3, 4))
case("amax_all", lambda a: a.amax(), x(2, 3))
case("amax_ties", lambda a: a.amax(1), x(3, 4, **TIES), smooth=False)
case("amin", lambda a: a.amin((0, 2)), x(2, 3, 4))
case("amin_keepdim", lambda a: a.amin((-1, 0), keepdim=True), x(2, 3, 4))
case("amin_ties", lambda a: a.amin((0, 1)), x(3, 4, **TIES), smooth=False)
case("amax_number", lambda a: a.amax(), x())
case("any_dims", lambda a: a.any(1), mask(3, 4))
case("any_dims_several", lambda a: torch.any(a, (0, 2), keepdim=True), index(2, 3, 2, high=2))
case("all_dims", lambda a: a.all(1), mask(3, 2))
case("all_dims_several", lambda a: torch.all(a, (0, 2)), index(2, 3, 2, high=4))
case("count_nonzero", lambda a: a.count_nonzero((0, 1)), index(3, 4, high=2))
case("count_nonzero_dim", lambda a: a.count_nonzero(1), x(3, 4, values=[0, 1, -1, 0, 0, 0, 0, 0, 2, 3, 4, 5], grad=False))
case("count_nonzero_all", lambda a: a.count_nonzero(), mask(3, 4))
case("argmax_all", lambda a: a.argmax(), x(3, 4, **TIES, grad=False))
case("argmax_all_keepdim", lambda a: a.argmax(keepdim=True), x(2, 3, grad=False))
case("argmin_all", lambda a: a.argmin(), x(3, 4, grad=False))
for op in ("eq", "ne", "lt", "le", "gt", "ge"):
    case(op + "_scalar", lambda a, f=getattr(torch, op): f(a, -2), x(3, 4, **TIES, grad=False))
    case(op + "_scalar_whole", lambda a, f=getattr(torch, op): f(a, 2), index(3, 4, high=5))
    case(op + "_scalar_half", lambda a, f=getattr(torch, op): f(a, 1.5), index(3, 4, high=4))
case("logical_xor", torch.logical_xor, mask(3, 4), mask(4))
case("logical_xor_numbers", torch.logical_xor, index(3, 4, high=2), index(3, 1, high=3))
case("rsub_scalar", lambda a: 1 - a, x(3, 4))
case("rsub_scalar_whole", lambda a: 7 - a, index(3, 4, high=20))
case("unique", lambda a: a.unique(), x(3, 4, **TIES, grad=False))
case("unique_whole", lambda a: a.unique(), index(4, 5, high=7))
case("unique_inverse", lambda a: a.unique(return_inverse=True)[1], x(3, 4, **TIES, grad=False))
case("unique_counts", lambda a: a.unique(return_counts=True)[1], index(4, 5, high=7))
case("unique_rows", lambda a: a.unique(dim=0), index(9, 2, high=3))
case("unique_rows_inverse", lambda a: a.unique(dim=0, return_inverse=True)[1], index(9, 2, high=3))
case("unique_columns", lambda a: a.unique(dim=1), index(2, 12, 2, high=2))
case("unique_columns_counts", lambda a: a.unique(dim=1, return_counts=True)[1], index(2, 12, 2, high=2))
case("unique_consecutive", lambda a: a.unique_consecutive(), x(3, 4, **TIES, grad=False))
case("unique_consecutive_inverse", lambda a: a.unique_consecutive(return_inverse=True)[1], x(3, 4, **TIES, grad=False))
case("unique_consecutive_counts", lambda a: a.unique_consecutive(return_counts=True)[1], x(3, 4, **TIES, grad=False))
SORTED = dict(values=[-2, -1, -1, 0.5, 0.5, 0.5, 3, 4], grad=False)
ASKED = dict(values=[-3, -2, -1, 0, 0.5, 2, 3, 3.5, 4, 5], grad=False)
case("searchsorted", lambda s, v: torch.searchsorted(s, v), x(8, **SORTED), x(2, 5, **ASKED))
case("searchsorted_right", lambda s, v: torch.searchsorted(s, v, right=True), x(8, **SORTED), x(5, 2, **ASKED))
case("searchsorted_rows", lambda s, v: torch.searchsorted(s, v), x(2, 4, **SORTED), x(2, 5, **ASKED))
case("searchsorted_whole", lambda s, v: torch.searchsorted(s, v, right=True),
     index(5, high=9, values=[1, 1, 4, 4, 8]), index(3, 4, high=10))
case("searchsorted_one", lambda s, v: torch.searchsorted(s, v), x(1, values=[0.5], grad=False), x(2, 5, **ASKED))
case("bucketize", lambda v, s: torch.bucketize(v, s), x(2, 5, **ASKED), x(8, **SORTED))
case("repeat_interleave", lambda a, n: torch.repeat_interleave(a, n, 0), x(4, 3), index(4, high=4, values=[2, 0, 3, 1]))
case("repeat_interleave_last", lambda a, n: torch.repeat_interleave(a, n, -1), x(2, 3), index(3, high=4, values=[1, 2, 3]))
case("repeat_interleave_all", torch.repeat_interleave, x(2, 2), index(4, high=4, values=[1, 0, 3, 2]))
case("repeat_interleave_same", lambda a: a.repeat_interleave(3, 1), x(2, 3, 2))
case("repeat_interleave_line", lambda a: a.repeat_interleave(2), x(2, 3))
case("repeat_interleave_one", lambda a, n: torch.repeat_interleave(a, n, 1), x(2, 3), index(1, high=4, values=[3]))

make_ops.main("counting")
