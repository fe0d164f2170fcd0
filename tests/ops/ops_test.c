/*
 * ops_test.c - every operation by one row: against PyTorch's numbers, by finite differences, in every floating dtype,
 * in other memory orders, on another device, and with what may not be.
 *
 * A row names a case of tests/golden/make_ops.py and makes the call; inputs and expected numbers come from there.
 */
#include "tests/support/expect.h"
#include "tests/support/golden.h"
#include "tests/support/test_device.h"

#include "tensor/tensor.h"
#include <yoke/ops.h>

#define DIMS(...) (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static yk_tensor *split_and_sum(yk_tensor *x)
{
    yk_tensor *parts[3];
    int count;
    if (yk_split(x, 2, 1, parts, 3, &count) || count != 3)
        return NULL;
    return yk_add(yk_mul_scalar(parts[2], 3), yk_narrow(parts[0], 1, 0, 1));
}

static yk_tensor *split_by_sizes(yk_tensor *x)
{
    yk_tensor *parts[4];
    if (yk_split_sizes(x, (int64_t[]){1, 3, 0, 1}, 4, 1, parts))
        return NULL;
    return yk_mul(yk_sum_dims(parts[1], DIMS(1), false), yk_select(parts[3], 1, 0));
}

/* Three parts of 2, 2 and 1 rows; the middle one gets no gradient. */
static yk_tensor *chunk_and_multiply(yk_tensor *x)
{
    yk_tensor *parts[3];
    int count;
    return yk_chunk(x, 3, 0, parts, 3, &count) || count != 3 ? NULL : yk_mul(parts[0], parts[2]);
}

static yk_tensor *unbind_and_multiply(yk_tensor *x)
{
    yk_tensor *parts[4];
    int count;
    return yk_unbind(x, 1, parts, 4, &count) || count != 4 ? NULL : yk_mul(parts[0], parts[3]);
}

static yk_tensor *there_and_back(yk_tensor *x)
{
    yk_device other = test_device(1 - yk_tensor_device(x).index);
    return yk_to(yk_mul_scalar(yk_to(x, other), 2), yk_tensor_device(x));
}

/* Through f32 (or, from f32, through f16) and back: exact for the case's numbers. */
static yk_tensor *cast_and_back(yk_tensor *x)
{
    return yk_cast(yk_cast(x, yk_tensor_dtype(x) == YK_F64 ? YK_F32 : YK_F64), yk_tensor_dtype(x));
}

static yk_tensor *multiplied_by_itself(yk_tensor *x)
{
    yk_tensor *y = yk_clone(x);
    return yk_mul_(y, y);
}

static yk_tensor *grid_product(yk_tensor *const *x)
{
    yk_tensor *grid[2];
    return yk_meshgrid(x, 2, grid) ? NULL : yk_mul(grid[0], grid[1]);
}

static yk_tensor *plot_grid(yk_tensor *const *x, int count)
{
    yk_tensor *grid[3];
    if (yk_meshgrid_xy(x, count, grid))
        return NULL;
    yk_tensor *product = yk_mul(grid[0], grid[1]);
    return count == 3 ? yk_add(product, grid[2]) : product;
}
#define QUANTILES (double[]){0.3, 0, 0.85, 0.5}, 4

static yk_tensor *empty_like_dtype(yk_tensor *x)
{
    return yk_empty(YK_SHAPE(0),
                    YK_OPTIONS(yk_tensor_options, .dtype = yk_tensor_dtype(x), .device = yk_tensor_device(x)));
}

#define CONV(...)       YK_OPTIONS(yk_conv2d_options, __VA_ARGS__)
#define POOL(...)       YK_OPTIONS(yk_pool2d_options, __VA_ARGS__)
#define BATCH_NORM(...) YK_OPTIONS(yk_batch_norm_options, __VA_ARGS__)
#define LOSS(...)       YK_OPTIONS(yk_cross_entropy_options, __VA_ARGS__)

