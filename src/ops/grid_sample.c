/*
 * grid_sample.c - a tensor read at the points that a grid names, and the grids of affine maps. Layer: ops.
 *
 * Where the device has a kernel it makes the result and both gradients. Where it has none, where somebody listens, and
 * for gradients of gradients, all is made of operations: x becomes rows of C numbers, one for each point. A point of
 * the result is a sum of rows, 2 or 4 along each dimension, each with a weight; the weights are computed from the grid
 * by operations, through which it gets its gradient. A row outside x has the weight 0.
 */
#include <math.h>
#include <stdlib.h>

#include "ops/cast_policy.h"

enum { AXES = 3, MOST_TAPS = 4 };

/* One row of those that make a point, along one dimension: its number and its weight, NULL for 1, of shape (points). */
typedef struct tap {
    yk_tensor *index;  /* i64; 0 where it is outside */
    yk_tensor *weight; /* NULL for 1 */
    yk_tensor *within; /* bool: false where there is no such row */
} tap;

/* ---- coordinates ---- */

/* Grid coordinates from -1 to 1 as points from 0 to size - 1: the ends are the middles of the outer elements, or their
 * outer borders. */
static yk_tensor *places_of(yk_tensor *g, int64_t size, bool align_corners)
{
    double n = (double)size;
    return align_corners ? yk_mul_scalar(yk_add_scalar(g, 1), (n - 1) / 2)
                         : yk_mul_scalar(yk_add_scalar(yk_mul_scalar(yk_add_scalar(g, 1), n), -1), 0.5);
}

/* A point outside becomes one on the border, or is reflected there until it is inside. */
static yk_tensor *bounded(yk_tensor *point, int64_t size, const yk_grid_sample_options *o)
{
    double last = (double)(size - 1), low = o->align_corners ? 0 : -0.5, span = o->align_corners ? last : (double)size;
    if (o->padding_mode == YK_GRID_PADDING_REFLECTION) {
        if (span == 0)
            return yk_mul_scalar(point, 0);
        yk_tensor *phase = yk_remainder_scalar(yk_abs(yk_sub_scalar(point, low)), 2 * span);
        /* span - |span - phase| is the way up and down again */
        point = yk_add_scalar(yk_neg(yk_abs(yk_add_scalar(yk_neg(phase), span))), span + low);
    }
    return o->padding_mode == YK_GRID_PADDING_ZEROS ? point : yk_clamp(point, 0, last);
}

/* The row of a point that is a whole number. */
static bool tap_at(tap *t, yk_tensor *point, int64_t size)
{
    if (!point)
        return false;
    yk_tensor *whole = yk_detach(point), *first = yk__recorded_number(whole, 0);
    t->within = yk_logical_and(yk_ge(whole, first), yk_le(whole, yk__recorded_number(whole, (double)(size - 1))));
    t->index = yk_cast(yk_where(t->within, whole, first), YK_I64);
    return t->index != NULL;
}

/* The weights of four elements around a position t behind the second one: Keys, 1981, with -0.75, as in PyTorch. */
static yk_tensor *cubic_weight(yk_tensor *t, int k)
{
    const double a = -0.75;
    yk_tensor *d = k < 2 ? yk_add_scalar(t, 1 - k) : yk_add_scalar(yk_neg(t), k - 1); /* the distance */
    if (k == 1 || k == 2) /* ((a + 2) d - (a + 3)) d^2 + 1 */
        return yk_add_scalar(yk_mul(yk_add_scalar(yk_mul_scalar(d, a + 2), -(a + 3)), yk_square(d)), 1);
    /* ((a d - 5 a) d + 8 a) d - 4 a */
    d = yk_mul(yk_add_scalar(yk_mul(yk_add_scalar(yk_mul_scalar(d, a), -5 * a), d), 8 * a), d);
    return yk_add_scalar(d, -4 * a);
}

