#!/usr/bin/python3
"""Writes tests/golden/ctc.golden: CTC losses after a log_softmax, as make_ops.py does.

    python3 tests/golden/make_ctc.py
The row of the same name in tests/ops/ctc_test.c calls yoke's function.
"""
import torch.nn.functional as F

import make_ops
from make_ops import case, index, x

make_ops.CASES.clear()


def ctc(**options):
    return lambda a, targets, times, lengths: F.ctc_loss(F.log_softmax(a, -1), targets, times, lengths, **options)


def whole(*values, shape=None):
    return index(*(shape or (len(values),)), high=9, values=values)


ROWS = whole(1, 2, 2, 3, 1, 0, 2, 0, 0, shape=(3, 3))
case("ctc", ctc(), x(6, 3, 4), ROWS, whole(6, 5, 4), whole(3, 2, 1))
case("ctc_sum", ctc(reduction="sum"), x(6, 3, 4), ROWS, whole(6, 5, 4), whole(3, 2, 1))
case("ctc_none", ctc(reduction="none"), x(6, 3, 4), ROWS, whole(6, 5, 4), whole(3, 2, 1))
case("ctc_line", ctc(), x(6, 3, 4), whole(1, 2, 2, 3, 1, 2), whole(6, 5, 4), whole(3, 2, 1))
case("ctc_no_labels", ctc(reduction="none"), x(4, 2, 3), whole(1, 2, 1, 2, shape=(2, 2)), whole(4, 3), whole(0, 2))
case("ctc_blank", ctc(blank=2, reduction="none"), x(5, 2, 4), whole(1, 3, 0, 0, shape=(2, 2)), whole(5, 5), whole(2, 2))
case("ctc_one", ctc(), x(5, 4), whole(1, 1), whole(5), whole(2))
case("ctc_one_none", ctc(reduction="none"), x(5, 4), whole(3, 1), whole(4, shape=()), whole(2, shape=()))
case("ctc_tight", ctc(reduction="none"), x(3, 2, 3), whole(1, 2, 1, 2, 2, 0, shape=(2, 3)), whole(3, 3), whole(3, 2))
case("ctc_zero_infinity", ctc(zero_infinity=True, reduction="none"), x(3, 3, 3),
     whole(1, 1, 2, 2, 1, 2, shape=(3, 2)), whole(2, 3, 0), whole(2, 2, 1))
case("ctc_one_label", ctc(), x(4, 2, 3), whole(1, 2, shape=(2, 1)), whole(4, 1), whole(1, 1))

make_ops.main("ctc")
