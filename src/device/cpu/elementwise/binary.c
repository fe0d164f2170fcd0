/*
 * binary.c - the slots binary, ternary and where. Layer: device/cpu.
 *
 * The expressions of elementwise_ops.h on contiguous runs, as in unary.c. bool takes part in comparisons and logic, and
 * its sum, product, maximum and minimum are or, and, or, and.
 */
#include "device/convert.h"
#include "device/cpu/elementwise/elementwise.h"
#include "device/cpu/halves.h"
#include "device/cpu/iterate.h"
#include "device/elementwise_ops.h"
#include "device/scalar_math.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define BINARY_LOOP(name, In, T, Out, SCALAR, expression)                                                              \
    static void name(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)               \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        T alpha = (T)SCALAR(p[0]);                                                                                     \
        (void)alpha;                                                                                                   \
        Out *o = out;                                                                                                  \
        const In *left = a, *right = b;                                                                                \
        YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                \
        {                                                                                                              \
            T x = left[i], y = right[i];                                                                               \
            o[i] = (Out)(expression);                                                                                  \
        }                                                                                                              \
    }

/* The same with one element for a, or for b. */
#define BINARY_ONE(name, T, LEFT, RIGHT, expression)                                                                   \
    static void name(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)               \
    {                                                                                                                  \
        (void)c;                                                                                                       \
        T alpha = (T)p[0];                                                                                             \
        (void)alpha;                                                                                                   \
        T *o = out;                                                                                                    \
        const T *left = a, *right = b, first_left = *left, first_right = *right;                                       \
        (void)first_left, (void)first_right;                                                                           \
        YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                \
        {                                                                                                              \
            T x = LEFT, y = RIGHT;                                                                                     \
            o[i] = expression;                                                                                         \
        }                                                                                                              \
    }
