/*
 * unpool.c - maxima put back to where they were, and pools of p-norms. Layer: ops.
 *
 * The channels of all inputs are rows: unpooling scatters into rows of zeros. A p-norm is an average of powers times
 * the elements of a window.
 */
#include <math.h>

#include "ops/cast_policy.h"

enum { AXES = 3 };

/* The sizes of the result; false and an error where the options do not go together with x. */
static bool sizes_of(const char *name, int axes, const yk_tensor *x, yk_max_unpool_options *o, int64_t sizes[AXES])
{
    for (int i = 0; i < axes; i++) {
        int64_t size = x->shape[x->ndim - axes + i], most = INT32_MAX;
        if (o->kernel[i] == YK_NOT_GIVEN) {
            yk__fail(YK_ERR_ARGUMENT, "%s: the kernel was not given, and has no default", name);
            return false;
        }
        int64_t kernel = o->kernel[i], stride = yk__integer_or(o->stride[i], kernel), padding = o->padding[i];
        if (kernel < 1 || stride < 1 || padding < 0 || kernel > most || stride > most || padding > most ||
            size > most) {
            yk__fail(YK_ERR_ARGUMENT, "%s: kernel %lld, stride %lld, padding %lld are not possible", name,
                     (long long)kernel, (long long)stride, (long long)padding);
            return false;
        }
        int64_t whole = (size - 1) * stride - 2 * padding + kernel;
        sizes[i] = yk__integer_or(o->output_size[i], whole);
        if (sizes[i] < 1 ||
            (o->output_size[i] != YK_NOT_GIVEN && (sizes[i] <= whole - stride || sizes[i] >= whole + stride))) {
            yk__fail(YK_ERR_ARGUMENT, "%s: output_size is %lld, expected above %lld and below %lld", name,
                     (long long)sizes[i], (long long)(whole - stride > 0 ? whole - stride : 0),
                     (long long)(whole + stride));
            return false;
        }
    }
    return true;
}

static yk_tensor *unpooled(yk_tensor *x, yk_tensor *indices, int axes, const int64_t sizes[AXES])
{
    int64_t rows = 1, shape[YK_MAX_DIMS], elements = 1;
    for (int d = 0; d < x->ndim; d++) {
        int i = d - (x->ndim - axes);
        shape[d] = i < 0 ? x->shape[d] : sizes[i];
        rows *= i < 0 ? x->shape[d] : 1;
        elements *= i < 0 ? 1 : sizes[i];
    }
    yk__tensor_spec spec = {.dtype = x->dtype, .ndim = 2, .shape = {rows, elements}};
    yk__contiguous_strides(2, spec.shape, spec.stride);
    int64_t flat[2] = {rows, rows ? x->numel / rows : 0};
    yk_tensor *out = yk_scatter_dim_(yk__recorded_zeros(&spec, yk__device_of(x)), 1, yk_reshape(indices, 2, flat),
                                     yk_reshape(x, 2, flat));
    return out ? yk_reshape(out, x->ndim, shape) : NULL;
}

static yk_tensor *max_unpool(const char *name, int axes, yk_tensor *x, yk_tensor *indices,
                             const yk_max_unpool_options *options)
{
    static const char *const form[AXES + 1] = {"", "(N, C, L) or (C, L)", "(N, C, H, W) or (C, H, W)",
                                               "(N, C, D, H, W) or (C, D, H, W)"};
    yk_tensor *inputs[2] = {x, indices};
    yk_max_unpool_options o;
    int64_t sizes[AXES], shape[YK_MAX_DIMS];
    char a[200], b[200];
    if (!yk__op_begin(name, 2, inputs, 0) || YK__OPTIONS_TAKE(name, yk_max_unpool_options, options, &o) ||
        yk__expect_floating(name, "input", x))
        return NULL;
    if (indices->dtype != YK_I64 && indices->dtype != YK_I32) {
        yk__fail(YK_ERR_DTYPE, "%s: indices are %s, expected int64", name, yk_dtype_name((yk_dtype)indices->dtype));
        return NULL;
    }
    bool some = x->ndim == axes + 2 || x->ndim == axes + 1;
    for (int d = x->ndim - axes - 1; some && d < x->ndim; d++)
        some = x->shape[d] > 0;
    if (!some || !yk_same_shape(x, indices)) {
        yk__fail(YK_ERR_SHAPE,
                 "%s: input %s and indices %s, expected two of the shape %s, with sizes above 0 for all "
                 "but N",
                 name, yk_shape_format(x, a, sizeof(a)), yk_shape_format(indices, b, sizeof(b)), form[axes]);
        return NULL;
    }
    if (!sizes_of(name, axes, x, &o, sizes))
        return NULL;
    memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)x->ndim);
    memcpy(shape + x->ndim - axes, sizes, sizeof(sizes[0]) * (size_t)axes);
    if (yk__tensor_check(name, x->ndim, shape, NULL))
        return NULL;
    YK__WITHIN_SCOPE(unpooled(x, indices, axes, sizes));
}

