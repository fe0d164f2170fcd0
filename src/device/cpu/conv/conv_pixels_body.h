/*
 * conv_pixels_body.h - the pixel convolutions of one dtype; included by conv_pixels.c with T, V (a vector of sums),
 * TYPED(name), and what the kernels of gemm_micro.h and gemm_micro_bf16.h differ in: TILE (their type), MODE(lines,
 * tile, next) (of the kernel of a map, which may fetch lines, or what is at `next` unless that is NULL), DEPTH(k) (rows
 * of k that are packed), LENGTH (products of one sum in registers), WHOLE (what a tile has that is not shared),
 * WAITING(tile, i, first, last) (where tile i of a gradient keeps its sum between parts of it) defined. HALF leaves out
 * what takes maps that are not packed.
 */
#define WIDTH ((int64_t)(sizeof(V) / sizeof(((V){0})[0])))
#define PANEL (WIDTH * YK__GEMM_VECTORS)

/* Packs columns [panel * PANEL, ...) of every tap that is used, one tap after the other. */
static void TYPED(pack_panel)(const struct map *m, T *to, int64_t panel)
{
    int64_t cols = m->cols - panel * PANEL < PANEL ? m->cols - panel * PANEL : PANEL;
    int64_t width = (cols + WIDTH - 1) / WIDTH * WIDTH;
    for (int64_t ky = 0; ky < m->taps[0]; ky++)
        for (int64_t kx = 0; kx < m->taps[1]; kx++) {
            if (m->y.slot[ky] < 0 || m->x.slot[kx] < 0)
                continue;
            const T *w = (const T *)m->w + ky * m->w_tap[0] + kx * m->w_tap[1] + panel * PANEL * m->w_col;
            TYPED(yk__gemm_pack)(to, w, m->k, m->w_k, cols, m->w_col, width);
            to += DEPTH(m->k) * width;
        }
}

/* Computes rows of the destination that share their links: rows x cols, in tiles. The rows after them read memory
 * `next` elements further, which the first panel fetches; 0 where they do not follow each other. */
static void TYPED(run_rows)(const struct map *m, TILE *tile, int64_t panel, int64_t rows, const T *src, T *dst,
                            yk__gemm_lines *ahead, int64_t next)
{
    int64_t vectors = (tile->cols + WIDTH - 1) / WIDTH, tiles;
    int64_t low = yk__gemm_cut(rows, most_rows(tile->lda * (int64_t)sizeof(T)), &tiles),
            high = rows % (tiles ? tiles : 1);
    const yk__gemm_step *steps = tile->steps;
    const T *packed = tile->b;
    int64_t n_steps = tile->n_steps, depth = m->k < LENGTH ? m->k : LENGTH;
    int64_t most = depth ? LENGTH / depth : n_steps;
    const T *bias = m->bias ? (const T *)m->bias + panel * PANEL : NULL;
    const bool fetches = m->far_src && panel == 0 && next && tile->lda == m->k;
    const T *after = src + next;
    for (int64_t i = 0; i < tiles; i++) {
        int64_t height = low + (i < high), done = 0;
        const T *then = i + 1 < tiles ? src + height * tile->lda : after;
        tile->c = dst;
        tile->bias = bias;
        tile->accumulate = false;
        do {
            tile->steps = steps + done;
            tile->n_steps = n_steps - done < most ? n_steps - done : most;
            int64_t at = 0;
            do { /* more than once only where one step is longer than a sum may be */
                tile->k = m->k - at < depth ? m->k - at : depth;
                tile->a = src + at;
                tile->b = packed + at * tile->ldb;
                /* A line for each k: of the parts of a long step each fetches the next lines. */
                const char *line = fetches ? (const char *)then + at * YK__LINE : NULL;
                TYPED(yk__gemm_kernels)[MODE(ahead, tile, line)][vectors - 1][height - 1](tile);
                tile->bias = NULL;
                tile->accumulate = true;
                at += depth;
            } while (at < m->k);
            done += tile->n_steps;
        } while (done < n_steps);
        src += height * tile->lda;
        dst += height * tile->ldc;
    }
    tile->steps = steps;
    tile->n_steps = n_steps;
    tile->b = packed;
}

