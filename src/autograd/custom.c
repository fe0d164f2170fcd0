/*
 * custom.c - functions of the user's with their own backward. Layer: autograd.
 *
 * A call's context holds what its backward needs. It belongs to the node that records the call, or goes at once where
 * nothing is recorded or something fails: custom_free runs once for each call, and with it the function's release.
 */
#include <stdlib.h>
#include <string.h>

#include "autograd/autocast.h"
#include "autograd/node.h"

struct yk_custom {
    yk_custom_function function; /* a copy: the caller's may be gone when backward runs */
    void *user;
    int n_inputs, n_outputs, n_saved;
    bool *needs;
    yk__saved_tensor *saved;  /* their `output`: 1 + the output, or -1 - the input, that each is; 0: neither */
    yk_tensor *const *inputs; /* while forward runs, else NULL */
    yk__node *recorded;       /* while backward runs that is recorded, else NULL */
    yk_autocast autocast;     /* the modes of forward, which backward runs in as well */
};

static void custom_free(yk_custom *context)
{
    if (!context)
        return;
    for (int i = 0; i < context->n_saved; i++)
        yk_tensor_release(context->saved[i].tensor);
    if (context->function.release)
        context->function.release(context->user);
    free(context->saved);
    free(context->needs);
    free(context);
}

static void custom_clear(void *kept)
{
    yk_custom **context = kept;
    custom_free(*context);
    *context = NULL;
}

/* Calls the function's backward, in the current scope. */
static yk_status call_backward(yk_custom *context, yk_tensor *const *gouts, yk_tensor **given)
{
    const yk_custom_function *function = &context->function;
    yk_autocast before = yk__autocast_enter(context->autocast);
    yk_status status = function->backward
                           ? function->backward(context, gouts[0], given, context->n_inputs)
                           : function->backward_list(context, gouts, context->n_outputs, given, context->n_inputs);
    yk_autocast_end(before);
    return status ? status : yk__error_code();
}

/* The same while operations are recorded: what the function computes has its gradients. */
static void custom_recorded(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    yk_custom *context = *(yk_custom **)yk__context(node);
    context->recorded = node;
    yk_status status = call_backward(context, gouts, grads);
    context->recorded = NULL;
    for (int i = 0; i < context->n_inputs && !status; i++) {
        const yk__edge *edge = &node->edges[i];
        if (grads[i] && yk__needs_grad(node, i) && grads[i]->dtype != edge->node->outputs[edge->output].dtype)
            status =
                yk__fail(YK_ERR_DTYPE, "%s: with create_graph, backward is to give the gradient of input %d in %s",
                         context->function.name, i, yk_dtype_name((yk_dtype)edge->node->outputs[edge->output].dtype));
    }
    if (status && !yk__error_code())
        yk__fail(status, "%s: backward failed with status %d and no message", context->function.name, (int)status);
}

static yk_status custom_backward(yk__node *node, yk_tensor *const *gouts, yk_tensor **grads)
{
    yk_custom *context = *(yk_custom **)yk__context(node);
    yk_tensor **given = yk__calloc((size_t)context->n_inputs, sizeof(*given));
    if (!given)
        return YK_ERR_MEMORY;
    yk_scope scope = yk_scope_begin();
    yk_status status = call_backward(context, gouts, given);
    for (int i = 0; i < context->n_inputs && !status; i++) {
        if (!yk__needs_grad(node, i) || !given[i])
            continue;
        /* The gradient may have the dtype that autocast gives it: half precision for an input of f32. */
        const yk__edge *edge = &node->edges[i];
        yk_dtype dtype = (yk_dtype)edge->node->outputs[edge->output].dtype;
        bool narrower = yk__is_half((yk_dtype)given[i]->dtype) && dtype == YK_F32;
        grads[i] = narrower ? yk__raw_cast(given[i], dtype) : yk_tensor_retain(given[i]);
        status = grads[i] ? YK_OK : yk__error_code();
    }
    yk_scope_end(scope);
    free(given);
    return status;
}

static const yk__op custom_op = {
    .name = "custom", .backward_list = custom_backward, .clear = custom_clear, .recorded = custom_recorded};

