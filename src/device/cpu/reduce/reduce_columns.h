/*
 * reduce_columns.h - reducing outputs that lie side by side: rows of the input are fed whole. Layer: device/cpu.
 *
 * A state per column, held in arrays so that the loops over columns vectorise; reduce.c turns a column into the state
 * that it keeps for an output. Row r of the range that is reduced is at position r.
 */
#ifndef YOKE_DEVICE_CPU_REDUCE_REDUCE_COLUMNS_H
#define YOKE_DEVICE_CPU_REDUCE_REDUCE_COLUMNS_H

#include "device/cpu/halves.h"
#include "device/cpu/partial_vectors.h"

/* Outputs fed together: whole vectors and cache lines of a row. The state of each takes 8 bytes and more in every
 * array. */
#define YK__COLUMNS 256

typedef struct yk__columns {
    int64_t width;
    bool seen;              /* extremes: whether a row has been fed */
    double a[YK__COLUMNS];  /* sum, product, or the sum of x - shift */
    int64_t i[YK__COLUMNS]; /* sum of integers */
    double b[YK__COLUMNS];  /* var: the sum of (x - shift)^2 */
    double shift[YK__COLUMNS];
    union {
        float f32[YK__COLUMNS];
        double f64[YK__COLUMNS];
        int64_t i64[YK__COLUMNS];
        int32_t i32[YK__COLUMNS];
        uint8_t u8[YK__COLUMNS];
    } best;
    int32_t at[YK__COLUMNS]; /* the row of `best` */
} yk__columns;

/* A yk__run_fn over rows, whose context is a yk__columns. */
#define YK__COLUMN_RUN(name, T, ...)                                                                                   \
    static void name(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)          \
    {                                                                                                                  \
        yk__columns *columns = (yk__columns *)(uintptr_t)context;                                                      \
        int64_t width = columns->width, step = stride[0] / (int64_t)sizeof(T), row = 0;                                \
        const T *x = (const T *)data[0];                                                                               \
        (void)first;                                                                                                   \
        __VA_ARGS__                                                                                                    \
    }

/*
 * Fewer columns than a vector has lanes, or the last ones: as a masked vector of each row, with totals that stay in
 * registers. The same sums in the same order as those of whole vectors. Only AVX-512 loads a part of a vector as fast
 * as all of it.
 */
#if defined(__AVX512F__)
typedef struct yk__totals {
    yk__vf64 low, high; /* of f64 the first alone */
} yk__totals;

static inline yk__totals yk__totals_of_f32(yk__vf32 v)
{
    yk__totals totals;
    yk__widen_lanes(v, &totals.low, &totals.high);
    return totals;
}

static inline yk__totals yk__totals_of_f64(yk__vf64 v)
{
    return (yk__totals){v, (yk__vf64){0}};
}

/* `eight`: the expression that the vectors of eight rows, YK__FEW_ROW(S, 0) to 7, add to the totals; `one`: that of a
 * vector of doubles, of a single row. */
#define YK__FEW_COLUMNS(name, S, T, V, eight, one)                                                                     \
    static void name##_few_##S(double *sums, const T *x, int64_t step, int64_t width, int64_t n)                       \
    {                                                                                                                  \
        enum { LANES = sizeof(V) / sizeof(T), WIDE = sizeof(yk__vf64) / sizeof(double) };                              \
        for (int64_t j = 0; j < width; j += LANES, sums += LANES) {                                                    \
            const T *from = x + j;                                                                                     \
            int64_t row = 0, m = width - j < LANES ? width - j : LANES, low = m < WIDE ? m : WIDE, high = m - low;     \
            yk__totals total = {yk__load_part_f64(sums, low), {0}};                                                    \
            if (high)                                                                                                  \
                total.high = yk__load_part_f64(sums + low, high);                                                      \
            for (; row + 8 <= n; row += 8, from += 8 * step) {                                                         \
                yk__totals next = yk__totals_of_##S(eight);                                                            \
                total.low += next.low, total.high += next.high;                                                        \
            }                                                                                                          \
            for (; row < n; row++, from += step) {                                                                     \
                yk__totals next = yk__totals_of_##S(YK__FEW_ROW(S, 0));                                                \
                total.low += one(next.low), total.high += one(next.high);                                              \
            }                                                                                                          \
            yk__store_part_f64(sums, total.low, low);                                                                  \
            if (high)                                                                                                  \
                yk__store_part_f64(sums + low, total.high, high);                                                      \
        }                                                                                                              \
    }
