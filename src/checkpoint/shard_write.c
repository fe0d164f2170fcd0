/*
 * shard_write.c - a folder that all ranks of a group write together, whole or not at all. Layer: checkpoint.
 *
 * Note [A folder of many ranks]
 * 0. Every rank tells all others which boxes it holds; each computes from that the same layout: who writes what.
 * 1. Rank 0 makes a temporary folder (folder.c); all learn whether it could, and its name.
 * 2. Every rank writes, syncs and names its files in it; all learn whether everybody could, with all checksums.
 * 3. Rank 0 writes the indices (and state.json), syncs, renames the folder to DIR; all learn whether it could.
 * Nobody passes a step before all are there, so rank 0 may remove the folder after a failure: nobody writes any more.
 * What the death of rank 0 leaves is a temporary folder, which nobody takes for a checkpoint and the next save removes.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "checkpoint/safetensors.h"
#include "checkpoint/sealed_json.h"
#include "checkpoint/shards.h"
#include "checkpoint/training.h"
#include "nn/module.h"

enum { DIGITS = 16 };

/* ---- the plan --------------------------------------------------------------------------------------------------- */

/* One rank's list as a layout: every part is its own. */
static yk_status describe_shards(yk__layout *layout, const yk_shard *shards, int64_t count, int rank)
{
    for (int64_t i = 0; i < count; i++) {
        const yk_shard *s = &shards[i];
        if (!s->name || !s->part)
            return yk__error_code() ? yk__error_code()
                                    : yk__fail(YK_ERR_ARGUMENT, "sharded_save: shard %" PRId64 " has no %s", i,
                                               s->name ? "tensor" : "name");
        yk__whole t = {.name = (char *)s->name, .dtype = (yk_dtype)s->part->dtype, .ndim = s->part->ndim};
        yk__part part = {.holder = rank};
        for (int d = 0; d < t.ndim; d++) {
            part.box.shape[d] = s->part->shape[d];
            part.box.offset[d] = s->offset ? s->offset[d] : 0;
            t.shape[d] = s->shape ? s->shape[d] : s->part->shape[d];
        }
        yk_status status = yk__layout_add(layout, "sharded_save", &t, &part);
        if (status)
            return status;
    }
    return YK_OK;
}

/* Everybody's list in one layout, the same on all ranks. */
static yk_status join_layouts(yk__layout *all, const yk__layout *own, yk_process_group *group)
{
    json_t *json = yk__layout_json(own);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL, **texts = NULL;
    json_decref(json);
    if (json && !text)
        yk__fail_memory(sizeof(json_t *));
    yk_status status = yk__ranks_agree(group);
    if (!status)
        status = yk__ranks_gather_text(group, text, &texts);
    free(text);
    int count = yk__ranks_count(group);
    for (int r = 0; r < count && !status; r++) {
        json_t *tensors = json_loads(texts[r], 0, NULL);
        status = tensors ? yk__layout_add_json(all, "sharded_save", tensors, count)
                         : yk__fail(YK_ERR_MEMORY, "sharded_save: the list of rank %d cannot be read", r);
        json_decref(tensors);
    }
    free(texts);
    return status;
}

/* What `rank` writes, by the plan. */
static yk_status take_mine(yk__share *share, const yk_shard *shards, int64_t count, int rank)
{
    share->mine = yk__state_dict_new();
    yk_status status = share->mine ? YK_OK : YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        const yk__whole *t = yk__layout_find(&share->layout, shards[i].name);
        for (size_t p = 0; p < t->count && !status; p++) {
            if (t->parts[p].holder == rank)
                status = yk_state_dict_add(share->mine, shards[i].name, shards[i].part);
        }
    }
    return status;
}

