/*
 * conv_nd_test.c - convolutions along one to three dimensions, by one row each (op_modes.h). A row names a case of
 * tests/golden/make_conv.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "conv"
/* rows that finite differences check, and calls with an input on another device, at least */
enum { LEAST_CHECKED = 15, LEAST_MIXED = 20 };

#define C(...)  YK_OPTIONS(yk_conv_options, __VA_ARGS__)
#define C2(...) YK_OPTIONS(yk_conv2d_options, __VA_ARGS__)
#define SAME    YK_PADDING_SAME

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(conv1d, yk_conv1d(x[0], x[1], x[2], NULL))                                                                     \
    ROW(conv1d_options,                                                                                                \
        yk_conv1d(x[0], x[1], x[2], C(.stride = {2}, .padding = {2}, .dilation = {2}, .groups = 2)))                   \
    ROW(conv1d_unbatched, yk_conv1d(x[0], x[1], NULL, C(.padding = {1})))                                              \
    ROW(conv1d_same, yk_conv1d(x[0], x[1], x[2], C(.padding = {SAME})))                                                \
    ROW(conv2d_unbatched, yk_conv2d(x[0], x[1], x[2], C2(.stride = {2, 2}, .padding = {1, 1})))                        \
    ROW(conv2d_same, yk_conv2d(x[0], x[1], x[2], C2(.padding = {SAME, SAME}, .dilation = {1, 3})))                     \
    ROW(conv2d_same_unbatched, yk_conv2d(x[0], x[1], NULL, C2(.padding = {SAME, SAME})))                               \
    ROW(conv3d, yk_conv3d(x[0], x[1], x[2], NULL))                                                                     \
    ROW(conv3d_options,                                                                                                \
        yk_conv3d(x[0], x[1], x[2],                                                                                    \
                  C(.stride = {2, 1, 2}, .padding = {1, 0, 2}, .dilation = {2, 1, 1}, .groups = 2)))                   \
    ROW(conv3d_unbatched, yk_conv3d(x[0], x[1], NULL, C(.padding = {1, 0, 0})))                                        \
    ROW(conv3d_same, yk_conv3d(x[0], x[1], NULL, C(.padding = {SAME, SAME, SAME})))                                    \
    ROW(conv_transpose1d, yk_conv_transpose1d(x[0], x[1], x[2], NULL))                                                 \
    ROW(conv_transpose1d_options,                                                                                      \
        yk_conv_transpose1d(x[0], x[1], x[2],                                                                          \
                            C(.stride = {3}, .padding = {1}, .output_padding = {2}, .groups = 2, .dilation = {2})))    \
    ROW(conv_transpose1d_unbatched, yk_conv_transpose1d(x[0], x[1], NULL, C(.stride = {2})))                           \
    ROW(conv_transpose2d, yk_conv_transpose2d(x[0], x[1], x[2], NULL))                                                 \
    ROW(conv_transpose2d_options,                                                                                      \
        yk_conv_transpose2d(x[0], x[1], x[2],                                                                          \
                            C(.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}, .groups = 2,              \
                              .dilation = {1, 2})))                                                                    \
    ROW(conv_transpose2d_far,                                                                                          \
        yk_conv_transpose2d(x[0], x[1], x[2],                                                                          \
                            C(.padding = {2, 0}, .output_padding = {2, 1}, .dilation = {3, 3})))                       \
    ROW(conv_transpose2d_unbatched, yk_conv_transpose2d(x[0], x[1], NULL, C(.stride = {2, 2})))                        \
    ROW(conv_transpose3d, yk_conv_transpose3d(x[0], x[1], x[2], NULL))                                                 \
    ROW(conv_transpose3d_options,                                                                                      \
        yk_conv_transpose3d(x[0], x[1], x[2],                                                                          \
                            C(.stride = {2, 1, 2}, .padding = {1, 0, 1}, .output_padding = {1, 0, 1}, .groups = 2,     \
                              .dilation = {1, 2, 1})))                                                                 \
    ROW(conv_transpose3d_far,                                                                                          \
        yk_conv_transpose3d(x[0], x[1], NULL,                                                                          \
                            C(.padding = {0, 1, 1}, .output_padding = {1, 0, 1}, .dilation = {2, 1, 2})))              \
    ROW(conv_transpose3d_unbatched, yk_conv_transpose3d(x[0], x[1], NULL, C(.stride = {1, 2, 1})))
/* clang-format on */

#include "tests/ops/op_modes.h"
