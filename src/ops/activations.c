/*
 * activations.c - activations that are composed of other operations or kernels: ReLU6, SELU, PReLU, GLU. Those that
 * have a kernel of their own are rows of ops_unary.c. Layer: ops.
 */
#include "ops/op.h"

yk_tensor *yk_relu6(yk_tensor *x)
{
    YK__EVENT(YK__EVENT_OPERATION, "relu6");
    return yk__op_begin("relu6", 1, &x, 0) ? yk_clamp(x, 0, 6) : NULL;
}

yk_tensor *yk_selu(yk_tensor *x)
{
    const double alpha = 1.6732632423543772848170429916717, scale = 1.0507009873554804934193349852946;
    YK__EVENT(YK__EVENT_OPERATION, "selu");
    if (!yk__op_begin("selu", 1, &x, 0) || yk__expect_floating("selu", "input", x))
        return NULL;
    YK__WITHIN_SCOPE(yk_mul_scalar(yk_elu(x, alpha), scale));
}

static void prelu_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const yk__tensor_spec *slope_form = yk__context(node);
    yk_tensor *x = yk__saved_in_graph(node, 0), *slope = yk__saved_in_graph(node, 1);
    yk_tensor *positive = x ? yk_gt(x, yk__recorded_number(x, 0)) : NULL;
    if (yk__needs_grad(node, 0))
        grads[0] = yk_where(positive, gouts[0], yk_mul(gouts[0], slope));
    if (yk__needs_grad(node, 1))
        grads[1] = yk__recorded_sum_to(yk__recorded_where_not(positive, yk_mul(gouts[0], x)), slope_form);
}

static yk_tensor *prelu(yk_tensor *x, yk_tensor *weight)
{
    static const yk__op op = {.name = "prelu", .recorded = prelu_recorded};
    int64_t shape[YK_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (weight->numel > 1)
        shape[1] = weight->numel;
    int ndim = weight->numel > 1 ? x->ndim : 0;
    yk_tensor *slope = yk_reshape(weight, ndim, shape), *zero = yk__recorded_number(x, 0);
    if (slope && !yk__listening) {
        yk_tensor *both[2] = {x, slope};
        yk__tensor_spec form = yk__spec_of(slope);
        return yk__record(yk__raw_binary("prelu", YK__PRELU, x, slope, 1), &op, 2, both, 2, both, &form, sizeof(form));
    }
    return yk_where(yk_gt(x, zero), x, yk_mul(slope, x));
}

yk_tensor *yk_prelu(yk_tensor *x, yk_tensor *weight)
{
    yk_tensor *inputs[2] = {x, weight};
    char a[200], b[200];
    YK__EVENT(YK__EVENT_OPERATION, "prelu");
    if (!yk__op_begin("prelu", 2, inputs, 0) || yk__expect_floating("prelu", "input", x) ||
        yk__expect_dtype("prelu", "weight", weight, (yk_dtype)x->dtype))
        return NULL;
    int64_t channels = x->ndim > 1 ? x->shape[1] : 1;
    if (weight->ndim > 1 || (weight->numel != 1 && (weight->numel != channels || x->ndim < 2))) {
        yk__fail(YK_ERR_SHAPE,
                 "prelu: weight %s for input %s, expected one number, or one for each of its %lld channels",
                 yk_shape_format(weight, a, sizeof(a)), yk_shape_format(x, b, sizeof(b)), (long long)channels);
        return NULL;
    }
    YK__WITHIN_SCOPE(prelu(x, weight));
}

/* ---- gated linear units: a sigmoid(b), a and b the halves of x along a dimension ---- */

typedef struct glu_context {
    int dim;
    yk__tensor_spec x;
} glu_context;

/* One half of x, as a view; one reference. */
static yk_tensor *half_of(yk_tensor *x, int dim, int which)
{
    int64_t shape[YK_MAX_DIMS];
    memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)x->ndim);
    shape[dim] /= 2;
    return yk__tensor_view(x, x->ndim, shape, x->stride, which * shape[dim] * x->stride[dim]);
}

