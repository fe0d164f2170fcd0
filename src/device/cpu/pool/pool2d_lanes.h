/*
 * pool2d_lanes.h - pooling over planes with dense rows, sixteen neighbours of a row at a time. Layer: device/cpu.
 * Included by pool2d.c.
 *
 * Windows along a row are cut into pieces of at most 16 that read at most 32 neighbours: two vectors. A permutation per
 * tap brings the element of each window into its lane. The permutations depend on the sizes alone, and are made once
 * per call. What a row gives is combined down the columns: an average adds the rows of a window before it permutes
 * them; a maximum, and the gradient of an average, go along a row first, and keep that for the next windows or inputs
 * that read the same row. A maximum that takes the first of equals along each row, and then down the column, takes the
 * first of the window.
 */

#ifdef __AVX512F__
/* Rows that are kept while those that read them are made, a power of two; pieces of a row that are done before the next
 * row is begun: memory is read in order, and the kept rows stay in L1. */
enum { KEPT_ROWS = 8, GROUP = 8 };

/* The results that are kept: v[i] was made of row[i]; -1: of none yet. `at` is the position of a maximum. */
typedef struct kept_rows {
    int64_t row[KEPT_ROWS];
    __m512 v[KEPT_ROWS][GROUP];
    __m512i at[KEPT_ROWS][GROUP];
} kept_rows;

#define INLINE static inline __attribute__((always_inline))

/* Cuts a row of n lanes that reads a row of `size` into pieces; 0 where a lane alone reads farther than two vectors. */
static int64_t cut_lanes(lane_piece *pieces, const lane_reads *reads, int64_t n, int64_t size)
{
    int64_t count = 0;
    for (int64_t at = 0; at < n; count++) {
        int64_t base = size, end = 0, lanes = 0, taps = 0;
        for (; lanes < 16 && at + lanes < n; lanes++) {
            const lane_reads *r = &reads[at + lanes];
            int64_t low = base, high = end;
            for (int64_t t = 0; t < r->taps; t++) {
                int64_t i = r->first + t * r->step;
                low = i >= 0 && i < size && i < low ? i : low;
                high = i >= 0 && i < size && i >= high ? i + 1 : high;
            }
            if (r->taps > MOST_LANE_TAPS || (high > low && high - low > 32))
                break;
            base = low;
            end = high;
            taps = r->taps > taps ? r->taps : taps;
        }
        if (!lanes)
            return 0;
        base = base < end ? base : 0; /* none of them reads anything */
        lane_piece *p = &pieces[count];
        *p = (lane_piece){.at = at, .count = lanes, .base = base, .reach = base < end ? end - base : 0};
        p->lanes = first_lanes(lanes);
        p->taps = (int)taps;
        for (int64_t l = 0; l < lanes; l++) {
            for (int64_t t = 0; t < reads[at + l].taps; t++) {
                int64_t i = reads[at + l].first + t * reads[at + l].step;
                if (i < 0 || i >= size)
                    continue;
                p->tap[t].from[l] = (int32_t)(i - base);
                p->tap[t].mask |= 1 << l;
            }
        }
        at += lanes;
    }
    return count;
}

/* The elements that may be read from a plane's first one on: to the end of a tensor without gaps, for loads of whole
 * vectors are up to three times as fast as those of some lanes, and elements that a piece does not reach are not
 * used. */
static inline int64_t readable(const side *s, const float *plane)
{
    int64_t extent = (s->h - 1) * s->h_step + s->w;
    return s->total ? s->total - (plane - (const float *)s->data) : extent;
}

/* Loads v[0] and, if `two`, v[1], which a piece reads from x + at on. `two`, here and below: of some piece a lane reads
 * it. */
INLINE void load_reach(__m512 v[2], const lane_piece *p, const float *x, int64_t at, int64_t limit, const bool two)
{
    if (at + (two ? 32 : 16) <= limit) {
        v[0] = _mm512_loadu_ps(x + at);
        v[1] = two ? _mm512_loadu_ps(x + at + 16) : v[0];
    } else {
        v[0] = _mm512_maskz_loadu_ps(first_lanes(p->reach), x + at);
        v[1] = two ? _mm512_maskz_loadu_ps(first_lanes(p->reach - 16), x + at + 16) : v[0];
    }
}

