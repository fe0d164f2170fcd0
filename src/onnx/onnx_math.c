/*
 * onnx_math.c - elementwise operations, comparisons and reductions as nodes of ONNX. Layer: onnx.
 */
#include <math.h>

#include "onnx/onnx_graph.h"

#define EMITTER(name) static bool emit_##name(yk__onnx *g, const yk__traced_op *op, const char **results)
/* One result. */
#define GIVE(expression) return (results[0] = (expression)) != NULL

static yk_dtype result_dtype(const yk__onnx *g, const yk__traced_op *op)
{
    return yk_tensor_dtype(yk__onnx_of_a(g, yk__onnx_out(op, 0)));
}

/* A number of the result's dtype. */
static const char *number(yk__onnx *g, const yk__traced_op *op, double value)
{
    return yk__onnx_number(g, result_dtype(g, op), value);
}

static const char *x_of(yk__onnx *g, const yk__traced_op *op)
{
    return yk__onnx_input_as(g, op, 0, result_dtype(g, op));
}

static const char *with_number(yk__onnx *g, const yk__traced_op *op, const char *type, const char *x, double value)
{
    return YK__ONNX_NODE(g, type, NULL, x, number(g, op, value));
}

/* A node with one attribute that is a real number, or with two. */
static const char *with_reals(yk__onnx *g, const char *type, const char *x, const char *name, double value,
                              const char *other, double second)
{
    yk__proto attributes = {0};
    yk__onnx_float(&attributes, name, value);
    if (other)
        yk__onnx_float(&attributes, other, second);
    return YK__ONNX_NODE(g, type, &attributes, x);
}

/* ---- of one tensor ---- */

/* A function of ONNX that takes x in the result's dtype, which is floating where x is an integer. */
#define FUNCTION(name, type)                                                                                           \
    EMITTER(name)                                                                                                      \
    {                                                                                                                  \
        GIVE(YK__ONNX_NODE(g, type, NULL, x_of(g, op)));                                                               \
    }
FUNCTION(exp, "Exp")
FUNCTION(log, "Log")
FUNCTION(sqrt, "Sqrt")
FUNCTION(reciprocal, "Reciprocal")
FUNCTION(sin, "Sin")
FUNCTION(cos, "Cos")
FUNCTION(tan, "Tan")
FUNCTION(asin, "Asin")
FUNCTION(acos, "Acos")
FUNCTION(atan, "Atan")
FUNCTION(sinh, "Sinh")
FUNCTION(cosh, "Cosh")
FUNCTION(asinh, "Asinh")
FUNCTION(acosh, "Acosh")
FUNCTION(atanh, "Atanh")
FUNCTION(erf, "Erf")
FUNCTION(tanh, "Tanh")
FUNCTION(sigmoid, "Sigmoid")

EMITTER(rsqrt)
{
    GIVE(YK__ONNX_NODE(g, "Reciprocal", NULL, YK__ONNX_NODE(g, "Sqrt", NULL, x_of(g, op))));
}

EMITTER(log2)
{
    GIVE(with_number(g, op, "Div", YK__ONNX_NODE(g, "Log", NULL, x_of(g, op)), M_LN2));
}

EMITTER(log10)
{
    GIVE(with_number(g, op, "Div", YK__ONNX_NODE(g, "Log", NULL, x_of(g, op)), M_LN10));
}

EMITTER(log1p)
{
    GIVE(YK__ONNX_NODE(g, "Log", NULL, with_number(g, op, "Add", x_of(g, op), 1)));
}

EMITTER(expm1)
{
    GIVE(with_number(g, op, "Sub", YK__ONNX_NODE(g, "Exp", NULL, x_of(g, op)), 1));
}

EMITTER(gelu)
{
    GIVE(YK__ONNX_NODE(g, "Gelu", NULL, x_of(g, op)));
}

EMITTER(gelu_tanh)
{
    yk__proto attributes = {0};
    yk__onnx_string(&attributes, "approximate", "tanh");
    GIVE(YK__ONNX_NODE(g, "Gelu", &attributes, x_of(g, op)));
}

EMITTER(silu)
{
    const char *x = x_of(g, op);
    GIVE(YK__ONNX_NODE(g, "Mul", NULL, x, YK__ONNX_NODE(g, "Sigmoid", NULL, x)));
}

EMITTER(log_sigmoid)
{
    const char *opposite = YK__ONNX_NODE(g, "Neg", NULL, x_of(g, op));
    GIVE(YK__ONNX_NODE(g, "Neg", NULL, YK__ONNX_NODE(g, "Softplus", NULL, opposite)));
}

EMITTER(hardsigmoid)
{
    GIVE(with_reals(g, "HardSigmoid", x_of(g, op), "alpha", 1.0 / 6, "beta", 0.5));
}

