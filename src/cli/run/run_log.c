/*
 * run_log.c - writes a run as JSON lines. Layer: cli.
 *
 * {"event":"step","epoch":0,"step":1,"loss":2.3021,"samples_per_second":812.5}
 * {"event":"eval","epoch":0,"loss":1.9,"accuracy":0.8123}
 * {"event":"epoch","epoch":0,"step":188,"loss":2.1,"test_loss":1.9,"accuracy":0.8123,"top5":0.9621,"lr":0.05,
 *  "samples_per_second":7800,"seconds":1.62}
 *
 * {"event":"members","view":2,"epoch":0,"step":188,"members":3,"why":"rank 1 (process 1) has
 * ended","time":1700000000.5, "seconds":0.041}
 *
 * A number that is not finite is null.
 */
#include "cli/run/run_log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/core.h"
#include "base/json_line.h"

#define FLUSH_SECONDS 0.5 /* who follows a log sees steps soon, and fast steps do not pay for a system call each */
enum { RATE_DIGITS = 6, ACCURACY_DIGITS = 9 }; /* an accuracy is a quotient of counts, exact to a float's digits */

yk_status run_log_open(run_log *log, const char *path, yk_dtype dtype)
{
    *log = (run_log){.path = path, .digits = dtype == YK_F64 ? 17 : 9};
    if (path && !(log->file = fopen(path, "we")))
        return yk__fail_errno("%s", path);
    return YK_OK;
}

/* The step that a line tells of; -1 for any other line. */
static int64_t step_of(const char *line, size_t length)
{
    json_t *object = json_loadb(line, length, 0, NULL);
    const char *event = json_string_value(json_object_get(object, "event"));
    const json_t *step = json_object_get(object, "step");
    int64_t found = event && strcmp(event, "step") == 0 && json_is_integer(step) ? json_integer_value(step) : -1;
    json_decref(object);
    return found;
}

/* True if the line is of a change of members, which a run without one does not have: such lines are not counted. */
static bool is_of_members(const char *line)
{
    static const char begin[] = "{\"event\":\"members\"";
    return strncmp(line, begin, sizeof(begin) - 1) == 0;
}