static bool usable(const yk_custom_function *f, yk_tensor *const *inputs, int n_inputs, yk_tensor **outputs,
                   int n_outputs)
{
    if (!f || !f->name || !(f->forward || f->forward_list) || !(f->backward || f->backward_list)) {
        yk__fail(YK_ERR_ARGUMENT, "custom_apply: a function needs a name, a forward and a backward");
        return false;
    }
    if (n_inputs < 1 || n_outputs < 1 || (n_outputs > 1 && (!f->forward_list || !f->backward_list))) {
        yk__fail(YK_ERR_ARGUMENT, "%s: called with %d inputs for %d outputs; %s", f->name, n_inputs, n_outputs,
                 n_outputs > 1 ? "several outputs need forward_list and backward_list"
                               : "there is at least one of each");
        return false;
    }
    return yk__is_there(f->name, "array of inputs", inputs) && yk__is_there(f->name, "array of outputs", outputs);
}

static yk_custom *context_make(const yk_custom_function *function, int n_inputs, yk_tensor *const *inputs,
                               int n_outputs, void *user)
{
    bool fine = yk__op_begin(function->name, n_inputs, inputs, 0);
    yk__operation_name = custom_op.name; /* the function's name may not live as long as what it makes */
    yk_custom *context = fine ? yk__calloc(1, sizeof(*context)) : NULL;
    bool *needs = context ? yk__calloc((size_t)n_inputs, sizeof(*needs)) : NULL;
    if (!needs) {
        free(context);
        return NULL;
    }
    for (int i = 0; i < n_inputs; i++)
        needs[i] = yk__wants_grad(inputs[i]);
    *context = (yk_custom){.function = *function,
                           .user = user,
                           .n_inputs = n_inputs,
                           .n_outputs = n_outputs,
                           .needs = needs,
                           .autocast = yk__autocast_modes()};
    return context;
}

/* The position of the tensor that has the memory, shape and strides of `alias`; -1 where none has. */
static int position_of(const yk_tensor *alias, int count, yk_tensor *const *tensors)
{
    for (int i = 0; i < count && alias; i++) {
        if (tensors[i] && tensors[i]->storage == alias->storage && tensors[i]->data == alias->data &&
            yk_same_shape(tensors[i], alias) && yk__same_strides(tensors[i], alias))
            return i;
    }
    return -1;
}

/* Runs forward, and gives one reference to each of its results, which are tensors of no graph. */
static yk_status run_forward(yk_custom *context, yk_tensor *const *inputs, yk_tensor **outputs)
{
    const yk_custom_function *function = &context->function;
    int count = context->n_outputs;
    memset(outputs, 0, sizeof(*outputs) * (size_t)count);
    yk_scope scope = yk_scope_begin();
    bool previous = yk_no_grad_begin();
    yk_status status = YK_OK;
    context->inputs = inputs;
    if (function->forward)
        outputs[0] = function->forward(context, inputs, context->n_inputs);
    else
        status = function->forward_list(context, inputs, context->n_inputs, outputs, count);
    yk_no_grad_end(previous);
    context->inputs = NULL;
    if (yk__error_code())
        status = yk__error_code();
    else if (status)
        yk__fail(status, "%s: forward failed with status %d and no message", function->name, (int)status);
    for (int i = 0; i < count && !status; i++) {
        if (!outputs[i])
            status = count == 1
                         ? yk__fail(YK_ERR_CALLBACK, "%s: forward returned NULL", function->name)
                         : yk__fail(YK_ERR_CALLBACK, "%s: forward left output %d of %d NULL", function->name, i, count);
    }
    for (int i = 0; i < context->n_saved && !status; i++)
        context->saved[i].output = context->saved[i].output ? context->saved[i].output
                                                            : 1 + position_of(context->saved[i].tensor, count, outputs);
    int made = 0;
    for (; made < count && !status; made++) {
        yk_tensor *out = outputs[made];
        bool is_input = yk__is_one_of(out, context->n_inputs, inputs);
        bool shared = out->node || out->leaf_gradient || is_input || yk__is_one_of(out, made, outputs);
        outputs[made] = shared ? yk__tensor_alias(out) : yk_tensor_retain(out);
        if (!outputs[made]) {
            status = YK_ERR_MEMORY;
            break;
        }
        if (is_input || out->base)
            yk__view_link(outputs[made], out, YK__VIEW_CUSTOM);
    }
    yk_scope_end(scope);
    if (!status)
        status = yk__same_device(function->name, count, outputs);
    if (status) {
        for (int i = 0; i < made; i++)
            yk_tensor_release(outputs[i]);
        memset(outputs, 0, sizeof(*outputs) * (size_t)count);
    }
    return status;
}

