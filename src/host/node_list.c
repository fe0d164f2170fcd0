/*
 * node_list.c - lists of nodes as Slurm writes them into its variables. Layer: host.
 *
 * A cursor goes once from left to right; names are not expanded but for the first, so that a list that stands for a
 * million nodes takes no more time than its characters.
 */
#include <stdio.h>
#include <string.h>

#include "host/node_list.h"

typedef struct cursor {
    const char *what, *list, *at;
    char *name; /* the first name so far, of `used` bytes; NULL: another's */
    size_t used;
} cursor;

YK_PRINTF(3, 4)
static yk_status cursor_fail(const cursor *c, const char *at, const char *format, ...)
{
    char why[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    size_t length = strlen(c->list);
    return yk__fail(YK_ERR_FORMAT, "%s=%.120s%s is no list of nodes: %s, at character %zu", c->what, c->list,
                    length > 120 ? "..." : "", why, (size_t)(at - c->list) + 1);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
}

static yk_status name_append(cursor *c, const char *at, const char *bytes, size_t size)
{
    if (!c->name)
        return YK_OK;
    if (c->used + size >= YK__NODE_NAME)
        return cursor_fail(c, at, "the first name is longer than %d bytes", YK__NODE_NAME - 1);
    memcpy(c->name + c->used, bytes, size);
    c->used += size;
    c->name[c->used] = '\0';
    return YK_OK;
}

/* The digits at the cursor, at most as many as 64 bits surely hold. */
static yk_status number_read(cursor *c, int64_t *number)
{
    const char *begin = c->at;
    *number = 0;
    for (; is_digit(*c->at); c->at++) {
        if (c->at - begin == 15)
            return cursor_fail(c, begin, "the number has more than 15 digits");
        *number = 10 * *number + (*c->at - '0');
    }
    if (c->at == begin)
        return cursor_fail(c, begin, *begin ? "'%c' is no number" : "a bracket has no end", *begin);
    return YK_OK;
}

/* "[01-03,7]", the cursor at the bracket: how many numbers. */
static yk_status bracket_read(cursor *c, int64_t *numbers)
{
    const char *open = c->at++;
    *numbers = 0;
    for (;;) {
        const char *begin = c->at;
        int64_t from, to;
        yk_status status = number_read(c, &from);
        if (status)
            return status;
        if (c->at - begin >= 1 && *numbers == 0)
            status = name_append(c, begin, begin, (size_t)(c->at - begin));
        to = from;
        if (!status && *c->at == '-') {
            c->at++;
            status = number_read(c, &to);
        }
        if (status)
            return status;
        if (to < from)
            return cursor_fail(c, begin, "%lld to %lld is backwards", (long long)from, (long long)to);
        if (to - from >= YK__NODES_OF_LIST || (*numbers += to - from + 1) > YK__NODES_OF_LIST)
            return cursor_fail(c, begin, "there are more than %d nodes", YK__NODES_OF_LIST);
        if (*c->at == ']')
            break;
        if (*c->at != ',')
            return cursor_fail(c, *c->at ? c->at : open,
                               *c->at ? "'%c' stands between numbers" : "a bracket has no end", *c->at);
        c->at++;
    }
    c->at++;
    return YK_OK;
}

/* A name, to the comma or the end: for how many nodes it stands. */
static yk_status item_read(cursor *c, int64_t *nodes)
{
    const char *begin = c->at;
    *nodes = 1;
    while (*c->at && *c->at != ',') {
        yk_status status = YK_OK;
        if (*c->at == '[') {
            const char *open = c->at;
            int64_t numbers;
            status = bracket_read(c, &numbers);
            if (!status && (*nodes *= numbers) > YK__NODES_OF_LIST)
                status = cursor_fail(c, open, "there are more than %d nodes", YK__NODES_OF_LIST);
        } else if (is_name(*c->at)) {
            status = name_append(c, c->at, c->at, 1);
            c->at++;
        } else {
            unsigned char byte = (unsigned char)*c->at;
            status = byte > 32 && byte < 127 ? cursor_fail(c, c->at, "'%c' is in no name", byte)
                                             : cursor_fail(c, c->at, "the byte 0x%02x is in no name", byte);
        }
        if (status)
            return status;
    }
    if (c->at == begin)
        return cursor_fail(c, begin, "a name is empty");
    if (*begin == '-' || *begin == '.')
        return cursor_fail(c, begin, "a name begins with '%c'", *begin);
    return YK_OK;
}

yk_status yk__node_list_read(const char *what, const char *list, char first[YK__NODE_NAME], int64_t *count)
{
    cursor c = {.what = what, .list = list, .at = list, .name = first};
    int64_t all = 0;
    first[0] = '\0';
    if (strnlen(list, YK__NODE_LIST_MOST + 1) > YK__NODE_LIST_MOST)
        return yk__fail(YK_ERR_FORMAT, "%s has more than %d bytes", what, YK__NODE_LIST_MOST);
    for (;;) {
        int64_t nodes;
        yk_status status = item_read(&c, &nodes);
        if (!status && (all += nodes) > YK__NODES_OF_LIST)
            status = cursor_fail(&c, c.at, "there are more than %d nodes", YK__NODES_OF_LIST);
        if (status) {
            first[0] = '\0';
            return status;
        }
        c.name = NULL;
        if (!*c.at)
            break;
        c.at++;
    }
    if (count)
        *count = all;
    return YK_OK;
}
