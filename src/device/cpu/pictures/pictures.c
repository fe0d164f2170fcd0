/*
 * pictures.c - bytes of images: interleaved pixels to planes, bytes to floats, and resampling by tables of weights.
 * Layer: device/cpu, once per instruction set.
 *
 * Sums are integers, so every instruction set gives the same bytes. Both passes of a resampling are one loop: outputs
 * that are neighbours in memory take the same weights. Down the columns that is so as it stands; along the rows, a
 * group of rows is transposed, resampled as columns, and transposed back, which is cheaper than gathering bytes.
 * Processors that multiply bytes four at a time use other instructions: pictures_dot.c.
 */
#include <string.h>

#include "device/cpu/pictures/pictures.h"

enum {
    FRACTION = YK__RESAMPLE_FRACTION,
    TILE = 16, /* bytes of a vector, and the side of a transposed block */
    GROUP = YK__RESAMPLE_GROUP,
    LANES = YK__VECTOR_BYTES / 4
};
_Static_assert(GROUP % TILE == 0, "rows are transposed in whole blocks");

typedef unsigned char bytes_t __attribute__((vector_size(TILE), aligned(1), may_alias));
typedef unsigned char lanes_t __attribute__((vector_size(LANES), aligned(1), may_alias));
typedef int sums_t __attribute__((vector_size(4 * LANES)));

/* ---- planes ---------------------------------------------------------------------------------------------- */
static void split_pixels(const unsigned char *from, int64_t n, unsigned char *to, int64_t plane)
{
    unsigned char *restrict red = to, *restrict green = to + plane, *restrict blue = to + 2 * plane;
    for (int64_t i = 0; i < n; i++) {
        red[i] = from[3 * i];
        green[i] = from[3 * i + 1];
        blue[i] = from[3 * i + 2];
    }
}

