/*
 * resize.c - planes in another size: each element a weighted sum of a few rows and columns. Layer: device/cpu.
 *
 * Columns are the slow direction, as their taps are scattered along a row. Where the result has as many rows as the
 * input, or more, each row of the input is resized once, into one of a few rows that are kept, and those are added up,
 * in vectors. Where it has fewer, rows are added up first.
 *
 * Invariant: a row of the result is computed in one order, by one thread, so nothing depends on the number of threads.
 */
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/cpu/iterate.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

enum { ELEMENTS = 1 << 14 /* of a result, in a piece of work, at least */ };

/* One tap of neighbouring elements that a vector or two of a row hold: lane[] of those at `first`. The mask has all
 * bits of a lane where the tap is there. */
typedef struct near_taps {
    int32_t first;
    int32_t lane[YK__VECTOR_BYTES / sizeof(float)], mask[YK__VECTOR_BYTES / sizeof(float)];
} near_taps;

/* The longest run of a result's columns that are neighbours in the input, too, each by one tap of weight 1: copied. */
typedef struct run {
    int64_t at, from, count;
} run;

typedef struct resizing {
    const yk__view *out, *x;
    const yk__taps *rows, *columns;
    const void *row_weight, *column_weight; /* in the dtype */
    const near_taps *near;                  /* (size / lanes, most), or NULL */
    int vectors;                            /* 1 or 2 hold the lanes */
    char *scratch;                          /* of each thread */
    int64_t scratch_bytes, kept;            /* rows that are kept, a power of two */
    bool columns_first;
    run run;
} resizing;

