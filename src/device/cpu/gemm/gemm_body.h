/*
 * gemm_body.h - matrix products of one dtype; included by gemm.c with T, V and TYPED(name) defined.
 */
#define WIDTH ((int64_t)(sizeof(V) / sizeof(T)))
#define PANEL (WIDTH * YK__GEMM_VECTORS)

/* Computes a product of a few numbers. */
static void TYPED(run_tiny)(const yk__gemm_product *p)
{
    const T *a = p->a, *b = p->b, *bias = p->bias;
    T *c = p->c;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            T sum = 0, *to = c + i * p->c_row + j * p->c_col;
            for (int64_t l = 0; l < p->k; l++)
                sum += a[i * p->a_row + l * p->a_k] * b[l * p->b_k + j * p->b_col];
            sum += bias ? bias[j] : 0;
            *to = p->accumulate ? *to + sum : sum;
        }
}

/* Computes all rows of columns [column, column + cols), k from k0 to k1 of the sums: row k0 of B is at b, the next
 * `ldb` on. */
static void TYPED(panel_rows)(const yk__gemm_product *p, int64_t column, int64_t cols, const T *b, int64_t ldb,
                              int64_t k0, int64_t k1)
{
    const yk__gemm_kernel *kernels = TYPED(yk__gemm_kernels)[p->mode][(cols - 1) / WIDTH];
    int64_t tiles, low = yk__gemm_cut(p->m, YK__GEMM_ROWS, &tiles), high = tiles ? p->m % tiles : 0;
    yk__gemm_step step = {0, 0};
    yk__gemm_tile tile = {.a = (const T *)p->a + k0 * p->a_k,
                          .b = b,
                          .steps = &step,
                          .n_steps = 1,
                          .k = k1 - k0,
                          .lda = p->mode == YK__GEMM_A_ROWS ? p->a_row : p->a_k,
                          .ldb = ldb,
                          .c = (T *)p->c + column * p->c_col,
                          .ldc = p->c_row,
                          .csc = p->c_col,
                          .cols = cols,
                          .bias = p->bias && !k0 ? (const T *)p->bias + column : NULL,
                          .accumulate = p->accumulate || k0};
    for (int64_t i = 0; i < tiles; i++) {
        int64_t height = low + (i < high);
        kernels[height - 1](&tile);
        tile.a = (const T *)tile.a + height * p->a_row;
        tile.c = (T *)tile.c + height * p->c_row;
    }
}

/* Computes a product whose rows of B are used in place. A last panel that is not whole starts early and repeats some
 * columns, or, where that would add twice, is packed into `memory` (k * PANEL). */
static void TYPED(run_direct)(const yk__gemm_product *p, void *memory)
{
    const T *b = p->b;
    int64_t column = 0;
    for (; column + PANEL <= p->n; column += PANEL)
        TYPED(panel_rows)(p, column, PANEL, b + column, p->b_k, 0, p->k);
    int64_t rest = p->n - column, width = (rest + WIDTH - 1) / WIDTH * WIDTH;
    if (!rest)
        return;
    if (rest == width || (!p->accumulate && p->n >= width)) {
        TYPED(panel_rows)(p, p->n - width, width, b + p->n - width, p->b_k, 0, p->k);
        return;
    }
    TYPED(yk__gemm_pack)(memory, b + column, p->k, p->b_k, rest, 1, width);
    TYPED(panel_rows)(p, column, rest, memory, width, 0, p->k);
}

/* Computes panels of a product of few rows: every number of B is used once, so it is read in place. Columns that do not
 * fill vectors are packed. */
