/*
 * unary.c - the slot unary. Layer: device/cpu.
 *
 * The expressions of elementwise_ops.h on contiguous runs (iterate.h). What an operation does not take (sqrt of an
 * integer) has no entry and is an error.
 */
#include "device/convert.h"
#include "device/cpu/elementwise/elementwise.h"
#include "device/cpu/halves.h"
#include "device/cpu/iterate.h"
#include "device/elementwise_ops.h"
#include "device/scalar_math.h"

#define UNARY_LOOP(name, In, T, Out, SCALAR, expression)                                                               \
    static void name(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)               \
    {                                                                                                                  \
        (void)b, (void)c;                                                                                              \
        T p0 = (T)SCALAR(p[0]), p1 = (T)SCALAR(p[1]);                                                                  \
        (void)p0, (void)p1;                                                                                            \
        Out *o = out;                                                                                                  \
        const In *in = a;                                                                                              \
        YK__INDEPENDENT for (int64_t i = 0; i < n; i++)                                                                \
        {                                                                                                              \
            T x = in[i];                                                                                               \
            o[i] = (Out)(expression);                                                                                  \
        }                                                                                                              \
    }

#define UNARY_F32(op, expression) UNARY_LOOP(op##_f32, float, float, float, YK__TO_ITSELF, expression)
YK__REAL_UNARY(UNARY_F32, YK__F32)

#define UNARY_F64(op, expression) UNARY_LOOP(op##_f64, double, double, double, YK__TO_ITSELF, expression)
YK__REAL_UNARY(UNARY_F64, YK__F64)

