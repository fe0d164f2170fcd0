/*
 * ctc_test.c - CTC losses, by one row each (op_modes.h). A row names a case of tests/golden/make_ctc.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "ctc"
/* rows that finite differences check, and calls with an input on another device, at least */
enum { LEAST_CHECKED = 10, LEAST_MIXED = 10 };

#define CTC(options) yk_ctc_loss(yk_log_softmax(x[0], -1), x[1], x[2], x[3], options)
#define WITH(...)    YK_OPTIONS(yk_ctc_loss_options, __VA_ARGS__)

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(ctc, CTC(NULL))                                                                                                \
    ROW(ctc_sum, CTC(WITH(.reduction = YK_REDUCE_SUM)))                                                                \
    ROW(ctc_none, CTC(WITH(.reduction = YK_REDUCE_NONE)))                                                              \
    ROW(ctc_line, CTC(NULL))                                                                                           \
    ROW(ctc_no_labels, CTC(WITH(.reduction = YK_REDUCE_NONE)))                                                         \
    ROW(ctc_blank, CTC(WITH(.blank = 2, .reduction = YK_REDUCE_NONE)))                                                 \
    ROW(ctc_one, CTC(NULL))                                                                                            \
    ROW(ctc_one_none, CTC(WITH(.reduction = YK_REDUCE_NONE)))                                                          \
    ROW(ctc_tight, CTC(WITH(.reduction = YK_REDUCE_NONE)))                                                             \
    ROW(ctc_zero_infinity, CTC(WITH(.reduction = YK_REDUCE_NONE, .zero_infinity = true)))                              \
    ROW(ctc_one_label, CTC(NULL))
/* clang-format on */

#include "tests/ops/op_modes.h"
