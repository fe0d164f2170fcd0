/*
 * group_norm_test.c - norms that are made of other operations, by one row each (op_modes.h). A row names a case of
 * tests/golden/make_norm.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "norm"
/* rows that finite differences check, and calls with an input on another device, at least */
enum { LEAST_CHECKED = 10, LEAST_MIXED = 10 };

#define I(...) YK_OPTIONS(yk_instance_norm_options, __VA_ARGS__)

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(group_norm, yk_group_norm(x[0], 2, x[1], x[2], 1e-5))                                                          \
    ROW(group_norm_plain, yk_group_norm(x[0], 3, NULL, NULL, 0.1))                                                     \
    ROW(group_norm_weight, yk_group_norm(x[0], 1, x[1], NULL, 1e-5))                                                   \
    ROW(group_norm_bias, yk_group_norm(x[0], 2, NULL, x[1], 1e-5))                                                     \
    ROW(instance_norm, yk_instance_norm(x[0], NULL, NULL, NULL, NULL, NULL))                                           \
    ROW(instance_norm_affine, yk_instance_norm(x[0], x[1], x[2], NULL, NULL, I(.eps = 0.01)))                          \
    ROW(instance_norm_volume, yk_instance_norm(x[0], x[1], NULL, NULL, NULL, NULL))                                    \
    ROW(instance_norm_running, yk_instance_norm(x[0], x[1], x[2], x[3], x[4], I(.use_input_stats = false)))            \
    ROW(rms_norm, yk_rms_norm(x[0], YK_SHAPE(4), x[1], YK_NOT_GIVEN))                                                  \
    ROW(rms_norm_plain, yk_rms_norm(x[0], YK_SHAPE(3, 2), NULL, 0.1))                                                  \
    ROW(local_response_norm, yk_local_response_norm(x[0], 3, 0.5, 0.6, 1.5))                                           \
    ROW(local_response_norm_image, yk_local_response_norm(x[0], 2, 0.3, 0.75, 1))
/* clang-format on */

#include "tests/ops/op_modes.h"
