/*
 * training_files.c - a training checkpoint's folder: written whole or not at all, and read with every byte checked.
 * Layer: checkpoint.
 *
 * state.json comes last and holds size and checksum of the others, and in its first line its own (sealed_json.c). The
 * folder itself is folder.c's.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "checkpoint/folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/sealed_json.h"
#include "checkpoint/shards.h"
#include "checkpoint/training.h"

#define STATE_FILE     "state.json"
#define MODEL_FILE     "model.safetensors"
#define OPTIMIZER_FILE "optimizer.safetensors"

enum { STATE_LIMIT = 64 << 20, DIGITS = 16 };

static void hash_piece(void *state, const void *data, size_t size)
{
    XXH3_64bits_update(state, data, size);
}

/* ---- writing ------------------------------------------------------------------------------------------------------
 */

enum { FILES = 3 };

/* What is written into a folder: the files stay open until all are committed. */
typedef struct output {
    const yk__folder *folder;
    yk__file_writer *writers[FILES];
    int count;
    json_t *files; /* for state.json: name, size and checksum */
} output;

/* The caller frees *path. */
static yk__file_writer *open_file(output *o, const char *name, char **path)
{
    *path = yk__format("%s/%s", o->folder->temporary, name);
    yk__file_writer *writer = *path ? yk__file_create_inside(o->folder->fd, o->folder->temporary, name) : NULL;
    if (writer)
        o->writers[o->count++] = writer;
    return writer;
}

static void abort_files(output *o)
{
    for (int i = 0; i < o->count; i++)
        yk__file_abort(o->writers[i]);
}

/* What is known of a file while it is written. */
typedef struct content {
    XXH3_state_t hash;
    json_int_t bytes;
} content;

static void take_piece(void *to, const void *data, size_t size)
{
    content *c = to;
    XXH3_64bits_update(&c->hash, data, size);
    c->bytes += (json_int_t)size;
}

static yk_status write_tensors(output *o, const char *name, const yk_state_dict *dict)
{
    char *path, digits[DIGITS + 1];
    yk__file_writer *writer = open_file(o, name, &path);
    if (!writer) {
        free(path);
        return yk__error_code();
    }
    content c = {.bytes = 0};
    XXH3_64bits_reset(&c.hash);
    yk__file_tap(writer, take_piece, &c);
    yk_status status = yk__safetensors_write(writer, path, dict, (yk_metadata[]){{"format", "pt"}, {0}});
    if (!status)
        status = yk__file_flush(writer);
    yk__file_tap(writer, NULL, NULL);
    snprintf(digits, sizeof(digits), "%016" PRIx64, (uint64_t)XXH3_64bits_digest(&c.hash));
    if (!status && json_object_set_new(o->files, name, json_pack("{s:I, s:s}", "bytes", c.bytes, "xxh3", digits)))
        status = yk__fail_memory(sizeof(json_t *));
    free(path);
    return status;
}

static yk_status write_state(output *o, const json_t *state)
{
    json_t *whole = json_copy((json_t *)state);
    if (!whole || json_object_set(whole, "files", o->files)) {
        json_decref(whole);
        return yk__fail_memory(sizeof(json_t *));
    }
    char *path = NULL;
    yk__file_writer *writer = open_file(o, STATE_FILE, &path);
    yk_status status = writer ? yk__sealed_write(writer, whole) : yk__error_code();
    json_decref(whole);
    free(path);
    return status;
}

yk_status yk__state_write(const yk__folder *folder, const json_t *state, json_t *files)
{
    output o = {.folder = folder, .files = files};
    yk_status status = write_state(&o, state);
    if (!status)
        return yk__file_commit_inside(o.writers, o.count);
    abort_files(&o);
    return status;
}

static yk_status write_files(const yk__snapshot *snapshot, const yk__folder *folder)
{
    output o = {.folder = folder, .files = json_object()};
    yk_status status = o.files ? YK_OK : yk__fail_memory(sizeof(*o.files));
    if (!status)
        status = write_tensors(&o, MODEL_FILE, snapshot->model);
    if (!status && snapshot->optimizer)
        status = write_tensors(&o, OPTIMIZER_FILE, snapshot->optimizer);
    if (!status)
        status = write_state(&o, snapshot->state);
    if (!status)
        status = yk__file_commit_inside(o.writers, o.count);
    else
        abort_files(&o);
    json_decref(o.files);
    return status ? status : yk__folder_sync(folder);
}

