/*
 * linear.c - x weight^T + bias over the last dimension. Layer: ops.
 *
 * With x as (M, in) rows: out = x W^T + b, gx = g W, gW = g^T x, gb = the sum of g over the rows. Transposes are
 * strides, nothing is copied; the gradient of the weight is written in the weight's own memory order.
 */
#include "ops/cast_policy.h"

static yk_status linear_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const yk__tensor_spec *x_spec = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *from[3] = {gout, yk__saved(node, 0, &status), yk__saved(node, 1, &status)}, *wide[3];
    if (status || (status = yk__operands(YK__SLOT_gemm, 7u, 3, from, wide)))
        return status;
    yk_dtype dtype = (yk_dtype)gout->dtype;
    yk_tensor *g = yk__as_rows(wide[0]);
    status = yk__status_of(g);
    if (!status && yk__needs_grad(node, 0)) {
        yk_tensor *gx =
            yk__tensor_new(x_spec->ndim, x_spec->shape, NULL, (yk_dtype)wide[0]->dtype, yk__device_of(gout));
        status = yk__status_of(gx);
        if (!status) {
            yk__view vg = yk__view_of(g), vw = yk__matrix_of(wide[2], false),
                     vgx = {.data = gx->data, .dtype = vg.dtype, .ndim = 3};
            vgx.shape[0] = 1, vgx.shape[1] = vg.shape[1], vgx.shape[2] = vw.shape[2];
            yk__contiguous_strides(3, vgx.shape, vgx.stride);
            status = yk__multiply(gx, &vgx, &vg, &vw, NULL, false);
        }
        grads[0] = yk__narrow_to(yk__tensor_if_ok(gx, status), dtype);
        status = yk__status_of(grads[0]);
    }
    if (!status && yk__needs_grad(node, 1)) {
        yk_tensor *x = yk__as_rows(wide[1]);
        grads[1] = yk__narrow_to(yk__weight_gradient(node, 1, x_spec + 1, g, x), dtype);
        yk_tensor_release(x);
        status = yk__status_of(grads[1]);
    }
    if (!status && yk__needs_grad(node, 2)) {
        grads[2] = yk__narrow_to(yk__raw_reduce("linear", YK__SUM, g, 3, false, 0), dtype);
        status = yk__status_of(grads[2]);
    }
    yk_tensor_release(g);
    yk__release_all(3, wide);
    return status;
}

static bool check(const yk_tensor *x, const yk_tensor *weight, const yk_tensor *bias)
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

yk_tensor *yk_linear(yk_tensor *x, yk_tensor *weight, yk_tensor *bias)
{
    static const yk__op op = {.name = "linear", .backward = linear_backward};
    yk_tensor *inputs[3] = {x, weight, bias}, *wide[3];
    YK__AUTOCAST(linear, 3, inputs, yk_linear(inputs[0], inputs[1], inputs[2]));
    if (!yk__op_begin("linear", 3, inputs, 1u << 2) || !check(x, weight, bias) ||
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
        out = yk__tensor_if_ok(out, yk__multiply(out, &vo, &a, &b, wide[2], false));
    }
    int8_t dtype = wide[0]->dtype;
    yk_tensor_release(rows);
    yk__release_all(3, wide);
    out = yk__narrow_to(out, (yk_dtype)x->dtype);
    if (!out || !yk__will_record(3, inputs))
        return yk__scope_own(out);
    yk__tensor_spec specs[2] = {yk__spec_of(x), yk__spec_of(weight)};
    specs[1].dtype = dtype;
    yk_tensor *saved[2] = {yk_requires_grad(weight) ? x : NULL, yk_requires_grad(x) ? weight : NULL};
    return yk__record(out, &op, 3, inputs, 2, saved, specs, sizeof(specs));
}
