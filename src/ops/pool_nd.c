/*
 * pool_nd.c - pools along one and three dimensions, and adaptive maxima. Layer: ops.
 *
 * A pool over a box is a pool over its planes and then one over their depth, since maxima and sums are: x (N,C,D,H,W)
 * is pooled as (N, C D, H, W), and that as (N, C, D, OH OW), both by the two-dimensional kernels and without a copy. Of
 * equal elements the first one is taken, as in the whole box. One dimension is two with a height of 1.
 */
#include <stdlib.h>

#include "ops/cast_policy.h"
#include "ops/pool.h"

enum { AXES = 3 };

/* A pool along `axes` dimensions: its kind, and the sizes of its result. */
typedef struct pool {
    const char *name;
    int axes;
    bool max;
    yk_pool_options o; /* the first `axes` numbers of each */
    int64_t sizes[AXES];
} pool;

static const char *axis_name(int axes, int i)
{
    static const char *const name[AXES] = {"depth", "height", "width"};
    return axes == 1 ? "length" : name[AXES - axes + i];
}

static bool input_check(const char *name, int axes, const yk_tensor *x)
{
    static const char *const form[AXES + 1] = {"", "(N, C, L) or (C, L)", "(N, C, H, W) or (C, H, W)",
                                               "(N, C, D, H, W) or (C, D, H, W)"};
    char text[200];
    bool some = x->ndim == axes + 2 || x->ndim == axes + 1;
    for (int d = x->ndim - axes - 1; some && d < x->ndim; d++)
        some = x->shape[d] != 0;
    if (some)
        return !yk__expect_floating(name, "input", x);
    yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected %s with sizes above 0 for all but N", name,
             yk_shape_format(x, text, sizeof(text)), form[axes]);
    return false;
}

/* Completes the options; false and an error where they and x do not go together. */
static bool options_check(pool *p, const yk_tensor *x)
{
    if (p->o.divisor_override != YK_NOT_GIVEN &&
        yk__check_integer(p->name, "divisor_override", p->o.divisor_override, 1, INT64_MAX))
        return false;
    for (int i = 0; i < p->axes; i++) {
        if (p->o.kernel[i] == YK_NOT_GIVEN) {
            yk__fail(YK_ERR_ARGUMENT, "%s: the kernel was not given, and has no default", p->name);
            return false;
        }
        p->o.stride[i] = yk__integer_or(p->o.stride[i], p->o.kernel[i]);
        yk__pool_axis a = {.name = axis_name(p->axes, i),
                           .size = x->shape[x->ndim - p->axes + i],
                           .kernel = p->o.kernel[i],
                           .stride = p->o.stride[i],
                           .padding = p->o.padding[i],
                           .dilation = p->o.dilation[i],
                           .ceil_mode = p->o.ceil_mode,
                           .max = p->max};
        if (!yk__pool_windows(p->name, &a, x, &p->sizes[i]))
            return false;
    }
    return true;
}

static yk_tensor *shaped(yk_tensor *x, int ndim, const int64_t *shape)
{
    return x ? yk_reshape(x, ndim, shape) : NULL;
}

/* The options of the pool of two dimensions that `count` of p's axes, from `first` on, are; one is the height, or the
 * width where it is the only one of p. The divisor is another one for each pass of several. */
static yk_pool2d_options pass_options(const pool *p, int first, int count, int64_t divisor)
{
    yk_pool2d_options o =
        *YK_OPTIONS(yk_pool2d_options, .kernel = {1, 1}, .stride = {1, 1}, .ceil_mode = p->o.ceil_mode,
                    .count_include_pad = p->o.count_include_pad, .divisor_override = divisor);
    for (int i = 0; i < count; i++) {
        int to = p->axes == 1 ? 1 : i;
        o.kernel[to] = p->o.kernel[first + i];
        o.stride[to] = p->o.stride[first + i];
        o.padding[to] = p->o.padding[first + i];
        o.dilation[to] = p->o.dilation[first + i];
    }
    return o;
}

