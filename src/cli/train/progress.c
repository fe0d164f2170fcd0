/*
 * progress.c - the progress bar and its plain counterpart. Layer: cli.
 *
 * A terminal gets one line, redrawn at most ten times a second and cut to the terminal's width, which is asked for at
 * each redraw, so a changed window is right again with the next one. Anything else gets a line every few seconds.
 * Everything goes to stderr: stdout is for results.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/core.h"
#include "cli/terminal.h"
#include "cli/train/progress.h"

/* Between two writes: on a terminal, ten times a second looks steady; in a file each is a line of its own. */
#define REDRAW_SECONDS 0.1
#define LINE_SECONDS   5.0

void progress_begin(progress *p, int64_t epochs, int64_t total_steps)
{
    *p = (progress){.epochs = epochs, .total = total_steps, .loss = NAN, .phase = "epoch", .unit = "images"};
    p->terminal = terminal_columns(STDERR_FILENO) > 0;
    p->begun = p->last = yk__now();
    if (p->terminal)
        p->last -= REDRAW_SECONDS;
}

void progress_resume(progress *p, int64_t done)
{
    p->done = p->before = done;
}

void progress_epoch(progress *p, int64_t epoch, int64_t steps, int64_t step)
{
    p->phase = "epoch";
    p->epoch = epoch;
    p->steps = steps;
    p->step = step;
    p->samples = p->mark_samples = 0;
    p->mark = yk__now();
}

static void format_time(double seconds, char *text, size_t size)
{
    int64_t s = seconds < 0 || seconds > 1e9 ? 0 : (int64_t)(seconds + 0.5);
    if (s >= 3600)
        snprintf(text, size, "%" PRId64 ":%02" PRId64 ":%02" PRId64, s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(text, size, "%" PRId64 ":%02" PRId64, s / 60, s % 60);
}

/* The numbers of the line; the parts that matter most come first, so that a narrow terminal cuts the others. */
static int format_numbers(const progress *p, double now, char *text, size_t size)
{
    int digits = snprintf(NULL, 0, "%" PRId64, p->steps); /* of the largest step: the line keeps its length */
    if (strcmp(p->phase, "epoch") != 0)
        return snprintf(text, size, "%s %*" PRId64 "/%" PRId64, p->phase, digits, p->step, p->steps);
    int n = snprintf(text, size, "epoch %" PRId64 "/%" PRId64 "  step %*" PRId64 "/%" PRId64 "  loss %.4f",
                     p->epoch + 1, p->epochs, digits, p->step, p->steps, printed(p->loss));
    if (now > p->mark && p->samples > p->mark_samples)
        n += snprintf(text + n, size - (size_t)n, "  %5.0f %s/s",
                      (double)(p->samples - p->mark_samples) / (now - p->mark), p->unit);
    if (p->done > p->before) {
        char left[32];
        double each = (now - p->begun) / (double)(p->done - p->before);
        format_time(each * (double)(p->total - p->done), left, sizeof(left));
        n += snprintf(text + n, size - (size_t)n, "  %s left", left);
    }
    return n;
}

static void draw(progress *p, double now)
{
    char numbers[256], line[1200];
    int length = format_numbers(p, now, numbers, sizeof(numbers));
    int width = terminal_columns(STDERR_FILENO) - 1; /* the last column would wrap on some terminals */
    if (width > 999)
        width = 999;
    int bar = width - length - 4;
    if (bar > 40)
        bar = 40;
    int n = 0;
    line[n++] = '\r';
    if (bar >= 8) {
        double part = p->steps > 0 ? (double)p->step / (double)p->steps : 0;
        int filled = (int)(part * bar + 0.5);
        line[n++] = '[';
        for (int i = 0; i < bar; i++)
            line[n++] = i < filled ? '=' : i == filled ? '>' : ' ';
        line[n++] = ']';
        line[n++] = ' ';
        line[n++] = ' ';
    }
    n += snprintf(line + n, sizeof(line) - (size_t)n, "%.*s\033[K", bar >= 8 ? length : width, numbers);
    fwrite(line, 1, (size_t)n, stderr);
    fflush(stderr);
    p->shown = true;
}

double progress_interval(const progress *p)
{
    return p->terminal && !p->silent ? REDRAW_SECONDS : LINE_SECONDS;
}

static void show(progress *p)
{
    double now = yk__now();
    if (p->silent || now - p->last < progress_interval(p))
        return;
    if (p->terminal) {
        draw(p, now);
    } else {
        char numbers[256];
        format_numbers(p, now, numbers, sizeof(numbers));
        fprintf(stderr, "%s\n", numbers);
    }
    p->last = now;
    if (now - p->mark > LINE_SECONDS) { /* the speed shown is that of the last seconds, not of the whole epoch */
        p->mark = now;
        p->mark_samples = p->samples;
    }
}

void progress_step(progress *p, double loss, int64_t samples)
{
    p->step++;
    p->done++;
    p->samples += samples;
    p->loss = loss;
    show(p);
}

void progress_other(progress *p, const char *phase, int64_t step, int64_t steps)
{
    p->phase = phase;
    p->step = step;
    p->steps = steps;
    show(p);
}

void progress_clear(progress *p)
{
    if (p->shown)
        fputs("\r\033[K", stderr);
    p->shown = false;
}
