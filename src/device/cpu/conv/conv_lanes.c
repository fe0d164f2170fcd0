/*
 * conv_lanes.c - convolutions of groups of few channels, depthwise ones among them. Layer: device/cpu.
 *
 * Both maps have their channels next to each other, and a vector holds the channels of as many whole groups as fit. For
 * every tap and every source channel s of a group, destination (vector) += permute(source vector, s) weights (vector):
 * the permutation brings channel s of each group to all lanes of that group; in a depthwise convolution it is none. The
 * gradient of the input is the same with the parts swapped. The gradient of the weight is, for each tap and s, the sum
 * over output pixels of permute(x, s) gout.
 *
 * Note [Rotated sums]
 * A permutation for each product takes as long as the products. A map whose vectors hold one group needs none: each
 * source channel is one number, which loads spread to all lanes. Others of groups of 8 source and destination channels,
 * and gradients of the weight of 8 or 16, do with fewer: channel i of the source times the weight to the channel k
 * further, for all i, is the product of two vectors as they are, and one permutation for each k brings the sums of all
 * taps to their channels. In the gradient of the weight gout is rotated by k within its groups, once for the taps of a
 * row, and the sums are put in order when they are added up.
 *
 * Depthwise convolutions of 3 x 3 taps have kernels of their own: conv_strips_body.h takes those of stride 1 and pixels
 * of 1 KiB and more, conv_depthwise_body.h others. conv_bands_body.h takes maps of windows of 5 and 7 columns, and
 * those of strips whose pixels fall on few sets of the first-level cache.
 *
 * Sums are cut at positions that the shapes fix, and added in order: bits do not depend on threads. Vectors at the end
 * of a pixel are read and written in part, so nothing beyond a view is touched.
 */
#include <string.h>

#include "device/cpu/conv/conv.h"
#include "device/cpu/gemm/gemm_micro.h"
#include "device/cpu/partial_vectors.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* Bytes of the rows of a source map that one block of work reads: half of a usual L2. */
#define BLOCK_BYTES (384 * 1024)
/* A gradient of the weight: bytes of a row of pixels that stay in the first-level cache while all channels pass, the
 * most pixels summed in registers, and the number of shares, each with sums of its own, which bounds the threads and
 * the memory. Depthwise: bytes of the rows of both maps that stay in the second-level cache until the next row of gout.
 */
#define CHUNK_BYTES  (16 * 1024)
#define CHUNK_PIXELS 128
#define SHARES       16
#define LONG_CHUNKS  8 /* channels of a group from which its many sums are loaded and stored less often */
#define SLIDE_BYTES  (512 * 1024)
/* Pixels in a tile; sums of a weight's gradient kept in registers, as many as a 3 x 3 window has taps. */
#define MOST_ROWS 8
#define MOST_SUMS 9
/* Groups of as many source as destination channels, a multiple of TURNS: the sums of TURN_TAPS taps fit in registers.
 */
#define TURNS       8
#define MOST_TURNS  16
#define TURN_PIXELS 24
#if defined(__AVX512F__)
#define TURN_TAPS 3
#else
#define TURN_TAPS 1
#endif
/* Depthwise: pixels whose windows slide together, which the sums of their outputs allow. They do not where neighbours
 * are a multiple of SAME_SETS apart: all of them fall on the same sets of the first-level cache. */
#define SLIDE_PIXELS 4
#define SAME_SETS    4096
/* Depthwise, other windows: pixels and vectors of channels in a tile, whose sums fill half of the registers; how many
 * pixels ahead the source and the destination are fetched (for speed alone). */
#define DEPTHWISE_ROWS 4
#define AHEAD          8
#define FETCH_BYTES    1024 /* of a pixel: longer ones the processor fetches itself */
/* Strips: outputs of a row of which all vectors of channels pass before the next ones, which read two of their columns
 * again: as many as the registers have sums for, a divisor of the usual widths. In a gradient, columns of x of one
 * vector: few lines of one set of the caches are in use then. */
#if defined(__AVX512F__)
#define STRIP_OUTPUTS 7
#else
#define STRIP_OUTPUTS 3
#endif
#define STRIP_COLUMNS 7
/* Bands: windows of a row that slide together, a divisor of the usual widths; columns that a window has at most;
 * vectors of channels; bytes of the copy, a quarter of a usual L2; pixels that are fetched ahead. A strip is copied
 * where its pixels fall on the same sets, and the map is small enough to come from a cache: memory is better read in
 * its order. */
