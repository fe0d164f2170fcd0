/*
 * fold.c - the windows of images as columns, and columns added up to images. Layer: ops.
 *
 * Columns are a permuted copy of the view that shows the windows (windows.c); folding is the transpose of that, so each
 * is the other one's gradient.
 */
#include "ops/windows.h"

/* The windows of an image, and their numbers along height and width. */
typedef struct columns {
    yk_fold_options o;
    yk__windows w;
    int64_t count[2];
} columns;

/* Completes *c for images of height x width; false and an error where the windows do not fit in them. */
static bool columns_fill(const char *name, columns *c, int ndim, int64_t height, int64_t width)
{
    static const char *const axis[2] = {"height", "width"};
    const int64_t size[2] = {height, width};
    c->w = (yk__windows){.first = ndim - 2, .axes = 2};
    for (int i = 0; i < 2; i++) {
        int64_t kernel = c->o.kernel[i], stride = c->o.stride[i], padding = c->o.padding[i];
        int64_t dilation = c->o.dilation[i], reach, padded;
        if (kernel == YK_NOT_GIVEN) {
            yk__fail(YK_ERR_ARGUMENT, "%s: the kernel was not given, and has no default", name);
            return false;
        }
        if (kernel < 1 || stride < 1 || padding < 0 || dilation < 1 ||
            !yk__window(size[i], kernel, stride, padding, dilation, &reach, &padded)) {
            yk__fail(YK_ERR_ARGUMENT,
                     "%s: kernel %lld, stride %lld, padding %lld, dilation %lld of the %s is not possible", name,
                     (long long)kernel, (long long)stride, (long long)padding, (long long)dilation, axis[i]);
            return false;
        }
        if (reach > padded) {
            yk__fail(YK_ERR_SHAPE, "%s: the kernel covers %lld of the %s, which with padding %lld has %lld", name,
                     (long long)reach, axis[i], (long long)padding, (long long)padded);
            return false;
        }
        c->w.kernel[i] = kernel;
        c->w.stride[i] = stride;
        c->w.dilation[i] = dilation;
        c->count[i] = (padded - reach) / stride + 1;
    }
    return true;
}

/* The dimensions (batch, C, KH, KW, OH, OW), without the batch where there is none, as (batch, C, OH, OW, KH, KW), or
 * back: the same exchange. */
static yk_tensor *exchanged(yk_tensor *x)
{
    return !x ? NULL : yk_permute(x, x->ndim == 6 ? (int[6]){0, 1, 4, 5, 2, 3} : (int[5]){0, 3, 4, 1, 2});
}

static yk_tensor *unfolded(yk_tensor *x, const columns *c)
{
    int64_t ph = c->o.padding[0], pw = c->o.padding[1];
    int64_t shape[3] = {x->shape[0], x->shape[x->ndim - 3] * c->w.kernel[0] * c->w.kernel[1],
                        c->count[0] * c->count[1]};
    int batch = x->ndim == 4;
    yk_tensor *in = ph || pw ? yk_pad(x, (int64_t[4]){pw, pw, ph, ph}, 4, YK_PAD_CONSTANT, 0) : x;
    yk_tensor *out = yk_contiguous(exchanged(yk__unfold_windows(in, &c->w)));
    bool same = out && out->storage == x->storage; /* windows of one element, which do not overlap */
    out = out ? yk_reshape(same ? yk_clone(out) : out, 2 + batch, shape + 1 - batch) : NULL;
    return out;
}

yk_tensor *yk_unfold(yk_tensor *x, const yk_fold_options *options)
{
    static const char name[] = "unfold";
    columns c;
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &x, 0) || YK__OPTIONS_TAKE(name, yk_fold_options, options, &c.o))
        return NULL;
    if ((x->ndim != 3 && x->ndim != 4) || !x->shape[x->ndim - 3] || !x->shape[x->ndim - 2] || !x->shape[x->ndim - 1]) {
        yk__fail(YK_ERR_SHAPE,
                 "%s: input has shape %s, expected (N, C, H, W) or (C, H, W) with sizes above 0 for all "
                 "but N",
                 name, yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    if (yk__expect_floating(name, "input", x) ||
        !columns_fill(name, &c, x->ndim, x->shape[x->ndim - 2], x->shape[x->ndim - 1]))
        return NULL;
    YK__WITHIN_SCOPE(unfolded(x, &c));
}

static yk_tensor *folded(yk_tensor *x, int64_t height, int64_t width, const columns *c)
{
    int64_t ph = c->o.padding[0], pw = c->o.padding[1], sizes[2] = {height + 2 * ph, width + 2 * pw};
    int batch = x->ndim == 3;
    int64_t shape[6] = {x->shape[0],    x->shape[batch] / (c->w.kernel[0] * c->w.kernel[1]),
                        c->w.kernel[0], c->w.kernel[1],
                        c->count[0],    c->count[1]};
    yk_tensor *windows = exchanged(yk_reshape(x, 5 + batch, shape + 1 - batch));
    yk_tensor *out = yk__fold_windows(windows, &c->w, sizes);
    if (ph || pw)
        out = out ? yk_narrow(yk_narrow(out, -2, ph, height), -1, pw, width) : NULL;
    return out ? yk_contiguous(out) : NULL;
}

yk_tensor *yk_fold(yk_tensor *x, int64_t height, int64_t width, const yk_fold_options *options)
{
    static const char name[] = "fold";
    columns c;
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &x, 0) || YK__OPTIONS_TAKE(name, yk_fold_options, options, &c.o))
        return NULL;
    if (yk__check_integer(name, "height", height, 1, INT32_MAX) ||
        yk__check_integer(name, "width", width, 1, INT32_MAX))
        return NULL;
    if (x->ndim != 2 && x->ndim != 3) {
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (N, C KH KW, windows) or (C KH KW, windows)", name,
                 yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    if (yk__expect_floating(name, "input", x) || !columns_fill(name, &c, x->ndim + 1, height, width))
        return NULL;
    int64_t rows = x->shape[x->ndim - 2], element = c.w.kernel[0] * c.w.kernel[1];
    if (!rows || rows % element || x->shape[x->ndim - 1] != c.count[0] * c.count[1]) {
        yk__fail(YK_ERR_SHAPE,
                 "%s: input has shape %s, expected (..., C %lld, %lld) for %lld x %lld windows of %lld x "
                 "%lld",
                 name, yk_shape_format(x, text, sizeof(text)), (long long)element, (long long)(c.count[0] * c.count[1]),
                 (long long)c.count[0], (long long)c.count[1], (long long)c.w.kernel[0], (long long)c.w.kernel[1]);
        return NULL;
    }
    YK__WITHIN_SCOPE(folded(x, height, width, &c));
}
