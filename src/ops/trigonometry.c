/*
 * trigonometry.c - tangents, inverse and hyperbolic functions, logarithms to the bases 2 and 10. Layer: ops.
 *
 * Each has a kernel, or is made of kernels, in f32 for f16 and bf16, so that it is rounded once, and none of them is
 * recorded: the function is one operation, with a derivative of recorded operations that reads x alone. Forms are
 * chosen so that neither small arguments lose digits (expm1, log1p) nor large ones overflow before the result does.
 */
#include <math.h>

#include "ops/cast_policy.h"

enum { PART = 1 << 14 /* elements that a thread's caches hold several times */ };

typedef struct smooth_row {
    yk__op op;
    yk_tensor *(*forward)(yk_tensor *x); /* of wide, floating x; NULL where there is a kernel */
    yk_tensor *(*slope)(yk_tensor *x);   /* the derivative at x, likewise */
    yk__unary kernel;
} smooth_row;

static void smooth_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const smooth_row *row = *(const smooth_row *const *)yk__context(node);
    yk_tensor *x = yk__recorded_wide(yk__saved_in_graph(node, 0)), *slope = x ? row->slope(x) : NULL;
    grads[0] = slope ? yk_cast(yk_mul(yk__recorded_wide(gouts[0]), slope), (yk_dtype)gouts[0]->dtype) : NULL;
}

/* The function of a part of x at a time, so that what is made on the way stays in the caches; for each thread as much.
 */
static yk_tensor *smooth_by_parts(const smooth_row *row, yk_tensor *x, int64_t most)
{
    yk_tensor *out = yk__tensor_new(x->ndim, x->shape, NULL, (yk_dtype)x->dtype, yk__device_of(x));
    yk_status status = yk__status_of(out);
    const int64_t one = 1;
    for (int64_t at = 0; at < x->numel && !status; at += most) {
        yk_scope scope = yk_scope_begin();
        int64_t size = x->numel - at < most ? x->numel - at : most;
        yk_tensor *part = yk__tensor_view(x, 1, &size, &one, at), *to = yk__tensor_view(out, 1, &size, &one, at);
        yk_tensor *made = part && to ? row->forward(part) : NULL;
        status = made ? yk__raw_copy(to, made) : yk__status_of(NULL);
        yk_tensor_release(part);
        yk_tensor_release(to);
        yk_scope_end(scope);
    }
    return out ? yk__scope_own(yk__tensor_if_ok(out, status)) : NULL;
}

/* The function of x, without a history and heard by nobody. */
static yk_tensor *smooth_forward(const smooth_row *row, yk_tensor *x)
{
    yk__listener *listener = yk__listening;
    uint32_t cast_types = yk__autocast_pause();
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk__listening = NULL;
    yk_tensor *wide = yk_cast(x, yk__wide_dtype(x)), *out = NULL;
    const int64_t most = (int64_t)PART * yk_get_num_threads(yk__device_of(x));
    if (wide && wide->numel > 2 * most && yk__device_of(x).type == YK_CPU && yk_is_contiguous(wide))
        out = smooth_by_parts(row, wide, most);
    else if (wide)
        out = row->forward(wide);
    out = yk_cast(out, (yk_dtype)x->dtype);
    out = out ? yk_tensor_retain(out) : NULL;
    yk_scope_end(scope);
    yk_no_grad_end(before);
    yk__listening = listener;
    yk__autocast_types = cast_types;
    return out;
}

/* Integers and bool are cast to f32. */
static yk_tensor *smooth_apply(const smooth_row *row, yk_tensor *x)
{
    YK__EVENT(YK__EVENT_OPERATION, row->op.name);
    if (!yk__op_begin(row->op.name, 1, &x, 0))
        return NULL;
    if (!yk_dtype_is_floating((yk_dtype)x->dtype))
        x = yk_cast(x, YK_F32);
    yk_tensor *out = !x             ? NULL
                     : row->forward ? smooth_forward(row, x)
                                    : yk__raw_unary(row->op.name, row->kernel, x, 0, 0);
    return yk__record(out, &row->op, 1, &x, 1, &x, &row, sizeof(row));
}

/* ---- forms ---- */

static yk_tensor *like(yk_tensor *x, double value)
{
    return yk__recorded_number(x, value);
}

/* `size`, not negative, with the sign of x, also of a zero. */
static yk_tensor *with_sign_of(yk_tensor *size, yk_tensor *x)
{
    return yk_where(yk_eq(x, like(x, 0)), x, yk_mul(size, yk_sign(x)));
}

/* sqrt(1 - x^2), NaN outside [-1, 1]. */
static yk_tensor *other_side(yk_tensor *x)
{
    return yk_sqrt(yk_mul(yk_add_scalar(yk_neg(x), 1), yk_add_scalar(x, 1)));
}

static yk_tensor *half_exp(yk_tensor *size) /* exp(size / 2): its square overflows where exp(size) does */
{
    return yk_exp(yk_mul_scalar(size, 0.5));
}

/* The size above which the 1 in sqrt(x^2 + 1), and in sqrt(x^2 - 1), is less than rounding, in f64, too. */
static const double far_away = 1e9;

static yk_tensor *far_log(yk_tensor *size) /* log(2 size) */
{
    return yk_add_scalar(yk_log(size), M_LN2);
}

