/*
 * onnx_layers.c - products, convolutions, pools, norms, attention and LSTMs as nodes of ONNX. Layer: onnx.
 */
#include <math.h>

#include "onnx/onnx_graph.h"

#define EMITTER(name)    static bool emit_##name(yk__onnx *g, const yk__traced_op *op, const char **results)
#define GIVE(expression) return (results[0] = (expression)) != NULL

static const yk_tensor *input_tensor(const yk__onnx *g, const yk__traced_op *op, int i)
{
    return i < op->n_inputs && op->values[i] >= 0 ? yk__onnx_of_a(g, op->values[i]) : NULL;
}

static const yk_tensor *result_tensor(const yk__onnx *g, const yk__traced_op *op)
{
    return yk__onnx_of_a(g, yk__onnx_out(op, 0));
}

static const char *plus(yk__onnx *g, const char *x, const char *y)
{
    return x && y && !*y ? x : YK__ONNX_NODE(g, "Add", NULL, x, y);
}

static const char *transposed(yk__onnx *g, const char *x, int ndim, const int64_t *order)
{
    yk__proto attributes = {0};
    yk__onnx_ints(&attributes, "perm", ndim, order);
    return YK__ONNX_NODE(g, "Transpose", &attributes, x);
}

/* ---- products ---- */

static const char *linear(yk__onnx *g, const yk__traced_op *op)
{
    const char *x = yk__onnx_input(g, op, 0), *weight = yk__onnx_input(g, op, 1), *bias = yk__onnx_input(g, op, 2);
    if (input_tensor(g, op, 0)->ndim == 2) {
        yk__proto attributes = {0};
        yk__onnx_int(&attributes, "transB", 1);
        return bias && *bias ? YK__ONNX_NODE(g, "Gemm", &attributes, x, weight, bias)
                             : YK__ONNX_NODE(g, "Gemm", &attributes, x, weight);
    }
    return plus(g, YK__ONNX_NODE(g, "MatMul", NULL, x, transposed(g, weight, 2, (int64_t[]){1, 0})), bias);
}

EMITTER(linear)
{
    GIVE(linear(g, op));
}

EMITTER(linear_relu)
{
    GIVE(YK__ONNX_NODE(g, "Relu", NULL, linear(g, op)));
}

EMITTER(embedding)
{
    GIVE(YK__ONNX_NODE(g, "Gather", NULL, yk__onnx_input(g, op, 1), yk__onnx_input(g, op, 0)));
}

/* ---- convolutions ---- */

static const int64_t *pair_of(const yk__traced_op *op, const char *name)
{
    int count;
    return yk__onnx_ints_of(op, name, &count);
}

/* "strides", "dilations", "pads" and "group", with `end` more padding at the end. */
static void window_attributes(const yk__traced_op *op, yk__proto *to, const int64_t end[2])
{
    const int64_t *padding = pair_of(op, "padding");
    yk__onnx_ints(to, "strides", 2, pair_of(op, "stride"));
    yk__onnx_ints(to, "dilations", 2, pair_of(op, "dilation"));
    yk__onnx_ints(to, "pads", 4, (int64_t[]){padding[0], padding[1], padding[0] + end[0], padding[1] + end[1]});
}

static const char *conv(yk__onnx *g, const yk__traced_op *op)
{
    yk__proto attributes = {0};
    const char *x = yk__onnx_input(g, op, 0), *weight = yk__onnx_input(g, op, 1), *bias = yk__onnx_input(g, op, 2);
    window_attributes(op, &attributes, (int64_t[]){0, 0});
    yk__onnx_int(&attributes, "group", yk__onnx_whole(op, "groups"));
    return bias && *bias ? YK__ONNX_NODE(g, "Conv", &attributes, x, weight, bias)
                         : YK__ONNX_NODE(g, "Conv", &attributes, x, weight);
}

EMITTER(conv2d)
{
    GIVE(conv(g, op));
}

EMITTER(conv2d_relu)
{
    GIVE(YK__ONNX_NODE(g, "Relu", NULL, conv(g, op)));
}

