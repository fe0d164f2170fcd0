/*
 * inplace.c - operations that overwrite their first argument. Layer: ops.
 *
 * Each does: check, let the tape object (yk__in_place_begin), write, let the tape follow (yk__in_place_end: version,
 * and a new maker where a gradient flows, of x or of the tensor that x shows a part of). A rule that needs the old
 * value keeps a copy of it, made before the write. x keeps its shape and dtype whatever it is combined with.
 */
#include <math.h>

#include "ops/index.h"

/* The first byte of x's elements and the first after them. */
static void extent_of(const yk_tensor *x, const char **first, const char **end)
{
    int64_t last = 0;
    for (int d = 0; d < x->ndim; d++)
        last += (x->shape[d] - 1) * x->stride[d];
    *first = x->data;
    *end = *first + (last + 1) * (int64_t)yk_dtype_size((yk_dtype)x->dtype);
}

/*
 * Keeps a write to x from changing elements of y that are still to be read: *read is y, or a copy of it where the two
 * are in one stretch of memory without being the same elements in the same positions. Where each fills its stretch, so
 * that they surely share elements, it is an error, as in PyTorch. One reference.
 */
static yk_status apart(const char *name, yk_tensor *x, yk_tensor *y, yk_tensor **read)
{
    *read = yk_tensor_retain(y);
    if (!y || x == y || x->storage != y->storage || !x->numel || !y->numel)
        return YK_OK;
    const char *x_first, *x_end, *y_first, *y_end;
    extent_of(x, &x_first, &x_end);
    extent_of(y, &y_first, &y_end);
    if (x_end <= y_first || y_end <= x_first || (x_first == y_first && yk__same_strides(x, y)))
        return YK_OK;
    yk_tensor_release(y);
    *read = NULL;
    if (yk__is_dense(x) && yk__is_dense(y)) {
        char a[200], b[200];
        return yk__fail(YK_ERR_STATE,
                        "%s: the tensor of shape %s that is written shares some of its elements with the other of "
                        "shape %s; clone that first",
                        name, yk_shape_format(x, a, sizeof(a)), yk_shape_format(y, b, sizeof(b)));
    }
    *read = yk__raw_clone(y);
    return yk__status_of(*read);
}

/* True if each of n operands is given and whole. */
static bool are_there(const char *name, int n, yk_tensor *const *inputs)
{
    for (int i = 0; i < n; i++) {
        if (yk__is_freed(inputs[i])) {
            yk__fail_freed(name, inputs[i]);
            return false;
        }
    }
    for (int i = 0; i < n; i++) {
        if (inputs[i])
            continue;
        if (!yk__error_code())
            yk__fail(YK_ERR_ARGUMENT, "%s: argument %d is NULL", name, i + 1);
        return false;
    }
    return true;
}

/* Checks the operands: freed ones, NULLs, devices. No scope is needed, as nothing new is returned. */
static bool operands_begin(const char *name, yk_tensor *x, yk_tensor *y, bool has_y, bool one_device)
{
    yk_tensor *inputs[2] = {x, y};
    int n = has_y ? 2 : 1;
    return are_there(name, n, inputs) && (!one_device || !yk__same_device(name, n, inputs)) &&
           !yk__in_place_begin(name, x, n, inputs);
}

typedef struct in_place_context {
    double factor;
    yk_device device; /* of y */
    yk__tensor_spec y;
} in_place_context;

static yk_tensor *write_finish(yk_tensor *x, yk_tensor *y, yk_status status, const yk__op *op, yk_tensor *old_x,
                               yk_tensor *keep_y, double factor)
{
    yk_tensor *inputs[2] = {x, y}, *saved[2] = {old_x, keep_y};
    in_place_context c = {.factor = factor};
    if (y) {
        c.device = yk__device_of(y);
        c.y = yk__spec_of(y);
    }
    if (!status)
        status = yk__in_place_end(x, op, y ? 2 : 1, inputs, 2, saved, &c, sizeof(c));
    return status ? NULL : x;
}

/* True if y is a number that must be brought to x's device first, for which there is a scope (op.h). */
static bool is_elsewhere(const yk_tensor *x, const yk_tensor *y)
{
    return x && y && !yk__is_freed(x) && !yk__is_freed(y) && yk__is_number_for(x, y);
}

/* ---- x += alpha y, x *= y, x *= factor ---- */

