/*
 * conv_small_weight.c - direct convolution for few channels: weight and bias gradient. Layer: device/cpu.
 *
 * gw[o][c][ky][kx] = sum over images and positions q = (oy, ox) of gout[o][q] x[c][oy + ky][ox + kx]. Two algorithms:
 *  - lanes are output channels, where they fill vectors: gout is transposed to [q][o], and the tile of
 *    conv_small_tile.c adds x[tap + q] * gout[q][:] for several taps at once; nothing has to be summed across lanes.
 *  - lanes are positions otherwise: dot products of gout's planes with the planes that conv_small.c stages, a sum
 *    vector per weight, added up across lanes at the end of a block.
 *
 * Invariants: images are cut into blocks by the shape alone; each block has sums of its own, and those are added in the
 * order of the blocks. So the result has the same bits for any number of threads, and no float sum grows long.
 */
#include "device/cpu/conv/conv_small.h"

enum { MOST_BLOCKS = 32, LEAST_POSITIONS = 256 /* per block, where the batch has them */ };

typedef struct job {
    cs_shape s;
    const float *x, *gout;
    float *partial;         /* per block: weight sums, then bias sums */
    int64_t partial_floats; /* of one block */
    bool want_bias;
    bool lanes_are_channels;
    int64_t block;         /* images in a block */
    int64_t wide;          /* lanes are channels: o, padded to whole vectors */
    int64_t width, height; /* of the padded input */
    float *scratch;
    int64_t scratch_floats; /* for one thread */
} job;

/* to[c * to_step + r] = from[r * from_step + c] for c < cols, r < rows; 0 for r in [rows, stored). Both <= CS_LANES. */
static void transpose(float *to, int64_t to_step, const float *from, int64_t from_step, int64_t rows, int64_t stored,
                      int64_t cols)
{
    int64_t c = 0;
#ifdef __AVX512F__
    __mmask16 some = (__mmask16)((1u << stored) - 1);
    for (; c < cols; c += 16) {
        int64_t wide = cols - c < 16 ? cols - c : 16;
        __mmask16 mask = (__mmask16)((1u << wide) - 1);
        __m512 a[16], b[16];
        CS_UNROLL_16
        for (int r = 0; r < 16; r++)
            a[r] = r < rows ? _mm512_maskz_loadu_ps(mask, from + r * from_step + c) : _mm512_setzero_ps();
        CS_UNROLL_16
        for (int r = 0; r < 16; r += 2) {
            b[r] = _mm512_unpacklo_ps(a[r], a[r + 1]);
            b[r + 1] = _mm512_unpackhi_ps(a[r], a[r + 1]);
        }
        CS_UNROLL_16
        for (int r = 0; r < 16; r += 4) { /* a[r + k]: column k of each group of four, for rows r to r + 3 */
            a[r] = _mm512_shuffle_ps(b[r], b[r + 2], 0x44);
            a[r + 1] = _mm512_shuffle_ps(b[r], b[r + 2], 0xEE);
            a[r + 2] = _mm512_shuffle_ps(b[r + 1], b[r + 3], 0x44);
            a[r + 3] = _mm512_shuffle_ps(b[r + 1], b[r + 3], 0xEE);
        }
        CS_UNROLL_16
        for (int k = 0; k < 4; k++) {
            __m512 low0 = _mm512_shuffle_f32x4(a[k], a[k + 4], 0x88), low1 = _mm512_shuffle_f32x4(a[k], a[k + 4], 0xDD);
            __m512 high0 = _mm512_shuffle_f32x4(a[k + 8], a[k + 12], 0x88);
            __m512 high1 = _mm512_shuffle_f32x4(a[k + 8], a[k + 12], 0xDD);
            b[k] = _mm512_shuffle_f32x4(low0, high0, 0x88);
            b[k + 8] = _mm512_shuffle_f32x4(low0, high0, 0xDD);
            b[k + 4] = _mm512_shuffle_f32x4(low1, high1, 0x88);
            b[k + 12] = _mm512_shuffle_f32x4(low1, high1, 0xDD);
        }
        CS_UNROLL_16
        for (int k = 0; k < 16; k++) {
            if (k < wide)
                _mm512_mask_storeu_ps(to + (c + k) * to_step, some, b[k]);
        }
    }
#else
    for (; c < cols; c++) {
        for (int64_t r = 0; r < rows; r++)
            to[c * to_step + r] = from[r * from_step + c];
        for (int64_t r = rows; r < stored; r++)
            to[c * to_step + r] = 0.0f;
    }
#endif
}

