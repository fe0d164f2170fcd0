/*
 * fractional_pool.c - maxima of windows at positions that random numbers give. Layer: ops.
 *
 * Window i along an axis begins at floor((i + u) a) - floor(u a), with u the channel's random number and a the input's
 * size less the kernel over the number of windows less 1; the last one ends with the input. Maxima are gathered from
 * where a kernel found them, or from the elements of all windows, which were gathered first: what is known of gathering
 * gives the gradients.
 */
#include <math.h>

#include "ops/op.h"

enum { AXES = 3 };

/* The sizes of the result; false and an error where the options do not go together with x. */
static bool sizes_of(const char *name, int axes, const yk_tensor *x, const yk_fractional_max_pool_options *o,
                     int64_t sizes[AXES])
{
    for (int i = 0; i < axes; i++) {
        int64_t size = x->shape[x->ndim - axes + i], kernel = o->kernel[i];
        double ratio = o->output_ratio[i];
        bool by_size = o->output_size[i] != YK_NOT_GIVEN, by_ratio = ratio != YK_NOT_GIVEN;
        if (kernel == YK_NOT_GIVEN) {
            yk__fail(YK_ERR_ARGUMENT, "%s: the kernel was not given, and has no default", name);
            return false;
        }
        if (by_size == by_ratio) {
            yk__fail(YK_ERR_ARGUMENT, "%s: output_size, the windows, and output_ratio were both %sgiven; one must be",
                     name, by_size ? "" : "not ");
            return false;
        }
        if (by_ratio && !(ratio > 0 && ratio < 1)) {
            yk__fail(YK_ERR_ARGUMENT, "%s: output_ratio is %g, expected one above 0 and below 1", name, ratio);
            return false;
        }
        sizes[i] = by_size ? o->output_size[i] : (int64_t)((double)size * ratio);
        if (kernel < 1 || sizes[i] < 1 || kernel > size || sizes[i] > size - kernel + 1) {
            yk__fail(YK_ERR_ARGUMENT,
                     "%s: %lld windows of %lld do not fit an input of %lld: the kernel must be at least 1, and there "
                     "are 1 to size - kernel + 1 windows",
                     name, (long long)sizes[i], (long long)kernel, (long long)size);
            return false;
        }
    }
    return true;
}

/* The numbers 0 to n - 1 of that dtype, (n). */
static yk_tensor *numbers(int64_t n, yk_dtype dtype, yk_device device)
{
    return yk_cast(yk__scope_own(yk__raw_positions(n, 1, device)), dtype);
}

/* The first elements (rows, windows) along one axis that windows take; u (rows) are the random numbers. */
static yk_tensor *window_starts(yk_tensor *u, int64_t size, int64_t windows, int64_t kernel)
{
    if (!u)
        return NULL;
    yk_device device = yk__device_of(u);
    const int64_t rows = u->shape[0], shape[2] = {rows, 1};
    yk_tensor *column = yk_reshape(u, 2, shape), *from = NULL;
    if (windows > 1) {
        double step = (double)(size - kernel) / (double)(windows - 1);
        if (u->dtype == YK_F32)
            step = (double)((float)(size - kernel) / (float)(windows - 1));
        yk_tensor *first = numbers(windows - 1, (yk_dtype)u->dtype, device);
        from = yk_sub(yk_floor(yk_mul_scalar(yk_add(first, column), step)), yk_floor(yk_mul_scalar(column, step)));
        from = yk_cast(from, YK_I64);
    }
    yk_tensor *last =
        yk_full(2, shape, (double)(size - kernel), YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = device));
    if (windows > 1)
        from = yk_cat((yk_tensor *[]){from, last}, 2, 1);
    return windows > 1 ? from : last;
}

/* All that they take (rows, windows, kernel). */
static yk_tensor *window_elements(yk_tensor *starts, int64_t kernel)
{
    return starts ? yk_add(yk_unsqueeze(starts, 2), numbers(kernel, YK_I64, yk__device_of(starts))) : NULL;
}

/* The positions (rows, windows) of maxima by a kernel, in rows of x; along[i] are the first elements along axis i. One
 * reference. */
