/* expect.h - used by every test: cmocka, and checks that name values. */
#ifndef YOKE_TESTS_EXPECT_H
#define YOKE_TESTS_EXPECT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <yoke/base.h>

/* The call succeeded; if not, the record's message is shown. */
#define expect_ok(call)                                                                                                \
    do {                                                                                                               \
        int expect_status = (call);                                                                                    \
        const yk_error *expect_record = yk_last_error();                                                               \
        if (expect_status || expect_record)                                                                            \
            fail_msg("%s: status %d, %s", #call, expect_status, expect_record ? expect_record->message : "no record"); \
    } while (0)

/* The next word from *at on, without the punctuation around it; its length, 0 at the end. */
static inline size_t expect_word(const char **at)
{
    static const char around[] = " \n()[]{}<>.,:;'\"";
    for (;;) {
        *at += strspn(*at, around);
        size_t length = strcspn(*at, " \n"), whole = length;
        while (length && strchr(around, (*at)[length - 1]))
            length--;
        if (length || !whole)
            return length;
        *at += whole;
    }
}

/* True for words that carry no fact, and only make the sentence. */
static inline bool expect_filler(const char *word, size_t length)
{
    static const char *const fillers[] = {
        "a",     "an",   "the",  "is",    "are",   "was",   "were", "be",   "been", "has",  "have",     "had",
        "it",    "its",  "this", "that",  "these", "those", "they", "them", "one",  "ones", "there",    "of",
        "in",    "on",   "at",   "to",    "by",    "for",   "from", "with", "as",   "and",  "or",       "but",
        "so",    "than", "must", "may",   "can",   "could", "does", "do",   "did",  "what", "which",    "where",
        "while", "also", "too",  "least", "most",  "here",  "same", "such", "only", "both", "expected", "outside"};
    for (size_t i = 0; i < sizeof(fillers) / sizeof(*fillers); i++)
        if (strlen(fillers[i]) == length && strncmp(fillers[i], word, length) == 0)
            return true;
    return false;
}

/* True if a message has the same names, numbers and terms as `text`, in their order; the sentence around them may be
 * another. */
static inline bool expect_says(const char *message, const char *text)
{
    const char *word = text, *at = strstr(message, text);
    size_t size = strlen(text);
    if (at && !(size && strchr("0123456789", text[size - 1]) && at[size] >= '0' && at[size] <= '9'))
        return true; /* -1 is not in -10 */
    for (size_t length; (length = expect_word(&word)) > 0; word += length) {
        size_t found;
        if (expect_filler(word, length))
            continue;
        while ((found = expect_word(&message)) > 0 && (found != length || strncmp(message, word, length) != 0))
            message += found;
        if (!found)
            return false;
        message += found;
    }
    return true;
}

/* The thread's record has this code and its message says what the text says; clears it. */
#define expect_error(expected_code, text)                                                                              \
    do {                                                                                                               \
        const yk_error *expect_record = yk_last_error();                                                               \
        if (!expect_record)                                                                                            \
            fail_msg("no error was recorded, expected one with '%s'", text);                                           \
        if (expect_record->code != (expected_code) || !expect_says(expect_record->message, text))                      \
            fail_msg("error is '%s' (%s), expected '%s' (%s)", expect_record->message,                                 \
                     yk_status_name(expect_record->code), text, yk_status_name(expected_code));                        \
        yk_clear_error();                                                                                              \
    } while (0)

/* |a - b| <= absolute + relative |b|; equal infinities and two NaNs pass. */
#define expect_near(a, b, relative, absolute)                                                                          \
    do {                                                                                                               \
        double expect_a = (a), expect_b = (b);                                                                         \
        bool expect_same = expect_a == expect_b || (isnan(expect_a) && isnan(expect_b));                               \
        if (!expect_same && !(fabs(expect_a - expect_b) <= (absolute) + (relative)*fabs(expect_b)))                    \
            fail_msg("%s is %.17g, expected %.17g", #a, expect_a, expect_b);                                           \
    } while (0)

#endif
