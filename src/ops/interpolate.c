/*
 * interpolate.c - a tensor in another size: nearest, linear, cubic and area; pixels that become channels and back.
 * Layer: ops.
 *
 * Interpolation goes dimension by dimension. Along one, an element of the result is a sum of one, two or four elements,
 * each with a weight. A kernel does the last two dimensions at once; its gradient is the same with the taps turned
 * round. Where the device has none, or somebody listens, there are as many selections of the whole, which the host's
 * numbers say, times vectors of weights.
 */
#include <math.h>
#include <stdlib.h>

#include "ops/taps.h"

enum { AXES = 3, MOST_TAPS = 4 };

static const char *const mode_name[] = {"nearest", "nearest-exact", "linear", "bilinear",
                                        "bicubic", "trilinear",     "area"};
/* The dimensions that a mode is for; 0: any. */
static const int mode_axes[] = {0, 0, 1, 2, 2, 3, 0};

/* The elements that each element of a result comes from, and with what weights. */
typedef struct taps {
    int count;
    int64_t *elements[MOST_TAPS];
    double *weights[MOST_TAPS];
} taps;

static void taps_release(taps *t)
{
    for (int k = 0; k < t->count; k++) {
        free(t->elements[k]);
        free(t->weights[k]);
    }
}

static bool taps_make(taps *t, int count, int64_t out)
{
    *t = (taps){.count = count};
    bool made = true;
    for (int k = 0; k < count; k++) {
        t->elements[k] = yk__calloc((size_t)out, sizeof(int64_t));
        t->weights[k] = yk__calloc((size_t)out, sizeof(double));
        made = made && t->elements[k] && t->weights[k];
    }
    return made;
}

static int64_t within(int64_t i, int64_t size)
{
    return i < 0 ? 0 : i >= size ? size - 1 : i;
}

/* The weights of four elements around a position t behind the second one: Keys, 1981, with -0.75, as in PyTorch. */
static void cubic_weights(double t, double w[MOST_TAPS])
{
    const double a = -0.75;
    const double d[MOST_TAPS] = {t + 1, t, 1 - t, 2 - t};
    for (int k = 0; k < MOST_TAPS; k++) {
        bool near = k == 1 || k == 2;
        w[k] = near ? ((a + 2) * d[k] - (a + 3)) * d[k] * d[k] + 1 : ((a * d[k] - 5 * a) * d[k] + 8 * a) * d[k] - 4 * a;
    }
}

/* Fills the taps of `out` elements made of `size`; factor: as it was given, or YK_NOT_GIVEN. */
static void taps_fill(taps *t, int64_t size, int64_t out, double factor, const yk_upsample_options *o)
{
    bool given = factor != YK_NOT_GIVEN;
    double step = given ? 1 / factor : (double)size / (double)out;
    float whole = given ? (float)(1 / factor) : (float)size / (float)out; /* PyTorch's, for the nearest */
    if (o->align_corners)
        step = out > 1 ? (double)(size - 1) / (double)(out - 1) : 0;
    for (int64_t i = 0; i < out; i++) {
        if (o->mode <= YK_INTERPOLATE_NEAREST_EXACT) {
            float at = ((float)i + (o->mode == YK_INTERPOLATE_NEAREST_EXACT ? 0.5f : 0)) * whole;
            t->elements[0][i] = within((int64_t)floorf(at), size);
            continue;
        }
        double at = o->align_corners ? step * (double)i : step * ((double)i + 0.5) - 0.5, w[MOST_TAPS];
        if (o->mode != YK_INTERPOLATE_BICUBIC) /* of one size, PyTorch looks at no factor */
            at = out == size ? (double)i : at < 0 ? 0 : at;
        int64_t first = (int64_t)floor(at);
        if (o->mode == YK_INTERPOLATE_BICUBIC) {
            cubic_weights(at - (double)first, w);
            for (int k = 0; k < MOST_TAPS; k++) {
                t->elements[k][i] = within(first - 1 + k, size);
                t->weights[k][i] = w[k];
            }
            continue;
        }
        first = within(first, size);
        double part = at - (double)first > 1 ? 1 : at - (double)first;
        t->elements[0][i] = first;
        t->elements[1][i] = within(first + 1, size);
        t->weights[0][i] = 1 - part;
        t->weights[1][i] = part;
    }
}

