/*
 * leftovers.c - what runs have left behind on this machine. Layer: observe.
 *
 * A rank is known by YOKE_RANK_PAGE in its environment, which names its launcher's supervisor. Ranks, and what they
 * start, stay below it, since it adopts orphans: a process that is not below it has outlived it. Environments of other
 * users are not read.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observe/holders.h"
#include "observe/leftovers.h"

enum { MOST_ENVIRONMENT = 1 << 20, DEEPEST = 256 };

int yk__process_parent(int pid)
{
    char path[40], text[512];
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    text[size > 0 ? size : 0] = '\0';
    const char *at = strrchr(text, ')');
    return at && sscanf(at + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

bool yk__process_is_below(int pid, int ancestor)
{
    for (int depth = 0; pid > 1 && depth < DEEPEST; depth++) {
        if (pid == ancestor)
            return true;
        pid = yk__process_parent(pid);
    }
    return pid == ancestor;
}

/* The whole environment, which ends with two zeros; the caller frees. NULL where it is not to be read. */
static char *environment_read(int pid)
{
    char path[40];
    size_t size = 0;
    snprintf(path, sizeof(path), "/proc/%d/environ", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 ? malloc(MOST_ENVIRONMENT) : NULL;
    for (ssize_t n;
         text && size < MOST_ENVIRONMENT - 2 && (n = read(fd, text + size, MOST_ENVIRONMENT - 2 - size)) > 0;)
        size += (size_t)n;
    if (fd >= 0)
        close(fd);
    if (text)
        text[size] = text[size + 1] = '\0';
    return text;
}

static const char *variable_of(const char *environment, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = environment; *at; at += strlen(at) + 1) {
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return at + length + 1;
    }
    return NULL;
}

int yk__process_supervisor(int pid)
{
    char *environment = environment_read(pid);
    const char *page = environment ? variable_of(environment, "YOKE_RANK_PAGE") : NULL;
    int supervisor = page ? atoi(page) : 0;
    free(environment);
    return supervisor > 0 ? supervisor : 0;
}

static void name_read(int pid, char name[32])
{
    char path[40];
    snprintf(path, sizeof(path), "/proc/%d/comm", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, name, 31) : 0;
    if (fd >= 0)
        close(fd);
    name[size > 0 ? size : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
}

static void process_look(int pid, yk__leftovers *l)
{
    char *environment = environment_read(pid);
    const char *page = environment ? variable_of(environment, "YOKE_RANK_PAGE") : NULL;
    int supervisor = page ? atoi(page) : 0;
    if (supervisor > 0 && !yk__process_is_below(pid, supervisor)) {
        yk__orphan *more = yk__realloc(l->orphans, ((size_t)l->n_orphans + 1) * sizeof(*more));
        const char *job = variable_of(environment, "YOKE_JOB_ID"), *rank = variable_of(environment, "RANK");
        if (more) {
            yk__orphan *one = &more[l->n_orphans++];
            l->orphans = more;
            *one = (yk__orphan){.pid = pid, .launcher = supervisor};
            snprintf(one->job, sizeof(one->job), "%s", job ? job : "");
            snprintf(one->rank, sizeof(one->rank), "%s", rank ? rank : "");
            name_read(pid, one->name);
        }
    }
    free(environment);
}

static void orphans_read(yk__leftovers *l)
{
    DIR *folder = opendir("/proc");
    struct stat about;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (isdigit((unsigned char)entry->d_name[0]) && fstatat(dirfd(folder), entry->d_name, &about, 0) == 0 &&
            about.st_uid == geteuid())
            process_look(atoi(entry->d_name), l);
    }
    if (folder)
        closedir(folder);
}

static void user_name(uid_t uid, char *user, size_t size)
{
    const struct passwd *known = getpwuid(uid);
    if (known)
        snprintf(user, size, "%s", known->pw_name);
    else
        snprintf(user, size, "%u", (unsigned)uid);
}

bool yk__process_user(int pid, char *user, size_t size)
{
    char path[40];
    struct stat about;
    snprintf(path, sizeof(path), "/proc/%d", pid);
    if (stat(path, &about))
        return false;
    user_name(about.st_uid, user, size);
    return true;
}

bool yk__process_is_own(int pid)
{
    char path[40];
    struct stat about;
    snprintf(path, sizeof(path), "/proc/%d", pid);
    return stat(path, &about) == 0 && about.st_uid == geteuid();
}

static void segments_read(yk__leftovers *l)
{
    DIR *folder = opendir("/dev/shm");
    struct stat about;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (strncmp(entry->d_name, "yoke", 4) != 0 ||
            fstatat(dirfd(folder), entry->d_name, &about, AT_SYMLINK_NOFOLLOW))
            continue;
        yk__segment *more = yk__realloc(l->segments, ((size_t)l->n_segments + 1) * sizeof(*more));
        if (!more)
            break;
        l->segments = more;
        yk__segment *one = &more[l->n_segments++];
        *one = (yk__segment){.bytes = (double)about.st_size, .own = about.st_uid == geteuid()};
        snprintf(one->path, sizeof(one->path), "/dev/shm/%s", entry->d_name);
        user_name(about.st_uid, one->user, sizeof(one->user));
        one->n_holders = yk__file_holders(one->path, one->holders, (int)(sizeof(one->holders) / sizeof(*one->holders)));
    }
    if (folder)
        closedir(folder);
}

void yk__leftovers_read(yk__leftovers *l)
{
    YK__QUESTION;
    *l = (yk__leftovers){0};
    orphans_read(l);
    segments_read(l);
}

void yk__leftovers_clear(yk__leftovers *l)
{
    free(l->orphans);
    free(l->segments);
    *l = (yk__leftovers){0};
}
