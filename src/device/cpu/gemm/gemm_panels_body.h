/*
 * gemm_panels_body.h - products with a matrix that is packed once and used many times, of one dtype; included by
 * attention_body.h and lstm_body.h with T, TYPED(name), WIDTH (of a vector) and PANEL (of a panel) defined.
 */

/* Panels of PANEL columns for the tiles' B: element (l, j) of a k x cols matrix is at src[l * ks + j * cs]. Panel p is
 * at to + p * k * PANEL. */
static void TYPED(pack_panels)(T *to, const T *src, int64_t k, int64_t ks, int64_t cols, int64_t cs)
{
    for (int64_t j = 0; j < cols; j += PANEL)
        TYPED(yk__gemm_pack)(to + j * k, src + j * cs, k, ks, cols - j < PANEL ? cols - j : PANEL, cs, PANEL);
}

/*
 * c (rows, cols) = or += a (rows, k) times packed panels of k rows. With `padded` c has room for whole panels, which
 * are written; else only cols columns are. In mode A_COLUMNS a is (k, rows), lda from one k to the next.
 */
static void TYPED(multiply)(enum yk__gemm_mode mode, T *c, int64_t ldc, const T *a, int64_t lda, const T *panels,
                            int64_t rows, int64_t cols, int64_t k, bool accumulate, bool padded)
{
    yk__gemm_step step = {0, 0};
    int64_t tiles, low = yk__gemm_cut(rows, YK__GEMM_ROWS, &tiles), high = tiles ? rows % tiles : 0;
    for (int64_t j = 0; j < cols; j += PANEL) {
        int64_t left = cols - j < PANEL ? cols - j : PANEL,
                vectors = padded ? YK__GEMM_VECTORS : (left + WIDTH - 1) / WIDTH;
        yk__gemm_tile tile = {.a = a,
                              .b = panels + j * k,
                              .steps = &step,
                              .n_steps = 1,
                              .k = k,
                              .lda = lda,
                              .ldb = PANEL,
                              .c = c + j,
                              .ldc = ldc,
                              .csc = 1,
                              .cols = padded ? PANEL : left,
                              .accumulate = accumulate};
        for (int64_t i = 0; i < tiles; i++) {
            int64_t height = low + (i < high);
            TYPED(yk__gemm_kernels)[mode][vectors - 1][height - 1](&tile);
            tile.a = (const T *)tile.a + height * (mode == YK__GEMM_A_ROWS ? lda : 1);
            tile.c = (T *)tile.c + height * ldc;
        }
    }
}