yk_status yk__snapshot_write(const yk__snapshot *snapshot, const char *dir)
{
    yk__folder folder;
    yk_status status = yk__folder_begin(&folder, dir, yk__name_bits());
    if (status)
        return status;
    status = write_files(snapshot, &folder);
    if (!status)
        return yk__folder_commit(&folder);
    yk__folder_abandon(&folder);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------------------------
 */

/* state.json, compared with its checksum. One reference; NULL and an error on failure. */
static json_t *read_state(const char *dir)
{
    char *path = yk__format("%s/" STATE_FILE, dir);
    json_t *state = NULL;
    if (path)
        state = yk__sealed_read(path, STATE_LIMIT, "yoke training checkpoint", "the state of a training checkpoint");
    free(path);
    return state;
}

/* What state.json says of a file, compared with the file's size. */
static yk_status check_size(const json_t *state, const char *path, const char *name, const char **digits)
{
    json_int_t bytes;
    json_t *file = json_object_get(json_object_get(state, "files"), name);
    if (!file || json_unpack(file, "{s:I, s:s}", "bytes", &bytes, "xxh3", digits))
        return yk__fail(YK_ERR_FORMAT, "%s: state.json says nothing of this file", path);
    struct stat info;
    if (stat(path, &info) < 0)
        return yk__fail_errno("%s", path);
    if (info.st_size != bytes)
        return yk__fail(YK_ERR_FORMAT, "%s: %lld bytes, but %lld were saved", path, (long long)info.st_size,
                        (long long)bytes);
    return YK_OK;
}

static yk_status check_hash(const char *path, const XXH3_state_t *hash, const char *digits)
{
    char own[DIGITS + 1];
    snprintf(own, sizeof(own), "%016" PRIx64, (uint64_t)XXH3_64bits_digest(hash));
    if (strcmp(own, digits) == 0)
        return YK_OK;
    return yk__fail(YK_ERR_FORMAT, "%s: checksum %s, but %s was saved: the file was damaged", path, own, digits);
}

static yk_status hash_file(const char *path, XXH3_state_t *hash)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return yk__fail_errno("%s", path);
    unsigned char *buffer = yk__calloc(1, YK__TAP_PIECE);
    yk_status status = buffer ? YK_OK : YK_ERR_MEMORY;
    while (!status) {
        ssize_t got = read(fd, buffer, YK__TAP_PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = yk__fail_errno("%s", path);
        if (got <= 0)
            break;
        XXH3_64bits_update(hash, buffer, (size_t)got);
    }
    free(buffer);
    close(fd);
    return status;
}

/* The tensors of a file; one reference. Without options they are deferred. */
static yk_state_dict *read_dict(const char *path, const yk_read_options *o, XXH3_state_t *hash)
{
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_state_dict_retain(o ? yk__safetensors_read(path, o, hash_piece, hash)
                                                 : yk__safetensors_read_deferred(path, hash_piece, hash));
    yk_scope_end(scope);
    return dict;
}

/* dict NULL: only verifies. */
static yk_status read_tensors(const char *dir, const json_t *state, const char *name, const yk_read_options *o,
                              yk_state_dict **dict)
{
    char *path = yk__format("%s/%s", dir, name);
    if (!path)
        return YK_ERR_MEMORY;
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    const char *digits;
    yk_status status = check_size(state, path, name, &digits);
    if (!status && dict)
        status = (*dict = read_dict(path, o, &hash)) ? YK_OK : yk__error_code();
    else if (!status)
        status = hash_file(path, &hash);
    if (!status)
        status = check_hash(path, &hash, digits);
    if (!status && !dict)
        status = yk__safetensors_check(path);
    free(path);
    return status;
}

/* The same of what several ranks wrote: STEM.index.json and the files that it names. */
static yk_status read_shards(const char *dir, const json_t *state, const char *stem, yk_device device,
                             yk_state_dict **dict)
{
    char name[64], *path = yk__format("%s/%s.index.json", dir, stem);
    if (!path)
        return YK_ERR_MEMORY;
    snprintf(name, sizeof(name), "%s.index.json", stem);
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    const char *digits;
    yk_status status = check_size(state, path, name, &digits);
    if (!status)
        status = hash_file(path, &hash);
    if (!status)
        status = check_hash(path, &hash, digits);
    if (!status && dict)
        status = (*dict = yk__shards_read_whole(dir, stem, device)) ? YK_OK : yk__error_code();
    else if (!status)
        status = yk__shards_verify(dir, stem);
    free(path);
    return status;
}

/* The model's or the optimizer's, in either form. */
static yk_status read_set(const char *dir, const json_t *state, const char *name, const yk_read_options *o,
                          yk_state_dict **dict)
{
    if (json_object_get(state, "sharded"))
        return read_shards(dir, state, strcmp(name, MODEL_FILE) == 0 ? "model" : "optimizer",
                           o ? o->map_location : (yk_device){0}, dict);
    return read_tensors(dir, state, name, o, dict);
}

yk_status yk__snapshot_read(const char *dir, bool weights_only, const yk_read_options *o, yk__snapshot *snapshot)
{
    *snapshot = (yk__snapshot){.state = read_state(dir), .mapped = o && o->mmap};
    yk_status status = snapshot->state ? YK_OK : yk__error_code();
    if (!status)
        status = read_set(dir, snapshot->state, MODEL_FILE, o, &snapshot->model);
    if (!status && !weights_only && json_object_get(snapshot->state, "optimizer"))
        status = read_set(dir, snapshot->state, OPTIMIZER_FILE, o, &snapshot->optimizer);
    if (status)
        yk__snapshot_clear(snapshot);
    return status;
}

yk_status yk_checkpoint_verify(const char *dir)
{
    json_t *state = dir ? read_state(dir) : NULL;
    if (!state)
        return dir ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "checkpoint_verify: the path is NULL");
    yk_status status = read_set(dir, state, MODEL_FILE, NULL, NULL);
    if (!status && json_object_get(state, "optimizer"))
        status = read_set(dir, state, OPTIMIZER_FILE, NULL, NULL);
    json_decref(state);
    return status;
}

bool yk__checkpoint_plausible(const char *dir)
{
    yk_error before;
    yk__error_take(&before);
    json_t *state = read_state(dir);
    yk_status status = state ? YK_OK : YK_ERR_FORMAT;
    const char *digits, *name;
    json_t *file;
    json_object_foreach(json_object_get(state, "files"), name, file)
    {
        char *path = yk__format("%s/%s", dir, name);
        if (!status)
            status = path ? check_size(state, path, name, &digits) : YK_ERR_MEMORY;
        free(path);
    }
    json_decref(state);
    yk_clear_error();
    yk__error_put(&before);
    return !status;
}
