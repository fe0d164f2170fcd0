/*
 * variables.c - the environment of a process that is to be started. Layer: launch.
 *
 * Invariant: every entry of the list is whole; where one could not be made, nothing is given out.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch/variables.h"

static void append(yk__variables *v, char *entry)
{
    if (entry && v->count + 1 >= v->room) {
        size_t room = v->room ? 2 * v->room : 64;
        char **list = realloc(v->list, room * sizeof(*list));
        if (list) {
            v->list = list;
            v->room = room;
        } else {
            free(entry);
            entry = NULL;
        }
    }
    v->failed |= !entry;
    if (!entry)
        return;
    v->list[v->count++] = entry;
    v->list[v->count] = NULL;
}

static bool is_one_of(const char *entry, const char *const *names)
{
    for (; *names; names++) {
        size_t length = strlen(*names);
        if (strncmp(entry, *names, length) == 0 && entry[length] == '=')
            return true;
    }
    return false;
}

void yk__variables_inherit(yk__variables *v, const char *const *dropped)
{
    for (char **e = environ; *e && !v->failed; e++) {
        if (!is_one_of(*e, dropped))
            append(v, strdup(*e));
    }
}

void yk__variables_put(void *variables, const char *name, const char *value)
{
    yk__variables *v = variables;
    if (!v->failed)
        append(v, yk__format("%s=%s", name, value));
}

void yk__variables_put_number(yk__variables *v, const char *name, int64_t number)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRId64, number);
    yk__variables_put(v, name, text);
}

char **yk__variables_take(yk__variables *v)
{
    char **list = v->list;
    if (v->failed) {
        yk__variables_free(list);
        list = NULL;
    }
    *v = (yk__variables){0};
    return list;
}

void yk__variables_free(char **list)
{
    for (char **e = list; e && *e; e++)
        free(*e);
    free(list);
}
