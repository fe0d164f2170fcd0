/*
 * fold_test.c - windows of images as columns, and columns added up, by one row each (op_modes.h). A row names a case of
 * tests/golden/make_fold.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "fold"
/* rows that finite differences check, and calls with an input on another device, at least: there are no second inputs
 */
enum { LEAST_CHECKED = 13, LEAST_MIXED = -1 };

#define U(...)   YK_OPTIONS(yk_fold_options, __VA_ARGS__)
#define ALL      U(.kernel = {2, 3}, .dilation = {2, 1}, .padding = {1, 2}, .stride = {2, 3})
#define PATCHES  U(.kernel = {2, 2}, .stride = {2, 2})
#define GAPS_OF  U(.kernel = {1, 2}, .stride = {2, 3})
#define ROUNDING U(.kernel = {3, 3}, .padding = {1, 1})

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(unfold, yk_unfold(x[0], U(.kernel = {2, 2})))                                                                  \
    ROW(unfold_all, yk_unfold(x[0], ALL))                                                                              \
    ROW(unfold_patches, yk_unfold(x[0], PATCHES))                                                                      \
    ROW(unfold_gaps, yk_unfold(x[0], GAPS_OF))                                                                         \
    ROW(unfold_elements, yk_unfold(x[0], U(.kernel = {1, 1})))                                                         \
    ROW(unfold_rows, yk_unfold(x[0], U(.kernel = {1, 3})))                                                             \
    ROW(unfold_unbatched, yk_unfold(x[0], U(.kernel = {2, 2}, .padding = {1, 1})))                                     \
    ROW(fold, yk_fold(x[0], 3, 4, U(.kernel = {2, 2})))                                                                \
    ROW(fold_all, yk_fold(x[0], 4, 5, ALL))                                                                            \
    ROW(fold_patches, yk_fold(x[0], 4, 4, PATCHES))                                                                    \
    ROW(fold_gaps, yk_fold(x[0], 5, 6, GAPS_OF))                                                                       \
    ROW(fold_elements, yk_fold(x[0], 2, 3, U(.kernel = {1, 1})))                                                       \
    ROW(fold_unbatched, yk_fold(x[0], 2, 2, U(.kernel = {2, 2}, .padding = {1, 1})))                                   \
    ROW(fold_of_unfold, yk_fold(yk_unfold(x[0], ROUNDING), 4, 3, ROUNDING))
/* clang-format on */

#include "tests/ops/op_modes.h"
