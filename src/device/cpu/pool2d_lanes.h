/*
 * pool2d_lanes.h - pooling over planes with dense rows, sixteen neighbours of a row at a time. Layer: device/cpu.
 * Included by pool2d.c.
 *
 * Windows along a row are cut into pieces of at most 16 that read at most 32 neighbours: two vectors, to which the rows
 * of a window are added first. A permutation per tap then brings the element of each window into its lane. The gradient
 * of an average goes the same way, from the outputs whose windows hold an input. The permutations depend on the sizes
 * alone, and are made once per call.
 */

#ifdef __AVX512F__
/* Pieces of a row of n lanes that reads a row of `size`; 0 where a lane alone reads farther than two vectors. */
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

/* Loads of whole vectors are up to three times as fast as those of some lanes: where all 32 elements from `base` on are
 * in the plane, they are read, and those that a piece does not reach are not used. The offset of the first element for
 * which that is no longer so. */
static inline int64_t whole_until(const side *s)
{
    return (s->h - 1) * s->h_step + s->w - 32;
}

#define LOAD_PAIR(v0, v1, from, whole)                                                                                 \
    do {                                                                                                               \
        if (whole) {                                                                                                   \
            v0 = _mm512_loadu_ps(from);                                                                                \
            v1 = _mm512_loadu_ps((from) + 16);                                                                         \
        } else {                                                                                                       \
            v0 = _mm512_maskz_loadu_ps(first_lanes(p->reach), from);                                                   \
            v1 = _mm512_maskz_loadu_ps(first_lanes(p->reach - 16), (from) + 16);                                       \
        }                                                                                                              \
    } while (0)

/* v0, v1: what a piece reads, the rows of the windows added up. */
static inline __m512 add_taps(const lane_piece *p, __m512 v0, __m512 v1)
{
    __m512 sum = _mm512_setzero_ps();
    for (int t = 0; t < p->taps; t++) {
        __m512 v = _mm512_permutex2var_ps(v0, _mm512_loadu_si512(p->tap[t].from), v1);
        sum = _mm512_mask_add_ps(sum, (__mmask16)p->tap[t].mask, sum, v);
    }
    return sum;
}

static void average_lanes(const pooling *j, float *out, const float *x)
{
    int64_t until = whole_until(&j->in);
    for (int64_t oy = 0; oy < j->out.h; oy++) {
        const window *wy = &j->row_windows[oy];
        /* A window without inputs has a size of 1, or none of its rows is there: its average is 0. */
        __m512 rows = _mm512_set1_ps((float)(wy->low < wy->high ? row_size(j, wy) : 1));
        for (int64_t i = 0; i < j->pieces; i++) {
            const lane_piece *p = &j->piece[i];
            __m512 v0 = _mm512_setzero_ps(), v1 = v0, a, b;
            int64_t from = wy->low * j->in.h_step + p->base;
            for (int64_t iy = wy->low; iy < wy->high; iy++, from += j->in.h_step) {
                LOAD_PAIR(a, b, x + from, from <= until);
                v0 = _mm512_add_ps(v0, a);
                v1 = _mm512_add_ps(v1, b);
            }
            __m512 mean = _mm512_div_ps(add_taps(p, v0, v1), _mm512_mul_ps(_mm512_loadu_ps(p->size), rows));
            _mm512_mask_storeu_ps(out + oy * j->out.h_step + p->at, first_lanes(p->count), mean);
        }
    }
}

