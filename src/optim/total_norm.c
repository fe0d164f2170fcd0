/*
 * total_norm.c - the norm of all gradients together by any p, and clipping by it. Layer: optim.
 *
 * Clipping by the 2-norm is clip.c's, which keeps it on the device; here the host reads one number for each gradient.
 */
#include <math.h>

#include "nn/state_dict.h"
#include "optim/optimizer.h"

/* The greatest magnitude of x's elements, or the sum of their powers, found in f64. */
static yk_status part_of(const char *what, yk_tensor *x, double p, double *part)
{
    bool greatest = isinf(p);
    yk_tensor *wide = yk__raw_cast(x, YK_F64), *size = yk__raw_unary(what, YK__ABS, wide, 0, 0);
    yk_tensor *power = greatest || p == 1 ? yk_tensor_retain(size) : yk__raw_unary(what, YK__POW_SCALAR, size, p, 0);
    yk_tensor *whole = yk__raw_reduce(what, greatest ? YK__AMAX : YK__SUM, power, 0, false, 0);
    yk_status status = whole ? yk__tensor_read(what, whole, part, sizeof(*part)) : yk__error_code();
    yk_tensor_release(wide);
    yk_tensor_release(size);
    yk_tensor_release(power);
    yk_tensor_release(whole);
    return status;
}

static yk_status total_norm(const char *what, const yk_parameters *params, double p, double *total)
{
    yk_status status = YK_OK;
    double sum = 0;
    for (int64_t i = 0; i < yk__parameters_count(params) && !status; i++) {
        yk_tensor *grad = yk_grad(yk__parameters_at(params, i));
        double part;
        if (!grad || grad->numel == 0)
            continue;
        status = part_of(what, grad, p, &part);
        if (!status)
            sum = !isinf(p) ? sum + part : isnan(sum) || part <= sum ? sum : part; /* NaN stays, and comes in */
    }
    *total = isinf(p) || p == 1 ? sum : p == 2 ? sqrt(sum) : pow(sum, 1 / p);
    return status;
}

static yk_status check(const char *what, const yk_parameters *params, double norm_type)
{
    if (!params)
        return yk__error_code() ? yk__error_code()
                                : yk__fail(YK_ERR_ARGUMENT, "%s: the list of parameters is NULL", what);
    if (!(norm_type > 0))
        return yk__fail(YK_ERR_ARGUMENT, "%s: norm_type is %g, expected a number above 0, or infinity", what,
                        norm_type);
    return YK_OK;
}

yk_status yk_get_total_norm(const yk_parameters *params, double norm_type, double *total)
{
    static const char what[] = "get_total_norm";
    YK__LIVE(params);
    yk_status status = check(what, params, norm_type);
    if (!status && !total)
        status = yk__fail(YK_ERR_ARGUMENT, "%s: the place of the norm is NULL", what);
    return status ? status : total_norm(what, params, norm_type, total);
}

yk_status yk_clip_grad_norm_type(const yk_parameters *params, double max_norm, double norm_type, double *total)
{
    static const char what[] = "clip_grad_norm";
    YK__LIVE(params);
    yk_status status = check(what, params, norm_type);
    if (!status && norm_type == 2)
        return yk_clip_grad_norm(params, max_norm, total);
    if (!status && !(max_norm >= 0))
        status = yk__fail(YK_ERR_ARGUMENT, "%s: max_norm is %g, it must not be negative", what, max_norm);
    double norm;
    if (!status)
        status = total_norm(what, params, norm_type, &norm);
    if (status)
        return status;
    if (total)
        *total = norm;
    double factor = max_norm / (norm + 1e-6);
    for (int64_t i = 0; i < yk__parameters_count(params) && !status && !(factor >= 1); i++) {
        yk_tensor *grad = yk_grad(yk__parameters_at(params, i));
        if (!grad || grad->numel == 0)
            continue;
        yk__bump_version(grad);
        status = yk__raw_unary_into(what, YK__MUL_SCALAR, grad, factor, 0);
    }
    return status;
}
