/*
 * backward.c - yk_backward and yk_autograd_grad: what they are given, checked, and made a request to the engine.
 * Layer: autograd.
 */
#include "autograd/engine.h"
#include "base/events.h"
#include "host/progress.h"

/* Fails unless all tensors of a request are there and none was freed. */
static yk_status check_tensors(const char *name, const char *role, int count, yk_tensor *const *tensors, bool optional)
{
    if (count < 1 || (!tensors && !optional))
        return yk__fail(YK_ERR_ARGUMENT, "%s: %d %ss were given, expected at least one", name, tensors ? count : 0,
                        role);
    for (int i = 0; tensors && i < count; i++) {
        if (yk__is_freed(tensors[i]))
            return yk__fail_freed(name, tensors[i]);
        if (!tensors[i] && !optional)
            return yk__error_code() ? yk__error_code()
                   : count == 1     ? yk__fail(YK_ERR_ARGUMENT, "%s: the %s is NULL", name, role)
                                    : yk__fail(YK_ERR_ARGUMENT, "%s: %s %d is NULL", name, role, i);
    }
    return YK_OK;
}

/* Checks the request's tensors and runs it. */
static yk_status request_run(const yk__request *r, bool *walked)
{
    yk_status status = check_tensors(r->name, "tensor", r->n_roots, r->roots, false);
    if (!status)
        status = check_tensors(r->name, "gradient", r->n_roots, r->gradients, true);
    if (!status && r->inputs)
        status = check_tensors(r->name, "input", r->n_inputs, r->inputs, false);
    return status ? status : yk__request_run(r, walked);
}

static yk_status backward(yk_tensor *root, const yk_backward_options *options, bool *walked)
{
    YK__LIVE(root);
    yk_backward_options o;
    if (YK__OPTIONS_TAKE("backward", yk_backward_options, options, &o))
        return YK_ERR_ARGUMENT;
    if (o.inputs ? o.n_inputs < 1 : o.n_inputs != 0)
        return yk__fail(YK_ERR_ARGUMENT, "backward: n_inputs is %d, and inputs is %s; leave both out for all leaves",
                        o.n_inputs, o.inputs ? "given" : "NULL");
    return request_run(&(yk__request){.name = "backward",
                                      .roots = &root,
                                      .gradients = &o.gradient,
                                      .n_roots = 1,
                                      .inputs = o.inputs,
                                      .n_inputs = o.n_inputs,
                                      .retain_graph = o.retain_graph,
                                      .create_graph = o.create_graph},
                       walked);
}

yk_status yk_backward_with(yk_tensor *root, const yk_backward_options *options)
{
    bool walked = false;
    YK__EVENT(YK__EVENT_BACKWARD, "backward");
    (void)yk__progress_phase(YK__PHASE_BACKWARD);
    yk_status status = backward(root, options, &walked);
    if (status && !walked)
        yk__collectors_fail_awaiting();
    (void)yk__progress_phase(YK__PHASE_NONE);
    return status;
}

yk_status yk_backward(yk_tensor *root)
{
    return yk_backward_with(root, NULL);
}

yk_status yk_autograd_grad(yk_tensor *const *outputs, int n_outputs, yk_tensor *const *inputs, int n_inputs,
                           yk_tensor *const *grad_outputs, yk_tensor **grads, const yk_autograd_grad_options *options)
{
    yk_autograd_grad_options o;
    for (int i = 0; grads && i < n_inputs; i++)
        grads[i] = NULL;
    if (YK__OPTIONS_TAKE("autograd_grad", yk_autograd_grad_options, options, &o))
        return YK_ERR_ARGUMENT;
    if (!yk__is_there("autograd_grad", "array of inputs", inputs) ||
        !yk__is_there("autograd_grad", "array of gradients", grads) || !yk__scope_check("autograd_grad"))
        return yk__error_code();
    bool walked = false;
    YK__EVENT(YK__EVENT_BACKWARD, "autograd_grad");
    (void)yk__progress_phase(YK__PHASE_BACKWARD);
    yk_status status = request_run(&(yk__request){.name = "autograd_grad",
                                                  .roots = outputs,
                                                  .gradients = grad_outputs,
                                                  .n_roots = n_outputs,
                                                  .inputs = inputs,
                                                  .n_inputs = n_inputs,
                                                  .gives = true,
                                                  .retain_graph = o.retain_graph,
                                                  .create_graph = o.create_graph,
                                                  .allow_unused = o.allow_unused,
                                                  .grads = grads},
                                   &walked);
    (void)yk__progress_phase(YK__PHASE_NONE);
    return status;
}