/* clang-format off */
#define ROWS(ROW)                                                                                                      \
    ROW(add, yk_add(x[0], x[1]))                                                                                       \
    ROW(add_broadcast, yk_add(x[0], x[1]))                                                                             \
    ROW(add_scaled, yk_add_scaled(x[0], x[1], -0.75))                                                                  \
    ROW(add_scalar_tensor, yk_add(x[0], x[1]))                                                                         \
    ROW(sub, yk_sub(x[0], x[1]))                                                                                       \
    ROW(sub_broadcast, yk_sub(x[0], x[1]))                                                                             \
    ROW(mul, yk_mul(x[0], x[1]))                                                                                       \
    ROW(mul_broadcast, yk_mul(x[0], x[1]))                                                                             \
    ROW(div, yk_div(x[0], x[1]))                                                                                       \
    ROW(div_broadcast, yk_div(x[0], x[1]))                                                                             \
    ROW(pow, yk_pow(x[0], x[1]))                                                                                       \
    ROW(pow_broadcast, yk_pow(x[0], x[1]))                                                                             \
    ROW(pow_at_zero, yk_pow(x[0], x[1]))                                                                               \
    ROW(maximum, yk_maximum(x[0], x[1]))                                                                               \
    ROW(minimum, yk_minimum(x[0], x[1]))                                                                               \
    ROW(maximum_ties, yk_maximum(x[0], x[1]))                                                                          \
    ROW(minimum_ties, yk_minimum(x[0], x[1]))                                                                          \
    ROW(add_scalar, yk_add_scalar(x[0], 0.7))                                                                          \
    ROW(sub_scalar, yk_sub_scalar(x[0], 0.7))                                                                          \
    ROW(mul_scalar, yk_mul_scalar(x[0], -1.3))                                                                         \
    ROW(div_scalar, yk_div_scalar(x[0], 3))                                                                            \
    ROW(div_scalar_power_of_two, yk_div_scalar(x[0], -4))                                                              \
    ROW(pow_scalar_square, yk_pow_scalar(x[0], 2))                                                                     \
    ROW(pow_scalar_cube, yk_pow_scalar(x[0], 3))                                                                       \
    ROW(pow_scalar_root, yk_pow_scalar(x[0], 0.5))                                                                     \
    ROW(pow_scalar_inverse, yk_pow_scalar(x[0], -1))                                                                   \
    ROW(pow_scalar_any, yk_pow_scalar(x[0], -2.3))                                                                     \
    ROW(pow_scalar_zero, yk_pow_scalar(x[0], 0))                                                                       \
    ROW(pow_scalar_one, yk_pow_scalar(x[0], 1))                                                                        \
    ROW(neg, yk_neg(x[0]))                                                                                             \
    ROW(abs, yk_abs(x[0]))                                                                                             \
    ROW(exp, yk_exp(x[0]))                                                                                             \
    ROW(log, yk_log(x[0]))                                                                                             \
    ROW(sqrt, yk_sqrt(x[0]))                                                                                           \
    ROW(rsqrt, yk_rsqrt(x[0]))                                                                                         \
    ROW(reciprocal, yk_reciprocal(x[0]))                                                                               \
    ROW(square, yk_square(x[0]))                                                                                       \
    ROW(sin, yk_sin(x[0]))                                                                                             \
    ROW(cos, yk_cos(x[0]))                                                                                             \
    ROW(tanh, yk_tanh(x[0]))                                                                                           \
    ROW(sigmoid, yk_sigmoid(x[0]))                                                                                     \
    ROW(relu, yk_relu(x[0]))                                                                                           \
    ROW(gelu, yk_gelu(x[0]))                                                                                           \
    ROW(kinks, yk_add(yk_relu(x[0]), yk_abs(x[0])))                                                                    \
    ROW(clamp, yk_clamp(x[0], -0.5, 0.8))                                                                              \
    ROW(clamp_open, yk_clamp(x[0], -INFINITY, 0.3))                                                                    \
    ROW(clamp_edges, yk_clamp(x[0], -1, 1))                                                                            \
    ROW(where, yk_where(x[0], x[1], x[2]))                                                                             \
    ROW(where_broadcast, yk_where(x[0], x[1], x[2]))                                                                   \
    ROW(add_in_place, yk_add_(yk_clone(x[0]), x[1], 0.5))                                                              \
    ROW(mul_in_place, yk_mul_(yk_clone(x[0]), x[1]))                                                                   \
    ROW(mul_in_place_self, multiplied_by_itself(x[0]))                                                                 \
    ROW(mul_scalar_in_place, yk_mul_scalar_(yk_clone(x[0]), -2.5))                                                     \
    ROW(relu_in_place, yk_relu_(yk_clone(x[0])))                                                                       \
    ROW(copy_in_place, yk_copy_(yk_clone(x[0]), x[1]))                                                                 \
    ROW(fill_in_place, yk_add(yk_fill_(yk_clone(x[0]), 2.5), x[0]))                                                    \
    ROW(reshape, yk_reshape(x[0], YK_SHAPE(3, -1)))                                                                    \
    ROW(reshape_copy, yk_reshape(yk_transpose(x[0], 0, 1), YK_SHAPE(6)))                                               \
    ROW(reshape_scalar, yk_reshape(x[0], YK_SCALAR))                                                                   \
    ROW(view, yk_view(yk_contiguous(x[0]), YK_SHAPE(2, 2, 3)))                                                         \
    ROW(flatten, yk_flatten(x[0], 1, -2))                                                                              \
    ROW(permute, yk_permute(x[0], (int[]){2, 0, -2}))                                                                  \
    ROW(transpose, yk_transpose(x[0], -1, 0))                                                                          \
    ROW(squeeze, yk_squeeze(x[0], 1))                                                                                  \
    ROW(unsqueeze, yk_unsqueeze(x[0], -1))                                                                             \
    ROW(expand, yk_expand(x[0], YK_SHAPE(2, -1, 4)))                                                                   \
    ROW(slice, yk_slice(x[0], 1, 1, 5, 2))                                                                             \
    ROW(slice_negative, yk_slice(x[0], 0, -3, -1, 1))                                                                  \
    ROW(slice_everything, yk_slice(x[0], 0, 0, YK_END, 1))                                                             \
    ROW(slice_nothing, yk_slice(x[0], 0, 3, 2, 1))                                                                     \
    ROW(select, yk_select(x[0], 1, -2))                                                                                \
    ROW(narrow, yk_narrow(x[0], 0, 1, 2))                                                                              \
    ROW(cat, yk_cat(x, 3, 1))                                                                                          \
    ROW(cat_with_empty, yk_cat((yk_tensor *[]){empty_like_dtype(x[0]), x[0], x[1]}, 3, -2))                            \
    ROW(stack, yk_stack(x, 2, 1))                                                                                      \
    ROW(stack_last, yk_stack(x, 2, -1))                                                                                \
    ROW(split, split_and_sum(x[0]))                                                                                    \
    ROW(split_sizes, split_by_sizes(x[0]))                                                                             \
    ROW(chunk, chunk_and_multiply(x[0]))                                                                               \
    ROW(unbind, unbind_and_multiply(x[0]))                                                                             \
    ROW(contiguous, yk_contiguous(yk_transpose(x[0], 0, 1)))                                                           \
    ROW(clone, yk_clone(x[0]))                                                                                         \
    ROW(cast, cast_and_back(x[0]))                                                                                     \
    ROW(to, there_and_back(x[0]))                                                                                      \
    ROW(sum, yk_sum(x[0]))                                                                                             \
    ROW(sum_dims, yk_sum_dims(x[0], DIMS(0, 2), false))                                                                \
    ROW(sum_dims_kept, yk_sum_dims(x[0], DIMS(-1, 0), true))                                                           \
    ROW(mean, yk_mean(x[0]))                                                                                           \
    ROW(mean_dims, yk_mean_dims(x[0], DIMS(1), false))                                                                 \
    ROW(mean_dims_kept, yk_mean_dims(x[0], DIMS(0, 1), true))                                                          \
    ROW(var, yk_var(x[0]))                                                                                             \
    ROW(var_dims, yk_var_dims(x[0], DIMS(0), 0, false))                                                                \
    ROW(var_dims_kept, yk_var_dims(x[0], DIMS(1, 2), 1, true))                                                         \
    ROW(max, yk_max(x[0]))                                                                                             \
    ROW(min, yk_min(x[0]))                                                                                             \
    ROW(max_ties, yk_max(x[0]))                                                                                        \
    ROW(max_dim, yk_max_dim(x[0], 1, false, NULL))                                                                     \
    ROW(max_dim_kept, yk_max_dim(x[0], -1, true, NULL))                                                                \
    ROW(min_dim, yk_min_dim(x[0], 0, false, NULL))                                                                     \
    ROW(max_dim_ties, yk_max_dim(x[0], 1, false, NULL))                                                                \
    ROW(prod, yk_prod(x[0]))                                                                                           \
    ROW(prod_zero, yk_prod(x[0]))                                                                                      \
    ROW(prod_zeros, yk_prod(x[0]))                                                                                     \
    ROW(prod_scalar, yk_prod(x[0]))                                                                                    \
    ROW(prod_dim, yk_prod_dim(x[0], 1, false))                                                                         \
    ROW(prod_dim_kept, yk_prod_dim(x[0], -1, true))                                                                    \
    ROW(prod_dim_zeros, yk_prod_dim(x[0], 1, false))                                                                   \
    ROW(prod_dim_zeros_first, yk_prod_dim(x[0], 0, false))                                                             \
    ROW(argmax, yk_argmax(x[0], 1, false))                                                                             \
    ROW(argmin, yk_argmin(x[0], 0, true))                                                                              \
    ROW(softmax, yk_softmax(x[0], 1))                                                                                  \
    ROW(softmax_first, yk_softmax(x[0], 0))                                                                            \
    ROW(log_softmax, yk_log_softmax(x[0], -1))                                                                         \
    ROW(log_softmax_middle, yk_log_softmax(x[0], 1))                                                                   \
    ROW(sign, yk_sign(x[0]))                                                                                           \
    ROW(floor, yk_floor(x[0]))                                                                                         \
    ROW(ceil, yk_ceil(x[0]))                                                                                           \
    ROW(round, yk_round(x[0]))                                                                                         \
    ROW(is_finite, yk_is_finite(x[0]))                                                                                 \
    ROW(eq, yk_eq(x[0], x[1]))                                                                                         \
    ROW(ne, yk_ne(x[0], x[1]))                                                                                         \
    ROW(lt, yk_lt(x[0], x[1]))                                                                                         \
    ROW(le, yk_le(x[0], x[1]))                                                                                         \
    ROW(gt, yk_gt(x[0], x[1]))                                                                                         \
    ROW(ge, yk_ge(x[0], x[1]))                                                                                         \
    ROW(logical_and, yk_logical_and(x[0], x[1]))                                                                       \
    ROW(logical_or, yk_logical_or(x[0], x[1]))                                                                         \
    ROW(logical_not, yk_logical_not(x[0]))                                                                             \
    ROW(any, yk_any(x[0]))                                                                                             \
    ROW(all, yk_all(x[0]))                                                                                             \
    ROW(matmul, yk_matmul(x[0], x[1]))                                                                                 \
    ROW(matmul_dot, yk_matmul(x[0], x[1]))                                                                             \
    ROW(matmul_row, yk_matmul(x[0], x[1]))                                                                             \
    ROW(matmul_column, yk_matmul(x[0], x[1]))                                                                          \
    ROW(matmul_batch, yk_matmul(x[0], x[1]))                                                                           \
    ROW(matmul_shared_right, yk_matmul(x[0], x[1]))                                                                    \
    ROW(matmul_shared_left, yk_matmul(x[0], x[1]))                                                                     \
    ROW(matmul_broadcast, yk_matmul(x[0], x[1]))                                                                       \
    ROW(matmul_broadcast_ones, yk_matmul(x[0], x[1]))                                                                  \
    ROW(matmul_row_batch, yk_matmul(x[0], x[1]))                                                                       \
    ROW(matmul_batch_column, yk_matmul(x[0], x[1]))                                                                    \
    ROW(linear, yk_linear(x[0], x[1], x[2]))                                                                           \
    ROW(linear_plain, yk_linear(x[0], x[1], NULL))                                                                     \
    ROW(linear_vector, yk_linear(x[0], x[1], x[2]))                                                                    \
    ROW(linear_relu, yk_linear_relu(x[0], x[1], x[2]))                                                                 \
    ROW(linear_relu_plain, yk_linear_relu(x[0], x[1], NULL))                                                           \
    ROW(index_select, yk_index_select(x[0], 1, x[1]))                                                                  \
    ROW(index_select_one, yk_index_select(x[0], 0, x[1]))                                                              \
    ROW(index_add, yk_index_add_(yk_clone(x[0]), 1, x[1], x[2], -1.5))                                                 \
    ROW(gather_dim, yk_gather_dim(x[0], 1, x[1]))                                                                      \
    ROW(gather_dim_first, yk_gather_dim(x[0], -3, x[1]))                                                               \
    ROW(scatter_dim, yk_scatter_dim_(yk_clone(x[0]), 1, x[1], x[2]))                                                   \
    ROW(scatter_dim_value, yk_scatter_dim_value_(yk_clone(x[0]), 0, x[1], 2.5))                                        \
    ROW(scatter_add, yk_scatter_add_(yk_clone(x[0]), 0, x[1], x[2]))                                                   \
    ROW(take, yk_take(x[0], x[1]))                                                                                     \
    ROW(take_along_dim, yk_take_along_dim(x[0], x[1], 1))                                                              \
    ROW(masked_select, yk_masked_select(x[0], x[1]))                                                                   \
    ROW(masked_select_broadcast, yk_masked_select(x[0], x[1]))                                                         \
    ROW(masked_fill, yk_masked_fill(x[0], x[1], -2.5))                                                                 \
    ROW(masked_fill_wider, yk_masked_fill(x[0], x[1], -2.5))                                                           \
    ROW(masked_fill_in_place, yk_masked_fill_(yk_clone(x[0]), x[1], 0.5))                                              \
    ROW(nonzero, yk_nonzero(x[0]))                                                                                     \
    ROW(nonzero_of_numbers, yk_nonzero(x[0]))                                                                          \
    ROW(log1p, yk_log1p(x[0]))                                                                                         \
    ROW(expm1, yk_expm1(x[0]))                                                                                         \
    ROW(erf, yk_erf(x[0]))                                                                                             \
    ROW(atan2, yk_atan2(x[0], x[1]))                                                                                   \
    ROW(lerp, yk_lerp(x[0], x[1], x[2]))                                                                               \
    ROW(lerp_scalar, yk_lerp_scalar(x[0], x[1], 0.3))                                                                  \
    ROW(lerp_scalar_far, yk_lerp_scalar(x[0], x[1], 0.8))                                                              \
    ROW(addcmul, yk_addcmul(x[0], x[1], x[2], -0.5))                                                                   \
    ROW(addcdiv, yk_addcdiv(x[0], x[1], x[2], 2))                                                                      \
    ROW(cumsum, yk_cumsum(x[0], 1))                                                                                    \
    ROW(cumsum_last, yk_cumsum(x[0], -1))                                                                              \
    ROW(cumsum_integers, yk_cumsum(x[0], 0))                                                                           \
    ROW(cumsum_bool, yk_cumsum(x[0], 1))                                                                               \
    ROW(cumprod, yk_cumprod(x[0], 1))                                                                                  \
    ROW(cumprod_zeros, yk_cumprod(x[0], 1))                                                                            \
    ROW(sort, yk_sort(x[0], 1, false, NULL))                                                                           \
    ROW(sort_descending, yk_sort(x[0], 0, true, NULL))                                                                 \
    ROW(argsort, yk_argsort(x[0], 1, false))                                                                           \
    ROW(argsort_ties, yk_argsort(x[0], 1, true))                                                                       \
    ROW(topk, yk_topk(x[0], 3, 1, true, NULL))                                                                         \
    ROW(topk_smallest, yk_topk(x[0], 2, 0, false, NULL))                                                               \
    ROW(median, yk_median(x[0]))                                                                                       \
    ROW(median_dim, yk_median_dim(x[0], 1, false, NULL))                                                               \
    ROW(median_dim_kept, yk_median_dim(x[0], 0, true, NULL))                                                           \
    ROW(quantile, yk_quantile(x[0], 0.3, 1, false))                                                                    \
    ROW(quantile_list, yk_quantile_list(x[0], QUANTILES, 1, false)) \
    ROW(quantile_list_kept, yk_quantile_list(x[0], QUANTILES, -2, true)) \
    ROW(quantile_list_line, yk_quantile_list(x[0], QUANTILES, 0, false)) \
    ROW(quantile_kept, yk_quantile(x[0], 1, 0, true))                                                                  \
    ROW(flip, yk_flip(x[0], DIMS(0, 2)))                                                                               \
    ROW(roll, yk_roll(x[0], 2, 1))                                                                                     \
    ROW(roll_dims, yk_roll_dims(x[0], (int64_t[]){1, -2, 2}, DIMS(0, 1, 0))) \
    ROW(roll_flat, yk_roll_dims(x[0], (int64_t[]){4}, NULL, 1)) \
    ROW(roll_back, yk_roll(x[0], -7, 0))                                                                               \
    ROW(repeat, yk_repeat(x[0], YK_SHAPE(2, 1, 3)))                                                                    \
    ROW(std, yk_std(x[0]))                                                                                             \
    ROW(std_dims, yk_std_dims(x[0], DIMS(0, 2), 0, true))                                                              \
    ROW(std_of_equals, yk_std_dims(x[0], DIMS(1), 1, false))                                                           \
    ROW(logsumexp, yk_logsumexp(x[0], DIMS(1), false))                                                                 \
    ROW(logsumexp_dims, yk_logsumexp(x[0], DIMS(0, -1), true))                                                         \
    ROW(norm, yk_norm(x[0], 2, NULL, 0, false))                                                                        \
    ROW(norm_dim, yk_norm(x[0], 2, DIMS(1), false))                                                                    \
    ROW(norm_at_zero, yk_norm(x[0], 2, DIMS(1), false))                                                                \
    ROW(norm_one, yk_norm(x[0], 1, DIMS(0), false))                                                                    \
    ROW(norm_three, yk_norm(x[0], 3, DIMS(0, 2), true))                                                                \
    ROW(norm_half, yk_norm(x[0], 1.5, DIMS(1), false))                                                                 \
    ROW(norm_most, yk_norm(x[0], INFINITY, DIMS(1), false))                                                            \
    ROW(norm_least, yk_norm(x[0], -INFINITY, DIMS(1), false))                                                          \
    ROW(norm_count, yk_norm(x[0], 0, DIMS(1), false))                                                                  \
    ROW(cdist, yk_cdist(x[0], x[1], 2))                                                                                \
    ROW(cdist_one, yk_cdist(x[0], x[1], 1))                                                                            \
    ROW(bincount, yk_bincount(x[0], NULL, 9))                                                                          \
    ROW(tril, yk_tril(x[0], 0))                                                                                        \
    ROW(tril_above, yk_tril(x[0], 1))                                                                                  \
    ROW(triu, yk_triu(x[0], -1))                                                                                       \
    ROW(diagonal, yk_diagonal(x[0], 1, 0, 2))                                                                          \
    ROW(diagonal_below, yk_diagonal(x[0], -1, 0, 1))                                                                   \
    ROW(outer, yk_outer(x[0], x[1]))                                                                                   \
    ROW(meshgrid_xy, plot_grid(x, 2)) \
    ROW(meshgrid_xy_three, plot_grid(x, 3)) \
    ROW(meshgrid, grid_product(x))                                                                                     \
    ROW(one_hot, yk_one_hot(x[0], 5))                                                                                  \
    ROW(einsum, yk_einsum("bij,bjk->bik", x, 2))                                                                       \
    ROW(einsum_implicit, yk_einsum("ji, jk", x, 2))                                                                    \
    ROW(einsum_trace, yk_einsum("ii", x, 1))                                                                           \
    ROW(einsum_diagonal, yk_einsum("iji->ji", x, 1))                                                                   \
    ROW(einsum_dots, yk_einsum("...i,...ij->...j", x, 2))                                                              \
    ROW(einsum_three, yk_einsum("i,ij,kj->k", x, 3))                                                                   \
    ROW(einsum_outer, yk_einsum("ab,c->cba", x, 2))                                                                    \
    ROW(einsum_sums, yk_einsum("ijk,jl->i", x, 2))                                                                     \
    ROW(conv2d, yk_conv2d(x[0], x[1], x[2], NULL))                                                                     \
    ROW(conv2d_relu, yk_conv2d(x[0], x[1], x[2], CONV(.padding = {1, 1}, .relu = true)))                               \
    ROW(conv2d_relu_plain, yk_conv2d(x[0], x[1], NULL, CONV(.stride = {2, 2}, .relu = true)))                          \
    ROW(conv2d_plain, yk_conv2d(x[0], x[1], NULL, NULL))                                                               \
    ROW(conv2d_all, yk_conv2d(x[0], x[1], x[2],                                                                        \
                              CONV(.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2)))             \
    ROW(conv2d_depthwise, yk_conv2d(x[0], x[1], NULL, CONV(.padding = {1, 1}, .groups = 3)))                           \
    ROW(max_pool2d, yk_max_pool2d(x[0], POOL(.kernel = {2, 2})))                                                       \
    ROW(max_pool2d_all, yk_max_pool2d(x[0], POOL(.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0},                \
                                                 .dilation = {1, 2}, .ceil_mode = true)))                              \
    ROW(max_pool2d_ceil_drops, yk_max_pool2d(x[0], POOL(.kernel = {2, 2}, .stride = {3, 3}, .padding = {1, 1},         \
                                                        .ceil_mode = true)))                                           \
    ROW(avg_pool2d, yk_avg_pool2d(x[0], POOL(.kernel = {2, 2})))                                                       \
    ROW(avg_pool2d_all, yk_avg_pool2d(x[0], POOL(.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1},                \
                                                 .ceil_mode = true)))                                                  \
    ROW(avg_pool2d_no_pad, yk_avg_pool2d(x[0], POOL(.kernel = {3, 2}, .stride = {2, 2}, .padding = {1, 1},             \
                                                    .count_include_pad = false)))                                      \
    ROW(avg_pool2d_divisor, yk_avg_pool2d(x[0], POOL(.kernel = {2, 2}, .stride = {1, 1}, .divisor_override = 3)))      \
    ROW(adaptive_avg_pool2d, yk_adaptive_avg_pool2d(x[0], 2, 3))                                                       \
    ROW(adaptive_avg_pool2d_one, yk_adaptive_avg_pool2d(x[0], 1, 1))                                                   \
    ROW(batch_norm, yk_batch_norm(x[0], x[1], x[2], NULL, NULL, BATCH_NORM(.training = true)))                         \
    ROW(batch_norm_plain, yk_batch_norm(x[0], NULL, NULL, NULL, NULL, BATCH_NORM(.training = true, .eps = 0.1)))       \
    ROW(batch_norm_eval, yk_batch_norm(x[0], x[1], x[2], x[3], x[4], NULL))                                            \
    ROW(batch_norm_relu, yk_batch_norm(x[0], x[1], x[2], NULL, NULL, BATCH_NORM(.training = true, .relu = true)))      \
    ROW(batch_norm_residual, yk_batch_norm(x[0], x[1], x[2], NULL, NULL,                                               \
                                           BATCH_NORM(.training = true, .residual = x[3])))                            \
    ROW(batch_norm_residual_relu, yk_batch_norm(x[0], x[1], x[2], NULL, NULL,                                          \
                                                BATCH_NORM(.training = true, .relu = true, .residual = x[3])))         \
    ROW(layer_norm, yk_layer_norm(x[0], YK_SHAPE(4), x[1], x[2], 1e-5))                                                \
    ROW(layer_norm_two, yk_layer_norm(x[0], YK_SHAPE(2, 3), x[1], x[2], 0.01))                                         \
    ROW(layer_norm_plain, yk_layer_norm(x[0], YK_SHAPE(3), NULL, NULL, 1e-5))                                          \
    ROW(layer_norm_weight, yk_layer_norm(x[0], YK_SHAPE(3), x[1], NULL, 1e-5))                                         \
    ROW(embedding, yk_embedding(x[0], x[1], -1))                                                                       \
    ROW(embedding_padding, yk_embedding(x[0], x[1], 1))                                                                \
    ROW(cross_entropy, yk_cross_entropy(x[0], x[1], NULL))                                                             \
    ROW(cross_entropy_sum, yk_cross_entropy(x[0], x[1], LOSS(.reduction = YK_REDUCE_SUM)))                             \
    ROW(cross_entropy_all, yk_cross_entropy(x[0], x[1], LOSS(.weight = x[2], .ignore_index = 1,                        \
                                                             .label_smoothing = 0.2)))              \
    ROW(cross_entropy_each, yk_cross_entropy(x[0], x[1], LOSS(.reduction = YK_REDUCE_NONE)))                           \
    ROW(cross_entropy_each_all, yk_cross_entropy(x[0], x[1], LOSS(.weight = x[2], .ignore_index = 0,                   \
                                                                  .label_smoothing = 0.3,                              \
                                                                  .reduction = YK_REDUCE_NONE)))                       \
    ROW(mse_loss, yk_mse_loss(x[0], x[1], YK_REDUCE_MEAN))                                                             \
    ROW(mse_loss_sum, yk_mse_loss(x[0], x[1], YK_REDUCE_SUM))                                                          \
    ROW(mse_loss_each, yk_mse_loss(x[0], x[1], YK_REDUCE_NONE))
