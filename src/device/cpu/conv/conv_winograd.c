/*
 * conv_winograd.c - 3 x 3 convolutions of stride 1 by Winograd's minimal filtering F(2 x 2, 3 x 3). Layer: device/cpu.
 *
 * Y = A^T [(G w G^T) (B^T d B)] A gives 2 x 2 outputs from a 4 x 4 window d in 16 multiplications per pair of channels
 * in place of 36 (Lavin and Gray, Fast algorithms for convolutional neural networks, 2015). A block of tiles is
 * transformed to 16 planes [tile][channel], each of which is multiplied by its plane of the transformed weights, and
 * the products are transformed back, a panel of output channels at a time, while they are in the cache. The gradient of
 * the input is the same with the taps mirrored and the channels swapped. The gradient of the weight is
 * G^T [sum over tiles of (B^T d B)^T (A g A^T)] G.
 *
 * A map of 2 x 2 with one row of padding on each side is a single window whose border is zero. Along an axis
 * y0 = w1 (x0 + x1) + (w2 - w1) x1 and y1 = w1 (x0 + x1) + (w0 - w1) x0, so that 9 planes take the place of 16, which
 * is what a direct sum multiplies there.
 *
 * Groups of few channels pass several at once (conv_winograd_groups_body.h).
 *
 * The transformations only add and halve, so that an error is as large as that of the direct sum. They also subtract
 * infinities: where a result is not finite the call reports it, and conv.c computes it directly, so that infinities
 * and NaN come out as everywhere else. Every sum is cut at positions that the shapes fix: bits do not depend on
 * threads.
 */
#include <string.h>

#include "device/cpu/conv/conv.h"
#include "device/cpu/elementwise/transpose.h"
#include "device/cpu/gemm/gemm_micro.h"
#include "device/cpu/iterate.h"
#include "device/cpu/partial_vectors.h"

/* Products summed in registers before they are added to memory: a longer chain of roundings has larger errors (figures
 * in conv_pixels.c), a shorter one more additions. In a gradient of the weight: tiles of a block. */
#define SUM_LENGTH      256
#define GRADIENT_LENGTH 256
/* Bytes of the transformed windows of a block, half of a second-level cache of 1 MiB; its least number of tiles, below
 * which reading the weights counts (eight register tiles of 14 rows, as AVX-512 has them); and its most, which bounds
 * the memory for the products where channels are few. */
#define BLOCK_BYTES (512 * 1024)
#define LEAST_TILES 112
#define MOST_TILES  256
/* Groups that pass together: bytes of their channels of a pixel, and of a block's windows and products, which leave
 * half of such a cache to weights and maps. */
#define GROUPS_PIXEL_BYTES 256
#define GROUPS_BLOCK_BYTES (256 * 1024)
/* Source channels whose weights are transformed together: bounds the memory for their taps, which each thread has. */
#define WEIGHT_ROWS 16
/* Few channels (conv_winograd_cached_body.h): bytes of transformed weights, and of the sums of their gradient, which
 * are read for each strip; bytes of copied rows; tiles of a strip of a map, whose windows and products are next to the
 * weights in the caches, and of a gradient, whose sums are loaded and stored once for each; tiles of a gradient whose
 * sums are added apart, and the most such parts. */
#define FEW_WEIGHTS     (256 * 1024)
#define FEW_SUMS        (144 * 1024)
#define FEW_ROWS        (128 * 1024)
#define FEW_MAP_TILES   28
#define FEW_GRAD_TILES  42
#define FEW_CHUNK_TILES 128
#define FEW_CHUNKS      32
/* The cost of transforming for each plane, in multiply-adds: a channel of a window, a pair of channels of the weight.
 * These are estimates, by which Winograd's algorithm or the direct one is chosen: with larger ones fewer convolutions
 * come here. */
#define WINDOW_COST 5
#define WEIGHT_COST 5

/* Tiles of 2 x 2 outputs, and blocks of them: some images, some rows of tiles, all of a row. */
struct tiles {
    int64_t n, ty, tx, block_n, block_ty, blocks_ty, blocks, most; /* `most`: tiles of a block */
    int64_t planes;                                                /* 16, or 9 where a tile is a whole map */
};