static yk_tensor *positions_of(yk_tensor *x, int axes, const int64_t *kernel, const int64_t *sizes, yk_tensor **along)
{
    int64_t shape[4] = {along[0]->shape[0], 1, 1, 1}, windows[3] = {1, 1, 1}, reach[3] = {1, 1, 1};
    yk_tensor *from = yk_zeros(2, (int64_t[]){shape[0], AXES - axes},
                               YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(x)));
    for (int i = 0; i < axes; i++) {
        int axis = AXES - axes + i;
        shape[1 + axis] = x->shape[x->ndim - axes + i], windows[axis] = sizes[i], reach[axis] = kernel[i];
        from = yk_cat((yk_tensor *[]){from, along[i]}, 2, 1);
    }
    yk_tensor *rows = from ? yk_contiguous(yk_reshape(x, 4, shape)) : NULL;
    const int64_t positions[2] = {shape[0], windows[0] * windows[1] * windows[2]};
    yk_tensor *which = rows ? yk__tensor_new(2, positions, NULL, YK_I64, yk__device_of(x)) : NULL;
    if (!which || !which->numel)
        return which;
    yk__view vw = yk__view_of(which), vx = yk__view_of(rows), vf = yk__view_of(from);
    return yk__tensor_if_ok(which, YK__SLOT(which, window_maxima, &vw, &vx, &vf, windows, reach));
}

/* The maxima (rows, windows) of x seen as (rows, elements), in the shape of the result. */
static yk_tensor *pooled(yk_tensor *x, int axes, const yk_fractional_max_pool_options *o, const int64_t sizes[AXES],
                         yk_tensor **indices)
{
    int64_t rows = 1, elements = 1, windows = 1, kernel = 1, shape[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++) {
        int i = d - (x->ndim - axes);
        shape[d] = i < 0 ? x->shape[d] : sizes[i];
        rows *= i < 0 ? x->shape[d] : 1;
    }
    yk_tensor *wide = yk__recorded_wide(x), *at = NULL;
    if (!wide)
        return NULL;
    const int64_t sampled[2] = {rows, axes};
    yk_tensor *samples =
        o->random_samples
            ? yk__recorded_wide(yk_detach(o->random_samples))
            : yk_rand(2, sampled,
                      YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)wide->dtype, .device = yk__device_of(x)));
    samples = samples ? yk_reshape(samples, 2, sampled) : NULL;
    yk_tensor *along[AXES] = {NULL}, *most = NULL, *positions = NULL;
    for (int i = 0; i < axes; i++) {
        int64_t size = x->shape[x->ndim - axes + i];
        /* The first number of two is that of the last axis. */
        along[i] = window_starts(yk_select(samples, 1, axes == 2 ? 1 - i : i), size, sizes[i], o->kernel[i]);
        if (!along[i])
            return NULL;
        elements *= size;
    }
    const int64_t whole[2] = {rows, elements};
    if (yk__backend_for(x)->window_maxima && !yk__listening) {
        bool before = yk_no_grad_begin();
        positions = yk__scope_own(positions_of(wide, axes, o->kernel, sizes, along));
        yk_no_grad_end(before);
        most = positions ? yk_gather_dim(yk_reshape(wide, 2, whole), 1, positions) : NULL;
    } else {
        for (int i = 0; i < axes; i++) {
            yk_tensor *taken = window_elements(along[i], o->kernel[i]);
            /* (rows, windows, kernel) before, with (rows, sizes[i], kernel[i]) within each. */
            if (at && taken) {
                const int64_t outer[5] = {rows, windows, 1, kernel, 1}, inner[5] = {rows, 1, sizes[i], 1, o->kernel[i]};
                const double size = (double)x->shape[x->ndim - axes + i];
                at = yk_add(yk_mul_scalar(yk_reshape(at, 5, outer), size), yk_reshape(taken, 5, inner));
            } else {
                at = taken;
            }
            windows *= sizes[i], kernel *= o->kernel[i];
            at = yk_reshape(at, 3, (int64_t[]){rows, windows, kernel});
        }
        const int64_t flat[2] = {rows, windows * kernel};
        yk_tensor *list = yk_reshape(at, 2, flat), *which = NULL;
        yk_tensor *taken =
            yk_reshape(yk_gather_dim(yk_reshape(wide, 2, whole), 1, list), 3, (int64_t[]){rows, windows, kernel});
        most = yk_max_dim(taken, 2, true, &which);
        positions = most && indices ? yk_gather_dim(at, 2, which) : NULL;
    }
    if (!most)
        return NULL;
    if (indices) {
        *indices = positions ? yk_reshape(positions, x->ndim, shape) : NULL;
        if (!*indices)
            return NULL;
    }
    return yk_cast(yk_reshape(most, x->ndim, shape), (yk_dtype)x->dtype);
}

