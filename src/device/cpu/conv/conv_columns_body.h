/*
 * conv_columns_body.h - the gathering convolutions of one dtype; included by conv_columns.c with T, V and TYPED(name)
 * defined.
 */
#define WIDTH ((int64_t)(sizeof(V) / sizeof(T)))
#define PANEL (WIDTH * YK__GEMM_VECTORS)

static inline int64_t TYPED(panel_width)(int64_t cols, int64_t panel)
{
    int64_t rest = cols - panel * PANEL;
    return rest >= PANEL ? PANEL : (rest + WIDTH - 1) / WIDTH * WIDTH;
}

/* Packs w of a group as C * taps rows of O columns, in panels; rows are ordered (ky, c, kx) as the columns of fill are,
 * or (ky, kx, c) where images of a pixel are taken together. */
static void TYPED(pack_forward)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct columns *c = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t group = piece / c->panels, panel = piece % c->panels, width = TYPED(panel_width)(c->o, panel);
        int64_t cols = c->o - panel * PANEL < PANEL ? c->o - panel * PANEL : PANEL;
        T *to = (T *)c->packed + piece * c->k * PANEL;
        const T *w = (const T *)c->w.data + (group * c->o + panel * PANEL) * c->w.stride[0];
        int64_t inner = c->by_images ? c->c : c->kw, outer = c->by_images ? c->kw : c->c;
        int64_t inner_stride = c->w.stride[c->by_images ? 1 : 3], outer_stride = c->w.stride[c->by_images ? 3 : 1];
        for (int64_t ky = 0; ky < c->kh; ky++)
            for (int64_t i = 0; i < outer; i++) {
                TYPED(yk__gemm_pack)
                (to, w + ky * c->w.stride[2] + i * outer_stride, inner, inner_stride, cols, c->w.stride[0], width);
                to += inner * width;
            }
    }
}

/* Packs the same transposed: O rows of C * taps columns. */
static void TYPED(pack_backward)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct columns *c = arg;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t group = piece / c->panels, panel = piece % c->panels, width = TYPED(panel_width)(c->k, panel);
        T *to = (T *)c->packed + piece * c->o * PANEL;
        for (int64_t j = 0; j < width; j++) {
            int64_t column = panel * PANEL + j, kx = column % c->kw, i = column / c->kw % c->c;
            int64_t ky = column / c->kw / c->c;
            const T *w = (const T *)c->w.data + group * c->o * c->w.stride[0] + i * c->w.stride[1] +
                         ky * c->w.stride[2] + kx * c->w.stride[3];
            for (int64_t o = 0; o < c->o; o++)
                to[o * width + j] = column < c->k ? w[o * c->w.stride[0]] : 0;
        }
    }
}

/* Copies one row of x into a row with padding, of which only the middle is written. */
static void TYPED(copy_row)(const struct columns *c, const struct block *b, int64_t n, int64_t channel, int64_t iy,
                            T *row)
{
    const T *x =
        (const T *)c->x.data + n * c->x.stride[0] + (b->group * c->c + channel) * c->x.stride[1] + iy * c->x.stride[2];
    row += c->p->padding[1];
    if (c->x.stride[3] == 1 && c->w_in >= 16) {
        /* The last piece overlaps the one before it. */
        for (int64_t j = 0; j + 16 < c->w_in; j += 16) {
            __builtin_prefetch(x + j + c->p->stride[0] * c->x.stride[2]); /* the next output row's */
            memcpy(row + j, x + j, 16 * sizeof(T));
        }
        memcpy(row + c->w_in - 16, x + c->w_in - 16, 16 * sizeof(T));
    } else {
        for (int64_t j = 0; j < c->w_in; j++)
            row[j] = x[j * c->x.stride[3]];
    }
}

/* The pixels of a row of x that the block's output pixels see, from the first tap of the first of them: in x itself, or
 * copied to `row` with zeros for those outside. Sixteen can be read at the last one. */
