/*
 * gradients.c - a tensor's part in autograd, as programs and collectors see it: if it requires a gradient, the gradient
 * that it has, detaching it. Layer: autograd.
 */
#include "autograd/node.h"

bool yk_requires_grad(const yk_tensor *x)
{
    YK__LIVE(x);
    return yk__wants_grad(x);
}

bool yk_is_leaf(const yk_tensor *x)
{
    YK__LIVE(x);
    return x && !x->node && !yk__view_stale(x);
}

const char *yk_grad_fn_name(const yk_tensor *x)
{
    YK__LIVE(x);
    if (x && yk__view_stale(x))
        return "as_strided";
    return x && x->node ? x->node->head.name : NULL;
}

yk_status yk_set_requires_grad(yk_tensor *x, bool requires_grad)
{
    YK__LIVE(x);
    if (!x)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "set_requires_grad: the tensor is NULL");
    if (!yk_is_leaf(x))
        return requires_grad ? YK_OK
                             : yk__fail(YK_ERR_STATE,
                                        "set_requires_grad: the tensor was made by %s and is no leaf; use yk_detach",
                                        yk_grad_fn_name(x));
    if (requires_grad)
        return yk__tensor_require_grad(x);
    x->requires_grad = false;
    return YK_OK;
}

yk_tensor *yk_grad(const yk_tensor *x)
{
    YK__LIVE(x);
    if (x && x->node)
        return x->node->outputs[x->output].kept_grad;
    return x && x->leaf_gradient ? x->leaf_gradient->grad : NULL;
}

yk_status yk_set_grad(yk_tensor *x, yk_tensor *grad)
{
    YK__LIVE(x);
    YK__LIVE(grad);
    if (!x)
        return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "set_grad: the tensor is NULL");
    if (!grad && !x->leaf_gradient)
        return YK_OK;
    if (!yk_is_leaf(x))
        return yk__fail(YK_ERR_STATE, "set_grad: the tensor was made by %s; only leaves have a gradient of their own",
                        yk_grad_fn_name(x));
    if (grad && (!yk_same_shape(x, grad) || x->dtype != grad->dtype)) {
        char a[200], b[200];
        return yk__fail(YK_ERR_SHAPE, "set_grad: the gradient is %s of %s, the tensor %s of %s",
                        yk_shape_format(grad, a, sizeof(a)), yk_dtype_name((yk_dtype)grad->dtype),
                        yk_shape_format(x, b, sizeof(b)), yk_dtype_name((yk_dtype)x->dtype));
    }
    yk_tensor *both[2] = {x, grad};
    yk_status status = grad ? yk__same_device("set_grad", 2, both) : YK_OK;
    yk__leaf_gradient *meta = status ? NULL : yk__leaf_gradient_of(x);
    if (!meta)
        return yk__error_code();
    yk_tensor *old = meta->grad;
    meta->grad = yk_tensor_retain(grad);
    yk_tensor_release(old);
    yk__row_gradient_free(meta->rows);
    meta->rows = NULL;
    return YK_OK;
}

yk_status yk_retain_grad(yk_tensor *x)
{
    YK__LIVE(x);
    int output;
    yk__node *node = yk__gradient_node(x, &output);
    if (!node)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_STATE, "retain_grad: the tensor does not require a gradient");
    node->outputs[output].keep_grad = true; /* leaves keep theirs anyway */
    return YK_OK;
}

yk_status yk__collect_gradients(yk_tensor *leaf, yk__collector *collector, int index, yk_tensor *grad_buffer)
{
    yk__leaf_gradient *meta = yk__leaf_gradient_of(leaf);
    if (!meta)
        return YK_ERR_MEMORY;
    yk_tensor *old = meta->grad_buffer;
    meta->collector = collector;
    meta->collector_index = index;
    meta->grad_buffer = yk_tensor_retain(grad_buffer);
    yk_tensor_release(old);
    return YK_OK;
}

yk__collector *yk__collector_of(const yk_tensor *leaf)
{
    return leaf->leaf_gradient ? leaf->leaf_gradient->collector : NULL;
}

yk_tensor *yk__grad_buffer_of(const yk_tensor *leaf)
{
    return leaf->leaf_gradient ? leaf->leaf_gradient->grad_buffer : NULL;
}

yk_tensor *yk_detach(yk_tensor *x)
{
    static const yk__op op = {.name = "detach"};
    YK__LIVE(x);
    if (!yk__is_there("detach", "tensor", x) || !yk__scope_check("detach"))
        return NULL;
    yk_tensor *out = yk__tensor_alias(x);
    if (out)
        yk__tell(&op, NULL, 1, &x, 1, &out);
    return yk__scope_own(out);
}

yk_tensor *yk_data(yk_tensor *x)
{
    YK__LIVE(x);
    return yk__is_there("data", "tensor", x) && yk__scope_check("data")
               ? yk__scope_own(yk__tensor_share(x, yk__device_of(x), true))
               : NULL;
}

void yk__exchange_storage(yk_tensor *x, yk_tensor *from)
{
    atomic_store(from->storage->versions, yk__version(x) + 1);
    atomic_store(&from->storage->exchanged, yk__exchanged(x));
    yk__storage *storage = x->storage;
    void *data = x->data;
    int8_t dtype = x->dtype;
    x->storage = from->storage;
    x->data = from->data;
    x->dtype = from->dtype;
    from->storage = storage;
    from->data = data;
    from->dtype = dtype;
    for (int d = 0; d < x->ndim; d++) {
        int64_t stride = x->stride[d];
        x->stride[d] = from->stride[d];
        from->stride[d] = stride;
    }
    if (!x->leaf_gradient)
        return;
    yk__leaf_gradient *meta = x->leaf_gradient;
    if (meta->accumulator) { /* gradients are delivered to the new device */
        meta->accumulator->device = yk__device_of(x);
        meta->accumulator->outputs[0].dtype = x->dtype;
    }
    yk_tensor_release(meta->grad_buffer);
    meta->grad_buffer = NULL;
}
