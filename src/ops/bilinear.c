/*
 * bilinear.c - a form that is linear in each of two inputs. Layer: ops.
 *
 * a times the weights of all outputs side by side is one product; each row of that, a matrix (O,J), times b is another.
 */
#include "ops/op.h"

static yk_tensor *bilinear(yk_tensor *a, yk_tensor *b, yk_tensor *weight, yk_tensor *bias)
{
    yk_dtype dtype = (yk_dtype)a->dtype;
    int64_t outputs = weight->shape[0], in1 = weight->shape[1], in2 = weight->shape[2], shape[YK_MAX_DIMS];
    memcpy(shape, a->shape, sizeof(shape[0]) * (size_t)a->ndim);
    shape[a->ndim - 1] = outputs;
    int64_t rows = a->numel / in1;
    int ndim = a->ndim;
    a = yk_reshape(yk__recorded_wide(a), 2, (int64_t[2]){rows, in1});
    b = yk_reshape(yk__recorded_wide(b), 3, (int64_t[3]){rows, in2, 1});
    yk_tensor *w = yk_reshape(yk_transpose(yk__recorded_wide(weight), 0, 1), 2, (int64_t[2]){in1, outputs * in2});
    yk_tensor *part = yk_reshape(yk_matmul(a, w), 3, (int64_t[3]){rows, outputs, in2});
    yk_tensor *out = yk_reshape(yk_matmul(part, b), ndim, shape);
    if (bias)
        out = yk_add(out, yk__recorded_wide(bias));
    return out ? yk_cast(out, dtype) : NULL;
}

yk_tensor *yk_bilinear(yk_tensor *a, yk_tensor *b, yk_tensor *weight, yk_tensor *bias)
{
    static const char name[] = "bilinear";
    char ta[200], tb[200], tw[200];
    yk_tensor *inputs[4] = {a, b, weight, bias};
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 4, inputs, 1u << 3) || yk__expect_floating(name, "input", a) ||
        yk__expect_dtype(name, "second input", b, (yk_dtype)a->dtype) ||
        yk__expect_dtype(name, "weight", weight, (yk_dtype)a->dtype) ||
        yk__expect_dtype(name, "bias", bias, (yk_dtype)a->dtype))
        return NULL;
    bool fits = weight->ndim == 3 && a->ndim >= 1 && a->ndim == b->ndim && a->shape[a->ndim - 1] == weight->shape[1] &&
                b->shape[b->ndim - 1] == weight->shape[2] && weight->shape[1] > 0 && weight->shape[2] > 0;
    for (int d = 0; fits && d < a->ndim - 1; d++)
        fits = a->shape[d] == b->shape[d];
    if (!fits) {
        yk__fail(YK_ERR_SHAPE, "%s: inputs %s and %s and weight %s, expected (..., I), (..., J) and (O, I, J)", name,
                 yk_shape_format(a, ta, sizeof(ta)), yk_shape_format(b, tb, sizeof(tb)),
                 yk_shape_format(weight, tw, sizeof(tw)));
        return NULL;
    }
    if (yk__expect_vector(name, "bias", bias, weight->shape[0], "output"))
        return NULL;
    YK__WITHIN_SCOPE(bilinear(a, b, weight, bias));
}
