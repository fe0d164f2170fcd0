/*
 * pool_nd_module.c - pools along one and three dimensions, adaptive and fractional ones, unpooling and p-norms as
 * layers. Layer: nn.
 */
#include <math.h>

#include "nn/module.h"

/* A class of these, and what its constructor and forward call. */
typedef struct pool_kind {
    yk_module_class cls; /* the first: a module's class is its kind */
    const char *name;
    int axes;
    bool max, tuples; /* tuples: one number is printed as one of a tuple */
    yk_tensor *(*function)(yk_tensor *x, const yk_pool_options *options);
    yk_tensor *(*with_indices)(yk_tensor *x, const yk_pool_options *options, yk_tensor **indices); /* of maxima */
} pool_kind;

static const pool_kind *kind_of(const yk_module *m)
{
    return (const pool_kind *)(const void *)m->cls;
}

static yk_tensor *pool_forward(yk_module *m, yk_tensor *x)
{
    return kind_of(m)->function(x, yk__module_data(m));
}

/* Maxima and their indices. */
static yk_status pool_forward_list(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                   int n_outputs)
{
    const pool_kind *kind = kind_of(m);
    if (n_inputs != 1 || !inputs[0] || n_outputs != 2 || !kind->max)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d inputs and %d outputs, expected one tensor%s", kind->cls.name,
                        n_inputs, n_outputs, kind->max ? " for one, or for maxima and indices" : " for one");
    outputs[0] = kind->with_indices(inputs[0], yk__module_data(m), &outputs[1]);
    return outputs[0] ? YK_OK : yk__error_code();
}

enum { NUMBERS = 72 };

/* "2" for equal numbers, "(2, 3, 3)" for others, as PyTorch prints what it was given. */
static const char *numbers_text(int count, const int64_t *of, bool tuple, char text[NUMBERS])
{
    bool equal = !tuple;
    for (int i = 1; i < count; i++)
        equal = equal && of[i] == of[0];
    if (equal)
        snprintf(text, NUMBERS, "%lld", (long long)of[0]);
    else if (count == 1)
        snprintf(text, NUMBERS, "(%lld,)", (long long)of[0]);
    else if (count == 2)
        snprintf(text, NUMBERS, "(%lld, %lld)", (long long)of[0], (long long)of[1]);
    else
        snprintf(text, NUMBERS, "(%lld, %lld, %lld)", (long long)of[0], (long long)of[1], (long long)of[2]);
    return text;
}

static void pool_describe(yk_module *m, char *buffer, size_t size)
{
    const pool_kind *kind = kind_of(m);
    const yk_pool_options *o = yk__module_data(m);
    char kernel[NUMBERS], stride[NUMBERS], padding[NUMBERS], dilation[NUMBERS];
    int used = snprintf(buffer, size, "kernel_size=%s, stride=%s, padding=%s",
                        numbers_text(kind->axes, o->kernel, kind->tuples, kernel),
                        numbers_text(kind->axes, o->stride, kind->tuples, stride),
                        numbers_text(kind->axes, o->padding, kind->tuples, padding));
    if (kind->max && used > 0 && (size_t)used < size)
        snprintf(buffer + used, size - (size_t)used, ", dilation=%s, ceil_mode=%s",
                 numbers_text(kind->axes, o->dilation, false, dilation), o->ceil_mode ? "True" : "False");
}

