/*
 * pt_read.c - reads PyTorch's .pt files of the zip form. Layer: checkpoint.
 *
 * The members, all in one folder of any name: data.pkl (the pickle), data/KEY (storages), version, byteorder. Storages
 * are read by pread straight into the memory that their tensors keep, with the checksum computed on the way, where the
 * host can reach that memory. A file that shrinks meanwhile is an error instead of a fault, as it is for a map, which
 * is why a map must be asked for.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/pt.h"
#include "host/file.h"
#include "tensor/tensor.h"
#include "value/value.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are copied as they are");

/* ---- storages ---------------------------------------------------------------------------------------------------- */

static yk_status check_booleans(const yk__source *source, const yk__storage_record *record, const unsigned char *bytes)
{
    char text[80];
    for (uint64_t i = 0; record->booleans && i < record->bytes; i++) {
        if (bytes[i] > 1)
            return yk__fail(YK_ERR_FORMAT, "%s: storage '%s': element %" PRIu64 " is %d, not a bool", source->path,
                            yk__pickle_describe(record->key, record->key_size, text), i, bytes[i]);
    }
    return YK_OK;
}

/* The same bytes on another device. */
static yk__storage *move_storage(yk__storage *host, yk_device device)
{
    int64_t count = (int64_t)host->bytes;
    yk_tensor *bytes = yk__tensor_over(yk__storage_retain(host), 1, &count, YK_U8);
    yk_tensor *there = bytes ? yk__raw_to(bytes, device) : NULL;
    yk__storage *storage = there ? yk__storage_retain(there->storage) : NULL;
    yk_tensor_release(there);
    yk_tensor_release(bytes);
    return storage;
}

yk_status yk__pt_read_storage(const yk__source *source, yk__storage_record *record, const yk_pt_options *options,
                              uint64_t offset, yk__pt_fill fill, void *context)
{
    yk_device device = {0};
    yk_status status = YK_OK;
    if (!record->foreign) /* else it is only compared with its checksum */
        status = yk__locate(options, record->location, record->location_size, record->key, record->key_size, &device);
    const yk__backend *backend = status ? NULL : yk__backend_of(device);
    if (!backend)
        return yk__error_code();
    size_t bytes = (size_t)record->bytes;
    bool mapped = yk__file_map_fits(source->map, offset, YK_I64, device); /* an untyped one may hold the widest */
    yk__storage *host = mapped ? yk__file_map_storage(source->map, offset, bytes, device)
                               : yk__storage_create(backend->host_memory ? device : (yk_device){0}, bytes);
    if (!host)
        return yk__error_code();
    status = fill(context, mapped ? NULL : host->data, bytes);
    if (!status)
        status = check_booleans(source, record, host->data);
    if (!status && backend->host_memory)
        record->storage = yk__storage_retain(host);
    else if (!status)
        record->storage = move_storage(host, device);
    yk__storage_release(host);
    return !status && !record->storage ? yk__error_code() : status;
}

typedef struct member_fill {
    const yk__source *source;
    const yk__zip_member *member;
} member_fill;

static yk_status fill_from_member(void *context, void *to, size_t size)
{
    (void)size; /* was compared with the member's */
    const member_fill *f = context;
    return yk__zip_read(f->source, f->member, to);
}

/* ---- members ----------------------------------------------------------------------------------------------------- */

typedef struct archive {
    const yk__source *source;
    yk__zip zip;
    const char *folder; /* "archive/", in the name of data.pkl */
    uint32_t folder_length;
} archive;

/* The member "FOLDER/" name of `length` bytes; NULL where there is none. */
static const yk__zip_member *storage_record_find(const archive *a, const char *name, size_t length)
{
    char *full = yk__calloc(a->folder_length + length + 1, 1);
    if (!full)
        return NULL;
    memcpy(full, a->folder, a->folder_length);
    memcpy(full + a->folder_length, name, length);
    uint32_t i = yk__zip_find(&a->zip, full, a->folder_length + length);
    free(full);
    return i == UINT32_MAX ? NULL : &a->zip.members[i];
}

/* Finds the one member FOLDER/data.pkl. */
static yk_status find_pickle(archive *a, const yk__zip_member **pickle)
{
    static const char name[] = "data.pkl";
    enum { LENGTH = sizeof(name) - 1 };
    *pickle = NULL;
    for (uint32_t i = 0; i < a->zip.count; i++) {
        const yk__zip_member *m = &a->zip.members[i];
        if (m->name_length <= LENGTH + 1 || memcmp(m->name + m->name_length - LENGTH, name, LENGTH) != 0 ||
            memchr(m->name, '/', m->name_length) != m->name + m->name_length - LENGTH - 1)
            continue;
        if (*pickle)
            return yk__fail(YK_ERR_FORMAT, "%s: there are two members data.pkl", a->source->path);
        *pickle = m;
        a->folder = m->name;
        a->folder_length = m->name_length - LENGTH;
    }
    if (!*pickle)
        return yk__fail(YK_ERR_FORMAT, "%s: a zip file without data.pkl, so not one of torch.save", a->source->path);
    if (storage_record_find(a, "constants.pkl", 13))
        return yk__fail(YK_ERR_UNSUPPORTED, "%s: a TorchScript program; only data from torch.save are read",
                        a->source->path);
    return YK_OK;
}