yk_status yk__share_plan(yk__share *share, const char *stem, const yk_shard *shards, int64_t count,
                         yk_process_group *group)
{
    *share = (yk__share){.stem = stem};
    yk__layout own = {0};
    int rank = yk__ranks_me(group);
    describe_shards(&own, shards, count, rank);
    yk_status status = join_layouts(&share->layout, &own, group); /* with this rank's error, if there is one */
    yk__layout_clear(&own);
    if (!status)
        status = yk__layout_spread(&share->layout, yk__ranks_count(group));
    if (!status)
        status = yk__layout_check(&share->layout, "sharded_save");
    if (!status)
        status = take_mine(share, shards, count, rank);
    status = yk__ranks_agree(group);
    if (status)
        yk__share_clear(share);
    return status;
}

void yk__share_clear(yk__share *share)
{
    yk__layout_clear(&share->layout);
    yk_state_dict_release(share->mine);
    *share = (yk__share){0};
}

/* ---- this rank's files ------------------------------------------------------------------------------------------ */

/* The checksums of a file's bytes as they go out. */
typedef struct blocks {
    XXH3_state_t whole, block;
    uint64_t bytes;
    char *digits; /* DIGITS for each block that is full */
    size_t used, room;
    yk_status failed;
} blocks;

static void end_block(blocks *b)
{
    if (b->used + DIGITS + 1 > b->room) {
        size_t room = b->room ? 2 * b->room : 64 * DIGITS;
        char *grown = yk__realloc(b->digits, room);
        if (!grown) {
            b->failed = YK_ERR_MEMORY;
            return;
        }
        b->digits = grown;
        b->room = room;
    }
    snprintf(b->digits + b->used, DIGITS + 1, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(&b->block));
    b->used += DIGITS;
    XXH3_64bits_reset(&b->block);
}

static void take_piece(void *to, const void *data, size_t size)
{
    blocks *b = to;
    XXH3_64bits_update(&b->whole, data, size);
    for (const char *from = data; size;) {
        size_t left = YK__SHARD_BLOCK - (size_t)(b->bytes % YK__SHARD_BLOCK), piece = size < left ? size : left;
        XXH3_64bits_update(&b->block, from, piece);
        b->bytes += piece;
        from += piece;
        size -= piece;
        if (b->bytes % YK__SHARD_BLOCK == 0)
            end_block(b);
    }
}

/* Writes one file and gives what is to be known of it: {"name", "bytes", "xxh3", "blocks"}. */
static json_t *write_file(const yk__folder *folder, const char *name, const yk_state_dict *dict,
                          const yk_metadata *metadata, yk__file_writer **writer)
{
    char *path = yk__format("%s/%s", folder->temporary, name);
    *writer = path ? yk__file_create_inside(folder->fd, folder->temporary, name) : NULL;
    if (!*writer) {
        free(path);
        return NULL;
    }
    blocks b = {.bytes = 0};
    XXH3_64bits_reset(&b.whole);
    XXH3_64bits_reset(&b.block);
    yk__file_tap(*writer, take_piece, &b);
    yk_status status = yk__safetensors_write(*writer, path, dict, metadata);
    if (!status)
        status = yk__file_flush(*writer);
    yk__file_tap(*writer, NULL, NULL);
    if (b.bytes % YK__SHARD_BLOCK)
        end_block(&b);
    char digits[DIGITS + 1];
    snprintf(digits, sizeof(digits), "%016" PRIx64, (uint64_t)XXH3_64bits_digest(&b.whole));
    json_t *file = NULL;
    if (!status && !b.failed) {
        file = json_pack("{s:s, s:I, s:s, s:s}", "name", name, "bytes", (json_int_t)b.bytes, "xxh3", digits, "blocks",
                         b.digits);
        if (!file)
            yk__fail_memory(sizeof(json_t *));
    }
    free(b.digits);
    free(path);
    return file;
}

