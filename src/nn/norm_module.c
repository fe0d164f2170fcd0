/*
 * norm_module.c - BatchNorm1d to 3d and LayerNorm. Layer: nn.
 */
#include <math.h>
#include <string.h>

#include "nn/module.h"
#include "ops/op.h"

/* One reference; NULL on failure. */
static yk_tensor *constant(const yk_module *m, int ndim, const int64_t *shape, double value)
{
    yk_tensor *x = yk__module_tensor(m->shown_name, ndim, shape, YK_F32);
    if (!x || !yk__raw_fill(x, value))
        return x;
    yk_tensor_release(x);
    return NULL;
}

yk_tensor *yk__module_constant_parameter(yk_module *m, const char *name, int ndim, const int64_t *shape, double value)
{
    return yk__module_take_parameter(m, name, constant(m, ndim, shape, value));
}

yk_tensor *yk__module_constant_buffer(yk_module *m, const char *name, int ndim, const int64_t *shape, double value)
{
    return yk__module_take_buffer(m, name, constant(m, ndim, shape, value));
}

yk_tensor *yk__module_add_batch_count(yk_module *m)
{
    yk_tensor *batches = yk__module_tensor(m->shown_name, 0, NULL, YK_I64);
    if (batches && yk__raw_fill(batches, 0)) {
        yk_tensor_release(batches);
        batches = NULL;
    }
    return yk__module_take_buffer(m, "num_batches_tracked", batches);
}

/* ---- BatchNorm1d to 3d ------------------------------------------------------------------------------------------- */

/* The inputs that a class takes. */
typedef struct batch_norm_inputs {
    const char *name, *sizes; /* as errors write them, after (N, C */
    int least, most;          /* dimensions */
} batch_norm_inputs;

typedef struct batch_norm_layer {
    yk_tensor *weight, *bias, *running_mean, *running_var, *batches;
    int64_t features;
    double eps, momentum;
    bool cumulative;               /* momentum=None in PyTorch: the statistics are the mean of all batches since */
    int64_t seen;                  /* so many */
    yk__batch_norm_fn replacement; /* of yk_batch_norm in training: a SyncBatchNorm's alone */
    void *user;                    /* a counted object of ours */
    const batch_norm_inputs *inputs;
} batch_norm_layer;

/* The operations that follow the normalisation in the same pass. */
typedef struct tail {
    yk_tensor *residual;
    bool relu;
} tail;

static yk_status count_batch(yk_tensor *batches)
{
    const yk__backend *backend = yk__backend_for(batches);
    yk__view v = yk__view_of(batches);
    yk__bump_version(batches);
    return backend->unary ? backend->unary(yk__device_of(batches).index, YK__ADD_SCALAR, &v, &v, 1, 0)
                          : yk__slot_missing(yk__device_of(batches), "unary");
}

static yk_tensor *normalise(yk_module *m, yk_tensor *x, void *user)
{
    batch_norm_layer *d = yk__module_data(m);
    const tail *t = user;
    if (x->ndim < d->inputs->least || x->ndim > d->inputs->most || x->shape[1] != d->features) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (N, %lld%s", d->inputs->name,
                 yk_shape_format(x, text, sizeof(text)), (long long)d->features, d->inputs->sizes);
        return NULL;
    }
    bool replaced = d->replacement && m->training;
    yk_tensor *batches = m->training ? d->batches : NULL;
    if (batches && (replaced || !yk__batch_norm_counts(x, batches))) {
        if (count_batch(batches))
            return NULL;
        batches = NULL;
    }
    bool mean = d->cumulative && m->training && d->running_mean;
    double momentum = mean ? 1 / (double)++d->seen : d->momentum;
    yk_batch_norm_options o = *YK_OPTIONS(yk_batch_norm_options, .momentum = momentum, .eps = d->eps,
                                          .training = m->training || !d->running_mean, .relu = t && t->relu,
                                          .residual = t ? t->residual : NULL);
    if (replaced)
        return d->replacement(x, d->weight, d->bias, d->running_mean, d->running_var, &o, d->user);
    return yk__batch_norm_counting(x, d->weight, d->bias, d->running_mean, d->running_var, batches, &o);
}

static yk_tensor *batch_norm_forward(yk_module *m, yk_tensor *x)
{
    return normalise(m, x, NULL);
}