static yk_module *pool_create(const pool_kind *kind, int64_t kernel, int64_t stride, const yk_pool_options *options)
{
    yk_pool_options o;
    if (YK__OPTIONS_TAKE(kind->name, yk_pool_options, options, &o))
        return NULL;
    for (int i = 0; i < kind->axes; i++) {
        o.kernel[i] = yk__integer_or(o.kernel[i], kernel);
        o.stride[i] = yk__integer_or(o.stride[i], stride ? stride : o.kernel[i]);
        /* Half of what the window reaches over: (kernel - 1) dilation + 1. Sizes that overflow fail in the operation.
         */
        int64_t reach = o.dilation[i] == 1 ? o.kernel[i] : INT64_MAX;
        if (o.dilation[i] > 1 && o.kernel[i] > 0 && o.kernel[i] < INT64_MAX / o.dilation[i])
            reach = (o.kernel[i] - 1) * o.dilation[i] + 1;
        if (o.kernel[i] < 1 || o.stride[i] < 1 || o.dilation[i] < 1 || o.padding[i] < 0 || o.padding[i] > reach / 2 ||
            (!kind->max && o.dilation[i] != 1)) {
            yk__fail(YK_ERR_ARGUMENT,
                     "%s: kernel %lld, stride %lld, padding %lld, dilation %lld: kernel, stride and dilation must be "
                     "at least 1%s, padding at most half of what the kernel covers",
                     kind->name, (long long)o.kernel[i], (long long)o.stride[i], (long long)o.padding[i],
                     (long long)o.dilation[i], kind->max ? "" : ", dilation not above it");
            return NULL;
        }
    }
    if (o.divisor_override != YK_NOT_GIVEN &&
        yk__check_integer(kind->name, "divisor_override", o.divisor_override, 1, INT64_MAX))
        return NULL;
    yk_module *m = yk_module_create(&kind->cls);
    if (m)
        *(yk_pool_options *)yk__module_data(m) = o;
    return m;
}

