/*
 * efficientnet.c - EfficientNet-B0, under torchvision's names. Layer: nn.
 */
#include <math.h>

#include "nn/models.h"

/* A convolution, He initialised for the gradients' sake, as in torchvision. */
static yk_module *conv_create(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups, bool bias)
{
    yk_module *m = yk__conv2d_make(in, out, kernel,
                                   YK_OPTIONS(yk_conv2d_module_options, .stride = stride, .padding = (kernel - 1) / 2,
                                              .groups = groups, .bias = bias));
    return m && !yk_init_kaiming_normal(yk_module_get(m, "weight"), 0, true) &&
                   !(bias && yk_init_constant(yk_module_get(m, "bias"), 0))
               ? m
               : NULL;
}

/* Convolution, batch norm and, if it is active, SiLU. */
static yk_module *unit_create(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups, bool active)
{
    yk_module *parts[] = {conv_create(in, out, kernel, stride, groups, false), yk_batch_norm2d_create(out, NULL),
                          active ? yk_silu_create() : NULL};
    return yk_sequential_list(parts, active ? 3 : 2);
}

/* ---- squeeze and excitation: each channel is scaled by what all channels are on average -------------------------- */

typedef struct squeeze {
    yk_module *fc1, *fc2;
} squeeze;

static yk_tensor *squeeze_forward(yk_module *m, yk_tensor *x)
{
    const squeeze *d = yk__module_data(m);
    yk_tensor *mean = yk_adaptive_avg_pool2d(x, 1, 1);
    yk_tensor *scale = yk_sigmoid(yk__forward_part(d->fc2, yk_silu(yk__forward_part(d->fc1, mean))));
    return yk_mul(x, scale);
}

static const yk_module_class squeeze_class = {
    .name = "SqueezeExcitation", .data_size = sizeof(squeeze), .forward = squeeze_forward};

static yk_module *squeeze_create(int64_t channels, int64_t squeezed)
{
    yk_module *m = yk_module_create(&squeeze_class);
    if (!m)
        return NULL;
    squeeze *d = yk_module_data(m);
    d->fc1 = yk_module_add(m, "fc1", conv_create(channels, squeezed, 1, 1, 1, true));
    d->fc2 = yk_module_add(m, "fc2", conv_create(squeezed, channels, 1, 1, 1, true));
    return yk_module_check(m);
}

/* ---- inverted residuals ------------------------------------------------------------------------------------------ */

typedef struct residual {
    yk_module *block;
    double drop; /* the probability that an image skips the block, in training */
    bool adds;
} residual;

/* x without some of its images, the others larger for it. Source: stochastic_depth(mode="row"). */
static yk_tensor *images_drop(yk_tensor *x, double p)
{
    yk_tensor *ones =
        yk_ones(4, (const int64_t[]){yk_size(x, 0), 1, 1, 1},
                YK_OPTIONS(yk_tensor_options, .dtype = yk_tensor_dtype(x), .device = yk_tensor_device(x)));
    return yk_mul(x, yk_dropout(ones, p, true));
}

static yk_tensor *residual_forward(yk_module *m, yk_tensor *x)
{
    const residual *d = yk__module_data(m);
    yk_tensor *y = yk__forward_part(d->block, x);
    if (!d->adds || !y)
        return y;
    return yk_add(m->training && d->drop > 0 ? images_drop(y, d->drop) : y, x);
}

static const yk_module_class residual_class = {
    .name = "MBConv", .data_size = sizeof(residual), .forward = residual_forward};

static yk_module *residual_create(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t expand, double drop)
{
    yk_module *m = yk_module_create(&residual_class), *parts[4];
    if (!m)
        return NULL;
    residual *d = yk_module_data(m);
    int64_t hidden = in * expand;
    int n = 0;
    if (expand != 1)
        parts[n++] = unit_create(in, hidden, 1, 1, 1, true);
    parts[n++] = unit_create(hidden, hidden, kernel, stride, hidden, true);
    parts[n++] = squeeze_create(hidden, in / 4);
    parts[n++] = unit_create(hidden, out, 1, 1, 1, false);
    d->block = yk_module_add(m, "block", yk_sequential_list(parts, n));
    d->adds = stride == 1 && in == out;
    d->drop = drop;
    return yk_module_check(m);
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

typedef struct efficientnet {
    yk_module *features, *classifier;
} efficientnet;

static yk_tensor *efficientnet_forward(yk_module *m, yk_tensor *x)
{
    const efficientnet *d = yk__module_data(m);
    x = yk_adaptive_avg_pool2d(yk__forward_part(d->features, x), 1, 1);
    return yk__forward_part(d->classifier, yk_flatten(x, 1, -1));
}

static const yk_module_class efficientnet_class = {
    .name = "EfficientNet", .data_size = sizeof(efficientnet), .forward = efficientnet_forward};

/* The last layer, initially uniform in +-1 / sqrt(out). */
static yk_module *last_create(int64_t in, int64_t out)
{
    yk_module *m = yk_linear_create(in, out, NULL);
    double bound = 1 / sqrt((double)out);
    return m && !yk_init_uniform(yk_module_get(m, "weight"), -bound, bound) &&
                   !yk_init_constant(yk_module_get(m, "bias"), 0)
               ? m
               : NULL;
}

yk_module *yk_efficientnet_b0(const yk_efficientnet_options *options)
{
    static const struct {
        int expand, kernel, stride, channels, count;
    } stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                  {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
    enum { STAGES = sizeof(stages) / sizeof(*stages), BLOCKS = 16, LAST = 1280 };
    static const char name[] = "efficientnet_b0";
    yk_efficientnet_options o;
    if (YK__OPTIONS_TAKE(name, yk_efficientnet_options, options, &o))
        return NULL;
    int64_t channels = yk__model_number(name, "in_channels", o.in_channels, 1), in = 32;
    int64_t classes = yk__model_number(name, "num_classes", o.num_classes, 1);
    if (channels < 0 || classes < 0 || yk__check_number(name, "dropout", o.dropout, 0, 1) ||
        yk__check_number(name, "stochastic_depth_prob", o.stochastic_depth_prob, 0, 1))
        return NULL;
    yk_module *m = yk_module_create(&efficientnet_class), *list[STAGES + 2];
    if (!m)
        return NULL;
    efficientnet *d = yk_module_data(m);
    int block = 0;
    list[0] = unit_create(channels, in, 3, 2, 1, true);
    for (int s = 0; s < STAGES; s++) {
        yk_module *blocks[4];
        for (int i = 0; i < stages[s].count; i++, in = stages[s].channels)
            blocks[i] = residual_create(in, stages[s].channels, stages[s].kernel, i ? 1 : stages[s].stride,
                                        stages[s].expand, o.stochastic_depth_prob * block++ / BLOCKS);
        list[s + 1] = yk_sequential_list(blocks, stages[s].count);
    }
    list[STAGES + 1] = unit_create(in, LAST, 1, 1, 1, true);
    d->features = yk_module_add(m, "features", yk_sequential_list(list, STAGES + 2));
    yk_module *parts[] = {yk_dropout_create(o.dropout), last_create(LAST, classes)};
    d->classifier = yk_module_add(m, "classifier", yk_sequential_list(parts, 2));
    return yk_module_check(m);
}