INLINE __m512 tap_of(const __m512 v[2], const lane_piece *p, int t, const bool two)
{
    __m512i from = _mm512_loadu_si512(p->tap[t].from);
    __mmask16 mask = (__mmask16)p->tap[t].mask;
    return two ? _mm512_maskz_permutex2var_ps(mask, v[0], from, v[1]) : _mm512_maskz_permutexvar_ps(mask, from, v[0]);
}

/* taps: those of a lane, at most; 0 where that is no constant of the caller's; so below. */
INLINE __m512 add_taps(const __m512 v[2], const lane_piece *p, const int taps, const bool two)
{
    int n = taps ? taps : p->taps;
    __m512 sum = n ? tap_of(v, p, 0, two) : _mm512_setzero_ps();
    for (int t = 1; t < n; t++)
        sum = _mm512_add_ps(sum, tap_of(v, p, t, two));
    return sum;
}

/* Calls f(..., limit, taps, two): a limit that is none where all of a plane may be read by whole vectors, so that no
 * row is compared with it; constants for the usual numbers of taps. `from`: the plane of `side` that is read. */
#define CALL_BY_LIMIT(f, side, from, ...)                                                                              \
    do {                                                                                                               \
        int64_t limit_ = readable(side, from), end_ = ((side)->h - 1) * (side)->h_step + (side)->w + 32;               \
        if (end_ <= limit_)                                                                                            \
            CALL_BY_TAPS(f, __VA_ARGS__, INT64_MAX)                                                                    \
        else                                                                                                           \
            CALL_BY_TAPS(f, __VA_ARGS__, limit_)                                                                       \
    } while (0)
#define CALL_BY_TAPS(f, ...)                                                                                           \
    switch (j->taps * 2 + j->two) {                                                                                    \
    case 2: f(__VA_ARGS__, 1, false); break;                                                                           \
    case 3: f(__VA_ARGS__, 1, true); break;                                                                            \
    case 4: f(__VA_ARGS__, 2, false); break;                                                                           \
    case 5: f(__VA_ARGS__, 2, true); break;                                                                            \
    case 6: f(__VA_ARGS__, 3, false); break;                                                                           \
    case 7: f(__VA_ARGS__, 3, true); break;                                                                            \
    default: f(__VA_ARGS__, 0, true);                                                                                  \
    }

/* ---- averages ---- */

/* Rows `first` to first + count - 1 of x, each times its factor if there are factors, added up. */
INLINE void sum_rows(__m512 sum[2], const lane_piece *p, const float *x, int64_t step, int64_t first, int64_t count,
                     const float *factor, int64_t limit, const bool two)
{
    sum[0] = sum[1] = _mm512_setzero_ps();
    int64_t at = first * step + p->base;
    if (count == 2 && !factor) { /* the usual number */
        __m512 v[2];
        load_reach(sum, p, x, at, limit, two);
        load_reach(v, p, x, at + step, limit, two);
        sum[0] = _mm512_add_ps(sum[0], v[0]);
        sum[1] = two ? _mm512_add_ps(sum[1], v[1]) : sum[0];
        return;
    }
    for (int64_t i = 0; i < count; i++, at += step) {
        __m512 v[2];
        load_reach(v, p, x, at, limit, two);
        if (factor) {
            __m512 f = _mm512_set1_ps(factor[first + i]);
            sum[0] = _mm512_fmadd_ps(v[0], f, sum[0]);
            sum[1] = two ? _mm512_fmadd_ps(v[1], f, sum[1]) : sum[0];
        } else {
            sum[0] = i ? _mm512_add_ps(sum[0], v[0]) : v[0];
            sum[1] = !two ? sum[0] : i ? _mm512_add_ps(sum[1], v[1]) : v[1];
        }
    }
}

