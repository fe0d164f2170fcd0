/*
 * shard_write.c - a checkpoint's folder as one process or all ranks of a group write it, whole or not at all.
 * Layer: checkpoint.
 *
 * Note [A folder of many ranks]
 * 0. Every rank sends all others the boxes that it holds; each computes from that the same layout: the rank that writes
 * each box.
 * 1. Rank 0, or the one process, makes a temporary folder (folder.c); all learn whether it could, and its name.
 * 2. Every rank writes, syncs and names its files in it; all learn whether everybody could, with all checksums.
 * 3. Rank 0 writes the indices (and state.json), syncs, renames the folder to DIR; all learn whether it could.
 * Nobody passes a step before all are there, so rank 0 may remove the folder after a failure: nobody writes any more.
 * What the death of rank 0 leaves is a temporary folder, which nobody takes for a checkpoint and the next save removes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "checkpoint/shards/shards.h"
#include "host/file.h"
#include "host/progress.h"
#include "nn/module.h"

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
    int count = yk__rank_count(group);
    for (int r = 0; r < count && !status; r++) {
        json_t *tensors = json_loads(texts[r], 0, NULL);
        status = tensors ? yk__layout_add_json(all, "sharded_save", tensors, count)
                         : yk__fail(YK_ERR_MEMORY, "sharded_save: the list of rank %d cannot be read", r);
        json_decref(tensors);
    }
    free(texts);
    return status;
}

/* Lists the parts that `rank` writes, by the plan. */
static yk_status add_own(yk__share *share, const yk_shard *shards, int64_t count, int rank)
{
    share->own = yk__state_dict_new();
    yk_status status = share->own ? YK_OK : YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        const yk__whole *t = yk__layout_find(&share->layout, shards[i].name);
        for (size_t p = 0; p < t->count && !status; p++) {
            if (t->parts[p].holder == rank)
                status = yk_state_dict_add(share->own, shards[i].name, shards[i].part);
        }
    }
    return status;
}

yk_status yk__share_plan(yk__share *share, const char *stem, const yk_shard *shards, int64_t count,
                         yk_process_group *group)
{
    *share = (yk__share){.stem = stem};
    yk__layout own = {0};
    int rank = yk__own_rank(group);
    describe_shards(&own, shards, count, rank);
    yk_status status = join_layouts(&share->layout, &own, group); /* with this rank's error, if there is one */
    yk__layout_clear(&own);
    if (!status)
        status = yk__layout_spread(&share->layout, yk__rank_count(group));
    if (!status)
        status = yk__layout_check(&share->layout, "sharded_save");
    if (!status)
        status = add_own(share, shards, count, rank);
    status = yk__ranks_agree(group);
    if (status)
        yk__share_clear(share);
    return status;
}

void yk__share_clear(yk__share *share)
{
    yk__layout_clear(&share->layout);
    yk_state_dict_release(share->own);
    *share = (yk__share){0};
}

/* ---- this rank's files ------------------------------------------------------------------------------------------ */

