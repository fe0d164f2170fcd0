/*
 * raw.c - the raw kernels' front door: PyTorch's shape and dtype rules in front of the table. Layer: tensor.
 *
 * f16 and bf16 that a slot does not take (table.h) are computed in f32 and rounded once at the end.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/events.h"
#include "tensor/tensor.h"

/* Replaces a half-precision result by its rounded form; takes over the reference. */
static yk_tensor *narrowed(yk_tensor *wide, yk_dtype dtype)
{
    yk_tensor *out = wide ? yk__raw_cast(wide, dtype) : NULL;
    yk_tensor_release(wide);
    return out;
}

double yk__largest(yk_dtype dtype)
{
    switch (dtype) {
    case YK_F64: return DBL_MAX;
    case YK_F16: return 65504;
    case YK_BF16: return 0x1.FEp127;
    default: return (double)FLT_MAX;
    }
}

yk_status yk__check_value(const char *what, yk_dtype dtype, double value)
{
    bool fits = true;
    switch (dtype) {
    case YK_I64: fits = fabs(value) <= 0x1p63; break; /* INT64_MAX as a double, which becomes that again */
    case YK_I32: fits = value >= INT32_MIN && value <= INT32_MAX; break;
    case YK_U8: fits = fabs(value) <= UINT8_MAX; break;
    case YK_BOOL: break;
    default: fits = !isfinite(value) || fabs(value) <= yk__largest(dtype); break;
    }
    if (fits)
        return YK_OK;
    return yk__fail(YK_ERR_DTYPE, "%s: a tensor of %s cannot hold %g", what, yk_dtype_name(dtype), value);
}

yk_status yk__raw_fill(yk_tensor *x, double value)
{
    yk__view v = yk__is_dense(x) ? yk__line_of(x) : yk__view_of(x);
    return x->numel ? YK__SLOT(x, fill, &v, value) : YK_OK;
}

/* Copies between devices: the bytes go in C order, through the host where they cannot go directly; within one, a kernel
 * does everything. */
static yk_status copy_between_devices(yk_tensor *to, yk_tensor *from)
{
    yk_tensor *source = yk__raw_contiguous(from);
    yk_tensor *typed = source ? yk__raw_cast(source, (yk_dtype)to->dtype) : NULL;
    yk_tensor_release(source);
    if (!typed)
        return yk__error_code();
    bool direct = yk_is_contiguous(to);
    yk_tensor *target = direct ? yk_tensor_retain(to)
                               : yk__tensor_new(to->ndim, to->shape, NULL, (yk_dtype)to->dtype, yk__device_of(to));
    yk_status status = target ? YK_OK : yk__error_code();
    size_t bytes = (size_t)to->numel * yk_dtype_size((yk_dtype)to->dtype);
    const yk__backend *a = yk__backend_for(typed), *b = yk__backend_for(to);
    if (!status && a->host_memory) {
        status = b->upload(yk__device_of(to).index, target->data, typed->data, bytes);
    } else if (!status && b->host_memory) {
        status = a->download(yk__device_of(typed).index, target->data, typed->data, bytes);
    } else if (!status && a == b && a->copy_peer) {
        status = a->copy_peer(yk__device_of(to).index, target->data, yk__device_of(typed).index, typed->data, bytes);
    } else if (!status) {
        yk__storage *staging = NULL;
        void *host = yk__workspace_get((yk_device){0}, bytes, &staging);
        status = host ? a->download(yk__device_of(typed).index, host, typed->data, bytes) : yk__error_code();
        if (!status)
            status = b->upload(yk__device_of(to).index, target->data, host, bytes);
        yk__storage_release(staging);
    }
    if (!status && !direct)
        status = yk__raw_copy(to, target);
    yk_tensor_release(target);
    yk_tensor_release(typed);
    return status;
}

