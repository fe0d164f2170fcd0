/*
 * conv_winograd_body.h - the transformations and products of conv_winograd.c for one dtype; included there with T, V,
 * VU (V at any address) and TYPED(name) defined.
 */
#define WIDTH ((int64_t)(sizeof(V) / sizeof(T)))
#define PANEL (WIDTH * YK__GEMM_VECTORS)

/* Loops over the 4 rows and columns of a tile are unrolled, or its vectors do not live in registers. */
#define EACH(i) YK__UNROLL for (int i = 0; i < 4; i++)

/* B^T d B, of a 4 x 4 window of the source. */
static inline __attribute__((always_inline)) void TYPED(window_to_products)(V d[4][4])
{
    V e[4][4];
    EACH(j)
    {
        e[0][j] = d[0][j] - d[2][j];
        e[1][j] = d[1][j] + d[2][j];
        e[2][j] = d[2][j] - d[1][j];
        e[3][j] = d[1][j] - d[3][j];
    }
    EACH(i)
    {
        d[i][0] = e[i][0] - e[i][2];
        d[i][1] = e[i][1] + e[i][2];
        d[i][2] = e[i][2] - e[i][1];
        d[i][3] = e[i][1] - e[i][3];
    }
}

/* A g A^T, of the gradient of 2 x 2 outputs, given in the corner of g. */
static inline __attribute__((always_inline)) void TYPED(gradient_to_products)(V g[4][4])
{
    V e[4][2];
    YK__UNROLL for (int j = 0; j < 2; j++)
    {
        e[0][j] = g[0][j];
        e[1][j] = g[0][j] + g[1][j];
        e[2][j] = g[0][j] - g[1][j];
        e[3][j] = -g[1][j];
    }
    EACH(i)
    {
        g[i][0] = e[i][0];
        g[i][1] = e[i][0] + e[i][1];
        g[i][2] = e[i][0] - e[i][1];
        g[i][3] = -e[i][1];
    }
}

/* `len` channels of one window, of which the rows [i0, i1) and columns [j0, j1) are inside the map. */
static inline __attribute__((always_inline)) void TYPED(window_of)(const struct window *w, const T *from, T *to,
                                                                   int64_t len, const int side, const bool whole)
{
    const int64_t sh = w->stride[0], sw = w->stride[1], ld = w->ld;
    const int i0 = w->begin[0], i1 = w->end[0], j0 = w->begin[1], j1 = w->end[1];
    for (int64_t c = 0; c < len; c += WIDTH) {
        V d[4][4];
        int64_t part = len - c < WIDTH ? len - c : WIDTH;
        YK__UNROLL for (int i = 0; i < side; i++) YK__UNROLL for (int j = 0; j < side; j++)
        {
            const T *at = from + (i * sh + j * sw + c);
            if (!whole && (i < i0 || i >= i1 || j < j0 || j >= j1))
                d[i][j] = (V){0};
            else
                d[i][j] = part == WIDTH ? (V) * (const VU *)at : TYPED(yk__load_part)(at, part);
        }
        if (side == 4)
            TYPED(window_to_products)(d);
        else
            TYPED(gradient_to_products)(d);
        EACH(i) EACH(j) * (VU *)(to + (4 * i + j) * ld + c) = d[i][j];
    }
}

static void TYPED(window)(const struct window *w, const T *from, T *to, int64_t len, int side)
{
    bool whole = !w->begin[0] && !w->begin[1] && w->end[0] == side && w->end[1] == side;
    if (side == 4 && whole)
        TYPED(window_of)(w, from, to, len, 4, true);
    else if (side == 4)
        TYPED(window_of)(w, from, to, len, 4, false);
    else if (whole)
        TYPED(window_of)(w, from, to, len, 2, true);
    else
        TYPED(window_of)(w, from, to, len, 2, false);
}

/* `len` channels of whole maps of 2 x 2 of the source: x0, x0 + x1, x1 along each axis; of the gradient of the outputs,
 * g1, g0 + g1, g0. */
