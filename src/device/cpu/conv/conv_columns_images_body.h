/*
 * conv_columns_images_body.h - first layers whose images of a pixel are neighbours in the output, forward and the
 * gradient of the weight, for one dtype; included by conv_columns_body.h.
 *
 * Rows of x are kept as [column][channel][image], with their padding, so that what a row of taps sees of an output
 * pixel is one matrix of taps and images, and the output or its gradient is used where it is: whole pixels one after
 * the other. A step of the product is a row of taps (forward), or what the images of one output pixel give to it
 * (gradient). Rows of x that the next row of outputs needs too stay.
 */

/* The last kh rows of x, of all channels, for the images from n0 on. */
struct TYPED(ring) {
    T *rows;
    int64_t group, n0, end; /* the rows before `end` are there */
};

/* Copies a row of x as [column][channel][image]. */
static void TYPED(turn_row)(const struct columns *c, const struct block *b, int64_t iy, T *to)
{
    int64_t images = b->n1 - b->n0, pixel = c->c * images;
    const T *x = (const T *)c->x.data + b->n0 * c->x.stride[0] + b->group * c->c * c->x.stride[1] + iy * c->x.stride[2];
    for (int64_t i = 0; i < c->c; i++, x += c->x.stride[1], to += images) {
        if (c->x.stride[3] == 1) {
            yk__transpose(to, pixel * (int64_t)sizeof(T), x, c->x.stride[0] * (int64_t)sizeof(T), c->w_in, images,
                          sizeof(T));
            continue;
        }
        for (int64_t j = 0; j < c->w_in; j++)
            for (int64_t n = 0; n < images; n++)
                to[j * pixel + n] = x[j * c->x.stride[3] + n * c->x.stride[0]];
    }
}

/* Brings the rows of x that a block needs into the ring. */
static void TYPED(fill_ring)(const struct columns *c, const struct block *b, struct TYPED(ring) * ring)
{
    int64_t top = b->oy * c->p->stride[0] - c->p->padding[0], pixel = c->c * (b->n1 - b->n0);
    if (ring->n0 != b->n0 || ring->group != b->group) {
        memset(ring->rows, 0, (size_t)(c->kh * c->row_size) * sizeof(T));
        ring->group = b->group;
        ring->n0 = b->n0;
        ring->end = 0;
    }
    for (int64_t iy = ring->end > top + b->ky0 ? ring->end : top + b->ky0; iy < top + b->ky1; iy++)
        TYPED(turn_row)(c, b, iy, ring->rows + iy % c->kh * c->row_size + c->p->padding[1] * pixel);
    ring->end = top + b->ky1;
}

/* Computes output rows of some images, one after the other; fewer rows of taps at a time where a sum would be too
 * long. */
static void TYPED(forward_images_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct columns *c = arg;
    struct TYPED(ring) ring = {.rows = (T *)(c->scratch + thread * c->scratch_bytes), .n0 = -1};
    yk__gemm_step steps[MOST_ROWS];
    int64_t taps = c->kw * c->c, most = SUM_LENGTH / taps;
    for (int64_t piece = begin; piece < end; piece++) {
        struct block b;
        block_of(c, piece, &b);
        TYPED(fill_ring)(c, &b, &ring);
        int64_t images = b.n1 - b.n0, count = b.ky1 - b.ky0, top = b.oy * c->p->stride[0] - c->p->padding[0];
        int64_t tiles, low = yk__gemm_cut(images, YK__GEMM_ROWS, &tiles), high = images % tiles;
        for (int64_t panel = 0; panel < c->panels; panel++) {
            int64_t width = TYPED(panel_width)(c->o, panel), column = b.group * c->o + panel * PANEL;
            const T *bias = c->bias ? (const T *)c->bias + column : NULL;
            const yk__gemm_kernel *kernels = TYPED(yk__gemm_kernels)[YK__GEMM_A_COLUMNS][width / WIDTH - 1];
            for (int64_t i = 0; i < count; i++)
                steps[i] = (yk__gemm_step){(top + b.ky0 + i) % c->kh * c->row_size, i * taps * width};
            yk__gemm_tile tile = {.b = (const T *)c->packed + (b.group * c->panels + panel) * c->k * PANEL +
                                       b.ky0 * taps * width,
                                  .k = taps,
                                  .lda = images,
                                  .ldb = width,
                                  .ldc = c->out.stride[0],
                                  .csc = 1,
                                  .cols = c->o - panel * PANEL < PANEL ? c->o - panel * PANEL : PANEL,
                                  .far = c->far};
            for (int64_t x = 0; x < c->ow; x++) {
                int64_t n = 0;
                for (int64_t j = 0; j < tiles; j++) {
                    int64_t height = low + (j < high);
                    tile.a = ring.rows + x * c->p->stride[1] * c->c * images + n;
                    tile.c = (T *)c->out.data + (b.n0 + n) * c->out.stride[0] + b.oy * c->out.stride[2] +
                             x * c->out.stride[3] + column;
                    TYPED(run_steps)(kernels[height - 1], &tile, steps, count, most, bias);
                    n += height;
                }
            }
        }
    }
}