yk_status yk__raw_copy(yk_tensor *to, yk_tensor *from)
{
    if (yk__same_line(to, from) && to->numel && yk_device_equal(yk__device_of(to), yk__device_of(from))) {
        yk__view out = yk__line_of(to), in = yk__line_of(from);
        return YK__SLOT(to, copy, &out, &in);
    }
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    yk_status status = yk__broadcast("copy", to, from, &ndim, shape);
    if (status)
        return status;
    if (ndim != to->ndim || memcmp(shape, to->shape, sizeof(shape[0]) * (size_t)ndim)) {
        char a[200], b[200];
        return yk__fail(YK_ERR_SHAPE, "copy: shape %s does not broadcast to %s", yk_shape_format(from, a, sizeof(a)),
                        yk_shape_format(to, b, sizeof(b)));
    }
    if (to->numel == 0)
        return YK_OK;
    if (!yk_device_equal(yk__device_of(to), yk__device_of(from))) {
        if (yk_same_shape(to, from))
            return copy_between_devices(to, from);
        yk__view v = yk__view_expanded(from, ndim, shape);
        yk_tensor *expanded = yk__tensor_view(from, ndim, shape, v.stride, 0);
        status = expanded ? copy_between_devices(to, expanded) : yk__error_code();
        yk_tensor_release(expanded);
        return status;
    }
    yk__view out = yk__view_of(to), in = yk__view_expanded(from, ndim, shape);
    return YK__SLOT(to, copy, &out, &in);
}

yk_tensor *yk__raw_clone(yk_tensor *x)
{
    yk_tensor *out = yk__tensor_like(x, (yk_dtype)(x ? x->dtype : 0));
    return out ? yk__tensor_if_ok(out, yk__raw_copy(out, x)) : NULL;
}

yk_tensor *yk__raw_contiguous(yk_tensor *x)
{
    if (!x || yk_is_contiguous(x))
        return yk_tensor_retain(x);
    yk_tensor *out = yk__tensor_new(x->ndim, x->shape, NULL, (yk_dtype)x->dtype, yk__device_of(x));
    return out ? yk__tensor_if_ok(out, yk__raw_copy(out, x)) : NULL;
}

yk_tensor *yk__raw_cast(yk_tensor *x, yk_dtype dtype)
{
    if (!x || (yk_dtype)x->dtype == dtype)
        return yk_tensor_retain(x);
    yk_tensor *out = yk__tensor_like(x, dtype);
    return out ? yk__tensor_if_ok(out, yk__raw_copy(out, x)) : NULL;
}

yk_tensor *yk__raw_to(yk_tensor *x, yk_device device)
{
    if (!x || yk_device_equal(yk__device_of(x), device))
        return yk_tensor_retain(x);
    yk_tensor *out = yk__tensor_new(x->ndim, x->shape, yk__is_dense(x) ? x->stride : NULL, (yk_dtype)x->dtype, device);
    return out ? yk__tensor_if_ok(out, yk__raw_copy(out, x)) : NULL;
}

/* True for an integer that i64 holds: infinity and NaN are none. */
static bool whole(double value)
{
    return value >= -0x1p63 && value < 0x1p63 && value == (double)(int64_t)value;
}

/* The dtype of the result of an elementwise operation on x, and the one it is computed in. */
static bool unary_dtypes(const char *what, yk__unary op, const yk_tensor *x, double p0, double p1, yk_dtype *compute,
                         yk_dtype *out)
{
    yk_dtype dtype = (yk_dtype)x->dtype;
    bool floating = yk_dtype_is_floating(dtype), integers;
    switch (op) {
    case YK__LOGICAL_NOT: *compute = yk__slot_dtype(x, YK__SLOT_unary, dtype), *out = YK_BOOL; return true;
    case YK__IS_FINITE:
        *compute = floating ? yk__slot_dtype(x, YK__SLOT_unary, dtype) : YK_F32, *out = YK_BOOL;
        return true;
    case YK__NEG:
    case YK__SIGN:
    case YK__ABS:
    case YK__RELU:
    case YK__FLOOR:
    case YK__CEIL:
    case YK__ROUND:
        if (dtype == YK_BOOL) {
            yk__fail(YK_ERR_DTYPE, "%s: not defined for bool tensors", what);
            return false;
        }
        *out = dtype;
        break;
    case YK__ADD_SCALAR:
    case YK__MUL_SCALAR: *out = floating ? dtype : !whole(p0) ? YK_F32 : dtype == YK_BOOL ? YK_I64 : dtype; break;
    case YK__CLAMP: /* an infinite bound is none */
        integers = (whole(p0) || isinf(p0)) && (whole(p1) || isinf(p1));
        *out = floating ? dtype : !integers ? YK_F32 : dtype == YK_BOOL ? YK_I64 : dtype;
        break;
    case YK__POW_SCALAR:
        if (!floating && whole(p0) && p0 < 0) {
            yk__fail(YK_ERR_DTYPE, "%s: an integer to the power of %g is no integer; cast the tensor first", what, p0);
            return false;
        }
        *out = floating ? dtype : !whole(p0) ? YK_F32 : dtype == YK_BOOL ? YK_I64 : dtype;
        break;
    default: *out = floating ? dtype : YK_F32; break;
    }
    *compute = yk__slot_dtype(x, YK__SLOT_unary, *out);
    return true;
}

