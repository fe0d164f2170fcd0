/*
 * softmax_ops.c - softmax and log_softmax over one dimension. Layer: ops.
 *
 * Both keep their output, from which the gradient follows (docs/autograd.md).
 */
#include "ops/cast_policy.h"

typedef struct softmax_context {
    int dim;
    bool log;
} softmax_context;

/* A view for the kernel, which wants at least one dimension. */
static yk__view rows_of(const yk_tensor *x)
{
    yk__view v = yk__view_of(x);
    if (v.ndim == 0)
        v.ndim = 1, v.shape[0] = 1, v.stride[0] = 1;
    return v;
}

static yk_status softmax_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const softmax_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *wide[2], *from[2] = {gout, yk__saved(node, 0, &status)};
    if (status || (status = yk__operands(YK__SLOT_softmax, 3u, 2, from, wide)))
        return status;
    yk_tensor *gx = yk__tensor_like(wide[1], (yk_dtype)wide[1]->dtype);
    status = yk__status_of(gx);
    if (gx && gx->numel) {
        yk__view vgx = rows_of(gx), vg = rows_of(wide[0]), vout = rows_of(wide[1]);
        status = YK__SLOT(gx, softmax_backward, &vgx, &vg, &vout, c->dim, c->log);
    }
    yk__release_all(2, wide);
    grads[0] = yk__narrow_to(yk__tensor_if_ok(gx, status), (yk_dtype)gout->dtype);
    return yk__status_of(grads[0]);
}

static void softmax_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const softmax_context *c = yk__context(node);
    yk_tensor *out = yk__recorded_wide(yk__saved_in_graph(node, 0)), *g = yk__recorded_wide(gouts[0]), *grad;
    if (c->log)
        grad = yk_sub(g, yk_mul(yk_exp(out), yk_sum_dims(g, &c->dim, 1, true)));
    else
        grad = yk_mul(out, yk_sub(g, yk_sum_dims(yk_mul(g, out), &c->dim, 1, true)));
    grads[0] = yk_cast(grad, (yk_dtype)gouts[0]->dtype);
}

static void softmax_describe(const void *context, yk__attributes *to)
{
    yk__attribute_whole(to, "dim", ((const softmax_context *)context)->dim);
}

static yk_tensor *softmax(const yk__op *op, yk_tensor *x, int dim, bool log)
{
    YK__EVENT(YK__EVENT_OPERATION, op->name);
    if (!yk__op_begin(op->name, 1, &x, 0) || yk__wrap_dim(op->name, x, &dim) ||
        yk__expect_floating(op->name, "tensor", x))
        return NULL;
    yk_tensor *wide;
    if (yk__operands(YK__SLOT_softmax, 1u, 1, &x, &wide))
        return NULL;
    yk_tensor *out = yk__tensor_like(wide, (yk_dtype)wide->dtype);
    if (out && out->numel) {
        yk__view vo = rows_of(out), vx = rows_of(wide);
        out = yk__tensor_if_ok(out, YK__SLOT(out, softmax, &vo, &vx, dim, log));
    }
    yk_tensor_release(wide);
    out = yk__narrow_to(out, (yk_dtype)x->dtype);
    softmax_context c = {dim, log};
    return yk__record(out, op, 1, &x, 1, &out, &c, sizeof(c));
}

yk_tensor *yk_softmax(yk_tensor *x, int dim)
{
    static const yk__op op = {
        .name = "softmax", .backward = softmax_backward, .recorded = softmax_recorded, .describe = softmax_describe};
    YK__AUTOCAST(softmax, 1, &x, yk_softmax(x, dim));
    return softmax(&op, x, dim, false);
}

yk_tensor *yk_log_softmax(yk_tensor *x, int dim)
{
    static const yk__op op = {.name = "log_softmax",
                              .backward = softmax_backward,
                              .recorded = softmax_recorded,
                              .describe = softmax_describe};
    YK__AUTOCAST(log_softmax, 1, &x, yk_log_softmax(x, dim));
    return softmax(&op, x, dim, true);
}
