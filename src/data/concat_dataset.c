/*
 * concat_dataset.c - several data sets one behind the other as one. Layer: data.
 *
 * Each set keeps its transform, which runs here, unless all have the same one: then it is the transform of the whole,
 * and a loader may run it in one pass (pipeline.c).
 */
#include <stdarg.h>
#include <stdlib.h>

#include "data/dataset.h"

enum { MOST_PARTS = 1024 };

typedef struct concat {
    int count;
    yk_dataset **parts; /* one reference to each */
    int64_t *ends;      /* samples of the parts up to and with each */
    bool transforms;    /* the parts' own run here */
} concat;

static void concat_destroy(void *context)
{
    concat *c = context;
    for (int i = 0; i < c->count; i++)
        yk_dataset_release(c->parts[i]);
    free(c->parts);
    free(c->ends);
    free(c);
}

/* The part that sample `*index` of the whole is in; *index becomes its place there. */
static yk_dataset *concat_part(const concat *c, int64_t *index)
{
    int low = 0, high = c->count - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (*index < c->ends[middle])
            high = middle;
        else
            low = middle + 1;
    }
    *index -= low ? c->ends[low - 1] : 0;
    return c->parts[low];
}

/* Runs a transform and the parts of a composition; *scales becomes true where one of them is of images. */
static yk_status transform_run(const yk_transform *t, yk_sample *sample, bool *scales)
{
    if (!t)
        return YK_OK;
    yk_status status = YK_OK;
    for (int i = 0; i < t->count && !status; i++)
        status = transform_run(t->items[i], sample, scales);
    if (t->kind == YK__TRANSFORM_COMPOSE || status)
        return status;
    *scales |= t->kind != YK__TRANSFORM_USER;
    status = t->apply(t, sample);
    return yk__error_code() ? yk__error_code() : status;
}

static yk_status concat_get(void *context, int64_t index, yk_sample *sample)
{
    const concat *c = context;
    yk_dataset *part = concat_part(c, &index);
    yk_status status = part->table.get(part->context, index, sample);
    if (status || yk__error_code() || !c->transforms)
        return status;
    bool scales = part->images;
    status = transform_run(part->transform, sample, &scales);
    return status || !scales || sample->dtype != YK_U8 ? status : yk__sample_to_float(sample);
}

static int64_t concat_label(void *context, int64_t index)
{
    yk_dataset *part = concat_part(context, &index);
    return yk_dataset_label(part, index);
}

static void concat_describe(void *context, int64_t index, char *text, size_t size)
{
    yk_dataset *part = concat_part(context, &index);
    yk_dataset_describe(part, index, text, size);
}

/* Takes the part in; false and an error where it has other classes than the first, whose table is that of the whole. */
static bool concat_add(concat *c, yk_dataset *part, int of)
{
    int i = c->count;
    if (!part) {
        yk__fail(YK_ERR_ARGUMENT, "concat_dataset: data set %d of %d is NULL", i, of);
        return false;
    }
    if (!yk__has_indices("concat_dataset", part))
        return false;
    const yk_dataset_table *first = i ? &c->parts[0]->table : &part->table;
    if (part->table.classes != first->classes) {
        yk__fail(YK_ERR_ARGUMENT, "concat_dataset: %s has %lld classes, and data set %d, %s, has %lld", first->name,
                 (long long)first->classes, i, part->table.name, (long long)part->table.classes);
        return false;
    }
    c->parts[i] = yk_dataset_retain(part);
    c->ends[i] = part->table.length + (i ? c->ends[i - 1] : 0);
    c->count++;
    c->transforms |= part->transform != c->parts[0]->transform || part->images != c->parts[0]->images;
    return true;
}

yk_dataset *yk_concat_dataset_counted(int count, ...)
{
    YK__OWN_RECORD;
    if (!yk__scope_check("concat_dataset"))
        return NULL;
    if (count < 1 || count > MOST_PARTS) {
        yk__fail(YK_ERR_ARGUMENT, "concat_dataset: %d data sets; expected 1 to %d", count, MOST_PARTS);
        return NULL;
    }
    concat *c = yk__calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->parts = yk__calloc((size_t)count, sizeof(yk_dataset *));
    c->ends = yk__calloc((size_t)count, sizeof(*c->ends));
    bool complete = c->parts && c->ends;
    va_list list;
    va_start(list, count);
    for (int i = 0; i < count && complete; i++) {
        yk_dataset *part = va_arg(list, yk_dataset *);
        complete = !yk__is_freed(part) && concat_add(c, part, count);
        if (yk__is_freed(part))
            yk__fail_freed("yk_concat_dataset", part);
    }
    va_end(list);
    if (!complete) {
        concat_destroy(c);
        return NULL;
    }
    const yk_dataset *first = c->parts[0];
    yk_dataset_table table = {.name = first->table.name,
                              .length = c->ends[count - 1],
                              .classes = first->table.classes,
                              .class_names = first->table.class_names,
                              .get = concat_get,
                              .label = concat_label,
                              .describe = concat_describe,
                              .destroy = concat_destroy};
    yk_transform *common = c->transforms ? NULL : first->transform;
    return first->images && !c->transforms ? yk__dataset_of_images(&table, c, common)
                                           : yk_dataset_create(&table, c, common);
}