yk_tensor *yk__raw_unary(const char *what, yk__unary op, yk_tensor *x, double p0, double p1)
{
    yk_dtype compute, result;
    if (!x || !unary_dtypes(what, op, x, p0, p1, &compute, &result))
        return NULL;
    /* An operand that needs no cast is borrowed: counting it would be a twentieth of a small operation. */
    yk_tensor *in = (yk_dtype)x->dtype == compute ? x : yk__raw_cast(x, compute);
    yk_tensor *out = in ? yk__tensor_like(in, result == YK_BOOL ? YK_BOOL : compute) : NULL;
    if (out && out->numel) {
        bool line = yk__same_line(out, in);
        yk__view vo = line ? yk__line_of(out) : yk__view_of(out), vi = line ? yk__line_of(in) : yk__view_of(in);
        out = yk__tensor_if_ok(out, YK__SLOT(out, unary, op, &vo, &vi, p0, p1));
    }
    if (in != x)
        yk_tensor_release(in);
    return out && (yk_dtype)out->dtype != result ? narrowed(out, result) : out;
}

yk_status yk__raw_unary_into(const char *what, yk__unary op, yk_tensor *x, double p0, double p1)
{
    yk_dtype compute, becomes;
    if (!unary_dtypes(what, op, x, p0, p1, &compute, &becomes)) /* also of a tensor without elements */
        return yk__error_code();
    if (x->numel == 0)
        return YK_OK;
    if (yk__slot_dtype(x, YK__SLOT_unary, (yk_dtype)x->dtype) == (yk_dtype)x->dtype) {
        yk__view v = yk__is_dense(x) ? yk__line_of(x) : yk__view_of(x);
        return YK__SLOT(x, unary, op, &v, &v, p0, p1);
    }
    yk_tensor *result = yk__raw_unary(what, op, x, p0, p1);
    yk_status status = result ? yk__raw_copy(x, result) : yk__error_code();
    yk_tensor_release(result);
    return status;
}

static bool is_comparison(yk__binary op)
{
    return op >= YK__EQ && op <= YK__OR;
}

/* True for a + 0 b of bools, which is a: the kernels' sum of bools is "or". */
static bool adds_nothing(yk__binary op, yk_dtype dtype, double alpha)
{
    return op == YK__ADD && dtype == YK_BOOL && alpha == 0;
}

/* The dtype that both operands are brought to. A 0-dimensional operand does not widen one with dimensions unless it
 * is of a higher kind, as in PyTorch. */
static yk_dtype operand_dtype(const yk_tensor *a, const yk_tensor *b)
{
    yk_dtype da = (yk_dtype)a->dtype, db = (yk_dtype)b->dtype;
    if (da == db)
        return da;
    bool fa = yk_dtype_is_floating(da), fb = yk_dtype_is_floating(db);
    if ((a->ndim == 0) != (b->ndim == 0)) {
        yk_dtype strong = a->ndim ? da : db, weak = a->ndim ? db : da;
        bool fs = a->ndim ? fa : fb, fw = a->ndim ? fb : fa;
        if (fs == fw && (fs || (strong != YK_BOOL)))
            return strong;
        if (fs && !fw)
            return strong;
        return yk_dtype_promote(strong, weak);
    }
    return yk_dtype_promote(da, db);
}

/* The memory order that a result takes over: that of the first operand that is dense and has the whole shape; else
 * NULL, C order. */
static const int64_t *dense_strides(int ndim, const int64_t *shape, const yk_tensor *const *operands, int count)
{
    for (int i = 0; i < count; i++)
        if (operands[i]->ndim == ndim && !memcmp(operands[i]->shape, shape, sizeof(shape[0]) * (size_t)ndim) &&
            yk__is_dense(operands[i]))
            return operands[i]->stride;
    return NULL;
}