/* clang-format on */

#define CALL(name, ...)                                                                                                \
    static yk_tensor *call_##name(yk_tensor *const *x, int n_inputs, void *user)                                       \
    {                                                                                                                  \
        (void)n_inputs, (void)user;                                                                                    \
        return __VA_ARGS__;                                                                                            \
    }
ROWS(CALL)

#define ENTRY(name, ...) {#name, call_##name},
static const struct row {
    const char *name;
    yk_gradcheck_fn call;
} rows[] = {ROWS(ENTRY)};

enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };

/* ---- what PyTorch has ---- */

enum { GOLDEN_INPUTS = 5 };
typedef struct golden_tensor {
    yk_dtype dtype;
    int ndim;
    int64_t shape[4];
    bool requires_grad;
    int at; /* the first of its numbers in golden_values, C order */
} golden_tensor;
typedef struct golden_case {
    char name[40];
    bool smooth; /* finite differences make sense at these inputs */
    int n_inputs;
    golden_tensor input[GOLDEN_INPUTS], output;
    int gradient;            /* of the output, in golden_values; -1: none */
    int grad[GOLDEN_INPUTS]; /* of the inputs; -1: none */
} golden_case;

static golden_case *golden_cases;
static size_t golden_count;
static const double *golden_values;

static golden_tensor read_golden_tensor(const char **row)
{
    golden_tensor t = {.dtype = golden_dtype(row), .ndim = golden_integer(row)};
    assert_in_range(t.ndim, 0, 4);
    for (int d = 0; d < t.ndim; d++)
        t.shape[d] = golden_integer(row);
    t.requires_grad = golden_integer(row);
    t.at = golden_integer(row);
    return t;
}

