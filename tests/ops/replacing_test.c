/*
 * replacing_test.c - functions in place, by one row each (op_modes.h). A row names a case of
 * tests/golden/make_replacing.py. A copy is written, so that the input's gradient is that of its old value.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "replacing"
/* rows that finite differences check, and calls with an input on another device, at least */
enum { LEAST_CHECKED = 24, LEAST_MIXED = 10 };

static yk_tensor *with_itself(yk_tensor *x)
{
    return yk_sub_(x, x, 1);
}
/* A row and a column of x, one after the other. */
static yk_tensor *of_a_view(yk_tensor *x)
{
    if (!x)
        return NULL;
    return yk_neg_(yk_select(x, 0, 1)) && yk_div_scalar_(yk_select(x, 1, 2), 3) ? x : NULL;
}
static yk_tensor *old_value_used(yk_tensor *x, yk_tensor *y)
{
    yk_tensor *before = yk_exp(x), *after = yk_sub_(x, y, 1);
    return yk_mul(yk_mul(before, after), y);
}

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(neg, yk_neg_(yk_clone(x[0])))                                                                                  \
    ROW(exp, yk_exp_(yk_clone(x[0])))                                                                                  \
    ROW(square, yk_square_(yk_clone(x[0])))                                                                            \
    ROW(tanh, yk_tanh_(yk_clone(x[0])))                                                                                \
    ROW(sigmoid, yk_sigmoid_(yk_clone(x[0])))                                                                          \
    ROW(log, yk_log_(yk_clone(x[0])))                                                                                  \
    ROW(sqrt, yk_sqrt_(yk_clone(x[0])))                                                                                \
    ROW(rsqrt, yk_rsqrt_(yk_clone(x[0])))                                                                              \
    ROW(reciprocal, yk_reciprocal_(yk_clone(x[0])))                                                                    \
    ROW(abs, yk_abs_(yk_clone(x[0])))                                                                                  \
    ROW(floor, yk_floor_(yk_clone(x[0])))                                                                              \
    ROW(ceil, yk_ceil_(yk_clone(x[0])))                                                                                \
    ROW(round, yk_round_(yk_clone(x[0])))                                                                              \
    ROW(sub, yk_sub_(yk_clone(x[0]), x[1], 1))                                                                         \
    ROW(sub_scaled, yk_sub_(yk_clone(x[0]), x[1], -0.75))                                                              \
    ROW(sub_whole, yk_sub_(yk_clone(x[0]), x[1], 3))                                                                   \
    ROW(sub_itself, with_itself(yk_clone(x[0])))                                                                       \
    ROW(div, yk_div_(yk_clone(x[0]), x[1]))                                                                            \
    ROW(div_broadcast, yk_div_(yk_clone(x[0]), x[1]))                                                                  \
    ROW(add_scalar, yk_add_scalar_(yk_clone(x[0]), 0.7))                                                               \
    ROW(add_scalar_whole, yk_add_scalar_(yk_clone(x[0]), 7))                                                           \
    ROW(sub_scalar, yk_sub_scalar_(yk_clone(x[0]), 0.7))                                                               \
    ROW(div_scalar, yk_div_scalar_(yk_clone(x[0]), 3))                                                                 \
    ROW(pow_scalar, yk_pow_scalar_(yk_clone(x[0]), 1.7))                                                               \
    ROW(pow_scalar_whole, yk_pow_scalar_(yk_clone(x[0]), 3))                                                           \
    ROW(clamp, yk_clamp_(yk_clone(x[0]), -0.5, 0.75))                                                                  \
    ROW(clamp_whole, yk_clamp_(yk_clone(x[0]), 2, 4))                                                                  \
    ROW(addcmul, yk_addcmul_(yk_clone(x[0]), x[1], x[2], -0.3))                                                        \
    ROW(addcmul_whole, yk_addcmul_(yk_clone(x[0]), x[1], x[2], 2))                                                     \
    ROW(addcdiv, yk_addcdiv_(yk_clone(x[0]), x[1], x[2], -0.3))                                                        \
    ROW(lerp, yk_lerp_(yk_clone(x[0]), x[1], x[2]))                                                                    \
    ROW(lerp_scalar, yk_lerp_scalar_(yk_clone(x[0]), x[1], 0.1))                                                       \
    ROW(lerp_scalar_far, yk_lerp_scalar_(yk_clone(x[0]), x[1], 0.8))                                                   \
    ROW(of_a_view, of_a_view(yk_clone(x[0])))                                                                          \
    ROW(old_value_used, old_value_used(yk_clone(x[0]), x[1]))
/* clang-format on */

#include "tests/ops/op_modes.h"
