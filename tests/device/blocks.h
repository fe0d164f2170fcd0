/*
 * blocks.h - views for the kernel tests of this folder: over memory of their own in several layouts, read and written
 * as doubles in C order.
 */
#ifndef YOKE_TESTS_DEVICE_BLOCKS_H
#define YOKE_TESTS_DEVICE_BLOCKS_H

#include "device/cpu/cpu.h"
#include "tests/device/isa_tables.h"
#include "tests/support/expect.h"

typedef enum layout {
    C_ORDER,       /* NCHW */
    CHANNELS_LAST, /* N, then the other dimensions, channels innermost */
    BATCH_INNER,   /* the other dimensions, N, channels innermost: [H][W][N][C] */
    GAPS,          /* C order with unused elements between all of them */
    LAYOUTS
} layout;
static const char *const layout_names[LAYOUTS] = {"C order", "channels last", "HWNC", "gaps"};

/* A view and the memory it owns. A NULL view stands for an argument that is left out. */
typedef struct block {
    yk__view view;
    void *memory;
    int64_t count;
} block;

static inline int64_t block_offset(const yk__view *v, int64_t flat)
{
    int64_t at = 0;
    for (int d = v->ndim - 1; d >= 0; d--) {
        at += flat % v->shape[d] * v->stride[d];
        flat /= v->shape[d];
    }
    return at;
}

static inline double block_get(const block *b, int64_t flat)
{
    int64_t at = block_offset(&b->view, flat);
    if (b->view.dtype == YK_F32)
        return (double)((float *)b->view.data)[at];
    if (b->view.dtype == YK_I32)
        return ((int32_t *)b->view.data)[at];
    return ((double *)b->view.data)[at];
}

static inline void block_set(block *b, int64_t flat, double value)
{
    int64_t at = block_offset(&b->view, flat);
    if (b->view.dtype == YK_F32)
        ((float *)b->view.data)[at] = (float)value;
    else if (b->view.dtype == YK_I32)
        ((int32_t *)b->view.data)[at] = (int32_t)value;
    else
        ((double *)b->view.data)[at] = value;
}

/* Memory of exactly the size that the view spans, so that the sanitizers see every step beyond it. */
static inline block block_make(yk_dtype dtype, layout order, int ndim, const int64_t *shape)
{
    block b = {.view = {.dtype = dtype, .ndim = ndim}, .count = 1};
    int sequence[YK_MAX_DIMS], n = 0; /* dimensions from the outermost to the innermost */
    if (order == BATCH_INNER || order == CHANNELS_LAST) {
        if (order == CHANNELS_LAST)
            sequence[n++] = 0;
        for (int d = 2; d < ndim; d++)
            sequence[n++] = d;
        if (order == BATCH_INNER)
            sequence[n++] = 0;
        if (ndim > 1)
            sequence[n++] = 1;
    } else {
        for (int d = 0; d < ndim; d++)
            sequence[n++] = d;
    }
    int64_t step = order == GAPS ? 3 : 1, span = 1;
    for (int i = n - 1; i >= 0; i--) {
        int d = sequence[i];
        b.view.shape[d] = shape[d];
        b.view.stride[d] = step;
        b.count *= shape[d];
        span += shape[d] ? (shape[d] - 1) * step : 0;
        step *= shape[d] ? shape[d] : 1;
        step += order == GAPS ? 2 : 0;
    }
    b.memory = malloc((size_t)span * yk_dtype_size(dtype));
    assert_non_null(b.memory);
    memset(b.memory, 0x7B, (size_t)span * yk_dtype_size(dtype));
    b.view.data = b.memory;
    return b;
}

static inline void block_free(block *b)
{
    free(b->memory);
    *b = (block){0};
}

static inline const yk__view *block_view(const block *b)
{
    return b->memory ? &b->view : NULL;
}

static inline double test_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53 * 2 - 1;
}

static inline void block_randomize(block *b, uint64_t seed, double scale, double offset)
{
    uint64_t state = seed * 977 + 11;
    for (int64_t i = 0; i < b->count; i++)
        block_set(b, i, test_random(&state) * scale + offset);
}

static inline double *block_read(const block *b)
{
    double *values = malloc((size_t)(b->count + 1) * sizeof(double));
    assert_non_null(values);
    for (int64_t i = 0; i < b->count; i++)
        values[i] = block_get(b, i);
    return values;
}

/* The norm of the difference over the norm of what is expected stays within the bound (absolute where that is 0). */
static inline void block_expect(const block *got, const double *expected, double bound, const char *what)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < got->count; i++) {
        double e = block_get(got, i) - expected[i];
        difference += e * e;
        norm += expected[i] * expected[i];
    }
    double error = sqrt(difference) / (norm > 0 ? sqrt(norm) : 1);
    if (!(error <= bound))
        fail_msg("%s: relative error %.3g is above %.3g", what, error, bound);
}

static inline void block_expect_same_bits(const block *a, const block *b, const char *what)
{
    for (int64_t i = 0; i < a->count; i++) {
        double x = block_get(a, i), y = block_get(b, i);
        if (memcmp(&x, &y, sizeof(x)) != 0)
            fail_msg("%s: element %lld is %.17g and %.17g", what, (long long)i, x, y);
    }
}

#endif