static const T *TYPED(pixels_of_row)(const struct columns *c, const struct block *b, int64_t n, int64_t channel,
                                     int64_t iy, T *row)
{
    const T *x =
        (const T *)c->x.data + n * c->x.stride[0] + (b->group * c->c + channel) * c->x.stride[1] + iy * c->x.stride[2];
    int64_t first = b->x0 * c->p->stride[1] - c->p->padding[1], last = first + (b->x1 - b->x0 - 1) * c->p->stride[1];
    int64_t reach = (c->kw - 1) * c->p->dilation[1], end = last + (reach > 15 ? reach : 15) + 1;
    if (first >= 0 && end <= c->w_in && c->x.stride[3] == 1)
        return x + first;
    int64_t from = first > 0 ? first : 0, to = end < c->w_in ? end : c->w_in;
    from = from < end ? from : end;
    to = to > from ? to : from;
    for (int64_t j = first; j < from; j++)
        row[j - first] = 0;
    if (c->x.stride[3] == 1 && to - from >= 16) {
        /* The last piece overlaps the one before it. */
        for (int64_t j = from; j + 16 < to; j += 16)
            memcpy(row + j - first, x + j, 16 * sizeof(T));
        memcpy(row + to - 16 - first, x + to - 16, 16 * sizeof(T));
    } else {
        for (int64_t j = from; j < to; j++)
            row[j - first] = x[j * c->x.stride[3]];
    }
    for (int64_t j = to; j < end; j++)
        row[j - first] = 0;
    return row;
}

/*
 * Gathers the pixels of x that the block's output pixels see: one row each, columns (ky, c, kx) for channels [c0, c1)
 * of the group and the kernel rows [ky0, ky1) that are inside the image; padding left and right is zeros.
 */
static void TYPED(fill)(const struct columns *c, const struct block *b, T *rows, T *to)
{
    int64_t channels = b->c1 - b->c0, images = b->n1 - b->n0, kw = c->kw, step = c->p->stride[1];
    int64_t width = b->x1 - b->x0;
    int together = c->p->dilation[1] > 1 || kw > 16 ? 0 : kw > 8 ? 16 : 8;
    for (int64_t n = 0; n < images; n++)
        for (int64_t ky = b->ky0; ky < b->ky1; ky++) {
            int64_t iy = b->oy * c->p->stride[0] - c->p->padding[0] + ky * c->p->dilation[0];
            for (int64_t i = 0; i < channels; i++) {
                const T *from = TYPED(pixels_of_row)(c, b, b->n0 + n, b->c0 + i, iy, rows);
                if (from != rows) /* pixels of x that the next output row adds */
                    for (int64_t j = 0; j < width * step; j += 16)
                        __builtin_prefetch(from + j + c->p->stride[0] * c->x.stride[2]);
                T *out = to + ((ky - b->ky0) * channels + i) * kw;
                int64_t next = c->images_inner ? images * c->ld : c->ld;
                out += c->images_inner ? n * c->ld : n * width * c->ld;
                /* Eight or sixteen at a time: numbers beyond the row are overwritten by the next channel's, or are
                 * slack. */
                if (together == 8) {
                    for (int64_t ox = 0; ox < width; ox++)
                        memcpy(out + ox * next, from + ox * step, 8 * sizeof(T));
                } else if (together == 16) {
                    for (int64_t ox = 0; ox < width; ox++)
                        memcpy(out + ox * next, from + ox * step, 16 * sizeof(T));
                } else {
                    for (int64_t ox = 0; ox < width; ox++)
                        for (int64_t kx = 0; kx < kw; kx++)
                            out[ox * next + kx] = from[ox * step + kx * c->p->dilation[1]];
                }
            }
        }
}