static void TYPED(whole_window)(const struct window *w, const T *from, T *to, int64_t len, bool gradient)
{
    const int64_t sh = w->stride[0], sw = w->stride[1], ld = w->ld, first = gradient ? sh + sw : 0;
    const int64_t down = gradient ? -sh : sh, right = gradient ? -sw : sw;
    from += first;
    for (int64_t c = 0; c < len; c += WIDTH) {
        V d[2][2], e[3][2];
        int64_t part = len - c < WIDTH ? len - c : WIDTH;
        YK__UNROLL for (int i = 0; i < 2; i++) YK__UNROLL for (int j = 0; j < 2; j++)
        {
            const T *at = from + (i * down + j * right + c);
            d[i][j] = part == WIDTH ? (V) * (const VU *)at : TYPED(yk__load_part)(at, part);
        }
        YK__UNROLL for (int j = 0; j < 2; j++)
        {
            e[0][j] = d[0][j];
            e[1][j] = d[0][j] + d[1][j];
            e[2][j] = d[1][j];
        }
        YK__UNROLL for (int i = 0; i < 3; i++)
        {
            *(VU *)(to + (3 * i + 0) * ld + c) = e[i][0];
            *(VU *)(to + (3 * i + 1) * ld + c) = e[i][0] + e[i][1];
            *(VU *)(to + (3 * i + 2) * ld + c) = e[i][1];
        }
    }
}

/* The windows of a block, transformed: [plane][tile][width of the map]. */
static void TYPED(gather)(const struct side *m, const struct tiles *tiles, int64_t block, T *to)
{
    struct block b = block_of(tiles, block);
    int64_t count = b.n1 - b.n0;
    struct window w = {.stride = {m->stride[1], m->stride[2]}, .ld = plane_size(b.tiles, m->width)};
    bool joined = m->stride[0] == m->channels && m->width == m->channels;
    for (int64_t ty = b.y0; ty < b.y1; ty++)
        for (int64_t tx = 0; tx < tiles->tx; tx++) {
            int64_t y = 2 * ty - m->offset[0], x = 2 * tx - m->offset[1];
            w.begin[0] = y < 0 ? (int)-y : 0;
            w.begin[1] = x < 0 ? (int)-x : 0;
            w.end[0] = m->height - y < m->side ? (int)(m->height - y) : m->side;
            w.end[1] = m->length - x < m->side ? (int)(m->length - x) : m->side;
            const T *from = (const T *)m->data + (b.n0 * m->stride[0] + y * w.stride[0] + x * w.stride[1]);
            if (tiles->planes == 9)
                from = (const T *)m->data + b.n0 * m->stride[0];
            for (int64_t n = 0; n < (joined ? 1 : count); n++, to += m->width, from += m->stride[0]) {
                int64_t len = joined ? count * m->channels : m->channels;
                if (tiles->planes == 9)
                    TYPED(whole_window)(&w, from, to, len, m->side == 2);
                else
                    TYPED(window)(&w, from, to, len, m->side);
            }
            if (joined)
                to += (count - 1) * m->width;
        }
}

/* G w G^T of a vector of weights, the taps of which are tap_size apart, to planes that are ld apart. */
static inline __attribute__((always_inline)) void TYPED(weights_to_products)(const T *taps, int64_t tap_size, T *u,
                                                                             int64_t ld)
{
    V e[4][3];
    YK__UNROLL for (int j = 0; j < 3; j++)
    {
        V w0 = *(const VU *)(taps + j * tap_size), w1 = *(const VU *)(taps + (3 + j) * tap_size),
          w2 = *(const VU *)(taps + (6 + j) * tap_size), half = (w0 + w2) * (T)0.5;
        e[0][j] = w0;
        e[1][j] = half + w1 * (T)0.5;
        e[2][j] = half - w1 * (T)0.5;
        e[3][j] = w2;
    }
    EACH(i)
    {
        V half = (e[i][0] + e[i][2]) * (T)0.5;
        *(VU *)(u + (4 * i + 0) * ld) = e[i][0];
        *(VU *)(u + (4 * i + 1) * ld) = half + e[i][1] * (T)0.5;
        *(VU *)(u + (4 * i + 2) * ld) = half - e[i][1] * (T)0.5;
        *(VU *)(u + (4 * i + 3) * ld) = e[i][2];
    }
}