#define RESIZE(T, S)                                                                                                   \
    static void plain_row_##S(T *out, const T *row, const yk__taps *t, const T *weight, int64_t from, int64_t to)      \
    {                                                                                                                  \
        const int64_t size = t->size;                                                                                  \
        if (t->full && t->most == 1) {                                                                                 \
            for (int64_t i = from; i < to; i++)                                                                        \
                out[i] = weight[i] * row[t->index[i]];                                                                 \
        } else if (t->full && t->most == 2) {                                                                          \
            const int32_t *second = t->index + size;                                                                   \
            for (int64_t i = from; i < to; i++)                                                                        \
                out[i] = weight[i] * row[t->index[i]] + weight[size + i] * row[second[i]];                             \
        } else {                                                                                                       \
            for (int64_t i = from; i < to; i++) {                                                                      \
                T sum = 0;                                                                                             \
                for (int64_t k = 0; k < t->taps[i]; k++)                                                               \
                    sum += weight[k * size + i] * row[t->index[k * size + i]];                                         \
                out[i] = sum;                                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    /* out = the sum of rows, each times its weight. */                                                                \
    static void add_rows_##S(T *restrict out, const T *const *rows, const T *weights, int64_t count, int64_t n)        \
    {                                                                                                                  \
        if (count == 0)                                                                                                \
            memset(out, 0, (size_t)n * sizeof(T));                                                                     \
        for (int64_t k = 0; k < count;) {                                                                              \
            if (k == 0 && count >= 4) {                                                                                \
                const T *restrict c = rows[2], *restrict d = rows[3], *restrict e = rows[0], *restrict f = rows[1];    \
                const T wc = weights[2], wd = weights[3], we = weights[0], wf = weights[1];                            \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    out[i] = (we * e[i] + wf * f[i]) + (wc * c[i] + wd * d[i]);                                        \
                k = 4;                                                                                                 \
                continue;                                                                                              \
            }                                                                                                          \
            const T *restrict a = rows[k], *restrict b = rows[k + 1 < count ? k + 1 : k];                              \
            const T wa = weights[k], wb = k + 1 < count ? weights[k + 1] : 0;                                          \
            if (k + 1 == count && k == 0 && wa == 1)                                                                   \
                memcpy(out, a, (size_t)n * sizeof(T));                                                                 \
            else if (k + 1 == count && k == 0)                                                                         \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    out[i] = wa * a[i];                                                                                \
            else if (k + 1 == count)                                                                                   \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    out[i] += wa * a[i];                                                                               \
            else if (k == 0)                                                                                           \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    out[i] = wa * a[i] + wb * b[i];                                                                    \
            else                                                                                                       \
                for (int64_t i = 0; i < n; i++)                                                                        \
                    out[i] += wa * a[i] + wb * b[i];                                                                   \
            k += 2;                                                                                                    \
        }                                                                                                              \
    }                                                                                                                  \
    static void resize_rows_##S(void *arg, int64_t begin, int64_t end, int thread)                                     \
    {                                                                                                                  \
        const resizing *r = arg;                                                                                       \
        const int64_t height = r->x->shape[1], width = r->x->shape[2], oh = r->out->shape[1], ow = r->out->shape[2];   \
        const T *column_weight = r->column_weight, *row_weight = r->row_weight;                                        \
        char *mine = r->scratch + thread * r->scratch_bytes;                                                           \
        int64_t *tag = (int64_t *)mine, most = r->rows ? r->rows->most : 1;                                            \
        const T **from = (const T **)(tag + r->kept);                                                                  \
        T *weights = (T *)(from + most), *store = weights + most;                                                      \
        const T *x = (const T *)r->x->data + begin / oh * height * width;                                              \
        for (int64_t i = begin, y = begin % oh; i < end; i++, y++) {                                                   \
            if (y == oh) {                                                                                             \
                y = 0;                                                                                                 \
                x += height * width;                                                                                   \
            }                                                                                                          \
            const int64_t count = r->rows ? r->rows->taps[y] : 1;                                                      \
            T *out = (T *)r->out->data + i * ow;                                                                       \
            if (i == begin || y == 0)                                                                                  \
                for (int64_t k = 0; k < r->kept; k++)                                                                  \
                    tag[k] = -1;                                                                                       \
            for (int64_t k = 0; k < count; k++) {                                                                      \
                const int64_t row = r->rows ? r->rows->index[k * oh + y] : y, slot = row & (r->kept - 1);              \
                weights[k] = r->rows ? row_weight[k * oh + y] : 1;                                                     \
                from[k] = x + row * width;                                                                             \
                if (!r->columns_first)                                                                                 \
                    continue;                                                                                          \
                from[k] = store + slot * ow;                                                                           \
                if (tag[slot] != row)                                                                                  \
                    one_row_##S(store + slot * ow, x + row * width, r, column_weight);                                 \
                tag[slot] = row;                                                                                       \
            }                                                                                                          \
            if (r->columns_first || !r->columns) {                                                                     \
                add_rows_##S(out, from, weights, count, ow);                                                           \
                continue;                                                                                              \
            }                                                                                                          \
            const bool summed = r->rows && !(count == 1 && weights[0] == 1);                                           \
            if (summed)                                                                                                \
                add_rows_##S(store, from, weights, count, width);                                                      \
            one_row_##S(out, summed ? store : from[0], r, column_weight);                                              \
        }                                                                                                              \
    }

/* One row along its columns. */
static void one_row_f32(float *out, const float *row, const resizing *r, const float *weight);
static void one_row_f64(double *out, const double *row, const resizing *r, const double *weight);
/* clang-format off */
RESIZE(float, f32)
RESIZE(double, f64)
/* clang-format on */

/* The lanes of a tap from the vector at a row's `first`, or from it and the next one; 0 where there is none. */
#if defined(__AVX512F__)
#define NEAR 1
static inline yk__vf32 chosen_of_1(const float *at, const near_taps *t)
{
    __m512i lane = _mm512_loadu_si512(t->lane), mask = _mm512_loadu_si512(t->mask);
    return (yk__vf32)_mm512_maskz_permutexvar_ps(_mm512_test_epi32_mask(mask, mask), lane, _mm512_loadu_ps(at));
}

static inline yk__vf32 chosen_of_2(const float *at, const near_taps *t)
{
    __m512i lane = _mm512_loadu_si512(t->lane), mask = _mm512_loadu_si512(t->mask);
    return (yk__vf32)_mm512_maskz_permutex2var_ps(_mm512_test_epi32_mask(mask, mask), _mm512_loadu_ps(at), lane,
                                                  _mm512_loadu_ps(at + 16));
}
#elif defined(__AVX2__)
#define NEAR 1
static inline __m256i lanes_at(const int32_t *lanes)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)lanes);
}

