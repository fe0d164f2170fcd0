/*
 * views.h - strided views over exact allocations, for tests of kernels: an address sanitizer sees any step outside.
 */
#ifndef YOKE_TESTS_VIEWS_H
#define YOKE_TESTS_VIEWS_H

#include "tests/support/expect.h"
#include "tests/support/reference.h"

#include "device/convert.h"
#include "device/table.h"

enum view_layout {
    LAYOUT_C,        /* the last dimension fastest */
    LAYOUT_REVERSED, /* the first dimension fastest: dense */
    LAYOUT_SWAPPED,  /* C order of a shape whose second dimension comes last (channels last): dense */
    LAYOUT_GAPS,     /* every second element along the last dimension, a hole after every row */
    LAYOUTS,
    LAYOUT_EXPANDED = LAYOUTS, /* stride 0 in the first and third dimensions; for inputs */
    INPUT_LAYOUTS
};

REFERENCE static inline int64_t view_count(const yk__view *v)
{
    int64_t n = 1;
    for (int d = 0; d < v->ndim; d++)
        n *= v->shape[d];
    return n;
}

/* The offset in elements of element i, counted in C order. */
REFERENCE static inline int64_t view_offset(const yk__view *v, int64_t i)
{
    int64_t offset = 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        offset += i % v->shape[d] * v->stride[d];
        i /= v->shape[d];
    }
    return offset;
}

REFERENCE static inline double view_get(const yk__view *v, int64_t i)
{
    int64_t at = view_offset(v, i);
    switch (v->dtype) {
    case YK_F64: return ((double *)v->data)[at];
    case YK_F16: return (double)yk__from_f16(((uint16_t *)v->data)[at]);
    case YK_BF16: return (double)yk__from_bf16(((uint16_t *)v->data)[at]);
    case YK_I64: return (double)((int64_t *)v->data)[at];
    case YK_I32: return ((int32_t *)v->data)[at];
    case YK_U8:
    case YK_BOOL: return ((uint8_t *)v->data)[at];
    default: return (double)((float *)v->data)[at];
    }
}

REFERENCE static inline void view_set(const yk__view *v, int64_t i, double value)
{
    yk__store_scalar((char *)v->data + view_offset(v, i) * (int64_t)yk_dtype_size(v->dtype), v->dtype, value);
}

/* A view of its own memory, filled with 0x5A bytes; view_free gives it back. */
static inline yk__view view_make(yk_dtype dtype, int ndim, const int64_t *shape, int layout)
{
    yk__view v = {.dtype = dtype, .ndim = ndim};
    int order[YK_MAX_DIMS]; /* from the fastest */
    for (int d = 0; d < ndim; d++) {
        v.shape[d] = shape[d];
        order[d] = layout == LAYOUT_REVERSED ? d : ndim - 1 - d;
    }
    if (layout == LAYOUT_SWAPPED && ndim > 1) {
        order[0] = 1;
        for (int d = ndim - 1, at = 1; d >= 0; d--)
            if (d != 1)
                order[at++] = d;
    }
    int64_t step = layout == LAYOUT_GAPS ? 2 : 1, count = 1;
    for (int i = 0; i < ndim; i++) {
        int d = order[i];
        bool repeated = layout == LAYOUT_EXPANDED && (d == 0 || d == 2);
        v.stride[d] = repeated ? 0 : step;
        if (!repeated)
            step = step * (shape[d] > 0 ? shape[d] : 1) + (layout == LAYOUT_GAPS);
    }
    for (int d = 0; d < ndim; d++)
        count = shape[d] == 0 || count == 0 ? 0 : count + (shape[d] - 1) * v.stride[d];
    size_t bytes = (size_t)count * yk_dtype_size(dtype);
    v.data = malloc(bytes);
    assert_true(v.data || !bytes);
    if (bytes)
        memset(v.data, 0x5A, bytes);
    return v;
}

static inline void view_free(const yk__view *v)
{
    free(v->data);
}

/* Numbers in [low, high) that depend on (seed, i). */
REFERENCE static inline void view_random(const yk__view *v, uint32_t seed, double low, double high)
{
    for (int64_t i = 0, n = view_count(v); i < n; i++) {
        uint32_t words[4];
        yk__philox((yk__stream){seed, YK__RANDOM_TEST, 0}, (uint64_t)i, words);
        view_set(v, i, low + (high - low) * yk__unit_double(words[0], words[1]));
    }
}

/* Equal bytes in every element. */
REFERENCE static inline bool view_same_bits(const yk__view *a, const yk__view *b)
{
    size_t size = yk_dtype_size(a->dtype);
    for (int64_t i = 0, n = view_count(a); i < n; i++)
        if (memcmp((char *)a->data + view_offset(a, i) * (int64_t)size,
                   (char *)b->data + view_offset(b, i) * (int64_t)size, size))
            return false;
    return true;
}

static inline void use_threads(int threads)
{
    expect_ok(yk_set_num_threads((yk_device){0}, threads));
}

static inline const yk__backend *cpu_backend(void)
{
    const yk__backend *backend = yk__backend_of((yk_device){0});
    assert_non_null(backend);
    return backend;
}

#endif