static void batch_norm_describe(yk_module *m, char *buffer, size_t size)
{
    batch_norm_layer *d = yk__module_data(m);
    char eps[YK__NUMBER_ROOM], momentum[YK__NUMBER_ROOM];
    snprintf(buffer, size, "%lld, eps=%s, momentum=%s, affine=%s, bias=%s, track_running_stats=%s",
             (long long)d->features, yk__module_number(d->eps, eps), yk__module_number(d->momentum, momentum),
             d->weight ? "True" : "False", d->bias ? "True" : "False", d->running_mean ? "True" : "False");
}

static void batch_norm_destroy(yk_module *m)
{
    yk_object_release(((batch_norm_layer *)yk__module_data(m))->user);
}

#define BATCH_NORM_CLASS(shown)                                                                                        \
    {                                                                                                                  \
        .name = shown, .data_size = sizeof(batch_norm_layer), .forward = batch_norm_forward,                           \
        .destroy = batch_norm_destroy, .describe = batch_norm_describe                                                 \
    }
static const yk_module_class batch_norm1d_class = BATCH_NORM_CLASS("BatchNorm1d");
static const yk_module_class batch_norm2d_class = BATCH_NORM_CLASS("BatchNorm2d");
static const yk_module_class batch_norm3d_class = BATCH_NORM_CLASS("BatchNorm3d");

bool yk__is_batch_norm(const yk_module *m)
{
    return m->cls == &batch_norm2d_class || m->cls == &batch_norm1d_class || m->cls == &batch_norm3d_class;
}

void yk__batch_norm_convert(yk_module *m, yk__batch_norm_fn fn, void *user)
{
    batch_norm_layer *d = yk_module_data(m);
    yk_object_retain(user);
    yk_object_release(d->user);
    d->replacement = fn;
    d->user = user;
    m->shown_name = "SyncBatchNorm";
}

yk_status yk__batch_norm_cumulate(yk_module *m, bool cumulative)
{
    batch_norm_layer *d = yk_module_data(m);
    d->cumulative = cumulative;
    d->seen = 0;
    yk_tensor *statistics[] = {d->running_mean, d->running_var, d->batches};
    for (int i = 0; i < 3 && cumulative; i++) {
        yk_status status = statistics[i] ? yk__raw_fill(statistics[i], i == 1) : YK_OK;
        if (status)
            return status;
        if (statistics[i])
            yk__bump_version(statistics[i]);
    }
    return YK_OK;
}

bool yk__is_sync_batch_norm(const yk_module *m)
{
    return yk__is_batch_norm(m) && ((batch_norm_layer *)m->data)->replacement;
}

yk_tensor *yk__batch_norm_forward(yk_module *m, yk_tensor *x, yk_tensor *residual, bool relu)
{
    tail t = {residual, relu};
    if (!m->hooks)
        return yk__module_run(m, normalise, x, &t);
    yk_scope scope = yk_scope_begin();
    yk_tensor *out = yk__forward_part(m, x);
    out = residual ? yk_add(out, residual) : out;
    out = yk_tensor_retain(relu ? yk_relu(out) : out);
    yk_scope_end(scope);
    return out;
}

yk_tensor *yk_batch_norm2d_forward(yk_module *batch_norm, yk_tensor *x, yk_tensor *residual, bool relu)
{
    YK__LIVE(batch_norm);
    YK__LIVE(x);
    YK__LIVE(residual);
    if (!yk__is_there("batch_norm2d_forward", "module", batch_norm) ||
        !yk__is_there("batch_norm2d_forward", "tensor", x) || !yk__scope_check("batch_norm2d_forward"))
        return NULL;
    if (!yk__is_batch_norm(batch_norm)) {
        yk__fail(YK_ERR_ARGUMENT, "batch_norm2d_forward: the module is a %s", batch_norm->shown_name);
        return NULL;
    }
    return yk__scope_own(yk__batch_norm_forward(batch_norm, x, residual, relu));
}

static yk_module *batch_norm_create(const yk_module_class *cls, const char *name, const batch_norm_inputs *inputs,
                                    int64_t features, const yk_batch_norm_module_options *o)
{
    if (yk__check_integer(name, "features", features, 1, INT64_MAX) || yk__check_positive(name, "eps", o->eps) ||
        yk__check_number(name, "momentum", o->momentum, 0, 1))
        return NULL;
    yk_module *m = yk_module_create(cls);
    if (!m)
        return NULL;
    batch_norm_layer *d = yk__module_data(m);
    d->inputs = inputs;
    d->features = features;
    d->eps = o->eps;
    d->momentum = o->momentum;
    if (o->affine) {
        d->weight = yk__module_constant_parameter(m, "weight", 1, &features, 1);
        if (o->bias)
            d->bias = yk__module_constant_parameter(m, "bias", 1, &features, 0);
    }
    if (o->track_running_stats) {
        d->running_mean = yk__module_constant_buffer(m, "running_mean", 1, &features, 0);
        d->running_var = yk__module_constant_buffer(m, "running_var", 1, &features, 1);
        d->batches = yk__module_add_batch_count(m);
    }
    return yk_module_check(m);
}

