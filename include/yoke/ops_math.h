/*
 * yoke/ops_math.h - operations beside those of networks: order, sums along a dimension, norms, parts of matrices,
 * special functions. Layer: ops.
 *
 * As in ops.h, which includes this file: PyTorch's names, defaults and results, differentiable unless said otherwise.
 */
#ifndef YOKE_OPS_MATH_H
#define YOKE_OPS_MATH_H

#include <yoke/autograd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- elementwise ------------------------------------------------------------------------------------------------ */
YK_API yk_tensor *yk_log1p(yk_tensor *x); /* log(1 + x) */
YK_API yk_tensor *yk_expm1(yk_tensor *x); /* exp(x) - 1 */
YK_API yk_tensor *yk_erf(yk_tensor *x);
YK_API yk_tensor *yk_atan2(yk_tensor *y, yk_tensor *x); /* the angle of (x, y); floating */
/* The f32 of integers and bool is what counts. Powers of the base have whole logarithms. */
YK_API yk_tensor *yk_log2(yk_tensor *x);
YK_API yk_tensor *yk_log10(yk_tensor *x);
YK_API yk_tensor *yk_tan(yk_tensor *x);
YK_API yk_tensor *yk_asin(yk_tensor *x);
YK_API yk_tensor *yk_acos(yk_tensor *x);
YK_API yk_tensor *yk_atan(yk_tensor *x);
YK_API yk_tensor *yk_sinh(yk_tensor *x);
YK_API yk_tensor *yk_cosh(yk_tensor *x);
YK_API yk_tensor *yk_asinh(yk_tensor *x);
YK_API yk_tensor *yk_acosh(yk_tensor *x);
YK_API yk_tensor *yk_atanh(yk_tensor *x);
/* a + weight (b - a); exactly b for weight 1. */
YK_API yk_tensor *yk_lerp(yk_tensor *a, yk_tensor *b, yk_tensor *weight);
YK_API yk_tensor *yk_lerp_scalar(yk_tensor *a, yk_tensor *b, double weight);
/* x + value a b, and x + value a / b. */
YK_API yk_tensor *yk_addcmul(yk_tensor *x, yk_tensor *a, yk_tensor *b, double value);
YK_API yk_tensor *yk_addcdiv(yk_tensor *x, yk_tensor *a, yk_tensor *b, double value);
/* bool, no gradient. */
YK_API yk_tensor *yk_is_nan(yk_tensor *x);
YK_API yk_tensor *yk_is_inf(yk_tensor *x);
/* NaN becomes `nan`, the infinities `posinf` and `neginf`: NaN there means the largest and the lowest number of the
 * dtype. Those elements have no gradient. */
YK_API yk_tensor *yk_nan_to_num(yk_tensor *x, double nan, double posinf, double neginf);
/* |a - b| <= atol + rtol |b|, or equal; bool, no gradient. PyTorch's defaults: rtol 1e-5, atol 1e-8, equal_nan false.
 */
YK_API yk_tensor *yk_is_close(yk_tensor *a, yk_tensor *b, double rtol, double atol, bool equal_nan);
/* True if yk_is_close holds for all elements; false with the error record set where the tensors cannot be compared. */
YK_API bool yk_all_close(yk_tensor *a, yk_tensor *b, double rtol, double atol, bool equal_nan);

