/*
 * conv_columns_images_body.h - the gradient of a first layer's weight for one dtype; included by conv_columns_body.h.
 *
 * Where gout has its channels and then its images next to each other, a step of the product is what the images of one
 * output pixel give to the taps of a row: gout is read where it is. Rows of x are kept as [column][image], with their
 * padding, so that the next tap is the next column; those that the next row of outputs needs too stay.
 */

/* The last kh rows of x, of all channels, for the images from n0 on. */
struct TYPED(ring) {
    T *rows;
    int64_t row_size; /* a row of one channel */
    int64_t n0, end;  /* the rows before `end` are there */
};

/* Whatever rows of x a block needs. */
static void TYPED(fill_ring)(const struct columns *c, const struct block *b, struct TYPED(ring) * ring)
{
    int64_t top = b->oy * c->p->stride[0] - c->p->padding[0], images = b->n1 - b->n0;
    if (ring->n0 != b->n0) {
        memset(ring->rows, 0, (size_t)(c->kh * c->c * ring->row_size) * sizeof(T));
        ring->n0 = b->n0;
        ring->end = 0;
    }
    for (int64_t iy = ring->end > top + b->ky0 ? ring->end : top + b->ky0; iy < top + b->ky1; iy++)
        for (int64_t i = 0; i < c->c; i++) {
            const T *x = (const T *)c->x.data + b->n0 * c->x.stride[0] + (b->group * c->c + i) * c->x.stride[1] +
                         iy * c->x.stride[2];
            T *to = ring->rows + (iy % c->kh * c->c + i) * ring->row_size + c->p->padding[1] * images;
            TYPED(yk__gemm_pack)(to, x, c->w_in, c->x.stride[3], images, c->x.stride[0], images);
        }
    ring->end = top + b->ky1;
}

/* Adds what output pixels [x0, x1) of a block give to a panel of columns. */
static void TYPED(add_pixels)(const struct columns *c, const struct block *b, const struct TYPED(ring) * ring,
                              const yk__gemm_step *steps, int64_t x0, int64_t x1, int64_t panel, T *sum)
{
    int64_t cols = c->o - panel * PANEL < PANEL ? c->o - panel * PANEL : PANEL, images = b->n1 - b->n0, tiles;
    int64_t low = yk__gemm_cut(c->kw, YK__GEMM_ROWS, &tiles), high = c->kw % tiles;
    const yk__gemm_kernel *kernels = TYPED(yk__gemm_kernels)[YK__GEMM_A_ROWS][cols / WIDTH - 1];
    yk__gemm_tile tile = {.b = (const T *)c->out.data + b->n0 * c->out.stride[0] + b->oy * c->out.stride[2] +
                               x0 * c->out.stride[3] + b->group * c->o + panel * PANEL,
                          .c = sum + b->ky0 * c->c * c->kw * c->o + panel * PANEL,
                          .steps = steps,
                          .n_steps = x1 - x0,
                          .k = images,
                          .lda = images,
                          .ldb = c->out.stride[0],
                          .ldc = c->o,
                          .csc = 1,
                          .cols = cols,
                          .accumulate = true};
    for (int64_t ky = b->ky0; ky < b->ky1; ky++)
        for (int64_t i = 0; i < c->c; i++) {
            int64_t iy = b->oy * c->p->stride[0] - c->p->padding[0] + ky;
            const T *a = ring->rows + (iy % c->kh * c->c + i) * ring->row_size + x0 * c->p->stride[1] * images;
            for (int64_t j = 0, height; j < tiles; j++, a += height * images, tile.c = (T *)tile.c + height * c->o) {
                height = low + (j < high);
                tile.a = a;
                kernels[height - 1](&tile);
            }
        }
}

/* One group, one share of the blocks: its sums go to a block of their own. */
static void TYPED(weight_images_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct columns *c = arg;
    struct TYPED(ring) ring = {.rows = (T *)(c->scratch + thread * c->scratch_bytes), .row_size = c->row_size};
    yk__gemm_step steps[PIXEL_IMAGES];
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t share = piece % c->shares, group = piece / c->shares;
        T *sum = (T *)c->packed + (share * c->groups + group) * c->k * c->o;
        memset(sum, 0, (size_t)(c->k * c->o) * sizeof(T));
        ring.n0 = -1;
        for (int64_t block = share * c->blocks / c->shares; block < (share + 1) * c->blocks / c->shares; block++) {
            struct block b;
            block_of(c, group * c->blocks + block, &b);
            int64_t images = b.n1 - b.n0, pixels = PIXEL_IMAGES / images;
            for (int64_t x = 0; x < pixels; x++)
                steps[x] = (yk__gemm_step){x * c->p->stride[1] * images, x * c->out.stride[3]};
            TYPED(fill_ring)(c, &b, &ring);
            for (int64_t x = 0; x < c->ow; x += pixels)
                for (int64_t panel = 0; panel < c->panels; panel++)
                    TYPED(add_pixels)(c, &b, &ring, steps, x, x + pixels < c->ow ? x + pixels : c->ow, panel, sum);
        }
    }
}
