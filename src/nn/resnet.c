/*
 * resnet.c - ResNets of basic blocks and of bottlenecks, under torchvision's names. Layer: nn.
 *
 * Every batch norm runs in one pass with the addition and the ReLU that follow it, so a block makes and keeps two
 * tensors for each convolution: its output and that of its batch norm.
 */
#include "nn/models.h"

/* ---- blocks --------------------------------------------------------------------------------------------- */

/* Two convolutions, or three, of which the first and the last are 1x1 and the last gives four times the channels. */
typedef struct block {
    yk_module *conv[3], *bn[3], *downsample;
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
    const block *d = yk__module_data(m);
    int last = d->conv[2] ? 2 : 1;
    yk_tensor *y = x;
    for (int i = 0; i < last && y; i++)
        y = conv_norm(d->conv[i], d->bn[i], y, NULL);
    if (!y)
        return NULL;
    yk_tensor *identity = d->downsample ? yk__forward_part(d->downsample, x) : x;
    return identity ? conv_norm(d->conv[last], d->bn[last], y, identity) : NULL;
}

static const yk_module_class basic_class = {.name = "BasicBlock", .data_size = sizeof(block), .forward = block_forward};
static const yk_module_class bottleneck_class = {
    .name = "Bottleneck", .data_size = sizeof(block), .forward = block_forward};

/* A convolution with He initialisation for the gradients' sake (fan_out), as in torchvision. */
static yk_module *conv_create(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t groups)
{
    yk_module *m = yk__conv2d_make(
        in, out, kernel,
        YK_OPTIONS(yk_conv2d_module_options, .stride = stride, .padding = kernel / 2, .groups = groups, .bias = false));
    return m && !yk_init_kaiming_normal(yk_module_get(m, "weight"), 0, true) ? m : NULL;
}

/* The network's shape: blocks of each of the four stages. */
typedef struct plan {
    const char *name;
    int blocks[4];
    bool bottleneck;
    int64_t groups, width_per_group;
} plan;

