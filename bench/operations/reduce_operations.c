/*
 * reduce_operations.c - the operations of `operation_times` that reduce, order, count, draw random numbers, repeat or
 * copy parts. Layer: bench.
 *
 * What has no operands but a number of elements (n=1000000) is made anew in each run; what is in place writes the same
 * operand again.
 */

#include "base/core.h"
#include "bench/operations/operations.h"

/* ---- reductions ---- */

/* "dims=0x2x3" into dims[] (of 8); without it there are none, which means all. */
static int dims_of(const ops_subject *s, int *dims)
{
    int64_t named[8];
    int count = ops_text_sizes(s->text, "dims", named);
    for (int i = 0; i < count; i++)
        dims[i] = (int)named[i];
    return count;
}

#define OVER_DIMS(name, call)                                                                                          \
    static yk_tensor *name(ops_subject *s)                                                                             \
    {                                                                                                                  \
        int dims[8], n = dims_of(s, dims);                                                                             \
        yk_tensor *x = s->in[0];                                                                                       \
        return call;                                                                                                   \
    }
OVER_DIMS(sum_dims, yk_sum_dims(x, dims, n, false))
OVER_DIMS(mean, yk_mean_dims(x, dims, n, false))
OVER_DIMS(var, yk_var_dims(x, dims, n, 1, false))
OVER_DIMS(std_dims, yk_std_dims(x, dims, n, 1, false))
OVER_DIMS(norm, yk_norm(x, ops_text_number(s->text, "p", 2), dims, n, false))
OVER_DIMS(amax, yk_amax(x, dims, n, false))
OVER_DIMS(amin, yk_amin(x, dims, n, false))
OVER_DIMS(any_dims, yk_any_dims(x, dims, n, false))
OVER_DIMS(all_dims, yk_all_dims(x, dims, n, false))
OVER_DIMS(count_nonzero, yk_count_nonzero(x, dims, n))
OVER_DIMS(flip, yk_flip(x, dims, n))
OVER_DIMS(roll_dims, yk_roll_dims(x, (int64_t[8]){5, 7}, dims, n))

#define OF_ONE(name, call)                                                                                             \
    static yk_tensor *name(ops_subject *s)                                                                             \
    {                                                                                                                  \
        yk_tensor *x = s->in[0];                                                                                       \
        return call;                                                                                                   \
    }
OF_ONE(prod, yk_prod(x))
OF_ONE(prod_dim, yk_prod_dim(x, ops_dim(s), false))
OF_ONE(max, yk_max(x))
OF_ONE(min, yk_min(x))
OF_ONE(mean_all, yk_mean(x))
OF_ONE(var_all, yk_var(x))
OF_ONE(std_all, yk_std(x))
OF_ONE(median, yk_median(x))
OF_ONE(any, yk_any(x))
OF_ONE(all, yk_all(x))
OF_ONE(argmax_all, yk_argmax(x, YK_NOT_GIVEN, false))
OF_ONE(argmax, yk_argmax(x, ops_dim(s), false))
OF_ONE(argmin, yk_argmin(x, ops_dim(s), false))

/* ---- order, counts, distances ---- */

OF_ONE(cumprod, yk_cumprod(x, ops_dim(s)))
OF_ONE(argsort, yk_argsort(x, ops_dim(s), false))
OF_ONE(quantile, yk_quantile(x, ops_text_number(s->text, "q", 0.5), ops_dim(s), false))

OF_ONE(quantile_list, yk_quantile_list(x, (double[]){0.25, 0.5, 0.75}, 3, ops_dim(s), false))

static yk_tensor *min_dim(ops_subject *s)
{
    yk_tensor *index;
    return yk_min_dim(s->in[0], ops_dim(s), false, &index);
}

static yk_tensor *sort(ops_subject *s)
{
    yk_tensor *index;
    return yk_sort(s->in[0], ops_dim(s), false, &index);
}

static yk_tensor *median_dim(ops_subject *s)
{
    yk_tensor *index;
    return yk_median_dim(s->in[0], ops_dim(s), false, &index);
}

/* "rows=" integers below "bins=". */
static yk_status prepare_bins(ops_subject *s)
{
    s->index = yk_randint(0, ops_whole(s, "bins", 1), YK_SHAPE(ops_whole(s, "rows", 1)), NULL);
    return yk__error_code();
}