static yk_status add_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const in_place_context *c = yk__context(node);
    if (yk__needs_grad(node, 0))
        grads[0] = yk_tensor_retain(gout);
    if (!yk__needs_grad(node, 1))
        return YK_OK;
    yk_tensor *scaled =
        c->factor == 1 ? yk_tensor_retain(gout) : yk__raw_unary("add_", YK__MUL_SCALAR, gout, c->factor, 0);
    grads[1] = yk__sum_to_spec(scaled, &c->y);
    return yk__status_of(grads[1]);
}

static void add_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const in_place_context *c = yk__context(node);
    grads[0] = gouts[0];
    if (yk__needs_grad(node, 1))
        grads[1] = yk__recorded_sum_to(c->factor == 1 ? gouts[0] : yk_mul_scalar(gouts[0], c->factor), &c->y);
}

static yk_tensor *add_into(const yk__op *op, yk_tensor *x, yk_tensor *y, double alpha)
{
    if (!operands_begin(op->name, x, y, true, true))
        return NULL;
    yk_tensor *read = NULL;
    yk_status status = yk__check_alpha(op->name, x, y, alpha);
    if (!status)
        status = apart(op->name, x, y, &read);
    if (!status)
        status = yk__raw_binary_into(op->name, YK__ADD, x, x, read, alpha);
    yk_tensor_release(read);
    return write_finish(x, y, status, op, NULL, NULL, alpha);
}

yk_tensor *yk_add_(yk_tensor *x, yk_tensor *y, double alpha)
{
    static const yk__op op = {.name = "add_", .backward = add_backward, .recorded = add_recorded};
    if (is_elsewhere(x, y)) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *out = yk_add_(x, yk_to(y, yk__device_of(x)), alpha);
        yk_scope_end(scope);
        return out;
    }
    return add_into(&op, x, y, alpha);
}

static yk_status mul_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const in_place_context *c = yk__context(node);
    yk_status bad = YK_OK;
    yk_tensor *x = yk__saved(node, 0, &bad), *y = yk__saved(node, 1, &bad);
    if (!bad && yk__needs_grad(node, 0)) {
        yk_tensor *product = yk__raw_binary("mul_", YK__MUL, gout, y, 1);
        grads[0] = yk__narrow_to(product, (yk_dtype)gout->dtype);
        bad = yk__status_of(grads[0]);
    }
    if (!bad && yk__needs_grad(node, 1)) {
        grads[1] = yk__sum_to_spec(yk__raw_binary("mul_", YK__MUL, gout, x, 1), &c->y);
        bad = yk__status_of(grads[1]);
    }
    return bad;
}

static void mul_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const in_place_context *c = yk__context(node);
    yk_status bad = YK_OK;
    const yk_tensor *old = yk__saved(node, 0, &bad), *kept = yk__saved(node, 1, &bad);
    yk__tensor_spec x = yk__spec_of(gouts[0]);
    if (yk__needs_grad(node, 0)) { /* x *= x keeps x's old value alone */
        yk_tensor *y = kept && kept == old ? yk__saved_input(node, 1, 1, &c->y) : yk__saved_in_graph(node, 1);
        grads[0] = yk_cast(yk_mul(gouts[0], y), (yk_dtype)x.dtype);
    }
    if (yk__needs_grad(node, 1))
        grads[1] = yk__recorded_sum_to(yk_mul(gouts[0], yk__saved_input(node, 0, 0, &x)), &c->y);
}

yk_tensor *yk_mul_(yk_tensor *x, yk_tensor *y)
{
    static const yk__op op = {.name = "mul_", .backward = mul_backward, .recorded = mul_recorded};
    if (is_elsewhere(x, y)) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *out = yk_mul_(x, yk_to(y, yk__device_of(x)));
        yk_scope_end(scope);
        return out;
    }
    if (!operands_begin("mul_", x, y, true, true))
        return NULL;
    yk_tensor *old = yk__will_record(1, &y) ? yk__raw_clone(x) : NULL, *read = NULL;
    yk_status status = yk__will_record(1, &y) ? yk__status_of(old) : YK_OK;
    if (!status)
        status = apart("mul_", x, y, &read);
    if (!status)
        status = yk__raw_binary_into("mul_", YK__MUL, x, x, read, 1);
    yk_tensor_release(read);
    yk_tensor *keep_y = !yk__will_record(1, &x) ? NULL : y == x ? old : y;
    yk_tensor *out = write_finish(x, y, status, &op, old, keep_y, 0);
    yk_tensor_release(old);
    return out;
}