/* Runs a tile of `count` steps, at most `most` of them in a sum. */
static inline void TYPED(run_steps)(yk__gemm_kernel kernel, yk__gemm_tile *tile, const yk__gemm_step *steps,
                                    int64_t count, int64_t most, const T *bias)
{
    int64_t done = 0;
    tile->bias = bias;
    tile->accumulate = false;
    do {
        tile->steps = steps + done;
        tile->n_steps = count - done < most ? count - done : most;
        kernel(tile);
        done += tile->n_steps;
        tile->bias = NULL;
        tile->accumulate = true;
    } while (done < count);
}

/* Computes a block whose columns are not gathered: in a row of x with its padding, the pixels that the next output
 * pixel sees begin stride[1] numbers further, and a step of the product is a row. */
static void TYPED(forward_rows)(const struct columns *c, const struct block *b, T *rows)
{
    yk__gemm_step steps[MOST_ROWS];
    int64_t count = (b->ky1 - b->ky0) * c->c, most = SUM_LENGTH / c->kw < 1 ? 1 : SUM_LENGTH / c->kw;
    int64_t tiles, low = yk__gemm_cut(c->ow, YK__GEMM_ROWS, &tiles), high = tiles ? c->ow % tiles : 0;
    for (int64_t n = b->n0; n < b->n1; n++) {
        for (int64_t i = 0; i < count; i++) {
            int64_t ky = b->ky0 + i / c->c, iy = b->oy * c->p->stride[0] - c->p->padding[0] + ky * c->p->dilation[0];
            TYPED(copy_row)(c, b, n, i % c->c, iy, rows + i * c->row_size);
        }
        for (int64_t panel = 0; panel < c->panels; panel++) {
            int64_t width = TYPED(panel_width)(c->o, panel), column = b->group * c->o + panel * PANEL;
            const T *bias = c->bias ? (const T *)c->bias + column : NULL;
            const yk__gemm_kernel *kernels = TYPED(yk__gemm_kernels)[YK__GEMM_A_ROWS][width / WIDTH - 1];
            for (int64_t i = 0; i < count; i++)
                steps[i] = (yk__gemm_step){i * c->row_size, i * c->kw * width};
            yk__gemm_tile tile = {.a = rows,
                                  .b = (const T *)c->packed + (b->group * c->panels + panel) * c->k * PANEL +
                                       b->ky0 * c->c * c->kw * width,
                                  .k = c->kw,
                                  .lda = c->p->stride[1],
                                  .ldb = width,
                                  .c = (T *)c->out.data + n * c->out.stride[0] + b->oy * c->out.stride[2] +
                                       column * c->out.stride[1],
                                  .ldc = c->out.stride[3],
                                  .csc = c->out.stride[1],
                                  .cols = c->o - panel * PANEL < PANEL ? c->o - panel * PANEL : PANEL};
            for (int64_t j = 0; j < tiles; j++) {
                int64_t height = low + (j < high);
                TYPED(run_steps)(kernels[height - 1], &tile, steps, count, most, bias);
                tile.a = (const T *)tile.a + height * tile.lda;
                tile.c = (T *)tile.c + height * tile.ldc;
            }
        }
    }
}

