/*
 * conv_columns.c - convolutions of any strides, groups and dilation. Layer: device/cpu.
 *
 * What a block of output pixels sees is gathered into rows of columns (ky, c, kx), kernel rows outside the image left
 * out (forward, where a row has enough taps, the rows of x are the columns as they stand); then out = columns w, gw =
 * columns^T gout, and gx collects gout w^T. A block is one output row of some images, so the gathered part stays in the
 * caches; for gw, where the images of a pixel are neighbours, part of a row of as many images as it takes, so that gout
 * is read as it lies. A network's first layer, with its few channels, takes this algorithm, too; where the images of a
 * pixel are neighbours neither its output nor the gradient of its weight needs columns (conv_columns_images_body.h).
 *
 * The shares of work are fixed by the shapes and their sums are added in order: bits do not depend on threads.
 */
#include <string.h>

#include "device/cpu/conv/conv.h"
#include "device/cpu/elementwise/transpose.h"
#include "device/cpu/gemm/gemm_micro.h"

/* Products summed in registers before they are added to memory: a longer chain of roundings has larger errors (figures
 * in conv_pixels.c), a shorter one more additions. */
#define SUM_LENGTH      256
#define GRADIENT_LENGTH 256
/* Output pixels in a block, but at least a row of one image, or one pixel of all: bounds the gathered columns, so that
 * they stay in the cache. */
#define BLOCK_PIXELS 256
/* Pixels of a row for which its columns are worth gathering. */
#define LEAST_PIXELS 32
/* A gradient of the weight is summed in up to SHARES shares, which threads take, each in memory of its own, where these
 * take SHARE_BYTES together at most; larger ones are shared out by channels. */
#define SHARE_BYTES (512 * 1024)
#define SHARES      8
/* Images of a pixel that are taken together (conv_columns_images_body.h): at least, and as many as rows of x in
 * RING_BYTES have, at most a sum: the output, or its gradient, passes in the order of memory where these are all. BAND
 * rows of outputs are taken one after the other. */
#define LEAST_IMAGES 4
#define RING_BYTES   (384 * 1024)
#define BAND         16
/* Forward without gathered columns: the least number of taps in a row, since each row is a step of its own, and the
 * most rows of x for an output pixel, of an array on the stack. */
#define LEAST_TAPS 3
#define MOST_ROWS  64

struct columns {
    const yk__conv2d *p;
    yk__view x, w, out; /* or their gradients */
    const void *bias;
    int64_t groups, c, o, kh, kw, h_in, w_in, oh, ow;   /* c, o: channels of a group */
    int64_t k;                                          /* c * kh * kw */
    int64_t panels, block_n, block_x, blocks_x, blocks; /* pixels of a row in a block; blocks of a row, of a group */
    int64_t chunk, chunks, shares;
    bool images_inner; /* rows of columns are (ox, n), else (n, ox) */
    bool in_rows;      /* forward: columns are not gathered, see forward_rows */
    bool by_images;    /* nor here, see conv_columns_images_body.h; rows of `packed` are (ky, kx, c) */
    bool far;          /* the output is larger than the caches */
    void *packed;
    char *scratch; /* of each thread: rows, columns, and for gradients of weights a panel of gout */
    int64_t scratch_bytes, row_size, columns_size, ld;
};

struct block {
    int64_t group, n0, n1, oy, x0, x1, ky0, ky1, c0, c1;
};

