/*
 * folder.h - the folder of a checkpoint: made under a temporary name, put in place at once, removed. Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_SHARDS_FOLDER_H
#define YOKE_CHECKPOINT_SHARDS_FOLDER_H

#include "base/core.h"

/* A folder that is being written: its temporary name lies beside `dir`, which it becomes. {0} and closed: not open. */
typedef struct yk__folder {
    int parent, fd;                 /* the folder that `dir` is in, and the one that is written */
    char *around, *dir, *temporary; /* the paths of `parent`, of what `fd` becomes and of `fd`: for messages */
    bool open, mine;                /* mine: this process made it */
} yk__folder;

/* Removes what killed saves of `dir` left, and makes a new folder of the name DIR.<bits>.tmp. Fails where `dir` is
 * there and holds what is no checkpoint's. On failure there is nothing to close. */
yk_status yk__folder_begin(yk__folder *f, const char *dir, uint64_t bits);
/* Opens the folder that another process has begun, with the same `bits`. */
yk_status yk__folder_join(yk__folder *f, const char *dir, uint64_t bits);
/* Syncs the folder's names, after all its files were written and committed. */
yk_status yk__folder_sync(const yk__folder *f);
/* Puts the folder, whose content is synced, where `dir` is, and syncs the names around it. A link that is there is
 * replaced, not followed. Closes. */
yk_status yk__folder_commit(yk__folder *f);
/* Closes, and removes the folder if this process made it. */
void yk__folder_abandon(yk__folder *f);

/*
 * Reading a checkpoint file by file while a save may put another one in its place, which makes files of two saves look
 * damaged: do { begin; read } while (again). `again` is true where reading failed and `dir` is another folder than at
 * `begin`; the error is cleared then. It gives up after some rounds.
 */
typedef struct yk__folder_reading {
    int fd, rounds; /* the folder at `begin`, kept open so that no other one gets its inode; -1: there was none */
} yk__folder_reading;
void yk__folder_reading_begin(yk__folder_reading *r, const char *dir);
bool yk__folder_reading_again(yk__folder_reading *r, const char *dir, yk_status status);

/* Removes a checkpoint's files and, where nothing else is in it, the folder `name` in the open folder `parent`; false
 * where it stays. A link is removed itself; what it points at stays. Sets no error. */
bool yk__folder_remove(int parent, const char *name);
/* Fails if a folder holds anything but files with names of a checkpoint's. A folder that is not there passes, and so
 * does a link, which is not followed. `path` is for messages. */
yk_status yk__folder_check_own(int parent, const char *name, const char *path);
/* Removes the checkpoint `name`, by way of a temporary name, so that a crash leaves no half one under this. One to
 * which somebody has added a file stays: an error, as where it cannot be removed. `path` is for messages. */
yk_status yk__folder_remove_checkpoint(int parent, const char *name, const char *path);
/* Removes the temporary folder `name` unless a process that still lives writes it; false where it stays though nobody
 * does. Sets no error. */
bool yk__folder_remove_leftover(int parent, const char *name);

#endif
