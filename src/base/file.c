/*
 * file.c - whole files in, and files out that are either the old ones or the new ones, never half. Layer: base.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core.h"

yk_status yk__file_read(const char *path, size_t limit, unsigned char **data, size_t *size)
{
    *data = NULL;
    *size = 0;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe without a writer must not block */
    if (fd < 0)
        return yk__fail_errno("%s", path);
    yk_status status = YK_OK;
    struct stat info;
    unsigned char *buffer = NULL;
    if (fstat(fd, &info) < 0) {
        status = yk__fail_errno("%s", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = yk__fail(YK_ERR_IO, "%s: not a regular file", path);
    } else if ((uint64_t)info.st_size > limit) {
        status = yk__fail(YK_ERR_FORMAT, "%s: %lld bytes, more than the %zu that are expected at most", path,
                          (long long)info.st_size, limit);
    } else if (!(buffer = yk__calloc((size_t)info.st_size + 1, 1))) {
        status = YK_ERR_MEMORY;
    }
    size_t wanted = status ? 0 : (size_t)info.st_size, have = 0;
    while (have < wanted) {
        ssize_t got = read(fd, buffer + have, wanted - have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = yk__fail_errno("%s", path);
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    close(fd);
    if (status) {
        free(buffer);
        return status;
    }
    *data = buffer;
    *size = have;
    return YK_OK;
}

struct yk__file_writer {
    int fd;
    char *path, *temporary;
    unsigned char *buffer;
    size_t filled;
    yk_status failed;       /* of a write: then commit keeps the old file */
    bool inside;            /* no temporary name: yk__file_create_inside */
    off_t written, started; /* bytes given to the system, and of those to the disk */
    yk__tap_fn tap;
    void *tap_arg;
};

enum { WRITE_BUFFER = 1 << 18, START_BYTES = 8 << 20 };

static void writer_free(yk__file_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    free(writer->path);
    free(writer->temporary);
    free(writer->buffer);
    free(writer);
}

static yk__file_writer *writer_new(const char *path, bool inside)
{
    yk__file_writer *writer = yk__calloc(1, sizeof(*writer));
    if (!writer)
        return NULL;
    writer->fd = -1;
    writer->inside = inside;
    writer->path = yk__strdup(path);
    writer->temporary = inside ? yk__strdup(path) : yk__format("%s.tmp.%ld", path, (long)getpid());
    writer->buffer = yk__calloc(1, WRITE_BUFFER);
    if (!writer->path || !writer->temporary || !writer->buffer) {
        writer_free(writer);
        return NULL;
    }
    return writer;
}

static yk__file_writer *writer_open(yk__file_writer *writer, int flags, mode_t mode)
{
    writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | flags, mode);
    if (writer->fd >= 0)
        return writer;
    yk__fail_errno("%s", writer->temporary);
    writer_free(writer);
    return NULL;
}

yk__file_writer *yk__file_create_inside(const char *path)
{
    yk__file_writer *writer = writer_new(path, true);
    return writer ? writer_open(writer, O_EXCL, 0666) : NULL;
}

void yk__file_tap(yk__file_writer *writer, yk__tap_fn tap, void *arg)
{
    writer->tap = tap;
    writer->tap_arg = arg;
}

yk__file_writer *yk__file_create(const char *path)
{
    yk__file_writer *writer = writer_new(path, false);
    if (!writer)
        return NULL;
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode)) { /* renaming over /dev/null would take it away from everyone */
        yk__fail(YK_ERR_IO, "%s: not a regular file", path);
        writer_free(writer);
        return NULL;
    }
    return writer_open(writer, O_TRUNC, exists ? info.st_mode & 07777 : 0666);
}

