/*
 * shard_index.c - STEM.index.json: which file holds which part, checked before any file is opened. Layer: checkpoint.
 */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/formats/sealed_json.h"
#include "checkpoint/shards/shards.h"

/* Bytes of an index, and its files: the check for overlaps compares the parts of a tensor with one another. */
enum { INDEX_LIMIT = 256 << 20, MOST_FILES = 16384, DIGITS = 16 };

static yk_status read_file(const char *dir, const char *path, size_t i, const json_t *entry, yk__shard_file *file)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *blocks = json_string_value(json_object_get(entry, "blocks"));
    const char *whole = json_string_value(json_object_get(entry, "xxh3"));
    json_t *bytes = json_object_get(entry, "bytes");
    if (!name || !blocks || !whole || !json_is_integer(bytes) || json_integer_value(bytes) < 0)
        return yk__fail(YK_ERR_FORMAT, "%s: file %zu has no name, bytes, xxh3 or blocks", path, i);
    if (!*name || *name == '.' || strchr(name, '/'))
        return yk__fail(YK_ERR_FORMAT, "%s: '%.200s' is no name of a file in this folder", path, name);
    file->bytes = (uint64_t)json_integer_value(bytes);
    file->blocks = blocks;
    size_t digits = strlen(blocks);
    if (digits % DIGITS || digits / DIGITS != (file->bytes + YK__SHARD_BLOCK - 1) / YK__SHARD_BLOCK ||
        strspn(blocks, "0123456789abcdef") != digits)
        return yk__fail(YK_ERR_FORMAT, "%s: the checksums of '%s' are not those of %llu bytes", path, name,
                        (unsigned long long)file->bytes);
    file->whole = whole;
    if (strlen(whole) != DIGITS || strspn(whole, "0123456789abcdef") != DIGITS)
        return yk__fail(YK_ERR_FORMAT, "%s: '%.40s' is no checksum of '%s'", path, whole, name);
    if (digits == DIGITS && strcmp(whole, blocks) != 0) /* of one block: it is the file */
        return yk__fail(YK_ERR_FORMAT, "%s: the checksum of '%s' is %s, but that of its only block %s", path, name,
                        whole, blocks);
    file->path = yk__format("%s/%s", dir, name);
    return file->path ? YK_OK : YK_ERR_MEMORY;
}

static yk_status read_files(const char *dir, const char *path, yk__shard_index *index)
{
    json_t *files = json_object_get(index->json, "files"), *entry;
    size_t count = json_array_size(files), i;
    if (count < 1 || count > MOST_FILES)
        return yk__fail(YK_ERR_FORMAT, "%s: a list of %zu files; 1 to %d are possible", path, count, MOST_FILES);
    if (json_integer_value(json_object_get(index->json, "block")) != YK__SHARD_BLOCK)
        return yk__fail(YK_ERR_UNSUPPORTED, "%s: checksums are not of blocks of %d bytes", path, YK__SHARD_BLOCK);
    index->files = yk__calloc(count, sizeof(*index->files));
    yk_status status = index->files ? YK_OK : YK_ERR_MEMORY;
    index->file_count = status ? 0 : (int)count;
    json_array_foreach(files, i, entry)
    {
        if (!status)
            status = read_file(dir, path, i, entry, &index->files[i]);
    }
    return status;
}

yk_status yk__shard_index_open(const char *dir, const char *stem, yk__shard_index *index)
{
    *index = (yk__shard_index){0};
    char *path = yk__format("%s/%s.index.json", dir, stem);
    if (path)
        index->json = yk__sealed_read(path, INDEX_LIMIT, "yoke sharded tensors", "an index of sharded tensors");
    yk_status status = index->json ? read_files(dir, path, index) : yk__error_code();
    if (!status) {
        const char *digits = json_string_value(json_object_get(index->json, "checksum")) + sizeof("xxh3:") - 1;
        index->digest = (int64_t)strtoull(digits, NULL, 16);
        status = yk__layout_add_json(&index->layout, path, json_object_get(index->json, "tensors"), index->file_count);
    }
    if (!status)
        status = yk__layout_check(&index->layout, path);
    free(path);
    if (status)
        yk__shard_index_clear(index);
    return status;
}

void yk__shard_index_clear(yk__shard_index *index)
{
    for (int i = 0; i < index->file_count; i++)
        free(index->files[i].path);
    free(index->files);
    yk__layout_clear(&index->layout);
    json_decref(index->json);
    *index = (yk__shard_index){0};
}