yk_tensor *yk__raw_binary(const char *what, yk__binary op, yk_tensor *a, yk_tensor *b, double alpha)
{
    if (!a || !b)
        return NULL;
    int ndim = a->ndim;
    int64_t broadcast[YK_MAX_DIMS], *shape = a->shape;
    bool line = yk__same_line(a, b); /* the usual case, without the cost of the general one */
    yk_tensor *both[2] = {a, b};
    if ((!yk_device_equal(yk__device_of(a), yk__device_of(b)) && yk__same_device(what, 2, both)) ||
        (!line && yk__broadcast(what, a, b, &ndim, shape = broadcast)))
        return NULL;
    yk_dtype result = operand_dtype(a, b);
    if (op == YK__DIV && !yk_dtype_is_floating(result))
        result = YK_F32;
    if (op == YK__POW && result == YK_BOOL) {
        yk__fail(YK_ERR_DTYPE, "%s: not defined for bool tensors", what);
        return NULL;
    }
    if (op == YK__SUB && (a->dtype == YK_BOOL || b->dtype == YK_BOOL)) {
        yk__fail(YK_ERR_DTYPE, "%s: %s minus %s: not defined for bool tensors", what, yk_dtype_name((yk_dtype)a->dtype),
                 yk_dtype_name((yk_dtype)b->dtype));
        return NULL;
    }
    /* An operand that would be rounded to f16 or bf16 first is not: then both are f32. */
    yk_dtype compute = !yk__is_half(result) ? result
                       : (yk_dtype)a->dtype == result && a->dtype == b->dtype
                           ? yk__slot_dtype(a, YK__SLOT_binary, result)
                           : YK_F32;
    /* As in yk__raw_unary. */
    yk_tensor *x = (yk_dtype)a->dtype == compute ? a : yk__raw_cast(a, compute);
    yk_tensor *y = adds_nothing(op, result, alpha) ? yk__tensor_full_like(b, 0)
                   : (yk_dtype)b->dtype == compute ? b
                                                   : yk__raw_cast(b, compute);
    yk_tensor *out = NULL;
    if (x && y) {
        const int64_t *stride = line ? x->stride : dense_strides(ndim, shape, (const yk_tensor *[]){x, y}, 2);
        out = yk__tensor_new(ndim, shape, stride, is_comparison(op) ? YK_BOOL : compute, yk__device_of(x));
    }
    if (out && out->numel && line) {
        yk__view vo = yk__line_of(out), vx = yk__line_of(x), vy = yk__line_of(y);
        out = yk__tensor_if_ok(out, YK__SLOT(out, binary, op, &vo, &vx, &vy, alpha));
    } else if (out && out->numel) {
        yk__view vo = yk__view_of(out), vx = yk__view_expanded(x, ndim, shape), vy = yk__view_expanded(y, ndim, shape);
        out = yk__tensor_if_ok(out, YK__SLOT(out, binary, op, &vo, &vx, &vy, alpha));
    }
    if (x != a)
        yk_tensor_release(x);
    if (y != b)
        yk_tensor_release(y);
    return out && !is_comparison(op) && result != compute ? narrowed(out, result) : out;
}

yk_status yk__raw_binary_into(const char *what, yk__binary op, yk_tensor *out, yk_tensor *a, yk_tensor *b, double alpha)
{
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    yk_tensor *all[3] = {out, a, b};
    yk_status status = yk__same_device(what, 3, all);
    if (!status)
        status = yk__broadcast(what, a, b, &ndim, shape);
    if (status)
        return status;
    if (ndim != out->ndim || memcmp(shape, out->shape, sizeof(shape[0]) * (size_t)ndim)) {
        char ta[200], tb[200];
        return yk__fail(YK_ERR_SHAPE, "%s: the result has shape %s and cannot be written into %s", what,
                        yk__shape_text(ndim, shape, ta, sizeof(ta)), yk_shape_format(out, tb, sizeof(tb)));
    }
    yk_dtype dtype = (yk_dtype)out->dtype;
    if (out->numel && out->dtype == a->dtype && out->dtype == b->dtype && !is_comparison(op) &&
        !adds_nothing(op, dtype, alpha) && yk__slot_dtype(out, YK__SLOT_binary, dtype) == dtype) {
        if (yk__same_line(out, a) && yk__same_strides(out, b)) {
            yk__view vo = yk__line_of(out), va = yk__line_of(a), vb = yk__line_of(b);
            return YK__SLOT(out, binary, op, &vo, &va, &vb, alpha);
        }
        yk__view vo = yk__view_of(out), va = yk__view_expanded(a, ndim, shape), vb = yk__view_expanded(b, ndim, shape);
        return YK__SLOT(out, binary, op, &vo, &va, &vb, alpha);
    }
    yk_tensor *result = yk__raw_binary(what, op, a, b, alpha);
    if (!result)
        return yk__error_code();
    bool narrows = yk_dtype_is_floating((yk_dtype)result->dtype) && !yk_dtype_is_floating((yk_dtype)out->dtype);
    if (narrows || (out->dtype == YK_BOOL && result->dtype != YK_BOOL))
        status = yk__fail(YK_ERR_DTYPE, "%s: a %s result cannot be written into a %s tensor", what,
                          yk_dtype_name((yk_dtype)result->dtype), yk_dtype_name((yk_dtype)out->dtype));
    else
        status = yk__raw_copy(out, result);
    yk_tensor_release(result);
    return status;
}