static yk_tensor *pooled_in_scope(yk_tensor *x, int axes, const yk_fractional_max_pool_options *o,
                                  const int64_t sizes[AXES], yk_tensor **indices)
{
    yk_tensor *out = pooled(x, axes, o, sizes, indices);
    if (out && indices)
        yk_tensor_retain(*indices); /* beyond the scope */
    return out;
}

static yk_tensor *in_own_scope(yk_tensor *x, int axes, const yk_fractional_max_pool_options *o,
                               const int64_t sizes[AXES], yk_tensor **indices)
{
    YK__WITHIN_SCOPE(pooled_in_scope(x, axes, o, sizes, indices));
}

static yk_tensor *fractional_pool(const char *name, int axes, yk_tensor *x,
                                  const yk_fractional_max_pool_options *options, yk_tensor **indices)
{
    yk_fractional_max_pool_options o;
    int64_t sizes[AXES];
    char a[200], b[200];
    if (indices)
        *indices = NULL;
    if (YK__OPTIONS_TAKE(name, yk_fractional_max_pool_options, options, &o))
        return NULL;
    yk_tensor *inputs[2] = {x, o.random_samples};
    if (!yk__op_begin(name, 2, inputs, 1u << 1) || yk__expect_floating(name, "input", x) ||
        yk__expect_dtype(name, "random_samples", o.random_samples, (yk_dtype)x->dtype))
        return NULL;
    bool some = x->ndim == axes + 2 || x->ndim == axes + 1;
    for (int d = x->ndim - axes - 1; some && d < x->ndim; d++)
        some = x->shape[d] > 0;
    if (!some) {
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected %s with sizes above 0 for all but N", name,
                 yk_shape_format(x, a, sizeof(a)),
                 axes == 2 ? "(N, C, H, W) or (C, H, W)" : "(N, C, D, H, W) or (C, D, H, W)");
        return NULL;
    }
    const yk_tensor *s = o.random_samples;
    if (s && (s->ndim != 3 || s->shape[0] != (x->ndim == axes + 2 ? x->shape[0] : 1) ||
              s->shape[1] != x->shape[x->ndim - axes - 1] || s->shape[2] != axes)) {
        yk__fail(YK_ERR_SHAPE, "%s: random_samples %s of an input %s, expected (N, C, %d)", name,
                 yk_shape_format(s, a, sizeof(a)), yk_shape_format(x, b, sizeof(b)), axes);
        return NULL;
    }
    if (!sizes_of(name, axes, x, &o, sizes))
        return NULL;
    yk_tensor *out = in_own_scope(x, axes, &o, sizes, indices);
    if (indices)
        *indices = out ? yk__scope_own(*indices) : NULL;
    return out;
}

yk_tensor *yk_fractional_max_pool2d(yk_tensor *x, const yk_fractional_max_pool_options *options)
{
    YK__EVENT(YK__EVENT_OPERATION, "fractional_max_pool2d");
    return fractional_pool("fractional_max_pool2d", 2, x, options, NULL);
}

yk_tensor *yk_fractional_max_pool3d(yk_tensor *x, const yk_fractional_max_pool_options *options)
{
    YK__EVENT(YK__EVENT_OPERATION, "fractional_max_pool3d");
    return fractional_pool("fractional_max_pool3d", 3, x, options, NULL);
}

yk_tensor *yk_fractional_max_pool2d_with_indices(yk_tensor *x, const yk_fractional_max_pool_options *options,
                                                 yk_tensor **indices)
{
    YK__EVENT(YK__EVENT_OPERATION, "fractional_max_pool2d");
    return fractional_pool("fractional_max_pool2d", 2, x, options, indices);
}

yk_tensor *yk_fractional_max_pool3d_with_indices(yk_tensor *x, const yk_fractional_max_pool_options *options,
                                                 yk_tensor **indices)
{
    YK__EVENT(YK__EVENT_OPERATION, "fractional_max_pool3d");
    return fractional_pool("fractional_max_pool3d", 3, x, options, indices);
}
