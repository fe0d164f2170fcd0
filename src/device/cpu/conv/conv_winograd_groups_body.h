/*
 * conv_winograd_groups_body.h - groups of few channels, several transformed together, for one dtype; included by
 * conv_winograd_body.h.
 *
 * The channels of neighbouring groups follow each other in memory, and a line of it holds few groups: one alone would
 * read and write a line or two of every pixel. The windows of a row of tiles slide, of one vector of channels after the
 * other: the two columns that a tile shares with the next one stay in registers, so that each pixel of the row is
 * loaded once, and how far pixels lie apart does not matter.
 */

/* Transforms one column of a window, of which the rows [begin, end) are inside the map. */
static inline __attribute__((always_inline)) void TYPED(column_of)(const T *from, int64_t row, int64_t part, int begin,
                                                                   int end, V e[4], const bool whole)
{
    V d[4];
    EACH(i)
    {
        if (!whole && (i < begin || i >= end))
            d[i] = (V){0};
        else
            d[i] = whole || part == WIDTH ? (V) * (const VU *)(from + i * row)
                                          : TYPED(yk__load_part)(from + i * row, part);
    }
    e[0] = d[0] - d[2];
    e[1] = d[1] + d[2];
    e[2] = d[2] - d[1];
    e[3] = d[1] - d[3];
}

/* The windows of a row of tiles, of one vector of channels: `from` is the pixel of the first one's corner, whose column
 * in the map is -offset; `to` that tile of the first plane; the pixels `ahead` are fetched, the two rows of them that
 * no earlier window has read. */
static inline __attribute__((always_inline)) void TYPED(slide_windows)(const struct side *m, const T *from, int begin,
                                                                       int end, int64_t tiles, int64_t part, T *to,
                                                                       int64_t next, int64_t ld, int64_t ahead,
                                                                       const bool whole)
{
    const int64_t row = m->stride[1], column = m->stride[2];
    const T *fetch = from + ahead + 2 * row;
    V e[4][4];
    int64_t x = -m->offset[1];
    YK__UNROLL for (int j = 0; j < 2; j++)
    {
        if (x + j >= 0 && x + j < m->length)
            TYPED(column_of)(from + j * column, row, part, begin, end, e[j], whole);
        else
            EACH(i) e[j][i] = (V){0};
    }
    for (int64_t t = 0; t < tiles; t++, to += next) {
        x += 2;
        from += 2 * column;
        fetch += 2 * column;
        YK__UNROLL for (int j = 0; j < 2; j++)
        {
            __builtin_prefetch(fetch + j * column);
            __builtin_prefetch(fetch + j * column + row);
        }
        YK__UNROLL for (int j = 0; j < 2; j++)
        {
            if (x + j >= 0 && x + j < m->length)
                TYPED(column_of)(from + j * column, row, part, begin, end, e[2 + j], whole);
            else
                EACH(i) e[2 + j][i] = (V){0};
        }
        EACH(i)
        {
            *(VU *)(to + (4 * i + 0) * ld) = e[0][i] - e[2][i];
            *(VU *)(to + (4 * i + 1) * ld) = e[1][i] + e[2][i];
            *(VU *)(to + (4 * i + 2) * ld) = e[2][i] - e[1][i];
            *(VU *)(to + (4 * i + 3) * ld) = e[1][i] - e[3][i];
            e[0][i] = e[2][i];
            e[1][i] = e[3][i];
        }
    }
}

/* The windows of a block, of `channels` channels from c0 on, transformed: [16][tile][width]. */
static void TYPED(gather_groups)(const struct map *m, const struct block *b, int64_t c0, int64_t channels,
                                 int64_t width, T *to)
{
    const struct side *s = &m->src;
    int64_t ld = plane_size(b->tiles, width), images = b->n1 - b->n0, next = images * width;
    for (int64_t ty = b->y0; ty < b->y1; ty++, to += (m->tiles.tx - 1) * next)
        for (int64_t n = b->n0; n < b->n1; n++, to += width) {
            int64_t y = 2 * ty - s->offset[0];
            int begin = y < 0 ? (int)-y : 0, end = s->height - y < 4 ? (int)(s->height - y) : 4;
            const T *from = (const T *)s->data + n * s->stride[0] + y * s->stride[1] - s->offset[1] * s->stride[2] + c0;
            for (int64_t c = 0; c < channels; c += WIDTH) {
                int64_t part = channels - c < WIDTH ? channels - c : WIDTH;
                int64_t ahead = c + WIDTH < channels ? WIDTH
                                : n + 1 < b->n1      ? s->stride[0] - c
                                                     : 2 * s->stride[1] - (n - b->n0) * s->stride[0] - c;
                if (begin == 0 && end == 4 && part == WIDTH)
                    TYPED(slide_windows)(s, from + c, 0, 4, m->tiles.tx, WIDTH, to + c, next, ld, ahead, true);
                else
                    TYPED(slide_windows)(s, from + c, begin, end, m->tiles.tx, part, to + c, next, ld, ahead, false);
            }
        }
}

/* The weights of groups, each as a map of its own. */
static void TYPED(group_weight_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    struct map m = *(const struct map *)arg;
    const T *w = m.w;
    for (int64_t group = begin; group < end; group++) {
        m.w = w + group * m.w_group;
        TYPED(pack_weights)
        (&m, 0, (T *)m.weights + group * m.panel_size, (T *)m.taps + thread * WEIGHT_ROWS * 9 * PANEL);
    }
}

/* Computes a block of tiles and of groups. */
static void TYPED(group_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    struct map *m = arg;
    T *products = (T *)m->products + thread * m->products_size, *sums = (T *)m->sums + thread * m->sums_size;
    int64_t width = (m->cols + WIDTH - 1) / WIDTH * WIDTH;
    for (int64_t piece = begin; piece < end; piece++) {
        struct block b = block_of(&m->tiles, piece % m->tiles.blocks);
        int64_t g0 = piece / m->tiles.blocks * m->together;
        int64_t groups = m->groups - g0 < m->together ? m->groups - g0 : m->together;
        int64_t left = (groups * m->k + WIDTH - 1) / WIDTH * WIDTH, right = groups * width, tiles;
        int64_t low = yk__gemm_cut(b.tiles, YK__GEMM_ROWS, &tiles), high = b.tiles % tiles;
        const yk__gemm_kernel *kernels = TYPED(yk__gemm_kernels)[YK__GEMM_A_ROWS][width / WIDTH - 1];
        yk__gemm_step step = {0, 0};
        yk__gemm_tile tile = {
            .steps = &step, .n_steps = 1, .k = m->k, .lda = left, .ldb = width, .ldc = right, .csc = 1, .cols = width};
        TYPED(gather_groups)(m, &b, g0 * m->k, groups * m->k, left, products);
        for (int64_t t = 0; t < 16; t++)
            for (int64_t g = 0; g < groups; g++) {
                const T *from = products + t * plane_size(b.tiles, left) + g * m->k;
                T *to = sums + t * plane_size(b.tiles, right) + g * width;
                tile.b = (const T *)m->weights + (g0 + g) * m->panel_size + t * m->k * width;
                for (int64_t i = 0, height; i < tiles; i++, from += height * left, to += height * right) {
                    height = low + (i < high);
                    tile.a = from;
                    tile.c = to;
                    kernels[height - 1](&tile);
                }
            }
        if (!TYPED(scatter)(m, &b, sums, (T *)m->dst + g0 * m->cols, m->bias ? (const T *)m->bias + g0 * m->cols : NULL,
                            groups, m->cols))
            __atomic_store_n(&m->infinite, true, __ATOMIC_RELAXED);
    }
}