static void TYPED(panels_in_place)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct blocked *g = arg;
    const yk__gemm_product *p = &g->p;
    T *memory = (T *)(g->scratch + thread * g->scratch_bytes);
    for (int64_t k0 = 0; k0 < p->k; k0 += g->depth) {
        int64_t k1 = k0 + g->depth < p->k ? k0 + g->depth : p->k;
        for (int64_t panel = begin; panel < end; panel++) {
            int64_t column = panel * PANEL, cols = p->n - column < PANEL ? p->n - column : PANEL;
            int64_t width = (cols + WIDTH - 1) / WIDTH * WIDTH;
            const T *b = (const T *)p->b + k0 * p->b_k + column;
            if (cols == width) {
                TYPED(panel_rows)(p, column, cols, b, p->b_k, k0, k1);
                continue;
            }
            TYPED(yk__gemm_pack)(memory, b, k1 - k0, p->b_k, cols, 1, width);
            TYPED(panel_rows)(p, column, cols, memory, width, k0, k1);
        }
    }
}

static inline V TYPED(load_some)(const T *from, int64_t count)
{
    if (count >= WIDTH)
        return *(const VU *)from;
#if defined(__AVX512F__)
    return TYPED(masked)(from, count);
#else
    V v = {0};
    for (int64_t i = 0; i < count; i++)
        v[i] = from[i];
    return v;
#endif
}

/* rows x 4 dot products of rows of A and columns of B, both with k in order in memory, k from k0 to k1. */
static inline __attribute__((always_inline)) void TYPED(dots)(const struct dot_products *d, int64_t row, int64_t column,
                                                              const int rows, int64_t k0, int64_t k1)
{
    const yk__gemm_product *p = &d->p;
    V sum[4][4];
    YK__UNROLL
    for (int i = 0; i < rows; i++)
        YK__UNROLL
    for (int j = 0; j < 4; j++)
        sum[i][j] = (V){0};
    /* A missing column repeats the last one. */
    int64_t columns = p->n - column < 4 ? p->n - column : 4;
    const T *a = (const T *)p->a + row * p->a_row, *bs[4];
    for (int64_t j = 0; j < 4; j++)
        bs[j] = (const T *)p->b + (column + (j < columns ? j : columns - 1)) * p->b_col;
    int64_t l = k0;
    for (; l + WIDTH <= k1; l += WIDTH) {
        V left[4];
        YK__UNROLL
        for (int i = 0; i < rows; i++)
            left[i] = *(const VU *)(a + i * p->a_row + l);
        YK__UNROLL
        for (int j = 0; j < 4; j++) {
            V right = *(const VU *)(bs[j] + l);
            YK__UNROLL
            for (int i = 0; i < rows; i++)
                sum[i][j] += left[i] * right;
        }
    }
    if (l < k1) {
        V left[4];
        YK__UNROLL
        for (int i = 0; i < rows; i++)
            left[i] = TYPED(load_some)(a + i * p->a_row + l, k1 - l);
        YK__UNROLL
        for (int j = 0; j < 4; j++) {
            V right = TYPED(load_some)(bs[j] + l, k1 - l);
            YK__UNROLL
            for (int i = 0; i < rows; i++)
                sum[i][j] += left[i] * right;
        }
    }
    const T *bias = k0 ? NULL : p->bias;
    bool accumulate = p->accumulate || k0;
    YK__UNROLL
    for (int i = 0; i < rows; i++) {
        T total[4];
        TYPED(add_up)(sum[i], total);
        T *c = (T *)p->c + (row + i) * p->c_row + column * p->c_col;
        for (int64_t j = 0; j < columns; j++) {
            T value = total[j] + (bias ? bias[(row + i) * d->bias_row + (column + j) * d->bias_col] : 0);
            c[j * p->c_col] = accumulate ? c[j * p->c_col] + value : value;
        }
    }
}

/* Multiplies few rows of A and columns of B that lie in memory in order of k: x w^T of a small batch. Pieces are four
 * columns. */
