/*
 * yoke/ops_index.h - parts of tensors: indexing, gathering, scattering, masks. Layer: ops.
 *
 * As in ops.h, which includes this file. Index tensors are i64 or i32 (uint8 is neither index nor mask: cast it), masks
 * are bool. An index outside its dimension is an error that names index, dimension and size. Where several indices name
 * one position, accumulation adds in the order of the indices, and the last of several writes wins, for any number of
 * threads.
 */
#ifndef YOKE_OPS_INDEX_H
#define YOKE_OPS_INDEX_H

#include <yoke/autograd.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The items between the brackets of x[...], made by the functions below and listed with YK_INDEX:
 *
 *     yk_index(x, YK_INDEX(yk_at(-1), yk_range(1, YK_END), yk_by(rows)))      x[-1, 1:, rows]
 *
 * The rules are PyTorch's. Fewer items than dimensions select all of the last ones. Index tensors broadcast together;
 * where they are adjacent (integers are taken first and do not count) their dimensions replace the ones they index,
 * else they come first. A mask of k dimensions covers k of x, of its sizes, and counts as the positions where it is
 * true.
 */
typedef enum yk_index_kind {
    YK_INDEX_SLICE,
    YK_INDEX_INTEGER,
    YK_INDEX_NEWAXIS,
    YK_INDEX_ELLIPSIS,
    YK_INDEX_TENSOR
} yk_index_kind;
typedef struct yk_index_item {
    yk_index_kind kind;
    int64_t start, stop, step; /* a slice; an integer is `start` */
    yk_tensor *tensor;         /* borrowed */
} yk_index_item;

/* i: one element; the dimension is removed. */
static inline yk_index_item yk_at(int64_t i)
{
    yk_index_item item = {YK_INDEX_INTEGER, i, 0, 1, NULL};
    return item;
}
/* start:stop and start:stop:step; negative ones count from the end, YK_END is the end, step >= 1. */
static inline yk_index_item yk_range_step(int64_t start, int64_t stop, int64_t step)
{
    yk_index_item item = {YK_INDEX_SLICE, start, stop, step, NULL};
    return item;
}
static inline yk_index_item yk_range(int64_t start, int64_t stop)
{
    return yk_range_step(start, stop, 1);
}
/* : */
static inline yk_index_item yk_every(void)
{
    return yk_range_step(0, INT64_MAX, 1);
}
/* None: a new dimension of size 1. */
static inline yk_index_item yk_newaxis(void)
{
    yk_index_item item = {YK_INDEX_NEWAXIS, 0, 0, 1, NULL};
    return item;
}
/* ...: all elements of as many dimensions as are left. Once. */
static inline yk_index_item yk_ellipsis(void)
{
    yk_index_item item = {YK_INDEX_ELLIPSIS, 0, 0, 1, NULL};
    return item;
}
/* An index tensor or a mask. */
static inline yk_index_item yk_by(yk_tensor *tensor)
{
    yk_index_item item = {YK_INDEX_TENSOR, 0, 0, 1, tensor};
    return item;
}
#ifdef __cplusplus
} /* templates are C++ */
struct yk__index_items {
    yk_index_item items[32];
};
extern "C" {
#define YK_INDEX(...) yk__index_items{{__VA_ARGS__}}.items, (int)sizeof(yk__measure(__VA_ARGS__))
#else
#define YK_INDEX(...)                                                                                                  \
    (yk_index_item[]){__VA_ARGS__}, (int)(sizeof((yk_index_item[]){__VA_ARGS__}) / sizeof(yk_index_item))
#endif

/* x[items]: a view where there is neither index tensor (of one dimension or more) nor mask, else a copy. */
YK_API yk_tensor *yk_index(yk_tensor *x, const yk_index_item *items, int count);
/* x[items] = value, or += with `accumulate`; gives x, borrowed. value broadcasts to the shape of yk_index's result, and
 * has x's dtype unless it is 0-dimensional or there are no index tensors. */
YK_API yk_tensor *yk_index_put_(yk_tensor *x, const yk_index_item *items, int count, yk_tensor *value, bool accumulate);

/* Slices of x along a dimension by index (N), or one by an index without dimensions; not negative. */
YK_API yk_tensor *yk_index_select(yk_tensor *x, int dim, yk_tensor *index);
/* x[:, index] += alpha source, here for dim 1; source is like x, with N at dim. */
YK_API yk_tensor *yk_index_add_(yk_tensor *x, int dim, yk_tensor *index, yk_tensor *source, double alpha);
/* out[i][j] = x[index[i][j]][j], here for dim 0: of index's shape, which is nowhere larger than x but along dim; not
 * negative. torch.gather; yk_gather is a collective. */
YK_API yk_tensor *yk_gather_dim(yk_tensor *x, int dim, yk_tensor *index);
/* x[index[i][j]][j] = source[i][j], here for dim 0, or += : source has x's dtype and is nowhere smaller than index, and
 * index nowhere larger than x but along dim. torch.scatter_ and scatter_add_. */
YK_API yk_tensor *yk_scatter_dim_(yk_tensor *x, int dim, yk_tensor *index, yk_tensor *source);
YK_API yk_tensor *yk_scatter_dim_value_(yk_tensor *x, int dim, yk_tensor *index, double value);
YK_API yk_tensor *yk_scatter_add_(yk_tensor *x, int dim, yk_tensor *index, yk_tensor *source);
/* Elements of x as if it had one dimension, in index's shape; negative ones count from the end. */
YK_API yk_tensor *yk_take(yk_tensor *x, yk_tensor *index);
/* As yk_gather_dim, where x and index broadcast together but for dim, and negative indices count from the end. */
YK_API yk_tensor *yk_take_along_dim(yk_tensor *x, yk_tensor *index, int dim);
/* The elements of x where mask is true, in C order, after both were broadcast together: (N). */
YK_API yk_tensor *yk_masked_select(yk_tensor *x, yk_tensor *mask);
/* x with `value` where mask, broadcast to x, is true; and in place. */
YK_API yk_tensor *yk_masked_fill(yk_tensor *x, yk_tensor *mask, double value);
YK_API yk_tensor *yk_masked_fill_(yk_tensor *x, yk_tensor *mask, double value);
/* The positions of the elements that are not zero, in C order: (N, dimensions of x), i64; no gradient. */
YK_API yk_tensor *yk_nonzero(yk_tensor *x);

#ifdef __cplusplus
}
#endif
#endif
