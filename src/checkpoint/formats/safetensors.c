/*
 * safetensors.c - reads and writes safetensors files. Layer: checkpoint.
 *
 * Reading is done by pread straight into the tensors' memory where the host can reach it: one copy, and a file that
 * shrinks meanwhile is an error instead of a fault. Where a map is asked for the tensors are parts of it. Writing puts
 * the tensors in the package's order: larger elements first, so that every tensor is aligned, and by name among equals.
 *
 * Note [Deferred]
 * A training checkpoint must be known to be whole before anything of it is put into live objects. To read it to memory
 * first takes as much memory again, and fresh pages cost the system more time (clearing them) than the file's bytes.
 * So large tensors are read twice from the page cache: by pieces that stay in the processor's cache, for the checksum,
 * and then to where they belong. Where nothing of the run's is there yet that would be written to, as of an optimizer
 * that has not stepped, new memory is what it takes anyway: such tensors are read once.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <yoke/checkpoint.h>

#include "base/core.h"
#include "base/events.h"
#include "checkpoint/formats/file_map.h"
#include "checkpoint/formats/safetensors.h"
#include "host/file.h"
#include "host/progress.h"
#include "nn/module.h"
#include "tensor/tensor.h"
#include "value/value.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are copied as they are");

/* ---- reading -------------------------------------------------------------------------------------------------- */
enum { DEFER_BYTES = 1 << 20, PIECE = 1 << 18 }; /* smaller tensors are read at once; fits a second-level cache */

/* A file that is read from its beginning to its end. */
typedef struct source {
    int fd;
    const char *path;
    yk__tap_fn tap; /* NULL: none */
    void *tap_arg;
    const yk_read_options *options; /* may be NULL */
    yk__file_map *map;              /* NULL: none */
    struct deferred *later;         /* NULL: all tensors are read at once */
    yk__keeps_fn keeps;             /* of deferred ones; NULL: none */
    const void *keeps_arg;
    yk_value **metadata; /* NULL: not wanted */
} source;

/* The file that a dict of deferred tensors owns. */
typedef struct deferred {
    yk__object object;
    int fd;
    char *path;
    struct stat info;
    uint64_t *begin; /* the offset in the file of each entry of the dict */
    char piece[PIECE];
} deferred;

static yk_status read_at(const source *s, uint64_t offset, void *to, size_t size)
{
    for (size_t have = 0; have < size;) {
        size_t wanted = s->tap && size - have > PIECE ? PIECE : size - have;
        ssize_t got = pread(s->fd, (char *)to + have, wanted, (off_t)(offset + have));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return yk__fail_errno("%s", s->path);
        if (got == 0)
            return yk__fail(YK_ERR_FORMAT, "%s: the file ended at byte %" PRIu64 " while it was read", s->path,
                            offset + have);
        if (s->tap)
            s->tap(s->tap_arg, (char *)to + have, (size_t)got);
        have += (size_t)got;
    }
    return YK_OK;
}

static yk_status check_booleans(const char *path, const yk__safetensor *entry, const unsigned char *bytes)
{
    for (uint64_t i = 0; i < entry->end - entry->begin; i++) {
        if (bytes[i] > 1)
            return yk__fail(YK_ERR_FORMAT, "%s: tensor '%s': element %" PRIu64 " is %d, not a BOOL", path, entry->name,
                            i, bytes[i]);
    }
    return YK_OK;
}

/* One reference to the tensor as it lies in the map. */
static yk_tensor *map_tensor(const source *s, uint64_t data, const yk__safetensor *entry, yk_device device)
{
    yk__storage *storage =
        yk__file_map_storage(s->map, data + entry->begin, (size_t)(entry->end - entry->begin), device);
    if (storage && entry->dtype == YK_BOOL && check_booleans(s->path, entry, storage->data)) {
        yk__storage_release(storage);
        return NULL;
    }
    return yk__tensor_over(storage, entry->ndim, entry->shape, entry->dtype);
}

/* Reads the bytes for the tap alone; one reference to a tensor without memory. */
static yk_tensor *defer_tensor(const source *s, uint64_t data, const yk__safetensor *entry)
{
    size_t bytes = (size_t)(entry->end - entry->begin);
    for (size_t at = 0; at < bytes; at += PIECE) {
        if (read_at(s, data + entry->begin + at, s->later->piece, bytes - at < PIECE ? bytes - at : PIECE))
            return NULL;
    }
    return yk__tensor_over(yk__storage_wrap((yk_device){0}, NULL, bytes, NULL, NULL), entry->ndim, entry->shape,
                           entry->dtype);
}