EMITTER(conv_transpose2d)
{
    const yk_tensor *x = input_tensor(g, op, 0), *weight = input_tensor(g, op, 1), *out = result_tensor(g, op);
    const int64_t *stride = pair_of(op, "stride"), *padding = pair_of(op, "padding");
    const int64_t *dilation = pair_of(op, "dilation");
    int64_t more[2];
    yk__proto attributes = {0};
    for (int i = 0; i < 2; i++)
        more[i] = out->shape[2 + i] -
                  ((x->shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (weight->shape[2 + i] - 1) + 1);
    window_attributes(op, &attributes, (int64_t[]){0, 0});
    yk__onnx_ints(&attributes, "output_padding", 2, more);
    yk__onnx_int(&attributes, "group", yk__onnx_whole(op, "groups"));
    GIVE(YK__ONNX_NODE(g, "ConvTranspose", &attributes, yk__onnx_input(g, op, 0), yk__onnx_input(g, op, 1)));
}

/* ---- pools ---- */

/* The padding at the end that gives as many windows as there are, which ceil_mode may have made more. */
static void padding_at_end(const yk__onnx *g, const yk__traced_op *op, int64_t more[2])
{
    const yk_tensor *x = input_tensor(g, op, 0), *out = result_tensor(g, op);
    for (int i = 0; i < 2; i++) {
        int64_t reach = pair_of(op, "dilation")[i] * (pair_of(op, "kernel")[i] - 1) + 1;
        int64_t has = x->shape[2 + i] + 2 * pair_of(op, "padding")[i];
        int64_t wants = (out->shape[2 + i] - 1) * pair_of(op, "stride")[i] + reach;
        more[i] = wants > has ? wants - has : 0;
    }
}

EMITTER(max_pool2d)
{
    int64_t more[2];
    yk__proto attributes = {0};
    padding_at_end(g, op, more);
    window_attributes(op, &attributes, more);
    yk__onnx_ints(&attributes, "kernel_shape", 2, pair_of(op, "kernel"));
    GIVE(YK__ONNX_NODE(g, "MaxPool", &attributes, yk__onnx_input(g, op, 0)));
}

/* The number of elements of each window of an axis that count: those within `from` and `to`, of positions from 0 on
 * the input; `data` is filled. */
static void window_counts(const yk__traced_op *op, int i, int64_t from, int64_t to, int64_t count, double *data)
{
    for (int64_t w = 0; w < count; w++) {
        int64_t begin = w * pair_of(op, "stride")[i] - pair_of(op, "padding")[i];
        int64_t end = begin + pair_of(op, "kernel")[i];
        data[w] = (double)((end < to ? end : to) - (begin > from ? begin : from));
    }
}

/* Averages that count all of a window are ONNX's; else the sums of the windows are divided by a table. */
EMITTER(avg_pool2d)
{
    const yk_tensor *x = input_tensor(g, op, 0), *out = result_tensor(g, op);
    int64_t more[2], divisor = yk__onnx_whole(op, "divisor");
    const int64_t *kernel = pair_of(op, "kernel"), *padding = pair_of(op, "padding");
    yk__proto attributes = {0};
    padding_at_end(g, op, more);
    window_attributes(op, &attributes, more);
    yk__onnx_ints(&attributes, "kernel_shape", 2, kernel);
    yk__onnx_int(&attributes, "count_include_pad", 1);
    const char *pool = YK__ONNX_NODE(g, "AveragePool", &attributes, yk__onnx_input(g, op, 0));
    int64_t rows = out->shape[2], columns = out->shape[3];
    double *counts = yk__calloc((size_t)(rows + columns + rows * columns), sizeof(*counts));
    if (!counts)
        return false;
    double *of_rows = counts + rows * columns, *of_columns = of_rows + rows;
    bool excludes = yk__onnx_whole(op, "count_exclude_pad") != 0, all = true;
    for (int i = 0; i < 2; i++)
        window_counts(op, i, excludes ? 0 : -padding[i], x->shape[2 + i] + (excludes ? 0 : padding[i]),
                      out->shape[2 + i], i ? of_columns : of_rows);
    for (int64_t n = 0; n < rows * columns; n++) {
        double counted = divisor ? (double)divisor : of_rows[n / columns] * of_columns[n % columns];
        counts[n] = (double)(kernel[0] * kernel[1]) / counted;
        all = all && counts[n] == 1;
    }
    const char *name = pool;
    if (!all) {
        yk_scope scope = yk_scope_begin();
        yk_tensor *table = yk_cast(yk_from_data(counts, 2, (int64_t[]){rows, columns},
                                                YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = {YK_CPU, 0})),
                                   yk_tensor_dtype(x));
        void *bytes = table ? yk__calloc(1, (size_t)yk_numel(table) * yk_dtype_size(yk_tensor_dtype(x))) : NULL;
        name = NULL;
        if (bytes && !yk_tensor_read(table, bytes, (size_t)yk_numel(table) * yk_dtype_size(yk_tensor_dtype(x))))
            name = YK__ONNX_NODE(g, "Mul", NULL, pool,
                                 yk__onnx_bytes(g, yk_tensor_dtype(x), 2, (int64_t[]){rows, columns}, bytes));
        free(bytes);
        yk_scope_end(scope);
    }
    free(counts);
    GIVE(name);
}

