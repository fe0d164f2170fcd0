/*
 * gradcheck.c - backward against central differences in f64. Layer: autograd.
 *
 * The outputs y are reduced to one number with fixed random weights, L = sum_i w_i y_i, so one backward of each with
 * its w for a gradient gives dL/dx for every input element, and 2 forwards an element give (L(x + eps) - L(x - eps)) /
 * (2 eps).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/tensor.h"
#include <yoke/autograd.h>

static double weight(int64_t i)
{
    uint32_t words[4];
    yk__philox((yk__stream){.key = 0, .purpose = YK__RANDOM_TEST}, (uint64_t)i, words);
    return yk__unit_double(words[0], words[1]) + 0.5; /* away from zero: every output counts */
}

/* The function that is checked: one output, or several. */
typedef struct checked {
    const char *name; /* of the check */
    yk_gradcheck_fn single;
    yk_gradcheck_list_fn list;
    int n_outputs;
    bool constants; /* an output that depends on no input is fine */
    void *user;
} checked;

/* Runs the function; outputs[] are all there, and one of them at least is floating. */
static yk_status call(const checked *f, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs)
{
    memset(outputs, 0, sizeof(*outputs) * (size_t)f->n_outputs);
    yk_status status = YK_OK;
    if (f->single)
        outputs[0] = f->single(inputs, n_inputs, f->user);
    else
        status = f->list(inputs, n_inputs, outputs, f->n_outputs, f->user);
    if (yk__error_code())
        return yk__error_code();
    if (status)
        return yk__fail(status, "%s: the function failed with status %d and no message", f->name, (int)status);
    int floating = 0;
    for (int i = 0; i < f->n_outputs; i++) {
        if (!outputs[i])
            return f->n_outputs == 1 ? yk__fail(YK_ERR_CALLBACK, "%s: the function returned NULL", f->name)
                                     : yk__fail(YK_ERR_CALLBACK, "%s: the function left output %d of %d NULL", f->name,
                                                i, f->n_outputs);
        bool counts = yk_dtype_is_floating((yk_dtype)outputs[i]->dtype);
        floating += counts;
        if (counts && outputs[i]->dtype != YK_F64)
            return yk__fail(YK_ERR_DTYPE, "%s: the output is %s; inputs and output must be float64", f->name,
                            yk_dtype_name((yk_dtype)outputs[i]->dtype));
    }
    return floating ? YK_OK
                    : yk__fail(YK_ERR_DTYPE, "%s: the output is %s; inputs and output must be float64", f->name,
                               yk_dtype_name((yk_dtype)outputs[0]->dtype));
}

/* L at the inputs as they are now; `element` counts the elements of all outputs. */
static yk_status weighted_output(const checked *f, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                 double *sum)
{
    yk_scope scope = yk_scope_begin();
    bool previous = yk_no_grad_begin();
    yk_status status = call(f, inputs, n_inputs, outputs);
    int64_t element = 0;
    *sum = 0;
    for (int k = 0; k < f->n_outputs && !status; k++) {
        yk_tensor *y = outputs[k];
        if (y->dtype != YK_F64)
            continue;
        double *values = yk__calloc((size_t)y->numel, sizeof(double));
        status = values ? yk_tensor_read(y, values, sizeof(double) * (size_t)y->numel) : YK_ERR_MEMORY;
        for (int64_t i = 0; !status && i < y->numel; i++)
            *sum += weight(element++) * values[i];
        free(values);
    }
    yk_no_grad_end(previous);
    yk_scope_end(scope);
    return status;
}

static yk_status analytic(const checked *f, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = call(f, inputs, n_inputs, outputs);
    int64_t element = 0;
    for (int k = 0; k < f->n_outputs && !status; k++) {
        yk_tensor *y = outputs[k];
        if (y->dtype != YK_F64)
            continue;
        double *weights = yk__calloc((size_t)y->numel, sizeof(double));
        if (!weights) {
            status = YK_ERR_MEMORY;
            break;
        }
        for (int64_t i = 0; i < y->numel; i++)
            weights[i] = weight(element++);
        yk_tensor *given = yk_from_data(weights, y->ndim, y->shape,
                                        YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = yk__device_of(y)));
        yk_backward_options walk =
            *YK_OPTIONS(yk_backward_options, .gradient = given, .retain_graph = k + 1 < f->n_outputs);
        if (!walk.gradient)
            status = yk__error_code();
        else if ((f->n_outputs == 1 && !f->constants) || yk_requires_grad(y)) /* one of several may be a constant */
            status = yk_backward_with(y, &walk);
        free(weights);
    }
    yk_scope_end(scope);
    return status;
}

