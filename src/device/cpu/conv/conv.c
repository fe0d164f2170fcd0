/*
 * conv.c - the convolution slots: choice of the algorithm for a call, memory orders, gradient of the bias.
 * Layer: device/cpu.
 *
 * conv_small.c takes small float maps of few channels in C order, conv_planes.c depthwise convolutions of maps in C
 * order. Of the others conv_pixels.c takes groups of more than 8 channels on both sides, one group at a time, and a
 * single group of 8 and more inputs, and conv_winograd.c those of them that it is faster at; conv_lanes.c several
 * groups of up to 8 channels, depthwise ones among them, and maps of groups that fit in a vector, and conv_columns.c
 * the rest: first layers, and the odd ones; and gradients of the input of few outputs. All but the last want their
 * channels next to each other: maps in another memory order are repacked (conv_inner.c), but for few channels in
 * Winograd's tiles, which copy a few rows at a time, and for single taps (conv_matrices.c). All give the same result up
 * to rounding; layouts are chosen so that nothing has to be repacked in a network.
 *
 * bf16, where AVX512-BF16 multiplies it, is conv_pixels.c's alone; what that does not take is widened to f32 and
 * rounded.
 */
#include <string.h>

#include "device/convert.h"
#include "device/cpu/conv/conv.h"
#include "device/cpu/gemm/gemm_product.h"

enum way { PIXELS, LANES, COLUMNS };

/* Products of one sum that conv_lanes.c adds up in a register: longer sums, which lose digits, are conv_pixels.c's. */
#define LANES_LENGTH 256

/* True if several groups of 8 and more channels are faster all at once, a vector of them, than one by one: with those
 * of 8 half of a vector would be empty, and a group by itself is a line or less of every pixel. */
static bool joins_lanes(const yk__conv2d *p, const yk__view *w, int64_t most)
{
    int64_t c = w->shape[1], o = w->shape[0] / p->groups, larger = c > o ? c : o;
    return p->groups > 1 && w->dtype != YK_BF16 && larger <= most &&
           larger * w->shape[2] * w->shape[3] <= LANES_LENGTH && yk__conv_lanes_applies((yk_dtype)w->dtype, c, o);
}

static enum way algorithm_of(const yk__conv2d *p, const yk__view *w)
{
    int64_t c = w->shape[1], o = w->shape[0] / p->groups;
    if (c >= 8 && (o >= 8 || p->groups == 1))
        return joins_lanes(p, w, 8) ? LANES : PIXELS;
    return p->groups > 1 && yk__conv_lanes_applies((yk_dtype)w->dtype, c, o) ? LANES : COLUMNS;
}

/* Likewise for the gradient of the weight, where its sums are in rotated order (Note [Rotated sums] in conv_lanes.c)
 * and Winograd's tiles of one group are no choice. */
static bool joins_weights(const yk__conv2d *p, const yk__view *w)
{
    bool tiles = w->shape[2] == 3 && w->shape[3] == 3 && p->stride[0] == 1 && p->stride[1] == 1;
    return !tiles && joins_lanes(p, w, 16) && yk__conv_lanes_turns(w->shape[1], w->shape[0] / p->groups);
}

enum direction { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, ACCUMULATE_WEIGHT };

/* True if bf16 is widened to f32: where conv_pixels.c does not take the call, and where a gradient of a weight would
 * lose half of the instruction that multiplies pairs of images, because there is one image. */
static bool widens(const yk__conv2d *p, enum direction direction, const yk__view *x, const yk__view *w)
{
    return x->dtype == YK_BF16 &&
           (algorithm_of(p, w) != PIXELS || (direction == BACKWARD_WEIGHT && x->shape[0] < 8 && x->shape[0] % 2));
}

/* True if weights are kept with the output channels next to each other. */
static bool outputs_inner(const yk__conv2d *p, int64_t channels_out)
{
    return p->groups == 1 && channels_out >= 8;
}

static void c_order(const int64_t shape[4], int64_t stride[4])
{
    stride[3] = 1;
    for (int d = 2; d >= 0; d--)
        stride[d] = stride[d + 1] * (shape[d + 1] > 1 ? shape[d + 1] : 1);
}