#define BAND_OUTPUTS   7
#define BAND_TAPS      7
#define BAND_VECTORS   8
#define BAND_BYTES     (256 * 1024)
#define BAND_AHEAD     4
#define BAND_MAP_BYTES (5 * 1024 * 1024)
/* The same of both maps for a gradient of the weight: shares of the images; columns of x whose products are summed in
 * registers. */
#define COPIED_SHARES  4
#define COPIED_COLUMNS 32
#if defined(__AVX512F__)
#define DEPTHWISE_VECTORS 4
#else
#define DEPTHWISE_VECTORS 2
#endif

/* The groups as vectors: `cs` source and `cd` destination channels each, `per_block` whole groups in a vector. */
struct lanes {
    int64_t groups, cs, cd, per_block, blocks;
};

/* The numbers that pairs of rows of outputs share (conv_strips_body.h), for depthwise convolutions of 3 x 3 taps,
 * stride 1 and long pixels. */
struct strips {
    bool applies;
    int64_t padding[2], rows, source[2]; /* rows of outputs; the size of the source */
    bool backward;                       /* the taps run from the last to the first */
};

/* A pair of rows, or the last row alone: `outputs` of them. Of the four rows of the source that they need those in
 * [first, last) exist. Distances are in elements. */
struct strip {
    int first, last, outputs;
    int64_t padding, columns, width; /* columns of the source, of the outputs */
    int64_t row, column, out_row, out_column;
    bool backward;
};

/* Depthwise maps of some channels of one image at a time (conv_bands_body.h). */
struct bands {
    bool applies;
    int64_t columns, padding, step;       /* columns of the source; of a window's first one, and to the next window */
    int64_t vectors, blocks, rows, count; /* of channels, such blocks; rows of destinations, bands of an image */
    int64_t copy_size;                    /* elements, of one thread */
    void *copies;
};

struct map {
    struct lanes lanes;
    bool turned; /* Note [Rotated sums] */
    struct strips strips;
    struct bands bands;
    const void *src, *w, *bias;
    void *dst, *packed;
    int64_t n, src_stride[3], dst_stride[3]; /* N, H, W */
    int64_t taps[2], w_tap[2], w_g, w_s, w_d;
    yk__conv_axis y, x;
    bool backward;
    int64_t block_n, rows; /* images of one piece of work; rows of destinations, or pairs of them */
    yk__gemm_step *steps;
};

/* The source of the lanes of a vector for source channel s of their group: the same lanes (there is but one channel), a
 * permutation, or one number for all, because the vector holds one group. */
enum channels { EACH_LANE, PERMUTED, ONE_GROUP };

struct tile {
    const void *src, *w, *bias; /* of this block; bias a vector, or NULL */
    void *dst;
    const yk__gemm_step *steps;
    int64_t n_steps, cs, lda, ldc;
    int64_t load, store; /* lanes of the source and of the destination that exist */
    int64_t w_block;     /* from the weights of a block to those of the next */
    int64_t ahead;       /* from src to the pixels that are fetched ahead */
    bool fetch;          /* they are fetched */
    const void *first;   /* for source channel 0, the lane that each destination lane takes */
};

/* One sum of a weight's gradient: x of a tap, from the pixel of gout; a source channel. */
struct sum {
    int64_t a, s, at; /* `at`: its vector among those of the block */
};

/* For a gradient of the weight, the pixels of gout, and those of x that one tap meets: inner and outer ones, and the
 * distances between them. */
struct pixels {
    int64_t inner, outer, x_inner, x_outer, gout_inner, gout_outer;
};

/* For a gradient of the weight, the copies of both maps (conv_bands_body.h): rows of gout and vectors of channels at
 * once, the number of such blocks of channels; elements of the copies of one thread, and the first of gout's. */
struct copied {
    bool applies;
    int64_t rows, vectors, blocks, size, gout;
    void *copies;
};

