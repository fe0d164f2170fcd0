/*
 * unary.c - the slot unary. Layer: device/cpu.
 *
 * Every operation is one expression of x, p0 and p1 on a contiguous run (iterate.h); the same expression serves f32
 * and f64. What an operation does not take (sqrt of an integer) has no entry and is an error.
 */
#include "device/cpu/convert.h"
#include "device/cpu/elementwise.h"
#include "device/cpu/iterate.h"
#include "device/cpu/vmath.h"

/* clang-format off */
#define MIN(x, y) ((x) > (y) ? (y) : (x)) /* x where it is NaN */

/* ---- real numbers; F(f) is f for float and double ---- */
#define REAL_OPS(X, F)                                                                                                 \
    X(NEG, -x)                                                                                                         \
    X(ABS, F(fabs)(x))                                                                                                 \
    X(EXP, F(yk__exp)(x))                                                                                              \
    X(LOG, F(yk__log)(x))                                                                                              \
    X(SQRT, F(sqrt)(x))                                                                                                \
    X(RSQRT, 1 / F(sqrt)(x))                                                                                           \
    X(RECIPROCAL, 1 / x)                                                                                               \
    X(SIN, F(sin)(x))                                                                                                  \
    X(COS, F(cos)(x))                                                                                                  \
    X(TANH, F(yk__tanh)(x))                                                                                            \
    X(SIGMOID, F(yk__sigmoid)(x))                                                                                      \
    X(RELU, x < 0 ? 0 : x)                                                                                             \
    X(GELU, F(yk__gelu)(x))                                                                                            \
    X(SIGN, x > 0 ? 1 : x < 0 ? -1 : 0)                                                                                \
    X(FLOOR, F(floor)(x))                                                                                              \
    X(CEIL, F(ceil)(x))                                                                                                \
    X(ROUND, F(rint)(x))                                                                                               \
    X(ADD_SCALAR, x + p0)                                                                                              \
    X(MUL_SCALAR, x * p0)                                                                                              \
    X(POW_SCALAR, F(pow)(x, p0))                                                                                       \
    X(SQUARE, x * x)                                                                                                   \
    X(CUBE, x * x * x)                                                                                                 \
    X(CLAMP, x < p0 ? MIN(p0, p1) : MIN(x, p1))

/* ---- integers, computed as i64; W(x) is x as an unsigned number, which wraps ---- */
#define W(x) (uint64_t)(x)
#define WHOLE_OPS(X)                                                                                                   \
    X(NEG, 0 - W(x))                                                                                                   \
    X(ABS, x < 0 ? 0 - W(x) : W(x))                                                                                    \
    X(RELU, x < 0 ? 0 : x)                                                                                             \
    X(SIGN, x > 0 ? 1 : x < 0 ? -1 : 0)                                                                                \
    X(FLOOR, x)                                                                                                        \
    X(CEIL, x)                                                                                                         \
    X(ROUND, x)                                                                                                        \
    X(ADD_SCALAR, W(x) + W(p0))                                                                                        \
    X(MUL_SCALAR, W(x) * W(p0))                                                                                        \
    X(POW_SCALAR, yk__power(x, p0))                                                                                    \
    X(CLAMP, x < p0 ? MIN(p0, p1) : MIN(x, p1))

/* clang-format on */

#define TO_ITSELF(x) (x)
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

#define fabs_f32                  fabsf
#define sqrt_f32                  sqrtf
#define sin_f32                   sinf
#define cos_f32                   cosf
#define floor_f32                 floorf
#define ceil_f32                  ceilf
#define rint_f32                  rintf
#define pow_f32                   powf
#define F32(f)                    f##_f32
#define UNARY_F32(op, expression) UNARY_LOOP(op##_f32, float, float, float, TO_ITSELF, expression)
REAL_OPS(UNARY_F32, F32)

#define fabs_f64                  fabs
#define sqrt_f64                  sqrt
#define sin_f64                   sin
#define cos_f64                   cos
#define floor_f64                 floor
#define ceil_f64                  ceil
#define rint_f64                  rint
#define pow_f64                   pow
#define F64(f)                    f##_f64
#define UNARY_F64(op, expression) UNARY_LOOP(op##_f64, double, double, double, TO_ITSELF, expression)
REAL_OPS(UNARY_F64, F64)