/* One reference to the tensor of `entry`, whose file's data begin at `data`. */
static yk_tensor *read_tensor(const source *s, uint64_t data, const yk__safetensor *entry)
{
    yk_device device;
    yk_status status = yk__locate(s->options, "cpu", 3, entry->name, strlen(entry->name), &device);
    const yk__backend *backend = status ? NULL : yk__backend_of(device);
    if (!backend)
        return NULL;
    if (s->later && entry->dtype != YK_BOOL && entry->end - entry->begin >= DEFER_BYTES &&
        !(s->keeps && s->keeps(s->keeps_arg, entry->name, entry->dtype)))
        return defer_tensor(s, data, entry);
    if (yk__file_map_fits(s->map, data + entry->begin, entry->dtype, device))
        return map_tensor(s, data, entry, device);
    yk_device direct = backend->host_memory ? device : (yk_device){0};
    yk_tensor *host = yk__tensor_new(entry->ndim, entry->shape, NULL, entry->dtype, direct);
    if (!host)
        return NULL;
    yk_tensor *x = NULL;
    if (!read_at(s, data + entry->begin, host->data, (size_t)(entry->end - entry->begin)) &&
        (entry->dtype != YK_BOOL || !check_booleans(s->path, entry, host->data)))
        x = yk__raw_to(host, device);
    yk_tensor_release(host);
    return x;
}

/* ---- deferred tensors: see Note [Deferred] ---- */
static void deferred_destroy(void *object)
{
    deferred *d = object;
    if (d->fd >= 0)
        close(d->fd);
    free(d->path);
    free(d->begin);
    yk__object_free(d);
}

static const yk__type deferred_type = {"deferred", deferred_destroy};

static deferred *deferred_create(const char *path)
{
    deferred *d = yk__object_new(&deferred_type, sizeof(*d));
    if (!d)
        return NULL;
    d->fd = -1;
    d->path = yk__strdup(path);
    if (d->path)
        return d;
    yk_object_release(d);
    return NULL;
}

/* Takes the file over. */
static yk_status deferred_begin(deferred *d, source *s, const struct stat *info, uint64_t data,
                                const yk__safetensors *parsed)
{
    d->begin = yk__calloc(parsed->count + 1, sizeof(*d->begin));
    if (!d->begin)
        return YK_ERR_MEMORY;
    for (size_t i = 0, entry = 0; i < parsed->count; i++)
        if (!parsed->tensors[i].foreign)
            d->begin[entry++] = data + parsed->tensors[i].begin;
    d->info = *info; /* of before its bytes were checked */
    d->fd = s->fd;
    s->fd = -1;
    return YK_OK;
}

static yk_status deferred_fill(void *owner, int64_t i, const yk_tensor *saved, yk_tensor *to)
{
    const deferred *d = owner;
    const source s = {.fd = d->fd, .path = d->path};
    const yk__backend *backend = yk__backend_for(to);
    if (!backend)
        return yk__error_code();
    bool direct = backend->host_memory && to->dtype == saved->dtype && yk_is_contiguous(to);
    yk_tensor *host = direct ? yk_tensor_retain(to)
                             : yk__tensor_new(saved->ndim, saved->shape, NULL, (yk_dtype)saved->dtype, (yk_device){0});
    if (!host)
        return yk__error_code();
    struct stat now;
    yk_status status = read_at(&s, d->begin[i], host->data, (size_t)saved->storage->bytes);
    if (!status && fstat(d->fd, &now) < 0)
        status = yk__fail_errno("%s", d->path);
    if (!status && (now.st_size != d->info.st_size || now.st_mtim.tv_sec != d->info.st_mtim.tv_sec ||
                    now.st_mtim.tv_nsec != d->info.st_mtim.tv_nsec))
        status = yk__fail(YK_ERR_IO, "%s: was written to while it was loaded; what it is loaded into may be half of it",
                          d->path);
    if (!status && !direct)
        status = yk__raw_copy(to, host);
    yk_tensor_release(host);
    return status;
}

