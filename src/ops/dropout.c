/*
 * dropout.c - zeroes elements at random in training. Layer: ops.
 *
 * Which elements are kept follows from the call's random stream, so backward keeps the stream instead of a mask.
 */
#include "device/graph.h"
#include "ops/op.h"

typedef struct dropout_context {
    yk__stream stream;
    const uint32_t *calls; /* of a recorded call, in the graph's memory; else NULL */
    double p;
} dropout_context;

/* x with elements dropped by the stream: they are multiplied by 0, so what is no number stays none. Everything is
 * dropped at p = 1, where 1 / (1 - p) would be infinite. */
static yk_tensor *dropped(yk_tensor *x, const dropout_context *c)
{
    if (c->p == 1)
        return yk__raw_unary("dropout", YK__MUL_SCALAR, x, 0, 0);
    yk_tensor *wide;
    if (yk__operands(YK__SLOT_dropout, 1u, 1, &x, &wide))
        return NULL;
    yk_tensor *out = yk__tensor_like(wide, (yk_dtype)wide->dtype);
    if (out && out->numel) {
        yk__view vo = yk__view_of(out), vx = yk__view_of(wide);
        out = yk__tensor_if_ok(out, YK__SLOT(out, dropout, &vo, &vx, c->stream, c->calls, c->p));
    }
    yk_tensor_release(wide);
    return yk__narrow_to(out, (yk_dtype)x->dtype);
}

static yk_status dropout_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = dropped(gout, yk__context(node));
    return yk__status_of(grads[0]);
}

static void dropout_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    static const yk__op op = {.name = "dropout", .backward = dropout_backward, .recorded = dropout_recorded};
    const dropout_context *c = yk__context(node);
    grads[0] = yk__record(dropped(gouts[0], c), &op, 1, gouts, 0, NULL, c, sizeof(*c));
}

yk_tensor *yk_dropout(yk_tensor *x, double p, bool training)
{
    static const yk__op op = {.name = "dropout", .backward = dropout_backward, .recorded = dropout_recorded};
    YK__EVENT(YK__EVENT_OPERATION, "dropout");
    if (!yk__op_begin("dropout", 1, &x, 0))
        return NULL;
    if (!(p >= 0 && p <= 1)) {
        yk__fail(YK_ERR_ARGUMENT, "dropout: p is %g, expected a probability in [0, 1]", p);
        return NULL;
    }
    if (yk__expect_floating("dropout", "tensor", x))
        return NULL;
    if (!training || p == 0)
        return yk__scope_own(yk_tensor_retain(x));
    dropout_context c = {.p = p};
    c.stream = yk__random_draw(yk__device_of(x), &c.calls);
    return yk__record(dropped(x, &c), &op, 1, &x, 0, NULL, &c, sizeof(c));
}
