/*
 * mobilenet.c - MobileNetV2, under torchvision's names. Layer: nn.
 */
#include "nn/models.h"

/* A convolution without a bias, He initialised for the gradients' sake, as in torchvision. */
static yk_module *conv_create(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups)
{
    yk_module *m = yk__conv2d_make(in, out, kernel,
                                   YK_OPTIONS(yk_conv2d_module_options, .stride = stride, .padding = (kernel - 1) / 2,
                                              .groups = groups, .bias = false));
    return m && !yk_init_kaiming_normal(yk_module_get(m, "weight"), 0, true) ? m : NULL;
}

/* Convolution, batch norm, ReLU6. */
static yk_module *unit_create(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups)
{
    yk_module *parts[] = {conv_create(in, out, kernel, stride, groups), yk_batch_norm2d_create(out, NULL),
                          yk_relu6_create()};
    return yk_sequential_list(parts, 3);
}

/* ---- inverted residuals ------------------------------------------------------------------------------------------ */

typedef struct residual {
    yk_module *conv;
    bool adds;
} residual;

static yk_tensor *residual_forward(yk_module *m, yk_tensor *x)
{
    const residual *d = yk__module_data(m);
    yk_tensor *y = yk__forward_part(d->conv, x);
    return d->adds ? yk_add(x, y) : y;
}

static const yk_module_class residual_class = {
    .name = "InvertedResidual", .data_size = sizeof(residual), .forward = residual_forward};

static yk_module *residual_create(int64_t in, int64_t out, int64_t stride, int64_t expand)
{
    yk_module *m = yk_module_create(&residual_class), *parts[4];
    if (!m)
        return NULL;
    residual *d = yk__module_data(m);
    int64_t hidden = in * expand;
    int n = 0;
    if (expand != 1)
        parts[n++] = unit_create(in, hidden, 1, 1, 1);
    parts[n++] = unit_create(hidden, hidden, 3, stride, hidden);
    parts[n++] = conv_create(hidden, out, 1, 1, 1);
    parts[n++] = yk_batch_norm2d_create(out, NULL);
    d->conv = yk_module_add(m, "conv", yk_sequential_list(parts, n));
    d->adds = stride == 1 && in == out;
    return yk_module_check(m);
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

typedef struct mobilenet {
    yk_module *features, *classifier;
} mobilenet;

static yk_tensor *mobilenet_forward(yk_module *m, yk_tensor *x)
{
    const mobilenet *d = yk__module_data(m);
    x = yk_adaptive_avg_pool2d(yk__forward_part(d->features, x), 1, 1);
    return yk__forward_part(d->classifier, yk_flatten(x, 1, -1));
}

static const yk_module_class mobilenet_class = {
    .name = "MobileNetV2", .data_size = sizeof(mobilenet), .forward = mobilenet_forward};

yk_module *yk_mobilenet_v2(const yk_mobilenet_v2_options *options)
{
    static const struct {
        int expand, channels, count, stride;
    } stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                  {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    static const char name[] = "mobilenet_v2";
    yk_mobilenet_v2_options o;
    if (YK__OPTIONS_TAKE(name, yk_mobilenet_v2_options, options, &o))
        return NULL;
    int64_t channels = yk__model_number(name, "in_channels", o.in_channels, 1), in = 32;
    int64_t classes = yk__model_number(name, "num_classes", o.num_classes, 1);
    if (channels < 0 || classes < 0 || yk__check_number(name, "dropout", o.dropout, 0, 1))
        return NULL;
    yk_module *m = yk_module_create(&mobilenet_class), *list[32];
    if (!m)
        return NULL;
    mobilenet *d = yk_module_data(m);
    int n = 0;
    list[n++] = unit_create(channels, in, 3, 2, 1);
    for (size_t s = 0; s < sizeof(stages) / sizeof(*stages); s++)
        for (int i = 0; i < stages[s].count; i++, in = stages[s].channels)
            list[n++] = residual_create(in, stages[s].channels, i ? 1 : stages[s].stride, stages[s].expand);
    list[n++] = unit_create(in, 1280, 1, 1, 1);
    d->features = yk_module_add(m, "features", yk_sequential_list(list, n));
    yk_module *parts[] = {yk_dropout_create(o.dropout), yk__classifier_linear(1280, classes)};
    d->classifier = yk_module_add(m, "classifier", yk_sequential_list(parts, 2));
    return yk_module_check(m);
}