/* Fills taps[] of a dimension for grid coordinates g; their number, or 0 on failure. */
static int axis_taps(tap taps[MOST_TAPS], yk_tensor *g, int64_t size, const yk_grid_sample_options *o)
{
    yk_tensor *point = places_of(g, size, o->align_corners);
    if (o->mode == YK_GRID_NEAREST) {
        point = yk_round(bounded(point, size, o));
        taps[0].weight = NULL;
        return tap_at(&taps[0], point, size) ? 1 : 0;
    }
    int count = o->mode == YK_GRID_BICUBIC ? 4 : 2;
    point = count == 4 ? point : bounded(point, size, o);
    yk_tensor *first = point ? yk_floor(yk_detach(point)) : NULL, *part = yk_sub(point, first);
    for (int k = 0; k < count; k++) {
        yk_tensor *at = yk_add_scalar(first, count == 4 ? k - 1 : k);
        if (!tap_at(&taps[k], count == 4 ? bounded(at, size, o) : at, size))
            return 0;
        taps[k].weight = count == 4 ? cubic_weight(part, k) : k ? part : yk_add_scalar(yk_neg(part), 1);
    }
    return part ? count : 0;
}

/* ---- rows ---- */

/* x (N,C,...) as rows (N points, C). */
static yk_tensor *rows_of(yk_tensor *x)
{
    int dims[5] = {0};
    for (int d = 1; d < x->ndim; d++)
        dims[d] = d == x->ndim - 1 ? 1 : d + 1;
    return yk_reshape(yk_permute(x, dims), 2, (int64_t[2]){-1, x->shape[1]});
}

/* The numbers of the first row of each input, (N,1,...) of i64 with axes + 1 dimensions: by operations on x, so that
 * what listens to operations sees that they follow its size. */
static yk_tensor *first_rows(yk_tensor *x, int axes)
{
    int64_t points = 1;
    for (int i = 0; i < axes; i++)
        points *= x->shape[2 + i];
    yk_tensor *first = yk_select(yk_detach(x), 1, 0);
    for (int i = 0; i < axes; i++)
        first = yk_slice(first, 1 + i, 0, 1, 1);
    yk_tensor *ones = yk_cast(yk_logical_not(yk_gt(first, first)), YK_I64); /* of NaN, too */
    return yk_mul_scalar(yk_add_scalar(yk_cumsum(ones, 0), -1), (double)points);
}

static yk_tensor *multiplied(yk_tensor *a, yk_tensor *b)
{
    return a && b ? yk_mul(a, b) : a ? a : b;
}

/* The sum of the rows that `taps` name, one combination of them after the other. */
static yk_tensor *summed(yk_tensor *x, const tap taps[AXES][MOST_TAPS], int count, int axes)
{
    yk_tensor *rows = rows_of(x), *base = first_rows(x, axes), *sum = NULL;
    int combinations = 1;
    for (int i = 0; i < axes; i++)
        combinations *= count;
    for (int k = 0; k < combinations && rows && base; k++) {
        yk_tensor *index = NULL, *weight = NULL, *within = NULL;
        for (int i = 0, left = k; i < axes; i++, left /= count) {
            const tap *t = &taps[i][left % count];
            index = i ? yk_add(yk_mul_scalar(index, (double)x->shape[2 + i]), t->index) : t->index;
            weight = multiplied(weight, t->weight);
            within = i ? yk_logical_and(within, t->within) : t->within;
        }
        if (weight)
            weight = yk__recorded_where(within, weight);
        else
            weight = within ? yk_cast(within, (yk_dtype)x->dtype) : NULL;
        int64_t all = weight ? weight->numel : 0;
        yk_tensor *part = yk_index_select(rows, 0, yk_reshape(yk_add(index, base), 1, &all));
        weight = yk_reshape(weight, 2, (int64_t[2]){all, 1});
        sum = sum ? yk_addcmul(sum, part, weight, 1) : yk_mul(part, weight);
        if (!sum)
            return NULL;
    }
    return sum;
}

/* The result, that has a gradient for the grid, too, of zeros, where it was only asked for the nearest element. */
static yk_tensor *with_gradient_of(yk_tensor *out, yk_tensor *grid)
{
    if (!out || !yk_grad_enabled() || !yk__wants_grad(grid) || yk__wants_grad(out))
        return out;
    return yk_add(out, yk_nan_to_num(yk_mul_scalar(yk_sum(yk_sign(grid)), 0), 0, 0, 0));
}