/* This rank's file of every share, synced: a list with one entry a share, as text, which the caller frees. */
static char *write_mine(const yk__folder *folder, const yk__share *shares, int count, const yk_metadata *metadata,
                        int rank, int ranks)
{
    enum { MOST = 4 };
    yk__file_writer *writers[MOST] = {0};
    json_t *list = json_array();
    yk_status status = list ? YK_OK : yk__fail_memory(sizeof(json_t *));
    for (int i = 0; i < count && !status; i++) {
        char name[200];
        snprintf(name, sizeof(name), "%s-%05d-of-%05d.safetensors", shares[i].stem, rank + 1, ranks);
        json_t *file = write_file(folder, name, shares[i].mine, metadata, &writers[i]);
        if (!file || json_array_append_new(list, file))
            status = yk__error_code() ? yk__error_code() : yk__fail_memory(sizeof(json_t *));
    }
    if (!status)
        status = yk__file_commit_inside(writers, count);
    else
        for (int i = 0; i < count; i++)
            yk__file_abort(writers[i]);
    if (!status)
        status = yk__folder_sync(folder);
    char *text = status ? NULL : json_dumps(list, JSON_COMPACT);
    if (!status && !text)
        yk__fail_memory(sizeof(json_t *));
    json_decref(list);
    return text;
}

/* ---- the indices, by rank 0 ------------------------------------------------------------------------------------- */

static json_t *metadata_json(const yk_metadata *metadata)
{
    json_t *object = json_object();
    for (; metadata && metadata->key; metadata++)
        json_object_set_new(object, metadata->key, json_string(metadata->value));
    return object;
}

/* Writes one file and notes it in `files`: {NAME: {"bytes", "xxh3"}}. */
static yk_status write_index(const yk__folder *folder, const yk__share *share, const json_t *list,
                             const yk_metadata *metadata, json_t *files, yk__file_writer **writer)
{
    json_t *tensors = yk__layout_json(&share->layout);
    json_t *index =
        tensors ? json_pack("{s:s, s:i, s:i, s:o, s:O, s:o}", "format", "yoke sharded tensors", "version", 1, "block",
                            YK__SHARD_BLOCK, "metadata", metadata_json(metadata), "files", list, "tensors", tensors)
                : NULL;
    char *name = yk__format("%s.index.json", share->stem);
    *writer = index && name ? yk__file_create_inside(folder->fd, folder->temporary, name) : NULL;
    yk_status status = *writer ? YK_OK : yk__error_code() ? yk__error_code() : yk__fail_memory(sizeof(json_t *));
    blocks b = {.bytes = 0};
    XXH3_64bits_reset(&b.whole);
    XXH3_64bits_reset(&b.block);
    if (!status) {
        yk__file_tap(*writer, take_piece, &b);
        status = yk__sealed_write(*writer, index);
    }
    if (!status)
        status = yk__file_flush(*writer);
    if (*writer)
        yk__file_tap(*writer, NULL, NULL);
    free(b.digits);
    char digits[DIGITS + 1];
    snprintf(digits, sizeof(digits), "%016" PRIx64, (uint64_t)XXH3_64bits_digest(&b.whole));
    if (!status &&
        json_object_set_new(files, name, json_pack("{s:I, s:s}", "bytes", (json_int_t)b.bytes, "xxh3", digits)))
        status = yk__fail_memory(sizeof(json_t *));
    free(name);
    json_decref(index);
    return status;
}

/* The files of share `i` as the ranks told, in the order of ranks; they are noted in `files` too. */
static json_t *list_files(char **texts, int ranks, int i, json_t *files)
{
    json_t *list = json_array();
    for (int r = 0; r < ranks; r++) {
        json_t *told = json_loads(texts[r], 0, NULL), *file = json_array_get(told, (size_t)i);
        const char *name = NULL, *digits = NULL;
        json_int_t bytes = 0;
        json_unpack(file, "{s:s, s:I, s:s}", "name", &name, "bytes", &bytes, "xxh3", &digits);
        if (name && digits)
            json_object_set_new(files, name, json_pack("{s:I, s:s}", "bytes", bytes, "xxh3", digits));
        json_array_append(list, file);
        json_decref(told);
    }
    if (json_array_size(list) == (size_t)ranks && (int)json_object_size(files) >= ranks)
        return list;
    yk__fail_memory(sizeof(json_t *));
    json_decref(list);
    return NULL;
}

