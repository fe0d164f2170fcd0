/* folders.h - the entries of a folder of checkpoints, for the tests that kill and break saves. */
#ifndef YOKE_TESTS_CHECKPOINT_FOLDERS_H
#define YOKE_TESTS_CHECKPOINT_FOLDERS_H

#include <dirent.h>
#include <glob.h>
#include <string.h>

#include "tests/data/files.h"

/* The number of entries of a folder, and in *temporary of those that end in ".tmp". */
static inline int count_entries(const char *path, int *temporary)
{
    int count = 0;
    *temporary = 0;
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        size_t length = strlen(entry->d_name);
        count += entry->d_name[0] != '.';
        *temporary += length > 4 && strcmp(entry->d_name + length - 4, ".tmp") == 0;
    }
    closedir(folder);
    return count;
}

/* True if a path of this pattern is there. */
static inline bool any_path(const char *pattern)
{
    glob_t found;
    bool any = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc;
    globfree(&found);
    return any;
}

#endif
