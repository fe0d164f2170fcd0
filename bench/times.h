/* times.h - the order and the median of times that were measured. Programs of bench/ include it. */
#ifndef YOKE_BENCH_TIMES_H
#define YOKE_BENCH_TIMES_H

#include <stdlib.h>

/* The order of two doubles, for qsort. */
static inline int times_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values; the upper one of the two in the middle where their number is even. */
static inline double times_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof(*values), times_compare);
    return values[count / 2];
}

#endif