/* Sums of gout's planes, added to sums[o]. */
static void add_bias(const cs_shape *s, double *sums, const float *gout)
{
    for (int64_t o = 0; o < s->o; o++, gout += s->positions) {
        yk__vf32 v = {0};
        int64_t q = 0;
        for (; q + CS_LANES <= s->positions; q += CS_LANES)
            v += *(const yk__vf32u *)(gout + q);
        if (q < s->positions)
            v += cs_load_some(gout + q, s->positions - q);
        float sum = 0;
        for (int i = 0; i < CS_LANES; i++)
            sum += v[i];
        sums[o] += (double)sum;
    }
}

static void channel_block(const job *j, int64_t first, int64_t images, float *partial, float *scratch)
{
    const cs_shape *s = &j->s;
    const float *x = j->x + first * s->c * s->h * s->w;
    float *turned = scratch;
    int64_t plane = j->height * j->width;
    for (int64_t n = 0; n < images; n++) {
        const float *gout = j->gout + (first + n) * s->o * s->positions;
        for (int64_t o = 0; o < s->o; o += CS_LANES)
            transpose(turned + n * s->positions * j->wide + o, j->wide, gout + o * s->positions, s->positions,
                      s->o - o < CS_LANES ? s->o - o : CS_LANES, CS_LANES, s->positions);
    }
    if (s->ph || s->pw) {
        float *padded = scratch + j->block * s->positions * j->wide;
        memset(padded, 0, (size_t)(images * s->c * plane) * sizeof(float));
        for (int64_t m = 0; m < images * s->c; m++) {
            for (int64_t y = 0; y < s->h; y++)
                memcpy(padded + m * plane + (y + s->ph) * j->width + s->pw, x + (m * s->h + y) * s->w,
                       (size_t)s->w * sizeof(float));
        }
        x = padded;
    }
    cs_tile t = {.count = {images, s->oh, s->ow},
                 .a_step = {s->c * plane, j->width, 1},
                 .b_step = {s->positions * j->wide, s->ow * j->wide, j->wide}};
    int64_t all = j->wide / CS_LANES, taps = s->c * s->kh * s->kw;
    int64_t input_at[CS_CHANNELS * CS_KERNEL * CS_KERNEL], *at = input_at; /* of tap (c, ky, kx) */
    for (int64_t c = 0; c < s->c; c++) {
        for (int64_t ky = 0; ky < s->kh; ky++) {
            for (int64_t kx = 0; kx < s->kw; kx++)
                *at++ = c * plane + ky * j->width + kx;
        }
    }
    for (int64_t v = 0; v < all; v += CS_VECTORS) {
        int64_t vectors = all - v < CS_VECTORS ? all - v : CS_VECTORS;
        int64_t rows = cs_even(taps, cs_tile_rows((int)vectors));
        t.b = turned + v * CS_LANES;
        t.width = vectors * CS_LANES;
        for (int64_t m = 0; m < taps; m += rows) {
            int64_t tall = taps - m < rows ? taps - m : rows;
            for (int64_t r = 0; r < tall; r++) {
                t.a[r] = x + input_at[m + r];
                t.out[r] = partial + (m + r) * j->wide + v * CS_LANES;
            }
            YK__ISA_NAME(yk__conv_small_tile)((int)tall, (int)vectors, &t);
        }
    }
}

