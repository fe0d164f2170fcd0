/*
 * program_file.c - which file a program's name stands for, and why it may not run. Layer: cli.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/train/program_file.h"

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

/* The interpreter of a script, by the ending of its name; NULL for others. */
static const char *interpreter(const char *path)
{
    return ends_with(path, ".py") ? "python3" : ends_with(path, ".sh") ? "bash" : NULL;
}

/* 0 where the file may be executed, otherwise errno; *there: the file was found. */
static int may_run(const char *path, bool *there)
{
    struct stat about;
    *there = stat(path, &about) == 0;
    if (!*there)
        return errno;
    if (S_ISDIR(about.st_mode))
        return EISDIR;
    if (!S_ISREG(about.st_mode))
        return ENODEV;
    return faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) ? errno : 0;
}

static int refuse(const char *path, int error, bool there)
{
    const char *with = interpreter(path);
    bool absent = error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP;
    fprintf(stderr, "yoke run: %s: ", path);
    if (absent)
        fprintf(stderr, "%s\n", error == ENOENT ? "no such program" : strerror(error));
    else if (error == ENODEV)
        fprintf(stderr, "may not be executed: not a file\n");
    else if (error == EACCES && !there)
        fprintf(stderr, "a folder of this path may not be searched\n");
    else if (error != EACCES)
        fprintf(stderr, "may not be executed: %s\n", strerror(error));
    else if (with)
        fprintf(stderr, "may not be executed; try: yoke run ... %s %s (or chmod +x %s)\n", with, path, path);
    else
        fprintf(stderr, "may not be executed; try: chmod +x %s\n", path);
    return absent ? EXIT_NOT_THERE : EXIT_MAY_NOT_RUN;
}

int program_find(const char *name, char *path, size_t size)
{
    bool there = false;
    if (strlen(name) >= size)
        return refuse(name, ENAMETOOLONG, false);
    strcpy(path, name);
    if (strchr(name, '/')) {
        int error = may_run(path, &there);
        return error ? refuse(path, error, there) : 0;
    }
    const char *list = getenv("PATH");
    char *barred = NULL, *unsearchable = NULL;
    for (const char *at = list ? list : "/usr/local/bin:/usr/bin:/bin";; at++) {
        size_t length = strcspn(at, ":");
        int error = ENOENT;
        if (snprintf(path, size, "%.*s%s%s", (int)length, at, length ? "/" : "./", name) < (int)size)
            error = may_run(path, &there);
        if (error == 0) {
            free(barred);
            free(unsearchable);
            return 0;
        }
        if (error == EACCES && there && !barred)
            barred = strdup(path);
        else if (error == EACCES && !there && !unsearchable)
            unsearchable = length ? strndup(at, length) : strdup(".");
        at += length;
        if (!*at)
            break;
    }
    int here = may_run(name, &there), code = EXIT_NOT_THERE;
    if (barred || (here == EACCES && there))
        code = refuse(barred ? barred : name, EACCES, true);
    else
        fprintf(stderr, "yoke run: %s: no such program in PATH%s%s%s%s%s\n", name, here ? "" : ", did you mean ./",
                here ? "" : name, unsearchable ? " (of which " : "", unsearchable ? unsearchable : "",
                unsearchable ? " may not be searched)" : "");
    free(barred);
    free(unsearchable);
    return code;
}

int program_cannot_run(const char *path, int error, relay_sink *err)
{
    char line[256] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, line, sizeof(line) - 1) : 0;
    if (fd >= 0)
        close(fd);
    line[n > 0 ? n : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    bool windows = line[strcspn(line, "\r")] == '\r';
    line[strcspn(line, "\r")] = '\0';
    const char *with = interpreter(path);
    if (error == ENOENT && strncmp(line, "#!", 2) == 0 && windows)
        yk__relay_say(err,
                      "yoke run: %s: its lines end as on Windows, so there is no interpreter '%s\\r'; "
                      "try: sed -i 's/\\r$//' %s\n",
                      path, line + 2 + strspn(line + 2, " "), path);
    else if (error == ENOENT && strncmp(line, "#!", 2) == 0)
        yk__relay_say(err, "yoke run: %s: its interpreter '%s' is not there\n", path, line + 2 + strspn(line + 2, " "));
    else if (error == ENOEXEC && n == 0)
        yk__relay_say(err, "yoke run: %s: it is empty\n", path);
    else if (error == ENOEXEC)
        yk__relay_say(err, "yoke run: %s: no program of this machine, and no #! line; try: yoke run ... %s %s\n", path,
                      with ? with : "bash", path);
    else
        yk__relay_say(err, "yoke run: %s: %s\n", path, strerror(error));
    return EXIT_MAY_NOT_RUN;
}
