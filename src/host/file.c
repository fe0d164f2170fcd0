/*
 * file.c - whole files in, and files out that are either the old ones or the new ones, never half. Layer: host.
 *
 * A file that replaces another has no name while it is written, where the file system allows that (O_TMPFILE): a writer
 * that is killed leaves nothing. Elsewhere, and between linkat and rename, it is PATH.<64 random bits>.tmp. Nothing is
 * ever opened for writing that was there before: O_EXCL and O_NOFOLLOW, so neither a link nor a second writer of the
 * same path, a thread or a process, can get in between. A path that is a symbolic link names the file that it points
 * to: that one is replaced, in its own folder, and the link stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/core.h"
#include "host/file.h"
#include "host/progress.h"

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
    int folder;      /* where the file is made; the caller's if `inside` */
    char *path;      /* for messages */
    char *name;      /* in the folder, at the end */
    char *temporary; /* in the folder, meanwhile; NULL: none. Equal to `name` if inside */
    unsigned char *buffer;
    size_t filled;
    yk_status failed;       /* of a write: then commit keeps the old file */
    bool inside;            /* yk__file_create_inside */
    off_t written, started; /* bytes given to the system, and of those to the disk */
    yk__tap_fn tap;
    void *tap_arg;
    int shown; /* in the page of this process (host/progress.h) */
};

/* WRITE_BUFFER: writes below it are gathered, larger ones go to the system as they are. START_BYTES: bytes written
 * between two requests that the disk begin, so that fsync at the end finds little left. */
enum { WRITE_BUFFER = 1 << 18, START_BYTES = 8 << 20 };

static void writer_free(yk__file_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->folder >= 0 && !writer->inside)
        close(writer->folder);
    free(writer->path);
    free(writer->name);
    free(writer->temporary);
    yk__progress_end(writer->shown);
    free(writer->buffer);
    free(writer);
}

/* Notes that a file is written, by the end of its path. */
static int show(const char *path)
{
    static _Atomic uint64_t saves;
    yk__page_operation o = {
        .number = atomic_fetch_add(&saves, 1) + 1, .what = YK__WHAT_SAVE, .kind = "save", .peer = -1, .tag = -1};
    size_t length = strlen(path), most = sizeof(o.group) - 1;
    memcpy(o.group, path + (length > most ? length - most : 0), length < most ? length : most);
    return yk__progress_begin(&o);
}

/* Takes `path`, which may be NULL: out of memory. */
static yk__file_writer *writer_new(char *path, const char *name)
{
    yk__file_writer *writer = path ? yk__calloc(1, sizeof(*writer)) : NULL;
    if (!writer) {
        free(path);
        return NULL;
    }
    writer->fd = writer->folder = -1;
    writer->path = path;
    writer->shown = show(path);
    writer->name = yk__strdup(name);
    writer->buffer = yk__calloc(1, WRITE_BUFFER);
    if (writer->name && writer->buffer)
        return writer;
    writer_free(writer);
    return NULL;
}