static yk_tensor *sampled(yk_tensor *x, yk_tensor *grid, const yk_grid_sample_options *o)
{
    int axes = x->ndim - 2, count = 0, dims[5] = {0, x->ndim - 1};
    int64_t shape[5] = {x->shape[0]};
    tap taps[AXES][MOST_TAPS];
    yk_dtype dtype = (yk_dtype)x->dtype;
    x = yk__recorded_wide(x);
    yk_tensor *wide = yk__recorded_wide(grid);
    for (int i = 0; i < axes; i++) { /* the last coordinate is that of the first dimension */
        count = axis_taps(taps[i], wide ? yk_select(wide, -1, axes - 1 - i) : NULL, x ? x->shape[2 + i] : 1, o);
        if (!count)
            return NULL;
        shape[1 + i] = grid->shape[1 + i];
        dims[2 + i] = 1 + i;
    }
    shape[1 + axes] = x->shape[1];
    yk_tensor *out = with_gradient_of(summed(x, (const tap(*)[MOST_TAPS])taps, count, axes), wide);
    out = out ? yk_permute(yk_reshape(yk_cast(out, dtype), axes + 2, shape), dims) : NULL;
    return out;
}

/* ---- by the kernel ---- */

_Static_assert((int)YK__GRID_BICUBIC == (int)YK_GRID_BICUBIC && (int)YK__GRID_NEAREST == (int)YK_GRID_NEAREST &&
                   (int)YK__GRID_PADDING_BORDER == (int)YK_GRID_PADDING_BORDER &&
                   (int)YK__GRID_PADDING_REFLECTION == (int)YK_GRID_PADDING_REFLECTION,
               "the kernel's modes are those of the operation");

typedef struct sample_context {
    yk_grid_sample_options o;
    yk__tensor_spec x;
} sample_context;

static yk__grid_sampling sampling_of(const yk_grid_sample_options *o)
{
    return (yk__grid_sampling){(yk__grid_mode)o->mode, (yk__grid_padding)o->padding_mode, o->align_corners};
}

static yk_status sample_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const sample_context *c = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *x = yk__saved(node, 0, &status), *grid = yk__saved(node, 1, &status);
    if (status)
        return status;
    yk_device device = yk__device_of(gout);
    yk__grid_sampling how = sampling_of(&c->o);
    yk_tensor *from = yk__raw_contiguous(x), *points = yk__raw_contiguous(grid), *g = yk__raw_contiguous(gout);
    yk_tensor *gx = NULL, *ggrid = NULL;
    status = from && points && g ? YK_OK : yk__error_code();
    if (!status && yk__needs_grad(node, 0)) {
        gx = yk__tensor_new(c->x.ndim, c->x.shape, NULL, (yk_dtype)gout->dtype, device);
        status = yk__status_of(gx);
    }
    if (!status && yk__needs_grad(node, 1)) {
        ggrid = yk__tensor_new(points->ndim, points->shape, NULL, (yk_dtype)gout->dtype, device);
        status = yk__status_of(ggrid);
    }
    if (!status) {
        yk__view vx = yk__view_of(from), vgrid = yk__view_of(points), vg = yk__view_of(g), vgx, vgg;
        if (gx)
            vgx = yk__view_of(gx);
        if (ggrid)
            vgg = yk__view_of(ggrid);
        status = yk__backend_of(device)->grid_sample_backward(device.index, &how, gx ? &vgx : NULL, ggrid ? &vgg : NULL,
                                                              &vg, &vx, &vgrid);
    }
    yk_tensor_release(from);
    yk_tensor_release(points);
    yk_tensor_release(g);
    grads[0] = gx;
    grads[1] = ggrid;
    return status;
}

/* The gradients of what the operation would have made of operations, of views of its inputs: what leads from one input
 * to the other is no part of them. */
static void sample_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const sample_context *c = yk__context(node);
    yk_tensor *inputs[2], *wanted[2], *got[2] = {NULL, NULL}, *gout = gouts[0];
    int count = 0;
    for (int i = 0; i < 2; i++) {
        yk_tensor *t = yk__saved_in_graph(node, i);
        inputs[i] = t ? yk_view(t, t->ndim, t->shape) : NULL;
        if (yk__needs_grad(node, i))
            wanted[count++] = inputs[i];
    }
    yk_tensor *out = inputs[0] && inputs[1] ? sampled(inputs[0], inputs[1], &c->o) : NULL;
    if (!out || !gout ||
        yk_autograd_grad(&out, 1, wanted, count, &gout, got,
                         YK_OPTIONS(yk_autograd_grad_options, .allow_unused = true, .create_graph = true)))
        return;
    for (int i = 0, k = 0; i < 2; i++) {
        if (!yk__needs_grad(node, i))
            continue;
        yk__tensor_spec spec = yk__spec_of(inputs[i]);
        grads[i] = got[k] ? got[k] : yk__recorded_zeros(&spec, yk__device_of(gout)); /* the grid's, of the nearest */
        k++;
    }
}

