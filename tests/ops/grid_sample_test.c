/*
 * grid_sample_test.c - tensors read at the places of a grid, and grids of affine maps, by one row each (op_modes.h). A
 * row names a case of tests/golden/make_grid_sample.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "grid_sample"
/* rows that finite differences check, and calls with an input on another device, at least */
enum { LEAST_CHECKED = 20, LEAST_MIXED = 20 };

#define AT(how, border, ...)                                                                                           \
    yk_grid_sample(x[0], x[1],                                                                                         \
                   YK_OPTIONS(yk_grid_sample_options, .mode = YK_GRID_##how, .padding_mode = YK_GRID_PADDING_##border, \
                              __VA_ARGS__))
#define PLAIN   .align_corners = false
#define ALIGNED .align_corners = true

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(bilinear_zeros, yk_grid_sample(x[0], x[1], NULL))                                                              \
    ROW(bilinear_zeros_aligned, AT(BILINEAR, ZEROS, ALIGNED))                                                          \
    ROW(bilinear_border, AT(BILINEAR, BORDER, PLAIN))                                                                  \
    ROW(bilinear_border_aligned, AT(BILINEAR, BORDER, ALIGNED))                                                        \
    ROW(bilinear_reflection, AT(BILINEAR, REFLECTION, PLAIN))                                                          \
    ROW(bilinear_reflection_aligned, AT(BILINEAR, REFLECTION, ALIGNED))                                                \
    ROW(nearest_zeros, AT(NEAREST, ZEROS, PLAIN))                                                                      \
    ROW(nearest_zeros_aligned, AT(NEAREST, ZEROS, ALIGNED))                                                            \
    ROW(nearest_border, AT(NEAREST, BORDER, PLAIN))                                                                    \
    ROW(nearest_border_aligned, AT(NEAREST, BORDER, ALIGNED))                                                          \
    ROW(nearest_reflection, AT(NEAREST, REFLECTION, PLAIN))                                                            \
    ROW(nearest_reflection_aligned, AT(NEAREST, REFLECTION, ALIGNED))                                                  \
    ROW(bicubic_zeros, AT(BICUBIC, ZEROS, PLAIN))                                                                      \
    ROW(bicubic_zeros_aligned, AT(BICUBIC, ZEROS, ALIGNED))                                                            \
    ROW(bicubic_border, AT(BICUBIC, BORDER, PLAIN))                                                                    \
    ROW(bicubic_border_aligned, AT(BICUBIC, BORDER, ALIGNED))                                                          \
    ROW(bicubic_reflection, AT(BICUBIC, REFLECTION, PLAIN))                                                            \
    ROW(bicubic_reflection_aligned, AT(BICUBIC, REFLECTION, ALIGNED))                                                  \
    ROW(volume_bilinear_zeros, AT(BILINEAR, ZEROS, PLAIN))                                                             \
    ROW(volume_bilinear_border, AT(BILINEAR, BORDER, ALIGNED))                                                         \
    ROW(volume_bilinear_reflection, AT(BILINEAR, REFLECTION, PLAIN))                                                   \
    ROW(volume_nearest_zeros, AT(NEAREST, ZEROS, PLAIN))                                                               \
    ROW(volume_nearest_border, AT(NEAREST, BORDER, ALIGNED))                                                           \
    ROW(volume_nearest_reflection, AT(NEAREST, REFLECTION, PLAIN))                                                     \
    ROW(one_element, AT(BILINEAR, REFLECTION, ALIGNED))                                                                \
    ROW(one_line, AT(BICUBIC, REFLECTION, ALIGNED))                                                                    \
    ROW(corners, AT(BILINEAR, ZEROS, ALIGNED))                                                                         \
    ROW(affine, yk_affine_grid(x[0], YK_SHAPE(2, 1, 3, 4), false))                                                     \
    ROW(affine_aligned, yk_affine_grid(x[0], YK_SHAPE(1, 3, 2, 1), true))                                              \
    ROW(affine_volume, yk_affine_grid(x[0], YK_SHAPE(2, 1, 2, 3, 2), false))                                           \
    ROW(transformed, yk_grid_sample(x[0], yk_affine_grid(x[1], YK_SHAPE(1, 2, 3, 4), false), NULL))
/* clang-format on */

#include "tests/ops/op_modes.h"