struct grad {
    struct lanes lanes;
    struct strips strips;
    struct copied copied;
    bool turned; /* gout is rotated within its groups, in place of x (Note [Rotated sums]) */
    const void *x, *gout;
    void *sums;
    yk__view gw;
    int64_t n, x_stride[3], gout_stride[3], chunk;
    int64_t rows; /* of gout, or pairs of them */
    int64_t image_shares, row_shares;
    int64_t share_size, block_size; /* in elements */
    yk__conv_axis y, xs;
    struct sum *list;
};

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

static int64_t lanes_of(yk_dtype dtype)
{
    return YK__VECTOR_BYTES / (int64_t)yk_dtype_size(dtype);
}

/* The strips for `rows` rows of outputs; `backward`: from the gradient of the output to that of the input. */
static struct strips make_strips(const yk__conv2d *p, const struct lanes *l, const int64_t taps[2],
                                 const int64_t source[2], int64_t rows, int64_t size, bool backward)
{
    struct strips s = {
        .rows = rows, .backward = backward, .applies = l->cs == 1 && l->cd == 1 && l->groups * size >= FETCH_BYTES};
    for (int d = 0; d < 2; d++) {
        s.source[d] = source[d];
        s.padding[d] = backward ? 2 - p->padding[d] : p->padding[d];
        s.applies = s.applies && taps[d] == 3 && p->stride[d] == 1 && p->dilation[d] == 1 && s.padding[d] >= 0 &&
                    s.padding[d] <= 2 && (source[d] > 1 || s.padding[d] == 2); /* else taps have no link */
    }
    return s;
}

/* The strip whose first row is y. */
static struct strip strip_at(const struct strips *of, int64_t y, const int64_t src_stride[3],
                             const int64_t out_stride[3])
{
    int64_t first = of->padding[0] - y, last = of->source[0] + first;
    return (struct strip){.first = first > 0 ? (int)first : 0,
                          .last = last < 4 ? (int)last : 4,
                          .outputs = of->rows - y < 2 ? 1 : 2,
                          .padding = of->padding[1],
                          .columns = of->source[1],
                          .width = of->source[1] + 2 * of->padding[1] - 2,
                          .row = src_stride[1],
                          .column = src_stride[2],
                          .out_row = out_stride[1],
                          .out_column = out_stride[2],
                          .backward = of->backward};
}

/* The end of the span that begins at `at`: after `length`, or half as much more where it is the last. */
static int64_t span_end(int64_t at, int64_t end, int64_t length)
{
    return end - at < length + length / 2 ? end : at + length;
}

/* The rows of the source that destination rows [y0, y1) need. */
static void band_source(const struct map *m, int64_t y0, int64_t y1, int64_t *s0, int64_t *s1)
{
    *s0 = INT64_MAX, *s1 = 0;
    for (int64_t i = m->y.first[y0]; i < m->y.first[y1]; i++) {
        int64_t src = m->y.links[i].src;
        *s0 = src < *s0 ? src : *s0;
        *s1 = src >= *s1 ? src + 1 : *s1;
    }
    *s0 = *s0 < *s1 ? *s0 : *s1;
}

#define TYPED(name)  TYPED_(name)
#define T            float
#define V            yk__vf32
#define VU           yk__vf32u
#define I            int32_t
#define TYPED_(name) name##_f32
#include "device/cpu/conv/conv_lanes_body.h"
#undef T
#undef V
#undef VU
#undef I
#undef TYPED_

#define T            double
#define V            yk__vf64
#define VU           yk__vf64u
#define I            int64_t
#define TYPED_(name) name##_f64
#include "device/cpu/conv/conv_lanes_body.h"

bool yk__conv_lanes_applies(yk_dtype dtype, int64_t c, int64_t o)
{
    return c > 0 && o > 0 && c <= lanes_of(dtype) && o <= lanes_of(dtype);
}

bool yk__conv_lanes_turns(int64_t c, int64_t o)
{
    return c == o && c % TURNS == 0;
}

static struct lanes make_lanes(yk_dtype dtype, int64_t groups, int64_t cs, int64_t cd)
{
    struct lanes l = {.groups = groups, .cs = cs, .cd = cd, .per_block = lanes_of(dtype) / (cs > cd ? cs : cd)};
    l.blocks = yk__ceil_div(groups, l.per_block);
    return l;
}

