/*
 * pair_module.c - layers of two inputs: Bilinear, CosineSimilarity and PairwiseDistance. Layer: nn.
 */
#include <float.h>
#include <math.h>

#include "nn/module.h"

/* Fails where a layer is not called with two tensors for one. */
static yk_status pair_check(const char *name, yk_tensor *const *inputs, int n_inputs, int n_outputs)
{
    if (n_inputs == 2 && inputs[0] && inputs[1] && n_outputs == 1)
        return YK_OK;
    return yk__fail(YK_ERR_ARGUMENT, "%s: %d inputs and %d outputs, expected two tensors for one", name, n_inputs,
                    n_outputs);
}

static yk_status pair_end(yk_tensor **outputs, yk_tensor *out)
{
    outputs[0] = out;
    return out ? YK_OK : yk_last_error() ? yk_last_error()->code : YK_ERR_INTERNAL;
}

/* ---- Bilinear ---- */

typedef struct bilinear {
    yk_tensor *weight, *bias;
} bilinear;

static yk_status bilinear_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                  int n_outputs)
{
    const bilinear *d = yk_module_data(m);
    yk_status status = pair_check("bilinear", inputs, n_inputs, n_outputs);
    return status ? status : pair_end(outputs, yk_bilinear(inputs[0], inputs[1], d->weight, d->bias));
}

static void bilinear_describe(yk_module *m, char *buffer, size_t size)
{
    const bilinear *d = yk_module_data(m);
    snprintf(buffer, size, "in1_features=%lld, in2_features=%lld, out_features=%lld, bias=%s",
             (long long)yk_size(d->weight, 1), (long long)yk_size(d->weight, 2), (long long)yk_size(d->weight, 0),
             d->bias ? "True" : "False");
}

yk_module *yk_bilinear_create(int64_t in1_features, int64_t in2_features, int64_t out_features,
                              const yk_linear_options *options)
{
    static const yk_module_class cls = {.name = "Bilinear",
                                        .data_size = sizeof(bilinear),
                                        .forward_list = bilinear_forward,
                                        .describe = bilinear_describe};
    yk_linear_options o;
    if (YK__OPTIONS_TAKE("bilinear_create", yk_linear_options, options, &o))
        return NULL;
    if (in1_features < 1 || in2_features < 1 || out_features < 1) {
        yk__fail(YK_ERR_ARGUMENT,
                 "bilinear_create: in1_features %lld, in2_features %lld, out_features %lld: all must be at least 1",
                 (long long)in1_features, (long long)in2_features, (long long)out_features);
        return NULL;
    }
    yk_module *m = yk_module_create(&cls);
    if (!m)
        return NULL;
    bilinear *d = yk_module_data(m);
    int64_t shape[3] = {out_features, in1_features, in2_features};
    d->weight = yk__module_take_parameter(m, "weight", yk__module_tensor("bilinear_create", 3, shape, YK_F32));
    if (o.bias)
        d->bias = yk__module_take_parameter(m, "bias", yk__module_tensor("bilinear_create", 1, &out_features, YK_F32));
    double bound = 1 / sqrt((double)in1_features);
    if (!yk_module_check(m) || yk_init_uniform(d->weight, -bound, bound) ||
        (d->bias && yk_init_uniform(d->bias, -bound, bound)))
        return NULL;
    return m;
}

/* ---- CosineSimilarity and PairwiseDistance ---- */

typedef struct distance {
    double p, eps;
    int dim;
    bool keepdim;
} distance;

static yk_status cosine_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                int n_outputs)
{
    const distance *d = yk_module_data(m);
    yk_status status = pair_check("cosine_similarity", inputs, n_inputs, n_outputs);
    return status ? status : pair_end(outputs, yk_cosine_similarity(inputs[0], inputs[1], d->dim, d->eps));
}

static yk_status distance_forward(yk_module *m, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                  int n_outputs)
{
    const distance *d = yk_module_data(m);
    yk_status status = pair_check("pairwise_distance", inputs, n_inputs, n_outputs);
    return status ? status : pair_end(outputs, yk_pairwise_distance(inputs[0], inputs[1], d->p, d->eps, d->keepdim));
}

static yk_module *distance_create(const yk_module_class *cls, distance d)
{
    yk_module *m = yk_module_create(cls);
    if (m)
        *(distance *)yk_module_data(m) = d;
    return m;
}

yk_module *yk_cosine_similarity_create(int dim, double eps)
{
    static const yk_module_class cls = {
        .name = "CosineSimilarity", .data_size = sizeof(distance), .forward_list = cosine_forward};
    return yk__check_number("cosine_similarity_create", "eps", eps, 0, DBL_MAX)
               ? NULL
               : distance_create(&cls, (distance){.dim = dim, .eps = eps});
}

yk_module *yk_pairwise_distance_create(double p, double eps, bool keepdim)
{
    static const yk_module_class cls = {
        .name = "PairwiseDistance", .data_size = sizeof(distance), .forward_list = distance_forward};
    return yk__check_number("pairwise_distance_create", "p", p, 0, INFINITY) ||
                   yk__check_number("pairwise_distance_create", "eps", eps, -DBL_MAX, DBL_MAX)
               ? NULL
               : distance_create(&cls, (distance){.p = p, .eps = eps, .keepdim = keepdim});
}
