/*
 * embedding_bag.c - means, sums and maxima of rows of a table. Layer: ops.
 *
 * A kernel adds up the rows of each bag, where the device has it. Else, and for what it does not know, they are looked
 * up by yk_embedding, which knows gradients by rows, and added up by the number of the bag that each is in; maxima are
 * taken over bags that are filled up to the longest one. Rows of the padding are 0 in a sum, and -INFINITY in a
 * maximum.
 */
#include <math.h>
#include <stdlib.h>

#include "ops/index.h"

static const char name[] = "embedding_bag";

/* The operands of one call: the index as a list of M, and either its rows of equal length or offsets. */
typedef struct bags {
    yk_tensor *list;       /* (M), i64 */
    yk_tensor *kept;       /* (M), bool: no padding; NULL: all are kept */
    yk_tensor *offsets;    /* (B), i64; NULL: B rows of `length` */
    int64_t count, length; /* B; the length of a bag, or of the longest one for maxima */
} bags;

static bool whole_check(const char *role, const yk_tensor *x)
{
    if (x->dtype == YK_I64 || x->dtype == YK_I32)
        return true;
    yk__fail(YK_ERR_DTYPE, "%s: %s is %s, expected int64 or int32", name, role, yk_dtype_name((yk_dtype)x->dtype));
    return false;
}

static bool shapes_check(const yk_tensor *index, const yk_tensor *weight, const yk_embedding_bag_options *o)
{
    char a[200], b[200];
    const yk_tensor *offsets = o->offsets, *factors = o->per_sample_weights;
    if (weight->ndim != 2 || index->ndim < 1 || index->ndim > 2) {
        yk__fail(YK_ERR_SHAPE, "%s: index %s and weight %s, expected (B, N) or (M) and (V, D)", name,
                 yk_shape_format(index, a, sizeof(a)), yk_shape_format(weight, b, sizeof(b)));
        return false;
    }
    if (index->ndim == 2 && (offsets || o->include_last_offset)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: each row of index %s is a bag; offsets are for an index of one dimension", name,
                 yk_shape_format(index, a, sizeof(a)));
        return false;
    }
    if (index->ndim == 1 && (!offsets || offsets->ndim != 1 || (o->include_last_offset && !offsets->numel))) {
        yk__fail(YK_ERR_SHAPE, "%s: index %s has bags by offsets of one dimension%s, got %s", name,
                 yk_shape_format(index, a, sizeof(a)), o->include_last_offset ? ", the last one included" : "",
                 offsets ? yk_shape_format(offsets, b, sizeof(b)) : "none");
        return false;
    }
    if (factors && !yk_same_shape(factors, index)) {
        yk__fail(YK_ERR_SHAPE, "%s: per_sample_weights %s, expected the shape of index, %s", name,
                 yk_shape_format(factors, a, sizeof(a)), yk_shape_format(index, b, sizeof(b)));
        return false;
    }
    return true;
}

/* The host reads offsets that are on a CPU. */
static bool offsets_check(yk_tensor *offsets, int64_t length, bool last)
{
    int64_t before = 0;
    for (int64_t i = 0; i < offsets->numel && yk__device_of(offsets).type == YK_CPU; i++) {
        const char *at = (const char *)offsets->data + i * offsets->stride[0] * (offsets->dtype == YK_I64 ? 8 : 4);
        int64_t now =
            offsets->dtype == YK_I64 ? *(const int64_t *)(const void *)at : *(const int32_t *)(const void *)at;
        if (now < before || now > length || (i == 0 && now != 0)) {
            yk__fail(YK_ERR_ARGUMENT, "%s: offset %lld is %lld, expected %s%lld%s", name, (long long)i, (long long)now,
                     i ? "one from " : "", (long long)before, i ? " to the length of index" : "");
            return false;
        }
        before = now;
    }
    if (!last || yk__device_of(offsets).type != YK_CPU || before == length)
        return true;
    yk__fail(YK_ERR_ARGUMENT, "%s: the last offset is %lld, expected the length of index, %lld", name,
             (long long)before, (long long)length);
    return false;
}

