/*
 * subset.c - a part of a data set as a data set, its samples through another transform, and the deterministic choice of
 * parts at random and of a part to test on. Layer: data.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

enum { MOST_RANDOM_PARTS = 1 << 20 };

typedef struct subset {
    yk_dataset *base; /* one reference */
    int64_t *indices;
} subset;

static void subset_destroy(void *context)
{
    subset *s = context;
    yk_dataset_release(s->base);
    free(s->indices);
    free(s);
}

static yk_status subset_get(void *context, int64_t index, yk_sample *sample)
{
    const subset *s = context;
    return s->base->table.get(s->base->context, s->indices[index], sample);
}

static int64_t subset_label(void *context, int64_t index)
{
    const subset *s = context;
    return yk_dataset_label(s->base, s->indices[index]);
}

static void subset_describe(void *context, int64_t index, char *text, size_t size)
{
    const subset *s = context;
    yk_dataset_describe(s->base, s->indices[index], text, size);
}

yk_dataset *yk_subset(yk_dataset *dataset, const int64_t *indices, int64_t count)
{
    YK__LIVE(dataset);
    YK__OWN_RECORD;
    if (!yk__scope_check("subset") || !yk__is_there("subset", "data set", dataset) ||
        (count && !yk__is_there("subset", "list of indices", indices)) || !yk__has_indices("subset", dataset))
        return NULL;
    if (count < 0) {
        yk__fail(YK_ERR_ARGUMENT, "subset: the count is %lld", (long long)count);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) {
        if (indices[i] < 0 || indices[i] >= dataset->table.length) {
            yk__fail(YK_ERR_ARGUMENT, "subset: index %lld of %lld is %lld, and %s has %lld samples", (long long)i,
                     (long long)count, (long long)indices[i], dataset->table.name, (long long)dataset->table.length);
            return NULL;
        }
    }
    subset *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->indices = yk__calloc((size_t)count + 1, sizeof(*s->indices));
    if (!s->indices) {
        free(s);
        return NULL;
    }
    if (count)
        memcpy(s->indices, indices, (size_t)count * sizeof(*indices));
    s->base = yk_dataset_retain(dataset);
    yk_dataset_table table = dataset->table;
    table.length = count;
    table.get = subset_get;
    table.label = subset_label;
    table.describe = subset_describe;
    table.destroy = subset_destroy;
    return dataset->images ? yk__dataset_of_images(&table, s, dataset->transform)
                           : yk_dataset_create(&table, s, dataset->transform);
}

/* ---- another transform ------------------------------------------------------------------------------------------- */

static void base_release(void *context)
{
    yk_dataset_release(context);
}

static yk_status base_get(void *context, int64_t index, yk_sample *sample)
{
    const yk_dataset *base = context;
    return base->table.get(base->context, index, sample);
}

static int64_t base_label(void *context, int64_t index)
{
    return yk_dataset_label(context, index);
}

static void base_describe(void *context, int64_t index, char *text, size_t size)
{
    yk_dataset_describe(context, index, text, size);
}

yk_dataset *yk_dataset_with_transform(yk_dataset *dataset, yk_transform *transform)
{
    YK__LIVE(dataset);
    YK__LIVE(transform);
    YK__OWN_RECORD;
    if (!yk__scope_check("dataset_with_transform") || !yk__is_there("dataset_with_transform", "data set", dataset) ||
        yk__transform_lost(transform) || !yk__has_indices("dataset_with_transform", dataset))
        return NULL;
    yk_dataset_table table = dataset->table;
    table.get = base_get;
    table.label = base_label;
    table.describe = base_describe;
    table.destroy = base_release;
    yk_dataset *base = yk_dataset_retain(dataset);
    return dataset->images ? yk__dataset_of_images(&table, base, transform)
                           : yk_dataset_create(&table, base, transform);
}

/* ---- parts at random --------------------------------------------------------------------------------------------- */

/* The sizes of the parts for a set of `length` samples, by numbers of samples or, where those sum to 1, by fractions:
 * their floors, and one sample more for the first parts until all are given out. */
