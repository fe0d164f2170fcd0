/*
 * log.c - messages for whoever asked for them. Layer: base.
 *
 * The library never prints on its own: without YOKE_LOG and without yk_log_set nothing is written anywhere.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/core.h"
#include "base/escape.h"
#include "base/log.h"

static struct {
    yk_log_level least;
    yk_log_fn fn;
    void *user;
} sink = {YK_LOG_OFF, NULL, NULL};

static void to_stderr(yk_log_level level, const char *message, void *user)
{
    static const char *const names[] = {"debug", "info", "warn", "error", "off"};
    (void)user;
    char plain[1200];
    fprintf(stderr, "yoke %s: %s\n", names[level], yk__escape_lines(message, strlen(message), plain, sizeof(plain)));
}

__attribute__((constructor)) static void read_environment(void)
{
    static const char *const names[] = {"debug", "info", "warn", "error", "off"};
    const char *wanted = getenv("YOKE_LOG");
    for (int level = 0; wanted && level < YK_LOG_OFF; level++) {
        if (strcasecmp(wanted, names[level]) == 0)
            yk_log_set((yk_log_level)level, to_stderr, NULL);
    }
}

void yk_log_set(yk_log_level least, yk_log_fn fn, void *user)
{
    sink.least = fn ? least : YK_LOG_OFF;
    sink.fn = fn;
    sink.user = user;
}

bool yk__log_enabled(yk_log_level level)
{
    return sink.fn && level >= sink.least;
}

void yk__log_at(yk_log_level level, const char *format, ...)
{
    char message[1000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    sink.fn(level, message, sink.user);
}
