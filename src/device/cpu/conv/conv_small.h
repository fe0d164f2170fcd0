/*
 * conv_small.h - declarations that conv_small*.c share: sizes, the register tile, partial vectors. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_CONV_CONV_SMALL_H
#define YOKE_DEVICE_CPU_CONV_CONV_SMALL_H

#include <string.h>

#include "device/cpu/conv/conv.h"

#ifdef __AVX512F__
#include <immintrin.h>
#endif

enum {
    CS_CHANNELS = 32, /* most channels on either side, and the longest edge of a kernel */
    CS_KERNEL = 7,
    CS_LANES = YK__VECTOR_BYTES / 4,
    CS_ROWS = 8, /* most rows of a tile */
#ifdef __AVX512F__
    CS_VECTORS = 4, /* most vectors in a row of a tile: 32 registers hold 6 x 4 or 8 x 3 sums and their operands */
#else
    CS_VECTORS = 2,
#endif
};

/* Loops over a tile's sums must be unrolled whole, or the sums do not live in registers. */
#ifdef __clang__
#define CS_UNROLL    _Pragma("clang loop unroll(full)")
#define CS_UNROLL_16 _Pragma("clang loop unroll(full)")
#else
#define CS_UNROLL    _Pragma("GCC unroll 8")
#define CS_UNROLL_16 _Pragma("GCC unroll 16")
#endif

/* The sizes of one call. */
typedef struct cs_shape {
    int64_t n, c, h, w;      /* x */
    int64_t o, oh, ow;       /* out */
    int64_t kh, kw, ph, pw;  /* kernel, padding */
    int64_t rows, positions; /* rows of the padded input: oh + kh - 1; oh * ow */
    int64_t pitch;           /* floats of one plane of cs_stage's output */
} cs_shape;

/*
 * out[r][q] = start[r] + sum over i0, i1, i2 of a[r][i . a_step] * b[q + i . b_step], for q in [0, vectors * lanes):
 * each row has a scalar of its own per term, and all rows share the vectors of b.
 */
typedef struct cs_tile {
    const float *a[CS_ROWS];
    const float *b;
    float *out[CS_ROWS];
    const float *start; /* one per row, or NULL for 0 */
    int64_t count[3], a_step[3], b_step[3];
    int64_t width; /* floats of a row to store; the rest of the last vectors is dropped */
} cs_tile;

/* Runs a tile of rows in [1, cs_tile_rows(vectors)] and vectors in [1, CS_VECTORS]. */
void YK__ISA_NAME(yk__conv_small_tile)(int rows, int vectors, const cs_tile *t);

/* Writes planes (c, kx) of one image, s->pitch apart, each s->rows by s->ow: see conv_small.c. */
void YK__ISA_NAME(yk__conv_small_stage)(const cs_shape *s, float *planes, const float *x);

static inline int cs_tile_rows(int vectors)
{
    return vectors <= (CS_VECTORS == 4 ? 3 : 1) ? 8 : 6;
}

static inline cs_shape cs_shape_of(const yk__conv2d *p, const yk__view *x, const yk__view *w, const yk__view *out)
{
    cs_shape s = {.n = x->shape[0],
                  .c = x->shape[1],
                  .h = x->shape[2],
                  .w = x->shape[3],
                  .o = w->shape[0],
                  .oh = out->shape[2],
                  .ow = out->shape[3],
                  .kh = w->shape[2],
                  .kw = w->shape[3],
                  .ph = p->padding[0],
                  .pw = p->padding[1]};
    s.rows = s.oh + s.kh - 1;
    s.positions = s.oh * s.ow;
    s.pitch = (s.rows * s.ow + 2 * CS_LANES - 1) / CS_LANES * CS_LANES;
    return s;
}

/* The rows of each of the fewest tiles, so many that no tile is much smaller than the others. */
static inline int64_t cs_even(int64_t n, int64_t most)
{
    int64_t tiles = (n + most - 1) / most;
    return (n + tiles - 1) / tiles;
}

/* The first n of CS_LANES floats, then zeros; reads no more than n. */
static inline yk__vf32 cs_load_some(const float *from, int64_t n)
{
#ifdef __AVX512F__
    return (yk__vf32)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
#else
    yk__vf32 v = {0};
    memcpy(&v, from, (size_t)n * sizeof(float));
    return v;
#endif
}

static inline void cs_store_some(float *to, yk__vf32 v, int64_t n)
{
#ifdef __AVX512F__
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)v);
#else
    memcpy(to, &v, (size_t)n * sizeof(float));
#endif
}

#endif
