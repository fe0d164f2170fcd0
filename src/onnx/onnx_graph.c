/*
 * onnx_graph.c - nodes and constants of a graph of ONNX. Layer: onnx.
 *
 * A constant that both calls had alike stands in the file once, under the name of the state dict where it is in it. One
 * whose size is the batch's is a part that is repeated: in both calls its elements must be the same along the batch.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/state_dict.h"
#include "onnx/onnx_graph.h"

void yk__onnx_clear(yk__onnx *g)
{
    for (int i = 0; i < g->n_constants; i++) {
        free(g->constants[i].head.data);
        free(g->constants[i].bytes);
        yk_tensor_release(g->constants[i].tensor);
    }
    for (int i = 0; i < g->n_texts; i++)
        free(g->texts[i]);
    free(g->constants);
    free(g->texts);
    free(g->value_names);
    free(g->nodes.data);
}

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

const char *yk__onnx_text(yk__onnx *g, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    char *kept = grow(&g->texts, g->n_texts, &g->text_room, sizeof(*g->texts)) ? yk__strdup(text) : NULL;
    if (kept)
        g->texts[g->n_texts++] = kept;
    return kept;
}

int yk__onnx_dtype(yk_dtype dtype)
{
    switch (dtype) {
    case YK_F32: return 1;
    case YK_U8: return 2;
    case YK_I32: return 6;
    case YK_I64: return 7;
    case YK_BOOL: return 9;
    case YK_F16: return 10;
    case YK_F64: return 11;
    case YK_BF16: return 16;
    default: return 0;
    }
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

enum { KIND_FLOAT = 1, KIND_INT = 2, KIND_STRING = 3, KIND_INTS = 7 };

static void attribute_end(yk__proto *to, yk__proto *attribute, int kind)
{
    yk__proto_int(attribute, 20, kind);
    yk__proto_message(to, 5, attribute);
}

void yk__onnx_int(yk__proto *to, const char *name, int64_t value)
{
    yk__proto attribute = {0};
    yk__proto_text(&attribute, 1, name);
    yk__proto_int(&attribute, 3, value);
    attribute_end(to, &attribute, KIND_INT);
}

void yk__onnx_ints(yk__proto *to, const char *name, int count, const int64_t *values)
{
    yk__proto attribute = {0};
    yk__proto_text(&attribute, 1, name);
    for (int i = 0; i < count; i++)
        yk__proto_int(&attribute, 8, values[i]);
    attribute_end(to, &attribute, KIND_INTS);
}

void yk__onnx_float(yk__proto *to, const char *name, double value)
{
    yk__proto attribute = {0};
    yk__proto_text(&attribute, 1, name);
    yk__proto_float(&attribute, 2, (float)value);
    attribute_end(to, &attribute, KIND_FLOAT);
}

void yk__onnx_string(yk__proto *to, const char *name, const char *value)
{
    yk__proto attribute = {0};
    yk__proto_text(&attribute, 1, name);
    yk__proto_text(&attribute, 4, value);
    attribute_end(to, &attribute, KIND_STRING);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

bool yk__onnx_nodes(yk__onnx *g, const char *type, yk__proto *attributes, int n_inputs, const char *const *inputs,
                    int n_outputs, const char **outputs)
{
    yk__proto node = {0};
    int number = g->numbered++;
    bool fine = true;
    for (int i = 0; i < n_inputs && fine; i++) {
        fine = inputs[i] != NULL;
        if (fine)
            yk__proto_text(&node, 1, inputs[i]);
    }
    for (int i = 0; i < n_outputs && fine; i++) {
        outputs[i] =
            n_outputs > 1 ? yk__onnx_text(g, "%s_%d:%d", type, number, i) : yk__onnx_text(g, "%s_%d", type, number);
        fine = outputs[i] != NULL;
        if (fine)
            yk__proto_text(&node, 2, outputs[i]);
    }
    char name[64];
    snprintf(name, sizeof(name), "%s_%d", type, number);
    yk__proto_text(&node, 3, name);
    yk__proto_text(&node, 4, type);
    if (attributes) {
        yk__proto_raw(&node, attributes->data, attributes->size);
        node.failed = node.failed || attributes->failed;
        free(attributes->data);
        *attributes = (yk__proto){0};
    }
    if (fine) {
        yk__proto_message(&g->nodes, 1, &node);
        fine = !g->nodes.failed;
        if (!fine)
            yk__fail_memory(g->nodes.size);
    }
    free(node.data);
    return fine;
}

const char *yk__onnx_node(yk__onnx *g, const char *type, yk__proto *attributes, int n_inputs, const char *const *inputs)
{
    const char *output = NULL;
    return yk__onnx_nodes(g, type, attributes, n_inputs, inputs, 1, &output) ? output : NULL;
}

/* ---- constants --------------------------------------------------------------------------------------------------- */