EMITTER(leaky_relu)
{
    GIVE(with_reals(g, "LeakyRelu", x_of(g, op), "alpha", yk__onnx_real(op, "a"), NULL, 0));
}

EMITTER(elu)
{
    GIVE(with_reals(g, "Elu", x_of(g, op), "alpha", yk__onnx_real(op, "a"), NULL, 0));
}

/* Above the threshold of PyTorch's, which keeps e^x finite, ONNX's is x as well. */
EMITTER(softplus)
{
    double beta = yk__onnx_real(op, "a");
    const char *x = x_of(g, op);
    if (beta == 1)
        GIVE(YK__ONNX_NODE(g, "Softplus", NULL, x));
    GIVE(with_number(g, op, "Div", YK__ONNX_NODE(g, "Softplus", NULL, with_number(g, op, "Mul", x, beta)), beta));
}

EMITTER(square)
{
    const char *x = x_of(g, op);
    GIVE(YK__ONNX_NODE(g, "Mul", NULL, x, x));
}

EMITTER(add_scalar)
{
    GIVE(with_number(g, op, "Add", x_of(g, op), yk__onnx_real(op, "a")));
}

EMITTER(mul_scalar)
{
    GIVE(with_number(g, op, "Mul", x_of(g, op), yk__onnx_real(op, "a")));
}

/* The remainder has the divisor's sign, as Mod has it of integers alone: of others it is made from C's fmod. */
EMITTER(remainder)
{
    yk_dtype dtype = result_dtype(g, op);
    const char *y = yk__onnx_input_as(g, op, 1, dtype);
    if (!yk_dtype_is_floating(dtype))
        GIVE(YK__ONNX_NODE(g, "Mod", NULL, x_of(g, op), y));
    yk__proto attributes = {0}, again = {0};
    yk__onnx_int(&attributes, "fmod", 1);
    yk__onnx_int(&again, "fmod", 1);
    const char *rest = YK__ONNX_NODE(g, "Add", NULL, YK__ONNX_NODE(g, "Mod", &attributes, x_of(g, op), y), y);
    GIVE(YK__ONNX_NODE(g, "Mod", &again, rest, y));
}

EMITTER(pow_scalar)
{
    GIVE(with_number(g, op, "Pow", x_of(g, op), yk__onnx_real(op, "a")));
}

EMITTER(clamp)
{
    double low = yk__onnx_real(op, "a"), high = yk__onnx_real(op, "b");
    const char *x = x_of(g, op);
    if (low != -INFINITY)
        x = with_number(g, op, "Max", x, low);
    GIVE(high == INFINITY ? (low == -INFINITY ? YK__ONNX_NODE(g, "Identity", NULL, x) : x)
                          : with_number(g, op, "Min", x, high));
}

EMITTER(cast)
{
    yk__proto attributes = {0};
    yk__onnx_int(&attributes, "to", yk__onnx_dtype(result_dtype(g, op)));
    GIVE(YK__ONNX_NODE(g, "Cast", &attributes, yk__onnx_input(g, op, 0)));
}

/* ---- of two and three ---- */

static const char *pair(yk__onnx *g, const yk__traced_op *op, const char *type)
{
    yk_dtype dtype = result_dtype(g, op);
    return YK__ONNX_NODE(g, type, NULL, yk__onnx_input_as(g, op, 0, dtype), yk__onnx_input_as(g, op, 1, dtype));
}

/* a + alpha b; the names of add and sub, in place and not. */
static const char *scaled_sum(yk__onnx *g, const yk__traced_op *op, const char *type, double alpha)
{
    yk_dtype dtype = result_dtype(g, op);
    const char *b = yk__onnx_input_as(g, op, 1, dtype);
    return YK__ONNX_NODE(g, type, NULL, yk__onnx_input_as(g, op, 0, dtype),
                         alpha == 1 ? b : with_number(g, op, "Mul", b, alpha));
}

EMITTER(add)
{
    GIVE(scaled_sum(g, op, "Add", yk__onnx_real(op, "alpha")));
}

EMITTER(sub)
{
    GIVE(scaled_sum(g, op, "Sub", yk__onnx_real(op, "alpha")));
}

#define PAIR(name, type)                                                                                               \
    EMITTER(name)                                                                                                      \
    {                                                                                                                  \
        GIVE(pair(g, op, type));                                                                                       \
    }
PAIR(mul, "Mul")
PAIR(div, "Div")
PAIR(pow, "Pow")
PAIR(maximum, "Max")
PAIR(minimum, "Min")

