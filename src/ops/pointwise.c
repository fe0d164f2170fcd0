/*
 * pointwise.c - elementwise operations of several tensors or numbers: atan2, lerp, addcmul, nan_to_num, comparisons
 * within a tolerance. Layer: ops.
 */
#include <math.h>

#include "ops/cast_policy.h"

static yk_tensor *scalar_like(const yk_tensor *x, double value)
{
    return yk_scalar(value, YK_OPTIONS(yk_tensor_options, .dtype = (yk_dtype)x->dtype, .device = yk__device_of(x)));
}

/* ---- atan2 ---- */

typedef struct two_forms {
    yk__tensor_spec y, x;
} two_forms;

/* d / dy = x / (x^2 + y^2), d / dx = -y / (x^2 + y^2), and 0 where the sum is 0, as in PyTorch. */
static yk_status atan2_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const two_forms *c = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *y = yk__saved(node, 0, &bad), *x = yk__saved(node, 1, &bad);
    if (bad)
        return bad;
    yk_tensor *xx = yk__raw_unary("atan2", YK__POW_SCALAR, x, 2, 0),
              *yy = yk__raw_unary("atan2", YK__POW_SCALAR, y, 2, 0);
    yk_tensor *sum = yk__raw_binary("atan2", YK__ADD, xx, yy, 1),
              *quotient = yk__raw_binary("atan2", YK__DIV, gout, sum, 1);
    yk_tensor *zero = yk__raw_scalar(0, (yk_dtype)gout->dtype, yk__device_of(gout)),
              *origin = yk__raw_binary("atan2", YK__EQ, sum, zero, 1), *share = yk__raw_where(origin, zero, quotient);
    if (yk__needs_grad(node, 0)) {
        grads[0] = yk__sum_to_spec(yk__raw_binary("atan2", YK__MUL, share, x, 1), &c->y);
        bad = yk__status_of(grads[0]);
    }
    if (!bad && yk__needs_grad(node, 1)) {
        yk_tensor *product = yk__raw_binary("atan2", YK__MUL, share, y, 1);
        grads[1] = yk__sum_to_spec(yk__raw_unary("atan2", YK__NEG, product, 0, 0), &c->x);
        yk_tensor_release(product);
        bad = yk__status_of(grads[1]);
    }
    yk__release_all(7, (yk_tensor *[]){xx, yy, sum, quotient, zero, origin, share});
    return bad;
}

static void atan2_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const two_forms *c = yk__context(node);
    yk_tensor *y = yk__saved_in_graph(node, 0), *x = yk__saved_in_graph(node, 1);
    yk_tensor *sum = yk_add(yk_square(x), yk_square(y));
    yk_tensor *share = yk__recorded_where_not(yk_eq(sum, yk__recorded_number(sum, 0)), yk_div(gouts[0], sum));
    if (yk__needs_grad(node, 0))
        grads[0] = yk__recorded_sum_to(yk_mul(share, x), &c->y);
    if (yk__needs_grad(node, 1))
        grads[1] = yk__recorded_sum_to(yk_neg(yk_mul(share, y)), &c->x);
}

yk_tensor *yk_atan2(yk_tensor *y, yk_tensor *x)
{
    static const yk__op op = {.name = "atan2", .backward = atan2_backward, .recorded = atan2_recorded};
    yk_tensor *inputs[2] = {y, x};
    YK__AUTOCAST(atan2, 2, inputs, yk_atan2(inputs[0], inputs[1]));
    yk__take_numbers(2, inputs);
    YK__EVENT(YK__EVENT_OPERATION, "atan2");
    if (!yk__op_begin("atan2", 2, inputs, 0) || yk__expect_floating("atan2", "y", inputs[0]) ||
        yk__expect_floating("atan2", "x", inputs[1]))
        return NULL;
    two_forms c = {yk__spec_of(inputs[0]), yk__spec_of(inputs[1])};
    return yk__record(yk__raw_binary("atan2", YK__ATAN2, inputs[0], inputs[1], 1), &op, 2, inputs, 2, inputs, &c,
                      sizeof(c));
}

