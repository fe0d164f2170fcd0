/*
 * conv_module.c - Conv2d. Layer: nn.
 *
 * The weight keeps PyTorch's shape (out, in / groups, height, width) in the memory order that the device asks for.
 */
#include <math.h>

#include "nn/conv_module.h"
#include "nn/module.h"
#include "tensor/host_tensor.h"

typedef struct conv2d {
    yk_tensor *weight, *bias;
    yk_conv2d_options options;
    int64_t in_channels;
    yk_pad_mode padding_mode;
} conv2d;

/* The input and, in *o, the options of the operation: a border that is not of zeros is made before. */
static yk_tensor *bordered(const conv2d *d, yk_tensor *x, yk_conv2d_options *o)
{
    *o = d->options;
    if (d->padding_mode == YK_PAD_CONSTANT || x->ndim < 3)
        return x;
    return yk__conv_border(x, 2, yk_sizes(d->weight) + 2, o->dilation, o->padding, d->padding_mode);
}

static yk_tensor *conv2d_forward(yk_module *m, yk_tensor *x)
{
    conv2d *d = yk__module_data(m);
    yk_conv2d_options o;
    yk_tensor *in = bordered(d, x, &o);
    return in ? yk_conv2d(in, d->weight, d->bias, &o) : NULL;
}

static yk_tensor *conv2d_relu(yk_module *m, yk_tensor *x, void *user)
{
    conv2d *d = yk__module_data(m);
    yk_conv2d_options o;
    yk_tensor *in = bordered(d, x, &o);
    (void)user;
    o.relu = true;
    return in ? yk_conv2d(in, d->weight, d->bias, &o) : NULL;
}

static void conv2d_describe(yk_module *m, char *buffer, size_t size)
{
    conv2d *d = yk__module_data(m);
    const yk_conv2d_options *o = &d->options;
    yk__conv_describe(buffer, size, 2,
                      &(yk__conv_text){.in_channels = d->in_channels,
                                       .out_channels = yk_size(d->weight, 0),
                                       .groups = o->groups,
                                       .kernel = yk_sizes(d->weight) + 2,
                                       .stride = o->stride,
                                       .padding = o->padding,
                                       .dilation = o->dilation,
                                       .bias = d->bias,
                                       .padding_mode = d->padding_mode});
}

static bool weight_strides(const conv2d *d, const int64_t *shape, yk_dtype dtype, yk_device device, int64_t *stride)
{
    const yk__backend *backend = yk__backend_of(device);
    if (!backend || !backend->conv2d_weight_layout)
        return false;
    yk__conv2d p = {.groups = d->options.groups};
    for (int i = 0; i < 2; i++) {
        p.stride[i] = d->options.stride[i];
        p.padding[i] = d->options.padding[i] < 0 ? 0 : d->options.padding[i];
        p.dilation[i] = d->options.dilation[i];
    }
    backend->conv2d_weight_layout(&p, dtype, shape, stride);
    return true;
}

static bool conv2d_parameter_strides(yk_module *m, const yk_tensor *parameter, yk_dtype dtype, yk_device device,
                                     int64_t *stride)
{
    conv2d *d = yk__module_data(m);
    return parameter == d->weight && weight_strides(d, yk_sizes(parameter), dtype, device, stride);
}

static const yk_module_class conv2d_class = {.name = "Conv2d",
                                             .data_size = sizeof(conv2d),
                                             .forward = conv2d_forward,
                                             .describe = conv2d_describe,
                                             .parameter_strides = conv2d_parameter_strides};

yk__module_body yk__conv2d_relu_body(const yk_module *m)
{
    return m->cls == &conv2d_class ? conv2d_relu : NULL;
}