/* Sums of the items (M) or (M,D) of each bag: (B) or (B,D). */
static yk_tensor *sums_of(const bags *b, yk_tensor *items)
{
    if (!items)
        return NULL;
    int64_t width = items->ndim == 2 ? items->shape[1] : 1;
    if (!b->offsets) {
        const int inner = 1;
        const int64_t shape[3] = {b->count, b->length, width};
        return yk_sum_dims(yk_reshape(items, items->ndim + 1, shape), &inner, 1, false);
    }
    yk__tensor_spec spec = {.dtype = items->dtype, .ndim = items->ndim, .shape = {b->count, width}};
    yk__contiguous_strides(spec.ndim, spec.shape, spec.stride);
    yk_tensor *positions = yk__scope_own(yk__raw_positions(items->shape[0], 1, yk__device_of(items)));
    yk_tensor *bag = yk_sub_scalar(yk_searchsorted(b->offsets, positions, true), 1);
    return yk_index_add_(yk__recorded_zeros(&spec, yk__device_of(items)), 0, bag, items, 1);
}

/* 1 where the list has no padding, else 0. */
static yk_tensor *ones_of(const bags *b, const yk_tensor *rows)
{
    const yk_tensor_options like =
        *YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)rows->dtype, .device = yk__device_of(rows));
    yk_tensor *ones = yk_ones(1, &b->list->shape[0], &like);
    return b->kept ? yk__recorded_where(b->kept, ones) : ones;
}

/* The maxima of rows (M,D) in each bag; 0 for an empty one. */
static yk_tensor *maxima_of(const bags *b, yk_tensor *rows)
{
    const int inner = 1;
    const int64_t shape[3] = {b->count, b->length, rows->shape[1]};
    yk_tensor *kept = b->kept;
    if (!b->count || !b->length)
        return sums_of(b, rows); /* without a row: zeros */
    if (b->offsets) {
        yk_device device = yk__device_of(rows);
        yk_tensor *steps = yk_squeeze(yk__scope_own(yk__raw_positions(b->length, 2, device)), 1);
        yk_tensor *at = yk_add(yk_unsqueeze(b->offsets, 1), steps);
        yk_tensor *last = yk_full(1, (int64_t[]){1}, (double)rows->shape[0],
                                  YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = device));
        yk_tensor *ends =
            b->count > 1 ? yk_cat((yk_tensor *[]){yk_narrow(b->offsets, 0, 1, b->count - 1), last}, 2, 0) : last;
        yk_tensor *inside = yk_reshape(yk_lt(at, yk_unsqueeze(ends, 1)), 1, (int64_t[]){-1});
        at = yk_reshape(yk_clamp(at, 0, (double)(rows->shape[0] - 1)), 1, (int64_t[]){-1});
        kept = kept ? yk_logical_and(inside, yk_index_select(kept, 0, at)) : inside;
        rows = yk_index_select(rows, 0, at);
    }
    yk_tensor *filled = yk_reshape(rows, 3, shape);
    if (!kept)
        return yk_max_dim(filled, 1, false, NULL);
    kept = yk_reshape(kept, 2, shape);
    yk_tensor *least = filled ? yk__recorded_number(filled, -INFINITY) : NULL;
    yk_tensor *most = yk_max_dim(yk_where(yk_unsqueeze(kept, 2), filled, least), 1, false, NULL);
    return yk__recorded_where(yk_any_dims(kept, &inner, 1, true), most);
}

/* The length of the longest bag of offsets; the host waits for it. -1 on failure. */
static int64_t longest_of(yk_tensor *offsets, int64_t length)
{
    yk_tensor *at = yk_contiguous(offsets);
    int64_t count = offsets->numel, most = 0;
    int64_t *all = yk__calloc((size_t)count + 1, sizeof(*all));
    if (!at || !all || (count && yk_tensor_read(at, all, (size_t)count * sizeof(*all))))
        most = -1;
    for (int64_t i = 0; i < count && most >= 0; i++) {
        int64_t size = (i + 1 < count ? all[i + 1] : length) - all[i];
        most = size > most ? size : most;
    }
    free(all);
    return most;
}

