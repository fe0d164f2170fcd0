/*
 * conv_nd_module.c - Conv1d, Conv3d, ConvTranspose1d, 2d and 3d; what all convolutions print and pad with. Layer: nn.
 */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "nn/conv_module.h"
#include "nn/module.h"
#include "tensor/tensor.h"

typedef struct conv_layer {
    yk_tensor *weight, *bias;
    yk_conv_options options;
    int64_t in_channels, out_channels, kernel[3];
    yk_pad_mode padding_mode;
} conv_layer;

/* A class of these, and what its constructor and forward call. */
typedef struct conv_kind {
    yk_module_class cls; /* the first: a module's class is its kind */
    const char *name;
    int axes;
    bool transposed;
    yk_tensor *(*function)(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, const yk_conv_options *options);
} conv_kind;

static const conv_kind *kind_of(const yk_module *m)
{
    return (const conv_kind *)(const void *)m->cls;
}

/* ---- shared with Conv2d ---- */

yk_tensor *yk__conv_border(yk_tensor *x, int axes, const int64_t *kernel, const int64_t *dilation, int64_t *padding,
                           yk_pad_mode mode)
{
    int64_t pad[6] = {0};
    for (int i = 0; i < axes; i++) {
        int64_t both = padding[i] == YK_PADDING_SAME ? dilation[i] * (kernel[i] - 1) : 2 * padding[i];
        pad[2 * (axes - 1 - i)] = both / 2;
        pad[2 * (axes - 1 - i) + 1] = both - both / 2;
        padding[i] = 0;
    }
    return yk_pad(x, pad, 2 * axes, mode, 0);
}

/* A text that grows in a buffer, cut where that ends. */
typedef struct text {
    char *buffer;
    size_t size, used;
} text;

__attribute__((format(printf, 2, 3))) static void text_add(text *t, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    int added = t->used < t->size ? vsnprintf(t->buffer + t->used, t->size - t->used, format, values) : 0;
    va_end(values);
    t->used += added > 0 ? (size_t)added : 0;
}

/* ", name=(1, 2)", unless all are `unless`. */
static void text_add_numbers(text *t, const char *name, int axes, const int64_t *numbers, int64_t unless)
{
    bool shown = false, same = false;
    for (int i = 0; numbers && i < axes; i++) {
        shown = shown || numbers[i] != unless;
        same = same || numbers[i] == YK_PADDING_SAME;
    }
    if (!shown)
        return;
    text_add(t, ", %s=%s", name, same ? "same" : "(");
    for (int i = 0; i < axes && !same; i++)
        text_add(t, "%s%lld", i ? ", " : "", (long long)numbers[i]);
    text_add(t, "%s", same ? "" : axes == 1 ? ",)" : ")");
}

void yk__conv_describe(char *buffer, size_t size, int axes, const yk__conv_text *c)
{
    static const char *const mode[] = {"zeros", "reflect", "replicate", "circular"};
    text t = {.buffer = buffer, .size = size};
    text_add(&t, "%lld, %lld", (long long)c->in_channels, (long long)c->out_channels);
    text_add_numbers(&t, "kernel_size", axes, c->kernel, 0);
    text_add_numbers(&t, "stride", axes, c->stride, 0);
    text_add_numbers(&t, "padding", axes, c->padding, 0);
    text_add_numbers(&t, "dilation", axes, c->dilation, 1);
    text_add_numbers(&t, "output_padding", axes, c->output_padding, 0);
    if (c->groups != 1)
        text_add(&t, ", groups=%lld", (long long)c->groups);
    if (!c->bias)
        text_add(&t, ", bias=False");
    if (c->padding_mode != YK_PAD_CONSTANT)
        text_add(&t, ", padding_mode=%s", mode[c->padding_mode]);
}

bool yk__conv_mode_check(const char *name, yk_pad_mode mode)
{
    if ((unsigned)mode <= YK_PAD_CIRCULAR)
        return true;
    yk__fail(YK_ERR_ARGUMENT, "%s: padding_mode %d is none of zeros, reflect, replicate and circular", name, (int)mode);
    return false;
}

/* ---- the layers ---- */

static yk_tensor *conv_forward(yk_module *m, yk_tensor *x)
{
    const conv_kind *kind = kind_of(m);
    conv_layer *d = yk__module_data(m);
    yk_conv_options o = d->options;
    if (d->padding_mode != YK_PAD_CONSTANT && x->ndim > kind->axes)
        x = yk__conv_border(x, kind->axes, d->kernel, o.dilation, o.padding, d->padding_mode);
    return x ? kind->function(x, d->weight, d->bias, &o) : NULL;
}

static void conv_describe(yk_module *m, char *buffer, size_t size)
{
    conv_layer *d = yk__module_data(m);
    const yk_conv_options *o = &d->options;
    yk__conv_describe(buffer, size, kind_of(m)->axes,
                      &(yk__conv_text){.in_channels = d->in_channels,
                                       .out_channels = d->out_channels,
                                       .groups = o->groups,
                                       .kernel = d->kernel,
                                       .stride = o->stride,
                                       .padding = o->padding,
                                       .dilation = o->dilation,
                                       .output_padding = o->output_padding,
                                       .bias = d->bias,
                                       .padding_mode = d->padding_mode});
}