/* The length of the log's lines up to `step`, which a run that goes on after it keeps, and their number. */
static off_t kept_length(FILE *file, int64_t step, int64_t *lines)
{
    char *line = NULL;
    size_t size = 0;
    off_t kept = 0;
    ssize_t length;
    while ((length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n') {
        int64_t found = step_of(line, (size_t)length);
        if (found <= step) {
            kept += length;
            *lines += !is_of_members(line);
        }
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
    off_t kept = kept_length(old, step, &log->lines);
    if (ftruncate(fileno(old), kept) < 0 || fseeko(old, kept, SEEK_SET) < 0)
        return yk__fail_errno("%s", path);
    return YK_OK;
}

void run_log_take_over(run_log *log, const char *path, bool *missing)
{
    *missing = false;
    if (!path)
        return;
    FILE *file = fopen(path, "r+e");
    char *line = NULL;
    size_t size = 0;
    off_t kept = 0;
    int64_t lines = 0;
    ssize_t length;
    while (file && (length = getline(&line, &size, file)) > 0 && line[length - 1] == '\n') {
        bool counts = !is_of_members(line);
        if (counts && lines == log->lines)
            break;
        kept += length;
        lines += counts;
    }
    free(line);
    *missing = lines == log->lines - 1;
    if (file && lines >= log->lines - 1 && ftruncate(fileno(file), kept) == 0 && fseeko(file, kept, SEEK_SET) == 0) {
        log->path = path;
        log->file = file;
        return;
    }
    if (file && lines < log->lines - 1)
        fprintf(stderr,
                "yoke train: --log %s: there are %" PRId64 " lines of the %" PRId64 " that the run has written "
                "so far; it goes on without a log\n",
                path, lines, log->lines);
    else
        fprintf(stderr, "yoke train: --log %s: %s; the run goes on without it\n", path, strerror(errno));
    if (file)
        fclose(file);
}

/* The log ends here, and the run goes on: as on a full disk. */
static void log_lose(run_log *log)
{
    fprintf(stderr, "yoke train: --log %s: %s; the run goes on without it\n", log->path, strerror(errno));
    fclose(log->file);
    log->file = NULL;
}

void run_log_flush(run_log *log)
{
    if (log->file && (fflush(log->file) || ferror(log->file)))
        log_lose(log);
}

bool run_log_due(const run_log *log)
{
    return log->file && yk__now() - log->flushed >= FLUSH_SECONDS;
}

/* Takes over the object; NULL is want of memory. */
static yk_status write_line(run_log *log, json_t *object)
{
    char *line = yk__json_line(object, log->digits > YK__JSON_DIGITS ? log->digits : YK__JSON_DIGITS);
    if (!line)
        return yk__fail(YK_ERR_MEMORY, "%s: out of memory for a line", log->path);
    fputs(line, log->file);
    free(line);
    if (log->at_once || run_log_due(log)) {
        fflush(log->file);
        log->flushed = yk__now();
    }
    if (ferror(log->file))
        log_lose(log);
    return YK_OK;
}

yk_status run_log_step(run_log *log, int64_t epoch, int64_t step, double loss, double samples_per_second)
{
    log->lines++;
    if (!log->file)
        return YK_OK;
    return write_line(log, json_pack("{s:s,s:I,s:I,s:o,s:o}", "event", "step", "epoch", (json_int_t)epoch, "step",
                                     (json_int_t)step, "loss", yk__json_number(loss, log->digits), "samples_per_second",
                                     yk__json_number(samples_per_second, RATE_DIGITS)));
}

yk_status run_log_eval(run_log *log, int64_t epoch, double loss, double accuracy)
{
    log->lines++;
    if (!log->file)
        return YK_OK;
    log->flushed = 0;
    return write_line(log, json_pack("{s:s,s:I,s:o,s:o}", "event", "eval", "epoch", (json_int_t)epoch, "loss",
                                     yk__json_number(loss, log->digits), "accuracy",
                                     yk__json_number(accuracy, ACCURACY_DIGITS)));
}

/* A number that was measured. */
static void set_number(json_t *object, const char *key, double value, int digits)
{
    if (!isnan(value))
        json_object_set_new(object, key, yk__json_number(value, digits));
}

yk_status run_log_epoch(run_log *log, const run_log_epoch_line *line)
{
    log->lines++;
    if (!log->file)
        return YK_OK;
    json_t *object =
        json_pack("{s:s,s:I,s:I}", "event", "epoch", "epoch", (json_int_t)line->epoch, "step", (json_int_t)line->step);
    set_number(object, "loss", line->train_loss, log->digits);
    set_number(object, "test_loss", line->test_loss, log->digits);
    set_number(object, "accuracy", line->accuracy, ACCURACY_DIGITS);
    set_number(object, "top5", line->top5, ACCURACY_DIGITS);
    set_number(object, "lr", line->lr, log->digits);
    /* Members that depend on the clock are last, so that a comparison of two logs can cut them off. */
    set_number(object, "samples_per_second", line->samples_per_second, RATE_DIGITS);
    set_number(object, "seconds", line->seconds, RATE_DIGITS);
    log->flushed = 0;
    return write_line(log, object);
}

yk_status run_log_members(run_log *log, const run_log_members_line *line)
{
    if (!log->file)
        return YK_OK;
    return write_line(log,
                      json_pack("{s:s,s:I,s:I,s:I,s:i,s:o,s:o,s:o}", "event", "members", "view", (json_int_t)line->view,
                                "epoch", (json_int_t)line->epoch, "step", (json_int_t)line->step, "members",
                                line->members, "why", yk__json_text(line->why, strlen(line->why)), "time",
                                yk__json_fixed(line->time, 3), "seconds", yk__json_fixed(line->seconds, 3)));
}

yk_status run_log_time(run_log *log, const run_log_time_line *line)
{
    if (!log->file)
        return YK_OK;
    return write_line(log, json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "event", "time", "wall",
                                     yk__json_fixed(line->wall, 3), "steps", yk__json_fixed(line->steps, 3), "again",
                                     yk__json_fixed(line->again, 3), "changes", yk__json_fixed(line->changes, 3),
                                     "checkpoints", yk__json_fixed(line->checkpoints, 3), "tests",
                                     yk__json_fixed(line->tests, 3), "other", yk__json_fixed(line->other, 3)));
}

yk_status run_log_confusion(run_log *log, json_t *matrix)
{
    log->lines++;
    if (log->file && matrix)
        return write_line(log, json_pack("{s:s,s:o}", "event", "confusion", "confusion", matrix));
    json_decref(matrix);
    return matrix ? YK_OK : yk__fail_memory(sizeof(json_t *));
}

void run_log_close(run_log *log)
{
    run_log_flush(log);
    if (log->file && fclose(log->file))
        fprintf(stderr, "yoke train: --log %s: %s\n", log->path, strerror(errno));
    log->file = NULL;
}
