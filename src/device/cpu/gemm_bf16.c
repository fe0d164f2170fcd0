/*
 * gemm_bf16.c - products of bf16 matrices by AVX512-BF16: an instruction adds to 16 sums in f32 the products of two
 * pairs each. Layer: device/cpu.
 *
 * Pairs are neighbours in k. A panel of B has 32 columns, pair by pair: for pair p the 32 columns' pairs one after the
 * other. A tile of A has up to 14 rows likewise. A missing last k is a pair with a zero, missing columns are zeros. B
 * is packed whole, a block of k at a time; blocks of A's rows are packed by the threads that use them. Sums are f32 and
 * run over k in order, so they do not depend on how the work is shared; between blocks of k they wait in memory. A
 * result is rounded once. The instructions take subnormal numbers for zeros.
 */
#include <string.h>

#include "device/cpu/gemm_bf16.h"
#include "device/cpu/gemm_micro.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#define BF16 __attribute__((target("avx512bf16")))

enum {
    ROWS = 14,
    LANES = 16,
    PANEL = 2 * LANES,
    BLOCK_ROWS = 8 * ROWS,
    DEPTH = 4096,          /* k of one block */
    SERIAL_WORK = 1 << 19, /* multiply-adds below which a product is not worth a second thread */
    FEW_ROWS = 8           /* up to which dot products are faster than packing B */
};

struct product {
    int64_t m, n, k;
    const uint16_t *a, *b, *bias; /* bias: n numbers `bias_step` apart, or NULL */
    uint16_t *c;
    int64_t a_row, a_k, b_k, b_col, c_row, c_col, bias_step;
    bool accumulate;
};

struct blocked {
    struct product p;
    uint32_t *packed; /* of B: panels of this block of k */
    uint32_t *scratch;
    float *sums; /* of tiles, ROWS x PANEL each, where k has several blocks; else NULL */
    int64_t scratch_words;
    int64_t k0, k1, pairs; /* this block of k; the pairs of a whole block */
    int64_t rows, tiles, panels, groups;
    bool fused; /* one block of rows: a panel is packed where it is used, and stays in the cache */
};

bool yk__gemm_bf16_there(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

static inline float widen(uint16_t x)
{
    union {
        uint32_t bits;
        float value;
    } u = {(uint32_t)x << 16};
    return u.value;
}

BF16 static inline __mmask16 first_lanes(int64_t count)
{
    return (__mmask16)(count >= LANES ? 0xFFFF : (1u << count) - 1);
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* Pairs of a k x cols matrix, element (l, j) at src[l * ks + j * cs], in rows of `width` >= cols pairs; missing columns
 * are zeros. */
BF16 static void pack(uint32_t *to, const uint16_t *src, int64_t k, int64_t ks, int64_t cols, int64_t cs, int64_t width)
{
    int64_t pairs = k / 2, done = 0;
    if (ks == 1 && cs % 2 == 0 && (uintptr_t)src % 4 == 0) {
        /* A pair is 32 bits that lie in order, whatever they mean. */
        yk__gemm_pack_f32((float *)to, (const float *)(const void *)src, pairs, 1, cols, cs / 2, width);
        done = pairs;
    } else if (cs == 1) {
        const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                             37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
        for (; done < pairs; done++) {
            const uint16_t *row = src + 2 * done * ks;
            for (int64_t j = 0; j < width; j += LANES) {
                __mmask16 there = j < cols ? first_lanes(cols - j) : 0;
                __m512i first = _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(there, row + j));
                __m512i second = _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(there, row + ks + j));
                _mm512_mask_storeu_epi32(to + done * width + j, first_lanes(width - j),
                                         _mm512_permutex2var_epi16(first, low, second));
            }
        }
    }
    for (; done < (k + 1) / 2; done++) {
        for (int64_t j = 0; j < width; j++) {
            const uint16_t *pair = src + 2 * done * ks + j * cs;
            uint32_t first = j < cols ? pair[0] : 0, second = j < cols && 2 * done + 1 < k ? pair[ks] : 0;
            to[done * width + j] = first | second << 16;
        }
    }
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* A finished row of 16 columns: bias, what C holds, rounding. */
BF16 static inline void store(const struct product *p, __m512 sum, uint16_t *c, int64_t column, int64_t cols)
{
    __mmask16 there = first_lanes(cols);
    if (p->bias && p->bias_step == 1) {
        __m256i bias = _mm256_maskz_loadu_epi16(there, p->bias + column);
        sum = _mm512_add_ps(sum, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bias), 16)));
    } else if (p->bias) {
        float bias[LANES] = {0};
        for (int64_t j = 0; j < cols && j < LANES; j++)
            bias[j] = widen(p->bias[(column + j) * p->bias_step]);
        sum = _mm512_add_ps(sum, _mm512_loadu_ps(bias));
    }
    if (p->c_col == 1) {
        if (p->accumulate) {
            __m512i before = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, c)), 16);
            sum = _mm512_add_ps(sum, _mm512_castsi512_ps(before));
        }
        _mm256_mask_storeu_epi16(c, there, (__m256i)_mm512_cvtneps_pbh(sum));
        return;
    }
    uint16_t rounded[LANES];
    if (p->accumulate) {
        float before[LANES] = {0};
        for (int64_t j = 0; j < cols && j < LANES; j++)
            before[j] = widen(c[j * p->c_col]);
        sum = _mm512_add_ps(sum, _mm512_loadu_ps(before));
    }
    _mm256_storeu_si256((__m256i *)rounded, (__m256i)_mm512_cvtneps_pbh(sum));
    for (int64_t j = 0; j < cols && j < LANES; j++)
        c[j * p->c_col] = rounded[j];
}

