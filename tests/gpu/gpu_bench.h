/*
 * gpu_bench.h - speed of the slots of a GPU, row by row (gpu_bench.c).
 */
#ifndef YOKE_TESTS_GPU_BENCH_H
#define YOKE_TESTS_GPU_BENCH_H

#include <stdbool.h>

/* The names of the rows, a line each. */
void gpu_bench_list(void);
/* Measures one; a line of JSON. 0, 1 where it failed, 2 where there is none of this name. `small` shows only that the
 * row can be carried out: with a few elements, once. */
int gpu_bench_run(const char *name, bool small);

#endif
