/*
 * conv_winograd_cached_body.h - maps of few channels, in any memory order: few tiles at a time, whose windows and
 * products stay in the first-level cache or close to it, for one dtype; included by conv_winograd_body.h.
 *
 * What a window of few channels is multiplied with costs little more than transforming it: the planes of a whole block,
 * which fill a second-level cache, would be written to and read from there. And pixels of many images often lie a large
 * power of two apart, so that those of a window share a set or two of each cache. So the rows of some images are
 * copied, each pixel once, to [column][image][channel], with zeros where the map ends. Channels that are not next to
 * each other are transposed by that copy, and those of the outputs by one like it.
 */

/* Copies row y of some images from n0 on, its first column at `to`. The next rows are fetched: too many streams for the
 * processor to foresee. */
static void TYPED(load_row)(const struct side *m, int64_t n0, int64_t images, int64_t y, T *to)
{
    const int64_t column = images * m->width, size = (int64_t)sizeof(T);
    const T *from = (const T *)m->data + n0 * m->stride[0] + y * m->stride[1];
    if (m->channel == 1) {
        bool joined = m->stride[0] == m->width && m->channels == m->width;
        int64_t count = joined ? 1 : images, len = joined ? column : m->channels;
        for (int64_t x = 0; x < m->length; x++, to += column)
            for (int64_t n = 0; n < count; n++) {
                const T *pixel = from + x * m->stride[2] + n * m->stride[0];
                for (int64_t c = 0; c < len; c += WIDTH) {
                    __builtin_prefetch(pixel + 2 * m->stride[2] + c, 0, 2);
                    *(VU *)(to + n * m->width + c) =
                        len - c < WIDTH ? TYPED(yk__load_part)(pixel + c, len - c) : (V) * (const VU *)(pixel + c);
                }
            }
        return;
    }
    for (int64_t n = 0; n < images; n++, from += m->stride[0], to += m->width) {
        for (int64_t x = 0; m->stride[2] != 1 && x < m->length; x++)
            yk__copy_strided(to + x * column, size, from + x * m->stride[2], m->channel * size, sizeof(T), m->channels);
        /* Planes often share sets of the first-level cache, which hold the lines of eight. */
        for (int64_t c = 0, count; m->stride[2] == 1 && c < m->channels; c += count) {
            count = at_most(m->channels - c, 8);
            for (int64_t i = c; i < c + count; i++)
                for (int64_t x = 0; x < m->length; x += YK__LINE / size)
                    __builtin_prefetch(from + m->stride[0] + i * m->channel + x, 0, 2);
            yk__transpose(to + c, column * size, from + c * m->channel, m->channel * size, m->length, count, sizeof(T));
        }
    }
}

/* Stores row y of the outputs of some images, from columns of images * width numbers. */
static void TYPED(store_row)(const struct map *m, int64_t n0, int64_t images, int64_t y, int64_t width, const T *from)
{
    const int64_t column = images * width, size = (int64_t)sizeof(T), *stride = m->dst_stride;
    T *to = (T *)m->dst + n0 * stride[0] + y * stride[1];
    for (int64_t n = 0; n < images; n++, from += width, to += stride[0]) {
        for (int64_t x = 0; stride[2] != 1 && x < m->length; x++)
            yk__copy_strided(to + x * stride[2], m->dst_channel * size, from + x * column, size, sizeof(T), m->cols);
        if (stride[2] != 1)
            continue;
        for (int64_t c = 0; c < m->cols; c++)
            for (int64_t x = 0; x < m->length; x += YK__LINE / size)
                __builtin_prefetch(to + stride[0] + c * m->dst_channel + x, 1, 2);
        yk__transpose(to, m->dst_channel * size, from, column * size, m->cols, m->length, sizeof(T));
    }
}

/* Copies the rows [begin, side) of the windows of row ty of the tiles. Row i of the first tiles is kept in place i %
 * side, and so is every row `side` further on. Their columns outside the map, and channels that only fill vectors, are
 * 0 since the start of a band. */
static void TYPED(load_rows)(const struct side *m, int64_t n0, int64_t images, int64_t ty, int begin, int64_t row_size,
                             T *rows)
{
    for (int i = begin; i < m->side; i++) {
        int64_t y = 2 * ty + i - m->offset[0];
        T *row = rows + (2 * ty + i) % m->side * row_size;
        if (y >= 0 && y < m->height)
            TYPED(load_row)(m, n0, images, y, row + m->offset[1] * images * m->width);
        else
            memset(row, 0, (size_t)row_size * sizeof(T));
    }
}

