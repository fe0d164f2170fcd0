/*
 * linear.c - x weight^T + bias over the last dimension. Layer: ops.
 *
 * With x as (M, in) rows: out = x W^T + b, gx = g W, gW = g^T x, gb = the sum of g over the rows. Transposes are
 * strides, nothing is copied; the gradient of the weight is written in the weight's own memory order. Where the backend
 * sums the rows of g while it multiplies (slot gemm_row_sums), gb comes with gW. With a ReLU after it, g is 0 where out
 * is.
 */
#include "ops/cast_policy.h"

typedef struct linear_context {
    yk__tensor_spec x, weight;
    bool relu;
} linear_context;

static yk_tensor *input_gradient(const linear_context *c, yk_tensor *g, yk_tensor *weight)
{
    yk_tensor *gx = yk__tensor_new(c->x.ndim, c->x.shape, NULL, (yk_dtype)weight->dtype, yk__device_of(g));
    if (!gx)
        return NULL;
    yk__view vg = yk__view_of(g), vw = yk__matrix_of(weight, false),
             vgx = {.data = gx->data, .dtype = vg.dtype, .ndim = 3};
    vgx.shape[0] = 1, vgx.shape[1] = vg.shape[1], vgx.shape[2] = vw.shape[2];
    yk__contiguous_strides(3, vgx.shape, vgx.stride);
    return yk__tensor_if_ok(gx, yk__multiply(gx, &vgx, &vg, &vw, NULL, false));
}

/* The gradients of weight and bias (those that are wanted), of g (1, M, out) and x (1, M, in) or NULL. */
static yk_status parameter_gradients(yk__node *node, const linear_context *c, yk_tensor *g, yk_tensor *x,
                                     yk_tensor **gw, yk_tensor **gbias)
{
    bool wants_bias = yk__needs_grad(node, 2), summed = false;
    if (yk__needs_grad(node, 1)) {
        if (wants_bias && yk__backend_for(g)->gemm_row_sums) {
            *gbias = yk__gradient_vector(node, 2, c->weight.shape[0], (yk_dtype)g->dtype, yk__device_of(g));
            if (!*gbias)
                return yk__error_code();
        }
        *gw = yk__weight_and_bias_gradient(node, 1, &c->weight, g, x, *gbias, &summed);
        if (!*gw)
            return yk__error_code();
    }
    if (!wants_bias || summed)
        return YK_OK;
    yk_tensor_release(*gbias);
    *gbias = yk__raw_reduce("linear", YK__SUM, g, 3, false, 0);
    return yk__status_of(*gbias);
}

static yk_status linear_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const linear_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *from[3] = {gout, yk__saved(node, 0, &status), yk__saved(node, 1, &status)}, *wide[3];
    yk_tensor *out = yk__saved(node, 2, &status), *masked = NULL, *made[3] = {NULL, NULL, NULL};
    if (!status && c->relu) {
        from[0] = masked = yk__raw_binary("linear", YK__RELU_GRAD, gout, out, 1);
        status = yk__status_of(masked);
    }
    if (!status)
        status = yk__operands(YK__SLOT_gemm, 7u, 3, from, wide);
    if (status) {
        yk_tensor_release(masked);
        return status;
    }
    yk_tensor *g = yk__as_rows(wide[0]), *x = wide[1] ? yk__as_rows(wide[1]) : NULL;
    status = g && (x || !wide[1]) ? YK_OK : yk__error_code();
    if (!status && yk__needs_grad(node, 0)) {
        made[0] = input_gradient(c, g, wide[2]);
        status = yk__status_of(made[0]);
    }
    if (!status)
        status = parameter_gradients(node, c, g, x, &made[1], &made[2]);
    for (int i = 0; i < 3; i++) {
        grads[i] = yk__narrow_to(made[i], (yk_dtype)gout->dtype);
        if (!status && made[i])
            status = yk__status_of(grads[i]);
    }
    yk_tensor_release(g);
    yk_tensor_release(x);
    yk__release_all(3, wide);
    yk_tensor_release(masked);
    return status;
}