/* The bands of a map, whose axes and strips must be there. */
static struct bands make_bands(const struct map *m, const yk__conv2d *p, const yk__view *src, int64_t size,
                               int64_t threads)
{
    int64_t width = YK__VECTOR_BYTES / size, taps = m->taps[1], most = yk__ceil_div(m->lanes.groups, width);
    struct bands b = {.columns = src->shape[3],
                      .padding = m->backward ? taps - 1 - p->padding[1] : p->padding[1],
                      .step = m->backward ? 1 : p->stride[1]};
    if (m->lanes.cs > 1 || m->lanes.cd > 1 || m->x.slots < taps || p->dilation[1] != 1)
        return b;
    if (m->strips.applies)
        b.applies = src->stride[3] * size % SAME_SETS == 0 && yk__view_numel(src) * size <= BAND_MAP_BYTES;
    else
        b.applies = (taps == 5 || taps == 7) && p->stride[1] <= (m->backward ? 1 : 2);
    if (!b.applies)
        return b;
    /* Fewer channels where a band would be few rows; of bands all but the last have an even number of them. */
    int64_t need, row;
    for (b.vectors = most < BAND_VECTORS ? most : BAND_VECTORS;; b.vectors = (b.vectors + 1) / 2) {
        row = b.columns * b.vectors * YK__VECTOR_BYTES;
        for (b.rows = m->y.size, need = src->shape[2]; b.rows > 2 && need * row > BAND_BYTES;) {
            b.rows = (b.rows + 3) / 4 * 2;
            need = 0;
            for (int64_t y = 0, s0, s1; y < m->y.size; y += b.rows) {
                band_source(m, y, y + b.rows < m->y.size ? y + b.rows : m->y.size, &s0, &s1);
                need = s1 - s0 > need ? s1 - s0 : need;
            }
        }
        if (b.vectors == 1 || b.rows >= 4 * m->taps[0] || b.rows >= m->y.size)
            break;
    }
    b.copy_size = need * row / size;
    b.blocks = yk__ceil_div(most, b.vectors);
    while (b.rows > 2 && m->n * b.blocks * yk__ceil_div(m->y.size, b.rows) < threads)
        b.rows = (b.rows + 3) / 4 * 2; /* work for all threads */
    b.count = yk__ceil_div(m->y.size, b.rows);
    return b;
}

static yk_status run_bands(int device, struct map *m, int64_t size, int64_t threads)
{
    struct bands *b = &m->bands;
    yk__storage *handle;
    b->copies =
        yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)(threads * b->copy_size * size), &handle);
    if (!b->copies)
        return yk__error_code();
    yk__cpu_parallel(device, m->n * b->blocks * b->count, 1, size == 4 ? band_piece_f32 : band_piece_f64, m);
    yk__storage_release(handle);
    return YK_OK;
}

