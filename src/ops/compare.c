/*
 * compare.c - comparisons and logic, which give bool and have no gradient, and the choice by a mask. Layer: ops.
 */
#include <math.h>

#include "ops/op.h"

#define COMPARE(label, kernel)                                                                                         \
    yk_tensor *yk_##label(yk_tensor *a, yk_tensor *b)                                                                  \
    {                                                                                                                  \
        static const yk__op op = {.name = #label};                                                                     \
        yk_tensor *in[2] = {a, b};                                                                                     \
        yk__take_numbers(2, in);                                                                                       \
        YK__EVENT(YK__EVENT_OPERATION, #label);                                                                        \
        if (!yk__op_begin(#label, 2, in, 0))                                                                           \
            return NULL;                                                                                               \
        return yk__record(yk__raw_binary(#label, YK__##kernel, in[0], in[1], 1), &op, 2, in, 0, NULL, NULL, 0);        \
    }

COMPARE(eq, EQ)
COMPARE(ne, NE)
COMPARE(lt, LT)
COMPARE(le, LE)
COMPARE(gt, GT)
COMPARE(ge, GE)
COMPARE(logical_and, AND)
COMPARE(logical_or, OR)

/* A number beside x: in x's dtype where that is floating, else whole, or f32 where it is not. */
static yk_tensor *number_beside(const yk_tensor *x, double b)
{
    bool whole = fabs(b) < 0x1p63 && b == floor(b);
    yk_dtype dtype = yk_dtype_is_floating((yk_dtype)x->dtype) ? (yk_dtype)x->dtype : whole ? YK_I64 : YK_F32;
    return yk__scope_own(yk__raw_scalar(b, dtype, yk__device_of(x)));
}

#define COMPARE_SCALAR(label)                                                                                          \
    yk_tensor *yk_##label##_scalar(yk_tensor *a, double b)                                                             \
    {                                                                                                                  \
        YK__EVENT(YK__EVENT_OPERATION, #label "_scalar");                                                              \
        if (!yk__op_begin(#label "_scalar", 1, &a, 0))                                                                 \
            return NULL;                                                                                               \
        YK__WITHIN_SCOPE(yk_##label(a, number_beside(a, b)));                                                          \
    }

COMPARE_SCALAR(eq)
COMPARE_SCALAR(ne)
COMPARE_SCALAR(lt)
COMPARE_SCALAR(le)
COMPARE_SCALAR(gt)
COMPARE_SCALAR(ge)

static yk_tensor *is_true(yk_tensor *x)
{
    return x->dtype == YK_BOOL ? x : yk_ne_scalar(x, 0);
}

yk_tensor *yk_logical_xor(yk_tensor *a, yk_tensor *b)
{
    yk_tensor *in[2] = {a, b};
    YK__EVENT(YK__EVENT_OPERATION, "logical_xor");
    yk__take_numbers(2, in);
    if (!yk__op_begin("logical_xor", 2, in, 0))
        return NULL;
    YK__WITHIN_SCOPE(yk_ne(is_true(in[0]), is_true(in[1])));
}

/* One pass over a; bool is refused as a minus is. */
yk_tensor *yk_rsub_scalar(yk_tensor *a, double b)
{
    YK__EVENT(YK__EVENT_OPERATION, "rsub_scalar");
    if (!yk__op_begin("rsub_scalar", 1, &a, 0))
        return NULL;
    if (a->dtype == YK_BOOL) {
        yk__fail(YK_ERR_DTYPE, "rsub_scalar: not defined for bool tensors");
        return NULL;
    }
    YK__WITHIN_SCOPE(yk_sub(number_beside(a, b), a));
}

/* The gradient goes to the operand that was chosen; the other one gets 0 there. */
static yk_status where_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const yk__tensor_spec *spec = yk__context(node);
    yk_status status = YK_OK;
    yk_tensor *condition = yk__saved(node, 0, &status);
    if (status)
        return status;
    yk_tensor *zero = yk__raw_scalar(0, (yk_dtype)gout->dtype, yk__device_of(gout));
    for (int i = 1; i <= 2 && !status; i++) {
        if (!yk__needs_grad(node, i))
            continue;
        yk_tensor *part = i == 1 ? yk__raw_where(condition, gout, zero) : yk__raw_where(condition, zero, gout);
        grads[i] = yk__sum_to_spec(part, &spec[i - 1]);
        status = yk__status_of(grads[i]);
    }
    yk_tensor_release(zero);
    return status;
}

static void where_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const yk__tensor_spec *spec = yk__context(node);
    yk_tensor *condition = yk__saved_in_graph(node, 0);
    if (yk__needs_grad(node, 1))
        grads[1] = yk__recorded_sum_to(yk__recorded_where(condition, gouts[0]), &spec[0]);
    if (yk__needs_grad(node, 2))
        grads[2] = yk__recorded_sum_to(yk__recorded_where_not(condition, gouts[0]), &spec[1]);
}

yk_tensor *yk_where(yk_tensor *condition, yk_tensor *a, yk_tensor *b)
{
    static const yk__op op = {.name = "where", .backward = where_backward, .recorded = where_recorded};
    yk_tensor *in[3] = {condition, a, b};
    yk__take_numbers(3, in);
    YK__EVENT(YK__EVENT_OPERATION, "where");
    if (!yk__op_begin("where", 3, in, 0))
        return NULL;
    yk__tensor_spec spec[2] = {yk__spec_of(in[1]), yk__spec_of(in[2])};
    return yk__record(yk__raw_where(in[0], in[1], in[2]), &op, 3, in, 1, in, spec, sizeof(spec));
}