/* A constant without its bytes yet. NULL and an error. */
static yk__onnx_constant *constant_begin(yk__onnx *g, const char *name, yk_dtype dtype, int ndim, const int64_t *shape)
{
    if (!name || !grow(&g->constants, g->n_constants, &g->constant_room, sizeof(*g->constants)))
        return NULL;
    yk__onnx_constant *c = &g->constants[g->n_constants++];
    *c = (yk__onnx_constant){.size = yk_dtype_size(dtype)};
    for (int d = 0; d < ndim; d++) {
        yk__proto_int(&c->head, 1, shape[d]);
        c->size *= (size_t)shape[d];
    }
    yk__proto_int(&c->head, 2, yk__onnx_dtype(dtype));
    yk__proto_text(&c->head, 8, name);
    if (!c->head.failed)
        return c;
    yk__fail_memory(c->head.size);
    return NULL;
}

const char *yk__onnx_bytes(yk__onnx *g, yk_dtype dtype, int ndim, const int64_t *shape, const void *data)
{
    const char *name = yk__onnx_text(g, "constant_%d", g->numbered++);
    yk__onnx_constant *c = constant_begin(g, name, dtype, ndim, shape);
    void *bytes = c ? yk__calloc(1, c->size + !c->size) : NULL;
    if (!bytes)
        return NULL;
    memcpy(bytes, data, c->size);
    c->bytes = bytes;
    return name;
}

const char *yk__onnx_number(yk__onnx *g, yk_dtype dtype, double value)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *x =
        yk_cast(yk_scalar(value, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = {YK_CPU, 0})), dtype);
    unsigned char bytes[8];
    const char *name = NULL;
    if (x && !yk_tensor_read(x, bytes, yk_dtype_size(dtype)))
        name = yk__onnx_bytes(g, dtype, 0, NULL, bytes);
    yk_scope_end(scope);
    return name;
}

const char *yk__onnx_list(yk__onnx *g, int count, const int64_t *values)
{
    int64_t shape = count;
    return yk__onnx_bytes(g, YK_I64, 1, &shape, values);
}

/* The elements of x in C order, which the caller frees. */
static void *elements_of(const yk_tensor *x, size_t *bytes)
{
    *bytes = (size_t)yk_numel(x) * yk_dtype_size(yk_tensor_dtype(x));
    void *data = yk__calloc(1, *bytes + !*bytes);
    if (data && yk_tensor_read(x, data, *bytes)) {
        free(data);
        return NULL;
    }
    return data;
}

/* The name in the state dict of what shows the same memory in the same way; NULL: there is none. */
static const char *name_of(const yk__onnx *g, const yk_tensor *x)
{
    for (int64_t i = 0; i < yk__state_dict_count(g->state); i++) {
        const yk_tensor *s = yk__state_dict_at(g->state, i);
        if (s->data == x->data && s->ndim == x->ndim && yk__equal_sizes(s->shape, x->shape, x->ndim) &&
            yk__equal_sizes(s->stride, x->stride, x->ndim))
            return yk__state_dict_name(g->state, i);
    }
    return NULL;
}

/* A tensor as a constant of its own. */
static const char *tensor_constant(yk__onnx *g, yk_tensor *x)
{
    const char *known = name_of(g, x);
    const char *name = known ? yk__onnx_text(g, "%s", known) : yk__onnx_text(g, "constant_%d", g->numbered++);
    yk__onnx_constant *c = constant_begin(g, name, yk_tensor_dtype(x), x->ndim, x->shape);
    if (!c)
        return NULL;
    c->tensor = yk_tensor_retain(x);
    return name;
}

