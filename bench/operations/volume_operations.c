/*
 * volume_operations.c - the convolutions and pools of `operation_times` along one dimension and three, transposed
 * convolutions, and pools to a size or with indices. Layer: bench.
 *
 * stride=, padding= and kernel= are of every dimension.
 */
#include <math.h>

#include "base/core.h"
#include "bench/operations/operations.h"

/* ---- convolutions: x (N,C,...), w (O,C/groups,...), or transposed (C,O/groups,...) ---- */

static yk_status prepare_weight(ops_subject *s)
{
    yk_tensor *w = s->in[1];
    s->in[1] = yk_mul_scalar(w, 1 / sqrt((double)yk_numel(w) / (double)yk_size(w, 0)));
    if (ops_whole(s, "bias", 0))
        s->in[2] = yk_randn(YK_SHAPE(yk_size(w, 0)), NULL);
    return yk__error_code();
}

static yk_conv_options conv_options(const ops_subject *s)
{
    int64_t stride = ops_whole(s, "stride", 1), padding = ops_whole(s, "padding", 0),
            dilation = ops_whole(s, "dilation", 1);
    return *YK_OPTIONS(yk_conv_options, .stride = {stride, stride, stride}, .padding = {padding, padding, padding},
                       .dilation = {dilation, dilation, dilation}, .groups = ops_whole(s, "groups", 1));
}

#define CONVOLUTION(name)                                                                                              \
    static yk_tensor *name(ops_subject *s)                                                                             \
    {                                                                                                                  \
        yk_conv_options o = conv_options(s);                                                                           \
        return yk_##name(s->in[0], s->in[1], s->in[2], &o);                                                            \
    }
CONVOLUTION(conv1d)
CONVOLUTION(conv3d)
CONVOLUTION(conv_transpose1d)
CONVOLUTION(conv_transpose2d)
CONVOLUTION(conv_transpose3d)

/* ---- pools ---- */

static yk_pool_options pool_options(const ops_subject *s)
{
    int64_t kernel = ops_whole(s, "kernel", 2), stride = ops_whole(s, "stride", kernel),
            padding = ops_whole(s, "padding", 0);
    return *YK_OPTIONS(yk_pool_options, .kernel = {kernel, kernel, kernel}, .stride = {stride, stride, stride},
                       .padding = {padding, padding, padding});
}

#define POOL(name, call)                                                                                               \
    static yk_tensor *name(ops_subject *s)                                                                             \
    {                                                                                                                  \
        yk_tensor *x = s->in[0];                                                                                       \
        yk_pool_options o = pool_options(s);                                                                           \
        return call;                                                                                                   \
    }
POOL(max_pool1d, yk_max_pool1d(x, &o))
POOL(max_pool3d, yk_max_pool3d(x, &o))
POOL(avg_pool1d, yk_avg_pool1d(x, &o))
POOL(avg_pool3d, yk_avg_pool3d(x, &o))
POOL(lp_pool1d, yk_lp_pool1d(x, 2, &o))
POOL(lp_pool3d, yk_lp_pool3d(x, 2, &o))

static yk_tensor *max_pool1d_with_indices(ops_subject *s)
{
    yk_tensor *indices;
    yk_pool_options o = pool_options(s);
    return yk_max_pool1d_with_indices(s->in[0], &o, &indices);
}

static yk_tensor *max_pool3d_with_indices(ops_subject *s)
{
    yk_tensor *indices;
    yk_pool_options o = pool_options(s);
    return yk_max_pool3d_with_indices(s->in[0], &o, &indices);
}

static yk_tensor *max_pool2d_with_indices(ops_subject *s)
{
    yk_tensor *indices;
    int64_t kernel = ops_whole(s, "kernel", 2);
    return yk_max_pool2d_with_indices(s->in[0], YK_OPTIONS(yk_pool2d_options, .kernel = {kernel, kernel}), &indices);
}

/* The windows of 2 are half as many as the input's elements; samples are drawn in each run. */
#define FRACTIONAL YK_OPTIONS(yk_fractional_max_pool_options, .kernel = {2, 2, 2}, .output_ratio = {0.5, 0.5, 0.5})
static yk_tensor *fractional_max_pool2d(ops_subject *s)
{
    return yk_fractional_max_pool2d(s->in[0], FRACTIONAL);
}