static void layout(const yk__conv2d *p, const yk__view *x, const yk__view *w, const int64_t out_shape[4],
                   int64_t out_stride[4])
{
    yk__view out = {.dtype = x->dtype, .ndim = 4}, wide_x = *x, wide_w = *w;
    if (widens(p, FORWARD, x, w))
        wide_x.dtype = wide_w.dtype = YK_F32;
    c_order(out_shape, out_stride);
    for (int d = 0; d < 4; d++) {
        out.shape[d] = out_shape[d];
        out.stride[d] = out_stride[d];
    }
    bool inner = algorithm_of(p, &wide_w) != COLUMNS || outputs_inner(p, out_shape[1]);
    if (inner && !yk__conv_small_applies(p, &wide_x, &wide_w, &out) &&
        !yk__conv_planes_applies(p, &wide_x, &wide_w, &out))
        yk__conv_inner_strides(out_shape, out_stride);
}

/* The strides of a weight: [kh][kw][C][O] where the maps are [H][W][N][C], and [kh][C][kw][O] for a first layer, whose
 * columns are gathered from planes. */
static void weight_layout(const yk__conv2d *p, yk_dtype dtype, const int64_t shape[4], int64_t stride[4])
{
    (void)dtype;
    c_order(shape, stride);
    if (!outputs_inner(p, shape[0]) || (shape[1] < 16 && shape[0] <= 32))
        return;
    stride[0] = 1;
    if (shape[1] < 16) {
        stride[3] = shape[0];
        stride[1] = stride[3] * shape[3];
        stride[2] = stride[1] * shape[1];
        return;
    }
    stride[1] = shape[0];
    stride[3] = stride[1] * shape[1];
    stride[2] = stride[3] * shape[3];
}

/* The part of a view that belongs to group g of `groups`, along dimension `dim`. */
static yk__view group_of(const yk__view *v, int dim, int64_t groups, int64_t g)
{
    yk__view part = *v;
    part.shape[dim] /= groups;
    part.data = (char *)v->data + g * part.shape[dim] * v->stride[dim] * (int64_t)yk_dtype_size((yk_dtype)v->dtype);
    return part;
}

/* Keeps every step-th element of a dimension, from `first` on. */
static void take_every(yk__view *v, int dim, int64_t first, int64_t step)
{
    v->data = (char *)v->data + first * v->stride[dim] * (int64_t)yk_dtype_size((yk_dtype)v->dtype);
    v->shape[dim] = v->shape[dim] > first ? yk__ceil_div(v->shape[dim] - first, step) : 0;
    v->stride[dim] *= step;
}

/* Outputs that are `dilation` apart take their inputs from pixels that are as far apart, so that each such part of the
 * maps is a convolution without dilation. This is part i of dilation[0] x dilation[1]. */
static yk__conv2d part_of(const yk__conv2d *p, int64_t i, yk__view *out, yk__view *x)
{
    yk__conv2d part = *p;
    for (int d = 0; d < 2; d++) {
        int64_t step = p->dilation[d], first = d ? i % p->dilation[1] : i / p->dilation[1];
        part.dilation[d] = 1;
        part.padding[d] = p->padding[d] > first ? yk__ceil_div(p->padding[d] - first, step) : 0;
        take_every(out, 2 + d, first, step);
        take_every(x, 2 + d, first - p->padding[d] + part.padding[d] * step, step);
    }
    return part;
}

static bool winograd_applies(const yk__conv2d *p, enum direction direction, int64_t parts, const yk__view *out,
                             const yk__view *x, const yk__view *w)
{
    bool of_map = direction == FORWARD || direction == BACKWARD_INPUT;
    /* Gradients that are added to others are not computed part by part: those of earlier parts would stay where a later
     * one is not finite. */
    if (out->dtype == YK_BF16 || p->stride[0] != 1 || p->stride[1] != 1 || (p->groups > 1 && !of_map) ||
        (parts > 1 && direction == ACCUMULATE_WEIGHT))
        return false;
    for (int64_t i = 0; i < parts; i++) {
        yk__view of_out = *out, of_x = *x;
        yk__conv2d part = part_of(p, i, &of_out, &of_x);
        if (!(p->groups > 1 ? yk__conv_winograd_joins : yk__conv_winograd_applies)(&part, &of_out, &of_x, w))
            return false;
    }
    return true;
}

/* Computes one group, or several of a map, by Winograd's tiles. **finite says whether the result is; one that is not
 * differs from the direct sum: tiles subtract infinities, which the direct sum does not. */