static bool fits_kernel(const yk_tensor *x, const yk_tensor *grid)
{
    int64_t plane = x->numel ? x->numel / x->shape[0] / x->shape[1] : 0;
    return plane && plane <= INT32_MAX && grid->numel && !yk__listening && yk__backend_of(yk__device_of(x)) &&
           yk__backend_of(yk__device_of(x))->grid_sample;
}

/* One reference. */
static yk_tensor *sample_run(yk_tensor *x, yk_tensor *grid, const yk_grid_sample_options *o)
{
    int64_t shape[5] = {x->shape[0], x->shape[1]};
    for (int d = 2; d < x->ndim; d++)
        shape[d] = grid->shape[d - 1];
    yk_device device = yk__device_of(x);
    yk__grid_sampling how = sampling_of(o);
    yk_tensor *from = yk__raw_contiguous(x), *points = yk__raw_contiguous(grid);
    yk_tensor *out = from && points ? yk__tensor_new(x->ndim, shape, NULL, (yk_dtype)x->dtype, device) : NULL;
    if (out) {
        yk__view vx = yk__view_of(from), vgrid = yk__view_of(points), vout = yk__view_of(out);
        out = yk__tensor_if_ok(out, yk__backend_of(device)->grid_sample(device.index, &how, &vout, &vx, &vgrid));
    }
    yk_tensor_release(from);
    yk_tensor_release(points);
    return out;
}

static yk_tensor *by_kernel(yk_tensor *x, yk_tensor *grid, const yk_grid_sample_options *o)
{
    static const yk__op op = {.name = "grid_sample", .backward = sample_backward, .recorded = sample_recorded};
    yk_dtype dtype = (yk_dtype)x->dtype;
    x = yk__recorded_wide(x);
    grid = yk__recorded_wide(grid);
    if (!x || !grid)
        return NULL;
    yk_tensor *inputs[2] = {x, grid};
    sample_context c = {.o = *o, .x = yk__spec_of(x)};
    yk_tensor *out = yk__record(sample_run(x, grid, o), &op, 2, inputs, 2, inputs, &c, sizeof(c));
    return out ? yk_cast(out, dtype) : NULL;
}

/* ---- the operation ---- */

static bool grid_check(const char *name, yk_tensor *x, yk_tensor *grid, const yk_grid_sample_options *o)
{
    char a[200], b[200];
    if ((unsigned)o->mode > YK_GRID_BICUBIC) {
        yk__fail(YK_ERR_ARGUMENT, "%s: mode %d is none of bilinear, nearest and bicubic", name, (int)o->mode);
        return false;
    }
    if ((unsigned)o->padding_mode > YK_GRID_PADDING_REFLECTION) {
        yk__fail(YK_ERR_ARGUMENT, "%s: padding_mode %d is none of zeros, border and reflection", name,
                 (int)o->padding_mode);
        return false;
    }
    if (yk__expect_floating(name, "input", x) || yk__expect_dtype(name, "grid", grid, (yk_dtype)x->dtype))
        return false;
    bool fits = (x->ndim == 4 || x->ndim == 5) && grid->ndim == x->ndim && grid->shape[0] == x->shape[0] &&
                grid->shape[x->ndim - 1] == x->ndim - 2;
    for (int d = 1; fits && d < x->ndim; d++)
        fits = x->shape[d] > 0;
    if (!fits) {
        yk__fail(YK_ERR_SHAPE,
                 "%s: input %s and grid %s, expected (N, C, H, W) and (N, OH, OW, 2), or (N, C, D, H, W) and (N, OD, "
                 "OH, OW, 3), with sizes of the input above 0",
                 name, yk_shape_format(x, a, sizeof(a)), yk_shape_format(grid, b, sizeof(b)));
        return false;
    }
    if (o->mode == YK_GRID_BICUBIC && x->ndim == 5) {
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s; mode bicubic takes (N, C, H, W)", name,
                 yk_shape_format(x, a, sizeof(a)));
        return false;
    }
    return true;
}

