/*
 * batch_norm.c - batch normalisation, with the residual sum and ReLU after it in the same pass. Layer: ops.
 *
 * Backward reads x, the batch's mean and 1 / deviation, and the result only where ReLU is fused (its sign is the mask)
 * and the backend does not leave numbers that tell the same from x (yk__batch_norm.edges). Without ReLU the residual's
 * gradient is the result's, handed on as it is. Gradients are written over the parts of the result's that nobody else
 * sees. Derivation: docs/autograd.md.
 */
#include <math.h>

#include "ops/op.h"

enum { X, WEIGHT, BIAS, RESIDUAL, DIFFERENTIABLE, RUNNING_MEAN = DIFFERENTIABLE, RUNNING_VAR, INPUTS };

typedef struct batch_norm_context {
    yk__batch_norm p;
    bool has_residual;
    int8_t parameter_dtype;
    yk__tensor_spec x;
} batch_norm_context;

static void batch_norm_describe(const void *context, yk__attributes *to)
{
    const batch_norm_context *c = context;
    yk__attribute_real(to, "eps", c->p.eps);
    yk__attribute_whole(to, "training", c->p.training);
    yk__attribute_whole(to, "relu", c->p.relu);
}

static yk_status batch_norm_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    enum { G, SAVED_X, SAVED_WEIGHT, MEAN, INVSTD, OUT, READ, EDGES = READ - 1 };
    const batch_norm_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *from[READ] = {gout}, *in[READ], *made[DIFFERENTIABLE] = {NULL}, *addend = yk__addend(node);
    bool residual = c->has_residual && yk__needs_grad(node, RESIDUAL);
    bool handed_on = residual && !c->p.relu && !addend; /* the gradient, as the residual's */
    for (int i = 1; i < READ; i++)
        from[i] = yk__saved(node, i - 1, &status);
    yk__batch_norm p = c->p;
    const yk_tensor *edges = yk__saved(node, EDGES, &status);
    p.edges = edges ? edges->data : NULL;
    if (residual && !handed_on)
        made[RESIDUAL] = yk__gradient_over(node, &c->x, gout);
    if (yk__needs_grad(node, X))
        made[X] = yk__gradient_over(node, &c->x, addend);
    if (yk__needs_grad(node, X) && !made[X] && !made[RESIDUAL] && !handed_on)
        made[X] = yk__gradient_over(node, &c->x, gout);
    if (status || (status = yk__operands(YK__SLOT_batch_norm, 1u << G | 1u << SAVED_X | 1u << OUT, READ, from, in))) {
        yk__release_all(DIFFERENTIABLE, made);
        return status;
    }
    yk_device device = yk__device_of(gout);
    yk_dtype dtype = (yk_dtype)in[SAVED_X]->dtype;
    int64_t channels = c->x.shape[1];
    for (int i = 0; i < DIFFERENTIABLE && !status; i++) {
        if (made[i] || !yk__needs_grad(node, i) || (i == RESIDUAL && handed_on))
            continue;
        made[i] = i == WEIGHT || i == BIAS ? yk__gradient_vector(node, i, channels, yk__statistic_dtype(dtype), device)
                                           : yk__spec_new(&c->x, device);
        status = yk__status_of(made[i]);
    }
    for (int i = 0; i < DIFFERENTIABLE && !status && !in[SAVED_X]->numel; i++)
        status = made[i] ? yk__raw_fill(made[i], 0) : YK_OK;
    if (!status && in[SAVED_X]->numel && (made[X] || made[WEIGHT] || made[BIAS] || made[RESIDUAL])) {
        yk__view v[READ], m[DIFFERENTIABLE], va;
        const yk__view *read[READ], *write[DIFFERENTIABLE];
        for (int i = 0; i < READ; i++)
            read[i] = yk__optional_view(&v[i], in[i]);
        for (int i = 0; i < DIFFERENTIABLE; i++)
            write[i] = yk__optional_view(&m[i], made[i]);
        status = YK__SLOT(gout, batch_norm_backward, &p, write[X], write[RESIDUAL], write[WEIGHT], write[BIAS], read[G],
                          yk__optional_view(&va, addend), read[SAVED_X], read[OUT], read[SAVED_WEIGHT], read[MEAN],
                          read[INVSTD]);
    }
    yk__release_all(READ, in);
    for (int i = 0; i < DIFFERENTIABLE; i++) {
        bool parameter = i == WEIGHT || i == BIAS;
        grads[i] = yk__narrow_to(made[i], parameter ? (yk_dtype)c->parameter_dtype : (yk_dtype)gout->dtype);
        if (!status && made[i])
            status = yk__status_of(grads[i]);
    }
    if (!status && handed_on)
        grads[RESIDUAL] = yk_tensor_retain(gout);
    return status;
}