static yk_status run_map(int device, struct map *m, const yk__conv2d *p, const yk__view *dst, const yk__view *src,
                         bool backward)
{
    bool f32 = dst->dtype == YK_F32;
    int64_t size = f32 ? 4 : 8, threads = yk__cpu_threads(device), taps = m->taps[0] * m->taps[1];
    if (!yk__view_numel(dst))
        return YK_OK;
    m->lanes = make_lanes((yk_dtype)dst->dtype, p->groups, src->shape[1] / p->groups, dst->shape[1] / p->groups);
    /* Few taps do not pay for the permutations of the sums, and one group needs none. */
    m->turned = m->lanes.cs == TURNS && m->lanes.cd == TURNS && m->lanes.per_block > 1 && TURN_TAPS == 3 &&
                taps >= 4 * (backward ? p->stride[0] * p->stride[1] : 1);
    m->dst = dst->data, m->src = src->data;
    m->n = dst->shape[0];
    m->backward = backward;
    for (int d = 0; d < 3; d++) {
        m->dst_stride[d] = dst->stride[d ? d + 1 : 0];
        m->src_stride[d] = src->stride[d ? d + 1 : 0];
    }
    size_t axis_y = aligned(yk__conv_axis_bytes(dst->shape[2], m->taps[0]));
    size_t axis_x = aligned(yk__conv_axis_bytes(dst->shape[3], m->taps[1]));
    size_t steps = aligned((size_t)(threads * taps) * sizeof(yk__gemm_step));
    /* Weights of every tap and source channel, and the bias, a vector for each block. */
    size_t packed = (size_t)(m->lanes.blocks * (taps * m->lanes.cs + 1)) * YK__VECTOR_BYTES;
    yk__storage *handle;
    char *memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, axis_y + axis_x + steps + packed, &handle);
    if (!memory)
        return yk__error_code();
    yk__conv_axis_init(&m->y, memory, p, 0, dst->shape[2], src->shape[2], m->taps[0], backward);
    yk__conv_axis_init(&m->x, memory + axis_y, p, 1, dst->shape[3], src->shape[3], m->taps[1], backward);
    m->steps = (yk__gemm_step *)(memory + axis_y + axis_x);
    m->packed = memory + axis_y + axis_x + steps;
    /* In the gradient of the input a row of destinations needs one of every few rows of taps. */
    int64_t rows = m->taps[0] * src->shape[3] * src->shape[1] * size / (backward ? p->stride[0] : 1);
    m->block_n = BLOCK_BYTES / (rows ? rows : 1);
    m->block_n = m->block_n < 1 ? 1 : m->block_n < m->n ? m->block_n : m->n;
    yk__cpu_parallel(device, m->lanes.blocks, 64, f32 ? pack_piece_f32 : pack_piece_f64, m);
    m->strips = make_strips(p, &m->lanes, m->taps, src->shape + 2, m->y.size, size, backward);
    m->bands = make_bands(m, p, src, size, threads);
    if (m->bands.applies) {
        yk_status status = run_bands(device, m, size, threads);
        yk__storage_release(handle);
        return status;
    }
    m->rows = m->strips.applies ? yk__ceil_div(m->y.size, 2) : m->y.size;
    yk__cpu_parallel(device, yk__ceil_div(m->n, m->block_n) * m->rows, 1, f32 ? run_piece_f32 : run_piece_f64, m);
    yk__storage_release(handle);
    return YK_OK;
}

yk_status yk__conv_lanes_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                 const yk__view *w, const yk__view *bias)
{
    struct map m = {.w = w->data,
                    .taps = {w->shape[2], w->shape[3]},
                    .w_tap = {w->stride[2], w->stride[3]},
                    .w_g = w->stride[0] * (w->shape[0] / p->groups),
                    .w_s = w->stride[1],
                    .w_d = w->stride[0],
                    .bias = bias ? bias->data : NULL};
    return run_map(device, &m, p, out, x, false);
}

yk_status yk__conv_lanes_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                        const yk__view *w)
{
    struct map m = {.w = w->data,
                    .taps = {w->shape[2], w->shape[3]},
                    .w_tap = {w->stride[2], w->stride[3]},
                    .w_g = w->stride[0] * (w->shape[0] / p->groups),
                    .w_s = w->stride[0],
                    .w_d = w->stride[1]};
    return run_map(device, &m, p, gx, gout, true);
}

/* The copies of a gradient, whose strips must be there. */
static struct copied make_copied(const struct grad *g, const yk__view *gout, const yk__view *x, int64_t size)
{
    int64_t width = YK__VECTOR_BYTES / size, most = yk__ceil_div(g->lanes.groups, width), columns = x->shape[3];
    struct copied of = {.applies = g->strips.applies && yk__view_numel(x) * size <= BAND_MAP_BYTES &&
                                   x->stride[3] * size % SAME_SETS == 0 && gout->stride[3] * size % SAME_SETS == 0};
    /* An even number of rows but for the last ones; fewer channels where that would be few rows. */
    for (of.vectors = most < BAND_VECTORS ? most : BAND_VECTORS;; of.vectors = (of.vectors + 1) / 2) {
        int64_t pixel = of.vectors * YK__VECTOR_BYTES, fit = BAND_BYTES / (pixel * (columns + gout->shape[3]));
        of.rows = g->strips.rows < fit ? g->strips.rows + g->strips.rows % 2 : fit < 4 ? 2 : fit / 2 * 2;
        if (of.vectors == 1 || of.rows >= 12 || of.rows >= g->strips.rows)
            break;
    }
    of.gout = (of.rows + 2) * columns * of.vectors * width;
    of.size = of.gout + of.rows * gout->shape[3] * of.vectors * width;
    of.blocks = yk__ceil_div(most, of.vectors);
    return of;
}

