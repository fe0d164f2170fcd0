/*
 * folder.c - a checkpoint's folder, written whole or not at all, and removed without touching anything else.
 * Layer: checkpoint.
 *
 * Note [A folder that is whole]
 * DIR.<64 random bits>.tmp is made and filled; each file is synced, then the folder's names; then it is renamed to DIR
 * and the names around it are synced. A crash before the rename leaves the temporary folder, which nobody takes for a
 * checkpoint. Where DIR is there already the two are exchanged by one system call, so a whole DIR is there at every
 * moment.
 *
 * Invariants: all steps go through descriptors of the folder and of the one around it, so a path that is changed
 * meanwhile leads nowhere else. Where DIR itself is a link, the folder that it points to is written, and the link
 * stays; no other link is followed: where a folder of ours is to be removed and a link stands, the link itself goes.
 * Only names that a checkpoint has are ever removed. Whoever writes a temporary folder holds a lock on it, so what a
 * killed save left is told from what another thread or process writes just now.
 */
#include "checkpoint/shards/folder.h"
#include "host/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the files of a folder ------------------------------------------------------------------------------------- */

/* The text after a number of at least five digits; NULL: there is none. */
static const char *after_number(const char *text)
{
    size_t digits = text ? strspn(text, "0123456789") : 0;
    return digits >= 5 && digits <= 10 ? text + digits : NULL;
}

static const char *after_text(const char *text, const char *expected)
{
    size_t length = strlen(expected);
    return text && strncmp(text, expected, length) == 0 ? text + length : NULL;
}

/* True if a checkpoint has a file of this name: state.json, STEM.safetensors, STEM-00001-of-00008.safetensors or
 * STEM.index.json, STEM being model or optimizer. */
static bool is_own_file(const char *name)
{
    if (strcmp(name, "state.json") == 0)
        return true;
    const char *rest = after_text(name, "model");
    if (!rest)
        rest = after_text(name, "optimizer");
    if (!rest || strcmp(rest, ".safetensors") == 0 || strcmp(rest, ".index.json") == 0)
        return rest;
    rest = after_number(after_text(after_number(after_text(rest, "-")), "-of-"));
    return rest && strcmp(rest, ".safetensors") == 0;
}