static yk_status scale_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const in_place_context *c = yk__context(node);
    grads[0] = yk__raw_unary("mul_scalar_", YK__MUL_SCALAR, gout, c->factor, 0);
    return yk__status_of(grads[0]);
}

static void scale_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const in_place_context *c = yk__context(node);
    grads[0] = yk_mul_scalar(gouts[0], c->factor);
}

yk_tensor *yk_mul_scalar_(yk_tensor *x, double y)
{
    static const yk__op op = {.name = "mul_scalar_", .backward = scale_backward, .recorded = scale_recorded};
    if (!operands_begin("mul_scalar_", x, NULL, false, false))
        return NULL;
    if (x->dtype == YK_BOOL || (!yk_dtype_is_floating((yk_dtype)x->dtype) && y != (double)(int64_t)y)) {
        yk__fail(YK_ERR_DTYPE, "mul_scalar_: a tensor of %s cannot hold its product with %g",
                 yk_dtype_name((yk_dtype)x->dtype), y);
        return NULL;
    }
    return write_finish(x, NULL, yk__raw_unary_into("mul_scalar_", YK__MUL_SCALAR, x, y, 0), &op, NULL, NULL, y);
}

static yk_status relu_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    yk_status bad = YK_OK;
    yk_tensor *out = yk__saved(node, 0, &bad);
    if (bad)
        return bad;
    grads[0] = yk__raw_binary("relu_", YK__RELU_GRAD, gout, out, 1);
    return yk__status_of(grads[0]);
}

static void relu_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    grads[0] = yk__recorded_relu(gouts[0], yk__saved_in_graph(node, 0));
}

yk_tensor *yk_relu_(yk_tensor *x)
{
    static const yk__op op = {.name = "relu_", .backward = relu_backward, .recorded = relu_recorded};
    if (!operands_begin("relu_", x, NULL, false, false))
        return NULL;
    return write_finish(x, NULL, yk__raw_unary_into("relu_", YK__RELU, x, 0, 0), &op, x, NULL, 0);
}

/* ---- what overwrites everything: the gradient of the old value is zero ---- */

static yk_status constant_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    if (!yk__needs_grad(node, 0))
        return YK_OK;
    grads[0] = yk__tensor_full_like(gout, 0);
    return yk__status_of(grads[0]);
}

static yk_status copy_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    const in_place_context *c = yk__context(node);
    yk_status status = constant_backward(node, gout, grads);
    if (status || !yk__needs_grad(node, 1))
        return status;
    yk_tensor *fitted = yk__sum_to_spec(yk_tensor_retain(gout), &c->y);
    grads[1] = fitted ? yk__raw_to(fitted, c->device) : NULL;
    yk_tensor_release(fitted);
    return yk__status_of(grads[1]);
}

static void constant_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    if (yk__needs_grad(node, 0))
        grads[0] = yk_zeros_like(gouts[0]);
}

static void copy_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    const in_place_context *c = yk__context(node);
    constant_recorded(node, gouts, grads);
    if (yk__needs_grad(node, 1))
        grads[1] = yk_to(yk__recorded_sum_to(gouts[0], &c->y), c->device);
}

static yk_tensor *copy_into(const yk__op *op, yk_tensor *x, yk_tensor *from)
{
    if (!operands_begin(op->name, x, from, true, false))
        return NULL;
    yk_tensor *read = NULL;
    yk_status status = apart(op->name, x, from, &read);
    if (!status)
        status = yk__raw_copy(x, read);
    yk_tensor_release(read);
    return write_finish(x, from, status, op, NULL, NULL, 0);
}

yk_tensor *yk_copy_(yk_tensor *x, yk_tensor *from)
{
    static const yk__op op = {.name = "copy_", .backward = copy_backward, .recorded = copy_recorded};
    return copy_into(&op, x, from);
}

yk_tensor *yk__put_whole(yk_tensor *x, yk_tensor *value, bool accumulate)
{
    static const yk__op add = {.name = "index_put_", .backward = add_backward, .recorded = add_recorded};
    static const yk__op copy = {.name = "index_put_", .backward = copy_backward, .recorded = copy_recorded};
    return accumulate ? add_into(&add, x, value, 1) : copy_into(&copy, x, value);
}

