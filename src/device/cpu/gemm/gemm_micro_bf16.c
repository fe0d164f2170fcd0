/*
 * gemm_micro_bf16.c - the register tiles and the packing of gemm_micro_bf16.h. Layer: device/cpu.
 */
#include <string.h>

#include "device/cpu/gemm/gemm_micro_bf16.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#define BF16 __attribute__((target("avx512bf16")))

enum { ROWS = YK__GEMM_ROWS, LANES = YK__BF16_LANES, PANEL = YK__BF16_PANEL };

typedef uint32_t pair __attribute__((aligned(2), may_alias));

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static inline __mmask16 first_lanes(int64_t count)
{
    return (__mmask16)(count >= LANES ? 0xFFFF : count <= 0 ? 0 : (1u << count) - 1);
}

static inline __mmask32 first_halves(int64_t count)
{
    return count >= 2 * LANES ? 0xFFFFFFFF : count <= 0 ? 0 : (__mmask32)((1u << count) - 1);
}

/* 16 x 16 pairs with rows and columns exchanged: pairs, quads, then the quarters of a register. */
static inline __attribute__((always_inline)) void transpose(__m512i r[LANES])
{
    __m512i t[LANES];
    YK__UNROLL
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    YK__UNROLL
    for (int i = 0; i < LANES; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    YK__UNROLL
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
    }
    YK__UNROLL
    for (int i = 0; i < 8; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
    }
}

/* Packs columns whose k are next to each other. Their lines are fetched some time before they are used, further along k
 * or, where columns are short, of those to come: there are too many streams for the processor to foresee. */
static void pack_transposed(uint16_t *to, const uint16_t *src, int64_t k, int64_t cols, int64_t cs, int64_t width)
{
    enum { AHEAD = 4 * 2 * LANES, COLUMNS_AHEAD = 4 * LANES };
    for (int64_t l = 0; l < k; l += 2 * LANES, to += 2 * LANES * width) {
        __mmask32 there = first_halves(k - l);
        int64_t pairs = (k - l + 1) / 2;
        int64_t ahead = k - l >= 2 * LANES + AHEAD ? AHEAD : cs <= AHEAD ? COLUMNS_AHEAD * cs : 0;
        for (int64_t j = 0; j < width; j += LANES) {
            __m512i r[LANES];
            const uint16_t *from = src + j * cs + l;
            if (cols - j >= LANES && k - l >= 2 * LANES) {
                YK__UNROLL
                for (int i = 0; i < LANES; i++) {
                    r[i] = _mm512_loadu_si512(from + i * cs);
                    __builtin_prefetch(from + i * cs + ahead);
                }
            } else {
                YK__UNROLL
                for (int i = 0; i < LANES; i++)
                    r[i] = j + i < cols ? _mm512_maskz_loadu_epi16(there, from + i * cs) : _mm512_setzero_si512();
            }
            transpose(r);
            if (pairs >= LANES) {
                YK__UNROLL
                for (int i = 0; i < LANES; i++)
                    _mm512_storeu_si512(to + 2 * (i * width + j), r[i]);
                continue;
            }
            YK__UNROLL
            for (int i = 0; i < LANES; i++)
                if (i < pairs)
                    _mm512_storeu_si512(to + 2 * (i * width + j), r[i]);
        }
    }
}

/* Packs rows whose columns are next to each other. */
static void pack_interleaved(uint16_t *to, const uint16_t *src, int64_t k, int64_t ks, int64_t cols, int64_t width)
{
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(LANES));
    for (int64_t l = 0; l < k; l += 2, to += 2 * width) {
        const uint16_t *row = src + l * ks;
        for (int64_t j = 0; j < width; j += 2 * LANES) {
            __mmask32 there = first_halves(cols - j), second = l + 1 < k ? there : 0;
            __m512i a = _mm512_maskz_loadu_epi16(there, row + j), b = _mm512_maskz_loadu_epi16(second, row + ks + j);
            _mm512_storeu_si512(to + 2 * j, _mm512_permutex2var_epi16(a, low, b));
            if (j + LANES < width)
                _mm512_storeu_si512(to + 2 * (j + LANES), _mm512_permutex2var_epi16(a, high, b));
        }
    }
}

void yk__gemm_pack_bf16(uint16_t *to, const uint16_t *src, int64_t k, int64_t ks, int64_t cols, int64_t cs,
                        int64_t width)
{
    if (ks == 1) {
        pack_transposed(to, src, k, cols, cs, width);
        return;
    }
    if (cs == 1) {
        pack_interleaved(to, src, k, ks, cols, width);
        return;
    }
    for (int64_t l = 0; l < k; l += 2)
        for (int64_t j = 0; j < width; j++, to += 2) {
            to[0] = j < cols ? src[l * ks + j * cs] : 0;
            to[1] = j < cols && l + 1 < k ? src[(l + 1) * ks + j * cs] : 0;
        }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

BF16 static inline __m512 widen(__mmask16 there, const uint16_t *from)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, from)), 16));
}

BF16 __attribute__((noinline)) void yk__gemm_finish_bf16(const yk__bf16_tile *t, const float *sums, int rows,
                                                         int vectors)
{
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < vectors; v++) {
            int64_t column = v * LANES, cols = t->cols - column;
            __mmask16 there = first_lanes(cols);
            __m512 sum = _mm512_loadu_ps(sums + i * PANEL + column);
            uint16_t *c = t->c + i * t->ldc + column * t->csc, own[LANES] = {0};
            bool plain = t->csc == 1;
            if (t->bias)
                sum = _mm512_add_ps(sum, widen(there, t->bias + column));
            if (t->accumulate) {
                for (int64_t j = 0; !plain && j < cols && j < LANES; j++)
                    own[j] = c[j * t->csc];
                sum = _mm512_add_ps(sum, widen(there, plain ? c : own));
            }
            __m256i rounded = (__m256i)_mm512_cvtneps_pbh(sum);
            _mm256_mask_storeu_epi16(plain ? c : own, there, rounded);
            for (int64_t j = 0; !plain && j < cols && j < LANES; j++)
                c[j * t->csc] = own[j];
        }
}