static void TYPED(forward_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct columns *c = arg;
    T *rows = (T *)(c->scratch + thread * c->scratch_bytes), *columns = rows + c->row_size;
    memset(rows, 0, (size_t)(c->in_rows ? c->kh * c->c * c->row_size : c->row_size) * sizeof(T));
    for (int64_t piece = begin; piece < end; piece++) {
        struct block b;
        block_of(c, piece, &b);
        if (c->in_rows) {
            TYPED(forward_rows)(c, &b, rows);
            continue;
        }
        TYPED(fill)(c, &b, rows, columns);
        int64_t images = b.n1 - b.n0, k = (b.ky1 - b.ky0) * c->c * c->kw;
        int64_t outer = c->images_inner ? c->ow : images, inner = c->images_inner ? images : c->ow;
        int64_t outer_stride = c->images_inner ? c->out.stride[3] : c->out.stride[0];
        int64_t inner_stride = c->images_inner ? c->out.stride[0] : c->out.stride[3];
        if (outer_stride == inner * inner_stride) {
            inner *= outer;
            outer = 1;
        }
        int64_t tiles, low = yk__gemm_cut(inner, YK__GEMM_ROWS, &tiles), high = tiles ? inner % tiles : 0;
        for (int64_t panel = 0; panel < c->panels; panel++) {
            int64_t width = TYPED(panel_width)(c->o, panel), column = b.group * c->o + panel * PANEL;
            const T *packed = (const T *)c->packed + (b.group * c->panels + panel) * c->k * PANEL;
            const T *bias = c->bias ? (const T *)c->bias + column : NULL;
            const yk__gemm_kernel *kernels = TYPED(yk__gemm_kernels)[YK__GEMM_A_ROWS][width / WIDTH - 1];
            yk__gemm_step step;
            yk__gemm_tile tile = {.a = columns,
                                  .b = packed + b.ky0 * c->c * c->kw * width,
                                  .steps = &step,
                                  .n_steps = 1,
                                  .lda = c->ld,
                                  .ldb = width,
                                  .ldc = inner_stride,
                                  .csc = c->out.stride[1],
                                  .cols = c->o - panel * PANEL < PANEL ? c->o - panel * PANEL : PANEL};
            for (int64_t i = 0; i < outer; i++) {
                T *out = (T *)c->out.data + b.n0 * c->out.stride[0] + b.oy * c->out.stride[2] + i * outer_stride +
                         column * c->out.stride[1];
                for (int64_t j = 0; j < tiles; j++) {
                    int64_t height = low + (j < high), done = 0;
                    tile.c = out;
                    tile.bias = bias;
                    tile.accumulate = false;
                    do {
                        tile.k = k - done < SUM_LENGTH ? k - done : SUM_LENGTH;
                        step = (yk__gemm_step){done, done * width};
                        kernels[height - 1](&tile);
                        done += tile.k;
                        tile.bias = NULL;
                        tile.accumulate = true;
                    } while (done < k);
                    tile.a = (const T *)tile.a + height * c->ld;
                    out += height * inner_stride;
                }
            }
            tile.a = columns;
        }
    }
}

/* The gradients of the block's output pixels, rows as those of fill, channels [o0, o0 + cols) of the group in `width`,
 * *ld apart: in place if their strides allow it, else copied to `to`. */
static const T *TYPED(gather_gout)(const struct columns *c, const struct block *b, int64_t o0, int64_t cols,
                                   int64_t width, T *to, int64_t *ld)
{
    int64_t images = b->n1 - b->n0, pixels = b->x1 - b->x0;
    int64_t outer = c->images_inner ? pixels : images, inner = c->images_inner ? images : pixels;
    int64_t outer_stride = c->images_inner ? c->out.stride[3] : c->out.stride[0];
    int64_t inner_stride = c->images_inner ? c->out.stride[0] : c->out.stride[3];
    const T *gout = (const T *)c->out.data + b->n0 * c->out.stride[0] + (b->group * c->o + o0) * c->out.stride[1] +
                    b->oy * c->out.stride[2] + b->x0 * c->out.stride[3];
    if (outer == 1 || outer_stride == inner * inner_stride) {
        inner *= outer;
        outer = 1;
    }
    if (outer == 1 && cols == width && c->out.stride[1] == 1) {
        *ld = inner_stride;
        return gout;
    }
    *ld = width;
    for (int64_t i = 0; i < outer; i++)
        TYPED(yk__gemm_pack)
    (to + i * inner * width, gout + i * outer_stride, inner, inner_stride, cols, c->out.stride[1], width);
    return to;
}

/* Computes pieces [begin, end) of the weight's gradient. A piece is one group, one range of channels and one share of
 * the blocks; its sum of columns^T gout goes to memory of its own. */
