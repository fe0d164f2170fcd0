/*
 * plot_log.c - the log of a run, read to be drawn. Layer: cli.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "cli/options.h"
#include "cli/plot/plot_log.h"

static yk_status series_add(plot_series *s, double step, double value)
{
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 1024;
        double *steps = yk__realloc(s->steps, room * sizeof(double));
        s->steps = steps ? steps : s->steps;
        double *values = steps ? yk__realloc(s->values, room * sizeof(double)) : NULL;
        if (!values)
            return yk__error_code();
        s->values = values;
        s->room = room;
    }
    s->steps[s->count] = step;
    s->values[s->count++] = value;
    return YK_OK;
}

/* Adds a member of the line where it has one. */
static yk_status member_add(plot_series *s, double step, const json_t *line, const char *name)
{
    const json_t *value = json_object_get(line, name);
    return value ? series_add(s, step, json_is_number(value) ? json_number_value(value) : NAN) : YK_OK;
}

static yk_status line_take(plot_log *log, const json_t *line, double *last)
{
    const char *event = json_string_value(json_object_get(line, "event"));
    const json_t *step = json_object_get(line, "step");
    if (event && strcmp(event, "step") == 0 && json_is_integer(step)) {
        *last = json_number_value(step);
        yk_status status = member_add(&log->series[PLOT_LOSS], *last, line, "loss");
        return status ? status : member_add(&log->series[PLOT_SPEED], *last, line, "samples_per_second");
    }
    if (event && strcmp(event, "eval") == 0) {
        yk_status status = member_add(&log->series[PLOT_TEST_LOSS], *last, line, "loss");
        return status ? status : member_add(&log->series[PLOT_ACCURACY], *last, line, "accuracy");
    }
    return event ? YK_OK : YK_ERR_FORMAT; /* others, as "epoch", say the same again, or what is not drawn */
}

static yk_status lines_read(FILE *file, plot_log *log)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    double last = 0;
    yk_status status = YK_OK;
    for (long number = 1; !status && (length = getline(&line, &size, file)) > 0; number++) {
        if (line[length - 1] != '\n' && number > 1)
            break;
        json_t *object = json_loadb(line, (size_t)length, 0, NULL);
        status = json_is_object(object) ? line_take(log, object, &last) : YK_ERR_FORMAT;
        json_decref(object);
        if (status == YK_ERR_FORMAT)
            yk__fail(
                YK_ERR_FORMAT,
                "%s:%ld: this is no line of a log that `yoke train --log` writes, which is an object of JSON with an "
                "\"event\": %.60s",
                cli_plain(log->path), number, cli_plain((line[strcspn(line, "\n")] = '\0', line)));
    }
    if (!status && ferror(file))
        status = yk__fail_errno("%s", log->path);
    free(line);
    return status;
}

yk_status plot_log_read(const char *path, plot_log *log)
{
    struct stat about;
    *log = (plot_log){.path = path};
    FILE *file = fopen(path, "re");
    if (!file)
        return yk__fail_errno("%s", cli_plain(path));
    yk_status status =
        fstat(fileno(file), &about) == 0 && S_ISDIR(about.st_mode)
            ? yk__fail(YK_ERR_FORMAT, "%s is a folder, and no log that `yoke train --log` writes", cli_plain(path))
            : lines_read(file, log);
    fclose(file);
    bool empty = true;
    for (int i = 0; i < PLOT_SERIES; i++)
        empty = empty && !log->series[i].count;
    if (!status && empty)
        status = yk__fail(YK_ERR_FORMAT,
                          "%s has neither a step nor a test of a run yet: `yoke train --log` writes such "
                          "logs",
                          cli_plain(path));
    if (status)
        plot_log_clear(log);
    return status;
}

void plot_log_clear(plot_log *log)
{
    for (int i = 0; i < PLOT_SERIES; i++) {
        free(log->series[i].steps);
        free(log->series[i].values);
    }
    *log = (plot_log){0};
}

void plot_series_thin(plot_series *s, size_t most)
{
    size_t each = (s->count + most - 1) / most, to = 0;
    if (each < 2)
        return;
    for (size_t from = 0; from < s->count; from += each, to++) {
        double sum = 0, step = 0;
        size_t finite = 0, end = from + each < s->count ? from + each : s->count;
        for (size_t i = from; i < end; i++) {
            step += s->steps[i];
            finite += isfinite(s->values[i]) != 0;
            sum += isfinite(s->values[i]) ? s->values[i] : 0;
        }
        s->steps[to] = step / (double)(end - from);
        s->values[to] = finite ? sum / (double)finite : NAN;
    }
    s->count = to;
}