static int open_folder(int parent, const char *name)
{
    return openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* True if `name` is a link. Asked where opening the folder has failed: keeps errno, which tells why. */
static bool is_link(int parent, const char *name)
{
    struct stat info;
    int before = errno;
    bool link = fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
    errno = before;
    return link;
}

/* A stream of an open folder's names; the descriptor stays the caller's. */
static DIR *list_names(int folder)
{
    int fd = open_folder(folder, ".");
    DIR *names = fd >= 0 ? fdopendir(fd) : NULL;
    if (!names && fd >= 0)
        close(fd);
    return names;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

yk_status yk__folder_check_own(int parent, const char *name, const char *path)
{
    int fd;
    DIR *names;
    for (;;) {
        fd = open_folder(parent, name);
        if (fd < 0)
            return errno == ENOENT || is_link(parent, name) ? YK_OK : yk__fail_errno("%s", path);
        names = list_names(fd);
        if (names || errno != ENOENT)
            break;
        close(fd); /* another save has exchanged and removed it since: there is a new one */
    }
    yk_status status = names ? YK_OK : yk__fail_errno("%s", path);
    for (struct dirent *entry; !status && (entry = readdir(names));) {
        if (!is_dots(entry->d_name) && !is_own_file(entry->d_name))
            status = yk__fail(YK_ERR_ARGUMENT,
                              "%s: holds '%.200s', which is no file of a checkpoint: the folder stays as it is", path,
                              entry->d_name);
    }
    if (names)
        closedir(names);
    close(fd);
    return status;
}

/* ---- removing --------------------------------------------------------------------------------------------------- */

static void remove_files(int folder)
{
    DIR *names = list_names(folder);
    for (struct dirent *entry; names && (entry = readdir(names));) {
        if (is_own_file(entry->d_name))
            unlinkat(folder, entry->d_name, 0);
    }
    if (names)
        closedir(names);
}

bool yk__folder_remove(int parent, const char *name)
{
    int fd = open_folder(parent, name);
    if (fd < 0 && errno == ENOENT)
        return true;
    if (fd < 0)
        return is_link(parent, name) && unlinkat(parent, name, 0) == 0;
    remove_files(fd);
    close(fd);
    return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT;
}

yk_status yk__folder_remove_checkpoint(int parent, const char *name, const char *path)
{
    yk_status status = yk__folder_check_own(parent, name, path);
    if (status)
        return status;
    char *temporary = yk__temporary_name(name, yk__name_bits());
    if (!temporary)
        return YK_ERR_MEMORY;
    if (is_link(parent, name) ? unlinkat(parent, name, 0) < 0
                              : renameat(parent, name, parent, temporary) < 0 || !yk__folder_remove(parent, temporary))
        status = yk__fail_errno("%s", path);
    free(temporary);
    return status;
}

/* False where another process, or thread, has it. A file system without locks gives them all. */
static bool lock_folder(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

bool yk__folder_remove_leftover(int parent, const char *name)
{
    int fd = open_folder(parent, name);
    bool abandoned = fd < 0 || lock_folder(fd);
    bool removed = !abandoned || yk__folder_remove(parent, name);
    if (fd >= 0)
        close(fd);
    return removed;
}

/* True if the file system has locks. Without them nobody knows if a folder is being written just now: then it stays. */
static bool locks_work(int folder)
{
    bool works = flock(folder, LOCK_SH | LOCK_NB) == 0;
    if (works)
        flock(folder, LOCK_UN);
    return works || errno == EWOULDBLOCK;
}

/* Removes the temporary folders that killed saves of `name` left. */
static void remove_leftovers(int parent, const char *name)
{
    DIR *names = list_names(parent);
    int self = names ? dirfd(names) : -1;
    for (struct dirent *entry; names && (entry = readdir(names));) {
        if (yk__temporary_of(entry->d_name, name, strlen(name)) && locks_work(self))
            yk__folder_remove_leftover(parent, entry->d_name);
    }
    if (names)
        closedir(names);
}

/* ---- writing ---------------------------------------------------------------------------------------------------- */

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void close_folder(yk__folder *f)
{
    if (f->open && f->fd >= 0)
        close(f->fd);
    if (f->open && f->parent >= 0)
        close(f->parent);
    free(f->around);
    free(f->dir);
    free(f->temporary);
    *f = (yk__folder){0};
}

/* The folder around `dir`, opened, and the names; `dir` may end in slashes. */
static yk_status open_parent(yk__folder *f, const char *dir, uint64_t bits)
{
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    *f = (yk__folder){.parent = -1, .fd = -1, .open = true};
    char *given = yk__format("%.*s", (int)length, dir);
    f->dir = given ? yk__path_followed(given) : NULL;
    free(given);
    if (!f->dir)
        return yk__error_code();
    f->temporary = f->dir ? yk__temporary_name(f->dir, bits) : NULL;
    if (!f->temporary)
        return YK_ERR_MEMORY;
    size_t around = (size_t)(base_of(f->dir) - f->dir);
    f->around = around > 1 ? yk__format("%.*s", (int)around - 1, f->dir) : yk__strdup(around ? "/" : ".");
    if (!f->around)
        return YK_ERR_MEMORY;
    f->parent = open(f->around, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return f->parent < 0 ? yk__fail_errno("%s", f->dir) : YK_OK;
}

/* Makes the folder and locks it. False with errno 0 where somebody took it for a leftover between the two. */
static bool make_and_lock(yk__folder *f, const char *name)
{
    if (mkdirat(f->parent, name, 0777) < 0)
        return false;
    f->mine = true;
    f->fd = open_folder(f->parent, name);
    struct stat here, there;
    bool locked = f->fd >= 0 && lock_folder(f->fd);
    bool taken = f->fd < 0 ? errno == ENOENT : !locked;
    if (locked) {
        taken = fstatat(f->parent, name, &there, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
        if (!taken && fstat(f->fd, &here) == 0 && here.st_ino == there.st_ino)
            return true;
    }
    if (taken) {
        if (f->fd >= 0)
            close(f->fd);
        f->fd = -1;
        errno = 0;
    }
    return false;
}

static yk_status make_folder(yk__folder *f)
{
    enum { TRIES = 1000 }; /* a millisecond apart: removing an empty folder takes less */
    const char *name = base_of(f->temporary);
    for (int i = 0; i < TRIES; i++) {
        if (make_and_lock(f, name))
            return YK_OK;
        /* Nobody else makes a folder of this name: one that is there is still being removed by another process. */
        if (errno != 0 && !(i > 0 && errno == EEXIST))
            return yk__fail_errno("%s", f->temporary);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return yk__fail(YK_ERR_IO, "%s: is removed by others as often as it is made", f->temporary);
}

yk_status yk__folder_begin(yk__folder *f, const char *dir, uint64_t bits)
{
    yk_status status = open_parent(f, dir, bits);
    if (!status)
        status = yk__folder_check_own(f->parent, base_of(f->dir), f->dir);
    if (!status)
        remove_leftovers(f->parent, base_of(f->dir));
    if (!status)
        status = make_folder(f);
    if (status)
        yk__folder_abandon(f);
    return status;
}

yk_status yk__folder_join(yk__folder *f, const char *dir, uint64_t bits)
{
    yk_status status = open_parent(f, dir, bits);
    if (!status && (f->fd = open_folder(f->parent, base_of(f->temporary))) < 0)
        status = yk__fail_errno("%s", f->temporary);
    if (status)
        close_folder(f);
    return status;
}

yk_status yk__folder_sync(const yk__folder *f)
{
    return yk__directory_sync_fd(f->fd, f->temporary);
}

static int folder_exchange(const yk__folder *f)
{
    return renameat2(f->parent, base_of(f->temporary), f->parent, base_of(f->dir), RENAME_EXCHANGE);
}

static yk_status rename_or_exchange(const yk__folder *f, bool *exchanged)
{
    *exchanged = false;
    const char *name = base_of(f->dir);
    if (renameat(f->parent, base_of(f->temporary), f->parent, name) == 0)
        return YK_OK;
    if (errno != ENOTEMPTY && errno != EEXIST && !(errno == ENOTDIR && is_link(f->parent, name)))
        return yk__fail_errno("%s", f->dir);
    if (yk__folder_check_own(f->parent, name, f->dir))
        return yk__error_code();
    *exchanged = folder_exchange(f) == 0;
    if (*exchanged)
        return YK_OK;
    if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP)
        return yk__fail(YK_ERR_IO, "%s: is there already, and this file system cannot exchange two folders", f->dir);
    return yk__fail_errno("%s", f->dir);
}

yk_status yk__folder_commit(yk__folder *f)
{
    bool exchanged;
    yk_status status = rename_or_exchange(f, &exchanged);
    if (status) {
        yk__folder_abandon(f);
        return status;
    }
    status = yk__directory_sync_fd(f->parent, f->around);
    /* Removes the old folder when the new one's name is on the disk; where that fails, it is put back and the new one
     * is removed. */
    if (exchanged && (!status || folder_exchange(f) == 0))
        yk__folder_remove(f->parent, base_of(f->temporary));
    close_folder(f);
    return status;
}

void yk__folder_abandon(yk__folder *f)
{
    if (f->mine)
        yk__folder_remove(f->parent, base_of(f->temporary));
    close_folder(f);
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

void yk__folder_reading_begin(yk__folder_reading *r, const char *dir)
{
    r->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

bool yk__folder_reading_again(yk__folder_reading *r, const char *dir, yk_status status)
{
    enum { ROUNDS = 20 }; /* a save would have to end within each of them */
    struct stat begun, now;
    bool again = status && r->fd >= 0 && ++r->rounds < ROUNDS && fstat(r->fd, &begun) == 0 && stat(dir, &now) == 0 &&
                 (begun.st_ino != now.st_ino || begun.st_dev != now.st_dev);
    if (r->fd >= 0)
        close(r->fd);
    if (again)
        yk_clear_error();
    return again;
}
