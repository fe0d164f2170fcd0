/*
 * gemm_bf16.c - products of bf16 matrices by AVX512-BF16. Layer: device/cpu.
 *
 * Few rows against columns that lie in memory in order of k are dot products. All others run in the tiles of
 * gemm_micro_bf16.h: B is packed in panels, a block of k at a time, and rows of A are taken in blocks that stay in L2.
 * Where one block is all of A, a panel is packed where it is used. Sums are f32 and run over k in order, so they depend
 * neither on the blocks nor on how the work is shared; between blocks of k they wait in memory.
 */
#include <string.h>

#include "device/cpu/gemm/gemm_micro_bf16.h"
#include "device/cpu/gemm/gemm_product.h"

#if defined(__AVX512F__)
#include <immintrin.h>

#define BF16 __attribute__((target("avx512bf16")))

enum {
    ROWS = YK__GEMM_ROWS,
    LANES = YK__BF16_LANES,
    PANEL = YK__BF16_PANEL,
    BLOCK_ROWS = 8 * ROWS,
    DEPTH = 4096,          /* k of one block */
    FUSED_DEPTH = 1024,    /* k of a panel that is packed where it is used: 64 KiB, half of them read from far away */
    SERIAL_WORK = 1 << 19, /* multiply-adds below which a product is not worth a second thread */
    FEW_ROWS = 8           /* up to which dot products are faster than packing B */
};

struct blocked {
    yk__gemm_product p;
    uint16_t *packed;  /* of B: panels of this block of k */
    uint16_t *scratch; /* of each thread: a block of A where that is not used in place, and where fused a panel */
    float *sums;       /* of tiles, ROWS x PANEL each, where k has several blocks; else NULL */
    int64_t scratch_size, left_size;
    int64_t k0, k1, depth; /* this block of k; the largest */
    int64_t rows, tiles, panels, groups;
    bool fused; /* one block of rows: a panel is packed where it is used, and stays in the cache */
    bool copy;  /* A's rows are copied: they lie so far apart that they would share a few cache sets */
};

