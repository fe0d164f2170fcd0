/*
 * option.c - options structs: how they were made, and which numbers are refused. Layer: base.
 *
 * What is given is what is taken (yoke/base.h). NaN lies in no range.
 */
#include <math.h>

#include "base/core.h"

yk_status yk__fail_options(const char *what, const char *type)
{
    return yk__fail(YK_ERR_ARGUMENT,
                    "%s: the %s do not come from YK_OPTIONS, so the defaults of what was not given are not in them: "
                    "write YK_OPTIONS(%s, ...), for a variable *YK_OPTIONS(%s, ...)",
                    what, type, type, type);
}

static yk_status refuse(const char *what, const char *name, double number, const char *expected)
{
    char text[YK__NUMBER_ROOM];
    return yk__fail(YK_ERR_ARGUMENT, "%s: %s is %s, expected %s", what, name, yk__number_format(number, text),
                    expected);
}

yk_status yk__check_number(const char *what, const char *name, double number, double low, double high)
{
    char expected[100];
    if (number >= low && number <= high && isfinite(number))
        return YK_OK;
    snprintf(expected, sizeof(expected), isfinite(high) ? "a number in [%g, %g]" : "a finite number, at least %g", low,
             high);
    return refuse(what, name, number, expected);
}

yk_status yk__check_below(const char *what, const char *name, double number, double low, double high)
{
    char expected[100];
    if (number >= low && number < high)
        return YK_OK;
    snprintf(expected, sizeof(expected), "a number in [%g, %g)", low, high);
    return refuse(what, name, number, expected);
}

yk_status yk__check_positive(const char *what, const char *name, double number)
{
    return number > 0 && isfinite(number) ? YK_OK : refuse(what, name, number, "a finite number above 0");
}

yk_status yk__check_integer(const char *what, const char *name, int64_t number, int64_t low, int64_t high)
{
    if (number >= low && number <= high)
        return YK_OK;
    if (high == INT64_MAX)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %s is %lld, expected at least %lld", what, name, (long long)number,
                        (long long)low);
    return yk__fail(YK_ERR_ARGUMENT, "%s: %s is %lld, expected a number in [%lld, %lld]", what, name, (long long)number,
                    (long long)low, (long long)high);
}

yk_status yk__check_timeout(const char *what, const char *name, double given, double fallback, double *seconds)
{
    double chosen = yk__number_or(given, fallback);
    if (chosen > 0 && chosen <= YK__MOST_SECONDS) {
        *seconds = chosen;
        return YK_OK;
    }
    char expected[100];
    snprintf(expected, sizeof(expected), "seconds above 0, at most %d", YK__MOST_SECONDS);
    return refuse(what, name, chosen, expected);
}
