/* log.h - the library's own log calls. Layer: base. */
#ifndef YOKE_BASE_LOG_H
#define YOKE_BASE_LOG_H

#include <yoke/base.h>

bool yk__log_enabled(yk_log_level level);
void yk__log_at(yk_log_level level, const char *format, ...) YK_PRINTF(2, 3);

/* The arguments are not evaluated when nobody listens. */
#define yk__log(level, ...) (yk__log_enabled(level) ? yk__log_at((level), __VA_ARGS__) : (void)0)

#endif
