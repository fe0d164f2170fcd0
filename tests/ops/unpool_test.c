/*
 * unpool_test.c - positions of maxima, maxima put back, and pools of p-norms, by one row each (op_modes.h). A row names
 * a case of tests/golden/make_unpool.py.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define GROUP "unpool"
/* rows that finite differences check, and calls with an input on another device, at least */
enum { LEAST_CHECKED = 12, LEAST_MIXED = 1 };

#define P(...)  YK_OPTIONS(yk_pool_options, __VA_ARGS__)
#define P2(...) YK_OPTIONS(yk_pool2d_options, __VA_ARGS__)
#define U(...)  YK_OPTIONS(yk_max_unpool_options, __VA_ARGS__)

/* `out`, which filled *at; the positions that it filled. */
static yk_tensor *most(yk_tensor *out, yk_tensor *const *at)
{
    assert_true(!out == !*at);
    return out;
}
static yk_tensor *where(yk_tensor *out, yk_tensor *const *at)
{
    return out ? *at : NULL;
}
static yk_tensor *at;
#define POOL(n, ...) yk_max_pool##n##d_with_indices(x[0], __VA_ARGS__, &at), &at

static yk_tensor *back1(yk_tensor *x)
{
    yk_tensor *indices, *out = yk_max_pool1d_with_indices(x, P(.kernel = {2}), &indices);
    return yk_max_unpool1d(out, indices, U(.kernel = {2}));
}
static yk_tensor *back2(yk_tensor *x)
{
    yk_tensor *indices, *out = yk_max_pool2d_with_indices(x, P2(.kernel = {2, 1}, .stride = {2, 2}), &indices);
    return yk_max_unpool2d(out, indices, U(.kernel = {2, 1}, .stride = {2, 2}));
}
static yk_tensor *back2_unbatched(yk_tensor *x)
{
    yk_tensor *indices, *out = yk_max_pool2d_with_indices(x, P2(.kernel = {2, 2}), &indices);
    return yk_max_unpool2d(out, indices, U(.kernel = {2, 2}));
}
static yk_tensor *back3(yk_tensor *x)
{
    yk_tensor *indices, *out = yk_max_pool3d_with_indices(x, P(.kernel = {1, 2, 2}), &indices);
    return yk_max_unpool3d(out, indices, U(.kernel = {1, 2, 2}));
}

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(most1d, most(POOL(1, P(.kernel = {2}))))                                                                       \
    ROW(where1d, where(POOL(1, P(.kernel = {3}, .stride = {2}, .padding = {1}, .ceil_mode = true))))                   \
    ROW(where1d_unbatched, where(POOL(1, P(.kernel = {2}))))                                                           \
    ROW(most2d, most(POOL(2, P2(.kernel = {2, 3}, .stride = {2, 2}))))                                                 \
    ROW(where2d, where(POOL(2, P2(.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 0}, .dilation = {2, 1}))))        \
    ROW(where2d_unbatched, where(POOL(2, P2(.kernel = {2, 2}))))                                                       \
    ROW(most3d, most(POOL(3, P(.kernel = {2, 2, 2}, .stride = {1, 1, 1}))))                                            \
    ROW(where3d,                                                                                                       \
        where(POOL(3, P(.kernel = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {1, 1, 0}, .dilation = {2, 1, 1},         \
                        .ceil_mode = true))))                                                                          \
    ROW(where3d_unbatched, where(POOL(3, P(.kernel = {2, 1, 2}))))                                                     \
    ROW(where3d_ties, where(POOL(3, P(.kernel = {2, 2, 2}))))                                                          \
    ROW(unpool1d, back1(x[0]))                                                                                         \
    ROW(unpool2d, back2(x[0]))                                                                                         \
    ROW(unpool2d_unbatched, back2_unbatched(x[0]))                                                                     \
    ROW(unpool3d, back3(x[0]))                                                                                         \
    ROW(unpool2d_size, yk_max_unpool2d(x[0], x[1], U(.kernel = {2, 2}, .output_size = {5, 4})))                        \
    ROW(unpool1d_padding, yk_max_unpool1d(x[0], x[1], U(.kernel = {3}, .stride = {2}, .padding = {1})))                \
    ROW(lp_pool1d, yk_lp_pool1d(x[0], 2, P(.kernel = {2})))                                                            \
    ROW(lp_pool1d_ceil, yk_lp_pool1d(x[0], 4, P(.kernel = {3}, .stride = {2}, .ceil_mode = true)))                     \
    ROW(lp_pool2d, yk_lp_pool2d(x[0], 2, P(.kernel = {2, 3}, .stride = {1, 2})))                                       \
    ROW(lp_pool2d_sum, yk_lp_pool2d(x[0], 1, P(.kernel = {2, 2})))                                                     \
    ROW(lp_pool2d_half, yk_lp_pool2d(x[0], 1.5, P(.kernel = {2, 2}, .ceil_mode = true)))                               \
    ROW(lp_pool3d, yk_lp_pool3d(x[0], 2, P(.kernel = {1, 2, 2})))
/* clang-format on */

#include "tests/ops/op_modes.h"