yk_tensor *yk__raw_where(yk_tensor *condition, yk_tensor *a, yk_tensor *b)
{
    if (!condition || !a || !b)
        return NULL;
    yk_tensor *all[3] = {condition, a, b};
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    if (yk__same_device("where", 3, all) || yk__broadcast("where", a, b, &ndim, shape))
        return NULL;
    if (condition->dtype != YK_BOOL) {
        yk__fail(YK_ERR_DTYPE, "where: the condition is %s, expected bool", yk_dtype_name((yk_dtype)condition->dtype));
        return NULL;
    }
    yk_dtype dtype = operand_dtype(a, b);
    yk_tensor *x = yk__raw_cast(a, dtype), *y = yk__raw_cast(b, dtype), *out = NULL, *wide = NULL;
    if (x && y) {
        /* The shape of a and b together, then with the condition's. */
        yk__view v = yk__view_expanded(x, ndim, shape);
        wide = yk__tensor_view(x, ndim, shape, v.stride, 0);
    }
    if (wide && !yk__broadcast("where", condition, wide, &ndim, shape))
        out = yk__tensor_new(ndim, shape, dense_strides(ndim, shape, (const yk_tensor *[]){x, y, condition}, 3), dtype,
                             yk__device_of(x));
    if (out && out->numel) {
        yk__view vo = yk__view_of(out), vc = yk__view_expanded(condition, ndim, shape);
        yk__view vx = yk__view_expanded(x, ndim, shape), vy = yk__view_expanded(y, ndim, shape);
        out = yk__tensor_if_ok(out, YK__SLOT(out, where, &vo, &vc, &vx, &vy));
    }
    yk_tensor_release(wide);
    yk_tensor_release(x);
    yk_tensor_release(y);
    return out;
}

bool yk__has_ternary(const yk_tensor *x)
{
    return (x->dtype == YK_F32 || x->dtype == YK_F64) && yk__backend_for(x)->ternary;
}

yk_tensor *yk__raw_ternary(const char *what, yk__ternary op, yk_tensor *a, yk_tensor *b, yk_tensor *c, double value)
{
    if (!a || !b || !c)
        return NULL;
    yk_tensor *all[3] = {a, b, c}, *out = NULL;
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    if (yk__same_device(what, 3, all) || yk__broadcast(what, a, b, &ndim, shape))
        return NULL;
    /* The shape of a and b together, then with that of c. */
    yk__view expanded = yk__view_expanded(a, ndim, shape);
    yk_tensor *wide = yk__tensor_view(a, ndim, shape, expanded.stride, 0);
    if (wide && !yk__broadcast(what, c, wide, &ndim, shape))
        out = yk__tensor_new(ndim, shape, dense_strides(ndim, shape, (const yk_tensor *const *)all, 3),
                             (yk_dtype)a->dtype, yk__device_of(a));
    yk_tensor_release(wide);
    if (!out || !out->numel)
        return out;
    yk__view vo = yk__view_of(out), va = yk__view_expanded(a, ndim, shape), vb = yk__view_expanded(b, ndim, shape);
    yk__view vc = yk__view_expanded(c, ndim, shape);
    return yk__tensor_if_ok(out, YK__SLOT(out, ternary, op, &vo, &va, &vb, &vc, value));
}

yk_status yk__raw_ternary_into(yk__ternary op, yk_tensor *x, yk_tensor *b, yk_tensor *c, double value)
{
    yk__view vx = yk__view_of(x), vb = yk__view_of(b), vc = yk__view_of(c);
    return x->numel ? YK__SLOT(x, ternary, op, &vx, &vx, &vb, &vc, value) : YK_OK;
}