/* x with `out` elements along a dimension, by the taps. */
static yk_tensor *tapped(yk_tensor *x, int dim, int64_t out, const taps *t)
{
    yk_tensor *sum = NULL;
    int64_t shape[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim - dim; d++)
        shape[d] = d ? 1 : out;
    for (int k = 0; k < t->count; k++) {
        yk_tensor *index = yk_from_data(t->elements[k], 1, &out,
                                        YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk__device_of(x)));
        yk_tensor *part = index ? yk_index_select(x, dim, index) : NULL;
        if (!part || t->count == 1)
            return part;
        yk_tensor *weights = yk_from_data(t->weights[k], x->ndim - dim, shape,
                                          YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = yk__device_of(x)));
        weights = weights ? yk_cast(weights, (yk_dtype)x->dtype) : NULL;
        if (!weights || (k && !sum))
            return NULL;
        sum = k ? yk_addcmul(sum, part, weights, 1) : yk_mul(part, weights);
    }
    return sum;
}

/* ---- by the kernel ---- */

/* A dimension that is resized from one size to another; 0 to 0: none. */
typedef struct axis {
    int64_t from, to;
    double factor; /* as taps_fill takes it */
} axis;

/* Rows and columns of planes (P,H,W); back: the gradient, from planes of the result's size. */
typedef struct resize_context {
    yk_upsample_options o;
    axis rows, columns;
    bool back;
} resize_context;

static int taps_of(yk_interpolation mode)
{
    return mode <= YK_INTERPOLATE_NEAREST_EXACT ? 1 : mode == YK_INTERPOLATE_BICUBIC ? 4 : 2;
}

/* The taps of an axis, or those of its gradient; false on failure. */
static bool kernel_taps(yk__taps *t, const axis *a, const resize_context *c, void **block)
{
    taps list;
    bool made = taps_make(&list, taps_of(c->o.mode), a->to);
    if (made) {
        taps_fill(&list, a->from, a->to, a->factor, &c->o);
        made = yk__taps_make(t, a->from, a->to, list.count, list.elements, list.weights, c->back, block);
    }
    taps_release(&list);
    return made;
}

/* Planes x (P,H,W) in their other size, one reference. */
static yk_tensor *resize_run(yk_tensor *x, const resize_context *c)
{
    const axis *axes[2] = {&c->rows, &c->columns};
    yk__taps t[2];
    void *blocks[2] = {NULL, NULL};
    bool made = true;
    for (int i = 0; i < 2 && made; i++)
        made = !axes[i]->to || kernel_taps(&t[i], axes[i], c, &blocks[i]);
    yk_tensor *out = made ? yk__tapped_planes(x, blocks[0] ? &t[0] : NULL, blocks[1] ? &t[1] : NULL) : NULL;
    free(blocks[0]);
    free(blocks[1]);
    return out;
}

static yk_tensor *resized(yk_tensor *x, const resize_context *c);

static yk_status resize_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    resize_context c = *(const resize_context *)yk__context(node);
    c.back = !c.back;
    grads[0] = resize_run(gout, &c);
    return yk__status_of(grads[0]);
}

static void resize_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    resize_context c = *(const resize_context *)yk__context(node);
    c.back = !c.back;
    grads[0] = resized(gouts[0], &c);
}

static yk_tensor *resized(yk_tensor *x, const resize_context *c)
{
    static const yk__op op = {.name = "interpolate", .backward = resize_backward, .recorded = resize_recorded};
    return x ? yk__record(resize_run(x, c), &op, 1, &x, 0, NULL, c, sizeof(*c)) : NULL;
}

static bool fits_kernel(const yk_tensor *x, const int64_t sizes[AXES], const yk_upsample_options *o)
{
    bool fits = o->mode != YK_INTERPOLATE_AREA && yk__taps_apply(x);
    for (int i = 0; i < x->ndim - 2 && fits; i++)
        fits = sizes[i] <= 1 << 24 && x->shape[2 + i] <= 1 << 24;
    return fits;
}

static yk_tensor *by_kernel(yk_tensor *x, const int64_t sizes[AXES], const yk_upsample_options *o)
{
    const int axes = x->ndim - 2, last = axes - 1;
    const int64_t *from = x->shape + 2;
    int64_t planes = x->shape[0] * x->shape[1], shape[2 + AXES] = {x->shape[0], x->shape[1]};
    yk_tensor *out = yk__recorded_wide(x);
    if (axes == 3) {
        resize_context deep = {.o = *o, .rows = {from[0], sizes[0], o->scale_factor[0]}};
        out = resized(yk_reshape(out, 3, (int64_t[3]){planes, from[0], from[1] * from[2]}), &deep);
        planes *= sizes[0];
    }
    resize_context c = {.o = *o, .columns = {from[last], sizes[last], o->scale_factor[last]}};
    if (axes > 1)
        c.rows = (axis){from[last - 1], sizes[last - 1], o->scale_factor[last - 1]};
    out = resized(yk_reshape(out, 3, (int64_t[3]){planes, axes > 1 ? from[last - 1] : 1, from[last]}), &c);
    memcpy(shape + 2, sizes, sizeof(shape[0]) * (size_t)axes);
    out = yk_reshape(out, x->ndim, shape);
    return out ? yk_cast(out, (yk_dtype)x->dtype) : NULL;
}

