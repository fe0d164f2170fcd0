/*
 * module_move.c - moving a module's tensors to another device or dtype. Layer: nn.
 *
 * The tensor object stays, its storage is replaced: whoever holds the parameter (the module's data, an optimizer)
 * sees the new one. The new storage continues the version count, so that a graph recorded before notices.
 */
#include <string.h>

#include "autograd/tape.h"
#include "nn/module.h"

/* Another storage with the values of x; one reference. */
static yk_tensor *moved(yk_tensor *x, const int64_t *stride, yk_dtype dtype, yk_device device)
{
    yk_tensor *out = yk__tensor_new(x->ndim, x->shape, stride, dtype, device);
    if (out && yk__raw_copy(out, x)) {
        yk_tensor_release(out);
        out = NULL;
    }
    return out;
}

/* True if the strides that a class asks for place the elements of x side by side, in some order: others would be
 * written outside of its memory. */
static bool are_dense(const yk_tensor *x, const int64_t *stride)
{
    uint32_t placed = 0;
    int64_t step = 1;
    for (int n = 0; n < x->ndim; n++) {
        for (int d = 0; d < x->ndim; d++) {
            if ((placed >> d & 1) || (x->shape[d] > 1 && stride[d] != step))
                continue;
            placed |= 1u << d;
            step *= x->shape[d];
        }
    }
    return placed == (1u << x->ndim) - 1;
}

static yk_status move_tensor(yk_module *m, yk_tensor *x, yk_dtype dtype, yk_device device)
{
    if ((yk_dtype)x->dtype == dtype && yk_device_equal(yk__device_of(x), device))
        return YK_OK;
    int64_t asked[YK_MAX_DIMS];
    const int64_t *stride = yk__is_dense(x) ? x->stride : NULL;
    if (m->cls->parameter_strides && m->cls->parameter_strides(m, x, dtype, device, asked))
        stride = x->numel ? asked : NULL;
    char shape[200], text[200];
    if (stride == asked && !are_dense(x, asked))
        return yk__fail(YK_ERR_ARGUMENT, "parameter_strides of %s gives %s for a parameter of shape %s: not dense",
                        m->shown_name, yk__shape_text(x->ndim, asked, text, sizeof(text)),
                        yk_shape_format(x, shape, sizeof(shape)));
    yk_tensor *grad = yk_grad(x);
    yk_tensor *to = moved(x, stride, dtype, device);
    yk_tensor *grad_to = to && grad ? moved(grad, stride, dtype, device) : NULL;
    yk_status status = to && (grad_to || !grad) ? YK_OK : yk__error_code();
    if (!status && grad)
        status = yk_set_grad(x, NULL);
    if (!status) {
        yk__exchange_storage(x, to);
        status = yk__rows_follow(x);
        if (!status && grad)
            status = yk_set_grad(x, grad_to);
    }
    yk_tensor_release(grad_to);
    yk_tensor_release(to);
    return status;
}

typedef struct target {
    bool to_device;
    yk_device device;
    yk_dtype dtype;
} target;

static yk_status move_entries(yk_module *m, const yk__entries *entries, const target *t)
{
    for (int64_t i = 0; i < entries->count; i++) {
        yk_tensor *x = entries->items[i].object;
        yk_dtype own = (yk_dtype)x->dtype;
        yk_status status = t->to_device                ? move_tensor(m, x, own, t->device)
                           : yk_dtype_is_floating(own) ? move_tensor(m, x, t->dtype, yk__device_of(x))
                                                       : YK_OK;
        if (status) {
            yk__error_prefix("%s", entries->items[i].name);
            return status;
        }
    }
    return YK_OK;
}

static yk_status move_module(yk_module *m, void *user)
{
    yk_status status = move_entries(m, &m->parameters, user);
    return status ? status : move_entries(m, &m->buffers, user);
}

yk_module *yk_module_to(yk_module *m, yk_device device)
{
    YK__LIVE(m);
    target t = {.to_device = true, .device = device};
    return yk__is_there("module_to", "module", m) && !yk__device_check(device) && !yk_module_apply(m, move_module, &t)
               ? m
               : NULL;
}

yk_module *yk_module_to_dtype(yk_module *m, yk_dtype dtype)
{
    YK__LIVE(m);
    if (!yk__is_there("module_to_dtype", "module", m))
        return NULL;
    if ((unsigned)dtype >= YK__DTYPES || !yk_dtype_is_floating(dtype)) {
        yk__fail(YK_ERR_DTYPE, "module_to_dtype: %s is not a floating dtype",
                 (unsigned)dtype < YK__DTYPES ? yk_dtype_name(dtype) : "this");
        return NULL;
    }
    target t = {.dtype = dtype};
    return yk_module_apply(m, move_module, &t) ? NULL : m;
}