/* ---- lerp, addcmul, addcdiv: kernels where there are some, else made of others; halves in f32, so that they are
 * rounded once ---- */

typedef struct lerp_context {
    double weight;
    yk__tensor_spec of[2];
} lerp_context;

static void lerp_number_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const lerp_context *c = yk__context(node);
    if (yk__needs_grad(node, 0))
        grads[0] = yk__recorded_sum_to(yk_mul_scalar(gouts[0], 1 - c->weight), &c->of[0]);
    if (yk__needs_grad(node, 1))
        grads[1] = yk__recorded_sum_to(yk_mul_scalar(gouts[0], c->weight), &c->of[1]);
}

/* The same of operations that a listener knows. */
static yk_tensor *lerp_composed(yk_tensor *a, yk_tensor *b, double weight)
{
    yk_dtype dtype = (yk_dtype)a->dtype, wide = yk__wide_dtype(a);
    yk_tensor *x = yk_cast(a, wide), *y = yk_cast(b, wide), *way = yk_sub(y, x);
    return yk_cast(fabs(weight) < 0.5 ? yk_add_scaled(x, way, weight) : yk_add_scaled(y, way, weight - 1), dtype);
}

yk_tensor *yk_lerp_scalar(yk_tensor *a, yk_tensor *b, double weight)
{
    static const yk__op op = {.name = "lerp_scalar", .recorded = lerp_number_recorded};
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    yk_tensor *inputs[2] = {a, b};
    YK__EVENT(YK__EVENT_OPERATION, "lerp");
    if (!yk__op_begin("lerp", 2, inputs, 0) || yk__expect_floating("lerp", "tensor", a) ||
        yk__expect_dtype("lerp", "end", b, (yk_dtype)a->dtype) || yk__broadcast("lerp", a, b, &ndim, shape))
        return NULL;
    if (yk__listening) {
        YK__WITHIN_SCOPE(lerp_composed(a, b, weight));
    }
    lerp_context c = {weight, {yk__spec_of(a), yk__spec_of(b)}};
    return yk__record(yk__raw_binary("lerp", YK__LERP_NUMBER, a, b, weight), &op, 2, inputs, 0, NULL, &c, sizeof(c));
}

typedef struct three_context {
    double value;
    yk__tensor_spec of[3];
} three_context;

/* Sets the gradient of input i, summed to its form. */
static void gradient_set(yk__node *node, int i, yk_tensor *grad, yk_tensor **grads)
{
    const three_context *c = yk__context(node);
    grads[i] = yk__recorded_sum_to(grad, &c->of[i]);
}

static void lerp_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    yk_tensor *a = yk__saved_in_graph(node, 0), *b = yk__saved_in_graph(node, 1), *w = yk__saved_in_graph(node, 2);
    if (yk__needs_grad(node, 0))
        gradient_set(node, 0, yk_mul(gouts[0], yk_add_scalar(yk_neg(w), 1)), grads);
    if (yk__needs_grad(node, 1))
        gradient_set(node, 1, yk_mul(gouts[0], w), grads);
    if (yk__needs_grad(node, 2))
        gradient_set(node, 2, yk_mul(gouts[0], yk_sub(b, a)), grads);
}

static void addcmul_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const double value = ((const three_context *)yk__context(node))->value;
    if (yk__needs_grad(node, 0))
        gradient_set(node, 0, gouts[0], grads);
    for (int i = 1; i < 3; i++)
        if (yk__needs_grad(node, i)) {
            yk_tensor *other = yk__saved_in_graph(node, 3 - i);
            gradient_set(node, i, yk_mul(gouts[0], value == 1 ? other : yk_mul_scalar(other, value)), grads);
        }
}