static inline yk__vf32 chosen_of_1(const float *at, const near_taps *t)
{
    __m256 v = _mm256_permutevar8x32_ps(_mm256_loadu_ps(at), lanes_at(t->lane));
    return (yk__vf32)_mm256_and_ps(v, _mm256_castsi256_ps(lanes_at(t->mask)));
}

static inline yk__vf32 chosen_of_2(const float *at, const near_taps *t)
{
    __m256i lane = lanes_at(t->lane);
    __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(at), lane);
    __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(at + 8), lane);
    __m256 v = _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(lane, 28))); /* bit 3 is the sign */
    return (yk__vf32)_mm256_and_ps(v, _mm256_castsi256_ps(lanes_at(t->mask)));
}
#endif

#if defined(NEAR)
/* The pieces of a row that are whole vectors; the element after them. */
#define NEAR_ROW(vectors)                                                                                              \
    static int64_t near_row_##vectors(float *out, const float *row, const yk__taps *columns, const near_taps *near,    \
                                      const float *weight)                                                             \
    {                                                                                                                  \
        enum { LANES = YK__VECTOR_BYTES / sizeof(float) };                                                             \
        const int64_t size = columns->size, most = columns->most;                                                      \
        int64_t from = 0;                                                                                              \
        for (; from + LANES <= size; from += LANES) {                                                                  \
            yk__vf32 sum = {0};                                                                                        \
            for (int64_t k = 0; k < most; k++, near++)                                                                 \
                sum += chosen_of_##vectors(row + near->first, near) * *(const yk__vf32u *)(weight + k * size + from);  \
            *(yk__vf32u *)(out + from) = sum;                                                                          \
        }                                                                                                              \
        return from;                                                                                                   \
    }
NEAR_ROW(1)
NEAR_ROW(2)
#endif

static void one_row_f32(float *out, const float *row, const resizing *r, const float *weight)
{
    int64_t from = 0;
    if (r->run.count) {
        plain_row_f32(out, row, r->columns, weight, 0, r->run.at);
        memcpy(out + r->run.at, row + r->run.from, (size_t)r->run.count * sizeof(*out));
        from = r->run.at + r->run.count;
        plain_row_f32(out, row, r->columns, weight, from, r->columns->size);
        return;
    }
#if defined(NEAR)
    if (r->near)
        from = (r->vectors == 1 ? near_row_1 : near_row_2)(out, row, r->columns, r->near, weight);
#endif
    plain_row_f32(out, row, r->columns, weight, from, r->columns->size);
}

static void one_row_f64(double *out, const double *row, const resizing *r, const double *weight)
{
    const run *n = &r->run; /* of 0 elements at 0 where there is none */
    plain_row_f64(out, row, r->columns, weight, 0, n->at);
    memcpy(out + n->at, row + n->from, (size_t)n->count * sizeof(*out));
    plain_row_f64(out, row, r->columns, weight, n->at + n->count, r->columns->size);
}

/* The run of columns, where it is most of a row; else one of no elements. */
static run run_of(const yk__taps *t)
{
    run longest = {0, 0, 0}, now = {0, 0, 0};
    for (int64_t i = 0; t && i < t->size; i++) {
        if (t->taps[i] != 1 || t->weight[i] != 1)
            now.count = 0;
        else if (now.count && t->index[i] == t->index[i - 1] + 1)
            now.count++;
        else
            now = (run){i, t->index[i], 1};
        longest = now.count > longest.count ? now : longest;
    }
    return t && longest.count > t->size / 2 ? longest : (run){0, 0, 0};
}