static void TYPED(weight_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct columns *c = arg;
    T *rows = (T *)(c->scratch + thread * c->scratch_bytes), *columns = rows + c->row_size;
    T *right = columns + c->columns_size;
    memset(rows, 0, (size_t)c->row_size * sizeof(T));
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t share = piece % c->shares, chunk = piece / c->shares % c->chunks;
        int64_t group = piece / c->shares / c->chunks;
        int64_t c0 = chunk * c->chunk, c1 = c0 + c->chunk < c->c ? c0 + c->chunk : c->c, channels = c1 - c0;
        /* (share, group) own C * taps x O numbers, the chunks of channels one after the other. */
        T *sum = (T *)c->packed + ((share * c->groups + group) * c->k + c0 * c->kh * c->kw) * c->o;
        memset(sum, 0, (size_t)(channels * c->kh * c->kw * c->o) * sizeof(T));
        for (int64_t block = share * c->blocks / c->shares; block < (share + 1) * c->blocks / c->shares; block++) {
            struct block b;
            block_of(c, group * c->blocks + block, &b);
            b.c0 = c0, b.c1 = c1;
            TYPED(fill)(c, &b, rows, columns);
            int64_t k = (b.ky1 - b.ky0) * channels * c->kw, m = (b.n1 - b.n0) * (b.x1 - b.x0), ldb;
            int64_t tiles, low = yk__gemm_cut(k, YK__GEMM_ROWS, &tiles), high = tiles ? k % tiles : 0;
            for (int64_t panel = 0; panel < c->panels; panel++) {
                int64_t cols = c->o - panel * PANEL < PANEL ? c->o - panel * PANEL : PANEL;
                int64_t width = TYPED(panel_width)(c->o, panel);
                const T *gout = TYPED(gather_gout)(c, &b, panel * PANEL, cols, width, right, &ldb);
                const yk__gemm_kernel *kernels = TYPED(yk__gemm_kernels)[YK__GEMM_A_COLUMNS][width / WIDTH - 1];
                for (int64_t m0 = 0; m0 < m; m0 += GRADIENT_LENGTH) {
                    yk__gemm_step step = {m0 * c->ld, m0 * ldb};
                    yk__gemm_tile tile = {.a = columns,
                                          .b = gout,
                                          .c = sum + b.ky0 * channels * c->kw * c->o + panel * PANEL,
                                          .steps = &step,
                                          .n_steps = 1,
                                          .k = m - m0 < GRADIENT_LENGTH ? m - m0 : GRADIENT_LENGTH,
                                          .lda = c->ld,
                                          .ldb = ldb,
                                          .ldc = c->o,
                                          .csc = 1,
                                          .cols = cols,
                                          .accumulate = true};
                    for (int64_t i = 0; i < tiles; i++) {
                        int64_t height = low + (i < high);
                        kernels[height - 1](&tile);
                        tile.a = (const T *)tile.a + height;
                        tile.c = (T *)tile.c + height * c->o;
                    }
                }
            }
        }
    }
}

#include "device/cpu/conv/conv_columns_images_body.h"

/* Adds the shares in order and writes them with the strides of gw: piece is (group, c). */
static void TYPED(weight_sum_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct columns *c = arg;
    int64_t share_size = c->groups * c->k * c->o;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t group = piece / c->c, i = piece % c->c, chunk = i / c->chunk, c0 = chunk * c->chunk;
        int64_t channels = c0 + c->chunk < c->c ? c->chunk : c->c - c0;
        for (int64_t ky = 0; ky < c->kh; ky++)
            for (int64_t kx = 0; kx < c->kw; kx++) {
                int64_t row = c->by_images ? (ky * c->kw + kx) * c->c + i
                                           : c0 * c->kh * c->kw + (ky * channels + i - c0) * c->kw + kx;
                const T *sum = (const T *)c->packed + (group * c->k + row) * c->o;
                T *gw = (T *)c->w.data + group * c->o * c->w.stride[0] + i * c->w.stride[1] + ky * c->w.stride[2] +
                        kx * c->w.stride[3];
                for (int64_t o = 0; o < c->o; o++) {
                    T total = 0;
                    for (int64_t share = 0; share < c->shares; share++)
                        total += sum[share * share_size + o];
                    gw[o * c->w.stride[0]] = total;
                }
            }
    }
}

