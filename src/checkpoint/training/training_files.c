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

#include "base/xxh3.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/formats/sealed_json.h"
#include "checkpoint/shards/shards.h"
#include "checkpoint/training/training.h"
#include "host/file.h"
#include "optim/optimizer.h"

#define STATE_FILE     "state.json"
#define MODEL_FILE     "model.safetensors"
#define OPTIMIZER_FILE "optimizer.safetensors"

enum { STATE_LIMIT = 64 << 20 }; /* bytes: far more than 16,384 ranks' generators and files take */

static void hash_piece(void *state, const void *data, size_t size)
{
    yk__xxh3_update(state, data, size);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

yk_status yk__state_write(yk__folder_files *files, const json_t *state, json_t *names)
{
    json_t *whole = json_copy((json_t *)state);
    if (!whole || json_object_set(whole, "files", names)) {
        json_decref(whole);
        return yk__fail_memory(sizeof(json_t *));
    }
    json_t *file = yk__folder_add_json(files, STATE_FILE, whole);
    json_decref(whole);
    json_decref(file);
    return file ? YK_OK : yk__error_code();
}

static yk_status finish_folder(void *arg, yk__folder_files *files, json_t *names)
{
    const yk__save *save = arg;
    return yk__state_write(files, save->snapshot.state, names);
}

void yk__save_whole(yk__save *save)
{
    save->shares[YK__SHARE_MODEL] =
        (yk__share){.stem = "model", .single_file = true, .own = yk_state_dict_retain(save->snapshot.model)};
    save->shares[YK__SHARE_OPTIMIZER] =
        (yk__share){.stem = "optimizer", .single_file = true, .own = yk_state_dict_retain(save->snapshot.optimizer)};
    save->share_count = save->snapshot.optimizer ? YK__SHARES : 1;
}

yk_status yk__save_write(yk__save *save, const char *dir, yk_process_group *group)
{
    return yk__shares_write(dir, save->shares, save->share_count, (yk_metadata[]){{"format", "pt"}, {0}}, group,
                            finish_folder, save);
}

void yk__save_clear(yk__save *save)
{
    for (int i = 0; i < save->share_count; i++)
        yk__share_clear(&save->shares[i]);
    save->share_count = 0;
    yk__snapshot_clear(&save->snapshot);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

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

/* Compares the size of a file with that in state.json; *digits: its checksum there. */
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
    char own[YK__CHECKSUM_DIGITS + 1];
    yk__checksum_text(XXH3_64bits_digest(hash), own);
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
        yk__xxh3_update(hash, buffer, (size_t)got);
    }
    free(buffer);
    close(fd);
    return status;
}

static bool is_kept(const void *optimizer, const char *name, yk_dtype dtype)
{
    return yk__optimizer_adopts(optimizer, name, dtype);
}

/* The tensors of a file; one reference. Without options they are deferred, but for those that the optimizer keeps. */
static yk_state_dict *read_dict(const char *path, const yk_read_options *o, const yk_optimizer *optimizer,
                                XXH3_state_t *hash)
{
    yk_scope scope = yk_scope_begin();
    yk_state_dict *dict = yk_state_dict_retain(
        o ? yk__safetensors_read(path, o, hash_piece, hash)
          : yk__safetensors_read_deferred(path, hash_piece, hash, optimizer ? is_kept : NULL, optimizer));
    yk_scope_end(scope);
    return dict;
}

/* dict NULL: only verifies. */
static yk_status read_tensors(const char *dir, const json_t *state, const char *name, const yk_read_options *o,
                              const yk_optimizer *optimizer, yk_state_dict **dict)
{
    char *path = yk__format("%s/%s", dir, name);
    if (!path)
        return YK_ERR_MEMORY;
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    const char *digits;
    yk_status status = check_size(state, path, name, &digits);
    if (!status && dict)
        status = (*dict = read_dict(path, o, optimizer, &hash)) ? YK_OK : yk__error_code();
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
                          const yk_optimizer *optimizer, yk_state_dict **dict)
{
    if (json_object_get(state, "sharded"))
        return read_shards(dir, state, strcmp(name, MODEL_FILE) == 0 ? "model" : "optimizer",
                           o ? o->map_location : (yk_device){0}, dict);
    return read_tensors(dir, state, name, o, optimizer, dict);
}

static yk_status read_once(const char *dir, bool weights_only, const yk_read_options *o, const yk_optimizer *optimizer,
                           yk__snapshot *snapshot)
{
    *snapshot = (yk__snapshot){.state = read_state(dir), .mapped = o && o->mmap};
    yk_status status = snapshot->state ? YK_OK : yk__error_code();
    if (!status)
        status = read_set(dir, snapshot->state, MODEL_FILE, o, NULL, &snapshot->model);
    if (!status && !weights_only && json_object_get(snapshot->state, "optimizer"))
        status = read_set(dir, snapshot->state, OPTIMIZER_FILE, o, optimizer, &snapshot->optimizer);
    if (status)
        yk__snapshot_clear(snapshot);
    return status;
}

yk_status yk__snapshot_read(const char *dir, bool weights_only, const yk_read_options *o, const yk_optimizer *optimizer,
                            yk__snapshot *snapshot)
{
    yk__folder_reading reading = {0};
    yk_status status;
    do {
        yk__folder_reading_begin(&reading, dir);
        status = read_once(dir, weights_only, o, optimizer, snapshot);
    } while (yk__folder_reading_again(&reading, dir, status));
    return status;
}

static yk_status verify_once(const char *dir, bool *whole)
{
    json_t *state = read_state(dir);
    *whole = false;
    if (!state)
        return yk__error_code();
    yk_status status = read_set(dir, state, MODEL_FILE, NULL, NULL, NULL);
    if (!status && json_object_get(state, "optimizer"))
        status = read_set(dir, state, OPTIMIZER_FILE, NULL, NULL, NULL);
    *whole = !status;
    if (!status)
        status = yk__state_check(dir, state);
    json_decref(state);
    return status;
}

yk_status yk__checkpoint_verify(const char *dir, bool *whole)
{
    yk__folder_reading reading = {0};
    yk_status status;
    do {
        yk__folder_reading_begin(&reading, dir);
        status = verify_once(dir, whole);
    } while (yk__folder_reading_again(&reading, dir, status));
    return status;
}

yk_status yk_checkpoint_verify(const char *dir)
{
    YK__OWN_RECORD;
    bool whole;
    if (!dir)
        return yk__fail(YK_ERR_ARGUMENT, "checkpoint_verify: the path is NULL");
    return yk__checkpoint_verify(dir, &whole);
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
