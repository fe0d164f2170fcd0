/*
 * conv_pixels.c - convolutions over maps whose channels lie next to each other. Layer: device/cpu.
 *
 * For every output pixel and every tap that falls inside the image, out[pixel] (N x O) += x[pixel under the tap]
 * (N x C) w[tap] (C x O). The products of all taps of a pixel are summed in registers, padding costs nothing, and
 * stride and dilation only move addresses. It is fastest where the images of a pixel are close together, memory order
 * [H][W][N][C]: then neighbouring pixels of a row join into one taller product. The gradient of the input is the same
 * with the parts swapped and w transposed. The gradient of the weight is, for each tap, the sum over pixels of
 * x[pixel under the tap]^T (C x N) gout[pixel] (N x O).
 *
 * Sums are cut at fixed positions, so that bits do not depend on threads, and after a bounded length, so that the error
 * of f32 stays small. In bf16 a sum of a map stays in registers: such errors do not show in the 8 bits of its result.
 * In the gradient of a weight pairs of images are multiplied, and a sum in f32 waits in memory until it is whole.
 *
 * For that gradient, blocks of rows of outputs, and the rows of x that they meet, are packed into panels for the tiles;
 * rows that the next block meets, too, stay where they are. Tiles fetch what the next block packs.
 */
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "device/cpu/conv/conv.h"
#include "device/cpu/gemm/gemm_micro.h"
#include "device/cpu/gemm/gemm_micro_bf16.h"

/* Products summed in registers before they are added to memory: in maps, and in gradients of weights. A chain of
 * roundings grows with its length: at 128 the error of a map is PyTorch's (2e-7), at 1,280 it was two and a half times
 * that; the additions cost 1% of the time. */
#define SUM_LENGTH      128
#define GRADIENT_LENGTH 256
/* Images of a pixel that fill a tile well enough: half of its rows keep the multipliers busy. */
#define LEAST_IMAGES (YK__GEMM_ROWS / 2 + 1)
/* Bytes of a map that one block of work reads: half of a usual L2. */
#define BLOCK_BYTES (384 * 1024)
/* Gradients of weights: images that a block has at least: they lie together, so packing reads long pieces. Bytes that
 * all panels take from the first-level cache; how far ahead they are fetched; pieces of work for each thread. */
#define LEAST_BLOCK 16
#define PACK_BYTES  8192
#define PACK_AHEAD  16384
#define PACK_PIECES 4

/* The work of forward and of backward to the input: destination and source map, weights as seen from there. */
struct map {
    const void *src, *w, *bias;
    void *dst, *packed;
    int64_t n, k, cols;                   /* images, source channels, destination channels */
    int64_t src_stride[3], dst_stride[3]; /* N, H, W */
    int64_t taps[2], w_tap[2], w_k, w_col;
    yk__conv_axis y, x;
    int64_t period;             /* the distance along a row between destination pixels with the same taps */
    int64_t panels, panel_size; /* of packed weights, in elements */
    bool fresh;                 /* each piece packs its own panel, in the thread's memory */
    bool far_src, far_dst;      /* the maps are larger than the caches */
    yk__gemm_step *steps;
    int64_t block_n, block_y, blocks_y;
};

/* The part of a map that is packed for a gradient of the weight: the rows and columns that some tap meets. */
struct side {
    const char *data;      /* of the images of the call */
    int64_t stride[3];     /* N, H, W */
    int64_t height, pixel; /* rows of the map; bytes of a pixel of an image */
    int64_t *row, *of_row; /* [y]: how many rows before y are packed; [i]: the row that is packed after i others */
    int64_t *col, *of_col; /* the same of columns */
    int64_t width;         /* of a packed row */
    int64_t ring;          /* rows that memory is for: packed row i is at i % ring */
    int64_t from, to, end; /* the rows that this block packs; after them come those of the next block */
    int64_t share;         /* lines of those that each tile fetches */
};

/* Lines of the pixels of a side, `count` each, one after the other. */
struct lines {
    int64_t row, column, line, count;
};

