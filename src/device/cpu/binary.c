/*
 * binary.c - the slots binary and where. Layer: device/cpu.
 *
 * As in unary.c, every operation is one expression, of x, y and alpha. Comparisons and logic give bool. bool takes
 * part in comparisons and logic, and its sum, product, maximum and minimum are or, and, or, and.
 */
#include "device/cpu/convert.h"
#include "device/cpu/elementwise.h"
#include "device/cpu/iterate.h"
#include "device/cpu/vmath.h"

/* clang-format off */
#define REAL_OPS(X, F)                                                                                                 \
    X(ADD, x + alpha * y)                                                                                              \
    X(PLUS, x + y)                                                                                                     \
    X(SUB, x - alpha * y)                                                                                              \
    X(MUL, x * y)                                                                                                      \
    X(DIV, x / y)                                                                                                      \
    X(POW, F(pow)(x, y))                                                                                               \
    X(MAXIMUM, x > y || x != x ? x : y)                                                                                \
    X(MINIMUM, x < y || x != x ? x : y)                                                                                \
    X(RELU_GRAD, y <= 0 ? 0 : x)                                                                                       \
    X(TANH_GRAD, x * (1 - y * y))                                                                                      \
    X(SIGMOID_GRAD, x * ((1 - y) * y))                                                                                 \
    X(GELU_GRAD, x * F(yk__gelu_grad)(y))                                                                              \
    X(ABS_GRAD, x * (y > 0 ? 1 : y < 0 ? -1 : 0))

/* Integers, computed as i64; W(x) is x as an unsigned number, which wraps. */
#define W(x) (uint64_t)(x)
#define WHOLE_OPS(X)                                                                                                   \
    X(ADD, W(x) + W(alpha) * W(y))                                                                                     \
    X(PLUS, W(x) + W(y))                                                                                               \
    X(SUB, W(x) - W(alpha) * W(y))                                                                                     \
    X(MUL, W(x) * W(y))                                                                                                \
    X(POW, yk__power(x, y))                                                                                            \
    X(MAXIMUM, x > y ? x : y)                                                                                          \
    X(MINIMUM, x < y ? x : y)

#define TRUTH_OPS(X)                                                                                                   \
    X(EQ, x == y)                                                                                                      \
    X(NE, x != y)                                                                                                      \
    X(LT, x < y)                                                                                                       \
    X(LE, x <= y)                                                                                                      \
    X(GT, x > y)                                                                                                       \
    X(GE, x >= y)                                                                                                      \
    X(AND, (x != 0) & (y != 0))                                                                                        \
    X(OR, (x != 0) | (y != 0))

/* clang-format on */

#define TO_ITSELF(x) (x)
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

#define pow_f32 powf
#define pow_f64 pow
#define F32(f)  f##_f32
#define F64(f)  f##_f64

#define BINARY_F32(op, expression) BINARY_LOOP(op##_f32, float, float, float, TO_ITSELF, expression)
#define BINARY_F64(op, expression) BINARY_LOOP(op##_f64, double, double, double, TO_ITSELF, expression)
#define BINARY_I64(op, expression) BINARY_LOOP(op##_i64, int64_t, int64_t, int64_t, YK__TO_I64, expression)
#define BINARY_I32(op, expression) BINARY_LOOP(op##_i32, int32_t, int64_t, int32_t, YK__TO_I64, expression)
#define BINARY_U8(op, expression)  BINARY_LOOP(op##_u8, uint8_t, int64_t, uint8_t, YK__TO_I64, expression)
REAL_OPS(BINARY_F32, F32)
REAL_OPS(BINARY_F64, F64)
WHOLE_OPS(BINARY_I64)
WHOLE_OPS(BINARY_I32)
WHOLE_OPS(BINARY_U8)

#define TRUTH_F32(op, expression) BINARY_LOOP(op##_f32, float, float, uint8_t, TO_ITSELF, expression)
#define TRUTH_F64(op, expression) BINARY_LOOP(op##_f64, double, double, uint8_t, TO_ITSELF, expression)
#define TRUTH_I64(op, expression) BINARY_LOOP(op##_i64, int64_t, int64_t, uint8_t, YK__TO_I64, expression)
#define TRUTH_I32(op, expression) BINARY_LOOP(op##_i32, int32_t, int32_t, uint8_t, YK__TO_I32, expression)
#define TRUTH_U8(op, expression)  BINARY_LOOP(op##_u8, uint8_t, uint8_t, uint8_t, YK__TO_I32, expression)
TRUTH_OPS(TRUTH_F32)
TRUTH_OPS(TRUTH_F64)
TRUTH_OPS(TRUTH_I64)
TRUTH_OPS(TRUTH_I32)
TRUTH_OPS(TRUTH_U8)

#define ENTRY_F32(op, expression)  [YK__##op][YK_F32] = op##_f32,
#define ENTRY_F64(op, expression)  [YK__##op][YK_F64] = op##_f64,
#define ENTRY_I64(op, expression)  [YK__##op][YK_I64] = op##_i64,
#define ENTRY_I32(op, expression)  [YK__##op][YK_I32] = op##_i32,
#define ENTRY_U8(op, expression)   [YK__##op][YK_U8] = op##_u8,
#define ENTRY_BOOL(op, expression) [YK__##op][YK_BOOL] = op##_u8,

/* The sum with alpha 1: saves a product, and NaN from alpha times infinity cannot arise. */
enum { YK__PLUS = YK__ABS_GRAD + 1, OPS };

/* clang-format off */
static const yk__apply_fn kernels[OPS][YK__DTYPES] = {
    REAL_OPS(ENTRY_F32, F32) REAL_OPS(ENTRY_F64, F64)
    WHOLE_OPS(ENTRY_I64) WHOLE_OPS(ENTRY_I32) WHOLE_OPS(ENTRY_U8)
    TRUTH_OPS(ENTRY_F32) TRUTH_OPS(ENTRY_F64) TRUTH_OPS(ENTRY_I64) TRUTH_OPS(ENTRY_I32) TRUTH_OPS(ENTRY_U8)
    TRUTH_OPS(ENTRY_BOOL)
    [YK__ADD][YK_BOOL] = OR_u8, [YK__PLUS][YK_BOOL] = OR_u8, [YK__MAXIMUM][YK_BOOL] = OR_u8,
    [YK__MUL][YK_BOOL] = AND_u8, [YK__MINIMUM][YK_BOOL] = AND_u8,
};
static const char *const names[] = {
    "add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and",
    "logical_or", "relu_backward", "tanh_backward", "sigmoid_backward", "gelu_backward", "abs_backward",
};
/* clang-format on */

static yk_status binary(int device, yk__binary op, const yk__view *out, const yk__view *a, const yk__view *b,
                        double alpha)
{
    int kernel = op == YK__ADD && alpha == 1.0 ? (int)YK__PLUS : (int)op;
    if (!kernels[kernel][a->dtype])
        return yk__fail(YK_ERR_DTYPE, "%s: not defined for %s", names[op], yk_dtype_name(a->dtype));
    const yk__view *views[] = {out, a, b};
    yk__apply_views(device, kernels[kernel][a->dtype], 3, views, &alpha);
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
    table->where = where;
}