yk_module *yk_batch_norm1d_create(int64_t features, const yk_batch_norm_module_options *options)
{
    static const batch_norm_inputs inputs = {.name = "batch_norm1d", .sizes = ") or (N, C, L)", .least = 2, .most = 3};
    yk_batch_norm_module_options o;
    if (YK__OPTIONS_TAKE("batch_norm1d_create", yk_batch_norm_module_options, options, &o))
        return NULL;
    return batch_norm_create(&batch_norm1d_class, "batch_norm1d_create", &inputs, features, &o);
}

yk_module *yk_batch_norm2d_create(int64_t features, const yk_batch_norm2d_options *options)
{
    static const batch_norm_inputs inputs = {.name = "batch_norm2d", .sizes = ", H, W)", .least = 4, .most = 4};
    yk_batch_norm2d_options o;
    if (YK__OPTIONS_TAKE("batch_norm2d_create", yk_batch_norm2d_options, options, &o))
        return NULL;
    return batch_norm_create(&batch_norm2d_class, "batch_norm2d_create", &inputs, features,
                             YK_OPTIONS(yk_batch_norm_module_options, .eps = o.eps, .momentum = o.momentum,
                                        .affine = o.affine, .bias = o.bias,
                                        .track_running_stats = o.track_running_stats));
}

yk_module *yk_batch_norm3d_create(int64_t features, const yk_batch_norm_module_options *options)
{
    static const batch_norm_inputs inputs = {.name = "batch_norm3d", .sizes = ", D, H, W)", .least = 5, .most = 5};
    yk_batch_norm_module_options o;
    if (YK__OPTIONS_TAKE("batch_norm3d_create", yk_batch_norm_module_options, options, &o))
        return NULL;
    return batch_norm_create(&batch_norm3d_class, "batch_norm3d_create", &inputs, features, &o);
}

/* ---- LayerNorm --------------------------------------------------------------------------------------------------- */

typedef struct layer_norm {
    yk_tensor *weight, *bias;
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    double eps;
} layer_norm;

static yk_tensor *layer_norm_forward(yk_module *m, yk_tensor *x)
{
    layer_norm *d = yk__module_data(m);
    return yk_layer_norm(x, d->ndim, d->shape, d->weight, d->bias, d->eps);
}

static void layer_norm_describe(yk_module *m, char *buffer, size_t size)
{
    layer_norm *d = yk__module_data(m);
    char text[200], eps[YK__NUMBER_ROOM];
    snprintf(buffer, size, "%s, eps=%s, elementwise_affine=%s, bias=%s",
             yk__shape_text(d->ndim, d->shape, text, sizeof(text)), yk__module_number(d->eps, eps),
             d->weight ? "True" : "False", d->bias ? "True" : "False");
}

static const yk_module_class layer_norm_class = {.name = "LayerNorm",
                                                 .data_size = sizeof(layer_norm),
                                                 .forward = layer_norm_forward,
                                                 .describe = layer_norm_describe};

yk_module *yk_layer_norm_create(int ndim, const int64_t *normalized_shape, const yk_layer_norm_options *options)
{
    yk_layer_norm_options o;
    if (YK__OPTIONS_TAKE("layer_norm_create", yk_layer_norm_options, options, &o))
        return NULL;
    if (ndim < 1 || ndim > YK_MAX_DIMS || !normalized_shape) {
        yk__fail(YK_ERR_ARGUMENT, "layer_norm_create: %d dimensions to normalise; expected 1 to %d", ndim, YK_MAX_DIMS);
        return NULL;
    }
    if (yk__check_number("layer_norm_create", "eps", o.eps, 0, INFINITY))
        return NULL;
    yk_module *m = yk_module_create(&layer_norm_class);
    if (!m)
        return NULL;
    layer_norm *d = yk_module_data(m);
    d->ndim = ndim;
    d->eps = o.eps;
    memcpy(d->shape, normalized_shape, (size_t)ndim * sizeof(*d->shape));
    if (o.elementwise_affine) {
        d->weight = yk__module_constant_parameter(m, "weight", ndim, d->shape, 1);
        if (o.bias)
            d->bias = yk__module_constant_parameter(m, "bias", ndim, d->shape, 0);
    }
    return yk_module_check(m);
}