/* `sums` (may be NULL) holds what earlier blocks of k added where `later`, and gets it where this is not the `last`. */
struct tile {
    const uint32_t *a, *b;
    int64_t pairs, row, column, cols;
    float *sums;
    bool later, last;
};

BF16 static inline __attribute__((always_inline)) void run_tile(const struct product *p, const struct tile *t,
                                                                const int rows, const int vectors)
{
    __m512 sum[ROWS][2];
    YK__UNROLL
    for (int i = 0; i < rows; i++)
        YK__UNROLL
    for (int j = 0; j < vectors; j++)
        sum[i][j] = t->later ? _mm512_loadu_ps(t->sums + i * PANEL + j * LANES) : _mm512_setzero_ps();
    const uint32_t *a = t->a, *b = t->b;
    for (int64_t l = 0; l < t->pairs; l++, a += rows, b += vectors * LANES) {
        __m512bh right[2];
        YK__UNROLL
        for (int j = 0; j < vectors; j++)
            right[j] = (__m512bh)_mm512_loadu_si512(b + j * LANES);
        YK__UNROLL
        for (int i = 0; i < rows; i++) {
            __m512bh left = (__m512bh)_mm512_set1_epi32((int)a[i]);
            YK__UNROLL
            for (int j = 0; j < vectors; j++)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], left, right[j]);
        }
    }
    YK__UNROLL
    for (int i = 0; i < rows; i++)
        YK__UNROLL
    for (int j = 0; j < vectors; j++) {
        if (t->last)
            store(p, sum[i][j], p->c + (t->row + i) * p->c_row + (t->column + j * LANES) * p->c_col,
                  t->column + j * LANES, t->cols - j * LANES);
        else
            _mm512_storeu_ps(t->sums + i * PANEL + j * LANES, sum[i][j]);
    }
}

#define EACH_ROWS(X, vectors)                                                                                          \
    X(1, vectors)                                                                                                      \
    X(2, vectors)                                                                                                      \
    X(3, vectors)                                                                                                      \
    X(4, vectors)                                                                                                      \
    X(5, vectors)                                                                                                      \
    X(6, vectors)                                                                                                      \
    X(7, vectors) X(8, vectors) X(9, vectors) X(10, vectors) X(11, vectors) X(12, vectors) X(13, vectors) X(14, vectors)
