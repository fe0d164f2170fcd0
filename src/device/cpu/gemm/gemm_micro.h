/*
 * gemm_micro.h - the register tile under matrix products and convolutions. Layer: device/cpu.
 *
 * A tile is C (rows x cols) = sum over steps s of A_s (rows x k) B_s (k x cols), kept in registers from the first step
 * to the last. Sums run over the steps in order and over k in order, so a result does not depend on how tiles are
 * shared out. Nothing outside the described elements is read or written, but B rows must hold `vectors` whole vectors:
 * a panel whose last columns are missing is packed with zeros after them.
 */
#ifndef YOKE_DEVICE_CPU_GEMM_GEMM_MICRO_H
#define YOKE_DEVICE_CPU_GEMM_GEMM_MICRO_H

#include "device/cpu/cpu.h"
#include "device/cpu/elementwise/row_copy.h"

/* The first elements of a step's operands, counted from the tile's a and b. */
typedef struct yk__gemm_step {
    int64_t a, b;
} yk__gemm_step;

typedef struct yk__gemm_tile {
    const void *a, *b;
    const yk__gemm_step *steps;
    int64_t n_steps, k;
    int64_t lda; /* rows of A: element (i, k) at i * lda + k; columns of A: at k * lda + i */
    int64_t ldb; /* B: element (k, j) at k * ldb + j */
    void *c;
    int64_t ldc, csc; /* C: element (i, j) at i * ldc + j * csc */
    int64_t cols;     /* columns that exist, at most the kernel's */
    const void *bias; /* added to every row, `cols` numbers; or NULL */
    bool accumulate;  /* add to what C holds */
    bool far;         /* C is far from the caches: its lines are fetched before they are written, for speed alone */
    /* The memory that is packed or read next, which is fetched from far away meanwhile: a cache line for each k of a
     * step, `fetch_step` bytes apart; each step's lines begin `fetch_a` bytes times its `a` further. Only the kernels
     * that are FETCHING do this. */
    const char *fetch;
    int64_t fetch_step, fetch_a;
} yk__gemm_tile;

/* Lines that tiles fetch one after the other: lines of runs of planes of planes; bytes. A hint, whose addresses need
 * not be exact. */
typedef struct yk__gemm_lines {
    const char *data;
    int64_t count[4], step[4], at[4];
} yk__gemm_lines;

/* True if lines are left; then the tile fetches the next ones of a run. */
static inline bool yk__gemm_fetches(yk__gemm_lines *lines, yk__gemm_tile *tile)
{
    if (lines->at[0] == lines->count[0])
        return false;
    tile->fetch = lines->data;
    for (int d = 0; d < 4; d++)
        tile->fetch += lines->at[d] * lines->step[d];
    tile->fetch_step = lines->step[3];
    tile->fetch_a = 0;
    lines->at[3] += tile->k;
    for (int d = 3; d > 0 && lines->at[d] >= lines->count[d]; d--) {
        lines->at[d] = 0;
        lines->at[d - 1]++;
    }
    return true;
}

/* The lines of `rows` x `cols` weights of some taps: element (row, col) of a tap at row_step and col_step, one of which
 * is 1, of numbers of `size` bytes. */
static inline yk__gemm_lines yk__gemm_weight_lines(const void *data, const int64_t taps[2], const int64_t tap_step[2],
                                                   int64_t rows, int64_t row_step, int64_t cols, int64_t col_step,
                                                   int64_t size)
{
    int64_t run = row_step == 1 ? cols : rows, run_step = row_step == 1 ? col_step : row_step,
            width = row_step == 1 ? rows : cols;
    yk__gemm_lines l = {.data = data,
                        .count = {taps[0], taps[1], yk__ceil_div(width * size, YK__LINE), run},
                        .step = {tap_step[0] * size, tap_step[1] * size, YK__LINE, run_step * size}};
    if (run_step == width) { /* one run after the other */
        l.count[3] = yk__ceil_div(run * width * size, YK__LINE), l.step[3] = YK__LINE;
        l.count[2] = 1;
    }
    if (!l.count[1] || !l.count[2] || !l.count[3])
        l.count[0] = 0;
    return l;
}

