/*
 * row_copy.h - dense rows that lie anywhere in memory: fetched before their turn comes, and copied. Layer: device/cpu.
 *
 * The processor sees where a row goes on, but not where the next one begins; kernels that know it from an index fetch
 * whole rows ahead (embedding, index, index_select).
 */
#ifndef YOKE_DEVICE_CPU_ELEMENTWISE_ROW_COPY_H
#define YOKE_DEVICE_CPU_ELEMENTWISE_ROW_COPY_H

#include <stdint.h>
#include <string.h>

/* Bytes. LINE: of a cache; a row that is copied in lines has at least one, and from LONG on a call of memcpy hardly
 * counts. AHEAD: from the row that is fetched to the one that is copied, or ROWS of short ones; and the most that is
 * fetched of one row, where the processor goes on by itself. */
enum { YK__LINE = 64, YK__LONG_ROW = 8192, YK__AHEAD = 8192, YK__ROWS_AHEAD = 8 };

/* The number of rows, of `bytes` each, that a row is fetched ahead. */
static inline int64_t yk__rows_ahead(int64_t bytes)
{
    int64_t rows = bytes > 0 ? (YK__AHEAD + bytes - 1) / bytes : 1;
    return rows < YK__ROWS_AHEAD ? rows : YK__ROWS_AHEAD;
}

static inline void yk__fetch_row(const char *row, int64_t bytes)
{
    enum { SHORT = 8 * YK__LINE }; /* few enough to be a line of code each */
    int64_t at = 0;
    for (; at < SHORT && at < bytes; at += YK__LINE)
        __builtin_prefetch(row + at);
    for (; at < YK__AHEAD && at < bytes; at += YK__LINE)
        __builtin_prefetch(row + at);
}

/* At least YK__LINE bytes: the end of a row is copied with some of what stands before it. */
static inline void yk__copy_lines(char *to, const char *from, int64_t bytes)
{
    int64_t last = bytes - YK__LINE;
    for (int64_t at = 0; at < last; at += YK__LINE)
        memcpy(to + at, from + at, YK__LINE);
    memcpy(to + last, from + last, YK__LINE);
}

static inline void yk__copy_row(char *to, const char *from, int64_t bytes)
{
    if (bytes >= YK__LINE && bytes < YK__LONG_ROW)
        yk__copy_lines(to, from, bytes);
    else
        memcpy(to, from, (size_t)bytes);
}

#endif