struct block {
    int64_t n0, n1, y0, y1, tiles;
};

/* One map as windows of side x side, the first `offset` rows and columns outside. */
struct side {
    const void *data;
    int64_t stride[3], channel, height, length, channels, width, offset[2]; /* N, H, W; width: in whole vectors */
    int side;
};

struct window {
    int64_t stride[2], ld; /* between rows and columns of the map; between planes */
    int begin[2], end[2];  /* the rows and columns inside the map */
};

/* The cut of a map by conv_winograd_cached_body.h: blocks of images, bands of rows of tiles, strips of tiles of a
 * row. */
struct strips {
    int64_t images, blocks, rows, bands, most; /* images of a block, rows of a band, tiles of a strip */
    int64_t row_size, out_size, memory;        /* numbers of a copied row; bytes of a thread */
    int64_t chunks;                            /* of bands, whose sums are added apart */
};

struct map {
    struct tiles tiles;
    struct strips strips;
    struct side src;
    const void *w, *bias;
    void *dst;
    int64_t dst_stride[3], dst_channel, height, length;
    int64_t groups, together;                       /* the number that pass together, of conv_winograd_groups_body.h */
    int64_t k, cols, w_tap[2], w_k, w_col, w_group; /* channels of a group */
    bool backward, fresh, infinite;                 /* fresh: each piece transforms the weights of its own panel */
    int64_t panels, panel_size, products_size, sums_size, round;
    void *weights, *taps, *products, *sums, *memory;
};

struct grad {
    struct tiles tiles;
    struct strips strips;
    struct side x, gout;
    yk__view gw;
    int64_t panels, products_size, right_at, round, blocks;
    enum {
        WRITE,
        LOOK,
        ADD
    } total; /* total_piece writes gw, adds to it, or (LOOK) looks only if the sum is finite,
              * before it is added */
    bool infinite;
    void *products, *sums;
};

static int64_t at_most(int64_t n, int64_t most)
{
    return n < most ? n : most;
}

/* True if both maps are of 2 x 2, and so the padding 1 x 1. */
static bool whole_maps(const yk__view *a, const yk__view *b)
{
    return a->shape[2] == 2 && a->shape[3] == 2 && b->shape[2] == 2 && b->shape[3] == 2;
}

/* The tiles of the map dst, whose windows are in src. */
static struct tiles make_tiles(const yk__view *dst, const yk__view *src, int64_t most)
{
    int64_t n = dst->shape[0];
    struct tiles t = {.n = n,
                      .ty = yk__ceil_div(dst->shape[2], 2),
                      .tx = yk__ceil_div(dst->shape[3], 2),
                      .planes = whole_maps(dst, src) ? 9 : 16};
    t.block_n = most / (t.ty * t.tx);
    t.block_ty = t.ty;
    if (t.block_n < 1) {
        t.block_n = most / t.tx;
        t.block_n = t.block_n < 1 ? 1 : at_most(t.block_n, n);
        t.block_ty = most / (t.tx * t.block_n);
        t.block_ty = t.block_ty < 1 ? 1 : yk__ceil_div(t.ty, yk__ceil_div(t.ty, t.block_ty));
    }
    t.block_n = yk__ceil_div(n, yk__ceil_div(n, at_most(t.block_n, n)));
    t.blocks_ty = yk__ceil_div(t.ty, t.block_ty);
    t.blocks = t.blocks_ty * yk__ceil_div(n, t.block_n);
    t.most = t.block_n * t.block_ty * t.tx;
    return t;
}

static struct block block_of(const struct tiles *t, int64_t i)
{
    struct block b = {.n0 = i / t->blocks_ty * t->block_n, .y0 = i % t->blocks_ty * t->block_ty};
    b.n1 = at_most(b.n0 + t->block_n, t->n);
    b.y1 = at_most(b.y0 + t->block_ty, t->ty);
    b.tiles = (b.n1 - b.n0) * (b.y1 - b.y0) * t->tx;
    return b;
}

/* Numbers of a plane; the last ones are unused, so that a tile's 16 positions do not fall on the same lines of a cache.
 */