/* ---- along a dimension ------------------------------------------------------------------------------------------ */
YK_API yk_tensor *yk_cumsum(yk_tensor *x, int dim); /* of integers and bool: i64 */
YK_API yk_tensor *yk_cumprod(yk_tensor *x, int dim);
/* Stable, NaN as the largest. *index (i64, no gradient) unless NULL: the positions that the elements come from. */
YK_API yk_tensor *yk_sort(yk_tensor *x, int dim, bool descending, yk_tensor **index);
YK_API yk_tensor *yk_argsort(yk_tensor *x, int dim, bool descending);
/* The k largest (or smallest) in order; of equal ones the first. Of a 0-dimensional tensor, k 0 or 1, itself. */
YK_API yk_tensor *yk_topk(yk_tensor *x, int64_t k, int dim, bool largest, yk_tensor **index);
/* The lower of the two middle ones; NaN where there is one. */
YK_API yk_tensor *yk_median_dim(yk_tensor *x, int dim, bool keepdim, yk_tensor **index);
YK_API yk_tensor *yk_median(yk_tensor *x); /* of all; equal elements share the gradient evenly */
/* The q-quantile of the sorted elements, q in [0, 1], linear between two elements; NaN where there is one. Floating. */
YK_API yk_tensor *yk_quantile(yk_tensor *x, double q, int dim, bool keepdim);
/* The quantiles at several qs: (n_qs, ...). */
YK_API yk_tensor *yk_quantile_list(yk_tensor *x, const double *qs, int n_qs, int dim, bool keepdim);
YK_API yk_tensor *yk_flip(yk_tensor *x, const int *dims, int n_dims);
YK_API yk_tensor *yk_roll(yk_tensor *x, int64_t shift, int dim); /* elements that leave at the end come in at the
                                                                  * front */
/* Rolls by shifts[i] along dims[i], one after the other; dims NULL (n_dims 1): as if x had one dimension. */
YK_API yk_tensor *yk_roll_dims(yk_tensor *x, const int64_t *shifts, const int *dims, int n_dims);
/* Copies of x concatenated, repeats[d] times along dimension d; ndim at least x's, new ones in front. */
YK_API yk_tensor *yk_repeat(yk_tensor *x, int ndim, const int64_t *repeats);

/* ---- reductions: dims NULL (n_dims 0) means all ------------------------------------------------------------------ */
/* The roots of yk_var, also of values whose variance is outside the dtype's range (f32: on CPUs, as in PyTorch). */
YK_API yk_tensor *yk_std(yk_tensor *x); /* all, correction 1 */
YK_API yk_tensor *yk_std_dims(yk_tensor *x, const int *dims, int n_dims, double correction, bool keepdim);
/* The largest and the least element; equal ones share the gradient evenly. yk_max_dim has the place as well. */
YK_API yk_tensor *yk_amax(yk_tensor *x, const int *dims, int n_dims, bool keepdim);
YK_API yk_tensor *yk_amin(yk_tensor *x, const int *dims, int n_dims, bool keepdim);
/* yk_any and yk_all along dimensions; and how many elements are not 0 (i64). No gradient. */
YK_API yk_tensor *yk_any_dims(yk_tensor *x, const int *dims, int n_dims, bool keepdim);
YK_API yk_tensor *yk_all_dims(yk_tensor *x, const int *dims, int n_dims, bool keepdim);
YK_API yk_tensor *yk_count_nonzero(yk_tensor *x, const int *dims, int n_dims);
YK_API yk_tensor *yk_logsumexp(yk_tensor *x, const int *dims, int n_dims, bool keepdim);
/* (sum |x|^p)^(1/p): p 2, 1, 0 (the number of elements that are not 0), INFINITY, -INFINITY or any other; no gradient
 * where it is 0. */
YK_API yk_tensor *yk_norm(yk_tensor *x, double p, const int *dims, int n_dims, bool keepdim);
/* x (...,P,M), y (...,R,M): (...,P,R), the p-norms of the differences. For infinite p those that reach the norm share
 * its gradient, as in yk_norm; PyTorch gives it to each. */
YK_API yk_tensor *yk_cdist(yk_tensor *x, yk_tensor *y, double p);
/* The number of times that each of 0, 1, ... occurs in x (N), for at least `minlength` numbers; with weights (N), or
 * NULL, the sums of the weights. */
YK_API yk_tensor *yk_bincount(yk_tensor *x, yk_tensor *weights, int64_t minlength);

/* ---- distinct elements, places, repetitions: no gradient but of what is repeated --------------------------------- */
/* The different elements of x in ascending order: (K). *inverse (i64, of x's shape): the place of each element among
 * them; *counts (K, i64): the number of each; either may be NULL. Every NaN is one of its own. Source: torch.unique. */