static const char *differs(const yk_tensor *x)
{
    char text[200];
    yk__fail(YK_ERR_UNSUPPORTED,
             "onnx_export: a tensor of shape %s is made of the inputs, or of the number of inputs, by an operation "
             "that cannot be exported",
             yk_shape_format(x, text, sizeof(text)));
    return NULL;
}

static const char *same_constant(yk__onnx *g, yk_tensor *a, const yk_tensor *b)
{
    size_t bytes, others;
    void *one = elements_of(a, &bytes), *two = elements_of(b, &others);
    bool same = one && two && bytes == others && memcmp(one, two, bytes) == 0, read = one && two;
    free(one);
    free(two);
    return same ? tensor_constant(g, a) : read ? differs(a) : NULL;
}

/* A constant that is larger in the call with the larger batch: one part of it, as often as the batch is large. */
static const char *repeated_constant(yk__onnx *g, yk_tensor *a, yk_tensor *b)
{
    yk_scope scope = yk_scope_begin();
    yk_tensor *part[2] = {a, b};
    int64_t times[2][YK_MAX_DIMS];
    bool fine = true;
    for (int d = 0; d < a->ndim && fine; d++) {
        int64_t once = b->shape[d] - a->shape[d];
        times[0][d] = once ? YK__ONNX_BATCH_A : 1;
        times[1][d] = once ? YK__ONNX_BATCH_B : 1;
        fine = !once || (once * YK__ONNX_BATCH_A == a->shape[d] && once * YK__ONNX_BATCH_B == b->shape[d]);
        for (int i = 0; i < 2 && once && fine; i++)
            fine = (part[i] = yk_narrow(part[i], d, 0, once)) != NULL;
    }
    for (int i = 0; i < 2 && fine; i++) {
        yk_tensor *equal = yk_all(yk_eq(i ? b : a, yk_repeat(part[i], a->ndim, times[i])));
        fine = equal && yk_item_i64(equal) != 0;
    }
    const char *name = fine ? same_constant(g, part[0], part[1]) : NULL;
    if (!fine && !yk__error_code())
        differs(a);
    if (name)
        name = YK__ONNX_NODE(g, "Tile", NULL, name, yk__onnx_sizes(g, a->ndim, times[0], times[1]));
    yk_scope_end(scope);
    return name;
}