static yk_status check_input(const checked *f, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs, int which,
                             const yk_gradcheck_options *o)
{
    yk_tensor *x = inputs[which];
    size_t bytes = sizeof(double) * (size_t)x->numel;
    double *values = yk__calloc((size_t)x->numel, sizeof(double)), *grad = yk__calloc((size_t)x->numel, sizeof(double));
    yk_status status = values && grad ? yk_tensor_read(x, values, bytes) : YK_ERR_MEMORY;
    if (!status && yk_grad(x))
        status = yk_tensor_read(yk_grad(x), grad, bytes); /* no gradient at all counts as zeros */
    for (int64_t i = 0; i < x->numel && !status; i++) {
        double kept = values[i], sums[2];
        for (int side = 0; side < 2 && !status; side++) {
            values[i] = side ? kept - o->eps : kept + o->eps;
            bool previous = yk_no_grad_begin();
            status = yk_tensor_write(x, values, bytes);
            yk_no_grad_end(previous);
            if (!status)
                status = weighted_output(f, inputs, n_inputs, outputs, &sums[side]);
        }
        values[i] = kept;
        bool previous = yk_no_grad_begin();
        yk_status restored = yk_tensor_write(x, values, bytes);
        yk_no_grad_end(previous);
        if (!status)
            status = restored;
        if (status)
            break;
        double numeric = (sums[0] - sums[1]) / (2 * o->eps);
        if (!(fabs(grad[i] - numeric) <= o->atol + o->rtol * fabs(numeric)))
            status =
                yk__fail(YK_ERR_NUMERIC, "%s: input %d, element %lld: backward gives %.10g, differences give %.10g",
                         f->name, which, (long long)i, grad[i], numeric);
    }
    free(values);
    free(grad);
    return status;
}

static yk_status gradients_check(const checked *f, yk_tensor *const *inputs, int n_inputs,
                                 const yk_gradcheck_options *options)
{
    yk_gradcheck_options o;
    if (YK__OPTIONS_TAKE(f->name, yk_gradcheck_options, options, &o) || yk__check_positive(f->name, "eps", o.eps) ||
        yk__check_number(f->name, "atol", o.atol, 0, INFINITY) ||
        yk__check_number(f->name, "rtol", o.rtol, 0, INFINITY))
        return YK_ERR_ARGUMENT;
    if (!f->single && !f->list)
        return yk__fail(YK_ERR_ARGUMENT, "%s: the function is NULL", f->name);
    if (n_inputs > 0 && !yk__is_there(f->name, "array of inputs", inputs))
        return YK_ERR_ARGUMENT;
    int wanted = 0;
    for (int i = 0; i < n_inputs; i++) {
        if (!inputs[i])
            return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "%s: input %d is NULL", f->name, i);
        if (!yk_requires_grad(inputs[i]))
            continue;
        wanted++;
        if (inputs[i]->dtype != YK_F64 || !yk_is_leaf(inputs[i]))
            return yk__fail(YK_ERR_DTYPE, "%s: input %d is %s%s; inputs to check must be float64 leaves", f->name, i,
                            yk_dtype_name((yk_dtype)inputs[i]->dtype), yk_is_leaf(inputs[i]) ? "" : " and no leaf");
        yk_status status = yk_set_grad(inputs[i], NULL);
        if (status)
            return status;
    }
    YK__OWN_RECORD;
    if (!wanted)
        return yk__fail(YK_ERR_ARGUMENT, "%s: no input requires a gradient", f->name);
    if (f->n_outputs < 1)
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d outputs", f->name, f->n_outputs);
    yk_tensor **outputs = yk__calloc((size_t)f->n_outputs, sizeof(*outputs));
    yk_status status = outputs ? analytic(f, inputs, n_inputs, outputs) : YK_ERR_MEMORY;
    for (int i = 0; i < n_inputs && !status; i++) {
        if (yk_requires_grad(inputs[i]))
            status = check_input(f, inputs, n_inputs, outputs, i, &o);
    }
    free(outputs);
    return status;
}

yk_status yk_gradcheck(yk_gradcheck_fn function, yk_tensor *const *inputs, int n_inputs, void *user,
                       const yk_gradcheck_options *options)
{
    return gradients_check(&(checked){.name = "gradcheck", .single = function, .n_outputs = 1, .user = user}, inputs,
                           n_inputs, options);
}

yk_status yk_gradcheck_list(yk_gradcheck_list_fn function, yk_tensor *const *inputs, int n_inputs, int n_outputs,
                            void *user, const yk_gradcheck_options *options)
{
    return gradients_check(&(checked){.name = "gradcheck", .list = function, .n_outputs = n_outputs, .user = user},
                           inputs, n_inputs, options);
}

/* ---- gradients of gradients ---- */

/* The function whose gradients are checked: of the inputs and the gradients of the outputs of `first`, the gradients of
 * those inputs that want one. */
typedef struct second {
    const checked *first;
    int n_inputs, n_wanted;
} second;

/* The outputs that gradients flow to, in front of outputs[]; how many. */
static int differentiable(int count, yk_tensor **outputs)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (outputs[i]->dtype == YK_F64 && yk_requires_grad(outputs[i]))
            outputs[found++] = outputs[i];
    }
    return found;
}

