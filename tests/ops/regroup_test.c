/*
 * regroup_test.c - regrouped dimensions, and the bilinear form, by one row each (op_modes.h). A row names a case of
 * tests/golden/make_regroup.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "regroup"
/* rows that finite differences check, and calls with an input on another device, at least */
enum { LEAST_CHECKED = 8, LEAST_MIXED = 3 };

#define UNFLATTEN(dim, ...) yk_unflatten(x[0], dim, __VA_ARGS__)

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(unflatten, UNFLATTEN(1, YK_SHAPE(2, 3)))                                                                       \
    ROW(unflatten_open, UNFLATTEN(-1, YK_SHAPE(-1, 2)))                                                                \
    ROW(unflatten_one, UNFLATTEN(0, YK_SHAPE(1, 4)))                                                                   \
    ROW(channel_shuffle, yk_channel_shuffle(x[0], 3))                                                                  \
    ROW(channel_shuffle_lines, yk_channel_shuffle(x[0], 2))                                                            \
    ROW(channel_shuffle_one, yk_channel_shuffle(x[0], 1))                                                              \
    ROW(bilinear, yk_bilinear(x[0], x[1], x[2], x[3]))                                                                 \
    ROW(bilinear_plain, yk_bilinear(x[0], x[1], x[2], NULL))                                                           \
    ROW(bilinear_vectors, yk_bilinear(x[0], x[1], x[2], x[3]))
/* clang-format on */

#include "tests/ops/op_modes.h"
