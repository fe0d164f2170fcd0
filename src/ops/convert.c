/*
 * convert.c - the same values elsewhere: another dtype, device or memory order. Layer: ops.
 */
#include "ops/op.h"

/* x itself, for the current scope. */
static yk_tensor *unchanged(yk_tensor *x)
{
    return yk__scope_own(yk_tensor_retain(x));
}

static yk_status same_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    (void)node;
    grads[0] = yk_tensor_retain(gout);
    return YK_OK;
}

yk_tensor *yk_contiguous(yk_tensor *x)
{
    static const yk__op op = {.name = "contiguous", .backward = same_backward, .recorded = yk__recorded_same};
    YK__EVENT(YK__EVENT_OPERATION, "contiguous");
    if (!yk__op_begin("contiguous", 1, &x, 0))
        return NULL;
    return yk_is_contiguous(x) ? unchanged(x) : yk__record(yk__raw_contiguous(x), &op, 1, &x, 0, NULL, NULL, 0);
}

yk_tensor *yk_clone(yk_tensor *x)
{
    static const yk__op op = {.name = "clone", .backward = same_backward, .recorded = yk__recorded_same};
    YK__EVENT(YK__EVENT_OPERATION, "clone");
    return yk__op_begin("clone", 1, &x, 0) ? yk__record(yk__raw_clone(x), &op, 1, &x, 0, NULL, NULL, 0) : NULL;
}

/* Into the gradient buffer, where x is a parameter that has one. */
static yk_status cast_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    yk_tensor *gx = yk__gradient_new(node, 0, yk__context(node), yk__device_of(gout));
    grads[0] = gx ? yk__tensor_if_ok(gx, yk__raw_copy(gx, gout)) : NULL;
    return yk__status_of(grads[0]);
}

static void cast_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const yk__tensor_spec *spec = yk__context(node);
    grads[0] = yk_cast(gouts[0], (yk_dtype)spec->dtype);
}

yk_tensor *yk_cast(yk_tensor *x, yk_dtype dtype)
{
    static const yk__op op = {
        .name = "cast", .backward = cast_backward, .recorded = cast_recorded, .keeps_nothing = true};
    YK__EVENT(YK__EVENT_OPERATION, "cast");
    if (!yk__op_begin("cast", 1, &x, 0))
        return NULL;
    if ((unsigned)dtype >= YK__DTYPES) {
        yk__fail(YK_ERR_DTYPE, "cast: %d is not a dtype", (int)dtype);
        return NULL;
    }
    if ((yk_dtype)x->dtype == dtype)
        return unchanged(x);
    yk_tensor *out = yk__raw_cast(x, dtype);
    if (!out || !yk__will_tell(1, &x))
        return yk__scope_own(out);
    yk__tensor_spec spec = yk__spec_of(x);
    return yk__record(out, &op, 1, &x, 0, NULL, &spec, sizeof(spec));
}

static yk_status to_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = yk__raw_to(gout, *(yk_device *)yk__context(node));
    return yk__status_of(grads[0]);
}

static void to_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    grads[0] = yk_to(gouts[0], *(yk_device *)yk__context(node));
}

yk_tensor *yk_to(yk_tensor *x, yk_device device)
{
    static const yk__op op = {.name = "to", .backward = to_backward, .recorded = to_recorded};
    YK__EVENT(YK__EVENT_OPERATION, "to");
    if (!yk__op_begin("to", 1, &x, 0) || yk__device_check(device))
        return NULL;
    yk_device from = yk__device_of(x);
    return yk_device_equal(from, device) ? unchanged(x)
                                         : yk__record(yk__raw_to(x, device), &op, 1, &x, 0, NULL, &from, sizeof(from));
}

yk_tensor *yk_cuda(yk_tensor *x, int index)
{
    if (index < -1 || index > INT16_MAX) {
        yk__fail(YK_ERR_DEVICE, "cuda: %d is not the number of a GPU, nor -1 for the current one", index);
        return NULL;
    }
    return yk_to(x, index < 0 ? yk_current_device(YK_CUDA) : (yk_device){YK_CUDA, (int16_t)index});
}

yk_tensor *yk_cpu(yk_tensor *x)
{
    return yk_to(x, yk_current_device(YK_CPU));
}
