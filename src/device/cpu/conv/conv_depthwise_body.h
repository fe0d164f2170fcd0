/*
 * conv_depthwise_body.h - depthwise convolutions, windows of three columns that lie one or two columns apart, for one
 * dtype; included by conv_lanes_body.h.
 *
 * The windows of a few neighbouring pixels of a row pass together, for one vector of channels after the other, in
 * memory's order: each element of the source is loaded once for all of them, while a vector's weights, or in a gradient
 * of the weight its sums, stay in registers. The processor does not foresee so many streams: what the next few pixels
 * need is fetched, the row of the source that no earlier window has read.
 */

/* The windows of a row: rows that they have, distances in the source from row to row and from column to column, of the
 * windows in columns, and from an image to the next. `ahead`, `ahead_to`: from a first window's last row and from its
 * output to what is fetched. */
struct TYPED(slide) {
    int64_t ny, row, column, image, ahead, ahead_to;
    int step;
};

#define LOAD(from) (whole ? (V) * (const VU *)(from) : TYPED(yk__load_part)((from), lanes))
#define TAPS(y, x) YK__UNROLL for (int y = 0; y < ny; y++) YK__UNROLL for (int x = 0; x < 3; x++)
/* The number of columns of `count` windows; and true where window k has column c. */
#define COLUMNS_OF(count) (((count)-1) * step + 3)
#define HAS(k, c)         ((c) >= (k)*step && (c) < (k)*step + 3)
/* The new columns of the next window, of one row, or of the two that are new where windows lie two rows apart, too. */
#define FETCH(ahead)                                                                                                   \
    YK__UNROLL for (int s = 0; s < step; s++, ahead += column)                                                         \
    {                                                                                                                  \
        __builtin_prefetch(ahead);                                                                                     \
        if (step > 1)                                                                                                  \
            __builtin_prefetch(ahead - row);                                                                           \
    }

/* Computes `count` outputs along a row, of `blocks` whole vectors of channels or of the first `lanes` of one. */
static inline __attribute__((always_inline)) void TYPED(slide_of)(const struct tile *t, const struct TYPED(slide) * at,
                                                                  const T *src, T *dst, const T *weights, const T *bias,
                                                                  int64_t blocks, int64_t lanes, const int ny,
                                                                  const int count, const int step, const bool whole)
{
    const int64_t row = at->row, column = at->column, ldc = t->ldc;
    for (; blocks > 0; blocks--, src += WIDTH, dst += WIDTH, weights += t->w_block, bias += WIDTH) {
        V w[3][3], sum[SLIDE_PIXELS];
        const T *a = src, *ahead = src + at->ahead;
        T *to = dst;
        TAPS(y, x) w[y][x] = *(const V *)(weights + t->steps[y * 3 + x].b);
        YK__UNROLL for (int k = 0; k < count; k++, to += ldc)
        {
            sum[k] = *(const V *)bias;
            __builtin_prefetch(to + at->ahead_to, 1);
            FETCH(ahead)
        }
        YK__UNROLL for (int c = 0; c < COLUMNS_OF(count); c++, a += column) YK__UNROLL for (int y = 0; y < ny; y++)
        {
            V x = LOAD(a + y * row);
            YK__KEEP(x);
            YK__UNROLL for (int k = 0; k < count; k++) if (HAS(k, c)) sum[k] += x * w[y][c - k * step];
        }
        to = dst;
        YK__UNROLL for (int k = 0; k < count; k++, to += ldc)
        {
            if (whole)
                *(VU *)to = sum[k];
            else
                TYPED(yk__store_part)(to, sum[k], lanes);
        }
    }
}

/* Adds the products of such outputs to the sums of a weight's gradient: `to` has that of the windows' first tap. */
static inline __attribute__((always_inline)) void TYPED(slide_sums_of)(const struct grad *g,
                                                                       const struct TYPED(slide) * at, const T *from,
                                                                       const T *gout, T *to, int64_t blocks,
                                                                       int64_t lanes, const int ny, const int count,
                                                                       const int step, const bool whole)
{
    const int64_t row = at->row, column = at->column;
    for (; blocks > 0; blocks--, from += WIDTH, gout += WIDTH, to += g->block_size) {
        const T *a = from, *b = gout, *ahead = a + at->ahead;
        V sum[3][3], grad[SLIDE_PIXELS];
        TAPS(y, x) sum[y][x] = (V){0};
        YK__UNROLL for (int k = 0; k < count; k++, b += g->gout_stride[2])
        {
            grad[k] = LOAD(b);
            __builtin_prefetch(b + at->ahead_to);
            FETCH(ahead)
        }
        YK__UNROLL for (int c = 0; c < COLUMNS_OF(count); c++, a += column) YK__UNROLL for (int y = 0; y < ny; y++)
        {
            V x = LOAD(a + y * row);
            YK__KEEP(x);
            YK__UNROLL for (int k = 0; k < count; k++) if (HAS(k, c)) sum[y][c - k * step] += x * grad[k];
        }
        TAPS(y, x) * (V *)(to + (y * 3 + x) * WIDTH) += sum[y][x];
    }
}
#undef FETCH
#undef HAS
#undef COLUMNS_OF
#undef TAPS
#undef LOAD

typedef void TYPED(slide_fn)(const struct tile *t, const struct TYPED(slide) * at, const T *src, T *dst,
                             const T *weights, const T *bias, int64_t groups);
typedef void TYPED(slide_sums_fn)(const struct grad *g, const struct TYPED(slide) * at, const T *x, const T *gout,
                                  T *to);