/* Writes zeros to all channels of `run` pixels, `step` apart, of n images. */
static void TYPED(clear)(const struct map *m, T *dst, int64_t run, int64_t step, int64_t n)
{
    size_t bytes = (size_t)m->cols * sizeof(T);
    if (m->dst_stride[0] == m->cols && step == n * m->cols) {
        memset(dst, 0, (size_t)(run * n) * bytes);
        return;
    }
    for (int64_t i = 0; i < run; i++)
        for (int64_t j = 0; j < n; j++)
            memset(dst + i * step + j * m->dst_stride[0], 0, bytes);
}

/* Computes destination rows [y0, y1), images [n0, n1), one panel of columns, whose weights are packed at `packed`. */
static void TYPED(run_block)(const struct map *m, int64_t panel, const T *packed, int64_t n0, int64_t n1, int64_t y0,
                             int64_t y1, yk__gemm_step *steps, yk__gemm_lines *ahead)
{
    int64_t cols = m->cols - panel * PANEL < PANEL ? m->cols - panel * PANEL : PANEL;
    int64_t width = (cols + WIDTH - 1) / WIDTH * WIDTH, n = n1 - n0;
    TILE tile = {.b = packed, .k = m->k, .ldb = width, .csc = 1, .cols = cols, .steps = steps WHOLE};
    /* True if images that lie closer than pixels fill a tile as well. */
    bool filled = n >= LEAST_IMAGES && m->src_stride[0] < m->src_stride[2];
    for (int64_t y = y0; y < y1; y++) {
        const yk__conv_link *ly = m->y.links + m->y.first[y];
        int64_t count_y = m->y.first[y + 1] - m->y.first[y], period = count_y && !filled ? m->period : 1;
        for (int64_t first = 0; first < period; first++)
            for (int64_t x = first, run; x < m->x.size; x += run * period) {
                int64_t step;
                run = yk__conv_run_every(&m->x, x, period, &step);
                T *dst = (T *)m->dst + n0 * m->dst_stride[0] + y * m->dst_stride[1] + x * m->dst_stride[2];
                const yk__conv_link *lx = m->x.links + m->x.first[x];
                int64_t count_x = m->x.first[x + 1] - m->x.first[x], ldc = period * m->dst_stride[2];
                if ((!count_x || !count_y) && !m->bias) {
                    if (panel == 0)
                        TYPED(clear)(m, dst, run, ldc, n);
                    continue;
                }
                bool joined = n == 1 || (run > 1 && n == m->n && step * m->src_stride[2] == n * m->src_stride[0] &&
                                         ldc == n * m->dst_stride[0]);
                bool by_image = !joined && (n >= run || filled);
                tile.n_steps = 0;
                for (int64_t i = 0; i < count_y; i++)
                    for (int64_t j = 0; j < count_x; j++)
                        steps[tile.n_steps++] = (yk__gemm_step){
                            ly[i].src * m->src_stride[1] + lx[j].src * m->src_stride[2],
                            (m->y.slot[ly[i].tap] * m->x.slots + m->x.slot[lx[j].tap]) * DEPTH(m->k) * width};
                const T *src = (const T *)m->src + n0 * m->src_stride[0];
                dst += panel * PANEL;
                /* Groups of rows: all, the images of a pixel, or the pixels of an image. */
                int64_t groups = n, rows = run, src_step = m->src_stride[0], dst_step = m->dst_stride[0];
                tile.lda = step * m->src_stride[2];
                tile.ldc = ldc;
                if (by_image || (joined && n > 1)) {
                    groups = by_image ? run : 1, rows = by_image ? n : n * run;
                    src_step = tile.lda, dst_step = tile.ldc;
                    tile.lda = m->src_stride[0];
                    tile.ldc = m->dst_stride[0];
                }
                int64_t next = groups == 1 ? rows * tile.lda : src_step;
                for (int64_t i = 0; i < groups; i++)
                    TYPED(run_rows)(m, &tile, panel, rows, src + i * src_step, dst + i * dst_step, ahead, next);
            }
    }
}

static void TYPED(pack_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct map *m = arg;
    for (int64_t panel = begin; panel < end; panel++)
        TYPED(pack_panel)(m, (T *)m->packed + panel * m->panel_size, panel);
}