static int read_golden_cases(void **state)
{
    (void)state;
    const char *const *lines = golden_rows("ops", "cases", &golden_count);
    golden_values = golden_numbers("ops", "values", NULL);
    golden_cases = calloc(golden_count, sizeof(*golden_cases));
    assert_non_null(golden_cases);
    for (size_t i = 0; i < golden_count; i++) {
        golden_case *c = &golden_cases[i];
        const char *row = lines[i];
        golden_word(&row, c->name, sizeof(c->name));
        c->smooth = golden_integer(&row);
        c->n_inputs = golden_integer(&row);
        assert_in_range(c->n_inputs, 0, GOLDEN_INPUTS);
        for (int k = 0; k < c->n_inputs; k++)
            c->input[k] = read_golden_tensor(&row);
        c->output = read_golden_tensor(&row);
        c->gradient = golden_integer(&row);
        for (int k = 0; k < c->n_inputs; k++)
            c->grad[k] = golden_integer(&row);
        assert_int_equal(*row, 0);
    }
    return 0;
}

static const golden_case *golden_of(const char *name)
{
    for (size_t i = 0; i < golden_count; i++) {
        if (strcmp(golden_cases[i].name, name) == 0)
            return &golden_cases[i];
    }
    fail_msg("row %s has no case in make_ops.py", name);
    return NULL;
}