static yk_tensor *interpolated(yk_tensor *x, const int64_t sizes[AXES], const yk_upsample_options *o)
{
    int axes = x->ndim - 2, count = taps_of(o->mode);
    if (fits_kernel(x, sizes, o))
        return by_kernel(x, sizes, o);
    if (o->mode == YK_INTERPOLATE_AREA)
        return axes == 1   ? yk_adaptive_avg_pool1d(x, sizes[0])
               : axes == 2 ? yk_adaptive_avg_pool2d(x, sizes[0], sizes[1])
                           : yk_adaptive_avg_pool3d(x, sizes[0], sizes[1], sizes[2]);
    yk_tensor *out = count > 1 && yk__is_half((yk_dtype)x->dtype) ? yk_cast(x, YK_F32) : x;
    for (int i = 0; i < axes && out; i++) {
        taps t;
        if (taps_make(&t, count, sizes[i])) {
            taps_fill(&t, x->shape[2 + i], sizes[i], o->scale_factor[i], o);
            out = tapped(out, 2 + i, sizes[i], &t);
        } else {
            out = NULL;
        }
        taps_release(&t);
    }
    return out ? yk_cast(out, (yk_dtype)x->dtype) : NULL;
}

/* The sizes of the result, from the options; false and an error where those and x do not go together. */
static bool sizes_check(const yk_tensor *x, yk_upsample_options *o, int64_t sizes[AXES])
{
    static const char name[] = "interpolate";
    char text[200];
    int axes = x->ndim - 2;
    if ((unsigned)o->mode > YK_INTERPOLATE_AREA) {
        yk__fail(YK_ERR_ARGUMENT,
                 "%s: mode %d is none of nearest, nearest-exact, linear, bilinear, bicubic, trilinear "
                 "and area",
                 name, (int)o->mode);
        return false;
    }
    int wants = mode_axes[o->mode];
    if (axes < 1 || axes > AXES || (wants && axes != wants)) {
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s; mode %s takes (N, C, %s", name,
                 yk_shape_format(x, text, sizeof(text)), mode_name[o->mode],
                 wants == 1   ? "L)"
                 : wants == 2 ? "H, W)"
                 : wants == 3 ? "D, H, W)"
                              : "...) of 3 to 5 dimensions");
        return false;
    }
    if (o->align_corners && (!wants || o->mode == YK_INTERPOLATE_AREA)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: align_corners is not for mode %s", name, mode_name[o->mode]);
        return false;
    }
    bool sized = o->size[0] != YK_NOT_GIVEN;
    if (sized == (o->scale_factor[0] != YK_NOT_GIVEN)) {
        yk__fail(YK_ERR_ARGUMENT,
                 sized ? "%s: size and scale_factor are both given, expected one of them"
                       : "%s: size and scale_factor are not given, expected one of them",
                 name);
        return false;
    }
    for (int i = 0; i < axes; i++) {
        double factor = o->scale_factor[i], size = sized ? (double)o->size[i] : factor * (double)x->shape[2 + i];
        if (x->shape[2 + i] < 1) {
            yk__fail(YK_ERR_SHAPE, "%s: input %s has nothing to interpolate", name,
                     yk_shape_format(x, text, sizeof(text)));
            return false;
        }
        if (sized ? o->size[i] < 1 : !(factor > 0 && floor(size) >= 1 && size < (double)INT32_MAX)) {
            if (sized)
                yk__fail(YK_ERR_ARGUMENT, "%s: size is %lld, expected at least 1 for each dimension", name,
                         (long long)o->size[i]);
            else
                yk__fail(YK_ERR_ARGUMENT, "%s: scale_factor is %g, expected above 0, and a result of at least 1", name,
                         factor);
            return false;
        }
        sizes[i] = sized ? o->size[i] : (int64_t)floor(size);
        if (sized)
            o->scale_factor[i] = YK_NOT_GIVEN;
    }
    int64_t shape[2 + AXES] = {x->shape[0], x->shape[1]};
    memcpy(shape + 2, sizes, sizeof(int64_t) * (size_t)axes);
    return !yk__tensor_check(name, x->ndim, shape, NULL);
}

