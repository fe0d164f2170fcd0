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

#define GROUP "ops"
/* rows that finite differences check, and calls with an input on another device, at least */
enum { LEAST_CHECKED = 100, LEAST_MIXED = 60 };

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

#include "tests/ops/op_modes.h"
