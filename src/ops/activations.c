/*
 * activations.c - activations that are composed of other operations: ReLU6, SELU, PReLU, GLU. Those that have a kernel
 * are rows of ops_unary.c. Layer: ops.
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

static yk_tensor *prelu(yk_tensor *x, yk_tensor *weight)
{
    int64_t shape[YK_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (weight->numel > 1)
        shape[1] = weight->numel;
    int ndim = weight->numel > 1 ? x->ndim : 0;
    yk_tensor *slope = yk_reshape(weight, ndim, shape), *zero = yk__recorded_number(x, 0);
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

static yk_tensor *glu(yk_tensor *x, int dim)
{
    int64_t half = x->shape[dim] / 2;
    return yk_mul(yk_narrow(x, dim, 0, half), yk_sigmoid(yk_narrow(x, dim, half, half)));
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
