/*
 * regroup_module.c - layers that give elements other places: Flatten and Unflatten, ChannelShuffle, and the paddings of
 * one to three dimensions. Layer: nn.
 */
#include <float.h>

#include "nn/module.h"

/* Appends to a description of `used` characters so far; those that it has then. */
#define APPEND(...)                                                                                                    \
    used += used >= 0 && (size_t)used < size ? snprintf(buffer + used, size - (size_t)used, __VA_ARGS__) : 0

/* ---- ChannelShuffle ---- */

static yk_tensor *channel_shuffle_forward(yk_module *m, yk_tensor *x)
{
    return yk_channel_shuffle(x, *(const int64_t *)yk_module_data(m));
}

static void channel_shuffle_describe(yk_module *m, char *buffer, size_t size)
{
    snprintf(buffer, size, "groups=%lld", (long long)*(const int64_t *)yk_module_data(m));
}

yk_module *yk_channel_shuffle_create(int64_t groups)
{
    static const yk_module_class cls = {.name = "ChannelShuffle",
                                        .data_size = sizeof(int64_t),
                                        .forward = channel_shuffle_forward,
                                        .describe = channel_shuffle_describe};
    if (yk__check_integer("channel_shuffle_create", "groups", groups, 1, INT32_MAX))
        return NULL;
    yk_module *m = yk_module_create(&cls);
    if (m)
        *(int64_t *)yk_module_data(m) = groups;
    return m;
}

/* ---- Flatten, Unflatten ---- */

static yk_tensor *flatten_dims_forward(yk_module *m, yk_tensor *x)
{
    const int *dims = yk_module_data(m);
    return yk_flatten(x, dims[0], dims[1]);
}

static void flatten_dims_describe(yk_module *m, char *buffer, size_t size)
{
    const int *dims = yk_module_data(m);
    snprintf(buffer, size, "start_dim=%d, end_dim=%d", dims[0], dims[1]);
}

yk_module *yk_flatten_dims_create(int start_dim, int end_dim)
{
    static const yk_module_class cls = {.name = "Flatten",
                                        .data_size = 2 * sizeof(int),
                                        .forward = flatten_dims_forward,
                                        .describe = flatten_dims_describe};
    yk_module *m = yk_module_create(&cls);
    int *dims = m ? yk_module_data(m) : NULL;
    if (dims) {
        dims[0] = start_dim;
        dims[1] = end_dim;
    }
    return m;
}

typedef struct unflatten {
    int dim, count;
    int64_t sizes[YK_MAX_DIMS];
} unflatten;

static yk_tensor *unflatten_forward(yk_module *m, yk_tensor *x)
{
    const unflatten *u = yk_module_data(m);
    return yk_unflatten(x, u->dim, u->count, u->sizes);
}

static void unflatten_describe(yk_module *m, char *buffer, size_t size)
{
    const unflatten *u = yk_module_data(m);
    int used = snprintf(buffer, size, "dim=%d, unflattened_size=(", u->dim);
    for (int i = 0; i < u->count; i++)
        APPEND("%s%lld%s", i ? ", " : "", (long long)u->sizes[i], u->count == 1 ? "," : "");
    APPEND(")");
}

yk_module *yk_unflatten_create(int dim, int n_sizes, const int64_t *sizes)
{
    static const yk_module_class cls = {.name = "Unflatten",
                                        .data_size = sizeof(unflatten),
                                        .forward = unflatten_forward,
                                        .describe = unflatten_describe};
    if (n_sizes < 1 || n_sizes > YK_MAX_DIMS || !sizes) {
        yk__fail(YK_ERR_ARGUMENT, "unflatten_create: %d sizes, expected 1 to %d", sizes ? n_sizes : 0, YK_MAX_DIMS);
        return NULL;
    }
    yk_module *m = yk_module_create(&cls);
    unflatten *u = m ? yk_module_data(m) : NULL;
    if (u) {
        u->dim = dim;
        u->count = n_sizes;
        for (int i = 0; i < n_sizes; i++)
            u->sizes[i] = sizes[i];
    }
    return m;
}

/* ---- paddings ---- */

enum { PAD_DIMS = 3 };

typedef struct padding {
    int64_t widths[2 * PAD_DIMS];
    int count;
    yk_pad_mode mode;
    double value;
} padding;

static yk_tensor *pad_forward(yk_module *m, yk_tensor *x)
{
    const padding *p = yk_module_data(m);
    return yk_pad(x, p->widths, p->count, p->mode, p->value);
}

static void pad_describe(yk_module *m, char *buffer, size_t size)
{
    const padding *p = yk_module_data(m);
    bool valued = p->mode == YK_PAD_CONSTANT && p->value != 0;
    char text[YK__NUMBER_ROOM];
    int used = snprintf(buffer, size, valued ? "padding=(" : "(");
    for (int i = 0; i < p->count; i++)
        APPEND("%s%lld", i ? ", " : "", (long long)p->widths[i]);
    APPEND(")");
    if (valued)
        APPEND(", value=%s", yk__module_number(p->value, text));
}

yk_module *yk_pad_create(int dims, const int64_t *padding_widths, yk_pad_mode mode, double value)
{
#define PAD_CLASS(shown)                                                                                               \
    {                                                                                                                  \
        .name = shown, .data_size = sizeof(padding), .forward = pad_forward, .describe = pad_describe                  \
    }
#define PAD_CLASSES(shown)                                                                                             \
    {                                                                                                                  \
        PAD_CLASS(shown "1d"), PAD_CLASS(shown "2d"), PAD_CLASS(shown "3d")                                            \
    }
    enum { ZERO = YK_PAD_CIRCULAR + 1 };
    static const yk_module_class classes[][PAD_DIMS] = {[YK_PAD_CONSTANT] = PAD_CLASSES("ConstantPad"),
                                                        [YK_PAD_REFLECT] = PAD_CLASSES("ReflectionPad"),
                                                        [YK_PAD_REPLICATE] = PAD_CLASSES("ReplicationPad"),
                                                        [YK_PAD_CIRCULAR] = PAD_CLASSES("CircularPad"),
                                                        [ZERO] = PAD_CLASSES("ZeroPad")};
    if (dims < 1 || dims > PAD_DIMS || !padding_widths || (unsigned)mode > YK_PAD_CIRCULAR) {
        yk__fail(YK_ERR_ARGUMENT,
                 "pad_create: %s of %d dimensions in mode %d, expected two widths for each of 1 to 3, and a mode of "
                 "constant, reflect, replicate and circular",
                 padding_widths ? "widths" : "no widths", dims, (int)mode);
        return NULL;
    }
    if (yk__check_number("pad_create", "value", value, -DBL_MAX, DBL_MAX))
        return NULL;
    bool zero = mode == YK_PAD_CONSTANT && value == 0;
    yk_module *m = yk_module_create(&classes[zero ? ZERO : (int)mode][dims - 1]);
    padding *p = m ? yk_module_data(m) : NULL;
    if (p) {
        *p = (padding){.count = 2 * dims, .mode = mode, .value = value};
        for (int i = 0; i < 2 * dims; i++)
            p->widths[i] = padding_widths[i];
    }
    return m;
}
