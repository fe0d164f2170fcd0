/*
 * escape.h - UTF-8 read, and whole messages made safe for a terminal; yk__escape of core.h is for what is quoted in
 * them. Layer: base.
 */
#ifndef YOKE_BASE_ESCAPE_H
#define YOKE_BASE_ESCAPE_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the UTF-8 character at text[0], 0 where there is none; *code is its number. */
size_t yk__utf8_decode(const unsigned char *text, size_t size, uint32_t *code);
/* As yk__escape, but ends of lines and tabs stay. */
const char *yk__escape_lines(const char *text, size_t size, char *out, size_t capacity);

#endif
