/*
 * reduce_feeds.h - one output of a reduction at a time: the state that is kept of the elements seen so far, and the
 * functions that add a run of more. Layer: device/cpu.
 *
 * Sums of f32 are kept in double, of eight that were added up before; so are squares. Pieces of a range may be fed into
 * states of their own, which reduce.c merges.
 */
#ifndef YOKE_DEVICE_CPU_REDUCE_REDUCE_FEEDS_H
#define YOKE_DEVICE_CPU_REDUCE_REDUCE_FEEDS_H

#include "device/cpu/reduce/row_sums.h"

typedef struct state {
    double a, b, shift; /* sum, product or extreme; var: sums of (x - shift) and its square */
    int64_t i, at;      /* the same of integers; argmax: where. at = -1: nothing seen yet */
} state;

/* Feeds n elements, `stride` bytes apart, into s; `first` is the position of the first among the elements that are
 * reduced. */
typedef void (*feed_fn)(state *s, int64_t first, int64_t n, const char *x, int64_t stride);

#define AT(T, i) (*(const T *)(x + (i)*stride))

/* ---- sums ---- */

/* Bytes. The processor's own fetching ends with a page of 4 KiB, and begins late in the next: a line of each block is
 * fetched that far ahead. All lines of it took 2 to 9 % longer. */
enum { SUM_AHEAD = 4096 };

static inline void fetch_ahead(const void *block)
{
    __builtin_prefetch((const char *)block + SUM_AHEAD);
}

/* `term` is an expression of v, a vector of doubles or a single one. One by one: in blocks, so that f64 too adds few
 * numbers one after the other. */
#define SUM_STRIDED(name, T, term)                                                                                     \
    static double name(int64_t n, const char *x, int64_t stride)                                                       \
    {                                                                                                                  \
        double total = 0;                                                                                              \
        for (int64_t i = 0; i < n;) {                                                                                  \
            int64_t end = n - i < 64 ? n : i + 64;                                                                     \
            double even = 0, odd = 0, v;                                                                               \
            for (; i + 2 <= end; i += 2) {                                                                             \
                v = (double)AT(T, i), even += term;                                                                    \
                v = (double)AT(T, i + 1), odd += term;                                                                 \
            }                                                                                                          \
            for (; i < end; i++)                                                                                       \
                v = (double)AT(T, i), even += term;                                                                    \
            total += even + odd;                                                                                       \
        }                                                                                                              \
        return total;                                                                                                  \
    }
SUM_STRIDED(sum_strided_f32, float, v)
SUM_STRIDED(sum_strided_f64, double, v)
SUM_STRIDED(squares_strided_f32, float, v *v)
SUM_STRIDED(squares_strided_f64, double, v *v)

#define SUM_F64(name, term)                                                                                            \
    static void name##_f64(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                          \
    {                                                                                                                  \
        (void)first;                                                                                                   \
        enum { LANES = YK__VECTOR_BYTES / sizeof(double) };                                                            \
        int64_t i = 0;                                                                                                 \
        double total = 0;                                                                                              \
        if (stride == (int64_t)sizeof(double) && n >= LANES) {                                                         \
            const yk__vf64u *from = (const yk__vf64u *)x;                                                              \
            yk__vf64 a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0}, v;                                                        \
            for (; i + 4 * LANES <= n; i += 4 * LANES, from += 4) {                                                    \
                fetch_ahead(from);                                                                                     \
                v = from[0], a0 += term;                                                                               \
                v = from[1], a1 += term;                                                                               \
                v = from[2], a2 += term;                                                                               \
                v = from[3], a3 += term;                                                                               \
            }                                                                                                          \
            for (; i + LANES <= n; i += LANES, from++)                                                                 \
                v = *from, a0 += term;                                                                                 \
            total = yk__sum_of_lanes((a0 + a1) + (a2 + a3));                                                           \
        }                                                                                                              \
        s->a += total + name##_strided_f64(n - i, x + i * stride, stride);                                             \
    }