/* The product with a table (size, count) along a dimension of four, whose columns are the averages of each window. */
static const char *averaged(yk__onnx *g, const char *x, int dim, yk_dtype dtype, int64_t size, int64_t count)
{
    double *table = yk__calloc((size_t)(size * count), sizeof(*table));
    if (!table)
        return NULL;
    for (int64_t o = 0; o < count; o++) {
        int64_t from = o * size / count, to = ((o + 1) * size + count - 1) / count;
        for (int64_t i = from; i < to; i++)
            table[dim == 3 ? i * count + o : o * size + i] = 1 / (double)(to - from);
    }
    const int64_t shape[2] = {dim == 3 ? size : count, dim == 3 ? count : size};
    yk_scope scope = yk_scope_begin();
    yk_tensor *cast = yk_cast(
        yk_from_data(table, 2, shape, YK_OPTIONS(yk_tensor_options, .dtype = YK_F64, .device = {YK_CPU, 0})), dtype);
    const char *name = NULL;
    size_t bytes = (size_t)(size * count) * yk_dtype_size(dtype);
    if (cast && !yk_tensor_read(cast, table, bytes))
        name = yk__onnx_bytes(g, dtype, 2, shape, table);
    yk_scope_end(scope);
    free(table);
    return dim == 3 ? YK__ONNX_NODE(g, "MatMul", NULL, x, name) : YK__ONNX_NODE(g, "MatMul", NULL, name, x);
}

EMITTER(adaptive_avg_pool2d)
{
    const yk_tensor *x = input_tensor(g, op, 0), *out = result_tensor(g, op);
    yk__proto attributes = {0};
    if (out->shape[2] == 1 && out->shape[3] == 1)
        GIVE(YK__ONNX_NODE(g, "GlobalAveragePool", NULL, yk__onnx_input(g, op, 0)));
    if (x->shape[2] % out->shape[2] == 0 && x->shape[3] % out->shape[3] == 0) {
        int64_t kernel[2] = {x->shape[2] / out->shape[2], x->shape[3] / out->shape[3]};
        yk__onnx_ints(&attributes, "kernel_shape", 2, kernel);
        yk__onnx_ints(&attributes, "strides", 2, kernel);
        GIVE(YK__ONNX_NODE(g, "AveragePool", &attributes, yk__onnx_input(g, op, 0)));
    }
    yk_dtype dtype = yk_tensor_dtype(x);
    const char *lines = averaged(g, yk__onnx_input(g, op, 0), 3, dtype, x->shape[3], out->shape[3]);
    GIVE(averaged(g, lines, 2, dtype, x->shape[2], out->shape[2]));
}

/* ---- norms ---- */