static void average_grad_lanes(const pooling *j, float *gx, const float *g)
{
    double usual = row_size(j, &j->row_windows[j->out.h / 2]);
    int64_t until = whole_until(&j->out);
    for (int64_t iy = 0, same = 0; iy < j->in.h; iy += same) {
        const cover *c = &j->rows[iy];
        for (same = 1; iy + same < j->in.h && c[same].first == c->first && c[same].last == c->last;)
            same++;
        for (int64_t i = 0; i < j->pieces; i++) {
            const lane_piece *p = &j->piece[i];
            __m512 v0 = _mm512_setzero_ps(), v1 = v0, a, b;
            for (int64_t oy = c->first; oy <= c->last; oy++) {
                double rows = row_size(j, &j->row_windows[oy]);
                __m512 factor0 = _mm512_loadu_ps(p->inverse), factor1 = _mm512_loadu_ps(p->inverse + 16);
                if (rows != usual) {
                    __m512 change = _mm512_set1_ps((float)(usual / rows));
                    factor0 = _mm512_mul_ps(factor0, change);
                    factor1 = _mm512_mul_ps(factor1, change);
                }
                int64_t from = oy * j->out.h_step + p->base;
                LOAD_PAIR(a, b, g + from, from <= until);
                v0 = _mm512_fmadd_ps(a, factor0, v0);
                v1 = _mm512_fmadd_ps(b, factor1, v1);
            }
            __m512 sum = add_taps(p, v0, v1);
            for (int64_t r = 0; r < same; r++) /* rows in the same windows get the same */
                _mm512_mask_storeu_ps(gx + (iy + r) * j->in.h_step + p->at, first_lanes(p->count), sum);
        }
    }
}

static void max_lanes(const pooling *j, float *out, int32_t *index, const float *x)
{
    const yk__pool2d *w = j->p;
    __m512i none = _mm512_setzero_si512();
    int64_t until = whole_until(&j->in);
    for (int64_t oy = 0; oy < j->out.h; oy++) {
        for (int64_t i = 0; i < j->pieces; i++) {
            const lane_piece *p = &j->piece[i];
            __mmask16 lanes = first_lanes(p->count);
            __m512 v0, v1, m = _mm512_set1_ps(-INFINITY);
            __m512i k = _mm512_set1_epi32(-1);
            for (int64_t ky = 0; ky < w->kernel[0]; ky++) {
                int64_t iy = oy * w->stride[0] - w->padding[0] + ky * w->dilation[0];
                if (iy < 0 || iy >= j->in.h)
                    continue;
                int64_t first = iy * j->in.h_step + p->base;
                LOAD_PAIR(v0, v1, x + first, first <= until);
                __m512i at = _mm512_set1_epi32((int32_t)(iy * j->in.w + p->base));
                for (int t = 0; t < p->taps; t++) {
                    __m512i from = _mm512_loadu_si512(p->tap[t].from);
                    __m512 v = _mm512_permutex2var_ps(v0, from, v1);
                    /* As max_take; the first input of a window is taken even if it is minus infinity. */
                    __mmask16 take = _mm512_cmp_ps_mask(v, m, _CMP_GT_OQ) | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) |
                                     _mm512_cmplt_epi32_mask(k, none);
                    take = (__mmask16)(take & p->tap[t].mask);
                    m = _mm512_mask_mov_ps(m, take, v);
                    k = _mm512_mask_add_epi32(k, take, at, from);
                }
            }
            _mm512_mask_storeu_ps(out + oy * j->out.h_step + p->at, lanes, m);
            _mm512_mask_storeu_epi32(index + oy * j->index.h_step + p->at, lanes, k);
        }
    }
}
#endif

/* Fills j->piece, which has room for n pieces, from what each of the n elements of a row that is written reads; `size`
 * is that of a row that is read. */
static void prepare_lanes(pooling *j, const lane_reads *reads, int64_t n, int64_t size, bool backward)
{
#ifdef __AVX512F__
    j->pieces = cut_lanes(j->piece, reads, n, size);
    double usual = j->row_windows && j->out.h > 0 ? row_size(j, &j->row_windows[j->out.h / 2]) : 1;
    for (int64_t i = 0; j->col_windows && i < j->pieces; i++) {
        lane_piece *p = &j->piece[i];
        for (int64_t l = 0; l < 32; l++) {
            bool inside = l < (backward ? p->reach : p->count);
            double width = inside ? col_size(j, &j->col_windows[(backward ? p->base : p->at) + l]) : 1;
            p->size[l] = width > 0 ? (float)width : 1;
            p->inverse[l] = width > 0 ? (float)(1 / (width * usual)) : 0;
        }
    }
#else
    (void)j, (void)reads, (void)n, (void)size, (void)backward;
#endif
}

/* Whether a plane was done in lanes. */
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