static bool reduce_dtypes(const char *what, yk__reduce op, const yk_tensor *x, yk_dtype *compute, yk_dtype *out)
{
    yk_dtype dtype = (yk_dtype)x->dtype;
    bool floating = yk_dtype_is_floating(dtype);
    *compute = yk__slot_dtype(x, YK__SLOT_reduce, dtype);
    *out = dtype;
    switch (op) {
    case YK__SUM:
    case YK__PROD:
        if (!floating)
            *compute = *out = YK_I64;
        break;
    case YK__MEAN:
    case YK__VAR:
    case YK__SUM_SQUARES:
        if (!floating) {
            yk__fail(YK_ERR_DTYPE, "%s: expected a floating tensor, this one is %s", what, yk_dtype_name(dtype));
            return false;
        }
        break;
    case YK__ANY:
    case YK__ALL: *out = YK_BOOL; break;
    case YK__ARGMAX:
    case YK__ARGMIN: *out = YK_I64; break;
    case YK__AMAX:
    case YK__AMIN: break;
    }
    return true;
}

static yk_tensor *squeezed(yk_tensor *full, uint32_t mask)
{
    int ndim = 0;
    int64_t shape[YK_MAX_DIMS], stride[YK_MAX_DIMS];
    for (int d = 0; full && d < full->ndim; d++) {
        if (mask & (1u << d))
            continue;
        shape[ndim] = full->shape[d];
        stride[ndim++] = full->stride[d];
    }
    yk_tensor *out = yk__tensor_view(full, ndim, shape, stride, 0);
    yk_tensor_release(full);
    return out;
}

yk_tensor *yk__raw_reduce(const char *what, yk__reduce op, yk_tensor *x, uint32_t mask, bool keepdim, double p0)
{
    yk_dtype compute, result;
    if (!x || !reduce_dtypes(what, op, x, &compute, &result))
        return NULL;
    uint32_t every = x->ndim ? (1u << x->ndim) - 1 : 0;
    if (mask == 0)
        mask = every;
    int64_t shape[YK_MAX_DIMS], count = 1;
    for (int d = 0; d < x->ndim; d++) {
        bool reduced = mask & (1u << d);
        shape[d] = reduced ? 1 : x->shape[d];
        count *= reduced ? x->shape[d] : 1;
    }
    bool extreme = op == YK__AMAX || op == YK__AMIN || op == YK__ARGMAX || op == YK__ARGMIN;
    if (extreme && count == 0) {
        char text[200];
        yk__fail(YK_ERR_SHAPE, "%s: no elements to choose from in shape %s", what,
                 yk_shape_format(x, text, sizeof(text)));
        return NULL;
    }
    yk_tensor *in = yk__raw_cast(x, compute);
    yk_tensor *out = in ? yk__tensor_new(x->ndim, shape, NULL, result == YK_BOOL || result == YK_I64 ? result : compute,
                                         yk__device_of(x))
                        : NULL;
    if (out && out->numel) {
        yk__view vo = yk__view_of(out), vi = yk__view_of(in);
        out = yk__tensor_if_ok(out, YK__SLOT(out, reduce, op, &vo, &vi, p0));
    }
    yk_tensor_release(in);
    if (out && (yk_dtype)out->dtype != result)
        out = narrowed(out, result);
    return out && !keepdim ? squeezed(out, mask) : out;
}

yk_tensor *yk__raw_sum_to(yk_tensor *x, int ndim, const int64_t *shape)
{
    if (!x)
        return NULL;
    uint32_t mask = 0, added = 0;
    for (int d = 0; d < x->ndim; d++) {
        int own = d - (x->ndim - ndim);
        if (own < 0)
            added |= 1u << d;
        if (own < 0 || (shape[own] == 1 && x->shape[d] != 1))
            mask |= 1u << d;
    }
    if (!mask)
        return yk_tensor_retain(x);
    yk_tensor *out = yk__raw_reduce("sum", YK__SUM, x, mask, true, 0);
    return out && added ? squeezed(out, added) : out;
}

yk_tensor *yk__raw_gemm(const yk__view *a, const yk__view *b, yk_tensor *bias, yk_device device)
{
    int64_t shape[3] = {a->shape[0], a->shape[1], b->shape[2]};
    yk_tensor *out = yk__tensor_new(3, shape, NULL, a->dtype, device);
    if (!out || out->numel == 0)
        return out;
    yk__view vo = yk__view_of(out), vbias;
    if (bias)
        vbias = yk__view_of(bias);
    yk__event_work(yk__gemm_flops(&vo, a));
    return yk__tensor_if_ok(out, YK__SLOT(out, gemm, &vo, a, b, bias ? &vbias : NULL, false));
}
