/*
 * pretokenize.c - where GPT-2 cuts a text, before pairs are merged. Layer: data.
 *
 * The first of these that fits the beginning of the text is a piece, as long as it can be (a regular expression, with
 * alternatives in this order):
 *
 *     's  't  're  've  'm  'll  'd
 *     letters, numbers, or signs (neither of the two, nor white space); one space may stand in front
 *     white space, but not its last character where something else follows: that one goes before a word
 *     white space
 */
#include <string.h>

#include "data/text_classes.h"
#include "data/tokenizer.h"

enum { TEXT_SIGN = 0 };

/* The class of a code point, or of the -1 that stands for a byte that is no UTF-8. */
static int class_of(int32_t point)
{
    size_t low = 0, high = sizeof(text_ranges) / sizeof(*text_ranges);
    if (point < 0)
        return TEXT_SIGN;
    if (point < 128) {
        unsigned alphabetic = ((unsigned)point | 32) - 'a', digit = (unsigned)point - '0',
                 blank = (unsigned)point - '\t';
        return alphabetic < 26             ? TEXT_ALPHABETIC
               : digit < 10                ? TEXT_NUMBER
               : point == ' ' || blank < 5 ? TEXT_SPACE
                                           : TEXT_SIGN;
    }
    while (low < high) { /* the first range that ends at the point or above it */
        size_t middle = (low + high) / 2;
        if (text_ranges[middle][1] < (uint32_t)point)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == sizeof(text_ranges) / sizeof(*text_ranges) || text_ranges[low][0] >> 8 > (uint32_t)point)
        return TEXT_SIGN;
    return (int)(text_ranges[low][0] & 0xFF);
}

int32_t yk__utf8_next(const unsigned char *text, size_t size, size_t *length)
{
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned first = text[0];
    size_t wanted = first < 0x80 ? 1 : first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3 : 4;
    *length = 1;
    if (wanted == 1)
        return (int32_t)first;
    if (first < 0xC2 || first > 0xF4 || size < wanted)
        return -1;
    int32_t point = (int32_t)(first & (0xFFU >> (wanted + 1)));
    for (size_t i = 1; i < wanted; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return -1;
        point = point << 6 | (text[i] & 0x3F);
    }
    if (point < least[wanted] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
        return -1;
    *length = wanted;
    return point;
}

static int next_class(const unsigned char *text, size_t size, size_t *length)
{
    return class_of(yk__utf8_next(text, size, length));
}

/* The bytes of the characters of a class at the beginning of a text; those before its last one to *last. */
static size_t run_length(const unsigned char *text, size_t size, int class, size_t *last)
{
    size_t at = 0, length;
    *last = 0;
    while (at < size && next_class(text + at, size - at, &length) == class) {
        *last = at;
        at += length;
    }
    return at;
}

static size_t contraction_length(const unsigned char *text, size_t size)
{
    if (size < 2 || text[0] != '\'')
        return 0;
    if (memchr("stmd", text[1], 4))
        return 2;
    if (size > 2 &&
        (memcmp(text + 1, "re", 2) == 0 || memcmp(text + 1, "ve", 2) == 0 || memcmp(text + 1, "ll", 2) == 0))
        return 3;
    return 0;
}

size_t yk__word_length(const unsigned char *text, size_t size)
{
    size_t length = contraction_length(text, size), last;
    if (length)
        return length;
    size_t space = text[0] == ' ' && size > 1;
    int class = next_class(text + space, size - space, &length);
    if (class != TEXT_SPACE)
        return space + run_length(text + space, size - space, class, &last);
    length = run_length(text, size, TEXT_SPACE, &last);
    return length == size || last == 0 ? length : last;
}