/* "rows=" numbers below "bins=" in order. */
static yk_status prepare_boundaries(ops_subject *s)
{
    int64_t rows = ops_whole(s, "rows", 2);
    s->index = yk_sort(yk_randn(YK_SHAPE(rows), NULL), 0, false, NULL);
    return yk__error_code();
}

/* x becomes whole numbers, in f32, from 0 to "bins=" - 1. */
static yk_status prepare_few(ops_subject *s)
{
    double bins = ops_text_number(s->text, "bins", 2);
    s->in[0] = yk_floor(yk_mul_scalar(yk_rand_like(s->in[0]), bins));
    return yk__error_code();
}

/* 0 to 3 repetitions of each slice. */
static yk_status prepare_repetitions(ops_subject *s)
{
    s->index = yk_randint(0, 4, YK_SHAPE(yk_size(s->in[0], ops_dim(s))), NULL);
    return yk__error_code();
}
OF_ONE(searchsorted, yk_searchsorted(s->index, x, false))
OF_ONE(bucketize, yk_bucketize(x, s->index, false))
OF_ONE(repeat_interleave, yk_repeat_interleave(x, s->index, ops_dim(s)))
OF_ONE(repeat_interleave_scalar, yk_repeat_interleave_scalar(x, 3, ops_dim(s)))

static yk_tensor *unique(ops_subject *s)
{
    return yk_unique(s->in[0], NULL, NULL);
}

/* With inverse and counts. */
static yk_tensor *unique_all(ops_subject *s)
{
    yk_tensor *inverse, *counts;
    return yk_unique(s->in[0], &inverse, &counts);
}
OF_ONE(unique_consecutive, yk_unique_consecutive(x, NULL, NULL))
OF_ONE(unique_dim, yk_unique_dim(x, ops_dim(s), NULL, NULL))

static yk_tensor *one_hot(ops_subject *s)
{
    return yk_one_hot(s->index, ops_whole(s, "bins", 1));
}

static yk_tensor *bincount(ops_subject *s)
{
    return yk_bincount(s->index, NULL, ops_whole(s, "bins", 1));
}

static yk_tensor *cdist(ops_subject *s)
{
    return yk_cdist(s->in[0], s->in[1], ops_text_number(s->text, "p", 2));
}

/* ---- made of nothing ---- */

#define MADE(name, call)                                                                                               \
    static yk_tensor *name(ops_subject *s)                                                                             \
    {                                                                                                                  \
        int64_t n = ops_whole(s, "n", 1);                                                                              \
        yk_tensor_options options = *YK_OPTIONS(yk_tensor_options, .dtype = ops_text_dtype(s->text, "dtype"));         \
        (void)options;                                                                                                 \
        return call;                                                                                                   \
    }
MADE(arange, yk_arange(0, (double)n, 1, &options))
MADE(rand_, yk_rand(1, &n, &options))
MADE(randn, yk_randn(1, &n, &options))
MADE(randint, yk_randint(0, 10, 1, &n, &options))
MADE(randperm, yk_randperm(n))
MADE(zeros, yk_zeros(1, &n, &options))
MADE(full, yk_full(1, &n, 1.5, &options))
MADE(ones, yk_ones(1, &n, &options))
MADE(linspace, yk_linspace(0, 1, n, &options))
MADE(eye, yk_eye(n, n, &options))

OF_ONE(multinomial, yk_multinomial(x, ops_whole(s, "rows", 1), ops_whole(s, "replacement", 0) != 0))

/* ---- repeated, rolled, parts ---- */

OF_ONE(roll, yk_roll(x, ops_whole(s, "shift", 1), ops_dim(s)))
OF_ONE(tril, yk_tril(x, 0))
OF_ONE(triu, yk_triu(x, 0))
OF_ONE(diag, yk_diag(x, 0))
OF_ONE(trace, yk_trace(x))
OF_ONE(clone, yk_clone(x))

static yk_tensor *repeat(ops_subject *s)
{
    int64_t repeats[8];
    int ndim = ops_text_sizes(s->text, "repeats", repeats);
    return yk_repeat(s->in[0], ndim, repeats);
}