struct tap {
    int64_t ky, kx;
    int64_t y0, y1, x0, x1; /* output pixels at which it is inside the image */
    int64_t dy, dx;         /* input pixel = output pixel * stride + this */
};

struct grad {
    struct side x, gout;
    void *gw, *packed_left, *packed_right;
    int64_t gw_stride[4], stride[2], size; /* size: bytes of an element */
    int64_t y0, y1;                        /* outputs of this block */
    bool swapped;                          /* gout is on the left */
    int64_t left, right;                   /* channels of x, of gout, unless swapped */
    int64_t left_panels, left_width, left_size, right_panels, right_size;
    int64_t n0, n1;
    bool accumulate;
    bool first, last; /* first: the memory of the sums (gw, or `sums`) is to be written, not added to; last block */
    float *sums;      /* of bf16: tiles of YK__GEMM_ROWS x YK__BF16_PANEL by tap, right panel and left one */
    struct tap *tap;
    int64_t taps; /* that meet a pixel */
    yk__gemm_step *steps;
    int64_t most_steps;
};

/* The gradient of a 1 x 1 weight as one product, where the pixels of both maps follow each other in the same order:
 * one of them is the left side, the other the right one. */
struct pointwise {
    const void *map[2];
    void *gw;
    int64_t pixels, step[2], left, right, left_panels, gw_stride[2]; /* gw's: from one channel of a side to the next */
    bool accumulate;
};

/* The channels of the right side take whole vectors: a few outputs are the left one. */
static bool swaps(const yk__view *gw)
{
    return gw->shape[0] < 8 && gw->shape[0] < gw->shape[1];
}

/* Channels of panel i of the left side, and the first of them. */
static int64_t left_rows(const struct grad *g, int64_t i, int64_t *at)
{
    int64_t high = g->left % g->left_panels, low = g->left / g->left_panels;
    *at = i * low + (i < high ? i : high);
    return low + (i < high);
}

/* The number of columns, at most `most`, from the i-th packed one on that have all their n images at even distances of
 * *step. `depth`: rows of k of a pixel. */
static int64_t evenly(const struct side *s, int64_t i, int64_t most, int64_t n, int64_t depth, int64_t *step)
{
    const int64_t *of = s->of_col + i;
    most = most < s->width - i ? most : s->width - i;
    int64_t columns = most > 1 ? of[1] - of[0] : 1, run = 1;
    *step = n == 1 ? columns * s->stride[2] : s->stride[0];
    if (depth != n || columns * s->stride[2] != n * *step)
        return 1;
    while (run < most && of[run] - of[run - 1] == columns)
        run++;
    return run;
}

/* The number of pixels that this block packs. */
static int64_t pixels(const struct side *s)
{
    return (s->to - s->from) * s->width;
}

static int64_t pixel_at(const struct side *s, int64_t i)
{
    return s->of_row[s->from + i / s->width] * s->stride[1] + s->of_col[i % s->width] * s->stride[2];
}

/* The cache lines, from the first one on, that the tiles from `tile` on fetch for the next block. */
static struct lines lines_from(const struct side *s, int64_t n, int64_t tile)
{
    if (!s->share)
        return (struct lines){0};
    int64_t count = yk__ceil_div(n * s->pixel, YK__LINE), at = tile * s->share, pixel = at / count;
    return (struct lines){s->to + pixel / s->width, pixel % s->width, at % count, count};
}

/* Fetches the share of one tile. (gcc leaves out calls of a function whose only effect is a prefetch.) */
static void fetch_share(const struct side *s, int64_t size, struct lines *l)
{
    for (int64_t left = s->share; left && l->row < s->end;) {
        const char *pixel = s->data + (s->of_row[l->row] * s->stride[1] + s->of_col[l->column] * s->stride[2]) * size;
        for (; left && l->line < l->count; left--)
            __builtin_prefetch(pixel + l->line++ * YK__LINE, 0, 2);
        if (l->line < l->count)
            return;
        l->line = 0;
        if (++l->column == s->width)
            l->column = 0, l->row++;
    }
}