static void block_of(const struct columns *c, int64_t index, struct block *b)
{
    b->group = index / c->blocks;
    b->n0 = index % c->blocks / (c->oh * c->blocks_x) * c->block_n;
    b->n1 = b->n0 + c->block_n < c->out.shape[0] ? b->n0 + c->block_n : c->out.shape[0];
    b->oy = index / c->blocks_x % c->oh;
    b->x0 = index % c->blocks_x * c->block_x;
    b->x1 = b->x0 + c->block_x < c->ow ? b->x0 + c->block_x : c->ow;
    b->c0 = 0;
    b->c1 = c->c;
    int64_t top = b->oy * c->p->stride[0] - c->p->padding[0], step = c->p->dilation[0];
    b->ky0 = top < 0 ? yk__ceil_div(-top, step) : 0;
    b->ky1 = c->h_in > top ? yk__ceil_div(c->h_in - top, step) : 0;
    b->ky0 = b->ky0 < c->kh ? b->ky0 : c->kh;
    b->ky1 = b->ky1 < c->kh ? b->ky1 : c->kh;
    b->ky1 = b->ky1 > b->ky0 ? b->ky1 : b->ky0;
}

#define TYPED(name)  TYPED_(name)
#define T            float
#define V            yk__vf32
#define TYPED_(name) name##_f32
#include "device/cpu/conv/conv_columns_body.h"
#undef T
#undef V
#undef TYPED_

#define T            double
#define V            yk__vf64
#define TYPED_(name) name##_f64
#include "device/cpu/conv/conv_columns_body.h"

static int64_t round_up(int64_t n, int64_t to)
{
    return yk__ceil_div(n, to) * to;
}

static void make_blocks(struct columns *c, int64_t images, int64_t pixels)
{
    int64_t n = c->out.shape[0];
    c->block_n = n ? yk__ceil_div(n, yk__ceil_div(n, images < 1 ? 1 : images)) : 1;
    c->block_x = c->ow ? yk__ceil_div(c->ow, yk__ceil_div(c->ow, pixels < 1 ? 1 : pixels)) : 1;
    c->blocks_x = c->ow ? yk__ceil_div(c->ow, c->block_x) : 1;
    c->blocks = yk__ceil_div(n, c->block_n) * c->oh * c->blocks_x;
}

static void columns_prepare(struct columns *c, const yk__conv2d *p, const yk__view *x, const yk__view *w,
                            const yk__view *out)
{
    int64_t n = out->shape[0];
    *c = (struct columns){.p = p,
                          .x = *x,
                          .w = *w,
                          .out = *out,
                          .groups = p->groups,
                          .c = w->shape[1],
                          .o = w->shape[0] / p->groups,
                          .kh = w->shape[2],
                          .kw = w->shape[3],
                          .h_in = x->shape[2],
                          .w_in = x->shape[3],
                          .oh = out->shape[2],
                          .ow = out->shape[3],
                          .k = w->shape[1] * w->shape[2] * w->shape[3],
                          .chunk = w->shape[1],
                          .chunks = 1,
                          .shares = 1};
    c->images_inner = out->stride[0] <= out->stride[3] && n > 1;
    make_blocks(c, c->ow ? BLOCK_PIXELS / c->ow : 1, c->ow);
    /* fill writes up to 16 numbers beyond a row's last, and reads as many beyond a padded line's. */
    c->ld = round_up(c->k + 16, 16);
    c->row_size = round_up(c->w_in + 2 * p->padding[1] + 16, 16);
    c->columns_size = c->block_n * c->ow * c->ld + 16;
}

/* Takes memory for `packed` elements and for the threads; NULL and the error record set where there is none. */
static void *reserve(struct columns *c, int device, int64_t packed, int64_t own, yk__storage **handle)
{
    int64_t size = (int64_t)yk_dtype_size(c->x.dtype), threads = yk__cpu_threads(device);
    c->scratch_bytes = round_up((c->row_size + c->columns_size + own) * size, 64);
    int64_t packed_bytes = round_up(packed * size, 64);
    c->packed = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                  (size_t)(packed_bytes + threads * c->scratch_bytes), handle);
    c->scratch = (char *)c->packed + packed_bytes;
    return c->packed;
}

static int64_t panel_of(const struct columns *c)
{
    return 2 * YK__VECTOR_BYTES / (int64_t)yk_dtype_size(c->x.dtype);
}

