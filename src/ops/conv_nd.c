/*
 * conv_nd.c - convolutions along one and three dimensions, transposed ones, and the checks of all. Layer: ops.
 *
 * All are made of the two-dimensional one (conv_ops.c). One dimension is two with a height of 1. Of three, the kernel's
 * places along the depth become channels: with KD of them, x (N,C,D,H,W) is copied to (N OD, C KD, H, W) and the weight
 * seen as (O, C/groups KD, KH, KW), so that one product does it and x is in memory KD times, not KD KH KW times. A
 * transposed convolution is the gradient of a convolution's input, along the depth the sum of windows.
 */
#include "ops/conv.h"
#include "ops/windows.h"

/* ---- checks ---- */

static const char *axis_name(const yk__conv *c, int i)
{
    static const char *const name[3] = {"depth", "height", "width"};
    return c->axes == 1 ? "length" : name[3 - c->axes + i];
}

static bool axis_fails(const yk__conv *c, int i)
{
    if (c->padding[i] == YK_PADDING_SAME)
        yk__fail(YK_ERR_ARGUMENT, "%s: padding \"same\" and stride %lld of the %s do not go together", c->name,
                 (long long)c->stride[i], axis_name(c, i));
    else
        yk__fail(YK_ERR_ARGUMENT, "%s: stride %lld, padding %lld, dilation %lld of the %s is not possible", c->name,
                 (long long)c->stride[i], (long long)c->padding[i], (long long)c->dilation[i], axis_name(c, i));
    return false;
}

/* The numbers that need no shape. */
static bool numbers_check(const yk__conv *c)
{
    for (int i = 0; i < c->axes; i++) {
        bool same = c->padding[i] == YK_PADDING_SAME;
        if (c->stride[i] < 1 || c->dilation[i] < 1 || (!same && c->padding[i] < 0) ||
            (same && (c->transposed || c->stride[i] != 1)))
            return axis_fails(c, i);
        if (c->output_padding[i] &&
            (!c->transposed || c->output_padding[i] < 0 ||
             (c->output_padding[i] >= c->stride[i] && c->output_padding[i] >= c->dilation[i]))) {
            yk__fail(YK_ERR_ARGUMENT,
                     c->transposed
                         ? "%s: output_padding %lld of the %s, expected at least 0 and below its stride or dilation"
                         : "%s: output_padding %lld of the %s is for transposed convolutions",
                     c->name, (long long)c->output_padding[i], axis_name(c, i));
            return false;
        }
    }
    if (c->groups < 1)
        yk__fail(YK_ERR_ARGUMENT, "%s: groups %lld, expected at least 1", c->name, (long long)c->groups);
    return c->groups >= 1;
}

static bool channels_check(const yk__conv *c, const yk_tensor *x, const yk_tensor *w, bool unbatched)
{
    static const char *const form[4][3] = {
        {"", "", ""},
        {"(N, C, L) or (C, L)", "(O, C / groups, K)", "(C, O / groups, K)"},
        {"(N, C, H, W) or (C, H, W)", "(O, C / groups, KH, KW)", "(C, O / groups, KH, KW)"},
        {"(N, C, D, H, W) or (C, D, H, W)", "(O, C / groups, KD, KH, KW)", "(C, O / groups, KD, KH, KW)"}};
    char tx[200], tw[200];
    if ((x->ndim != c->axes + 2 && !unbatched) || w->ndim != c->axes + 2) {
        yk__fail(YK_ERR_SHAPE, "%s: input %s and weight %s, expected %s and %s", c->name,
                 yk_shape_format(x, tx, sizeof(tx)), yk_shape_format(w, tw, sizeof(tw)), form[c->axes][0],
                 form[c->axes][1 + c->transposed]);
        return false;
    }
    int64_t channels = w->shape[0], has = x->shape[unbatched ? 0 : 1];
    if ((!c->transposed && __builtin_mul_overflow(w->shape[1], c->groups, &channels)) || has != channels) {
        yk__fail(YK_ERR_SHAPE, "%s: input has %lld channels but weight %s expects %lld (groups %lld)", c->name,
                 (long long)has, yk_shape_format(w, tw, sizeof(tw)), (long long)channels, (long long)c->groups);
        return false;
    }
    if (w->shape[0] % c->groups) {
        yk__fail(YK_ERR_SHAPE, "%s: the %lld %s channels of weight %s do not divide into %lld groups", c->name,
                 (long long)w->shape[0], c->transposed ? "input" : "output", yk_shape_format(w, tw, sizeof(tw)),
                 (long long)c->groups);
        return false;
    }
    return true;
}

