/*
 * lenet.c - LeNet for square images. Layer: nn.
 */
#include "nn/models.h"

typedef struct lenet {
    int64_t channels, size;
    yk_module *conv1, *conv2, *fc1, *fc2, *fc3;
} lenet;

/* ReLU and the maximum can be exchanged: the same values and gradients, a quarter of the elements. */
static yk_tensor *convolve(yk_module *conv, yk_tensor *x)
{
    return yk_relu(yk_max_pool2d(yk__forward_part(conv, x), YK_OPTIONS(yk_pool2d_options, .kernel = {2, 2})));
}

static yk_tensor *lenet_forward(yk_module *m, yk_tensor *x)
{
    const lenet *d = yk__module_data(m);
    if (yk_ndim(x) != 4 || yk_size(x, 1) != d->channels || yk_size(x, 2) != d->size || yk_size(x, 3) != d->size) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "lenet: input has shape %s, expected (N, %lld, %lld, %lld)",
                 yk_shape_format(x, text, sizeof(text)), (long long)d->channels, (long long)d->size,
                 (long long)d->size);
        return NULL;
    }
    x = convolve(d->conv2, convolve(d->conv1, x));
    x = yk__scope_own(yk__forward_relu(d->fc1, yk_flatten(x, 1, -1)));
    return yk__forward_part(d->fc3, yk__scope_own(yk__forward_relu(d->fc2, x)));
}

static const yk_module_class lenet_class = {.name = "LeNet", .data_size = sizeof(lenet), .forward = lenet_forward};

yk_module *yk_lenet(const yk_lenet_options *options)
{
    yk_lenet_options o;
    if (YK__OPTIONS_TAKE("lenet", yk_lenet_options, options, &o))
        return NULL;
    int64_t channels = yk__model_number("lenet", "in_channels", o.in_channels, 1);
    int64_t size = yk__model_number("lenet", "image_size", o.image_size, 16);
    int64_t classes = yk__model_number("lenet", "num_classes", o.num_classes, 1);
    yk_module *m = channels > 0 && size > 0 && classes > 0 ? yk_module_create(&lenet_class) : NULL;
    if (!m)
        return NULL;
    int64_t side = ((size - 4) / 2 - 4) / 2;
    lenet *d = yk_module_data(m);
    d->channels = channels;
    d->size = size;
    d->conv1 = yk_module_add(m, "conv1", yk_conv2d_create(channels, 6, 5, NULL));
    d->conv2 = yk_module_add(m, "conv2", yk_conv2d_create(6, 16, 5, NULL));
    d->fc1 = yk_module_add(m, "fc1", yk_linear_create(16 * side * side, 120, NULL));
    d->fc2 = yk_module_add(m, "fc2", yk_linear_create(120, 84, NULL));
    d->fc3 = yk_module_add(m, "fc3", yk_linear_create(84, classes, NULL));
    return yk_module_check(m);
}