/* Numbers with a fraction alone: a quotient of integers would be cut towards 0. */
EMITTER(floor_divide)
{
    if (!yk_dtype_is_floating(result_dtype(g, op)))
        return false;
    GIVE(YK__ONNX_NODE(g, "Floor", NULL, pair(g, op, "Div")));
}

static const char *compared(yk__onnx *g, const yk__traced_op *op, const char *type, bool opposite)
{
    yk_dtype dtype = yk_dtype_promote(yk_tensor_dtype(yk__onnx_of_a(g, op->values[0])),
                                      yk_tensor_dtype(yk__onnx_of_a(g, op->values[1])));
    const char *is =
        YK__ONNX_NODE(g, type, NULL, yk__onnx_input_as(g, op, 0, dtype), yk__onnx_input_as(g, op, 1, dtype));
    return opposite ? YK__ONNX_NODE(g, "Not", NULL, is) : is;
}

#define COMPARISON(name, type, opposite)                                                                               \
    EMITTER(name)                                                                                                      \
    {                                                                                                                  \
        GIVE(compared(g, op, type, opposite));                                                                         \
    }
COMPARISON(eq, "Equal", false)
COMPARISON(ne, "Equal", true)
COMPARISON(lt, "Less", false)
COMPARISON(le, "LessOrEqual", false)
COMPARISON(gt, "Greater", false)
COMPARISON(ge, "GreaterOrEqual", false)

#define LOGIC(name, type)                                                                                              \
    EMITTER(name)                                                                                                      \
    {                                                                                                                  \
        GIVE(                                                                                                          \
            YK__ONNX_NODE(g, type, NULL, yk__onnx_input_as(g, op, 0, YK_BOOL), yk__onnx_input_as(g, op, 1, YK_BOOL))); \
    }
LOGIC(logical_and, "And")
LOGIC(logical_or, "Or")

EMITTER(logical_not)
{
    GIVE(YK__ONNX_NODE(g, "Not", NULL, yk__onnx_input_as(g, op, 0, YK_BOOL)));
}

EMITTER(where)
{
    yk_dtype dtype = result_dtype(g, op);
    GIVE(YK__ONNX_NODE(g, "Where", NULL, yk__onnx_input_as(g, op, 0, YK_BOOL), yk__onnx_input_as(g, op, 1, dtype),
                       yk__onnx_input_as(g, op, 2, dtype)));
}

/* ---- reductions ---- */

/* The reduced dimensions as a list; those of a mask of 0 are all. */
static const char *axes_of(yk__onnx *g, const yk__traced_op *op)
{
    int64_t mask = yk__onnx_whole(op, "mask"), axes[YK_MAX_DIMS];
    int count = 0, ndim = yk_ndim(yk__onnx_of_a(g, op->values[0]));
    for (int d = 0; d < ndim; d++) {
        if (!mask || (mask >> d & 1))
            axes[count++] = d;
    }
    return yk__onnx_list(g, count, axes);
}

/* True if the result has the dimensions that were reduced. */
static bool keeps_dims(const yk__onnx *g, const yk__traced_op *op)
{
    const yk_tensor *x = yk__onnx_of_a(g, op->values[0]);
    return x->ndim > 0 && yk__onnx_of_a(g, yk__onnx_out(op, 0))->ndim == x->ndim;
}

static const char *reduced(yk__onnx *g, const yk__traced_op *op, const char *type, const char *x, bool keeps)
{
    yk__proto attributes = {0};
    yk__onnx_int(&attributes, "keepdims", keeps);
    return YK__ONNX_NODE(g, type, &attributes, x, axes_of(g, op));
}

#define REDUCTION(name, type)                                                                                          \
    EMITTER(name)                                                                                                      \
    {                                                                                                                  \
        GIVE(reduced(g, op, type, x_of(g, op), keeps_dims(g, op)));                                                    \
    }
REDUCTION(sum, "ReduceSum")
REDUCTION(mean, "ReduceMean")
REDUCTION(prod, "ReduceProd")
REDUCTION(max, "ReduceMax")
REDUCTION(min, "ReduceMin")

/* "value" is 2 / (count - correction). */
EMITTER(var)
{
    const char *x = x_of(g, op);
    const char *centred = YK__ONNX_NODE(g, "Sub", NULL, x, reduced(g, op, "ReduceMean", x, true));
    const char *squares =
        reduced(g, op, "ReduceSum", YK__ONNX_NODE(g, "Mul", NULL, centred, centred), keeps_dims(g, op));
    GIVE(with_number(g, op, "Mul", squares, yk__onnx_real(op, "value") / 2));
}

