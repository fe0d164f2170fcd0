/*
 * taps.c - the taps of a kernel that makes planes of planes, forward and turned round for the gradient. Layer: ops.
 */
#include "ops/taps.h"

#include <stdlib.h>

bool yk__taps_apply(const yk_tensor *x)
{
    const yk__backend *backend = yk__backend_of(yk__device_of(x));
    return x->numel && !yk__listening && backend && backend->resize;
}

/* Puts one more tap of element `to` in its place. */
static void tap_put(yk__taps *t, int32_t *counts, int64_t to, int64_t from, double weight)
{
    int64_t at = counts[to]++ * t->size + to;
    ((int32_t *)t->index)[at] = (int32_t)from;
    ((double *)t->weight)[at] = weight;
}

bool yk__taps_make(yk__taps *t, int64_t from, int64_t to, int count, int64_t *const *elements, double *const *weights,
                   bool back, void **block)
{
    *t = (yk__taps){.size = back ? from : to};
    int32_t *counts = yk__calloc((size_t)t->size, sizeof(*counts));
    *block = NULL;
    if (!counts)
        return false;
    for (int k = 0; k < count; k++)
        for (int64_t i = 0; i < to; i++) {
            int64_t at = back ? elements[k][i] : i;
            t->most = ++counts[at] > t->most ? counts[at] : t->most;
        }
    size_t most = (size_t)t->most, size = (size_t)t->size;
    *block = yk__calloc(size, sizeof(int32_t) + most * (sizeof(double) + sizeof(int32_t)));
    if (*block) {
        t->weight = *block;
        t->index = (const int32_t *)(t->weight + t->size * t->most);
        t->taps = t->index + t->size * t->most;
        t->full = true;
        for (int64_t i = 0; i < t->size; i++)
            t->full = t->full && counts[i] == t->most;
        memset(counts, 0, size * sizeof(*counts));
        for (int64_t i = 0; i < to; i++)
            for (int k = 0; k < count; k++) {
                int64_t at = elements[k][i];
                tap_put(t, counts, back ? at : i, back ? i : at, count == 1 ? 1 : weights[k][i]);
            }
        memcpy((int32_t *)t->taps, counts, size * sizeof(*counts));
    }
    free(counts);
    return *block != NULL;
}

yk_tensor *yk__tapped_planes(yk_tensor *x, const yk__taps *rows, const yk__taps *columns)
{
    yk_device device = yk__device_of(x);
    const int64_t shape[3] = {x->shape[0], rows ? rows->size : x->shape[1], columns ? columns->size : x->shape[2]};
    yk_tensor *from = yk__raw_contiguous(x);
    yk_tensor *out = from ? yk__tensor_new(3, shape, NULL, (yk_dtype)x->dtype, device) : NULL;
    if (out) {
        yk__view to = yk__view_of(out), of = yk__view_of(from);
        out = yk__tensor_if_ok(out, yk__backend_of(device)->resize(device.index, &to, &of, rows, columns));
    }
    yk_tensor_release(from);
    return out;
}