/* A vector over channels as (1, C, 1, ...). */
static yk_tensor *over_channels(yk_tensor *vector, int ndim)
{
    int64_t shape[YK_MAX_DIMS] = {1, vector ? vector->numel : 1, 1, 1, 1};
    return yk_reshape(vector, ndim, shape);
}

/* The formula of docs/autograd.md, from x: the saved statistics of a batch have no history. */
static void batch_norm_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    enum { SAVED_X, SAVED_WEIGHT, MEAN, INVSTD, OUT, EDGES, SAVED_BIAS };
    const batch_norm_context *c = yk__context(node);
    yk_tensor *source = yk__saved_in_graph(node, SAVED_X), *x = yk__recorded_wide(source);
    yk_tensor *weight = yk__recorded_wide(yk__saved_in_graph(node, SAVED_WEIGHT)), *out = yk__saved_in_graph(node, OUT);
    yk_tensor *g = gouts[0], *mean, *invstd;
    if (!x || yk__error_code())
        return;
    int ndim = x->ndim, dims[YK_MAX_DIMS] = {0, 2, 3, 4}, count = ndim - 1;
    yk_tensor *w = weight ? over_channels(weight, ndim) : NULL;
    if (c->p.training) {
        mean = yk_mean_dims(x, dims, count, true);
        yk_tensor *var = yk_mean_dims(yk_square(yk_sub(x, mean)), dims, count, true);
        invstd = yk_rsqrt(yk_add_scalar(var, c->p.eps));
    } else {
        mean = over_channels(yk__saved_in_graph(node, MEAN), ndim);
        invstd = over_channels(yk__saved_in_graph(node, INVSTD), ndim);
    }
    yk_tensor *h = yk_mul(yk_sub(x, mean), invstd);
    if (c->p.relu && !out) { /* the kernel left numbers that tell the signs to its own backward alone */
        yk_tensor *bias = yk__recorded_wide(yk__saved_in_graph(node, SAVED_BIAS));
        out = w ? yk_mul(h, w) : h;
        out = bias ? yk_add(out, over_channels(bias, ndim)) : out;
        out = out ? yk_detach(out) : NULL;
    }
    if (c->p.relu)
        g = yk__recorded_relu(g, out);
    if (c->has_residual && yk__needs_grad(node, RESIDUAL))
        grads[RESIDUAL] = g;
    g = yk__recorded_wide(g);
    if (yk__needs_grad(node, X)) {
        yk_tensor *scale = w ? yk_mul(w, invstd) : invstd, *rest = g;
        if (c->p.training) {
            yk_tensor *along = yk_mul(h, yk_mean_dims(yk_mul(g, h), dims, count, true));
            rest = yk_sub(yk_sub(g, yk_mean_dims(g, dims, count, true)), along);
        }
        grads[X] = yk_cast(yk_mul(rest, scale), (yk_dtype)source->dtype);
    }
    if (yk__needs_grad(node, WEIGHT))
        grads[WEIGHT] = yk_cast(yk_sum_dims(yk_mul(g, h), dims, count, false), (yk_dtype)c->parameter_dtype);
    if (yk__needs_grad(node, BIAS))
        grads[BIAS] = yk_cast(yk_sum_dims(g, dims, count, false), (yk_dtype)c->parameter_dtype);
}

