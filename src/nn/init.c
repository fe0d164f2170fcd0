/*
 * init.c - initial values. Layer: nn.
 *
 * Values are drawn by the table's random kernel, which numbers elements in C order of the shape: a weight gets the
 * same values whatever its memory order.
 */
#include <float.h>
#include <math.h>

#include "nn/module.h"

static yk_status draw(const char *what, yk_tensor *x, yk__random_kind kind, double p0, double p1)
{
    if (!x)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the tensor is NULL", what);
    if (!yk_dtype_is_floating((yk_dtype)x->dtype))
        return yk__fail(YK_ERR_DTYPE, "%s: expected a floating tensor, this one is %s", what,
                        yk_dtype_name((yk_dtype)x->dtype));
    if (x->numel == 0)
        return YK_OK;
    yk__bump_version(x);
    if (yk_is_contiguous(x))
        return yk__raw_random(what, x, kind, p0, p1);
    /* Faster drawn in C order and copied than drawn in jumps. */
    yk_tensor *ordered = yk__tensor_new(x->ndim, x->shape, NULL, (yk_dtype)x->dtype, yk__device_of(x));
    yk_status status = ordered ? yk__raw_random(what, ordered, kind, p0, p1) : yk__error_code();
    if (!status)
        status = yk__raw_copy(x, ordered);
    yk_tensor_release(ordered);
    return status;
}

yk_status yk_init_uniform(yk_tensor *x, double low, double high)
{
    YK__LIVE(x);
    return draw("init_uniform", x, YK__RANDOM_UNIFORM, low, high);
}

yk_status yk_init_normal(yk_tensor *x, double mean, double deviation)
{
    YK__LIVE(x);
    if (!(deviation >= 0))
        return yk__fail(YK_ERR_ARGUMENT, "init_normal: deviation %g is negative", deviation);
    return draw("init_normal", x, YK__RANDOM_NORMAL, mean, deviation);
}

yk_status yk_init_constant(yk_tensor *x, double value)
{
    YK__LIVE(x);
    if (!x)
        return yk__fail(YK_ERR_ARGUMENT, "init_constant: the tensor is NULL");
    yk_status status = yk__check_value("init_constant", (yk_dtype)x->dtype, value);
    if (status)
        return status;
    status = yk__raw_fill(x, value);
    yk__bump_version(x);
    return status;
}

/* Products of the sizes that feed one output, and that one input feeds. */
static yk_status fans(const char *what, const yk_tensor *x, double *in, double *out)
{
    if (!x)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the tensor is NULL", what);
    if (x->ndim < 2) {
        char text[200];
        return yk__fail(YK_ERR_SHAPE, "%s: shape %s has no fan; at least 2 dimensions are needed", what,
                        yk_shape_format(x, text, sizeof(text)));
    }
    double field = 1;
    for (int d = 2; d < x->ndim; d++)
        field *= (double)x->shape[d];
    *in = (double)x->shape[1] * field;
    *out = (double)x->shape[0] * field;
    return YK_OK;
}

static yk_status kaiming(const char *what, const yk_tensor *x, double slope, bool fan_out, double *deviation)
{
    double in, out;
    yk_status status = yk__check_number(what, "slope", slope, -DBL_MAX, DBL_MAX);
    if (!status)
        status = fans(what, x, &in, &out);
    if (!status)
        *deviation = sqrt(2 / (1 + slope * slope)) / sqrt(fan_out ? out : in);
    return status;
}

yk_status yk_init_kaiming_uniform(yk_tensor *x, double slope, bool fan_out)
{
    YK__LIVE(x);
    double deviation;
    yk_status status = kaiming("init_kaiming_uniform", x, slope, fan_out, &deviation);
    return status ? status : yk_init_uniform(x, -sqrt(3) * deviation, sqrt(3) * deviation);
}

yk_status yk_init_kaiming_normal(yk_tensor *x, double slope, bool fan_out)
{
    YK__LIVE(x);
    double deviation;
    yk_status status = kaiming("init_kaiming_normal", x, slope, fan_out, &deviation);
    return status ? status : yk_init_normal(x, 0, deviation);
}

static yk_status xavier(const char *what, const yk_tensor *x, double gain, double *deviation)
{
    double in, out;
    yk_status status = yk__check_number(what, "gain", gain, 0, INFINITY);
    if (!status)
        status = fans(what, x, &in, &out);
    if (!status)
        *deviation = gain * sqrt(2 / (in + out));
    return status;
}

yk_status yk_init_xavier_uniform(yk_tensor *x, double gain)
{
    YK__LIVE(x);
    double deviation;
    yk_status status = xavier("init_xavier_uniform", x, gain, &deviation);
    return status ? status : yk_init_uniform(x, -sqrt(3) * deviation, sqrt(3) * deviation);
}

yk_status yk_init_xavier_normal(yk_tensor *x, double gain)
{
    YK__LIVE(x);
    double deviation;
    yk_status status = xavier("init_xavier_normal", x, gain, &deviation);
    return status ? status : yk_init_normal(x, 0, deviation);
}