/* The largest tile: rows, and vectors of columns. Its sums and the vectors of B fill 30 of 32 registers with AVX-512,
 * 14 of 16 otherwise; more would not stay in registers. Any smaller number of rows has its own kernel. */
#if defined(__AVX512F__)
#define YK__GEMM_ROWS 14
#else
#define YK__GEMM_ROWS 6
#endif
#define YK__GEMM_VECTORS 2

/* X(rows, vectors) for every number of rows. */
#if YK__GEMM_ROWS == 14
#define YK__GEMM_EACH_ROWS(X, vectors)                                                                                 \
    X(1, vectors)                                                                                                      \
    X(2, vectors)                                                                                                      \
    X(3, vectors)                                                                                                      \
    X(4, vectors)                                                                                                      \
    X(5, vectors)                                                                                                      \
    X(6, vectors)                                                                                                      \
    X(7, vectors) X(8, vectors) X(9, vectors) X(10, vectors) X(11, vectors) X(12, vectors) X(13, vectors) X(14, vectors)
#else
#define YK__GEMM_EACH_ROWS(X, vectors)                                                                                 \
    X(1, vectors) X(2, vectors) X(3, vectors) X(4, vectors) X(5, vectors) X(6, vectors)
#endif

/* Loops over a tile's rows and vectors must be unrolled whole, or the sums do not live in registers; UNROLL_K is for
 * the loop over k. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop that runs once */
#define YK__UNROLL _Pragma("clang loop unroll(full)")
#define YK__UNROLL_K
#else
#define YK__UNROLL   _Pragma("GCC unroll 16")
#define YK__UNROLL_K _Pragma("GCC unroll 2")
#endif

/* FETCHING: of rows, and fetches lines; one load more for each k costs 1 to 3 % where there is nothing to fetch. */
enum yk__gemm_mode { YK__GEMM_A_ROWS, YK__GEMM_A_COLUMNS, YK__GEMM_A_ROWS_FETCHING, YK__GEMM_MODES };

typedef void (*yk__gemm_kernel)(const yk__gemm_tile *tile);
#define yk__gemm_kernels_f32 YK__ISA_NAME(yk__gemm_kernels_f32)
#define yk__gemm_kernels_f64 YK__ISA_NAME(yk__gemm_kernels_f64)
/* The kernels by mode, number of vectors - 1, number of rows - 1. */
extern const yk__gemm_kernel yk__gemm_kernels_f32[YK__GEMM_MODES][YK__GEMM_VECTORS][YK__GEMM_ROWS];
extern const yk__gemm_kernel yk__gemm_kernels_f64[YK__GEMM_MODES][YK__GEMM_VECTORS][YK__GEMM_ROWS];

/*
 * Packs a k x cols matrix, element (l, j) at src[l * ks + j * cs], into rows of `width` >= cols numbers one after the
 * other; columns that are missing become 0. A panel of B has the width of the kernel's vectors, a panel of A (mode
 * A_COLUMNS, lda = width) its number of rows.
 */
#define yk__gemm_pack_f32 YK__ISA_NAME(yk__gemm_pack_f32)
#define yk__gemm_pack_f64 YK__ISA_NAME(yk__gemm_pack_f64)
void yk__gemm_pack_f32(float *to, const float *src, int64_t k, int64_t ks, int64_t cols, int64_t cs, int64_t width);
void yk__gemm_pack_f64(double *to, const double *src, int64_t k, int64_t ks, int64_t cols, int64_t cs, int64_t width);

/* The best cut of `n` rows: into `*tiles` tiles, the first `n % *tiles` of them one row higher than the others, whose
 * rows are returned. */
static inline int64_t yk__gemm_cut(int64_t n, int64_t most, int64_t *tiles)
{
    *tiles = (n + most - 1) / most;
    return *tiles ? n / *tiles : 0;
}

#endif
