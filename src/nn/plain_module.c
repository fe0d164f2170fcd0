/*
 * plain_module.c - layers without parameters: activations, dropout, pooling, flatten, identity. Layer: nn.
 */
#include "nn/module.h"

/* ---- activations and identity ------------------------------------------------------------------------------------ */

static yk_tensor *relu_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    return yk_relu(x);
}

static yk_tensor *gelu_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    return yk_gelu(x);
}

static yk_tensor *tanh_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    return yk_tanh(x);
}

static yk_tensor *sigmoid_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    return yk_sigmoid(x);
}

static yk_tensor *identity_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    return x;
}

static void gelu_describe(yk_module *m, char *buffer, size_t size)
{
    (void)m;
    snprintf(buffer, size, "approximate='none'");
}

static const yk_module_class relu_class = {.name = "ReLU", .forward = relu_forward};
static const yk_module_class gelu_class = {.name = "GELU", .forward = gelu_forward, .describe = gelu_describe};
static const yk_module_class tanh_class = {.name = "Tanh", .forward = tanh_forward};
static const yk_module_class sigmoid_class = {.name = "Sigmoid", .forward = sigmoid_forward};
static const yk_module_class identity_class = {.name = "Identity", .forward = identity_forward};

yk_module *yk_relu_create(void)
{
    return yk_module_create(&relu_class);
}

bool yk__is_relu(const yk_module *m)
{
    return m->cls == &relu_class;
}

static yk__module_body relu_body(const yk_module *m)
{
    yk__module_body body = yk__conv2d_relu_body(m);
    return body ? body : yk__linear_relu_body(m);
}

bool yk__fuses_relu(const yk_module *m)
{
    return yk__is_batch_norm(m) || relu_body(m);
}

yk_tensor *yk__forward_relu(yk_module *m, yk_tensor *x)
{
    if (m && yk__is_batch_norm(m))
        return yk__batch_norm_forward(m, x, NULL, true);
    yk__module_body body = !m || m->hooks ? NULL : relu_body(m);
    if (body)
        return yk__module_run(m, body, x, NULL);
    yk_scope scope = yk_scope_begin();
    yk_tensor *out = yk_tensor_retain(yk_relu(yk__forward_part(m, x)));
    yk_scope_end(scope);
    return out;
}

yk_module *yk_gelu_create(void)
{
    return yk_module_create(&gelu_class);
}

yk_module *yk_tanh_create(void)
{
    return yk_module_create(&tanh_class);
}

yk_module *yk_sigmoid_create(void)
{
    return yk_module_create(&sigmoid_class);
}

yk_module *yk_identity_create(void)
{
    return yk_module_create(&identity_class);
}

/* ---- Dropout ----------------------------------------------------------------------------------------------------- */

static yk_tensor *dropout_forward(yk_module *m, yk_tensor *x)
{
    return yk_dropout(x, *(double *)yk__module_data(m), m->training);
}

static void dropout_describe(yk_module *m, char *buffer, size_t size)
{
    char p[YK__NUMBER_ROOM];
    snprintf(buffer, size, "p=%s, inplace=False", yk__module_number(*(double *)yk__module_data(m), p));
}

static const yk_module_class dropout_class = {
    .name = "Dropout", .data_size = sizeof(double), .forward = dropout_forward, .describe = dropout_describe};

yk_module *yk_dropout_create(double p)
{
    if (yk__check_number("dropout_create", "p", p, 0, 1))
        return NULL;
    yk_module *m = yk_module_create(&dropout_class);
    if (m)
        *(double *)yk_module_data(m) = p;
    return m;
}

/* ---- pooling ----------------------------------------------------------------------------------------------------- */

static yk_tensor *max_pool2d_forward(yk_module *m, yk_tensor *x)
{
    return yk_max_pool2d(x, yk__module_data(m));
}

static yk_tensor *avg_pool2d_forward(yk_module *m, yk_tensor *x)
{
    return yk_avg_pool2d(x, yk__module_data(m));
}

/* "2" for equal numbers, "(2, 3)" for others, as PyTorch prints what it was given. */
static const char *pair_text(const int64_t pair[2], char buffer[64])
{
    if (pair[0] == pair[1])
        snprintf(buffer, 64, "%lld", (long long)pair[0]);
    else
        snprintf(buffer, 64, "(%lld, %lld)", (long long)pair[0], (long long)pair[1]);
    return buffer;
}

/* Maxima and their indices. */
static yk_status max_pool2d_forward_list(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                         int n_outputs)
{
    if (n_inputs != 1 || !inputs[0] || n_outputs != 2)
        return yk__fail(YK_ERR_ARGUMENT,
                        "MaxPool2d: %d inputs and %d outputs, expected one tensor for one, or for maxima and indices",
                        n_inputs, n_outputs);
    outputs[0] = yk_max_pool2d_with_indices(inputs[0], yk__module_data(m), &outputs[1]);
    return outputs[0] ? YK_OK : yk__error_code();
}

static void pool2d_describe(yk_module *m, char *buffer, size_t size);

static const yk_module_class max_pool2d_class = {.name = "MaxPool2d",
                                                 .data_size = sizeof(yk_pool2d_options),
                                                 .forward = max_pool2d_forward,
                                                 .forward_list = max_pool2d_forward_list,
                                                 .describe = pool2d_describe};