BF16 static inline __attribute__((always_inline)) void multiply(const yk__bf16_tile *t, const int rows,
                                                                const int vectors, const bool columns)
{
    __m512 sum[ROWS][2];
    YK__UNROLL
    for (int i = 0; i < rows; i++)
        YK__UNROLL
    for (int j = 0; j < vectors; j++)
        sum[i][j] = t->first ? _mm512_setzero_ps() : _mm512_loadu_ps(t->sums + i * PANEL + j * LANES);
    const int64_t lda = t->lda, ldb = 2 * t->ldb, pairs = columns ? (t->k + 1) / 2 : t->k / 2;
    for (int64_t s = 0; s < t->n_steps; s++) {
        const uint16_t *a = t->a + t->steps[s].a, *b = t->b + t->steps[s].b;
        /* Few enough pointers to stay in registers: a row is a base and up to two times lda. */
        const uint16_t *r0 = a, *r3 = a + 3 * lda, *r6 = a + 6 * lda, *r9 = a + 9 * lda, *r12 = a + 12 * lda;
        YK__UNROLL_K
        for (int64_t l = 0; l < pairs; l++) {
            if (t->fetch && l % 2 == 0)
                _mm_prefetch(t->fetch + (l / 2 >> t->fetch_shift) * t->fetch_step +
                                 (l / 2 & ((1 << t->fetch_shift) - 1)) * 64,
                             _MM_HINT_T1);
            __m512bh right[2];
            YK__UNROLL
            for (int j = 0; j < vectors; j++)
                right[j] = (__m512bh)_mm512_loadu_si512(b + 2 * j * LANES);
            YK__UNROLL
            for (int i = 0; i < rows; i++) {
                const uint16_t *base = i < 3 ? r0 : i < 6 ? r3 : i < 9 ? r6 : i < 12 ? r9 : r12;
                const uint16_t *from = columns ? a + 2 * i : base + i % 3 * lda + 2 * l;
                __m512bh left = (__m512bh)_mm512_set1_epi32((int)*(const pair *)(const void *)from);
                YK__UNROLL
                for (int j = 0; j < vectors; j++)
                    sum[i][j] = _mm512_dpbf16_ps(sum[i][j], left, right[j]);
            }
            b += ldb;
            if (columns)
                a += 2 * lda;
        }
        if (!columns && t->k % 2) { /* nothing is read after the last k */
            YK__UNROLL
            for (int i = 0; i < rows; i++) {
                const uint16_t *base = i < 3 ? r0 : i < 6 ? r3 : i < 9 ? r6 : i < 12 ? r9 : r12;
                __m512bh left = (__m512bh)_mm512_set1_epi32(base[i % 3 * lda + t->k - 1]);
                YK__UNROLL
                for (int j = 0; j < vectors; j++)
                    sum[i][j] = _mm512_dpbf16_ps(sum[i][j], left, (__m512bh)_mm512_loadu_si512(b + 2 * j * LANES));
            }
        }
    }
    if (t->last && t->csc == 1 && t->cols == vectors * LANES && !t->bias && !t->accumulate) {
        YK__UNROLL
        for (int i = 0; i < rows; i++) {
            if (vectors == 2)
                _mm512_storeu_si512(t->c + i * t->ldc, (__m512i)_mm512_cvtne2ps_pbh(sum[i][1], sum[i][0]));
            else
                _mm256_storeu_si256((__m256i *)(void *)(t->c + i * t->ldc), (__m256i)_mm512_cvtneps_pbh(sum[i][0]));
        }
        return;
    }
    float own[ROWS * PANEL], *to = t->last ? own : t->sums;
    YK__UNROLL
    for (int i = 0; i < rows; i++)
        YK__UNROLL
    for (int j = 0; j < vectors; j++)
        _mm512_storeu_ps(to + i * PANEL + j * LANES, sum[i][j]);
    if (t->last)
        yk__gemm_finish_bf16(t, own, rows, vectors);
}

#define KERNEL(rows, vectors)                                                                                          \
    BF16 static void rows_##rows##x##vectors(const yk__bf16_tile *t)                                                   \
    {                                                                                                                  \
        multiply(t, rows, vectors, false);                                                                             \
    }                                                                                                                  \
    BF16 static void columns_##rows##x##vectors(const yk__bf16_tile *t)                                                \
    {                                                                                                                  \
        multiply(t, rows, vectors, true);                                                                              \
    }
#define ENTRY_ROWS(rows, vectors)    rows_##rows##x##vectors,
#define ENTRY_COLUMNS(rows, vectors) columns_##rows##x##vectors,
YK__GEMM_EACH_ROWS(KERNEL, 1)
YK__GEMM_EACH_ROWS(KERNEL, 2)
const yk__bf16_kernel yk__gemm_kernels_bf16[2][YK__GEMM_VECTORS][YK__GEMM_ROWS] = {
    {{YK__GEMM_EACH_ROWS(ENTRY_ROWS, 1)}, {YK__GEMM_EACH_ROWS(ENTRY_ROWS, 2)}},
    {{YK__GEMM_EACH_ROWS(ENTRY_COLUMNS, 1)}, {YK__GEMM_EACH_ROWS(ENTRY_COLUMNS, 2)}},
};

#endif