#define POOL(label, class_name, n, is_max, prints_tuples, and_indices)                                                 \
    yk_module *yk_##label##_create(int64_t kernel, int64_t stride, const yk_pool_options *options)                     \
    {                                                                                                                  \
        static const pool_kind kind = {.cls = {.name = class_name,                                                     \
                                               .data_size = sizeof(yk_pool_options),                                   \
                                               .forward = pool_forward,                                                \
                                               .forward_list = pool_forward_list,                                      \
                                               .describe = pool_describe},                                             \
                                       .with_indices = (and_indices),                                                  \
                                       .name = #label "_create",                                                       \
                                       .axes = (n),                                                                    \
                                       .max = (is_max),                                                                \
                                       .tuples = (prints_tuples),                                                      \
                                       .function = yk_##label};                                                        \
        return pool_create(&kind, kernel, stride, options);                                                            \
    }
POOL(max_pool1d, "MaxPool1d", 1, true, false, yk_max_pool1d_with_indices)
POOL(max_pool3d, "MaxPool3d", 3, true, false, yk_max_pool3d_with_indices)
POOL(avg_pool1d, "AvgPool1d", 1, false, true, NULL)
POOL(avg_pool3d, "AvgPool3d", 3, false, false, NULL)

/* ---- adaptive ---- */

typedef struct sizes {
    int count;
    int64_t of[3];
} sizes;

static void sizes_describe(yk_module *m, char *buffer, size_t size)
{
    const sizes *s = yk__module_data(m);
    char text[3][24];
    bool equal = true;
    for (int i = 0; i < s->count; i++) {
        if (s->of[i] == YK_NOT_GIVEN)
            snprintf(text[i], sizeof(text[i]), "None");
        else
            snprintf(text[i], sizeof(text[i]), "%lld", (long long)s->of[i]);
        equal = equal && s->of[i] == s->of[0];
    }
    int used = snprintf(buffer, size, "output_size=%s%s", equal ? "" : "(", text[0]);
    for (int i = 1; i < s->count && !equal && used > 0 && (size_t)used < size; i++)
        used += snprintf(buffer + used, size - (size_t)used, ", %s%s", text[i], i == s->count - 1 ? ")" : "");
}

static yk_module *sizes_create(const yk_module_class *cls, const char *name, sizes s)
{
    for (int i = 0; i < s.count; i++) {
        if (s.of[i] < 1 && s.of[i] != YK_NOT_GIVEN) {
            yk__fail(YK_ERR_ARGUMENT, "%s: an output size of %lld, expected at least 1", name, (long long)s.of[i]);
            return NULL;
        }
    }
    yk_module *m = yk_module_create(cls);
    if (m)
        *(sizes *)yk__module_data(m) = s;
    return m;
}

#define SIZES(...) __VA_ARGS__
/* A layer of the operation `label`, called with the sizes `given`, parameters of the constructor. */
#define ADAPTIVE(label, class_name, n, parameters, given, call)                                                        \
    static yk_tensor *label##_forward(yk_module *m, yk_tensor *x)                                                      \
    {                                                                                                                  \
        const int64_t *of = ((const sizes *)yk_module_data(m))->of;                                                    \
        return call;                                                                                                   \
    }                                                                                                                  \
    yk_module *yk_##label##_create(parameters)                                                                         \
    {                                                                                                                  \
        static const yk_module_class cls = {                                                                           \
            .name = class_name, .data_size = sizeof(sizes), .forward = label##_forward, .describe = sizes_describe};   \
        return sizes_create(&cls, #label "_create", (sizes){.count = (n), .of = {given}});                             \
    }
ADAPTIVE(adaptive_avg_pool1d, "AdaptiveAvgPool1d", 1, int64_t length, length, yk_adaptive_avg_pool1d(x, of[0]))
ADAPTIVE(adaptive_max_pool1d, "AdaptiveMaxPool1d", 1, int64_t length, length, yk_adaptive_max_pool1d(x, of[0]))
ADAPTIVE(adaptive_max_pool2d, "AdaptiveMaxPool2d", 2, SIZES(int64_t height, int64_t width), SIZES(height, width),
         yk_adaptive_max_pool2d(x, of[0], of[1]))
ADAPTIVE(adaptive_avg_pool3d, "AdaptiveAvgPool3d", 3, SIZES(int64_t depth, int64_t height, int64_t width),
         SIZES(depth, height, width), yk_adaptive_avg_pool3d(x, of[0], of[1], of[2]))
ADAPTIVE(adaptive_max_pool3d, "AdaptiveMaxPool3d", 3, SIZES(int64_t depth, int64_t height, int64_t width),
         SIZES(depth, height, width), yk_adaptive_max_pool3d(x, of[0], of[1], of[2]))

/* ---- maxima of windows at random places ---- */

/* A class of these: a module's class is its kind. Its options' samples are the buffer that PyTorch calls so. */
typedef struct fractional_kind {
    yk_module_class cls;
    const char *name;
    int axes;
    yk_tensor *(*function)(yk_tensor *x, const yk_fractional_max_pool_options *options);
    yk_tensor *(*with_indices)(yk_tensor *x, const yk_fractional_max_pool_options *options, yk_tensor **indices);
} fractional_kind;

static yk_tensor *fractional_forward(yk_module *m, yk_tensor *x)
{
    return ((const fractional_kind *)(const void *)m->cls)->function(x, yk__module_data(m));
}

static yk_status fractional_forward_list(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                         int n_outputs)
{
    const fractional_kind *kind = (const fractional_kind *)(const void *)m->cls;
    if (n_inputs != 1 || !inputs[0] || n_outputs != 2)
        return yk__fail(YK_ERR_ARGUMENT,
                        "%s: %d inputs and %d outputs, expected one tensor for one, or for maxima and indices",
                        kind->cls.name, n_inputs, n_outputs);
    outputs[0] = kind->with_indices(inputs[0], yk__module_data(m), &outputs[1]);
    return outputs[0] ? YK_OK : yk__error_code();
}

static yk_module *fractional_create(const fractional_kind *kind, const yk_fractional_max_pool_options *options)
{
    yk_fractional_max_pool_options o;
    if (YK__OPTIONS_TAKE(kind->name, yk_fractional_max_pool_options, options, &o))
        return NULL;
    if (o.random_samples && yk__is_freed(o.random_samples)) {
        yk__fail_freed(kind->name, o.random_samples);
        return NULL;
    }
    for (int i = 0; i < kind->axes; i++) {
        bool by_size = o.output_size[i] != YK_NOT_GIVEN, by_ratio = o.output_ratio[i] != YK_NOT_GIVEN;
        if (o.kernel[i] < 1 || by_size == by_ratio || (by_size && o.output_size[i] < 1) ||
            (by_ratio && !(o.output_ratio[i] > 0 && o.output_ratio[i] < 1))) {
            yk__fail(YK_ERR_ARGUMENT,
                     "%s: kernel %lld; it must be at least 1, and one of output_size, at least 1, and output_ratio, "
                     "above 0 and below 1, must be given",
                     kind->name, (long long)o.kernel[i]);
            return NULL;
        }
    }
    yk_module *m = yk_module_create(&kind->cls);
    if (!m)
        return NULL;
    if (o.random_samples) {
        o.random_samples = yk_module_add_buffer(m, "_random_samples", o.random_samples);
        if (!o.random_samples)
            return NULL;
    }
    *(yk_fractional_max_pool_options *)yk__module_data(m) = o;
    return m;
}

#define FRACTIONAL(n)                                                                                                  \
    yk_module *yk_fractional_max_pool##n##d_create(const yk_fractional_max_pool_options *options)                      \
    {                                                                                                                  \
        static const fractional_kind kind = {.cls = {.name = "FractionalMaxPool" #n "d",                               \
                                                     .data_size = sizeof(yk_fractional_max_pool_options),              \
                                                     .forward = fractional_forward,                                    \
                                                     .forward_list = fractional_forward_list},                         \
                                             .name = "fractional_max_pool" #n "d_create",                              \
                                             .axes = n,                                                                \
                                             .function = yk_fractional_max_pool##n##d,                                 \
                                             .with_indices = yk_fractional_max_pool##n##d_with_indices};               \
        return fractional_create(&kind, options);                                                                      \
    }
FRACTIONAL(2)
FRACTIONAL(3)

/* ---- maxima put back ---- */

/* A class of these: a module's class is its kind. */
typedef struct unpool_kind {
    yk_module_class cls;
    const char *name;
    int axes;
    yk_tensor *(*function)(yk_tensor *x, yk_tensor *indices, const yk_max_unpool_options *options);
} unpool_kind;

static yk_status unpool_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                int n_outputs)
{
    const unpool_kind *kind = (const unpool_kind *)(const void *)m->cls;
    if (n_inputs != 2 || !inputs[0] || !inputs[1] || n_outputs != 1)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d inputs and %d outputs, expected x and indices for one tensor",
                        kind->cls.name, n_inputs, n_outputs);
    outputs[0] = kind->function(inputs[0], inputs[1], yk_module_data(m));
    return outputs[0] ? YK_OK : yk_last_error() ? yk_last_error()->code : YK_ERR_INTERNAL;
}

/* The numbers as a tuple, as PyTorch keeps them. */
static const char *tuple_text(int count, const int64_t *of, char text[NUMBERS])
{
    int used = snprintf(text, NUMBERS, "(%lld", (long long)of[0]);
    for (int i = 1; i < count; i++)
        used += snprintf(text + used, (size_t)(NUMBERS - used), ", %lld", (long long)of[i]);
    snprintf(text + used, (size_t)(NUMBERS - used), count == 1 ? ",)" : ")");
    return text;
}

static void unpool_describe(yk_module *m, char *buffer, size_t size)
{
    const yk_max_unpool_options *o = yk_module_data(m);
    int axes = ((const unpool_kind *)(const void *)m->cls)->axes;
    char kernel[NUMBERS], stride[NUMBERS], padding[NUMBERS];
    snprintf(buffer, size, "kernel_size=%s, stride=%s, padding=%s", tuple_text(axes, o->kernel, kernel),
             tuple_text(axes, o->stride, stride), tuple_text(axes, o->padding, padding));
}

static yk_module *unpool_create(const unpool_kind *kind, const yk_max_unpool_options *options)
{
    yk_max_unpool_options o;
    if (YK__OPTIONS_TAKE(kind->name, yk_max_unpool_options, options, &o))
        return NULL;
    for (int i = 0; i < kind->axes; i++) {
        o.stride[i] = yk__integer_or(o.stride[i], o.kernel[i]);
        if (o.kernel[i] < 1 || o.stride[i] < 1 || o.padding[i] < 0) {
            yk__fail(YK_ERR_ARGUMENT, "%s: kernel %lld, stride %lld, padding %lld: only padding may be 0", kind->name,
                     (long long)o.kernel[i], (long long)o.stride[i], (long long)o.padding[i]);
            return NULL;
        }
    }
    yk_module *m = yk_module_create(&kind->cls);
    if (m)
        *(yk_max_unpool_options *)yk_module_data(m) = o;
    return m;
}

#define UNPOOL(n)                                                                                                      \
    yk_module *yk_max_unpool##n##d_create(const yk_max_unpool_options *options)                                        \
    {                                                                                                                  \
        static const unpool_kind kind = {.cls = {.name = "MaxUnpool" #n "d",                                           \
                                                 .data_size = sizeof(yk_max_unpool_options),                           \
                                                 .forward_list = unpool_forward,                                       \
                                                 .describe = unpool_describe},                                         \
                                         .name = "max_unpool" #n "d_create",                                           \
                                         .axes = n,                                                                    \
                                         .function = yk_max_unpool##n##d};                                             \
        return unpool_create(&kind, options);                                                                          \
    }
UNPOOL(1)
UNPOOL(2)
UNPOOL(3)

/* ---- p-norms ---- */

typedef struct lp_layer {
    double p;
    int axes;
    yk_pool_options o;
} lp_layer;

static void lp_describe(yk_module *m, char *buffer, size_t size)
{
    const lp_layer *l = yk_module_data(m);
    char kernel[NUMBERS], stride[NUMBERS];
    snprintf(buffer, size, "norm_type=%.12g, kernel_size=%s, stride=%s, ceil_mode=%s", l->p,
             numbers_text(l->axes, l->o.kernel, false, kernel),
             l->o.stride[0] == YK_NOT_GIVEN ? "None" : numbers_text(l->axes, l->o.stride, false, stride),
             l->o.ceil_mode ? "True" : "False");
}

static yk_module *lp_create(const yk_module_class *cls, const char *name, int axes, double p,
                            const yk_pool_options *options)
{
    lp_layer l = {.p = p, .axes = axes};
    if (YK__OPTIONS_TAKE(name, yk_pool_options, options, &l.o))
        return NULL;
    if (p == 0 || !isfinite(p)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: p is %g, expected a number other than 0", name, p);
        return NULL;
    }
    for (int i = 0; i < axes; i++) {
        if (l.o.kernel[i] < 1 || (l.o.stride[i] < 1 && l.o.stride[i] != YK_NOT_GIVEN) || l.o.padding[i] ||
            l.o.dilation[i] != 1 || l.o.divisor_override != YK_NOT_GIVEN) {
            yk__fail(YK_ERR_ARGUMENT,
                     "%s: kernel %lld, stride %lld: both must be at least 1; padding, dilation and divisor_override "
                     "are not for it",
                     name, (long long)l.o.kernel[i], (long long)l.o.stride[i]);
            return NULL;
        }
    }
    yk_module *m = yk_module_create(cls);
    if (m)
        *(lp_layer *)yk_module_data(m) = l;
    return m;
}

#define LP_POOL(n)                                                                                                     \
    static yk_tensor *lp_pool##n##d_forward(yk_module *m, yk_tensor *x)                                                \
    {                                                                                                                  \
        const lp_layer *l = yk_module_data(m);                                                                         \
        return yk_lp_pool##n##d(x, l->p, &l->o);                                                                       \
    }                                                                                                                  \
    yk_module *yk_lp_pool##n##d_create(double p, const yk_pool_options *options)                                       \
    {                                                                                                                  \
        static const yk_module_class cls = {.name = "LPPool" #n "d",                                                   \
                                            .data_size = sizeof(lp_layer),                                             \
                                            .forward = lp_pool##n##d_forward,                                          \
                                            .describe = lp_describe};                                                  \
        return lp_create(&cls, "lp_pool" #n "d_create", n, p, options);                                                \
    }
LP_POOL(1)
LP_POOL(2)
LP_POOL(3)
