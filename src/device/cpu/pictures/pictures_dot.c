/*
 * pictures_dot.c - resampling of bytes by dot products of four (AVX512-VNNI) and a permutation of bytes (AVX512-VBMI).
 * Layer: device/cpu, once per instruction set; all but AVX-512's have nothing here.
 *
 * A weight is three signed bytes, w = (d2 2^8 + d1) 2^8 + d0, so four bytes of an image take three instructions for 16
 * outputs, and the sums are the same integers as those of whole weights. Taps are done in groups of four; after the
 * last one weights are zero. Along rows the four bytes of an output are neighbours: one permutation of 64 bytes gathers
 * those of 16 outputs. Down the columns, four rows are interleaved.
 */
#include "device/cpu/pictures/pictures.h"

#if defined(__AVX512BW__)
#include <immintrin.h>
#include <string.h>

#define DOT __attribute__((target("avx512vnni,avx512vbmi")))

/* LANES: outputs of a vector. GROUPS: of taps; more belong to images that shrink more than the 64 bytes of a
 * permutation reach anyway. */
enum { FRACTION = YK__RESAMPLE_FRACTION, LANES = 16, GROUPS = 3, BYTES = 64 };
_Static_assert(FRACTION == 22, "a weight fits three signed bytes, and half of it is 32 in the highest one's units");

/* The three digits of a weight, at the same byte of each. */
static void put_digits(signed char *digits, int64_t apart, int weight)
{
    for (int d = 0; d < 3; d++, digits += apart) {
        *digits = (signed char)weight;
        weight = (weight - *digits) / 256;
    }
}

/* sums[2] * 2^16 + sums[1] * 2^8 + sums[0] as a byte, in 32 bits. */
static inline DOT __m512i finish(__m512i low, __m512i middle, __m512i high)
{
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, 8), middle);
    return _mm512_srai_epi32(_mm512_add_epi32(_mm512_slli_epi32(sum, 8), low), FRACTION);
}

/* ---- along rows -------------------------------------------------------------------------------------------------- */
/* The bytes and weights of 16 outputs and four taps. */
typedef struct gather {
    int64_t first;  /* of the 64 bytes that are read */
    uint64_t there; /* those of them that the row has */
    unsigned char index[BYTES];
    signed char digits[3][BYTES];
} gather;

static int group_count(const yk__resample_filter *f)
{
    int most = 0;
    for (int64_t o = 0; o < f->out; o++)
        most = f->count[o] > most ? f->count[o] : most;
    return (most + 3) / 4;
}

static void fill_gather(gather *g, const yk__resample_filter *f, int64_t o, int64_t n, int first_tap)
{
    int64_t columns = f->first[f->out - 1] + f->count[f->out - 1], left;
    g->first = f->first[o] + first_tap;
    left = columns - g->first;
    g->there = left >= BYTES ? ~(uint64_t)0 : left <= 0 ? 0 : ((uint64_t)1 << left) - 1;
    memset(g->index, 0, sizeof(g->index));
    memset(g->digits, 0, sizeof(g->digits));
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < 4; k++) {
            int tap = first_tap + k;
            g->index[4 * i + k] = (unsigned char)(f->first[o + i] - f->first[o] + k);
            if (tap < f->count[o + i])
                put_digits(&g->digits[0][4 * i + k], BYTES, f->weights[(o + i) * f->most + tap]);
        }
    }
}

static DOT void along_row(const gather *gathers, int groups, const unsigned char *from, unsigned char *to, int64_t n)
{
    for (int64_t o = 0; o < n; o += LANES) {
        __m512i low = _mm512_setzero_si512(), middle = low, high = _mm512_set1_epi32(1 << (FRACTION - 1 - 16));
        for (int k = 0; k < groups; k++, gathers++) {
            __m512i x = _mm512_maskz_loadu_epi8(gathers->there, from + gathers->first);
            x = _mm512_permutexvar_epi8(_mm512_loadu_si512(gathers->index), x);
            low = _mm512_dpbusd_epi32(low, x, _mm512_loadu_si512(gathers->digits[0]));
            middle = _mm512_dpbusd_epi32(middle, x, _mm512_loadu_si512(gathers->digits[1]));
            high = _mm512_dpbusd_epi32(high, x, _mm512_loadu_si512(gathers->digits[2]));
        }
        __mmask16 wanted = n - o >= LANES ? 0xffff : (__mmask16)((1 << (n - o)) - 1);
        _mm512_mask_cvtusepi32_storeu_epi8(to + o, wanted, finish(low, middle, high));
    }
}

