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
    int fd = open(path, O_RDONLY | O_CLOEXEC);
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
    yk_status failed; /* of a write: then commit keeps the old file */
};

enum { WRITE_BUFFER = 1 << 18 };

static void writer_free(yk__file_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    free(writer->path);
    free(writer->temporary);
    free(writer->buffer);
    free(writer);
}

yk__file_writer *yk__file_create(const char *path)
{
    yk__file_writer *writer = yk__calloc(1, sizeof(*writer));
    if (!writer)
        return NULL;
    writer->fd = -1;
    writer->path = yk__strdup(path);
    writer->temporary = yk__format("%s.tmp.%ld", path, (long)getpid());
    writer->buffer = yk__calloc(1, WRITE_BUFFER);
    if (!writer->path || !writer->temporary || !writer->buffer) {
        writer_free(writer);
        return NULL;
    }
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode)) { /* renaming over /dev/null would take it away from everyone */
        yk__fail(YK_ERR_IO, "%s: not a regular file", path);
        writer_free(writer);
        return NULL;
    }
    mode_t mode = exists ? info.st_mode & 07777 : 0666;
    writer->fd = open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (writer->fd < 0) {
        yk__fail_errno("%s", writer->temporary);
        writer_free(writer);
        return NULL;
    }
    return writer;
}

static yk_status write_all(yk__file_writer *writer, const unsigned char *data, size_t size)
{
    while (size) {
        ssize_t put = write(writer->fd, data, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return writer->failed = yk__fail_errno("%s", writer->path);
        data += put;
        size -= (size_t)put;
    }
    return YK_OK;
}

static yk_status writer_flush(yk__file_writer *writer)
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
        yk_status status = writer_flush(writer);
        if (status)
            return status;
    }
    if (size >= WRITE_BUFFER)
        return write_all(writer, data, size);
    memcpy(writer->buffer + writer->filled, data, size);
    writer->filled += size;
    return YK_OK;
}

static yk_status sync_directory(const char *path)
{
    char *copy = yk__strdup(path);
    if (!copy)
        return YK_ERR_MEMORY;
    char *slash = strrchr(copy, '/');
    const char *directory = slash == copy ? "/" : slash ? copy : ".";
    if (slash && slash != copy)
        *slash = 0;
    yk_status status = YK_OK;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL && errno != EROFS))
        status = yk__fail_errno("%s", directory);
    if (fd >= 0)
        close(fd);
    free(copy);
    return status;
}

yk_status yk__file_commit(yk__file_writer *writer)
{
    yk_status status = writer->failed ? writer->failed : writer_flush(writer);
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
        status = sync_directory(writer->path);
    writer_free(writer);
    return status;
}

void yk__file_abort(yk__file_writer *writer)
{
    if (!writer)
        return;
    unlink(writer->temporary);
    writer_free(writer);
}
