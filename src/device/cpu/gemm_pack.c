/*
 * gemm_pack.c - packing of matrix panels for the register tiles. Layer: device/cpu.
 */
#include <string.h>

#include "device/cpu/gemm_micro.h"

#define TYPED(name) TYPED_(name)

typedef float block_f32 __attribute__((vector_size(32), aligned(4), may_alias));
typedef double block_f64 __attribute__((vector_size(32), aligned(8), may_alias));

/* 8 x 8: pairs, quads, then halves are exchanged. */
static inline void transpose_f32(float *to, int64_t to_stride, const float *src, int64_t src_stride)
{
    block_f32 a[8], b[8];
    for (int i = 0; i < 8; i++)
        a[i] = *(const block_f32 *)(src + i * src_stride);
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
        *(block_f32 *)(to + i * to_stride) = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(block_f32 *)(to + (i + 4) * to_stride) = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

static inline void transpose_f64(double *to, int64_t to_stride, const double *src, int64_t src_stride)
{
    block_f64 a[4], b[4];
    for (int i = 0; i < 4; i++)
        a[i] = *(const block_f64 *)(src + i * src_stride);
    for (int i = 0; i < 4; i += 2) {
        b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 4, 2, 6);
        b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 5, 3, 7);
    }
    for (int i = 0; i < 2; i++) {
        *(block_f64 *)(to + i * to_stride) = __builtin_shufflevector(b[i], b[i + 2], 0, 1, 4, 5);
        *(block_f64 *)(to + (i + 2) * to_stride) = __builtin_shufflevector(b[i], b[i + 2], 2, 3, 6, 7);
    }
}

#define T            float
#define SIDE         8
#define TYPED_(name) name##_f32
#include "device/cpu/gemm_pack_body.h"
#undef T
#undef SIDE
#undef TYPED_

#define T            double
#define SIDE         4
#define TYPED_(name) name##_f64
#include "device/cpu/gemm_pack_body.h"