static const yk_module_class avg_pool2d_class = {.name = "AvgPool2d",
                                                 .data_size = sizeof(yk_pool2d_options),
                                                 .forward = avg_pool2d_forward,
                                                 .describe = pool2d_describe};

static void pool2d_describe(yk_module *m, char *buffer, size_t size)
{
    const yk_pool2d_options *o = yk__module_data(m);
    char kernel[64], stride[64], padding[64], dilation[64];
    int used = snprintf(buffer, size, "kernel_size=%s, stride=%s, padding=%s", pair_text(o->kernel, kernel),
                        pair_text(o->stride, stride), pair_text(o->padding, padding));
    if (m->cls == &max_pool2d_class)
        snprintf(buffer + used, size - (size_t)used, ", dilation=%s, ceil_mode=%s", pair_text(o->dilation, dilation),
                 o->ceil_mode ? "True" : "False");
}

static yk_module *pool2d_create(const yk_module_class *cls, const char *what, int64_t kernel, int64_t stride,
                                const yk_pool2d_options *options)
{
    yk_pool2d_options o;
    if (YK__OPTIONS_TAKE(what, yk_pool2d_options, options, &o))
        return NULL;
    bool max = cls == &max_pool2d_class;
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = yk__integer_or(o.kernel[i], kernel);
        o.stride[i] = yk__integer_or(o.stride[i], stride ? stride : o.kernel[i]);
        /* Half of what the window reaches over: (kernel - 1) dilation + 1. Sizes that overflow fail in the operation.
         */
        int64_t reach = o.dilation[i] == 1 ? o.kernel[i] : INT64_MAX;
        if (o.dilation[i] > 1 && o.kernel[i] > 0 && o.kernel[i] < INT64_MAX / o.dilation[i])
            reach = (o.kernel[i] - 1) * o.dilation[i] + 1;
        bool fits = max || o.dilation[i] == 1;
        if (o.kernel[i] < 1 || o.stride[i] < 1 || o.dilation[i] < 1 || o.padding[i] < 0 || o.padding[i] > reach / 2 ||
            !fits) {
            yk__fail(YK_ERR_ARGUMENT,
                     "%s: kernel %lld, stride %lld, padding %lld, dilation %lld: kernel, stride and dilation must be "
                     "at least 1%s, padding at most half of what the kernel covers",
                     what, (long long)o.kernel[i], (long long)o.stride[i], (long long)o.padding[i],
                     (long long)o.dilation[i], max ? "" : ", dilation not above it");
            return NULL;
        }
    }
    if (o.divisor_override != YK_NOT_GIVEN &&
        yk__check_integer(what, "divisor_override", o.divisor_override, 1, INT64_MAX))
        return NULL;
    yk_module *m = yk_module_create(cls);
    if (m)
        *(yk_pool2d_options *)yk__module_data(m) = o;
    return m;
}

yk_module *yk_max_pool2d_create(int64_t kernel, int64_t stride, const yk_pool2d_options *options)
{
    return pool2d_create(&max_pool2d_class, "max_pool2d_create", kernel, stride, options);
}

yk_module *yk_avg_pool2d_create(int64_t kernel, int64_t stride, const yk_pool2d_options *options)
{
    return pool2d_create(&avg_pool2d_class, "avg_pool2d_create", kernel, stride, options);
}

static yk_tensor *adaptive_avg_pool2d_forward(yk_module *m, yk_tensor *x)
{
    const int64_t *size = yk__module_data(m);
    return yk_adaptive_avg_pool2d(x, size[0], size[1]);
}

static void adaptive_avg_pool2d_describe(yk_module *m, char *buffer, size_t size)
{
    const int64_t *output = yk__module_data(m);
    char text[2][24];
    for (int i = 0; i < 2; i++) {
        if (output[i] == YK_NOT_GIVEN)
            snprintf(text[i], sizeof(text[i]), "None");
        else
            snprintf(text[i], sizeof(text[i]), "%lld", (long long)output[i]);
    }
    snprintf(buffer, size, "output_size=(%s, %s)", text[0], text[1]);
}

static const yk_module_class adaptive_avg_pool2d_class = {.name = "AdaptiveAvgPool2d",
                                                          .data_size = 2 * sizeof(int64_t),
                                                          .forward = adaptive_avg_pool2d_forward,
                                                          .describe = adaptive_avg_pool2d_describe};

yk_module *yk_adaptive_avg_pool2d_create(int64_t height, int64_t width)
{
    if ((height < 1 && height != YK_NOT_GIVEN) || (width < 1 && width != YK_NOT_GIVEN)) {
        yk__fail(YK_ERR_ARGUMENT, "adaptive_avg_pool2d_create: output size (%lld, %lld): both must be at least 1",
                 (long long)height, (long long)width);
        return NULL;
    }
    yk_module *m = yk_module_create(&adaptive_avg_pool2d_class);
    if (m) {
        int64_t *size = yk_module_data(m);
        size[0] = height;
        size[1] = width;
    }
    return m;
}

/* ---- Flatten ----------------------------------------------------------------------------------------------------- */

static yk_tensor *flatten_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    return yk_flatten(x, 1, -1);
}

static void flatten_describe(yk_module *m, char *buffer, size_t size)
{
    (void)m;
    snprintf(buffer, size, "start_dim=1, end_dim=-1");
}

static const yk_module_class flatten_class = {
    .name = "Flatten", .forward = flatten_forward, .describe = flatten_describe};

yk_module *yk_flatten_create(void)
{
    return yk_module_create(&flatten_class);
}
