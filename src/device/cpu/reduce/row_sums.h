/*
 * row_sums.h - sums, and sums of squares, of rows of f32, f16 and bf16 whose elements are neighbours. Layer:
 * device/cpu.
 *
 * Eight vectors of f32 are added up before they are widened, as columns are (reduce_columns.h); so are the at most
 * eight that are left, the last of which may be a part of one. The lanes of several rows are brought together at once,
 * in the order in which those of one are, so that a row gives the same bits beside others and alone.
 */
#ifndef YOKE_DEVICE_CPU_REDUCE_ROW_SUMS_H
#define YOKE_DEVICE_CPU_REDUCE_ROW_SUMS_H

#include "device/cpu/halves.h"
#include "device/cpu/partial_vectors.h"

/* Loads before this stay before it. Lines that are not read one after the other, as the compiler schedules them, are
 * fetched later: 4 to 8 MB took 20 % longer on an EPYC of family 25, and fetching ahead is of no use where they are. */
#define YK__LOADS_IN_ORDER() __asm__ volatile("" ::: "memory")

/* yk__sum_of_lanes of as many vectors as one has lanes. */
enum { YK__ROWS_AT_ONCE = YK__VECTOR_BYTES / sizeof(double) };
static inline yk__vf64 yk__sums_of_lanes(const yk__vf64 *a)
{
#if YK__VECTOR_BYTES == 64
    yk__vf64 b[4], c[2];
    for (int i = 0; i < 4; i++)
        b[i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11) +
               __builtin_shufflevector(a[2 * i], a[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15);
    for (int i = 0; i < 2; i++)
        c[i] = __builtin_shufflevector(b[2 * i], b[2 * i + 1], 0, 1, 4, 5, 8, 9, 12, 13) +
               __builtin_shufflevector(b[2 * i], b[2 * i + 1], 2, 3, 6, 7, 10, 11, 14, 15);
    return __builtin_shufflevector(c[0], c[1], 0, 2, 4, 6, 8, 10, 12, 14) +
           __builtin_shufflevector(c[0], c[1], 1, 3, 5, 7, 9, 11, 13, 15);
#elif YK__VECTOR_BYTES == 32
    yk__vf64 b[2];
    for (int i = 0; i < 2; i++)
        b[i] = __builtin_shufflevector(a[2 * i], a[2 * i + 1], 0, 1, 4, 5) +
               __builtin_shufflevector(a[2 * i], a[2 * i + 1], 2, 3, 6, 7);
    return __builtin_shufflevector(b[0], b[1], 0, 2, 4, 6) + __builtin_shufflevector(b[0], b[1], 1, 3, 5, 7);
#else
    return __builtin_shufflevector(a[0], a[1], 0, 2) + __builtin_shufflevector(a[0], a[1], 1, 3);
#endif
}

enum { YK__ROW_LANES = YK__VECTOR_BYTES / sizeof(float) };

/* Two vectors of elements as f32, in any order; one; and the first n of one, with zeros after them. */
static inline void yk__row_two_f32(const float *from, yk__vf32 *first, yk__vf32 *second)
{
    *first = *(const yk__vf32u *)from;
    YK__LOADS_IN_ORDER();
    *second = *(const yk__vf32u *)(from + YK__ROW_LANES);
}

static inline yk__vf32 yk__row_one_f32(const float *from)
{
    return *(const yk__vf32u *)from;
}

static inline yk__vf32 yk__row_part_f32(const float *from, int64_t n)
{
    return yk__load_part_f32(from, n);
}

/* Every second element by a shift, the others by a mask: widening takes more. */
static inline void yk__row_two_bf16(const uint16_t *from, yk__vf32 *first, yk__vf32 *second)
{
    typedef uint32_t bits __attribute__((vector_size(YK__VECTOR_BYTES), aligned(2), may_alias));
    typedef uint32_t whole __attribute__((vector_size(YK__VECTOR_BYTES)));
    whole pairs = *(const bits *)from;
    *first = (yk__vf32)(pairs << 16);
    *second = (yk__vf32)(pairs & 0xFFFF0000u);
}

static inline yk__vf32 yk__row_one_bf16(const uint16_t *from)
{
    typedef uint16_t narrow __attribute__((vector_size(YK__VECTOR_BYTES / 2), aligned(2), may_alias));
    typedef uint32_t bits __attribute__((vector_size(YK__VECTOR_BYTES)));
    return (yk__vf32)(__builtin_convertvector(*(const narrow *)from, bits) << 16);
}

static inline yk__vf32 yk__row_one_f16(const uint16_t *from)
{
#if defined(__AVX512F__) || defined(__F16C__)
    return (yk__vf32)YK__LOAD_AS_F32(from);
#else
    float wide[YK__ROW_LANES];
    yk__vf32 v;
    yk__widen_f16(YK__ROW_LANES, wide, from);
    memcpy(&v, wide, sizeof(v));
    return v;
#endif
}

static inline void yk__row_two_f16(const uint16_t *from, yk__vf32 *first, yk__vf32 *second)
{
    *first = yk__row_one_f16(from);
    YK__LOADS_IN_ORDER();
    *second = yk__row_one_f16(from + YK__ROW_LANES);
}

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define YK__PART_OF_HALVES(part, from, n)                                                                              \
    _mm256_storeu_si256((__m256i *)(part), _mm256_maskz_loadu_epi16((__mmask16)((1u << (n)) - 1), from))
#else
#define YK__PART_OF_HALVES(part, from, n)                                                                              \
    (memset(part, 0, sizeof(part)), memcpy(part, from, (size_t)(n) * sizeof(*(from))))
#endif
#define YK__ROW_PART_HALF(S)                                                                                           \
    static inline yk__vf32 yk__row_part_##S(const uint16_t *from, int64_t n)                                           \
    {                                                                                                                  \
        uint16_t part[YK__ROW_LANES];                                                                                  \
        YK__PART_OF_HALVES(part, from, n);                                                                             \
        return yk__row_one_##S(part);                                                                                  \
    }
YK__ROW_PART_HALF(bf16)
YK__ROW_PART_HALF(f16)

/* Sums `rows` rows of n elements of type T, `step` bytes apart, into sums[rows]; `term` is an expression of the vector
 * v. */
typedef void (*yk__row_sums_fn)(double *sums, int64_t rows, const char *x, int64_t step, int64_t n);
#define YK__ROW_SUMS(name, S, T, term)                                                                                 \
    static inline yk__vf32 name##_term(yk__vf32 v)                                                                     \
    {                                                                                                                  \
        return term;                                                                                                   \
    }                                                                                                                  \
    /* The sum of less than eight vectors, at least one element. */                                                    \
    static inline __attribute__((always_inline)) yk__vf32 name##_few(const T *from, int64_t n)                         \
    {                                                                                                                  \
        enum { LANES = YK__ROW_LANES };                                                                                \
        yk__vf32 sum = {0}, other = {0}, v, w;                                                                         \
        if (n >= 2 * LANES) {                                                                                          \
            yk__row_two_##S(from, &v, &w);                                                                             \
            sum = name##_term(v), other = name##_term(w);                                                              \
            n -= 2 * LANES, from += 2 * LANES;                                                                         \
        }                                                                                                              \
        for (; n >= 2 * LANES; n -= 2 * LANES, from += 2 * LANES) {                                                    \
            yk__row_two_##S(from, &v, &w);                                                                             \
            sum += name##_term(v), other += name##_term(w);                                                            \
        }                                                                                                              \
        if (n >= LANES) {                                                                                              \
            sum += name##_term(yk__row_one_##S(from));                                                                 \
            n -= LANES, from += LANES;                                                                                 \
        }                                                                                                              \
        if (n > 0)                                                                                                     \
            other += name##_term(yk__row_part_##S(from, n));                                                           \
        return sum + other;                                                                                            \
    }                                                                                                                  \
    static inline __attribute__((always_inline)) yk__vf64 name##_lanes(const T *from, int64_t n)                       \
    {                                                                                                                  \
        enum { LANES = YK__ROW_LANES };                                                                                \
        yk__vf64 even = {0}, odd = {0}, e, o;                                                                          \
        yk__vf32 sum, other, v, w;                                                                                     \
        if (n < 8 * LANES && n > 0) {                                                                                  \
            yk__widen_lanes(name##_few(from, n), &even, &odd);                                                         \
            return even + odd;                                                                                         \
        }                                                                                                              \
        for (; n >= 8 * LANES; n -= 8 * LANES, from += 8 * LANES) {                                                    \
            yk__row_two_##S(from, &v, &w);                                                                             \
            sum = name##_term(v), other = name##_term(w);                                                              \
            _Pragma("GCC unroll 3") for (int i = 2; i < 8; i += 2)                                                     \
            {                                                                                                          \
                YK__LOADS_IN_ORDER();                                                                                  \
                yk__row_two_##S(from + i * LANES, &v, &w);                                                             \
                sum += name##_term(v), other += name##_term(w);                                                        \
            }                                                                                                          \
            yk__widen_lanes(sum + other, &e, &o);                                                                      \
            even += e, odd += o;                                                                                       \
        }                                                                                                              \
        if (n > 0) {                                                                                                   \
            yk__widen_lanes(name##_few(from, n), &e, &o);                                                              \
            even += e, odd += o;                                                                                       \
        }                                                                                                              \
        return even + odd;                                                                                             \
    }                                                                                                                  \
    static void name(double *sums, int64_t rows, const char *x, int64_t step, int64_t n)                               \
    {                                                                                                                  \
        int64_t r = 0;                                                                                                 \
        yk__vf64 lanes[YK__ROWS_AT_ONCE];                                                                              \
        for (; r + YK__ROWS_AT_ONCE <= rows; r += YK__ROWS_AT_ONCE) {                                                  \
            for (int i = 0; i < YK__ROWS_AT_ONCE; i++)                                                                 \
                lanes[i] = name##_lanes((const T *)(x + (r + i) * step), n);                                           \
            *(yk__vf64u *)(sums + r) = yk__sums_of_lanes(lanes);                                                       \
        }                                                                                                              \
        for (; r < rows; r++)                                                                                          \
            sums[r] = yk__sum_of_lanes(name##_lanes((const T *)(x + r * step), n));                                    \
    }
YK__ROW_SUMS(yk__row_sum_f32, f32, float, v)
YK__ROW_SUMS(yk__row_sum_bf16, bf16, uint16_t, v)
YK__ROW_SUMS(yk__row_sum_f16, f16, uint16_t, v)
YK__ROW_SUMS(yk__row_squares_f32, f32, float, v *v)
YK__ROW_SUMS(yk__row_squares_bf16, bf16, uint16_t, v *v)
YK__ROW_SUMS(yk__row_squares_f16, f16, uint16_t, v *v)

#endif