/* Notes a tensor of no dtype of yoke's; the tap has its bytes, too. */
static yk_status leave_out(const source *s, uint64_t data, const yk__safetensor *entry, yk_state_dict *dict)
{
    uint64_t left = s->tap ? entry->end - entry->begin : 0;
    char *piece = left ? yk__calloc(PIECE, 1) : NULL;
    yk_status status = left && !piece ? YK_ERR_MEMORY : YK_OK;
    for (size_t size; left && !status; left -= size) {
        size = left < PIECE ? (size_t)left : PIECE;
        status = read_at(s, data + entry->end - left, piece, size);
    }
    free(piece);
    char *what = status ? NULL : yk__safetensors_left_out(entry);
    if (!status)
        status = what ? yk__state_dict_leave_out(dict, entry->name, what) : YK_ERR_MEMORY;
    free(what);
    return status;
}

static yk_status read_tensors(const source *s, uint64_t data, const yk__safetensors *parsed, yk_state_dict *dict)
{
    for (size_t i = 0; i < parsed->count; i++) {
        const yk__safetensor *entry = &parsed->tensors[i];
        yk_status status;
        if (entry->foreign) {
            status = leave_out(s, data, entry, dict);
        } else {
            yk_tensor *x = read_tensor(s, data, entry);
            status = yk_state_dict_add(dict, entry->name, x);
            yk_tensor_release(x);
        }
        if (status)
            return status;
    }
    return YK_OK;
}

/* The text beside the tensors as a dict; one reference. */
static yk_value *metadata_value(const yk__safetensors *parsed)
{
    yk_value *dict = yk__value_new(YK_VALUE_DICT);
    yk_status status = dict ? YK_OK : YK_ERR_MEMORY;
    const char *key;
    json_t *text;
    json_object_foreach(json_object_get(parsed->json, "__metadata__"), key, text)
    {
        if (!status)
            status = yk__value_put(dict, key, strlen(key), 0,
                                   yk__value_text(YK_VALUE_STRING, json_string_value(text), json_string_length(text)));
    }
    if (!status)
        return dict;
    yk_value_release(dict);
    return NULL;
}

/* dict NULL: only the header is read and checked. */
static yk_status read_file(source *s, yk_state_dict *dict)
{
    const char *path = s->path;
    struct stat info;
    if (fstat(s->fd, &info) < 0)
        return yk__fail_errno("%s", path);
    if (!S_ISREG(info.st_mode))
        return yk__fail(YK_ERR_IO, "%s: not a regular file", path);
    uint64_t size = (uint64_t)info.st_size;
    if (s->options && s->options->mmap && !(s->map = yk__file_map_create(path, s->fd, size)))
        return yk__error_code();
    if (s->map && s->tap) { /* at once: bytes that are read from here on have been seen */
        s->tap(s->tap_arg, s->map->data, s->map->size);
        s->tap = NULL;
    }
    unsigned char prefix[YK__SAFETENSORS_PREFIX] = {0};
    size_t header_size;
    yk_status status = YK_OK;
    if (size >= sizeof(prefix))
        status = read_at(s, 0, prefix, sizeof(prefix));
    if (!status)
        status = yk__safetensors_length(path, prefix, size, &header_size);
    if (status)
        return status;
    char *header = yk__calloc(header_size, 1);
    if (!header)
        return YK_ERR_MEMORY;
    uint64_t data = sizeof(prefix) + header_size;
    yk__safetensors parsed;
    status = read_at(s, sizeof(prefix), header, header_size);
    if (!status)
        status = yk__safetensors_parse(path, header, header_size, size - data, &parsed);
    free(header);
    if (status)
        return status;
    if (s->metadata)
        status = (*s->metadata = metadata_value(&parsed)) ? YK_OK : yk__error_code();
    if (dict && !status)
        status = read_tensors(s, data, &parsed, dict);
    if (s->later && !status)
        status = deferred_begin(s->later, s, &info, data, &parsed);
    yk__safetensors_clear(&parsed);
    return status;
}

static yk_state_dict *read_dict(source s)
{
    const char *path = s.path;
    if (!yk__scope_check("safetensors_load") || !yk__is_there("safetensors_load", "path", path) ||
        (s.options && yk__device_check(s.options->map_location)))
        return NULL;
    s.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (s.fd < 0) {
        yk__fail_errno("%s", path);
        return NULL;
    }
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_state_dict_create();
    if (dict && s.later)
        yk__state_dict_defer(dict, deferred_fill, s.later);
    if (dict)
        dict = read_file(&s, dict) ? NULL : yk_scope_return_object(scope, dict);
    yk_scope_end(scope);
    if (s.fd >= 0)
        close(s.fd);
    yk_object_release(s.map);
    return dict;
}

