/*
 * linear_module.c - Linear and Embedding: one weight, looked at as a matrix or as a table. Layer: nn.
 */
#include <math.h>

#include "nn/module.h"

/* ---- Linear ------------------------------------------------------------------------------------------------------ */

typedef struct linear {
    yk_tensor *weight, *bias;
} linear;

static yk_tensor *linear_forward(yk_module *m, yk_tensor *x)
{
    linear *d = yk__module_data(m);
    return yk_linear(x, d->weight, d->bias);
}

static yk_tensor *linear_relu(yk_module *m, yk_tensor *x, void *user)
{
    linear *d = yk__module_data(m);
    (void)user;
    return yk_linear_relu(x, d->weight, d->bias);
}

static void linear_describe(yk_module *m, char *buffer, size_t size)
{
    linear *d = yk__module_data(m);
    snprintf(buffer, size, "in_features=%lld, out_features=%lld, bias=%s", (long long)yk_size(d->weight, 1),
             (long long)yk_size(d->weight, 0), d->bias ? "True" : "False");
}

static const yk_module_class linear_class = {
    .name = "Linear", .data_size = sizeof(linear), .forward = linear_forward, .describe = linear_describe};

yk__module_body yk__linear_relu_body(const yk_module *m)
{
    return m->cls == &linear_class ? linear_relu : NULL;
}

yk_module *yk_linear_create(int64_t in_features, int64_t out_features, const yk_linear_options *options)
{
    yk_linear_options o;
    if (YK__OPTIONS_TAKE("linear_create", yk_linear_options, options, &o))
        return NULL;
    if (in_features < 1 || out_features < 1) {
        yk__fail(YK_ERR_ARGUMENT, "linear_create: in_features %lld, out_features %lld: both must be at least 1",
                 (long long)in_features, (long long)out_features);
        return NULL;
    }
    yk_module *m = yk_module_create(&linear_class);
    if (!m)
        return NULL;
    linear *d = yk_module_data(m);
    yk_tensor *weight = yk__module_tensor("linear_create", 2, (int64_t[]){out_features, in_features}, YK_F32);
    d->weight = yk__module_take_parameter(m, "weight", weight);
    if (o.bias)
        d->bias = yk__module_take_parameter(m, "bias", yk__module_tensor("linear_create", 1, &out_features, YK_F32));
    double bound = 1 / sqrt((double)in_features);
    if (!yk_module_check(m) || yk_init_uniform(d->weight, -bound, bound) ||
        (d->bias && yk_init_uniform(d->bias, -bound, bound)))
        return NULL;
    return m;
}

/* ---- Embedding --------------------------------------------------------------------------------------------------- */

typedef struct embedding {
    yk_tensor *weight;
    int64_t padding_idx; /* -1: none */
    bool sparse;
} embedding;

static yk_tensor *embedding_forward(yk_module *m, yk_tensor *x)
{
    embedding *d = yk__module_data(m);
    return d->sparse ? yk_embedding_sparse(x, d->weight, d->padding_idx) : yk_embedding(x, d->weight, d->padding_idx);
}

static void embedding_describe(yk_module *m, char *buffer, size_t size)
{
    embedding *d = yk__module_data(m);
    int used = snprintf(buffer, size, "%lld, %lld", (long long)yk_size(d->weight, 0), (long long)yk_size(d->weight, 1));
    if (d->padding_idx >= 0)
        used += snprintf(buffer + used, size - (size_t)used, ", padding_idx=%lld", (long long)d->padding_idx);
    if (d->sparse)
        snprintf(buffer + used, size - (size_t)used, ", sparse=True");
}

static const yk_module_class embedding_class = {
    .name = "Embedding", .data_size = sizeof(embedding), .forward = embedding_forward, .describe = embedding_describe};

yk_module *yk_embedding_create(int64_t count, int64_t dim, const yk_embedding_options *options)
{
    yk_embedding_options o;
    if (YK__OPTIONS_TAKE("embedding_create", yk_embedding_options, options, &o))
        return NULL;
    bool pads = o.padding_idx != YK_NOT_GIVEN;
    int64_t padding_idx = !pads ? -1 : o.padding_idx < 0 ? o.padding_idx + count : o.padding_idx;
    if (count < 1 || dim < 1) {
        yk__fail(YK_ERR_ARGUMENT, "embedding_create: count %lld, dim %lld: both must be at least 1", (long long)count,
                 (long long)dim);
        return NULL;
    }
    if (pads && (padding_idx < 0 || padding_idx >= count)) {
        yk__fail(YK_ERR_ARGUMENT, "embedding_create: padding_idx %lld is outside a table of %lld rows",
                 (long long)o.padding_idx, (long long)count);
        return NULL;
    }
    yk_module *m = yk_module_create(&embedding_class);
    if (!m)
        return NULL;
    embedding *d = yk_module_data(m);
    d->padding_idx = padding_idx;
    d->weight = yk__module_take_parameter(m, "weight",
                                          yk__module_tensor("embedding_create", 2, (int64_t[]){count, dim}, YK_F32));
    if (!yk_module_check(m) || yk_init_normal(d->weight, 0, 1))
        return NULL;
    d->sparse = o.sparse;
    if (o.sparse) {
        yk__leaf_gradient *meta = yk__leaf_gradient_of(d->weight);
        if (!meta)
            return NULL;
        meta->by_rows = true;
    }
    if (padding_idx >= 0) {
        yk_tensor *row = yk__tensor_view(d->weight, 1, &dim, (int64_t[]){1}, padding_idx * dim);
        bool zeroed = row && !yk__raw_fill(row, 0);
        yk_tensor_release(row);
        if (!zeroed)
            return NULL;
    }
    return m;
}