INLINE void average_rows(const pooling *j, float *out, const float *x, const int64_t limit, const int taps,
                         const bool two)
{
    const int64_t step = j->in.h_step, out_step = j->out.h_step, rows = j->out.h;
    const lane_piece *first = j->piece, *end = first + j->pieces;
    const float *factor = j->row_factor;
    for (int64_t oy = 0; oy < rows; oy++) {
        const window *wy = &j->row_windows[oy];
        for (const lane_piece *p = first; p < end; p++) {
            __m512 sum[2];
            sum_rows(sum, p, x, step, wy->low, wy->high - wy->low, NULL, limit, two);
            __m512 mean = _mm512_mul_ps(add_taps(sum, p, taps, two), _mm512_loadu_ps(p->inverse));
            if (factor)
                mean = _mm512_mul_ps(mean, _mm512_set1_ps(factor[oy]));
            _mm512_mask_storeu_ps(out + oy * out_step + p->at, (__mmask16)p->lanes, mean);
        }
    }
}

/* Two rows of outputs at a time: the second one's are the upper lanes of the only piece, and read v[1]. */
INLINE void average_pairs(const pooling *j, float *out, const float *x, const int64_t limit, const int taps,
                          const bool two)
{
    (void)two; /* of a single row: false */
    const lane_piece *p = j->piece;
    const int64_t step = j->in.h_step, n = j->out.w, rows = j->out.h;
    const __m512 inverse = _mm512_loadu_ps(p->inverse);
    const __mmask16 lower = first_lanes(n), all = first_lanes(2 * n);
    const float *factor = j->row_factor;
    for (int64_t oy = 0; oy < rows; oy += 2) {
        const window *wy = &j->row_windows[oy];
        bool both = oy + 1 < rows;
        __m512 v[2], second[2] = {_mm512_setzero_ps()};
        sum_rows(v, p, x, step, wy->low, wy->high - wy->low, NULL, limit, false);
        if (both)
            sum_rows(second, p, x, step, wy[1].low, wy[1].high - wy[1].low, NULL, limit, false);
        v[1] = second[0];
        __m512 mean = _mm512_mul_ps(add_taps(v, p, taps, true), inverse);
        if (factor)
            mean = _mm512_mul_ps(
                mean, _mm512_mask_mov_ps(_mm512_set1_ps(factor[oy + both]), lower, _mm512_set1_ps(factor[oy])));
        _mm512_mask_storeu_ps(out + oy * n, both ? all : lower, mean);
    }
}

static void average_lanes(const pooling *j, float *out, const float *x)
{
    if (j->paired)
        CALL_BY_LIMIT(average_pairs, &j->in, x, j, out, x);
    else
        CALL_BY_LIMIT(average_rows, &j->in, x, j, out, x);
}

INLINE void average_grad_rows(const pooling *j, float *gx, const float *g, const int64_t limit, const int taps,
                              const bool two)
{
    const int64_t step = j->out.h_step, gx_step = j->in.h_step, rows = j->in.h;
    const lane_piece *first = j->piece, *end = first + j->pieces;
    const float *factor = j->row_factor;
    for (int64_t iy = 0, same; iy < rows; iy += same) {
        const cover *c = &j->rows[iy];
        same = c->same;
        for (const lane_piece *p = first; p < end; p++) {
            __m512 sum[2];
            sum_rows(sum, p, g, step, c->first, c->last - c->first + 1, factor, limit, two);
            sum[0] = _mm512_mul_ps(sum[0], _mm512_loadu_ps(p->inverse));
            sum[1] = two ? _mm512_mul_ps(sum[1], _mm512_loadu_ps(p->inverse + 16)) : sum[0];
            sum[0] = add_taps(sum, p, taps, two);
            float *to = gx + iy * gx_step + p->at;
            _mm512_mask_storeu_ps(to, (__mmask16)p->lanes, sum[0]);
            for (int64_t r = 1; r < same; r++)
                _mm512_mask_storeu_ps(to += gx_step, (__mmask16)p->lanes, sum[0]);
        }
    }
}

/* The same for one piece and windows of which at most two share a row: the gradient from a row of outputs is computed
 * once. */