static void addcdiv_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const double value = ((const three_context *)yk__context(node))->value;
    yk_tensor *a = yk__saved_in_graph(node, 1), *b = yk__saved_in_graph(node, 2);
    yk_tensor *g = value == 1 ? gouts[0] : yk_mul_scalar(gouts[0], value);
    if (yk__needs_grad(node, 0))
        gradient_set(node, 0, gouts[0], grads);
    if (yk__needs_grad(node, 1))
        gradient_set(node, 1, yk_div(g, b), grads);
    if (yk__needs_grad(node, 2)) /* divided twice, as b^2 may overflow where the quotient does not */
        gradient_set(node, 2, yk_neg(yk_mul(g, yk_div(yk_div(a, b), b))), grads);
}

/* The operation of three tensors of one dtype that the device has a kernel for. */
static yk_tensor *of_three(const yk__op *op, yk__ternary kernel, yk_tensor *const in[3], double value)
{
    three_context c = {value, {yk__spec_of(in[0]), yk__spec_of(in[1]), yk__spec_of(in[2])}};
    return yk__record(yk__raw_ternary(op->name, kernel, in[0], in[1], in[2], value), op, 3, in, 3, in, &c, sizeof(c));
}

/* True if three shapes broadcast together, which they do where any two do; else an error in the name of the
 * operation. */
static bool fit_together(const char *name, yk_tensor *const x[3])
{
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    for (int i = 0; i < 3; i++) {
        if (yk__broadcast(name, x[i / 2], x[(i + 3) / 2], &ndim, shape))
            return false;
    }
    return true;
}

static yk_tensor *lerp(yk_tensor *a, yk_tensor *b, yk_tensor *weight)
{
    yk_dtype dtype = (yk_dtype)a->dtype, wide = yk__wide_dtype(a);
    static const yk__op op = {.name = "lerp", .recorded = lerp_recorded};
    yk_tensor *x = yk_cast(a, wide), *y = yk_cast(b, wide), *w = yk_cast(weight, wide);
    if (x && y && w && !yk__listening && yk__has_ternary(x))
        return yk_cast(of_three(&op, YK__LERP, (yk_tensor *[]){x, y, w}, 0), dtype);
    yk_tensor *way = yk_sub(y, x), *near = yk_lt(yk_abs(weight), scalar_like(weight, 0.5));
    yk_tensor *share = yk_where(near, w, yk_add_scalar(w, -1));
    return yk_cast(yk_add(yk_where(near, x, y), yk_mul(share, way)), dtype);
}

yk_tensor *yk_lerp(yk_tensor *a, yk_tensor *b, yk_tensor *weight)
{
    yk_tensor *inputs[3] = {a, b, weight};
    YK__EVENT(YK__EVENT_OPERATION, "lerp");
    if (!yk__op_begin("lerp", 3, inputs, 0) || yk__expect_floating("lerp", "tensor", a) ||
        yk__expect_dtype("lerp", "end", b, (yk_dtype)a->dtype) ||
        yk__expect_dtype("lerp", "weight", weight, (yk_dtype)a->dtype) || !fit_together("lerp", inputs))
        return NULL;
    YK__WITHIN_SCOPE(lerp(a, b, weight));
}

/* The dtype of a result of three: what has dimensions counts, and numbers where they are of a higher kind. */
static yk_dtype common_dtype(yk_tensor *const x[3])
{
    yk_dtype of[2] = {YK_BOOL, YK_BOOL}; /* of numbers, of the others */
    bool dims = false;
    for (int i = 0; i < 3; i++) {
        yk_dtype *to = &of[x[i]->ndim > 0];
        *to = yk_dtype_promote(*to, (yk_dtype)x[i]->dtype);
        dims = dims || x[i]->ndim > 0;
    }
    bool higher = of[1] == YK_BOOL || (yk_dtype_is_floating(of[0]) && !yk_dtype_is_floating(of[1]));
    return !dims ? of[0] : higher ? yk_dtype_promote(of[0], of[1]) : of[1];
}

