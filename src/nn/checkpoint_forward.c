/*
 * checkpoint_forward.c - gradient checkpointing: a module's forward that is computed again in backward. Layer: nn.
 *
 * A function of x and of the module's parameters. Its forward records nothing; its backward computes the module once
 * more, recorded, with the random numbers that forward had, and takes the gradients of that. Parameters are inputs, so
 * their gradients go the usual way: each is accumulated once, by the backward that is running, and hooks see it then.
 * That backward owns the parameters' nodes, so the second forward must not reach them: it is one of a twin of the
 * module whose parameters are leaves of their own on the same memory. Where backward is recorded itself, the twin's
 * parameters are recorded as made from the module's.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <yoke/autograd.h>
#include <yoke/ops.h>

#include "nn/module_twin.h"
#include "tensor/tensor.h"

typedef struct checkpoint {
    yk_module *module; /* one reference */
    yk_random_state random;
} checkpoint;

static void checkpoint_release(void *user)
{
    checkpoint *c = user;
    yk_module_release(c->module);
    free(c);
}

static yk_tensor *checkpoint_run(yk_custom *context, yk_tensor *const *inputs, int n_inputs)
{
    const checkpoint *c = yk_custom_user(context);
    (void)n_inputs;
    return yk_custom_save(context, inputs[0]) ? NULL : yk_forward(c->module, inputs[0]);
}

/* ---- a twin of the module ---------------------------------------------------------------------------------------- */

/* A parameter's twin on the same memory: wants a gradient where it does. */
static yk_tensor *leaf_parameter(const yk__twins *t, yk_tensor *x)
{
    (void)t;
    yk_tensor *alias = yk_detach(x);
    if (alias && yk__wants_grad(x) && yk_set_requires_grad(alias, true))
        alias = NULL;
    return yk_tensor_retain(alias);
}

/* The same as a view of the parameter in the graph. */
static yk_tensor *recorded_parameter(const yk__twins *t, yk_tensor *x)
{
    (void)t;
    return yk_tensor_retain(yk_view(x, x->ndim, x->shape));
}

/* The buffer itself: what is written to it lasts. */
static yk_tensor *same_buffer(const yk__twins *t, yk_tensor *x)
{
    (void)t;
    return yk_tensor_retain(x);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* The forward once more, with the random numbers of the first; the process's generator goes on as if nothing had been
 * drawn. One thread at a time, since the generator is that of the process. */
static yk_tensor *checkpoint_again(const checkpoint *c, yk_module *m, yk_tensor *x)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&turn);
    yk_random_state before = yk_random_get_state();
    yk_random_set_state(c->random);
    yk_tensor *y = yk_forward(m, x);
    yk_random_set_state(before);
    pthread_mutex_unlock(&turn);
    return y;
}

/* x as the input of the second forward. */
static yk_tensor *checkpoint_input(yk_custom *context, yk_tensor *x, bool recorded)
{
    yk_tensor *input = recorded ? yk_view(x, x->ndim, x->shape) : yk_detach(x);
    if (input && !recorded && yk_custom_needs_grad(context, 0) && yk_set_requires_grad(input, true))
        return NULL;
    return input;
}

static yk_status checkpoint_gradients(yk_custom *context, yk__twins *t, bool recorded, yk_tensor *grad_output,
                                      yk_tensor **grads, int n_inputs)
{
    const checkpoint *c = yk_custom_user(context);
    yk_tensor *x = checkpoint_input(context, yk_custom_saved(context, 0), recorded);
    yk_module *m = x ? yk__twins_make(t, c->module) : NULL;
    yk_parameters *parameters = m ? yk_module_parameters(c->module) : NULL;
    if (!parameters)
        return yk__error_code();
    if (yk__parameters_count(parameters) != n_inputs - 1)
        return yk__fail(YK_ERR_STATE, "checkpoint_forward: the module had %d parameters in forward and has %lld",
                        n_inputs - 1, (long long)yk__parameters_count(parameters));
    yk_tensor *y = checkpoint_again(c, m, x);
    yk_tensor **wanted = yk__calloc((size_t)n_inputs, 2 * sizeof(*wanted)), **got = wanted ? wanted + n_inputs : NULL;
    int count = 0;
    for (int i = 0; wanted && i < n_inputs; i++) {
        if (yk_custom_needs_grad(context, i))
            wanted[count++] = i == 0 ? x : yk__twin_find(t, yk__parameters_at(parameters, i - 1));
    }
    yk_status status = y && wanted ? YK_OK : yk__error_code();
    if (!status && count && yk__wants_grad(y))
        status = yk_autograd_grad(&y, 1, wanted, count, &grad_output, got,
                                  YK_OPTIONS(yk_autograd_grad_options, .allow_unused = true, .create_graph = recorded));
    for (int i = 0, k = 0; !status && i < n_inputs; i++) {
        if (yk_custom_needs_grad(context, i))
            grads[i] = got[k++];
    }
    free(wanted);
    return status;
}

static yk_status checkpoint_backward(yk_custom *context, yk_tensor *grad_output, yk_tensor **grads, int n_inputs)
{
    bool recorded = yk_grad_enabled(); /* backward is recorded itself */
    yk__twins t = {.parameter = recorded ? recorded_parameter : leaf_parameter, .buffer = same_buffer};
    bool before = yk_enable_grad_begin();
    yk_status status = checkpoint_gradients(context, &t, recorded, grad_output, grads, n_inputs);
    yk_enable_grad_end(before);
    yk__twins_clear(&t);
    return status;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

yk_tensor *yk_checkpoint_forward(yk_module *m, yk_tensor *x)
{
    static const yk_custom_function function = {.name = "checkpoint_forward",
                                                .forward = checkpoint_run,
                                                .backward = checkpoint_backward,
                                                .release = checkpoint_release};
    YK__LIVE(m);
    YK__LIVE(x);
    if (!yk__module_usable("checkpoint_forward", m) || !yk__is_there("checkpoint_forward", "tensor", x))
        return NULL;
    if (!yk_grad_enabled())
        return yk_forward(m, x);
    yk_scope scope = yk_scope_begin();
    yk_parameters *parameters = yk_module_parameters(m);
    int count = parameters ? (int)yk__parameters_count(parameters) : 0;
    yk_tensor **inputs = yk__calloc((size_t)count + 1, sizeof(*inputs)), *y = NULL;
    checkpoint *c = inputs && parameters ? yk__calloc(1, sizeof(*c)) : NULL;
    if (c) {
        *c = (checkpoint){yk_module_retain(m), yk_random_get_state()};
        inputs[0] = x;
        for (int i = 0; i < count; i++)
            inputs[i + 1] = yk__parameters_at(parameters, i);
        y = yk_custom_apply(&function, inputs, count + 1, c);
    }
    free(inputs);
    y = yk_scope_return_object(scope, y);
    yk_scope_end(scope);
    return y;
}