static yk_tensor *pass(const pool *p, yk_tensor *x, int first, int count, int64_t divisor)
{
    yk_pool2d_options o = pass_options(p, first, count, divisor);
    return !x ? NULL : p->max ? yk_max_pool2d(x, &o) : yk_avg_pool2d(x, &o);
}

/* The same of maxima, with their positions, of i64, in *index. */
static yk_tensor *indexed_pass(const pool *p, yk_tensor *x, int first, int count, yk_tensor **index)
{
    yk_pool2d_options o = pass_options(p, first, count, YK_NOT_GIVEN);
    yk_tensor *narrow = NULL, *out = x ? yk__max_pool2d_indexed(p->name, x, &o, &narrow) : NULL;
    *index = out ? yk_cast(yk__scope_own(narrow), YK_I64) : NULL;
    return *index ? out : NULL;
}

/* x (..., C, D, H, W) as (N, C D, H, W); p's result follows from that of its planes. */
static yk_tensor *as_planes(yk_tensor *x)
{
    int64_t n = x->ndim == 5 ? x->shape[0] : 1;
    const int64_t *s = x->shape + x->ndim - 4;
    return yk_reshape(x, 4, (int64_t[4]){n, s[0] * s[1], s[2], s[3]});
}

static yk_tensor *depth_inner(yk_tensor *planes, int64_t depth)
{
    const int64_t *s = planes->shape;
    return yk_reshape(planes, 4, (int64_t[4]){s[0], s[1] / depth, depth, s[2] * s[3]});
}

/* The result of both passes in the form of x. */
static yk_tensor *boxed(yk_tensor *out, const yk_tensor *x, const int64_t sizes[AXES])
{
    int64_t shape[5] = {x->shape[0]};
    int at = x->ndim - 3;
    shape[at - 1] = x->shape[at - 1];
    memcpy(shape + at, sizes, sizeof(int64_t) * AXES);
    return shaped(out, x->ndim, shape);
}

static yk_tensor *pooled3d(const pool *p, yk_tensor *x)
{
    bool divides = p->o.divisor_override != YK_NOT_GIVEN;
    yk_dtype dtype = (yk_dtype)x->dtype;
    yk_tensor *in = !p->max && yk__is_half(dtype) ? yk_cast(x, YK_F32) : x; /* rounded once */
    yk_tensor *out = in ? pass(p, as_planes(in), 1, 2, divides ? 1 : YK_NOT_GIVEN) : NULL;
    out = out ? pass(p, depth_inner(out, x->shape[x->ndim - 3]), 0, 1, p->o.divisor_override) : NULL;
    out = out && in != x ? yk_cast(out, dtype) : out;
    return boxed(out, x, p->sizes);
}

static yk_tensor *pooled1d(const pool *p, yk_tensor *x)
{
    yk_tensor *in = yk_unsqueeze(x, x->ndim - 1), *out = pass(p, in, 0, 1, p->o.divisor_override);
    return out ? yk_squeeze(out, x->ndim - 1) : NULL;
}

static yk_tensor *pooling(pool p, yk_tensor *x, const yk_pool_options *options)
{
    if (!yk__op_begin(p.name, 1, &x, 0) || YK__OPTIONS_TAKE(p.name, yk_pool_options, options, &p.o) ||
        !input_check(p.name, p.axes, x) || !options_check(&p, x))
        return NULL;
    YK__WITHIN_SCOPE(p.axes == 1 ? pooled1d(&p, x) : pooled3d(&p, x));
}

yk_tensor *yk_max_pool1d(yk_tensor *x, const yk_pool_options *options)
{
    YK__EVENT(YK__EVENT_OPERATION, "max_pool1d");
    return pooling((pool){.name = "max_pool1d", .axes = 1, .max = true}, x, options);
}

yk_tensor *yk_max_pool3d(yk_tensor *x, const yk_pool_options *options)
{
    YK__AUTOCAST(max_pool3d, 1, &x, yk_max_pool3d(x, options));
    YK__EVENT(YK__EVENT_OPERATION, "max_pool3d");
    return pooling((pool){.name = "max_pool3d", .axes = 3, .max = true}, x, options);
}