static int64_t count_of(const golden_tensor *g)
{
    int64_t n = 1;
    for (int d = 0; d < g->ndim; d++)
        n *= g->shape[d];
    return n;
}

/* ---- inputs in several forms ---- */

enum layout {
    C_ORDER,
    REVERSED /* dense, first dimension innermost */,
    GAPS /* every third element of a larger block */
};
static const char *const layout_name[] = {"C order", "reversed order", "gaps"};

/* An input of the case; real ones in `dtype`. A leaf that wants a gradient where the case's does and `grads` says so.
 */
static yk_tensor *make_input(const golden_tensor *g, yk_dtype dtype, enum layout layout, yk_device device, bool grads)
{
    dtype = g->dtype == YK_F64 ? dtype : g->dtype;
    int64_t stride[YK_MAX_DIMS], step = layout == GAPS ? 3 : 1, elements = 3 * count_of(g) + 1;
    for (int i = 0; i < g->ndim; i++) {
        int d = layout == REVERSED ? i : g->ndim - 1 - i;
        stride[d] = step;
        step *= g->shape[d] ? g->shape[d] : 1;
    }
    yk_tensor *block = yk__tensor_new(1, &elements, NULL, dtype, device);
    yk_tensor *x = yk__tensor_view(block, g->ndim, g->shape, stride, 0);
    yk_tensor *values = yk__tensor_new(g->ndim, g->shape, NULL, YK_F64, device);
    assert_true(block && x && values);
    expect_ok(yk__raw_fill(block, 77));
    expect_ok(yk_tensor_write(values, golden_values + g->at, sizeof(double) * (size_t)count_of(g)));
    expect_ok(yk__raw_copy(x, values));
    if (grads && g->requires_grad)
        expect_ok(yk_set_requires_grad(x, true));
    yk_tensor_release(block);
    yk_tensor_release(values);
    return yk__scope_own(x);
}