bool yk__gemm_bf16_there(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

/* ---- the blocked product ----------------------------------------------------------------------------------------- */

/* Packs numbers [k0, k1) of a panel of B. */
static void pack_panel(const struct blocked *g, uint16_t *to, int64_t panel, int64_t k0, int64_t k1)
{
    const yk__gemm_product *p = &g->p;
    int64_t cols = yk__bf16_columns(p->n, panel);
    yk__gemm_pack_bf16(to, (const uint16_t *)p->b + k0 * p->b_k + panel * PANEL * p->b_col, k1 - k0, p->b_k, cols,
                       p->b_col, yk__bf16_width(cols));
}

static void pack_panels(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct blocked *g = arg;
    for (int64_t panel = begin; panel < end; panel++)
        pack_panel(g, g->packed + panel * PANEL * g->depth, panel, g->k0, g->k1);
}

/* Rows [m0, m1) of this block of k as the tiles read them: in place, or in `left`. */
static const uint16_t *block_of_a(const struct blocked *g, uint16_t *left, int64_t m0, int64_t m1, int64_t *lda)
{
    const yk__gemm_product *p = &g->p;
    const uint16_t *a = (const uint16_t *)p->a + m0 * p->a_row + g->k0 * p->a_k;
    int64_t k = g->k1 - g->k0;
    if (p->mode == YK__GEMM_A_COLUMNS) {
        *lda = yk__bf16_width(m1 - m0);
        yk__gemm_pack_bf16(left, a, k, p->a_k, m1 - m0, p->a_row, *lda);
        return left;
    }
    *lda = p->a_row;
    if (!g->copy)
        return a;
    *lda = g->depth + 2 * LANES;
    for (int64_t i = 0; i < m1 - m0; i++)
        memcpy(left + i * *lda, a + i * p->a_row, (size_t)k * sizeof(uint16_t));
    return left;
}

/* Lets tile i of `tiles` fetch its share of the memory that is packed after the part of `panel` at `at`. */
static void fetch_next(const struct blocked *g, yk__bf16_tile *t, int64_t panel, int64_t at, int64_t i, int64_t tiles)
{
    enum { LINE = 64 / sizeof(uint16_t) };
    const yk__gemm_product *p = &g->p;
    int64_t k = g->k0 + at + t->k;
    if (k >= g->k1)
        k = g->k0, panel++;
    t->fetch = NULL;
    if (p->b_k != 1 || t->k != FUSED_DEPTH || panel >= g->panels)
        return;
    t->fetch_shift = __builtin_ctz(FUSED_DEPTH / LINE);
    t->fetch_step = p->b_col * (int64_t)sizeof(uint16_t);
    t->fetch = (const char *)((const uint16_t *)p->b + k + (panel * PANEL + PANEL * i / tiles) * p->b_col);
}

/* Computes a block of rows times a group of panels. */
static void block_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct blocked *g = arg;
    const yk__gemm_product *p = &g->p;
    uint16_t *left = g->scratch + thread * g->scratch_size, *own = left + g->left_size;
    int64_t k = g->k1 - g->k0, part = g->fused ? FUSED_DEPTH : k;
    float waiting[BLOCK_ROWS * PANEL];
    yk__gemm_step step = {0, 0};
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t group = piece % g->groups, block = piece / g->groups, m0 = block * g->rows, lda;
        int64_t m1 = m0 + g->rows < p->m ? m0 + g->rows : p->m;
        int64_t tiles, low = yk__gemm_cut(m1 - m0, ROWS, &tiles), high = tiles ? (m1 - m0) % tiles : 0;
        const uint16_t *a = block_of_a(g, left, m0, m1, &lda);
        int64_t first = group * g->panels / g->groups, last = (group + 1) * g->panels / g->groups;
        for (int64_t panel = first; panel < last; panel++) {
            int64_t cols = yk__bf16_columns(p->n, panel), width = yk__bf16_width(cols), at = 0;
            yk__bf16_tile t = {.steps = &step,
                               .n_steps = 1,
                               .lda = lda,
                               .ldb = width,
                               .ldc = p->c_row,
                               .csc = p->c_col,
                               .cols = cols,
                               .bias = p->bias ? (const uint16_t *)p->bias + panel * PANEL : NULL,
                               .accumulate = p->accumulate};
            do {
                t.k = k - at < part ? k - at : part;
                t.b = g->fused ? own : g->packed + panel * PANEL * g->depth;
                if (g->fused)
                    pack_panel(g, own, panel, g->k0 + at, g->k0 + at + t.k);
                t.first = g->k0 + at == 0;
                t.last = g->k0 + at + t.k == p->k;
                int64_t row = 0;
                for (int64_t i = 0; i < tiles; i++) {
                    int64_t height = low + (i < high);
                    if (g->fused)
                        fetch_next(g, &t, panel, at, i, tiles);
                    t.a = p->mode == YK__GEMM_A_COLUMNS ? a + at * lda + 2 * row : a + row * lda + at;
                    t.c = (uint16_t *)p->c + (m0 + row) * p->c_row + panel * PANEL * p->c_col;
                    t.sums = g->sums ? g->sums + ((block * g->tiles + i) * g->panels + panel) * ROWS * PANEL
                                     : waiting + row * PANEL;
                    yk__gemm_kernels_bf16[p->mode][width / LANES - 1][height - 1](&t);
                    row += height;
                }
                at += t.k;
            } while (at < k);
        }
    }
}