/* Rows of a tile at most, where they are `step` bytes apart: the line of each that is being read has to stay in the
 * first-level cache, whose sets repeat after 4 KiB. */
static int64_t most_rows(int64_t step)
{
    return step % 2048 ? YK__GEMM_ROWS : yk__ceil_div(YK__GEMM_ROWS, 2);
}

/* The cache lines that packing `cols` columns from `col` on will read. */
static yk__gemm_lines weight_lines(const struct map *m, int64_t col, int64_t cols, size_t size)
{
    int64_t first[2];
    const int64_t taps[2] = {m->y.slots, m->x.slots};
    for (int d = 0; d < 2; d++)
        for (first[d] = 0; first[d] < m->taps[d] - 1 && (d ? &m->x : &m->y)->slot[first[d]] < 0; first[d]++)
            ;
    const char *data =
        (const char *)m->w + (first[0] * m->w_tap[0] + first[1] * m->w_tap[1] + col * m->w_col) * (int64_t)size;
    return yk__gemm_weight_lines(data, taps, m->w_tap, m->k, m->w_k, cols, m->w_col, (int64_t)size);
}

/* The kernel for a tile that fetches the next of `lines`, or where none are left those at `next`, unless it is NULL. */
static enum yk__gemm_mode mode_of(yk__gemm_lines *lines, yk__gemm_tile *tile, const char *next, int64_t size)
{
    if (yk__gemm_fetches(lines, tile))
        return YK__GEMM_A_ROWS_FETCHING;
    if (!next)
        return YK__GEMM_A_ROWS;
    tile->fetch = next;
    tile->fetch_step = YK__LINE;
    tile->fetch_a = size;
    return YK__GEMM_A_ROWS_FETCHING;
}

#define TYPED(name)                    TYPED_(name)
#define TILE                           yk__gemm_tile
#define DEPTH(k)                       (k)
#define LENGTH                         SUM_LENGTH
#define WHOLE                          , .far = m->far_dst
#define MODE(lines, tile, next)        mode_of(lines, tile, next, sizeof(T))
#define WAITING(tile, i, first, last_) ((void)(last_), (tile).accumulate = !(first))
#define T                              float
#define V                              yk__vf32
#define TYPED_(name)                   name##_f32
#include "device/cpu/conv/conv_pixels_body.h"
#undef T
#undef V
#undef TYPED_

#define T            double
#define V            yk__vf64
#define TYPED_(name) name##_f64
#include "device/cpu/conv/conv_pixels_body.h"
#undef T
#undef V
#undef TYPED_
#undef TILE
#undef DEPTH
#undef LENGTH
#undef WHOLE
#undef MODE
#undef WAITING

#if defined(__AVX512F__)
#define HALF
#define TILE                    yk__bf16_tile
#define DEPTH(k)                ((k) + (k) % 2)
#define LENGTH                  INT64_MAX
#define WHOLE                   , .first = true, .last = true
#define MODE(lines, tile, next) ((void)(lines), (void)(next), YK__GEMM_A_ROWS)
#define WAITING(tile, i, first_, last_)                                                                                \
    ((tile).sums = g->sums + (i)*YK__GEMM_ROWS * PANEL, (tile).accumulate = g->accumulate, (tile).first = (first_),    \
     (tile).last = (last_))
#define T            uint16_t
#define V            yk__vf32
#define TYPED_(name) name##_bf16
#include "device/cpu/conv/conv_pixels_body.h"
#endif

/* The numbers and functions of a dtype: bytes of an element, columns of a panel, the multiple that a panel of x is
 * rounded up to, and the pieces of work. */
struct kind {
    int64_t size, panel, align;
    yk__range_fn pack, run, pack_gradient, run_gradient, pointwise;
};

