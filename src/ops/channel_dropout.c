/*
 * channel_dropout.c - dropout of whole channels, and dropout that keeps mean and variance. Layer: ops.
 *
 * yk_dropout of ones says what is kept: for each channel, or for each element.
 */
#include <math.h>

#include "ops/op.h"

/* True if nothing is to be done, which gives x itself, is *idle. */
static bool dropout_check(const char *name, yk_tensor *x, double p, bool training, bool *idle)
{
    if (!yk__op_begin(name, 1, &x, 0))
        return false;
    if (!(p >= 0 && p <= 1)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: p is %g, expected a probability in [0, 1]", name, p);
        return false;
    }
    *idle = !training || p == 0;
    return !yk__expect_floating(name, "tensor", x);
}

/* Ones for each element of x, or for each channel of (N,C,...), or of (C,...) without a batch, in f32 or f64. */
static yk_tensor *ones_for(yk_tensor *x, bool channels, bool batch)
{
    int64_t shape[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++)
        shape[d] = !channels || d <= batch ? x->shape[d] : 1;
    return yk_ones(x->ndim, shape,
                   YK_OPTIONS(yk_tensor_options, .dtype = yk__wide_dtype(x), .device = yk__device_of(x)));
}

static yk_tensor *without_channels(yk_tensor *x, double p, bool batch)
{
    yk_tensor *ones = ones_for(x, true, batch), *kept = ones ? yk_dropout(ones, p, true) : NULL;
    return kept ? yk_mul(x, yk_cast(kept, (yk_dtype)x->dtype)) : NULL;
}

/* axes: the dimensions behind the channels; either: of three dimensions, the first is a batch. */
static yk_tensor *channel_dropout(const char *name, yk_tensor *x, double p, bool training, int axes, bool lines)
{
    static const char *const form[4] = {"", "(N, C, L) or (C, L)", "(N, C, H, W) or (N, C, L)",
                                        "(N, C, D, H, W) or (C, D, H, W)"};
    bool idle;
    char text[200];
    if (!dropout_check(name, x, p, training, &idle))
        return NULL;
    if (x->ndim != axes + 2 && x->ndim != axes + 1) {
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected %s", name, yk_shape_format(x, text, sizeof(text)),
                 form[axes]);
        return NULL;
    }
    if (idle)
        return yk__scope_own(yk_tensor_retain(x));
    YK__WITHIN_SCOPE(without_channels(x, p, lines || x->ndim == axes + 2));
}

yk_tensor *yk_dropout1d(yk_tensor *x, double p, bool training)
{
    YK__EVENT(YK__EVENT_OPERATION, "dropout1d");
    return channel_dropout("dropout1d", x, p, training, 1, false);
}

yk_tensor *yk_dropout2d(yk_tensor *x, double p, bool training)
{
    YK__EVENT(YK__EVENT_OPERATION, "dropout2d");
    return channel_dropout("dropout2d", x, p, training, 2, true);
}

yk_tensor *yk_dropout3d(yk_tensor *x, double p, bool training)
{
    YK__EVENT(YK__EVENT_OPERATION, "dropout3d");
    return channel_dropout("dropout3d", x, p, training, 3, false);
}

/* Kept elements become a x + c, the others c - a s, with s the value of SELU at minus infinity and the sign changed, a
 * and c such that mean 0 and variance 1 stay. */
static yk_tensor *alpha_dropped(yk_tensor *x, double p, bool channels)
{
    const double s = 1.7580993408473766;
    yk_dtype dtype = (yk_dtype)x->dtype;
    double a = 1 / sqrt((s * s * p + 1) * (1 - p)), c = a * s * p;
    yk_tensor *ones = ones_for(x, channels, true), *drawn = ones ? yk_dropout(ones, p, true) : NULL;
    yk_tensor *kept = drawn ? yk_gt(drawn, yk__recorded_number(drawn, 0)) : NULL;
    yk_tensor *wide = yk__recorded_wide(x), *gone = wide ? yk__recorded_number(wide, c - a * s) : NULL;
    yk_tensor *out = yk_where(kept, yk_add_scalar(yk_mul_scalar(wide, a), c), gone);
    return out ? yk_cast(out, dtype) : NULL;
}

static yk_tensor *alpha_dropout(const char *name, yk_tensor *x, double p, bool training, bool channels)
{
    bool idle;
    char text[200];
    if (!dropout_check(name, x, p, training, &idle))
        return NULL;
    if (channels && x->ndim < 2) {
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (N, C, ...)", name,
                 yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    if (idle)
        return yk__scope_own(yk_tensor_retain(x));
    if (p == 1)
        return yk_mul_scalar(x, 0);
    YK__WITHIN_SCOPE(alpha_dropped(x, p, channels));
}

yk_tensor *yk_alpha_dropout(yk_tensor *x, double p, bool training)
{
    YK__EVENT(YK__EVENT_OPERATION, "alpha_dropout");
    return alpha_dropout("alpha_dropout", x, p, training, false);
}

yk_tensor *yk_feature_alpha_dropout(yk_tensor *x, double p, bool training)
{
    YK__EVENT(YK__EVENT_OPERATION, "feature_alpha_dropout");
    return alpha_dropout("feature_alpha_dropout", x, p, training, true);
}
