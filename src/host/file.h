/*
 * file.h - whole files in, and files out that are either the old ones or the new ones. Layer: host.
 */
#ifndef YOKE_HOST_FILE_H
#define YOKE_HOST_FILE_H

#include "base/core.h"

/* Reads a whole file of at most `limit` bytes; the caller frees *data. Errors name the path. */
yk_status yk__file_read(const char *path, size_t limit, unsigned char **data, size_t *size);
/* A file written beside `path` and renamed over it by commit after a sync of file and directory: the old content
 * stays until the new is safe. Several writers of one path do not disturb each other; the last to commit wins. Where
 * `path` is a symbolic link, the file is the one that it leads to. abort leaves everything as it was. Either frees the
 * writer. */
typedef struct yk__file_writer yk__file_writer;
yk__file_writer *yk__file_create(const char *path);
/* The path that symbolic links at the end of `path` lead to, whether or not something is there; the caller frees. NULL
 * and an error in a loop, or where the system does not follow them either. */
char *yk__path_followed(const char *path);
yk_status yk__file_write(yk__file_writer *writer, const void *data, size_t size);
yk_status yk__file_flush(yk__file_writer *writer); /* gives the system what is buffered; syncs nothing */
yk_status yk__file_commit(yk__file_writer *writer);
void yk__file_abort(yk__file_writer *writer);
/* A new file `name` in an open folder that is renamed as a whole later; what has that name already is an error. The
 * folder stays the caller's, and open until commit or abort, which removes the file. The disk starts on the file while
 * it is written. */
yk__file_writer *yk__file_create_inside(int folder, const char *folder_path, const char *name);
/* Commits such files together, which costs one wait for the disk's journal instead of one for each. Frees them all, on
 * failure too; NULLs are passed over. */
yk_status yk__file_commit_inside(yk__file_writer *const *writers, int count);
/* All bytes written from here on also go to `tap`, in order, in pieces that fit a cache. */
typedef void (*yk__tap_fn)(void *arg, const void *data, size_t size);
void yk__file_tap(yk__file_writer *writer, yk__tap_fn tap, void *arg);
/* 1 MiB: a usual second-level cache. */
enum { YK__TAP_PIECE = 1 << 20 };
/* Makes the names in a folder safe. */
yk_status yk__directory_sync(const char *directory);
yk_status yk__directory_sync_fd(int fd, const char *path /* for messages */);
/* 64 bits that nobody can foresee, for temporary names: NAME.<16 hexadecimal digits>.tmp, which the caller frees. */
uint64_t yk__name_bits(void);
char *yk__temporary_name(const char *name, uint64_t bits);
/* True if `temporary` is such a name of the first `length` bytes of `name`. */
bool yk__temporary_of(const char *temporary, const char *name, size_t length);

#endif