/* The same for whole maps: w0 - w1, w1, w2 - w1 along each axis. */
static inline __attribute__((always_inline)) void TYPED(whole_weights)(const T *taps, int64_t tap_size, T *u,
                                                                       int64_t ld)
{
    V e[3][3];
    YK__UNROLL for (int j = 0; j < 3; j++)
    {
        e[1][j] = *(const VU *)(taps + (3 + j) * tap_size);
        e[0][j] = *(const VU *)(taps + j * tap_size) - e[1][j];
        e[2][j] = *(const VU *)(taps + (6 + j) * tap_size) - e[1][j];
    }
    YK__UNROLL for (int i = 0; i < 3; i++)
    {
        *(VU *)(u + (3 * i + 0) * ld) = e[i][0] - e[i][1];
        *(VU *)(u + (3 * i + 1) * ld) = e[i][1];
        *(VU *)(u + (3 * i + 2) * ld) = e[i][2] - e[i][1];
    }
}

/* The weights of one panel of columns, transformed, as [plane][k][width]; `taps` has room for
 * 9 x WEIGHT_ROWS x PANEL. */
static void TYPED(pack_weights)(const struct map *m, int64_t panel, T *to, T *taps)
{
    int64_t cols = m->cols - panel * PANEL < PANEL ? m->cols - panel * PANEL : PANEL;
    int64_t width = (cols + WIDTH - 1) / WIDTH * WIDTH, ld = m->k * width;
    /* Weights in C order have the taps next to each other: they are transposed with the taps of a row, or of all rows
     * where these follow each other. */
    bool dense = m->w_tap[1] == 1 && m->w_tap[0] == 3, joined = dense && m->w_k == 9;
    for (int64_t k0 = 0; k0 < m->k; k0 += WEIGHT_ROWS) {
        int64_t rows = m->k - k0 < WEIGHT_ROWS ? m->k - k0 : WEIGHT_ROWS;
        int64_t tap_size = dense ? width : rows * width, row_size = dense ? 9 * width : width;
        const T *w = (const T *)m->w + k0 * m->w_k + panel * PANEL * m->w_col;
        if (joined)
            TYPED(yk__gemm_pack)(taps, w, 9 * rows, 1, cols, m->w_col, width);
        for (int64_t row = 0; dense && !joined && row < rows; row++)
            TYPED(yk__gemm_pack)(taps + row * row_size, w + row * m->w_k, 9, 1, cols, m->w_col, width);
        for (int tap = 0; !dense && tap < 9; tap++) {
            const T *at = w + tap / 3 * m->w_tap[0] + tap % 3 * m->w_tap[1];
            TYPED(yk__gemm_pack)(taps + tap * tap_size, at, rows, m->w_k, cols, m->w_col, width);
        }
        for (int64_t row = 0; row < rows; row++)
            for (int64_t c = 0; c < width; c += WIDTH) {
                const T *from = taps + row * row_size + c + (m->backward ? 8 * tap_size : 0);
                T *u = to + (k0 + row) * width + c;
                if (m->tiles.planes == 9)
                    TYPED(whole_weights)(from, m->backward ? -tap_size : tap_size, u, ld);
                else
                    TYPED(weights_to_products)(from, m->backward ? -tap_size : tap_size, u, ld);
            }
    }
}

static void TYPED(weight_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct map *m = arg;
    for (int64_t panel = begin; panel < end; panel++)
        TYPED(pack_weights)
    (m, panel, (T *)m->weights + panel * m->panel_size, (T *)m->taps + thread * WEIGHT_ROWS * 9 * PANEL);
}

static void TYPED(source_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct map *m = arg;
    for (int64_t block = begin; block < end; block++)
        TYPED(gather)(&m->src, &m->tiles, m->round + block, (T *)m->products + block * m->products_size);
}

/* Adds the products of k to up to `rows` rows of a tile; the sums are kept short, as in conv_pixels.c. `ahead` is
 * fetched meanwhile, or NULL. */
static void TYPED(multiply)(yk__gemm_tile *tile, enum yk__gemm_mode mode, int64_t rows, int64_t k, int64_t most,
                            bool accumulate, yk__gemm_lines *ahead)
{
    int64_t vectors = (tile->cols + WIDTH - 1) / WIDTH;
    const T *a = tile->a, *b = tile->b;
    tile->accumulate = accumulate;
    for (int64_t at = 0; at < k; at += most) {
        tile->k = k - at < most ? k - at : most;
        tile->a = a + at * (mode == YK__GEMM_A_COLUMNS ? tile->lda : 1);
        tile->b = b + at * tile->ldb;
        enum yk__gemm_mode with = ahead && yk__gemm_fetches(ahead, tile) ? YK__GEMM_A_ROWS_FETCHING : mode;
        TYPED(yk__gemm_kernels)[with][vectors - 1][rows - 1](tile);
        tile->accumulate = true;
    }
}