/* ---- augmentation: a look into a table for each element ---------------------------------------------------- */
/* Defines NAME: sample n of `out`. */
#define DEFINE_AUGMENT(NAME, T)                                                                                        \
    static void NAME(const yk__view *out, const unsigned char *images, const yk__crop *c, const yk__view *table,       \
                     int64_t n)                                                                                        \
    {                                                                                                                  \
        int64_t channels = out->shape[1], height = out->shape[2], width = out->shape[3];                               \
        const unsigned char *from = images + c->from;                                                                  \
        T *to = (T *)out->data + n * channels * height * width;                                                        \
        /* Output columns [begin, end), before mirroring, lie inside the image. */                                     \
        int64_t begin = c->left < 0 ? -c->left : 0;                                                                    \
        int64_t end = c->width - c->left < width ? c->width - c->left : width;                                         \
        begin = begin > width ? width : begin;                                                                         \
        end = end < begin ? begin : end;                                                                               \
        for (int64_t channel = 0; channel < channels; channel++, from += c->height * c->width) {                       \
            const T *numbers = (const T *)table->data + (table->shape[0] > 1 ? 256 * channel : 0);                     \
            T zero = numbers[0];                                                                                       \
            for (int64_t y = 0; y < height; y++, to += width) {                                                        \
                int64_t in_y = y + c->top;                                                                             \
                bool inside = in_y >= 0 && in_y < c->height;                                                           \
                int64_t first = inside ? begin : width, last = inside ? end : width;                                   \
                const unsigned char *row = inside ? from + in_y * c->width : from;                                     \
                if (c->mirrored) {                                                                                     \
                    for (int64_t x = 0; x < first; x++)                                                                \
                        to[width - 1 - x] = zero;                                                                      \
                    for (int64_t x = first; x < last; x++)                                                             \
                        to[width - 1 - x] = numbers[row[x + c->left]];                                                 \
                    for (int64_t x = last; x < width; x++)                                                             \
                        to[width - 1 - x] = zero;                                                                      \
                } else {                                                                                               \
                    for (int64_t x = 0; x < first; x++)                                                                \
                        to[x] = zero;                                                                                  \
                    for (int64_t x = first; x < last; x++)                                                             \
                        to[x] = numbers[row[x + c->left]];                                                             \
                    for (int64_t x = last; x < width; x++)                                                             \
                        to[x] = zero;                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
DEFINE_AUGMENT(augment_f32, float)
DEFINE_AUGMENT(augment_f64, double)

static yk_status augment(int device, const yk__view *out, const yk__view *images, const yk__view *crops,
                         const yk__view *table)
{
    (void)device;
    for (int64_t n = 0; n < out->shape[0]; n++) {
        if (out->dtype == YK_F32)
            augment_f32(out, images->data, (const yk__crop *)crops->data + n, table, n);
        else
            augment_f64(out, images->data, (const yk__crop *)crops->data + n, table, n);
    }
    return YK_OK;
}

/* ---- one filter, applied to vectors ---------------------------------------------------------------------- */
/* to[i] = the sum over k of from[k stride + i] weights[k], rounded to a byte; vectors beginning at i, `N` of them. */
#define WEIGH(N)                                                                                                       \
    do {                                                                                                               \
        sums_t sums[N];                                                                                                \
        for (int v = 0; v < N; v++)                                                                                    \
            sums[v] = (sums_t){} + (1 << (FRACTION - 1));                                                              \
        const unsigned char *x = from + i;                                                                             \
        for (int k = 0; k < count; k++, x += stride) {                                                                 \
            for (int v = 0; v < N; v++)                                                                                \
                sums[v] += __builtin_convertvector(*(const lanes_t *)(x + v * LANES), sums_t) * weights[k];            \
        }                                                                                                              \
        for (int v = 0; v < N; v++) {                                                                                  \
            sums_t value = sums[v] >> FRACTION;                                                                        \
            sums_t over = value > 255;                                                                                 \
            value = (value & ~over) | (over & 255);                                                                    \
            *(lanes_t *)(to + i + v * LANES) = __builtin_convertvector(value, lanes_t);                                \
        }                                                                                                              \
    } while (0)

static void weigh(const unsigned char *from, int64_t stride, const int *weights, int count, unsigned char *to,
                  int64_t n)
{
    int64_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        WEIGH(4);
    for (; i + LANES <= n; i += LANES)
        WEIGH(1);
    if (i < n && n >= LANES) { /* the rest, with some elements that were done before */
        i = n - LANES;
        WEIGH(1);
        return;
    }
    for (; i < n; i++) {
        int sum = 1 << (FRACTION - 1);
        for (int k = 0; k < count; k++)
            sum += from[k * stride + i] * weights[k];
        sum >>= FRACTION;
        to[i] = (unsigned char)(sum > 255 ? 255 : sum);
    }
}

/* ---- blocks of 16 x 16 bytes ----------------------------------------------------------------------------- */
static void transpose_block(const unsigned char *const rows[TILE], unsigned char *to, int64_t stride)
{
    bytes_t a[TILE], b[TILE];
    for (int i = 0; i < TILE; i++)
        a[i] = *(const bytes_t *)rows[i];
    /* Rows i and i + 8 are interleaved, four times: byte (i, j) ends at (j, i). */
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < TILE / 2; i++) {
            b[2 * i] = __builtin_shufflevector(a[i], a[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            b[2 * i + 1] =
                __builtin_shufflevector(a[i], a[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
        memcpy(a, b, sizeof(a));
    }
    for (int i = 0; i < TILE; i++)
        *(bytes_t *)(to + i * stride) = a[i];
}

/* (rows, columns) at `from` to (columns, rows) at `to`, whose rows are `to_stride` apart. */
static void transpose(const unsigned char *from, int64_t from_stride, int64_t rows, int64_t columns, unsigned char *to,
                      int64_t to_stride)
{
    int64_t whole_rows = rows & -TILE, whole_columns = columns & -TILE;
    for (int64_t y = 0; y < whole_rows; y += TILE) {
        for (int64_t x = 0; x < whole_columns; x += TILE) {
            const unsigned char *block[TILE];
            for (int i = 0; i < TILE; i++)
                block[i] = from + (y + i) * from_stride + x;
            transpose_block(block, to + x * to_stride + y, to_stride);
        }
    }
    for (int64_t y = 0; y < rows; y++) {
        for (int64_t x = y < whole_rows ? whole_columns : 0; x < columns; x++)
            to[x * to_stride + y] = from[y * from_stride + x];
    }
}

/* ---- the two passes -------------------------------------------------------------------------------------- */
static void along_rows(const yk__resample *r, const unsigned char *from, int64_t rows, unsigned char *to)
{
    const yk__resample_filter *f = &r->horizontal;
    int64_t columns = f->first[f->out - 1] + f->count[f->out - 1] - f->first[0];
    unsigned char *in = r->scratch, *out = in + columns * GROUP;
    from += f->first[0];
    for (int64_t y = 0; y < rows; y += GROUP, from += GROUP * r->row_stride, to += GROUP * f->out) {
        int64_t n = rows - y < GROUP ? rows - y : GROUP;
        transpose(from, r->row_stride, n, columns, in, GROUP);
        for (int64_t o = 0; o < f->out; o++)
            weigh(in + (f->first[o] - f->first[0]) * GROUP, GROUP, f->weights + o * f->most, f->count[o],
                  out + o * GROUP, n);
        transpose(out, GROUP, f->out, n, to, f->out);
    }
}

static void resample(const yk__resample *r)
{
    if (YK__ISA_NAME(yk__resample_dot)(r))
        return;
    const yk__resample_filter *v = &r->vertical;
    int64_t width = r->horizontal.out, top = v->first[0], rows = v->first[v->out - 1] + v->count[v->out - 1] - top;
    unsigned char *to = r->to;
    for (int64_t plane = 0; plane < r->planes; plane++) {
        along_rows(r, r->from + plane * r->plane_stride + top * r->row_stride, rows, r->between);
        for (int64_t o = 0; o < v->out; o++, to += width)
            weigh(r->between + (v->first[o] - top) * width, width, v->weights + o * v->most, v->count[o], to, width);
    }
}

void YK__ISA_NAME(yk__cpu_fill_pictures)(yk__backend *table)
{
    table->augment = augment;
    table->split_pixels = split_pixels;
    table->resample = resample;
}
