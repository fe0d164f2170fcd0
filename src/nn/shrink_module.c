/*
 * shrink_module.c - thresholds, shrinking, random slopes and the softmax of channels as layers. Layer: nn.
 */
#include <float.h>
#include <math.h>

#include "nn/module.h"

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

static yk_tensor *softmax_of_channels(yk_tensor *x)
{
    char text[200];
    if (!x)
        return NULL;
    if (x->ndim != 3 && x->ndim != 4) {
        yk__fail(YK_ERR_SHAPE, "softmax2d: input has shape %s, expected (N, C, H, W) or (C, H, W)",
                 yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    return yk_softmax(x, -3);
}

FUNCTION(tanhshrink, "Tanhshrink", yk_tanhshrink(x))
FUNCTION(softsign, "Softsign", yk_softsign(x))
FUNCTION(softmax2d, "Softmax2d", softmax_of_channels(x))

/* ---- with numbers ---- */

typedef struct pair_of_numbers {
    double of[2];
} pair_of_numbers;

/* A layer of `call`, which reads n->of[], with the text that `form` makes of the first and the second number. */
#define NUMBERED(label, class_name, call, form)                                                                        \
    static yk_tensor *label##_forward(yk_module *m, yk_tensor *x)                                                      \
    {                                                                                                                  \
        const pair_of_numbers *n = yk_module_data(m);                                                                  \
        return call;                                                                                                   \
    }                                                                                                                  \
    static void label##_describe(yk_module *m, char *buffer, size_t size)                                              \
    {                                                                                                                  \
        describe_pair(m, form, buffer, size);                                                                          \
    }                                                                                                                  \
    static const yk_module_class label##_class = {.name = class_name,                                                  \
                                                  .data_size = sizeof(pair_of_numbers),                                \
                                                  .forward = label##_forward,                                          \
                                                  .describe = label##_describe};

/* form[]: the words before the first number and before the second one, NULL for one number. */
static void describe_pair(yk_module *m, const char *const form[2], char *buffer, size_t size)
{
    const pair_of_numbers *n = yk_module_data(m);
    char text[2][YK__NUMBER_ROOM];
    int used = snprintf(buffer, size, "%s%s", form[0], yk__module_number(n->of[0], text[0]));
    if (form[1] && used > 0 && (size_t)used < size)
        snprintf(buffer + used, size - (size_t)used, "%s%s", form[1], yk__module_number(n->of[1], text[1]));
}

static yk_module *with_pair(const yk_module_class *cls, double first, double second)
{
    yk_module *m = yk_module_create(cls);
    if (m)
        *(pair_of_numbers *)yk_module_data(m) = (pair_of_numbers){{first, second}};
    return m;
}

#define FORM(...) ((const char *const[2]){__VA_ARGS__})
NUMBERED(threshold, "Threshold", yk_threshold(x, n->of[0], n->of[1]), FORM("threshold=", ", value="))
NUMBERED(hardtanh, "Hardtanh", yk_hardtanh(x, n->of[0], n->of[1]), FORM("min_val=", ", max_val="))
NUMBERED(hardshrink, "Hardshrink", yk_hardshrink(x, n->of[0]), FORM("", NULL))
NUMBERED(softshrink, "Softshrink", yk_softshrink(x, n->of[0]), FORM("", NULL))
NUMBERED(celu, "CELU", yk_celu(x, n->of[0]), FORM("alpha=", NULL))
NUMBERED(rrelu, "RReLU", yk_rrelu(x, n->of[0], n->of[1], yk_module_is_training(m)), FORM("lower=", ", upper="))

yk_module *yk_threshold_create(double threshold, double value)
{
    return yk__check_number("threshold_create", "threshold", threshold, -DBL_MAX, DBL_MAX) ||
                   yk__check_number("threshold_create", "value", value, -DBL_MAX, DBL_MAX)
               ? NULL
               : with_pair(&threshold_class, threshold, value);
}

yk_module *yk_hardtanh_create(double min_val, double max_val)
{
    return yk__check_number("hardtanh_create", "max_val", max_val, -DBL_MAX, DBL_MAX) ||
                   yk__check_number("hardtanh_create", "min_val", min_val, -DBL_MAX, max_val)
               ? NULL
               : with_pair(&hardtanh_class, min_val, max_val);
}

yk_module *yk_hardshrink_create(double lambd)
{
    return yk__check_number("hardshrink_create", "lambd", lambd, 0, DBL_MAX) ? NULL
                                                                             : with_pair(&hardshrink_class, lambd, 0);
}

yk_module *yk_softshrink_create(double lambd)
{
    return yk__check_number("softshrink_create", "lambd", lambd, 0, DBL_MAX) ? NULL
                                                                             : with_pair(&softshrink_class, lambd, 0);
}

yk_module *yk_celu_create(double alpha)
{
    if (alpha == 0 || !isfinite(alpha)) {
        yk__fail(YK_ERR_ARGUMENT, "celu_create: alpha is %g, expected a number other than 0", alpha);
        return NULL;
    }
    return with_pair(&celu_class, alpha, 0);
}

yk_module *yk_rrelu_create(double lower, double upper)
{
    return yk__check_number("rrelu_create", "upper", upper, -DBL_MAX, DBL_MAX) ||
                   yk__check_number("rrelu_create", "lower", lower, -DBL_MAX, upper)
               ? NULL
               : with_pair(&rrelu_class, lower, upper);
}

/* ---- along a dimension ---- */

static yk_tensor *softmin_forward(yk_module *m, yk_tensor *x)
{
    return yk_softmin(x, *(const int *)yk_module_data(m));
}

static void softmin_describe(yk_module *m, char *buffer, size_t size)
{
    snprintf(buffer, size, "dim=%d", *(const int *)yk_module_data(m));
}

yk_module *yk_softmin_create(int dim)
{
    static const yk_module_class cls = {
        .name = "Softmin", .data_size = sizeof(int), .forward = softmin_forward, .describe = softmin_describe};
    yk_module *m = yk_module_create(&cls);
    if (m)
        *(int *)yk_module_data(m) = dim;
    return m;
}

/* ---- dropout ---- */

#define DROPOUT(label, class_name)                                                                                     \
    static yk_tensor *label##_forward(yk_module *m, yk_tensor *x)                                                      \
    {                                                                                                                  \
        return yk_##label(x, *(const double *)yk_module_data(m), yk_module_is_training(m));                            \
    }                                                                                                                  \
    yk_module *yk_##label##_create(double p)                                                                           \
    {                                                                                                                  \
        static const yk_module_class cls = {.name = class_name,                                                        \
                                            .data_size = sizeof(double),                                               \
                                            .forward = label##_forward,                                                \
                                            .describe = dropout_describe};                                             \
        if (yk__check_number(#label "_create", "p", p, 0, 1))                                                          \
            return NULL;                                                                                               \
        yk_module *m = yk_module_create(&cls);                                                                         \
        if (m)                                                                                                         \
            *(double *)yk_module_data(m) = p;                                                                          \
        return m;                                                                                                      \
    }

static void dropout_describe(yk_module *m, char *buffer, size_t size)
{
    char text[YK__NUMBER_ROOM];
    snprintf(buffer, size, "p=%s, inplace=False", yk__module_number(*(const double *)yk_module_data(m), text));
}
DROPOUT(dropout1d, "Dropout1d")
DROPOUT(dropout2d, "Dropout2d")
DROPOUT(dropout3d, "Dropout3d")
DROPOUT(alpha_dropout, "AlphaDropout")
DROPOUT(feature_alpha_dropout, "FeatureAlphaDropout")
