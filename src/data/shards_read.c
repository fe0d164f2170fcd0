/*
 * shards_read.c - the samples of tar shards, one archive behind the other. Layer: data.
 *
 * Members of one archive that follow each other and share a key (the path up to the first dot of its last part) are a
 * sample; what is behind that dot is a member's extension, by which it is one of the fields.
 *
 * Note [Places in shards]
 * Archives are mapped, and a sample is the spots of its members, not their bytes; a mapping is kept while a spot in it
 * is. So a sample is decoded when it is asked for, and one that is passed over costs a walk over headers.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "data/shards.h"

static void shard_release(yk__shard *s)
{
    if (--s->holders)
        return;
    yk__unmap_file(&s->file);
    free(s);
}

void yk__shards_spot_clear(yk__shards_spot *p)
{
    if (p->from)
        shard_release(p->from);
    free(p->key);
    *p = (yk__shards_spot){0};
}

static yk_status open_shard(yk__shards_walk *w)
{
    yk__shard *s = yk__calloc(1, sizeof(*s));
    if (!s)
        return YK_ERR_MEMORY;
    s->path = w->files->items[w->order ? w->order[w->at] : w->at];
    s->holders = 1;
    if (yk__map_file(s->path, &s->file)) {
        free(s);
        return yk__error_code();
    }
    w->at++;
    w->open = s;
    w->tar.path = s->path;
    w->tar.bytes = s->file.data;
    w->tar.size = s->file.size;
    w->tar.at = 0;
    w->pending = false;
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

static yk_status spot_add(yk__shards_walk *w, yk__shards_spot *p, const char *extension)
{
    const yk__tar *tar = &w->tar;
    for (int i = 0; i < w->fields->n_choices; i++) {
        const yk__shards_choice *c = &w->fields->choices[i];
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

static yk_status spot_begin(yk__shards_walk *w, yk__shards_spot *p, size_t key)
{
    *p = (yk__shards_spot){.from = w->open, .header = w->tar.header};
    p->key = yk__format("%.*s", (int)key, w->tar.name);
    w->open->holders++;
    for (int i = 0; i < YK_SAMPLE_TENSORS; i++)
        p->fields[i].choice = -1;
    return p->key ? YK_OK : YK_ERR_MEMORY;
}

static yk_status spot_is_whole(const yk__shards_walk *w, const yk__shards_spot *p)
{
    for (int i = 0; i < w->fields->count; i++) {
        if (p->fields[i].choice < 0)
            return yk__fail(YK_ERR_FORMAT, "%s: sample %s at offset %zu has no member %s.%s", p->from->path, p->key,
                            p->header, p->key, w->fields->texts[i]);
    }
    return YK_OK;
}

yk_status yk__shards_walk_next(yk__shards_walk *w, yk__shards_spot *p, bool *end)
{
    *p = (yk__shards_spot){0};
    yk_status status = YK_OK;
    for (;;) {
        bool over = false;
        *end = !w->open && w->at == w->count;
        if (*end)
            return YK_OK;
        if (!w->open && (status = open_shard(w)))
            return status;
        if (!w->pending)
            status = yk__tar_next(&w->tar, &over);
        w->pending = false;
        const char *extension = status || over ? NULL : extension_of(w->tar.name);
        size_t key = extension ? (size_t)(extension - 1 - w->tar.name) : 0;
        bool other = p->key && extension && (strlen(p->key) != key || strncmp(p->key, w->tar.name, key) != 0);
        if (over) {
            shard_release(w->open);
            w->open = NULL;
        }
        w->pending = other;
        if (!status && p->key && (over || other)) {
            status = spot_is_whole(w, p);
            if (!status)
                return YK_OK;
        }
        if (!status && extension && !p->key)
            status = spot_begin(w, p, key);
        if (!status && extension)
            status = spot_add(w, p, extension);
        if (status) {
            yk__shards_spot_clear(p);
            return status;
        }
    }
}

void yk__shards_walk_clear(yk__shards_walk *w)
{
    if (w->open)
        shard_release(w->open);
    w->open = NULL;
}

yk_status yk__shards_spot_decode(const yk__shards_fields *fields, const yk__shards_spot *p, yk_sample *sample)
{
    for (int i = fields->count - 1; i >= 0; i--) { /* the input last: its memory stays */
        const yk__shards_choice *c = &fields->choices[p->fields[i].choice];
        if (yk__shards_decode(c, p->fields[i].data, p->fields[i].length, sample)) {
            yk__error_prefix("%s: member %s.%s, of the sample at offset %zu", p->from->path, p->key, c->extension,
                             p->header);
            return yk__error_code();
        }
    }
    return YK_OK;
}
