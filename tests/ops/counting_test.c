/*
 * counting_test.c - extremes, counts, comparisons with numbers, distinct elements, places and repetitions, by one row
 * each (op_modes.h). A row names a case of tests/golden/make_counting.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "counting"
/* rows that finite differences check, and calls with an input on another device, at least */
enum { LEAST_CHECKED = 12, LEAST_MIXED = 10 };

#define DIMS(...) (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))

typedef yk_tensor *(*distinct)(yk_tensor *, yk_tensor **, yk_tensor **);
static yk_tensor *rows_of(yk_tensor *x, yk_tensor **inverse, yk_tensor **counts)
{
    return yk_unique_dim(x, 0, inverse, counts);
}
static yk_tensor *columns_of(yk_tensor *x, yk_tensor **inverse, yk_tensor **counts)
{
    return yk_unique_dim(x, 1, inverse, counts);
}
static yk_tensor *inverse_of(distinct f, yk_tensor *x)
{
    yk_tensor *inverse, *counts;
    return f(x, &inverse, &counts) && counts ? inverse : NULL;
}
static yk_tensor *counts_of(distinct f, yk_tensor *x)
{
    yk_tensor *counts;
    return f(x, NULL, &counts) ? counts : NULL;
}

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(amax, yk_amax(x[0], DIMS(0, 2), false))                                                                        \
    ROW(amax_keepdim, yk_amax(x[0], DIMS(1), true))                                                                    \
    ROW(amax_all, yk_amax(x[0], NULL, 0, false))                                                                       \
    ROW(amax_ties, yk_amax(x[0], DIMS(1), false))                                                                      \
    ROW(amin, yk_amin(x[0], DIMS(0, 2), false))                                                                        \
    ROW(amin_keepdim, yk_amin(x[0], DIMS(-1, 0), true))                                                                \
    ROW(amin_ties, yk_amin(x[0], DIMS(0, 1), false))                                                                   \
    ROW(amax_number, yk_amax(x[0], NULL, 0, false))                                                                    \
    ROW(any_dims, yk_any_dims(x[0], DIMS(1), false))                                                                   \
    ROW(any_dims_several, yk_any_dims(x[0], DIMS(0, 2), true))                                                         \
    ROW(all_dims, yk_all_dims(x[0], DIMS(1), false))                                                                   \
    ROW(all_dims_several, yk_all_dims(x[0], DIMS(0, 2), false))                                                        \
    ROW(count_nonzero, yk_count_nonzero(x[0], DIMS(0, 1)))                                                             \
    ROW(count_nonzero_dim, yk_count_nonzero(x[0], DIMS(1)))                                                            \
    ROW(count_nonzero_all, yk_count_nonzero(x[0], NULL, 0))                                                            \
    ROW(argmax_all, yk_argmax(x[0], YK_NOT_GIVEN, false))                                                              \
    ROW(argmax_all_keepdim, yk_argmax(x[0], YK_NOT_GIVEN, true))                                                       \
    ROW(argmin_all, yk_argmin(x[0], YK_NOT_GIVEN, false))                                                              \
    ROW(eq_scalar, yk_eq_scalar(x[0], -2))                                                                             \
    ROW(eq_scalar_whole, yk_eq_scalar(x[0], 2))                                                                        \
    ROW(eq_scalar_half, yk_eq_scalar(x[0], 1.5))                                                                       \
    ROW(ne_scalar, yk_ne_scalar(x[0], -2))                                                                             \
    ROW(ne_scalar_whole, yk_ne_scalar(x[0], 2))                                                                        \
    ROW(ne_scalar_half, yk_ne_scalar(x[0], 1.5))                                                                       \
    ROW(lt_scalar, yk_lt_scalar(x[0], -2))                                                                             \
    ROW(lt_scalar_whole, yk_lt_scalar(x[0], 2))                                                                        \
    ROW(lt_scalar_half, yk_lt_scalar(x[0], 1.5))                                                                       \
    ROW(le_scalar, yk_le_scalar(x[0], -2))                                                                             \
    ROW(le_scalar_whole, yk_le_scalar(x[0], 2))                                                                        \
    ROW(le_scalar_half, yk_le_scalar(x[0], 1.5))                                                                       \
    ROW(gt_scalar, yk_gt_scalar(x[0], -2))                                                                             \
    ROW(gt_scalar_whole, yk_gt_scalar(x[0], 2))                                                                        \
    ROW(gt_scalar_half, yk_gt_scalar(x[0], 1.5))                                                                       \
    ROW(ge_scalar, yk_ge_scalar(x[0], -2))                                                                             \
    ROW(ge_scalar_whole, yk_ge_scalar(x[0], 2))                                                                        \
    ROW(ge_scalar_half, yk_ge_scalar(x[0], 1.5))                                                                       \
    ROW(logical_xor, yk_logical_xor(x[0], x[1]))                                                                       \
    ROW(logical_xor_numbers, yk_logical_xor(x[0], x[1]))                                                               \
    ROW(rsub_scalar, yk_rsub_scalar(x[0], 1))                                                                          \
    ROW(rsub_scalar_whole, yk_rsub_scalar(x[0], 7))                                                                    \
    ROW(unique, yk_unique(x[0], NULL, NULL))                                                                           \
    ROW(unique_whole, yk_unique(x[0], NULL, NULL))                                                                     \
    ROW(unique_inverse, inverse_of(yk_unique, x[0]))                                                                   \
    ROW(unique_counts, counts_of(yk_unique, x[0]))                                                                     \
    ROW(unique_rows, rows_of(x[0], NULL, NULL))                                                                        \
    ROW(unique_rows_inverse, inverse_of(rows_of, x[0]))                                                                \
    ROW(unique_columns, columns_of(x[0], NULL, NULL))                                                                  \
    ROW(unique_columns_counts, counts_of(columns_of, x[0]))                                                            \
    ROW(unique_consecutive, yk_unique_consecutive(x[0], NULL, NULL))                                                   \
    ROW(unique_consecutive_inverse, inverse_of(yk_unique_consecutive, x[0]))                                           \
    ROW(unique_consecutive_counts, counts_of(yk_unique_consecutive, x[0]))                                             \
    ROW(searchsorted, yk_searchsorted(x[0], x[1], false))                                                              \
    ROW(searchsorted_right, yk_searchsorted(x[0], x[1], true))                                                         \
    ROW(searchsorted_rows, yk_searchsorted(x[0], x[1], false))                                                         \
    ROW(searchsorted_whole, yk_searchsorted(x[0], x[1], true))                                                         \
    ROW(searchsorted_one, yk_searchsorted(x[0], x[1], false))                                                          \
    ROW(bucketize, yk_bucketize(x[0], x[1], false))                                                                    \
    ROW(repeat_interleave, yk_repeat_interleave(x[0], x[1], 0))                                                        \
    ROW(repeat_interleave_last, yk_repeat_interleave(x[0], x[1], -1))                                                  \
    ROW(repeat_interleave_all, yk_repeat_interleave(x[0], x[1], YK_NOT_GIVEN))                                         \
    ROW(repeat_interleave_same, yk_repeat_interleave_scalar(x[0], 3, 1))                                               \
    ROW(repeat_interleave_line, yk_repeat_interleave_scalar(x[0], 2, YK_NOT_GIVEN))                                    \
    ROW(repeat_interleave_one, yk_repeat_interleave(x[0], x[1], 1))
/* clang-format on */

#include "tests/ops/op_modes.h"