/* By the statistics of the batch itself, which other norms are made with. */
static const char *norm_of_batch(yk__onnx *g, const yk__traced_op *op)
{
    const yk_tensor *x = input_tensor(g, op, 0);
    int64_t axes[YK_MAX_DIMS];
    int count = 0;
    for (int d = 0; d < x->ndim; d++)
        if (d != 1)
            axes[count++] = d;
    const char *list = yk__onnx_list(g, count, axes), *name = yk__onnx_input(g, op, 0);
    const char *centred = YK__ONNX_NODE(g, "Sub", NULL, name, YK__ONNX_NODE(g, "ReduceMean", NULL, name, list));
    const char *var = YK__ONNX_NODE(g, "ReduceMean", NULL, YK__ONNX_NODE(g, "Mul", NULL, centred, centred), list);
    const char *eps = yk__onnx_number(g, yk_tensor_dtype(x), yk__onnx_real(op, "eps"));
    const char *scale = YK__ONNX_NODE(g, "Sqrt", NULL, YK__ONNX_NODE(g, "Add", NULL, var, eps));
    name = YK__ONNX_NODE(g, "Div", NULL, centred, scale);
    for (int i = 1; i <= 2; i++) { /* the number of channels may be the batch's */
        const char *vector = yk__onnx_input(g, op, i);
        int64_t a[YK_MAX_DIMS] = {1, 0, 1, 1, 1, 1, 1, 1}, b[YK_MAX_DIMS] = {1, 0, 1, 1, 1, 1, 1, 1};
        a[1] = x->shape[1];
        b[1] = yk__onnx_of_b(g, op->values[0])->shape[1];
        if (vector && *vector)
            name = YK__ONNX_NODE(g, i == 1 ? "Mul" : "Add", NULL, name, yk__onnx_reshape(g, vector, x->ndim, a, b));
    }
    return name;
}

/* A vector of C equal numbers. */
static const char *filled(yk__onnx *g, yk_dtype dtype, int64_t count, double value)
{
    return YK__ONNX_NODE(g, "Expand", NULL, yk__onnx_number(g, dtype, value), yk__onnx_list(g, 1, &count));
}

EMITTER(batch_norm)
{
    const yk_tensor *x = input_tensor(g, op, 0);
    yk_dtype dtype = yk_tensor_dtype(x);
    const char *name, *parts[5], *residual = yk__onnx_input(g, op, 3);
    if (yk__onnx_whole(op, "training")) {
        name = norm_of_batch(g, op);
    } else {
        yk__proto attributes = {0};
        for (int i = 0; i < 5; i++) { /* x, weight, bias, then what stands after the residual */
            parts[i] = yk__onnx_input_as(g, op, i < 3 ? i : i + 1, dtype);
            if (parts[i] && !*parts[i])
                parts[i] = filled(g, dtype, x->shape[1], i == 1);
        }
        yk__onnx_float(&attributes, "epsilon", yk__onnx_real(op, "eps"));
        name = yk__onnx_node(g, "BatchNormalization", &attributes, 5, parts);
    }
    name = plus(g, name, residual);
    GIVE(yk__onnx_whole(op, "relu") ? YK__ONNX_NODE(g, "Relu", NULL, name) : name);
}

EMITTER(layer_norm)
{
    const yk_tensor *x = input_tensor(g, op, 0);
    const char *parts[3];
    int64_t size = yk__onnx_whole(op, "size"), product = 1;
    int axis = x->ndim;
    while (axis > 0 && product < size)
        product *= x->shape[--axis];
    const yk_tensor *weight = input_tensor(g, op, 1);
    if (weight)
        axis = x->ndim - weight->ndim;
    for (int i = 0; i < 3; i++)
        parts[i] = yk__onnx_input_as(g, op, i, yk_tensor_dtype(x));
    if (!weight) /* ONNX wants one */
        parts[1] = YK__ONNX_NODE(g, "Expand", NULL, yk__onnx_number(g, yk_tensor_dtype(x), 1),
                                 yk__onnx_list(g, x->ndim - axis, x->shape + axis));
    yk__proto attributes = {0};
    yk__onnx_int(&attributes, "axis", axis);
    yk__onnx_float(&attributes, "epsilon", yk__onnx_real(op, "eps"));
    GIVE(yk__onnx_node(g, "LayerNormalization", &attributes, parts[2] && *parts[2] ? 3 : 2, parts));
}

