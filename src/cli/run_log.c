/*
 * run_log.c - writes a run as JSON lines. Layer: cli.
 *
 * {"event":"step","epoch":0,"step":1,"loss":2.3021,"samples_per_second":812.5}
 * {"event":"eval","epoch":0,"loss":1.9,"accuracy":0.8123}
 *
 * JSON has no NaN and no infinity: null stands for both.
 */
#include "cli/run_log.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/core.h"

#define FLUSH_SECONDS 0.5

yk_status run_log_open(run_log *log, const char *path, yk_dtype dtype)
{
    *log = (run_log){.path = path, .digits = dtype == YK_F64 ? 17 : 9};
    if (path && !(log->file = fopen(path, "we")))
        return yk__fail_errno("%s", path);
    return YK_OK;
}

/* Where the lines that a run may keep end which goes on behind `step`. */
static off_t kept_length(FILE *file, int64_t step)
{
    static const char start[] = "{\"event\":\"step\",";
    char *line = NULL;
    size_t size = 0;
    off_t kept = 0;
    ssize_t length;
    while ((length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n') {
        const char *at = strncmp(line, start, sizeof(start) - 1) == 0 ? strstr(line, "\"step\":") : NULL;
        int64_t found = at ? strtoll(at + sizeof("\"step\":") - 1, NULL, 10) : -1;
        if (found <= step)
            kept += length;
        if (found >= step)
            break;
    }
    free(line);
    return kept;
}

yk_status run_log_resume(run_log *log, const char *path, yk_dtype dtype, int64_t step)
{
    FILE *old = path ? fopen(path, "r+e") : NULL;
    if (!old)
        return run_log_open(log, path, dtype);
    *log = (run_log){.path = path, .digits = dtype == YK_F64 ? 17 : 9, .file = old};
    off_t kept = kept_length(old, step);
    if (ftruncate(fileno(old), kept) < 0 || fseeko(old, kept, SEEK_SET) < 0)
        return yk__fail_errno("%s", path);
    return YK_OK;
}

yk_status run_log_flush(run_log *log)
{
    if (log->file && (fflush(log->file) || ferror(log->file)))
        return yk__fail_errno("%s", log->path);
    return YK_OK;
}

static const char *number(double value, int digits, char text[32])
{
    if (isfinite(value))
        snprintf(text, 32, "%.*g", digits, value);
    else
        snprintf(text, 32, "null");
    return text;
}

static yk_status written(run_log *log)
{
    double now = yk__now();
    if (now - log->flushed >= FLUSH_SECONDS) {
        fflush(log->file);
        log->flushed = now;
    }
    return ferror(log->file) ? yk__fail_errno("%s", log->path) : YK_OK;
}

yk_status run_log_step(run_log *log, int64_t epoch, int64_t step, double loss, double samples_per_second)
{
    if (!log->file)
        return YK_OK;
    char text[2][32];
    fprintf(log->file,
            "{\"event\":\"step\",\"epoch\":%" PRId64 ",\"step\":%" PRId64 ",\"loss\":%s,\"samples_per_second\":%s}\n",
            epoch, step, number(loss, log->digits, text[0]), number(samples_per_second, 6, text[1]));
    return written(log);
}

yk_status run_log_eval(run_log *log, int64_t epoch, double loss, double accuracy)
{
    if (!log->file)
        return YK_OK;
    char text[2][32];
    fprintf(log->file, "{\"event\":\"eval\",\"epoch\":%" PRId64 ",\"loss\":%s,\"accuracy\":%s}\n", epoch,
            number(loss, log->digits, text[0]), number(accuracy, 9, text[1]));
    log->flushed = 0;
    return written(log);
}

yk_status run_log_close(run_log *log)
{
    if (!log->file)
        return YK_OK;
    bool failed = ferror(log->file);
    failed |= fclose(log->file) != 0;
    log->file = NULL;
    return failed ? yk__fail_errno("%s", log->path) : YK_OK;
}
