/*
 * gemm_pack_body.h - packing of one dtype; included by gemm_pack.c with T, TYPED(name) and SIDE (of the
 * squares of transpose.h) defined.
 */

/* Rows of `cols` numbers, each written without touching what lies after it; `rest` zeros follow each. */
static inline __attribute__((always_inline)) void TYPED(copy_pieces)(T *to, const T *src, int64_t k, int64_t ks,
                                                                     int64_t cols, int64_t width, const int piece)
{
    /* The last piece overlaps the one before it. */
    for (int64_t l = 0; l < k; l++, to += width, src += ks) {
        for (int64_t j = 0; j + piece < cols; j += piece)
            memcpy(to + j, src + j, (size_t)piece * sizeof(T));
        memcpy(to + cols - piece, src + cols - piece, (size_t)piece * sizeof(T));
        for (int64_t j = cols; j < width; j++)
            to[j] = 0;
    }
}

static void TYPED(copy_rows)(T *to, const T *src, int64_t k, int64_t ks, int64_t cols, int64_t width)
{
    size_t bytes = (size_t)width * sizeof(T);
    if (cols == width && bytes == 2 * YK__VECTOR_BYTES) {
        for (int64_t l = 0; l < k; l++)
            memcpy(to + l * width, src + l * ks, 2 * YK__VECTOR_BYTES);
    } else if (cols >= 8 && cols <= 16) {
        TYPED(copy_pieces)(to, src, k, ks, cols, width, 8);
    } else if (cols >= 16) {
        TYPED(copy_pieces)(to, src, k, ks, cols, width, 16);
    } else if (cols >= 4) {
        TYPED(copy_pieces)(to, src, k, ks, cols, width, 4);
    } else {
        TYPED(copy_pieces)(to, src, k, ks, cols, width, 1);
    }
}

static void TYPED(copy_transposed)(T *to, const T *src, int64_t k, int64_t cols, int64_t cs, int64_t width)
{
    int64_t whole_k = k - k % SIDE, whole_cols = cols - cols % SIDE;
    for (int64_t l = 0; l < whole_k; l += SIDE)
        for (int64_t j = 0; j < whole_cols; j += SIDE)
            TYPED(yk__transpose)(to + l * width + j, width, src + j * cs + l, cs);
    for (int64_t l = 0; l < k; l++) {
        for (int64_t j = l < whole_k ? whole_cols : 0; j < cols; j++)
            to[l * width + j] = src[j * cs + l];
        for (int64_t j = cols; j < width; j++)
            to[l * width + j] = 0;
    }
}

void TYPED(yk__gemm_pack)(T *to, const T *src, int64_t k, int64_t ks, int64_t cols, int64_t cs, int64_t width)
{
    if (cols < 1)
        return;
    if (cs == 1 || cols == 1) {
        TYPED(copy_rows)(to, src, k, ks, cols, width);
        return;
    }
    if (ks == 1) {
        TYPED(copy_transposed)(to, src, k, cols, cs, width);
        return;
    }
    for (int64_t l = 0; l < k; l++) {
        for (int64_t j = 0; j < cols; j++)
            to[l * width + j] = src[l * ks + j * cs];
        for (int64_t j = cols; j < width; j++)
            to[l * width + j] = 0;
    }
}