YK_API yk_tensor *yk_unique(yk_tensor *x, yk_tensor **inverse, yk_tensor **counts);
/* The different slices of x along a dimension, in lexicographic order; *inverse has the dimension's size. */
YK_API yk_tensor *yk_unique_dim(yk_tensor *x, int dim, yk_tensor **inverse, yk_tensor **counts);
/* The elements of x in C order without those that equal the one before them. */
YK_API yk_tensor *yk_unique_consecutive(yk_tensor *x, yk_tensor **inverse, yk_tensor **counts);
/* For each of `values` the number of elements of `sorted` (N) that are less than it, or, with `right`, not greater: the
 * place where it would go in, i64. sorted may be (...,N) where values are (...,M). Source: torch.searchsorted. */
YK_API yk_tensor *yk_searchsorted(yk_tensor *sorted, yk_tensor *values, bool right);
YK_API yk_tensor *yk_bucketize(yk_tensor *values, yk_tensor *boundaries, bool right); /* boundaries (N) */
/* Each slice of x along a dimension (YK_NOT_GIVEN: each element of x as a vector) as often as repeats says, (N) of i64
 * or i32 with the dimension's size, or one number for all. */
YK_API yk_tensor *yk_repeat_interleave(yk_tensor *x, yk_tensor *repeats, int dim);
YK_API yk_tensor *yk_repeat_interleave_scalar(yk_tensor *x, int64_t repeats, int dim);

/* ---- parts of matrices ------------------------------------------------------------------------------------------ */
/* x (...,M,N) with zeros above, and below, the diagonal k (0: the main one, above it positive). */
YK_API yk_tensor *yk_tril(yk_tensor *x, int64_t k);
YK_API yk_tensor *yk_triu(yk_tensor *x, int64_t k);
/* The diagonal of two dimensions, which becomes the last one: a view. */
YK_API yk_tensor *yk_diagonal(yk_tensor *x, int64_t offset, int dim0, int dim1);
/* x (N) as the diagonal k of a square matrix of zeros; of a matrix its diagonal k, copied. */
YK_API yk_tensor *yk_diag(yk_tensor *x, int64_t k);
YK_API yk_tensor *yk_trace(yk_tensor *x);               /* the sum of a matrix's main diagonal */
YK_API yk_tensor *yk_outer(yk_tensor *a, yk_tensor *b); /* (M), (N): (M,N) */
/* x as columns and rows of a grid: outs[i] of the shape (sizes of all xs), the values along dimension i (torch's "ij").
 */
YK_API yk_status yk_meshgrid(yk_tensor *const *xs, int count, yk_tensor **outs) YK_MUST_CHECK;
/* The first two dimensions of every grid exchanged, as plots have them: columns along x[0], rows along x[1] ("xy"). */
YK_API yk_status yk_meshgrid_xy(yk_tensor *const *xs, int count, yk_tensor **outs) YK_MUST_CHECK;
/* index (...) i64, not negative: (...,classes) i64; classes -1: the largest + 1. No gradient. */
YK_API yk_tensor *yk_one_hot(yk_tensor *index, int64_t classes);
/* Sums of products in Einstein's notation: "bij,bjk->bik"; letters, "...", spaces; without "->" the letters that occur
 * once, in alphabetical order. */
YK_API yk_tensor *yk_einsum(const char *equation, yk_tensor *const *xs, int count);

/* Positions drawn from the weights x (C) or (N,C), which need not add up to 1: (samples) or (N,samples) of i64, from
 * the process's generator. Without replacement a row needs as many weights above 0. No gradient. */
YK_API yk_tensor *yk_multinomial(yk_tensor *x, int64_t samples, bool replacement);

/* ---- creation --------------------------------------------------------------------------------------------------- */
YK_API yk_tensor *yk_linspace(double start, double end, int64_t steps, const yk_tensor_options *options);
YK_API yk_tensor *yk_eye(int64_t n, int64_t m, const yk_tensor_options *options); /* ones on the diagonal of (n,m) */

#ifdef __cplusplus
}
#endif
#endif
