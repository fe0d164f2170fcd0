/*
 * invariant.c - says which invariant of a structure is broken. Layer: base.
 */
#include "base/invariant.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char text[400];

const char *yk__broken(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return text;
}