/* sums[r * sum_step + k] (vectors) += gout plane r times staged plane k, over all positions. */
static inline __attribute__((always_inline)) void dot(const int rows, const int taps, float *sums, int64_t sum_step,
                                                      const float *gout, const float *planes, int64_t pitch,
                                                      int64_t positions)
{
    yk__vf32 sum[4][CS_KERNEL], a[4], b;
    CS_UNROLL
    for (int r = 0; r < rows; r++) {
        CS_UNROLL
        for (int k = 0; k < taps; k++)
            sum[r][k] = *(yk__vf32u *)(sums + r * sum_step + k * CS_LANES);
    }
    int64_t q = 0;
    for (; q + CS_LANES <= positions; q += CS_LANES) {
        CS_UNROLL
        for (int r = 0; r < rows; r++)
            a[r] = *(const yk__vf32u *)(gout + r * positions + q);
        CS_UNROLL
        for (int k = 0; k < taps; k++) {
            b = *(const yk__vf32u *)(planes + k * pitch + q);
            YK__KEEP(b);
            CS_UNROLL
            for (int r = 0; r < rows; r++)
                sum[r][k] += a[r] * b;
        }
    }
    if (q < positions) {
        CS_UNROLL
        for (int r = 0; r < rows; r++)
            a[r] = cs_load_some(gout + r * positions + q, positions - q);
        CS_UNROLL
        for (int k = 0; k < taps; k++) {
            b = cs_load_some(planes + k * pitch + q, positions - q);
            CS_UNROLL
            for (int r = 0; r < rows; r++)
                sum[r][k] += a[r] * b;
        }
    }
    CS_UNROLL
    for (int r = 0; r < rows; r++) {
        CS_UNROLL
        for (int k = 0; k < taps; k++)
            *(yk__vf32u *)(sums + r * sum_step + k * CS_LANES) = sum[r][k];
    }
}

typedef void (*dot_fn)(float *, int64_t, const float *, const float *, int64_t, int64_t);
#define DOT(R, K)                                                                                                      \
    static void dot_##R##_##K(float *sums, int64_t sum_step, const float *gout, const float *planes, int64_t pitch,    \
                              int64_t positions)                                                                       \
    {                                                                                                                  \
        dot(R, K, sums, sum_step, gout, planes, pitch, positions);                                                     \
    }
#define DOTS(K) DOT(1, K) DOT(2, K) DOT(3, K) DOT(4, K)
DOTS(1)
DOTS(2)
DOTS(3)
DOTS(4)
DOTS(5)
DOTS(6)
DOTS(7)
#define DOT_NAMES(K)                                                                                                   \
    {                                                                                                                  \
        dot_1_##K, dot_2_##K, dot_3_##K, dot_4_##K                                                                     \
    }
static const dot_fn dots[CS_KERNEL][4] = {DOT_NAMES(1), DOT_NAMES(2), DOT_NAMES(3), DOT_NAMES(4),
                                          DOT_NAMES(5), DOT_NAMES(6), DOT_NAMES(7)};

static int64_t dot_rows(int64_t taps)
{
#ifdef __AVX512F__
    return taps < 7 ? 4 : 3;
#else
    return taps < 3 ? 4 : taps < 4 ? 3 : taps < 6 ? 2 : 1;
#endif
}

static void position_block(const job *j, int64_t first, int64_t images, float *partial, float *scratch)
{
    const cs_shape *s = &j->s;
    int64_t taps = s->c * s->kh * s->kw, rows = cs_even(s->o, dot_rows(s->kw));
    float *sums = scratch, *planes = scratch + s->o * taps * CS_LANES;
    memset(sums, 0, (size_t)(s->o * taps * CS_LANES) * sizeof(float));
    for (int64_t n = first; n < first + images; n++) {
        const float *gout = j->gout + n * s->o * s->positions;
        YK__ISA_NAME(yk__conv_small_stage)(s, planes, j->x + n * s->c * s->h * s->w);
        for (int64_t o = 0; o < s->o; o += rows) {
            int64_t tall = s->o - o < rows ? s->o - o : rows;
            dot_fn fn = dots[s->kw - 1][tall - 1];
            for (int64_t c = 0; c < s->c; c++) {
                for (int64_t ky = 0; ky < s->kh; ky++)
                    fn(sums + ((o * s->c + c) * s->kh + ky) * s->kw * CS_LANES, taps * CS_LANES,
                       gout + o * s->positions, planes + c * s->kw * s->pitch + ky * s->ow, s->pitch, s->positions);
            }
        }
    }
    for (int64_t i = 0; i < s->o * taps; i++) {
        const float *v = sums + i * CS_LANES;
#ifdef __AVX512F__
        partial[i] = _mm512_reduce_add_ps(_mm512_loadu_ps(v));
#else
        float sum = 0;
        for (int k = 0; k < CS_LANES; k++)
            sum += v[k];
        partial[i] = sum;
#endif
    }
}

