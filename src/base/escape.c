/*
 * escape.c - text from elsewhere, made fit for a terminal. Layer: base.
 *
 * A terminal obeys control characters: a name in a file could clear the screen, change the window's title, or show
 * another text than is there. Invariant: what comes out is UTF-8 without control characters (C0, DEL, C1) and without
 * those that turn the direction of writing, and is cut between characters only.
 */
#include <string.h>

#include "base/core.h"
#include "base/escape.h"

size_t yk__utf8_decode(const unsigned char *text, size_t size, uint32_t *code)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = text[0] < 0x80                      ? 1
                    : text[0] >= 0xC2 && text[0] < 0xE0 ? 2
                    : (text[0] & 0xF0) == 0xE0          ? 3
                    : text[0] >= 0xF0 && text[0] < 0xF5 ? 4
                                                        : 0;
    if (!length || length > size)
        return 0;
    *code = length == 1 ? text[0] : text[0] & (0x7Fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
        *code = *code << 6 | (text[i] & 0x3F);
    }
    return *code < least[length] || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000) ? 0 : length;
}

static bool is_plain(uint32_t code)
{
    bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    bool turns = code == 0x61C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
                 (code >= 0x2066 && code <= 0x2069);
    return !control && !turns;
}

static const char *escape(const char *text, size_t size, bool keeps_lines, char *out, size_t capacity)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t used = 0;
    for (size_t at = 0; at < size;) {
        uint32_t code = 0;
        size_t length = yk__utf8_decode(bytes + at, size - at, &code);
        char piece[16 + 1];
        size_t put = length;
        if (length && (is_plain(code) || (keeps_lines && (code == '\n' || code == '\t')))) {
            memcpy(piece, text + at, length);
        } else {
            length = length ? length : 1;
            put = 0;
            for (size_t i = 0; i < length; i++)
                put += (size_t)snprintf(piece + put, sizeof(piece) - put,
                                        bytes[at] == '\n'   ? "\\n"
                                        : bytes[at] == '\t' ? "\\t"
                                                            : "\\x%02x",
                                        bytes[at + i]);
        }
        if (used + put >= capacity)
            break;
        memcpy(out + used, piece, put);
        used += put;
        at += length;
    }
    if (capacity)
        out[used] = 0;
    return out;
}

const char *yk__escape(const char *text, size_t size, char *out, size_t capacity)
{
    return escape(text, size, false, out, capacity);
}

const char *yk__escape_lines(const char *text, size_t size, char *out, size_t capacity)
{
    return escape(text, size, true, out, capacity);
}
