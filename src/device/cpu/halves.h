/*
 * halves.h - cheap elementwise operations on f16 and bf16: widened, computed in f32 and rounded once, block by block,
 * so that conversions run beside divisions and roots. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_HALVES_H
#define YOKE_DEVICE_CPU_HALVES_H

#include "device/convert.h"
#include "device/cpu/cpu.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

enum { YK__HALF_BLOCK = 64 }; /* elements: a few vectors, whose loops the processor carries out side by side */

static inline void yk__widen_bf16(float *out, const uint16_t *in)
{
    for (int k = 0; k < YK__HALF_BLOCK; k++)
        out[k] = yk__from_bf16(in[k]);
}

static inline void yk__round_bf16(uint16_t *out, const float *in)
{
    for (int k = 0; k < YK__HALF_BLOCK; k++)
        out[k] = yk__to_bf16(in[k]);
}

#if defined(__AVX512F__)
static inline void yk__widen_f16(float *out, const uint16_t *in)
{
    for (int k = 0; k < YK__HALF_BLOCK; k += 16)
        _mm512_storeu_ps(out + k, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(in + k))));
}

static inline void yk__round_f16(uint16_t *out, const float *in)
{
    for (int k = 0; k < YK__HALF_BLOCK; k += 16)
        _mm256_storeu_si256((__m256i *)(out + k), _mm512_cvtps_ph(_mm512_loadu_ps(in + k), _MM_FROUND_TO_NEAREST_INT));
}
#elif defined(__F16C__)
static inline void yk__widen_f16(float *out, const uint16_t *in)
{
    for (int k = 0; k < YK__HALF_BLOCK; k += 8)
        _mm256_storeu_ps(out + k, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + k))));
}

static inline void yk__round_f16(uint16_t *out, const float *in)
{
    for (int k = 0; k < YK__HALF_BLOCK; k += 8)
        _mm_storeu_si128((__m128i *)(out + k), _mm256_cvtps_ph(_mm256_loadu_ps(in + k), _MM_FROUND_TO_NEAREST_INT));
}
#else
static inline void yk__widen_f16(float *out, const uint16_t *in)
{
    for (int k = 0; k < YK__HALF_BLOCK; k++)
        out[k] = yk__from_f16(in[k]);
}

static inline void yk__round_f16(uint16_t *out, const float *in)
{
    for (int k = 0; k < YK__HALF_BLOCK; k++)
        out[k] = yk__to_f16(in[k]);
}
#endif

/* `name` of type yk__apply_fn: of x, p0 and p1, all float. */
#define YK__HALF_UNARY(name, S, expression)                                                                            \
    static inline void name##_block(uint16_t *o, const uint16_t *in, float p0, float p1)                               \
    {                                                                                                                  \
        float wide[YK__HALF_BLOCK] __attribute__((aligned(64))), made[YK__HALF_BLOCK] __attribute__((aligned(64)));    \
        (void)p0, (void)p1;                                                                                            \
        yk__widen_##S(wide, in);                                                                                       \
        for (int k = 0; k < YK__HALF_BLOCK; k++) {                                                                     \
            float x = wide[k];                                                                                         \
            made[k] = (float)(expression);                                                                             \
        }                                                                                                              \
        yk__round_##S(o, made);                                                                                        \
    }                                                                                                                  \
    static void name(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)               \
    {                                                                                                                  \
        (void)b, (void)c;                                                                                              \
        uint16_t *o = out;                                                                                             \
        const uint16_t *in = a;                                                                                        \
        int64_t i = 0;                                                                                                 \
        for (; i + YK__HALF_BLOCK <= n; i += YK__HALF_BLOCK)                                                           \
            name##_block(o + i, in + i, (float)p[0], (float)p[1]);                                                     \
        if (i < n) {                                                                                                   \
            uint16_t part[YK__HALF_BLOCK] = {0};                                                                       \
            memcpy(part, in + i, (size_t)(n - i) * sizeof(uint16_t));                                                  \
            name##_block(part, part, (float)p[0], (float)p[1]);                                                        \
            memcpy(o + i, part, (size_t)(n - i) * sizeof(uint16_t));                                                   \
        }                                                                                                              \
    }

/* Likewise of x, y and alpha. */
#define YK__HALF_BINARY(name, S, expression)                                                                           \
    static inline void name##_block(uint16_t *o, const uint16_t *left, const uint16_t *right, float alpha)             \
    {                                                                                                                  \
        float wide[2][YK__HALF_BLOCK] __attribute__((aligned(64))), made[YK__HALF_BLOCK] __attribute__((aligned(64))); \
        (void)alpha;                                                                                                   \
        yk__widen_##S(wide[0], left);                                                                                  \
        yk__widen_##S(wide[1], right);                                                                                 \
        for (int k = 0; k < YK__HALF_BLOCK; k++) {                                                                     \
            float x = wide[0][k], y = wide[1][k];                                                                      \
            made[k] = (float)(expression);                                                                             \
        }                                                                                                              \
        yk__round_##S(o, made);                                                                                        \
    }                                                                                                                  \
    static void name(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)               \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        uint16_t *o = out;                                                                                             \
        const uint16_t *left = a, *right = b;                                                                          \
        int64_t i = 0;                                                                                                 \
        for (; i + YK__HALF_BLOCK <= n; i += YK__HALF_BLOCK)                                                           \
            name##_block(o + i, left + i, right + i, (float)p[0]);                                                     \
        if (i < n) {                                                                                                   \
            uint16_t part[2][YK__HALF_BLOCK] = {{0}};                                                                  \
            memcpy(part[0], left + i, (size_t)(n - i) * sizeof(uint16_t));                                             \
            memcpy(part[1], right + i, (size_t)(n - i) * sizeof(uint16_t));                                            \
            name##_block(part[0], part[0], part[1], (float)p[0]);                                                      \
            memcpy(o + i, part[0], (size_t)(n - i) * sizeof(uint16_t));                                                \
        }                                                                                                              \
    }

#endif