static const char *softmax(yk__onnx *g, const char *type, const char *x, int64_t dim)
{
    yk__proto attributes = {0};
    yk__onnx_int(&attributes, "axis", dim);
    return YK__ONNX_NODE(g, type, &attributes, x);
}

EMITTER(softmax)
{
    GIVE(softmax(g, "Softmax", yk__onnx_input(g, op, 0), yk__onnx_whole(op, "dim")));
}

EMITTER(log_softmax)
{
    GIVE(softmax(g, "LogSoftmax", yk__onnx_input(g, op, 0), yk__onnx_whole(op, "dim")));
}

/* ---- attention ---- */

/* A mask (L, S) that is true where key s is at most query l. */
static const char *causal_mask(yk__onnx *g, int64_t queries, int64_t keys)
{
    unsigned char *mask = yk__calloc((size_t)(queries * keys) + 1, 1);
    for (int64_t l = 0; mask && l < queries; l++)
        for (int64_t s = 0; s < keys; s++)
            mask[l * keys + s] = s <= l;
    const char *name = mask ? yk__onnx_bytes(g, YK_BOOL, 2, (int64_t[]){queries, keys}, mask) : NULL;
    free(mask);
    return name;
}

/* A query that may look at nothing gives 0. Dropout has no node. */
EMITTER(attention)
{
    if (yk__onnx_real(op, "dropout_p") > 0)
        return false;
    const yk_tensor *q = input_tensor(g, op, 0), *k = input_tensor(g, op, 1), *masked = input_tensor(g, op, 3);
    yk_dtype dtype = yk_tensor_dtype(q);
    int64_t order[YK_MAX_DIMS];
    for (int d = 0; d < k->ndim; d++)
        order[d] = d;
    order[k->ndim - 2] = k->ndim - 1;
    order[k->ndim - 1] = k->ndim - 2;
    const char *scaled =
        YK__ONNX_NODE(g, "Mul", NULL, yk__onnx_input(g, op, 0), yk__onnx_number(g, dtype, yk__onnx_real(op, "scale")));
    const char *scores =
        YK__ONNX_NODE(g, "MatMul", NULL, scaled, transposed(g, yk__onnx_input(g, op, 1), k->ndim, order));
    const char *mask = NULL, *zero = yk__onnx_number(g, dtype, 0), *least = yk__onnx_number(g, dtype, -INFINITY);
    if (yk__onnx_whole(op, "causal"))
        mask = causal_mask(g, q->shape[q->ndim - 2], k->shape[k->ndim - 2]);
    else if (masked && yk_tensor_dtype(masked) == YK_BOOL)
        mask = yk__onnx_input(g, op, 3);
    if (mask)
        scores = YK__ONNX_NODE(g, "Where", NULL, mask, scores, least);
    else if (masked)
        scores = YK__ONNX_NODE(g, "Add", NULL, scores, yk__onnx_input(g, op, 3));
    if (masked) {
        const char *most = YK__ONNX_NODE(g, "ReduceMax", NULL, scores, yk__onnx_list(g, 1, (int64_t[]){-1}));
        const char *nothing = YK__ONNX_NODE(g, "Equal", NULL, most, least);
        const char *weights = softmax(g, "Softmax", YK__ONNX_NODE(g, "Where", NULL, nothing, zero, scores), -1);
        scores = YK__ONNX_NODE(g, "Where", NULL, nothing, zero, weights);
    } else {
        scores = softmax(g, "Softmax", scores, -1);
    }
    GIVE(YK__ONNX_NODE(g, "MatMul", NULL, scores, yk__onnx_input(g, op, 2)));
}

/* ---- LSTMs ---- */

