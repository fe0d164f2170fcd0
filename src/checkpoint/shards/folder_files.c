/*
 * folder_files.c - the files that one process writes into a checkpoint's folder: their checksums are computed from the
 * pieces on their way out, and one commit syncs all of them. Layer: checkpoint.
 */
#include "checkpoint/shards/folder_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/xxh3.h"
#include "checkpoint/formats/safetensors.h"
#include "checkpoint/formats/sealed_json.h"
#include "host/file.h"

const char *yk__checksum_text(uint64_t checksum, char text[YK__CHECKSUM_DIGITS + 1])
{
    snprintf(text, YK__CHECKSUM_DIGITS + 1, "%016" PRIx64, checksum);
    return text;
}

/* ---- checksums of what is written ------------------------------------------------------------------------------- */

typedef struct checksums {
    XXH3_state_t whole, block;
    uint64_t bytes;
    bool with_blocks;
    char *digits; /* YK__CHECKSUM_DIGITS for each block that is full, and a zero */
    size_t used, room;
    yk_status failed;
} checksums;

static void end_block(checksums *c)
{
    if (c->used + YK__CHECKSUM_DIGITS + 1 > c->room) {
        size_t room = c->room ? 2 * c->room : 64 * YK__CHECKSUM_DIGITS;
        char *grown = yk__realloc(c->digits, room);
        if (!grown) {
            c->failed = YK_ERR_MEMORY;
            return;
        }
        c->digits = grown;
        c->room = room;
    }
    yk__checksum_text(XXH3_64bits_digest(&c->block), c->digits + c->used);
    c->used += YK__CHECKSUM_DIGITS;
    XXH3_64bits_reset(&c->block);
}

static void add_piece(void *to, const void *data, size_t size)
{
    checksums *c = to;
    yk__xxh3_update(&c->whole, data, size);
    if (!c->with_blocks) {
        c->bytes += size;
        return;
    }
    for (const char *from = data; size;) {
        size_t left = YK__SHARD_BLOCK - (size_t)(c->bytes % YK__SHARD_BLOCK), piece = size < left ? size : left;
        yk__xxh3_update(&c->block, from, piece);
        c->bytes += piece;
        from += piece;
        size -= piece;
        if (c->bytes % YK__SHARD_BLOCK == 0)
            end_block(c);
    }
}

/* The entry of a file in the list of files, with its size and checksums; NULL and an error where it was not written to
 * its end. */
static json_t *file_entry_json(checksums *c, const char *name, yk_status status)
{
    if (c->with_blocks && c->bytes % YK__SHARD_BLOCK)
        end_block(c);
    char digits[YK__CHECKSUM_DIGITS + 1];
    json_t *file = NULL;
    if (!status && !c->failed) {
        file = json_pack("{s:s, s:I, s:s}", "name", name, "bytes", (json_int_t)c->bytes, "xxh3",
                         yk__checksum_text(XXH3_64bits_digest(&c->whole), digits));
        if (!file ||
            (c->with_blocks && json_object_set_new(file, "blocks", json_string(c->digits ? c->digits : "")) < 0)) {
            json_decref(file);
            file = NULL;
            yk__fail_memory(sizeof(json_t *));
        }
    }
    free(c->digits);
    return file;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* Exactly one of `dict` and `object` is given. */
static json_t *add_file(yk__folder_files *files, const char *name, const yk_state_dict *dict,
                        const yk_metadata *metadata, const json_t *object, bool blocks)
{
    if (files->count == YK__FOLDER_FILES) {
        yk__fail(YK_ERR_INTERNAL, "%s: a process writes more than %d files", files->folder->temporary,
                 YK__FOLDER_FILES);
        return NULL;
    }
    char *path = yk__format("%s/%s", files->folder->temporary, name);
    yk__file_writer *writer = path ? yk__file_create_inside(files->folder->fd, files->folder->temporary, name) : NULL;
    if (!writer) {
        free(path);
        return NULL;
    }
    files->writers[files->count++] = writer;
    checksums c = {.with_blocks = blocks};
    XXH3_64bits_reset(&c.whole);
    XXH3_64bits_reset(&c.block);
    yk__file_tap(writer, add_piece, &c);
    yk_status status = object ? yk__sealed_write(writer, object) : yk__safetensors_write(writer, path, dict, metadata);
    if (!status)
        status = yk__file_flush(writer);
    yk__file_tap(writer, NULL, NULL);
    free(path);
    return file_entry_json(&c, name, status);
}

json_t *yk__folder_add_tensors(yk__folder_files *files, const char *name, const yk_state_dict *dict,
                               const yk_metadata *metadata, bool blocks)
{
    return add_file(files, name, dict, metadata, NULL, blocks);
}

json_t *yk__folder_add_json(yk__folder_files *files, const char *name, const json_t *object)
{
    return add_file(files, name, NULL, NULL, object, false);
}

yk_status yk__folder_note(json_t *list, const json_t *file)
{
    const char *name = NULL, *digits = NULL;
    json_int_t bytes = 0;
    if (json_unpack((json_t *)file, "{s:s, s:I, s:s}", "name", &name, "bytes", &bytes, "xxh3", &digits) < 0 ||
        json_object_set_new(list, name, json_pack("{s:I, s:s}", "bytes", bytes, "xxh3", digits)) < 0)
        return yk__fail_memory(sizeof(json_t *));
    return YK_OK;
}

yk_status yk__folder_commit_files(yk__folder_files *files)
{
    yk_status status = yk__file_commit_inside(files->writers, files->count);
    files->count = 0;
    return status ? status : yk__folder_sync(files->folder);
}

void yk__folder_abort_files(yk__folder_files *files)
{
    for (int i = 0; i < files->count; i++)
        yk__file_abort(files->writers[i]);
    files->count = 0;
}
