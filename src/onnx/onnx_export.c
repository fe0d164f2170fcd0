/*
 * onnx_export.c - a module as an ONNX file. Layer: onnx.
 *
 * The module is called with a batch of 2 and with one of 3, and both calls are listened to (onnx_trace.c). They must
 * have made the same operations in the same order. Each becomes nodes of ONNX by its row in a table; where a size
 * differs between the calls it is the batch's. Parts of the model that no result depends on are written, too: programs
 * that run ONNX leave them out.
 */
#include <stdlib.h>
#include <string.h>

#include <yoke/autograd.h>
#include <yoke/ops.h>

#include "nn/module.h"
#include "onnx/onnx_graph.h"

/* The arguments of a call. */
typedef struct onnx_call {
    yk_module *module;
    yk_tensor *const *inputs;
    int n_inputs, n_outputs;
    const int *batch_dims; /* NULL: 0 */
    const yk_onnx_options *options;
} onnx_call;

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

static int batch_dim(const onnx_call *c, int i)
{
    return c->batch_dims ? c->batch_dims[i] : 0;
}

/* A batch of `count` of the rows of x, in their order or, so that calls differ in more than sizes, from the last on and
 * with each in another order. */
static yk_tensor *batch_of(yk_tensor *x, int dim, int64_t count, bool turned)
{
    int64_t rows[YK__ONNX_BATCH_B], has = yk_size(x, dim);
    for (int64_t i = 0; i < count; i++)
        rows[i] = (turned ? count - 1 - i : i) % has;
    yk_tensor *index =
        yk_from_data(rows, 1, &count, YK_OPTIONS(yk_tensor_options, .dtype = YK_I64, .device = yk_tensor_device(x)));
    yk_tensor *batch = yk_index_select(yk_detach(x), dim, index);
    int last = yk_ndim(x) - 1;
    return turned && batch && last != dim ? yk_flip(batch, &last, 1) : batch;
}

static yk_status inputs_check(const onnx_call *c)
{
    bool any = false;
    for (int i = 0; i < c->n_inputs; i++) {
        char text[200];
        const yk_tensor *x = c->inputs[i];
        int dim = batch_dim(c, i);
        if (x && yk__is_freed(x))
            return yk__fail_freed("onnx_export", x);
        if (!x || dim == -1)
            continue;
        any = true;
        if (dim < 0 || dim >= x->ndim || x->shape[dim] < 1)
            return yk__fail(YK_ERR_SHAPE, "onnx_export: input %d has shape %s, and its dimension %d is to be the batch",
                            i, yk_shape_format(x, text, sizeof(text)), dim);
    }
    return any ? YK_OK
               : yk__fail(YK_ERR_ARGUMENT,
                          "onnx_export: no input has a batch; at least one example with one is needed");
}

static yk_status inputs_make(const onnx_call *c, int64_t count, bool turned, yk_tensor **made)
{
    for (int i = 0; i < c->n_inputs; i++) {
        int dim = batch_dim(c, i);
        made[i] = !c->inputs[i] ? NULL : dim < 0 ? yk_detach(c->inputs[i]) : batch_of(c->inputs[i], dim, count, turned);
        if (c->inputs[i] && !made[i])
            return yk__error_code();
    }
    return YK_OK;
}

/* ---- both calls are alike ---------------------------------------------------------------------------------------- */

static bool same_attributes(const yk__attributes *a, const yk__attributes *b)
{
    bool same = a->count == b->count;
    for (int i = 0; i < a->count && same; i++) {
        const yk__attribute *x = &a->list[i], *y = &b->list[i];
        same = x->count == y->count && memcmp(x->whole, y->whole, sizeof(x->whole[0]) * (size_t)x->count) == 0 &&
               memcmp(&x->real, &y->real, sizeof(x->real)) == 0;
    }
    return same;
}

static yk_status traces_compare(const yk__trace *a, const yk__trace *b)
{
    const char *torn = a->torn ? a->torn : b->torn;
    if (torn)
        return yk__fail(
            YK_ERR_UNSUPPORTED,
            "onnx_export: %s changes memory that another tensor shows; use the form that gives a new tensor", torn);
    for (int i = 0; i < a->n_ops || i < b->n_ops; i++) {
        const yk__traced_op *x = &a->ops[i], *y = &b->ops[i];
        if (i >= a->n_ops || i >= b->n_ops || strcmp(x->name, y->name) != 0 || x->n_inputs != y->n_inputs ||
            x->n_outputs != y->n_outputs ||
            memcmp(x->values, y->values, sizeof(*x->values) * (size_t)(x->n_inputs + x->n_outputs)) != 0)
            return yk__fail(YK_ERR_UNSUPPORTED,
                            "onnx_export: the module does not compute the same for every batch: operation %d is %s "
                            "for a batch of %d, and %s for one of %d",
                            i + 1, i < a->n_ops ? x->name : "none", YK__ONNX_BATCH_A, i < b->n_ops ? y->name : "none",
                            YK__ONNX_BATCH_B);
        if (!same_attributes(&x->attributes, &y->attributes))
            return yk__fail(YK_ERR_UNSUPPORTED, "onnx_export: a number of %s (operation %d) depends on the batch",
                            x->name, i + 1);
    }
    return YK_OK;
}

