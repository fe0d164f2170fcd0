/*
 * pt_legacy.c - reads .pt files of the form before PyTorch 1.6 (_use_new_zipfile_serialization=False).
 * Layer: checkpoint.
 *
 * Five pickles one after the other: a magic number, the version of the form, facts about the machine, the data, the
 * keys of the storages; then for each key, in that order, a count of elements (8 bytes) and the elements. There are no
 * checksums: what is read may be checked for its form only. How long the pickles are is not said anywhere, so a
 * growing part of the file is read until they fit in.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/pt.h"
#include "value/value.h"

/* FIRST_WINDOW: bytes read first, four times as many each time that the pickles do not end in them. */
enum { FIRST_WINDOW = 1 << 18, VERSION = 1001 };

/* LONG1 of ten bytes: 0x1950a86a20f9469cfc6c. It follows PROTO, in protocols 4 and 5 perhaps FRAME too. */
static const unsigned char magic[] = {0x8A, 10, 0x6C, 0xFC, 0x9C, 0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19, '.'};

/* The offset of the end of the magic number's pickle; 0 where it is not there. */
static size_t magic_end(const unsigned char *head, size_t size)
{
    size_t at = size >= 11 && head[2] == 0x95 ? 11 : 2;
    bool there = size >= at + sizeof(magic) && head[0] == 0x80 && memcmp(head + at, magic, sizeof(magic)) == 0;
    return there ? at + sizeof(magic) : 0;
}

bool yk__pt_is_legacy(const yk__source *source)
{
    unsigned char head[32];
    size_t size = source->size < sizeof(head) ? (size_t)source->size : sizeof(head);
    if (size < 2 || yk__source_read(source, 0, head, size))
        return false;
    return head[0] == 0x80 && head[1] >= 2 && head[1] <= 5;
}

typedef struct pickles {
    yk__pickle version, machine, data, keys;
} pickles;

static yk_status check_version(const pickles *p)
{
    const yk__node *version = &p->version.nodes[p->version.root];
    if (version->kind == YK__NODE_INT && version->as.integer == VERSION)
        return YK_OK;
    return yk__pickle_fail(&p->version, YK_ERR_UNSUPPORTED, "the version of the form is not %d", VERSION);
}

static yk_status check_machine(pickles *p)
{
    yk_value *machine = yk__pickle_value(&p->machine);
    const yk_value *little = yk_value_get(machine, "little_endian");
    bool right = yk_value_kind_of(little) == YK_VALUE_BOOL && yk_value_as_bool(little);
    yk_value_release(machine);
    return right
               ? YK_OK
               : yk__pickle_fail(&p->machine, YK_ERR_UNSUPPORTED, "it does not say that its numbers are little endian");
}

/* Runs the pickles; *more is set where a longer window might make a difference. */
static yk_status run_pickles(const yk__source *source, const unsigned char *bytes, size_t size, pickles *p, bool *more)
{
    static const char *const parts[] = {"the version", "the machine's facts", "the data", "the list of storages"};
    yk__pickle *const all[] = {&p->version, &p->machine, &p->data, &p->keys};
    size_t at = magic_end(bytes, size);
    if (!at)
        return yk__fail(YK_ERR_FORMAT, "%s: a pickle, but not one of torch.save: it lacks the magic number",
                        source->path);
    for (int i = 0; i < 4; i++) {
        yk_status status = yk__pickle_run(all[i], source->path, parts[i], bytes, size, at);
        if (status) {
            *more = all[i]->ended_early;
            return status;
        }
        at = all[i]->at;
        if (all[i] != &p->data && all[i]->storage_count) /* only the data's storages are ever filled */
            return yk__pickle_fail(all[i], YK_ERR_FORMAT, "it names a storage, which only the data may");
        if (i == 0)
            status = check_version(p);
        else if (i == 1)
            status = check_machine(p);
        if (status)
            return status;
    }
    return YK_OK;
}

static void clear_pickles(pickles *p)
{
    yk__pickle_clear(&p->version);
    yk__pickle_clear(&p->machine);
    yk__pickle_clear(&p->data);
    yk__pickle_clear(&p->keys);
}

typedef struct place_fill {
    const yk__source *source;
    uint64_t offset;
} place_fill;

