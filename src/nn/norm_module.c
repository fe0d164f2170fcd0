/*
 * norm_module.c - BatchNorm2d and LayerNorm. Layer: nn.
 */
#include <math.h>
#include <string.h>

#include "nn/module.h"
#include "ops/op.h"

/* A parameter or buffer of one value; NULL and an incomplete module on failure. */
static yk_tensor *constant(yk_module *m, const char *name, int ndim, const int64_t *shape, double value, bool parameter)
{
    yk_tensor *x = yk__module_tensor(m->cls->name, ndim, shape, YK_F32);
    if (x && yk__raw_fill(x, value)) {
        yk_tensor_release(x);
        x = NULL;
    }
    return parameter ? yk__module_take_parameter(m, name, x) : yk__module_take_buffer(m, name, x);
}

/* ---- BatchNorm2d ------------------------------------------------------------------------------------------------- */

typedef struct batch_norm2d {
    yk_tensor *weight, *bias, *running_mean, *running_var, *batches;
    int64_t features;
    double eps, momentum;
    yk__batch_norm_fn replacement; /* of yk_batch_norm in training */
    void *user;                    /* a counted object of ours */
} batch_norm2d;

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
    batch_norm2d *d = yk_module_data(m);
    const tail *t = user;
    if (x->ndim != 4 || x->shape[1] != d->features) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "batch_norm2d: input has shape %s, expected (N, %lld, H, W)",
                 yk_shape_format(x, text, sizeof(text)), (long long)d->features);
        return NULL;
    }
    bool replaced = d->replacement && m->training;
    yk_tensor *batches = m->training ? d->batches : NULL;
    if (batches && (replaced || !yk__batch_norm_counts(x, batches))) {
        if (count_batch(batches))
            return NULL;
        batches = NULL;
    }
    yk_batch_norm_options o = *YK_OPTIONS(yk_batch_norm_options, .momentum = d->momentum, .eps = d->eps,
                                          .training = m->training || !d->running_mean, .relu = t && t->relu,
                                          .residual = t ? t->residual : NULL);
    if (replaced)
        return d->replacement(x, d->weight, d->bias, d->running_mean, d->running_var, &o, d->user);
    return yk__batch_norm_counting(x, d->weight, d->bias, d->running_mean, d->running_var, batches, &o);
}

static yk_tensor *batch_norm2d_forward(yk_module *m, yk_tensor *x)
{
    return normalise(m, x, NULL);
}

static void batch_norm2d_describe(yk_module *m, char *buffer, size_t size)
{
    batch_norm2d *d = yk_module_data(m);
    char eps[YK__NUMBER_ROOM], momentum[YK__NUMBER_ROOM];
    snprintf(buffer, size, "%lld, eps=%s, momentum=%s, affine=%s, track_running_stats=%s", (long long)d->features,
             yk__module_number(d->eps, eps), yk__module_number(d->momentum, momentum), d->weight ? "True" : "False",
             d->running_mean ? "True" : "False");
}

static void batch_norm2d_destroy(yk_module *m)
{
    yk_object_release(((batch_norm2d *)yk_module_data(m))->user);
}

/* Note [Converted modules]
 * A BatchNorm2d becomes a SyncBatchNorm in place: its tensors, its place in its parents and its hooks stay. The two
 * classes differ in their name alone, by which prints and errors call the module; what training calls is
 * batch_norm2d.replacement, which only a converted module has. */
#define BATCH_NORM2D_CLASS(shown)                                                                                      \
    {                                                                                                                  \
        .name = shown, .data_size = sizeof(batch_norm2d), .forward = batch_norm2d_forward,                             \
        .destroy = batch_norm2d_destroy, .describe = batch_norm2d_describe                                             \
    }
static const yk_module_class batch_norm2d_class = BATCH_NORM2D_CLASS("BatchNorm2d");
static const yk_module_class sync_batch_norm_class = BATCH_NORM2D_CLASS("SyncBatchNorm");

bool yk__is_batch_norm2d(const yk_module *m)
{
    return m->cls == &batch_norm2d_class || m->cls == &sync_batch_norm_class;
}

void yk__batch_norm2d_convert(yk_module *m, yk__batch_norm_fn fn, void *user)
{
    batch_norm2d *d = yk_module_data(m);
    yk_object_retain(user);
    yk_object_release(d->user);
    d->replacement = fn;
    d->user = user;
    m->cls = &sync_batch_norm_class;
}

bool yk__is_sync_batch_norm(const yk_module *m)
{
    return m->cls == &sync_batch_norm_class;
}

yk_tensor *yk__batch_norm2d_forward(yk_module *m, yk_tensor *x, yk_tensor *residual, bool relu)
{
    tail t = {residual, relu};
    if (!m->hooks)
        return yk__module_run(m, normalise, x, &t);
    yk_scope scope = yk_scope_begin();
    yk_tensor *out = yk_forward(m, x);
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
    if (!yk__is_batch_norm2d(batch_norm)) {
        yk__fail(YK_ERR_ARGUMENT, "batch_norm2d_forward: the module is a %s", batch_norm->cls->name);
        return NULL;
    }
    return yk__scope_own(yk__batch_norm2d_forward(batch_norm, x, residual, relu));
}

yk_module *yk_batch_norm2d_create(int64_t features, const yk_batch_norm2d_options *options)
{
    yk_batch_norm2d_options o;
    if (YK__OPTIONS_TAKE("batch_norm2d_create", yk_batch_norm2d_options, options, &o) ||
        yk__check_integer("batch_norm2d_create", "features", features, 1, INT64_MAX) ||
        yk__check_positive("batch_norm2d_create", "eps", o.eps) ||
        yk__check_number("batch_norm2d_create", "momentum", o.momentum, 0, 1))
        return NULL;
    yk_module *m = yk_module_create(&batch_norm2d_class);
    if (!m)
        return NULL;
    batch_norm2d *d = yk_module_data(m);
    d->features = features;
    d->eps = o.eps;
    d->momentum = o.momentum;
    if (o.affine) {
        d->weight = constant(m, "weight", 1, &features, 1, true);
        d->bias = constant(m, "bias", 1, &features, 0, true);
    }
    if (o.track_running_stats) {
        d->running_mean = constant(m, "running_mean", 1, &features, 0, false);
        d->running_var = constant(m, "running_var", 1, &features, 1, false);
        yk_tensor *batches = yk__module_tensor("batch_norm2d_create", 0, NULL, YK_I64);
        if (batches && yk__raw_fill(batches, 0)) {
            yk_tensor_release(batches);
            batches = NULL;
        }
        d->batches = yk__module_take_buffer(m, "num_batches_tracked", batches);
    }
    return yk_module_check(m);
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
    layer_norm *d = yk_module_data(m);
    return yk_layer_norm(x, d->ndim, d->shape, d->weight, d->bias, d->eps);
}

static void layer_norm_describe(yk_module *m, char *buffer, size_t size)
{
    layer_norm *d = yk_module_data(m);
    char text[200], eps[YK__NUMBER_ROOM];
    snprintf(buffer, size, "%s, eps=%s, elementwise_affine=%s", yk__shape_text(d->ndim, d->shape, text, sizeof(text)),
             yk__module_number(d->eps, eps), d->weight ? "True" : "False");
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
        d->weight = constant(m, "weight", ndim, d->shape, 1, true);
        if (o.bias)
            d->bias = constant(m, "bias", ndim, d->shape, 0, true);
    }
    return yk_module_check(m);
}