/* Fills near[]; false where lanes are too far from each other for so many vectors. */
static bool near_fill(near_taps *near, const yk__taps *t, int64_t width, int vectors)
{
    enum { LANES = YK__VECTOR_BYTES / sizeof(float) };
    const int reach = vectors * LANES;
    if (width < reach)
        return false;
    for (int64_t i = 0; i + LANES <= t->size; i += LANES)
        for (int64_t k = 0; k < t->most; k++, near++) {
            const int32_t *index = t->index + k * t->size + i, *taps = t->taps + i;
            *near = (near_taps){.first = (int32_t)(width - reach)};
            for (int l = 0; l < LANES; l++)
                if (k < taps[l] && index[l] < near->first)
                    near->first = index[l];
            for (int l = 0; l < LANES; l++) {
                near->lane[l] = k < taps[l] ? index[l] - near->first : 0;
                near->mask[l] = k < taps[l] ? -1 : 0;
                if (near->lane[l] >= reach)
                    return false;
            }
        }
    return true;
}

/* Weights in the dtype; the end of them. */
static char *weights_fill(char *to, const yk__taps *t, bool narrow)
{
    int64_t count = t->size * t->most;
    for (int64_t i = 0; i < count; i++) {
        if (narrow)
            ((float *)to)[i] = (float)t->weight[i];
        else
            ((double *)to)[i] = t->weight[i];
    }
    return to + (count + 1) / 2 * 2 * (int64_t)(narrow ? sizeof(float) : sizeof(double));
}

/* The rows of the input that one of the result reaches over, at most. */
static int64_t rows_reach(const yk__taps *t)
{
    int64_t reach = 1;
    for (int64_t i = 0; t && i < t->size; i++) {
        int32_t low = INT32_MAX, high = 0;
        for (int32_t k = 0; k < t->taps[i]; k++) {
            int32_t at = t->index[k * t->size + i];
            low = at < low ? at : low;
            high = at > high ? at : high;
        }
        reach = t->taps[i] && high - low + 1 > reach ? high - low + 1 : reach;
    }
    return reach;
}

static yk_status resize(int device, const yk__view *out, const yk__view *x, const yk__taps *rows,
                        const yk__taps *columns)
{
    enum { LANES = YK__VECTOR_BYTES / sizeof(float) };
    const bool narrow = x->dtype == YK_F32;
    const int64_t size = (int64_t)yk_dtype_size(x->dtype), threads = yk__cpu_threads(device);
    const int64_t most = rows ? rows->most : 1, planes = out->shape[0] * out->shape[1];
    resizing r = {.out = out, .x = x, .rows = rows, .columns = columns, .kept = 1};
    r.run = run_of(columns);
    r.columns_first = columns && rows && out->shape[1] >= x->shape[1] && !r.run.count;
    while (r.columns_first && r.kept < rows_reach(rows))
        r.kept *= 2;
    int64_t wider = out->shape[2] > x->shape[2] ? out->shape[2] : x->shape[2];
    r.scratch_bytes = r.kept * 8 + most * 16 + r.kept * wider * size;
    r.scratch_bytes = (r.scratch_bytes + 127) / 64 * 64; /* and a line apart */
    int64_t near_count = columns && narrow ? columns->size / LANES * columns->most : 0;
    int64_t weights = (rows ? rows->size * rows->most + 1 : 0) + (columns ? columns->size * columns->most + 1 : 0);
    yk__storage *handle;
    char *memory = yk__workspace_get(
        (yk_device){YK_CPU, (int16_t)device},
        (size_t)(threads * r.scratch_bytes + weights * size + near_count * (int64_t)sizeof(near_taps)), &handle);
    if (!memory)
        return yk__error_code();
    r.scratch = memory;
    memory += threads * r.scratch_bytes;
    r.row_weight = memory;
    memory = rows ? weights_fill(memory, rows, narrow) : memory;
    r.column_weight = memory;
    memory = columns ? weights_fill(memory, columns, narrow) : memory;
    near_taps *near = (near_taps *)(void *)memory;
    for (r.vectors = 1; near_count && !r.run.count && !r.near && r.vectors <= 2; r.vectors += !r.near)
        r.near = near_fill(near, columns, x->shape[2], r.vectors) ? near : NULL;
    int64_t grain = ELEMENTS / out->shape[2] + 1;
    yk__cpu_parallel(device, planes, grain, narrow ? resize_rows_f32 : resize_rows_f64, &r);
    yk__storage_release(handle);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_resize)(yk__backend *table)
{
    table->resize = resize;
}
