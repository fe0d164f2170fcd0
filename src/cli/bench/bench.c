/*
 * bench.c - figures out of measurements. Layer: cli.
 */
#include "cli/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, int64_t count)
{
    qsort(values, (size_t)count, sizeof(*values), ascending);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

double bench_peak_rss_mb(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024; /* kibibytes on Linux */
}

int64_t bench_count(double wanted, int64_t least, int64_t most)
{
    if (!(wanted > (double)least))
        return least;
    return wanted < (double)most ? (int64_t)wanted : most;
}

yk_status bench_print_json(json_t *object)
{
    char *line = yk__json_line(object, YK__JSON_DIGITS);
    if (!line)
        return yk__fail(YK_ERR_MEMORY, "out of memory for a line of JSON");
    fputs(line, stdout);
    fflush(stdout); /* a row takes its time, and its reader wants it at once */
    free(line);
    return YK_OK;
}
