/*
 * shards.c - tar archives in WebDataset's layout as an iterable set. Layer: data.
 *
 * Members of one archive that follow each other and share a key (the path up to the first dot of its last part) are a
 * sample; what is behind that dot is a member's extension, by which the options choose the sample's tensors and by
 * which these are decoded.
 *
 * Note [Places in shards]
 * Archives are mapped, and a sample that waits in the shuffle buffer is the spots of its members, not their bytes; a
 * mapping is kept while a spot in it is. So a sample is decoded when it is given, and one that is passed over, in
 * order to resume, costs a walk over headers and the same draws.
 *
 * The shards' order is a permutation by (seed, epoch, pass), of which rank r takes r, r + ranks, ... and stream s of
 * that every streams-th.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/shards.h"
#include "data/tar.h"

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
typedef struct shard {
    yk__mapping file;
    const char *path;
    int holders;
} shard;

/* The members of a sample, by field: Note [Places in shards]. */
typedef struct spot {
    shard *from;
    size_t header; /* of its first member */
    char *key;
    struct {
        const unsigned char *data;
        size_t length;
        int choice; /* -1: there is none */
    } fields[YK_SAMPLE_TENSORS];
} spot;

typedef struct reader {
    const shards *set;
    yk_iterable_part part;
    int64_t *order, *all;
    int64_t count, at; /* shards of this stream, and the next of them */
    int64_t pass, in_pass;
    int64_t left; /* samples that this stream still gives; -1: all that there are */
    shard *open;
    yk__tar *tar;
    bool pending; /* the tar's member is one that was not used yet */
    spot *buffer;
    int64_t waiting, capacity;
    uint64_t draws;
} reader;

static void shard_release(shard *s)
{
    if (--s->holders)
        return;
    yk__unmap_file(&s->file);
    free(s);
}

static void spot_clear(spot *p)
{
    if (p->from)
        shard_release(p->from);
    free(p->key);
    *p = (spot){0};
}

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
    r->count = 0;
    for (int64_t i = p->rank + (int64_t)p->stream * p->ranks; i < n; i += (int64_t)p->ranks * p->streams)
        r->order[r->count++] = r->all[i];
    r->at = 0;
    r->in_pass = 0;
}

static yk_status open_shard(reader *r)
{
    shard *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return YK_ERR_MEMORY;
    s->path = r->set->files.items[r->order[r->at++]];
    s->holders = 1;
    if (yk__map_file(s->path, &s->file)) {
        free(s);
        return yk__error_code();
    }
    r->open = s;
    r->tar->path = s->path;
    r->tar->bytes = s->file.data;
    r->tar->size = s->file.size;
    r->tar->at = 0;
    r->pending = false;
    return YK_OK;
}

/* The beginning of a name's extension, behind the dot; NULL for a member that belongs to no sample. */
static const char *extension_of(const char *name)
{
    const char *base = strrchr(name, '/');
    base = base ? base + 1 : name;
    size_t length = strlen(base);
    const char *dot = strchr(base, '.');
    bool meta = length >= 4 && !strncmp(base, "__", 2) && !strcmp(base + length - 2, "__");
    return dot && dot > base && !meta ? dot + 1 : NULL;
}

static yk_status spot_add(reader *r, spot *p, const char *extension)
{
    const yk__tar *tar = r->tar;
    const shards *s = r->set;
    for (int i = 0; i < s->fields.n_choices; i++) {
        const yk__shards_choice *c = &s->fields.choices[i];
        if (strcasecmp(c->extension, extension) != 0)
            continue;
        if (p->fields[c->field].choice == i)
            return yk__fail(YK_ERR_FORMAT, "%s: member %s at offset %zu: the sample has such a member already",
                            tar->path, tar->name, tar->header);
        if (p->fields[c->field].choice >= 0 && p->fields[c->field].choice < i)
            continue;
        p->fields[c->field].choice = i;
        p->fields[c->field].data = tar->data;
        p->fields[c->field].length = tar->length;
    }
    return YK_OK;
}

static yk_status spot_begin(reader *r, spot *p, size_t key)
{
    *p = (spot){.from = r->open, .header = r->tar->header};
    p->key = yk__format("%.*s", (int)key, r->tar->name);
    r->open->holders++;
    for (int i = 0; i < YK_SAMPLE_TENSORS; i++)
        p->fields[i].choice = -1;
    return p->key ? YK_OK : YK_ERR_MEMORY;
}

