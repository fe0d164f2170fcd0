/*
 * folder_files.h - the files that one process writes into a checkpoint's folder, with their sizes and checksums.
 * Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_SHARDS_FOLDER_FILES_H
#define YOKE_CHECKPOINT_SHARDS_FOLDER_FILES_H

#include <jansson.h>

#include <yoke/checkpoint.h>

#include "checkpoint/shards/folder.h"
#include "host/file.h"

enum {
    YK__SHARD_BLOCK = 1 << 20, /* bytes of a sharded file that have one checksum: a rank reads parts of other ranks'
                                  files, and checks what it reads without reading the rest */
    YK__CHECKSUM_DIGITS = 16,  /* hexadecimal digits of an XXH3 of 64 bits */
    YK__FOLDER_FILES = 8       /* a file and an index for the model and for the optimizer, and state.json; to spare */
};

/* Files that stay open until commit, which syncs all of them at once. Zeros but for the folder, to begin with. */
typedef struct yk__folder_files {
    const yk__folder *folder;
    yk__file_writer *writers[YK__FOLDER_FILES];
    int count;
} yk__folder_files;

/* Write one file and return what is known of it, {"name", "bytes", "xxh3"}, and with `blocks` also "blocks", the
 * checksums of its blocks one after the other. One reference; NULL and an error on failure. */
json_t *yk__folder_add_tensors(yk__folder_files *files, const char *name, const yk_state_dict *dict,
                               const yk_metadata *metadata, bool blocks);
/* The same of sealed JSON (sealed_json.h). */
json_t *yk__folder_add_json(yk__folder_files *files, const char *name, const json_t *object);
/* Notes a file in the list that state.json has: {NAME: {"bytes", "xxh3"}}. */
yk_status yk__folder_note(json_t *list, const json_t *file);

/* Syncs the files and the folder's names. The files are closed, on failure too, and more can be added. */
yk_status yk__folder_commit_files(yk__folder_files *files);
/* Closes and removes those that are not committed. */
void yk__folder_abort_files(yk__folder_files *files);

/* The checksum as text, which is returned. */
const char *yk__checksum_text(uint64_t checksum, char text[YK__CHECKSUM_DIGITS + 1]);

#endif