/* Halves that the slot would get in f32 are added before: their sum is rounded. */
static bool batch_norm_takes_addend(const yk_tensor *gout)
{
    return yk__slot_dtype(gout, YK__SLOT_batch_norm, (yk_dtype)gout->dtype) == (yk_dtype)gout->dtype;
}

static bool inputs_check(yk_tensor *const in[INPUTS], const yk__batch_norm *p)
{
    bool training = p->training;
    static const char *const role[INPUTS] = {"input", "weight", "bias", "residual", "running_mean", "running_var"};
    const yk_tensor *x = in[X];
    char text[200], other[200];
    yk_shape_format(x, text, sizeof(text));
    if (x->ndim < 2 || x->ndim > 5) {
        yk__fail(YK_ERR_SHAPE, "batch_norm: input has shape %s, expected 2 to 5 dimensions (N, C, ...)", text);
        return false;
    }
    if (yk__expect_floating("batch_norm", "input", x))
        return false;
    if (in[RESIDUAL] && (!yk_same_shape(in[RESIDUAL], x) || in[RESIDUAL]->dtype != x->dtype)) {
        yk__fail(YK_ERR_SHAPE, "batch_norm: residual is %s of %s, expected the input's %s of %s",
                 yk_shape_format(in[RESIDUAL], other, sizeof(other)), yk_dtype_name((yk_dtype)in[RESIDUAL]->dtype),
                 text, yk_dtype_name((yk_dtype)x->dtype));
        return false;
    }
    if (yk__expect_wide_input("batch_norm", x,
                              (const char *[]){role[WEIGHT], role[BIAS], role[RUNNING_MEAN], role[RUNNING_VAR]},
                              (yk_tensor *[]){in[WEIGHT], in[BIAS], in[RUNNING_MEAN], in[RUNNING_VAR]}, 4))
        return false;
    for (int i = WEIGHT; i < INPUTS; i++) {
        if (i == RESIDUAL)
            continue;
        /* With f16 and bf16 parameters and statistics may be f32, which is what is computed in. */
        bool as_input = in[i] && in[i]->dtype == x->dtype;
        if (yk__expect_vector("batch_norm", role[i], in[i], x->shape[1], "channel") ||
            (!as_input && yk__expect_dtype("batch_norm", role[i], in[i], yk__wide_dtype(x))))
            return false;
    }
    if (in[WEIGHT] && in[BIAS] && in[WEIGHT]->dtype != in[BIAS]->dtype) {
        yk__fail(YK_ERR_DTYPE, "batch_norm: weight is %s but bias is %s", yk_dtype_name((yk_dtype)in[WEIGHT]->dtype),
                 yk_dtype_name((yk_dtype)in[BIAS]->dtype));
        return false;
    }
    if (!in[RUNNING_MEAN] != !in[RUNNING_VAR] || (!training && !in[RUNNING_MEAN])) {
        yk__fail(YK_ERR_ARGUMENT, training ? "batch_norm: running_mean and running_var go together; one is NULL"
                                           : "batch_norm: running_mean and running_var are needed outside training");
        return false;
    }
    if (yk__check_number("batch_norm", "momentum", p->momentum, 0, 1) ||
        (training ? yk__check_positive("batch_norm", "eps", p->eps)
                  : yk__check_number("batch_norm", "eps", p->eps, 0, INFINITY)))
        return false;
    if (training && x->numel && x->numel / x->shape[1] < 2) { /* of nothing at all there is a result, as in PyTorch */
        yk__fail(YK_ERR_SHAPE, "batch_norm: expected more than 1 value per channel when training, got input size %s",
                 text);
        return false;
    }
    return true;
}

bool yk__batch_norm_counts(const yk_tensor *x, const yk_tensor *batches)
{
    return yk__backend_for(x)->batch_norm_edges && x->numel &&
           yk_device_equal(yk__device_of(x), yk__device_of(batches));
}

yk_tensor *yk_batch_norm(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, yk_tensor *running_mean,
                         yk_tensor *running_var, const yk_batch_norm_options *options)
{
    return yk__batch_norm_counting(x, weight, bias, running_mean, running_var, NULL, options);
}

