/*
 * saturate.h - f32 to i32 in vectors, as YK__TO_I32 says. Layer: device/cpu.
 *
 * x86 converts NaN and all numbers that i32 has not to INT32_MIN. That is right below; numbers from 2^31 on take one
 * from it, which is INT32_MAX, and NaN becomes 0.
 */
#ifndef YOKE_DEVICE_CPU_SATURATE_H
#define YOKE_DEVICE_CPU_SATURATE_H

#include "device/convert.h"
#include "device/cpu/cpu.h"

#if defined(__AVX512F__)
#include <immintrin.h>
enum { YK__I32_LANES = 16 };
#define YK__LANES_OF_F32(in) _mm512_loadu_ps(in)
#define YK__LANES_OF_BF16(in)                                                                                          \
    _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(in))), 16))
static inline void yk__store_as_i32(int32_t *out, __m512 x)
{
    __m512i v = _mm512_maskz_cvttps_epi32(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x);
    __mmask16 above = _mm512_cmp_ps_mask(x, _mm512_set1_ps(0x1p31f), _CMP_GE_OQ);
    _mm512_storeu_si512(out, _mm512_mask_sub_epi32(v, above, v, _mm512_set1_epi32(1)));
}
#elif defined(__AVX2__)
#include <immintrin.h>
enum { YK__I32_LANES = 8 };
#define YK__LANES_OF_F32(in) _mm256_loadu_ps(in)
#define YK__LANES_OF_BF16(in)                                                                                          \
    _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(in))), 16))
static inline void yk__store_as_i32(int32_t *out, __m256 x)
{
    __m256i number = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
    __m256i above = _mm256_castps_si256(_mm256_cmp_ps(x, _mm256_set1_ps(0x1p31f), _CMP_GE_OQ)); /* -1, or 0 */
    __m256i v = _mm256_and_si256(_mm256_cvttps_epi32(x), number);
    _mm256_storeu_si256((__m256i *)out, _mm256_add_epi32(v, above));
}
#else
enum { YK__I32_LANES = 1 };
#define YK__LANES_OF_F32(in)  (*(in))
#define YK__LANES_OF_BF16(in) yk__from_bf16(*(in))
static inline void yk__store_as_i32(int32_t *out, float x)
{
    *out = YK__TO_I32(x);
}
#endif

static inline void yk__f32_as_i32(int64_t n, int32_t *out, const float *in)
{
    int64_t whole = n - n % (2 * YK__I32_LANES);
    for (int64_t i = 0; i < whole; i += 2 * YK__I32_LANES) {
        yk__store_as_i32(out + i, YK__LANES_OF_F32(in + i));
        yk__store_as_i32(out + i + YK__I32_LANES, YK__LANES_OF_F32(in + i + YK__I32_LANES));
    }
    for (int64_t i = whole; i < n; i++)
        out[i] = YK__TO_I32(in[i]);
}

static inline void yk__bf16_as_i32(int64_t n, int32_t *out, const uint16_t *in)
{
    int64_t whole = n - n % (2 * YK__I32_LANES);
    for (int64_t i = 0; i < whole; i += 2 * YK__I32_LANES) {
        yk__store_as_i32(out + i, YK__LANES_OF_BF16(in + i));
        yk__store_as_i32(out + i + YK__I32_LANES, YK__LANES_OF_BF16(in + i + YK__I32_LANES));
    }
    for (int64_t i = whole; i < n; i++) {
        float x = yk__from_bf16(in[i]);
        out[i] = YK__TO_I32(x);
    }
}

#endif