#define DEFINE(rows, vectors)                                                                                          \
    BF16 static void tile_##rows##_##vectors(const struct product *p, const struct tile *t)                            \
    {                                                                                                                  \
        run_tile(p, t, rows, vectors);                                                                                 \
    }
EACH_ROWS(DEFINE, 1)
EACH_ROWS(DEFINE, 2)
#define NAME(rows, vectors) tile_##rows##_##vectors,
static void (*const tiles_of[2][ROWS])(const struct product *, const struct tile *) = {{EACH_ROWS(NAME, 1)},
                                                                                       {EACH_ROWS(NAME, 2)}};

/* ---- the blocked product ----------------------------------------------------------------------------------------- */

static int64_t columns_of(const struct product *p, int64_t panel)
{
    return p->n - panel * PANEL < PANEL ? p->n - panel * PANEL : PANEL;
}

static int64_t width_of(int64_t cols)
{
    return yk__ceil_div(cols, LANES) * LANES;
}

static void pack_panel(const struct blocked *g, uint32_t *to, int64_t panel)
{
    const struct product *p = &g->p;
    int64_t cols = columns_of(p, panel);
    pack(to, p->b + g->k0 * p->b_k + panel * PANEL * p->b_col, g->k1 - g->k0, p->b_k, cols, p->b_col, width_of(cols));
}

static void pack_panels(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct blocked *g = arg;
    for (int64_t panel = begin; panel < end; panel++)
        pack_panel(g, g->packed + panel * PANEL * g->pairs, panel);
}

/* A block of rows times a group of panels. */
static void block_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct blocked *g = arg;
    const struct product *p = &g->p;
    uint32_t *left = g->scratch + thread * g->scratch_words;
    int64_t k = g->k1 - g->k0, pairs = (k + 1) / 2;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t group = piece % g->groups, m0 = piece / g->groups * g->rows;
        int64_t m1 = m0 + g->rows < p->m ? m0 + g->rows : p->m;
        int64_t tiles, low = yk__gemm_cut(m1 - m0, ROWS, &tiles), high = tiles ? (m1 - m0) % tiles : 0;
        int64_t row = 0;
        for (int64_t i = 0; i < tiles; i++) {
            int64_t height = low + (i < high);
            pack(left + row * pairs, p->a + (m0 + row) * p->a_row + g->k0 * p->a_k, k, p->a_k, height, p->a_row,
                 height);
            row += height;
        }
        int64_t first = group * g->panels / g->groups, last = (group + 1) * g->panels / g->groups;
        for (int64_t panel = first; panel < last; panel++) {
            uint32_t *right = g->fused ? left + g->rows * g->pairs : g->packed + panel * PANEL * g->pairs;
            if (g->fused)
                pack_panel(g, right, panel);
            struct tile t = {.b = right,
                             .pairs = pairs,
                             .column = panel * PANEL,
                             .cols = columns_of(p, panel),
                             .later = g->k0 > 0,
                             .last = g->k1 == p->k};
            row = 0;
            for (int64_t i = 0; i < tiles; i++) {
                int64_t height = low + (i < high);
                t.a = left + row * pairs;
                t.row = m0 + row;
                if (g->sums)
                    t.sums = g->sums + ((piece / g->groups * g->tiles + i) * g->panels + panel) * ROWS * PANEL;
                tiles_of[width_of(t.cols) / LANES - 1][height - 1](p, &t);
                row += height;
            }
        }
    }
}