/* Fails where a number of an axis makes no sense. */
static bool axis_check(const conv_kind *kind, const conv_layer *d, int i)
{
    const yk_conv_options *o = &d->options;
    bool same = o->padding[i] == YK_PADDING_SAME;
    if (same && (kind->transposed || o->stride[i] != 1)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: padding \"same\" is for convolutions of stride 1 that are not transposed",
                 kind->name);
        return false;
    }
    if (d->kernel[i] < 1 || o->stride[i] < 1 || (o->padding[i] < 0 && !same) || o->dilation[i] < 1) {
        yk__fail(YK_ERR_ARGUMENT,
                 "%s: kernel %lld, stride %lld, padding %lld, dilation %lld: only padding may be 0, and none negative",
                 kind->name, (long long)d->kernel[i], (long long)o->stride[i], (long long)o->padding[i],
                 (long long)o->dilation[i]);
        return false;
    }
    int64_t most = o->stride[i] > o->dilation[i] ? o->stride[i] : o->dilation[i];
    if (o->output_padding[i] && (!kind->transposed || o->output_padding[i] < 0 || o->output_padding[i] >= most)) {
        yk__fail(YK_ERR_ARGUMENT,
                 kind->transposed ? "%s: output_padding %lld, expected at least 0 and below the stride or the dilation"
                                  : "%s: output_padding %lld is for transposed convolutions",
                 kind->name, (long long)o->output_padding[i]);
        return false;
    }
    return true;
}

/* Completes *d by the given options; false and an error where that makes no sense. */
static bool settle(const conv_kind *kind, conv_layer *d, int64_t kernel, const yk_conv_module_options *given)
{
    d->options = *YK_OPTIONS(yk_conv_options, .groups = given->groups);
    d->padding_mode = given->padding_mode;
    if (d->in_channels < 1 || d->out_channels < 1 || given->groups < 1 || d->in_channels % given->groups ||
        d->out_channels % given->groups) {
        yk__fail(YK_ERR_ARGUMENT,
                 "%s: in_channels %lld, out_channels %lld, groups %lld: all must be at least 1, and the groups divide "
                 "both",
                 kind->name, (long long)d->in_channels, (long long)d->out_channels, (long long)given->groups);
        return false;
    }
    if (!yk__conv_mode_check(kind->name, given->padding_mode))
        return false;
    if (kind->transposed && given->padding_mode != YK_PAD_CONSTANT) {
        yk__fail(YK_ERR_ARGUMENT, "%s: padding_mode of a transposed convolution is zeros alone", kind->name);
        return false;
    }
    for (int i = 0; i < kind->axes; i++) {
        d->kernel[i] = yk__integer_or(given->kernel_size[i], kernel);
        d->options.stride[i] = yk__integer_or(given->stride_size[i], given->stride);
        d->options.padding[i] = yk__integer_or(given->padding_size[i], given->padding);
        d->options.dilation[i] = yk__integer_or(given->dilation_size[i], given->dilation);
        d->options.output_padding[i] = yk__integer_or(given->output_padding_size[i], given->output_padding);
        if (!axis_check(kind, d, i))
            return false;
    }
    return true;
}

static yk_module *conv_create(const conv_kind *kind, int64_t in, int64_t out, int64_t kernel,
                              const yk_conv_module_options *options)
{
    yk_conv_module_options given;
    conv_layer layer = {.in_channels = in, .out_channels = out};
    if (YK__OPTIONS_TAKE(kind->name, yk_conv_module_options, options, &given) || !settle(kind, &layer, kernel, &given))
        return NULL;
    int64_t shape[5] = {out, in / given.groups}, fan_in;
    if (kind->transposed) {
        shape[0] = in;
        shape[1] = out / given.groups;
    }
    memcpy(shape + 2, layer.kernel, sizeof(layer.kernel));
    yk_tensor *weight = yk__module_tensor(kind->name, 2 + kind->axes, shape, YK_F32);
    yk_module *m = weight ? yk_module_create(&kind->cls) : NULL;
    if (!m) {
        yk_tensor_release(weight);
        return NULL;
    }
    fan_in = weight->numel / shape[0];
    conv_layer *d = yk__module_data(m);
    *d = layer;
    d->weight = yk__module_take_parameter(m, "weight", weight);
    if (given.bias)
        d->bias = yk__module_take_parameter(m, "bias", yk__module_tensor(kind->name, 1, &out, YK_F32));
    if (!yk_module_check(m))
        return NULL;
    double bound = 1 / sqrt((double)fan_in);
    if (yk_init_uniform(d->weight, -bound, bound) || (d->bias && yk_init_uniform(d->bias, -bound, bound)))
        return NULL;
    return m;
}

#define CONVOLUTION(label, class_name, n, is_transposed)                                                               \
    yk_module *yk_##label##_create(int64_t in_channels, int64_t out_channels, int64_t kernel,                          \
                                   const yk_conv_module_options *options)                                              \
    {                                                                                                                  \
        static const conv_kind kind = {.cls = {.name = class_name,                                                     \
                                               .data_size = sizeof(conv_layer),                                        \
                                               .forward = conv_forward,                                                \
                                               .describe = conv_describe},                                             \
                                       .name = #label "_create",                                                       \
                                       .axes = (n),                                                                    \
                                       .transposed = (is_transposed),                                                  \
                                       .function = yk_##label};                                                        \
        return conv_create(&kind, in_channels, out_channels, kernel, options);                                         \
    }
CONVOLUTION(conv1d, "Conv1d", 1, false)
CONVOLUTION(conv3d, "Conv3d", 3, false)
CONVOLUTION(conv_transpose1d, "ConvTranspose1d", 1, true)
CONVOLUTION(conv_transpose2d, "ConvTranspose2d", 2, true)
CONVOLUTION(conv_transpose3d, "ConvTranspose3d", 3, true)