static yk_status write_piece(yk__file_writer *writer, const unsigned char *data, size_t size)
{
    if (writer->tap)
        writer->tap(writer->tap_arg, data, size);
    while (size) {
        ssize_t put = write(writer->fd, data, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return writer->failed = yk__fail_errno("%s", writer->path);
        data += put;
        size -= (size_t)put;
        writer->written += put;
    }
    if (writer->inside && writer->written - writer->started >= START_BYTES) {
        /* A hint; fsync is what counts. */
        sync_file_range(writer->fd, writer->started, writer->written - writer->started, SYNC_FILE_RANGE_WRITE);
        writer->started = writer->written;
    }
    return YK_OK;
}

static yk_status write_all(yk__file_writer *writer, const unsigned char *data, size_t size)
{
    size_t most = writer->tap || writer->inside ? YK__TAP_PIECE : size;
    yk_status status = YK_OK;
    for (size_t piece; size && !status; data += piece, size -= piece) {
        piece = size < most ? size : most;
        status = write_piece(writer, data, piece);
    }
    return status;
}

yk_status yk__file_flush(yk__file_writer *writer)
{
    size_t filled = writer->filled;
    writer->filled = 0;
    return write_all(writer, writer->buffer, filled);
}

yk_status yk__file_write(yk__file_writer *writer, const void *data, size_t size)
{
    if (writer->failed)
        return writer->failed;
    if (writer->filled + size > WRITE_BUFFER) {
        yk_status status = yk__file_flush(writer);
        if (status)
            return status;
    }
    if (size >= WRITE_BUFFER)
        return write_all(writer, data, size);
    memcpy(writer->buffer + writer->filled, data, size);
    writer->filled += size;
    return YK_OK;
}

yk_status yk__directory_sync(const char *directory)
{
    yk_status status = YK_OK;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL && errno != EROFS))
        status = yk__fail_errno("%s", directory);
    if (fd >= 0)
        close(fd);
    return status;
}

static yk_status sync_around(const char *path)
{
    char *copy = yk__strdup(path);
    if (!copy)
        return YK_ERR_MEMORY;
    char *slash = strrchr(copy, '/');
    if (slash && slash != copy)
        *slash = 0;
    yk_status status = yk__directory_sync(slash == copy ? "/" : slash ? copy : ".");
    free(copy);
    return status;
}

yk_status yk__file_commit(yk__file_writer *writer)
{
    yk_status status = writer->failed ? writer->failed : yk__file_flush(writer);
    if (!status && fsync(writer->fd) < 0)
        status = yk__fail_errno("%s", writer->path);
    int fd = writer->fd;
    writer->fd = -1;
    if (close(fd) < 0 && !status)
        status = yk__fail_errno("%s", writer->path);
    if (!status && rename(writer->temporary, writer->path) < 0)
        status = yk__fail_errno("%s", writer->path);
    if (status)
        unlink(writer->temporary);
    else
        status = sync_around(writer->path);
    writer_free(writer);
    return status;
}

yk_status yk__file_commit_inside(yk__file_writer *const *writers, int count)
{
    yk_status status = YK_OK;
    for (int i = 0; i < count && !status; i++) {
        if (writers[i])
            status = writers[i]->failed ? writers[i]->failed : yk__file_flush(writers[i]);
    }
    /* Once the data of all are on the disk, the first fsync commits what the file system has to note of them all. */
    const unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    for (int pass = 0; pass < 2 && !status; pass++) {
        for (int i = 0; i < count; i++) {
            if (writers[i])
                sync_file_range(writers[i]->fd, 0, 0, pass ? wait : SYNC_FILE_RANGE_WRITE); /* a hint */
        }
    }
    for (int i = 0; i < count && !status; i++) {
        if (writers[i] && fsync(writers[i]->fd) < 0)
            status = yk__fail_errno("%s", writers[i]->path);
    }
    for (int i = 0; i < count; i++) {
        if (writers[i])
            writer_free(writers[i]);
    }
    return status;
}

void yk__file_abort(yk__file_writer *writer)
{
    if (!writer)
        return;
    unlink(writer->temporary);
    writer_free(writer);
}