/* ---- sums and means by a kernel ---- */

typedef struct bag_context {
    yk__tensor_spec weight;
    int64_t padding;
    bool mean;
} bag_context;

/* Each row that was summed gets the gradient of its bag, over the number of rows where they are means. */
static void summed_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const bag_context *c = yk__context(node);
    yk_tensor *list = yk__saved_in_graph(node, 1), *ends = yk__saved_in_graph(node, 2), *g = gouts[0];
    if (!list || !ends)
        return;
    yk_device device = yk__device_of(list);
    yk_tensor *positions = yk__scope_own(yk__raw_positions(list->shape[0], 1, device));
    yk_tensor *bag = yk_searchsorted(ends, positions, true);
    yk_tensor *kept = c->padding >= 0 ? yk_ne_scalar(list, (double)c->padding) : NULL;
    if (c->mean) {
        const yk_tensor_options like = *YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)g->dtype, .device = device);
        yk_tensor *ones = yk_ones(1, list->shape, &like), *none = yk_zeros(1, ends->shape, &like);
        yk_tensor *count = yk_index_add_(none, 0, bag, kept ? yk__recorded_where(kept, ones) : ones, 1);
        g = yk_div(g, yk_unsqueeze(yk_clamp(count, 1, INFINITY), 1));
    }
    yk_tensor *rows = yk_index_select(g, 0, bag);
    if (kept)
        rows = yk__recorded_where(yk_unsqueeze(kept, 1), rows);
    grads[0] = yk_index_add_(yk__recorded_zeros(&c->weight, device), 0, list, rows, 1);
}

/* True if a kernel makes the result, whose gradient then has the whole table's size. */
static bool summed_at_once(yk_tensor *weight, const yk_embedding_bag_options *o)
{
    return o->mode != YK_BAG_MAX && !o->sparse && !o->per_sample_weights && !yk__listening &&
           !yk__is_half((yk_dtype)weight->dtype) && yk__backend_for(weight)->embedding_bag;
}

static yk_tensor *summed(const bags *b, yk_tensor *weight, int64_t padding, bool mean)
{
    static const yk__op op = {.name = "embedding_bag", .recorded = summed_recorded};
    const int64_t shape[2] = {b->count, weight->shape[1]}, all = b->list->shape[0];
    yk_tensor *last = yk_full(YK_SHAPE(1), (double)all,
                              YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(weight)));
    yk_tensor *ends = last;
    if (!b->offsets) {
        ends = yk_arange(1, (double)b->count + 1, 1,
                         YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(weight)));
        ends = yk_mul_scalar(ends, (double)b->length);
    } else if (b->count != 1) {
        ends = b->count ? yk_cat((yk_tensor *[]){yk_narrow(b->offsets, 0, 1, b->count - 1), last}, 2, 0) : b->offsets;
    }
    yk_tensor *out = ends ? yk__tensor_new(2, shape, NULL, (yk_dtype)weight->dtype, yk__device_of(weight)) : NULL;
    if (out && out->numel) {
        yk__view vo = yk__view_of(out), vw = yk__view_of(weight), vi = yk__view_of(b->list), ve = yk__view_of(ends);
        out = yk__tensor_if_ok(out, YK__SLOT(out, embedding_bag, &vo, &vw, &vi, &ve, padding, mean));
    }
    bag_context c = {yk__spec_of(weight), padding, mean};
    yk_tensor *inputs[3] = {weight, b->list, ends};
    return yk__record(out, &op, 3, inputs, 3, (yk_tensor *[]){NULL, b->list, ends}, &c, sizeof(c));
}

