/*
 * gemm_micro_bf16.h - the register tile under products and convolutions of bf16, by AVX512-BF16. Layer: device/cpu.
 *
 * As gemm_micro.h's tile, in pairs: an instruction adds to 16 sums in f32 the products of two neighbours in k each. A's
 * rows are read where they are, their k next to each other; B is packed, and so are A's columns. A packed matrix has,
 * for each pair of k, `width` pairs of its columns; of an odd k the last pair has a zero. Sums run over the steps in
 * order and over k in order; a result is rounded once. The instructions take subnormal numbers for zeros. Only where
 * yk__gemm_bf16_there.
 */
#ifndef YOKE_DEVICE_CPU_GEMM_GEMM_MICRO_BF16_H
#define YOKE_DEVICE_CPU_GEMM_GEMM_MICRO_BF16_H

#include "device/cpu/gemm/gemm_micro.h"

#if defined(__AVX512F__)

enum { YK__BF16_LANES = 16, YK__BF16_PANEL = YK__BF16_LANES * YK__GEMM_VECTORS };

typedef struct yk__bf16_tile {
    const uint16_t *a, *b;
    const yk__gemm_step *steps; /* in elements: twice the pairs of what is packed */
    int64_t n_steps, k;
    int64_t lda, ldb; /* elements from row to row of A, pairs from one pair of k to the next of what is packed */
    uint16_t *c;
    int64_t ldc, csc; /* C: element (i, j) at i * ldc + j * csc */
    int64_t cols;     /* columns that exist, at most the kernel's */
    const uint16_t *bias;
    bool accumulate; /* add to what C holds */
    /* Sums that wait in memory, rows of YK__BF16_PANEL: read first where this is not the `first` part of k, and written
     * in place of C, bias and all, where it is not the `last`. NULL where it is both. */
    float *sums;
    bool first, last;
    /* The memory that is packed next, fetched from far away meanwhile, a cache line every other pair: rows of 1 <<
     * fetch_shift lines, `fetch_step` bytes apart. NULL for none. */
    const char *fetch;
    int64_t fetch_step;
    int fetch_shift;
} yk__bf16_tile;

typedef void (*yk__bf16_kernel)(const yk__bf16_tile *tile);
/* The kernels by mode, number of vectors - 1, number of rows - 1. */
#define yk__gemm_kernels_bf16 YK__ISA_NAME(yk__gemm_kernels_bf16)
extern const yk__bf16_kernel yk__gemm_kernels_bf16[2][YK__GEMM_VECTORS][YK__GEMM_ROWS];

/* Writes the sums of a tile, rows of YK__BF16_PANEL, to C, whatever its strides, with bias and what it holds. */
#define yk__gemm_finish_bf16 YK__ISA_NAME(yk__gemm_finish_bf16)
void yk__gemm_finish_bf16(const yk__bf16_tile *t, const float *sums, int rows, int vectors);

/* Packs a k x cols matrix, element (l, j) at src[l * ks + j * cs]: for each pair of k `width` pairs, of which those
 * without a column are zeros. Width is a multiple of YK__BF16_LANES. */
#define yk__gemm_pack_bf16 YK__ISA_NAME(yk__gemm_pack_bf16)
void yk__gemm_pack_bf16(uint16_t *to, const uint16_t *src, int64_t k, int64_t ks, int64_t cols, int64_t cs,
                        int64_t width);

/* The columns of a panel, and its width. */
static inline int64_t yk__bf16_columns(int64_t n, int64_t panel)
{
    int64_t rest = n - panel * YK__BF16_PANEL;
    return rest < YK__BF16_PANEL ? rest : YK__BF16_PANEL;
}
static inline int64_t yk__bf16_width(int64_t cols)
{
    return (cols + YK__BF16_LANES - 1) / YK__BF16_LANES * YK__BF16_LANES;
}

#endif
#endif