static yk_status spot_is_whole(const reader *r, const spot *p)
{
    for (int i = 0; i < r->set->fields.count; i++) {
        if (p->fields[i].choice < 0)
            return yk__fail(YK_ERR_FORMAT, "%s: sample %s at offset %zu has no member %s.%s", p->from->path, p->key,
                            p->header, p->key, r->set->fields.texts[i]);
    }
    return YK_OK;
}

/* The members of the next sample of the pass. */
static yk_status read_spot(reader *r, spot *p, bool *end)
{
    *p = (spot){0};
    yk_status status = YK_OK;
    for (;;) {
        bool over = false;
        *end = !r->open && r->at == r->count;
        if (*end)
            return YK_OK;
        if (!r->open && (status = open_shard(r)))
            return status;
        if (!r->pending)
            status = yk__tar_next(r->tar, &over);
        r->pending = false;
        const char *extension = status || over ? NULL : extension_of(r->tar->name);
        size_t key = extension ? (size_t)(extension - 1 - r->tar->name) : 0;
        bool other = p->key && extension && (strlen(p->key) != key || strncmp(p->key, r->tar->name, key) != 0);
        if (over) {
            shard_release(r->open);
            r->open = NULL;
        }
        r->pending = other;
        if (!status && p->key && (over || other)) {
            status = spot_is_whole(r, p);
            if (!status)
                return YK_OK;
        }
        if (!status && extension && !p->key)
            status = spot_begin(r, p, key);
        if (!status && extension)
            status = spot_add(r, p, extension);
        if (status) {
            spot_clear(p);
            return status;
        }
    }
}

/* The same, from one pass to the next where a number of samples is wanted. */
static yk_status read_any(reader *r, spot *p, bool *end)
{
    yk_status status = read_spot(r, p, end);
    if (!status && *end && r->left > 0 && r->in_pass) {
        r->pass++;
        order_shards(r);
        status = read_spot(r, p, end);
    }
    r->in_pass += !status && !*end;
    return status;
}

/* One of the samples that wait, all of which follow from the seed. */
static yk_status take_spot(reader *r, spot *p, bool *end)
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
    r->buffer[r->waiting] = (spot){0};
    r->left -= r->left > 0;
    return YK_OK;
}

/* ---- the set ---- */
static void reader_close(void *iterator)
{
    reader *r = iterator;
    for (int64_t i = 0; i < r->waiting; i++)
        spot_clear(&r->buffer[i]);
    if (r->open)
        shard_release(r->open);
    free(r->tar);
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
    r->left = share(s, part);
    r->capacity = s->options.shuffle > 1 ? s->options.shuffle : 1;
    r->all = yk__calloc((size_t)s->files.count, sizeof(*r->all));
    r->order = r->all ? yk__calloc((size_t)s->files.count, sizeof(*r->order)) : NULL;
    r->tar = r->order ? yk__calloc(1, sizeof(*r->tar)) : NULL;
    r->buffer = r->tar ? yk__calloc((size_t)r->capacity, sizeof(*r->buffer)) : NULL;
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
    spot p;
    yk_status status = take_spot(r, &p, end);
    if (status || *end)
        return status;
    for (int i = r->set->fields.count - 1; i >= 0 && !status; i--) { /* the input last: its memory stays */
        const yk__shards_choice *c = &r->set->fields.choices[p.fields[i].choice];
        status = yk__shards_decode(c, p.fields[i].data, p.fields[i].length, sample);
        if (status)
            yk__error_prefix("%s: member %s.%s, of the sample at offset %zu", p.from->path, p.key, c->extension,
                             p.header);
    }
    spot_clear(&p);
    return status;
}

static yk_status reader_skip(void *iterator, int64_t count, int64_t *skipped)
{
    for (*skipped = 0; *skipped < count; ++*skipped) {
        spot p;
        bool end = false;
        yk_status status = take_spot(iterator, &p, &end);
        if (status || end)
            return status;
        spot_clear(&p);
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
    bool images = true;
    for (int i = 0; i < s->fields.n_choices; i++)
        images &= s->fields.choices[i].field || s->fields.choices[i].decoder == YK__SHARDS_PICTURE;
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
