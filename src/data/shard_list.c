/*
 * shard_list.c - tar archives in WebDataset's layout as a set with indices. Layer: data.
 *
 * The archives' headers are read when the set is opened, so samples have numbers, in the order of the archives, and
 * labels; a sample is decoded when it is asked for. Invariant: all archives stay mapped, and each entry's bytes lie in
 * its own (Note [Places in shards]).
 */
#include <stdlib.h>
#include <string.h>

#include "data/shards.h"

/* A sample, in little memory: its fields are in shard_list.spots. */
typedef struct entry {
    yk__shard *from;
    size_t header;
    char *key;
    int64_t label; /* -1: there is none */
} entry;

typedef struct member {
    const unsigned char *data;
    size_t length;
    int choice;
} member;

typedef struct shard_list {
    yk__shards_names files;
    yk__shards_fields fields;
    entry *entries;
    member *members; /* fields.count of each entry */
    int64_t count, capacity;
    int64_t classes;
    bool labelled; /* the second field is a whole number in all samples */
} shard_list;

/* The whole sample, as it was walked over. */
static yk__shards_spot spot_of(const shard_list *s, int64_t index)
{
    const entry *e = &s->entries[index];
    yk__shards_spot spot = {.from = e->from, .header = e->header, .key = e->key};
    for (int i = 0; i < s->fields.count; i++) {
        const member *m = &s->members[index * s->fields.count + i];
        spot.fields[i].data = m->data;
        spot.fields[i].length = m->length;
        spot.fields[i].choice = m->choice;
    }
    return spot;
}

static void list_destroy(void *context)
{
    shard_list *s = context;
    for (int64_t i = 0; i < s->count; i++) {
        yk__shards_spot spot = {.from = s->entries[i].from, .key = s->entries[i].key};
        yk__shards_spot_clear(&spot);
    }
    free(s->entries);
    free(s->members);
    yk__shards_names_clear(&s->files);
    yk__shards_fields_clear(&s->fields);
    free(s);
}

static yk_status list_grow(shard_list *s)
{
    if (s->count < s->capacity)
        return YK_OK;
    int64_t capacity = s->capacity ? 2 * s->capacity : 1024;
    entry *entries = yk__realloc(s->entries, (size_t)capacity * sizeof(*entries));
    if (!entries)
        return YK_ERR_MEMORY;
    s->entries = entries;
    member *members = yk__realloc(s->members, (size_t)(capacity * s->fields.count) * sizeof(*members));
    if (!members)
        return YK_ERR_MEMORY;
    s->members = members;
    s->capacity = capacity;
    return YK_OK;
}

/* The class that a sample's second field tells. */
static yk_status take_label(shard_list *s, const yk__shards_spot *spot, int64_t *label)
{
    *label = -1;
    if (!s->labelled)
        return YK_OK;
    const yk__shards_choice *c = &s->fields.choices[spot->fields[1].choice];
    yk_status status = yk__shards_integer(spot->fields[1].data, spot->fields[1].length, label);
    if (!status && (*label < 0 || *label >= INT32_MAX))
        status = yk__fail(YK_ERR_FORMAT, "%lld is no class: those begin with 0", (long long)*label);
    if (status)
        yk__error_prefix("%s: member %s.%s, of the sample at offset %zu", spot->from->path, spot->key, c->extension,
                         spot->header);
    else if (*label >= s->classes)
        s->classes = *label + 1;
    return status;
}

/* Takes over the spot, or leaves it to the caller after a failure. */
static yk_status list_add(shard_list *s, const yk__shards_spot *spot)
{
    int64_t label;
    yk_status status = list_grow(s);
    if (!status)
        status = take_label(s, spot, &label);
    if (status)
        return status;
    for (int i = 0; i < s->fields.count; i++)
        s->members[s->count * s->fields.count + i] =
            (member){spot->fields[i].data, spot->fields[i].length, spot->fields[i].choice};
    s->entries[s->count++] = (entry){.from = spot->from, .header = spot->header, .key = spot->key, .label = label};
    return YK_OK;
}

static yk_status list_fill(shard_list *s, const char *pattern, const char *const *fields)
{
    const char *texts[YK_SAMPLE_TENSORS + 1] = {NULL};
    int n = 0;
    for (; fields && fields[n] && n <= YK_SAMPLE_TENSORS; n++)
        texts[n] = fields[n];
    if (n > YK_SAMPLE_TENSORS)
        return yk__fail(YK_ERR_ARGUMENT, "shard_list_dataset: more than %d fields", YK_SAMPLE_TENSORS);
    if (yk__shards_fields_take(&s->fields, texts) || yk__shards_names_find(&s->files, pattern))
        return yk__error_code();
    s->labelled = s->fields.count > 1;
    for (int i = 0; i < s->fields.n_choices; i++)
        s->labelled &= s->fields.choices[i].field != 1 || s->fields.choices[i].decoder == YK__SHARDS_INTEGER;
    yk__shards_walk *walk = yk__calloc(1, sizeof(*walk));
    if (!walk)
        return YK_ERR_MEMORY;
    *walk = (yk__shards_walk){.files = &s->files, .fields = &s->fields, .count = s->files.count};
    yk_status status = YK_OK;
    for (bool end = false; !status && !end;) {
        yk__shards_spot spot;
        status = yk__shards_walk_next(walk, &spot, &end);
        if (!status && !end && (status = list_add(s, &spot)))
            yk__shards_spot_clear(&spot);
    }
    yk__shards_walk_clear(walk);
    free(walk);
    return status;
}

static yk_status list_get(void *context, int64_t index, yk_sample *sample)
{
    const shard_list *s = context;
    yk__shards_spot spot = spot_of(s, index);
    return yk__shards_spot_decode(&s->fields, &spot, sample);
}

static int64_t list_label(void *context, int64_t index)
{
    const shard_list *s = context;
    return s->entries[index].label;
}

static void list_describe(void *context, int64_t index, char *text, size_t size)
{
    const entry *e = &((const shard_list *)context)->entries[index];
    snprintf(text, size, "%s: sample %s at offset %zu", e->from->path, e->key, e->header);
}

yk_dataset *yk_shard_list_dataset(const char *pattern, const char *const *fields, yk_transform *transform)
{
    YK__LIVE(transform);
    YK__OWN_RECORD;
    if (!yk__scope_check("shard_list_dataset") || !yk__is_there("shard_list_dataset", "pattern", pattern) ||
        yk__transform_lost(transform))
        return NULL;
    shard_list *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    if (list_fill(s, pattern, fields)) {
        list_destroy(s);
        return NULL;
    }
    yk_dataset_table table = {.name = "shards",
                              .length = s->count,
                              .classes = s->classes,
                              .get = list_get,
                              .label = list_label,
                              .describe = list_describe,
                              .destroy = list_destroy};
    return yk__shards_of_pictures(&s->fields) ? yk__dataset_of_images(&table, s, transform)
                                              : yk_dataset_create(&table, s, transform);
}