static void weight_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *j = arg;
    const cs_shape *s = &j->s;
    float *scratch = j->scratch + thread * j->scratch_floats;
    for (int64_t b = begin; b < end; b++) {
        float *partial = j->partial + b * j->partial_floats;
        int64_t first = b * j->block, images = s->n - first < j->block ? s->n - first : j->block;
        if (j->lanes_are_channels)
            channel_block(j, first, images, partial, scratch);
        else
            position_block(j, first, images, partial, scratch);
        if (!j->want_bias)
            continue;
        double sums[CS_CHANNELS] = {0};
        for (int64_t n = first; n < first + images; n++)
            add_bias(s, sums, j->gout + n * s->o * s->positions);
        for (int64_t o = 0; o < s->o; o++)
            partial[j->partial_floats - CS_CHANNELS + o] = (float)sums[o];
    }
}

yk_status yk__conv_small_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gbias,
                                         const yk__view *gout, const yk__view *x)
{
    job j = {.s = cs_shape_of(p, x, gw, gout), .x = x->data, .gout = gout->data, .want_bias = gbias};
    const cs_shape *s = &j.s;
    int64_t taps = s->c * s->kh * s->kw;
    j.wide = (s->o + CS_LANES - 1) / CS_LANES * CS_LANES;
    j.lanes_are_channels = s->o * 5 >= j.wide * 3;
    j.height = s->h + 2 * s->ph;
    j.width = s->w + 2 * s->pw;
    j.block = (LEAST_POSITIONS + s->positions - 1) / s->positions;
    if (!j.lanes_are_channels && j.block < 4)
        j.block = 4; /* a block costs a sum across the lanes of every weight */
    if (j.block * MOST_BLOCKS < s->n)
        j.block = (s->n + MOST_BLOCKS - 1) / MOST_BLOCKS;
    int64_t blocks = (s->n + j.block - 1) / j.block;
    j.partial_floats = (j.lanes_are_channels ? taps * j.wide : s->o * taps) + CS_CHANNELS;
    if (j.lanes_are_channels)
        j.scratch_floats = j.block * (s->positions * j.wide + (s->ph || s->pw ? s->c * j.height * j.width : 0));
    else
        j.scratch_floats = s->o * taps * CS_LANES + s->c * s->kw * s->pitch;
    j.scratch_floats = (j.scratch_floats + 2 * CS_LANES - 1) / CS_LANES * CS_LANES;
    int64_t partials = (blocks * j.partial_floats + CS_LANES - 1) / CS_LANES * CS_LANES;
    yk__storage *handle = NULL;
    size_t bytes = (size_t)(partials + j.scratch_floats * yk__cpu_threads(device)) * sizeof(float);
    j.partial = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, bytes, &handle);
    if (!j.partial)
        return yk__error_code();
    j.scratch = j.partial + partials;
    yk__cpu_parallel(device, blocks, 1, weight_blocks, &j);

    float *to = gw->data;
    int64_t count = j.partial_floats - CS_CHANNELS;
    for (int64_t i = 0; blocks > 1 && i < j.partial_floats; i++) {
        double sum = 0;
        for (int64_t b = 0; b < blocks; b++)
            sum += (double)j.partial[b * j.partial_floats + i];
        j.partial[i] = (float)sum;
    }
    if (j.lanes_are_channels) {
        for (int64_t i = 0; i < taps; i += CS_LANES) {
            int64_t rows = taps - i < CS_LANES ? taps - i : CS_LANES;
            transpose(to + i, taps, j.partial + i * j.wide, j.wide, rows, rows, s->o);
        }
    } else {
        memcpy(to, j.partial, (size_t)count * sizeof(float));
    }
    for (int64_t o = 0; gbias && o < s->o; o++)
        ((float *)gbias->data)[o * gbias->stride[0]] = j.partial[count + o];
    yk__storage_release(handle);
    return YK_OK;
}