static void TYPED(run_dots)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct dot_products *d = arg;
    int64_t rows = d->p.m, k = d->p.k;
    for (int64_t k0 = 0, k1; k0 < k; k0 = k1) {
        k1 = k - k0 > DOTS_DEPTH ? k0 + DOTS_DEPTH : k;
        for (int64_t column = begin * 4; column < end * 4; column += 4) {
            int64_t row = 0;
            for (; row + 4 <= rows; row += 4)
                TYPED(dots)(d, row, column, 4, k0, k1);
            if (rows - row == 3)
                TYPED(dots)(d, row, column, 3, k0, k1);
            else if (rows - row == 2)
                TYPED(dots)(d, row, column, 2, k0, k1);
            else if (rows - row == 1)
                TYPED(dots)(d, row, column, 1, k0, k1);
        }
    }
}

/* Computes groups [begin, end) of columns of the result for k from k0 to k1, A packed. A group's columns of B, which
 * lie in memory in order of k, are the rows of tiles, and A's rows the columns: C is computed transposed. The next
 * group is fetched meanwhile. */
static void TYPED(turned_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct blocked *g = arg;
    const yk__gemm_product *p = &g->p;
    int64_t width = g->panels * PANEL, depth = g->k1 - g->k0;
    T *left = (T *)(g->scratch + thread * g->scratch_bytes), *sums = left + YK__GEMM_ROWS * TURNED_LD;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t column = piece * YK__GEMM_ROWS, cols = p->n - column < YK__GEMM_ROWS ? p->n - column : YK__GEMM_ROWS;
        const T *b = (const T *)p->b + column * p->b_col + g->k0, *next = b + cols * p->b_col;
        int64_t fetched = 0, to_fetch = p->n - column - cols < YK__GEMM_ROWS ? p->n - column - cols : YK__GEMM_ROWS;
        yk__gemm_step step = {0, 0};
        for (int64_t k = 0; k < depth; k += TURNED_DEPTH) {
            int64_t count = depth - k < TURNED_DEPTH ? depth - k : TURNED_DEPTH;
            for (int64_t i = 0; i < cols; i++)
                memcpy(left + i * TURNED_LD, b + i * p->b_col + k, (size_t)count * sizeof(T));
            for (int64_t panel = 0; panel < g->panels; panel++)
                for (int64_t at = 0; at < count; at += TURNED_SUM) {
                    /* A run of the next group's is fetched by one tile: a line for each k. */
                    int64_t line = 64 / (int64_t)sizeof(T), length = count - at < TURNED_SUM ? count - at : TURNED_SUM;
                    bool fetches = fetched < to_fetch * depth;
                    yk__gemm_tile tile = {.a = left + at,
                                          .b = (const T *)g->packed + (panel * g->depth + k + at) * PANEL,
                                          .steps = &step,
                                          .n_steps = 1,
                                          .k = length,
                                          .lda = TURNED_LD,
                                          .ldb = PANEL,
                                          .c = sums + panel * PANEL,
                                          .ldc = width,
                                          .csc = 1,
                                          .cols = PANEL,
                                          .accumulate = k + at > 0};
                    if (fetches) {
                        tile.fetch = (const char *)(next + fetched / depth * p->b_col + fetched % depth);
                        tile.fetch_step = 64;
                        int64_t rest = depth - fetched % depth;
                        fetched += length * line < rest ? length * line : rest;
                    }
                    TYPED(yk__gemm_kernels)
                    [fetches ? YK__GEMM_A_ROWS_FETCHING : YK__GEMM_A_ROWS][YK__GEMM_VECTORS - 1][cols - 1](&tile);
                }
        }
        bool accumulate = p->accumulate || g->k0;
        const T *bias = p->bias && !g->k0 ? (const T *)p->bias + column : NULL;
        for (int64_t i = 0; i < p->m; i++) {
            T *c = (T *)p->c + i * p->c_row + column;
            for (int64_t j = 0; j < cols; j++) {
                T value = sums[j * width + i] + (bias ? bias[j] : 0);
                c[j] = accumulate ? c[j] + value : value;
            }
        }
    }
}

