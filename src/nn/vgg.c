/*
 * vgg.c - VGG of 11 to 19 layers, with batch norms or without, under torchvision's names. Layer: nn.
 */
#include "nn/models.h"

typedef struct vgg {
    yk_module *features, *avgpool, *classifier;
} vgg;

static yk_tensor *vgg_forward(yk_module *m, yk_tensor *x)
{
    const vgg *d = yk__module_data(m);
    return yk__forward_part(d->classifier,
                            yk_flatten(yk__forward_part(d->avgpool, yk__forward_part(d->features, x)), 1, -1));
}

static const yk_module_class vgg_class = {.name = "VGG", .data_size = sizeof(vgg), .forward = vgg_forward};

/* Convolutions of each of the five parts, which a pool ends. */
static yk_module *features_create(const int counts[5], int64_t in, int64_t width, bool batch_norm)
{
    yk_module *list[64];
    int n = 0;
    for (int part = 0; part < 5; part++) {
        int64_t out = width << (part < 4 ? part : 3);
        for (int i = 0; i < counts[part]; i++, in = out) {
            yk_module *conv = yk__conv2d_make(in, out, 3, YK_OPTIONS(yk_conv2d_module_options, .padding = 1));
            list[n++] = conv && !yk_init_kaiming_normal(yk_module_get(conv, "weight"), 0, true) &&
                                !yk_init_constant(yk_module_get(conv, "bias"), 0)
                            ? conv
                            : NULL;
            if (batch_norm)
                list[n++] = yk_batch_norm2d_create(out, NULL);
            list[n++] = yk_relu_create();
        }
        list[n++] = yk_max_pool2d_create(2, 2, NULL);
    }
    return yk_sequential_list(list, n);
}

static yk_module *vgg_create(const char *name, const int counts[5], const yk_vgg_options *options)
{
    yk_vgg_options o;
    if (YK__OPTIONS_TAKE(name, yk_vgg_options, options, &o))
        return NULL;
    int64_t channels = yk__model_number(name, "in_channels", o.in_channels, 1);
    int64_t classes = yk__model_number(name, "num_classes", o.num_classes, 1);
    int64_t size = yk__model_number(name, "classifier_size", o.classifier_size, 1);
    int64_t width = yk__model_number(name, "width", o.width, 1);
    if (channels < 0 || classes < 0 || size < 0 || width < 0 || yk__check_number(name, "dropout", o.dropout, 0, 1))
        return NULL;
    yk_module *m = yk_module_create(&vgg_class);
    if (!m)
        return NULL;
    vgg *d = yk__module_data(m);
    d->features = yk_module_add(m, "features", features_create(counts, channels, width, o.batch_norm));
    d->avgpool = yk_module_add(m, "avgpool", yk_adaptive_avg_pool2d_create(7, 7));
    yk_module *parts[] = {yk__classifier_linear(8 * width * 7 * 7, size),
                          yk_relu_create(),
                          yk_dropout_create(o.dropout),
                          yk__classifier_linear(size, size),
                          yk_relu_create(),
                          yk_dropout_create(o.dropout),
                          yk__classifier_linear(size, classes)};
    d->classifier = yk_module_add(m, "classifier", yk_sequential_list(parts, 7));
    return yk_module_check(m);
}

yk_module *yk_vgg11(const yk_vgg_options *options)
{
    return vgg_create("vgg11", (const int[]){1, 1, 2, 2, 2}, options);
}

yk_module *yk_vgg13(const yk_vgg_options *options)
{
    return vgg_create("vgg13", (const int[]){2, 2, 2, 2, 2}, options);
}

yk_module *yk_vgg16(const yk_vgg_options *options)
{
    return vgg_create("vgg16", (const int[]){2, 2, 3, 3, 3}, options);
}

yk_module *yk_vgg19(const yk_vgg_options *options)
{
    return vgg_create("vgg19", (const int[]){2, 2, 4, 4, 4}, options);
}