static int open_new(int folder, const char *name, mode_t mode)
{
    return openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

yk__file_writer *yk__file_create_inside(int folder, const char *folder_path, const char *name)
{
    yk__file_writer *writer = writer_new(yk__format("%s/%s", folder_path, name), name);
    if (!writer)
        return NULL;
    writer->inside = true;
    writer->folder = folder;
    writer->fd = open_new(folder, name, 0666);
    if (writer->fd >= 0 && (writer->temporary = yk__strdup(name)))
        return writer;
    if (writer->fd >= 0)
        unlinkat(folder, name, 0);
    else
        yk__fail_errno("%s", writer->path);
    writer_free(writer);
    return NULL;
}

void yk__file_tap(yk__file_writer *writer, yk__tap_fn tap, void *arg)
{
    writer->tap = tap;
    writer->tap_arg = arg;
}

uint64_t yk__name_bits(void)
{
    static _Atomic uint64_t calls;
    uint64_t bits;
    if (getrandom(&bits, sizeof(bits), 0) != (ssize_t)sizeof(bits)) /* O_EXCL still holds; only luck is gone */
        bits = ((uint64_t)getpid() << 32) + ++calls + (uint64_t)(yk__now() * 1e9);
    return bits;
}

char *yk__temporary_name(const char *name, uint64_t bits)
{
    return yk__format("%s.%016" PRIx64 ".tmp", name, bits);
}

bool yk__temporary_of(const char *temporary, const char *name, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    return strncmp(temporary, name, length) == 0 && temporary[length] == '.' &&
           strspn(temporary + length + 1, digits) == 16 && strcmp(temporary + length + 17, ".tmp") == 0;
}

/* Draws a temporary name that nobody has, and gives it to the new file that `make` makes; its result. */
static int make_named(yk__file_writer *writer, int (*make)(const yk__file_writer *writer, mode_t mode), mode_t mode)
{
    int made = -1;
    for (int tries = 0; tries < 16; tries++) {
        free(writer->temporary);
        writer->temporary = yk__temporary_name(writer->name, yk__name_bits());
        if (!writer->temporary)
            return -1;
        made = make(writer, mode);
        if (made >= 0 || errno != EEXIST)
            break;
    }
    if (made < 0) {
        yk__fail_errno("%s", writer->path);
        free(writer->temporary);
        writer->temporary = NULL;
    }
    return made;
}

static int make_file(const yk__file_writer *writer, mode_t mode)
{
    return open_new(writer->folder, writer->temporary, mode);
}

static int make_link(const yk__file_writer *writer, mode_t mode)
{
    (void)mode;
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", writer->fd);
    return linkat(AT_FDCWD, path, writer->folder, writer->temporary, AT_SYMLINK_FOLLOW);
}

/* The folder that a path is in, opened. */
static int open_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + (slash == path) : 1;
    char *folder = yk__format("%.*s", (int)length, slash ? path : ".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (folder && fd < 0)
        yk__fail_errno("%s", path);
    free(folder);
    return fd;
}

/* yk__file_create of a path that is no link. */
static yk__file_writer *file_create_at(const char *path)
{
    const char *slash = strrchr(path, '/');
    yk__file_writer *writer = writer_new(yk__strdup(path), slash ? slash + 1 : path);
    if (!writer)
        return NULL;
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && !S_ISREG(info.st_mode)) { /* renaming over /dev/null would take it away from everyone */
        yk__fail(YK_ERR_IO, "%s: not a regular file", path);
        writer_free(writer);
        return NULL;
    }
    mode_t mode = exists ? info.st_mode & 07777 : 0666;
    writer->folder = open_folder_of(path);
    /* Without /proc the file could never get a name. */
    if (writer->folder >= 0 && access("/proc/self/fd", X_OK) == 0)
        writer->fd = openat(writer->folder, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
    if (writer->folder >= 0 && writer->fd < 0)
        writer->fd = make_named(writer, make_file, mode);
    if (writer->fd >= 0)
        return writer;
    writer_free(writer);
    return NULL;
}

/* The target of the link at `path`, as a path; NULL with errno 0 where there is no link. */
static char *link_target(const char *path)
{
    char to[PATH_MAX];
    ssize_t length = readlink(path, to, sizeof(to));
    if (length < 0 || length == (ssize_t)sizeof(to)) {
        errno = length < 0 ? (errno == EINVAL || errno == ENOENT ? 0 : errno) : ENAMETOOLONG;
        return NULL;
    }
    const char *slash = strrchr(path, '/');
    int folder = to[0] == '/' || !slash ? 0 : (int)(slash - path) + 1;
    char *target = yk__format("%.*s%.*s", folder, path, (int)length, to);
    errno = target ? 0 : ENOMEM;
    return target;
}

char *yk__path_followed(const char *path)
{
    enum { MOST_LINKS = 40 }; /* as in the kernel */
    char *at = yk__strdup(path);
    struct stat info;
    /* A link that the system itself would not follow (a loop, somebody else's in /tmp) is not followed here. */
    if (at && lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && stat(path, &info) < 0 && errno != ENOENT) {
        yk__fail_errno("%s", path);
        free(at);
        return NULL;
    }
    for (int i = 0; at && i < MOST_LINKS; i++) {
        char *target = link_target(at);
        if (!target && errno == 0)
            return at;
        if (!target && errno != ENOMEM)
            yk__fail_errno("%s", path);
        free(at);
        at = target;
    }
    if (at)
        yk__fail(YK_ERR_IO, "%s: leads over more than %d symbolic links", path, MOST_LINKS);
    free(at);
    return NULL;
}

yk__file_writer *yk__file_create(const char *path)
{
    char *at = yk__path_followed(path);
    yk__file_writer *writer = at ? file_create_at(at) : NULL;
    free(at);
    return writer;
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
    yk__progress_mark();
    if (writer->failed || size == 0) /* of nothing there may be no address */
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

yk_status yk__directory_sync_fd(int fd, const char *path)
{
    return fsync(fd) < 0 && errno != EINVAL && errno != EROFS ? yk__fail_errno("%s", path) : YK_OK;
}

yk_status yk__directory_sync(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return yk__fail_errno("%s", directory);
    yk_status status = yk__directory_sync_fd(fd, directory);
    close(fd);
    return status;
}

static yk_status put_in_place(yk__file_writer *writer)
{
    if (!writer->temporary && make_named(writer, make_link, 0) < 0)
        return yk__error_code();
    if (close(writer->fd) < 0 || renameat(writer->folder, writer->temporary, writer->folder, writer->name) < 0) {
        writer->fd = -1;
        return yk__fail_errno("%s", writer->path);
    }
    writer->fd = -1;
    free(writer->temporary);
    writer->temporary = NULL;
    return yk__directory_sync_fd(writer->folder, writer->path);
}

yk_status yk__file_commit(yk__file_writer *writer)
{
    yk_status status = writer->failed ? writer->failed : yk__file_flush(writer);
    if (!status && fsync(writer->fd) < 0)
        status = yk__fail_errno("%s", writer->path);
    if (!status)
        status = put_in_place(writer);
    if (status)
        yk__file_abort(writer);
    else
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
    if (writer->temporary)
        unlinkat(writer->folder, writer->temporary, 0);
    writer_free(writer);
}
