#!/usr/bin/python3
"""Writes tests/golden/replacing.golden: functions in place, of a copy of their input, as make_ops.py does.

    python3 tests/golden/make_replacing.py
The row of the same name in tests/ops/replacing_test.c calls yoke's function.
"""
import torch

import make_ops
from make_ops import case, index, positive, x

make_ops.CASES.clear()

for name in "neg exp square tanh sigmoid".split():
    case(name, lambda a, f=name: getattr(a.clone(), f + "_")(), x(3, 4))
for name in "log sqrt rsqrt reciprocal".split():
    case(name, lambda a, f=name: getattr(a.clone(), f + "_")(), positive(3, 4))
for name in "abs floor ceil round".split():
    case(name, lambda a, f=name: getattr(a.clone(), f + "_")(), x(3, 4), smooth=name == "abs")
case("sub", lambda a, b: a.clone().sub_(b), x(3, 4), x(3, 4))
case("sub_scaled", lambda a, b: a.clone().sub_(b, alpha=-0.75), x(3, 4), x(4))
case("sub_whole", lambda a, b: a.clone().sub_(b, alpha=3), index(3, 4, high=9), index(3, 4, high=9))
case("sub_itself", lambda a: (lambda c: c.sub_(c))(a.clone()), x(3, 4))
case("div", lambda a, b: a.clone().div_(b), x(3, 4), positive(3, 4))
case("div_broadcast", lambda a, b: a.clone().div_(b), x(3, 4), positive(3, 1))
case("add_scalar", lambda a: a.clone().add_(0.7), x(3, 4))
case("add_scalar_whole", lambda a: a.clone().add_(7), index(3, 4, high=9))
case("sub_scalar", lambda a: a.clone().sub_(0.7), x(3, 4))
case("div_scalar", lambda a: a.clone().div_(3), x(3, 4))
case("pow_scalar", lambda a: a.clone().pow_(1.7), positive(3, 4))
case("pow_scalar_whole", lambda a: a.clone().pow_(3), index(3, 4, high=5))
case("clamp", lambda a: a.clone().clamp_(-0.5, 0.75), x(3, 4))
case("clamp_whole", lambda a: a.clone().clamp_(2, 4), index(3, 4, high=9))
case("addcmul", lambda a, b, c: a.clone().addcmul_(b, c, value=-0.3), x(3, 4), x(3, 4), x(4))
case("addcmul_whole", lambda a, b, c: a.clone().addcmul_(b, c, value=2), index(3, 4, high=9), index(3, 4, high=9),
     index(3, 4, high=9))
case("addcdiv", lambda a, b, c: a.clone().addcdiv_(b, c, value=-0.3), x(3, 4), x(3, 1), positive(3, 4))
case("lerp", lambda a, b, w: a.clone().lerp_(b, w), x(3, 4), x(3, 4), x(3, 4, low=0, high=0.4))
case("lerp_scalar", lambda a, b: a.clone().lerp_(b, 0.1), x(3, 4), x(3, 4))
case("lerp_scalar_far", lambda a, b: a.clone().lerp_(b, 0.8), x(3, 4), x(3, 4))
# Through a view, and what was made of the old value before.
case("of_a_view", lambda a: (lambda c: (c[1].neg_(), c[:, 2].div_(3), c)[2])(a.clone()), positive(3, 4))
case("old_value_used", lambda a, b: (lambda c: c.exp() * c.sub_(b) * b)(a.clone()), x(3, 4), x(3, 4))

make_ops.main("replacing")