/* x + (value a) f b, all in the dtype of the result; of integers x + value (a f b), where value is one, too. */
static yk_tensor *addc(yk_tensor *const in[3], double value, yk_tensor *(*f)(yk_tensor *, yk_tensor *))
{
    static const yk__op mul = {.name = "addcmul", .recorded = addcmul_recorded};
    static const yk__op div = {.name = "addcdiv", .recorded = addcdiv_recorded};
    yk_dtype dtype = common_dtype(in), compute = yk__is_half(dtype) ? YK_F32 : dtype;
    yk_tensor *x = yk_cast(in[0], compute), *a = yk_cast(in[1], compute), *b = yk_cast(in[2], compute);
    if (!yk_dtype_is_floating(dtype))
        return yk_add_scaled(x, f(a, b), value);
    if (x && a && b && !yk__listening && yk__has_ternary(x)) {
        bool divides = f == yk_div;
        yk_tensor *of[3] = {x, a, b};
        return yk_cast(of_three(divides ? &div : &mul, divides ? YK__ADDCDIV : YK__ADDCMUL, of, value), dtype);
    }
    yk_tensor *out = yk_add(x, f(value == 1 ? a : yk_mul_scalar(a, value), b));
    return yk_cast(out, dtype);
}

yk_tensor *yk_addcmul(yk_tensor *x, yk_tensor *a, yk_tensor *b, double value)
{
    yk_tensor *inputs[3] = {x, a, b};
    YK__AUTOCAST(addcmul, 3, inputs, yk_addcmul(inputs[0], inputs[1], inputs[2], value));
    yk__take_numbers(3, inputs);
    YK__EVENT(YK__EVENT_OPERATION, "addcmul");
    if (!yk__op_begin("addcmul", 3, inputs, 0) || !fit_together("addcmul", inputs))
        return NULL;
    YK__WITHIN_SCOPE(addc(inputs, value, yk_mul));
}

yk_tensor *yk_addcdiv(yk_tensor *x, yk_tensor *a, yk_tensor *b, double value)
{
    yk_tensor *inputs[3] = {x, a, b};
    YK__AUTOCAST(addcdiv, 3, inputs, yk_addcdiv(inputs[0], inputs[1], inputs[2], value));
    yk__take_numbers(3, inputs);
    YK__EVENT(YK__EVENT_OPERATION, "addcdiv");
    if (!yk__op_begin("addcdiv", 3, inputs, 0) || !fit_together("addcdiv", inputs))
        return NULL;
    bool integers = !yk_dtype_is_floating((yk_dtype)inputs[1]->dtype);
    if (integers && yk__expect_floating("addcdiv", "divisor", inputs[2]))
        return NULL;
    YK__WITHIN_SCOPE(addc(inputs, value, yk_div));
}

yk_tensor *yk_is_nan(yk_tensor *x)
{
    YK__EVENT(YK__EVENT_OPERATION, "is_nan");
    return yk__op_begin("is_nan", 1, &x, 0) ? yk_ne(x, x) : NULL;
}

static yk_tensor *is_inf(yk_tensor *x)
{
    return yk_logical_and(yk_logical_not(yk_is_finite(x)), yk_eq(x, x));
}

yk_tensor *yk_is_inf(yk_tensor *x)
{
    YK__EVENT(YK__EVENT_OPERATION, "is_inf");
    if (!yk__op_begin("is_inf", 1, &x, 0))
        return NULL;
    YK__WITHIN_SCOPE(is_inf(x));
}

static void nan_to_num_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    grads[0] = yk__recorded_where(yk_is_finite(yk__saved_in_graph(node, 0)), gouts[0]);
}

/* The same of operations that a listener knows. */
static yk_tensor *numbers_composed(yk_tensor *x, double nan, double upper, double lower)
{
    yk_tensor *out = yk_where(yk_eq_scalar(x, INFINITY), scalar_like(x, upper), x);
    out = yk_where(yk_eq_scalar(x, -INFINITY), scalar_like(x, lower), out);
    return yk_where(yk_ne(x, x), scalar_like(x, nan), out);
}