#define YK__FEW_ROW(S, i)    yk__load_part_##S(from + (i)*step, m)
#define YK__FEW_SQUARE(S, i) (YK__FEW_ROW(S, i) * YK__FEW_ROW(S, i))
#define YK__ITSELF(v)        (v)
#define YK__SQUARE(v)        ((v) * (v))
#define YK__FEW_SUM(S)                                                                                                 \
    ((YK__FEW_ROW(S, 0) + YK__FEW_ROW(S, 1)) + (YK__FEW_ROW(S, 2) + YK__FEW_ROW(S, 3))) +                              \
        ((YK__FEW_ROW(S, 4) + YK__FEW_ROW(S, 5)) + (YK__FEW_ROW(S, 6) + YK__FEW_ROW(S, 7)))
#define YK__FEW_SQUARES(S)                                                                                             \
    (((YK__FEW_SQUARE(S, 0) + YK__FEW_SQUARE(S, 2)) + YK__FEW_SQUARE(S, 4)) + YK__FEW_SQUARE(S, 6)) +                  \
        (((YK__FEW_SQUARE(S, 1) + YK__FEW_SQUARE(S, 3)) + YK__FEW_SQUARE(S, 5)) + YK__FEW_SQUARE(S, 7))
YK__FEW_COLUMNS(columns_sum, f32, float, yk__vf32, YK__FEW_SUM(f32), YK__ITSELF)
YK__FEW_COLUMNS(columns_sum, f64, double, yk__vf64, YK__FEW_SUM(f64), YK__ITSELF)
YK__FEW_COLUMNS(columns_squares, f32, float, yk__vf32, YK__FEW_SQUARES(f32), YK__SQUARE)
YK__FEW_COLUMNS(columns_squares, f64, double, yk__vf64, YK__FEW_SQUARES(f64), YK__SQUARE)
/* Takes the columns after the last whole vector of f32 out of the width. */
#define YK__TAKE_FEW(name, S)                                                                                          \
    if (width % YK__FEW) {                                                                                             \
        width -= width % YK__FEW;                                                                                      \
        name##_few_##S(columns->a + width, x + width, step, columns->width - width, n);                                \
        if (!width)                                                                                                    \
            return;                                                                                                    \
    }
enum { YK__FEW = sizeof(yk__vf32) / sizeof(float) };
#else
#define YK__TAKE_FEW(name, S)
#endif

#define YK__COLUMN_REALS(S, T)                                                                                         \
    /* Eight rows, or their squares, are added up before they are widened. */                                          \
    YK__COLUMN_RUN(columns_sum_##S, T, {                                                                               \
        YK__TAKE_FEW(columns_sum, S)                                                                                   \
        double *restrict sums = columns->a;                                                                            \
        for (; row + 8 <= n; row += 8, x += 8 * step)                                                                  \
            for (int64_t j = 0; j < width; j++)                                                                        \
                sums[j] += (double)(((x[j] + x[j + step]) + (x[j + 2 * step] + x[j + 3 * step])) +                     \
                                    ((x[j + 4 * step] + x[j + 5 * step]) + (x[j + 6 * step] + x[j + 7 * step])));      \
        for (; row < n; row++, x += step)                                                                              \
            for (int64_t j = 0; j < width; j++)                                                                        \
                sums[j] += (double)x[j];                                                                               \
    })                                                                                                                 \
    YK__COLUMN_RUN(columns_squares_##S, T, {                                                                           \
        YK__TAKE_FEW(columns_squares, S)                                                                               \
        double *restrict sums = columns->a;                                                                            \
        for (; row + 8 <= n; row += 8, x += 8 * step)                                                                  \
            for (int64_t j = 0; j < width; j++) {                                                                      \
                T sum = x[j] * x[j], other = x[j + step] * x[j + step];                                                \
                sum += x[j + 2 * step] * x[j + 2 * step], other += x[j + 3 * step] * x[j + 3 * step];                  \
                sum += x[j + 4 * step] * x[j + 4 * step], other += x[j + 5 * step] * x[j + 5 * step];                  \
                sum += x[j + 6 * step] * x[j + 6 * step], other += x[j + 7 * step] * x[j + 7 * step];                  \
                sums[j] += (double)(sum + other);                                                                      \
            }                                                                                                          \
        for (; row < n; row++, x += step)                                                                              \
            for (int64_t j = 0; j < width; j++)                                                                        \
                sums[j] += (double)x[j] * (double)x[j];                                                                \
    })                                                                                                                 \
    YK__COLUMN_RUN(columns_prod_##S, T, {                                                                              \
        double *restrict products = columns->a;                                                                        \
        for (; row < n; row++, x += step)                                                                              \
            for (int64_t j = 0; j < width; j++)                                                                        \
                products[j] *= (double)x[j];                                                                           \
    })                                                                                                                 \
    YK__COLUMN_RUN(columns_var_##S, T, {                                                                               \
        double *restrict sums = columns->a, *restrict squares = columns->b;                                            \
        const double *restrict shift = columns->shift;                                                                 \
        for (; row < n; row++, x += step)                                                                              \
            for (int64_t j = 0; j < width; j++) {                                                                      \
                double d = (double)x[j] - shift[j];                                                                    \
                sums[j] += d;                                                                                          \
                squares[j] += d * d;                                                                                   \
            }                                                                                                          \
    })