static yk_tensor *tensor_fill(const yk__op *op, yk_tensor *x, double value);

/* Fills an expanded tensor, whose elements share memory: each is written once. Nothing is recorded, so there is nothing
 * to follow. */
static yk_tensor *fill_expanded(const yk__op *op, yk_tensor *x, double value)
{
    int64_t shape[YK_MAX_DIMS];
    for (int d = 0; d < x->ndim; d++)
        shape[d] = x->stride[d] == 0 && x->shape[d] > 1 ? 1 : x->shape[d];
    yk_tensor *once = yk__tensor_view(x, x->ndim, shape, x->stride, 0);
    yk_tensor *filled = once ? tensor_fill(op, once, value) : NULL;
    yk_tensor_release(once);
    return filled ? x : NULL;
}

static yk_tensor *tensor_fill(const yk__op *op, yk_tensor *x, double value)
{
    if (x && !yk__is_freed(x) && yk__is_expanded(x) && !yk__will_record(1, &x))
        return fill_expanded(op, x, value);
    if (!operands_begin(op->name, x, NULL, false, false) || yk__check_value(op->name, (yk_dtype)x->dtype, value))
        return NULL;
    return write_finish(x, NULL, yk__raw_fill(x, value), op, NULL, NULL, 0);
}

yk_tensor *yk_fill_(yk_tensor *x, double value)
{
    static const yk__op op = {.name = "fill_", .backward = constant_backward, .recorded = constant_recorded};
    return tensor_fill(&op, x, value);
}

yk_tensor *yk_zero_(yk_tensor *x)
{
    static const yk__op op = {.name = "zero_", .backward = constant_backward, .recorded = constant_recorded};
    return tensor_fill(&op, x, 0);
}

static yk_tensor *draw(const yk__op *op, yk_tensor *x, yk__random_kind kind, double p0, double p1)
{
    if (!operands_begin(op->name, x, NULL, false, false) || yk__expect_floating(op->name, "tensor", x))
        return NULL;
    return write_finish(x, NULL, x->numel ? yk__raw_random(op->name, x, kind, p0, p1) : YK_OK, op, NULL, NULL, 0);
}

yk_tensor *yk_uniform_(yk_tensor *x, double low, double high)
{
    static const yk__op op = {.name = "uniform_", .backward = constant_backward, .recorded = constant_recorded};
    if (!(low <= high)) {
        yk__fail(YK_ERR_ARGUMENT, "uniform_: the range [%g, %g) is empty", low, high);
        return NULL;
    }
    return draw(&op, x, YK__RANDOM_UNIFORM, low, high);
}

yk_tensor *yk_normal_(yk_tensor *x, double mean, double deviation)
{
    static const yk__op op = {.name = "normal_", .backward = constant_backward, .recorded = constant_recorded};
    if (!(deviation >= 0)) {
        yk__fail(YK_ERR_ARGUMENT, "normal_: the deviation %g is negative", deviation);
        return NULL;
    }
    return draw(&op, x, YK__RANDOM_NORMAL, mean, deviation);
}

/* ---- functions whose results replace x: kernels where nothing is recorded, else a copy ---- */

/* x holds what `out` holds, of its dtype and shape; the history is that of a copy. Ends the scope. */
static yk_tensor *replace(const yk__op *op, yk_tensor *x, yk_tensor *out, yk_scope scope)
{
    char a[200], b[200];
    bool fits = out != NULL;
    if (fits && yk_dtype_is_floating((yk_dtype)out->dtype) && !yk_dtype_is_floating((yk_dtype)x->dtype)) {
        yk__fail(YK_ERR_DTYPE, "%s: the result is %s, which a tensor of %s does not hold", op->name,
                 yk_dtype_name((yk_dtype)out->dtype), yk_dtype_name((yk_dtype)x->dtype));
        fits = false;
    }
    if (fits && !yk_same_shape(x, out)) {
        yk__fail(YK_ERR_SHAPE, "%s: the result has shape %s, and the tensor that is written %s", op->name,
                 yk_shape_format(out, a, sizeof(a)), yk_shape_format(x, b, sizeof(b)));
        fits = false;
    }
    yk_tensor *written = fits ? copy_into(op, x, out) : NULL;
    yk_scope_end(scope);
    return written;
}