static yk_status part_sizes(const double *lengths, int count, int64_t length, int64_t *sizes)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        if (!(lengths[i] >= 0))
            return yk__fail(YK_ERR_ARGUMENT, "random_split: length %d of %d is %g", i, count, lengths[i]);
        sum += lengths[i];
    }
    bool fractions = fabs(sum - 1) <= 1e-9 && length != 1;
    int64_t given = 0;
    for (int i = 0; i < count; i++) {
        if (!fractions && lengths[i] != floor(lengths[i]))
            return yk__fail(
                YK_ERR_ARGUMENT,
                "random_split: length %d of %d is %g, and all sum to %g; expected numbers of samples that sum "
                "to %lld, or fractions that sum to 1",
                i, count, lengths[i], sum, (long long)length);
        sizes[i] = (int64_t)(fractions              ? floor((double)length * lengths[i])
                             : lengths[i] <= 0x1p40 ? lengths[i]
                                                    : 0x1p40);
        given += sizes[i];
    }
    for (int i = 0; fractions && given < length; i = (i + 1) % count, given++)
        sizes[i]++;
    return given == length
               ? YK_OK
               : yk__fail(YK_ERR_ARGUMENT, "random_split: the lengths sum to %lld, and %lld samples are there",
                          (long long)given, (long long)length);
}

yk_status yk_random_split(yk_dataset *dataset, const double *lengths, int count, uint64_t seed, yk_dataset **parts)
{
    YK__LIVE(dataset);
    YK__OWN_RECORD;
    if (!yk__is_there("random_split", "data set", dataset) ||
        !yk__is_there("random_split", "array of lengths", lengths) ||
        !yk__is_there("random_split", "array of parts", parts) || !yk__has_indices("random_split", dataset))
        return YK_ERR_ARGUMENT;
    if (count < 1 || count > MOST_RANDOM_PARTS)
        return yk__fail(YK_ERR_ARGUMENT, "random_split: %d parts; expected 1 to %d", count, MOST_RANDOM_PARTS);
    int64_t length = dataset->table.length, *sizes = yk__calloc((size_t)count, sizeof(*sizes)),
            *order = yk__calloc((size_t)length + 1, sizeof(*order));
    yk_status status = sizes && order ? part_sizes(lengths, count, length, sizes) : YK_ERR_MEMORY;
    if (!status) {
        yk__random_permutation((yk__stream){.key = seed, .purpose = YK__RANDOM_SPLIT}, order, length);
        int64_t from = 0;
        for (int i = 0; i < count; from += sizes[i++]) {
            parts[i] = yk_subset(dataset, order + from, sizes[i]);
            if (!parts[i])
                status = yk__error_code();
        }
    }
    free(sizes);
    free(order);
    return status;
}

/* ---- a part to test on ------------------------------------------------------------------------------------------- */

/* A sample on its way to one of the two parts: those of a class with the smallest draws are held out. */
typedef struct draw {
    int64_t label, index;
    uint32_t random;
} draw;

static int compare_draws(const void *a, const void *b)
{
    const draw *x = a, *y = b;
    if (x->label != y->label)
        return x->label < y->label ? -1 : 1;
    if (x->random != y->random)
        return x->random < y->random ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int compare_indices(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Marks what is held out: of each class its share, rounded, and at least one sample where it has two. */
static int64_t mark_held_out(draw *draws, int64_t count, double fraction)
{
    int64_t held = 0;
    for (int64_t from = 0, to; from < count; from = to) {
        for (to = from; to < count && draws[to].label == draws[from].label;)
            to++;
        int64_t size = to - from, share = (int64_t)floor((double)size * fraction + 0.5);
        share = share < 1 && size > 1 ? 1 : share >= size && size > 0 ? size - 1 : share;
        for (int64_t i = from; i < to; i++)
            draws[i].random = i - from < share;
        held += share;
    }
    return held;
}

yk_status yk__dataset_split(const yk_dataset *dataset, double fraction, uint64_t seed, yk__split *split)
{
    int64_t count = dataset->table.length;
    *split = (yk__split){0};
    draw *draws = yk__calloc((size_t)count + 1, sizeof(*draws));
    split->indices = yk__calloc((size_t)count + 1, sizeof(*split->indices));
    if (!draws || !split->indices) {
        free(draws);
        free(split->indices);
        split->indices = NULL;
        return YK_ERR_MEMORY;
    }
    for (int64_t i = 0; i < count; i++) {
        uint32_t words[4];
        yk__philox((yk__stream){.key = seed, .purpose = YK__RANDOM_SPLIT}, (uint64_t)i, words);
        draws[i] = (draw){.label = yk_dataset_label(dataset, i), .index = i, .random = words[0]};
    }
    qsort(draws, (size_t)count, sizeof(*draws), compare_draws);
    split->held = mark_held_out(draws, count, fraction);
    split->kept = count - split->held;
    int64_t kept = 0, held = split->kept;
    for (int64_t i = 0; i < count; i++)
        split->indices[draws[i].random ? held++ : kept++] = draws[i].index;
    free(draws);
    qsort(split->indices, (size_t)split->kept, sizeof(*split->indices), compare_indices);
    qsort(split->indices + split->kept, (size_t)split->held, sizeof(*split->indices), compare_indices);
    return YK_OK;
}
