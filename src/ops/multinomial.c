/*
 * multinomial.c - draws from rows of weights. Layer: ops.
 *
 * With replacement a uniform number is looked for in the cumulative sums. Without, the n largest of w / e are taken,
 * where the e are exponentially distributed: the order of these is that of drawing one after the other (Efraimidis,
 * Spirakis).
 */
#include <math.h>

#include "ops/op.h"

static bool usable(yk_tensor *x, int64_t samples, bool replacement)
{
    yk_tensor *zero =
        yk_scalar(0, YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)x->dtype, .device = yk__device_of(x)));
    yk_tensor *fine = yk_all(yk_logical_and(yk_is_finite(x), yk_ge(x, zero)));
    yk_tensor *some = yk_sum_dims(yk_gt(x, zero), (int[]){-1}, 1, false), *least = some ? yk_min(some) : NULL;
    double good;
    int64_t room;
    if (!fine || !least || yk__item("multinomial", fine, &good) || yk__item_i64("multinomial", least, &room))
        return false;
    if (good == 0) {
        yk__fail(YK_ERR_ARGUMENT, "multinomial: a weight is negative, infinite or NaN");
        return false;
    }
    if (room < 1 || (!replacement && room < samples)) {
        yk__fail(YK_ERR_ARGUMENT, "multinomial: %lld draws %s replacement from a row with %lld weights above 0",
                 (long long)samples, replacement ? "with" : "without", (long long)room);
        return false;
    }
    return true;
}

/* The count of a row's sums that are at most each number, for all rows, in the host's memory. The sums are ordered, so
 * a binary search finds it. */
static yk_tensor *search(const yk_tensor *sums, const yk_tensor *at)
{
    yk_tensor *out = yk__scope_own(yk__tensor_new(at->ndim, at->shape, NULL, YK_I64, yk__device_of(at)));
    int64_t columns = sums->shape[sums->ndim - 1], samples = at->shape[at->ndim - 1];
    for (int64_t i = 0; out && i < at->numel; i++) {
        const double *row = (const double *)sums->data + i / samples * columns, value = ((const double *)at->data)[i];
        int64_t low = 0, high = columns;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (row[middle] <= value)
                low = middle + 1;
            else
                high = middle;
        }
        ((int64_t *)out->data)[i] = low;
    }
    return out;
}

static yk_tensor *draw(yk_tensor *x, int64_t samples, bool replacement)
{
    if (!usable(x, samples, replacement))
        return NULL;
    int64_t shape[YK_MAX_DIMS];
    memcpy(shape, x->shape, sizeof(shape[0]) * (size_t)x->ndim);
    yk_tensor_options wide = *YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = yk__device_of(x));
    yk_tensor *weights = yk_cast(x, YK_F64), *index = NULL;
    if (!replacement) {
        yk_tensor *noise = yk_neg(yk_log1p(yk_neg(yk_rand(x->ndim, shape, &wide)))); /* u in [0, 1): no log of 0 */
        yk_tensor *keys = yk_div(weights, yk_add_scalar(noise, 1e-300));
        return yk_topk(keys, samples, -1, true, &index) ? index : NULL;
    }
    if (x->dtype == YK_F64) /* sums of the others are far from the ends of f64's range */
        weights = yk_div(weights, yk_max_dim(weights, -1, true, NULL));
    yk_tensor *sums = yk_cumsum(weights, -1), *total = sums ? yk_narrow(sums, -1, x->shape[x->ndim - 1] - 1, 1) : NULL;
    shape[x->ndim - 1] = samples;
    yk_tensor *at = yk_mul(yk_rand(x->ndim, shape, &wide), total);
    if (at && yk__backend_for(at)->host_memory && yk_is_contiguous(sums) && yk_is_contiguous(at))
        return search(sums, at);
    return at ? yk_sum_dims(yk_le(yk_unsqueeze(sums, -2), yk_unsqueeze(at, -1)), (int[]){-1}, 1, false) : NULL;
}

yk_tensor *yk_multinomial(yk_tensor *x, int64_t samples, bool replacement)
{
    YK__EVENT(YK__EVENT_OPERATION, "multinomial");
    if (!yk__op_begin("multinomial", 1, &x, 0) || yk__expect_floating("multinomial", "weights", x))
        return NULL;
    char text[200];
    if (x->ndim < 1 || x->ndim > 2 || x->numel == 0 || samples < 1) {
        yk__fail(YK_ERR_SHAPE, "multinomial: %lld draws from %s, expected at least 1 from (C,) or (N, C)",
                 (long long)samples, yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    if (yk__tensor_check("multinomial", 1, &samples, NULL))
        return NULL;
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_tensor *out = draw(x, samples, replacement);
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    yk_no_grad_end(before);
    return out;
}
