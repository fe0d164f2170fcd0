/*
 * activation_module.c - activations as layers: a line for each that has no numbers, and any function of one tensor.
 * Layer: nn.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "nn/module.h"
#include "ops/op.h"

/* ---- without numbers ---- */

#define FUNCTION(label, class_name, call)                                                                              \
    static yk_tensor *label##_forward(yk_module *m, yk_tensor *x)                                                      \
    {                                                                                                                  \
        (void)m;                                                                                                       \
        return call;                                                                                                   \
    }                                                                                                                  \
    yk_module *yk_##label##_create(void)                                                                               \
    {                                                                                                                  \
        static const yk_module_class cls = {.name = class_name, .forward = label##_forward};                           \
        return yk_module_create(&cls);                                                                                 \
    }
FUNCTION(silu, "SiLU", yk_silu(x))
FUNCTION(mish, "Mish", yk_mish(x))
FUNCTION(relu6, "ReLU6", yk_relu6(x))
FUNCTION(selu, "SELU", yk_selu(x))
FUNCTION(hardswish, "Hardswish", yk_hardswish(x))
FUNCTION(hardsigmoid, "Hardsigmoid", yk_hardsigmoid(x))
FUNCTION(log_sigmoid, "LogSigmoid", yk_log_sigmoid(x))

static yk_tensor *gelu_tanh_forward(yk_module *m, yk_tensor *x)
{
    (void)m;
    return yk_gelu_tanh(x);
}

static void gelu_tanh_describe(yk_module *m, char *buffer, size_t size)
{
    (void)m;
    snprintf(buffer, size, "approximate='tanh'");
}

yk_module *yk_gelu_tanh_create(void)
{
    static const yk_module_class cls = {.name = "GELU", .forward = gelu_tanh_forward, .describe = gelu_tanh_describe};
    return yk_module_create(&cls);
}

/* ---- any function ---- */

static yk_tensor *function_forward(yk_module *m, yk_tensor *x)
{
    yk_function f;
    memcpy(&f, yk__module_data(m), sizeof(f));
    return f(x);
}

yk_module *yk_function_create(yk_function function)
{
    static const yk_module_class cls = {
        .name = "Function", .data_size = sizeof(yk_function), .forward = function_forward};
    if (!function) {
        yk__fail(YK_ERR_ARGUMENT, "function_create: the function is NULL");
        return NULL;
    }
    yk_module *m = yk_module_create(&cls);
    if (m)
        memcpy(yk_module_data(m), &function, sizeof(function));
    return m;
}

/* ---- with numbers ---- */

typedef struct numbers {
    double of[2];
    int dim;
} numbers;

static yk_module *with_numbers(const yk_module_class *cls, numbers n)
{
    yk_module *m = yk_module_create(cls);
    if (m)
        *(numbers *)yk__module_data(m) = n;
    return m;
}

static void describe_numbers(yk_module *m, char *buffer, size_t size, const char *first, const char *second)
{
    const numbers *n = yk__module_data(m);
    char text[2][YK__NUMBER_ROOM];
    int used = snprintf(buffer, size, "%s=%s", first, yk__module_number(n->of[0], text[0]));
    if (second && used > 0 && (size_t)used < size)
        snprintf(buffer + used, size - (size_t)used, ", %s=%s", second, yk__module_number(n->of[1], text[1]));
}

#define NUMBERED(label, class_name, call, first, second)                                                               \
    static yk_tensor *label##_forward(yk_module *m, yk_tensor *x)                                                      \
    {                                                                                                                  \
        const numbers *n = yk_module_data(m);                                                                          \
        return call;                                                                                                   \
    }                                                                                                                  \
    static void label##_describe(yk_module *m, char *buffer, size_t size)                                              \
    {                                                                                                                  \
        describe_numbers(m, buffer, size, first, second);                                                              \
    }                                                                                                                  \
    static const yk_module_class label##_class = {                                                                     \
        .name = class_name, .data_size = sizeof(numbers), .forward = label##_forward, .describe = label##_describe};
NUMBERED(leaky_relu, "LeakyReLU", yk_leaky_relu(x, n->of[0]), "negative_slope", NULL)
NUMBERED(elu, "ELU", yk_elu(x, n->of[0]), "alpha", NULL)
NUMBERED(softplus, "Softplus", yk_softplus(x, n->of[0], n->of[1]), "beta", "threshold")

yk_module *yk_leaky_relu_create(double negative_slope)
{
    return yk__check_number("leaky_relu_create", "negative_slope", negative_slope, -DBL_MAX, DBL_MAX)
               ? NULL
               : with_numbers(&leaky_relu_class, (numbers){.of = {negative_slope}});
}

yk_module *yk_elu_create(double alpha)
{
    return yk__check_number("elu_create", "alpha", alpha, -DBL_MAX, DBL_MAX)
               ? NULL
               : with_numbers(&elu_class, (numbers){.of = {alpha}});
}

yk_module *yk_softplus_create(double beta, double threshold)
{
    return yk__check_positive("softplus_create", "beta", beta) ||
                   yk__check_number("softplus_create", "threshold", threshold, -DBL_MAX, INFINITY)
               ? NULL
               : with_numbers(&softplus_class, (numbers){.of = {beta, threshold}});
}

#define ALONG(label, class_name, call)                                                                                 \
    static yk_tensor *label##_forward(yk_module *m, yk_tensor *x)                                                      \
    {                                                                                                                  \
        int dim = ((const numbers *)yk_module_data(m))->dim;                                                           \
        return call;                                                                                                   \
    }                                                                                                                  \
    static void label##_describe(yk_module *m, char *buffer, size_t size)                                              \
    {                                                                                                                  \
        snprintf(buffer, size, "dim=%d", ((const numbers *)yk_module_data(m))->dim);                                   \
    }                                                                                                                  \
    yk_module *yk_##label##_create(int dim)                                                                            \
    {                                                                                                                  \
        static const yk_module_class cls = {.name = class_name,                                                        \
                                            .data_size = sizeof(numbers),                                              \
                                            .forward = label##_forward,                                                \
                                            .describe = label##_describe};                                             \
        return with_numbers(&cls, (numbers){.dim = dim});                                                              \
    }
ALONG(glu, "GLU", yk_glu(x, dim))
ALONG(softmax, "Softmax", yk_softmax(x, dim))
ALONG(log_softmax, "LogSoftmax", yk_log_softmax(x, dim))

/* ---- PReLU, which learns its slope ---- */

static yk_tensor *prelu_forward(yk_module *m, yk_tensor *x)
{
    return yk_prelu(x, *(yk_tensor **)yk__module_data(m));
}

static void prelu_describe(yk_module *m, char *buffer, size_t size)
{
    const yk_tensor *weight = *(yk_tensor **)yk__module_data(m);
    snprintf(buffer, size, "num_parameters=%lld", (long long)(weight ? weight->numel : 0));
}

yk_module *yk_prelu_create(int64_t num_parameters, double init)
{
    static const yk_module_class cls = {
        .name = "PReLU", .data_size = sizeof(yk_tensor *), .forward = prelu_forward, .describe = prelu_describe};
    if (yk__check_integer("prelu_create", "num_parameters", num_parameters, 1, INT64_MAX / 8) ||
        yk__check_number("prelu_create", "init", init, -DBL_MAX, DBL_MAX))
        return NULL;
    yk_module *m = yk_module_create(&cls);
    if (!m)
        return NULL;
    yk_tensor *weight = yk__module_tensor("PReLU", 1, &num_parameters, YK_F32);
    if (weight && yk__raw_fill(weight, init)) {
        yk_tensor_release(weight);
        weight = NULL;
    }
    *(yk_tensor **)yk_module_data(m) = yk__module_take_parameter(m, "weight", weight);
    return yk_module_check(m);
}