static yk_status run_blocked(int device, const yk__gemm_product *p)
{
    struct blocked g = {.p = *p, .panels = yk__ceil_div(p->n, PANEL)};
    int64_t depths = p->k ? yk__ceil_div(p->k, DEPTH) : 1;
    g.depth = yk__ceil_div(p->k, depths);
    g.depth += g.depth % 2;
    int64_t blocks = yk__ceil_div(p->m, BLOCK_ROWS);
    g.rows = yk__ceil_div(p->m, blocks);
    blocks = yk__ceil_div(p->m, g.rows);
    g.tiles = yk__ceil_div(g.rows, ROWS);
    bool serial = p->m * p->n * p->k < SERIAL_WORK;
    int64_t threads = serial ? 1 : yk__cpu_threads(device);
    /* Pieces for all threads; each packs its rows of A, so it should have a few panels to use them on. */
    g.groups = threads == 1 || blocks >= 8 ? 1 : yk__ceil_div(8, blocks);
    g.groups = g.groups < g.panels / 4 ? g.groups : g.panels / 4;
    g.groups = g.groups < 1 ? 1 : g.groups;
    g.fused = blocks == 1;
    g.copy = p->mode == YK__GEMM_A_ROWS && p->a_row % 1024 == 0 && p->n > 4 * PANEL;
    g.left_size = p->mode == YK__GEMM_A_COLUMNS ? yk__bf16_width(g.rows) * g.depth
                  : g.copy                      ? g.rows * (g.depth + 2 * LANES)
                                                : 0;
    g.left_size = yk__ceil_div(g.left_size, PANEL) * PANEL;
    int64_t part = g.depth < FUSED_DEPTH ? g.depth : FUSED_DEPTH;
    g.scratch_size = g.left_size + (g.fused ? part * PANEL : 0);
    int64_t packed = g.fused ? 0 : g.panels * PANEL * g.depth;
    int64_t sums = g.depth < p->k ? blocks * g.tiles * g.panels * ROWS * PANEL : 0;
    yk__storage *handle;
    g.packed = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                 (size_t)(packed + threads * g.scratch_size + 2 * sums) * sizeof(uint16_t), &handle);
    if (!g.packed)
        return yk__error_code();
    g.scratch = g.packed + packed;
    g.sums = sums ? (float *)(void *)(g.scratch + threads * g.scratch_size) : NULL;
    do {
        g.k1 = g.k0 + g.depth < p->k ? g.k0 + g.depth : p->k;
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

/* Computes dot products of up to four rows of A with four columns of B, all with k in order in memory. */
BF16 static inline __attribute__((always_inline)) void dots(const yk__gemm_product *p, int64_t row, int64_t column,
                                                            const int rows)
{
    __m512 sum[4][4];
    const uint16_t *a = (const uint16_t *)p->a + row * p->a_row, *b[4];
    int64_t cols = p->n - column < 4 ? p->n - column : 4;
    YK__UNROLL
    for (int j = 0; j < 4; j++) {
        /* A missing column repeats the last one. */
        b[j] = (const uint16_t *)p->b + (column + (j < cols ? j : cols - 1)) * p->b_col;
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
    float sums[4 * PANEL];
    YK__UNROLL
    for (int i = 0; i < rows; i++) {
        float total[LANES] = {0};
        YK__UNROLL
        for (int j = 0; j < 4; j++)
            total[j] = _mm512_reduce_add_ps(sum[i][j]);
        _mm512_storeu_ps(sums + i * PANEL, _mm512_loadu_ps(total));
    }
    yk__bf16_tile t = {.c = (uint16_t *)p->c + row * p->c_row + column * p->c_col,
                       .ldc = p->c_row,
                       .csc = p->c_col,
                       .cols = cols,
                       .bias = p->bias ? (const uint16_t *)p->bias + column : NULL,
                       .accumulate = p->accumulate};
    yk__gemm_finish_bf16(&t, sums, rows, 1);
}

BF16 static void dot_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const yk__gemm_product *p = arg;
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

yk_status yk__gemm_bf16(int device, yk__gemm_product *p)
{
    if (p->m <= FEW_ROWS && p->a_k == 1 && p->b_k == 1) {
        int64_t fours = yk__ceil_div(p->n, 4);
        if (p->m * p->n * p->k < SERIAL_WORK)
            dot_piece(p, 0, fours, 0);
        else
            yk__cpu_parallel(device, fours, 8, dot_piece, p);
        return YK_OK;
    }
    p->mode = p->a_k == 1 ? YK__GEMM_A_ROWS : YK__GEMM_A_COLUMNS;
    return run_blocked(device, p);
}

#else

bool yk__gemm_bf16_there(void)
{
    return false;
}

yk_status yk__gemm_bf16(int device, yk__gemm_product *p)
{
    (void)p;
    return yk__slot_missing((yk_device){YK_CPU, (int16_t)device}, "gemm");
}

#endif