static yk_status sum_copied(int device, struct grad *g, int64_t size)
{
    yk__storage *handle;
    g->copied.copies = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                         (size_t)(yk__cpu_threads(device) * g->copied.size * size), &handle);
    if (!g->copied.copies)
        return yk__error_code();
    yk__cpu_parallel(device, g->image_shares * g->copied.blocks, 1, size == 4 ? copied_piece_f32 : copied_piece_f64, g);
    yk__storage_release(handle);
    return YK_OK;
}

yk_status yk__conv_lanes_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                         const yk__view *x)
{
    bool f32 = gw->dtype == YK_F32;
    int64_t size = f32 ? 4 : 8, oh = gout->shape[2], taps = gw->shape[2] * gw->shape[3];
    int64_t threads = yk__cpu_threads(device);
    if (!yk__view_numel(gw))
        return YK_OK;
    struct grad g = {.lanes = make_lanes((yk_dtype)gw->dtype, p->groups, gw->shape[1], gw->shape[0] / p->groups),
                     .x = x->data,
                     .gout = gout->data,
                     .gw = *gw,
                     .n = x->shape[0],
                     .x_stride = {x->stride[0], x->stride[2], x->stride[3]},
                     .gout_stride = {gout->stride[0], gout->stride[2], gout->stride[3]},
                     .image_shares = 1};
    int64_t pixel = (x->shape[1] + gout->shape[1]) * size;
    g.chunk = CHUNK_BYTES / (pixel ? pixel : 1);
    int64_t least = g.lanes.cs < LONG_CHUNKS ? 8 : 32;
    g.chunk = g.chunk < least ? least : g.chunk < CHUNK_PIXELS ? g.chunk : CHUNK_PIXELS;
    g.turned = yk__conv_lanes_turns(g.lanes.cs, g.lanes.cd);
    g.block_size = taps * g.lanes.cs * (YK__VECTOR_BYTES / size);
    g.share_size = g.lanes.blocks * g.block_size;
    if (g.turned || (g.lanes.cs == 1 && g.lanes.cd == 1)) {
        int64_t rows = (gw->shape[2] * x->shape[3] + gout->shape[3]) * x->shape[1] * size * g.n;
        int64_t wanted = yk__ceil_div(rows, SLIDE_BYTES), most = g.n < SHARES ? g.n : SHARES;
        g.image_shares = wanted < 1 ? 1 : wanted < most ? wanted : most;
    }
    g.strips = make_strips(p, &g.lanes, gw->shape + 2, x->shape + 2, oh, size, false);
    g.copied = make_copied(&g, gout, x, size);
    if (g.copied.applies)
        g.image_shares = g.n < 1 ? 1 : g.n < COPIED_SHARES ? g.n : COPIED_SHARES;
    g.rows = g.strips.applies ? yk__ceil_div(oh, 2) : oh;
    g.row_shares = SHARES / g.image_shares < g.rows ? SHARES / g.image_shares : g.rows;
    if (g.copied.applies)
        g.row_shares = 1;
    int64_t shares = g.image_shares * g.row_shares;
    size_t axis_y = aligned(yk__conv_axis_bytes(oh, gw->shape[2]));
    size_t axis_x = aligned(yk__conv_axis_bytes(gout->shape[3], gw->shape[3]));
    size_t list = aligned((size_t)(threads * taps * g.lanes.cs) * sizeof(struct sum));
    yk__storage *handle;
    char *memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                     axis_y + axis_x + list + (size_t)(shares * g.share_size * size), &handle);
    if (!memory)
        return yk__error_code();
    yk__conv_axis_init(&g.y, memory, p, 0, oh, x->shape[2], gw->shape[2], false);
    yk__conv_axis_init(&g.xs, memory + axis_y, p, 1, gout->shape[3], x->shape[3], gw->shape[3], false);
    g.list = (struct sum *)(memory + axis_y + axis_x);
    g.sums = memory + axis_y + axis_x + list;
    yk_status status = YK_OK;
    if (g.copied.applies)
        status = sum_copied(device, &g, size);
    else
        yk__cpu_parallel(device, shares, 1, f32 ? share_piece_f32 : share_piece_f64, &g);
    if (!status)
        yk__cpu_parallel(device, g.lanes.blocks, 16, f32 ? total_piece_f32 : total_piece_f64, &g);
    yk__storage_release(handle);
    return status;
}
