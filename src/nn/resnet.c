/*
 * resnet.c - ResNet-18 of basic blocks, under torchvision's names. Layer: nn.
 *
 * Every batch norm runs in one pass with the addition and the ReLU that follow it, so a block makes and keeps four
 * tensors: two outputs of convolutions and two of batch norms.
 */
#include "nn/models.h"

/* ---- the basic block --------------------------------------------------------------------------------------------- */

typedef struct block {
    yk_module *conv1, *bn1, *conv2, *bn2, *downsample;
} block;

/* The convolution's output goes as soon as the batch norm has read it, unless backward needs it. */
static yk_tensor *conv_norm(yk_module *conv, yk_module *bn, yk_tensor *x, yk_tensor *residual)
{
    yk_tensor *y = yk__forward(conv, x);
    yk_tensor *out = yk__batch_norm_forward(bn, y, residual, true);
    yk_tensor_release(y);
    return yk__scope_own(out);
}

static yk_tensor *block_forward(yk_module *m, yk_tensor *x)
{
    const block *d = yk_module_data(m);
    yk_tensor *y = conv_norm(d->conv1, d->bn1, x, NULL);
    if (!y)
        return NULL;
    yk_tensor *identity = d->downsample ? yk_forward(d->downsample, x) : x;
    return identity ? conv_norm(d->conv2, d->bn2, y, identity) : NULL;
}

static const yk_module_class block_class = {.name = "BasicBlock", .data_size = sizeof(block), .forward = block_forward};

/* A convolution with He initialisation for the gradients' sake (fan_out), as in torchvision. */
static yk_module *conv_create(int64_t in, int64_t out, int64_t kernel, int64_t stride)
{
    yk_module *m = yk__conv2d_make(
        in, out, kernel, YK_OPTIONS(yk_conv2d_module_options, .stride = stride, .padding = kernel / 2, .bias = false));
    return m && !yk_init_kaiming_normal(yk_module_get(m, "weight"), 0, true) ? m : NULL;
}

static yk_module *block_create(int64_t in, int64_t out, int64_t stride)
{
    yk_module *m = yk_module_create(&block_class);
    if (!m)
        return NULL;
    block *d = yk_module_data(m);
    d->conv1 = yk_module_add(m, "conv1", conv_create(in, out, 3, stride));
    d->bn1 = yk_module_add(m, "bn1", yk_batch_norm2d_create(out, NULL));
    d->conv2 = yk_module_add(m, "conv2", conv_create(out, out, 3, 1));
    d->bn2 = yk_module_add(m, "bn2", yk_batch_norm2d_create(out, NULL));
    if (stride != 1 || in != out) {
        yk_module *parts[2] = {conv_create(in, out, 1, stride), yk_batch_norm2d_create(out, NULL)};
        d->downsample = yk_module_add(m, "downsample", yk_sequential_list(parts, 2));
    }
    return yk_module_check(m);
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

typedef struct resnet {
    yk_module *conv1, *bn1, *maxpool, *layers[4], *avgpool, *fc;
} resnet;

static yk_tensor *resnet_forward(yk_module *m, yk_tensor *x)
{
    const resnet *d = yk_module_data(m);
    x = conv_norm(d->conv1, d->bn1, x, NULL);
    if (d->maxpool)
        x = yk_forward(d->maxpool, x);
    for (int i = 0; i < 4; i++)
        x = yk_forward(d->layers[i], x);
    return yk_forward(d->fc, yk_flatten(yk_forward(d->avgpool, x), 1, -1));
}

static const yk_module_class resnet_class = {.name = "ResNet", .data_size = sizeof(resnet), .forward = resnet_forward};

yk_module *yk_resnet18(const yk_resnet_options *options)
{
    yk_resnet_options o;
    if (YK__OPTIONS_TAKE("resnet18", yk_resnet_options, options, &o))
        return NULL;
    const char *name = o.cifar ? "resnet18-cifar" : "resnet18";
    int64_t channels = yk__model_number(name, "in_channels", o.in_channels, 1);
    int64_t classes = yk__model_number(name, "num_classes", yk__integer_or(o.num_classes, o.cifar ? 10 : 1000), 1);
    yk_module *m = channels > 0 && classes > 0 ? yk_module_create(&resnet_class) : NULL;
    if (!m)
        return NULL;
    resnet *d = yk_module_data(m);
    d->conv1 = yk_module_add(m, "conv1", o.cifar ? conv_create(channels, 64, 3, 1) : conv_create(channels, 64, 7, 2));
    d->bn1 = yk_module_add(m, "bn1", yk_batch_norm2d_create(64, NULL));
    if (!o.cifar)
        d->maxpool =
            yk_module_add(m, "maxpool", yk_max_pool2d_create(3, 2, YK_OPTIONS(yk_pool2d_options, .padding = {1, 1})));
    int64_t in = 64;
    for (int i = 0; i < 4; i++) {
        static const char *const names[4] = {"layer1", "layer2", "layer3", "layer4"};
        int64_t out = INT64_C(64) << i;
        yk_module *blocks[2] = {block_create(in, out, i ? 2 : 1), block_create(out, out, 1)};
        d->layers[i] = yk_module_add(m, names[i], yk_sequential_list(blocks, 2));
        in = out;
    }
    d->avgpool = yk_module_add(m, "avgpool", yk_adaptive_avg_pool2d_create(1, 1));
    d->fc = yk_module_add(m, "fc", yk_linear_create(in, classes, NULL));
    return yk_module_check(m);
}