#define UNARY_I64(op, expression) UNARY_LOOP(op##_i64, int64_t, int64_t, int64_t, YK__TO_I64, expression)
#define UNARY_I32(op, expression) UNARY_LOOP(op##_i32, int32_t, int64_t, int32_t, YK__TO_I64, expression)
#define UNARY_U8(op, expression)  UNARY_LOOP(op##_u8, uint8_t, int64_t, uint8_t, YK__TO_I64, expression)
WHOLE_OPS(UNARY_I64)
WHOLE_OPS(UNARY_I32)
WHOLE_OPS(UNARY_U8)

UNARY_LOOP(LOGICAL_NOT_f32, float, float, uint8_t, TO_ITSELF, x == 0)
UNARY_LOOP(LOGICAL_NOT_f64, double, double, uint8_t, TO_ITSELF, x == 0)
UNARY_LOOP(LOGICAL_NOT_i64, int64_t, int64_t, uint8_t, YK__TO_I64, x == 0)
UNARY_LOOP(LOGICAL_NOT_i32, int32_t, int64_t, uint8_t, YK__TO_I64, x == 0)
UNARY_LOOP(LOGICAL_NOT_u8, uint8_t, int64_t, uint8_t, YK__TO_I64, x == 0)
UNARY_LOOP(IS_FINITE_f32, float, float, uint8_t, TO_ITSELF, fabsf(x) <= FLT_MAX)
UNARY_LOOP(IS_FINITE_f64, double, double, uint8_t, TO_ITSELF, fabs(x) <= DBL_MAX)

#define ENTRY_F32(op, expression) [YK__##op][YK_F32] = op##_f32,
#define ENTRY_F64(op, expression) [YK__##op][YK_F64] = op##_f64,
#define ENTRY_I64(op, expression) [YK__##op][YK_I64] = op##_i64,
#define ENTRY_I32(op, expression) [YK__##op][YK_I32] = op##_i32,
#define ENTRY_U8(op, expression)  [YK__##op][YK_U8] = op##_u8,

/* Powers that have a shorter way; chosen by the exponent, as PyTorch does. */
enum { YK__SQUARE = YK__CLAMP + 1, YK__CUBE, OPS };

/* clang-format off */
static const yk__apply_fn kernels[OPS][YK__DTYPES] = {
    REAL_OPS(ENTRY_F32, F32) REAL_OPS(ENTRY_F64, F64)
    WHOLE_OPS(ENTRY_I64) WHOLE_OPS(ENTRY_I32) WHOLE_OPS(ENTRY_U8)
    [YK__LOGICAL_NOT] = {[YK_F32] = LOGICAL_NOT_f32, [YK_F64] = LOGICAL_NOT_f64, [YK_I64] = LOGICAL_NOT_i64,
                         [YK_I32] = LOGICAL_NOT_i32, [YK_U8] = LOGICAL_NOT_u8, [YK_BOOL] = LOGICAL_NOT_u8},
    [YK__IS_FINITE] = {[YK_F32] = IS_FINITE_f32, [YK_F64] = IS_FINITE_f64},
};
static const char *const names[] = {
    "neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "sigmoid", "relu", "gelu", "sign",
    "floor", "ceil", "round", "logical_not", "isfinite", "add", "mul", "pow", "clamp",
};
/* clang-format on */

static yk_status unary(int device, yk__unary op, const yk__view *out, const yk__view *in, double p0, double p1)
{
    int kernel = (int)op;
    if (op == YK__POW_SCALAR && yk_dtype_is_floating(in->dtype))
        kernel = p0 == 2.0    ? YK__SQUARE
                 : p0 == 3.0  ? YK__CUBE
                 : p0 == 0.5  ? YK__SQRT
                 : p0 == -0.5 ? YK__RSQRT
                 : p0 == -1.0 ? YK__RECIPROCAL
                              : YK__POW_SCALAR;
    if (!kernels[kernel][in->dtype])
        return yk__fail(YK_ERR_DTYPE, "%s: not defined for %s", names[op], yk_dtype_name(in->dtype));
    const yk__view *views[] = {out, in};
    double p[] = {p0, p1};
    yk__apply_views(device, kernels[kernel][in->dtype], 2, views, p);
    return YK_OK;
}

void YK__ISA_NAME(yk__cpu_fill_unary)(yk__backend *table)
{
    table->unary = unary;
}
