/*
 * recorded.c - what recorded backwards share: sums to the shape of an input, choices by a mask, saved tensors that
 * stand for an input. Layer: ops.
 *
 * A recorded backward is made of the operations that programs call. NULL goes in and out of those with the error set,
 * so a formula needs no checks of its own.
 */
#include "ops/op.h"

yk_tensor *yk__recorded_sum_to(yk_tensor *g, const yk__tensor_spec *spec)
{
    if (!g)
        return NULL;
    if (yk_dtype_size((yk_dtype)spec->dtype) > yk_dtype_size((yk_dtype)g->dtype)) /* the sum is not rounded to less */
        g = yk_cast(g, (yk_dtype)spec->dtype);
    int dims[YK_MAX_DIMS], count = 0, ndim = g ? g->ndim : 0, added = ndim - spec->ndim;
    for (int d = 0; d < ndim; d++) {
        if (d < added || (spec->shape[d - added] == 1 && g->shape[d] != 1))
            dims[count++] = d;
    }
    if (count)
        g = yk_sum_dims(g, dims, count, true);
    if (added)
        g = yk_reshape(g, spec->ndim, spec->shape);
    return yk_cast(g, (yk_dtype)spec->dtype);
}

yk_tensor *yk__recorded_number(const yk_tensor *x, double value)
{
    return x ? yk__scope_own(yk__raw_scalar(value, (yk_dtype)x->dtype, yk__device_of(x))) : NULL;
}

yk_tensor *yk__recorded_zeros(const yk__tensor_spec *spec, yk_device device)
{
    return yk__scope_own(yk__spec_zeros(spec, device));
}

yk_tensor *yk__recorded_where(yk_tensor *mask, yk_tensor *g)
{
    return yk_where(mask, g, yk__recorded_number(g, 0));
}

yk_tensor *yk__recorded_where_not(yk_tensor *mask, yk_tensor *g)
{
    return yk_where(mask, yk__recorded_number(g, 0), g);
}

yk_tensor *yk__recorded_relu(yk_tensor *g, yk_tensor *x)
{
    return yk__recorded_where_not(yk_le(x, yk__recorded_number(x, 0)), g); /* NaN lets the gradient through */
}

yk_tensor *yk__recorded_wide(yk_tensor *x)
{
    return x ? yk_cast(x, yk__wide_dtype(x)) : NULL;
}

void yk__recorded_same(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    (void)node;
    grads[0] = gouts[0];
}

/* ---- a saved tensor as an input ---- */

typedef struct as_input {
    int input;
    yk__tensor_spec spec;
} as_input;

static yk_status as_input_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const as_input *c = yk__context(node);
    if (!yk__needs_grad(node, c->input))
        return YK_OK;
    grads[c->input] = yk__narrow_to(yk__raw_reshape(gout, c->spec.ndim, c->spec.shape), (yk_dtype)c->spec.dtype);
    return yk__status_of(grads[c->input]);
}

static void as_input_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const as_input *c = yk__context(node);
    grads[c->input] = yk_cast(yk_reshape(gouts[0], c->spec.ndim, c->spec.shape), (yk_dtype)c->spec.dtype);
}

yk_tensor *yk__saved_input(yk__node *node, int i, int input, const yk__tensor_spec *spec)
{
    static const yk__op op = {.name = "saved", .backward = as_input_backward, .recorded = as_input_recorded};
    as_input c = {.input = input, .spec = *spec};
    yk_tensor *made = yk__saved_made_by(node, i, &op, &c, sizeof(c));
    return made ? yk_cast(yk_reshape(made, spec->ndim, spec->shape), (yk_dtype)spec->dtype) : NULL;
}