/* The same of any number of rows, of which the tile's a and c are the first. */
static void TYPED(multiply_rows)(yk__gemm_tile *tile, enum yk__gemm_mode mode, int64_t rows, int64_t k, int64_t most,
                                 bool accumulate, yk__gemm_lines *ahead)
{
    int64_t tiles, low = yk__gemm_cut(rows, YK__GEMM_ROWS, &tiles), high = rows % tiles;
    const T *a = tile->a, *b = tile->b;
    T *c = tile->c;
    for (int64_t i = 0; i < tiles; i++) {
        int64_t height = low + (i < high);
        tile->a = a;
        tile->b = b;
        tile->c = c;
        TYPED(multiply)(tile, mode, height, k, most, accumulate, ahead);
        a += height * (mode == YK__GEMM_A_COLUMNS ? 1 : tile->lda);
        c += height * tile->ldc;
    }
}

/* A^T m A of a vector of products, from planes that are ld apart. */
static inline __attribute__((always_inline)) void TYPED(products_to_outputs)(const T *from, int64_t ld, V out[2][2])
{
    V e[2][4];
    EACH(j)
    {
        V m0 = *(const VU *)(from + j * ld), m1 = *(const VU *)(from + (4 + j) * ld),
          m2 = *(const VU *)(from + (8 + j) * ld), m3 = *(const VU *)(from + (12 + j) * ld);
        e[0][j] = m0 + (m1 + m2);
        e[1][j] = (m1 - m2) - m3;
    }
    YK__UNROLL for (int i = 0; i < 2; i++)
    {
        out[i][0] = e[i][0] + (e[i][1] + e[i][2]);
        out[i][1] = (e[i][1] - e[i][2]) - e[i][3];
    }
}

/* The same for whole maps: m1 + m2, m0 + m1 along each axis. */
static inline __attribute__((always_inline)) void TYPED(whole_outputs)(const T *from, int64_t ld, V out[2][2])
{
    V e[2][3];
    YK__UNROLL for (int j = 0; j < 3; j++)
    {
        V m0 = *(const VU *)(from + j * ld), m1 = *(const VU *)(from + (3 + j) * ld),
          m2 = *(const VU *)(from + (6 + j) * ld);
        e[0][j] = m1 + m2;
        e[1][j] = m0 + m1;
    }
    YK__UNROLL for (int i = 0; i < 2; i++)
    {
        out[i][0] = e[i][1] + e[i][2];
        out[i][1] = e[i][0] + e[i][1];
    }
}

/* The outputs of one vector of channels that exist, of which `part` lanes do, with the bias; returns 0 in all lanes
 * whose outputs are finite. */
static inline __attribute__((always_inline)) V TYPED(store_outputs)(const struct map *m, const T *from, int64_t ld,
                                                                    V bias, T *to, bool below, bool right, int64_t part)
{
    const int64_t *stride = m->dst_stride;
    V out[2][2];
    if (m->tiles.planes == 9)
        TYPED(whole_outputs)(from, ld, out);
    else
        TYPED(products_to_outputs)(from, ld, out);
    YK__UNROLL for (int i = 0; i < 2; i++) YK__UNROLL for (int j = 0; j < 2; j++) out[i][j] += bias;
    YK__UNROLL for (int i = 0; i < 2; i++) YK__UNROLL for (int j = 0; j < 2; j++)
    {
        if ((i && !below) || (j && !right))
            continue;
        T *at = to + i * stride[1] + j * stride[2];
        if (part == WIDTH)
            *(VU *)at = out[i][j];
        else
            TYPED(yk__store_part)(at, out[i][j], part);
    }
    return ((out[0][0] + out[0][1]) + (out[1][0] + out[1][1])) * (T)0;
}

/* The outputs of a block and of `count` panels of `cols` columns, which follow each other; `to`, `bias`: of the first
 * one. True if all of them are finite. */
