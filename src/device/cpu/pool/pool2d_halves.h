/*
 * pool2d_halves.h - halving a plane with dense rows by 2x2 windows, LeNet's pooling. Layer: device/cpu. Included by
 * pool2d.c.
 *
 * out[i] is the maximum of row0[2 i], row0[2 i + 1], row1[2 i] and row1[2 i + 1]. Rows of at most 16 would leave most
 * of a vector empty: where they follow each other, several pairs of them are done at a time.
 */

#ifdef __AVX512F__
static const int32_t counting[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const int32_t evens[16] = {0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30};

static void max_halves_f32(float *out, int32_t *index, const float *row0, const float *row1, int64_t n, int32_t at,
                           int32_t width)
{
    __m512i even = _mm512_loadu_si512(evens), odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 low = first_lanes(2 * (n - i)), high = first_lanes(2 * (n - i) - 16), all = first_lanes(n - i);
        __m512 a = _mm512_maskz_loadu_ps(low, row0 + 2 * i), b = _mm512_maskz_loadu_ps(high, row0 + 2 * i + 16);
        __m512 c = _mm512_maskz_loadu_ps(low, row1 + 2 * i), d = _mm512_maskz_loadu_ps(high, row1 + 2 * i + 16);
        __m512i k0 = _mm512_add_epi32(even, _mm512_set1_epi32(at + 2 * (int32_t)i)), k = k0;
        __m512i k1 = _mm512_add_epi32(k0, _mm512_set1_epi32(1)), down = _mm512_set1_epi32(width);
        __m512 m = _mm512_permutex2var_ps(a, even, b);
        max_take(&m, &k, _mm512_permutex2var_ps(a, odd, b), k1);
        max_take(&m, &k, _mm512_permutex2var_ps(c, even, d), _mm512_add_epi32(k0, down));
        max_take(&m, &k, _mm512_permutex2var_ps(c, odd, d), _mm512_add_epi32(k1, down));
        _mm512_mask_storeu_ps(out + i, all, m);
        _mm512_mask_storeu_epi32(index + i, all, k);
    }
}

static void grad_halves_f32(float *row0, float *row1, const float *g, const int32_t *index, int64_t n, int32_t at,
                            int32_t width)
{
    static const int32_t spread[2][16] = {{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23},
                                          {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}};
    __m512i even = _mm512_loadu_si512(evens);
    __m512i left = _mm512_loadu_si512(spread[0]), right = _mm512_loadu_si512(spread[1]);
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 low = first_lanes(2 * (n - i)), high = first_lanes(2 * (n - i) - 16), all = first_lanes(n - i);
        __m512i k = _mm512_maskz_loadu_epi32(all, index + i);
        __m512 v = _mm512_maskz_loadu_ps(all, g + i);
        __m512i k0 = _mm512_add_epi32(even, _mm512_set1_epi32(at + 2 * (int32_t)i));
        __m512i k1 = _mm512_add_epi32(k0, _mm512_set1_epi32(1)), down = _mm512_set1_epi32(width);
        __m512 a = _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(k, k0), v);
        __m512 b = _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(k, k1), v);
        __m512 c = _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(k, _mm512_add_epi32(k0, down)), v);
        __m512 d = _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(k, _mm512_add_epi32(k1, down)), v);
        _mm512_mask_storeu_ps(row0 + 2 * i, low, _mm512_permutex2var_ps(a, left, b));
        _mm512_mask_storeu_ps(row1 + 2 * i, low, _mm512_permutex2var_ps(c, left, d));
        if (high) {
            _mm512_mask_storeu_ps(row0 + 2 * i + 16, high, _mm512_permutex2var_ps(a, right, b));
            _mm512_mask_storeu_ps(row1 + 2 * i + 16, high, _mm512_permutex2var_ps(c, right, d));
        }
    }
}

/* Pools a plane of short rows, j->pairs pairs of rows at a time: they lie next to each other, in and out. */
static void max_pairs(const pooling *j, float *out, int32_t *index, const float *x)
{
    __m512i corner = _mm512_loadu_si512(j->corner), one = _mm512_set1_epi32(1);
    __m512i right = _mm512_add_epi32(corner, one), down = _mm512_add_epi32(corner, _mm512_set1_epi32((int)j->in.w));
    __m512i last = _mm512_add_epi32(down, one);
    for (int64_t oy = 0; oy < j->out.h; oy += j->pairs) {
        int64_t pairs = j->out.h - oy < j->pairs ? j->out.h - oy : j->pairs, size = 2 * pairs * j->in.w;
        __mmask16 all = first_lanes(pairs * j->out.w);
        __m512 a = _mm512_maskz_loadu_ps(first_lanes(size), x),
               b = _mm512_maskz_loadu_ps(first_lanes(size - 16), x + 16);
        __m512 m = _mm512_permutex2var_ps(a, corner, b);
        __m512i k = corner;
        max_take(&m, &k, _mm512_permutex2var_ps(a, right, b), right);
        max_take(&m, &k, _mm512_permutex2var_ps(a, down, b), down);
        max_take(&m, &k, _mm512_permutex2var_ps(a, last, b), last);
        _mm512_mask_storeu_ps(out, all, m);
        _mm512_mask_storeu_epi32(index, all, _mm512_add_epi32(k, _mm512_set1_epi32((int)(2 * oy * j->in.w))));
        x += size;
        out += pairs * j->out.w;
        index += pairs * j->out.w;
    }
}