INLINE void average_grad_single(const pooling *j, float *gx, const float *g, const int64_t limit, const int taps,
                                const bool two)
{
    const int64_t step = j->out.h_step, gx_step = j->in.h_step, rows = j->in.h;
    const lane_piece *p = j->piece;
    const float *factor = j->row_factor;
    const __m512 inverse = _mm512_loadu_ps(p->inverse), right = _mm512_loadu_ps(p->inverse + 16);
    const __mmask16 lanes = (__mmask16)p->lanes;
    __m512 last = _mm512_setzero_ps();
    int64_t last_row = -1;
    float *to = gx + p->at;
    for (int64_t iy = 0; iy < rows;) {
        const cover *c = &j->rows[iy];
        __m512 sum = c->first == last_row ? last : _mm512_setzero_ps();
        for (int64_t oy = c->first == last_row ? last_row + 1 : c->first; oy <= c->last; oy++) {
            __m512 v[2];
            load_reach(v, p, g, oy * step + p->base, limit, two);
            v[0] = _mm512_mul_ps(v[0], inverse);
            v[1] = two ? _mm512_mul_ps(v[1], right) : v[0];
            last = add_taps(v, p, taps, two);
            if (factor)
                last = _mm512_mul_ps(last, _mm512_set1_ps(factor[oy]));
            last_row = oy;
            sum = _mm512_add_ps(sum, last);
        }
        for (int64_t end = iy + c->same; iy < end; iy++, to += gx_step)
            _mm512_mask_storeu_ps(to, lanes, sum);
    }
}

static void average_grad_lanes(const pooling *j, float *gx, const float *g)
{
    if (j->single)
        CALL_BY_LIMIT(average_grad_single, &j->out, g, j, gx, g);
    else
        CALL_BY_LIMIT(average_grad_rows, &j->out, g, j, gx, g);
}

/* ---- the average of a plane ---- */

/* Sixteen sums of the elements of a plane, n; `limit` of them may be read. vectors: n / 16 where that is less than 4,
 * else 4. */
INLINE __m512 plane_sums(const float *x, int64_t n, int64_t limit, const int vectors)
{
    __m512 s[4];
    for (int k = 0; k < 4; k++)
        s[k] = k < vectors ? _mm512_loadu_ps(x + 16 * k) : _mm512_setzero_ps();
    int64_t i = 16 * vectors;
    for (; vectors == 4 && i + 64 <= n; i += 64) {
        for (int k = 0; k < 4; k++)
            s[k] = _mm512_add_ps(s[k], _mm512_loadu_ps(x + i + 16 * k));
    }
    for (; vectors == 4 && i + 16 <= n; i += 16)
        s[0] = _mm512_add_ps(s[0], _mm512_loadu_ps(x + i));
    if (i < n) {
        __mmask16 rest = first_lanes(n - i);
        __m512 v = i + 16 <= limit ? _mm512_loadu_ps(x + i) : _mm512_maskz_loadu_ps(rest, x + i);
        s[3] = _mm512_mask_add_ps(s[3], rest, s[3], v);
    }
    return _mm512_add_ps(_mm512_add_ps(s[0], s[1]), _mm512_add_ps(s[2], s[3]));
}

/* Lane i is the sum of the lanes of v[i]. v is overwritten. */
static inline __m512 sum_each(__m512 v[16])
{
    for (int i = 0; i < 8; i++)
        v[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 4; i++) {
        __m512d a = _mm512_castps_pd(v[2 * i]), b = _mm512_castps_pd(v[2 * i + 1]);
        v[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    for (int n = 2; n > 0; n /= 2) {
        for (int i = 0; i < n; i++)
            v[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x88),
                                 _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xDD));
    }
    return v[0];
}