yk_tensor *yk_avg_pool1d(yk_tensor *x, const yk_pool_options *options)
{
    YK__EVENT(YK__EVENT_OPERATION, "avg_pool1d");
    return pooling((pool){.name = "avg_pool1d", .axes = 1}, x, options);
}

yk_tensor *yk_avg_pool3d(yk_tensor *x, const yk_pool_options *options)
{
    YK__AUTOCAST(avg_pool3d, 1, &x, yk_avg_pool3d(x, options));
    YK__EVENT(YK__EVENT_OPERATION, "avg_pool3d");
    return pooling((pool){.name = "avg_pool3d", .axes = 3}, x, options);
}

/* ---- positions of maxima ---- */

/* Both are for x with a batch. */
static yk_tensor *indexed1d(const pool *p, yk_tensor *x, yk_tensor **index)
{
    yk_tensor *out = indexed_pass(p, yk_unsqueeze(x, 2), 0, 1, index);
    *index = out ? yk_squeeze(*index, 2) : NULL;
    return out ? yk_squeeze(out, 2) : NULL;
}

/* The second pass over a box says which plane it is, the first one which element of that. */
static yk_tensor *indexed3d(const pool *p, yk_tensor *x, yk_tensor **index)
{
    const int64_t *s = x->shape;
    yk_tensor *inner, *outer, *planes = indexed_pass(p, as_planes(x), 1, 2, &inner);
    yk_tensor *out = planes ? indexed_pass(p, depth_inner(planes, s[2]), 0, 1, &outer) : NULL;
    if (!out)
        return NULL;
    int64_t area = planes->shape[2] * planes->shape[3];
    yk_tensor *flat = yk_reshape(outer, 3, (int64_t[3]){s[0], s[1], p->sizes[0] * area});
    yk_tensor *element = yk_gather_dim(yk_reshape(inner, 3, (int64_t[3]){s[0], s[1], s[2] * area}), 2, flat);
    yk_tensor *plane = yk_mul_scalar(yk_floor_divide_scalar(flat, (double)area), (double)(s[3] * s[4]));
    *index = boxed(yk_add(plane, element), x, p->sizes);
    return boxed(out, x, p->sizes);
}

static yk_tensor *indexed2d(const pool *p, yk_tensor *x, yk_tensor **index)
{
    return indexed_pass(p, x, 0, 2, index);
}

/* Maxima and *indices, both in the caller's scope, or both NULL. */
static yk_tensor *indexed(pool p, yk_tensor *x, const yk_pool_options *options, yk_tensor **indices)
{
    if (indices)
        *indices = NULL;
    p.max = true;
    if (!yk__op_begin(p.name, 1, &x, 0) || !yk__is_there(p.name, "place for the indices", indices) ||
        YK__OPTIONS_TAKE(p.name, yk_pool_options, options, &p.o) || !input_check(p.name, p.axes, x) ||
        !options_check(&p, x))
        return NULL;
    yk_scope scope = yk_scope_begin();
    uint32_t cast_types = yk__autocast_pause();
    bool batch = x->ndim == p.axes + 2;
    yk_tensor *in = batch ? x : yk_unsqueeze(x, 0), *index = NULL;
    yk_tensor *out = !in           ? NULL
                     : p.axes == 1 ? indexed1d(&p, in, &index)
                     : p.axes == 2 ? indexed2d(&p, in, &index)
                                   : indexed3d(&p, in, &index);
    if (!batch && out && index) {
        out = yk_squeeze(out, 0);
        index = yk_squeeze(index, 0);
    }
    yk__autocast_types = cast_types;
    index = out && index ? yk_scope_return(scope, yk_contiguous(index)) : NULL;
    out = index ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    *indices = out ? index : NULL;
    return out;
}

yk_tensor *yk_max_pool1d_with_indices(yk_tensor *x, const yk_pool_options *options, yk_tensor **indices)
{
    YK__EVENT(YK__EVENT_OPERATION, "max_pool1d_with_indices");
    return indexed((pool){.name = "max_pool1d_with_indices", .axes = 1}, x, options, indices);
}