yk_state_dict *yk__safetensors_read(const char *path, const yk_read_options *options, yk__tap_fn tap, void *tap_arg)
{
    return read_dict((source){.path = path, .tap = tap, .tap_arg = tap_arg, .options = options});
}

yk_state_dict *yk__safetensors_read_deferred(const char *path, yk__tap_fn tap, void *tap_arg, yk__keeps_fn keeps,
                                             const void *keeps_arg)
{
    deferred *later = deferred_create(path);
    yk_state_dict *dict =
        later
            ? read_dict((source){
                  .path = path, .tap = tap, .tap_arg = tap_arg, .later = later, .keeps = keeps, .keeps_arg = keeps_arg})
            : NULL;
    yk_object_release(later);
    return dict;
}

yk_state_dict *yk__safetensors_read_all(const char *path, yk_device device, yk_value **metadata)
{
    *metadata = NULL;
    yk_state_dict *dict = read_dict(
        (source){.path = path, .options = YK_OPTIONS(yk_read_options, .map_location = device), .metadata = metadata});
    if (!dict) {
        yk_value_release(*metadata);
        *metadata = NULL;
    }
    return dict;
}

yk_state_dict *yk_safetensors_read(const char *path, const yk_read_options *options)
{
    YK__OWN_RECORD;
    yk_read_options o;
    if (YK__OPTIONS_TAKE("safetensors_read", yk_read_options, options, &o))
        return NULL;
    return yk__safetensors_read(path, &o, NULL, NULL);
}

yk_state_dict *yk_safetensors_load(const char *path, yk_device device)
{
    YK__OWN_RECORD;
    return yk__safetensors_read(path, YK_OPTIONS(yk_read_options, .map_location = device), NULL, NULL);
}

yk_status yk__safetensors_check(const char *path)
{
    source s = {.fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), .path = path};
    if (s.fd < 0)
        return yk__fail_errno("%s", path);
    yk_status status = read_file(&s, NULL);
    close(s.fd);
    return status;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

typedef struct item {
    const char *name;
    const yk_tensor *x;
} item;

/* The package's order of dtypes; larger elements first. */
static int rank_of(yk_dtype dtype)
{
    static const int ranks[YK__DTYPES] = {[YK_I64] = 0,  [YK_F64] = 1, [YK_F32] = 2, [YK_I32] = 3,
                                          [YK_BF16] = 4, [YK_F16] = 5, [YK_U8] = 6,  [YK_BOOL] = 7};
    return ranks[dtype];
}

static int by_alignment(const void *a, const void *b)
{
    const item *x = a, *y = b;
    int difference = rank_of(yk_tensor_dtype(x->x)) - rank_of(yk_tensor_dtype(y->x));
    return difference ? difference : strcmp(x->name, y->name);
}

static size_t bytes_of(const yk_tensor *x)
{
    return (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x));
}

/* jansson fails where memory is short or text is not UTF-8; memory is tested by asking for a string that is fine. */
static yk_status refuse_text(const char *path, const char *what, const char *text)
{
    json_t *probe = json_string("");
    json_decref(probe);
    if (!probe)
        return yk__fail_memory(strlen(text));
    return yk__fail(YK_ERR_ARGUMENT, "%s: %s '%s' is not valid UTF-8", path, what, text);
}

static yk_status add_metadata(const char *path, json_t *header, const yk_metadata *metadata)
{
    json_t *object = json_object();
    yk_status status = YK_OK;
    for (; object && metadata->key && !status; metadata++) {
        if (!metadata->value || json_object_set_new(object, metadata->key, json_string(metadata->value)))
            status = refuse_text(path, "metadata of key", metadata->key);
    }
    if (status || json_object_set(header, "__metadata__", object))
        status = status ? status : yk__fail_memory(sizeof(*metadata));
    json_decref(object);
    return status;
}

static yk_status add_tensor(const char *path, json_t *header, const item *it, uint64_t *offset)
{
    if (strcmp(it->name, "__metadata__") == 0)
        return yk__fail(YK_ERR_ARGUMENT, "%s: a tensor may not be named '__metadata__' in a safetensors file", path);
    json_t *shape = json_array();
    for (int i = 0; i < yk_ndim(it->x); i++)
        json_array_append_new(shape, json_integer(yk_size(it->x, i)));
    uint64_t end = *offset + bytes_of(it->x);
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", yk__safetensors_dtype(yk_tensor_dtype(it->x)), "shape",
                              shape, "data_offsets", (json_int_t)*offset, (json_int_t)end);
    *offset = end;
    if (!entry || json_array_size(shape) != (size_t)yk_ndim(it->x)) {
        json_decref(entry);
        return yk__fail_memory(sizeof(*it));
    }
    return json_object_set_new(header, it->name, entry) ? refuse_text(path, "tensor name", it->name) : YK_OK;
}