static yk_tensor *stack(ops_subject *s)
{
    return yk_stack(s->in, 2, ops_dim(s));
}

static yk_tensor *outer(ops_subject *s)
{
    return yk_outer(s->in[0], s->in[1]);
}

static yk_tensor *einsum(ops_subject *s)
{
    char equation[64];
    ops_text_word(s->text, "equation", equation, sizeof(equation));
    return yk_einsum(equation, s->in, 2);
}

/* A part of x, every "step="th element along a dimension. */
static yk_tensor *part(ops_subject *s)
{
    return yk_slice(s->in[0], ops_dim(s), 0, YK_END, ops_whole(s, "step", 1));
}

static yk_tensor *contiguous_part(ops_subject *s)
{
    return yk_contiguous(part(s));
}

static yk_tensor *add_part_(ops_subject *s)
{
    return yk_add_(part(s), s->in[1], 1);
}

static yk_tensor *copy_part_(ops_subject *s)
{
    return yk_copy_(part(s), s->in[1]);
}

static yk_tensor *fill_part_(ops_subject *s)
{
    return yk_fill_(part(s), 1.5);
}

const ops_operation ops_reduce_operations[] = {
    {.name = "sum_dims", sum_dims},
    {.name = "mean", mean},
    {.name = "var", var},
    {.name = "std", std_dims},
    {.name = "norm", norm},
    {.name = "prod", prod},
    {.name = "max", max},
    {.name = "argmax", argmax},
    {.name = "argmin", argmin},
    {.name = "cumprod", cumprod},
    {.name = "sort", sort},
    {.name = "argsort", argsort},
    {.name = "median_dim", median_dim},
    {.name = "quantile", quantile},
    {.name = "one_hot", one_hot, prepare_bins},
    {.name = "cdist", cdist},
    {.name = "arange", arange},
    {.name = "rand", rand_},
    {.name = "randn", randn},
    {.name = "randint", randint},
    {.name = "randperm", randperm},
    {.name = "zeros", zeros},
    {.name = "full", full},
    {.name = "multinomial", multinomial, .positive = true},
    {.name = "flip", flip},
    {.name = "roll", roll},
    {.name = "tril", tril},
    {.name = "clone", clone},
    {.name = "repeat", repeat},
    {.name = "stack", stack},
    {.name = "outer", outer},
    {.name = "einsum", einsum},
    {.name = "contiguous_part", contiguous_part},
    {.name = "add_part_", add_part_},
    {.name = "copy_part_", copy_part_},
    {.name = "fill_part_", fill_part_},
    {.name = "amax", amax},
    {.name = "amin", amin},
    {.name = "any_dims", any_dims},
    {.name = "all_dims", all_dims},
    {.name = "count_nonzero", count_nonzero},
    {.name = "prod_dim", prod_dim},
    {.name = "min", min},
    {.name = "min_dim", min_dim},
    {.name = "mean_all", mean_all},
    {.name = "var_all", var_all},
    {.name = "std_all", std_all},
    {.name = "median", median},
    {.name = "any", any},
    {.name = "all", all},
    {.name = "argmax_all", argmax_all},
    {.name = "quantile_list", quantile_list},
    {.name = "searchsorted", searchsorted, prepare_boundaries},
    {.name = "bucketize", bucketize, prepare_boundaries},
    {.name = "unique", unique, prepare_few},
    {.name = "unique_all", unique_all, prepare_few},
    {.name = "unique_consecutive", unique_consecutive, prepare_few},
    {.name = "unique_dim", unique_dim, prepare_few},
    {.name = "bincount", bincount, prepare_bins},
    {.name = "repeat_interleave", repeat_interleave, prepare_repetitions},
    {.name = "repeat_interleave_scalar", repeat_interleave_scalar},
    {.name = "roll_dims", roll_dims},
    {.name = "ones", ones},
    {.name = "linspace", linspace},
    {.name = "eye", eye},
    {.name = "triu", triu},
    {.name = "diag", diag},
    {.name = "trace", trace},
};
const int ops_reduce_operation_count = sizeof(ops_reduce_operations) / sizeof(*ops_reduce_operations);