/* Checks what the user gave and completes it: to kernel[] and o. */
static bool settle(int64_t in, int64_t out, int64_t square, const yk_conv2d_module_options *given, int64_t kernel[2],
                   yk_conv2d_options *o)
{
    o->groups = given->groups;
    if (in < 1 || out < 1 || o->groups < 1 || in % o->groups || out % o->groups) {
        yk__fail(
            YK_ERR_ARGUMENT,
            "conv2d_create: in_channels %lld, out_channels %lld, groups %lld: all must be at least 1, and the groups "
            "divide both",
            (long long)in, (long long)out, (long long)o->groups);
        return false;
    }
    for (int i = 0; i < 2; i++) {
        kernel[i] = yk__integer_or(given->kernel_size[i], square);
        o->stride[i] = yk__integer_or(given->stride_size[i], given->stride);
        o->padding[i] = yk__integer_or(given->padding_size[i], given->padding);
        o->dilation[i] = yk__integer_or(given->dilation_size[i], given->dilation);
    }
    if (!yk__conv_mode_check("conv2d_create", given->padding_mode))
        return false;
    for (int i = 0; i < 2; i++) {
        bool same = o->padding[i] == YK_PADDING_SAME;
        if (same && o->stride[i] != 1) {
            yk__fail(YK_ERR_ARGUMENT, "conv2d_create: padding \"same\" is for convolutions of stride 1");
            return false;
        }
        if (kernel[i] >= 1 && o->stride[i] >= 1 && (o->padding[i] >= 0 || same) && o->dilation[i] >= 1)
            continue;
        yk__fail(YK_ERR_ARGUMENT,
                 "conv2d_create: kernel (%lld, %lld), stride %lld, padding %lld, dilation %lld: only padding may be 0, "
                 "and none negative",
                 (long long)kernel[0], (long long)kernel[1], (long long)o->stride[i], (long long)o->padding[i],
                 (long long)o->dilation[i]);
        return false;
    }
    return true;
}

yk_module *yk__conv2d_make(int64_t in_channels, int64_t out_channels, int64_t kernel,
                           const yk_conv2d_module_options *options)
{
    yk_conv2d_module_options given;
    yk_conv2d_options o = *YK_OPTIONS(yk_conv2d_options);
    if (YK__OPTIONS_TAKE("conv2d_create", yk_conv2d_module_options, options, &given))
        return NULL;
    int64_t size[2], stride[4];
    yk_device device = yk__default_options(NULL).device;
    if (!settle(in_channels, out_channels, kernel, &given, size, &o) || yk__device_check(device))
        return NULL;
    int64_t shape[4] = {out_channels, in_channels / o.groups, size[0], size[1]};
    yk_module *m = yk__tensor_check("conv2d_create", 4, shape, NULL) ? NULL : yk_module_create(&conv2d_class);
    if (!m)
        return NULL;
    conv2d *d = yk_module_data(m);
    d->options = o;
    d->in_channels = in_channels;
    d->padding_mode = given.padding_mode;
    bool ordered = weight_strides(d, shape, YK_F32, device, stride);
    d->weight =
        yk__module_take_parameter(m, "weight", yk__tensor_new(4, shape, ordered ? stride : NULL, YK_F32, device));
    if (given.bias)
        d->bias = yk__module_take_parameter(m, "bias", yk__module_tensor("conv2d_create", 1, &out_channels, YK_F32));
    return yk_module_check(m);
}

yk_module *yk_conv2d_create(int64_t in_channels, int64_t out_channels, int64_t kernel,
                            const yk_conv2d_module_options *options)
{
    yk_module *m = yk__conv2d_make(in_channels, out_channels, kernel, options);
    if (!m)
        return NULL;
    conv2d *d = yk_module_data(m);
    const int64_t *shape = yk_sizes(d->weight);
    double bound = 1 / sqrt((double)(shape[1] * shape[2] * shape[3]));
    if (yk_init_uniform(d->weight, -bound, bound) || (d->bias && yk_init_uniform(d->bias, -bound, bound)))
        return NULL;
    return m;
}
