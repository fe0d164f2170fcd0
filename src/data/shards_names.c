/*
 * shards_names.c - the names of tar shards: patterns with braces, as WebDataset and shells write them, and folders.
 * Layer: data.
 */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "data/shards.h"

enum { MOST_SHARDS = 1 << 20 };

static yk_status names_add(yk__shards_names *n, const char *name)
{
    if (n->count == MOST_SHARDS)
        return yk__fail(YK_ERR_ARGUMENT, "shards: more than %d files", MOST_SHARDS);
    if (n->count == n->capacity) {
        int64_t capacity = n->capacity ? 2 * n->capacity : 64;
        char **grown = yk__realloc(n->items, (size_t)capacity * sizeof(*grown));
        if (!grown)
            return YK_ERR_MEMORY;
        n->items = grown;
        n->capacity = capacity;
    }
    n->items[n->count] = yk__strdup(name);
    return n->items[n->count] ? (n->count++, YK_OK) : YK_ERR_MEMORY;
}

void yk__shards_names_clear(yk__shards_names *n)
{
    for (int64_t i = 0; i < n->count; i++)
        free(n->items[i]);
    free(n->items);
    *n = (yk__shards_names){0};
}

static yk_status expand(yk__shards_names *n, const char *whole, const char *pattern, int depth);

/* The pattern with `part` in spot of its braces, and what that is expanded to. */
static yk_status expand_with(yk__shards_names *n, const char *whole, const char *pattern, const char *open,
                             const char *close, const char *part, size_t length, int depth)
{
    char *text = yk__format("%.*s%.*s%s", (int)(open - pattern), pattern, (int)length, part, close + 1);
    yk_status status = text ? expand(n, whole, text, depth + 1) : YK_ERR_MEMORY;
    free(text);
    return status;
}

/* A number of `length` digits, at most 9 of them. */
static bool digits(const char *text, size_t length, long *number)
{
    *number = 0;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *number = 10 * *number + (text[i] - '0');
    }
    return length >= 1 && length <= 9;
}

/* {0000..0099}, with the first number's zeros, and {a,b,c}. */
static yk_status expand(yk__shards_names *n, const char *whole, const char *pattern, int depth)
{
    const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;
    if (!open)
        return names_add(n, pattern);
    size_t length = close ? (size_t)(close - open - 1) : 0;
    bool nested = close && memchr(open + 1, '{', length);
    if (!close || nested || depth > 8)
        return yk__fail(YK_ERR_ARGUMENT, "shards: \"%s\": %s", whole,
                        !close   ? "a brace { without its }"
                        : nested ? "a brace within braces"
                                 : "more than 8 pairs of braces");
    const char *body = open + 1, *dots = NULL;
    for (size_t i = 0; i + 1 < length && !dots; i++)
        dots = body[i] == '.' && body[i + 1] == '.' ? body + i : NULL;
    yk_status status = YK_OK;
    if (dots) {
        long first, last;
        size_t width = (size_t)(dots - body);
        if (!digits(body, width, &first) || !digits(dots + 2, length - width - 2, &last) || last < first)
            return yk__fail(YK_ERR_ARGUMENT, "shards: \"%s\": {%.*s} is no range of numbers; expected {0000..0099}",
                            whole, (int)length, body);
        for (long i = first; i <= last && !status; i++) {
            char number[16];
            int size = snprintf(number, sizeof(number), "%0*ld", (int)width, i);
            status = expand_with(n, whole, pattern, open, close, number, (size_t)size, depth);
        }
        return status;
    }
    for (const char *at = body; !status; at++) {
        const char *end = at;
        while (end < close && *end != ',')
            end++;
        status = expand_with(n, whole, pattern, open, close, at, (size_t)(end - at), depth);
        at = end;
        if (end == close)
            break;
    }
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static yk_status list_folder(yk__shards_names *n, const char *folder)
{
    DIR *directory = opendir(folder);
    if (!directory)
        return yk__fail_errno("shards: %s", folder);
    yk_status status = YK_OK;
    struct dirent *item;
    while (!status && (item = readdir(directory))) {
        size_t length = strlen(item->d_name);
        if (length <= 4 || strcmp(item->d_name + length - 4, ".tar") != 0)
            continue;
        char *path = yk__format("%s/%s", folder, item->d_name);
        status = path ? names_add(n, path) : YK_ERR_MEMORY;
        free(path);
    }
    closedir(directory);
    if (!status && n->count == 0)
        status = yk__fail(YK_ERR_FORMAT, "shards: %s: no .tar file in this folder", folder);
    if (!status)
        qsort(n->items, (size_t)n->count, sizeof(*n->items), compare_names);
    return status;
}

yk_status yk__shards_names_find(yk__shards_names *names, const char *pattern)
{
    yk_status status = yk__is_directory(pattern) ? list_folder(names, pattern) : expand(names, pattern, pattern, 0);
    for (int64_t i = 0; i < names->count && !status; i++) {
        if (!yk__is_file(names->items[i]))
            status = yk__fail(YK_ERR_IO, "shards: %s, shard %lld of %lld, is not there", names->items[i], (long long)i,
                              (long long)names->count);
    }
    return status;
}
