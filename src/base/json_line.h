/*
 * json_line.h - texts and numbers as jansson values, and a value as one line, for programs to read. Layer: base.
 */
#ifndef YOKE_BASE_JSON_LINE_H
#define YOKE_BASE_JSON_LINE_H

#include <stddef.h>

#include <jansson.h>

/* Each returns a new reference, NULL without memory; none sets the error record. */
/* A string. Bytes that are no UTF-8 become U+FFFD, each. */
json_t *yk__json_text(const char *text, size_t size);
/* Rounded to `digits` significant digits, 1 to 17; an integer where nothing is behind the point. JSON has no NaN and no
 * infinity: null stands for both. */
json_t *yk__json_number(double value, int digits);
/* The same rounded to `decimals` places behind the point. */
json_t *yk__json_fixed(double value, int decimals);

enum { YK__JSON_DIGITS = 15 /* a decimal number of so many comes back from a double as it was */ };
/*
 * The value without spaces, and a newline. Numbers have up to `digits` significant digits: YK__JSON_DIGITS, or 17 where
 * one of them was made with more. Control characters (DEL and C1 too) are escaped, so a terminal may show the line.
 * Takes over the reference, and passes NULL through; the caller frees the text.
 */
char *yk__json_line(json_t *value, int digits);

#endif