static yk_status run_winograd(int device, const yk__conv2d *p, enum direction direction, const yk__view *out,
                              const yk__view *x, const yk__view *w, const yk__view *bias, bool *finite)
{
    int64_t parts = p->dilation[0] * p->dilation[1];
    yk_status status = YK_OK;
    *finite = winograd_applies(p, direction, parts, out, x, w);
    for (int64_t i = 0; i < parts && *finite && !status; i++) {
        yk__view of_out = *out, of_x = *x;
        yk__conv2d part = part_of(p, i, &of_out, &of_x);
        bool add = direction == ACCUMULATE_WEIGHT || i > 0;
        status = direction == FORWARD ? yk__conv_winograd_forward(device, &part, &of_out, &of_x, w, bias, finite)
                 : direction == BACKWARD_INPUT
                     ? yk__conv_winograd_backward_input(device, &part, &of_x, &of_out, w, finite)
                     : yk__conv_winograd_backward_weight(device, &part, w, &of_out, &of_x, add, finite);
    }
    return status;
}

/* Computes one group; out, x and w are those of the call or, as the direction says, their gradients. `direct`: not by
 * tiles. */
static yk_status run_group(int device, const yk__conv2d *p, enum direction direction, const yk__view *out,
                           const yk__view *x, const yk__view *w, const yk__view *bias, bool direct)
{
    bool finite = false;
    yk_status status = direct ? YK_OK : run_winograd(device, p, direction, out, x, w, bias, &finite);
    if (status || finite)
        return status;
    if (direction == FORWARD && yk__conv_few_applies(w))
        return yk__conv_few_forward(device, p, out, x, w, bias);
    if (direction == BACKWARD_INPUT && yk__conv_columns_turns(p, x, w))
        return yk__conv_columns_turned_input(device, p, x, out, w);
    return direction == FORWARD ? yk__conv_pixels_forward(device, p, out, x, w, bias)
           : direction == BACKWARD_INPUT
               ? yk__conv_pixels_backward_input(device, p, x, out, w)
               : yk__conv_pixels_backward_weight(device, p, w, out, x, direction == ACCUMULATE_WEIGHT);
}

static yk_status run_lanes(int device, const yk__conv2d *p, enum direction direction, const yk__view *out,
                           const yk__view *x, const yk__view *w, const yk__view *bias)
{
    return direction == FORWARD          ? yk__conv_lanes_forward(device, p, out, x, w, bias)
           : direction == BACKWARD_INPUT ? yk__conv_lanes_backward_input(device, p, x, out, w)
                                         : yk__conv_lanes_backward_weight(device, p, w, out, x);
}

/* Computes all groups; channels are next to each other. `direct`: one group, not by tiles. */
static yk_status run_inner(int device, const yk__conv2d *p, enum direction direction, const yk__view *out,
                           const yk__view *x, const yk__view *w, const yk__view *bias, bool direct)
{
    if (algorithm_of(p, w) == LANES)
        return run_lanes(device, p, direction, out, x, w, bias);
    yk__conv2d alone = *p;
    alone.groups = 1;
    yk_status status = YK_OK;
    bool finite = false;
    if (p->groups > 1)
        status = run_winograd(device, p, direction, out, x, w, bias, &finite);
    if (finite)
        return status;
    if (!status && (direction == FORWARD || direction == BACKWARD_INPUT ? joins_lanes(p, w, 16) : joins_weights(p, w)))
        return run_lanes(device, p, direction, out, x, w, bias);
    for (int64_t g = 0; g < p->groups && !status; g++) {
        yk__view of_out = group_of(out, 1, p->groups, g), of_x = group_of(x, 1, p->groups, g);
        yk__view of_w = group_of(w, 0, p->groups, g), of_bias;
        if (bias)
            of_bias = group_of(bias, 0, p->groups, g);
        status = run_group(device, &alone, direction, &of_out, &of_x, &of_w, bias ? &of_bias : NULL, direct);
    }
    return status;
}

/* True if Winograd's tiles are made of rows that are copied from maps in any memory order. */
static bool copies_rows(const yk__conv2d *p, enum direction direction, const yk__view *out, const yk__view *x)
{
    return p->groups == 1 && p->dilation[0] == 1 && p->dilation[1] == 1 && (out->stride[1] != 1 || x->stride[1] != 1) &&
           yk__conv_winograd_copies_rows(out, x, direction != FORWARD && direction != BACKWARD_INPUT);
}

