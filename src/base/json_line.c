/*
 * json_line.c - texts and numbers as jansson values, and a value as one line. Layer: base.
 *
 * jansson writes numbers of one line with one number of digits. So each is rounded when it is made: a double that came
 * from a decimal of at most 15 digits is written as that decimal by "%.15g".
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "base/json_line.h"

json_t *yk__json_text(const char *text, size_t size)
{
    static const char replacement[] = "\xEF\xBF\xBD"; /* U+FFFD */
    json_t *string = json_stringn(text, size);
    if (string)
        return string;
    char *valid = malloc(3 * size + 1);
    size_t used = 0;
    for (size_t at = 0; valid && at < size;) {
        uint32_t code;
        size_t length = yk__utf8_decode((const unsigned char *)text + at, size - at, &code);
        memcpy(valid + used, length ? text + at : replacement, length ? length : 3);
        used += length ? length : 3;
        at += length ? length : 1;
    }
    string = valid ? json_stringn_nocheck(valid, used) : NULL;
    free(valid);
    return string;
}

/* An integer where the double holds it exactly and its digits fit in a line. */
static json_t *number(double value)
{
    if (!isfinite(value))
        return json_null();
    return value == trunc(value) && fabs(value) < 1e15 ? json_integer((json_int_t)value) : json_real(value);
}

json_t *yk__json_number(double value, int digits)
{
    char text[40]; /* sign, 17 digits, point, exponent */
    snprintf(text, sizeof(text), "%.*g", digits, value);
    return number(strtod(text, NULL));
}

json_t *yk__json_fixed(double value, int decimals)
{
    char text[352]; /* the largest double has 309 digits before the point */
    snprintf(text, sizeof(text), "%.*f", decimals, value);
    return number(strtod(text, NULL));
}

/* The control character, which jansson writes as it is, at `s`: its number, else 0. C1 has two bytes in UTF-8. */
static unsigned control_at(const unsigned char *s)
{
    return s[0] == 0x7F ? 0x7F : s[0] == 0xC2 && s[1] < 0xA0 ? s[1] : 0;
}

char *yk__json_line(json_t *value, int digits)
{
    char *text = value ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits)) : NULL;
    json_decref(value);
    if (!text)
        return NULL;
    size_t size = strlen(text), used = 0, controls = 0;
    for (size_t i = 0; i < size; i++)
        controls += control_at((unsigned char *)text + i) != 0;
    char *line = malloc(size + 6 * controls + 2);
    for (size_t i = 0; line && i < size; i++) {
        unsigned code = control_at((unsigned char *)text + i); /* only strings hold such bytes */
        if (code) {
            used += (size_t)snprintf(line + used, 7, "\\u%04X", code);
            i += code > 0x7F;
        } else {
            line[used++] = text[i];
        }
    }
    free(text);
    if (line)
        memcpy(line + used, "\n", 2);
    return line;
}
