/*
 * reduce.c - the slot reduce. Layer: device/cpu.
 *
 * One loop (iterate.h) walks over the outputs, another over what one output reduces. Each output has a state that
 * runs of elements are fed into; the range that is reduced may be cut into pieces whose states are merged in order.
 * Outputs whose inputs lie side by side in memory are reduced as columns, a row of the input at a time
 * (reduce_columns.h); so are short rows, through a tile in which they are transposed.
 *
 * Sums of f32 are kept in double, of eight that were added up before, so the error does not grow with the count. Pieces
 * depend on the sizes alone, never on the threads.
 */
#include <float.h>
#include <math.h>

#include "device/convert.h"
#include "device/cpu/iterate.h"
#include "device/cpu/partial_vectors.h"
#include "device/cpu/reduce.h"
#include "device/cpu/reduce_columns.h"

/* MAX_PIECES bounds the threads, and the states that are merged at the end; pieces are of a multiple of PIECE_MULTIPLE
 * elements, whole cache lines. Sums are cut by them: other numbers may give other last bits. */
enum { MAX_PIECES = 64, PIECE_MULTIPLE = 64 };

/* Elements of a row that counts as short, and bytes of the tile. */
enum { SHORT_ROW = 32, TILE_BYTES = 16384 };

typedef struct state {
    double a, b, shift; /* sum, product or extreme; var: sums of (x - shift) and its square */
    int64_t i, at;      /* the same of integers; argmax: where. at = -1: nothing seen yet */
} state;

/* Feeds n elements, `stride` bytes apart, into s; `first` is the position of the first in what is reduced. */
typedef void (*feed_fn)(state *s, int64_t first, int64_t n, const char *x, int64_t stride);

#define AT(T, i) (*(const T *)(x + (i)*stride))

/* ---- sums ---- */

typedef float half_vector __attribute__((vector_size(YK__VECTOR_BYTES / 2), aligned(4), may_alias));
#define WIDEN_f32(from) __builtin_convertvector(*(const half_vector *)(from), yk__vf64)
#define WIDEN_f64(from) (*(const yk__vf64u *)(from))

/* Bytes. What the processor fetches by itself ends with a page of 4 KiB, and the next begins late: a line of each
 * block is fetched that far ahead. All lines of it took 2 to 9 % longer. */
enum { SUM_AHEAD = 4096 };

static inline void fetch_ahead(const void *block)
{
    __builtin_prefetch((const char *)block + SUM_AHEAD);
}

/* Pairs, then pairs of these. */
static inline double sum_of_lanes(yk__vf64 v)
{
    double lane[sizeof(v) / sizeof(double)];
    memcpy(lane, &v, sizeof(v));
    for (size_t n = sizeof(lane) / sizeof(*lane) / 2; n > 0; n /= 2)
        for (size_t l = 0; l < n; l++)
            lane[l] += lane[l + n];
    return lane[0];
}

