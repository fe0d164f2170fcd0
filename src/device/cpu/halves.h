/*
 * halves.h - cheap elementwise operations on f16 and bf16: widened, computed in f32 and rounded once, block by block,
 * so that conversions run beside divisions and roots; and the conversions. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_HALVES_H
#define YOKE_DEVICE_CPU_HALVES_H

#include "device/convert.h"
#include "device/cpu/iterate.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

enum { YK__HALF_BLOCK = 64 }; /* elements: a few vectors, whose loops the processor carries out side by side */

static inline void yk__widen_bf16(int64_t n, float *out, const uint16_t *in)
{
    YK__INDEPENDENT for (int64_t k = 0; k < n; k++)
    {
        out[k] = yk__from_bf16(in[k]);
    }
}

static inline void yk__round_bf16(int64_t n, uint16_t *out, const float *in)
{
    YK__INDEPENDENT for (int64_t k = 0; k < n; k++)
    {
        out[k] = yk__to_bf16(in[k]);
    }
}

/* Elements that a processor converts between f16 and f32 at once. */
#if defined(__AVX512F__)
enum { YK__F16_LANES = 16 };
#define YK__LOAD_AS_F32(in)   _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(in)))
#define YK__STORE_F32(out, x) _mm512_storeu_ps(out, x)
#define YK__STORE_AS_F16(out, in)                                                                                      \
    _mm256_storeu_si256((__m256i *)(out), _mm512_cvtps_ph(_mm512_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT))
#elif defined(__F16C__)
enum { YK__F16_LANES = 8 };
#define YK__LOAD_AS_F32(in)   _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in)))
#define YK__STORE_F32(out, x) _mm256_storeu_ps(out, x)
#define YK__STORE_AS_F16(out, in)                                                                                      \
    _mm_storeu_si128((__m128i *)(out), _mm256_cvtps_ph(_mm256_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT))
#else
enum { YK__F16_LANES = 1 };
#define YK__LOAD_AS_F32(in)       yk__from_f16(*(in))
#define YK__STORE_F32(out, x)     (*(out) = (x))
#define YK__STORE_AS_F16(out, in) (*(out) = yk__to_f16(*(in)))
#endif

static inline void yk__widen_f16(int64_t n, float *out, const uint16_t *in)
{
    int64_t whole = n - n % YK__F16_LANES;
    for (int64_t k = 0; k < whole; k += YK__F16_LANES)
        YK__STORE_F32(out + k, YK__LOAD_AS_F32(in + k));
    for (int64_t k = whole; k < n; k++)
        out[k] = yk__from_f16(in[k]);
}

static inline void yk__round_f16(int64_t n, uint16_t *out, const float *in)
{
    int64_t whole = n - n % YK__F16_LANES;
    for (int64_t k = 0; k < whole; k += YK__F16_LANES)
        YK__STORE_AS_F16(out + k, in + k);
    for (int64_t k = whole; k < n; k++)
        out[k] = yk__to_f16(in[k]);
}

/* `name` of type yk__apply_fn: of x, p0 and p1, all float. */
#define YK__HALF_UNARY(name, S, expression)                                                                            \
    static inline void name##_block(uint16_t *o, const uint16_t *in, float p0, float p1)                               \
    {                                                                                                                  \
        float wide[YK__HALF_BLOCK] __attribute__((aligned(64))), made[YK__HALF_BLOCK] __attribute__((aligned(64)));    \
        (void)p0, (void)p1;                                                                                            \
        yk__widen_##S(YK__HALF_BLOCK, wide, in);                                                                       \
        for (int k = 0; k < YK__HALF_BLOCK; k++) {                                                                     \
            float x = wide[k];                                                                                         \
            made[k] = (float)(expression);                                                                             \
        }                                                                                                              \
        yk__round_##S(YK__HALF_BLOCK, o, made);                                                                        \
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

/* The same for an expression of x, y and alpha. */
#define YK__HALF_BINARY(name, S, expression)                                                                           \
    static inline void name##_block(uint16_t *o, const uint16_t *left, const uint16_t *right, float alpha)             \
    {                                                                                                                  \
        float wide[2][YK__HALF_BLOCK] __attribute__((aligned(64))), made[YK__HALF_BLOCK] __attribute__((aligned(64))); \
        (void)alpha;                                                                                                   \
        yk__widen_##S(YK__HALF_BLOCK, wide[0], left);                                                                  \
        yk__widen_##S(YK__HALF_BLOCK, wide[1], right);                                                                 \
        for (int k = 0; k < YK__HALF_BLOCK; k++) {                                                                     \
            float x = wide[0][k], y = wide[1][k];                                                                      \
            made[k] = (float)(expression);                                                                             \
        }                                                                                                              \
        yk__round_##S(YK__HALF_BLOCK, o, made);                                                                        \
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