/* Averages planes `begin` to `end` - 1 to one output each, sixteen at a time. */
INLINE void average_whole_by(const pooling *j, int64_t begin, int64_t end, const int vectors)
{
    int64_t size = j->in.h * j->in.w, n = begin / j->channels, c = begin % j->channels;
    __m512 inputs = _mm512_set1_ps((float)divisor(j, j->row_windows, j->col_windows));
    for (int64_t item = begin; item < end; item += 16) {
        int count = end - item < 16 ? (int)(end - item) : 16;
        __m512 v[16];
        float *out[16], mean[16];
        for (int i = 0; i < 16; i++) {
            if (i >= count) {
                v[i] = _mm512_setzero_ps();
                continue;
            }
            const float *x = (const float *)j->in.data + n * j->in.n_step + c * j->in.c_step;
            out[i] = (float *)j->out.data + n * j->out.n_step + c * j->out.c_step;
            v[i] = plane_sums(x, size, readable(&j->in, x), vectors);
            if (++c == j->channels) {
                c = 0;
                n++;
            }
        }
        _mm512_storeu_ps(mean, _mm512_div_ps(sum_each(v), inputs));
        for (int i = 0; i < count; i++)
            *out[i] = mean[i];
    }
}

static void average_whole(const pooling *j, int64_t begin, int64_t end)
{
    switch (j->in.h * j->in.w / 16) {
    case 0: average_whole_by(j, begin, end, 0); break;
    case 1: average_whole_by(j, begin, end, 1); break;
    case 2: average_whole_by(j, begin, end, 2); break;
    case 3: average_whole_by(j, begin, end, 3); break;
    default: average_whole_by(j, begin, end, 4);
    }
}

/* ---- maximum ---- */

/* The maximum of each window along row iy, and its index. Taps that are not there are others of the window. */
INLINE void max_along(kept_rows *kept, int slot, const pooling *j, const lane_piece *p, int64_t pieces, const float *x,
                      int64_t iy, int64_t limit, const int taps, const bool two)
{
    int n = taps ? taps : j->taps;
#pragma GCC unroll 1
    for (int64_t i = 0; i < pieces; i++, p++) {
        __m512 v[2];
        load_reach(v, p, x, iy * j->in.h_step + p->base, limit, two);
        __mmask16 nan = _mm512_cmp_ps_mask(v[0], v[1], _CMP_UNORD_Q);
        __m512i k = _mm512_loadu_si512(p->tap[0].from);
        __m512 m = two ? _mm512_permutex2var_ps(v[0], k, v[1]) : _mm512_permutexvar_ps(k, v[0]);
        for (int t = 1; t < n; t++) {
            __m512i at = _mm512_loadu_si512(p->tap[t].from);
            __m512 u = two ? _mm512_permutex2var_ps(v[0], at, v[1]) : _mm512_permutexvar_ps(at, v[0]);
            if (__builtin_expect(nan != 0, 0)) {
                max_take(&m, &k, u, at);
            } else {
                k = _mm512_mask_mov_epi32(k, _mm512_cmp_ps_mask(u, m, _CMP_GT_OQ), at);
                m = _mm512_max_ps(u, m); /* m of equals */
            }
        }
        kept->v[slot][i] = m;
        kept->at[slot][i] = _mm512_add_epi32(k, _mm512_set1_epi32((int32_t)(iy * j->in.w + p->base)));
    }
}

/* Computes row oy of a group's outputs from n kept rows, 0 where a window holds no row; `more`: and from outputs that
 * were written before. */
INLINE void max_down(const kept_rows *kept, const int *slot, int n, bool more, const lane_piece *p, int64_t pieces,
                     float *out, int32_t *index)
{
    const __m512 lowest = _mm512_set1_ps(-INFINITY);
    const __m512i nowhere = _mm512_set1_epi32(-1);
#pragma GCC unroll 1
    for (int64_t i = 0; i < pieces; i++, p++) {
        __mmask16 lanes = (__mmask16)p->lanes, none = (__mmask16)p->empty; /* windows without inputs */
        __m512 m = more ? _mm512_maskz_loadu_ps(lanes, out + p->at) : n ? kept->v[slot[0]][i] : lowest;
        __m512i k = more ? _mm512_maskz_loadu_epi32(lanes, index + p->at) : n ? kept->at[slot[0]][i] : nowhere;
        for (int r = !more; r < n; r++)
            max_take(&m, &k, kept->v[slot[r]][i], kept->at[slot[r]][i]);
        _mm512_mask_storeu_ps(out + p->at, lanes, _mm512_mask_mov_ps(m, none, lowest));
        _mm512_mask_storeu_epi32(index + p->at, lanes, _mm512_mask_mov_epi32(k, none, nowhere));
    }
}

