/*
 * escape.h - whole messages made fit for a terminal; yk__escape of core.h is for what is quoted in them. Layer: base.
 */
#ifndef YOKE_BASE_ESCAPE_H
#define YOKE_BASE_ESCAPE_H

#include <stddef.h>

/* As yk__escape, but ends of lines and tabs stay. */
const char *yk__escape_lines(const char *text, size_t size, char *out, size_t capacity);

#endif
