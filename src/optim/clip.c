/*
 * clip.c - gradient clipping. Layer: optim.
 *
 * The norm is one pass over the gradients: their sums of squares land side by side in one vector per device and dtype,
 * which is read once. What is over the limit takes a second pass, in place. Where all gradients are on one device that
 * carries work out later, the factor stays in its memory, and the host waits for nothing unless it wants the norm: the
 * second pass is always taken then, by a factor of 1 too, which changes no bit.
 */
#include <math.h>
#include <stdlib.h>

#include "nn/state_dict.h"
#include "optim/optimizer.h"

/* True if two gradients are summed together: on one device and in one dtype. */
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

/* A tensor (count) of f64: the sums of squares of the gradients on the device and in the dtype of the first pending
 * one, which are pending no more; zeros for the others. */
static yk_tensor *squares_of_place(yk_tensor **grads, int64_t count)
{
    const yk_tensor *leader = grads[0];
    yk_dtype dtype = yk__is_half((yk_dtype)leader->dtype) ? YK_F32 : (yk_dtype)leader->dtype;
    yk_tensor *sums = yk__tensor_new(1, &count, NULL, dtype, yk__device_of(leader));
    yk_status status = sums ? yk__raw_fill(sums, 0) : YK_ERR_MEMORY;
    for (int64_t i = 0; i < count && !status; i++) {
        if (!grads[i] || !same_place(grads[i], leader))
            continue;
        status = sum_squares(grads[i], sums, i);
        if (i)
            grads[i] = NULL;
    }
    grads[0] = NULL;
    yk_tensor *wide = status ? NULL : yk__raw_cast(sums, YK_F64);
    yk_tensor_release(sums);
    return wide;
}

/* Adds what squares_of_place finds to *total. */
static yk_status add_place(yk_tensor **grads, int64_t count, double *total)
{
    yk_tensor *squares = squares_of_place(grads, count);
    double *read = squares ? yk__calloc((size_t)count, sizeof(*read)) : NULL;
    yk_status status =
        read ? yk__tensor_read("clip_grad_norm", squares, read, (size_t)count * sizeof(*read)) : yk__error_code();
    for (int64_t i = 0; i < count && !status; i++)
        *total += read[i];
    yk_tensor_release(squares);
    free(read);
    return status;
}

/* The gradients that there are, those by rows as their rows, which the caller frees, and how many; NULL without memory.
 */
static yk_tensor **list_grads(const yk_parameters *params, int64_t *found)
{
    int64_t count = yk__parameters_count(params);
    yk_tensor **grads = yk__calloc((size_t)count, sizeof(*grads));
    *found = 0;
    for (int64_t i = 0; grads && i < count; i++) {
        yk_tensor *x = yk__parameters_at(params, i), *grad = yk__grad_elements(x);
        if (grad && (grad->numel || !yk__has_rows(x)))
            grads[(*found)++] = grad;
        if (grad || !yk__has_rows(x))
            continue;
        free(grads);
        return NULL;
    }
    return grads;
}

/* The 2-norm of all gradients together; they are pending no more. */
static yk_status norm_of_grads(yk_tensor **grads, int64_t count, double *norm)
{
    yk_status status = YK_OK;
    *norm = 0;
    for (int64_t i = 0; i < count && !status; i++) {
        if (grads[i])
            status = add_place(grads + i, count - i, norm);
    }
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

/* Sets each gradient to op(gradient). */
static yk_status change_grads(const yk_parameters *params, yk__unary op, double p0, double p1)
{
    yk_status status = YK_OK;
    for (int64_t i = 0; i < yk__parameters_count(params) && !status; i++) {
        yk_tensor *x = yk__parameters_at(params, i), *grad = yk__grad_elements(x);
        if (grad)
            status = change(grad, op, p0, p1);
        else if (yk__has_rows(x))
            status = yk__error_code();
    }
    return status;
}

/* ---- the factor in a device's memory ----------------------------------------------------------------------------- */

static bool on_one_queue(yk_tensor *const *grads, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (yk__backend_for(grads[i])->host_memory ||
            !yk_device_equal(yk__device_of(grads[i]), yk__device_of(grads[0])))
            return false;
    }
    return count > 0;
}

/* x = op(x), which is released where that fails. */
static yk_tensor *changed(yk_tensor *x, yk__unary op, double p0, double p1)
{
    return x ? yk__tensor_if_ok(x, yk__raw_unary_into("clip_grad_norm", op, x, p0, p1)) : NULL;
}

/* The norm, f64 without dimensions; the gradients are pending no more. */
static yk_tensor *norm_on_device(yk_tensor **grads, int64_t count)
{
    yk_tensor *total = NULL;
    bool failed = false;
    for (int64_t i = 0; i < count && !failed; i++) {
        if (!grads[i])
            continue;
        yk_tensor *squares = squares_of_place(grads + i, count - i);
        yk_tensor *sum = squares ? yk__raw_reduce("clip_grad_norm", YK__SUM, squares, 0, false, 0) : NULL;
        yk_tensor *both = !sum    ? NULL
                          : total ? yk__raw_binary("clip_grad_norm", YK__ADD, total, sum, 1)
                                  : yk_tensor_retain(sum);
        yk_tensor_release(squares);
        yk_tensor_release(sum);
        yk_tensor_release(total);
        total = both;
        failed = !both;
    }
    return changed(total, YK__SQRT, 0, 0);
}

