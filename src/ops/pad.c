/*
 * pad.c - a tensor with a border: of one value, reflected, replicated, or around in a circle. Layer: ops.
 *
 * Of one value it is an operation whose gradient is a part of the gradient; in the other modes each dimension reads
 * elements by an index, the last two in one pass where the device has a kernel for that. Negative numbers cut off.
 */
#include <stdlib.h>

#include "ops/taps.h"

typedef struct border {
    int64_t before[YK_MAX_DIMS], shape[YK_MAX_DIMS]; /* shape: of x */
    double value;
} border;

static void border_describe(const void *context, yk__attributes *to)
{
    const border *b = context;
    yk__attribute_list(to, "before", YK_MAX_DIMS, b->before);
    yk__attribute_real(to, "value", b->value);
}

/* The part of a padded tensor that x is. One reference. */
static yk_tensor *inner_of(yk_tensor *out, const border *b)
{
    int64_t offset = 0;
    for (int d = 0; d < out->ndim; d++)
        offset += b->shape[d] ? b->before[d] * out->stride[d] : 0;
    return yk__tensor_view(out, out->ndim, b->shape, out->stride, offset);
}

static yk_status border_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = inner_of(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

static void border_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const border *b = yk__context(node);
    yk_tensor *g = gouts[0];
    for (int d = 0; d < gouts[0]->ndim; d++)
        g = yk_narrow(g, d, b->before[d], b->shape[d]);
    grads[0] = g;
}

/* x with a border of one value; after[] are sizes of at least 0, as those in b. */
static yk_tensor *bordered(yk_tensor *x, const border *b, const int64_t *after)
{
    static const yk__op op = {
        .name = "pad", .backward = border_backward, .recorded = border_recorded, .describe = border_describe};
    int64_t shape[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++)
        shape[d] = x->shape[d] + b->before[d] + after[d];
    if (yk__tensor_check("pad", x->ndim, shape, NULL) || yk__check_value("pad", (yk_dtype)x->dtype, b->value))
        return NULL;
    yk_tensor *out = yk__tensor_new(x->ndim, shape, NULL, (yk_dtype)x->dtype, yk__device_of(x));
    yk_tensor *inner = out && !yk__raw_fill(out, b->value) ? inner_of(out, b) : NULL;
    if (out)
        out = yk__tensor_if_ok(out, inner ? yk__raw_copy(inner, x) : yk__status_of(NULL));
    yk_tensor_release(inner);
    return yk__record(out, &op, 1, &x, 0, NULL, b, sizeof(*b));
}

/* The element that position i, from -before on, of a padded line of `size` shows. */
static int64_t shown(yk_pad_mode mode, int64_t i, int64_t size)
{
    if (mode == YK_PAD_REPLICATE)
        return i < 0 ? 0 : i >= size ? size - 1 : i;
    if (mode == YK_PAD_CIRCULAR)
        return i < 0 ? i + size : i >= size ? i - size : i;
    return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
}

/* x with a border of its own elements along one dimension. */
static yk_tensor *repeated(yk_tensor *x, int dim, int64_t before, int64_t after, yk_pad_mode mode)
{
    int64_t size = x->shape[dim], count = size + before + after;
    int64_t *sources = yk__calloc((size_t)count, sizeof(*sources));
    for (int64_t i = 0; sources && i < count; i++)
        sources[i] = shown(mode, i - before, size);
    yk_tensor *index = NULL;
    if (sources)
        index = yk_from_data(sources, 1, &count,
                             YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(x)));
    free(sources);
    return index ? yk_index_select(x, dim, index) : NULL;
}

/* Borders of planes (P,H,W), of rows and of columns; back: the gradient, from planes of the result's size. */
typedef struct frame {
    yk_pad_mode mode;
    int64_t size[2], before[2], after[2];
    bool back;
} frame;

/* The planes of x with borders, or without; one reference. */
static yk_tensor *frame_run(yk_tensor *x, const frame *f)
{
    yk__taps t[2];
    void *blocks[2] = {NULL, NULL};
    bool made = true;
    for (int d = 0; d < 2 && made; d++) {
        int64_t count = f->size[d] + f->before[d] + f->after[d];
        if (count == f->size[d])
            continue;
        int64_t *sources = yk__calloc((size_t)count, sizeof(*sources));
        for (int64_t i = 0; sources && i < count; i++)
            sources[i] = shown(f->mode, i - f->before[d], f->size[d]);
        made = sources && yk__taps_make(&t[d], f->size[d], count, 1, &sources, NULL, f->back, &blocks[d]);
        free(sources);
    }
    yk_tensor *out = made ? yk__tapped_planes(x, blocks[0] ? &t[0] : NULL, blocks[1] ? &t[1] : NULL) : NULL;
    free(blocks[0]);
    free(blocks[1]);
    return out;
}

static yk_tensor *framed(yk_tensor *x, const frame *f);

static yk_status frame_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    frame f = *(const frame *)yk__context(node);
    f.back = !f.back;
    grads[0] = frame_run(gout, &f);
    return yk__status_of(grads[0]);
}

static void frame_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    frame f = *(const frame *)yk__context(node);
    f.back = !f.back;
    grads[0] = framed(gouts[0], &f);
}

static yk_tensor *framed(yk_tensor *x, const frame *f)
{
    static const yk__op op = {.name = "pad", .backward = frame_backward, .recorded = frame_recorded};
    return x ? yk__record(frame_run(x, f), &op, 1, &x, 0, NULL, f, sizeof(*f)) : NULL;
}

/* x with its own elements around its last two dimensions, of which the first may be none of x's (ndim 1), by the
 * kernel; NULL without an error where that is not for x. */