yk_tensor *yk_max_unpool1d(yk_tensor *x, yk_tensor *indices, const yk_max_unpool_options *options)
{
    YK__AUTOCAST(max_unpool, 1, &x, yk_max_unpool1d(x, indices, options));
    YK__EVENT(YK__EVENT_OPERATION, "max_unpool1d");
    return max_unpool("max_unpool1d", 1, x, indices, options);
}

yk_tensor *yk_max_unpool2d(yk_tensor *x, yk_tensor *indices, const yk_max_unpool_options *options)
{
    YK__AUTOCAST(max_unpool, 1, &x, yk_max_unpool2d(x, indices, options));
    YK__EVENT(YK__EVENT_OPERATION, "max_unpool2d");
    return max_unpool("max_unpool2d", 2, x, indices, options);
}

yk_tensor *yk_max_unpool3d(yk_tensor *x, yk_tensor *indices, const yk_max_unpool_options *options)
{
    YK__AUTOCAST(max_unpool, 1, &x, yk_max_unpool3d(x, indices, options));
    YK__EVENT(YK__EVENT_OPERATION, "max_unpool3d");
    return max_unpool("max_unpool3d", 3, x, indices, options);
}

/* ---- p-norms ---- */

static yk_tensor *lp_pooled(yk_tensor *x, double p, int axes, const yk_pool_options *o)
{
    yk_dtype dtype = (yk_dtype)x->dtype;
    yk_pool2d_options two = *YK_OPTIONS(yk_pool2d_options, .kernel = {o->kernel[0], o->kernel[1]},
                                        .stride = {o->stride[0], o->stride[1]}, .ceil_mode = o->ceil_mode);
    double elements = 1;
    for (int i = 0; i < axes; i++)
        elements *= (double)o->kernel[i];
    bool square = p == 2; /* the mean of squares is not negative, and has no sign to be taken off */
    yk_tensor *wide = yk__recorded_wide(x), *powers = square ? yk_square(wide) : yk_pow_scalar(wide, p);
    yk_tensor *mean = axes == 1   ? yk_avg_pool1d(powers, o)
                      : axes == 2 ? yk_avg_pool2d(powers, &two)
                                  : yk_avg_pool3d(powers, o);
    yk_tensor *sum = yk_mul_scalar(square ? mean : yk_mul(yk_sign(mean), yk_relu(yk_abs(mean))), elements);
    sum = square ? yk_sqrt(sum) : yk_pow_scalar(sum, 1 / p);
    return sum ? yk_cast(sum, dtype) : NULL;
}

static yk_tensor *lp_pool(const char *name, int axes, yk_tensor *x, double p, const yk_pool_options *options)
{
    yk_pool_options o;
    if (!yk__op_begin(name, 1, &x, 0) || YK__OPTIONS_TAKE(name, yk_pool_options, options, &o) ||
        yk__expect_floating(name, "input", x))
        return NULL;
    if (p == 0 || !isfinite(p)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: p is %g, expected a number other than 0", name, p);
        return NULL;
    }
    for (int i = 0; i < axes; i++) {
        if (o.padding[i] || o.dilation[i] != 1 || o.divisor_override != YK_NOT_GIVEN) {
            yk__fail(YK_ERR_ARGUMENT, "%s: padding, dilation and divisor_override are not for it", name);
            return NULL;
        }
    }
    YK__WITHIN_SCOPE(lp_pooled(x, p, axes, &o));
}

yk_tensor *yk_lp_pool1d(yk_tensor *x, double p, const yk_pool_options *options)
{
    YK__AUTOCAST(pow, 1, &x, yk_lp_pool1d(x, p, options));
    YK__EVENT(YK__EVENT_OPERATION, "lp_pool1d");
    return lp_pool("lp_pool1d", 1, x, p, options);
}

yk_tensor *yk_lp_pool2d(yk_tensor *x, double p, const yk_pool_options *options)
{
    YK__AUTOCAST(pow, 1, &x, yk_lp_pool2d(x, p, options));
    YK__EVENT(YK__EVENT_OPERATION, "lp_pool2d");
    return lp_pool("lp_pool2d", 2, x, p, options);
}

yk_tensor *yk_lp_pool3d(yk_tensor *x, double p, const yk_pool_options *options)
{
    YK__AUTOCAST(pow, 1, &x, yk_lp_pool3d(x, p, options));
    YK__AUTOCAST(avg_pool3d, 1, &x, yk_lp_pool3d(x, p, options));
    YK__EVENT(YK__EVENT_OPERATION, "lp_pool3d");
    return lp_pool("lp_pool3d", 3, x, p, options);
}