yk_tensor *yk_interpolate(yk_tensor *x, const yk_upsample_options *options)
{
    yk_upsample_options o;
    int64_t sizes[AXES];
    YK__EVENT(YK__EVENT_OPERATION, "interpolate");
    if (!yk__op_begin("interpolate", 1, &x, 0) || YK__OPTIONS_TAKE("interpolate", yk_upsample_options, options, &o) ||
        yk__expect_floating("interpolate", "input", x) || !sizes_check(x, &o, sizes))
        return NULL;
    YK__WITHIN_SCOPE(interpolated(x, sizes, &o));
}

/* ---- pixels and channels ---- */

/* Reshapes x (..., C, H, W) to (N, ...) by `apart`, whose N is set here, permutes that and merges it to (..., c, h, w).
 */
static yk_tensor *regrouped(yk_tensor *x, int64_t apart[6], const int order[6], int64_t c, int64_t h, int64_t w)
{
    int64_t shape[YK_MAX_DIMS];
    memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)x->ndim);
    apart[0] = 1;
    for (int d = 0; d < x->ndim - 3; d++)
        apart[0] *= x->shape[d];
    shape[x->ndim - 3] = c;
    shape[x->ndim - 2] = h;
    shape[x->ndim - 1] = w;
    yk_tensor *out = yk_reshape(x, 6, apart);
    out = out ? yk_permute(out, order) : NULL;
    return out ? yk_reshape(out, x->ndim, shape) : NULL;
}

/* x (..., C r r, H, W) as (..., C, H r, W r). */
static yk_tensor *channels_to_pixels(yk_tensor *x, int64_t r)
{
    const int64_t *s = x->shape + x->ndim - 3;
    int64_t c = s[0] / (r * r);
    return regrouped(x, (int64_t[6]){1, c, r, r, s[1], s[2]}, (int[6]){0, 1, 4, 2, 5, 3}, c, s[1] * r, s[2] * r);
}

/* x (..., C, H r, W r) as (..., C r r, H, W). */
static yk_tensor *pixels_to_channels(yk_tensor *x, int64_t r)
{
    const int64_t *s = x->shape + x->ndim - 3;
    int64_t h = s[1] / r, w = s[2] / r;
    return regrouped(x, (int64_t[6]){1, s[0], h, r, w, r}, (int[6]){0, 1, 3, 5, 2, 4}, s[0] * r * r, h, w);
}

static bool factor_check(const char *name, yk_tensor *x, const char *factor, int64_t r)
{
    char text[200];
    if (!yk__op_begin(name, 1, &x, 0) || yk__check_integer(name, factor, r, 1, INT32_MAX))
        return false;
    if (x->ndim < 3) {
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (..., C, H, W)", name,
                 yk_shape_format(x, text, sizeof(text)));
        return false;
    }
    return true;
}

yk_tensor *yk_pixel_shuffle(yk_tensor *x, int64_t upscale_factor)
{
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, "pixel_shuffle");
    if (!factor_check("pixel_shuffle", x, "upscale_factor", upscale_factor))
        return NULL;
    if (x->shape[x->ndim - 3] % (upscale_factor * upscale_factor)) {
        yk__fail(YK_ERR_SHAPE, "pixel_shuffle: the %lld channels of input %s do not divide into %lld squared",
                 (long long)x->shape[x->ndim - 3], yk_shape_format(x, text, sizeof(text)), (long long)upscale_factor);
        return NULL;
    }
    YK__WITHIN_SCOPE(channels_to_pixels(x, upscale_factor));
}

yk_tensor *yk_pixel_unshuffle(yk_tensor *x, int64_t downscale_factor)
{
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, "pixel_unshuffle");
    if (!factor_check("pixel_unshuffle", x, "downscale_factor", downscale_factor))
        return NULL;
    if (x->shape[x->ndim - 2] % downscale_factor || x->shape[x->ndim - 1] % downscale_factor) {
        yk__fail(YK_ERR_SHAPE, "pixel_unshuffle: height and width of input %s do not divide by %lld",
                 yk_shape_format(x, text, sizeof(text)), (long long)downscale_factor);
        return NULL;
    }
    YK__WITHIN_SCOPE(pixels_to_channels(x, downscale_factor));
}