static const struct kind *kind_of(int dtype)
{
    static const struct kind f32 = {4,
                                    2 * YK__VECTOR_BYTES / 4,
                                    1,
                                    pack_piece_f32,
                                    run_piece_f32,
                                    pack_gradient_f32,
                                    run_gradient_f32,
                                    pointwise_piece_f32};
    static const struct kind f64 = {8,
                                    2 * YK__VECTOR_BYTES / 8,
                                    1,
                                    pack_piece_f64,
                                    run_piece_f64,
                                    pack_gradient_f64,
                                    run_gradient_f64,
                                    pointwise_piece_f64};
#if defined(__AVX512F__)
    static const struct kind bf16 = {
        2,   YK__BF16_PANEL, YK__BF16_LANES, pack_piece_bf16, run_piece_bf16, pack_gradient_bf16, run_gradient_bf16,
        NULL};
    if (dtype == YK_BF16)
        return &bf16;
#endif
    return dtype == YK_F32 ? &f32 : &f64;
}

/* Rows of k that are packed: whole pairs where the dtype is multiplied in pairs. */
static int64_t depth_of(int dtype, int64_t k)
{
    return dtype == YK_BF16 ? k + k % 2 : k;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Pieces of at most `most` of n, as even as they can be. */
static int64_t even(int64_t n, int64_t most)
{
    return yk__ceil_div(n, yk__ceil_div(n, most < 1 ? 1 : most));
}

/* Runs a map: forward, or backward where `backward`. */
static yk_status run_map(int device, struct map *m, const yk__conv2d *p, const yk__view *dst, const yk__view *src,
                         bool backward)
{
    const struct kind *kind = kind_of(dst->dtype);
    int64_t size = kind->size, panel = kind->panel;
    m->dst = dst->data, m->src = src->data;
    m->n = dst->shape[0], m->k = src->shape[1], m->cols = dst->shape[1];
    m->far_src = yk__view_numel(src) * size >= YK__FAR_BYTES;
    m->far_dst = yk__view_numel(dst) * size >= YK__FAR_BYTES;
    for (int d = 0; d < 3; d++) {
        m->dst_stride[d] = dst->stride[d ? d + 1 : 0];
        m->src_stride[d] = src->stride[d ? d + 1 : 0];
    }
    if (!yk__view_numel(dst))
        return YK_OK;

    size_t axis_y = aligned(yk__conv_axis_bytes(dst->shape[2], m->taps[0]));
    size_t axis_x = aligned(yk__conv_axis_bytes(dst->shape[3], m->taps[1]));
    int64_t threads = yk__cpu_threads(device), taps = m->taps[0] * m->taps[1];
    size_t steps = aligned((size_t)(threads * taps) * sizeof(yk__gemm_step));
    yk__storage *tables, *panels;
    char *memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, axis_y + axis_x + steps, &tables);
    if (!memory)
        return yk__error_code();
    yk__conv_axis_init(&m->y, memory, p, 0, dst->shape[2], src->shape[2], m->taps[0], backward);
    yk__conv_axis_init(&m->x, memory + axis_y, p, 1, dst->shape[3], src->shape[3], m->taps[1], backward);
    m->period = backward ? p->stride[1] : 1;
    m->steps = (yk__gemm_step *)(memory + axis_y + axis_x);

    int64_t row = src->shape[3] * m->k * size, image = src->shape[2] * row;
    m->block_n = BLOCK_BYTES / (image ? image : 1);
    m->block_y = m->y.size;
    if (m->block_n < YK__GEMM_ROWS && m->block_n < m->n) {
        m->block_n = YK__GEMM_ROWS < m->n ? YK__GEMM_ROWS : m->n;
        int64_t rows = BLOCK_BYTES / (m->block_n * row) * m->y.size / src->shape[2];
        m->block_y = even(m->y.size, rows);
    }
    m->block_n = even(m->n, m->block_n);
    m->blocks_y = yk__ceil_div(m->y.size, m->block_y);
    int64_t blocks = m->blocks_y * yk__ceil_div(m->n, m->block_n);

    m->panels = yk__ceil_div(m->cols, panel);
    m->panel_size = m->y.slots * m->x.slots * depth_of(dst->dtype, m->k) * panel;
    m->fresh = blocks == 1;
    m->packed = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                  (size_t)((m->fresh ? threads : m->panels) * m->panel_size * size), &panels);
    if (!m->packed) {
        yk__storage_release(tables);
        return yk__error_code();
    }
    if (!m->fresh)
        yk__cpu_parallel(device, m->panels, 1, kind->pack, m);
    yk__cpu_parallel(device, blocks * m->panels, 1, kind->run, m);
    yk__storage_release(panels);
    yk__storage_release(tables);
    return YK_OK;
}