/* The windows of the tiles [first, last) of row ty, in the order [tx][image], transformed: [16][tile][width]. */
static inline __attribute__((always_inline)) void TYPED(windows_of)(const struct side *m, const T *rows,
                                                                    int64_t row_size, int64_t images, int64_t ty,
                                                                    int64_t first, int64_t last, T *to, const int side)
{
    const int64_t column = images * m->width, ld = plane_size(last - first, m->width);
    const T *row[4];
    for (int i = 0; i < side; i++)
        row[i] = rows + (2 * ty + i) % side * row_size;
    for (int64_t tile = first, end; tile < last; tile = end) {
        int64_t n = tile % images, at = tile / images * 2 * column + n * m->width;
        end = at_most(tile - n + images, last);
        for (int64_t stop = at + (end - tile) * m->width; at < stop; at += WIDTH, to += WIDTH) {
            V d[4][4];
            YK__UNROLL for (int i = 0; i < side; i++) YK__UNROLL for (int j = 0; j < side; j++) d[i][j] =
                *(const VU *)(row[i] + at + j * column);
            if (side == 4)
                TYPED(window_to_products)(d);
            else
                TYPED(gradient_to_products)(d);
            EACH(i) EACH(j) * (VU *)(to + (4 * i + j) * ld) = d[i][j];
        }
    }
}

static void TYPED(windows)(const struct side *m, const T *rows, int64_t row_size, int64_t images, int64_t ty,
                           int64_t first, int64_t last, T *to)
{
    if (m->side == 4)
        TYPED(windows_of)(m, rows, row_size, images, ty, first, last, to, 4);
    else
        TYPED(windows_of)(m, rows, row_size, images, ty, first, last, to, 2);
}

/* Writes the outputs of the tiles [first, last) of a row and of a panel of columns; pixel (0, 0) of the row's first
 * image is at `to`. Returns 0 in all lanes whose outputs are finite. */
static V TYPED(outputs)(const struct map *m, int64_t images, bool below, int64_t first, int64_t last, const T *from,
                        T *to, const T *bias, int64_t cols)
{
    int64_t width = (cols + WIDTH - 1) / WIDTH * WIDTH, ld = plane_size(last - first, width);
    const int64_t *stride = m->dst_stride;
    V bad = {0}, add[YK__GEMM_VECTORS] = {{0}};
    for (int64_t c = 0; bias && c < cols; c += WIDTH)
        add[c / WIDTH] = TYPED(yk__load_part)(bias + c, at_most(cols - c, WIDTH));
    for (int64_t tile = first, end; tile < last; tile = end) {
        int64_t tx = tile / images, n = tile % images;
        bool right = 2 * tx + 1 < m->length;
        T *at = to + n * stride[0] + 2 * tx * stride[2];
        end = at_most(tile - n + images, last);
        for (int64_t i = tile; i < end; i++, at += stride[0])
            for (int64_t c = 0; c < cols; c += WIDTH, from += WIDTH)
                bad +=
                    TYPED(store_outputs)(m, from, ld, add[c / WIDTH], at + c, below, right, at_most(cols - c, WIDTH));
    }
    return bad;
}

/* Computes bands of rows of tiles of some images. */
static void TYPED(strip_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    struct map *m = arg;
    const struct strips *s = &m->strips;
    T *rows = (T *)((char *)m->memory + thread * s->memory), *out = rows + s->row_size * 4,
      *products = out + s->out_size * 2, *sums = products + 16 * plane_size(s->most, m->src.width);
    int64_t out_width = (m->cols + WIDTH - 1) / WIDTH * WIDTH;
    bool turns = m->dst_channel != 1;
    V bad = {0};
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t n0 = piece / s->bands * s->images, images = at_most(s->images, m->tiles.n - n0);
        int64_t y0 = piece % s->bands * s->rows, y1 = at_most(y0 + s->rows, m->tiles.ty), of_row = m->tiles.tx * images;
        int64_t count, low = yk__gemm_cut(of_row, s->most, &count), high = of_row % count;
        struct map to = *m;
        if (turns) {
            to.dst_stride[0] = out_width;
            to.dst_stride[2] = images * out_width;
            to.dst_stride[1] = 2 * m->tiles.tx * to.dst_stride[2];
        }
        memset(rows, 0, (size_t)s->row_size * 4 * sizeof(T));
        for (int64_t ty = y0; ty < y1; ty++) {
            bool below = 2 * ty + 1 < m->height;
            T *pixel = turns ? out : (T *)m->dst + n0 * m->dst_stride[0] + 2 * ty * m->dst_stride[1];
            TYPED(load_rows)(&m->src, n0, images, ty, ty == y0 ? 0 : 2, s->row_size, rows);
            for (int64_t i = 0, first = 0, last; i < count; i++, first = last) {
                last = first + low + (i < high);
                TYPED(windows)(&m->src, rows, s->row_size, images, ty, first, last, products);
                for (int64_t panel = 0; panel < m->panels; panel++) {
                    int64_t cols = at_most(m->cols - panel * PANEL, PANEL), width = (cols + WIDTH - 1) / WIDTH * WIDTH;
                    yk__gemm_step step = {0, 0};
                    yk__gemm_tile tile = {.steps = &step,
                                          .n_steps = 1,
                                          .lda = m->src.width,
                                          .ldb = width,
                                          .ldc = width,
                                          .csc = 1,
                                          .cols = width};
                    for (int64_t t = 0; t < 16; t++) {
                        tile.a = products + t * plane_size(last - first, m->src.width);
                        tile.b = (const T *)m->weights + panel * m->panel_size + t * m->k * width;
                        tile.c = sums + t * plane_size(last - first, width);
                        TYPED(multiply_rows)(&tile, YK__GEMM_A_ROWS, last - first, m->k, SUM_LENGTH, false, NULL);
                    }
                    bad += TYPED(outputs)(&to, images, below || turns, first, last, sums, pixel + panel * PANEL,
                                          m->bias ? (const T *)m->bias + panel * PANEL : NULL, cols);
                }
            }
            for (int64_t i = 0; turns && i < 1 + below; i++)
                TYPED(store_row)(m, n0, images, 2 * ty + i, out_width, out + i * to.dst_stride[1]);
        }
    }
    for (int64_t i = 0; i < WIDTH; i++)
        if (bad[i] != 0)
            __atomic_store_n(&m->infinite, true, __ATOMIC_RELAXED);
}