yk_tensor *yk_grid_sample(yk_tensor *x, yk_tensor *grid, const yk_grid_sample_options *options)
{
    static const char name[] = "grid_sample";
    yk_grid_sample_options o;
    yk_tensor *inputs[2] = {x, grid};
    YK__AUTOCAST(grid_sample, 2, inputs, yk_grid_sample(inputs[0], inputs[1], options));
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 2, inputs, 0) || YK__OPTIONS_TAKE(name, yk_grid_sample_options, options, &o) ||
        !grid_check(name, x, grid, &o))
        return NULL;
    YK__WITHIN_SCOPE(fits_kernel(x, grid) ? by_kernel(x, grid, &o) : sampled(x, grid, &o));
}

/* ---- affine maps ---- */

/* Places (points, axes + 1) of a grid, the first coordinate along the last dimension, and 1. */
static yk_tensor *base_grid(const yk_tensor *theta, int axes, const int64_t *sizes, bool align_corners)
{
    int64_t shape[2] = {1, axes + 1}, inner = 1;
    for (int i = 0; i < axes; i++)
        shape[0] *= sizes[i];
    double *points = yk__calloc((size_t)(shape[0] * shape[1]), sizeof(*points));
    for (int i = axes - 1; points && i >= 0; inner *= sizes[i--]) {
        double n = (double)sizes[i];
        for (int64_t p = 0; p < shape[0]; p++) {
            double at = (double)(p / inner % sizes[i]);
            double point = sizes[i] == 1 ? 0 : 2 * at / (n - 1) - 1;
            points[p * shape[1] + (axes - 1 - i)] = align_corners ? point : point * (n - 1) / n;
        }
    }
    for (int64_t p = 0; points && p < shape[0]; p++)
        points[p * shape[1] + axes] = 1;
    yk_tensor *out = points
                         ? yk_from_data(points, 2, shape,
                                        YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = yk__device_of(theta)))
                         : NULL;
    free(points);
    return out ? yk_cast(out, (yk_dtype)theta->dtype) : NULL;
}

static yk_tensor *affine(yk_tensor *theta, int axes, const int64_t *sizes, bool align_corners)
{
    int64_t shape[5] = {theta->shape[0]};
    memcpy(shape + 1, sizes, sizeof(int64_t) * (size_t)axes);
    shape[1 + axes] = axes;
    yk_tensor *wide = yk__recorded_wide(theta), *base = wide ? base_grid(wide, axes, sizes, align_corners) : NULL;
    yk_tensor *grid = base ? yk_matmul(base, yk_transpose(wide, 1, 2)) : NULL;
    return grid ? yk_reshape(yk_cast(grid, (yk_dtype)theta->dtype), axes + 2, shape) : NULL;
}

yk_tensor *yk_affine_grid(yk_tensor *theta, int ndim, const int64_t *size, bool align_corners)
{
    static const char name[] = "affine_grid";
    char text[200], sizes[200];
    YK__AUTOCAST(affine_grid, 1, &theta, yk_affine_grid(theta, ndim, size, align_corners));
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &theta, 0) || yk__expect_floating(name, "theta", theta))
        return NULL;
    if ((ndim != 4 && ndim != 5) || !size) {
        yk__fail(YK_ERR_SHAPE, "%s: a size of %d dimensions, expected (N, C, H, W) or (N, C, D, H, W)", name,
                 size ? ndim : 0);
        return NULL;
    }
    int axes = ndim - 2;
    bool fits =
        theta->ndim == 3 && theta->shape[0] == size[0] && theta->shape[1] == axes && theta->shape[2] == axes + 1;
    int64_t shape[5] = {size[0]};
    for (int i = 0; i < axes; i++) {
        shape[1 + i] = size[2 + i];
        fits = fits && size[2 + i] > 0;
    }
    shape[1 + axes] = axes;
    if (!fits || size[1] < 1) {
        yk__fail(YK_ERR_SHAPE, "%s: theta %s and size %s, expected (N, %d, %d) and sizes above 0 for all but N", name,
                 yk_shape_format(theta, text, sizeof(text)), yk__shape_text(ndim, size, sizes, sizeof(sizes)), axes,
                 axes + 1);
        return NULL;
    }
    if (yk__tensor_check(name, ndim, shape, NULL))
        return NULL;
    YK__WITHIN_SCOPE(affine(theta, axes, size + 2, align_corners));
}