static void make_inputs(const golden_case *c, yk_dtype dtype, enum layout layout, yk_device device, bool grads,
                        yk_tensor *x[GOLDEN_INPUTS])
{
    for (int i = 0; i < c->n_inputs; i++)
        x[i] = make_input(&c->input[i], dtype, layout, device, grads);
}

static yk_tensor *make_gradient(const golden_case *c, const yk_tensor *like)
{
    golden_tensor g = c->output;
    g.at = c->gradient;
    return make_input(&g, yk_tensor_dtype(like), C_ORDER, yk_tensor_device(like), false);
}

/* ---- comparison ---- */

static double *values_of(const yk_tensor *x)
{
    yk_tensor *wide = yk__raw_cast((yk_tensor *)x, YK_F64);
    double *values = calloc((size_t)yk_numel(x) + 1, sizeof(double));
    assert_true(wide && values);
    expect_ok(yk_tensor_read(wide, values, sizeof(double) * (size_t)yk_numel(x)));
    yk_tensor_release(wide);
    return values;
}

static void compare(const char *row, const char *form, const char *what, int number, const double *got,
                    const double *expected, int64_t n, double tolerance)
{
    double scale = 1;
    for (int64_t i = 0; i < n; i++)
        scale = fabs(expected[i]) > scale ? fabs(expected[i]) : scale;
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(got[i] - expected[i]) <= tolerance * scale))
            fail_msg("%s, %s: %s %d, element %lld is %.17g, expected %.17g", row, form, what, number, (long long)i,
                     got[i], expected[i]);
    }
}

static void compare_tensor(const char *row, const char *form, const char *what, int number, const yk_tensor *got,
                           const golden_tensor *shape, const double *expected, double tolerance)
{
    char text[200], wanted[200];
    if (yk_ndim(got) != shape->ndim || memcmp(yk_sizes(got), shape->shape, sizeof(int64_t) * (size_t)shape->ndim))
        fail_msg("%s, %s: %s %d has shape %s, expected %s", row, form, what, number,
                 yk_shape_format(got, text, sizeof(text)),
                 yk__shape_text(shape->ndim, shape->shape, wanted, sizeof(wanted)));
    double *values = values_of(got);
    compare(row, form, what, number, values, expected, count_of(shape), tolerance);
    free(values);
}

/* ---- the modes ---- */

static void test_every_case_has_a_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < golden_count; i++) {
        int found = 0;
        for (int r = 0; r < ROW_COUNT; r++)
            found += strcmp(rows[r].name, golden_cases[i].name) == 0;
        if (found != 1)
            fail_msg("case %s of make_ops.py has %d rows", golden_cases[i].name, found);
    }
    assert_int_equal((int)ROW_COUNT, (int)golden_count);
}

/* Result and gradients against PyTorch, in f64. */
static void against_golden(const struct row *row, const golden_case *c, const char *form, enum layout layout,
                           yk_device device)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x[GOLDEN_INPUTS] = {NULL};
    make_inputs(c, YK_F64, layout, device, true, x);
    yk_tensor *out = row->call(x, c->n_inputs, NULL);
    if (!out)
        fail_msg("%s, %s: %s", row->name, form, yk_last_error() ? yk_last_error()->message : "NULL without an error");
    assert_true(yk_device_equal(yk_tensor_device(out), device));
    if (yk_tensor_dtype(out) != c->output.dtype)
        fail_msg("%s: result is %s, expected %s", row->name, yk_dtype_name(yk_tensor_dtype(out)),
                 yk_dtype_name(c->output.dtype));
    compare_tensor(row->name, form, "result", 0, out, &c->output, golden_values + c->output.at, 1e-13);
    assert_int_equal(yk_requires_grad(out), c->gradient >= 0);
    if (c->gradient >= 0)
        expect_ok(yk_backward_with(out, YK_OPTIONS(yk_backward_options, .gradient = make_gradient(c, out))));
    for (int i = 0; i < c->n_inputs; i++) {
        if (c->grad[i] < 0) {
            assert_null(yk_grad(x[i]));
        } else if (!yk_grad(x[i])) { /* no gradient at all means zeros */
            for (int64_t k = 0; k < count_of(&c->input[i]); k++) {
                if (golden_values[c->grad[i] + k] != 0)
                    fail_msg("%s, %s: input %d got no gradient", row->name, form, i);
            }
        } else {
            compare_tensor(row->name, form, "gradient of input", i, yk_grad(x[i]), &c->input[i],
                           golden_values + c->grad[i], 1e-12);
        }
    }
    yk_scope_end(scope);
}