/* True where kernels may write over x at once: nothing is recorded or heard, and nothing is rounded on the way. */
static bool at_once(yk_tensor *x, int n_inputs, yk_tensor *const *inputs)
{
    return (x->dtype == YK_F32 || x->dtype == YK_F64) && !yk__will_tell(n_inputs, inputs);
}

/* x, and where a gradient flows its old value, which the write must not change. */
static yk_tensor *old_value(yk_tensor *x, int n_inputs, yk_tensor *const *inputs)
{
    return yk__will_tell(n_inputs, inputs) ? yk_clone(x) : x;
}

static yk_tensor *unary_in_place(const yk__op *op, yk__unary kernel, double p0, double p1, yk_tensor *x,
                                 yk_tensor *(*f)(yk_tensor *x, const double *p))
{
    if (!operands_begin(op->name, x, NULL, false, false))
        return NULL;
    if (at_once(x, 1, &x))
        return write_finish(x, NULL, yk__raw_unary_into(op->name, kernel, x, p0, p1), op, NULL, NULL, 0);
    yk_scope scope = yk_scope_begin();
    yk_tensor *old = old_value(x, 1, &x);
    return replace(op, x, old ? f(old, (double[2]){p0, p1}) : NULL, scope);
}

#define IN_PLACE_OP(label)                                                                                             \
    static const yk__op label##_into_op = {.name = #label "_", .backward = copy_backward, .recorded = copy_recorded}
#define UNARY_IN_PLACE(label, kernel)                                                                                  \
    IN_PLACE_OP(label);                                                                                                \
    static yk_tensor *label##_of(yk_tensor *x, const double *p)                                                        \
    {                                                                                                                  \
        (void)p;                                                                                                       \
        return yk_##label(x);                                                                                          \
    }                                                                                                                  \
    yk_tensor *yk_##label##_(yk_tensor *x)                                                                             \
    {                                                                                                                  \
        return unary_in_place(&label##_into_op, YK__##kernel, 2, 0, x, label##_of);                                    \
    }
UNARY_IN_PLACE(neg, NEG)
UNARY_IN_PLACE(abs, ABS)
UNARY_IN_PLACE(exp, EXP)
UNARY_IN_PLACE(log, LOG)
UNARY_IN_PLACE(sqrt, SQRT)
UNARY_IN_PLACE(rsqrt, RSQRT)
UNARY_IN_PLACE(reciprocal, RECIPROCAL)
UNARY_IN_PLACE(square, POW_SCALAR) /* of 2 */
UNARY_IN_PLACE(tanh, TANH)
UNARY_IN_PLACE(sigmoid, SIGMOID)
UNARY_IN_PLACE(floor, FLOOR)
UNARY_IN_PLACE(ceil, CEIL)
UNARY_IN_PLACE(round, ROUND)

#define SCALAR_IN_PLACE(label, kernel, number)                                                                         \
    IN_PLACE_OP(label);                                                                                                \
    static yk_tensor *label##_of(yk_tensor *x, const double *p)                                                        \
    {                                                                                                                  \
        const double y = p[0];                                                                                         \
        return yk_##kernel##_scalar(x, number);                                                                        \
    }
SCALAR_IN_PLACE(add_scalar, add, y)
SCALAR_IN_PLACE(pow_scalar, pow, y)
SCALAR_IN_PLACE(div_scalar, div, y)
IN_PLACE_OP(sub_scalar);
IN_PLACE_OP(clamp);

yk_tensor *yk_add_scalar_(yk_tensor *x, double y)
{
    return unary_in_place(&add_scalar_into_op, YK__ADD_SCALAR, y, 0, x, add_scalar_of);
}

yk_tensor *yk_sub_scalar_(yk_tensor *x, double y)
{
    return unary_in_place(&sub_scalar_into_op, YK__ADD_SCALAR, -y, 0, x, add_scalar_of);
}

yk_tensor *yk_pow_scalar_(yk_tensor *x, double y)
{
    return unary_in_place(&pow_scalar_into_op, YK__POW_SCALAR, y, 0, x, pow_scalar_of);
}

static yk_tensor *clamp_of(yk_tensor *x, const double *p)
{
    return yk_clamp(x, p[0], p[1]);
}

yk_tensor *yk_clamp_(yk_tensor *x, double low, double high)
{
    if (isnan(low) || isnan(high)) /* as yk_clamp */
        return yk_mul_scalar_(x, NAN);
    return unary_in_place(&clamp_into_op, YK__CLAMP, low, high, x, clamp_of);
}

/* A quotient by a number is no product with its reciprocal, but where yk_div_scalar says so. */
yk_tensor *yk_div_scalar_(yk_tensor *x, double y)
{
    if (!operands_begin("div_scalar_", x, NULL, false, false))
        return NULL;
    if (at_once(x, 1, &x)) {
        yk_tensor *divisor = yk__raw_scalar(y, (yk_dtype)x->dtype, yk__device_of(x));
        yk_status status =
            divisor ? yk__raw_binary_into("div_scalar_", YK__DIV, x, x, divisor, 1) : yk__status_of(NULL);
        yk_tensor_release(divisor);
        return write_finish(x, NULL, status, &div_scalar_into_op, NULL, NULL, 0);
    }
    yk_scope scope = yk_scope_begin();
    yk_tensor *old = old_value(x, 1, &x);
    return replace(&div_scalar_into_op, x, old ? div_scalar_of(old, &y) : NULL, scope);
}

static yk_tensor *binary_in_place(const yk__op *op, yk__binary kernel, yk_tensor *x, yk_tensor *y, double alpha)
{
    yk_tensor *inputs[2] = {x, y};
    if (is_elsewhere(x, y)) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *out = binary_in_place(op, kernel, x, yk_to(y, yk__device_of(x)), alpha);
        yk_scope_end(scope);
        return out;
    }
    if (!operands_begin(op->name, x, y, true, true) || (kernel == YK__SUB && yk__check_alpha(op->name, x, y, alpha)))
        return NULL;
    if (at_once(x, 2, inputs) && y->dtype == x->dtype) {
        yk_tensor *read = NULL;
        yk_status status = apart(op->name, x, y, &read);
        if (!status)
            status = yk__raw_binary_into(op->name, kernel, x, x, read, alpha);
        yk_tensor_release(read);
        return write_finish(x, NULL, status, op, NULL, NULL, 0);
    }
    yk_scope scope = yk_scope_begin();
    yk_tensor *old = old_value(x, 2, inputs), *of = old && y == x ? old : y, *out = NULL;
    if (old && kernel == YK__DIV)
        out = yk_div(old, of);
    else if (old)
        out = alpha == 1 ? yk_sub(old, of) : yk_sub(old, yk_mul_scalar(of, alpha));
    return replace(op, x, out, scope);
}