/* ---- down the columns -------------------------------------------------------------------------------------------- */
/* Computes one row of the output; the taps begin at row `first` of `rows`. */
static DOT void down_columns(const unsigned char *from, int64_t width, int64_t rows, int64_t first, const int *weights,
                             int count, unsigned char *to)
{
    int groups = (count + 3) / 4;
    const unsigned char *row[4 * GROUPS];
    __m512i digits[3 * GROUPS];
    for (int g = 0; g < groups; g++) {
        signed char bytes[3][4] = {{0}};
        for (int k = 0; k < 4; k++) {
            int64_t at = first + 4 * g + k;
            row[4 * g + k] = from + (at < rows ? at : rows - 1) * width;
            if (4 * g + k < count)
                put_digits(&bytes[0][k], 4, weights[4 * g + k]);
        }
        for (int d = 0; d < 3; d++) {
            int four;
            memcpy(&four, bytes[d], sizeof(four));
            digits[3 * g + d] = _mm512_set1_epi32(four);
        }
    }
    for (int64_t i = 0; i < width; i += BYTES) {
        __mmask64 wanted = width - i >= BYTES ? ~(uint64_t)0 : ((uint64_t)1 << (width - i)) - 1;
        __m512i low[4], middle[4], high[4];
        for (int v = 0; v < 4; v++) {
            low[v] = middle[v] = _mm512_setzero_si512();
            high[v] = _mm512_set1_epi32(1 << (FRACTION - 1 - 16));
        }
        for (int g = 0; g < groups; g++) {
            __m512i r0 = _mm512_maskz_loadu_epi8(wanted, row[4 * g] + i);
            __m512i r1 = _mm512_maskz_loadu_epi8(wanted, row[4 * g + 1] + i);
            __m512i r2 = _mm512_maskz_loadu_epi8(wanted, row[4 * g + 2] + i);
            __m512i r3 = _mm512_maskz_loadu_epi8(wanted, row[4 * g + 3] + i);
            __m512i a = _mm512_unpacklo_epi8(r0, r1), b = _mm512_unpackhi_epi8(r0, r1);
            __m512i c = _mm512_unpacklo_epi8(r2, r3), d = _mm512_unpackhi_epi8(r2, r3);
            const __m512i x[4] = {_mm512_unpacklo_epi16(a, c), _mm512_unpackhi_epi16(a, c), _mm512_unpacklo_epi16(b, d),
                                  _mm512_unpackhi_epi16(b, d)};
            for (int v = 0; v < 4; v++) {
                low[v] = _mm512_dpbusd_epi32(low[v], x[v], digits[3 * g]);
                middle[v] = _mm512_dpbusd_epi32(middle[v], x[v], digits[3 * g + 1]);
                high[v] = _mm512_dpbusd_epi32(high[v], x[v], digits[3 * g + 2]);
            }
        }
        for (int v = 0; v < 4; v++)
            low[v] = finish(low[v], middle[v], high[v]);
        /* The packing undoes the interleaving, within 16 bytes as that did. */
        __m512i left = _mm512_packus_epi32(low[0], low[1]), right = _mm512_packus_epi32(low[2], low[3]);
        _mm512_mask_storeu_epi8(to + i, wanted, _mm512_packus_epi16(left, right));
    }
}

/* ---- both -------------------------------------------------------------------------------------------------------- */
bool YK__ISA_NAME(yk__resample_dot)(const yk__resample *r)
{
    const yk__resample_filter *h = &r->horizontal, *v = &r->vertical;
    int groups = group_count(h);
    int64_t blocks = (h->out + LANES - 1) / LANES, width = h->out;
    int64_t columns = h->first[h->out - 1] + h->count[h->out - 1] - h->first[0];
    size_t room = (size_t)(columns + h->out) * YK__RESAMPLE_GROUP;
    if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("avx512vbmi") || groups > GROUPS ||
        group_count(v) > GROUPS || (size_t)(blocks * groups + 1) * sizeof(gather) > room)
        return false;
    for (int64_t o = 0; o < h->out; o += LANES) {
        int64_t last = o + LANES < h->out ? o + LANES - 1 : h->out - 1;
        if (h->first[last] - h->first[o] + 4 > BYTES)
            return false;
    }
    gather *gathers = (gather *)(void *)(((uintptr_t)r->scratch + sizeof(uint64_t) - 1) & -sizeof(uint64_t));
    for (int64_t o = 0; o < h->out; o += LANES) {
        for (int k = 0; k < groups; k++)
            fill_gather(&gathers[o / LANES * groups + k], h, o, h->out - o < LANES ? h->out - o : LANES, 4 * k);
    }
    int64_t top = v->first[0], rows = v->first[v->out - 1] + v->count[v->out - 1] - top;
    unsigned char *to = r->to;
    for (int64_t plane = 0; plane < r->planes; plane++) {
        const unsigned char *from = r->from + plane * r->plane_stride + top * r->row_stride;
        for (int64_t y = 0; y < rows; y++)
            along_row(gathers, groups, from + y * r->row_stride, r->between + y * width, width);
        for (int64_t o = 0; o < v->out; o++, to += width)
            down_columns(r->between, width, rows, v->first[o] - top, v->weights + o * v->most, v->count[o], to);
    }
    return true;
}
#else
bool YK__ISA_NAME(yk__resample_dot)(const yk__resample *r)
{
    (void)r;
    return false;
}
#endif
