/*
 * shards.h - tensors in parts: which rank or file holds what, between saving and loading. Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_SHARDS_SHARDS_H
#define YOKE_CHECKPOINT_SHARDS_SHARDS_H

#include <jansson.h>

#include "base/name_table.h"
#include "checkpoint/shards/folder_files.h"
#include "comm/agreement.h"

/* ---- shard_layout.c: tensors and their parts --------------------------------------------------------------------- */
typedef struct yk__box {
    int64_t offset[YK_MAX_DIMS], shape[YK_MAX_DIMS];
} yk__box;

/* The box of the elements that both have; false where there are none. */
bool yk__box_cut(int ndim, const yk__box *a, const yk__box *b, yk__box *both);
/* Elements; boxes inside a tensor have no more than 63 bits count. */
int64_t yk__box_count(int ndim, const yk__box *box);
/* "[0:4, 2:3]" into text, which is returned. */
const char *yk__box_format(int ndim, const yk__box *box, char *text, size_t size);

typedef struct yk__part {
    int holder; /* a rank, and the file that it writes */
    yk__box box;
} yk__part;

typedef struct yk__whole {
    char *name;
    yk_dtype dtype;
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    yk__part *parts;
    size_t count, room;
} yk__whole;

/* Zeros to begin with. */
typedef struct yk__layout {
    yk__whole *tensors;
    size_t count, room;
    yk__name_table names;
} yk__layout;
void yk__layout_clear(yk__layout *layout);
yk__whole *yk__layout_find(const yk__layout *layout, const char *name); /* NULL: not there */

/*
 * {"fc.weight": {"dtype": "F32", "shape": [8, 4], "parts": [{"file": 0, "offset": [0, 0], "shape": [4, 4]}]}}
 * `where` is for messages. Reading adds to what is there and checks each part against its tensor; `holders` is how many
 * there are.
 */
json_t *yk__layout_json(const yk__layout *layout);
yk_status yk__layout_add_json(yk__layout *layout, const char *where, json_t *tensors, int holders);
yk_status yk__layout_add(yk__layout *layout, const char *where, const yk__whole *tensor, const yk__part *part);
/* Keeps one of equal boxes, so that all holders have about as many bytes. */
yk_status yk__layout_spread(yk__layout *layout, int holders);
/* A description of what is wrong with a layout in memory (base/invariant.h), whatever it was read from; NULL for
 * nothing. */
const char *yk__layout_table_check(const yk__layout *layout);
/* The parts fill every tensor and do not overlap. */
yk_status yk__layout_check(yk__layout *layout, const char *where);

/* ---- shard_write.c: from all ranks to a folder ------------------------------------------------------------------- */
/* One set of tensors, and what of it this rank writes. */
typedef struct yk__share {
    const char *stem; /* "model": model-00001-of-00008.safetensors, model.index.json */
    bool single_file; /* by one process alone: model.safetensors, and no index; the layout is empty */
    yk__layout layout;
    yk_state_dict *own; /* without a scope */
} yk__share;
/* Every rank of the group calls it with its shards. On failure nothing is left to clear. */
yk_status yk__share_plan(yk__share *share, const char *stem, const yk_shard *shards, int64_t count,
                         yk_process_group *group);
void yk__share_clear(yk__share *share);

/* Adds rank 0's last file, state.json: `names` are names, sizes and checksums of all others. */
typedef yk_status (*yk__shares_finish)(void *arg, yk__folder_files *files, json_t *names);
/* Writes the folder from all ranks, or (group NULL) from this process; a NULL `dir` is a failure of this rank.
 * `metadata` goes into every file and index; `finish` may be NULL. */
yk_status yk__shares_write(const char *dir, const yk__share *shares, int count, const yk_metadata *metadata,
                           yk_process_group *group, yk__shares_finish finish, void *arg);

/* ---- shard_index.c and shard_read.c: from a folder to any number of ranks ---------------------------------------- */
typedef struct yk__shard_file {
    char *path;
    uint64_t bytes;
    const char *blocks; /* 16 hexadecimal digits for each YK__SHARD_BLOCK bytes */
    const char *whole;  /* and for the file: checked by a reader of all of it */
} yk__shard_file;

typedef struct yk__shard_index {
    json_t *json;
    int64_t digest; /* of the index: two equal ones stand for the same tensors */
    yk__layout layout;
    yk__shard_file *files;
    int file_count;
} yk__shard_index;
/* Reads and checks DIR/STEM.index.json; no other file is looked at. On failure nothing is left to clear. */
yk_status yk__shard_index_open(const char *dir, const char *stem, yk__shard_index *index);
void yk__shard_index_clear(yk__shard_index *index);

/* Fills the parts. `dir` is for messages. */
yk_status yk__shards_read(const char *dir, const yk__shard_index *index, const yk_shard *shards, int64_t count);
/* All tensors of a set; one reference. */
yk_state_dict *yk__shards_read_whole(const char *dir, const char *stem, yk_device device);
/* Every byte of every file, and the files' headers. */
yk_status yk__shards_verify(const char *dir, const char *stem);

#endif
