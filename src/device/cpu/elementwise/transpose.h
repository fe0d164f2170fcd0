/*
 * transpose.h - matrices with rows and columns exchanged, through vector registers. Layer: device/cpu.
 *
 * Elements of 4 and of 8 bytes move in squares of 8 x 8 and 4 x 4; two to four rows of 4 bytes, to or from columns that
 * follow each other without a gap, 8 of each at a time; the edges and other sizes one by one. Callers give pieces whose
 * rows, on both sides, stay in the first-level cache.
 */
#ifndef YOKE_DEVICE_CPU_ELEMENTWISE_TRANSPOSE_H
#define YOKE_DEVICE_CPU_ELEMENTWISE_TRANSPOSE_H

#include "device/cpu/cpu.h"

typedef float yk__eight32 __attribute__((vector_size(32), aligned(4), may_alias));
typedef double yk__four64 __attribute__((vector_size(32), aligned(8), may_alias));

/* 8 x 8: pairs, quads, then halves are exchanged. Strides are in elements. */
static inline void yk__transpose_f32(float *to, int64_t to_stride, const float *src, int64_t src_stride)
{
    yk__eight32 a[8], b[8];
    for (int i = 0; i < 8; i++)
        a[i] = *(const yk__eight32 *)(src + i * src_stride);
    for (int i = 0; i < 8; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = __builtin_shufflevector(b[i + j], b[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[i + 2 * j + 1] = __builtin_shufflevector(b[i + j], b[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        *(yk__eight32 *)(to + i * to_stride) = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(yk__eight32 *)(to + (i + 4) * to_stride) =
            __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

/* 4 x 4. */
static inline void yk__transpose_f64(double *to, int64_t to_stride, const double *src, int64_t src_stride)
{
    yk__four64 a[4], b[4];
    for (int i = 0; i < 4; i++)
        a[i] = *(const yk__four64 *)(src + i * src_stride);
    for (int i = 0; i < 4; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 4, 2, 6);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 5, 3, 7);
    }
    for (int i = 0; i < 2; i++) {
        *(yk__four64 *)(to + i * to_stride) = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 4, 5);
        *(yk__four64 *)(to + (i + 2) * to_stride) = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 6, 7);
    }
}

/* 8 x `count` elements, count from 2 to 4, that follow each other, from as many rows of 8. */
static inline void yk__interleave_f32(float *to, const float *src, int64_t src_stride, int64_t count)
{
    yk__eight32 *o = (yk__eight32 *)to;
    yk__eight32 a = *(const yk__eight32 *)src, b = *(const yk__eight32 *)(src + src_stride);
    if (count == 2) {
        o[0] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
        o[1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
        return;
    }
    yk__eight32 c = *(const yk__eight32 *)(src + 2 * src_stride);
    if (count == 3) {
        yk__eight32 first = __builtin_shufflevector(a, b, 0, 8, 0, 1, 9, 0, 2, 10);
        yk__eight32 second = __builtin_shufflevector(b, c, 10, 0, 3, 11, 0, 4, 12, 0);
        yk__eight32 third = __builtin_shufflevector(b, c, 5, 13, 0, 6, 14, 0, 7, 15);
        o[0] = __builtin_shufflevector(first, c, 0, 1, 8, 3, 4, 9, 6, 7);
        o[1] = __builtin_shufflevector(second, a, 0, 11, 2, 3, 12, 5, 6, 13);
        o[2] = __builtin_shufflevector(third, a, 0, 1, 14, 3, 4, 15, 6, 7);
        return;
    }
    yk__eight32 d = *(const yk__eight32 *)(src + 3 * src_stride);
    yk__eight32 ac[2] = {__builtin_shufflevector(a, c, 0, 8, 1, 9, 2, 10, 3, 11),
                         __builtin_shufflevector(a, c, 4, 12, 5, 13, 6, 14, 7, 15)};
    yk__eight32 bd[2] = {__builtin_shufflevector(b, d, 0, 8, 1, 9, 2, 10, 3, 11),
                         __builtin_shufflevector(b, d, 4, 12, 5, 13, 6, 14, 7, 15)};
    for (int i = 0; i < 2; i++) {
        o[2 * i] = __builtin_shufflevector(ac[i], bd[i], 0, 8, 1, 9, 2, 10, 3, 11);
        o[2 * i + 1] = __builtin_shufflevector(ac[i], bd[i], 4, 12, 5, 13, 6, 14, 7, 15);
    }
}

/* The reverse of interleave: 8 rows of `count` elements, from `count` elements of 8 rows that follow each other. */
static inline void yk__deinterleave_f32(float *to, int64_t to_stride, const float *src, int64_t count)
{
    const yk__eight32 *x = (const yk__eight32 *)src;
    if (count == 2) {
        *(yk__eight32 *)to = __builtin_shufflevector(x[0], x[1], 0, 2, 4, 6, 8, 10, 12, 14);
        *(yk__eight32 *)(to + to_stride) = __builtin_shufflevector(x[0], x[1], 1, 3, 5, 7, 9, 11, 13, 15);
    } else if (count == 3) {
        yk__eight32 a = __builtin_shufflevector(x[0], x[1], 0, 3, 6, 9, 12, 15, 0, 0);
        yk__eight32 b = __builtin_shufflevector(x[0], x[1], 1, 4, 7, 10, 13, 0, 0, 0);
        yk__eight32 c = __builtin_shufflevector(x[0], x[1], 2, 5, 8, 11, 14, 0, 0, 0);
        *(yk__eight32 *)to = __builtin_shufflevector(a, x[2], 0, 1, 2, 3, 4, 5, 10, 13);
        *(yk__eight32 *)(to + to_stride) = __builtin_shufflevector(b, x[2], 0, 1, 2, 3, 4, 8, 11, 14);
        *(yk__eight32 *)(to + 2 * to_stride) = __builtin_shufflevector(c, x[2], 0, 1, 2, 3, 4, 9, 12, 15);
    } else {
        for (int i = 0; i < 2; i++) {
            yk__eight32 even[2], odd[2]; /* elements 0, 4, ... of both halves; 1, 5, ... */
            for (int j = 0; j < 2; j++) {
                even[j] = __builtin_shufflevector(x[2 * j], x[2 * j + 1], 0, 4, 8, 12, 2, 6, 10, 14);
                odd[j] = __builtin_shufflevector(x[2 * j], x[2 * j + 1], 1, 5, 9, 13, 3, 7, 11, 15);
            }
            yk__eight32 *half = i ? odd : even;
            *(yk__eight32 *)(to + i * to_stride) = __builtin_shufflevector(half[0], half[1], 0, 1, 2, 3, 8, 9, 10, 11);
            *(yk__eight32 *)(to + (i + 2) * to_stride) =
                __builtin_shufflevector(half[0], half[1], 4, 5, 6, 7, 12, 13, 14, 15);
        }
    }
}

#define YK__TRANSPOSE_EDGES_(T, from_row)                                                                              \
    for (int64_t i = 0; i < rows; i++)                                                                                 \
        for (int64_t j = from_row; j < cols; j++)                                                                      \
            *(T *)((char *)to + i * to_stride + j * (int64_t)sizeof(T)) =                                              \
                *(const T *)((const char *)from + j * from_stride + i * (int64_t)sizeof(T));

#define YK__TRANSPOSE_SQUARES_(T, Raw, side, square)                                                                   \
    {                                                                                                                  \
        int64_t whole_rows = rows - rows % (side), whole_cols = cols - cols % (side), bytes = (int64_t)sizeof(T);      \
        for (int64_t i = 0; i < whole_rows; i += (side))                                                               \
            for (int64_t j = 0; j < whole_cols; j += (side))                                                           \
                square((T *)((char *)to + i * to_stride) + j, to_stride / bytes,                                       \
                       (const T *)((const char *)from + j * from_stride) + i, from_stride / bytes);                    \
        YK__TRANSPOSE_EDGES_(Raw, i < whole_rows ? whole_cols : 0)                                                     \
    }

typedef uint8_t yk__element8 __attribute__((may_alias));
typedef uint16_t yk__element16 __attribute__((may_alias));
typedef uint32_t yk__element32 __attribute__((may_alias));
typedef uint64_t yk__element64 __attribute__((may_alias));

/* Rows, or columns, that are at most four, of 4 bytes. Without AVX2 gcc takes the shuffles of columns apart, which
 * takes five times as long as one element at a time. */
#define YK__TRANSPOSE_NARROW_(count)                                                                                   \
    if (cols == (count) && to_stride == 4 * (count)) {                                                                 \
        for (; rows >= 8; rows -= 8, to += 8 * (count), from += 8)                                                     \
            yk__interleave_f32(to, from, from_stride / 4, count);                                                      \
    } else if (YK__VECTOR_BYTES >= 32 && rows == (count) && from_stride == 4 * (count)) {                              \
        for (; cols >= 8; cols -= 8, to += 8, from += 8 * (count))                                                     \
            yk__deinterleave_f32(to, to_stride / 4, from, count);                                                      \
    }
static __attribute__((noinline, unused)) void yk__transpose_narrow(float *to, int64_t to_stride, const float *from,
                                                                   int64_t from_stride, int64_t rows, int64_t cols)
{
    YK__TRANSPOSE_NARROW_(2)
    YK__TRANSPOSE_NARROW_(3)
    YK__TRANSPOSE_NARROW_(4)
    YK__TRANSPOSE_EDGES_(yk__element32, 0)
}

/* Element (i, j) of `to`, rows x cols, becomes element (j, i) of `from`; `size` bytes each. Columns are next to each
 * other in both; strides are those of the rows, in bytes. */
static inline void yk__transpose(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows,
                                 int64_t cols, size_t size)
{
    if (size == 4 && (rows <= 4 || cols <= 4)) {
        yk__transpose_narrow(to, to_stride, from, from_stride, rows, cols);
        return;
    }
    switch (size) {
    case 1: YK__TRANSPOSE_EDGES_(yk__element8, 0) break;
    case 2: YK__TRANSPOSE_EDGES_(yk__element16, 0) break;
    case 4: YK__TRANSPOSE_SQUARES_(float, yk__element32, 8, yk__transpose_f32) break;
    default: YK__TRANSPOSE_SQUARES_(double, yk__element64, 4, yk__transpose_f64) break;
    }
}

#endif