/* The size of the result along an axis, and what YK_PADDING_SAME is there. */
static bool axis_check(yk__conv *c, int i, const yk_tensor *x, const yk_tensor *w, int64_t *out)
{
    char tx[200], tw[200];
    int64_t size = x->shape[x->ndim - c->axes + i], kernel = w->shape[2 + i], padded, reach, least = 0;
    bool same = c->padding[i] == YK_PADDING_SAME;
    if (!yk__window(size, kernel, c->stride[i], same ? 0 : c->padding[i], c->dilation[i], &reach, &padded))
        return axis_fails(c, i);
    if (same && kernel > 0) {
        c->padding[i] = (reach - 1) / 2;
        c->more[i] = (reach - 1) % 2;
        padded = size + reach - 1;
    }
    bool fits = kernel >= 1 && (c->transposed || reach <= padded);
    if (fits && c->transposed) {
        fits = size >= 1 && !__builtin_mul_overflow(size - 1, c->stride[i], &least);
        *out = fits ? least + reach + c->output_padding[i] - 2 * c->padding[i] : 0;
        if (!fits || *out < 1) {
            yk__fail(YK_ERR_SHAPE,
                     "%s: input %s and weight %s with stride %lld, padding %lld, dilation %lld leave nothing of the %s",
                     c->name, yk_shape_format(x, tx, sizeof(tx)), yk_shape_format(w, tw, sizeof(tw)),
                     (long long)c->stride[i], (long long)c->padding[i], (long long)c->dilation[i], axis_name(c, i));
            return false;
        }
        return true;
    }
    if (!fits) {
        yk__fail(YK_ERR_SHAPE,
                 "%s: weight %s with dilation %lld covers %lld of the %s, but input %s with padding %lld has %lld",
                 c->name, yk_shape_format(w, tw, sizeof(tw)), (long long)c->dilation[i], (long long)reach,
                 axis_name(c, i), yk_shape_format(x, tx, sizeof(tx)), (long long)c->padding[i], (long long)padded);
        return false;
    }
    *out = (padded - reach) / c->stride[i] + 1;
    return true;
}

bool yk__conv_check(yk__conv *c, const yk_tensor *x, const yk_tensor *w, const yk_tensor *bias, bool *unbatched,
                    int64_t sizes[3])
{
    char tx[200], tw[200];
    *unbatched = x->ndim == c->axes + 1;
    if (!numbers_check(c) || !channels_check(c, x, w, *unbatched))
        return false;
    int64_t features = c->transposed ? w->shape[1] : w->shape[0], count;
    bool counts = !__builtin_mul_overflow(features, c->transposed ? c->groups : 1, &features);
    count = features > 0 ? features : 1; /* the backend multiplies sizes when it chooses strides */
    if (!*unbatched && x->shape[0] > 0)
        counts = counts && !__builtin_mul_overflow(count, x->shape[0], &count);
    for (int i = 0; i < c->axes; i++) {
        if (!axis_check(c, i, x, w, &sizes[i]))
            return false;
        counts = counts && !__builtin_mul_overflow(count, sizes[i] > 0 ? sizes[i] : 1, &count);
    }
    if (!counts) {
        yk__fail(YK_ERR_SHAPE, "%s: the output of input %s and weight %s would have more elements than can be counted",
                 c->name, yk_shape_format(x, tx, sizeof(tx)), yk_shape_format(w, tw, sizeof(tw)));
        return false;
    }
    yk_dtype dtype = (yk_dtype)x->dtype;
    return !yk__expect_floating(c->name, "input", x) && !yk__expect_input(c->name, x, w, bias) &&
           !yk__expect_dtype(c->name, "weight", w, dtype) && !yk__expect_dtype(c->name, "bias", bias, dtype) &&
           !yk__expect_vector(c->name, "bias", bias, features, "output channel");
}

/* ---- of batches ---- */

yk_tensor *yk__conv_padded(const yk__conv *c, yk_tensor *x)
{
    int64_t pad[6] = {0};
    bool any = false;
    for (int i = 0; i < c->axes; i++) { /* pad counts from the last dimension on */
        pad[2 * (c->axes - 1 - i) + 1] = c->more[i];
        any = any || c->more[i];
    }
    return any ? yk_pad(x, pad, 2 * c->axes, YK_PAD_CONSTANT, 0) : x;
}

/* A tensor, which may be NULL for an earlier error, with the dimensions of these sizes. */
static yk_tensor *shaped(yk_tensor *x, int ndim, const int64_t *shape)
{
    return x ? yk_reshape(x, ndim, shape) : NULL;
}