yk_status yk_custom_apply_list(const yk_custom_function *function, yk_tensor *const *inputs, int n_inputs,
                               yk_tensor **outputs, int n_outputs, void *user)
{
    YK__OWN_RECORD;
    bool fine = usable(function, inputs, n_inputs, outputs, n_outputs);
    yk_custom *context = fine ? context_make(function, n_inputs, inputs, n_outputs, user) : NULL;
    if (!context) {
        if (function && function->release)
            function->release(user);
        for (int i = 0; i < n_outputs && outputs; i++)
            outputs[i] = NULL;
        return yk__error_code();
    }
    yk_status status = run_forward(context, inputs, outputs);
    if (status) {
        custom_free(context);
        return status;
    }
    status = yk__record_list(n_outputs, outputs, &custom_op, n_inputs, inputs, 0, NULL, &context, sizeof(context));
    for (int i = 0; !status && i < n_outputs; i++) {
        if (outputs[i]->node)
            outputs[i]->node->head.name = function->name;
    }
    return status;
}

yk_tensor *yk_custom_apply(const yk_custom_function *function, yk_tensor *const *inputs, int n_inputs, void *user)
{
    yk_tensor *out = NULL;
    return yk_custom_apply_list(function, inputs, n_inputs, &out, 1, user) ? NULL : out;
}

yk_status yk_custom_save(yk_custom *context, yk_tensor *x)
{
    YK__LIVE(x);
    yk__saved_tensor *grown = yk__realloc(context->saved, sizeof(*grown) * (size_t)(context->n_saved + 1));
    if (!grown)
        return YK_ERR_MEMORY;
    context->saved = grown;
    /* An alias: the tensor itself may be a result, or come to be made from one, and would keep its own node alive. */
    yk_tensor *alias = yk__tensor_alias(x);
    if (x && !alias)
        return YK_ERR_MEMORY;
    int input = context->inputs ? position_of(alias, context->n_inputs, context->inputs) : -1;
    grown[context->n_saved++] =
        (yk__saved_tensor){.tensor = alias, .version = x ? yk__version(x) : 0, .output = -1 - input};
    return YK_OK;
}

/* A saved tensor with its history: that of the input, or of the result, that it is. */
static yk_tensor *saved_in_graph(yk_custom *context, int i)
{
    yk_tensor *kept = context->saved[i].tensor;
    int which = context->saved[i].output;
    if (!which && yk_dtype_is_floating((yk_dtype)kept->dtype)) {
        yk__fail(YK_ERR_UNSUPPORTED,
                 "%s: saved tensor %d is neither an input nor a result, so a backward with create_graph does not know "
                 "how it was made; save the inputs, and compute it from them in backward",
                 context->function.name, i);
        return NULL;
    }
    yk__node *node = context->recorded;
    const yk__edge *edge = which < 0 ? &node->edges[-1 - which] : NULL;
    if (!which || (edge && !edge->node))
        return kept;
    if (edge && edge->leaf)
        return edge->leaf;
    yk_tensor *out = yk__tensor_alias(kept);
    if (out) {
        out->node = yk__node_retain(edge ? edge->node : node);
        out->output = edge ? edge->output : which - 1;
    }
    return yk__scope_own(out);
}

yk_tensor *yk_custom_saved(yk_custom *context, int i)
{
    if (i < 0 || i >= context->n_saved) {
        yk__fail(YK_ERR_ARGUMENT, "%s: saved tensor %d was asked for, %d were saved", context->function.name, i,
                 context->n_saved);
        return NULL;
    }
    const yk__saved_tensor *saved = &context->saved[i];
    if (saved->tensor && yk__version(saved->tensor) != saved->version) {
        char shape[200];
        yk__fail(YK_ERR_STATE,
                 "%s: saved tensor %d of shape %s has been modified by an inplace operation: it is at version %u, "
                 "expected %u",
                 context->function.name, i, yk_shape_format(saved->tensor, shape, sizeof(shape)),
                 yk__version(saved->tensor), saved->version);
        return NULL;
    }
    return context->recorded && saved->tensor ? saved_in_graph(context, i) : saved->tensor;
}

void *yk_custom_user(yk_custom *context)
{
    return context->user;
}

bool yk_custom_needs_grad(yk_custom *context, int input)
{
    return input >= 0 && input < context->n_inputs && context->needs[input];
}