EMITTER(norm)
{
    double p = yk__onnx_real(op, "p");
    bool keeps = keeps_dims(g, op);
    const char *x = x_of(g, op);
    if (p == 2)
        GIVE(reduced(g, op, "ReduceL2", x, keeps));
    if (p == 1)
        GIVE(reduced(g, op, "ReduceL1", x, keeps));
    if (p == 0)
        return false;
    x = YK__ONNX_NODE(g, "Abs", NULL, x);
    if (isinf(p))
        GIVE(reduced(g, op, p > 0 ? "ReduceMax" : "ReduceMin", x, keeps));
    const char *sum = reduced(g, op, "ReduceSum", with_number(g, op, "Pow", x, p), keeps);
    GIVE(with_number(g, op, "Pow", sum, 1 / p));
}

EMITTER(cumsum)
{
    int64_t dim = yk__onnx_whole(op, "dim");
    GIVE(YK__ONNX_NODE(g, "CumSum", NULL, x_of(g, op), yk__onnx_number(g, YK_I64, (double)dim)));
}

const yk__onnx_row yk__onnx_math[] = {
    {"neg", NULL, "Neg"},
    {"abs", NULL, "Abs"},
    {"relu", NULL, "Relu"},
    {"relu_", NULL, "Relu"},
    {"mish", NULL, "Mish"},
    {"hardswish", NULL, "HardSwish"},
    {"sign", NULL, "Sign"},
    {"floor", NULL, "Floor"},
    {"ceil", NULL, "Ceil"},
    {"round", NULL, "Round"},
    {"contiguous", NULL, "Identity"},
    {"clone", NULL, "Identity"},
    {"detach", NULL, "Identity"},
    {"to", NULL, "Identity"},
    {"exp", emit_exp, NULL},
    {"log", emit_log, NULL},
    {"sqrt", emit_sqrt, NULL},
    {"rsqrt", emit_rsqrt, NULL},
    {"reciprocal", emit_reciprocal, NULL},
    {"sin", emit_sin, NULL},
    {"cos", emit_cos, NULL},
    {"tan", emit_tan, NULL},
    {"asin", emit_asin, NULL},
    {"acos", emit_acos, NULL},
    {"atan", emit_atan, NULL},
    {"sinh", emit_sinh, NULL},
    {"cosh", emit_cosh, NULL},
    {"asinh", emit_asinh, NULL},
    {"acosh", emit_acosh, NULL},
    {"atanh", emit_atanh, NULL},
    {"log2", emit_log2, NULL},
    {"log10", emit_log10, NULL},
    {"erf", emit_erf, NULL},
    {"tanh", emit_tanh, NULL},
    {"sigmoid", emit_sigmoid, NULL},
    {"log1p", emit_log1p, NULL},
    {"expm1", emit_expm1, NULL},
    {"gelu", emit_gelu, NULL},
    {"gelu_tanh", emit_gelu_tanh, NULL},
    {"silu", emit_silu, NULL},
    {"log_sigmoid", emit_log_sigmoid, NULL},
    {"hardsigmoid", emit_hardsigmoid, NULL},
    {"leaky_relu", emit_leaky_relu, NULL},
    {"elu", emit_elu, NULL},
    {"softplus", emit_softplus, NULL},
    {"square", emit_square, NULL},
    {"add_scalar", emit_add_scalar, NULL},
    {"mul_scalar", emit_mul_scalar, NULL},
    {"pow_scalar", emit_pow_scalar, NULL},
    {"clamp", emit_clamp, NULL},
    {"cast", emit_cast, NULL},
    {"add", emit_add, NULL},
    {"sub", emit_sub, NULL},
    {"mul", emit_mul, NULL},
    {"mul_", emit_mul, NULL},
    {"div", emit_div, NULL},
    {"remainder", emit_remainder, NULL},
    {"pow", emit_pow, NULL},
    {"maximum", emit_maximum, NULL},
    {"minimum", emit_minimum, NULL},
    {"floor_divide", emit_floor_divide, NULL},
    {"eq", emit_eq, NULL},
    {"ne", emit_ne, NULL},
    {"lt", emit_lt, NULL},
    {"le", emit_le, NULL},
    {"gt", emit_gt, NULL},
    {"ge", emit_ge, NULL},
    {"logical_and", emit_logical_and, NULL},
    {"logical_or", emit_logical_or, NULL},
    {"logical_not", emit_logical_not, NULL},
    {"where", emit_where, NULL},
    {"sum", emit_sum, NULL},
    {"mean", emit_mean, NULL},
    {"prod", emit_prod, NULL},
    {"max", emit_max, NULL},
    {"min", emit_min, NULL},
    {"max_dim", emit_max, NULL},
    {"min_dim", emit_min, NULL},
    {"var", emit_var, NULL},
    {"norm", emit_norm, NULL},
    {"cumsum", emit_cumsum, NULL},
    {NULL, NULL, NULL},
};
