/*
 * shrink_test.c - thresholds, shrinking and smooth steps, by one row each (op_modes.h). A row names a case of
 * tests/golden/make_shrink.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "shrink"
/* rows that finite differences check, and calls with an input on another device, at least: there are no second inputs
 */
enum { LEAST_CHECKED = 9, LEAST_MIXED = -1 };

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(threshold, yk_threshold(x[0], 0.1, -7))                                                                        \
    ROW(threshold_kinks, yk_threshold(x[0], 0.25, 2))                                                                  \
    ROW(hardtanh, yk_hardtanh(x[0], -1, 1))                                                                            \
    ROW(hardtanh_kinks, yk_hardtanh(x[0], -0.5, 0.25))                                                                 \
    ROW(hardshrink, yk_hardshrink(x[0], 0.5))                                                                          \
    ROW(hardshrink_kinks, yk_hardshrink(x[0], 0.25))                                                                   \
    ROW(softshrink, yk_softshrink(x[0], 0.5))                                                                          \
    ROW(softshrink_kinks, yk_softshrink(x[0], 0.25))                                                                   \
    ROW(tanhshrink, yk_tanhshrink(x[0]))                                                                               \
    ROW(softsign, yk_softsign(x[0]))                                                                                   \
    ROW(softsign_kinks, yk_softsign(x[0]))                                                                             \
    ROW(celu, yk_celu(x[0], 1))                                                                                        \
    ROW(celu_alpha, yk_celu(x[0], 0.7))                                                                                \
    ROW(celu_kinks, yk_celu(x[0], 2))                                                                                  \
    ROW(rrelu, yk_rrelu(x[0], 0.1, 0.4, false))                                                                        \
    ROW(softmin, yk_softmin(x[0], 1))
/* clang-format on */

#include "tests/ops/op_modes.h"
