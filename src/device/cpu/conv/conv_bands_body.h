/*
 * conv_bands_body.h - depthwise convolutions of some channels of one image at a time, for one dtype; included by
 * conv_lanes_body.h.
 *
 * In memory the lines of a window are as far apart as its pixels are, often by a multiple of what the sets of the
 * first-level cache cover, and each is needed once for every tap. So a band, rows of a few vectors of channels of an
 * image, is copied to where its pixels follow each other. Windows of 5 or 7 columns then slide along a row, up to
 * BAND_OUTPUTS of them: each element is loaded once for the taps of a row, whose weights stay in registers with the
 * sums. Taps outside the image are left out; sums run over rows, then columns, as everywhere.
 */

/* Outputs [x, x + outputs) of a row: their windows begin at column `first`, which may be outside. Rows of the source
 * are those of `rows`. */
struct TYPED(span) {
    const yk__gemm_step *rows; /* a: from src; b: from weights */
    int64_t n_rows, first, columns, pixel, to_pixel, outputs, lanes;
    bool backward; /* the taps of a row run from the last to the first */
};

static inline __attribute__((always_inline)) void TYPED(span_of)(const struct TYPED(span) * s, const T *src, T *dst,
                                                                 const T *weights, const T *bias, const int taps,
                                                                 const int count, const int step, const bool inside)
{
    const int64_t pixel = s->pixel, first = s->first, columns = s->columns;
    V sum[BAND_OUTPUTS];
    YK__UNROLL for (int k = 0; k < count; k++)
    {
        sum[k] = *(const V *)bias;
        __builtin_prefetch(dst + (count + k) * s->to_pixel, 1);
    }
    src += first * pixel;
    for (int64_t i = 0; i < s->n_rows; i++) {
        const T *a = src + s->rows[i].a, *b = weights + s->rows[i].b;
        V w[BAND_TAPS];
        YK__UNROLL for (int k = 0; k < taps; k++) w[k] = *(const V *)(b + (s->backward ? taps - 1 - k : k) * WIDTH);
        YK__UNROLL for (int c = 0; c < (count - 1) * step + taps; c++)
        {
            if (!inside && (first + c < 0 || first + c >= columns))
                continue;
            V x = *(const V *)(a + c * pixel);
            YK__KEEP(x);
            YK__UNROLL for (int k = 0; k < count; k++) if (c >= k * step && c < k * step + taps) sum[k] +=
                x * w[c - k * step];
        }
    }
    YK__UNROLL for (int k = 0; k < count; k++, dst += s->to_pixel)
    {
        if (k >= s->outputs)
            break;
        if (s->lanes == WIDTH)
            *(VU *)dst = sum[k];
        else
            TYPED(yk__store_part)(dst, sum[k], s->lanes);
    }
}

typedef void TYPED(span_fn)(const struct TYPED(span) * s, const T *src, T *dst, const T *weights, const T *bias);

#define SPAN(taps, count, step)                                                                                        \
    static void TYPED(span_##taps##_##count##_##step)(const struct TYPED(span) * s, const T *src, T *dst,              \
                                                      const T *weights, const T *bias)                                 \
    {                                                                                                                  \
        if (s->first >= 0 && s->first + (count - 1) * step + taps <= s->columns)                                       \
            TYPED(span_of)(s, src, dst, weights, bias, taps, count, step, true);                                       \
        else                                                                                                           \
            TYPED(span_of)(s, src, dst, weights, bias, taps, count, step, false);                                      \
    }
#define SPANS(taps) SPAN(taps, 7, 1) SPAN(taps, 7, 2) SPAN(taps, 4, 1) SPAN(taps, 4, 2)
SPANS(5)
SPANS(7)
#undef SPANS
#undef SPAN