static yk_status run_blocked(int device, const struct product *p)
{
    struct blocked g = {.p = *p, .panels = yk__ceil_div(p->n, PANEL)};
    int64_t depths = p->k ? yk__ceil_div(p->k, DEPTH) : 1, depth = yk__ceil_div(p->k, depths);
    depth += depth % 2;
    g.pairs = depth / 2;
    int64_t blocks = yk__ceil_div(p->m, BLOCK_ROWS);
    g.rows = yk__ceil_div(p->m, blocks);
    blocks = yk__ceil_div(p->m, g.rows);
    g.tiles = yk__ceil_div(g.rows, ROWS);
    /* A piece packs its rows of A, so it should have a few panels to use them on. */
    g.groups = blocks >= 8 ? 1 : yk__ceil_div(8, blocks);
    g.groups = g.groups < g.panels / 4 ? g.groups : g.panels / 4;
    g.groups = g.groups < 1 ? 1 : g.groups;
    bool serial = p->m * p->n * p->k < SERIAL_WORK;
    int64_t threads = serial ? 1 : yk__cpu_threads(device);
    g.fused = blocks == 1;
    g.scratch_words = yk__ceil_div((g.rows + (g.fused ? PANEL : 0)) * g.pairs, LANES) * LANES;
    int64_t packed = g.fused ? 0 : g.panels * PANEL * g.pairs;
    int64_t sums = depth < p->k ? blocks * g.tiles * g.panels * ROWS * PANEL : 0;
    yk__storage *handle;
    g.packed = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                 (size_t)(packed + threads * g.scratch_words + sums) * sizeof(uint32_t), &handle);
    if (!g.packed)
        return yk__error_code();
    g.scratch = g.packed + packed;
    g.sums = sums ? (float *)(void *)(g.scratch + threads * g.scratch_words) : NULL;
    do {
        g.k1 = g.k0 + depth < p->k ? g.k0 + depth : p->k;
        if (serial) {
            if (!g.fused)
                pack_panels(&g, 0, g.panels, 0);
            block_piece(&g, 0, blocks * g.groups, 0);
        } else {
            if (!g.fused)
                yk__cpu_parallel(device, g.panels, 1, pack_panels, &g);
            yk__cpu_parallel(device, blocks * g.groups, 1, block_piece, &g);
        }
        g.k0 = g.k1;
    } while (g.k0 < p->k);
    yk__storage_release(handle);
    return YK_OK;
}

/* ---- few rows ---------------------------------------------------------------------------------------------------- */

/* Up to four rows of A with four columns of B, all with k in order in memory. */
BF16 static inline __attribute__((always_inline)) void dots(const struct product *p, int64_t row, int64_t column,
                                                            const int rows)
{
    __m512 sum[4][4];
    const uint16_t *a = p->a + row * p->a_row, *b[4];
    int64_t cols = p->n - column < 4 ? p->n - column : 4;
    YK__UNROLL
    for (int j = 0; j < 4; j++) {
        b[j] = p->b + (column + (j < cols ? j : cols - 1)) * p->b_col; /* a missing column repeats the last one */
        YK__UNROLL
        for (int i = 0; i < rows; i++)
            sum[i][j] = _mm512_setzero_ps();
    }
    for (int64_t l = 0; l < p->k; l += 2 * LANES) {
        __mmask32 there = p->k - l >= 2 * LANES ? 0xFFFFFFFF : (__mmask32)((1u << (p->k - l)) - 1);
        __m512bh left[4];
        YK__UNROLL
        for (int i = 0; i < rows; i++)
            left[i] = (__m512bh)_mm512_maskz_loadu_epi16(there, a + i * p->a_row + l);
        YK__UNROLL
        for (int j = 0; j < 4; j++) {
            __m512bh right = (__m512bh)_mm512_maskz_loadu_epi16(there, b[j] + l);
            YK__UNROLL
            for (int i = 0; i < rows; i++)
                sum[i][j] = _mm512_dpbf16_ps(sum[i][j], left[i], right);
        }
    }
    YK__UNROLL
    for (int i = 0; i < rows; i++) {
        float total[LANES] = {0};
        YK__UNROLL
        for (int j = 0; j < 4; j++)
            total[j] = _mm512_reduce_add_ps(sum[i][j]);
        store(p, _mm512_loadu_ps(total), p->c + (row + i) * p->c_row + column * p->c_col, column, cols);
    }
}

struct few {
    const struct product *p;
};