/* A list with one entry a share, as text, which the caller frees; synced where other ranks wait for it. */
static char *write_own_files(yk__folder_files *files, const yk__share *shares, int count, const yk_metadata *metadata,
                             int rank, int ranks)
{
    json_t *list = json_array();
    yk_status status = list ? YK_OK : yk__fail_memory(sizeof(json_t *));
    for (int i = 0; i < count && !status; i++) {
        char name[200];
        if (shares[i].single_file)
            snprintf(name, sizeof(name), "%s.safetensors", shares[i].stem);
        else
            snprintf(name, sizeof(name), "%s-%05d-of-%05d.safetensors", shares[i].stem, rank + 1, ranks);
        json_t *file = yk__folder_add_tensors(files, name, shares[i].own, metadata, !shares[i].single_file);
        if (!file || json_array_append_new(list, file))
            status = yk__error_code() ? yk__error_code() : yk__fail_memory(sizeof(json_t *));
    }
    if (!status && ranks > 1)
        status = yk__folder_commit_files(files);
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

/* `list` is taken over: the share's files in the order of ranks. */
static yk_status write_index(yk__folder_files *files, const yk__share *share, json_t *list, const yk_metadata *metadata,
                             json_t *names)
{
    json_t *tensors = yk__layout_json(&share->layout);
    json_t *index =
        tensors ? json_pack("{s:s, s:i, s:i, s:o, s:O, s:o}", "format", "yoke sharded tensors", "version", 1, "block",
                            YK__SHARD_BLOCK, "metadata", metadata_json(metadata), "files", list, "tensors", tensors)
                : NULL;
    char name[200];
    snprintf(name, sizeof(name), "%s.index.json", share->stem);
    json_t *file = index ? yk__folder_add_json(files, name, index) : NULL;
    yk_status status = file     ? yk__folder_note(names, file)
                       : !index ? (yk__error_code() ? yk__error_code() : yk__fail_memory(sizeof(json_t *)))
                                : yk__error_code();
    json_decref(file);
    json_decref(index);
    return status;
}

/* The files of share `i` as the ranks described them, in the order of ranks; they are noted in `names` too. */
static json_t *list_files(char **texts, int ranks, int i, json_t *names)
{
    json_t *list = json_array();
    yk_status status = list ? YK_OK : yk__fail_memory(sizeof(json_t *));
    for (int r = 0; r < ranks && !status; r++) {
        json_t *described = json_loads(texts[r], 0, NULL), *file = json_array_get(described, (size_t)i);
        status = yk__folder_note(names, file);
        if (!status && json_array_append(list, file) < 0)
            status = yk__fail_memory(sizeof(json_t *));
        json_decref(described);
    }
    if (!status)
        return list;
    json_decref(list);
    return NULL;
}

/* The indices and what `finish` adds, and everything synced. */
static yk_status write_indices(yk__folder_files *files, const yk__share *shares, int count, const yk_metadata *metadata,
                               char **texts, int ranks, yk__shares_finish finish, void *arg)
{
    json_t *names = json_object();
    yk_status status = names ? YK_OK : yk__fail_memory(sizeof(json_t *));
    for (int i = 0; i < count && !status; i++) {
        json_t *list = list_files(texts, ranks, i, names);
        status = list ? YK_OK : yk__error_code();
        if (!status && !shares[i].single_file)
            status = write_index(files, &shares[i], list, metadata, names);
        json_decref(list);
    }
    if (!status && finish)
        status = finish(arg, files, names);
    json_decref(names);
    return status ? status : yk__folder_commit_files(files);
}

/* ---- all of it -------------------------------------------------------------------------------------------------- */

/* Rank 0 makes the temporary folder, the others open it: by its name, which rank 0 draws and sends to all. Agreed upon
 * but for the others' opening, whose error is in the record and comes out with the next agreement. */
static yk_status open_together(yk__folder *folder, const char *dir, yk_process_group *group)
{
    int rank = yk__own_rank(group);
    const int64_t values[YK__STATUS_VALUES] = {(int64_t)yk__name_bits()};
    *folder = (yk__folder){0};
    if (!group)
        return dir ? yk__folder_begin(folder, dir, (uint64_t)values[0]) : yk__error_code();
    if (dir && rank == 0)
        (void)!yk__folder_begin(folder, dir, (uint64_t)values[0]);
    yk__rank_status *all;
    yk_status status = yk__ranks_gather_status(group, values, &all);
    if (!status)
        status = yk__ranks_first_error(all, yk__rank_count(group));
    if (!status && rank)
        (void)!yk__folder_join(folder, dir, (uint64_t)all[0].values[0]);
    if (status)
        yk__folder_abandon(folder);
    free(all);
    return status;
}

yk_status yk__shares_write(const char *dir, const yk__share *shares, int count, const yk_metadata *metadata,
                           yk_process_group *group, yk__shares_finish finish, void *arg)
{
    int rank = yk__own_rank(group), ranks = yk__rank_count(group);
    yk__folder folder;
    yk_status status = open_together(&folder, dir, group);
    if (status)
        return status;
    yk__folder_files files = {.folder = &folder};
    char **texts = NULL, *text = folder.open ? write_own_files(&files, shares, count, metadata, rank, ranks) : NULL;
    status = group ? yk__ranks_agree(group) : text ? YK_OK : yk__error_code();
    if (!status) {
        status = yk__ranks_gather_text(group, text, &texts);
        if (!status && rank == 0)
            status = write_indices(&files, shares, count, metadata, texts, ranks, finish, arg);
        if (!status && rank == 0)
            status = yk__folder_commit(&folder);
        if (group)
            status = yk__ranks_agree(group); /* sends the record's error to all */
    }
    yk__folder_abort_files(&files);
    yk__folder_abandon(&folder); /* of rank 0, where it has not become `dir` */
    free(texts);
    free(text);
    return status;
}

yk_status yk_sharded_save(const char *dir, const yk_shard *shards, int64_t count, const yk_metadata *metadata,
                          yk_process_group *group)
{
    YK__EVENT(YK__EVENT_SAVE, "sharded_save");
    YK__IN_PHASE(YK__PHASE_SAVING);
    YK__OWN_RECORD;
    if (yk__is_freed(group))
        return yk__fail_freed(__func__, group);
    if (!dir || !*dir)
        yk__fail(YK_ERR_ARGUMENT, "sharded_save: no path");
    else if (count < 0 || (count && !shards))
        yk__fail(YK_ERR_ARGUMENT, "sharded_save: no shards");
    for (int64_t i = 0; shards && i < count && !yk__error_code(); i++) {
        if (yk__is_freed(shards[i].part))
            yk__fail_freed(__func__, shards[i].part);
    }
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