yk_tensor *yk_sub_(yk_tensor *x, yk_tensor *y, double alpha)
{
    static const yk__op op = {.name = "sub_", .backward = copy_backward, .recorded = copy_recorded};
    return binary_in_place(&op, YK__SUB, x, y, alpha);
}

yk_tensor *yk_div_(yk_tensor *x, yk_tensor *y)
{
    static const yk__op op = {.name = "div_", .backward = copy_backward, .recorded = copy_recorded};
    return binary_in_place(&op, YK__DIV, x, y, 1);
}

/* ---- x += value a b, x += value a / b, x towards an end ---- */

/* True if x may be written and the others are given, whole and on its device. */
static bool three_begin(const char *name, yk_tensor *x, yk_tensor *a, yk_tensor *b)
{
    yk_tensor *inputs[3] = {x, a, b};
    return are_there(name, 3, inputs) && !yk__in_place_begin(name, x, 3, inputs);
}

/* True if a kernel may read a and b of x's form while it writes over x. */
static bool in_one_pass(yk_tensor *x, yk_tensor *a, yk_tensor *b)
{
    yk_tensor *of[3] = {x, a, b};
    if (!at_once(x, 3, of) || !yk__has_ternary(x))
        return false;
    for (int i = 1; i < 3; i++)
        if (of[i]->dtype != x->dtype || !yk_same_shape(of[i], x) || (of[i] != x && of[i]->storage == x->storage))
            return false;
    return yk_device_equal(yk__device_of(x), yk__device_of(a)) && yk_device_equal(yk__device_of(x), yk__device_of(b));
}

