/*
 * library_path.c - see library_path.h. Layer: host.
 *
 * A machine that has PyTorch has NVIDIA's libraries in its wheels, where the loader does not look. Python is not
 * started to ask: an environment is the folder above the one that python3 lies in. Its link is followed one step at a
 * time, because python3 on the path may be a link into a virtual environment, and that of an environment is one to the
 * Python that made it: each step's environment is offered.
 */
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/library_path.h"

typedef struct search {
    const char *file;
    int left;   /* candidates before the one that is asked for */
    char *path; /* where it goes */
    size_t size;
    bool found;
} search;

enum { MOST_LINKS = 16 }; /* that are followed */

/* Counts a candidate; the one that is asked for is kept. */
static void offer(search *s, const char *candidate)
{
    if (s->found || s->left--)
        return;
    s->found = (size_t)snprintf(s->path, s->size, "%s", candidate) < s->size;
}

/* Offers what the pattern with the file behind it finds, in the order of names. */
static void offer_files(search *s, const char *folder, const char *pattern)
{
    char whole[PATH_MAX];
    glob_t found;
    if (!folder || !*folder || s->found ||
        snprintf(whole, sizeof(whole), "%s%s/%s", folder, pattern, s->file) >= (int)sizeof(whole))
        return;
    if (glob(whole, GLOB_NOESCAPE, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            offer(s, found.gl_pathv[i]);
        globfree(&found);
    }
}

static void offer_wheels(search *s, const char *environment)
{
    static const char *const patterns[] = {
        "/lib/python3*/site-packages/nvidia/*/lib",   "/lib/python3*/site-packages/torch/lib",
        "/lib/python3*/dist-packages/nvidia/*/lib",   "/lib/python3*/dist-packages/torch/lib",
        "/lib64/python3*/site-packages/nvidia/*/lib", "/lib64/python3*/site-packages/torch/lib"};
    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++)
        offer_files(s, environment, patterns[i]);
}

/* Calls with each of the parts that colons separate. */
static void each_part(search *s, const char *list, bool (*call)(search *s, const char *part))
{
    char part[PATH_MAX];
    for (const char *at = list; at && *at && !s->found;) {
        size_t length = strcspn(at, ":");
        if (length && length < sizeof(part)) {
            memcpy(part, at, length);
            part[length] = '\0';
            if (call(s, part))
                return;
        }
        at += length + (at[length] == ':');
    }
}

static bool offer_folder(search *s, const char *folder)
{
    offer_files(s, folder, "");
    return false;
}

/* Offers the environment that FOLDER/bin/python3 is of, unless it is the one of the step before. */
static void offer_environment_of(search *s, const char *python, char before[PATH_MAX])
{
    char environment[PATH_MAX];
    snprintf(environment, sizeof(environment), "%s", python);
    for (int up = 0; up < 2; up++) {
        char *last = strrchr(environment, '/');
        if (!last || last == environment)
            return;
        *last = '\0';
    }
    if (strcmp(environment, before) != 0)
        offer_wheels(s, environment);
    snprintf(before, PATH_MAX, "%s", environment);
}

/* Replaces `file`, a link, by its target; false where it is none. */
static bool follow(char file[PATH_MAX])
{
    char to[PATH_MAX], joined[2 * PATH_MAX];
    ssize_t length = readlink(file, to, sizeof(to) - 1);
    if (length <= 0)
        return false;
    to[length] = '\0';
    *strrchr(file, '/') = '\0';
    int wanted =
        *to == '/' ? snprintf(joined, sizeof(joined), "%s", to) : snprintf(joined, sizeof(joined), "%s/%s", file, to);
    return wanted < PATH_MAX && snprintf(file, PATH_MAX, "%s", joined) < PATH_MAX;
}

/* The first folder of the path that has a python3: its environment, and those that its links lead to. */
static bool offer_python(search *s, const char *folder)
{
    char file[PATH_MAX], before[PATH_MAX] = "";
    if (snprintf(file, sizeof(file), "%s/python3", folder) >= (int)sizeof(file) || access(file, X_OK) != 0)
        return false;
    offer_environment_of(s, file, before);
    for (int steps = 0; steps < MOST_LINKS && follow(file); steps++)
        offer_environment_of(s, file, before);
    return true;
}

static void offer_toolkit(search *s, const char *toolkit)
{
    offer_files(s, toolkit, "/lib64");
    offer_files(s, toolkit, "/lib");
}

bool yk__library_path(const char *file, int i, char *path, size_t size)
{
    search s = {.file = file, .left = i, .path = path, .size = size};
    char local[PATH_MAX];
    const char *user = getenv("HOME"), *toolkit = getenv("CUDA_HOME");
    each_part(&s, getenv("YOKE_LIBRARY_PATH"), offer_folder);
    offer(&s, file);
    offer_toolkit(&s, toolkit);
    offer_files(&s, getenv("CONDA_PREFIX"), "/lib");
    offer_wheels(&s, getenv("VIRTUAL_ENV"));
    offer_wheels(&s, getenv("CONDA_PREFIX"));
    each_part(&s, getenv("PATH"), offer_python);
    if (user && snprintf(local, sizeof(local), "%s/.local", user) < (int)sizeof(local))
        offer_wheels(&s, local);
    offer_wheels(&s, "/usr/local");
    offer_wheels(&s, "/usr");
    if (!toolkit || !*toolkit) /* where its installer puts it */
        offer_toolkit(&s, "/usr/local/cuda");
    return s.found;
}
