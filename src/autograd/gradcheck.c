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
    yk_gradcheck_fn single;
    yk_gradcheck_list_fn list;
    int n_outputs;
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
        return yk__fail(status, "gradcheck: the function failed with status %d and no message", (int)status);
    int floating = 0;
    for (int i = 0; i < f->n_outputs; i++) {
        if (!outputs[i])
            return f->n_outputs == 1 ? yk__fail(YK_ERR_CALLBACK, "gradcheck: the function returned NULL")
                                     : yk__fail(YK_ERR_CALLBACK, "gradcheck: the function left output %d of %d NULL", i,
                                                f->n_outputs);
        bool counts = yk_dtype_is_floating((yk_dtype)outputs[i]->dtype);
        floating += counts;
        if (counts && outputs[i]->dtype != YK_F64)
            return yk__fail(YK_ERR_DTYPE, "gradcheck: the output is %s; inputs and output must be float64",
                            yk_dtype_name((yk_dtype)outputs[i]->dtype));
    }
    return floating ? YK_OK
                    : yk__fail(YK_ERR_DTYPE, "gradcheck: the output is %s; inputs and output must be float64",
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
        else if (f->n_outputs == 1 || yk_requires_grad(y)) /* one of several may be a constant */
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
            status = yk__fail(YK_ERR_NUMERIC,
                              "gradcheck: input %d, element %lld: backward gives %.10g, differences give %.10g", which,
                              (long long)i, grad[i], numeric);
    }
    free(values);
    free(grad);
    return status;
}

static yk_status gradients_check(const checked *f, yk_tensor *const *inputs, int n_inputs,
                                 const yk_gradcheck_options *options)
{
    yk_gradcheck_options o;
    if (YK__OPTIONS_TAKE("gradcheck", yk_gradcheck_options, options, &o) ||
        yk__check_positive("gradcheck", "eps", o.eps) || yk__check_number("gradcheck", "atol", o.atol, 0, INFINITY) ||
        yk__check_number("gradcheck", "rtol", o.rtol, 0, INFINITY))
        return YK_ERR_ARGUMENT;
    if (!f->single && !f->list)
        return yk__fail(YK_ERR_ARGUMENT, "gradcheck: the function is NULL");
    if (n_inputs > 0 && !yk__is_there("gradcheck", "array of inputs", inputs))
        return YK_ERR_ARGUMENT;
    int wanted = 0;
    for (int i = 0; i < n_inputs; i++) {
        if (!inputs[i])
            return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "gradcheck: input %d is NULL", i);
        if (!yk_requires_grad(inputs[i]))
            continue;
        wanted++;
        if (inputs[i]->dtype != YK_F64 || !yk_is_leaf(inputs[i]))
            return yk__fail(YK_ERR_DTYPE, "gradcheck: input %d is %s%s; inputs to check must be float64 leaves", i,
                            yk_dtype_name((yk_dtype)inputs[i]->dtype), yk_is_leaf(inputs[i]) ? "" : " and no leaf");
        yk_status status = yk_set_grad(inputs[i], NULL);
        if (status)
            return status;
    }
    YK__OWN_RECORD;
    if (!wanted)
        return yk__fail(YK_ERR_ARGUMENT, "gradcheck: no input requires a gradient");
    if (f->n_outputs < 1)
        return yk__fail(YK_ERR_ARGUMENT, "gradcheck: %d outputs", f->n_outputs);
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
    return gradients_check(&(checked){.single = function, .n_outputs = 1, .user = user}, inputs, n_inputs, options);
}

yk_status yk_gradcheck_list(yk_gradcheck_list_fn function, yk_tensor *const *inputs, int n_inputs, int n_outputs,
                            void *user, const yk_gradcheck_options *options)
{
    return gradients_check(&(checked){.list = function, .n_outputs = n_outputs, .user = user}, inputs, n_inputs,
                           options);
}
