/*
 * trace_line.h - a line of a trace, as host/trace_file.c writes it. Layer: host.
 */
#ifndef YOKE_HOST_TRACE_LINE_H
#define YOKE_HOST_TRACE_LINE_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/core.h"

/* Nanoseconds as microseconds: "12.345". */
static inline void yk__trace_put_time(FILE *to, int64_t ns)
{
    fprintf(to, "%s%" PRId64 ".%03d", ns < 0 ? "-" : "", (ns < 0 ? -ns : ns) / 1000, (int)((ns < 0 ? -ns : ns) % 1000));
}

/* "12.345" as nanoseconds, in any locale; false where it is no such number. */
static inline bool yk__trace_time(const char *text, int64_t *ns, const char **end)
{
    int64_t us = 0;
    bool negative = *text == '-';
    const char *at = text + negative;
    if (*at < '0' || *at > '9')
        return false;
    for (; *at >= '0' && *at <= '9' && us < INT64_MAX / 100000; at++)
        us = 10 * us + (*at - '0');
    if (*at++ != '.')
        return false;
    int fraction = 0;
    for (int i = 0; i < 3; i++, at++) {
        if (*at < '0' || *at > '9')
            return false;
        fraction = 10 * fraction + (*at - '0');
    }
    *ns = (negative ? -1 : 1) * (us * 1000 + fraction);
    *end = at;
    return true;
}

/* The text behind "NAME": in a line, NULL where there is none. A quote in a text is escaped, and does not look so. */
static inline const char *yk__trace_member(const char *line, const char *name)
{
    char key[24];
    snprintf(key, sizeof(key), "\"%s\":", name);
    const char *at = strstr(line, key);
    return at ? at + strlen(key) : NULL;
}

/* The length of the JSON string at `at`, which is behind its first quote; its end is a quote that is not escaped. */
static inline size_t yk__trace_length(const char *at)
{
    size_t size = 0;
    while (at[size] && at[size] != '"')
        size += at[size] == '\\' && at[size + 1] ? 2 : 1;
    return size;
}

/* The whole number behind "NAME": in a line; false where it is null, or not there. */
static inline bool yk__trace_number(const char *line, const char *name, int64_t *value)
{
    const char *at = yk__trace_member(line, name);
    return at && sscanf(at, "%" SCNd64, value) == 1;
}

#endif
