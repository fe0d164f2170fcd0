/*
 * number.c - numbers as text, the same in every locale. Layer: base.
 *
 * A program may have set a locale whose numbers have a comma. What is written to files, or compared with text that was,
 * goes through here.
 */
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/core.h"

static locale_t c_locale;

static void make_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* which is in the C library itself: it cannot fail */
}

static locale_t plain(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locale);
    return c_locale;
}

const char *yk__number_format(double number, char text[YK__NUMBER_ROOM])
{
    locale_t before = uselocale(plain());
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, YK__NUMBER_ROOM, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    uselocale(before);
    return text;
}

double yk__number_parse(const char *text, char **end)
{
    return strtod_l(text, end, plain());
}