INLINE void max_rows(const pooling *j, float *out, int32_t *index, const float *x, const int64_t limit, const int taps,
                     const bool two)
{
    const yk__pool2d *w = j->p;
    const int64_t rows = w->kernel[0], dilation = w->dilation[0];
    const bool keeps = (rows - 1) * dilation < KEPT_ROWS; /* else rows are made anew for every window */
    kept_rows kept;
    for (int64_t group = 0; group < j->pieces; group += GROUP) {
        int64_t pieces = j->pieces - group < GROUP ? j->pieces - group : GROUP;
        const lane_piece *p = j->piece + group;
        memset(kept.row, -1, sizeof kept.row);
        for (int64_t oy = 0; oy < j->out.h; oy++) {
            float *to = out + oy * j->out.h_step;
            int32_t *to_index = index + oy * j->index.h_step;
            int slot[KEPT_ROWS], n = 0;
            bool more = false;
            int64_t iy = oy * w->stride[0] - w->padding[0];
            for (int64_t ky = 0; ky < rows; ky++, iy += dilation) {
                if (iy < 0 || iy >= j->in.h)
                    continue;
                if (n == KEPT_ROWS) {
                    max_down(&kept, slot, n, more, p, pieces, to, to_index);
                    more = true;
                    n = 0;
                }
                int s = keeps ? (int)(iy % KEPT_ROWS) : n;
                if (!keeps || kept.row[s] != iy)
                    max_along(&kept, s, j, p, pieces, x, iy, limit, taps, two);
                kept.row[s] = iy;
                slot[n++] = s;
            }
            if (n == 3 && !more) /* the usual ones, with a constant number of rows */
                max_down(&kept, slot, 3, false, p, pieces, to, to_index);
            else if (n == 2 && !more)
                max_down(&kept, slot, 2, false, p, pieces, to, to_index);
            else
                max_down(&kept, slot, n, more, p, pieces, to, to_index);
        }
    }
}

static void max_lanes(const pooling *j, float *out, int32_t *index, const float *x)
{
    int64_t limit = readable(&j->in, x);
    CALL_BY_TAPS(max_rows, j, out, index, x, limit)
}

/* Gives a lane of a maximum whose tap is outside of the map the nearest tap that is inside: the taps inside follow each
 * other along a row, so that the one which is read again is the one that was taken, or not taken, just before. */
static void fill_missing_taps(lane_piece *p, int taps)
{
    for (int l = 0; l < 16; l++) {
        int first = 0, last = taps - 1;
        while (first < taps && !(p->tap[first].mask >> l & 1))
            first++;
        while (last >= 0 && !(p->tap[last].mask >> l & 1))
            last--;
        if (first > last) {
            p->empty |= 1 << l;
            continue;
        }
        for (int t = 0; t < first; t++)
            p->tap[t].from[l] = p->tap[first].from[l];
        for (int t = last + 1; t < taps; t++)
            p->tap[t].from[l] = p->tap[last].from[l];
    }
}

/* Pairs rows of up to 8 outputs that read up to 16 inputs: two of them fill a piece. */
static void pair_rows(pooling *j)
{
    lane_piece *p = j->piece;
    int n = (int)j->out.w;
    if (j->pieces != 1 || n > 8 || j->two || j->out.h_step != j->out.w || j->out.h < 2)
        return;
    j->paired = true;
    for (int t = 0; t < p->taps; t++) {
        for (int l = 0; l < n; l++)
            p->tap[t].from[n + l] = p->tap[t].from[l] + 16;
        p->tap[t].mask |= p->tap[t].mask << n;
    }
    for (int l = 0; l < n; l++)
        p->inverse[n + l] = p->inverse[l];
}
#endif

/* Fills j->piece, which has room for n pieces, from the reads of each of the n elements of a row that is written;
 * `size` is that of a row that is read. factor: room for one of each row of outputs, for averages. */