/* The gradient of the input for some images of a group: gx = 0, then every output pixel adds the gradients of its
 * columns. */
static void TYPED(input_piece)(void *arg, int64_t begin, int64_t end, int thread)
{
    const struct columns *c = arg;
    T *left = (T *)(c->scratch + thread * c->scratch_bytes), *columns = left + c->row_size;
    int64_t per_group = c->blocks / c->oh;
    for (int64_t piece = begin; piece < end; piece++) {
        struct block b;
        block_of(c, (piece / per_group) * c->blocks + piece % per_group * c->oh, &b);
        T *gx = (T *)c->x.data + b.n0 * c->x.stride[0] + b.group * c->c * c->x.stride[1];
        for (int64_t n = 0; n < b.n1 - b.n0; n++)
            for (int64_t i = 0; i < c->c; i++)
                for (int64_t y = 0; y < c->h_in; y++)
                    for (int64_t x = 0; x < c->w_in; x++)
                        gx[n * c->x.stride[0] + i * c->x.stride[1] + y * c->x.stride[2] + x * c->x.stride[3]] = 0;
        for (int64_t oy = 0; oy < c->oh; oy++) {
            block_of(c, (piece / per_group) * c->blocks + piece % per_group * c->oh + oy, &b);
            int64_t images = b.n1 - b.n0, m = images * c->ow;
            int64_t tiles, low = yk__gemm_cut(m, YK__GEMM_ROWS, &tiles), high = tiles ? m % tiles : 0;
            int64_t lda;
            const T *gout = TYPED(gather_gout)(c, &b, 0, c->o, c->o, left, &lda);
            for (int64_t panel = 0; panel < c->panels; panel++) {
                int64_t width = TYPED(panel_width)(c->k, panel);
                yk__gemm_step step = {0, 0};
                yk__gemm_tile tile = {.a = gout,
                                      .b = (const T *)c->packed + (b.group * c->panels + panel) * c->o * PANEL,
                                      .c = columns + panel * PANEL,
                                      .steps = &step,
                                      .n_steps = 1,
                                      .k = c->o,
                                      .lda = lda,
                                      .ldb = width,
                                      .ldc = c->ld,
                                      .csc = 1,
                                      .cols = c->k - panel * PANEL < PANEL ? c->k - panel * PANEL : PANEL};
                for (int64_t i = 0; i < tiles; i++) {
                    int64_t height = low + (i < high);
                    TYPED(yk__gemm_kernels)[YK__GEMM_A_ROWS][width / WIDTH - 1][height - 1](&tile);
                    tile.a = (const T *)tile.a + height * lda;
                    tile.c = (T *)tile.c + height * c->ld;
                }
            }
            for (int64_t ky = b.ky0; ky < b.ky1; ky++) {
                int64_t iy = oy * c->p->stride[0] - c->p->padding[0] + ky * c->p->dilation[0];
                for (int64_t ox = 0; ox < c->ow; ox++)
                    for (int64_t kx = 0; kx < c->kw; kx++) {
                        int64_t ix = ox * c->p->stride[1] - c->p->padding[1] + kx * c->p->dilation[1];
                        if (ix < 0 || ix >= c->w_in)
                            continue;
                        for (int64_t n = 0; n < images; n++) {
                            const T *from = columns + (c->images_inner ? ox * images + n : n * c->ow + ox) * c->ld +
                                            ky * c->c * c->kw + kx;
                            T *to = gx + n * c->x.stride[0] + iy * c->x.stride[2] + ix * c->x.stride[3];
                            for (int64_t i = 0; i < c->c; i++)
                                to[i * c->x.stride[1]] += from[i * c->kw];
                        }
                    }
            }
        }
    }
}

#undef WIDTH
#undef PANEL