static yk_tensor *bagged(yk_tensor *index, yk_tensor *weight, const yk_embedding_bag_options *o, int64_t padding)
{
    const int64_t all = index->numel;
    bags b = {.list = yk_cast(yk_reshape(index, 1, &all), YK_I64), .count = index->shape[0]};
    if (!b.list)
        return NULL;
    if (index->ndim == 2) {
        b.length = index->shape[1];
    } else {
        b.offsets = yk_cast(o->offsets, YK_I64);
        b.count = o->offsets->numel - o->include_last_offset;
        if (b.offsets && o->include_last_offset)
            b.offsets = yk_narrow(b.offsets, 0, 0, b.count);
        if (!b.offsets || (o->mode == YK_BAG_MAX && (b.length = longest_of(b.offsets, all)) < 0))
            return NULL;
    }
    if (summed_at_once(weight, o))
        return summed(&b, weight, padding, o->mode == YK_BAG_MEAN);
    yk_tensor *rows = o->sparse ? yk_embedding_sparse(b.list, weight, padding) : yk_embedding(b.list, weight, padding);
    rows = yk__recorded_wide(rows);
    if (!rows)
        return NULL;
    if (padding >= 0)
        b.kept = yk_ne_scalar(b.list, (double)padding);
    yk_tensor *out = NULL;
    if (o->mode == YK_BAG_MAX) {
        out = maxima_of(&b, rows);
    } else {
        if (o->per_sample_weights)
            rows = yk_mul(rows, yk_unsqueeze(yk__recorded_wide(yk_reshape(o->per_sample_weights, 1, &all)), 1));
        if (b.kept)
            rows = yk__recorded_where(yk_unsqueeze(b.kept, 1), rows);
        out = sums_of(&b, rows);
        if (out && o->mode == YK_BAG_MEAN)
            out = yk_div(out, yk_unsqueeze(yk_clamp(sums_of(&b, ones_of(&b, rows)), 1, INFINITY), 1));
    }
    return out ? yk_cast(out, (yk_dtype)weight->dtype) : NULL;
}

yk_tensor *yk_embedding_bag(yk_tensor *index, yk_tensor *weight, const yk_embedding_bag_options *options)
{
    yk_embedding_bag_options o;
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, "embedding_bag");
    if (YK__OPTIONS_TAKE(name, yk_embedding_bag_options, options, &o))
        return NULL;
    yk_tensor *inputs[4] = {index, weight, o.offsets, o.per_sample_weights};
    if (!yk__op_begin(name, 4, inputs, 1u << 2 | 1u << 3) || !shapes_check(index, weight, &o) ||
        !whole_check("index", index) || (o.offsets && !whole_check("offsets", o.offsets)) ||
        yk__expect_floating(name, "weight", weight) ||
        yk__expect_dtype(name, "per_sample_weights", o.per_sample_weights, (yk_dtype)weight->dtype))
        return NULL;
    if ((unsigned)o.mode > YK_BAG_MAX) {
        yk__fail(YK_ERR_ARGUMENT, "%s: mode %d is none of mean, sum and max", name, (int)o.mode);
        return NULL;
    }
    if (o.per_sample_weights && o.mode != YK_BAG_SUM) {
        yk__fail(YK_ERR_ARGUMENT, "%s: per_sample_weights are for sums, YK_BAG_SUM", name);
        return NULL;
    }
    int64_t rows = weight->shape[0];
    int64_t padding = o.padding_idx == YK_NOT_GIVEN ? -1 : o.padding_idx < 0 ? o.padding_idx + rows : o.padding_idx;
    if (o.padding_idx != YK_NOT_GIVEN && (padding < 0 || padding >= rows)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: padding_idx %lld is outside weight %s", name, (long long)o.padding_idx,
                 yk_shape_format(weight, text, sizeof(text)));
        return NULL;
    }
    if (o.offsets && !offsets_check(o.offsets, index->numel, o.include_last_offset))
        return NULL;
    YK__WITHIN_SCOPE(bagged(index, weight, &o, padding));
}
