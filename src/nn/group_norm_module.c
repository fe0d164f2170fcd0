/*
 * group_norm_module.c - GroupNorm, InstanceNorm1d to 3d, RMSNorm and LocalResponseNorm. Layer: nn.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "nn/module.h"
#include "tensor/tensor.h"

static const char *python_bool(bool b)
{
    return b ? "True" : "False";
}

/* ---- GroupNorm ---- */

typedef struct group_norm {
    yk_tensor *weight, *bias;
    int64_t groups, channels;
    double eps;
} group_norm;

static yk_tensor *group_norm_forward(yk_module *m, yk_tensor *x)
{
    group_norm *d = yk__module_data(m);
    if (x->ndim >= 2 && x->shape[1] != d->channels) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "group_norm: input has shape %s, expected (N, %lld, ...)",
                 yk_shape_format(x, text, sizeof(text)), (long long)d->channels);
        return NULL;
    }
    return yk_group_norm(x, d->groups, d->weight, d->bias, d->eps);
}

static void group_norm_describe(yk_module *m, char *buffer, size_t size)
{
    group_norm *d = yk__module_data(m);
    char eps[YK__NUMBER_ROOM];
    snprintf(buffer, size, "%lld, %lld, eps=%s, affine=%s, bias=%s", (long long)d->groups, (long long)d->channels,
             yk__module_number(d->eps, eps), python_bool(d->weight), python_bool(d->bias));
}

yk_module *yk_group_norm_create(int64_t num_groups, int64_t num_channels, const yk_group_norm_options *options)
{
    static const yk_module_class cls = {.name = "GroupNorm",
                                        .data_size = sizeof(group_norm),
                                        .forward = group_norm_forward,
                                        .describe = group_norm_describe};
    yk_group_norm_options o;
    if (YK__OPTIONS_TAKE("group_norm_create", yk_group_norm_options, options, &o) ||
        yk__check_integer("group_norm_create", "num_groups", num_groups, 1, INT64_MAX) ||
        yk__check_integer("group_norm_create", "num_channels", num_channels, 1, INT64_MAX) ||
        yk__check_number("group_norm_create", "eps", o.eps, 0, INFINITY))
        return NULL;
    if (num_channels % num_groups) {
        yk__fail(YK_ERR_ARGUMENT, "group_norm_create: num_channels %lld do not divide into num_groups %lld",
                 (long long)num_channels, (long long)num_groups);
        return NULL;
    }
    yk_module *m = yk_module_create(&cls);
    if (!m)
        return NULL;
    group_norm *d = yk_module_data(m);
    d->groups = num_groups;
    d->channels = num_channels;
    d->eps = o.eps;
    if (o.affine) {
        d->weight = yk__module_constant_parameter(m, "weight", 1, &num_channels, 1);
        if (o.bias)
            d->bias = yk__module_constant_parameter(m, "bias", 1, &num_channels, 0);
    }
    return yk_module_check(m);
}

/* ---- InstanceNorm ---- */

typedef struct instance_norm {
    yk_tensor *weight, *bias, *running_mean, *running_var;
    int64_t features;
    double eps, momentum;
} instance_norm;

/* A class of these: along how many dimensions, and their names in errors. */
typedef struct instance_kind {
    yk_module_class cls; /* the first: a module's class is its kind */
    const char *name;
    int axes;
    const char *sizes;
} instance_kind;

static yk_tensor *instance_norm_forward(yk_module *m, yk_tensor *x)
{
    const instance_kind *kind = (const instance_kind *)(const void *)m->cls;
    instance_norm *d = yk__module_data(m);
    bool one = x->ndim == kind->axes + 1;
    if ((x->ndim != kind->axes + 2 && !one) || x->shape[one ? 0 : 1] != d->features) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (N, %lld, %s) or (%lld, %s)", kind->name,
                 yk_shape_format(x, text, sizeof(text)), (long long)d->features, kind->sizes, (long long)d->features,
                 kind->sizes);
        return NULL;
    }
    yk_tensor *in = one ? yk_unsqueeze(x, 0) : x;
    yk_tensor *out = in ? yk_instance_norm(in, d->weight, d->bias, d->running_mean, d->running_var,
                                           YK_OPTIONS(yk_instance_norm_options, .momentum = d->momentum, .eps = d->eps,
                                                      .use_input_stats = m->training || !d->running_mean))
                        : NULL;
    return out && one ? yk_squeeze(out, 0) : out;
}

static void instance_norm_describe(yk_module *m, char *buffer, size_t size)
{
    instance_norm *d = yk__module_data(m);
    char eps[YK__NUMBER_ROOM], momentum[YK__NUMBER_ROOM];
    snprintf(buffer, size, "%lld, eps=%s, momentum=%s, affine=%s, bias=%s, track_running_stats=%s",
             (long long)d->features, yk__module_number(d->eps, eps), yk__module_number(d->momentum, momentum),
             python_bool(d->weight), python_bool(d->bias), python_bool(d->running_mean));
}

