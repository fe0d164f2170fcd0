/*
 * conv_module.c - Conv2d. Layer: nn.
 *
 * The weight keeps PyTorch's shape (out, in / groups, height, width) in the memory order that the device asks for.
 */
#include <math.h>

#include "nn/module.h"
#include "tensor/host_tensor.h"

typedef struct conv2d {
    yk_tensor *weight, *bias;
    yk_conv2d_options options;
    int64_t in_channels;
} conv2d;

static yk_tensor *conv2d_forward(yk_module *m, yk_tensor *x)
{
    conv2d *d = yk_module_data(m);
    return yk_conv2d(x, d->weight, d->bias, &d->options);
}

static yk_tensor *conv2d_relu(yk_module *m, yk_tensor *x, void *user)
{
    conv2d *d = yk_module_data(m);
    yk_conv2d_options o = d->options;
    (void)user;
    o.relu = true;
    return yk_conv2d(x, d->weight, d->bias, &o);
}

static void conv2d_describe(yk_module *m, char *buffer, size_t size)
{
    conv2d *d = yk_module_data(m);
    const yk_conv2d_options *o = &d->options;
    int used = snprintf(buffer, size, "%lld, %lld, kernel_size=(%lld, %lld), stride=(%lld, %lld)",
                        (long long)d->in_channels, (long long)yk_size(d->weight, 0), (long long)yk_size(d->weight, 2),
                        (long long)yk_size(d->weight, 3), (long long)o->stride[0], (long long)o->stride[1]);
    if (o->padding[0] || o->padding[1])
        used += snprintf(buffer + used, size - (size_t)used, ", padding=(%lld, %lld)", (long long)o->padding[0],
                         (long long)o->padding[1]);
    if (o->dilation[0] != 1 || o->dilation[1] != 1)
        used += snprintf(buffer + used, size - (size_t)used, ", dilation=(%lld, %lld)", (long long)o->dilation[0],
                         (long long)o->dilation[1]);
    if (o->groups != 1)
        used += snprintf(buffer + used, size - (size_t)used, ", groups=%lld", (long long)o->groups);
    if (!d->bias)
        snprintf(buffer + used, size - (size_t)used, ", bias=False");
}

static bool weight_strides(const conv2d *d, const int64_t *shape, yk_dtype dtype, yk_device device, int64_t *stride)
{
    const yk__backend *backend = yk__backend_of(device);
    if (!backend || !backend->conv2d_weight_layout)
        return false;
    yk__conv2d p = {.groups = d->options.groups};
    for (int i = 0; i < 2; i++) {
        p.stride[i] = d->options.stride[i];
        p.padding[i] = d->options.padding[i];
        p.dilation[i] = d->options.dilation[i];
    }
    backend->conv2d_weight_layout(&p, dtype, shape, stride);
    return true;
}

static bool conv2d_parameter_strides(yk_module *m, const yk_tensor *parameter, yk_dtype dtype, yk_device device,
                                     int64_t *stride)
{
    conv2d *d = yk_module_data(m);
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
    for (int i = 0; i < 2; i++) {
        if (kernel[i] >= 1 && o->stride[i] >= 1 && o->padding[i] >= 0 && o->dilation[i] >= 1)
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
