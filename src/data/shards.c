/*
 * shards.c - tar archives in WebDataset's layout as an iterable set. Layer: data.
 *
 * The shards' order is a permutation by (seed, epoch, pass), of which rank r takes r, r + ranks, ... and stream s of
 * that every streams-th. A sample that waits in the shuffle buffer is a place: Note [Places in shards].
 */
#include <stdlib.h>
#include <string.h>

#include "data/shards.h"

enum { MOST_BUFFER = 1 << 24, MOST_STREAMS = 1024 };

typedef struct shards {
    yk__shards_names files;
    yk__shards_fields fields;
    yk_shards_options options;
} shards;

static void shards_destroy(void *context)
{
    shards *s = context;
    yk__shards_names_clear(&s->files);
    yk__shards_fields_clear(&s->fields);
    free(s);
}

/* ---- samples of a stream, in the order of the archives ---- */
typedef struct reader {
    const shards *set;
    yk_iterable_part part;
    int64_t *order, *all;
    int64_t pass, in_pass;
    int64_t left;         /* samples that this stream still gives; -1: all that there are */
    yk__shards_walk walk; /* over the shards of this stream: `order` */
    yk__shards_spot *buffer;
    int64_t waiting, capacity;
    uint64_t draws;
} reader;

/* The shards of this stream in a pass. */
static void order_shards(reader *r)
{
    const yk_iterable_part *p = &r->part;
    int64_t n = r->set->files.count;
    for (int64_t i = 0; i < n; i++)
        r->all[i] = i;
    if (r->set->options.shardshuffle)
        yk__random_permutation((yk__stream){.key = p->seed + (uint64_t)r->pass * 0x9e3779b97f4a7c15u,
                                            .purpose = YK__RANDOM_SHUFFLE,
                                            .epoch = (uint32_t)p->epoch},
                               r->all, n);
    r->walk.order = r->order;
    r->walk.count = r->walk.at = 0;
    for (int64_t i = p->rank + (int64_t)p->stream * p->ranks; i < n; i += (int64_t)p->ranks * p->streams)
        r->order[r->walk.count++] = r->all[i];
    r->in_pass = 0;
}

/* The same, from one pass to the next where a number of samples is wanted. */
static yk_status read_any(reader *r, yk__shards_spot *p, bool *end)
{
    yk_status status = yk__shards_walk_next(&r->walk, p, end);
    if (!status && *end && r->left > 0 && r->in_pass) {
        r->pass++;
        order_shards(r);
        status = yk__shards_walk_next(&r->walk, p, end);
    }
    r->in_pass += !status && !*end;
    return status;
}

/* One of the samples that wait, all of which follow from the seed. */
static yk_status take_spot(reader *r, yk__shards_spot *p, bool *end)
{
    *end = r->left == 0;
    if (*end)
        return YK_OK;
    bool over = false;
    while (r->waiting < r->capacity && !over) {
        yk_status status = read_any(r, &r->buffer[r->waiting], &over);
        if (status)
            return status;
        r->waiting += !over;
    }
    *end = r->waiting == 0;
    if (*end)
        return YK_OK;
    uint32_t words[4];
    const yk_iterable_part *part = &r->part;
    uint64_t stream = (uint64_t)part->rank * (uint64_t)part->streams + (uint64_t)part->stream;
    yk__philox((yk__stream){.key = part->seed, .purpose = YK__RANDOM_SAMPLER, .epoch = (uint32_t)part->epoch},
               stream << 40 | r->draws++, words);
    int64_t i = (int64_t)yk__below(words[0], words[1], (uint64_t)r->waiting);
    *p = r->buffer[i];
    r->buffer[i] = r->buffer[--r->waiting];
    r->buffer[r->waiting] = (yk__shards_spot){0};
    r->left -= r->left > 0;
    return YK_OK;
}

/* ---- the set ---- */
static void reader_close(void *iterator)
{
    reader *r = iterator;
    for (int64_t i = 0; i < r->waiting; i++)
        yk__shards_spot_clear(&r->buffer[i]);
    yk__shards_walk_clear(&r->walk);
    free(r->buffer);
    free(r->order);
    free(r->all);
    free(r);
}

