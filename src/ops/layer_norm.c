/*
 * layer_norm.c - normalisation over the last dimensions. Layer: ops.
 *
 * The kernels see x as (M, D) rows and weight and bias as (D). Derivation of the backward: docs/autograd.md.
 */
#include <math.h>

#include "ops/cast_policy.h"

typedef struct layer_norm_context {
    yk__tensor_spec x, weight, bias;
    int64_t rows, size;
    double eps;
    bool has_weight;
} layer_norm_context;

static yk_tensor *reshaped(yk_tensor *x, const yk__tensor_spec *spec)
{
    yk_tensor *out = x ? yk__narrow_to(yk__raw_reshape(x, spec->ndim, spec->shape), (yk_dtype)spec->dtype) : NULL;
    yk_tensor_release(x);
    return out;
}

static void layer_norm_describe(const void *context, yk__attributes *to)
{
    const layer_norm_context *c = context;
    yk__attribute_whole(to, "size", c->size);
    yk__attribute_real(to, "eps", c->eps);
}

static yk_status layer_norm_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    enum { G, SAVED_X, SAVED_WEIGHT, MEAN, INVSTD, READ };
    const layer_norm_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *from[READ] = {gout}, *in[READ], *made[3] = {NULL};
    for (int i = 1; i < READ; i++)
        from[i] = yk__saved(node, i - 1, &status);
    if (status || (status = yk__operands(YK__SLOT_layer_norm, 1u << G | 1u << SAVED_X, READ, from, in)))
        return status;
    int64_t rows[2] = {c->rows, c->size};
    yk_tensor *g = yk__raw_reshape(in[G], 2, rows);
    status = yk__status_of(g);
    yk_dtype dtype = (yk_dtype)in[SAVED_X]->dtype, statistic = yk__statistic_dtype(dtype);
    for (int i = 0; i < 3 && !status; i++) {
        if (!yk__needs_grad(node, i))
            continue;
        made[i] = yk__tensor_new(i ? 1 : 2, i ? &c->size : rows, NULL, i ? statistic : dtype, yk__device_of(gout));
        status = yk__status_of(made[i]);
    }
    if (!status && g->numel) {
        yk__view vg = yk__view_of(g), v[READ], m[3];
        status = YK__SLOT(g, layer_norm_backward, yk__optional_view(&m[0], made[0]), yk__optional_view(&m[1], made[1]),
                          yk__optional_view(&m[2], made[2]), &vg, yk__optional_view(&v[SAVED_X], in[SAVED_X]),
                          yk__optional_view(&v[SAVED_WEIGHT], in[SAVED_WEIGHT]), yk__optional_view(&v[MEAN], in[MEAN]),
                          yk__optional_view(&v[INVSTD], in[INVSTD]));
    } else {
        for (int i = 1; i < 3 && !status; i++)
            status = made[i] ? yk__raw_fill(made[i], 0) : YK_OK;
    }
    yk_tensor_release(g);
    yk__release_all(READ, in);
    const yk__tensor_spec *spec[3] = {&c->x, &c->weight, &c->bias};
    for (int i = 0; i < 3; i++) {
        bool wanted = made[i] != NULL;
        grads[i] = wanted ? reshaped(made[i], spec[i]) : NULL;
        if (!status && wanted)
            status = yk__status_of(grads[i]);
    }
    return status;
}

/* The formula of docs/autograd.md over rows, from x: the saved statistics have no history. */
static void layer_norm_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    enum { SAVED_X, SAVED_WEIGHT };
    const layer_norm_context *c = yk__context(node);
    int64_t rows[2] = {c->rows, c->size};
    int last = 1, first = 0;
    yk_tensor *g = yk_reshape(yk__recorded_wide(gouts[0]), 2, rows), *q = g, *w = NULL;
    yk_tensor *x = yk_reshape(yk__recorded_wide(yk__saved_input(node, SAVED_X, 0, &c->x)), 2, rows);
    if (c->has_weight) {
        w = yk_reshape(yk__recorded_wide(yk__saved_input(node, SAVED_WEIGHT, 1, &c->weight)), 1, &c->size);
        q = yk_mul(g, w);
    }
    yk_tensor *centred = yk_sub(x, yk_mean_dims(x, &last, 1, true));
    yk_tensor *invstd = yk_rsqrt(yk_add_scalar(yk_mean_dims(yk_square(centred), &last, 1, true), c->eps));
    yk_tensor *h = yk_mul(centred, invstd);
    if (yk__needs_grad(node, 0)) {
        yk_tensor *along = yk_mul(h, yk_mean_dims(yk_mul(q, h), &last, 1, true));
        yk_tensor *rest = yk_sub(yk_sub(q, yk_mean_dims(q, &last, 1, true)), along);
        grads[0] = yk_cast(yk_reshape(yk_mul(rest, invstd), c->x.ndim, c->x.shape), (yk_dtype)c->x.dtype);
    }
    if (yk__needs_grad(node, 1))
        grads[1] = yk_cast(yk_reshape(yk_sum_dims(yk_mul(g, h), &first, 1, false), c->weight.ndim, c->weight.shape),
                           (yk_dtype)c->weight.dtype);
    if (yk__needs_grad(node, 2))
        grads[2] =
            yk_cast(yk_reshape(yk_sum_dims(g, &first, 1, false), c->bias.ndim, c->bias.shape), (yk_dtype)c->bias.dtype);
}