static yk_status gradients_compute(const second *s, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                                   yk_tensor **wanted, yk_tensor **grads)
{
    yk_status status = call(s->first, inputs, s->n_inputs, outputs);
    int found = status ? 0 : differentiable(s->first->n_outputs, outputs), n_wanted = 0;
    if (!status && found != n_inputs - s->n_inputs)
        return yk__fail(YK_ERR_CALLBACK, "gradgradcheck: the function gave %d outputs with a gradient, and then %d",
                        n_inputs - s->n_inputs, found);
    for (int i = 0; i < s->n_inputs; i++) {
        if (yk_requires_grad(inputs[i]))
            wanted[n_wanted++] = inputs[i];
    }
    if (!status)
        status = yk_autograd_grad(outputs, found, wanted, n_wanted, inputs + s->n_inputs, grads,
                                  YK_OPTIONS(yk_autograd_grad_options, .create_graph = true, .allow_unused = true));
    for (int i = 0; i < n_wanted && !status; i++) {
        if (!grads[i] && !(grads[i] = yk_zeros_like(wanted[i])))
            status = yk__error_code();
    }
    return status;
}

static yk_status second_call(yk_tensor *const *inputs, int n_inputs, yk_tensor **grads, int n_grads, void *user)
{
    const second *s = user;
    bool before = yk_enable_grad_begin(); /* differences are taken while nothing is recorded */
    yk_tensor **outputs = yk__calloc((size_t)(s->first->n_outputs + n_grads), sizeof(*outputs));
    yk_status status =
        outputs ? gradients_compute(s, inputs, n_inputs, outputs, outputs + s->first->n_outputs, grads) : YK_ERR_MEMORY;
    free(outputs);
    yk_enable_grad_end(before);
    return status;
}

/* A leaf like x with random values, for the gradient of an output. */
static yk_tensor *random_gradient(const yk_tensor *x)
{
    double *values = yk__calloc((size_t)x->numel, sizeof(*values));
    for (int64_t i = 0; values && i < x->numel; i++)
        values[i] = 2 * (weight(i + 1) - 1);
    yk_tensor *out = NULL;
    if (values)
        out = yk_from_data(
            values, x->ndim, x->shape,
            YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = yk__device_of(x), .requires_grad = true));
    free(values);
    return out;
}

static yk_status second_check(const checked *f, yk_tensor *const *inputs, int n_inputs,
                              const yk_gradcheck_options *options)
{
    if (!f->single && !f->list)
        return yk__fail(YK_ERR_ARGUMENT, "gradgradcheck: the function is NULL");
    if (f->n_outputs < 1 || n_inputs < 1)
        return yk__fail(YK_ERR_ARGUMENT, "gradgradcheck: %d inputs and %d outputs, expected at least one of each",
                        n_inputs, f->n_outputs);
    if (!yk__is_there("gradgradcheck", "array of inputs", inputs))
        return YK_ERR_ARGUMENT;
    for (int i = 0; i < n_inputs; i++) {
        if (yk__is_freed(inputs[i]))
            return yk__fail_freed(f->name, inputs[i]);
        if (!inputs[i])
            return yk__error_code() ? yk__error_code()
                                    : yk__fail(YK_ERR_ARGUMENT, "gradgradcheck: input %d is NULL", i);
    }
    YK__OWN_RECORD;
    yk_scope scope = yk_scope_begin();
    yk_tensor **all = yk__calloc((size_t)(n_inputs + 2 * f->n_outputs), sizeof(*all)), **outputs = all + n_inputs;
    yk_status status = all ? call(f, inputs, n_inputs, outputs) : YK_ERR_MEMORY;
    second s = {.first = f, .n_inputs = n_inputs};
    int found = 0;
    if (!status) {
        memcpy(all, inputs, sizeof(*all) * (size_t)n_inputs);
        found = differentiable(f->n_outputs, outputs);
        for (int i = 0; i < n_inputs; i++)
            s.n_wanted += yk_requires_grad(inputs[i]);
        if (!found || !s.n_wanted)
            status = yk__fail(YK_ERR_ARGUMENT, "gradgradcheck: no output depends on an input that requires a gradient");
    }
    for (int i = 0; i < found && !status; i++) {
        outputs[i] = random_gradient(outputs[i]);
        status = outputs[i] ? YK_OK : yk__error_code();
    }
    if (!status)
        status = gradients_check(
            &(checked){
                .name = "gradgradcheck", .list = second_call, .n_outputs = s.n_wanted, .constants = true, .user = &s},
            all, n_inputs + found, options);
    free(all);
    yk_scope_end(scope);
    return status;
}

yk_status yk_gradgradcheck(yk_gradcheck_fn function, yk_tensor *const *inputs, int n_inputs, void *user,
                           const yk_gradcheck_options *options)
{
    return second_check(&(checked){.name = "gradgradcheck", .single = function, .n_outputs = 1, .user = user}, inputs,
                        n_inputs, options);
}

yk_status yk_gradgradcheck_list(yk_gradcheck_list_fn function, yk_tensor *const *inputs, int n_inputs, int n_outputs,
                                void *user, const yk_gradcheck_options *options)
{
    return second_check(&(checked){.name = "gradgradcheck", .list = function, .n_outputs = n_outputs, .user = user},
                        inputs, n_inputs, options);
}