/* Arguments beyond the limit, infinities and NaN go to libm one by one; they are rare enough to be looked for. */
#define TRIGONOMETRIC(op, S, T, ABS, LIMIT, near, any)                                                                 \
    UNARY_LOOP(op##_near_##S, T, T, T, YK__TO_ITSELF, near##_##S(x))                                                   \
    static void op##_##S(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)           \
    {                                                                                                                  \
        enum { PIECE = 512 };                                                                                          \
        const T *x = a;                                                                                                \
        T *o = out;                                                                                                    \
        for (int64_t i = 0; i < n; i += PIECE) {                                                                       \
            int64_t end = n - i < PIECE ? n : i + PIECE;                                                               \
            int32_t outside = 0;                                                                                       \
            for (int64_t k = i; k < end; k++)                                                                          \
                outside |= !(ABS(x[k]) <= LIMIT);                                                                      \
            if (!outside)                                                                                              \
                op##_near_##S(end - i, o + i, x + i, b, c, p);                                                         \
            else                                                                                                       \
                for (int64_t k = i; k < end; k++)                                                                      \
                    o[k] = any##_##S(x[k]);                                                                            \
        }                                                                                                              \
    }
TRIGONOMETRIC(SIN, f32, float, fabsf, YK__TRIG_LIMIT, yk__sin_near, yk__sin)
TRIGONOMETRIC(COS, f32, float, fabsf, YK__TRIG_LIMIT, yk__cos_near, yk__cos)
TRIGONOMETRIC(TAN, f32, float, fabsf, YK__TRIG_LIMIT, yk__tan_near, yk__tan)
TRIGONOMETRIC(SIN, f64, double, fabs, YK__TRIG_LIMIT_F64, yk__sin_near, yk__sin)
TRIGONOMETRIC(COS, f64, double, fabs, YK__TRIG_LIMIT_F64, yk__cos_near, yk__cos)
TRIGONOMETRIC(TAN, f64, double, fabs, YK__TRIG_LIMIT_F64, yk__tan_near, yk__tan)

/* The exponent is read from memory, as the base is: with a constant one GCC 12 leaves the loop scalar. */
#define POWER(S, T)                                                                                                    \
    static void POW_SCALAR_##S(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)     \
    {                                                                                                                  \
        (void)b, (void)c;                                                                                              \
        enum { PIECE = 128 };                                                                                          \
        T exponent[PIECE];                                                                                             \
        const T *x = a;                                                                                                \
        T *o = out;                                                                                                    \
        for (int k = 0; k < PIECE; k++)                                                                                \
            exponent[k] = (T)p[0];                                                                                     \
        for (int64_t i = 0; i < n; i += PIECE) {                                                                       \
            int64_t end = n - i < PIECE ? n : i + PIECE;                                                               \
            YK__INDEPENDENT for (int64_t k = i; k < end; k++)                                                          \
            {                                                                                                          \
                o[k] = yk__pow_##S(x[k], exponent[k - i]);                                                             \
            }                                                                                                          \
        }                                                                                                              \
    }
POWER(f32, float)
POWER(f64, double)

#define UNARY_I64(op, expression) UNARY_LOOP(op##_i64, int64_t, int64_t, int64_t, YK__TO_I64, expression)
#define UNARY_I32(op, expression) UNARY_LOOP(op##_i32, int32_t, int64_t, int32_t, YK__TO_I64, expression)
#define UNARY_U8(op, expression)  UNARY_LOOP(op##_u8, uint8_t, int64_t, uint8_t, YK__TO_I64, expression)
#define ORDER_I32(op, expression) UNARY_LOOP(op##_i32, int32_t, int32_t, int32_t, YK__TO_I32, expression)
#define ORDER_U8(op, expression)  UNARY_LOOP(op##_u8, uint8_t, int32_t, uint8_t, YK__TO_I32, expression)
YK__WHOLE_UNARY(UNARY_I64)
YK__WIDE_UNARY(UNARY_I32)
YK__WIDE_UNARY(UNARY_U8)
YK__CLAMP_UNARY(UNARY_I32)
YK__CLAMP_UNARY(UNARY_U8)
YK__ORDER_UNARY(ORDER_I32)
YK__ORDER_UNARY(ORDER_U8)

/* A clamp between numbers of the dtype itself needs no wider type. */
#define NARROW_CLAMP(S, T, TO, LOW, HIGH)                                                                              \
    UNARY_LOOP(CLAMP_within_##S, T, T, T, TO, x < p0 ? YK__LESSER(p0, p1) : YK__LESSER(x, p1))                         \
    static void CLAMP_any_##S(int64_t n, void *out, const void *a, const void *b, const void *c, const double *p)      \
    {                                                                                                                  \
        bool within = p[0] >= LOW && p[0] <= HIGH && p[1] >= LOW && p[1] <= HIGH;                                      \
        (within ? CLAMP_within_##S : CLAMP_##S)(n, out, a, b, c, p);                                                   \
    }
NARROW_CLAMP(i32, int32_t, YK__TO_I32, INT32_MIN, INT32_MAX)
NARROW_CLAMP(u8, uint8_t, (uint8_t)YK__TO_I32, 0, UINT8_MAX)

#define UNARY_F16(op, expression)  YK__HALF_UNARY(op##_f16, f16, expression)
#define UNARY_BF16(op, expression) YK__HALF_UNARY(op##_bf16, bf16, expression)
YK__CHEAP_UNARY(UNARY_F16, YK__F32)
YK__CHEAP_UNARY(UNARY_BF16, YK__F32)
/* The sign is the same bit in both. */
UNARY_LOOP(NEG_half, uint16_t, uint16_t, uint16_t, YK__TO_I32, x ^ 0x8000u)
UNARY_LOOP(ABS_half, uint16_t, uint16_t, uint16_t, YK__TO_I32, x & 0x7FFFu)

UNARY_LOOP(LOGICAL_NOT_f32, float, float, uint8_t, YK__TO_ITSELF, x == 0)
UNARY_LOOP(LOGICAL_NOT_f64, double, double, uint8_t, YK__TO_ITSELF, x == 0)
UNARY_LOOP(LOGICAL_NOT_i64, int64_t, int64_t, uint8_t, YK__TO_I64, x == 0)
UNARY_LOOP(LOGICAL_NOT_i32, int32_t, int64_t, uint8_t, YK__TO_I64, x == 0)
UNARY_LOOP(LOGICAL_NOT_u8, uint8_t, int64_t, uint8_t, YK__TO_I64, x == 0)
UNARY_LOOP(IS_FINITE_f32, float, float, uint8_t, YK__TO_ITSELF, fabsf(x) <= FLT_MAX)
UNARY_LOOP(IS_FINITE_f64, double, double, uint8_t, YK__TO_ITSELF, fabs(x) <= DBL_MAX)

/* clang-format off */
static const yk__apply_fn kernels[YK__UNARY_KERNELS][YK__DTYPES] = {
    YK__REAL_UNARY(YK__ENTRY_F32, YK__F32) YK__REAL_UNARY(YK__ENTRY_F64, YK__F64)
    YK__REAL_UNARY_WITH_CALLS(YK__ENTRY_F32, YK__F32) YK__REAL_UNARY_WITH_CALLS(YK__ENTRY_F64, YK__F64)
    YK__WHOLE_UNARY(YK__ENTRY_I64) YK__ORDER_UNARY(YK__ENTRY_I32) YK__ORDER_UNARY(YK__ENTRY_U8)
    YK__CHEAP_UNARY(YK__ENTRY_F16, YK__F32) YK__CHEAP_UNARY(YK__ENTRY_BF16, YK__F32)
    YK__WIDE_UNARY(YK__ENTRY_I32) YK__WIDE_UNARY(YK__ENTRY_U8)
    [YK__CLAMP][YK_I32] = CLAMP_any_i32, [YK__CLAMP][YK_U8] = CLAMP_any_u8,
    [YK__NEG][YK_F16] = NEG_half, [YK__NEG][YK_BF16] = NEG_half,
    [YK__ABS][YK_F16] = ABS_half, [YK__ABS][YK_BF16] = ABS_half,
    [YK__LOGICAL_NOT] = {[YK_F32] = LOGICAL_NOT_f32, [YK_F64] = LOGICAL_NOT_f64, [YK_I64] = LOGICAL_NOT_i64,
                         [YK_I32] = LOGICAL_NOT_i32, [YK_U8] = LOGICAL_NOT_u8, [YK_BOOL] = LOGICAL_NOT_u8},
    [YK__IS_FINITE] = {[YK_F32] = IS_FINITE_f32, [YK_F64] = IS_FINITE_f64},
};
/* clang-format on */

static yk_status unary(int device, yk__unary op, const yk__view *out, const yk__view *in, double p0, double p1)
{
    int kernel = yk__unary_kernel(op, in->dtype, p0);
    yk__apply_fn fn = kernels[kernel][in->dtype];
    bool half = !fn && (in->dtype == YK_F16 || in->dtype == YK_BF16);
    fn = half ? kernels[kernel][YK_F32] : fn;
    if (!fn)
        return yk__fail(YK_ERR_DTYPE, "%s: not defined for %s", yk__unary_name(op), yk_dtype_name(in->dtype));
    const yk__view *views[] = {out, in};
    double p[] = {p0, p1};
    yk__apply apply = {.fn = fn, .p = p, .operands = 2};
    if (half)
        YK__ISA_NAME(yk__cpu_apply_halves)(device, &apply, views);
    else
        yk__apply_all(device, &apply, views);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_unary)(yk__backend *table)
{
    table->unary = unary;
}
