/*
 * interpolate_test.c - tensors in another size, and pixels that become channels, by one row each (op_modes.h). A row
 * names a case of tests/golden/make_interpolate.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "interpolate"
/* rows that finite differences check, and calls with an input on another device, at least: there are no second inputs
 */
enum { LEAST_CHECKED = 20, LEAST_MIXED = -1 };

#define M(mode) YK_INTERPOLATE_##mode
#define TO(...) yk_interpolate(x[0], YK_OPTIONS(yk_upsample_options, __VA_ARGS__))

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(nearest_line, TO(.size = {7}))                                                                                 \
    ROW(nearest, TO(.scale_factor = {2, 2}))                                                                           \
    ROW(nearest_down, TO(.size = {2, 3}))                                                                              \
    ROW(nearest_volume, TO(.scale_factor = {1, 1.5, 2}))                                                               \
    ROW(nearest_exact, TO(.size = {3, 2}, .mode = M(NEAREST_EXACT)))                                                   \
    ROW(nearest_exact_factor, TO(.scale_factor = {1.7}, .mode = M(NEAREST_EXACT)))                                     \
    ROW(linear, TO(.size = {5}, .mode = M(LINEAR)))                                                                    \
    ROW(linear_aligned, TO(.size = {5}, .mode = M(LINEAR), .align_corners = true))                                     \
    ROW(linear_one, TO(.size = {1}, .mode = M(LINEAR), .align_corners = true))                                         \
    ROW(linear_factor, TO(.scale_factor = {1.4}, .mode = M(LINEAR)))                                                   \
    ROW(bilinear, TO(.scale_factor = {2, 2}, .mode = M(BILINEAR)))                                                     \
    ROW(bilinear_aligned, TO(.size = {5, 3}, .mode = M(BILINEAR), .align_corners = true))                              \
    ROW(bilinear_down, TO(.size = {2, 3}, .mode = M(BILINEAR)))                                                        \
    ROW(bilinear_factors, TO(.scale_factor = {0.7, 1.3}, .mode = M(BILINEAR)))                                         \
    ROW(bicubic, TO(.scale_factor = {2, 2}, .mode = M(BICUBIC)))                                                       \
    ROW(bicubic_aligned, TO(.size = {5, 2}, .mode = M(BICUBIC), .align_corners = true))                                \
    ROW(bicubic_down, TO(.scale_factor = {0.6, 0.6}, .mode = M(BICUBIC)))                                              \
    ROW(trilinear, TO(.scale_factor = {2, 1, 1.5}, .mode = M(TRILINEAR)))                                              \
    ROW(trilinear_aligned, TO(.size = {3, 2, 3}, .mode = M(TRILINEAR), .align_corners = true))                         \
    ROW(area, TO(.size = {2, 3}, .mode = M(AREA)))                                                                     \
    ROW(area_line, TO(.scale_factor = {0.5}, .mode = M(AREA)))                                                         \
    ROW(area_volume, TO(.size = {2, 1, 3}, .mode = M(AREA)))                                                           \
    ROW(pixel_shuffle, yk_pixel_shuffle(x[0], 2))                                                                      \
    ROW(pixel_shuffle_one, yk_pixel_shuffle(x[0], 3))                                                                  \
    ROW(pixel_unshuffle, yk_pixel_unshuffle(x[0], 2))                                                                  \
    ROW(pixel_unshuffle_many, yk_pixel_unshuffle(x[0], 2))
/* clang-format on */

#include "tests/ops/op_modes.h"