yk_tensor *yk__batch_norm_counting(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, yk_tensor *running_mean,
                                   yk_tensor *running_var, yk_tensor *batches, const yk_batch_norm_options *options)
{
    static const yk__op op = {.name = "batch_norm",
                              .backward = batch_norm_backward,
                              .recorded = batch_norm_recorded,
                              .takes_addend = batch_norm_takes_addend,
                              .describe = batch_norm_describe};
    yk_batch_norm_options o;
    if (YK__OPTIONS_TAKE("batch_norm", yk_batch_norm_options, options, &o))
        return NULL;
    yk_tensor *in[INPUTS] = {x, weight, bias, o.residual, running_mean, running_var}, *wide[INPUTS];
    batch_norm_context c = {.p = {o.momentum, o.eps, o.training, o.relu, NULL, NULL}};
    YK__EVENT(YK__EVENT_OPERATION, "batch_norm");
    if (!yk__op_begin("batch_norm", INPUTS, in, ~1u) || !inputs_check(in, &c.p) ||
        yk__operands(YK__SLOT_batch_norm, 1u << X | 1u << RESIDUAL, INPUTS, in, wide))
        return NULL;
    yk_device device = yk__device_of(x);
    yk_dtype dtype = (yk_dtype)wide[X]->dtype, statistic = yk__statistic_dtype(dtype);
    yk_tensor *out = yk__tensor_like(wide[X], dtype), *mean = yk__tensor_new(1, &x->shape[1], NULL, statistic, device);
    yk_tensor *invstd = yk__tensor_new(1, &x->shape[1], NULL, statistic, device);
    yk_tensor *edges = NULL;
    bool record = yk__will_record(DIFFERENTIABLE, in);
    yk_status status = out && mean && invstd ? YK_OK : yk__status_of(NULL);
    if (!status && record && o.relu && !o.residual && out->numel && yk__backend_for(x)->batch_norm_edges) {
        edges = yk__tensor_new(2, (const int64_t[]){x->shape[1], 2}, NULL, YK_F64, device);
        status = yk__status_of(edges);
    }
    if (!status && out->numel) {
        yk__batch_norm p = c.p;
        p.edges = edges ? edges->data : NULL;
        p.batches = batches ? batches->data : NULL;
        yk__view vo = yk__view_of(out), vm = yk__view_of(mean), vi = yk__view_of(invstd), v[INPUTS];
        const yk__view *read[INPUTS];
        for (int i = 0; i < INPUTS; i++)
            read[i] = yk__optional_view(&v[i], wide[i]);
        status = YK__SLOT(x, batch_norm, &p, &vo, &vm, &vi, read[X], read[RESIDUAL], read[WEIGHT], read[BIAS],
                          read[RUNNING_MEAN], read[RUNNING_VAR]);
        for (int i = RUNNING_MEAN; i < INPUTS && o.training && running_mean; i++) {
            if (!status && in[i] != wide[i])
                status = yk__raw_copy(in[i], wide[i]); /* halves moved in f32 */
            yk__bump_version(in[i]);
        }
        if (batches)
            yk__bump_version(batches);
    }
    yk__release_all(INPUTS, wide);
    out = yk__narrow_to(yk__tensor_if_ok(out, status), (yk_dtype)x->dtype);
    if (out && record) {
        c.has_residual = o.residual != NULL;
        c.parameter_dtype = weight ? weight->dtype : bias ? bias->dtype : x->dtype;
        c.x = yk__spec_of(x);
        c.x.dtype = (int8_t)dtype;
        yk_tensor *saved[7] = {x, weight, mean, invstd, o.relu && !edges ? out : NULL, edges, edges ? bias : NULL};
        out = yk__record(out, &op, DIFFERENTIABLE, in, 7, saved, &c, sizeof(c));
    } else {
        if (out)
            yk__tell(&op, &c, INPUTS, in, 1, &out);
        out = yk__scope_own(out);
    }
    yk_tensor_release(mean);
    yk_tensor_release(invstd);
    yk_tensor_release(edges);
    return out;
}