BF16 static void dot_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct product *p = ((const struct few *)arg)->p;
    for (int64_t four = begin; four < end; four++) {
        int64_t row = 0;
        for (; row + 4 <= p->m; row += 4)
            dots(p, row, 4 * four, 4);
        if (p->m - row == 3)
            dots(p, row, 4 * four, 3);
        else if (p->m - row == 2)
            dots(p, row, 4 * four, 2);
        else if (p->m - row == 1)
            dots(p, row, 4 * four, 1);
    }
}

/* ---- the slot ---------------------------------------------------------------------------------------------------- */

static yk_status run_product(int device, struct product *p)
{
    /* A result in column order is the transposed product in row order. */
    if (p->c_col != 1 && p->c_row == 1 && p->n > 1 && p->m > 1 && !p->bias)
        *p = (struct product){.m = p->n,
                              .n = p->m,
                              .k = p->k,
                              .a = p->b,
                              .b = p->a,
                              .c = p->c,
                              .a_row = p->b_col,
                              .a_k = p->b_k,
                              .b_k = p->a_k,
                              .b_col = p->a_row,
                              .c_row = p->c_col,
                              .c_col = 1,
                              .accumulate = p->accumulate};
    if (p->m <= FEW_ROWS && p->a_k == 1 && p->b_k == 1) {
        struct few few = {p};
        int64_t fours = yk__ceil_div(p->n, 4);
        if (p->m * p->n * p->k < SERIAL_WORK)
            dot_piece(&few, 0, fours, 0);
        else
            yk__cpu_parallel(device, fours, 8, dot_piece, &few);
        return YK_OK;
    }
    return run_blocked(device, p);
}

struct batch {
    int device;
    const struct product *first;
    int64_t a_step, b_step, c_step;
    yk_error failed; /* of the pieces that failed, the first */
    atomic_flag taken;
};

static void batch_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    struct batch *s = arg;
    for (int64_t i = begin; i < end; i++) {
        struct product p = *s->first;
        p.a += i * s->a_step;
        p.b += i * s->b_step;
        p.c += i * s->c_step;
        if (run_product(s->device, &p) && !atomic_flag_test_and_set(&s->taken))
            yk__error_take(&s->failed);
    }
}

yk_status yk__gemm_bf16(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias,
                        bool accumulate)
{
    struct product p = {.m = out->shape[1],
                        .n = out->shape[2],
                        .k = a->shape[2],
                        .a = a->data,
                        .b = b->data,
                        .c = out->data,
                        .bias = bias ? bias->data : NULL,
                        .bias_step = bias ? bias->stride[0] : 0,
                        .a_row = a->stride[1],
                        .a_k = a->stride[2],
                        .b_k = b->stride[1],
                        .b_col = b->stride[2],
                        .c_row = out->stride[1],
                        .c_col = out->stride[2],
                        .accumulate = accumulate};
    int64_t batch = out->shape[0], work = p.m * p.n * p.k;
    if (!p.m || !p.n || !batch)
        return YK_OK;
    struct batch s = {.device = device,
                      .first = &p,
                      .a_step = a->stride[0],
                      .b_step = b->stride[0],
                      .c_step = out->stride[0],
                      .taken = ATOMIC_FLAG_INIT};
    if (batch >= 8 || work < SERIAL_WORK) {
        /* Each matrix on one thread. */
        int64_t grain = work ? SERIAL_WORK / work : SERIAL_WORK;
        yk__cpu_parallel(device, batch, grain < 1 ? 1 : grain, batch_piece, &s);
    } else {
        batch_piece(&s, 0, batch, 0);
    }
    if (!s.failed.code)
        return YK_OK;
    yk__error_put(&s.failed);
    return s.failed.code;
}

#else

bool yk__gemm_bf16_there(void)
{
    return false;
}

yk_status yk__gemm_bf16(int device, const yk__view *out, const yk__view *a, const yk__view *b, const yk__view *bias,
                        bool accumulate)
{
    (void)out, (void)a, (void)b, (void)bias, (void)accumulate;
    return yk__slot_missing((yk_device){YK_CPU, (int16_t)device}, "gemm");
}

#endif
