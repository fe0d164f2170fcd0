/*
 * progress.h - how far a run is, on stderr: one line that is redrawn on a terminal, plain lines elsewhere. Layer: cli.
 */
#ifndef YOKE_CLI_TRAIN_PROGRESS_H
#define YOKE_CLI_TRAIN_PROGRESS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool silent;      /* set by the caller, after progress_begin: shows nothing */
    const char *unit; /* likewise: of samples, "images" before */
    bool terminal;
    bool shown;            /* a bar stands on the terminal's last line */
    int64_t epochs, epoch; /* epoch from 0 */
    int64_t steps, step;   /* of this epoch; step: how many are done */
    int64_t total, done;   /* steps of the whole run */
    int64_t before;        /* of those done, the ones before this process */
    const char *phase;     /* "epoch", "test" */
    double loss;           /* the last one; NaN before there is one */
    double begun, last;    /* when this run began and when something was last shown */
    double mark;           /* start of the stretch that the speed is measured over */
    int64_t mark_samples, samples;
} progress;

/* As it is printed: x86 makes NaN with the sign set, and printf shows that. */
static inline double printed(double x)
{
    return isnan(x) ? fabs(x) : x;
}

void progress_begin(progress *p, int64_t epochs, int64_t total_steps);
/* A run that goes on: steps done before it began. */
void progress_resume(progress *p, int64_t done);
/* A new epoch of `steps` steps, `step` of them done before this run. */
void progress_epoch(progress *p, int64_t epoch, int64_t steps, int64_t step);
/* Seconds from one time that something is shown to the next. */
double progress_interval(const progress *p);
/* One step is done: redraws where it is time to. */
void progress_step(progress *p, double loss, int64_t samples);
/* Testing, or anything else without a loss: `step` of `steps` done. */
void progress_other(progress *p, const char *phase, int64_t step, int64_t steps);
/* Takes the bar off the terminal, so that another line can be printed. */
void progress_clear(progress *p);

#endif