/* Adds the products of output pixels [x0, x1) of a block to a panel of columns. */
static void TYPED(add_pixels)(const struct columns *c, const struct block *b, const struct TYPED(ring) * ring,
                              const yk__gemm_step *steps, int64_t x0, int64_t x1, int64_t panel, T *sum)
{
    int64_t cols = c->o - panel * PANEL < PANEL ? c->o - panel * PANEL : PANEL, images = b->n1 - b->n0, tiles;
    int64_t taps = c->kw * c->c, low = yk__gemm_cut(taps, YK__GEMM_ROWS, &tiles), high = taps % tiles;
    const yk__gemm_kernel *kernels = TYPED(yk__gemm_kernels)[YK__GEMM_A_ROWS][cols / WIDTH - 1];
    yk__gemm_tile tile = {.b = (const T *)c->out.data + b->n0 * c->out.stride[0] + b->oy * c->out.stride[2] +
                               x0 * c->out.stride[3] + b->group * c->o + panel * PANEL,
                          .c = sum + b->ky0 * taps * c->o + panel * PANEL,
                          .steps = steps,
                          .n_steps = x1 - x0,
                          .k = images,
                          .lda = images,
                          .ldb = c->out.stride[0],
                          .ldc = c->o,
                          .csc = 1,
                          .cols = cols,
                          .accumulate = true};
    for (int64_t ky = b->ky0; ky < b->ky1; ky++) {
        int64_t iy = b->oy * c->p->stride[0] - c->p->padding[0] + ky;
        const T *a = ring->rows + iy % c->kh * c->row_size + x0 * c->p->stride[1] * c->c * images;
        for (int64_t j = 0, height; j < tiles; j++, a += height * images, tile.c = (T *)tile.c + height * c->o) {
            height = low + (j < high);
            tile.a = a;
            kernels[height - 1](&tile);
        }
    }
}

/* The gradient of the weight, a piece of it: one group, one share of the blocks, whose sums go to a block of their
 * own. */
static void TYPED(weight_images_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct columns *c = arg;
    struct TYPED(ring) ring = {.rows = (T *)(c->scratch + thread * c->scratch_bytes)};
    yk__gemm_step steps[GRADIENT_LENGTH];
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t share = piece % c->shares, group = piece / c->shares;
        T *sum = (T *)c->packed + (share * c->groups + group) * c->k * c->o;
        memset(sum, 0, (size_t)(c->k * c->o) * sizeof(T));
        ring.n0 = -1;
        for (int64_t block = share * c->blocks / c->shares; block < (share + 1) * c->blocks / c->shares; block++) {
            struct block b;
            block_of(c, group * c->blocks + block, &b);
            int64_t images = b.n1 - b.n0, pixels = GRADIENT_LENGTH / images;
            for (int64_t x = 0; x < pixels; x++)
                steps[x] = (yk__gemm_step){x * c->p->stride[1] * c->c * images, x * c->out.stride[3]};
            TYPED(fill_ring)(c, &b, &ring);
            for (int64_t x = 0; x < c->ow; x += pixels)
                for (int64_t panel = 0; panel < c->panels; panel++)
                    TYPED(add_pixels)(c, &b, &ring, steps, x, x + pixels < c->ow ? x + pixels : c->ow, panel, sum);
        }
    }
}