static yk_status fill_from_place(void *context, void *to, size_t size)
{
    const place_fill *f = context;
    return to ? yk__source_read(f->source, f->offset, to, size) : YK_OK; /* the form has no checksums */
}

static bool same_key(const void *owner, uint32_t index, const void *key)
{
    const yk__storage_record *record = &((const yk__pickle *)owner)->storages[index];
    const yk__node *want = key;
    return record->key_size == want->as.text.size && memcmp(record->key, want->as.text.data, record->key_size) == 0;
}

static yk_status read_storage(const yk__source *source, pickles *p, const yk__node *key, const yk_pt_options *options,
                              uint64_t *offset)
{
    char text[80];
    unsigned char bytes[8];
    if (key->kind != YK__NODE_STRING)
        return yk__pickle_fail(&p->keys, YK_ERR_FORMAT, "the key of a storage is a %s", yk__node_kind_name(key));
    yk__pickle_describe(key->as.text.data, key->as.text.size, text);
    uint32_t index =
        yk__name_find(&p->data.keys, yk__name_hash(key->as.text.data, key->as.text.size), same_key, &p->data, key);
    if (index == UINT32_MAX || p->data.storages[index].storage)
        return yk__pickle_fail(&p->keys, YK_ERR_FORMAT, "storage '%s' %s", text,
                               index == UINT32_MAX ? "is none of the data's" : "is there twice");
    yk__storage_record *record = &p->data.storages[index];
    yk_status status = yk__source_read(source, *offset, bytes, sizeof(bytes));
    if (status)
        return status;
    uint64_t count = 0, wanted = record->bytes / record->element;
    for (int i = 7; i >= 0; i--)
        count = count << 8 | bytes[i];
    *offset += sizeof(bytes);
    if (count != wanted)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: storage '%s' at byte %" PRIu64 " has %" PRIu64 " elements, the data say %" PRIu64,
                        source->path, text, *offset, count, wanted);
    if (record->bytes > source->size - *offset)
        return yk__fail(YK_ERR_FORMAT,
                        "%s: truncated: storage '%s' has %" PRIu64 " bytes at byte %" PRIu64 ", the file has %" PRIu64,
                        source->path, text, record->bytes, *offset, source->size);
    place_fill fill = {source, *offset};
    *offset += record->bytes;
    return yk__pt_read_storage(source, record, options, fill.offset, fill_from_place, &fill);
}

static yk_status read_storages(const yk__source *source, pickles *p, const yk_pt_options *options)
{
    const yk__node *keys = &p->keys.nodes[p->keys.root];
    if (keys->kind != YK__NODE_LIST || keys->as.list.count != p->data.storage_count)
        return yk__pickle_fail(&p->keys, YK_ERR_FORMAT, "it is not a list of the data's %zu storages",
                               p->data.storage_count);
    uint64_t offset = p->keys.at;
    for (uint32_t i = 0; i < keys->as.list.count; i++) {
        yk_status status = read_storage(source, p, &p->keys.nodes[keys->as.list.items[i]], options, &offset);
        if (status)
            return status;
    }
    if (offset != source->size)
        return yk__fail(YK_ERR_FORMAT, "%s: the storages end at byte %" PRIu64 ", the file at %" PRIu64, source->path,
                        offset, source->size);
    return YK_OK;
}

yk_value *yk__pt_read_legacy(const yk__source *source, const yk_pt_options *options)
{
    unsigned char *bytes = NULL;
    yk_error before;
    yk__error_take(&before);
    for (size_t window = FIRST_WINDOW;; window *= 4) {
        size_t size = source->size < window ? (size_t)source->size : window;
        unsigned char *larger = yk__realloc(bytes, size);
        pickles p = {0};
        bool more = false;
        yk_value *value = NULL;
        if (!larger) {
            free(bytes);
            return NULL;
        }
        bytes = larger;
        yk_status status = yk__source_read(source, 0, bytes, size);
        if (!status)
            status = run_pickles(source, bytes, size, &p, &more);
        more = more && size < source->size && window < YK__PICKLE_BYTES;
        if (!status && !read_storages(source, &p, options))
            value = yk__pickle_value(&p.data);
        clear_pickles(&p);
        if (status && more) {
            yk_clear_error();
            continue;
        }
        free(bytes);
        if (before.code)
            yk_clear_error();
        yk__error_put(&before);
        return value;
    }
}
