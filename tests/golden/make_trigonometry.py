#!/usr/bin/python3
"""Writes tests/golden/trigonometry.golden: tangents, inverse and hyperbolic functions, logarithms, diagonals, as
make_ops.py does.

    python3 tests/golden/make_trigonometry.py
The row of the same name in tests/ops/trigonometry_test.c calls yoke's function.
"""
import torch

import make_ops
from make_ops import case, positive, x

make_ops.CASES.clear()

case("tan", torch.tan, x(3, 4))
case("tan_wide", torch.tan, x(3, values=[-40.3, 7.1, 1e4]), smooth=False)
case("asin", torch.asin, x(3, 4, low=-0.95, high=0.95))
case("acos", torch.acos, x(3, 4, low=-0.95, high=0.95))
case("atan", torch.atan, x(3, 4, low=-4, high=4))
case("atan_far", torch.atan, x(5, values=[-1e5, -1e-9, 0, 1e-9, 1e5]), smooth=False)
case("sinh", torch.sinh, x(3, 4, low=-4, high=4))
case("sinh_small", torch.sinh, x(5, values=[-1e-9, -1e-4, 0, 1e-4, 1e-9]))
case("cosh", torch.cosh, x(3, 4, low=-4, high=4))
case("asinh", torch.asinh, x(3, 4, low=-4, high=4))
case("asinh_far", torch.asinh, x(7, values=[-3e4, -1e4, -1e-9, 0, 1e-9, 1e4, 3e4]), smooth=False)
case("acosh", torch.acosh, x(3, 4, low=1.1, high=4))
case("atanh", torch.atanh, x(3, 4, low=-0.95, high=0.95))
case("atanh_small", torch.atanh, x(5, values=[-1e-9, -1e-4, 0, 1e-4, 1e-9]))
case("log2", torch.log2, positive(3, 4))
case("log2_powers", torch.log2, x(5, values=[0.125, 1, 2, 8, 1024]))
case("log10", torch.log10, positive(3, 4))
case("log10_powers", torch.log10, x(5, values=[1, 10, 100, 1000, 10000]))
case("diag", torch.diag, x(3))
case("diag_above", lambda a: torch.diag(a, 2), x(2))
case("diag_below", lambda a: torch.diag(a, -1), x(3))
case("diag_of_matrix", torch.diag, x(3, 4))
case("diag_of_matrix_above", lambda a: torch.diag(a, 1), x(3, 4))
case("trace", torch.trace, x(3, 4))
case("trace_tall", torch.trace, x(4, 2))

make_ops.main("trigonometry")