/* x += (value a) f b by kernels, of one dtype; the terms are those of yk_addcmul and yk_addcdiv. */
static yk_status add_term(const char *name, yk__binary f, yk_tensor *x, yk_tensor *a, yk_tensor *b, double value)
{
    yk_tensor *scaled = value == 1 ? yk_tensor_retain(a) : yk__raw_unary(name, YK__MUL_SCALAR, a, value, 0);
    yk_tensor *term = scaled ? yk__raw_binary(name, f, scaled, b, 1) : NULL;
    yk_status status = term ? yk__raw_binary_into(name, YK__ADD, x, x, term, 1) : yk__status_of(NULL);
    yk__release_all(2, (yk_tensor *[]){scaled, term});
    return status;
}

static yk_tensor *add_term_in_place(const yk__op *op, yk__binary kernel, yk_tensor *x, yk_tensor *a, yk_tensor *b,
                                    double value,
                                    yk_tensor *(*f)(yk_tensor *x, yk_tensor *a, yk_tensor *b, double value))
{
    yk_tensor *inputs[3] = {x, a, b};
    if (!three_begin(op->name, x, a, b))
        return NULL;
    if (in_one_pass(x, a, b)) {
        yk__ternary whole = kernel == YK__MUL ? YK__ADDCMUL : YK__ADDCDIV;
        return write_finish(x, NULL, yk__raw_ternary_into(whole, x, a, b, value), op, NULL, NULL, 0);
    }
    bool one_dtype = a->dtype == x->dtype && b->dtype == x->dtype && a->ndim && b->ndim;
    if (one_dtype && at_once(x, 3, inputs) && !yk__same_device(op->name, 3, inputs))
        return write_finish(x, NULL, add_term(op->name, kernel, x, a, b, value), op, NULL, NULL, 0);
    yk_scope scope = yk_scope_begin();
    yk_tensor *old = old_value(x, 3, inputs);
    return replace(op, x, old ? f(old, a == x ? old : a, b == x ? old : b, value) : NULL, scope);
}

yk_tensor *yk_addcmul_(yk_tensor *x, yk_tensor *a, yk_tensor *b, double value)
{
    static const yk__op op = {.name = "addcmul_", .backward = copy_backward, .recorded = copy_recorded};
    return add_term_in_place(&op, YK__MUL, x, a, b, value, yk_addcmul);
}

yk_tensor *yk_addcdiv_(yk_tensor *x, yk_tensor *a, yk_tensor *b, double value)
{
    static const yk__op op = {.name = "addcdiv_", .backward = copy_backward, .recorded = copy_recorded};
    return add_term_in_place(&op, YK__DIV, x, a, b, value, yk_addcdiv);
}

yk_tensor *yk_lerp_(yk_tensor *x, yk_tensor *end, yk_tensor *weight)
{
    static const yk__op op = {.name = "lerp_", .backward = copy_backward, .recorded = copy_recorded};
    yk_tensor *inputs[3] = {x, end, weight};
    if (!three_begin("lerp_", x, end, weight))
        return NULL;
    if (in_one_pass(x, end, weight))
        return write_finish(x, NULL, yk__raw_ternary_into(YK__LERP, x, end, weight, 0), &op, NULL, NULL, 0);
    yk_scope scope = yk_scope_begin();
    yk_tensor *old = old_value(x, 3, inputs);
    return replace(&op, x, old ? yk_lerp(old, end == x ? old : end, weight == x ? old : weight) : NULL, scope);
}

/* Averages of weights are made with this one. */
yk_tensor *yk_lerp_scalar_(yk_tensor *x, yk_tensor *end, double weight)
{
    static const yk__op op = {.name = "lerp_scalar_", .backward = copy_backward, .recorded = copy_recorded};
    yk_tensor *inputs[2] = {x, end};
    if (!operands_begin("lerp_scalar_", x, end, true, true))
        return NULL;
    if (at_once(x, 2, inputs) && end->dtype == x->dtype && yk_same_shape(x, end)) {
        yk_tensor *read = NULL;
        yk_status status = apart("lerp_scalar_", x, end, &read);
        if (!status)
            status = yk__raw_binary_into("lerp_scalar_", YK__LERP_NUMBER, x, x, read, weight);
        yk_tensor_release(read);
        return write_finish(x, NULL, status, &op, NULL, NULL, 0);
    }
    yk_scope scope = yk_scope_begin();
    yk_tensor *old = old_value(x, 2, inputs);
    return replace(&op, x, old ? yk_lerp_scalar(old, end == x ? old : end, weight) : NULL, scope);
}