static yk_module *block_create(const plan *p, int64_t in, int64_t planes, int64_t stride)
{
    static const char *const convs[] = {"conv1", "conv2", "conv3"}, *const norms[] = {"bn1", "bn2", "bn3"};
    yk_module *m = yk_module_create(p->bottleneck ? &bottleneck_class : &basic_class);
    if (!m)
        return NULL;
    block *d = yk__module_data(m);
    int count = p->bottleneck ? 3 : 2;
    int64_t out = p->bottleneck ? 4 * planes : planes, width = planes * p->width_per_group / 64 * p->groups;
    const int64_t channels[4] = {in, p->bottleneck ? width : out, p->bottleneck ? width : out, out};
    for (int i = 0; i < count; i++) {
        bool wide = !p->bottleneck || i == 1, strided = i == (p->bottleneck ? 1 : 0);
        d->conv[i] = yk_module_add(m, convs[i],
                                   conv_create(channels[i], channels[i + 1], wide ? 3 : 1, strided ? stride : 1,
                                               p->bottleneck && i == 1 ? p->groups : 1));
        d->bn[i] = yk_module_add(m, norms[i], yk_batch_norm2d_create(channels[i + 1], NULL));
    }
    if (stride != 1 || in != out) {
        yk_module *parts[2] = {conv_create(in, out, 1, stride, 1), yk_batch_norm2d_create(out, NULL)};
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
    const resnet *d = yk__module_data(m);
    x = conv_norm(d->conv1, d->bn1, x, NULL);
    if (d->maxpool)
        x = yk__forward_part(d->maxpool, x);
    for (int i = 0; i < 4; i++)
        x = yk__forward_part(d->layers[i], x);
    return yk__forward_part(d->fc, yk_flatten(yk__forward_part(d->avgpool, x), 1, -1));
}

static const yk_module_class resnet_class = {.name = "ResNet", .data_size = sizeof(resnet), .forward = resnet_forward};

/* One stage: the first block may change size and channels. */
static yk_module *stage_create(const plan *p, int count, int64_t in, int64_t planes, int64_t stride)
{
    yk_module *blocks[64];
    for (int i = 0; i < count; i++)
        blocks[i] = block_create(p, i == 0 ? in : p->bottleneck ? 4 * planes : planes, planes, i ? 1 : stride);
    return yk_sequential_list(blocks, count);
}

static yk_module *resnet_create(const plan *given, const yk_resnet_options *options)
{
    yk_resnet_options o;
    char name[40];
    plan p = *given;
    if (YK__OPTIONS_TAKE(p.name, yk_resnet_options, options, &o))
        return NULL;
    snprintf(name, sizeof(name), "%s%s", p.name, o.cifar ? "-cifar" : "");
    int64_t channels = yk__model_number(name, "in_channels", o.in_channels, 1);
    int64_t classes = yk__model_number(name, "num_classes", yk__integer_or(o.num_classes, o.cifar ? 10 : 1000), 1);
    p.groups = yk__model_number(name, "groups", o.groups, 1);
    p.width_per_group = yk__model_number(name, "width_per_group", o.width_per_group, 1);
    int64_t base = yk__model_number(name, "width", o.width, 1);
    if (channels < 0 || classes < 0 || p.groups < 0 || p.width_per_group < 0 || base < 0)
        return NULL;
    if (!p.bottleneck && (p.groups != 1 || p.width_per_group != 64)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: groups %lld, width_per_group %lld: its basic blocks have 1 and 64 alone", name,
                 (long long)p.groups, (long long)p.width_per_group);
        return NULL;
    }
    if (p.groups > 4096 || p.width_per_group > 4096 || base > 4096) {
        yk__fail(YK_ERR_ARGUMENT, "%s: groups %lld, width_per_group %lld, width %lld: they must be at most 4096", name,
                 (long long)p.groups, (long long)p.width_per_group, (long long)base);
        return NULL;
    }
    yk_module *m = yk_module_create(&resnet_class);
    if (!m)
        return NULL;
    resnet *d = yk__module_data(m);
    d->conv1 = yk_module_add(m, "conv1", conv_create(channels, base, o.cifar ? 3 : 7, o.cifar ? 1 : 2, 1));
    d->bn1 = yk_module_add(m, "bn1", yk_batch_norm2d_create(base, NULL));
    if (!o.cifar)
        d->maxpool =
            yk_module_add(m, "maxpool", yk_max_pool2d_create(3, 2, YK_OPTIONS(yk_pool2d_options, .padding = {1, 1})));
    int64_t in = base;
    for (int i = 0; i < 4; i++) {
        static const char *const names[4] = {"layer1", "layer2", "layer3", "layer4"};
        int64_t planes = base << i;
        d->layers[i] = yk_module_add(m, names[i], stage_create(&p, p.blocks[i], in, planes, i ? 2 : 1));
        in = p.bottleneck ? 4 * planes : planes;
    }
    d->avgpool = yk_module_add(m, "avgpool", yk_adaptive_avg_pool2d_create(1, 1));
    d->fc = yk_module_add(m, "fc", yk_linear_create(in, classes, NULL));
    return yk_module_check(m);
}

yk_module *yk_resnet18(const yk_resnet_options *options)
{
    return resnet_create(&(plan){.name = "resnet18", .blocks = {2, 2, 2, 2}}, options);
}

yk_module *yk_resnet34(const yk_resnet_options *options)
{
    return resnet_create(&(plan){.name = "resnet34", .blocks = {3, 4, 6, 3}}, options);
}

yk_module *yk_resnet50(const yk_resnet_options *options)
{
    return resnet_create(&(plan){.name = "resnet50", .blocks = {3, 4, 6, 3}, .bottleneck = true}, options);
}

yk_module *yk_resnet101(const yk_resnet_options *options)
{
    return resnet_create(&(plan){.name = "resnet101", .blocks = {3, 4, 23, 3}, .bottleneck = true}, options);
}

yk_module *yk_resnet152(const yk_resnet_options *options)
{
    return resnet_create(&(plan){.name = "resnet152", .blocks = {3, 8, 36, 3}, .bottleneck = true}, options);
}
