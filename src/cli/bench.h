/*
 * bench.h - what the subjects of `yoke bench` share. Layer: cli.
 */
#ifndef YOKE_CLI_BENCH_H
#define YOKE_CLI_BENCH_H

#include <stdint.h>

/* Sorts the list; the middle one, or the mean of the two in the middle. */
double bench_median(double *values, int64_t count);
/* The most memory this process has had, in MiB. */
double bench_peak_rss_mb(void);
/* A number of repetitions, brought into [least, most]. */
int64_t bench_count(double wanted, int64_t least, int64_t most);

#endif
