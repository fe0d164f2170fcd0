/*
 * clip.c - gradient clipping. Layer: optim.
 *
 * The norm is one pass over the gradients: their sums of squares land side by side in one vector per device and dtype,
 * which is read once. What is over the limit takes a second pass, in place.
 */
#include <math.h>
#include <stdlib.h>

#include "optim/optimizer.h"

/* Where a gradient is summed, and in what. */
static bool same_place(const yk_tensor *a, const yk_tensor *b)
{
    return a->dtype == b->dtype && yk_device_equal(yk__device_of(a), yk__device_of(b));
}

/* The sum of the squares of x goes to element i of `sums`; f16 and bf16 are summed in f32. */
static yk_status sum_squares(yk_tensor *x, yk_tensor *sums, int64_t i)
{
    yk_tensor *wide = yk__raw_cast(x, (yk_dtype)sums->dtype);
    if (!wide)
        return yk__error_code();
    yk__view in = yk__view_of(wide), out = in;
    for (int d = 0; d < out.ndim; d++) {
        out.shape[d] = 1;
        out.stride[d] = 1;
    }
    out.data = (char *)sums->data + i * (int64_t)yk_dtype_size((yk_dtype)sums->dtype);
    const yk__backend *backend = yk__backend_for(x);
    yk_status status = backend->reduce ? backend->reduce(yk__device_of(x).index, YK__SUM_SQUARES, &out, &in, 0)
                                       : yk__slot_missing(yk__device_of(x), "reduce");
    yk_tensor_release(wide);
    return status;
}

/* Adds the squares of all gradients that lie where the first pending one does to *total. */
static yk_status add_place(yk_tensor **grads, int64_t count, double *total)
{
    const yk_tensor *leader = grads[0];
    yk_dtype dtype = yk__is_half((yk_dtype)leader->dtype) ? YK_F32 : (yk_dtype)leader->dtype;
    yk_tensor *sums = yk__tensor_new(1, &count, NULL, dtype, yk__device_of(leader));
    double *read = yk__calloc((size_t)count, sizeof(*read));
    yk_status status = sums && read ? yk__raw_fill(sums, 0) : YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        if (!grads[i] || !same_place(grads[i], leader))
            continue;
        status = sum_squares(grads[i], sums, i);
        if (i)
            grads[i] = NULL;
    }
    grads[0] = NULL;
    yk_tensor *wide = status ? NULL : yk__raw_cast(sums, YK_F64);
    if (wide)
        status = yk_tensor_read(wide, read, (size_t)count * sizeof(*read));
    else if (!status)
        status = yk__error_code();
    for (int64_t i = 0; i < count && !status; i++)
        *total += read[i];
    yk_tensor_release(wide);
    yk_tensor_release(sums);
    free(read);
    return status;
}

/* The 2-norm of all gradients together. */
static yk_status norm_of_grads(const yk_parameters *params, double *norm)
{
    int64_t count = yk_parameters_count(params), found = 0;
    *norm = 0;
    yk_tensor **grads = yk__calloc((size_t)count, sizeof(*grads));
    if (!grads)
        return YK_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        yk_tensor *grad = yk_grad(yk_parameters_at(params, i));
        if (grad)
            grads[found++] = grad;
    }
    yk_status status = YK_OK;
    for (int64_t i = 0; i < found && !status; i++) {
        if (grads[i])
            status = add_place(grads + i, found - i, norm);
    }
    free(grads);
    *norm = sqrt(*norm);
    return status;
}

static yk_status change(yk_tensor *x, yk__unary op, double p0, double p1)
{
    if (x->numel == 0)
        return YK_OK;
    yk__bump_version(x);
    return yk__raw_unary_into("clip", op, x, p0, p1);
}

/* Each gradient = op(gradient). */
static yk_status change_grads(const yk_parameters *params, yk__unary op, double p0, double p1)
{
    yk_status status = YK_OK;
    for (int64_t i = 0; i < yk_parameters_count(params) && !status; i++) {
        yk_tensor *grad = yk_grad(yk_parameters_at(params, i));
        if (grad)
            status = change(grad, op, p0, p1);
    }
    return status;
}

yk_status yk_clip_grad_norm(const yk_parameters *params, double max_norm, double *total)
{
    YK__LIVE(params);
    if (!params)
        return yk__fail(YK_ERR_ARGUMENT, "clip_grad_norm: the list of parameters is NULL");
    if (!(max_norm >= 0))
        return yk__fail(YK_ERR_ARGUMENT, "clip_grad_norm: max_norm is %g, it must not be negative", max_norm);
    double norm;
    yk_status status = norm_of_grads(params, &norm);
    if (status)
        return status;
    if (total)
        *total = norm;
    double factor = max_norm / (norm + 1e-6);
    return factor >= 1 ? YK_OK : change_grads(params, YK__MUL_SCALAR, factor, 0);
}

yk_status yk_clip_grad_value(const yk_parameters *params, double limit)
{
    YK__LIVE(params);
    if (!params)
        return yk__fail(YK_ERR_ARGUMENT, "clip_grad_value: the list of parameters is NULL");
    if (!(limit >= 0))
        return yk__fail(YK_ERR_ARGUMENT, "clip_grad_value: limit is %g, it must not be negative", limit);
    return change_grads(params, YK__CLAMP, -limit, limit);
}
