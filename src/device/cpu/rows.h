/*
 * rows.h - operations on one row of numbers, for softmax.c and loss.c. Layer: device/cpu.
 */
#ifndef YOKE_DEVICE_CPU_ROWS_H
#define YOKE_DEVICE_CPU_ROWS_H

#include <math.h>

#include "device/cpu/iterate.h"
#include "device/scalar_math.h"

#define YK__ROW_CHUNK 1024 /* elements that are held on the stack at a time */

/* Rows are padded to whole vectors in buffers of the kernel's own, so that short ones vectorise too. */
#define YK__ROW_PADDED(n) (((n) + 15) & ~(int64_t)15)

#define YK__ROWS(S, T, V)                                                                                              \
    /* The greatest element that is not NaN; minus infinity where there is none. `stride` is in elements. */           \
    static inline T yk__row_max_##S(const T *x, int64_t stride, int64_t n)                                             \
    {                                                                                                                  \
        enum { LANES = YK__VECTOR_BYTES / sizeof(T) };                                                                 \
        T top = (T)-INFINITY;                                                                                          \
        int64_t i = 0;                                                                                                 \
        if (stride == 1 && n >= 2 * LANES) {                                                                           \
            V tops[2] = {(V){0} + top, (V){0} + top};                                                                  \
            for (; i + 2 * LANES <= n; i += 2 * LANES)                                                                 \
                for (int v = 0; v < 2; v++) {                                                                          \
                    V next = *(const V *)(x + i + v * LANES);                                                          \
                    __typeof__(next > next) more = next > tops[v];                                                     \
                    tops[v] = (V)((more & (__typeof__(more))next) | (~more & (__typeof__(more))tops[v]));              \
                }                                                                                                      \
            for (int l = 0; l < 2 * LANES; l++)                                                                        \
                top = tops[l / LANES][l % LANES] > top ? tops[l / LANES][l % LANES] : top;                             \
        }                                                                                                              \
        for (; i < n; i++)                                                                                             \
            top = x[i * stride] > top ? x[i * stride] : top;                                                           \
        return top;                                                                                                    \
    }                                                                                                                  \
    /* e[i] = exp(x[i] - shift) for i < n, at most YK__ROW_CHUNK; 0 up to the padded length. Gives their sum. */       \
    static inline double yk__row_exp_##S(const T *x, int64_t stride, int64_t n, T shift, T *e)                         \
    {                                                                                                                  \
        enum { LANES = YK__VECTOR_BYTES / sizeof(T) };                                                                 \
        int64_t padded = YK__ROW_PADDED(n), whole = stride == 1 ? n & ~(int64_t)15 : 0;                                \
        YK__INDEPENDENT for (int64_t i = 0; i < whole; i++)                                                            \
        {                                                                                                              \
            e[i] = yk__exp_##S(x[i] - shift);                                                                          \
        }                                                                                                              \
        for (int64_t i = whole; i < n; i++)                                                                            \
            e[i] = x[i * stride] - shift;                                                                              \
        for (int64_t i = n; i < padded; i++)                                                                           \
            e[i] = (T)-INFINITY;                                                                                       \
        for (int64_t i = whole; i < padded; i += 16)                                                                   \
            for (int l = 0; l < 16; l++)                                                                               \
                e[i + l] = yk__exp_##S(e[i + l]);                                                                      \
        V sums = {0};                                                                                                  \
        for (int64_t i = 0; i < padded; i += LANES)                                                                    \
            sums += *(const V *)(e + i);                                                                               \
        double sum = 0;                                                                                                \
        for (int l = 0; l < LANES; l++)                                                                                \
            sum += (double)sums[l];                                                                                    \
        return sum;                                                                                                    \
    }
YK__ROWS(f32, float, yk__vf32u)
YK__ROWS(f64, double, yk__vf64u)

#endif