/* ---- the graph --------------------------------------------------------------------------------------------------- */

static const yk__onnx_row *row_find(const char *name)
{
    const yk__onnx_row *const tables[] = {yk__onnx_math, yk__onnx_layers, yk__onnx_shapes};
    for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++) {
        for (const yk__onnx_row *row = tables[i]; row->name; row++) {
            if (strcmp(row->name, name) == 0)
                return row;
        }
    }
    return NULL;
}

static bool op_write(yk__onnx *g, const yk__traced_op *op)
{
    const yk__onnx_row *row = row_find(op->name);
    const char *few[YK__ONNX_TENSORS] = {NULL}, **results = few;
    if (!row) {
        yk__fail(YK_ERR_UNSUPPORTED, "onnx_export: %s cannot be exported", op->name);
        return false;
    }
    if (op->n_outputs > YK__ONNX_TENSORS && !(results = yk__calloc((size_t)op->n_outputs, sizeof(*results))))
        return false;
    bool fine = true;
    if (row->type) {
        const char *x[3] = {NULL, NULL, NULL};
        for (int i = 0; i < op->n_inputs && i < 3; i++)
            x[i] = yk__onnx_input(g, op, i);
        results[0] = yk__onnx_node(g, row->type, NULL, op->n_inputs, x);
        fine = results[0] != NULL;
    } else {
        fine = row->emit(g, op, results);
    }
    for (int i = 0; i < op->n_outputs && fine; i++) {
        g->value_names[yk__onnx_out(op, i)] = results[i];
        fine = results[i] != NULL;
    }
    if (results != few)
        free(results);
    if (!fine && !yk__error_code())
        yk__fail(YK_ERR_UNSUPPORTED, "onnx_export: this form of %s cannot be exported", op->name);
    return fine;
}

/* A ValueInfoProto, of an input or a result. */
static void value_write(yk__proto *graph, int field, const char *name, const yk_tensor *a, const yk_tensor *b)
{
    yk__proto info = {0}, type = {0}, tensor = {0}, shape = {0}, dim = {0};
    for (int d = 0; d < a->ndim; d++) {
        int64_t times, plus;
        char text[64];
        if (a->shape[d] == b->shape[d]) {
            yk__proto_int(&dim, 1, a->shape[d]);
        } else if (yk__onnx_size(a->shape[d], b->shape[d], &times, &plus)) {
            snprintf(text, sizeof(text), "batch");
            if (times != 1 || plus)
                snprintf(text, sizeof(text), "%lld*batch+%lld", (long long)times, (long long)plus);
            yk__proto_text(&dim, 2, text);
        }
        yk__proto_message(&shape, 1, &dim);
    }
    yk__proto_int(&tensor, 1, yk__onnx_dtype(yk_tensor_dtype(a)));
    yk__proto_message(&tensor, 2, &shape);
    yk__proto_message(&type, 1, &tensor);
    yk__proto_text(&info, 1, name);
    yk__proto_message(&info, 2, &type);
    yk__proto_message(graph, field, &info);
}

static const char *given_name(yk__onnx *g, const char *const *names, const char *kind, int i)
{
    return names ? names[i] : i ? yk__onnx_text(g, "%s_%d", kind, i) : kind;
}