/* True if images of a pixel can be taken together, `out` (the output or its gradient) used without a copy. */
static bool images_together(const yk__conv2d *p, const yk__view *out, int64_t taps)
{
    return p->dilation[0] == 1 && p->dilation[1] == 1 && taps >= LEAST_TAPS && out->shape[0] >= LEAST_IMAGES &&
           out->stride[1] == 1 && out->stride[0] <= out->stride[3];
}

/* Plans blocks of images that are taken together; false, with the plan unchanged, if they cannot be. */
static bool plan_images(struct columns *c)
{
    if (!images_together(c->p, &c->out, c->kw * c->c))
        return false;
    int64_t of_one = c->c * (c->w_in + 2 * c->p->padding[1]);
    int64_t most = RING_BYTES / (int64_t)yk_dtype_size(c->x.dtype) / (c->kh * of_one);
    most = most < GRADIENT_LENGTH ? most : GRADIENT_LENGTH;
    make_blocks(c, most > 2 * LEAST_IMAGES ? most : 2 * LEAST_IMAGES, c->ow);
    c->row_size = c->block_n * of_one;
    c->columns_size = (c->kh - 1) * c->row_size;
    c->by_images = true;
    return true;
}

yk_status yk__conv_columns_forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                                   const yk__view *w, const yk__view *bias)
{
    struct columns c;
    yk__storage *handle;
    if (!yk__view_numel(out))
        return YK_OK;
    bool f32 = out->dtype == YK_F32;
    columns_prepare(&c, p, x, w, out);
    c.bias = bias ? bias->data : NULL;
    c.far = yk__view_numel(out) * (int64_t)yk_dtype_size(out->dtype) >= YK__FAR_BYTES;
    c.panels = yk__ceil_div(c.o, panel_of(&c));
    if (c.kh > MOST_ROWS || c.kw * c.c > SUM_LENGTH || !plan_images(&c)) {
        c.in_rows = c.kw >= LEAST_TAPS && c.kh * c.c <= MOST_ROWS && p->dilation[1] == 1;
        if (c.in_rows)
            c.columns_size = c.kh * c.c * c.row_size;
    }
    if (!reserve(&c, device, c.groups * c.panels * c.k * panel_of(&c), 0, &handle))
        return yk__error_code();
    yk__cpu_parallel(device, c.groups * c.panels, 1, f32 ? pack_forward_f32 : pack_forward_f64, &c);
    if (c.by_images)
        yk__cpu_parallel(device, c.groups * c.blocks, BAND, f32 ? forward_images_piece_f32 : forward_images_piece_f64,
                         &c);
    else
        yk__cpu_parallel(device, c.groups * c.blocks, 1, f32 ? forward_piece_f32 : forward_piece_f64, &c);
    yk__storage_release(handle);
    return YK_OK;
}

/* The gradient of the input as a forward convolution of gout, whose few channels make it a first layer: its parameters,
 * and the weight with inputs and outputs exchanged and its taps in reverse order. */
static yk__conv2d turned(const yk__conv2d *p, const yk__view *w, yk__view *turned_w)
{
    yk__conv2d q = *p;
    int64_t size = (int64_t)yk_dtype_size((yk_dtype)w->dtype);
    *turned_w = *w;
    for (int d = 0; d < 2; d++) {
        q.padding[d] = w->shape[2 + d] - 1 - p->padding[d];
        turned_w->shape[d] = w->shape[1 - d];
        turned_w->stride[d] = w->stride[1 - d];
        turned_w->data = (char *)turned_w->data + (w->shape[2 + d] - 1) * w->stride[2 + d] * size;
        turned_w->stride[2 + d] = -w->stride[2 + d];
    }
    return q;
}