static int64_t plane_size(int64_t tiles, int64_t width)
{
    return tiles * width + 64;
}

#define TYPED(name)  TYPED_(name)
#define T            float
#define V            yk__vf32
#define VU           yk__vf32u
#define TYPED_(name) name##_f32
#include "device/cpu/conv/conv_winograd_body.h"
#undef T
#undef V
#undef VU
#undef TYPED_

#define T            double
#define V            yk__vf64
#define VU           yk__vf64u
#define TYPED_(name) name##_f64
#include "device/cpu/conv/conv_winograd_body.h"

static struct side make_side(const yk__view *v, int side, int64_t offset_y, int64_t offset_x)
{
    int64_t lanes = YK__VECTOR_BYTES / (int64_t)yk_dtype_size((yk_dtype)v->dtype);
    return (struct side){.data = v->data,
                         .stride = {v->stride[0], v->stride[2], v->stride[3]},
                         .channel = v->stride[1],
                         .height = v->shape[2],
                         .length = v->shape[3],
                         .channels = v->shape[1],
                         .width = yk__ceil_div(v->shape[1], lanes) * lanes,
                         .offset = {offset_y, offset_x},
                         .side = side};
}

/* Pairs of an output and a tap inside the image, along one axis. */
static int64_t links(int64_t out, int64_t in, int64_t padding)
{
    int64_t count = 0;
    for (int64_t tap = 0; tap < 3; tap++) {
        int64_t first = padding - tap > 0 ? padding - tap : 0,
                last = in + padding - tap < out ? in + padding - tap : out;
        count += last > first ? last - first : 0;
    }
    return count;
}

bool yk__conv_winograd_applies(const yk__conv2d *p, const yk__view *out, const yk__view *x, const yk__view *w)
{
    if (w->shape[2] != 3 || w->shape[3] != 3)
        return false;
    int64_t n = out->shape[0], c = x->shape[1], o = out->shape[1], planes = whole_maps(out, x) ? 9 : 16;
    for (int d = 0; d < 2; d++)
        if (p->stride[d] != 1 || p->dilation[d] != 1 || p->padding[d] > 2 || (planes == 16 && out->shape[2 + d] < 4))
            return false;
    int64_t tiles = n * yk__ceil_div(out->shape[2], 2) * yk__ceil_div(out->shape[3], 2);
    int64_t direct =
        n * links(out->shape[2], x->shape[2], p->padding[0]) * links(out->shape[3], x->shape[3], p->padding[1]) * c * o;
    return tiles * planes * (c * o + WINDOW_COST * (c + o)) + planes * WEIGHT_COST * c * o < direct;
}

bool yk__conv_winograd_joins(const yk__conv2d *p, const yk__view *out, const yk__view *x, const yk__view *w)
{
    int64_t panel = 2 * YK__VECTOR_BYTES / (int64_t)yk_dtype_size((yk_dtype)out->dtype);
    yk__view of_out = *out, of_x = *x, of_w = *w; /* those of a group */
    of_out.shape[1] /= p->groups, of_x.shape[1] /= p->groups, of_w.shape[0] /= p->groups;
    return p->groups > 1 && !whole_maps(out, x) && of_out.shape[1] <= panel && of_x.shape[1] <= panel &&
           yk__conv_winograd_applies(p, &of_out, &of_x, &of_w);
}

