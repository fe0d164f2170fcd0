/*
 * slot_pairs.h - shared by the comparisons of slots: the same view in the host's memory and in the GPU's, filled alike,
 * and compared with all the memory around it. Needs the library alone.
 */
#ifndef YOKE_TESTS_SLOT_PAIRS_H
#define YOKE_TESTS_SLOT_PAIRS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/yoke.h>

#include "device/convert.h"
#include "device/table.h"
#include "tests/support/slot_cases.h"

enum { C_ORDER, REVERSED, GAPS, LAYOUTS, EXPANDED = LAYOUTS };

/* A view of the host's memory and the same of the GPU's. */
typedef struct pair {
    yk__view cpu, gpu;
    size_t bytes;
} pair;

extern const yk__backend *slot_cpu, *slot_gpu;

void slot_fail(slot_report *r, const char *format, ...) YK_PRINTF(2, 3);
/* True if the call succeeded; if not, its error is the case's. */
bool slot_done(slot_report *r, const char *what, yk_status status);
/* True if the CPU takes it; then the GPU must, and else it must refuse alike. */
bool slot_both(slot_report *r, const char *what, yk_status cpu, yk_status gpu);
/* Finds both backends. */
bool slot_ready(slot_report *r);
/* The plug-in's description of its libraries and of their share of the work; "" where it gives none. */
void slot_describe(char *text, size_t size);
/* The number after `what` in that, "plans timed: ", say; -1 where it is not there. */
long long slot_counted(const char *what);
/* True if the plug-in computes with that library ("cuDNN"): it is there, and YOKE_CUDA_LIBRARIES is not 0. */
bool slot_uses(const char *library);
/* The amount of a kind of work ("gemm") that a library has done, or our own kernel; -1 where the plug-in does not count
 * it. */
long long slot_work_done(const char *kind, bool by_library);
uint32_t slot_word(uint32_t seed, uint64_t i);
bool pair_make(pair *p, slot_report *r, yk_dtype dtype, int ndim, const int64_t *shape, int layout);
void pair_free(pair *p);
/* Brings the host's memory to the GPU. */
bool pair_upload(pair *p, slot_report *r);
/* Fills with numbers of all sizes, of both signs, and with special ones (NaN, infinities, denormals). */
bool pair_fill(pair *p, slot_report *r, uint32_t seed);
/* Fills with numbers of [low, high), integers where the dtype is no float. */
bool pair_fill_range(pair *p, slot_report *r, uint32_t seed, double low, double high);
double pair_value(const void *memory, yk_dtype dtype, size_t i);
/* All of the memory: the view's elements and what lies between them. `room` in units of the last place, 0: to the bit,
 * where any NaN is like another. */
void pair_compare(slot_report *r, const char *what, const pair *p, double room);
/* The same within `room` times the greatest magnitude of the CPU's: for sums whose order differs. */
void pair_compare_sums(slot_report *r, const char *what, const pair *p, double room);

#endif