/* Computes maps in any memory order: they are repacked where their channels are not next to each other. */
static yk_status maps_run(int device, const yk__conv2d *p, enum direction direction, const yk__view *out,
                          const yk__view *x, const yk__view *w, const yk__view *bias)
{
    yk__conv_map of_x = {.handle = NULL}, of_out = {.handle = NULL};
    yk_status status = YK_OK;
    /* Fewer channels than the output's, which is in our order, are repacked in less time than products write planes. */
    bool planes_pay = direction != BACKWARD_INPUT || w->shape[1] >= w->shape[0];
    if (planes_pay && yk__conv_matrices_applies(p, x, w, out))
        return direction == FORWARD ? yk__conv_matrices_forward(device, p, out, x, w, bias)
               : direction == BACKWARD_INPUT
                   ? yk__conv_matrices_backward_input(device, p, x, out, w)
                   : yk__conv_matrices_backward_weight(device, p, w, out, x, direction == ACCUMULATE_WEIGHT);
    bool copies = copies_rows(p, direction, out, x) && winograd_applies(p, direction, 1, out, x, w), finite = false;
    if (copies)
        status = run_winograd(device, p, direction, out, x, w, bias, &finite);
    if (status || finite)
        return status;
    status = yk__conv_inner(device, x, direction != BACKWARD_INPUT, &of_x);
    if (!status)
        status = yk__conv_inner(device, out, direction != FORWARD, &of_out);
    if (!status)
        status = run_inner(device, p, direction, &of_out.view, &of_x.view, w, bias, copies);
    if (!status && direction == FORWARD)
        yk__conv_inner_store(device, &of_out, out);
    if (!status && direction == BACKWARD_INPUT)
        yk__conv_inner_store(device, &of_x, x);
    yk__conv_inner_release(&of_out);
    yk__conv_inner_release(&of_x);
    return status;
}

/* The bias with its numbers next to each other: itself, or a copy in *handle. */
static yk_status dense_bias(int device, const yk__view *bias, yk__view *dense, yk__storage **handle)
{
    *dense = *bias;
    *handle = NULL;
    if (bias->stride[0] == 1)
        return YK_OK;
    size_t size = yk_dtype_size((yk_dtype)bias->dtype);
    dense->stride[0] = 1;
    dense->data = yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)(bias->shape[0] + 1) * size, handle);
    if (!dense->data)
        return yk__error_code();
    for (int64_t i = 0; i < bias->shape[0]; i++)
        memcpy((char *)dense->data + (size_t)i * size, (const char *)bias->data + i * bias->stride[0] * (int64_t)size,
               size);
    return YK_OK;
}

static yk_status in_f32(int device, const yk__conv2d *p, enum direction direction, const yk__view *out,
                        const yk__view *x, const yk__view *w, const yk__view *bias);

static yk_status forward(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x, const yk__view *w,
                         const yk__view *bias)
{
    if (widens(p, FORWARD, x, w))
        return in_f32(device, p, FORWARD, out, x, w, bias);
    if (yk__conv_small_applies(p, x, w, out))
        return yk__conv_small_forward(device, p, out, x, w, bias);
    yk__view dense;
    yk__storage *handle = NULL;
    if (bias && dense_bias(device, bias, &dense, &handle))
        return yk__error_code();
    const yk__view *add = bias ? &dense : NULL;
    yk_status status = yk__conv_planes_applies(p, x, w, out) ? yk__conv_planes_forward(device, p, out, x, w, add)
                       : algorithm_of(p, w) == COLUMNS       ? yk__conv_columns_forward(device, p, out, x, w, add)
                                                             : maps_run(device, p, FORWARD, out, x, w, add);
    if (handle)
        yk__storage_release(handle);
    return status;
}

static yk_status backward_input(int device, const yk__conv2d *p, const yk__view *gx, const yk__view *gout,
                                const yk__view *w)
{
    if (widens(p, BACKWARD_INPUT, gx, w))
        return in_f32(device, p, BACKWARD_INPUT, gout, gx, w, NULL);
    if (yk__conv_small_applies(p, gx, w, gout))
        return yk__conv_small_backward_input(device, p, gx, gout, w);
    if (yk__conv_planes_applies(p, gx, w, gout))
        return yk__conv_planes_backward_input(device, p, gx, gout, w);
    if (algorithm_of(p, w) == COLUMNS)
        return yk__conv_columns_backward_input(device, p, gx, gout, w);
    return maps_run(device, p, BACKWARD_INPUT, gout, gx, w, NULL);
}

