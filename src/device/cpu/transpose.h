/*
 * transpose.h - matrices with rows and columns exchanged, through vector registers. Layer: device/cpu.
 *
 * Elements of 4 and of 8 bytes move in squares of 8 x 8 and 4 x 4; the edges and other sizes one by one. Callers give
 * pieces whose rows, on both sides, stay in the first-level cache.
 */
#ifndef YOKE_DEVICE_CPU_TRANSPOSE_H
#define YOKE_DEVICE_CPU_TRANSPOSE_H

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

/* Element (i, j) of `to`, rows x cols, becomes element (j, i) of `from`; `size` bytes each. Columns are next to each
 * other in both; strides are those of the rows, in bytes. */
static inline void yk__transpose(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows,
                                 int64_t cols, size_t size)
{
    switch (size) {
    case 1: YK__TRANSPOSE_EDGES_(yk__element8, 0) break;
    case 2: YK__TRANSPOSE_EDGES_(yk__element16, 0) break;
    case 4: YK__TRANSPOSE_SQUARES_(float, yk__element32, 8, yk__transpose_f32) break;
    default: YK__TRANSPOSE_SQUARES_(double, yk__element64, 4, yk__transpose_f64) break;
    }
}

#endif
