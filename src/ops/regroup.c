/*
 * regroup.c - a dimension as several, and channels that change places between groups. Layer: ops.
 */
#include "ops/op.h"

yk_tensor *yk_unflatten(yk_tensor *x, int dim, int n_sizes, const int64_t *sizes)
{
    static const char name[] = "unflatten";
    int64_t shape[YK_MAX_DIMS], known = 1;
    int open = -1;
    char a[200], b[200];
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &x, 0) || yk__wrap_dim(name, x, &dim))
        return NULL;
    if (n_sizes < 1 || !sizes || x->ndim == 0 || x->ndim - 1 + n_sizes > YK_MAX_DIMS) {
        yk__fail(YK_ERR_SHAPE, "%s: %d sizes for a dimension of %s, expected at least one, and at most %d dimensions",
                 name, sizes ? n_sizes : 0, yk_shape_format(x, a, sizeof(a)), YK_MAX_DIMS);
        return NULL;
    }
    bool fits = true;
    for (int i = 0; i < n_sizes; i++) {
        fits = fits && sizes[i] >= -1 && (sizes[i] != -1 || open < 0);
        open = sizes[i] == -1 ? i : open;
        fits = fits && (sizes[i] == -1 || !__builtin_mul_overflow(known, sizes[i], &known));
    }
    fits = fits && (open < 0 ? known == x->shape[dim] : known > 0 && x->shape[dim] % known == 0);
    if (!fits) {
        yk__fail(YK_ERR_SHAPE, "%s: dimension %d of %s does not divide into %s", name, dim,
                 yk_shape_format(x, a, sizeof(a)), yk__shape_text(n_sizes, sizes, b, sizeof(b)));
        return NULL;
    }
    for (int d = 0, at = 0; d < x->ndim; d++) {
        for (int i = 0; d == dim && i < n_sizes; i++)
            shape[at++] = i == open ? x->shape[dim] / known : sizes[i];
        if (d != dim)
            shape[at++] = x->shape[d];
    }
    return yk_view(x, x->ndim - 1 + n_sizes, shape);
}

static yk_tensor *channels_shuffled(yk_tensor *x, int64_t groups)
{
    yk_tensor *parts = yk_reshape(x, 4, (int64_t[4]){x->shape[0], groups, x->shape[1] / groups, -1});
    return yk_reshape(yk_contiguous(yk_transpose(parts, 1, 2)), x->ndim, x->shape);
}

yk_tensor *yk_channel_shuffle(yk_tensor *x, int64_t groups)
{
    static const char name[] = "channel_shuffle";
    char text[200];
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 1, &x, 0) || yk__check_integer(name, "groups", groups, 1, INT32_MAX))
        return NULL;
    if (x->ndim < 3 || x->shape[1] % groups) {
        yk__fail(YK_ERR_SHAPE, "%s: input has shape %s, expected (N, C, ...) whose C divides into %lld groups", name,
                 yk_shape_format(x, text, sizeof(text)), (long long)groups);
        return NULL;
    }
    if (x->numel == 0)
        return yk_clone(x);
    YK__WITHIN_SCOPE(channels_shuffled(x, groups));
}