static bool TYPED(scatter)(const struct map *m, const struct block *b, const T *from, T *to, const T *bias,
                           int64_t count, int64_t cols)
{
    int64_t width = (cols + WIDTH - 1) / WIDTH * WIDTH, ld = plane_size(b->tiles, count * width);
    const int64_t *stride = m->dst_stride;
    V bad = {0};
    for (int64_t ty = b->y0; ty < b->y1; ty++)
        for (int64_t tx = 0; tx < m->tiles.tx; tx++) {
            bool below = 2 * ty + 1 < m->height, right = 2 * tx + 1 < m->length;
            T *row = to + b->n0 * stride[0] + 2 * ty * stride[1] + 2 * tx * stride[2];
            for (int64_t n = b->n0; n < b->n1; n++, row += stride[0])
                for (int64_t at = 0; at < count * cols; at += cols, from += width)
                    for (int64_t c = 0; c < cols; c += WIDTH) {
                        V add = {0};
                        int64_t part = cols - c < WIDTH ? cols - c : WIDTH;
                        if (bias)
                            add = TYPED(yk__load_part)(bias + at + c, part);
                        bad += TYPED(store_outputs)(m, from + c, ld, add, row + at + c, below, right, part);
                    }
        }
    bool finite = true;
    for (int64_t i = 0; i < WIDTH; i++)
        finite = finite && bad[i] == 0;
    return finite;
}

/* Computes one panel of columns of one block of the round. */
static void TYPED(map_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    struct map *m = arg;
    T *to = (T *)m->sums + thread * m->sums_size;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t panel = piece % m->panels, block = piece / m->panels;
        struct block b = block_of(&m->tiles, m->round + block);
        int64_t cols = m->cols - panel * PANEL < PANEL ? m->cols - panel * PANEL : PANEL;
        int64_t width = (cols + WIDTH - 1) / WIDTH * WIDTH;
        T *weights = (T *)m->weights + (m->fresh ? (int64_t)thread : panel) * m->panel_size;
        if (m->fresh)
            TYPED(pack_weights)(m, panel, weights, (T *)m->taps + thread * WEIGHT_ROWS * 9 * PANEL);
        yk__gemm_step step = {0, 0};
        yk__gemm_tile tile = {
            .steps = &step, .n_steps = 1, .lda = m->src.width, .ldb = width, .ldc = width, .csc = 1, .cols = width};
        yk__gemm_lines ahead = {0};
        if (m->fresh && panel + 1 < m->panels && (m->w_k == 1 || m->w_col == 1))
            ahead = yk__gemm_weight_lines((const T *)m->w + (panel + 1) * PANEL * m->w_col, (const int64_t[2]){3, 3},
                                          m->w_tap, m->k, m->w_k, PANEL, m->w_col, (int64_t)sizeof(T));
        for (int64_t t = 0; t < m->tiles.planes; t++) {
            tile.a = (const T *)m->products + block * m->products_size + t * plane_size(b.tiles, m->src.width);
            tile.b = weights + t * m->k * width;
            tile.c = to + t * plane_size(b.tiles, width);
            TYPED(multiply_rows)(&tile, YK__GEMM_A_ROWS, b.tiles, m->k, SUM_LENGTH, false, &ahead);
        }
        if (!TYPED(scatter)(m, &b, to, (T *)m->dst + panel * PANEL, m->bias ? (const T *)m->bias + panel * PANEL : NULL,
                            1, cols))
            __atomic_store_n(&m->infinite, true, __ATOMIC_RELAXED);
    }
}

#include "device/cpu/conv/conv_winograd_cached_body.h"
#include "device/cpu/conv/conv_winograd_groups_body.h"

/* The windows of x and of gout of a block of the round. */
static void TYPED(sides_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct grad *g = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t block = piece / 2;
        char *to = (char *)g->products + block * g->products_size * (int64_t)sizeof(T);
        if (piece % 2)
            TYPED(gather)(&g->gout, &g->tiles, g->round + block, (T *)to + g->right_at);
        else
            TYPED(gather)(&g->x, &g->tiles, g->round + block, (T *)to);
    }
}

/* The product of one plane and a panel of gout's channels: x's channels x gout's, summed over the tiles of the
 * round. */
