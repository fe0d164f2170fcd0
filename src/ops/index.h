/*
 * index.h - reading and writing through index tensors, for all operations of that kind (index_map.c). Layer: ops.
 */
#ifndef YOKE_OPS_INDEX_H_
#define YOKE_OPS_INDEX_H_

#include "ops/op.h"

/*
 * The elements of x that the result has. Index tensor k stands for the dimensions [dim, dim + span) of x, which have
 * the strides of one dimension where span is not 1. Either the index tensors, broadcast together to index_ndim
 * dimensions, put those at `at` among the rest of x's; or (`along`) there is one, of the result's shape, which replaces
 * the coordinate of its dimension.
 */
typedef struct yk__index_map {
    const char *name; /* of the operation; static */
    bool wrap, along;
    int8_t count, at, index_ndim, ndim;
    struct {
        int8_t dim, span;
        int8_t named; /* the name of dim in errors: where x is a view of the caller's tensor, the dimension of that */
    } of[YK_MAX_DIMS];
    int64_t shape[YK_MAX_DIMS]; /* of the result */
} yk__index_map;

/* The only index tensor of a map stands for one dimension. */
static inline void yk__index_map_one(yk__index_map *map, int dim)
{
    map->count = 1;
    map->of[0].dim = map->of[0].named = (int8_t)dim;
    map->of[0].span = 1;
}
/* x[count index tensors of i64 in map->of]: broadcasts them and fills the rest of the map. */
yk_status yk__index_map_fit(yk__index_map *map, const yk_tensor *x, yk_tensor *const *index);
/* The map of gather and scatter. */
yk_status yk__index_map_along(yk__index_map *map, const char *name, const yk_tensor *x, int dim,
                              const yk_tensor *index);

/* The operation: reads, records. `op` must have the backwards of YK__INDEX_READ. */
yk_tensor *yk__index_read(const yk__op *op, yk_tensor *x, const yk__index_map *map, yk_tensor *const *index);
yk_status yk__index_read_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads);
void yk__index_read_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);
void yk__index_read_describe(const void *context, yk__attributes *to);
#define YK__INDEX_READ                                                                                                 \
    .backward = yk__index_read_backward, .recorded = yk__index_read_recorded, .describe = yk__index_read_describe
/* The operation in place on x, after yk__in_place_begin. `value` broadcasts to the map's shape, after leading sizes of
 * 1 beyond it. `op` must have the backwards of YK__INDEX_PUT. */
yk_status yk__index_put(const yk__op *op, yk_tensor *x, const yk__index_map *map, yk_tensor *const *index,
                        yk_tensor *value, bool accumulate);
yk_status yk__index_put_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads);
void yk__index_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);
#define YK__INDEX_PUT .backward = yk__index_put_backward, .recorded = yk__index_put_recorded

/* True if the dimensions [first, first + span) of x have the strides of a single dimension; *stride is its stride. */
bool yk__even_stride(const yk_tensor *x, int first, int span, int64_t *stride);
/* An index tensor as i64, retained; an error in the name of `name` for other dtypes than i64 and i32. */
yk_tensor *yk__index_tensor(const char *name, yk_tensor *index);
/* Fails unless every index, of i64 or i32, is one into dimension `dim` of that size: where the result has no elements,
 * so that no kernel looks at them, and PyTorch does. */
yk_status yk__index_check(const char *name, yk_tensor *index, int dim, int64_t size);

/* x = mask ? value : x in place, after yk__put_begin. mask, of bool, broadcasts to x; value is a tensor of one element
 * of x's dtype, which gets no gradient. `op` must have the backwards of YK__MASKED_PUT. */
yk_status yk__masked_put(const yk__op *op, yk_tensor *x, yk_tensor *mask, yk_tensor *value);
yk_status yk__masked_put_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads);
void yk__masked_put_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads);
#define YK__MASKED_PUT .backward = yk__masked_put_backward, .recorded = yk__masked_put_recorded

/* yk_index for another operation, which errors then name. */
yk_tensor *yk__index_as(const char *name, yk_tensor *x, const yk_index_item *items, int count);
/* The positions of what is not 0 in x: (dimensions, count) of i64 in C order. One reference. */
yk_tensor *yk__raw_nonzero(yk_tensor *x);
/* Fails unless a value broadcasts to the part of that shape; *leading: its sizes of 1 beyond the part's dimensions. */
yk_status yk__index_fits_value(const char *name, int ndim, const int64_t *shape, const yk_tensor *value, int *leading);
/* index_put_ without index tensors: x = value, which broadcasts, or x += value. */
yk_tensor *yk__put_whole(yk_tensor *x, yk_tensor *value, bool accumulate);
/* The checks of functions in place: freed tensors, NULLs, devices. No scope is needed. */
bool yk__put_begin(const char *name, int n_inputs, yk_tensor *const *inputs);

#endif