/* The numbers of the last two axes, the first of which is a height of 1 where there is one axis. */
static yk_conv2d_options plane_options(const yk__conv *c)
{
    yk_conv2d_options o = *YK_OPTIONS(yk_conv2d_options, .groups = c->groups);
    for (int i = c->axes == 1 ? 1 : 0; i < 2; i++) {
        int from = c->axes - 2 + i;
        o.stride[i] = c->stride[from];
        o.padding[i] = c->padding[from];
        o.dilation[i] = c->dilation[from];
    }
    return o;
}

static yk_tensor *conv1d(const yk__conv *c, yk_tensor *x, yk_tensor *w, yk_tensor *bias)
{
    yk_conv2d_options o = plane_options(c);
    yk_tensor *out = yk_conv2d(yk_unsqueeze(x, 2), yk_unsqueeze(w, 2), bias, &o);
    return out ? yk_squeeze(out, 2) : NULL;
}

/* The weight (A, B, KD, KH, KW) as one of (A, B KD, KH, KW). */
static yk_tensor *weight_of_planes(yk_tensor *w)
{
    return yk_reshape(w, 4, (int64_t[4]){w->shape[0], w->shape[1] * w->shape[2], w->shape[3], w->shape[4]});
}

static yk__windows depth_windows(const yk__conv *c, int first, const yk_tensor *w)
{
    return (yk__windows){
        .first = first, .axes = 1, .kernel = {w->shape[2]}, .stride = {c->stride[0]}, .dilation = {c->dilation[0]}};
}

static yk_tensor *conv3d(const yk__conv *c, yk_tensor *x, yk_tensor *w, yk_tensor *bias, const int64_t sizes[3])
{
    int64_t n = x->shape[0], channels = x->shape[1], h = x->shape[3], width = x->shape[4];
    yk_conv2d_options o = plane_options(c);
    yk__windows windows = depth_windows(c, 2, w);
    if (c->padding[0])
        x = yk_pad(x, (int64_t[6]){0, 0, 0, 0, c->padding[0], c->padding[0]}, 6, YK_PAD_CONSTANT, 0);
    x = yk__unfold_windows(x, &windows); /* (N, C, OD, H, W, KD) */
    x = x ? yk_permute(x, (int[6]){0, 2, 1, 5, 3, 4}) : NULL;
    x = shaped(x, 4, (int64_t[4]){n * sizes[0], channels * w->shape[2], h, width});
    yk_tensor *out = x ? yk_conv2d(x, weight_of_planes(w), bias, &o) : NULL;
    out = shaped(out, 5, (int64_t[5]){n, sizes[0], w->shape[0], sizes[1], sizes[2]});
    return out ? yk_permute(out, (int[5]){0, 2, 1, 3, 4}) : NULL;
}

/* The transposed convolution of two axes, without bias, to a result of these sizes. */
static yk_tensor *transposed2d(const yk__conv *c, yk_tensor *x, yk_tensor *w, const int64_t sizes[2])
{
    if (!x || !w)
        return NULL;
    yk__conv2d p = {.groups = c->groups};
    int64_t shape[4] = {x->shape[0], w->shape[1] * c->groups}, pad[4];
    bool more = false; /* an output padding of a stride and above, which no convolution's input has */
    for (int i = 0; i < 2; i++)
        more = more || c->output_padding[i] >= c->stride[i];
    for (int i = 0; i < 2; i++) {
        p.stride[i] = c->stride[i];
        p.dilation[i] = c->dilation[i];
        p.padding[i] = more ? 0 : c->padding[i];
        shape[2 + i] = more ? sizes[i] + 2 * c->padding[i] - c->output_padding[i] : sizes[i];
        pad[2 * (1 - i)] = -c->padding[i];
        pad[2 * (1 - i) + 1] = c->output_padding[i] - c->padding[i];
    }
    yk_tensor *out = yk__conv2d_transposed(&p, x, w, shape);
    return out && more ? yk_pad(out, pad, 4, YK_PAD_CONSTANT, 0) : out;
}

/* The part of c that its last two axes are. */
static yk__conv planes_of(const yk__conv *c)
{
    yk__conv p = {
        .name = c->name, .axes = 2, .transposed = true, .groups = c->groups, .stride = {1, 1}, .dilation = {1, 1}};
    for (int i = c->axes == 1 ? 1 : 0; i < 2; i++) {
        int from = c->axes - 2 + i;
        p.stride[i] = c->stride[from];
        p.padding[i] = c->padding[from];
        p.dilation[i] = c->dilation[from];
        p.output_padding[i] = c->output_padding[from];
    }
    return p;
}