static void linear_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const linear_context *c = yk__context(node);
    yk_tensor *g = c->relu ? yk__recorded_relu(gouts[0], yk__saved_in_graph(node, 2)) : gouts[0];
    if (!g)
        return;
    if (yk__needs_grad(node, 0))
        grads[0] = yk_matmul(g, yk__saved_in_graph(node, 1));
    yk_tensor *rows =
        yk_reshape(g, 2, (int64_t[]){g->numel / (c->weight.shape[0] ? c->weight.shape[0] : 1), c->weight.shape[0]});
    if (yk__needs_grad(node, 1)) {
        yk_tensor *x = yk__saved_in_graph(node, 0);
        int64_t shape[2] = {rows ? rows->shape[0] : 0, c->weight.shape[1]};
        grads[1] = yk_matmul(rows ? yk_transpose(rows, 0, 1) : NULL, yk_reshape(x, 2, shape));
    }
    if (yk__needs_grad(node, 2))
        grads[2] = yk_sum_dims(rows, (int[]){0}, 1, false);
}

static bool linear_check(const yk_tensor *x, const yk_tensor *weight, const yk_tensor *bias)
{
    char tx[200], tw[200];
    if (weight->ndim != 2) {
        yk__fail(YK_ERR_SHAPE, "linear: weight has shape %s, expected (out, in)",
                 yk_shape_format(weight, tw, sizeof(tw)));
        return false;
    }
    if (x->ndim == 0 || x->shape[x->ndim - 1] != weight->shape[1]) {
        yk__fail(YK_ERR_SHAPE, "linear: input %s has %lld features but weight %s expects %lld",
                 yk_shape_format(x, tx, sizeof(tx)), (long long)(x->ndim ? x->shape[x->ndim - 1] : 0),
                 yk_shape_format(weight, tw, sizeof(tw)), (long long)weight->shape[1]);
        return false;
    }
    yk_dtype dtype = (yk_dtype)x->dtype;
    return !yk__expect_floating("linear", "input", x) && !yk__expect_input("linear", x, weight, bias) &&
           !yk__expect_dtype("linear", "weight", weight, dtype) && !yk__expect_dtype("linear", "bias", bias, dtype) &&
           !yk__expect_vector("linear", "bias", bias, weight->shape[0], "output feature");
}

static yk_tensor *linear(yk_tensor *x, yk_tensor *weight, yk_tensor *bias, bool relu)
{
    static const yk__op op = {.name = "linear", .backward = linear_backward, .recorded = linear_recorded};
    static const yk__op op_relu = {.name = "linear_relu", .backward = linear_backward, .recorded = linear_recorded};
    yk_tensor *inputs[3] = {x, weight, bias}, *wide[3];
    YK__AUTOCAST(linear, 3, inputs, linear(inputs[0], inputs[1], inputs[2], relu));
    YK__EVENT(YK__EVENT_OPERATION, "linear");
    if (!yk__op_begin("linear", 3, inputs, 1u << 2) || !linear_check(x, weight, bias) ||
        yk__operands(YK__SLOT_gemm, 7u, 3, inputs, wide))
        return NULL;
    int64_t shape[YK_MAX_DIMS];
    memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)x->ndim);
    shape[x->ndim - 1] = weight->shape[0];
    yk_tensor *rows = yk__as_rows(wide[0]);
    yk_tensor *out = rows ? yk__tensor_new(x->ndim, shape, NULL, (yk_dtype)rows->dtype, yk__device_of(x)) : NULL;
    if (out) {
        yk__view a = yk__view_of(rows), b = yk__matrix_of(wide[1], true),
                 vo = {.data = out->data, .dtype = a.dtype, .ndim = 3};
        vo.shape[0] = 1, vo.shape[1] = a.shape[1], vo.shape[2] = b.shape[2];
        yk__contiguous_strides(3, vo.shape, vo.stride);
        out = yk__tensor_if_ok(out, (relu ? yk__multiply_relu(out, &vo, &a, &b, wide[2])
                                          : yk__multiply(out, &vo, &a, &b, wide[2], false)));
    }
    int8_t dtype = wide[0]->dtype;
    yk_tensor_release(rows);
    yk__release_all(3, wide);
    out = yk__narrow_to(out, (yk_dtype)x->dtype);
    if (!out || !yk__will_tell(3, inputs))
        return yk__scope_own(out);
    linear_context c = {yk__spec_of(x), yk__spec_of(weight), relu};
    c.weight.dtype = dtype;
    yk_tensor *saved[3] = {yk__wants_grad(weight) ? x : NULL, yk__wants_grad(x) ? weight : NULL, relu ? out : NULL};
    return yk__record(out, relu ? &op_relu : &op, 3, inputs, 3, saved, &c, sizeof(c));
}

yk_tensor *yk_linear(yk_tensor *x, yk_tensor *weight, yk_tensor *bias)
{
    return linear(x, weight, bias, false);
}

yk_tensor *yk_linear_relu(yk_tensor *x, yk_tensor *weight, yk_tensor *bias)
{
    return linear(x, weight, bias, true);
}