static void TYPED(pack_turned)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct blocked *g = arg;
    const yk__gemm_product *p = &g->p;
    for (int64_t panel = begin; panel < end; panel++) {
        int64_t rows = p->m - panel * PANEL < PANEL ? p->m - panel * PANEL : PANEL;
        TYPED(yk__gemm_pack)
        ((T *)g->packed + panel * PANEL * g->depth, (const T *)p->a + panel * PANEL * p->a_row + g->k0 * p->a_k,
         g->k1 - g->k0, p->a_k, rows, p->a_row, PANEL);
    }
}

static void TYPED(pack_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct blocked *g = arg;
    const yk__gemm_product *p = &g->p;
    for (int64_t panel = begin; panel < end; panel++) {
        int64_t cols = p->n - panel * PANEL < PANEL ? p->n - panel * PANEL : PANEL;
        const T *b = (const T *)p->b + g->k0 * p->b_k + panel * PANEL * p->b_col;
        TYPED(yk__gemm_pack)
        ((T *)g->packed + panel * PANEL * g->depth, b, g->k1 - g->k0, p->b_k, cols, p->b_col,
         (cols + WIDTH - 1) / WIDTH * WIDTH);
    }
}

/* Computes rows [m0, m1) times some panels of the packed part of B. */
static void TYPED(block_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct blocked *g = arg;
    const yk__gemm_product *p = &g->p;
    int64_t k = g->k1 - g->k0;
    T *left = (T *)(g->scratch + thread * g->scratch_bytes);
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t group = piece % g->groups, m0 = piece / g->groups * g->rows;
        int64_t m1 = m0 + g->rows < p->m ? m0 + g->rows : p->m;
        int64_t tiles, low = yk__gemm_cut(m1 - m0, YK__GEMM_ROWS, &tiles), high = tiles ? (m1 - m0) % tiles : 0;
        const T *a = (const T *)p->a + m0 * p->a_row + g->k0 * p->a_k;
        int64_t lda = p->a_row, wide = low + (high > 0);
        if (p->mode == YK__GEMM_A_COLUMNS) {
            /* Panels of a tile's rows, one for each k. */
            int64_t row = 0;
            for (int64_t i = 0; i < tiles; i++) {
                int64_t height = low + (i < high);
                TYPED(yk__gemm_pack)(left + i * wide * k, a + row * p->a_row, k, p->a_k, height, p->a_row, wide);
                row += height;
            }
            lda = wide;
        } else if (g->copy) {
            lda = g->depth + 16;
            for (int64_t i = 0; i < m1 - m0; i++)
                for (int64_t l = 0; l < k; l++)
                    left[i * lda + l] = a[i * p->a_row + l * p->a_k];
            a = left;
        }
        yk__gemm_step step = {0, 0};
        int64_t first = group * g->panels / g->groups, last = (group + 1) * g->panels / g->groups;
        for (int64_t panel = first; panel < last; panel++) {
            int64_t cols = p->n - panel * PANEL < PANEL ? p->n - panel * PANEL : PANEL;
            int64_t vectors = (cols + WIDTH - 1) / WIDTH, row = 0;
            yk__gemm_tile tile = {.b = (const T *)g->packed + panel * PANEL * g->depth,
                                  .steps = &step,
                                  .n_steps = 1,
                                  .k = k,
                                  .lda = lda,
                                  .ldb = vectors * WIDTH,
                                  .ldc = p->c_row,
                                  .csc = p->c_col,
                                  .cols = cols,
                                  .bias = p->bias && !g->k0 ? (const T *)p->bias + panel * PANEL : NULL,
                                  .accumulate = p->accumulate || g->k0};
            for (int64_t i = 0; i < tiles; i++) {
                int64_t height = low + (i < high);
                tile.a = p->mode == YK__GEMM_A_COLUMNS ? left + i * wide * k : a + row * lda;
                tile.c = (T *)p->c + (m0 + row) * p->c_row + panel * PANEL * p->c_col;
                TYPED(yk__gemm_kernels)[p->mode][vectors - 1][height - 1](&tile);
                row += height;
            }
        }
    }
}

#undef WIDTH
#undef PANEL