static yk_tensor *transposed3d(const yk__conv *c, yk_tensor *x, yk_tensor *w, const int64_t sizes[3])
{
    int64_t n = x->shape[0], depth = x->shape[2], features = w->shape[1] * c->groups;
    yk__conv p = planes_of(c);
    yk__windows windows = depth_windows(c, 1, w);
    int64_t full = sizes[0] + 2 * c->padding[0] - c->output_padding[0];
    x = yk_permute(x, (int[5]){0, 2, 1, 3, 4});
    x = shaped(x, 4, (int64_t[4]){n * depth, w->shape[0], x ? x->shape[3] : 0, x ? x->shape[4] : 0});
    yk_tensor *out = transposed2d(&p, x, weight_of_planes(w), sizes + 1); /* (N D, O KD, OH, OW) */
    out = shaped(out, 6, (int64_t[6]){n, depth, features, w->shape[2], sizes[1], sizes[2]});
    out = out ? yk_permute(out, (int[6]){0, 1, 2, 4, 5, 3}) : NULL;
    out = yk__fold_windows(out, &windows, &full); /* (N, OD, O, OH, OW) */
    out = out ? yk_permute(out, (int[5]){0, 2, 1, 3, 4}) : NULL;
    if (!out || (!c->padding[0] && !c->output_padding[0]))
        return out;
    int64_t pad[6] = {0, 0, 0, 0, -c->padding[0], c->output_padding[0] - c->padding[0]};
    return yk_pad(out, pad, 6, YK_PAD_CONSTANT, 0);
}

static yk_tensor *transposed(const yk__conv *c, yk_tensor *x, yk_tensor *w, yk_tensor *bias, const int64_t sizes[3])
{
    yk_tensor *out;
    if (c->axes == 1) {
        yk__conv p = planes_of(c);
        out = transposed2d(&p, yk_unsqueeze(x, 2), yk_unsqueeze(w, 2), (int64_t[2]){1, sizes[0]});
        out = out ? yk_squeeze(out, 2) : NULL;
    } else {
        out = c->axes == 2 ? transposed2d(c, x, w, sizes) : transposed3d(c, x, w, sizes);
    }
    int64_t over[5] = {1, -1, 1, 1, 1};
    return out && bias ? yk_add(out, yk_reshape(bias, c->axes + 2, over)) : out;
}

static yk_tensor *convolution(const yk__conv *c, yk_tensor *x, yk_tensor *w, yk_tensor *bias, bool unbatched,
                              const int64_t sizes[3])
{
    yk_tensor *in = yk__conv_padded(c, unbatched ? yk_unsqueeze(x, 0) : x), *out = NULL;
    if (in)
        out = c->transposed  ? transposed(c, in, w, bias, sizes)
              : c->axes == 1 ? conv1d(c, in, w, bias)
                             : conv3d(c, in, w, bias, sizes);
    return out && unbatched ? yk_squeeze(out, 0) : out;
}

/* ---- the operations ---- */

static yk_tensor *convolve(yk__conv c, yk_tensor *x, yk_tensor *w, yk_tensor *bias, const yk_conv_options *options)
{
    yk_conv_options o;
    bool unbatched;
    int64_t sizes[3];
    if (YK__OPTIONS_TAKE(c.name, yk_conv_options, options, &o))
        return NULL;
    c.groups = o.groups;
    for (int i = 0; i < c.axes; i++) {
        c.stride[i] = o.stride[i];
        c.padding[i] = o.padding[i];
        c.dilation[i] = o.dilation[i];
        c.output_padding[i] = o.output_padding[i];
    }
    if (!yk__op_begin(c.name, 3, (yk_tensor *[]){x, w, bias}, 1u << 2) ||
        !yk__conv_check(&c, x, w, bias, &unbatched, sizes))
        return NULL;
    YK__WITHIN_SCOPE(convolution(&c, x, w, bias, unbatched, sizes));
}

#define CONVOLUTION(label, n, is_transposed)                                                                           \
    yk_tensor *yk_##label(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, const yk_conv_options *options)            \
    {                                                                                                                  \
        yk_tensor *inputs[3] = {x, weight, bias};                                                                      \
        YK__AUTOCAST(label, 3, inputs, yk_##label(inputs[0], inputs[1], inputs[2], options));                          \
        YK__EVENT(YK__EVENT_OPERATION, #label);                                                                        \
        return convolve((yk__conv){.name = #label, .axes = (n), .transposed = (is_transposed)}, x, weight, bias,       \
                        options);                                                                                      \
    }
CONVOLUTION(conv1d, 1, false)
CONVOLUTION(conv3d, 3, false)
CONVOLUTION(conv_transpose1d, 1, true)
CONVOLUTION(conv_transpose2d, 2, true)
CONVOLUTION(conv_transpose3d, 3, true)