/* Both halves of the gradient are written where they belong. */
static yk_status glu_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const glu_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *x = yk__saved(node, 0, &status), *gate = yk__saved(node, 1, &status);
    if (status)
        return status;
    yk_tensor *gx = yk__spec_new(&c->x, yk__device_of(x));
    yk_tensor *a = half_of(x, c->dim, 0), *ga = gx ? half_of(gx, c->dim, 0) : NULL;
    yk_tensor *gb = gx ? half_of(gx, c->dim, 1) : NULL;
    yk_tensor *through = a ? yk__raw_binary("glu", YK__MUL, gout, a, 1) : NULL;
    status =
        through && ga && gb ? yk__raw_binary_into("glu", YK__SIGMOID_GRAD, gb, through, gate, 1) : yk__status_of(NULL);
    status = status ? status : yk__raw_binary_into("glu", YK__MUL, ga, gout, gate, 1);
    yk_tensor_release(a);
    yk_tensor_release(ga);
    yk_tensor_release(gb);
    yk_tensor_release(through);
    grads[0] = gx ? yk__tensor_if_ok(gx, status) : NULL;
    return yk__status_of(grads[0]);
}

static void glu_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const glu_context *c = yk__context(node);
    yk_tensor *x = yk__saved_in_graph(node, 0), *g = gouts[0];
    int64_t half = c->x.shape[c->dim] / 2;
    yk_tensor *a = yk_narrow(x, c->dim, 0, half), *gate = yk_sigmoid(yk_narrow(x, c->dim, half, half));
    yk_tensor *ga = yk_mul(g, gate), *rest = yk_rsub_scalar(gate, 1);
    yk_tensor *parts[2] = {ga, yk_mul(yk_mul(ga, a), rest)};
    grads[0] = parts[0] && parts[1] ? yk_cat(parts, 2, c->dim) : NULL;
}

static void glu_describe(const void *context, yk__attributes *to)
{
    yk__attribute_whole(to, "dim", ((const glu_context *)context)->dim);
}

static yk_tensor *glu(yk_tensor *x, int dim)
{
    static const yk__op op = {
        .name = "glu", .backward = glu_backward, .recorded = glu_recorded, .describe = glu_describe};
    int64_t half = x->shape[dim] / 2;
    if (yk__listening)
        return yk_mul(yk_narrow(x, dim, 0, half), yk_sigmoid(yk_narrow(x, dim, half, half)));
    yk_tensor *a = half_of(x, dim, 0), *b = half_of(x, dim, 1), *out = NULL;
    yk_tensor *gate = b ? yk__raw_unary("glu", YK__SIGMOID, b, 0, 0) : NULL;
    if (a && gate && yk__will_record(1, &x)) {
        out = yk__raw_binary("glu", YK__MUL, a, gate, 1);
    } else if (a && gate) { /* nobody else wants the gate's memory */
        out = yk__tensor_if_ok(yk_tensor_retain(gate), yk__raw_binary_into("glu", YK__MUL, gate, a, gate, 1));
    }
    yk_tensor_release(a);
    yk_tensor_release(b);
    glu_context c = {.dim = dim, .x = yk__spec_of(x)};
    yk_tensor *saved[2] = {x, gate};
    out = yk__record(out, &op, 1, &x, 2, saved, &c, sizeof(c));
    yk_tensor_release(gate);
    return out;
}

yk_tensor *yk_glu(yk_tensor *x, int dim)
{
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, "glu");
    if (!yk__op_begin("glu", 1, &x, 0) || yk__expect_floating("glu", "input", x) || yk__wrap_dim("glu", x, &dim))
        return NULL;
    if (x->ndim == 0 || x->shape[dim] % 2) {
        yk__fail(YK_ERR_SHAPE, "glu: dimension %d of %s, which is to be halved, has an odd size", dim,
                 yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    YK__WITHIN_SCOPE(glu(x, dim));
}