static yk_status forward_slot(int device, const yk__conv2d *p, const yk__view *out, const yk__view *x,
                              const yk__view *w, const yk__view *bias)
{
    yk_status status = forward(device, p, out, x, w, bias);
    if (status || !p->relu)
        return status;
    return yk__backend_of((yk_device){YK_CPU, (int16_t)device})->unary(device, YK__RELU, out, out, 0, 0);
}

struct bias_sum {
    const yk__view *gbias, *gout;
};

/* The channels whose sums are taken together, at most: f32 in runs of one row of the map, the runs in double. */
#define BIAS_CHANNELS 64
#define BIAS_PIECE(name, T, S, WIDEN, NARROW)                                                                          \
    static void bias_piece_##name(void *arg, int64_t begin, int64_t end, int thread)                                   \
    {                                                                                                                  \
        (void)thread;                                                                                                  \
        const struct bias_sum *s = arg;                                                                                \
        const int64_t *shape = s->gout->shape, *stride = s->gout->stride;                                              \
        int inner = stride[0] > stride[3] ? 3 : 0, outer = 3 - inner;                                                  \
        double total[BIAS_CHANNELS] = {0};                                                                             \
        S part[BIAS_CHANNELS];                                                                                         \
        int64_t channels = end - begin;                                                                                \
        for (int64_t y = 0; y < shape[2]; y++)                                                                         \
            for (int64_t o = 0; o < shape[outer]; o++) {                                                               \
                const T *row = (const T *)s->gout->data + begin * stride[1] + y * stride[2] + o * stride[outer];       \
                for (int64_t c = 0; c < channels; c++)                                                                 \
                    part[c] = 0;                                                                                       \
                if (stride[1] == 1) {                                                                                  \
                    for (int64_t i = 0; i < shape[inner]; i++)                                                         \
                        for (int64_t c = 0; c < channels; c++)                                                         \
                            part[c] += WIDEN(row[i * stride[inner] + c]);                                              \
                } else {                                                                                               \
                    for (int64_t c = 0; c < channels; c++)                                                             \
                        for (int64_t i = 0; i < shape[inner]; i++)                                                     \
                            part[c] += WIDEN(row[i * stride[inner] + c * stride[1]]);                                  \
                }                                                                                                      \
                for (int64_t c = 0; c < channels; c++)                                                                 \
                    total[c] += (double)part[c];                                                                       \
            }                                                                                                          \
        for (int64_t c = 0; c < channels; c++)                                                                         \
            ((T *)s->gbias->data)[(begin + c) * s->gbias->stride[0]] = NARROW(total[c]);                               \
    }
#define SAME(x)    (x)
#define TO_F32(x)  ((float)(x))
#define TO_BF16(x) yk__to_bf16((float)(x))
BIAS_PIECE(f32, float, float, SAME, TO_F32)
BIAS_PIECE(f64, double, double, SAME, SAME)
BIAS_PIECE(bf16, uint16_t, float, yk__from_bf16, TO_BF16)

static void backward_bias(int device, const yk__view *gbias, const yk__view *gout)
{
    struct bias_sum sum = {gbias, gout};
    yk__cpu_parallel(device, gbias->shape[0], BIAS_CHANNELS,
                     gbias->dtype == YK_BF16  ? bias_piece_bf16
                     : gbias->dtype == YK_F32 ? bias_piece_f32
                                              : bias_piece_f64,
                     &sum);
}

static yk_status backward_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gbias,
                                 const yk__view *gout, const yk__view *x)
{
    if (widens(p, BACKWARD_WEIGHT, x, gw))
        return in_f32(device, p, BACKWARD_WEIGHT, gout, x, gw, gbias);
    if (yk__conv_small_applies(p, x, gw, gout))
        return yk__conv_small_backward_weight(device, p, gw, gbias, gout, x);
    if (gbias)
        backward_bias(device, gbias, gout);
    if (yk__conv_planes_applies(p, x, gw, gout))
        return yk__conv_planes_backward_weight(device, p, gw, gout, x);
    if (algorithm_of(p, gw) == COLUMNS)
        return yk__conv_columns_backward_weight(device, p, gw, gout, x);
    return maps_run(device, p, BACKWARD_WEIGHT, gout, x, gw, NULL);
}

/* Adds the gradient of the weight to gw. With many channels, whose weights are large, it is added in the kernel that
 * computes it; a smaller gradient is computed apart first. */