/* The gradient of the weight: the sums of some bands each. */
static void TYPED(strip_sums_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct grad *g = arg;
    const struct strips *s = &g->strips;
    T *rows = (T *)((char *)g->products + thread * s->memory), *gout_rows = rows + s->row_size * 4,
      *products = gout_rows + s->out_size * 2, *right = products + 16 * plane_size(s->most, g->x.width);
    const int64_t width = g->gout.width, bands = s->blocks * s->bands, sums_size = 16 * g->x.channels * width;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        T *sums = (T *)g->sums + chunk * sums_size;
        bool fresh = true;
        for (int64_t band = chunk * bands / s->chunks; band < (chunk + 1) * bands / s->chunks; band++) {
            int64_t n0 = band / s->bands * s->images, images = at_most(s->images, g->tiles.n - n0);
            int64_t y0 = band % s->bands * s->rows, y1 = at_most(y0 + s->rows, g->tiles.ty);
            int64_t of_row = g->tiles.tx * images, count, low = yk__gemm_cut(of_row, s->most, &count);
            memset(rows, 0, (size_t)(s->row_size * 4 + s->out_size * 2) * sizeof(T));
            for (int64_t ty = y0; ty < y1; ty++) {
                TYPED(load_rows)(&g->x, n0, images, ty, ty == y0 ? 0 : 2, s->row_size, rows);
                TYPED(load_rows)(&g->gout, n0, images, ty, 0, s->out_size, gout_rows);
                for (int64_t i = 0, first = 0, last; i < count; i++, first = last, fresh = false) {
                    last = first + low + (i < of_row % count);
                    TYPED(windows)(&g->x, rows, s->row_size, images, ty, first, last, products);
                    TYPED(windows)(&g->gout, gout_rows, s->out_size, images, ty, first, last, right);
                    for (int64_t panel = 0; panel < g->panels; panel++) {
                        yk__gemm_step step = {0, 0};
                        yk__gemm_tile tile = {.steps = &step,
                                              .n_steps = 1,
                                              .lda = g->x.width,
                                              .ldb = width,
                                              .ldc = width,
                                              .csc = 1,
                                              .cols = at_most(width - panel * PANEL, PANEL)};
                        for (int64_t t = 0; t < 16; t++) {
                            tile.a = products + t * plane_size(last - first, g->x.width);
                            tile.b = right + t * plane_size(last - first, width) + panel * PANEL;
                            tile.c = sums + t * g->x.channels * width + panel * PANEL;
                            TYPED(multiply_rows)
                            (&tile, YK__GEMM_A_COLUMNS, g->x.channels, last - first, GRADIENT_LENGTH, !fresh, NULL);
                        }
                    }
                }
            }
        }
    }
}

/* Adds the sums of all bands to those of the first, in their order: some vectors of them. */
static void TYPED(add_sums_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct grad *g = arg;
    int64_t size = 16 * g->x.channels * g->gout.width;
    for (int64_t chunk = 1; chunk < g->strips.chunks; chunk++)
        for (int64_t i = begin * WIDTH; i < end * WIDTH; i += WIDTH)
            *(VU *)((T *)g->sums + i) += *(const VU *)((const T *)g->sums + chunk * size + i);
}