/* Computes all groups of a map whose members are filled in up to dst_stride. */
static yk_status run_groups(int device, struct map *m, const yk__view *dst, const yk__view *src)
{
    bool f32 = dst->dtype == YK_F32;
    int64_t size = f32 ? 4 : 8, panel = 2 * YK__VECTOR_BYTES / size, threads = yk__cpu_threads(device);
    int64_t pixel = GROUPS_PIXEL_BYTES / size / (m->k > m->cols ? m->k : m->cols);
    m->together = pixel < 1 ? 1 : at_most(pixel, m->groups);
    int64_t left = yk__ceil_div(m->together * m->k, panel / 2) * panel / 2,
            right = m->together * (yk__ceil_div(m->cols, panel / 2) * panel / 2);
    int64_t most = GROUPS_BLOCK_BYTES / (16 * (left + right) * size);
    m->tiles = make_tiles(dst, src, most < 1 ? 1 : most);
    m->panel_size = 16 * m->k * panel;
    m->products_size = 16 * plane_size(m->tiles.most, left);
    m->sums_size = 16 * plane_size(m->tiles.most, right);
    int64_t weights = m->groups * m->panel_size, taps = threads * WEIGHT_ROWS * 9 * panel;
    yk__storage *handle;
    char *memory =
        yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                          (size_t)((weights + taps + threads * (m->products_size + m->sums_size)) * size), &handle);
    if (!memory)
        return yk__error_code();
    m->weights = memory;
    m->taps = memory + weights * size;
    m->products = (char *)m->taps + taps * size;
    m->sums = (char *)m->products + threads * m->products_size * size;
    yk__cpu_parallel(device, m->groups, 1, f32 ? group_weight_piece_f32 : group_weight_piece_f64, m);
    yk__cpu_parallel(device, m->tiles.blocks * yk__ceil_div(m->groups, m->together), 1,
                     f32 ? group_piece_f32 : group_piece_f64, m);
    yk__storage_release(handle);
    return YK_OK;
}

bool yk__conv_winograd_copies_rows(const yk__view *out, const yk__view *x, bool gradient)
{
    int64_t bytes = 16 * out->shape[1] * x->shape[1] * (int64_t)yk_dtype_size((yk_dtype)x->dtype);
    if (whole_maps(out, x) || bytes > (gradient ? FEW_SUMS : FEW_WEIGHTS))
        return false;
    /* In rows with fewer tiles the sums would be loaded and stored too often. */
    return !gradient || out->shape[0] * yk__ceil_div(out->shape[3], 2) >= FEW_GRAD_TILES;
}

/* The strips of a map dst, or gout, with at least about as many pieces. */
static struct strips make_strips(const struct tiles *t, int64_t width, int64_t out_width, int64_t size, int64_t pieces,
                                 int64_t most)
{
    struct strips s = {.images = FEW_ROWS / (4 * (t->tx * 2 + 2) * width * size)};
    s.images = s.images < 1 ? 1 : at_most(s.images, t->n);
    s.blocks = yk__ceil_div(t->n, s.images);
    s.images = yk__ceil_div(t->n, s.blocks);
    s.blocks = yk__ceil_div(t->n, s.images);
    s.bands = at_most(yk__ceil_div(pieces, s.blocks), yk__ceil_div(t->ty, 4));
    s.rows = yk__ceil_div(t->ty, s.bands);
    s.bands = yk__ceil_div(t->ty, s.rows);
    s.most = at_most(most, t->tx * s.images);
    s.row_size = (t->tx * 2 + 2) * s.images * width + 64;
    s.out_size = t->tx * 2 * s.images * out_width;
    return s;
}

/* The numbers that a thread needs memory for: rows of the source and of the outputs, and all planes of a strip of two
 * widths. */
static int64_t strips_numbers(const struct strips *s, int64_t width, int64_t other)
{
    return 4 * s->row_size + 2 * s->out_size + 16 * (plane_size(s->most, width) + plane_size(s->most, other));
}

static yk_status run_strips(int device, struct map *m, const yk__view *dst, const yk__view *src, bool *finite)
{
    bool f32 = dst->dtype == YK_F32;
    int64_t size = f32 ? 4 : 8, lanes = YK__VECTOR_BYTES / size, panel = 2 * lanes, threads = yk__cpu_threads(device);
    m->tiles = make_tiles(dst, src, 1);
    m->panels = yk__ceil_div(m->cols, panel);
    m->panel_size = 16 * m->k * panel;
    m->strips = make_strips(&m->tiles, m->src.width, yk__ceil_div(m->cols, lanes) * lanes, size,
                            threads > 1 ? 4 * threads : 1, FEW_MAP_TILES);
    m->strips.memory = size * strips_numbers(&m->strips, m->src.width, panel);
    int64_t weights = m->panels * m->panel_size, taps = threads * WEIGHT_ROWS * 9 * panel;
    yk__storage *handle;
    char *memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                     (size_t)((weights + taps) * size + threads * m->strips.memory), &handle);
    if (!memory)
        return yk__error_code();
    m->weights = memory;
    m->taps = memory + weights * size;
    m->memory = (char *)m->taps + taps * size;
    yk__cpu_parallel(device, m->panels, 1, f32 ? weight_piece_f32 : weight_piece_f64, m);
    yk__cpu_parallel(device, m->strips.blocks * m->strips.bands, 1, f32 ? strip_piece_f32 : strip_piece_f64, m);
    yk__storage_release(handle);
    *finite = !m->infinite;
    return YK_OK;
}

