/*
 * dropout.c - zeroes elements at random in training. Layer: ops.
 *
 * Which elements are kept follows from the call's random stream, so backward keeps the stream instead of a mask.
 */
#include "device/graph.h"
#include "ops/op.h"

/* x, of C order, with the elements dropped part by part. NULL and the error set on failure. */
static yk_tensor *parts_dropped(yk_tensor *x, const yk__dropout *c)
{
    yk_tensor *out = yk__tensor_new(x->ndim, x->shape, NULL, (yk_dtype)x->dtype, yk__device_of(x));
    int64_t size = x->numel / c->parts;
    yk_status status = yk__status_of(out);
    for (int64_t part = 0; part < c->parts && !status; part++) {
        yk__view vo = yk__line_of(out), vx = yk__line_of(x);
        int64_t bytes = part * size * (int64_t)yk_dtype_size((yk_dtype)x->dtype);
        vo.data = (char *)vo.data + bytes, vx.data = (char *)vx.data + bytes;
        vo.shape[0] = vx.shape[0] = size;
        status = YK__SLOT(out, dropout, &vo, &vx, c->stream, c->calls, (uint64_t)(c->first + part * c->step), c->p);
    }
    return yk__tensor_if_ok(out, status);
}

/* x with elements dropped by the stream: they are multiplied by 0, so what is no number stays none. Everything is
 * dropped at p = 1, where 1 / (1 - p) would be infinite. */
static yk_tensor *dropped(yk_tensor *x, const yk__dropout *c)
{
    if (c->p == 1)
        return yk__raw_unary("dropout", YK__MUL_SCALAR, x, 0, 0);
    yk_tensor *wide, *out;
    if (yk__operands(YK__SLOT_dropout, 1u, 1, &x, &wide))
        return NULL;
    if (c->parts > 1 && wide->numel) {
        yk_tensor *dense = yk__raw_contiguous(wide);
        out = dense ? parts_dropped(dense, c) : NULL;
        yk_tensor_release(dense);
    } else {
        out = yk__tensor_like(wide, (yk_dtype)wide->dtype);
        if (out && out->numel) {
            yk__view vo = yk__view_of(out), vx = yk__view_of(wide);
            out =
                yk__tensor_if_ok(out, YK__SLOT(out, dropout, &vo, &vx, c->stream, c->calls, (uint64_t)c->first, c->p));
        }
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
    grads[0] = yk__dropout_by(gouts[0], yk__context(node));
}

yk_tensor *yk__dropout_by(yk_tensor *x, const yk__dropout *c)
{
    static const yk__op op = {.name = "dropout", .backward = dropout_backward, .recorded = dropout_recorded};
    return x ? yk__record(dropped(x, c), &op, 1, &x, 0, NULL, c, sizeof(*c)) : NULL;
}

yk_tensor *yk_dropout(yk_tensor *x, double p, bool training)
{
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
    yk__dropout c = {.p = p, .parts = 1};
    c.stream = yk__random_draw(yk__device_of(x), &c.calls);
    return yk__dropout_by(x, &c);
}