yk_status yk__conv_pixels_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                  const yk__view *w, const yk__view *bias)
{
    struct map m = {.w = w->data,
                    .taps = {w->shape[2], w->shape[3]},
                    .w_tap = {w->stride[2], w->stride[3]},
                    .w_k = w->stride[1],
                    .w_col = w->stride[0],
                    .bias = bias ? bias->data : NULL};
    return run_map(device, &m, p, out, x, false);
}

yk_status yk__conv_pixels_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                         const yk__view *w)
{
    struct map m = {.w = w->data,
                    .taps = {w->shape[2], w->shape[3]},
                    .w_tap = {w->stride[2], w->stride[3]},
                    .w_k = w->stride[0],
                    .w_col = w->stride[1]};
    return run_map(device, &m, p, gx, gout, true);
}

/* The destinations [*begin, *end) at which source d * stride + offset is in [0, size). */
static void inside(int64_t count, int64_t size, int64_t stride, int64_t offset, int64_t *begin, int64_t *end)
{
    *begin = offset < 0 ? yk__ceil_div(-offset, stride) : 0;
    *end = size > offset ? yk__ceil_div(size - offset, stride) : 0;
    if (*end > count)
        *end = count;
    if (*begin > *end)
        *begin = *end;
}

/* The tables of a side that packs pixels of a map of `size` rows and columns. */
static size_t side_bytes(const int64_t size[2])
{
    return aligned((size_t)(2 * size[0] + 1 + 2 * size[1]) * sizeof(int64_t));
}

static struct side side_in(void *memory, const yk__view *v)
{
    int64_t *row = memory, *of_row = row + v->shape[2] + 1, *col = of_row + v->shape[2], *of_col = col + v->shape[3];
    memset(memory, 0, side_bytes(v->shape + 2));
    return (struct side){.stride = {v->stride[0], v->stride[2], v->stride[3]},
                         .height = v->shape[2],
                         .pixel = v->shape[1] * (int64_t)yk_dtype_size((yk_dtype)v->dtype),
                         .row = row,
                         .of_row = of_row,
                         .col = col,
                         .of_col = of_col};
}

/* Marks `count` rows or columns that a tap meets. */
static void side_meets(int64_t *table, int64_t first, int64_t step, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        table[first + i * step] = 1;
}

/* Turns the marks of `size` rows or columns into positions; gives their number. */
static int64_t side_positions(int64_t *table, int64_t *of, int64_t size)
{
    int64_t count = 0;
    for (int64_t i = 0; i < size; i++) {
        bool met = table[i] != 0;
        table[i] = count;
        if (met)
            of[count++] = i;
    }
    return count;
}

static void side_done(struct side *s, int64_t columns)
{
    s->row[s->height] = side_positions(s->row, s->of_row, s->height);
    s->width = side_positions(s->col, s->of_col, columns);
}

/* The rows of x, of those that are packed, which outputs [y0, y1) meet. */
static void rows_met(const struct grad *g, int64_t y0, int64_t y1, int64_t *begin, int64_t *end)
{
    int64_t height = g->x.height, low = y0 * g->stride[0] + g->tap[0].dy,
            high = (y1 - 1) * g->stride[0] + g->tap[g->taps - 1].dy + 1;
    low = low < 0 ? 0 : low < height ? low : height;
    *begin = g->x.row[low];
    *end = g->x.row[high < low ? low : high < height ? high : height];
}