static yk_status run_map(int device, struct map *m, const yk__conv2d *p, const yk__view *dst, const yk__view *src,
                         bool *finite)
{
    bool f32 = dst->dtype == YK_F32;
    int64_t size = f32 ? 4 : 8, panel = 2 * YK__VECTOR_BYTES / size, threads = yk__cpu_threads(device);
    int offset[2];
    for (int d = 0; d < 2; d++)
        offset[d] = m->backward ? 2 - (int)p->padding[d] : (int)p->padding[d];
    m->src = make_side(src, 4, offset[0], offset[1]);
    m->dst = dst->data;
    m->groups = p->groups;
    m->k = src->shape[1] / p->groups, m->cols = dst->shape[1] / p->groups;
    m->height = dst->shape[2], m->length = dst->shape[3];
    for (int d = 0; d < 3; d++)
        m->dst_stride[d] = dst->stride[d ? d + 1 : 0];
    m->dst_channel = dst->stride[1];
    if (m->groups > 1) {
        yk_status status = run_groups(device, m, dst, src);
        *finite = !m->infinite;
        return status;
    }
    if (yk__conv_winograd_copies_rows(dst, src, false))
        return run_strips(device, m, dst, src, finite);
    int64_t most = BLOCK_BYTES / (16 * m->src.width * size);
    most = most < LEAST_TILES ? LEAST_TILES : at_most(most, MOST_TILES);
    /* Few tiles of many channels: their windows take less memory than the weights, so all are one block, and a panel's
     * weights are transformed where they are used at once. */
    int64_t all = dst->shape[0] * yk__ceil_div(m->height, 2) * yk__ceil_div(m->length, 2);
    if (all <= MOST_TILES && all * m->src.width <= m->k * m->cols)
        most = all;
    m->tiles = make_tiles(dst, src, most);
    int64_t together = at_most(threads, m->tiles.blocks);
    m->panels = yk__ceil_div(m->cols, panel);
    m->panel_size = m->tiles.planes * m->k * panel;
    m->products_size = m->tiles.planes * plane_size(m->tiles.most, m->src.width);
    m->sums_size = m->tiles.planes * plane_size(m->tiles.most, panel);
    m->fresh = m->tiles.blocks == 1;
    int64_t weights = (m->fresh ? threads : m->panels) * m->panel_size, taps = threads * WEIGHT_ROWS * 9 * panel;
    yk__storage *handle;
    char *memory = yk__workspace_get(
        (yk_device){YK_CPU, (int16_t)device},
        (size_t)((weights + taps + together * m->products_size + threads * m->sums_size) * size), &handle);
    if (!memory)
        return yk__error_code();
    m->weights = memory;
    m->taps = memory + weights * size;
    m->products = (char *)m->taps + taps * size;
    m->sums = (char *)m->products + together * m->products_size * size;
    if (!m->fresh)
        yk__cpu_parallel(device, m->panels, 1, f32 ? weight_piece_f32 : weight_piece_f64, m);
    for (m->round = 0; m->round < m->tiles.blocks; m->round += together) {
        int64_t blocks = at_most(together, m->tiles.blocks - m->round);
        yk__cpu_parallel(device, blocks, 1, f32 ? source_piece_f32 : source_piece_f64, m);
        yk__cpu_parallel(device, blocks * m->panels, 1, f32 ? map_piece_f32 : map_piece_f64, m);
    }
    yk__storage_release(handle);
    *finite = !m->infinite;
    return YK_OK;
}