YK__COLUMN_REALS(f32, float)
YK__COLUMN_REALS(f64, double)

#define YK__COLUMN_WHOLE(S, T)                                                                                         \
    YK__COLUMN_RUN(columns_sum_##S, T, {                                                                               \
        int64_t *restrict sums = columns->i;                                                                           \
        for (; row + 4 <= n; row += 4, x += 4 * step)                                                                  \
            for (int64_t j = 0; j < width; j++)                                                                        \
                sums[j] = (int64_t)((uint64_t)sums[j] + (((uint64_t)x[j] + (uint64_t)x[j + step]) +                    \
                                                         ((uint64_t)x[j + 2 * step] + (uint64_t)x[j + 3 * step])));    \
        for (; row < n; row++, x += step)                                                                              \
            for (int64_t j = 0; j < width; j++)                                                                        \
                sums[j] = (int64_t)((uint64_t)sums[j] + (uint64_t)x[j]);                                               \
    })
YK__COLUMN_WHOLE(i64, int64_t)
YK__COLUMN_WHOLE(i32, int32_t)
YK__COLUMN_WHOLE(u8, uint8_t)

/* The first of equals; a NaN beats every number, and the first NaN stays. `worse`: the comparison that keeps `best`. */
#define YK__COLUMN_EXTREME(name, S, T, worse)                                                                          \
    YK__COLUMN_RUN(name##_##S, T, {                                                                                    \
        T *restrict best = columns->best.S;                                                                            \
        int32_t *restrict at = columns->at;                                                                            \
        if (!columns->seen && n > 0) {                                                                                 \
            for (int64_t j = 0; j < width; j++)                                                                        \
                best[j] = x[j], at[j] = (int32_t)first;                                                                \
            columns->seen = true, row = 1, x += step;                                                                  \
        }                                                                                                              \
        for (; row < n; row++, x += step) {                                                                            \
            int32_t position = (int32_t)(first + row);                                                                 \
            for (int64_t j = 0; j < width; j++) {                                                                      \
                T v = x[j], old = best[j];                                                                             \
                bool better = !(v worse old) & (old == old);                                                           \
                best[j] = better ? v : old;                                                                            \
                at[j] = better ? position : at[j];                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    })
#define YK__COLUMN_EXTREMES(S, T)                                                                                      \
    YK__COLUMN_EXTREME(columns_max, S, T, <=)                                                                          \
    YK__COLUMN_EXTREME(columns_min, S, T, >=)
YK__COLUMN_EXTREMES(f32, float)
YK__COLUMN_EXTREMES(f64, double)
YK__COLUMN_EXTREMES(i64, int64_t)
YK__COLUMN_EXTREMES(i32, int32_t)
YK__COLUMN_EXTREMES(u8, uint8_t)

/* f16 and bf16: eight rows at a time are widened into a tile. */
#define YK__COLUMN_HALF(name, S)                                                                                       \
    static void name##_##S(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)    \
    {                                                                                                                  \
        float tile[8 * YK__COLUMNS] __attribute__((aligned(64)));                                                      \
        for (int64_t row = 0, m; row < n; row += m) {                                                                  \
            m = n - row < 8 ? n - row : 8;                                                                             \
            for (int64_t i = 0; i < m; i++)                                                                            \
                yk__widen_##S(((const yk__columns *)context)->width, tile + i * YK__COLUMNS,                           \
                              (const uint16_t *)(data[0] + (row + i) * stride[0]));                                    \
            name##_f32(context, first + row, m, (char *const[]){(char *)tile},                                         \
                       (const int64_t[]){YK__COLUMNS * sizeof(float)});                                                \
        }                                                                                                              \
    }
#define YK__COLUMN_HALVES(S)                                                                                           \
    YK__COLUMN_HALF(columns_sum, S)                                                                                    \
    YK__COLUMN_HALF(columns_squares, S)                                                                                \
    YK__COLUMN_HALF(columns_prod, S)                                                                                   \
    YK__COLUMN_HALF(columns_var, S)                                                                                    \
    YK__COLUMN_HALF(columns_max, S)                                                                                    \
    YK__COLUMN_HALF(columns_min, S)
YK__COLUMN_HALVES(f16)
YK__COLUMN_HALVES(bf16)

#endif
