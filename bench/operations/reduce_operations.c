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
OVER_DIMS(flip, yk_flip(x, dims, n))

#define OF_ONE(name, call)                                                                                             \
    static yk_tensor *name(ops_subject *s)                                                                             \
    {                                                                                                                  \
        yk_tensor *x = s->in[0];                                                                                       \
        return call;                                                                                                   \
    }
OF_ONE(prod, yk_prod(x))
OF_ONE(max, yk_max(x))
OF_ONE(argmax, yk_argmax(x, ops_dim(s), false))
OF_ONE(argmin, yk_argmin(x, ops_dim(s), false))

/* ---- order, counts, distances ---- */

OF_ONE(cumprod, yk_cumprod(x, ops_dim(s)))
OF_ONE(argsort, yk_argsort(x, ops_dim(s), false))
OF_ONE(quantile, yk_quantile(x, ops_text_number(s->text, "q", 0.5), ops_dim(s), false))

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

static yk_tensor *one_hot(ops_subject *s)
{
    return yk_one_hot(s->index, ops_whole(s, "bins", 1));
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

OF_ONE(multinomial, yk_multinomial(x, ops_whole(s, "rows", 1), ops_whole(s, "replacement", 0) != 0))

/* ---- repeated, rolled, parts ---- */

OF_ONE(roll, yk_roll(x, ops_whole(s, "shift", 1), ops_dim(s)))
OF_ONE(tril, yk_tril(x, 0))
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
};
const int ops_reduce_operation_count = sizeof(ops_reduce_operations) / sizeof(*ops_reduce_operations);