static void TYPED(product_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct grad *g = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t panel = piece % g->panels, t = piece / g->panels;
        int64_t cols = g->gout.width - panel * PANEL < PANEL ? g->gout.width - panel * PANEL : PANEL;
        yk__gemm_step step = {0, 0};
        yk__gemm_tile tile = {.steps = &step,
                              .n_steps = 1,
                              .lda = g->x.width,
                              .ldb = g->gout.width,
                              .ldc = g->gout.width,
                              .csc = 1,
                              .cols = cols};
        for (int64_t block = 0; block < g->blocks; block++) {
            struct block b = block_of(&g->tiles, g->round + block);
            tile.a = (const T *)g->products + block * g->products_size + t * plane_size(b.tiles, g->x.width);
            tile.b = (const T *)g->products + block * g->products_size + g->right_at +
                     t * plane_size(b.tiles, g->gout.width) + panel * PANEL;
            tile.c = (T *)g->sums + t * g->x.channels * g->gout.width + panel * PANEL;
            TYPED(multiply_rows)
            (&tile, YK__GEMM_A_COLUMNS, g->x.channels, b.tiles, GRADIENT_LENGTH, g->round + block > 0, NULL);
        }
    }
}

/* G^T s G of a vector of sums, from planes that are ld apart. */
static inline __attribute__((always_inline)) void TYPED(sums_to_weights)(const T *from, int64_t ld, V w[3][3])
{
    V e[3][4];
    EACH(j)
    {
        V s0 = *(const VU *)(from + j * ld), s1 = *(const VU *)(from + (4 + j) * ld),
          s2 = *(const VU *)(from + (8 + j) * ld), s3 = *(const VU *)(from + (12 + j) * ld);
        V half = (s1 + s2) * (T)0.5;
        e[0][j] = s0 + half;
        e[1][j] = (s1 - s2) * (T)0.5;
        e[2][j] = half + s3;
    }
    YK__UNROLL for (int i = 0; i < 3; i++)
    {
        V half = (e[i][1] + e[i][2]) * (T)0.5;
        w[i][0] = e[i][0] + half;
        w[i][1] = (e[i][1] - e[i][2]) * (T)0.5;
        w[i][2] = half + e[i][3];
    }
}

/* The same for whole maps: s0, s1 - s0 - s2, s2 along each axis. */
static inline __attribute__((always_inline)) void TYPED(whole_sums)(const T *from, int64_t ld, V w[3][3])
{
    V e[3][3];
    YK__UNROLL for (int j = 0; j < 3; j++)
    {
        e[0][j] = *(const VU *)(from + j * ld);
        e[2][j] = *(const VU *)(from + (6 + j) * ld);
        e[1][j] = *(const VU *)(from + (3 + j) * ld) - (e[0][j] + e[2][j]);
    }
    YK__UNROLL for (int i = 0; i < 3; i++)
    {
        w[i][0] = e[i][0];
        w[i][1] = e[i][1] - (e[i][0] + e[i][2]);
        w[i][2] = e[i][2];
    }
}

/* The gradient of the weights of one channel of x, from its sums. */
static void TYPED(total_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    struct grad *g = arg;
    const int64_t *stride = g->gw.stride;
    for (int64_t channel = begin; channel < end; channel++) {
        const T *from = (const T *)g->sums + channel * g->gout.width;
        const int64_t ld = g->x.channels * g->gout.width;
        V bad = {0};
        for (int64_t o = 0; o < g->gout.channels; o += WIDTH) {
            V w[3][3];
            int64_t part = g->gout.channels - o < WIDTH ? g->gout.channels - o : WIDTH;
            if (g->tiles.planes == 9)
                TYPED(whole_sums)(from + o, ld, w);
            else
                TYPED(sums_to_weights)(from + o, ld, w);
            YK__UNROLL for (int i = 0; i < 3; i++) YK__UNROLL for (int j = 0; j < 3; j++)
            {
                T *to = (T *)g->gw.data + channel * stride[1] + i * stride[2] + j * stride[3] + o * stride[0];
                bad += w[i][j] * (T)0;
                if (g->total == LOOK)
                    continue;
                if (stride[0] == 1) {
                    V before = g->total == ADD ? TYPED(yk__load_part)(to, part) : (V){0};
                    TYPED(yk__store_part)(to, g->total == ADD ? before + w[i][j] : w[i][j], part);
                    continue;
                }
                for (int64_t l = 0; l < part; l++)
                    to[l * stride[0]] = g->total == ADD ? to[l * stride[0]] + w[i][j][l] : w[i][j][l];
            }
        }
        for (int64_t i = 0; i < WIDTH; i++)
            if (bad[i] != 0)
                __atomic_store_n(&g->infinite, true, __ATOMIC_RELAXED);
    }
}

#undef EACH
#undef WIDTH
#undef PANEL