static void test_golden(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        for (int layout = C_ORDER; layout <= GAPS; layout++)
            against_golden(&rows[r], c, layout_name[layout], (enum layout)layout, test_device(0));
    }
}

static void test_second_device(void **state)
{
    (void)state;
    yk_device second = test_device(1);
    for (int r = 0; r < ROW_COUNT; r++)
        against_golden(&rows[r], golden_of(rows[r].name), "on the second device", C_ORDER, second);
}

static void test_gradcheck(void **state)
{
    (void)state;
    int checked = 0;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        if (!c->smooth || c->gradient < 0 || strcmp(c->name, "cast") == 0) /* f32 inside: differences drown */
            continue;
        for (int layout = C_ORDER; layout <= GAPS; layout++) {
            yk_scope scope = yk_scope_begin();
            yk_tensor *x[GOLDEN_INPUTS] = {NULL};
            make_inputs(c, YK_F64, (enum layout)layout, test_device(0), true, x);
            if (yk_gradcheck(rows[r].call, x, c->n_inputs, NULL, NULL))
                fail_msg("%s, %s: %s", c->name, layout_name[layout], yk_last_error()->message);
            checked++;
            yk_scope_end(scope);
        }
    }
    assert_true(checked > 300);
}

/* ---- gradients of gradients ---- */

/* The gradients that are recorded are those of the kernels, in any memory order. */
static void test_recorded_against_golden(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        for (int layout = C_ORDER; layout <= GAPS && c->gradient >= 0; layout++) {
            yk_scope scope = yk_scope_begin();
            yk_tensor *x[GOLDEN_INPUTS] = {NULL}, *wanted[GOLDEN_INPUTS], *grads[GOLDEN_INPUTS];
            int of[GOLDEN_INPUTS], count = 0;
            make_inputs(c, YK_F64, (enum layout)layout, test_device(0), true, x);
            for (int i = 0; i < c->n_inputs; i++) {
                if (c->grad[i] >= 0) {
                    of[count] = i;
                    wanted[count++] = x[i];
                }
            }
            yk_tensor *out = rows[r].call(x, c->n_inputs, NULL), *g = out ? make_gradient(c, out) : NULL;
            yk_status status =
                yk_autograd_grad(&out, 1, wanted, count, &g, grads,
                                 YK_OPTIONS(yk_autograd_grad_options, .create_graph = true, .allow_unused = true));
            if (status)
                fail_msg("%s, %s: %s", c->name, layout_name[layout], yk_last_error()->message);
            for (int i = 0; i < count; i++) {
                if (grads[i])
                    compare_tensor(c->name, layout_name[layout], "recorded gradient of input", of[i], grads[i],
                                   &c->input[of[i]], golden_values + c->grad[of[i]], 1e-12);
                for (int64_t k = 0; k < count_of(&c->input[of[i]]) && !grads[i]; k++)
                    assert_true(golden_values[c->grad[of[i]] + k] == 0);
            }
            yk_scope_end(scope);
        }
    }
}

static void test_gradgradcheck(void **state)
{
    (void)state;
    int checked = 0;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        if (!c->smooth || c->gradient < 0 || strcmp(c->name, "cast") == 0)
            continue;
        yk_scope scope = yk_scope_begin();
        yk_tensor *x[GOLDEN_INPUTS] = {NULL};
        make_inputs(c, YK_F64, (enum layout)(r % 3), test_device(0), true, x);
        if (yk_gradgradcheck(rows[r].call, x, c->n_inputs, NULL, NULL))
            fail_msg("%s, %s: %s", c->name, layout_name[r % 3], yk_last_error()->message);
        checked++;
        yk_scope_end(scope);
    }
    assert_true(checked > 100);
}

/* Each input alone wants a gradient: what is saved and computed depends on who does. */
static void test_one_gradient_at_a_time(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        for (int only = 0; only < c->n_inputs; only++) {
            if (c->grad[only] < 0)
                continue;
            yk_scope scope = yk_scope_begin();
            yk_tensor *x[GOLDEN_INPUTS] = {NULL};
            make_inputs(c, YK_F64, C_ORDER, test_device(0), false, x);
            expect_ok(yk_set_requires_grad(x[only], true));
            yk_tensor *out = rows[r].call(x, c->n_inputs, NULL);
            assert_non_null(out);
            expect_ok(yk_backward_with(out, YK_OPTIONS(yk_backward_options, .gradient = make_gradient(c, out))));
            for (int i = 0; i < c->n_inputs; i++)
                assert_true(i == only || !yk_grad(x[i]));
            if (yk_grad(x[only]))
                compare_tensor(c->name, "alone", "gradient of input", only, yk_grad(x[only]), &c->input[only],
                               golden_values + c->grad[only], 1e-12);
            yk_scope_end(scope);
        }
    }
}

