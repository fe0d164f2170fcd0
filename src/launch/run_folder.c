/*
 * run_folder.c - the folder in which the launchers of a user announce their runs. Layer: launch.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch/run_folder.h"

/* A folder of this user's own is one in which the folder of runs may be made. */
static bool folder_is_own(const char *path)
{
    struct stat about;
    return path && path[0] == '/' && stat(path, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == geteuid();
}

bool yk__run_folder_path(int index, char path[YK__RUN_FOLDER_PATH])
{
    const char *set = getenv("YOKE_RUN_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
    char session[64];
    if (set && *set) {
        snprintf(path, YK__RUN_FOLDER_PATH, "%s", set);
        return index == 0;
    }
    snprintf(session, sizeof(session), "/run/user/%u", (unsigned)geteuid());
    bool same = runtime && strcmp(runtime, session) == 0;
    const char *parents[] = {same ? NULL : runtime, session};
    for (int i = 0; i < 2; i++) {
        if (folder_is_own(parents[i]) && index-- == 0) {
            snprintf(path, YK__RUN_FOLDER_PATH, "%s/yoke", parents[i]);
            return true;
        }
    }
    snprintf(path, YK__RUN_FOLDER_PATH, "/tmp/yoke-%u", (unsigned)geteuid());
    return index == 0;
}

/* Why an open folder, or one that could not be opened (-1), may not be used; NULL: it may. */
static const char *folder_problem(int fd, char text[80])
{
    struct stat about;
    if (fd < 0)
        return errno == ENOTDIR || errno == ELOOP ? "it is no folder, or a link" : strerror(errno);
    if (fstat(fd, &about))
        return strerror(errno);
    if (about.st_uid != geteuid())
        return "it is another user's";
    if (!(about.st_mode & 077))
        return NULL;
    snprintf(text, 80, "others may enter it (its mode is %03o, and 700 is needed)", about.st_mode & 0777u);
    return text;
}

int yk__run_folder_open(const char *path)
{
    char text[80];
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return -1;
    const char *problem = folder_problem(fd, text);
    if (!problem)
        return fd;
    yk__fail(YK_ERR_STATE, "the folder of runs, %s, cannot be used: %s", path, problem);
    if (fd >= 0)
        close(fd);
    return -1;
}

int yk__run_folder_make(char path[YK__RUN_FOLDER_PATH])
{
    if (!yk__run_folder_path(0, path))
        return -1;
    int fd = yk__run_folder_open(path);
    if (fd >= 0 || yk_last_error())
        return fd;
    if (mkdir(path, 0700) && errno != EEXIST) {
        yk__fail_errno("the folder of runs, %s, cannot be made", path);
        return -1;
    }
    fd = yk__run_folder_open(path);
    if (fd < 0 && !yk_last_error()) /* taken away again */
        yk__fail(YK_ERR_STATE, "the folder of runs, %s, has just been removed", path);
    return fd;
}