static yk_tensor *framed_by_kernel(yk_tensor *x, const int64_t add[2][2], yk_pad_mode mode)
{
    const int last = x->ndim - 1;
    const int64_t height = last ? x->shape[last - 1] : 1, width = x->shape[last], most = 1 << 24;
    frame f = {
        .mode = mode, .size = {height, width}, .before = {add[0][0], add[1][0]}, .after = {add[0][1], add[1][1]}};
    const int64_t rows = height + f.before[0] + f.after[0], columns = width + f.before[1] + f.after[1];
    if (!yk__taps_apply(x) || (x->dtype != YK_F32 && x->dtype != YK_F64) || rows > most || columns > most)
        return NULL;
    int64_t shape[YK_MAX_DIMS];
    memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)x->ndim);
    shape[last] = columns;
    if (last)
        shape[last - 1] = rows;
    if (yk__tensor_check("pad", x->ndim, shape, NULL))
        return NULL;
    yk_tensor *planes = yk_reshape(x, 3, (int64_t[3]){x->numel / (height * width), height, width});
    planes = framed(planes, &f);
    return planes ? yk_reshape(planes, x->ndim, shape) : NULL;
}

/* Fails where a border is wider than the mode has elements for. */
static bool width_check(const yk_tensor *x, int dim, int64_t width, yk_pad_mode mode)
{
    static const char *const name[] = {"constant", "reflect", "replicate", "circular"};
    int64_t size = x->shape[dim], most = mode == YK_PAD_REFLECT ? size - 1 : mode == YK_PAD_CIRCULAR ? size : INT64_MAX;
    if (width <= 0 || (size > 0 && width <= most))
        return true;
    char text[200];
    yk__fail(YK_ERR_SHAPE, "pad: a border of %lld at dimension %d of %s; in mode %s it is at most %lld",
             (long long)width, dim, yk_shape_format(x, text, sizeof(text)), name[mode],
             (long long)(size > 0 ? most : 0));
    return false;
}

static yk_tensor *padded(yk_tensor *x, const int64_t *pad, int n, yk_pad_mode mode, double value)
{
    border b = {.before = {0}, .value = value};
    int64_t after[YK_MAX_DIMS] = {0};
    bool wider = false;
    int64_t frames[2][2] = {{0, 0}, {0, 0}}; /* of the last but one dimension, and of the last */
    for (int i = 0; i < 2 && i < n / 2 && mode != YK_PAD_CONSTANT; i++)
        for (int end = 0; end < 2; end++)
            frames[1 - i][end] = pad[2 * i + end] > 0 ? pad[2 * i + end] : 0;
    yk_tensor *whole = x;
    if (frames[0][0] || frames[0][1] || frames[1][0] || frames[1][1])
        whole = framed_by_kernel(x, frames, mode);
    if (!whole && yk__error_code())
        return NULL;
    bool by_index = !whole, fresh = whole && whole != x;
    x = whole ? whole : x;
    for (int i = 0; i < n / 2 && x; i++) { /* from the last dimension on */
        int dim = x->ndim - 1 - i;
        int64_t cut[2] = {pad[2 * i] < 0 ? -pad[2 * i] : 0, pad[2 * i + 1] < 0 ? -pad[2 * i + 1] : 0};
        int64_t add[2] = {pad[2 * i] > 0 ? pad[2 * i] : 0, pad[2 * i + 1] > 0 ? pad[2 * i + 1] : 0};
        if (mode != YK_PAD_CONSTANT && (add[0] || add[1]) && (by_index || i >= 2)) {
            x = repeated(x, dim, add[0], add[1], mode);
            fresh = true;
        }
        if (x && (cut[0] || cut[1])) {
            x = yk_narrow(x, dim, cut[0], x->shape[dim] - cut[0] - cut[1]);
            fresh = false;
        }
        b.before[dim] = mode == YK_PAD_CONSTANT ? add[0] : 0;
        after[dim] = mode == YK_PAD_CONSTANT ? add[1] : 0;
        wider = wider || b.before[dim] || after[dim];
    }
    if (!x || !wider)
        return x && !fresh ? yk_clone(x) : x;
    memcpy(b.shape, x->shape, sizeof(b.shape[0]) * (size_t)x->ndim);
    return bordered(x, &b, after);
}

yk_tensor *yk_pad(yk_tensor *x, const int64_t *pad, int n, yk_pad_mode mode, double value)
{
    char text[200];
    const int64_t most = INT32_MAX;
    YK__EVENT(YK__EVENT_OPERATION, "pad");
    if (!yk__op_begin("pad", 1, &x, 0) || (n > 0 && !yk__is_there("pad", "array of widths", pad)))
        return NULL;
    if (n < 0 || n % 2 || n / 2 > x->ndim) {
        yk__fail(YK_ERR_ARGUMENT, "pad: %d widths for %s, expected two for each of its last dimensions", n,
                 yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    if ((unsigned)mode > YK_PAD_CIRCULAR) {
        yk__fail(YK_ERR_ARGUMENT, "pad: mode %d is none of constant, reflect, replicate and circular", (int)mode);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        int dim = x->ndim - 1 - i / 2;
        int64_t cut = (pad[i & ~1] < 0 ? -pad[i & ~1] : 0) + (pad[i | 1] < 0 ? -pad[i | 1] : 0);
        if (pad[i] > most || pad[i] < -most || cut > x->shape[dim]) {
            yk__fail(YK_ERR_SHAPE, "pad: widths %lld and %lld at dimension %d of %s are not possible",
                     (long long)pad[i & ~1], (long long)pad[i | 1], dim, yk_shape_format(x, text, sizeof(text)));
            return NULL;
        }
        if (mode != YK_PAD_CONSTANT && !width_check(x, dim, pad[i], mode))
            return NULL;
    }
    YK__WITHIN_SCOPE(padded(x, pad, n, mode, value));
}