static yk_tensor *tan_slope(yk_tensor *x)
{
    return yk_add_scalar(yk_square(yk_tan(x)), 1);
}

static yk_tensor *asin_slope(yk_tensor *x)
{
    return yk_reciprocal(other_side(x));
}

static yk_tensor *acos_slope(yk_tensor *x)
{
    return yk_neg(asin_slope(x));
}

static yk_tensor *atan_forward(yk_tensor *x)
{
    return yk_atan2(x, like(x, 1));
}

static yk_tensor *atan_slope(yk_tensor *x)
{
    return yk_reciprocal(yk_add_scalar(yk_square(x), 1));
}

/* (e^x - e^-x) / 2; with e^x as a product of two roots where e^-x is nothing beside it. */
static yk_tensor *sinh_forward(yk_tensor *x)
{
    yk_tensor *size = yk_abs(x), *root = half_exp(size);
    yk_tensor *near = yk_mul_scalar(yk_sub(yk_expm1(x), yk_expm1(yk_neg(x))), 0.5);
    yk_tensor *far = yk_mul(yk_mul(yk_mul_scalar(root, 0.5), root), yk_sign(x));
    return yk_where(yk_gt(size, like(x, 20)), far, near);
}

/* e^x / 2 + e^-x / 2, of roots. */
static yk_tensor *cosh_forward(yk_tensor *x)
{
    yk_tensor *root = half_exp(yk_abs(x)), *half = yk_mul_scalar(root, 0.5);
    return yk_add(yk_mul(half, root), yk_div(yk_div(like(x, 0.5), root), root));
}

/* log(|x| + sqrt(x^2 + 1)) = log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))), odd. */
static yk_tensor *asinh_forward(yk_tensor *x)
{
    yk_tensor *size = yk_abs(x), *square = yk_square(x), *root = yk_sqrt(yk_add_scalar(square, 1));
    yk_tensor *near = yk_log1p(yk_add(size, yk_div(square, yk_add_scalar(root, 1))));
    return with_sign_of(yk_where(yk_gt(size, like(x, far_away)), far_log(size), near), x);
}

static yk_tensor *asinh_slope(yk_tensor *x)
{
    return yk_rsqrt(yk_add_scalar(yk_square(x), 1));
}

/* log(x + sqrt(x^2 - 1)) = log1p(t + sqrt(t) sqrt(t + 2)), t = x - 1; NaN below 1. */
static yk_tensor *acosh_forward(yk_tensor *x)
{
    yk_tensor *t = yk_add_scalar(x, -1);
    yk_tensor *near = yk_log1p(yk_add(t, yk_mul(yk_sqrt(t), yk_sqrt(yk_add_scalar(t, 2)))));
    return yk_where(yk_gt(x, like(x, far_away)), far_log(x), near);
}

static yk_tensor *acosh_slope(yk_tensor *x)
{
    return yk_rsqrt(yk_mul(yk_add_scalar(x, -1), yk_add_scalar(x, 1)));
}

static yk_tensor *atanh_slope(yk_tensor *x)
{
    return yk_reciprocal(yk_mul(yk_add_scalar(yk_neg(x), 1), yk_add_scalar(x, 1)));
}

static yk_tensor *log2_slope(yk_tensor *x)
{
    return yk_reciprocal(yk_mul_scalar(x, M_LN2));
}

static yk_tensor *log10_slope(yk_tensor *x)
{
    return yk_reciprocal(yk_mul_scalar(x, M_LN10));
}

/* ---- rows ---- */

#define SMOOTH_ROW(label, slope_of, ...)                                                                               \
    static const smooth_row label##_row = {                                                                            \
        {.name = #label, .recorded = smooth_recorded}, .slope = slope_of, __VA_ARGS__};
#define SMOOTH(label, slope_of, ...)                                                                                   \
    SMOOTH_ROW(label, slope_of, __VA_ARGS__)                                                                           \
    yk_tensor *yk_##label(yk_tensor *x)                                                                                \
    {                                                                                                                  \
        return smooth_apply(&label##_row, x);                                                                          \
    }
/* An operation that is on a list of autocast's. */
#define SMOOTH_CAST(label, slope_of, ...)                                                                              \
    SMOOTH_ROW(label, slope_of, __VA_ARGS__)                                                                           \
    yk_tensor *yk_##label(yk_tensor *x)                                                                                \
    {                                                                                                                  \
        YK__AUTOCAST(label, 1, &x, yk_##label(x));                                                                     \
        return smooth_apply(&label##_row, x);                                                                          \
    }

SMOOTH_CAST(tan, tan_slope, .kernel = YK__TAN)
SMOOTH_CAST(asin, asin_slope, .kernel = YK__ASIN)
SMOOTH_CAST(acos, acos_slope, .kernel = YK__ACOS)
SMOOTH(atan, atan_slope, .forward = atan_forward)
SMOOTH_CAST(sinh, yk_cosh, .forward = sinh_forward)
SMOOTH_CAST(cosh, yk_sinh, .forward = cosh_forward)
SMOOTH(asinh, asinh_slope, .forward = asinh_forward)
SMOOTH(acosh, acosh_slope, .forward = acosh_forward)
SMOOTH(atanh, atanh_slope, .kernel = YK__ATANH)
SMOOTH_CAST(log2, log2_slope, .kernel = YK__LOG2)
SMOOTH_CAST(log10, log10_slope, .kernel = YK__LOG10)