static void TYPED(run_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct map *m = arg;
    yk__gemm_step *steps = m->steps + (int64_t)thread * m->taps[0] * m->taps[1];
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t panel = piece % m->panels, block = piece / m->panels;
        int64_t n0 = block / m->blocks_y * m->block_n, y0 = block % m->blocks_y * m->block_y;
        int64_t n1 = n0 + m->block_n < m->n ? n0 + m->block_n : m->n;
        int64_t y1 = y0 + m->block_y < m->y.size ? y0 + m->block_y : m->y.size;
        T *packed = (T *)m->packed + (m->fresh ? (int64_t)thread : panel) * m->panel_size;
        yk__gemm_lines ahead = {0};
        if (m->fresh)
            TYPED(pack_panel)(m, packed, panel);
        if (m->fresh && panel + 1 < m->panels && (m->w_k == 1 || m->w_col == 1))
            ahead = weight_lines(m, (panel + 1) * PANEL, PANEL, sizeof(T));
        TYPED(run_block)(m, panel, packed, n0, n1, y0, y1, steps, &ahead);
    }
}

/* Packs pixels [begin, end) of those that the block packs of a side, a few at a time for all panels. */
static void TYPED(pack_pixels)(const struct grad *g, bool right, int64_t begin, int64_t end)
{
    const struct side *s = right != g->swapped ? &g->gout : &g->x;
    const int64_t n = g->n1 - g->n0, depth = DEPTH(n), all = pixels(s);
    const int64_t most = yk__ceil_div(PACK_BYTES, s->pixel * n), far = yk__ceil_div(PACK_AHEAD, s->pixel * n);
    const T *map = (const T *)(const void *)s->data;
    for (int64_t pixel = begin, run, step; pixel < end; pixel += run) {
        int64_t i = pixel % s->width, row = s->from + pixel / s->width;
        int64_t slot = (row % s->ring * s->width + i) * depth;
        run = evenly(s, i, most < end - pixel ? most : end - pixel, n, depth, &step);
        if (pixel + far + run <= all) {
            const char *ahead = (const char *)(map + pixel_at(s, pixel + far));
            for (int64_t l = 0; l < run * n; l++, ahead += step * (int64_t)sizeof(T))
                for (int64_t at = 0; at < s->pixel; at += YK__LINE)
                    __builtin_prefetch(ahead + at, 0, 2);
        }
        const T *src = map + pixel_at(s, pixel);
        for (int64_t p = 0; p < (right ? g->right_panels : g->left_panels); p++) {
            int64_t at = p * PANEL, cols = g->right - at < PANEL ? g->right - at : PANEL;
            int64_t width = (cols + WIDTH - 1) / WIDTH * WIDTH;
            T *to = (T *)g->packed_right + p * g->right_size;
            if (!right) {
                cols = left_rows(g, p, &at);
                width = g->left_width;
                to = (T *)g->packed_left + p * g->left_size;
            }
            TYPED(yk__gemm_pack)(to + slot * width, src + at, run * n, step, cols, 1, width);
        }
    }
}

/* Packs the pixels that the block adds, of the left side, then of the right one. */
static void TYPED(pack_gradient)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct grad *g = arg;
    int64_t left = pixels(g->swapped ? &g->gout : &g->x);
    TYPED(pack_pixels)(g, false, begin, end < left ? end : left);
    TYPED(pack_pixels)(g, true, begin < left ? 0 : begin - left, end - left);
}