static yk_status accumulate_weight(int device, const yk__conv2d *p, const yk__view *gw, const yk__view *gbias,
                                   const yk__view *gout, const yk__view *x)
{
    if (algorithm_of(p, gw) == PIXELS && !joins_weights(p, gw) && !widens(p, BACKWARD_WEIGHT, x, gw) &&
        !yk__conv_small_applies(p, x, gw, gout)) {
        if (gbias)
            backward_bias(device, gbias, gout);
        return maps_run(device, p, ACCUMULATE_WEIGHT, gout, x, gw, NULL);
    }
    yk_device here = {YK_CPU, (int16_t)device};
    yk__storage *handle;
    yk__view apart = *gw;
    int64_t last = 0; /* the last element of gw, whose strides are those of a dense layout */
    for (int d = 0; d < 4; d++)
        last += (gw->shape[d] - 1) * gw->stride[d];
    apart.data = yk__workspace_get(here, (size_t)(last + 1) * yk_dtype_size((yk_dtype)gw->dtype), &handle);
    yk_status status = apart.data ? backward_weight(device, p, &apart, gbias, gout, x) : yk__error_code();
    if (!status)
        status = yk__backend_of(here)->binary(device, YK__ADD, gw, gw, &apart, 1);
    if (handle)
        yk__storage_release(handle);
    return status;
}

/* A bf16 view's numbers in f32: dense, its dimensions in the same order in memory. */
struct wide {
    yk__view view;
    yk__storage *handle;
};

static yk_status widen(int device, const yk__view *v, bool filled, struct wide *wide)
{
    wide->view = *v;
    wide->view.dtype = YK_F32;
    int64_t step = 1;
    for (unsigned done = 0; done != (1u << v->ndim) - 1;) {
        int next = -1;
        for (int d = v->ndim - 1; d >= 0; d--)
            if (!(done & 1u << d) && (next < 0 || v->stride[d] < v->stride[next]))
                next = d;
        done |= 1u << next;
        wide->view.stride[next] = step;
        step *= v->shape[next];
    }
    wide->view.data =
        yk__workspace_get((yk_device){YK_CPU, (int16_t)device}, (size_t)(step + 1) * sizeof(float), &wide->handle);
    if (!wide->view.data)
        return yk__error_code();
    return filled ? yk__backend_of((yk_device){YK_CPU, (int16_t)device})->copy(device, &wide->view, v) : YK_OK;
}

/* Computes a call of bf16 in f32; bias is its gradient in BACKWARD_WEIGHT. */
static yk_status in_f32(int device, const yk__conv2d *p, enum direction direction, const yk__view *out,
                        const yk__view *x, const yk__view *w, const yk__view *bias)
{
    const yk__view *views[4] = {out, x, w, bias};
    /* The result of each direction, and the second one. */
    static const bool results[3][4] = {{true}, {false, true}, {false, false, true, true}};
    struct wide wide[4] = {{.handle = NULL}};
    yk_status status = YK_OK;
    for (int i = 0; i < 4 && !status; i++)
        if (views[i])
            status = widen(device, views[i], !results[direction][i], &wide[i]);
    const yk__view *wide_bias = bias ? &wide[3].view : NULL;
    if (!status)
        status = direction == FORWARD ? forward(device, p, &wide[0].view, &wide[1].view, &wide[2].view, wide_bias)
                 : direction == BACKWARD_INPUT
                     ? backward_input(device, p, &wide[1].view, &wide[0].view, &wide[2].view)
                     : backward_weight(device, p, &wide[2].view, wide_bias, &wide[0].view, &wide[1].view);
    for (int i = 0; i < 4; i++) {
        if (!status && views[i] && results[direction][i])
            status = yk__backend_of((yk_device){YK_CPU, (int16_t)device})->copy(device, views[i], &wide[i].view);
        if (wide[i].handle)
            yk__storage_release(wide[i].handle);
    }
    return status;
}

void YK__ISA_NAME(yk__cpu_fill_conv)(yk__backend *table)
{
    if (yk__gemm_bf16_there())
        table->takes[YK__SLOT_conv2d] |= 1 << YK_BF16;
    table->conv2d_layout = layout;
    table->conv2d_weight_layout = weight_layout;
    table->conv2d = forward_slot;
    table->conv2d_backward_input = backward_input;
    table->conv2d_backward_weight = backward_weight;
    table->conv2d_accumulate_weight = accumulate_weight;
}