/* Prepares the next block, outputs [y0, y1), which another one to y2 follows. Rows that the block before packed are
 * kept. */
static void next_block(struct grad *g, int64_t y0, int64_t y1, int64_t y2)
{
    int64_t begin, n = g->n1 - g->n0, tiles = g->taps * g->right_panels * g->left_panels;
    g->y0 = y0;
    g->y1 = y1;
    g->x.from = g->x.to;
    g->gout.from = g->gout.to;
    rows_met(g, y0, y1, &begin, &g->x.to);
    rows_met(g, y1, y2, &begin, &g->x.end);
    g->gout.to = g->gout.row[y1];
    g->gout.end = g->gout.row[y2];
    for (int i = 0; i < 2; i++) {
        struct side *s = i ? &g->gout : &g->x;
        int64_t lines = (s->end - s->to) * s->width * yk__ceil_div(n * s->pixel, YK__LINE);
        s->share = y2 > y1 && (n == 1 || s->stride[0] * g->size == s->pixel) ? yk__ceil_div(lines, tiles) : 0;
    }
}

struct zero {
    char *data;
    int64_t rows, cols, row_stride, col_stride, size; /* bytes; cols in elements */
    bool far;
};

/* Writes zeros as memset does, past the caches. */
static void zero_far(char *to, size_t bytes)
{
#if defined(__x86_64__)
    size_t head = (size_t)(-(uintptr_t)to & 63);
    head = head < bytes ? head : bytes;
    memset(to, 0, head);
    for (to += head, bytes -= head; bytes >= 64; to += 64, bytes -= 64)
        for (int i = 0; i < 64; i += 16)
            _mm_stream_si128((__m128i *)(void *)(to + i), _mm_setzero_si128());
    _mm_sfence(); /* before other threads are told */
#endif
    memset(to, 0, bytes);
}

static void zero_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const struct zero *z = arg;
    if (z->far && z->col_stride == z->size && z->row_stride == z->cols * z->size) {
        zero_far(z->data + begin * z->row_stride, (size_t)((end - begin) * z->row_stride));
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        if (z->col_stride == z->size) {
            memset(z->data + i * z->row_stride, 0, (size_t)(z->cols * z->size));
            continue;
        }
        for (int64_t j = 0; j < z->cols; j++)
            memset(z->data + i * z->row_stride + j * z->col_stride, 0, (size_t)z->size);
    }
}

/* The step from a pixel to the next one, the images of a pixel next to each other or one after the other; 0 where there
 * is none. */
static int64_t pixel_step(const yk__view *v, bool by_image)
{
    const int64_t *shape = v->shape, *stride = v->stride;
    if (by_image)
        return stride[2] == shape[3] * stride[3] && stride[0] == shape[2] * stride[2] ? stride[3] : 0;
    return stride[3] == shape[0] * stride[0] && stride[2] == shape[3] * stride[3] ? stride[0] : 0;
}

/* Computes the gradient of the weight where it is one product over all pixels; false, with nothing done, where it is
 * not. */
static bool pointwise(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout, const yk__view *x,
                      bool accumulate)
{
    const struct kind *kind = kind_of(gw->dtype);
    if (!kind->pointwise)
        return false;
    for (int d = 0; d < 2; d++)
        if (gw->shape[2 + d] != 1 || p->stride[d] != 1 || p->padding[d] != 0)
            return false;
    bool by_image = !pixel_step(x, false) || !pixel_step(gout, false);
    const yk__view *side[2] = {swaps(gw) ? gout : x, swaps(gw) ? x : gout};
    struct pointwise g = {.map = {side[0]->data, side[1]->data},
                          .gw = gw->data,
                          .pixels = x->shape[0] * x->shape[2] * x->shape[3],
                          .step = {pixel_step(side[0], by_image), pixel_step(side[1], by_image)},
                          .left = side[0]->shape[1],
                          .right = side[1]->shape[1],
                          .left_panels = yk__ceil_div(side[0]->shape[1], YK__GEMM_ROWS),
                          .gw_stride = {gw->stride[!swaps(gw)], gw->stride[swaps(gw)]},
                          .accumulate = accumulate};
    if (!g.pixels || !g.step[0] || !g.step[1])
        return false;
    int64_t tiles = yk__ceil_div(g.right, kind->panel) * g.left_panels, threads = yk__cpu_threads(device);
    yk__cpu_parallel(device, tiles, yk__ceil_div(tiles, threads), kind->pointwise, &g);
    return true;
}