#define SLIDE(ny, count, step)                                                                                         \
    static void TYPED(slide_##ny##_##count##_##step)(const struct tile *t, const struct TYPED(slide) * at,             \
                                                     const T *src, T *dst, const T *weights, const T *bias,            \
                                                     int64_t groups)                                                   \
    {                                                                                                                  \
        int64_t blocks = groups / WIDTH, rest = groups % WIDTH, done = blocks * WIDTH;                                 \
        TYPED(slide_of)(t, at, src, dst, weights, bias, blocks, WIDTH, ny, count, step, true);                         \
        if (rest)                                                                                                      \
            TYPED(slide_of)                                                                                            \
        (t, at, src + done, dst + done, weights + blocks * t->w_block, bias + done, 1, rest, ny, count, step, false);  \
    }                                                                                                                  \
    static void TYPED(slide_sums_##ny##_##count##_##step)(const struct grad *g, const struct TYPED(slide) * at,        \
                                                          const T *x, const T *gout, T *to)                            \
    {                                                                                                                  \
        int64_t blocks = g->lanes.groups / WIDTH, rest = g->lanes.groups % WIDTH, done = blocks * WIDTH;               \
        TYPED(slide_sums_of)(g, at, x, gout, to, blocks, WIDTH, ny, count, step, true);                                \
        if (rest)                                                                                                      \
            TYPED(slide_sums_of)                                                                                       \
        (g, at, x + done, gout + done, to + blocks * g->block_size, 1, rest, ny, count, step, false);                  \
    }
#define SLIDES(ny) SLIDE(ny, 2, 1) SLIDE(ny, 2, 2) SLIDE(ny, 4, 1) SLIDE(ny, 4, 2)
SLIDES(1)
SLIDES(2)
SLIDES(3)
#undef SLIDES
#undef SLIDE

/* The kernels by rows - 1; by whether four pass together, or two; by columns between them - 1. */
#define OF_ROWS(name, ny)                                                                                              \
    {                                                                                                                  \
        {TYPED(name##_##ny##_2_1), TYPED(name##_##ny##_2_2)},                                                          \
        {                                                                                                              \
            TYPED(name##_##ny##_4_1), TYPED(name##_##ny##_4_2)                                                         \
        }                                                                                                              \
    }
static TYPED(slide_fn) *const TYPED(slides)[3][2][2] = {OF_ROWS(slide, 1), OF_ROWS(slide, 2), OF_ROWS(slide, 3)};
static TYPED(slide_sums_fn) *const
    TYPED(slide_sums)[3][2][2] = {OF_ROWS(slide_sums, 1), OF_ROWS(slide_sums, 2), OF_ROWS(slide_sums, 3)};
#undef OF_ROWS

/* The windows of ny x 3 sources that begin at `first`, the next column at next_x, the next row at next_y; outputs are
 * `pixel` apart in the source. Those that do not slide have a step of 0. */
static struct TYPED(slide)
    TYPED(make_slide)(int64_t ny, int64_t first, int64_t next_x, int64_t next_y, int64_t pixel, int64_t image)
{
    struct TYPED(slide) s = {.ny = ny, .row = ny > 1 ? next_y - first : 0, .column = next_x - first, .image = image};
    if (ny <= 3 && s.column > 0)
        s.step = pixel == s.column ? 1 : pixel == 2 * s.column ? 2 : 0;
    return s;
}

/* The number of the next of `run` windows that pass together: 4 or 2. */
static int64_t TYPED(slide_count)(struct TYPED(slide) * s, int64_t run, int64_t to)
{
    int64_t count = run >= SLIDE_PIXELS ? SLIDE_PIXELS : 2;
    s->ahead = (s->ny - 1) * s->row + (s->step * count + 3 - s->step) * s->column;
    s->ahead_to = count * to;
    return count;
}

/* Computes the first of `run` pixels of each of n images, as many as slide; gives their number. */
static int64_t TYPED(run_slides)(const struct map *m, struct tile *t, struct TYPED(slide) s, int64_t n, int64_t run,
                                 const T *src, T *dst)
{
    const T *weights = m->packed, *bias = weights + m->lanes.blocks * t->w_block;
    int64_t x = 0;
    t->ldc = m->dst_stride[2];
    for (int64_t count; x + 1 < run; x += count) {
        count = TYPED(slide_count)(&s, run - x, t->ldc);
        for (int64_t i = 0; i < n; i++)
            TYPED(slides)
        [s.ny - 1][count == SLIDE_PIXELS][s.step - 1](t, &s, src + i * s.image + x * s.step * s.column,
                                                      dst + i * m->dst_stride[0] + x * t->ldc, weights, bias,
                                                      m->lanes.groups);
    }
    return x;
}

/* The gradient of the weight, computed as run_slides computes a map. */
static int64_t TYPED(sum_slides)(const struct grad *g, struct TYPED(slide) s, int64_t n, int64_t run, const T *from,
                                 const T *gout, T *to)
{
    int64_t x = 0;
    for (int64_t count; x + 1 < run; x += count) {
        count = TYPED(slide_count)(&s, run - x, g->gout_stride[2]);
        for (int64_t i = 0; i < n; i++)
            TYPED(slide_sums)
        [s.ny - 1][count == SLIDE_PIXELS][s.step - 1](g, &s, from + i * s.image + x * s.step * s.column,
                                                      gout + i * g->gout_stride[0] + x * g->gout_stride[2], to);
    }
    return x;
}