yk_tensor *yk_max_pool2d_with_indices(yk_tensor *x, const yk_pool2d_options *options, yk_tensor **indices)
{
    static const char name[] = "max_pool2d_with_indices";
    yk_pool2d_options two;
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (YK__OPTIONS_TAKE(name, yk_pool2d_options, options, &two))
        return NULL;
    yk_pool_options o =
        *YK_OPTIONS(yk_pool_options, .ceil_mode = two.ceil_mode, .divisor_override = two.divisor_override);
    for (int i = 0; i < 2; i++) {
        o.kernel[i] = two.kernel[i];
        o.stride[i] = two.stride[i];
        o.padding[i] = two.padding[i];
        o.dilation[i] = two.dilation[i];
    }
    return indexed((pool){.name = name, .axes = 2}, x, &o, indices);
}

yk_tensor *yk_max_pool3d_with_indices(yk_tensor *x, const yk_pool_options *options, yk_tensor **indices)
{
    YK__AUTOCAST(max_pool3d, 1, &x, yk_max_pool3d_with_indices(x, options, indices));
    YK__EVENT(YK__EVENT_OPERATION, "max_pool3d_with_indices");
    return indexed((pool){.name = "max_pool3d_with_indices", .axes = 3}, x, options, indices);
}

/* ---- adaptive ---- */

/* Checks x and sizes[], where YK_NOT_GIVEN becomes the input's. */
static bool adaptive_check(const char *name, int axes, yk_tensor *x, int64_t *sizes)
{
    int64_t shape[5];
    if (!yk__op_begin(name, 1, &x, 0) || !input_check(name, axes, x))
        return false;
    memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)x->ndim);
    for (int i = 0; i < axes; i++) {
        int d = x->ndim - axes + i;
        sizes[i] = yk__integer_or(sizes[i], x->shape[d]);
        if (sizes[i] < 1) {
            yk__fail(YK_ERR_ARGUMENT, "%s: a result of %lld along the %s", name, (long long)sizes[i],
                     axis_name(axes, i));
            return false;
        }
        shape[d] = sizes[i];
    }
    return !yk__tensor_check(name, x->ndim, shape, NULL);
}

static yk_tensor *averaged1d(yk_tensor *x, int64_t length)
{
    yk_tensor *in = yk_unsqueeze(x, x->ndim - 1), *out = in ? yk_adaptive_avg_pool2d(in, 1, length) : NULL;
    return out ? yk_squeeze(out, x->ndim - 1) : NULL;
}

static yk_tensor *averaged3d(yk_tensor *x, const int64_t sizes[AXES])
{
    yk_dtype dtype = (yk_dtype)x->dtype;
    yk_tensor *in = yk__is_half(dtype) ? yk_cast(x, YK_F32) : x;
    yk_tensor *out = in ? yk_adaptive_avg_pool2d(as_planes(in), sizes[1], sizes[2]) : NULL;
    out = out ? yk_adaptive_avg_pool2d(depth_inner(out, x->shape[x->ndim - 3]), sizes[0], sizes[1] * sizes[2]) : NULL;
    out = out && in != x ? yk_cast(out, dtype) : out;
    return boxed(out, x, sizes);
}

yk_tensor *yk_adaptive_avg_pool1d(yk_tensor *x, int64_t length)
{
    YK__EVENT(YK__EVENT_OPERATION, "adaptive_avg_pool1d");
    if (!adaptive_check("adaptive_avg_pool1d", 1, x, &length))
        return NULL;
    YK__WITHIN_SCOPE(averaged1d(x, length));
}

yk_tensor *yk_adaptive_avg_pool3d(yk_tensor *x, int64_t depth, int64_t height, int64_t width)
{
    int64_t sizes[AXES] = {depth, height, width};
    YK__AUTOCAST(adaptive_avg_pool3d, 1, &x, yk_adaptive_avg_pool3d(x, depth, height, width));
    YK__EVENT(YK__EVENT_OPERATION, "adaptive_avg_pool3d");
    if (!adaptive_check("adaptive_avg_pool3d", 3, x, sizes))
        return NULL;
    YK__WITHIN_SCOPE(averaged3d(x, sizes));
}