static yk_status write_indices(const yk__folder *folder, const yk__share *shares, int count,
                               const yk_metadata *metadata, char **texts, int ranks, yk__shares_finish finish,
                               void *arg)
{
    enum { MOST = 4 };
    yk__file_writer *writers[MOST] = {0};
    json_t *files = json_object();
    yk_status status = files ? YK_OK : yk__fail_memory(sizeof(json_t *));
    for (int i = 0; i < count && !status; i++) {
        json_t *list = list_files(texts, ranks, i, files);
        status = list ? write_index(folder, &shares[i], list, metadata, files, &writers[i]) : yk__error_code();
        json_decref(list);
    }
    if (!status)
        status = yk__file_commit_inside(writers, count);
    else
        for (int i = 0; i < count; i++)
            yk__file_abort(writers[i]);
    if (!status && finish)
        status = finish(arg, folder, files);
    json_decref(files);
    return status ? status : yk__folder_sync(folder);
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */

/* Rank 0 makes the temporary folder, the others open it: by its name, which rank 0 draws and all are told. Agreed upon
 * but for the others' opening, whose error is in the record and comes out with the next agreement. */
static yk_status open_together(yk__folder *folder, const char *dir, yk_process_group *group)
{
    int rank = yk__ranks_me(group);
    const int64_t facts[YK__FACTS] = {(int64_t)yk__name_bits()};
    *folder = (yk__folder){0};
    if (dir && rank == 0)
        (void)!yk__folder_begin(folder, dir, (uint64_t)facts[0]);
    yk__verdict *all;
    yk_status status = yk__ranks_tell(group, facts, &all);
    if (!status)
        status = yk__ranks_judge(all, yk__ranks_count(group));
    if (!status && rank)
        (void)!yk__folder_join(folder, dir, (uint64_t)all[0].facts[0]);
    if (status)
        yk__folder_abandon(folder);
    free(all);
    return status;
}

yk_status yk__shares_write(const char *dir, const yk__share *shares, int count, const yk_metadata *metadata,
                           yk_process_group *group, yk__shares_finish finish, void *arg)
{
    int rank = yk__ranks_me(group), ranks = yk__ranks_count(group);
    yk__folder folder;
    yk_status status = open_together(&folder, dir, group);
    if (status)
        return status;
    char **texts = NULL, *text = folder.open ? write_mine(&folder, shares, count, metadata, rank, ranks) : NULL;
    status = yk__ranks_agree(group);
    if (!status) {
        if (!yk__ranks_gather_text(group, text, &texts) && rank == 0 &&
            !write_indices(&folder, shares, count, metadata, texts, ranks, finish, arg))
            (void)!yk__folder_commit(&folder);
        status = yk__ranks_agree(group); /* the record tells how it went */
    }
    yk__folder_abandon(&folder); /* of rank 0, where it is not in its place */
    free(texts);
    free(text);
    return status;
}

yk_status yk_sharded_save(const char *dir, const yk_shard *shards, int64_t count, const yk_metadata *metadata,
                          yk_process_group *group)
{
    if (yk__is_freed(group))
        return yk__fail_freed(__func__, group);
    if (!dir || !*dir)
        yk__fail(YK_ERR_ARGUMENT, "sharded_save: no path");
    else if (count < 0 || (count && !shards))
        yk__fail(YK_ERR_ARGUMENT, "sharded_save: no shards");
    for (const yk_metadata *m = metadata; m && m->key && !yk__error_code(); m++) {
        json_t *probe = m->value ? json_pack("{s:s}", m->key, m->value) : NULL;
        json_decref(probe);
        if (!probe)
            yk__fail(YK_ERR_ARGUMENT, "sharded_save: metadata '%s' is %s", m->key,
                     m->value ? "not valid UTF-8" : "NULL");
    }
    yk_status status = yk__ranks_agree(group);
    yk__share share;
    if (!status)
        status = yk__share_plan(&share, "model", shards, count, group);
    if (status)
        return status;
    status = yk__shares_write(dir, &share, 1, metadata, group, NULL, NULL);
    yk__share_clear(&share);
    return status;
}