yk_status yk__conv_winograd_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                    const yk__view *w, const yk__view *bias, bool *finite)
{
    struct map m = {.w = w->data,
                    .w_tap = {w->stride[2], w->stride[3]},
                    .w_k = w->stride[1],
                    .w_col = w->stride[0],
                    .w_group = w->stride[0] * (w->shape[0] / p->groups),
                    .bias = bias ? bias->data : NULL};
    return run_map(device, &m, p, out, x, finite);
}

yk_status yk__conv_winograd_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                           const yk__view *w, bool *finite)
{
    struct map m = {.w = w->data,
                    .w_tap = {w->stride[2], w->stride[3]},
                    .w_k = w->stride[0],
                    .w_col = w->stride[1],
                    .w_group = w->stride[0] * (w->shape[0] / p->groups),
                    .backward = true};
    return run_map(device, &m, p, gx, gout, finite);
}

yk_status yk__conv_winograd_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                            const yk__view *x, bool accumulate, bool *finite)
{
    bool f32 = gw->dtype == YK_F32;
    int64_t size = f32 ? 4 : 8, panel = 2 * YK__VECTOR_BYTES / size;
    struct grad g = {.tiles = make_tiles(gout, x, GRADIENT_LENGTH),
                     .x = make_side(x, 4, p->padding[0], p->padding[1]),
                     .gout = make_side(gout, 2, 0, 0),
                     .gw = *gw};
    g.panels = yk__ceil_div(g.gout.width, panel);
    int64_t threads = yk__cpu_threads(device), together = at_most(threads, g.tiles.blocks);
    int64_t sums = g.tiles.planes * g.x.channels * g.gout.width, bytes;
    bool strips = yk__conv_winograd_copies_rows(gout, x, true);
    if (strips) {
        int64_t chunks = at_most(FEW_CHUNKS, yk__ceil_div(g.tiles.n * g.tiles.ty * g.tiles.tx, FEW_CHUNK_TILES));
        g.strips = make_strips(&g.tiles, g.x.width, g.gout.width, size, chunks, FEW_GRAD_TILES);
        g.strips.chunks = at_most(chunks, g.strips.blocks * g.strips.bands);
        g.strips.memory = size * strips_numbers(&g.strips, g.x.width, g.gout.width);
        sums *= g.strips.chunks;
        bytes = threads * g.strips.memory;
    } else {
        g.right_at = g.tiles.planes * plane_size(g.tiles.most, g.x.width);
        g.products_size = g.right_at + g.tiles.planes * plane_size(g.tiles.most, g.gout.width);
        bytes = together * g.products_size * size;
    }
    yk__storage *handle;
    char *memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)(sums * size + bytes), &handle);
    if (!memory)
        return yk__error_code();
    g.sums = memory;
    g.products = memory + sums * size;
    if (strips) {
        yk__cpu_parallel(device, g.strips.chunks, 1, f32 ? strip_sums_piece_f32 : strip_sums_piece_f64, &g);
        yk__cpu_parallel(device, sums / g.strips.chunks * size / YK__VECTOR_BYTES, 64,
                         f32 ? add_sums_piece_f32 : add_sums_piece_f64, &g);
    }
    for (g.round = 0; g.round < g.tiles.blocks && !strips; g.round += together) {
        g.blocks = at_most(together, g.tiles.blocks - g.round);
        yk__cpu_parallel(device, 2 * g.blocks, 1, f32 ? sides_piece_f32 : sides_piece_f64, &g);
        yk__cpu_parallel(device, g.tiles.planes * g.panels, 1, f32 ? product_piece_f32 : product_piece_f64, &g);
    }
    g.total = accumulate ? LOOK : WRITE;
    yk__cpu_parallel(device, g.x.channels, 4, f32 ? total_piece_f32 : total_piece_f64, &g);
    if (accumulate && !g.infinite) {
        g.total = ADD;
        yk__cpu_parallel(device, g.x.channels, 4, f32 ? total_piece_f32 : total_piece_f64, &g);
    }
    yk__storage_release(handle);
    *finite = !g.infinite;
    return YK_OK;
}