/* The samples of this stream, where a number of them was asked for. */
static int64_t share(const shards *s, const yk_iterable_part *p)
{
    if (s->options.epoch_samples == 0)
        return -1;
    int64_t of_rank = s->options.epoch_samples / p->ranks, files = s->files.count / p->ranks;
    int64_t streams = p->streams < files ? p->streams : files; /* those that have shards on every rank */
    return p->stream < streams ? of_rank / streams + (p->stream < of_rank % streams) : 0;
}

static yk_status reader_open(void *context, const yk_iterable_part *part, void **iterator)
{
    const shards *s = context;
    if (s->files.count < part->ranks)
        return yk__fail(YK_ERR_ARGUMENT, "%lld shards for %d ranks: each needs one at least", (long long)s->files.count,
                        part->ranks);
    reader *r = yk__calloc(1, sizeof(*r));
    if (!r)
        return YK_ERR_MEMORY;
    r->set = s;
    r->part = *part;
    r->walk.files = &s->files;
    r->walk.fields = &s->fields;
    r->left = share(s, part);
    r->capacity = s->options.shuffle > 1 ? s->options.shuffle : 1;
    r->all = yk__calloc((size_t)s->files.count, sizeof(*r->all));
    r->order = r->all ? yk__calloc((size_t)s->files.count, sizeof(*r->order)) : NULL;
    r->buffer = r->order ? yk__calloc((size_t)r->capacity, sizeof(*r->buffer)) : NULL;
    if (!r->buffer) {
        reader_close(r);
        return YK_ERR_MEMORY;
    }
    order_shards(r);
    *iterator = r;
    return YK_OK;
}

static yk_status reader_next(void *iterator, yk_sample *sample, bool *end)
{
    reader *r = iterator;
    yk__shards_spot p;
    yk_status status = take_spot(r, &p, end);
    if (status || *end)
        return status;
    status = yk__shards_spot_decode(&r->set->fields, &p, sample);
    yk__shards_spot_clear(&p);
    return status;
}

static yk_status reader_skip(void *iterator, int64_t count, int64_t *skipped)
{
    for (*skipped = 0; *skipped < count; ++*skipped) {
        yk__shards_spot p;
        bool end = false;
        yk_status status = take_spot(iterator, &p, &end);
        if (status || end)
            return status;
        yk__shards_spot_clear(&p);
    }
    return YK_OK;
}

static yk_status shards_fill(shards *s, const char *pattern)
{
    const yk_shards_options *o = &s->options;
    if (yk__check_integer("shards", "shuffle", o->shuffle, 0, MOST_BUFFER) ||
        yk__check_integer("shards", "streams", o->streams, 1, MOST_STREAMS) ||
        yk__check_integer("shards", "classes", o->classes, 0, INT32_MAX) ||
        yk__check_integer("shards", "epoch_samples", o->epoch_samples, 0, (int64_t)1 << 40))
        return yk__error_code();
    yk_status status = yk__shards_fields_take(&s->fields, o->fields);
    return status ? status : yk__shards_names_find(&s->files, pattern);
}

yk_dataset *yk_shards(const char *pattern, const yk_shards_options *options, yk_transform *transform)
{
    YK__LIVE(transform);
    YK__OWN_RECORD;
    yk_shards_options o;
    if (!yk__scope_check("shards") || YK__OPTIONS_TAKE("shards", yk_shards_options, options, &o) ||
        !yk__is_there("shards", "pattern", pattern) || yk__transform_lost(transform))
        return NULL;
    shards *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->options = o;
    if (shards_fill(s, pattern)) {
        shards_destroy(s);
        return NULL;
    }
    bool images = yk__shards_of_pictures(&s->fields); /* s is the set's from here on */
    yk_iterable_table table = {.name = "shards",
                               .streams = o.streams,
                               .classes = o.classes,
                               .open = reader_open,
                               .next = reader_next,
                               .skip = reader_skip,
                               .close = reader_close,
                               .destroy = shards_destroy};
    yk_dataset *dataset = yk_iterable_dataset(&table, s, transform);
    if (dataset)
        dataset->images = images;
    return dataset;
}