/* The maxima of `count` windows along a dimension, the i-th from floor(i size / count) to ceil((i + 1) size / count):
 * the elements of all, the last one again where a window is shorter than others, and the largest of each. */
static yk_tensor *axis_maxima(yk_tensor *x, int dim, int64_t count)
{
    int64_t size = x->shape[dim], most = 0, shape[YK_MAX_DIMS];
    if (count == size)
        return x;
    int64_t *elements = yk__calloc((size_t)count, (size_t)((size - 1) / count + 2) * sizeof(*elements));
    for (int64_t i = 0; elements && i < count; i++) {
        int64_t length = ((i + 1) * size + count - 1) / count - i * size / count;
        most = length > most ? length : most;
    }
    for (int64_t i = 0; elements && i < count; i++) {
        int64_t start = i * size / count, last = ((i + 1) * size + count - 1) / count - 1;
        for (int64_t k = 0; k < most; k++)
            elements[i * most + k] = start + k < last ? start + k : last;
    }
    int64_t all = count * most;
    yk_tensor *index = elements
                           ? yk_from_data(elements, 1, &all,
                                          YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(x)))
                           : NULL;
    free(elements);
    yk_tensor *windows = index ? yk_index_select(x, dim, index) : NULL;
    for (int d = 0; d <= x->ndim; d++)
        shape[d] = d < dim ? x->shape[d] : d == dim ? count : d == dim + 1 ? most : x->shape[d - 1];
    windows = shaped(windows, x->ndim + 1, shape);
    return windows ? yk_max_dim(windows, dim + 1, false, NULL) : NULL;
}

/* Windows of one size are a pool; others go axis by axis, the last one first, so that of equal elements the first one
 * is taken. */
static yk_tensor *maxima(yk_tensor *x, int axes, const int64_t *sizes)
{
    pool p = {.axes = axes, .max = true, .o = *YK_OPTIONS(yk_pool_options)};
    bool even = true;
    for (int i = 0; i < axes; i++) {
        p.sizes[i] = sizes[i];
        p.o.kernel[i] = p.o.stride[i] = x->shape[x->ndim - axes + i] / sizes[i];
        even = even && x->shape[x->ndim - axes + i] % sizes[i] == 0;
    }
    if (even)
        return axes == 1 ? pooled1d(&p, x) : axes == 2 ? pass(&p, x, 0, 2, YK_NOT_GIVEN) : pooled3d(&p, x);
    for (int i = axes - 1; i >= 0 && x; i--)
        x = axis_maxima(x, x->ndim - axes + i, sizes[i]);
    return x;
}

yk_tensor *yk_adaptive_max_pool1d(yk_tensor *x, int64_t length)
{
    YK__EVENT(YK__EVENT_OPERATION, "adaptive_max_pool1d");
    if (!adaptive_check("adaptive_max_pool1d", 1, x, &length))
        return NULL;
    YK__WITHIN_SCOPE(maxima(x, 1, &length));
}

yk_tensor *yk_adaptive_max_pool2d(yk_tensor *x, int64_t height, int64_t width)
{
    int64_t sizes[AXES] = {height, width};
    YK__EVENT(YK__EVENT_OPERATION, "adaptive_max_pool2d");
    if (!adaptive_check("adaptive_max_pool2d", 2, x, sizes))
        return NULL;
    YK__WITHIN_SCOPE(maxima(x, 2, sizes));
}

yk_tensor *yk_adaptive_max_pool3d(yk_tensor *x, int64_t depth, int64_t height, int64_t width)
{
    int64_t sizes[AXES] = {depth, height, width};
    YK__AUTOCAST(adaptive_max_pool3d, 1, &x, yk_adaptive_max_pool3d(x, depth, height, width));
    YK__EVENT(YK__EVENT_OPERATION, "adaptive_max_pool3d");
    if (!adaptive_check("adaptive_max_pool3d", 3, x, sizes))
        return NULL;
    YK__WITHIN_SCOPE(maxima(x, 3, sizes));
}