static yk_tensor *fractional_max_pool3d(ops_subject *s)
{
    return yk_fractional_max_pool3d(s->in[0], FRACTIONAL);
}

static yk_tensor *fractional_max_pool2d_with_indices(ops_subject *s)
{
    yk_tensor *indices;
    return yk_fractional_max_pool2d_with_indices(s->in[0], FRACTIONAL, &indices);
}

static yk_tensor *fractional_max_pool3d_with_indices(ops_subject *s)
{
    yk_tensor *indices;
    return yk_fractional_max_pool3d_with_indices(s->in[0], FRACTIONAL, &indices);
}

#define TO_SIZE(name, ...)                                                                                             \
    static yk_tensor *name(ops_subject *s)                                                                             \
    {                                                                                                                  \
        int64_t size = ops_whole(s, "size", 1);                                                                        \
        return yk_##name(s->in[0], __VA_ARGS__);                                                                       \
    }
TO_SIZE(adaptive_avg_pool1d, size)
TO_SIZE(adaptive_avg_pool3d, size, size, size)
TO_SIZE(adaptive_max_pool1d, size)
TO_SIZE(adaptive_max_pool2d, size, size)
TO_SIZE(adaptive_max_pool3d, size, size, size)

/* The operand becomes the maxima of windows of 2, and the index where they were. */
static yk_status prepare_max_unpool1d(ops_subject *s)
{
    yk_tensor *indices;
    yk_pool_options o = pool_options(s);
    s->in[0] = yk_max_pool1d_with_indices(s->in[0], &o, &indices);
    s->index = indices;
    return yk__error_code();
}

static yk_status prepare_max_unpool3d(ops_subject *s)
{
    yk_tensor *indices;
    yk_pool_options o = pool_options(s);
    s->in[0] = yk_max_pool3d_with_indices(s->in[0], &o, &indices);
    s->index = indices;
    return yk__error_code();
}

static yk_tensor *max_unpool1d(ops_subject *s)
{
    return yk_max_unpool1d(s->in[0], s->index, YK_OPTIONS(yk_max_unpool_options, .kernel = {2}));
}

static yk_tensor *max_unpool3d(ops_subject *s)
{
    return yk_max_unpool3d(s->in[0], s->index, YK_OPTIONS(yk_max_unpool_options, .kernel = {2, 2, 2}));
}

const ops_operation ops_volume_operations[] = {
    {.name = "conv1d", conv1d, prepare_weight},
    {.name = "conv3d", conv3d, prepare_weight},
    {.name = "conv_transpose1d", conv_transpose1d, prepare_weight},
    {.name = "conv_transpose2d", conv_transpose2d, prepare_weight},
    {.name = "conv_transpose3d", conv_transpose3d, prepare_weight},
    {.name = "max_pool1d", max_pool1d},
    {.name = "max_pool3d", max_pool3d},
    {.name = "avg_pool1d", avg_pool1d},
    {.name = "avg_pool3d", avg_pool3d},
    {.name = "lp_pool1d", lp_pool1d},
    {.name = "lp_pool3d", lp_pool3d},
    {.name = "max_pool1d_with_indices", max_pool1d_with_indices},
    {.name = "max_pool2d_with_indices", max_pool2d_with_indices},
    {.name = "max_pool3d_with_indices", max_pool3d_with_indices},
    {.name = "adaptive_avg_pool1d", adaptive_avg_pool1d},
    {.name = "adaptive_avg_pool3d", adaptive_avg_pool3d},
    {.name = "adaptive_max_pool1d", adaptive_max_pool1d},
    {.name = "adaptive_max_pool2d", adaptive_max_pool2d},
    {.name = "adaptive_max_pool3d", adaptive_max_pool3d},
    {.name = "fractional_max_pool2d", fractional_max_pool2d},
    {.name = "fractional_max_pool3d", fractional_max_pool3d},
    {.name = "fractional_max_pool2d_with_indices", fractional_max_pool2d_with_indices},
    {.name = "fractional_max_pool3d_with_indices", fractional_max_pool3d_with_indices},
    {.name = "max_unpool1d", max_unpool1d, prepare_max_unpool1d},
    {.name = "max_unpool3d", max_unpool3d, prepare_max_unpool3d},
};
const int ops_volume_operation_count = sizeof(ops_volume_operations) / sizeof(*ops_volume_operations);