const char *yk__onnx_value(yk__onnx *g, int value)
{
    if (value < 0)
        return "";
    if (g->value_names[value])
        return g->value_names[value];
    const yk__traced *a = &g->a->values[value], *b = &g->b->values[value];
    if (a->tensor->ndim != b->tensor->ndim || a->tensor->dtype != b->tensor->dtype)
        return differs(a->tensor);
    const char *name;
    if (yk__version(a->tensor) != a->version) {
        yk__fail(YK_ERR_UNSUPPORTED, "onnx_export: a tensor that is no result of the inputs is changed in place");
        name = NULL;
    } else if (a->tensor == b->tensor) {
        name = tensor_constant(g, a->tensor);
    } else if (yk__equal_sizes(a->tensor->shape, b->tensor->shape, a->tensor->ndim)) {
        name = same_constant(g, a->tensor, b->tensor);
    } else {
        name = repeated_constant(g, a->tensor, b->tensor);
    }
    g->value_names[value] = name;
    return name;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

bool yk__onnx_size(int64_t a, int64_t b, int64_t *times, int64_t *plus)
{
    *times = (b - a) / (YK__ONNX_BATCH_B - YK__ONNX_BATCH_A);
    *plus = a - *times * YK__ONNX_BATCH_A;
    if (*times >= 0 && *plus >= 0 && *times * YK__ONNX_BATCH_B + *plus == b)
        return true;
    yk__fail(YK_ERR_UNSUPPORTED,
             "onnx_export: a size is %lld with a batch of %d and %lld with one of %d, and is no multiple of the batch",
             (long long)a, YK__ONNX_BATCH_A, (long long)b, YK__ONNX_BATCH_B);
    return false;
}

/* The size of the batch, (1). */
static const char *batch_size(yk__onnx *g)
{
    if (g->batch)
        return g->batch;
    yk__proto attributes = {0};
    yk__onnx_int(&attributes, "start", g->batch_dim);
    yk__onnx_int(&attributes, "end", g->batch_dim + 1);
    g->batch = YK__ONNX_NODE(g, "Shape", &attributes, yk__onnx_value(g, g->batch_input));
    return g->batch;
}

const char *yk__onnx_sizes(yk__onnx *g, int ndim, const int64_t *a, const int64_t *b)
{
    const char *parts[YK_MAX_DIMS];
    bool fixed = true;
    for (int d = 0; d < ndim; d++)
        fixed = fixed && a[d] == b[d];
    if (fixed)
        return yk__onnx_list(g, ndim, a);
    for (int d = 0; d < ndim; d++) {
        int64_t times, plus;
        if (!yk__onnx_size(a[d], b[d], &times, &plus))
            return NULL;
        parts[d] = times ? batch_size(g) : yk__onnx_list(g, 1, &plus);
        if (times > 1)
            parts[d] = YK__ONNX_NODE(g, "Mul", NULL, parts[d], yk__onnx_list(g, 1, &times));
        if (times && plus)
            parts[d] = YK__ONNX_NODE(g, "Add", NULL, parts[d], yk__onnx_list(g, 1, &plus));
    }
    yk__proto attributes = {0};
    yk__onnx_int(&attributes, "axis", 0);
    return yk__onnx_node(g, "Concat", &attributes, ndim, parts);
}

const char *yk__onnx_reshape(yk__onnx *g, const char *x, int ndim, const int64_t *a, const int64_t *b)
{
    int64_t wanted[YK_MAX_DIMS];
    int open = 0;
    bool some = true;
    for (int d = 0; d < ndim; d++) {
        open += a[d] != b[d];
        wanted[d] = a[d] == b[d] ? a[d] : -1;
        some = some && a[d] > 0;
    }
    return YK__ONNX_NODE(g, "Reshape", NULL, x,
                         open <= 1 && some ? yk__onnx_list(g, ndim, wanted) : yk__onnx_sizes(g, ndim, a, b));
}

const char *yk__onnx_reshape_as(yk__onnx *g, const char *x, int value)
{
    const yk_tensor *a = yk__onnx_of_a(g, value), *b = yk__onnx_of_b(g, value);
    return yk__onnx_reshape(g, x, a->ndim, a->shape, b->shape);
}

/* ---- the numbers of an operation --------------------------------------------------------------------------------- */

static const yk__attribute *attribute_of(const yk__traced_op *op, const char *name)
{
    for (int i = 0; i < op->attributes.count; i++) {
        if (strcmp(op->attributes.list[i].name, name) == 0)
            return &op->attributes.list[i];
    }
    return NULL;
}

int64_t yk__onnx_whole(const yk__traced_op *op, const char *name)
{
    const yk__attribute *a = attribute_of(op, name);
    return a && a->count ? a->whole[0] : 0;
}

double yk__onnx_real(const yk__traced_op *op, const char *name)
{
    const yk__attribute *a = attribute_of(op, name);
    return a ? a->real : 0;
}

const int64_t *yk__onnx_ints_of(const yk__traced_op *op, const char *name, int *count)
{
    const yk__attribute *a = attribute_of(op, name);
    *count = a ? a->count : 0;
    return a && a->count ? a->whole : NULL;
}

const char *yk__onnx_input(yk__onnx *g, const yk__traced_op *op, int i)
{
    return i < op->n_inputs ? yk__onnx_value(g, op->values[i]) : "";
}

const char *yk__onnx_input_as(yk__onnx *g, const yk__traced_op *op, int i, yk_dtype dtype)
{
    const char *x = yk__onnx_input(g, op, i);
    yk__proto attributes = {0};
    if (op->values[i] < 0 || yk_tensor_dtype(yk__onnx_of_a(g, op->values[i])) == dtype)
        return x;
    yk__onnx_int(&attributes, "to", yk__onnx_dtype(dtype));
    return YK__ONNX_NODE(g, "Cast", &attributes, x);
}
