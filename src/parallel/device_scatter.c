/*
 * device_scatter.c - tensors split over devices and joined again, with gradients. Layer: parallel.
 *
 * A part on another logical device of the same memory is the part of x itself, accounted where x is; on one with a
 * memory of its own it is a copy. The gradients of the parts go back in the same way.
 */
#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "ops/op.h"
#include "parallel/replicas.h"

yk_tensor *yk__raw_on_device(yk_tensor *x, yk_device device)
{
    yk_device from = yk__device_of(x);
    bool shared = !yk_device_equal(from, device) && yk__same_memory(from, device);
    return shared ? yk__tensor_share(x, device, false) : yk__raw_to(x, device);
}

static yk_status on_device_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    grads[0] = yk__raw_on_device(gout, *(yk_device *)yk__context(node));
    return yk__status_of(grads[0]);
}

static void on_device_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    grads[0] = yk__on_device(gouts[0], *(yk_device *)yk__context(node));
}

yk_tensor *yk__record_on_device(yk_tensor *x, yk_tensor *from)
{
    static const yk__op op = {.name = "to", .backward = on_device_backward, .recorded = on_device_recorded};
    yk_device device = yk__device_of(from);
    return yk__record(x, &op, 1, &from, 0, NULL, &device, sizeof(device));
}

yk_tensor *yk__on_device(yk_tensor *x, yk_device device)
{
    if (yk_device_equal(yk__device_of(x), device))
        return yk__scope_own(yk_tensor_retain(x));
    return yk__record_on_device(yk__raw_on_device(x, device), x);
}

yk_status yk__devices_check(const char *what, const yk_device *devices, int count)
{
    YK__OWN_RECORD;
    if (!devices || count < 1 || count > YK__MOST_REPLICAS)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d devices%s; 1 to %d are possible", what, count,
                        devices ? "" : " in a list that is NULL", YK__MOST_REPLICAS);
    for (int i = 0; i < count; i++) {
        yk_status status = yk__device_check(devices[i]);
        if (status) {
            yk__error_prefix("%s", what);
            return status;
        }
        for (int k = 0; k < i; k++) {
            char name[16];
            if (yk_device_equal(devices[i], devices[k]))
                return yk__fail(YK_ERR_DEVICE, "%s: %s is named twice, as devices %d and %d", what,
                                yk_device_format(devices[i], name), k, i);
        }
    }
    return YK_OK;
}

/* The parts of one tensor, owned by the scope. */
static yk_status split(const char *what, yk_tensor *x, const yk_device *devices, int count, int dim, yk_tensor **parts,
                       int *used)
{
    if (x->ndim == 0)
        return yk__fail(YK_ERR_SHAPE, "%s: a tensor without dimensions cannot be split; give each device its own",
                        what);
    if (count == 1) {
        *used = 1;
        parts[0] = yk__on_device(x, devices[0]);
        return yk__status_of(parts[0]);
    }
    yk_status status = yk_chunk(x, count, dim, parts, count, used);
    for (int i = 0; !status && i < *used; i++) {
        parts[i] = yk__on_device(parts[i], devices[i]);
        status = yk__status_of(parts[i]);
    }
    return status;
}

yk_status yk__scatter_list(const char *what, yk_tensor *const *inputs, int n_inputs, const yk_device *devices,
                           int count, int dim, yk_tensor **parts, int *used)
{
    yk_tensor *own[YK__MOST_REPLICAS] = {NULL};
    int first = -1;
    *used = 0;
    memset(parts, 0, sizeof(*parts) * (size_t)count * (size_t)n_inputs);
    for (int k = 0; k < n_inputs; k++) {
        if (!inputs[k])
            continue;
        int n = 0;
        yk_status status = split(what, inputs[k], devices, count, dim, own, &n);
        if (status)
            return status;
        if (first >= 0 && n != *used) {
            char a[200], b[200];
            return yk__fail(
                YK_ERR_SHAPE,
                "%s: input %d of shape %s splits into %d parts along dimension %d, but input %d of shape %s "
                "into %d",
                what, k, yk_shape_format(inputs[k], a, sizeof(a)), n, dim, first,
                yk_shape_format(inputs[first], b, sizeof(b)), *used);
        }
        first = first < 0 ? k : first;
        *used = n;
        for (int i = 0; i < n; i++)
            parts[i * n_inputs + k] = own[i];
    }
    return first >= 0 ? YK_OK : yk__fail(YK_ERR_ARGUMENT, "%s: there is no tensor to split", what);
}

yk_status yk_device_scatter(yk_tensor *x, const yk_device *devices, int count, int dim, yk_tensor **parts, int *used)
{
    for (int i = 0; parts && i < count; i++)
        parts[i] = NULL;
    YK__EVENT(YK__EVENT_OPERATION, "device_scatter");
    if (!yk__op_begin("device_scatter", 1, &x, 0))
        return yk__error_code();
    if (!parts || !used)
        return yk__fail(YK_ERR_ARGUMENT, "device_scatter: %s is NULL", parts ? "used" : "parts");
    yk_status status = yk__devices_check("device_scatter", devices, count);
    return status ? status : yk__scatter_list("device_scatter", &x, 1, devices, count, dim, parts, used);
}

yk_tensor *yk_device_gather(yk_tensor *const *parts, int count, int dim, yk_device device)
{
    if (!parts || count < 1) {
        yk__fail(YK_ERR_ARGUMENT, "device_gather: %s", parts ? "there are no parts" : "parts is NULL");
        return NULL;
    }
    if (!yk__scope_check("device_gather") || yk__device_check(device))
        return NULL;
    yk_scope scope = yk_scope_begin();
    yk_tensor **here = yk__calloc((size_t)count, sizeof(*here)), *out = NULL;
    bool complete = here;
    for (int i = 0; complete && i < count; i++) {
        yk_tensor *part = parts[i];
        complete = yk__op_begin("device_gather", 1, &part, 0);
        if (complete)
            here[i] = yk__on_device(part->ndim ? part : yk_reshape(part, YK_SHAPE(1)), device);
        complete = complete && here[i];
    }
    uint32_t types = yk__autocast_pause(); /* the joined tensor has the parts' dtype */
    if (complete)
        out = yk_scope_return(scope, yk_cat(here, count, dim));
    yk__autocast_types = types;
    free(here);
    yk_scope_end(scope);
    return out;
}
