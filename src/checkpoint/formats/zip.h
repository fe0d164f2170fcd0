/*
 * zip.h - zip files: a reader that trusts nothing, of stored and deflated members, and a writer of stored ones.
 * Layer: checkpoint.
 */
#ifndef YOKE_CHECKPOINT_FORMATS_ZIP_H
#define YOKE_CHECKPOINT_FORMATS_ZIP_H

#include "base/core.h"
#include "base/name_table.h"
#include "checkpoint/formats/file_map.h"
#include "host/file.h"

/* A file, or (fd < 0) bytes in memory, which may be a mapped file's; `path` is for messages. */
typedef struct yk__source {
    const char *path;
    int fd;
    const unsigned char *bytes;
    uint64_t size;
    yk__file_map *map;
} yk__source;

/* Opens a regular file, or maps it. close: for an opened source only. */
yk_status yk__source_open(const char *path, bool mapped, yk__source *source);
void yk__source_close(yk__source *source);
yk_status yk__source_read(const yk__source *source, uint64_t offset, void *to, size_t size);
/* The same, and goes on with the checksum *crc over what was read, while it is in the cache. `to` NULL: of bytes in
 * memory, which stay where they are. */
yk_status yk__source_read_crc(const yk__source *source, uint64_t offset, void *to, size_t size, uint32_t *crc);

typedef struct yk__zip_member {
    const char *name; /* in the directory, not ended by a zero */
    uint32_t name_length, crc;
    bool deflated;
    uint64_t header, data, size; /* offsets of the local header and of the data in the file */
    uint64_t packed;             /* bytes of the data in the file */
} yk__zip_member;

typedef struct yk__zip {
    unsigned char *directory;
    yk__zip_member *members; /* in the order of the directory */
    uint32_t count;
    yk__name_table names;
} yk__zip;

/*
 * Reads and checks the directory and every local header. Invariant of what comes out: names are plain (no "..", no
 * leading slash) and different, members are stored or deflated (no smaller than deflate can make them), lie inside the
 * file and do not overlap. On failure nothing is left to clear.
 */
yk_status yk__zip_open(const yk__source *source, yk__zip *zip);
void yk__zip_clear(yk__zip *zip);
/* UINT32_MAX where there is none. */
uint32_t yk__zip_find(const yk__zip *zip, const char *name, size_t length);
/* Reads a member's data and checks its checksum; `to` NULL: only checks, of a stored one in memory. */
yk_status yk__zip_read(const yk__source *source, const yk__zip_member *member, void *to);

/* ---- writing (zip_write.c): members' data begin at multiples of 64 bytes ---- */
typedef struct yk__zip_writer {
    yk__file_writer *file;
    uint64_t offset;
    unsigned char *directory;
    size_t used, capacity;
    uint64_t count;
} yk__zip_writer;

yk_status yk__zip_create(yk__zip_writer *writer, const char *path);
yk_status yk__zip_add(yk__zip_writer *writer, const char *name, const void *data, uint64_t size);
/* Either ends the writer; without a commit the old file stays. */
yk_status yk__zip_commit(yk__zip_writer *writer);
void yk__zip_abort(yk__zip_writer *writer);

#endif