SUM_F64(sum, v)
SUM_F64(squares, v *v)

#define SUM_F32(name)                                                                                                  \
    static void name##_f32(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                          \
    {                                                                                                                  \
        (void)first;                                                                                                   \
        double sum;                                                                                                    \
        if (stride == (int64_t)sizeof(float)) {                                                                        \
            yk__row_##name##_f32(&sum, 1, x, 0, n);                                                                    \
            s->a += sum;                                                                                               \
        } else {                                                                                                       \
            s->a += name##_strided_f32(n, x, stride);                                                                  \
        }                                                                                                              \
    }
SUM_F32(sum)
SUM_F32(squares)

enum { WHOLE_BLOCK = 64 }; /* elements */
#define SUM_WHOLE(name, T, start, step)                                                                                \
    static void name(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                                \
    {                                                                                                                  \
        (void)first;                                                                                                   \
        uint64_t sum = start, v;                                                                                       \
        const T *from = (const T *)x;                                                                                  \
        int64_t i = 0;                                                                                                 \
        for (; stride == (int64_t)sizeof(T) && i + WHOLE_BLOCK <= n; i += WHOLE_BLOCK) {                               \
            fetch_ahead(from + i);                                                                                     \
            for (int l = 0; l < WHOLE_BLOCK; l++) {                                                                    \
                v = (uint64_t)from[i + l];                                                                             \
                sum step;                                                                                              \
            }                                                                                                          \
        }                                                                                                              \
        if (stride == (int64_t)sizeof(T))                                                                              \
            for (; i < n; i++) {                                                                                       \
                v = (uint64_t)from[i];                                                                                 \
                sum step;                                                                                              \
            }                                                                                                          \
        else                                                                                                           \
            for (; i < n; i++) {                                                                                       \
                v = (uint64_t)AT(T, i);                                                                                \
                sum step;                                                                                              \
            }                                                                                                          \
        s->i = (int64_t)sum;                                                                                           \
    }
#define SUMS_WHOLE(S, T)                                                                                               \
    SUM_WHOLE(sum_##S, T, (uint64_t)s->i, += v)                                                                        \
    SUM_WHOLE(squares_##S, T, (uint64_t)s->i, += v * v)                                                                \
    SUM_WHOLE(prod_##S, T, (uint64_t)s->i, *= v)
SUMS_WHOLE(i64, int64_t)
SUMS_WHOLE(i32, int32_t)
SUMS_WHOLE(u8, uint8_t)

/* Factors are widened to double one by one: a product of floats would lose a bit for each, and leave their range on the
 * way. Vectors of four doubles: those of eight take longer to widen (70 and 51 us for 1M) on an EPYC of family 25. */
typedef double quad __attribute__((vector_size(32)));

typedef double quad_of __attribute__((vector_size(32), aligned(8), may_alias));
#define FOUR_f64(from) (*(const quad_of *)(from))
#if defined(__AVX__) /* the compiler makes it of two vectors of two */
#define FOUR_f32(from) ((quad)_mm256_cvtps_pd(_mm_loadu_ps(from)))
#else
#define FOUR_f32(from) ((quad){(double)(from)[0], (double)(from)[1], (double)(from)[2], (double)(from)[3]})
#endif
#define REAL_REST(S, T)                                                                                                \
    static void prod_##S(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                            \
    {                                                                                                                  \
        (void)first;                                                                                                   \
        enum { PRODUCTS = 8, LANES = 4 };                                                                              \
        quad products[PRODUCTS];                                                                                       \
        int64_t i = 0;                                                                                                 \
        if (stride == (int64_t)sizeof(T) && n >= PRODUCTS * LANES) {                                                   \
            for (int l = 0; l < PRODUCTS; l++)                                                                         \
                products[l] = (quad){0} + 1;                                                                           \
            for (; i + PRODUCTS * LANES <= n; i += PRODUCTS * LANES) {                                                 \
                fetch_ahead(x + i * (int64_t)sizeof(T));                                                               \
                _Pragma("GCC unroll 8") for (int l = 0; l < PRODUCTS; l++) products[l] *=                              \
                    FOUR_##S((const T *)x + i + l * LANES);                                                            \
            }                                                                                                          \
            for (int l = 0; l < PRODUCTS * LANES; l++)                                                                 \
                s->a *= products[l / LANES][l % LANES];                                                                \
        }                                                                                                              \
        for (; i < n; i++)                                                                                             \
            s->a *= (double)AT(T, i);                                                                                  \
    }                                                                                                                  \
    static void var_##S(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                             \
    {                                                                                                                  \
        (void)first;                                                                                                   \
        double sums[4] = {0}, squares[4] = {0}, shift = s->shift;                                                      \
        int64_t i = 0;                                                                                                 \
        for (; i + 4 <= n; i += 4)                                                                                     \
            for (int l = 0; l < 4; l++) {                                                                              \
                double d = (double)AT(T, i + l) - shift;                                                               \
                sums[l] += d;                                                                                          \
                squares[l] += d * d;                                                                                   \
            }                                                                                                          \
        for (; i < n; i++) {                                                                                           \
            double d = (double)AT(T, i) - shift;                                                                       \
            sums[0] += d;                                                                                              \
            squares[0] += d * d;                                                                                       \
        }                                                                                                              \
        s->a += (sums[0] + sums[1]) + (sums[2] + sums[3]);                                                             \
        s->b += (squares[0] + squares[1]) + (squares[2] + squares[3]);                                                 \
    }
REAL_REST(f32, float)
REAL_REST(f64, double)

/* `any` and `all`, in blocks of TRUTH_BLOCK, of which the first that decides is the last one. */
enum { TRUTH_BLOCK = 256 };
#define TRUTH_OF(name, T, decided, decides)                                                                            \
    static void name(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                                \
    {                                                                                                                  \
        (void)first;                                                                                                   \
        for (int64_t i = 0; i < n && s->i != (decided); i += TRUTH_BLOCK) {                                            \
            int64_t end = n - i < TRUTH_BLOCK ? n : i + TRUTH_BLOCK, found = 0;                                        \
            if (stride == (int64_t)sizeof(T) && end - i == TRUTH_BLOCK) {                                              \
                uint8_t some = 0;                                                                                      \
                for (int l = 0; l < TRUTH_BLOCK; l++)                                                                  \
                    some |= ((const T *)x)[i + l] decides 0;                                                           \
                found = some;                                                                                          \
            } else {                                                                                                   \
                for (int64_t k = i; k < end; k++)                                                                      \
                    found |= AT(T, k) decides 0;                                                                       \
            }                                                                                                          \
            s->i = found ? (decided) : s->i;                                                                           \
        }                                                                                                              \
    }
#define TRUTH(S, T)                                                                                                    \
    TRUTH_OF(any_##S, T, 1, !=)                                                                                        \
    TRUTH_OF(all_##S, T, 0, ==)
TRUTH(f32, float)
TRUTH(f64, double)
TRUTH(i64, int64_t)
TRUTH(i32, int32_t)
TRUTH(u8, uint8_t)

/* ---- extremes and their positions: the first of equals, and a NaN beats every number ---- */

/*
 * The best of a block is found first, in vectors where it is contiguous; its position only if it beats the blocks
 * before. A block may keep a NaN or not in `best`: the flag counts.
 */
enum { EXTREME_BLOCK = 1024 };
#define EXTREME(name, T, M, field, better, position)                                                                   \
    static void name##_block(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                        \
    {                                                                                                                  \
        typedef T V __attribute__((vector_size(YK__VECTOR_BYTES)));                                                    \
        typedef T U __attribute__((vector_size(YK__VECTOR_BYTES), aligned(sizeof(T)), may_alias));                     \
        typedef M W __attribute__((vector_size(YK__VECTOR_BYTES)));                                                    \
        enum { LANES = YK__VECTOR_BYTES / sizeof(T) };                                                                 \
        T best = AT(T, 0);                                                                                             \
        bool nan = best != best;                                                                                       \
        int64_t i = 1;                                                                                                 \
        if (stride == (int64_t)sizeof(T) && n >= LANES) {                                                              \
            V top = *(const U *)x;                                                                                     \
            W nans = (W)(top != top);                                                                                  \
            i = LANES;                                                                                                 \
            if (n >= 4 * LANES) { /* four that do not wait for each other */                                           \
                V tops[4];                                                                                             \
                W not [4];                                                                                             \
                for (int v = 0; v < 4; v++) {                                                                          \
                    tops[v] = ((const U *)x)[v];                                                                       \
                    not [v] = (W)(tops[v] != tops[v]);                                                                 \
                }                                                                                                      \
                for (i = 4 * LANES; i + 4 * LANES <= n; i += 4 * LANES)                                                \
                    for (int v = 0; v < 4; v++) {                                                                      \
                        V next = ((const U *)(x + i * (int64_t)sizeof(T)))[v];                                         \
                        W beats = (W)(next better tops[v]);                                                            \
                        not [v] |= (W)(next != next);                                                                  \
                        tops[v] = (V)((beats & (W)next) | (~beats & (W)tops[v]));                                      \
                    }                                                                                                  \
                for (int v = 0; v < 4; v++) {                                                                          \
                    W beats = (W)(tops[v] better top);                                                                 \
                    nans |= not [v];                                                                                   \
                    top = (V)((beats & (W)tops[v]) | (~beats & (W)top));                                               \
                }                                                                                                      \
            }                                                                                                          \
            for (; i + LANES <= n; i += LANES) {                                                                       \
                V v = *(const U *)(x + i * (int64_t)sizeof(T));                                                        \
                W beats = (W)(v better top);                                                                           \
                nans |= (W)(v != v);                                                                                   \
                top = (V)((beats & (W)v) | (~beats & (W)top));                                                         \
            }                                                                                                          \
            for (int l = 0; l < LANES; l++) {                                                                          \
                best = top[l] better best ? top[l] : best;                                                             \
                nan |= nans[l] != 0;                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            T v = AT(T, i);                                                                                            \
            nan |= v != v;                                                                                             \
            best = v better best ? v : best;                                                                           \
        }                                                                                                              \
        bool seen = s->at >= 0, seen_nan = s->field != s->field;                                                       \
        if (seen && (seen_nan || (!nan && !(best better(T) s->field))))                                                \
            return;                                                                                                    \
        if (!position && !nan) {                                                                                       \
            s->field = best;                                                                                           \
            s->at = first;                                                                                             \
            return;                                                                                                    \
        }                                                                                                              \
        for (i = 0; stride == (int64_t)sizeof(T) && i + 64 <= n; i += 64) {                                            \
            const U *from = (const U *)(x + i * (int64_t)sizeof(T));                                                   \
            W found = {0};                                                                                             \
            for (int v = 0; v < 64 / LANES; v++)                                                                       \
                found |= nan ? (W)(from[v] != from[v]) : (W)(from[v] == best);                                         \
            bool any = false;                                                                                          \
            for (int l = 0; l < LANES; l++)                                                                            \
                any |= found[l] != 0;                                                                                  \
            if (any)                                                                                                   \
                break;                                                                                                 \
        }                                                                                                              \
        for (; nan ? AT(T, i) == AT(T, i) : AT(T, i) != best;)                                                         \
            i++;                                                                                                       \
        s->field = AT(T, i);                                                                                           \
        s->at = first + i;                                                                                             \
    }                                                                                                                  \
    static void name(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                                \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i += EXTREME_BLOCK)                                                                 \
            name##_block(s, first + i, n - i < EXTREME_BLOCK ? n - i : EXTREME_BLOCK, x + i * stride, stride);         \
    }
/* M: the signed integer as wide as T */
#define EXTREMES(S, T, M, field)                                                                                       \
    EXTREME(max_##S, T, M, field, >, false)                                                                            \
    EXTREME(min_##S, T, M, field, <, false)                                                                            \
    EXTREME(argmax_##S, T, M, field, >, true)                                                                          \
    EXTREME(argmin_##S, T, M, field, <, true)
EXTREMES(f32, float, int32_t, a)
EXTREMES(f64, double, int64_t, a)
EXTREMES(i64, int64_t, int64_t, i)
EXTREMES(i32, int32_t, int32_t, i)
EXTREMES(u8, uint8_t, int8_t, i)

/* ---- f16 and bf16: widened, a block at a time ---- */

enum { WIDE_BLOCK = 1024 };
#define FEED_HALF(name, S)                                                                                             \
    static void name##_##S(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                          \
    {                                                                                                                  \
        uint16_t gathered[WIDE_BLOCK];                                                                                 \
        float wide[WIDE_BLOCK] __attribute__((aligned(64)));                                                           \
        for (int64_t i = 0, m; i < n; i += m) {                                                                        \
            const uint16_t *from = (const uint16_t *)(x + i * stride);                                                 \
            m = n - i < WIDE_BLOCK ? n - i : WIDE_BLOCK;                                                               \
            if (stride != (int64_t)sizeof(*from)) {                                                                    \
                yk__copy_strided(gathered, sizeof(*from), from, stride, sizeof(*from), m);                             \
                from = gathered;                                                                                       \
            }                                                                                                          \
            yk__widen_##S(m, wide, from);                                                                              \
            name##_f32(s, first + i, m, (const char *)wide, sizeof(float));                                            \
        }                                                                                                              \
    }
#define FEED_HALVES(S)                                                                                                 \
    FEED_HALF(sum, S)                                                                                                  \
    FEED_HALF(squares, S)                                                                                              \
    FEED_HALF(prod, S)                                                                                                 \
    FEED_HALF(var, S)                                                                                                  \
    FEED_HALF(any, S)                                                                                                  \
    FEED_HALF(all, S)                                                                                                  \
    FEED_HALF(max, S)                                                                                                  \
    FEED_HALF(min, S)                                                                                                  \
    FEED_HALF(argmax, S)                                                                                               \
    FEED_HALF(argmin, S)
FEED_HALVES(f16)
FEED_HALVES(bf16)

#define REAL(S)  [YK_F32] = S##_f32, [YK_F64] = S##_f64, [YK_F16] = S##_f16, [YK_BF16] = S##_bf16
#define WHOLE(S) [YK_I64] = S##_i64, [YK_I32] = S##_i32, [YK_U8] = S##_u8, [YK_BOOL] = S##_u8
static const feed_fn feeds[][YK__DTYPES] = {
    [YK__SUM] = {REAL(sum), WHOLE(sum)},
    [YK__MEAN] = {REAL(sum)},
    [YK__PROD] = {REAL(prod), WHOLE(prod)},
    [YK__AMAX] = {REAL(max), WHOLE(max)},
    [YK__AMIN] = {REAL(min), WHOLE(min)},
    [YK__ANY] = {REAL(any), WHOLE(any)},
    [YK__ALL] = {REAL(all), WHOLE(all)},
    [YK__ARGMAX] = {REAL(argmax), WHOLE(argmax)},
    [YK__ARGMIN] = {REAL(argmin), WHOLE(argmin)},
    [YK__VAR] = {REAL(var)},
    [YK__SUM_SQUARES] = {REAL(squares), WHOLE(squares)},
};

#endif
