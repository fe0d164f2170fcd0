/*
 * pool_nd_test.c - pools along one to three dimensions, by one row each (op_modes.h). A row names a case of
 * tests/golden/make_pool.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "pool"
/* rows that finite differences check, and calls with an input on another device, at least: there are no second inputs
 */
enum { LEAST_CHECKED = 25, LEAST_MIXED = -1 };

#define P(...)  YK_OPTIONS(yk_pool_options, __VA_ARGS__)
#define P2(...) YK_OPTIONS(yk_pool2d_options, __VA_ARGS__)

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(max_pool1d, yk_max_pool1d(x[0], P(.kernel = {2})))                                                             \
    ROW(max_pool1d_options,                                                                                            \
        yk_max_pool1d(x[0], P(.kernel = {3}, .stride = {2}, .padding = {1}, .dilation = {2}, .ceil_mode = true)))      \
    ROW(max_pool1d_unbatched, yk_max_pool1d(x[0], P(.kernel = {2}, .stride = {1})))                                    \
    ROW(max_pool2d_unbatched, yk_max_pool2d(x[0], P2(.kernel = {2, 2}, .ceil_mode = true)))                            \
    ROW(max_pool3d, yk_max_pool3d(x[0], P(.kernel = {2, 2, 2})))                                                       \
    ROW(max_pool3d_options,                                                                                            \
        yk_max_pool3d(x[0], P(.kernel = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {1, 1, 0}, .dilation = {2, 1, 1},   \
                              .ceil_mode = true)))                                                                     \
    ROW(max_pool3d_unbatched, yk_max_pool3d(x[0], P(.kernel = {2, 1, 2})))                                             \
    ROW(max_pool3d_ties, yk_max_pool3d(x[0], P(.kernel = {2, 2, 2})))                                                  \
    ROW(avg_pool1d, yk_avg_pool1d(x[0], P(.kernel = {2})))                                                             \
    ROW(avg_pool1d_options,                                                                                            \
        yk_avg_pool1d(x[0], P(.kernel = {3}, .stride = {2}, .padding = {1}, .ceil_mode = true,                         \
                              .count_include_pad = false)))                                                            \
    ROW(avg_pool1d_unbatched, yk_avg_pool1d(x[0], P(.kernel = {2}, .padding = {1})))                                   \
    ROW(avg_pool2d_unbatched, yk_avg_pool2d(x[0], P2(.kernel = {2, 2}, .stride = {1, 1})))                             \
    ROW(avg_pool3d, yk_avg_pool3d(x[0], P(.kernel = {2, 2, 2})))                                                       \
    ROW(avg_pool3d_options,                                                                                            \
        yk_avg_pool3d(x[0], P(.kernel = {2, 3, 2}, .stride = {2, 1, 2}, .padding = {1, 1, 0}, .ceil_mode = true,       \
                              .count_include_pad = false)))                                                            \
    ROW(avg_pool3d_padded,                                                                                             \
        yk_avg_pool3d(x[0], P(.kernel = {2, 3, 2}, .stride = {2, 1, 2}, .padding = {1, 1, 0}, .ceil_mode = true)))     \
    ROW(avg_pool3d_divisor,                                                                                            \
        yk_avg_pool3d(x[0], P(.kernel = {2, 2, 2}, .padding = {1, 1, 1}, .divisor_override = 3)))                      \
    ROW(avg_pool3d_unbatched, yk_avg_pool3d(x[0], P(.kernel = {2, 1, 2})))                                             \
    ROW(adaptive_avg_pool1d, yk_adaptive_avg_pool1d(x[0], 3))                                                          \
    ROW(adaptive_avg_pool1d_unbatched, yk_adaptive_avg_pool1d(x[0], 2))                                                \
    ROW(adaptive_avg_pool2d_unbatched, yk_adaptive_avg_pool2d(x[0], 2, YK_NOT_GIVEN))                                  \
    ROW(adaptive_avg_pool3d, yk_adaptive_avg_pool3d(x[0], 2, 3, 2))                                                    \
    ROW(adaptive_avg_pool3d_unbatched, yk_adaptive_avg_pool3d(x[0], 1, YK_NOT_GIVEN, 2))                               \
    ROW(adaptive_max_pool1d, yk_adaptive_max_pool1d(x[0], 3))                                                          \
    ROW(adaptive_max_pool1d_even, yk_adaptive_max_pool1d(x[0], 3))                                                     \
    ROW(adaptive_max_pool2d, yk_adaptive_max_pool2d(x[0], 3, 2))                                                       \
    ROW(adaptive_max_pool2d_even, yk_adaptive_max_pool2d(x[0], 2, 1))                                                  \
    ROW(adaptive_max_pool2d_more, yk_adaptive_max_pool2d(x[0], 5, YK_NOT_GIVEN))                                       \
    ROW(adaptive_max_pool2d_ties, yk_adaptive_max_pool2d(x[0], 2, 2))                                                  \
    ROW(adaptive_max_pool3d, yk_adaptive_max_pool3d(x[0], 2, 2, 3))                                                    \
    ROW(adaptive_max_pool3d_even, yk_adaptive_max_pool3d(x[0], 1, 2, 2))
/* clang-format on */

#include "tests/ops/op_modes.h"