/* The header's text, which the caller frees; NULL and an error on failure. */
static char *make_header(const char *path, const item *items, size_t count, const yk_metadata *metadata)
{
    json_t *header = json_object();
    uint64_t offset = 0;
    yk_status status = header ? YK_OK : yk__fail_memory(sizeof(json_t *));
    if (!status && metadata)
        status = add_metadata(path, header, metadata);
    for (size_t i = 0; i < count && !status; i++)
        status = add_tensor(path, header, &items[i], &offset);
    char *text = status ? NULL : json_dumps(header, JSON_COMPACT);
    if (!text)
        yk__fail_memory(count * sizeof(*items)); /* the record keeps an earlier error */
    json_decref(header);
    return text;
}

static yk_status write_header(yk__file_writer *writer, const char *path, const char *header)
{
    static const char spaces[8] = "        ";
    size_t length = strlen(header), padding = -length % sizeof(spaces);
    uint64_t total = length + padding;
    if (total > YK__SAFETENSORS_HEADER_LIMIT)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the header would have %" PRIu64 " bytes; the format allows %d", path,
                        total, YK__SAFETENSORS_HEADER_LIMIT);
    unsigned char prefix[YK__SAFETENSORS_PREFIX];
    for (int i = 0; i < YK__SAFETENSORS_PREFIX; i++)
        prefix[i] = (unsigned char)(total >> 8 * i);
    yk_status status = yk__file_write(writer, prefix, sizeof(prefix));
    if (!status)
        status = yk__file_write(writer, header, length);
    return status ? status : yk__file_write(writer, spaces, padding);
}

static yk_status write_tensor(yk__file_writer *writer, const yk_tensor *x)
{
    size_t bytes = bytes_of(x);
    if (bytes == 0)
        return YK_OK;
    const yk__backend *backend = yk__backend_for(x);
    if (!backend)
        return YK_ERR_DEVICE;
    if (backend->host_memory && yk_is_contiguous(x))
        return yk__file_write(writer, x->data, bytes);
    void *copy = yk__calloc(bytes, 1);
    if (!copy)
        return YK_ERR_MEMORY;
    yk_status status = yk_tensor_read(x, copy, bytes);
    if (!status)
        status = yk__file_write(writer, copy, bytes);
    free(copy);
    return status;
}

static yk_status write_items(yk__file_writer *writer, const char *path, const item *items, size_t count,
                             const yk_metadata *metadata)
{
    char *header = make_header(path, items, count, metadata);
    yk_status status = header ? write_header(writer, path, header) : yk__error_code();
    free(header);
    for (size_t i = 0; i < count && !status; i++)
        status = write_tensor(writer, items[i].x);
    return status;
}

yk_status yk__safetensors_write(yk__file_writer *writer, const char *path, const yk_state_dict *dict,
                                const yk_metadata *metadata)
{
    size_t count = (size_t)yk__state_dict_count(dict);
    item *items = yk__calloc(count, sizeof(*items));
    if (!items)
        return YK_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        items[i] = (item){yk__state_dict_name(dict, (int64_t)i), yk__state_dict_at(dict, (int64_t)i)};
    qsort(items, count, sizeof(*items), by_alignment);
    yk_status status = write_items(writer, path, items, count, metadata);
    free(items);
    return status;
}

yk_status yk_safetensors_save(const char *path, const yk_state_dict *dict, const yk_metadata *metadata)
{
    YK__EVENT(YK__EVENT_SAVE, "safetensors_save");
    YK__IN_PHASE(YK__PHASE_SAVING);
    YK__LIVE(dict);
    if (!yk__is_there("safetensors_save", "path", path))
        return YK_ERR_ARGUMENT;
    if (!dict)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "%s: no state dict to save", path);
    yk__file_writer *writer = yk__file_create(path);
    if (!writer)
        return yk__error_code();
    yk_status status = yk__safetensors_write(writer, path, dict, metadata);
    if (!status)
        return yk__file_commit(writer);
    yk__file_abort(writer);
    return status;
}
