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

#include "nn/module.h"
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

/* ---- a twin of a module ------------------------------------------------------------------------------------------ */

typedef struct twin {
    void *original, *object; /* `object`: one reference */
} twin;

/* Modules, parameters and buffers of a tree, each once; the module itself comes first. */
typedef struct twins {
    twin *items;
    int64_t count, capacity;
    bool recorded; /* parameters are views of the module's in the graph */
} twins;

/* The twin of a part of the tree, a yk__counterpart. */
static void *twin_of(const void *tree, const void *original)
{
    const twins *t = tree;
    for (int64_t i = 0; i < t->count; i++) {
        if (t->items[i].original == original)
            return t->items[i].object;
    }
    return NULL;
}

/* Takes over the reference to `object`; NULL: it could not be made. */
static void *twin_add(twins *t, void *original, void *object)
{
    if (object && t->count == t->capacity) {
        int64_t capacity = t->capacity ? 2 * t->capacity : 32;
        twin *items = yk__realloc(t->items, (size_t)capacity * sizeof(*items));
        if (!items) {
            yk_object_release(object);
            return NULL;
        }
        t->items = items;
        t->capacity = capacity;
    }
    if (object)
        t->items[t->count++] = (twin){original, object};
    return object;
}

/* A parameter's twin: wants a gradient where it does. */
static void *twin_parameter(twins *t, yk_tensor *x)
{
    yk_tensor *alias = t->recorded ? yk_view(x, x->ndim, x->shape) : yk_detach(x);
    if (alias && !t->recorded && yk__wants_grad(x) && yk_set_requires_grad(alias, true))
        alias = NULL;
    return twin_add(t, x, yk_object_retain(alias));
}

/* Makes the twins of a module and all below it; their data is still empty. */
static yk_module *twin_module(twins *t, yk_module *m)
{
    yk_module *made = twin_add(t, m, yk__module_replica_make(m));
    if (!made)
        return NULL;
    for (int64_t i = 0; i < m->parameters.count; i++) {
        yk_tensor *x = m->parameters.items[i].object, *old = twin_of(t, x);
        made->parameters.items[i].object = yk_object_retain(old ? old : twin_parameter(t, x));
        if (!made->parameters.items[i].object)
            return NULL;
    }
    for (int64_t i = 0; i < m->buffers.count; i++) /* what is written to them lasts */
        made->buffers.items[i].object = yk_object_retain(m->buffers.items[i].object);
    for (int64_t i = 0; i < m->children.count; i++) {
        yk_module *child = m->children.items[i].object, *old = twin_of(t, child);
        made->children.items[i].object = yk_object_retain(old ? old : twin_module(t, child));
        if (!made->children.items[i].object)
            return NULL;
    }
    return made;
}

/* Mode, hooks and data of the modules; pointers in the data to a part become pointers to its twin. */
static yk_status twins_copy_data(const twins *t)
{
    yk_status status = YK_OK;
    for (int64_t i = 0; i < t->count && !status; i++) {
        if (((yk__object *)t->items[i].object)->type == ((yk__object *)t->items[0].object)->type) /* no tensor */
            status = yk__module_replica_update(t->items[i].object, t->items[i].original, twin_of, t);
    }
    return status;
}

static void twins_clear(twins *t)
{
    for (int64_t i = t->count; i-- > 0;)
        yk_object_release(t->items[i].object);
    free(t->items);
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

static yk_status checkpoint_gradients(yk_custom *context, twins *t, yk_tensor *grad_output, yk_tensor **grads,
                                      int n_inputs)
{
    const checkpoint *c = yk_custom_user(context);
    yk_tensor *x = checkpoint_input(context, yk_custom_saved(context, 0), t->recorded);
    yk_module *m = x ? twin_module(t, c->module) : NULL;
    yk_parameters *parameters = m ? yk_module_parameters(c->module) : NULL;
    if (!parameters)
        return yk__error_code();
    if (yk__parameters_count(parameters) != n_inputs - 1)
        return yk__fail(YK_ERR_STATE, "checkpoint_forward: the module had %d parameters in forward and has %lld",
                        n_inputs - 1, (long long)yk__parameters_count(parameters));
    if (twins_copy_data(t))
        return yk__error_code();
    yk_tensor *y = checkpoint_again(c, m, x);
    yk_tensor **wanted = yk__calloc((size_t)n_inputs, 2 * sizeof(*wanted)), **got = wanted ? wanted + n_inputs : NULL;
    int count = 0;
    for (int i = 0; wanted && i < n_inputs; i++) {
        if (yk_custom_needs_grad(context, i))
            wanted[count++] = i == 0 ? x : twin_of(t, yk__parameters_at(parameters, i - 1));
    }
    yk_status status = y && wanted ? YK_OK : yk__error_code();
    if (!status && count && yk__wants_grad(y))
        status =
            yk_autograd_grad(&y, 1, wanted, count, &grad_output, got,
                             YK_OPTIONS(yk_autograd_grad_options, .allow_unused = true, .create_graph = t->recorded));
    for (int i = 0, k = 0; !status && i < n_inputs; i++) {
        if (yk_custom_needs_grad(context, i))
            grads[i] = got[k++];
    }
    free(wanted);
    return status;
}

static yk_status checkpoint_backward(yk_custom *context, yk_tensor *grad_output, yk_tensor **grads, int n_inputs)
{
    twins t = {.recorded = yk_grad_enabled()}; /* backward is recorded itself */
    bool before = yk_enable_grad_begin();
    yk_status status = checkpoint_gradients(context, &t, grad_output, grads, n_inputs);
    yk_enable_grad_end(before);
    twins_clear(&t);
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