/* f32, f16 and bf16 against f64 at the same, rounded, inputs. */
static void against_f64(const struct row *row, const golden_case *c, yk_dtype dtype, double tolerance)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x[GOLDEN_INPUTS] = {NULL}, *exact[GOLDEN_INPUTS] = {NULL};
    make_inputs(c, dtype, C_ORDER, test_device(0), true, x);
    for (int i = 0; i < c->n_inputs; i++) {
        exact[i] = c->input[i].dtype == YK_F64 ? yk_detach(yk_cast(x[i], YK_F64)) : x[i];
        if (c->input[i].requires_grad)
            expect_ok(yk_set_requires_grad(exact[i], true));
    }
    /* Statistics and class weights are f32 beside f16 and bf16. */
    bool statistics = strcmp(c->name, "batch_norm_eval") == 0;
    for (int i = statistics ? 3 : c->n_inputs; i < c->n_inputs; i++) {
        if (yk__is_half(dtype))
            x[i] = yk_cast(x[i], YK_F32);
    }
    const char *form = yk_dtype_name(dtype);
    yk_tensor *out = row->call(x, c->n_inputs, NULL), *expected = row->call(exact, c->n_inputs, NULL);
    if (!out || !expected)
        fail_msg("%s, %s: %s", c->name, form, yk_last_error() ? yk_last_error()->message : "NULL without an error");
    yk_dtype result = c->output.dtype == YK_F64 ? dtype : c->output.dtype;
    if (yk_tensor_dtype(out) != result)
        fail_msg("%s, %s: result is %s", c->name, form, yk_dtype_name(yk_tensor_dtype(out)));
    double *numbers = values_of(expected);
    compare_tensor(c->name, form, "result", 0, out, &c->output, numbers, tolerance);
    free(numbers);
    if (c->gradient >= 0) {
        yk_tensor *g = make_gradient(c, out), *exact_g = yk_cast(g, YK_F64);
        expect_ok(yk_backward_with(out, YK_OPTIONS(yk_backward_options, .gradient = g)));
        expect_ok(yk_backward_with(expected, YK_OPTIONS(yk_backward_options, .gradient = exact_g)));
    }
    for (int i = 0; i < c->n_inputs; i++) {
        if (c->grad[i] < 0)
            continue;
        assert_int_equal(!yk_grad(x[i]), !yk_grad(exact[i]));
        if (!yk_grad(x[i]))
            continue;
        assert_int_equal(yk_tensor_dtype(yk_grad(x[i])), dtype);
        numbers = values_of(yk_grad(exact[i]));
        compare_tensor(c->name, form, "gradient of input", i, yk_grad(x[i]), &c->input[i], numbers, 4 * tolerance);
        free(numbers);
    }
    yk_scope_end(scope);
}

static void test_other_dtypes(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        against_f64(&rows[r], c, YK_F32, 4e-7);
        against_f64(&rows[r], c, YK_F16, 2e-3);
        against_f64(&rows[r], c, YK_BF16, 1.6e-2);
    }
}

/* ---- what holds for every operation ---- */

static void test_null_is_passed_through(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        yk_scope scope = yk_scope_begin();
        yk_tensor *x[GOLDEN_INPUTS] = {NULL};
        make_inputs(c, YK_F64, C_ORDER, test_device(0), false, x);
        x[0] = NULL;
        yk_set_error(YK_ERR_IO, "the first error");
        assert_null(rows[r].call(x, c->n_inputs, NULL));
        expect_error(YK_ERR_IO, "the first error");
        yk_scope_end(scope);
    }
}

static void test_no_scope(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        yk_tensor *x[GOLDEN_INPUTS] = {NULL};
        yk_scope scope = yk_scope_begin();
        make_inputs(c, YK_F64, C_ORDER, test_device(0), false, x);
        for (int i = 0; i < c->n_inputs; i++)
            yk_tensor_retain(x[i]);
        yk_scope_end(scope);
        if (rows[r].call(x, c->n_inputs, NULL))
            fail_msg("%s works without a scope", c->name);
        expect_error(YK_ERR_STATE, "no scope is open on this thread");
        for (int i = 0; i < c->n_inputs; i++)
            yk_tensor_release(x[i]);
    }
}

static void test_no_grad_records_nothing(void **state)
{
    (void)state;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        yk_scope scope = yk_scope_begin();
        yk_tensor *x[GOLDEN_INPUTS] = {NULL};
        make_inputs(c, YK_F64, C_ORDER, test_device(0), true, x);
        bool previous = yk_no_grad_begin();
        yk_tensor *out = rows[r].call(x, c->n_inputs, NULL);
        yk_no_grad_end(previous);
        assert_non_null(out);
        assert_true(out == x[0] || !yk_requires_grad(out));
        compare_tensor(c->name, "no grad", "result", 0, out, &c->output, golden_values + c->output.at, 1e-13);
        yk_scope_end(scope);
    }
}

/* copy_ is the one that crosses devices. */
static void test_mixed_devices(void **state)
{
    (void)state;
    int mixed = 0;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        for (int moved = 1; moved < c->n_inputs; moved++) {
            if (strcmp(c->name, "copy_in_place") == 0)
                continue;
            yk_scope scope = yk_scope_begin();
            yk_tensor *x[GOLDEN_INPUTS] = {NULL};
            make_inputs(c, YK_F64, C_ORDER, test_device(0), false, x);
            x[moved] = yk_to(x[moved], test_device(1));
            yk_tensor *out = rows[r].call(x, c->n_inputs, NULL);
            if (out)
                fail_msg("%s takes input %d on another device", c->name, moved);
            const char *message = yk_last_error() ? yk_last_error()->message : "no error";
            if (!strstr(message, device_text("cpu:0")) || !strstr(message, device_text("cpu:1")))
                fail_msg("%s with input %d on another device says '%s'", c->name, moved, message);
            yk_clear_error();
            mixed++;
            yk_scope_end(scope);
        }
    }
    assert_true(mixed > 60);
}

/* Everything that a forward and a backward take is given back. */
static void test_memory_comes_back(void **state)
{
    (void)state;
    yk_memory_info before, after;
    for (int r = 0; r < ROW_COUNT; r++) {
        const golden_case *c = golden_of(rows[r].name);
        for (int device = 0; device < 2; device++) {
            yk_device d = test_device(device);
            expect_ok(yk_device_memory(d, &before));
            against_golden(&rows[r], c, "memory", REVERSED, d);
            expect_ok(yk_device_memory(d, &after));
            if (after.allocated != before.allocated)
                fail_msg("%s leaves %zd bytes on device %d", c->name, (ptrdiff_t)(after.allocated - before.allocated),
                         device);
        }
    }
}

int main(void)
{
    use_devices(2);
    start_devices();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_case_has_a_row),    cmocka_unit_test(test_golden),
        cmocka_unit_test(test_second_device),           cmocka_unit_test(test_gradcheck),
        cmocka_unit_test(test_recorded_against_golden), cmocka_unit_test(test_gradgradcheck),
        cmocka_unit_test(test_one_gradient_at_a_time),  cmocka_unit_test(test_other_dtypes),
        cmocka_unit_test(test_null_is_passed_through),  cmocka_unit_test(test_no_scope),
        cmocka_unit_test(test_no_grad_records_nothing), cmocka_unit_test(test_mixed_devices),
        cmocka_unit_test(test_memory_comes_back),
    };
    return cmocka_run_group_tests_name("ops", tests, read_golden_cases, NULL);
}
