/*
 * custom.c - functions of the user's with their own backward. Layer: autograd.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/node.h"

struct yk_custom {
    const yk_custom_function *function;
    void *user;
    int n_inputs, n_saved;
    bool *needs;
    yk__saved_tensor *saved;
};

static void custom_free(yk_custom *context)
{
    if (!context)
        return;
    for (int i = 0; i < context->n_saved; i++)
        yk_tensor_release(context->saved[i].tensor);
    free(context->saved);
    free(context->needs);
    free(context);
}

static yk_custom *custom_of(yk__node *node)
{
    return *(yk_custom **)yk__context(node);
}

static void custom_clear(yk__node *node)
{
    custom_free(custom_of(node));
    *(yk_custom **)yk__context(node) = NULL;
}

static yk_status custom_backward(yk__node *node, yk_tensor *gout, yk_tensor **grads)
{
    yk_custom *context = custom_of(node);
    yk_tensor **given = yk__calloc((size_t)context->n_inputs, sizeof(*given));
    if (!given)
        return YK_ERR_MEMORY;
    yk_scope scope = yk_scope_begin();
    yk_status status = context->function->backward(context, gout, given, context->n_inputs);
    if (!status)
        status = yk__error_code();
    for (int i = 0; i < context->n_inputs && !status; i++) {
        if (yk__needs_grad(node, i))
            grads[i] = yk_tensor_retain(given[i]);
    }
    yk_scope_end(scope);
    free(given);
    return status;
}

static const yk__op custom_op = {"custom", custom_backward, custom_clear};

yk_tensor *yk_custom_apply(const yk_custom_function *function, yk_tensor *const *inputs, int n_inputs, void *user)
{
    if (!function || !function->forward || !function->backward || !function->name) {
        yk__fail(YK_ERR_ARGUMENT, "custom_apply: a function needs a name, a forward and a backward");
        return NULL;
    }
    if (!yk__op_begin(function->name, n_inputs, inputs, 0))
        return NULL;
    yk_custom *context = yk__calloc(1, sizeof(*context));
    if (!context)
        return NULL;
    *context = (yk_custom){.function = function, .user = user, .n_inputs = n_inputs};
    context->needs = yk__calloc((size_t)n_inputs, sizeof(bool));
    if (!context->needs) {
        custom_free(context);
        return NULL;
    }
    for (int i = 0; i < n_inputs; i++)
        context->needs[i] = yk_requires_grad(inputs[i]);
    yk_scope scope = yk_scope_begin();
    bool previous = yk_no_grad_begin();
    yk_tensor *out = function->forward(context, inputs, n_inputs);
    yk_no_grad_end(previous);
    bool given_back = false;
    for (int i = 0; i < n_inputs; i++)
        given_back = given_back || out == inputs[i];
    if (out && !yk__error_code())
        out = given_back || out->autograd ? yk__tensor_alias(out) : yk_tensor_retain(out);
    else
        out = NULL;
    yk_scope_end(scope);
    if (!out) {
        if (!yk__error_code())
            yk__fail(YK_ERR_CALLBACK, "%s: forward returned NULL", function->name);
        custom_free(context);
        return NULL;
    }
    for (int i = 0; i < context->n_saved; i++) { /* a saved output would keep itself alive through its own node */
        if (context->saved[i].tensor != out)
            continue;
        yk_tensor *alias = yk__tensor_alias(out);
        if (!alias) {
            yk_tensor_release(out);
            custom_free(context);
            return NULL;
        }
        yk_tensor_release(out);
        context->saved[i].tensor = alias;
    }
    bool record = yk__will_record(n_inputs, inputs) && yk_dtype_is_floating((yk_dtype)out->dtype);
    yk_tensor *result = yk__record(out, &custom_op, n_inputs, inputs, 0, NULL, &context, sizeof(context));
    if (result && record)
        yk__meta(result)->node->name = function->name;
    else
        custom_free(context);
    return result;
}

yk_status yk_custom_save(yk_custom *context, yk_tensor *x)
{
    yk__saved_tensor *grown = yk__realloc(context->saved, sizeof(*grown) * (size_t)(context->n_saved + 1));
    if (!grown)
        return YK_ERR_MEMORY;
    context->saved = grown;
    grown[context->n_saved++] = (yk__saved_tensor){yk_tensor_retain(x), x ? yk__version(x) : 0};
    return YK_OK;
}

yk_tensor *yk_custom_saved(yk_custom *context, int i)
{
    if (i < 0 || i >= context->n_saved) {
        yk__fail(YK_ERR_ARGUMENT, "%s: saved tensor %d was asked for, %d were saved", context->function->name, i,
                 context->n_saved);
        return NULL;
    }
    const yk__saved_tensor *saved = &context->saved[i];
    if (saved->tensor && yk__version(saved->tensor) != saved->version) {
        char shape[200];
        yk__fail(YK_ERR_STATE, "%s: saved tensor %d of shape %s was changed in place: it is at version %u, expected %u",
                 context->function->name, i, yk_shape_format(saved->tensor, shape, sizeof(shape)),
                 yk__version(saved->tensor), saved->version);
        return NULL;
    }
    return saved->tensor;
}

void *yk_custom_user(yk_custom *context)
{
    return context->user;
}

bool yk_custom_needs_grad(yk_custom *context, int input)
{
    return input >= 0 && input < context->n_inputs && context->needs[input];
}
