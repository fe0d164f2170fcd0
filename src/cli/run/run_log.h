/*
 * run_log.h - a run as JSON lines, for programs to read. Layer: cli.
 */
#ifndef YOKE_CLI_RUN_RUN_LOG_H
#define YOKE_CLI_RUN_RUN_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>
#include <yoke/tensor.h>

typedef struct run_log {
    FILE *file; /* NULL: nothing is logged */
    const char *path;
    int digits;    /* of a loss */
    int64_t lines; /* that the file has, or would have if this process wrote it; those of changes of members aside */
    bool at_once;  /* set by the caller: each line reaches the file before the call returns */
    double flushed;
} run_log;

/* path NULL: a log that writes nothing. Losses get as many digits as bring back the same number of `dtype`. */
yk_status run_log_open(run_log *log, const char *path, yk_dtype dtype);
/* Goes on behind the line of `step`: what stands after it, from a run that was killed, is cut off. A file that is not
 * there is begun; one without that line is cut where later steps begin, if there are any. */
yk_status run_log_resume(run_log *log, const char *path, yk_dtype dtype, int64_t step);
/* Goes on behind the first log->lines lines of the file that another process has written; it may have written one less.
 * *missing: so it is. A file that cannot be taken over is said on stderr, and nothing is logged from there on. */
void run_log_take_over(run_log *log, const char *path, bool *missing);
/* A line that cannot be written, as on a full disk, is said once on stderr, and nothing is logged from there on.
 * Everything logged so far is in the file. */
void run_log_flush(run_log *log);
/* True if lines should reach the file now. */
bool run_log_due(const run_log *log);
/* Epochs count from 0, steps from 1. What was written reaches the file within about a second. */
yk_status run_log_step(run_log *log, int64_t epoch, int64_t step, double loss, double samples_per_second);
yk_status run_log_eval(run_log *log, int64_t epoch, double loss, double accuracy);
/* An epoch as the screen has it. Numbers that are NaN were not measured, and are left out. */
typedef struct run_log_epoch_line {
    int64_t epoch, step;
    double train_loss, test_loss, accuracy, top5;
    double lr;                          /* of the step that comes next: a run that goes on has none before it */
    double samples_per_second, seconds; /* seconds: since training began in this process */
} run_log_epoch_line;
yk_status run_log_epoch(run_log *log, const run_log_epoch_line *line);
/* A change of members, at the first step that is complete without, or with, them. */
typedef struct run_log_members_line {
    int64_t view, epoch, step;
    int members;
    const char *why;
    double time, seconds; /* since 1970, when it was noticed; from then to the end of that step */
} run_log_members_line;
yk_status run_log_members(run_log *log, const run_log_members_line *line);
/* A run's seconds in all, and what they went into. */
typedef struct run_log_time_line {
    double wall, steps, again, changes, checkpoints, tests, other;
} run_log_time_line;
yk_status run_log_time(run_log *log, const run_log_time_line *line);
/* Takes over the matrix, as confusion_json makes it; NULL is want of memory. */
yk_status run_log_confusion(run_log *log, json_t *matrix);
void run_log_close(run_log *log);

#endif