/* min(1, max_norm / (norm + 1e-6)), NaN where the norm is. */
static yk_tensor *factor_on_device(yk_tensor *norm, double max_norm)
{
    yk_tensor *divisor = yk__raw_unary("clip_grad_norm", YK__ADD_SCALAR, norm, 1e-6, 0);
    yk_tensor *factor = divisor ? yk__tensor_full_like(norm, max_norm) : NULL;
    if (factor)
        factor = yk__tensor_if_ok(factor, yk__raw_binary_into("clip_grad_norm", YK__DIV, factor, factor, divisor, 0));
    yk_tensor_release(divisor);
    return changed(factor, YK__CLAMP, 0, 1);
}

/* grad *= factor, in f32 where the gradient is f16 or bf16. */
static yk_status multiply(yk_tensor *grad, yk_tensor *factor)
{
    yk_dtype dtype = yk__is_half((yk_dtype)grad->dtype) ? YK_F32 : (yk_dtype)grad->dtype;
    yk_tensor *wide = yk__raw_cast(grad, dtype), *by = wide ? yk__raw_cast(factor, dtype) : NULL;
    yk_status status = by ? yk__raw_binary_into("clip_grad_norm", YK__MUL, wide, wide, by, 0) : yk__error_code();
    if (!status) {
        yk__bump_version(grad);
        if (wide != grad)
            status = yk__raw_copy(grad, wide);
    }
    yk_tensor_release(wide);
    yk_tensor_release(by);
    return status;
}

/* Multiplies all gradients, which are f32, in one call of the slot that divides gradients by a loss's scale: the factor
 * takes the place of the scale's inverse. The bits are those of the product of each gradient and the factor. */
static yk_status multiply_together(yk_tensor *const *grads, int64_t count, yk_tensor *factor)
{
    const int64_t words = sizeof(yk__scale_state) / sizeof(int32_t);
    yk__view *views = yk__calloc((size_t)count, sizeof(*views));
    yk_tensor *record = views ? yk__tensor_new(1, &words, NULL, YK_I32, yk__device_of(factor)) : NULL;
    yk_status status = record ? YK_OK : yk__error_code();
    if (record) {
        yk__view to = {.data = (char *)record->data + offsetof(yk__scale_state, inverse), .dtype = YK_F32};
        yk__view from = yk__view_of(factor);
        status = YK__SLOT(record, copy, &to, &from);
    }
    for (int64_t i = 0; i < count && !status; i++) {
        yk__bump_version(grads[i]);
        views[i] = yk__view_of(grads[i]);
    }
    if (!status)
        status = YK__SLOT(record, unscale, count, views, record->data);
    yk_tensor_release(record);
    free(views);
    return status;
}

static yk_status multiply_all(yk_tensor *const *grads, int64_t count, yk_tensor *factor)
{
    bool together = true;
    yk_status status = YK_OK;
    for (int64_t i = 0; i < count; i++)
        together &= grads[i]->dtype == YK_F32;
    if (together)
        return multiply_together(grads, count, factor);
    for (int64_t i = 0; i < count && !status; i++)
        status = multiply(grads[i], factor);
    return status;
}

static yk_status clip_on_device(yk_tensor **grads, int64_t count, const yk_parameters *params, double max_norm,
                                double *total)
{
    yk_tensor *norm = norm_on_device(grads, count);
    yk_tensor *factor = norm ? factor_on_device(norm, max_norm) : NULL;
    yk_tensor **again = factor ? list_grads(params, &count) : NULL;
    yk_status status = again ? multiply_all(again, count, factor) : yk__error_code();
    free(again);
    if (!status && total)
        status = yk__tensor_read("clip_grad_norm", norm, total, sizeof(*total));
    yk_tensor_release(norm);
    yk_tensor_release(factor);
    return status;
}

yk_status yk_clip_grad_norm(const yk_parameters *params, double max_norm, double *total)
{
    YK__LIVE(params);
    if (!params)
        return yk__fail(YK_ERR_ARGUMENT, "clip_grad_norm: the list of parameters is NULL");
    if (!(max_norm >= 0))
        return yk__fail(YK_ERR_ARGUMENT, "clip_grad_norm: max_norm is %g, it must not be negative", max_norm);
    int64_t count;
    double norm;
    yk_tensor **grads = list_grads(params, &count);
    if (!grads)
        return yk__error_code() ? yk__error_code() : YK_ERR_MEMORY;
    bool on_device = on_one_queue(grads, count);
    yk_status status =
        on_device ? clip_on_device(grads, count, params, max_norm, total) : norm_of_grads(grads, count, &norm);
    free(grads);
    if (status || on_device)
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
