/*
 * gradcheck.c - backward against central differences in f64. Layer: autograd.
 *
 * The output y is reduced to one number with fixed random weights, L = sum_i w_i y_i, so one backward with gradient w
 * gives dL/dx for every input element, and 2 forwards an element give (L(x + eps) - L(x - eps)) / (2 eps).
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

/* L at the inputs as they are now. */
static yk_status weighted_output(yk_gradcheck_fn function, yk_tensor *const *inputs, int n_inputs, void *user,
                                 double *sum)
{
    yk_scope scope = yk_scope_begin();
    bool previous = yk_no_grad_begin();
    yk_tensor *y = function(inputs, n_inputs, user);
    yk_status status = y ? yk__error_code() : YK_ERR_CALLBACK;
    double *values = y ? yk__calloc((size_t)y->numel, sizeof(double)) : NULL;
    if (!status)
        status = values ? yk_tensor_read(y, values, sizeof(double) * (size_t)y->numel) : YK_ERR_MEMORY;
    *sum = 0;
    for (int64_t i = 0; !status && i < y->numel; i++)
        *sum += weight(i) * values[i];
    free(values);
    yk_no_grad_end(previous);
    yk_scope_end(scope);
    return status;
}

static yk_status analytic(yk_gradcheck_fn function, yk_tensor *const *inputs, int n_inputs, void *user)
{
    yk_scope scope = yk_scope_begin();
    yk_status status = YK_OK;
    yk_tensor *y = function(inputs, n_inputs, user);
    if (!y) {
        if (!yk__error_code())
            yk__fail(YK_ERR_CALLBACK, "gradcheck: the function returned NULL");
        status = yk__error_code();
    } else if (y->dtype != YK_F64) {
        status = yk__fail(YK_ERR_DTYPE, "gradcheck: the output is %s; inputs and output must be float64",
                          yk_dtype_name((yk_dtype)y->dtype));
    }
    double *weights = status ? NULL : yk__calloc((size_t)y->numel, sizeof(double));
    if (weights) {
        for (int64_t i = 0; i < y->numel; i++)
            weights[i] = weight(i);
        yk_tensor_options options = {.dtype = YK_F64, .device = yk__device_of(y)};
        yk_backward_options walk = {.gradient = yk_from_data(weights, y->ndim, y->shape, &options)};
        status = walk.gradient ? yk_backward_with(y, &walk) : yk__error_code();
    } else if (!status) {
        status = YK_ERR_MEMORY;
    }
    free(weights);
    yk_scope_end(scope);
    return status;
}

static yk_status check_input(yk_gradcheck_fn function, yk_tensor *const *inputs, int n_inputs, void *user, int which,
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
                status = weighted_output(function, inputs, n_inputs, user, &sums[side]);
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

yk_status yk_gradcheck(yk_gradcheck_fn function, yk_tensor *const *inputs, int n_inputs, void *user,
                       const yk_gradcheck_options *options)
{
    yk_gradcheck_options o = options ? *options : (yk_gradcheck_options){0};
    o.eps = o.eps ? o.eps : 1e-6;
    o.atol = o.atol ? o.atol : 1e-5;
    o.rtol = o.rtol ? o.rtol : 1e-3;
    int checked = 0;
    for (int i = 0; i < n_inputs; i++) {
        if (!inputs[i])
            return yk__error_code() ? yk__error_code() : yk__fail(YK_ERR_ARGUMENT, "gradcheck: input %d is NULL", i);
        if (!yk_requires_grad(inputs[i]))
            continue;
        checked++;
        if (inputs[i]->dtype != YK_F64 || !yk_is_leaf(inputs[i]))
            return yk__fail(YK_ERR_DTYPE, "gradcheck: input %d is %s%s; inputs to check must be float64 leaves", i,
                            yk_dtype_name((yk_dtype)inputs[i]->dtype), yk_is_leaf(inputs[i]) ? "" : " and no leaf");
        yk_status status = yk_set_grad(inputs[i], NULL);
        if (status)
            return status;
    }
    YK__OWN_RECORD;
    if (!checked)
        return yk__fail(YK_ERR_ARGUMENT, "gradcheck: no input requires a gradient");
    yk_status status = analytic(function, inputs, n_inputs, user);
    for (int i = 0; i < n_inputs && !status; i++) {
        if (yk_requires_grad(inputs[i]))
            status = check_input(function, inputs, n_inputs, user, i, &o);
    }
    return status;
}