bool yk__conv_columns_turns(const yk__conv2d *p, const yk__view *gx, const yk__view *w)
{
    return w->dtype != YK_BF16 && p->groups == 1 && p->stride[0] == 1 && p->stride[1] == 1 && w->shape[0] < 8 &&
           w->shape[2] * w->shape[3] > 1 && w->shape[2] <= MOST_ROWS && w->shape[3] * w->shape[0] <= SUM_LENGTH &&
           p->padding[0] < w->shape[2] && p->padding[1] < w->shape[3] &&
           images_together(p, gx, w->shape[3] * w->shape[0]);
}

yk_status yk__conv_columns_turned_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                        const yk__view *w)
{
    yk__view turned_w;
    yk__conv2d q = turned(p, w, &turned_w);
    return yk__conv_columns_forward(device, &q, gx, gout, &turned_w, NULL);
}

yk_status yk__conv_columns_backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                          const yk__view *w)
{
    struct columns c;
    yk__storage *handle;
    if (!yk__view_numel(gx))
        return YK_OK;
    bool f32 = gx->dtype == YK_F32;
    columns_prepare(&c, p, gx, w, gout);
    c.panels = yk__ceil_div(c.k, panel_of(&c));
    c.row_size = round_up(c.block_n * c.ow * c.o, 16);
    if (!reserve(&c, device, c.groups * c.panels * c.o * panel_of(&c), 0, &handle))
        return yk__error_code();
    yk__cpu_parallel(device, c.groups * c.panels, 1, f32 ? pack_backward_f32 : pack_backward_f64, &c);
    yk__cpu_parallel(device, c.groups * (c.blocks / c.oh), 1, f32 ? input_piece_f32 : input_piece_f64, &c);
    yk__storage_release(handle);
    return YK_OK;
}

yk_status yk__conv_columns_backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gout,
                                           const yk__view *x)
{
    struct columns c;
    yk__storage *handle;
    if (!yk__view_numel(gw))
        return YK_OK;
    bool f32 = gw->dtype == YK_F32;
    columns_prepare(&c, p, x, gw, gout);
    c.panels = yk__ceil_div(c.o, panel_of(&c));
    if (c.images_inner) {
        int64_t least = c.ow < LEAST_PIXELS ? c.ow : LEAST_PIXELS, images = least ? BLOCK_PIXELS / least : 1;
        images = images < c.out.shape[0] ? images : c.out.shape[0];
        make_blocks(&c, images, BLOCK_PIXELS / (images ? images : 1));
    }
    int64_t bytes = yk__view_numel(gw) * (int64_t)yk_dtype_size(gw->dtype), taps = c.kh * c.kw;
    bool shared = bytes * SHARES <= SHARE_BYTES, images = shared && c.o % (panel_of(&c) / 2) == 0 && plan_images(&c);
    if (shared) {
        c.shares = SHARES < c.blocks ? SHARES : c.blocks;
        c.shares = c.shares < 1 ? 1 : c.shares;
    } else if (c.c * taps > 128) {
        c.chunk = yk__ceil_div(128, taps);
        c.chunks = yk__ceil_div(c.c, c.chunk);
    }
    c.ld = round_up(c.chunk * taps + 16, 16);
    if (!images)
        c.columns_size = c.block_n * c.block_x * c.ld + 16;
    int64_t packed_gout = images ? 0 : c.block_n * c.block_x * panel_of(&c);
    if (!reserve(&c, device, c.shares * c.groups * c.k * c.o, packed_gout, &handle))
        return yk__error_code();
    if (images)
        yk__cpu_parallel(device, c.groups * c.shares, 1, f32 ? weight_images_piece_f32 : weight_images_piece_f64, &c);
    else
        yk__cpu_parallel(device, c.groups * c.chunks * c.shares, 1, f32 ? weight_piece_f32 : weight_piece_f64, &c);
    yk__cpu_parallel(device, c.groups * c.c, 16, f32 ? weight_sum_piece_f32 : weight_sum_piece_f64, &c);
    yk__storage_release(handle);
    return YK_OK;
}