static void prepare_lanes(pooling *j, const lane_reads *reads, int64_t n, int64_t size, float *factor, bool backward)
{
#ifdef __AVX512F__
    j->pieces = cut_lanes(j->piece, reads, n, size);
    for (int64_t i = 0; i < j->pieces; i++) {
        j->taps = j->piece[i].taps > j->taps ? j->piece[i].taps : j->taps;
        j->two = j->two || j->piece[i].reach > 16;
    }
    for (int64_t i = 0; i < j->pieces && !j->col_windows; i++)
        fill_missing_taps(&j->piece[i], j->taps);
    if (!j->col_windows || !j->pieces)
        return;
    double usual = j->out.h > 0 ? row_size(j, &j->row_windows[j->out.h / 2]) : 1;
    usual = usual > 0 ? usual : 1;
    for (int64_t i = 0; i < j->pieces; i++) {
        lane_piece *p = &j->piece[i];
        for (int64_t l = 0; l < 32; l++) {
            bool inside = l < (backward ? p->reach : p->count);
            double width = inside ? col_size(j, &j->col_windows[(backward ? p->base : p->at) + l]) : 1;
            p->inverse[l] = width > 0 ? (float)(1 / (width * usual)) : 0;
        }
    }
    for (int64_t oy = 0; oy < j->out.h; oy++) {
        const window *wy = &j->row_windows[oy];
        double rows = wy->low < wy->high ? row_size(j, wy) : usual; /* a window without rows: its sum is 0 */
        factor[oy] = (float)(usual / rows);
        j->row_factor = rows == usual ? j->row_factor : factor;
    }
    if (!backward) {
        pair_rows(j);
        return;
    }
    j->single = j->pieces == 1;
    for (int64_t iy = 0; iy < j->in.h; iy++)
        j->single = j->single && j->rows[iy].last - j->rows[iy].first <= 1;
#else
    (void)j, (void)reads, (void)n, (void)size, (void)factor, (void)backward;
#endif
}

/* Averages a plane in lanes if it may; false, with nothing done, if not. */
static bool average_plane_f32(const pooling *j, float *out, const float *x)
{
#ifdef __AVX512F__
    if (j->pieces)
        average_lanes(j, out, x);
#else
    (void)j, (void)out, (void)x;
#endif
    return j->pieces > 0;
}

/* Averages whole planes if they are contiguous and their lanes may be summed in float; false, with nothing done, if
 * not. */
static bool average_whole_planes_f32(const pooling *j, int64_t begin, int64_t end)
{
#ifdef __AVX512F__
    const window *y = j->row_windows, *x = j->col_windows;
    bool whole = j->out.h * j->out.w == 1 && j->in.w_step == 1 && (j->in.h_step == j->in.w || j->in.h == 1) &&
                 y->low == 0 && y->high == j->in.h && x->low == 0 && x->high == j->in.w &&
                 j->in.h * j->in.w <= SUM_BLOCK;
    if (whole)
        average_whole(j, begin, end);
    return whole;
#else
    (void)j, (void)begin, (void)end;
    return false;
#endif
}

static bool average_grad_plane_f32(const pooling *j, float *gx, const float *g)
{
#ifdef __AVX512F__
    if (j->pieces)
        average_grad_lanes(j, gx, g);
#else
    (void)j, (void)gx, (void)g;
#endif
    return j->pieces > 0;
}

static bool max_plane_lanes_f32(const pooling *j, float *out, int32_t *index, const float *x)
{
#ifdef __AVX512F__
    if (j->pieces)
        max_lanes(j, out, index, x);
#else
    (void)j, (void)out, (void)index, (void)x;
#endif
    return j->pieces > 0;
}

static bool average_plane_f64(const pooling *j, double *out, const double *x)
{
    (void)j, (void)out, (void)x;
    return false;
}

static bool average_whole_planes_f64(const pooling *j, int64_t begin, int64_t end)
{
    (void)j, (void)begin, (void)end;
    return false;
}

static bool average_grad_plane_f64(const pooling *j, double *gx, const double *g)
{
    (void)j, (void)gx, (void)g;
    return false;
}

static bool max_plane_lanes_f64(const pooling *j, double *out, int32_t *index, const double *x)
{
    (void)j, (void)out, (void)index, (void)x;
    return false;
}
