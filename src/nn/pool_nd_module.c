/*
 * pool_nd_module.c - pools along one and three dimensions, and adaptive pools, as layers. Layer: nn.
 */
#include "nn/module.h"

/* A class of these, and what its constructor and forward call. */
typedef struct pool_kind {
    yk_module_class cls; /* the first: a module's class is its kind */
    const char *name;
    int axes;
    bool max, tuples; /* tuples: one number is printed as one of a tuple */
    yk_tensor *(*function)(yk_tensor *x, const yk_pool_options *options);
} pool_kind;

static const pool_kind *kind_of(const yk_module *m)
{
    return (const pool_kind *)(const void *)m->cls;
}

static yk_tensor *pool_forward(yk_module *m, yk_tensor *x)
{
    return kind_of(m)->function(x, yk__module_data(m));
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

#define POOL(label, class_name, n, is_max, prints_tuples)                                                              \
    yk_module *yk_##label##_create(int64_t kernel, int64_t stride, const yk_pool_options *options)                     \
    {                                                                                                                  \
        static const pool_kind kind = {.cls = {.name = class_name,                                                     \
                                               .data_size = sizeof(yk_pool_options),                                   \
                                               .forward = pool_forward,                                                \
                                               .describe = pool_describe},                                             \
                                       .name = #label "_create",                                                       \
                                       .axes = (n),                                                                    \
                                       .max = (is_max),                                                                \
                                       .tuples = (prints_tuples),                                                      \
                                       .function = yk_##label};                                                        \
        return pool_create(&kind, kernel, stride, options);                                                            \
    }
POOL(max_pool1d, "MaxPool1d", 1, true, false)
POOL(max_pool3d, "MaxPool3d", 3, true, false)
POOL(avg_pool1d, "AvgPool1d", 1, false, true)
POOL(avg_pool3d, "AvgPool3d", 3, false, false)

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