/* The nodes, and inputs and results, as fields of a GraphProto. */
static bool graph_write(yk__onnx *g, const onnx_call *c)
{
    yk__proto ends = {0};
    bool fine = true;
    for (int i = 0; i < c->n_inputs && fine; i++) {
        if (!c->inputs[i])
            continue;
        const char *name = given_name(g, c->options->input_names, "input", i);
        g->value_names[i] = name;
        fine = name != NULL;
        if (fine)
            value_write(&ends, 11, name, yk__onnx_of_a(g, i), yk__onnx_of_b(g, i));
    }
    for (int i = 0; i < g->a->n_ops && fine; i++)
        fine = op_write(g, &g->a->ops[i]);
    for (int i = 0; i < c->n_outputs && fine; i++) {
        int value = g->a->outputs[i];
        const char *name = given_name(g, c->options->output_names, "output", i), *from = yk__onnx_value(g, value);
        yk__proto node = {0};
        fine = name && from;
        if (!fine)
            break;
        yk__proto_text(&node, 1, from);
        yk__proto_text(&node, 2, name);
        yk__proto_text(&node, 3, name);
        yk__proto_text(&node, 4, "Identity");
        yk__proto_message(&g->nodes, 1, &node);
        value_write(&ends, 12, name, yk__onnx_of_a(g, value), yk__onnx_of_b(g, value));
    }
    yk__proto_text(&g->nodes, 2, c->module->shown_name);
    yk__proto_raw(&g->nodes, ends.data, ends.size);
    fine = fine && !yk__error_code();
    if (fine && (ends.failed || g->nodes.failed)) {
        yk__fail_memory(g->nodes.size);
        fine = false;
    }
    free(ends.data);
    return fine;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static yk_status export_traced(const onnx_call *c, const char *path, const yk__trace *a, const yk__trace *b)
{
    yk__onnx g = {.a = a, .b = b, .state = yk_module_state_dict(c->module)};
    g.value_names = yk__calloc((size_t)a->n_values + 1, sizeof(*g.value_names));
    while (!c->inputs[g.batch_input] || batch_dim(c, g.batch_input) < 0)
        g.batch_input++;
    g.batch_dim = batch_dim(c, g.batch_input);
    yk_status status = g.state && g.value_names && graph_write(&g, c) ? YK_OK : yk__error_code();
    if (!status)
        status = yk__onnx_write(&g, path, c->options->external_data);
    yk__onnx_clear(&g);
    return status;
}

/* Modules and their modes. */
typedef struct modes {
    yk_module **modules;
    bool *training;
    int count;
} modes;

static yk_status mode_note(yk_module *m, void *user)
{
    modes *all = user;
    if (all->modules) {
        all->modules[all->count] = m;
        all->training[all->count] = yk_module_is_training(m);
    }
    all->count++;
    return YK_OK;
}

static yk_status export_module(const onnx_call *c, const char *path)
{
    yk_tensor *made[YK__ONNX_TENSORS];
    yk__trace a = {.status = YK_OK}, b = {.status = YK_OK};
    yk_status status = inputs_make(c, YK__ONNX_BATCH_A, false, made);
    if (!status)
        status = yk__trace_run(&a, c->module, made, c->n_inputs, c->n_outputs);
    if (!status)
        status = inputs_make(c, YK__ONNX_BATCH_B, true, made);
    if (!status)
        status = yk__trace_run(&b, c->module, made, c->n_inputs, c->n_outputs);
    if (!status)
        status = traces_compare(&a, &b);
    if (!status)
        status = export_traced(c, path, &a, &b);
    yk__trace_clear(&a);
    yk__trace_clear(&b);
    return status;
}

yk_status yk_onnx_export(yk_module *module, const char *path, yk_tensor *const *inputs, int n_inputs,
                         const yk_onnx_options *options)
{
    YK__LIVE(module);
    yk_onnx_options o;
    yk_status status = YK__OPTIONS_TAKE("onnx_export", yk_onnx_options, options, &o);
    if (status)
        return status;
    if (!yk__is_there("onnx_export", "path", path) || !yk__is_there("onnx_export", "array of inputs", inputs))
        return yk__error_code();
    if (yk__check_integer("onnx_export", "n_inputs", n_inputs, 1, YK__ONNX_TENSORS) ||
        yk__check_integer("onnx_export", "n_outputs", o.n_outputs, 1, YK__ONNX_TENSORS))
        return yk__error_code();
    const onnx_call c = {module, inputs, n_inputs, (int)o.n_outputs, o.batch_dims, &o};
    status = inputs_check(&c);
    if (status)
        return status;
    if (!yk__module_usable("onnx_export", module))
        return yk__error_code();
    yk_scope scope = yk_scope_begin();
    modes all = {NULL, NULL, 0};
    status = yk_module_apply(module, mode_note, &all);
    size_t count = (size_t)all.count;
    all = (modes){yk__calloc(count, sizeof(*all.modules)), yk__calloc(count, sizeof(*all.training)), 0};
    if (!all.modules || !all.training)
        status = yk__error_code();
    if (!status)
        status = yk_module_apply(module, mode_note, &all);
    if (!status) {
        yk_module_eval(module);
        status = export_module(&c, path);
        for (size_t i = 0; i < count; i++)
            all.modules[i]->training = all.training[i];
    }
    free(all.modules);
    free(all.training);
    yk_scope_end(scope);
    return status;
}