static yk_module *instance_norm_create(const instance_kind *kind, const char *name, int64_t features,
                                       const yk_instance_norm_module_options *options)
{
    yk_instance_norm_module_options o;
    if (YK__OPTIONS_TAKE(name, yk_instance_norm_module_options, options, &o) ||
        yk__check_integer(name, "features", features, 1, INT64_MAX) || yk__check_positive(name, "eps", o.eps) ||
        yk__check_number(name, "momentum", o.momentum, 0, 1))
        return NULL;
    yk_module *m = yk_module_create(&kind->cls);
    if (!m)
        return NULL;
    instance_norm *d = yk__module_data(m);
    d->features = features;
    d->eps = o.eps;
    d->momentum = o.momentum;
    if (o.affine) {
        d->weight = yk__module_constant_parameter(m, "weight", 1, &features, 1);
        if (o.bias)
            d->bias = yk__module_constant_parameter(m, "bias", 1, &features, 0);
    }
    if (o.track_running_stats) { /* the number of batches is PyTorch's, which never counts there */
        d->running_mean = yk__module_constant_buffer(m, "running_mean", 1, &features, 0);
        d->running_var = yk__module_constant_buffer(m, "running_var", 1, &features, 1);
        yk__module_add_batch_count(m);
    }
    return yk_module_check(m);
}

#define INSTANCE_NORM(label, class_name, n, size_names)                                                                \
    yk_module *yk_##label##_create(int64_t features, const yk_instance_norm_module_options *options)                   \
    {                                                                                                                  \
        static const instance_kind kind = {.cls = {.name = class_name,                                                 \
                                                   .data_size = sizeof(instance_norm),                                 \
                                                   .forward = instance_norm_forward,                                   \
                                                   .describe = instance_norm_describe},                                \
                                           .name = #label,                                                             \
                                           .axes = (n),                                                                \
                                           .sizes = size_names};                                                       \
        return instance_norm_create(&kind, #label "_create", features, options);                                       \
    }
INSTANCE_NORM(instance_norm1d, "InstanceNorm1d", 1, "L")
INSTANCE_NORM(instance_norm2d, "InstanceNorm2d", 2, "H, W")
INSTANCE_NORM(instance_norm3d, "InstanceNorm3d", 3, "D, H, W")

/* ---- RMSNorm ---- */

typedef struct rms_norm {
    yk_tensor *weight;
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    double eps;
} rms_norm;

static yk_tensor *rms_norm_forward(yk_module *m, yk_tensor *x)
{
    rms_norm *d = yk__module_data(m);
    return yk_rms_norm(x, d->ndim, d->shape, d->weight, d->eps);
}

static void rms_norm_describe(yk_module *m, char *buffer, size_t size)
{
    rms_norm *d = yk__module_data(m);
    char text[200], eps[YK__NUMBER_ROOM];
    snprintf(buffer, size, "%s, eps=%s, elementwise_affine=%s", yk__shape_text(d->ndim, d->shape, text, sizeof(text)),
             d->eps == YK_NOT_GIVEN ? "None" : yk__module_number(d->eps, eps), python_bool(d->weight));
}

yk_module *yk_rms_norm_create(int ndim, const int64_t *normalized_shape, const yk_rms_norm_options *options)
{
    static const yk_module_class cls = {
        .name = "RMSNorm", .data_size = sizeof(rms_norm), .forward = rms_norm_forward, .describe = rms_norm_describe};
    yk_rms_norm_options o;
    if (YK__OPTIONS_TAKE("rms_norm_create", yk_rms_norm_options, options, &o))
        return NULL;
    if (ndim < 1 || ndim > YK_MAX_DIMS || !normalized_shape) {
        yk__fail(YK_ERR_ARGUMENT, "rms_norm_create: %d dimensions to normalise; expected 1 to %d", ndim, YK_MAX_DIMS);
        return NULL;
    }
    if (o.eps != YK_NOT_GIVEN && yk__check_number("rms_norm_create", "eps", o.eps, 0, INFINITY))
        return NULL;
    yk_module *m = yk_module_create(&cls);
    if (!m)
        return NULL;
    rms_norm *d = yk_module_data(m);
    d->ndim = ndim;
    d->eps = o.eps;
    memcpy(d->shape, normalized_shape, (size_t)ndim * sizeof(*d->shape));
    if (o.elementwise_affine)
        d->weight = yk__module_constant_parameter(m, "weight", ndim, d->shape, 1);
    return yk_module_check(m);
}

/* ---- LocalResponseNorm ---- */

typedef struct local_response_norm {
    int64_t size;
    double alpha, beta, k;
} local_response_norm;

static yk_tensor *local_response_norm_forward(yk_module *m, yk_tensor *x)
{
    const local_response_norm *d = yk__module_data(m);
    return yk_local_response_norm(x, d->size, d->alpha, d->beta, d->k);
}

static void local_response_norm_describe(yk_module *m, char *buffer, size_t size)
{
    const local_response_norm *d = yk__module_data(m);
    char alpha[YK__NUMBER_ROOM], beta[YK__NUMBER_ROOM], k[YK__NUMBER_ROOM];
    snprintf(buffer, size, "%lld, alpha=%s, beta=%s, k=%s", (long long)d->size, yk__module_number(d->alpha, alpha),
             yk__module_number(d->beta, beta), yk__module_number(d->k, k));
}

yk_module *yk_local_response_norm_create(int64_t size, double alpha, double beta, double k)
{
    static const yk_module_class cls = {.name = "LocalResponseNorm",
                                        .data_size = sizeof(local_response_norm),
                                        .forward = local_response_norm_forward,
                                        .describe = local_response_norm_describe};
    static const char name[] = "local_response_norm_create";
    if (yk__check_integer(name, "size", size, 1, INT32_MAX) ||
        yk__check_number(name, "alpha", alpha, -DBL_MAX, DBL_MAX) ||
        yk__check_number(name, "beta", beta, -DBL_MAX, DBL_MAX) || yk__check_number(name, "k", k, -DBL_MAX, DBL_MAX))
        return NULL;
    yk_module *m = yk_module_create(&cls);
    if (m)
        *(local_response_norm *)yk_module_data(m) = (local_response_norm){size, alpha, beta, k};
    return m;
}