#define ONE_F32(op, expression)                                                                                        \
    BINARY_ONE(op##_one_a_f32, float, first_left, right[i], expression)                                                \
    BINARY_ONE(op##_one_b_f32, float, left[i], first_right, expression)
#define ONE_F64(op, expression)                                                                                        \
    BINARY_ONE(op##_one_a_f64, double, first_left, right[i], expression)                                               \
    BINARY_ONE(op##_one_b_f64, double, left[i], first_right, expression)
YK__REAL_ARITHMETIC(ONE_F32, YK__F32)
YK__REAL_ARITHMETIC(ONE_F64, YK__F64)

/*
 * Outputs that the last cache does not keep until somebody reads them are written past the caches, in whole lines: so
 * they are not read first. Such stores are ordered by nothing but the fence at the end.
 */
#if defined(__SSE2__)
#if defined(__AVX512F__)
#define PAST_CACHES(to, v) _mm512_stream_si512((void *)(to), (__m512i)(v))
#elif defined(__AVX2__)
#define PAST_CACHES(to, v) _mm256_stream_si256((void *)(to), (__m256i)(v))
#else
#define PAST_CACHES(to, v) _mm_stream_si128((void *)(to), (__m128i)(v))
#endif
#define BINARY_PAST(name, T, V, U, expression)                                                                         \
    static void name(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)               \
    {                                                                                                                  \
        (void)c, (void)p;                                                                                              \
        enum { SIDE = 4, LANES = YK__VECTOR_BYTES / sizeof(T) };                                                       \
        T *o = out;                                                                                                    \
        const T *left = a, *right = b;                                                                                 \
        int64_t i = 0, head = (int64_t)(-(uintptr_t)o % 64 / sizeof(T));                                               \
        for (; i < n && i < head; i++) {                                                                               \
            T x = left[i], y = right[i];                                                                               \
            o[i] = expression;                                                                                         \
        }                                                                                                              \
        for (; i + SIDE * LANES <= n; i += SIDE * LANES) {                                                             \
            V made[SIDE];                                                                                              \
            for (int k = 0; k < SIDE; k++) {                                                                           \
                V x = *(const U *)(left + i + k * LANES), y = *(const U *)(right + i + k * LANES);                     \
                made[k] = expression;                                                                                  \
            }                                                                                                          \
            for (int k = 0; k < SIDE; k++)                                                                             \
                PAST_CACHES(o + i + k * LANES, made[k]);                                                               \
        }                                                                                                              \
        for (; i < n; i++) {                                                                                           \
            T x = left[i], y = right[i];                                                                               \
            o[i] = expression;                                                                                         \
        }                                                                                                              \
        _mm_sfence();                                                                                                  \
    }
BINARY_PAST(PLUS_past_f32, float, yk__vf32, yk__vf32u, x + y)
BINARY_PAST(MUL_past_f32, float, yk__vf32, yk__vf32u, x *y)
BINARY_PAST(PLUS_past_f64, double, yk__vf64, yk__vf64u, x + y)
BINARY_PAST(MUL_past_f64, double, yk__vf64, yk__vf64u, x *y)

/* The number of elements that follow each other in all three views, at the end of their order. */
static int64_t common_run(const yk__view *out, const yk__view *a, const yk__view *b)
{
    int64_t run = 1;
    for (int d = out->ndim - 1; d >= 0; d--) {
        bool follow = out->stride[d] == run && a->stride[d] == run && b->stride[d] == run;
        if (out->shape[d] != 1 && !follow)
            break;
        run *= out->shape[d];
    }
    return run;
}

/* The kernel that writes past the caches; NULL where the output is not so large, is an input too, has gaps, or is made
 * in short runs, the ends of which would be waited for, and which may go through buffers. */
static yk__apply_fn past_caches(int kernel, const yk__view *out, const yk__view *a, const yk__view *b)
{
    const int64_t much = 24 << 20; /* of 32 MiB, the last cache of eight cores of an EPYC, which inputs need, too */
    const int64_t least_run = 2048;
    int64_t bytes = yk__view_numel(out) * (int64_t)yk_dtype_size(out->dtype);
    if ((kernel != YK__PLUS && kernel != YK__MUL) || bytes < much || out->data == a->data || out->data == b->data ||
        !yk__view_contiguous(out) || common_run(out, a, b) < least_run)
        return NULL;
    if (out->dtype == YK_F32)
        return kernel == YK__PLUS ? PLUS_past_f32 : MUL_past_f32;
    return out->dtype != YK_F64 ? NULL : kernel == YK__PLUS ? PLUS_past_f64 : MUL_past_f64;
}
#else
static yk__apply_fn past_caches(int kernel, const yk__view *out, const yk__view *a, const yk__view *b)
{
    (void)kernel, (void)out, (void)a, (void)b;
    return NULL;
}
#endif

#define BINARY_F32(op, expression) BINARY_LOOP(op##_f32, float, float, float, YK__TO_ITSELF, expression)
#define BINARY_F64(op, expression) BINARY_LOOP(op##_f64, double, double, double, YK__TO_ITSELF, expression)
#define BINARY_I64(op, expression) BINARY_LOOP(op##_i64, int64_t, int64_t, int64_t, YK__TO_I64, expression)
#define BINARY_I32(op, expression) BINARY_LOOP(op##_i32, int32_t, int64_t, int32_t, YK__TO_I64, expression)
#define BINARY_U8(op, expression)  BINARY_LOOP(op##_u8, uint8_t, int64_t, uint8_t, YK__TO_I64, expression)
YK__VECTOR_BINARY(BINARY_F32, YK__F32)
YK__VECTOR_BINARY(BINARY_F64, YK__F64)

/* Divisions that leave a rest: pairs whose quotient is beyond the limit, infinities, NaN and zeros as divisors go to
 * libm one by one; they are rare enough to be looked for. */
#define DIVISION(op, S, T, ABS, LIMIT, near, any)                                                                      \
    BINARY_LOOP(op##_near_##S, T, T, T, YK__TO_ITSELF, near)                                                           \
    static void op##_##S(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)           \
    {                                                                                                                  \
        enum { PIECE = 512 };                                                                                          \
        const T *left = a, *right = b;                                                                                 \
        T *o = out;                                                                                                    \
        for (int64_t i = 0; i < n; i += PIECE) {                                                                       \
            int64_t end = n - i < PIECE ? n : i + PIECE;                                                               \
            int32_t outside = 0;                                                                                       \
            for (int64_t k = i; k < end; k++)                                                                          \
                outside |= !(ABS(left[k]) < LIMIT * ABS(right[k]));                                                    \
            if (!outside) {                                                                                            \
                op##_near_##S(end - i, o + i, left + i, right + i, c, p);                                              \
                continue;                                                                                              \
            }                                                                                                          \
            for (int64_t k = i; k < end; k++) {                                                                        \
                T x = left[k], y = right[k];                                                                           \
                o[k] = any;                                                                                            \
            }                                                                                                          \
        }                                                                                                              \
    }
#define DIVISIONS(S, T, ABS, LIMIT)                                                                                    \
    DIVISION(FMOD, S, T, ABS, LIMIT, yk__rest_near_##S(x, y), fmod_##S(x, y))                                          \
    DIVISION(REMAINDER, S, T, ABS, LIMIT, yk__remainder_by_##S(yk__rest_near_##S(x, y), y), yk__remainder_##S(x, y))   \
    DIVISION(FLOOR_DIVIDE, S, T, ABS, LIMIT, yk__floor_divide_by_##S(yk__rest_near_##S(x, y), x, y),                   \
             yk__floor_divide_##S(x, y))
DIVISIONS(f32, float, fabsf, YK__QUOTIENT_LIMIT_F32)
#if defined(__FMA__) || defined(__aarch64__)
DIVISIONS(f64, double, fabs, YK__QUOTIENT_LIMIT_F64)
#else /* a call for every element either way */
YK__DIVIDING_BINARY(BINARY_F64, YK__F64)
#endif

YK__WHOLE_BINARY(BINARY_I64)
YK__WHOLE_BINARY(BINARY_I32)
YK__WHOLE_BINARY(BINARY_U8)

#define BINARY_F16(op, expression)  YK__HALF_BINARY(op##_f16, f16, expression)
#define BINARY_BF16(op, expression) YK__HALF_BINARY(op##_bf16, bf16, expression)
YK__CHEAP_BINARY(BINARY_F16, YK__F32)
YK__CHEAP_BINARY(BINARY_BF16, YK__F32)

#define TRUTH_F32(op, expression) BINARY_LOOP(op##_f32, float, float, uint8_t, YK__TO_ITSELF, expression)
#define TRUTH_F64(op, expression) BINARY_LOOP(op##_f64, double, double, uint8_t, YK__TO_ITSELF, expression)
#define TRUTH_I64(op, expression) BINARY_LOOP(op##_i64, int64_t, int64_t, uint8_t, YK__TO_I64, expression)
#define TRUTH_I32(op, expression) BINARY_LOOP(op##_i32, int32_t, int32_t, uint8_t, YK__TO_I32, expression)
#define TRUTH_U8(op, expression)  BINARY_LOOP(op##_u8, uint8_t, uint8_t, uint8_t, YK__TO_I32, expression)
YK__TRUTH_BINARY(TRUTH_F32)
YK__TRUTH_BINARY(TRUTH_F64)
YK__TRUTH_BINARY(TRUTH_I64)
YK__TRUTH_BINARY(TRUTH_I32)
YK__TRUTH_BINARY(TRUTH_U8)

#define ENTRY_BOOL(op, expression) [YK__##op][YK_BOOL] = op##_u8,

/* clang-format off */
static const yk__apply_fn kernels[YK__BINARY_KERNELS][YK__DTYPES] = {
    YK__REAL_BINARY(YK__ENTRY_F32, YK__F32) YK__REAL_BINARY(YK__ENTRY_F64, YK__F64)
    YK__CHEAP_BINARY(YK__ENTRY_F16, YK__F32) YK__CHEAP_BINARY(YK__ENTRY_BF16, YK__F32)
    YK__WHOLE_BINARY(YK__ENTRY_I64) YK__WHOLE_BINARY(YK__ENTRY_I32) YK__WHOLE_BINARY(YK__ENTRY_U8)
    YK__TRUTH_BINARY(YK__ENTRY_F32) YK__TRUTH_BINARY(YK__ENTRY_F64) YK__TRUTH_BINARY(YK__ENTRY_I64)
    YK__TRUTH_BINARY(YK__ENTRY_I32) YK__TRUTH_BINARY(YK__ENTRY_U8) YK__TRUTH_BINARY(ENTRY_BOOL)
    [YK__ADD][YK_BOOL] = OR_u8, [YK__PLUS][YK_BOOL] = OR_u8, [YK__MAXIMUM][YK_BOOL] = OR_u8,
    [YK__MUL][YK_BOOL] = AND_u8, [YK__MINIMUM][YK_BOOL] = AND_u8,
};

#define ENTRY_A_F32(op, expression) [YK__##op][0] = op##_one_a_f32,
#define ENTRY_A_F64(op, expression) [YK__##op][1] = op##_one_a_f64,
#define ENTRY_B_F32(op, expression) [YK__##op][0] = op##_one_b_f32,
#define ENTRY_B_F64(op, expression) [YK__##op][1] = op##_one_b_f64,
/* Kernels one of whose operands is a single number, the first or the second, of f32 and f64. */
static const yk__apply_fn kernels_one_a[YK__BINARY_KERNELS][2] = {
    YK__REAL_ARITHMETIC(ENTRY_A_F32, YK__F32) YK__REAL_ARITHMETIC(ENTRY_A_F64, YK__F64)
};
static const yk__apply_fn kernels_one_b[YK__BINARY_KERNELS][2] = {
    YK__REAL_ARITHMETIC(ENTRY_B_F32, YK__F32) YK__REAL_ARITHMETIC(ENTRY_B_F64, YK__F64)
};
/* clang-format on */

static yk_status binary(int device, yk__binary op, const yk__view *out, const yk__view *a, const yk__view *b,
                        double alpha)
{
    int kernel = yk__binary_kernel(op, alpha);
    yk__apply_fn fn = kernels[kernel][a->dtype];
    bool half = !fn && (a->dtype == YK_F16 || a->dtype == YK_BF16);
    fn = half ? kernels[kernel][YK_F32] : fn;
    if (!fn)
        return yk__fail(YK_ERR_DTYPE, "%s: not defined for %s", yk__binary_name(op), yk_dtype_name(a->dtype));
    const yk__view *views[] = {out, a, b};
    yk__apply apply = {.fn = fn, .p = &alpha, .operands = 3};
    if (a->dtype == YK_F32 || a->dtype == YK_F64) {
        apply.one_a = kernels_one_a[kernel][a->dtype == YK_F64];
        apply.one_b = kernels_one_b[kernel][a->dtype == YK_F64];
        yk__apply_fn past = past_caches(kernel, out, a, b);
        apply.fn = past ? past : apply.fn;
    }
    if (half)
        YK__ISA_NAME(yk__cpu_apply_halves)(device, &apply, views);
    else
        yk__apply_all(device, &apply, views);
    return YK_OK;
}

#define TERNARY_LOOP(name, T, expression)                                                                              \
    static void name(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)               \
    {                                                                                                                  \
        T value = (T)p[0];                                                                                             \
        (void)value;                                                                                                   \
        T *o = out;                                                                                                    \
        const T *first = a, *second = b, *third = c;                                                                   \
        YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                \
        {                                                                                                              \
            T x = first[i], y = second[i], z = third[i];                                                               \
            o[i] = expression;                                                                                         \
        }                                                                                                              \
    }
#define TERNARY_F32(op, expression) TERNARY_LOOP(op##_f32, float, expression)
#define TERNARY_F64(op, expression) TERNARY_LOOP(op##_f64, double, expression)
YK__REAL_TERNARY(TERNARY_F32, YK__F32)
YK__REAL_TERNARY(TERNARY_F64, YK__F64)

static yk_status ternary(int device, yk__ternary op, const yk__view *out, const yk__view *a, const yk__view *b,
                         const yk__view *c, double value)
{
    static const yk__apply_fn of[][YK__DTYPES] = {YK__REAL_TERNARY(YK__ENTRY_F32, YK__F32)
                                                      YK__REAL_TERNARY(YK__ENTRY_F64, YK__F64)};
    const yk__view *views[] = {out, a, b, c};
    yk__apply_views(device, of[op][out->dtype], 4, views, &value);
    return YK_OK;
}

#define WHERE(name, T)                                                                                                 \
    static void name(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)               \
    {                                                                                                                  \
        (void)p;                                                                                                       \
        T *o = out;                                                                                                    \
        const uint8_t *condition = a;                                                                                  \
        const T *yes = b, *no = c;                                                                                     \
        YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                \
        {                                                                                                              \
            T x = yes[i], y = no[i];                                                                                   \
            o[i] = condition[i] ? x : y;                                                                               \
        }                                                                                                              \
    }
WHERE(where_8, yk__raw8)
WHERE(where_16, yk__raw16)
WHERE(where_32, yk__raw32)
WHERE(where_64, yk__raw64)

static yk_status where(int device, const yk__view *out, const yk__view *condition, const yk__view *a, const yk__view *b)
{
    const yk__view *views[] = {out, condition, a, b};
    size_t size = yk_dtype_size(out->dtype);
    yk__apply_fn fn = size == 1 ? where_8 : size == 2 ? where_16 : size == 4 ? where_32 : where_64;
    yk__apply_views(device, fn, 4, views, NULL);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_binary)(yk__backend *table)
{
    table->binary = binary;
    table->ternary = ternary;
    table->where = where;
}
