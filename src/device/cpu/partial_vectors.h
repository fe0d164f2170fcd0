/*
 * partial_vectors.h - vectors at the end of a row, of which only some lanes exist in memory; sums of lanes. Layer:
 * device/cpu.
 *
 * The lanes beyond the first n are 0 when loaded, and memory beyond them is neither read nor written.
 */
#ifndef YOKE_DEVICE_CPU_PARTIAL_VECTORS_H
#define YOKE_DEVICE_CPU_PARTIAL_VECTORS_H

#include <string.h>

#include "device/cpu/cpu.h"

#if defined(__AVX512F__)
#include <immintrin.h>

static inline yk__vf32 yk__load_part_f32(const float *from, int64_t n)
{
    return (yk__vf32)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
}

static inline yk__vf64 yk__load_part_f64(const double *from, int64_t n)
{
    return (yk__vf64)_mm512_maskz_loadu_pd((__mmask8)((1u << n) - 1), from);
}

static inline void yk__store_part_f32(float *to, yk__vf32 v, int64_t n)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)v);
}

static inline void yk__store_part_f64(double *to, yk__vf64 v, int64_t n)
{
    _mm512_mask_storeu_pd(to, (__mmask8)((1u << n) - 1), (__m512d)v);
}
#else
static inline yk__vf32 yk__load_part_f32(const float *from, int64_t n)
{
    yk__vf32 v = {0};
    memcpy(&v, from, (size_t)n * sizeof(float));
    return v;
}

static inline yk__vf64 yk__load_part_f64(const double *from, int64_t n)
{
    yk__vf64 v = {0};
    memcpy(&v, from, (size_t)n * sizeof(double));
    return v;
}

static inline void yk__store_part_f32(float *to, yk__vf32 v, int64_t n)
{
    memcpy(to, &v, (size_t)n * sizeof(float));
}

static inline void yk__store_part_f64(double *to, yk__vf64 v, int64_t n)
{
    memcpy(to, &v, (size_t)n * sizeof(double));
}
#endif

/* The halves of v, in double. */
static inline void yk__widen_lanes(yk__vf32 v, yk__vf64 *low, yk__vf64 *high)
{
#if defined(__AVX512F__)
    *low = (yk__vf64)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)v));
    *high = (yk__vf64)_mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd((__m512)v), 1)));
#else
    typedef float half __attribute__((vector_size(YK__VECTOR_BYTES / 2)));
    half halves[2];
    memcpy(halves, &v, sizeof(v));
    *low = __builtin_convertvector(halves[0], yk__vf64);
    *high = __builtin_convertvector(halves[1], yk__vf64);
#endif
}

/* The sum of all lanes: halves, then halves of these. */
static inline double yk__sum_of_lanes(yk__vf64 v)
{
    double lane[sizeof(v) / sizeof(double)];
    memcpy(lane, &v, sizeof(v));
    for (size_t n = sizeof(lane) / sizeof(*lane) / 2; n > 0; n /= 2)
        for (size_t l = 0; l < n; l++)
            lane[l] += lane[l + n];
    return lane[0];
}

/* The sum of all lanes, in double: halves, then quarters, so that additions do not wait for each other. */
static inline double yk__lanes_sum_f32(yk__vf32 v)
{
    typedef float quad __attribute__((vector_size(16)));
    typedef double wide __attribute__((vector_size(32)));
    union {
        yk__vf32 v;
        quad q[YK__VECTOR_BYTES / 16];
    } u = {v};
    wide sum = __builtin_convertvector(u.q[0], wide);
    for (int i = 1; i < YK__VECTOR_BYTES / 16; i++)
        sum += __builtin_convertvector(u.q[i], wide);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

static inline double yk__lanes_sum_f64(yk__vf64 v)
{
    typedef double pair __attribute__((vector_size(16)));
    union {
        yk__vf64 v;
        pair p[YK__VECTOR_BYTES / 16];
    } u = {v};
    pair sum = u.p[0];
    for (int i = 1; i < YK__VECTOR_BYTES / 16; i++)
        sum += u.p[i];
    return sum[0] + sum[1];
}

#endif