/* The kernels by columns of a window / 2 - 2; by whether more than four pass together; by columns between them - 1. */
#define OF_TAPS(taps)                                                                                                  \
    {                                                                                                                  \
        {TYPED(span_##taps##_4_1), TYPED(span_##taps##_4_2)},                                                          \
        {                                                                                                              \
            TYPED(span_##taps##_7_1), TYPED(span_##taps##_7_2)                                                         \
        }                                                                                                              \
    }
static TYPED(span_fn) *const TYPED(spans)[2][2][2] = {OF_TAPS(5), OF_TAPS(7)};
#undef OF_TAPS

/* Copies rows [y0, y1) of a map of `columns` columns, `vectors` vectors of the channels at `map`, the last of which has
 * `lanes`; stride: N, H, W. */
static void TYPED(copy_band)(T *to, const T *map, const int64_t stride[3], int64_t columns, int64_t vectors,
                             int64_t lanes, int64_t y0, int64_t y1)
{
    const int64_t row = stride[1], column = stride[2];
    for (int64_t y = y0; y < y1; y++) {
        const T *from = map + y * row;
        for (int64_t x = 0; x < columns; x++, from += column) {
            const T *ahead =
                from + (x + BAND_AHEAD < columns ? BAND_AHEAD * column : row + (BAND_AHEAD - columns) * column);
            for (int64_t v = 0; v < vectors - 1; v++, to += WIDTH) {
                __builtin_prefetch(ahead + v * WIDTH);
                *(V *)to = *(const VU *)(from + v * WIDTH);
            }
            __builtin_prefetch(ahead + (vectors - 1) * WIDTH);
            *(V *)to = lanes == WIDTH ? (V) * (const VU *)(from + (vectors - 1) * WIDTH)
                                      : TYPED(yk__load_part)(from + (vectors - 1) * WIDTH, lanes);
            to += WIDTH;
        }
    }
}

/* Computes destination row y of `vectors` vectors of channels, whose source rows, from s0 on, are at `copy`. */
static void TYPED(band_row)(const struct map *m, const T *copy, T *dst, const T *weights, const T *bias, int64_t y,
                            int64_t s0, int64_t vectors, int64_t lanes, yk__gemm_step *rows)
{
    const struct bands *b = &m->bands;
    const yk__conv_link *ly = m->y.links + m->y.first[y];
    const int64_t taps = m->taps[1], pixel = vectors * WIDTH, count = m->y.first[y + 1] - m->y.first[y],
                  width = m->x.size, per_vector = m->y.slots * taps * WIDTH;
    struct TYPED(span) s = {.rows = rows,
                            .n_rows = count,
                            .columns = b->columns,
                            .pixel = pixel,
                            .to_pixel = m->dst_stride[2],
                            .backward = m->backward};
    for (int64_t i = 0; i < count; i++) {
        const yk__conv_link *of = &ly[m->backward ? count - 1 - i : i];
        rows[i] = (yk__gemm_step){(of->src - s0) * b->columns * pixel, m->y.slot[of->tap] * taps * WIDTH};
    }
    int64_t pieces = yk__ceil_div(width, BAND_OUTPUTS), most = yk__ceil_div(width, pieces);
    TYPED(span_fn) *run = TYPED(spans)[taps / 2 - 2][most > 4][b->step - 1];
    for (int64_t x = 0; x < width; x += most) {
        s.outputs = width - x < most ? width - x : most;
        s.first = x * b->step - b->padding;
        for (int64_t v = 0; v < vectors; v++) {
            s.lanes = v == vectors - 1 ? lanes : WIDTH;
            run(&s, copy + v * WIDTH, dst + x * s.to_pixel + v * WIDTH, weights + v * per_vector, bias + v * WIDTH);
        }
    }
}

/* Computes two rows of a strip as band_row does one. */
static void TYPED(band_strip)(const struct map *m, const T *copy, T *dst, const T *weights, const T *bias, int64_t y,
                              int64_t s0, int64_t vectors, int64_t lanes)
{
    const int64_t pixel = vectors * WIDTH, stride[3] = {0, m->bands.columns * pixel, pixel};
    const struct strip s = strip_at(&m->strips, y, stride, m->dst_stride);
    const T *src = copy + (y - m->strips.padding[0] - s0) * s.row;
    for (int64_t x = 0; x < s.width; x += STRIP_OUTPUTS)
        TYPED(strip_span)
    (&s, src, dst, weights, bias, x, s.width - x < STRIP_OUTPUTS ? s.width - x : STRIP_OUTPUTS, pixel - WIDTH + lanes);
}

/* Pieces are the bands of a block of channels of an image, then those of its next block, then the next image's. */
static void TYPED(band_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct map *m = arg;
    const struct bands *b = &m->bands;
    const int64_t per_vector = m->y.slots * m->x.slots * WIDTH;
    T *copy = (T *)b->copies + (int64_t)thread * b->copy_size;
    yk__gemm_step *rows = m->steps + (int64_t)thread * m->taps[0] * m->taps[1];
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t y0 = piece % b->count * b->rows, y1 = y0 + b->rows < m->y.size ? y0 + b->rows : m->y.size;
        int64_t block = piece / b->count % b->blocks, n = piece / b->count / b->blocks;
        int64_t channel = block * b->vectors * WIDTH, left = m->lanes.groups - channel;
        int64_t vectors = yk__ceil_div(left, WIDTH) < b->vectors ? yk__ceil_div(left, WIDTH) : b->vectors;
        int64_t lanes = left < vectors * WIDTH ? left - (vectors - 1) * WIDTH : WIDTH;
        int64_t s0, s1;
        band_source(m, y0, y1, &s0, &s1);
        TYPED(copy_band)
        (copy, (const T *)m->src + n * m->src_stride[0] + channel, m->src_stride, b->columns, vectors, lanes, s0, s1);
        const T *weights = (const T *)m->packed + channel / WIDTH * per_vector;
        const T *bias = (const T *)m->packed + m->lanes.blocks * per_vector + channel;
        T *dst = (T *)m->dst + n * m->dst_stride[0] + channel;
        for (int64_t y = y0; y < y1; y += m->strips.applies ? 2 : 1) {
            T *to = dst + y * m->dst_stride[1];
            if (m->strips.applies)
                TYPED(band_strip)(m, copy, to, weights, bias, y, s0, vectors, lanes);
            else
                TYPED(band_row)(m, copy, to, weights, bias, y, s0, vectors, lanes, rows);
        }
    }
}

/* The gradient of the weight: strips of copies of both maps. Pieces are the blocks of channels of a share of the
 * images, then those of the next share. */
static void TYPED(copied_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct grad *g = arg;
    const struct copied *of = &g->copied;
    const int64_t padding = g->strips.padding[0], height = g->strips.source[0], columns = g->strips.source[1],
                  width = columns + 2 * g->strips.padding[1] - 2;
    T *x = (T *)of->copies + (int64_t)thread * of->size, *gout = x + of->gout;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t share = piece / of->blocks, block = piece % of->blocks * of->vectors;
        int64_t n0 = share * g->n / g->image_shares, n1 = (share + 1) * g->n / g->image_shares;
        int64_t channel = block * WIDTH, left = g->lanes.groups - channel, all = yk__ceil_div(left, WIDTH);
        int64_t vectors = all < of->vectors ? all : of->vectors;
        int64_t lanes = left < vectors * WIDTH ? left - (vectors - 1) * WIDTH : WIDTH, pixel = vectors * WIDTH;
        const int64_t stride[3] = {0, columns * pixel, pixel}, out_stride[3] = {0, width * pixel, pixel};
        T *sums = (T *)g->sums + share * g->share_size + block * g->block_size;
        memset(sums, 0, (size_t)(vectors * g->block_size) * sizeof(T));
        for (int64_t n = n0; n < n1; n++)
            for (int64_t y0 = 0, y1; y0 < g->strips.rows; y0 = y1) {
                y1 = y0 + of->rows < g->strips.rows ? y0 + of->rows : g->strips.rows;
                int64_t s0 = y0 > padding ? y0 - padding : 0, s1 = y1 - padding + 2;
                s1 = s1 < height ? s1 : height;
                TYPED(copy_band)
                (x, (const T *)g->x + n * g->x_stride[0] + channel, g->x_stride, columns, vectors, lanes, s0, s1);
                TYPED(copy_band)
                (gout, (const T *)g->gout + n * g->gout_stride[0] + channel, g->gout_stride, width, vectors, lanes, y0,
                 y1);
                for (int64_t v = 0; v < vectors; v++)
                    for (int64_t y = y0; y < y1; y += 2) {
                        const struct strip s = strip_at(&g->strips, y, stride, out_stride);
                        TYPED(sum_spans)
                        (&s, x + (y - padding - s0) * s.row + v * WIDTH, gout + (y - y0) * s.out_row + v * WIDTH,
                         sums + v * g->block_size, COPIED_COLUMNS, v == vectors - 1 ? lanes : WIDTH);
                    }
            }
    }
}