/* Reads a short member's text; an absent one is empty. */
static yk_status read_text(const archive *a, const char *name, char text[16])
{
    const yk__zip_member *m = storage_record_find(a, name, strlen(name));
    memset(text, 0, 16);
    if (!m)
        return YK_OK;
    if (m->size > 15)
        return yk__fail(YK_ERR_FORMAT, "%s: member %s has %" PRIu64 " bytes", a->source->path, name, m->size);
    return yk__zip_read(a->source, m, text);
}

static yk_status check_form(const archive *a)
{
    char text[16];
    yk_status status = read_text(a, "byteorder", text);
    if (!status && *text && strcmp(text, "little") != 0)
        return yk__fail(YK_ERR_UNSUPPORTED, "%s: byte order '%s'; only little is read", a->source->path, text);
    if (!status)
        status = read_text(a, "version", text);
    char *end;
    long version = strtol(text, &end, 10);
    if (!status && *text && (end == text || (*end && *end != '\n') || version < 1 || version > 10))
        return yk__fail(YK_ERR_UNSUPPORTED, "%s: version '%.*s' of the format; 1 to 10 are read", a->source->path,
                        (int)strcspn(text, "\n"), text);
    return status;
}

static yk_status read_storages(const archive *a, yk__pickle *p, const yk_pt_options *options)
{
    for (size_t i = 0; i < p->storage_count; i++) {
        yk__storage_record *record = &p->storages[i];
        char text[80], *name = yk__format("data/%.*s", (int)record->key_size, record->key);
        if (!name)
            return YK_ERR_MEMORY;
        const yk__zip_member *m = storage_record_find(a, name, strlen(name));
        free(name);
        yk__pickle_describe(record->key, record->key_size, text);
        if (!m)
            return yk__fail(YK_ERR_FORMAT, "%s: there is no member data/%s", a->source->path, text);
        if (m->size != record->bytes)
            return yk__fail(YK_ERR_FORMAT, "%s: storage '%s' has %" PRIu64 " bytes, data.pkl says %" PRIu64,
                            a->source->path, text, m->size, record->bytes);
        member_fill fill = {a->source, m};
        yk__source unmapped = *a->source; /* deflated data cannot be part of a map */
        unmapped.map = NULL;
        yk_status status =
            yk__pt_read_storage(m->deflated ? &unmapped : a->source, record, options, m->data, fill_from_member, &fill);
        if (status)
            return status;
    }
    return YK_OK;
}

static yk_value *read_archive(archive *a, const yk_pt_options *options)
{
    const yk__zip_member *member;
    if (find_pickle(a, &member) || check_form(a))
        return NULL;
    if (member->size > YK__PICKLE_BYTES) {
        yk__fail(YK_ERR_FORMAT, "%s: data.pkl has %" PRIu64 " bytes; %d are allowed", a->source->path, member->size,
                 YK__PICKLE_BYTES);
        return NULL;
    }
    unsigned char *bytes = yk__calloc((size_t)member->size + 1, 1);
    if (!bytes)
        return NULL;
    yk_value *value = NULL;
    if (!yk__zip_read(a->source, member, bytes)) {
        yk__pickle p;
        yk_status status = yk__pickle_run(&p, a->source->path, "data.pkl", bytes, (size_t)member->size, 0);
        if (!status && p.at != p.size)
            status = yk__pickle_fail(&p, YK_ERR_FORMAT, "%zu bytes follow the end", p.size - p.at);
        if (!status && !read_storages(a, &p, options))
            value = yk__pickle_value(&p);
        yk__pickle_clear(&p);
    }
    free(bytes);
    return value;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

yk_value *yk__pt_read(const yk__source *source, const yk_pt_options *options)
{
    if (yk__pt_is_legacy(source))
        return yk__pt_read_legacy(source, options);
    unsigned char magic[4] = {0};
    if (source->size < 4) {
        yk__fail(YK_ERR_FORMAT, "%s: not a file of torch.save: it has %llu bytes", source->path,
                 (unsigned long long)source->size);
        return NULL;
    }
    if (yk__source_read(source, 0, magic, 4))
        return NULL;
    if (memcmp(magic, "PK", 2) != 0) {
        yk__fail(YK_ERR_FORMAT, "%s: not a file of torch.save: it begins with %02x %02x %02x %02x", source->path,
                 magic[0], magic[1], magic[2], magic[3]);
        return NULL;
    }
    archive a = {.source = source};
    if (yk__zip_open(source, &a.zip))
        return NULL;
    yk_value *value = read_archive(&a, options);
    yk__zip_clear(&a.zip);
    return value;
}

yk_value *yk_pt_load(const char *path, const yk_pt_options *options)
{
    YK__OWN_RECORD;
    yk__source source;
    yk_pt_options o;
    if (!yk__scope_check("pt_load") || !yk__is_there("pt_load", "path", path) ||
        YK__OPTIONS_TAKE("pt_load", yk_pt_options, options, &o) || yk__device_check(o.map_location) ||
        yk__source_open(path, o.mmap, &source))
        return NULL;
    yk_value *value = yk__pt_read(&source, &o);
    yk__source_close(&source);
    return yk__scope_own(value);
}