static void grad_pairs(const pooling *j, float *gx, const float *g, const int32_t *index)
{
    __m512i owner0 = _mm512_loadu_si512(j->owner[0]), owner1 = _mm512_loadu_si512(j->owner[1]);
    for (int64_t oy = 0; oy < j->out.h; oy += j->pairs) {
        int64_t pairs = j->out.h - oy < j->pairs ? j->out.h - oy : j->pairs, size = 2 * pairs * j->in.w;
        __mmask16 all = first_lanes(pairs * j->out.w);
        __m512i k = _mm512_maskz_loadu_epi32(all, index);
        __m512 v = _mm512_maskz_loadu_ps(all, g);
        __m512i at = _mm512_add_epi32(_mm512_loadu_si512(counting), _mm512_set1_epi32((int)(2 * oy * j->in.w)));
        __mmask16 hit = _mm512_cmpeq_epi32_mask(_mm512_permutexvar_epi32(owner0, k), at);
        _mm512_mask_storeu_ps(gx, first_lanes(size), _mm512_maskz_permutexvar_ps(hit, owner0, v));
        hit = _mm512_cmpeq_epi32_mask(_mm512_permutexvar_epi32(owner1, k), _mm512_add_epi32(at, _mm512_set1_epi32(16)));
        if (size > 16)
            _mm512_mask_storeu_ps(gx + 16, first_lanes(size - 16), _mm512_maskz_permutexvar_ps(hit, owner1, v));
        gx += size;
        g += pairs * j->out.w;
        index += pairs * j->out.w;
    }
}
#endif

#define HALVES(T, S)                                                                                                   \
    static void max_halves_##S(T *restrict out, int32_t *restrict index, const T *row0, const T *row1, int64_t n,      \
                               int32_t at, int32_t width)                                                              \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            T v[4] = {row0[2 * i], row0[2 * i + 1], row1[2 * i], row1[2 * i + 1]}, m = v[0];                           \
            int32_t k0 = at + 2 * (int32_t)i, k = k0;                                                                  \
            bool take = (v[1] > m) | (v[1] != v[1]);                                                                   \
            m = take ? v[1] : m, k = take ? k0 + 1 : k;                                                                \
            take = (v[2] > m) | (v[2] != v[2]);                                                                        \
            m = take ? v[2] : m, k = take ? k0 + width : k;                                                            \
            take = (v[3] > m) | (v[3] != v[3]);                                                                        \
            m = take ? v[3] : m, k = take ? k0 + width + 1 : k;                                                        \
            out[i] = m, index[i] = k;                                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    static void grad_halves_##S(T *restrict row0, T *restrict row1, const T *restrict g,                               \
                                const int32_t *restrict index, int64_t n, int32_t at, int32_t width)                   \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            int32_t k = index[i] - at - 2 * (int32_t)i;                                                                \
            T v = g[i];                                                                                                \
            row0[2 * i] = k == 0 ? v : 0;                                                                              \
            row0[2 * i + 1] = k == 1 ? v : 0;                                                                          \
            row1[2 * i] = k == width ? v : 0;                                                                          \
            row1[2 * i + 1] = k == width + 1 ? v : 0;                                                                  \
        }                                                                                                              \
    }
#ifndef __AVX512F__
HALVES(float, f32)
#endif
HALVES(double, f64)

/* Pools a plane by pairs of rows if it may; false, with nothing done, if not. */
static bool max_plane_f32(const pooling *j, float *out, int32_t *index, const float *x)
{
#ifdef __AVX512F__
    if (j->pairs)
        max_pairs(j, out, index, x);
#else
    (void)j, (void)out, (void)index, (void)x;
#endif
    return j->pairs > 0;
}

static bool grad_plane_f32(const pooling *j, float *gx, const float *g, const int32_t *index)
{
#ifdef __AVX512F__
    if (j->pairs)
        grad_pairs(j, gx, g, index);
#else
    (void)j, (void)gx, (void)g, (void)index;
#endif
    return j->pairs > 0;
}

static bool max_plane_f64(const pooling *j, double *out, int32_t *index, const double *x)
{
    (void)j, (void)out, (void)index, (void)x;
    return false;
}

static bool grad_plane_f64(const pooling *j, double *gx, const double *g, const int32_t *index)
{
    (void)j, (void)gx, (void)g, (void)index;
    return false;
}
