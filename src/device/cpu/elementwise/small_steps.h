/*
 * small_steps.h - every second, third or fourth element, read and written in vectors. Layer: device/cpu.
 *
 * One at a time they are a load and a store each. With AVX-512 a vector of those that are read is picked from `step`
 * vectors of memory, and a vector of those that are written goes out in `step` stores whose masks leave out all memory
 * between them. What is left at the end, and all of it on other instruction sets, is the caller's.
 */
#ifndef YOKE_DEVICE_CPU_ELEMENTWISE_SMALL_STEPS_H
#define YOKE_DEVICE_CPU_ELEMENTWISE_SMALL_STEPS_H

#include "device/cpu/cpu.h"

/* yk__read_step and yk__write_step: n elements of `size` bytes that are `step` elements apart in `from`, or in `to`,
 * and side by side in the other one. They give the number of elements that were copied, the first ones. */
enum { YK__SMALL_STEP = 4 };

#if defined(__AVX512BW__)
#include <immintrin.h>

/* For elements of one size, LANES in a vector. Whole vectors are read, also after the last element that they give:
 * there is another one after those, hence `<` n. */
#define YK__STEPS_(bits, T, LANES, Mask)                                                                               \
    typedef T yk__lanes##bits __attribute__((vector_size(64)));                                                        \
    static inline yk__lanes##bits yk__numbers##bits(void)                                                              \
    {                                                                                                                  \
        yk__lanes##bits numbers;                                                                                       \
        for (int l = 0; l < LANES; l++)                                                                                \
            numbers[l] = (T)l;                                                                                         \
        return numbers;                                                                                                \
    }                                                                                                                  \
    static inline __attribute__((always_inline))                                                                       \
    int64_t yk__read##bits(void *to, const void *from, int64_t n, const int step)                                      \
    {                                                                                                                  \
        const yk__lanes##bits index = yk__numbers##bits() * (T)step;                                                   \
        const __m512i lane = (__m512i)(index % (T)LANES);                                                              \
        Mask part[YK__SMALL_STEP];                                                                                     \
        for (int k = 0; k < step; k++)                                                                                 \
            part[k] = _mm512_cmpeq_epi##bits##_mask((__m512i)(index / (T)LANES), _mm512_set1_epi##bits((T)k));         \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES < n; i += LANES) {                                                                            \
            const char *in = (const char *)from + i * step * (int64_t)sizeof(T);                                       \
            __m512i v = _mm512_permutexvar_epi##bits(lane, _mm512_loadu_si512(in));                                    \
            for (int k = 1; k < step; k++)                                                                             \
                v = _mm512_mask_permutexvar_epi##bits(v, part[k], lane, _mm512_loadu_si512(in + k * 64));              \
            _mm512_storeu_si512((char *)to + i * (int64_t)sizeof(T), v);                                               \
        }                                                                                                              \
        return i;                                                                                                      \
    }                                                                                                                  \
    static inline __attribute__((always_inline))                                                                       \
    int64_t yk__write##bits(void *to, const void *from, int64_t n, const int step)                                     \
    {                                                                                                                  \
        __m512i lane[YK__SMALL_STEP];                                                                                  \
        Mask part[YK__SMALL_STEP];                                                                                     \
        for (int k = 0; k < step; k++) {                                                                               \
            const yk__lanes##bits index = yk__numbers##bits() + (T)(k * LANES);                                        \
            lane[k] = (__m512i)(index / (T)step);                                                                      \
            part[k] = _mm512_testn_epi##bits##_mask((__m512i)(index % (T)step), _mm512_set1_epi##bits(-1));            \
        }                                                                                                              \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= n; i += LANES) {                                                                           \
            char *out = (char *)to + i * step * (int64_t)sizeof(T);                                                    \
            __m512i v = _mm512_loadu_si512((const char *)from + i * (int64_t)sizeof(T));                               \
            for (int k = 0; k < step; k++)                                                                             \
                _mm512_mask_storeu_epi##bits(out + k * 64, part[k], _mm512_permutexvar_epi##bits(lane[k], v));         \
        }                                                                                                              \
        return i;                                                                                                      \
    }
YK__STEPS_(16, int16_t, 32, __mmask32)
YK__STEPS_(32, int32_t, 16, __mmask16)
YK__STEPS_(64, int64_t, 8, __mmask8)

#define YK__BY_SIZE_(name, to, from, size, n, step)                                                                    \
    ((size) == 2   ? yk__##name##16(to, from, n, step)                                                                 \
     : (size) == 4 ? yk__##name##32(to, from, n, step)                                                                 \
     : (size) == 8 ? yk__##name##64(to, from, n, step)                                                                 \
                   : 0)
#define YK__BY_STEP_(name, to, from, size, n, step)                                                                    \
    ((step) == 2   ? YK__BY_SIZE_(name, to, from, size, n, 2)                                                          \
     : (step) == 3 ? YK__BY_SIZE_(name, to, from, size, n, 3)                                                          \
     : (step) == 4 ? YK__BY_SIZE_(name, to, from, size, n, 4)                                                          \
                   : 0)
static inline int64_t yk__read_step(void *to, const void *from, size_t size, int64_t n, int64_t step)
{
    return YK__BY_STEP_(read, to, from, size, n, step);
}

static inline int64_t yk__write_step(void *to, const void *from, size_t size, int64_t n, int64_t step)
{
    return YK__BY_STEP_(write, to, from, size, n, step);
}
#else
static inline int64_t yk__read_step(void *to, const void *from, size_t size, int64_t n, int64_t step)
{
    (void)to, (void)from, (void)size, (void)n, (void)step;
    return 0;
}

static inline int64_t yk__write_step(void *to, const void *from, size_t size, int64_t n, int64_t step)
{
    (void)to, (void)from, (void)size, (void)n, (void)step;
    return 0;
}
#endif

#endif