yk_status yk__conv_pixels_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                          const yk__view *x, bool accumulate)
{
    const struct kind *kind = kind_of(gw->dtype);
    int64_t size = kind->size, panel = kind->panel;
    int64_t n = x->shape[0], taps = gw->shape[2] * gw->shape[3];
    int64_t threads = yk__cpu_threads(device);
    if (!yk__view_numel(gw) || pointwise(device, p, gw, gout, x, accumulate))
        return YK_OK;
    struct grad g = {.gw = gw->data,
                     .swapped = swaps(gw),
                     .left = gw->shape[!swaps(gw)],
                     .right = gw->shape[swaps(gw)],
                     .stride = {p->stride[0], p->stride[1]},
                     .size = size};
    memcpy(g.gw_stride, gw->stride, sizeof g.gw_stride);
    int64_t oh = gout->shape[2], ow = gout->shape[3];
    g.most_steps = oh * ow < GRADIENT_LENGTH ? oh * ow : GRADIENT_LENGTH;

    size_t step_bytes = aligned((size_t)(threads * g.most_steps) * sizeof(yk__gemm_step));
    size_t x_bytes = side_bytes(x->shape + 2), gout_bytes = side_bytes(gout->shape + 2);
    yk__storage *tables, *blocks;
    char *memory = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                     step_bytes + x_bytes + gout_bytes + (size_t)taps * sizeof(struct tap), &tables);
    if (!memory)
        return yk__error_code();
    g.steps = (yk__gemm_step *)memory;
    g.x = side_in(memory + step_bytes, x);
    g.gout = side_in(memory + step_bytes + x_bytes, gout);
    g.tap = (struct tap *)(memory + step_bytes + x_bytes + gout_bytes);
    for (int64_t ky = 0; ky < gw->shape[2]; ky++)
        for (int64_t kx = 0; kx < gw->shape[3]; kx++) {
            struct tap t = {.ky = ky,
                            .kx = kx,
                            .dy = ky * p->dilation[0] - p->padding[0],
                            .dx = kx * p->dilation[1] - p->padding[1]};
            inside(oh, x->shape[2], p->stride[0], t.dy, &t.y0, &t.y1);
            inside(ow, x->shape[3], p->stride[1], t.dx, &t.x0, &t.x1);
            if (n && t.y0 < t.y1 && t.x0 < t.x1) {
                g.tap[g.taps++] = t;
                side_meets(g.x.row, t.y0 * p->stride[0] + t.dy, p->stride[0], t.y1 - t.y0);
                side_meets(g.x.col, t.x0 * p->stride[1] + t.dx, p->stride[1], t.x1 - t.x0);
                side_meets(g.gout.row, t.y0, 1, t.y1 - t.y0);
                side_meets(g.gout.col, t.x0, 1, t.x1 - t.x0);
                continue;
            }
            if (accumulate)
                continue;
            /* Along the channels that are next to each other. */
            int row = gw->stride[0] <= gw->stride[1] ? 1 : 0;
            struct zero z = {.data = (char *)gw->data + (ky * gw->stride[2] + kx * gw->stride[3]) * size,
                             .rows = gw->shape[row],
                             .cols = gw->shape[!row],
                             .row_stride = gw->stride[row] * size,
                             .col_stride = gw->stride[!row] * size,
                             .size = size,
                             .far = yk__view_numel(gw) * size >= YK__FAR_BYTES};
            yk__cpu_parallel(device, z.rows, 64, zero_piece, &z);
        }
    if (!g.taps) {
        yk__storage_release(tables);
        return YK_OK;
    }

    side_done(&g.x, x->shape[3]);
    side_done(&g.gout, ow);
    int64_t image = (g.x.row[x->shape[2]] * g.x.width * gw->shape[1] + oh * ow * gw->shape[0]) * size;
    int64_t block_n = BLOCK_BYTES / image, block_y = oh;
    bool half = gw->dtype == YK_BF16;
    int64_t least = LEAST_BLOCK < n ? LEAST_BLOCK : n;
    if (block_n < least) {
        /* Rows for whole sums, or all of gw would be added to more often. */
        block_n = least;
        int64_t fit = BLOCK_BYTES * oh / (block_n * image), whole = yk__ceil_div(GRADIENT_LENGTH, block_n * ow);
        block_y = even(oh, fit > whole ? fit : whole);
    }
    block_n = even(n, block_n);
    /* Pairs are pairs of images, so their number is even. */
    block_n += half && block_n < n ? block_n % 2 : 0;

    g.gout.ring = block_y;
    for (int64_t y = 0, begin, end; y < oh; y += block_y) {
        rows_met(&g, y, y + block_y < oh ? y + block_y : oh, &begin, &end);
        g.x.ring = end - begin > g.x.ring ? end - begin : g.x.ring;
    }
    g.left_panels = yk__ceil_div(g.left, YK__GEMM_ROWS);
    g.left_width = yk__ceil_div(yk__ceil_div(g.left, g.left_panels), kind->align) * kind->align;
    g.right_panels = yk__ceil_div(g.right, panel);
    int64_t depth = depth_of(gw->dtype, block_n);
    int64_t of_x = g.x.ring * g.x.width * depth, of_gout = g.gout.ring * g.gout.width * depth;
    g.left_size = (g.swapped ? of_gout : of_x) * g.left_width;
    g.right_size = (g.swapped ? of_x : of_gout) * panel;
    size_t left_bytes = aligned((size_t)(g.left_panels * g.left_size * size));
    size_t right_bytes = aligned((size_t)(g.right_panels * g.right_size * size));
    /* A sum in bf16 waits until it is whole; the others are added up where they will be. */
    size_t sums = half ? (size_t)(g.taps * g.right_panels * g.left_panels * YK__GEMM_ROWS * panel) : 0;
    g.packed_left = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                      left_bytes + right_bytes + sums * sizeof(float), &blocks);
    if (!g.packed_left) {
        yk__storage_release(tables);
        return yk__error_code();
    }
    g.packed_right = (char *)g.packed_left + left_bytes;
    g.sums = (float *)(void *)((char *)g.packed_right + right_bytes);
    g.accumulate = accumulate;
    g.first = half || !accumulate;
    for (g.n0 = 0; g.n0 < n; g.n0 = g.n1) {
        g.n1 = g.n0 + block_n < n ? g.n0 + block_n : n;
        g.x.data = (const char *)x->data + g.n0 * x->stride[0] * size;
        g.gout.data = (const char *)gout->data + g.n0 * gout->stride[0] * size;
        g.x.to = g.gout.to = 0;
        for (int64_t y = 0, y1, y2; y < oh; y = y1) {
            y1 = y + block_y < oh ? y + block_y : oh;
            y2 = y1 + block_y < oh ? y1 + block_y : oh;
            next_block(&g, y, y1, y2);
            g.last = g.n1 == n && y1 == oh;
            int64_t count = pixels(&g.x) + pixels(&g.gout), pieces = threads > 1 ? PACK_PIECES * threads : 1;
            yk__cpu_parallel(device, count, yk__ceil_div(count, pieces), kind->pack_gradient, &g);
            yk__cpu_parallel(device, g.taps * g.right_panels, 1, kind->run_gradient, &g);
            g.first = false;
        }
    }
    yk__storage_release(blocks);
    yk__storage_release(tables);
    return YK_OK;
}
