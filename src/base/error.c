/*
 * error.c - the per-thread error record. Layer: base.
 *
 * Invariant: the first failure of a thread stays in the record until it is cleared, so the message that a user reads
 * is the cause and not one of its consequences.
 */
#include <errno.h>
#include <string.h>

#include "base/core.h"
#include "base/escape.h"

static _Thread_local yk_error record;
static _Thread_local uint64_t failures;
_Thread_local bool yk__made_since_error;

const char *yk_status_name(yk_status status)
{
    switch (status) {
    case YK_OK: return "ok";
    case YK_ERR_ARGUMENT: return "argument";
    case YK_ERR_SHAPE: return "shape";
    case YK_ERR_DTYPE: return "dtype";
    case YK_ERR_DEVICE: return "device";
    case YK_ERR_STATE: return "state";
    case YK_ERR_IO: return "io";
    case YK_ERR_FORMAT: return "format";
    case YK_ERR_NOT_FOUND: return "not found";
    case YK_ERR_UNSUPPORTED: return "unsupported";
    case YK_ERR_NUMERIC: return "numeric";
    case YK_ERR_CALLBACK: return "callback";
    case YK_ERR_TIMEOUT: return "timeout";
    case YK_ERR_CONNECTION: return "connection";
    case YK_ERR_MISMATCH: return "mismatch";
    case YK_ERR_STALLED: return "stalled";
    case YK_ERR_MEMORY: return "memory";
    case YK_ERR_INTERNAL: return "internal";
    }
    return "unknown";
}

/* Messages quote names from files and texts from peers, and end on terminals: control characters but line ends are
 * escaped here, for every message there is. */
static void make_plain(void)
{
    char old[sizeof(record.message)];
    memcpy(old, record.message, sizeof(old));
    yk__escape_lines(old, strlen(old), record.message, sizeof(record.message));
}

static yk_status set_record(yk_status code, const char *file, int line, const char *format, va_list arguments)
{
    failures++;
    yk__made_since_error = false;
    if (record.code == YK_OK) {
        record.code = code;
        record.file = file;
        record.line = line;
        vsnprintf(record.message, sizeof(record.message), format, arguments);
        make_plain();
    }
    return code;
}

yk_status yk__fail_at(yk_status code, const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_record(code, file, line, format, arguments);
    va_end(arguments);
    return code;
}

yk_status yk__fail_errno_at(const char *file, int line, const char *format, ...)
{
    int number = errno;
    char text[sizeof(record.message)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return yk__fail_at(YK_ERR_IO, file, line, "%s: %s (errno %d)", text, strerror(number), number);
}

yk_status yk_set_error(yk_status code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    code = set_record(code == YK_OK ? YK_ERR_CALLBACK : code, NULL, 0, format, arguments);
    va_end(arguments);
    return code;
}

bool yk__is_there(const char *what, const char *kind, const void *object)
{
    if (!object)
        yk__fail(YK_ERR_ARGUMENT, "%s: the %s is NULL", what, kind);
    return object != NULL;
}

void yk__error_prefix(const char *format, ...)
{
    if (record.code == YK_OK)
        return;
    char old[sizeof(record.message)], prefix[400];
    memcpy(old, record.message, sizeof(old));
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof(prefix), format, arguments);
    va_end(arguments);
    int room = (int)(sizeof(old) - strlen(prefix) - sizeof(": "));
    snprintf(record.message, sizeof(record.message), "%s: %.*s", prefix, room, old);
    make_plain();
}

const yk_error *yk_last_error(void)
{
    return record.code == YK_OK ? NULL : &record;
}

yk_status yk__error_code(void)
{
    return record.code;
}

void yk_clear_error(void)
{
    record.code = YK_OK;
}

void yk__error_take(yk_error *to)
{
    *to = record;
    record.code = YK_OK;
}

void yk__error_put(const yk_error *from)
{
    if (from->code != YK_OK)
        failures++;
    if (record.code == YK_OK)
        record = *from;
}

void yk__error_set_aside(yk_error *before)
{
    before->code = record.code;
    if (record.code != YK_OK)
        yk__error_take(before);
}

void yk__error_restore(yk_error *before)
{
    if (before->code != YK_OK)
        record = *before;
}

void yk__error_forget(yk_error *before)
{
    record.code = YK_OK;
    yk__error_restore(before);
}

bool yk__error_is_fresh(void)
{
    return record.code != YK_OK && !yk__made_since_error;
}

uint64_t yk__error_count(void)
{
    return failures;
}

int yk_report_error(FILE *to)
{
    if (record.code == YK_OK)
        return 0;
    if (record.file && *record.file)
        fprintf(to, "error: %s (%s, %s:%d)\n", record.message, yk_status_name(record.code), record.file, record.line);
    else
        fprintf(to, "error: %s (%s)\n", record.message, yk_status_name(record.code));
    yk_clear_error();
    return 1;
}
