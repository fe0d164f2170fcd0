/*
 * shrink.c - thresholds, shrinking and smooth steps, composed of other operations, and the ReLU of random slopes.
 * Layer: ops.
 *
 * Thresholds and shrinking have kernels, too; what listens to operations hears the ones that they are composed of.
 */
#include <float.h>
#include <math.h>

#include "ops/cast_policy.h"

static bool activation_check(const char *name, yk_tensor *x)
{
    return yk__op_begin(name, 1, &x, 0) && !yk__expect_floating(name, "input", x);
}

/* `expression` of `wide`, which is x, of f16 and bf16 in f32, rounded once at the end. */
#define ROUNDED_ONCE(expression)                                                                                       \
    yk_dtype dtype = (yk_dtype)x->dtype;                                                                               \
    YK__WITHIN_SCOPE(rounded((expression), dtype))

static yk_tensor *rounded(yk_tensor *x, yk_dtype dtype)
{
    return x ? yk_cast(x, dtype) : NULL;
}

yk_tensor *yk_threshold(yk_tensor *x, double threshold, double value)
{
    YK__EVENT(YK__EVENT_OPERATION, "threshold");
    if (!yk__op_begin("threshold", 1, &x, 0) || yk__check_value("threshold", (yk_dtype)x->dtype, value))
        return NULL;
    if (yk_dtype_is_floating((yk_dtype)x->dtype) && !yk__listening)
        return yk__threshold_at_once(x, threshold, value);
    YK__WITHIN_SCOPE(yk_where(yk_le(x, yk__recorded_number(x, threshold)), yk__recorded_number(x, value), x));
}

yk_tensor *yk_hardtanh(yk_tensor *x, double min_val, double max_val)
{
    YK__EVENT(YK__EVENT_OPERATION, "hardtanh");
    if (!yk__op_begin("hardtanh", 1, &x, 0))
        return NULL;
    if (!(min_val <= max_val)) {
        yk__fail(YK_ERR_ARGUMENT, "hardtanh: min_val is %g, expected at most max_val, %g", min_val, max_val);
        return NULL;
    }
    return yk_clamp(x, min_val, max_val);
}

/* True where |x| is at most a number. */
static yk_tensor *shrunk_to_0(yk_tensor *x, double most)
{
    return yk_le(yk_abs(x), yk__recorded_number(x, most));
}

yk_tensor *yk_hardshrink(yk_tensor *x, double lambd)
{
    YK__EVENT(YK__EVENT_OPERATION, "hardshrink");
    if (!activation_check("hardshrink", x) || yk__check_number("hardshrink", "lambd", lambd, 0, DBL_MAX))
        return NULL;
    if (!yk__listening)
        return yk__hardshrink_at_once(x, lambd);
    YK__WITHIN_SCOPE(yk__recorded_where_not(shrunk_to_0(yk_detach(x), lambd), x));
}

static yk_tensor *softly_shrunk(yk_tensor *x, double lambd)
{
    yk_tensor *plain = yk_detach(x);
    return yk__recorded_where_not(shrunk_to_0(plain, lambd), yk_sub(x, yk_mul_scalar(yk_sign(plain), lambd)));
}

yk_tensor *yk_softshrink(yk_tensor *x, double lambd)
{
    YK__EVENT(YK__EVENT_OPERATION, "softshrink");
    if (!activation_check("softshrink", x) || yk__check_number("softshrink", "lambd", lambd, 0, DBL_MAX))
        return NULL;
    if (!yk__listening)
        return yk__softshrink_at_once(x, lambd);
    ROUNDED_ONCE(softly_shrunk(yk__recorded_wide(x), lambd));
}

static yk_tensor *less_tanh(yk_tensor *x)
{
    return yk_sub(x, yk_tanh(x));
}

yk_tensor *yk_tanhshrink(yk_tensor *x)
{
    YK__EVENT(YK__EVENT_OPERATION, "tanhshrink");
    if (!activation_check("tanhshrink", x))
        return NULL;
    ROUNDED_ONCE(less_tanh(yk__recorded_wide(x)));
}

static yk_tensor *softly_signed(yk_tensor *x)
{
    return yk_div(x, yk_add_scalar(yk_abs(x), 1));
}

yk_tensor *yk_softsign(yk_tensor *x)
{
    YK__EVENT(YK__EVENT_OPERATION, "softsign");
    if (!activation_check("softsign", x))
        return NULL;
    ROUNDED_ONCE(softly_signed(yk__recorded_wide(x)));
}

static yk_tensor *celu(yk_tensor *x, double alpha)
{
    yk_tensor *above = x ? yk_gt(yk_detach(x), yk__recorded_number(x, 0)) : NULL;
    return yk_where(above, x, yk_mul_scalar(yk_elu(yk_mul_scalar(x, 1 / alpha), 1), alpha));
}

yk_tensor *yk_celu(yk_tensor *x, double alpha)
{
    YK__EVENT(YK__EVENT_OPERATION, "celu");
    if (!activation_check("celu", x))
        return NULL;
    if (alpha == 0 || !isfinite(alpha)) {
        yk__fail(YK_ERR_ARGUMENT, "celu: alpha is %g, expected a number other than 0", alpha);
        return NULL;
    }
    if (alpha == 1)
        return yk_elu(x, 1);
    ROUNDED_ONCE(celu(yk__recorded_wide(x), alpha));
}

static yk_tensor *randomly_sloped(yk_tensor *x, double lower, double upper)
{
    yk_tensor *slope = yk_uniform_(yk_empty_like(x), lower, upper);
    return yk_where(yk_le(yk_detach(x), yk__recorded_number(x, 0)), yk_mul(x, slope), x);
}

yk_tensor *yk_rrelu(yk_tensor *x, double lower, double upper, bool training)
{
    YK__EVENT(YK__EVENT_OPERATION, "rrelu");
    if (!activation_check("rrelu", x))
        return NULL;
    if (!(lower <= upper) || !isfinite(lower) || !isfinite(upper)) {
        yk__fail(YK_ERR_ARGUMENT, "rrelu: slopes from %g to %g, expected finite ones, the lower one first", lower,
                 upper);
        return NULL;
    }
    if (!training)
        return yk_leaky_relu(x, (lower + upper) / 2);
    ROUNDED_ONCE(randomly_sloped(yk__recorded_wide(x), lower, upper));
}

yk_tensor *yk_softmin(yk_tensor *x, int dim)
{
    YK__AUTOCAST(softmax, 1, &x, yk_softmin(x, dim));
    YK__EVENT(YK__EVENT_OPERATION, "softmin");
    if (!activation_check("softmin", x) || yk__wrap_dim("softmin", x, &dim))
        return NULL;
    YK__WITHIN_SCOPE(yk_softmax(yk_neg(x), dim));
}