/* A weight (4H, ...) or bias whose gates i, f, g, o stand in ONNX's order, i, o, f, c, with a leading 1. */
static const char *gates_turned(yk__onnx *g, const char *weight)
{
    const char *parts[4], *turned[4];
    yk__proto attributes = {0};
    yk__onnx_int(&attributes, "axis", 0);
    yk__onnx_int(&attributes, "num_outputs", 4);
    if (!weight || !yk__onnx_nodes(g, "Split", &attributes, 1, &weight, 4, parts))
        return NULL;
    turned[0] = parts[0], turned[1] = parts[3], turned[2] = parts[1], turned[3] = parts[2];
    yk__onnx_int(&attributes, "axis", 0);
    return yk__onnx_node(g, "Concat", &attributes, 4, turned);
}

static const char *in_front(yk__onnx *g, const char *x)
{
    return YK__ONNX_NODE(g, "Unsqueeze", NULL, x, yk__onnx_list(g, 1, (int64_t[]){0}));
}

/* One layer in one direction, or a cell, which is a sequence of one. Results: all states, the last cell, and the last
 * state where it is wanted. */
EMITTER(lstm)
{
    const yk_tensor *x = input_tensor(g, op, 0), *w_hh = input_tensor(g, op, 4);
    bool single = x->ndim == 2;
    const char *parts[7], *made[3], *biases[2];
    parts[0] = single ? in_front(g, yk__onnx_input(g, op, 0)) : yk__onnx_input(g, op, 0);
    for (int i = 0; i < 2; i++) {
        parts[1 + i] = in_front(g, gates_turned(g, yk__onnx_input(g, op, 3 + i)));
        biases[i] = input_tensor(g, op, 5) ? gates_turned(g, yk__onnx_input(g, op, 5 + i)) : NULL;
    }
    yk__proto attributes = {0};
    yk__onnx_int(&attributes, "axis", 0);
    parts[3] = input_tensor(g, op, 5) ? in_front(g, yk__onnx_node(g, "Concat", &attributes, 2, biases)) : "";
    free(attributes.data);
    attributes = (yk__proto){0};
    parts[4] = "";
    for (int i = 0; i < 2; i++)
        parts[5 + i] = input_tensor(g, op, 1 + i) ? in_front(g, yk__onnx_input(g, op, 1 + i)) : "";
    yk__onnx_int(&attributes, "hidden_size", w_hh->shape[1]);
    yk__onnx_string(&attributes, "direction", yk__onnx_whole(op, "reverse") ? "reverse" : "forward");
    if (!yk__onnx_nodes(g, "LSTM", &attributes, 7, parts, 3, made)) /* (T,1,N,H), (1,N,H), (1,N,H) */
        return false;
    const char *second = yk__onnx_list(g, 1, (int64_t[]){1}), *first = yk__onnx_list(g, 1, (int64_t[]){0});
    results[0] =
        single ? YK__ONNX_NODE(g, "Squeeze", NULL, made[1], first) : YK__ONNX_NODE(g, "Squeeze", NULL, made[0], second);
    results[1] = YK__ONNX_NODE(g, "Squeeze", NULL, made[2], first);
    if (op->n_outputs > 2)
        results[2] = YK__ONNX_NODE(g, "Squeeze", NULL, made[1], first);
    return results[0] && results[1];
}

const yk__onnx_row yk__onnx_layers[] = {
    {"linear", emit_linear, NULL},
    {"linear_relu", emit_linear_relu, NULL},
    {"matmul", NULL, "MatMul"},
    {"embedding", emit_embedding, NULL},
    {"conv2d", emit_conv2d, NULL},
    {"conv2d_relu", emit_conv2d_relu, NULL},
    {"conv_transpose2d", emit_conv_transpose2d, NULL},
    {"max_pool2d", emit_max_pool2d, NULL},
    {"avg_pool2d", emit_avg_pool2d, NULL},
    {"adaptive_avg_pool2d", emit_adaptive_avg_pool2d, NULL},
    {"batch_norm", emit_batch_norm, NULL},
    {"layer_norm", emit_layer_norm, NULL},
    {"softmax", emit_softmax, NULL},
    {"log_softmax", emit_log_softmax, NULL},
    {"scaled_dot_product_attention", emit_attention, NULL},
    {"lstm", emit_lstm, NULL},
    {NULL, NULL, NULL},
};
