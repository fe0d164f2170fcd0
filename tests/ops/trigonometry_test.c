/*
 * trigonometry_test.c - tangents, inverse and hyperbolic functions, logarithms and diagonals, by one row each
 * (op_modes.h). A row names a case of tests/golden/make_trigonometry.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "trigonometry"
/* rows that finite differences check, and calls with an input on another device, at least: there are no second inputs
 */
enum { LEAST_CHECKED = 19, LEAST_MIXED = -1 };

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(tan, yk_tan(x[0]))                                                                                             \
    ROW(tan_wide, yk_tan(x[0]))                                                                                        \
    ROW(asin, yk_asin(x[0]))                                                                                           \
    ROW(acos, yk_acos(x[0]))                                                                                           \
    ROW(atan, yk_atan(x[0]))                                                                                           \
    ROW(atan_far, yk_atan(x[0]))                                                                                       \
    ROW(sinh, yk_sinh(x[0]))                                                                                           \
    ROW(sinh_small, yk_sinh(x[0]))                                                                                     \
    ROW(cosh, yk_cosh(x[0]))                                                                                           \
    ROW(asinh, yk_asinh(x[0]))                                                                                         \
    ROW(asinh_far, yk_asinh(x[0]))                                                                                     \
    ROW(acosh, yk_acosh(x[0]))                                                                                         \
    ROW(atanh, yk_atanh(x[0]))                                                                                         \
    ROW(atanh_small, yk_atanh(x[0]))                                                                                   \
    ROW(log2, yk_log2(x[0]))                                                                                           \
    ROW(log2_powers, yk_log2(x[0]))                                                                                    \
    ROW(log10, yk_log10(x[0]))                                                                                         \
    ROW(log10_powers, yk_log10(x[0]))                                                                                  \
    ROW(diag, yk_diag(x[0], 0))                                                                                        \
    ROW(diag_above, yk_diag(x[0], 2))                                                                                  \
    ROW(diag_below, yk_diag(x[0], -1))                                                                                 \
    ROW(diag_of_matrix, yk_diag(x[0], 0))                                                                              \
    ROW(diag_of_matrix_above, yk_diag(x[0], 1))                                                                        \
    ROW(trace, yk_trace(x[0]))                                                                                         \
    ROW(trace_tall, yk_trace(x[0]))
/* clang-format on */

#include "tests/ops/op_modes.h"
