/*
 * onnx_trace.c - listening to a forward. Layer: onnx.
 *
 * Each operation tells its name, its numbers, its inputs and its results (yk__listener). A tensor that nobody was heard
 * to make is a constant: a parameter, a buffer, or something that was made of numbers alone. All tensors are retained,
 * so that an address stands for one tensor until the end.
 */
#include <stdlib.h>
#include <string.h>

#include "onnx/onnx_trace.h"

static bool grow(void *list, int count, int *room, size_t size)
{
    if (count < *room)
        return true;
    int more = *room ? 2 * *room : 64;
    void *grown = yk__realloc(*(void **)list, (size_t)more * size);
    if (!grown)
        return false;
    *(void **)list = grown;
    *room = more;
    return true;
}

static int value_add(yk__trace *t, yk_tensor *x, bool live)
{
    if (!grow(&t->values, t->n_values, &t->value_room, sizeof(*t->values))) {
        t->status = yk__error_code();
        return -1;
    }
    t->values[t->n_values] = (yk__traced){.tensor = x ? yk_tensor_retain(x) : NULL, .live = live};
    if (x)
        t->values[t->n_values].version = yk__version(x);
    return t->n_values++;
}

/* The newest value of a tensor; -1 where there is none. */
static int value_find(const yk__trace *t, const yk_tensor *x)
{
    for (int i = t->n_values - 1; i >= 0 && x; i--) {
        if (t->values[i].tensor == x)
            return i;
    }
    return -1;
}

/* The value of an input of an operation. */
static int value_of(yk__trace *t, yk_tensor *x)
{
    int found = value_find(t, x);
    return found >= 0 || !x ? found : value_add(t, x, false);
}

/* Another value shows memory that `x` shows. */
static bool is_shared(const yk__trace *t, const yk_tensor *x)
{
    for (int i = 0; i < t->n_values; i++) {
        const yk_tensor *other = t->values[i].tensor;
        if (other && other != x && other->storage == x->storage)
            return true;
    }
    return false;
}

static void heard(yk__listener *self, const yk__op *op, const void *context, int n_inputs, yk_tensor *const *inputs,
                  int n_outputs, yk_tensor *const *outputs)
{
    yk__trace *t = (yk__trace *)self;
    bool live = false, in_place = n_inputs > 0 && inputs[0] == outputs[0];
    for (int i = 0; i < n_inputs; i++) {
        int value = value_find(t, inputs[i]);
        live = live || (value >= 0 && t->values[value].live);
    }
    /* A composition records the whole as one operation, whose result its parts were heard to make. */
    if (t->status || !live || (!in_place && value_find(t, outputs[0]) >= 0))
        return;
    int *values = yk__calloc((size_t)(n_inputs + n_outputs), sizeof(*values));
    if (!values || !grow(&t->ops, t->n_ops, &t->op_room, sizeof(*t->ops))) {
        free(values);
        t->status = yk__error_code();
        return;
    }
    yk__traced_op *made = &t->ops[t->n_ops++];
    *made = (yk__traced_op){.name = op->name, .n_inputs = n_inputs, .n_outputs = n_outputs, .values = values};
    if (op->describe && context)
        op->describe(context, &made->attributes);
    for (int i = 0; i < n_inputs; i++)
        values[i] = value_of(t, inputs[i]);
    if (in_place && is_shared(t, outputs[0]))
        t->torn = op->name;
    for (int i = 0; i < n_outputs; i++)
        values[n_inputs + i] = value_add(t, outputs[i], true);
}

yk_status yk__trace_run(yk__trace *t, yk_module *module, yk_tensor *const *inputs, int n_inputs, int n_outputs)
{
    yk_tensor *outputs[YK__ONNX_TENSORS] = {NULL};
    t->listener.heard = heard;
    for (int i = 0; i < n_inputs; i++)
        value_add(t, inputs[i], true);
    if (t->status)
        return t->status;
    yk_scope scope = yk_scope_begin();
    bool before = yk_no_grad_begin();
    yk__listener *other = yk__listening;
    yk__listening = &t->listener;
    yk_status status = yk_forward_list(module, inputs, n_inputs, outputs, n_outputs);
    yk__listening = other;
    yk_no_grad_end(before);
    status = status ? status : t->status;
    for (int i = 0; i < n_outputs && !status; i++) {
        t->outputs[i] = value_of(t, outputs[i]);
        if (!outputs[i])
            status =
                yk__fail(YK_ERR_ARGUMENT, "onnx_export: output %d of %s is NULL", i, yk_module_class_of(module)->name);
        else if (!t->status && !t->values[t->outputs[i]].live)
            status = yk__fail(YK_ERR_UNSUPPORTED,
                              "onnx_export: output %d does not depend on an input, or does by an operation that cannot "
                              "be exported",
                              i);
    }
    yk_scope_end(scope);
    return status ? status : t->status;
}

void yk__trace_clear(yk__trace *t)
{
    for (int i = 0; i < t->n_values; i++)
        yk_tensor_release(t->values[i].tensor);
    for (int i = 0; i < t->n_ops; i++)
        free(t->ops[i].values);
    free(t->values);
    free(t->ops);
    *t = (yk__trace){.status = YK_OK};
}