/* The gradient of one tap and panel of the right side, all channels of the left one, over the packed block. */
static void TYPED(run_gradient)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct grad *g = arg;
    int64_t n = DEPTH(g->n1 - g->n0);
    yk__gemm_step *steps = g->steps + (int64_t)thread * g->most_steps;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t tap = piece / g->right_panels, panel = piece % g->right_panels;
        const struct tap *t = &g->tap[tap];
        int64_t cols = g->right - panel * PANEL < PANEL ? g->right - panel * PANEL : PANEL;
        int64_t vectors = (cols + WIDTH - 1) / WIDTH, width = vectors * WIDTH;
        /* Pixels of a row that are contiguous in both packed blocks are one step, or several where the row is long. */
        int64_t row = t->x1 - t->x0, from = t->x0 * g->stride[1] + t->dx, run = 1;
        if (row == 1 || g->x.col[from + g->stride[1]] == g->x.col[from] + 1) {
            int64_t pieces = (row * n + GRADIENT_LENGTH / 2) / GRADIENT_LENGTH;
            run = yk__ceil_div(row, pieces < 1 ? 1 : pieces);
        }
        int64_t most = row % run ? 1 : GRADIENT_LENGTH / (run * n);
        int64_t y0 = t->y0 > g->y0 ? t->y0 : g->y0, y1 = t->y1 < g->y1 ? t->y1 : g->y1;
        most = most < 1 ? 1 : most < g->most_steps ? most : g->most_steps;
        TILE tile = {.b = (T *)g->packed_right + panel * g->right_size,
                     .steps = steps,
                     .lda = g->left_width,
                     .ldb = width,
                     .ldc = g->gw_stride[!g->swapped],
                     .csc = g->gw_stride[g->swapped],
                     .cols = cols};
        bool first = g->first, fetches = true;
        struct lines of_x = lines_from(&g->x, g->n1 - g->n0, piece * g->left_panels);
        struct lines of_gout = lines_from(&g->gout, g->n1 - g->n0, piece * g->left_panels);
        T *gw = (T *)g->gw + t->ky * g->gw_stride[2] + t->kx * g->gw_stride[3] + panel * PANEL * tile.csc;
        int64_t y = y0, x = t->x0;
        do {
            int64_t count = 0;
            tile.k = (t->x1 - x < run ? t->x1 - x : run) * n;
            while (count < most && y < y1) {
                int64_t row_x = g->x.row[y * g->stride[0] + t->dy] % g->x.ring * g->x.width;
                int64_t row_gout = g->gout.row[y] % g->gout.ring * g->gout.width;
                for (; count < most && x < t->x1; x += run) {
                    int64_t at_x = (row_x + g->x.col[x * g->stride[1] + t->dx]) * n;
                    int64_t at_gout = (row_gout + g->gout.col[x]) * n;
                    steps[count++] = (yk__gemm_step){(g->swapped ? at_gout : at_x) * g->left_width,
                                                     (g->swapped ? at_x : at_gout) * width};
                }
                if (x >= t->x1)
                    x = t->x0, y++;
            }
            tile.n_steps = count;
            bool more = y < y1;
            for (int64_t i = 0; i < g->left_panels; i++) {
                int64_t at, rows = left_rows(g, i, &at);
                tile.a = (T *)g->packed_left + i * g->left_size;
                tile.c = gw + at * tile.ldc;
                WAITING(tile, piece * g->left_panels + i, first, g->last && !more);
                if (fetches) {
                    fetch_share(&g->x, sizeof(T), &of_x);
                    fetch_share(&g->gout, sizeof(T), &of_gout);
                }
                TYPED(yk__gemm_kernels)[YK__GEMM_A_COLUMNS][vectors - 1][rows - 1](&tile);
            }
            first = fetches = false;
        } while (y < y1);
    }
}

#ifndef HALF
/* Computes tiles [begin, end) of the gradient of a 1 x 1 weight: some channels of the left side times a panel of the
 * right. */
static void TYPED(pointwise_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct pointwise *g = arg;
    T edge[GRADIENT_LENGTH * PANEL] __attribute__((aligned(64)));
    yk__gemm_step step = {0, 0};
    int64_t low = g->left / g->left_panels, high = g->left % g->left_panels;
    for (int64_t at = 0; at < g->pixels; at += GRADIENT_LENGTH) {
        int64_t packed = -1;
        for (int64_t piece = begin; piece < end; piece++) {
            int64_t panel = piece / g->left_panels, i = piece % g->left_panels;
            int64_t cols = g->right - panel * PANEL < PANEL ? g->right - panel * PANEL : PANEL;
            int64_t vectors = (cols + WIDTH - 1) / WIDTH, row = i * low + (i < high ? i : high);
            yk__gemm_tile tile = {.a = (const T *)g->map[0] + at * g->step[0] + row,
                                  .b = (const T *)g->map[1] + at * g->step[1] + panel * PANEL,
                                  .steps = &step,
                                  .n_steps = 1,
                                  .k = g->pixels - at < GRADIENT_LENGTH ? g->pixels - at : GRADIENT_LENGTH,
                                  .lda = g->step[0],
                                  .ldb = g->step[1],
                                  .c = (T *)g->gw + row * g->gw_stride[0] + panel * PANEL * g->gw_stride[1],
                                  .ldc = g->gw_stride[0],
                                  .csc = g->gw_stride[1],
                                  .cols = cols,
                                  .accumulate = at > 0 || g->accumulate};
            if (cols % WIDTH) { /* a kernel reads whole vectors */
                if (packed != panel)
                    TYPED(yk__gemm_pack)(edge, tile.b, tile.k, g->step[1], cols, 1, vectors * WIDTH);
                packed = panel;
                tile.b = edge;
                tile.ldb = vectors * WIDTH;
            }
            TYPED(yk__gemm_kernels)[YK__GEMM_A_COLUMNS][vectors - 1][low + (i < high) - 1](&tile);
        }
    }
}

#endif

#undef WIDTH
#undef PANEL