yk_tensor *yk_nan_to_num(yk_tensor *x, double nan, double posinf, double neginf)
{
    static const yk__op op = {.name = "nan_to_num", .recorded = nan_to_num_recorded};
    YK__EVENT(YK__EVENT_OPERATION, "nan_to_num");
    if (!yk__op_begin("nan_to_num", 1, &x, 0))
        return NULL;
    if (!yk_dtype_is_floating((yk_dtype)x->dtype))
        return yk_clone(x);
    const double most = yk__largest((yk_dtype)x->dtype);
    double upper = isnan(posinf) ? most : posinf, lower = isnan(neginf) ? -most : neginf;
    yk_tensor *out = NULL;
    if (yk__listening) {
        YK__WITHIN_SCOPE(numbers_composed(x, nan, upper, lower));
    }
    if (upper == most && lower == -most) {
        out = yk__raw_unary("nan_to_num", YK__NAN_TO_NUM, x, nan, most);
    } else {
        out = yk__raw_unary("nan_to_num", YK__REPLACE_INFINITY, x, upper, lower);
        out = out ? yk__tensor_if_ok(out, yk__raw_unary_into("nan_to_num", YK__NAN_TO_NUM, out, nan, INFINITY)) : NULL;
    }
    return yk__record(out, &op, 1, &x, 1, &x, NULL, 0);
}

static yk_tensor *is_close(yk_tensor *a, yk_tensor *b, double rtol, double atol, bool equal_nan)
{
    yk_tensor *equal = yk_eq(a, b);
    if (equal_nan)
        equal = yk_logical_or(equal, yk_logical_and(yk_ne(a, a), yk_ne(b, b)));
    yk_tensor *x = a, *y = b;
    if (!yk_dtype_is_floating((yk_dtype)a->dtype)) {
        x = yk_cast(a, YK_F64);
        y = yk_cast(b, YK_F64);
    }
    yk_tensor *allowed = yk_add_scalar(yk_mul_scalar(yk_abs(y), rtol), atol), *error = yk_abs(yk_sub(x, y));
    return yk_logical_or(equal, yk_logical_and(yk_is_finite(error), yk_le(error, allowed)));
}

static yk_tensor *checked_is_close(const char *name, yk_tensor *a, yk_tensor *b, double rtol, double atol,
                                   bool equal_nan)
{
    yk_tensor *inputs[2] = {a, b};
    int ndim;
    int64_t shape[YK_MAX_DIMS];
    YK__EVENT(YK__EVENT_OPERATION, name);
    if (!yk__op_begin(name, 2, inputs, 0) || yk__expect_dtype(name, "b", b, (yk_dtype)a->dtype) ||
        yk__broadcast(name, a, b, &ndim, shape))
        return NULL;
    if (!(rtol >= 0) || !(atol >= 0)) {
        yk__fail(YK_ERR_ARGUMENT, "%s: rtol %g and atol %g, expected at least 0", name, rtol, atol);
        return NULL;
    }
    bool before = yk_no_grad_begin();
    yk_scope scope = yk_scope_begin();
    yk_tensor *out = is_close(a, b, rtol, atol, equal_nan);
    out = out ? yk_scope_return(scope, out) : NULL;
    yk_scope_end(scope);
    yk_no_grad_end(before);
    return out;
}

yk_tensor *yk_is_close(yk_tensor *a, yk_tensor *b, double rtol, double atol, bool equal_nan)
{
    return checked_is_close("is_close", a, b, rtol, atol, equal_nan);
}

bool yk_all_close(yk_tensor *a, yk_tensor *b, double rtol, double atol, bool equal_nan)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *out = checked_is_close("all_close", a, b, rtol, atol, equal_nan), *all = out ? yk_all(out) : NULL;
    double value = 0;
    bool close = all && !yk__item("all_close", all, &value) && value == 1;
    yk_scope_end(scope);
    return close;
}