/* `term` is an expression of v, a vector of doubles or a single one. */
#define SUM(name, S, T, term)                                                                                          \
    static void name(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                                \
    {                                                                                                                  \
        (void)first;                                                                                                   \
        enum { LANES = YK__VECTOR_BYTES / sizeof(double) };                                                            \
        int64_t i = 0;                                                                                                 \
        double total = 0;                                                                                              \
        if (stride == (int64_t)sizeof(T) && n >= LANES) {                                                              \
            const T *from = (const T *)x;                                                                              \
            yk__vf64 a0 = {0}, a1 = {0}, a2 = {0}, a3 = {0}, v;                                                        \
            for (; i + 4 * LANES <= n; i += 4 * LANES) {                                                               \
                fetch_ahead(from + i);                                                                                 \
                v = WIDEN_##S(from + i), a0 += term;                                                                   \
                v = WIDEN_##S(from + i + LANES), a1 += term;                                                           \
                v = WIDEN_##S(from + i + 2 * LANES), a2 += term;                                                       \
                v = WIDEN_##S(from + i + 3 * LANES), a3 += term;                                                       \
            }                                                                                                          \
            for (; i + LANES <= n; i += LANES)                                                                         \
                v = WIDEN_##S(from + i), a0 += term;                                                                   \
            total = sum_of_lanes((a0 + a1) + (a2 + a3));                                                               \
        }                                                                                                              \
        while (i < n) { /* strided, or the tail: in blocks, so that f64 too adds few numbers one after the other */    \
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
        s->a += total;                                                                                                 \
    }
SUM(sum_rest_f32, f32, float, v)
SUM(sum_f64, f64, double, v)
SUM(squares_f32, f32, float, v *v)
SUM(squares_f64, f64, double, v *v)

/* Contiguous floats are added by eights before they are widened, as columns are; so are the at most eight vectors that
 * are left, the last of which may be a part of one. */
static inline double sum_of_row(const float *from, int64_t n)
{
    enum { LANES = YK__VECTOR_BYTES / sizeof(float) };
    half_vector halves[2];
    yk__vf64 even = {0}, odd = {0};
    for (; n >= 8 * LANES; n -= 8 * LANES, from += 8 * LANES) {
        const yk__vf32u *v = (const yk__vf32u *)from;
        fetch_ahead(v);
        yk__vf32 sum = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
        memcpy(halves, &sum, sizeof sum);
        even += WIDEN_f32(&halves[0]);
        odd += WIDEN_f32(&halves[1]);
    }
    if (n > 0) {
        yk__vf32 sum = {0}, other = {0};
        for (; n >= 2 * LANES; n -= 2 * LANES, from += 2 * LANES) {
            sum += *(const yk__vf32u *)from;
            other += *(const yk__vf32u *)(from + LANES);
        }
        if (n >= LANES) {
            sum += *(const yk__vf32u *)from;
            from += LANES;
            n -= LANES;
        }
        if (n > 0)
            other += yk__load_part_f32(from, n);
        sum += other;
        memcpy(halves, &sum, sizeof sum);
        even += WIDEN_f32(&halves[0]);
        odd += WIDEN_f32(&halves[1]);
    }
    return sum_of_lanes(even + odd);
}

static void sum_f32(state *s, int64_t first, int64_t n, const char *x, int64_t stride)
{
    if (stride == (int64_t)sizeof(float))
        s->a += sum_of_row((const float *)x, n);
    else
        sum_rest_f32(s, first, n, x, stride);
}

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

#define REAL_REST(S, T)                                                                                                \
    static void prod_##S(state *s, int64_t first, int64_t n, const char *x, int64_t stride)                            \
    {                                                                                                                  \
        (void)first;                                                                                                   \
        enum { LANES = 32 };                                                                                           \
        double products[LANES];                                                                                        \
        int64_t i = 0;                                                                                                 \
        if (stride == (int64_t)sizeof(T) && n >= LANES) {                                                              \
            const T *from = (const T *)x;                                                                              \
            for (int l = 0; l < LANES; l++)                                                                            \
                products[l] = 1;                                                                                       \
            for (; i + LANES <= n; i += LANES)                                                                         \
                for (int l = 0; l < LANES; l++)                                                                        \
                    products[l] *= (double)from[i + l];                                                                \
            for (int l = 0; l < LANES; l++)                                                                            \
                s->a *= products[l];                                                                                   \
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

/* In blocks of TRUTH_BLOCK, of which the first that decides is the last one. */
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
 * The best of a block is found first, in vectors where it is contiguous; its position only if it beats what came
 * before. A block may keep a NaN or not in `best`: the flag counts.
 */
enum { EXTREME_BLOCK = 1024 };
#define EXTREME(name, T, M, field, better)                                                                             \
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
    EXTREME(max_##S, T, M, field, >)                                                                                   \
    EXTREME(min_##S, T, M, field, <)
EXTREMES(f32, float, int32_t, a)
EXTREMES(f64, double, int64_t, a)
EXTREMES(i64, int64_t, int64_t, i)
EXTREMES(i32, int32_t, int32_t, i)
EXTREMES(u8, uint8_t, int8_t, i)

#define REAL(S)  [YK_F32] = S##_f32, [YK_F64] = S##_f64
#define WHOLE(S) [YK_I64] = S##_i64, [YK_I32] = S##_i32, [YK_U8] = S##_u8, [YK_BOOL] = S##_u8
static const feed_fn feeds[][YK__DTYPES] = {
    [YK__SUM] = {REAL(sum), WHOLE(sum)},
    [YK__MEAN] = {REAL(sum)},
    [YK__PROD] = {REAL(prod), WHOLE(prod)},
    [YK__AMAX] = {REAL(max), WHOLE(max)},
    [YK__AMIN] = {REAL(min), WHOLE(min)},
    [YK__ANY] = {REAL(any), WHOLE(any)},
    [YK__ALL] = {REAL(all), WHOLE(all)},
    [YK__ARGMAX] = {REAL(max), WHOLE(max)},
    [YK__ARGMIN] = {REAL(min), WHOLE(min)},
    [YK__VAR] = {REAL(var)},
    [YK__SUM_SQUARES] = {REAL(squares), WHOLE(squares)},
};
static const yk__run_fn column_runs[][YK__DTYPES] = {
    [YK__SUM] = {REAL(columns_sum), WHOLE(columns_sum)},
    [YK__MEAN] = {REAL(columns_sum)},
    [YK__PROD] = {REAL(columns_prod)},
    [YK__VAR] = {REAL(columns_var)},
    [YK__SUM_SQUARES] = {REAL(columns_squares)},
    [YK__AMAX] = {REAL(columns_max), WHOLE(columns_max)},
    [YK__AMIN] = {REAL(columns_min), WHOLE(columns_min)},
    [YK__ARGMAX] = {REAL(columns_max), WHOLE(columns_max)},
    [YK__ARGMIN] = {REAL(columns_min), WHOLE(columns_min)},
};
static const char *const names[] = {"sum", "mean",   "prod",   "amax", "amin",          "any",
                                    "all", "argmax", "argmin", "var",  "sum of squares"};

/* ---- states ---- */

typedef struct reduction {
    yk__reduce op;
    yk_dtype in, out;
    feed_fn feed;
    yk__loop inner;        /* what one output reduces; one operand */
    int64_t count, pieces; /* of that: elements, pieces */
    double p0;
    size_t in_size, out_size;
    state *partial;    /* (pieces, outputs), where there are several pieces */
    bool side_by_side; /* the outputs' inputs, in memory */
    const yk__loop *outer;
} reduction;

static void start(const reduction *r, state *s, const char *x)
{
    bool product = r->op == YK__PROD || r->op == YK__ALL;
    *s = (state){.a = product, .i = product, .at = -1};
    if (r->op == YK__VAR && r->count > 0)
        s->shift = r->in == YK_F32 ? (double)*(const float *)x : *(const double *)x;
}

/* s and `next`, whose positions may come in any order: of equals the first stays. */
static void merge(const reduction *r, state *s, const state *next)
{
    switch (r->op) {
    case YK__PROD:
        s->a *= next->a;
        s->i = (int64_t)((uint64_t)s->i * (uint64_t)next->i);
        break;
    case YK__ANY: s->i |= next->i; break;
    case YK__ALL: s->i &= next->i; break;
    case YK__AMAX:
    case YK__AMIN:
    case YK__ARGMAX:
    case YK__ARGMIN: {
        bool max = r->op == YK__AMAX || r->op == YK__ARGMAX;
        bool better = yk_dtype_is_floating(r->in) ? (max ? next->a > s->a : next->a < s->a) || next->a != next->a
                                                  : (max ? next->i > s->i : next->i < s->i);
        bool tied = (s->a == next->a && s->i == next->i) || (s->a != s->a && next->a != next->a);
        bool first = s->at < 0 || (tied ? next->at < s->at : s->a == s->a && better);
        if (next->at >= 0 && first)
            *s = *next;
        break;
    }
    default:
        s->a += next->a;
        s->b += next->b;
        s->i = (int64_t)((uint64_t)s->i + (uint64_t)next->i);
    }
}

static void finish(const reduction *r, const state *s, void *out)
{
    double n = (double)r->count, value = s->a;
    switch (r->op) {
    case YK__ARGMAX:
    case YK__ARGMIN: *(int64_t *)out = s->at; return;
    case YK__MEAN: value = s->a / n; break;
    case YK__VAR: {
        double divisor = n - r->p0 > 0 ? n - r->p0 : 0, squares = s->b - s->a * (s->a / n);
        value = r->count == 0 ? NAN : (squares < 0 ? 0 : squares) / divisor;
        break;
    }
    case YK__AMAX:
    case YK__AMIN: /* of nothing: the identity */
        if (s->at < 0) {
            bool max = r->op == YK__AMAX;
            yk__store_scalar(out, r->out, max ? -INFINITY : INFINITY);
            return;
        }
        break;
    default: break;
    }
    if (yk_dtype_is_floating(r->out) && !yk_dtype_is_floating(r->in))
        yk__store_scalar(out, r->out, (double)s->i);
    else if (yk_dtype_is_floating(r->out))
        yk__store_scalar(out, r->out, value);
    else if (r->out == YK_I64)
        *(int64_t *)out = s->i;
    else if (r->out == YK_I32)
        *(int32_t *)out = (int32_t)s->i;
    else
        *(uint8_t *)out = r->out == YK_BOOL ? s->i != 0 : (uint8_t)s->i;
}

/* ---- one output at a time ---- */

typedef struct feeding {
    feed_fn feed;
    state *s;
} feeding;

static void feed_run(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    const feeding *f = context;
    f->feed(f->s, first, n, data[0], stride[0]);
}

/* ---- columns ---- */

static void columns_start(const reduction *r, yk__columns *columns, const char *x)
{
    const int64_t n = columns->width;
    columns->seen = false;
    for (int64_t j = 0; j < n; j++)
        columns->a[j] = r->op == YK__PROD;
    if (!yk_dtype_is_floating(r->in))
        memset(columns->i, 0, (size_t)n * sizeof(*columns->i));
    if (r->op != YK__VAR)
        return;
    memset(columns->b, 0, (size_t)n * sizeof(*columns->b));
    for (int64_t j = 0; j < n; j++)
        columns->shift[j] = r->count == 0     ? 0
                            : r->in == YK_F32 ? (double)((const float *)x)[j]
                                              : ((const double *)x)[j];
}

static state column_state(const reduction *r, const yk__columns *columns, int64_t j)
{
    state s = {.a = columns->a[j], .at = -1};
    if (!yk_dtype_is_floating(r->in))
        s.i = columns->i[j];
    if (r->op == YK__VAR) {
        s.b = columns->b[j];
        s.shift = columns->shift[j];
    }
    if (!columns->seen)
        return s;
    s.at = columns->at[j];
    switch (r->in) {
    case YK_F32: s.a = (double)columns->best.f32[j]; break;
    case YK_F64: s.a = columns->best.f64[j]; break;
    case YK_I64: s.i = columns->best.i64[j]; break;
    case YK_I32: s.i = columns->best.i32[j]; break;
    default: s.i = columns->best.u8[j]; break;
    }
    return s;
}

/* What columns say, written one output after the other: false where finish must do it. */
static bool finish_together(const reduction *r, const yk__columns *columns, char *out, int64_t stride)
{
    const int64_t n = columns->width;
    bool total = r->op == YK__SUM || r->op == YK__MEAN || r->op == YK__PROD || r->op == YK__SUM_SQUARES;
    if (total && yk_dtype_is_floating(r->in) && r->out == YK_F32 && stride == (int64_t)sizeof(float)) {
        double divisor = (double)r->count;
        if (r->op == YK__MEAN)
            for (int64_t j = 0; j < n; j++)
                ((float *)out)[j] = (float)(columns->a[j] / divisor);
        else
            for (int64_t j = 0; j < n; j++)
                ((float *)out)[j] = (float)columns->a[j];
        return true;
    }
    if (columns->seen && (r->op == YK__AMAX || r->op == YK__AMIN) && r->in == r->out) {
        yk__copy_strided(out, stride, &columns->best, (int64_t)r->in_size, r->in_size, n);
        return true;
    }
    if (columns->seen && (r->op == YK__ARGMAX || r->op == YK__ARGMIN)) {
        for (int64_t j = 0; j < n; j++)
            *(int64_t *)(out + j * stride) = columns->at[j];
        return true;
    }
    return false;
}

/* ---- the slot ---- */

/* Fewer columns than FOLD_BELOW do not fill vectors: rows that lie one behind the other are taken together, as many as
 * make FOLD_WIDTH columns or more, whole vectors of 64 bytes. Bringing these together at the end takes longer than it
 * saves where there are fewer than FOLD_LEAST of such rows. */
enum { FOLD_BELOW = 16, FOLD_WIDTH = 64, FOLD_LEAST = 16 };

static int64_t rows_folded(int64_t n)
{
    int64_t rows = 16;
    while (rows > 1 && n * rows / 2 % 16 == 0)
        rows /= 2;
    return n * rows < FOLD_WIDTH ? FOLD_WIDTH / n / rows * rows : rows;
}

/* [begin, end) of the rows of n columns, dense, into states[n]. */
static void feed_folded(const reduction *r, yk__run_fn columns_run, int64_t n, int64_t begin, int64_t end,
                        const char *x, state *states)
{
    const int64_t size = (int64_t)r->in_size, rows = rows_folded(n), groups = (end - begin) / rows;
    yk__columns columns = {.width = n * rows};
    char *data[] = {(char *)(uintptr_t)x + begin * n * size};
    columns_start(r, &columns, x);
    for (int64_t j = n; r->op == YK__VAR && j < columns.width; j++)
        columns.shift[j] = columns.shift[j - n];
    columns_run(&columns, 0, groups, data, &(int64_t){rows * n * size});
    for (int64_t j = 0; j < columns.width; j++) {
        state s = column_state(r, &columns, j);
        if (s.at >= 0)
            s.at = begin + s.at * rows + j / n;
        if (j < n)
            states[j] = s;
        else
            merge(r, &states[j % n], &s);
    }
    begin += groups * rows;
    for (int64_t j = 0; j < n && begin < end; j++)
        r->feed(&states[j], begin, end - begin, x + begin * n * size + j * size, n * size);
}

/* A piece of the outputs, for every piece of what they reduce. */
typedef struct outputs_run {
    const reduction *r;
    int64_t begin, end; /* of what is reduced */
    int64_t piece;
} outputs_run;

static void feed_outputs(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    const outputs_run *run = context;
    const reduction *r = run->r;
    state *partial = r->pieces > 1 ? r->partial + run->piece * r->outer->total + first : NULL;
    yk__loop inner = r->inner;
    yk__run_fn columns_run = column_runs[r->op][r->in];
    bool side_by_side = stride[1] == (int64_t)r->in_size;
    bool short_rows = !side_by_side && r->count <= SHORT_ROW && n >= 16 && inner.ndim == 1 && run->end == r->count &&
                      run->begin == 0 && inner.stride[0][0] == (int64_t)r->in_size;
    if (columns_run && n > 1 && n < FOLD_BELOW && side_by_side && inner.ndim == 1 && r->count <= INT32_MAX &&
        inner.stride[0][0] == n * (int64_t)r->in_size && run->end - run->begin >= FOLD_LEAST * rows_folded(n)) {
        state states[FOLD_BELOW];
        feed_folded(r, columns_run, n, run->begin, run->end, data[1], states);
        for (int64_t j = 0; j < n; j++) {
            if (partial)
                partial[j] = states[j];
            else
                finish(r, &states[j], data[0] + j * stride[0]);
        }
        return;
    }
    if (columns_run && n >= 4 && (side_by_side || short_rows) && r->count > 0 && r->count <= INT32_MAX) {
        yk__columns columns;
        yk__loop_job job = {&inner, columns_run, &columns};
        char tile[TILE_BYTES] __attribute__((aligned(64)));
        int64_t most = YK__COLUMNS, row = (int64_t)r->in_size;
        if (short_rows) {
            most = TILE_BYTES / (r->count * row) < most ? TILE_BYTES / (r->count * row) : most;
            row *= most;
            inner.stride[0][0] = row;
        }
        for (int64_t i = 0; i < n; i += most) {
            columns.width = n - i < most ? n - i : most;
            inner.data[0] = data[1] + i * stride[1];
            if (short_rows) {
                yk__transpose(tile, row, inner.data[0], stride[1], r->count, columns.width, r->in_size);
                inner.data[0] = tile;
            }
            columns_start(r, &columns, inner.data[0]);
            if (run->begin < run->end)
                yk__loop_piece(&job, run->begin, run->end, 0);
            if (!partial && finish_together(r, &columns, data[0] + i * stride[0], stride[0]))
                continue;
            for (int64_t j = 0; j < columns.width; j++) {
                state s = column_state(r, &columns, j);
                if (partial)
                    partial[i + j] = s;
                else
                    finish(r, &s, data[0] + (i + j) * stride[0]);
            }
        }
        return;
    }
    bool rows = inner.ndim == 1 && inner.stride[0][0] == (int64_t)sizeof(float) && r->in == YK_F32 && r->out == YK_F32;
    if (rows && !partial && r->count > 0 && (r->op == YK__SUM || r->op == YK__MEAN)) {
        double divisor = r->op == YK__MEAN ? (double)r->count : 1;
        for (int64_t i = 0; i < n; i++)
            *(float *)(data[0] + i * stride[0]) =
                (float)(sum_of_row((const float *)(data[1] + i * stride[1]), r->count) / divisor);
        return;
    }
    state s;
    feeding f = {r->feed, &s};
    yk__loop_job job = {&inner, feed_run, &f};
    for (int64_t i = 0; i < n; i++) {
        inner.data[0] = data[1] + i * stride[1];
        start(r, &s, inner.data[0]);
        if (run->begin >= run->end)
            ;
        else if (inner.ndim == 1)
            r->feed(&s, run->begin, run->end - run->begin, inner.data[0] + run->begin * inner.stride[0][0],
                    inner.stride[0][0]);
        else
            yk__loop_piece(&job, run->begin, run->end, 0);
        if (partial)
            partial[i] = s;
        else
            finish(r, &s, data[0] + i * stride[0]);
    }
}

/* Of all outputs, or of one where these do not lie side by side: then units count the pieces of the first one, then
 * those of the second. */
static void feed_piece(void *arg, int64_t begin, int64_t end, int thread)
{
    const reduction *r = arg;
    int64_t grain = yk__ceil_div(yk__ceil_div(r->count, r->pieces), PIECE_MULTIPLE) * PIECE_MULTIPLE;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t piece = r->side_by_side ? unit : unit % r->pieces, first = r->side_by_side ? 0 : unit / r->pieces;
        int64_t from = piece * grain, to = from + grain;
        outputs_run run = {r, from < r->count ? from : r->count, to < r->count ? to : r->count, piece};
        yk__loop_job job = {r->outer, feed_outputs, &run};
        yk__loop_piece(&job, first, r->side_by_side ? r->outer->total : first + 1, thread);
    }
}

static void merge_outputs(const void *context, int64_t first, int64_t n, char *const *data, const int64_t *stride)
{
    const reduction *r = context;
    for (int64_t i = 0; i < n; i++) {
        state s = r->partial[first + i];
        for (int64_t piece = 1; piece < r->pieces; piece++)
            merge(r, &s, &r->partial[piece * r->outer->total + first + i]);
        finish(r, &s, data[0] + i * stride[0]);
    }
}

static yk_status reduce(int device, yk__reduce op, const yk__view *out, const yk__view *in, double p0)
{
    reduction r = {.op = op, .in = in->dtype, .out = out->dtype, .pieces = 1, .p0 = p0};
    r.feed = feeds[op][in->dtype];
    if (!r.feed)
        return yk__fail(YK_ERR_DTYPE, "%s: not defined for %s", names[op], yk_dtype_name(in->dtype));
    r.in_size = yk_dtype_size(in->dtype);
    r.out_size = yk_dtype_size(out->dtype);
    yk__view kept = *in, reduced = *in;
    for (int d = 0; d < in->ndim; d++)
        *(out->shape[d] == in->shape[d] ? &reduced.shape[d] : &kept.shape[d]) = 1;
    const yk__view *reduced_views[] = {&reduced}, *kept_views[] = {&kept, out};
    /* The outputs in the order of the input's memory; operand 0 of the loop is what is written. */
    yk__loop outer;
    yk__loop_init(&r.inner, 1, reduced_views, op == YK__ARGMAX || op == YK__ARGMIN);
    yk__loop_init(&outer, 2, kept_views, false);
    char *swap = outer.data[0];
    outer.data[0] = outer.data[1];
    outer.data[1] = swap;
    for (int d = 0; d < outer.ndim; d++) {
        int64_t stride = outer.stride[d][0];
        outer.stride[d][0] = outer.stride[d][1];
        outer.stride[d][1] = stride;
    }
    r.outer = &outer;
    r.count = r.inner.total;
    if (outer.total == 0)
        return YK_OK;

    int64_t work = r.count * outer.total;
    r.side_by_side = outer.total > 1 && outer.stride[0][1] == (int64_t)r.in_size;
    if (work > YK__GRAIN && r.count > 0 && outer.total * YK__GRAIN < 512 * r.count) {
        r.pieces = work / YK__GRAIN + 1 < MAX_PIECES ? work / YK__GRAIN + 1 : MAX_PIECES;
        if (!r.side_by_side)
            r.pieces = yk__ceil_div(r.pieces, outer.total);
    }
    if (r.pieces == 1) {
        outputs_run run = {&r, 0, r.count, 0};
        int64_t grain = YK__GRAIN / (r.count > 0 ? r.count : 1);
        int64_t least = outer.stride[0][1] == (int64_t)r.in_size ? YK__COLUMNS : 1;
        yk__loop_run(device, &outer, grain > least ? grain : least, feed_outputs, &run);
        return YK_OK;
    }
    yk__storage *handle = NULL;
    r.partial = yk__workspace_get((yk_device){YK_CPU, (int16_t)device},
                                  (size_t)(r.pieces * outer.total) * sizeof(state), &handle);
    if (!r.partial)
        return yk__error_code();
    yk__cpu_parallel(device, r.side_by_side ? r.pieces : r.pieces * outer.total, 1, feed_piece, &r);
    yk__loop_job job = {&outer, merge_outputs, &r};
    yk__loop_piece(&job, 0, outer.total, 0);
    yk__storage_release(handle);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_reduce)(yk__backend *table)
{
    table->reduce = reduce;
    YK__ISA_NAME(yk__cpu_fill_softmax)(table);
}