static bool norm_check(const yk_tensor *x, int n_dims, const int64_t *shape, yk_tensor *const parameter[2])
{
    static const char *const role[2] = {"weight", "bias"};
    char tx[200], ts[200], tp[200];
    if (n_dims > 0 && !yk__is_there("layer_norm", "normalised shape", shape))
        return false;
    bool fits = n_dims >= 1 && n_dims <= x->ndim;
    for (int d = 0; fits && d < n_dims; d++)
        fits = x->shape[x->ndim - n_dims + d] == shape[d];
    if (!fits) {
        yk__fail(YK_ERR_SHAPE, "layer_norm: input %s does not end in the normalised shape %s",
                 yk_shape_format(x, tx, sizeof(tx)),
                 yk__shape_text(n_dims < 0             ? 0
                                : n_dims > YK_MAX_DIMS ? YK_MAX_DIMS
                                                       : n_dims,
                                shape, ts, sizeof(ts)));
        return false;
    }
    if (yk__expect_floating("layer_norm", "input", x))
        return false;
    if (yk__expect_wide_input("layer_norm", x, role, parameter, 2))
        return false;
    for (int i = 0; i < 2; i++) {
        const yk_tensor *p = parameter[i];
        if (!p)
            continue;
        if (p->ndim != n_dims || memcmp(p->shape, shape, sizeof(shape[0]) * (size_t)n_dims)) {
            yk__fail(YK_ERR_SHAPE, "layer_norm: %s has shape %s, expected the normalised shape %s", role[i],
                     yk_shape_format(p, tp, sizeof(tp)), yk__shape_text(n_dims, shape, ts, sizeof(ts)));
            return false;
        }
        if (p->dtype != x->dtype && yk__expect_dtype("layer_norm", role[i], p, yk__wide_dtype(x)))
            return false;
    }
    return true;
}

yk_tensor *yk_layer_norm(yk_tensor *x, int n_dims, const int64_t *normalized_shape, yk_tensor *weight, yk_tensor *bias,
                         double eps)
{
    static const yk__op op = {.name = "layer_norm",
                              .backward = layer_norm_backward,
                              .recorded = layer_norm_recorded,
                              .describe = layer_norm_describe};
    yk_tensor *inputs[3] = {x, weight, bias}, *wide[3];
    YK__AUTOCAST(layer_norm, 3, inputs, yk_layer_norm(inputs[0], n_dims, normalized_shape, inputs[1], inputs[2], eps));
    YK__EVENT(YK__EVENT_OPERATION, "layer_norm");
    if (!yk__op_begin("layer_norm", 3, inputs, 6) || yk__check_number("layer_norm", "eps", eps, 0, INFINITY) ||
        !norm_check(x, n_dims, normalized_shape, inputs + 1) ||
        yk__operands(YK__SLOT_layer_norm, 1u << 0, 3, inputs, wide))
        return NULL;
    layer_norm_context c = {.rows = 1, .size = 1, .eps = eps, .has_weight = weight != NULL};
    for (int d = 0; d < x->ndim; d++)
        *(d < x->ndim - n_dims ? &c.rows : &c.size) *= x->shape[d];
    yk_device device = yk__device_of(x);
    yk_dtype dtype = (yk_dtype)wide[0]->dtype, statistic = yk__statistic_dtype(dtype);
    yk_tensor *rows = yk__raw_reshape(wide[0], 2, (int64_t[2]){c.rows, c.size}),
              *w = yk__raw_reshape(wide[1], 1, &c.size);
    yk_tensor *b = yk__raw_reshape(wide[2], 1, &c.size), *out = yk__tensor_new(x->ndim, x->shape, NULL, dtype, device);
    yk_tensor *mean = yk__tensor_new(1, &c.rows, NULL, statistic, device);
    yk_tensor *invstd = yk__tensor_new(1, &c.rows, NULL, statistic, device);
    bool all = rows && (w || !weight) && (b || !bias) && out && mean && invstd;
    yk_status status = all ? YK_OK : yk__status_of(NULL);
    if (!status && out->numel) {
        yk__view vo = yk__view_of(rows), vm = yk__view_of(mean), vi = yk__view_of(invstd), vx = yk__view_of(rows), vw,
                 vb;
        vo.data = out->data;
        yk__contiguous_strides(2, vo.shape, vo.stride);
        status = YK__SLOT(x, layer_norm, eps, &vo, &vm, &vi, &vx, yk__optional_view(&vw, w), yk__optional_view(&vb, b));
    }
    out = yk__narrow_to(yk__tensor_if_ok(out, status), (yk_dtype)x->dtype);
    if (out && yk__will_tell(3, inputs)) {
        c.x = yk__spec_of(x);
        if (weight)
            c.weight = yk__spec_of(weight);
        if (bias)
            c.bias = yk__spec_of(bias);
        yk_tensor *saved[4] = {rows, w, mean, invstd};
        out = yk__record(out, &op, 3, inputs, 4, saved, &c, sizeof(c));
    } else {
        out = yk__scope_own(out);
    }
    yk__release_all(5, (yk_tensor *[]){rows, w, b, mean, invstd});
    yk__release_all(3, wide);
    return out;
}
