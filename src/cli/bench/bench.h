/*
 * bench.h - the functions that the subjects of `yoke bench` share. Layer: cli.
 */
#ifndef YOKE_CLI_BENCH_BENCH_H
#define YOKE_CLI_BENCH_BENCH_H

#include <stdint.h>

#include <jansson.h>

#include "base/core.h"
#include "base/json_line.h"

/* Sorts the list; the middle one, or the mean of the two in the middle. */
double bench_median(double *values, int64_t count);
/* The most memory this process has had, in MiB. */
double bench_peak_rss_mb(void);
/* A number of repetitions, brought into [least, most]. */
int64_t bench_count(double wanted, int64_t least, int64_t most);

/* Prints a row of `--json` and passes it on at once; takes over the object, where NULL is want of memory. */
yk_status bench_print_json(json_t *object);
/* Digits of a measured number in such a row, and of a time of one step or call: more than two runs agree in. */
enum { BENCH_DIGITS = 6, BENCH_TIME_DIGITS = 5 };

#endif
